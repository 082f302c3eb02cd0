"""Small models of the families of transformers: configurations and inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.slow.batteries.entries import Program

TEXT = """
    Albert Bert BigBird Bloom Cohere ConvBert CTRL DebertaV2 DistilBert Electra Falcon FNet Gemma
    Gemma2 GPT2 GPTJ GPTNeo GPTNeoX Granite Llama Longformer Mamba Mistral Mixtral MPNet Mpt Olmo
    OPT Phi Phi3 Qwen2 Qwen3 Roberta RoFormer StableLm XLNet
""".split()
BOTH = ["Bart", "Marian", "MBart", "Pegasus", "T5"]
IMAGES = ["ConvNext", "DeiT", "Dinov2", "ResNet", "Swin", "ViT"]
SOUND = ["Wav2Vec2"]
#: Those that ``layers`` scales.
GROWING = ["Bert", "GPT2", "Llama"]

_LAYERS = "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers"
_SIZES = {
    2: f"{_LAYERS} num_key_value_heads num_decoder_layers",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads window_size "
    "decoder_attention_heads",
    8: "head_dim d_kv patch_size state_size rotary_dim",
    32: "hidden_size d_model n_embd dim embedding_size image_size word_embed_proj_dim",
    64: "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim hidden_dim d_inner "
    "max_position_embeddings n_positions",
    99: "vocab_size",
}
_SMALL: dict[str, Any] = {name: size for size, names in _SIZES.items() for name in names.split()}
_SMALL |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_OWN: dict[str, dict[str, Any]] = {
    "ConvNext": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "image_size": 32},
    "GPTNeo": {
        "hidden_size": 32, "num_layers": 2, "num_heads": 4, "vocab_size": 99, "window_size": 4,
        "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64,
        "bos_token_id": 1, "eos_token_id": 2,
    },
    "Swin": {
        "image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1],
        "num_heads": [2, 2], "window_size": 4,
    },
}  # fmt: skip
_MORE: dict[str, dict[str, Any]] = {
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "Mamba": {"time_step_rank": 4},
    "Wav2Vec2": {
        "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3),
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
        "num_feat_extract_layers": 2,
    },
}  # fmt: skip
#: What a configuration answers but does not take.
_READ_ONLY = {"Falcon": ("head_dim",), "XLNet": ("max_position_embeddings",)}


def families() -> list[str]:
    return [*TEXT, *BOTH, *IMAGES, *SOUND]


def configuration(name: str, layers: int | None = None) -> Any:
    import transformers

    kind = getattr(transformers, f"{name}Config")
    default = kind()
    if name in _OWN:
        return kind(**_OWN[name])
    unset = _READ_ONLY.get(name, ())
    given = {k: v for k, v in _SMALL.items() if hasattr(default, k) and k not in unset}
    given |= _MORE.get(name, {})
    if layers is not None:
        given |= {k: layers for k in _LAYERS.split() if k in given}
    return kind(**given)


def family_programs(name: str, layers: int | None = None) -> Iterator[tuple[str, Program]]:
    """A forward of the model, and one generation step where it keeps a cache."""
    import transformers

    transformers.logging.set_verbosity_error()
    config = configuration(name, layers)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config).eval()
    tokens = torch.randint(3, 90, (2, 9))
    if name in IMAGES:
        size = getattr(config, "image_size", 32)
        inputs = {"pixel_values": torch.randn(2, 3, size, size)}
    elif name in SOUND:
        inputs = {"input_values": torch.randn(2, 800)}
    else:
        inputs = {"input_ids": tokens}
    if name in BOTH:
        inputs["decoder_input_ids"] = tokens
    yield "forward", Program(model, (), inputs)
    if name in IMAGES or name in SOUND or layers is not None:
        return
    with torch.no_grad():
        first = model(**inputs)
    cache = getattr(first, "past_key_values", None)
    if cache is None or not hasattr(cache, "get_seq_length"):
        return
    step: dict[str, Any] = {"past_key_values": cache}
    if name in BOTH:
        step["encoder_outputs"] = (first.encoder_last_hidden_state,)
        step["decoder_input_ids"] = tokens[:, :1]
    else:
        step["input_ids"] = tokens[:, :1]
    yield "step", Program(model, (), step)
