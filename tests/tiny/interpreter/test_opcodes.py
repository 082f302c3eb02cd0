"""Every opcode of the running Python: handled or decoded, and seen to work."""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import dataclasses
import dis
import enum
import inspect
import subprocess
import sys
import tempfile
import typing
from collections.abc import Iterable
from types import CodeType, FunctionType

import pytest

from refcompiler.bytecode.decode import decode
from refcompiler.bytecode.forms import BINARY_INTRINSICS, KNOWN, RUNNING, UNARY_INTRINSICS
from refcompiler.errors import UnsupportedError
from refcompiler.interpreter.registry import HANDLERS, program_of
from specs.opcodes import ABSENT, ALL, DECODED, HANDLED, INTRINSICS, OPCODES, ROWS, Opcode
from specs.opcodes import table as rows_of
from tests.tiny.interpreter.oracle import check

#: Names of the intrinsics are none of dis.opmap, so both can be looked up in one table.
HERE = rows_of([*ROWS, *INTRINSICS], RUNNING)
SHOWN = [row.name for row in HERE if row.treatment != ABSENT]


def names(treatment: str, rows: Iterable[Opcode] = HERE) -> set[str]:
    return {row.name for row in rows if row.treatment == treatment}


def test_every_opcode_has_a_row_and_nothing_else_has() -> None:
    assert set(OPCODES.names()) == set(dis.opmap)
    intrinsics = {row.name for row in rows_of(INTRINSICS, RUNNING)}
    assert intrinsics == {*UNARY_INTRINSICS, *BINARY_INTRINSICS}


def test_the_rows_are_of_the_versions_that_are_known() -> None:
    assert set(ALL) == KNOWN
    for version in ALL:
        assert len(rows_of(ROWS, version)) > 100


def test_a_row_is_handled_exactly_if_it_says_so() -> None:
    """There are handlers for every version: what one decodes away, another runs."""
    assert names(HANDLED, [*ROWS, *INTRINSICS]) == set(HANDLERS)
    assert names(DECODED)
    assert all((row.reason is None) == (row.treatment == HANDLED) for row in HERE)


def nested(code: CodeType) -> list[CodeType]:
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += nested(constant)
    return found


def compiled(row: Opcode) -> CodeType:
    return compile(row.program, "<example>", "exec", dont_inherit=True)


def occurring(codes: list[CodeType]) -> set[str]:
    """The opcodes of the code objects, and the intrinsics that they call."""
    found = set()
    for code in codes:
        for ins in dis.get_instructions(code):
            found.add(ins.opname)
            if ins.opname == "CALL_INTRINSIC_1":
                found.add(UNARY_INTRINSICS[ins.arg or 0])
            elif ins.opname == "CALL_INTRINSIC_2":
                found.add(BINARY_INTRINSICS[ins.arg or 0])
        if any(code.co_code[i] == dis.opmap["CACHE"] for i in range(0, len(code.co_code), 2)):
            found.add("CACHE")
    return found


def test_absent_opcodes_are_absent_from_modules_of_the_library() -> None:
    modules = (asyncio.base_events, ast, contextlib, dataclasses, enum, tempfile, typing)
    codes = [
        code
        for module in modules
        for code in nested(compile(inspect.getsource(module), "<library>", "exec"))
    ]
    found = occurring(codes)
    assert len(codes) > 900 and len(found) > 80
    assert not found & names(ABSENT)
    for code in codes:
        program_of(code)


@pytest.mark.parametrize("name", SHOWN)
def test_example(name: str) -> None:
    """The opcode occurs in its example, the interpreter executes it, and CPython agrees."""
    row = HERE[name]
    codes = nested(compiled(row))
    if name.endswith(("PRINT_EXPR", "INTRINSIC_PRINT")):  # only the prompt compiles to it
        codes = [compile("1 + 1", "<prompt>", "single")]
    assert name in occurring(codes)
    machine = check(row.program)
    assert (name in machine.seen) == (row.treatment == HANDLED)


@pytest.mark.parametrize("name", sorted(names(DECODED)))
def test_decoded_away(name: str) -> None:
    programs = [decode(code) for code in nested(compiled(HERE[name]))]
    assert sum(len(program.instructions) for program in programs) > 2
    assert not any(ins.name == name for program in programs for ins in program.instructions)


def fresh() -> FunctionType:
    return FunctionType((lambda: 1).__code__.replace(co_name="fresh"), {})


OTHER_PYTHON = """
import dis, sys, sysconfig
{change}
import refcompiler
try:
    refcompiler.interpret(print, "ran")
except refcompiler.errors.UnsupportedError as error:
    print(error)
"""


def said_by(change: str) -> str:
    """What another Python than this one prints."""
    program = OTHER_PYTHON.format(change=change)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("minor", [10, 14])
def test_another_python_is_refused_in_one_line(minor: int) -> None:
    """Nothing of the interpreter is imported: it looks up opcodes that may not be there."""
    gone = "[dis.opmap.pop(name) for name in ('MATCH_CLASS', 'GET_ANEXT', 'POP_EXCEPT')]"
    said = said_by(f"sys.version_info = (3, {minor}, 0)\n{gone}")
    known = "the interpreter of this release runs the bytecode of Python 3.11, 3.12 and 3.13"
    assert said == f"{known}, not that of 3.{minor}: use one of those\n"


def test_a_free_threaded_build_is_refused_in_one_line() -> None:
    said = said_by("sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1")
    assert said.endswith(f"use the ordinary Python {RUNNING[0]}.{RUNNING[1]}\n")
    assert said.count("\n") == 1
    assert said_by("") == "ran\n"


def test_the_decoder_reads_what_dis_shows() -> None:
    """Lines, constants, names and the targets of jumps, of some long modules of the library."""
    compared = 0
    for module in (argparse, dataclasses, inspect, typing):
        for code in nested(compile(inspect.getsource(module), module.__name__, "exec")):
            line = code.co_firstlineno
            shown, lines = {}, {}
            for ins in dis.get_instructions(code):
                if ins.positions is not None and ins.positions.lineno is not None:
                    line = ins.positions.lineno
                shown[ins.offset], lines[ins.offset] = ins, line
            program = decode(code)
            offsets = {ins.offset for ins in program.instructions}
            for found in program.instructions:
                if found.name == "LOAD_CONST" and shown[found.offset].opname == "RETURN_CONST":
                    assert found.value is shown[found.offset].argval
                if found.name != shown[found.offset].opname:
                    continue
                assert found.line == lines[found.offset]
                argval = shown[found.offset].argval
                if found.name in ("LOAD_CONST", "STORE_ATTR", "IMPORT_NAME", "STORE_NAME"):
                    assert found.value == argval
                    compared += 1
                if "JUMP" in found.name or found.name == "FOR_ITER":
                    target = program.instructions[found.value].offset
                    # what stands for nothing, or for a part of what follows, is left out
                    argval = min(offset for offset in offsets if offset >= argval)
                    assert target == argval, (code.co_name, found, shown[argval])
                    compared += 1
    assert compared > 5000


def test_an_opcode_number_that_does_not_exist_is_refused() -> None:
    """What CPython shows of one is a CACHE, where none belongs."""
    code = fresh().__code__
    code = code.replace(co_code=code.co_code[:2] + bytes(2) + code.co_code[4:])
    with pytest.raises(UnsupportedError, match="at 2 is an opcode that does not exist") as caught:
        program_of(code)
    assert "\n" not in str(caught.value)


def test_a_variable_that_does_not_exist_is_refused() -> None:
    code = fresh().__code__
    body = bytes((dis.opmap["LOAD_FAST"], 7)) + code.co_code[2:]
    with pytest.raises(UnsupportedError, match="there is no local variable 7"):
        program_of(code.replace(co_code=body))


def test_bytecode_that_no_compiler_writes_is_refused_by_name() -> None:
    """An opcode that only CPython itself puts there, in a code object made by hand."""
    for name in sorted(names(ABSENT)):
        if dis.opmap.get(name, 256) < 256 and not name.startswith(("INSTRUMENTED_", "ENTER_")):
            code = fresh().__code__
            body = bytes((dis.opmap[name], 0)) + code.co_code[2:]
            with pytest.raises(UnsupportedError, match=name):
                program_of(code.replace(co_code=body))
