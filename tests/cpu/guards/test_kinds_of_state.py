"""The guard kinds of tensors and of the ambient state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from refcompiler.guards.kinds import (
    METADATA,
    Ambient,
    Guard,
    TensorMeta,
    metadata,
    separate,
    storage_pattern,
)
from refcompiler.guards.sources import Sources
from tests.cpu.guards.agreeing import PLACE, agree, checked, compiled, quick

# ---- tensors -----------------------------------------------------------------------------------


def tensors() -> dict[str, torch.Tensor]:
    base = torch.arange(6.0)
    complex_ = torch.arange(6.0).reshape(2, 3) * (1 + 2j)
    found = {
        "plain": base.reshape(2, 3),
        "fresh": torch.ones(2, 3),
        "double": torch.ones(2, 3).double(),
        "half": torch.ones(2, 3).half(),
        "int": torch.ones(2, 3).int(),
        "negative int": torch._neg_view(torch.ones(2, 3).int()),
        "bool": torch.ones(2, 3).bool(),
        "flat": base,
        "wide": torch.ones(3, 2),
        "transposed": torch.ones(3, 2).t(),
        "strided": torch.arange(12.0).reshape(2, 6)[:, ::2],
        "grad": torch.ones(2, 3).requires_grad_(),
        "parameter": torch.nn.Parameter(torch.ones(2, 3)),
        "frozen": torch.nn.Parameter(torch.ones(2, 3), requires_grad=False),
        "meta": torch.ones(2, 3, device="meta"),
        "complex": complex_,
        "conjugate": complex_.conj(),
        "imaginary": complex_.conj().imag,
        "negative": torch._neg_view(torch.ones(2, 3)),
        "sparse": torch.eye(3).to_sparse(),
        "subclass": torch.ones(2, 3).as_subclass(type("Sub", (torch.Tensor,), {})),
    }
    return found


TENSORS = tensors()
STRIDED = [name for name, tensor in TENSORS.items() if tensor.layout is torch.strided]


@pytest.mark.parametrize("name", STRIDED)
def test_tensor(name: str) -> None:
    want = TENSORS[name]
    assert agree("TENSOR", TensorMeta.of(want), [*TENSORS.values(), None, 5, "a"]) == (
        2 if name in ("plain", "fresh") else 1
    )
    assert agree("TENSOR", TensorMeta.of(want), [want, want.detach().clone()]) >= 1


@quick
@given(
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.int64, torch.complex64, torch.bool]),
    st.booleans(),
    st.booleans(),
)
def test_tensor_on_drawn_metadata(
    shape: list[int], dtype: torch.dtype, swap: bool, grad: bool
) -> None:
    made = torch.zeros(shape, dtype=dtype)
    if swap and made.dim() > 1:
        made = made.transpose(0, 1)
    if grad and dtype.is_floating_point:
        made.requires_grad_()
    assert agree("TENSOR", TensorMeta.of(made), [made, *TENSORS.values()]) >= 1


def test_metadata() -> None:
    base = torch.arange(6.0)
    leaf = torch.ones(3).requires_grad_()
    with torch.inference_mode():
        inference = torch.ones(3) + 0
    values = [base, base[3:], leaf, leaf * 1, inference, torch.ones(3)]
    assert metadata(base[3:], "storage_offset") == 3
    compared = 0
    for name in sorted(METADATA):
        for value in values:
            expected = (name, metadata(value, name))
            same = sum(metadata(other, name) == expected[1] for other in values)
            assert agree("METADATA", expected, values) == same
            compared += 1
    assert compared == len(METADATA) * len(values) >= 40


def test_storage() -> None:
    base = torch.arange(6.0)
    a, b, c = base[:3], base[3:], torch.ones(3)
    assert storage_pattern(a, b, c, a) == (0, 0, 2, 0)
    sources = Sources()
    x, y = sources.make("arg", None, "x"), sources.make("arg", None, "y")
    for pair, pattern in (((a, c), (0, 1)), ((a, b), (0, 0)), ((a, a), (0, 0))):
        guard = Guard("STORAGE", None, ((x, y), pattern), PLACE)
        fast = compiled(guard, ["x", "y"])
        for other in ((a, c), (a, b), (a, a), (c, c), (c, base)):
            same = storage_pattern(*other) == pattern
            assert fast(*other) is same is checked(guard, dict(zip("xy", other, strict=True)))
        assert fast(*pair)
        assert "x, y" in guard.explain(None)


def test_separate() -> None:
    base, other = numpy.arange(6.0), torch.ones(3)
    a, b, c = (torch.from_numpy(part) for part in (base[:3], base[3:], base[2:4]))
    sources = Sources()
    x, y = sources.make("arg", None, "x"), sources.make("arg", None, "y")
    guard = Guard("SEPARATE", None, (x, y), PLACE)
    fast = compiled(guard, ["x", "y"])
    for pair, apart in (((a, b), True), ((a, c), False), ((c, b), False), ((other, c), True)):
        assert fast(*pair) is apart is checked(guard, dict(zip("xy", pair, strict=True)))
    assert separate(other[:2], other[1:]), "the guard of storages tells those"


# ---- ambient state -----------------------------------------------------------------------------


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class DefaultDtype:
    def __enter__(self) -> None:
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *error: object) -> None:
        torch.set_default_dtype(torch.float32)


class Deterministic:
    def __enter__(self) -> None:
        torch.use_deterministic_algorithms(True)

    def __exit__(self, *error: object) -> None:
        torch.use_deterministic_algorithms(False)


STATES: dict[str, Callable[[], Any]] = {
    "plain": lambda: torch.enable_grad(),
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", torch.float16),
    "no cache": lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
    "default dtype": DefaultDtype,
    "deterministic": Deterministic,
    "meta": lambda: torch.device("meta"),
    "cpu": lambda: torch.device("cpu"),
    "mode": Mode,
    "dispatch": FakeTensorMode,
}


@pytest.mark.parametrize("name", STATES)
def test_ambient(name: str) -> None:
    with STATES[name]():
        want = Ambient.now()
    guard = Guard("AMBIENT", None, want, ("", 0))
    fast = compiled(guard, [])
    held = []
    for other, state in STATES.items():
        with state():
            found = fast()
            assert found is checked(guard, {})
            if found:
                held.append(other)
            else:
                assert "ambient state" in guard.explain(None)
    assert held == [name]


def test_ambient_in_a_function_transformation() -> None:
    guard = Guard("AMBIENT", None, Ambient.now(), ("", 0))
    fast = compiled(guard, [])
    seen: list[bool] = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        seen.extend([fast(), checked(guard, {}), Ambient.now().captures])
        return x.sin()

    torch.func.grad(inner)(torch.tensor(1.0))
    torch.func.vmap(inner)(torch.ones(2))
    assert seen == [False] * 6
    assert fast() and Ambient.now().captures


def test_setting() -> None:
    reader = torch.get_num_threads
    guard = Guard("STATE", None, (reader, (), reader()), PLACE)
    fast = compiled(guard, [])
    assert fast() and checked(guard, {})
    old = torch.get_num_threads()
    try:
        torch.set_num_threads(old + 1)
        assert not fast() and not checked(guard, {})
        assert "get_num_threads" in guard.explain(None)
    finally:
        torch.set_num_threads(old)
