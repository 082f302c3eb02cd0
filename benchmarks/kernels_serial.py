"""Kernels on one thread, by its processor time: a figure that a busy machine hardly moves."""

from __future__ import annotations

from benchmarks import kernels
from benchmarks.harness import Row


def rows() -> list[Row]:
    return kernels.rows(serial=True)
