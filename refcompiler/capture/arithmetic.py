"""Symbolic numbers as the ``int`` and ``float`` that a program takes them for.

What Python does to numbers by arithmetic stays symbolic; what needs the number itself (a hash, a
text, a length, a loop) gets it, and later calls have to have the same.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from refcompiler.capture.lookup import find
from refcompiler.capture.signals import Break
from refcompiler.shapes.node import SYMBOLS

_NUMBERS = (int, float, bool)
#: The classes that a program sees.
CLASSES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
EXAMPLES: dict[type, Any] = {torch.SymInt: 2, torch.SymFloat: 0.5, torch.SymBool: True}


def _divmod(a: Any, b: Any) -> Any:
    return a // b, a % b


def _itself(n: Any) -> Any:
    return n


def _rounded(n: Any, digits: Any = None) -> Any:
    if digits is not None and (type(digits) is not int or type(n) is torch.SymInt and digits < 0):
        return NotImplemented
    return round(n) if digits is None else round(n, digits)


def _math(name: str) -> Callable[[Any], Any]:
    """A function of :mod:`math` that a symbolic node has too."""

    def function(n: Any) -> Any:
        return n.node.shape_env.wrap(n.node.shape_env.unary(f"sym_{name}", n.node))

    return function


#: ``&``, ``|`` and the like, where both operands are bools.
_JOINING: dict[Callable, Callable] = {
    operator.and_: operator.and_,
    operator.or_: operator.or_,
    operator.iand: operator.and_,
    operator.ior: operator.or_,
}


def _power(a: Any, b: Any, modulus: Any = None) -> Any:
    return NotImplemented if modulus is not None else a**b


def _float_power(a: Any, b: Any) -> Any:
    """``math.pow``, which raises where ``**`` gives a complex number: of positive bases only."""
    positive = type(a) in (int, float) and a > 0
    if type(a) is torch.SymInt:
        positive = a.node.shape_env.knowledge.range_of(a.node.expr).low > 0
    if not positive or type(b) not in (int, float, torch.SymInt):
        return NotImplemented
    return torch.sym_float(a) ** torch.sym_float(b)


def _product(values: Any, *, start: Any = 1) -> Any:
    if type(values) not in (tuple, list, torch.Size):
        return NotImplemented
    for value in values:
        if type(value) not in SYMBOLS and type(value) not in _NUMBERS:
            return NotImplemented
        start = start * value
    return start


def extreme(function: Callable, values: Any) -> Any:
    """``max`` or ``min`` of ints, or of floats: of any two the value of one, nothing is decided.

    Where there are both, the class of the result tells which it was.
    """
    if type(values) not in (tuple, list, torch.Size) or not values:
        return NotImplemented
    kinds = {type(value) for value in values}
    name = "sym_max" if function is max else "sym_min"
    if torch.SymInt in kinds and not kinds - {int, torch.SymInt}:
        return functools.reduce(getattr(torch, name), values)
    if torch.SymFloat in kinds and not kinds - {float, torch.SymFloat}:
        return functools.reduce(functools.partial(binary_of, name), values)
    return NotImplemented


def binary_of(name: str, a: Any, b: Any) -> Any:
    """An operation of the environment on numbers, one of which is a symbol."""
    env = (a if type(a) in SYMBOLS else b).node.shape_env
    nodes = [n.node if type(n) in SYMBOLS else env.number(type(n), n) for n in (a, b)]
    return env.wrap(env.binary(name, *nodes))


#: The names that nodes have for operators on floats, whose operands are all floats there.
_OF_FLOATS: dict[Callable, str] = {
    getattr(operator, name): name for name in "add sub mul mod floordiv".split()
}
_OF_FLOATS |= {operator.truediv: "float_truediv", operator.pow: "float_pow"}
_COMPARING = {getattr(operator, name): name for name in "eq ne lt le gt ge".split()}


def _with_float(function: Callable, a: Any, b: Any) -> Any:
    """An operator on numbers, one of which is a symbolic float. Torch's own operators decide more.

    (That a base is not negative, and a quotient no infinity.) NotImplemented: it has no symbol.
    """
    name = _COMPARING.get(function)
    if name is not None:
        return binary_of(name, a, b)
    name = _OF_FLOATS.get(function)
    if name is None or (name == "float_pow" and not _is_real_power(a, b)):
        return NotImplemented
    return binary_of(name, torch.sym_float(a), torch.sym_float(b))


def _is_real_power(base: Any, exponent: Any) -> bool:
    """Whether the power of a negative base would be a float too, or the base is none."""
    if type(exponent) is torch.SymInt or (
        type(exponent) in (int, float) and float(exponent).is_integer()
    ):
        return True
    if type(base) is torch.SymFloat and not base.node.has_hint():
        torch._check(base >= 0)
        return True
    return bool(base >= 0)


def _is_nan(n: Any) -> bool:
    return binary_of("ne", n, n) if type(n) is torch.SymFloat else False


def _is_infinite(n: Any) -> bool:
    return type(n) is torch.SymFloat and binary_of("eq", abs(n), math.inf)


def _is_finite(n: Any) -> bool:
    return binary_of("lt", abs(n), math.inf) if type(n) is torch.SymFloat else True


#: C functions that have a symbolic answer; one may answer NotImplemented.
_SYMBOLIC: dict[Any, Callable] = {
    abs: abs,
    divmod: _divmod,
    round: _rounded,
    pow: _power,
    math.floor: math.floor,
    math.ceil: math.ceil,
    math.trunc: math.trunc,
    math.sqrt: torch.sym_sqrt,
    math.pow: _float_power,
    math.prod: _product,
    math.isnan: _is_nan,
    math.isinf: _is_infinite,
    math.isfinite: _is_finite,
    operator.index: _itself,
    int: torch.sym_int,
    float: torch.sym_float,
    int.__index__: _itself,
    int.conjugate: _itself,
    float.conjugate: _itself,
}
for _name in "log exp log2 sin cos tan sinh cosh tanh asin acos atan asinh".split():
    _SYMBOLIC[getattr(math, _name)] = _math(_name)

#: Operators, by the C functions that are them: of :mod:`operator`, and methods of numbers.
_OPERATORS: dict[Any, Callable] = {}
#: And by the names of those methods.
_METHODS: dict[str, Callable] = {"__index__": operator.index}
_NAMES = "add sub mul truediv floordiv mod pow and or xor lshift rshift eq ne lt le gt ge".split()
for _name in (*_NAMES, "neg", "pos", "abs", "invert"):
    _function = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    _OPERATORS[_function] = _METHODS[f"__{_name}__"] = _function
    if hasattr(operator, f"i{_name}") and _name in _NAMES:
        _OPERATORS[getattr(operator, f"i{_name}")] = _function
    for _kind in (int, float):
        if f"__{_name}__" in vars(_kind):
            _OPERATORS[vars(_kind)[f"__{_name}__"]] = _function
#: Attributes of every int and float.
_PARTS: dict[str, Callable[[Any], Any]] = {"real": _itself, "imag": lambda n: EXAMPLES[type(n)] * 0}
_OF_INTS: dict[str, Callable[[Any], Any]] = {"numerator": _itself, "denominator": lambda n: 1}

#: How CPython's complaints name operators.
SIGNS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "** or pow()",
    operator.matmul: "@", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.lshift: "<<", operator.rshift: ">>", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=", operator.iadd: "+=", operator.isub: "-=",
    operator.imul: "*=", operator.itruediv: "/=", operator.ifloordiv: "//=",
    operator.imod: "%=", operator.ipow: "**=", operator.imatmul: "@=",
    operator.iand: "&=", operator.ior: "|=", operator.ixor: "^=",
    operator.ilshift: "<<=", operator.irshift: ">>=",
}  # fmt: skip

#: Of these, what adds and compares.
_ORDERING = frozenset("sorted accumulate min max sum index count".split())
#: Methods and functions that keep what they are given, and do not ask for its hash.
_KEEPING = frozenset(
    """
    append appendleft insert extend extendleft list tuple enumerate zip map filter reversed chain
    repeat deque partial Size sorted __setitem__ setitem isinstance accumulate __new__ len min max
    sum any all index count iter next getitem __getitem__ __len__ __iter__ callable
    """.split()
)


#: Methods of dicts and sets that look for their first argument.
_LOOKING = frozenset({"add", "discard", "remove", "pop", "get", "setdefault", "__contains__"})


def as_bool(machine: Any, value: Any) -> Any:
    """``bool(value)`` of a symbol, which decides nothing."""
    if type(value) is torch.SymBool:
        return value
    return binary(machine, operator.ne, value, CLASSES[type(value)](0))


def _logical(function: Callable, a: Any, b: Any) -> Any:
    """An operator of which an operand is a symbolic bool; NotImplemented: it has no symbol.

    Where their values are known at capture: of others torch's own operators know as much.
    """
    if any(type(n) is torch.SymBool and not n.node.has_hint() for n in (a, b)):
        return function(a, b)
    if function in _JOINING and {type(a), type(b)} <= {torch.SymBool, bool}:
        return _JOINING[function](a, b)
    return NotImplemented


def attribute(machine: Any, value: Any, name: str) -> Any:
    """An attribute of a symbol: a number's part, or a method of numbers."""
    if type(value) is torch.SymBool:  # whose parts are ints
        return getattr(machine.sizes.plain(value), name)
    part = _PARTS.get(name) or (_OF_INTS.get(name) if type(value) is torch.SymInt else None)
    if part is not None:
        return part(value)
    method = _METHODS.get(name)
    if method is not None and name in vars(CLASSES[type(value)]):
        return functools.partial(method, value)
    return getattr(machine.sizes.plain(value), name)


def _is_itself_alone(kind: type) -> bool:
    """Whether instances of ``kind`` are equal to nothing else."""
    return all(find(kind, name)[0] is object for name in ("__eq__", "__ne__"))


def binary(machine: Any, function: Callable, a: Any, b: Any) -> Any:
    """An operator with a symbol among its operands; ``+=`` and its like give a new number too."""
    plain = machine.sizes.plain
    if type(a) in _NUMBERS or type(a) in SYMBOLS:
        function = _OPERATORS.get(function, function)
    for value in (a, b):
        kind = type(value)
        if kind in SYMBOLS or kind in _NUMBERS:
            continue
        if function in (operator.eq, operator.ne):
            if kind in _UNEQUAL or _is_itself_alone(kind):
                return function is operator.ne
        return machine.binary(function, plain(a), plain(b))
    given = a, b
    if torch.SymBool not in (type(a), type(b)):
        a, b = [int(n) if type(n) is bool else n for n in given]
    try:
        if torch.SymBool in (type(a), type(b)):
            found = _logical(function, a, b)
        elif torch.SymFloat in (type(a), type(b)):
            found = _with_float(function, a, b)
        else:
            found = function(a, b)
    except TypeError:  # an operator that torch's symbols do not have
        found = NotImplemented
    return machine.binary(function, *map(plain, given)) if found is NotImplemented else found


#: No number equals a value of these classes.
_UNEQUAL = frozenset({type(None), str, bytes, tuple, list, dict, set, torch.Size, type(...)})


def unary(machine: Any, function: Callable, value: Any) -> Any:
    if function is operator.invert and type(value) is torch.SymInt:
        return -value - 1
    if type(value) is torch.SymBool:  # a number only when it is known
        return function(machine.sizes.plain(value))
    try:
        return function(value)
    except TypeError:
        return function(machine.sizes.plain(value))


def call(machine: Any, function: Callable, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The symbolic answer of a C function, or None and what to call it with."""
    if args and getattr(function, "__name__", "") in _LOOKING:
        args = [machine.sizes.key(args[0]), *args[1:]]
    if not any(_has_symbol(v) for v in (*args, *kwargs.values())):
        owner = getattr(function, "__self__", None)
        if type(owner) is torch.Size and not args and function.__name__ == "numel":
            return _product(owner), args, kwargs
        return None, args, kwargs
    try:
        symbolic, operation = _SYMBOLIC.get(function), _OPERATORS.get(function)
    except TypeError:  # it has no hash
        symbolic = operation = None
    if symbolic is not None:
        args = [with_plain_bools(machine, a) for a in args]
    if operation is not None and len(args) in (1, 2) and not kwargs:
        answer = machine.unary if len(args) == 1 else machine.binary
        return answer(operation, *args), args, kwargs
    if symbolic is not None:
        try:
            found = symbolic(*args, **kwargs)
        except (TypeError, AttributeError, ValueError, OverflowError):
            found = NotImplemented  # with the number itself it raises as it should
        if found is not NotImplemented:
            return found, args, kwargs
    if getattr(function, "__name__", "") in _KEEPING:
        if function.__name__ in _ORDERING:
            args = [with_plain_bools(machine, a) for a in args]
        return None, args, kwargs
    plain = machine.sizes.plain
    return None, list(map(plain, args)), {key: plain(v) for key, v in kwargs.items()}


def with_plain_bools(machine: Any, value: Any) -> Any:
    """Torch's symbolic bools are no numbers, so those of containers are decided."""
    if type(value) in (list, tuple) and any(type(item) is torch.SymBool for item in value):
        items = [machine.sizes.plain(i) if type(i) is torch.SymBool else i for i in value]
        return type(value)(items)
    return machine.sizes.plain(value) if type(value) is torch.SymBool else value


def _has_symbol(value: Any) -> bool:
    kind = type(value)
    return kind in SYMBOLS or (
        issubclass(kind, (tuple, list)) and any(type(item) in SYMBOLS for item in value)
    )


#: Classes that no program has, as C code names them where it refuses one.
_STAND_INS = re.compile(r"\b(Sym(Int|Float|Bool)|FakeTensor|Pulled|Array)\b")


def ending(error: BaseException) -> Break | None:
    """The break for what only capture raises: what stands for a value is not taken for it."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return Break("data-dependent-branch", str(error).split("\n")[0])
    if type(error) is TypeError and "non-nested Sym" in str(error.args[:1]):
        return Break("c-function", "a hash of a container of numbers that are dynamic")
    if type(error) in (TypeError, AttributeError) and len(error.args) == 1:
        text = error.args[0]
        if type(text) is str and (found := _STAND_INS.search(text)):
            return Break("c-function", f"C code refuses what stands for a value here ({found[0]})")
    return None
