"""One row per public name of ``refcompiler``, and what of torch's it is."""

from __future__ import annotations

from dataclasses import dataclass

from specs.table import Table


@dataclass(frozen=True)
class Name:
    """``torch``: the name that means the same there, if one does. ``lacks``: what of it is not
    here, and why; such a use is an error in one line that says what to do."""

    name: str
    doc: str
    torch: str = ""
    lacks: str = ""


def _compiler(name: str, doc: str, lacks: str = "") -> Name:
    return Name(name, doc, f"torch.compiler.{name}", lacks)


def _dynamo(name: str, doc: str, lacks: str = "") -> Name:
    return Name(name, doc, f"torch._dynamo.{name}", lacks)


_PACKAGED = (
    "code of the backends `eager`, `aot_eager`, `aot_eager_decomp_partition` and, on the CPU, "
    "`fastpath`; no others, no second derivatives"
)

API: Table[Name] = Table(
    "public names",
    [
        Name(
            "compile",
            "Compiles a function, method, module or callable.",
            "torch.compile",
            "`shapes_spec`: sizes are said by marks on tensors and `config.dynamic_sources`",
        ),
        _compiler("reset", "Forgets everything that was compiled, and the counters."),
        _compiler("set_stance", "What compiled callables do, for all at once."),
        _compiler("config", "The settings, and `config.patch`."),
        _compiler("set_default_backend", "The backend where none is given."),
        _compiler("get_default_backend", "Which one that is."),
        _compiler("list_backends", "The names of backends."),
        Name("lookup_backend", "A backend by its name.", "torch._dynamo.lookup_backend"),
        Name("register_backend", "Gives a backend a name.", "torch._dynamo.register_backend"),
        Name("list_options", "The options, with types and defaults.", "torch._inductor"),
        Name("list_mode_options", "The options that each mode sets.", "torch._inductor"),
        _compiler("disable", "A function that is not compiled."),
        _compiler("allow_in_graph", "A function that is one operation of a graph."),
        _compiler("assume_constant_result", "A function that is called while capturing alone."),
        _compiler("substitute_in_graph", "What is captured in the place of a function in C."),
        _compiler(
            "nested_compile_region",
            "A function whose graph backends compile once.",
            "`options`: the backend of a region alone, which torch has for its tests only",
        ),
        _compiler("wrap_numpy", "A function of arrays as one of tensors."),
        _compiler("is_compiling", "Whether this call is being captured, by whatever."),
        _compiler("is_dynamo_compiling", "Whether it is captured from bytecode."),
        _compiler("is_exporting", "Whether it is captured for export."),
        _compiler("cudagraph_mark_step_begin", "A step begins; device graphs need not be told."),
        _compiler("set_enable_guard_collectives", "Processes enter compiled code together."),
        _dynamo("mark_dynamic", "A size that is a symbol from the start."),
        _dynamo("maybe_mark_dynamic", "As that, unless the program makes a constant of it."),
        _dynamo("mark_static", "A size that is never a symbol."),
        Name(
            "mark_unbacked",
            "A size that nothing is decided by.",
            "torch._dynamo.decorators.mark_unbacked",
            "`specialize_on`: it decides by the size; `mark_dynamic` takes it",
        ),
        _dynamo("explain", "What one call is captured as, and why not more."),
        Name("export", "One call as a graph and the guards under which it holds."),
        _compiler(
            "load_compiled_function",
            "A package of a program compiled ahead of time, which is not compiled again.",
            _PACKAGED,
        ),
        _compiler("save_cache_artifacts", "What was compiled, as bytes for another machine."),
        _compiler("load_cache_artifacts", "Takes such bytes."),
        _compiler("skip_guard_on_inbuilt_nn_modules_unsafe", "A filter of guards."),
        _compiler("skip_guard_on_all_nn_modules_unsafe", "A filter of guards."),
        _compiler("keep_tensor_guards_unsafe", "A filter of guards."),
        _compiler("skip_guard_on_globals_unsafe", "A filter of guards."),
        _compiler("skip_all_guards_unsafe", "A filter of guards."),
        _compiler("keep_portable_guards_unsafe", "A filter of guards."),
        Name("set_logs", "Turns logs on and off.", "torch._logging.set_logs"),
        Name("counters", "How often what happened.", "torch._dynamo.utils.counters"),
        Name("errors", "The errors, named for what they mean.", "torch._dynamo.exc"),
        Name("interpret", "Runs a function under the interpreter, without torch."),
    ],
)
