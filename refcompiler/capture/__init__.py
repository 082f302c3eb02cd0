"""Capture. In: frames (a call, or a continuation). Out: a graph, guards, and what follows it.

The symbolic domain runs the interpreter's handlers on real objects: tensors from outside are
fake tensors with an fx node, values from outside are lazy until something observes them, and
torch calls pass through one door, which records them.
"""
