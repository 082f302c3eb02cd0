"""Calls of dynamic programs compared with eager, and generated programs over sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

import refcompiler
from refcompiler.shapes.node import SYMBOLS


def torchs_aot(graph: Any, inputs: list[Any]) -> Any:
    """torch's own AOT autograd, which knows no symbols but torch's."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    run = aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward))
    return run(graph, inputs)


def see(value: Any) -> Any:
    """All that a user can tell of a result; no symbol may be in it."""
    assert type(value) not in SYMBOLS, value
    if isinstance(value, torch.Tensor):
        assert type(value) in (torch.Tensor, torch.nn.Parameter)
        assert all(type(n) is int for n in (*value.shape, *value.stride()))
        return value.dtype, tuple(value.shape), value.stride(), value.tolist()
    if isinstance(value, Mapping):
        return type(value), [(see(k), see(v)) for k, v in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value), [see(item) for item in value]
    return type(value), value


def attempt(function: Callable, arguments: Sequence[Any]) -> Any:
    try:
        return see(function(*arguments))
    except Exception as error:
        return type(error), str(error)


def compare(
    function: Callable,
    calls: Iterable[Sequence[Any]],
    make: Callable[[], Callable] | None = None,
    **options: Any,
) -> int:
    """Call ``function`` and its compiled form with each of ``calls``; how often it was captured."""
    refcompiler.reset()
    options.setdefault("backend", "eager")
    compiled = refcompiler.compile(make() if make else function, **options)
    count = 0
    for arguments in calls:
        wanted, found = attempt(function, arguments), attempt(compiled, arguments)
        assert found == wanted, (count, found, wanted)
        count += 1
    assert count
    return refcompiler.counters()["captures"]


NUMBERS = (
    "{t}.shape[0]",
    "{t}.shape[1]",
    "{n} + 1",
    "{n} * 2 - {m}",
    "{n} // 2 + {m}",
    "{n} % 3 + 1",
    "max({n}, {m})",
    "{t}.numel() // 2",
    "len({t}) + k",
    "int({n} / 2)",
    "{t}.size(-1) * {t}.size(0)",
)
TENSORS = (
    "{t} + {n}",
    "{t} * {t}.shape[1]",
    "{t}.t()",
    "torch.cat([{t}, {t}], 0)",
    "{t}[1:]",
    "{t}[:, : {t}.shape[1] // 2 + 1]",
    "{t}.reshape(-1, 1)",
    "{t}.sum(0, keepdim=True).expand({t}.shape[0], -1)",
    "torch.ones({t}.shape[0], 2) * k",
    "{t}.contiguous().view({t}.shape[0] * {t}.shape[1]).view({t}.shape[1], {t}.shape[0])",
    "{t}.flatten()[: {t}.shape[0]].unsqueeze(0)",
    "torch.arange({t}.shape[1]).float().unsqueeze(0) + {t}",
    "{t}.unsqueeze(1).expand(-1, 2, -1).reshape({t}.shape[0] * 2, {t}.shape[1])",
    "{t} @ {t}.t()",
    "torch.nn.functional.pad({t}, (0, 1))",
    "{t}.new_zeros({t}.size()) + {t}[0]",
)


def program(seed: int) -> tuple[str, Callable]:
    """A program over two tensors with two dimensions and an int, and its text."""
    draw = random.Random(seed)
    tensors, numbers = ["x", "y"], ["k", "2"]
    lines = ["def program(x, y, k):"]
    for i in range(draw.randrange(3, 8)):
        t, n, m = draw.choice(tensors), draw.choice(numbers), draw.choice(numbers)
        kind = draw.random()
        if kind < 0.35:
            lines.append(f"    n{i} = " + draw.choice(NUMBERS).format(t=t, n=n, m=m))
            numbers.append(f"n{i}")
        elif kind < 0.9:
            lines.append(f"    t{i} = " + draw.choice(TENSORS).format(t=t, n=n, m=m))
            tensors.append(f"t{i}")
        else:
            lines += [f"    if {n} > {m} + 3:", f"        x = {t} * 2", "        k = k + 1"]
    lines.append(f"    return {', '.join(tensors)}, {', '.join(numbers)}")
    text = "\n".join(lines) + "\n"
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(text, f"<program {seed}>", "exec"), namespace)
    return text, namespace["program"]
