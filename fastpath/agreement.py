"""Whether ATen gives what its stand-ins promised: asked of each result in a program's first call.

Kernels read memory as the stand-ins of operators say that it lies. Where one of them is wrong, of a
user's operator for example, the graph runs as it is, from the generators' states before the call,
and that is said; later calls ask nothing. A backward asks of what its forward has kept, too.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.fx import GraphModule

from fastpath.ir.program import Node
from fastpath.report import Report
from refcompiler.aot.draws import drawing

ASKED = "#? "  # begins lines of the first call alone
Promise = tuple[str, torch.dtype, tuple[int | None, ...], tuple[int | None, ...]]


def promise_of(result: Node, operator: str) -> Promise:
    """Of what ``operator``, or the forward, gives; None for what only a call knows."""
    known = [
        tuple(n if type(n) is int else None for n in s) for s in (result.shape, result.strides)
    ]
    return operator, getattr(torch, result.dtype), known[0], known[1]


def broken(t: torch.Tensor | None, promise: Promise) -> str:
    """What ``t`` has otherwise than promised, or ""."""
    operator, dtype, shape, strides = promise
    if t is None:  # an operator need not give what nobody asks it for
        return ""
    if t.dtype is not dtype:
        return f"{operator} gives {t.dtype}, not {dtype}"
    sizes = tuple(t.shape)
    if len(sizes) != len(shape) or any(n not in (None, m) for n, m in zip(shape, sizes)):
        return f"{operator} gives a shape of {sizes}, not {shape}"
    if 0 not in sizes:
        for n, have, want in zip(sizes, t.stride(), strides):
            if n > 1 and want is not None and have != want:
                return f"{operator} gives strides of {t.stride()}, not {strides}"
    return ""


def first_lines(lines: Sequence[str], parameters: str, boxed: bool) -> list[str]:
    """The lines of the first call, which answers for itself where a promise is broken."""
    given = "[*inputs]" if boxed else f"[{parameters}]"
    asked = [line.removeprefix(ASKED) for line in lines]
    return [f"given = {given}", "drawn = states()", *asked[:-1], "settle()", asked[-1]]


def generators_of(graph: GraphModule, device: torch.device) -> list[torch.Generator]:
    """Those that ``graph`` may draw from on the CPU and on ``device``."""
    if not any(map(drawing, graph.graph.nodes)):
        return []
    found = [torch.default_generator]
    if device.type == "cuda":
        found.append(torch.cuda.default_generators[device.index])
    for node in graph.graph.find_nodes(op="get_attr"):
        own = getattr(graph, str(node.target), None)
        found += [own] if isinstance(own, torch.Generator) else []
    return found


class FirstCall:
    """What the first call of a program asks and does: ``names`` are for its text.

    The program is made for ``graph`` and ``device``.
    """

    def __init__(self, graph: GraphModule, device: torch.device, report: Report):
        self.plainly: Callable[..., Any] | None = graph.forward
        self.generators = generators_of(graph, device)
        self.report = report
        self._call: Callable[[], FunctionType | None] = lambda: None
        self._later: CodeType | None = None

    def names(self) -> dict[str, Any]:
        answers = {"settle": self.settle, "instead": self.instead}
        return {"broken": broken, "states": self.states, **answers}

    def states(self) -> list[torch.Tensor]:
        """Of the generators, before anything is drawn."""
        return [generator.get_state() for generator in self.generators]

    def begins(self, call: FunctionType, later: CodeType) -> None:
        """``later`` is the code of ``call`` once nothing is asked any more."""
        self._call, self._later = weakref.ref(call), later

    def settle(self) -> None:
        """All promises were kept."""
        call = self._call()
        if call is not None and self._later is not None:
            call.__code__ = self._later
            self.plainly, self.generators = None, []

    def instead(self, why: str, inputs: Sequence[Any], drawn: Sequence[torch.Tensor]) -> Any:
        """The answer of the graph as it is, which from now on runs in place of the program.

        ``drawn``: the :meth:`states` that it draws from.
        """
        call, plainly = self._call(), self.plainly
        assert plainly is not None
        if call is not None and self.report.fallback is None:
            self.report.falls_back(f"an operator does not do as its stand-in says: {why}")
            warnings.warn(f"fastpath runs a graph uncompiled: {self.report.fallback}", stacklevel=3)
            call.__globals__["plainly"] = plainly
            boxed = call.__code__.co_varnames[:1] == ("inputs",)
            call.__code__ = (_boxed if boxed else _unboxed).__code__
        for generator, state in zip(self.generators, drawn, strict=True):
            generator.set_state(state)
        return plainly(*inputs)


def _unboxed(*inputs: Any) -> Any:
    return plainly(*inputs)  # type: ignore[name-defined]  # noqa: F821  # the program's global


def _boxed(inputs: list[Any]) -> Any:
    given = [*inputs]
    inputs.clear()
    return plainly(*given)  # type: ignore[name-defined]  # noqa: F821
