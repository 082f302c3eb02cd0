"""Eager's random numbers: the generators' streams, and the distributions made of them."""
