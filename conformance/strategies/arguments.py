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
from specs.shapes import broadcast

# What an argument was drawn as: a tensor, a list of tensors, or a plain Python value.
Drawn = Drawing | list[Drawing] | Any


@dataclass
class Drawer:
    """Draws the arguments of one call, in order; ``done`` are those drawn so far."""

    draw: st.DrawFn
    row: Operator
    dtype: str
    done: dict[str, Drawn] = field(default_factory=dict)
    common: Shape | None = None  # what broadcasting tensors broadcast to

    def arguments(self) -> dict[str, Drawn]:
        """Every argument's value; what is left out is absent. Invalid ones are not drawn."""
        for arg in self.order():
            if arg.optional and not arg.reached:
                continue
            if arg.optional and self.draw(st.booleans()):
                continue
            self.done[arg.name] = KINDS[arg.kind](self, arg)
        return {arg.name: self.done[arg.name] for arg in self.row.args if arg.name in self.done}

    def order(self) -> list[Arg]:
        """A dimension before what depends on it."""
        depends = ("length", "count", "divisor")
        late = [a for a in self.row.args if a.relation in (*depends, "cat") or a.kind == "index"]
        return [a for a in self.row.args if a not in late] + late

    # -- what is known so far --------------------------------------------------------------------

    def first(self) -> Drawing:
        for arg in self.row.args:
            value = self.done.get(arg.name)
            if isinstance(value, Drawing):
                return value
            if isinstance(value, list) and value and isinstance(value[0], Drawing):
                return value[0]
        raise LookupError(f"{self.row.name}: no tensor is drawn yet")

    def has_tensor(self) -> bool:
        return any(isinstance(v, (Drawing, list)) for v in self.done.values())

    def length(self, dim: str = "dim") -> int:
        """The length of the dimension that the argument ``dim`` names; 0 without one."""
        shape = self.first().shape
        axis = self.done.get(dim, self.row.complete({}).get(dim))
        axis = 0 if not isinstance(axis, int) else axis
        return shape[axis] if shape else 1

    def tensor(self, name: str, shape: Shape, arg: Arg, dtype: str | None = None) -> Drawing:
        dtype = dtype or self.tensor_dtype(arg)
        bounds = arg.values if len(arg.values) == 2 and _numbers(arg.values) else ()
        return self.draw(drawings(name, dtype, shape, bounds, arg.nonzero, LAYOUTS))

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
    count = drawer.draw(st.integers(1, 4))
    made: list[Drawing] = []
    for number in range(count):
        shape = RELATIONS[arg.relation](drawer, arg)
        if made and arg.relation == "cat":
            shape = _agrees_but_for_dim(drawer, made[0].shape)
        elif made:
            shape = made[0].shape
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
    """Positions along ``dim``; contents are made valid by their bounds."""
    length = drawer.length()
    assume(length > 0)
    shape = RELATIONS[arg.relation](drawer, arg)
    bounds = (0, length - 1)
    return drawer.draw(drawings(arg.name, "int64", shape, bounds, kinds=("offset", "sliced")))


def _indices(drawer: Drawer, arg: Arg) -> list[Drawing | None]:
    shape = drawer.first().shape
    assume(shape and math.prod(shape) > 0)
    common = drawer.draw(shapes(0, 2, empty=False))
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


def _scalar(drawer: Drawer, arg: Arg) -> bool | int | float:
    """A Python number: of the dtype's own kind mostly."""
    bounds = arg.values if len(arg.values) == 2 else ()
    if dtypes.is_float(drawer.dtype):
        if bounds:
            value: Any = _number(drawer, *map(float, bounds))
        else:
            plain = st.sampled_from((1, 2, 0.5, -1.5, 3, 0.1, -2.25))
            value = drawer.draw(plain | st.sampled_from(special("float32")))
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
    if arg.relation in ("length", "count", "divisor"):
        length = drawer.length()
        match arg.relation:
            case "length":
                return drawer.draw(st.integers(-length, max(length - 1, 0)))
            case "count":
                assume(length > 0)
                return drawer.draw(st.integers(1, length))
        assume(length > 0)
        return drawer.draw(st.sampled_from([n for n in range(1, length + 1) if length % n == 0]))
    low, high = arg.values if len(arg.values) == 2 else (-3, 3)
    return drawer.draw(st.integers(int(low), int(high)))


def _float(drawer: Drawer, arg: Arg) -> float:
    low, high = arg.values if len(arg.values) == 2 else (-2.0, 2.0)
    return _number(drawer, float(low), float(high))


def _bool(drawer: Drawer, arg: Arg) -> bool:
    return drawer.draw(st.booleans())


def _dim(drawer: Drawer, arg: Arg) -> int:
    rank = max(len(drawer.first().shape), 1)
    return drawer.draw(st.integers(-rank, rank - 1))


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
    return drawer.draw(st.sampled_from(arg.values or dtypes.ALL))


def _ints(drawer: Drawer, arg: Arg) -> list[int]:
    if arg.values and not _numbers(arg.values):
        return list(drawer.draw(st.sampled_from(arg.values)))
    low, high = arg.values if len(arg.values) == 2 else (-2, 2)
    rank = len(drawer.first().shape)
    return [drawer.draw(st.integers(int(low), int(high))) for _ in range(rank)]


def _shape(drawer: Drawer, arg: Arg) -> Any:
    if arg.values:
        return drawer.draw(st.sampled_from(arg.values))
    rule = SHAPES.get(drawer.row.shape_rule, _any_shape)
    return list(rule(drawer))


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
    "dims": _dims,
    "permutation": _permutation,
    "choice": _choice,
    "dtype": _dtype,
    "ints": _ints,
    "shape": _shape,
}

# -- relations -----------------------------------------------------------------------------------


def _free(drawer: Drawer, arg: Arg) -> Shape:
    """Any shape, which is one to broadcast from where a later argument broadcasts."""
    low, high = arg.min_rank, arg.max_rank
    if drawer.has_tensor() or not any(a.relation == "broadcast" for a in drawer.row.args):
        return drawer.draw(shapes(low, high))
    drawer.common = drawer.draw(shapes(low, high))
    mine = drawer.draw(broadcastable(drawer.common))
    return mine if len(mine) >= low else drawer.common


def _broadcast(drawer: Drawer, arg: Arg) -> Shape:
    common = drawer.common
    if common is None:
        common = broadcast(*(d.shape for d in drawer.done.values() if isinstance(d, Drawing)))
    return drawer.draw(broadcastable(common))


def _same(drawer: Drawer, arg: Arg) -> Shape:
    return drawer.first().shape if drawer.has_tensor() else drawer.draw(shapes())


def _agrees_but_for_dim(drawer: Drawer, shape: Shape) -> Shape:
    axis = drawer.done.get("dim", 0)
    if not shape or not isinstance(axis, int):
        return shape
    changed = list(shape)
    changed[axis] = drawer.draw(st.sampled_from((1, 2, 3, 5)))
    return tuple(changed)


def _lengths(drawer: Drawer, most: int = 17) -> int:
    return drawer.draw(st.sampled_from([n for n in LENGTHS if n <= most]))


RELATIONS: dict[str, Callable[[Drawer, Arg], Shape]] = {
    "free": _free,
    "broadcast": _broadcast,
    "same": _same,
}


def _any_shape(drawer: Drawer) -> Shape:
    return drawer.draw(shapes())


SHAPES: dict[str, Callable[[Drawer], Shape]] = {}


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
