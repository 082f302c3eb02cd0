"""Values that a graph computes from constants alone are known while capturing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import refcompiler
from refcompiler.capture import held
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
def constant_that_is_written_to_after_it_was_read():
    def f(x):
        a = torch.zeros(3)
        if a.any():
            x = x + 1
        a.fill_(1)
        if a.any():
            x = x * 3
        return x

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, recompiles=1)
def constants_that_operators_write_to_themselves():
    def f(x):
        if torch.isclose(torch.eye(3), torch.eye(3).mT).all():
            x = x + 1
        d = torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3))
        return d.log_prob(x), d.entropy()

    return f, [(t(4, 3),), (t(4, 3),), (t(6, 3),)]


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


class Kept(nn.Module):
    """Keeps numbers in tensors, as the codecs of transformers do."""

    def __init__(self, **numbers):
        super().__init__()
        for name, number in numbers.items():
            self.register_buffer(name, torch.tensor(number))


class Padding(Kept):
    def forward(self, x):
        length = x.shape[-1]
        frames = (length - self.kernel + self.total) / self.stride + 1
        frames = torch.ceil(frames).to(torch.int64) - 1
        more = frames * self.stride + self.kernel - self.total - length
        if more > 100:
            raise ValueError(more)
        return nn.functional.pad(x, (self.total // 2, max(self.total, more)), "reflect")


@cases(graphs=2, recompiles=1)
def numbers_that_a_module_keeps():
    m = Padding(kernel=7, total=4, stride=3)
    return m, [(t(2, n),) for n in (20, 20, 21, 22, 23, 29)]


@cases(graphs=2, recompiles=1)
def numbers_kept_that_say_sizes_and_places():
    m = Kept(k=3, part=0.5, one=[4], small=5)
    m.small = m.small.to(torch.int32)
    m.list = [torch.tensor(2)]

    def f(x):
        k = m.k
        views = x[:, :k], x[k], x.narrow(0, 0, k), x.unfold(0, k, 1), x[m.small], x[: m.list[0]]
        made = x.repeat(1, k), x.roll(int(k), 0), x.topk(k, dim=1).values, torch.arange(k) + x[0, 0]
        parts = x.split(int(k))[0], x.chunk(k)[0], torch.full((2,), k.item()) * x[0, 0]
        numbers = range(k)[1], "abcdef"[k], [1, 2, 3, 4][k], k.tolist(), m.one.item(), float(k) / 2
        return views, made, parts, numbers, x * m.part.item(), f"{k.item()}", max(k, m.one[0])

    return f, [(t(6, 6),), (t(6, 6),), (t(8, 8),), (t(9, 9),)]


@cases(graphs=2, recompiles=1)
def numbers_kept_beside_autocast():
    m = Padding(kernel=7, total=4, stride=3)

    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return y, m(x) * 2

    return f, [(t(20, n), t(n, 3)) for n in (20, 20, 21, 22)]


@cases(graphs=2, recompiles=1)
def truth_values_that_a_module_keeps():
    m = Kept(ready=False)

    def f(x):
        if not m.ready:
            return x + 1
        return x * 2

    def flip():
        m.ready.logical_not_()

    return f, [(t(3),), (t(3),), flip, (t(3),), flip, (t(3),), flip, (t(3),)]


@cases(graphs=4, breaks=1, recompiles=1)
def number_that_changes_in_between():
    m = Kept(step=3)

    def f(x):
        x = x * 2
        return x + 1 if m.step % 2 else x - 1

    def more():
        m.step += 1

    return f, [(t(3),), (t(3),), more, (t(3),), more, (t(3),), more, (t(3),)]


@cases(graphs=2, breaks=1)
def number_that_the_program_counts_on():
    m = Kept(step=3)

    def f(x):
        x = x * 2
        if m.step > 1:
            x = x + 1
        m.step += 1
        return x * m.step

    return f, [(t(3),), (t(3),), (t(3),)]


@cases(graphs=3, breaks=1, recompiles=1)
def number_written_through_another_tensor():
    m = Kept(step=3)
    other = torch.empty(0, dtype=torch.int64).set_(m.step.untyped_storage(), 0, (1,), (1,))

    def f(x):
        x = x * 2
        other.add_(1)
        return x + int(m.step)

    return f, [(t(3),), (t(3),), (t(3),)]


@cases(graphs=2, breaks=1)
def number_that_the_program_replaces():
    m = Kept(low=0.5)

    def f(x):
        x = x * 2
        x = x - 1 if m.low > 0 else x + 1
        m.low = m.low * 0.5 + x.mean().abs()
        return x * m.low

    return f, [(t(3),), (t(3),), (t(3),)]


@cases(graphs=3, breaks=1)
def number_that_normalisation_writes():
    m = nn.BatchNorm1d(1)

    def f(x):
        y = m(x)
        return y + 1 if m.running_mean > 0.3 else y - 1

    return f, [(torch.full((4, 1), n),) for n in (1.0, 3.0, -1.0, 9.0)]


@cases(graphs=1)
def number_in_a_global():
    return lambda x: x[: int(GLOBAL)] * 2, [(t(5),), (t(5),)]


GLOBAL = torch.tensor(2)


@cases(graphs=2, breaks=1)
def number_in_an_argument():
    return lambda x, n: (x * 2)[: int(n)] + 1, [
        (t(5), torch.tensor(2)),
        (t(5), torch.tensor(2)),
        (t(5), torch.tensor(2)),
    ]


def test_quotients_past_what_floats_tell(monkeypatch):
    """They are not symbols: the graph ends there."""

    def f(x):
        return x[:3] + int(torch.ceil(torch.tensor(x.shape[0]) / 3 + 1).long())

    for limit, graphs in ((2**21, 2), (64, 5)):
        monkeypatch.setattr(held, "_SAFE", limit)
        refcompiler.reset()
        compiled = refcompiler.compile(f, backend="eager")
        for n in (20, 50, 80, 81, 82):
            x = t(n)
            assert torch.equal(compiled(x), f(x))
        assert refcompiler.counters()["graphs"] == graphs, limit


def test_rounded_quotients_are_exact_in_float32():
    """As far as capture takes them for whole numbers, of whatever three numbers are added."""
    generator = torch.Generator().manual_seed(0)
    checked = 0
    for _ in range(20):
        below = torch.randint(1, 2 ** int(torch.randint(1, 21, ())), (10_000,), generator=generator)
        above = torch.randint(-held._SAFE, held._SAFE, (10_000,), generator=generator)
        found, exact, safe = above / below, above, torch.ones(10_000, dtype=torch.bool)
        for _ in range(held._ADDED - 1):
            more = torch.randint(-99, 99, (10_000,), generator=generator)
            found, exact = found + more, exact + more * below
            safe &= exact.abs() <= held._SAFE
        up = -((-exact).div(below, rounding_mode="floor"))
        down = exact.div(below, rounding_mode="floor")
        assert torch.equal(found.ceil().long()[safe], up[safe])
        assert torch.equal(found.floor().long()[safe], down[safe])
        checked += int(safe.sum())
    assert checked > 60_000


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
