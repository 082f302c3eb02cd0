"""Models of torch's functions about symbolic numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes

from refcompiler.capture.calls import Calls
from refcompiler.capture.marking.dimensions import mark_static
from refcompiler.capture.models.registry import late, model, named, operation
from refcompiler.capture.signals import Break
from refcompiler.shapes.node import SYMBOLS


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


@late("torch._dynamo.decorators.mark_static")
@model(mark_static)
def _mark_static(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    """In compiled code: the sizes become constants."""
    given = dict(zip(("t", "index"), map(m.force, args), strict=False))
    given |= {k: m.force(v) for k, v in kwargs.items()}
    t, index = given.get("t"), given.get("index")
    if not isinstance(t, torch.Tensor) or set(given) - {"t", "index"}:
        raise Break("operation-not-modelled", "mark_static of something that is no tensor")
    m.sizes.plain(t.size() if index is None else t.size(index))


@operation("tolist")
def _tolist(m: Calls, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Where numbers may be read: that of each element; how many there are is a constant then."""
    tensor = m.force(args[0]) if len(args) == 1 and not kwargs else None
    if not isinstance(tensor, torch.Tensor) or not m.recorder.captures_numbers:
        return NotImplemented
    if known := m.recorder.known(torch.Tensor.tolist, (tensor,)):
        return known[0]
    m.sizes.plain(tensor.size())
    return _elements(tensor)


def _elements(tensor: torch.Tensor) -> Any:
    if tensor.dim() == 0:
        return tensor.item()
    return [_elements(part) for part in tensor.unbind(0)]


def _natively(function: Callable) -> Callable:
    """A model that calls torch's own function: it only looks at numbers."""

    def answer(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        given = [m.force(a) for a in args]
        return function(*given, **{k: m.force(v) for k, v in kwargs.items()})

    return answer


for _name in (
    "sym_eq sym_and sym_or guard_int guard_float guard_bool guard_scalar is_concrete_int "
    "is_concrete_bool is_concrete_float is_symbolic has_free_symbols has_free_unbacked_symbols "
    "_advise_is_size _advise_is_bounded"
).split():
    _function = getattr(symbolic_shapes, _name, None)
    if _function is not None:
        model(_function)(_natively(_function))
for _function in named("sym_float sym_int sym_max sym_min sym_not sym_sqrt sym_sum"):
    model(_function)(_natively(_function))


@model(torch.sym_ite)
def _choice(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """One of two numbers of a kind, which is decided only where they are of two."""
    given = dict(zip(("b", "t", "f"), args, strict=False)) | dict(kwargs)
    condition, then, otherwise = [m.force(given[name]) for name in ("b", "t", "f")]
    if type(condition) is torch.SymBool:
        for kinds in ((int, torch.SymInt), (float, torch.SymFloat)):
            if type(then) in kinds and type(otherwise) in kinds:
                env = condition.node.shape_env
                nodes = [
                    n.node if type(n) in SYMBOLS else env.number(type(n), n)
                    for n in (then, otherwise)
                ]
                return env.wrap(env.choice(condition.node, *nodes))
    return then if m.truth(condition) else otherwise
