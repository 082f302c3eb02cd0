"""Small models of the benchmarks' families on a device: forward and training, each twice.

A result may be as far from float64's as eager's is, six times, and a little, or from eager's where
eager cannot do it in float64. The first call compiles; the second one's parameters are others.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

import refcompiler
from benchmarks.family_models import BOTH, IMAGES, SOUND, TEXT, calls
from tests.slow.devices.compare import exact_products
from tests.slow.devices.pool import Found, Watched, lost

ROUTED = ("Mixtral", "Moe")  # which expert is asked depends on the last bit, in float64 as well


def cases() -> list[str]:
    return [*TEXT, *BOTH, *IMAGES, *SOUND]


def check(name: str, device: str, backend: str = "fastpath") -> Sequence[Found]:
    exact_products()
    _, model, inputs = next(iter(calls(name)))
    model = model.to(device).eval()
    inputs = _moved(inputs, device, None)
    found = []
    for training in (False, True):
        way = "training" if training else "forward"
        try:
            _run(model, model, inputs, training)
        except Exception:
            found.append(Found(name, way, refused=True))
            continue
        try:
            refcompiler.reset()
            found.append(_check(name, way, model, inputs, training, backend))
        except Exception as error:
            found.append(lost(name, way, error))
    return found


def _check(name: str, way: str, model: Any, inputs: Any, training: bool, backend: str) -> Found:
    watched = Watched(backend)
    compiled = refcompiler.compile(model, backend=watched.backend)
    routed = any(word in name for word in ROUTED)
    device = next(iter(model.parameters())).device
    bad, elements = "", 0
    for call in range(2):
        eager = _run(model, model, inputs, training)
        exact = eager
        if not routed:
            wide = copy.deepcopy(model).double()
            with contextlib.suppress(RuntimeError):  # products of experts that take no float64
                exact = _run(wide, wide, _moved(inputs, device, torch.float64), training)
        got = _run(compiled, model, inputs, training)
        told, count = _judged(got, eager, exact)
        bad, elements = bad or (told and f"call {call}: {told}"), elements + count
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.01)
    return watched.described(Found(name, way, bad, elements=elements))


def _moved(inputs: Any, device: Any, dtype: torch.dtype | None) -> Any:
    def move(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        return t.to(device, dtype=dtype if t.is_floating_point() else None)

    return {key: move(value) for key, value in inputs.items()}


def _run(function: Any, model: Any, inputs: Any, training: bool) -> list[Any]:
    def results(given: Any) -> list[torch.Tensor]:
        leaves = pytree.tree_leaves(given if isinstance(given, (tuple, list)) else dict(given))
        return [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]

    if not training:
        with torch.no_grad():
            return [t.clone() for t in results(function(**inputs))]
    model.zero_grad(set_to_none=True)
    found = results(function(**inputs))
    sum(t.square().mean() for t in found if t.requires_grad).backward()  # type: ignore[union-attr]
    gradients = [p.grad for p in model.parameters()]
    return [t.detach().clone() for t in found] + [g if g is None else g.clone() for g in gradients]


def _judged(got: list[Any], eager: list[Any], exact: list[Any]) -> tuple[str, int]:
    if len(got) != len(eager):
        return f"{len(got)} tensors for {len(eager)}", 0
    count = 0
    for place, (a, b, c) in enumerate(zip(got, eager, exact, strict=True)):
        if a is None or b is None:
            if a is not b:
                return f"tensor {place}: {'none' if a is None else 'one'}", count
            continue
        if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
            return f"tensor {place}: {a.dtype, a.shape, a.stride()}", count
        a, b, c = (t.double().nan_to_num(0.5, 9e9, -9e9) for t in (a, b, c))
        if not a.numel():
            continue
        room = 6 * (b - c).abs().max() + 2e-5 * c.abs().max() + 1e-7
        error = (a - c).abs().max()
        if not error <= room:
            return f"tensor {place}: off by {float(error):.1e}, more than {float(room):.1e}", count
        count += a.numel()
    return "", count
