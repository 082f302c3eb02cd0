"""The judge of capture: a program runs natively and compiled, and everything observable agrees.

A case is a factory without arguments: it makes fresh state and gives ``function``, or
``(function, calls)``, or ``(function, calls, watched)``. A call is a tuple of arguments, a
:class:`Call`, or a function without arguments that changes state between calls. ``watched``
is what else is compared after every call.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import gc
import io
import logging
import pickle
import random
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

import refcompiler
from refcompiler.runtime.counters import reasons
from tests.cpu.capture.watching import (
    SHALLOW,
    Outside,
    intruders,
    is_of_the_tests,
    is_ours,
    touched,
)

_PLAIN = (int, float, bool, complex, str, bytes, type(None), type(...), type(NotImplemented))
_TORCH_PLAIN = (torch.dtype, torch.device, torch.layout, torch.memory_format)

#: Attributes of functions: what is compared anyway, an id, what torch keeps of its first call.
_NOT_COMPARED = ("__wrapped__", "_torchdynamo_wrapper_id", "__dynamo_disable")


class Call:
    """A call with keyword arguments."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.args = args
        self.kwargs = kwargs


@dataclass
class Case:
    """``expected`` counts over all calls: graphs, breaks, recompiles, fallbacks."""

    factory: Callable
    expected: dict[str, int]
    backends: tuple[str, ...] = ("eager", "reference")

    def __str__(self) -> str:
        return self.factory.__name__


class Cases(list):
    """Collects cases: a decorator. Without numbers: one graph, no break, no second compilation."""

    def __call__(self, backends: tuple[str, ...] = ("eager", "reference"), **expected: int) -> Any:
        full = {"graphs": 1, "breaks": 0, "recompiles": 0, "fallbacks": 0, **expected}

        def register(factory: Callable) -> Callable:
            self.append(Case(factory, full, backends))
            return factory

        return register


@dataclass
class Run:
    """What one run of a case showed, call by call."""

    seen: list[dict[str, Any]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


class Describer:
    """Turns values into comparable data; objects met before, and storages, become numbers."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.keep: list[Any] = []

    def describe(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return kind.__name__, repr(value)
        if isinstance(value, numpy.inexact):  # libraries round differently
            return kind.__name__, f"{value:.5g}"
        if isinstance(value, numpy.generic):
            return kind.__name__, repr(value)
        if kind in _TORCH_PLAIN or isinstance(value, enum.Enum):
            return kind.__name__, repr(value)
        if isinstance(value, SHALLOW):
            return kind.__name__, getattr(value, "__qualname__", repr(kind))
        if kind is tuple and all(type(item) in _PLAIN for item in value):
            return "tuple", repr(value)  # compilers share constant tuples
        if kind in (range, torch.Size):
            return kind.__name__, repr(value)
        if kind is logging.Logger:  # other handlers of it are the test runner's
            return "Logger", (value.name, value.level, value.disabled)
        if issubclass(kind, torch.nn.parameter.UninitializedTensorMixin):
            return kind.__name__, "uninitialized"
        if id(value) in self.known:
            return "seen", self.known[id(value)]
        self.known[id(value)] = len(self.known)
        self.keep.append(value)
        return kind.__qualname__, self.content(value)

    def content(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, numpy.ndarray):
            return self.array(value)
        if isinstance(value, types.MethodType):
            return value.__func__.__qualname__, self.describe(value.__self__)
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, types.CellType):
            try:
                return self.describe(value.cell_contents)
            except ValueError:
                return "empty cell"
        if isinstance(value, BaseException):
            return self.exception(value)
        if isinstance(value, functools.partial):
            return [self.describe(v) for v in (value.func, value.args, value.keywords)]
        parts: dict[str, Any] = {}
        if isinstance(value, dict):
            ordered = isinstance(value, collections.OrderedDict)  # whose order is its own
            items = (collections.OrderedDict if ordered else dict).items(value)
            parts["items"] = [(self.describe(k), self.describe(v)) for k, v in items]
            if isinstance(value, collections.defaultdict):
                parts["factory"] = self.describe(value.default_factory)
        elif isinstance(value, (list, tuple, collections.deque)):
            parts["items"] = (
                [self.describe(v) for v in type(value).__mro__[0].__iter__(value)]
                if (type(value) in (list, tuple, collections.deque))
                else [self.describe(v) for v in _base_iter(value)]
            )
            parts["maxlen"] = getattr(value, "maxlen", None)
        elif isinstance(value, (set, frozenset)):
            parts["items"] = sorted(repr(self.describe(v)) for v in value)
        namespace = getattr(value, "__dict__", None)
        if isinstance(namespace, dict):
            parts["dict"] = [(k, self.describe(v)) for k, v in namespace.items() if not is_ours(k)]
        for base in type(value).__mro__:
            slots = base.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                with contextlib.suppress(AttributeError):
                    if slot not in ("__dict__", "__weakref__") and not is_ours(slot):
                        parts[slot] = self.describe(object.__getattribute__(value, slot))
        return parts

    def array(self, value: numpy.ndarray) -> dict[str, Any]:
        pointer = value.__array_interface__["data"][0]
        self.keep.append(value)
        contents = repr(value.tolist())
        if value.dtype.kind in "fc":  # libraries round differently
            contents = str([f"{item:.5g}" for item in value.ravel()])
        return {
            "dtype": value.dtype,
            "shape": value.shape,
            "strides": [s for s, n in zip(value.strides, value.shape, strict=True) if n > 1],
            "writeable": value.flags.writeable,
            "contents": contents,
            "memory": self.storages.setdefault(pointer, len(self.storages)),
        }

    def tensor(self, value: torch.Tensor) -> dict[str, Any]:
        with torch.no_grad():
            data = value.detach()
            contents = repr(
                data.to_dense().tolist()
                if data.layout is not torch.strided
                else (data.resolve_conj().resolve_neg().tolist())
            )
            storage = None
            if data.layout is torch.strided:
                pointer = data.untyped_storage()._cdata
                storage = self.storages.setdefault(pointer, len(self.storages))
            self.keep.append(data)
        return {
            "class": type(value).__name__,
            "dtype": value.dtype,
            "shape": tuple(value.shape),
            "stride": value.stride() if value.layout is torch.strided else None,
            "offset": value.storage_offset() if value.layout is torch.strided else None,
            "device": value.device,
            "requires_grad": value.requires_grad,
            "leaf": value.is_leaf,
            "grad_fn": type(value.grad_fn).__name__,
            "view": value._is_view(),
            "inference": value.is_inference(),
            "contents": contents,
            "storage": storage,
            "grad": self.describe(value.grad) if value.is_leaf else None,
            "dict": [(k, self.describe(v)) for k, v in value.__dict__.items()],
        }

    def function(self, value: types.FunctionType) -> Any:
        value = getattr(value, "__refcompiler_original__", value)
        return (
            value.__qualname__,
            value.__doc__,
            value.__module__,
            [self.describe(c) for c in value.__closure__ or ()],
            self.describe(value.__defaults__),
            self.describe(value.__kwdefaults__),
            [(k, self.describe(v)) for k, v in value.__dict__.items() if k not in _NOT_COMPARED],
        )

    def exception(self, value: BaseException) -> Any:
        return {
            "message": str(value),
            "args": [self.describe(a) for a in value.args],
            "lines": user_lines(value),
            "cause": self.describe(value.__cause__),
            "context": self.describe(value.__context__),
            "suppress": value.__suppress_context__,
            "notes": list(getattr(value, "__notes__", [])),
            "dict": [(k, self.describe(v)) for k, v in value.__dict__.items()],
        }


def _base_iter(value: Any) -> Iterator:
    for base in (list, tuple, collections.deque):
        if isinstance(value, base):
            return base.__iter__(value)
    raise AssertionError


def user_lines(error: BaseException) -> list[tuple[str, int | None]]:
    """(function, line) of the traceback entries that lie in the tests."""
    return [
        (entry.name, entry.lineno)
        for entry in traceback.extract_tb(error.__traceback__)
        if is_of_the_tests(entry.filename)
    ]


def tensors_in(value: Any, depth: int = 6) -> list[torch.Tensor]:
    """The tensors in plain containers and objects, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth == 0 or isinstance(value, (*SHALLOW, str)):
        return []
    items: list[Any] = []
    if isinstance(value, dict):
        items = list(dict.values(value))
    elif isinstance(value, (list, tuple, collections.deque)):
        items = list(_base_iter(value))
    elif isinstance(getattr(value, "__dict__", None), dict) and not callable(value):
        items = list(value.__dict__.values())
    return [t for item in items for t in tensors_in(item, depth - 1)]


def _backward(result: Any) -> str | None:
    """Run backward from every differentiable output; what it raised, if it did."""
    outputs = {
        id(t): t
        for t in tensors_in(result)
        if t.requires_grad and t.grad_fn is not None and t.dtype.is_floating_point
    }
    if not outputs:
        return None
    try:
        torch.autograd.backward(
            list(outputs.values()), [torch.ones_like(t) for t in outputs.values()]
        )
    except RuntimeError as error:
        return str(error).split("\n")[0][:80]
    return ""


def run(case: Case, compiler: Callable | None) -> Run:
    """All calls of ``case``, natively when ``compiler`` is None."""
    refcompiler.reset()
    _leave_modes()
    torch.utils.hooks.RemovableHandle.next_id = 0  # the keys of hooks
    torch.default_generator.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    made = case.factory()
    function, calls, watched = _parts(made)
    compiled = function if compiler is None else compiler(function)
    torch.default_generator.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    found = Run()
    observer = Observer(function, compiled, watched, compiler is not None)
    previous: Any = None
    for call in calls:
        if callable(call):
            call()
            previous = None
            continue
        call = Call(*call) if isinstance(call, tuple) else call
        given = Describer().describe([call.args, call.kwargs])
        if given == previous:
            vary(call)
            given = Describer().describe([call.args, call.kwargs])
            assert given != previous, f"{case}: call it again with something changed"
        previous = given
        found.seen.append(observer.observe(call))
    assert len(found.seen) > 1, f"{case}: call it again with something changed"
    found.counters = refcompiler.counters()
    for name in ("breaks", "recompiles", "fallbacks"):
        found.reasons += [f"{name}: {reason}" for reason in reasons(name)]
    return found


def _leave_modes() -> None:
    """What an earlier run has left on fails that run, not this one."""
    torch.set_grad_enabled(True)
    torch.set_autocast_enabled("cpu", False)
    torch.set_default_dtype(torch.float32)


def _parts(made: Any) -> tuple[Any, list[Any], list[Any]]:
    if not isinstance(made, tuple):
        return made, [(torch.randn(3, 4),), (torch.randn(3, 4),)], []
    function, *rest = made
    calls = rest[0] if rest else [(torch.randn(3, 4),), (torch.randn(3, 4),)]
    return function, calls, rest[1] if len(rest) > 1 else []


def vary(call: Call) -> None:
    """Other values in the tensors of a call that is made a second time."""
    with torch.no_grad():
        for tensor in {id(t): t for t in tensors_in([call.args, call.kwargs])}.values():
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.mul_(1.25)
            elif tensor.dtype in (torch.int32, torch.int64) and tensor.numel():
                tensor.copy_(tensor.flip(0) if tensor.dim() else tensor + 1)


class Observer:
    """Makes the calls of one run, and tells what each of them showed."""

    def __init__(self, function: Any, compiled: Callable, watched: list, sweep: bool):
        self.function = function  # as it was before it was compiled
        self.compiled = compiled
        self.watched = watched
        self.sweep = sweep
        self.results: list[Any] = []  # of earlier calls

    def observe(self, call: Call) -> dict[str, Any]:
        printed = io.StringIO()
        inputs = [call.args, call.kwargs, self.watched]
        result: Any = None
        error: BaseException | None = None
        outside = Outside()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with outside.watching() if self.sweep else contextlib.nullcontext():
                    gc.disable()  # what a cycle of ours holds shows, whenever one would run
                    try:
                        result = self.compiled(*call.args, **call.kwargs)
                    except Exception as raised:
                        error = raised
                    finally:
                        gc.enable()
        seen: dict[str, Any] = {
            "printed": printed.getvalue(),
            "warnings": [(w.category.__name__, str(w.message)) for w in caught],
            "grad mode": torch.is_grad_enabled(),
            "inference": torch.is_inference_mode_enabled(),
            "autocast": torch.is_autocast_enabled("cpu"),
            # each is one comparison: hundreds of numbers would hide how little else was compared
            "torch rng": torch.get_rng_state().numpy().tobytes(),
            "python rng": repr(random.getstate()),
            "numpy rng": repr(pickle.dumps(numpy.random.get_state())),
            "default dtype": torch.get_default_dtype(),
        }
        places = touched([self.function, *self.watched])
        everything = [result, error, inputs, self.function, places, self.results]
        if self.sweep:
            found = intruders(everything)
            assert not found, f"the compiler's own objects are reachable: {found[:5]}"
            assert not outside.frames, f"run natively during capture: {outside.frames[:5]}"
        describer = Describer()
        seen["inputs"] = describer.describe(inputs)
        seen["result"] = describer.describe(result)
        seen["error"] = describer.describe(error)
        seen["program"] = describer.describe([self.function, places])
        seen["earlier results"] = describer.describe(self.results)
        seen["backward"] = _backward([result, self.watched])
        seen["after backward"] = Describer().describe([inputs, result, self.function, places])
        self.results.append(result)
        return seen


def differences(native: Any, compiled: Any, path: str = "") -> Iterator[str]:
    """Where two observations differ."""
    if type(native) is not type(compiled):
        yield f"{path}: eager {native!r:.200}, compiled {compiled!r:.200}"
    elif isinstance(native, dict):
        for key in native.keys() | compiled.keys():
            yield from differences(native.get(key), compiled.get(key), f"{path}.{key}")
    elif isinstance(native, (list, tuple)):
        if len(native) != len(compiled):
            yield f"{path}: eager {native!r:.300}, compiled {compiled!r:.300}"
        else:
            for i, (a, b) in enumerate(zip(native, compiled, strict=True)):
                yield from differences(a, b, f"{path}[{i}]")
    elif native != compiled:
        yield f"{path}: eager {native!r:.200}, compiled {compiled!r:.200}"


def leaves(value: Any) -> int:
    """How many single comparisons an observation stands for."""
    if isinstance(value, dict):
        return sum(map(leaves, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(leaves, value))
    return 1


def compare(native: Run, compiled: Run) -> int:
    """Fail unless the runs agree; the number of single comparisons."""
    found = list(differences(native.seen, compiled.seen))
    assert not found, "\n".join([*found[:12], *compiled.reasons, str(compiled.counters)])
    assert native.seen
    return leaves(native.seen)


def compiling(backend: str) -> Callable:
    return lambda function: refcompiler.compile(function, backend=backend)


def check(case: Case) -> int:
    """Judge ``case`` on its backends, and its counters; the number of comparisons."""
    native = run(case, None)
    count = 0
    for backend in case.backends:
        compiled = run(case, compiling(backend))
        count += compare(native, compiled)
        got = {name: compiled.counters[name] for name in case.expected}
        assert got == case.expected, "\n".join([f"counters {got}", *compiled.reasons])
    assert count >= 10 * len(case.backends)
    return count
