"""Rows of what ``dis.opmap`` names but no code object shows."""

from __future__ import annotations

from specs.opcodes.row import (
    GENERAL,
    MISC,
    ONLY_312,
    SINCE_312,
    SINCE_313,
    Chapter,
    Version,
)

ROWS = Chapter()
absent = ROWS.absent

_COMPILER = "a pseudo-instruction of the compiler, which writes others for it"
_TRACING = "code.co_code shows what tracing and monitoring put it in the place of"
_INSIDE = "CPython's own trampolines end in it"


def _pseudo(name: str, meaning: str, versions: tuple[Version, ...] = SINCE_312) -> None:
    absent(name, MISC, meaning, _COMPILER, versions)


_pseudo("JUMP", "A jump whose direction is not known yet.")
_pseudo("JUMP_NO_INTERRUPT", "The same, without looking for signals.")
_pseudo("LOAD_METHOD", "LOAD_ATTR with its lowest bit set.")
_pseudo("LOAD_SUPER_METHOD", "LOAD_SUPER_ATTR with its lowest bit set.")
_pseudo("LOAD_ZERO_SUPER_ATTR", "LOAD_SUPER_ATTR without its second bit.")
_pseudo("LOAD_ZERO_SUPER_METHOD", "The same with its lowest bit set.")
_pseudo("STORE_FAST_MAYBE_NULL", "STORE_FAST of what LOAD_FAST_AND_CLEAR took.")
_pseudo("LOAD_CLOSURE", "LOAD_FAST of a cell.", SINCE_313)
_pseudo("SETUP_FINALLY", "A handler begins: an entry of the exception table.")
_pseudo("SETUP_CLEANUP", "The same, keeping the place of the error.")
_pseudo("SETUP_WITH", "The same, of a with statement.")
_pseudo("POP_BLOCK", "A handler ends.")

for _name in """
    CALL CALL_FUNCTION_EX END_FOR END_SEND FOR_ITER INSTRUCTION JUMP_BACKWARD JUMP_FORWARD LINE
    LOAD_SUPER_ATTR POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE RESUME
    RETURN_CONST RETURN_VALUE YIELD_VALUE
""".split():
    absent(f"INSTRUMENTED_{_name}", GENERAL, "Tell the tools that watch.", _TRACING)
absent("INSTRUMENTED_CALL_KW", GENERAL, "Tell the tools that watch.", _TRACING, SINCE_313)

absent("INTERPRETER_EXIT", GENERAL, "Return to the C function that entered.", _INSIDE)
absent("EXIT_INIT_CHECK", GENERAL, "After an inlined __init__.", _INSIDE, SINCE_313)
absent("RESERVED", GENERAL, "Room for an instruction of the specialising interpreter.", _INSIDE,
       ONLY_312)  # fmt: skip
absent("RESERVED", GENERAL, "The end of the numbers for specialised instructions.", _INSIDE,
       SINCE_313)  # fmt: skip
absent("ENTER_EXECUTOR", GENERAL, "Go on in what the optimiser compiled.",
       "code.co_code shows the JUMP_BACKWARD that it took the place of", SINCE_313)  # fmt: skip
