"""``refcompiler.interpret``: what it takes, threads, nesting, recursion, errors of its own."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
import threading
import traceback
from types import FunctionType
from typing import Any

import pytest

import refcompiler
from refcompiler import interpret
from refcompiler.errors import InternalError
from refcompiler.interpreter import api
from refcompiler.interpreter.machine import Machine


def depth() -> int:
    """How many frames there are, by the frames that a program can see."""
    frame, found = sys._getframe(), 0
    while frame is not None:
        frame, found = frame.f_back, found + 1  # type: ignore[assignment]
    return found


def everything(a: int, b: int = 2, *rest: int, c: int = 3, **more: int) -> tuple:
    return a, b, rest, c, more


class Adds:
    def __init__(self, n: int):
        self.n = n

    def __call__(self, x: int) -> int:
        return self.n + x

    def method(self, x: int) -> int:
        return self(x) * 2

    @classmethod
    def made(cls, n: int) -> Adds:
        return cls(n)

    @staticmethod
    def static(x: int) -> int:
        return -x


def is_interpreted() -> bool:
    """Natively there is nothing of the interpreter between this frame and its caller's."""
    frame = sys._getframe()
    return type(frame) is not type(sys._current_frames()[threading.get_ident()])


CALLS = [
    (everything, (1,), {}),
    (everything, (1, 2, 3, 4), {"c": 5, "d": 6}),
    (functools.partial(everything, 1, c=9), (8,), {"z": 0}),
    (Adds(3), (4,), {}),
    (Adds(3).method, (4,), {}),
    (Adds.static, (4,), {}),
    (len, ("abc",), {}),
    (sorted, ([3, 1, 2],), {"key": lambda x: -x}),
    (functools.reduce, (lambda a, b: a * b, [1, 2, 3]), {}),
    (dict, ([("a", 1)],), {"b": 2}),
    (str.upper, ("x",), {}),
    (functools.lru_cache(lambda x: x + 1), (1,), {}),
    (type, ("C", (), {}), {}),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call[0]).__name__)
def test_whatever_can_be_called(call: Any) -> None:
    function, args, kwargs = call
    expected, found = function(*args, **kwargs), interpret(function, *args, **kwargs)
    assert found == expected or repr(found)[:8] == repr(expected)[:8] == "<class '"


def test_classes_and_their_methods() -> None:
    assert interpret(Adds, 5).n == interpret(Adds.made, 5).n == 5
    assert type(interpret(Adds, 5)) is Adds
    assert interpret(is_interpreted) and not is_interpreted()


def test_arguments_of_any_name() -> None:
    assert interpret(dict, fn=1, self=2) == {"fn": 1, "self": 2}


def test_binding_errors_are_cpythons() -> None:
    for args, kwargs in (((), {}), ((1,), {"a": 2})):
        with pytest.raises(TypeError) as native:
            everything(*args, **kwargs)
        with pytest.raises(TypeError) as interpreted:
            interpret(everything, *args, **kwargs)
        assert str(native.value) == str(interpreted.value)


def test_no_torch_is_imported() -> None:
    code = (
        "import sys, refcompiler; assert refcompiler.interpret(lambda: 3) == 3; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert "interpret" in refcompiler.__all__


def fails(x: int) -> float:
    return 1 / x


def test_the_traceback_is_the_users() -> None:
    try:
        interpret(fails, 0)
    except ZeroDivisionError as error:
        names = [entry.name for entry in traceback.extract_tb(error.__traceback__)]
    assert names == ["test_the_traceback_is_the_users", "fails"]


def calls_back() -> list:
    seen: list = []

    def note(*args: Any) -> Any:
        seen.append((is_interpreted(), sys._getframe(1).f_code.co_name))
        return args[0]

    found = [sorted([2, 1], key=note), min([3, 4], key=note), max(3, 4, key=note)]
    return [*found, functools.reduce(note, [1, 2, 3]), seen]


def test_what_c_calls_back_is_interpreted() -> None:
    found = [[1, 2], 3, 4, 1]
    assert calls_back() == [*found, [(False, "calls_back")] * 8]
    assert interpret(calls_back) == [*found, [(True, "calls_back")] * 8]


# ---- nesting and threads ---------------------------------------------------------------------


def nested(n: int) -> list:
    if n == 0:
        return [is_interpreted()]
    return [n, *interpret(nested, n - 1), *map(is_interpreted_of, [n])]


def is_interpreted_of(n: int) -> int:
    return n


def test_interpret_inside_interpret() -> None:
    assert interpret(nested, 3) == [3, 2, 1, True, 1, 2, 3]


def test_an_exception_through_two_interpreters() -> None:
    def inner() -> Any:
        try:
            return interpret(fails, 0)
        finally:
            log.append("finally")

    log: list = []
    with pytest.raises(ZeroDivisionError):
        interpret(inner)
    assert log == ["finally"]


def counted(n: int) -> int:
    def steps() -> Any:
        for i in range(n):
            try:
                yield fails(i)
            except ZeroDivisionError:
                yield 0

    return sum(1 for _ in steps())


def test_threads_interpret_at_the_same_time() -> None:
    found: dict[int, int] = {}
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [
            threading.Thread(target=lambda i=i: found.update({i: interpret(counted, 50 + i)}))
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert found == {i: 50 + i for i in range(4)}


def started() -> list:
    seen: list = []
    thread = threading.Thread(target=lambda: seen.append(is_interpreted()))
    thread.start()
    thread.join()
    return seen


def test_a_thread_started_by_interpreted_code_is_interpreted() -> None:
    assert started() == [False]
    assert interpret(started) == [True]


def generates() -> Any:
    for i in range(200):
        yield i, fails(i + 1)


def test_a_generator_is_resumed_by_several_threads() -> None:
    """Each on the machine of its own thread, while that of the first is at work."""
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    lock, seen = threading.Lock(), []

    def drain() -> None:
        while True:
            with lock:
                item = next(shared, None)
            if item is None:
                return
            seen.append(item)

    shared = interpret(generates)
    try:
        threads = [threading.Thread(target=drain) for _ in range(3)]
        for thread in threads:
            thread.start()
        interpret(counted, 100)
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert sorted(seen) == list(generates())


# ---- recursion -------------------------------------------------------------------------------


class Deep:
    def __enter__(self) -> Any:
        return deep_with(Deep.count)

    def __exit__(self, *args: Any) -> None:
        pass

    def __add__(self, other: Any) -> Any:
        Deep.count[0] += 1
        return self + other

    count: list[int] = [0]


def deep_with(count: list[int]) -> None:
    count[0] += 1
    Deep.count = count
    with Deep():
        pass


def deep_plain(count: list[int]) -> None:
    count[0] += 1
    deep_plain(count)


def deep_generator(count: list[int]) -> None:
    def numbers() -> Any:
        count[0] += 1
        for x in numbers():
            yield x

    list(numbers())


def deep_delegation(count: list[int]) -> None:
    def numbers() -> Any:
        count[0] += 1
        yield from numbers()

    list(numbers())


def deep_handlers(count: list[int]) -> None:
    count[0] += 1
    try:
        fails(0)
    except ZeroDivisionError:
        deep_handlers(count)


def deep_operator(count: list[int]) -> None:
    Deep.count = count
    Deep() + 1


def reached(function: Any) -> tuple[int, str]:
    count = [0]
    try:
        function(count)
    except RecursionError as error:
        return count[0], str(error)[:32]
    return 0, "no error"


@pytest.mark.parametrize("function", [deep_plain, deep_with, deep_generator, deep_handlers])
def test_recursion_ends_where_cpythons_does(function: Any) -> None:
    before, found = sys.getrecursionlimit(), []
    thread = threading.Thread(
        target=lambda: found.extend((reached(function), interpret(reached, function)))
    )
    thread.start()  # whose stack has few calls of C, which count natively
    thread.join()
    native, interpreted = found
    assert interpreted[1] == native[1] == "maximum recursion depth exceeded"
    if function is deep_generator:  # which takes C's stack, and from 3.12 on has a limit for that
        assert native[0] / 2 < interpreted[0] <= native[0] + 2
    else:
        assert abs(native[0] - interpreted[0]) <= 2
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("function", [deep_delegation, deep_operator])
def test_recursion_through_native_code_ends(function: Any) -> None:
    assert interpret(reached, function)[1] == "maximum recursion depth exceeded"


def low_limit() -> Any:
    def both() -> None:
        try:
            both()
        except RecursionError:
            both()

    old, found, limit = sys.getrecursionlimit(), [], 1
    while True:
        try:
            sys.setrecursionlimit(limit)
            break
        except RecursionError:
            limit += 1
    sys.setrecursionlimit(limit + 10)
    for function in (deep_handlers, deep_plain):
        found.append(reached(function)[0] < 12)
    try:
        both()
    except RecursionError:
        found.append("both")
    found.append(sys.getrecursionlimit() - limit)
    sys.setrecursionlimit(old)
    return found, sys.getrecursionlimit()


def test_a_limit_just_above_the_stack() -> None:
    assert low_limit() == interpret(low_limit) == ([True, True, "both", 10], 1000)


def handled_at_each_level(n: int) -> int:
    try:
        return handled_at_each_level(n + 1)
    except StopIteration:
        return 0


class ThroughC:
    @property
    def itself(self) -> Any:
        return self.itself


def until_too_deep(function: Any, argument: Any, limit: int) -> None:
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        function(argument)
    except RecursionError:
        return
    finally:
        sys.setrecursionlimit(old)
    raise AssertionError("it ends")


def lines_run(function: Any, argument: Any, limit: int) -> int:
    """How many lines of Python run, the interpreter's own: work that no other process changes."""
    count = 0

    def each(frame: Any, event: str, value: Any) -> Any:
        nonlocal count
        count += event == "line"
        return each

    tracer = sys.gettrace()
    sys.settrace(each)
    try:
        interpret(until_too_deep, function, argument, limit)
    finally:
        sys.settrace(tracer)
    return count


@pytest.mark.parametrize(
    ("function", "argument"),
    [(handled_at_each_level, 0), (operator.attrgetter("itself"), ThroughC())],
)
def test_a_level_costs_the_same_at_any_depth(
    function: Any, argument: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The interpreter refuses to run under a trace function; here its own lines are what is counted.
    monkeypatch.setattr(api, "_gettrace", lambda: None)
    limits = (700, 3500)
    for limit in limits:  # so that everything is fused
        interpret(until_too_deep, function, argument, limit)
    few, many = (lines_run(function, argument, limit) for limit in limits)
    # At most five times as deep; 25 times where each level looks through those above it.
    assert few > 700
    assert many < 6 * few


# ---- errors of the interpreter's own -----------------------------------------------------------


def wrong_attribute(self: Any, value: Any, name: str) -> Any:
    return self.nowhere


def wrong_name(self: Any, value: Any, name: str) -> Any:
    return undefined  # type: ignore[name-defined]  # noqa: F821


def wrong_assertion(self: Any, value: Any, name: str) -> Any:
    assert value is self


def careless(x: Any) -> Any:
    try:
        return x.real
    except Exception as error:
        return "swallowed", error


def careless_generator(x: Any) -> Any:
    yield careless(x)


@pytest.mark.parametrize("wrong", [wrong_attribute, wrong_name, wrong_assertion])
def test_a_bug_of_the_interpreter_is_an_internal_error(wrong: Any) -> None:
    class Broken(Machine):
        getattr = FunctionType(wrong.__code__, vars(sys.modules[Machine.__module__]))

    machine = Broken()
    with pytest.raises(InternalError, match="careless"):
        machine.run(machine.make_frame(careless, (3,), {}))
    generator = machine.call_python(None, careless_generator, (3,), {})  # type: ignore[arg-type]
    with pytest.raises(InternalError, match="careless"):
        next(generator)
    assert machine.frame is None and machine.depth == 0


class Odd:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __getitem__(self, index: int) -> Any:
        raise IndexError(index)


def users_own() -> list:
    found: list = []
    for attempt in (
        lambda: [].pop(),
        lambda: [][3],
        lambda: nowhere,  # type: ignore[name-defined]  # noqa: F821
        lambda: sys._getframe().nowhere,  # type: ignore[attr-defined]
        lambda: Odd().x,
        lambda: Odd()[2],
        lambda: [*Odd()],
        lambda: eval("nowhere"),
        lambda: exec("assert 0"),
    ):
        try:
            found.append(attempt())
        except Exception as error:
            found.append(repr(error))
    return found


def test_the_users_errors_are_the_users() -> None:
    found = interpret(users_own)
    assert found == users_own()
    assert len(found) == 9
