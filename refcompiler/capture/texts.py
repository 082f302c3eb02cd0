"""The texts of values in the symbolic domain: formatting, ``str`` and ``repr``."""

from __future__ import annotations

import types
from typing import Any

import torch

from refcompiler.capture.immutable import is_value
from refcompiler.capture.kinds import CONSTANT_TYPES, CONTAINERS
from refcompiler.capture.lookup import find
from refcompiler.capture.natively import natively
from refcompiler.capture.personal import has_address
from refcompiler.capture.signals import Break
from refcompiler.capture.subscripts import Subscripts
from refcompiler.guards.permanence import lasts
from refcompiler.interpreter.frame import UNSET

#: Where exceptions get a text that shows their arguments and nothing else.
_PLAIN_ERRORS = (BaseException, KeyError)
#: What classes of C have, which lives as long as they do.
_OF_CLASSES = (
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


class Texts(Subscripts):
    """The hooks that make texts."""

    def format(self, value: Any, spec: str) -> str:
        value = self.force(value)
        if issubclass(type(value), torch.Tensor):
            raise Break("data-dependent-value", "a tensor is formatted")
        value = self.shown(value)
        for name in ("__format__", "__str__", "__repr__"):
            if self.method_of(type(value), name) is not UNSET:
                if name == "__format__":
                    return self.force(self.call_special(value, name, spec))
                if spec:
                    kind = type(value).__name__
                    raise TypeError(f"unsupported format string passed to {kind}.__format__")
                return format(self.force(self.call_special(value, name)), spec)
            if name == "__format__" and find(type(value), name)[0] is not object:
                break
        self.check_printable(value)
        return natively(self, format, value, spec)

    def convert(self, value: Any, conversion: int) -> Any:
        value = self.force(value)
        if issubclass(type(value), torch.Tensor):
            raise Break("data-dependent-value", "a tensor is formatted")
        value = self.shown(value)
        names = ("__str__", "__repr__") if conversion == 1 else ("__repr__",)
        for name in names:
            if self.method_of(type(value), name) is not UNSET:
                found = self.force(self.call_special(value, name))
                return ascii(found)[1:-1] if conversion == 3 else found
            if name == "__str__" and find(type(value), name)[1] is not object.__str__:
                break  # one in C, which asks for no other: members of an IntEnum have int's
        self.check_printable(value)
        return natively(self, super().convert, value, conversion)

    def shown(self, value: Any) -> Any:
        """Symbols as their numbers, in tuples too; one with a text of its own is asked for it."""
        kind = type(value)
        if issubclass(kind, tuple) and any(
            self.method_of(kind, name) is not UNSET
            for name in ("__format__", "__str__", "__repr__")
        ):
            return value
        return self.sizes.plain(value)

    def check_printable(self, value: Any) -> None:
        """The text of an object must not show its address, or a tensor inside it."""
        value = self.sizes.plain(value)  # and from here on a symbol prints as that number
        kind = type(value)
        if issubclass(kind, BaseException) and self.is_foreign(value):
            self.fix_text(value)
        if kind in CONSTANT_TYPES or issubclass(type(value), (type, BaseException)):
            if not issubclass(type(value), BaseException) or all(
                type(arg) in CONSTANT_TYPES for arg in value.args
            ):
                return
        if kind in CONTAINERS:
            for item in value.values() if issubclass(type(value), dict) else value:
                if issubclass(type(item), torch.Tensor):
                    raise Break("data-dependent-value", "a tensor is formatted")
                if self.method_of(type(item), "__repr__") is UNSET:
                    self.check_printable(item)
            return
        if (
            issubclass(kind, (str, int, float, complex))
            or kind.__module__ == "enum"
            or hasattr(value, "_name_")
        ):
            return
        if is_value(value):
            return
        if self.is_lasting_function(value):
            self.is_personal |= has_address(repr(value))
            return
        raise Break("c-function", f"the text of a {kind.__name__}")

    def is_lasting_function(self, value: Any) -> bool:
        """A function, or what a class of C has, that lies at the same address in each call."""
        kind = type(value)
        if kind is types.FunctionType:
            external = self.external.get(id(value))
            if external is None or not lasts(value):
                return False
            self.guard("ID", external.source, value)
            return True
        if kind is types.BuiltinFunctionType:
            owner = value.__self__
            return owner is None or issubclass(type(owner), (type, types.ModuleType))
        if kind is types.MethodWrapperType:
            return type(value.__self__) in _OF_CLASSES
        return kind in _OF_CLASSES

    def fix_text(self, error: BaseException) -> None:
        """Guard what the text of an exception from outside is made of."""
        kind = type(error)
        if any(find(kind, name)[0] not in _PLAIN_ERRORS for name in ("__str__", "__repr__")):
            raise Break("external-object", f"the text of a {kind.__name__} from outside")
        source = self.member(self.external[id(error)].source, "args")
        for item in self.observe(self.lazy(source, error.args)):
            self.sizes.plain(self.force(item))
