"""The fast path on the CPU against inductor, interleaved in one process: kernels, memory,
first calls, bandwidth; and models, by :mod:`benchmarks.cpu.steps`.

    python -m benchmarks.cpu [--only NAME ...] [--parts kernels memory first bandwidth]

prints each row as it is taken. Times are processor time of one thread, which a busy machine
disturbs little; with ``--threads`` they are wall time with all of torch's threads.
"""

from __future__ import annotations

from benchmarks.harness import Row


def rows() -> list[Row]:
    from benchmarks.cpu.measure import every

    return every()
