"""What ATen is given instead of views of views, and that it is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath
import refcompiler
from fastpath import memory, wrapper
from fastpath.cpu import products


@pytest.fixture(autouse=True)
def _products_are_atens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of few rows, columns or terms too, whatever takes longer."""
    monkeypatch.setattr(products, "short", lambda *_: False)


def heads(x: Any, w: Any) -> Any:
    mixed = torch.mm(x.flatten(0, 1), w.t()).view(2, 3, 2, 4).permute(2, 0, 1, 3)
    return torch.bmm(mixed[0], mixed[1].mT)


def of_an_input(x: Any, w: Any) -> Any:
    return torch.mm(x[1].t().t().view(3, 4), w.t()[:, 1:5])


def turned_input(x: Any, w: Any) -> Any:
    return torch.mm(w, x.flatten(0, 1).t())


def returned(x: Any, w: Any) -> Any:
    product = torch.mm(x.flatten(0, 1), w.t())
    return product.t(), product.view(2, 3, 8).mT[1], torch.mm(product.t(), product)


def attended(x: Any, w: Any) -> Any:
    heads = x.transpose(0, 1)[None]  # of three results of the operator, the first
    found = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    return torch.mm(found.transpose(1, 2).flatten(0, 1).flatten(1), w.view(4, 8).repeat(3, 1))


CASES: dict[str, tuple[Callable[..., Any], int, int]] = {
    # function, views that ATen is given, how many of them by one step from a node
    "heads": (heads, 3, 2),
    "of an input": (of_an_input, 3, 0),  # where it begins is not known
    "turned input": (turned_input, 1, 0),
    "returned": (returned, 2, 0),
    "attended": (attended, 1, 1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("offset", [0, 5])
def test_views_for_aten(name: str, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    function, views, steps = CASES[name]
    sources = []
    write = wrapper.Wrapper._compile

    def seen(self: wrapper.Wrapper) -> Any:
        made: Any = write(self)
        sources.append(made.source)
        return made

    monkeypatch.setattr(wrapper.Wrapper, "_compile", seen)
    memory = torch.randn(100)
    x, w = memory[offset : offset + 24].view(2, 3, 4), torch.randn(8, 4)
    compiled = refcompiler.compile(function, backend="fastpath", fullgraph=True, dynamic=False)
    for _ in range(2):
        with torch.no_grad():
            found, wanted = compiled(x, w), function(x, w)
        found = found if isinstance(found, tuple) else (found,)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        memory += 1
    (source,) = sources
    made = [line for line in source.splitlines() if line.lstrip().startswith("v")]
    if not offset:  # else where the inputs begin is not known
        assert (len(made), sum("as_strided" in line for line in made)) == (views, steps), source
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and not report.runtime_fallbacks


@pytest.mark.parametrize("also", ["nothing", "returned", "read otherwise", "a part"])
def test_memory_is_made_as_aten_reads_it(also: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Any, w: Any) -> Any:
        doubled = x.sin() * 2
        if also == "a part":
            doubled = torch.cat([doubled, doubled])
        found = torch.mm(doubled.flatten(0, 1)[:6], w.t())
        if also == "read otherwise":
            return found, torch.bmm(doubled, doubled.mT)
        return (found, doubled) if also == "returned" else found

    monkeypatch.setattr(memory, "keepable", lambda *_: set())  # as on a GPU
    sources = []
    write = wrapper.Wrapper._compile

    def seen(self: wrapper.Wrapper) -> Any:
        made: Any = write(self)
        sources.append(made.source)
        return made

    monkeypatch.setattr(wrapper.Wrapper, "_compile", seen)
    compiled = refcompiler.compile(program, backend="fastpath", fullgraph=True, dynamic=False)
    for n in range(2):
        x, w = torch.randn(2, 3, 4) + n, torch.randn(8, 4)
        with torch.no_grad():
            found, wanted = compiled(x, w), program(x, w)
        torch.testing.assert_close(found, wanted)
    (source,) = sources
    made = [line for line in source.splitlines() if "= empty(" in line]
    assert any("empty((6, 4, ), (4, 1, )" in line for line in made) == (also == "nothing"), source


def test_views_of_what_eager_keeps_within_larger_memory() -> None:
    """A scatter into a part of a tensor gives one that begins where the part does, in memory of its
    own. A kernel's result begins at 0, ATen's where eager's does, and views of both are right."""

    def program(x: Any) -> Any:
        kernels = torch.select_scatter(x[1:], x[0], 0, 1)
        atens = torch.diagonal_scatter(x[2:4], x[0, :2])
        return (
            torch.mm(kernels.t()[1:], kernels),
            kernels[1:].reshape(-1).sort()[0],
            atens[1:, 1:].reshape(-1).sort()[0],
            kernels[1:, 2:].split(1)[1].sort()[0],
        )

    compiled = refcompiler.compile(program, backend="fastpath", fullgraph=True)
    for _ in range(2):
        x = torch.randn(6, 4)
        with torch.no_grad():
            found, wanted = compiled(x), program(x)
        for ours, eagers in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, eagers)
            assert ours.stride() == eagers.stride()
    assert fastpath.last_report().kernels
