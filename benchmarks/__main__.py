"""``python -m benchmarks [SECTION ...]``: measure, print, and refresh ``docs/benchmarks.md``."""

from __future__ import annotations

import argparse
import importlib
import time

from benchmarks.harness import DOCUMENT, machine, refreshed, table

# Each is a module of this package with `rows() -> list[Row]`, and a part of the document.
SECTIONS = (
    "interpreter",
    "capture",
    "families",
    "growth",
    "entry",
    "kernels",
    "kernels_serial",
    "draws",
    "cpu",
    "cpu.steps",
    "compile_time",
    "aot.compiling",
    "aot.calling",
    "aot.asked",
    "aot.memory",
)
# Measured when named: long ones, and those of machines with a CUDA device.
ELSEWHERE = ("cpu_kinds", "gpu", "gpu_kernels", "gpu_more", "gpu_kinds")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "section",
        nargs="*",
        help=f"of {', '.join(SECTIONS)}; default: all; or {', '.join(ELSEWHERE)}",
    )
    parser.add_argument("--no-write", action="store_true", help="only print the tables")
    chosen = parser.parse_args()
    named = {name: sections(name) for name in chosen.section}
    if unknown := [name for name, found in named.items() if not found]:
        parser.error(f"no section {unknown[0]!r}: choose from {', '.join(SECTIONS)}")
    for section in [each for found in named.values() for each in found] or SECTIONS:
        start = time.perf_counter()
        rows = importlib.import_module(f"benchmarks.{section}").rows()
        body = f"{table(rows)}\n{machine()}.\n"
        print(f"{section} ({time.perf_counter() - start:.0f} s)\n\n{body}", flush=True)
        if not chosen.no_write:
            document = DOCUMENT.read_text(encoding="utf-8")
            DOCUMENT.write_text(refreshed(document, section, body), encoding="utf-8")


def sections(name: str) -> list[str]:
    """Those of that name, which may be what several begin with."""
    return [s for s in (*SECTIONS, *ELSEWHERE) if name in (s, s.partition(".")[0])]


if __name__ == "__main__":
    main()
