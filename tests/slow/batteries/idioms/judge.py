"""An idiom compiled beside eager, and what differs."""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

import refcompiler
from refcompiler.runtime.counters import reasons
from tests.slow.batteries.idioms.common import Adapted, Compiled, Idiom, Program
from tests.slow.batteries.training import EXACT, Backend

#: Magnitudes below this are of what is zero up to rounding, as programs compute with ones.
_FLOOR = 1e-2


@dataclass
class Result:
    name: str
    difference: str = ""
    against: str = "eager"
    compared: int = 0  # values
    distance: float = 0.0  # the largest, of the largest magnitude; 0: the same bits
    graphs: int = 0
    breaks: int = 0
    fallbacks: int = 0
    uncompiled: list[str] = field(default_factory=list)  # why, of each such graph

    @property
    def good(self) -> bool:
        return not self.difference

    def __str__(self) -> str:
        said = f"within {self.distance:.1e} of" if self.distance else "as"
        said = self.difference or f"{said} {self.against}"
        return (
            f"{self.name}: {said}; {self.graphs} graphs, {self.breaks} breaks, {self.fallbacks} "
            f"fallbacks, {self.compared} values {self.uncompiled or ''}".rstrip()
        )


def judge(idiom: Idiom, backend: str) -> Result:
    """``idiom`` under ``backend`` beside eager, or beside its captured graph where it says so."""
    exact = backend in EXACT
    within = idiom.bound if exact else idiom.within
    counted = Backend(backend)
    result = Result(idiom.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = observe(idiom.program)
        if idiom.captured:
            result.against = "its captured graph"
            expected = observe(idiom.program, _compiler("eager"))
        try:
            found = observe(idiom.program, _compiler(counted))
        except Exception as error:
            result.difference = f"{type(error).__name__}: {error}"[:300]
            return result
    counts = refcompiler.counters()
    result.graphs, result.uncompiled = counted.graphs, [str(r) for r in reasons("uncompiled")]
    result.breaks, result.fallbacks = counts["breaks"], counts["fallbacks"]
    result.compared = len(expected)
    result.difference, result.distance = difference(found, expected, within, adapted=exact)
    if not result.graphs:
        result.difference = result.difference or "no graph was compiled"
    return result


def observe(
    program: Program, compiled: Compiled = lambda function, **options: function
) -> list[Any]:
    """What the program returns, and the random state after it."""
    torch.manual_seed(0)
    random.seed(0)
    found = program(compiled)
    return [*found, torch.get_rng_state(), random.getstate()]


def _compiler(backend: Any) -> Compiled:
    refcompiler.reset()
    return lambda function, **options: refcompiler.compile(function, backend=backend, **options)


def difference(
    ours: list[Any], theirs: list[Any], within: float, adapted: bool
) -> tuple[str, float]:
    """What first differs, if anything, and the largest distance of what does not.

    ``within``: what numbers may differ by, of the largest magnitude (0: in no bit); ``adapted``:
    also look at the numbers that normalised steps led to, and at strides that reach nothing.
    """
    if len(ours) != len(theirs):
        return f"{len(ours)} values, not {len(theirs)}", 0.0
    furthest = 0.0
    for n, (a, b) in enumerate(zip(ours, theirs)):
        numbers = adapted or not isinstance(b, Adapted)
        a, b = (v.tensor if isinstance(v, Adapted) else v for v in (a, b))
        reason, distance = _one(a, b, within, numbers, exact=adapted)
        if reason:
            return f"value {n} of {len(theirs)}: {reason}", furthest
        furthest = max(furthest, distance)
    return "", furthest


def _one(a: Any, b: Any, within: float, numbers: bool, exact: bool) -> tuple[str, float]:
    if type(a) is not type(b):
        return f"a {type(a).__name__}, not a {type(b).__name__}", 0.0
    if isinstance(b, float):
        a, b = torch.tensor(a, dtype=torch.double), torch.tensor(b, dtype=torch.double)
    if not isinstance(b, torch.Tensor):
        return "" if a == b else f"{a!r:.80}, not {b!r:.80}", 0.0
    if (known := _form(a, exact)) != (form := _form(b, exact)):
        return f"{known}, not {form}", 0.0
    if not numbers or torch.equal(_bits(a), _bits(b)):
        return "", 0.0
    if within == 0 or not (b.is_floating_point() or b.is_complex()):
        return f"{int((_bits(a) != _bits(b)).any(-1).sum())} of {b.numel()} numbers", 0.0
    distance = _distance(a, b)
    return "" if distance <= within else f"{distance:.1e} of the largest magnitude", distance


def _form(t: torch.Tensor, exact: bool) -> tuple[Any, ...]:
    """What a tensor is besides its contents; where a dimension of length 1 would go on is its
    code generator's business."""
    strides: Any = t.layout
    if t.layout == torch.strided:
        strides = tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if exact or n != 1)
    return t.dtype, tuple(t.shape), strides, t.requires_grad


def _dense(t: torch.Tensor) -> torch.Tensor:
    return t.detach().to_dense().resolve_conj().resolve_neg()


def _bits(t: torch.Tensor) -> torch.Tensor:
    """The bytes, a row for each number."""
    dense = _dense(t).clone(memory_format=torch.contiguous_format).reshape(-1)
    return dense.view(torch.uint8).reshape(dense.numel(), dense.element_size())


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference by the largest magnitude; infinite if what is not finite differs."""
    wide = torch.complex128 if b.is_complex() else torch.double
    a, b = _dense(a).to(wide), _dense(b).to(wide)
    finite = b.isfinite()
    if not torch.equal(finite, a.isfinite()) or not torch.equal(
        a[~finite].nan_to_num(nan=0.5), b[~finite].nan_to_num(nan=0.5)
    ):
        return math.inf
    a, b = a[finite], b[finite]
    if not b.numel():
        return 0.0
    return float((a - b).abs().max()) / max(float(b.abs().max()), _FLOOR)
