"""What a graph's run still holds where it fails: what the program had then, and may have kept.

A run that has written to its inputs cannot be made again, so what it has computed has to be there
then; as Python, a graph lets go of each value behind its last use.
"""

from __future__ import annotations

import torch

from refcompiler.naming import target_name

#: In the meta of a node: inputs were written to before it, and it may raise what is known only
#: then, or a handler of the program's stands around it.
CAUGHT = "refcompiler_caught"
#: What their names begin with that look at positions, classes or matrices.
_LOOKING: tuple[str, ...] = (
    "embedding",
    "gather",
    "index_",
    "scatter",
    "take",
    "cross_entropy",
    "nll_loss",
    "put",
)
_LOOKING += ("multinomial", "one_hot", "cholesky", "inverse", "linalg_", "repeat_interleave")
_ENDS = " = None\n"


def may_raise(node: torch.fx.Node) -> bool:
    """Whether what ``node`` does with sizes that fit may be an error for some values."""
    name = target_name(node.target)
    if name in ("getitem", "setitem"):
        places = node.args[1]
        parts = places if isinstance(places, tuple) else (places,)
        return any(isinstance(part, (torch.fx.Node, list)) for part in parts)
    return name.startswith(_LOOKING)


def last_caught(graph: torch.fx.Graph) -> int | None:
    """The number of the last node that has ``CAUGHT``."""
    return max((i for i, node in enumerate(graph.nodes) if CAUGHT in node.meta), default=None)


def hold_for_handlers(graph: torch.fx.Graph) -> None:
    """As Python, ``graph`` lets go of nothing before the last node that has ``CAUGHT``."""
    last = last_caught(graph)
    if last is not None:
        hold(graph, last)


def hold(graph: torch.fx.Graph, last: int) -> None:
    """As Python, ``graph`` lets go of nothing before its node number ``last`` has run."""
    mark = f"# COUNTER: {last}\n"  # torch writes one before each node

    def later(body: list[str]) -> list[str]:
        if mark not in body:
            return body
        found = body.index(mark)
        kept, names = [], []
        for text in body[:found]:
            if text.startswith(";") and text.endswith(_ENDS):
                names.append(text[1 : -len(_ENDS)].strip())
                text = "\n"
            kept.append(text)
        for i, text in enumerate(body[found:], found):
            if names and (text == "\n" or text.startswith(";")):
                ended = [text[1 : -len(_ENDS)].strip()] if text != "\n" else []
                return [*kept, f";  {' = '.join([*names, *ended])}{_ENDS}", *body[i + 1 :]]
            kept.append(text)
        return body

    graph.on_generate_code(lambda before: later)
