"""Rows of attributes, items and containers."""

from __future__ import annotations

from specs.opcodes.row import (
    MISC,
    ONLY_311,
    ONLY_312,
    SINCE_312,
    SINCE_313,
    UNTIL_312,
    Chapter,
)

ROWS = Chapter()
handled = ROWS.handled

# ---- attributes, items, containers -------------------------------------------------------------

_OBJECT = "class O: pass\no = O()\no.x = 1\nr = o.x\ndel o.x\nreturn r, vars(o)"
handled("LOAD_ATTR", MISC, "a -- r", "r = a.name", _OBJECT, ONLY_311)
handled("LOAD_ATTR", MISC, "a -- r | NULL r | f a",
        "r = a.name; if the lowest bit says so, for a call that follows: then it is LOAD_METHOD.",
        _OBJECT, ONLY_312)  # fmt: skip
handled("LOAD_ATTR", MISC, "a -- r | r NULL | f a", "The same, the NULL above.", _OBJECT, SINCE_313)
handled("STORE_ATTR", MISC, "v a --", "a.name = v", _OBJECT)
handled("DELETE_ATTR", MISC, "a --", "del a.name", _OBJECT)
handled("LOAD_METHOD", MISC, "a -- NULL r | f a", "Like LOAD_ATTR, for a call that follows.",
        "return 'a'.upper()", ONLY_311)  # fmt: skip
handled("LOAD_SUPER_ATTR", MISC, "super cls self -- r | NULL r | f self",
        "super(cls, self).name, or super().name; the decoder writes the attribute by itself.",
        "class B:\n    x = 1\n    def m(self): return 2\nclass C(B):\n"
        "    def m(self): return super().m(), super(C, self).x\nreturn C().m()",
        SINCE_312)  # fmt: skip
handled("BUILD_TUPLE", MISC, "... -- t", "The count values on top as a tuple.",
     "a = 1\nreturn a, a")  # fmt: skip
handled("BUILD_LIST", MISC, "... -- l", "The same as a list.", "a = 1\nreturn [a, a]")
handled("BUILD_SET", MISC, "... -- s", "The same as a set.", "a = 1\nreturn {a, 2}")
handled("BUILD_MAP", MISC, "k v ... -- d", "Pairs as a dict.", "a = 1\nreturn {a: 2, 3: a}")
handled("BUILD_CONST_KEY_MAP", MISC, "v ... keys -- d", "Values and a tuple of keys as a dict.",
     "a = 1\nreturn {'x': a, 'y': 2}")  # fmt: skip
handled("BUILD_STRING", MISC, "... -- s", "Strings joined.", "a = 1\nreturn f'{a} and {a}'")
handled("BUILD_SLICE", MISC, "start stop [step] -- s", "slice(start, stop, step)",
     "i, xs = 1, [1, 2, 3, 4]\nreturn xs[i:3], xs[::i]")  # fmt: skip
handled("LIST_TO_TUPLE", MISC, "l -- t", "t = tuple(l)", "a = [1]\nreturn (*a, 2)", ONLY_311)
handled("LIST_APPEND", MISC, "l ... a -- l ...", "Of a comprehension.", "return [x for x in 'ab']")
handled("SET_ADD", MISC, "s ... a -- s ...", "Of a comprehension.", "return {x for x in 'ab'}")
handled("MAP_ADD", MISC, "d ... k v -- d ...", "Of a comprehension.",
     "return {x: 1 for x in 'ab'}")  # fmt: skip
handled("LIST_EXTEND", MISC, "l ... a -- l ...", "Of a display: every item of a.",
     "a = (1, 2)\nreturn [0, *a]")  # fmt: skip
handled("SET_UPDATE", MISC, "s ... a -- s ...", "Of a display: every item of a.",
     "a = (1, 2)\nreturn {0, *a}")  # fmt: skip
handled("DICT_UPDATE", MISC, "d ... a -- d ...", "Of a display: later keys win.",
     "a = {'x': 1}\nreturn {'x': 0, **a}")  # fmt: skip
handled("DICT_MERGE", MISC, "f ... d ... a -- f ... d ...", "Of a call: no key may be given twice.",
     "a = {'x': 1}\nreturn dict(y=2, **a)")  # fmt: skip
handled("UNPACK_SEQUENCE", MISC, "a -- ...", "Exactly count items, the first on top.",
     "a, b = 'xy'\nreturn b, a")  # fmt: skip
handled("UNPACK_EX", MISC, "a -- ... l ...", "Items before and after a list of those between.",
     "a, *b, c = 'vwxyz'\nreturn a, b, c")  # fmt: skip
handled(
    "CONTAINS_OP", MISC, "a b -- r", "a in b, or not in.", "x = 1\nreturn x in [1], x not in [1]"
)
handled("IS_OP", MISC, "a b -- r", "a is b, or is not.", "x = []\nreturn x is x, x is not None")
handled("COMPARE_OP", MISC, "a b -- r", "<, <=, ==, !=, > or >=; r may be any object.",
        "x = 1\nreturn x < 2, x != 1", UNTIL_312)  # fmt: skip
handled("COMPARE_OP", MISC, "a b -- r", "The same; if a bit says so, r = bool(r) for what follows.",
        "x = 1\nreturn x < 2, (3 if x != 1 else 4)", SINCE_313)  # fmt: skip
