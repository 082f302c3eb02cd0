"""Draws on CUDA as Triton kernels, in Triton's interpreter, beside a simulation of eager's threads.

``TRITON_INTERPRET=1 python philox_kernels.py`` prints how many elements were compared. Here the
generator is written once more, with NumPy, and each of eager's threads takes its words one after
the other.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from fastpath.gpu.tiling import tiling
from fastpath.gpu.vectors import printer_of
from fastpath.ir.program import Call, Computed, Node, Tensor
from fastpath.ir.types import DTYPE
from fastpath.random import philox
from fastpath.schedule.cluster import Fusion
from fastpath.schedule.kernel import Kernel
from fastpath.schedule.loops import Builder
from fastpath.target import GPU
from tests.cpu.fastpath.triton_kernels import Functions, module_of, program_of

RESIDENT = 512  # threads of the GPU that is simulated: two blocks
SEED, OFFSET = (1 << 40) + 12345, 8
NEAR = {"rtol": 1e-4, "atol": 1e-5}


def words(counter: int, index: np.ndarray) -> np.ndarray:
    """Philox-4x32-10: the four words of each index, of shape [4, n]."""
    key = np.array([SEED & 0xFFFFFFFF, SEED >> 32], np.uint64)
    state = np.zeros((4, len(index)), np.uint64)
    state[0], state[2] = counter, index
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        one = state[0] * np.uint64(0xD2511F53)
        two = state[2] * np.uint64(0xCD9E8D57)
        high = [product >> np.uint64(32) for product in (two, one)]
        state = np.stack(
            [high[0] ^ state[1] ^ key[0], two & mask, high[1] ^ state[3] ^ key[1], one & mask]
        )
        key = (key + np.array([0x9E3779B9, 0xBB67AE85], np.uint64)) & mask
    return state


def threads(count: int) -> int:
    return 256 * min(RESIDENT // 256, -(-count // 256))


def strided(count: int) -> np.ndarray:
    """Each thread takes four words at a time, for elements a grid apart."""
    grid, found = threads(count), np.zeros(count, np.uint64)
    index = np.arange(grid)
    for turn in range(-(-count // (4 * grid))):
        for k, row in enumerate(words(OFFSET // 4 + turn, index)):
            places = index + (4 * turn + k) * grid
            found[places[places < count]] = row[places < count]
    return found


def side_by_side(count: int, width: int) -> np.ndarray:
    """Each thread takes words for ``width`` elements that are neighbours."""
    if width == 1:
        return strided(count)
    grid, found = threads(count), np.zeros(count, np.uint64)
    index, counter = np.arange(grid), OFFSET // 4
    for turn in range(-(-count // (width * grid))):
        for part in range(max(1, width // 4)):
            drawn = words(counter, index)
            counter += 1
            for k in range(min(width, 4)):
                places = (index + turn * grid) * width + 4 * part + k
                found[places[places < count]] = drawn[k][places < count]
    return found


def unit(drawn: np.ndarray) -> torch.Tensor:
    scaled = torch.from_numpy(drawn.astype(np.int64)).to(torch.float32)
    return scaled * 2.0**-32 + 2.0**-33


def run(function: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[list[torch.Tensor], int]:
    """The results, with reservations and kernels in the program's order, and what was reserved."""
    program = program_of(function, inputs)
    fusion = Fusion(program)
    stored = {n for n in fusion.roots.stored if isinstance(n, Computed)}
    for cluster in fusion.clusters:
        stored |= {n for n in cluster.needs if isinstance(n, Computed)} - set(cluster.members)
    memory: dict[str, Any] = {n.name: inputs[n.place] for n in program.inputs}
    for node in stored:
        memory[node.name] = torch.empty_strided(node.shape, node.strides, dtype=DTYPE[node.dtype])
    reserved = 0
    for cluster in fusion.result:
        if isinstance(cluster.call, Call):
            assert cluster.call.kernel
            given = [memory[a.node.name] if isinstance(a, Tensor) else a
                     for a in cluster.call.arguments]  # fmt: skip
            reserved += given[0]
            for node, number in zip(cluster.call.outputs, cluster.call.target(*given)):
                memory[node.name] = number
            continue
        roots: set[Node] = fusion.roots.roots
        kernel: Kernel = Builder(cluster, "kernel", roots, stored, (), GPU).build()
        printed = printer_of(kernel, tiling(kernel)).print()
        buffers = [memory[b.name] for b in kernel.buffers]
        numbers = [memory[name] for name in printed.arguments]
        assert numbers
        module = module_of(printed)
        module.libdevice = Functions()  # type: ignore[attr-defined]
        module.kernel[(printed.programs,)](*buffers, *numbers)
    return [memory[t.node.name] for t in program.outputs], reserved


@dataclasses.dataclass(frozen=True)
class Near:
    """What a device's fast functions come near to; its bits are asked for where there is one."""

    value: torch.Tensor


def normals(drawn: np.ndarray, count: int) -> torch.Tensor:
    """Of the words of each pair that one thread takes: a grid apart, the first and the second, the
    third and the fourth of each four."""
    grid = threads(count)
    whole = np.zeros(-(-count // (2 * grid)) * 2 * grid, np.uint64)
    whole[:count] = drawn
    one, two = unit(whole.reshape(-1, 2, grid)).double().unbind(1)
    radius, angle = torch.sqrt(-2 * torch.log(one)), two * 2 * math.pi
    pair = torch.stack([radius * torch.sin(angle), radius * torch.cos(angle)], 1)
    return pair.reshape(-1)[:count]


def cases(count: int) -> Iterator[tuple[Callable[..., Any], list[torch.Tensor], Any]]:
    u = unit(strided(count))
    yield lambda: torch.rand(count), [], torch.where(u == 1, 0, u)
    yield lambda: torch.rand(count) * 2, [], torch.where(u == 1, 0, u) * 2
    for kind in (torch.float32, torch.float16):  # the interpreter truncates to bfloat16
        first, last = torch.tensor(-0.3, dtype=kind), torch.tensor(1.75, dtype=kind)
        moved = u.double() * (last - first).float() + first.float()
        moved = moved.float().to(kind)
        moved = torch.where(moved == last, first, moved)
        yield (lambda d=kind: torch.empty(count, dtype=d).uniform_(-0.3, 1.75)), [], moved
    yield lambda: torch.empty(count).bernoulli_(0.3), [], (u < torch.tensor(0.3)).float()
    if count % (2 * threads(count)) == 0:  # behind the last element there are no words here
        z = normals(strided(count), count)
        yield lambda: torch.randn(count), [], Near(z)
        yield lambda: torch.empty(count // 8, 8).normal_(0.5, 2), [], Near(z.view(-1, 8) * 2 + 0.5)
    yield lambda: torch.empty(count).exponential_(2), [], Near(-torch.log(u) / 2)
    drawn = torch.from_numpy(strided(count).astype(np.int64))
    yield lambda: torch.randint(-3, 1000, (count,)), [], drawn % 1003 - 3
    for dtype, shift in itertools.product((torch.float32, torch.float16), (0, 1, 2)):
        x = torch.linspace(-1, 1, count + shift).to(dtype)[shift:]
        if x.data_ptr() % 4 and dtype is torch.float32:
            continue
        width = min(16, x.data_ptr() & -x.data_ptr()) // x.itemsize
        while count % width:
            width //= 2
        keep = unit(side_by_side(count, width)) < torch.tensor(0.75)
        scale = 1 / torch.tensor(0.75)
        dropped = (x.float() * keep * scale).to(dtype)
        yield lambda x: torch.native_dropout(x, 0.25, True), [x], (dropped, keep)
    y = torch.linspace(-1, 1, count)
    keep = unit(side_by_side(count, 4 if count % 4 == 0 else 2 if count % 2 == 0 else 1))
    keep = keep < torch.tensor(0.75)
    inner = (y + 1) * keep * (1 / torch.tensor(0.75))
    yield lambda y: torch.native_dropout(y + 1, 0.25, True)[0] + y, [y], inner + y
    if count % 8 == 0:  # eight neighbours of two computations, and an index of two axes
        half, bias = torch.linspace(-1, 1, count).half().view(-1, 8), torch.arange(8.0).half()
        kept = (unit(side_by_side(count, 8)) < torch.tensor(0.75)).view(-1, 8)
        moved = half + bias
        eight = (moved.float() * kept * scale).half()
        yield lambda y, b: torch.native_dropout(y + b, 0.25, True)[0], [half, bias], eight


def main() -> None:
    philox.resident = lambda device: RESIDENT  # type: ignore[assignment]
    philox.reserving = (  # type: ignore[assignment]
        lambda device: lambda advance: (SEED, OFFSET // 4)
    )
    compared = 0
    for count in (5, 1000, 2050, 3001, 8192):
        for function, inputs, expected in cases(count):
            found, reserved = run(function, inputs)
            expected = expected if isinstance(expected, tuple) else (expected,)
            assert reserved == ((count - 1) // (threads(count) * 4) + 1) * 4
            for ours, eager in zip(found, expected, strict=True):
                if isinstance(eager, Near):
                    torch.testing.assert_close(ours.double(), eager.value.double(), **NEAR)
                else:
                    assert torch.equal(ours, eager), (count, ours, eager)
                compared += ours.numel()
    print(compared)


if __name__ == "__main__":
    main()
