"""Tensors made of other tensors, and what else of torch a program may say in its middle."""

from __future__ import annotations

from conformance.rows.row import Row

_PAIR = """
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten
class Pair(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, dtype=a.dtype, requires_grad=a.requires_grad
        )
    def __init__(self, a, b):
        self.a, self.b = a, b
    def __tensor_flatten__(self):
        return ["a", "b"], None
    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["a"], inner["b"])
    @property
    def both(self):
        return torch.stack([self.a, self.b])
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs, found = kwargs or {}, []
        for name in ("a", "b"):
            given = tree_map_only(Pair, lambda p: getattr(p, name), (args, kwargs))
            found.append(tree_flatten(func(*given[0], **given[1])))
        (first, spec), (second, _) = found
        made = [cls(x, y) if isinstance(x, torch.Tensor) else x for x, y in zip(first, second)]
        return return_and_correct_aliasing(func, args, kwargs, tree_unflatten(made, spec))
"""
_SCALED = """
from torch.utils._pytree import tree_map_only
class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)
    def __init__(self, data, scale):
        self.whole, self.scale = data, scale
    def __tensor_flatten__(self):
        return ["whole"], self.scale
    @staticmethod
    def __tensor_unflatten__(inner, scale, size, stride):
        return Scaled(inner["whole"], scale)
    def plain(self):
        return self.whole.float() * self.scale
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*tree_map_only(Scaled, Scaled.plain, args), **(kwargs or {}))
"""

ROWS = (
    Row("argument and result", "wrapper subclasses", _PAIR + '''
def inner(pair):
    found = torch.relu(pair) + 1
    return found, type(found).__name__, pair.a * 2, pair.both
def program(x, y):
    found, name, twice, both = inner(Pair(x, y))
    return found.a, found.b, name, twice, both
''', ("f(x, x2)", "f(x2, x)", "f(long, long)")),
    Row("kept between calls", "wrapper subclasses", _PAIR + '''
KEPT = Pair(torch.ones(4), torch.zeros(4))
def program(x):
    global KEPT
    KEPT.add_(1)
    KEPT = KEPT * x
    return KEPT.a, KEPT.b
''', ("f(x)", "f(x2)", "KEPT = Pair(KEPT.b, KEPT.a)", "f(x)")),
    Row("shares a tensor", "wrapper subclasses", _PAIR + '''
A = torch.ones(4)
ONE, TWO = Pair(A, A * 2), Pair(A, A * 3)
def program(x):
    ONE.mul_(2)
    A.add_(x)
    return TWO.both, ONE.a is TWO.a
''', ("f(x)", "f(x2)", "TWO.a = TWO.a.clone()", "f(x)")),
    Row("gradients", "wrapper subclasses", _PAIR + '''
W = Pair(torch.ones(4), torch.full((4,), 2.0)).requires_grad_()
def program(x):
    return (W * x).sum()
def outer(x):
    loss = program(x)
    loss.backward(torch.ones_like(loss))
    found, W.grad = W.grad, None
    return found.a, found.b
''', ("f(x)", "f(x2)"), entry="outer"),
    Row("another context", "wrapper subclasses", _SCALED + '''
W = Scaled(torch.arange(4, dtype=torch.int8), 2.0)
def program(x):
    return x * W + W.scale
''', ("f(x)", "f(x2)", "W = Scaled(W.whole, 0.5)", "f(x)", "W.scale = 4.0", "f(x2)")),
    Row("another tensor inside", "wrapper subclasses", _SCALED + '''
W = Scaled(torch.arange(4, dtype=torch.int8), 2.0)
def program(x):
    return x * W
''', ("f(x)", "f(x2)", "W = Scaled(W.whole.int() * 100, 2.0)", "f(x)")),
    Row("of an object that changes", "caches", '''
import functools
class Table:
    @functools.lru_cache
    def go(self, n):
        return n * self.k
T = Table()
def program(x, k):
    T.k = k
    return x * T.go(2)
''', ("f(x, 2)", "f(x2, 3)", "T = Table()", "f(x, 4)", "f(x2, 5)")),
    Row("default device for a while", "settings", '''
def program(x):
    torch.set_default_device("meta")
    made = torch.ones(3)
    torch.set_default_device(None)
    return x + torch.ones(4), made.device.type
''', ("f(x)", "f(x2)")),
    Row("hooks on saved tensors refused", "settings", '''
def program(w):
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        y = w.sin()
        try:
            with torch.autograd.graph.save_on_cpu():
                y = y + 1
        except RuntimeError as error:
            return y * 2, str(error)
''', ("f(w)", "f(w2)"), backward=True),
    Row("made in the frame", "buffers", '''
class Last(torch.nn.Module):
    def forward(self, x):
        self.last = torch.nn.Buffer(x * 2, persistent=False)
        return x + self.last
M = Last()
def program(x):
    y = M(x)
    return y, list(M.state_dict()), isinstance(M.last, torch.nn.Buffer), M.last
''', ("f(x)", "f(x2)")),
    Row("arrays of numpy", "indices", '''
import numpy
def program(x):
    at = numpy.array([2, 0])
    y = x.clone()
    y[at] = y[at] * 2 + x[numpy.arange(2)]
    return y, x[at[1:]]
''', ("f(x)", "f(x2)")),
    Row("what a tensor shows of its class", "objects", '''
def program(x):
    y = x * 2
    return y, y.__module__, type(y).__module__, hasattr(y, "fake_mode"), y.__doc__ is None
''', ("f(x)", "f(x2)")),
)  # fmt: skip
