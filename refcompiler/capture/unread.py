"""Texts of tensors that nobody reads: messages of checks that hold, mostly.

``f"{tensor}"`` depends on what only the run of the graph knows. As long as the text is only passed
on, nothing makes it; if it outlives the graph it is made then, unless the tensor has changed; and
the graph ends before the instruction that makes it once somebody looks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensor

from refcompiler.capture.door import version_of
from refcompiler.capture.entering import ENTERING, enters
from refcompiler.capture.specials import kind_of
from refcompiler.capture.values import Shown, Unread
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.registry import HANDLERS

_WITH_SPEC = {"FORMAT_VALUE": 4}  # the flag of its argument; specs may be wrong, and are tried


def _is_plain(m: Any, value: Any) -> bool:
    """Whether making its text runs no code of the program's, and tells nobody."""
    recorder = m.recorder
    return (
        type(value) is FakeTensor
        and recorder.scope.outer is None
        and not m.nested
        and not (recorder.kinds or m.function_modes or m.open_levels)
    )


def _formatting(name: str) -> None:
    otherwise, flag = ENTERING.get(name, HANDLERS[name]), _WITH_SPEC.get(name, 0)

    @enters(name)
    def handler(m: Any, f: Frame, arg: Any) -> None:
        value = f.stack[-1]
        if not (flag and arg & flag):
            if type(value) is Unread:
                return
            if issubclass(kind_of(value), torch.Tensor):
                f.stack[-1] = value = m.force(value)
                if _is_plain(m, value):
                    conversion = 0 if arg is None else arg & 3
                    shown = Shown(value, conversion, version_of(value))
                    f.stack[-1] = made = Unread(m.steps, (shown,))
                    m.texts.add(made)
                    return
        otherwise(m, f, arg)


for _name in ("FORMAT_VALUE", "FORMAT_SIMPLE", "CONVERT_VALUE"):
    if _name in HANDLERS:
        _formatting(_name)

_build_string = ENTERING.get("BUILD_STRING", HANDLERS["BUILD_STRING"])


@enters("BUILD_STRING")
def build_string(m: Any, f: Frame, count: int) -> None:
    s = f.stack
    parts = s[-count:]
    unread = [part for part in parts if type(part) is Unread]
    if not unread:
        _build_string(m, f, count)
        return
    made = Unread(
        unread[0].step,
        tuple([p for part in parts for p in (part.parts if type(part) is Unread else (part,))]),
    )
    m.texts.add(made)
    del s[-count:]
    s.append(made)


def is_current(text: Unread) -> bool:
    """Whether the tensors in ``text`` still hold what it shows."""
    shown = [part for part in text.parts if type(part) is Shown]
    return all(version_of(part.tensor) == part.version for part in shown)


def check_texts(m: Any) -> None:
    """A check that fails needs the texts that there are, made of tensors that the graph held then.

    None may show what is there no more; and where the graph has written to what it was given by
    then, it cannot run once more for what they show.
    """
    if not m.texts:
        return
    written = writes(m)
    for text in list(m.texts):
        if written or not is_current(text):
            raise text.read()


def writes(m: Any) -> bool:
    """Whether the graph has written to what it was given."""
    return any(version_of(fake) for *_, fake in m.inputs.values())
