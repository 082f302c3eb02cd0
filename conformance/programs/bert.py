import torch
import transformers


def make():
    """BERT with random weights and two small layers."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=97,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    return transformers.BertModel(config).eval()
