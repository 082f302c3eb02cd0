"""Kernels for the CPU. In: scheduled kernels. Out: callables that take addresses."""
