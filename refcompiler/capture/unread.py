"""Texts of tensors and numbers that nobody reads: messages of checks that hold, and of logs.

``f"{tensor}"`` depends on what only the run of the graph knows. As long as the text is only passed
on, nothing makes it; if it outlives the graph it is made then, unless the tensor has changed; and
the graph ends before the instruction that makes it once somebody looks.

``f"step {i}"`` of a number that changes from call to call is made after the graph likewise, so that
what prints it serves all steps. Once somebody looks the number is a constant.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensor

from refcompiler.capture.door import version_of
from refcompiler.capture.entering import ENTERING, enters
from refcompiler.capture.specials import kind_of
from refcompiler.capture.told import is_open, of_number, text_of
from refcompiler.capture.values import Lazy, Shown, Unread
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.registry import HANDLERS
from refcompiler.shapes.node import SYMBOLS

_WITH_SPEC = {"FORMAT_VALUE": 4, "FORMAT_WITH_SPEC": -1}  # the flag of its argument
_CONVERTING = (format, str, repr, ascii)


def _is_plain(m: Any, value: Any) -> bool:
    """Whether making its text runs no code of the program's, and tells nobody."""
    recorder = m.recorder
    return type(value) is FakeTensor and not (recorder.kinds or m.function_modes or m.open_levels)


def _formatting(name: str) -> None:
    otherwise, flag = ENTERING.get(name, HANDLERS[name]), _WITH_SPEC.get(name, 0)

    @enters(name)
    def handler(m: Any, f: Frame, arg: Any) -> None:
        s = f.stack
        given = 2 if flag == -1 or (flag and arg & flag) else 1
        value = s[-given]
        if given == 1 and type(value) is Unread:
            return
        kind = kind_of(value)
        if is_open(m):
            part: Any = None
            conversion = 0 if arg is None else arg & 3
            if issubclass(kind, torch.Tensor):
                if given == 1:  # specifications may be wrong, and are tried
                    s[-1] = value = m.force(value)
                    if _is_plain(m, value):
                        part = Shown(value, conversion, version_of(value))
            elif kind is int or kind is float or kind in SYMBOLS:
                if kind is int:
                    s[-given] = value = m.force(value)
                spec = m.own(s[-1]) if given == 2 else ""
                if not (conversion and spec):
                    part = of_number(m, value, _CONVERTING[conversion], spec)
            elif kind in (tuple, torch.Size) and given == 1:
                s[-1] = value = m.force(value)
                text = text_of(m, _CONVERTING[conversion], value)
                part = text and text.parts[0]
            if part is not None:
                made = Unread(m.steps, (part,))
                if type(part) is Shown:
                    m.texts.add(made)
                del s[-given:]
                s.append(made)
                return
        otherwise(m, f, arg)


for _name in ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"):
    if _name in HANDLERS:
        _formatting(_name)

_build_string = ENTERING.get("BUILD_STRING", HANDLERS["BUILD_STRING"])


def _is_text(m: Any, part: Any) -> bool:
    """A text from outside, which need not be observed: one that was made before a break."""
    return type(part) is Lazy and type(part.value) is str and part.source not in m.forced


@enters("BUILD_STRING")
def build_string(m: Any, f: Frame, count: int) -> None:
    s = f.stack
    parts = s[len(s) - count :]  # an empty specification is one of nothing
    unread = [part for part in parts if type(part) is Unread]
    if not unread and (m.nested or not any(_is_text(m, part) for part in parts)):
        _build_string(m, f, count)
        return
    for part in parts:
        if _is_text(m, part):
            m.guard("TYPE", part.source, str)
    made = Unread(
        unread[0].step if unread else m.steps,
        tuple([p for part in parts for p in (part.parts if type(part) is Unread else (part,))]),
    )
    if not made.is_of_numbers():
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
            raise text.ending()


def writes(m: Any) -> bool:
    """Whether the graph has written to what it was given."""
    return any(version_of(fake) for *_, fake in m.inputs.values())
