"""Graph breaks wherever Python may stand: loops, blocks, inlined calls, comprehensions.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import collections
import contextlib
import sys

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


def grad(*shape):
    return torch.randn(*shape, requires_grad=True)


# ---- the plain breaks ------------------------------------------------------------------------


@cases(breaks=1, graphs=2)
def printing():
    def f(x):
        y = x + 1
        print("a", y.shape, 3)
        return y * 2

    return f


@cases(breaks=1, graphs=2)
def printing_a_tensor():
    def f(x):
        y = x + 1
        print(y)
        return y * 2

    return f


@cases(graphs=3, breaks=3)
def printing_in_order():
    def inner(x, n):
        print("inner", n)
        return x * n

    def f(x):
        y = inner(x + 1, 1)
        print("between")
        return inner(y, 2) + y

    return f


@cases(breaks=1, graphs=3, recompiles=0)
def branch_on_a_tensor():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    return f, [(torch.ones(3),), (-torch.ones(3),), (torch.ones(3),)]


@cases(graphs=3, breaks=1, recompiles=1)
def item_used():
    def f(x):
        n = x.sum().item()
        return x * n

    return f, [(torch.ones(3),), (torch.ones(3) * 2,)]


@cases(breaks=1)
def item_returned():
    def f(x):
        return (x * 2).sum().item(), "done"

    return f


@cases(breaks=3)
def values_of_tensors():
    def f(x):
        y = x.sum()
        return float(y), int(y), y.tolist(), x.shape

    return f


@cases(graphs=2, breaks=1)
def text_of_a_tensor():
    def f(x):
        y = x + 1
        s = f"{y.sum():.2f}"
        return s, y * 2

    return f


@cases(breaks=1, graphs=2)
def boolean_operators_on_tensors():
    def f(x):
        y = x.sum()
        z = y or x
        return z + 1

    return f, [(torch.ones(3),)] * 2


@cases(breaks=1, graphs=1)
def assertion_on_a_tensor():
    def f(x):
        y = x.sum()
        assert y > 100, "too small"
        return y

    return f, [(torch.ones(3),)] * 2


@cases(breaks=1, graphs=2)
def tensor_in_a_list():
    def f(x):
        y = x + 1
        found = y in [x, 3]
        return found, y * 2

    return f, [(torch.ones(1),)] * 2


@cases(breaks=1, graphs=2)
def aliases_of_types_alive():
    def f(x):
        a, b = list[int], int | None
        y = x + 1
        print("a break")
        return y * 2, a, b, a == list[int], b == int | None

    return f, [(torch.ones(3),), (torch.zeros(3),)]


@cases(graphs=2, breaks=2)
def while_on_a_tensor():
    def f(x):
        while x.sum() < 10:
            x = x + 1
        return x

    return f, [(torch.zeros(3),), (torch.ones(3),)]


@cases(breaks=1, graphs=2)
def loop_over_a_value():
    def f(x):
        n = int(x.sum())
        for _ in range(n):
            x = x + 1
        return x

    return f, [(torch.ones(3),)] * 2


@cases(breaks=1, graphs=2)
def torchs_graph_break():
    import torch._dynamo

    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    return f


@cases(breaks=1, graphs=2)
def disabled_function():
    @torch.compiler.disable
    def outside(x):
        print("native")
        return x * 2

    return lambda x: outside(x + 1) + 1


# ---- where they stand ------------------------------------------------------------------------


@cases(breaks=1, graphs=2)
def break_two_calls_deep():
    def low(x, k=2):
        y = x * k
        print("low")
        return y + 1

    def middle(x):
        z = low(x - 1)
        return z * x

    return lambda x: middle(x) + middle.__defaults__.__class__.__name__.__len__()


@cases(breaks=1, graphs=3)
def break_in_a_branch_deep():
    def low(x):
        if x.mean() > 0:
            return x + 1, "up"
        return x - 1, "down"

    def f(x):
        y, word = low(x * 2)
        return y * 3, word

    return f, [(torch.ones(3),), (-torch.ones(3),), (torch.ones(3),)]


@cases(breaks=1, graphs=2)
def break_in_a_method():
    class K:
        def __init__(self):
            self.n = torch.zeros(3)

        def run(self, x):
            self.n = self.n + x
            print("run")
            self.n = self.n * 2
            return self.n

    k = K()
    return (lambda x: k.run(x) + 1), [(t(3),)] * 3, [k]


@cases(breaks=1, graphs=2)
def break_in_init():
    class K:
        def __init__(self, x):
            self.x = x + 1
            print("init")
            self.y = self.x * 2

    def f(x):
        k = K(x)
        return k, k.y + 1

    return f


@cases(graphs=2, breaks=1)
def break_in_a_property():
    class K:
        def __init__(self, x):
            self.x = x

        @property
        def double(self):
            print("property")
            return self.x * 2

    def f(x):
        k = K(x + 1)
        y = k.double
        return y + 1

    return f


@cases(graphs=2, breaks=2, recompiles=1)
def break_in_a_loop():
    def f(x):
        out = []
        for i in range(3):
            x = x + 1
            print(i)
            out.append(x)
        return out

    return f


@cases(graphs=5, breaks=4, recompiles=3)
def an_argument_of_append_that_breaks():
    """The list that waits for it may have any length: one more at each turn."""
    every: dict = {}

    def f(x):
        losses = every.setdefault("losses", [])
        for i in range(12):
            losses.append((x * 2 + i).sum().item())
            every.update(last=(x * i).sum())
        return losses

    return f, [(torch.ones(3),), (torch.ones(3) * 2,)], [every]


@cases(graphs=3, breaks=2, recompiles=1)
def break_in_a_loop_over_tensors():
    def f(x):
        out = []
        for row in x.unbind():
            if row.sum() > 0:
                out.append(row * 2)
        return out

    return f, [(torch.ones(12, 2),), (torch.ones(12, 2),)]


@cases(graphs=5, breaks=3, recompiles=3)
def break_in_a_comprehension():
    def f(x):
        return [r.sum().item() for r in x], x + 1

    return f, [(torch.ones(12, 2),)] * 2


@cases(graphs=3, breaks=2, recompiles=1)
def break_in_a_generator():
    def rows(x):
        for r in x:
            print("row")
            yield r * 2

    def f(x):
        return sum(rows(x + 1)) * 2

    return f, [(t(2, 3),)] * 2


@cases(graphs=2, breaks=1)
def break_with_a_live_generator():
    def rows(x):
        for r in x:
            yield r * 2

    def f(x):
        it = rows(x + 1)
        a = next(it)
        print("between")
        return a + next(it), list(it)

    return f, [(t(3, 3),)] * 2


@cases(graphs=2, breaks=2, recompiles=1)
def break_in_a_callback():
    def f(x):
        def key(v):
            print("key", v)
            return -v

        y = x + 1
        return sorted([1, 2], key=key), y * 2

    return f


@cases(breaks=1)
def break_with_live_iterators():
    def f(x):
        pairs = zip([x, x + 1, x + 2], range(3))
        a, _ = next(pairs)
        e = enumerate([a, x])
        next(e)
        r = reversed([x, a])
        m = iter({"k": x}.items())
        print("between")
        return a, list(pairs), list(e), list(r), list(m)

    return f


@cases(breaks=1, graphs=2)
def break_with_everything_alive():
    class K:
        def __init__(self, v):
            self.v = v

    def f(x):
        y = x + 1
        k = K(y)
        d = {"y": y, "k": k, 3: [y, (x, k)]}
        fn = lambda z, w=y: z * w + k.v  # noqa: E731
        s = {1, 2}
        o = collections.OrderedDict(b=1, a=y)
        dd = collections.defaultdict(list, q=[y])
        dq = collections.deque([x, y], maxlen=3)
        c = collections.Counter("aab")
        sl = slice(1, None)
        cell = y

        def inner():
            nonlocal cell
            cell = cell * 2
            return cell

        method = d.get
        bound = k.__init__
        print("between")
        k.v = x
        dd["new"].append(x)
        bound(y)
        return d, fn(x), s, o, dd, dq, c, x[sl], inner(), inner(), cell, method("y") is y, k

    return f


@cases(breaks=1, graphs=2)
def break_among_arguments():
    def noisy(x):
        print("noisy")
        return x + 1

    def f(x):
        return torch.add(x * 2, noisy(x)), [x * 3, noisy, {"k": x}][0]

    return f


@cases(breaks=2, graphs=3)
def break_with_changed_containers():
    def f(d, seq):
        d["a"] = d["x"] + 1
        seq.append(d["a"])
        print(len(seq))
        seq.insert(0, d["a"] * 2)
        del d["x"]
        print(list(d))
        d["z"] = seq.pop() + 1
        seq.reverse()
        return d

    return f, [({"x": t(2)}, [t(2)]), ({"x": t(2)}, [t(2)])]


@cases(graphs=2, breaks=2, recompiles=2)
def break_between_nonlocal_writes():
    n = 0

    def f(x):
        nonlocal n
        n += 1
        print(n)
        n += 10
        return x + n

    return f, [(t(2),)] * 2, [f]


# ---- blocks ----------------------------------------------------------------------------------


@cases(breaks=1, graphs=2)
def break_under_no_grad():
    def f(x):
        with torch.no_grad():
            y = x * 2
            print(torch.is_grad_enabled())
            z = y * 3
        return y, z, x * z, torch.is_grad_enabled()

    return f, [(grad(3),)] * 2


@cases(breaks=1, graphs=2)
def break_in_a_no_grad_function():
    @torch.no_grad()
    def inner(x):
        y = x * 2
        print("in")
        return y

    return lambda x: (inner(x), x * 2, torch.is_grad_enabled()), [(grad(3),)] * 2


@cases(graphs=2, breaks=1)
def break_in_a_with_block():
    class Manager:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            self.log.append("enter")
            return self

        def __exit__(self, *exc):
            self.log.append("exit" if exc[0] is None else exc[0].__name__)
            return True

    log = []

    def f(x):
        with Manager(log) as m:
            y = x + 1
            print("inside", m.log[-1])
            y = y * 2
        with Manager(log):
            raise ValueError("swallowed")
        return y

    def clear():
        log.clear()

    return f, [(t(3),), clear, (t(3),)], [log]


@cases(graphs=2, breaks=1)
def break_in_a_contextlib_block():
    @contextlib.contextmanager
    def manager(log):
        log.append("enter")
        try:
            yield 5
        finally:
            log.append("exit")

    def f(x):
        log = []
        with manager(log) as n:
            y = x + n
            print("inside")
        return y * 2, log

    return f


@cases()
def context_managers_without_a_break():
    @contextlib.contextmanager
    def manager(log):
        log.append("enter")
        try:
            yield 5
        except ValueError as error:
            log.append(str(error))
        finally:
            log.append("exit")

    class Deco(contextlib.ContextDecorator):
        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return False

    def f(x):
        log = []
        with manager(log) as n, manager(log), contextlib.suppress(KeyError):
            x = x + n
            {}["missing"]
        with manager(log):
            raise ValueError("caught")
        with contextlib.nullcontext(x) as same:
            log.append(same is x)
        with contextlib.ExitStack() as stack:
            stack.enter_context(manager(log))
            stack.callback(log.append, "callback")
        with Deco():
            x = x * 2
        return x, log

    return f


@cases(breaks=1, graphs=2)
def break_in_try_and_finally():
    def f(x):
        log = []
        try:
            y = x + 1
            print("try")
            log.append("after")
        except ValueError:
            log.append("never")
        else:
            log.append("else")
        finally:
            log.append("finally")
        return y * 2, log

    return f


@cases(graphs=2, breaks=3)
def break_while_handling():
    def f(x):
        try:
            raise KeyError("k")
        except KeyError as error:
            y = x + 1
            print("handling", error, sys.exc_info()[0].__name__)
            try:
                raise ValueError("v") from error
            except ValueError as other:
                z = y * 2
                print("again", repr(other.__cause__))
                return z, str(other)
        finally:
            print("finally")

    return f


@cases(graphs=4, breaks=4, recompiles=2)
def layers_that_are_numbered_and_dropped():
    """As many layers as there are: what follows the break in one is there for all of them."""
    layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(12)])

    def f(x):
        for number, layer in enumerate(layers, 3):
            if x.sum() > 1e9:  # the graph ends here
                continue
            x = layer(x).tanh() + x * number
        return x

    return f, [(torch.ones(2, 4),), (torch.ones(2, 4) * 2,), (torch.ones(2, 4) * 3,)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_breaks(case: Case) -> None:
    assert check(case) > 0
