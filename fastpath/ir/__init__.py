"""Loop IR: what each element of each tensor is, before anybody says how loops run.

In: a functional ATen graph. Out: a :class:`~fastpath.ir.program.Program` of pointwise nodes,
reductions and ATen calls; views have become index arithmetic. Nothing here knows a printer.
"""
