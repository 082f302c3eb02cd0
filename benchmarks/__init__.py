"""Figures of the project. In: ways to do one thing twice. Out: rows of ratios for the docs."""
