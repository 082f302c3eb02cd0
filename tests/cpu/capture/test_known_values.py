"""Values that a graph computes from constants alone are known while capturing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


@cases(graphs=2, recompiles=1)
def branches_on_constants():
    def f(x):
        a, b = torch.arange(4), torch.tensor([1, 2, 3])
        n = a[2].item() + b.max().item() + int(b[0]) + len(b.tolist())
        if (a == torch.arange(4)).all():
            x = x + 1
        if torch.equal(a, b):
            x = x * 2
        return x * n, float(b[1]), bool(a[0] == 0)

    return f, [(t(3),), (t(4),)]


@cases()
def places_to_split_at():
    def f(x):
        first, rest = torch.tensor_split(x, torch.tensor([1]))
        return first * 2, rest, x.tensor_split(torch.tensor(2), dim=1), torch.tensor_split(x, 2)

    return f, [(t(3, 4),), (t(3, 4),)]


@cases(graphs=2, breaks=1)
def constant_that_was_written_to():
    def f(x):
        a = torch.arange(4)
        a[1] = x.numel() + 4
        return x * a[1].item()

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, breaks=1)
def constant_written_through_its_data():
    def f(x):
        a = torch.arange(4)
        a.data.add_(3)
        return x * a[1].item()

    return f, [(t(3),), (t(3),)]


@cases(graphs=3, breaks=1, recompiles=1)
def random_numbers_are_not_known():
    def f(x):
        return x * torch.rand(4)[1].item()

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, recompiles=1)
def of_the_default_dtype_at_that_time():
    def f(x):
        torch.set_default_dtype(torch.float64)
        third = (torch.ones(4) / 3)[2].item()
        torch.set_default_dtype(torch.float32)
        return x * third, third, (torch.ones(2) / 3)[0].item()

    return f, [(t(3),), (t(4),)]


@cases(graphs=2, recompiles=1)
def mask_that_is_looked_at():
    m = nn.Transformer(8, 2, 1, 1, 16, batch_first=True, dropout=0.0)

    def f(a, b):
        return m(a, b, tgt_mask=m.generate_square_subsequent_mask(4))

    return f, [(t(2, 5, 8), t(2, 4, 8)), lambda: m.eval(), (t(2, 5, 8), t(2, 4, 8))]


@cases(graphs=2, recompiles=1)
def tensors_of_elements_and_numbers():
    def f(x, i):
        return (
            torch.tensor([x[0], i[0]]),
            torch.tensor([[x[0], 1], [i[1], 2.5]]),
            torch.tensor([x[0], 1], dtype=torch.float64),
            torch.tensor([i[0], True]),
            torch.tensor((x[0], 1j)),
            torch.tensor([x.sum().half(), 3]),
        )

    return f, [(t(3), torch.tensor([1, 2])), (t(4), torch.tensor([3, 2]))]


@cases(graphs=1, breaks=1)
def tensors_of_what_does_not_fit():
    def f(x, i):
        y = x * 2
        try:
            return y, torch.tensor([x[0], i[0]], dtype=torch.long)
        except TypeError as error:
            return y, str(error)

    return f, [(t(3), torch.tensor([1, 2])), (t(3), torch.tensor([3, 2]))]


@cases()
def named_tuples_of_torch():
    def f(x, found):
        return x + found.values, found[1] + 1, len(found)

    return f, [(t(3), torch.max(t(3, 3), 1)), (t(3), torch.max(t(3, 3), 1))]


@cases()
def inverse_transform():
    window = torch.hann_window(8)

    def f(x):
        spectrum = torch.stft(x, 8, return_complex=True, window=window)
        return torch.istft(spectrum * 2, 8, window=window)

    return f, [(t(32),), (t(32),)]


@cases(graphs=1, breaks=1)
def scripted_function_that_branches():
    @torch.jit.script
    def g(x):
        if bool(x.sum() > 0):
            return x * 2
        return x

    return lambda x: g(x) + 1, [(torch.ones(3),), (-torch.ones(3),)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
