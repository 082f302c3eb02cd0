"""Wrapper subclasses: tensors made of other tensors, with a ``__torch_dispatch__`` of their own.

One that says what it is made of (``__tensor_flatten__``, ``__tensor_unflatten__``) is in a graph as
it is, one node for each operation of the program, whose function the class decides when the graph
runs: forward and gradients are what they are in eager. While capturing, an instance of the class
over fakes stands for it, and the class's method runs over those, as it does under torch.compile;
so does a ``__torch_function__``. What these do besides (counting, printing) happens once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass_type

from refcompiler.capture.signals import Break
from refcompiler.guards.sources import Source
from refcompiler.guards.wrappers import WrapperMeta, parts
from refcompiler.interpreter.frame import UNSET


def is_wrapper(cls: type) -> bool:
    """Whether values of that class are such tensors; torch's own have rules of their own."""
    return (
        cls is not FakeTensor
        and issubclass(cls, torch.Tensor)
        and is_traceable_wrapper_subclass_type(cls)
        and not cls.__module__.startswith("torch.")
    )


def is_fake(value: torch.Tensor) -> bool:
    """Whether all tensors that ``value`` is made of are fakes."""
    if type(value) is FakeTensor:
        return True
    return is_wrapper(type(value)) and all(map(is_fake, parts(value).values()))


def wrapper_input(m: Any, value: torch.Tensor, source: Source) -> Any:
    """The stand-in for a tensor from outside."""
    mode = m.recorder.fake_mode
    with m.recorder.suspension(), torch._C.DisableTorchFunction():
        try:
            if m.arrays or not is_plain(value):
                raise Break("tensor-kind", f"{source} is a {type(value).__name__}")
            m.guard("WRAPPER", source, WrapperMeta.of(value))
            mode.learn(*_leaves(value))
            fake = mode.from_tensor(value, static_shapes=True)
        except Exception as error:  # of the class's own methods, which eager does not call
            raise Break("tensor-kind", f"{source}: {error}".split("\n")[0]) from error
    node = m.recorder.add_input(m.input_name(source), fake)
    node.meta["refcompiler_static"] = isinstance(value, torch.nn.Parameter)
    m.inputs[id(value)] = (value, source, fake)
    m.input_order.append(id(value))
    m.fakes_of_inputs[id(fake)] = source
    return fake


def _leaves(value: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for part in parts(value).values():
        found += _leaves(part) if is_wrapper(type(part)) else [part]
    return found


def is_plain(value: torch.Tensor) -> bool:
    """Whether a graph can hold it: it and its parts are strided, and not of inference mode."""
    if value.layout is not torch.strided or value.is_inference():
        return False
    try:
        inner = parts(value).values()
    except Exception:  # of the class's own method, which eager does not call
        return False
    return all(is_plain(part) if is_wrapper(type(part)) else _is_leaf(part) for part in inner)


def _is_leaf(part: torch.Tensor) -> bool:
    plain = type(part) is torch.Tensor or type(part) is torch.nn.Parameter
    return plain and part.layout is torch.strided and not part.is_quantized


def construct(m: Any, cls: type, args: Sequence, kwargs: Mapping) -> Any:
    """``cls(*args, **kwargs)`` in the frame: one node of the graph."""
    given = [m.force(a) for a in args]
    named = {k: m.force(v) for k, v in kwargs.items()}
    try:
        with m.recorder.suspension():
            made = cls(*given, **named)
    except Exception as error:
        raise Break("fake-op-raised", f"{cls.__name__}: {error}".split("\n")[0]) from error
    if type(made) is not cls or not is_fake(made):
        raise Break("tensor-kind", f"construction of a {cls.__name__}")
    m.recorder.record(cls, tuple(given), named, made)
    return made


def part(m: Any, value: torch.Tensor, name: str) -> Any:
    """What an instance has under that name, or UNSET."""
    namespace = object.__getattribute__(value, "__dict__")
    if name not in namespace:
        return UNSET
    found = namespace[name]
    real = m.real_of(value)
    if real is not None and name in real.__dict__:
        source = m.fakes_of_inputs[id(value)]
        parent = m.namespace(real, source)
        m.lazy(parent, real.__dict__)
        kept = m.force(m.lazy(m.item(parent, name, "member", name), real.__dict__[name]))
        tensor = issubclass(type(found), torch.Tensor)
        if kept is found or not (tensor or issubclass(type(kept), torch.Tensor)):
            return kept
    if (
        issubclass(type(found), torch.Tensor)
        and m.recorder.node_in(m.recorder.scope, found) is None
    ):
        node = m.recorder.argument(value)
        m.recorder.add("call_function", getattr, (node, name), {}, found)
    return found
