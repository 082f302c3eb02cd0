"""What the judge of capture watches for: the compiler's own objects where the user can reach them,
and the user's Python that runs behind the interpreter's back while a program is captured.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import inspect
import os
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import fastpath
import refcompiler
import specs
from refcompiler.capture import natively
from refcompiler.capture.lookup import namespace_of
from refcompiler.capture.machine import Symbolic
from refcompiler.capture.pulled import Pulled
from refcompiler.capture.values import External, Lazy, LazyMethod, Rethrown
from refcompiler.interpreter import tracebacks
from refcompiler.interpreter.callers import CALLERS
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.generators import Activation
from refcompiler.interpreter.tracebacks import DRIVERS, MADE
from refcompiler.runtime.captures import STATE

NEVER_SEEN = (
    FakeTensor,
    FakeTensorMode,
    Lazy,
    LazyMethod,
    External,
    Rethrown,
    Pulled,
    Activation,
    Frame,
    Symbolic,
    torch.fx.Proxy,
    torch.fx.Node,
)
SHALLOW = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)
_TESTS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TRACEBACKS = tracebacks.__file__
_HARNESS = frozenset(
    _TESTS + name for name in ("oracle.py", "watching.py", "test_break_everywhere.py")
)


def is_ours(name: Any) -> bool:
    """An attribute that the compiler puts on what it compiles."""
    return type(name) is str and (name.startswith("_refcompiler") or name == "_orig_mod")


# ---- the compiler's own objects --------------------------------------------------------------


def intruders(roots: Any) -> list[str]:
    """Objects of the compiler that can be reached from what the user holds."""
    found: list[str] = []
    seen: set[int] = set()
    keep: list[Any] = []  # what is looked at must not make room for another of the same id
    level = [(root, type(root).__name__) for root in roots]
    while level:
        below = []
        for value, path in level:
            if id(value) in seen:
                continue
            seen.add(id(value))
            keep.append(value)
            if type(value) in NEVER_SEEN:
                found.append(f"{path}: {type(value).__name__}")
                continue
            below += [(child, f"{path}/{type(child).__name__}") for child in _children(value)]
        level = below
    return found


def _children(value: Any) -> list[Any]:
    if issubclass(type(value), type):
        return list(vars(value).values()) if _is_made_by_the_tests(value) else []
    if issubclass(type(value), SHALLOW):
        return []
    if issubclass(type(value), weakref.ref):
        return [value(), value.__callback__]
    if issubclass(type(value), types.FunctionType):
        if value.__code__.co_filename.startswith("<refcompiler"):
            return []
        return [value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__]
    if issubclass(type(value), types.TracebackType):
        children = [value.tb_next]
        if _is_the_users(value.tb_frame.f_code):
            children += list(value.tb_frame.f_locals.values())
        return children
    if issubclass(type(value), types.FrameType):
        return []
    if issubclass(type(value), BaseException):
        links = [value.args, value.__cause__, value.__context__, value.__traceback__]
        return [*links, value.__dict__]
    if issubclass(type(value), torch.Tensor):
        with torch._C.DisableTorchFunction():
            known = [value._base] if not value.is_inference() and value._is_view() else []
            made = [] if value.grad_fn is None else _backward_nodes(value.grad_fn)
            own = [value.grad if value.is_leaf else None, value.__dict__, value._backward_hooks]
            return [*known, *made, *own]
    if issubclass(type(value), torch.fx.GraphModule):  # whose nodes are its own
        return [held for name, held in value.__dict__.items() if name != "_graph"]
    if type(value) is dict:
        return [item for pair in value.items() if not is_ours(pair[0]) for item in pair]
    return gc.get_referents(value)


def _backward_nodes(node: Any) -> list[Any]:
    """What the user's ``autograd.Function`` keep for their backwards, anywhere in the graph."""
    found: list[Any] = []
    pending, seen = [node], {node}
    while pending:
        node = pending.pop()
        made_for = getattr(type(node), "_forward_cls", None)
        if made_for is not None and _is_made_by_the_tests(made_for):
            found.append(node.__dict__)
        below = {n for n, _ in node.next_functions if n is not None and n not in seen}
        seen |= below
        pending += below
    return found


def touched(roots: Any) -> dict[str, Any]:
    """What functions among ``roots`` read and write outside: globals, attributes of classes."""
    places: dict[str, Any] = {}
    seen: set[int] = set()
    pending = list(roots)
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if issubclass(type(value), types.MethodType):
            pending += [value.__func__, value.__self__]
        elif type(value) is types.FunctionType:
            value = value.__dict__.get("__refcompiler_original__", value)
            if not _is_the_users(value.__code__):
                continue
            for name in sorted(_names(value.__code__)):
                if name in value.__globals__:
                    held = value.__globals__[name]
                    places[f"global {name}"] = held
                    pending.append(held)
            pending += value.__defaults__ or ()
            pending += (value.__kwdefaults__ or {}).values()
            for cell in value.__closure__ or ():
                with contextlib.suppress(ValueError):
                    pending.append(cell.cell_contents)
        elif issubclass(type(value), type):
            if not _is_made_by_the_tests(value):
                continue
            for name, held in vars(value).items():
                if isinstance(held, (types.FunctionType, classmethod, staticmethod, property)):
                    pending.append(getattr(held, "__func__", getattr(held, "fget", held)))
                elif not name.startswith("__") and not hasattr(type(held), "__get__"):
                    places[f"{value.__qualname__}.{name}"] = held
        elif issubclass(type(value), dict):
            pending += value.values()
        elif issubclass(type(value), (list, tuple, set)):
            pending += value
        elif not issubclass(type(value), (torch.Tensor, *SHALLOW)):
            if _is_made_by_the_tests(type(value)):
                pending.append(type(value))
            pending.append(namespace_of(value))
    return places


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _is_made_by_the_tests(cls: type) -> bool:
    return is_of_the_tests(getattr(sys.modules.get(cls.__module__), "__file__", None) or "")


def is_of_the_tests(file: str) -> bool:
    """A file of programs to capture."""
    return file.startswith(_TESTS) and file not in _HARNESS


# ---- Python that runs outside the interpreter ------------------------------------------------

#: Why a function of the user's may run natively while a program is captured.
ALLOWED = {
    "fake implementation": "a custom operator's: torch calls it to learn the result's shape",
    "cached": "under functools.lru_cache, and found to be without side effects just before",
    "wrapper": "of a wrapper subclass: torch calls it on the fakes that its tensors are made of",
    "marked": "the user asked for it: allow_in_graph, assume_constant_result",
    "autograd's rule": "a custom operator's setup_context: torch calls it where gradients are due",
}

_LIBRARY = tuple(
    os.path.abspath(path) + os.sep
    for path in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        sysconfig.get_path("purelib"),
        os.path.dirname(os.__file__),
        os.path.dirname(refcompiler.__file__),
        os.path.dirname(specs.__file__),
        os.path.dirname(fastpath.__file__),  # whose programs may end at any time
    }
)


def _is_the_users(code: types.CodeType) -> bool:
    """Written by the user: not the compiler's, torch's or the standard library's."""
    file = code.co_filename
    if id(code) in DRIVERS or id(code) in CALLERS or id(code) in MADE or file in _HARNESS:
        return False
    return file.startswith(_TESTS) or not file.startswith(("<", *_LIBRARY))


def _is_of_the_user(frame: types.FrameType) -> bool:
    """Written by the user, or for a class of the user's: a dataclass's methods are in no file."""
    if frame.f_code.co_filename == "<string>":
        return is_of_the_tests(frame.f_globals.get("__file__", ""))
    return _is_the_users(frame.f_code)


class _Files(dict):
    """File: whether the user's code may come of it. Asked for each frame that begins anywhere."""

    def __missing__(self, file: str) -> bool:
        users = file not in _HARNESS and not file.startswith(_LIBRARY)
        self[file] = users or is_of_the_tests(file)
        return self[file]


_OF_THE_USER = _Files()
_RETURN_GENERATOR = dis.opmap["RETURN_GENERATOR"]


class Outside:
    """Lists the user's frames that begin natively while a program is captured.

    By ``sys.monitoring`` where Python has it, which forgets the library's functions, and by
    ``sys.settrace`` where it has not, because the capture uses the profile function itself.
    """

    def __init__(self) -> None:
        self.frames: list[str] = []

    def _begins(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if not _OF_THE_USER[code.co_filename] or not self._counts(frame):
            return None
        if code.co_flags & inspect.CO_GENERATOR and frame.f_lineno == code.co_firstlineno:
            return self._runs  # one that is dropped unstarted is told to end, and runs nothing
        self._note(frame)
        return None

    def _runs(self, frame: types.FrameType, event: str, arg: Any) -> None:
        frame.f_trace = None
        if event != "exception":
            self._note(frame)

    def _counts(self, frame: types.FrameType) -> bool:
        if not STATE.capturing or sys.getprofile() is natively._spy:
            return False  # which lets none of them run
        if frame.f_back is not None and frame.f_back.f_code.co_filename == _TRACEBACKS:
            return False  # made, not run
        return _is_of_the_user(frame) and not _allowed(frame)

    def _note(self, frame: types.FrameType) -> None:
        code = frame.f_code
        self.frames.append(
            f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{frame.f_lineno})"
        )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        if sys.version_info >= (3, 12):
            _monitor()
            _WATCHING.append(self)
            try:
                yield
            finally:
                _WATCHING.remove(self)
            return
        before = sys.gettrace()
        sys.settrace(self._begins)
        try:
            yield
        finally:
            sys.settrace(before)


_WATCHING: list[Outside] = []

if sys.version_info >= (3, 12):
    _TOOL = 4  # of those that are nobody's

    def _monitor() -> None:
        """Once for the process: what is disabled for the library stays so."""
        events = sys.monitoring.events
        if sys.monitoring.get_tool(_TOOL) is None:
            sys.monitoring.use_tool_id(_TOOL, "judge of capture")
            for event in (events.PY_START, events.PY_RESUME):
                sys.monitoring.register_callback(_TOOL, event, _starts)
            sys.monitoring.register_callback(_TOOL, events.PY_THROW, _thrown_into)
            chosen = events.PY_START | events.PY_RESUME | events.PY_THROW
            sys.monitoring.set_events(_TOOL, chosen)

    def _starts(code: types.CodeType, offset: int) -> Any:
        if not _OF_THE_USER[code.co_filename]:
            return sys.monitoring.DISABLE
        if _WATCHING and STATE.capturing and _WATCHING[-1]._counts(frame := sys._getframe(1)):
            _WATCHING[-1]._note(frame)
        return None

    def _thrown_into(code: types.CodeType, offset: int, error: BaseException) -> None:
        """One that is dropped unstarted is told to end, and runs nothing."""
        if code.co_code[offset] != _RETURN_GENERATOR:
            _starts(code, offset)


_OF_WRAPPERS = ("__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__")


def _is_of_a_wrapper(frame: types.FrameType) -> bool:
    name = frame.f_code.co_name
    if name == "__torch_function__":
        return hasattr(frame.f_locals.get("cls"), "__tensor_flatten__")
    return name in _OF_WRAPPERS


def _allowed(frame: types.FrameType) -> str | None:
    """A key of :data:`ALLOWED`, by what stands between the frame and the capture."""
    back: Any = frame
    while back is not None:
        file = back.f_code.co_filename
        if _is_of_a_wrapper(back) or file.endswith("capture/wrappers.py"):
            return "wrapper"
        if file.endswith(("torch/_library/fake_impl.py", "torch/_library/custom_ops.py")):
            return "fake implementation"
        if file.endswith("torch/_library/autograd.py"):
            return "autograd's rule"
        if back.f_code.co_name == "call_cached" or file.endswith("capture/caches.py"):
            return "cached"
        if back.f_code.co_name in ("call_opaque", "call_assumed"):
            return "marked"
        if file.endswith("refcompiler/runtime/captures.py"):
            return None
        back = back.f_back
    return None
