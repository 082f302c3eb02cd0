"""Each guard kind: its row, its text as plans run it, its plain check, and its explanation."""

from __future__ import annotations

import collections
import contextvars
import copy
import inspect
import itertools
import math
import string
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.guards.classes import build_of
from refcompiler.guards.iterators import Ahead, Feeder, advance, count_on, fed, nested, shape
from refcompiler.guards.kinds import (
    KINDS,
    METADATA,
    Ambient,
    Guard,
    TensorMeta,
    metadata,
    same_constant,
    separate,
    storage_pattern,
)
from refcompiler.guards.sources import FORMS, Source, Sources
from refcompiler.interpreter.continued import continued, finish, suspension
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.generators import activation_of
from refcompiler.interpreter.machine import Machine
from refcompiler.plan.entry import Entry
from refcompiler.plan.writer import Writer
from refcompiler.runtime.failing import read
from specs.guards import GUARDS

PLACE = ("program.py", 7)


def test_every_row_has_an_implementation_and_the_other_way_round() -> None:
    assert set(KINDS) == set(GUARDS.names())
    assert len(GUARDS) >= 20


@pytest.mark.parametrize("name", GUARDS.names())
def test_rows_are_complete(name: str) -> None:
    row = GUARDS[name]
    fields = {
        field for _, field, _, _ in string.Formatter().parse(row.explain) if field is not None
    }
    assert fields <= {"source", "expected", "found"}
    assert row.expected and row.check and row.violate


def compiled(guard: Guard, parameters: list[str]) -> Callable[..., bool]:
    """The guard as plans run it: whether it holds for these arguments."""
    writer = Writer()
    missed = object()
    writer.namespace["__MISS"] = missed
    entry = Entry([guard], []).lines(writer.name, writer.constant)
    lines = ["try:", *["    " + line for line in entry], "    pass"]
    lines += ["except Exception:", "    return __MISS"]
    function = writer.function(parameters, lines, "test")
    return lambda *args: function(*args) is not missed


def checked(guard: Guard, arguments: dict[str, Any]) -> bool:
    """The guard by its plain meaning, where what raises does not hold."""
    try:
        value = None if guard.source is None else read(guard.source, arguments)
        wanted = guard.wanted(lambda source: read(source, arguments))
        return bool(KINDS[guard.kind].check(value, wanted))
    except Exception:
        return False


def argument(name: str = "x") -> Source:
    return Sources().make("arg", None, name)


def agree(kind: str, expected: Any, values: list[Any], capture: Any = None) -> int:
    """Text and check say the same of each value; how often they say yes."""
    guard = Guard(kind, argument(), expected, PLACE)
    fast = compiled(guard, ["x"])
    held = 0
    for value in values:
        found = fast(value)
        assert found is checked(guard, {"x": value}), (kind, expected, value)
        held += found
        if not found:
            text = guard.explain(value)
            assert "x" in text and "program.py:7" in text, text
    return held


# ---- EQUALS ------------------------------------------------------------------------------------


class Text(str):
    pass


class Number(int):
    pass


class Placed:
    def __set__(self, instance: object, value: object) -> None:
        raise NotImplementedError


CONSTANTS: list[Any] = [
    *[0, 1, -1, 2, 256, 257, 2**70, -(2**70), True, False],
    *[0.0, -0.0, 1.0, 1.5, math.nan, -math.nan, math.inf, -math.inf, 1e-320],
    *[0j, -0j, 1 + 0j, complex(-0.0, 0.0), complex(0.0, -0.0), complex(math.nan, 0)],
    *["", "a", "b", "a" * 300, Text("a"), Number(1), b"", b"a", bytearray(b"a")],
    *[None, ..., NotImplemented],
    *[torch.float32, torch.float64, torch.strided, torch.sparse_coo, torch.contiguous_format],
    *[torch.channels_last, torch.device("cpu"), torch.device("meta"), torch.device("cuda", 0)],
    *[torch.device("cuda"), torch.Size([1, 2]), torch.Size([]), (1, 2), [1, 2], ()],
    *[range(3), range(0, 3, 1), range(0, 4, 2), range(0, 3, 2), range(0), range(1, 1)],
    *[{1, 2}, {2, 1}, {1.0, 2}, {True, 2}, frozenset({1, 2}), set(), {0, 8}, {8, 0}, {"a"}],
    *[{Text("a")}, {-0.0}, {0.0}, {(1, 2)}, {(1, 2.0)}],
]
SETS = (set, frozenset)


def is_constant(value: Any) -> bool:
    return type(value) in CONSTANT_TYPES or type(value) in SETS


@pytest.mark.parametrize("i", range(len(CONSTANTS)))
def test_equals_on_chosen_values(i: int) -> None:
    want = CONSTANTS[i]
    if not is_constant(want):
        pytest.skip("is not guarded by equality")
    again = copy.deepcopy(want)
    assert agree("EQUALS", want, [want, again, *CONSTANTS]) >= 2
    told_apart = [value for value in CONSTANTS if same_constant(value, want)]
    for value in told_apart:
        assert type(value) is type(want) and repr(value) == repr(want)


_scalars = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.booleans(),
    st.floats(),
    st.sampled_from([0.0, -0.0, math.nan, 1.0]),
    st.complex_numbers(),
    st.text(max_size=3),
    st.sampled_from("ab").map(Text),
    st.binary(max_size=3),
    st.none(),
    st.sampled_from([torch.float32, torch.int64, torch.strided, torch.device("cpu")]),
    st.lists(st.integers(0, 3), max_size=3).map(torch.Size),
    st.builds(range, st.integers(-2, 2), st.integers(-2, 4), st.sampled_from([-1, 1, 2])),
)
_sets = st.lists(
    st.one_of(st.integers(0, 20), st.booleans(), st.floats(0, 2), st.text(max_size=2)), max_size=4
)
_constants = st.one_of(_scalars, _sets.map(set), _sets.map(frozenset))
_quick = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_quick
@given(_constants, st.lists(_constants, max_size=4))
def test_equals_on_drawn_values(want: Any, values: list[Any]) -> None:
    if is_constant(want):
        held = agree("EQUALS", want, [want, copy.deepcopy(want), *values])
        assert held >= 1 + (type(want) not in SETS)  # a copied set may have another order


# ---- containers --------------------------------------------------------------------------------

DICTS: list[Any] = [
    {},
    {"a": 1},
    {"b": 1},
    {"a": 1, "b": 2},
    {"b": 2, "a": 1},
    {Text("a"): 1},
    {1: 1},
    {True: 1},
    {1.0: 1},
    {0.0: 1},
    {-0.0: 1},
    {None: 1},
    {math.nan: 1},
    {(1, 2): 1},
    {(True, 2): 1},
    {b"a": 1},
    collections.OrderedDict(a=1),
    [],
    None,
    5,
]


@pytest.mark.parametrize("i", [i for i, v in enumerate(DICTS) if isinstance(v, dict)])
def test_keys(i: int) -> None:
    want = tuple(DICTS[i])
    guard = Guard("KEYS", argument(), want, PLACE)
    fast = compiled(guard, ["x"])
    held = 0
    for value in DICTS:
        if not isinstance(value, dict):
            continue  # TYPE comes before KEYS
        same = [repr(k) + str(type(k)) for k in value] == [repr(k) + str(type(k)) for k in want]
        assert fast(value) is same is checked(guard, {"x": value}), (want, value)
        held += same
    assert held >= 1


@_quick
@given(
    st.dictionaries(_scalars.filter(lambda v: v == v), st.integers(), max_size=4),
    st.dictionaries(_scalars.filter(lambda v: v == v), st.integers(), max_size=4),
    st.randoms(use_true_random=False),
)
def test_keys_on_drawn_dicts(a: dict, b: dict, random: Any) -> None:
    shuffled = list(a.items())
    random.shuffle(shuffled)
    assert agree("KEYS", tuple(a), [a, dict(a), b, dict(shuffled)]) >= 2


@pytest.mark.parametrize("kind", ["HAS", "ABSENT", "LACKS"])
@pytest.mark.parametrize("key", ["a", 1, None, (1, 2), b"a"])
def test_one_key(kind: str, key: Any) -> None:
    dicts = [value for value in DICTS if isinstance(value, dict)]
    held = agree(kind, key, dicts)
    assert 0 < held < len(dicts)
    assert held == sum((key in value) is (kind == "HAS") for value in dicts)


def test_length_and_truth() -> None:
    values = [[], [1], [1, 2], (), (1,), {}, {1: 1}, set(), {1}, collections.deque([1]), "", 5]
    assert agree("LENGTH", 1, values) == 5
    assert agree("TRUTH", True, values) == 7
    assert agree("TRUTH", False, values) == 5
    odd = torch.ones(2)
    assert agree("TRUTH", True, [odd]) == agree("LENGTH", 1, [object()]) == 0


def test_names_that_a_class_lacks() -> None:
    for names in ({"a"}, {"a", "b"}, set("abcdefghij")):

        class Owner:
            other = 1

            def last(self) -> None: ...

        namespace = Owner.__dict__
        want = (len(namespace), names)
        guard = Guard("WITHOUT", Sources().constant(namespace, "Owner"), want, PLACE)
        fast = compiled(guard, ["x"])

        def both(guard: Guard = guard, fast: Callable = fast) -> bool:
            found = fast(None)
            assert found is checked(guard, {"x": None})
            return found

        assert both()
        Owner.unrelated = 1
        assert both()
        Owner.a = 1
        assert not both()
        del Owner.a, Owner.unrelated
        assert both()
        del Owner.other
        Owner.a = 1  # as many names as at the start
        assert not both()
        assert "Owner" in guard.explain(namespace) and "'a'" in guard.explain(namespace)


# ---- identity, classes, functions --------------------------------------------------------------


def test_identity_and_class() -> None:
    for want in CONSTANTS:
        agree("TYPE", type(want), CONSTANTS)
    objects = [object(), object(), [], [], len, math, int]
    for want in objects:
        assert agree("ID", want, objects) == 1
    assert agree("NONE", None, [None, 0, False, "", torch.ones(1)]) == 1
    assert agree("NOT_NONE", None, [None, 0, False, "", torch.ones(1)]) == 4
    assert agree("PRESENT", None, [None, 0]) == 2
    for known in (None, int):
        assert agree("PLAIN", known, [1, "a", [], int, property(), len, Number(1), Placed()]) == 6


def test_empty_cells() -> None:
    assert agree("EMPTY", None, [types.CellType(), types.CellType(1), types.CellType(None)]) == 1


def test_answers() -> None:
    answers = [1, True, 1.0, math.nan, -0.0, "a", None, range(3)]
    compared = 0
    for want in answers:
        for answer in answers:
            guard = Guard("STATE", None, ((lambda value=answer: value), (), want), PLACE)
            holds = answer is want
            assert compiled(guard, [])() is holds is checked(guard, {})
            compared += 1
    assert compared == 64


def _made(k: int, **more: Any) -> type:
    class Made:
        def m(self) -> int:
            return k

    for name, value in more.items():
        setattr(Made, name, value)
    return Made


def _two(self: Any) -> int:
    return 2


class _Slotted:
    __slots__ = ("slot",)


def test_classes_are_told_by_how_they_are_built() -> None:
    build = build_of(_made(1, __len__=_two))
    values: list[Any] = [_made(k, __len__=_two) for k in (1, 2)]
    values += [_made(1, __len__=_two, other=3), _made(1, __len__=_two, m=lambda self: 1)]
    others = [_made(1), _made(1, __len__=lambda self: 2), _made(1, __len__=2), type, 5]
    others += [_made(1, __len__=_two, _more=3), type("Made", (_made(1),), {"__len__": _two})]
    others.append(_made(1, __len__=_two, slot=_Slotted.__dict__["slot"]))
    assert agree("CLASS", build, values + others) == len(values)


def test_code() -> None:
    def make(k: int) -> types.FunctionType:
        return lambda x: x * k

    one, two = make(1), make(2)
    moved = types.FunctionType(one.__code__, {}, "moved", None, one.__closure__)
    other = lambda x: x  # noqa: E731
    values = [one, two, moved, other, len, 5]
    assert agree("CODE", (one.__code__, one.__globals__), values) == 2
    assert agree("CODE", (one.__code__, None), values) == 3


# ---- tensors -----------------------------------------------------------------------------------


def tensors() -> dict[str, torch.Tensor]:
    base = torch.arange(6.0)
    complex_ = torch.arange(6.0).reshape(2, 3) * (1 + 2j)
    found = {
        "plain": base.reshape(2, 3),
        "fresh": torch.ones(2, 3),
        "double": torch.ones(2, 3).double(),
        "half": torch.ones(2, 3).half(),
        "int": torch.ones(2, 3).int(),
        "negative int": torch._neg_view(torch.ones(2, 3).int()),
        "bool": torch.ones(2, 3).bool(),
        "flat": base,
        "wide": torch.ones(3, 2),
        "transposed": torch.ones(3, 2).t(),
        "strided": torch.arange(12.0).reshape(2, 6)[:, ::2],
        "grad": torch.ones(2, 3).requires_grad_(),
        "parameter": torch.nn.Parameter(torch.ones(2, 3)),
        "frozen": torch.nn.Parameter(torch.ones(2, 3), requires_grad=False),
        "meta": torch.ones(2, 3, device="meta"),
        "complex": complex_,
        "conjugate": complex_.conj(),
        "imaginary": complex_.conj().imag,
        "negative": torch._neg_view(torch.ones(2, 3)),
        "sparse": torch.eye(3).to_sparse(),
        "subclass": torch.ones(2, 3).as_subclass(type("Sub", (torch.Tensor,), {})),
    }
    return found


TENSORS = tensors()
STRIDED = [name for name, tensor in TENSORS.items() if tensor.layout is torch.strided]


@pytest.mark.parametrize("name", STRIDED)
def test_tensor(name: str) -> None:
    want = TENSORS[name]
    assert agree("TENSOR", TensorMeta.of(want), [*TENSORS.values(), None, 5, "a"]) == (
        2 if name in ("plain", "fresh") else 1
    )
    assert agree("TENSOR", TensorMeta.of(want), [want, want.detach().clone()]) >= 1


@_quick
@given(
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.int64, torch.complex64, torch.bool]),
    st.booleans(),
    st.booleans(),
)
def test_tensor_on_drawn_metadata(
    shape: list[int], dtype: torch.dtype, swap: bool, grad: bool
) -> None:
    made = torch.zeros(shape, dtype=dtype)
    if swap and made.dim() > 1:
        made = made.transpose(0, 1)
    if grad and dtype.is_floating_point:
        made.requires_grad_()
    assert agree("TENSOR", TensorMeta.of(made), [made, *TENSORS.values()]) >= 1


def test_metadata() -> None:
    base = torch.arange(6.0)
    leaf = torch.ones(3).requires_grad_()
    with torch.inference_mode():
        inference = torch.ones(3) + 0
    values = [base, base[3:], leaf, leaf * 1, inference, torch.ones(3)]
    assert metadata(base[3:], "storage_offset") == 3
    compared = 0
    for name in sorted(METADATA):
        for value in values:
            expected = (name, metadata(value, name))
            same = sum(metadata(other, name) == expected[1] for other in values)
            assert agree("METADATA", expected, values) == same
            compared += 1
    assert compared == len(METADATA) * len(values) >= 40


def test_storage() -> None:
    base = torch.arange(6.0)
    a, b, c = base[:3], base[3:], torch.ones(3)
    assert storage_pattern(a, b, c, a) == (0, 0, 2, 0)
    sources = Sources()
    x, y = sources.make("arg", None, "x"), sources.make("arg", None, "y")
    for pair, pattern in (((a, c), (0, 1)), ((a, b), (0, 0)), ((a, a), (0, 0))):
        guard = Guard("STORAGE", None, ((x, y), pattern), PLACE)
        fast = compiled(guard, ["x", "y"])
        for other in ((a, c), (a, b), (a, a), (c, c), (c, base)):
            same = storage_pattern(*other) == pattern
            assert fast(*other) is same is checked(guard, dict(zip("xy", other, strict=True)))
        assert fast(*pair)
        assert "x, y" in guard.explain(None)


def test_separate() -> None:
    base, other = numpy.arange(6.0), torch.ones(3)
    a, b, c = (torch.from_numpy(part) for part in (base[:3], base[3:], base[2:4]))
    sources = Sources()
    x, y = sources.make("arg", None, "x"), sources.make("arg", None, "y")
    guard = Guard("SEPARATE", None, (x, y), PLACE)
    fast = compiled(guard, ["x", "y"])
    for pair, apart in (((a, b), True), ((a, c), False), ((c, b), False), ((other, c), True)):
        assert fast(*pair) is apart is checked(guard, dict(zip("xy", pair, strict=True)))
    assert separate(other[:2], other[1:]), "the guard of storages tells those"


# ---- two sources -------------------------------------------------------------------------------


def test_same_distinct_unique() -> None:
    sources = Sources()
    x, y, z = (sources.make("arg", None, name) for name in "xyz")
    a, b, c = torch.ones(1), torch.ones(1), torch.ones(1)
    same = Guard("SAME", x, y, PLACE)
    distinct = Guard("DISTINCT", x, y, PLACE)
    unique = Guard("UNIQUE", None, (x, y, z), PLACE)
    compared = 0
    for values in ((a, a, a), (a, b, c), (a, a, b), (a, b, a), (b, a, a)):
        arguments = dict(zip("xyz", values, strict=True))
        for guard, holds in (
            (same, values[0] is values[1]),
            (distinct, values[0] is not values[1]),
            (unique, len(set(map(id, values))) == 3),
        ):
            assert compiled(guard, list("xyz"))(*values) is holds is checked(guard, arguments)
            compared += 1
    assert compared == 15
    assert (
        "y" in same.explain(a) and "y" in distinct.explain(a) and "x, y, z" in unique.explain(None)
    )


# ---- ambient state -----------------------------------------------------------------------------


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class DefaultDtype:
    def __enter__(self) -> None:
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *error: object) -> None:
        torch.set_default_dtype(torch.float32)


class Deterministic:
    def __enter__(self) -> None:
        torch.use_deterministic_algorithms(True)

    def __exit__(self, *error: object) -> None:
        torch.use_deterministic_algorithms(False)


STATES: dict[str, Callable[[], Any]] = {
    "plain": lambda: torch.enable_grad(),
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", torch.float16),
    "no cache": lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
    "default dtype": DefaultDtype,
    "deterministic": Deterministic,
    "meta": lambda: torch.device("meta"),
    "cpu": lambda: torch.device("cpu"),
    "mode": Mode,
    "dispatch": FakeTensorMode,
}


@pytest.mark.parametrize("name", STATES)
def test_ambient(name: str) -> None:
    with STATES[name]():
        want = Ambient.now()
    guard = Guard("AMBIENT", None, want, ("", 0))
    fast = compiled(guard, [])
    held = []
    for other, state in STATES.items():
        with state():
            found = fast()
            assert found is checked(guard, {})
            if found:
                held.append(other)
            else:
                assert "ambient state" in guard.explain(None)
    assert held == [name]


def test_ambient_in_a_function_transformation() -> None:
    guard = Guard("AMBIENT", None, Ambient.now(), ("", 0))
    fast = compiled(guard, [])
    seen: list[bool] = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        seen.extend([fast(), checked(guard, {}), Ambient.now().captures])
        return x.sin()

    torch.func.grad(inner)(torch.tensor(1.0))
    torch.func.vmap(inner)(torch.ones(2))
    assert seen == [False] * 6
    assert fast() and Ambient.now().captures


def test_setting() -> None:
    reader = torch.get_num_threads
    guard = Guard("STATE", None, (reader, (), reader()), PLACE)
    fast = compiled(guard, [])
    assert fast() and checked(guard, {})
    old = torch.get_num_threads()
    try:
        torch.set_num_threads(old + 1)
        assert not fast() and not checked(guard, {})
        assert "get_num_threads" in guard.explain(None)
    finally:
        torch.set_num_threads(old)


# ---- iterators ---------------------------------------------------------------------------------


def moved(iterator: Any, steps: int) -> Any:
    for _ in range(steps):
        next(iterator)
    return iterator


#: Iterators of every kind that can be read ahead of, each made anew.
ITERATORS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([1, 2, 3]),
    "reversed list": lambda: reversed([1, 2, 3]),
    "tuple": lambda: iter((1, 2, 3)),
    "range": lambda: iter(range(4)),
    "text": lambda: iter("abc"),
    "dict": lambda: iter({1: 2, 3: 4}),
    "items": lambda: iter({1: 2, 3: 4}.items()),
    "set": lambda: iter({1, 2, 3}),
    "deque": lambda: iter(collections.deque([1, 2, 3])),
    "count": lambda: itertools.count(3, 2),
    "repeat": lambda: itertools.repeat(1, 4),
    "endless": lambda: itertools.repeat(1),
    "cycle": lambda: itertools.cycle([1, 2, 3]),
    "zip": lambda: zip([1, 2, 3], "abc", strict=False),
    "strict": lambda: zip([1, 2, 3], "abc", strict=True),
    "pairs": lambda: (lambda it: zip(it, it, strict=False))(iter(range(6))),
    "enumerate": lambda: enumerate("abcd", 5),
    "chain": lambda: itertools.chain([1, 2], itertools.count(7)),
    "from_iterable": lambda: itertools.chain.from_iterable([[1], (2, 3)]),
    "islice": lambda: itertools.islice(itertools.count(), 1, 9, 2),
    "product": lambda: itertools.product([1, 2], "ab"),
    "zip_longest": lambda: itertools.zip_longest([1, 2, 3], [1]),
    "nested": lambda: enumerate(zip(itertools.islice([1, 2, 3], 3), {1: 2, 2: 3}, strict=False)),
}


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("name", ITERATORS)
def test_reading_ahead_of_an_iterator(name: str, steps: int) -> None:
    make = ITERATORS[name]
    expected = list(itertools.islice(moved(make(), steps), 5))
    iterator = moved(make(), steps)
    assert nested(iterator, {})
    ahead = Ahead(iterator)
    ended = len(expected) < 5
    assert [ahead[k] for k in range(len(expected))] == expected
    guard = Guard("ENDS", Sources().make("ahead", argument()), len(expected), PLACE)
    assert compiled(guard, ["x"])(iterator) is ended is checked(guard, {"x": iterator})
    advance(iterator, 1, False)  # nothing of the above has moved it
    assert list(itertools.islice(iterator, 4)) == expected[1:]
    other = moved(make(), steps)
    advance(other, len(expected), ended)
    assert not ended or next(other, None) is None


def test_ends() -> None:
    for count in range(4):
        guard = Guard("ENDS", Sources().make("ahead", argument()), count, PLACE)
        for size in range(4):
            found = compiled(guard, ["x"])(iter(range(size)))
            assert found is (size == count) is checked(guard, {"x": iter(range(size))})
            assert found or "x" in guard.explain(Ahead(iter(range(size))))


def test_shapes_of_iterators() -> None:
    makes = [make for name, make in ITERATORS.items() if name != "strict"]  # as any zip
    values = [make() for make in makes] + [map(abs, [1]), map(abs, iter(())), filter(None, [1])]
    values += [itertools.compress([1], [1]), itertools.compress([1], {1: 1})]
    values.append(zip(iter(range(1)), iter(range(1)), strict=False))  # two, not one twice
    for value in values:
        held = agree("SHAPE", shape(value), values)
        assert held == sum(shape(value) == shape(other) for other in values) >= 1
    assert shape(values[-1]) != shape(ITERATORS["pairs"]())
    assert len({repr(shape(value)) for value in values}) > 20


def test_iterators_apart() -> None:
    xs, ys = [1, 2], [3, 4]
    one, two = iter(xs), iter(ys)
    s = Sources()
    names = [s.make("arg", None, name) for name in "abc"]
    guard = Guard("APART", None, (tuple(names[:2]), (names[2],)), PLACE)
    fast = compiled(guard, ["a", "b", "c"])
    for a, b, c, apart in (
        (one, two, [5], True),
        (one, one, [5], False),
        (zip(one, two, strict=False), iter(xs), [5], True),
        (zip(one, two, strict=False), two, [5], False),
        (one, two, ys, False),
        (iter(ys), zip(one, iter("ab"), strict=False), xs, False),
        (iter({}), iter((d := {1: 2}).items()), d, False),
    ):
        assert fast(a, b, c) is apart is checked(guard, {"a": a, "b": b, "c": c})


def counting(n: int) -> Any:
    for i in range(n):
        yield i + 0
    yield "last"
    yield from "ab"


def suspended(steps: int, function: Callable = counting) -> Any:
    """An interpreted generator as capture rebuilds them, ``steps`` yields on."""
    machine = Machine()
    frame = machine.make_frame(function, (2,), {})
    return moved(continued(machine, frame, None, UNSET, ("g", "q.g")), steps)


def test_where_a_generator_is_suspended() -> None:
    def places() -> list[Any]:
        return [suspended(i) for i in range(4)] + [suspended(1), counting(2), iter(())]

    for i, want in enumerate((0, 1, 1, 3)):
        assert suspension(suspended(i)) == suspension(suspended(want)) is not None
        held = agree("SUSPENDED", suspension(suspended(want)), places())
        assert held == {0: 1, 1: 3, 3: 1}[want]
    assert suspension(counting(2)) is None


def test_a_generator_goes_on_elsewhere() -> None:
    for steps in range(5):
        old = suspended(steps)
        activation = activation_of(old.gi_frame)
        delegate = UNSET if not activation.delegates else old.gi_yieldfrom
        frame, activation.frame = activation.frame, None
        new = continued(Machine(), frame, None, delegate, ("new", "q.new"))
        assert list(new) == [0, 1, "last", "a", "b"][steps:]
        assert new.__name__ == "new" and inspect.getgeneratorstate(new) == "GEN_CLOSED"
        again = suspended(steps)
        finish(again)
        assert list(again) == [] and again.gi_frame is None


def test_numbering_goes_on_without_the_items() -> None:
    inner = iter("abcdef")
    numbered = enumerate(Feeder(inner), 2)
    assert fed(numbered) is inner and fed(enumerate("ab")) is None
    assert next(numbered) == (2, "a")
    assert [next(inner), next(inner)] == ["b", "c"]
    count_on(numbered, 2)
    assert list(numbered) == [(5, "d"), (6, "e"), (7, "f")]


# ---- sources and explanations ------------------------------------------------------------------


class Slotted:
    __slots__ = ("v", "__dict__", "__weakref__")


class Numbered:
    def __getitem__(self, number):
        return number


def test_sources_read_alike() -> None:
    """The text in plans and the reader of explanations reach the same object."""
    box = Slotted()
    box.v, box.w = object(), object()

    def function(a: Any = box, *, b: Any = (1, 2)) -> Any:
        return box

    class Mapping(dict):
        def __getitem__(self, key: Any) -> Any:
            raise AssertionError("the user's method must not run in a guard")

    table = Mapping(k=box)
    inner = iter([1])
    generator = suspended(2)
    context = contextvars.ContextVar("context", default=box)
    token = context.set([box])
    s = Sources()
    x = s.make("arg", None, "x")
    cases = [
        (x, box),
        (s.constant(box, "box"), None),
        (s.make("attr", x, "v"), box),
        (s.make("slot", x, "v", "v"), box),
        (s.make("dict", x), box),
        (s.make("hidden_dict", x), box),
        (s.make("class_of", x), box),
        (s.make("item", x, 0), [box]),
        (s.make("member", s.make("dict", x), "w", "w"), box),
        (s.make("dict_item", x, "k"), table),
        (s.make("item", s.make("keys", x), 1), {1: 1, (2, 3): 2}),
        (s.make("item", s.make("values", x), 1), {1: 1, (2, 3): box}),
        (s.make("referent", x), weakref.ref(box)),
        (s.make("handled", None), None),
        (s.make("closure", x, 0), function),
        (s.make("cell", s.make("closure", x, 0)), function),
        (s.make("default", x, -1), function),
        (s.make("kwdefault", x, "b"), function),
        (s.make("item", s.make("ahead", x), 1), iter([1, box])),
        (s.make("part", x, 1), zip([1], iter([2]))),
        (s.make("fed", x), enumerate(Feeder(inner))),
        (s.make("start", x), enumerate([1], 7)),
        (s.make("place", x), iter(Numbered())),
        (s.make("number", x), torch.tensor([7])),
        (s.make("context", x), context),
        (s.make("context_default", x), context),
        (s.make("in_context", x, context, "c"), contextvars.copy_context()),
        (s.make("set_here", x), token),
        (s.make("mode_around", x), box),
        (s.make("activation", x), generator),
        (s.make("local", s.make("activation", x), 0, "n"), generator),
        (s.make("stacked", s.make("activation", x), 0), generator),
    ]
    function.__kwdefaults__["b"] = box
    made_anew = {"ahead", "array", "plain", "keys", "values", "filled", "space", "scalar"}
    made_anew |= {"made_of", "contents"}
    made_anew |= {"proxied", "viewed"}  # of which test_found_by_cpython and _libraries have some
    made_anew |= {"cached"}  # of which tests/cpu/capture/test_made_caches.py has programs
    assert {source.kind for source, _ in cases} | made_anew == set(FORMS)
    for source, value in cases:
        found = read(source, {"x": value})
        assert compiled(Guard("ID", source, found, PLACE), ["x"])(value), source
        assert not compiled(Guard("ID", source, object(), PLACE), ["x"])(value), source
        assert str(source)


def test_explanations_name_everything() -> None:
    module = Sources()
    x = module.make("arg", None, "model")
    source = module.make("member", module.make("dict", x), "eps", "eps")
    text = Guard("EQUALS", source, 1e-5, ("layers.py", 12)).explain(0.5)
    assert text == "model.eps: expected 1e-05, found 0.5 (guarded at layers.py:12)"


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no text for you")

    def __len__(self) -> int:
        raise RuntimeError("no length for you")


@pytest.mark.parametrize("name", GUARDS.names())
def test_explanations_survive_any_value(name: str) -> None:
    expected = {
        "WITHOUT": ({}, {"a"}),
        "CODE": ((lambda: 0).__code__, None),
        "CLASS": build_of(_made(1)),
        "TENSOR": TensorMeta.of(torch.ones(1)),
        "METADATA": ("is_leaf", True),
        "STATE": (len, ((),), 0),
        "UNIQUE": (argument("x"), argument("y")),
        "STORAGE": ((argument("x"), argument("y")), (0, 1)),
        "SEPARATE": (argument("x"), argument("y")),
        "SUSPENDED": (0, 0, 3),
        "APART": ((argument("x"),), (argument("y"),)),
        "AMBIENT": Ambient.now(),
    }.get(name, 1)
    guard = Guard(name, argument("thing"), expected, PLACE)
    for value in (Rude(), None, 5, torch.ones(2), [Rude()], "x" * 10_000):
        text = guard.explain(value)
        assert "program.py:7" in text and len(text) < 2_000
