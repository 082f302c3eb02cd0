"""Soundness: one thing changes between two calls, and the answer has to change with it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.cpu.guards.history import Compile, attempt, check

# ---- modules: every change, reached in every way ------------------------------------------------


class Scale(nn.Module):
    """A class attribute, a property, an instance attribute, a buffer and a parameter, all read."""

    offset = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.1, 2.1, 3.1]))
        self.register_buffer("shift", torch.tensor([0.25, 0.5, 0.75]))
        self.factor = 2
        self.note = None

    @property
    def gain(self) -> float:
        return 1.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight + self.shift
        if self.note is not None:
            y = y + 100
        return self.finish(y * self.factor + self.offset * self.gain)

    def finish(self, y: torch.Tensor) -> torch.Tensor:
        return y


class Scale2(Scale):
    def finish(self, y: torch.Tensor) -> torch.Tensor:
        return y - 7


class Leaf(nn.Module):
    """What the changes are made to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.drop = nn.Dropout(0.5)
        self.scale = Scale()
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.table = nn.ModuleDict({"a": nn.Linear(3, 3)})
        self.act = torch.tanh
        self.extra: Any = None
        self.options = {"bias": 1.0, "on": True}
        self.powers = [1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.norm(self.linear(x)))
        y = self.act(self.scale(y))
        for layer in self.layers:
            y = layer(y)
        for name, layer in self.table.items():
            y = y + len(name) * layer(y)
        for power in self.powers:
            y = y + power
        if self.options["on"]:
            y = y + self.options["bias"]
        if self.extra is not None:
            y = y * self.extra
        return y


class Nest(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def _seeded(cls: type[nn.Module], *args: Any) -> nn.Module:
    torch.manual_seed(3)
    return cls(*args)


def _linear(value: float) -> nn.Linear:
    made = nn.Linear(3, 3)
    with torch.no_grad():
        made.weight.fill_(value)
        made.bias.fill_(value)
    return made


CHANGES: dict[str, Callable[[Leaf], Any]] = {}


def change(function: Callable[[Leaf], Any]) -> Callable[[Leaf], Any]:
    """A change to a leaf; a function that it returns undoes what outlives the leaf."""
    CHANGES[function.__name__.strip("_")] = function
    return function


def _patched(owner: Any, name: str, value: Any) -> Callable[[], None]:
    had = name in vars(owner)
    old = vars(owner).get(name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, old) if had else delattr(owner, name)


@change
def _eval(leaf: Leaf) -> None:
    leaf.eval()


@change
def _eval_of_one_child(leaf: Leaf) -> None:
    leaf.drop.eval()


@change
def _child_swapped_same_class(leaf: Leaf) -> None:
    leaf.linear = _linear(0.5)


@change
def _child_swapped_other_class(leaf: Leaf) -> None:
    leaf.norm = nn.Identity()


@change
def _child_swapped_subclass(leaf: Leaf) -> None:
    leaf.scale = Scale2()


@change
def _child_deleted_and_made_an_attribute(leaf: Leaf) -> None:
    del leaf.norm
    object.__setattr__(leaf, "norm", torch.sin)


@change
def _child_shadowed_in_dict(leaf: Leaf) -> None:
    leaf.__dict__["linear"] = torch.sin


@change
def _parameter_shadowed_in_dict(leaf: Leaf) -> None:
    leaf.scale.__dict__["weight"] = 5.0


@change
def _method_shadowed_in_dict(leaf: Leaf) -> None:
    leaf.scale.__dict__["finish"] = torch.sin


@change
def _forward_hook(leaf: Leaf) -> None:
    leaf.linear.register_forward_hook(lambda module, args, out: out * 3)


@change
def _forward_hook_with_kwargs(leaf: Leaf) -> None:
    leaf.linear.register_forward_hook(lambda m, args, kwargs, out: out * 3, with_kwargs=True)


@change
def _forward_pre_hook(leaf: Leaf) -> None:
    leaf.linear.register_forward_pre_hook(lambda module, args: (args[0] * 3,))


@change
def _hook_on_the_leaf_itself(leaf: Leaf) -> None:
    leaf.register_forward_hook(lambda module, args, out: out * 3)


@change
def _global_forward_hook(leaf: Leaf) -> Callable:
    hook = lambda module, args, out: out * 2 if isinstance(module, nn.Linear) else None  # noqa: E731
    return nn.modules.module.register_module_forward_hook(hook).remove


@change
def _global_forward_pre_hook(leaf: Leaf) -> Callable:
    hook = lambda module, args: (args[0] * 2,) if isinstance(module, nn.Linear) else None  # noqa: E731
    return nn.modules.module.register_module_forward_pre_hook(hook).remove


@change
def _new_parameter_in_an_empty_slot(leaf: Leaf) -> None:
    leaf.extra = nn.Parameter(torch.full((3,), 2.0))  # replaces the plain attribute


@change
def _parameter_replaced(leaf: Leaf) -> None:
    leaf.linear.weight = nn.Parameter(torch.eye(3))


@change
def _parameter_replaced_by_none(leaf: Leaf) -> None:
    leaf.linear.bias = None


@change
def _parameter_filled(leaf: Leaf) -> None:
    with torch.no_grad():
        leaf.linear.weight.fill_(0.25)


@change
def _parameter_data_replaced(leaf: Leaf) -> None:
    leaf.scale.weight.data = torch.tensor([3.0, 2.0, 1.0])


@change
def _parameter_data_of_other_shape(leaf: Leaf) -> None:
    leaf.scale.weight.data = torch.tensor([3.0])


@change
def _parameter_data_of_other_stride(leaf: Leaf) -> None:
    leaf.linear.weight.data = torch.arange(9.0).reshape(3, 3).t()


@change
def _parameter_data_of_other_dtype(leaf: Leaf) -> None:
    leaf.scale.weight.data = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    leaf.act = lambda y: torch.tanh(y).float()


@change
def _buffer_replaced(leaf: Leaf) -> None:
    leaf.scale.shift = torch.tensor([9.0, 8.0, 7.0])


@change
def _buffer_of_other_shape(leaf: Leaf) -> None:
    leaf.scale.shift = torch.tensor([[9.0, 8.0, 7.0], [1.0, 2.0, 3.0]])


@change
def _buffer_becomes_a_parameter(leaf: Leaf) -> None:
    del leaf.scale.shift
    leaf.scale.shift = nn.Parameter(torch.tensor([9.0, 8.0, 7.0]))


@change
def _double(leaf: Leaf) -> None:
    leaf.double()


@change
def _bfloat16_of_one_child(leaf: Leaf) -> None:
    leaf.scale.bfloat16()
    leaf.act = lambda y: torch.tanh(y).float()


@change
def _requires_grad_off(leaf: Leaf) -> None:
    leaf.requires_grad_(False)


@change
def _requires_grad_off_and_no_input_needs_it(leaf: Leaf) -> None:
    for parameter in leaf.parameters():
        parameter.requires_grad_(False)


@change
def _method_patched_on_the_instance(leaf: Leaf) -> None:
    leaf.scale.finish = lambda y: y * 11


@change
def _forward_patched_on_the_instance(leaf: Leaf) -> None:
    leaf.linear.forward = lambda y: y * 11


@change
def _method_patched_on_the_class(leaf: Leaf) -> Callable:
    return _patched(Scale, "finish", lambda self, y: y * 11)


@change
def _forward_patched_on_the_class(leaf: Leaf) -> Callable:
    return _patched(Scale, "forward", lambda self, y: y * 11)


@change
def _forward_patched_on_a_base_class(leaf: Leaf) -> Callable:
    return _patched(nn.Module, "__call__", lambda self, y: y * 11)


@change
def _class_attribute(leaf: Leaf) -> Callable:
    return _patched(Scale, "offset", 4.5)


@change
def _class_attribute_shadowed_by_the_instance(leaf: Leaf) -> None:
    leaf.scale.offset = 4.5


@change
def _property_replaced(leaf: Leaf) -> Callable:
    return _patched(Scale, "gain", property(lambda self: 21.0))


@change
def _property_becomes_a_constant(leaf: Leaf) -> Callable:
    return _patched(Scale, "gain", 21.0)


@change
def _instance_attribute_becomes_a_property(leaf: Leaf) -> Callable:
    return _patched(Scale, "factor", property(lambda self: 13, lambda self, value: None))


@change
def _class_reassigned(leaf: Leaf) -> None:
    leaf.scale.__class__ = Scale2


@change
def _getattribute_added_to_the_class(leaf: Leaf) -> Callable:
    def getattribute(self: Any, name: str) -> Any:
        return 17 if name == "factor" else object.__getattribute__(self, name)

    return _patched(Scale, "__getattribute__", getattribute)


@change
def _getattr_patched_on_the_class(leaf: Leaf) -> Callable:
    def fallback(self: Any, name: str) -> Any:
        found = nn.Module.__getattr__(self, name)
        return found * 2 if name == "weight" else found

    return _patched(Scale, "__getattr__", fallback)


@change
def _code_of_a_method_replaced(leaf: Leaf) -> Callable:
    old = Scale.finish.__code__
    Scale.finish.__code__ = (lambda self, y: y * 19).__code__
    return lambda: setattr(Scale.finish, "__code__", old)


@change
def _attribute_number(leaf: Leaf) -> None:
    leaf.scale.factor = 3


@change
def _attribute_int_to_float(leaf: Leaf) -> None:
    leaf.scale.factor = 2.5


@change
def _attribute_none_to_value(leaf: Leaf) -> None:
    leaf.scale.note = "x"


@change
def _attribute_deleted(leaf: Leaf) -> None:
    del leaf.scale.factor
    leaf.scale.register_buffer("factor", torch.tensor(4.0))


@change
def _epsilon(leaf: Leaf) -> None:
    leaf.norm.eps = 0.5


@change
def _activation(leaf: Leaf) -> None:
    leaf.act = torch.sigmoid


@change
def _dropout_probability(leaf: Leaf) -> None:
    leaf.drop.p = 0.0


@change
def _layer_appended(leaf: Leaf) -> None:
    leaf.layers.append(_linear(0.5))


@change
def _layer_replaced(leaf: Leaf) -> None:
    leaf.layers[0] = _linear(0.5)


@change
def _layer_removed(leaf: Leaf) -> None:
    del leaf.layers[0]


@change
def _layer_renamed(leaf: Leaf) -> None:
    leaf.table["long"] = leaf.table.pop("a")


@change
def _layer_added_to_the_dict(leaf: Leaf) -> None:
    leaf.table["b"] = _linear(0.5)


@change
def _option_value(leaf: Leaf) -> None:
    leaf.options["bias"] = 3.0


@change
def _option_flag(leaf: Leaf) -> None:
    leaf.options["on"] = False


@change
def _options_replaced(leaf: Leaf) -> None:
    leaf.options = {"on": 1, "bias": 6.0}


@change
def _list_item(leaf: Leaf) -> None:
    leaf.powers[1] = 5


@change
def _list_length(leaf: Leaf) -> None:
    leaf.powers.append(5)


@change
def _list_to_tuple_of_floats(leaf: Leaf) -> None:
    leaf.powers = (1.5, 2.5)


@change
def _linear_functional_patched(leaf: Leaf) -> Callable:
    return _patched(nn.functional, "linear", lambda x, w, b=None: x * 23)


def _reach_module(leaf: Leaf, compile: Compile) -> Callable:
    return compile(leaf)


def _nested(depth: int) -> Callable:
    def reach(leaf: Leaf, compile: Compile) -> Callable:
        model: nn.Module = leaf
        for _ in range(depth):
            model = Nest(model)
        return compile(model)

    return reach


def _reach_sequential(leaf: Leaf, compile: Compile) -> Callable:
    return compile(nn.Sequential(nn.Identity(), leaf))


def _reach_closure(leaf: Leaf, compile: Compile) -> Callable:
    return compile(lambda x: leaf(x) + 1)


def _reach_global(leaf: Leaf, compile: Compile) -> Callable:
    scope: dict[str, Any] = {"model": leaf, "__name__": "program"}
    exec("def run(x):\n    return model(x) + 1", scope)
    return compile(scope["run"])


def _reach_default(leaf: Leaf, compile: Compile) -> Callable:
    def run(x: torch.Tensor, model: nn.Module = leaf) -> torch.Tensor:
        return model(x) + 1

    return compile(run)


def _reach_argument(leaf: Leaf, compile: Compile) -> Callable:
    run = compile(lambda x, model: model(x) + 1)
    return lambda x: run(x, leaf)


def _reach_container(leaf: Leaf, compile: Compile) -> Callable:
    run = compile(lambda x, models: models["all"][0](x) + 1)
    models = {"all": [leaf]}
    return lambda x: run(x, models)


def _reach_keywords(leaf: Leaf, compile: Compile) -> Callable:
    run = compile(lambda *args, **kwargs: kwargs["model"](*args) + 1)
    return lambda x: run(x, model=leaf)


def _reach_callable_object(leaf: Leaf, compile: Compile) -> Callable:
    class Runner:
        def __init__(self) -> None:
            self.model = leaf

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x) + 1

    return compile(Runner())


def _reach_bound_method(leaf: Leaf, compile: Compile) -> Callable:
    return compile(leaf.forward)


def _reach_partial(leaf: Leaf, compile: Compile) -> Callable:
    return compile(functools.partial(lambda model, x: model(x) + 1, leaf))


REACH: dict[str, Callable[[Leaf, Compile], Callable]] = {
    "module": _reach_module,
    "depth1": _nested(1),
    "depth3": _nested(3),
    "sequential": _reach_sequential,
    "closure": _reach_closure,
    "global": _reach_global,
    "default": _reach_default,
    "argument": _reach_argument,
    "container": _reach_container,
    "keywords": _reach_keywords,
    "callable": _reach_callable_object,
    "method": _reach_bound_method,
    "partial": _reach_partial,
}
#: Changes that show only where the module itself is called.
_NEEDS_CALL = {"hook_on_the_leaf_itself"}
_ALL_REACHES = {"module"}


def _module_cases() -> list[Any]:
    """The module itself meets every change, and each change one of the other ways to reach it."""
    cases = []
    for j, how in enumerate(REACH):
        for i, name in enumerate(CHANGES):
            if how == "method" and name in _NEEDS_CALL:
                continue
            if how in _ALL_REACHES or (i + j) % (len(REACH) - 1) == 0:
                cases.append(pytest.param(how, name, id=f"{how}-{name}"))
    return cases


@pytest.mark.parametrize(("how", "name"), _module_cases())
def test_module_change_is_noticed(how: str, name: str) -> None:
    def program(compile: Compile) -> Iterator[Any]:
        leaf = _seeded(Leaf)
        undo = None
        model = REACH[how](leaf, compile)
        x = torch.arange(6.0).reshape(2, 3)
        try:
            for _ in range(2):
                torch.manual_seed(1)
                yield attempt(model, x)
            undo = CHANGES[name](leaf)
            for _ in range(2):
                torch.manual_seed(1)
                if name == "double":
                    yield attempt(model, x.double())
                else:
                    yield attempt(model, x)
        finally:
            if undo is not None:
                undo()
        if undo is not None:
            torch.manual_seed(1)
            yield attempt(model, x)

    played = check(program)
    assert played.steps >= 4
    assert not played.fallbacks


def test_the_matrix_is_not_empty() -> None:
    assert len(CHANGES) >= 60
    assert len(_module_cases()) >= 2 * len(CHANGES) - 1
