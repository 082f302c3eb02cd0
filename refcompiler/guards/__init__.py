"""Guards as data. In: a kind, a source and what was found at capture. Out: a check in Python.

A :class:`~refcompiler.guards.sources.Source` says how a value is reached from the arguments; a
:class:`~refcompiler.guards.kinds.Guard` says what must hold of it.
"""
