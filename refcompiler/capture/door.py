"""The door: the one place through which tensor work is recorded.

A ``TorchFunctionMode`` sees every torch call on the fakes, whoever made it, at the level at
which the user wrote it, runs it on the fakes, and records it as one fx node.
"""

from __future__ import annotations

import enum
import keyword
import operator
from collections.abc import Callable
from types import (
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.fx.node import base_types
from torch.overrides import TorchFunctionMode

from refcompiler.capture.policy import (
    DATA_DEPENDENT,
    METADATA,
    NOT_MODELLED,
    operation_name,
)
from refcompiler.capture.signals import Break
from refcompiler.fakes import EagerFakeMode
from refcompiler.guards.kinds import METADATA as UNGUARDED
from refcompiler.guards.kinds import metadata

_OPERATORS: dict[str, Callable] = {
    f"__{name}__": getattr(operator, name)
    for name in (
        "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift neg pos invert "
        "getitem eq ne lt le gt ge iadd isub imul itruediv ifloordiv imod ipow iand ior ixor "
        "ilshift irshift abs"
    ).split()
    if not name.endswith("_")
}
_OPERATORS |= {"__and__": operator.and_, "__or__": operator.or_, "__setitem__": operator.setitem}
_OPERATORS["__matmul__"] = operator.matmul
_INPLACE = frozenset(
    f"__i{name}__"
    for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()
)
#: fx prints arguments as Python, which it can for these only.
_PRINTABLE = (*base_types, type, range, enum.Enum)
_MODES = frozenset({"_set_grad_enabled"})


def _mutates(name: str) -> bool:
    """By torch's convention the operation of that name changes its first argument."""
    return (name.endswith("_") and not name.endswith("__")) or (
        name in _INPLACE or name == "__setitem__"
    )


class Recorder:
    """The graph being captured, and the node of each fake tensor."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.fake_mode = EagerFakeMode(allow_non_fake_inputs=True)
        self.nodes: dict[int, torch.fx.Node] = {}
        self.keep: list[Any] = []  # the side tables know fakes by id
        self.last_input: torch.fx.Node | None = None
        self.operations = 0
        self.input_names: dict[str, int] = {}
        self.mutates = False
        self.place: Callable[[], str] = lambda: ""
        self.metadata: Callable[[str, torch.Tensor], Any] = metadata

    def add_input(self, name: str, fake: FakeTensor) -> torch.fx.Node:
        if name == "self" or keyword.iskeyword(name):  # taken in the graph's own forward()
            name = f"input_{name}"
        count = self.input_names[name] = self.input_names.get(name, 0) + 1
        if count > 1:
            name = f"{name}__{count}"
        with self._after_inputs():
            node = self.graph.placeholder(name)
        self.last_input = node
        self._track(node, fake)
        return node

    def _after_inputs(self) -> Any:
        if self.last_input is not None:
            return self.graph.inserting_after(self.last_input)
        first = next(iter(self.graph.nodes), None)
        return self.graph.inserting_before(first)

    def _track(self, node: torch.fx.Node, fake: torch.Tensor) -> None:
        node.meta["example_value"] = fake
        self.nodes[id(fake)] = node
        self.keep.append(fake)

    def node_of(self, fake: Any) -> torch.fx.Node | None:
        return self.nodes.get(id(fake))

    def argument(self, value: Any) -> Any:
        """``value`` as an fx argument: each fake becomes its node."""
        if isinstance(value, torch.Tensor):
            node = self.nodes.get(id(value))
            if node is None:
                raise Break("operation-not-modelled", "a tensor that capture did not see made")
            return node
        kind = type(value)
        if kind is tuple or isinstance(value, torch.Size):
            return tuple([self.argument(v) for v in value])
        if kind is list:
            return [self.argument(v) for v in value]
        if kind is dict:
            return {k: self.argument(v) for k, v in value.items()}
        if kind is slice:
            return slice(
                self.argument(value.start), self.argument(value.stop), self.argument(value.step)
            )
        if isinstance(value, tuple):  # named tuples of results
            return tuple([self.argument(v) for v in value])
        if hasattr(kind, "dtype") and kind.__module__ == "numpy" and hasattr(value, "item"):
            return value.item()  # torch takes a numpy scalar as the Python number
        if kind is FunctionType or (callable(value) and not isinstance(value, type)):
            raise Break("higher-order", f"a function is an argument of an operation: {value!r}")
        if kind is complex and "-0.0" in (str(value.real), str(value.imag)):
            raise Break("operation-not-modelled", f"the constant {value!r}, which fx misprints")
        if value is not None and value is not ... and not isinstance(value, _PRINTABLE):
            raise Break("operation-not-modelled", f"an argument of class {kind.__qualname__}")
        return value

    def record(self, function: Callable, args: tuple, kwargs: dict, result: Any) -> None:
        name = operation_name(function)
        node_args = tuple([self.argument(a) for a in args])
        node_kwargs = {k: self.argument(v) for k, v in kwargs.items()}
        kind = type(function)
        target: Any = function
        op = "call_function"
        if kind in (MethodDescriptorType, WrapperDescriptorType) or (
            kind is FunctionType and function.__module__ == "torch._tensor"
        ):
            if name in _OPERATORS and not node_kwargs:
                target = _OPERATORS[name]
            else:
                op, target = "call_method", name
        elif not isinstance(function, FunctionType) and type(function).__name__ == "method-wrapper":
            target, node_args = getattr, (node_args[0], name)
            node_kwargs = {}
        node = self.graph.create_node(op, target, node_args, node_kwargs)
        node.meta["stack_trace"] = self.place()
        self.operations += 1
        self._results(node, result)
        self.mutates |= _mutates(name) or "out" in kwargs

    def _results(self, node: torch.fx.Node, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            if id(result) not in self.nodes:
                self._track(node, result)
            elif "example_value" not in node.meta:
                node.meta["example_value"] = result
        elif isinstance(result, (tuple, list)):
            node.meta["example_value"] = result
            self.keep.append(result)
            for i, item in enumerate(result):
                if isinstance(item, (torch.Tensor, tuple, list)) and id(item) not in self.nodes:
                    part = self.graph.call_function(operator.getitem, (node, i))
                    self._results(part, item)
        else:
            node.meta["example_value"] = result


def is_setter(function: Any) -> bool:
    """Assignment to an attribute of a tensor, as a TorchFunctionMode sees it."""
    return isinstance(function, MethodWrapperType) and function.__name__ != "__get__"


class Door(TorchFunctionMode):
    """Runs each torch call on fakes and records it."""

    def __init__(self, recorder: Recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = operation_name(func)
        if name in METADATA:
            if name in UNGUARDED:
                return self.recorder.metadata(name, args[0])
            found = func(*args, **kwargs)
            if not isinstance(found, torch.Tensor):
                return found
        if name in _MODES:
            found = func(*args, **kwargs)
            self.recorder.graph.call_function(func, args, kwargs)
            return found
        if name in DATA_DEPENDENT:
            raise Break("data-dependent-value", f"Tensor.{name}")
        if name in NOT_MODELLED or is_setter(func):
            raise Break("operation-not-modelled", name)
        if name == "__iter__":
            return iter(args[0].unbind(0))
        if name == "requires_grad_" or (name == "tensor" and _holds_tensor(args)):
            raise Break("operation-not-modelled", name)
        try:
            result = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            row = "data-dependent-value"
            if isinstance(error, DynamicOutputShapeException):
                row = "data-dependent-shape"
            raise Break(row, name) from error
        except Exception as error:
            raise Break("fake-op-raised", f"{name}: {error}".split("\n")[0]) from error
        if result is NotImplemented:
            return result
        if _holds_tensor((result,)) or _holds_tensor(args) or _holds_tensor(kwargs.values()):
            self._check(name, result)
            self.recorder.record(func, args, kwargs, result)
        return result

    def _check(self, name: str, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            if not isinstance(result, FakeTensor) or result.layout is not torch.strided:
                raise Break("tensor-kind", f"{name} gives {type(result).__name__}")
        elif isinstance(result, (tuple, list)):
            for item in result:
                self._check(name, item)


def _holds_tensor(values: Any) -> bool:
    for value in values:
        if isinstance(value, torch.Tensor):
            return True
        if isinstance(value, (tuple, list)) and _holds_tensor(value):
            return True
        if isinstance(value, dict) and _holds_tensor(value.values()):
            return True
    return False
