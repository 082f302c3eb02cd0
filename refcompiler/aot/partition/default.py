"""The partitioner that saves what eager saves: nothing of the forward is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from refcompiler.aot.partition.split import Parts, split


def default_partition(
    joint_module: GraphModule, joint_inputs: Sequence[Any], *, num_fwd_outputs: int, **_: Any
) -> tuple[GraphModule, GraphModule]:
    """Forward and backward as they were traced, so that memory and arithmetic are eager's.

    What a checkpointed region recomputes was traced in the backward, and stays there.
    """
    parts = Parts(joint_module, num_fwd_outputs)
    return split(parts, parts.wanted())
