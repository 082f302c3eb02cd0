"""Programs by the hundred on a device, against eager: models, torch's databases, memory accesses.

python -m tests.slow.devices families|operators|modules|memory [NAME ...]
    [--device cuda] [--backend fastpath] [--samples N] [--jobs 8] [--seconds 600] [--every N]
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from tests.slow.devices import databases, families, memory
from tests.slow.devices.pool import Found, beside, in_turn

BATTERIES: dict[str, tuple[Callable[[], list[str]], Callable[..., Sequence[Found]]]] = {
    "families": (families.cases, families.check),
    "operators": (databases.operators, databases.check_operator),
    "modules": (databases.modules, databases.check_module),
    "memory": (memory.cases, memory.check),
}


def report(found: Iterable[Found], cases: int) -> bool:
    """Print what differs as it is found, and the counts; whether nothing does."""
    rows = []
    for row in found:
        rows.append(row)
        if row.bad:
            print(f"{row.name}, {row.way}: {row.bad}", flush=True)
    ran = [row for row in rows if not row.refused]
    bad = [row for row in ran if row.bad]
    print(
        f"{len({r.name for r in rows})} of {cases} cases, {len(ran)} runs "
        f"({len(rows) - len(ran)} more that eager refuses): {len(bad)} differ; "
        f"{sum(r.elements for r in ran):,} elements compared, {sum(r.graphs for r in ran)} graphs, "
        f"{sum(bool(r.kernels) for r in ran)} runs with {sum(r.kernels for r in ran)} kernels, "
        f"{sum(r.calls for r in ran)} calls of ATen, "
        f"{sum(bool(r.fallback) for r in ran)} uncompiled"
    )
    for why, number in Counter(r.fallback[:150] for r in ran if r.fallback).most_common(12):
        print(f"    uncompiled {number}: {why}")
    return not bad and bool(ran)


def _chosen(given: argparse.Namespace, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """What the battery is told besides the device."""
    if given.battery == "memory" and given.backend != "fastpath":
        parser.error("memory watches the kernels of fastpath: --backend is for the others")
    if given.samples is not None and given.battery not in ("operators", "modules"):
        parser.error("--samples is for operators and modules")
    told = {"backend": given.backend} if given.battery != "memory" else {}
    return told | ({"samples": given.samples} if given.samples is not None else {})


def main() -> int:
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=words)
    parser.add_argument("battery", choices=BATTERIES)
    parser.add_argument("names", nargs="*", help="cases, or parts of their names (none: all)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu")
    parser.add_argument("--backend", default="fastpath", help="memory: fastpath")
    parser.add_argument("--samples", type=int, help="of an operator (1) or a module (2), at most")
    parser.add_argument("--jobs", type=int, default=8, help="processes (memory: one)")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no case after these")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th case only")
    given = parser.parse_args()
    if given.device != "cpu" and not torch.cuda.is_available():
        parser.error("there is no such device here: run it on a machine with one")
    deadline = time.time() + given.seconds
    if given.battery == "memory" and given.device != "cpu":
        code = memory.under_checker(sys.argv[1:])
        if code is not None:
            return code
        memory.own_allocator()
    list_cases, check = BATTERIES[given.battery]
    names = list_cases()
    if given.names:
        names = [n for n in names if any(word in n for word in given.names)]
    if not names:
        parser.error("no case has that name")
    names = names[:: given.every]
    random.Random(0).shuffle(names)  # so that what a deadline leaves out is any of them
    one = functools.partial(check, device=given.device, **_chosen(given, parser))
    alone = given.jobs == 1 or given.battery == "memory"
    found = in_turn(names, one, deadline) if alone else beside(names, one, given.jobs, deadline)
    return 0 if report(found, len(names)) else 1


if __name__ == "__main__":
    sys.exit(main())
