"""Fake tensors as eager's tensors are. In: an operator on fakes. Out: fakes, or eager's refusal.

mode       the ``FakeTensorMode`` that capture and AOT autograd run under
quiet      torch's own mode and its stand-ins, without torch's compiler
results    what operators gave is remembered
rules      results by the rows of the specification, of fixed sizes; ``views``: of views
gradients  results of losses, norms and gradients; ``inplace``: of what writes to its operand
symbolic   results of symbolic sizes, by rules that decide nothing
overlap    writes that eager refuses
"""
