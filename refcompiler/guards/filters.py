"""``guard_filter_fn``: the user's choice among the guards of a plan, and ready-made ones.

A filter is given a list of :class:`GuardFilterEntry` and returns a list of bools, True for each
guard that stays. Source of names and meanings: torch's documentation of ``guard_filter_fn``; its
ready-made filters take these entries too, and these take torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refcompiler.guards.kinds import Guard
from refcompiler.guards.sources import Source

#: Our kinds by torch's names, where torch has one that means the same; others keep their name.
TORCH_NAMES = {
    "TYPE": "TYPE_MATCH",
    "ID": "ID_MATCH",
    "EQUALS": "EQUALS_MATCH",
    "NONE": "NONE_MATCH",
    "NOT_NONE": "NOT_NONE_MATCH",
    "TENSOR": "TENSOR_MATCH",
    "SIZED": "TENSOR_MATCH",
    "WRAPPER": "TENSOR_MATCH",
    "RELATION": "SHAPE_ENV",
    "AMBIENT": "GLOBAL_STATE",
    "STATE": "GLOBAL_STATE",
    "SAME": "DUPLICATE_INPUT",
    "LENGTH": "SEQUENCE_LENGTH",
    "KEYS": "DICT_KEYS_MATCH",
    "PRESENT": "HASATTR",
    "PLAIN": "HASATTR",
    "ABSENT": "NOT_PRESENT_IN_GENERIC_DICT",
    "CODE": "CLOSURE_MATCH",
    "CLASS": "CLASS_MATCH",
}


class OriginalSource:
    """A guard's source, with the questions that torch's ready-made filters ask."""

    def __init__(self, source: Source | None, read: Callable[[Source], Any]):
        self.source = source
        self.name = "" if source is None else str(source)
        self._read = read

    def __str__(self) -> str:
        return self.name

    def module(self) -> torch.nn.Module | None:
        """The innermost module on the way to the value, the value itself included."""
        source = self.source
        while source is not None:
            try:
                value = self._read(source)
            except Exception:  # a name that is absent, which the guard is about
                value = None
            if issubclass(type(value), torch.nn.Module):
                return value
            source = source.parent
        return None

    def is_unspecialized_nn_module(self) -> bool:
        return self.module() is not None

    def is_unspecialized_builtin_nn_module(self) -> bool:
        module = self.module()
        return module is not None and type(module).__module__.startswith(("torch.nn.", "torch.ao."))


@dataclass(frozen=True)
class OriginalGuard:
    """The guard as this project knows it, and its source."""

    guard: Guard
    source: OriginalSource


@dataclass(frozen=True)
class GuardFilterEntry:
    """A guard as filters see it.

    ``name``: the expression that reads the value, or empty where the guard is about more than one.
    ``value``: what it is now, if ``has_value``. ``guard_type``: torch's name of the kind, see
    :data:`TORCH_NAMES`. ``derived_guard_types``: this project's name of it. ``is_global``: whether
    it is reached through a module's globals.
    """

    name: str
    has_value: bool
    value: Any
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: OriginalGuard


def filtered(
    keep: Callable[[list[GuardFilterEntry]], Sequence[bool]],
    guards: Sequence[Guard],
    read: Callable[[Source], Any],
) -> list[Guard]:
    """The guards that ``keep`` wants; ``read`` gives a source's value now.

    Errors: ``TypeError`` if ``keep`` does not answer with one bool per guard.
    """
    entries = [_entry(guard, read) for guard in guards]
    flags = keep(entries)
    if (
        not isinstance(flags, Sequence)
        or len(flags) != len(guards)
        or not all(isinstance(flag, bool) for flag in flags)
    ):
        found = f"{len(flags)}" if isinstance(flags, Sequence) else type(flags).__name__
        raise TypeError(
            f"guard_filter_fn takes a list of {len(guards)} guards and returns a list of as many "
            f"bools, not {found}"
        )
    return [guard for guard, flag in zip(guards, flags, strict=True) if flag]


def _entry(guard: Guard, read: Callable[[Source], Any]) -> GuardFilterEntry:
    has_value, value = guard.source is not None, None
    if guard.source is not None:
        try:
            value = read(guard.source)
        except Exception:  # the guard is about its absence
            has_value = False
    return GuardFilterEntry(
        name="" if guard.source is None else str(guard.source),
        has_value=has_value,
        value=value,
        guard_type=TORCH_NAMES.get(guard.kind, guard.kind),
        derived_guard_types=(guard.kind,),
        is_global=_is_global(guard.source),
        orig_guard=OriginalGuard(guard, OriginalSource(guard.source, read)),
    )


def _is_global(source: Source | None) -> bool:
    while source is not None and source.parent is not None:
        if source.kind == "attr" and source.key == "__globals__":
            return True
        source = source.parent
    return source is not None and source.kind == "const" and source.label == "globals"


# ---- ready-made filters ----------------------------------------------------------------------


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Without the guards on what torch's own modules (``torch.nn``) hold."""
    return [not e.orig_guard.source.is_unspecialized_builtin_nn_module() for e in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Without the guards on what modules hold, the user's own ones included."""
    return [not e.orig_guard.source.is_unspecialized_nn_module() for e in guard_entries]


def keep_tensor_guards_unsafe(
    guard_entries: Sequence[Any], keep_parameters: bool = False
) -> list[bool]:
    """Only the guards on tensors; on parameters only if ``keep_parameters``."""
    return [
        e.guard_type == "TENSOR_MATCH"
        and (keep_parameters or not isinstance(e.value, torch.nn.Parameter))
        for e in guard_entries
    ]


def skip_guard_on_globals_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Without the guards on what is reached through globals."""
    return [not e.is_global for e in guard_entries]


def skip_all_guards_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Without any guard: the first compiled code is used for every call."""
    return [False for _ in guard_entries]


def keep_portable_guards_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Only the guards that mean something outside Python: tensors' metadata, sizes, modes."""
    return [
        e.guard_type in ("GLOBAL_STATE", "SHAPE_ENV")
        or (e.guard_type == "TENSOR_MATCH" and not e.is_global)
        for e in guard_entries
    ]
