"""Which operators of torch's OpInfo database the fast path leaves to ATen, and why.

    python -m tests.slow.fallbacks [--check]

writes ``docs/fallbacks.md``, or says whether it is current. Of each operator the first samples of
each of some dtypes are lowered, in inference, on the CPU; no kernel is compiled, and nothing runs.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

import fastpath
from fastpath.cpu import compile as cpu
from specs.docs import table

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "fallbacks.md"
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
SAMPLES = 2
HEAD = """<!-- Written by `python -m tests.slow.fallbacks`. -->

# What the fast path leaves to ATen

Of {operators} operators of torch's OpInfo database (`torch.testing._internal`, torch {version}), on
the CPU, in inference, by the first {samples} samples each of {dtypes}: {whole} are kernels of ours
alone for all of these, {some} call ATen for some, {all} for all, and {not_lowered} have no program
for any: the second table says why of each sample that has none. A call is of one ATen operator,
within a program whose other operators are kernels; `last_report()` counts each.

"""
NO_PROGRAM = """
## Samples without a program

What the fast path is given here is the operator alone, called with a sample's tensors as inputs.
An error is the one that compiling the sample raises; else the graph runs as it is, and the reason
is the report's.

"""
_ADDRESS = re.compile(r"0x[0-9a-f]+")
LONGEST = 160  # characters of a reason


def found() -> Iterator[tuple[str, str, dict[str, str] | str]]:
    """Of each sample the operator's name, the dtype, and calls of ATen with their reasons, or why
    there is no program."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        name = f"{info.name}.{info.variant_test_name}".rstrip(".")
        for dtype in DTYPES:
            if dtype not in info.supported_dtypes("cpu"):
                continue
            samples = info.sample_inputs("cpu", dtype, requires_grad=False)
            for sample in itertools.islice(samples, SAMPLES):
                arguments = (sample.input, *sample.args)
                yield name, str(dtype).removeprefix("torch."), lowered(info.op, arguments, sample)


def lowered(function: Callable[..., Any], arguments: Any, sample: Any) -> Any:
    """The calls of ATen by name with their reasons, or why there is no program."""
    leaves, shape = pytree.tree_flatten((arguments, sample.kwargs))
    graph = torch.fx.Graph()
    given, inputs = [], []
    for n, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            given.append(graph.placeholder(f"x{n}"))
            inputs.append(leaf)
        else:
            given.append(leaf)

    def call(*values: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(list(values), shape)
        return pytree.tree_leaves(function(*args, **kwargs))

    graph.output(graph.call_function(call, tuple(given)))
    module = torch.fx.GraphModule({}, graph)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(mock.patch.object(cpu, "loaded", _unloaded))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        try:
            report = fastpath.compile_graph(module, inputs).report
        except Exception as error:
            return _line(f"{type(error).__name__}: {error}")
    if report.fallback is not None:
        return _line(report.fallback)
    return {name: report.reasons[name] for name in report.aten_calls}


def _unloaded(names: Any, together: Any = ()) -> dict[str, Any]:
    return {name: (lambda *_: None) for name in [*names, *together] if name.startswith("k")}


def _line(text: str) -> str:
    """One line of what may be several, without what differs between runs."""
    line = _ADDRESS.sub("0x...", " ".join(text.split())).replace("|", "/")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def page() -> str:
    without: dict[str, dict[str, set[str]]] = {}
    seen: dict[str, list[Any]] = {}
    calls: dict[tuple[str, str], dict[str, set[str]]] = {}
    for name, dtype, reasons in found():
        seen.setdefault(name, []).append(reasons)
        if isinstance(reasons, str):
            without.setdefault(reasons, {}).setdefault(name, set()).add(dtype)
            continue
        for call, why in reasons.items():
            calls.setdefault((call, why), {}).setdefault(name, set()).add(dtype)
    known = {n: [r for r in reasons if not isinstance(r, str)] for n, reasons in seen.items()}
    counts = {
        "operators": len(seen),
        "not_lowered": sum(not r for r in known.values()),
        "whole": sum(bool(r) and not any(r) for r in known.values()),
        "all": sum(bool(r) and all(r) for r in known.values()),
        "some": sum(any(r) and not all(r) for r in known.values()),
        "samples": SAMPLES,
        "dtypes": ", ".join(str(d).removeprefix("torch.") for d in DTYPES),
        "version": torch.__version__.partition("+")[0],
    }
    rows = []
    for (call, why), reached in sorted(calls.items()):
        dtypes = sorted(set().union(*reached.values()))
        rows.append((f"`{call}`", why, ", ".join(sorted(reached)), " ".join(dtypes)))
    text = HEAD.format(**counts) + table(("ATen operator", "why", "reached from", "dtypes"), rows)
    lines = []
    for why, reached in sorted(without.items()):
        dtypes = sorted(set().union(*reached.values()))
        lines.append((why, ", ".join(sorted(reached)), " ".join(dtypes)))
    return text + NO_PROGRAM + table(("why", "operators", "dtypes"), lines)


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if text != DOCUMENT.read_text(encoding="utf-8"):
            sys.exit(f"{DOCUMENT.name} is not current: run python -m tests.slow.fallbacks")
        return
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
