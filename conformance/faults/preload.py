"""Imports what each process would import anew, before the first of them is forked."""

from __future__ import annotations

import importlib

_EVERY = (
    "networkx",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.fx.experimental.proxy_tensor",
    "refcompiler.aot",
    "refcompiler.aot.partition",
    "refcompiler.runtime.api",
    "conformance.faults.experiment",
)
_MORE = {
    "fastpath": ("fastpath.compiler", "fastpath.wrapper", "fastpath.cpu.compile"),
    "inductor": ("torch._inductor.compile_fx",),
}


def modules(backend: str) -> tuple[str, ...]:
    return (*_EVERY, *_MORE.get(backend, ()))


def preload(backend: str) -> None:
    for name in modules(backend):
        importlib.import_module(name)
