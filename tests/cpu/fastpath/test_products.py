"""Matrix products in kernels of ours: what they compute, what is fused, and how one is chosen."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

pytest.importorskip("triton")

import fastpath
import refcompiler
from fastpath import compiler
from fastpath.decompositions import table
from fastpath.device import Device
from fastpath.gpu import parts, tuning
from fastpath.gpu.classes import ByClasses
from fastpath.gpu.compile import machine_code
from fastpath.gpu.parts import _between, extracted, parts_of, text_of
from fastpath.gpu.vectors import print_kernel
from fastpath.ir import oddrows, products
from fastpath.ir.lower import Lowering
from fastpath.ir.products import candidates, sizes_of
from fastpath.ir.program import Tile
from fastpath.oddrows import split_odd_rows
from fastpath.options import Options
from fastpath.padding import pad_products
from fastpath.random import philox
from fastpath.schedule.cluster import Fusion
from fastpath.schedule.loops import Builder
from fastpath.target import GPU
from refcompiler.cache import store
from tests import forked
from tests.cpu.fastpath.triton_kernels import kernels_of
from tests.cpu.fastpath.triton_products import (
    CASES,
    CLASSES,
    by_classes,
    graph_of,
    lowering_of,
    numbers,
)

BFLOAT = torch.bfloat16


def test_in_tritons_interpreter(tmp_path: Path) -> None:
    script = Path(__file__).with_name("triton_products.py")
    done = forked.fresh(script, {**os.environ, "TRITON_INTERPRET": "1"}, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    printed = done.stdout.split()
    assert printed[0] == str(sum(case[2] for case in CASES.values()))
    assert int(printed[4]) > 4_000
    assert printed[6] == str(len(CLASSES)) and int(printed[9]) > 10_000


def wide(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=BFLOAT)


def image(*shape: int) -> torch.Tensor:
    return wide(*shape).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("capability, word", [(80, "mma.sync"), (90, "wgmma.mma_async")])
@pytest.mark.parametrize("convolution", [False, True])
def test_kernels_use_the_tensor_cores_and_load_ahead(
    capability: int, word: str, convolution: bool
) -> None:
    if convolution:
        given = [image(4, 64, 16, 16), image(64, 64, 3, 3), image(4, 64, 16, 16)]
        graph = graph_of(lambda x, w, y: F.relu(F.conv2d(x, w, padding=1) + y), given)
    else:
        graph = graph_of(lambda x, w: F.relu(x @ w), [wide(256, 256), wide(256, 256)])
    (kernel,) = kernels_of(lowering_of(graph, Tile(64, 64, 64, 4, 3))[1])[0]
    dtypes = tuple(b.dtype for b in kernel.buffers)
    text = machine_code(print_kernel(kernel), dtypes, capability).asm["ptx"]
    assert word in text and "cp.async" in text
    stores = [line for line in text.splitlines() if "st.global" in line]
    assert stores and all(".v4.b32" in line for line in stores)
    assert "ld.global.b16" not in text  # of what is read beside, either


def test_rows_that_begin_between_vectors_are_stored_by_vectors() -> None:
    graph = graph_of(lambda x, w: x @ w.t(), [wide(1024, 256), wide(1001, 256)])
    (kernel,) = kernels_of(lowering_of(graph, Tile(64, 64, 64, 4, 3))[1])[0]
    dtypes = tuple(b.dtype for b in kernel.buffers)
    printed = print_kernel(kernel)
    assert print_kernel(kernel, aligned=False).programs == printed.programs == 8 * 2 * 16
    text = machine_code(printed, dtypes, 90).asm["ptx"]
    assert "cp.async.cg" in text and "cp.async.ca" not in text  # 16 bytes at once
    inside = text[text.index("wgmma.wait_group") :]
    assert inside.count("st.global.v4.b32") == 64 * 64 // (8 * 128)
    turned = graph_of(lambda x, w: x @ w, [wide(1024, 256), wide(256, 1001)])
    (kernel,) = kernels_of(lowering_of(turned, Tile(64, 64, 64, 4, 3))[1])[0]
    assert "kind" not in print_kernel(kernel).source  # its operand would be read by elements


def test_convolutions_are_candidates_where_the_tensor_cores_can_compute_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, w = image(8, 64, 28, 28), image(64, 64, 3, 3)

    def found(function: Any, *inputs: torch.Tensor) -> list[tuple[int, ...]]:
        nodes = candidates(graph_of(function, inputs).graph)
        return [sizes_of(node) for node in nodes]

    assert found(F.conv2d, x, w) == [(1, 8 * 26 * 26, 64, 576)]
    assert found(lambda x, w: F.conv2d(x, w, groups=2), x, w[:, :32]) == []
    assert found(F.conv_transpose2d, x, w) == []
    assert found(F.conv2d, x[:, :, :3, :3], w) == []  # too little to do
    beside = graph_of(lambda x, w: F.conv2d(x, w, padding=(2, 0)), [x[:, :, :1], w[:, :, :1]])
    assert kernels_of(lowering_of(beside)[1])[0]  # of five rows of windows one is in the image
    apart = graph_of(
        lambda x, w: F.conv2d(x, w, stride=(9, 1), padding=(2, 0)), [x[:, :, :1], w[:, :, :1]]
    )
    with pytest.raises(NotImplementedError):  # as kernels alone: it is left to ATen
        kernels_of(lowering_of(apart)[1])
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert found(F.conv2d, x.float(), w.float()) == []
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert len(found(F.conv2d, x.float(), w.float())) == 1


def test_draws_are_made_beside_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(philox, "resident", lambda device: 132 * 2048)
    with FakeTensorMode():
        fakes = [torch.empty(512, 512, device="cuda", dtype=BFLOAT) for _ in range(3)]
        graph = make_fx(torch.func.functionalize(dropped), table())(*fakes)
    tile, device = Tile(64, 64, 64, 4, 3), torch.device("cuda", 0)
    program = Lowering(graph, GPU, device, products={"mm": tile}).run()
    fusion = Fusion(program)
    (cluster,) = (c for c in fusion.clusters if c.product is not None)
    stored = {t.node for t in program.outputs}
    kernel = Builder(cluster, "dropped", fusion.roots.roots, stored, (), GPU).build()
    printed = print_kernel(kernel)
    assert len(printed.arguments) == 2  # the seed and the counter
    assert machine_code(printed, tuple(b.dtype for b in kernel.buffers), 90).asm["cubin"]


def dropped(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [F.dropout(x @ w, 0.5) + y]


def test_without_epilogues_a_product_is_rounded_and_no_more() -> None:
    graph = graph_of(lambda x, w: F.relu(x @ w), [numbers(16, 16)] * 2)
    for fused, count in ((True, 1), (False, 2)):
        program = lowering_of(graph)[1]
        program.epilogues = fused
        kernels = kernels_of(program)[0]
        assert [k.product is not None for k in kernels] == [True, False][:count]
        assert kernels[0].buffers[-1].dtype == "float16"


def layers(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = F.gelu(F.linear(x, w, b)).view(64, 256) + x
    return x.sum(-1)


LAYERS = [wide(64, 256), wide(256, 256), wide(256)]


def test_candidates_are_those_that_the_tensor_cores_multiply() -> None:
    def count(*inputs: torch.Tensor) -> int:
        return len(products.candidates(graph_of(torch.matmul, inputs).graph))

    assert count(wide(512, 256), wide(256, 256)) == 1
    assert count(wide(8, 8192), wide(8192, 512)) == 0  # too few rows
    assert count(wide(64, 64), wide(64, 64)) == 0  # too small
    assert count(wide(512, 1).expand(512, 512), wide(512, 512)) == 0
    single = [torch.empty(512, 512)] * 2
    assert count(*single) == 0
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert count(*single) == 1
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_parts_are_what_a_kernel_computes() -> None:
    given = [numbers(64, 256, dtype=torch.float32), *(numbers(256, 256), numbers(256))]
    given = [x.float() for x in given]
    graph = graph_of(layers, given)
    parts = parts_of(*lowering_of(graph))
    assert len(parts) == 3
    texts, elements = set(), 0
    values = torch.fx.Interpreter(graph, garbage_collect_values=False)
    values.run(*given)
    for name, part in parts.items():
        assert any(n.name == name for n in part) and {"gelu" in str(n.target) for n in part}
        cut = extracted(part)
        assert cut is not None
        module, there = cut
        back = {new: old for old, new in there.items()}
        inputs = [values.env[back[n]] for n in module.graph.nodes if n.op == "placeholder"]
        outputs = module.graph.output_node().args[0]
        for got, node in zip(module(*inputs), outputs, strict=True):
            assert torch.equal(got, values.env[back[node]])
            elements += got.numel()
        texts.add(text_of(module.graph))
    assert elements >= 3 * 64 * 256
    assert len(texts) <= 2  # the last one's result is added up by another kernel, or is not


def test_of_several_results_a_part_has_the_single_ones() -> None:
    """A part's inputs and outputs are tensors."""

    def split(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.native_dropout(x @ w, 0.5, False)[0] + x

    graph = graph_of(split, [numbers(16, 16)] * 2)
    part = {n for n in graph.graph.nodes if n.op == "call_function" and "getitem" not in n.name}
    cut = extracted(_between(part))
    assert cut is not None
    outputs = cut[0].graph.output_node().args[0]
    assert [n.name for n in outputs] == [graph.graph.output_node().args[0][0].name]


@pytest.mark.parametrize("found", [Tile(64, 64, 64, 4, 5), None])
def test_equal_parts_are_measured_once_and_the_choice_is_kept(
    found: Tile | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured: list[str] = []

    def measure(node: torch.fx.Node, *_: Any) -> Tile | None:
        measured.append(node.name)
        return found

    kept = store.Store(tmp_path, 1 << 20)
    monkeypatch.setattr(tuning, "_measured", measure)
    monkeypatch.setattr(tuning, "_known", {})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a device")
    monkeypatch.setattr(store, "current", lambda: kept)
    monkeypatch.setattr(products, "WORTH", 1 << 20)

    def tuned(function: Callable[..., Any] = layers) -> dict[str, Tile]:
        graph = graph_of(function, LAYERS)
        return tuning.tuned(graph, GPU, torch.device("cpu"), Options(), lambda *_: print)

    chosen = tuned()
    first = len(measured)
    assert 0 < first < 3 and len(chosen) == (3 if found else 0)
    assert set(chosen.values()) == ({found} if found else set())
    assert tuned() == chosen and len(measured) == first
    tuning._known.clear()  # another process
    assert tuned() == chosen and len(measured) == first
    tuned(lambda x, w, b: torch.sigmoid(F.linear(x, w, b)))
    assert len(measured) == first + 1


def test_what_reads_a_products_epilogue_is_measured_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a kernel of the product, a norm computes what is elementwise before it."""
    monkeypatch.setattr(products, "WORTH", 1 << 20)

    def block(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(F.silu(F.linear(x, w, b)), (256,))
        return torch.sigmoid(F.linear(y, w))

    graph = graph_of(block, LAYERS)
    lowering, program = lowering_of(graph)
    without = Lowering(graph, GPU)
    kernels = parts.kernels_of(without, without.run())
    multiplied = candidates(graph.graph)
    count = 0
    for name, part in parts_of(lowering, program).items():
        wider = parts.with_readers(part, kernels, {*multiplied})
        assert part < wider and [n.name for n in multiplied if n in wider] == [name]
        assert {"aten.silu.default", "aten.native_layer_norm.default"} <= {
            str(n.target) for n in wider
        }
        assert extracted(wider) is not None
        count += 1
    assert count == len(multiplied) == 2
    beside = {multiplied[0]: [{*multiplied}]}
    both = parts.with_readers({multiplied[0]}, beside, {*multiplied})
    assert both == {multiplied[0]}


def test_the_vendors_product_is_kept_unless_ours_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = graph_of(layers, LAYERS)
    lowering, program = lowering_of(graph)
    name, part = next(iter(parts_of(lowering, program).items()))
    node = next(n for n in part if n.name == name)
    times: dict[Tile | None, float] = {}

    def compile_part(graph: torch.fx.GraphModule, chosen: dict[str, Tile]) -> Any:
        (tile,) = chosen.values() or [None]
        if tile is not None and tile.m == 32:
            raise RuntimeError("out of resource")
        return str(tile)

    def timed(calls: dict[Tile | None, Any], *_: Any) -> dict[Tile | None, float]:
        assert all(str(tile) == call for tile, call in calls.items()) and None in calls
        assert not any(tile is not None and tile.m == 32 for tile in calls)
        return {tile: times.get(tile, 3.0) for tile in calls}

    monkeypatch.setattr(tuning, "timed", timed)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    best = tuning.tiles_for(64, 256, 256, 2)[1]
    for ours, vendor, wanted in ((1.0, 2.0, best), (1.99, 2.0, None), (2.5, 2.0, None)):
        times.update({best: ours, None: vendor})
        assert tuning._measured(node, part, torch.device("cpu"), compile_part) == wanted
    with pytest.raises(TypeError):  # an error of ours is no tile that does not fit
        tuning._measured(node, part, torch.device("cpu"), lambda: None)  # type: ignore[arg-type]


def test_the_least_of_many_measurements_is_measured_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[list[int], int]] = []
    loads: list[tuple[float, ...]] = []

    def timed(
        calls: dict[int, Any], like: Any, device: Any, drawing: bool, rounds: int, *spans: float
    ) -> dict[int, float]:
        asked.append((sorted(calls), rounds))
        loads.append(spans[1:])
        times = {0: 2.0, 1: 1.5, 2: 1.4} if len(calls) == 3 else again
        return {name: times[name] for name in calls}

    monkeypatch.setattr(tuning, "timed", timed)
    calls: dict[int, Any] = dict.fromkeys(range(3), print)
    again = {0: 2.0, 2: 1.6}
    for second, wanted in ((1.6, 2), (1.95, 0)):
        again[2] = second
        found, times = tuning.fastest(calls, 0, 0.9, [], torch.device("cpu"), rounds=5)
        assert found == wanted and times == again
    assert asked == [([0, 1, 2], 5), ([0, 2], 10)] * 2
    assert tuning.fastest(calls, 2, 0.9, [], torch.device("cpu"), rounds=5)[0] == 2
    assert len(asked) == 5 and not any(loads)
    tuning.fastest(calls, 0, 0.9, [], torch.device("cpu"), rounds=5, load=0.25)
    assert asked[-1] == ([0, 2], tuning.LOADED) and loads[-2:] == [(), (0.25,)]


def test_tiles_fit_the_product_and_the_memory() -> None:
    wide = (4096, 4096, 4096), (16, 4096, 512), (100, 64, 32), (4096, 50257, 768)
    narrow = (4352, 32, 216), (100_352, 64, 27), (100_352, 24, 27)  # as convolutions are
    for m, n, k in (*wide, *narrow):
        found = tuning.tiles_for(m, n, k, 2)
        assert found or k < 64 and n < 64
        for tile in found:
            assert (tile.m + tile.n) * tile.k * 2 * tile.stages <= tuning.MEMORY
            assert tile.m < 2 * max(m, 16) and tile.n < 2 * max(n, 17)
    assert all(t.m == 16 for t in tuning.tiles_for(16, 4096, 512, 2))


def test_what_a_kernel_of_ours_computes_is_not_padded() -> None:
    inputs = [wide(4096, 768), wide(768, 50257)]
    for others, count in (((), 1), (("mm",), 0)):
        assert pad_products(graph_of(torch.matmul, inputs), others) == count


def test_products_whose_rows_begin_between_vectors_are_kernels_of_ours() -> None:
    def chosen(function: Callable[..., Any], *inputs: torch.Tensor) -> list[Tile]:
        return list(products.of_odd_rows(graph_of(function, inputs).graph).values())

    x, head, bias = wide(4096, 768), wide(50257, 768), wide(50257)
    assert chosen(F.linear, x, head, bias) == [products.ODD_ROWS]
    assert chosen(lambda a, b: F.linear(a, b).relu(), x, head) == [products.ODD_ROWS]
    assert chosen(F.linear, x, head) == []  # by classes
    assert chosen(F.linear, x[:4095], head) == [products.ODD_ROWS]
    assert chosen(F.linear, x, wide(50256, 768)) == []  # the vendor's kernels are fast
    assert chosen(torch.matmul, x, wide(768, 50257)) == []  # what it reads has to be padded
    assert chosen(F.linear, wide(8, 768), wide(1001, 768)) == []  # small
    assert chosen(lambda a, b: (b @ a.t()).t().contiguous(), x, head) == []
    assert chosen(F.linear, x.float(), head.float()) == []


def test_products_with_odd_rows_go_by_classes_where_their_parts_are_aligned() -> None:
    def ways(function: Callable[..., Any], *inputs: torch.Tensor) -> list[Any]:
        graph = graph_of(function, inputs)
        count = split_odd_rows(graph)
        found = [n.target for n in graph.graph.nodes if n.target in oddrows.BY_CLASSES]
        assert len(found) == count
        return found

    x, head, gradient = wide(4096, 768), wide(50257, 768), wide(4096, 50257)
    assert ways(F.linear, x, head) == [oddrows.by_columns]
    assert ways(torch.matmul, gradient, head) == [oddrows.by_terms]
    assert ways(torch.matmul, gradient.t(), x) == []  # its terms would be added up in eight parts
    assert ways(torch.matmul, wide(4096, 50264)[:, :50257], head) == []  # its rows are aligned
    assert ways(F.linear, x, wide(50256, 768)) == []
    assert ways(F.linear, x[:4095], head) == ways(F.linear, wide(4096, 769)[:, 1:], head) == []
    assert ways(F.linear, x.float(), head.float()) == []
    assert ways(F.linear, x[:64], wide(1001, 768)) == []  # small
    assert ways(torch.matmul, x, wide(768, 50257)) == []  # what it reads has to be padded
    graph = graph_of(F.linear, [x, head])
    assert split_odd_rows(graph, [n.name for n in graph.graph.nodes]) == 0


def test_classes_begin_at_vectors_and_leave_out_little() -> None:
    for step in (8, 4):
        for length in range(64, 200):
            found = oddrows.classes_of(64, length, step)
            if found is None:
                assert length % step == 0 or step == 8 and length in (65, 67, 73, 81, 89, 97)
                continue  # of the others less than half would be left
            assert length % step and 2 * found.width > length
            begins = [j * (length + found.shift) for j in range(found.count)]
            assert all(b % step == 0 for b in (*begins, found.width, length * found.count))
            assert found.first + found.width <= length < found.first + found.width + step
            assert oddrows.classes_of(63, length, step) is None


@pytest.mark.parametrize("way", oddrows.BY_CLASSES)
@pytest.mark.parametrize("capability", [90, 80])
def test_what_lies_beside_classes_compiles_without_a_gpu(way: Any, capability: int) -> None:
    operands = wide(256, 768), wide(1001, 768).t()
    if way is oddrows.by_terms:
        operands = wide(256, 1001), wide(1001, 768)
    made = by_classes(way, *operands)
    text = machine_code(made.printed, made.dtypes, capability).asm["ptx"]
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in text or "wgmma" in text


def test_a_program_calls_what_multiplies_by_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device of the GPU's target, whose vendor is the CPU's."""
    called = []

    class Known(Device):
        def __init__(self) -> None:
            self.device, self.target = torch.device("cpu"), GPU

        is_cpu = property(lambda self: False)  # type: ignore[assignment]

        def by_classes(self, way: Any, left: Any, right: Any) -> tuple[Any, str]:
            made = ByClasses(way, left, right, self.device)

            def beside(*addresses: int) -> None:
                called.append((way.__name__, tuple(left.shape), tuple(right.shape)))

            return made.bound(beside), made.printed.source

        def loaded(self, names: Any) -> dict[str, Any]:
            return {}

        def entered(self, call: Callable[..., Any]) -> Callable[..., Any]:
            return call

    monkeypatch.setattr(compiler, "device_of", lambda graph: Known())
    monkeypatch.setattr(oddrows, "LARGE", 0)
    x, w = numbers(16, 64).requires_grad_(), numbers(131, 64)
    refcompiler.reset()
    compiled = refcompiler.compile(lambda x, w: x @ w.t(), fullgraph=True)
    for _ in range(2):
        got = compiled(x, w)
        torch.autograd.grad(got, [x], torch.ones_like(got))
        eager, begin = x @ w.t(), torch.arange(16)[:, None] % 8 * 5
        assert got.stride() == eager.stride()
        columns = torch.arange(131)
        inside = (columns >= begin) & (columns < begin + 96)  # the rest is the kernel's
        assert inside.sum() == 16 * 96
        torch.testing.assert_close(got[inside], eager[inside], rtol=1e-2, atol=1e-2)
    first, second = ("by_columns", (16, 64), (64, 131)), ("by_terms", (16, 131), (131, 64))
    assert called == [first, second] * 2
    report = fastpath.last_report()
    assert report is not None and report.fallback is None
    assert "by classes" in report.reasons["by_columns"]
