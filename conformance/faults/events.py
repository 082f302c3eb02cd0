"""What a user sees of a running program: each call of a compiled function, each backward, the end.

Values are kept as fingerprints and samples: two processes tell each other whether they are equal,
and how far they are apart where not.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from conformance.ambient import ambient
from conformance.execute import snapshot_tensors
from conformance.faults.apart import Say
from conformance.faults.messages import Event
from conformance.observe import (
    Snapshot,
    StepSeen,
    TensorSeen,
    error_seen,
    rng_state,
    snapshot,
)
from conformance.verdict import Compiled

SAMPLE = 4096
EARLIER = 2
_PACKAGES = {"torch", "refcompiler", "fastpath", "conformance", *sys.stdlib_module_names}


@dataclass(frozen=True)
class Thin(TensorSeen):
    """A tensor of which a sample of the values is kept, and the digest of all."""

    digest: str = ""


def thin(seen: TensorSeen) -> Thin:
    values = seen.values
    if values.is_floating_point():
        values = torch.where(values.isnan(), torch.full_like(values, float("nan")), values)
    flat = values.reshape(-1)
    data = flat.view(torch.uint8) if flat.numel() else flat
    digest = hashlib.sha256(data.numpy().tobytes()).hexdigest() if flat.numel() else ""
    step = max(1, -(-flat.numel() // SAMPLE))
    sample = flat[::step].clone()
    names = {name: getattr(seen, name) for name in TensorSeen.__dataclass_fields__}
    return Thin(**{**names, "values": sample}, digest=digest)


class Observer:
    """Says each event. One for a run of the program; nested calls are part of the outermost."""

    def __init__(self, say: Say, taken: Callable[[], Compiled] = Compiled):
        self.say, self.taken = say, taken
        self.refusals: tuple[type, ...] = ()
        self.depth = 0
        self.counts: dict[str, int] = {}
        self.roots: dict[str, Any] = {}  # all that was compiled, by the names it is shown with
        self.earlier: list[list[torch.Tensor]] = []
        self.given: dict[str, Any] = {}  # to the last call
        self.after: Callable[[], None] = lambda: None

    def observed(self, compiled: Any, model: Any) -> Any:
        """``compiled`` (or the model itself), whose calls are events."""
        name = getattr(model, "__qualname__", None) or type(model).__qualname__
        name = name.removeprefix("<locals>.").rpartition(".<locals>.")[2]
        root = name if name not in self.roots else f"{name} {len(self.roots)}"
        self.roots[root] = _state_of(model)
        if isinstance(compiled, torch.nn.Module):
            return self._observed_module(compiled, root)

        @functools.wraps(compiled, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(root, compiled, args, kwargs)

        call.__dict__.update(getattr(compiled, "__dict__", {}))
        call._torchdynamo_inline = model  # type: ignore[attr-defined]
        return call

    def _observed_module(self, compiled: torch.nn.Module, root: str) -> torch.nn.Module:
        kind = type(compiled)
        observer = self

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if module is not compiled:
                return kind.__call__(module, *args, **kwargs)
            bound = types.MethodType(kind.__call__, module)
            return observer._call(root, bound, args, kwargs)

        names = {"__call__": call, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
        compiled.__class__ = type(kind.__name__, (kind,), names)
        return compiled

    def _call(self, root: str, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.depth:
            return run(*args, **kwargs)
        count = self.counts[root] = self.counts.get(root, 0) + 1
        label = f"call {count} of {root}" + _at()
        given = self.given = {"args": list(args), "kwargs": kwargs}
        self.depth += 1
        try:
            out = run(*args, **kwargs)
        except Exception as raised:
            # What an exception leaves behind is seen like what a result does.
            self._event(label, given, raised)
            raise
        finally:
            self.depth -= 1
        self._event(label, {"out": out, **given}, None)
        tensors = [t.detach() for t in snapshot_tensors(out)]
        self.earlier = [*self.earlier, tensors][-EARLIER:]
        return out

    def _event(self, label: str, names: dict[str, Any], raised: BaseException | None) -> None:
        left = ambient()  # before anything of ours runs
        left.pop("recursion limit")  # which importing a compiler raises
        state = rng_state()
        error = None if raised is None else error_seen(raised, "", self.refusals)
        seen = snapshot({**names, **_named(self.roots), "earlier": self.earlier})
        thinned = Snapshot({p: thin(t) for p, t in seen.tensors.items()}, seen.leaves)
        self.say(Event(label, StepSeen(thinned, "", error, state, self.taken(), left)))
        self.depth += 1  # what is run again is no event
        try:
            self.after()
        finally:
            self.depth -= 1

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Backwards are events, too, and the end of the program is one."""
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return original(*args, **kwargs)
            count = self.counts["backward"] = self.counts.get("backward", 0) + 1
            label = f"backward {count}" + _at()
            self.depth += 1
            raised: BaseException | None = None
            try:
                return original(*args, **kwargs)
            except Exception as error:
                raised = error
                raise
            finally:
                self.depth -= 1
                self._event(label, self.given, raised)

        backward._torchdynamo_inline = original  # type: ignore[attr-defined]
        with mock.patch.object(torch.autograd, "backward", backward):
            yield
        self._event("the end", self.given, None)


def _named(roots: dict[str, Any]) -> dict[str, Any]:
    return {"state": roots} if roots else {}


def _state_of(model: Any) -> Any:
    """What a call of ``model`` may read and change beside its arguments."""
    if isinstance(model, torch.nn.Module):
        return model
    if isinstance(model, types.MethodType):
        return model.__self__
    if not isinstance(model, types.FunctionType):
        return None
    held: dict[str, Any] = {}
    for name, cell in zip(model.__code__.co_freevars, model.__closure__ or ()):
        with contextlib.suppress(ValueError):
            held[name] = cell.cell_contents
    for name in _names_in(model.__code__):
        if name in model.__globals__:
            held.setdefault(name, model.__globals__[name])
    kept = (torch.Tensor, torch.nn.Module, list, dict, int, float, bool)
    return {name: value for name, value in held.items() if isinstance(value, kept)}


def _names_in(code: types.CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _names_in(constant)
    return names


def _at() -> str:
    """``, train.py:14``: the user's line that is running."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        name = frame.f_code.co_filename
        if package not in _PACKAGES and Path(name).is_file():
            return f", {Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
