"""What each row of the specification names as a violation, met by a compiled function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch

import refcompiler
from refcompiler.runtime import counters
from refcompiler.runtime.api import _COMPILERS
from specs.guards import GUARDS
from tests.cpu.guards.history import attempt, see
from tests.cpu.guards.test_kinds import suspended

THREADS = torch.get_num_threads()

#: kind -> makes (function, arguments, violating arguments)
CASES: dict[str, Callable[[], tuple[Callable, Any, Any]]] = {}


def violates(kind: str) -> Callable:
    def register(function: Callable) -> Callable:
        CASES[kind] = function
        return function

    return register


def _x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


class _Box:
    def __init__(self, k: Any = 2) -> None:
        self.k = k


class _Table(dict):
    def read(self, key: Any) -> Any:
        return dict.get(self, key, 5)


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@violates("TYPE")
def _type() -> tuple:
    return lambda x, v: x * len(v), (_x(), [1, 2]), (_x(), (1, 2, 3))


@violates("ID")
def _id() -> tuple:
    return lambda x, f: f(x), (_x(), torch.sin), (_x(), torch.cos)


@violates("EQUALS")
def _equals() -> tuple:
    return lambda x, k: (x * k, k), (_x(), 1), (_x(), True)


@violates("NONE")
def _none() -> tuple:
    return lambda x, k: x if k is None else x * 2, (_x(), None), (_x(), 0)


@violates("NOT_NONE")
def _not_none() -> tuple:
    return lambda x, k: x if k is None else x * 2, (_x(), 0), (_x(), None)


@violates("PRESENT")
def _present() -> tuple:
    bare = _Box()
    del bare.k
    return lambda x, b: x * hasattr(b, "k"), (_x(), _Box()), (_x(), bare)


@violates("PLAIN")
def _plain() -> tuple:
    class Box:
        kept = [1]

    def change() -> tuple:
        Box.kept = property(lambda self: 2)
        return (_x(),)

    box = Box()
    return lambda x: (x * 2, box.kept), (_x(),), change


@violates("EMPTY")
def _empty() -> tuple:
    if not _x().numel():
        k = 1

    def function(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * k
        except NameError:
            return x

    def change() -> tuple:
        nonlocal k
        k = 5
        return (_x(),)

    return function, (_x(),), change


@violates("LENGTH")
def _length() -> tuple:
    return lambda x, v: x * len(v), (_x(), [1, 2]), (_x(), [1, 2, 3])


@violates("TRUTH")
def _truth() -> tuple:
    return lambda x, v: x * 2 if v else x, (_x(), [1, 2]), (_x(), [])


@violates("KEYS")
def _keys() -> tuple:
    return lambda x, v: (x, "".join(v)), (_x(), {"a": 1, "b": 2}), (_x(), {"b": 2, "a": 1})


@violates("HAS")
def _has() -> tuple:
    return lambda x, v: x * ("k" in v), (_x(), {"k": 1}), (_x(), {"j": 1})


@violates("ABSENT")
def _absent() -> tuple:
    return lambda x, v: x * ("k" in v), (_x(), {"j": 1}), (_x(), {"k": 1})


@violates("LACKS")
def _lacks() -> tuple:
    return lambda x, v: x * v.read("k"), (_x(), _Table(j=1)), (_x(), _Table(k=1))


@violates("WITHOUT")
def _without() -> tuple:
    class Base:
        def m(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    class Derived(Base):
        known_by = object()  # which no other class has

    def change() -> tuple:
        Derived.m = lambda self, x: x * 3
        return _x(), Derived()

    return lambda x, b: b.m(x), (_x(), Derived()), change


@violates("CODE")
def _code() -> tuple:
    def make(function: Callable) -> Callable:
        return lambda x: function(x)

    return lambda x, f: f(x), (_x(), make(_double)), (_x(), lambda x: x - 1)


@violates("CLASS")
def _class() -> tuple:
    class Made:
        def m(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    class Other:
        def m(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3

    return lambda x, cls: cls().m(x), (_x(), Made), (_x(), Other)


@violates("TENSOR")
def _tensor() -> tuple:
    return lambda x: x * 2, (_x(),), (_x().double(),)


@violates("METADATA")
def _metadata() -> tuple:
    return (
        lambda x: x * x.storage_offset(),
        (_x(),),
        (torch.arange(9.0)[3:].reshape(2, 3),),
    )


@violates("STATE")
def _state() -> tuple:
    def change() -> tuple:
        torch.set_num_threads(THREADS + 1)
        return (_x(),)

    return lambda x: x * torch.get_num_threads(), (_x(),), change


@violates("SAME")
def _same() -> tuple:
    both = _Box()
    return lambda x, a, b: x * a.k + b.k, (_x(), both, both), (_x(), _Box(3), _Box(4))


@violates("DISTINCT")
def _distinct() -> tuple:
    both = _Box()
    return lambda x, a, b: x * (a is b), (_x(), _Box(), _Box()), (_x(), both, both)


def _grow(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return b * 2


@violates("UNIQUE")
def _unique() -> tuple:
    both = _x()
    return _grow, (_x(), _x()), (both, both)


@violates("STORAGE")
def _storage() -> tuple:
    base = torch.arange(8.0)
    return _grow, (torch.ones(6), torch.ones(6)), (base[:6], base[2:])


@violates("SEPARATE")
def _separate() -> tuple:
    def grow(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
        a += 1
        return b * 2

    memory = bytearray(64)
    both = memoryview(memory), memoryview(memory)[16:]
    return grow, (numpy.ones(8), numpy.ones(6)), tuple(map(numpy.frombuffer, both))


@violates("AMBIENT")
def _ambient() -> tuple:
    def change() -> tuple:
        torch.set_grad_enabled(False)
        return (_x().requires_grad_(),)

    return lambda x: (x * 2, (x * 2).requires_grad), (_x().requires_grad_(),), change


@violates("SHAPE")
def _shape() -> tuple:
    def take(x: torch.Tensor, it: Any) -> torch.Tensor:
        return x * next(it)[0]

    return take, (_x(), zip([1], [2])), (_x(), zip((1, 5), [2]))


@violates("SUSPENDED")
def _suspended() -> tuple:
    def use(x: torch.Tensor, generator: Any) -> torch.Tensor:
        return x * next(generator)

    return use, (_x(), suspended(0)), (_x(), suspended(1))


@violates("ENDS")
def _ends() -> tuple:
    def use_up(x: torch.Tensor, it: Any) -> torch.Tensor:
        for _ in it:
            x = x * 2
        return x

    return use_up, (_x(), iter([1, 2])), (_x(), iter([1, 2, 3]))


@violates("APART")
def _apart() -> tuple:
    def take(x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
        return x * next(a) + next(b)

    one = iter([3, 4, 5])
    return take, (_x(), iter([3, 4]), iter([3, 5])), (_x(), one, one)


def _marked(*sizes: int) -> torch.Tensor:
    x = torch.ones(*sizes)
    x._dynamo_dynamic_indices = {0}  # type: ignore[attr-defined]
    return x


@violates("SIZED")
def _sized() -> tuple:
    return _double, (_marked(3, 4),), (_marked(3, 5),)


@violates("RELATION")
def _relation() -> tuple:
    return lambda x: x * 2 if len(x) > 4 else x, (_marked(3, 4),), (_marked(5, 4),)


class _Scaled(torch.Tensor):
    """A tensor and a number that it is multiplied by."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, scale: float) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, data.size())

    def __init__(self, data: torch.Tensor, scale: float):
        self.values_, self.scale = data, scale

    def tolist(self) -> Any:
        return self.values_.tolist()

    def __tensor_flatten__(self) -> tuple:
        return ["values_"], self.scale

    @staticmethod
    def __tensor_unflatten__(inner: dict, scale: float, size: Any, stride: Any) -> Any:
        return _Scaled(inner["values_"], scale)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return _Scaled(args[0].values_, args[0].scale)
        return func(*[a.values_ * a.scale if isinstance(a, _Scaled) else a for a in args])


@violates("WRAPPER")
def _wrapper() -> tuple:
    return _double, (_Scaled(_x(), 2.0),), lambda: (_Scaled(_x(), 3.0),)


def _kinds() -> set[str]:
    """The kinds of all guards of all plans."""
    return {
        guard.kind
        for _, compiler in _COMPILERS.values()
        for entry in compiler.entries.values()
        for plan in entry.plans
        for guard in plan.guards
    }


def _reset() -> None:
    refcompiler.reset()
    torch.set_grad_enabled(True)
    torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    yield
    _reset()


def test_every_kind_is_violated() -> None:
    assert set(CASES) == set(GUARDS.names())


@pytest.mark.parametrize("kind", CASES)
def test_violation(kind: str) -> None:
    found = []
    for compile in (lambda f: f, lambda f: refcompiler.compile(f, backend="eager")):
        _reset()
        function, given, violating = CASES[kind]()
        function = compile(function)
        seen = [see(attempt(function, *given))]
        if refcompiler.counters()["captures"]:
            assert kind in _kinds()
            assert refcompiler.counters()["recompiles"] == 0
        if callable(violating):
            violating = violating()
        seen.append(
            see(
                [
                    attempt(function, *violating),
                    [v for v in violating if isinstance(v, (torch.Tensor, list, dict))],
                ]
            )
        )
        found.append(seen)
    eager, compiled = found
    assert compiled == eager
    counted = refcompiler.counters()
    assert counted["captures"] == 2 + counted["breaks"] and counted["recompiles"] == 1
    (reason,) = counters.reasons("recompiles")
    start = GUARDS[kind].explain.partition("{")[0]
    unreadable = "can no longer be read"
    assert start in reason or unreadable in reason, reason
