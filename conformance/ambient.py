"""What a case may leave behind for everything that runs after it: the state of torch's dispatcher
and of the interpreter, by name, as Python expressions that a repro script can evaluate.
"""

from __future__ import annotations

from collections.abc import Mapping

# By name, an expression over ``torch``. What is not here is observed by itself (random states) or
# chosen for the whole process (threads).
STATE: Mapping[str, str] = {
    "grad mode": "torch.is_grad_enabled()",
    "inference mode": "torch.is_inference_mode_enabled()",
    "forward-mode gradients": "(torch._C._is_fwd_grad_enabled(), "
    "torch.autograd.forward_ad._current_level)",
    "replay of views": "torch._C._is_view_replay_enabled()",
    "threads of the backward": "torch._C._is_multithreading_enabled()",
    "autocast": "[(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) "
    "for d in ('cpu', 'cuda')]",
    "autocast's cache": "torch.is_autocast_cache_enabled()",
    "default dtype": "torch.get_default_dtype()",
    "default device": "torch.get_default_device()",
    "deterministic algorithms": "(torch.get_deterministic_debug_mode(), "
    "torch.utils.deterministic.fill_uninitialized_memory)",
    "anomaly mode": "(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())",
    "precision of products": "torch.get_float32_matmul_precision()",
    "backends": "(torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark, "
    "torch.backends.cudnn.deterministic)",
    "attention's backends": "(torch.backends.cuda.flash_sdp_enabled(), "
    "torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled())",
    "overrides of functions": "(torch._C._is_torch_function_enabled(), "
    "torch._C._is_torch_function_all_disabled())",
    "function modes": "[type(torch._C._get_function_stack_at(n)).__name__ "
    "for n in range(torch._C._len_torch_function_stack())]",
    "dispatch modes": "[type(mode).__name__ for mode in "
    "torch.utils._python_dispatch._get_current_dispatch_mode_stack()]",
    "saved tensors' hooks": "torch._C._autograd._top_saved_tensors_default_hooks(True) is not None",
    "function transforms": "torch._C._functorch.peek_interpreter_stack() is not None",
    "dispatch keys": "(str(torch._C._dispatch_tls_local_include_set()), "
    "str(torch._C._dispatch_tls_local_exclude_set()))",
    "garbage collector": "__import__('gc').isenabled()",
    "recursion limit": "__import__('sys').getrecursionlimit()",
    "tracing": "[__import__('sys').gettrace() is None, __import__('sys').getprofile() is None]",
}
_CODE = {name: compile(text, f"<{name}>", "eval") for name, text in STATE.items()}


def ambient() -> dict[str, str]:
    """How everything in :data:`STATE` prints now."""
    import torch  # here, for who only writes the expressions down has none

    names = {"torch": torch}
    return {name: repr(eval(code, names)) for name, code in _CODE.items()}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The names of what differs."""
    return [name for name, text in before.items() if after[name] != text]
