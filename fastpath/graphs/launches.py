"""What a wrapper says of its own text, so that it can be replayed without running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any


@dataclass
class Launches:
    """``call`` takes ``parameters``, in one list if it is ``boxed``.

    ``launched``: the name in ``call``'s globals of each launch, in order, and the texts of its
    arguments. ``addresses``: the texts among them that are an input's address, and that input.
    ``host``: the lines that reserve a piece of a generator's stream, which no graph can record;
    ``reserve``: the names of the functions in them, with how many numbers each gives. ``opaque``:
    inputs whose addresses operators of ATen know. ``draws``: whether such an operator draws.
    ``constants``: tensors that belong to the call. ``outputs``: how many of the results the caller
    sees, where more are kept for a backward.
    """

    call: Callable[..., Any]
    parameters: Sequence[str]
    boxed: bool = False
    launched: list[tuple[str, list[str]]] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    host: list[str] = field(default_factory=list)
    reserve: dict[str, int] = field(default_factory=dict)
    opaque: set[str] = field(default_factory=set)
    draws: bool = False
    constants: list[Any] = field(default_factory=list)
    outputs: int | None = None
    unfit: str = ""  # why it cannot be replayed

    def names(self) -> dict[str, Any]:
        """The globals of the call's text."""
        return getattr(self.call, "__globals__", {})

    def with_names(self, names: dict[str, Any]) -> Callable[..., Any]:
        """The call with other functions for some of its globals."""
        if not names:
            return self.call
        assert isinstance(self.call, FunctionType)
        return FunctionType(self.call.__code__, {**self.names(), **names})
