"""Torch's and Python's ambient state that a program reads and sets while it is captured."""
