"""The standard library in programs: iterators, collections, text, numbers, contexts, signatures."""

from conformance.rows.row import Row

ROWS = (
    Row(
        "operator",
        "library",
        """
        import operator
        class A:
            def __init__(self, v):
                self.v = v
                self.c = self
            def m(self, k, p=1):
                return self.v * k + p
        def program(x):
            a = A(x)
            return (
                operator.attrgetter("c.c.v", "v")(a),
                operator.methodcaller("m", 2, p=3)(a),
                operator.itemgetter(1, 0)([x, 2]),
                operator.itemgetter(slice(0, 2))([1, 2, 3]),
                operator.index(True),
                operator.concat([1], [2]),
                operator.length_hint(iter([1, 2])),
                operator.countOf([1, 1, 2], 1),
            )
        """,
    ),
    Row(
        "itertools",
        "library",
        """
        import itertools as it, operator
        def program(x, n):
            c = it.count(10, -3)
            cy = it.cycle("ab")
            a, b = it.tee(iter(range(3)))
            return (
                x * next(c) + next(c),
                [next(cy) for _ in range(n)],
                list(a),
                list(it.islice(b, 1, None)),
                list(it.chain("ab", [1])),
                list(it.compress("abcd", [1, 0, 1])),
                list(it.dropwhile(lambda v: v < 2, [1, 2, 1])),
                list(it.takewhile(bool, [1, 0, 1])),
                [(k, list(g)) for k, g in it.groupby([1, 1, 2], lambda v: v % 2)],
                list(it.starmap(pow, [(2, 3)])),
                list(it.zip_longest("ab", [1], fillvalue=x)),
                list(it.permutations([1, 2, 3], 2))[:2],
                list(it.combinations_with_replacement("ab", 2)),
                list(it.accumulate([1, 2, 3], operator.mul, initial=2)),
                list(it.filterfalse(None, [0, 1])),
                list(it.repeat(x, 2)),
                list(it.pairwise([1, 2, 3])),
                len(list(it.product([0, 1], repeat=2))),
            )
        """,
        ("f(x, 3)", "f(x, 3)", "f(x2, 2)"),
    ),
    Row(
        "collections",
        "library",
        """
        import heapq, bisect, collections
        HEAP = [5, 1, 4]
        def program(x, n):
            heapq.heapify(HEAP)
            heapq.heappush(HEAP, n)
            top = heapq.heappop(HEAP)
            bisect.insort(L := [1, 3, 5], n, key=lambda v: v)
            c = collections.Counter("abca")
            c.update(b=n)
            c.subtract("a")
            d = collections.deque([1, 2, 3], maxlen=3)
            d.append(n)
            d.rotate(1)
            d.extendleft([9])
            cm = collections.ChainMap({"a": x}, {"a": 1, "b": n})
            cm["c"] = 2
            od = collections.OrderedDict(a=1, b=2)
            od.move_to_end("a")
            od.popitem(last=False)
            return (
                cm["a"] * top + cm["b"],
                HEAP,
                L,
                c.most_common(2),
                c.total(),
                d,
                od,
                list(heapq.merge([1, 4], [2, 3])),
                heapq.nlargest(2, HEAP),
                cm.maps[0].keys() == {"a", "c"},
                +c,
            )
        """,
        ("f(x, 2)", "f(x, 2)", "HEAP[:] = [9, 8]", "f(x2, 7)"),
    ),
    Row(
        "text",
        "library",
        """
        import string, re, json, textwrap
        PAT = re.compile(r"(?P<k>\\w+)=(?P<v>\\d+)")
        def program(x, s):
            t = string.Template("$a and ${b} $$").substitute(a=s, b=x.shape[0])
            m = PAT.search(s)
            n = int(m["v"]) if m else 0
            j = json.loads(
                json.dumps(
                    {"a": [1, 2.5, None, True], "s": s, "n": {"k": n}}, sort_keys=True
                )
            )
            return (
                x * (n + j["n"]["k"]),
                t,
                re.sub(r"\\d", lambda q: str(int(q[0]) + 1), s),
                re.split("[=,]", s),
                [q.span() for q in PAT.finditer(s)],
                f"{n:>5}|{n!r:<4}|{s:*^12}|{x.shape}",
                "%s-%05.1f-%r" % (s, n, s),
                "{0[0]} {1.dtype} {k!s}".format([1], x, k=n),
                s.translate(str.maketrans("=", ":")),
                textwrap.dedent("  a\\n  b"),
                m.groupdict() if m else None,
                string.capwords("a b"),
            )
        """,
        ("f(x, 'a=1')", "f(x, 'a=1')", "f(x2, 'bb=23,c=4')", "f(x, 'none')"),
    ),
    Row(
        "exact numbers",
        "library",
        """
        import decimal, fractions, math, cmath, statistics
        def program(x, n):
            d = decimal.Decimal("1.10") * n
            fr = fractions.Fraction(n, 3) + 1
            with decimal.localcontext() as c:
                c.prec = 4
                q = decimal.Decimal(1) / 3
            return (
                x * float(d) + float(fr),
                d,
                fr,
                q,
                fr.numerator,
                math.comb(5, n),
                math.isclose(0.1 + 0.2, 0.3),
                divmod(-7, n),
                round(2.675, 2),
                (n).bit_length(),
                int.from_bytes(b"\\x01\\x02", "big"),
                complex(1, n) ** 2,
                statistics.mean([1, 2, n]),
                float.hex(0.5),
                (-n) // 2,
                pow(3, n, 5),
                math.prod([n, 2]),
                math.hypot(3, 4),
            )
        """,
        ("f(x, 2)", "f(x, 2)", "f(x2, 4)"),
    ),
    Row(
        "dates",
        "library",
        """
        import datetime, calendar
        EPOCH = datetime.datetime(2020, 1, 31, 12, 0)
        def program(x, n):
            d = EPOCH + datetime.timedelta(days=n, hours=5)
            return (
                x * d.day + (d - EPOCH).total_seconds() / 3600,
                d.isoformat(),
                d.strftime("%Y-%m"),
                d.weekday(),
                d > EPOCH,
                d.replace(day=1).date(),
                calendar.monthrange(2020, 2),
                datetime.date.fromisoformat("2020-02-03").toordinal(),
            )
        """,
        ("f(x, 1)", "f(x, 1)", "f(x2, 30)"),
    ),
    Row(
        "contexts",
        "library",
        """
        import contextlib, io
        LOG = []
        class C:
            def __init__(self, n, eat=False):
                self.n = n
                self.eat = eat
            def __enter__(self):
                LOG.append(("in", self.n))
                return self.n
            def __exit__(self, t, v, tb):
                LOG.append(("out", self.n, t and t.__name__))
                return self.eat
        class Closer:
            def close(self):
                LOG.append("closed")
        def program(x, bad):
            with contextlib.ExitStack() as st:
                n = st.enter_context(C(1))
                st.callback(LOG.append, "cb")
                st.push(lambda *e: LOG.append(e[0] and e[0].__name__) or True)
                st.enter_context(C(2))
                if bad:
                    raise KeyError("k")
                keep = st.pop_all()
            if not bad:
                keep.close()
            with contextlib.suppress(ValueError, KeyError):
                x = x + 1
                int("z")
                x = x * 100
            with contextlib.closing(Closer()), contextlib.nullcontext(5) as five:
                x = x * five
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                print("hi", x.shape[0], end="!")
            return x * n, LOG[-8:], out.getvalue()
        """,
        ("f(x, False)", "f(x, True)", "LOG.clear()", "f(x2, False)"),
    ),
    Row(
        "signatures",
        "library",
        """
        import inspect, functools
        def deco(f):
            @functools.wraps(f)
            def w(*a, **k):
                b = inspect.signature(f).bind(*a, **k)
                b.apply_defaults()
                return f(*b.args, **b.kwargs) + len(b.arguments)
            return w
        @deco
        def g(t, k: int = 2, *rest, z=1):
            return t * k + z
        class A:
            def m(self, q, *, r=3):
                pass
        def program(x):
            s = inspect.signature(g)
            return (
                g(x, z=4),
                list(s.parameters),
                s.parameters["k"].default,
                str(s),
                s.parameters["rest"].kind.name,
                str(inspect.signature(A().m)),
                inspect.isfunction(g),
                inspect.getdoc(g),
                inspect.unwrap(g).__name__,
                g.__wrapped__.__defaults__,
                inspect.ismethod(A().m),
                callable(A),
                inspect.isgeneratorfunction(program),
            )
        """,
    ),
    Row(
        "dispatch",
        "library",
        """
        import functools
        @functools.singledispatch
        def show(v):
            return "obj"
        @show.register
        def _(v: int):
            return v + 1
        @show.register(list)
        def _l(v):
            return [show(i) for i in v]
        @show.register(torch.Tensor)
        def _t(v):
            return v * 2
        class P:
            @functools.singledispatchmethod
            def go(self, v):
                return "d"
            @go.register
            def _(self, v: str):
                return v * 2
            @functools.cached_property
            def cp(self):
                LOG.append("cp")
                return 4
            pm = functools.partialmethod(lambda self, a, b: a + b, 5)
        LOG = []
        @functools.total_ordering
        class O:
            def __init__(self, n):
                self.n = n
            def __eq__(self, o):
                return self.n == o.n
            def __lt__(self, o):
                return self.n < o.n
        PP = P()
        def program(x):
            return (
                show(x),
                show([1, "a", x]),
                show(None),
                P().go("ab"),
                P().go(1),
                PP.cp + PP.cp,
                LOG,
                PP.pm(3),
                O(1) >= O(0),
                max(O(1), O(3)).n,
                functools.reduce(lambda a, b: a * b, [x, 2, 3], 1),
                functools.partial(show, 3)(),
            )
        """,
    ),
    Row(
        "threads' own",
        "library",
        """
        import threading, queue
        TL = threading.local()
        LOCK = threading.Lock()
        Q = queue.Queue()
        def program(x):
            TL.n = getattr(TL, "n", 0) + 1
            with LOCK:
                y = x * TL.n
            Q.put(TL.n)
            Q.put(5)
            return (
                y,
                Q.get(),
                Q.qsize(),
                LOCK.locked(),
                threading.current_thread() is threading.main_thread(),
            )
        """,
    ),
)
