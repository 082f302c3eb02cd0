"""Warnings, context variables, coroutines driven by hand, and caches."""

from conformance.rows.row import Row

ROWS = (
    Row(
        "silenced",
        "warnings",
        """
        import warnings
        def program(x):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = x + 1
                warnings.warn("quiet")
            return y * 2
        """,
    ),
    Row(
        "recorded",
        "warnings",
        """
        import warnings
        def program(x):
            with warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("always")
                y = x + 1
                warnings.warn("one")
                warnings.warn("two", DeprecationWarning)
            return (
                y * len(log),
                [str(w.message) for w in log],
                [w.category.__name__ for w in log],
            )
        """,
    ),
    Row(
        "one kind silenced",
        "warnings",
        """
        import warnings
        def program(x):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="bad.*", category=UserWarning)
                warnings.warn("bad thing")
                warnings.warn("good thing")
                y = x.sin()
            warnings.warn("bad thing")
            return y * 2
        """,
    ),
    Row(
        "made an error",
        "warnings",
        """
        import warnings
        def program(x):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    warnings.warn("now an error")
                except UserWarning as e:
                    x = x + len(str(e))
            return x * 2
        """,
    ),
    Row(
        "silenced for a callee",
        "warnings",
        """
        import warnings
        def quiet(f, x):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                return f(x)
        def inner(x):
            warnings.warn("u")
            warnings.warn("r", RuntimeWarning)
            return x * 2
        def program(x):
            y = quiet(inner, x)
            return inner(y)
        """,
    ),
    Row(
        "shown by the program",
        "warnings",
        """
        import warnings
        SEEN = []
        def show(message, category, filename, lineno, file=None, line=None):
            SEEN.append((str(message), category.__name__))
        def program(x):
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.showwarning = show
                warnings.warn("hear")
                y = x * len(SEEN)
            return y
        """,
    ),
    Row(
        "shown once",
        "warnings",
        """
        import warnings
        def speak(k):
            warnings.warn("one thing")
            warnings.warn(f"thing {k}", RuntimeWarning)
        def program(x):
            with warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("once")
                speak(1)
                speak(1)
                speak(2)
            n = len(log)
            with warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("default")
                speak(1)
                speak(1)
                speak(2)
            m = len(log)
            with warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("module")
                speak(1)
                speak(1)
                speak(2)
            return x * n, m, len(log)
        """,
    ),
    Row(
        "block left by an exception",
        "warnings",
        """
        import warnings
        def program(x):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    raise ValueError("x")
            except ValueError as e:
                warnings.warn("after " + str(e))
            return x + 1
        """,
    ),
    Row(
        "block left by another call",
        "warnings",
        """
        import warnings
        class Quiet:
            def __init__(self):
                self.m = warnings.catch_warnings()
            def __enter__(self):
                self.m.__enter__()
                warnings.simplefilter("ignore", UserWarning)
                return self
            def __exit__(self, *e):
                self.m.__exit__(*e)
        HELD = Quiet()
        def program(x, first):
            if first:
                HELD.__enter__()
                warnings.warn("quiet")
            else:
                warnings.warn("quiet too")
                HELD.__exit__(None, None, None)
                HELD.__init__()
                warnings.warn("loud")
            return x * 2
        """,
        ("f(x, True)", "f(x, False)", "f(x2, True)", "f(x2, False)"),
    ),
    Row(
        "of a class of its own",
        "warnings",
        """
        import warnings
        class Mine(UserWarning):
            def __init__(self, code):
                super().__init__("code", code)
                self.code = code
        def program(x):
            with warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("always")
                warnings.warn(Mine(3))
                warnings.warn("text", Mine)
            return (
                x + log[0].message.code,
                log[1].message.code,
                str(log[1].message),
                log[0].category is Mine,
            )
        """,
    ),
    Row(
        "set and reset",
        "context variables",
        """
        import contextvars
        V = contextvars.ContextVar("V", default=1)
        def program(x):
            t = V.set(V.get() + 1)
            y = x * V.get()
            V.reset(t)
            return y + V.get(), t.var is V, t.old_value is contextvars.Token.MISSING
        """,
    ),
    Row(
        "kept between calls",
        "context variables",
        """
        import contextvars
        V = contextvars.ContextVar("V", default=1)
        def program(x):
            V.set(V.get() + 1)
            return x * V.get()
        """,
        ("f(x)", "f(x)", "V.set(10)", "f(x2)"),
    ),
    Row(
        "reset by another call",
        "context variables",
        """
        import contextvars
        V = contextvars.ContextVar("V", default=1)
        TOKENS = []
        def program(x, leave):
            if leave:
                V.reset(TOKENS.pop())
            else:
                TOKENS.append(V.set(V.get() * 2))
            return x * V.get()
        """,
        ("f(x, False)", "f(x, False)", "f(x, True)", "f(x2, True)"),
    ),
    Row(
        "run in a copy",
        "context variables",
        """
        import contextvars
        V = contextvars.ContextVar("V", default=1)
        def inner(x, k=1):
            V.set(V.get() + k)
            return x * V.get()
        def program(x):
            c = contextvars.copy_context()
            y = c.run(inner, x, k=3)
            z = c.run(inner, x)
            return y, z, V.get(), c[V], V in c, c.get(V)
        """,
    ),
    Row(
        "run in a context",
        "context variables",
        """
        import contextvars
        V = contextvars.ContextVar("V", default=1)
        CTX = contextvars.copy_context()
        def inner(x):
            V.set(V.get() + 1)
            return x * V.get()
        def program(x):
            return CTX.run(inner, x), V.get()
        """,
        ("f(x)", "f(x)", "CTX.run(V.set, 10)", "f(x2)"),
    ),
    Row(
        "set in a block",
        "context variables",
        """
        import contextvars, contextlib
        MODE = contextvars.ContextVar("MODE", default="train")
        @contextlib.contextmanager
        def mode(m):
            t = MODE.set(m)
            try:
                yield m
            finally:
                MODE.reset(t)
        class Layer(torch.nn.Module):
            def forward(self, x):
                return x * 2 if MODE.get() == "train" else x
        L = Layer()
        def program(x):
            a = L(x)
            with mode("eval") as m:
                b = L(x)
                with mode("train"):
                    c = L(x)
            return a, b, c, m, MODE.get()
        """,
    ),
    Row(
        "a context after an exception",
        "context variables",
        """
        import contextvars
        V = contextvars.ContextVar("V", default=1)
        def bad(x):
            V.set(7)
            raise ValueError("inside")
        def program(x):
            c = contextvars.copy_context()
            try:
                c.run(bad, x)
            except ValueError as e:
                x = x + len(str(e))
            return x, V.get(), c[V], list(c.keys()) == [V], len(c)
        """,
    ),
    Row(
        "set by a generator",
        "context variables",
        """
        import contextvars
        V = contextvars.ContextVar("V", default=1)
        def gen(x):
            t = V.set(2)
            yield x * V.get()
            V.reset(t)
            yield x * V.get()
        def program(x):
            g = gen(x)
            a = next(g)
            n = V.get()
            b = next(g)
            return a, b, n, V.get()
        """,
    ),
    Row(
        "sent into",
        "coroutines",
        """
        async def inner(x):
            return x * 2
        async def outer(x):
            y = await inner(x)
            return y + 1
        def program(x):
            c = outer(x)
            try:
                c.send(None)
            except StopIteration as e:
                return e.value
        """,
    ),
    Row(
        "own awaitable",
        "coroutines",
        """
        class Wait:
            def __init__(self, v):
                self.v = v
            def __await__(self):
                got = yield self.v
                return got
        async def outer(x):
            a = await Wait(x)
            b = await Wait(x * a)
            return a + b
        def program(x):
            c = outer(x)
            first = c.send(None)
            second = c.send(3)
            try:
                c.send(5)
            except StopIteration as e:
                return first, second, e.value
        """,
    ),
    Row(
        "driven",
        "coroutines",
        """
        import types
        @types.coroutine
        def pause(v):
            got = yield v
            return got
        async def work(x, n):
            total = x
            for i in range(n):
                total = total + await pause(i)
            return total
        def drive(c):
            sent = None
            log = []
            while True:
                try:
                    log.append(c.send(sent))
                    sent = len(log)
                except StopIteration as e:
                    return e.value, log
        def program(x):
            return drive(work(x, 3))
        """,
    ),
    Row(
        "loop",
        "coroutines",
        """
        class Count:
            def __init__(self, n):
                self.n = n
                self.i = 0
            def __aiter__(self):
                return self
            async def __anext__(self):
                if self.i >= self.n:
                    raise StopAsyncIteration
                self.i += 1
                return self.i
        async def main(x):
            async for i in Count(3):
                x = x * i
            else:
                x = x + 1
            return x, [i async for i in Count(2)]
        def program(x):
            try:
                main(x).send(None)
            except StopIteration as e:
                return e.value
        """,
    ),
    Row(
        "block",
        "coroutines",
        """
        LOG = []
        class Ctx:
            async def __aenter__(self):
                LOG.append("in")
                return 3
            async def __aexit__(self, k, e, t):
                LOG.append(("out", k and k.__name__))
                return True
        async def main(x):
            async with Ctx() as n:
                x = x * n
            async with Ctx():
                raise ValueError
            return x
        def program(x):
            try:
                main(x).send(None)
            except StopIteration as e:
                return e.value
        """,
    ),
    Row(
        "generator",
        "coroutines",
        """
        async def agen(x, n):
            try:
                for i in range(n):
                    yield x * i
            finally:
                x.add(1)
        async def main(x):
            out = []
            async for v in agen(x, 3):
                out.append(v)
            g = agen(x, 2)
            out.append(await g.__anext__())
            out.append(await g.asend(None))
            await g.aclose()
            return out
        def program(x):
            try:
                main(x).send(None)
            except StopIteration as e:
                return e.value
        """,
    ),
    Row(
        "comprehension",
        "coroutines",
        """
        async def double(v):
            return v * 2
        async def main(x):
            return {i: await double(x + i) for i in range(3)}, [
                await double(i) for i in range(2)
            ]
        def program(x):
            c = main(x)
            try:
                c.send(None)
            except StopIteration as e:
                r = e.value
            return r, type(c).__name__
        """,
    ),
    Row(
        "thrown into",
        "coroutines",
        """
        class Wait:
            def __await__(self):
                yield 1
        LOG = []
        async def outer(x):
            try:
                await Wait()
            except KeyError:
                LOG.append("key")
                return x
            finally:
                LOG.append("fin")
        def program(x):
            c = outer(x)
            c.send(None)
            try:
                c.throw(KeyError("k"))
            except StopIteration as e:
                r = e.value
            d = outer(x)
            d.send(None)
            d.close()
            return r + len(LOG), c.cr_running
        """,
    ),
    Row(
        "of the frame",
        "caches",
        """
        import functools
        def program(x):
            @functools.lru_cache(maxsize=None)
            def fib(n):
                return n if n < 2 else fib(n - 1) + fib(n - 2)
            y = x * fib(10)
            torch._dynamo.graph_break()
            i = fib.cache_info()
            return y, i.hits, i.misses, i.currsize
        """,
    ),
    Row(
        "evicts",
        "caches",
        """
        import functools
        CALLS = []
        def program(x):
            @functools.lru_cache(maxsize=2)
            def g(n):
                CALLS.append(n)
                return n * 2
            y = x * g(1) + g(2) + g(1)
            torch._dynamo.graph_break()
            y = y + g(2) + g(3) + g(1)
            i = g.cache_info()
            g.cache_clear()
            return y, tuple(i), tuple(g.cache_info())
        """,
    ),
    Row(
        "hits are counted",
        "caches",
        """
        import functools
        @functools.lru_cache(maxsize=8)
        def g(n):
            return n * 2
        def program(x, n):
            y = x * g(n) + g(n)
            i = g.cache_info()
            return y, i.hits, i.misses
        """,
        ("f(x, 1)", "f(x, 1)", "f(x, 2)", "g.cache_clear()", "f(x2, 2)"),
    ),
)
