"""What the parts of rebuilding have in common: lines, names, and each other's rules."""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch

from refcompiler.capture.hashing import known_hash
from refcompiler.capture.lookup import is_heap
from refcompiler.capture.machine import Symbolic
from refcompiler.capture.personal import has_own_order
from refcompiler.capture.setorder import Insertion, insertion
from refcompiler.capture.settable import filled
from refcompiler.capture.values import Literal
from refcompiler.guards.hashes import FEW, keyed, put
from refcompiler.plan.writer import Writer

_NAMES = re.compile(r"__\w+")


class NotRebuilt(Exception):
    """A value for which there is no rule; capture ends before it was made, or runs natively."""


class Writing:
    """Statements and expressions over the values of one capture."""

    def __init__(self, machine: Symbolic, writer: Writer, ends: bool = False):
        self.machine = machine
        self.ends = ends  # nothing is captured after it
        self.writer = writer
        self.names: dict[int, str] = {}
        self.keep: list[Any] = []
        self.displayed: dict[int, tuple[Literal, Any]] = {}  # id of the first -> what it becomes
        self.outputs: list[torch.fx.Node] = []
        self.lines: list[str] = []
        self.late: list[str] = []  # to run after side effects are replayed
        self.last: list[str] = []  # to run after everything else
        self.unfinished: set[int] = set()  # instances that lack attributes so far
        self.tracebacks: dict[int, TracebackType] = {}  # copies of their entries, by id
        self._begun: dict[int, str] = {}  # id -> what stands for it until it has a name
        self._circular: set[str] = set()  # of these, those that were used
        self._count = itertools.count()

    def assign(self, value: Any, text: str) -> str:
        name = f"__r{next(self._count)}"
        self.lines.append(f"{name} = {text}")
        self.names[id(value)] = name
        return name

    def whole(self, value: Any) -> str:
        """What ``build`` makes, where its own parts may lead back to it.

        Nothing can refer to a tuple, a function or the like before its parts are there, so that the
        statement which does comes after it.
        """
        token = self._begun.get(id(value))
        if token is not None:
            self._circular.add(token)
            return token
        token = self._begun[id(value)] = f"__whole{next(self._count)}"
        begun = len(self.lines)
        try:
            text = self.build(value)
        finally:
            del self._begun[id(value)]
        if token in self._circular:
            self.lines[begun:] = _behind(self.lines[begun:], token, text)
            for lines in (self.late, self.last):
                lines[:] = [line.replace(token, text) for line in lines]
        return text

    def many(self, values: Any) -> str:
        return ", ".join([self.expression(v) for v in values])

    def set_items(self, name: str, value: Any) -> str:
        """The statement after which the empty set ``name`` gives the items of ``value``, in its
        order."""
        tried = self._insertion(value)
        if tried.filling is not None:
            return self._filled(name, tried)
        text = self._keyed(value, tried.items)
        return f"set.update({name}, {f'dict.fromkeys({text})' if tried.at_once else text})"

    def new_set(self, value: Any) -> str:
        """A set or frozenset that gives the items of ``value`` in its order."""
        tried = self._insertion(value)
        if tried.filling is not None:
            return self._filled("set()", tried)
        text = self._keyed(value, tried.items)
        return f"{type(value).__name__}({f'dict.fromkeys({text})' if tried.at_once else text})"

    def _filled(self, name: str, tried: Insertion) -> str:
        assert tried.filling is not None
        how = tuple(tried.filling)
        return f"{self.writer.constant(filled)}({name}, [{self.many(tried.items)}], {how})"

    def put(self, target: str, value: dict, key: Any, key_text: str, item: str, kind: type) -> str:
        """The statement that sets an item of ``target``, which is made as ``value`` is.

        Past the methods of its class, ``kind``.
        """
        known = None if issubclass(kind, OrderedDict) else known_hash(self.machine, key, value)
        if known is not None:
            return f"{self.writer.constant(put)}({target}, {key_text}, {item}, {known})"
        if not is_heap(kind):
            return f"{target}[{key_text}] = {item}"
        base = OrderedDict if issubclass(kind, OrderedDict) else dict
        return f"{self.writer.constant(base)}.__setitem__({target}, {key_text}, {item})"

    def _keyed(self, value: Any, items: list[Any]) -> str:
        """The items of the set ``value``; a dict of a few ones whose hashes are known."""
        known = [known_hash(self.machine, item, value) for item in items]
        text = f"[{self.many(items)}]"
        if len(items) > FEW or all(number is None for number in known):
            return text
        numbers = [str(number) for number in known]
        if None in known:
            numbers = [
                f"hash({self.expression(item)})" if number is None else str(number)
                for item, number in zip(items, known, strict=True)
            ]
        return f"{self.writer.constant(keyed)}({text}, [{', '.join(numbers)}])"

    def in_order(self, value: Any) -> str | None:
        """The items of a set, from which one is made with its order; None if there is none."""
        tried = self._insertion(value)
        text = f"[{self.many(tried.items)}]"
        if tried.filling is not None:
            return None
        return f"dict.fromkeys({text})" if tried.at_once else text

    def _insertion(self, value: Any) -> Insertion:
        self.machine.is_personal |= has_own_order(value)
        return insertion(value, self.is_read)

    def is_read(self, item: Any) -> bool:
        """Whether the program's own object is what the plan will have for ``item``."""
        external = self.machine.external.get(id(item))
        return external is not None and external.value is item

    def literal(self, values: dict) -> str:
        """A dict that nothing else refers to."""
        pairs = [f"{self.expression(key)}: {self.expression(v)}" for key, v in values.items()]
        return f"{{{', '.join(pairs)}}}"

    def expression(self, value: Any) -> str:
        """The text of a value, which is made by the lines so far."""
        raise NotImplementedError

    def build(self, value: Any) -> str:
        """The same for one that nothing has made yet."""
        raise NotImplementedError

    def kind(self, cls: type) -> str:
        """The text of a class."""
        raise NotImplementedError

    def refuse(self, value: Any) -> BaseException:
        """What to raise for a value that has no rule."""
        raise NotImplementedError


def _behind(lines: Sequence[str], token: str, name: str) -> list[str]:
    """``lines`` with those that need what ``token`` stands for after the one that makes it."""
    made = next(i for i, line in enumerate(lines) if line.startswith(f"{name} = "))
    needing = {token}
    before, after = [], []
    for line in lines[:made]:
        if needing.isdisjoint(_NAMES.findall(line)):
            before.append(line)
        else:
            after.append(line)
            target, assigns, _ = line.partition(" = ")
            if assigns and target.isidentifier():
                needing.add(target)
    return [
        line.replace(token, name) for line in (*before, lines[made], *after, *lines[made + 1 :])
    ]
