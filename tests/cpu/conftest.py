"""What every test below imports, imported before them and left out of garbage collections.

They are 400,000 objects that nothing ever frees, which each full collection would look at: more
than half of the time of many tests. What the tests' own modules hold is not frozen, since captures
ask the collector who holds what. Young objects are looked at less often than by default, which was
another twentieth: what a test wants collected, it collects. A worker of a parallel run needs sooner
or later what is imported late, too: another 170,000 objects, and half of the time of tests of what
lives how long. The process that hands tests out to workers runs none, and imports nothing.
"""

from __future__ import annotations

import gc
import importlib
import os

import pytest

from tests import forked


@pytest.hookimpl(trylast=True)  # behind the variables that compilers read when they are imported
def pytest_configure(config: pytest.Config) -> None:
    worker = "PYTEST_XDIST_WORKER" in os.environ
    if config.getoption("numprocesses", None) and not worker:
        return
    for name in ("sympy", "torch.fx.experimental.proxy_tensor"):
        importlib.import_module(name)
    forked.keep_fresh()
    compiler = ("refcompiler.aot", "refcompiler.package", "refcompiler.runtime.api")
    for name in ("torch._dynamo", *compiler):
        importlib.import_module(name)
    if worker:
        for name in ("networkx", "hypothesis", "torch._inductor.compile_fx"):
            importlib.import_module(name)
        importlib.import_module("fastpath.cpu.machine").warm()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
