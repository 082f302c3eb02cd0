"""Each guard kind: its row, its text as plans run it, its plain check, and its explanation."""

from __future__ import annotations

import collections
import contextvars
import copy
import math
import string
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.guards.classes import build_of
from refcompiler.guards.iterators import Feeder
from refcompiler.guards.kinds import (
    KINDS,
    Ambient,
    Guard,
    TensorMeta,
    same_constant,
)
from refcompiler.guards.sources import FORMS, Sources
from refcompiler.runtime.failing import read
from specs.guards import GUARDS
from tests.cpu.guards.agreeing import PLACE, agree, argument, checked, compiled, quick, suspended


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


@quick
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


@quick
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
        (s.make("length", x), [1, 2, 3]),
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
    made_anew |= {"made_of", "contents", "parameter"}
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
