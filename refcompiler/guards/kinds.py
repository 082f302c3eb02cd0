"""What each guard kind checks: as Python text for the generated guards, and as a function.

One entry per row of :data:`specs.guards.GUARDS`. The generated text is what runs at each entry;
``check`` is the plain meaning, which explains failures and which the text is tested against.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType
from typing import Any, NamedTuple

import torch
from torch.utils._device import DeviceContext

from refcompiler.guards.iterators import Ahead, apart, fed, shape
from refcompiler.guards.sizes import (
    relation_check,
    relation_found,
    relation_text,
    sized_check,
    sized_text,
    wanted,
)
from refcompiler.guards.sources import NOT_SET, Source, array_tensor, namespace_of, plain_tensor
from refcompiler.interpreter.continued import suspension
from refcompiler.interpreter.generators import activation_of
from refcompiler.shapes.text import NAMES
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
        try:
            found = rule.found(value)
        except Exception:  # it is of another kind altogether
            found = _short(value)
        text = GUARDS[self.kind].explain.format(
            source=self.source, expected=rule.show(self.expected), found=found
        )
        return f"{text} (guarded at {self.place[0]}:{self.place[1]})" if self.place[0] else text

    def wanted(self, read: Callable[[Source], Any]) -> Any:
        """``expected`` with each source replaced by what ``read`` gives for it."""
        if self.kind in ("SAME", "DISTINCT"):
            return read(self.expected)
        if self.kind in ("UNIQUE", "SEPARATE"):
            return [read(source) for source in self.expected]
        if self.kind == "STORAGE":
            return [read(source) for source in self.expected[0]], self.expected[1]
        if self.kind == "APART":
            return tuple([[read(source) for source in sources] for sources in self.expected])
        if self.kind in ("SIZED", "RELATION"):
            return wanted(self.expected, read)
        return self.expected


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


def _name(function: Any) -> str:
    return getattr(function, "__name__", None) or _short(function)


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
    if want.dtype is not torch.bool:
        parts.append(f"{v}.is_neg() is {want.neg}")
    return " and ".join(parts)


def _tensor_check(value: Any, want: TensorMeta) -> bool:
    return isinstance(value, torch.Tensor) and TensorMeta.of(value) == want


#: Classes whose equal instances are one object.
_SINGLETONS = (bool, torch.dtype, torch.layout, torch.memory_format)


def _equals_text(v: str, want: Any, constant: Callable[[Any], str]) -> str:
    kind = type(want)
    if want is None or want is ... or want is NotImplemented:
        return f"{v} is {want!r}"
    if kind in _SINGLETONS:
        return f"{v} is {constant(want)}"
    if not v.isidentifier() and kind not in _SINGLETONS:  # an expression, to be evaluated once
        return f"same_constant({v}, {constant(want)})"
    if kind is float and math.isnan(want):
        return f"type({v}) is float and {v} != {v}"
    if kind is float and want == 0.0:
        return (
            f"type({v}) is float and {v} == 0.0 and copysign(1.0, {v}) == "
            f"{math.copysign(1.0, want)}"
        )
    if kind in (int, str, bytes, float):
        return f"type({v}) is {kind.__name__} and {v} == {constant(want)}"
    if kind is torch.device or kind is torch.Size:
        return f"type({v}) is {constant(kind)} and {v} == {constant(want)}"
    return f"same_constant({v}, {constant(want)})"


def same_constant(value: Any, want: Any) -> bool:
    """Of one class and equal all the way down, in order: what a program cannot tell apart.

    Floats are equal by their text (NaN equals NaN, 0.0 differs from -0.0), and so are complex
    numbers, ranges (which are equal by their items otherwise) and numpy's scalars.
    """
    kind = type(want)
    if type(value) is not kind:
        return False
    if kind in (set, frozenset, tuple):
        return len(value) == len(want) and all(
            same_constant(a, b) for a, b in zip(value, want, strict=True)
        )
    if kind in (int, str, bytes) or kind in _SINGLETONS:
        return bool(value == want)
    if kind is torch.device or kind is torch.Size:
        return bool(value == want)
    return repr(value) == repr(want)


def _keys_text(v: str, want: tuple, constant: Callable[[Any], str]) -> str:
    if not want:
        return f"not {v}"
    if all(type(key) in (str, int, bytes) for key in want):
        classes = tuple([type(key) for key in want])
        return f"tuple({v}) == {constant(want)} and tuple(map(type, {v})) == {constant(classes)}"
    return f"same_constant(tuple({v}), {constant(want)})"


_FEW = 5  # names that are looked up one by one faster than by what follows


def _without_text(v: str, want: tuple, constant: Callable[[Any], str]) -> str:
    """A namespace with the length it had, and the same last name, has got no new name.

    New names go to the end; only a program that removes the last name and puts it back after
    another one, and removes a third, is not seen.
    """
    namespace, names = want
    if len(names) <= _FEW or not namespace:
        return " and ".join([f"{constant(name)} not in {v}" for name in sorted(names)])
    last = next(reversed(namespace))
    same = f"len({v}) == {len(namespace)} and next(reversed({v})) == {constant(last)}"
    return f"{same} or {constant(frozenset(names))}.isdisjoint({v})"


def _code_text(v: str, want: tuple, constant: Callable[[Any], str]) -> str:
    text = f"{v}.__code__ is {constant(want[0])}"
    return text if want[1] is None else f"{text} and {v}.__globals__ is {constant(want[1])}"


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
    default_devices: tuple

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
            default_devices(),
        )

    @property
    def captures(self) -> bool:
        """Whether a program can be captured in this state.

        Modes of the user's and function transformations see each operation of an eager program,
        which a graph cannot promise; a default device (a mode too) only fills in an argument.
        """
        devices = len(self.default_devices) == self.function_modes
        return (
            devices
            and None not in self.default_devices
            and self.functorch
            and (not self.dispatch_modes)
        )


def default_devices() -> tuple:
    """The devices of the active ``with torch.device(...)``; None for a mode of another kind."""
    modes = [
        torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())
    ]
    return tuple([m.device if type(m) is DeviceContext else None for m in modes])


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
    if want.function_modes:
        text += f" and default_devices() == {constant(want.default_devices)}"
    return text


def is_empty(cell: CellType) -> bool:
    """Whether a closure's variable has no value."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


#: Metadata of a tensor that TENSOR does not hold, guarded when a program reads it.
METADATA = frozenset(
    "is_leaf output_nr storage_offset _is_view is_shared is_pinned retains_grad".split()
    + ["is_inference"]
)
#: Those of them that are methods.
CALLED = frozenset("storage_offset _is_view is_shared is_pinned is_inference".split())


def metadata(tensor: torch.Tensor, name: str) -> Any:
    """One of :data:`METADATA`."""
    with torch._C.DisableTorchFunction():
        found = getattr(tensor, name)
        return found() if name in CALLED else found


def storage_pattern(*tensors: torch.Tensor) -> tuple[int, ...]:
    """For each tensor the place of the first that has the same storage."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(t.untyped_storage()._cdata, i) for i, t in enumerate(tensors)])


def separate(*tensors: torch.Tensor) -> bool:
    """Whether no two of the tensors lie over the same memory, unless they share a storage."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage.data_ptr(), storage.nbytes()
    places = sorted([place for place in storages.values() if place[1]])
    return all(start + size <= after for (start, size), (after, _) in zip(places, places[1:]))


KINDS: dict[str, Kind] = {
    "TYPE": Kind(
        lambda v, want, c: f"type({v}) is {c(want)}",
        lambda value, want: type(value) is want,
        found=lambda value: repr(type(value)),
    ),
    "ID": Kind(
        lambda v, want, c: f"{v} is {c(want)}", lambda value, want: value is want, show=_short
    ),
    "EQUALS": Kind(_equals_text, same_constant, show=_short),
    "NONE": Kind(lambda v, want, c: f"{v} is None", lambda value, want: value is None),
    "NOT_NONE": Kind(lambda v, want, c: f"{v} is not None", lambda value, want: value is not None),
    # reading the value through its source is the check
    "PRESENT": Kind(lambda v, want, c: "True", lambda value, want: True),
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
        _keys_text,
        lambda value, want: same_constant(tuple(value), want),
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
    "WITHOUT": Kind(
        _without_text,
        lambda value, want: want[1].isdisjoint(value),
        show=lambda want: ", ".join(sorted(want[1])),
        found=lambda value: _short(list(value)),
    ),
    "CODE": Kind(
        _code_text,
        lambda value, want: (
            value.__code__ is want[0] and (want[1] is None or value.__globals__ is want[1])
        ),
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
    "SIZED": Kind(
        sized_text,
        lambda value, want: (
            isinstance(value, torch.Tensor) and sized_check(value, want, TensorMeta.of)
        ),
        show=str,
        found=lambda value: (
            str(TensorMeta.of(value)) if isinstance(value, torch.Tensor) else _short(value)
        ),
    ),
    "RELATION": Kind(relation_text, relation_check, show=str, found=relation_found),
    "EMPTY": Kind(
        lambda v, want, c: f"is_empty({v})",
        lambda value, want: is_empty(value),
        found=lambda value: _short(value.cell_contents),
    ),
    "METADATA": Kind(
        lambda v, want, c: f"{v}.{want[0]}{'()' if want[0] in CALLED else ''} == {c(want[1])}",
        lambda value, want: metadata(value, want[0]) == want[1],
        show=lambda want: f"{want[0]} = {want[1]}",
        found=lambda value: ", ".join(
            f"{name} = {metadata(value, name)}" for name in sorted(METADATA)
        ),
    ),
    "STATE": Kind(
        lambda v, want, c: _equals_text(f"{c(want[0])}({', '.join(map(c, want[1]))})", want[2], c),
        lambda value, want: same_constant(want[0](*want[1]), want[2]),
        show=lambda want: f"{_name(want[0])}{want[1]!r} = {want[2]!r}",
        found=lambda value: "another answer",
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
    "STORAGE": Kind(
        lambda v, want, c: f"storage_pattern({', '.join(want[0])}) == {c(want[1])}",
        lambda value, want: storage_pattern(*want[0]) == want[1],
        show=lambda want: f"{', '.join(map(str, want[0]))} in storages {want[1]}",
        found=lambda value: "storages shared in another way",
    ),
    "SEPARATE": Kind(
        lambda v, want, c: f"separate({', '.join(want)})",
        lambda value, want: separate(*want),
        show=lambda want: ", ".join(map(str, want)),
        found=lambda value: "overlapping ones",
    ),
    "SHAPE": Kind(
        lambda v, want, c: f"shape({v}) == {c(want)}",
        lambda value, want: shape(value) == want,
        show=_short,
        found=lambda value: _short(shape(value)),
    ),
    "SUSPENDED": Kind(
        lambda v, want, c: f"suspension({v}) == {c(want)}",
        lambda value, want: suspension(value) == want,
        show=lambda want: f"instruction {want[2]}",
        found=lambda value: f"instruction {(suspension(value) or '???')[2]}",
    ),
    "ENDS": Kind(
        lambda v, want, c: f"{v}.ends({want})",
        lambda value, want: value.ends(want),
        found=lambda value: f"{len(value.items)} or more",
    ),
    "APART": Kind(
        lambda v, want, c: f"apart([{', '.join(want[0])}], [{', '.join(want[1])}])",
        lambda value, want: apart(*want),
        show=lambda want: ", ".join(str(part) for parts in want for part in parts),
        found=lambda value: "one of them inside another",
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
    **NAMES,
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
    "default_devices": default_devices,
    "same_constant": same_constant,
    "is_empty": is_empty,
    "storage_pattern": storage_pattern,
    "Ahead": Ahead,
    "apart": apart,
    "fed": fed,
    "shape": shape,
    "activation_of": activation_of,
    "suspension": suspension,
    "NOT_SET": NOT_SET,
    "dict_getitem": dict.__getitem__,
    "array_tensor": array_tensor,
    "separate": separate,
    "plain_tensor": plain_tensor,
    "namespace_of": namespace_of,
    "dict_contains": dict.__contains__,
    "object_getattribute": object.__getattribute__,
}
