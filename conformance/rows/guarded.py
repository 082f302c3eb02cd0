"""What a program may have relied on, and what can happen to it between two calls.

A :class:`Guarded` row says what a program reads and how it may change; a :class:`Place` says from
where the program reads it, at a depth of 0 to 3. Their product is the suite ``guards``.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.case import Call, Case, Change, Compiles, Program, Step
from conformance.rows.row import TOLERANCE, inputs

DEPTHS = (0, 1, 2, 3)


@dataclass(frozen=True)
class Guarded:
    """A value, a program that reads it, and the changes that are made to it, one at a time.

    ``value``: an expression. ``use``: the body of ``def use(x, v)``, where ``v`` is the value and
    ``x`` a tensor of 4 floats. ``changes`` and ``harmless``: name -> statements in which ``v`` is
    the value at its place (``v = ...`` puts another one there). After a change of the first kind
    the next call may compile; one of the second kind cannot matter, so it must not. ``setup``: what
    ``value`` needs. ``steady``: a call that follows a call compiles nothing. ``backward``: send
    cotangents back after each call. ``undo``: statements that take back what outlives the program.
    ``deletable``: ``v`` itself is deleted by a change, which not every place can do.
    """

    name: str
    value: str
    use: str
    changes: Mapping[str, str] = field(default_factory=dict)
    harmless: Mapping[str, str] = field(default_factory=dict)
    setup: str = ""
    steady: bool = True
    backward: bool = False
    undo: str = ""
    deletable: bool = False


@dataclass(frozen=True)
class Place:
    """``source``: text that defines ``program``, with ``{value}`` for the value; it calls
    ``use(x, value)``. ``path``: how the value is reached from outside. ``call`` calls ``f``.
    ``assign``: the statement that puts ``{new}`` there. ``unrelated``: statements that change
    something beside the value. ``deletable``: the value can be deleted there. ``seen_whole``: who
    calls a program that reads a part of the value looks at all of it.
    """

    name: str
    depth: int
    source: str
    path: str
    call: str = "f(x)"
    assign: str = ""
    unrelated: Mapping[str, str] = field(default_factory=dict)
    deletable: bool = True
    seen_whole: bool = False

    @property
    def title(self) -> str:
        return f"{self.name} {self.depth}"

    def at(self, text: str) -> str:
        """The statements ``text`` with the place for ``v``."""
        lines = []
        for line in textwrap.dedent(text).strip().splitlines():
            assigned = re.match(r"(\s*)v = (.*)", line)
            if assigned and self.assign:
                new = re.sub(r"\bv\b", lambda _: self.path, assigned[2])
                line = assigned[1] + self.assign.replace("{new}", new)
            lines.append(re.sub(r"\bv\b", lambda _: self.path, line))
        return "\n".join(lines)


def case(row: Guarded, place: Place, change: str, text: str, compiles: Compiles) -> Case:
    """The history of one change (``text``): two calls, the change, and two calls more."""
    again = Compiles.NO if row.steady else Compiles.ANY

    def call(what: Compiles) -> Call:
        return Call(place.call, what, backward=row.backward)

    history: list[Step] = [
        call(Compiles.YES),
        call(again),
        Change(text),
        call(compiles),
        call(again),
    ]
    if row.undo:
        history.append(Change(place.at(row.undo)))
    return Case(
        suite="guards",
        subject=row.name,
        variant=place.title,
        program=Program(program_of(row, place), "program"),
        inputs=inputs((place.call,)),
        history=tuple(history),
        tolerance=TOLERANCE,
        label=change.replace(" ", "-"),
    )


def program_of(row: Guarded, place: Place) -> str:
    """The module that defines ``program``."""
    use = textwrap.indent(textwrap.dedent(row.use).strip("\n"), "    ")
    setup = textwrap.dedent(row.setup).strip("\n")
    source = textwrap.dedent(place.source).strip("\n").replace("{value}", row.value)
    parts = ["import torch", setup, f"def use(x, v):\n{use}", source]
    return "\n\n\n".join(part for part in parts if part) + "\n"


def _modules(depth: int) -> Place:
    source = f"""
        class Holder(torch.nn.Module):
            def __init__(self, v):
                super().__init__()
                self.v = v
                self.other = 1

            def forward(self, x):
                return use(x, self.v)


        class Outer(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                return self.inner(x)


        program = {"Outer(" * depth}Holder({{value}}){")" * depth}
        """
    owner = "model" + ".inner" * depth
    unrelated = {
        "another attribute": f"{owner}.other = 5",
        "a new attribute": f"{owner}.fresh = 5",
        "a new attribute of the outermost": "model.fresh = 5",
    }
    return Place("module", depth, source, f"{owner}.v", unrelated=unrelated)


def _closures(depth: int) -> Place:
    levels = "".join(
        f"""
            def level{i}(x):
                return level{i - 1}(x)
        """
        for i in range(1, depth + 1)
    )
    source = f"""
        def make(v):
            other = 1

            def level0(x):
                return use(x, v)
        {levels}
            def beside():
                return other

            return level{depth}, beside


        program, BESIDE = make({{value}})
        """
    path = "model" + ".__closure__[0].cell_contents" * (depth + 1)
    unrelated = {
        "a variable of another function": "BESIDE.__closure__[0].cell_contents = 5",
        "an attribute of the function": "model.fresh = 5",
    }
    return Place("closure", depth, source, path, unrelated=unrelated)


def _containers(depth: int) -> Place:
    made, path = (
        ("{{'v': {value}, 'other': 1}}", "TABLE['v']"),
        ("{{'a': [0, {value}, 1], 'other': 1}}", "TABLE['a'][1]"),
        ("{{'a': (0, {{'b': {value}, 'c': 1}}), 'other': 1}}", "TABLE['a'][1]['b']"),
        ("{{'a': (0, {{'b': [{value}, 1]}}), 'other': 1}}", "TABLE['a'][1]['b'][0]"),
    )[depth]
    made = made.replace("{{", "{").replace("}}", "}")
    source = f"""
        TABLE = {made}


        def program(x):
            return use(x, {path})
        """
    unrelated = {"another key": "TABLE['other'] = 5", "a new key": "TABLE['fresh'] = 5"}
    beside = {1: "TABLE['a'][2] = 5", 2: "TABLE['a'][1]['c'] = 5", 3: "TABLE['a'][1]['b'][1] = 5"}
    if depth:
        unrelated["its neighbour"] = beside[depth]
    return Place("container", depth, source, path, unrelated=unrelated)


def _globals(depth: int) -> Place:
    path = ("V", "SPACE.v", "SPACE.Inner.v", "SPACE.Inner.box.v")[depth]
    source = f"""
        import types


        class Box:
            pass


        SPACE = types.ModuleType("space")
        SPACE.Inner = type("Inner", (), {{"box": Box(), "other": 1}})
        {path} = {{value}}
        OTHER = 1


        def program(x):
            return use(x, {path})
        """
    unrelated = {
        "another global": "OTHER = 5",
        "a new global": "FRESH = 5",
        "another name of the module": "SPACE.fresh = 5",
        "another attribute of the class": "SPACE.Inner.other = 5",
        "a new attribute of the class": "SPACE.Inner.fresh = 5",
    }
    return Place("global", depth, source, path, unrelated=unrelated)


def _arguments(depth: int) -> Place:
    signature, inside, made, path, call = (
        ("x, v, other=1", "v", "ARG = {value}", "ARG", "f(x, ARG)"),
        ("x, *args", "args[0]", "ARGS = [{value}, 1]", "ARGS[0]", "f(x, *ARGS)"),
        ("x, **named", "named['v']", "NAMED = dict(v={value})", "NAMED['v']", "f(x, **NAMED)"),
        ("x, arg", "arg[0]['v'].v", "ARG = [{'v': Box({value})}]", "ARG[0]['v'].v", "f(x, ARG)"),
    )[depth]
    source = f"""
        class Box:
            def __init__(self, v):
                self.v = v
                self.other = 1


        {made}


        def program({signature}):
            return use(x, {inside})
        """
    unrelated = {
        0: {},
        1: {"another argument": "ARGS[1] = 5"},
        2: {},
        3: {"another attribute": "ARG[0]['v'].other = 5", "another key": "ARG[0]['w'] = 5"},
    }[depth]
    return Place("argument", depth, source, path, call, unrelated=unrelated, deletable=depth == 3)


def _instances(depth: int) -> Place:
    path = "BOX" + ".inner" * depth + ".v"
    source = f"""
        class Box:
            def __init__(self, **attributes):
                self.__dict__.update(attributes)


        BOX = {"Box(inner=" * depth}Box(v={{value}}, other=1){")" * depth}
        TWIN = Box(v=1)


        def program(x):
            return use(x, {path})
        """
    owner = path.removesuffix(".v")
    unrelated = {
        "another attribute": f"{owner}.other = 5",
        "a new attribute": f"{owner}.fresh = 5",
        "another instance": "TWIN.v = 5",
        "the class": "Box.fresh = 5",
    }
    return Place("instance", depth, source, path, unrelated=unrelated)


def _classes(depth: int) -> Place:
    derived = "".join(
        f"""
        class Level{i}(Level{i - 1}):
            level{i} = 1

        """
        for i in range(1, depth + 1)
    )
    source = f"""
        class Level0:
            v = {{value}}
            other = 1


        {derived}
        def program(x):
            return use(x, Level{depth}.v)
        """
    unrelated = {
        "another attribute": "Level0.other = 5",
        "a new attribute": f"Level{depth}.fresh = 5",
    }
    return Place("class", depth, source, "Level0.v", unrelated=unrelated)


def _defaults(depth: int) -> Place:
    source, path, assign = (
        (
            """
        def program(x, v={value}):
            return use(x, v)
        """,
            "model.__defaults__[0]",
            "model.__defaults__ = ({new},)",
        ),
        (
            """
        def inner(x, *, v={value}, other=1):
            return use(x, v)


        def program(x):
            return inner(x)
        """,
            "inner.__kwdefaults__['v']",
            "",
        ),
        (
            """
        class Owner:
            def method(self, x, v={value}):
                return use(x, v)


        OWNER = Owner()


        def program(x):
            return OWNER.method(x)
        """,
            "Owner.method.__defaults__[0]",
            "Owner.method.__defaults__ = ({new},)",
        ),
        (
            """
        import functools


        def inner(x, v):
            return use(x, v)


        PARTIAL = functools.partial(inner, v={value})


        def program(x):
            return PARTIAL(x)
        """,
            "PARTIAL.keywords['v']",
            "",
        ),
    )[depth]
    unrelated = {
        0: {"an annotation": "model.__annotations__['v'] = int"},
        1: {"another default": "inner.__kwdefaults__['other'] = 5"},
        2: {"the documentation": "Owner.method.__doc__ = 'text'"},
        3: {"an attribute of the function": "inner.fresh = 5"},
    }[depth]
    return Place(
        "default", depth, source, path, "f(x)", assign, unrelated,
        deletable=False, seen_whole=depth == 3,
    )  # fmt: skip


PLACES = tuple(
    make(depth)
    for make in (
        _modules,
        _closures,
        _containers,
        _globals,
        _arguments,
        _instances,
        _classes,
        _defaults,
    )
    for depth in DEPTHS
)
