"""A warm cache as bytes, for another machine: what ``torch.compiler`` calls cache artifacts.

The bytes are a digest, a list of entries as JSON, and the entries; entries carry machine code, so
load only what you or someone you trust has saved. One that was made by another release, or on a
processor with other features, is never found there, and does no harm.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from dataclasses import dataclass, field

from refcompiler.cache import store

_MAGIC = b"refcompiler artifacts 1\n"
_DIGEST = hashlib.sha256().digest_size
_KIND, _KEY = re.compile(r"[a-z]{1,32}"), re.compile(r"[0-9a-f]{64}")


@dataclass
class CacheInfo:
    """What was saved or loaded: keys by kind, such as ``"kernel"``."""

    artifacts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, key: str) -> None:
        self.artifacts.setdefault(kind, []).append(key)

    def empty(self) -> bool:
        return not self.artifacts


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """What compilations of this process took from the cache or left there, as bytes, and which.

    As ``torch.compiler.save_cache_artifacts``: None where there is nothing to save.
    """
    kept = store.current()
    entries: list[tuple[str, str, int]] = []
    blobs: list[bytes] = []
    info = CacheInfo()
    for kind, key in list(kept.seen) if kept is not None else ():
        data = kept.get(kind, key) if kept is not None else None
        if data is not None:
            entries.append((kind, key, len(data)))
            blobs.append(data)
            info.add(kind, key)
    if info.empty():
        return None
    head = json.dumps(entries).encode()
    body = len(head).to_bytes(8, "little") + head + b"".join(blobs)
    return _MAGIC + hashlib.sha256(body).digest() + body, info


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Put into the cache what :func:`save_cache_artifacts` gave, here or elsewhere; what it was.

    As ``torch.compiler.load_cache_artifacts``: bytes that are none, or damaged, are one warning and
    None. So is a cache that is switched off or refused. Raises ``TypeError`` for what is no bytes.
    """
    if not isinstance(serialized_artifacts, (bytes, bytearray, memoryview)):
        kind = type(serialized_artifacts).__name__
        raise TypeError(f"load_cache_artifacts takes bytes, not {kind}")
    found = _parsed(bytes(serialized_artifacts))
    kept = store.current()
    if found is None or kept is None:
        why = "the bytes are no artifacts, or damaged" if found is None else "there is no cache"
        warnings.warn(f"load_cache_artifacts: nothing is loaded: {why}", stacklevel=2)
        return None
    info = CacheInfo()
    for kind, key, data in found:
        kept.put(kind, key, data)
        info.add(kind, key)
    return info


def _parsed(given: bytes) -> list[tuple[str, str, bytes]] | None:
    start = len(_MAGIC) + _DIGEST
    body = given[start:]
    if given[:start] != _MAGIC + hashlib.sha256(body).digest():
        return None
    try:
        place = 8 + int.from_bytes(body[:8], "little")
        found = []
        for kind, key, length in json.loads(body[8:place]):
            if not (_KIND.fullmatch(kind) and _KEY.fullmatch(key)):  # they become names of files
                return None
            found.append((kind, key, body[place : place + length]))
            place += length
    except (ValueError, TypeError):
        return None
    return found if place == len(body) else None
