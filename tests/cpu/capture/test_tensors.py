"""Tensor work: changes in place, views, indexing, aliases, random numbers, metadata, modes.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


def grad(*shape):
    return torch.randn(*shape, requires_grad=True)


# ---- in place, views, aliases ----------------------------------------------------------------


@cases()
def argument_changed_in_place():
    def f(x):
        x.add_(1)
        x[0] = 5
        return x * 2

    return f, [(t(3, 4),)] * 3


@cases()
def argument_changed_and_returned():
    def f(x):
        x.mul_(2)
        y = x.relu_()
        return x, y, x is y

    return f, [(t(3),), (t(3),)]


@cases()
def augmented_assignments():
    def f(x, y):
        z = x
        z += y
        z -= 1
        z *= 2
        z /= 3
        w = y.clone()
        w **= 2
        w //= 2
        w %= 3
        n = 3
        n += 1
        n <<= 2
        b = x > 0
        b &= y > 0
        b |= True
        b ^= False
        return z, z is x, w, n, b

    return f, [(t(3), t(3)), (t(3), t(3))]


@cases()
def views():
    def f(x):
        return (
            x.view(-1), x.T, x[0], x[:, 1:], x.unsqueeze(0), x.reshape(4, 3), x.expand(2, 3, 4),
            x.permute(1, 0), x.flatten(), x.split(2), x.chunk(2, 1), x.unbind(), x.diagonal(),
            x.narrow(0, 1, 2), x.select(1, 0), x.squeeze(), x.movedim(0, 1), x.detach(),
        )  # fmt: skip

    return f, [(t(3, 4),), (t(3, 4),)]


@cases()
def view_of_an_argument_written():
    def f(x):
        v = x.view(-1)
        v[0] = 7
        v[1:3].zero_()
        x.T[2] += 1
        return v, x[1]

    return f, [(t(3, 4),)] * 2


@cases()
def views_share_one_storage():
    def f(x):
        y = x * 2
        a, b = y[0], y[1]
        a.add_(1)
        return y, a, b, y.view(-1)

    return f


@cases(graphs=0)
def input_returned():
    def f(x, y):
        return x, [y, x], {"x": x}, (x,), None

    return f, [(t(3), t(3))] * 2


@cases()
def same_object_returned_twice():
    def f(x):
        y = x + 1
        z = [y]
        return y, y, z, z, {"y": y, "z": z}

    return f


@cases(recompiles=1, graphs=2)
def same_tensor_for_two_arguments():
    def f(x, y):
        x.add_(1)
        return x + y, x is y

    a = t(3)
    return f, [(t(3), t(3)), (a, a), (t(3), t(3)), (a, a)]


@cases()
def overlapping_arguments():
    def f(x, y):
        x.add_(1)
        return y * 2

    base = t(4)
    return f, [(base, base[1:3])] * 2, [base]


@cases()
def tensor_written_into_a_container():
    def f(d, seq):
        d["y"] = d["x"] + 1
        seq.append(d["y"])
        seq[0].add_(1)
        seq[1] = seq[0] * 2
        d["n"] += 1
        return d["y"] is seq[-1]

    return f, [({"x": t(2), "n": 1}, [t(2), 0]), ({"x": t(2), "n": 1}, [t(2), 0])]


@cases()
def out_argument():
    def f(x, out):
        r = torch.add(x, 1, out=out)
        torch.mul(x, 2, out=out)
        return r, r is out, out

    return f, [(t(3), torch.zeros(3)), (t(3), torch.zeros(3))]


@cases(graphs=1, breaks=1)
def out_argument_resized():
    def f(x, out):
        torch.add(x, 1, out=out)
        return out * 2

    return f, [(t(3), torch.zeros(0)), (t(3) * 2, torch.zeros(0))]


@cases()
def copies():
    def f(x, y):
        x.copy_(y)
        z = x.clone()
        z.fill_(3)
        x[1:].copy_(z[1:])
        return x, z

    return f, [(t(3), t(3))] * 2


# ---- indexing --------------------------------------------------------------------------------


@cases()
def indexing():
    i = torch.tensor([2, 0])

    def f(x):
        return (
            x[0], x[-1], x[1, 2], x[:, 0], x[..., 1], x[None], x[1:, ::2], x[:, None, 1:3],
            x[i], x[i, i], x[:, i], x[[0, 2]], x[(0, 1)], x[x.shape[0] - 1], x[::2, ..., None],
            x[torch.tensor(1)], x[i[:, None], i], x[0][1], x[True], x[2:0], x[slice(1, None)],
        )  # fmt: skip

    return f, [(t(3, 4),), (t(3, 4),)]


@cases()
def setting_items():
    i = torch.tensor([2, 0])

    def f(x, m):
        y = x.clone()
        y[0] = 1.0
        y[:, 1] = x[:, 2]
        y[..., -1] += 2
        y[i] = 0
        y[m] = -1
        y[1:, ::2] = torch.ones(2, 2)
        y[i, i] *= 3
        y[None, 0, 0] = 9
        x[m] = 4
        return y

    return f, [(t(3, 4), torch.rand(3, 4) > 0.5)] * 2


@cases(breaks=1, graphs=2)
def boolean_index():
    def f(x):
        y = x * 2
        z = y[y > 0]
        return z.sum() + 1

    return f, [(torch.arange(6.0) - 2,)] * 2


@cases()
def gather_scatter():
    i = torch.tensor([[0, 1], [1, 0]])

    def f(x):
        return (
            x.gather(0, i), x.scatter(0, i, 1.0), x.index_select(0, i[0]), x.take(i),
            torch.where(x > 0, x, -x), x.masked_fill(x > 0, 0.0), F.one_hot(i, 3),
            x.index_add(0, i[0], x[:2]), x.scatter_add(0, i, x[:2, :2]), x.topk(2), x.sort(0),
        )  # fmt: skip

    return f, [(t(3, 4),), (t(3, 4),)]


@cases(graphs=2, breaks=1)
def wrong_index_caught():
    def f(x):
        y = x + 1
        try:
            return y[10]
        except IndexError as error:
            return y * 2, str(error)

    return f, [(t(3),)] * 2


# ---- metadata --------------------------------------------------------------------------------


@cases()
def metadata():
    def f(x):
        return (
            x + x.size(0) * x.shape[-1] + x.dim() + x.numel() + len(x) + x.ndim, x.dtype, x.device,
            x.shape, x.size(), x.stride(), x.is_contiguous(), x.requires_grad, x.is_leaf,
            x.element_size(), x.storage_offset(), x.is_floating_point(), x.T.is_contiguous(),
            x.layout, x.is_cuda, torch.is_tensor(x), x.nbytes, list(x.shape), [*x.size()],
            x.shape.numel(), x.is_complex(), torch.is_floating_point(x), x.type(), x.data_ptr,
        )[:-1]  # fmt: skip

    return f


@cases(graphs=3, recompiles=2)
def dtypes_and_shapes_change():
    def f(x):
        if x.dtype == torch.float64:
            return x * 2
        return x.to(torch.float64) + x.shape[0]

    return f, [(t(3),), (t(3).double(),), (t(4),), (t(3),)]


@cases()
def factories():
    def f(x):
        return (
            torch.zeros(4) + x[0], torch.ones_like(x), torch.arange(4) + 1, x.new_zeros(2),
            torch.full((2,), 3.0), torch.eye(3, 4) * x, torch.linspace(0, 1, 4) + x,
            torch.tensor(3.0) * x, torch.tensor([1, 2]), x.new_tensor([1.0]), torch.empty(0),
            torch.zeros_like(x, dtype=torch.int64), torch.as_tensor([1.0]), x.new_full((2,), 1),
        )  # fmt: skip

    return f


@cases()
def scalars_and_maths():
    def f(x):
        n = x.shape[1]
        scale = 1 / math.sqrt(n) * math.exp(0.5) + float("1.5") + int("3") + n**0.5
        return x * scale, 2**x, 1 - x, 3 // (x + 10), 5 % (x + 10), -x, ~(x > 0), +x, abs(x)

    return f


@cases()
def comparisons():
    def f(x, y):
        return (
            x < y,
            x == y,
            x != 0,
            x >= y,
            0 < x,
            (x > 0) & (y > 0),
            x.eq(y).all(),
            x is y,
            x == "a",
        )

    return f, [(t(3), t(3))] * 2


@cases()
def many_dtypes():
    def f(x):
        return (
            x.half(), x.bfloat16(), x.double(), x.long(), x.bool(), x.to(torch.complex64),
            x.int() // 2, x.type_as(torch.ones(1)), x.to("cpu"), x.to(dtype=torch.int8), x.cpu(),
            x.to(torch.float64).float(), torch.complex(x, x).real, torch.view_as_real(x + 0j),
            torch.complex(x, x).conj(), torch.promote_types(torch.int8, torch.float16),
        )  # fmt: skip

    return f


@cases()
def several_results():
    def f(x):
        values, indices = x.max(0)
        found = x.sort(1)
        q, r = torch.linalg.qr(x)
        a, b = torch.aminmax(x)
        return values, indices, found, found.values, q @ r, type(found).__name__, a, b, x.min(1)[0]

    return f


@cases()
def functional_calls():
    w, b = grad(5, 4), grad(5)

    def f(x):
        y = F.linear(x, w, b)
        return (
            F.softmax(y, -1),
            F.layer_norm(y, (5,)),
            F.gelu(y),
            F.mse_loss(y, y * 2),
            (F.cross_entropy(y, torch.tensor([0, 1, 2]))),
        )

    return f, [(grad(3, 4),)] * 2, [w, b]


@pytest.mark.parametrize("case", cases, ids=str)
def test_tensors(case: Case) -> None:
    try:
        assert check(case) > 0
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
