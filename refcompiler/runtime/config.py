"""Settings of the front end."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from refcompiler.runtime.scoped import inside


def _given(name: str, check: Callable[[str, str], Any] = lambda variable, text: None) -> str:
    """What the environment says, for this compiler or for torch's; errors name the variable."""
    for variable in (f"REFCOMPILER_{name}", f"TORCH_COMPILE_{name}"):
        text = os.environ.get(variable)
        if text is not None:
            check(variable, text)
            return text
    return ""


def _processes() -> int:
    text = os.environ.get("REFCOMPILER_COMPILE_PROCESSES", "")
    if text and not (text.isdecimal() and int(text)):
        raise ValueError(f"REFCOMPILER_COMPILE_PROCESSES is a number of processes, not {text!r}")
    return int(text) if text else len(os.sched_getaffinity(0))


DDP_MODES = ("ddp_optimizer", "no_optimization")


@dataclass
class Config:
    """``recompile_limit``: plans of one code object. Where none holds it then runs natively,
    which a warning tells once.

    Compiled modules of one class share their plans; the limit holds for each of them by itself,
    so that many instances that differ do not use up one another's. The limit of what runs behind
    a graph break is the code object's, and what is then native is the frame that broke, to its
    end: its callers go on compiled.

    ``accumulated_recompile_limit``: the same for all that share a code object, together.
    ``fail_on_recompile_limit_hit``: what passes a limit is a :class:`RecompileError` instead.
    ``error_on_recompile``: so is every recompile.

    ``automatic_dynamic_shapes``: under ``dynamic=None`` a size or number that differs at a later
    compilation becomes a symbol. ``dynamic_sources``: names of arguments and attributes, joined by
    commas, that are symbols from the start, whatever ``dynamic`` says (regular expressions, as
    ``x`` or torch's ``L['x']``; with ``:N`` only dimension ``N``); to begin with, what the
    environment has as ``REFCOMPILER_DYNAMIC_SOURCES`` or ``TORCH_COMPILE_DYNAMIC_SOURCES``.
    ``unbacked_sources``: as that, and nothing may be decided by them, as by ``mark_unbacked``.
    ``dynamic_values``: ints, joined by commas; what has such a value is a symbol from the start,
    outside modules. Both have variables of the environment too.
    ``capture_scalar_outputs``: ``item()`` does not end a graph; nor does it under ``fullgraph``.
    ``capture_dynamic_output_shape_ops``: nor does an operator whose result's size depends on data,
    such as ``nonzero``; nor under ``fullgraph``.
    ``job_id``: the job under which such decisions are kept on disk, instead of the environment's
    ``REFCOMPILER_JOB_ID`` or ``TORCH_COMPILE_JOB_ID``; see :mod:`refcompiler.runtime.profile`.
    ``optimize_ddp``: under DistributedDataParallel a graph is compiled in parts, one for each
    bucket of gradients, so that these are sent while the backward goes on; True or torch's name for
    it, ``"ddp_optimizer"``. False or ``"no_optimization"``: whole, and the gradients come at the
    end of its backward. torch's ways with a reducer in Python need compiled autograd: an error.
    ``force_disable_caches``: nothing compiled is read from disk or kept there; to begin with, if
    the environment's ``REFCOMPILER_FORCE_DISABLE_CACHES`` is ``1`` (or torch's
    ``TORCH_COMPILE_FORCE_DISABLE_CACHES``). ``cache_programs``: captured programs are kept, and not
    kernels alone; to begin with, unless the environment's ``REFCOMPILER_CACHE_PROGRAMS`` is ``0``;
    see :mod:`refcompiler.runtime.shelf`. ``cache_bytes``: how many bytes are kept at most; what was
    not used for longest goes first. See :mod:`refcompiler.cache`.
    ``compile_processes``: how many processes compile the CPU's kernels, this one among them; to
    begin with, as many as it may use cores, or the environment's ``REFCOMPILER_COMPILE_PROCESSES``.
    ``trace``: the folder that each compilation writes to, instead of the environment's
    ``REFCOMPILER_TRACE``; see :mod:`refcompiler.runtime.trace`.
    """

    recompile_limit: int = 8
    accumulated_recompile_limit: int = 256
    fail_on_recompile_limit_hit: bool = False
    error_on_recompile: bool = False
    automatic_dynamic_shapes: bool = True
    capture_scalar_outputs: bool = False
    capture_dynamic_output_shape_ops: bool = False
    dynamic_sources: str = field(default_factory=lambda: _given("DYNAMIC_SOURCES", _check_sources))
    unbacked_sources: str = field(
        default_factory=lambda: _given("UNBACKED_SOURCES", _check_sources)
    )
    dynamic_values: str = field(default_factory=lambda: _given("DYNAMIC_VALUES", _check_numbers))
    job_id: str = ""
    optimize_ddp: bool | str = True
    force_disable_caches: bool = field(default_factory=lambda: _flag("FORCE_DISABLE_CACHES", False))
    cache_programs: bool = field(default_factory=lambda: _flag("CACHE_PROGRAMS", True))
    cache_bytes: int = 1 << 30
    compile_processes: int = field(default_factory=lambda: _processes())
    trace: str = ""

    def __setattr__(self, name: str, value: Any) -> None:
        known = {f.name: f.type for f in fields(self)}
        if name not in known:
            raise _unknown(name)
        if name == "job_id" and value is None:  # as torch.compiler.config has it
            value = ""
        if known[name] == "int" and (type(value) is not int or value < 1):
            raise TypeError(f"config.{name} takes a positive int, not {value!r}")
        if name == "optimize_ddp":
            if type(value) is not bool and value not in DDP_MODES:
                modes = " or ".join(map(repr, DDP_MODES))
                raise TypeError(f"config.optimize_ddp takes a bool, {modes}, not {value!r}")
        elif known[name] != "int" and type(value).__name__ != known[name]:
            raise TypeError(f"config.{name} takes a {known[name]}, not {value!r}")
        if name in _CHECKED:
            _CHECKED[name](f"config.{name}", value)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise _unknown(name)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"config.{name} cannot be deleted")

    def patch(
        self, changes: Mapping[str, Any] | str | None = None, *value: Any, **more: Any
    ) -> Patch:
        """Other settings for a while: a context manager and a decorator.

        ``patch(name=value, ...)``, ``patch({name: value, ...})`` or ``patch(name, value)``.
        Errors: as for setting them, and nothing is changed then.
        """
        if isinstance(changes, str):
            if len(value) != 1:
                raise TypeError("config.patch(name, value) takes one name and one value")
            changes = {changes: value[0]}
        elif value or not isinstance(changes, Mapping | None):
            raise TypeError("config.patch takes a mapping, a name and a value, or keywords")
        return Patch(self, {**(changes or {}), **more})


def _unknown(name: str) -> AttributeError:
    known = ", ".join(f.name for f in fields(Config))
    return AttributeError(f"config has no setting {name!r}; it has {known}")


def _flag(name: str, default: bool) -> bool:
    return {"": default, "0": False, "1": True}[_given(name, _check_flag)]


def _check_flag(variable: str, text: str) -> None:
    if text not in ("", "0", "1"):
        raise ValueError(f"{variable} takes 0 or 1, not {text!r}")


def _check_sources(what: str, text: str) -> None:
    for part in map(str.strip, text.split(",")):
        try:
            re.compile(part)
        except re.error as error:
            raise ValueError(
                f"{what} takes names or regular expressions, not {part!r}: {error}"
            ) from None


def _check_numbers(what: str, text: str) -> None:
    try:
        whole_numbers(text)
    except ValueError:
        raise ValueError(f"{what} takes ints and commas, not {text!r}") from None


def whole_numbers(text: str) -> frozenset[int]:
    """The ints that ``text`` has between commas. Errors: ``ValueError`` for anything else."""
    return frozenset(int(part) for part in text.split(",") if part.strip())


_CHECKED: dict[str, Callable[[str, str], None]] = {
    "dynamic_sources": _check_sources,
    "unbacked_sources": _check_sources,
    "dynamic_values": _check_numbers,
}


class Patch(contextlib.AbstractContextManager):
    """What :meth:`Config.patch` gives; it can be entered again, and decorates functions."""

    def __init__(self, owner: Config, changes: dict[str, Any]):
        trial = Config()
        for name, value in changes.items():
            setattr(trial, name, value)
        self.owner = owner
        self.changes = changes
        self.before: list[dict[str, Any]] = []

    def __call__(self, function: Callable) -> Callable:
        return inside(lambda: self, function, "config.patch")

    def __enter__(self) -> None:
        self.before.append({name: getattr(self.owner, name) for name in self.changes})
        for name, value in self.changes.items():
            setattr(self.owner, name, value)

    def __exit__(self, *error: object) -> None:
        for name, value in self.before.pop().items():
            setattr(self.owner, name, value)


config = Config()
