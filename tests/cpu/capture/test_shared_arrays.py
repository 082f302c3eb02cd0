"""Arrays of numpy that share memory with each other, and with tensors: ``base``, and writes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def three():
    return [(torch.randn(3, 4),) for _ in range(3)]


@cases(graphs=2, breaks=1)
def overlap_inside():
    def f(x):
        a = (x + 1).numpy().reshape(-1)
        a[1:] += a[:-1]
        a[2:] = a[:-2]
        return torch.from_numpy(a) + 1

    return f, three()


@cases()
def overlap_outside():
    def f(x, a, b):
        a += b
        return x + torch.from_numpy(a), b

    def mk():
        o = np.arange(6, dtype=np.float32)
        return (torch.ones(5), o[1:], o[:-1])

    return f, [mk(), mk(), mk()]


@cases(graphs=2, recompiles=1)
def overlap_outside2():
    def f(x, a, b):
        a[1:3] = 7
        y = torch.from_numpy(b) * x
        b *= 2
        return y, torch.from_numpy(a) + 0, a.base is b.base, b.base is a

    def mk():
        o = np.arange(6, dtype=np.float32)
        return (torch.ones(5), o, o[:-1])

    def mk2():
        o = np.arange(6, dtype=np.float32)
        return (torch.ones(5), o, np.arange(5, dtype=np.float32))

    return f, [mk(), mk(), mk2(), mk()]


@cases(graphs=2, breaks=1)
def views_and_tensor():
    def f(x):
        a = x.numpy()
        t = torch.from_numpy(a)
        torch._dynamo.graph_break()
        a += 1
        t *= 2
        return t + x, a, x

    return f, three()


@cases(graphs=2, breaks=1)
def views_chain_write():
    def f(x):
        a = np.zeros((3, 4), dtype=np.float32)
        rows = [a[i] for i in range(3)]
        torch._dynamo.graph_break()
        for i, r in enumerate(rows):
            r += i
        y = x + torch.from_numpy(a)
        rows[0][:] = 5
        return y * 2, a

    return f, three()


@cases(graphs=3, breaks=2, recompiles=1)
def views_loop_break():
    def f(x):
        a = x.numpy().copy()
        out = []
        for row in a:
            row *= 2
            torch._dynamo.graph_break()
            out.append(torch.from_numpy(row).sum())
        return out, a

    return f, three()


@cases(graphs=2, breaks=3)
def views_dtype():
    def f(x):
        a = (x + 1).numpy()
        b = a.view(np.int32)
        torch._dynamo.graph_break()
        b[0] = 0
        return torch.from_numpy(a) * 1, b

    return f, three()


@cases(graphs=2, breaks=3)
def views_readonly():
    def f(x):
        a = np.broadcast_to(x.numpy()[0], (3, 4))
        torch._dynamo.graph_break()
        return x + torch.from_numpy(a.copy()), a.flags.writeable

    return f, three()


@cases(graphs=2, breaks=1)
def views_object():
    class Holder:
        def __init__(self, a):
            self.a = a
            self.head = a[:2]

    def f(x):
        o = Holder((x + 1).numpy())
        torch._dynamo.graph_break()
        o.head += 1
        return torch.from_numpy(o.a) * x, o.head.base is o.a

    return f, three()


@cases()
def views_global():
    buf = np.zeros(10, dtype=np.float32)
    win = buf[2:6]

    def f(x):
        win[:] = win + 1
        y = x + torch.from_numpy(buf)[:4]
        return y, win.base is buf

    return f, [(torch.ones(4),) for _ in range(3)], [buf, win]


@cases(graphs=2, breaks=1)
def views_two_frames():
    def g(v, x):
        torch._dynamo.graph_break()
        v += 1
        return x * v.sum()

    def f(x):
        a = (x + 1).numpy()
        y = g(a[1], x)
        return y + torch.from_numpy(a)

    return f, three()


@cases(graphs=4, breaks=3, recompiles=2)
def views_gen():
    def f(x):
        a = (x + 1).numpy()

        def gen():
            for i in range(3):
                yield a[i]

        s = 0
        for r in gen():
            r += 1
            torch._dynamo.graph_break()
            s = s + torch.from_numpy(r)
        return s, a

    return f, three()


@cases(graphs=2, breaks=1)
def views_slices_2d():
    def f(x):
        a = (x + 1).numpy()
        b = a[:, ::2]
        c = a[::2]
        torch._dynamo.graph_break()
        b += 1
        c *= 2
        return torch.from_numpy(a) + 1, b, c

    return f, three()


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case) -> None:
    assert check(case) > 0
