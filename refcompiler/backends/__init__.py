"""Backends. In: a captured ``GraphModule`` and example inputs. Out: a callable on tensors.

The contract is torch's, so backends of either project serve both: ``registry`` finds them by
name here, in the entry-point group ``torch_dynamo_backends``, and in torch's own registry.
"""

from refcompiler.backends import ahead, exported, reference, simple
from refcompiler.backends.registry import list_backends, lookup_backend, register_backend

__all__ = [
    "ahead",
    "exported",
    "list_backends",
    "lookup_backend",
    "reference",
    "register_backend",
    "simple",
]
