"""Tensors from outside: graph inputs, the fakes that stand for them, their metadata."""

from __future__ import annotations

import re
from typing import Any

import torch

from refcompiler.ambient import outside_transformations
from refcompiler.capture.guarding import Guarding
from refcompiler.capture.kinds import is_alien, is_outdated
from refcompiler.capture.signals import Break
from refcompiler.guards.kinds import TensorMeta, metadata, separate
from refcompiler.guards.parameters import is_new
from refcompiler.guards.sources import Source

_NO_WORD = re.compile(r"[\W_]+")


def _input_name(source: Source) -> str:
    text = _NO_WORD.sub("_", str(source)).strip("_")
    if not text or text[0].isdigit():
        text = f"input_{text}"
    return text[-60:].lstrip("_0123456789") or "input"


class Inputs(Guarding):
    """What the graph is given."""

    def tensor_input(self, value: torch.Tensor, source: Source) -> Any:
        known = self.inputs.get(id(value))
        if known is not None:
            fake = known[2]
            self.guard("SAME", source, self.fakes_of_inputs[id(fake)])
            return fake
        kind = type(value)
        if kind is not torch.Tensor and kind is not torch.nn.Parameter:
            return self.subclass_input(value, source)
        return self.plain_input(value, source)

    def subclass_input(self, value: torch.Tensor, source: Source) -> Any:
        raise NotImplementedError

    @staticmethod
    def input_name(source: Source) -> str:
        return _input_name(source)

    def plain_input(self, value: torch.Tensor, source: Source) -> Any:
        """A tensor whose operations are torch's own."""
        with torch._C.DisableTorchFunction():
            if is_alien(value):
                raise Break("tensor-kind", f"{source} has layout {value.layout}")
            if torch._C._functorch.is_functorch_wrapped_tensor(value):
                raise Break("higher-order", f"{source} belongs to a function transformation")
            if is_outdated(value):
                raise Break("tensor-kind", f"{source} is a view older than a write to its base")
            fake = self.sizes.tensor(value, source)
            if fake is None:
                with outside_transformations():
                    fake = self.recorder.fake_mode.fake_of(value)
                self.guard("TENSOR", source, TensorMeta.of(value))
        if self.arrays:
            self.check_apart(value, source)
        return self.enter_input(value, source, fake)

    def enter_input(self, value: torch.Tensor, source: Source, fake: Any) -> Any:
        """The graph gets ``value``, which is at ``source``, and ``fake`` stands for it."""
        node = self.recorder.add_input(_input_name(source), fake)
        is_parameter = isinstance(value, torch.nn.Parameter)
        node.meta["refcompiler_static"] = is_parameter and not is_new(source)
        self.inputs[id(value)] = (value, source, fake)
        self.input_order.append(id(value))
        self.fakes_of_inputs[id(fake)] = source
        return fake

    def check_apart(self, value: torch.Tensor, source: Source) -> None:
        """A graph knows of shared memory by shared storages, which arrays do not have."""
        with torch._C.DisableTorchFunction():
            apart = separate(value, *[known for known, _, _ in self.inputs.values()])
        if not apart:
            raise Break("external-object", f"{source} lies over the memory of another input")

    def read_metadata(self, name: str, fake: Any) -> Any:
        """Metadata that the TENSOR guard leaves out, because programs seldom read it."""
        real = self.real_of(fake)
        if real is not None:
            if name == "retains_grad" and id(fake) in self.retained:
                return True
            found = metadata(real, name)
            self.guard("METADATA", self.fakes_of_inputs[id(fake)], (name, found))
            return found
        unknown = name in ("is_shared", "is_pinned")
        if unknown or (name == "is_inference" and self._given_inference()):
            raise Break("operation-not-modelled", f"{name} of a result")
        for real, source, _ in list(self.inputs.values()):  # what a view inherits
            self.guard("METADATA", source, (name, metadata(real, name)))
        return metadata(fake, name)

    def _given_inference(self) -> bool:
        """Whether an input comes from inference mode; if none does, fakes answer for results."""
        found = [
            (source, metadata(real, "is_inference")) for real, source, _ in self.inputs.values()
        ]
        for source, answer in found:
            self.guard("METADATA", source, ("is_inference", answer))
        return any(answer for _, answer in found)

    def real_of(self, fake: Any) -> torch.Tensor | None:
        """The real tensor of a fake that is a graph input."""
        source = self.fakes_of_inputs.get(id(fake))
        return None if source is None else self.lazies[source].value
