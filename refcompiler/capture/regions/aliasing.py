"""Memory that the functions of branches and loops may not share, as torch's own operators demand.

Of the tensors that such a function reads, whether as arguments or besides, and of those that it
gives, no two may lie in the same memory. Source of the rule: ``torch.cond``, ``torch.while_loop``,
``scan`` and ``map`` in torch, which raise for it. What two graph inputs share is not known while
capturing, so that it is no ground for a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.regions.region import Region, refusal
from refcompiler.capture.regions.targets import tensors_of
from refcompiler.capture.wrappers import is_wrapper


def refuse_aliases(m: Calls, region: Region, given: Sequence) -> None:
    """The graph ends before the call, which then raises, where ``region`` breaks the rule.

    ``given`` are the arguments of the region, of which only those count that it reads.
    """
    nodes = region.scope.nodes
    read = {id(t): t for t in tensors_of((tuple(given), region.lifted)) if nodes[id(t)].users}
    memory = [_memory(t) for t in (*read.values(), *region.outputs) if not is_wrapper(type(t))]
    if len(set(memory)) != len(memory):
        raise refusal(m, "two tensors that a function reads or gives share memory")


def _memory(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        while torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # inside torch.vmap
            tensor = torch._C._functorch.get_unwrapped(tensor)
        return tensor.untyped_storage()._cdata


def apart(tensor: torch.Tensor) -> torch.Tensor:
    """A fake like ``tensor`` in memory of its own, whose elements lie in the same order."""
    made = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    if tensor.is_conj():
        made = made.conj()
    if tensor.is_neg():
        made = torch._neg_view(made)
    return made.requires_grad_() if tensor.requires_grad else made
