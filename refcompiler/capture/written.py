"""Items written to dicts from outside that nothing has looked into.

What such a dict holds, and what was overwritten, is no matter then, and not guarded. Once something
asks for more than that, the dict is observed, but for what was overwritten before.
"""

from __future__ import annotations

from typing import Any

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.values import External, Lazy

#: Dicts that are read as attributes or names besides.
_NAMESPACES = frozenset(("dict", "hidden_dict", "space", "const", "globals"))


def write_item(machine: Any, target: Any, key: Any, new: Any) -> bool:
    """``target[key] = new``, if ``target`` is a dict that stays unobserved."""
    if type(target) is not Lazy or type(target.value) is not dict:
        return False
    if type(key) not in CONSTANT_TYPES or target.source.kind in _NAMESPACES:
        return False
    value, source = target.value, target.source
    known = machine.external.get(id(value))
    if known is None:
        if not machine.is_unread(target) or id(value) in machine.handed_out:
            return False
        machine.guard("TYPE", source, dict)
        known = machine.external[id(value)] = External(value, source)
        known.written = {}
    elif known.written is None or known.source is not source:
        return False
    known.written[key] = new
    return True


def looked_into(machine: Any, known: Any) -> Any:
    """``known``, an :class:`External` or None, as one that is read and written as any other."""
    if known is None or known.written is None:
        return known
    written, known.written = known.written, None
    try:
        machine.shadow_mapping(known, written)
    except BaseException:  # it stays one that nothing has looked into
        machine.external.pop(id(known.shadow), None)
        known.shadow, known.written = None, written
        raise
    known.shadow.update(written)
    return known
