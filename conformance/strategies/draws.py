"""Draws short training programs in which random numbers come in every way that torch has.

Everything is a 4 x 6 matrix, so that any statement takes any of them. A program draws more than it
uses, draws the same twice, writes draws into views, and draws in regions that run a second time in
the backward: the generator has to be where eager leaves it after the call and after each backward.
"""

from __future__ import annotations

import textwrap

from hypothesis import strategies as st

#: Ways to draw by families of operators; {a} and {b} are matrices, {n} a number, {h} 0 or 1.
DRAWS = {
    "factories": (
        "torch.rand(4, 6)", "torch.randn(4, 6)", "torch.rand_like({a})", "torch.randn_like({a})",
        "torch.randint(0, 9, (4, 6)).to(torch.float32)", "torch.randint_like({a}, 7)",
        "torch.randperm(24).view(4, 6).to(torch.float32)", "{a}[:, torch.randperm(6)]",
        "torch.rand(4, 6, dtype=torch.float64).to(torch.float32)", "torch.rand(6, 4).t()",
        "torch.randn(4, 6, dtype=torch.bfloat16).to(torch.float32)", "{a}[torch.randperm(4)]",
        "torch.normal(0.0, 2.0, (4, 6))", "{a} + torch.rand(6)", "torch.rand(0) .sum() + {a}",
        "torch.randn(2, 2, 6).view(4, 6)", "torch.rand(4, 1) * {a}", "torch.rand(()) * {a}",
    ),
    "distributions": (
        "torch.bernoulli({a}.detach().sigmoid())", "torch.normal({a}, 1.5)",
        "torch.normal(0.5, {a}.detach().abs() + 1)", "torch.poisson({a}.detach().abs())",
        "torch.multinomial({a}.detach().softmax(1), 6, replacement=True).to(torch.float32)",
        "torch.multinomial({a}.detach().softmax(1), 6).to(torch.float32)",
        "torch.distributions.Normal({a}, 1.0).rsample()", "torch.bernoulli({a}.detach(), 0.3)",
        "torch.distributions.Bernoulli(logits={a}.detach()).sample()",
        "torch.distributions.Categorical(logits={a}.detach()).sample((6,)).t() * 1.0",
        "torch.distributions.Exponential({a}.abs() + 1).rsample()",
    ),
    "dropout": (
        "F.dropout({a}, 0.3)", "F.dropout({a}, 0.0)", "F.dropout({a}, 1.0)", "F.dropout({a}, 0.5)",
        "F.alpha_dropout({a}, 0.4, True)", "F.dropout1d({a}, 0.5)", "F.dropout({a}, 0.5, False)",
        "F.dropout2d({a}.view(2, 2, 2, 3), 0.5).view(4, 6)", "F.rrelu({a}, training=True)",
        "F.feature_alpha_dropout({a}, 0.5, True)", "F.gumbel_softmax({a})",
        "F.gumbel_softmax({a}, hard=True)", "torch.dropout({a}.t(), 0.5, True).t()",
        "F.dropout3d({a}.view(1, 2, 2, 2, 3), 0.5).view(4, 6)", "F.dropout({a}[:, :1], 0.5) * {b}",
        "F.scaled_dot_product_attention({a}.view(1, 4, 6), {b}.view(1, 4, 6), {a}.view(1, 4, 6), "
        "dropout_p=0.4).view(4, 6)", "F.dropout({a}.expand(2, 4, 6), 0.5)[{h}]",
        "F.rrelu({a}, 0.1, 0.3)", "layer({a}.view(1, 4, 6))[0].view(4, 6)",
        "encoder({a}.view(1, 4, 6)).view(4, 6)",
    ),
    "in place": (
        "torch.empty(4, 6).uniform_(-1, {n} + 2)", "torch.empty(4, 6).normal_(1, 2)",
        "torch.empty(4, 6).exponential_()", "torch.empty(4, 6).cauchy_().clamp(-9, 9)",
        "torch.empty(4, 6).geometric_(0.3)", "torch.empty(4, 6).log_normal_()",
        "torch.empty(4, 6).random_(5)", "torch.empty(4, 6).bernoulli_(0.4)",
        "torch.empty(6, 4).t().uniform_()", "torch.empty(6, 4).t().bernoulli_(0.5)",
        "torch.empty(4, 6).bernoulli_({a}.detach().sigmoid())",
        "torch.empty(4, 12)[:, ::2].normal_()", "F.dropout({a} * 1, 0.5, inplace=True)",
        "torch.nn.init.trunc_normal_(torch.empty(4, 6))", "torch.empty(6, 4).t().exponential_()",
        "torch.nn.init.kaiming_uniform_(torch.empty(4, 6))",
        "torch.nn.init.orthogonal_(torch.empty(4, 6))", "torch.empty(4, 6).random_(-3, 4)",
        "torch.empty(4, 6, dtype=torch.int64).random_(8).to(torch.float32)",
    ),
    "regions": (
        "checkpoint(lambda t: F.dropout(t, 0.5).sin(), {a}, use_reentrant=False)",
        "checkpoint(lambda t: F.dropout(F.dropout(t.sin(), 0.2) * torch.rand(6), 0.3), {a}, "
        "use_reentrant=False)", "checkpoint(encoder, {a}.view(1, 4, 6), use_reentrant=False)"
        ".view(4, 6)", "checkpoint(lambda t, s: t * torch.randn_like(s) + s.cos(), {a}, {b}, "
        "use_reentrant=False)", "checkpoint(lambda t: t.sin() * torch.empty(4, 6).uniform_(), {a}, "
        "use_reentrant=False)", "torch.vmap(lambda r: r + torch.rand(6), randomness='same')({a})",
        "torch.vmap(lambda r: r * torch.rand(6), randomness='different')({a})",
        "torch.vmap(lambda r: F.dropout(r, 0.5), randomness='different')({a})",
        "checkpoint(lambda t: F.dropout(t, 0.5) * 2, {a}, use_reentrant=False, "
        "preserve_rng_state=False)",
        "checkpoint(lambda t: F.rrelu(t, training=True).sin(), {a}, use_reentrant=False)",
        "checkpoint(lambda t: checkpoint(lambda u: F.dropout(u, 0.5).exp(), t.sin(), "
        "use_reentrant=False) * torch.rand(4, 6), {a}, use_reentrant=False)",
    ),
    "generators": (
        "torch.rand(4, 6, generator=g)", "torch.randn(4, 6, generator=g)",
        "torch.empty(4, 6).uniform_(generator=g)", "torch.normal({a}, 1.0, generator=g)",
        "torch.bernoulli({a}.detach().sigmoid(), generator=g)",
        "torch.randint(0, 5, (4, 6), generator=g) * 1.0",
        "torch.randperm(24, generator=g).view(4, 6) * 1.0",
        "torch.multinomial({a}.detach().softmax(1), 6, generator=g) * 1.0",
        "torch.empty(4, 6).exponential_(generator=g)",
    ),
}  # fmt: skip
_WRITES = (
    "{a}[1:] = torch.rand(3, 6)", "{a}[:, 0].normal_()", "{a}.add_(torch.rand(6))",
    "{a}.mul_(torch.empty(4, 6).bernoulli_(0.5))", "torch.rand(4, 6)", "torch.randn(3).sum()",
    "{a}[{h}].uniform_(1, 2)", "F.dropout({a}, 0.5)", "torch.rand(2); torch.rand(2)",
    "F.dropout({a}, 0.5, inplace=True)", "{a}.t()[2:].exponential_()",
    "with torch.no_grad():\n    {a}.add_(F.dropout({b}, 0.5))", "torch.randperm(3)",
)  # fmt: skip
_USES = ("{a} * {b}", "{a} + {b}", "{a}.sin()", "{a}.t().contiguous().t()", "{a}.clone()")
_RESULTS = ("{a} * {b}", "{a}.sum()", "{a}[1:]", "{a}.detach()", "torch.rand(2)", "{a} + 0")

_MODULES = """
torch.manual_seed(11)
layer = torch.nn.LSTM(6, 6, 2, dropout=0.5, batch_first=True)
encoder = torch.nn.TransformerEncoderLayer(6, 2, 8, dropout=0.3, batch_first=True)
"""


@st.composite
def programs(draw: st.DrawFn, kind: str) -> str:
    """A module that defines ``program(u, v, g)``, of 2 to 6 statements; it returns a tuple."""
    names = ["u", "v"]
    made = [text for known, texts in DRAWS.items() if known != "generators" for text in texts]
    lines = []

    def fill(template: str) -> str:
        return template.format(
            a=draw(st.sampled_from(names)),
            b=draw(st.sampled_from(names)),
            n=draw(st.integers(1, 3)),
            h=draw(st.integers(0, 1)),
        )

    for number in range(draw(st.integers(2, 6))):
        texts = draw(st.sampled_from((DRAWS[kind], DRAWS[kind], _USES, _WRITES, made)))
        text = draw(st.sampled_from(texts))
        if texts is _WRITES:
            lines.append(fill(text))
        else:
            lines.append(f"t{number} = {fill(text)}")
            names.append(f"t{number}")
    results = draw(st.lists(st.sampled_from(names[2:] or names), max_size=2))
    results += [fill(text) for text in draw(st.lists(st.sampled_from(_RESULTS), min_size=1))[:3]]
    body = textwrap.indent("\n".join(lines), "    ")
    uses = "\n".join([*lines, *results])
    modules = _MODULES if "layer(" in uses or "encoder" in uses else ""
    return (
        "import torch\nimport torch.nn.functional as F\n"
        f"from torch.utils.checkpoint import checkpoint\n{modules}\n\n"
        f"def program(u, v, g):\n{body}\n    return {', '.join(results)},\n"
    )
