"""Graphs with symbols under inductor, which compiles C++ for each."""

from tests.cpu.shapes.test_backends import gradients_and_floats


def test_gradients_and_floats() -> None:
    gradients_and_floats("inductor")
