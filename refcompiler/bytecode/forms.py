"""One vocabulary for the bytecode of every Python: what each instruction stands for.

Where two versions say the same differently, the decoder writes one of the two: mostly that of 3.11,
whose instructions do one thing each. Where they differ in meaning, an instruction keeps its name.
So there is one set of handlers, and nothing about a version is asked while a program runs.

A form appends to ``out`` what an instruction of one version stands for. The forms of a version are
those of the version before it, with the differences below.
"""

from __future__ import annotations

import dis
import opcode
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


class Step(NamedTuple):
    """A canonical instruction: ``arg`` is its plain argument, ``value`` what that stands for."""

    name: str
    arg: int
    value: Any


class Raw(NamedTuple):
    """An instruction as CPython writes it."""

    name: str
    arg: int


Form = Callable[[list[Any], Raw, CodeType], None]

#: Of an instruction that stands for one instruction: what its argument stands for.
ARGUMENT, CONSTANT, NAME, SLOT, COMPARISON, TARGET, NOTHING = range(7)


def slot_names(code: CodeType) -> tuple[str, ...]:
    """The frame's slots in CPython's order; a parameter that is also a cell has one slot."""
    locals_ = code.co_varnames
    cells = tuple(name for name in code.co_cellvars if name not in locals_)
    return locals_ + cells + code.co_freevars


_new: Any = tuple.__new__  # past the constructor in Python, for what is frequent


def _plain(out: list[Any], raw: Raw, code: CodeType) -> None:
    out.append(Step(raw.name, raw.arg, raw.arg))


# ---- 3.11 ------------------------------------------------------------------------------------


def _load_global(out: list[Step], raw: Raw, code: CodeType) -> None:
    value = code.co_names[raw.arg >> 1], bool(raw.arg & 1)
    out.append(_new(Step, (raw.name, raw.arg, value)))


def _keyword_names(out: list[Step], raw: Raw, code: CodeType) -> None:
    out.append(Step(raw.name, raw.arg, code.co_consts[raw.arg]))


def _push_null(out: list[Step], raw: Raw, code: CodeType) -> None:
    """``value`` is how many values lie above the NULL."""
    out.append(_new(Step, (raw.name, raw.arg, 0)))


_SLOTS = [dis.opname[op] for op in (*dis.haslocal, *dis.hasfree)]
_JUMPS = [dis.opname[op] for op in dis.hasjrel]
_311: dict[str, Form | int] = {
    **dict.fromkeys(_SLOTS, SLOT),
    **dict.fromkeys(_JUMPS, TARGET),
    **dict.fromkeys(("PRECALL", "NOP"), NOTHING),
    "LOAD_CONST": CONSTANT,
    **dict.fromkeys(("LOAD_NAME", "STORE_NAME", "DELETE_NAME"), NAME),
    **dict.fromkeys(("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_FROM"), NAME),
    **dict.fromkeys(("LOAD_ATTR", "STORE_ATTR", "DELETE_ATTR", "LOAD_METHOD"), NAME),
    "COMPARE_OP": COMPARISON,
    "LOAD_GLOBAL": _load_global,
    "KW_NAMES": _keyword_names,
    "PUSH_NULL": _push_null,
}

# ---- 3.12 ------------------------------------------------------------------------------------

#: Functions of CALL_INTRINSIC_1 that were opcodes of their own.
_FORMER_OPCODES = {
    "INTRINSIC_PRINT": "PRINT_EXPR",
    "INTRINSIC_IMPORT_STAR": "IMPORT_STAR",
    "INTRINSIC_ASYNC_GEN_WRAP": "ASYNC_GEN_WRAP",
    "INTRINSIC_UNARY_POSITIVE": "UNARY_POSITIVE",
    "INTRINSIC_LIST_TO_TUPLE": "LIST_TO_TUPLE",
    "INTRINSIC_PREP_RERAISE_STAR": "PREP_RERAISE_STAR",
}
_WITHOUT_VALUE = ("INTRINSIC_PRINT", "INTRINSIC_IMPORT_STAR")
UNARY_INTRINSICS: tuple[str, ...] = tuple(getattr(opcode, "_intrinsic_1_descs", ()))
BINARY_INTRINSICS: tuple[str, ...] = tuple(getattr(opcode, "_intrinsic_2_descs", ()))


def _return_const(out: list[Step], raw: Raw, code: CodeType) -> None:
    out += Step("LOAD_CONST", raw.arg, code.co_consts[raw.arg]), Step("RETURN_VALUE", 0, 0)


def _load_attr(out: list[Step], raw: Raw, code: CodeType) -> None:
    """The lowest bit asks for room for the method's ``self``."""
    name = "LOAD_METHOD" if raw.arg & 1 else "LOAD_ATTR"
    out.append(_new(Step, (name, raw.arg >> 1, code.co_names[raw.arg >> 1])))


def _load_super_attr(out: list[Step], raw: Raw, code: CodeType) -> None:
    """A call of ``super``, with two arguments if the second bit is set, and an attribute of it."""
    name = "LOAD_METHOD" if raw.arg & 1 else "LOAD_ATTR"
    out.append(Step(raw.name, raw.arg & 2, raw.arg & 2))
    out.append(Step(name, raw.arg >> 2, code.co_names[raw.arg >> 2]))


def _comparison(shift: int) -> Form:
    def form(out: list[Step], raw: Raw, code: CodeType) -> None:
        kind = raw.arg >> shift
        out.append(Step(raw.name, kind, dis.cmp_op[kind]))
        if shift > 4 and raw.arg & 16:
            out.append(Step("TO_BOOL", 0, 0))

    return form


def _slice_and(name: str) -> Form:
    def form(out: list[Step], raw: Raw, code: CodeType) -> None:
        out += Step("BUILD_SLICE", 2, 2), Step(name, 0, 0)

    return form


def _intrinsic(names: tuple[str, ...]) -> Form:
    def form(out: list[Step], raw: Raw, code: CodeType) -> None:
        found = names[raw.arg]
        out.append(Step(_FORMER_OPCODES.get(found, found), raw.arg, raw.arg))
        if found in _WITHOUT_VALUE:
            out.append(Step("LOAD_CONST", 0, None))

    return form


_312: dict[str, Form | int] = {
    **_311,
    **dict.fromkeys(("END_FOR", "END_SEND", "CLEANUP_THROW"), NOTHING),
    "LOAD_FROM_DICT_OR_GLOBALS": NAME,
    "LOAD_ATTR": _load_attr,
    "LOAD_SUPER_ATTR": _load_super_attr,
    "COMPARE_OP": _comparison(4),
    "RETURN_CONST": _return_const,
    "BINARY_SLICE": _slice_and("BINARY_SUBSCR"),
    "STORE_SLICE": _slice_and("STORE_SUBSCR"),
    "CALL_INTRINSIC_1": _intrinsic(UNARY_INTRINSICS),
    "CALL_INTRINSIC_2": _intrinsic(BINARY_INTRINSICS),
}

# ---- 3.13 ------------------------------------------------------------------------------------


def _push_null_below(out: list[Step], raw: Raw, code: CodeType) -> None:
    """The callable is there already; the NULL belongs below it as in the versions before."""
    out.append(Step(raw.name, raw.arg, 1))


def _pair(first: str, second: str) -> Form:
    def form(out: list[Step], raw: Raw, code: CodeType) -> None:
        a, b = raw.arg >> 4, raw.arg & 15
        if max(a, b) >= len(slot_names(code)):
            raise IndexError(f"there is no local variable {max(a, b)}")
        out += Step(first, a, a), Step(second, b, b)

    return form


def _set_function_attribute(out: list[Step], raw: Raw, code: CodeType) -> None:
    """Part of the MAKE_FUNCTION before it, whose argument's bits say what lies below the code.

    The last thing below the code is set first.
    """
    last = out[-1] if out else None
    if last is None or last.name != "MAKE_FUNCTION" or last.arg and raw.arg >= last.arg & -last.arg:
        _plain(out, raw, code)  # not what a compiler writes: it is refused by its name
        return
    flags = last.arg | raw.arg
    out[-1] = Step("MAKE_FUNCTION", flags, flags)


_313: dict[str, Form | int] = {
    **_312,
    "PUSH_NULL": _push_null_below,
    "COMPARE_OP": _comparison(5),
    "LOAD_FAST_LOAD_FAST": _pair("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": _pair("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": _pair("STORE_FAST", "STORE_FAST"),
    "SET_FUNCTION_ATTRIBUTE": _set_function_attribute,
}

_FORMS = {(3, 11): _311, (3, 12): _312, (3, 13): _313}
#: What an instruction takes with it. SEND stands for a whole delegation, whose loop is not
#: interpreted; at the end of a loop only FOR_ITER gets to END_FOR, and drops the iterator itself.
_SEND: dict[str, tuple[str, ...]] = {
    "SEND": ("YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT")
}
_SWALLOWS: dict[tuple[int, int], dict[str, tuple[str, ...]]] = {
    (3, 11): _SEND,
    (3, 12): {**_SEND, "CLEANUP_THROW": ("JUMP_BACKWARD",)},
    (3, 13): {
        **_SEND,
        "CLEANUP_THROW": ("JUMP_BACKWARD_NO_INTERRUPT",),
        "END_FOR": ("POP_TOP",),
    },
}

#: What asks for a truth, and asks itself: a TO_BOOL before it (3.13) has nothing left to do.
TESTS = frozenset({"POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "UNARY_NOT"})
#: The versions whose bytecode is known.
KNOWN = frozenset(_FORMS)
RUNNING = sys.version_info[:2]
FORMS: dict[str, Form | int] = _FORMS.get(RUNNING, {})
_TAKEN = _SWALLOWS.get(RUNNING, {})
#: Other names for the same thing.
_SAME = {"JUMP_BACKWARD_NO_INTERRUPT": "JUMP_BACKWARD"}  # signals are CPython's affair


class Opcode(NamedTuple):
    """``size``: bytes with the caches behind it. ``backward``: the sign of a jump's distance.

    ``form`` is None for an instruction that stands for one, whose argument stands for what
    ``shows`` says. ``takes``: the instructions that it takes with it. ``known`` is the name under
    which it is handled.
    """

    name: str
    known: str
    size: int
    shows: int
    form: Form | None
    backward: bool
    tests: bool
    takes: tuple[str, ...]


def _opcode(number: int, name: str) -> Opcode:
    # Before 3.11 there were no caches; such a Python is refused, by what asks after this import.
    caches: Any = getattr(opcode, "_inline_cache_entries", {})
    count = caches.get(name, 0) if isinstance(caches, dict) else caches[number]
    form = FORMS.get(name, ARGUMENT)
    return Opcode(
        name,
        _SAME.get(name, name),
        2 + 2 * count,
        form if isinstance(form, int) else ARGUMENT,
        None if isinstance(form, int) else form,
        "BACKWARD" in name,
        name in TESTS,
        _TAKEN.get(name, ()),
    )


EXTENDED_ARG = dis.EXTENDED_ARG
#: By number; None for numbers that no instruction has. A CACHE where none belongs is what CPython
#: makes of such a number when asked for the code.
OPCODES: list[Opcode | None] = [None] * 256
for _name, _number in dis.opmap.items():
    if _number < 256 and _name != "CACHE":
        OPCODES[_number] = _opcode(_number, _name)
