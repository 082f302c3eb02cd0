"""Programs that alias, write, view and ask for gradients, compiled beside eager.

From each seed a program of 2 to 6 statements is drawn, with three or four calls, something changed
before each, and backwards behind them. After every step all that a user can see of all tensors is
compared (:mod:`~tests.slow.batteries.hostile.see`). What differs is made smaller, and printed as a
script that shows it by itself.

    python -m tests.slow.batteries.hostile FROM-TO [--backend B] [--whole] [-v]

Status 1: one differs, nothing was compared, or less than nine in ten programs had a graph.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.slow.batteries.hostile.judge import KINDS, Difference, Verdict, judge, shrink
from tests.slow.batteries.hostile.writing import write
from tests.slow.batteries.training import register_fastpath

#: seconds that one seed may take, smaller cases included
_SECONDS = 240


def verdict_of(
    seed: int, backend: str, smaller: bool = True, tell: Callable[[Any], None] = lambda _: None
) -> Verdict:
    """Of the seed's case, or of a smaller one that differs in the same way.

    ``tell``: is given the case once eager has run it, and the verdict before it is made smaller.
    """
    case = write(seed)
    found = judge(case, backend, lambda: tell(case))
    if smaller and found.difference is not None:
        tell((found,))
        case = shrink(case, backend, found.difference.signature)
        if (again := judge(case, backend)).difference is not None:
            found.case, found.difference = again.case, again.difference
    return found


def apart(seeds: Sequence[int], backend: str, smaller: bool = True) -> Iterator[Verdict]:
    """One after the other in a process of their own; a new one where a seed ends it."""
    left = list(seeds)
    while left:
        ours, theirs = os.pipe()
        sys.stdout.flush()
        if not (pid := os.fork()):
            os.close(ours)
            with os.fdopen(theirs, "wb") as out:

                def tell(found: Any) -> None:
                    pickle.dump(found, out)
                    out.flush()

                for seed in left:
                    signal.alarm(_SECONDS)
                    tell(verdict_of(seed, backend, smaller, tell))
            os._exit(0)
        os.close(theirs)
        told = None
        with os.fdopen(ours, "rb") as heard:
            try:
                while left:
                    found = pickle.load(heard)
                    if isinstance(found, Verdict):
                        left.pop(0)
                        yield found
                    told = None if isinstance(found, Verdict) else found
            except EOFError:
                pass
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if left:
            left.pop(0)
            yield _ended(told, f"status {status}")


def _ended(told: Any, how: str) -> Verdict:
    """Of a seed that ended its process; ``told``: what it told last."""
    if told is None:  # eager did
        return Verdict(None, wavering=True)
    if isinstance(told, tuple):  # a smaller case did
        return told[0]
    return Verdict(told, Difference("crash", "process", how, "", None, None))


def summary(found: Sequence[Verdict]) -> str:
    judged = [v for v in found if not v.wavering]
    differ = [v for v in judged if v.difference]
    total: Counter[str] = Counter()
    for v in judged:
        for name in ("facts", "steps", "graphs", "breaks", "fallbacks"):
            total[name] += getattr(v, name)
        total["uncompiled"] += len(v.uncompiled)
    without = sum(not v.graphs for v in judged)
    return (
        f"{len(judged) - len(differ)} of {len(judged)} programs are as in eager; {total['facts']} "
        f"facts of {total['steps']} steps compared; {total['graphs']} graphs, "
        f"{total['uncompiled']} times uncompiled; {total['breaks']} breaks, {total['fallbacks']} "
        f"fallbacks; {without} programs without a graph; {len(found) - len(judged)} left out, "
        "which eager does otherwise each time, or ends at"
    )


def good(found: Sequence[Verdict]) -> bool:
    judged = [v for v in found if not v.wavering]
    compiled = sum(v.graphs > 0 for v in judged)
    compared = all(v.facts for v in judged)
    return (
        bool(judged)
        and not any(v.difference for v in judged)
        and (compared and compiled >= 0.9 * len(judged))
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.batteries.hostile")
    parser.add_argument("seeds", help="FROM-TO, or one")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--whole", action="store_true", help="do not make smaller what differs")
    parser.add_argument("--scripts", type=Path, help="write each script there, too")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    torch.set_num_threads(1)
    register_fastpath()
    found, classes = [], defaultdict(list)
    for verdict in apart(range(int(first), int(last or first) + 1), given.backend, not given.whole):
        found.append(verdict)
        seed = verdict.case.seed if verdict.case else "?"
        if verdict.difference:
            classes[verdict.difference.signature].append(seed)
            print(f"--- seed {seed} differs: {verdict.difference}\n{_shown(verdict)}", flush=True)
            if given.scripts:
                given.scripts.mkdir(parents=True, exist_ok=True)
                script = verdict.case.script(given.backend)
                (given.scripts / f"hostile_{seed}.py").write_text(script)
        elif given.verbose:
            print(f"seed {seed}: {verdict.steps} steps, {verdict.graphs} graphs", flush=True)
    for name in sorted(classes, key=lambda name: KINDS.index(name.split(" | ")[0])):
        print(f"{len(classes[name])} of {name}: {', '.join(map(str, classes[name]))}")
    print(summary(found))
    return 0 if good(found) else 1


def _shown(verdict: Verdict) -> Any:
    """The program without what all share."""
    text = verdict.case.text
    return text[text.index("def program(") :]


if __name__ == "__main__":
    sys.exit(main())
