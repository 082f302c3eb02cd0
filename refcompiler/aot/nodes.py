"""Usual operators while a graph is traced, past what torch asks about each of any kind.

Torch's modes for tracing ask of each operator whether it writes, decomposes, has effects, is an
operator of the user's, computes with constants or numbers that data decide. Of an operator of ATen
the answers are known once and for all, and of most they are no.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import traceback as fx_traceback
from torch.utils._python_dispatch import return_and_correct_aliasing

from refcompiler.aot.effects import checks
from refcompiler.fakes.fused import TWINS

_FUNCTIONALIZE = torch._C.DispatchKey.Functionalize
_WITH = torch._C.DispatchKeySet(_FUNCTIONALIZE)
_KEYS = FunctionalTensor._extra_dispatch_keys
_UNUSUAL_TAGS = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.inplace_view,
    torch.Tag.maybe_aliasing_or_mutating,
}
#: Arguments that operators write to, though their schemas do not say so.
STATISTICS = {"running_mean", "running_var"}
_known: dict[Any, tuple[bool, bool]] = {}


def kind_of(func: Any) -> tuple[bool, bool]:
    """Whether an operator computes its results of its operands and does nothing else; whether
    these may be views of those."""
    found = _known.get(func)
    if found is None:
        found = _known[func] = _usual(func)
    return found


def _usual(func: Any) -> tuple[bool, bool]:
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return False, False
    schema, name = func._schema, func.name()
    usual = not (
        schema.is_mutable
        or func in FunctionalTensor.metadata_fns
        or torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        or not torch._C._dispatch_has_kernel(name)
        or not _UNUSUAL_TAGS.isdisjoint(func.tags)
        or "lift" in name  # of constants
        or func in TWINS
        or checks(func)
        or any(a.name in STATISTICS for a in schema.arguments)
    )
    return usual, any(a.alias_info for a in (*schema.arguments, *schema.returns))


def traces_plainly() -> bool:
    """Whether nodes are to tell no more than what they compute."""
    return not fx_traceback.has_preserved_node_meta()


def functionally(
    mode: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], views: bool
) -> Any:
    """A usual operator (:func:`kind_of`) on functional tensors, as torch's mode has it done."""
    given = _elements(args)
    named = {name: _element(value) for name, value in kwargs.items()}
    include = torch._C._dispatch_tls_local_include_set() | _WITH
    exclude = torch._C._dispatch_tls_local_exclude_set().remove(_FUNCTIONALIZE) - _KEYS
    with torch._C._ForceDispatchKeyGuard(include, exclude):
        before = torch._functionalize_enable_reapply_views(True)
        try:
            found = func._op_dk(_FUNCTIONALIZE, *given, **named)
        finally:
            torch._disable_functionalization()
            torch._functionalize_enable_reapply_views(before)
    made = _wrapped(found, mode)
    if not views or type(made) is FakeTensor:  # of numbers alone
        return made
    return return_and_correct_aliasing(func, args, kwargs, made)


def _elements(args: Sequence[Any]) -> list[Any]:
    return [_element(a) for a in args]


def _element(a: Any) -> Any:
    if type(a) is FunctionalTensor:
        return a.elem
    return [_element(each) for each in a] if type(a) in (list, tuple) else a


def _wrapped(found: Any, mode: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return FunctionalTensor(found, mode) if torch._is_functional_tensor(found) else found
    if type(found) in (list, tuple):
        return type(found)([_wrapped(each, mode) for each in found])
    return found
