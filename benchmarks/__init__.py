"""Figures of the project. In: ways to do one thing twice. Out: rows of ratios for the docs."""

import os

# What is measured is compiled, unless a row is about what an earlier process has compiled.
os.environ.setdefault("REFCOMPILER_CACHE_PROGRAMS", "0")
