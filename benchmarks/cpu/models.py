"""Models of the CPU's sections: two or three layers of each kind, at sizes where kernels matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Made = tuple[nn.Module, dict[str, torch.Tensor]]
WIDTH, LAYERS, TOKENS, BATCH = 256, 2, 64, 4


def _ids() -> torch.Tensor:
    return torch.randint(0, 1000, (BATCH, TOKENS))


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=1000, n_positions=128, n_embd=WIDTH, n_layer=LAYERS, n_head=4, use_cache=False
    )
    return GPT2LMHeadModel(config), {"input_ids": _ids()}


def bert() -> Made:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=1000,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=128,
    )
    return BertForMaskedLM(config), {"input_ids": _ids()}


def llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=3 * WIDTH,
        max_position_embeddings=128,
        use_cache=False,
    )
    return LlamaForCausalLM(config), {"input_ids": _ids()}


def t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=1000,
        d_model=WIDTH,
        d_kv=64,
        d_ff=4 * WIDTH,
        num_layers=LAYERS,
        num_heads=4,
        use_cache=False,
        decoder_start_token_id=0,
        dropout_rate=0.0,  # which is no module in its attention
    )
    model = T5ForConditionalGeneration(config)
    return model, {"input_ids": _ids(), "decoder_input_ids": _ids()}


def vit() -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        image_size=64,
        patch_size=8,
        num_labels=100,
    )
    return ViTForImageClassification(config), {"pixel_values": torch.randn(BATCH, 3, 64, 64)}


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.skip = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(inside)) + self.skip(x))


def resnet() -> Made:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1),
        Residual(32, 32, 1),
        Residual(32, 64, 2),
        Residual(64, 128, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 100),
    )
    return model, {"input": torch.randn(BATCH, 3, 32, 32)}


class Depthwise(nn.Module):
    """A block in the manner of ConvNeXt."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.mix(x).permute(0, 2, 3, 1))
        return x + self.narrow(F.gelu(self.wide(y))).permute(0, 3, 1, 2)


def convnext() -> Made:
    model = nn.Sequential(nn.Conv2d(3, 64, 4, 4), Depthwise(64), Depthwise(64), nn.Flatten(2))
    return model, {"input": torch.randn(BATCH, 3, 64, 64)}


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.tokens = nn.Sequential(nn.Linear(TOKENS, 128), nn.GELU(), nn.Linear(128, TOKENS))
        self.features = nn.Sequential(nn.Linear(WIDTH, 512), nn.GELU(), nn.Linear(512, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.features(self.norms[1](x))


def mixer() -> Made:
    return nn.Sequential(Mixer(), Mixer()), {"input": torch.randn(BATCH, TOKENS, WIDTH)}


def perceptron() -> Made:
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(512, 512), nn.LayerNorm(512), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(512, 100)), {"input": torch.randn(64, 512)}


class Recurrent(nn.Module):
    """An LSTM by its formulas, which every step of a sequence goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(64, 128)
        self.head = nn.Linear(128, 100)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        h = c = input.new_zeros(input.shape[0], 128)
        for step in range(16):
            h, c = self.cell(input[:, step], (h, c))
        return self.head(h)


def lstm() -> Made:
    return Recurrent(), {"input": torch.randn(16, 16, 64)}


MODELS: dict[str, Callable[[], Made]] = {
    "GPT-2": gpt2,
    "BERT": bert,
    "Llama": llama,
    "T5": t5,
    "ViT": vit,
    "ResNet": resnet,
    "ConvNeXt": convnext,
    "MLP-Mixer": mixer,
    "MLP": perceptron,
    "LSTM": lstm,
}


def made(name: str) -> Made:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model, inputs


def result(output: Any) -> torch.Tensor:
    """The tensor that a model is judged by: the first of what it gives."""
    return output if isinstance(output, torch.Tensor) else output[0]
