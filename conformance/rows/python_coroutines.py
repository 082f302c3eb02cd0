"""Coroutines that are driven by hand, contexts of variables, exceptions that are handled."""

from conformance.rows.row import Row

_DRIVE = """
        def drive(coroutine, *sent):
            seen = []
            try:
                seen.append(coroutine.send(None))
                for value in sent:
                    seen.append(coroutine.send(value))
            except StopIteration as end:
                seen.append(end.value)
            return seen
        class Wait:
            def __init__(self, v):
                self.v = v
            def __await__(self):
                got = yield self.v
                return self.v * 2 + got
"""

ROWS = (
    Row(
        "awaiting",
        "coroutines",
        f"""{_DRIVE}
        async def inner(x):
            return x + 1
        async def outer(x):
            a = await inner(x)
            b = await Wait(a)
            return a - b
        def program(x, n):
            c = outer(x)
            found = drive(c, n)
            try:
                drive(c)
            except RuntimeError as e:
                found.append(str(e))
            return found, c.cr_running, c.cr_frame
        """,
        ("f(x, 1)", "f(x, 1)", "f(x2, 3)"),
    ),
    Row(
        "asynchronous blocks",
        "coroutines",
        f"""{_DRIVE}
        class Scope:
            def __init__(self, log):
                self.log = log
            async def __aenter__(self):
                self.log.append("enter")
                return await Wait(1)
            async def __aexit__(self, kind, error, traceback):
                self.log.append(kind and kind.__name__)
                return True
        class Upwards:
            def __init__(self, x, n):
                self.x, self.n = x, n
            def __aiter__(self):
                return self
            async def __anext__(self):
                if not self.n:
                    raise StopAsyncIteration
                self.n -= 1
                return self.x + self.n
        async def multiples(x, n):
            for i in range(n):
                yield x * i
        async def main(x, n, log):
            async with Scope(log) as k:
                x = x * k
                if n > 1:
                    raise ValueError
                x = x + 1
            async for y in Upwards(x, n):
                x = x + y
            else:
                x = x - 1
            return x, [y async for y in multiples(x, n)]
        def program(x, n):
            log = []
            return drive(main(x, n, log), 3), log
        """,
        ("f(x, 1)", "f(x2, 2)", "f(x, 1)"),
    ),
    Row(
        "thrown into and closed",
        "coroutines",
        f"""{_DRIVE}
        async def guarded(x, log):
            try:
                await Wait(x)
            except KeyError as e:
                log.append(repr(e))
                return x * 5
            finally:
                log.append("end")
        def program(x):
            log = []
            c = guarded(x, log)
            c.send(None)
            try:
                c.throw(KeyError("k"))
            except StopIteration as end:
                y = end.value
            d = guarded(x, log)
            d.send(None)
            d.close()
            return y, log
        """,
    ),
    Row(
        "contexts",
        "contexts of variables",
        """
        import contextvars
        V = contextvars.ContextVar("V", default=1)
        W = contextvars.ContextVar("W")
        OUTSIDE = contextvars.copy_context()
        OUTSIDE.run(V.set, 7)
        def put(value):
            V.set(value)
            return V.get()
        def program(x, n):
            V.set(n)
            copy = contextvars.copy_context()
            V.set(2)
            y = copy.run(lambda: x * V.get()) + copy.copy().run(put, 5)
            z = OUTSIDE.run(lambda: x + V.get())
            OUTSIDE.run(put, OUTSIDE[V] + 1)
            token = copy.run(W.set, x)
            try:
                W.reset(token)
            except ValueError:
                V.set(1)
            return y, z, copy[V], W in copy, copy[W] + 1, W in OUTSIDE, V.get()
        """,
        ("f(x, 1)", "f(x2, 3)", "OUTSIDE.run(V.set, 0)", "f(x, 1)"),
    ),
    Row(
        "exceptions below native code",
        "exceptions",
        """
        import sys, traceback
        def told():
            return repr(sys.exception()), traceback.format_exc(0)[-9:]
        told = torch._dynamo.disable(told)
        def program(x):
            try:
                raise ValueError("a")
            except ValueError:
                said = told()
                try:
                    raise KeyError("b")
                except KeyError as e:
                    said += (repr(e.__context__), *told())
            return x * 2, said
        """,
    ),
    Row(
        "values of C code",
        "values from outside",
        """
        import decimal, fractions
        from torch.nn.attention import SDPBackend as S
        def program(x, kind, number, part):
            y = x * int(kind), kind in (S.MATH, 7), number in (decimal.Decimal(1), 3)
            return *y, hash(part), "%s" % part
        """,
        (
            "f(x, S.MATH, decimal.Decimal(1), fractions.Fraction(1))",
            "f(x, S.FLASH_ATTENTION, decimal.Decimal(2), fractions.Fraction(2))",
            "f(x2, S.MATH, decimal.Decimal(1), fractions.Fraction(3))",
        ),
    ),
)
