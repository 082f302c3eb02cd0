"""Models of timm, torchvision and PyTorch Geometric for :mod:`tests.slow.batteries.zoo`.

Of timm one model of each module, the one whose name promises to be the smallest; of torchvision the
models of images; of Geometric the convolutions that two numbers make. Images are as small as a
model takes them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

#: Parts of names, the smallest first.
_SMALL = """
    atto femto pico nano xxs 000 tiny xs _035 _050 _s0 _a0 _b0 _t0 _t2 18 small _s _a1 _b1 base
""".split()
_IMAGES = (64, 96, 128, 224, 256)  # pixels
_BATCH = 4


class Called(nn.Module):
    """A model that is called by keywords."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **given: torch.Tensor) -> Any:
        return self.model(*given.values())


def names(library: str) -> list[str]:
    """What is there of ``library``, each with its name in front."""
    found = {"timm": _timm_names, "torchvision": _vision_names, "geometric": _convolutions}[library]
    return [f"{library}:{name}" for name in found()]


def make(name: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """That model, untrained, and what it takes. Raises what making or calling it raised last."""
    library, _, rest = name.partition(":")
    ways: dict[str, Callable[[str], Iterator[tuple[nn.Module, dict[str, torch.Tensor]]]]]
    ways = {"timm": _timm, "torchvision": _vision, "geometric": _geometric}
    last: Exception = LookupError(name)
    for model, given in ways[library](rest):
        try:
            with torch.no_grad():
                model.eval()(**given)
        except Exception as error:
            last = error
        else:
            return model, given
    raise last


def _rank(name: str) -> tuple[int, int, str]:
    return next((i for i, part in enumerate(_SMALL) if part in name), 99), len(name), name


def _timm_names() -> list[str]:
    timm = importlib.import_module("timm")
    modules = sorted(timm.list_modules())
    each = ([n for n in timm.list_models(module=m) if not n.startswith("test_")] for m in modules)
    return [min(found, key=_rank) for found in each if found]


def _timm(name: str) -> Iterator[tuple[nn.Module, dict[str, torch.Tensor]]]:
    timm = importlib.import_module("timm")
    for size in _IMAGES:
        torch.manual_seed(0)
        try:
            model = timm.create_model(name, pretrained=False, num_classes=10, img_size=size)
        except TypeError:  # whose size is not chosen
            model = timm.create_model(name, pretrained=False, num_classes=10)
        except (AssertionError, ValueError, RuntimeError):
            continue
        yield Called(model), {"pixels": torch.randn(_BATCH, 3, size, size)}


def _vision_names() -> list[str]:
    models = importlib.import_module("torchvision.models")
    return sorted(models.list_models(module=models))


def _vision(name: str) -> Iterator[tuple[nn.Module, dict[str, torch.Tensor]]]:
    models = importlib.import_module("torchvision.models")
    for size in _IMAGES:
        torch.manual_seed(0)
        how = {"aux_logits": False} if name in ("googlenet", "inception_v3") else {}
        model = models.get_model(name, weights=None, num_classes=10, **how)
        yield Called(model), {"pixels": torch.randn(_BATCH, 3, size, size)}


def _convolutions() -> list[str]:
    layers = importlib.import_module("torch_geometric.nn.conv")
    return sorted(n for n in layers.__all__ if n.endswith("Conv"))


def _geometric(name: str) -> Iterator[tuple[nn.Module, dict[str, torch.Tensor]]]:
    layers = importlib.import_module("torch_geometric.nn")
    pairs = torch.randint(0, 12, (2, 40), generator=torch.Generator().manual_seed(1))
    for sizes in ((8, 8), (8,), (), (8, 8, 2), (8, 2), (8, 8, 2, 2)):
        torch.manual_seed(0)
        try:
            model = getattr(layers, name)(*sizes)
        except Exception:  # which takes something else
            continue
        yield Called(model), {"x": torch.randn(12, 8), "edge_index": pairs}
        yield Called(model), {"x": torch.randn(12, 8), "p": torch.randn(12, 3), "edges": pairs}
