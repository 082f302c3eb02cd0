"""Weak references to what the frame has made and was given, weak containers, weak methods."""

from __future__ import annotations

import weakref

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


class Holder:
    def __init__(self, v=None):
        self.v = v


def three():
    return [(torch.randn(3, 4),) for _ in range(3)]


@cases(breaks=1)
def own_plain():
    def f(x):
        o = Holder(x + 1)
        r = weakref.ref(o)
        a = r() is o
        y = r().v * 2
        del o
        return y, a, r() is None

    return f, three()


@cases(graphs=2, breaks=2)
def own_plain_break():
    def f(x):
        o = Holder(x + 1)
        r = weakref.ref(o)
        torch._dynamo.graph_break()
        y = r().v * 2
        del o
        return y, r() is None

    return f, three()


@cases(graphs=3, breaks=4)
def finalizers_that_are_asked():
    log = []

    def f(x):
        o = Holder(x + 1)
        end = weakref.finalize(o, log.append, "end")
        y = o.v * 2
        alive = end.alive
        z = y + alive
        found = end()
        return z, found, end.alive, o.v

    return f, three(), [log]


@cases(graphs=2, breaks=1)
def own_weakset():
    def f(x):
        s = weakref.WeakSet()
        obs = [Holder(x * i) for i in range(3)]
        for o in obs:
            s.add(o)
        n = len(s)
        y = sum(o.v for o in sorted(s, key=lambda o: obs.index(o)))
        return y, n, len(s)

    return f, three()


@cases(graphs=2, breaks=2)
def own_weakset_break():
    def f(x):
        s = weakref.WeakSet()
        obs = [Holder(x * i) for i in range(3)]
        for o in obs:
            s.add(o)
        torch._dynamo.graph_break()
        y = sum(o.v for o in obs if o in s)
        obs.pop()
        return y, len(s)

    return f, three()


@cases(graphs=2, breaks=5)
def own_weakvalue():
    def f(x):
        d = weakref.WeakValueDictionary()
        o = Holder(x + 1)
        d["a"] = o
        d["b"] = Holder(x)
        y = d["a"].v
        gone = "b" in d
        torch._dynamo.graph_break()
        k = list(d)
        del o
        return y * 2, gone, k, len(d), d.get("a")

    return f, three()


@cases(graphs=2, breaks=4)
def own_weakkey():
    def f(x):
        d = weakref.WeakKeyDictionary()
        o = Holder()
        d[o] = x + 1
        q = Holder()
        d[q] = x
        del q
        n = len(d)
        torch._dynamo.graph_break()
        return d[o] * 2, n, o in d, [k is o for k in d]

    return f, three()


@cases(graphs=3, recompiles=2)
def outside_weakkey():
    d = weakref.WeakKeyDictionary()
    o = Holder()

    def f(x):
        d[o] = d.get(o, 0) + 1
        return x * d[o], o in d, len(d)

    return f, three()


@cases(graphs=2, recompiles=1)
def outside_weakvalue():
    d = weakref.WeakValueDictionary()
    o = Holder(3)
    d["a"] = o

    def f(x):
        y = x * d["a"].v
        d["b"] = o
        return y, sorted(d), d["b"] is o

    return f, three()


@cases()
def tensor_weak():
    def f(x):
        r = weakref.ref(x)
        y = x + 1
        q = weakref.ref(y)
        return y * 2, r() is x, q() is y

    return f, three()


@cases(graphs=2, breaks=2)
def tensor_that_ends_behind_a_break():
    def f(x):
        y = x * 2
        r = weakref.ref(y)
        torch._dynamo.graph_break()
        z = x + 1
        alive = r() is y
        del y
        return z, alive, r() is None

    return f, three()


@cases()
def cb_outside_obj():
    log = []
    o = Holder()

    def f(x):
        r = weakref.ref(o, lambda r: log.append("dead"))
        y = x + 1
        return y * 2, r() is o

    return f, three(), [log]


@cases(graphs=4, breaks=2, recompiles=2)
def cb_own_obj():
    log = []

    def f(x):
        o = Holder()
        r = weakref.ref(o, lambda r: log.append("dead"))
        y = x + 1
        alive = r() is o
        del o
        return y * 2, alive, r() is None, list(log)

    return f, three(), [log]


@cases(breaks=1)
def cb_own_returned():
    log = []

    def f(x):
        o = Holder(x + 1)
        r = weakref.ref(o, lambda r: log.append("dead"))
        return o, r, r() is o

    return f, three(), [log]


@cases(graphs=2, breaks=3)
def weakmethod():
    class A:
        def __init__(self, k):
            self.k = k

        def m(self, x):
            return x * self.k

    def f(x):
        a = A(3)
        w = weakref.WeakMethod(a.m)
        y = w()(x)
        torch._dynamo.graph_break()
        z = w()(y)
        del a
        return z, w() is None

    return f, three()


@cases(graphs=2, breaks=1)
def parent_child():
    class N:
        def __init__(self, v, parent=None):
            self.v = v
            self.kids = []
            self._p = weakref.ref(parent) if parent else None
            if parent:
                parent.kids.append(self)

        @property
        def parent(self):
            return self._p() if self._p else None

        def path(self):
            n, out = self, 0
            while n is not None:
                out = out + n.v
                n = n.parent
            return out

    def f(x):
        a = N(x)
        b = N(x + 1, a)
        c = N(x * 2, b)
        y = c.path()
        torch._dynamo.graph_break()
        return y + b.path(), c.parent.parent is a, a

    return f, three()


HELD = Holder()
TOLD = weakref.ref(HELD)
SPACES = [{"held": Holder()}]
TOLD_TOO = weakref.ref(SPACES[0]["held"])


def _passed(space, found):
    torch._dynamo.graph_break()
    return "HELD" in space, len(found)


@cases(graphs=1, breaks=1)
def in_a_namespace_that_a_module_holds():
    def f(x):
        found = _passed(globals(), SPACES[0])  # which the frame behind the break drops
        return x * 2, found, TOLD() is HELD, TOLD_TOO() is SPACES[0]["held"]

    return f, three()


@cases(graphs=2, breaks=2)
def in_a_dict_that_the_frame_alone_holds():
    told = []

    def f(x):
        held = Holder(x)
        space = {"held": held}
        told.append(weakref.ref(held))
        del held
        torch._dynamo.graph_break()
        y = x * 2
        del space
        return y * 3, told.pop()() is None

    return f, three()


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case) -> None:
    assert check(case) > 0
