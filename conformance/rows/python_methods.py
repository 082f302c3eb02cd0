"""What C code asks objects for, and what programs keep in classes and caches."""

from conformance.rows.row import Row

ROWS = (
    Row("keys with hashes of their own", "special methods", '''
        class Key:
            def __init__(self, n):
                self.n = n
            def __hash__(self):
                return hash(self.n)
            def __eq__(self, other):
                return type(other) is Key and self.n == other.n
            def __repr__(self):
                return f"Key({self.n})"
        KNOWN = {Key(1): 2.0}
        def program(x, n):
            d = {Key(1): x, Key(n): x * 2}
            d[Key(1)] = d.pop(Key(n)) + len({Key(1), Key(n)})
            return d[Key(1)] * KNOWN.get(Key(n), 3.0), Key(n) in KNOWN, len(d), {(1, Key(2)): n}
        ''', ("f(x, 1)", "f(x, 2)", "KNOWN[Key(2)] = 5.0", "f(x2, 2)")),
    Row("order and equality of objects", "special methods", '''
        import bisect
        import heapq
        class Item:
            def __init__(self, n):
                self.n = n
            def __eq__(self, other):
                return self.n == other.n
            def __lt__(self, other):
                ASKED.append((self.n, other.n))
                return self.n < other.n
        ASKED = []
        def program(x, *numbers):
            items = [Item(n) for n in numbers]
            heap = items[:]
            heapq.heapify(heap)
            ordered = sorted([(0, item) for item in items])
            found = bisect.bisect([item for _, item in ordered], Item(2)), items.index(Item(1))
            items.remove(Item(1))
            return x * heap[0].n, [i.n for _, i in ordered], found, items == heap, min(items).n
        ''', ("f(x, 3, 1, 2)", "f(x, 1, 5)", "f(x2, 3, 1, 2)", "list(ASKED)")),
    Row("numbers and truths of objects", "special methods", '''
        import itertools
        import math
        class N:
            def __init__(self, n):
                self.n = n
            def __index__(self):
                return self.n
            def __float__(self):
                return self.n / 2
            def __bool__(self):
                return self.n > 1
            def __repr__(self):
                return f"N{self.n}"
        def program(x, n):
            items = [10, 20, 30, 40]
            chosen = list(filter(None, [N(1), n])), list(itertools.compress("ab", [n, N(0)]))
            return (x * math.sqrt(N(8)) + items[n], items[N(0):n], "ab" * n, hex(n), any([N(0), n]),
                    f"{[n]} {(n,)!s} %r" % {"n": n}, str(chosen), x[N(0)])
        ''', ("f(x, N(1))", "f(x, N(3))", "f(x2, N(3))")),
    Row("lengths that C code asks for", "special methods", '''
        class Sized:
            def __init__(self, n):
                self.n = n
            def __len__(self):
                ASKED.append("len")
                return self.n
            def __iter__(self):
                ASKED.append("iter")
                return iter(range(self.n))
        ASKED = []
        def program(x, s):
            found = list(s), tuple(s), [*s], sorted(s), sum(s), "".join(map(str, s)), set(s)
            items = []
            items.extend(s)
            return x + len(items), found, items
        ''', ("f(x, Sized(2))", "f(x, Sized(3))", "f(x2, Sized(2))", "list(ASKED)")),
    Row("attributes of classes", "classes", '''
        class Base:
            made = 0
            last = None
            def __init__(self):
                type(self).made += 1
        class Sub(Base):
            pass
        def program(x, delete):
            Base(), Sub(), Sub()
            Base.last = x * 2
            if delete:
                del Sub.made
            return x + Sub.made, Base.made, Sub.last + 1
        ''', ("f(x, False)", "f(x, False)", "f(x, True)", "Base.made = 10", "f(x2, False)")),
    Row("generators that are dropped", "generators", '''
        LOG = []
        def values(x, name):
            try:
                yield x
                yield x * 2
            finally:
                LOG.append(name)
        def program(x, n):
            held = {0: values(x, "dict")}
            total = next(held[0])
            held.pop(0)
            LOG.append("popped")
            for v in values(x, "loop"):
                total = total + v * n
                break
            LOG.append("left")
            return total
        ''', ("f(x, 1)", "f(x, 1)", "list(LOG)", "f(x2, 2)", "list(LOG)")),
    Row("caches of functions", "functools", '''
        import functools
        @functools.lru_cache
        def sizes(n):
            return [n, n + 1]
        def program(x, n):
            calls = []
            @functools.lru_cache
            def scaled(k):
                calls.append(k)
                return x * k
            return (scaled(n) + scaled(n) + scaled(2), calls, scaled.cache_info().hits, sizes(n),
                    sizes(n) is sizes(n))
        ''', ("f(x, 1)", "f(x, 2)", "sizes.cache_clear()", "f(x2, 1)")),
)  # fmt: skip
