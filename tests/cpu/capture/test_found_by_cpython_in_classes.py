"""Programs about classes and places in C that CPython's own tests showed to run otherwise.

They run as those of ``test_found_by_cpython.py``.
"""

from __future__ import annotations

import collections
import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.cpu.capture.test_found_by_cpython import graph_break, runs_as_natively

PROGRAMS: list[Callable[[torch.Tensor], Any]] = []


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS.append(function)
    return function


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_as_native(function: Callable[[torch.Tensor], Any]) -> None:
    runs_as_natively(function)


# ---- classes -----------------------------------------------------------------------------------


@program
def names_that_type_keeps_elsewhere(x):
    class E:
        __bases__ = property(lambda self: (int,))
        __class__ = property(lambda self: dict)
        __name__ = property(lambda self: __class__.__qualname__)
        __mro__ = 3

    e = E()
    graph_break()
    return issubclass(e, int), isinstance(e, dict), e.__mro__, E.__name__, e.__name__[-1]


@program
def methods_in_c_of_a_class_made_here(x):
    class A:
        __slots__ = ("kept", "__own")

    class B(A):
        pass

    found = [A.mro() == [A, object], B.mro() == [B, A, object], A.kept is A.__dict__["kept"]]
    a, place = A(), A.kept
    graph_break()
    place.__set__(a, 3)
    own = A.__dict__["_A__own"]
    return found, a.kept, own.__name__, B.mro() == [B, A, object], A.__name__


@program
def registered_with_an_abstract_class(x):
    class A:
        pass

    class B(A):
        pass

    before = issubclass(B, collections.abc.Sized), isinstance(A(), collections.abc.Sized)
    collections.abc.Sized.register(A)
    return before, issubclass(B, collections.abc.Sized), isinstance(A(), collections.abc.Sized)


@program
def made_as_another_class(x):
    class C:
        def __new__(cls, value):
            return object.__new__(D) if value else object.__new__(cls)

    class D(C):
        def __init__(self, value):
            self.value = value

    return type(C(1)) is D, C(1).value, type(C(0)) is C


class Meta(type):
    def __setattr__(cls, name, value):
        super().__setattr__(name, value)


class Counted(metaclass=Meta):
    calls = 0


@program
def assigned_through_a_metaclass(x):
    old, Counted.calls = Counted.calls, 7
    found = Counted.calls
    Counted.calls = old
    return old, found, Counted.calls


class Noted(property):
    pass


@program
def properties_of_another_class(x):
    class P:
        @Noted
        def value(self):
            return self._value

        @value.setter
        def value(self, new):
            self._value = new + 1

    p = P()
    p.value = 1
    first = p.value
    graph_break()
    p.value = 5
    return first, p.value, vars(p)


@program
def functions_share_what_they_were_given(x):
    def f(a):
        pass

    def g(a):
        pass

    functools.update_wrapper(g, f)
    kept = staticmethod(f)
    kept.note = 3
    graph_break()
    found = g.__annotations__ is f.__annotations__, kept.note, kept.__wrapped__ is f
    del kept.note
    return found, hasattr(kept, "note")


# ---- places in C -------------------------------------------------------------------------------

ERROR = ValueError(1, 2)


def renamed():
    pass


@program
def places_in_c(x):
    point = collections.namedtuple("point", "x y")
    found = []
    p = type("P", (point,), {})(1, 2)
    graph_break()
    for act in (
        lambda: setattr(p, "x", 3),
        lambda: delattr(p, "x"),
        lambda: setattr(ERROR, "args", 3),
        lambda: setattr(renamed, "__name__", 3),
        lambda: setattr(renamed, "__closure__", ()),
        lambda: delattr(renamed, "__dict__"),
        lambda: setattr(type("A", (), {"p": property()}).p, "fget", 42),
    ):
        try:
            found.append(act())
        except (AttributeError, TypeError) as error:
            found.append(str(error))
    renamed.__name__ = "other"
    found.append(renamed.__name__)
    renamed.__name__ = "renamed"
    return found, p


@program
def parts_of_tracebacks(x):
    def inner():
        raise ValueError(1)

    try:
        inner()
    except ValueError as error:
        first, second = error.__traceback__, error.__traceback__.tb_next
        other = KeyError().with_traceback(second)
        graph_break()
        same = first is error.__traceback__, second is first.tb_next
        return same, other.__traceback__ is second, second.tb_frame.f_code.co_name


ORDERED = collections.OrderedDict(a=1)


@program
def attributes_of_an_ordered_dict(x):
    ORDERED.note = 10
    state = ORDERED.__reduce__()[2]
    found = state, vars(ORDERED), vars(copy.copy(ORDERED))
    del ORDERED.note
    own = collections.OrderedDict(b=2)
    dict.clear(own)
    return found, hasattr(ORDERED, "note"), "NULL" in repr(own)


@program
def modules_of_a_class_of_their_own(x):
    log = []

    class Module(types.ModuleType):
        def __getattribute__(self, name):
            log.append(("get", name))
            return super().__getattribute__(name)

        def __setattr__(self, name, value):
            log.append(("set", name))
            super().__setattr__(name, value)

    made = Module("made")
    made.value = 12
    return made.value, log
