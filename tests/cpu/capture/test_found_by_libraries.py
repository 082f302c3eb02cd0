"""What libraries that compile their models do, and no program of ours did before."""

from __future__ import annotations

import collections
import functools
import types
import typing
import warnings
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def three():
    return [(torch.randn(3, 4),) for _ in range(3)]


@cases(backends=("eager",), breaks=1, recompiles=1)
def sizes_that_go_together():
    """``torch.distributions`` asks for them of a function in C, which takes sizes only."""

    def f(x, y):
        size = torch._C._infer_size(x.shape, y.shape if y is not None else (1, 4))
        return x.expand(size) + 1, size

    t = torch.randn
    return f, [(t(3, 1), t(2, 1, 4)), (t(3, 1), t(2, 1, 4)), (t(3, 1), None)]


# ---- constructors that are no plain functions -------------------------------------------------


class _Given:
    def __call__(self, cls, n):
        made = object.__new__(cls)
        made.given = n
        return made


class _Bound:
    def __init__(self, function):
        self.function = function

    def __get__(self, owner, kind=None):
        return functools.partial(self.function, owner)


class Cached:
    @functools.lru_cache
    def __new__(cls, n):
        return super().__new__(cls)

    def __init__(self, n):
        self.n = n


class ByInstance:
    __new__: Any = _Given()

    def __init__(self, n):
        self.n = n


class Twice:
    @classmethod
    def __new__(cls, other, n):
        made = object.__new__(other)
        made.n = (cls is other, n)
        return made


class Partial:
    def fill(self, factor, n):
        self.n = n * factor

    __init__: Any = functools.partialmethod(fill, 3)


class Described:
    @_Bound
    def __init__(self, n):
        self.n = n


class Child:
    def __new__(cls, n):
        return object.__new__(Grandchild if n > 5 else cls)

    def __init__(self, n):
        self.n = n


class Grandchild(Child):
    def __init__(self, n):
        self.n = -n


@pytest.mark.parametrize("cls", [Cached, ByInstance, Twice, Partial, Described, Child])
@pytest.mark.parametrize("breaks", [0, 1])
def test_constructors_are_found_as_a_call_of_a_class_finds_them(cls, breaks):
    def f(x, n):
        first = cls(n)
        if breaks:
            torch._dynamo.graph_break()
        second = cls(n + 4)
        return vars(first), vars(second), type(second).__name__, first is cls(n), x + 1

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager")
    for n in (1, 2, 3, 2):
        x = torch.ones(2)
        assert str(compiled(x, n)) == str(f(x, n))
    assert refcompiler.counters()["fallbacks"] == 0
    if cls is not Cached:  # whose objects are written to before others are made
        assert refcompiler.counters()["breaks"] == breaks * (
            refcompiler.counters()["captures"] // 2
        )


def test_an_initialiser_that_returns_something():
    class Wrong:
        def __init__(self, n):
            return n

    class Worse:
        __init__: Any = functools.partialmethod(lambda self, k, n: [k, n], 2)

    for cls in (Wrong, Worse):
        with pytest.raises(TypeError) as native:
            cls(1)
        with pytest.raises(TypeError) as compiled:
            refcompiler.compile(lambda x, cls=cls: cls(1), backend="eager")(torch.ones(2))
        assert str(compiled.value) == str(native.value)


def test_names_of_keyword_arguments_are_the_programs():
    """C functions that capture calls were given some of its own names instead."""

    def f(x):
        told: list[Any] = []
        for name in ("machine", "function", "frame", "m"):
            told += [dict({}, **{name: 1}), ("{" + name + "}").format(**{name: 2})]
            try:
                round(1.5, **{name: 3})
            except TypeError as error:
                told.append(str(error))
        return told, x + 1

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager")
    for n in (1, 2):
        assert str(compiled(torch.ones(n))) == str(f(torch.ones(n)))
    assert refcompiler.counters()["breaks"] == refcompiler.counters()["fallbacks"] == 0


# ---- what lru_cache keeps ---------------------------------------------------------------------


class Settings:
    def __init__(self, n):
        self.n, self.log = n, []


class Owner:
    @classmethod
    @functools.lru_cache
    def numbers(cls, n):
        return [n]


@functools.lru_cache
def settings(n):
    return Settings(n)


@functools.lru_cache
def adder(n):
    return lambda x: x + n


@functools.lru_cache
def table(n):
    return torch.arange(n)


def _logs(x, n):
    found = settings(n)
    found.log.append(n)
    return found is settings(n), list(found.log), x + found.n


def _adds(x, n):
    return adder(n) is adder(n), adder(n)(x)


def _of_classes(x, n):
    return Owner.numbers(n) is Owner().numbers(n), x


def _tables(x, n):
    return table(n) is table(n), x + table(n).sum()


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("f", "kept"),
    [
        (_logs, settings),
        (_adds, adder),
        (_of_classes, vars(Owner)["numbers"].__func__),
        (_tables, None),
    ],
)
def test_objects_of_a_cache_are_those_of_the_cache(f, kept, warm):
    """They were made anew at each call: what a program kept in one was gone at the next."""
    seen = []
    for run in (f, refcompiler.compile(f, backend="eager")):
        for cache in (settings, adder, table, vars(Owner)["numbers"].__func__):
            cache.cache_clear()
        if warm and kept is not None and kept is not vars(Owner)["numbers"].__func__:
            kept(1)
        results = [str(run(torch.ones(1), n)) for n in (1, 2, 2, 1, 3, 1)]
        seen.append((results, None if kept is None else str(kept.cache_info())))
    assert seen[0] == seen[1]


WEIGHT = torch.nn.Parameter(torch.ones(3))


@functools.lru_cache
def tables(n):
    found = torch.zeros(n)
    found[0] = 2.0
    return {"weighted": torch.ones(n) * WEIGHT, "filled": [found, n]}


@functools.lru_cache
def drawn(n):
    return torch.rand(n)


def _written(x):
    tables(3)["filled"][0].add_(1)
    return x + tables(3)["filled"][0], tables(3) is tables(3)


def _without_gradients(x):
    with torch.no_grad():
        weighted = tables(3)["weighted"]
    return weighted.requires_grad, weighted * x


def _drawn(x):
    y = torch.rand(3)
    return x + drawn(3) + y + torch.rand(3)


def _many(x):
    for n in range(12):
        x = x + table(n + 1).sum()
    return x


def _in_a_region(x):
    return checkpoint(lambda y: y * table(3) + tables(3)["filled"][0], x, use_reentrant=False)


@pytest.mark.parametrize(
    ("f", "graphs", "counts"),
    [(_written, 1, True), (_without_gradients, 1, True), (_many, 1, True), (_drawn, 2, True),
     (_in_a_region, 1, False)],
)  # fmt: skip
def test_tensors_of_a_cache_are_those_of_the_cache(f, graphs, counts):
    """They were computed at each call, and in a region what the cache kept was a fake."""
    seen, compared = [], 0
    compiled = refcompiler.compile(f, backend="eager")
    for run in (f, compiled):
        for cache in (table, tables, drawn):
            cache.cache_clear()
        torch.manual_seed(0)
        results = [str(run(torch.ones(3) + k)) for k in range(3)]
        for cache in (table, tables, drawn):
            cache.cache_clear()
        results += [str(run(torch.ones(3) + k)) for k in range(3)]
        told = [str(cache.cache_info()) for cache in (table, tables, drawn)]
        seen.append([*results, *(told if counts else ())])
    for expected, found in zip(*seen, strict=True):
        assert found == expected
        compared += 1
    assert compared >= 6
    drawn.cache_clear()
    assert refcompiler.explain(f)(torch.ones(3)).graph_count == graphs


# ---- symbols that C code reads ----------------------------------------------------------------

TEXTS: dict[str, Any] = {
    "map(str)": lambda n, d, items: list(map(str, items)),
    "map(repr) of items": lambda n, d, items: list(map(repr, d.items())),
    "sorted(map(str))": lambda n, d, items: sorted(map(str, [n + 9, n])),
    "sorted(key=str)": lambda n, d, items: sorted([n + 8, n + 9], key=str),
    "max(map(str))": lambda n, d, items: max(map(str, [n, n + 1])),
    "join(map)": lambda n, d, items: ", ".join(map(str, items)),
    "map(format)": lambda n, d, items: list(map("{}".format, items)),
    "zip(map)": lambda n, d, items: list(zip(map(str, items), items, strict=True)),
    "Counter(map)": lambda n, d, items: collections.Counter(map(str, items)),
    "format_map": lambda n, d, items: "{a}".format_map(d),
    "list.__repr__": lambda n, d, items: list.__repr__(items),
    "ascii": lambda n, d, items: ascii(items),
    "a bound __str__": lambda n, d, items: items.__str__(),
    "a bound __repr__": lambda n, d, items: d.__repr__(),
    "map(isinstance)": lambda n, d, items: list(map(isinstance, [n], [int])),
    "map(id)": lambda n, d, items: list(map(id, [n])) == [id(n)],
    "map(hash)": lambda n, d, items: list(map(hash, [n])),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("of", ["number", "size", "float"])
def test_text_of_a_symbol_that_c_code_makes_is_the_number(name, of):
    """A string with a symbol's name in it was a wrong answer that nobody was told of."""
    told = TEXTS[name]

    def f(x, n):
        n = x.shape[0] if of == "size" else n * 0.5 if of == "float" else n
        return told(n, {"a": n}, [n, (n,)]), x + 1

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager")
    for n in (3, 4, 6, 4):
        x = torch.ones(n)
        assert str(compiled(x, n)) == str(f(x, n))
    assert refcompiler.counters()["fallbacks"] == 0


# ---- types, views, state ----------------------------------------------------------------------


@cases(graphs=1)
def subscripts_of_typing():
    def f(x):
        made = torch.jit.annotate(typing.List[torch.Tensor], [])
        made.append(x + 1)
        kinds = typing.Optional[int], typing.Dict[str, typing.List[int]]
        return made, kinds, typing.Tuple[torch.Tensor, ...], typing.get_args(kinds[1])

    return f, three()


@cases(graphs=2, recompiles=1)
def subscripts_of_what_is_given():
    def f(x, part):
        return x + 1, typing.Optional[part], typing.Dict[str, part]

    kinds = typing.List[int], typing.Tuple[int, int], typing.List[int]
    return f, [(torch.ones(2), kind) for kind in kinds]


@cases(graphs=2, breaks=1)
def views_of_dicts_behind_a_break():
    def f(x):
        plain, ordered = {"a": x}, collections.OrderedDict(b=x + 1, c=x)
        views = plain.values(), ordered.keys(), ordered.values(), ordered.items()
        torch._dynamo.graph_break()
        plain["d"] = ordered["e"] = x * 2
        return [list(view) for view in views], len(views[0]), "e" in views[1], plain, ordered

    return f, three()


@cases(graphs=2, breaks=1)
def an_initialiser_that_ends_at_object_behind_a_break():
    class Base:
        def __init__(self):
            super().__init__()

    class Made(Base):
        def __init__(self, x):
            self.first = x + 1
            torch._dynamo.graph_break()
            super().__init__()
            self.second = self.first * 2

    def f(x):
        return vars(Made(x))

    return f, three()


@cases(graphs=1)
def whether_transformations_are_active():
    def f(x):
        def inside(row):
            return row + int(torch._C._are_functorch_transforms_active())

        return torch.vmap(inside)(x) + int(torch._C._are_functorch_transforms_active())

    return f, three()


@pytest.mark.parametrize("case", cases, ids=str)
def test_libraries(case: Case):
    assert check(case)


def test_views_of_dicts_from_outside_follow_their_dicts():
    numbers = {"a": 1, "b": 2}
    keys, values, items = numbers.keys(), numbers.values(), collections.OrderedDict(q=5).items()

    def f(x):
        numbers["c"] = len(values)
        found = x * sum(values), list(keys), "c" in keys, list(items), keys, keys & {"a"}
        del numbers["c"]
        return found

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager")
    x = torch.ones(2)
    for _ in range(3):
        found = compiled(x)
        assert str(found) == str(f(x)) and found[4] is keys
        numbers["a"] += 4
    assert refcompiler.counters()["breaks"] == 0 and refcompiler.counters()["captures"] == 2


# ---- warnings under filters of the frame's ----------------------------------------------------

OTHER = types.ModuleType("other")
exec("import warnings\ndef speak(text):\n    warnings.warn(text)\n", vars(OTHER))


@pytest.mark.parametrize("action", ["once", "module", "default", "always", "ignore", "error"])
@pytest.mark.parametrize("place", range(4))
def test_registries_know_what_was_shown_under_filters_of_the_frame(action, place):
    def speak(text):
        warnings.warn(text)

    def f(x):
        raised = []
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            try:
                speak("a")
                if place == 1:
                    torch._dynamo.graph_break()
                OTHER.speak("a")
                speak("a")
                if place == 2:
                    torch._dynamo.graph_break()
                OTHER.speak("b")
                warnings.warn("b", DeprecationWarning)
                if place == 3:
                    warnings.simplefilter("always")
                speak("a")
            except UserWarning as error:
                raised.append(str(error))
        return x + 1, raised, [(str(w.message), w.category, w.lineno) for w in log]

    torch._dynamo.graph_break()  # imports what changes the filters, once
    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager")
    spaces = globals(), vars(OTHER)
    for _ in range(2):
        seen = []
        for run in (f, compiled):
            for space in spaces:
                space.pop("__warningregistry__", None)
            seen.append((str(run(torch.ones(1))), [_noted(space) for space in spaces]))
        assert seen[0] == seen[1]
    assert refcompiler.counters()["graphs"] > 0


def _noted(space: dict) -> list[str]:
    return sorted(map(str, space.get("__warningregistry__", ())))
