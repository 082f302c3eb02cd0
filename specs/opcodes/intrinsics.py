"""Rows of what CALL_INTRINSIC_1 and CALL_INTRINSIC_2 name (3.12).

They have a table of their own, as their names are none of ``dis.opmap``.
"""

from __future__ import annotations

from specs.opcodes.row import (
    ABSENT,
    DECODED,
    HANDLED,
    INTRINSIC,
    SINCE_312,
    SINCE_313,
    Opcode,
    Version,
)

INTRINSICS: list[Opcode] = []


def _row(
    name: str, stack: str, meaning: str, example: str, versions: tuple[Version, ...] = SINCE_312
) -> None:
    name = f"INTRINSIC_{name}"
    INTRINSICS.append(Opcode(name, INTRINSIC, stack, meaning, example, HANDLED, None, versions))


def _former(name: str, opcode: str, stack: str, meaning: str, example: str) -> None:
    reason = f"the decoder writes {opcode}, as it was in 3.11"
    name = f"INTRINSIC_{name}"
    INTRINSICS.append(Opcode(name, INTRINSIC, stack, meaning, example, DECODED, reason, SINCE_312))


for _name in ("INTRINSIC_1_INVALID", "INTRINSIC_2_INVALID"):
    INTRINSICS.append(
        Opcode(_name, INTRINSIC, "--", "Number 0.", "", ABSENT, "it has no meaning", SINCE_312)
    )

_former("PRINT", "PRINT_EXPR", "a -- None", "sys.displayhook(a): an expression at the prompt.",
        "exec(compile('1 + 1', 'p', 'single'))")  # fmt: skip
_former("IMPORT_STAR", "IMPORT_STAR", "module -- None",
        "Put the module's public names into the namespace.",
        "from math import *\ndef main():\n    return floor(2.5)")  # fmt: skip
_row("STOPITERATION_ERROR", "error -- error",
     "What leaves a generator: a StopIteration becomes a RuntimeError.",
     "def g():\n    yield 1\n    raise StopIteration(5)\n"
     "try:\n    list(g())\nexcept RuntimeError as e:\n    return e, e.__cause__")  # fmt: skip
_former("ASYNC_GEN_WRAP", "ASYNC_GEN_WRAP", "v -- w",
        "Mark v as yielded by an asynchronous generator.",
        "import asyncio\nasync def numbers():\n    yield 1\nasync def run():\n"
        "    return [x async for x in numbers()]\nreturn asyncio.run(run())")  # fmt: skip
_former("UNARY_POSITIVE", "UNARY_POSITIVE", "a -- r", "r = +a", "x = True\nreturn +x")
_former("LIST_TO_TUPLE", "LIST_TO_TUPLE", "l -- t", "t = tuple(l)", "a = [1]\nreturn (*a, 2)")
_former("PREP_RERAISE_STAR", "PREP_RERAISE_STAR", "original errors -- error",
        "What is left to raise after the except* clauses, or None.",
        "try:\n    try:\n        raise ExceptionGroup('g', [ValueError(1), KeyError(2)])\n"
        "    except* ValueError as e:\n        pass\n"
        "except ExceptionGroup as rest:\n    return rest.exceptions")  # fmt: skip

_GENERIC = (
    "def f[T: int, U: (int, str), *V, **W](x: T, y: U) -> T:\n    return x\n"
    "class C[K]:\n    pass\n"
    "ts = f.__type_params__\n"
    "return f(1, 2), str(ts), ts[0].__bound__, ts[1].__constraints__, str(C[int]), C.__orig_bases__"
)
_row("TYPEVAR", "name -- t", "A TypeVar of a parameter list.",
     "def f[T](x: T) -> T:\n    return x\nreturn f(1), str(f.__type_params__)")  # fmt: skip
_row("PARAMSPEC", "name -- p", "A ParamSpec.", _GENERIC)
_row("TYPEVARTUPLE", "name -- t", "A TypeVarTuple.", _GENERIC)
_row("TYPEVAR_WITH_BOUND", "name f -- t", "A TypeVar whose bound is f(), when asked for.", _GENERIC)
_row("TYPEVAR_WITH_CONSTRAINTS", "name f -- t", "A TypeVar whose constraints are f().", _GENERIC)
_row("SET_FUNCTION_TYPE_PARAMS", "f ts -- f", "f.__type_params__ = ts", _GENERIC)
_row(
    "SUBSCRIPT_GENERIC", "ts -- base", "typing.Generic[ts], the base of a generic class.", _GENERIC
)
_row("TYPEALIAS", "(name, ts, f) -- a", "A type alias whose value is f(), when asked for.",
     "type A[T] = list[T]\nreturn A.__name__, str(A.__value__), str(A[int])")  # fmt: skip
_row("SET_TYPEPARAM_DEFAULT", "t f -- t", "f() is the default of a type parameter.",
     "def f[T = int](): pass\nreturn f.__type_params__[0].__default__", SINCE_313)  # fmt: skip
