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
    """An instruction as CPython shows it; ``argval`` is what ``dis`` makes of the argument."""

    name: str
    arg: int
    argval: Any


Form = Callable[[list[Step], Raw, CodeType], None]


def _plain(out: list[Step], raw: Raw, code: CodeType) -> None:
    out.append(Step(raw.name, raw.arg, raw.arg))


def _shown(out: list[Step], raw: Raw, code: CodeType) -> None:
    out.append(Step(*raw))


def _nothing(out: list[Step], raw: Raw, code: CodeType) -> None:
    pass


# ---- 3.11 ------------------------------------------------------------------------------------


def _as(name: str) -> Form:
    """Another name for the same thing."""

    def form(out: list[Step], raw: Raw, code: CodeType) -> None:
        out.append(Step(name, raw.arg, raw.argval))

    return form


def _load_global(out: list[Step], raw: Raw, code: CodeType) -> None:
    out.append(Step(raw.name, raw.arg, (code.co_names[raw.arg >> 1], bool(raw.arg & 1))))


def _keyword_names(out: list[Step], raw: Raw, code: CodeType) -> None:
    out.append(Step(raw.name, raw.arg, code.co_consts[raw.arg]))


def _push_null(out: list[Step], raw: Raw, code: CodeType) -> None:
    """``value`` is how many values lie above the NULL."""
    out.append(Step(raw.name, raw.arg, 0))


#: dis answers with the target's offset, whatever the version counts a jump in.
_JUMPS = dict.fromkeys((dis.opname[op] for op in (*dis.hasjrel, *dis.hasjabs)), _shown)
_311: dict[str, Form] = {
    **_JUMPS,
    "JUMP_BACKWARD_NO_INTERRUPT": _as("JUMP_BACKWARD"),  # signals are CPython's affair
    **dict.fromkeys(("EXTENDED_ARG", "CACHE", "PRECALL", "NOP"), _nothing),
    **dict.fromkeys(("LOAD_CONST", "LOAD_NAME", "STORE_NAME", "DELETE_NAME"), _shown),
    **dict.fromkeys(("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_FROM"), _shown),
    **dict.fromkeys(("LOAD_ATTR", "STORE_ATTR", "DELETE_ATTR", "LOAD_METHOD"), _shown),
    "COMPARE_OP": _shown,
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
    out += Step("LOAD_CONST", raw.arg, raw.argval), Step("RETURN_VALUE", 0, 0)


def _load_attr(out: list[Step], raw: Raw, code: CodeType) -> None:
    """The lowest bit asks for room for the method's ``self``."""
    name = "LOAD_METHOD" if raw.arg & 1 else "LOAD_ATTR"
    out.append(Step(name, raw.arg >> 1, code.co_names[raw.arg >> 1]))


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


_312: dict[str, Form] = {
    **_311,
    **dict.fromkeys(("END_FOR", "END_SEND", "CLEANUP_THROW"), _nothing),
    "LOAD_FROM_DICT_OR_GLOBALS": _shown,
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


_313: dict[str, Form] = {
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
FORMS: dict[str, Form] = _FORMS.get(RUNNING, {})
SWALLOWS = _SWALLOWS.get(RUNNING, {})
plain: Form = _plain
