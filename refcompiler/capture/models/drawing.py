"""Numbers from Python's ``random``: drawn before the graph, in order, by the program's generator.

What is drawn is an input of the graph of which only its range is known. Where the graph raises, the
generators go back to where they were, and what the program had drawn by then is drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
_MOST = 2**63  # a graph's numbers are below it


class Draw(NamedTuple):
    """``name``: of the variable; ``method`` of the class, called with the generator."""

    step: int
    name: str
    method: Any
    generator: Source
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def draw(m: Any, name: str, args: Sequence, kwargs: Mapping) -> Any:
    """``name`` of the generator that is the first of ``args``."""
    generator, *rest = map(m.force, args)
    named = {key: m.force(value) for key, value in kwargs.items()}
    source = m.source_of(generator)
    if type(generator) is not random.Random or source is None or m.recorder.scope.outer is not None:
        raise Break("io", f"random.Random.{name}")
    if any(type(value) not in (int, float, type(None)) for value in (*rest, *named.values())):
        raise Break("io", f"random.Random.{name} of what is not known yet")
    method = getattr(random.Random, name)
    kind = type(method(random.Random(0), *rest, **named))  # it raises what the program's would
    range_ = Range(-_MOST, _MOST - 1)
    if kind is int:
        range_ = _range(name, rest, named)
        if range_.low < -_MOST or range_.high >= _MOST:
            raise Break("io", f"random.Random.{name} of so many bits")
    elif kind is not float:
        raise Break("io", f"random.Random.{name}")
    variable = f"__d{len(m.draws)}"
    made = m.sizes.drawn(kind, m.sources.make("arg", None, variable, f"random.{name}()"), range_)
    m.draws.append(Draw(m.steps, variable, method, source, tuple(rest), named))
    m.acted = m.steps
    return made


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
