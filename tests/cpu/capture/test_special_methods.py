"""Special methods that C code calls: hashes, comparisons, texts, numbers and truths of objects."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import functools
import heapq
import itertools
import math
import operator

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def t(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def keys_with(log: list) -> type:
    """A class whose special methods, but for the hash, write into ``log``."""

    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return hash(self.n)

        def __eq__(self, other):
            log.append(("eq", self.n))
            return isinstance(other, Key) and self.n == other.n

        def __lt__(self, other):
            log.append(("lt", self.n))
            return self.n < other.n

        def __repr__(self):
            log.append(("repr", self.n))
            return f"Key({self.n})"

        def __format__(self, spec):
            return f"<{self.n}:{spec}>"

        def __index__(self):
            log.append(("index", self.n))
            return self.n

        def __bool__(self):
            log.append(("bool", self.n))
            return self.n > 1

        def __len__(self):
            log.append(("len", self.n))
            return self.n

    return Key


def logged(program):
    """A case of ``program``, which takes a key's class and a tensor; its log is compared."""

    def factory():
        log = []
        key = keys_with(log)
        return (lambda x: program(key, x)), [(t(3, 3),)] * 2, [log]

    factory.__name__ = program.__name__
    cases()(factory)
    return program


@logged
def keys_of_dicts(key, x):
    d = {key(1): x, key(2): x * 2}
    d[key(1)] = x + 5
    found = d[key(1)], key(2) in d, key(3) in d, d.get(key(2)), d.get(key(9))
    made = {key(i % 3): x * i for i in range(6)}
    return found, d.setdefault(key(2), 1), d.pop(key(1)), len(d), made[key(2)], {(1, key(2)): x}


@logged
def items_of_sets(key, x):
    s = {key(1), key(2), key(1)}
    s.add(key(3))
    s.discard(key(2))
    both = s | {key(3), key(4)}
    made = {key(i % 2) for i in range(4)}
    return x + len(s), len(both), key(1) in s, sorted(k.n for k in both), len(made), frozenset(made)


@logged
def compared_containers(key, x):
    a = [key(1), key(2)]
    equal = a == [key(1), key(2)], a != [key(1), key(3)], (key(1),) == (key(1),)
    found = a.index(key(2)), a.count(key(1)), key(2) in a, {"a": key(1)} == {"a": key(1)}
    a.remove(key(1))
    order = (1, key(2)) < (1, key(3)), [key(1), key(2)] < [key(1), key(3)]
    return x + 1, equal, found, order, sorted([(1, key(2)), (1, key(1))])[0][1].n, len(a)


@logged
def heaps(key, x):
    h = []
    for n in (3, 1, 2):
        heapq.heappush(h, key(n))
    first = heapq.heappop(h)
    other = [key(5), key(4), key(1)]
    heapq.heapify(other)
    ends = [k.n for k in heapq.nsmallest(2, other)], heapq.nlargest(1, other)[0].n
    replaced = heapq.heappushpop(other, key(0)).n, heapq.heapreplace(other, key(9)).n
    return x * first.n, [k.n for k in h], [k.n for k in other], ends, replaced


@logged
def bisected(key, x):
    a = [key(1), key(3), key(5)]
    found = bisect.bisect_left(a, key(3)), bisect.bisect(a, key(3))
    bisect.insort(a, key(4))
    return x + found[0], found, [k.n for k in a], bisect.bisect_left([(1, "a")], 2, key=len)


@logged
def texts(key, x):
    k = key(3)
    plain = f"{k}", f"{k:>4}", f"{k!r}", str(k), repr([k]), str({"a": (k,)}), f"{[k]}"
    joined = ", ".join(map(str, [k, k])), "%s %r" % (k, k), "%(a)s" % {"a": k}
    return x + 1, plain, joined, "{} {:x} {!r}".format(k, k, k), "{0[0]} {1.n}".format([k], k)


@logged
def numbers(key, x):
    a = [10, 20, 30, 40]
    items = a[key(2)], a[key(1) : key(3)], "abc"[key(1)], [0] * key(2), list(range(key(3)))
    texts = hex(key(10)), bin(key(2)), chr(key(65)), "ab" * key(2)
    a.insert(key(0), a.pop(key(1)))
    return x[key(1)], x[key(0) : key(2)], items, texts, operator.index(key(1)), int(key(4)), a


@logged
def truths(key, x):
    k = [key(1), key(2)]
    found = any(k), all(k), not k[0], bool(k[1]), [a for a in k if a][0].n, (k[0] or k[1]).n
    by_c = list(filter(None, k))[0].n, list(itertools.compress([1, 2], k)), sum(map(bool, k))
    return x + 1, found, by_c, list(filter(bool, k))[0].n


@cases(graphs=2, breaks=1)
def truths_over_a_break():
    def f(x):
        log = []
        key = keys_with(log)
        keys = [key(n) for n in (0, 1, 2, 3)]
        it = itertools.compress(range(4), keys)
        number = next(it)
        y = x * number
        print("break")
        log.append("behind")
        return y + next(it), log.append("between"), list(it), log

    return f, [(t(3),), (t(3),)]


@logged
def counted(key, x):
    c = collections.Counter([key(1), key(2), key(1)])
    d = collections.defaultdict(list)
    for n in (1, 2, 1):
        d[key(n)].append(x * n)
    return c[key(1)], x * c.most_common(1)[0][1], len(c), c[key(7)], list(d.values())


@logged
def extremes(key, x):
    ks = [key(2), key(1), key(3)]
    ends = min(ks).n, max(ks, key=lambda k: k.n).n, min(key(5), key(4)).n
    return x + 1, ends, sorted(ks, reverse=True)[0].n, sorted(ks, key=lambda k: key(-k.n))[0].n


@cases()
def all_other_numbers():
    class N:
        def __init__(self, v):
            self.v = v

        def __float__(self):
            return float(self.v)

        def __floor__(self):
            return 1

        def __trunc__(self):
            return 2

        def __round__(self, n=None):
            return (3, n)

        def __divmod__(self, other):
            return (5, other)

        def __pow__(self, other, modulus=None):
            return (6, other, modulus)

        def __ceil__(self):
            return 7

        def __complex__(self):
            return 9j

        def __bytes__(self):
            return b"10"

        def __reversed__(self):
            return iter([12])

        def __dir__(self):
            return ["q"]

    def f(x):
        n = N(2.25)
        whole = math.floor(n), math.trunc(n), round(n), round(n, 2), math.ceil(n)
        pairs = divmod(n, 1), pow(n, 2), pow(n, 2, 3), complex(n), bytes(n)
        return math.sqrt(n), float(n), whole, pairs, list(reversed(n)), dir(n), x * math.sin(n)

    return f


@cases(breaks=2)  # what writes to the outside would do it again as the dict is made again
def hash_with_effects():
    log = []

    class Key:
        def __hash__(self):
            log.append("hash")
            return 1

        def __eq__(self, other):
            return True

    return (lambda x: {Key(): x}[Key()] + 1), [(t(2),)] * 2, [log]


@cases()
def hashes_that_raise():
    class Refuses:
        __hash__ = None

    class Fails:
        def __hash__(self):
            raise ValueError("no hash")

    class Wrong:
        def __hash__(self):
            return "text"

    class Differs:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            raise KeyError("eq")

    def f(x):
        found = []
        for make in (list, dict, Refuses, Fails, Wrong):
            try:
                {make(): x}
            except (TypeError, ValueError) as error:
                found.append(str(error))
        try:
            return {Differs(): 1}[Differs()]
        except KeyError as error:
            return x + 1, found, str(error)

    return f


@cases(graphs=3, recompiles=2)
def keys_from_outside():
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return hash(self.n)

        def __eq__(self, other):
            return type(other) is Key and self.n == other.n

    known = {Key(1): torch.ones(2), Key(2): torch.zeros(2)}

    def f(x, key):
        if key not in known:
            known[key] = x * 2
        return known[key] + x

    return f, [(t(2), Key(1)), (t(2), Key(1)), (t(2), Key(5)), (t(2), Key(5))], [known]


@cases()
def keys_with_tensors():
    class Key:
        def __init__(self, tensor):
            self.t = tensor

        def __hash__(self):
            return hash(self.t.shape)

        def __eq__(self, other):
            return self.t.shape == other.t.shape

    def f(x):
        d = {Key(x): 1, Key(x.t()): 2, Key(x + 1): 3}
        return [key.t for key in d], list(d.values()), d, {Key(x)}

    return f


@cases(graphs=2, recompiles=1)
def set_of_objects_from_outside():
    class Key:
        pass

    key = Key()
    known, modules = {key, Key, None}, frozenset([torch.nn.Linear(2, 2)])

    def f(x):
        found = key in known, object() in known, any(i is key for i in known)
        for m in modules:
            x = m(x)
        known.add(5)
        return x, found, len(known)

    return f, [(t(2),)] * 3, [known]


@cases()
def methods_that_call_c_code():
    class P:
        def __init__(self, v):
            self.v = v

        def __lt__(self, other):
            return sorted([self.v, other.v])[0] == self.v != other.v

        def __eq__(self, other):
            return {self.v} == {other.v}

        def __hash__(self):
            return hash((self.v, frozenset([self.v])))

    def f(x):
        ordered = sorted([P(3), P(1), P(2)])
        found = P(1) in [P(2), P(1)], heapq.nlargest(1, ordered)[0].v, len({P(1), P(1)})
        return x * ordered[0].v, [p.v for p in ordered], found

    return f


@cases(graphs=2, breaks=6)
def methods_that_break():
    class P:
        def __init__(self, v):
            self.v = v

        def __lt__(self, other):
            torch._dynamo.graph_break()
            return self.v < other.v

        def __hash__(self):
            torch._dynamo.graph_break()
            return self.v

        def __eq__(self, other):
            return self.v == other.v

        def __repr__(self):
            torch._dynamo.graph_break()
            return "P"

    def f(x):
        y = x + 1
        first, heap = sorted([P(3), P(1)])[0], [P(2)]
        heapq.heappush(heap, P(1))
        d = {P(1): y}
        return y * first.v, d[P(1)], "%s" % P(1), repr([P(2)]), heap[0].v

    return f


@cases()
def inherited_and_derived():
    class Base:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return hash(self.n)

        def __eq__(self, other):
            return self.n == other.n

    @functools.total_ordering
    class Own(Base):
        def __hash__(self):
            return super().__hash__() ^ 1

        def __lt__(self, other):
            return self.n < other.n

    def f(x):
        found = len({Own(1), Own(1), Own(2)}), hash(Own(3)) == hash(3) ^ 1
        order = max(Own(1), Own(2)).n, Own(1) >= Own(1), [Own(1)] <= [Own(3)]
        return {Own(1): x}[Own(1)] + 1, found, order, bisect.bisect([Own(1), Own(3)], Own(2))

    return f


@cases()
def classes_of_the_frame():
    def f(x):
        class Key:
            def __init__(self, n):
                self.n = n

            def __hash__(self):
                return self.n

            def __eq__(self, other):
                return self.n == other.n

        return {Key(1): x}[Key(1)] + 1, [Key(1)].index(Key(1))

    return f


@cases()
def frozen_dataclasses():
    @dataclasses.dataclass(frozen=True)
    class P:
        a: int
        b: str = "b"

    @dataclasses.dataclass(order=True)
    class Q:
        a: int
        t: object = dataclasses.field(compare=False, default=None)

    def f(x):
        d = {P(1): x, P(2): x * 2}
        first = sorted([Q(2, x), Q(1, x + 1)])[0].t
        return d[P(1)], P(1) == P(1), hash(P(1)) == hash(P(1)), first, repr(P(3)), repr([Q(1)])

    return f


@cases()
def lengths_that_c_code_asks_for():
    class Sized:
        def __init__(self, n, log):
            self.n, self.log = n, log

        def __len__(self):
            self.log.append("len")
            return self.n

        def __iter__(self):
            self.log.append("iter")
            return iter(range(self.n))

    class Hinting:
        def __init__(self, log):
            self.log = log

        def __length_hint__(self):
            self.log.append("hint")
            return 2

        def __iter__(self):
            self.log.append("iter")
            return self

        def __next__(self):
            self.log.append("next")
            raise StopIteration

    def f(x):
        log, items = [], []
        s = Sized(2, log)
        for take in (list, tuple, set, sorted, sum, max, dict.fromkeys, items.extend, any, len):
            take(s)
            log.append(take.__name__)
        items += s
        items[0:1] = s
        a, b = s
        found = [*s], (*s,), operator.length_hint(Hinting(log)), list(Hinting(log))
        return x + a + b, log, found, items, "".join(map(str, s)), list(enumerate(s))

    return f


@cases()
def a_length_that_raises():
    class Unsized:
        def __len__(self):
            raise TypeError("no")

        def __iter__(self):
            return iter([1])

    class Failing(Unsized):
        def __len__(self):
            raise ValueError("bad")

    def f(x):
        found = list(Unsized())
        try:
            list(Failing())
        except ValueError as error:
            return x + 1, str(error), found

    return f


@pytest.mark.parametrize("case", cases, ids=str)
def test_special_methods(case: Case) -> None:
    assert check(case) > 0
