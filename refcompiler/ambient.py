"""Global state of torch that capture sets: autocast, and the stack of function transformations."""

from __future__ import annotations

import contextlib
import random
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.autograd.grad_mode import _enter_inference_mode

#: In the meta of a graph's input: it is a leaf at each call, as parameters are.
LEAF = "leaf"


class Autocast(NamedTuple):
    """For each device type whether autocast is on and to which dtype; the cache; the nesting."""

    enabled: tuple[tuple[str, bool, torch.dtype], ...]
    cache: bool
    nesting: int

    @staticmethod
    def now() -> Autocast:
        nesting = torch.autocast_increment_nesting() - 1
        torch.autocast_decrement_nesting()
        devices = tuple(
            [
                (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                for device in ("cpu", "cuda")
            ]
        )
        return Autocast(devices, torch.is_autocast_cache_enabled(), nesting)

    def set(self) -> None:
        for device, enabled, dtype in self.enabled:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.cache)
        nesting = torch.autocast_increment_nesting()
        while nesting < self.nesting:
            nesting = torch.autocast_increment_nesting()
        while nesting > self.nesting:
            nesting = torch.autocast_decrement_nesting()
        if nesting == 0:
            torch.clear_autocast_cache()


#: Inference mode (1) and gradients (2) around the blocks that plans have entered, which C's
#: objects for them tell nobody.
_AROUND: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def enter_inference(mode: bool) -> Any:
    """Enter an inference mode; the object that leaves it."""
    around = torch.is_inference_mode_enabled() + 2 * torch.is_grad_enabled()
    entered = _enter_inference_mode(mode)
    _AROUND[entered] = around
    return entered


def mode_around(entered: Any) -> int:
    """Inference mode (1) and gradients (2) as leaving ``entered`` brings them back; -1: unknown."""
    return _AROUND.get(entered, -1)


@contextlib.contextmanager
def around_block(inference: bool, grad: bool) -> Iterator[None]:
    """In a block of inference mode: the modes around it, for a while."""
    before = torch.is_grad_enabled()
    with torch.inference_mode(inference):
        torch._C._set_grad_enabled(grad)
        try:
            yield
        finally:
            torch._C._set_grad_enabled(before)


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Where a backend compiles, ``torch.compiler.is_compiling()`` says so, as under torch's."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """The program's modes and random numbers stay as they are, whatever runs inside.

    A backend traces the graph that it is given, and a graph may switch gradients off and leave them
    off; or it times candidates on random numbers.
    """
    grad, autocast = torch.is_grad_enabled(), Autocast.now()
    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    drawn, torch_drawn = random.getstate(), torch.get_rng_state()
    on_devices = torch.cuda.is_available() and torch.cuda.is_initialized()
    devices_drawn = torch.cuda.get_rng_state_all() if on_devices else []
    try:
        yield
    finally:
        torch._C._set_grad_enabled(grad)
        if Autocast.now() != autocast:
            autocast.set()
        torch.set_default_dtype(dtype)
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        random.setstate(drawn)
        torch.set_rng_state(torch_drawn)
        if devices_drawn:
            torch.cuda.set_rng_state_all(devices_drawn)


@contextlib.contextmanager
def outside_transformations() -> Iterator[None]:
    """Without the function transformations (vmap, grad) that are active: what is made is plain."""
    functorch: Any = torch._C._functorch
    layers = []
    try:
        while functorch.peek_interpreter_stack() is not None:
            layers.append(functorch.pop_dynamic_layer_stack())
        yield
    finally:
        while layers:
            functorch.push_dynamic_layer_stack(layers.pop())
