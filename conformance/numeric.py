"""How far two tensors are apart, and whether that is explained: the oracle's arithmetic.

The rule (the one by which torch's maintainers accept a report): compiled is wrong only when it is
further from float64 than eager's own error explains. Everything is computed in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.case import Tolerance
from conformance.verdict import Kind

# Bits of the fraction, and the exponent of the smallest normal number (IEEE 754; bfloat16).
_FORMATS = {
    torch.float64: (52, -1022),
    torch.float32: (23, -126),
    torch.float16: (10, -14),
    torch.bfloat16: (7, -126),
}

# What a lower precision would have to be, to explain an error that eager's does not.
LOWER = {torch.float64: (torch.float32,), torch.float32: (torch.bfloat16, torch.float16)}


@dataclass(frozen=True)
class Closeness:
    """How a found tensor compares with the expected one."""

    kind: Kind
    tolerated: bool = True
    evidence: Mapping[str, Any] = field(default_factory=dict)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the real part."""
    parts = {torch.complex64: torch.float32, torch.complex128: torch.float64}
    return parts.get(dtype, torch.float16 if dtype == torch.complex32 else dtype)


def ulp(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The spacing of ``dtype`` (floating) at each finite element of ``value`` (float64)."""
    fraction, smallest = _FORMATS[dtype]
    _, exponent = torch.frexp(torch.where(value.isfinite(), value, 0.0))
    exponent = (exponent - 1).clamp(min=smallest)
    exponent = torch.where(value == 0, smallest, exponent)
    return torch.ldexp(torch.ones_like(value), exponent - fraction)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Elementwise equality: NaN equals NaN, and 0.0 does not equal -0.0."""
    equal = (one == other) | (one.isnan() & other.isnan())
    if one.is_floating_point():
        equal &= (one.signbit() == other.signbit()) | one.isnan()
    return equal


def identical(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Same dtype, shape and values, as :func:`same_bits` has it."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    return bool(same_bits(one, other).all())


def _float64(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to(torch.float64).reshape(-1)


@dataclass(frozen=True)
class Reference:
    """What the oracle adds to eager's result: the same computation in float64.

    ``spread``: how far one rounding of every input moves the result, or ``None`` where that was
    not asked. Both have the shape of eager's result.
    """

    value: torch.Tensor
    spread: torch.Tensor | None = None


def allowance(
    eager: torch.Tensor,
    reference: torch.Tensor,
    spread: torch.Tensor | None,
    dtype: torch.dtype,
    tolerance: Tolerance,
) -> torch.Tensor:
    """The error to ``reference`` that is allowed at each element (all flat float64)."""
    error = (eager - reference).abs().nan_to_num(0.0, posinf=0.0)
    allowed = tolerance.ulp * ulp(reference, dtype) + 2 * error
    if tolerance.mixing:
        # Eager may be right by luck at an element where cancellation costs the other side
        # everything; what the inputs' own rounding does there says what can be expected.
        allowed = allowed + 3 * error.square().mean().sqrt()
    if spread is not None:
        spread = spread.nan_to_num(0.0, posinf=0.0)
        if tolerance.mixing:
            spread = spread.clamp(min=spread.square().mean().sqrt())
        allowed = allowed + 4 * spread
    # Half a unit is what rounding an exact result costs.
    return allowed + 0.5 * ulp(reference, dtype)


def closeness(
    expected: torch.Tensor,
    found: torch.Tensor,
    tolerance: Tolerance,
    reference: Reference | None = None,
) -> Closeness:
    """Judge ``found`` against eager's ``expected`` (same shape and dtype) and float64.

    Without a ``reference`` (the computation has no float64 form) eager itself is the reference.
    Integers and bools have to be equal, except where float64 says that eager's own rounding
    decided the element and ``found`` has what float64 has. NaN equals only NaN.
    """
    if identical(expected, found):
        return Closeness(Kind.PASS)
    if not (expected.is_floating_point() or expected.is_complex()):
        return _exact(expected, found, reference)
    dtype = real_dtype(expected.dtype)
    e, c = _float64(expected), _float64(found)
    r = e if reference is None else _float64(reference.value)
    spread = None
    if reference is not None and reference.spread is not None:
        spread = _float64(reference.spread)

    allowed = allowance(e, r, spread, dtype, tolerance)
    error = _apart(c, r)
    near = same_bits(e, c) | (error <= allowed)
    near |= _overflow_is_explained(c, r, allowed, dtype)
    if tolerance.mixing:
        # Whether an infinity meets its opposite depends on the order of the additions.
        near |= ~e.isfinite() & ~c.isfinite() & ~r.isfinite()
    if tolerance.zero_sign:
        # Both are zero and exact, and only the sign differs: a user sees that in 1 / x.
        near &= ~((e == 0) & (c == 0) & (e.signbit() != c.signbit()) & (r == e))
    evidence = _evidence(e, c, r, allowed, near, dtype, expected)
    evidence["float64"] = reference is not None
    if not bool(near.all()):
        return Closeness(Kind.WRONG, tolerated=False, evidence=evidence)
    if dtype in (torch.bfloat16, torch.float16) and _rounding_was_elided(e, c, r, dtype, tolerance):
        return Closeness(Kind.PRECISION, evidence=evidence | {"direction": "more precise"})
    return Closeness(Kind.REASSOCIATION, evidence=evidence)


def _apart(found: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The distance: 0 of equal infinities and of two NaN, so that float64 decides about these too,
    as of gelu's at infinity, of which torch's vectors make NaN."""
    same = (found == reference) | (found.isnan() & reference.isnan())
    return torch.where(same, 0.0, (found - reference).abs())


def explained_by(lower: torch.Tensor, found: torch.Tensor, reference: Reference) -> bool:
    """Whether ``found`` is what computing in the precision of ``lower`` gives.

    It explains the error only when it predicts it: ``found`` has to be several times closer to
    the result in lower precision than to the exact one.
    """
    low, c, r = _float64(lower), _float64(found), _float64(reference.value)
    if not bool(c.isfinite().all() and low.isfinite().all() and r.isfinite().all()):
        return False
    to_low = (c - low).square().mean().sqrt()
    to_exact = (c - r).square().mean().sqrt()
    return bool(0 < to_exact and to_low <= 0.25 * to_exact)


def _exact(expected: torch.Tensor, found: torch.Tensor, reference: Reference | None) -> Closeness:
    different = expected != found
    where = tuple(int(i) for i in different.nonzero()[0])
    evidence = {
        "elements": expected.numel(),
        "differing": int(different.sum()),
        "index": where,
        "expected": expected[where].item(),
        "found": found[where].item(),
    }
    if reference is not None and reference.value.dtype == expected.dtype:
        r = reference.value
        if bool(((expected != r) & (found == r))[different].all()):
            return Closeness(Kind.REASSOCIATION, evidence=evidence)
    return Closeness(Kind.WRONG, tolerated=False, evidence=evidence)


def _overflow_is_explained(
    c: torch.Tensor, r: torch.Tensor, allowed: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Infinite where the exact result is finite but, within what is allowed, beyond the dtype."""
    largest = torch.finfo(dtype).max
    return c.isinf() & r.isfinite() & (r.abs() + allowed >= largest) & (c.sign() == r.sign())


def _rounding_was_elided(
    e: torch.Tensor, c: torch.Tensor, r: torch.Tensor, dtype: torch.dtype, tolerance: Tolerance
) -> bool:
    """The two differ by more than the operator's tolerance, and compiled is the closer one."""
    finite = e.isfinite() & c.isfinite() & r.isfinite()
    apart = ((e - c).abs() > (tolerance.ulp + 1) * ulp(r, dtype)) & finite
    # Overflowed in eager, finite and right in compiled.
    apart |= ~e.isfinite() & c.isfinite() & r.isfinite()
    if not bool(apart.any()):
        return False
    return bool((c - r)[finite].abs().sum() <= (e - r)[finite].abs().sum())


def _evidence(
    e: torch.Tensor,
    c: torch.Tensor,
    r: torch.Tensor,
    allowed: torch.Tensor,
    near: torch.Tensor,
    dtype: torch.dtype,
    shaped: torch.Tensor,
) -> dict[str, Any]:
    unit = ulp(r, dtype)
    error = (_apart(c, r) / unit).nan_to_num(float("inf"))
    # The worst element that is not explained; of all that differ when every one is.
    same = same_bits(e, c)
    rank = torch.where(same | (near & bool((~near).any())), -1.0, error)
    worst = int(rank.argmax())
    shape = (*shaped.shape, 2) if shaped.is_complex() else shaped.shape
    index = torch.unravel_index(torch.tensor(worst), shape) if shape else ()
    own = ((e - r).abs() / unit).nan_to_num(0.0)
    return {
        "elements": shaped.numel(),
        "differing": int((~same).sum()),
        "unexplained": int((~near).sum()),
        "index": tuple(int(i) for i in index),
        "expected": float(e[worst]),
        "found": float(c[worst]),
        "reference": float(r[worst]),
        "allowed": float(allowed[worst]),
        "ulp_to_float64": float(error[worst]),
        "ulp_of_eager": float(own.max()),
        "complex": shaped.is_complex(),
        "signed_zero": bool(e[worst] == c[worst] and e[worst].signbit() != c[worst].signbit()),
    }
