"""What autograd knows of a tensor that the graph makes: its version, and the nodes behind it.

Fakes are differentiated as the tensors will be, so that their nodes have the same names and the
same nodes before them. Of what a node has saved, and of who hooks into it, a graph tells nothing:
the graph ends, as it does where a node leaves it.
"""

from __future__ import annotations

from types import BuiltinFunctionType
from typing import Any

import torch

from refcompiler.capture.door import version_of
from refcompiler.capture.signals import Break
from refcompiler.interpreter.frame import UNSET

_Node: Any = torch.autograd.graph.Node
NAMES = frozenset({"grad_fn", "_version"})


def attribute(m: Any, tensor: torch.Tensor, name: str) -> Any:
    """``tensor.grad_fn`` or ``tensor._version``; UNSET where only the run tells."""
    if m.real_of(tensor) is not None or m.recorder.scope.outer is not None:
        return UNSET
    with torch._C.DisableTorchFunction():
        if name == "grad_fn":
            anew = m.recorder.mutates and tensor._is_view()  # a view's node, in another way
            return UNSET if anew or tensor.is_inference() else _shown(m, tensor.grad_fn)
        if m.recorder.root.module._modules:  # a region counts writes in its own way
            return UNSET
        memory = tensor.untyped_storage()._cdata
        if any(fake.untyped_storage()._cdata == memory for _, _, fake in m.inputs.values()):
            return UNSET  # which have been written to before
    version = version_of(tensor)
    return UNSET if version < 0 else version


def of_an_input(m: Any, fake: torch.Tensor, real: torch.Tensor) -> Any:
    """The node behind a tensor from outside, of which a program may ask whether there is one."""
    if version_of(fake) or m.recorder.scope.outer is not None:
        return UNSET
    with torch._C.DisableTorchFunction():
        node = real.grad_fn
    return m.lazy(m.member(m.fakes_of_inputs[id(fake)], "grad_fn"), node)


def base(m: Any, tensor: torch.Tensor, real: torch.Tensor | None) -> Any:
    """``tensor._base``: that of a tensor from outside, if it is one or a view of one."""
    if m.recorder.scope.outer is not None:
        raise Break("operation-not-modelled", "_base")
    with torch._C.DisableTorchFunction():
        of = tensor if real is not None else tensor._base
        if of is not None and m.real_of(of) is None:  # what stands for one may be a view itself
            inputs = [fake for _, _, fake in m.inputs.values()]
            of = next((fake for fake in inputs if fake._base is of), of)
    root = None if of is None else m.real_of(of)
    if root is None:
        return of
    with torch._C.DisableTorchFunction():
        found = root._base
    found = m.force(m.lazy(m.member(m.fakes_of_inputs[id(of)], "_base"), found))
    return of if found is None and real is None else found


def is_node(m: Any, value: Any) -> bool:
    """Whether it is a node of autograd that the program has got here."""
    return type(value) in m.node_kinds


def node_attribute(m: Any, node: Any, name: str) -> Any:
    """What a program may read of ``node``."""
    if name == "__class__":
        return type(node)
    if name == "name":
        return node.name
    if name == "next_functions" and not m.recorder.mutates:
        found = tuple([(_shown(m, inner), place) for inner, place in node.next_functions])
        if not any(inner is UNSET for inner, _ in found):
            m.recorder.keep.append(found)
            return found
    raise Break("operation-not-modelled", f"{name} of a node of autograd")


def node_method(m: Any, function: Any) -> Any:
    """The answer of a method that :func:`node_attribute` has given."""
    if type(function) is BuiltinFunctionType and function.__name__ == "name":
        return function()
    raise Break("operation-not-modelled", f"{function.__name__} of a node of autograd")


def _shown(m: Any, node: Any) -> Any:
    """``node`` as the program may have it; UNSET where eager's is another one."""
    if node is None:
        return None
    if type(node).__module__ != "builtins":  # of a class in Python
        return UNSET
    with torch._C.DisableTorchFunction():
        leaf = getattr(node, "variable", None)
        given = [fake.grad_fn for _, _, fake in m.inputs.values()]
    if any(node is known for known in given):
        return UNSET
    if leaf is not None:
        real = m.real_of(leaf)
        if real is None or not m.recorder.metadata("is_leaf", leaf):
            return UNSET
    m.node_kinds.add(type(node))
    m.made.setdefault(type(node), m.steps)
    m.recorder.keep.append(node)
    return node
