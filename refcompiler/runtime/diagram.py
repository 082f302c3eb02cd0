"""A picture of a graph: an SVG file, which every browser shows, drawn without another program.

Operations are boxes, in rows from the inputs down to the outputs; a row is one operation further
from the inputs than the row above it. What an operation reads comes in from above. Resting on a box
shows the whole node.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from xml.sax.saxutils import escape

import torch

_COLOURS = {
    "placeholder": "#d5e8d4",
    "get_attr": "#fff2cc",
    "call_function": "#dae8fc",
    "call_method": "#dae8fc",
    "call_module": "#e1d5e7",
    "output": "#f8cecc",
}
_LETTER, _LINE, _PADDING = 6.7, 15, 8  # pixels: a letter's width, a line's height
_ACROSS, _DOWN, _MARGIN = 18, 42, 20  # between boxes, between rows, around everything
_LONGEST = 44  # letters of a line


def svg(graph: torch.fx.Graph) -> str:
    """``graph`` as the text of an SVG file."""
    rows = _rows(graph)
    texts = {node: _lines(node) for node in graph.nodes}
    widths = {
        node: max(len(line) for line in lines) * _LETTER + 2 * _PADDING
        for node, lines in texts.items()
    }
    height = 2 * _LINE + _PADDING
    spans = [sum(widths[node] + _ACROSS for node in row) for row in rows]
    full = max(spans, default=0) + 2 * _MARGIN
    places: dict[torch.fx.Node, tuple[float, float]] = {}  # the middle of a box's upper edge
    for i, (row, span) in enumerate(zip(rows, spans, strict=True)):
        left = (full - span) / 2
        for node in row:
            places[node] = left + (widths[node] + _ACROSS) / 2, _MARGIN + i * (height + _DOWN)
            left += widths[node] + _ACROSS
    total = len(rows) * (height + _DOWN) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full:.0f}" height="{total:.0f}"'
        ' font-family="monospace" font-size="11">'
    ]
    for node, (x, y) in places.items():
        for read in dict.fromkeys(node.all_input_nodes):
            a, b = places[read]
            b += height
            parts.append(
                f'<path d="M{a:.1f} {b:.1f}C{a:.1f} {b + _DOWN / 2:.1f} {x:.1f} {y - _DOWN / 2:.1f}'
                f' {x:.1f} {y:.1f}" fill="none" stroke="#888"/>'
            )
    for node, (x, y) in places.items():
        parts.append(
            f"<g><title>{escape(_whole(node))}</title>"
            f'<rect x="{x - widths[node] / 2:.1f}" y="{y:.1f}" width="{widths[node]:.1f}"'
            f' height="{height}" rx="4" fill="{_COLOURS[node.op]}" stroke="#666"/>'
        )
        for i, line in enumerate(texts[node], 1):
            parts.append(
                f'<text x="{x:.1f}" y="{y + i * _LINE:.1f}" text-anchor="middle">'
                f"{escape(line)}</text>"
            )
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"])


def _rows(graph: torch.fx.Graph) -> list[list[torch.fx.Node]]:
    """The nodes by how far they are from the inputs; what has no inputs stands by its users."""
    depths: dict[torch.fx.Node, int] = {}
    for node in graph.nodes:
        depths[node] = 1 + max((depths[read] for read in node.all_input_nodes), default=-1)
    for node in graph.nodes:
        if not node.all_input_nodes and node.users:
            depths[node] = min(depths[user] for user in node.users) - 1
    rows: dict[int, list[torch.fx.Node]] = defaultdict(list)
    for node, depth in depths.items():
        rows[depth].append(node)
    ordered: list[list[torch.fx.Node]] = []
    across: dict[torch.fx.Node, float] = {}
    for depth in sorted(rows):
        row = rows[depth]
        middles = {node: _middle(node, across) for node in row}
        row.sort(key=middles.__getitem__)  # below what they read, so that few lines cross
        across.update((node, (i + 0.5) / len(row)) for i, node in enumerate(row))
        ordered.append(row)
    return ordered


def _middle(node: torch.fx.Node, across: dict[torch.fx.Node, float]) -> float:
    known = [across[read] for read in node.all_input_nodes if read in across]
    return sum(known) / len(known) if known else 0.5


def _lines(node: torch.fx.Node) -> list[str]:
    """The name of a node, and what it is and gives."""
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    named = node.name if node.op in ("placeholder", "output") else f"{node.name} = {target}"
    value: Any = node.meta.get("example_value")
    given = ""
    if isinstance(value, torch.Tensor):
        given = f"{str(value.dtype).removeprefix('torch.')}{[*value.shape]}"
    elif value is not None and not isinstance(value, (tuple, list)):
        given = str(value)
    return [_short(named), _short(given)]


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _whole(node: torch.fx.Node) -> str:
    return node.format_node() or f"return {node.args[0] if node.args else None}"
