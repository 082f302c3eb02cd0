"""How capture sees what users said about single functions.

What was said through ``torch.compiler`` is an attribute, or an entry of a table of torch's, which
is read if the module that holds it is loaded.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

from refcompiler.interpreter.registry import ORIGINAL, original_of

DISABLED = "_torchdynamo_disable"
WHY_DISABLED = "_torchdynamo_disable_msg"
CONSTANT = "_dynamo_marked_constant"
FORBIDDEN = "_dynamo_forbidden"  # it sets torch's stance
#: Where wrappers keep the Python function that they compile: ours, torch.compile's.
ORIGINALS = (ORIGINAL, "_torchdynamo_orig_callable")

#: ids of the functions that are operations of the graph; those without weak references are kept.
ALLOWED: dict[int, Any] = {}


def is_allowed(function: Any) -> bool:
    """Whether ``function`` is one operation of the graph."""
    if id(function) in ALLOWED:
        return True
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None:
        return False
    allowed: Any = getattr(getattr(rules, "_allowed_callable_ids", None), "function_ids", None)
    return id(function) in (allowed or ())


def is_wrapper(function: Any, name: str) -> bool:
    """Whether ``function``, which has the attribute ``name`` of :data:`ORIGINALS`, is the wrapper.

    ``functools.wraps`` gives a wrapper's attributes to functions that do something else.
    """
    if name == ORIGINAL:
        return original_of(function) is not None
    return getattr(function, "_torchdynamo_wrapper_id", id(function)) == id(function)


def innermost(function: Any) -> Any:
    """What ``function`` is the compiled wrapper of, ours or torch.compile's, or else itself."""
    while type(function) is FunctionType:
        marks = function.__dict__
        name = next((name for name in ORIGINALS if name in marks), None)
        if name is None or DISABLED in marks or not is_wrapper(function, name):
            break
        function = marks[name]
    return function


def substitute_of(function: Any) -> Any:
    """What ``torch.compiler.substitute_in_graph`` was told about ``function``, or None."""
    functions = sys.modules.get("torch._dynamo.variables.functions")
    handlers = getattr(functions, "PolyfilledFunctionVariable", None)
    if handlers is None:
        return None
    try:
        found = handlers._get_polyfill_handlers().get(function)
    except (TypeError, AttributeError):  # not hashable, or another version of torch
        return None
    found = getattr(found, "__torch_dynamo_polyfill__", None)
    module = getattr(found, "__module__", None) or "torch"
    return None if module.partition(".")[0] == "torch" else found


def disabled_text(function: Any) -> str:
    """The name of a disabled function, and why it is."""
    why = function.__dict__.get(WHY_DISABLED)
    return function.__qualname__ if not why else f"{function.__qualname__} ({why})"
