"""The builtins as they are now, for code that runs while a user's program may replace them.

A module that binds this to ``__builtins__`` before it defines anything looks its builtins up here.
"""

from __future__ import annotations

import builtins
import importlib.util
from typing import Any

BUILTINS: Any = dict(vars(builtins))


def own_copy(name: str) -> Any:
    """A copy of the library's module ``name`` whose functions use these builtins."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(f"the standard library's module {name} is missing", name=name)
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = BUILTINS
    spec.loader.exec_module(module)
    return module
