"""The console command ``refcompiler step``."""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import traceback
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import click
from rich.console import Console

from refcompiler.errors import UnsupportedError
from refcompiler.interpreter.api import call_on
from refcompiler.interpreter.tracebacks import user_part
from refcompiler.stepper.control import Breakpoint, Observed, Quit, Stops
from refcompiler.stepper.session import WITH_PLACE, Session
from refcompiler.stepper.target import BadTarget, arguments_of, function_of
from refcompiler.stepper.trace import OutputLost, Trace, printable
from refcompiler.stepper.view import shown

RAISED, CANNOT_STEP = 1, 2


@click.command(context_settings={"ignore_unknown_options": True})  # -3 is an argument
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--plain", is_flag=True, help="A trace, as when the output is not a terminal.")
@click.option("--max-steps", type=click.IntRange(min=1), help="End a trace after so many lines.")
@click.option(
    "--only",
    multiple=True,
    metavar="FUNCTION",
    help="Look only at functions of this name (* ? [...] match); may be repeated.",
)
@click.option(
    "--break",
    "places",
    multiple=True,
    metavar="[FILE:]LINE",
    help="Run to this line before the first stop; may be repeated.",
)
def step(
    target: str,
    arguments: tuple[str, ...],
    plain: bool,
    max_steps: int | None,
    only: tuple[str, ...],
    places: tuple[str, ...],
) -> None:
    """Step through a Python function, instruction by instruction.

    TARGET is module:function or file.py:function; ARGUMENTS are Python literals, by name as
    name=literal. On a terminal it stops before every instruction and takes commands (h lists
    them); elsewhere it prints a trace.

    Exit status: 0 it returned or was left, 1 it raised, 2 it could not be stepped through.
    """
    try:
        breakpoints = tuple(Breakpoint.parse(text) for text in places)
        args, kwargs = arguments_of(arguments)
        with _as_python_shows_it():
            function = function_of(target)
    except (BadTarget, ValueError) as error:
        _refuse(str(error))
    if sys.stdout is None:
        _refuse("there is no standard output to write to")
    stops = Stops(only, breakpoints)
    if breakpoints:
        stops.breakpoint()
    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if plain or not terminal:
        before = Trace(sys.stdout, stops, max_steps).before
    else:
        before = Session(Console(highlight=False), stops, read_command).before
    machine = Observed(before)
    space = {"__name__": "__main__", "__builtins__": builtins}
    try:
        with _as_python_shows_it():
            found = call_on(machine, function, args, kwargs, space, space)
    except Quit as signal:
        if isinstance(machine.failure, OutputLost):
            _no_more_output()
            _refuse(f"the trace cannot be written: {machine.failure}")
        if machine.failure is not None:
            raise machine.failure from None
        click.echo(str(signal))
        return
    except UnsupportedError as error:
        _refuse(str(error))
    try:
        if machine.steps and not stops.stopped:
            print(_never(only, places))
        print(_ending(target, found, machine.steps), flush=True)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        _no_more_output()
        _refuse(f"the trace cannot be written: {error}")


def _never(only: tuple[str, ...], places: tuple[str, ...]) -> str:
    """Why there was nothing to see, of a program that ran."""
    missed = [f"--only {name}" for name in only] + [f"--break {place}" for place in places]
    return f"nothing of it was looked at: what ran did not come to {', '.join(missed)}"


def _ending(target: str, found: Any, steps: int) -> str:
    lines = [f"returned {printable(shown(found), sys.stdout)}"]
    needs = _SUSPENDED.get(type(found))
    if needs is not None:
        lines.append(f"its body has not begun: step through a function that {needs} {target}(...)")
        if isinstance(found, CoroutineType):
            found.close()  # or CPython warns that nobody awaited it
    elif steps == 0:
        lines.insert(0, f"{target} ran natively: there is no Python code in it to step through")
    return "\n".join(lines)


#: What runs the body of what a call of such a function answers.
_SUSPENDED: dict[type, str] = {
    GeneratorType: "iterates over",
    CoroutineType: "awaits",
    AsyncGeneratorType: "has an `async for` over",
}


def read_command() -> str | None:
    """A command from the keyboard: one key, and a line where a command needs more."""
    click.echo("step> ", nl=False)
    try:
        key = click.getchar()
        if key in ("\r", "\n"):
            key = ""
        click.echo(key, nl=key not in tuple(WITH_PLACE))
        return key + " " + input(" ") if key and key in WITH_PLACE else key
    except (EOFError, KeyboardInterrupt):
        return None


@contextlib.contextmanager
def _as_python_shows_it() -> Any:
    """An exception of the program is printed with its traceback, and ends the command."""
    try:
        yield
    except (BadTarget, Quit, UnsupportedError):
        raise
    except SystemExit:
        raise
    except BaseException as error:
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # nobody reads on, or it is closed
            _no_more_output()
        entry = user_part(error.__traceback__)
        while entry is not None and entry.tb_frame.f_globals.get("__name__") in _OURS:
            entry = entry.tb_next
        traceback.print_exception(type(error), error, entry)
        sys.exit(RAISED)


_OURS = {__name__, "refcompiler.stepper.target", "refcompiler.interpreter.api", "importlib",
         "importlib._bootstrap", "importlib._bootstrap_external"}  # fmt: skip


def _no_more_output() -> None:
    """What is still to be written at exit would fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout.flush()


def _refuse(line: str) -> Any:
    click.echo(f"refcompiler step: {' '.join(line.split())}", err=True)
    sys.exit(CANNOT_STEP)
