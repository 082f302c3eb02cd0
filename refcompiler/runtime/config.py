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
    """

    recompile_limit: int = 8

    def __setattr__(self, name: str, value: Any) -> None:
        known = {f.name: f.type for f in fields(self)}
        if name not in known:
            raise AttributeError(f"config has no setting {name!r}; it has {', '.join(known)}")
        if type(value) is not int or value < 1:
            raise TypeError(f"config.{name} takes a positive int, not {value!r}")
        object.__setattr__(self, name, value)


config = Config()
