"""The dtype and shape rules, and promotion itself, against torch on drawn arguments."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specs import dtypes
from specs.dtypes import TensorType
from specs.operators import ON_COMPLEX, OPERATORS, Arg, Operator
from tests.cpu.specs.evaluate import dtype_of, name_of, typed

EXAMPLES = settings(max_examples=25, deadline=None, derandomize=True)


ALL = (*dtypes.ALL, *dtypes.PART_OF)


def test_promotion_of_two_dtypes_is_torchs() -> None:
    for a, b in itertools.product(ALL, repeat=2):
        expected = torch.promote_types(dtype_of(a), dtype_of(b))
        assert dtypes.promote_types(a, b) == name_of(expected), (a, b)


def complex32(a: str, b: str) -> bool:
    """Whether torch may promote to a dtype that the specification does not have."""
    return "float16" in (a, b) and bool({a, b} & set(dtypes.PART_OF))


def test_promotion_of_categories_is_torchs() -> None:
    compared = 0
    for a, b in itertools.product(ALL, repeat=2):
        if complex32(a, b):
            continue
        one, two = torch.ones(2, dtype=dtype_of(a)), torch.ones((), dtype=dtype_of(b))
        for left, right in ((one, two), (two, one), (two, two), (one, one)):
            expected = name_of(torch.result_type(left, right))
            assert dtypes.result_type(list(typed({"l": left, "r": right}).values())) == expected
            compared += 1
    for a in ALL:
        for number, shape in itertools.product((True, 2, 2.5, 2j, 2**63), ((2,), ())):
            if complex32(a, "complex64" if isinstance(number, complex) else "bool"):
                continue
            tensor = torch.ones(shape, dtype=dtype_of(a))
            compared += 1
            try:
                expected = name_of(torch.result_type(tensor, number))
            except RuntimeError:  # of a bool and what is beyond int64, torch promotes neither
                with pytest.raises(TypeError, match="no dtype in common"):
                    dtypes.result_type([TensorType(a, shape), number])
            else:
                assert dtypes.result_type([TensorType(a, shape), number]) == expected
    assert compared == 4 * (144 - 4) + 10 * 12 - 2


class Drawer:
    """Valid arguments of a row: small shapes, every dtype that the row accepts."""

    def __init__(self, data: st.DataObject, row: Operator):
        self.data, self.row = data, row
        self.made: dict[str, Any] = {}
        self.dtype = data.draw(st.sampled_from(sorted(row.dtypes)), label="dtype")

    def pick(self, values: Any) -> Any:
        return self.data.draw(st.sampled_from(list(values)))

    def integer(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def shape(self, arg: Arg) -> tuple[int, ...]:
        rank = self.integer(arg.min_rank, min(arg.max_rank, max(3, arg.min_rank)))
        least = max(1 if arg.nonempty else 0, arg.min_length)
        return tuple(self.integer(least, least + 3) for _ in range(rank))

    def first(self) -> torch.Tensor:
        value = next(v for v in self.made.values() if isinstance(v, (torch.Tensor, list)))
        return value[0] if isinstance(value, list) else value

    def tensor(self, shape: Any, dtype: str | None = None) -> torch.Tensor:
        return torch.ones(tuple(shape), dtype=dtype_of(dtype or self.dtype))

    def broadcastable(self, arg: Arg) -> torch.Tensor:
        earlier = [v.shape for v in self.made.values() if isinstance(v, torch.Tensor)]
        shape = torch.broadcast_shapes(*earlier) if earlier else self.shape(arg)
        kept = [n if self.data.draw(st.booleans()) else 1 for n in shape]
        kept = kept[self.integer(0, len(kept)) :]
        other = self.pick(sorted(self.row.dtypes)) if not self._one_dtype() else self.dtype
        return self.tensor(kept, "bool" if arg.kind == "mask" else other)

    def _one_dtype(self) -> bool:
        return self.row.dtype_rule in ("same", "same_floating", "first", "floating", "shift")

    def draw(self, arg: Arg) -> Any:
        return getattr(self, f"_{arg.kind}")(arg)

    def _tensor(self, arg: Arg) -> Any:
        match arg.relation:
            case "free":
                return self.tensor(self.shape(arg))
            case "broadcast":
                return self.broadcastable(arg)
            case "same":
                return torch.ones_like(self.first())
            case "matmul":
                return self._factor(arg)
            case "channels":
                return self.tensor((self.first().shape[1],))
            case "normalized":
                return self.tensor(self.made["normalized_shape"])
            case "last":
                return self.tensor((self.integer(1, 3), self.first().shape[-1]))
            case "features":
                return self.tensor((self.made["weight"].shape[0],))
            case "attention":
                lead, depth = self.first().shape[:-2], self.first().shape[-1]
                key = self.made.get("key")
                length = self.integer(1, 3) if key is None else key.shape[-2]
                return self.tensor((*lead, length, depth))
            case "addmm":
                return self.tensor((1,) * self.integer(0, 2))
            case "kernel":
                channels, *lengths = self.first().shape[1:]
                return self.tensor((channels, channels, *(self.integer(1, n) for n in lengths)))
            case "selected":
                return self.tensor(self.made["index"].shape)
            case "rows":
                shape = list(self.first().shape)
                shape[self.made["dim"]] = len(self.made["index"])
                return self.tensor(shape)
        raise AssertionError(f"no way to draw the relation {arg.relation}")

    def _index(self, arg: Arg) -> Any:
        if arg.relation == "free":
            return torch.zeros(self.shape(arg), dtype=torch.int64)
        return torch.zeros_like(self.first(), dtype=torch.int64)

    def _indices(self, arg: Arg) -> Any:
        one = torch.zeros(2, dtype=torch.int64)
        places = [one if self.data.draw(st.booleans()) else None for _ in self.first().shape]
        return places if any(p is not None for p in places) else [one]

    def _factor(self, arg: Arg) -> torch.Tensor:
        left = [v for v in self.made.values() if isinstance(v, torch.Tensor)][-1]
        inner, rank = left.shape[-1], arg.max_rank
        if rank == 1:
            return self.tensor((inner,))
        batch = left.shape[:-2] if rank >= 3 and left.ndim >= 3 else ()
        return self.tensor((*batch, inner, self.integer(0, 3)))

    def _mask(self, arg: Arg) -> Any:
        if arg.relation == "attention":
            return None
        return self.broadcastable(arg) if self.made else self.tensor(self.shape(arg), "bool")

    def _operand(self, arg: Arg) -> Any:
        return self.broadcastable(arg) if self.data.draw(st.booleans()) else self._scalar(arg)

    def _tensors(self, arg: Arg) -> Any:
        shape = self.shape(arg)
        kinds = [self.pick(sorted(self.row.dtypes)) for _ in range(self.integer(1, 3))]
        return [self.tensor(shape, kind) for kind in kinds]

    def _scalar(self, arg: Arg) -> Any:
        if self.dtype == "bool":
            return True
        low, high = arg.values or (1, 3)
        whole = self.integer(round(low), round(high))
        return float(whole) if dtypes.is_float(self.dtype) and arg.promotes else whole

    def _int(self, arg: Arg) -> Any:
        length = self._length(arg)
        match arg.relation:
            case "count":
                return self.integer(1, max(length, 1)) if length else 0
            case "length":
                return self.integer(-length - 1, length + 1)
            case "position":
                return self.integer(-length, length - 1)
            case "divisor":
                return 1
            case "length_of_0" | "length_of_1":
                return self.first().shape[int(arg.relation[-1])]
            case "length_of_rest":
                return self.first()[0, 0].numel()
        return self.integer(*(arg.values or (0, 3)))

    def _length(self, arg: Arg) -> int:
        if not any(isinstance(v, torch.Tensor) for v in self.made.values()):
            return 0
        shape = self.first().shape
        dim = self.made.get("dim", self.made.get("dimension"))
        if dim is None and any(a.name == "dim" for a in self.row.args):
            dim = self.row.arg("dim").default
        return (shape[dim if isinstance(dim, int) else 0]) if shape else 1

    def _float(self, arg: Arg) -> Any:
        return arg.values[0] if arg.values else 1.5

    def _bool(self, arg: Arg) -> Any:
        return self.pick(arg.values or (False, True))

    def _choice(self, arg: Arg) -> Any:
        return self.pick(arg.values)

    def _dtype(self, arg: Arg) -> Any:
        if arg.values == ("same",):
            return dtype_of(self.dtype)
        return dtype_of(self.pick(arg.values or dtypes.ALL))

    def _dim(self, arg: Arg) -> Any:
        rank = max(self.first().ndim, 1)
        return self.integer(-rank, rank - 1)

    def _new_dim(self, arg: Arg) -> Any:
        rank = self.first().ndim + 1
        return self.integer(-rank, rank - 1)

    def _dims(self, arg: Arg) -> Any:
        places = self.data.draw(st.permutations(range(self.first().ndim)))
        if "shifts" in self.made:
            return list(places[: len(self.made["shifts"])])
        return list(places[: self.integer(0, len(places))])

    def _permutation(self, arg: Arg) -> Any:
        return list(self.data.draw(st.permutations(range(self.first().ndim))))

    def _sizes(self, arg: Arg) -> Any:
        return list(self.shape(Arg("size")))

    def _shape(self, arg: Arg) -> Any:
        shape = list(self.first().shape)
        if arg.name == "normalized_shape":
            return shape[self.integer(0, len(shape) - 1) :]
        if self.row.shape_rule == "expand":
            return [2] * self.integer(0, 1) + [3 if n == 1 else self.pick((-1, n)) for n in shape]
        return self.pick([shape[::-1], [self.first().numel()], [1, *shape]])

    def _ints(self, arg: Arg) -> Any:
        shape = self.first().shape
        low, high = arg.values or (0, 2)
        match arg.relation:
            case "spatial":
                return [self.integer(low, high) for _ in shape[2:]]
            case "padding":
                return [self.integer(low, high) for _ in range(2 * self.integer(1, len(shape)))]
            case "repeats":
                return [self.integer(low, high) for _ in range(len(shape) + self.integer(0, 1))]
            case "partition":
                length = shape[0]
                cut = self.integer(0, length)
                return [cut, length - cut]
            case "per_dim":
                return [low] * self.integer(1, max(len(shape), 1))
        raise AssertionError(f"no way to draw the relation {arg.relation}")


def call(row: Operator, made: dict[str, Any]) -> Any:
    function: Any = torch
    for part in row.call.split(".")[1:]:
        function = getattr(function, part)
    places = [a for a in row.args if not a.keyword and a.reached]
    while places and places[-1].name not in made:
        places.pop()
    named = {a.name: made[a.name] for a in row.args if a.keyword and a.name in made}
    return function(*(made.get(a.name, a.default) for a in places), **named)


ROWS = [
    *(pytest.param(row, id=row.name) for row in OPERATORS),
    *(pytest.param(row, id=f"{row.name} on complex numbers") for row in ON_COMPLEX),
]


@pytest.mark.parametrize("row", ROWS)
def test_a_rows_rules_give_what_eager_gives(row: Operator) -> None:
    compared = 0

    @EXAMPLES
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal compared
        drawer = Drawer(data, row)
        for arg in row.args:
            if arg.reached and not (arg.optional and data.draw(st.booleans())):
                drawer.made[arg.name] = drawer.draw(arg)
        try:
            result = call(row, drawer.made)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            rejected = str(error)
            # what eager rejects for its values has no bearing on the rules
            assert not rejected.startswith("Expected all tensors to be on"), rejected
            return
        results = result if isinstance(result, (tuple, list)) else (result,)
        expected = tuple(TensorType(name_of(r.dtype), tuple(r.shape)) for r in results)
        assert row.infer(typed(drawer.made)) == expected, typed(drawer.made)
        compared += 1

    check()
    assert compared >= 3, "eager rejected nearly everything that was drawn"
