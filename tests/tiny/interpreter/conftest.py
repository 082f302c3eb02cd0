"""What is there before the first test is left out of garbage collections, of which tests of what
lives how long ask for hundreds. With torch, ``tests/cpu/conftest.py`` has done so, but for the
tests' own modules, which captures look at."""

import gc
import sys


def pytest_collection_finish() -> None:
    if "torch" not in sys.modules:
        gc.collect()
        gc.freeze()
