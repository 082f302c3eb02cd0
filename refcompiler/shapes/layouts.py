"""Layouts of tensors whose sizes are expressions: contiguous, channels last, dense.

Source of the rules: the definitions of ``torch.Tensor.is_contiguous`` and of memory formats in
torch's documentation: dimensions of size 1 may have any stride, and no elements lie any way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from refcompiler.shapes.text import Dense, is_dense


def contiguous(env: Any, sizes: Sequence[Any], strides: Sequence[Any], order: Any) -> Any:
    """A bool node: going through ``order``, innermost first, each stride spans those before."""
    if len(order) != len(sizes):
        return env.number(bool, False)
    one, expected = env.number(int, 1), env.number(int, 1)
    conditions = []
    empty = [env.binary("eq", size, env.number(int, 0)) for size in sizes]
    if any(_known(env, e) is True for e in empty):
        return env.number(bool, True)
    for i in order:
        single = env.binary("eq", sizes[i], one)
        if _known(env, single) is True:
            continue
        fits = env.binary("eq", strides[i], expected)
        known = _known(env, fits)
        if known is not True:
            if known is False and _known(env, single) is False:
                return env.number(bool, False)
            conditions.append(env.binary("or_", single, fits))
        expected = env.binary("mul", expected, sizes[i])
    return _all(env, conditions)


def channels_last(env: Any, sizes: Sequence[Any], strides: Sequence[Any], order: Any) -> Any:
    """A bool node: strides grow along ``order``, and are no accident of sizes of 1."""
    if len(order) != len(sizes):
        return env.number(bool, False)
    if not all(n.has_hint() for n in (*sizes, *strides)):
        return contiguous(env, sizes, strides, order)
    least = env.number(int, 0)
    zero = env.number(int, 0)
    if _decided(env, env.binary("eq", strides[1], zero)):
        return env.number(bool, False)
    for i in order:
        if _decided(env, env.binary("eq", sizes[i], zero)):
            return env.number(bool, False)
        if _decided(env, env.binary("lt", strides[i], least)):
            return env.number(bool, False)
        if i == 0 and _decided(env, env.binary("eq", least, strides[1])):
            return env.number(bool, False)
        least = strides[i]
        if _decided(env, env.binary("gt", sizes[i], env.number(int, 1))):
            least = env.binary("mul", strides[i], sizes[i])
    return env.number(bool, True)


def dense(env: Any, sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    """A bool node: no holes and no overlap, in whatever order of dimensions."""
    if all(n.has_hint() for n in (*sizes, *strides)):
        order = sorted(range(len(sizes)), key=lambda i: (strides[i].hint, sizes[i].hint))
        found = contiguous(env, sizes, strides, order)
        if found.constant is True:
            return found
        hint: bool | None = is_dense(*[n.hint for n in (*sizes, *strides)])
    else:
        found = contiguous(env, sizes, strides, range(len(sizes))[::-1])
        if found.constant is True:
            return found
        hint = None
    condition = sympy.Eq(Dense(*[n.expr for n in (*sizes, *strides)]), 1)
    return env.node(condition, bool, hint)


def _known(env: Any, node: Any) -> bool | None:
    return node.constant if node.constant is not None else env.knowledge.decide(node.expr)


def _decided(env: Any, node: Any) -> bool:
    return node.constant if node.constant is not None else env.evaluate_sym_node(node)


def _all(env: Any, conditions: list[Any]) -> Any:
    found = env.number(bool, True)
    for condition in conditions:
        found = env.binary("and_", found, condition)
    return found
