"""Inputs as Python source. The runner executes this text, and a repro script contains it."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.case import Drawn, Input, Literal, Storage, Tensor, Value, show

# What the text may use besides ``torch``.
PRELUDE = "from math import inf, nan\n"


def storage_source(storage: Storage) -> str:
    match storage.contents:
        case Literal(values):
            return f"torch.tensor({show(list(values))}, dtype=torch.{storage.dtype})"
        case Drawn("normal", seed):
            # Drawn in float32 and then rounded: not every dtype has a kernel for randn.
            drawn = f"torch.randn({storage.size}, generator=torch.Generator().manual_seed({seed}))"
        case Drawn("integers", seed, low, high):
            generator = f"torch.Generator().manual_seed({seed})"
            drawn = f"torch.randint({low}, {high}, ({storage.size},), generator={generator})"
        case _:
            raise ValueError(f"storage {storage.name!r}: unknown contents {storage.contents!r}")
    return f"{drawn}.to(torch.{storage.dtype})"


def tensor_source(tensor: Tensor) -> str:
    if tensor.strides is None:
        # The clone is nobody's view, as a user's own tensor.
        text = f"{tensor.storage}.reshape({show(tensor.shape)}).clone()"
    else:
        place = f"{show(tensor.shape)}, {show(tensor.strides)}, {tensor.offset}"
        text = f"{tensor.storage}.as_strided({place})"
    if tensor.view_dtype:
        text += f".view(torch.{tensor.view_dtype})"
    if tensor.conj:
        text += ".conj()"
    if tensor.neg:
        text = f"torch._neg_view({text})"
    if tensor.requires_grad:
        text += ".requires_grad_()"
    return text


def inputs_source(inputs: Sequence[Input], device: str = "cpu", wrap: str = "") -> str:
    """Statements that define every name in ``inputs``.

    ``wrap`` is the name of a function that each storage is passed through, which is how the oracle
    makes the same inputs in another precision.
    """
    lines = []
    for item in inputs:
        match item:
            case Storage():
                text = storage_source(item)
                if device != "cpu":
                    text += f".to({device!r})"
                text = f"{wrap}({text})" if wrap else text
            case Tensor():
                text = tensor_source(item)
            case Value():
                text = item.source
        lines.append(f"{item.name} = {text}")
    return "\n".join(lines)
