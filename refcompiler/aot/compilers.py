"""The compilers of ATen graphs that a backend is made of, and how their answers are called."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule

from refcompiler.remade import made, maker

#: Set to False on a compiler that is to be given graphs without symbols, one for each size.
TAKES_SYMBOLS = "takes_symbols"
Compiler = Callable[[GraphModule, list[Any]], Callable[..., Any]]


class Compilers:
    def __init__(self, forward: Compiler, backward: Compiler, inference: Compiler):
        self.forward, self.backward, self.inference = forward, backward, inference
        self.separate_reads = self.tangents_as_given = False
        self.eager_draws = self.keeps_gaps = False
        every = (forward, backward, inference)
        self.take_symbols = all(getattr(each, TAKES_SYMBOLS, True) for each in every)


@contextlib.contextmanager
def backward_state() -> Iterator[None]:
    """Compiling in the middle of a backward: neither hooks nor modes of the caller's."""
    with torch._C._DisableAutocast(), torch.no_grad():
        yield


@maker
def flat(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler's answer, called with its inputs one by one."""
    if is_boxed(compiled):
        return made(lambda *inputs: compiled(list(inputs)), flat, compiled)
    return compiled


@maker
def boxed(compiled: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """A compiler's answer, called with its inputs in a list."""
    if is_boxed(compiled):
        return compiled
    return made(lambda inputs: compiled(*inputs), boxed, compiled)


def is_boxed(compiled: Callable[..., Any]) -> bool:
    """Whether a compiler's answer takes one list, which it empties, so that it frees inputs early.

    ``functorch.compile.make_boxed_func`` makes such an answer, as does the attribute.
    """
    if not callable(compiled):
        raise TypeError(f"the graph's compiler answered with {compiled!r}, which is not callable")
    return getattr(compiled, "_boxed_call", False)
