"""Every opcode of the running Python: handled, decoded or refused, and seen to work."""

from __future__ import annotations

import dis
from types import CodeType, FunctionType

import pytest

from refcompiler.bytecode.decode import decode
from refcompiler.errors import UnsupportedError
from refcompiler.interpreter import machine, registry
from refcompiler.interpreter.registry import HANDLERS, program_of
from specs import opcodes
from specs.opcodes import DECODED, HANDLED, OPCODES, REFUSED
from tests.tiny.house.repository import text
from tests.tiny.interpreter.oracle import check

PAGE = "docs/specs/opcodes.md"


def names(treatment: str) -> set[str]:
    return {row.name for row in OPCODES.where(lambda row: row.treatment == treatment)}


def test_every_opcode_has_a_row_and_nothing_else_has() -> None:
    assert set(OPCODES.names()) == set(dis.opmap)


def test_a_row_is_handled_exactly_if_it_says_so() -> None:
    assert names(HANDLED) == set(HANDLERS)
    assert names(REFUSED) and names(DECODED)
    assert all((row.reason is None) == (row.treatment == HANDLED) for row in OPCODES)


def nested(code: CodeType) -> list[CodeType]:
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += nested(constant)
    return found


def compiled(row: opcodes.Opcode) -> CodeType:
    return compile(row.program, "<example>", "exec", dont_inherit=True)


@pytest.mark.parametrize("name", OPCODES.names())
def test_example(name: str) -> None:
    """The opcode occurs in its example, the interpreter executes it, and CPython agrees."""
    row = OPCODES[name]
    codes = nested(compiled(row))
    if name == "PRINT_EXPR":  # only the prompt's mode compiles to it, which the example asks for
        codes = [compile("1 + 1", "<prompt>", "single")]
    found = {ins.opname for code in codes for ins in dis.get_instructions(code, show_caches=True)}
    assert name in found
    machine = check(row.program)
    assert (name in machine.seen) == (row.treatment == HANDLED)


@pytest.mark.parametrize("name", sorted(names(DECODED)))
def test_decoded_away(name: str) -> None:
    programs = [decode(code) for code in nested(compiled(OPCODES[name]))]
    assert sum(len(program.instructions) for program in programs) > 2
    assert not any(ins.name == name for program in programs for ins in program.instructions)


@pytest.mark.parametrize("name", sorted(names(REFUSED)))
def test_refused_by_name(name: str) -> None:
    users = [
        code
        for code in nested(compiled(OPCODES[name]))
        if name in {ins.opname for ins in dis.get_instructions(code)}
    ]
    assert users
    for code in users:
        with pytest.raises(UnsupportedError, match=name) as caught:
            program_of(code)
        assert "\n" not in str(caught.value) and code.co_qualname in str(caught.value)


def test_another_python_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "RUNNING", (3, 12))
    fresh = FunctionType((lambda: 1).__code__.replace(co_name="fresh"), {})
    with pytest.raises(UnsupportedError, match=r"3\.12: use Python 3\.11$") as caught:
        machine.Machine().make_frame(fresh, (), {})
    assert "\n" not in str(caught.value)


def test_the_page_is_the_table() -> None:
    page = text(PAGE)
    assert page.endswith(opcodes.markdown()), f"write specs.opcodes.markdown() into {PAGE}"
