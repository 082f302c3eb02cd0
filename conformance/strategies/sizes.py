"""Draws programs about the sizes of tensors, as source text.

Every tensor is a matrix, every number an int; both come from the arguments and from sizes. What
does not fit raises, in eager as in a compiler.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

# {t}, {u}: known matrices; {n}, {m}: known numbers; {few}: a number that is no large one.
NUMBERS = (
    "{t}.shape[0]", "{t}.shape[1]", "{n} + 1", "{n} * 2 - {m}", "{n} // 2 + {m}", "{n} % 3 + 1",
    "max({n}, {m})", "min({n}, {m}, 5)", "{t}.numel() // 2", "len({t}) + k", "int({n} / 2)",
    "{t}.size(-1) * {t}.size(0)", "-(-{n} // 2)", "abs({n} - {m})", "{n} & 3", "{n} << 1",
    "{n} ** 2 % 7", "divmod({n}, 3)[0] + divmod({n}, 3)[1]", "round({n} / 2)", "min({t}.shape)",
    "sum({t}.shape)", "math.prod({t}.shape)", "sorted({t}.shape)[0]", "{t}.stride(0)",
    "{t}.dim() + {n}", "math.floor({n} * 0.5)", "{n} if {n} > {m} else {m}", "({n} > {m}) + 1",
    "{t}[1:].storage_offset()", "math.ceil({n} / 3)", "int({n}) - 1", "~{n} + {m}",
)  # fmt: skip
TENSORS: dict[str, tuple[str, ...]] = {
    "views": (
        "{t}.t()", "{t}.reshape(-1, 1)", "{t}.flatten().unsqueeze(0)",
        "{t}.contiguous().view({t}.shape[1], {t}.shape[0])", "{t}.reshape(2, -1)",
        "{t}.contiguous().view({t}.shape[0] * {t}.shape[1]).view(-1, {t}.shape[1])",
        "{t}.unsqueeze(1).expand(-1, 2, -1).reshape({t}.shape[0] * 2, {t}.shape[1])",
        "{t}.unflatten(0, (-1, 1)).squeeze(1)", "{t}.permute(1, 0).contiguous()",
        "{t}.swapaxes(0, 1)[:, : {few}]", "{t}[None, None].movedim(0, 2).flatten(0, 2)",
        "{t}.as_strided(({t}.shape[0], 1), ({t}.stride(0), 1))", "{t}.unfold(0, 2, 1)[..., 0]",
        "{t}.contiguous().view(-1, {few})", "{t}.reshape({few}, -1)",
    ),
    "joins": (
        "torch.cat([{t}, {t}], 0)", "torch.cat([{t}, {t}[:, : {few}]], 1)",
        "torch.stack([{t}, {t}]).sum(0)", "F.pad({t}, (1, {few}))", "{t}.repeat(2, 1)",
        "F.pad({t}, (0, 12 - {t}.shape[1]))", "{t}.roll({few}, 0)", "torch.vstack([{t}, {u}])",
        "torch.cat([{t}, {u}], 1)", "torch.cat({t}.split(2), 0)", "torch.cat({t}.chunk(2, 1), 0)",
        "torch.cat([row[None] for row in {t}.unbind(0)])", "torch.zeros(0, {t}.shape[1]) + {t}[:0]",
    ),
    "broadcasts": (
        "{t} + {u}.sum()", "{t} * {t}[:1]", "{t} - {t}.sum(0, keepdim=True)", "{t} * {n}",
        "{t} + torch.arange({t}.shape[1])", "torch.zeros({t}.shape[0], 1) + {t}", "{t} + {u}",
        "{t}.sum(1, keepdim=True).expand_as({t})", "{t} + {t}.new_ones({t}.shape[0], 1) * {n}",
        "torch.where({t} > {n}, {t}, {t}[:1])", "{t}.sum(0, keepdim=True).expand({few}, -1)",
        "torch.maximum({t}, {t}.t())", "{t} * torch.ones({few}, 1, 1).sum()",
    ),
    "slices": (
        "{t}[1:]", "{t}[:, : {t}.shape[1] // 2 + 1]", "{t}[-{few} :]", "{t}[::2]",
        "{t}[{few} :]", "{t}.narrow(0, 0, min({n}, {t}.shape[0]))", "{t}[{t}.shape[0] - 1 :]",
        "{t}[torch.arange({t}.shape[0]).flip(0)]", "{t}.chunk(2)[0]", "{t}.split(2)[-1]",
        "{t}.index_select(0, torch.arange({t}.shape[0] // 2))", "{t}.diagonal().unsqueeze(0)",
        "{t}.split([1, {t}.shape[0] - 1])[1]", "{t}.tensor_split(3, 1)[0]", "torch.tril({t})",
        "{t}.gather(1, torch.zeros({t}.shape[0], 1, dtype=torch.long))", "{t}[:, -1:]",
        "{t}.masked_fill({t} > {n}, 0)", "{t}[{t}.shape[0] // 2][None]", "{t}.clone().fill_({n})",
    ),
    "products": (
        "{t} @ {t}.t()", "{t} @ {u}", "torch.einsum('ij,kj->ik', {t}, {t})", "F.linear({t}, {u})",
        "F.conv1d({t}[None], torch.ones(1, {t}.shape[0], 3), padding=1)[0]",
        "F.max_pool1d({t}[None], 2)[0]", "F.avg_pool1d({t}[None], 3, 1, 1)[0]",
        "F.adaptive_avg_pool1d({t}[None], 2)[0]", "F.interpolate({t}[None], scale_factor=2)[0]",
        "torch.outer({t}[:, 0], {u}[0])", "torch.bmm({t}[None], {t}.t()[None])[0]",
        "F.max_pool2d({t}[None, None], 2, 1)[0, 0]",
    ),
    "factories": (
        "torch.ones({t}.shape[0], {few})", "torch.arange({few}).to({t}.dtype)[None]",
        "{t}.new_zeros({t}.shape) + {t}", "torch.full(({t}.shape[1], 2), 1.5) * {n}",
        "torch.eye({t}.shape[0])", "torch.empty({t}.shape[1], {few}).zero_()",
        "torch.tensor([[{n}, {m}]]).to({t}.dtype)",
        "torch.arange(0, {t}.shape[0], 2)[None] * {t}[0, 0]",
    ),
}  # fmt: skip
CONDITIONS = (
    "{n} > {m} + 2", "{t}.shape[0] == {t}.shape[1]", "{n} % 2 == 0 and {t}.shape[0] > 2",
    "not {t}.shape[0]", "{t}.shape[0] in (2, 5)", "{t}.shape == {u}.shape", "{n}",
    "2 <= {t}.shape[1] < 6", "{t}.numel() > 12 or {n} != {m}", "{t}.is_contiguous()",
    "{t}.shape[0] * 2 == {n}", "{t}.numel() % 4 == 0", "any(s == 1 for s in {t}.shape)",
)  # fmt: skip
LOOPS = (
    "for i in range(min({t}.shape[0], 4)):\n    x = x + i",
    "for row in {t}:\n    x = x * 2 - row.sum()",
    "for i, s in enumerate({t}.shape):\n    k = k + i * s", "for i in range({few}):\n    x = x[1:]",
    "for part in {t}.split(3):\n    x = x + part.sum()",
    "while k > 3:\n    k = k // 2\n    x = x + 1",
    "x = x + sum(s for s in {t}.shape)",
    "x = x + len([i for i in range({t}.shape[1]) if i % 2])",
)  # fmt: skip
FOCI = (*TENSORS, "numbers", "branches", "loops")
MODULE = """
import math

import torch
import torch._dynamo
import torch.nn.functional as F


def made(rows, columns, marked=False):
    t = (torch.arange(rows * columns).to(torch.get_default_dtype()) % 7 - 3).reshape(rows, columns)
    if marked:
        torch._dynamo.maybe_mark_dynamic(t, 0)
        torch._dynamo.maybe_mark_dynamic(t, 1)
    return t


def program(x, y, k):
"""


@dataclass
class Writer:
    """Lines so far, and the names that they may mention."""

    draw: Callable[..., Any]
    focus: str
    tensors: list[str] = field(default_factory=lambda: ["x", "y"])
    numbers: list[str] = field(default_factory=lambda: ["k", "2"])
    lines: list[str] = field(default_factory=list)

    def pick(self, choices: Any) -> str:
        return self.draw(st.sampled_from(list(choices)))

    def filled(self, template: str) -> str:
        return template.format(
            t=self.pick(self.tensors),
            u=self.pick(self.tensors),
            n=self.pick(self.numbers),
            m=self.pick(self.numbers),
            few=f"({self.pick(self.numbers)} % 5)",
        )

    def number(self) -> None:
        text = self.filled(self.pick(NUMBERS))
        self.lines.append(f"n{len(self.lines)} = {text}")
        self.numbers.append(self.lines[-1].split(" = ")[0])

    def tensor(self, kind: str) -> None:
        text = self.filled(self.pick(TENSORS[kind]))
        self.lines.append(f"t{len(self.lines)} = {text}")
        self.tensors.append(self.lines[-1].split(" = ")[0])

    def branch(self) -> None:
        condition = self.filled(self.pick(CONDITIONS))
        then, other = (self.filled(self.pick(TENSORS[self.pick(TENSORS)])) for _ in range(2))
        self.lines.append(f"if {condition}:\n    x = {then}\nelse:\n    x = {other}\n    k = k + 1")

    def loop(self) -> None:
        self.lines.append(self.filled(self.pick(LOOPS)))

    def statement(self, kind: str) -> None:
        if kind in TENSORS:
            self.tensor(kind)
        else:
            {"numbers": self.number, "branches": self.branch, "loops": self.loop}[kind]()


@st.composite
def programs(draw: st.DrawFn, focus: str) -> str:
    """The source of a module whose ``program(x, y, k)`` takes two matrices and an int.

    ``made(rows, columns, marked)`` gives a matrix; ``marked`` says that it may have other sizes.
    """
    writer = Writer(draw, focus)
    for _ in range(draw(st.integers(2, 6))):
        kind = focus if draw(st.booleans()) else draw(st.sampled_from(FOCI))
        writer.statement(kind)
    writer.lines.append(f"return {', '.join(writer.tensors)}, {', '.join(writer.numbers)}")
    return MODULE.lstrip("\n") + textwrap.indent("\n".join(writer.lines), "    ") + "\n"
