"""The GPU's half: the same scheduled kernels, printed as Triton."""
