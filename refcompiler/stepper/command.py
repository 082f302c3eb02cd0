"""The console command ``refcompiler step``."""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import Any

import click
from rich.console import Console

from refcompiler.errors import UnsupportedError
from refcompiler.interpreter.api import call_on
from refcompiler.interpreter.tracebacks import user_part
from refcompiler.stepper.control import Breakpoint, Observed, Quit, Stops
from refcompiler.stepper.session import WITH_PLACE, Session
from refcompiler.stepper.target import BadTarget, arguments_of, function_of
from refcompiler.stepper.trace import Trace
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
    stops = Stops(only, breakpoints)
    if breakpoints:
        stops.breakpoint()
    if plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        before = Trace(sys.stdout, stops, max_steps).before
    else:
        before = Session(Console(highlight=False), stops, read_command).before
    machine = Observed(before)
    try:
        with _as_python_shows_it():
            found = call_on(machine, function, args, kwargs)
    except Quit as signal:
        if machine.failure is not None:
            raise machine.failure from None
        click.echo(str(signal))
        return
    except UnsupportedError as error:
        _refuse(str(error))
    if machine.steps == 0:
        click.echo(f"{target} ran natively: there is no Python code in it to step through")
    click.echo(f"returned {shown(found)}")


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
        sys.stdout.flush()
        entry = user_part(error.__traceback__)
        while entry is not None and entry.tb_frame.f_globals.get("__name__") in _OURS:
            entry = entry.tb_next
        traceback.print_exception(type(error), error, entry)
        sys.exit(RAISED)


_OURS = {__name__, "refcompiler.stepper.target", "refcompiler.interpreter.api", "importlib",
         "importlib._bootstrap", "importlib._bootstrap_external"}  # fmt: skip


def _refuse(line: str) -> Any:
    click.echo(f"refcompiler step: {' '.join(line.split())}", err=True)
    sys.exit(CANNOT_STEP)
