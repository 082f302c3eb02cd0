"""One row per backend that can be asked for by name, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specs.table import Table


@dataclass(frozen=True)
class Backend:
    """``origin``: whose code it is: "here"; "installed", where a package registers it by itself;
    "torch", from torch's registry. ``module`` is what has to be importable, ``install`` what says
    ``pip install`` before it. ``devices``: where it runs. ``untried`` says why no test runs it.
    """

    name: str
    doc: str
    origin: Literal["here", "installed", "torch"] = "here"
    module: str = ""
    install: str = ""
    devices: str = "CPU, GPU"
    untried: str = ""


_NO_HARDWARE = "needs hardware that this project's machines do not have"

BACKENDS: Table[Backend] = Table(
    "backends",
    [
        Backend("fastpath", "Fused kernels: numba on the CPU, Triton on the GPU.", "installed"),
        Backend("eager", "The captured graph as it is: what capture alone does."),
        Backend("aot_eager", "Functional ATen graphs of forward and backward, as they are."),
        Backend(
            "aot_eager_decomp_partition",
            "As aot_eager, with core decompositions and the min-cut partitioner.",
        ),
        Backend("reference", "Node by node, never fused, optionally in float64."),
        Backend("inductor", "torch's own compiler, by its public entry."),
        Backend("cudagraphs", "Device graphs over ahead-of-time autograd.", "installed"),
        Backend(
            "onnxrt",
            "ONNX Runtime over torch.onnx.export; gradients run as ATen graphs.",
            "here",
            "onnxruntime",
            "onnxruntime onnx onnxscript",
            "CPU",
        ),
        Backend(
            "openvino",
            "OpenVINO in full precision; gradients run as ATen graphs.",
            "here",
            "openvino",
            "openvino",
            "CPU",
        ),
        Backend(
            "tvm",
            "Apache TVM's relax, for LLVM; gradients run as ATen graphs.",
            "here",
            "tvm",
            "apache-tvm",
            "CPU",
        ),
        Backend(
            "tensorrt",
            "Torch-TensorRT's own backend.",
            "installed",
            "torch_tensorrt",
            "torch-tensorrt",
            "GPU",
            _NO_HARDWARE,
        ),
        Backend(
            "ipex",
            "Intel's extension of torch, whose last release is for torch 2.8.",
            "installed",
            "intel_extension_for_pytorch",
            "intel-extension-for-pytorch",
            "CPU, Intel's GPUs",
            "there is none for the versions of torch that this project supports",
        ),
        Backend(
            "openxla",
            "torch_xla, over ahead-of-time autograd.",
            "torch",
            "torch_xla",
            "torch-xla",
            "TPU, CPU",
            _NO_HARDWARE,
        ),
    ],
)
