"""How kernels become machine code: numba's front end, with passes that suit kernels.

numba runs its passes three times over, for the sake of its reference counts, and lets LLVM unroll
loops of a known length without end. A kernel has no references, and its rows have known lengths: a
row of 64 vectors unrolled keeps everything in registers, which there are 32 of, and so in memory.
So kernels have a code generator of their own, which the user's own numba functions never see.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from numba.core import codegen, errors, registry, types, typing
from numba.core.ccallback import CFunc
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numba.core.types.misc import unliteral

from fastpath.cpu.access import ASKED, STREAMED

SPEED_LEVEL = 3


_STORE = re.compile(
    r"^( *store <(\d+) x \w+> .*, align (\d+), !alias\.scope (!\d+).*)$", re.MULTILINE
)
_WIDTH = re.compile(r"<\d+ x (?:i(\d+)|(float)|(double)|(half))>")
_FLOATS = (32, 64, 16)
_LOAD = re.compile(
    r"^(( *)%[\w.]+ = load <\d+ x \w+>, ptr (%[\w.]+), align \d+, !alias\.scope (!\d+).*)$",
    re.MULTILINE,
)
_PREFETCH = "\ndeclare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n"
FURTHER = 2048  # bytes, about what memory delivers while one line is waited for


def _marked(text: str, mark: str) -> set[str]:
    """The lists of scopes in a module's text that ``declare_scope`` put ``mark`` in."""
    nodes = dict(re.findall(r"^(!\d+) = (?:distinct )?!\{(.*)\}$", text, re.MULTILINE))
    marks = {name for name, body in nodes.items() if body.startswith(f'!"{mark}"')}
    return {name for name, body in nodes.items() if marks & set(body.split(", "))}


def stream(text: str) -> str:
    """The module, with the stores that are marked ``STREAMED`` going past the caches.

    The vectoriser refuses single elements that are to be streamed, so whole vectors are told of it
    afterwards; only those that are aligned can be.
    """
    lists = _marked(text, STREAMED)
    if not lists:
        return text
    number = 1 + max((int(n) for n in re.findall(r"^!(\d+) =", text, re.MULTILINE)), default=0)
    hint = f"!{number}"

    def hinted(match: re.Match[str]) -> str:
        line, lanes, align, scopes = match.groups()
        bits = _WIDTH.search(line)
        assert bits is not None
        integer, *floats = bits.groups()
        width = int(integer) if integer else _FLOATS[[bool(f) for f in floats].index(True)]
        if scopes not in lists or int(align) * 8 < int(lanes) * width:
            return line
        return f"{line}, !nontemporal {hint}"

    return _STORE.sub(hinted, text) + f"\n{hint} = !{{i32 1}}\n"


def ask(text: str) -> str:
    """The module, in which what lies ``FURTHER`` than a vector that is marked ``ASKED`` is asked
    for before it is loaded. Single elements are few, and the vectoriser would refuse the calls."""
    lists = _marked(text, ASKED)
    if not lists:
        return text
    number = itertools.count()

    def asked(match: re.Match[str]) -> str:
        line, indent, pointer, scopes = match.groups()
        if scopes not in lists:
            return line
        place = f"%asked.{next(number)}"
        return (
            f"{indent}{place} = getelementptr i8, ptr {pointer}, i64 {FURTHER}\n"
            f"{indent}call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)\n{line}"
        )

    changed = _LOAD.sub(asked, text)
    declared = "" if "declare void @llvm.prefetch.p0(" in changed else _PREFETCH
    return changed + declared


class KernelLibrary(codegen.CPUCodeLibrary):
    """One kernel's module, or that of a function which is linked into it."""

    _final_module: Any
    callback, symbol = "", ""  # a kernel's function, and what it is to be called

    def object_file(self) -> bytes:
        found: bytes = self._codegen._tm.emit_object(self._final_module)
        return found

    def _finalize_final_module(self) -> None:
        """It is loaded as an object file, which numba has no part in."""
        self._verify_declare_only_symbols()
        self._finalized = True

    def _keep_inside(self) -> None:
        """Whatever is not the kernel itself is its module's own, and goes if nothing needs it."""
        for function in self._final_module.functions:
            if function.name == self.callback:
                function.name = self.symbol
            elif not function.is_declaration:
                function.linkage = "internal"
        for value in self._final_module.global_variables:
            if not (value.is_declaration or value.name.startswith("llvm.")):
                value.linkage = "internal"

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        if self.callback:
            self._keep_inside()
        tuning = llvm.create_pipeline_tuning_options(SPEED_LEVEL)
        tuning.loop_vectorization = tuning.loop_interleaving = True
        tuning.slp_vectorization = False
        # The vectoriser interleaves loops where that pays; beyond it, unrolling only costs.
        tuning.loop_unrolling = False
        builder = llvm.create_pass_builder(self._codegen._tm, tuning)
        builder.getModulePassManager().run(self._final_module, builder)
        text = str(self._final_module)
        changed = ask(stream(text))
        if changed != text:
            name = self._final_module.name
            self._final_module = llvm.parse_assembly(changed)
            self._final_module.name = name


class KernelCodegen(codegen.JITCPUCodegen):
    _library_class = KernelLibrary

    def _customize_tm_features(self) -> str:
        """Those of the processor, with vectors as long as it has.

        LLVM halves them for Intel's, the older of which slowed down for a while after a few of
        them. Kernels have nothing else.
        """
        features: str = super()._customize_tm_features()
        return f"{features},-prefer-256-bit" if "+avx512f" in features.split(",") else features


class KernelTyping(typing.Context):
    """numba's context, with its tables, and what functions give for types that they were given.

    A kernel is some hundred calls of a few functions, for each of which numba goes through all that
    the function may be given, twice where a number is known, and looks for what was registered
    since.
    """

    def __init__(self, own: typing.Context) -> None:
        self.__dict__.update(own.__dict__)
        self._given: dict[tuple[Any, tuple[Any, ...]], Any] = {}

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if kws or not isinstance(func, (types.Function, types.NumberClass)):
            return super().resolve_function_type(func, args, kws)
        key = func, tuple([unliteral(t) for t in args])  # as numba begins
        found = self._given.get(key)
        if found is None and (found := self._of_plain(*key)) is not None:
            self._given[key] = found
        return found if found is not None else super().resolve_function_type(func, args, kws)

    def _of_plain(self, func: Any, args: tuple[Any, ...]) -> Any:
        """What it gives where no number is known; None if that is not the first question."""
        if any(template.prefer_literal for template in getattr(func, "templates", ())):
            return None
        try:
            return super().resolve_function_type(func, args, {})
        except errors.NumbaError:
            return None


class _Target:
    """numba's own target but for the code generator, and what it remembers."""

    def __init__(self) -> None:
        own = registry.cpu_target
        self.typing_context = KernelTyping(own.typing_context)
        self.target_context = own.target_context.subtarget(
            _internal_codegen=KernelCodegen("fastpath"), typing_context=self.typing_context
        )
        self.options = own.options


@functools.cache
def _target() -> Any:
    return _Target()


def ready() -> None:
    """Have the types and functions that every compilation asks for."""
    target = _target()
    target.typing_context.refresh()
    target.target_context.refresh()


#: Passes of numba's for what no kernel has: closures, raises, ``with``, overloads, lists, branches
#: that constants decide, and arrays. Each goes through all of a kernel, most several times.
_NEEDLESS = frozenset(
    {
        "WithLifting",
        "InlineClosureLikes",
        "RewriteSemanticConstants",
        "DeadBranchPrune",
        "RewriteDynamicRaises",
        "MakeFunctionToJitFunction",
        "InlineInlinables",
        "FindLiterallyCalls",
        "LiteralUnroll",
        "LiteralPropagationSubPipelinePass",
        "InlineOverloads",
        "NopythonRewrites",
        "DumpParforDiagnostics",
    }
)


class KernelLower(Lower):
    """numba's, which asks of each operation whether it has a way of its own for a known operand: a
    power by a whole number has."""

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        if op in (operator.pow, operator.ipow):
            return super().lower_binop(resty, expr, op)
        context, builder = self.context, self.builder
        function = context.typing_context.resolve_value_type(op)
        wanted = self.fndesc.calltypes[expr]
        given = [
            context.cast(builder, self.loadvar(side.name), self.typeof(side.name), to)
            for side, to in zip((expr.lhs, expr.rhs), wanted.args, strict=True)
        ]
        signature = context.typing_context.resolve_function_type(function, wanted.args, {})
        made = context.get_function(function, signature)(builder, given)
        return context.cast(builder, made, wanted.return_type, resty)


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(NativeLowering):
    _name = "kernel_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return KernelLower


class KernelCompiler(CompilerBase):
    """numba's pipeline without those."""

    def define_pipelines(self) -> list[PassManager]:
        every = DefaultPassBuilder.define_nopython_pipeline(self.state)
        kept = PassManager("kernel")
        for one, text in every.passes:
            if one.__name__ not in _NEEDLESS:
                kept.add_pass(KernelLowering if one is NativeLowering else one, text)
        kept.finalize()
        return [kept]


class KernelCallback(CFunc):
    """A C callback that is compiled, and not loaded."""

    _compile_uncached: Callable[[], Any]

    @property
    def _targetdescr(self) -> Any:
        return _target()

    @global_compiler_lock
    def object_file(self, symbol: str) -> bytes:
        compiled = self._compile_uncached()
        library = compiled.library
        library.callback, library.symbol = compiled.fndesc.llvm_cfunc_wrapper_name, symbol
        library.finalize()
        found: bytes = library.object_file()
        return found


def compile_callback(function: Callable[..., Any], signature: Any, symbol: str) -> bytes:
    """The object file of ``function``, which is called ``symbol`` there. A division never raises,
    and no rounding is relaxed: only sums may be reordered, as their intrinsic says.
    """
    arguments = (signature.args, signature.return_type)
    return KernelCallback(
        function, arguments, {}, {"error_model": "numpy"}, KernelCompiler
    ).object_file(symbol)
