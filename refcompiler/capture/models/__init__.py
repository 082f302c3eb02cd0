"""Callables that run differently in the symbolic domain than natively."""
