"""Bytecode as data. In: a code object. Out: a :class:`~refcompiler.bytecode.decode.Program`.

A program is a compact list of instructions (no caches, no extended arguments) with decoded
arguments, jump targets as instruction indices, lines, the exception table and live locals.
"""
