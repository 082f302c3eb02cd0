"""Nodes that do something besides computing their results, and so stay in a graph."""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.aot.draws import drawing


def checks(target: Any) -> bool:
    """Whether a node's target only looks at its operands, and raises if they are wrong."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return not target._schema.returns and not target._schema.is_mutable


#: Whose derivatives, of complex results, refuse a loss that depends on a vector's phase.
_OF_VECTORS = frozenset(
    {
        torch.ops.aten.linalg_eig.default,
        torch.ops.aten._linalg_eigh.default,
        torch.ops.aten._linalg_svd.default,
    }
)


def derivative_checks(node: torch.fx.Node) -> bool:
    """Whether the derivative of a node's target looks at gradients, and raises if they are wrong.

    Autograd leaves such checks out where it is traced.
    """
    if node.target not in _OF_VECTORS:
        return False
    return any(t.is_complex() for t in node.meta["val"] if isinstance(t, torch.Tensor))


_aten = torch.ops.aten
#: What is given positions by tensors, and raises for one that is not there.
_AT_POSITIONS = frozenset(
    overload
    for packet in (
        *(_aten.index, _aten.index_select, _aten.gather, _aten.take),
        *(_aten.embedding, _aten.nll_loss_forward, _aten.nll_loss2d_forward, _aten.scatter),
        *(_aten.scatter_add, _aten.scatter_reduce, _aten.index_add, _aten.index_copy),
        *(_aten.index_fill, _aten.index_put, _aten.max_unpool2d, _aten.max_unpool3d),
        *(_aten._embedding_bag, _aten._embedding_bag_forward_only, _aten.histc),
        *(_aten.put, _aten.index_reduce, _aten.searchsorted, _aten.segment_reduce),
        *(_aten.multi_margin_loss, _aten.multilabel_margin_loss_forward),
        *(_aten.masked_scatter, _aten.lu_unpack, _aten.linalg_lu_solve, _aten.linalg_ldl_solve),
    )
    for overload in [getattr(packet, name) for name in packet.overloads()]
    if "out" not in overload._overloadname
)
#: What raises for an integer divisor of zero, and for integers to negative powers.
_OF_INTEGERS = frozenset(
    {
        *(_aten.div.Tensor_mode, _aten.div.Scalar_mode, _aten.pow.Tensor_Scalar),
        *(_aten.floor_divide.default, _aten.floor_divide.Scalar),
        *(_aten.remainder.Tensor, _aten.remainder.Scalar, _aten.remainder.Scalar_Tensor),
        *(_aten.fmod.Tensor, _aten.fmod.Scalar),
    }
)


#: What raises for a matrix that it does not come to an end with, or has no such factors.
_OF_MATRICES = frozenset(
    {
        *(_aten.linalg_eig.default, _aten.linalg_eigvals.default, _aten._linalg_eigvals.default),
        *(_aten._linalg_eigh.default, _aten._linalg_svd.default, _aten.cholesky.default),
        *(_aten.cholesky_inverse.default, _aten.linalg_lstsq.default),
    }
)
#: What raises for no elements to choose one of, where a tensor without a value does not.
_OF_SOME = frozenset(
    {
        *(_aten.max.default, _aten.min.default, _aten.max.dim, _aten.min.dim),
        *(_aten.mode.default, _aten.median.dim, _aten.nanmedian.dim),
    }
)


def looks_up(node: torch.fx.Node) -> bool:
    """Whether a node raises for some values of its operands: positions that are not there, integer
    divisors that are zero, matrices without factors, a choice among no elements."""
    if node.op != "call_function":
        return False
    if node.target in _OF_INTEGERS:
        return _may_raise(node)
    if node.target in _OF_SOME:
        return _has_none(node.args[0])
    return node.target in _AT_POSITIONS or node.target in _OF_MATRICES


def _has_none(operand: Any) -> bool:
    count = operand.meta["val"].numel()
    return type(count) is int and count == 0


def _may_raise(node: torch.fx.Node) -> bool:
    """Whether an operation on integers may be one that there is not."""
    value, second = node.meta.get("val"), node.args[1]
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
        return False
    if node.target is _aten.pow.Tensor_Scalar:
        return isinstance(second, int) and second < 0
    return isinstance(second, torch.fx.Node) or second == 0


def stays(node: torch.fx.Node) -> bool:
    """Whether a node stays though nothing reads its results."""
    if drawing(node) or looks_up(node):
        return True
    return node.op == "call_function" and checks(node.target)
