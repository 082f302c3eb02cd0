"""Soundness: changes of arguments, functions, classes, globals, containers and ambient state."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import math
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.cpu.guards.history import Compile, Program, attempt, check

PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__.strip("_")] = function
    return function


def _x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


def _scope(text: str, **names: Any) -> dict[str, Any]:
    """The globals of a program of its own."""
    scope: dict[str, Any] = {"__name__": "program", "torch": torch, **names}
    exec(text, scope)
    return scope


# ---- arguments: values -------------------------------------------------------------------------


def _values(*values: Any) -> Program:
    """One argument takes these values, one after the other and then all again."""

    def run(compile: Compile) -> Iterator[Any]:
        def show(x: torch.Tensor, value: Any) -> Any:
            return x + 1, type(value), value, repr(value)

        compiled = compile(show)
        for value in (*values, *values):
            yield attempt(compiled, _x(), value)

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
    "mixed": (None, 0, "0", (), [], {}, _x(), range(0)),
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
            yield attempt(compiled, _x(), value)
        array = numpy.array([1.0, 2.0, 3.0])
        yield attempt(compiled, _x(), array)
        array[0] = 5
        yield attempt(compiled, _x(), array)

    check(run)


# ---- arguments: tensors ------------------------------------------------------------------------

TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": _x,
    "double": lambda: _x().double(),
    "int": lambda: _x().int(),
    "bool": lambda: _x().bool(),
    "bfloat16": lambda: _x().bfloat16(),
    "complex": lambda: _x() * (1 + 2j),
    "conjugate": lambda: (_x() * (1 + 2j)).conj(),
    "imaginary part of a conjugate": lambda: (_x() * (1 + 2j)).conj().imag,
    "negative bit": lambda: torch._neg_view(_x()),
    "negative bit of ints": lambda: torch._neg_view(_x().int()),
    "other shape": lambda: torch.ones(3, 3),
    "other rank": lambda: torch.ones(3),
    "scalar": lambda: torch.tensor(2.0),
    "empty": lambda: torch.ones(0, 3),
    "transposed": lambda: torch.ones(3, 2).t() + torch.tensor(0.0),
    "strided": lambda: torch.arange(12.0).reshape(2, 6)[:, ::2],
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "offset": lambda: torch.arange(7.0)[1:].reshape(2, 3),
    "requires grad": lambda: _x().requires_grad_(),
    "not a leaf": lambda: _x().requires_grad_() * 1,
    "parameter": lambda: torch.nn.Parameter(_x()),
    "frozen parameter": lambda: torch.nn.Parameter(_x(), requires_grad=False),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "sparse": lambda: _x().to_sparse(),
    "inference": lambda: _inference(),
    "subclass": lambda: _x().as_subclass(_Subclass),
    "with an attribute": lambda: _with_attribute(),
}


class _Subclass(torch.Tensor):
    pass


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return _x() + 0


def _with_attribute() -> torch.Tensor:
    made = _x()
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
    x = _x()
    yield f(x)
    x.add_(1)
    yield f(x)


@program
def view_of_an_argument_tells_its_offset(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: (x + 1, x[1].storage_offset()))
    yield f(_x())
    yield f(torch.arange(10.0)[4:].reshape(2, 3))


@program
def gradient_of_a_leaf(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * 2 if x.grad is None else x * 3 + x.grad)
    x = _x().requires_grad_()
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
    yield f(_x())
    yield f(_x(), _x())
    yield f(_x(), None)
    yield f(_x(), mask=_x() + 1)


@program
def optional_by_truth(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, y: x + 1 if y else x)
    for y in ([], [1], (), 0, 1, "", "a", None, {}, {1: 2}):
        yield f(_x(), y)
    for y in (torch.tensor(0.0), torch.tensor(1.0), torch.ones(2)):
        yield attempt(f, _x(), y)


@program
def keywords_present_and_absent(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, *args, scale=1, **rest: (x * scale + len(args), sorted(rest), rest))
    yield f(_x())
    yield f(_x(), scale=2)
    yield f(_x(), 1, 2)
    yield f(_x(), other=3)
    yield f(_x(), other=4)
    yield f(_x(), another=4)
    yield attempt(f)


@program
def same_tensor_twice(compile: Compile) -> Iterator[Any]:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        a.add_(1)
        return a * b, a is b

    g = compile(f)
    a, b = _x(), _x()
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
    yield g(_x(), a, b), a, b
    yield g(_x(), a, a), a
    yield g(_x(), b, a), a, b


@program
def same_lists_of_one_length(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, a: list, b: list) -> Any:
        a.append(7)
        return x + len(b), b

    g = compile(f)
    yield g(_x(), [1], [1])
    both = [1]
    yield g(_x(), both, both)


@program
def same_dict_twice(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, a: dict, b: dict) -> Any:
        a["k"] = 5
        return x + b["k"]

    g = compile(f)
    yield g(_x(), {"k": 1}, {"k": 1})
    both = {"k": 1}
    yield g(_x(), both, both)


@program
def same_object_twice(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, a: Any, b: Any) -> Any:
        a.k = 5
        return x + b.k, a is b

    g = compile(f)
    yield g(_x(), _Box(1), _Box(1))
    both = _Box(1)
    yield g(_x(), both, both)


@program
def list_inside_and_outside(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, a: list, box: Any) -> Any:
        a.append(1)
        return x + len(box.k)

    g = compile(f)
    yield g(_x(), [1], _Box([1]))
    both = [1]
    yield g(_x(), both, _Box(both))


@program
def tensors_in_a_set(compile: Compile) -> Iterator[Any]:
    g = compile(lambda a, b: (a + 1, len({a, b}), {a: 1}.get(b, 2)))
    a, b = _x(), _x()
    yield g(a, b)
    yield g(a, a)


class _Box:
    def __init__(self, k: Any) -> None:
        self.k = k


# ---- functions ---------------------------------------------------------------------------------


@program
def defaults_replaced(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, scale: Any = 2, shift: Any = 1) -> Any:
        return x * scale + shift

    g = compile(f)
    yield g(_x())
    yield g(_x(), 5)
    f.__defaults__ = (3, 4)
    yield g(_x())
    yield g(_x(), shift=9)
    f.__defaults__ = (7,)
    yield attempt(g, _x(), 2)
    f.__defaults__ = None
    yield g(_x(), 2, 3)


@program
def keyword_defaults_replaced(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, *, scale: Any = 2) -> Any:
        return x * scale

    g = compile(f)
    yield g(_x())
    f.__kwdefaults__["scale"] = 3
    yield g(_x())
    f.__kwdefaults__ = {"scale": 4}
    yield g(_x())
    yield g(_x(), scale=9)


@program
def defaults_of_a_helper_replaced(compile: Compile) -> Iterator[Any]:
    def helper(x: torch.Tensor, a: Any, b: Any = 2) -> Any:
        return x * a + b

    g = compile(lambda x: helper(x, 1) + helper(x, 2, 3))
    yield g(_x())
    helper.__defaults__ = (5,)
    yield g(_x())
    helper.__defaults__ = (2, 7)
    yield g(_x())


@program
def keyword_defaults_of_a_helper_replaced(compile: Compile) -> Iterator[Any]:
    def helper(x: torch.Tensor, *, b: Any = 2) -> Any:
        return x * b

    g = compile(lambda x: helper(x))
    yield g(_x())
    helper.__kwdefaults__ = {"b": 5}
    yield g(_x())


@program
def code_replaced(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor) -> Any:
        return x + 1

    g = compile(f)
    yield g(_x())
    f.__code__ = (lambda x: x * 10).__code__
    yield g(_x())
    yield g(_x())
    f.__code__ = (lambda x, y=3: x * 10 + y).__code__
    f.__defaults__ = (8,)
    yield g(_x())


@program
def code_of_a_closure_replaced(compile: Compile) -> Iterator[Any]:
    def helper(x: torch.Tensor) -> Any:
        return x + 1

    g = compile(lambda x: helper(x))
    yield g(_x())
    helper.__code__ = (lambda x: x * 10).__code__
    yield g(_x())


@program
def code_of_a_global_replaced(compile: Compile) -> Iterator[Any]:
    scope = _scope("def helper(x): return x + 1\ndef f(x): return helper(x)")
    g = compile(scope["f"])
    yield g(_x())
    scope["helper"].__code__ = (lambda x: x * 10).__code__
    yield g(_x())


@program
def one_code_two_globals(compile: Compile) -> Iterator[Any]:
    first = _scope("def f(x): return x * k", k=2)
    second = {"k": 5, "__name__": "program"}
    g = compile(first["f"])
    h = compile(types.FunctionType(first["f"].__code__, second))
    yield g(_x())
    yield h(_x())
    second["k"] = 7
    yield h(_x())
    yield g(_x())


@program
def closure_cell(compile: Compile) -> Iterator[Any]:
    k: Any = 2
    f = compile(lambda x: x * k)
    yield f(_x())
    k = 3
    yield f(_x())
    k = torch.tensor(2.5)
    yield f(_x())
    k = torch.tensor([2.5, 1.0, 2.0])
    yield f(_x())


@program
def closure_function_swapped(compile: Compile) -> Iterator[Any]:
    def make(k: Any) -> Callable:
        return lambda x: x * k

    inner = make(2)
    f = compile(lambda x: inner(x) + 1)
    yield f(_x())
    inner = make(3)
    yield f(_x())
    inner = torch.sin
    yield f(_x())


@program
def two_closures_of_one_code(compile: Compile) -> Iterator[Any]:
    def make(k: Any) -> Callable:
        return lambda x: x * k

    f, g = compile(make(2)), compile(make(3))
    yield f(_x())
    yield g(_x())
    yield f(_x())


@program
def captured_tensor_in_a_slot(compile: Compile) -> Iterator[Any]:
    class Holder:
        __slots__ = ("t",)

    holder = Holder()
    holder.t = torch.tensor(2.0)
    f = compile(lambda x: x * holder.t)
    yield f(_x())
    holder.t = torch.tensor(3.0)
    yield f(_x())
    holder.t = 4
    yield f(_x())
    del holder.t
    yield attempt(f, _x())


@program
def function_attribute(compile: Compile) -> Iterator[Any]:
    def helper() -> None: ...

    helper.k = 2
    f = compile(lambda x: x * helper.k)
    yield f(_x())
    helper.k = 3
    yield f(_x())
    del helper.k
    yield attempt(f, _x())


# ---- globals, builtins and modules --------------------------------------------------------------


@program
def global_rebound(compile: Compile) -> Iterator[Any]:
    scope = _scope("def f(x): return x * k", k=2)
    f = compile(scope["f"])
    yield f(_x())
    for value in (3, 2.0, True, torch.tensor(4.0), [1.0]):
        scope["k"] = value
        yield attempt(f, _x())
    del scope["k"]
    yield attempt(f, _x())


@program
def global_appears(compile: Compile) -> Iterator[Any]:
    scope = _scope(
        "def f(x):\n    try:\n        return x * k\n    except NameError:\n        return x"
    )
    f = compile(scope["f"])
    yield f(_x())
    scope["k"] = 3
    yield f(_x())
    del scope["k"]
    yield f(_x())


@program
def builtin_shadowed(compile: Compile) -> Iterator[Any]:
    scope = _scope("def f(x, n): return x * len(n)")
    f = compile(scope["f"])
    yield f(_x(), [1, 2])
    scope["len"] = lambda n: 10
    yield f(_x(), [1, 2])


@program
def builtin_replaced(compile: Compile) -> Iterator[Any]:
    builtins = dict(vars(__import__("builtins")))
    scope = _scope("def f(x, n): return x * len(n)", __builtins__=builtins)
    f = compile(scope["f"])
    yield f(_x(), [1, 2])
    builtins["len"] = lambda n: 10
    yield f(_x(), [1, 2])


@program
def builtin_appears(compile: Compile) -> Iterator[Any]:
    builtins = dict(vars(__import__("builtins")))
    scope = _scope(
        "def f(x):\n    try:\n        return x * k\n    except NameError:\n        return x",
        __builtins__=builtins,
    )
    f = compile(scope["f"])
    yield f(_x())
    builtins["k"] = 3
    yield f(_x())


@program
def module_attribute(compile: Compile) -> Iterator[Any]:
    module = types.ModuleType("settings")
    module.k = 2
    f = compile(lambda x: x * module.k)
    yield f(_x())
    module.k = 3
    yield f(_x())


@program
def module_attribute_appears(compile: Compile) -> Iterator[Any]:
    module = types.ModuleType("settings")
    f = compile(lambda x: x * getattr(module, "k", 2))
    yield f(_x())
    module.k = 3
    yield f(_x())
    del module.k
    yield f(_x())


@program
def module_with_getattr(compile: Compile) -> Iterator[Any]:
    module = types.ModuleType("settings")
    exec("store = {'k': 2}\ndef __getattr__(name): return store[name]", module.__dict__)
    f = compile(lambda x: x * module.k)
    yield f(_x())
    module.store["k"] = 3
    yield f(_x())
    module.k = 9
    yield f(_x())


@program
def constant_of_a_module_of_c(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * math.pi)
    old = math.pi
    try:
        yield f(_x())
        math.pi = 3
        yield f(_x())
    finally:
        math.pi = old


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
    yield f(_x())
    A.k = 3
    yield f(_x())
    B.k = 4
    yield f(_x())
    C.k = 5
    yield f(_x())
    box.k = 6
    yield f(_x())
    del box.k, C.k
    yield f(_x())


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
    yield f(_x())
    del B.other
    B.helper = lambda self, x: x * 10  # as many names as before
    yield f(_x())


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
    yield f(_x())
    B.__bases__ = (A2,)
    yield f(_x())


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
    yield f(_x())
    A.k = 3
    yield f(_x())
    A.s = staticmethod(lambda x: x - 1)
    yield f(_x())
    A.c = classmethod(lambda cls, x: x * 10)
    yield f(_x())


@program
def class_name(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    box = A()
    f = compile(lambda x: x * len(type(box).__name__))
    yield f(_x())
    A.__name__ = "Longer"
    yield f(_x())


@program
def class_namespace(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    f = compile(lambda x: x * ("k" in A.__dict__) + 1)
    yield f(_x())
    A.k = 3
    yield f(_x())


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
    yield f(_x()), A.__dict__["d"].reads
    yield f(_x()), A.__dict__["d"].reads
    A.__dict__["d"].k = 5
    yield f(_x()), A.__dict__["d"].reads
    Descriptor.__get__ = lambda self, owner, cls: 50
    yield f(_x()), A.__dict__["d"].reads


@program
def getattr_added(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    box = A()
    f = compile(lambda x: x * getattr(box, "k", 2))
    yield f(_x())
    A.__getattr__ = lambda self, name: 7
    yield f(_x())
    A.__getattr__ = lambda self, name: 8
    yield f(_x())
    A.__getattribute__ = lambda self, name: 9
    yield f(_x())
    A.__getattribute__ = lambda self, name: 10
    yield f(_x())


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
    yield f(_x()), list(A.reads)
    yield f(_x()), list(A.reads)
    box.k = 4
    yield f(_x()), list(A.reads)


@program
def setattr_added(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    box = A()

    def run(x: torch.Tensor, k: int) -> torch.Tensor:
        box.k = k
        return x * k

    f = compile(run)
    yield f(_x(), 2), box.k
    A.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value * 10)
    yield f(_x(), 2), box.k
    A.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value * 20)
    yield f(_x(), 2), box.k
    A.k = property(lambda self: 77, lambda self, value: None)
    yield f(_x(), 2), box.k


@program
def special_methods_added(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    a, b = A(), A()
    f = compile(lambda x: x + 1 if a == b else x * 2)
    yield f(_x())
    A.__eq__ = lambda self, other: True
    yield f(_x())
    A.__eq__ = lambda self, other: False
    yield f(_x())


@program
def truth_of_an_object(compile: Compile) -> Iterator[Any]:
    class A:
        pass

    a = A()
    f = compile(lambda x: x + 1 if a else x * 2)
    yield f(_x())
    A.__len__ = lambda self: 0
    yield f(_x())
    A.__bool__ = lambda self: True
    yield f(_x())


@program
def instance_checks(compile: Compile) -> Iterator[Any]:
    class Meta(type):
        answer = False

        def __instancecheck__(cls, instance: Any) -> bool:
            return cls.answer

    class A(metaclass=Meta):
        pass

    f = compile(lambda x, v: x + 1 if isinstance(v, A) else x * 2)
    yield f(_x(), 1)
    Meta.answer = True
    yield f(_x(), 1)


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
    yield f(_x())
    box.__class__ = B
    yield f(_x())


@program
def callable_object_changes(compile: Compile) -> Iterator[Any]:
    class A:
        k = 2

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    box = A()
    f = compile(box)
    yield f(_x())
    box.k = 3
    yield f(_x())
    A.__call__ = lambda self, x: x - 1
    yield f(_x())


@program
def partial_changes(compile: Compile) -> Iterator[Any]:
    part = functools.partial(lambda x, k, j: x * k + j, j=1, k=2)
    f = compile(part)
    yield f(_x())
    yield f(_x(), k=5)
    part.keywords["k"] = 3
    yield f(_x())


@program
def bound_method_of_an_object(compile: Compile) -> Iterator[Any]:
    class A:
        k = 2

        def m(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    box = A()
    f = compile(box.m)
    yield f(_x())
    box.k = 3
    yield f(_x())
    A.k = 4
    del box.k
    yield f(_x())


@program
def enumeration_member(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, c: x + 1 if c is _Colour.RED else x * c.value)
    yield f(_x(), _Colour.RED)
    yield f(_x(), _Colour.GREEN)


@program
def weak_reference(compile: Compile) -> Iterator[Any]:
    import weakref

    first, second = _Box(2), _Box(3)
    holder = _Box(weakref.ref(first))
    f = compile(lambda x: x * holder.k().k)
    yield f(_x())
    first.k = 4
    yield f(_x())
    holder.k = weakref.ref(second)
    yield f(_x())


@program
def names_of_an_object(compile: Compile) -> Iterator[Any]:
    box = _Box(1)
    f = compile(lambda x: x * len(dir(box)) + len(vars(box)))
    yield f(_x())
    box.j = 2
    yield f(_x())


@program
def buffers_of_c(compile: Compile) -> Iterator[Any]:
    import array

    data, raw = array.array("i", [1, 2]), bytearray(b"ab")
    f = compile(lambda x: x * sum(data) + len(raw) + list(data)[0] + bytes(raw)[0])
    yield f(_x())
    data[0] = 5
    yield f(_x())
    raw[0] = 3
    yield f(_x())


@program
def object_in_a_default_dict(compile: Compile) -> Iterator[Any]:
    store: Any = collections.defaultdict(lambda: 2)
    f = compile(lambda x: x * store["k"])
    yield f(_x()), dict(store)
    yield f(_x()), dict(store)
    store["k"] = 5
    yield f(_x()), dict(store)


# ---- containers ---------------------------------------------------------------------------------


@program
def container_contents(compile: Compile) -> Iterator[Any]:
    def run(x: torch.Tensor, values: Any) -> Any:
        for value in values:
            x = x * value
        return x

    f = compile(run)
    yield f(_x(), [1, 2])
    yield f(_x(), [1, 3])
    yield f(_x(), [1, 2, 3])
    yield f(_x(), (1, 2))
    yield f(_x(), [torch.tensor(2.0)])
    yield f(_x(), [True, 2])


@program
def container_by_key(compile: Compile) -> Iterator[Any]:
    def run(x: torch.Tensor, values: dict) -> Any:
        if "k" in values:
            x = x * values["k"]
        return x + values.get("j", 1)

    f = compile(run)
    yield f(_x(), {})
    yield f(_x(), {"k": 2})
    yield f(_x(), {"k": 3})
    yield f(_x(), {"k": 3, "j": 4})
    yield f(_x(), {"j": 4, "k": 3.0})
    yield f(_x(), collections.OrderedDict(k=3))


@program
def container_order(compile: Compile) -> Iterator[Any]:
    def run(x: torch.Tensor, values: dict) -> Any:
        for key, value in values.items():
            x = x * value + len(key)
        return x

    f = compile(run)
    yield f(_x(), {"a": 1, "bb": 2})
    yield f(_x(), {"bb": 2, "a": 1})
    yield f(_x(), {"a": 1, "bb": 3})
    yield f(_x(), {"a": 1, "ccc": 2})


@program
def order_of_a_set(compile: Compile) -> Iterator[Any]:
    def run(x: torch.Tensor, values: set) -> Any:
        for value in values:
            x = x * 2 + value
        return x

    f = compile(run)
    a, b = {8, 0}, {0, 8}
    for values in (a, b, {8, 16, 0}, {0, 16, 8}):
        yield f(_x(), values)
    many = set(range(100))
    for i in range(100):
        if i not in (8, 0):
            many.discard(i)
    yield f(_x(), many)
    many.add(16)
    yield f(_x(), many)


@program
def environment(compile: Compile) -> Iterator[Any]:
    import os

    f = compile(lambda x: x * float(os.environ.get("REFCOMPILER_TEST_K", "2")))
    try:
        yield f(_x())
        os.environ["REFCOMPILER_TEST_K"] = "3"
        yield f(_x())
    finally:
        os.environ.pop("REFCOMPILER_TEST_K", None)
    yield f(_x())


# ---- ambient state ------------------------------------------------------------------------------


def _ambient(*states: Callable[[], Any]) -> Program:
    def run(compile: Compile) -> Iterator[Any]:
        def f(x: torch.Tensor, w: torch.Tensor) -> Any:
            y = x @ w + torch.ones(3)
            return (
                x @ w,
                y,
                torch.is_grad_enabled(),
                torch.zeros(2),
                y.requires_grad,
                y.is_inference(),
            )

        g = compile(f)
        x, w = _x(), torch.eye(3).requires_grad_()
        for state in (contextlib.nullcontext, *states, contextlib.nullcontext, *states):
            with state():
                yield attempt(g, x, w)

    return run


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(old)


class _Doubling(torch.overrides.TorchFunctionMode):
    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        self.factor = factor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found * self.factor if func is torch.ones else found


class _Logging(torch.utils._python_dispatch.TorchDispatchMode):
    seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _Logging.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def _autocast(dtype: torch.dtype, enabled: bool = True) -> Callable[[], Any]:
    return lambda: torch.autocast("cpu", dtype=dtype, enabled=enabled)


AMBIENT: dict[str, Program] = {
    "grad": _ambient(torch.no_grad),
    "inference": _ambient(torch.inference_mode),
    "autocast": _ambient(_autocast(torch.bfloat16), _autocast(torch.float16)),
    "default dtype": _ambient(lambda: _default_dtype(torch.float64)),
    "function mode": _ambient(_Doubling, lambda: _Doubling(3)),
    "default device": _ambient(lambda: torch.device("meta"), lambda: torch.device("cpu")),
    "dispatch mode": _ambient(_Logging),
}


@pytest.mark.parametrize("name", AMBIENT)
def test_ambient_state(name: str) -> None:
    _Logging.seen.clear()
    check(AMBIENT[name], changes=name != "dispatch mode")
    if name == "dispatch mode":
        half = len(_Logging.seen) // 2
        assert half >= 4 and _Logging.seen[:half] == _Logging.seen[half:]


@program
def deterministic_algorithms(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * 2 if torch.are_deterministic_algorithms_enabled() else x)
    try:
        yield f(_x())
        torch.use_deterministic_algorithms(True)
        yield f(_x())
    finally:
        torch.use_deterministic_algorithms(False)
    yield f(_x())


@program
def state_that_the_program_reads(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * torch.get_num_threads() + len(torch.get_float32_matmul_precision()))
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        yield f(_x())
        torch.set_num_threads(threads + 1)
        yield f(_x())
        torch.set_float32_matmul_precision("medium")
        yield f(_x())
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


@program
def inside_a_function_transformation(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: (x.sin() * 2).sum())
    x = torch.arange(3.0)
    yield f(x)
    yield torch.func.grad(f)(x)
    yield torch.func.vmap(f)(_x())
    yield torch.func.jvp(f, (x,), (torch.ones(3),))
    yield torch.func.vmap(torch.func.grad(f))(_x())
    yield torch.func.jacrev(f)(x)
    yield f(x)


@program
def tensor_method_patched(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x.guarded_test() + 1)
    try:
        torch.Tensor.guarded_test = lambda self: self * 2
        yield f(_x())
        torch.Tensor.guarded_test = lambda self: self * 3
        yield f(_x())
    finally:
        del torch.Tensor.guarded_test
    yield attempt(f, _x())


@program
def torch_function_patched(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: torch.sin(x) + 1)
    old = torch.sin
    try:
        yield f(_x())
        torch.sin = lambda x: x * 3
        yield f(_x())
    finally:
        torch.sin = old
    yield f(_x())


@program
def attributes_of_a_tensor(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * getattr(x, "tag", 2))
    x = _x()
    yield f(x)
    x.tag = 3
    yield f(x)
    x.tag = 4
    yield f(x)
    yield f(_x())


@pytest.mark.parametrize("name", PROGRAMS)
def test_change_is_noticed(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(PROGRAMS[name])
