"""The global state of torch, which one guard of each plan fixes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._device import DeviceContext


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


#: How explanations call the fields, and what they call the two values of those that are flags.
_SHOWN: dict[str, tuple[str, tuple[str, str]]] = {
    "grad": ("grad mode", ("off", "on")),
    "inference": ("inference mode", ("off", "on")),
    "autocast": ("autocast", ("off", "on")),
    "dtype": ("default dtype", ("", "")),
    "deterministic": ("deterministic algorithms", ("off", "on")),
    "function_modes": ("torch function modes", ("", "")),
    "dispatch_modes": ("torch dispatch modes", ("", "")),
    "functorch": ("function transformations", ("active", "none")),
    "autocast_settings": ("autocast settings", ("", "")),
    "default_devices": ("default devices", ("", "")),
}


def difference(want: Ambient, found: Ambient) -> tuple[str, str]:
    """What of ``want`` is otherwise in ``found``, in words, and what it is there."""
    names = [name for name in _SHOWN if getattr(want, name) != getattr(found, name)]
    return tuple(", ".join([_shown(state, name) for name in names]) for state in (want, found))  # type: ignore[return-value]


def _shown(state: Ambient, name: str) -> str:
    title, flags = _SHOWN[name]
    value = getattr(state, name)
    if isinstance(value, bool):
        value = flags[value]
    elif isinstance(value, tuple):
        value = " ".join(map(str, value)) or "none"
    return f"{title} {value}"


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


def modes_text(want: Ambient, constant: Callable[[Any], str]) -> str:
    """What has to hold before anything is asked of a tensor: a mode would see the question."""
    text = f"len_function_modes() == {want.function_modes}"
    if want.function_modes:
        text += f" and default_devices() == {constant(want.default_devices)}"
    return text


def settings_text(want: Ambient, constant: Callable[[Any], str]) -> str:
    """The rest of the state."""
    text = (
        f"is_grad_enabled() is {want.grad} and is_inference_mode_enabled() is {want.inference} "
        f"and is_any_autocast_enabled() is {want.autocast} "
        f"and get_default_dtype() is {constant(want.dtype)} "
        f"and get_deterministic() is {want.deterministic} "
        f"and len_dispatch_modes() == {want.dispatch_modes} "
        f"and (peek_functorch() is None) is {want.functorch}"
    )
    if want.autocast:
        text += f" and autocast_settings() == {constant(want.autocast_settings)}"
    return text


def ambient_text(v: str, want: Ambient, constant: Callable[[Any], str]) -> str:
    return f"{modes_text(want, constant)} and {settings_text(want, constant)}"


#: What the texts name.
NAMES: dict[str, Any] = {
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
}
