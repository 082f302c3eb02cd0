"""Settings of the front end."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass
class Config:
    """``recompile_limit``: plans of one code object before it runs natively, with a warning.

    Compiled modules of one class share their plans; the limit holds for each of them by itself,
    so that many instances that differ do not use up one another's. The limit of what runs behind
    a graph break is the code object's.

    ``automatic_dynamic_shapes``: under ``dynamic=None`` a size or number that differs at a later
    compilation becomes a symbol. ``dynamic_sources``: names of arguments and attributes, joined by
    commas, that are symbols from the start (regular expressions, as ``x`` or torch's ``L['x']``).
    ``capture_scalar_outputs``: ``item()`` does not end a graph. ``capture_dynamic_output_shape_ops``:
    nor does an operator whose result's size depends on data, such as ``nonzero``.
    """

    recompile_limit: int = 8
    automatic_dynamic_shapes: bool = False
    capture_scalar_outputs: bool = False
    capture_dynamic_output_shape_ops: bool = False
    dynamic_sources: str = ""

    def __setattr__(self, name: str, value: Any) -> None:
        known = {f.name: f.type for f in fields(self)}
        if name not in known:
            raise AttributeError(f"config has no setting {name!r}; it has {', '.join(known)}")
        if known[name] == "int" and (type(value) is not int or value < 1):
            raise TypeError(f"config.{name} takes a positive int, not {value!r}")
        if known[name] != "int" and type(value).__name__ != known[name]:
            raise TypeError(f"config.{name} takes a {known[name]}, not {value!r}")
        object.__setattr__(self, name, value)


config = Config()
