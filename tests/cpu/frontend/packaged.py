"""Programs of packages, which two processes import."""

from __future__ import annotations

import functools
import logging
from typing import NamedTuple

import torch
from torch import nn

LOG = logging.getLogger("refcompiler.tests.packaged")
SCALE = 1.5
SETTINGS: list[int] = []


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def helper(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


def scaled(x: torch.Tensor, n: int = 2) -> torch.Tensor:
    return helper(torch.softmax(x @ x.t(), -1) @ x) * n + x.shape[1]


@functools.lru_cache(None)
def once(text: str) -> None:
    LOG.warning(text)


def told(x: torch.Tensor) -> torch.Tensor:
    once("rows are scaled")
    return x * SCALE


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.nn.functional.gelu(self.norm(self.first(x)))) + helper(x)[:, :4]
