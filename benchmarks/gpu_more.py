"""On a CUDA device: the first calls of models, and products and convolutions of which each way is
measured first.

They take minutes, most of it inductor's: :mod:`benchmarks.gpu` has the rest.
"""

from __future__ import annotations

import tempfile

import torch

from benchmarks.compile_time import CACHES
from benchmarks.fresh import figure
from benchmarks.gpu import TUNED, convolutions, model_row, models, product_row, products, shown
from benchmarks.harness import Row

# The first call, of a process that has done the same without a compiler.
FIRST = """
import time
import torch
import torch.nn.functional as F
from benchmarks.gpu import HALF, Decoder
decoder = Decoder(layers={layers}).cuda().to(HALF)
ids = torch.randint(50257, (8, 512), device="cuda")
def run(model):
    with torch.set_grad_enabled({training}):
        out = model(ids)
        if {training}:
            F.cross_entropy(out.flatten(0, 1).float(), ids.flatten()).backward()
    torch.cuda.synchronize()
run(decoder)
start = time.perf_counter()
{compiler}
run(compiled)
print(time.perf_counter() - start)
"""
OURS = "import refcompiler; compiled = refcompiler.compile(decoder)"
THEIRS = "compiled = torch.compile(decoder)"


def rows() -> list[Row]:
    if not torch.cuda.is_available():
        raise SystemExit("the section gpu_more needs a CUDA device: leave it out, or run it on one")
    torch.manual_seed(0)
    first = first_rows()
    multiplied = [*convolutions(), *products()]
    tuned = [product_row(*product, TUNED) for product in multiplied]
    tuned += [model_row(name, *work, mode=TUNED) for name, work in models() if not work[2]]
    return [*first, *tuned]


def first_rows() -> list[Row]:
    """The first calls of the decoder, each in a process of its own, with nothing in any cache but
    the modules' bytecode, which an installation has: once."""
    with tempfile.TemporaryDirectory() as bytecode:
        for compiler in (OURS, THEIRS):
            first_call(compiler, True, bytecode, layers=1)
        return [first_row(training, bytecode) for training in (False, True)]


def first_row(training: bool, bytecode: str) -> Row:
    what = "training step" if training else "inference"
    ours, theirs = (first_call(compiler, training, bytecode) for compiler in (OURS, THEIRS))
    ratio = ours / theirs
    name = f"GPT-2 12 layers, 8x512, first call of {what}, empty caches"
    return shown(Row(name, ours, theirs, ratio, ratio, ratio, 1, "inductor", 0.5))


def first_call(compiler: str, training: bool, bytecode: str, layers: int = 12) -> float:
    """Seconds; ``bytecode``: where it is kept."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: f"{folder}/{name.lower()}" for name in (*CACHES, "TRITON_CACHE_DIR")}
        kept |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
        script = FIRST.format(compiler=compiler, training=training, layers=layers)
        return figure(script, kept)
