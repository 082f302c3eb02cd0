"""Guards of constants in dicts, which are asked after one of the dicts has changed.

That is at the second call, and then mostly never again. As text of the entry they would be half of
what a capture has to print and to compile, so they are data at first; when they have been asked
:data:`OFTEN`, as in a model that counts its calls in an attribute, they become a function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refcompiler.guards.constants import PLAIN
from refcompiler.guards.kinds import KINDS, NAMESPACE, Guard
from refcompiler.guards.sources import Source

OFTEN = 3  # a function asks in a tenth of the time, and takes as long to make as a hundred askings
_WHOLE: Any = object()  # in place of a key: the dict itself
#: What asks a dict itself, for names and numbers of entries.
_OF_DICTS = frozenset({"ABSENT", "LACKS", "HAS", "LENGTH"})
#: What asks an entry. Others name objects, which the text of the entry may know weakly.
_OF_ENTRIES = frozenset({"EQUALS", "NONE", "NOT_NONE", "PRESENT"})
_KEYED = frozenset({"member", "item", "dict_item"})


def is_data(guard: Guard) -> bool:
    """Whether a guard, whose answer depends on one dict alone, can be asked as data."""
    source = guard.source
    if source is None:
        return False
    if guard.kind in _OF_DICTS:
        return type(guard.expected) in PLAIN
    return guard.kind in _OF_ENTRIES and source.kind in _KEYED and type(source.key) in PLAIN


class Seldom:
    """``seldom(dicts)``: the ``guards`` hold of ``dicts``, which were read from ``spaces``.

    Each of ``guards`` satisfies :func:`is_data`. It raises what reading raises.
    """

    def __init__(self, guards: Sequence[Guard], spaces: Sequence[Source]):
        places = {space: at for at, space in enumerate(spaces)}
        self._rows: list[tuple[int, Any, str, Any]] = []
        for guard in guards:
            source: Any = guard.source
            of_dict = guard.kind in _OF_DICTS
            at = places[source if of_dict else source.parent]
            self._rows.append((at, _WHOLE if of_dict else source.key, guard.kind, guard.expected))
        self._asked = 0
        self._function: Callable[[tuple], bool] | None = None

    def __call__(self, dicts: tuple) -> bool:
        if self._function is not None:
            return self._function(dicts)
        self._asked += 1
        if self._asked >= OFTEN:
            self._function = self._compiled()
            return self._function(dicts)
        for at, key, kind, expected in self._rows:
            value = dicts[at] if key is _WHOLE else dicts[at][key]
            if not KINDS[kind].check(value, expected):
                return False
        return True

    def _compiled(self) -> Callable[[tuple], bool]:
        space = dict(NAMESPACE)

        def constant(value: Any) -> str:
            if value is None or type(value) in (bool, int, str):
                return repr(value)
            name = f"__c{len(space)}"
            space[name] = value
            return name

        lines = ["def seldom(dicts):"]
        last = None
        for at, key, kind, expected in sorted(self._rows, key=lambda row: row[0]):
            if at != last:
                lines.append(f"    d = dicts[{at}]")
                last = at
            name = "d"
            if key is not _WHOLE:
                lines.append(f"    v = d[{key!r}]")
                name = "v"
            lines.append(f"    if not ({KINDS[kind].text(name, expected, constant)}): return False")
        lines.append("    return True")
        exec(compile("\n".join(lines), "<refcompiler guards>", "exec"), space)
        return space["seldom"]
