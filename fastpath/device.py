"""Which device a graph runs on, and what compiles its kernels there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fastpath.gpu.lt import Problem
from fastpath.ir.program import Call
from fastpath.ir.size import Assumptions
from fastpath.schedule.kernel import Kernel
from fastpath.target import CPU, GPU, Target
from refcompiler.aot.inputs import Unsupported


@dataclass(frozen=True)
class Together:
    """Stands for one launch of several kernels, which have these names."""

    kernels: Sequence[str]


class Device:
    """The device that a graph's kernels run on; ``target`` is what scheduling knows of it."""

    def __init__(self, device: torch.device):
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self.device = device
        self.target: Target = CPU if self.is_cpu else GPU

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    def compile_kernel(self, kernel: Kernel, sizes: Assumptions) -> tuple[Any, str]:
        """A callable of the addresses of ``kernel.buffers``, in order, and the kernel's source.

        It is one only when it is :meth:`loaded`: all of a program are compiled together. What a
        kernel relies on of sizes that calls choose is added to ``sizes``.
        """
        later: Any
        if self.is_cpu:
            from fastpath.cpu import compile as cpu

            later = cpu.Later(kernel)
            return later, later.printed.source
        from fastpath.gpu.compile import Later

        later = Later(kernel, self.device.index, sizes)
        return later, later.printed.source

    def by_classes(self, way: Any, left: Any, right: Any) -> tuple[Any, str]:
        """What multiplies by classes of rows once it is :meth:`loaded`, and its kernel's source."""
        from fastpath.gpu.classes import ByClasses

        later = ByClasses(way, left, right, self.device)
        return later, later.printed.source

    def products(self, calls: Sequence[Call]) -> Mapping[Call, Any]:
        """Those of ``calls`` that are computed without ATen: :class:`~fastpath.cpu.products.Known`
        on a CPU, else :class:`~fastpath.gpu.vendor.Direct`."""
        if self.is_cpu:
            from fastpath.cpu.products import products_of

            return products_of(calls)
        from fastpath.gpu.vendor import products_of as direct_products_of

        return direct_products_of(calls, self.device.index)

    def adds_residuals(self, problem: Problem) -> bool:
        """Whether the vendor's library computes a product that a residual is added to; on a GPU."""
        from fastpath.gpu.vendor import available

        return available(problem, self.device.index)

    def finder(self, kernel: Kernel) -> Callable[..., None]:
        """The same kernel as it leaves word of a position that there is not; on a CPU only."""
        from fastpath.cpu import compile as cpu

        return cpu.finder(kernel)

    def loaded(self, names: Mapping[str, Any]) -> dict[str, Callable[..., None]]:
        """The callables of those of ``names`` that are kernels and cannot be called yet."""
        if self.is_cpu:
            from fastpath.cpu import compile as cpu

            together = {n: v.kernels for n, v in names.items() if isinstance(v, Together)}
            return cpu.loaded(names, together)
        from fastpath.gpu import compile as gpu

        return gpu.loaded(names)

    def entered(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, with this device as the current one, to which kernels are launched."""
        if self.is_cpu or torch.cuda.device_count() == 1:
            return call
        index, current = self.device.index, torch.cuda.current_device

        @functools.wraps(call)
        def enter(*inputs: Any) -> Any:
            if current() == index:
                return call(*inputs)
            with torch.cuda.device(index):
                return call(*inputs)

        return enter


def device_of(graph: torch.fx.GraphModule) -> Device:
    """The one device beside the CPU that the graph computes on, or the CPU.

    Raises :class:`Unsupported` for a device without kernels, for two of them in one graph, and for
    sizes that are no numbers yet.
    """
    nodes = graph.graph.nodes
    tensors = [t for node in nodes for t in _tensors(node.meta.get("val"))]
    sizes = [n for t in tensors for n in t.shape if isinstance(n, torch.SymInt)]
    if not all(n.node.has_hint() for n in sizes) or any(map(_asserts_what_is_known, nodes)):
        raise Unsupported("sizes that depend on data")
    found = {t.device for t in tensors}
    others = {device for device in found if device.type not in ("cpu", "meta")}
    for device in others:
        if device.type != "cuda":
            raise Unsupported(f"no kernels exist for {device.type}: only for the CPU and for CUDA")
    if len(others) > 1:
        raise Unsupported(f"one graph on several devices ({', '.join(map(str, others))})")
    if others and not torch.cuda.is_available():
        raise Unsupported("a graph for CUDA, which this machine has not")
    return Device(*others) if others else Device(torch.device("cpu"))


def _asserts_what_is_known(node: torch.fx.Node) -> bool:
    """Whether data are to be as sizes were taken to be: kernels would take them for constants."""
    if node.target is not torch.ops.aten._assert_scalar.default:
        return False
    condition = node.args[0]
    if isinstance(condition, torch.fx.Node):
        condition = condition.meta["val"]
    known = condition.node.expr if isinstance(condition, torch.SymBool) else condition
    return known in (True, False)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
