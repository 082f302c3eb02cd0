"""Real models through ``torch.compile`` with the backend: one graph, and eager's output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import fastpath
from fastpath.report import Report


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm1(self.first(x)))
        return self.relu(self.norm2(self.second(y)) + self.shortcut(x))


def resnet18() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 16
    for outside, stride in ((16, 1), (32, 2), (64, 2), (128, 2)):
        layers += [Block(width, outside, stride), Block(outside, outside, 1)]
        width = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 100, "n_positions": 32}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            vocab_size=100,
        )
    )


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in leaves(item)]
    return []


TOKENS = torch.randint(0, 100, (2, 12), generator=torch.Generator().manual_seed(0))
MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor, dict[str, Any], int]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)),
        torch.randn(8, 16),
        {},
        1,
    ),
    "encoder": (encoder, torch.randn(2, 10, 32), {}, 0),
    "resnet18": (resnet18, torch.randn(2, 3, 32, 32), {}, 10),
    "gpt2": (gpt2, TOKENS, {"use_cache": False}, 6),
    "bert": (bert, TOKENS, {}, 6),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_equals_eager_in_one_graph(name: str) -> None:
    make, x, options, least_kernels = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    reports: list[Report] = []

    def backend(gm: torch.fx.GraphModule, examples: Any) -> Any:
        run = fastpath.backend(gm, examples)
        reports.append(run.report)
        return run

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        expected = leaves(model(x, **options))
        for _ in range(2):
            got = leaves(compiled(x, **options))
            assert len(got) == len(expected) >= 1
            for a, b in zip(got, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
                assert a.stride() == b.stride()
    assert len(reports) == 1
    assert reports[0].fallback is None
    assert reports[0].kernels >= least_kernels


def test_a_model_in_training_mode_without_gradients() -> None:
    """Dropout draws eager's numbers and batch norm moves eager's statistics."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3)).train()
    x = torch.randn(4, 3, 8, 8)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        torch.manual_seed(1)
        expected = model(x)
        after = {k: v.clone() for k, v in model.state_dict().items()}
        model.load_state_dict(state)
        torch._dynamo.reset()
        torch.manual_seed(1)
        got = torch.compile(model, backend=fastpath.backend)(x)
    assert fastpath.last_report().fallback is None
    torch.testing.assert_close(got, expected)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, after[name])


def test_the_entry_point_is_found() -> None:
    torch._dynamo.reset()
    from importlib.metadata import entry_points

    found = [e for e in entry_points(group="torch_dynamo_backends") if e.name == "fastpath"]
    if not found:
        pytest.skip("the package is not installed here, so it has no entry points")
    assert found[0].load() is fastpath.backend
