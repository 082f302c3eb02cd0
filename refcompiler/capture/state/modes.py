"""Modes of torch that a program enters and leaves: autocast and inference mode.

They are entered for real while capturing, so that the fakes behave as the tensors will, and as
nodes in the graph, which leaves at its end every mode that it has entered: a backend may run it
or only trace it. The plan then sets the state in which the program goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast, autocast
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

from refcompiler.ambient import LEAF, enter_inference, mode_around
from refcompiler.capture.calls import Calls
from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break, Restart

#: The methods themselves, without a model. They run within one instruction: a graph ends before or
#: after a change of the state.
_ENTERING = FunctionType(autocast.__enter__.__code__, autocast.__enter__.__globals__)
_LEAVING = FunctionType(autocast.__exit__.__code__, autocast.__exit__.__globals__)


@model(autocast.__enter__)
def _enter(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """The method itself runs too: it keeps the state that it will restore."""
    block = m.force(args[0])
    _guard_settings(m)
    names = ("device", "fast_dtype", "_enabled", "_cache_enabled")
    for name in names[2:]:  # of a comparison of sizes
        if type(found := m.force(m.getattr(block, name))) is torch.SymBool:
            m.setattr(block, name, m.sizes.plain(found))
    values = tuple([m.force(m.getattr(block, name)) for name in names])
    scope = m.recorder.scope
    scope.modes.append((id(block), scope.graph.call_function(_enter_autocast, values)))
    m.recorder.switched = True
    return m.invoke(frame, _ENTERING, (block,))


@model(autocast.__exit__)
def _exit(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    block = m.force(args[0])
    scope = m.recorder.scope
    _guard_settings(m)
    m.recorder.switched = True
    if scope.modes and scope.modes[-1][0] == id(block):
        _, node = scope.modes.pop()
        scope.graph.call_function(_exit_autocast, (node,))
    else:  # entered before this graph, whose rest runs in the state that comes back
        names = ("device", "prev_fastdtype", "prev", "prev_cache_enabled")
        values = tuple([m.force(m.getattr(block, name)) for name in names])
        scope.modes.append((0, scope.graph.call_function(_enter_autocast, values)))
    return m.invoke(frame, _LEAVING, (block, *args[1:]), kwargs)


def _guard_settings(m: Calls) -> None:
    """Before the first change: what autocast is set to for each device is read from then on."""
    if not m.recorder.switched:
        for device in ("cpu", "cuda"):
            m.read_state(torch.get_autocast_dtype, [device], {})
            m.read_state(torch.is_autocast_enabled, [device], {})
        m.read_state(torch.is_autocast_cache_enabled, [], {})


def mark_leaves(m: Any) -> None:
    """Under autocast, mark the inputs whose casts eager remembers, which are leaves from now on.

    A parameter is one wherever it comes from.
    """
    on = any(enabled for _, enabled, _ in m.autocast.enabled)
    if not on and not m.recorder.switched:
        return
    for real, _, fake in m.inputs.values():
        node = m.recorder.inputs.get(id(fake))
        if node is None or not node.users or issubclass(type(real), torch.nn.Parameter):
            continue
        with torch._C.DisableTorchFunction():
            casts = fake.requires_grad and fake.dtype is torch.float32 and not fake.is_inference()
        if casts and m.recorder.metadata("is_leaf", fake):
            if not m.recorder.metadata("_is_view", fake):
                node.meta[LEAF] = True


def leave_modes(scope: Any) -> None:
    """At the end of a graph: it leaves the state as it found it."""
    for _, node in reversed(scope.modes):
        scope.graph.call_function(_exit_autocast, (node,))


# ---- modes that see operators or set the default device --------------------------------------


class Interpreted(TorchFunctionMode):
    """Stands on torch's stack for a mode of the program's, whose ``method`` is interpreted."""

    def __init__(self, m: Calls, mode: Any, method: FunctionType):
        super().__init__()
        self.machine, self.mode, self.method = m, mode, method
        self.step = m.steps

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        m, kwargs = self.machine, kwargs or {}
        if not m.recorder.asked or m.recorder.suspended:  # capture's own
            return func(*args, **kwargs)
        m.recorder.asked = False
        return m.force(m.invoke(m.frame, self.method, [self.mode, func, types, args, kwargs]))


@model(torch._C._push_on_torch_function_stack)
def _push(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    mode = m.force(args[0])
    source, method = m.find_guarded(type(mode), "__torch_function__")
    if type(method) is not FunctionType or m.recorder.scope.outer is not None or m.recorder.kinds:
        raise Break("ambient-state", f"a {type(mode).__name__} is entered")
    m.from_class(source, method)
    made = Interpreted(m, mode, method)
    made.__enter__()
    m.function_modes.append(made)
    m.recorder.modes += 1


@model(torch._C._pop_torch_function_stack)
def _pop(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    depth = torch._C._len_torch_function_stack()
    top: Any = torch._C._get_function_stack_at(depth - 1)
    if not m.function_modes or top is not m.function_modes[-1]:
        raise Break("ambient-state", "a TorchFunctionMode that was entered before is left")
    made = m.function_modes.pop()
    made.__exit__(None, None, None)
    m.recorder.modes -= 1
    return made.mode


@model(TorchDispatchMode.__enter__, TorchDispatchMode.__exit__)
def _dispatching(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Torch keeps in a global whether there is one, which says yes while capturing."""
    raise Break("ambient-state", "a TorchDispatchMode")


class DefaultDevice(DeviceContext):
    """Lies on top of the stack of modes: a device is filled in before an operation is recorded."""

    def __enter__(self) -> DefaultDevice:
        torch._C._push_on_torch_function_stack(self)
        return self

    def __exit__(self, *error: Any) -> None:
        torch._C._pop_torch_function_stack()


@model(torch.set_default_device)
def _device(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Of the whole thread: a mode of its own on the stack of modes.

    Set in one graph, and set there to what it was, it is a block of that device.
    """
    given = m.force(args[0] if args else kwargs["device"])
    device = None if given is None else torch.device(given)
    if m.function_modes or m.recorder.scope.outer is not None:
        raise Break("ambient-state", "the default device")
    if m.open_devices:
        if type(m.open_devices[-1][0]) is not DefaultDevice:
            raise Break("ambient-state", "the default device in the block of another")
        m.open_devices.pop()[0].__exit__(None, None, None)
    kept = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # guarded: ambient state
    if device != (kept and kept.device):
        block = DefaultDevice(device or "cpu")
        block.__enter__()
        m.open_devices.append((block, m.steps))


# ---- inference mode ---------------------------------------------------------------------------


class OpenInference:
    """Stands for C's guard object inside the frame that entered it.

    ``block`` is the program's; None where a mode that was entered before the graph has been left,
    and the rest of the graph runs in the one around it.
    """

    def __init__(self, block: Any, mode: bool, step: int):
        self.block, self.mode, self.step = block, mode, step
        self.grad = torch.is_grad_enabled()
        self.guard = _enter_inference_mode(mode)
        self.node: Any = None


def _open(m: Calls, block: Any, mode: bool) -> OpenInference:
    opened = OpenInference(block, mode, m.steps)
    opened.node = m.recorder.scope.graph.call_function(_enter_inference_mode, (mode,))
    m.open_inference.append(opened)
    m.recorder.switched = True
    return opened


@model(torch.inference_mode.__enter__)
def _enter_inference(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    block = m.force(args[0])
    value = m.force(m.getattr(block, "mode"))
    if type(value) is not bool or m.source_of(block) is not None:
        raise Break("ambient-state", "an inference_mode object from outside")
    m.setattr(block, "_inference_mode_context", _open(m, block, value))


@model(torch.inference_mode.__exit__)
def _exit_inference(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    block = m.force(args[0])
    opened = m.force(m.getattr(block, "_inference_mode_context"))
    if type(opened) is torch._C._InferenceMode:
        _leave_inference(m, opened)
        return
    if not m.open_inference or m.open_inference[-1] is not opened:
        raise Break("ambient-state", "an inference mode that was entered before is left")
    m.open_inference.pop()
    opened.guard.__exit__(None, None, None)
    m.recorder.scope.graph.call_function(_exit_inference_mode, (opened.node,))
    m.delattr(block, "_inference_mode_context")


def _leave_inference(m: Calls, entered: Any) -> None:
    """One that was entered before the graph, and is the innermost one."""
    source = m.source_of(entered)
    around = -1
    if source is not None and not _entered(m) and m.recorder.scope.outer is None:
        around = m.observe(m.lazy(m.sources.make("mode_around", source), mode_around(entered)))
    if source is None or around < 0:
        raise Break("ambient-state", "an inference mode that was entered before is left")
    before = torch.is_grad_enabled()
    opened = _open(m, None, bool(around & 1))
    opened.grad = before
    torch._C._set_grad_enabled(bool(around & 2))  # which the door records
    m.left_inference.append(source)


def _entered(m: Any) -> list[OpenInference]:
    """The blocks that the frame has entered and not left."""
    return [opened for opened in m.open_inference if opened.block is not None]


def _begin_outside(m: Any) -> None:
    """A graph that leaves modes that were entered before becomes one that enters them at its start.

    A backend compiles a graph for the mode that it is called in: the one around the blocks, into
    which the plan goes for the graph (``around_block``). Where nothing is computed after a block,
    that is not worth it: the graph runs in the block. Outside of it a backend may not write to what
    was made inside, so that such a graph ends where the block does.
    """
    graph = m.recorder.root.graph
    left = [opened for opened in m.open_inference if opened.block is None]
    while left:
        node = left[-1].node.next
        while node.op != "root" and node.target is torch._C._set_grad_enabled:
            node = node.next
        if node.op != "root":
            break
        while (last := next(iter(reversed(graph.nodes)))) is not left[-1].node:
            graph.erase_node(last)
        graph.erase_node(left.pop().node)
    if not left:
        return
    if m.recorder.mutates and any(fake.is_inference() for _, _, fake in m.inputs.values()):
        why = "an inference mode that was entered before is left, and what it has made written to"
        raise Restart(left[0].step, "ambient-state", why)
    m.runs_outside = left[-1].mode, left[-1].node.next.args[0]
    inside = [m.ambient.inference, *[opened.mode for opened in left[:-1]]]
    place = m.recorder.root.last_input or graph._root
    for opened, mode in reversed([*zip(left, inside, strict=True)]):
        with graph.inserting_after(place):
            entered = graph.call_function(_enter_inference_mode, (mode,))
        with graph.inserting_after(entered):
            place = graph.call_function(torch._C._set_grad_enabled, (opened.grad,))
        with graph.inserting_before(opened.node):
            graph.call_function(_exit_inference_mode, (entered,))
        graph.erase_node(opened.node)


def open_blocks(m: Any) -> list[OpenInference]:
    """The blocks of inference mode inside which a graph ends, which leaves them.

    Their objects are as before they were entered; the plan enters them for the program.
    """
    _begin_outside(m)
    entered = _entered(m)
    for opened in entered:
        object.__setattr__(opened.block, "_inference_mode_context", None)
    for opened in reversed(entered):
        m.recorder.root.graph.call_function(_exit_inference_mode, (opened.node,))
    return entered


def go_on_in_blocks(captured: Any, rebuilder: Any, writer: Any) -> list[str]:
    """Lines that leave an inference mode right after the graph; those that enter some come last."""
    machine, grad = captured.machine, captured.grad
    lines = []
    for source in machine.left_inference:
        lines.append(f"{writer.read(source)}.__exit__(None, None, None)")
    enter, set_grad = map(writer.constant, (enter_inference, torch._C._set_grad_enabled))
    for opened in captured.blocks:
        name = rebuilder.expression(opened.block)
        rebuilder.last += [
            f"{set_grad}({opened.grad})",
            f"{name}._inference_mode_context = {enter}({opened.mode})",
        ]
    (rebuilder.last if captured.blocks else lines).append(f"{set_grad}({grad})")
    return lines
