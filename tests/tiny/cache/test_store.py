"""The cache on disk: whole entries or none, private folders, a limit, several processes."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from pathlib import Path

import pytest

from refcompiler.cache import artifacts, folder, store
from refcompiler.cache.store import Store, key_of
from refcompiler.runtime.config import config

KEYS = [key_of(str(n)) for n in range(40)]


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    return Store(folder.private(tmp_path / "cache"), 1 << 20)


@pytest.fixture
def current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "chosen"))
    found = store.current()
    assert found is not None and found.root == tmp_path / "chosen" / "compiled"
    return found


def test_keys_tell_apart_what_joins_to_one_text() -> None:
    assert len({key_of("ab", "c"), key_of("a", "bc"), key_of("abc"), key_of("ab", "c", "")}) == 4


def test_an_entry_is_found_by_its_kind_and_key(kept: Store) -> None:
    kept.put("kernel", KEYS[0], b"code")
    assert kept.get("kernel", KEYS[0]) == b"code"
    assert kept.get("kernel", KEYS[1]) is None
    assert kept.get("graph", KEYS[0]) is None
    assert list(kept.seen) == [("kernel", KEYS[0])]
    assert Store(kept.root, 0).get("kernel", KEYS[0]) == b"code"


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_entry_is_made_anew_with_one_warning(kept: Store, damage: str) -> None:
    data = bytes(range(256))
    for key in KEYS[:2]:
        kept.put("kernel", key, data)
    first, second = (entry.path for entry in sorted(kept.entries(), key=lambda e: e.key))
    whole = first.read_bytes()
    for path in (first, second):
        path.write_bytes(
            {
                "cut": whole[:-7],
                "flipped": whole[:-9] + b"\0" + whole[-8:],
                "empty": b"",
                "other": b"something else",
            }[damage]
        )
    with pytest.warns(UserWarning, match="damaged entries, which are made anew"):
        assert kept.made("kernel", KEYS[0], lambda: data) == data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kept.get("kernel", KEYS[1]) is None
        assert kept.get("kernel", KEYS[0]) == data


def test_an_entry_of_another_key_in_its_place_is_damaged(kept: Store) -> None:
    kept.put("kernel", KEYS[0], b"code")
    (entry,) = kept.entries()
    other = kept._path("kernel", KEYS[1])
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(entry.path.read_bytes())
    with pytest.warns(UserWarning, match="damaged"):
        assert kept.get("kernel", KEYS[1]) is None


def test_what_was_used_longest_ago_goes_first(kept: Store) -> None:
    kept.limit = 20_000
    for age, key in enumerate(KEYS):
        kept.put("kernel", key, b"x" * 950)
        path = kept._path("kernel", key)
        if path.exists():
            os.utime(path, (1_000_000 + age, 1_000_000 + age))
        if age == 15:
            assert kept.get("kernel", KEYS[0])  # used now, so that it stays
    left = {entry.key for entry in kept.entries()}
    assert sum(entry.bytes for entry in kept.entries()) <= kept.limit
    assert {KEYS[0], KEYS[-1]} <= left and KEYS[1] not in left
    assert len(left) >= 15


def test_an_entry_that_is_larger_than_the_limit_replaces_all(kept: Store) -> None:
    kept.limit = 100
    kept.put("kernel", KEYS[0], b"x" * 1000)
    kept.put("kernel", KEYS[1], b"y" * 1000)
    assert [entry.key for entry in kept.entries()] == [KEYS[1]]


def test_what_nobody_finished_is_no_entry_and_goes(kept: Store) -> None:
    kept.put("kernel", KEYS[0], b"code")
    (entry,) = kept.entries()
    unfinished = entry.path.with_name(".unfinished-1")
    unfinished.write_bytes(b"half")
    os.utime(unfinished, (1_000_000, 1_000_000))
    assert len(kept.entries()) == 1
    kept.limit = 1
    kept.put("kernel", KEYS[0], b"code")
    assert not unfinished.exists()


def test_clearing_removes_all(kept: Store) -> None:
    for key in KEYS[:3]:
        kept.put("kernel", key, b"code")
    assert kept.clear() == 3
    assert kept.entries() == [] and kept.get("kernel", KEYS[0]) is None


def test_what_cannot_be_written_is_one_warning(kept: Store) -> None:
    (kept.root / "kernel").write_text("a file where a folder should be")
    with pytest.warns(UserWarning, match="cannot be written"):
        assert kept.made("kernel", KEYS[0], lambda: b"code") == b"code"


def test_a_process_that_is_stopped_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not one that asks for an entry of the same lock while it makes one."""
    monkeypatch.setattr(store, "_PATIENCE", 0.05)
    monkeypatch.setattr(store, "_LOCKS", 1)
    found = Store(tmp_path, 1 << 20)

    def inner() -> bytes:
        return b"<" + found.made("kind", key_of("inner"), lambda: b"inner") + b">"

    assert found.made("kind", key_of("outer"), inner) == b"<inner>"
    assert found.get("kind", key_of("inner")) == b"inner"


def test_folders_are_made_for_the_user_alone(tmp_path: Path) -> None:
    kept = Store(folder.private(tmp_path / "a" / "b"), 1 << 20)
    kept.put("kernel", KEYS[0], b"code")
    (entry,) = kept.entries()
    for path in (tmp_path / "a", kept.root, kept.root / "kernel", entry.path.parent):
        assert path.stat().st_mode & 0o077 == 0
    assert entry.path.stat().st_mode & 0o077 == 0


def test_folders_that_others_can_use_are_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for mode in (0o755, 0o770, 0o701):
        shared.chmod(mode)
        with pytest.raises(folder.Refused, match="open to other users; chmod 700"):
            folder.private(shared)
    shared.chmod(0o700)
    assert folder.private(shared) == shared
    link = tmp_path / "link"
    link.symlink_to(shared)
    with pytest.raises(folder.Refused, match="a link"):
        folder.private(link)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(folder.Refused, match="cannot be a cache"):
        folder.private(file)


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = folder.private(tmp_path / "own")
    monkeypatch.setattr(os, "geteuid", lambda: own.stat().st_uid + 1)
    with pytest.raises(folder.Refused, match="belongs to another user"):
        folder.private(own)


def test_where_the_folder_is_refused_nothing_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open" / "compiled").mkdir(parents=True)
    (tmp_path / "open" / "compiled").chmod(0o755)
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "open"))
    with pytest.warns(UserWarning, match="nothing is cached: .* is open to other users"):
        assert store.current() is None


def test_the_users_folder_is_where_it_is_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(folder.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert folder.base() == Path("/somewhere/refcompiler")


def test_switched_off_there_is_no_store(current: Store) -> None:
    with config.patch(force_disable_caches=True):
        assert store.current() is None
    with config.patch(cache_bytes=12_345):
        assert store.current() is current and current.limit == 12_345


def _ask(root: Path, key: str, number: int) -> None:
    def make() -> bytes:
        with open(root / "made", "a") as stream:
            stream.write(f"{number}\n")
        return b"code" * 1000

    assert Store(root, 1 << 20).made("kernel", key, make) == b"code" * 1000


def test_of_processes_that_ask_at_once_one_makes_it(kept: Store) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_ask, args=(kept.root, KEYS[0], n)) for n in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert len((kept.root / "made").read_text().splitlines()) == 1


def test_artifacts_move_what_was_used_to_another_folder(
    current: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert artifacts.save_cache_artifacts() is None
    current.put("kernel", KEYS[0], b"code")
    current.put("graph", KEYS[1], b"")
    Store(current.root, 1 << 20).put("kernel", KEYS[2], b"of another process")
    saved = artifacts.save_cache_artifacts()
    assert saved is not None
    data, info = saved
    assert isinstance(data, bytes) and not info.empty()
    assert info.artifacts == {"kernel": [KEYS[0]], "graph": [KEYS[1]]}

    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "elsewhere"))
    loaded = artifacts.load_cache_artifacts(data)
    other = store.current()
    assert loaded == info
    assert other is not None and other is not current
    assert other.get("kernel", KEYS[0]) == b"code" and other.get("graph", KEYS[1]) == b""
    assert other.get("kernel", KEYS[2]) is None
    assert artifacts.save_cache_artifacts() == (data, info)


def test_artifacts_that_are_none_are_one_warning(current: Store) -> None:
    current.put("kernel", KEYS[0], b"code")
    saved = artifacts.save_cache_artifacts()
    assert saved is not None
    good = saved[0]
    current.clear()
    for bad in (b"", b"junk", good[:-1], good + b"x", good.replace(b"code", b"edoc")):
        with pytest.warns(UserWarning, match="the bytes are no artifacts, or damaged"):
            assert artifacts.load_cache_artifacts(bad) is None
    assert current.entries() == []
    with pytest.raises(TypeError, match="takes bytes, not str"):
        artifacts.load_cache_artifacts("text")  # type: ignore[arg-type]
    with config.patch(force_disable_caches=True), pytest.warns(UserWarning, match="no cache"):
        assert artifacts.load_cache_artifacts(good) is None


def test_artifacts_name_no_files_outside_the_cache(current: Store) -> None:
    current.put("kernel", "../" * 3 + "escaped", b"code")
    saved = artifacts.save_cache_artifacts()
    assert saved is not None
    with pytest.warns(UserWarning, match="no artifacts"):
        assert artifacts.load_cache_artifacts(saved[0]) is None
