"""Programs of libraries that people compile: of each what is installed, small and random.

An entry is ``library:program``. Models are run in evaluation and in training with their gradients,
each with a batch of its own size; functions once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tests.slow.batteries.entries import Program

Made = Callable[[int], tuple[Callable, tuple]]  # of a batch size: what to compile, its arguments

_VIT = {
    "image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 16, "depth": 2, "heads": 2,
    "mlp_dim": 32,
}  # fmt: skip
_FOUR = {"dim": (8, 8, 8, 8), "depth": (1, 1, 1, 1)}
_STAGES = {"num_classes": 5, "s1_emb_dim": 8, "s2_emb_dim": 8, "s3_emb_dim": 8}
VIT: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", _VIT),
    "simple_vit": ("SimpleViT", _VIT),
    "cait": ("CaiT", _VIT | {"cls_depth": 1}),
    "deepvit": ("DeepViT", _VIT),
    "xcit": ("XCiT", _VIT | {"cls_depth": 1}),
    "parallel_vit": ("ViT", _VIT),
    "vit_for_small_dataset": ("ViT", _VIT),
    "local_vit": ("LocalViT", _VIT),
    "learnable_memory_vit": ("ViT", _VIT),
    "pit": ("PiT", _VIT | {"depth": (1, 1)}),
    "cct": ("CCT", {
        "img_size": 32, "embedding_dim": 16, "n_conv_layers": 1, "kernel_size": 3, "stride": 2,
        "padding": 1, "num_layers": 2, "num_heads": 2, "mlp_ratio": 2.0, "num_classes": 5,
    }),
    "cvt": ("CvT", _STAGES | {"s1_heads": 1, "s2_heads": 2, "s3_heads": 2, "s3_depth": 1}),
    "levit": ("LeViT", {
        "image_size": 64, "num_classes": 5, "stages": 2, "dim": (16, 32), "depth": 1,
        "heads": (2, 2), "mlp_mult": 2,
    }),
    "crossformer": ("CrossFormer", {
        "num_classes": 5, **_FOUR, "global_window_size": (2, 2, 1, 1), "local_window_size": 2,
    }),
    "max_vit": ("MaxViT", {
        "num_classes": 5, "dim": 8, "dim_conv_stem": 8, "dim_head": 4, "depth": (1, 1),
        "window_size": 2,
    }),
    "nest": ("NesT", {
        "image_size": 32, "patch_size": 4, "dim": 8, "heads": 2, "num_hierarchies": 2,
        "block_repeats": (1, 1), "num_classes": 5,
    }),
    "regionvit": ("RegionViT", {
        **_FOUR, "window_size": 2, "num_classes": 5, "tokenize_local_3_conv": False,
    }),
    "sep_vit": ("SepViT", {
        "num_classes": 5, "dim": 8, "dim_head": 4, "heads": (1, 1, 1, 1), "depth": (1, 1, 1, 1),
        "window_size": 1,
    }),
}  # fmt: skip

DECODERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotary_pos_emb": True, "ff_glu": True, "ff_swish": True, "use_rmsnorm": True},
    "alibi": {"alibi_pos_bias": True},
    "relative": {"rel_pos_bias": True, "sandwich_norm": True},
    "talking": {"attn_talking_heads": True, "residual_attn": True},
    "memories": {"attn_num_mem_kv": 2, "use_scalenorm": True},
    "normed": {"attn_qk_norm": True, "macaron": True},
    "flash": {"attn_flash": True, "attn_kv_heads": 1},
    "shifted": {"shift_tokens": 1, "gate_residual": True},
    "sparse": {"attn_sparse_topk": 3},
    "dynamic": {"dynamic_pos_bias": True},
    "dual": {"resi_dual": True},
}

#: Beside the models that timm keeps for tests: one of each kind, the smallest.
TIMM = """
    mobilenetv3_small_050 lcnet_035 ghostnet_050 tinynet_e edgenext_xx_small mobilevit_xxs
    levit_128s xcit_nano_12_p16_224 poolformer_s12 convit_tiny coat_lite_tiny pit_ti_224 pvt_v2_b0
    regnetx_002
    visformer_tiny efficientformer_l1 repvit_m0_9 mobileone_s0 rexnet_100 fbnetc_100 hardcorenas_a
    resmlp_12_224 densenet121 dla46_c
""".split()

CONVOLUTIONS: dict[str, Callable[[Any], nn.Module]] = {
    "GCNConv": lambda g: g.GCNConv(4, 3),
    "GATConv": lambda g: g.GATConv(4, 3, heads=2),
    "GATv2Conv": lambda g: g.GATv2Conv(4, 3),
    "SAGEConv": lambda g: g.SAGEConv(4, 3),
    "GINConv": lambda g: g.GINConv(nn.Sequential(nn.Linear(4, 3))),
    "TransformerConv": lambda g: g.TransformerConv(4, 3),
    "ChebConv": lambda g: g.ChebConv(4, 3, 2),
    "EdgeConv": lambda g: g.EdgeConv(nn.Linear(8, 3)),
    "GraphConv": lambda g: g.GraphConv(4, 3, aggr="max"),
    "TAGConv": lambda g: g.TAGConv(4, 3),
    "ARMAConv": lambda g: g.ARMAConv(4, 3),
    "SGConv": lambda g: g.SGConv(4, 3, K=2),
    "ResGatedGraphConv": lambda g: g.ResGatedGraphConv(4, 3),
}


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _timm(name: str) -> Made:
    def make(batch: int) -> tuple[Callable, tuple]:
        model = _module("timm").create_model(name, pretrained=False, num_classes=10)
        return model, (torch.randn(batch, *model.default_cfg.get("input_size", (3, 224, 224))),)

    return make


def _vit(name: str) -> Made:
    cls, options = VIT[name]

    def make(batch: int) -> tuple[Callable, tuple]:
        size = options.get("image_size", options.get("img_size", 64))
        model = getattr(_module(f"vit_pytorch.{name}"), cls)(**options)
        return model, (torch.randn(batch, 3, size, size),)

    return make


def _decoder(name: str) -> Made:
    def make(batch: int) -> tuple[Callable, tuple]:
        x = _module("x_transformers")
        layers = x.Decoder(dim=16, depth=2, heads=2, **DECODERS[name])
        model = x.TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=layers)
        return model, (torch.randint(0, 20, (batch, 8)),)

    return make


def _convolution(name: str) -> Made:
    def make(batch: int) -> tuple[Callable, tuple]:
        edges = torch.tensor([[0, 1, 2, 3, 4, 5, 1, 2], [1, 2, 3, 4, 5, 0, 0, 5]])
        model = CONVOLUTIONS[name](_module("torch_geometric.nn"))
        return model, (torch.randn(4 + batch, 4), edges)

    return make


def _kernel(name: str) -> Made:
    def make(batch: int) -> tuple[Callable, tuple]:
        kernel = getattr(_module("gpytorch.kernels"), name)()
        return lambda x: kernel(x).to_dense(), (torch.randn(3 + batch, 2),)

    return make


def _process(batch: int) -> tuple[Callable, tuple]:
    g = _module("gpytorch")

    class Process(g.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any):
            super().__init__(x, y, likelihood)
            self.mean = g.means.ConstantMean()
            self.kernel = g.kernels.ScaleKernel(g.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            return g.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 10 + batch)
    y = torch.sin(x * 6)
    likelihood = g.likelihoods.GaussianLikelihood()
    model = Process(x, y, likelihood).train()
    loss = g.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return lambda x, y: -loss(model(x), y), (x, y)


def _images(call: Callable[[Any, torch.Tensor], Any]) -> Made:
    def make(batch: int) -> tuple[Callable, tuple]:
        kornia = _module("kornia")
        return lambda x: call(kornia, x), (torch.rand(batch, 3, 8, 8),)

    return make


IMAGES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "gaussian_blur2d": lambda k, x: k.filters.gaussian_blur2d(x, (3, 3), (1.5, 1.5)),
    "sobel": lambda k, x: k.filters.sobel(x),
    "median_blur": lambda k, x: k.filters.median_blur(x, (3, 3)),
    "canny": lambda k, x: k.filters.canny(x)[0],
    "rgb_to_hsv": lambda k, x: k.color.rgb_to_hsv(x),
    "rgb_to_lab": lambda k, x: k.color.rgb_to_lab(x),
    "rotate": lambda k, x: k.geometry.rotate(x, torch.tensor([30.0] * x.shape[0])),
    "resize": lambda k, x: k.geometry.resize(x, (6, 7)),
    "equalize": lambda k, x: k.enhance.equalize(x),
    "adjust_hue": lambda k, x: k.enhance.adjust_hue(x, 0.2),
    "dilation": lambda k, x: k.morphology.dilation(x, torch.ones(3, 3)),
    "harris_response": lambda k, x: k.feature.harris_response(x[:, :1]),
    "ssim": lambda k, x: k.metrics.ssim(x, x * 0.9, 5),
    "total_variation": lambda k, x: k.losses.total_variation(x),
}


def _metric(name: str) -> Made:
    def make(batch: int) -> tuple[Callable, tuple]:
        metric = getattr(_module("torchmetrics.functional"), name)
        given = torch.rand(8 + batch, 3).softmax(-1), torch.randint(0, 3, (8 + batch,))
        return lambda p, t: metric(p, t, task="multiclass", num_classes=3), given

    return make


def _network(path: str, shape: tuple[int, ...], *args: Any, **options: Any) -> Made:
    def make(batch: int) -> tuple[Callable, tuple]:
        owner, _, name = path.rpartition(".")
        return getattr(_module(owner), name)(*args, **options), (torch.randn(batch, *shape),)

    return make


def _einops(batch: int) -> tuple[Callable, tuple]:
    e = _module("einops")

    def f(x: torch.Tensor) -> Any:
        y = e.rearrange(x, "b c h w -> b (c h) w")
        z = e.reduce(e.repeat(y, "b n w -> b n w k", k=2), "b n w k -> b n", "max")
        return e.einsum(y, y, "b i w, b j w -> b i j"), z

    return f, (torch.randn(batch, 3, 4, 6),)


def _spherical(batch: int) -> tuple[Callable, tuple]:
    o3 = _module("e3nn.o3")
    return lambda v: o3.spherical_harmonics([0, 1, 2], v, True), (torch.randn(batch, 3),)


def _flow(batch: int) -> tuple[Callable, tuple]:
    t = _module("nflows.transforms")
    layers = [t.ReversePermutation(3), t.MaskedAffineAutoregressiveTransform(3, 8)]
    base = _module("nflows.distributions").StandardNormal([3])
    flow = _module("nflows.flows").Flow(t.CompositeTransform(layers), base)
    return flow.log_prob, (torch.randn(batch, 3),)


def _ode(batch: int) -> tuple[Callable, tuple]:
    odeint = _module("torchdiffeq").odeint
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

    def f(y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return odeint(lambda t, y: model(y), y, t, method="rk4")

    return f, (torch.randn(batch, 2), torch.linspace(0, 1, 4))


def _adapted(batch: int) -> tuple[Callable, tuple]:
    peft = _module("peft")
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    config = peft.LoraConfig(target_modules=["0", "2"], r=2, lora_dropout=0.0)
    return peft.get_peft_model(model, config), (torch.randn(batch, 8),)


_UNET = {
    "sample_size": 8, "layers_per_block": 1, "block_out_channels": (8, 8), "norm_num_groups": 2,
    "attention_head_dim": 4, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
}  # fmt: skip


def _diffusion(batch: int) -> tuple[Callable, tuple]:
    model = _module("diffusers").UNet2DModel(in_channels=3, out_channels=3, **_UNET)
    return model, (torch.randn(batch, 3, 8, 8), torch.arange(batch), None, False)


_MONAI = (2, 1, 2)
PROGRAMS: dict[str, dict[str, Made]] = {
    "timm": {name: _timm(name) for name in TIMM},
    "vit_pytorch": {name: _vit(name) for name in VIT},
    "x_transformers": {name: _decoder(name) for name in DECODERS},
    "torch_geometric": {name: _convolution(name) for name in CONVOLUTIONS},
    "gpytorch": {
        **{name: _kernel(name) for name in ("RBFKernel", "MaternKernel", "PeriodicKernel")},
        "marginal likelihood": _process,
    },
    "kornia": {name: _images(call) for name, call in IMAGES.items()},
    "torchmetrics": {
        name: _metric(name) for name in ("accuracy", "f1_score", "confusion_matrix", "auroc")
    },
    "monai": {
        "UNet": _network("monai.networks.nets.UNet", (1, 16, 16), *_MONAI, (4, 8), (2,)),
        "SegResNet": _network("monai.networks.nets.SegResNet", (1, 16, 16), 2, 8, 1, 2),
        "AttentionUnet": _network(
            "monai.networks.nets.AttentionUnet", (1, 16, 16), *_MONAI, (4, 8), (2,)
        ),
    },
    "einops": {"functions": _einops},
    "e3nn": {
        "Linear": _network("e3nn.o3.Linear", (10,), "4x0e+2x1o", "3x0e+1x1o"),
        "spherical_harmonics": _spherical,
    },
    "nflows": {"log_prob": _flow},
    "torchdiffeq": {"rk4": _ode},
    "peft": {"lora": _adapted},
    "diffusers": {"UNet2DModel": _diffusion},
}


class NotInstalledError(Exception):
    """The library of an entry is not there."""


def _why_not(library: str) -> str:
    """What is in the way of a library; nothing if it is there."""
    try:
        _module(library)
    except ImportError as error:
        return f"{library} is not installed ({error}): its programs are left out"
    return ""


def libraries() -> list[str]:
    """Entries; of a library that is not installed one, which says so."""
    found: list[str] = []
    for library, programs in PROGRAMS.items():
        names = list(programs)
        if _why_not(library):
            names = [""]
        elif library == "timm":
            names += _module("timm").list_models("test_*")
        found += [f"{library}:{name}" for name in names]
    return found


def library_programs(entry: str) -> Iterator[tuple[str, Program]]:
    library, _, name = entry.partition(":")
    if not name:
        raise NotInstalledError(_why_not(library))
    make = PROGRAMS[library].get(name) or _timm(name)
    torch.manual_seed(0)
    function, args = make(2)
    if not isinstance(function, nn.Module):
        yield "call", Program(function, args, {})
        return
    yield "eval", Program(function.eval(), args, {})
    torch.manual_seed(0)
    function, args = make(3)
    yield "train", Program(function.train(), args, {}, grad=True)
