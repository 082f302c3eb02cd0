"""Draws short programs that write to tensors through views, over inputs that may share memory.

Everything is a vector of 4 or, as a view of one, a pair; two to five statements are enough to find
what is known to go wrong.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from hypothesis import strategies as st

from conformance.case import Call, Case, Change, Compiles, Program
from conformance.rows.row import TOLERANCE, inputs

# How the two arguments are related in a call.
PAIRS = {
    "apart": "f(x, x2)",
    "the same": "f(x, x)",
    "views apart": "f(head, tail)",
    "overlapping": "f(head, overlap)",
    "a view of the other": "f(whole[:4], whole[2:6])",
    "interleaved": "f(head, strided)",
    "detached": "f(x, x.detach())",
    "expanded": "f(x, x2[1].expand(4).clone())",
}

# By the number of elements of the tensors that they take: {a} and {b} are vectors of 4, {p} is a
# pair, {n} a number.
_VIEWS = (("p", "{a}[:2]"), ("p", "{a}[1:3]"), ("p", "{a}[::2]"), ("p", "{a}.view(2, 2)[1]"),
          ("p", "{a}.view(2, 2).t()[0]"), ("a", "{a}.view(4)"), ("a", "{a}.detach()"),
          ("a", "{a}.view(2, 2).t().t().view(4)"), ("a", "{a}"))  # fmt: skip
_COPIES = (("a", "{a} + {b}"), ("a", "{a}.clone()"), ("a", "{a} * {n}"), ("p", "{a}[2:] - {n}"),
           ("a", "{a}.flip(0)"), ("a", "torch.cat([{p}, {p} + 1])"), ("p", "{p}.neg()"),
           ("a", "torch.where({a} > {n}, {a}, {b})"))  # fmt: skip
_WRITES = (
    "{a}.add_({n})", "{a}.mul_(2)", "{a}.add_({b})", "{a}.copy_({b}.clone())", "{p}.zero_()",
    "{p}.add_({n})", "{a}[{k}] = {n}", "{a}[1:] = {a}[:-1].clone()", "{a}[:2] = {p} * 1",
    "{a} += {n}", "{p} *= 2", "{a}.neg_()", "{a}.view(2, 2)[{h}].add_({n})",
    "{a}.masked_fill_({b} > 0, {n})", "torch.add({a}, {n}, out={b})", "{a}[{b} > {n}] = 0",
    "torch._foreach_add_([{p}, {p} * 1], {n})", "{a}.view(2, 2).t()[{h}] = {p} * 1",
    "{a}.index_fill_(0, torch.tensor([{k}, 0]), {n})", "{a}.relu_()", "{p}.fill_({n})",
)  # fmt: skip


@st.composite
def cases(draw: st.DrawFn, pair: str, device: str = "cpu") -> Case:
    """Two calls whose arguments are related as ``pair`` says, with a state change in between."""
    names: dict[str, list[str]] = {"a": ["u", "v"], "p": []}
    lines = []

    def filled(template: str) -> str:
        return _fill(draw, template, names)

    for number in range(draw(st.integers(2, 5))):
        possible = [w for w in _WRITES if names["p"] or "{p}" not in w]
        sort, made = draw(st.sampled_from([*_VIEWS, *_COPIES]))
        if draw(st.booleans()) and (names["p"] or "{p}" not in made):
            name = f"t{number}"
            lines.append(f"{name} = {filled(made)}")
            names[sort].append(name)
        else:
            lines.append(filled(draw(st.sampled_from(possible))))
    known = [*names["a"], *names["p"]]
    results = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    extra = draw(st.sampled_from(("u + 1", "v[1:]", "u.view(2, 2)", "u is v", "v.sum()")))
    body = "\n".join(lines)
    source = f"import torch\n\n\ndef program(u, v):\n{textwrap.indent(body, '    ')}\n"
    source += f"    return {', '.join(results)}, {extra}\n"
    first, other = PAIRS[pair], PAIRS[draw(st.sampled_from(list(PAIRS)))]
    change = Change(draw(st.sampled_from(("outs.clear()", "outs[0][0].add_(1)"))))
    history = (Call(first), change, Call(first, Compiles.ANY), Call(other))
    texts = tuple(step.source for step in history)
    return Case(
        "mutation", "generated", pair, Program(source), inputs(texts), history, TOLERANCE, device
    )  # fmt: skip


def _fill(draw: Callable, template: str, names: dict[str, list[str]]) -> str:
    words = {
        "a": draw(st.sampled_from(names["a"])),
        "b": draw(st.sampled_from(names["a"])),
        "n": draw(st.sampled_from((1, 2, -1, 0.5, 3))),
        "k": draw(st.integers(0, 3)),
        "h": draw(st.integers(0, 1)),
    }
    if names["p"]:
        words["p"] = draw(st.sampled_from(names["p"]))
    return template.format(**words)
