"""Convolutions whose windows do not overlap, as products of matrices.

What such a window covers, with its channels, is a row of one matrix, and the weights of a channel
of the result a column of the other. Where a window is one position, the image with its channels
last is that matrix already; else it is one copy. The gradients are products of the same matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.fx import Node

Call = Callable[..., Node]  # adds a call of an operator to the graph
_aten = torch.ops.aten
_END = (1 << 63) - 1


class Patches:
    """One convolution of an image ``x`` as ``call`` writes it; ``laid(x)`` has channels last."""

    def __init__(
        self, call: Call, laid: Callable[[Node], Node], x: Node, weight: Node, stride: Sequence[int]
    ):
        self.call, self.laid, self.x, self.weight = call, laid, x, weight
        image, window = x.meta["val"].shape, weight.meta["val"].shape
        self.batch, self.channels, *sizes = image
        self.out, _, *self.window = window
        self.count = len(sizes)
        #: What of each dimension the windows reach: up to where, and each how manyth.
        self.parts = [
            (_END, step) if size == 1 else (n // size * size, 1)
            for n, size, step in zip(sizes, self.window, stride, strict=True)
        ]
        self.places = [
            -(-n // step) if size == 1 else n // size
            for n, size, step in zip(sizes, self.window, stride, strict=True)
        ]
        self.rows = self.batch * math.prod(self.places)
        self.terms = self.channels * math.prod(self.window)

    def result(self, bias: Node | None) -> Node:
        """The convolution's, with its channels last."""
        factors = self._image(), self.call(_aten.t.default, self._weights())
        if bias is None:
            return self._channels_second(self.call(_aten.mm.default, *factors), self.out)
        return self._channels_second(self.call(_aten.addmm.default, bias, *factors), self.out)

    def gradients(self, gradient: Node, wanted: Sequence[bool]) -> list[Node | None]:
        """Those of image, weights and bias, given that of the result."""
        rows = self._rows(gradient, self.out)
        found: list[Node | None] = [None, None, None]
        if wanted[0]:
            found[0] = self._gradient_of_image(self.call(_aten.mm.default, rows, self._weights()))
        if wanted[1]:
            turned = self.call(_aten.t.default, rows)
            product = self.call(_aten.mm.default, turned, self._image())
            shape = [self.out, self.channels, *self.window]
            found[1] = self.call(_aten.view.default, product, shape)
        if wanted[2]:
            found[2] = self.call(_aten.sum.dim_IntList, rows, [0])
        return found

    # -- the two matrices ------------------------------------------------------------------------

    def _image(self) -> Node:
        x = self.x
        for d, (end, step) in enumerate(self.parts):
            if end != x.meta["val"].shape[2 + d] and (end, step) != (_END, 1):
                x = self.call(_aten.slice.Tensor, x, 2 + d, 0, end, step)
        if math.prod(self.window) == 1:
            return self._rows(x, self.channels)
        split = [n for pair in zip(self.places, self.window, strict=True) for n in pair]
        x = self.call(_aten.view.default, x, [self.batch, self.channels, *split])
        x = self.call(_aten.permute.default, x, self._order())
        x = self.call(_aten.clone.default, x, memory_format=torch.contiguous_format)
        return self.call(_aten.view.default, x, [self.rows, self.terms])

    def _order(self) -> list[int]:
        """From channels, then places and windows in turns, to places, channels, windows."""
        axes = range(2, 2 + 2 * self.count)
        return [0, *axes[::2], 1, *axes[1::2]]

    def _weights(self) -> Node:
        whole = self.weight.meta["val"].is_contiguous()
        weight = self.weight
        if not whole:
            form = torch.contiguous_format
            weight = self.call(_aten.clone.default, weight, memory_format=form)
        return self.call(_aten.view.default, weight, [self.out, self.terms])

    # -- images as matrices ----------------------------------------------------------------------

    def _rows(self, image: Node, channels: int) -> Node:
        image = self.laid(image)
        last = self.call(_aten.permute.default, image, [0, *range(2, 2 + self.count), 1])
        return self.call(_aten.view.default, last, [self.rows, channels])

    def _channels_second(self, rows: Node, channels: int) -> Node:
        image = self.call(_aten.view.default, rows, [self.batch, *self.places, channels])
        return self.call(
            _aten.permute.default, image, [0, 1 + self.count, *range(1, 1 + self.count)]
        )

    def _gradient_of_image(self, rows: Node) -> Node:
        if math.prod(self.window) == 1:
            image = self._channels_second(rows, self.channels)
        else:
            shape = [self.batch, *self.places, self.channels, *self.window]
            image = self.call(_aten.view.default, rows, shape)
            back = [0] * len(shape)
            for n, d in enumerate(self._order()):
                back[d] = n
            image = self.call(_aten.permute.default, image, back)
            image = self.call(_aten.clone.default, image, memory_format=torch.contiguous_format)
            sizes = [n * m for n, m in zip(self.places, self.window, strict=True)]
            image = self.call(_aten.view.default, image, [self.batch, self.channels, *sizes])
        for d, (end, step) in reversed([*enumerate(self.parts)]):
            size = list(image.meta["val"].shape)
            size[2 + d] = self.x.meta["val"].shape[2 + d]
            if size[2 + d] != image.meta["val"].shape[2 + d]:
                image = self.call(_aten.slice_backward.default, image, size, 2 + d, 0, end, step)
        return image


def is_by_patches(node: Node, first: int) -> bool:
    """Whether the windows of a convolution do not overlap: they are one position each, or stand
    side by side. ``first``: where among the arguments its image is."""
    image, weight = (cast(Node, a).meta["val"] for a in node.args[first : first + 2])
    behind = node.args[first + 3 :]  # the bias is one, or its sizes are
    stride, padding, dilation, transposed, _, groups = cast(Sequence[Any], behind[:6])
    windows = weight.shape[2:]
    if image.dtype is not torch.float32 or transposed or groups != 1 or any(padding):
        return False
    if math.prod(windows) == 1:
        return True
    apart = all(size == step for size, step in zip(windows, stride, strict=True))
    return apart and all(n == 1 for n in dilation) and image.is_contiguous()
