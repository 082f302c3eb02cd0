"""Rebuilding of iterators and generators, in the state in which capture left them."""

from __future__ import annotations

import collections
import gc
import itertools
import operator
from typing import Any

from refcompiler.capture.numbered import owner_of, spent
from refcompiler.capture.setorder import is_ordered
from refcompiler.capture.values import is_changed, is_in_place
from refcompiler.guards.iterators import (
    COMPOSITES,
    LEAVES,
    NUMBERED,
    Feeder,
    Mutated,
    account,
    advance,
    duplicate,
    is_outdated,
    is_over_changed,
    nested,
    odict_view,
    outdated,
    restore,
)
from refcompiler.interpreter.binding import VARARGS, VARKEYWORDS
from refcompiler.interpreter.continued import Continued, Switch, generator_of, replace
from refcompiler.interpreter.driven import delegate_of
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.generators import Activation
from refcompiler.interpreter.helpers import items
from refcompiler.plan.resume import describe_suspended
from refcompiler.plan.writing import Writing

_CALLING = (map, filter, itertools.compress, itertools.starmap)
ITERATORS: tuple[type, ...] = (*LEAVES, *COMPOSITES, *_CALLING, NUMBERED)
#: Iterators of dicts -> how they are made, of a class with methods of its own too.
_DICT_ITERATORS: dict[type, str] = {
    type(iter({})): "dict.__iter__({})",
    type(iter({}.values())): "iter(dict.values({}))",
    type(iter({}.items())): "iter(dict.items({}))",
    type(reversed({})): "dict.__reversed__({})",
    type(reversed({}.values())): "reversed(dict.values({}))",
    type(reversed({}.items())): "reversed(dict.items({}))",
}


_SET_ITERATOR: type = type(iter(set()))
_ODICT_ITERATOR: type = type(iter(collections.OrderedDict()))


def _container(iterator: Any, kinds: Any) -> Any:
    """What an iterator goes over; None for one that is over."""
    found = [r for r in gc.get_referents(iterator) if issubclass(type(r), kinds)]
    return found[0] if found else None


class Iterators(Writing):
    """What gives items one after the other."""

    def generator(self, value: Any, activation: Activation) -> str:
        """One that goes on where this one is suspended."""
        constant = self.writer.constant
        frame = activation.frame
        if frame is not None and self.ends:
            if frame.code is items.__code__:
                return self.sequence_iterator(value, frame)
            if not frame.ip and frame.function is not None:
                return self.not_started(value, frame)
        layout = constant(describe_suspended(activation.frame)[0])
        names = f"{value.__name__!r}, {value.__qualname__!r}"
        name = self.assign(value, f"{constant(generator_of)}({layout}, {names})")
        if not isinstance(activation, Continued) or not activation.running:
            self.lines.append(f"{constant(replace)}({name}, {self.suspended(value, activation)})")
        return name

    def sequence_iterator(self, value: Any, frame: Any) -> str:
        """Of an instance with a ``__getitem__`` of the user's: CPython's own again."""
        owner, position = frame.fast[:2]
        name = self.assign(value, f"iter({self.expression(owner)})")
        if position is not UNSET:
            self.lines.append(f"{self.writer.constant(restore)}({name}, {position + 1})")
        return name

    def numbered(self, value: Any) -> str:
        """The same of one that the program has, which it may have ended."""
        owner = owner_of(value)
        if owner is UNSET:
            return self.assign(value, f"{self.writer.constant(spent)}()")
        name = self.assign(value, f"iter({self.expression(owner)})")
        if place := account(value)[2]:
            self.lines.append(f"{self.writer.constant(restore)}({name}, {place})")
        return name

    def not_started(self, value: Any, frame: Any) -> str:
        """One that is given back as it was made: CPython's own."""
        code = frame.code
        taken = code.co_argcount + code.co_kwonlyargcount
        parts = [self.expression(item) for item in frame.fast[: code.co_argcount]]
        named = zip(code.co_varnames[:taken], frame.fast[:taken], strict=True)
        rest = list(frame.fast[taken : taken + 2])
        if code.co_flags & VARARGS:
            parts.append(f"*{self.expression(rest.pop(0))}")
        parts += [f"{key}={self.expression(v)}" for key, v in list(named)[code.co_argcount :]]
        if code.co_flags & VARKEYWORDS:
            parts.append(f"**{self.expression(rest.pop(0))}")
        function = self.expression(frame.function)
        name = self.assign(value, f"{function}({', '.join(parts)})")
        for attribute in ("__name__", "__qualname__"):
            found = getattr(value, attribute)
            if found != getattr(frame.function, attribute):
                self.lines.append(f"{name}.{attribute} = {found!r}")
        return name

    def suspended(self, value: Any, activation: Activation) -> str:
        """What completes a generator: layout, values, exception handled, and delegate."""
        layout, values = describe_suspended(activation.frame)
        handled = "None" if activation.exc is None else self.expression(activation.exc)
        delegate = UNSET
        if activation.delegates:
            delegate = delegate_of(value)
            if type(delegate) is Switch:
                delegate = delegate.inner
        listed = "".join([f"{self.expression(item)}, " for item in values])
        constant = self.writer.constant
        return f"{constant(layout)}, ({listed}), {handled}, {self.expression(delegate)}"

    def iterator(self, value: Any) -> str:
        """By the iterator's own account of its state (``__reduce__``), on a copy of it."""
        kind = type(value)
        constant = self.writer.constant
        if kind is NUMBERED:
            return self.numbered(value)
        if kind in _DICT_ITERATORS:
            made = self.dict_iterator(value)
            if made is not None:
                return made
        if kind is _SET_ITERATOR:
            made = self.set_iterator(value)
            if made is not None:
                return made
        if kind is _ODICT_ITERATOR:
            made = self.odict_iterator(value)
            if made is not None:
                return made
        if kind is enumerate:
            inner, number = account(value)[1]
            if not nested(inner, {}):
                feeder = f"{constant(Feeder)}({self.expression(inner)})"
                return self.assign(value, f"enumerate({feeder}, {constant(number)})")
        if issubclass(kind, (zip, enumerate, itertools.chain, itertools.islice, itertools.cycle)):
            reduced = account(value)
        else:
            reduced = account(duplicate(value))
        function, args, *state = reduced
        if kind.__name__.startswith("_deque") and self.is_moved(args[0]):
            function, args = iter, (list(duplicate(value)),)
        if kind.__name__.startswith("_deque") and is_over_changed(value):
            return self.assign(value, f"{constant(Mutated)}()")
        name = self.assign(value, f"{constant(function)}({self.many(args)})")
        if state and state[0] is not None:
            # a position is cut to the length that the list has when it is set
            later = bool(args) and type(args[0]) is list and self.is_changed(args[0])
            lines = self.late if later else self.lines
            lines.append(f"{constant(restore)}({name}, {self.expression(state[0])})")
        return name

    def dict_iterator(self, value: Any) -> str | None:
        """Of the dict itself, which may not change its size from here on."""
        if is_outdated(value):
            make = f"lambda d: {_DICT_ITERATORS[type(value)].format('d')}"
            return self.assign(value, f"{self.writer.constant(outdated)}({make}, {{0: 0}})")
        mapping = _container(value, dict)
        left = operator.length_hint(value)
        if mapping is None or self.is_changed(mapping):
            return None
        return self.advanced(value, mapping, _DICT_ITERATORS[type(value)], len(mapping) - left)

    def set_iterator(self, value: Any) -> str | None:
        """Of the set itself, likewise, where that is made again in its order."""
        if is_outdated(value):
            return self.assign(value, f"{self.writer.constant(outdated)}(iter, {{0}})")
        members = _container(value, (set, frozenset))
        left = operator.length_hint(value)
        if members is None or self.is_changed(members):
            return None
        base = set if issubclass(type(members), set) else frozenset
        if not is_ordered(members, self.is_read):
            return None
        return self.advanced(value, members, f"{base.__name__}.__iter__({{}})", len(members) - left)

    def odict_iterator(self, value: Any) -> str | None:
        """Of the ordered dict itself, likewise, which may not change at all."""
        if is_outdated(value):
            made = f"{self.writer.constant(collections.OrderedDict)}({{0: 0}})"
            return self.assign(value, f"{self.writer.constant(outdated)}(iter, {made})")
        owner = _container(value, collections.OrderedDict)
        if owner is None or self.is_changed(owner):
            return None
        text = odict_view(value, owner)
        if text is None:
            return None
        left = len(account(value)[1][0])
        make = text.replace("OrderedDict", self.writer.constant(collections.OrderedDict))
        return self.advanced(value, owner, make, len(owner) - left)

    def advanced(self, value: Any, container: Any, make: str, taken: int) -> str:
        name = self.assign(value, make.format(self.expression(container)))
        if taken:
            self.lines.append(f"{self.writer.constant(advance)}({name}, {taken}, False)")
        return name

    def is_moved(self, container: Any) -> bool:
        """A deque whose iterators will say that it has changed."""
        known = self.machine.external.get(id(container))
        return known is not None and self.is_changed(container) and not is_in_place(known)

    def is_changed(self, container: Any) -> bool:
        """A container from outside whose changes are replayed after what is rebuilt."""
        external = self.machine.external.get(id(container))
        if external is None:
            return False
        if external.tail or external.written:
            return True
        return external.shadow is not None and is_changed(external)
