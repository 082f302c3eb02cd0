"""From a torch-level graph to a functional ATen graph with an epilogue.

In: a ``torch.fx.GraphModule`` and example inputs. Out: a :class:`~fastpath.aot.capture.Capture`:
an ATen graph without mutation, and what has to happen so that the caller sees eager's aliasing,
mutation and identity.
"""
