"""Images with their channels last, where convolutions read them.

The library's convolutions read and write images whose channels lie side by side; of others they
make such ones first, in each call, and turn the result back. So a convolution is given its image
and its weights with their channels last, whatever the caller's are, and what is computed of its
result elementwise, by windows or by channels lies as that does, up to the next convolution. What
the caller gets lies as in eager, and so does what an operator reads for which the order of elements
in memory may matter: those that draw numbers, and all that are not named here.

The graph stays one that runs as it is; each node's fake result is asked for anew where those that
it is computed from lie otherwise than before.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node

from fastpath.making import asked, called
from fastpath.patches import Patches, is_by_patches
from refcompiler.aot.draws import draws
from specs.strides import viewable

_aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_CONVOLUTIONS = {  # which of the arguments are laid out, and where the image is among them
    _aten.convolution.default: ((0, 1), 0),
    _aten.convolution_backward.default: ((0, 1, 2), 1),
}
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # that the library takes
_RESHAPES = {_aten.view.default, _aten._unsafe_view.default}
_NONE: Mapping[str, Any] = MappingProxyType({})
#: Besides elementwise operators, what reads an image of any layout and says so of its result.
_ANY_LAYOUT = {
    getattr(_aten, name)
    for name in (
        "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d "
        "_adaptive_avg_pool3d_backward adaptive_max_pool2d addmm alias all amax amin any "
        "avg_pool2d_backward avg_pool2d avg_pool3d_backward avg_pool3d bmm cat clone "
        "constant_pad_nd convolution_backward convolution detach expand flip "
        "max_pool2d_with_indices_backward max_pool2d_with_indices "
        "max_pool3d_with_indices_backward max_pool3d_with_indices mean mm "
        "_native_batch_norm_legit_functional _native_batch_norm_legit "
        "_native_batch_norm_legit_no_training native_group_norm native_layer_norm permute "
        "pixel_shuffle pixel_unshuffle select slice split_with_sizes split squeeze sum _to_copy "
        "transpose t unbind _unsafe_view unsqueeze upsample_bilinear2d "
        "upsample_nearest2d_backward upsample_nearest2d var_mean var view "
    ).split()
}


def channels_last(graph: GraphModule, outputs: int | None = None) -> int:
    """Rewrite ``graph`` (functional ATen, with fakes); returns how many convolutions are given
    something that lies otherwise than before. Where sizes are symbols, these are convolutions whose
    result lies as their image does whichever kernel of ATen's computes it, as that is chosen by
    sizes too; and none is turned into a product.

    Its first ``outputs`` outputs (default: all) lie as before; the others as is best, which their
    nodes' ``meta["val"]`` says.
    """
    if not any(map(_takes, graph.graph.nodes)) or _without_strides(graph.graph):
        return 0
    count = _Images(graph.graph).run(outputs)
    graph.recompile()
    return count


def both_channels_last(forward: GraphModule, backward: GraphModule, outputs: int) -> int:
    """The same for two graphs, of which the first gives the second what is behind ``outputs``; for
    none where sizes are symbols."""
    parts = forward.graph, backward.graph
    if not any(map(_takes, (n for part in parts for n in part.nodes))) or any(map(_unknown, parts)):
        return 0
    count = channels_last(forward, outputs)
    images = _Images(backward.graph)
    (output,) = forward.graph.find_nodes(op="output")
    saved = [n for n in cast(Sequence[Any], output.args[0])[outputs:] if _lies(n.meta["val"])]
    holders = [n for n in backward.graph.find_nodes(op="placeholder") if _lies(n.meta["val"])]
    for holder, node in zip(holders, saved, strict=False):  # the others are tangents
        old, new = holder.meta["val"], node.meta["val"]
        if _lies(old) != _lies(new):
            images.before[holder], holder.meta["val"] = old, new
    count += images.run()
    backward.recompile()
    return count


def _takes(node: Node) -> bool:
    """Whether ``node`` is a convolution that the library computes."""
    found = _CONVOLUTIONS.get(node.target)
    if found is None or not torch._C._get_mkldnn_enabled():
        return False
    image, weight = (node.args[found[1] + n] for n in range(2))
    assert isinstance(image, Node) and isinstance(weight, Node)
    values = image.meta["val"], weight.meta["val"]
    if any(map(_sized_by_calls, values)):
        dilation, transposed = cast(Any, node.args)[5:7]
        plain = node.target is _aten.convolution.default and not transposed and set(dilation) == {1}
        if not plain or values[0].dim() != 4 or values[0].shape[1] == 1:
            return False
    return all(
        v.dim() in _FORMATS
        and v.dtype in _DTYPES
        and all(n > 0 for n in v.shape if isinstance(n, int))
        for v in values
    )


def _sized_by_calls(value: torch.Tensor) -> bool:
    return value._has_symbolic_sizes_strides


def _without_strides(graph: Graph) -> bool:
    values = (t for node in graph.nodes for t in _tensors(node.meta.get("val")))
    return any(t.layout is not torch.strided for t in values)


def _unknown(graph: Graph) -> bool:
    """Whether there are tensors whose sizes only a call knows, or that have no strides."""
    values = (t for node in graph.nodes for t in _tensors(node.meta.get("val")))
    return _without_strides(graph) or any(map(_sized_by_calls, values))


def _tensors(value: Any) -> list[torch.Tensor]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [v for v in values if isinstance(v, torch.Tensor)]


def _lies(value: Any) -> list[tuple[Any, ...]]:
    """Strides; those that calls choose by what they are computed from, of which nothing is asked:
    an answer would hold for some calls alone."""
    return [tuple(n if isinstance(n, int) else str(n) for n in t.stride()) for t in _tensors(value)]


class _Images:
    """One graph. ``before``: what nodes gave that now give it in another order."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.before: dict[Node, Any] = {}
        self.copies: dict[tuple[Node, Any], Node] = {}
        self.made: set[Node] = set()  # in the place of others, which were no views
        self.replaced: list[Node] = []

    def run(self, outputs: int | None = None) -> int:
        count = 0
        for node in list(self.graph.nodes):
            if node in self.replaced:
                continue
            with self.graph.inserting_before(node):
                if node.op == "output":
                    self._return(node, outputs)
                elif node.op == "call_function":
                    count += self._visit(node)
        for node in reversed(self.replaced):
            self.graph.erase_node(node)
        return count

    def _visit(self, node: Node) -> bool:
        """Whether ``node`` is a convolution that is given something else than before."""
        given = node.args
        taken = _takes(node)
        known = taken and not any(map(_sized_by_calls, map(_value, node.all_input_nodes)))
        if known and is_by_patches(node, _CONVOLUTIONS[node.target][1]):
            self._multiply(node)
            return True
        if taken:
            chosen, image = _CONVOLUTIONS[node.target]
            form = _FORMATS[_value(node.args[image]).dim()]
            node.args = tuple(
                self._laid(a, form) if n in chosen else a for n, a in enumerate(node.args)
            )
        elif not any(n in self.before for n in node.all_input_nodes):
            return False
        elif not _any_layout(node) or not self._viewable(node):
            for source in node.all_input_nodes:
                node.replace_input_with(source, self._as_before(source))
            return False
        if node.args != given or any(n in self.before for n in node.all_input_nodes):
            old = node.meta["val"]
            new = asked(node.target, node.args, node.kwargs)
            other = _lies(old) != _lies(new)
            if other and any(_sized_by_calls(t) and not _order_of(t) for t in _tensors(old)):
                for source in node.all_input_nodes:
                    node.replace_input_with(source, self._as_before(source))
                return False
            node.meta["val"] = new
            if other:
                self.before[node] = old
        return taken and node.args != given

    def _multiply(self, node: Node) -> None:
        """A convolution as a product of matrices, its gradients as others."""
        args = cast(Any, node.args)
        backward = node.target is _aten.convolution_backward.default
        image, weight, third, stride = args[1:5] if backward else args[:4]

        def laid(x: Node) -> Node:
            return cast(Node, self._laid(x, _FORMATS[_value(x).dim()]))

        patches = Patches(self._call, laid, image, weight, stride)
        self.replaced.append(node)
        if not backward:
            self._replace(node, patches.result(third))
            return
        wanted = [any(user.args[1] == n for user in node.users) for n in range(3)]
        found = patches.gradients(args[0], wanted)
        for user in list(node.users):
            place = cast(int, user.args[1])
            self.replaced.append(user)
            made = found[place]
            assert made is not None
            self._replace(user, made)

    def _replace(self, node: Node, made: Node) -> None:
        if _lies(node.meta["val"]) != _lies(made.meta["val"]):
            self.before[made] = node.meta["val"]
        self.made.add(made)
        node.replace_all_uses_with(made)

    def _viewable(self, node: Node) -> bool:
        """Whether ``node`` is no view that needs what it shows as it lay before."""
        if node.target not in _RESHAPES:
            return True
        source = _value(node.args[0])
        if _sized_by_calls(source) or _sized_by_calls(node.meta["val"]):
            return False
        return viewable(source.shape, source.stride(), node.meta["val"].shape)

    def _laid(self, source: Any, form: torch.memory_format) -> Any:
        """``source`` in a format of memory."""
        value = _value(source)
        if _sized_by_calls(value):
            there = _lies(value) == _lies(torch.empty_like(value, memory_format=form))
        else:
            there = value.is_contiguous(memory_format=form)
        if there:
            return source
        return self._made(source, form, _aten.clone.default, (source,), {"memory_format": form})

    def _as_before(self, node: Node) -> Node:
        """``node`` as it lay before. A view is made of what it is a view of, so that what shares
        memory still does."""
        if not self._other(node):
            return node
        source = self._viewed(node)
        if source is not None:
            args = (self._as_before(source), *node.args[1:])
            return self._made(node, "view", node.target, args, dict(node.kwargs))
        before = self.before[node]
        if _sized_by_calls(before):
            order = _order_of(before)
            turned = self._made(node, "turned", _aten.permute.default, (node, order))
            form = {"memory_format": torch.contiguous_format}
            whole = self._made(node, "whole", _aten.clone.default, (turned,), form)
            back = sorted(range(len(order)), key=order.__getitem__)
            return self._made(node, "before", _aten.permute.default, (whole, back))
        places = [*before.shape], [*before.stride()]
        empty = self._made(node, "memory", _aten.new_empty_strided.default, (node, *places))
        return self._made(node, "before", _aten.copy.default, (empty, node))

    def _viewed(self, node: Node) -> Node | None:
        """What ``node``, or what it is taken from, is a view of."""
        source = node.args[0] if node.args else None
        if node in self.made or not isinstance(source, Node):
            return None
        shows = source if node.target is operator.getitem else node
        return source if _is_view(shows.target) else None

    def _other(self, node: Node) -> bool:
        """Whether ``node``, or what it is a view of, lies otherwise than before."""
        source = self._viewed(node)
        return node in self.before or (source is not None and self._other(source))

    def _made(
        self, source: Node, how: Any, target: Any, args: Any, kwargs: Mapping[str, Any] = _NONE
    ) -> Node:
        """A call, made of ``source`` once."""
        known = self.copies.get((source, how))
        if known is None:
            known = self.copies[source, how] = self._call(target, *args, **kwargs)
        return known

    def _call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        return called(self.graph, target, args, kwargs)

    def _return(self, node: Node, outputs: int | None) -> None:
        results = [*cast(Sequence[Any], node.args[0])]
        for n, result in enumerate(results[:outputs]):
            if isinstance(result, Node):
                results[n] = self._as_before(result)
        node.args = (tuple(results),)


def _value(node: Any) -> torch.Tensor:
    found: torch.Tensor = node.meta["val"]
    return found


def _order_of(value: torch.Tensor) -> list[int]:
    """The dimensions from the outermost to the innermost in memory, if it lies one element behind
    the other in such an order that can be told; else none."""
    for order in itertools.permutations(range(value.dim())):
        turned = value.permute(order)
        if _lies(turned) == _lies(torch.empty_like(turned, memory_format=torch.contiguous_format)):
            return [*order]
    return []


def _any_layout(node: Node) -> bool:
    """Whether ``node`` gives the same values, however what it reads lies in memory."""
    target = node.target
    if target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable or draws(target):
        return False
    if target is _aten.view.dtype:
        return False
    return torch.Tag.pointwise in target.tags or target.overloadpacket in _ANY_LAYOUT


def _is_view(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.is_view
