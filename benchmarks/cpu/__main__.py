"""``python -m benchmarks.cpu``: chosen parts and cases of the section, printed as they come."""

from __future__ import annotations

import argparse

from benchmarks.cpu.measure import PARTS, every
from benchmarks.harness import table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="names of cases")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--threads", action="store_true", help="all threads, by the wall clock")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    found = every(
        options.parts, only=options.only, serial=not options.threads, rounds=options.rounds
    )
    print(table(found))


if __name__ == "__main__":
    main()
