import torch
from torch import nn


def make():
    """A transformer encoder of two layers; batch first, norm first, no dropout."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        d_model=32, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True, norm_first=True
    )
    # Nested tensors are a fast path of eager's own; what is compiled is the ordinary one.
    return nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False).eval()
