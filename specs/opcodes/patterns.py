"""Rows of formatting and of pattern matching."""

from __future__ import annotations

from specs.opcodes.row import (
    MISC,
    SINCE_313,
    UNTIL_312,
    Chapter,
)

ROWS = Chapter()
handled = ROWS.handled

# ---- formatting and patterns -------------------------------------------------------------------

_MATCH = (
    "class P:\n    __match_args__ = 'x',\n    x = 1\nlog = []\n"
    "for v in (P(), [1, 2], {'k': 5}, 7):\n    match v:\n"
    "        case P(x): log.append(x)\n        case [a, *b]: log.append((a, b))\n"
    "        case {'k': k}: log.append(k)\n        case _: log.append('other')\nreturn log"
)
_FORMAT = "x = 1.5\nreturn f'{x!r:>{5}} {x}'"
handled("FORMAT_VALUE", MISC, "a [spec] -- s", "format(a, spec); before it str, repr or ascii.",
        _FORMAT, UNTIL_312)  # fmt: skip
handled("CONVERT_VALUE", MISC, "a -- r", "str, repr or ascii of a.", _FORMAT, SINCE_313)
handled("FORMAT_SIMPLE", MISC, "a -- s", "format(a)", _FORMAT, SINCE_313)
handled("FORMAT_WITH_SPEC", MISC, "a spec -- s", "format(a, spec)", _FORMAT, SINCE_313)
handled("GET_LEN", MISC, "a -- a n", "n = len(a)", _MATCH)
handled(
    "MATCH_MAPPING", MISC, "a -- a r", "r is whether a pattern may take a as a mapping.", _MATCH
)
handled("MATCH_SEQUENCE", MISC, "a -- a r", "The same for a sequence: no str, bytes, bytearray.",
     _MATCH)  # fmt: skip
handled("MATCH_KEYS", MISC, "a keys -- a keys values", "The keys' values; None if one is missing.",
     _MATCH)  # fmt: skip
handled("MATCH_CLASS", MISC, "a cls names -- values",
     "The attributes that a class pattern takes apart, or None.", _MATCH)  # fmt: skip
