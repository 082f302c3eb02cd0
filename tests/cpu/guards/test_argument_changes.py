"""Soundness: arguments change, their values and their tensors."""

from __future__ import annotations

import collections
import enum
import functools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.cpu.guards.history import Compile, Program, attempt, check
from tests.cpu.guards.programs import Programs, numbers

PROGRAMS = Programs()
program = PROGRAMS.add


# ---- arguments: values -------------------------------------------------------------------------


def _values(*values: Any) -> Program:
    """One argument takes these values, one after the other and then all again."""

    def run(compile: Compile) -> Iterator[Any]:
        def show(x: torch.Tensor, value: Any) -> Any:
            return x + 1, type(value), value, repr(value)

        compiled = compile(show)
        for value in (*values, *values):
            yield attempt(compiled, numbers(), value)

    return run


class _Text(str):
    pass


class _Colour(enum.Enum):
    RED = 1
    GREEN = 2


class _Flags(enum.IntFlag):
    A = 1
    B = 2


_Pair = collections.namedtuple("_Pair", "a b")

VALUES: dict[str, tuple] = {
    "zeros": (0, 0.0, -0.0, False, 0j, -0j, complex(-0.0, 0.0), None),
    "ones": (1, 1.0, True, 1 + 0j),
    "nans": (math.nan, 1.0, -math.nan, math.inf),
    "strings": ("a", _Text("a"), b"a", "b"),
    "long strings": ("a" * 300, "a" * 299 + "b"),
    "numbers": (2, 3, 2**70, 2.5, 1e300),
    "dtypes": (torch.float32, torch.float64, torch.int32),
    "devices": (torch.device("cpu"), torch.device("meta"), "cpu"),
    "layouts": (torch.strided, torch.sparse_coo, torch.contiguous_format),
    "sizes": (torch.Size([1, 2]), (1, 2), [1, 2], torch.Size([2, 1]), _Pair(1, 2)),
    "tuples": ((1, 2), (1, 2.0), (True, 2), (1, 2, 3), (), (1, (2,)), (1, [2])),
    "lists": ([1, 2], [1, True], [2, 1], [], [[1]], [None]),
    "ranges": (range(3), range(0, 3, 1), range(0, 3, 2), range(0, 4, 2), range(True), range(1)),
    "slices": (slice(0, 2), slice(0, 2, 1), slice(None), slice(0, True)),
    "sets": ({1, 2}, {1.0, 2}, {True, 2}, frozenset({1, 2}), set(), {1}),
    "sets with collisions": ({0, 8}, {8, 0}, {0, 8, 16}),
    "dicts": ({"a": 1}, {"a": True}, {"a": 1.0}, {"b": 1}, {}, {"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "dicts by number": ({1: 1}, {True: 1}, {1.0: 1}, {None: 1}, {(1,): 1}, {(True,): 1}),
    "dicts by text": ({"a": 1}, {_Text("a"): 1}),
    "dict classes": (
        {"a": 1},
        collections.OrderedDict(a=1),
        collections.defaultdict(int, a=1),
        collections.defaultdict(list, a=1),
        collections.Counter("a"),
    ),
    "deques": (collections.deque([1]), collections.deque([1], 1), collections.deque([1], 2)),
    "enums": (_Colour.RED, _Colour.GREEN, _Flags.A, _Flags.B, _Flags.A | _Flags.B, 1),
    "functions": (len, abs, torch.add, torch.nn.functional.relu),
    "classes": (int, float, _Text, torch.Tensor),
    "exceptions": (ValueError("a"), ValueError("b"), KeyError("a")),
    "partials": (functools.partial(int, "1"), functools.partial(int, "2")),
    "mixed": (None, 0, "0", (), [], {}, numbers(), range(0)),
}


@pytest.mark.parametrize("name", VALUES)
def test_argument_value(name: str) -> None:
    for first in range(0, len(VALUES[name]), 3):  # few enough to stay below the recompile limit
        values = VALUES[name][first : first + 4]
        if len(values) > 1:
            check(_values(*values))


def test_numpy_scalars_and_arrays() -> None:
    numpy = pytest.importorskip("numpy")

    def run(compile: Compile) -> Iterator[Any]:
        compiled = compile(lambda x, n: (x * n, n))
        for value in (numpy.float64(2), numpy.float64(3), numpy.int64(2), numpy.float32(2), 2.0):
            yield attempt(compiled, numbers(), value)
        array = numpy.array([1.0, 2.0, 3.0])
        yield attempt(compiled, numbers(), array)
        array[0] = 5
        yield attempt(compiled, numbers(), array)

    check(run)


# ---- arguments: tensors ------------------------------------------------------------------------

TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": numbers,
    "double": lambda: numbers().double(),
    "int": lambda: numbers().int(),
    "bool": lambda: numbers().bool(),
    "bfloat16": lambda: numbers().bfloat16(),
    "complex": lambda: numbers() * (1 + 2j),
    "conjugate": lambda: (numbers() * (1 + 2j)).conj(),
    "imaginary part of a conjugate": lambda: (numbers() * (1 + 2j)).conj().imag,
    "negative bit": lambda: torch._neg_view(numbers()),
    "negative bit of ints": lambda: torch._neg_view(numbers().int()),
    "other shape": lambda: torch.ones(3, 3),
    "other rank": lambda: torch.ones(3),
    "scalar": lambda: torch.tensor(2.0),
    "empty": lambda: torch.ones(0, 3),
    "transposed": lambda: torch.ones(3, 2).t() + torch.tensor(0.0),
    "strided": lambda: torch.arange(12.0).reshape(2, 6)[:, ::2],
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "offset": lambda: torch.arange(7.0)[1:].reshape(2, 3),
    "requires grad": lambda: numbers().requires_grad_(),
    "not a leaf": lambda: numbers().requires_grad_() * 1,
    "parameter": lambda: torch.nn.Parameter(numbers()),
    "frozen parameter": lambda: torch.nn.Parameter(numbers(), requires_grad=False),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "sparse": lambda: numbers().to_sparse(),
    "inference": lambda: _inference(),
    "subclass": lambda: numbers().as_subclass(_Subclass),
    "with an attribute": lambda: _with_attribute(),
}


class _Subclass(torch.Tensor):
    pass


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return numbers() + 0


def _with_attribute() -> torch.Tensor:
    made = numbers()
    made.tag = 5
    return made


def _describe(x: torch.Tensor) -> Any:
    y = x * 2 + 1
    return (
        y,
        x.shape,
        x.stride(),
        x.dtype,
        x.device,
        x.requires_grad,
        x.is_leaf,
        x.storage_offset(),
        x.is_inference(),
        x.is_conj(),
        x.is_neg(),
        x._is_view(),
        x.grad_fn is None,
        isinstance(x, torch.nn.Parameter),
        type(x),
        hasattr(x, "tag"),
        x.is_contiguous(),
        x.output_nr,
    )


def _calculate(x: torch.Tensor) -> Any:
    return x * 2 + 1, x.sum(), x.reshape(-1)


_ALIKE = ("offset", "inference", "with an attribute", "frozen parameter")


@pytest.mark.parametrize("function", [_describe, _calculate], ids=["describe", "calculate"])
@pytest.mark.parametrize("name", [name for name in TENSORS if name != "plain"])
def test_tensor_argument(name: str, function: Callable) -> None:
    def run(compile: Compile) -> Iterator[Any]:
        compiled = compile(function)
        for _ in range(2):
            yield attempt(compiled, TENSORS["plain"]())
            yield attempt(compiled, TENSORS[name]())

    check(run, changes=function is _describe or name not in _ALIKE)


@program
def version_of_a_tensor(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: (x + 1, x._version))
    x = numbers()
    yield f(x)
    x.add_(1)
    yield f(x)


@program
def view_of_an_argument_tells_its_offset(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: (x + 1, x[1].storage_offset()))
    yield f(numbers())
    yield f(torch.arange(10.0)[4:].reshape(2, 3))


@program
def gradient_of_a_leaf(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * 2 if x.grad is None else x * 3 + x.grad)
    x = numbers().requires_grad_()
    yield f(x)
    x.grad = torch.ones(2, 3)
    yield f(x)
    x.grad = torch.ones(2, 3) * 2
    yield f(x)
    x.grad = None
    yield f(x)


@program
def none_or_tensor(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, mask=None: x if mask is None else x * mask)
    yield f(numbers())
    yield f(numbers(), numbers())
    yield f(numbers(), None)
    yield f(numbers(), mask=numbers() + 1)


@program
def optional_by_truth(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, y: x + 1 if y else x)
    for y in ([], [1], (), 0, 1, "", "a", None, {}, {1: 2}):
        yield f(numbers(), y)
    for y in (torch.tensor(0.0), torch.tensor(1.0), torch.ones(2)):
        yield attempt(f, numbers(), y)


@program
def keywords_present_and_absent(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, *args, scale=1, **rest: (x * scale + len(args), sorted(rest), rest))
    yield f(numbers())
    yield f(numbers(), scale=2)
    yield f(numbers(), 1, 2)
    yield f(numbers(), other=3)
    yield f(numbers(), other=4)
    yield f(numbers(), another=4)
    yield attempt(f)


@program
def same_tensor_twice(compile: Compile) -> Iterator[Any]:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        a.add_(1)
        return a * b, a is b

    g = compile(f)
    a, b = numbers(), numbers()
    yield g(a, b), a, b
    yield g(a, a), a
    yield g(b, a), a, b


@program
def overlapping_views(compile: Compile) -> Iterator[Any]:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        a.add_(1)
        return b * 2

    g = compile(f)
    base = torch.arange(6.0)
    yield g(base[:3], torch.ones(3)), base
    yield g(base[:3], base[3:]), base
    yield g(base[:3], base[1:4]), base
    yield g(base[:3], base[:3]), base


@program
def same_list_twice(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, a: list, b: list) -> Any:
        a.append(len(b))
        b.append(len(a))
        return x + len(a)

    g = compile(f)
    a, b = [1], [2]
    yield g(numbers(), a, b), a, b
    yield g(numbers(), a, a), a
    yield g(numbers(), b, a), a, b


@program
def same_lists_of_one_length(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, a: list, b: list) -> Any:
        a.append(7)
        return x + len(b), b

    g = compile(f)
    yield g(numbers(), [1], [1])
    both = [1]
    yield g(numbers(), both, both)


@program
def same_dict_twice(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, a: dict, b: dict) -> Any:
        a["k"] = 5
        return x + b["k"]

    g = compile(f)
    yield g(numbers(), {"k": 1}, {"k": 1})
    both = {"k": 1}
    yield g(numbers(), both, both)


@program
def same_object_twice(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, a: Any, b: Any) -> Any:
        a.k = 5
        return x + b.k, a is b

    g = compile(f)
    yield g(numbers(), _Box(1), _Box(1))
    both = _Box(1)
    yield g(numbers(), both, both)


@program
def list_inside_and_outside(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, a: list, box: Any) -> Any:
        a.append(1)
        return x + len(box.k)

    g = compile(f)
    yield g(numbers(), [1], _Box([1]))
    both = [1]
    yield g(numbers(), both, _Box(both))


@program
def tensors_in_a_set(compile: Compile) -> Iterator[Any]:
    g = compile(lambda a, b: (a + 1, len({a, b}), {a: 1}.get(b, 2)))
    a, b = numbers(), numbers()
    yield g(a, b)
    yield g(a, a)


class _Box:
    def __init__(self, k: Any) -> None:
        self.k = k


@pytest.mark.parametrize("name", PROGRAMS)
def test_change_is_noticed(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(PROGRAMS[name])
