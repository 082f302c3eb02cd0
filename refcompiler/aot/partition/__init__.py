"""Partitioners: from a joint graph to a forward and a backward graph.

Each is ``(joint_module, joint_inputs, *, num_fwd_outputs) -> (forward, backward)``, as torch's are,
so either project's serve both. The forward graph returns ``num_fwd_outputs`` outputs, then the
tensors and then the numbers that it saves; the backward graph takes the saved numbers, the saved
tensors and the tangents.
"""

from refcompiler.aot.partition.default import default_partition
from refcompiler.aot.partition.min_cut import min_cut_partition

__all__ = ["default_partition", "min_cut_partition"]
