"""Writing and deleting attributes with CPython's rules; writes to the outside are remembered."""

from __future__ import annotations

import collections
import types
from collections.abc import Iterable
from types import CellType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import torch

from refcompiler.capture.attributes import _MODULE_DICTS, Attributes, name_of
from refcompiler.capture.class_attributes import SLOT_TYPES
from refcompiler.capture.door import version_of
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import is_heap, is_property, namespace_of
from refcompiler.capture.signals import Break, Restart
from refcompiler.capture.state import leaves
from refcompiler.capture.subclasses import find_own, is_data_descriptor
from refcompiler.capture.values import DELETED, External, Lazy, Literal, Rethrown, Run, Unread
from refcompiler.capture.wrappers import is_wrapper
from refcompiler.interpreter.frame import UNSET

_module_setattr = torch.nn.Module.__setattr__
_OF_EXCEPTIONS: dict[str, tuple[type, ...]] = {
    "__traceback__": (types.TracebackType, type(None)),
    "__cause__": (BaseException, type(None)),
    "__context__": (BaseException, type(None)),
    "__suppress_context__": (bool,),
}
_FACTORY = collections.defaultdict.__dict__["default_factory"]  # takes anything


def _has_memory(t: Any) -> bool:
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided


def _fits_as_gradient(new: Any, tensor: torch.Tensor) -> bool:
    """Whether ``tensor.grad = new`` is an assignment that torch takes without a word."""
    return (
        issubclass(type(new), torch.Tensor)
        and new is not tensor
        and new.shape == tensor.shape
        and new.dtype == tensor.dtype
        and new.device == tensor.device
    )


def is_borrowed(method: Any, name: str) -> bool:
    """A method of C that a class has under another name than its own (``dict.__setitem__``)."""
    return issubclass(type(method), SLOT_TYPES) and method.__name__ != name


def is_kept_in_c(found: Any) -> bool:
    """Whether a class's attribute is a place in C, which checks or converts what it is given."""
    kind = type(found)
    if kind is types.MemberDescriptorType:
        return not is_heap(found.__objclass__) and found is not _FACTORY
    return not is_property(found) and not is_heap(kind) and hasattr(kind, "__set__")


def _takes(value: Any, name: str, new: Any) -> bool:
    """Whether an exception's own place is given what it takes as it is."""
    kinds = _OF_EXCEPTIONS.get(name, ())
    return issubclass(type(value), BaseException) and issubclass(type(new), kinds)


def _set_gradient(tensor: torch.Tensor, gradient: torch.Tensor | None) -> None:
    tensor.grad = gradient


class _WithContents(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, contents: torch.Tensor) -> torch.Tensor:
        return contents.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


def with_contents(tensor: torch.Tensor, contents: torch.Tensor) -> torch.Tensor:
    """What is in ``contents``, in the same memory; its gradient is that of ``tensor``."""
    with torch.enable_grad():
        return _WithContents.apply(tensor, contents)


def _is_same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return (
            a.untyped_storage()._cdata == b.untyped_storage()._cdata
            and a.storage_offset() == b.storage_offset()
            and a.shape == b.shape
            and a.stride() == b.stride()
            and a.dtype == b.dtype
        )


class GivenContents(NamedTuple):
    """What stands for the tensor, and of it then: writes, what made it, the instruction.

    ``read``: whether the graph can read, and write to, what it was given.
    """

    real: torch.Tensor
    fake: torch.Tensor
    version: int
    made_by: Any
    step: int
    read: bool

    def writes(self, inputs: Iterable[Any]) -> int:
        """Those since. What autograd sees of them has no place but the tensor itself; and what is
        one of several ``inputs`` with one memory has a version with them."""
        if not self.read:
            return 0
        for t in inputs:
            if t is not self.real and _has_memory(t) and torch._C._is_alias_of(t, self.real):
                why = "the data of one of several tensors with one memory were set"
                raise Restart(self.step, "operation-not-modelled", why)
        with torch._C.DisableTorchFunction():
            made_by = self.fake.grad_fn
        if made_by is not self.made_by:
            why = "a tensor whose data were set is written to, as autograd sees"
            raise Restart(self.step, "operation-not-modelled", why)
        return version_of(self.fake) - self.version

    def check_views(self, outputs: Iterable[torch.fx.Node]) -> None:
        """No view of what the tensor was given leaves the graph: eager's is one of the tensor."""
        with torch._C.DisableTorchFunction():
            known = {id(self.fake), id(self.fake._base)} - {id(None)}
            for node in outputs:
                t = node.meta.get("example_value")
                is_view = isinstance(t, torch.Tensor) and t is not self.fake and t._is_view()
                if is_view and id(t._base) in known and torch._C._is_alias_of(t, self.fake):
                    why = "a view of a tensor whose data were set leaves the graph"
                    raise Restart(self.step, "operation-not-modelled", why)


class Assignment(Attributes):
    """The hooks that assign and delete attributes in the symbolic domain."""

    #: By id, of tensors from outside whose data were set.
    given_contents: dict[int, GivenContents]
    steps: int  # of the root frame, by now

    def setattr(self, value: Any, name: str, new: Any) -> None:
        self.finish(self.assign(value, name, new))

    def finish(self, left: Run | None) -> None:
        """Do what is left of an assignment or deletion, within this instruction."""
        if left is not None:
            self.invoke(self.frame, *left)

    def assign(self, value: Any, name: str, new: Any) -> Run | None:
        """``value.name = new``; the :class:`Run` that is left to do for it, if one is."""
        value = self.force(value)
        if issubclass(type(value), torch.Tensor):
            self.set_on_tensor(value, name, self.force(new))
            return None
        source, setter = self.find_guarded(type(value), "__setattr__")
        if type(setter) is FunctionType:
            self.from_class(source, setter)
            if setter is _module_setattr and self.set_plain(value, name, new):
                return None
            return Run(setter, [value, name, new])
        if is_borrowed(setter, "__setattr__"):
            return Run(self.bind_found(source, setter, value, type(value), name), [name, new])
        return self.assign_plainly(value, name, new)

    def set_on_tensor(self, value: torch.Tensor, name: str, new: Any) -> None:
        """The gradient, or an attribute that tensors do not have, of a tensor from outside."""
        real = self.real_of(value)
        cls = self.classes.get(id(value))
        held = is_wrapper(type(value)) and name in value.__dict__
        if cls is not None and (held or is_data_descriptor(find_own(cls, name))):
            raise Break("tensor-kind", f"assignment to attribute {name} of a subclass's")
        if name == "data" and issubclass(type(new), torch.Tensor):
            self.set_data(value, real, new)
            return
        if name == "requires_grad" and type(new) is bool and value.requires_grad == new:
            return
        if name == "requires_grad" and type(new) is bool and real is not None:
            if leaves.switch(self, value, new):
                return
        if name == "grad":
            written = new is None or _fits_as_gradient(new, value)
            if real is None and written and value.is_leaf:
                self.recorder.record(_set_gradient, (value, new), {}, None)
                with torch._C.DisableTorchFunction():
                    value.grad = new
                return
        else:
            written = self.find_guarded(torch.nn.Parameter, name)[1] is UNSET
        if not written or (real is None and name == "grad"):
            raise Break("operation-not-modelled", f"assignment to attribute {name} of a tensor")
        if real is None:
            self.own_attributes[id(value), name] = new
            return
        self.write(External(real, self.fakes_of_inputs[id(value)]), name, new)

    def set_data(self, value: torch.Tensor, real: torch.Tensor | None, new: torch.Tensor) -> None:
        """``value.data = new``: from here on the graph reads ``new`` instead.

        Where a gradient belongs to the tensor itself, a node computes what has the one's contents
        and the other's gradient. The contents of a tensor from outside are assigned after the
        graph. What is written to it from then on, its own version counts, and no other's.
        """
        if _is_same_memory(value, new):
            return
        recorder = self.recorder
        if recorder.scope.outer is not None or new.requires_grad or value.dtype != new.dtype:
            raise Break("operation-not-modelled", "assignment to attribute data of a tensor")
        replaced = recorder.root.nodes.pop(id(value), None)
        same = value.shape == new.shape and value.device == new.device
        goes_on = not value.requires_grad or (replaced is not None and same)
        node = recorder.node_of(new.data) if goes_on else None
        with torch._C.DisableTorchFunction():
            if replaced is not None and replaced.meta.get("example_value") is value:
                replaced.meta["example_value"] = value.detach()  # it lies as it did
            value.data = new
        if node is not None and not value.requires_grad:
            recorder.root.nodes[id(value)] = node
        elif node is not None:
            recorder.add("call_function", with_contents, (replaced, node), {}, value)
        if real is not None:
            with torch._C.DisableTorchFunction():
                made_by = value.grad_fn
            known = real, value, version_of(value), made_by, self.steps
            given = GivenContents(*known, goes_on)
            self.given_contents.setdefault(id(real), given)
            self.write(External(real, self.fakes_of_inputs[id(value)]), "data", new)

    def set_plain(self, value: Any, name: str, new: Any) -> bool:
        """``nn.Module.__setattr__`` where it does no more than ``object.__setattr__``."""
        new = self.passed_on(new)
        if issubclass(type(new), (torch.Tensor, torch.nn.Module)) or value.__dict__ is None:
            return False
        if type(new) is Lazy:
            self.guard("TYPE", new.source, type(new.value))
        external = self.external.get(id(value))
        if external is None:
            return False
        parent = self.namespace(value, external.source)
        for kind in _MODULE_DICTS:
            entries = value.__dict__.get(kind)
            if entries and name in entries:
                return False
        for kind in _MODULE_DICTS:
            source = self.item(parent, kind, "member", kind)
            self.lazy(source, value.__dict__[kind])
            self.guard("ABSENT", source, name)
        self.plain_setattr(value, name, new)
        return True

    def passed_on(self, new: Any) -> Any:
        """What an object from outside is given: constants and displays as unobserved as they are.

        Nothing looks at them before the program reads the attribute.
        """
        if type(new) is Literal or type(new) is Unread and new.is_of_numbers():
            return new
        return new if type(new) is Lazy and type(new.value) in CONSTANT_TYPES else self.force(new)

    def plain_setattr(self, value: Any, name: str, new: Any) -> None:
        """``object.__setattr__``."""
        self.finish(self.assign_plainly(value, name, new))

    def assign_plainly(self, value: Any, name: str, new: Any) -> Run | None:
        if type(value) is CellType and name == "cell_contents":
            self.store_cell(value, new)
            return None
        new = self.passed_on(new) if id(value) in self.external else self.force(new)
        source, found = self.find_guarded(type(value), name)
        if found is not UNSET and is_property(found) and found.fset is not None:
            return Run(self.wrapped(source, found, "fset"), [value, new])
        if found is not UNSET and not issubclass(type(found), types.MemberDescriptorType):
            self.from_class(source, found)
            setter_source, setter = self.find_guarded(type(found), "__set__")
            if type(setter) is FunctionType:
                self.from_class(setter_source, setter)
                return Run(setter, [found, value, new])
        if id(value) in self.rethrown and name in Rethrown.OWN:  # it is undone after the capture
            object.__setattr__(value, name, self.force(new))
            return None
        if issubclass(type(value), type) and value in self.own_classes:
            type.__setattr__(value, name, self.force(new))  # its metaclass has been asked
            self.class_changed(name)
            return None
        if issubclass(type(value), type) and self.may_write_class(value, name):
            self.write_class(value, name, self.force(new))
            return None
        external = self.external.get(id(value))
        slot = type(found) is types.MemberDescriptorType  # which no namespace has
        if slot and issubclass(type(value), ModuleType):
            raise Break("external-object", f"assignment to {name} of a module")
        if external is None and issubclass(type(value), ModuleType):
            namespace = namespace_of(value)
            if is_kept_in_c(found) or namespace is None:
                raise Break("external-object", f"assignment to {name} of a module")
            self.write_global(namespace, name, self.force(new))
            return None
        if external is None and not issubclass(type(value), type):
            object.__setattr__(value, name, new)
            return None
        if external is None or issubclass(type(value), type) or name in ("__dict__", "__class__"):
            raise Break("external-object", f"assignment to {name} of a {type(value).__name__}")
        self.check_plain(value, name)
        if is_kept_in_c(found) and not _takes(value, name, new):
            raise Break("external-object", f"assignment to {name} of a {type(value).__name__}")
        writable = namespace_of(value) is not None or slot or issubclass(type(value), ModuleType)
        if not writable or (found is not UNSET and is_property(found)):
            object.__setattr__(value, name, self.force(new))  # raises as CPython does
            raise Break("external-object", f"assignment to {name}")
        self.write_attribute(external, name, new)
        if name == "default_factory" and value is external.shadow:  # C code asks it for items
            value.default_factory = self.force(new)
        return None

    def delattr(self, value: Any, name: str) -> None:
        value = self.force(value)
        if issubclass(type(value), torch.Tensor):
            raise Break("operation-not-modelled", f"deletion of attribute {name} of a tensor")
        source, deleter = self.find_guarded(type(value), "__delattr__")
        if type(deleter) is FunctionType:
            self.from_class(source, deleter)
            self.invoke(self.frame, deleter, [value, name])
            return
        if is_borrowed(deleter, "__delattr__"):
            bound = self.bind_found(source, deleter, value, type(value), name)
            self.invoke(self.frame, bound, [name])
            return
        self.plain_delattr(value, name)

    def plain_delattr(self, value: Any, name: str) -> None:
        """``object.__delattr__``."""
        if type(value) is CellType and name == "cell_contents":
            self.store_cell(value, UNSET)
            return
        source, found = self.find_guarded(type(value), name)
        if is_property(found) and found.fdel is not None:
            self.invoke(self.frame, self.wrapped(source, found, "fdel"), [value])
            return
        if is_property(found):
            self.from_class(source, found)
            found.__delete__(value)  # raises as CPython does
        deleter_source, deleter = self.find_guarded(type(found), "__delete__")
        if found is not UNSET and type(deleter) is FunctionType:
            self.from_class(source, found)
            self.from_class(deleter_source, deleter)
            self.invoke(self.frame, deleter, [found, value])
            return
        if issubclass(type(value), type) and value in self.own_classes:
            type.__delattr__(value, name)
            self.class_changed(name)
            return
        if issubclass(type(value), type) and self.may_write_class(value, name):
            written = self.overlay.get((id(value), name), UNSET)
            if written is DELETED or (written is UNSET and name not in value.__dict__):
                delattr(type(value.__name__, (), {}), name)  # raises as CPython does
            self.find_guarded(value, name)
            self.write_class(value, name, DELETED)
            return
        external = self.external.get(id(value))
        if external is None and not issubclass(type(value), type):
            object.__delattr__(value, name)
            return
        if type(value) is ModuleType:
            namespace = namespace_of(value)
            if namespace is None or not self.has_global(namespace, name):
                delattr(ModuleType(name_of(value)), name)  # raises as CPython does
            else:
                self.write_global(namespace, name, DELETED)
            return
        if external is None or issubclass(type(value), (type, ModuleType)) or is_kept_in_c(found):
            raise Break("external-object", f"deletion of {name}")
        missing = False
        try:
            if type(held := self.plain_attribute(value, name)) is Run:
                self.invoke(self.frame, *held)
        except AttributeError:
            if type(found) is not MemberDescriptorType:
                raise
            missing = True
        if missing:
            raise AttributeError(name)  # as slots say it
        self.write_attribute(external, name, DELETED)
