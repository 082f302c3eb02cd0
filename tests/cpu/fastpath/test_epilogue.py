"""What a caller sees besides values: mutation, aliasing, identity, strides, random numbers."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    return fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))


def aliasing(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    """Which pairs share storage."""
    storages = [t.untyped_storage()._cdata for t in tensors]
    count = len(storages)
    return [(i, j) for i in range(count) for j in range(i + 1, count) if storages[i] == storages[j]]


def observe(run: Callable[..., Any], inputs: list[torch.Tensor]) -> dict[str, Any]:
    torch.manual_seed(0)
    out = run(*inputs)
    outputs = list(out) if isinstance(out, (tuple, list)) else [out]
    everything = [*inputs, *outputs]
    return {
        "values": [t.clone() for t in everything],
        "strides": [t.stride() for t in everything],
        "offsets": [t.storage_offset() for t in everything],
        "dtypes": [t.dtype for t in everything],
        "alias": aliasing(everything),
        "identity": [next((n for n, i in enumerate(inputs) if i is o), None) for o in outputs],
        "type": type(out),
        "rng": torch.get_rng_state(),
    }


def agree(function: Callable[..., Any], *inputs: torch.Tensor, fallback: str | None = None) -> Any:
    """Run eager and compiled on equal inputs, twice; compare all that can be seen."""
    with torch.no_grad():
        run = compiled(function, *[t.clone() for t in inputs])
        if fallback is None:
            assert run.report.fallback is None, run.report.fallback
        else:
            assert fallback in str(run.report.fallback)
        for _ in range(2):
            mine, eager = copy.deepcopy(list(inputs)), copy.deepcopy(list(inputs))
            ours, theirs = observe(run, mine), observe(function, eager)
            for a, b in zip(ours.pop("values"), theirs.pop("values"), strict=True):
                torch.testing.assert_close(a, b, equal_nan=True)
            assert torch.equal(ours.pop("rng"), theirs.pop("rng"))
            assert ours == theirs
    return run


X, Y = torch.randn(4, 6), torch.randn(4, 6)


def test_an_input_written_in_place_is_written_and_returned() -> None:
    agree(lambda x: x.add_(1), X)


def test_a_write_through_a_view_reaches_the_input() -> None:
    agree(lambda x: (x[1].mul_(2), x * 2), X)


def test_a_write_through_a_transposed_view() -> None:
    agree(lambda x: (x.t()[2].add_(1).sum(), x), X)


def test_reads_before_a_write_keep_the_old_value() -> None:
    def program(x: torch.Tensor) -> Any:
        before = x * 2
        x.mul_(3)
        return before, x + 1

    agree(program, X)


def test_two_inputs_swapped() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)
        return x + y

    agree(program, X, Y)


def test_an_output_that_views_an_input() -> None:
    agree(lambda x: (x.t(), x[1:3], x.view(-1), x * 2), X)


def test_a_view_of_a_mutated_input() -> None:
    agree(lambda x: (x.add_(1).t(), x[1]), X)


def test_the_input_itself_is_returned() -> None:
    agree(lambda x, y: (x, x + y, y), X, Y)


def test_outputs_that_alias_each_other() -> None:
    def program(x: torch.Tensor) -> Any:
        base = x * 2
        return base, base[1], base.t()

    agree(program, X)


def test_outputs_that_alias_after_a_mutation() -> None:
    def program(x: torch.Tensor) -> Any:
        base = x * 2
        row = base[1]
        base.add_(1)
        return base, row

    agree(program, X)


def test_a_row_written_after_it_was_taken() -> None:
    def program(x: torch.Tensor) -> Any:
        base = x * 2
        row = base[1]
        row.add_(1)
        return base, row

    with torch.no_grad():
        run = compiled(program, X)
        base, row = run(X)
        expected = program(X)
        torch.testing.assert_close((base, row), expected)
        assert base.untyped_storage()._cdata == row.untyped_storage()._cdata


def test_one_output_twice() -> None:
    with torch.no_grad():
        run = compiled(lambda x: (lambda y: (y, y))(x + 1), X)
        a, b = run(X)
    assert a is b
    torch.testing.assert_close(a, X + 1)


def test_a_clone_does_not_alias() -> None:
    agree(lambda x: (x.clone(), x.contiguous(), x.t().contiguous(), x.detach()), X)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: x.t().contiguous().t(),
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: x[:1].expand(4, 6),
        lambda x: torch.cat([x, x])[2:6],
    ],
    ids=["contiguous", "transposed", "strided", "expanded", "offset"],
)
def test_strides_of_results_follow_eager(layout: Callable[..., torch.Tensor]) -> None:
    x = layout(X)
    run = None
    with torch.no_grad():
        run = compiled(lambda x, y: (x + y, torch.relu(x), x.sum(0), x * y.t().t()), x, Y)
        got = run(x, Y)
        for a, b in zip(got, (x + Y, torch.relu(x), x.sum(0), x * Y), strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
    assert run.report.fallback is None and run.report.kernels >= 1


def test_channels_last() -> None:
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    agree(lambda x: (x * 2, torch.relu(x) + 1, x.mean((2, 3)), x.permute(0, 2, 3, 1)), image)


def test_dropout_draws_eagers_numbers() -> None:
    run = agree(lambda x: F.dropout(x, 0.5) * 2 + torch.rand_like(x), X)
    assert sum(run.report.aten_calls.values()) >= 2


def test_random_calls_keep_their_order() -> None:
    def program(x: torch.Tensor) -> Any:
        a = torch.rand_like(x)
        torch.rand_like(x)  # not used, but it advances the stream
        return torch.randn_like(x) + a

    agree(program, X)


def test_batch_norm_updates_its_statistics() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    other = copy.deepcopy(net)
    image = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        run = fastpath.compile_graph(torch.fx.symbolic_trace(net), [image])
        assert run.report.fallback is None
        for _ in range(2):
            torch.testing.assert_close(run(image), other(image))
    for (name, a), b in zip(net.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, msg=name)
    assert int(net[1].num_batches_tracked) == 2


def test_overlapping_inputs_have_a_program_of_their_own() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        return y * 2

    base = torch.randn(10)
    with torch.no_grad():
        run = compiled(program, torch.randn(8), torch.randn(8))
        torch.testing.assert_close(run(torch.zeros(8), torch.ones(8)), torch.full((8,), 2.0))
        assert not run.report.overlapping
        for _ in range(2):
            mine, eager = base.clone(), base.clone()
            torch.testing.assert_close(run(mine[:8], mine[2:]), program(eager[:8], eager[2:]))
            torch.testing.assert_close(mine, eager)
    (overlapping,) = run.report.overlapping
    assert overlapping.fallback is None and run.report.runtime_fallbacks == 0


def test_calls_that_run_the_graph_as_it_is_are_counted() -> None:
    with torch.no_grad():
        run = compiled(
            lambda x, y: x.add_(1) + y, torch.randn(8), torch.zeros(8, dtype=torch.int64)
        )
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(torch.ones(8), torch.ones(8))
        tangent = torch.autograd.forward_ad.unpack_dual(run(x * 1, torch.zeros(8).long())).tangent
    assert torch.equal(tangent, torch.ones(8)) and run.report.runtime_fallbacks == 1


def test_gradients_flow_through_kernels() -> None:
    weight = torch.randn(3, requires_grad=True)
    run = compiled(lambda x, w: (x * w).sum(), torch.randn(3), weight)
    assert run.report.fallback is None and run.report.kernels == 1
    run(torch.ones(3), weight).backward()
    torch.testing.assert_close(weight.grad, torch.ones(3))
    (backward,) = run.report.backwards
    assert backward.kernels == 1 and not backward.aten_calls


def test_a_graph_without_gradients_inside_is_compiled() -> None:
    weight = torch.randn(3, requires_grad=True)
    run = compiled(lambda x, w: (x * w.detach()).sum(), torch.randn(3), weight)
    assert run.report.fallback is None
    out = run(torch.ones(3), weight)
    assert not out.requires_grad and torch.is_grad_enabled()
    torch.testing.assert_close(out, weight.detach().sum())


def test_metadata_of_an_input_changes() -> None:
    run = compiled(lambda x: x.unsqueeze_(0) * 2, torch.randn(3))
    assert run.report.fallback is None
    x = torch.randn(3)
    torch.testing.assert_close(run(x), x * 2)
    assert x.shape == (1, 3)


def test_errors_are_eagers() -> None:
    run = compiled(lambda x, y: x @ y, torch.randn(3, 4), torch.randn(3, 4))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run(torch.randn(3, 4), torch.randn(3, 4))


def test_integer_division_by_zero_raises_as_eager_does() -> None:
    x, zero = torch.arange(4), torch.zeros(4, dtype=torch.int64)
    with torch.no_grad():
        run = compiled(lambda a, b: a // b, x, zero + 1)
        assert torch.equal(run(x, zero + 2), x // 2)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run(x, zero)


def test_nested_outputs() -> None:
    with torch.no_grad():
        run = compiled(lambda x: {"a": x + 1, "b": [x * 2, (x - 1, 3, None)]}, X)
        out = run(X)
    torch.testing.assert_close(out["a"], X + 1)
    torch.testing.assert_close(out["b"][0], X * 2)
    torch.testing.assert_close(out["b"][1][0], X - 1)
    assert out["b"][1][1:] == (3, None)


def test_inference_mode() -> None:
    with torch.inference_mode():
        x = torch.randn(4, 4)
        run = compiled(lambda x: torch.softmax(x * 2, -1), x)
        out = run(x)
        assert run.report.fallback is None and out.is_inference()
        torch.testing.assert_close(out, torch.softmax(x * 2, -1))


def test_autocast_casts_once() -> None:
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        run = compiled(lambda x, w: torch.softmax(x @ w, -1), x, w)
        out, expected = run(x, w), torch.softmax(x @ w, -1)
    assert run.report.fallback is None
    assert out.dtype == expected.dtype
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(
    "x",
    [torch.conj(torch.randn(3, dtype=torch.complex64)), torch._neg_view(torch.randn(3))],
    ids=["conj", "neg"],
)
def test_conjugate_and_negative_bits(x: torch.Tensor) -> None:
    with torch.no_grad():
        run = compiled(lambda x: x * 2, x)
        assert run.report.fallback is None
        torch.testing.assert_close(run(x), x * 2)


def test_unknown_options_are_refused() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(TypeError, match="no option 'speed'"):
        fastpath.compile_graph(graph, [X], speed=11)


def test_a_detached_view_of_an_input_that_requires_grad_stays_detached():
    weight = torch.randn(3, 4, requires_grad=True)
    run = compiled(lambda w: (w.detach(), w.detach().t(), w.detach() * 2), weight)
    assert run.report.fallback is None
    outs = run(weight)
    assert [out.requires_grad for out in outs] == [False, False, False]
    assert outs[0].untyped_storage()._cdata == weight.untyped_storage()._cdata
    assert torch.equal(outs[1], weight.detach().t())


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (IndexError("a slip"), "internal error .*IndexError: a slip"),
        (
            ModuleNotFoundError("No module named 'numba.core'", name="numba.core"),
            "the package numba is not installed: pip install numba$",
        ),
    ],
)
def test_an_error_of_our_own_is_told_and_the_graph_still_runs(monkeypatch, error, line) -> None:
    from fastpath.ir.lower import Lowering

    def broken(self: Lowering) -> None:
        raise error

    monkeypatch.setattr(Lowering, "run", broken)
    x = torch.randn(3)
    with pytest.warns(UserWarning, match=line):
        run = compiled(lambda x: x * 2 + 1, x)
    assert re.match(line, run.report.fallback)
    assert torch.equal(run(x)[0] if isinstance(run(x), (tuple, list)) else run(x), x * 2 + 1)
