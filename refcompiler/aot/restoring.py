"""Views that lead back to what they are of, in the place of those whose way back loses something.

A write to a view is a new value of what it is a view of, which torch makes by the view's inverse.
That of ``expand`` adds up differences, so that it rounds, and infinities become NaN. That of
``unfold`` puts zeros where no window is. Where elements are shared, a write is refused before
(``aot/watching.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.shapes.known import same

_aten = torch.ops.aten


def _expand(t: torch.Tensor, size: Sequence[Any], implicit: bool = False) -> Any:
    """What gets new dimensions, of one element each, and nothing else."""
    new = len(size) - t.dim()
    old = [n if type(m) is int and m == -1 else m for n, m in zip(t.shape, size[new:])]
    if not same([*size[:new], *old], [*[1] * new, *t.shape]):
        return None
    made = t
    for _ in range(new):
        made = _aten.unsqueeze.default(made, 0)
    return made if new else _aten.alias.default(t)


def _unfold(t: torch.Tensor, dim: int, size: int, step: int) -> Any:
    """Windows side by side, of which each loses what is between it and the next."""
    if not t.dim() or step < size or leaves_gaps(t, dim, size, step):
        return None
    count = (t.shape[dim] - size) // step + 1
    covers = same((count * step,), (t.shape[dim],))
    if covers and size == step:
        return None  # it loses nothing
    if not covers:
        t = _aten.slice.Tensor(t, dim, 0, count * step)
    windows = _aten.unfold.default(t, dim, step, step)
    return windows if size == step else _aten.slice.Tensor(windows, -1, 0, size)


def leaves_gaps(t: torch.Tensor, dimension: int, size: int, step: int) -> bool:
    """Whether there is something between windows, and less of it behind the last one, or by other
    sizes may be."""
    if not t.dim() or step <= size:
        return False
    length = t.shape[dimension]
    return type(length) is not int or ((length - size) // step + 1) * step > length


#: By operator: what makes the same view another way, or None where that is not needed.
OTHERS: dict[Any, Callable[..., Any]] = {
    _aten.expand.default: _expand,
    _aten.unfold.default: _unfold,
}
