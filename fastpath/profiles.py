"""Kernels by name in ``torch.profiler``.

Naming a launch costs more than the launch of a small kernel. So a call asks once whether somebody
is profiling, and only then runs its own code with launches that say what they are.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast

#: Whether a profiler records this thread.
profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled
LONGEST = 80  # characters
_STEM = re.compile(r"(_\d+)+$")  # what follows it


def title(number: int, members: Iterable[str]) -> str:
    """What a profile calls the kernel: the operators that it computes, each once."""
    stems = dict.fromkeys(_STEM.sub("", name) for name in members)
    return f"fastpath kernel {number}: {' '.join(stems)}"[:LONGEST]


def together_title(titles: Sequence[str]) -> str:
    """What a profile calls a launch of several kernels that have these titles."""
    (first, what), (last, _) = titles[0].split(": ", 1), titles[-1].split(": ", 1)
    return f"{first} to {last.rpartition(' ')[2]}: {what}"[:LONGEST]


def kernel_name(members: Iterable[str]) -> str:
    """What a GPU's kernel is called: equal kernels alike, wherever they are."""
    stems = dict.fromkeys(_STEM.sub("", name).strip("_") for name in members)
    return f"kernel_{'_'.join(stems)}"[:LONGEST].rstrip("_")


def announced(call: FunctionType, titles: Mapping[str, str]) -> Callable[..., Any]:
    """``call``, whose launches (names of its globals) are recorded by their titles."""
    made: list[FunctionType] = []
    found = weakref.ref(call)  # whose globals name this: a circle would outlive its last user

    def named(*inputs: Any) -> Any:
        if not made:
            running = found()
            assert running is not None
            scope = dict(running.__globals__, profiled=bool)  # which says no
            scope.update({name: _recorded(scope[name], what) for name, what in titles.items()})
            made.append(FunctionType(running.__code__, scope, running.__name__))
        return made[0](*inputs)

    return named


def _recorded(run: Callable[..., None], what: str) -> Callable[..., None]:
    def launch(*addresses: int) -> None:
        with _RecordFunctionFast(what):
            run(*addresses)

    return launch
