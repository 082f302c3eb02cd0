"""Containers from outside: the frame's own copies, and the guards on what is in them."""

from __future__ import annotations

import collections
import types
from collections.abc import Container, Sequence
from typing import Any

from refcompiler.capture.hashing import check_hashes, insert_anew
from refcompiler.capture.inputs import Inputs
from refcompiler.capture.kinds import CONSTANT_TYPES, MAPPINGS, is_structseq
from refcompiler.capture.setorder import alike, likewise
from refcompiler.capture.signals import Break
from refcompiler.capture.values import External, Items
from refcompiler.guards.sources import Source, proxied, viewed
from refcompiler.interpreter.frame import UNSET


class Shadows(Inputs):
    """Containers are shadowed when they are looked into, and observed as a whole."""

    def _adopt(self, external: External, shadow: Any, original: Any) -> Any:
        external.shadow, external.original = shadow, original
        self.external[id(shadow)] = external
        return shadow

    def _parts(self, external: External, parts: Sequence[tuple[Source, Any]]) -> list[Any]:
        """What an object is made of that cannot be made before its parts are."""
        self.composing.add(id(external.value))
        try:
            return [self.observe(self.lazy(source, part)) for source, part in parts]
        finally:
            self.composing.discard(id(external.value))

    def shadow_sequence(self, external: External) -> Any:
        value, source = external.value, external.source
        self.guard("LENGTH", source, len(value))
        shadow: Any = None
        if issubclass(type(value), tuple):
            parts = [(self.item(source, i), item) for i, item in enumerate(value)]
            items = self._parts(external, parts)
            kind = type(value)
            if is_structseq(kind):
                shadow = kind(items)
            else:
                shadow = tuple(items) if kind is tuple else tuple.__new__(kind, items)
            return self._adopt(external, shadow, shadow)
        is_list = type(value) is list
        if not is_list:
            self.observe(self.lazy(self.member(source, "maxlen"), value.maxlen))
        shadow = [] if is_list else collections.deque(maxlen=value.maxlen)
        self._adopt(external, shadow, None)  # first, since a list may hold itself
        for i, item in enumerate(value):
            shadow.append(self.observe(self.lazy(self.item(source, i), item)))
        external.original = list(shadow) if is_list else Items(shadow)
        return shadow

    def shadow_mapping(self, external: External, overwritten: Container = ()) -> Any:
        """``overwritten``: keys of which the values are no matter."""
        value, source = external.value, external.source
        kind = type(value)
        shadow: Any = kind()
        self._adopt(external, shadow, None)
        numbers = self.outside.keys(self, source, value)
        if numbers is None and all(type(key) in CONSTANT_TYPES for key in value):
            self.guard("KEYS", source, tuple(value))
            keys = [(key, self.item(source, key)) for key in value]
        else:
            self.guard("LENGTH", source, len(value))
            given, items = self.sources.make("keys", source), self.sources.make("values", source)
            forced = numbers or [
                self.sizes.key(self.observe(self.lazy(self.item(given, i), key)))
                for i, key in enumerate(value)
            ]
            keys = [(key, self.item(items, i)) for i, key in enumerate(forced)]
        for (key, item_source), item in zip(keys, value.values(), strict=True):
            matters = not overwritten or key not in overwritten
            held = self.observe(self.lazy(item_source, item)) if matters else UNSET
            insert_anew(self, shadow, key, held)
        check_hashes(self, value, shadow)
        if kind is collections.defaultdict:
            factory = self.member(source, "default_factory")
            shadow.default_factory = self.observe(self.lazy(factory, value.default_factory))
        external.original = dict(shadow)
        return shadow

    def _shadow_proxy(self, external: External) -> Any:
        """Of a dict, which may be written to; a class's ``__dict__`` is not."""
        value, source = external.value, external.source
        if (mapping := proxied(value)) is not None:
            if type(mapping) not in MAPPINGS:
                return value  # asked natively
            held = self.observe(self.lazy(self.sources.make("proxied", source), mapping))
            return self._adopt(external, types.MappingProxyType(held), value)
        if type(viewed(value)) is not dict:  # it asks a class for what it gives
            raise Break("external-object", "a view of a mapping from outside")
        self.guard("KEYS", source, tuple(value))
        shadow = {
            key: self.observe(self.lazy(self.item(source, key, "member", str(key)), item))
            for key, item in value.items()
        }
        return self._adopt(external, types.MappingProxyType(shadow), value)

    def _shadow_set(self, external: External) -> Any:
        value, source = external.value, external.source
        if not all(type(item) in CONSTANT_TYPES for item in value):
            return self._shadow_objects(external)
        shadow, expected = alike(value), alike(value)
        if shadow is None or expected is None:
            raise Break("external-object", f"{source} is a set whose order depends on its past")
        self.guard("EQUALS", source, expected)
        return self._adopt(external, shadow, expected)

    def _shadow_objects(self, external: External) -> Any:
        """A set of objects: which they are is guarded one by one, in the set's order."""
        value, source = external.value, external.source
        self.guard("LENGTH", source, len(value))
        places = self.sources.make("keys", source)
        items = [
            self.sizes.key(self.observe(self.lazy(self.item(places, i), item)))
            for i, item in enumerate(value)
        ]
        shadow: Any = alike(value)
        if any(a is not b for a, b in zip(items, value, strict=True)):
            made = likewise(value, items)
            if made is None:
                made = set()
                for item in items:
                    insert_anew(self, made, item)
            shadow = made if type(value) is set else type(value)(made)
        if shadow is None or list(map(id, shadow)) != list(map(id, items)):
            raise Break("external-object", f"{source} is a set whose order depends on its past")
        return self._adopt(external, shadow, alike(shadow))
