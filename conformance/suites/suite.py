"""A suite is a name and a function that gives families of cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hypothesis.strategies import SearchStrategy

from conformance.case import Case


@dataclass(frozen=True)
class Family:
    """Cases of one subject and variant: listed in ``cases``, or drawn from ``strategy``.

    A drawn family shrinks as hypothesis shrinks; a listed one is reduced step by step.
    """

    suite: str
    subject: str
    variant: str
    strategy: SearchStrategy[Case] | None = None
    cases: tuple[Case, ...] = field(default=())


@dataclass(frozen=True)
class Suite:
    """``families(device)`` yields what there is to run; ``doc`` is a line for people.

    ``default``: it is part of a run that names no suite.
    """

    name: str
    doc: str
    families: Callable[[str], Iterator[Family]]
    default: bool = True
