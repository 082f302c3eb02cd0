"""A compiled kernel's launch as text: what Triton's launcher does that each call needs.

The launcher is an object of Python. In each call it asks whether the kernel works in memory of its
own, which is known, and passes what it was given, and a few numbers, to a function in C. Where it
does no more than that, the text calls that function. How it does so differs between versions of
Triton, so it is looked at: a copy of the launcher is called, with a function that only keeps what
it is passed.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from refcompiler.logs import log_of

_HINTS = log_of("perf_hints")
_loading = threading.Lock()
_SCRATCH = ("global_scratch_size", "profile_scratch_size")


class Given:
    """Stands for an argument that each call has, which is ``text`` there."""

    def __init__(self, text: str):
        self.text = text


def loaded(kernel: Any) -> tuple[Any, Any, Any]:
    """The launcher of ``kernel``, and what it takes of it, in the current device.

    Programs that are compiled beside each other share kernels. Triton's compiled kernel has its
    launcher before it has what is to be launched, so that nobody else may ask it meanwhile.
    """
    with _loading:
        return kernel.run, kernel.function, kernel.packed_metadata


def call_text(
    kernel: Any, name: str, programs: str, stream: str, given: Sequence[str], scope: dict[str, Any]
) -> str:
    """The call that launches ``kernel``; what it needs is put into ``scope``, by names that begin
    with ``name``. Loads the kernel into the current device."""
    launcher, code, metadata = loaded(kernel)
    marks = [Given(text) for text in (programs, stream, *given)]
    count, on, *rest = marks
    arguments = [count, 1, 1, on, code, metadata, None, None, None, *rest]
    passed = passed_on(launcher, arguments, marks)
    if passed is None:
        _HINTS.info("launches go through Triton's launcher, which is new in some way")
        scope[name], passed = launcher, arguments
    else:
        scope[name] = launcher.launch
    return f"{name}({', '.join(_text(value, name, scope) for value in passed)})"


def passed_on(
    launcher: Any, arguments: Sequence[Any], marks: Sequence[Given]
) -> Sequence[Any] | None:
    """What the launcher passes to its function in C; None where that is not all that it does."""
    if any(getattr(launcher, size, None) != 0 for size in _SCRATCH):
        return None
    seen: list[tuple[Any, ...]] = []
    try:
        watched = copy.copy(launcher)
        watched.launch = lambda *passed: seen.append(passed)
        watched(*arguments)
    except Exception:  # it does something with what it is given
        return None
    if len(seen) != 1 or [e for e in _flat(seen[0]) if isinstance(e, Given)] != [*marks]:
        return None
    return seen[0]


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
        else:
            yield value


def _text(value: Any, name: str, scope: dict[str, Any]) -> str:
    if isinstance(value, Given):
        return value.text
    if isinstance(value, (tuple, list)) and any(isinstance(e, Given) for e in _flat(value)):
        return f"({''.join(f'{_text(e, name, scope)}, ' for e in value)})"
    if value is None or isinstance(value, (bool, int)):
        return repr(value)
    own = f"{name}_{len(scope)}"
    scope[own] = value
    return own
