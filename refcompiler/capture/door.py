"""The door: the one place through which tensor work is recorded.

A ``TorchFunctionMode`` sees every torch call on the fakes, whoever made it, at the level at
which the user wrote it, runs it on the fakes, and records it as one fx node.
"""

from __future__ import annotations

import contextlib
import enum
import keyword
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import (
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.autograd.graph import get_gradient_edge
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.node import base_types
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture import held, numbers, replaced
from refcompiler.capture.generators import held_by
from refcompiler.capture.known import known_value
from refcompiler.capture.policy import (
    DATA_DEPENDENT,
    METADATA,
    NOT_MODELLED,
)
from refcompiler.capture.signals import Break, Restart
from refcompiler.capture.state import leaves
from refcompiler.capture.wrappers import is_fake, is_wrapper
from refcompiler.caught import CAUGHT, may_raise
from refcompiler.fakes.composed import RULES, laid
from refcompiler.fakes.mode import EagerFakeMode
from refcompiler.guards.kinds import METADATA as UNGUARDED
from refcompiler.guards.kinds import metadata
from refcompiler.naming import operation_name, writes
from refcompiler.shapes import ShapeEnv
from refcompiler.shapes.composites import python_composites
from refcompiler.shapes.node import SYMBOLS

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
#: What fx calls nodes, before their numbers, by opcode and the target's name.
_STEMS: dict[tuple[str, str], str] = {}
EXAMINED = "refcompiler_examined"  # in the meta of nodes that autograd is asked about
#: fx prints arguments as Python, which it can for these only.
_PRINTABLE = (*base_types, type, range, enum.Enum)
#: What Python's classes mean as a dtype: fx would print them as what is no expression.
_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_TENSOR_TYPE = type(torch.FloatTensor)
#: How an instance of a subclass becomes the plain number or text that it is.
_SCALARS: dict[type, Callable] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
}
#: What torch raises where fakes are asked for what only values tell.
UNKNOWN_VALUES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)
_PLAIN = frozenset({*_SCALARS, bool, type(None)})
_MODES = frozenset({"_set_grad_enabled"})
#: Operations whose composition in C++ looks at values to check them, and the one in Python not.
_COMPOSED_IN_PYTHON = frozenset({"istft"})
#: Operations that give a Python value, which they do for constants too.
_READ = frozenset(
    """
    item tolist __bool__ __int__ __float__ __complex__ __index__ equal is_nonzero allclose
    __contains__
    """.split()
)


def version_of(tensor: Any) -> int:
    """How often ``tensor`` was written to, as far as that is counted; a number never is."""
    if type(tensor) in SYMBOLS:
        return 0
    with torch._C.DisableTorchFunction():
        return -1 if tensor.is_inference() else tensor._version


class Scope:
    """A graph being captured: the whole one, or the one of a region inside another.

    ``lifted`` are the values of outer scopes that this one reads, in order, and ``versions`` how
    often each had been written to then; they become inputs. Symbolic numbers are among them.
    """

    def __init__(self, outer: Scope | None = None):
        self.outer = outer
        self.graph = torch.fx.Graph()
        self.module = torch.nn.Module()  # holds the graphs of regions
        self.nodes: dict[int, torch.fx.Node] = {}
        self.lifted: list[Any] = []
        self.versions: list[int] = []
        self.sibling: Scope | None = None  # a closed scope whose values this one may read too
        self.between: list[torch.Tensor] = []  # those that it has read
        self.differentiated: type | None = None  # the Function whose backward this is
        self.last_input: torch.fx.Node | None = None
        self.names: dict[str, int] = {}
        self.modes: list[tuple[int, torch.fx.Node]] = []  # entered and not left yet
        self.regions: dict[Any, tuple[torch.fx.GraphModule, str]] = {}  # those to share
        self.region_names: dict[Any, dict[Any, str]] = {}  # by the function, and by call or key
        self.numbers: dict[Any, torch.fx.Node] = {}  # expressions -> what computes them

    def placeholder(self, name: str) -> torch.fx.Node:
        if name == "self" or keyword.iskeyword(name):  # taken in the graph's own forward()
            name = f"input_{name}"
        count = self.names[name] = self.names.get(name, 0) + 1
        if count > 1:
            name = f"{name}__{count}"
        with self._after_inputs():
            node = self.graph.placeholder(name)
        self.last_input = node
        return node

    def _after_inputs(self) -> Any:
        if self.last_input is not None:
            return self.graph.inserting_after(self.last_input)
        first = next(iter(self.graph.nodes), None)
        return self.graph.inserting_before(first)

    def submodule(self, module: torch.nn.Module) -> torch.fx.Node:
        """A node that stands for ``module``, which becomes a part of this scope's own."""
        for name, known in self.module.named_children():
            if known is module:
                return self.graph.create_node("get_attr", name)
        name = f"region_{len(self.module._modules)}"
        self.module.add_module(name, module)
        return self.graph.create_node("get_attr", name)

    def generator(self, generator: torch.Generator) -> torch.fx.Node:
        """A node that stands for ``generator``, which this scope's module holds."""
        held = held_by(self.module)
        name = next((name for name, own in held.items() if own is generator), "")
        if not name:
            name = f"generator_{len(held)}"
            setattr(self.module, name, generator)
        return self.graph.create_node("get_attr", name)


class Recorder:
    """The graph being captured, and the node of each fake tensor in each scope."""

    def __init__(self) -> None:
        self.root = self.scope = Scope()
        self.fake_mode = EagerFakeMode(allow_non_fake_inputs=True)
        self.inputs: dict[int, torch.fx.Node] = {}
        self.classes: dict[int, type] = {}  # tensors that are of a subclass in eager
        self.kinds: dict[int, type] = {}  # tensors whose operations ask their class
        self.modes = 0  # of the program's that see its operations
        self.asked = False  # the next operation is the program's, not capture's own
        self.converting: type | None = None  # the class whose default is running
        self.leaves: list[leaves.Leaf] = []
        self.plain: list[tuple[Any, int]] = []  # blocks without torch functions, and their steps
        self.override: Callable[[Callable, type, tuple, dict], Any]
        self.ask: Callable[[Callable, tuple[type, ...], tuple, dict | None], Any]
        self.convert: Callable[[Callable, Any, type], None]
        self.class_of: Callable[[list[torch.Tensor]], type | None]
        self.floats: dict[int, torch.Tensor] = {}  # tensors that are Python's floats in eager
        self.constants: dict[torch.fx.Node, Any] = {}  # values that are known while capturing
        self.keep: list[Any] = []  # the side tables know fakes by id
        self.operations = 0  # of the whole graph
        self.recorded = 0  # of it and of the graphs inside it
        self.mutates = False
        self.buckets: tuple[int, ...] = ()  # of the gradients that are sent while it goes backward
        self.switched = False  # the graph enters modes, which an error must not leave on
        self.suspended = False  # torch's own code runs around a region: nothing is recorded
        self.is_heard: Callable[[], bool] = lambda: False  # whether the program sees warnings
        self.filtered = False  # the program has changed which warnings are shown
        self.element_indices = 0  # blocks in which tensors of one element index as tensors
        self.place: Callable[[], tuple[str, tuple]] = lambda: ("", ())
        self.step: Callable[[], int] = lambda: 0  # which root instruction runs
        self.is_caught: Callable[[], bool] = lambda: False  # whether a handler stands around it
        self.last_step = -1  # the one that has recorded last
        self.metadata: Callable[[str, torch.Tensor], Any] = metadata
        self.steady: Callable[[Any, torch.fx.Node], torch.Tensor | None] = lambda *given: None
        self.composites: Any = None  # how torch composes operators of symbolic sizes
        self.gathers: list[Any] = []  # views whose place a tensor says, which the graph copies
        self.captures_numbers = False  # a number read from a tensor does not end the graph

    def add_input(self, name: str, fake: FakeTensor) -> torch.fx.Node:
        """An input of the whole graph."""
        node = self.inputs[id(fake)] = self.root.placeholder(name)
        self.track(self.root, node, fake)
        return node

    def begin_symbols(self, env: ShapeEnv) -> None:
        """From here on sizes may be symbols of ``env``."""
        self.fake_mode.shape_env = env
        self.fake_mode.static_shapes = False
        self.composites = python_composites()

    def add_number(self, name: str, number: Any) -> torch.fx.Node:
        """An input of the whole graph that is a number; it comes before the tensors that use it."""
        node = self.root.placeholder(name)
        node.meta["example_value"] = number
        self.root.numbers[number.node.expr] = node
        return node

    def track(self, scope: Scope, node: torch.fx.Node, fake: torch.Tensor) -> None:
        node.meta["example_value"] = fake
        scope.nodes[id(fake)] = node
        self.keep.append(fake)
        if type(fake) is not FakeTensor and is_wrapper(type(fake)):
            self.classes[id(fake)] = type(fake)

    def node_of(self, fake: Any) -> torch.fx.Node | None:
        """The node of ``fake`` in the whole graph."""
        return self.root.nodes.get(id(fake))

    def examine(self, fake: torch.Tensor) -> None:
        """Autograd is asked about a tensor of the whole graph, which ends there."""
        node = self.node_of(fake)
        if node is not None:
            node.meta[EXAMINED] = True

    def examined(self) -> set[str]:
        """The names of nodes that autograd was asked about."""
        return {node.name for node in self.root.graph.nodes if EXAMINED in node.meta}

    def node_in(self, scope: Scope, fake: torch.Tensor) -> torch.fx.Node | None:
        """The node of ``fake`` in ``scope``; a value of an outer scope becomes an input."""
        node = scope.nodes.get(id(fake))
        if node is None and scope.outer is not None:
            outer = self.node_in(scope.outer, fake)
            if outer is not None:
                node = scope.placeholder(outer.name)
                scope.lifted.append(fake)
                scope.versions.append(version_of(fake))
                self.track(scope, node, fake)
            elif scope.sibling is not None and id(fake) in scope.sibling.nodes:
                node = scope.placeholder(scope.sibling.nodes[id(fake)].name)
                scope.between.append(fake)
                self.track(scope, node, fake)
        return node

    def lift(self, values: Any) -> None:
        """Make tensors among ``values`` known to a region before an operation writes to them."""
        for value in values:
            if isinstance(value, torch.Tensor):
                self.node_in(self.scope, value)
            elif isinstance(value, (tuple, list)):
                self.lift(value)

    def argument(self, value: Any) -> Any:
        """``value`` as an fx argument: each fake becomes its node."""
        if isinstance(value, torch.Tensor):
            node = self.node_in(self.scope, value)
            if node is None:
                raise Break("operation-not-modelled", "a tensor that capture did not see made")
            return node
        kind = type(value)
        if kind in SYMBOLS:
            return numbers.argument(self, value)
        if kind is torch.Generator:
            return self.scope.generator(value)
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
            if kind.__name__.startswith("bool"):  # of which torch makes floats in products
                raise Break("operation-not-modelled", "an operation with one of numpy's bools")
            return value.item()  # torch takes a numpy scalar as the Python number
        if kind is FunctionType or (callable(value) and not isinstance(value, type)):
            raise Break("higher-order", f"a {kind.__name__} is an argument of an operation")
        if kind is type and value in _DTYPES:
            return _DTYPES[value]
        if isinstance(value, _TENSOR_TYPE):  # torch.LongTensor, which fx would print as a class
            return f"{value.__module__}.{value.__name__}"
        if kind not in _PLAIN and not issubclass(kind, enum.Enum):
            for base, plain in _SCALARS.items():
                if issubclass(kind, base):
                    return plain(value)  # fx would print what the class makes of it
        if kind is complex and not _is_printable(value):
            raise Break("operation-not-modelled", f"the constant {value!r}, which fx misprints")
        if value is not None and value is not ... and not isinstance(value, _PRINTABLE):
            raise Break("operation-not-modelled", f"an argument of class {kind.__qualname__}")
        return value

    def known(self, function: Callable, args: tuple, kwargs: Mapping = {}) -> tuple[Any, ...]:
        """``(function(*args, **kwargs),)`` if the tensors are the same at each run, or ``()``."""
        if any(_tensors(dict(kwargs))):
            return ()
        given = []
        for value in args:
            if isinstance(value, torch.Tensor):
                fake, value = value, known_value(self, value)
                if value is None:
                    return held.read(self, function, fake) if len(args) == 1 else ()
            given.append(value)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return (function(*given, **kwargs),)

    @contextlib.contextmanager
    def suspension(self) -> Iterator[None]:
        """Nothing is recorded: what runs is not the program, or is recorded as a whole."""
        before, self.suspended = self.suspended, True
        try:
            yield
        finally:
            self.suspended = before

    def dispatch(self, args: tuple, kwargs: dict) -> tuple[Any, bool]:
        """The class that results get; whether a ``__torch_function__`` of the user's is asked."""
        asked, self.asked = self.asked, False
        if self.converting is not None:  # inside of the default's call, which is one operation
            return self.converting, False
        if self.plain:
            return None, False
        cls = self.class_of(list(_tensors((args, kwargs))))
        if cls is None or not asked:
            return cls, False
        return cls, getattr(cls, "__torch_function__", None) != _default_of(cls)

    def check_floats(self, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        """A Python float gives its dtype to nothing; neither must the tensor that stands for it."""
        given = list(_tensors((args, kwargs)))
        floats = [id(t) in self.floats for t in given]
        if not any(floats):
            return
        if all(floats):
            if name in ("neg", "__neg__", "sqrt", "clone") and isinstance(result, torch.Tensor):
                self.floats[id(result)] = result
            return
        if name in ("copy_", "_foreach_copy_"):  # what is written to keeps its dtype
            return
        for tensor, number in zip(given, floats, strict=True):
            if not number and not tensor.dim() and tensor.dtype is not torch.float64:
                raise Break("data-dependent-value", f"{name} of a Python number and a scalar")

    def check(self, name: str, result: Any) -> None:
        """The graph can hold what an operation gives."""
        if isinstance(result, torch.Tensor):
            with torch._C.DisableTorchFunctionSubclass():
                strided = result.layout is torch.strided and not result.is_quantized
            if not is_fake(innermost(result)) or not strided:
                raise Break("tensor-kind", f"{name} gives {type(result).__name__}")
        elif isinstance(result, (tuple, list)):
            for item in result:
                self.check(name, item)

    def record(self, function: Callable, args: tuple, kwargs: dict, result: Any) -> None:
        name = operation_name(function)
        node_args = tuple([self.argument(a) for a in args])
        node_kwargs = {k: self.argument(v) for k, v in kwargs.items()}
        if function is torch.as_tensor and len(node_args) == 1:
            node_kwargs.setdefault("dtype", result.dtype)  # torch._numpy has a default of its own
        if function is torch.Tensor.new and len(args) == 2 and type(args[1]) is torch.Size:
            function, name = torch.Tensor.new_empty, "new_empty"  # a graph's sizes are tuples: data
        kind = type(function)
        target: Any = function
        op = "call_function"
        if kind in (MethodDescriptorType, WrapperDescriptorType) or (
            kind is FunctionType and function.__module__ == "torch._tensor"
        ):
            if replaced.is_replaced_method(name):
                target = replaced.held(function)
            elif name in _OPERATORS and not node_kwargs:
                target = _OPERATORS[name]
            else:
                op, target = "call_method", name
        elif not isinstance(function, FunctionType) and type(function).__name__ == "method-wrapper":
            target, node_args = getattr, (node_args[0], name)
            node_kwargs = {}
        elif replaced.is_replaced(function):
            target = replaced.held(function)
        self.add(op, target, node_args, node_kwargs, result)
        self.mutates |= writes(function, name) or "out" in kwargs

    def add(self, op: str, target: Any, args: tuple, kwargs: dict, result: Any) -> None:
        """A node of the scope at hand, and the values that it gives."""
        graph = self.scope.graph
        known = op, target if type(target) is str else target.__name__
        stem = _STEMS.get(known)
        if stem is None:
            stem = _STEMS[known] = graph._target_to_str(target)
        node = graph.create_node(op, target, args, kwargs, stem)
        node.meta["stack_trace"], node.meta["refcompiler_places"] = self.place()
        node.meta["refcompiler_step"] = step = self.step()
        if self.mutates and (self.is_caught() or may_raise(node)):
            node.meta[CAUGHT] = True
        self.recorded += 1
        if self.scope is self.root:
            if self.gathers:
                node.meta["refcompiler_versions"] = [version_of(g.view) for g in self.gathers]
            self.last_step = step
            self.operations += 1
        self._results(node, result)

    def _results(self, node: torch.fx.Node, result: Any) -> None:
        scope = self.scope
        if isinstance(result, torch.Tensor):
            if self.node_in(scope, result) is None:
                self.track(scope, node, result)
            elif "example_value" not in node.meta:
                node.meta["example_value"] = result
        elif isinstance(result, (tuple, list)):
            node.meta["example_value"] = result
            self.keep.append(result)
            for i, item in enumerate(result):
                if isinstance(item, (torch.Tensor, tuple, list)) and id(item) not in scope.nodes:
                    part = scope.graph.call_function(operator.getitem, (node, i))
                    self._results(part, item)
        else:
            node.meta["example_value"] = result
        if self.fake_mode.shape_env is not None and type(result) is not tuple:
            numbers.learn(scope, node, result)


def _default_of(cls: type) -> Any:
    """``Tensor.__torch_function__`` as a method of ``cls``."""
    return torch.Tensor.__dict__["__torch_function__"].__get__(None, cls)


_WARNINGS = vars(warnings)


def _unwarned(name: str, function: Callable, args: tuple, kwargs: dict) -> Any:
    """A graph runs after the program's own filters of warnings, or before them."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    if given:
        raise Break("io", f"{name} warns where the program has changed the filters of warnings")
    return result


_transforms = torch._C._functorch.peek_interpreter_stack


def _with_plain_float(value: Any) -> Any:
    """A symbol for a float as the number that it is in this capture."""
    if type(value) is not torch.SymFloat:
        return value
    return value.node.shape_env.evaluate_sym_node(value.node)


def _is_no_change(tensor: torch.Tensor, requires_grad: bool = True) -> bool:
    if tensor.requires_grad != requires_grad:
        return False
    return not (requires_grad and tensor._is_view() and _leads_nowhere(tensor))


def _leads_nowhere(view: torch.Tensor) -> bool:
    """Whether it was made without gradients, and only says that it requires one, as its base."""
    try:
        get_gradient_edge(view)
    except (RuntimeError, ValueError):
        return True
    return False


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
        if types and not all(issubclass(kind, torch.Tensor) for kind in types):
            if not self.recorder.suspended:
                with self:
                    return self.recorder.ask(func, types, args, kwargs)
        kwargs = kwargs or {}
        if self.recorder.suspended:
            return func(*args, **kwargs)
        func = replaced.running(func)
        name = operation_name(func)
        cls = None
        if self.recorder.kinds:
            cls, asks = self.recorder.dispatch(args, kwargs)
            if asks:
                with self:  # which torch has left for the time of this method
                    return self.recorder.override(func, cls, args, kwargs)
        elif self.recorder.modes:
            self.recorder.asked = False
        if name in METADATA:
            if name in UNGUARDED:
                return self.recorder.metadata(name, args[0])
            found = func(*args, **kwargs)
            if not isinstance(found, torch.Tensor):
                return found
        if name in _MODES:
            found = func(*args, **kwargs)
            self.recorder.scope.graph.call_function(func, args, kwargs)
            self.recorder.switched = True
            return found
        captured = name == "item" and self.recorder.captures_numbers
        if captured and (known := held.read(self.recorder, func, args[0])):
            return known[0]
        if name in DATA_DEPENDENT and not captured:
            if name in _READ and (known := self.recorder.known(func, args, kwargs)):
                return known[0]
            raise Break("data-dependent-value", f"Tensor.{name}")
        if name in NOT_MODELLED or is_setter(func):
            if name == "grad_fn" and self.recorder.metadata("is_leaf", args[0]):
                return None
            if name == "requires_grad_" and _is_no_change(args[0], *args[1:], **kwargs):
                return args[0]
            raise Break("operation-not-modelled", name)
        if name == "__iter__":
            return iter(args[0].unbind(0))
        if name == "tensor" and _holds_tensor(args):
            raise Break("operation-not-modelled", name)
        grows = bool(kwargs.get("requires_grad"))
        if grows:
            if self.recorder.scope.outer is not None or self.recorder.kinds:
                raise Break("operation-not-modelled", f"{name} makes a tensor that requires grad")
            kwargs = {key: value for key, value in kwargs.items() if key != "requires_grad"}
        if name in held.SIZED and self.recorder.fake_mode.shape_env is not None:
            args, kwargs = held.as_numbers(self.recorder, name, args, kwargs)
        if self.recorder.scope.outer is not None:
            self.recorder.lift((*args, *kwargs.values()))
        sizes = _sizes(kwargs["out"]) if "out" in kwargs else []
        shows = _WARNINGS["_showwarnmsg"]
        try:
            said: list[warnings.WarningMessage] = []  # by the graph's run again
            _WARNINGS["_showwarnmsg"] = said.append
            if self.recorder.filtered:
                _WARNINGS["_showwarnmsg"] = shows
                result = _unwarned(name, func, args, kwargs)
            elif name == "__getitem__" and self.recorder.element_indices:
                with indices_as_tensors():
                    result = func(*args, **kwargs)
            elif name in _COMPOSED_IN_PYTHON:
                with enable_python_dispatcher():
                    result = func(*args, **kwargs)
            else:
                result = func(*args, **kwargs)
                if func in RULES:
                    result = laid(func, result, args, kwargs)
        except UNKNOWN_VALUES as error:
            plain = held.as_known(self.recorder, name, args, kwargs)
            if plain is not None:
                return self.__torch_function__(func, types, *plain)
            row = "data-dependent-value"
            if not isinstance(error, DataDependentOutputException):
                row = "data-dependent-shape"
            raise Break(row, name) from error
        except Exception as error:
            # Some rules of torch.func hand numbers on as tensors, which symbols cannot be.
            given = [*args, *kwargs.values()]
            if _transforms() is not None and torch.SymFloat in map(type, given):
                args = tuple(map(_with_plain_float, args))
                kwargs = {key: _with_plain_float(value) for key, value in kwargs.items()}
                return self.__torch_function__(func, types, args, kwargs)
            raise Break("fake-op-raised", f"{name}: {error}".split("\n")[0]) from error
        finally:
            _WARNINGS["_showwarnmsg"] = shows
        if sizes and _sizes(kwargs["out"]) != sizes and self._is_seen_elsewhere(kwargs["out"]):
            raise Restart(self.recorder.step(), "operation-not-modelled", f"{name} resizes its out")
        if said and self.recorder.is_heard():
            raise Break("io", f"{name} warns where the program records warnings")
        if result is NotImplemented:
            return result
        if _holds_tensor((result,)) or _holds_tensor(args) or _holds_tensor(kwargs.values()):
            if self.recorder.floats:
                self.recorder.check_floats(name, args, kwargs, result)
            self.recorder.check(name, result)
            self.recorder.record(func, args, kwargs, result)
        if cls is not None:
            self.recorder.convert(func, result, cls)
        if grows:
            leaves.grow(self.recorder, result, f"{name} makes a tensor that requires grad")
        return result

    def _is_seen_elsewhere(self, out: Any) -> bool:
        """Whether ``out``, which gets new memory, is an input or shares its memory with another."""
        with torch._C.DisableTorchFunction():
            given = {id(t): t.untyped_storage()._cdata for t in _tensors(out)}
            if not self.recorder.inputs.keys().isdisjoint(given):
                return True
            storages = set(given.values())
            return any(
                isinstance(t, FakeTensor)
                and id(t) not in given
                and t.untyped_storage()._cdata in storages
                for t in self.recorder.keep
            )


def _sizes(out: Any) -> list[torch.Size]:
    with torch._C.DisableTorchFunction():
        return [t.shape for t in _tensors(out)]


class indices_as_tensors(TorchFunctionMode):
    """In it ``x[i]`` does not ask for the value of a tensor ``i`` of one element."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            x, index = args
            parts = index if isinstance(index, tuple) else (index,)
            if all(isinstance(part, torch.Tensor) or type(part) is int for part in parts):
                places = [
                    part if isinstance(part, torch.Tensor) else torch.tensor(part, device=x.device)
                    for part in parts
                ]
                return torch.ops.aten.index.Tensor(x, places)
        return func(*args, **(kwargs or {}))


def innermost(value: torch.Tensor) -> torch.Tensor:
    """The tensor inside the wrappers that function transformations put around it."""
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value


def _is_printable(value: complex) -> bool:
    """Whether ``repr`` gives an expression for it: not for ``-0.0`` and ``infj``."""
    return math.isfinite(value.imag) and "-0.0" not in (str(value.real), str(value.imag))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def _holds_tensor(values: Any) -> bool:
    for value in values:
        if isinstance(value, torch.Tensor):
            return True
        if isinstance(value, (tuple, list)) and _holds_tensor(value):
            return True
        if isinstance(value, dict) and _holds_tensor(value.values()):
            return True
    return False
