"""Programs that meet the world around tensors: warnings, modules, caches, objects with an end."""

from __future__ import annotations

import functools
import sys
import threading
import warnings

import pytest
import torch

from refcompiler.guards.kinds import _short
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
THREAD = threading.local()
SCALE = 2


@cases(graphs=1, breaks=0)
def warnings_recorded():
    def f(x):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            y = x + 1
            warnings.warn("one", stacklevel=1)
            warnings.warn("two", DeprecationWarning, stacklevel=1)
        warnings.warn("heard", stacklevel=1)
        return y * len(log), [str(w.message) for w in log]

    return f


@cases(graphs=1, breaks=0)
def warnings_silenced_and_raised():
    def f(x):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="bad.*")
            warnings.filterwarnings("error", category=RuntimeWarning)
            warnings.warn("bad thing", stacklevel=1)
            warnings.warn("good thing", stacklevel=1)
            try:
                warnings.warn("now an error", RuntimeWarning, stacklevel=1)
            except RuntimeWarning as error:
                x = x + len(str(error))
        return x * 2

    return f


@cases(graphs=1, breaks=1)
def operation_warns_where_warnings_are_recorded():
    def f(x):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            y = torch.nn.functional.mse_loss(x[None], x)
        return y, len(log)

    return f


@cases(graphs=1, breaks=0)
def module_as_a_namespace():
    def scaled(x):
        return x * SCALE

    def f(x):
        global SCALE
        module = sys.modules[__name__]
        module.SCALE = 5
        y = scaled(x)
        SCALE = 7
        y = y + module.SCALE + vars(module)["SCALE"]
        module.other = 3
        del module.other
        SCALE = 2
        return y, hasattr(module, "other")

    return f


@cases(graphs=2, breaks=0, recompiles=1)
def threads_own_attributes():
    THREAD.__dict__.clear()

    def f(x):
        THREAD.n = getattr(THREAD, "n", 0) + 1
        return x * THREAD.n

    return f


@cases(graphs=1, breaks=0)
def operators_of_others_with_tensors():
    log = []

    class Other:
        def __mul__(self, tensor):
            log.append("mul")
            return tensor * 3

        def __rsub__(self, tensor):
            log.append("rsub")
            return tensor + 1

        def __eq__(self, tensor):
            log.append("eq")
            return NotImplemented

    def f(x):
        return Other() * x, x - Other(), x == Other()

    return f, [(torch.ones(3),), (torch.ones(3),)], [log]


@cases(graphs=1, breaks=0)
def number_of_a_subclass():
    class Degrees(int):
        def __repr__(self):
            return f"{int(self)} degrees"

    return lambda x: (x * Degrees(3)).clamp(max=Degrees(2))


@cases(graphs=1, breaks=3)
def object_with_an_end():
    class Held:
        def __init__(self, log):
            self.log = log

        def __del__(self):
            self.log.append("end")

    def f(x, log):
        held = [Held(log)]
        y = x * 2
        held.pop()
        torch._dynamo.graph_break()
        log.append("after")
        return y, list(log)

    return f, [(torch.ones(3), []), (torch.ones(3), [])]


@cases(graphs=2, breaks=4)
def objects_in_a_list_that_nobody_reads():
    class Held:
        def __init__(self, log, name):
            self.log = log
            self.name = name

        def __del__(self):
            self.log.append(self.name)

    def f(x, log):
        held = [Held(log, "one"), Held(log, "two")]
        y = x * 2
        torch._dynamo.graph_break()
        del held[1]
        log.append("after")
        return y + 1, list(log)

    return f, [(torch.ones(3), []), (torch.ones(3), [])]


@cases(graphs=3, breaks=4, recompiles=2)
def counted_hits():
    @functools.lru_cache(maxsize=2)
    def doubled(n):
        return n * 2

    def f(x, n):
        y = x * doubled(n) + doubled(n) + doubled(1)
        torch._dynamo.graph_break()
        return y, doubled.cache_info()

    x = torch.ones(3)
    return f, [(x, 1), (x, 2), (x, 3), (x, 1), (x, 1)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case) -> None:
    assert check(case) > 0


def test_a_guard_is_told_without_the_users_words() -> None:
    class Loud:
        def __repr__(self) -> str:
            raise AssertionError("asked")

    assert _short([{"k": (1, Loud())}]).startswith("[{'k': (1, <")
