"""A call of a module without hooks, all at once.

What ``torch.nn.Module.__call__`` does before it calls ``forward`` is half of the instructions of
most captures, and nearly always the same: seven attributes of the module are read, of which three
are its class's and four are dicts without hooks. Here they are read and guarded in that order,
and the two frames are made as they stand where ``forward`` is about to be called. Whatever else a
module, its class or torch's own state say is interpreted like any other call; so is the first call
of a capture, which leaves the guards on torch's own state.

Source: ``torch/nn/modules/module.py``; a version of torch whose functions read other names is
interpreted.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch
import torch.nn.modules.module as home

from refcompiler.bytecode.decode import Program
from refcompiler.capture.displays import kept, mapping, sequence
from refcompiler.capture.lookup import namespace_of
from refcompiler.guards.sources import Source
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.registry import program_of

_OUTER: Any = torch.nn.Module._wrapped_call_impl
_INNER: Any = torch.nn.Module._call_impl
#: The code of ``torch.nn.Module.__call__``.
MODULE_CALL = _OUTER.__code__
#: Attributes that are found on the class, in the order in which they are read, and dicts of hooks.
_ON_CLASS = ("_compiled_call_impl", "_call_impl", "forward")
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)
_FALLBACK = frozenset({"_slow_forward", "torch", "_C", "_get_tracing_state"})
_READS = frozenset({*_HOOKS, *_GLOBAL_HOOKS, *_FALLBACK, "forward"})
_DICTS = (dict, torch.nn.Module().__dict__["_forward_hooks"].__class__)
_NAMES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL")
_CALL = "CALL_FUNCTION_EX"
_spaces = frozenset({id(vars(home)), id(vars(torch)), id(vars(torch._C))})


class _Shape(NamedTuple):
    """Where the frames of the two functions stand when ``forward`` is about to be called."""

    outer: Program
    outer_ip: int  # behind the call of the inner one
    inner: Program
    inner_ip: int  # before what the call of ``forward`` needs is put on the stack
    cells: tuple[int, ...]  # slots of variables in cells
    forward: int  # the slot of ``forward_call``


@functools.cache
def _shape() -> _Shape | None:
    """None where torch's functions are not as they are known here."""
    outer, inner = program_of(_OUTER.__code__), program_of(_INNER.__code__)
    calls = [i for i, ins in enumerate(outer.instructions) if ins.name == _CALL]
    first = next((i for i, ins in enumerate(inner.instructions) if ins.name == _CALL), 0)
    slots = inner.names
    if len(calls) != 2 or not {"self", "args", "kwargs", "forward_call"} <= set(slots):
        return None
    if _reads(outer, calls[1]) != set(_ON_CLASS[:2]) or _reads(inner, first) != _READS:
        return None
    start = max(i for i in range(first) if "JUMP" in inner.instructions[i].name) + 1
    made = [i for i, ins in enumerate(inner.instructions) if ins.name == "MAKE_CELL"]
    cells = tuple([inner.values[i] for i in made])
    forward = slots.index("forward_call")
    if forward not in cells or slots[:3] != ("self", "args", "kwargs"):
        return None
    return _Shape(outer, calls[1] + 1, inner, start, cells, forward)


def _reads(program: Program, end: int) -> set[str]:
    """The names of attributes and globals that are read before an instruction."""
    found = set()
    for instruction in program.instructions[:end]:
        if instruction.name in _NAMES:
            value = instruction.value
            found.add(value[0] if type(value) is tuple else value)
    return found


class Forward(NamedTuple):
    """What a class of modules without a call of its own has for ``forward``."""

    source: Source | None
    function: FunctionType


def enter_module(
    m: Any, frame: Any, function: FunctionType, args: Sequence, kwargs: Mapping
) -> bool:
    """Whether the frames are made that call ``forward`` of ``args[0]``."""
    module = args[0] if args else None
    external = m.external.get(id(module))
    if external is None or external.value is not module or external.shadow is not None:
        return False
    space = namespace_of(module)
    if space is None or not _is_untouched(m, module, space):
        return False
    if not all(name in space for name in _HOOKS) or any(name in space for name in _ON_CLASS):
        return False
    hooks = [space[name] for name in _HOOKS]
    if any(hooks) or not all(_is_unread(m, known) for known in hooks):
        return False
    if torch._C._get_tracing_state() or any(vars(home)[name] for name in _GLOBAL_HOOKS):
        return False
    shape, kind = _shape(), type(module)
    forward = m.module_kinds.get(kind, UNSET)
    if forward is UNSET:
        forward = m.module_kinds[kind] = _forward_of(m, module)
    if forward is None or shape is None:
        return False
    if not m.enters_modules:  # the guards on torch's own state are those of a call
        m.enters_modules = True
        return False
    parent = m.namespace(module, external.source)
    m.lazy(parent, space)
    for name in _ON_CLASS:
        m.guard("ABSENT", parent, name)
    for name, known in zip(_HOOKS, hooks):
        source = m.item(parent, name, "member", name)
        m.lazy(source, known)
        m.guard("TRUTH", source, False)
    _enter(m, frame, shape, function, args, kwargs, MethodType(forward.function, module))
    return True


def _is_untouched(m: Any, module: Any, space: dict) -> bool:
    """The frame has written to nothing that the call reads, nor looked into it as a whole."""
    return not (
        m.written_classes
        or id(module) in m.changed
        or id(space) in m.external
        or not m.globals_written.isdisjoint(_spaces)
        or not all(_is_unread(m, vars(home)[name]) for name in _GLOBAL_HOOKS)
    )


def _is_unread(m: Any, hooks: Any) -> bool:
    """Whether a dict is as the call found it, and nothing has looked into it."""
    number = id(hooks)
    if number in m.external or number in m.changed or number in m.handed_out:
        return False
    return type(hooks) in _DICTS


def _forward_of(m: Any, module: Any) -> Forward | None:
    """What the class of ``module`` says of a call, guarded; None where it says anything else."""
    kind = type(module)
    if type(m.find_guarded(kind, "__getattribute__")[1]) is FunctionType:
        return None
    m.check_plain(module, "forward")
    source, compiled = m.find_guarded(kind, _ON_CLASS[0])
    if compiled is not None:
        return None
    m.is_none(m.plain_class_value(source, compiled))
    source, inner = m.find_guarded(kind, _ON_CLASS[1])
    if inner is not _INNER:
        return None
    m.from_class(source, inner)
    source, forward = m.find_guarded(kind, _ON_CLASS[2])
    if type(forward) is not FunctionType:
        return None
    if any(m.find_guarded(kind, name)[1] is not UNSET for name in _HOOKS):
        return None
    return Forward(source, m.from_class(source, forward))


def _enter(
    m: Any,
    frame: Any,
    shape: _Shape,
    function: FunctionType,
    args: Sequence,
    kwargs: Mapping,
    forward: MethodType,
) -> None:
    """Push the frames of both functions."""
    for program, of, ip in (
        (shape.outer, function, shape.outer_ip),
        (shape.inner, _INNER, shape.inner_ip),
    ):
        fast = [args[0], sequence(m, tuple, args[1:]), mapping(m, dict(kwargs))]
        fast += [UNSET] * (len(program.names) - len(fast))
        if program is shape.inner:
            for slot in shape.cells:
                value = fast[slot]
                fast[slot] = CellType() if value is UNSET else CellType(kept(m, value))
            fast[shape.forward].cell_contents = forward
        new = m.enter(program, of, fast)
        new.ip = ip
        m.push(frame, new)
        frame = new
