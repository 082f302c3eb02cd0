"""Decisions of automatic dynamic shapes, kept on disk under a job id.

Without a job id nothing is read or written. With one, what was seen to change in one process is a
symbol from the first compilation on in the next one, which then compiles once instead of twice.

Entries are keyed by the content of the file that a function comes from, its name and its line, so
that a changed file invalidates its own entries only. Each rank of a distributed job has a file of
its own. Files are written whole, under a lock, after what others have written in the meantime was
read; one that cannot be read is reported once, and begun anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from refcompiler.cache.folder import base, make
from refcompiler.capture.dynamic import History
from refcompiler.runtime.config import config

_VERSION = 1
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_VARIABLES = ("REFCOMPILER_JOB_ID", "TORCH_COMPILE_JOB_ID")


def job_id() -> str:
    """The job whose profile is used: ``config.job_id``, or one of the environment, or none."""
    return config.job_id or os.environ.get(_named_by(), "")


def _named_by() -> str:
    """What gives the job id: the setting, or a variable of the environment."""
    if config.job_id:
        return "config.job_id"
    return next((name for name in _VARIABLES if os.environ.get(name)), _VARIABLES[0])


def folder() -> Path:
    """Where profiles are: ``REFCOMPILER_CACHE_DIR``, or the user's folder for caches."""
    return base() / "profiles"


def path_of(job: str) -> Path:
    """The file of this process's rank. Errors: ``ValueError`` for a bad job id."""
    if not re.fullmatch(r"[A-Za-z0-9._:@=+-]{1,128}", job) or job.startswith("."):
        raise ValueError(
            f"{_named_by()} is {job!r}, but names a file: "
            "use letters, digits and . _ : @ = + - only"
        )
    rank = next((os.environ[name] for name in _RANKS if os.environ.get(name, "").isdigit()), "0")
    return folder() / job.replace(":", "_") / f"rank-{rank}.json"


def identity(codes: Sequence[CodeType], places: Sequence[int] = ()) -> str:
    """A name for a site that the next process finds again."""
    parts = [f"{code.co_qualname}:{code.co_firstlineno}:{_content(code)}" for code in codes]
    return " > ".join(parts) + "".join(f"@{place}" for place in places)


@functools.lru_cache(maxsize=4096)
def _content(code: CodeType) -> str:
    """A digest of the file that ``code`` comes from, or of itself where there is none."""
    try:
        text = Path(code.co_filename).read_bytes()
    except (OSError, ValueError):
        text = code.co_code + repr((code.co_names, code.co_varnames)).encode()
    return hashlib.sha256(text).hexdigest()[:20]


class Profile:
    """The entries of one file: the name of a site -> what changes there."""

    def __init__(self, path: Path):
        self.path = path
        self.entries = self._read()

    def changing(self, site: str) -> set[Any]:
        return set(map(_as_key, self.entries.get(site, ())))

    def note(self, site: str, keys: set[Any]) -> None:
        """Add ``keys`` to the file, unless it cannot be written."""
        try:
            with self._locked():
                self.entries = self._read()
                known = {json.dumps(key) for key in self.entries.get(site, [])}
                known |= {json.dumps(key) for key in keys}
                self.entries[site] = [json.loads(text) for text in sorted(known)]
                self._write()
        except OSError as error:
            _warn(f"the profile {self.path} cannot be written ({error}); this process goes on")

    def _read(self) -> dict[str, list]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _warn(f"the profile {self.path} cannot be read ({error}); it is begun anew")
            return {}
        right = isinstance(found, dict) and found.get("version") == _VERSION
        sites = found.get("sites") if right else None
        if not isinstance(sites, dict) or not all(isinstance(v, list) for v in sites.values()):
            _warn(f"the profile {self.path} is no profile of this release; it is begun anew")
            return {}
        return sites

    def _write(self) -> None:
        text = json.dumps({"version": _VERSION, "sites": self.entries}, indent=1)
        with tempfile.NamedTemporaryFile(
            "w", dir=self.path.parent, delete=False, encoding="utf-8"
        ) as stream:
            stream.write(text)
        os.replace(stream.name, self.path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make(self.path.parent)
        with open(self.path.with_suffix(".lock"), "w") as lock:
            try:
                import fcntl
            except ImportError:  # elsewhere the last writer wins, and the file is whole
                yield
                return
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _as_key(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    return tuple(map(_as_key, value)) if isinstance(value, list) else value


@functools.cache
def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


class SavedHistory(History):
    """A history that begins with what a profile says, and adds to it."""

    def __init__(self, profile: Profile, site: str):
        super().__init__()
        self.profile = profile
        self.site = site
        self.changing |= profile.changing(site)

    def changes(self, key: Any, value: Any) -> bool:
        known = len(self.changing)
        found = super().changes(key, value)
        if len(self.changing) > known:
            self.profile.note(self.site, self.changing)
        return found

    def clear(self) -> None:
        super().clear()
        self.changing |= self.profile.changing(self.site)


@functools.cache
def _profile(path: Path) -> Profile:
    return Profile(path)


def history_of(codes: Sequence[CodeType], places: Sequence[int] = ()) -> History:
    """The history of a site: saved if there is a job id."""
    job = job_id()
    if not job:
        return History()
    return SavedHistory(_profile(path_of(job)), identity(codes, places))
