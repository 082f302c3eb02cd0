"""What each guard kind checks: as Python text for the generated guards, and as a function.

One entry per row of :data:`specs.guards.GUARDS`. The generated text is what runs at each entry;
``check`` is the plain meaning, which explains failures and which the text is tested against.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from refcompiler.guards.sources import Source
from specs.guards import GUARDS


class Guard(NamedTuple):
    """``place`` is the user's (file, line) whose execution recorded the guard."""

    kind: str
    source: Source | None
    expected: Any
    place: tuple[str, int]

    def explain(self, value: Any) -> str:
        """The sentence for this guard when it fails on ``value``."""
        rule = KINDS[self.kind]
        text = GUARDS[self.kind].explain.format(
            source=self.source, expected=rule.show(self.expected), found=rule.found(value)
        )
        return f"{text} (guarded at {self.place[0]}:{self.place[1]})"


@dataclass(frozen=True)
class Kind:
    """``text(value, expected, constant)`` is the condition as Python over the value's name."""

    text: Callable[[str, Any, Callable[[Any], str]], str]
    check: Callable[[Any, Any], bool]
    show: Callable[[Any], str] = repr
    found: Callable[[Any], str] = lambda value: _short(value)


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # a repr of the user's may raise anything; the guard's report must not
        text = object.__repr__(value)
    return text if len(text) < 120 else text[:117] + "..."


class TensorMeta(NamedTuple):
    """What a TENSOR guard expects."""

    cls: type
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    device: torch.device
    requires_grad: bool
    conj: bool
    neg: bool

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorMeta:
        return TensorMeta(
            type(tensor),
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
            tensor.device,
            tensor.requires_grad,
            tensor.is_conj(),
            tensor.is_neg(),
        )

    def __str__(self) -> str:
        return (
            f"{self.cls.__name__}(dtype={self.dtype}, shape={tuple(self.shape)}, "
            f"stride={self.stride}, device={self.device}, requires_grad={self.requires_grad}"
            + (", conj" if self.conj else "")
            + (", neg" if self.neg else "")
            + ")"
        )


def _tensor_text(v: str, want: TensorMeta, constant: Callable[[Any], str]) -> str:
    parts = [
        f"type({v}) is {constant(want.cls)}",
        f"{v}.dtype is {constant(want.dtype)}",
        f"{v}.shape == {constant(want.shape)}",
        f"{v}.stride() == {constant(want.stride)}",
        f"{v}.requires_grad is {want.requires_grad}",
        f"{v}.device == {constant(want.device)}",
    ]
    if want.dtype.is_complex:
        parts.append(f"{v}.is_conj() is {want.conj}")
    if want.dtype.is_floating_point or want.dtype.is_complex:
        parts.append(f"{v}.is_neg() is {want.neg}")
    return " and ".join(parts)


def _tensor_check(value: Any, want: TensorMeta) -> bool:
    return isinstance(value, torch.Tensor) and TensorMeta.of(value) == want


def _equals_text(v: str, want: Any, constant: Callable[[Any], str]) -> str:
    kind = type(want)
    if want is None or kind is bool or want is ... or want is NotImplemented:
        return f"{v} is {want!r}"
    if kind is float and math.isnan(want):
        return f"type({v}) is float and {v} != {v}"
    if kind is float and want == 0.0:
        return (
            f"type({v}) is float and {v} == 0.0 and copysign(1.0, {v}) == "
            f"{math.copysign(1.0, want)}"
        )
    if kind in (int, str):
        return f"type({v}) is {kind.__name__} and {v} == {constant(want)}"
    if kind is complex or kind is float:
        return f"type({v}) is {kind.__name__} and repr({v}) == {constant(repr(want))}"
    return f"type({v}) is {constant(kind)} and {v} == {constant(want)}"


def _equals_check(value: Any, want: Any) -> bool:
    if type(value) is not type(want):
        return False
    if isinstance(want, (float, complex)):
        return repr(value) == repr(want)
    return bool(value == want)


class Ambient(NamedTuple):
    """The global state of torch that changes what a captured program means."""

    grad: bool
    inference: bool
    autocast: bool
    dtype: torch.dtype
    deterministic: bool
    function_modes: int
    dispatch_modes: int
    functorch: bool
    autocast_settings: tuple

    @staticmethod
    def now() -> Ambient:
        autocast = torch._C._is_any_autocast_enabled()
        return Ambient(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            autocast,
            torch.get_default_dtype(),
            torch._C._get_deterministic_algorithms(),
            torch._C._len_torch_function_stack(),
            torch._C._len_torch_dispatch_stack(),
            torch._C._functorch.peek_interpreter_stack() is None,
            autocast_settings() if autocast else (),
        )


def autocast_settings() -> tuple:
    """Which device types autocast is on for, and to which dtype."""
    return tuple(
        (device, torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    ) + (torch.is_autocast_cache_enabled(),)


def _ambient_text(v: str, want: Ambient, constant: Callable[[Any], str]) -> str:
    text = (
        f"is_grad_enabled() is {want.grad} and is_inference_mode_enabled() is {want.inference} "
        f"and is_any_autocast_enabled() is {want.autocast} "
        f"and get_default_dtype() is {constant(want.dtype)} "
        f"and get_deterministic() is {want.deterministic} "
        f"and len_function_modes() == {want.function_modes} "
        f"and len_dispatch_modes() == {want.dispatch_modes} "
        f"and (peek_functorch() is None) is {want.functorch}"
    )
    if want.autocast:
        text += f" and autocast_settings() == {constant(want.autocast_settings)}"
    return text


KINDS: dict[str, Kind] = {
    "TYPE": Kind(
        lambda v, want, c: f"type({v}) is {c(want)}",
        lambda value, want: type(value) is want,
        found=lambda value: repr(type(value)),
    ),
    "ID": Kind(
        lambda v, want, c: f"{v} is {c(want)}", lambda value, want: value is want, show=_short
    ),
    "EQUALS": Kind(_equals_text, _equals_check, show=_short),
    "NONE": Kind(lambda v, want, c: f"{v} is None", lambda value, want: value is None),
    "NOT_NONE": Kind(
        lambda v, want, c: f"{v} is not None", lambda value, want: value is not None
    ),
    "LENGTH": Kind(
        lambda v, want, c: f"len({v}) == {want}",
        lambda value, want: len(value) == want,
        found=lambda value: str(len(value)),
    ),
    "TRUTH": Kind(
        lambda v, want, c: v if want else f"not {v}",
        lambda value, want: bool(value) is want,
        found=lambda value: str(bool(value)),
    ),
    "KEYS": Kind(
        lambda v, want, c: f"tuple({v}) == {c(want)}",
        lambda value, want: (
            tuple(value) == want and [type(k) for k in value] == [type(k) for k in want]
        ),
        show=_short,
        found=lambda value: _short(tuple(value)),
    ),
    "HAS": Kind(
        lambda v, want, c: f"dict_contains({v}, {c(want)})",
        lambda value, want: want in value,
        found=lambda value: _short(list(value)),
    ),
    "ABSENT": Kind(
        lambda v, want, c: f"{c(want)} not in {v}",
        lambda value, want: want not in value,
        found=lambda value: _short(list(value)),
    ),
    "LACKS": Kind(
        lambda v, want, c: f"not dict_contains({v}, {c(want)})",
        lambda value, want: not dict.__contains__(value, want),
        found=lambda value: _short(list(dict.keys(value))),
    ),
    # Attributes of classes are seldom added, so the length answers nearly always.
    "WITHOUT": Kind(
        lambda v, want, c: (
            f"len({v}) == {len(want[0])} or {c(frozenset(want[1]))}.isdisjoint({v})"
        ),
        lambda value, want: want[1].isdisjoint(value),
        show=lambda want: ", ".join(sorted(want[1])),
        found=lambda value: _short(list(value)),
    ),
    "CODE": Kind(
        lambda v, want, c: f"{v}.__code__ is {c(want[0])} and {v}.__globals__ is {c(want[1])}",
        lambda value, want: value.__code__ is want[0] and value.__globals__ is want[1],
        show=lambda want: _short(want[0]),
        found=lambda value: _short(getattr(value, "__code__", value)),
    ),
    "TENSOR": Kind(
        _tensor_text,
        _tensor_check,
        show=str,
        found=lambda value: (
            str(TensorMeta.of(value)) if isinstance(value, torch.Tensor) else _short(value)
        ),
    ),
    # ``expected`` is a source; the generated guards give ``text`` the name of its value.
    "SAME": Kind(lambda v, want, c: f"{v} is {want}", lambda v, want: v is want, show=str),
    "DISTINCT": Kind(
        lambda v, want, c: f"{v} is not {want}", lambda v, want: v is not want, show=str
    ),
    "UNIQUE": Kind(
        lambda v, want, c: f"len({{{', '.join(f'id({w})' for w in want)}}}) == {len(want)}",
        lambda value, want: len({id(w) for w in want}) == len(want),
        show=lambda want: ", ".join(map(str, want)),
        found=lambda value: "one object twice",
    ),
    "AMBIENT": Kind(
        _ambient_text,
        lambda value, want: Ambient.now() == want,
        show=str,
        found=lambda value: str(Ambient.now()),
    ),
}

#: What the generated guards may name.
NAMESPACE: dict[str, Any] = {
    "copysign": math.copysign,
    "is_grad_enabled": torch.is_grad_enabled,
    "is_inference_mode_enabled": torch.is_inference_mode_enabled,
    "is_any_autocast_enabled": torch._C._is_any_autocast_enabled,
    "get_default_dtype": torch.get_default_dtype,
    "get_deterministic": torch._C._get_deterministic_algorithms,
    "len_function_modes": torch._C._len_torch_function_stack,
    "len_dispatch_modes": torch._C._len_torch_dispatch_stack,
    "peek_functorch": torch._C._functorch.peek_interpreter_stack,
    "autocast_settings": autocast_settings,
    "dict_getitem": dict.__getitem__,
    "dict_contains": dict.__contains__,
}
