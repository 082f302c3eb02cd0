"""Products of groups of rows, as mixtures of experts take them, on a CPU.

Eager's kernel there takes float32 and float16 beside bfloat16, which is all that torch's stand-in
lets pass; what comes out is contiguous, of sizes that no data decides.
"""

from __future__ import annotations

import torch

GROUPED = getattr(torch.ops.aten, "_grouped_mm", None) and torch.ops.aten._grouped_mm.default
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ALIGNED = 16  # bytes that a row, or a column, has to be a multiple of


def fake_grouped(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor | None:
    """The result, in the mode of the fakes; None where torch's stand-in is to answer, or to say
    what is wrong."""
    ragged = a.dim() == 2 or b.dim() == 2
    if any(t.device.type != "cpu" or t.dtype not in _DTYPES for t in (a, b)) or a.dtype != b.dtype:
        return None
    if bias is not None or out_dtype not in (None, a.dtype) or ragged != (offs is not None):
        return None
    if {a.dim(), b.dim()} - {2, 3} or not (_lies_right(a) and _lies_right(b)):
        return None
    if offs is not None and (offs.dim() != 1 or offs.dtype != torch.int32):
        return None
    if (a.dim() == 3 or b.dim() == 3) and a.shape[-1] != b.shape[-2]:
        return None
    groups = [t.shape[0] for t in (a, b) if t.dim() == 3]
    if offs is not None:
        groups.append(offs.shape[0])
    if any(n != groups[0] for n in groups):
        return None
    inner = a.dim() == b.dim()  # each group has a product of its own
    size = (*groups[:1], a.shape[-2], b.shape[-1]) if inner else (a.shape[-2], b.shape[-1])
    return a.new_empty(size)


def _lies_right(t: torch.Tensor) -> bool:
    """By rows or by columns, each of which begins at a multiple of what loads take at once."""
    rows, columns = t.stride()[-2:]
    least = _ALIGNED // t.element_size()
    if rows == 1 and columns >= max(1, t.shape[-2]):
        return bool(columns % least == 0)
    return bool(columns == 1 and rows >= max(1, t.shape[-1]) and rows % least == 0)
