"""What C code is given: values that it looks into, callbacks, operands of operations."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from contextvars import Context
from types import FunctionType, MethodType
from typing import Any

import torch

from refcompiler.capture import arithmetic, generators
from refcompiler.capture.arrays.array import Array
from refcompiler.capture.contents import contents
from refcompiler.capture.indexing import as_index
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import asks, is_heap
from refcompiler.capture.models.registry import MODELS, OPERATION_MODELS
from refcompiler.capture.natively import called_back
from refcompiler.capture.pulled import Later, Pulled
from refcompiler.capture.signals import Break
from refcompiler.capture.state.contexts import Contexts
from refcompiler.capture.texts import Texts
from refcompiler.guards.sources import SCALARS
from refcompiler.interpreter.frame import UNSET
from refcompiler.naming import operation_name

#: Operations that take a symbolic bool for a number.
_OF_BOOLS = frozenset("tensor scalar_tensor as_tensor full mul add sub where".split())
#: C functions that tell a symbol from the number that the program takes it for.
_ASKING = (type, isinstance, id, hash)
#: What C code cannot read past the methods that the interpreter runs; texts of errors are guarded.
_WITHOUT_CONTENTS = (object, BaseException)


class Passing(Texts):
    """The hooks that hand values to C code."""

    def read_in_c(self, value: Any, name: str) -> Any:
        """What C code is given for ``value``, into which it looks."""
        if not self.is_foreign(value) or issubclass(type(value), SCALARS):
            return value
        inside = contents(self, value)
        if inside is value and any(
            not is_heap(base) and base not in _WITHOUT_CONTENTS for base in type(value).__mro__
        ):
            raise Break("external-object", f"{name} of a {type(value).__name__}")
        return inside

    def pass_native(
        self, value: Any, iterates: bool = False, calls: bool = False, later: bool = False
    ) -> Any:
        """``value`` as C code may see it that ``calls`` it or ``iterates`` over it, maybe later."""
        value = self.force(value)
        kind = type(value)
        if (
            calls
            and callable(value)
            and (
                kind is FunctionType
                or (kind is MethodType and type(value.__func__) is FunctionType)
                or kind is functools.partial
                or any(value is asking for asking in _ASKING)
                or id(value) in MODELS  # what it says of symbols, fakes and what lies outside
                or value is str
                or self.method_of(kind, "__call__") is not UNSET
                or (issubclass(type(value), type) and is_heap(value))
            )
        ):
            return self.callback(value)
        if kind is Context and self.contexts.is_own(value):
            raise Break("c-function", "C code is given a Context")
        asked = iterates and self.method_of(kind, "__iter__") is not UNSET  # it may begin anew
        if hasattr(kind, "__next__") and self.is_foreign(value) and not asked:
            if iterates and type(value) is not reversed:
                return Pulled(self, value)
            raise Break("external-iterator", f"a {kind.__name__} from outside")
        if iterates and not issubclass(kind, torch.Tensor):
            if self.is_interpreted(value):
                return Pulled(self, value)
            if asked:
                return Later(self, value) if later else Pulled(self, self.iter(value), value)
            if self.has_old_protocol(kind):
                return Pulled(self, self.iter(value), value)
            value = contents(self, value)
            if self.is_foreign(value):
                row = "external-iterator" if hasattr(kind, "__next__") else "external-object"
                raise Break(row, f"iteration over a {kind.__name__} from outside")
        return value

    def callback(self, function: Any) -> Any:
        """A Python function that C code may call: it runs in the interpreter."""
        known = self.callbacks.get(id(function))
        if known is not None:
            return known[1]

        def call(*args: Any, **kwargs: Any) -> Any:
            with called_back(self):
                return self.force(self.invoke(self.frame, function, args, kwargs))

        self.callbacks[id(function)] = (function, call)
        self.callback_of[id(call)] = function
        return call

    def call_operation(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A torch operation, which the door records when a tensor takes part."""
        own = OPERATION_MODELS.get(operation_name(function))
        if own is not None:
            owner = getattr(function, "__self__", None)
            bound = (owner, *args) if issubclass(type(owner), torch.Tensor) else args
            found = own(self, function, bound, kwargs)
            if found is not NotImplemented:
                return found
        forced = [self.pass_operand(a) for a in args]
        named = {k: self.pass_operand(v) for k, v in kwargs.items()}
        if torch.SymBool in map(type, (*forced, *named.values())):
            if operation_name(function) not in _OF_BOOLS:
                forced = [arithmetic.with_plain_bools(self, a) for a in forced]
                named = {k: arithmetic.with_plain_bools(self, v) for k, v in named.items()}
        if named:
            return self.operate(functools.partial(function, **named), *forced)
        return self.operate(function, *forced)

    def fits_operation(self, args: Sequence, kwargs: Mapping) -> bool:
        """Whether a graph can hold the arguments of a call of torch's Python."""
        for value in (*args, *kwargs.values()):
            value = self.force(value)
            kind = type(value)
            if is_heap(kind) and not issubclass(kind, (torch.Tensor, enum.Enum, tuple)):
                return False
            if kind is FunctionType or kind is MethodType:
                return False
        return True

    def pass_operand(self, value: Any) -> Any:
        value = self.force(value)
        if self.is_foreign(value):
            if type(value) is torch.Generator:
                return generators.operand(self, value)
            if asks(type(value)):
                return value
            raise Break("external-object", f"a {type(value).__name__} is an operand")
        if type(value) is Array:
            raise Break("c-function", "an operation of torch with an array of numpy's")
        if type(value) is FunctionType:
            raise Break("higher-order", f"function {value.__qualname__} is an operand")
        if type(value) not in CONSTANT_TYPES and as_index(self, value) is not value:
            raise Break("c-function", f"torch asks a {type(value).__name__} for its number")
        return value

    # filled by the machine
    contexts: Contexts
    callbacks: dict[int, tuple[Any, Any]]
    callback_of: dict[int, Any]
