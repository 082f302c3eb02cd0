"""A content-addressed store of files, for many processes at once.

An entry is written beside its place and renamed into it, so that whoever reads finds all of it or
nothing; it carries a digest of itself, so that what a crash or a bad disk left is seen, removed and
made anew. The bytes of all entries together stay within a limit: those used longest ago go first.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from refcompiler.cache import folder
from refcompiler.runtime.config import config

_MAGIC = b"refcompiler cache 1\n"
_DIGEST = hashlib.sha256().digest_size
_LOCKS = 64  # files that keep processes from making the same entry at the same time
_PATIENCE = 10.0  # seconds to wait for another process that makes an entry
_STALE = 3600.0  # seconds after which a file that nobody finished is nobody's
_UNFINISHED = ".unfinished-"


class Entry(NamedTuple):
    """``bytes`` on disk; ``used`` last, in seconds since the epoch."""

    kind: str
    key: str
    bytes: int
    used: float
    path: Path


def key_of(*parts: str | bytes) -> str:
    """The name of what depends on ``parts`` and on nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Store:
    """The entries below ``root``, a private folder; at most ``limit`` bytes of them, or the last.

    What this process read or wrote is noted in ``seen``: kind and key, in order.
    """

    def __init__(self, root: Path, limit: int):
        self.root, self.limit = root, limit
        self.seen: dict[tuple[str, str], None] = {}
        self._size: int | None = None  # of all entries, about: others write too

    def get(self, kind: str, key: str) -> bytes | None:
        """The entry's bytes, or None where there is none that is whole."""
        path = self._path(kind, key)
        try:
            found = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST
        data = found[start:]
        if found[:start] != _MAGIC + _digest(kind, key, data):
            warn(f"the cache in {self.root} has damaged entries, which are made anew")
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        self.seen[kind, key] = None
        return data

    def has(self, kind: str, key: str) -> bool:
        """Whether there is such an entry, whole or not."""
        return self._path(kind, key).exists()

    def has_any(self, kind: str) -> bool:
        """Whether an entry of this kind was ever kept, and the cache not been cleared since."""
        return next((self.root / kind).glob("*/*"), None) is not None

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep ``data``, if it can be written."""
        path = self._path(kind, key)
        whole = _MAGIC + _digest(kind, key, data) + data
        try:
            folder.make(path.parent)
            unfinished, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=path.parent)
            try:
                with open(unfinished, "wb") as stream:
                    stream.write(whole)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            warn(f"the cache in {self.root} cannot be written ({error}); compilation goes on")
            return
        self.seen[kind, key] = None
        self._grown(len(whole))

    def made(self, kind: str, key: str, make: Callable[[], bytes]) -> bytes:
        """The entry's bytes; where there are none, those of ``make()``, which are then kept.

        Of several processes that ask at once one makes them, and the others wait for a while.
        """
        found = self.get(kind, key)
        if found is not None:
            return found
        with self._alone(int(key[:8], 16) % _LOCKS):
            found = self.get(kind, key)
            if found is None:
                found = make()
                self.put(kind, key, found)
        return found

    def entries(self) -> list[Entry]:
        """All entries, those used longest ago first."""
        found = []
        for path in self._files():
            with contextlib.suppress(OSError):  # gone meanwhile
                state = path.stat()
                kind = path.parent.parent.name
                found.append(Entry(kind, path.name, state.st_size, state.st_mtime, path))
        return sorted(found, key=lambda entry: entry.used)

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        found = self.entries()
        for entry in found:
            with contextlib.suppress(OSError):
                entry.path.unlink()
        self.seen.clear()
        self._size = None
        return len(found)

    def _path(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:2] / key

    def _files(self, unfinished: bool = False) -> Iterator[Path]:
        for path in self.root.glob("*/*/*"):
            if path.name.startswith(_UNFINISHED) == unfinished:
                yield path

    def _grown(self, more: int) -> None:
        if self._size is None:
            self._size = sum(entry.bytes for entry in self.entries())
        else:
            self._size += more
        if self._size > self.limit:
            self._sweep()

    def _sweep(self) -> None:
        """Remove what was used longest ago, down to nine tenths of the limit."""
        entries = self.entries()
        size = sum(entry.bytes for entry in entries)
        for entry in entries[:-1]:  # the last one is what was just written
            if size <= self.limit * 9 // 10:
                break
            with contextlib.suppress(OSError):
                entry.path.unlink()
            size -= entry.bytes
        for path in self._files(unfinished=True):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()
        self._size = size

    @contextlib.contextmanager
    def _alone(self, number: int) -> Iterator[None]:
        """Among the processes of this machine; where files cannot be locked, each for itself.

        So does one that has waited long: the other may be stopped, or wait for something itself.
        """
        try:
            import fcntl

            lock = open(self.root / f"lock-{number}", "w")
        except (ImportError, OSError):
            yield
            return
        patience = time.monotonic() + _PATIENCE
        pause = 0.001
        with lock:  # given up when the file is closed
            while time.monotonic() < patience:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(pause)
                    pause = min(2 * pause, 0.1)
                except OSError:
                    break
            yield


def _digest(kind: str, key: str, data: bytes) -> bytes:
    return bytes.fromhex(key_of(kind, key, data))


@functools.cache
def warn(text: str) -> None:
    """Once for each text."""
    warnings.warn(text, stacklevel=2)


@functools.lru_cache(maxsize=16)
def _store(root: Path) -> Store | None:
    try:
        return Store(folder.private(root), config.cache_bytes)
    except folder.Refused as refused:
        warn(f"nothing is cached: {refused}")
        return None


def current() -> Store | None:
    """The store of this process; None where ``config.force_disable_caches`` says so, or where its
    folder is refused (with one warning)."""
    if config.force_disable_caches:
        return None
    found = _store(folder.base() / "compiled")
    if found is not None:
        found.limit = config.cache_bytes
    return found
