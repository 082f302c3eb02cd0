"""What torch's operators for branches and loops refuse of the functions that they are given.

They raise where two of the tensors that such a function reads or gives lie in the same memory, so
compiled code raises too, or gives what they give: as one graph where they take the function.
"""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as over
from torch._higher_order_ops.scan import scan

import refcompiler
from refcompiler.errors import GraphBreakError

_YES = torch.tensor(True)


def _loop(x, body, test=lambda i, a: i < 3):
    return while_loop(test, body, (torch.tensor(0), x))


def _twice(x):
    return x, x


_TAKEN = {
    "views of what is made": lambda x: torch.cond(
        x.sum() > 5, lambda a: (a + 1).T, lambda a: (a - 1).T, (x,)
    ),
    "an operand that is read besides": lambda x: torch.cond(
        x.sum() > 5, lambda a: a + x, lambda a: a - x, (x,)
    ),
    "an operand twice": lambda x: torch.cond(
        x.sum() > 5, lambda a, b: a + b, lambda a, b: a - b, (x, x)
    ),
    "a view that no branch reads": lambda x: torch.cond(
        x.sum() > 5, lambda a, b: a + 1, lambda a, b: a - 1, (x, x.T)
    ),
    "each branch reads another view": lambda x: (
        lambda v: torch.cond(x.sum() > 5, lambda: x + 1, lambda: v.T - 1, ())
    )(x.T),
    "in a batch": lambda x: torch.vmap(
        lambda r: torch.cond(r.sum() > 5, lambda a: a + 1, lambda a: a - 1, (r,))
    )(x),
    "a loop reads what it starts with": lambda x: _loop(x, lambda i, a: (i + 1, a + x)),
    "a loop starts with two views": lambda x: while_loop(
        lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a + 1, b * 2), (torch.tensor(0), x, x.T)
    ),
    "a scan starts with a view of its items": lambda x: scan(
        lambda c, v: (c + v, (v + 1).view(2, 2)), x[0], x
    ),
    "a scan in a batch": lambda x: torch.vmap(lambda r: scan(lambda c, v: (c + v, c * v), r[0], r))(
        x
    ),
}
_REFUSED = {
    "an operand": lambda x: torch.cond(_YES, lambda a: a, lambda a: a + 1, (x,)),
    "an operand as it is": lambda x: torch.cond(
        _YES, lambda a: a + 1, lambda a: a.contiguous(), (x,)
    ),
    "what is read besides": lambda x: torch.cond(_YES, lambda: x, lambda: x + 1, ()),
    "a view of it": lambda x: torch.cond(_YES, lambda: x.T, lambda: x.T + 1, ()),
    "one tensor twice": lambda x: torch.cond(
        _YES, lambda a: _twice(a + 1), lambda a: (a + 1, a + 2), (x,)
    ),
    "two views that are read": lambda x: torch.cond(
        _YES, lambda a, b: a + b.T, lambda a, b: a - b.T, (x, x.T)
    ),
    "nothing": lambda x: torch.cond(_YES, lambda a: (a + 1, None), lambda a: (a, None), (x,)),
    "a predicate of several": lambda x: torch.cond(x > 0, lambda a: a + 1, lambda a: a - 1, (x,)),
    "what a loop carries": lambda x: _loop(x, lambda i, a: (i + 1, a)),
    "a view of what it carries": lambda x: _loop(x, lambda i, a: (i + 1, a.view(3, 4))),
    "what a loop reads besides": lambda x: _loop(x + 1, lambda i, a: (i + 1, x)),
    "what it carries, without gradients": lambda x: torch.no_grad()(
        lambda: _loop(x, lambda i, a: (i + 1, a))
    )(),
    "carried values change places": lambda x: while_loop(
        lambda i, a, b: i < 3, lambda i, a, b: (i + 1, b, a), (torch.tensor(0), x, x + 1)
    ),
    "a test that gives what is carried": lambda x: while_loop(
        lambda b, a: b, lambda b, a: (a.sum() < 300, a * 2), (_YES.clone(), x + 1)
    ),
    "what a scan carries": lambda x: scan(lambda c, v: (c, v + 1), x[0], x),
    "an item of a scan": lambda x: scan(lambda c, v: (c + 1, v), x[0], x),
    "one result of a scan twice": lambda x: scan(lambda c, v: _twice(c + v), x[0], x),
    "a scan that starts with other strides": lambda x: scan(
        lambda c, v: (c + v, v + 1), x[:1, :1].expand(1, 4)[0], x
    ),
    "a view of an item": lambda x: over(lambda v: v.view(-1), x),
    "one result twice": lambda x: over(lambda v: _twice(v + 1), x),
    "an item and what is read besides": lambda x: over(lambda v, w: v + w, x, x[0]),
}
# Only torch 2.11 refuses it.
(_TAKEN if torch.__version__ >= (2, 12) else _REFUSED)["an operand without gradients"] = lambda x: (
    torch.no_grad()(lambda: torch.cond(x.sum() > 5, lambda a: a, lambda a: a + 1, (x,)))()
)


class _Counting:
    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs, **options):
        self.graphs += any(node.op == "call_function" for node in graph.graph.nodes)
        return graph


def _inputs():
    for scale in (1.0, -2.0):
        yield (torch.arange(12.0).reshape(3, 4) * scale).requires_grad_()


@pytest.mark.parametrize("name", _TAKEN)
def test_functions_that_are_taken(name):
    backend = _Counting()
    compiled = refcompiler.compile(_TAKEN[name], backend=backend, fullgraph=True)
    compared = 0
    for x in _inputs():
        found, expected = compiled(x), _TAKEN[name](x)
        pairs = zip(*map(torch.utils._pytree.tree_leaves, (found, expected)), strict=True)
        for a, b in pairs:
            assert torch.equal(a, b) and (a.shape, a.dtype) == (b.shape, b.dtype)
            compared += 1
            if b.requires_grad:
                gradients = [torch.autograd.grad(v.sum(), x, retain_graph=True)[0] for v in (a, b)]
                assert torch.equal(*gradients)
                compared += 1
    assert compared >= 2 and backend.graphs == 1


@pytest.mark.parametrize("name", _REFUSED)
def test_functions_that_are_refused(name):
    backend = _Counting()
    x, *_ = _inputs()
    with pytest.raises(GraphBreakError, match="higher-order"):
        refcompiler.compile(_REFUSED[name], backend=backend, fullgraph=True)(x)
    assert backend.graphs == 0


@pytest.mark.parametrize("name", ["what is read besides", "what a loop carries", "nothing"])
def test_what_is_raised_is_what_eager_raises(name):
    compiled = refcompiler.compile(_REFUSED[name], backend="eager")
    for x in _inputs():
        with pytest.raises(Exception) as expected:
            _REFUSED[name](x)
        with pytest.raises(expected.type):
            compiled(x)
