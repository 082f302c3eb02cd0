"""Which callables are operations of the graph, which are pure, and which end the graph.

Names rather than objects, so that a name that a torch version lacks does no harm.
"""

from __future__ import annotations

import types
from typing import Any

import torch

#: Methods and getters of tensors that answer about metadata: run on the fake, not recorded.
METADATA = frozenset(
    """
    shape dtype device layout ndim is_cuda is_cpu is_mps is_meta is_sparse is_quantized is_xpu
    is_nested is_leaf requires_grad names itemsize nbytes is_mkldnn is_sparse_csr is_vulkan
    is_maia is_mtia is_ipu is_xla is_ort output_nr is_inference
    size stride storage_offset dim numel nelement element_size is_contiguous is_floating_point
    is_complex is_signed is_conj is_neg get_device ndimension is_same_size type is_shared
    __len__ is_pinned has_names is_set_to is_distributed _is_view is_coalesced dim_order
    is_tensor is_storage result_type can_cast promote_types _is_zerotensor is_vulkan_available
    _has_symbolic_sizes_strides retains_grad
    """.split()
)

#: Operations whose result is a Python value: the graph ends before them.
DATA_DEPENDENT = frozenset(
    """
    item tolist __bool__ __int__ __float__ __complex__ __index__ __array__ numpy __contains__
    equal is_nonzero allclose __format__ __repr__ __str__
    """.split()
)

#: Operations with effects that a graph does not hold.
NOT_MODELLED = frozenset(
    """
    data_ptr backward storage untyped_storage
    _typed_storage storage_type set_ set_data share_memory_ pin_memory __deepcopy__ __reduce_ex__
    requires_grad_ __hash__ resize_as_ resize_ swap_tensors __dlpack__
    __cuda_array_interface__ to_sparse to_dense as_subclass to_mkldnn rename rename_ refine_names
    align_to align_as apply_ map_ map2_ _make_subclass _make_wrapper_subclass __setstate__
    grad_fn _version unflatten_names __dlpack_device__ _backward_hooks volatile grad
    real_if_close
    quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic
    sparse_coo_tensor from_file frombuffer from_numpy from_dlpack
    manual_seed seed initial_seed set_rng_state get_rng_state set_default_dtype
    set_default_device set_num_threads use_deterministic_algorithms
    """.split()
)

#: ``torch._C`` functions that read or set state in a way that capture itself sees.
STATE_READERS = frozenset(
    """
    is_grad_enabled is_inference_mode_enabled is_autocast_enabled is_autocast_cpu_enabled
    get_autocast_dtype get_autocast_gpu_dtype get_autocast_cpu_dtype is_autocast_cache_enabled
    get_default_dtype _get_tracing_state _is_tracing _is_torch_function_enabled
    _is_torch_function_all_disabled _get_deterministic_algorithms _get_math_sdp_enabled
    _get_flash_sdp_enabled _get_mem_efficient_sdp_enabled _get_cudnn_sdp_enabled
    _get_cudnn_enabled _get_mkldnn_enabled _get_mkldnn_deterministic _is_any_autocast_enabled
    _get_cublas_allow_tf32 _get_cudnn_allow_tf32 _jit_internal is_anomaly_enabled
    _get_default_device _has_cuda _log_api_usage_once get_num_threads _is_in_bad_fork
    _accelerator_getAccelerator _are_functorch_transforms_active
    _get_onednn_allow_tf32 _get_cudnn_benchmark _get_cudnn_deterministic _get_accelerator
    _get_privateuse1_backend_name _is_autocast_available _cuda_isCurrentStreamCapturing
    _cuda_is_bf16_supported
    _get_float32_matmul_precision _get_fp32_precision_getter _mps_is_available
    """.split()
)

#: Those of them that AMBIENT answers for, or that answer the same at any time.
AMBIENT_READERS = frozenset(
    """
    is_grad_enabled is_inference_mode_enabled is_autocast_enabled is_autocast_cpu_enabled
    is_autocast_cache_enabled get_default_dtype _get_tracing_state _is_tracing
    _is_torch_function_enabled _is_torch_function_all_disabled _get_deterministic_algorithms
    _is_any_autocast_enabled
    _jit_internal _get_default_device _has_cuda _log_api_usage_once _is_in_bad_fork
    _accelerator_getAccelerator _are_functorch_transforms_active
    _get_accelerator _get_privateuse1_backend_name _is_autocast_available
    _cuda_isCurrentStreamCapturing _cuda_is_bf16_supported _len_torch_function_stack
    _len_torch_dispatch_stack _mps_is_available
    """.split()
)

#: Python functions of these modules run natively and are recorded at the level the user wrote.
LEAF_MODULES = frozenset(
    {
        "torch.functional",
        "torch.nn.functional",
        "torch._tensor",
        "torch._C",
        "torch._C._nn",
        "torch.special",
        "torch.linalg",
        "torch.fft",
        "torch._lobpcg",
        "torch._lowrank",
        "torch._linalg_utils",
        "torch.signal.windows.windows",
    }
)

#: Python functions of these modules transform functions; they end the graph.
HIGHER_ORDER_MODULES = (
    "torch._functorch",
    "torch.func",
    "torch.autograd.function",
    "torch.autograd.functional",
    "torch.autograd.graph",
    "torch.utils.checkpoint",
    "torch._higher_order_ops",
    "torch.nn.attention.flex_attention",
    "torch.nn.parallel",
    "torch.distributed",
    "torch._dynamo",
    "torch._inductor",
    "torch.export",
    "torch.fx",
    "torch.jit",
    "torch.onnx",
    "torch.profiler",
    "torch.autograd.profiler",
    "torch.multiprocessing",
    "torch.random",
    "torch.serialization",
    "torch.storage",
)

#: Those of these modules among them do tensor work only, and call functions like user code.
INTERPRETED_MODULES = frozenset(
    {
        "torch._dynamo.external_utils",
        "torch._higher_order_ops.associative_scan",
        "torch._higher_order_ops.map",
        "torch._higher_order_ops.scan",
        "torch._higher_order_ops.utils",
        "torch.nn.attention.flex_attention",
    }
)

#: A call of a Python function of these modules is one break if anything in it is one: what they do
#: in between is nobody's to compile.
WHOLE_MODULES = (INTERPRETED_MODULES - {"torch._dynamo.external_utils"}) | {
    "torch._functorch.apis",
    "torch._functorch.eager_transforms",
    "torch._functorch.functional_call",
    "torch._functorch.vmap",
    "torch.nn.attention.bias",
    "torch.nn.init",
    "torch.nn.modules.rnn",
    "torch.nn.utils.prune",
    "torch.nn.utils.rnn",
    "torch.utils",
    "torch.utils._python_dispatch",
    "torch.utils.dlpack",
    "torch.utils.flop_counter",
    "torch.utils.module_tracker",
}

#: As are calls of functions in these packages: no graph holds their tensors, or what they set.
WHOLE_PACKAGES = ("torch.ao", "torch.backends", "torch.masked", "torch.nested", "torch.sparse")

#: And these functions of them.
_DDP = "torch.nn.parallel.distributed.DistributedDataParallel"
INTERPRETED_FUNCTIONS = (
    "torch.random.fork_rng",
    "torch.autograd.graph.disable_saved_tensors_hooks",
    "torch.autograd.graph.saved_tensors_hooks.__init__",
    "torch.autograd.graph.save_on_cpu.__init__",
    "torch.utils.checkpoint.checkpoint_sequential",
    "torch.utils.checkpoint.set_checkpoint_early_stop",
    f"{_DDP}.forward",  # what it does before and after the module's own call, it does natively
    f"{_DDP}._run_ddp_forward",
    "torch._dynamo.decorators.ErrorOnGraphBreakDecoratorContextManager",
    "torch._dynamo.decorators.error_on_graph_break",
    "torch._dynamo.decorators.CudagraphOverrideContextManager",
    "torch._dynamo.decorators.override_cudagraphs",
    "torch._dynamo.decorators.dont_skip_tracing",
    # what calls the code of a graph that torch has traced or exported
    "torch.fx.graph_module.GraphModule.recompile",
    "torch.fx.graph_module._WrappedCall.__call__",
    "torch.fx._pytree",
    "torch.export._unlift",
    "torch.export._tree_utils",
)

#: Instances of these classes of them are made like any other.
INTERPRETED_CLASSES = frozenset(
    {
        "torch.autograd.graph.saved_tensors_hooks",
        "torch.autograd.graph.save_on_cpu",
        "torch._dynamo.decorators.ErrorOnGraphBreakDecoratorContextManager",
        "torch._dynamo.decorators.CudagraphOverrideContextManager",
    }
)

#: So are these methods of modules, and the update of all parameters by a rule of ``torch.optim``.
WHOLE_METHODS = frozenset(
    """
    _apply requires_grad_ register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_full_backward_pre_hook register_module_forward_hook
    register_module_forward_pre_hook register_module_full_backward_hook
    register_module_full_backward_pre_hook
    """.split()
)
_MODULE_CALL = torch.nn.Module._call_impl.__code__
#: And this method, which counts its calls in a tensor.
_AVERAGING = "AveragedModel.update_parameters"
WHOLE_UPDATES = ("_single_tensor_", "_multi_tensor_", "_fused_")


def is_whole(home: str | None, code: types.CodeType) -> bool:
    """Whether a break in a function, of module ``home``, is one before its call."""
    if home == "refcompiler.capture.models.branchless":
        return True
    if home is None or not home.startswith("torch."):
        return False
    if home == "torch.nn.modules.module":
        return code.co_name in WHOLE_METHODS
    if home in WHOLE_MODULES or home.startswith(WHOLE_PACKAGES):
        return True
    if home == "torch.optim.swa_utils":
        return code.co_qualname == _AVERAGING
    return home.startswith("torch.optim.") and code.co_name.startswith(WHOLE_UPDATES)


def is_hooked_leaf(code: types.CodeType, module: Any) -> bool:
    """Whether this is the call of a module of torch's own, without parts, that has backward hooks.

    They make nodes of autograd, which no graph holds; what is in between is not worth a graph.
    """
    if code is not _MODULE_CALL or not type(module).__module__.startswith("torch.nn."):
        return False
    namespace = object.__getattribute__(module, "__dict__")
    hooks = namespace.get("_backward_hooks"), namespace.get("_backward_pre_hooks")
    return any(hooks) and not namespace.get("_modules")


#: Python functions of these modules of the standard library run natively: they read and write,
#: or keep state that nothing guards.
#: Of this package: functions that tell, or change, what is compiled. They run natively.
ASKING_MODULES = frozenset(
    """
    refcompiler.backends.registry refcompiler.cache.artifacts refcompiler.logs
    refcompiler.runtime.collectives refcompiler.runtime.counters refcompiler.runtime.explain
    refcompiler.runtime.export refcompiler.runtime.options refcompiler.runtime.trace
    """.split()
)
SPEAKING_MODULES = frozenset(
    """
    logging traceback threading random secrets subprocess socket tempfile shutil asyncio
    multiprocessing concurrent pdb unittest queue sched pickle shelve urllib http
    """.split()
)

#: C functions of these modules depend on their arguments alone.
PURE_MODULES = frozenset(
    {
        "builtins",
        "math",
        "cmath",
        "operator",
        "_operator",
        "itertools",
        "_functools",
        "functools",
        "collections",
        "_collections",
        "_collections_abc",
        "_bisect",
        "_heapq",
        "_struct",
        "_string",
        "string",
        "_sre",
        "re",
        "fractions",
        "numbers",
        "types",
        "enum",
        "_abc",
        "abc",
        "typing",
        "_typing",
        "dataclasses",
        "copy",
        "weakref",
        "_weakref",
    }
)

#: C functions of other modules that do: what takes paths apart.
PURE_FUNCTIONS = frozenset({"posix._path_normpath", "posix._path_splitroot_ex"})

#: C callables that look into their arguments; others pass them on or keep them.
READING = frozenset({int, float, complex, str, bytes, bytearray, memoryview})
READING_MODULES = frozenset({"builtins", "math", "cmath", "_operator", "_struct", "_string"})

#: C functions that change an argument.
CHANGING = frozenset(
    """
    _count_elements heapify heappush heappop heapreplace heappushpop insort insort_left
    insort_right _heapify_max _heappop_max _heapreplace_max setitem delitem
    """.split()
)

#: C callables that iterate over their arguments, so that these become interpreted iterators.
ITERATING = frozenset(
    """
    list tuple set frozenset dict enumerate zip map filter sorted reversed deque OrderedDict
    defaultdict Counter chain from_iterable islice cycle product permutations combinations
    accumulate starmap takewhile dropwhile filterfalse groupby pairwise zip_longest tee compress
    extend extendleft join update union intersection difference symmetric_difference
    difference_update intersection_update issubset issuperset isdisjoint fromkeys bytes bytearray
    batched sumprod fsum prod heapify nlargest nsmallest merge array fromlist _count_elements
    __iadd__ __or__ __ror__ __ior__ __and__ __rand__ __iand__ __sub__ __rsub__ __isub__ __xor__
    __rxor__ __ixor__
    """.split()
)

#: C callables that call what they are given, so that it runs in the interpreter.
CALLING = frozenset(
    """
    sorted sort map filter min max accumulate starmap takewhile dropwhile filterfalse groupby
    nlargest nsmallest merge sub subn bisect bisect_left bisect_right insort iter cmp_to_key
    """.split()
)

#: Builtins that are not pure, with the break they cause.
IMPURE_BUILTINS = {
    "print": "io",
    "input": "io",
    "open": "io",
    "breakpoint": "io",
    "exec": "c-function",
    "eval": "c-function",
    "compile": "c-function",
    "id": "c-function",
    "__import__": "c-function",
    "ref": "c-function",
    "proxy": "c-function",
    "hash": "c-function",
    # what is registered with an abstract class is known to all, and from then on
    "_abc_register": "c-function",
    "_reset_caches": "c-function",
    "_reset_registry": "c-function",
}

_OPERATION_MODULES = frozenset(
    f"torch._C._{name}" for name in ("nn", "linalg", "fft", "special", "nested", "sparse")
)


def bound_owner(function: Any) -> Any:
    """The object whose C method ``function`` is; None for functions of modules and classes."""
    owner = getattr(function, "__self__", None)
    if owner is None or issubclass(type(owner), (types.ModuleType, type)):
        return None
    if type(owner).__module__ == "pybind11_builtins":  # how pybind11 keeps its functions
        return None
    return owner


_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
)


def is_operation(function: Any) -> bool:
    """A C-implemented torch operation, which the door records when a tensor is involved."""
    kind = type(function)
    if kind in (
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.GetSetDescriptorType,
    ):
        return (
            issubclass(torch.Tensor, function.__objclass__) and function.__objclass__ is not object
        )
    owner = getattr(function, "__self__", None)
    if issubclass(type(owner), torch.Tensor):
        return True
    if kind is types.BuiltinFunctionType:
        if owner is None:  # torch.add and its like are static methods of a C class
            return (function.__module__ or "") in ("torch", "torch._VF")
        return type(owner) is types.ModuleType and owner.__name__ in _OPERATION_MODULES
    return kind.__module__ == "torch._ops" and kind.__name__ in ("OpOverload", "OpOverloadPacket")
