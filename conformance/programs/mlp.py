import torch
from torch import nn
from torch.nn import functional


class MLP(nn.Module):
    """Two layers and a normalisation; ``scale`` and ``mode`` are plain attributes that matter."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.second = nn.Linear(32, 8)
        self.scale = 2.0
        self.mode = "gelu"
        self.register_buffer("shift", torch.zeros(8))

    def forward(self, x):
        x = self.norm(self.first(x))
        x = functional.gelu(x) if self.mode == "gelu" else torch.relu(x)
        return self.second(x) * self.scale + self.shift


def make():
    torch.manual_seed(0)
    return MLP().eval()
