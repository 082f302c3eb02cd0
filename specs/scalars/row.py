"""The form of a scalar row: one scalar operation of the loop IR, its meaning and its texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specs import dtypes
from specs.table import Table

NUMBA_SUFFIX = {
    "bool": "b1",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "f32",  # a reduced float is a float32 value inside a kernel
    "bfloat16": "f32",
    "float32": "f32",
    "float64": "f64",
    **dict.fromkeys(dtypes.BYTES, "u8"),
}
TRITON_TYPE = {
    "bool": "int1",
    "uint8": "uint8",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
    **dict.fromkeys(dtypes.BYTES, "uint8"),
}

Template = str | Mapping[str, str | None] | None


@dataclass(frozen=True)
class Scalar:
    """One scalar operation.

    ``exact`` is its meaning on Python numbers (bool, int, float; an mpmath value may come back),
    written apart from the kernels: it is the oracle, so it shares no text with ``numba`` and
    ``triton``. It need not round or wrap: :func:`specs.rounding.store` puts what it returns into
    the result's dtype. It defines nan, infinities and signed zeros.

    ``result`` names the dtype rule: ``same`` (the operands' common dtype), ``bool``, ``target``
    (the dtype that a cast names). ``dtypes`` are the *computing* dtypes it accepts: ``float16``
    and ``bfloat16`` values are ``float32`` inside a kernel, so neither occurs here.

    ``numba`` and ``triton`` are expression templates over ``{0}``, ``{1}``, ...: one text, or one
    per dtype or dtype family (``"float"``, ``"int"``, ``"uint"``, ``"bool"``, see
    :func:`specs.dtypes.family`); ``None`` needs an entry in ``reasons`` under the printer's name.
    ``{T}`` is the computing dtype as the printer writes it: in numba a suffix (``f32``, ``i64``,
    ``b1``: :data:`NUMBA_SUFFIX`), in Triton a type's name (``float32``, ``int1``:
    :data:`TRITON_TYPE`). In ``cast`` alone ``{T}`` is the target and ``{S}`` the source; there
    the reduced floats have suffixes of their own, ``f16`` and ``bf16``, which mean "round to it".
    In numba, ``m`` is the module ``fastpath.cpu.maths`` and every operand has the exact scalar type
    of the computing dtype (``np.float32``, never a bare literal); in Triton, ``tl`` and
    ``libdevice`` are Triton's modules and ``m`` is the module ``fastpath.gpu.maths``. An operand's
    text has to be an atom (a name, a call, or in parentheses). Use :meth:`text` to print.

    ``ulp`` bounds the error of the numba text over ``domain`` against ``exact``, in units in the
    last place of the result, as measured by ``tests/cpu/specs``; no entry means exact. The Triton
    texts keep the bounds of CUDA's libdevice (at most 4 ULP; measured on one GPU), and
    subnormals, as operands or results of libdevice's functions, may be flushed to zero. ``domain``
    gives one (low, high) per operand, empty means every value. ``special`` are operand tuples
    that deserve a test of their own.
    """

    name: str
    arity: int
    exact: Callable[..., Any]
    result: str
    dtypes: frozenset[str]
    numba: Template
    triton: Template
    per_dtype: bool = False  # exact is a function of the dtype that gives the meaning
    ulp: Mapping[str, float] = field(default_factory=dict)
    domain: tuple[tuple[float, float], ...] = ()
    special: tuple[tuple[Any, ...], ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    doc: str = ""

    def meaning(self, dtype: str) -> Callable[..., Any]:
        """The meaning on a computing dtype: ``exact``, or what ``exact(dtype)`` gives."""
        return self.exact(dtype) if self.per_dtype else self.exact

    def template(self, printer: str, dtype: str) -> str | None:
        """The raw template of ``"numba"`` or ``"triton"`` for a computing dtype."""
        texts = getattr(self, printer)
        if texts is None or isinstance(texts, str):
            return texts
        return texts[dtype] if dtype in texts else texts.get(dtypes.family(dtype))

    def text(self, printer: str, dtype: str, *operands: str) -> str:
        """The operation on ``operands`` as source text.

        Raises ``NotImplementedError`` with the row's reason where the printer has no text, and
        ``TypeError`` for a dtype that the operation does not accept.
        """
        if dtypes.compute_dtype(dtype) not in self.dtypes:
            raise TypeError(f"{self.name} has no meaning on {dtype}")
        template = self.template(printer, dtype)
        if template is None:
            reason = self.reasons.get(printer, "no text for this dtype")
            raise NotImplementedError(f"{self.name} on {dtype} in {printer}: {reason}")
        types = NUMBA_SUFFIX if printer == "numba" else TRITON_TYPE
        return template.format(*operands, T=types[dtype])


SCALARS: Table[Scalar] = Table("scalar operations")

FLOAT = frozenset({"float32", "float64"})
INT = frozenset(dtypes.INTS)
NUMBER = FLOAT | INT
ANY = NUMBER | {"bool"}
INT_OR_BOOL = INT | {"bool"}

INF, NAN = float("inf"), float("nan")
TINY32, TINY64 = 2.0**-149, 5e-324  # smallest subnormals
FLOAT_SPECIAL = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, TINY32, -TINY32, 2.0**-126, 3.0e38, -3.0e38)
INT_SPECIAL: tuple[int, ...] = (
    0,
    1,
    -1,
    2,
    127,
    -128,
    255,
    2**15 - 1,
    -(2**15),
    2**31 - 1,
    -(2**31),
)
INT_SPECIAL += (2**63 - 1, -(2**63))


def unary(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """Operand tuples of one operand."""
    return tuple((value,) for value in values)


def pairs(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """Every ordered pair of the values."""
    return tuple((a, b) for a in values for b in values)
