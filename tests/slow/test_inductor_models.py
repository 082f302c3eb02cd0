"""The real models under torch's own backend: minutes of C++ compilation."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FAST = Path(__file__).parents[1] / "cpu" / "frontend" / "test_models.py"
_spec = importlib.util.spec_from_file_location("frontend_models", FAST)
assert _spec is not None and _spec.loader is not None
fast = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fast)


@pytest.mark.parametrize("name", fast.MODELS)
def test_inductor_behind_our_front_end(name):
    fast.check_model(name, "inductor")
