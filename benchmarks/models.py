"""The models that are timed: small random configurations, made the same way on every machine."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def gpt2(layers: int = 4) -> tuple[torch.nn.Module, Mapping[str, torch.Tensor]]:
    """GPT-2 with 64 features and 4 heads, in evaluation mode, with 2 x 16 token ids."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=128,
        n_positions=64,
        n_embd=64,
        n_layer=layers,
        n_head=4,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2Model(config).eval(), {"input_ids": torch.randint(0, 128, (2, 16))}


def bert(layers: int = 4) -> tuple[torch.nn.Module, Mapping[str, torch.Tensor]]:
    """BERT with 64 features and 4 heads, in evaluation mode, with 2 x 16 token ids and a mask."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=128,
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    inputs = {
        "input_ids": torch.randint(0, 128, (2, 16)),
        "attention_mask": torch.ones(2, 16, dtype=torch.long),
    }
    return BertModel(config).eval(), inputs


def many_kernels() -> tuple[torch.nn.Module, Mapping[str, torch.Tensor]]:
    """A chain of products with 50 different kernels between them: no width comes twice."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for n in range(25):
        width = 32 + 4 * n
        layers += [torch.nn.LayerNorm(width), torch.nn.Linear(width, width), torch.nn.GELU()]
        layers += [torch.nn.Linear(width, width + 4)]
    return torch.nn.Sequential(*layers).eval(), {"input": torch.randn(16, 32)}


def perceptron() -> tuple[torch.nn.Module, Mapping[str, torch.Tensor]]:
    """Two linear layers with GELU, layer norm and softmax between and after them."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128),
        torch.nn.GELU(),
        torch.nn.LayerNorm(128),
        torch.nn.Linear(128, 32),
        torch.nn.Softmax(dim=-1),
    )
    return model.eval(), {"input": torch.randn(16, 64)}
