"""``refcompiler step``: the trace, the session with scripted commands, and what is refused."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from conformance.cli import main
from refcompiler.interpreter.api import call_on
from refcompiler.stepper.control import Breakpoint, Observed, Quit, Stops
from refcompiler.stepper.session import HELP, Session
from refcompiler.stepper.view import View, shown

PROGRAM = """\
def inner(x):
    return x * 2


def outer(a, b=(1, 2), *, key=None):
    total = a
    try:
        for i in b:
            total += inner(i)
        {}["k"]
    except KeyError as error:
        print("caught", error)
    return total


def fails():
    return 1 / 0


class Loud:
    def __repr__(self):
        raise SystemExit("the program's repr ran")


def holds():
    loud = Loud()
    return [loud]


async def waits():
    return 1


def yields():
    yield 1


async def does_both():
    yield 1


def closes():
    import sys
    sys.stdout.close()


def speaks():
    größe = "日本"
    return größe


value = 3
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "stepped_program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def step(*words: str) -> Result:
    return CliRunner().invoke(main, ["step", *words])


# ---- the trace ---------------------------------------------------------------------------------


def test_a_trace_shows_lines_instructions_stack_variables_and_handlers(program: Path) -> None:
    found = step(f"{program}:outer", "5")
    assert found.exit_code == 0, found.output
    lines = [line.split(maxsplit=1)[-1] for line in found.output.splitlines()]
    assert f"{program}:5" in found.output.splitlines()[0]
    for expected in (
        "8 | for i in b:",
        "a = 5",
        "key = None",
        "total = 11",
        "'caught'",
        "handlers: ",
        "LOAD_CONST",
        "<tuple_iterator>, 5",
        "NULL, <function inner>, 1]",
    ):
        assert expected in found.output, expected
    assert "caught 'k'" in found.output.splitlines()  # what the program prints
    assert lines[-1] == "11"
    assert sum("LOAD_FAST" in line and " x " in line for line in lines) == 2


def test_the_trace_runs_every_instruction_once(program: Path) -> None:
    found = step(f"{program}:inner", "4")
    numbers = [int(line[:6]) for line in found.output.splitlines() if line[:6].strip().isdigit()]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 5
    assert found.output.endswith("returned 8\n")


def test_only_and_max_steps(program: Path) -> None:
    found = step(f"{program}:outer", "5", "--only", "inn*")
    assert "x = 2" in found.output and "total" not in found.output
    assert found.output.endswith("returned 11\n")
    few = step(f"{program}:outer", "5", "--max-steps", "3")
    assert few.exit_code == 0 and few.output.endswith("stopped after 3 instructions\n")
    assert sum(line[:6].strip().isdigit() for line in few.output.splitlines()) == 3


@pytest.mark.parametrize("words", [("--only", "nobody"), ("--break", "999")])
def test_that_nothing_was_looked_at_is_said(program: Path, words: tuple[str, str]) -> None:
    found = step(f"{program}:outer", "5", *words)
    missed = f"nothing of it was looked at: what ran did not come to {' '.join(words)}\n"
    assert found.exit_code == 0 and found.output.endswith(missed + "returned 11\n")


def test_a_trace_from_a_breakpoint(program: Path) -> None:
    found = step(f"{program}:outer", "5", "--break", "stepped_program.py:2")
    rows = [line for line in found.output.splitlines() if line[:6].strip().isdigit()]
    assert len(rows) == 2 and all("LOAD_FAST" in row and " x " in row for row in rows)


def test_arguments_by_name_and_negative_ones(program: Path) -> None:
    assert step(f"{program}:outer", "-3", "b=(4,)").output.endswith("returned 5\n")


def test_a_module_by_name(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(program.parent)
    monkeypatch.setattr(sys, "path", [""])
    monkeypatch.delitem(sys.modules, "stepped_program", raising=False)
    assert step("stepped_program:inner", "'ab'").output.endswith("returned 'abab'\n")
    assert "ran natively" in step("builtins:len", "[1]").output


def test_a_failing_program_is_shown_as_python_shows_it(program: Path) -> None:
    found = step(f"{program}:fails")
    assert found.exit_code == 1
    native = subprocess.run(
        [sys.executable, "-c", f"import runpy; runpy.run_path({str(program)!r})['fails']()"],
        capture_output=True,
        text=True,
        check=False,
    )
    shared = native.stderr.splitlines()[-4:]
    assert shared[0].startswith("  File ") and shared[-1] == "ZeroDivisionError: division by zero"
    head, *rest = found.stderr.splitlines()
    assert head == "Traceback (most recent call last):" and rest == shared


def test_no_repr_of_the_program_runs(program: Path) -> None:
    found = step(f"{program}:holds")
    assert found.exit_code == 0
    assert "loud = <Loud>" in found.output and found.output.endswith("returned [<Loud>]\n")


@pytest.mark.parametrize(
    ("name", "needs"),
    [("waits", "awaits"), ("yields", "iterates over"), ("does_both", "has an `async for` over")],
)
@pytest.mark.filterwarnings("error")
def test_a_body_that_did_not_begin_is_said_to_be_so(name: str, needs: str, program: Path) -> None:
    found = step(f"{program}:{name}")
    assert found.exit_code == 0 and "natively" not in found.output
    assert found.output.splitlines()[-1].endswith(
        f"through a function that {needs} {program}:{name}(...)"
    )


def shell(words: str, **variables: str) -> subprocess.CompletedProcess:
    """``words`` after the stepper's command, to a shell."""
    command = f"{shlex.quote(sys.executable)} -m conformance.cli step {words}"
    return subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **variables},
    )


def test_an_output_without_letters(program: Path) -> None:
    found = shell(f"{program}:speaks", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert found.returncode == 0 and found.stdout.endswith("returned '\\u65e5\\u672c'\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (":closes", "the trace cannot be written: I/O operation on closed file"),
        (":fails >&-", "there is no standard output to write to"),
        pytest.param(
            ":holds >/dev/full",
            "the trace cannot be written: [Errno 28] No space left on device",
            marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full"),
        ),
    ],
)
def test_an_output_that_is_lost_is_one_line(words: str, why: str, program: Path) -> None:
    found = shell(f"{program}{words}")
    assert found.returncode == 2
    assert found.stderr.startswith(f"refcompiler step: {why}") and found.stderr.count("\n") == 1


def test_no_input_and_a_reader_that_leaves(program: Path) -> None:
    assert shell(f"{program}:fails <&-").stderr.endswith("ZeroDivisionError: division by zero\n")
    assert shell(f"{program}:holds | head -n 1").stderr == ""


# ---- what is refused ---------------------------------------------------------------------------

REFUSED = {
    "no_such_module_here:f": "there is no module 'no_such_module_here' here",
    "os.path.deeper:f": "there is no module 'os.path.deeper' here",
    "no_such_file.py:f": "there is no file no_such_file.py",
    "{program}:nothing": "has no 'nothing'",
    "{program}:value": "is of type int, which cannot be called",
    "{program}": "names no function: write module:function or file.py:function",
    ".relative:f": "neither a module's name nor a file that ends in .py",
    "{program}:inner word": "the argument word is not a Python literal",
    "{program}:inner x=1 2": "the argument 2 comes after one with a name",
    "{program}:inner x=1 x=2": "the argument x is given twice",
    "{program}:inner 1 --break here": "'here' is not a place",
}


@pytest.mark.parametrize("words", REFUSED)
def test_refused_in_one_line(words: str, program: Path) -> None:
    found = step(*words.replace("{program}", str(program)).split())
    assert found.exit_code == 2 and found.stdout == ""
    assert REFUSED[words] in found.stderr
    assert found.stderr.startswith("refcompiler step: ") and found.stderr.count("\n") == 1


def test_what_importing_raises_is_the_modules_own(tmp_path: Path) -> None:
    path = tmp_path / "broken_program.py"
    path.write_text("import no_such_module_here\n")
    found = step(f"{path}:f")
    assert found.exit_code == 1
    assert found.stderr.endswith("No module named 'no_such_module_here'\n")
    assert found.stderr.splitlines()[1].endswith(f'"{path}", line 1, in <module>')


# ---- the session -------------------------------------------------------------------------------


def session(function: Callable, args: tuple, commands: list[str], **options: Any) -> tuple:
    """What is on the console, the result, the lines stopped at, and how many commands are left."""
    out = io.StringIO()
    console = Console(file=out, width=120, highlight=False)
    left = list(commands)
    places: list[tuple[str, int]] = []
    talk = Session(console, Stops(**options), lambda: left.pop(0) if left else None)

    def before(machine: Any, frame: Any) -> None:
        asked = len(left)
        view = View(frame, machine.steps)
        talk.before(machine, frame)
        if len(left) < asked:
            places.append((view.function, view.line))

    try:
        result: Any = call_on(Observed(before), function, args, {}, globals(), {})
    except Quit as signal:
        result = signal
    return out.getvalue(), result, places, len(left)


def load(path: Path) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "stepped_program"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    return space


def test_lines_calls_and_out(program: Path) -> None:
    """n goes by lines, s goes into a call, u comes back, c runs to the end."""
    outer = load(program)["outer"]
    commands = ["n", "n", "n", *["s"] * 5, "u", "c"]
    _, result, places, left = session(outer, (5,), commands)
    assert result == 11 and left == 0
    lines = [line for _, line in places]
    assert lines[:4] == [5, 6, 8, 9]
    assert ("inner", 1) in places[4:9] and places[8][0] == "inner"
    assert places[9] == ("outer", 9)


def test_over_does_not_enter_calls(program: Path) -> None:
    outer = load(program)["outer"]
    _, result, places, _ = session(outer, (5,), ["o"] * 500)
    assert result == 11 and {name for name, _ in places} == {"outer"} and len(places) > 40


def test_breakpoints_go_to_and_repeating(program: Path) -> None:
    outer = load(program)["outer"]
    text, result, places, _ = session(outer, (5,), ["b 2", "c", "", "b 2", "g 13", "c"])
    assert result == 11
    assert [line for _, line in places] == [5, 2, 2, 13]
    assert "breakpoint 2 set" in text and "breakpoint 2 removed" in text
    assert "*->    2      return x * 2" in text


def test_printing_callers_help_and_mistakes(program: Path) -> None:
    outer = load(program)["outer"]
    commands = [
        "w",
        "p a",
        "p value",
        "p len",
        "p nobody",
        "h",
        "x",
        "g",
        "b there",
        "b 2",
        "c",
        "w",
    ]
    text, result, _, _ = session(outer, (5,), commands)
    assert isinstance(result, Quit)  # the commands ended
    for expected in (
        "nobody: it was called first",
        "a = 5",
        "value = 3",
        "len = <function len>",
        "nobody has no value here",
        "'x' is no command",
        "'g' is no command",
        "'there' is not a place",
        f"outer, {program}:9",
        HELP.splitlines()[0],
    ):
        assert expected in text, expected


def test_the_screen_has_everything(program: Path) -> None:
    outer = load(program)["outer"]
    text, *_ = session(outer, (5,), ["c", "q"], breakpoints=(Breakpoint(12),))
    assert "outer" in text and "instruction 1" in text
    for title in ("source", "instructions", "stack, top first", "locals"):
        assert f" {title} " in text
    text, *_ = session(outer, (5,), ["b 12", "c", "q"])
    stop = text[text.rindex("instructions") :]
    assert "handlers" in stop and "KeyError('k')" in stop and "error = KeyError('k')" in stop


def test_the_stepper_keeps_no_object_alive(program: Path) -> None:
    """What the program drops is gone at once, while it is stepped through too."""
    seen: list[str] = []

    class Thing:
        def __del__(self) -> None:
            seen.append("gone")

    def inside() -> None:
        thing = Thing()
        assert thing is not None

    def around() -> list[str]:
        inside()
        return list(seen)

    for command in "sno":
        seen.clear()
        assert session(around, (), [command] * 500)[1] == ["gone"]


def test_the_steppers_own_failure_is_not_the_programs() -> None:
    def before(machine: Any, frame: Any) -> None:
        raise OSError("the terminal is gone")

    def program() -> str:
        try:
            return "ran"
        except OSError:
            return "caught"

    machine = Observed(before)
    with pytest.raises(Quit):
        call_on(machine, program, (), {}, globals(), {})
    assert isinstance(machine.failure, OSError)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, (2,), {}], "[1, (2,), {}]"),
        ({"a": {1}, "b": set()}, "{'a': {1}, 'b': set()}"),
        (list(range(9)), "[0, 1, 2, 3, 4, 5, ...]"),
        ("x" * 80, "'" + "x" * 56 + "..."),
        (ValueError(1, "a"), "ValueError(1, 'a')"),
        (int, "<class int>"),
        ("a".upper, "<function str.upper>"),
        (10**2000, "<a large int>"),
    ],
)
def test_values_as_text(value: Any, text: str) -> None:
    assert shown(value) == text


def test_torch_is_not_needed() -> None:
    code = (
        "import sys\nimport refcompiler.stepper.command\n"
        "from conformance.cli import main\nassert 'step' in main.commands\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
