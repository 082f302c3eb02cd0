"""The namespaces of modules: globals, attributes of the module, and ``globals()`` are one thing.

A name is read with a guard on that name alone, and written to the overlay. Once the program holds
the namespace as a dict, the shadow of that dict is what is read and written.
"""

from __future__ import annotations

from typing import Any

from refcompiler.capture.observe import Observing
from refcompiler.capture.values import DELETED, External
from refcompiler.capture.written import looked_into
from refcompiler.interpreter.frame import UNSET, Frame


class Namespaces(Observing):
    """The hooks for globals in the symbolic domain."""

    def load_global(self, frame: Frame, name: str) -> Any:
        namespace = frame.globals
        found = self.written_global(namespace, name)
        if found is not UNSET and found is not DELETED:
            return found
        source = self.sources.constant(namespace, "globals")
        if found is UNSET:
            if name in namespace:
                return self.lazy(self.item(source, name, "member", name), namespace[name])
            self.guard("ABSENT", source, name)
            self.lazy(source, namespace)
        builtins = frame.builtins
        source = self.sources.constant(builtins, "builtins")
        self.lazy(source, builtins)
        if name not in builtins:
            self.guard("ABSENT", source, name)
            raise NameError(f"name '{name}' is not defined", name=name)
        return self.lazy(self.item(source, name, "member", name), builtins[name])

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        self.write_global(frame.globals, name, self.force(value))

    def delete_global(self, frame: Frame, name: str) -> None:
        if not self.has_global(frame.globals, name):
            raise NameError(f"name '{name}' is not defined", name=name)
        self.write_global(frame.globals, name, DELETED)

    def written_global(self, namespace: dict, name: str) -> Any:
        """What the program has made of a name; UNSET where it has not touched it."""
        if not self.globals_written and id(namespace) not in self.external:
            return UNSET
        known = looked_into(self, self.external.get(id(namespace)))
        if known is not None and known.shadow is not None:
            return known.shadow.get(name, DELETED)
        return self.overlay.get((id(namespace), name), UNSET)

    def has_global(self, namespace: dict, name: str) -> bool:
        """Whether a module has the name; guarded."""
        found = self.written_global(namespace, name)
        if found is not UNSET:
            return found is not DELETED
        source = self.sources.constant(namespace, "globals")
        self.lazy(source, namespace)
        self.guard("HAS" if name in namespace else "ABSENT", source, name)
        return name in namespace

    def write_global(self, namespace: dict, name: str, value: Any) -> None:
        self.globals_written.add(id(namespace))
        known = looked_into(self, self.external.get(id(namespace)))
        if known is None:
            source = self.sources.constant(namespace, "globals")
            known = self.external[id(namespace)] = External(namespace, source)
        if known.shadow is None:
            self.write(known, name, value)
        elif value is DELETED:
            known.shadow.pop(name, None)
        else:
            known.shadow[name] = value
