"""Runs of graphs: what a backend made is looked at once, and what a failing run needs is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.errors import BackendError
from refcompiler.plan.failure import Before, FailedRun


class Checked:
    """Looks at a graph's first run, then steps out of the way: ``settled`` is what to call then.

    ``writes``: whether the graph writes to its inputs, where torch does not count that;
    ``generators``: those of the program's that it holds.
    """

    def __init__(
        self,
        compiled: Callable,
        outputs: int,
        backend: str,
        title: str,
        writes: bool,
        generators: Sequence[torch.Generator] = (),
    ):
        self.compiled = compiled
        self.outputs = outputs
        self.backend = backend
        self.title = title
        self.writes = writes
        self.generators = generators
        self.settled = compiled

    def __call__(self, *inputs: Any) -> Any:
        places = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        before = Before([inputs[i] for i in places], True, self.writes, self.generators)
        try:
            found = self.compiled(*inputs)
        except Exception as error:
            raise FailedRun(before) from error
        if not isinstance(found, (tuple, list)) or len(found) != self.outputs:
            given = len(found) if isinstance(found, (tuple, list)) else type(found).__name__
            raise BackendError(
                f"backend {self.backend} returned {given} outputs for a graph of {self.title} "
                f"that has {self.outputs}"
            )
        written = [place for i, place in enumerate(places) if before.has_written(i)]
        random = not before.is_unmoved()
        if written or random:
            known = written, random, self.writes, self.generators
            self.settled = Remembering(self.compiled, *known)
        return found


class Remembering:
    """Runs a graph that draws random numbers, or writes to its inputs at these places."""

    def __init__(
        self,
        compiled: Callable,
        written: list[int],
        random: bool,
        writes: bool,
        generators: Sequence[torch.Generator] = (),
    ):
        self.compiled = compiled
        self.written = written
        self.random = random
        self.writes = writes
        self.generators = generators

    def __call__(self, *inputs: Any) -> Any:
        given = [inputs[i] for i in self.written]
        before = Before(given, self.random, self.writes, self.generators)
        try:
            return self.compiled(*inputs)
        except Exception as error:
            raise FailedRun(before) from error
