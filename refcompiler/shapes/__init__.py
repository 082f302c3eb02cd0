"""Symbolic shapes. In: integers with names (:class:`Symbol <sympy.Symbol>`). Out: arithmetic.

A :class:`~refcompiler.shapes.env.ShapeEnv` makes symbols, decides what is known of them, and
records as relations what a program decided by looking at their values. A
:class:`~refcompiler.shapes.node.Node` is one expression over them, which ``torch.SymInt``,
``torch.SymFloat`` and ``torch.SymBool`` wrap. ``ranges`` decides by interval arithmetic, ``text``
prints expressions as Python. Nothing here knows how a program is captured.
"""

from refcompiler.shapes.env import ShapeEnv
from refcompiler.shapes.node import Node
from refcompiler.shapes.relations import Relation

__all__ = ["Node", "Relation", "ShapeEnv"]
