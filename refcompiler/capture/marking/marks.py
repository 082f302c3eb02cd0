"""What users can say about single functions: not to compile them, to take them as they are ...

The marks are torch's own where they are attributes (``torch.compiler`` and this module mean the
same), so that either compiler honours what was said to the other.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch._C._dynamo import eval_frame

from refcompiler.capture.calls import Calls
from refcompiler.capture.marking.marked import (
    ALLOWED,
    CONSTANT,
    DISABLED,
    WHY_DISABLED,
)
from refcompiler.capture.models.registry import MODELS
from refcompiler.capture.natively import is_quiet
from refcompiler.errors import UnsupportedError
from refcompiler.interpreter.registry import original_of

#: What torch.compile is told of the frames of disabled functions: not these, but what they call.
_SKIPPED = eval_frame._FrameExecStrategy(
    eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
)


class _Active(threading.local):
    """Who steps over the call that runs now: ``callee(function)`` compiles what it calls."""

    callee: Callable[[FunctionType], Callable] | None = None


ACTIVE = _Active()


def _is_function(value: Any) -> bool:
    return isinstance(value, (FunctionType, MethodType)) or (
        callable(value) and not inspect.isclass(value) and not isinstance(value, torch.nn.Module)
    )


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """``fn`` is not compiled where a compiled function calls it: the graph ends before the call.

    ``fn``: a function, method, callable, ``nn.Module`` or class (then its calls are meant).
    Without it, a decorator. ``recursive``: nor is anything that it calls; ``False`` leaves only
    its own frame uncompiled, and the Python functions that it calls are compiled one by one.
    ``reason``: shown in the graph break.

    Source: ``torch.compiler.disable``. Errors: ``TypeError`` for what cannot be called.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if not callable(fn):
        raise TypeError(f"disable: expected a callable, not {type(fn).__name__}")
    if not isinstance(recursive, bool):
        raise TypeError(f"disable: recursive takes True or False, not {recursive!r}")
    if inspect.isclass(fn):
        name = "__call__" if issubclass(fn, torch.nn.Module) else "__init__"
        setattr(fn, name, disable(getattr(fn, name), recursive, reason=reason))
        return fn
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    if isinstance(fn, MethodType):
        return MethodType(disable(fn.__func__, recursive, reason=reason), fn.__self__)
    fn = original_of(fn) or fn

    def disabled(*args: Any, **kwargs: Any) -> Any:
        callee = ACTIVE.callee
        if recursive:
            others = eval_frame.set_eval_frame(None)
            try:
                return fn(*args, **kwargs)
            finally:
                eval_frame.set_eval_frame(others)
        if callee is None or not isinstance(fn, FunctionType):
            return fn(*args, **kwargs)
        return _only_this_frame(fn, callee, args, kwargs)

    eval_frame.set_code_exec_strategy(disabled.__code__, _SKIPPED)
    if not recursive and isinstance(fn, FunctionType):
        eval_frame.set_code_exec_strategy(fn.__code__, _SKIPPED)

    functools.update_wrapper(disabled, fn)
    setattr(disabled, DISABLED, True)
    setattr(disabled, WHY_DISABLED, reason)
    return disabled


def _only_this_frame(function: FunctionType, callee: Callable, args: Any, kwargs: Any) -> Any:
    from refcompiler.interpreter.machine import Machine
    from refcompiler.interpreter.registry import NATIVE_CODES

    class Outside(Machine):
        """Runs one frame; the user's functions that it calls are entered compiled."""

        enters = False

        def call(self, frame: Any, called: Any, args: Sequence, kwargs: Mapping) -> Any:
            if type(called) is MethodType:
                args, called = [called.__self__, *args], called.__func__
            if type(called) is FunctionType and id(called.__code__) not in NATIVE_CODES:
                return self.call_python(frame, called, args, kwargs)
            return super().call(frame, called, args, kwargs)

        def call_python(self, frame: Any, called: Any, args: Sequence, kwargs: Mapping) -> Any:
            if is_quiet(called):  # torch's own frames between the user's
                return super().call_python(frame, called, args, kwargs)
            if called.__dict__.get(DISABLED) or original_of(called) is not None:
                return called(*args, **kwargs)
            return callee(called)(*args, **kwargs)

    machine = Outside()
    return machine.run(machine.make_frame(function, args, kwargs))


# ---- functions taken as they are --------------------------------------------------------------


def allow_in_graph(fn: Any) -> Any:
    """``fn`` becomes one operation of the graph: capture does not look inside.

    Its arguments and results have to be what a graph can hold (tensors, numbers, strings, and
    containers of them), and what it does must depend on nothing else. A list or tuple marks each.

    Source: ``torch.compiler.allow_in_graph``. Errors: ``TypeError`` for what cannot be called.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    if not callable(fn):
        raise TypeError(f"allow_in_graph: expected a callable, not {type(fn).__name__}")
    known = id(fn)
    try:
        weakref.finalize(fn, ALLOWED.pop, known, None)
        ALLOWED[known] = True
    except TypeError:  # no weak references to it, so it is kept alive
        ALLOWED[known] = fn
    return fn


def assume_constant_result(fn: Any) -> Any:
    """``fn`` gives the same value whenever it is called with the same constants.

    Capture calls it, and compiled code does not call it again.

    Source: ``torch.compiler.assume_constant_result``.
    """
    if not callable(fn):
        raise TypeError(f"assume_constant_result: expected a callable, not {type(fn).__name__}")
    setattr(getattr(fn, "__func__", fn), CONSTANT, True)
    return fn


def substitute_in_graph(
    original: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Callable], Callable]:
    """Decorator: capture interprets the decorated function where ``original`` is called.

    ``original`` is usually written in C. ``can_constant_fold_through``: with constant arguments
    the original itself is called while capturing. ``skip_signature_check``: the two may have
    different parameters. Outside of captured code the decorated function calls ``original``.

    Source: ``torch.compiler.substitute_in_graph``. Errors: ``TypeError`` for what is no function
    and for signatures that differ, ``ValueError`` for an original that has a substitute.
    """
    if not _is_function(original):
        raise TypeError(f"substitute_in_graph: expected a function, not {original!r}")

    def register(substitute: Callable) -> Callable:
        if not isinstance(substitute, FunctionType):
            raise TypeError(
                f"substitute_in_graph: the substitute is a Python function, not {substitute!r}"
            )
        if id(original) in MODELS:
            raise ValueError(
                f"substitute_in_graph: capture has a rule or a substitute for {original!r} already"
            )
        if not skip_signature_check:
            _check_signatures(original, substitute)
        _register(original, substitute, can_constant_fold_through)

        @functools.wraps(substitute)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs)

        _register(wrapper, substitute, can_constant_fold_through)
        return wrapper

    return register


_KEPT: list[Any] = []  # MODELS knows callables by id


def _register(original: Any, substitute: FunctionType, folds: bool) -> None:
    def model(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        if folds:
            constants = m.constants(args, kwargs)
            if constants is not None:
                return original(*constants[0], **constants[1])
        return m.call(frame, substitute, args, kwargs)

    MODELS[id(original)] = model
    _KEPT.append(original)


def _check_signatures(original: Any, substitute: FunctionType) -> None:
    try:
        wanted = inspect.signature(original)
    except (ValueError, TypeError):  # many functions in C have none
        return
    given = inspect.signature(substitute)

    def shape(signature: inspect.Signature) -> list[tuple[str, Any]]:
        named = [p for p in signature.parameters.values() if p.kind not in _VARIADIC]
        return [(p.name, p.default) for p in named]

    open_ended = any(
        {p.kind for p in s.parameters.values()} == set(_VARIADIC) for s in (wanted, given)
    )
    if not open_ended and shape(wanted) != shape(given):
        raise TypeError(
            f"substitute_in_graph: {original!r} takes {wanted}, but {substitute.__qualname__} "
            f"takes {given}; skip_signature_check=True allows it"
        )


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def nested_compile_region(
    fn: Any = None,
    *,
    options: Any = None,
    max_reuse_entries: int = 8,
    reuse_hash_fn: Callable[..., int] | None = None,
) -> Any:
    """``fn`` occurs often with the same kind of input; backends compile its graph once.

    Without ``fn``, a decorator. ``max_reuse_entries``: a program that needs more different graphs
    of it is an error (:class:`~refcompiler.errors.GraphBreakError`). ``reuse_hash_fn``: gives, for
    the arguments of a call, an int that is the same where the graph is; that it is so is checked.
    ``options`` is torch's, for its tests only: an error.

    Source: ``torch.compiler.nested_compile_region``, whose mark this is. Errors: ``TypeError`` for
    other types, :class:`~refcompiler.errors.UnsupportedError` for ``options``.
    """
    what = "nested_compile_region"
    if options is not None:
        raise UnsupportedError(f"{what}: options are torch's own; choose the backend by compile")
    if type(max_reuse_entries) is not int or max_reuse_entries < 1:
        raise TypeError(
            f"{what}: max_reuse_entries takes a positive int, not {max_reuse_entries!r}"
        )
    if reuse_hash_fn is not None and not callable(reuse_hash_fn):
        raise TypeError(f"{what}: reuse_hash_fn takes a function, not {reuse_hash_fn!r}")
    said: dict[str, Any] = {"max_reuse_entries": max_reuse_entries, "reuse_hash_fn": reuse_hash_fn}
    if fn is None:
        return functools.partial(nested_compile_region, **said)
    if not callable(fn):
        raise TypeError(f"{what}: expected a callable, not {type(fn).__name__}")
    if isinstance(fn, MethodType):  # the mark is the function's, as one cannot be set on a method
        return MethodType(nested_compile_region(fn.__func__, **said), fn.__self__)
    known = inspect.signature(torch.compiler.nested_compile_region).parameters
    made = torch.compiler.nested_compile_region(fn, **{k: said[k] for k in said if k in known})
    for name in said.keys() - known.keys():  # torch 2.11 knows none of them
        setattr(fn, f"__marked_compile_region_{name}__", said[name])
    return made


# ---- questions --------------------------------------------------------------------------------


def is_compiling() -> bool:
    """Whether this call is being captured (by this compiler, by torch's, or for export)."""
    return torch.compiler.is_compiling()


def is_dynamo_compiling() -> bool:
    """Whether this call is being captured from bytecode (by this compiler or torch's)."""
    return torch.compiler.is_dynamo_compiling()


def is_exporting() -> bool:
    """Whether this call is being captured for export."""
    return torch.compiler.is_exporting()


def cudagraph_mark_step_begin() -> None:
    """Say that a step begins, as ``torch.compiler.cudagraph_mark_step_begin``: no result of an
    earlier one is needed any more.

    Device graphs here never write over a result that somebody still has, and so need not be told;
    the function is for programs that also run under torch's.
    """
