"""What every test below imports, imported before them and left out of garbage collections.

They are 400,000 objects that nothing ever frees, which each full collection would look at: more
than half of the time of many tests. What the tests' own modules hold is not frozen, since captures
ask the collector who holds what. Young objects are looked at less often than by default, which was
another twentieth: what a test wants collected, it collects. A worker of a parallel run needs sooner
or later what is imported late, too: another 170,000 objects, and half of the time of tests of what
lives how long.
"""

from __future__ import annotations

import gc
import importlib
import os

import sympy  # noqa: F401
import torch.fx.experimental.proxy_tensor  # noqa: F401

from tests import forked

forked.keep_fresh()

for name in ("torch._dynamo", "refcompiler.aot", "refcompiler.package", "refcompiler.runtime.api"):
    importlib.import_module(name)
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("networkx", "hypothesis", "torch._inductor.compile_fx"):
        importlib.import_module(name)
    importlib.import_module("fastpath.cpu.machine").warm()
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 10, 10)
