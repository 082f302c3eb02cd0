"""Hooks on tensors' gradients.

On a tensor from outside they are registered after the graph has run, as the Python functions
that they are. On a result of the graph a hook is an operation of the graph, whose function is a
graph too, so that whoever differentiates the graph calls it in its place; a function that does
more than a graph can hold, or that reads what may have changed by then, ends the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from refcompiler.capture.door import version_of
from refcompiler.capture.effects import effects, reachable
from refcompiler.capture.models.registry import model, operation
from refcompiler.capture.regions.region import Region, refusal
from refcompiler.capture.signals import Break, Restart
from refcompiler.capture.state import handles

#: Guards that a hook's function may need: what it reads when the gradient is there must not be
#: what a program changes between the two passes.
_FIXED = frozenset("ID TYPE CODE TENSOR SIZED ABSENT PRESENT WITHOUT SAME DISTINCT".split())


def gradient_hook(tensor: torch.Tensor, graph: torch.fx.GraphModule, *lifted: Any) -> Any:
    """``tensor.register_hook`` of a function that ``graph`` computes; the handle."""

    def hook(gradient: torch.Tensor) -> torch.Tensor | None:
        found = graph(gradient, *lifted)
        return found[0] if found else None

    return tensor.register_hook(hook)


class Hook:
    """A hook of one capture. ``source`` says where its tensor is from, ``node`` stands for it."""

    def __init__(self, m: Any, tensor: torch.Tensor, name: str, function: Any = None):
        self.tensor, self.name, self.function = tensor, name, function
        self.source = m.fakes_of_inputs.get(id(tensor))
        self.node: torch.fx.Node | None = None
        self.step = m.steps
        self.version = version_of(tensor)
        self.reaches = reachable(function, m)
        self.handle = object.__new__(RemovableHandle)
        self.removed = False
        m.recorder.keep.append(self.handle)


def _checked(m: Any, name: str, args: Sequence, kwargs: Mapping) -> tuple[torch.Tensor, list]:
    """The tensor and the other arguments of a call that eager takes without a word."""
    tensor, *rest = [m.force(a) for a in (*args, *kwargs.values())]
    if m.recorder.scope.outer is not None or not issubclass(type(tensor), torch.Tensor):
        raise Break("operation-not-modelled", f"{name} inside a region")
    if not tensor.requires_grad:
        raise Break("operation-not-modelled", f"{name} of a tensor that needs no gradient")
    source = m.fakes_of_inputs.get(id(tensor))
    if source is not None and not _is_leaf(m, tensor) and version_of(tensor) > 0:
        raise Break("operation-not-modelled", f"{name} of a changed tensor")
    return tensor, rest


def _is_leaf(m: Any, tensor: torch.Tensor) -> bool:
    return m.recorder.metadata("is_leaf", tensor)


@operation("register_hook", "register_post_accumulate_grad_hook")
def _register(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    name = function.__name__
    tensor, rest = _checked(m, name, args, kwargs)
    if len(rest) != 1:
        return NotImplemented
    hook = Hook(m, tensor, name, rest[0])
    if hook.source is None:
        if name != "register_hook" or _is_leaf(m, tensor):
            raise Break("operation-not-modelled", f"{name} of a tensor made in the graph")
        try:
            _register_in_graph(m, hook)
        except (Break, Restart):
            m.recorder.examine(tensor)
            raise
    elif name != "register_hook" and not _is_leaf(m, tensor):
        raise Break("operation-not-modelled", f"{name} of a tensor that is no leaf")
    m.hooks[id(hook.handle)] = hook
    return hook.handle


def _is_given(source: Any) -> bool:
    """Whether what is read is an argument itself, which nobody outside of the call can change."""
    return source is not None and source.kind == "arg" and source.parent is None


def _register_in_graph(m: Any, hook: Hook) -> None:
    recorder = m.recorder
    known = set(m.guards)
    before = effects(m), hook.reaches
    region = Region(m, m.frame, hook.function)
    with recorder.suspension(), torch.no_grad():
        gradient = torch.empty_like(hook.tensor)
        region.call(gradient)
    if (effects(m), reachable(hook.function, m)) != before:
        raise refusal(m, "a hook with side effects")
    if any(kind not in _FIXED and not _is_given(at) for kind, at, _ in m.guards.keys() - known):
        raise refusal(m, "a hook that reads what may change until the gradient is there")
    leaves = region.form.leaves
    if region.outputs[1:] or any(leaf is not None for leaf in leaves) != bool(region.outputs):
        raise refusal(m, "a hook that gives more than a gradient")
    scope = recorder.scope
    nodes = [recorder.argument(value) for value in (hook.tensor, *region.lifted)]
    assert region.module is not None
    recorder.add(
        "call_function",
        gradient_hook,
        (nodes[0], scope.submodule(region.module), *nodes[1:]),
        {},
        None,
    )
    hook.node = next(iter(reversed(scope.graph.nodes)))


@operation("retain_grad")
def _retain(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    tensor, rest = _checked(m, "retain_grad", args, kwargs)
    if m.fakes_of_inputs.get(id(tensor)) is None:
        # A backend that computes it and what comes of it in one step has no gradient for it.
        m.recorder.examine(tensor)
        raise Break("operation-not-modelled", "retain_grad of a tensor made in the graph")
    if not _is_leaf(m, tensor):
        hook = Hook(m, tensor, "retain_grad")
        m.hooks[id(hook.handle)] = hook
        m.retained.add(id(tensor))
    return None


# ---- handles ----------------------------------------------------------------------------------


@model(RemovableHandle.remove)
def _remove(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    handle = m.force(args[0])
    hook, source = m.hooks.get(id(handle)), m.source_of(handle)
    if source is not None:
        if any(owner == id(handle) for owner, _ in m.overlay):
            raise Break("operation-not-modelled", "remove of a handle that was changed")
        if any(id(hooks) in m.external for hooks in _dicts(handle)):  # a module's, in use here
            if m.outside.remove(m, handle, source):
                return None
            return m.call_function(frame, RemovableHandle.remove, args, kwargs)
        m.after.append((source, "remove()"))
        m.handles.append((handle, m.steps))
        m.outside.removed.update(map(id, _dicts(handle)))
        return None
    if hook is None:
        if handles.remove(m, handle):
            return None
        return m.call_function(frame, RemovableHandle.remove, args, kwargs)
    if not hook.removed and hook.node is not None:
        m.recorder.add("call_method", "remove", (hook.node,), {}, None)
    hook.removed = True
    return None


@model(RemovableHandle.__enter__)
def _enter(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return m.force(args[0])


@model(RemovableHandle.__exit__)
def _exit(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return _remove(m, frame, args[:1], {})


# ---- the end of a capture ---------------------------------------------------------------------


def check_hooks(m: Any) -> None:
    """Nothing that a hook depends on has changed since it was registered.

    A handle from outside is removed after the graph, which must not have asked for its hook.
    """
    for handle, step in m.handles:
        if any(id(hooks) in m.external for hooks in _dicts(handle)):
            raise Restart(step, "operation-not-modelled", "remove of the handle of a module's hook")
    for hook in m.hooks.values():
        if hook.node is None:
            changed = not hook.tensor.is_leaf and version_of(hook.tensor) != hook.version
        else:
            changed = reachable(hook.function, m) != hook.reaches
        if changed:
            raise Restart(hook.step, "operation-not-modelled", f"{hook.name} before a change")


def _dicts(handle: RemovableHandle) -> list[Any]:
    """The dicts in which ``handle`` has its hook."""
    return [ref() for ref in (handle.hooks_dict_ref, *handle.extra_dict_ref)]


def set_hooks(m: Any, rebuilder: Any, writer: Any) -> None:
    """Register the hooks of tensors from outside; those that were removed too, for the numbers."""
    handles.make_handles(m, rebuilder, writer)
    for hook in m.hooks.values():
        if hook.source is None:
            continue
        target = writer.read(hook.source)
        if hook.function is None:
            rebuilder.lines.append(f"{target}.{hook.name}()")
            continue
        function = rebuilder.expression(hook.function)
        name = rebuilder.assign(hook.handle, f"{target}.{hook.name}({function})")
        if hook.removed:
            rebuilder.lines.append(f"{name}.remove()")


def check_handle(m: Any, handle: Any) -> None:
    """A handle that has to be made again is one of a tensor from outside."""
    hook = m.hooks.get(id(handle))
    if hook is not None and hook.source is None:
        raise Restart(hook.step, "higher-order", "the handle of a hook outlives the graph")
