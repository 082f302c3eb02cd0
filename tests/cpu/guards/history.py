"""Histories: a program played eagerly and compiled, with something changed between its calls.

A program is a generator function that takes ``compile``, makes its own world (so that both runs
start alike), and yields what a user can see after each call.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

import refcompiler
from refcompiler.runtime import counters

Compile = Callable[[Any], Any]
Program = Callable[[Compile], Iterator[Any]]


class Box:
    """An object with a number."""

    def __init__(self, k: int):
        self.k = k


def small() -> torch.Tensor:
    """A float32 tensor of shape (2, 3)."""
    return torch.arange(6.0).reshape(2, 3)


class Programs(dict[str, Program]):
    """Programs by name; called with one, it takes it in."""

    def __call__(self, program: Program) -> Program:
        self[program.__name__.strip("_")] = program
        return program


def see(value: Any) -> Any:
    """``value`` as something that compares: tensors by contents and by everything about them."""
    if isinstance(value, torch.Tensor):
        about = (type(value).__name__, str(value.dtype), tuple(value.shape), str(value.device))
        about += (value.requires_grad, value.is_conj(), value.is_neg())
        if value.is_meta:
            return about
        if value.layout is not torch.strided:
            return (*about, repr(value.to_dense().tolist()))
        plain = value.detach().resolve_conj().resolve_neg()
        return (*about, value.stride(), repr(plain.tolist()))
    if isinstance(value, BaseException):
        return (type(value).__name__, str(value))
    if isinstance(value, dict):
        return (type(value).__name__, [(see(k), see(v)) for k, v in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [see(v) for v in value])
    return (type(value).__name__, repr(value))


def attempt(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """The answer of a call, or the exception that it raises."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return error


def play(program: Program, compile: Compile) -> list[Any]:
    torch.manual_seed(0)
    with contextlib.closing(program(compile)) as steps:
        return [see(step) for step in steps]


@dataclasses.dataclass
class Played:
    """What a compiled history did, besides answering as eager."""

    steps: int
    recompiles: int
    reasons: list[str]
    fallbacks: list[str]
    captures: int


def check(program: Program, *, changes: bool = True, backend: Any = "eager") -> Played:
    """Play ``program`` eagerly and compiled, and compare each step.

    ``changes``: eager's own answers must differ from step to step, for else the program shows
    nothing about the change that it makes.
    """
    expected = play(program, lambda model: model)
    assert len(expected) >= 2
    if changes:
        assert any(step != expected[0] for step in expected), "the change shows in no answer"
    refcompiler.reset()
    found = play(program, lambda model: refcompiler.compile(model, backend=backend))
    assert len(found) == len(expected)
    for i, (mine, eager) in enumerate(zip(found, expected, strict=True)):
        assert mine == eager, f"step {i}: compiled gives {mine}, eager gives {eager}"
    counted = refcompiler.counters()
    assert counted["captures"] > 0, "nothing was compiled"
    reasons = counters.reasons("recompiles")
    assert len(reasons) == counted["recompiles"]
    assert all(reason.partition(": ")[2].strip() for reason in reasons), reasons
    return Played(
        len(expected),
        counted["recompiles"],
        reasons,
        counters.reasons("fallbacks"),
        counted["captures"],
    )
