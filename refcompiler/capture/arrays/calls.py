"""Calls of numpy's functions, arrays from outside, and the ways between arrays and tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.arrays.array import Array, is_supported, operate, stand_in
from refcompiler.capture.arrays.tensors import array_of
from refcompiler.capture.kinds import CONSTANT_TYPES, is_numpy_scalar
from refcompiler.capture.signals import Break
from refcompiler.capture.values import External
from refcompiler.guards.arrays import array_tensor
from refcompiler.shapes.node import SYMBOLS

_MODULES = ("", "linalg", "fft")
#: Not functions of their arguments alone, or not what numpy means by the name.
_LEFT_OUT = frozenset({"set_default_dtype", "from_dlpack", "random", "resize", "put"})


@functools.cache
def _counterparts() -> dict[int, Callable]:
    """id of numpy's function -> the function of ``torch._numpy``."""
    import numpy
    import torch._numpy as tnp

    found: dict[int, Callable] = {}
    for module in _MODULES:
        ours, theirs = (getattr(m, module) if module else m for m in (numpy, tnp))
        for name in dir(theirs):
            function, other = getattr(ours, name, None), getattr(theirs, name)
            if name.startswith("_") or name in _LEFT_OUT or isinstance(other, type):
                continue
            if callable(function) and callable(other) and not isinstance(function, type):
                found[id(function)] = other
    return found


def call_numpy(machine: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """A function of numpy's: of constants it is a constant, of arrays a part of the graph."""
    source = machine.source_of(function)
    if source is not None:
        machine.guard("ID", source, function)
    name = getattr(function, "__name__", type(function).__name__)
    forced = [_plain(machine, a) for a in args]
    named = {key: _plain(machine, value) for key, value in kwargs.items()}
    theirs = _counterparts().get(id(function))
    if theirs is None:
        if isinstance(function, type) and all(map(_is_constant, (*forced, *named.values()))):
            return _constant(function, forced, named)
        module = getattr(function, "__module__", None) or "numpy"
        raise Break("c-function", f"{module}.{name}")
    if not _holds(Array, forced) and not _holds(Array, list(named.values())):
        if name == "asarray" and len(forced) == 1 and not named:
            if issubclass(type(forced[0]), torch.Tensor):
                return array_of(machine, forced[0])
        if not _holds(torch.Tensor, forced):
            found = _constant(function, forced, named)
            if found is not None:
                return found
    return operate(machine, function, theirs, forced, named)


def _plain(machine: Any, value: Any) -> Any:
    """With numbers in the place of symbols, which numpy does not take."""
    value = machine.force(value)
    if type(value) in SYMBOLS:
        return machine.sizes.plain(value)
    if type(value) in (list, tuple) and any(type(item) in SYMBOLS for item in value):
        return type(value)([_plain(machine, item) for item in value])
    return value


def _is_constant(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_constant, value))
    kind = type(value)
    if isinstance(value, type):
        return not kind.__module__.startswith("refcompiler")
    return kind in CONSTANT_TYPES or is_numpy_scalar(kind)


def _constant(function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """What the function gives for constants if that is a constant; None if it is an array."""
    if not all(map(_is_constant, (*args, *kwargs.values()))):
        raise Break("c-function", f"numpy.{function.__name__}")
    try:
        found = function(*args, **kwargs)
    except Exception as error:
        raise Break("fake-op-raised", f"numpy.{function.__name__}: {error}") from error
    return found if _is_constant(found) else None


def _holds(kind: type, values: Sequence) -> bool:
    for value in values:
        if issubclass(type(value), kind):
            return True
        if type(value) in (list, tuple) and _holds(kind, value):
            return True
    return False


# ---- arrays from outside ----------------------------------------------------------------------


def array_input(machine: Any, external: External) -> Any:
    """The array of a frame for one from outside, or itself if torch cannot share its memory."""
    array, source = external.value, external.source
    if not is_supported(array):
        return array
    writeable = machine.member(machine.member(source, "flags"), "writeable")
    machine.lazy(writeable, array.flags.writeable)
    machine.guard("EQUALS", writeable, array.flags.writeable)
    with machine.recorder.suspension(), torch._C.DisableTorchFunction(), _disable_current_modes():
        tensor = array_tensor(array)
        standin = stand_in(array)
    machine.check_apart(tensor, source)
    shared = machine.sources.make("array", source)
    machine.lazy(shared, tensor)
    fake = machine.tensor_input(tensor, shared)
    shadow = external.shadow = external.original = Array(machine, fake, standin)
    machine.external[id(shadow)] = external
    machine.arrays.append((source, array, fake))
    return shadow
