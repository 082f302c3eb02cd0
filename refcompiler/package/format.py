"""The file: a line that says what it is, a digest, the length, a head as JSON, and blobs.

::

    "refcompiler package 1\\n" | sha256 of all that follows | length of it, 8 bytes |
    length of the head, 8 bytes | head (JSON) | blobs, each at a multiple of 64 bytes

A file is written beside its place and renamed into it, so that who reads it finds all or nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refcompiler.errors import PackageError

NAME = b"refcompiler package "
FORMAT = 2
_DIGEST = hashlib.sha256().digest_size
_WORD = 8
_ALIGNMENT = 64


def encoded(head: dict[str, Any], blobs: Sequence[bytes]) -> bytes:
    """``head`` and ``blobs`` as the bytes of a file."""
    places, parts, at = [], [], 0
    for blob in blobs:
        gap = -at % _ALIGNMENT
        parts += [bytes(gap), blob]
        places.append((at + gap, len(blob)))
        at += gap + len(blob)
    text = json.dumps({**head, "blobs": places}, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-(_WORD + len(text)) % _ALIGNMENT)
    body = len(text).to_bytes(_WORD, "little") + text + b"".join(parts)
    digest = hashlib.sha256(body).digest()
    return b"%s%d\n" % (NAME, FORMAT) + digest + len(body).to_bytes(_WORD, "little") + body


def decoded(data: bytes, title: str) -> tuple[dict[str, Any], list[memoryview]]:
    """The head and the blobs of a file called ``title``.

    Errors: :class:`~refcompiler.errors.PackageError` for what is no package, one of another
    format, one that ends too early, and one whose bytes have changed.
    """
    line, _, rest = data.partition(b"\n")
    if not line.startswith(NAME):
        raise PackageError(f"{title} is no package of refcompiler")
    number = line.removeprefix(NAME)
    if number != b"%d" % FORMAT:
        shown = number[:20].decode("ascii", "replace")
        raise PackageError(f"{title} is a package of format {shown}; this release reads {FORMAT}")
    start = _DIGEST + _WORD
    length = int.from_bytes(rest[_DIGEST:start], "little")
    body = memoryview(rest)[start:]
    if len(rest) < start or len(body) < length:
        raise PackageError(f"{title} is cut off: {len(data)} bytes, and there should be more")
    if len(body) > length or hashlib.sha256(body).digest() != rest[:_DIGEST]:
        raise PackageError(f"{title} is damaged: its bytes are not those that were written")
    try:
        end = _WORD + int.from_bytes(body[:_WORD], "little")
        head = json.loads(bytes(body[_WORD:end]))
        blobs = [body[end + at : end + at + size] for at, size in head["blobs"]]
    except (ValueError, KeyError, TypeError) as error:
        raise PackageError(f"{title} is malformed: {type(error).__name__}: {error}") from error
    return head, blobs


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """``data`` at ``path``, all of it or nothing. Raises ``OSError``."""
    place = Path(path)
    try:
        number, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    except OSError as error:  # which names a file that nobody asked for
        raise type(error)(error.errno, error.strerror, str(place)) from None
    try:
        with open(number, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # as a file that is simply opened
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
