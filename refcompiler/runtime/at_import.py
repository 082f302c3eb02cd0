"""Listening to modules of torch's compiler, which a program may load late or never."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import util
from importlib.machinery import ModuleSpec
from typing import Any


def when_loaded(name: str, last: str, listen: Callable[[Any], None]) -> None:
    """Calls ``listen`` with the module ``name``: now, or behind its import.

    ``last``: what the module defines last, so that one that has it is loaded as a whole.
    """
    module = sys.modules.get(name)
    if module is not None and hasattr(module, last):
        listen(module)
    elif not any(isinstance(f, _AtItsImport) and f.name == name for f in sys.meta_path):
        sys.meta_path.insert(0, _AtItsImport(name, listen))


class _AtItsImport:
    """Finds the module as everyone else does, and has it listened to."""

    def __init__(self, name: str, listen: Callable[[Any], None]):
        self.name = name
        self.listen = listen

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_listen(module: Any) -> None:
                run(module)
                self.listen(module)

            spec.loader.exec_module = run_and_listen  # type: ignore[method-assign]
        return spec
