"""Models on the CPU against inductor: inference, and a training step.

The ten of :mod:`benchmarks.cpu.models`, and small ones of each third family of transformers, larger
than those whose capture is timed, so that kernels matter: rows of 128, 4 texts of 64 tokens,
images of 64x64. Each is measured in a process of its own, processor time of one thread in turns,
and its result is compared with eager's first. A model takes half a minute to several, most of it
in the C++ compiler.

    python -m benchmarks.cpu.steps [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

import fastpath
from benchmarks.cpu.measure import AGAINST, both, whole
from benchmarks.cpu.models import MODELS, made, result
from benchmarks.family_models import BOTH, IMAGES, SOUND, TEXT, configuration
from benchmarks.fresh import figures
from benchmarks.harness import Row, compare, table

GOALS = {"inference": 0.85, "training": 0.90}
FAMILIES = [*IMAGES, *SOUND, *BOTH, *TEXT]
SMALL = ", small"
ALL = [*MODELS, *(name + SMALL for name in FAMILIES)]
CHOSEN = [*MODELS, *(name + SMALL for name in FAMILIES[::3])]  # all take an hour and a half
ROUNDS = 9
_WIDTHS = {
    128: "hidden_size d_model n_embd dim embedding_size word_embed_proj_dim",
    256: "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim hidden_dim d_inner "
    "max_position_embeddings n_positions",
    32: "head_dim d_kv",
    64: "image_size",
    500: "vocab_size",
}
SIZES = {name: size for size, names in _WIDTHS.items() for name in names.split()}
#: Of a tensor's norm, and what is nothing beside the largest. Where a rounding takes a number past
#: the threshold of a relu, the gradients of all layers before are 0.0001 to 0.01 off.
TOLERANCE, TINY = 0.03, 1e-4


def rows(names: Iterable[str] = CHOSEN) -> list[Row]:
    """A row for each model and mode, below one for all of each mode. A model that inductor cannot
    do, or that takes too long, is named there, and has no part in the mean.

    RuntimeError: what :func:`measured` raises, of ours.
    """
    names, left = list(names), []
    found: dict[str, list[Row]] = {part: [] for part in GOALS}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, taken in zip(names, pool.map(_of_its_own, names), strict=True):
            if isinstance(taken, str):
                print(f"{name}: {taken}", flush=True)
                left.append(name)
                continue
            for part, numbers in zip(GOALS, taken, strict=True):
                row = _row(f"{name}, {part}", numbers)
                print(f"{row.name}: {row.ratio:.2f} {row.note}", flush=True)
                found[part].append(row)
    means = [
        whole(f"{len(each)} models, {part} (geometric mean; best and worst)", each, GOALS[part])
        for part, each in found.items()
        if each
    ]
    if left:
        means = [replace(row, note=f"without {', '.join(left)}") for row in means]
    return [*means, *(row for each in zip(*found.values(), strict=True) for row in each)]


def _of_its_own(name: str) -> list[list[float]] | str:
    """What :func:`measured` gives for each mode, in a process with one thread, or why nothing."""
    script = f"from benchmarks.cpu.steps import measured as m; print(*m({name!r}))"
    try:
        numbers = figures(script, {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"})
    except subprocess.TimeoutExpired as error:
        return f"not measured within {error.timeout:.0f} s"
    if len(numbers) < len(GOALS):
        return "not compiled by inductor"
    each = len(numbers) // len(GOALS)
    return [numbers[n * each : (n + 1) * each] for n in range(len(GOALS))]


def _row(name: str, numbers: list[float]) -> Row:
    ours, theirs, low, high, kernels, calls = numbers
    note = f"{kernels:.0f} kernels, {calls:.0f} ATen calls"
    return Row(name, ours, theirs, ours / theirs, low, high, ROUNDS, AGAINST, note=note)


def measured(name: str) -> list[float]:
    """For each mode: seconds of ours and of inductor's, quartiles of the ratio, kernels, calls; 0
    alone if inductor raises.

    AssertionError: a result that is not eager's, or a graph that ran uncompiled.
    """
    torch.set_num_threads(1)
    found: list[float] = []
    for part in GOALS:
        model, inputs = built(name, part == "training")
        ours, theirs = both(model)
        steps = [_step(model, call, inputs, part == "training") for call in (model, ours, theirs)]
        expected, values = ([t.detach().clone() for t in step()] for step in steps[:2])
        largest = max(float(t.norm()) for t in expected)
        for n, (value, wanted) in enumerate(zip(values, expected, strict=True)):
            off = float((value - wanted).norm()) / max(float(wanted.norm()), TINY * largest)
            assert off < TOLERANCE, f"{name}, {part}: tensor {n} is {off:.2g} of its norm off"
        report: Any = fastpath.last_report()
        made = [report, *report.backwards]
        assert not any(each.fallback for each in made), [each.fallback for each in made]
        try:
            steps[2]()
        except Exception as error:  # whatever it is, it is the peer's: ours has been compared
            print(f"{name}, {part}: {type(error).__name__}: {error}", file=sys.stderr)
            return [0.0]
        row = compare(
            name, *steps[1:], against="", rounds=ROUNDS, sample=0.02, clock=time.thread_time
        )
        kernels = sum(each.kernels for each in made)
        calls = sum(sum(each.aten_calls.values()) for each in made)
        found += [row.ours, row.theirs, row.low, row.high, kernels, calls]
    return found


def built(name: str, trained: bool) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A model in which nothing is drawn, and its arguments: one of the ten as it is trained or
    evaluated, a family's in evaluation mode."""
    if name in MODELS:
        model, inputs = made(name)
        return model.train(trained), inputs
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    name = name.removesuffix(SMALL)
    config = configuration(name, sizes=SIZES)
    config.use_cache = False
    model = getattr(transformers, f"{name}Model")(config).eval()
    tokens = torch.randint(3, 90, (4, 64))
    if name in IMAGES:
        size = getattr(config, "image_size", 64)
        return model, {"pixel_values": torch.randn(4, 3, size, size)}
    if name in SOUND:
        return model, {"input_values": torch.randn(2, 4000)}
    return model, {"input_ids": tokens} | ({"decoder_input_ids": tokens} if name in BOTH else {})


def _step(
    model: torch.nn.Module, call: Callable[..., Any], inputs: dict[str, Any], trained: bool
) -> Callable[[], list[torch.Tensor]]:
    """A call that gives the first result, or in training gradients of a weighted mean of it.

    The square's mean is the same for whatever comes out of a layer norm: its gradients are none.
    """
    with torch.no_grad():
        weights = torch.randn(
            result(model(**inputs)).shape, generator=torch.Generator().manual_seed(0)
        )

    def infer() -> list[torch.Tensor]:
        with torch.no_grad():
            return [result(call(**inputs))]

    def train() -> list[torch.Tensor]:
        (result(call(**inputs)) * weights).mean().backward()
        found = list(_gradients(model))
        model.zero_grad(set_to_none=True)
        return found

    return train if trained else infer


def _gradients(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    return (p.grad for p in model.parameters() if p.grad is not None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu.steps")
    parser.add_argument("names", nargs="*", default=CHOSEN, metavar="NAME", help="models")
    names = parser.parse_args().names
    unknown = [name for name in names if name not in ALL]
    if unknown:
        parser.error(f"no model {unknown[0]!r}: choose from {'; '.join(ALL)}")
    print(table(rows(names)))


if __name__ == "__main__":
    main()
