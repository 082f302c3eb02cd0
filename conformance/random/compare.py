"""Where two ledgers part. States tell: equal states before and after are equal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.random.ledger import UNSEEN, Draw


@dataclass(frozen=True)
class Divergence:
    """The first draws that differ (None: there is none on that side), and in what."""

    eager: Draw | None
    compiled: Draw | None
    reason: str


@dataclass(frozen=True)
class Comparison:
    """What both sides drew, and ``pairs`` of what is the same, in order.

    ``divergence`` is None where the compiled program draws eager's numbers. ``str()`` is a report.
    """

    eager: tuple[Draw, ...]
    compiled: tuple[Draw, ...]
    pairs: tuple[tuple[tuple[Draw, ...], Draw], ...]
    divergence: Divergence | None

    def __str__(self) -> str:
        lines = []
        for eager, compiled in self.pairs:
            lines += [f"  {draw}" for draw in eager] or ["  (the state was set)"]
            lines.append(f"    = {compiled}")
        if self.divergence is None:
            lines.append(f"draws of eager's: {len(self.eager)}, compiled to the same numbers")
        else:
            lines.append(f"first divergence: {self.divergence.reason}")
            lines.append(f"  eager:    {self.divergence.eager or 'no draw'}")
            lines.append(f"  compiled: {self.divergence.compiled or 'no draw'}")
        return "\n".join(lines)


def compare(eager: Sequence[Draw], compiled: Sequence[Draw], other: str = "") -> Comparison:
    """Both ledgers side by side. ``other``: what else differs when both have ended."""
    pairs: list[tuple[tuple[Draw, ...], Draw]] = []
    divergence = None
    at = 0
    for theirs in compiled:
        found = _unseen(eager[at:], theirs) if theirs.operator == UNSEEN else None
        if found is None:
            ours = eager[at] if at < len(eager) else None
            reason = _differs(ours, theirs)
            if reason:
                divergence = Divergence(ours, theirs, reason)
                break
            found = 1
        pairs.append((tuple(eager[at : at + found]), theirs))
        at += found
    if divergence is None and at < len(eager):
        divergence = Divergence(eager[at], None, "eager draws, and the compiled program does not")
    if divergence is None and other:
        divergence = Divergence(None, None, other)
    return Comparison(tuple(eager), tuple(compiled), tuple(pairs), divergence)


def _unseen(eager: Sequence[Draw], gap: Draw) -> int | None:
    """How many of eager's draws lead through a gap of the compiled side's, or None."""
    state = gap.before
    for count, draw in enumerate(eager):
        if draw.generator != gap.generator:
            return None
        if draw.before == gap.after and not count:
            return 0  # the state was set
        if draw.before != state:
            return None
        state = draw.after
        if state == gap.after:
            return count + 1
    return None if eager else 0


def _differs(eager: Draw | None, compiled: Draw) -> str:
    """Why two draws are not the same; "" if they are."""
    if eager is None:
        return "the compiled program draws once more"
    if eager.generator != compiled.generator:
        return "another generator"
    if eager.before != compiled.before:
        return "from another state: something was drawn in another order, or left out"
    if eager.after != compiled.after:
        return "from the same state, but not as many numbers"
    if eager.phase != compiled.phase:
        return f"in the {eager.phase} in eager, in the {compiled.phase} when compiled"
    if eager.shape is not None and compiled.shape is not None:
        if eager.shape != compiled.shape:
            return "of another shape"
        if _order(eager) != _order(compiled):
            return "in another order of memory"
    if compiled.python and eager.python != compiled.python:
        return "Python's random is in another state"
    if compiled.numpy and eager.numpy != compiled.numpy:
        return "numpy.random is in another state"
    return ""


def _order(draw: Draw) -> list[int]:
    """The dimensions by stride: the order in which elements are drawn."""
    shape, stride = draw.shape or (), draw.stride or ()
    long = [d for d, n in enumerate(shape) if n > 1]
    return sorted(long, key=lambda d: -stride[d])
