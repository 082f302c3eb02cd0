"""AOT autograd: a torch-level graph becomes functional ATen graphs for forward and backward.

observation   what eager lets a caller see of the graph besides values
joint         forward and backward traced into one functional graph
partition     which part is the forward graph, which the backward, and what is kept between
missing       the backward where some outputs have no gradient
function      the ``torch.autograd.Function`` around the two
wrapper       the generated prologue and epilogue that restore eager's view
backend       ``aot_autograd`` for authors of backends
"""

from refcompiler.aot.backend import aot_autograd

__all__ = ["aot_autograd"]
