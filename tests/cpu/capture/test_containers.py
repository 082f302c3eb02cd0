"""Lists, dicts, sets, their relatives, and text, from inside and outside.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import collections
import copy
import heapq
import itertools
import json
import re
import string
import types

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


@cases()
def list_methods():
    def f(x):
        a = [x, 1, 2]
        a.append(3)
        a.extend([4, x])
        a.insert(0, "i")
        b = a.copy()
        p = a.pop(), a.pop(0)
        k = [1, 2]
        k.remove(2)
        c = a + [5] * 2
        a += (6,)
        a *= 2
        c[1:3] = ["s"]
        del c[-1]
        d = sorted([3, 1, 2], reverse=True)
        d.sort()
        d.reverse()
        b.clear()
        return x + 1, a, b, c, d, p, [1, 2, 1].count(1), [1, 2].index(2), a[::2], len(a), x in a[:1]

    return f


@cases(graphs=3, recompiles=2)  # the counts decide what they become
def counter_of_what_a_generator_yields():
    known = collections.Counter()

    def f(x, names):
        known.update(name.upper() for name in names)
        return x + 1, collections.Counter(n for n in names if n != "a")

    return f, [(t(2), ["a", "b", "b"]) for _ in range(3)], [known]


@cases()
def list_argument_changed():
    def f(seq, x):
        seq.append(x + 1)
        seq[0] = x
        seq.insert(1, "new")
        last = seq.pop()
        seq += [last * 2]
        del seq[2]
        seq.extend(v for v in (x, 3))
        seq.reverse()
        return len(seq), seq

    return f, [([t(2), 1, 2], t(2)), ([t(2), 1, 2], t(2))]


@cases()
def dict_methods():
    def f(x):
        d = {"a": x, 2: "b", (1, 2): 3, None: 4, True: 5}
        d["n"] = x + 1
        d.update(a=x * 2, z=1)
        d |= {"w": 2}
        e = d | {"a": 0}
        got = (
            d.get("a"),
            d.get("q"),
            d.get("q", x),
            d.pop("z"),
            d.pop("q", 7),
            d.setdefault("s", []),
        )
        d["s"].append(x)
        del d[2]
        last = e.popitem()
        return (
            d, e, got, last, list(d), list(d.items()), list(d.values())[0], "a" in d, len(d),
            dict.fromkeys("ab", x), dict([("k", x)]), dict(zip("ab", [x, 1])), {**d, "y": 2},
            list(reversed(d)), d.keys() & {"a"}, sorted(k for k in d if isinstance(k, str)),
        )  # fmt: skip

    return f


@cases()
def dict_argument_changed():
    def f(d, x):
        d["new"] = x + d["a"]
        d["a"] = 2
        d.setdefault("list", []).append(x)
        d.update({"k": x})
        del d["gone"]
        moved = d.pop("b")
        for key in list(d):
            if key == "k":
                d[key] = d[key] * 2
        return d, moved, [*d]

    made = [{"a": t(2), "gone": 1, "b": t(2)} for _ in range(2)]
    return f, [(made[0], t(2)), (made[1], t(2))]


@cases(recompiles=1, graphs=2)
def dict_argument_of_other_order():
    def f(d):
        return [v * 2 for v in d.values()], list(d)

    a, b = t(2), t(2)
    return f, [({"a": a, "b": b},), ({"b": b, "a": a},), ({"a": a, "b": b},)]


@cases()
def nested_containers_changed():
    def f(d, x):
        d["deep"]["list"][0]["t"] = x + 1
        d["deep"]["list"].append(d["deep"])
        inner = d["deep"]
        inner["k"] = (x, [x])
        inner["k"][1].append(3)
        return inner, d

    return f, [({"deep": {"list": [{"t": 1}]}}, t(2)) for _ in range(2)]


@cases(graphs=2, recompiles=1)
def one_container_twice():
    def f(a, b, x):
        a.append(x + 1)
        return len(b), b, a is b

    same = [1]
    other = [1, 2]
    return f, [(same, same, t(2)), (other, other, t(2))]


@cases(recompiles=1, graphs=2)
def containers_that_become_one():
    def f(a, b, x):
        a.append(x + 1)
        return len(b) * x

    same = [1]
    return f, [([1], [1], t(2)), (same, same, t(2)), ([1], [1], t(2))]


@cases(recompiles=1, graphs=2)
def dicts_that_become_one():
    def f(a, b, x):
        a["k"] = x + 1
        return b["k"] * 2

    same = {"k": 3}
    return f, [({"k": 1}, {"k": 1}, t(2)), (same, same, t(2))]


@cases(recompiles=1, graphs=2)
def objects_that_become_one():
    def f(a, b, x):
        a.v = x + 1
        return b.v * 2

    make = lambda: types.SimpleNamespace(v=t(2))  # noqa: E731
    same = make()
    return f, [(make(), make(), t(2)), (same, same, t(2)), (make(), make(), t(2))]


@cases()
def sets_in_order():
    def f(x):
        s = {3, 1, 2}
        s.add(5)
        s.discard(1)
        u = s | {9}
        s -= {2}
        frozen = frozenset(s)
        return x + len(s), sorted(u), u & s, u ^ s, frozen, 3 in s, s <= u, {1: 2}.keys() | {3}, s

    return f


@cases()
def set_argument_changed():
    def f(s, x):
        s.add("new")
        s.discard("old")
        return x + len(s), "old" in s

    return f, [({"old", "kept"}, t(2)), ({"old", "kept"}, t(2))]


@cases()
def tuples():
    def f(x):
        a = (x, 1)
        b = a + (2,)
        return (
            x + 1,
            a,
            b,
            b * 2,
            b[1:],
            a == (x, 1),
            hash((1, 2)) == hash((1, 2)),
            (1, 2) < (1, 3),
            *b,
        )

    return f


@cases()
def ordered_and_default_dicts():
    def f(x):
        o = collections.OrderedDict(b=x, a=1)
        o.move_to_end("b")
        first = o.popitem(last=False)
        dd = collections.defaultdict(list)
        dd["k"].append(x)
        dd["n"] += [1]
        nested = collections.defaultdict(lambda: collections.defaultdict(int))
        nested["a"]["b"] += 2
        return o, first, dd, dd["k"][0] + 1, nested["a"], len(dd)

    return f


@cases()
def default_dict_argument():
    def f(d, x):
        d["k"].append(x + 1)
        d["new"].append(1)
        return len(d)

    def make():
        return collections.defaultdict(list, k=[1])

    return f, [(make(), t(2)), (make(), t(2))]


@cases()
def deques():
    def f(x):
        d = collections.deque([x, 1, 2], maxlen=4)
        d.appendleft(0)
        d.append(3)
        d.rotate(1)
        a, b = d.pop(), d.popleft()
        d.extend([7, 8])
        return d, a, b, len(d), d[0], list(d), d.maxlen, x + 1

    return f


@cases()
def deque_argument_changed():
    def f(d, x):
        d.append(x + 1)
        return d.popleft() * 2

    return f, [(collections.deque([t(2), t(2)], maxlen=3), t(2)) for _ in range(2)]


@cases()
def counters_and_chains():
    def f(x):
        c = collections.Counter("abca")
        c["b"] += 2
        c.update("a")
        m = collections.ChainMap({"a": 1}, {"b": 2})
        return x + c["a"], c, c.most_common(1), m["b"], c["missing"], +c, sum(c.values())

    return f


@cases(graphs=2, recompiles=1)
def user_containers():
    class Stack:
        def __init__(self, *items):
            self.items = list(items)

        def __len__(self):
            return len(self.items)

        def __getitem__(self, i):
            return self.items[i]

        def push(self, v):
            self.items.append(v)
            return self

    class Table(collections.abc.MutableMapping):
        def __init__(self, **kw):
            self.d = dict(kw)

        def __getitem__(self, k):
            return self.d[k]

        def __setitem__(self, k, v):
            self.d[k] = v

        def __delitem__(self, k):
            del self.d[k]

        def __iter__(self):
            return iter(self.d)

        def __len__(self):
            return len(self.d)

    outside = Stack(1)

    def f(x):
        s = Stack(x).push(x + 1)
        tb = Table(a=x)
        tb["b"] = 2
        tb.update(c=x * 2)
        del tb["a"]
        outside.push(x)
        return [v for v in s], bool(Stack()), len(s), x in s[:1], dict(tb), tb.get("z", 1), tb.pop("b"), (  # noqa: E501
            list(tb.items()), {**tb}, bool(outside), outside[0], "c" in tb, list(zip(s, tb)),
        )  # fmt: skip

    return f, [(t(2),)] * 2, [outside]


@cases()
def copies():
    def f(x, d):
        a = [x, [1, 2], {"k": x}]
        b, c = copy.copy(a), [x + 1, *a[1:]]
        b.append(3)
        e = copy.copy(d)
        e["new"] = 1
        return a, b, c, b[1] is a[1], e, copy.deepcopy([1, [2], {"k": (3,)}]), list(a), dict(d)

    return f, [(t(2), {"a": t(2)})] * 2


@cases()
def text():
    def f(x):
        n, name = x.shape[0], "abc"
        return (
            x + n, f"{n:>4}|{name!r:8}|{3.14159:.2f}|{n!s}", "%d-%s-%5.1f" % (n, name, 2.0),
            "{0} {k} {0!r}".format(1, k=name), ",".join(["a", name]), name.upper()[::-1],
            "a-b".split("-"), name.replace("a", "z"), name.startswith("a"), str(x.dtype), str([1]),
            repr({"k": (1, None)}), str(x.shape), f"{x.shape}", "b" in name, name * 2, ord("a"),
            name.encode(), bytes([1, 2]), int("7"), float("1e3"), str(1.5), "%s" % (x.device,),
            string.Template("$a").substitute(a=1), re.sub("[ab]", "-", name), f"{x.dtype}", chr(98),
            str(torch.Size([1])), f"{True}{None}", name.center(7, "*"), "x" "y", name.partition("b"),  # noqa: E501
        )  # fmt: skip

    return f


@cases()
def text_argument():
    def f(x, name):
        return (x * 2, name + "!") if name.isupper() else (x, name.title())

    return f, [(t(2), "ABC"), (t(2), "ABC")]


@cases()
def numbers():
    def f(x, n, r):
        z = complex(1, 2)
        return (
            x * n + r, n // 2, n % 3, -n, n**2, n / 2, divmod(n, 2), n & 1, n | 8, n ^ 1, ~n, n << 2,  # noqa: E501
            round(r, 1), int(r), float(n), bool(n), abs(-r), z * 2, z.real, (5).bit_length(),
            max(n, r), sum([n, r]), n == 7, n < r, 1_000, 0x10, hex(n), r.is_integer(), 10**20,
        )  # fmt: skip

    return f, [(t(2), 7, 2.5), (t(2), 7, 2.5)]


@cases(graphs=4, recompiles=3)
def numbers_change():
    return lambda x, n: x * n, [(t(2), 1), (t(2), 2), (t(2), 2.0), (t(2), True), (t(2), 1)]


@cases()
def heaps_and_json():
    def f(x):
        h = [3, 1, 2]
        heapq.heapify(h)
        heapq.heappush(h, 0)
        return x + heapq.heappop(h), h, heapq.nlargest(2, h), json.dumps({"a": [1, None]})

    return f


@cases()
def slices_and_ranges():
    def f(x):
        r = range(10, 0, -3)
        s = slice(0, 2)
        return (
            x[s],
            list(r),
            r[1],
            len(r),
            4 in r,
            s.start,
            s.indices(5),
            [*range(3)],
            r[::2],
            x[:, s],
        )

    return f


@cases()
def self_referring_containers():
    def f(x):
        a = [x]
        a.append(a)
        d = {"a": a}
        d["d"] = d
        return a, d, a[1][1][0] + 1

    return f


@cases(graphs=2, breaks=3)
def containers_with_a_strange_tensor():
    def f(d, seq, x):
        y = x + 1
        seq.append(y)
        d["y"] = y
        a = seq[0]
        print(len(d))
        return d["sparse"].to_dense() + seq[1], a, d

    made = [({"k": 1, "sparse": torch.eye(2).to_sparse()}, [t(2), t(2), torch.eye(2).to_sparse()], t(2)) for _ in range(2)]  # fmt: skip # noqa: E501
    return f, made


@cases(graphs=2, recompiles=1)
def self_referring_argument():
    def f(a):
        a.append(a[0] + 1)
        return a[1] is a

    a, b = [t(2)], [t(3)]
    a.append(a)
    b.append(b)
    return f, [(a,), (b,)]


@cases(recompiles=1, graphs=2)
def lengths_change():
    def f(seq):
        total = 0
        for v in seq:
            total = total + v
        return total

    return f, [([t(2), t(2)],), ([t(2), t(2), t(2)],), ([t(2), t(2)],)]


@cases()
def returned_containers_are_fresh():
    def f(x):
        return [x + 1], {"k": []}, ()

    return f, [(t(2),)] * 2


@cases()
def argument_container_returned():
    def f(d, x):
        d["y"] = x + 1
        return d, d["x"], [d]

    return f, [({"x": t(2)}, t(2)) for _ in range(2)]


@cases()
def tee_and_counts():
    def f(x):
        a, b = itertools.tee([x, x + 1])
        c = itertools.count(3, 2)
        return list(a), list(b), next(c), next(c), list(itertools.combinations([1, 2, 3], 2)), (
            list(itertools.permutations([1, 2])), list(itertools.islice(itertools.cycle([1, 2]), 3)),  # noqa: E501
        )  # fmt: skip

    return f


@pytest.mark.parametrize("case", cases, ids=str)
def test_containers(case: Case) -> None:
    assert check(case) > 0
