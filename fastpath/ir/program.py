"""What a graph computes: nodes with a value per element, and ATen calls, in graph order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import Any

from fastpath.ir.expr import Expr, read
from fastpath.ir.index import Axis, Index, Number, axes_for, contiguous_strides, variable
from fastpath.ir.size import Assumptions, Size, Unknown

Position = tuple[Index, ...]


class Node:
    """A tensor by name, shape, dtype (torch's name) and the strides it has once in memory.

    ``begin``: how many elements its memory has before it, if it is returned and there are some,
    counted from where an input begins in its own.
    """

    begin: tuple[Input | None, Number] | None = None
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]

    def __init__(self, name: str, shape: Sequence[Number], dtype: str, strides: Sequence[Number]):
        self.name = name
        self.shape = tuple(shape)
        self.dtype = dtype
        self.strides = tuple(strides)

    @property
    def numel(self) -> Any:
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.dtype}{list(self.shape)})"


class Input(Node):
    """An input of the graph (argument ``place`` of the call)."""

    def __init__(self, name: str, place: int, shape: Sequence[Number], dtype: str, strides: Any):
        super().__init__(name, shape, dtype, strides)
        self.place = place


class Result(Node):
    """One output of an ATen call.

    ``bits``: it is a conjugate or negative, which kernels read from a contiguous copy. ``number``:
    it is no tensor but an integer, which kernels are given as an argument. ``inside``: it does not
    begin where its memory does.
    """

    inside = False

    def __init__(
        self,
        name: str,
        call: Call,
        shape: Sequence[Number],
        dtype: str,
        strides: Any,
        bits: bool = False,
        number: bool = False,
    ):
        super().__init__(name, shape, dtype, strides)
        self.call, self.bits, self.number = call, bits, number


class Computed(Node):
    """A node that a kernel computes; ``axes`` run over ``space``, ``value`` is per point of it."""

    space: tuple[Any, ...]

    def __init__(self, name: str, shape: Sequence[Number], dtype: str, strides: Sequence[Number]):
        super().__init__(name, shape, dtype, strides)
        self._axes: tuple[Axis, ...] | None = None
        self._value: Expr | None = None

    @property
    def axes(self) -> tuple[Axis, ...]:
        if self._axes is None:
            self._axes = axes_for(self.space)
        return self._axes

    @property
    def value(self) -> Expr:
        if self._value is None:
            self._value = self.at(tuple(variable(a) for a in self.axes))
        return self._value

    def at(self, index: Position) -> Expr:
        raise NotImplementedError


class Pointwise(Computed):
    """``body(index)`` is the element at ``index``."""

    def __init__(
        self,
        name: str,
        shape: Sequence[Number],
        dtype: str,
        strides: Sequence[Number],
        body: Callable[[Position], Expr],
    ):
        super().__init__(name, shape, dtype, strides)
        self.space = self.shape
        self.body = body
        self._changes: frozenset[int] | None = None

    def at(self, index: Position) -> Expr:
        return self.body(index)

    @property
    def changes(self) -> frozenset[int]:
        """The dimensions that its elements may change with, where what they read is put in."""
        stack = [self]
        while stack:
            node = stack[-1]
            left = [n for n in _inlined(node.value) if n._changes is None]
            if node._changes is None and not left:
                found = set().union(*[index.axes() for index in positions(node.value)])
                node._changes = frozenset(d for d, a in enumerate(node.axes) if a in found)
            if left:
                stack += left
            else:
                stack.pop()
        assert self._changes is not None
        return self._changes


def _parts(value: Expr) -> Iterator[Expr]:
    """``value`` and what it is made of, without what is in positions."""
    seen: set[Expr] = set()
    stack = [value]
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            stack += [a for a in e.args if isinstance(a, Expr)]
            yield e


def _inlined(value: Expr) -> list[Pointwise]:
    reads = [e.args[0] for e in _parts(value) if e.op == "read"]
    return [node for node in reads if isinstance(node, Pointwise)]


def positions(value: Expr) -> Iterator[Index]:
    """Those in ``value`` that it may change with, where what it reads is put in its place."""
    for e in _parts(value):
        if e.op == "read" and isinstance(e.args[0], Pointwise):
            yield from (e.args[1][d] for d in e.args[0].changes)
            continue
        for a in e.args:
            if isinstance(a, Index):
                yield a
            elif isinstance(a, tuple):
                yield from a


class Reduction(Computed):
    """``kind`` (``sum``, ``prod``, ``max``, ``min``, ``any``, ``all``) of ``body`` over some axes.

    ``space`` is the shape of what is reduced, ``reduced`` the dimensions of it that go away;
    ``shape`` is ``space`` with size 1 there (``keepdim``); views drop them. ``accumulator`` is the
    dtype of the running value; the node's own dtype is the same.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        space: Sequence[Number],
        reduced: Sequence[int],
        dtype: str,
        body: Callable[[Position], Expr],
    ):
        self.reduced = frozenset(reduced)
        shape = [1 if d in self.reduced else n for d, n in enumerate(space)]
        super().__init__(name, shape, dtype, contiguous_strides(shape))
        self.space = tuple(space)
        self.kind = kind
        self.body = body

    def at(self, index: Position) -> Expr:
        return self.body(index)


@dataclass(frozen=True)
class Tile:
    """How a kernel goes through a product: blocks of ``m`` by ``n`` results, ``k`` terms at a time.

    ``warps`` threads' worth of 32 compute a block; of the operands ``stages`` blocks are on their
    way from memory at once.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int


class Product(Reduction):
    """Matrix products: over the last dimension of ``space``, ``(..., m, n, k)``, or over ``terms``
    of its dimensions, products are added.

    ``factors(index)`` are the two elements that a term multiplies, the first of which does not
    change along ``n`` and the second not along ``m``. Terms and sum are float32. ``own``: the node
    that rounds it to what the operator gives.
    """

    def __init__(
        self,
        name: str,
        space: Sequence[Number],
        factors: Callable[[Position], tuple[Expr, Expr]],
        tile: Tile,
        terms: Sequence[int] = (),
    ):
        def term(index: Position) -> Expr:
            return Expr("dot", factors(index), "float32")

        super().__init__(name, "dot", space, terms or (len(space) - 1,), "float32", term)
        self.tile = tile
        self.own: Node | None = None


class Scan(Computed):
    """``kind`` (``sum``, ``prod``, ``max``, ``min``) of ``body`` up to each position along ``dim``.

    The positions are taken in order, each by one operation that rounds for itself.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        space: Sequence[Number],
        dim: int,
        dtype: str,
        body: Callable[[Position], Expr],
    ):
        super().__init__(name, space, dtype, contiguous_strides(space))
        self.space = tuple(space)
        self.kind, self.dim = kind, dim
        self.body = body

    def at(self, index: Position) -> Expr:
        return self.body(index)


class Scatter(Computed):
    """``base`` with ``value(index)`` written, for each ``index`` of ``space``, at the place of it
    that ``place(index)`` gives.

    It lies in the memory of ``base``, which nothing else reads. ``kind``: ``sum`` of what is there
    and what is written, or ``put``. In which order places are written to that are given more than
    once is not said, but along the dimensions ``in_order`` of ``space``. :attr:`value` is a
    ``put``: the element, and where it goes. ``of``: what ``base`` is a copy of, if it is one.
    """

    def __init__(
        self,
        name: str,
        base: Node,
        kind: str,
        space: Sequence[Number],
        place: Callable[[Position], Position],
        value: Callable[[Position], Expr],
        of: Node | None = None,
        in_order: Iterable[int] = (),
    ):
        super().__init__(name, base.shape, base.dtype, base.strides)
        self.base, self.kind = base, kind
        self.of = of
        self.in_order = frozenset(in_order)
        self.space = tuple(space)
        self._place, self._written = place, value

    def at(self, index: Position) -> Expr:
        return Expr("put", (self._written(index), self._place(index)), self.dtype)


def named(target: Any) -> str:
    """An operator's name, or a Python function's."""
    python = isinstance(target, (FunctionType, BuiltinFunctionType))
    return target.__name__ if python else str(target)


@dataclass(eq=False)
class Call:
    """One ATen call. ``arguments`` holds :class:`Tensor` wherever the operator takes a tensor.

    ``kernel``: the target is a function of ours, which runs a compiled kernel by itself.
    """

    target: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    reason: str
    outputs: list[Result] = field(default_factory=list)
    impure: bool = False  # draws random numbers or has effects: keeps its place among its kind
    single: bool = True  # returns one tensor rather than a tuple
    places: list[tuple[int, ...]] = field(default_factory=list)  # of the outputs in that tuple
    kernel: bool = False

    @property
    def name(self) -> str:
        return named(self.target)


@dataclass(frozen=True, eq=False)
class Replay:
    """How a view is made of a real tensor: an ATen view operator on another :class:`Tensor`."""

    target: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    place: int | None = None  # which of several outputs


@dataclass(frozen=True, eq=False)
class Scalar:
    """A number that the wrapper computes in each call, and that is no integer.

    Without a ``target`` it is the parameter that its only argument names. A float of parameters
    alone has a ``bits``, the size that kernels are given in its place.
    """

    target: Any
    arguments: tuple[Any, ...]
    bits: Size | None = None
    within: dict[str, Size] = field(default_factory=dict)

    @classmethod
    def known_first(cls, target: Any, arguments: tuple[Any, ...]) -> Scalar:
        """A float, with its bits if it is known as the call begins."""
        if any(isinstance(a, Scalar) and a.bits is None for a in arguments):
            return cls(target, arguments)
        unknown = Unknown("a float's bits", 0, None)
        made = cls(target, arguments, Size({(unknown,): 1}))
        unknown.definition = made, None
        return made

    def bits_within(self, dtype: str) -> Size:
        """Its bits; a call with a finite number that ``dtype`` does not have raises an error."""
        if dtype not in self.within:
            unknown = Unknown(f"the bits of a {dtype}", 0, None, (self, dtype))
            self.within[dtype] = Size({(unknown,): 1})
        return self.within[dtype]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A node seen through views: ``index`` maps a position of the view to one of the node.

    ``seen``: of a view whose elements are not the node's, as the parts of complex numbers, the
    dtype that they have and what they are at a position; ``index`` maps positions to its.
    """

    node: Node
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Number = 0
    index: Callable[[Position], Position] | None = None
    replay: Replay | None = None
    seen: tuple[str, Callable[[Position], Expr]] | None = None

    @property
    def dtype(self) -> str:
        return self.node.dtype if self.seen is None else self.seen[0]

    def read(self, index: Position) -> Expr:
        place = index if self.index is None else self.index(index)
        return read(self.node, place) if self.seen is None else self.seen[1](place)

    @property
    def is_view(self) -> bool:
        return self.replay is not None


def whole(node: Node) -> Tensor:
    return Tensor(node, node.shape, node.strides)


def tensors_in(value: object) -> Iterable[Tensor]:
    """Every tensor in nested tuples, lists and dicts, and those that numbers are read from."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Scalar):
        yield from tensors_in(value.arguments)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


@dataclass
class Program:
    """``steps`` in graph order (:class:`Computed` nodes and :class:`Call`), and what is returned.

    ``outputs`` are :class:`Tensor` or plain Python values. ``parameters`` names what is given, in
    order: inputs and numbers, which ``sizes`` knows. ``epilogues``: whether what is computed of a
    reduction's results may be so in the reduction's kernel. ``products``: whether a kernel may
    answer a call that is a matrix product, whose terms it adds up in another order. ``written``:
    outputs that are new values of inputs, by number, which kernels may write there instead.
    ``kept``: what is computed though nobody reads it.
    """

    inputs: list[Input]
    steps: list[Computed | Call]
    outputs: list[Any]
    parameters: list[str] = field(default_factory=list)
    sizes: Assumptions = field(default_factory=Assumptions)
    epilogues: bool = True
    products: bool = False
    written: dict[int, int] = field(default_factory=dict)
    kept: set[Node] = field(default_factory=set)
