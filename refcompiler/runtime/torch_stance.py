"""torch's own stance, ``torch.compiler.set_stance``, which holds for what is compiled here too.

torch keeps the stance where its compiler lives, and asks for it at each call. That module is not
loaded for the question, and a call in the default stance is to pay nothing. So the function through
which torch's stance changes is made to tell: at once where the module is there, or else when the
program's first ``set_stance`` loads it.
"""

from __future__ import annotations

import functools
import sys
from importlib import util
from importlib.machinery import ModuleSpec
from typing import Any

from refcompiler.backends.registry import lookup_backend
from refcompiler.runtime.stance import CURRENT, Setting
from specs.stances import STANCES

_HOME = "torch._dynamo.decorators"  # of the name by which torch calls the function
_SETTER = "_set_stance"


def follow_torch() -> None:
    """From now on torch's stance holds here, too."""
    module = sys.modules.get(_HOME)
    if module is not None and hasattr(module, "assume_constant_result"):  # it is loaded as a whole
        _listen(module)
    elif not any(isinstance(finder, _AtItsImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AtItsImport())


class _AtItsImport:
    """Finds the module that keeps torch's stance as everyone else does, and then listens to it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _HOME:
            return None
        sys.meta_path.remove(self)
        spec = util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_listen(module: Any) -> None:
                run(module)
                _listen(module)

            spec.loader.exec_module = run_and_listen  # type: ignore[method-assign]
        return spec


def _listen(module: Any) -> None:
    setter = getattr(module, _SETTER, None)
    if setter is None or hasattr(setter, "__refcompiler_listens__"):
        return

    @functools.wraps(setter)
    def set_and_tell(stance: Any) -> Any:
        setting = _setting(stance)  # raises before anything has changed
        before = setter(stance)
        CURRENT.set_torch(setting)
        return before

    set_and_tell.__refcompiler_listens__ = True  # type: ignore[attr-defined]
    setattr(module, _SETTER, set_and_tell)
    home = sys.modules[setter.__module__]
    CURRENT.set_torch(_setting(home._stance))


def _setting(said: Any) -> Setting:
    """torch's ``DynamoStance`` in the words of this package."""
    if said.stance not in STANCES:
        known = ", ".join(row.name for row in STANCES)
        raise ValueError(f"set_stance: no stance is named {said.stance!r}; there are {known}")
    backend = None if said.backend is None else lookup_backend(said.backend)
    return Setting(STANCES[said.stance], bool(said.skip_guard_eval_unsafe), backend)
