"""The loop IR as Triton: kernels compile for GPUs, which needs none, and give eager's values."""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

pytest.importorskip("triton")

from fastpath.cpu.maths import coefficients
from fastpath.gpu import build
from fastpath.gpu.compile import Later, machine_code
from fastpath.gpu.printer import Printer
from fastpath.gpu.reach import WIDE
from fastpath.gpu.tiling import tiling
from fastpath.gpu.vectors import print_kernel
from fastpath.ir import expr as E
from fastpath.ir.described import Sizes
from fastpath.ir.lower import Lowering
from fastpath.ir.program import Call
from fastpath.schedule.kernel import Kernel
from fastpath.target import GPU
from tests import forked
from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

HALF = torch.bfloat16


def kernels(function: Callable[..., Any], *inputs: torch.Tensor) -> list[Kernel]:
    return kernels_of(program_of(function, inputs))[0]


def rows(n: int, width: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.empty(n, width, dtype=dtype)


GELU = (lambda x, b: F.gelu(x * 2 + b), [rows(64, 512), torch.empty(512, dtype=HALF)])
SOFTMAX = (lambda x: torch.softmax(x, -1), [rows(64, 4096)])
LONG = (lambda x: torch.softmax(x.float(), -1), [rows(512, 50257)])
COLUMNS = (lambda x: x.sum(0), [rows(5000, 300, torch.float32)])
TURNED = (lambda x, y: x + 2 * y.t(), [rows(256, 256, torch.float32)] * 2)
WHOLE = (lambda x: x.sum(), [torch.empty(1 << 20)])
INTEGERS = (lambda x: [(x * 3) // 1, x.amax(1), (x > 2).any(0)], [rows(40, 50, torch.int64)])
NORM = (lambda x, w: F.layer_norm(x, (768,), w), [rows(64, 768), torch.empty(768, dtype=HALF)])
COMPLEX = (lambda x, y: [x * y, (x / y).abs(), y.exp()], [rows(64, 512, torch.complex64)] * 2)
FUNCTIONS = {"gelu": (GELU, 1), "softmax": (SOFTMAX, 1), "long softmax": (LONG, 1)}
FUNCTIONS |= {"columns": (COLUMNS, 2), "turned": (TURNED, 1), "sum": (WHOLE, 2)}
FUNCTIONS |= {"integers": (INTEGERS, 2), "norm": (NORM, 1), "complex": (COMPLEX, 1)}
SAMPLES = (
    lambda x, g: F.grid_sample(x, g, padding_mode="reflection", align_corners=False),
    [torch.empty(2, 3, 24, 24), torch.empty(2, 16, 16, 2)],
)
SEARCHES = (lambda x, b: torch.bucketize(x, b), [rows(64, 512), torch.empty(1000, dtype=HALF)])
SPECIAL = (lambda x: x.digamma() + torch.special.i1e(x), [rows(64, 512, torch.float64)])
FUNCTIONS |= {"samples": (SAMPLES, 1), "searches": (SEARCHES, 1), "special": (SPECIAL, 1)}


@pytest.mark.parametrize(
    ("name", "capability"), [(name, 90 - 10 * (n % 2)) for n, name in enumerate(FUNCTIONS)]
)
def test_kernels_compile_for_a_gpu_that_is_not_there(name: str, capability: int) -> None:
    (function, inputs), count = FUNCTIONS[name]
    found = kernels(function, *inputs)
    assert len(found) == count
    for kernel in found:
        dtypes = tuple(b.dtype for b in kernel.buffers)
        compiled = machine_code(print_kernel(kernel), dtypes, capability)
        assert compiled.asm["cubin"] and f".target sm_{capability}" in compiled.asm["ptx"]


@pytest.mark.parametrize(
    "case", [GELU, SOFTMAX, TURNED, COLUMNS], ids=["gelu", "softmax", "turned", "columns"]
)
def test_memory_is_read_and_written_in_whole_vectors(case: Any) -> None:
    (kernel, *_) = kernels(case[0], *case[1])
    dtypes = tuple(b.dtype for b in kernel.buffers)
    lines = machine_code(print_kernel(kernel), dtypes, 90).asm["ptx"].splitlines()
    reads = [line for line in lines if "ld.global" in line]
    stores = [line for line in lines if "st.global" in line]
    assert reads and all(".v4.b32" in line or ".v2.b64" in line for line in reads)
    assert stores and (case is COLUMNS or all(".v4.b32" in line for line in stores))


def test_a_row_that_fits_is_read_once_and_a_longer_one_in_loops() -> None:
    (short,), (long,) = kernels(*_flat(SOFTMAX)), kernels(*_flat(LONG))
    texts = [print_kernel(kernel).source for kernel in (short, long)]
    # The sum is kept relative to the maximum so far: one pass for both, and one that writes.
    # Both are two loops: whole blocks need not ask which of their points are there.
    assert [text.count("for r_first in range") for text in texts] == [0, 4]
    assert [text.count("tl.load(") for text in texts] == [1, 5]  # one more for the ends of the row


def test_a_long_rows_maximum_and_sum_take_one_pass_though_both_are_stored() -> None:
    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, t)

    first, second = kernels(loss, rows(512, 50257), torch.zeros(512, dtype=torch.int64))
    text = print_kernel(first).source
    assert text.count("for r_first in range") == 2 and text.count("tl.load(") == 2
    assert text.count("tl.store(") == 2


def test_a_long_row_stays_in_the_cache_until_it_is_read_again() -> None:
    (short,), (long,) = kernels(*_flat(SOFTMAX)), kernels(*_flat(LONG))
    lines = print_kernel(long).source.splitlines()
    loads = [line for line in lines if "tl.load(" in line]
    assert ["evict_last" in line for line in loads] == [True, True, False, False, False]
    assert all("evict_first" in line for line in loads[2:])
    stores = [line for line in lines if "tl.store(" in line]
    assert len(stores) == 3 and all("evict_first" in line for line in stores)
    assert "evict" not in print_kernel(short).source


def test_moments_of_columns_take_one_pass_and_share_the_mean() -> None:
    moments = lambda x: [x.mean(0), x.var(0), x.std(0)]  # noqa: E731
    first, second = kernels(moments, rows(4096, 512))  # of pieces, and of what these give
    text = print_kernel(first).source
    # The first rows are read before the others, and once more with them.
    assert text.count("for r_first in ") == 1 and text.count("tl.load(") == 2
    assert text.count("tl.store(") == 3 and "tl.fma(" in text
    # Each thread does much with what it reads: more of it at a time, and the next is on its way.
    assert "num_stages=4" in text and print_kernel(first).warps == 2
    assert print_kernel(second).source.count("tl.store(") == 3
    # What goes through the deviations for something else still does so by itself.
    (other, *_) = kernels(lambda x: [(x - x.mean(0)).abs().sum(0)], rows(300, 4096))
    assert print_kernel(other).source.count("for r_first in range") == 2


def image(*shape: int) -> torch.Tensor:
    found = torch.empty(*shape, dtype=HALF, device="meta")
    return found.to(memory_format=torch.channels_last)


def test_rows_go_in_the_order_in_which_they_are_read_in_whole_lines() -> None:
    """Groups of eight channels that are neighbours, whatever the result's order is."""
    for order in (torch.channels_last, torch.contiguous_format):

        def program(x: torch.Tensor, order: torch.memory_format = order) -> list[torch.Tensor]:
            return [F.group_norm(x, 32).contiguous(memory_format=order)]

        first, second = kernels(program, image(64, 256, 56, 56))
        assert [a.extent for a in tiling(first).r] == [3136, 8]
        # What is made of the groups goes through memory as it lies.
        assert not tiling(second).r


def test_the_fastest_axis_is_the_one_whose_neighbours_share_lines() -> None:
    """Halves that lie in turns: what a warp stores are whole lines."""
    (stacked,) = kernels(lambda x, y: torch.stack([x, y], -1), rows(8192, 4096), rows(8192, 4096))
    assert "tl.store(p2 + x, " in print_kernel(stacked).source
    (turned,) = kernels(lambda x: torch.stack([x[:, 1::2], -x[:, ::2]], -1), rows(8192, 4096))
    assert "tl.store(p1 + x, " in print_kernel(turned).source


def test_neighbours_that_read_from_one_computed_place_read_vectors() -> None:
    def loads(kernel: Kernel) -> str:
        text = machine_code(print_kernel(kernel), tuple(b.dtype for b in kernel.buffers), 90).asm
        lines = [line for line in text["ptx"].splitlines() if "ld.global" in line]
        return "".join(lines).replace(".L1::evict_last.L2::cache_hint", "")

    resized = lambda x: [F.interpolate(x, scale_factor=2, mode="bilinear")]  # noqa: E731
    (kernel,) = kernels(resized, image(64, 256, 56, 56))
    assert "ld.global.v4.b32" in loads(kernel) and "ld.global.b16" not in loads(kernel)
    ids = torch.empty(4096, dtype=torch.int64)
    (kernel,) = kernels(lambda i, w: F.embedding(i, w), ids, rows(512, 1024))
    assert "ld.global.v4.b32" in loads(kernel) and "ld.global.b16" not in loads(kernel)


def test_columns_that_are_gone_down_again_are_held() -> None:
    between = torch.empty(64, 512, 2048, dtype=HALF)
    (kernel,) = kernels(lambda x: torch.softmax(x, 1), between)
    plan, source = tiling(kernel), print_kernel(kernel).source
    assert plan.persistent and source.count("tl.load(") == 1
    (kernel,) = kernels(lambda x: [x.float().var(1)], between)  # in one pass as it is
    assert not tiling(kernel).persistent


def test_what_reads_again_what_a_kernel_read_is_done_there() -> None:
    def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        one, other = (torch.linalg.vector_norm(x, 2, [-1], True).clamp_min(1e-8) for x in (a, b))
        return (a / one * (b / other)).sum(-1)

    (kernel,) = kernels(cosine, rows(4096, 1024), rows(4096, 1024))
    assert print_kernel(kernel).source.count("tl.load(") == 2


def test_what_two_kernels_need_is_computed_twice_where_that_costs_less() -> None:
    found = kernels(lambda x: torch.softmax(x, 0), rows(16384, 4096))
    assert len(found) == 5 and not any(b.name.startswith("exp") for k in found for b in k.buffers)


def test_what_neighbours_share_is_read_once() -> None:
    image, weight = torch.empty(4, 256, 56, 56, dtype=HALF), torch.empty(256, dtype=HALF)
    (norm,) = kernels(lambda x, w, b: F.group_norm(x, 32, w, b), image, weight, weight)
    ptx = machine_code(print_kernel(norm), tuple(b.dtype for b in norm.buffers), 90).asm["ptx"]
    # A weight and a bias for a vector, in each of two loops, and nothing goes by other threads.
    assert ptx.count("ld.global.b16") == 4 and "st.shared.v" not in ptx
    scaled = lambda x, w: x * w[:, None, None]  # noqa: E731
    for size, count in ((56, 1), (55, 0), (6, 0)):  # 6 * 6 is no multiple of a vector
        (kernel,) = kernels(scaled, torch.empty(4, 256, size, size, dtype=HALF), weight)
        assert print_kernel(kernel).source.count("m.spread(tl.load(") == count


def test_a_quotient_by_what_a_row_shares_is_a_product_corrected() -> None:
    def scaled(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        wide = x.float() * w
        wide = wide * wide.mean(-1, True)
        return [(wide / (wide.abs().amax(-1, True) / 448)).to(torch.float8_e4m3fn)]

    (kernel,) = kernels(scaled, rows(4096, 4096), torch.empty(4096, dtype=HALF))
    printed = print_kernel(kernel)
    assert printed.source.count("m.over_shared(") == 1 and "m.inverse_of(" in printed.source
    # What is stored is narrower than what is read: no rows together, whose vectors would differ.
    assert printed.programs == 4096
    assert machine_code(printed, tuple(b.dtype for b in kernel.buffers), 90).asm["cubin"]
    # In a loop the inverse is made before it; neighbours that have their own numbers have none.
    (long,) = kernels(lambda x: x.float() / x.float().amax(-1, True), rows(512, 50257))
    lines = print_kernel(long).source.splitlines()
    made = next(n for n, line in enumerate(lines) if "m.inverse_of(" in line)
    assert not lines[made].startswith("        ")
    (few,) = kernels(lambda x: x.float() / 10, rows(1, 5))  # a block of fewer than it takes at once
    few_points = dataclasses.replace(tiling(few), x_block=4)
    dtypes = tuple(b.dtype for b in few.buffers)
    assert machine_code(Printer(few, few_points).print(), dtypes, 90).asm["cubin"]
    (own,) = kernels(lambda x, y: x.float() / y, rows(64, 64), rows(64, 64))
    assert "tl.div_rn(" in print_kernel(own).source


def test_roots_and_quotients_of_what_is_reduced_are_made_once() -> None:
    found = kernels(lambda x: F.normalize(x, dim=0), rows(16384, 4096))
    texts = [print_kernel(kernel).source for kernel in found]
    assert ["tl.sqrt_rn(" in text for text in texts] == [False, True, False]


def test_columns_that_are_put_together_are_on_their_way_while_others_are_summed() -> None:
    def joined(*parts: torch.Tensor) -> list[torch.Tensor]:
        found = torch.stack(parts).permute(1, 3, 0, 2, 4).reshape(-1, 3 * 768)
        return [found, found.sum(0)]

    heads = [torch.empty(8, 512, 12, 64, dtype=HALF).transpose(1, 2) for _ in range(3)]
    printed = print_kernel(kernels(joined, *heads)[0])
    assert "num_stages=3" in printed.source and printed.warps == 2
    plain = print_kernel(kernels(lambda x: [x.sum(0)], rows(16384, 4096))[0])
    assert "num_stages" not in plain.source and plain.warps == 4


def test_a_sine_and_a_cosine_of_one_number_are_computed_together() -> None:
    x = torch.empty(256, 96)

    def text(function: Any) -> str:
        (kernel,) = kernels(function, x)
        printed = print_kernel(kernel)
        assert machine_code(printed, tuple(b.dtype for b in kernel.buffers), 90).asm["cubin"]
        return printed.source

    both = lambda x: [x.sin() + x.cos()]  # noqa: E731
    assert text(both).count("m.sine_and_cosine(") == 1 and "libdevice" not in text(both)
    assert text(lambda x: [x.sin(), x.cos(), x.sin() + 1]).count("m.sine_and_cosine(") == 1
    assert text(lambda x: [(x.sin() * x.cos()).sum(-1)]).count("m.sine_and_cosine(") == 1
    assert "sine_and" in text(lambda x: [x[0, 0].sin() * x[0, 0].cos()])
    assert "sine_and" not in text(lambda x: [x.sin() + (x + 1).cos()])
    assert "sine_and" not in text(lambda x: [x.double().sin() + x.double().cos()])


def test_what_is_read_on_a_condition_is_not_read_twice() -> None:
    loss = lambda x, t: F.cross_entropy(x, t)  # noqa: E731
    _, last = kernels(loss, rows(512, 50257), torch.zeros(512, dtype=torch.int64))
    place = [b.dtype for b in last.buffers].index("int64")
    assert print_kernel(last).source.count(f"tl.load(p{place} +") == 1


@pytest.mark.parametrize("width", [50257, 8191])
def test_rows_that_begin_between_vectors_are_read_and_written_by_vectors(width: int) -> None:
    (kernel,) = kernels(lambda x: torch.softmax(x, -1), rows(512, width))
    dtypes = tuple(b.dtype for b in kernel.buffers)
    lines = machine_code(print_kernel(kernel), dtypes, 90).asm["ptx"].splitlines()
    for what in ("ld.global", "st.global"):
        found = [line for line in lines if what in line]
        ends = [line for line in found if ".v4.b32" not in line]
        assert len(found) > len(ends) and len(ends) in (1, 8)  # the few elements at both ends
    # Where buffers do not begin with a vector, nothing outside the rows may be read.
    text = print_kernel(kernel, aligned=False)
    assert "upper" not in text.source and text.programs == print_kernel(kernel).programs


def test_what_cudas_kernels_reject_is_left_to_them() -> None:
    def calls(dtype: torch.dtype) -> list[str]:
        program = program_of(torch.angle, [torch.empty(64, dtype=dtype)])
        return [step.name for step in program.steps if isinstance(step, Call)]

    assert calls(torch.float16) == calls(HALF) == ["aten.angle.default"]
    assert calls(torch.float32) == calls(torch.int64) == []


def _flat(case: Any) -> tuple[Any, ...]:
    return (case[0], *case[1])


def test_each_gpu_has_a_loaded_kernel_of_its_own() -> None:
    (kernel,) = kernels(lambda x: x + 1, torch.empty(64))
    printed, dtypes = print_kernel(kernel), tuple(b.dtype for b in kernel.buffers)
    first, again, other = (machine_code(printed, dtypes, 90, device=n) for n in (0, 0, 1))
    assert first is again and first is not other


def test_only_the_last_program_of_an_odd_size_is_masked() -> None:
    (kernel,) = kernels(lambda x: x + 1, torch.empty(100_001))
    text = print_kernel(kernel).source
    whole, last = text.split("    else:\n")
    assert "x_in" not in whole and "x_in" in last


def test_bounds_are_taken_as_cudas_kernels_take_them() -> None:
    # Of two zeros the larger one, which no comparison tells from the other.
    functions = (torch.relu, F.relu6, lambda x: F.hardtanh(x, 0.0), lambda x: x.clamp(0, 1))
    for function in functions:
        (kernel,) = kernels(function, torch.empty(64))
        text = print_kernel(kernel).source
        assert "tl.maximum(" in text and "tl.where" not in text
    half = torch.empty(64, dtype=torch.float16)
    (kernel,) = kernels(lambda x: torch.add(x, x, alpha=0.1), half)
    assert "0.10000000149011612" in print_kernel(kernel).source  # as a float32


def test_what_a_forward_and_a_backward_write_otherwise_is_computed_once() -> None:
    def both(x: torch.Tensor) -> list[torch.Tensor]:
        cube = x * x * x
        return [
            torch.tanh(0.7978845608028654 * (x + 0.044715 * cube)),
            1 + torch.tanh((x + cube * 0.044714998453855515) * 0.7978845834732056),
        ]

    (kernel,) = kernels(both, torch.empty(64))
    assert print_kernel(kernel).source.count("m.tanh(") == 1


def test_programs_of_column_sums_have_the_threads_that_were_measured() -> None:
    def statistics(g: torch.Tensor, x: torch.Tensor, m: torch.Tensor) -> list[torch.Tensor]:
        return [(g.float() * (x.float() - m)).sum(0), g.float().sum(0)]

    def products(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [(x.float() * y.float()).sum(0), (y.float() * y.float()).sum(0)]

    def kept(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2, (x * 2).float().sum(0)]

    x, m = rows(16384, 4096), rows(16384, 1, torch.float32)
    wanted = [(statistics, [x, x, m], 32, 1), (products, [x, x], 32, 4), (kept, [x], 32, 2)]
    wanted += [(lambda x: x.sum(0), [x], 8, 4), (lambda x: x.float().var(0), [x], 16, 1)]
    for function, inputs, height, warps in wanted:
        first, second = map(tiling, kernels(function, *inputs))
        assert (first.r_block, first.warps) == (height, warps)
        assert (second.persistent, second.warps) == (True, 1)


def test_the_slope_of_a_tanh_is_made_of_the_sum_with_one() -> None:
    """Of a gelu's gradient, which has the tanh in nothing else; not where something does."""

    def gradient(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.gelu_backward(g, x, approximate="tanh")

    def besides(g: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        t = torch.tanh(x)
        return [g * (1 - t * t) + (t + 1), t]

    (kernel,) = kernels(gradient, rows(8, 64), rows(8, 64))
    text = print_kernel(kernel).source
    assert text.count("m.tanh_and_one(") == 1 and "m.tanh(" not in text
    (kernel,) = kernels(besides, rows(8, 64), rows(8, 64))
    text = print_kernel(kernel).source
    assert text.count("m.tanh(") == 1 and "m.tanh_and_one(" not in text


def test_addresses_beyond_31_bits_are_counted_in_64() -> None:
    (wide,) = kernels(lambda x: x + 1, torch.empty(3, 1 << 30, device="meta"))
    (narrow,) = kernels(lambda x: x + 1, torch.empty(1 << 30, device="meta"))
    assert "tl.program_id(0).to(tl.int64)" in print_kernel(wide).source
    assert "int64" not in print_kernel(narrow).source


def laters(
    function: Callable[..., Any], inputs: list[torch.Tensor], again: bool = False
) -> tuple[list[Later], Sizes]:
    """The kernels of a program whose sizes each call chooses."""
    graph = make_fx(function, tracing_mode="symbolic")(*inputs)
    sizes = Sizes({} if again else None)
    program = Lowering(graph, GPU, sizes=sizes).run()
    return [Later(kernel, 0, sizes) for kernel in kernels_of(program)[0]], sizes


@pytest.mark.parametrize("again", [False, True])
def test_sizes_are_arguments_and_whole_vectors_where_they_allow_it(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    inputs = [torch.empty(48, 640, dtype=HALF), torch.empty(640, dtype=HALF)]
    (later,), sizes = laters(lambda x, b: [F.gelu(x + b)], inputs, again)
    assert "640" not in later.printed.source and later.printed.sizes and not later.printed.wide
    # The first program is for sizes that are multiples of a vector, another one for any.
    assert later.whole == (not again,) * len(later.whole)
    asked = [c for c in sizes.conditions if c.relation.startswith("%")]
    assert bool(asked) == (not again)
    assert build.build(**later.job()).asm["cubin"]


def test_sizes_are_given_in_32_bits_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    shift = lambda x: [x * 2, x.flip(0)[:9] + 1, x[: x.shape[0] // 2] ^ 1]  # noqa: E731
    few, sizes = laters(shift, [torch.empty(4096, dtype=torch.uint8)])
    held = {c.value for c in sizes.conditions if (c.relation, c.bound) == ("<=", WIDE)}
    given = {size for later in few for size in later.printed.sizes}
    assert len(given) >= 2 and given <= held and not any(later.printed.wide for later in few)
    # The last place fits, and the size does not.
    many, sizes = laters(shift, [torch.empty(WIDE + 1, dtype=torch.uint8)])  # never touched
    assert [later.printed.wide for later in many] == [True, False, False]
    assert any((c.relation, c.bound) == (">", WIDE) for c in sizes.conditions)


def test_both_kernels_of_a_launch_take_the_same_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.softmax(x[..., :5001].float(), -1)]  # rows that begin between vectors

    (later,), _ = laters(function, [torch.empty(6, 7, 9003, dtype=HALF)])
    aligned, unaligned = later.printed, print_kernel(later.kernel, aligned=False)
    assert aligned.sizes == unaligned.sizes and aligned.source != unaligned.source


def test_kernels_give_eagers_values_in_tritons_interpreter(tmp_path: Path) -> None:
    script = Path(__file__).with_name("triton_kernels.py")
    done = forked.fresh(script, {**os.environ, "TRITON_INTERPRET": "1"}, tmp_path, "0", "3")
    assert done.returncode == 0, done.stderr[-3000:]
    ran, compared, refused = map(int, done.stdout.split()[-3:])
    assert ran > 100 and compared > 20_000 and not refused


def test_numbers_of_64_bits_are_whole() -> None:
    """Triton makes a literal among a function's arguments one of 32 bits."""
    number = struct.pack(">d", coefficients.I0_F64[-1]).hex()
    (kernel,) = kernels(torch.special.i0, torch.empty(300, dtype=torch.float64, device="meta"))
    compiled = machine_code(print_kernel(kernel), ("float64", "float64"), 90)
    assert f"0d{number}" in compiled.asm["ptx"].lower()


def test_powers_of_one_integer_compile() -> None:
    for dtype, name in ((torch.int16, "int16"), (torch.uint8, "uint8")):
        exponents = torch.empty(300, dtype=dtype, device="meta")
        (kernel,) = kernels(lambda e: torch.pow(3, e), exponents)
        assert machine_code(print_kernel(kernel), (name, name), 90).asm["cubin"]


@pytest.mark.parametrize("mode", [None, "trunc"])
def test_a_number_divides_once_as_in_cudas_kernels(mode: str | None) -> None:
    """They multiply by its reciprocal, whose last bit a float of eight bits may show."""

    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [torch.div(x, 0.1, rounding_mode=mode), torch.div(y, x, rounding_mode=mode)]

    x = torch.empty(300, device="meta")
    (kernel,) = kernels(function, x, x)
    assert print_kernel(kernel).source.count("div_rn") == 1
    values = E.inside(s.value for stage in kernel.stages for s in stage.statements)
    factors = [e.args[0] for e in values if e.op == "const"]
    assert factors == [(torch.ones(()) / torch.tensor(0.1)).item()]
