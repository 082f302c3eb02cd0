"""Items of tensors at places that are tensors of one integer, and what of that must break."""

from __future__ import annotations

import pytest
import torch

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def calls(*shape: int, places=(1, 0, -1)):
    base = torch.arange(torch.Size(shape).numel() * 1.0).reshape(shape)
    return [(base + n, torch.tensor(place)) for n, place in enumerate(places)]


@cases()
def read():
    def f(x, i):
        return x[i] * 2, x[:, i] + 1, x[i, i] * 1, x[None, i].cos(), x[..., i].sin(), x[i, [0, 1]]

    return f, calls(2, 3)


@cases()
def strides_as_in_eager():
    def f(x, i):
        part = x[:, i]
        return part.stride(), part.is_contiguous(), part.transpose(0, 1) * 1

    return f, calls(2, 3, 4)


@cases()
def at_a_place_that_is_computed():
    def f(x, i):
        best = torch.argmax(x.sum(1))
        return x[best] / 2, x[i + 1 - 1] * 2

    return f, calls(2, 3)


@cases()
def written():
    def f(x, i):
        x[:, i] = x[:, 0] * 2
        x[..., i, :] = 1
        x[0, i, 1:] = x.sum()
        x[:, None, i] = torch.ones(1, 1, 2, 1, 4, dtype=torch.float64)
        return x * 2

    return f, calls(2, 3, 4)


@cases()
def a_cache_that_is_filled():
    def f(x, i):
        for n in range(3):
            x[:, i] = x[:, i - 1] * 2 + n
            i = i + 1
        return x.sum(1)

    return f, calls(2, 6, places=(1, 2))


@cases()
def differentiated():
    def f(x, i):
        y = x * 2
        y[:, i] = y[:, 0] * 3
        return y.sum() + x[i].sin().sum()

    return f, [(x.requires_grad_(), i) for x, i in calls(2, 3)]


@cases(graphs=2, breaks=1)
def a_view_that_leaves():
    def f(x, i):
        y = x * 2
        return y, y[i].unsqueeze(0), y.sum()

    return f, calls(2, 3)


@cases(graphs=2, breaks=1)
def a_view_that_is_written_to():
    def f(x, i):
        y = x * 2
        part = y[i]
        part.add_(1)
        return y * 2

    return f, calls(2, 3)


@cases(graphs=2, breaks=1)
def what_is_viewed_is_written_to():
    def f(x, i):
        y = x * 2
        part = y[i]
        y.add_(1)
        return part * 2

    return f, calls(2, 3)


@cases()
def what_was_viewed_is_written_to():
    def f(x, i):
        y = x[i] * 2
        x.add_(1)
        return y + 1

    return f, calls(2, 3)


@cases(graphs=2, breaks=1)
def a_write_that_is_not_counted():
    def f(x, i):
        y = x * 2
        part = y[i]
        y.data.add_(1)
        return part * 2

    return f, calls(2, 3)


@cases(graphs=3, breaks=1, recompiles=1)
def a_mask_of_one_byte():
    def f(x, i):
        y = x * 2
        return y[i.to(torch.uint8)] * 1

    return f, calls(2, 3, places=(1, 0))


@cases(graphs=1)
def a_place_outside():
    def f(x, i):
        return x[i] * 2

    return f, calls(2, 3, places=(1, 5, -3))


@cases()
def narrowed():
    def f(x, i):
        return x.narrow(1, i, 2) * 2, torch.narrow(x, dim=-1, start=i, length=1).sin()

    return f, calls(2, 3, places=(1, 0, -2))


@cases()
def selected():
    def f(x, i):
        return x.select(1, i) * 2, torch.select(x, dim=-1, index=i).sin(), (x + 1).select(-1, i) + 1

    return f, calls(2, 3, places=(1, 0, -2))


@cases()
def selected_past_the_end():
    def f(x, i):
        return x.select(1, i) * 2

    return f, calls(2, 3, places=(1, -1, -7, 2, 5))


@cases()
def narrowed_past_the_end():
    def f(x, i):
        return x.narrow(1, i, 2) * 2

    return f, calls(2, 3, places=(1, -1, -7, 2, 5))


@cases()
def a_sum_scaled_by_a_tensor():
    def f(x, y, rate):
        x.sub_(y, alpha=rate)
        return x.add(y, alpha=-rate), torch._foreach_add([x, y], [y, x], alpha=rate)

    return f, [(torch.randn(5, 3), torch.randn(5, 3), torch.tensor(n / 7)) for n in (1, 2)]


@cases()
def a_sum_of_doubles_scaled_by_a_tensor():
    def f(x, y, rate):
        x.sub_(y, alpha=rate)
        return x.add(y, alpha=-rate), torch._foreach_sub([x, y], [y, x], alpha=rate)

    made = [(torch.randn(5, 13), torch.randn(5, 13), torch.tensor(n / 7)) for n in (1, 2)]
    return f, [(x.double(), y.double(), rate) for x, y, rate in made]


@cases(graphs=0, breaks=1)
def out_that_is_resized():
    def f(x, out):
        return torch.mul(x, 2, out=out), out.shape

    return f, [(torch.ones(2, 3), torch.empty(0))] * 2


@cases(graphs=2, breaks=1)
def out_that_is_resized_and_shares_its_memory():
    def f(x, out):
        inner = torch.empty(0)
        torch.add(x, 1, out=inner)
        part = out.detach()
        torch.mul(x, 2, out=part)
        return part + inner, out.shape, inner.shape

    return f, [(torch.ones(2, 3), torch.empty(0))] * 2


@cases(graphs=1, breaks=3)
def an_argument_s_view_that_leaves():
    def f(x, i):
        return x.narrow(1, i, 1), x[i], x[:, i].view(-1)

    return f, calls(2, 3)


@cases(graphs=3, breaks=2)
def a_view_that_is_written_to_under_autograd():
    def f(x, i):
        y = x * 2
        part = y.narrow(1, i, 1)
        part.mul_(3)
        part.data.add_(1)
        row = y[i]
        with torch.no_grad():
            row.zero_()
        return y * part, row

    return f, [(x.requires_grad_(), i) for x, i in calls(2, 3)]


@cases(graphs=2, breaks=2)
def a_view_that_is_written_to_itself():
    def f(x, i):
        x[i] += 5
        x[:, i] *= 2
        return x + 1

    return f, calls(2, 3)


@cases(graphs=1, breaks=1, recompiles=1)
def where_a_view_begins():
    def f(x, i):
        return x[i] * 2, x[i].storage_offset()

    return f, calls(2, 3)


@cases(graphs=1, breaks=1)
def a_leaf_of_autograd():
    def f(x):
        weight = torch.ones(3, requires_grad=True)
        return weight, (x * weight).sum()

    return f, [(torch.ones(3) + n,) for n in range(2)]


def test_a_graph_that_may_ask_for_numbers_makes_the_view():
    def f(x, i):
        y = x * 2
        part = y.narrow(1, i, 1)
        part.add_(1)
        return y, part, x[i]

    compiled = refcompiler.compile(f, backend="eager", fullgraph=True)
    with refcompiler.config.patch(capture_scalar_outputs=True):
        for x, i in calls(2, 3):
            assert all(map(torch.equal, compiled(x, i), f(x, i)))
            assert compiled(x, i)[2].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
