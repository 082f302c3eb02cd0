"""``options={"numerics": "strict"}``: eager's bits for torch's own samples of what is pointwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils import _pytree as pytree

import refcompiler

BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
#: Pointwise operators that torch has no class of samples for.
OTHERS = frozenset(
    """
    addcdiv addcmul clamp lerp masked_fill where nan_to_num nn.functional.gelu nn.functional.silu
    nn.functional.relu nn.functional.leaky_relu nn.functional.hardswish nn.functional.hardtanh
    nn.functional.hardsigmoid nn.functional.mish nn.functional.prelu nn.functional.softplus
    nn.functional.softshrink nn.functional.tanhshrink nn.functional.threshold nn.functional.celu
    nn.functional.elu nn.functional.selu nn.functional.logsigmoid
    """.split()
)
POINTWISE = [
    op
    for op in op_db
    if (isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo)) or op.formatted_name in OTHERS)
    and not op.name.startswith("jiterator")  # which CUDA alone has
]


def difference(found: Any, expected: Any) -> str:
    """How two results differ in their bits, or "". (Of NaN that it is one is enough.)"""
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
    for a, b in pairs:
        if a.dtype != b.dtype or a.shape != b.shape or a.stride() != b.stride():
            return f"{a.dtype}, {a.shape}, {a.stride()}, not {b.dtype}, {b.shape}, {b.stride()}"
        if b.is_complex():
            a, b = torch.view_as_real(a), torch.view_as_real(b)
        if b.dtype not in BITS:
            equal = torch.equal(a, b)
        else:
            same = a.contiguous().view(BITS[b.dtype]) == b.contiguous().view(BITS[b.dtype])
            equal = bool((same | (a.isnan() & b.isnan())).all())
        if not equal:
            return f"{a} is not {b}"
    return ""


def compare(op: Any, dtype: torch.dtype, most: int | None = None) -> tuple[int, list[str]]:
    """How many samples were compared, and how those differ that do."""
    count, wrong = 0, []
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
        if number == most:
            break
        args, kwargs = (sample.input, *sample.args), sample.kwargs

        def function(*args: Any, **kwargs: Any) -> Any:
            return op.op(*args, **kwargs)

        expected = function(*args, **kwargs)
        refcompiler.reset()
        compiled = refcompiler.compile(function, dynamic=False, options={"numerics": "strict"})
        found = difference(compiled(*args, **kwargs), expected)
        if found:
            wrong.append(f"sample {number}: {found}")
        count += 1
    return count, wrong


@pytest.mark.parametrize("dtype", BITS, ids=str)
@pytest.mark.parametrize("op", POINTWISE, ids=lambda op: str(op.formatted_name))
def test_samples_have_eagers_bits(op: Any, dtype: torch.dtype) -> None:
    if dtype not in op.dtypes:
        pytest.skip(f"eager has none of {dtype}")
    count, wrong = compare(op, dtype)
    assert count and not wrong, "\n".join(wrong)
