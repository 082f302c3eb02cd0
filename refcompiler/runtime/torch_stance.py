"""torch's own stance, ``torch.compiler.set_stance``, which holds for what is compiled here too.

torch keeps the stance where its compiler lives, and asks for it at each call. That module is not
loaded for the question, and a call in the default stance is to pay nothing. So the function through
which torch's stance changes is made to tell: at once where the module is there, or else when the
program's first ``set_stance`` loads it.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from refcompiler.backends.registry import lookup_backend
from refcompiler.runtime.at_import import when_loaded
from refcompiler.runtime.stance import CURRENT, Setting
from specs.stances import STANCES

_HOME = "torch._dynamo.decorators"  # of the name by which torch calls the function
_SETTER = "_set_stance"


def follow_torch() -> None:
    """From now on torch's stance holds here, too."""
    when_loaded(_HOME, "assume_constant_result", _listen)


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
