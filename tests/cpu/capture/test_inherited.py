"""Subclasses of built-in classes: what C keeps in an instance, and what its class says over C.

Made in the frame they live over a break as they were; from outside their contents are read, changed
and written back past the methods of the class, which run where eager runs them.
"""

from __future__ import annotations

import collections
import enum

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
graph_break = torch._dynamo.graph_break
ONES = [(torch.ones(3),), (torch.full((3,), 2.0),)]


@cases(graphs=2, breaks=1)
def lists():
    class Doubling(list):
        def append(self, value):
            super().append(value * 2)

        def __iter__(self):
            return reversed([*super().__iter__()])

        def __getitem__(self, place):
            return super().__getitem__(place)

        def total(self):
            return sum(self)

    def f(x):
        made = Doubling([x])
        made.append(x + 1)
        graph_break()
        made.extend([x])
        made[0] = made[1] * 2
        return made.total(), len(made), [*made], made.pop(), made

    return f, ONES


@cases(graphs=1, breaks=3)
def state_of_what_is_more_than_its_contents():
    class Named(dict):
        pass

    class Text(str):
        pass

    class Ordered(collections.OrderedDict):
        pass

    given = [Named(a=1), Text("b"), Ordered(c=2)]
    for n, one in enumerate(given):
        one.note = n

    def f(x):
        first, second, third = given
        first.size = len(first) + len(second)
        told = first.__reduce_ex__(2)[2], object.__getstate__(second), third.__reduce__()[2]
        return x + first.size, *told

    return f, ONES, given


@cases(graphs=2, breaks=3)
def iterators_past_a_class_over_a_break():
    class Mirrored(list):
        def __iter__(self):
            return reversed([*super().__iter__()])

    class Named(dict):
        def values(self):
            return ["none"]

        def __iter__(self):
            return iter(["nobody"])

    class Word(str):
        def __iter__(self):
            return iter("other")

    def f(x):
        made, named, word = Mirrored([x, x + 1, x + 2]), Named(a=x, b=x * 2), Word("abc")
        lists, last, texts = list.__iter__(made), list.__reversed__(made), str.__iter__(word)
        keys, held, view = dict.__iter__(named), iter(dict.values(named)), dict.values(named)
        first = next(lists), next(last), next(texts), next(keys), next(held)
        graph_break()
        second = next(lists) * 2, next(last), next(texts), next(keys), next(held)
        graph_break()
        third = [*lists], [*last], [*texts], [*keys], [*held]
        graph_break()
        return first, second, third, [*made], [*named], [*word], view

    return f, ONES


@cases(graphs=2, breaks=1)
def lists_from_outside():
    class Counting(list):
        asked = 0

        def __getitem__(self, place):
            Counting.asked += 1
            return super().__getitem__(place)

        def __len__(self):
            return super().__len__() + 100

        def __setitem__(self, place, value):
            super().__setitem__(place, value * 2)

    held = Counting([1, 2, 3])

    def f(x):
        y = x * held[1] + len(held)
        held[0] = held[2]
        graph_break()
        held.reverse()
        return y * 2, held[-1], list.__len__(held), 6 in held, held.index(2), [*held]

    def restore():
        list.__setitem__(held, slice(None), [1, 2, 3])
        Counting.asked = 0

    return f, [ONES[0], restore, ONES[1]], [held]


@cases(graphs=2, breaks=1)
def dicts_from_outside():
    class Odd(dict):
        def __getitem__(self, key):
            return dict.__getitem__(self, key) * 2

        def __iter__(self):
            return iter(sorted(super().keys(), reverse=True))

        def keys(self):
            return ["more", *super().keys()]

        def __contains__(self, key):
            return True

        def __len__(self):
            return 42

    held = Odd(a=1, b=2)

    def f(x):
        y = x * held["a"]
        held["c"] = dict.get(held, "c", 0) + 1
        graph_break()
        values = [*held.values()], sorted(held.items()), dict.__len__(held)
        del held["c"]
        return y + len(held), list(held), "none" in held, values, held.setdefault("a", 3)

    return f, ONES, [held]


@cases(graphs=2, breaks=1)
def ordered_dicts():
    class Front(collections.OrderedDict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            self.move_to_end(key, last=False)

    class Plain(collections.OrderedDict):
        pass

    def f(x):
        front, plain = Front(), Plain(a=1, b=2, c=3)
        front["a"], front["b"] = 1, x
        plain.move_to_end("a")
        y = x + 1
        graph_break()
        front["c"] = 3
        orders = [*front], [*reversed(front)], [*plain]
        plain.move_to_end("c", last=False)
        return y + front["b"], orders, [*plain], front.popitem()

    return f, ONES


@cases(graphs=3, breaks=2, recompiles=1)
def least_recently_used():
    class Bounded(collections.OrderedDict):
        def __getitem__(self, key):
            value = super().__getitem__(key)
            self.move_to_end(key)
            return value

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            if len(self) > 2:
                del self[next(iter(self))]

    held = Bounded()
    for name in "ab":
        held[name] = torch.ones(3)

    def f(x, key):
        held[key] = x + len(held)
        y = held["b"] * 2
        graph_break()
        return y + 1, [*held]

    x = torch.ones(3)
    return f, [(x, "c"), (x, "c")], [held]


@cases(graphs=1, breaks=1)
def containers_with_state_in_c():
    class Recent(collections.deque):
        def push(self, value):
            self.append(value)

    class Table(collections.defaultdict):
        def total(self):
            return sum(self.values())

    def f(x):
        recent, table = Recent(maxlen=2), Table(lambda: 5)
        recent.push(1)
        table["a"] += 2
        graph_break()
        recent.push(2)
        recent.push(3)
        table["b"] += 1
        return x * table.total(), [*recent], recent.maxlen, dict(table), recent, table["c"]

    return f, ONES


@cases(graphs=2, breaks=1)
def every_container_from_outside():
    class Listed(list):
        def __init__(self, *items):
            super().__init__(items)
            self.log = []

        def append(self, value):
            self.log.append("append")
            super().append(value)

    class Numbered(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, (value, len(self)))

    class Recent(collections.deque):
        pass

    class Seen(collections.defaultdict):
        def __missing__(self, key):
            self.missed = key
            return super().__missing__(key)

    class Bag(set):
        pass

    class Without(frozenset):
        def __contains__(self, key):
            return not super().__contains__(key)

    listed, numbered, recent = Listed(1), Numbered(), Recent([1, 2], maxlen=3)
    seen, bag, without, counter = (
        Seen(int),
        Bag([1, 2]),
        Without([1, 2]),
        collections.Counter("aab"),
    )

    def f(x):
        listed.append(2)
        listed.sort(reverse=True)
        numbered["a"] = x
        numbered.update(b=1)
        recent.append(7)
        recent.rotate(1)
        recent[0] = 8
        seen["z"] += 1
        bag.add(5)
        bag.discard(1)
        counter.update("b")
        y = x * len(listed)
        graph_break()
        recent.popleft()
        told = listed[:], [*numbered], [*recent], dict(seen), seen.missed, sorted(bag)
        asked = (
            1 in without,
            7 in without,
            len(without),
            without | {9},
            bag & without,
            bag == {2, 5},
        )
        return y + 1, told, asked, bool(recent), min(listed), listed * 2, [0] + listed, {**seen}

    def restore():
        list.__setitem__(listed, slice(None), [1])
        for each in (numbered, recent, seen, bag, counter, listed.log):
            each.clear()
        recent.extend([1, 2])
        bag.update([1, 2])
        counter.update("aab")
        del seen.missed

    watched = [listed, numbered, recent, seen, bag, counter]
    return f, [ONES[0], restore, ONES[1]], watched


@cases(graphs=2, breaks=1)
def tuples_from_outside():
    class Odd(tuple):
        def __len__(self):
            return 9

        def __iter__(self):
            return iter("xyz")

        def __getitem__(self, place):
            return tuple.__getitem__(self, place) * 2

        def __add__(self, other):
            return "added"

    class Plain(tuple):
        __slots__ = ()

    odd, plain = Odd((1, 2, 3)), Plain((4, torch.ones(3)))

    def f(x):
        a, b, c = odd
        y = x * odd[0] + plain[1]
        graph_break()
        told = len(odd), tuple.__len__(odd), odd.index(2), odd + (1,), odd[::-1], {odd: 1}[odd]
        return y + len(plain) + plain[0], (a, b, c), told, plain[:1], type(plain + (1,))

    return f, ONES


@cases(graphs=1, breaks=1)
def numbers_and_texts():
    class Whole(int):
        def __add__(self, other):
            return Whole(int(self) + other + 100)

        def __index__(self):
            return 0

        @property
        def double(self):
            return self * 2

    class Text(str):
        def __str__(self):
            return "told"

        def shout(self):
            return self.upper() + "!"

    class Real(float):
        pass

    def f(x):
        n, r, t = Whole(3), Real(2.5), Text("ab")
        y = x * n + r
        graph_break()
        sums = n + 1, n.double, type(n + 1).__name__, type(n + 0) is Whole, type(r + 0) is float
        texts = t.shout(), t[0], len(t), t + "c", f"{t}", str(t), t.startswith("a"), "b" in t
        return y, sums, texts, r * 2, -r, r < 3, divmod(n, 2), [5, 6, 7, 8][n], bool(r), "abc"[n:]

    return f, ONES


@cases(graphs=1, breaks=0)
def hashes_of_members():
    class Kind(enum.Enum):
        A = 1
        B = 2

    def f(x):
        known = {hash(Kind.A): "a", hash(Kind.B): "b"}
        return x + 1, known[hash(Kind(1))], hash(Kind.A) == hash("A"), len(known)

    return f, ONES


@cases(graphs=1, breaks=1)
def a_text_in_a_format():
    class Text(str):
        def __str__(self):
            return "told"

    held = Text("kept")

    def f(x):
        y = x + 1
        graph_break()
        return y, held.upper(), f"{held}", held == "kept"

    return f, ONES


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case) -> None:
    check(case)
