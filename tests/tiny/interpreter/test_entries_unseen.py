"""Of what interprets the Python code that C code calls nothing shows: not in functions, threads,
frames, tracebacks or recursion."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from refcompiler import interpret
from refcompiler.interpreter import entries
from refcompiler.interpreter.machine import Machine
from refcompiler.interpreter.tracebacks import ENTRIES
from tests.tiny.interpreter.noting import NOTES, note

# ---- nothing of it shows -----------------------------------------------------------------------


def key(value: Any, /, *rest: Any, scale: int = 1, **named: Any) -> Any:
    return note("key", (value * scale, rest, named))


class Held:
    def __lt__(self, other: Any) -> bool:
        return note("lt", key.__code__.co_name == "key")


def test_functions_stay_what_they_are() -> None:
    before = key.__code__, Held.__lt__.__code__

    def look() -> Any:
        sorted([2, 1], key=key), Held() < Held()
        wrapped = getattr(key, "__code__")
        return key, key.__code__, wrapped, Held.__lt__.__code__, pickle.dumps(key), vars(Held)

    found = interpret(look)
    assert found[0] is key and found[1] is found[2] is before[0] and found[3] is before[1]
    assert pickle.loads(found[4]) is key
    assert (key.__code__, Held.__lt__.__code__) == before
    assert key.__code__ is before[0] and Held.__lt__.__code__ is before[1]
    assert not entries._FUNCTIONS and not entries.CURRENT


def test_another_thread_runs_them_natively_meanwhile() -> None:
    found: list[Any] = []

    def closure(n: int) -> Callable[..., Any]:
        def inner(a: int, b: int = 2, *rest: int, c: int = 3, **named: int) -> Any:
            return note("inner", (n, a, b, rest, c, named))

        return inner

    def work(function: Callable[..., Any]) -> None:
        native = native_call(function, 1, 4, 5, 6, c=7, z=8), native_call(function, 1)
        found.append(native)

    def main() -> None:
        function = closure(9)
        list(map(function, [1]))
        assert id(entries.FunctionType.__dict__["__code__"].__get__(function)) in ENTRIES
        interpreted.append(function)
        ready.set()
        done.wait(60)

    native_call = lambda function, *args, **kwargs: function(*args, **kwargs)  # noqa: E731
    interpreted: list[Any] = []
    ready, done = threading.Event(), threading.Event()
    NOTES.clear()
    worker = threading.Thread(target=lambda: interpret(main))
    worker.start()
    assert ready.wait(60)
    work(interpreted[0])
    done.set()
    worker.join()
    assert found == [((9, 1, 4, (5, 6), 7, {"z": 8}), (9, 1, 2, (), 3, {}))]
    assert NOTES == [("inner", True), ("inner", False), ("inner", False)]


def test_a_function_dies_when_nobody_holds_it() -> None:
    def main() -> list[bool]:
        found = []
        for _ in range(3):
            callback = lambda x: x  # noqa: E731
            sorted([2, 1], key=callback)
            gone = weakref.ref(callback)
            del callback
            found.append(gone() is None)
        return found

    assert interpret(main) == [True] * 3


def test_entries_that_are_not_in_use_are_forgotten() -> None:
    def made_here() -> int:
        # by name: the collector may free what other tests made at any moment
        return sum(code.co_name == "made_by_exec" for code in ENTRIES.values())

    def main() -> list[int]:
        found = []
        for i in range(5):
            space: dict[str, Any] = {}
            exec(f"def made_by_exec(x): return x + {i}", space)
            found += map(space["made_by_exec"], [1])
        return found

    assert interpret(main) == [1, 2, 3, 4, 5]
    assert made_here() > 0
    gc.collect()
    entries.forget_unused()
    assert made_here() == 0


# ---- frames, tracebacks, contexts, recursion ---------------------------------------------------


class Failing:
    def __eq__(self, other: object) -> bool:
        try:
            raise KeyError("first")
        except KeyError:
            return self.again()

    def again(self) -> bool:
        raise ValueError("second")

    __hash__ = None  # type: ignore[assignment]


def compares() -> Any:
    try:
        raise TypeError("handled")
    except TypeError:
        return [Failing()] == [Failing()]


def chained(error: BaseException | None) -> Iterator[Any]:
    while error is not None:
        yield type(error), [entry.name for entry in traceback.extract_tb(error.__traceback__)]
        error = error.__context__


def test_a_frame_that_c_code_called_is_in_the_traceback_once() -> None:
    found = []
    for call in (lambda f: f(), interpret):
        try:
            call(compares)
        except ValueError as error:
            found.append(list(chained(error)))
    natively, interpreted = found
    assert [kind for kind, _ in interpreted] == [ValueError, KeyError, TypeError]
    here = natively[0][1][: -len(("compares", "__eq__", "again"))]
    assert natively[0][1] == [*here, "compares", "__eq__", "again"]
    assert interpreted[0][1][-3:] == natively[0][1][-3:] and len(interpreted[0][1]) == 4
    assert interpreted[1:] == natively[1:]


class Shown:
    def __repr__(self) -> str:
        frame: Any = sys._getframe()
        names = []
        while frame is not None and frame.f_code is not shows.__code__:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        return ",".join([*names, "found" if frame is not None else "lost"])


def shows() -> str:
    return repr({1: [Shown()]})


def test_frames_of_who_called_through_c_code() -> None:
    assert interpret(shows) == shows() == "{1: [__repr__,found]}"


class Endless:
    def __getattr__(self, name: str) -> Any:
        return getattr(self, name + "_")

    def __len__(self) -> int:
        return len(self)

    def __add__(self, other: Any) -> Any:
        return self + other


@pytest.mark.parametrize(
    "endless", [lambda x: x.name, lambda x: len(x), lambda x: x + 1], ids=["getattr", "len", "add"]
)
def test_endless_recursion_through_c_code_ends(endless: Callable[[Any], Any]) -> None:
    with pytest.raises(RecursionError, match="maximum recursion depth exceeded"):
        interpret(endless, Endless())
    assert interpret(shows) == shows()


def test_an_exception_that_c_code_swallows_is_let_go() -> None:
    class Value:
        pass

    class Lacks:
        def __getattr__(self, name: str) -> Any:
            value = Value()
            held.append(weakref.ref(value))
            raise AttributeError(name)

    def main() -> Any:
        found = hasattr(Lacks(), "name"), getattr(Lacks(), "name", 5)
        return found, [gone() is None for gone in held]

    held: list[Any] = []
    assert interpret(main) == ((False, 5), [True, True])


def test_a_finaliser_in_the_middle_of_a_return_leaves_its_value_alone() -> None:
    class Cyclic:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            note("del", [i for i in range(3)])

    def inner(i: int) -> tuple[int, list[int]]:
        Cyclic()
        return i, [i]

    def main() -> Any:
        return [inner(i) for i in range(300)]

    NOTES.clear()
    old = gc.get_threshold()
    gc.set_threshold(5)
    try:
        assert interpret(main) == [(i, [i]) for i in range(300)]
    finally:
        gc.set_threshold(*old)
    assert sum(where for _, where in NOTES) > 200  # not those that came while it decoded


def test_a_metaclass_without_hash() -> None:
    class Meta(type):
        def __eq__(cls, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    class Case(metaclass=Meta):
        def __add__(self, other: Any) -> int:
            return note("add", 3)

    NOTES.clear()
    assert interpret(lambda: (Case() + 1, Case().__reduce_ex__(2)[1])) == (3, (Case,))
    assert NOTES == [("add", True)]


def test_a_domain_that_does_not_want_it() -> None:
    class Plain(Machine):
        enters = False

    machine = Plain()
    NOTES.clear()
    machine.run(machine.make_frame(lambda: Held() < Held(), (), {}))  # type: ignore[arg-type]
    assert NOTES == [("lt", False)]
