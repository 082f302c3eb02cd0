"""Soundness: classes, objects and containers change."""

from __future__ import annotations

import collections
import enum
import functools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.cpu.guards.history import Compile, check
from tests.cpu.guards.programs import Programs, numbers

PROGRAMS = Programs()
program = PROGRAMS.add


class _Box:
    def __init__(self, k: Any) -> None:
        self.k = k


class _Colour(enum.Enum):
    RED = 1
    GREEN = 2


# ---- classes and objects ------------------------------------------------------------------------


@program
def class_attribute_chain(compile: Compile) -> Iterator[Any]:
    class A:
        k = 2

    class B(A):
        pass

    class C(B):
        pass

    box = C()
    f = compile(lambda x: x * box.k)
    yield f(numbers())
    A.k = 3
    yield f(numbers())
    B.k = 4
    yield f(numbers())
    C.k = 5
    yield f(numbers())
    box.k = 6
    yield f(numbers())
    del box.k, C.k
    yield f(numbers())


@program
def class_attribute_renamed(compile: Compile) -> Iterator[Any]:
    class A:
        def helper(self, x: torch.Tensor) -> Any:
            return x + 1

    class B(A):
        other = 0

        def unrelated(self) -> None: ...

    box = B()
    f = compile(lambda x: box.helper(x))
    yield f(numbers())
    del B.other
    B.helper = lambda self, x: x * 10  # as many names as before
    yield f(numbers())


@program
def bases_replaced(compile: Compile) -> Iterator[Any]:
    class A:
        def helper(self, x: torch.Tensor) -> Any:
            return x + 1

    class A2:
        def helper(self, x: torch.Tensor) -> Any:
            return x + 2

    class B(A):
        pass

    box = B()
    f = compile(lambda x: box.helper(x))
    yield f(numbers())
    B.__bases__ = (A2,)
    yield f(numbers())


@program
def class_read_directly(compile: Compile) -> Iterator[Any]:
    class A:
        k = 2

        @staticmethod
        def s(x: Any) -> Any:
            return x + 1

        @classmethod
        def c(cls, x: Any) -> Any:
            return x * cls.k

    f = compile(lambda x: A.s(A.c(x)) + A.k)
    yield f(numbers())
    A.k = 3
    yield f(numbers())
    A.s = staticmethod(lambda x: x - 1)
    yield f(numbers())
    A.c = classmethod(lambda cls, x: x * 10)
    yield f(numbers())


class _Kept:
    kept: Any = torch.sin


@program
def class_attribute_of_another_kind(compile: Compile) -> Iterator[Any]:
    """Functions in C, and what a descriptor makes of itself, though the program only returns it."""

    def had(x: Any, o: Any) -> Any:
        return o.kept if hasattr(o, "kept") else x

    functions = [torch.sin, torch.cos, staticmethod(torch.relu), _Kept]
    values = [1, 2, property(lambda s: 5), staticmethod(len), classmethod(len)]
    for given in (_Kept, _Kept()):
        call = compile(lambda x, o: o.kept(x) if o.kept is not _Kept else x)
        for _Kept.kept in functions:
            yield call(numbers(), given)
        for program in (lambda x, o: (x, o.kept), had):
            read = compile(program)
            for _Kept.kept in values:
                yield str(read(numbers(), given)).partition(" at ")[0]


@program
def class_name(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    box = A()
    f = compile(lambda x: x * len(type(box).__name__))
    yield f(numbers())
    A.__name__ = "Longer"
    yield f(numbers())


@program
def class_namespace(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    f = compile(lambda x: x * ("k" in A.__dict__) + 1)
    yield f(numbers())
    A.k = 3
    yield f(numbers())


@program
def descriptor_with_state(compile: Compile) -> Iterator[Any]:
    class Descriptor:
        def __init__(self) -> None:
            self.k = 2
            self.reads = 0

        def __get__(self, owner: Any, cls: type) -> Any:
            self.reads += 1
            return self.k * owner.v

        def __set__(self, owner: Any, value: Any) -> None:
            raise AttributeError("read only")

    class A:
        d = Descriptor()
        v = 3

    box = A()
    f = compile(lambda x: x * box.d)
    yield f(numbers()), A.__dict__["d"].reads
    yield f(numbers()), A.__dict__["d"].reads
    A.__dict__["d"].k = 5
    yield f(numbers()), A.__dict__["d"].reads
    Descriptor.__get__ = lambda self, owner, cls: 50
    yield f(numbers()), A.__dict__["d"].reads


@program
def getattr_added(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    box = A()
    f = compile(lambda x: x * getattr(box, "k", 2))
    yield f(numbers())
    A.__getattr__ = lambda self, name: 7
    yield f(numbers())
    A.__getattr__ = lambda self, name: 8
    yield f(numbers())
    A.__getattribute__ = lambda self, name: 9
    yield f(numbers())
    A.__getattribute__ = lambda self, name: 10
    yield f(numbers())


@program
def getattribute_runs_once_a_call(compile: Compile) -> Iterator[Any]:
    class A:
        __slots__ = ("k", "__dict__")
        reads: list[str] = []

        def __getattribute__(self, name: str) -> Any:
            A.reads.append(name)
            return object.__getattribute__(self, name)

    box = A()
    box.k, box.v = 2, 3
    f = compile(lambda x: x * box.k + box.v)
    yield f(numbers()), list(A.reads)
    yield f(numbers()), list(A.reads)
    box.k = 4
    yield f(numbers()), list(A.reads)


@program
def setattr_added(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    box = A()

    def run(x: torch.Tensor, k: int) -> torch.Tensor:
        box.k = k
        return x * k

    f = compile(run)
    yield f(numbers(), 2), box.k
    A.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value * 10)
    yield f(numbers(), 2), box.k
    A.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value * 20)
    yield f(numbers(), 2), box.k
    A.k = property(lambda self: 77, lambda self, value: None)
    yield f(numbers(), 2), box.k


@program
def special_methods_added(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    a, b = A(), A()
    f = compile(lambda x: x + 1 if a == b else x * 2)
    yield f(numbers())
    A.__eq__ = lambda self, other: True
    yield f(numbers())
    A.__eq__ = lambda self, other: False
    yield f(numbers())


@program
def truth_of_an_object(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    a = A()
    f = compile(lambda x: x + 1 if a else x * 2)
    yield f(numbers())
    A.__len__ = lambda self: 0
    yield f(numbers())
    A.__bool__ = lambda self: True
    yield f(numbers())


@program
def instance_checks(compile: Compile) -> Iterator[Any]:
    class Meta(type):
        answer = False

        def __instancecheck__(cls, instance: Any) -> bool:
            return cls.answer

    class A(metaclass=Meta):
        pass

    f = compile(lambda x, v: x + 1 if isinstance(v, A) else x * 2)
    yield f(numbers(), 1)
    Meta.answer = True
    yield f(numbers(), 1)


@program
def class_reassigned(compile: Compile) -> Iterator[Any]:
    class A:
        def k(self) -> int:
            return 2

    class B:
        def k(self) -> int:
            return 3

    box = A()
    f = compile(lambda x: x * box.k())
    yield f(numbers())
    box.__class__ = B
    yield f(numbers())


@program
def callable_object_changes(compile: Compile) -> Iterator[Any]:
    class A:
        k = 2

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    box = A()
    f = compile(box)
    yield f(numbers())
    box.k = 3
    yield f(numbers())
    A.__call__ = lambda self, x: x - 1
    yield f(numbers())


@program
def partial_changes(compile: Compile) -> Iterator[Any]:
    part = functools.partial(lambda x, k, j: x * k + j, j=1, k=2)
    f = compile(part)
    yield f(numbers())
    yield f(numbers(), k=5)
    part.keywords["k"] = 3
    yield f(numbers())


@program
def bound_method_of_an_object(compile: Compile) -> Iterator[Any]:
    class A:
        k = 2

        def m(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    box = A()
    f = compile(box.m)
    yield f(numbers())
    box.k = 3
    yield f(numbers())
    A.k = 4
    del box.k
    yield f(numbers())


@program
def enumeration_member(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, c: x + 1 if c is _Colour.RED else x * c.value)
    yield f(numbers(), _Colour.RED)
    yield f(numbers(), _Colour.GREEN)


@program
def weak_reference(compile: Compile) -> Iterator[Any]:
    import weakref

    first, second = _Box(2), _Box(3)
    holder = _Box(weakref.ref(first))
    f = compile(lambda x: x * holder.k().k)
    yield f(numbers())
    first.k = 4
    yield f(numbers())
    holder.k = weakref.ref(second)
    yield f(numbers())


@program
def names_of_an_object(compile: Compile) -> Iterator[Any]:
    box = _Box(1)
    f = compile(lambda x: x * len(dir(box)) + len(vars(box)))
    yield f(numbers())
    box.j = 2
    yield f(numbers())


@program
def buffers_of_c(compile: Compile) -> Iterator[Any]:
    import array

    data, raw = array.array("i", [1, 2]), bytearray(b"ab")
    f = compile(lambda x: x * sum(data) + len(raw) + list(data)[0] + bytes(raw)[0])
    yield f(numbers())
    data[0] = 5
    yield f(numbers())
    raw[0] = 3
    yield f(numbers())


@program
def object_in_a_default_dict(compile: Compile) -> Iterator[Any]:
    store: Any = collections.defaultdict(lambda: 2)
    f = compile(lambda x: x * store["k"])
    yield f(numbers()), dict(store)
    yield f(numbers()), dict(store)
    store["k"] = 5
    yield f(numbers()), dict(store)


# ---- containers ---------------------------------------------------------------------------------


@program
def container_contents(compile: Compile) -> Iterator[Any]:
    def run(x: torch.Tensor, values: Any) -> Any:
        for value in values:
            x = x * value
        return x

    f = compile(run)
    yield f(numbers(), [1, 2])
    yield f(numbers(), [1, 3])
    yield f(numbers(), [1, 2, 3])
    yield f(numbers(), (1, 2))
    yield f(numbers(), [torch.tensor(2.0)])
    yield f(numbers(), [True, 2])


@program
def container_by_key(compile: Compile) -> Iterator[Any]:
    def run(x: torch.Tensor, values: dict) -> Any:
        if "k" in values:
            x = x * values["k"]
        return x + values.get("j", 1)

    f = compile(run)
    yield f(numbers(), {})
    yield f(numbers(), {"k": 2})
    yield f(numbers(), {"k": 3})
    yield f(numbers(), {"k": 3, "j": 4})
    yield f(numbers(), {"j": 4, "k": 3.0})
    yield f(numbers(), collections.OrderedDict(k=3))


@program
def container_order(compile: Compile) -> Iterator[Any]:
    def run(x: torch.Tensor, values: dict) -> Any:
        for key, value in values.items():
            x = x * value + len(key)
        return x

    f = compile(run)
    yield f(numbers(), {"a": 1, "bb": 2})
    yield f(numbers(), {"bb": 2, "a": 1})
    yield f(numbers(), {"a": 1, "bb": 3})
    yield f(numbers(), {"a": 1, "ccc": 2})


@program
def order_of_a_set(compile: Compile) -> Iterator[Any]:
    def run(x: torch.Tensor, values: set) -> Any:
        for value in values:
            x = x * 2 + value
        return x

    f = compile(run)
    a, b = {8, 0}, {0, 8}
    for values in (a, b, {8, 16, 0}, {0, 16, 8}):
        yield f(numbers(), values)
    many = set(range(100))
    for i in range(100):
        if i not in (8, 0):
            many.discard(i)
    yield f(numbers(), many)
    many.add(16)
    yield f(numbers(), many)


@program
def environment(compile: Compile) -> Iterator[Any]:
    import os

    f = compile(lambda x: x * float(os.environ.get("REFCOMPILER_TEST_K", "2")))
    try:
        yield f(numbers())
        os.environ["REFCOMPILER_TEST_K"] = "3"
        yield f(numbers())
    finally:
        os.environ.pop("REFCOMPILER_TEST_K", None)
    yield f(numbers())


@pytest.mark.parametrize("name", PROGRAMS)
def test_change_is_noticed(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(PROGRAMS[name])
