"""Identity: which objects are one, and what then must stay as it is."""

from __future__ import annotations

import operator
from typing import Any

from refcompiler.bytecode.decode import is_literal
from refcompiler.capture.assignment import Assignment
from refcompiler.capture.kinds import COLLECTIONS, CONSTANT_TYPES, MAPPINGS, is_fixed
from refcompiler.capture.natively import natively
from refcompiler.capture.values import Lazy
from refcompiler.shapes.node import SYMBOLS

#: Constants of which equal ones may be two objects.
_COPIED = frozenset({int, float, complex, str, bytes})


class Identity(Assignment):
    """Comparisons by identity, and keys."""

    def is_none(self, value: Any) -> bool:
        if type(value) is Lazy and value.source not in self.forced:
            self.guard("NONE" if value.value is None else "NOT_NONE", value.source)
            return value.value is None
        return self.force(value) is None

    def same(self, a: Any, b: Any) -> bool:
        if b is None:
            return self.is_none(a)
        if a is None:
            return self.is_none(b)
        if type(a) is Lazy and type(b) is Lazy and a is not b:
            kinds = type(a.value), type(b.value)
            if kinds[0] is kinds[1] and kinds[0] in _COPIED:  # equal ones may be two objects
                one = a.value is b.value
                for lazy, kind in zip((a, b), kinds, strict=True):
                    self.guard("TYPE", lazy.source, kind)
                self.guard("SAME" if one else "DISTINCT", a.source, b.source)
                return one
        a, b = self.force(a), self.force(b)
        if a is b:
            return True
        if type(a) in SYMBOLS or type(b) in SYMBOLS:  # which of the small ones are one object
            return self.sizes.plain(a) is self.sizes.plain(b)
        for one, other in ((a, b), (b, a)):
            if type(other) is tuple and is_literal(other) and (known := self.external.get(id(one))):
                if known.value is other:  # which the program's code has, too
                    self.guard("ID", known.source, other)
                    return True
        first, second = self._origin(a), self._origin(b)
        if first is not None and second is not None and first is not second:
            self.guard("DISTINCT", first, second)
        return False

    def _origin(self, value: Any) -> Any:
        return self.fakes_of_inputs.get(id(value)) or self.source_of(value)

    def key(self, value: Any) -> Any:
        value = self.sizes.plain(self.force(value))
        if type(value) not in CONSTANT_TYPES:
            self.hashes(value)
        return value

    def insert(self, target: Any, key: Any, *value: Any) -> None:
        """``target[key] = value``, or ``target.add(key)``, into a container of the frame's."""
        key = self.key(key)
        if type(key) not in CONSTANT_TYPES:
            if self.hashes(key):
                self.hashes(target)
            natively(self, operator.setitem if value else set.add, target, key, *value)
        elif value:
            target[key] = value[0]
        else:
            target.add(key)

    def hashes(self, value: Any, depth: int = 8) -> bool:
        """C compares what is in ``value`` by identity, which then has to stay as it is.

        Whether there is anything from outside in it of which nothing else says which it is.
        """
        kind = type(value)
        if kind in CONSTANT_TYPES:
            return False
        if kind in COLLECTIONS:  # which may hold itself
            of = (value.items() if kind in MAPPINGS else value) if depth else ()
            return sum([self.hashes(item, depth - 1) for item in of]) > 0
        source = self._origin(value)
        if source is None or is_fixed(value):
            return False
        self.hashed[id(value)] = kind, source
        return True
