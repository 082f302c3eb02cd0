"""Dtypes by name, PyTorch's type promotion, and the dtype rules that operator rows name.

A rule says in which dtype an operator reads its operands, computes and stores, because a fused
kernel must round exactly where eager rounds. Source: PyTorch's "Tensor Attributes" page (type
promotion) and the behaviour of the eager CPU kernels for the reduced floating types.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BOOL = "bool"
UNSIGNED = ("uint8",)
SIGNED = ("int8", "int16", "int32", "int64")
INTS = UNSIGNED + SIGNED
REDUCED = ("float16", "bfloat16")
FLOATS = (*REDUCED, "float32", "float64")
ALL = (BOOL, *INTS, *FLOATS)
#: Floats of which a kernel holds the byte: they are cast from and to ``float32``, and moved.
BYTES = ("float8_e4m3fn", "float8_e5m2")
#: The dtype of a complex number's two parts, and back (few of eager's kernels have complex32).
PART_OF = {"complex64": "float32", "complex128": "float64"}
COMPLEX_OF = {part: dtype for dtype, part in PART_OF.items()}
DEFAULT_FLOAT = "float32"

# bits, and for floats: significand bits (the hidden one included) and smallest/largest exponents
# such that normal numbers are m * 2**e with 1 <= m < 2
BITS = {"bool": 1, "uint8": 8, "int8": 8, "int16": 16, "int32": 32, "int64": 64}
FLOAT_FORMAT = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_int(dtype: str) -> bool:
    """Integers, ``bool`` not among them."""
    return dtype in INTS


def is_complex(dtype: str) -> bool:
    return dtype in PART_OF


def family(dtype: str) -> str:
    """``"float"``, ``"int"``, ``"uint"`` or ``"bool"``: the key of a scalar row's templates."""
    if is_float(dtype):
        return "float"
    if dtype == BOOL:
        return "bool"
    return "uint" if dtype in UNSIGNED else "int"


def int_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype (or of ``bool``)."""
    bits = BITS[dtype]
    if dtype in SIGNED:
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def fits(value: bool | int | float | complex | None, dtype: str) -> bool:
    """Whether a Python number converts to ``dtype`` "without overflow", as eager says it.

    ``None`` (a number left out) always does. Infinities and nan are no overflow for floats.
    """
    if value is None or dtype == BOOL:
        return not isinstance(value, complex)
    if is_complex(dtype):
        part, number = PART_OF[dtype], complex(value)
        return fits(number.real, part) and fits(number.imag, part)
    if isinstance(value, complex):
        return False
    if is_float(dtype):
        bits, _, largest = FLOAT_FORMAT[dtype]
        if isinstance(value, float) and not math.isfinite(value):
            return True
        return abs(value) <= (2.0 - 2.0 ** (1 - bits)) * 2.0**largest
    low, high = int_range(dtype)
    if low == 0 and isinstance(value, int):  # an unsigned dtype takes negative ones of its width
        low = -high
    return math.isfinite(value) and low <= value <= high


def same_power(exponent: bool | int | float, dtype: str) -> bool:
    """Whether a number that eager keeps in float64 may be rounded to ``dtype`` as an exponent.

    Of a negative base it decides whether there is a power, and its sign: one that rounding makes
    whole, or even, may not. The reduced floats have theirs rounded in eager too.
    """
    if dtype != "float32" or not math.isfinite(exponent):
        return True
    rounded = struct.unpack("f", struct.pack("f", exponent))[0]
    return rounded == exponent or not rounded.is_integer()


def compute_dtype(dtype: str) -> str:
    """Where eager computes on ``dtype``: reduced floats in ``float32``, all else in itself."""
    return "float32" if dtype in REDUCED else dtype


@dataclass(frozen=True)
class TensorType:
    """What the rules know of a tensor: its dtype's name and its shape."""

    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)


Operand = TensorType | bool | int | float | complex


@dataclass(frozen=True)
class Computation:
    """How eager rounds one operator.

    Every promoting operand is cast to ``common``; the lowering is then evaluated in ``compute``
    (an exact widening of ``common``) and the value is cast to ``result``. Python numbers and
    0-dim tensors promoted by numbers' rules are cast to ``scalars``, which is ``compute`` where
    eager keeps the precision of a scalar operand, else ``common``. ``further`` are the dtypes of
    outputs after the first.
    """

    common: str
    compute: str
    result: str
    scalars: str
    further: tuple[str, ...] = ()


#: What whole numbers of 2**63 and more are; eager promotes no bool or other integer to it.
BEYOND = "uint64"


def _order(dtype: str) -> int:
    return 0 if dtype == BOOL else 1 if is_int(dtype) else 2 if is_float(dtype) else 3


def promote_types(a: str, b: str) -> str:
    """The smallest dtype that both dtypes promote to (``torch.promote_types``)."""
    if a == b:
        return a
    if BEYOND in (a, b):
        other = b if a == BEYOND else a
        if is_float(other) or is_complex(other):
            return other
        raise TypeError(f"{BEYOND} and {other} have no dtype in common")
    low, high = sorted((a, b), key=_order)
    if is_complex(high) and (is_float(low) or is_complex(low)):
        return "complex128" if {"float64", "complex128"} & {a, b} else "complex64"
    if _order(low) != _order(high):
        return high
    if is_float(a):
        if {a, b} == set(REDUCED):
            return "float32"
        return max(a, b, key=lambda d: FLOAT_FORMAT[d][0])
    if "uint8" in (a, b):  # uint8 needs one bit more than int8 has
        other = b if a == "uint8" else a
        return "int16" if other == "int8" else other
    return max(a, b, key=lambda d: BITS[d])


def number_dtype(value: bool | int | float | complex) -> str:
    """The dtype that a Python number stands for in promotion: :data:`BEYOND` beyond int64."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, complex):
        return COMPLEX_OF[DEFAULT_FLOAT]
    if isinstance(value, int):
        return "int64" if value < 2**63 else BEYOND
    return DEFAULT_FLOAT


def result_type(operands: Sequence[Operand]) -> str:
    """PyTorch's promotion: tensors with dimensions before 0-dim ones before Python numbers.

    A lower priority widens the result only when it is of a higher kind (bool < int < float <
    complex); of a float and a complex number it is the kind alone that changes.
    """
    classes: list[str | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, TensorType):
            rank, dtype = (0 if operand.shape else 1), operand.dtype
        else:
            rank, dtype = 2, number_dtype(operand)
        seen = classes[rank]
        classes[rank] = dtype if seen is None else promote_types(seen, dtype)
    result: str | None = None
    for lower in reversed(classes):
        result = _combine(lower, result)
    if result is None:
        raise TypeError("type promotion needs at least one operand")
    if result == BEYOND:
        raise TypeError("a number beyond int64 and no tensor")
    return result


def _combine(higher: str | None, lower: str | None) -> str | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if is_complex(higher):
        return higher
    if is_float(higher):
        if is_complex(lower) and higher == "float16":
            raise TypeError("complex32 is not supported")
        return COMPLEX_OF.get(higher, "complex64") if is_complex(lower) else higher
    if higher == BOOL or is_float(lower) or is_complex(lower):
        return promote_types(higher, lower)
    return higher


# -- dtype rules ----------------------------------------------------------------------------------

DtypeRule = Callable[[Sequence[Operand], Mapping[str, Any]], Computation]
DTYPE_RULES: dict[str, DtypeRule] = {}


def dtype_rule(function: DtypeRule) -> DtypeRule:
    """Register a rule under the function's name.

    A rule gets the promoting operands and all arguments by name (tensors as
    :class:`TensorType`), and raises ``TypeError`` for dtypes that eager rejects.
    """
    DTYPE_RULES[function.__name__] = function
    return function


def _computation(common: str, result: str | None = None, *, keep: bool = False) -> Computation:
    compute = compute_dtype(common)
    scalars = compute if keep else common
    return Computation(common, compute, common if result is None else result, scalars)


@dtype_rule
def promote(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Ordinary promotion; scalars are rounded to the common dtype."""
    return _computation(result_type(operands))


@dtype_rule
def promote_keep(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Ordinary promotion; scalars keep the computing dtype (``mul``, ``lerp``, ``addcmul``)."""
    return _computation(result_type(operands), keep=True)


@dtype_rule
def promote_float(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Promotion where integers and bool become the default float (``exp``, ``atan2``)."""
    return _computation(_floating(result_type(operands)))


@dtype_rule
def promote_float_keep(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """As :func:`promote_float`, with scalars in the computing dtype (true division)."""
    return _computation(_floating(result_type(operands)), keep=True)


def _floating(common: str) -> str:
    return common if is_float(common) or is_complex(common) else DEFAULT_FLOAT


@dtype_rule
def divide(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``div`` with a rounding mode: true division makes floats, the others keep integers."""
    if args.get("rounding_mode") is None:
        return promote_float_keep(operands, args)
    return promote_keep(operands, args)


@dtype_rule
def promote_no_bool(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Promotion for operators that reject ``bool`` results (``sub``, ``neg``, ``sign``...)."""
    common = result_type(operands)
    if common == BOOL:
        raise TypeError("bool operands are not supported")
    return _computation(common)


@dtype_rule
def subtract(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Promotion for ``sub`` and ``rsub``, which reject every ``bool`` operand."""
    for operand in operands:
        if (operand.dtype if isinstance(operand, TensorType) else number_dtype(operand)) == BOOL:
            raise TypeError("subtraction with a bool operand is not supported")
    return _computation(result_type(operands))


@dtype_rule
def parts(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """A real number of a complex one (``abs``, ``angle``)."""
    common = result_type(operands)
    return _computation(common, PART_OF.get(common))


@dtype_rule
def average_of_parts(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """A real number of many, complex ones too (norms)."""
    computation = average(operands, args)
    return _computation(computation.common, PART_OF.get(computation.common), keep=True)


@dtype_rule
def same_paired(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """A complex number of two real ones, which share a dtype (``complex``, ``polar``)."""
    common = same_floating(operands, args).common
    if common not in COMPLEX_OF:
        raise TypeError(f"complex numbers have no parts of {common}")
    return _computation(common, COMPLEX_OF[common])


@dtype_rule
def compare(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Operands are compared in their common dtype; the result is ``bool``."""
    return _computation(result_type(operands), BOOL)


@dtype_rule
def integral(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Bitwise operators: integers and ``bool`` only."""
    common = result_type(operands)
    if is_float(common):
        raise TypeError(f"bitwise operators need integers or bool, not {common}")
    return _computation(common)


@dtype_rule
def shift(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Shifts: integers only."""
    common = result_type(operands)
    if not is_int(common):
        raise TypeError(f"shifts need integers, not {common}")
    return _computation(common)


@dtype_rule
def floating(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Floating tensors only, scalars in the computing dtype (activations)."""
    common = result_type(operands)
    if not is_float(common):
        raise TypeError(f"needs a floating dtype, not {common}")
    return _computation(common, keep=True)


@dtype_rule
def first(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """The first tensor's dtype (views, gathers, ``masked_fill``)."""
    common = operands[0]
    if not isinstance(common, TensorType):
        raise TypeError("the first operand has to be a tensor")
    return _computation(common.dtype)


@dtype_rule
def same(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """All tensors share one dtype, which is the result's (contractions, convolution)."""
    dtypes = {operand.dtype for operand in operands if isinstance(operand, TensorType)}
    if len(dtypes) != 1:
        raise TypeError(f"needs tensors of one dtype, not {sorted(dtypes)}")
    return _computation(dtypes.pop(), keep=True)


@dtype_rule
def same_floating(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """All tensors share one floating dtype."""
    computation = same(operands, args)
    if not is_float(computation.common):
        raise TypeError(f"needs a floating dtype, not {computation.common}")
    return computation


@dtype_rule
def to_dtype(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """A cast: from the tensor's dtype to ``args["dtype"]`` (``None`` keeps it)."""
    common = operands[0].dtype  # type: ignore[union-attr]
    target = args.get("dtype") or common
    return Computation(common, compute_dtype(common), target, common)


@dtype_rule
def predicate(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``bool`` of each element (``isnan``, ``logical_not``)."""
    return _computation(operands[0].dtype, BOOL)  # type: ignore[union-attr]


@dtype_rule
def truth(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``any``/``all``: ``bool``, except that ``uint8`` stays ``uint8``."""
    dtype = operands[0].dtype  # type: ignore[union-attr]
    return _computation(dtype, "uint8" if dtype == "uint8" else BOOL)


@dtype_rule
def accumulate(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``sum``, ``prod``, ``cumsum``: integers and bool become ``int64``; ``dtype`` overrides.

    The accumulator of the reduced floats is ``float32``; the result is rounded once.
    """
    dtype = operands[0].dtype  # type: ignore[union-attr]
    target = args.get("dtype") or ("int64" if dtype == BOOL or is_int(dtype) else dtype)
    return _computation(target)


@dtype_rule
def average(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``mean``, ``var``, softmax: floating only, ``dtype`` overrides before computing."""
    target = args.get("dtype") or operands[0].dtype  # type: ignore[union-attr]
    if not (is_float(target) or is_complex(target)):
        raise TypeError(f"needs a floating dtype, not {target}")
    return _computation(target, keep=True)


@dtype_rule
def exponentials(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``logsumexp``: integers and bool become the default float."""
    dtype = operands[0].dtype  # type: ignore[union-attr]
    return _computation(dtype if is_float(dtype) else DEFAULT_FLOAT, keep=True)


@dtype_rule
def softmax_out(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``_softmax(self, dim, half_to_float)``: ``half_to_float`` is for accelerators only."""
    if args.get("half_to_float"):
        raise TypeError("softmax with half to float conversion is not supported on the CPU")
    return same_floating(operands, args)


@dtype_rule
def index_out(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Positions: always ``int64`` (``argmax``)."""
    return _computation(operands[0].dtype, "int64")  # type: ignore[union-attr]


@dtype_rule
def value_and_index(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """The values in the tensor's dtype and their positions in ``int64`` (``max.dim``, ``topk``)."""
    dtype = operands[0].dtype  # type: ignore[union-attr]
    return Computation(dtype, compute_dtype(dtype), dtype, dtype, ("int64",))


@dtype_rule
def normalised(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``native_layer_norm`` and its kin: result, mean and reciprocal deviation in one dtype."""
    common = same_floating(operands, args).common
    return Computation(common, compute_dtype(common), common, common, (common, common))


@dtype_rule
def pair(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Two floating results (``var_mean``)."""
    common = average(operands, args).common
    return Computation(common, compute_dtype(common), common, common, (common,))


@dtype_rule
def filled(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """Factories: ``dtype`` if given, else that of the ``fill_value``, else the default float."""
    target = args.get("dtype")
    if target is None:
        value = args.get("fill_value")
        target = DEFAULT_FLOAT if value is None else number_dtype(value)
        if target == BEYOND:
            raise TypeError("a number beyond int64, which it is filled as")
    return Computation(target, target, target, target)


@dtype_rule
def filled_like(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``*_like``: ``dtype`` if given, else the tensor's."""
    target = args.get("dtype") or operands[0].dtype  # type: ignore[union-attr]
    return Computation(target, target, target, target)


@dtype_rule
def counted(operands: Sequence[Operand], args: Mapping[str, Any]) -> Computation:
    """``arange``: ``dtype`` if given, else int64 unless one of the numbers is a float."""
    target = args.get("dtype")
    if target is None:
        numbers = [args.get(name) for name in ("start", "end", "step")]
        target = DEFAULT_FLOAT if any(isinstance(n, float) for n in numbers) else "int64"
    return Computation(target, target, target, target)
