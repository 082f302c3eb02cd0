"""Items of containers in the symbolic domain: read, written, deleted, looked for."""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from contextvars import Context
from types import FunctionType
from typing import Any

import torch

from refcompiler.capture import arithmetic
from refcompiler.capture.arrays.array import Array
from refcompiler.capture.arrays.places import element, put_number
from refcompiler.capture.contents import contents, dict_item
from refcompiler.capture.displays import append, item_of, put_item
from refcompiler.capture.gathers import put
from refcompiler.capture.indexing import tensor_index
from refcompiler.capture.kinds import CONSTANT_TYPES, CONTAINERS, MAPPINGS, SEQUENCES
from refcompiler.capture.lookup import find, is_iterable, shown_name
from refcompiler.capture.natively import is_quiet, natively
from refcompiler.capture.operators import Operators
from refcompiler.capture.signals import Break
from refcompiler.capture.values import Lazy, Literal
from refcompiler.capture.written import (
    delete_item,
    has_item,
    is_appended,
    is_closed,
    item_at,
    key_of_size,
    read_item,
    write_item,
)
from refcompiler.interpreter.frame import UNSET

#: Whose items are asked for by numbers, which symbols are not.
_OF_NUMBERS = (list, tuple, dict)


class Subscripts(Operators):
    """What brackets and ``in`` mean."""

    def getitem(self, value: Any, key: Any) -> Any:
        if type(value) is Literal:
            found = item_of(self, value, self.force(key))
            if found is not UNSET:
                return found
        if type(value) is Lazy and (is_closed(self, value) or is_appended(self, value)):
            key = self.key_of_item(value, key)
            found = self.lazy_item(value, key)
            if found is not UNSET:
                return found
        value, key = self.force(value), self.force(key)
        if issubclass(type(value), torch.Tensor):
            key = arithmetic.with_plain_bools(self, key)
            chosen, key = tensor_index(self, value, key, reads=True)
            whole = chosen is not value and type(key) is tuple and not key
            return chosen if whole else self.operate(operator.getitem, chosen, key)
        if issubclass(type(key), torch.Tensor):
            if type(value) in MAPPINGS:  # a key by identity
                self.key(key)
            elif type(value) in CONTAINERS:
                known = self.recorder.known(operator.index, (key,))
                if not known:
                    raise Break("data-dependent-value", "a tensor is the index of a container")
                key = known[0]
        if self.method_of(type(value), "__getitem__") is not UNSET:
            return self.call_special(value, "__getitem__", key)
        if issubclass(type(value), type):
            found = find(value, "__class_getitem__")[1]
            inner: Any = getattr(found, "__func__", None)
            if type(found) is classmethod and not is_quiet(inner):
                return self.invoke(self.frame, inner, [value, key])
        if issubclass(type(value), dict) and type(value) not in MAPPINGS[:2]:
            return dict_item(self, value, key)
        asked = type(value) in SEQUENCES and not issubclass(type(key), int)
        if asked and self.method_of(type(key), "__index__") is not UNSET:
            key = self.force(self.call_special(key, "__index__"))
        if type(value) is Array and (found := element(self, value, key)) is not UNSET:
            return found
        key = self.sizes.key(key) if type(value) in MAPPINGS else self.sizes.plain(key)
        if type(value) is Context:
            return self.contexts.method(value, "__getitem__", [key], {})
        value = contents(self, value)
        if self.is_foreign(value):
            raise Break("external-object", f"an item of a {type(value).__name__}")
        if type(value) in MAPPINGS and self.hashes(key):
            self.hashes(value)
        return natively(self, operator.getitem, value, key)

    def read_foreign_dict(self, value: dict, name: str, args: Sequence) -> Any:
        raise NotImplementedError

    def lazy_item(self, lazy: Lazy, key: Any) -> Any:
        """An item of an external container that stays otherwise unobserved, or UNSET."""
        value, source = lazy.value, lazy.source
        kind, key = type(value), key_of_size(self, key)
        if kind in (list, tuple) and type(key) is int:
            self.guard("TYPE", source, kind)
            return item_at(self, lazy, key)
        if is_appended(self, lazy):
            return UNSET
        if kind in MAPPINGS and type(key) in CONSTANT_TYPES:
            if kind not in MAPPINGS[:2] and key not in value:  # it is made
                return UNSET
            self.guard("TYPE", source, kind)
            if (found := read_item(self, lazy, key)) is UNSET:
                raise KeyError(key)
            return found
        return UNSET

    def append(self, target: Any, value: Any) -> None:
        if type(target) is not Literal or not append(target, value):
            super().append(target, value)

    def setitem(self, value: Any, key: Any, new: Any) -> None:
        if type(value) is Literal and put_item(self, value, self.force(key), new):
            return
        key, new = self.force(key), self.force(new)
        if type(value) is Lazy:
            key = key_of_size(self, key)
        if write_item(self, value, key, new):
            return
        key = self.key_of_item(value, key)
        value = self.force(value)
        kind = type(value)
        if not issubclass(kind, torch.Tensor) and self.method_of(kind, "__setitem__") is not UNSET:
            self.call_special(value, "__setitem__", key, new)
            return
        value = contents(self, value)
        self.check_writable(value)
        if type(value) is Array and put_number(self, value, key, new):
            return
        if not issubclass(type(value), torch.Tensor):
            key = self.sizes.key(key)
        if issubclass(type(value), torch.Tensor):
            if not put(self, value, key, new):
                self.operate(operator.setitem, *tensor_index(self, value, key), new)
        elif type(key) in CONSTANT_TYPES:
            value[key] = new
        else:
            natively(self, operator.setitem, value, key, new)

    def key_of_item(self, value: Any, key: Any) -> Any:
        """A container from outside takes no symbol, but need not be observed for a number."""
        key = self.force(key)
        closed = type(value) is Lazy and type(value.value) in _OF_NUMBERS
        return self.sizes.plain(key) if closed else key

    def delitem(self, value: Any, key: Any) -> None:
        if delete_item(self, value, key := self.key_of_item(value, key)):
            return
        value, key = self.force(value), self.sizes.key(key)
        if self.method_of(type(value), "__delitem__") is not UNSET:
            self.call_special(value, "__delitem__", key)
            return
        value = contents(self, value)
        self.check_writable(value)
        natively(self, operator.delitem, value, key)

    def check_writable(self, value: Any) -> None:
        if self.is_foreign(value):
            raise Break("external-object", f"a write into a {type(value).__name__}")

    def check_own(self, value: Any, name: str) -> None:
        """That no special method of an object from outside reads what is not guarded."""
        if self.is_foreign(value):
            found = find(type(value), name)[1]
            member = issubclass(type(value), enum.Enum)
            known = found is object.__dict__[name] or member
            if type(found) is FunctionType and not (member and found.__module__ == "enum"):
                # the standard library's runs natively
                known = not is_quiet(found) or (found.__module__ or "").startswith("torch")
            if not known:
                raise Break("external-object", f"{name} of a {type(value).__name__}")

    def contains(self, item: Any, container: Any) -> bool:
        if type(container) is Lazy and is_closed(self, container):
            inner, source = container.value, container.source
            item = key_of_size(self, self.force(item))
            if type(inner) in MAPPINGS and type(item) in CONSTANT_TYPES:
                self.guard("TYPE", source, type(inner))
                return has_item(self, container, item)
        item, container = self.force(item), self.force(container)
        if type(container) is range and type(item) is torch.SymInt:
            first, last = sorted((container[0], container[-1])) if container else (0, -1)
            return bool(first <= item <= last and (item - first) % abs(container.step) == 0)
        if type(container) not in SEQUENCES:
            item = self.sizes.key(item)
        if issubclass(type(container), torch.Tensor) or issubclass(type(item), torch.Tensor):
            if issubclass(type(container), torch.Tensor):
                raise Break("data-dependent-value", "membership in a tensor")
            if type(container) in SEQUENCES:
                if any(item is other for other in container):
                    return True
                raise Break("data-dependent-branch", "a tensor is looked for in a sequence")
        if self.method_of(type(container), "__contains__") is not UNSET:
            return self.truth(self.call_special(container, "__contains__", item))
        if find(type(container), "__contains__")[1] is UNSET:
            if not is_iterable(type(container)):
                raise TypeError(f"argument of type '{shown_name(container)}' is not iterable")
            iterator = self.iter(container)
            while (other := self.next(iterator)) is not UNSET:
                if self.same(item, other) or self.truth(self.binary(operator.eq, item, other)):
                    return True
            return False
        if type(container) is Context:
            return self.contexts.method(container, "__contains__", [item], {})
        self.check_own(item, "__eq__")
        container = contents(self, container)
        if self.is_foreign(container) and not issubclass(type(container), type):
            raise Break("external-object", f"membership in a {type(container).__name__}")
        if self.hashes(item):
            self.hashes(container)
        return natively(self, operator.contains, container, item)
