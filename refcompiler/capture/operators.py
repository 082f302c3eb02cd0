"""Operators, truth and iteration in the symbolic domain."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable
from contextvars import Context
from types import FunctionType, MethodType
from typing import Any

import torch

from refcompiler.capture import arithmetic, floats, told
from refcompiler.capture.addresses import STAND_INS, Address
from refcompiler.capture.arithmetic import SIGNS
from refcompiler.capture.arrays.array import Array
from refcompiler.capture.arrays.tensors import with_scalar
from refcompiler.capture.contents import check_inherited, contents, given_back
from refcompiler.capture.displays import joined, plain_items
from refcompiler.capture.identity import Identity
from refcompiler.capture.iterators import shadow_generator, view_of
from refcompiler.capture.kinds import COLLECTIONS, CONSTANT_TYPES, CONTAINERS, MAPPINGS, SEQUENCES
from refcompiler.capture.lookup import asks, find, is_heap
from refcompiler.capture.models.printing import operand
from refcompiler.capture.natively import natively
from refcompiler.capture.personal import has_own_order
from refcompiler.capture.pulled import Delegate, Later, Pulled
from refcompiler.capture.signals import Break
from refcompiler.capture.state.contexts import Contexts
from refcompiler.capture.stepping import COMPOSED, step
from refcompiler.capture.values import External, Lazy, LazyMethod, Literal, Run, Unread
from refcompiler.capture.written import is_written_list
from refcompiler.guards.iterators import NUMBERED
from refcompiler.guards.sources import SCALARS
from refcompiler.interpreter import helpers
from refcompiler.interpreter.continued import Switch
from refcompiler.interpreter.driven import DRIVEN
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.resumption import resumable
from refcompiler.shapes.node import SYMBOLS

#: operator function -> (method, reflected method, in-place method)
_DUNDERS: dict[Callable, tuple[str, str | None, str | None]] = {
    operator.lt: ("__lt__", "__gt__", None),
    operator.gt: ("__gt__", "__lt__", None),
    operator.le: ("__le__", "__ge__", None),
    operator.ge: ("__ge__", "__le__", None),
    operator.eq: ("__eq__", "__eq__", None),
    operator.ne: ("__ne__", "__ne__", None),
}
for _name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
    _base = getattr(operator, _name + ("_" if _name in ("and", "or") else ""))
    _DUNDERS[_base] = (f"__{_name}__", f"__r{_name}__", None)
    _DUNDERS[getattr(operator, "i" + _name)] = (f"__{_name}__", f"__r{_name}__", f"__i{_name}__")
_ORDER = (operator.lt, operator.gt, operator.le, operator.ge)
COMPARING = frozenset({*_ORDER, operator.eq, operator.ne})
# What a sequence gives another meaning to: CPython asks it after both operands' numbers.
_REPEATS = (operator.mul, operator.imul)
_OF_SEQUENCES = (operator.add, operator.iadd, *_REPEATS)
_JOINED = (*SEQUENCES, str, bytes, bytearray)
#: What these say is formatted, whatever its class thinks of the remainder.
TEXTS = frozenset({str, bytes, bytearray})
FORMATTING = (operator.mod, operator.imod)
_ADDING = (operator.add, operator.iadd)
_UNARY = {operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__"}
#: The methods that an operator may call.
_NAMES: dict[Any, list[str]] = {f: [n for n in names if n] for f, names in _DUNDERS.items()}
_NAMES |= {function: [name] for function, name in _UNARY.items()}
_NAMES |= {operator.getitem: ["__getitem__"], operator.setitem: ["__setitem__"], abs: ["__abs__"]}

#: Iterators in C that may run the code of the user's special methods.
_CALLING = frozenset({map, filter, zip, enumerate, reversed, type(iter(int, 1)), NUMBERED}) | {
    kind for kind in vars(itertools).values() if isinstance(kind, type)
}
_IMMUTABLE = (int, float, complex, str, bytes, tuple, frozenset)


def python_method(cls: type, name: str) -> Any:
    """The Python function that implements special method ``name``, or UNSET."""
    if not is_heap(cls):
        return UNSET
    found = find(cls, name)[1]
    return found if type(found) is FunctionType else UNSET


#: What torch's operators take, also as instances of subclasses.
_OPERANDS = (torch.Tensor, int, float, complex, list, tuple, str)


def is_foreign_to_torch(kind: type) -> bool:
    """A class of the user's whose instances no operation of torch takes."""
    return (
        is_heap(kind)
        and not issubclass(kind, _OPERANDS)
        and find(kind, "__torch_function__")[1] is UNSET
    )


def _comes_first(function: Callable, reflected: str, left: type, right: type) -> bool:
    """Whether the right operand is asked first, being of a class derived from the left's.

    Registering it with the other does not count. Comparisons ask it in any case, other operators
    only where it has a reflected method of its own (CPython: ``do_richcompare``, ``SLOT1BINFULL``).
    """
    if left is right or left not in right.__mro__:
        return False
    own = find(right, reflected)[1]
    return function in COMPARING or (own is not UNSET and own is not find(left, reflected)[1])


def _is_always_true(kind: type) -> bool:
    """A class of C that says nothing about truth, and that nobody can make say it."""
    return not is_heap(kind) and not any(hasattr(kind, name) for name in ("__bool__", "__len__"))


class Operators(Identity):
    """The operator hooks of the symbolic domain."""

    nested: int  # how many calls run within the instruction
    steps: int
    addresses: dict[int, Address]  # of what the program has asked for
    hashes_told: dict[int, tuple[Any, set[Any]]]  # id -> a key, what its __hash__ said
    memos: set[int]  # the ids of the dicts in which deepcopy notes what it has copied
    is_personal: bool  # what was captured was decided by what only this process knows
    acted: int  # the step whose instruction has done a part of its work already
    handed_over: list[Delegate]
    strict: bool
    patched: list[bool]
    told: int | None  # the step at which the program heard that it is compiled
    contexts: Contexts
    insides: dict[int, Any]  # what stands for the contents of objects from outside

    def method_of(self, cls: type, name: str) -> Any:
        """As :func:`python_method`; that no class has it, or which one, is guarded."""
        if not is_heap(cls) or issubclass(cls, torch.Tensor):
            return python_method(cls, name)
        if cls in STAND_INS:
            return UNSET  # its methods are capture's own
        found = self.find_guarded(cls, name)[1]
        return found if type(found) is FunctionType else UNSET

    def is_python(self, function: Any) -> bool:
        """Whether calling ``function`` runs a Python function."""
        kind = type(function)
        if kind is MethodType:
            function, kind = function.__func__, type(function.__func__)
        if kind is functools.partial:
            return self.is_python(function.func)
        return kind is FunctionType or self.method_of(kind, "__call__") is not UNSET

    def run_special(self, value: Any, name: str, *args: Any) -> Run:
        """What is left to do to call the Python special method ``name`` of ``value``."""
        source, function = self.find_guarded(type(value), name)
        self.from_class(source, function)
        return Run(function, [value, *args])

    def call_special(self, value: Any, name: str, *args: Any) -> Any:
        """Call the Python special method ``name`` of ``value`` to its end."""
        source, function = self.find_guarded(type(value), name)
        self.from_class(source, function)
        return self.invoke(self.frame, function, [value, *args])

    # ---- truth and identity -----------------------------------------------------------------

    def truth(self, value: Any) -> bool:
        if type(value) is Literal:
            return bool(value.items if value.made is UNSET else value.made)
        if type(value) is Lazy:
            inner = value.value
            unread = self.is_unread(value) or is_written_list(self, value)
            if type(inner) in CONTAINERS and unread:
                self.guard("TRUTH", value.source, bool(inner))
                return bool(inner)
            if unread and _is_always_true(type(inner)):
                self.guard("TYPE", value.source, type(inner))
                return True
            value = self.observe(value)
        if issubclass(type(value), torch.Tensor):
            if known := self.recorder.known(bool, (value,)):
                return known[0]
            raise Break("data-dependent-branch", "the truth of a tensor")
        if value is True or value is False or value is None:
            return bool(value)
        kind = type(value)
        if self.method_of(kind, "__bool__") is not UNSET:
            found = self.force(self.call_special(value, "__bool__"))
            if type(found) is torch.SymBool:
                return self.sizes.plain(found)
            if type(found) is not bool:
                raise TypeError(f"__bool__ should return bool, returned {type(found).__name__}")
            return found
        if find(kind, "__bool__")[1] is UNSET and self.method_of(kind, "__len__") is not UNSET:
            return bool(self.force(self.call_special(value, "__len__")))
        if _is_always_true(kind):
            return True
        check_inherited(self, value, "__bool__", "__len__")
        value = contents(self, value)
        if self.is_foreign(value) and any(not is_heap(b) and b is not object for b in kind.__mro__):
            if not issubclass(kind, _IMMUTABLE):
                raise Break("external-object", f"the truth of a {kind.__name__}")
            self.guard("TRUTH", self.source_of(value), bool(value))
        if is_heap(kind) and self.is_foreign(value):
            self.find_guarded(kind, "__bool__")
            self.find_guarded(kind, "__len__")
        return bool(value)

    def as_bool(self, value: Any) -> Any:
        """``bool(value)``: of a symbol one too, so that what is only kept decides nothing."""
        if type(value) is Lazy and type(value.value) in (int, float):
            value = self.force(value)
        if type(value) in SYMBOLS:
            return arithmetic.as_bool(self, value)
        return self.truth(value)

    def negation(self, value: Any) -> Any:
        """``not value``, as :meth:`as_bool`."""
        found = self.as_bool(value)
        return torch.sym_not(found) if type(found) in SYMBOLS else not found

    def mapping(self, value: Any) -> Any:
        value = self.force(value)
        keys = self.method_of(type(value), "keys")
        if keys is UNSET:
            value = contents(self, value)
            if type(value) not in MAPPINGS and self.is_foreign(value):
                raise Break("external-object", f"the items of a {type(value).__name__}")
            return value
        found: dict[Any, Any] = {}
        iterator = self.iter(self.call_special(value, "keys"))
        while (key := self.next(iterator)) is not UNSET:
            self.insert(found, key, self.force(self.getitem(value, key)))
        return found

    def keywords(self, named: Any) -> dict[str, Any]:
        given = dict(named)
        if not all(isinstance(key, str) for key in given):  # the callee may be a model
            raise TypeError("keywords must be strings")
        return given

    def length(self, value: Any) -> int:
        return self.force(self.invoke(self.frame, len, [value]))

    # ---- operators --------------------------------------------------------------------------

    def unary(self, function: Callable, value: Any) -> Any:
        value = self.force(value)
        if type(value) in SYMBOLS:
            return arithmetic.unary(self, function, value)
        name = _UNARY.get(function)
        if name is not None and self.method_of(type(value), name) is not UNSET:
            if not issubclass(type(value), torch.Tensor):
                return self.call_special(value, name)
        return self.operate(function, value)

    def operate(self, function: Callable, *args: Any) -> Any:
        """An operation of the program's, some of whose operands are tensors."""
        for name in _NAMES.get(function, ()):  # which a program may give tensors anew
            source, found = self.find_guarded(torch.Tensor, name)
            if source is not None:
                self.guard("ID", source, found)
        if not (self.recorder.kinds or self.recorder.modes):
            return function(*args)
        self.recorder.asked = True
        try:
            return function(*args)
        finally:
            self.recorder.asked = False

    def binary(self, function: Callable, a: Any, b: Any) -> Any:
        if function is operator.add and (type(a) is Literal or type(b) is Literal):
            found = joined(self, a, b)
            if found is not UNSET:
                return found
        if function in _ADDING and (type(a) is Unread or type(b) is Unread):
            text = told.joined(a, b)
            if text is not None:
                return text
        if function is operator.iadd and type(a) is Lazy and type(a.value) is list:
            if self.is_unseen(a) and self.extend(a, b):
                return a
        a, b = self.force(a), self.force(b)
        if type(a) is LazyMethod or type(b) is LazyMethod:
            a, b = [self.bound(x) if type(x) is LazyMethod else x for x in (a, b)]
        if issubclass(type(a), torch.Tensor) or issubclass(type(b), torch.Tensor):
            if type(a) is Array or type(b) is Array:
                found = with_scalar(self, function, a, b)
                if found is not NotImplemented:
                    return found
            if self.recorder.floats:
                found = floats.arithmetic(self, function, a, b)
                if found is not NotImplemented:
                    return found
            if is_foreign_to_torch(type(a)) or is_foreign_to_torch(type(b)):
                found = self._of_users(function, a, b)
                if found is not NotImplemented:
                    return found
            elif asks(type(a)):
                method, _, inplace = _DUNDERS[function]
                for name in (inplace, method):
                    if name is None or self.method_of(type(a), name) is UNSET:
                        continue
                    found = self.force(self.call_special(a, name, b))
                    if found is NotImplemented:
                        raise Break("tensor-kind", f"{type(a).__name__}.{name} is not implemented")
                    return found
            return self.operate(function, a, b)
        left, right = type(a), type(b)
        if left in CONSTANT_TYPES and right in CONSTANT_TYPES:
            return function(a, b)
        if left in SYMBOLS or right in SYMBOLS:
            if left is str and function in FORMATTING:
                return self._native_binary(function, a, b)
            return arithmetic.binary(self, function, a, b)
        if not is_heap(left) and not is_heap(right):
            return self._native_binary(function, a, b)
        if left in TEXTS and function in FORMATTING and left not in right.__mro__:
            return self._native_binary(function, a, b)
        method, reflected, inplace = _DUNDERS[function]
        assert reflected is not None
        names = [(a, inplace, b)] if inplace is not None else []
        pair = [(a, method, b), (b, reflected, a)]
        if _comes_first(function, reflected, left, right):
            pair.reverse()
        if not any(
            self.method_of(type(x), asked) is not UNSET
            for x, name, _ in names + pair
            for asked in ((name, "__eq__") if name == "__ne__" else (name,))
        ):
            return self._native_binary(function, a, b)
        late = []  # sequences join and repeat only after everybody was asked for a number
        for receiver, name, other in names + pair:
            if left is right and name == reflected != method and function not in _ORDER:
                continue  # objects of one class are not asked twice
            owner, found = find(type(receiver), name)
            if found is UNSET:
                continue
            if owner in _JOINED and function in _OF_SEQUENCES:
                late.append((receiver, name, other))
                continue
            if type(found) is FunctionType:
                result = self.call_special(receiver, name, other)
            elif owner is object and name == "__ne__":
                result = self._not_equal(receiver, other)
            else:
                result = getattr(type(receiver), name)(receiver, other)
            if self.force(result) is not NotImplemented:
                return result
        for receiver, name, other in late:
            if function in _REPEATS and find(type(other), "__index__")[1] is UNSET:
                kind = type(other).__name__
                raise TypeError(f"can't multiply sequence by non-int of type '{kind}'")
            return getattr(type(receiver), name)(receiver, other)
        if function is operator.eq or function is operator.ne:
            return self.same(a, b) is (function is operator.eq)
        return self._unsupported(function, a, b)

    def _not_equal(self, receiver: Any, other: Any) -> Any:
        """``object.__ne__``: what ``__eq__`` says not."""
        if self.method_of(type(receiver), "__eq__") is UNSET:
            return object.__ne__(receiver, other)
        found = self.force(self.call_special(receiver, "__eq__", other))
        return found if found is NotImplemented else not self.truth(found)

    def _of_users(self, function: Callable, a: Any, b: Any) -> Any:
        """An operator of a tensor and an object that torch does not know, by the object's class."""
        method, reflected, inplace = _DUNDERS[function]
        pairs = [(a, inplace, b), (a, method, b), (b, reflected, a)]
        for receiver, name, other in pairs:
            if name is None or issubclass(type(receiver), torch.Tensor):
                continue
            if self.method_of(type(receiver), name) is not UNSET:
                found = self.force(self.call_special(receiver, name, other))
                if found is not NotImplemented:
                    return found
        return NotImplemented

    def _native_binary(self, function: Callable, a: Any, b: Any) -> Any:
        for value in (a, b):
            if hasattr(type(value), "__next__") and self.is_foreign(value):
                raise Break("external-iterator", f"a {type(value).__name__} from outside")
        if function in (operator.eq, operator.ne) and (self.is_foreign(a) or self.is_foreign(b)):
            asked = ["__eq__"] if function is operator.eq else ["__eq__", "__ne__"]
            others = [
                x
                for x in (a, b)
                if any(find(type(x), n)[1] is not object.__dict__[n] for n in asked)
            ]
            if all(type(x) in CONSTANT_TYPES or type(x) in COLLECTIONS for x in others[:1]):
                if len(others) < 2:  # which knows its own kind only
                    return self.same(a, b) is (function is operator.eq)
        if function in (operator.eq, operator.ne) and type(a) is type(b) is FunctionType:
            return self.same(a, b) is (function is operator.eq)
        formats = function in FORMATTING and type(a) in (str, bytes)
        shown = formats and issubclass(type(b), SCALARS)  # as its class says
        pair = contents(self, a), b if shown else contents(self, b)
        if pair[0] is not a or pair[1] is not b:
            method, reflected, inplace = _DUNDERS[function]
            check_inherited(self, a, method, inplace)
            if not shown:
                check_inherited(self, b, reflected)
            found = self._native_binary(function, *pair)
            return given_back(a, pair[0], found)  # in place
        if self.is_hidden(a) or (self.is_hidden(b) and not shown):
            names = f"{type(a).__name__} and {type(b).__name__}"
            raise Break("external-object", f"{function.__name__} of {names}")
        if formats:
            text = told.text_of(self, function, a, b) if type(a) is str else None
            if text is not None:
                return text
            b = operand(self, b)
        elif type(a) in COLLECTIONS and type(b) in COLLECTIONS and function not in _OF_SEQUENCES:
            self.hashes(a)
            self.hashes(b)
        return natively(self, function, a, b)

    def _unsupported(self, function: Callable, a: Any, b: Any) -> Any:
        names = f"'{type(a).__name__}' and '{type(b).__name__}'"
        if function in (operator.lt, operator.le, operator.gt, operator.ge):
            raise TypeError(f"'{SIGNS[function]}' not supported between instances of {names}")
        raise TypeError(f"unsupported operand type(s) for {SIGNS[function]}: {names}")

    def extend(self, target: Lazy, value: Any) -> bool:
        """Append the items of a list or tuple to a list from outside that stays unseen."""
        items = plain_items(self, value if type(value) is Literal else self.force(value))
        if items is UNSET or not self.is_unseen(target):
            return False
        self.guard("TYPE", target.source, list)
        for item in [*map(self.force, items)]:
            self.append(target, item)
        return True

    # ---- iteration --------------------------------------------------------------------------

    def iter(self, value: Any) -> Any:
        value = self.force(value)
        self.is_personal |= has_own_order(value)
        if issubclass(type(value), torch.Tensor):
            return iter(list(value.unbind(0)) if value.dim() else value)
        kind = type(value)
        if self.method_of(kind, "__iter__") is not UNSET:
            return self.force(self.call_special(value, "__iter__"))
        if issubclass(type(value), type) and self.method_of(type(value), "__iter__") is not UNSET:
            return self.force(self.call_special(value, "__iter__"))
        if self.has_old_protocol(kind):
            return self.force(self.invoke(self.frame, helpers.items, [value]))
        if kind is Context:
            raise Break("external-object", "iteration over a Context")
        value = contents(self, value)
        if self.is_foreign(value):
            if hasattr(kind, "__next__"):
                return value
            raise Break("external-object", f"iteration over a {kind.__name__}")
        return iter(value)

    def next(self, iterator: Any) -> Any:
        iterator = self.force(iterator)
        if self.method_of(type(iterator), "__next__") is not UNSET:
            try:
                return self.call_special(iterator, "__next__")
            except StopIteration:
                return UNSET
        if self.is_foreign(iterator):
            found = view_of(self, iterator).next(self)
        elif type(iterator) in _CALLING:
            found = natively(self, next, iterator, UNSET)
        else:
            found = super().next(iterator)
        self.acted = self.steps
        return found

    def shadow_generator(self, external: External) -> Any:
        return shadow_generator(self, external)

    def is_interpreted(self, value: Any) -> bool:
        """A generator that was made here."""
        return type(value) in DRIVEN and not self.is_foreign(value)

    def runs_code(self, value: Any) -> bool:
        """Whether iterating over ``value`` runs Python code in frames that can be pushed."""
        if self.nested:
            return False
        kind = type(value)
        if kind in DRIVEN:
            return resumable(value)
        if kind in COMPOSED:
            return self.stepping(value) is not None
        if not is_heap(kind) or issubclass(kind, torch.Tensor):
            return False
        if self.method_of(kind, "__iter__") is not UNSET:
            return True
        if find(kind, "__iter__")[1] is not UNSET:
            return self.method_of(kind, "__next__") is not UNSET
        return self.has_old_protocol(kind)

    def has_old_protocol(self, kind: type) -> bool:
        """Whether instances of ``kind`` are iterated by a ``__getitem__`` of the user's."""
        return (
            is_heap(kind)
            and find(kind, "__iter__")[1] is UNSET
            and self.method_of(kind, "__getitem__") is not UNSET
        )

    def run_helper(self, helper: Callable, sizes: bool, value: Any, *rest: Any) -> Run:
        """A helper that takes all items of ``value``; ``sizes``: C code asks for their number."""
        if sizes and self.has_size(value):
            return Run(helpers.sized, [helper, value, *rest])
        return Run(helper, [value, *rest])

    def has_size(self, value: Any) -> bool:
        """Whether Python code says how many items there are."""
        kind = type(value)
        return is_heap(kind) and any(
            self.method_of(kind, name) is not UNSET for name in ("__len__", "__length_hint__")
        )

    def unwrapped(self, value: Any) -> Any:
        return value.iterator if type(value) in (Pulled, Later) else value

    def stepping(self, iterator: Any) -> Run | None:
        """What is left to do for the next item, if that runs Python code."""
        kind = type(iterator)
        if kind in COMPOSED:
            return step(self, iterator)
        if self.method_of(kind, "__next__") is not UNSET:
            return self.run_special(iterator, "__next__")
        return None

    def delegate_of(self, value: Any) -> Any:
        """What the program sees of what :meth:`delegate` has made."""
        inner = value.inner if type(value) is Switch else value
        return inner.iterator if type(inner) is Delegate else inner

    def delegate(self, iterator: Any) -> Any:
        iterator = self.force(iterator)
        if not self.is_interpreted(iterator):
            iterator = Delegate(self, iterator)
            self.handed_over.append(iterator)
        switch = Switch(iterator)
        switch.entering = False
        return switch

    def items_of(self, value: Any) -> Iterable:
        value = self.force(value)
        self.is_personal |= has_own_order(value)
        if type(value) in (list, tuple, dict, str, set, frozenset, range):
            return value
        if self.is_interpreted(value):
            return Pulled(self, value)
        return Pulled(self, self.iter(value), value)
