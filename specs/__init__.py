"""The specification as rows: what the code, the tests and the documentation all read.

In: nothing of this project (and no torch: dtypes are named by strings such as ``"float32"``).
Out: one :class:`~specs.table.Table` per chapter: ``scalars``, ``operators``, ``opcodes``,
``breaks``, ``guards``, ``backends``.
"""
