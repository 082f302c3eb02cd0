"""Graphs of ATen's operators, traced with torch's modes and without torch's compiler.

``make_fx`` does the same, and imports ``torch._dynamo`` and ``torch._inductor`` for it: to be
switched off in the one, and to ask the other's settings for each operator. Here a mode of our own
makes the nodes. Of most operators all that torch asks is known once and for all, and the answer is
no (:func:`refcompiler.aot.nodes.kind_of`): they are made into nodes directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp.decompositions import sym_numel
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, is_fake, unset_fake_temporarily
from torch.fx import Graph, GraphModule, Node, Proxy, Tracer
from torch.fx.experimental.proxy_tensor import (
    HANDLED_TYPES,
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    _enable_thunkify,
    _fetch_proxies_and_all_constant_flag,
    _ProxyTensor,
    _set_make_fx_tracer,
    disable_autocast_cache,
    disable_proxy_modes_tracing,
    extract_val,
    get_proxy_slot,
    has_proxy_slot,
    set_original_aten_op,
    track_tensor_tree,
)
from torch.fx.experimental.symbolic_shapes import is_accessor_node
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.types import py_sym_types
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, autograd_would_have_decomposed

from refcompiler.aot.nodes import kind_of, traces_plainly
from refcompiler.dispatching import DispatchMode

Decompositions = Mapping[Any, Callable[..., Any]]

_aten = torch.ops.aten
_DEVICE = torch.ops.prim.device.default
#: Elements of a result that is computed of constants, if it is no larger: a program may ask it for
#: its value.
_CONSTANT = 1
#: Compositions that stay what they are.
_METADATA = (_aten.size.default, _aten.stride.default, _aten.storage_offset.default)
#: What stands in a graph as it is.
_PLAIN = {
    *(int, float, bool, complex, str, type(None)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
}


def trace(
    function: Callable[..., Any],
    args: Sequence[Any],
    names: Sequence[str],
    decompositions: Decompositions,
) -> GraphModule:
    """The graph of ``function(*args)``, whose inputs are the leaves of ``args`` one by one.

    ``names``: of the arguments, which inputs are named after. ``decompositions``: what is called in
    the place of an operator. Nodes have the values in ``meta["val"]``.
    """
    tracer = _Tracer()
    mode = Recording(tracer, {_aten.sym_numel.default: sym_numel, **decompositions})
    for argument, name in zip(args, names, strict=True):
        for n, leaf in enumerate(pytree.tree_leaves(argument), 1):
            holder = tracer.create_proxy("placeholder", f"{name}_{n}", (), {})
            track_tensor_tree(leaf, holder, constant=None, tracer=tracer)
    # Autocast's cache would hand out casts that another graph has made.
    with mode, disable_autocast_cache(), _set_make_fx_tracer(_Inner(mode)):
        found = function(*args)
        result = pytree.tree_map(mode.operand_of, found)
        tracer.create_node("output", "output", (tracer.create_arg(result),), {})
    _drop_numbers(tracer.graph)
    _merge_numbers(tracer.graph)
    return GraphModule(tracer.root, tracer.graph, function.__name__)


class _Tracer(PythonKeyTracer):
    def __init__(self) -> None:
        super().__init__()
        self.root = torch.nn.Module()
        self.graph = Graph(tracer_cls=PythonKeyTracer)
        self.tensor_attrs: dict[Any, str] = {}
        self.generators: dict[int, str] = {}

    def create_arg(self, a: Any) -> Any:
        """A generator is an attribute of the graph's, for which torch 2.11 and 2.12 have no way."""
        if not isinstance(a, torch.Generator):
            return super().create_arg(a)
        if id(a) not in self.generators:
            self.generators[id(a)] = self.get_fresh_qualname("_generator")
            setattr(self.root, self.generators[id(a)], a)
        return self.create_node("get_attr", self.generators[id(a)], (), {})

    def create_node(self, kind: str, target: Any, *how: Any, **named: Any) -> Node:
        # Torch's notes for torch's compiler how the operands of some operators lie.
        node = Tracer.create_node(self, kind, target, *how, **named)
        if kind == "get_attr":
            value = getattr(self.root, target)
            if isinstance(value, torch.Tensor):
                with disable_proxy_modes_tracing():
                    node.meta["val"] = extract_val(value)
        return node


class Recording(DispatchMode, ProxyTorchDispatchMode):
    """Makes nodes of operators; torch's operators of higher order know it for torch's own."""

    supports_higher_order_operators = True

    def __init__(self, tracer: PythonKeyTracer, decompositions: Decompositions):
        TorchDispatchMode.__init__(self)
        self.tracer = tracer
        self.decomposition_table = decompositions
        self._decomposition_table_stack: list[Decompositions] = []
        self.decomp_layers = 0
        self.tracing_mode = "real"
        self.pre_dispatch = False
        self._allow_fake_constant = False
        self._error_on_data_dependent_ops = True
        self.emulate_precision_casts = False
        self._mode_key = torch._C._TorchDispatchModeKey.PROXY
        self.enter_stack: list[ProxyTorchDispatchMode | None] = []
        self._invoke_subgraph_names: set[str] = set()
        self._invoke_subgraph_cache: dict[Any, str] = {}
        self._nodes: dict[int, tuple[torch.Tensor, Node]] = {}  # of fakes, which it keeps alive

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kind_of(func)[0] and func not in self.decomposition_table and traces_plainly():
            try:
                given = tuple([self._operand(a) for a in args])
                named = {name: self._operand(a) for name, a in kwargs.items()}
            except _Unusual:
                return self._asked(func, args, kwargs)
            return self._made(func, args, kwargs, given, named)
        if isinstance(func, HigherOrderOperator):
            return self._over_graphs(func, args, kwargs)
        if func is _DEVICE:
            return func(*args, **kwargs)
        with set_original_aten_op(func):
            return self._asked(func, args, kwargs)

    # ---- usual operators --------------------------------------------------------------------

    def _made(self, func: Any, args: Any, kwargs: Any, given: tuple, named: dict) -> Any:
        tracer = self.tracer
        name = tracer.graph._target_to_str(func.overloadpacket.__name__)
        node = tracer.graph.create_node("call_function", func, given, named, name)
        proxy = Proxy(node, tracer)
        found = func(*args, **kwargs)
        if type(found) is not FakeTensor or found._has_symbolic_sizes_strides:
            track_tensor_tree(found, proxy, constant=None, tracer=tracer)
            return found
        # What is functional is not changed in place: the value needs no copy.
        node.meta["val"] = found
        node.meta["tensor_meta"] = _extract_tensor_metadata(found)
        tracer.tensor_tracker[found] = _ProxyTensor(proxy, None)
        self._nodes[id(found)] = found, node
        return found

    def _operand(self, a: Any) -> Any:
        kind = type(a)
        if kind is FakeTensor:
            own = self._nodes.get(id(a))
            if own is not None:
                return own[1]
            known = self.tracer.tensor_tracker.get(a)
            if known is None or known.constant is not None:
                raise _Unusual
            self._nodes[id(a)] = a, known.proxy.node
            return known.proxy.node
        if kind in _PLAIN:
            return a
        if kind is list or kind is tuple:
            return kind([self._operand(each) for each in a])
        raise _Unusual

    # ---- all others -------------------------------------------------------------------------

    def _asked(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator of which it depends on its operands what becomes of it."""
        flat, spec = pytree.tree_flatten((args, kwargs))
        tensors = [t for t in flat if isinstance(t, torch.Tensor)]
        if not all(type(t) in HANDLED_TYPES or has_proxy_slot(t, self.tracer) for t in tensors):
            return NotImplemented  # of a class that has to take itself apart
        composed = self.decomposition_table.get(func)
        if composed is None and func not in _METADATA:
            composed = func.decompose if autograd_would_have_decomposed(func, flat) else None
        if composed is not None:
            with self:
                found = composed(*args, **kwargs)
            if found is not NotImplemented:
                return found
        if func is _aten.is_nonzero.default:
            with self:
                torch._check(
                    args[0].numel() == 1,
                    lambda: "Boolean value of Tensor with more than one value is ambiguous",
                )
                return (args[0] != 0).item()
        held, operands, constant = _fetch_proxies_and_all_constant_flag(flat, self.tracer)
        known = [x.constant if isinstance(x, _ProxyTensor) else x for x in held]
        if torch.Tag.data_dependent_output in func.tags:
            if constant:
                return _computed(func, known, spec)
            if not any(map(is_fake, tensors)):
                raise RuntimeError(f"{func} asks a tensor that is no constant for its value")
        if func is _aten.lift_fresh.default:
            # What is lifted is new; a constant of the graph's would be written to by each call.
            func = _aten.lift_fresh_copy.default
        given, named = pytree.tree_unflatten(operands, spec)
        name = self.tracer.graph._target_to_str(func.overloadpacket.__name__)
        proxy = self.tracer.create_proxy("call_function", func, given, named, name=name)
        with _enable_thunkify(self.tracer):
            found = func(*args, **kwargs)
        value = None
        if func is _aten.lift_fresh_copy.default:
            if found.numel() <= _CONSTANT:
                with unset_fake_temporarily():
                    value = args[0].clone()
        elif (
            constant
            and any(isinstance(x, _ProxyTensor) for x in held)
            and torch.Tag.nondeterministic_seeded not in func.tags
            and _all_small(found)
        ):
            value = _computed(func, known, spec)
        return track_tensor_tree(found, proxy, constant=value, tracer=self.tracer)

    def _over_graphs(self, func: Any, args: Any, kwargs: Any) -> Any:
        rule = func.python_key_table.get(ProxyTorchDispatchMode)
        if rule is None:
            raise NotImplementedError(f"{func.name()} has no rule for a graph that is traced")
        with set_original_aten_op(func):
            return rule(self, *args, **kwargs)

    def operand_of(self, value: Any) -> Any:
        """What stands for ``value`` in the graph."""
        if isinstance(value, torch.Tensor):
            return get_proxy_slot(value, self.tracer, value, lambda known: known.proxy)
        if isinstance(value, py_sym_types):
            return get_proxy_slot(value, self.tracer).force()
        return value


class _Unusual(Exception):
    """An operand that is no tensor of the graph without symbols, nor a plain number."""


class _Inner:
    """Traces the graphs of torch's operators of higher order, in the place of ``make_fx``."""

    def __init__(self, mode: Recording):
        self.mode = mode

    @property
    def fake_tensor_mode(self) -> Any:
        return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)

    def trace_subgraph(self, function: Callable[..., Any], *args: Any) -> GraphModule:
        return self.trace_subgraph_custom_decomp(function, self.mode.decomposition_table, *args)

    def trace_subgraph_custom_decomp(
        self, function: Callable[..., Any], decompositions: Decompositions, *args: Any
    ) -> GraphModule:
        return trace(function, args, [f"arg{n}" for n in range(len(args))], decompositions)


def _computed(func: Any, flat: Sequence[Any], spec: Any) -> Any:
    """What ``func`` gives for constants."""
    args, kwargs = pytree.tree_unflatten(flat, spec)
    with unset_fake_temporarily():
        return func(*args, **kwargs)


def _all_small(found: Any) -> bool:
    return all(
        isinstance(t, torch.Tensor) and t.numel() <= _CONSTANT for t in pytree.tree_leaves(found)
    )


# ---- numbers of the graph -----------------------------------------------------------------------


def _is_number(node: Node) -> bool:
    return isinstance(node.meta.get("val"), py_sym_types)


def _drop_numbers(graph: Graph) -> None:
    """Those that nothing reads: sizes of tensors, and arithmetic. All else may have effects."""
    for node in reversed(graph.nodes):
        if node.users or node.is_impure():
            continue
        of_numbers = _is_number(node) and all(map(_is_number, node.all_input_nodes))
        if of_numbers or is_accessor_node(node):
            graph.erase_node(node)


def _merge_numbers(graph: Graph) -> None:
    """One node for a number, where inputs give it; others might make the forward wait."""
    known: dict[Any, Node] = {}
    given: set[Node] = set()
    for node in graph.nodes:
        if not _is_number(node):
            continue
        number = node.meta["val"]
        key = type(number), number.node.expr
        if node.op != "placeholder":
            if key in known:
                node.replace_all_uses_with(known[key])
                graph.erase_node(node)
                continue
            if not given.issuperset(node.all_input_nodes):
                continue
        known[key] = node
        given.add(node)
