"""Draws short training programs for what lies around compiled graphs: writes, views, gradients.

Everything is a vector of 4 or, as a view of one, a pair, so that any statement takes any of them.
The arguments are related in memory and to autograd in every way that a caller can relate them.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Relation:
    """``setup``: statements that make the arguments ``p`` and ``q`` of the leaves ``x`` and ``y``.

    ``ordered``: whether their elements have an order; ``differentiable``: whether they take part
    in autograd; ``plain``: whether their memory holds their values, and not the conjugates or the
    negatives (of which torch's own operators on sizes in place make copies).
    """

    setup: str
    ordered: bool = True
    differentiable: bool = True
    plain: bool = True


#: What the two arguments are to each other. ``x`` and ``y`` are leaves of 4 elements.
RELATIONS = {
    "leaves": Relation("p, q = x, y"),
    "results": Relation("p, q = x * 1, y * 1"),
    "the same": Relation("p = q = x * 1"),
    "one has no gradient": Relation("p, q = x * 1, y.detach().clone()"),
    "none has a gradient": Relation("p, q = x.detach().clone(), y.detach().clone()"),
    "views apart": Relation("base = torch.cat([x, y])\np, q = base[:4], base[4:]"),
    "overlapping": Relation("base = torch.cat([x, y])\np, q = base[:4], base[2:6]"),
    "overlapping, no gradient": Relation(
        "base = torch.cat([x, y]).detach()\np, q = base[:4], base[2:6]"
    ),
    "interleaved": Relation("base = torch.cat([x, y])\np, q = base[::2], base[1::2]"),
    "a base and its view": Relation("p = x * 1\nq = p.view(2, 2).t().t().view(4)"),
    "a view and its base": Relation("q = x * 1\np = q.view(4)"),
    "detached": Relation("p = x * 1\nq = p.detach()"),
    "detached before": Relation("q = x * 1\np = q.detach()"),
    "strided at an offset": Relation("p, q = torch.cat([x, y])[1:8:2], y.flip(0)"),
    "expanded": Relation("p, q = x[:1].expand(4), y * 1"),
    "double": Relation("p, q = x.double(), y.double()"),
    "half and float": Relation("p, q = x.half(), y * 1"),
    "integers": Relation("p, q = (x * 4).long(), (y * 4).long()", differentiable=False),
    "other view of the bits": Relation(
        "p = x.detach().clone()\nq = p.view(torch.int32)", differentiable=False
    ),
    "conjugates": Relation(
        "p, q = torch.complex(x, y).conj(), torch.complex(y, x) * 1", ordered=False, plain=False
    ),
    "negatives": Relation(
        "p, q = torch.complex(x, y).conj().imag, torch.complex(y, x).real", plain=False
    ),
}

MODES = ("grad", "no_grad", "inference_mode")

# {a} and {b} are vectors of 4, {p} is a pair, {n} and {m} numbers, {k} an index, {h} 0 or 1.
_VIEWS = (
    ("p", "{a}[:2]"), ("p", "{a}[1:3]"), ("p", "{a}[::2]"), ("p", "{a}.view(2, 2)[1]"),
    ("p", "{a}.view(2, 2).t()[0]"), ("a", "{a}.view(4)"), ("a", "{a}.detach()"), ("a", "{a}"),
    ("a", "{a}.as_strided((4,), (1,))"), ("p", "{a}.unbind()[0].expand(2)"),
    ("p", "{a}.chunk(2)[{h}]"), ("p", "{a}.split(2)[{h}]"), ("a", "{a}.unsqueeze(0).squeeze()"),
    ("p", "{a}.view(2, 2).diagonal()"), ("p", "{a}.unfold(0, 2, 2)[{h}]"), ("a", "{a}.data"),
    ("a", "{a}.flatten()"), ("a", "{a}.reshape(2, 2).view(4)"), ("a", "{a}.conj()"),
    ("a", "{a}.contiguous()"),
)  # fmt: skip
_COPIES = (
    ("a", "{a} + {b}"), ("a", "{a}.clone()"), ("a", "{a} * {n}"), ("p", "{a}[2:] - {n}"),
    ("a", "{a}.flip(0)"), ("a", "torch.cat([{p}, {p} + 1])"), ("p", "{p}.neg()"),
    ("a", "{a} * {b}"), ("a", "{a}.sin()"), ("a", "{a}[torch.tensor([2, 0, 1, 1])]"),
    ("a", "torch.stack([{p}, {p}]).t().flatten()"), ("a", "torch.full_like({a}, {n})"),
    ("a", "torch.dropout({a}, 0.5, True)"), ("a", "{a} + torch.rand(4)"),
    ("a", "torch._foreach_mul([{a}, {b}], {n})[{h}]"), ("p", "{p}.cumsum(0)"),
    ("a", "torch.zeros(4).copy_({a})"), ("a", "{a}.expand(2, 4)[1]"),
)  # fmt: skip
_ORDERED_COPIES = (
    ("a", "torch.where({a} > {n}, {a}, {b})"), ("a", "{a}.relu()"), ("a", "{a}.sort().values"),
    ("a", "{a}.clamp(min={n})"),
)  # fmt: skip
_WRITES = (
    "{a}.add_({n})", "{a}.mul_(2)", "{a}.add_({b})", "{a}.copy_({b}.clone())", "{p}.zero_()",
    "{p}.add_({n})", "{a}[{k}] = {n}", "{a}[1:] = {a}[:-1].clone()", "{a}[:2] = {p} * 1",
    "{a} += {n}", "{p} *= 2", "{a}.neg_()", "{a}.view(2, 2)[{h}].add_({n})", "{a}.mul_({b})",
    "torch._foreach_add_([{p}, {p} * 1], {n})", "{a}.view(2, 2).t()[{h}] = {p} * 1",
    "{a}.index_fill_(0, torch.tensor([{k}, 0]), {n})", "{p}.fill_({n})", "{a}.detach().mul_({n})",
    "torch._foreach_mul_([{a}, {a}.clone()], {n})", "{a}.data.add_({n})", "{a}.sin_()",
    "{a}.index_put_((torch.tensor([0, {k}]),), {p} * 1, accumulate=True)",
    "{a}.index_add_(0, torch.tensor([{k}, {k}]), {p} * 1)", "{a}[torch.tensor([{k}, 0])] += {n}",
    "with torch.no_grad():\n    {a}.mul_({n})", "with torch.no_grad():\n    {a}.copy_({b} + 1)",
    "{a}.unsqueeze(0).mul_({n})", "{p}.copy_({p} * 1)",
    "torch.sub({a}, {n}, out=torch.empty(0))", "{a}.resize_(4)", "{a}.swapaxes_(0, 0)",
)  # fmt: skip
_ORDERED_WRITES = (
    "{a}.masked_fill_({b} > 0, {n})", "{a}[{b} > {n}] = 0", "{a}.relu_()", "{a}.clamp_(max={n})",
)  # fmt: skip
_METADATA = (
    "{a}.unsqueeze_(0).squeeze_(0)", "{a}.t_()", "{a}.transpose_(0, 0)",
    "{a}.as_strided_((4,), (1,))",
)  # fmt: skip
# Statements that make {t}: modes, regions and functions whose derivative is the program's own. Each
# result can be rounded in one way only: others may look at its bits.
_REGIONS = (
    ("a", "with torch.no_grad():\n    {t} = {a} * {b}"),
    ("a", "with torch.no_grad():\n    {t} = {a}.view(4)"),
    ("a", "with torch.enable_grad():\n    {t} = {a} * {n}"),
    ("a", "{t} = checkpoint(lambda s: s.square() * {n}, {a}, use_reentrant=False)"),
    ("a", "{t} = checkpoint(lambda s, r: (s * r).square(), {a}, {b}, use_reentrant=False)"),
    ("a", "{t} = Twice.apply({a}, {b})[{h}]"),
    ("a", "{t} = Added.apply({a} * 1, {b})"),
    ("a", "with torch.autocast('cpu', torch.bfloat16):\n"
          "    {t} = ({a}.view(2, 2) @ {b}.view(2, 2)).view(4).to({a}.dtype)"),
    ("a", "with torch.autocast('cpu', torch.bfloat16):\n"
          "    {t} = torch.mm({a}.view(2, 2), {a}.view(2, 2)).float().view(4)"),
    ("p", "{t} = torch.vmap(lambda r: r.sum() * {n})({a}.view(2, 2))"),
)  # fmt: skip
_FUNCTIONS = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a)
        ctx.set_materialize_grads(False)
        return a * 2, b * 3

    @staticmethod
    def backward(ctx, first, second):
        (a,) = ctx.saved_tensors
        return None if first is None else first * 2 + a * 0, None if second is None else second * 3


class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.mark_dirty(a)
        return a.add_(1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5, None
"""
_RESULTS = (
    "{a} + 1", "{a}[1:]", "{a}.view(2, 2)", "{a}.view(2, 2).t()", "{a}.sum()", "{a}.detach()",
    "{a}.expand(3, 4)", "{a}[{k}]", "{a} * {b}", "{a}.clone()", "{a}.view(2, 2).unbind()[{h}]",
    "{a}[:0]", "{a} is {b}", "{a}.split(2)[{h}]", "{a}.conj()", "{a}.long()", "{a} == {b}",
    "{a}.requires_grad", "torch.view_as_real({a} + 0j)", "({a} * 1j).imag", "({a} * 1j).conj()",
    "{a}.shape", "None", "{a}.view(torch.int32)", "({a} * 2).detach()", "{a}.sum().expand(2)",
)  # fmt: skip

#: Sent back through each output that has a gradient function, one at a time.
GRADIENTS = """
_leaves = [_t for _t in (x, y) if _t.requires_grad]
gradients = []
for _t in (*outs[-1], p, q):
    if isinstance(_t, torch.Tensor) and _t.grad_fn is not None:
        _ramp = torch.arange(1, _t.numel() + 1).cos().to(_t.dtype).reshape(_t.shape)
        _found = torch.autograd.grad(_t, _leaves, _ramp, retain_graph=True, allow_unused=True)
        # How a gradient that nothing accumulates lies in memory is nobody's promise.
        gradients.append([_g if _g is None else _g.resolve_neg().contiguous() for _g in _found])
""".strip()

_RAMPS = """
_ends = [_t for _t in (*outs[-1], p, q) if isinstance(_t, torch.Tensor) and _t.grad_fn is not None]
_ramps = [torch.arange(1, _t.numel() + 1).sin().to(_t.dtype).reshape(_t.shape) for _t in _ends]
"""
_ACCUMULATED = """
gradients = [_t.grad if _t.grad is None else _t.grad.clone().contiguous() for _t in (x, y)]
"""

#: That, and other ways to go back: from all outputs at once, from some, twice, with hooks.
BACKWARDS = (
    GRADIENTS,
    f"{_RAMPS}torch.autograd.backward(_ends, _ramps)\n{_ACCUMULATED}",
    f"{_RAMPS}torch.autograd.backward(_ends[:1], _ramps[:1])\n{_ACCUMULATED}",
    f"{_RAMPS}torch.autograd.backward(_ends[1:], _ramps[1:], retain_graph=True)\n{_ACCUMULATED}"
    f"torch.autograd.backward(_ends[:2], _ramps[:2])\n{_ACCUMULATED}",
    f"{_RAMPS}torch.autograd.backward(_ends, _ramps, retain_graph=True)\n{_ACCUMULATED}"
    "_wanted = [_t for _t in (x, y) if _t.requires_grad][:1]\n"
    f"torch.autograd.backward(_ends, _ramps, inputs=_wanted)\n{_ACCUMULATED}",
    # Known if the backward ends: where it raises, nobody is told which hooks come before that.
    f"{_RAMPS}_seen = {{}}\nfor _n, _t in enumerate(_ends):\n    if _t is not p and _t is not q:\n"
    "        _t.register_hook(lambda _g, _n=_n: _seen.update({_n: _g.resolve_neg().clone()}))\n"
    f"torch.autograd.backward(_ends, _ramps)\nseen = _seen\n{_ACCUMULATED}",
)

#: Of arguments, before the call, where all outputs have gradients: of what else eager would not ask
#: an argument, a compiled graph tells it that there is none.
HOOKS = (
    "",
    "told = {}\nfor _n, _t in enumerate((p, q)):\n    if _t.requires_grad:\n"
    "        _t.register_hook(lambda _g, _n=_n: told.update({_n: _g.resolve_neg().clone()}))",
    "for _t in (p, q):\n    if _t.requires_grad:\n        _t.register_hook(lambda _g: _g * 2)",
)

#: What a caller does next with what it has.
AFTERWARDS = (
    "outs.clear()",
    "with torch.no_grad():\n    [_t.mul_(2) for _t in outs[-1] if isinstance(_t, torch.Tensor)]",
    "outs[-1][0].mul_(2)",
    "p.add_(1)",
    "with torch.no_grad():\n    x.add_(1)",
    "sum([_t.sum() for _t in outs[-1][:2] if isinstance(_t, torch.Tensor)]).real.backward()",
)


@st.composite
def programs(draw: st.DrawFn, relation: Relation) -> str:
    """A module that defines ``program(u, v)``, of 2 to 6 statements; it returns a tuple."""
    names: dict[str, list[str]] = {"a": ["u", "v"], "p": []}
    copies = [*_VIEWS, *_COPIES, *(_ORDERED_COPIES if relation.ordered else ())]
    writes = [*_WRITES, *(_ORDERED_WRITES if relation.ordered else ())]
    writes += _METADATA if relation.plain else ()
    lines = []

    def fill(template: str) -> str:
        words: dict[str, object] = {
            "a": draw(st.sampled_from(names["a"])),
            "b": draw(st.sampled_from(names["a"])),
            "n": draw(st.sampled_from((1, 2, -1, 3))),
            "k": draw(st.integers(0, 3)),
            "h": draw(st.integers(0, 1)),
        }
        if names["p"]:
            words["p"] = draw(st.sampled_from(names["p"]))
        return template.format(**words)

    for number in range(draw(st.integers(2, 6))):
        sort, made = draw(st.sampled_from(copies))
        if draw(st.integers(0, 7)) == 0:
            sort, made = draw(st.sampled_from(_REGIONS))
            lines.append(fill(made.replace("{t}", f"t{number}")))
            names[sort].append(f"t{number}")
        elif draw(st.booleans()) and (names["p"] or "{p}" not in made):
            lines.append(f"t{number} = {fill(made)}")
            names[sort].append(f"t{number}")
        else:
            possible = [text for text in writes if names["p"] or "{p}" not in text]
            lines.append(fill(draw(st.sampled_from(possible))))
    known = [*names["a"], *names["p"]]
    results = draw(st.lists(st.sampled_from(known), min_size=0, max_size=2))
    extra = draw(st.lists(st.sampled_from(_RESULTS), min_size=1, max_size=3))
    results += [fill(text) for text in extra]
    body = textwrap.indent("\n".join(lines), "    ")
    functions = f"\n{_FUNCTIONS}" if ".apply(" in body else ""
    imported = "import torch\n"
    if "checkpoint(" in body:
        imported += "from torch.utils.checkpoint import checkpoint\n"
    returned = f"    return {', '.join(results)},\n"
    return f"{imported}{functions}\n\ndef program(u, v):\n{body}\n{returned}"
