"""Small models of many families: of transformers, and plain networks of ``conformance.programs``.

All are of random weights and in evaluation mode, and made the same way on every machine.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

TEXT = """
    Albert Bert BigBird BioGpt Bloom Cohere ConvBert CTRL DebertaV2 DistilBert Electra Esm Falcon
    FalconMamba FNet Gemma Gemma2 Gemma3Text GPT2 GPTJ GPTNeo GPTNeoX GptOss Granite GraniteMoe Lfm2
    Llama Longformer Mamba Mistral Mixtral MobileBert ModernBert MPNet Mpt Nystromformer Olmo Olmoe
    OpenAIGPT OPT Phi Phi3 Qwen2 Qwen2Moe Qwen3 Roberta RoFormer Rwkv SqueezeBert StableLm XGLM
    XLNet
""".split()
BOTH = "Bart BlenderbotSmall LED LongT5 M2M100 Marian MBart MT5 Pegasus T5".split()
IMAGES = """
    Beit CLIPVision ConvNext DeiT Dinov2 DPT FocalNet MobileNetV2 PoolFormer RegNet ResNet Swin ViT
""".split()
SOUND = ["Hubert", "Wav2Vec2", "WavLM"]
#: Modules of ``conformance.programs``, and the shape of their input.
PLAIN = {
    "cnn": (4, 3, 12, 12), "mlp": (8, 16), "resnet18": (1, 3, 32, 32), "rnn": (4, 8, 12),
    "transformer_encoder": (2, 12, 32),
}  # fmt: skip
#: Those whose capture is timed with more and more layers.
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
_CONVOLUTIONS = {
    "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 2,
}  # fmt: skip
_MORE: dict[str, dict[str, Any]] = {
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "Mamba": {"time_step_rank": 4},
    **dict.fromkeys(SOUND, _CONVOLUTIONS),
}
#: What a configuration answers but does not take.
_READ_ONLY = {"Falcon": ("head_dim",), "XLNet": ("max_position_embeddings",)}


def configuration(
    name: str, layers: int | None = None, sizes: Mapping[str, int] | None = None
) -> Any:
    """The configuration of a family of transformers, small, with that many layers; ``sizes``: of
    what it has of these, instead of the small ones."""
    import transformers

    kind = getattr(transformers, f"{name}Config")
    default = kind()
    if name in _OWN:
        return kind(**_OWN[name])
    unset = _READ_ONLY.get(name, ())
    wanted = _SMALL | dict(sizes or {})
    given = {k: v for k, v in wanted.items() if hasattr(default, k) and k not in unset}
    given |= _MORE.get(name, {})
    if layers is not None:
        given |= {k: layers for k in _LAYERS.split() if k in given}
    return kind(**given)


def calls(name: str, layers: int | None = None) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Title, model and keyword arguments: a forward, and one with a cache where it keeps one."""
    torch.manual_seed(0)
    if name in PLAIN:
        program = importlib.import_module(f"conformance.programs.{name}")
        given = torch.randn(PLAIN[name])
        model = program.make()
        yield "forward", model, {_first(model): given}
        return
    import transformers

    transformers.logging.set_verbosity_error()
    config = configuration(name, layers)
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
    yield "forward", model, inputs
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
    yield "with a cache", model, step


def _first(model: torch.nn.Module) -> str:
    """The name of the first parameter of ``forward``."""
    code = type(model).forward.__code__
    return code.co_varnames[1]
