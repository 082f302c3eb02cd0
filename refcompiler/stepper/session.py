"""The stepper on a terminal: the frame on a screen, and commands of one letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from refcompiler.interpreter.frame import Frame
from refcompiler.own_builtins import BUILTINS
from refcompiler.stepper.control import Breakpoint, Quit, Stops
from refcompiler.stepper.view import View, shown

__builtins__ = BUILTINS

HELP = """\
s         step: one instruction, into calls (Return repeats the last command)
o         over: one instruction, calls run to their end
n         next line of this function
u         up: out of this function, to its caller
c         continue to a breakpoint or the end
g PLACE   go to a line (12, or file.py:12)
b PLACE   set or remove a breakpoint
p NAME    print a variable of this function, a global or a builtin
w         who called
h         this help
q         quit"""

#: Commands that take the rest of a line.
WITH_PLACE = "gbp"


class Session:
    """Stops where the commands say. ``ask`` answers with the next command line, None at the end."""

    def __init__(self, console: Console, stops: Stops, ask: Callable[[], str | None]):
        self.console = console
        self.stops = stops
        self.ask = ask
        self._last = "s"

    def before(self, machine: Any, frame: Frame) -> None:
        if not self.stops.here(frame):
            return
        view = View(frame, machine.steps)
        if self.console.is_terminal:
            self.console.clear()
        self.console.print(screen(view, self.stops, machine.handled()))
        while not self._obey(frame, view):
            pass

    def _obey(self, frame: Frame, view: View) -> bool:
        """Ask for one command; whether the program goes on."""
        line = self.ask()
        if line is None:
            raise Quit("quit")
        line = line.strip() or self._last
        command, rest = line[0], line[1:].strip()
        self._last = line
        going = {
            "s": self.stops.into,
            "o": self.stops.over,
            "n": self.stops.line,
            "u": self.stops.out,
            "c": self.stops.breakpoint,
        }.get(command)
        if going is not None and not rest:
            going(frame)
            return True
        if command == "q" and not rest:
            raise Quit("quit")
        if command in "gb" and rest:
            return self._place(command, rest)
        if command == "p" and rest:
            self._say(self._value(rest, frame))
        elif command == "w" and not rest:
            callers = list(view.callers())
            self._say("\n".join(callers) if callers else "nobody: it was called first")
        elif command == "h" and not rest:
            self._say(HELP)
        else:
            self._say(f"{line!r} is no command; h shows them all")
        return False

    def _place(self, command: str, text: str) -> bool:
        try:
            place = Breakpoint.parse(text)
        except ValueError as error:
            self._say(str(error))
            return False
        if command == "g":
            self.stops.until(place)
            return True
        is_set = self.stops.toggle(place)
        self._say(f"breakpoint {place} {'set' if is_set else 'removed'}")
        return False

    def _value(self, name: str, frame: Frame) -> str:
        view = View(frame, 0).locals()
        if name in view:
            return f"{name} = {view[name]}"
        for space in (frame.globals, frame.builtins):
            if name in space:
                return f"{name} = {shown(space[name])}"
        return f"{name} has no value here"

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)


# ---- the screen ------------------------------------------------------------------------------


def screen(view: View, stops: Stops, handled: BaseException | None) -> RenderableType:
    """Everything about the frame: source, instructions, stack, variables, handlers."""
    title = f"{view.function}  {view.file}:{view.line}  instruction {view.step}"
    state: list[RenderableType] = [_stack(view), _variables(view)]
    blocks = view.handlers()
    if blocks:
        state.append(Panel(Text("\n".join(blocks)), title="handlers", title_align="left"))
    if handled is not None:
        state.append(Panel(Text(shown(handled)), title="handling", title_align="left"))
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(_listing(view), Group(*state))
    return Group(Text(title, style="bold"), _source(view, stops), grid, _hint())


def _source(view: View, stops: Stops) -> RenderableType:
    text = Text()
    for number, line in view.source_lines(4):
        current = number == view.line
        stop = any(b.holds(view.file, number) for b in stops.breakpoints)
        mark = "->" if current else "  "
        text.append(
            f"{'*' if stop else ' '}{mark} {number:4d}  {line}\n",
            style="bold reverse" if current else "",
        )
    if not text:
        text.append("(no source)")
    text.rstrip()
    return Panel(text, title="source", title_align="left")


def _listing(view: View) -> RenderableType:
    text = Text()
    for line in view.listing(7):
        text.append(
            f"{'->' if line.current else '  '} {line}\n",
            style="bold reverse" if line.current else "",
        )
    text.rstrip()
    return Panel(text, title="instructions", title_align="left")


def _stack(view: View) -> RenderableType:
    values = view.stack()[::-1]
    return Panel(Text("\n".join(values) or "(empty)"), title="stack, top first", title_align="left")


def _variables(view: View) -> RenderableType:
    found = [f"{name} = {text}" for name, text in view.locals().items()]
    return Panel(Text("\n".join(found) or "(none)"), title="locals", title_align="left")


def _hint() -> RenderableType:
    words = ["s step", "o over", "n next line", "u up", "c continue", "g go to", "b break"]
    return Columns([Text(word, style="dim") for word in [*words, "p print", "h help", "q quit"]])
