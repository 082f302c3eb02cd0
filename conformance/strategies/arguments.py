"""Valid arguments of an operator, drawn as its row says (:class:`specs.operators.Arg`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from conformance.strategies.contents import rounded, special
from conformance.strategies.tensors import (
    LAYOUTS,
    LENGTHS,
    Drawing,
    Shape,
    broadcastable,
    drawings,
    shapes,
)
from specs import dtypes
from specs.dtypes import TensorType
from specs.operators import Arg, Operator
from specs.operators.row import TENSOR_KINDS
from specs.shapes import broadcast

# What an argument was drawn as: a tensor, a list of tensors, or a plain Python value.
Drawn = Any


# Kinds of operators whose result mixes elements, so that order and cancellation matter.
MIXING = {"reduction", "scan", "contraction", "normalisation", "pooling", "scatter"}

# When arguments are drawn: each needs what is drawn before it.
_FIRST, _PLAIN, _RELATED, _LAST = range(4)
_TURN = {
    "free": _FIRST,
    "cat": _FIRST,
    "same": _RELATED,
    "broadcast": _RELATED,
    "channels": _LAST,
    "features": _LAST,
    "addmm": _LAST,
    "selected": _LAST,
    "rows": _LAST,
}


@dataclass
class Drawer:
    """Draws the arguments of one call; ``done`` are those drawn so far."""

    draw: st.DrawFn
    row: Operator
    dtype: str
    done: dict[str, Drawn] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    common: Shape | None = None  # what broadcasting tensors broadcast to

    def arguments(self) -> dict[str, Drawn]:
        """Every argument's value, in the row's order; what is left out is absent."""
        for arg in sorted(self.row.args, key=self.turn):
            if arg.name in self.done or arg.name in self.left_out:
                continue
            if arg.optional and (not arg.reached or self.draw(st.booleans())):
                self.left_out.add(arg.name)
            else:
                self.done[arg.name] = KINDS[arg.kind](self, arg)
        return {arg.name: self.done[arg.name] for arg in self.row.args if arg.name in self.done}

    def turn(self, arg: Arg) -> int:
        """The first tensor, then plain values, then the tensors that depend on both."""
        if arg.kind in TENSOR_KINDS:
            turn = _TURN.get(arg.relation, _RELATED)
            if arg == next(a for a in self.row.args if a.kind in TENSOR_KINDS):
                return min(turn, _LAST if arg.relation == "addmm" else _FIRST)
            return max(turn, _RELATED) if arg.kind in ("index", "mask", "indices") else turn
        return _LAST if arg.relation == "per_dim" else _PLAIN

    # -- what is known so far --------------------------------------------------------------------

    def first(self) -> Drawing:
        """The first tensor of the row that is drawn."""
        for arg in self.row.args:
            value = self.done.get(arg.name)
            if isinstance(value, list) and value:
                value = value[0]
            if isinstance(value, Drawing):
                return value
        raise LookupError(f"{self.row.name}: no tensor is drawn yet")

    def before(self, arg: Arg) -> Drawing:
        """The tensor drawn for the nearest argument before ``arg``."""
        for other in reversed(self.row.args[: self.row.args.index(arg)]):
            value = self.done.get(other.name)
            if isinstance(value, Drawing):
                return value
        raise LookupError(f"{self.row.name}: no tensor before {arg.name}")

    def shape(self, name: str) -> Shape:
        return self.done[name].shape

    def has_tensor(self) -> bool:
        return any(isinstance(v, (Drawing, list)) for v in self.done.values())

    def axis(self) -> int:
        """The dimension that the argument ``dim`` (or ``dimension``) names, from 0."""
        rank = max(len(self.first().shape), 1)
        for name in ("dim", "dimension"):
            if isinstance(self.done.get(name), int):
                return self.done[name] % rank
        default = next((a.default for a in self.row.args if a.name == "dim"), 0)
        return default % rank if isinstance(default, int) else 0

    def length(self) -> int:
        """The length of that dimension; 1 for a 0-dim tensor."""
        shape = self.first().shape
        return shape[self.axis()] if shape else 1

    def tensor(self, name: str, shape: Shape, arg: Arg, dtype: str | None = None) -> Drawing:
        dtype = dtype or self.tensor_dtype(arg)
        bounds = arg.values if len(arg.values) == 2 and _numbers(arg.values) else ()
        summed = self.row.kind in MIXING
        layouts: tuple[str, ...] = ("offset",) if arg.contiguous else LAYOUTS
        if self.row.kind == "normalisation":
            # Values that are all one have no deviation, and rounding alone decides the result.
            layouts = tuple(layout for layout in layouts if layout != "expanded")
        return self.draw(
            drawings(name, dtype, shape, bounds, arg.nonzero, layouts, summed, arg.least, arg.nan)
        )

    def tensor_dtype(self, arg: Arg) -> str:
        """The family's dtype; another one now and then where promotion takes part."""
        if not self.has_tensor() or not arg.promotes or self.row.dtype_rule.startswith("same"):
            return self.dtype
        if self.draw(st.integers(0, 4)) < 4:
            return self.dtype
        return self.draw(st.sampled_from(dtypes.ALL))


def _numbers(values: tuple[Any, ...]) -> bool:
    return all(isinstance(v, int | float) for v in values)


# -- kinds ---------------------------------------------------------------------------------------


def _tensor(drawer: Drawer, arg: Arg) -> Drawing:
    shape = RELATIONS[arg.relation](drawer, arg)
    return drawer.tensor(arg.name, shape, arg)


def _tensors(drawer: Drawer, arg: Arg) -> list[Drawing]:
    """Of one shape; to be concatenated, they differ in the dimension that is drawn here too."""
    shape = drawer.draw(shapes(arg.min_rank, arg.max_rank))
    axis = 0
    if arg.relation == "cat":
        axis = drawer.draw(st.integers(-len(shape), len(shape) - 1))
        if axis == 0:
            drawer.left_out.add("dim")
        else:
            drawer.done["dim"] = axis
    made: list[Drawing] = []
    for number in range(drawer.draw(st.integers(1, 4))):
        if made and arg.relation == "cat":
            changed = list(shape)
            changed[axis] = drawer.draw(st.sampled_from((1, 2, 3, 5, 0)))
            shape = tuple(changed)
        made.append(drawer.tensor(f"{arg.name}{number}", shape, arg))
        drawer.done[arg.name] = made
    return made


def _operand(drawer: Drawer, arg: Arg) -> Drawn:
    if drawer.draw(st.integers(0, 3)) == 3:
        return _scalar(drawer, arg)
    return _tensor(drawer, arg)


def _mask(drawer: Drawer, arg: Arg) -> Drawing:
    return drawer.tensor(arg.name, RELATIONS[arg.relation](drawer, arg), arg, dtypes.BOOL)


def _index(drawer: Drawer, arg: Arg) -> Drawing:
    """Positions along ``dim``, within bounds."""
    length = drawer.length()
    assume(length > 0)
    shape = drawer.first().shape
    match arg.relation:
        case "free":
            wanted = drawer.draw(shapes(arg.min_rank, arg.max_rank))
        case _:
            low = 1 if arg.relation == "unique" else 0
            wanted = tuple(drawer.draw(st.integers(low, n)) for n in shape)
            if arg.relation == "unique":
                # One row of positions is distinct; of more than one, only the same one could be.
                wanted = tuple(1 if a == drawer.axis() else n for a, n in enumerate(wanted))
    bounds = (0, length - 1)
    return drawer.draw(drawings(arg.name, "int64", wanted, bounds, kinds=("offset", "sliced")))


def _indices(drawer: Drawer, arg: Arg) -> list[Drawing | None]:
    """One entry per leading dimension; negative positions count from the end."""
    shape = drawer.first().shape
    assume(shape and math.prod(shape) > 0)
    common = drawer.draw(shapes(0, min(arg.max_rank, 2), empty=False))
    made: list[Drawing | None] = []
    count = drawer.draw(st.integers(1, len(shape)))
    for axis in range(count):
        if axis < count - 1 and drawer.draw(st.integers(0, 3)) == 3:
            made.append(None)
            continue
        bounds = (-shape[axis], shape[axis] - 1)
        made.append(
            drawer.draw(drawings(f"{arg.name}{axis}", "int64", common, bounds, kinds=("offset",)))
        )
    return made


def _scalar(drawer: Drawer, arg: Arg) -> bool | int | float | complex:
    """A Python number: of the dtype's own kind mostly."""
    bounds = arg.values if len(arg.values) == 2 else ()
    value: Any
    if dtypes.is_complex(drawer.dtype):
        parts = st.sampled_from((1, 2, 0.5, -1.5, 3, 0.1, -2.25))
        return drawer.draw(parts | st.builds(complex, parts, parts))
    if dtypes.is_float(drawer.dtype):
        if bounds:
            value = _number(drawer, *map(float, bounds))
        else:
            plain = st.sampled_from((1, 2, 0.5, -1.5, 3, 0.1, -2.25))
            value = drawer.draw(plain | st.sampled_from(special("float32")))
        if 0 < abs(value) < arg.least:
            value = math.copysign(arg.least, value)
    elif drawer.dtype == dtypes.BOOL:
        value = drawer.draw(st.booleans())
    else:
        low, high = dtypes.int_range(drawer.dtype)
        low, high = (max(low, math.ceil(bounds[0])), min(high, math.floor(bounds[1]))) if bounds \
            else (low, high)  # fmt: skip
        value = drawer.draw(st.integers(max(low, -9), min(high, 9)))
    return 1 if arg.nonzero and value == 0 else value


def _number(drawer: Drawer, low: float, high: float) -> float:
    """A number of few digits between two others."""
    value = drawer.draw(st.floats(low, high, allow_subnormal=False))
    return min(max(rounded(value, "float16"), low), high)


def _int(drawer: Drawer, arg: Arg) -> int:
    low, high = arg.values if len(arg.values) == 2 else (-3, 3)
    if arg.relation == "free":
        return drawer.draw(st.integers(int(low), int(high)))
    shape = drawer.first().shape
    match arg.relation:
        case "length_of_0" | "length_of_1":
            return shape[int(arg.relation[-1])]
        case "length_of_rest":
            return math.prod(shape[2:])
        case "divisor":
            most = max(arg.values, default=shape[1])
            return drawer.draw(
                st.sampled_from([n for n in range(1, most + 1) if shape[1] % n == 0] or [1])
            )
    length = drawer.length()
    if arg.relation == "length":
        return drawer.draw(st.integers(-length - 1, length + 1))
    assume(length > 0)
    return drawer.draw(st.integers(-length if arg.relation == "position" else 1, max(length, 1))
                       .filter(lambda n: n < length or arg.relation == "count"))  # fmt: skip


def _float(drawer: Drawer, arg: Arg) -> float:
    low, high = arg.values if len(arg.values) == 2 else (-2.0, 2.0)
    return _number(drawer, float(low), float(high))


def _bool(drawer: Drawer, arg: Arg) -> bool:
    return drawer.draw(st.sampled_from(arg.values) if arg.values else st.booleans())


def _dim(drawer: Drawer, arg: Arg) -> int:
    rank = max(len(drawer.first().shape), 1)
    return drawer.draw(st.integers(-rank, rank - 1))


def _new_dim(drawer: Drawer, arg: Arg) -> int:
    rank = len(drawer.first().shape)
    return drawer.draw(st.integers(-rank - 1, rank))


def _dims(drawer: Drawer, arg: Arg) -> list[int]:
    rank = len(drawer.first().shape)
    if not rank:
        return []
    chosen = drawer.draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=rank))
    return [d - rank if drawer.draw(st.booleans()) else d for d in chosen]


def _permutation(drawer: Drawer, arg: Arg) -> list[int]:
    return list(drawer.draw(st.permutations(range(len(drawer.first().shape)))))


def _choice(drawer: Drawer, arg: Arg) -> Any:
    return drawer.draw(st.sampled_from(arg.values))


def _dtype(drawer: Drawer, arg: Arg) -> str:
    if not any(a.kind in TENSOR_KINDS for a in drawer.row.args):
        return drawer.dtype  # a factory: the family's dtype is the result's
    if arg.values == ("same",):
        return drawer.first().dtype
    return drawer.draw(st.sampled_from(arg.values or dtypes.ALL))


def _ints(drawer: Drawer, arg: Arg) -> list[int]:
    low, high = (int(v) for v in (arg.values if len(arg.values) == 2 else (-2, 2)))
    shape = drawer.first().shape
    number = st.integers(low, high)
    match arg.relation:
        case "partition":
            return _partition(drawer, drawer.length())
        case "per_dim":
            count = len(drawer.done.get("dims", ())) or 1
        case "padding":
            count = 2 * drawer.draw(st.integers(1, len(shape)))
        case "repeats":
            count = len(shape) + drawer.draw(st.integers(0, 1))
        case "spatial":
            count = len(shape) - 2
        case _:
            count = len(shape)
    return [drawer.draw(number) for _ in range(count)]


def _partition(drawer: Drawer, total: int) -> list[int]:
    parts = []
    while total:
        parts.append(drawer.draw(st.integers(1, total)))
        total -= parts[-1]
    return parts or [0]


def _shape(drawer: Drawer, arg: Arg) -> list[int]:
    """A valid target of the operator, by the rule of its shape."""
    shape = drawer.first().shape
    match drawer.row.shape_rule:
        case "view":
            return _view_of(drawer, shape)
        case "expand":
            new = [drawer.draw(st.integers(1, 3)) for _ in range(drawer.draw(st.integers(0, 1)))]
            grown = [drawer.draw(st.sampled_from((1, 2, 5))) if n == 1 else n for n in shape]
            kept = [-1 if drawer.draw(st.integers(0, 5)) == 5 else n for n in shape]
            return new + [k if k == -1 else g for k, g in zip(kept, grown, strict=True)]
        case "layer_norm" | "like_input":
            assume(shape)
            return list(shape[drawer.draw(st.integers(0, len(shape) - 1)) :])
    raise LookupError(f"{drawer.row.name}: no target shape is known for {drawer.row.shape_rule}")


def _view_of(drawer: Drawer, shape: Shape) -> list[int]:
    """The same number of elements in other dimensions, one of which may be -1."""
    count = math.prod(shape)
    if count == 0:
        return list(shape)
    size: list[int] = []
    while count > 1 and len(size) < 3:
        size.append(drawer.draw(st.sampled_from([n for n in range(1, count + 1) if not count % n])))
        count //= size[-1]
    size += [count] if count > 1 or not size and drawer.draw(st.booleans()) else []
    if size and _bool(drawer, Arg("inferred", "bool")):
        size[drawer.draw(st.integers(0, len(size) - 1))] = -1
    return size


def _sizes(drawer: Drawer, arg: Arg) -> list[int]:
    return list(drawer.draw(shapes()))


KINDS: Mapping[str, Callable[[Drawer, Arg], Drawn]] = {
    "tensor": _tensor,
    "tensors": _tensors,
    "operand": _operand,
    "mask": _mask,
    "index": _index,
    "indices": _indices,
    "scalar": _scalar,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "dim": _dim,
    "new_dim": _new_dim,
    "dims": _dims,
    "permutation": _permutation,
    "choice": _choice,
    "dtype": _dtype,
    "ints": _ints,
    "shape": _shape,
    "sizes": _sizes,
}

# -- relations -----------------------------------------------------------------------------------


def _free(drawer: Drawer, arg: Arg) -> Shape:
    """Any shape, which is one to broadcast from where a later argument broadcasts."""
    any_shape = shapes(arg.min_rank, arg.max_rank, not arg.nonempty, max(arg.min_length, 1))
    if drawer.has_tensor() or not any(a.relation == "broadcast" for a in drawer.row.args):
        return drawer.draw(any_shape)
    drawer.common = drawer.draw(any_shape)
    mine = drawer.draw(broadcastable(drawer.common))
    return mine if len(mine) >= arg.min_rank else drawer.common


def _broadcast(drawer: Drawer, arg: Arg) -> Shape:
    common = drawer.common
    if common is None:
        common = broadcast(*(d.shape for d in drawer.done.values() if isinstance(d, Drawing)))
    return drawer.draw(broadcastable(common))


def _same(drawer: Drawer, arg: Arg) -> Shape:
    return drawer.first().shape


def _matmul(drawer: Drawer, arg: Arg) -> Shape:
    """Multiplies the tensor before it: a vector, a matrix, or a batch of them."""
    left = drawer.before(arg).shape
    inner = left[-1]
    columns = drawer.draw(st.sampled_from(LENGTHS[:8]))
    rank = drawer.draw(st.integers(arg.min_rank, arg.max_rank))
    if rank == 1:
        return (inner,)
    batch = left[:-2][len(left[:-2]) - (rank - 2) :] if len(left) >= rank else left[:-2]
    return (*batch, inner, columns)


def _addmm(drawer: Drawer, arg: Arg) -> Shape:
    """Broadcasts to the product of the two tensors after it."""
    left, right = (drawer.shape(a.name) for a in drawer.row.args[1:3])
    shape = drawer.draw(broadcastable((*left[:-1], right[-1])))
    return shape[max(0, len(shape) - arg.max_rank) :]


def _kernel(drawer: Drawer, arg: Arg) -> Shape:
    """A convolution's weight, whose windows fit into the input."""
    batch, channels, *plane = drawer.first().shape
    groups = drawer.done.get("groups", 1)
    window = tuple(drawer.draw(st.integers(1, min(3, n))) for n in plane)
    outputs = groups * drawer.draw(st.integers(1, 3))
    if drawer.done.get("transposed"):
        return (channels, outputs // groups, *window)
    return (outputs, channels // groups, *window)


def _channels(drawer: Drawer, arg: Arg) -> Shape:
    """As long as dimension 1 of the first tensor, or of a convolution's output."""
    if drawer.row.shape_rule == "convolution":
        weight = drawer.shape("weight")
        if drawer.done.get("transposed"):
            return (weight[1] * drawer.done["groups"],)
        return weight[:1]
    return (drawer.first().shape[1],)


def _normalized(drawer: Drawer, arg: Arg) -> Shape:
    return tuple(drawer.done["normalized_shape"])


def _last(drawer: Drawer, arg: Arg) -> Shape:
    return (drawer.draw(st.sampled_from(LENGTHS[:8])), drawer.first().shape[-1])


def _features(drawer: Drawer, arg: Arg) -> Shape:
    return drawer.shape("weight")[:1]


def _attention(drawer: Drawer, arg: Arg) -> Shape:
    """Keys and values of one length, for the query's batch; a mask is (queries, keys)."""
    *batch, queries, width = drawer.first().shape
    if arg.kind == "mask":
        return (queries, drawer.shape("key")[-2])
    if "key" in drawer.done:
        return (*batch, drawer.shape("key")[-2], width)
    return (*batch, drawer.draw(st.sampled_from(LENGTHS[:8])), width)


def _selected(drawer: Drawer, arg: Arg) -> Shape:
    return drawer.shape("index")


def _rows(drawer: Drawer, arg: Arg) -> Shape:
    shape = list(drawer.first().shape)
    shape[drawer.axis()] = math.prod(drawer.shape("index"))
    return tuple(shape)


RELATIONS: Mapping[str, Callable[[Drawer, Arg], Shape]] = {
    "free": _free,
    "broadcast": _broadcast,
    "same": _same,
    "matmul": _matmul,
    "addmm": _addmm,
    "kernel": _kernel,
    "channels": _channels,
    "normalized": _normalized,
    "last": _last,
    "features": _features,
    "attention": _attention,
    "selected": _selected,
    "rows": _rows,
}


@st.composite
def arguments(draw: st.DrawFn, row: Operator, dtype: str) -> dict[str, Drawn]:
    """The arguments of one call of ``row`` whose first tensor is of ``dtype``."""
    made = Drawer(draw, row, dtype).arguments()
    try:
        row.infer(types_of(made))
    except (TypeError, ValueError, IndexError):
        assume(False)  # eager rejects it; that it has to is another suite's question
    return made


def types_of(made: Mapping[str, Drawn]) -> dict[str, Any]:
    """The arguments with tensors as the specification's rules see them."""

    def seen(value: Any) -> Any:
        if isinstance(value, Drawing):
            return TensorType(value.dtype, value.shape)
        return [seen(item) for item in value] if isinstance(value, list) else value

    return {name: seen(value) for name, value in made.items()}
