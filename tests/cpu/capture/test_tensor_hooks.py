"""Hooks on tensors, and what tensors hold besides their contents: data, gradients, attributes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


def grad(*s):
    return torch.randn(*s, requires_grad=True)


def _hook(g):
    return g.clamp(0, 1)


@cases()
def hook_intermediate():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return (y * 3).sum()

    return f, [(grad(3),), (grad(3),)]


@cases()
def hook_input():
    def f(x):
        x.register_hook(lambda g: g * 10)
        return (x * 3).sum()

    return f, [(grad(3),), (grad(3),)]


@cases()
def hook_input_handle_removed():
    def f(x):
        h = x.register_hook(lambda g: g * 10)
        y = (x * 3).sum()
        h.remove()
        return y

    return f, [(grad(3),), (grad(3),)]


@cases()
def hook_intermediate_removed():
    def f(x):
        z = x * 2
        h = z.register_hook(lambda g: g * 10)
        y = (z * 3).sum()
        h.remove()
        return y

    return f, [(grad(3),), (grad(3),)]


@cases(graphs=2, breaks=1)
def hook_handle_returned():
    def f(x):
        z = x * 2
        h = z.register_hook(lambda g: g * 10)
        return (z * 3).sum(), h

    return f, [(grad(3),), (grad(3),)]


@cases(graphs=2, recompiles=1)
def hook_closure_number():
    def f(x, k):
        z = x * 2
        z.register_hook(lambda g: g * k)
        return (z * 3).sum()

    return f, [(grad(3), 2), (grad(3), 2), (grad(3), 5)]


@cases()
def hook_closure_tensor():
    def f(x, k):
        z = x * 2
        w = k + 1
        z.register_hook(lambda g: g * w)
        return (z * 3).sum()

    return f, [(grad(3), t(3)), (grad(3), t(3))]


@cases(graphs=2, breaks=1)
def hook_closure_list():
    seen = []

    def f(x):
        z = x * 2
        z.register_hook(lambda g: seen.append(g * 2))
        return (z * 3).sum()

    return f, [(grad(3),), (grad(3),)], [seen]


@cases()
def hook_global_function():
    def f(x):
        z = x * 2
        z.register_hook(_hook)
        return (z * 3).sum(), z

    return f, [(grad(3),), (grad(3),)]


@cases()
def hook_two():
    def f(x):
        z = x * 2
        z.register_hook(lambda g: g + 1)
        z.register_hook(lambda g: g * 2)
        return (z * 3).sum()

    return f, [(grad(3),), (grad(3),)]


@cases()
def hook_post_accumulate():
    log = []

    def f(x):
        x.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum().item()))
        return (x * 3).sum()

    return f, [(grad(3),), (grad(3),)], [log]


@cases()
def hook_post_accumulate_removed():
    log = []

    def f(x):
        h = x.register_post_accumulate_grad_hook(lambda p: log.append(1))
        y = (x * 3).sum()
        h.remove()
        return y

    return f, [(grad(3),), (grad(3),)], [log]


@cases()
def hook_on_parameter():
    m = nn.Linear(3, 3)

    def f(x):
        m.weight.register_hook(lambda g: g * 0)
        return m(x).sum()

    return f, [(t(2, 3),), (t(2, 3),)], [m]


@cases()
def hook_installed_outside():
    x = grad(3)
    x.register_hook(lambda g: g * 2)
    return lambda x: x * 3, [(x,), (x,)]


@cases(graphs=2, breaks=1)
def retain_grad_intermediate():
    def f(x):
        y = x * 2
        y.retain_grad()
        return (y * 3).sum(), y

    return f, [(grad(3),), (grad(3),)]


@cases()
def retain_grad_input_leaf():
    def f(x):
        x.retain_grad()
        return (x * 3).sum()

    return f, [(grad(3),), (grad(3),)]


@cases()
def retain_grad_input_nonleaf():
    def f(x):
        x.retain_grad()
        return (x * 3).sum(), x.retains_grad

    return f, [(grad(3) * 1,), (grad(3) * 1,)]


@cases(breaks=1)
def hook_no_grad_error():
    def f(x):
        try:
            x.register_hook(lambda g: g)
        except RuntimeError as e:
            return x + 1, str(e)
        return x

    return f, [(t(3),), (t(3),)]


@cases()
def hook_before_inplace():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        y.add_(1)
        return (y * y).sum()

    return f, [(grad(3),), (grad(3),)]


@cases()
def hook_dead_intermediate():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return x.sum()

    return f, [(grad(3),), (grad(3),)]


@cases(graphs=2, recompiles=1)
def data_assigned():
    def f(x):
        x.data = x.data * 2
        return x + 1

    return f, [(t(3),), (grad(3),)]


@cases()
def data_assigned_other():
    def f(x, y):
        x.data = y
        x.add_(1)
        return x + 1, x is y

    return f, [(t(3), t(3)), (t(3), t(3))]


@cases()
def data_assigned_intermediate():
    def f(x):
        y = x * 2
        y.data = torch.ones(4)
        return y + 1

    return f, [(t(3),), (t(3),)]


@cases()
def data_augmented():
    w = grad(3)

    def f(x):
        w.data -= 0.1 * x
        w.data.mul_(2)
        return w * x

    return f, [(t(3),), (t(3),)], [w]


@cases()
def grad_inplace():
    def f(x):
        x.grad.zero_()
        x.grad.add_(1)
        return x * 2

    def mk():
        x = grad(3)
        x.grad = torch.ones(3)
        return x

    return f, [(mk(),), (mk(),)]


@cases()
def grad_of_intermediate():
    def f(x):
        y = x * 2
        return y.grad, y

    return f, [(t(3),), (t(3),)]


@cases()
def grad_of_fresh_leaf():
    def f(x):
        y = torch.ones(3)
        y.grad = x
        return y.grad + 1, y

    return f, [(t(3),), (t(3),)]


@cases()
def detach_inplace_input():
    def f(x):
        x.detach_()
        return x * 3

    return f, [(grad(3) * 2,), (grad(3) * 2,)]


@cases()
def unsqueeze_inplace_input():
    def f(x):
        x.unsqueeze_(0)
        return x * 2

    return f, [(t(3),), (t(3),)]


@cases()
def t_inplace_input():
    def f(x):
        x.t_()
        return x * 2

    return f, [(t(3, 4),), (t(3, 4),)]


@cases()
def transpose_inplace_input():
    def f(x):
        x.transpose_(0, 1)
        x.add_(1)
        return x * 2

    return f, [(t(3, 4),), (t(3, 4),)]


@cases()
def squeeze_inplace_input():
    def f(x):
        x.squeeze_()
        return x * 2

    return f, [(t(3, 1),), (t(3, 1),)]


@cases()
def metadata_inplace_intermediate():
    def f(x):
        y = x.clone()
        y.unsqueeze_(0)
        y.t_()
        y.squeeze_()
        y.swapaxes_(0, 1) if y.dim() > 1 else None
        return y * 2, y

    return f, [(t(3),), (t(3),)]


@cases()
def as_strided_inplace_input():
    def f(x):
        x.as_strided_((2,), (1,))
        return x * 2

    return f, [(t(3),), (t(3),)]


@cases()
def out_tuple():
    def f(x):
        v, i = torch.empty(3), torch.empty(3, dtype=torch.long)
        r = torch.max(x, 1, out=(v, i))
        return v, i, r[0] is v

    return f, [(t(3, 4),), (t(3, 4),)]


@cases()
def tensor_of_tensors():
    def f(x):
        return torch.tensor([x[0], x[1]]) + 1

    return f, [(t(3),), (t(3),)]


@cases()
def as_tensor_list_of_tensors():
    def f(x):
        return torch.as_tensor([x[0], x[1]]) * 2

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, breaks=1, recompiles=1)
def tolist():
    def f(x):
        a = x.tolist()
        return x * a[0]

    return f, [(t(3),), (t(3),)]


@cases()
def tolist_of_int():
    def f(x):
        n = torch.tensor([2, 3]).tolist()
        return x.reshape(n)

    return f, [(t(6),), (t(6),)]


@cases()
def attribute_on_intermediate():
    def f(x):
        y = x + 1
        y.tag = "mine"
        return y * 2, y, y.tag

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, recompiles=1)
def id_of_tensor():
    def f(x):
        return id(x) == id(x), x + 1

    return f, [(t(3),), (t(3),)]


@cases()
def hook_after_use():
    def f(x):
        y = x * 2
        z = y * 3
        y.register_hook(lambda g: g * 10)
        return (z + y).sum()

    return f, [(grad(3),), (grad(3),)]


@cases(graphs=3, breaks=1, recompiles=1)
def hook_reads_what_changes():
    scale = [2]

    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * scale[0])
        scale[0] += 1
        return y.sum()

    return f, [(grad(3),), (grad(3),)], [scale]


@cases(graphs=2, breaks=1)
def hook_rebinds_its_variable():
    def f(x):
        k = 2
        y = x * 2
        y.register_hook(lambda g: g * k)
        k = 3
        return y.sum() * k

    return f, [(grad(3),), (grad(3),)]


@cases(graphs=2, breaks=1)
def hook_prints():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: print("gradient", g.shape))
        return y.sum()

    return f, [(grad(3),), (grad(3),)]


@cases(breaks=1)
def hook_then_change_of_an_input():
    def f(x):
        x.register_hook(lambda g: g * 10)
        x.mul_(2)
        return x.sum()

    return f, [(grad(3) * 1,), (grad(3) * 1,)]


@cases(graphs=4, breaks=2, recompiles=1)
def hook_across_a_break():
    def f(x):
        y = x * 2
        handle = y.register_hook(lambda g: g * 10)
        n = x.sum().item()
        handle.remove()
        return y.sum() * n

    return f, [(grad(3),), (grad(3),)]


@cases()
def hooks_of_a_module_without_a_graph():
    m = nn.Linear(3, 3)
    seen = []

    def f(x):
        with torch.no_grad():
            y = m(x)
        handles = [p.register_hook(seen.append) for p in m.parameters()]
        z = m(y).sum()
        handles[0].remove()
        return z

    return f, [(t(2, 3),), (t(2, 3),)], [seen, m]


@cases()
def data_of_a_parameter_replaced():
    m = nn.Linear(3, 3)

    def f(x):
        with torch.no_grad():
            for p in m.parameters():
                p.data = p.data * 0.5
        return x * 2

    return f, [(t(2, 3),), (t(2, 3),)], [m]


@cases()
def data_replaced_and_read():
    def f(x, y):
        x.data = y
        y.add_(1)
        x.mul_(2)
        return x + 1, y, x.data is y, x.shape

    return f, [(t(3), t(4)), (t(3), t(4))]


@cases()
def attributes_of_a_result():
    def f(x):
        y = x + 1
        y.scale, y.other = 3, [y]
        z = y * y.scale
        return z, y, hasattr(y, "scale"), hasattr(z, "scale"), y.other

    return f, [(t(3),), (t(3),)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
