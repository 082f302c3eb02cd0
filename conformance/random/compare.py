"""Where two ledgers part. States tell: equal states before and after are equal numbers.

The numbers of a generator depend on its own draws, so each generator's are compared in their order.
What draws from a generator of the program's own beside compiled code is not seen on that side
(nobody knows its state, as the default generators' is known): it is counted and not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.random.ledger import OWN, UNSEEN, Draw


@dataclass(frozen=True)
class Divergence:
    """The first draws that differ (None: there is none on that side), and in what."""

    eager: Draw | None
    compiled: Draw | None
    reason: str


@dataclass(frozen=True)
class Comparison:
    """What both sides drew, and ``pairs`` of what is the same, in order.

    ``divergence`` is None where the compiled program draws eager's numbers. ``beside``: eager's
    draws from generators of the program's own that were not seen when it was compiled.
    ``str()`` is a report.
    """

    eager: tuple[Draw, ...]
    compiled: tuple[Draw, ...]
    pairs: tuple[tuple[tuple[Draw, ...], Draw], ...]
    divergence: Divergence | None
    beside: tuple[Draw, ...] = ()

    def __str__(self) -> str:
        lines = []
        for eager, compiled in self.pairs:
            lines += [f"  {draw}" for draw in eager] or ["  (the state was set)"]
            lines.append(f"    = {compiled}")
        if self.beside:
            lines.append("from generators of the program's own, not seen beside compiled code:")
            lines += [f"  {draw}" for draw in self.beside]
        if self.divergence is None:
            same = len(self.eager) - len(self.beside)
            lines.append(f"draws of eager's: {same}, compiled to the same numbers")
        else:
            lines.append(f"first divergence: {self.divergence.reason}")
            lines.append(f"  eager:    {self.divergence.eager or 'no draw'}")
            lines.append(f"  compiled: {self.divergence.compiled or 'no draw'}")
        return "\n".join(lines)


def compare(eager: Sequence[Draw], compiled: Sequence[Draw], other: str = "") -> Comparison:
    """Both ledgers side by side. ``other``: what else differs when both have ended."""
    pairs: list[tuple[tuple[Draw, ...], Draw]] = []
    beside: list[Draw] = []
    divergence = None
    left: dict[str, list[Draw]] = {}  # what is not paired yet, by generator
    for draw in eager:
        left.setdefault(draw.generator, []).append(draw)
    for theirs in compiled:
        ours = left.setdefault(theirs.generator, [])
        if theirs.generator.endswith(OWN):
            beside += _passed(ours, theirs)
        found = _unseen(ours, theirs) if theirs.operator == UNSEEN else None
        if found is None:
            first = ours[0] if ours else None
            reason = _differs(first, theirs)
            if reason:
                divergence = Divergence(first, theirs, reason)
                break
            found = 1
        pairs.append((tuple(ours[:found]), theirs))
        del ours[:found]
    for draw in eager if divergence is None else ():
        if not any(draw is other for other in left[draw.generator]):
            continue
        if draw.generator.endswith(OWN):
            beside.append(draw)
        else:
            reason = "eager draws, and the compiled program does not"
            divergence = Divergence(draw, None, reason)
            break
    if divergence is None and other:
        divergence = Divergence(None, None, other)
    return Comparison(tuple(eager), tuple(compiled), tuple(pairs), divergence, tuple(beside))


def _passed(ours: list[Draw], theirs: Draw) -> list[Draw]:
    """Takes out, and returns, what comes before the draw that begins where ``theirs`` does."""
    at = next((i for i, draw in enumerate(ours) if draw.before == theirs.before), 0)
    passed = ours[:at]
    del ours[:at]
    return passed


def _unseen(eager: Sequence[Draw], gap: Draw) -> int | None:
    """How many of eager's draws lead through a gap of the compiled side's, or None."""
    state = gap.before
    for count, draw in enumerate(eager):
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
