"""What a training may differ by: how far eager's rounding takes it from float64.

The exact training is eager's in float64, with the same weights and the same random numbers: draws
are float32's, then made float64. Noise is how far from it float32 is, in three trainings by eager:
the plain one, and two whose parameters begin a rounding error off. One training alone can come
close to the exact one by chance, above all in a single number such as a loss.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from conformance.execute import FLOAT64, Precision, Recaster, recast
from tests.slow.batteries.recipes import Curve, Recipe, prepare, train

#: Times the noise. Curves that part grow apart exponentially, some sooner than others.
FACTOR = 4.0
#: Units in the last place of float32 that are no difference: what writing a number down costs.
UNITS = 4
_DRAWS = {
    getattr(torch, name)
    for name in "bernoulli multinomial normal rand rand_like randn randn_like".split()
}
_DRAWS_IN_PLACE = {
    getattr(torch.Tensor, name)
    for name in "cauchy_ exponential_ geometric_ log_normal_ normal_ uniform_".split()
}
_CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}


class _Exact(TorchFunctionMode):
    """Computes in float64 whatever dtype a program names; draws as in float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _CASTS:
            return args[0].double()
        if func is F.dropout and args[0].is_cuda:  # whose draws are laid by vectors of the dtype
            return _dropped(*args, **kwargs)
        if func in _DRAWS_IN_PLACE:
            drawn = func(args[0].detach().float(), *args[1:], **kwargs)
            with torch.no_grad():
                return args[0].copy_(drawn)
        if func in _DRAWS:
            with _default(torch.float32):
                args, kwargs = pytree.tree_map(_single, (args, kwargs))
                drawn = func(*args, **kwargs)
            return drawn.double() if drawn.is_floating_point() else drawn
        args, kwargs = pytree.tree_map(lambda a: recast(a, torch.float64), (args, kwargs))
        return func(*args, **kwargs)


def _dropped(
    given: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    kept = F.dropout(torch.ones_like(given, dtype=torch.float32), p, training) != 0
    found = given * kept / (1.0 - p) if training and p < 1 else given * kept
    return given.copy_(found) if inplace else found


def _single(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.float()
    return recast(value, torch.float32)


@contextlib.contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclass
class Noise:
    """``exact`` and how far from it eager is: of each loss until then, and of each end's tensor."""

    exact: Curve
    plain: Curve  # eager's
    losses: list[float]
    end: list[float]


@dataclass
class Judgement:
    """``difference``: what is first further from float64 than noise explains ("": nothing).

    ``worst``: the largest distance of a loss, and of a tensor at the end, each in noises.
    """

    difference: str
    compared: int
    worst: tuple[float, float]
    noise: float  # of the losses, at most, relative


def measure(model: torch.nn.Module, inputs: Any, recipe: Recipe, steps: int) -> Noise:
    """Trains copies of ``model``."""

    def curve(precision: Precision | None) -> Curve:
        twin, given = copy.deepcopy(model), inputs
        if precision is not None:
            recaster = Recaster(precision)
            recaster.program([twin])
            if precision is FLOAT64:
                given = pytree.tree_map_only(torch.Tensor, recaster, inputs)
        prepare(twin, recipe)
        if precision is not FLOAT64:
            return train(twin, twin, given, recipe, steps)
        with _default(torch.float64), _Exact():
            return train(twin, twin, given, recipe, steps)

    plain = curve(None)
    trained = [plain, *(curve(Precision(torch.float32, jitter)) for jitter in (1, 2))]
    exact = curve(FLOAT64)
    return Noise(
        exact,
        plain,
        _so_far([max(d) for d in zip(*(_distances(c.losses, exact.losses) for c in trained))]),
        [max(d) for d in zip(*(_distances(c.end, exact.end) for c in trained))],
    )


def judge(found: Curve, noise: Noise) -> Judgement:
    """``found`` beside what eager's trainings are off by."""
    problems = []
    relative = [d / max(_size(e), 1e-30) for d, e in zip(noise.losses, noise.exact.losses)]
    if not torch.equal(noise.exact.end[-1], noise.plain.end[-1]):  # type: ignore[arg-type]
        problems.append("float64 drew other random numbers: there is nothing to judge by")
    if not torch.equal(found.end[-1], noise.plain.end[-1]):  # type: ignore[arg-type]
        problems.append("the generator's state at the end")
    worst = []
    for what, ours, exact, plain, allowed in (
        (
            "the loss of backward",
            found.losses,
            noise.exact.losses,
            noise.plain.losses,
            noise.losses,
        ),
        ("tensor", found.end, noise.exact.end, noise.plain.end, noise.end),
    ):
        most = 0.0
        for n, (distance, limit) in enumerate(zip(_distances(ours, exact), allowed, strict=True)):
            if not _alike(ours[n], plain[n]):
                problems.append(f"{what} {n} is of another kind")
            floor = UNITS * torch.finfo(torch.float32).eps * _size(exact[n])
            most = max(most, distance / max(limit, floor, 1e-30))
            if not distance <= FACTOR * limit + floor:
                problems.append(f"{what} {n} is {distance:.2e} off, eager {limit:.2e}")
        worst.append(most)
    return Judgement(
        problems[0] + f" ({len(problems)} such)" if problems else "",
        len(found.losses) + len(found.end),
        (worst[0], worst[1]),
        max(relative),
    )


def _distances(found: Any, exact: Any) -> list[float]:
    return [_size(a, b) for a, b in zip(found, exact, strict=True)]


def _size(a: torch.Tensor | None, b: torch.Tensor | None = None) -> float:
    """The norm in float64, of the difference if there are two; 0 of what is no float."""
    if a is None or not a.is_floating_point():
        return 0.0
    difference = a.double() if b is None else a.double() - b.double()
    if b is not None:
        same = (a.double() == b.double()) | (a.isnan() & b.isnan())
        difference = difference.masked_fill(same, 0.0)
    return float(difference.norm())


def _so_far(distances: list[float]) -> list[float]:
    return [max(distances[: n + 1]) for n in range(len(distances))]


def _alike(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Of one kind; what is no float is the same."""
    if a is None or b is None:
        return a is b
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return a.is_floating_point() or torch.equal(a, b)
