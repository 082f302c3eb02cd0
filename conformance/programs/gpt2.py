import torch
import transformers


def make():
    """GPT-2 with random weights and two small layers."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=97,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return transformers.GPT2LMHeadModel(config).eval()
