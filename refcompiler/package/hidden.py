"""Classes of Python's own that no module has under a name: of iterators, and of views of dicts.

Frames that stand at a break hold iterators, and guards ask for their classes.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any


def _classes() -> dict[str, type]:
    known: dict[Any, Any] = {}
    ordered: OrderedDict[Any, Any] = OrderedDict()
    views: list[Iterable[Any]] = [known.keys(), known.values(), known.items()]
    views += [ordered.keys(), ordered.values(), ordered.items()]
    plain: list[Iterable[Any]] = [range(0), range(1 << 70), [], (), set(), "", "\u20ac", b""]
    plain += [bytearray(), memoryview(b""), deque(), ordered, *views]
    found = [*views, *map(iter, plain), iter(int, 1)]
    found += [reversed(item) for item in ([], deque(), known, ordered, *views)]  # type: ignore[call-overload]
    found += itertools.tee(())
    return {type(item).__name__: type(item) for item in found}


globals().update(_classes())
