"""Models of torch's functions about symbolic numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes

from refcompiler.capture.arithmetic import decided
from refcompiler.capture.calls import Calls
from refcompiler.capture.models.registry import model, named


def _answering(method: str) -> Callable:
    """A model that asks the node of a symbolic condition; of anything else, torch's function."""

    def answer(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        given = [m.force(a) for a in (*args, *kwargs.values())]
        (condition,) = given
        if type(condition) is not torch.SymBool:
            return m.truth(condition)
        if method == "statically_known_true":
            return condition.node.statically_known_true("", 0)
        return getattr(condition.node, method)("", 0)

    return answer


for _name in "guard_or_false guard_or_true statically_known_true guard_size_oblivious".split():
    model(*named(f"fx.experimental.symbolic_shapes.{_name}"))(_answering(_name))


@model(*named("fx.experimental.symbolic_shapes.statically_known_false"))
def _known_false(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    (condition,) = [m.force(a) for a in (*args, *kwargs.values())]
    if type(condition) is not torch.SymBool:
        return not m.truth(condition)
    node = condition.node
    return node.shape_env.knowledge.decide(node.expr) is False


def _natively(function: Callable) -> Callable:
    """A model that calls torch's own function: it only looks at numbers."""

    def answer(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        given = [m.force(a) for a in args]
        return decided(function(*given, **{k: m.force(v) for k, v in kwargs.items()}))

    return answer


for _name in (
    "sym_eq sym_and sym_or guard_int guard_float guard_bool guard_scalar is_concrete_int "
    "is_concrete_bool is_concrete_float is_symbolic has_free_symbols has_free_unbacked_symbols "
    "_advise_is_size _advise_is_bounded"
).split():
    _function = getattr(symbolic_shapes, _name, None)
    if _function is not None:
        model(_function)(_natively(_function))
