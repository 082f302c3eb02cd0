"""Runs a case once, eagerly or compiled, and observes every step."""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from conformance.ambient import ambient
from conformance.case import Call, Case, Change
from conformance.observe import (
    MODULE,
    PROGRAM_FILE,
    ErrorSeen,
    Observation,
    Snapshot,
    StepSeen,
    error_seen,
    rng_state,
    snapshot,
)
from conformance.render import PRELUDE, inputs_source
from conformance.verdict import Compiled


class Session(Protocol):
    """One fresh use of a compiler: see :class:`conformance.compilers.Session`."""

    refusals: tuple[type, ...]

    def compile(self, model: Callable[..., Any]) -> Callable[..., Any]: ...

    def taken(self) -> Compiled: ...


class Eager:
    """The absence of a compiler: the oracle's side of every comparison."""

    refusals: tuple[type, ...] = ()

    def compile(self, model: Callable[..., Any]) -> Callable[..., Any]:
        return model

    def taken(self) -> Compiled:
        return Compiled()


@dataclass(frozen=True)
class Precision:
    """Run with every floating storage, parameter and dtype argument in ``dtype`` instead.

    ``jitter`` seeds a random rounding error, of one unit in the last place of the *original* dtype,
    on every floating input and parameter: how far that moves the result says how far rounding
    alone may move it.
    """

    dtype: torch.dtype
    jitter: int | None = None


FLOAT64 = Precision(torch.float64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_COMPLEX = {
    torch.float64: torch.complex128,
    torch.float32: torch.complex64,
    torch.float16: torch.complex32,
}


_SHORTHANDS = (
    torch.Tensor.half,
    torch.Tensor.bfloat16,
    torch.Tensor.float,
    torch.Tensor.double,
)


class _Recast(TorchFunctionMode):
    """Replaces every floating or complex dtype that a program names by the one under test."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in _SHORTHANDS:
            return args[0].to(self.dtype, **(kwargs or {}))
        swap = {name: recast(value, self.dtype) for name, value in (kwargs or {}).items()}
        return func(*(recast(value, self.dtype) for value in args), **swap)


def recast(value: Any, dtype: torch.dtype) -> Any:
    """``dtype`` in place of a floating dtype, its complex counterpart in place of a complex one."""
    if value in _FLOATS if isinstance(value, torch.dtype) else False:
        return dtype
    if isinstance(value, torch.dtype) and value.is_complex:
        return _COMPLEX.get(dtype, value)
    return value


@contextlib.contextmanager
def in_precision(precision: Precision | None) -> Iterator[None]:
    """The program's own dtypes, and the one that integers become, are those of ``precision``."""
    if precision is None:
        yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(precision.dtype)
    try:
        with _Recast(precision.dtype):
            yield
    finally:
        torch.set_default_dtype(before)


class Recaster:
    """Moves inputs and parameters to another precision, with or without jitter."""

    def __init__(self, precision: Precision):
        self.dtype = precision.dtype
        self.generator = None
        if precision.jitter is not None:
            self.generator = torch.Generator().manual_seed(precision.jitter)

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        moved = tensor.to(recast(tensor.dtype, self.dtype))
        if self.generator is None:
            return moved
        # Half a unit, unless the precision itself has no halves of it.
        unit = torch.finfo(tensor.dtype).eps / (1 if moved.dtype == tensor.dtype else 2)
        # Of complex numbers each part by itself: a product with (1, 0) makes nan of an infinity.
        parts = torch.view_as_real(moved.resolve_conj()) if moved.is_complex() else moved
        sign = torch.randint(0, 2, parts.shape, generator=self.generator) * 2 - 1
        # Not in float32, which has no such digits.
        parts = parts * (1 + unit * sign.to(parts))
        return torch.view_as_complex(parts) if moved.is_complex() else parts

    def program(self, roots: Iterable[Any]) -> None:
        """What a program computes with: the modules among ``roots``, and tensors in containers.

        In place, so that whatever holds a parameter (an optimizer, another module) goes on sharing
        it. Tensors outside of modules that share memory stay as they are: they would stop sharing.
        """
        held: dict[int, torch.Tensor] = {}
        bare: dict[int, torch.Tensor] = {}
        for leaf in torch.utils._pytree.tree_leaves(list(roots)):
            if isinstance(leaf, torch.nn.Module):
                held |= {id(t): t for store in (leaf.parameters(), leaf.buffers()) for t in store}
            elif type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.is_leaf:
                bare[id(leaf)] = leaf
        users = Counter(map(_memory, (held | bare).values()))
        alone = {key: tensor for key, tensor in bare.items() if users[_memory(tensor)] == 1}
        with torch.no_grad():
            for tensor in (held | alone).values():
                tensor.data = self(tensor.data)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else id(tensor)


def run(case: Case, session: Session, precision: Precision | None = None) -> Observation:
    """Run ``case`` from scratch: a fresh program, fresh inputs, seeded generators.

    Raises whatever the program's own source or the inputs raise while they are built: such a case
    is malformed. What a step raises is part of the observation.
    """
    seed_everything()
    filename = f"{PROGRAM_FILE}{case.digest}>"
    # Built as in eager, then moved: what is drawn in another precision is something else.
    namespace = build(case, filename, precision)
    seed_everything()  # what modules draw when they are imported only the first of two runs sees
    outs: list[Any] = namespace["outs"]
    steps = []
    refused: ErrorSeen | None = None
    try:
        namespace["f"] = session.compile(namespace["model"])
    except Exception as raised:
        refused = error_seen(raised, filename, session.refusals)
    for step in case.history:
        printed = io.StringIO()
        error = refused
        with (
            in_precision(precision),
            contextlib.redirect_stdout(printed),
            _ambient_state_restored(),
        ):
            if refused is None:
                try:
                    _take(step, namespace, outs)
                except KeyboardInterrupt:
                    raise
                except BaseException as raised:  # a backend that calls sys.exit is an answer too
                    error = error_seen(raised, filename, session.refusals)
            left = ambient()
        seen = _visible(namespace), printed.getvalue(), error, rng_state(), session.taken(), left
        steps.append(StepSeen(*seen))
    return Observation(tuple(steps))


def build(case: Case, filename: str, precision: Precision | None = None) -> dict[str, Any]:
    """The namespace of a case before its first step: the program's names, ``model``, the inputs."""
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses and pickle look a class's module up
    namespace = module.__dict__
    namespace["torch"] = torch
    source = case.program.source
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), namespace)
    model = eval(case.program.entry, namespace)
    if case.device != "cpu" and isinstance(model, torch.nn.Module):
        model.to(case.device)
    exec(PRELUDE, namespace)
    wrap = ""
    if precision is not None:
        recaster = Recaster(precision)
        recaster.program([model, *namespace.values()])
        namespace["_wrap"] = recaster
        wrap = "_wrap"
    exec(inputs_source(case.inputs, case.device, wrap), namespace)
    namespace["model"] = model
    namespace["outs"] = []
    return namespace


def cotangent(tensor: torch.Tensor) -> torch.Tensor:
    """A fixed cotangent with no two neighbours alike, so that no element's gradient is hidden."""
    ramp = torch.arange(tensor.numel(), dtype=torch.float64, device=tensor.device)
    return (ramp + 1).cos().to(tensor.dtype).reshape(tensor.shape)


def seed_everything(seed: int = 0) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        import numpy

        numpy.random.seed(seed)


def _take(step: Call | Change, namespace: dict[str, Any], outs: list[Any]) -> None:
    if isinstance(step, Change):
        exec(compile(step.source, "<change>", "exec"), namespace)
        return
    with _mode(step.mode):
        out = eval(compile(step.source, "<call>", "eval"), namespace)
    outs.append(out)
    if step.backward:
        seen = snapshot_tensors(out)
        roots = [t for t in seen if t.requires_grad and t.is_floating_point()]
        torch.autograd.backward(roots, [cotangent(t) for t in roots])


def snapshot_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in ``value``, a tensor or a nest of containers known to pytree."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _mode(name: str) -> contextlib.AbstractContextManager[Any]:
    modes = {
        "grad": torch.enable_grad,
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
    }
    return modes[name]()


def _visible(namespace: dict[str, Any]) -> Snapshot:
    hidden = ("f", "inf", "nan")
    order = {"outs": namespace["outs"]}  # results first: their paths name what they share
    return snapshot(order | {k: v for k, v in namespace.items() if k not in hidden})


@contextlib.contextmanager
def _ambient_state_restored() -> Iterator[None]:
    """A case that dies in the middle of a mode must not decide the next case.

    What else it leaves (:mod:`conformance.ambient`) costs the process: the worker tells.
    """
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
