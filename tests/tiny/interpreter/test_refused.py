"""What the interpreter refuses, each in one line: what it cannot call, show or read."""

from __future__ import annotations

import dis
import re
import sys
import threading
from types import FunctionType
from typing import Any

import pytest

from refcompiler import interpret
from refcompiler.errors import UnsupportedError


def plain(a: int) -> int:
    return a


class Loud:
    def __repr__(self) -> str:
        return "long\n" * 1000


@pytest.mark.parametrize("bad", [3, None, "f", object(), Loud()])
def test_what_cannot_be_called_is_one_line(bad: Any) -> None:
    with pytest.raises(TypeError, match="interpret: .* is not callable; pass a function") as caught:
        interpret(bad, 1)
    assert "\n" not in str(caught.value)


# ---- trace functions, debuggers and coverage ---------------------------------------------------


def test_a_trace_function_is_refused_in_one_line() -> None:
    old = sys.gettrace()
    sys.settrace(lambda *event: None)
    try:
        with pytest.raises(UnsupportedError, match="refcompiler step") as caught:
            interpret(plain, 1)
    finally:
        sys.settrace(old)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12")
@pytest.mark.parametrize("number", [0, 1])
def test_a_debugger_or_coverage_that_monitors_is_refused_in_one_line(number: int) -> None:
    monitoring: Any = vars(sys)["monitoring"]
    if monitoring.get_tool(number) is not None:
        pytest.skip("the tests are being watched")
    monitoring.use_tool_id(number, "a watcher")
    try:
        with pytest.raises(UnsupportedError, match="^interpret: a watcher, which") as caught:
            interpret(plain, 1)
    finally:
        monitoring.free_tool_id(number)
    assert "\n" not in str(caught.value)


def monitors(function: str, *args: Any) -> Any:
    return getattr(vars(sys)["monitoring"], function)(*args)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12")
def test_monitoring_from_inside_is_refused_in_one_line() -> None:
    monitoring: Any = vars(sys)["monitoring"]
    monitoring.use_tool_id(3, "a tool")
    try:
        for function, args in (("set_events", ()), ("set_local_events", (plain.__code__,))):
            with pytest.raises(UnsupportedError, match=f"^sys.monitoring.{function}: ") as caught:
                interpret(monitors, function, 3, *args, 1)
            assert "\n" not in str(caught.value)
            assert interpret(monitors, function, 3, *args, 0) is None
        assert monitoring.get_events(3) == 0
    finally:
        monitoring.free_tool_id(3)


def debugged() -> Any:
    try:
        return breakpoint()
    except Exception as error:
        return error


def test_another_hook_for_debuggers_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    assert interpret(debugged) is None
    monkeypatch.setenv("PYTHONBREAKPOINT", f"{__name__}.answers")
    assert interpret(debugged) == "hook"
    for wrong in (".int", "no_such_module.f", f"{__name__}.nothing"):
        monkeypatch.setenv("PYTHONBREAKPOINT", wrong)
        with pytest.warns(
            RuntimeWarning, match=re.escape(f'Ignoring unimportable $PYTHONBREAKPOINT: "{wrong}"')
        ):
            assert interpret(debugged) is None
    monkeypatch.setattr(sys, "breakpointhook", lambda: "own")
    assert interpret(debugged) == "own"
    monkeypatch.delattr(sys, "breakpointhook")
    assert str(interpret(debugged)) == str(debugged()) == "lost sys.breakpointhook"


@pytest.mark.parametrize(
    "name", [".", ".int", ".a.b", "nowhere.int", "int.", "no.such.thing", "nope"]
)
def test_a_hook_for_debuggers_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.setenv("PYTHONBREAKPOINT", name)
    with pytest.warns(RuntimeWarning, match="^Ignoring unimportable") as seen:
        assert interpret(debugged) is debugged() is None
    assert len({str(warning.message) for warning in seen}) == 1
    assert len(seen) == 2


def answers() -> str:
    return "hook"


def starts_a_thread() -> list[int]:
    found: list[int] = []
    thread = threading.Thread(target=found.append, args=(1,))
    thread.start()
    thread.join()
    return found


def test_threads_with_a_profile_function_are_refused_where_they_start() -> None:
    old = threading.getprofile()
    threading.setprofile(lambda *event: None)
    try:
        with pytest.raises(UnsupportedError, match="^threading.setprofile: a thread") as caught:
            interpret(starts_a_thread)
    finally:
        threading.setprofile(old)
    assert "\n" not in str(caught.value)
    assert interpret(starts_a_thread) == [1]


def traces_a_thread() -> list:
    seen: list = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        seen.append((frame.f_code.co_name, event))
        return trace

    def work() -> None:
        seen.append("work")

    old = threading.gettrace()
    threading.settrace(trace)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.settrace(old)
    return [event for event in seen if "work" in event]


def test_threads_with_a_trace_function_are_traced() -> None:
    due = [("work", "call"), ("work", "line"), "work", ("work", "return")]
    assert interpret(traces_a_thread) == traces_a_thread() == due


# ---- bytecode ----------------------------------------------------------------------------------


def test_bytecode_that_is_not_run_is_no_exception_of_the_program() -> None:
    unused = max(i for i, name in enumerate(dis.opname) if name == f"<{i}>")
    body = bytes((unused, 0)) * 4
    strange = FunctionType((lambda: 1).__code__.replace(co_code=body, co_name="strange"), {})
    with pytest.raises(UnsupportedError):
        interpret(careless_call, strange)
    with pytest.raises(UnsupportedError):
        interpret(strange)


def careless_call(f: Any) -> Any:
    try:
        return f()
    except Exception:
        return "swallowed"


def bytecode(*instructions: tuple[str, int]) -> FunctionType:
    body = b"".join(bytes((dis.opmap[name], arg)) for name, arg in instructions)
    return FunctionType((lambda: 1).__code__.replace(co_code=body, co_name="strange"), {})


WRONG = {
    "no bytecode": [],
    "the bytecode runs past its end": [("RESUME", 0), ("NOP", 0)],
    "a jump leads to the middle": [("RESUME", 0), ("JUMP_FORWARD", 200), ("RETURN_VALUE", 0)],
    "the bytecode cannot be read": [("LOAD_CONST", 200), ("RETURN_VALUE", 0)],
}


@pytest.mark.parametrize("why", WRONG)
def test_wrong_bytecode_is_refused_in_one_line(why: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{why}.*; recompile") as caught:
        interpret(careless_call, bytecode(*WRONG[why]))
    assert "\n" not in str(caught.value)
