"""Torch's fake tensors without torch's compiler.

``FakeTensorMode`` asks the settings of ``torch._dynamo`` when it is made, and again for each
operator that it has to ask a stand-in for; the first of these questions imports that package and
a thousand modules with it. Here the answers are the defaults, and torch's stand-ins are asked in
torch's order.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nested._internal.nested_tensor as nested
from torch._decomp import decomposition_table, meta_table
from torch._library import fake_impl, simple_registry
from torch._library import utils as library
from torch._ops import HigherOrderOperator
from torch._subclasses import fake_tensor as fakes
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    UnsupportedOperatorException,
    in_kernel_invocation_manager,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from refcompiler.dispatching import DispatchMode


class QuietFakeMode(DispatchMode, FakeTensorMode):
    """A ``FakeTensorMode`` with torch's default settings, that imports nothing."""

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = False,
        shape_env: ShapeEnv | None = None,
        static_shapes: bool | None = None,
    ):
        TorchDispatchMode.__init__(self)
        self.allow_fallback_kernels = allow_fallback_kernels
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.shape_env = shape_env
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.propagate_real_tensors = False
        self.fake_tensor_converter = FakeTensorConverter(copy_data=False, export=False)
        self.allow_scalar_outputs = False
        self._allow_unsafe_data_ptr_access = True
        self.allow_meta = True
        self.cache_enabled = True
        self.cache_crosscheck_enabled = False
        self.in_kernel_invocation = False
        self.enter_stack: list[tuple[bool, TorchDispatchMode | None, bool | None]] = []
        self._stack_trace = traceback.StackSummary()  # of which torch's messages tell
        self._stack = None
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE
        self.nt_tensor_id_initial_count = nested._tensor_id_counter
        self.nt_tensor_id_counter = self.nt_tensor_id_initial_count

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.dispatch(func, types, args, kwargs or {})

    def _dispatch_impl(
        self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """As torch's, which goes on to look at the settings where this one does not."""
        flat, spec = pytree.tree_flatten((args, kwargs))
        if self._is_settled(func, flat):
            return super()._dispatch_impl(func, types, args, kwargs)
        given = [t for t in flat if isinstance(t, FakeTensor)]
        symbolic = any(t._has_symbolic_sizes_strides for t in given) or any(
            isinstance(a, torch.SymInt) for a in flat
        )
        self.invalidate_written_to_constants(func, given, args, kwargs)
        if symbolic and (quick := fakes.get_fast_op_impls().get(func)) is not None:
            return quick(self, *args, **kwargs)
        if self._is_composed(func, symbolic):
            if func in decomposition_table and (
                symbolic
                or fakes.torch_decomp_decompositions(func)
                and not any(map(fakes.is_sparse_any, given))
            ):
                with self:
                    return decomposition_table[func](*args, **kwargs)
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        if func.namespace == "prims" and hasattr(func, "prim_meta_impl"):
            with self:
                return func.prim_meta_impl(*args, **kwargs)
        registered = simple_registry.singleton.find(func.name()).fake_impl.kernel
        if registered:
            context = fake_impl.FakeImplCtx(self, func)
            with fake_impl.set_ctx_getter(lambda: context), self:
                return registered(*args, **kwargs)
        for concerns, rule in fakes.op_implementations_checks:
            if concerns(func):
                found = rule(self, func, *args, **kwargs)
                if found is not NotImplemented:
                    return found
        if not fakes.has_meta(func):
            return self._without_meta(func, flat, spec, symbolic)
        try:
            with in_kernel_invocation_manager(self):
                found = func(*args, **kwargs)
        except NotImplementedError as error:
            return self._without_meta(func, flat, spec, symbolic, error)
        return self.wrap_meta_outputs_with_default_device_logic(
            found, func, flat, device=kwargs.get("device")
        )

    def _is_settled(self, func: Any, flat: Sequence[Any]) -> bool:
        """Whether torch answers before it looks at its settings, or has reason to look.

        So it does for what is no operator on fakes of this mode alone, or one on constants.
        """
        if isinstance(func, HigherOrderOperator) or func in self.lift_fns:
            return True
        tensors = [t for t in flat if isinstance(t, torch.Tensor)]
        if not tensors:
            return fakes.should_allow_numbers_as_tensors(func)
        if not all(self.is_our_fake(t) for t in tensors):
            return True
        if all(t.constant is not None for t in tensors):
            return True
        settings = sys.modules.get("torch._dynamo.config")
        return getattr(settings, "_custom_ops_profile", None) is not None

    def _is_composed(self, func: Any, symbolic: bool) -> bool:
        """Whether torch asks the operators that ``func`` is a composition of, if it is one."""
        if func in meta_table or self.cpp_meta_supports_symint(func):
            return False
        return not (symbolic and func in self._unbacked_special_fake_handling_ops)

    def _without_meta(
        self, func: Any, flat: Any, spec: Any, symbolic: bool, error: Exception | None = None
    ) -> Any:
        """What an operator gives that has no stand-in: its own kernel is asked, on zeros."""
        if library.can_generate_trivial_fake_impl(func):
            trivial = getattr(library, "generate_trivial_fake_impl", None)  # torch 2.13
            args, kwargs = pytree.tree_unflatten(flat, spec)
            return None if trivial is None else trivial(func, *args, **kwargs)
        if symbolic or not self.can_run_unsafe_fallback(func):
            raise UnsupportedOperatorException(func)
        reason: Any = UnsupportedOperatorException(func) if error is None else error
        return fakes.run_fallback_kernel(self, func, flat, spec, reason)
