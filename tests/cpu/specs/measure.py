"""How far the texts of the scalar rows are from their meanings, measured against mpmath.

``python -m tests.cpu.specs.measure [--device cpu|cuda] [--count N] [--rows NAME ...] [--write]``

On the CPU: the numba texts as compiled, and those Triton texts that Triton's interpreter can run.
With ``--device cuda``: every Triton text, compiled for that device. Operands are each row's special
values and ``N`` random ones within its domain, of a fixed seed. ``--write`` puts the figures into
``specs/scalars/measured.json``, of which ``python -m specs.docs`` makes ``docs/specs/accuracy.md``.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specs import rounding
from specs.scalars import SCALARS, Scalar
from specs.scalars.measured import PATH, Figure, Measured, read
from tests.cpu.specs import triton_source
from tests.cpu.specs.operands import drawn, specials
from tests.cpu.specs.triton_source import BLOCK, Text

FLOATS = ("float32", "float64")
#: Which of two zeros comes out of an extremum is free.
FREE_ZERO = ("minimum", "maximum", "fmin", "fmax")


def measured_rows() -> Iterator[tuple[Scalar, str]]:
    """Rows that give floats of floats, with each dtype."""
    for row in SCALARS:
        if row.name != "cast" and row.result == "same":
            yield from ((row, dtype) for dtype in FLOATS if dtype in row.dtypes)


def operands(row: Scalar, dtype: str, count: int) -> list[tuple[Any, ...]]:
    found = [*specials(row, dtype), *drawn(row, dtype, count, 11)]
    while len(found) % BLOCK:
        found.append(found[0])
    return found


def error(row: Scalar, got: float, exact: Any, dtype: str) -> float:
    """In ULP; infinite where one is a special value that the other is not."""
    if row.name in FREE_ZERO and got == 0 and exact == 0:
        return 0.0
    return rounding.ulp_error(got, exact, dtype)


SMALLEST = {"float32": 2.0**-126, "float64": 2.0**-1022}


def flushed(values: Sequence[Any], exact: Any, dtype: str) -> bool:
    """Whether an operand or result is subnormal, or the smallest number that is not, and so may be
    zero on a device: libdevice flushes float32 (``pow`` that number, too), and the steps of a text
    (as of CUDA's eager) leave the range before its result does."""
    numbers = (*values, exact)
    return any(0 < abs(number) <= SMALLEST[dtype] for number in numbers if number == number)


class Oracle:
    """Operands and exact results, computed once for all that is measured against them."""

    def __init__(self, count: int):
        self.count = count
        self.known: dict[tuple[str, str], tuple[list, list]] = {}

    def __call__(self, row: Scalar, dtype: str) -> tuple[list[tuple[Any, ...]], list[Any]]:
        key = row.name, dtype
        if key not in self.known:
            given, meaning = operands(row, dtype, self.count), row.meaning(dtype)
            self.known[key] = given, [meaning(*values) for values in given]
        return self.known[key]


def worst(
    row: Scalar, dtype: str, given: Sequence, exact: Sequence, got: Sequence, flushes: bool = False
) -> Figure:
    """The largest error, and what of. ``flushes``: subnormal numbers do not count."""
    found, place, compared = 0.0, None, 0
    for values, wanted, value in zip(given, exact, got, strict=True):
        if flushes and flushed(values, wanted, dtype):
            continue
        distance = error(row, value, wanted, dtype)
        compared += 1
        if place is None or distance > found:
            found, place = distance, values
    return Figure(found, compared, [repr(v) for v in place or ()])


def by_numba(oracle: Oracle, rows: Sequence[tuple[Scalar, str]]) -> dict[str, dict[str, Figure]]:
    """As compiled for this CPU, in a loop."""
    from tests.cpu.specs.kernels import columns, compiled, run

    found: dict[str, dict[str, Figure]] = {}
    for row, dtype in rows:
        if row.template("numba", dtype) is None:
            continue
        given, exact = oracle(row, dtype)
        kernel = compiled(row.text("numba", dtype, *"abc"[: row.arity]), row.arity)
        got = run(kernel, columns(row, dtype, given), dtype).tolist()
        found.setdefault(row.name, {})[dtype] = worst(row, dtype, given, exact, got)
    return found


def by_triton(
    oracle: Oracle, rows: Sequence[tuple[Scalar, str]], device: str
) -> dict[str, dict[str, Figure]]:
    """On a CUDA device, or interpreted on the CPU."""
    chosen = list(_triton_texts(rows, device))
    source = triton_source.HEADER
    for k, (_, text) in enumerate(chosen):
        source += triton_source.kernel(f"text_{k}", [text])
    with tempfile.TemporaryDirectory() as folder:
        module = _loaded(Path(folder) / "measured_kernels.py", source)
        found: dict[str, dict[str, Figure]] = {}
        for k, (row, text) in enumerate(chosen):
            given, exact = oracle(row, text.dtype)
            got = _run(getattr(module, f"text_{k}"), row, text, given, device)
            figure = worst(row, text.dtype, given, exact, got, flushes=device != "cpu")
            found.setdefault(row.name, {})[text.dtype] = figure
    return found


def _triton_texts(rows: Sequence[tuple[Scalar, str]], device: str) -> Iterator[tuple[Scalar, Text]]:
    wanted = {(row.name, dtype) for row, dtype in rows}
    for dtype in FLOATS:
        for text in triton_source.texts(dtype):
            if (text.name, dtype) in wanted and text.result == dtype:
                if device != "cpu" or not needs_libdevice(text.text):
                    yield SCALARS[text.name], text


@functools.cache
def _functions() -> dict[str, str]:
    """The sources of the functions that Triton texts call as ``m.name``."""
    path = Path(__file__).parents[3] / "fastpath" / "gpu" / "maths.py"
    text = path.read_text()
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_source_segment(text, node) or "" for node in nodes}


def needs_libdevice(text: str, within: frozenset[str] = frozenset()) -> bool:
    """Whether it calls CUDA's library, which Triton's interpreter has not, itself or by others."""
    if "libdevice." in text:
        return True
    called = set(re.findall(r"\w+", text)) & _functions().keys() - within
    return any(needs_libdevice(_functions()[name], within | called) for name in called)


def _loaded(path: Path, source: str) -> Any:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(kernel: Any, row: Scalar, text: Text, given: Sequence, device: str) -> list[float]:
    dtype = getattr(torch, text.dtype)
    inputs = []
    for place in range(3):
        values = [float(v[min(place, row.arity - 1)]) for v in given]
        inputs.append(torch.tensor(values, dtype=torch.float64).to(dtype).to(device))
    out = torch.empty(len(given), dtype=dtype, device=device)
    with np.errstate(all="ignore"):  # the interpreter's
        kernel[(len(given) // BLOCK,)](*inputs, out)
    return out.tolist()


def measure(device: str, oracle: Oracle, rows: Sequence[tuple[Scalar, str]]) -> Measured:
    """By the place of measurement: what it was made with, and figures by row and dtype."""
    import triton

    made = {"operands": str(oracle.count), "torch": torch.__version__.partition("+")[0]}
    by = {**made, "triton": triton.__version__}
    if device == "cpu":
        import numba

        cpu = {"numba": numba.__version__, "machine": platform.machine()}
        interpreted = by_triton(oracle, rows, "cpu")
        return {
            "numba": ({**made, **cpu}, by_numba(oracle, rows)),
            "triton interpreted": ({**by, "numpy": np.__version__}, interpreted),
        }
    name = {"device": torch.cuda.get_device_name(), "CUDA": str(torch.version.cuda)}
    return {"triton compiled": ({**by, **name}, by_triton(oracle, rows, device))}


def show(found: Measured, write: Callable[[str], Any] = print) -> int:
    """One line for each figure; how many are beyond their rows' bounds."""
    beyond = 0
    for place, (made, rows) in found.items():
        write(f"{place}: {', '.join(f'{k} {v}' for k, v in made.items())}")
        for name, by_dtype in rows.items():
            for dtype, figure in by_dtype.items():
                bound = limit(SCALARS[name], dtype, place)
                mark = "" if figure.ulp <= bound else f"  BEYOND {bound:g}"
                beyond += bool(mark)
                at = ", ".join(figure.at)
                write(f"  {name} {dtype} {figure.ulp:.3f} of {figure.operands} at ({at}){mark}")
    return beyond


def limit(row: Scalar, dtype: str, place: str) -> float:
    """CUDA's tables allow its library's functions up to 4 ULP; ``powf`` of the one that Triton
    brings needs more (5.52 were measured on an H200, Triton 3.6)."""
    inexact = dtype in row.ulp and place == "triton compiled"
    library = 8.0 if (row.name, dtype) == ("pow", "float32") else 4.0
    return max(0.5, row.ulp.get(dtype, 0.0), library if inexact else 0.0)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=10_000, help="random operands for each row")
    parser.add_argument("--rows", nargs="*", help="these only (default: all)")
    parser.add_argument("--write", action="store_true", help=f"into {PATH.name}")
    options = parser.parse_args(arguments)
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    unknown = set(options.rows or ()) - {row.name for row, _ in measured_rows()}
    if unknown:
        parser.error(f"no rows that give floats: {', '.join(sorted(unknown))}")
    rows = [(r, d) for r, d in measured_rows() if not options.rows or r.name in options.rows]
    found = measure(options.device, Oracle(options.count), rows)
    beyond = show(found)
    if options.write:
        if options.rows:
            parser.error("--write needs all rows")
        known = read()
        known.update(found)
        text = json.dumps(known, indent=1)
        PATH.write_text(text + "\n")
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
