"""Singular values and eigenvalues alone, which eager computes without vectors if it may.

That is where nothing is differentiated. Torch computes the vectors for any tensor that stands for
another one, as those that are traced do; what is computed so is rounded otherwise, and slower.
"""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.aot.inputs import Runner
from refcompiler.dispatching import DispatchMode

_aten = torch.ops.aten
#: The arguments between the matrix and what asks for vectors, where they are not given.
_BETWEEN = {_aten._linalg_svd.default: False, _aten._linalg_eigh.default: "L"}
_NAMES = ("svdvals", "eigvalsh", "eigvals", "norm", "matrix_norm", "cond", "matrix_rank")
#: Whose results have no vectors.
FUNCTIONS = [*[getattr(torch.linalg, name) for name in _NAMES], torch.norm, "norm"]


def alone(runner: Runner, target: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``target`` gives, by operators that compute what eager's do."""
    call = getattr(torch.Tensor, target) if isinstance(target, str) else target
    with _Alone():
        return call(*args, **kwargs)


class _Alone(DispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func in _BETWEEN or func is _aten.linalg_eig.default
        if not found or (torch.is_grad_enabled() and args[0].requires_grad):
            return func(*args, **kwargs)
        if func not in _BETWEEN:
            values = _aten._linalg_eigvals.default(args[0])
            return values, values  # of which the second is for nobody
        between = args[1] if len(args) > 1 else _BETWEEN[func]
        return func(args[0], between, False, **kwargs)
