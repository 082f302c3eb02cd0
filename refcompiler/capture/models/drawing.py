"""Numbers from Python's ``random``: drawn before the graph, in order, by the program's generator.

What is drawn is an input of the graph of which only its range is known: a number, or those that are
taken from known ones (``choice``, ``sample``, ``shuffle``). Seeds are set among them. Where the
graph raises, the generators go back to where they were, and what the program had drawn by then is
drawn again.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from refcompiler.capture.contents import contents
from refcompiler.capture.lookup import namespace_of
from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break
from refcompiler.guards.sources import Source
from refcompiler.shapes.ranges import Range

_FLOATS = """
uniform triangular gauss normalvariate lognormvariate expovariate vonmisesvariate gammavariate
betavariate paretovariate weibullvariate
"""
_INTEGERS = "randint randrange"
_IN_C = frozenset({"random", "getrandbits"})
_LISTS = frozenset({"choices", "sample", "shuffle"})
#: What the methods call of each other.
_METHODS = {
    name: random.Random.__dict__.get(name, getattr(random.Random, name))
    for name in ("random", "getrandbits", "_randbelow", "randrange", "uniform", "normalvariate")
    if hasattr(random.Random, name)
}
_MOST = 2**63  # a graph's numbers are below it
_UNKNOWN = {int: Range(-_MOST, _MOST - 1), float: Range(-_MOST, _MOST - 1)}


class Draw(NamedTuple):
    """``target``: one or several variables; ``method`` of the class, called with the generator."""

    step: int
    target: str
    method: Any
    generator: Source
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def draw(m: Any, name: str, args: Sequence, kwargs: Mapping) -> Any:
    """``name`` of the generator that is the first of ``args``."""
    source, rest, named = _given(m, name, args, kwargs)
    if any(type(value) not in (int, float, type(None)) for value in (*rest, *named.values())):
        raise Break("io", f"random.Random.{name} of what is not known yet")
    method = getattr(random.Random, name)
    kind = type(method(random.Random(0), *rest, **named))  # it raises what the program's would
    if kind not in _UNKNOWN:
        raise Break("io", f"random.Random.{name}")
    range_ = _range(name, rest, named) if kind is int else _UNKNOWN[kind]
    (made,) = _drawn(m, name, source, method, rest, named, [(kind, range_)])
    return made


def _given(
    m: Any, name: str, args: Sequence, kwargs: Mapping
) -> tuple[Source, list[Any], dict[str, Any]]:
    """Where the generator is from that is the first of ``args``; the other arguments."""
    generator, *rest = map(m.force, args)
    source = m.source_of(generator)
    if type(generator) is not random.Random or source is None or m.recorder.scope.outer is not None:
        raise Break("io", f"random.Random.{name}")
    _check_own(m, generator, source, name)
    return source, rest, {key: m.force(value) for key, value in kwargs.items()}


def _check_own(m: Any, generator: random.Random, source: Source, name: str) -> None:
    """That nobody has put another function into the place of what ``name`` calls."""
    parent, own = m.namespace(generator, source), namespace_of(generator) or {}
    m.lazy(parent, own)
    for method, known in _METHODS.items():
        place, found = m.find_guarded(random.Random, method)
        written = (id(generator), method) in m.overlay  # which is done after numbers are drawn
        if found is not known or method in own or written:
            raise Break("io", f"random.Random.{name}, with another {method}")
        m.from_class(place, found)
        m.guard("ABSENT", parent, method)


def _drawn(
    m: Any,
    name: str,
    source: Source,
    method: Any,
    args: Sequence,
    kwargs: Mapping,
    kinds: Sequence[tuple[type, Range]],
) -> list[Any]:
    """Symbols for what ``method`` draws: one number, or a list of one for each of ``kinds``."""
    made, variables = [], []
    for kind, range_ in kinds:
        if kind is int and (range_.low < -_MOST or range_.high >= _MOST):
            raise Break("io", f"random.Random.{name} of so many bits")
    for place, (kind, range_) in enumerate(kinds):
        variables.append(f"__d{len(m.draws)}" + (f"_{place}" if place else ""))
        where = m.sources.make("arg", None, variables[-1], f"random.{name}()")
        made.append(m.sizes.drawn(kind, where, range_))
    target = "".join([f"{variable}, " for variable in variables]) or "_"
    if name not in _LISTS:
        target = target.rstrip(", ")
    m.draws.append(Draw(m.steps, target, method, source, tuple(args), dict(kwargs)))
    m.acted = m.steps
    return made


def _numbers(m: Any, name: str, values: Any) -> tuple[type, Range, Any]:
    """Of what class known numbers are, all of them, and between which two they lie."""
    if type(values) is range and values:
        return int, Range(min(values), max(values)), values
    given = _frozen(m, values)
    kinds = set(map(type, given)) if type(given) is tuple else set()
    if kinds == {int}:
        return int, Range(min(given), max(given)), given
    if kinds == {float}:
        return float, _UNKNOWN[float], given
    raise Break("io", f"random.Random.{name} of what is no number")


def _frozen(m: Any, value: Any) -> Any:
    """A list as a tuple, with known items."""
    if type(value) in (list, tuple):
        return tuple([m.force(item) for item in value])
    return value


def _taken(name: str) -> Callable:
    """A model of what takes one or several of known numbers."""
    method = getattr(random.Random, name)
    order = tuple(inspect.signature(method).parameters)[1:]

    @model(method)
    def take(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        source, rest, named = _given(m, name, args, kwargs)
        if len(rest) > len(order) or not rest:
            raise Break("io", f"random.Random.{name}")
        known = dict(zip(order, rest, strict=False)) | named
        values = contents(m, known[order[0]])
        kind, range_, population = _numbers(m, name, values)
        for key, value in known.items():  # weights are lists
            known[key] = value = population if key == order[0] else _frozen(m, value)
            parts = value if type(value) is tuple else (value,)
            if any(type(part) not in (int, float, type(None), range) for part in parts):
                raise Break("io", f"random.Random.{name} of what is not known yet")
        if name == "shuffle":
            if type(values) is not list or m.is_foreign(values):
                raise Break("io", "random.Random.shuffle of an object from outside")
            count = len(population)
            function: Any = shuffled
        else:
            found = method(random.Random(0), **known)  # it raises what the program's would
            function, count = method, len(found) if name in _LISTS else 1
        made = _drawn(m, name, source, function, (), known, [(kind, range_)] * count)
        if name == "shuffle":
            values[:] = made
            return None
        return made if name in _LISTS else made[0]

    return take


def shuffled(generator: random.Random, x: Sequence) -> list:
    """The items in the order into which the generator brings a list of them."""
    items = list(x)
    random.Random.shuffle(generator, items)
    return items


@model(random.Random.seed)
def _seed(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    source, rest, named = _given(m, "seed", args, kwargs)
    if any(type(value) not in (int, float, str, bytes, type(None)) for value in rest) or named:
        raise Break("io", "random.Random.seed of what is not known yet")
    _drawn(m, "seed", source, random.Random.seed, rest, named, [])


class _Ends(random.Random):
    """A generator whose numbers below a limit are the first or the last of them."""

    def __init__(self, last: bool):
        super().__init__(0)
        self._last = last

    def _randbelow(self, n: int) -> int:
        return n - 1 if self._last else 0


def _range(name: str, args: Sequence, kwargs: Mapping) -> Range:
    if name == "getrandbits":
        return Range(0, 2 ** (args[0] if args else kwargs["k"]) - 1)
    ends = [getattr(_Ends(last), name)(*args, **kwargs) for last in (False, True)]
    return Range(min(ends), max(ends))


def draw_in_c(m: Any, generator: Any, name: str, args: Sequence, kwargs: Mapping) -> Any:
    """The same for the methods in C."""
    if name not in _IN_C:
        raise Break("io", f"random.Random.{name}")
    return draw(m, name, (generator, *args), kwargs)


def _modelled(name: str) -> None:
    @model(getattr(random.Random, name))
    def drawn(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        return draw(m, name, args, kwargs)


for _name in f"{_FLOATS} {_INTEGERS}".split():
    _modelled(_name)
for _name in ("choice", *sorted(_LISTS)):
    _taken(_name)
