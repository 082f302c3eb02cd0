"""A sample of the batteries for devices, here on the CPU: python -m tests.slow.devices runs all."""

from __future__ import annotations

import pytest
import torch

from tests.slow.devices.__main__ import BATTERIES, report
from tests.slow.devices.databases import difference, run
from tests.slow.devices.pool import Found

SAMPLE = {
    "families": ["Bert", "ViT"],
    "operators": ["add", "softmax", "cumsum", "index_select", "nn.functional.gelu"],
    "modules": ["nn.Linear", "nn.LayerNorm", "nn.Conv2d"],
    "memory": ["columns torch.float32 (7, 13)", "head (17, 130, 1025)", "pools (3, 5, 7, 7)"],
}


@pytest.mark.parametrize("battery", SAMPLE)
def test_nothing_differs(battery: str, capsys: pytest.CaptureFixture[str]) -> None:
    cases, check = BATTERIES[battery]
    names = [n for n in SAMPLE[battery] if n in cases()]
    assert len(names) >= 2
    found = [row for name in names for row in check(name, "cpu")]
    assert report(found, len(names)) and "0 differ" in capsys.readouterr().out
    assert len(found) >= 2 * len(names) - 2 and sum(row.elements for row in found) > 100
    assert any(row.kernels for row in found) and not any(row.fallback for row in found)


def test_what_differs_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert not report([Found("a", "eval"), Found("b", "eval", "off by 1")], 2)
    assert "b, eval: off by 1" in capsys.readouterr().out
    assert not report([Found("a", "eval", refused=True)], 1)


def test_differences_are_seen() -> None:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    eager = run(torch.sin, [x], {}, True)
    assert difference(run(torch.sin, [x], {}, True), eager) == ("", 18)
    for other in (torch.cos, lambda t: t.sin().double(), lambda t: t.sin().t().contiguous().t()):
        assert difference(run(other, [x], {}, True), eager)[0]
    scaled = run(lambda t: t.sin() + 0 * t + (t - t.detach()), [x], {}, True)
    assert difference(scaled, eager)[0].startswith("gradient: ")
    written = run(lambda t: t.add_(1).sub(1).sin(), [x.detach()], {}, False)
    plain = run(torch.sin, [x.detach()], {}, False)
    assert difference(written, plain)[0].startswith("argument: ")
