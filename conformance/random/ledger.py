"""One side's draws, in order: what drew, from which generator, and its state before and after."""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from refcompiler.aot.draws import WATCHERS, draws

UNSEEN = "(not seen)"
OWN = "its own"  # ends the name of a generator that the program has made
_PACKAGES = ("torch", "refcompiler", "fastpath", "conformance", "numpy")


@dataclass(frozen=True)
class Draw:
    """``operator`` took random numbers of ``generator``; ``before`` and ``after`` are digests of
    its state. ``phase`` is "forward" or "backward", where a checkpointed region is computed again.
    ``line`` is the user's ("file.py:3") that was running. ``python`` and ``numpy`` are digests of
    the states of ``random`` and ``numpy.random`` then.

    What compiled code drew unseen is :data:`UNSEEN`: its states are those of what is next to it.
    """

    operator: str
    shape: tuple[int, ...] | None
    stride: tuple[int, ...] | None
    dtype: str
    generator: str
    before: str
    after: str
    phase: str = "forward"
    line: str = ""
    python: str = ""
    numpy: str = ""

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" {self.dtype}{list(self.shape)}"
        phase = " (backward)" if self.phase == "backward" else ""
        place = f"  {self.line}" if self.line else ""
        return f"{self.operator}{shape}{phase}  {self.generator} {self.before}->{self.after}{place}"


def digest(state: Any) -> str:
    """Eight hexadecimal digits of a generator's state: a tensor, or anything with a ``repr``."""
    if isinstance(state, torch.Tensor):
        data = state.cpu().numpy().tobytes()
    else:
        data = repr(state).encode()
    return hashlib.sha256(data).hexdigest()[:8]


def python_states() -> tuple[str, str]:
    """Of Python's and of NumPy's generator, if it was imported."""
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return digest(random.getstate()), ""
    kind, keys, *rest = numpy.get_state()
    return digest(random.getstate()), digest((kind, keys.tobytes(), *rest))


@dataclass
class Ledger:
    """The draws of one run. ``last`` is each generator's state as it was seen last."""

    draws: list[Draw] = field(default_factory=list)
    last: dict[str, str] = field(default_factory=dict)
    complete: bool = True  # whether all operators are seen; else gaps between states are draws too

    def add(
        self, operator: str, out: Any, generator: str, before: str, after: str, kept: bool = False
    ) -> None:
        if not kept:
            self.reach(generator, before)
            self.last[generator] = after
        tensor = out if isinstance(out, torch.Tensor) else None
        self.draws.append(
            Draw(
                operator,
                None if tensor is None else tuple(tensor.shape),
                None if tensor is None else tuple(tensor.stride()),
                "" if tensor is None else str(tensor.dtype).removeprefix("torch."),
                generator,
                before,
                after,
                "backward" if torch._C._current_graph_task_id() >= 0 else "forward",
                user_line(),
                *python_states(),
            )
        )

    def reach(self, generator: str, state: str) -> None:
        """The generator is found in ``state``: who brought it there, if nobody was seen to?"""
        known = self.last.get(generator)
        if not self.complete and known is not None and known != state:
            self.draws.append(Draw(UNSEEN, None, None, "", generator, known, state))
        self.last[generator] = state

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Draws of compiled kernels, which say so themselves."""

        def watch(name: str, out: Any, owner: str, before: Any, after: Any, kept: bool) -> None:
            self.add(name, out, owner, digest(before), digest(after), kept)

        WATCHERS.append(watch)
        try:
            yield
        finally:
            WATCHERS.remove(watch)


class Recorder(TorchDispatchMode):
    """Writes down operators that draw, if they do: a generator's state changes."""

    def __init__(self, ledger: Ledger):
        super().__init__()
        self.ledger = ledger

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not draws(func):
            return func(*args, **kwargs)
        name, state = _generator(args, kwargs)
        before = digest(state())
        found = func(*args, **kwargs)
        after = digest(state())
        if before != after:
            out = found[0] if isinstance(found, (tuple, list)) and found else found
            self.ledger.add(str(func), out, name, before, after)
        return found


def _generator(args: Any, kwargs: Any) -> tuple[str, Callable[[], Any]]:
    """The generator that a call draws from: its name, and what tells its state."""
    own = kwargs.get("generator")
    if own is None:
        own = next((a for a in args if isinstance(a, torch.Generator)), None)
    if own is not None:
        return f"{own.device}, {OWN}", own.get_state
    device = kwargs.get("device")
    if device is None:
        tensors = (a for a in args if isinstance(a, torch.Tensor))
        device = next((t.device for t in tensors), torch.device("cpu"))
    device = torch.device(device)
    if device.type != "cuda":
        return "cpu", torch.get_rng_state
    index = torch.cuda.current_device() if device.index is None else device.index
    return f"cuda:{index}", lambda: cuda_state(index)


def cuda_state(index: int) -> tuple[int, int]:
    """Seed and offset, which are all of it."""
    generator = torch.cuda.default_generators[index]
    return generator.initial_seed(), generator.get_offset()


def user_line() -> str:
    """The innermost line on the stack that is not of a package that compiles or records."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        written = package not in _PACKAGES and package != "contextlib" and Path(name).is_file()
        if written:
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
