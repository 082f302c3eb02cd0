"""Functions: scopes, arguments, generators, iterators, context managers, exceptions."""

from conformance.rows.row import Row

ROWS = (
    Row("closure", "closures", '''
        def make():
            scale = 2
            def program(x):
                return x * scale
            def change(value):
                nonlocal scale
                scale = value
            program.change = change
            return program
        ''', ("f(x)", "model.change(3)", "f(x)"), "make()"),
    Row("counter", "closures", '''
        def make():
            calls = 0
            def program(x):
                nonlocal calls
                calls += 1
                return x * calls
            return program
        ''', ("f(x)", "f(x)", "f(x2)"), "make()"),
    Row("tensor rebound", "closures", '''
        def make():
            total = torch.zeros(4)
            def program(x):
                nonlocal total
                total = total + x
                return total * 2
            return program
        ''', ("f(x)", "f(x2)"), "make()"),
    Row("made inside", "closures", '''
        def program(x):
            n = 0
            def bump():
                nonlocal n
                n += 2
                return x * n
            return bump(), bump(), n
        '''),
    Row("returned", "closures", '''
        def program(x):
            y = x + 1
            def inner(z=2, *, w=x):
                return y * z + w
            inner.mark = [y]
            return inner
        ''', ("f(x)(3)", "f(x2)()")),
    Row("late binding", "closures", '''
        def program(x):
            late = [lambda y: y * i for i in range(3)]
            early = [lambda y, i=i: y * i for i in range(3)]
            return [g(x) for g in late], [g(x) for g in early]
        '''),
    Row("cell deleted", "closures", '''
        def program(x):
            y = x + 1
            def inner():
                return y
            found = inner()
            del y
            try:
                inner()
            except NameError as error:
                return found, str(error)
        '''),
    Row("global read", "scopes", '''
        SCALE = 2
        def program(x):
            return x * SCALE
        ''', ("f(x)", "SCALE = 5", "f(x)", "SCALE = 2", "f(x)")),
    Row("global written", "scopes", '''
        COUNT = 0
        def program(x):
            global COUNT
            COUNT += 1
            return x + COUNT
        ''', ("f(x)", "f(x)", "COUNT = 10", "f(x)")),
    Row("global made and deleted", "scopes", '''
        def program(x):
            global FRESH
            FRESH = x + 1
            y = FRESH * 2
            del FRESH
            try:
                return FRESH
            except NameError as error:
                return y, str(error)
        '''),
    Row("unbound local", "scopes", '''
        def program(x):
            if x.dim() == 9:
                y = x
            try:
                return y
            except UnboundLocalError as error:
                return x + 1, str(error)
        '''),
    Row("locals", "scopes", '''
        def program(x):
            a = x + 1
            b = 2
            return sorted(locals()), a * b
        '''),
    Row("defaults", "arguments", '''
        def program(x, scale=2.0, shift=torch.ones(4), *, flag=True):
            return x * scale + shift if flag else x - 1
        ''', ("f(x)", "f(x, 3.0)", "f(x, flag=False)", "f(x2, shift=x)")),
    Row("mutable default", "arguments", '''
        def program(x, seen=[]):
            y = x + len(seen)
            seen.append(y)
            return y, list(seen)
        ''', ("f(x)", "f(x)", "f(x2)")),
    Row("defaults replaced", "arguments", '''
        def program(x, scale=2):
            return x * scale
        ''', ("f(x)", "model.__defaults__ = (4,)", "f(x)")),
    Row("stars", "arguments", '''
        def helper(a, b, *c, d=1, **e):
            return a + b * d, c, sorted(e)
        def program(*args, **more):
            a, b = args
            return helper(*args), helper(*args, a, d=3), helper(**dict(a=a, b=b)), more["k"] * a
        ''', ("f(x, x2, k=2)", "f(x2, x, k=3)")),
    Row("wrong arguments", "arguments", '''
        def helper(a, b):
            return a
        def program(x):
            found = []
            for args, more in (((x,), {}), ((x, x, x), {}), ((x,), {"c": 1}), ((x,), {"a": 1})):
                try:
                    helper(*args, **more)
                except TypeError as error:
                    found.append(str(error))
            return x * 2, found
        '''),
    Row("unpacking", "arguments", '''
        def program(x):
            a, (b, *c), d = x[0], [x[1], x[2], 3], 4
            *e, last = range(4)
            i, j = 2, 1
            i, j = j, i
            return a + b, c, d, e, last, i, j, [*c, *e], {**{"k": a}, "l": b}
        '''),
    Row("consumed", "generators", '''
        def rows(m):
            for row in m:
                yield row * 2
            return "end"
        def delegating(m):
            got = yield from rows(m)
            yield got
        def program(m):
            return list(rows(m)), tuple(delegating(m)), sum(rows(m))
        ''', ("f(m)", "f(m2)")),
    Row("alive across a break", "generators", '''
        def items(x):
            for n in range(3):
                yield x * n
        def program(x):
            source = items(x)
            first = next(source)
            print("between")
            second = next(source)
            print("again")
            return first, second, list(source)
        '''),
    Row("break inside", "generators", '''
        def items(x):
            for n in range(3):
                y = x + n
                print("made", n)
                yield y * 2
        def program(x):
            return [y + 1 for y in items(x)]
        '''),
    Row("send, throw, close", "generators", '''
        def rounds(x, log):
            try:
                while True:
                    try:
                        x = x + (yield x)
                    except ValueError as error:
                        log.append(str(error))
            finally:
                log.append("closed")
        def program(x):
            log = []
            it = rounds(x, log)
            found = [next(it), it.send(2), it.throw(ValueError("v"))]
            it.close()
            return found, next(it, "over"), log
        '''),
    Row("returned", "generators", '''
        def program(x):
            y = x * 2
            return (y + n for n in range(3))
        ''', ("list(f(x))", "list(f(x2))")),
    Row("passed in", "generators", '''
        def program(x, it):
            return x + next(it), [x * n for n in it]
        ''', ("f(x, iter([1, 2, 3]))", "f(x, (n for n in (4, 5)))")),
    Row("kept in a global", "generators", '''
        import itertools
        NUMBERS = itertools.count(1)
        def program(x):
            return x * next(NUMBERS)
        ''', ("f(x)", "f(x)", "f(x2)")),
    Row("written as a class", "context managers", '''
        LOG = []
        class Noted:
            def __init__(self, name):
                self.name = name
            def __enter__(self):
                LOG.append(("in", self.name))
                return self
            def __exit__(self, kind, value, traceback):
                LOG.append(("out", self.name, kind and kind.__name__))
                return kind is KeyError
        def program(x):
            with Noted("a") as a, Noted("b"):
                y = x + len(a.name)
            with Noted("c"):
                y = y * 2
                {}["missing"]
            return y, len(LOG)
        '''),
    Row("break inside", "context managers", '''
        class Noted:
            def __enter__(self):
                print("in")
            def __exit__(self, kind, value, traceback):
                print("out", kind and kind.__name__)
        def program(x):
            with Noted():
                y = x + 1
                print("inside", y.shape[0])
                y = y * 2
            return y - 1
        '''),
    Row("contextlib", "context managers", '''
        import contextlib
        @contextlib.contextmanager
        def scaled(x, log):
            log.append("in")
            try:
                yield x * 2
            finally:
                log.append("out")
        def program(x):
            log = []
            with contextlib.ExitStack() as stack:
                y = stack.enter_context(scaled(x, log))
                stack.callback(log.append, "called")
            with contextlib.suppress(IndexError), scaled(y, log) as z:
                [][1]
            with contextlib.nullcontext(z) as z:
                pass
            return z + y, log
        '''),
    Row("no_grad with a break", "context managers", '''
        def program(w):
            with torch.no_grad():
                a = w * 2
                print("quiet", torch.is_grad_enabled())
                b = w * 3
            c = w * 4
            return a.requires_grad, b.requires_grad, a + b, c
        ''', ("f(w)", "no_grad: f(w)", "f(w2)"), backward=True),
    Row("mode left on", "context managers", '''
        def program(w, mode):
            before = torch.is_grad_enabled()
            with torch.set_grad_enabled(mode):
                inner = w * 2
            return before, torch.is_grad_enabled(), inner.requires_grad, inner.detach()
        ''', ("f(w, True)", "f(w, False)", "no_grad: f(w, True)")),
    Row("try and finally", "exceptions", '''
        LOG = []
        def program(x, fail):
            try:
                y = x + 1
                if fail:
                    raise ValueError("asked for")
                return y
            except ValueError as error:
                LOG.append(str(error))
                return x - 1
            finally:
                LOG.append("finally")
        ''', ("f(x, False)", "f(x, True)", "f(x2, False)")),
    Row("finally around a break", "exceptions", '''
        def program(x):
            try:
                y = x * 2
                print("try")
                y = y + 1
            finally:
                print("finally")
            return y
        '''),
    Row("raised to the caller", "exceptions", '''
        LOG = []
        class Mine(Exception):
            pass
        def program(x, n):
            LOG.append(n)
            y = x + n
            if n > 1:
                raise Mine(f"n is {n}")
            return y
        ''', ("f(x, 1)", "f(x, 2)", "f(x, 1)")),
    Row("raised after a mutation", "exceptions", '''
        def program(x, seen):
            x.add_(1)
            seen.append(x.shape[0])
            raise RuntimeError("after")
        ''', ("SEEN = []", "f(x, SEEN)", "f(x, SEEN)")),
    Row("chained", "exceptions", '''
        def program(x):
            try:
                try:
                    {}["k"]
                except KeyError as error:
                    raise ValueError("outer") from error
            except ValueError as error:
                return x + 1, repr(error), repr(error.__cause__), error.__suppress_context__
        '''),
    Row("context and reraise", "exceptions", '''
        def inner(n):
            try:
                return 1 // n
            except ZeroDivisionError:
                raise
        def program(x, n):
            try:
                return x * inner(n)
            except ArithmeticError as error:
                return x, str(error), type(error).__name__
            else:
                return None
        ''', ("f(x, 1)", "f(x, 0)")),
    Row("of torch", "exceptions", '''
        def program(x, m):
            try:
                return x @ m
            except RuntimeError as error:
                return x + 1, type(error).__name__
        ''', ("f(x, m)", "f(x, big.t())")),
    Row("nested blocks", "exceptions", '''
        def program(x):
            log = []
            for n in range(4):
                try:
                    if n == 1:
                        continue
                    if n == 3:
                        break
                    log.append(n)
                finally:
                    log.append(-n)
            else:
                log.append("never")
            return x + sum(log), log
        '''),
    Row("assertion", "exceptions", '''
        def program(x):
            try:
                assert x.dim() == 3, f"not {x.dim()}"
            except AssertionError as error:
                return x + 1, str(error)
        '''),
    Row("groups", "exceptions", '''
        def program(x):
            found = []
            try:
                raise ExceptionGroup("two", [ValueError("v"), KeyError("k")])
            except* ValueError as group:
                found.append(str(group.exceptions[0]))
            except* KeyError as group:
                found.append(len(group.exceptions))
            return x * 2, found
        '''),
)  # fmt: skip
