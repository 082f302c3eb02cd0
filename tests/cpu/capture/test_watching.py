"""The judge of capture can fail: what it shall find is put where it shall look."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from refcompiler.capture.values import Lazy
from refcompiler.guards.sources import Sources
from refcompiler.runtime.captures import STATE
from tests.cpu.capture import test_breaks
from tests.cpu.capture.oracle import Call, Case, Cases, check, compiling, differences, run
from tests.cpu.capture.watching import Outside, intruders, touched

HELD: list[Any] = []


class Holder:
    kept: Any = None


def fake() -> torch.Tensor:
    with FakeTensorMode() as mode:
        return mode.from_tensor(torch.ones(2))


def lazy() -> Lazy:
    return Lazy(Sources().make("arg", None, "x"), 1)


def in_a_closure(value: Any) -> Any:
    return lambda: value


def in_a_default(value: Any) -> Any:
    return lambda x=value: x


def in_an_exception(value: Any) -> Any:
    error = ValueError("outer")
    error.__cause__ = KeyError(value)
    return error


def in_a_traceback(value: Any) -> Any:
    try:
        raise ValueError
    except ValueError as error:
        return error


def in_a_generator(value: Any) -> Any:
    def generator() -> Any:
        yield value

    found = generator()
    next(found)
    return found


def in_an_attribute(value: Any) -> Any:
    holder = Holder()
    holder.kept = {"deep": [[[[[[[[[(value,)]]]]]]]]]}
    return holder


def in_a_tensor(value: Any) -> Any:
    tensor = torch.ones(2)
    tensor.note = value  # type: ignore[attr-defined]
    return tensor


class Slotted:
    __slots__ = ("kept",)


def in_a_slot(value: Any) -> Any:
    slotted = Slotted()
    slotted.kept = value  # type: ignore[attr-defined]
    return slotted


def in_a_class(value: Any) -> Any:
    return type("Made", (), {"kept": value, "__module__": __name__})()


def in_a_weak_dict(value: Any) -> Any:
    held = in_an_attribute(value)
    HELD.append(held)
    return weakref.WeakValueDictionary({1: held})


def in_a_coroutine(value: Any) -> Any:
    async def coroutine() -> Any:
        await Waiting()
        return value

    found = coroutine()
    found.send(None)
    return found


class Waiting:
    def __await__(self) -> Any:
        yield 1


def in_an_iterator(value: Any) -> Any:
    return map(functools.partial(max, key=in_a_closure(value)), [1])


def in_a_hook(value: Any) -> Any:
    tensor = torch.ones(2, requires_grad=True)
    tensor.register_hook(in_a_default(value))
    return tensor


class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, value: Any) -> torch.Tensor:
        ctx.value = value
        return tensor * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


def in_a_graph(value: Any) -> Any:
    module = torch.fx.GraphModule({}, torch.fx.Graph())
    module.kept = (value,)
    return module


def in_a_backward(value: Any) -> Any:
    return Keeping.apply(torch.ones(2, requires_grad=True), (value,)) + 1


PLACES = [
    in_a_closure,
    in_a_default,
    in_an_exception,
    in_a_traceback,
    in_a_generator,
    in_an_attribute,
    in_a_tensor,
    in_a_slot,
    in_a_class,
    in_a_weak_dict,
    in_a_coroutine,
    in_an_iterator,
    in_a_hook,
    in_a_graph,
    in_a_backward,
]


@pytest.mark.parametrize("make", [fake, lazy])
@pytest.mark.parametrize("place", PLACES)
def test_what_the_user_holds_is_swept(place: Any, make: Any) -> None:
    try:
        assert intruders([place(torch.ones(2))]) == []
        found = intruders([place(make())])
    finally:
        HELD.clear()
    assert len(found) >= 1 and type(make()).__name__ in found[0]


def test_globals_and_classes_that_a_function_uses_are_swept() -> None:
    def function() -> int:
        return len(HELD) + inner()

    def inner() -> int:
        return Holder.kept

    try:
        assert intruders([touched([function])]) == []
        HELD.append(fake())
        Holder.kept = lazy()
        places = touched([function])
        assert places["global HELD"] is HELD and isinstance(places["Holder.kept"], Lazy)
        assert len(intruders([places])) == 2
    finally:
        HELD.clear()
        Holder.kept = None


def test_what_runs_natively_during_capture_is_listed() -> None:
    outside = Outside()

    def native() -> int:
        return 1

    with outside.watching():
        native()
        assert outside.frames == []
        STATE.capturing = True
        try:
            native()
        finally:
            STATE.capturing = False
    assert len(outside.frames) == 1 and "native (test_watching.py" in outside.frames[0]


def test_what_is_generated_for_a_class_is_listed() -> None:
    @dataclasses.dataclass
    class Made:
        value: int

    outside = Outside()
    with outside.watching():
        STATE.capturing = True
        try:
            Made(1)
        finally:
            STATE.capturing = False
    assert len(outside.frames) == 1 and "__init__" in outside.frames[0]


def test_a_finaliser_during_capture_fails_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(c for c in test_breaks.cases if str(c) == "disabled_function")

    def callback(_: Any) -> None:
        pass

    import refcompiler.runtime.site as site

    plan = site.build

    def build(*args: Any, **kwargs: Any) -> Any:
        holder = Holder()
        weakref.finalize(holder, callback, None)
        del holder
        return plan(*args, **kwargs)

    monkeypatch.setattr(site, "build", build)
    with pytest.raises(AssertionError, match="run natively during capture.*callback"):
        run(case, compiling("eager"))


wrong = Cases()


@wrong()
def called_with_the_same() -> Any:
    return lambda x: x * 2, [(3,), (3,)]


@wrong()
def called_once() -> Any:
    return lambda x: x * 2, [(torch.ones(2),)]


@pytest.mark.parametrize("case", wrong, ids=str)
def test_a_case_calls_again_with_something_changed(case: Case) -> None:
    with pytest.raises(AssertionError, match="call it again with something changed"):
        check(case)


def test_a_second_call_with_the_same_tensors_gets_other_values() -> None:
    def factory() -> Any:
        x = torch.ones(2)
        return (lambda x: x * 1), [(x,), Call(x)]

    found = run(Case(factory, {}), None)
    first, second = (seen["result"][1]["contents"] for seen in found.seen)
    assert (first, second) == ("[1.0, 1.0]", "[1.25, 1.25]")


def test_differences_are_found_at_any_depth() -> None:
    assert list(differences({"a": [1, (2, 3)]}, {"a": [1, (2, 3)]})) == []
    assert len(list(differences({"a": [1, (2, 3)]}, {"a": [1, (2, 4)]}))) == 1
