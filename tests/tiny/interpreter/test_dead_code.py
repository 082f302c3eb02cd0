"""Programs of code that is gone are forgotten: making code without end does not fill the memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from refcompiler.bytecode import decode
from refcompiler.interpreter import binding, callers, registry, tracebacks
from refcompiler.interpreter.api import interpret

SOURCE = """
def f(x):
    y = [{0}]
    try:
        return x + y.pop() + y.pop()
    except IndexError as error:
        kept.append(error)
        return x + {0}
def g():
    held = yield f({0})
    yield held
"""


def churn(times: int, kept: list) -> tuple[int, list]:
    total, running = 0, []
    for i in range(times):
        errors: list = []
        space: dict[str, Any] = {"kept": errors}
        exec(SOURCE.format(i), space)
        total += eval(f"next(g()) + {i}", space)
        if not i % 100:
            kept.append(space["f"])
            generator = space["g"]()
            next(generator)
            running.append((generator, errors[-1]))
    return total, running


def test_programs_of_dead_code_are_forgotten() -> None:
    """In a process of its own, whose tables hold nothing else."""
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["forgotten"]


def check() -> None:
    kept: list = []
    times = 1500
    total, running = interpret(churn, times, kept)
    assert total == sum(3 * i for i in range(times))
    made = 4 * times
    tables = (registry.READY, decode._PROGRAMS, binding._PARAMETERS)
    for table in tables:  # what is in cycles is dead when the collector has seen it
        assert len(table) < 3 * made // 4, "kept"
    gc.collect()
    registry._forget_dead_code()
    for table in tables:
        assert len(table) < made // 8, "kept"
    assert len(tracebacks.DRIVERS) < made // 8 and len(callers.CALLERS) < made
    # what is still used still works, and what takes the place of what was forgotten is its own
    assert [interpret(f, 1) for f in kept] == [1 + i for i in range(0, times, 100)]
    assert [generator.send(7) for generator, _ in running] == [7] * len(running)
    for _, error in running:
        entry, names = error.__traceback__, []
        while entry is not None:
            names.append(entry.tb_frame.f_code.co_name)
            entry = entry.tb_next
        assert names == ["f"]


if __name__ == "__main__":
    check()
    print("forgotten")
