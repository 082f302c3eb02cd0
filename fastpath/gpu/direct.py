"""What answers ATen's calls on a GPU without ATen: the vendor's library, or a kernel by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastpath.gpu.compile import Pending
from fastpath.gpu.embedding import embedding_of
from fastpath.gpu.vendor import product_of
from fastpath.ir.program import Call, Tensor


@dataclass(frozen=True)
class Direct:
    """``launch`` takes the addresses of ``operands``, 0 for None, and of the result. It asks the
    vendor's library, or it is a kernel with that ``source``, which is made with the program and
    given a result that is zero."""

    operands: tuple[Tensor | None, ...]
    launch: Callable[..., None] | Pending
    source: str = ""


def without_aten(calls: Iterable[Call], device: int) -> dict[Call, Direct]:
    """Those of ``calls`` that need no ATen on the device of that number."""
    found: dict[Call, Direct] = {}
    for call in calls:
        product = product_of(call, device)
        embedding = embedding_of(call, device)
        if product is not None:
            found[call] = Direct(*product)
        elif embedding is not None:
            operands, kernel = embedding
            found[call] = Direct(operands, kernel, kernel.printed.source)
    return found
