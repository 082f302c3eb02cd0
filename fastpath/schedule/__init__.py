"""Scheduling: which nodes share a kernel, and what loops that kernel has.

In: a :class:`~fastpath.ir.program.Program`. Out: a list of kernels
(:class:`~fastpath.schedule.kernel.Kernel`) and ATen calls in an order that respects every
dependency. Nothing here knows a printer.
"""
