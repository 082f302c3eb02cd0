"""Small reductions that nothing waits for, the ends of gradients, share kernels on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fastpath.ir.lower import Lowering
from fastpath.schedule.cluster import Fusion
from fastpath.target import CPU, GPU
from refcompiler.aot.decompositions import core

COUNT = 12


def fusion(function: Callable[..., Any], *inputs: Tensor, ends: int | None = None) -> Fusion:
    traced = make_fx(torch.func.functionalize(function), core())(*inputs)
    return Fusion(Lowering(traced, GPU).run(), GPU.ends if ends is None else ends)


def sums(*given: Tensor) -> list[Tensor]:
    return [t.sum(0).to(torch.bfloat16) for t in given]


def read_again(*given: Tensor) -> list[Tensor]:
    found = [t.sum(0) for t in given]
    return [*found[1:], (found[0] - found[0][:, None]).exp()]


def test_ends_with_equal_loops_are_one_kernel() -> None:
    given = [torch.empty(64, 96) for _ in range(COUNT)]
    apart, joined = fusion(sums, *given, ends=0), fusion(sums, *given)
    assert len(apart.clusters) == COUNT and len(joined.clusters) == 2
    members = [n for c in joined.clusters for n in c.members]
    assert len(members) == len(apart.home) and set(members) == set(joined.home)
    for cluster in joined.result:
        assert set(map(joined.home.get, cluster.members)) == {cluster}
        axes = {a for n in cluster.members for i in cluster.place[n] for a in i.axes()}
        assert axes <= set(cluster.axes)
    assert CPU.ends == 0


def test_other_loops_and_larger_ones_stay_apart() -> None:
    shapes = [(64, 96), (64, 97), (96, 64), (300, 2000), (300, 2000), (64, 96)]
    found = fusion(sums, *(torch.empty(shape) for shape in shapes))
    assert 300 * 2000 > GPU.ends
    assert sorted(len(c.members) for c in found.clusters) == [2, 2, 2, 2, 4]


def test_what_is_waited_for_is_not_kept_back() -> None:
    found = fusion(read_again, *(torch.empty(64, 96) for _ in range(4)))
    (reader,) = [c for c in found.clusters if any(n.name.startswith("exp") for n in c.members)]
    order = found.result
    assert len(order) == 3  # the sum that is read, the others, and what reads
    assert all(order.index(c) < order.index(reader) for c in found.sources(reader))
