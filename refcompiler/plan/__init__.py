"""Plans. In: a finished capture. Out: generated Python that checks, runs the graph, rebuilds.

A plan is one readable function: guards, the call of the compiled graph, the values that the
frame needs, the side effects, and either the frame's value or what to resume.
"""
