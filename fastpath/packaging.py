"""What the CPU's programs are in a package: their text, what it names, and object files.

A kernel is loaded as from the cache on disk; no text of one is in the package, and numba is not
asked. The first call in each process asks ATen whether it does as its stand-ins say, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch

from fastpath.agreement import FirstCall, broken
from fastpath.bindings import OVERLOADS
from fastpath.compiler import _Otherwise
from fastpath.cpu import launcher, objects
from fastpath.cpu.compile import PrintedFinder
from fastpath.cpu.together import bind_together, is_together, parts_of
from fastpath.given import bits
from fastpath.ir.expr import Bounds
from fastpath.profiles import announced, profiled
from fastpath.random.cpu import DISTRIBUTION, drawing, drawing_each
from fastpath.random.kernels import Distribution
from fastpath.random.kernels import address_of as address_of_draw
from fastpath.rejecting import Rejecting, RejectingCall, reject
from fastpath.report import Report
from fastpath.workspace import OWN, TEXT, bind, new_number
from fastpath.wrapper import realigned
from refcompiler.cache import identity
from refcompiler.errors import PackageError
from refcompiler.package.rows import HERE, Home, Packer, Refused, Unpacker, record, register
from refcompiler.package.text import named_in, run
from refcompiler.remade import WRITTEN
from refcompiler.runtime.counters import count
from refcompiler.shapes.text import NAMES

_SOURCE = "the source of fastpath"
HERE[_SOURCE] = lambda: identity.source_of("fastpath", "specs")
_PROCESSOR = "the processor"
HERE[_PROCESSOR] = lambda: processor()
#: What texts name besides the values that a package has.
_FIXED: dict[str, Any] = {
    **TEXT,
    **NAMES,
    "torch": torch,
    "bits": bits,
    "empty": torch.empty_strided,
    "cpu": torch.device("cpu"),
    "as_strided": torch.as_strided,
    "profiled": profiled,
    "realigned": realigned,
    "reject": reject,
}
_ON_GPU = ("fastpath.gpu.", "fastpath.graphs.", "triton.")
_MADE = frozenset({OWN, "named", "workspace", "call"})


# ---- programs ------------------------------------------------------------------------------------


def pack(p: Packer, call: FunctionType) -> list[Any]:
    """The row of a program."""
    p.require(_SOURCE)
    if p.complete:  # the machine is that on which ATen was asked whether it keeps its promises
        p.require(_PROCESSOR)
    known: Any = call
    scope = call.__globals__
    names = {}
    for name in sorted(named_in(known.source) & scope.keys() - _FIXED.keys() - _MADE):
        if (getattr(scope[name], "__module__", None) or "").startswith(_ON_GPU):
            raise Refused("kernels of a GPU, which are Triton's to keep")
        names[name] = p.pack(_of_operator(scope[name]))
    if known.first_source and not p.complete:
        for name in sorted(named_in(known.first_source) & scope.keys()):
            if name.startswith("constant_"):  # of promises
                names[name] = p.pack(scope[name])
    boxed = bool(getattr(call, "_boxed_call", False))
    first = "" if p.complete else known.first_source
    return [known.source, first, boxed, names, known.titles]


def unpack(
    u: Unpacker, source: str, first: str, boxed: bool, names: Any, titles: dict[str, str]
) -> Callable[..., Any]:
    """The program of a row."""
    known = {**_FIXED, **{name: u.value(value) for name, value in names.items()}}
    known |= {OWN: new_number(), "named": None}
    scope = run(source, known, u.title, "program", u.home is not None)
    made = scope.pop("call")
    if first:
        asking = Promised(u.title)
        scope = run(first, {**known, **asking.names()}, u.title, "program")
        later, made = made.__code__, scope.pop("call")
        asking.begins(made, later)
    if titles:
        scope["named"] = announced(made, titles)
    bind(made, scope[OWN])
    call: Any = made
    call.source, call.first_source, call._boxed_call = source, first, boxed
    call.titles, call.kernel_sources = titles, []
    call.__dict__[WRITTEN] = "fastpath"
    return call


class Promised(FirstCall):
    """What the first call of a loaded program asks. A broken promise is an error there."""

    def __init__(self, title: str):
        self.title, self.plainly, self.generators = title, None, []
        self._call, self._later = lambda: None, None

    def names(self) -> dict[str, Any]:
        return {
            "broken": broken,
            "states": self.states,
            "settle": self.settle,
            "instead": self.instead,
        }

    def instead(self, why: str, inputs: Sequence[Any], drawn: Sequence[torch.Tensor]) -> Any:
        raise PackageError(f"{self.title} was made for operators that do otherwise here: {why}")


class Plainly:
    """The graph as it is, for calls with sizes that a program is not made for."""

    def __init__(
        self, graph: Callable[[], torch.fx.GraphModule], boxed: bool, home: Home | None = None
    ):
        self.graph, self.boxed, self.home = graph, boxed, home

    def __call__(self, values: tuple[int, ...], *inputs: Any) -> Any:
        count("uncompiled", f"a graph of a package runs as it is: its sizes are {values}")
        if self.home is not None:
            self.home.anew(f"its sizes are {values}")
        return self.graph()(*(inputs[0] if self.boxed else inputs))


def _of_operator(value: Any) -> Any:
    """An overload in the place of what it runs, which has no name."""
    return OVERLOADS.get(id(value), value)


# ---- kernels -------------------------------------------------------------------------------------


def processor() -> str:
    """The processor and its features."""
    import llvmlite.binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _features() -> list[str]:
    """What kernels are compiled for: the processor's features."""
    import llvmlite.binding as llvm

    return sorted(name for name, there in llvm.get_host_cpu_features().items() if there)


def _object(p: Packer, address: int) -> list[Any]:
    try:
        if p.complete and (key := objects.key_at(address)) is not None:
            return [*key, None]  # which the cache has already
        symbol, code = objects.object_at(address)
    except LookupError as error:
        raise Refused(f"a kernel without {error}") from error
    return [symbol, p.pack(code), p.pack(_FEATURES)]


class _Features:
    """Stands for the list of features in rows, which is there once."""


_FEATURES = _Features()


def _check_features(u: Unpacker, features: list[str]) -> list[str]:
    lacking = sorted(set(features) - set(_features()))
    if lacking:
        some = ", ".join(lacking[:4])
        raise PackageError(f"{u.title} has kernels for processors with {some}; this one has not")
    return features


def _loaded(u: Unpacker, symbol: str, code: Any, features: Any) -> int:
    if type(code) is str:
        try:
            return objects.kept(symbol, code)
        except LookupError as error:
            raise PackageError(f"{u.title} needs {error}") from error
    u.value(features)
    return objects.load(u.value(code), symbol)


def _pack_kernel(p: Packer, value: Any) -> list[Any]:
    address, *how = launcher.record_of(value)
    return [*_object(p, address), *how]


def _unpack_kernel(u: Unpacker, symbol: str, code: Any, features: Any, *how: int) -> Any:
    return launcher.bound(_loaded(u, symbol, code, features), *how)


def _pack_together(p: Packer, value: Any) -> list[Any]:
    return [[*_object(p, address), *how] for address, *how in parts_of(value)]


def _unpack_together(u: Unpacker, *kernels: list[Any]) -> Any:
    return bind_together([(_loaded(u, *row[:3]), *row[3:]) for row in kernels])


def _pack_code(p: Packer, value: Any) -> list[Any]:
    return _object(p, int(value))


def _unpack_code(u: Unpacker, symbol: str, code: Any, features: Any) -> Any:
    return launcher.Code(_loaded(u, symbol, code, features))


class Found:
    """What a program needs of a kernel whose positions are data."""

    printed: Any = None  # the kernel as a text

    def __init__(self, find: Callable[..., None], bounds: list[Bounds]):
        self.find, self._bounds = find, bounds

    def bounds(self) -> list[Bounds]:
        return self._bounds


class Limit:
    """What is said of a position beyond a limit."""

    def __init__(self, error: str, message: str):
        self.error, self.message = error, message


def _pack_found(p: Packer, kernel: Any) -> list[Any]:
    bounds = [[b.error, b.message] for b in kernel.bounds()]
    if p.complete:  # what few calls need is compiled when they do
        if isinstance(kernel, Rejecting):
            kernel.printed = kernel.texts()
        return [None, bounds, p.pack(kernel.printed)]
    find = kernel.finder() if isinstance(kernel, Rejecting) else kernel.find
    return [p.pack(find), bounds, None]


def _unpack_found(u: Unpacker, find: Any, bounds: list[Any], printed: Any) -> Found:
    limits: Any = [Limit(*known) for known in bounds]
    if printed is None:
        return Found(u.value(find), limits)
    finder = u.value(printed)
    made = Found(lambda *addresses: finder.loaded()(*addresses), limits)
    made.printed = finder
    return made


def _pack_draw(p: Packer, draw: Any) -> list[Any]:
    d: Distribution = draw.__dict__[DISTRIBUTION]
    return [p.pack(d), *_object(p, address_of_draw(d))]


def _unpack_draw(u: Unpacker, d: Any, symbol: str, code: Any, features: Any) -> Any:
    _loaded(u, symbol, code, features)  # where the kernel is looked for by its symbol
    distribution: Distribution = u.value(d)
    return drawing_each(distribution) if distribution.given else drawing(distribution)


def _pack_report(p: Packer, report: Report) -> list[Any]:
    return [report.kernels, dict(report.aten_calls), dict(report.draws), report.nodes]


def _unpack_report(u: Unpacker, kernels: int, calls: Any, draws: Any, nodes: int) -> Report:
    return Report(kernels=kernels, aten_calls=calls, draws=draws, nodes=nodes)


register("features", lambda p, v: _features(), lambda u, *f: _check_features(u, [*f]), _Features)
register("kernel", _pack_kernel, _unpack_kernel, when=launcher.is_bound)
register("kernel code", _pack_code, _unpack_code, launcher.Code)
register("together", _pack_together, _unpack_together, when=is_together)
register("rejecting", _pack_found, _unpack_found, Rejecting, RejectingCall, Found)
register(
    "draw", _pack_draw, _unpack_draw, when=lambda v: DISTRIBUTION in getattr(v, "__dict__", ())
)
register("report", _pack_report, _unpack_report, Report)
register(
    "otherwise",
    lambda p, v: [p.pack(v.graph if isinstance(v, _Otherwise) else v.graph()), v.boxed],
    lambda u, graph, boxed: Plainly(u.later(graph), boxed, u.home),
    _Otherwise,
    Plainly,
)
record(PrintedFinder, "source", "names", "addresses", "units")
record(
    Distribution,
    *("name", "dtype", "words", "elements", "kind", "text", "second", "pairs64"),
    *("integers", "given"),
)
