"""Training curves of many families of models, compiled beside eager.

Each model is trained from the same weights and with the same random numbers, dropout included: as
eager does it, and under a backend. ``aot_eager`` has to be the same in every bit: losses of every
step, and at the end gradients, parameters, buffers and the generator's state. A model that
computes otherwise when it is compiled (it asks ``torch.compiler.is_compiling()``) has to be what
its captured graph is. Code generators have to be as close to float64 as eager is
(:mod:`tests.slow.batteries.noise`).

    python -m tests.slow.batteries.training [NAME ...] [--backend B] [--recipe R ...] [--write]

``--write`` puts the table into docs/training.md.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import fastpath
import refcompiler
from benchmarks.family_models import BOTH, IMAGES, PLAIN, SOUND, TEXT, calls
from benchmarks.harness import machine, refreshed
from refcompiler.backends.registry import lookup_backend
from tests.slow.batteries import noise
from tests.slow.batteries.recipes import PLAIN as PLAINLY
from tests.slow.batteries.recipes import RECIPES, Curve, Recipe, Untrainable, prepare, train

#: Families that no benchmark times, to be named.
MORE = """
    Camembert CodeGen Cohere2 Ernie Glm GPTBigCode Helium MegatronBert Nemotron Olmo2 Persimmon
    RemBert SmolLM3 Splinter Starcoder2 XLMRoberta Yoso
""".split()
FAMILIES = [*TEXT, *BOTH, *IMAGES, *SOUND, *PLAIN]
DOCUMENT = Path(__file__).parents[3] / "docs" / "training.md"
#: Backends that run eager's kernels.
EXACT = ("eager", "aot_eager")


@dataclass
class Result:
    family: str
    recipe: str
    difference: str = ""
    against: str = "eager"
    refused: str = ""  # why eager cannot train it
    graphs: int = 0
    breaks: int = 0
    compared: int = 0  # tensors
    uncompiled: list[str] = field(default_factory=list)  # why, of each such graph
    seconds: float = 0.0
    judged: noise.Judgement | None = None

    @property
    def good(self) -> bool:
        return not self.difference and self.compared > 0

    def __str__(self) -> str:
        if self.refused:
            return f"{self.family}, {self.recipe}: refused: {self.refused}"
        said = self.difference or f"equal to {self.against}"
        if self.judged is not None and not self.difference:
            losses, end = self.judged.worst
            said = f"losses within {losses:.2f}, the rest within {end:.2f} of {self.against}"
        return (
            f"{self.family}, {self.recipe}: {said}; {self.graphs} graphs, {self.breaks} breaks, "
            f"{self.compared} tensors, {self.seconds:.1f} s {self.uncompiled[:2] or ''}"
        )


def register_fastpath() -> None:
    """By its name, where it is not installed but found beside these tests."""
    if "fastpath" not in refcompiler.list_backends(exclude_tags=()):
        refcompiler.register_backend(fastpath.backend, name="fastpath")


class Backend:
    """A backend by name that keeps what its graphs say about not being compiled."""

    def __init__(self, name: str):
        self.made = lookup_backend(name)
        self.graphs = 0
        self.uncompiled: list[str] = []
        if hasattr(self.made, "takes_symbols"):
            self.takes_symbols = self.made.takes_symbols

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found = self.made(graph, inputs)
        self.graphs += 1
        if reason := getattr(found, "fallback", None):
            self.uncompiled.append(reason)
        return found


def difference(ours: Curve, theirs: Curve) -> tuple[str, int]:
    """What first differs in a bit, and how many tensors were compared."""
    count = 0
    for n, (a, b) in enumerate(zip(ours.losses, theirs.losses, strict=True)):
        count += 1
        if not same(a, b):
            return f"the loss of backward {n}: {a.item()!r}, eager {b.item()!r}", count
    for n, (c, d) in enumerate(zip(ours.end, theirs.end, strict=True)):
        count += 1
        if not same(c, d):
            return f"tensor {n} of gradients, state and generator", count
    return "", count


def same(a: Any, b: Any) -> bool:
    if not isinstance(b, torch.Tensor):
        return bool(a == b)
    if not isinstance(a, torch.Tensor) or (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return torch.equal(a.detach().nan_to_num(), b.detach().nan_to_num())


def compare(
    family: str, recipe: str, backend: str, steps: int, made: tuple[Any, Any] | None = None
) -> Result:
    """One training under ``backend``, and what it is compared with.

    ``made``: the model and its keyword arguments (default: those of the family).
    """
    result = Result(family, recipe)
    chosen = RECIPES[recipe]
    model, inputs = made or next(iter(calls(family)))[1:]
    model.train()
    allowed: noise.Noise | None = None
    try:
        if backend in EXACT:
            twin = _twin(model, chosen)
            expected = train(twin, twin, inputs, chosen, steps)
        else:
            allowed = noise.measure(model, inputs, chosen, steps)
    except (RuntimeError, ValueError, Untrainable) as error:
        result.refused = str(error)[:80]
        return result
    counted = Backend(backend)
    start = time.process_time()
    try:
        found = _compiled(model, inputs, chosen, counted, steps)
    except Exception as error:
        result.difference = f"{type(error).__name__}: {error}"[:300]
        return result
    result.seconds = time.process_time() - start
    result.graphs, result.uncompiled = counted.graphs, counted.uncompiled
    result.breaks = refcompiler.counters()["breaks"]
    if allowed is not None:
        judged = result.judged = noise.judge(found, allowed)
        result.against = "eager's noise"
        result.difference, result.compared = judged.difference, judged.compared
        if result.difference:
            captured = _compiled(model, inputs, chosen, "eager", steps)
            if noise.judge(captured, allowed).difference:
                result.refused = "it computes otherwise when it is captured, whatever compiles it"
        return result
    result.difference, result.compared = difference(found, expected)
    if result.difference and backend != "eager":
        captured = _compiled(model, inputs, chosen, "eager", steps)
        if difference(captured, expected)[0]:
            result.against = "the captured graph"
            result.difference, result.compared = difference(found, captured)
    return result


def _twin(model: torch.nn.Module, recipe: Recipe) -> torch.nn.Module:
    twin = copy.deepcopy(model)
    prepare(twin, recipe)
    return twin


def _compiled(
    model: torch.nn.Module, inputs: Any, recipe: Recipe, backend: Any, steps: int
) -> Curve:
    refcompiler.reset()
    twin = _twin(model, recipe)

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        return refcompiler.compile(function, backend=backend)

    return train(twin, compiled(twin), inputs, recipe, steps, compiled)


def run(
    names: Sequence[str], backend: str, steps: int, recipes: Sequence[str] = tuple(PLAINLY)
) -> list[Result]:
    found = []
    for name in names:
        for recipe in recipes:
            found.append(compare(name, recipe, backend, steps))
            print(found[-1], flush=True)
    return found


def summary(found: Sequence[Result]) -> str:
    """What they say together, in sentences; refused ones are left out."""
    found = [r for r in found if not r.refused]
    good = [r for r in found if r.good]
    otherwise = sum(r.against == "the captured graph" for r in good)
    families = len({r.family for r in found})
    compared = sum(r.compared for r in found)
    uncompiled = sum(len(r.uncompiled) for r in found)
    judged = any(r.judged for r in found)
    ends = "are within noise" if judged else "end in the same bits"
    lines = [f"{len(good)} of {len(found)} trainings of {families} families {ends}"]
    if otherwise:
        lines.append(f"{otherwise} of them the captured graph's, the rest eager's")
    lines.append(f"{compared} tensors compared")
    lines.append(f"{sum(r.graphs for r in found)} graphs, {uncompiled} of them run as they are")
    return "; ".join(lines) + "."


def table(found: Sequence[Result]) -> str:
    """Markdown: a row for each training."""
    lines = [
        "| family | recipe | result | graphs | breaks | run as they are | tensors |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in found:
        if r.refused:
            said = f"eager refuses: {r.refused}"
        elif r.difference:
            said = f"**differs**: {r.difference}"
        elif r.judged is not None:
            losses, end = r.judged.worst
            said = f"{losses:.2f}, {end:.2f}"
        else:
            said = "equal" if r.against == "eager" else f"equal to {r.against}"
        said = said.replace("|", "/").replace("\n", " ")
        lines.append(
            f"| {r.family} | {r.recipe} | {said} | {r.graphs} | {r.breaks} | {len(r.uncompiled)} "
            f"| {r.compared} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.batteries.training")
    parser.add_argument("names", nargs="*", help="families (none: all)")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--recipe", action="append", choices=list(RECIPES), help="default: SGD and AdamW"
    )
    parser.add_argument("--write", metavar="SECTION", help="put the table into docs/training.md")
    given = parser.parse_args()
    known = [*FAMILIES, *MORE]
    if unknown := set(given.names) - set(known):
        parser.error(f"no family {sorted(unknown)[0]!r}: choose from {', '.join(known)}")
    warnings.simplefilter("ignore")
    found = run(given.names or FAMILIES, given.backend, given.steps, given.recipe or [*PLAINLY])
    print(summary(found))
    if given.write:
        body = f"{summary(found)}\n\n{table(found)}\n{given.steps} steps; {machine()}.\n"
        document = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(refreshed(document, given.write, body), encoding="utf-8")
    return 0 if all(r.good or r.refused for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
