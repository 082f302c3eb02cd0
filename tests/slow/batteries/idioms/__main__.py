"""Programs of training and inference as people write them, compiled beside eager.

Some 340 small programs of what papers and tutorials do around a model: adversaries, averages,
checkpoints, hooks, schedules, recurrent loops, solvers, decoding. Each runs as eager does it and
under a backend, from the same random state, and all that it returns is compared. Backends that run
eager's kernels have to have its bits, layouts, flags and random state; a code generator is within
rounding of eager (:class:`~tests.slow.batteries.idioms.common.Idiom` names the exceptions). A
program without a graph counts as one that differs.

    python -m tests.slow.batteries.idioms [NAME ...] [--backend B] [-v]

Status 1: one differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch

from tests.slow.batteries.idioms import (  # noqa: F401  (each registers its programs)
    acting,
    agents,
    attention,
    changing,
    composing,
    corners,
    densities,
    directives,
    generating,
    images,
    keeping,
    language,
    layering,
    living,
    loops,
    modules,
    numerics,
    objects,
    operators,
    pythonic,
    recognising,
    repositories,
    sciences,
    sequences,
    signals,
    speaking,
    storing,
    structures,
    studios,
    surgery,
    teaching,
    training,
    transforms,
    usage,
)
from tests.slow.batteries.idioms.common import IDIOMS
from tests.slow.batteries.idioms.judge import Result, judge
from tests.slow.batteries.training import register_fastpath


def run(names: Sequence[str], backend: str, verbose: bool = False) -> list[Result]:
    """One after the other; what differs is printed as it comes."""
    found = []
    for name in names:
        found.append(judge(IDIOMS[name], backend))
        if verbose or not found[-1].good:
            print(("" if found[-1].good else "differs: ") + str(found[-1]), flush=True)
    return found


def summary(found: Sequence[Result]) -> str:
    otherwise = sum(r.good and r.against != "eager" for r in found)
    return (
        f"{sum(r.good for r in found)} of {len(found)} programs are as in eager "
        f"({otherwise} of them as their captured graph); {sum(r.compared for r in found)} values; "
        f"{sum(r.graphs for r in found)} graphs, {sum(len(r.uncompiled) for r in found)} "
        f"times uncompiled; {sum(r.breaks for r in found)} breaks, "
        f"{sum(r.fallbacks for r in found)} fallbacks"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.batteries.idioms")
    parser.add_argument("names", nargs="*", help="idioms (none: all)")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each")
    given = parser.parse_args()
    if unknown := set(given.names) - set(IDIOMS):
        parser.error(f"no idiom {sorted(unknown)[0]!r}: choose from {', '.join(IDIOMS)}")
    torch.set_num_threads(1)
    register_fastpath()
    found = run(given.names or list(IDIOMS), given.backend, given.verbose)
    print(summary(found))
    return 0 if all(r.good for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
