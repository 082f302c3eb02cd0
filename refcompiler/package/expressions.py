"""Sizes that are expressions over symbols, as rows: their functions by name, and their parts."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import sympy

from refcompiler.errors import PackageError
from refcompiler.package.rows import Packer, Refused, Unpacker, record, register
from refcompiler.shapes.ranges import Range
from refcompiler.shapes.state import State

_MODULES = ("sympy.", "torch.utils._sympy.", "refcompiler.shapes.")
_CONSTANTS = {
    "true": sympy.true,
    "false": sympy.false,
    "oo": sympy.oo,
    "-oo": -sympy.oo,
    "nan": sympy.nan,
}


def _pack(p: Packer, expression: Any) -> list[Any]:
    if expression.func is sympy.Symbol:
        known = expression._assumptions_orig
        return ["symbol", expression.name, sorted([[k, v] for k, v in known.items()])]
    if expression.is_Integer:
        return ["integer", str(int(expression))]
    if expression.is_Rational:
        return ["rational", str(expression.p), str(expression.q)]
    if expression.is_Float:
        return ["float", float(expression).hex()]
    for name, value in _CONSTANTS.items():
        if expression is value:
            return ["constant", name]
    cls = expression.func
    if not cls.__module__.startswith(_MODULES) or _class(cls.__module__, cls.__name__) is not cls:
        raise Refused(f"{cls.__name__} of sizes")
    if cls(*expression.args) != expression:  # it would be another one when it is made again
        raise Refused(f"the expression {expression}")
    return ["call", cls.__module__, cls.__name__, *[p.pack(part) for part in expression.args]]


def _unpack(u: Unpacker, how: str, *parts: Any) -> Any:
    if how == "symbol":
        return sympy.Symbol(parts[0], **dict(parts[1]))
    if how == "integer":
        return sympy.Integer(parts[0])
    if how == "rational":
        return sympy.Rational(*map(int, parts))
    if how == "float":
        return sympy.Float(float.fromhex(parts[0]))
    if how == "constant":
        return _CONSTANTS[parts[0]]
    module, name, *rest = parts
    cls = _class(module, name) if module.startswith(_MODULES) else None
    if not (isinstance(cls, type) and issubclass(cls, sympy.Basic)):
        raise PackageError(f"{u.title} is malformed: {name} is no function of sizes")
    return cls(*u.values(rest))


def _class(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


register("expression", _pack, _unpack, when=lambda value: isinstance(value, sympy.Basic))
register(
    "fraction",  # a bound of a product
    lambda p, value: [str(value.numerator), str(value.denominator)],
    lambda u, *parts: Fraction(*map(int, parts)),
    Fraction,
)
record(Range)
record(State)
