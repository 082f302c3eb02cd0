"""The ladder: forms of a compiler of which each adds one stage, on the same captured program.

A backend that compiles ahead of time hands ``aot_autograd`` its decompositions, its partitioner
and its compilers of ATen graphs. What it hands over is replaced, whichever backend it is: so each
rung is the backend under test with less of it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch

from conformance.faults.apart import Say
from conformance.faults.messages import Ahead


@dataclass(frozen=True)
class Step:
    """A rung: what it adds to the one before (``stage``), in words, and how it is made.

    ``level``: what is left of ahead-of-time compilation; "" for all. ``options``: for the backend;
    ``config``: for ``torch._inductor.config``.
    """

    stage: str
    what: str
    level: str = ""
    runs_graphs: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    config: tuple[tuple[str, Any], ...] = ()


FRONT_END = Step("capture", "captured graphs, run as they are", runs_graphs=True)
AHEAD = (
    Step("functionalisation", "ATen graphs of forward and backward, run as they are", "functional"),
    Step("decomposition", "and the backend's decompositions", "decomposed"),
    Step("partition", "and the backend's partitioner", "partitioned"),
)
WHOLE = Step("kernel", "the backend")

# Forms of a backend in which what one of its options turns off is missing; each row adds one.
_FASTPATH: tuple[Step, ...] = (
    Step(
        "kernel", "kernels, without epilogues and draws of their own",
        options=(("epilogue_fusion", False), ("fallback_random", True)),
    ),
    Step("fusion", "and epilogues", options=(("fallback_random", True),)),
    Step("RNG", "and draws in kernels: the backend"),
)  # fmt: skip
_ALONE = (("max_fusion_size", 1), ("epilogue_fusion", False), ("pattern_matcher", False))
_INDUCTOR: tuple[Step, ...] = (
    Step(
        "kernel", "kernels of one operator, eager's draws and casts",
        config=(*_ALONE, ("emulate_precision_casts", True), ("fallback_random", True)),
    ),
    Step(
        "fusion", "and fusion and patterns",
        config=(("emulate_precision_casts", True), ("fallback_random", True)),
    ),
    Step("precision casts", "and casts left out", config=(("fallback_random", True),)),
    Step("RNG", "and its own draws: the backend"),
)  # fmt: skip
FORMS: Mapping[str, tuple[Step, ...]] = {"fastpath": _FASTPATH, "inductor": _INDUCTOR}


def ladder(backends: Collection[str]) -> tuple[Step, ...]:
    """For a program whose calls of compile name these. What a form turns off is off before it."""
    known = [FORMS[name] for name in backends if name in FORMS]
    forms = known[0] if len(known) == len(backends) == 1 else (WHOLE,)
    least = forms[0]
    ahead = [replace(step, options=least.options, config=least.config) for step in AHEAD]
    return (FRONT_END, *ahead, *forms)


@contextlib.contextmanager
def at_level(level: str, say: Say) -> Iterator[None]:
    """Every compilation ahead of time has only what ``level`` leaves of it, and is told."""
    from refcompiler.aot import altering

    def ours(forms: altering.Forms) -> altering.Forms:
        say(Ahead(torch.is_grad_enabled()))
        return _ours(forms, level)

    with altering.altered(ours), _torchs(level, say):
        yield


def _ours(forms: Any, level: str) -> Any:
    from refcompiler.aot.partition import default_partition

    if not level:
        return forms
    forms = forms.with_compilers(_as_it_is)
    if level == "functional":
        forms = forms.with_decompositions({})
    if level != "partitioned":
        forms = forms.with_partition(default_partition)
    return forms


def _as_it_is(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    return graph.forward


@contextlib.contextmanager
def _torchs(level: str, say: Say) -> Iterator[None]:
    """The same for torch's own ``aot_autograd``."""
    import torch._functorch.aot_autograd as functorch
    from torch._dynamo.backends import common
    from torch._functorch.partitioners import default_partition

    original = functorch.aot_module_simplified

    @functools.wraps(original)
    def changed(gm: Any, args: Any, *rest: Any, **given: Any) -> Any:
        say(Ahead(torch.is_grad_enabled()))
        if level and not rest:
            nop = _boxed
            for name in ("fw_compiler", "bw_compiler", "inference_compiler"):
                given[name] = nop
            if level == "functional":
                given["decompositions"] = {}
            if level != "partitioned":
                given["partition_fn"] = default_partition
        return original(gm, args, *rest, **given)

    with contextlib.ExitStack() as stack:
        for module in (functorch, common):
            stack.enter_context(mock.patch.object(module, "aot_module_simplified", changed))
        yield


def _boxed(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    from torch._functorch.aot_autograd import make_boxed_func

    return make_boxed_func(graph.forward)


@contextlib.contextmanager
def configured(config: tuple[tuple[str, Any], ...]) -> Iterator[None]:
    if not config:
        yield
        return
    import torch._inductor.config as inductor

    known = {name: value for name, value in config if hasattr(inductor, name)}
    with inductor.patch(known):
        yield
