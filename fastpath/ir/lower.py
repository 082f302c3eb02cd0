"""From a functional ATen graph to a :class:`~fastpath.ir.program.Program`.

Each node is looked up by its overload's name in :data:`specs.operators.OPERATORS`: elementwise
rows are evaluated on IR expressions, the others name a rule (``view:permute``, ``reduce:sum``).
What no rule takes becomes a call of ATen, with the reason.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fastpath.ir import expr as E
from fastpath.ir import split, views
from fastpath.ir.described import Described, Sizes, described
from fastpath.ir.elementwise import NotLowered, elementwise
from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis, Number, contiguous_strides
from fastpath.ir.products import product
from fastpath.ir.program import (
    Call,
    Computed,
    Input,
    Node,
    Pointwise,
    Position,
    Program,
    Reduction,
    Replay,
    Result,
    Scalar,
    Scan,
    Tensor,
    Tile,
    tensors_in,
    whole,
)
from fastpath.ir.rules import RULES, dims_of
from fastpath.ir.size import Size, Undecided, known
from fastpath.ir.types import castable, computable, name_of
from fastpath.ir.unread import unread
from fastpath.ir.writes import Patch, without_copies
from fastpath.options import DEFAULT, Options
from fastpath.target import CPU, Target
from refcompiler.aot.draws import draw_again, draws
from refcompiler.aot.effects import checks, looks_up
from refcompiler.aot.inputs import Unsupported, has_bits
from refcompiler.aot.joint import NEW_VALUES
from specs.dtypes import PART_OF, is_complex
from specs.operators import ON_COMPLEX, OPERATORS
from specs.strides import viewable

_SPREADS = {f"aten.{name}.correction" for name in ("var", "std", "var_mean", "std_mean")}
#: Rules that only move elements, as complex numbers too.
_MOVES = ("view", "copy", "factory", "gather")
#: Their results lie in as much memory as their first operand, and as far in.
_COPIES_OF_ALL = ("copy:slice_scatter", "copy:select_scatter")
_IGNORED = ("layout", "device", "pin_memory", "non_blocking", "memory_format")


class Lowering:
    """Builds the program; rules use :meth:`pointwise`, :meth:`reduce` and :meth:`output`."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        target: Target = CPU,
        device: torch.device | None = None,
        options: Options = DEFAULT,
        sizes: Sizes | None = None,
        products: Mapping[str, Tile] | None = None,
    ):
        """``products``: how those are computed that are not left to ATen, by the nodes' names."""
        self.sizes = sizes or Sizes()
        self.products = products or {}
        self.origin: dict[Node, torch.fx.Node] = {}  # of what is computed: what it is lowered from
        self.begins: dict[Node, tuple[Input | None, Number]] = {}  # of what lies in more memory
        self.parameters: list[str] = []
        self.graph, self.target, self.device = graph, target, device or torch.device("cpu")
        self.options = options
        self.elsewhere: set[Node] = set()  # nodes on another device, which no kernel reads
        self.values: dict[torch.fx.Node, Any] = {}
        self.inputs: list[Input] = []
        self.overwritten: set[Node] = set()  # inputs that have new values behind the call
        self.patches: dict[Node, Patch] = {}  # what is another tensor but for some elements
        self.constants: list[torch.Tensor] = []
        self.steps: list[Computed | Call] = []
        self.looking: dict[Computed, torch.fx.Node] = {}  # steps that raise for what is not there
        self._names = 0
        self.moments: dict[
            tuple[int, tuple[int, ...], str, float], tuple[Tensor, Tensor, Number]
        ] = {}
        self._spreads = [n for n in graph.graph.nodes if str(n.target) in _SPREADS]

    def run(self) -> Program:
        outputs: list[Any] = []
        kept = set(self.graph.meta.get(NEW_VALUES, {}).values())
        count = 0
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = given = self._given(node)
                if count in kept and isinstance(given, Tensor):
                    self.overwritten.add(given.node)
                count += 1
            elif node.op == "get_attr":
                constant = getattr(self.graph, node.target)
                # A branch or the body of a loop, or a generator that operators are given.
                if isinstance(constant, (torch.fx.GraphModule, torch.Generator)):
                    self.values[node] = constant
                    continue
                self.constants.append(constant)
                self.values[node] = self._input(constant)
            elif node.op == "output":
                outputs = list(self._arguments(node.args[0]))
            else:
                self.values[node] = self._call(node)
        without_copies(self.steps, outputs)
        kept = {self._looked_at(*each) for each in unread(self.steps, outputs, self.looking)}
        if self.target is CPU:  # others ask for alignment
            written = self.graph.meta.get(NEW_VALUES, {})
            for t in tensors_in([o for place, o in enumerate(outputs) if place not in written]):
                t.node.begin = self.begins.get(t.node)
        program = Program(self.inputs, self.steps, outputs, self.parameters, self.sizes)
        program.kept = kept
        given = [self.values[n] for n in self.graph.graph.find_nodes(op="placeholder")]
        for place, number in self.graph.meta.get(NEW_VALUES, {}).items():
            program.written[place] = given[number].node.place
        return program

    def _looked_at(self, axes: Sequence[Axis], value: Expr) -> Node:
        """What is computed of the bounded ``value`` for its own sake."""
        space = [a.extent for a in axes]

        def body(index: Position) -> Expr:
            return value.substitute(dict(zip(axes, index, strict=True)))

        return self.reduce("sum", space, range(len(space)), "int64", body).node

    def _given(self, node: torch.fx.Node) -> Any:
        val = node.meta["val"]
        if isinstance(val, torch.Tensor):
            t = self._input(val, bool(node.users))
            self.parameters.append(t.node.name)
            return t
        name = f"n{len(self.parameters)}"
        self.parameters.append(name)
        if isinstance(val, torch.SymFloat):
            self.sizes.give_float(val, name)
            return Scalar.known_first(None, (name,))
        if isinstance(val, torch.SymBool):
            return Scalar(None, (name,))
        number = self.sizes.of(val)
        if isinstance(number, Size):
            self.sizes.give(number, name)
        return number

    def _input(self, t: Any, read: bool = True) -> Tensor:
        """What is not ``read`` may be None in a call, as a missing gradient is."""
        if not isinstance(t, torch.Tensor):
            raise Unsupported(f"an input of the ATen graph is a {type(t).__name__}")
        n = len(self.inputs)
        seen = Described(t, self.sizes)
        node = Input(f"in{n}", n, seen.shape, name_of(t.dtype), seen.stride())
        self.inputs.append(node)
        for what, numbers in (("size", seen.shape), ("stride", seen.stride())) if read else ():
            for d, number in enumerate(numbers):
                if isinstance(number, Size):
                    self.sizes.give(number, f"{node.name}.{what}({d})")
        if t.device != self.device:
            self.elsewhere.add(node)
        given = whole(node)
        for rule, bit in (("conj", t.is_conj()), ("negative", t.is_neg())):
            if bit:  # what lies in its memory is something else
                given = replace(given, seen=views.SEEN[rule](given))
        return given

    # -- what rules build with -------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        self._names += 1
        return f"{stem}_{self._names}"

    def pointwise(
        self,
        shape: Sequence[Number],
        dtype: str,
        body: Callable[[Position], Expr],
        stem: str = "value",
        strides: Sequence[Number] | None = None,
    ) -> Tensor:
        if strides is None:
            strides = contiguous_strides(shape)
        return self.add(Pointwise(self.fresh(stem), shape, dtype, strides, body))

    def reduce(
        self,
        kind: str,
        space: Sequence[Number],
        dims: Sequence[int],
        dtype: str,
        body: Callable[[Position], Expr],
    ) -> Tensor:
        """The reduction with ``keepdim``; long ones with few results are split in two."""
        space, dims = tuple(space), tuple(dims)

        def reduced(dtype: str, body: Callable[[Position], Expr]) -> Tensor:
            return split.reduce(self, kind, space, dims, dtype, body)

        return self._by_parts(reduced, dtype, body) if is_complex(dtype) else reduced(dtype, body)

    def _by_parts(
        self,
        made: Callable[[str, Callable[[Position], Expr]], Tensor],
        dtype: str,
        body: Callable[[Position], Expr],
    ) -> Tensor:
        """What a sum of complex numbers is: of the parts, each for itself."""

        def made_of(part: Callable[[Expr], Expr]) -> Tensor:
            return made(PART_OF[dtype], lambda index: part(body(index)))

        parts = [made_of(E.real), made_of(E.imag)]
        shape = parts[0].shape
        return self.pointwise(shape, dtype, lambda i: E.pair(*(t.read(i) for t in parts)), "pair")

    def add_reduction(self, kind: str, space: Any, dims: Any, dtype: str, body: Any) -> Tensor:
        if all(space[d] == 1 for d in dims):  # one term each: its own value
            return self.pointwise(space, dtype, body, kind)
        return self.add(Reduction(self.fresh(kind), kind, space, dims, dtype, body))

    def add(self, node: Computed) -> Tensor:
        self.steps.append(node)
        return whole(node)

    def spread(self, t: Tensor, dims: tuple[int, ...]) -> bool:
        for node in self._spreads:
            given = node.args[0]
            if isinstance(given, torch.fx.Node) and self.values.get(given) is t:
                bound = bind(node.target, node.args, node.kwargs)
                if dims_of(bound.get("dim"), len(t.shape)) == dims:
                    return True
        return False

    def scan(self, kind: str, space: Sequence[Number], dim: int, dtype: str, body: Any) -> Tensor:
        if space[dim] == 1:
            return self.pointwise(space, dtype, body, kind)
        if is_complex(dtype):
            return self._by_parts(lambda d, b: self.scan(kind, space, dim, d, b), dtype, body)
        return self.add(Scan(self.fresh(kind), kind, space, dim, dtype, body))

    def output(self, val: Described, body: Callable[[Position], Expr], stem: str) -> Tensor:
        """A pointwise node with the shape, dtype and strides of the fake ``val``."""
        dtype = name_of(val.dtype)
        return self.pointwise(
            tuple(val.shape), dtype, lambda i: E.cast(body(i), dtype), stem, tuple(val.stride())
        )

    # -- one node --------------------------------------------------------------------------------

    def _arguments(self, value: Any) -> Any:
        return torch.fx.node.map_aggregate(
            value, lambda n: self.values[n] if isinstance(n, torch.fx.Node) else n
        )

    def _call(self, node: torch.fx.Node) -> Any:
        arguments, keywords = self._arguments(node.args), self._arguments(node.kwargs)
        target: Any = node.target
        if target is operator.getitem and isinstance(arguments[0], tuple):
            return arguments[0][arguments[1]]
        val = node.meta.get("val")
        if isinstance(val, torch.SymInt):
            return self.sizes.of(val)
        if isinstance(val, torch.SymFloat) and not any(tensors_in((arguments, keywords))):
            return Scalar.known_first(target, arguments)
        if isinstance(val, (torch.SymFloat, torch.SymBool)):
            return Scalar(target, arguments)
        before, computed = len(self.steps), dict(self.moments)
        try:
            found = self._lower(node, target, arguments, keywords)
            for step in self.steps[before:]:
                if isinstance(step, Computed):
                    _ = step.value  # whether sizes leave nothing open shows in what a point is
                    self.origin[step] = node
                    if self.target is CPU and looks_up(node):
                        self.looking[step] = node
            return found
        except (NotLowered, Undecided) as error:
            del self.steps[before:]
            self.moments = computed
            return self._aten(node, target, arguments, keywords, str(error))

    def _lower(self, node: torch.fx.Node, target: Any, arguments: Any, keywords: Any) -> Any:
        from fastpath.random.lowering import drawn

        state = None
        if target is draw_again:
            target, _, state, *arguments = arguments
        if not isinstance(target, torch._ops.OpOverload):
            raise NotLowered(getattr(target, "reason", "not an ATen overload"))
        name = str(target)
        val = described(node.meta.get("val"), self.sizes)  # of what only checks there is none
        tensors = val if isinstance(val, tuple) else (val,)
        row = self._row(name, tensors, arguments, keywords)
        rule = _RULE_OF.get(name) if row is None else row.lowering
        moves = row is not None and row.kind == "cast" or str(rule).startswith("view:")
        fits = castable if moves else computable
        for t in tensors:
            if not isinstance(t, Described) or not fits(t.dtype):
                raise NotLowered("an output that no kernel computes")
            if t.device != self.device or t.layout is not torch.strided:
                raise NotLowered(f"an output that is not a strided tensor on {self.device}")
        if any(t.node in self.elsewhere for t in tensors_in((arguments, keywords))):
            raise NotLowered(f"an operand that is not on {self.device}")
        if draws(target):
            if any(isinstance(a, (Size, Scalar)) for a in (*arguments, *keywords.values())):
                raise NotLowered("a draw by a number that is another one in each call")
            if self._complex(tensors, arguments, keywords):
                raise NotLowered("a draw of complex numbers")
            return drawn(self, target, val, bind(target, arguments, keywords), state)
        if node.name in self.products:
            bound = bind(target, arguments, keywords)
            return product(self, node.name, val, bound, self.products[node.name])
        if row is not None and row.lowering is None:
            raise NotLowered(row.reasons.get("lowering", "no lowering"))
        if self._complex(tensors, arguments, keywords):
            moves = row is None and str(rule).partition(":")[0] in _MOVES
            if rule is not None and not (moves or row is not None and row is ON_COMPLEX.get(name)):
                raise NotLowered("no row for complex numbers")
        if row is not None and row.kind in ("pointwise", "cast"):
            return self._elementwise(node, val, row, target, arguments, keywords)
        if rule is None:
            raise NotLowered("no row in the operator table")
        if rule == "view:conj" and not isinstance(arguments[0], Tensor):  # a number of autograd's
            number, dtype = complex(arguments[0]).conjugate(), name_of(val.dtype)
            return self.output(val, lambda i: E.const(number, dtype), "number")
        if rule.startswith("view:"):
            fake = described(node.args[0].meta["val"], self.sizes)
            begin = fake.storage_offset() - arguments[0].offset  # of the base's node, by its fake
            rule = rule.removeprefix("view:")
            return self._view(val, rule, target, arguments, keywords, begin)
        for t in tensors_in((arguments, keywords)):
            if not computable(getattr(torch, t.dtype)):
                raise NotLowered(f"{t.dtype} is not computed in kernels")
        bare = all(type(t.numel()) is int and t.numel() == 0 for t in tensors)
        factory = rule.startswith("factory:")  # which looks at its number, the others at positions
        if bare and not factory and not rule.startswith(("gather:", "scatter:")):
            made = tuple([self.output(t, _nothing(t), "empty") for t in tensors])
            return made if isinstance(val, tuple) else made[0]
        if not factory and (tensors[0].numel() == 0 or _empty(arguments)):
            raise NotLowered("a tensor without elements")
        scalars = any(isinstance(a, Scalar) for a in (*arguments, *keywords.values()))
        if scalars and rule != "factory:s":
            raise NotLowered("a number that is another one in each call")
        if rule not in RULES:
            raise NotLowered(f"no rule {rule!r} in the loop IR")
        if self.options.numerics == "strict" and not _moves_or_counts(rule, tensors[0].dtype):
            raise NotLowered("strict numerics: terms are added or multiplied in another order")
        bound = bind(target, arguments, keywords)
        if row is not None and row.kind in ("reduction", "scan"):
            first = next(iter(bound.values()))
            if isinstance(first, Tensor) and first.dtype not in row.dtypes:
                raise NotLowered(f"{first.dtype} is no dtype of its row")
        made = RULES[rule](self, val, bound)
        if rule in _COPIES_OF_ALL and isinstance(made.node, Computed):
            begin = self._beginning(bound["self"], val)
            if begin != (None, 0):
                self.begins[made.node] = begin
        return made

    def _beginning(self, t: Tensor, val: Described) -> tuple[Input | None, Number]:
        """Where a result begins that is a part, as ``t`` is, of a copy of all that lies there. What
        shares places with itself is copied alone; where inputs begin no guard says."""
        if any(step == 0 and not n == 1 for n, step in zip(t.shape, t.strides)):
            return None, 0
        if isinstance(t.node, Input):
            return t.node, t.offset
        root, begin = self.begins.get(t.node, (None, 0))
        return (None, val.storage_offset()) if root is None else (root, begin + t.offset)

    def _elementwise(
        self,
        node: torch.fx.Node,
        val: Described,
        row: Any,
        target: Any,
        arguments: Any,
        keywords: Any,
    ) -> Tensor:
        bound = bind(target, arguments, keywords)
        known = {a.name for a in row.args}
        given = {}
        for name, value in bound.items():
            if name in known:
                given[name] = value
            elif value is not None and name not in _IGNORED:
                raise NotLowered(f"its argument {name} has no part in the row")
        result, body = elementwise(row, given, self.target.name, self.options.numerics == "strict")
        if result != name_of(val.dtype):
            raise NotLowered(f"the row's dtype rule gives {result}, ATen {val.dtype}")
        return self.pointwise(val.shape, result, body, node.name, val.stride())

    def _view(
        self, val: Any, rule: str, target: Any, arguments: Any, keywords: Any, begin: Number
    ) -> Any:
        """``begin``: where the fake of the node that the base is a view of begins in its memory."""
        base, *rest = arguments
        if rule in ("split", "split_with_sizes", "unbind"):
            return self._pieces(val, target, base, arguments, keywords, begin)
        if rule in views.SEEN:
            for dtype in (base.dtype, name_of(val.dtype)):
                if not computable(getattr(torch, dtype)):  # complex numbers of two halves
                    raise NotLowered(f"{dtype} is not computed in kernels")
            return self._seen(
                base, val, views.SEEN[rule], Replay(target, arguments, keywords), begin
            )
        if rule not in views.RULES:
            raise NotLowered(f"no view rule {rule!r}")
        numbers = (*base.shape, *base.strides, *val.shape)
        if (
            str(target) == "aten.view.default"
            and known(*numbers)  # of others, the front end has asked for what makes it right
            and not viewable(base.shape, base.strides, val.shape)
        ):
            raise Unsupported("a view that the strides do not allow, which eager rejects")
        index = views.RULES[rule](base.shape, val.shape, *rest, **keywords)
        return _through(base, val, index, Replay(target, arguments, keywords), begin)

    @staticmethod
    def _complex(tensors: Any, arguments: Any, keywords: Any) -> bool:
        given = (t.dtype for t in tensors_in((arguments, keywords)))
        return any(map(is_complex, (*(name_of(t.dtype) for t in tensors), *given)))

    def _row(self, name: str, tensors: Any, arguments: Any, keywords: Any) -> Any:
        """The operator's row: what it is on complex numbers where there are any."""
        tensors = [t for t in tensors if isinstance(t, Described)]
        if name in ON_COMPLEX and self._complex(tensors, arguments, keywords):
            return ON_COMPLEX[name]
        return OPERATORS.get(name)

    @staticmethod
    def _seen(base: Tensor, val: Described, rule: Any, replay: Replay, begin: Number) -> Tensor:
        """A view of other numbers than its node's, at the same places of memory."""
        parts = len(val.shape) - len(base.shape)  # one more dimension, or one less
        if parts < 0:
            begin = begin // 2
        offset = val.storage_offset() - (begin * 2 if parts > 0 else begin)
        return Tensor(base.node, val.shape, val.stride(), offset, None, replay, rule(base))

    def _pieces(
        self,
        vals: Sequence[Described],
        target: Any,
        base: Tensor,
        args: Any,
        keywords: Any,
        begin: Number,
    ) -> tuple[Tensor, ...]:
        bound = bind(target, args, keywords)
        dim, drop = bound.get("dim", 0) or 0, "unbind" in str(target)
        start, found = 0, []
        for place, val in enumerate(vals):
            index = views.piece(base.shape, dim, start, drop)
            replay = Replay(target, args, keywords, place)
            found.append(_through(base, val, index, replay, begin))
            start += 1 if drop else val.shape[dim]
        return tuple(found)

    def _aten(
        self, node: torch.fx.Node, target: Any, arguments: Any, keywords: Any, reason: str
    ) -> Any:
        stays = _impure(target) or looks_up(node) and not node.users
        call = Call(target, arguments, dict(keywords), reason, impure=stays)
        self.steps.append(call)
        val = node.meta.get("val")
        call.single = not isinstance(val, (tuple, list))

        def result_of(t: Any, place: tuple[int, ...]) -> Any:
            if isinstance(t, (tuple, list)):
                return tuple([result_of(part, (*place, n)) for n, part in enumerate(t)])
            if not isinstance(t, torch.Tensor):
                return None
            seen = Described(t, self.sizes)
            shape, strides, bits = seen.shape, seen.stride(), has_bits(t)
            laid_out = contiguous_strides(shape) if bits else strides
            result = Result(self.fresh(node.name), call, shape, name_of(t.dtype), laid_out, bits)
            result.inside = seen.storage_offset() != 0
            call.outputs.append(result)
            if t.device != self.device:
                self.elsewhere.add(result)
            call.places.append(place)
            return Tensor(result, shape, strides)

        return result_of(val, ())


def _impure(target: Any) -> bool:
    """Whether a call keeps its place among its kind: it draws, writes, checks or is not ATen's."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return True
    return draws(target) or checks(target) or target._schema.is_mutable


def _moves_or_counts(rule: str, dtype: torch.dtype) -> bool:
    """Whether what a rule of the loop IR computes in ``dtype`` can be rounded in one way only."""
    kind, _, name = rule.partition(":")
    exact = not (dtype.is_floating_point or dtype.is_complex)
    if kind in ("copy", "gather", "search"):
        return True
    if kind == "factory":
        return exact or name != "arange"
    return exact and kind in ("reduce", "scan")


def _nothing(val: Described) -> Callable[[Position], Expr]:
    return lambda index: E.const(0, name_of(val.dtype))


def _empty(value: Any) -> bool:
    if isinstance(value, Tensor):
        return math.prod(value.shape) == 0
    return isinstance(value, (tuple, list)) and any(_empty(v) for v in value)


def _through(base: Tensor, val: Described, index: Any, replay: Replay, begin: Number) -> Tensor:
    """A fake may begin elsewhere in its memory than what a kernel of ours writes in its place, so
    that a view's offset is counted from ``begin``, where its node's fake begins."""
    composed = index
    if base.index is not None:
        outer = base.index

        def composed(i: Position) -> Position:
            return outer(index(i))

    offset = val.storage_offset() - begin
    return Tensor(base.node, val.shape, val.stride(), offset, composed, replay, base.seen)


def bind(target: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """All arguments by the schema's names, defaults filled in."""
    bound: dict[str, Any] = {}
    for place, argument in enumerate(target._schema.arguments):
        if place < len(arguments):
            bound[argument.name] = arguments[place]
        elif argument.name in keywords:
            bound[argument.name] = keywords[argument.name]
        elif argument.has_default_value():
            bound[argument.name] = argument.default_value
    return bound


# Overloads that need no row of the specification: other spellings of a view, and what capture's
# functional form introduces.
_RULE_OF: dict[str, str] = {
    "aten._reshape_alias.default": "view:view",
    "aten.view_as_real.default": "view:as_real",
    "aten.view_as_complex.default": "view:as_complex",
    "aten._conj.default": "view:conj",
    "aten._neg_view.default": "view:negative",
    "aten._efficientzerotensor.default": "factory:0",  # eager's has no memory to read
    "aten.copy.default": "copy:copy",
    "aten.fill.Tensor": "copy:fill",
    "aten.lift_fresh_copy.default": "copy:copy",
    "aten.slice_backward.default": "copy:slice_backward",
    "aten.select_backward.default": "copy:select_backward",
    "aten.diagonal_backward.default": "copy:diagonal_backward",
    "aten.slice_scatter.default": "copy:slice_scatter",
    "aten.select_scatter.default": "copy:select_scatter",
    "aten.take.default": "gather:take",
    "aten.bucketize.Tensor": "search:bucketize",
    "aten.searchsorted.Tensor": "search:searchsorted",
    "aten.isin.Tensor_Tensor": "search:isin",
    "aten.grid_sampler_2d.default": "sample:grid2d",
    "aten.index_copy.default": "scatter:index_copy",
    "aten.index_fill.int_Scalar": "scatter:index_fill",
    "aten.index_fill.int_Tensor": "scatter:index_fill",
    "aten.index_put.default": "scatter:index_put",
    "aten._unsafe_index_put.default": "scatter:index_put",
    "aten._unsafe_index.Tensor": "gather:index",
    "aten.aminmax.default": "reduce:aminmax",
    "aten.norm.Scalar": "reduce:old_norm",
    "aten.norm.ScalarOpt_dim": "reduce:old_norm",
    "aten.pixel_shuffle.default": "copy:pixel_shuffle",
    "aten.pixel_unshuffle.default": "copy:pixel_unshuffle",
    "aten.rot90.default": "copy:rot90",
    "aten.im2col.default": "window:im2col",
    **{
        f"aten.{name}.default": f"window:{rule}"
        for name, rule in {
            "max_pool3d_with_indices": "max_pool3d",
            "max_pool2d_with_indices_backward": "max_pool_backward2d",
            "max_pool3d_with_indices_backward": "max_pool_backward3d",
            "avg_pool3d": "avg_pool3d",
            "avg_pool2d_backward": "avg_pool_backward2d",
            "avg_pool3d_backward": "avg_pool_backward3d",
            "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
            "_adaptive_avg_pool2d_backward": "adaptive_avg_pool_backward2d",
            "_adaptive_avg_pool3d_backward": "adaptive_avg_pool_backward3d",
            "adaptive_max_pool2d": "adaptive_max_pool2d",
            "adaptive_max_pool3d": "adaptive_max_pool3d",
        }.items()
    },
    **{
        f"aten.{name}.default": f"resize:{rule}"
        for name, rule in {
            "upsample_linear1d": "linear1d",
            "upsample_bilinear2d": "linear2d",
            "upsample_trilinear3d": "linear3d",
            "upsample_bicubic2d": "cubic2d",
            **{f"upsample_nearest{n}d": f"nearest{n}d" for n in (1, 3)},
            **{f"upsample_nearest{n}d_backward": f"nearest{n}d_backward" for n in (1, 2, 3)},
            **{f"_upsample_nearest_exact{n}d": f"nearest_exact{n}d" for n in (1, 2, 3)},
            **{
                f"_upsample_nearest_exact{n}d_backward": f"nearest_exact{n}d_backward"
                for n in (1, 2, 3)
            },
        }.items()
    },
    **{
        f"aten.{kind}ion_pad{n}d.default": f"border:{rule}{n}d"
        for kind, rule in (("reflect", "reflect"), ("replicat", "replicate"))
        for n in (1, 2, 3)
    },
    "aten.nll_loss_forward.default": "compose:nll_loss",
    "aten.nll_loss2d_forward.default": "compose:nll_loss",
    "aten.nll_loss_backward.default": "compose:nll_loss_backward",
    "aten.nll_loss2d_backward.default": "compose:nll_loss_backward",
    "aten.unsafe_split.Tensor": "view:split",
    "aten.unsafe_split_with_sizes.default": "view:split_with_sizes",
    "aten.new_ones.default": "factory:1",
    "aten.new_zeros.default": "factory:0",
    "aten.new_full.default": "factory:fill_value",
    "aten.arange.start": "factory:arange",
    "aten._native_batch_norm_legit_functional.default": "compose:batch_norm_training",
    "aten._native_batch_norm_legit.no_stats": "compose:batch_norm_training",
}
