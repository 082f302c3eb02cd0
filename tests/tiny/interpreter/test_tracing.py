"""Trace functions that a program sets: their events are CPython's."""

from __future__ import annotations

import difflib
import io
import operator
import pdb
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from refcompiler import interpret
from refcompiler.errors import UnsupportedError


@pytest.fixture(autouse=True)
def no_trace_function() -> Iterator[None]:
    """Coverage and debuggers of the tests themselves do not look on."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def generator(n: int) -> Any:
    for i in range(n):
        x = yield i
        if x:
            i += x


def divides(x: int) -> float:
    try:
        return 1 / x
    except ZeroDivisionError as error:
        raise ValueError("no") from error
    finally:
        x = 2


class Held:
    def __init__(self) -> None:
        self.a = 1

    @property
    def value(self) -> int:
        return self.a

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> bool:
        return True


def everything(command: str) -> Any:
    held = Held()
    total = held.value
    for a in generator(2):
        total += a
    while total < 4:
        total += 1
    try:
        divides(0)
    except ValueError:
        total = 9
    else:
        total = 10
    with held:
        divides(0)
    found = [
        i
        for i in range(2)
        if i
    ]  # fmt: skip
    f = lambda y: y  # noqa: E731
    f(
        3,
    )
    if total:
        pass
    match command.split():
        case ["a", b] if b:
            return b
        case _:
            return [*map(lambda z: z + 1, found), sorted([2, 1], key=lambda z: -z)]


def throws() -> None:
    made = generator(3)
    next(made)
    made.send(1)
    try:
        made.throw(KeyError, KeyError("k"))
    except KeyError:
        made.close()
    other = generator(1)
    next(other)
    other.close()


def defines() -> Any:
    class Local:
        x = 1

        def method(self) -> int:
            return self.x

    exec("a = 1\nb = a + 1", {})
    return Local().method()


def events_of(
    run: Callable, body: Callable, *args: Any, lines: bool = True, opcodes: bool = False
) -> list[tuple]:
    """What a trace function is told while ``run`` runs ``body``: each event, and where."""
    log: list[tuple] = []

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        here = frame.f_code
        assert not frame.f_lasti % 2 and sys.gettrace() is trace
        if event == "exception":
            kind, error, traceback = argument
            argument = kind.__name__, str(error), traceback and traceback.tb_frame.f_code.co_name
        elif event == "return" and not isinstance(argument, int | str | list):
            argument = type(argument).__name__
        line = frame.f_lineno - here.co_firstlineno
        log.append((here.co_name, event, line, argument, sorted(map(str, frame.f_locals))))
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in (__file__, "<string>"):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = lines, opcodes
        return local(frame, event, argument)

    def traced() -> None:
        sys.settrace(trace)
        try:
            body(*args)
        finally:
            sys.settrace(None)

    run(traced)
    assert sys.gettrace() is None
    return log


def natively(function: Callable) -> Any:
    return function()


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize(
    "body, args",
    [(everything, ("a b",)), (everything, ("c",)), (throws, ()), (defines, ())],
    ids=["everything", "otherwise", "throws", "defines"],
)
def test_events(body: Callable, args: tuple, lines: bool) -> None:
    expected = events_of(natively, body, *args, lines=lines)
    found = events_of(interpret, body, *args, lines=lines)
    assert len(expected) > 4
    shown = difflib.unified_diff(list(map(str, expected)), list(map(str, found)), lineterm="")
    assert found == expected, "\n".join(shown)


def test_events_of_instructions() -> None:
    """As many as the body has, and no fewer than its lines: what there is depends on the Python."""
    found = events_of(interpret, divides_well, opcodes=True)
    assert [event for _, event, *_ in found].count("opcode") > 4


def divides_well() -> float:
    return divides(2)


def test_a_trace_function_that_raises_is_unset() -> None:
    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        raise KeyError(event)

    def main() -> Any:
        sys.settrace(trace)
        try:
            divides(1)
        except KeyError as error:
            return error.args, sys.gettrace(), divides(1)

    assert interpret(main) == main() == (("call",), None, 1.0)


def test_a_frame_is_traced_from_where_it_asks_for_it() -> None:
    def main() -> list:
        log: list = []

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            log.append((event, frame.f_lineno - first))
            return trace

        here = sys._getframe()
        first = here.f_code.co_firstlineno
        here.f_trace = trace
        sys.settrace(trace)
        a = len("abc")
        a += 1
        del here.f_trace
        a += 1
        sys.settrace(None)
        return [log, here.f_trace, a]

    assert interpret(main) == main()


def test_a_trace_function_stays_set() -> None:
    """What is set when the call ends is CPython's to call."""
    seen = []

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        seen.append(frame.f_code.co_name)

    interpret(sys.settrace, trace)
    try:
        divides(1)
    finally:
        sys.settrace(None)
    assert "divides" in seen


def test_another_thread_is_not_traced() -> None:
    def main() -> tuple:
        seen: set[str] = set()
        found = []

        def trace(frame: FrameType, event: str, argument: Any) -> None:
            seen.add(frame.f_code.co_name)

        sys.settrace(trace)
        thread = threading.Thread(target=lambda: found.append((divides(1), sys.gettrace())))
        thread.start()
        thread.join()
        sys.settrace(None)
        return found, "divides" in seen, "start" in seen

    assert interpret(main) == main() == ([(1.0, None)], False, True)


# ---- the debugger ------------------------------------------------------------------------------


def debugged(debugger: Any) -> int:
    debugger.set_trace()
    a = 1
    b = len([divides(a)])
    for i in range(2):
        b += i
    try:
        divides(0)
    except ValueError:
        b = -1
    return b


COMMANDS = "n\nn\ns\np x\nn\nr\nn\nn\nn\np a, b\nu\nd\nn\nunt\np b\nc\n"


def test_the_debugger_of_the_library_works() -> None:
    def session(run: Callable) -> tuple[Any, str]:
        shown = io.StringIO()
        debugger = pdb.Pdb(stdin=io.StringIO(COMMANDS), stdout=shown, nosigint=True, readrc=False)
        try:
            found = run(debugged, debugger)
        finally:
            sys.settrace(None)
        return found, shown.getvalue()

    found, shown = session(interpret)
    expected, wanted = session(operator.call)  # C code: no frame of its own
    assert found == expected == -1
    assert "divides" in shown and len(shown.splitlines()) > 12
    assert shown.splitlines() == wanted.splitlines()


def stops() -> int:
    x = 5
    breakpoint()
    return x


def test_a_breakpoint_opens_the_debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()

    def set_trace() -> None:
        commands = io.StringIO("n\nx = x + 1\nc\n")
        debugger = pdb.Pdb(stdin=commands, stdout=shown, nosigint=True, readrc=False)
        debugger.set_trace(sys._getframe(1))

    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setattr(pdb, "set_trace", set_trace)  # not that of pytest
    assert interpret(stops) in (5, 6)  # from 3.13 on a frame's variables can be changed
    assert "stops()" in shown.getvalue() and "return x" in shown.getvalue()


# ---- what is refused ---------------------------------------------------------------------------


def test_a_profile_function_is_refused() -> None:
    def main() -> None:
        sys.setprofile(lambda *event: None)

    with pytest.raises(UnsupportedError, match="^sys.setprofile: frames that the interpreter runs"):
        interpret(main)
