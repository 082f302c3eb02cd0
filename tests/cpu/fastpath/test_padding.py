"""Products with rows that are not aligned are padded, and give what they gave before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fastpath import padding
from fastpath.ir import oddrows
from fastpath.ir.oddrows import by_rows
from fastpath.oddrows import split_odd_rows
from fastpath.padding import pad_products

HALF = torch.bfloat16


def numbers(*shape: int) -> torch.Tensor:
    return torch.randint(-2, 3, shape).to(HALF)  # products and sums of which are exact


def both(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[torch.fx.GraphModule, int]:
    graph = make_fx(function, tracing_mode="fake")(*inputs)
    count = pad_products(graph)
    graph.recompile()
    expected, got = function(*inputs), graph(*inputs)
    assert torch.equal(got, expected) and got.stride() == expected.stride()
    return graph, count


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    # function, shapes of the inputs, shapes of the operands that the product has then
    "columns": (torch.mm, [(8, 16), (16, 13)], [(8, 16), (16, 16)]),
    "inner": (torch.mm, [(8, 13), (13, 16)], [(8, 8), (8, 16), (8, 8), (8, 16)]),
    "inner, both": (torch.mm, [(8, 13), (13, 13)], [(8, 16), (16, 16)]),
    "head": (lambda x, w: x @ w.t(), [(8, 16), (13, 16)], [(8, 16), (16, 16)]),
    "turned": (lambda x, y: x.t() @ y, [(16, 13), (16, 8)], [(13, 16), (16, 8)]),
    "turned, bias": (
        lambda b, x, y: torch.addmm(b, x.t(), y),
        [(8,), (16, 13), (16, 8)],
        [(8,), (16, 16), (16, 8)],
    ),
    "rows alone": (torch.mm, [(13, 16), (16, 8)], []),
    "bias": (torch.addmm, [(13,), (8, 16), (16, 13)], [(16,), (8, 16), (16, 16)]),
    "bias of one": (torch.addmm, [(1,), (8, 16), (16, 13)], [(1,), (8, 16), (16, 16)]),
    "bias of rows": (torch.addmm, [(8, 1), (8, 16), (16, 13)], [(8, 1), (8, 16), (16, 16)]),
    "batches": (torch.bmm, [(3, 8, 13), (3, 13, 5)], [(3, 8, 16), (3, 16, 8)]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_padded_product_is_the_product(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "WORTH", 0)
    function, shapes, operands = CASES[name]
    graph, count = both(function, *(numbers(*shape) for shape in shapes))
    assert count == bool(operands)
    if operands:
        products = [n for n in graph.graph.nodes if n.target in (*padding.PRODUCTS, by_rows)]
        product = products[-1]
        assert (product.target is by_rows) == (name == "turned")
        copies = [n for n in graph.graph.nodes if n.target is torch.ops.aten.clone.default]
        assert not copies or product.target is not by_rows  # the result is made as it is returned
        given = [a for n in products for a in n.args if a not in products]
        assert [tuple(a.meta["val"].shape) for a in given] == operands


def test_small_products_and_other_dtypes_stay() -> None:
    assert both(torch.mm, numbers(8, 16), numbers(16, 13))[1] == 0
    wide = [torch.randint(-2, 3, (1300, 1300)).float() for _ in range(2)]
    assert both(torch.mm, *wide)[1] == 0


def test_what_two_products_need_is_padded_once_and_where_it_lies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(padding, "WORTH", 0)
    x, w = numbers(8, 16), numbers(13, 16)
    gradient = numbers(8, 13)

    def backward(g: Any, x: Any, w: Any) -> Any:
        return torch.cat([(g @ w).flatten(), (g.t() @ x).flatten()])

    graph, count = both(backward, gradient, x, w)
    assert count == 2
    pads = [n for n in graph.graph.nodes if n.target is torch.ops.aten.constant_pad_nd.default]
    # The weights' rows begin at vectors: of them only the last are padded.
    assert sorted(tuple(n.meta["val"].shape) for n in pads) == [(8, 16), (8, 16)]
    assert all(n.meta["val"].is_contiguous() for n in pads)
    assert [n.args[0].op for n in pads].count("placeholder") == 1


def test_what_a_product_has_padded_anyway_is_not_taken_by_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own place is then asked for by one kernel, which says where it keeps the address."""
    monkeypatch.setattr(padding, "WORTH", 0)
    monkeypatch.setattr(oddrows, "LARGE", 0)

    def backward(g: Any, x: Any, w: Any) -> Any:
        return torch.cat([(g @ w).flatten(), (g.t() @ x).flatten()])

    inputs = numbers(16, 133), numbers(16, 144), numbers(133, 144)
    for function, count in ((backward, 0), (lambda g, x, w: g @ w, 1)):
        graph = make_fx(function, tracing_mode="fake")(*inputs)
        assert split_odd_rows(graph) == count
        assert pad_products(graph) == 2 * (1 - count)
        (gradient, *_) = graph.graph.find_nodes(op="placeholder")
        readers = {n.target for n in gradient.users} - {torch.ops.aten.t.default}
        assert readers == {oddrows.by_terms if count else torch.ops.aten.constant_pad_nd.default}
        graph.recompile()
        assert torch.equal(graph(*inputs), function(*inputs))
