"""The real models of the conformance suite through the front end, one graph each."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path

import pytest
import torch

import refcompiler
from refcompiler.runtime.counters import reasons

PROGRAMS = Path(importlib.util.find_spec("conformance").origin).parent / "programs"
#: name -> (input, how many of its elements are told apart, an attribute that matters)
MODELS = {
    "transformer_encoder": (lambda: torch.randn(2, 7, 32), "layers.0.norm1"),
    "resnet18": (lambda: torch.randn(1, 3, 32, 32), "stem.1"),
    "gpt2": (lambda: torch.randint(0, 97, (2, 9)), "transformer.ln_f"),
    "bert": (lambda: torch.randint(0, 97, (2, 9)), "embeddings.LayerNorm"),
}


def tensors(value) -> list[torch.Tensor]:
    """All tensors of an output, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for item in value for tensor in tensors(item)]


def same(found, want, exact: bool) -> int:
    found, want = tensors(found), tensors(want)
    assert len(found) == len(want) > 0
    for a, b in zip(found, want):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        if exact:
            assert torch.equal(a, b)
        else:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)
    return len(found)


def make(name: str):
    if name in ("gpt2", "bert") and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed (extra: models)")
    return runpy.run_path(str(PROGRAMS / f"{name}.py"))["make"]().eval()


@pytest.mark.parametrize("backend", ["eager", "fastpath"])
@pytest.mark.parametrize("name", MODELS)
def test_one_graph_equal_to_eager_no_recompile_and_changes_noticed(name, backend):
    check_model(name, backend)


def check_model(name: str, backend: str) -> None:
    draw, norm = MODELS[name]
    model = make(name)
    compiled = refcompiler.compile(model, backend=backend)
    exact = backend == "eager"
    with torch.no_grad():
        x = draw()
        compared = same(compiled(x), model(x), exact)
        x = draw()
        compared += same(compiled(x), model(x), exact)
        found = refcompiler.counters()
        assert (found["graphs"], found["captures"]) == (1, 1), reasons("breaks")
        assert (found["breaks"], found["fallbacks"], found["recompiles"]) == (0, 0, 0)

        before = model(x)
        model.get_submodule(norm).eps = 0.7
        after = model(x)
        assert not torch.equal(tensors(before)[0], tensors(after)[0])
        compared += same(compiled(x), after, exact)
        assert refcompiler.counters()["recompiles"] == 1
        assert compared >= 3
        if backend == "fastpath" and name in ("resnet18", "gpt2"):
            return  # another dtype is another 30 kernels, of which the other models have each kind

        model.double()
        wide = x.double() if x.is_floating_point() else x
        compared += same(compiled(wide), model(wide), exact)
        assert refcompiler.counters()["recompiles"] == 2
        assert refcompiler.counters()["graphs"] == 3
    assert compared >= 4
