"""The front end of a PyTorch compiler, written to be read.

In: a Python function, method or ``nn.Module`` (its bytecode) and the arguments of a call.
Out: a callable that answers as eager does, through graphs (``torch.fx.GraphModule``) that a
backend compiled, guarded so that a graph is reused only where it is right.

Stages, each a package: ``bytecode`` (decoding), ``interpreter`` (opcode handlers, concrete
domain), ``capture`` (symbolic domain), ``guards``, ``plan`` (generated Python), ``runtime``
(entries, continuations, the public functions), ``backends``.
"""

from __future__ import annotations

import importlib
from typing import Any

from refcompiler.importing import importing as _importing
from specs.version import VERSION as __version__

#: public name -> where it lives; loaded when first asked for, so that the interpreter and the
#: command line start without torch.
_PUBLIC = {
    "compile": "refcompiler.runtime.api",
    "get_default_backend": "refcompiler.runtime.api",
    "reset": "refcompiler.runtime.api",
    "set_default_backend": "refcompiler.runtime.api",
    "explain": "refcompiler.runtime.explain",
    "export": "refcompiler.runtime.export",
    "load_compiled_function": "refcompiler.runtime.package",
    **dict.fromkeys(
        (
            "allow_in_graph",
            "assume_constant_result",
            "cudagraph_mark_step_begin",
            "disable",
            "is_compiling",
            "is_dynamo_compiling",
            "is_exporting",
            "nested_compile_region",
            "substitute_in_graph",
        ),
        "refcompiler.capture.marking.marks",
    ),
    "wrap_numpy": "refcompiler.capture.arrays.wrapping",
    **dict.fromkeys(
        ("mark_dynamic", "mark_static", "mark_unbacked", "maybe_mark_dynamic"),
        "refcompiler.capture.marking.dimensions",
    ),
    "counters": "refcompiler.runtime.counters",
    "config": "refcompiler.runtime.config",
    **dict.fromkeys(
        ("load_cache_artifacts", "save_cache_artifacts"), "refcompiler.cache.artifacts"
    ),
    **dict.fromkeys(("list_mode_options", "list_options"), "refcompiler.runtime.options"),
    "set_enable_guard_collectives": "refcompiler.runtime.collectives",
    "set_logs": "refcompiler.logs",
    "set_stance": "refcompiler.runtime.stance",
    **dict.fromkeys(
        (
            "keep_portable_guards_unsafe",
            "keep_tensor_guards_unsafe",
            "skip_all_guards_unsafe",
            "skip_guard_on_all_nn_modules_unsafe",
            "skip_guard_on_globals_unsafe",
            "skip_guard_on_inbuilt_nn_modules_unsafe",
        ),
        "refcompiler.guards.filters",
    ),
    "list_backends": "refcompiler.backends",
    "lookup_backend": "refcompiler.backends",
    "register_backend": "refcompiler.backends",
    "errors": "",
    "interpret": "refcompiler.interpreter.api",
}
#: what needs no torch
_PLAIN = frozenset({"errors", "interpret"})

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'refcompiler' has no attribute {name!r}")
    if name == "errors":
        return importlib.import_module("refcompiler.errors")
    if name not in _PLAIN:
        from refcompiler.versions import check

        check()
    if name == "counters":  # a function and the module that holds it share their name
        value = importlib.import_module(_PUBLIC[name]).counters
    else:
        with _importing():
            value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
