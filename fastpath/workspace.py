"""Memory of intermediate results that is kept between calls.

What a program needs only until it returns lies at offsets of one piece of memory, which are planned
while compiling: lives that do not meet share bytes. So a call allocates nothing but its results,
asks for no addresses, and makes no views of what stays where it is: the tensors that ATen is given
are made once. The pieces are shared by all programs of the process, one being used by one call at
a time; a call takes the piece that was given back last, or a new one, and one that fails gives
nothing back.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fastpath.ir.program import Call, Node, Tensor, named, tensors_in
from fastpath.ir.types import DTYPE

ALIGNMENT = 64  # bytes
MOST = 512 << 20  # bytes that a program may keep; one that needs more allocates them in each call

OWN = "own"  # the number of a program, in its text
Outside = ctypes.c_int64 * 2  # what a kernel says of a position that there is not

#: Operators whose results never lie in the memory of their arguments, whatever those are.
FRESH = frozenset(
    f"aten.{name}"
    for name in (
        *("mm.default", "bmm.default", "addmm.default", "baddbmm.default", "mv.default"),
        *("dot.default", "convolution.default", "convolution_backward.default"),
        "_scaled_dot_product_flash_attention_for_cpu.default",
        "_scaled_dot_product_flash_attention_for_cpu_backward.default",
        *("embedding.default", "embedding_dense_backward.default", "index.Tensor"),
        *("gather.default", "index_select.default", "cat.default", "sort.default"),
        *("topk.default", "scatter_add.default", "cumsum.default"),
    )
)
#: Those that can be told where to put their result, and by which function.
INTO: dict[str, Callable[..., Any]] = {
    "aten.mm.default": torch.mm,
    "aten.bmm.default": torch.bmm,
    "aten.addmm.default": torch.addmm,
    "aten.baddbmm.default": torch.baddbmm,
}


class Arena:
    """A piece of memory, and what programs have made of it, by their numbers."""

    def __init__(self) -> None:
        self.memory: torch.Tensor | None = None
        self.parts: dict[int, tuple[Any, ...]] = {}

    @property
    def bytes(self) -> int:
        return 0 if self.memory is None else self.memory.numel()

    def lay(self, number: int, plan: Callable[[torch.Tensor], tuple[Any, ...]], size: int) -> Any:
        """What ``plan`` makes of the memory, of which it needs ``size`` bytes."""
        # Of no mode that happens to be on where the program is called first.
        with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
            if self.memory is None or self.memory.numel() < size:
                self.parts.clear()
                whole = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device="cpu")
                self.memory = whole[-whole.data_ptr() % ALIGNMENT :]
            found = self.parts[number] = plan(self.memory)
        return found


_idle: list[Arena] = []  # a stack: the one used last is in the caches
give = _idle.append
_NUMBERS = itertools.count()


def idle() -> list[Arena]:
    """The pieces of memory that no call uses now, the one used last at the end."""
    return list(_idle)


def take() -> Arena:
    try:
        return _idle.pop()
    except IndexError:
        return Arena()


def _forget(number: int) -> None:
    """A program is gone, and memory that no other one uses goes with it."""
    for arena in list(_idle):
        arena.parts.pop(number, None)
        if not arena.parts and arena in _idle:
            _idle.remove(arena)


def part(
    memory: torch.Tensor, offset: int, shape: Sequence[int], strides: Sequence[int], dtype: Any
) -> torch.Tensor:
    """The tensor that lies at ``offset`` bytes of ``memory``."""
    typed = memory[offset : offset + _span(shape, strides) * dtype.itemsize].view(dtype)
    return typed.as_strided(shape, strides)


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def _bytes(node: Node) -> int:
    size = _span(node.shape, node.strides) * DTYPE[node.dtype].itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


def keepable(nodes: Iterable[Node], calls: Iterable[Call], outputs: Any) -> set[Node]:
    """Those of ``nodes`` that nobody sees once the program has returned."""
    found = {
        n
        for n in nodes
        if n.dtype in DTYPE
        and all(type(size) is int and size > 0 for size in n.shape)
        and all(type(step) is int and step >= 0 for step in n.strides)
    }
    found -= {t.node for t in tensors_in(outputs)}
    for call in calls:
        if named(call.target) not in FRESH:
            found -= {t.node for t in tensors_in((call.arguments, call.keywords))}
    return found


class Plan:
    """Where nodes lie: ``offsets`` in bytes, of ``size`` in all."""

    def __init__(self, births: Mapping[int, Sequence[Node]], deaths: Mapping[int, Sequence[Node]]):
        """Both by the step at which nodes are made, and behind which they are not needed.

        What a step makes lies apart from what it reads, even for the last time.
        """
        self.offsets: dict[Node, int] = {}
        self.size = 0
        self._holes: list[tuple[int, int]] = []  # offset and bytes, in order
        for step in sorted({*births, *deaths}):
            for node in sorted(births.get(step, ()), key=_bytes, reverse=True):
                self.offsets[node] = self._find(_bytes(node))
            for node in deaths.get(step, ()):
                if node in self.offsets:
                    self._release(self.offsets[node], _bytes(node))

    def _find(self, count: int) -> int:
        """The smallest hole that is large enough, or the end."""
        fitting = [(size, n) for n, (_, size) in enumerate(self._holes) if size >= count]
        if fitting:
            n = min(fitting)[1]
            offset, size = self._holes[n]
            self._holes[n : n + 1] = [(offset + count, size - count)] if size > count else []
            return offset
        offset = self.size
        if self._holes and sum(self._holes[-1]) == self.size:  # the last hole grows
            offset = self._holes.pop()[0]
        self.size = offset + count
        return offset

    def _release(self, offset: int, count: int) -> None:
        place = next((n for n, hole in enumerate(self._holes) if hole[0] > offset), None)
        place = len(self._holes) if place is None else place
        if place < len(self._holes) and offset + count == self._holes[place][0]:
            count += self._holes.pop(place)[1]
        if place and sum(self._holes[place - 1]) == offset:
            place -= 1
            before = self._holes.pop(place)
            offset, count = before[0], before[1] + count
        self._holes.insert(place, (offset, count))


class Workspace:
    """Writes ``workspace(memory)``, which makes what a program keeps, and how calls get at it."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.lines: list[str] = []
        self.wanted: list[str] = []  # names of the call that it makes
        self.number = new_number()
        self._made: dict[Node, str] = {}

    def __contains__(self, node: object) -> bool:
        return node in self.plan.offsets

    def line(self, name: str, text: str) -> None:
        self.lines.append(f"{name} = {text}")
        self.wanted.append(name)

    def address(self, node: Node, name: str) -> None:
        self.line(f"{name}_p", f"address + {self.plan.offsets[node]}")

    def tensor(self, node: Node, name: str) -> None:
        """The node's own tensor, where ATen or a view needs it."""
        if node not in self._made:
            self._made[node] = name
            place = f"{self.plan.offsets[node]}, {node.shape}, {node.strides}"
            self.line(name, f"part(memory, {place}, {node.dtype})")

    def text(self) -> str:
        """The function ``workspace``."""
        made = "".join(f"{name}, " for name in self.wanted)
        lines = ["address = memory.data_ptr()", *self.lines, f"return ({made})"]
        return "def workspace(memory):\n" + "".join(f"    {line}\n" for line in lines)

    def taken(self) -> list[str]:
        """What a call begins with."""
        made = "".join(f"{name}, " for name in self.wanted)
        lay = f"arena.lay({OWN}, workspace, {self.plan.size})"
        return ["arena = take()", f"({made}) = arena.parts.get({OWN}) or {lay}"]

    def watch(self) -> None:
        """Memory for what a kernel says of a position that there is not: see the wrapper."""
        self.line("outside", "Outside()")
        self.line("outside_p", "addressof(outside)")


def new_number() -> int:
    """Of a program that keeps memory."""
    return next(_NUMBERS)


def bind(call: FunctionType, number: int) -> None:
    """The kept memory is forgotten with ``call``, among whose globals ``workspace`` is."""
    weakref.finalize(call, _forget, number)
    scope = call.__globals__
    scope[OWN] = number
    made = scope.pop("workspace", None)
    if made is not None:  # a function that is among its own globals would be a circle
        scope["workspace"] = FunctionType(made.__code__, dict(scope), "workspace")


#: What the text of calls and of ``workspace`` names.
TEXT: dict[str, Any] = {
    "take": take,
    "give": give,
    "part": part,
    "Outside": Outside,
    "addressof": ctypes.addressof,
}


def linear(target: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, Any]:
    """The product by a transposed matrix, as the function that transposes it on its own."""
    bias = None
    if keywords or str(target) not in ("aten.mm.default", "aten.addmm.default"):
        return target, arguments
    if len(arguments) == 3:
        bias, *rest = arguments
        if len(bias.shape) != 1:
            return target, arguments
    else:
        rest = list(arguments)
    weight = turned(rest[1])
    if weight is None or not DTYPE[weight.dtype].is_floating_point:
        return target, arguments
    return torch.ops.aten.linear.default, (rest[0], weight, bias)


def turned(t: Tensor) -> Tensor | None:
    """The matrix that ``t`` is the transposed view of, if it is one."""
    replay = t.replay
    if replay is None or len(t.shape) != 2:
        return None
    how = (str(replay.target), *replay.arguments[1:])
    if how in _TURNS or how == ("aten.permute.default", [1, 0]):
        base = replay.arguments[0]
        return base if isinstance(base, Tensor) else None
    return None


_TURNS = [
    ("aten.t.default",),
    *(("aten.transpose.int", a, b) for a, b in ((0, 1), (1, 0), (-1, -2), (-2, -1))),
]
