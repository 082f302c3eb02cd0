"""One file of CPython's own tests, method by method, in a process that may die of it.

    worker.py FD MODE NAME [INDEX ...]

``MODE`` is ``native``, ``interpreted``, ``imported`` or ``compiled``, ``NAME`` a module of the
package ``test`` (or, with a dot, of any), and the indices are the methods to run, in the loader's
order (none: all). One line of JSON per event goes to the file descriptor ``FD``: {"tests": ids},
{"start": index}, {"end": index, "outcome": ..., "text": ..., "frames": n, "seconds": s}.

Interpreted, everything runs in the interpreter: the suite's fixtures, ``TestCase.run``, the method
and what it calls. A method whose own code never got an interpreted frame did not run in it.

Compiled, the method is ``refcompiler.compile(method, backend="eager")``, and its frames are the
captures that were made; {"end": ...} has "counts" of what happened too. A call whose guards fail at
once is a failure here, though it costs a program nothing but time. ``imported`` is ``native`` in a
process that has imported the compiler: what some tests see is that torch is there.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
import traceback
import unittest
from types import CodeType, FunctionType, MethodType
from typing import Any


def collect(name: str) -> list[Any]:
    """The tests of the module, its doctests and ``load_tests`` included, in the loader's order."""
    found: list[Any] = []

    def walk(suite: Any) -> None:
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                walk(test)
            else:
                found.append(test)

    module = name if "." in name else f"test.{name}"
    walk(unittest.defaultTestLoader.loadTestsFromName(module))
    return found


def own_code(test: Any) -> CodeType | None:
    """The code of the method, or None where that is no Python function (a doctest)."""
    method = getattr(test, getattr(test, "_testMethodName", "runTest"), None)
    function = method.__func__ if isinstance(method, MethodType) else method
    return function.__code__ if isinstance(function, FunctionType) else None


def outcome_of(result: unittest.TestResult) -> tuple[str, str]:
    if result.errors or result.failures or result.unexpectedSuccesses:
        texts = [text for _, text in result.errors + result.failures]
        return "failed", texts[0] if texts else "unexpected success"
    if result.skipped and result.testsRun <= len(result.skipped):
        return "skipped", result.skipped[0][1]
    if not result.testsRun:
        return "failed", "no test was run"
    return "passed", ""


def natively(test: Any) -> tuple[str, str, int]:
    result = unittest.TestResult()
    unittest.TestSuite([test]).run(result)
    return *outcome_of(result), 0


def compiled(test: Any) -> tuple[str, str, int]:
    import refcompiler
    from refcompiler.runtime.counters import reasons

    name = getattr(test, "_testMethodName", "runTest")
    method = getattr(test, name)
    refcompiler.reset()
    if isinstance(method, MethodType):
        function = refcompiler.compile(method.__func__, backend="eager")
        test.__dict__[name] = MethodType(function, method.__self__)
    else:  # a static method
        test.__dict__[name] = refcompiler.compile(method, backend="eager")
    result = unittest.TestResult()
    try:
        unittest.TestSuite([test]).run(result)
    finally:
        test.__dict__.pop(name, None)
    outcome, text = outcome_of(result)
    told = [why for why in map(str, reasons("fallbacks")) if "fail at once" in why]
    if outcome == "passed" and told:
        outcome, text = "failed", f"GuardWarning: {told[0]}"
    return outcome, text, refcompiler.counters()["captures"]


def counts() -> dict[str, int]:
    """What the compiler did since ``compiled`` began: captures, graphs, breaks, ..."""
    counters = sys.modules["refcompiler"].counters()
    return {name: n for name, n in counters.items() if n}


def interpreted(test: Any) -> tuple[str, str, int]:
    from refcompiler.interpreter.frame import Frame
    from refcompiler.interpreter.machine import Machine

    entered: set[int] = set()
    frames = 0

    class Counting(Machine):
        def enter(self, program: Any, function: Any, fast: Any) -> Frame:
            nonlocal frames
            frames += 1
            entered.add(id(program.code))
            return super().enter(program, function, fast)

        def reenter(self, frame: Frame) -> Any:
            nonlocal frames
            frames += 1
            entered.add(id(frame.program.code))
            return super().reenter(frame)

        def module_frame(self, code: CodeType, globals_: dict, locals_: Any) -> Frame:
            nonlocal frames
            frames += 1
            return super().module_frame(code, globals_, locals_)

    code = own_code(test)
    result = unittest.TestResult()
    suite = unittest.TestSuite([test])
    machine = Counting()
    machine.run(machine.make_frame(unittest.TestSuite.run, (suite, result), {}))
    outcome, text = outcome_of(result)
    if outcome == "passed" and code is not None and id(code) not in entered:
        return "failed", "NotInterpreted: the method's own code ran natively", frames
    return outcome, text, frames


def main(fd: int, mode: str, name: str, wanted: list[int]) -> None:
    process = os.getpid()

    def report(**event: Any) -> None:
        if os.getpid() != process:
            os._exit(1)  # a child that the test forked came back
        os.write(fd, json.dumps(event).encode() + b"\n")

    run = natively
    if mode in ("imported", "compiled"):
        # No capture of an earlier run may stand in for one of this.
        os.environ["REFCOMPILER_CACHE_PROGRAMS"] = "0"
        import torch

        import refcompiler

        torch.set_num_threads(1)
        refcompiler.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # imports the rest
        run = compiled if mode == "compiled" else natively
    tests = collect(name)
    report(tests=[test.id() for test in tests])
    if mode == "interpreted":
        import refcompiler.interpreter.api

        run = interpreted
    gc.collect()
    gc.freeze()  # collecting after each method looks at what that method made
    for index in wanted or range(len(tests)):
        report(start=index)
        random.seed(index)  # both ways see the same numbers
        began = time.perf_counter()
        frames = 0
        told: dict[str, Any] = {}
        if mode == "imported" and own_code(tests[index]) is None:
            report(end=index, outcome="skipped", text="no function to compile")
            continue
        try:
            outcome, text, frames = run(tests[index])
        except BaseException:  # SystemExit and KeyboardInterrupt leave unittest
            outcome, text = "failed", traceback.format_exc()
        seconds = time.perf_counter() - began
        if mode == "compiled":
            told = {"counts": counts()}
        report(
            end=index, outcome=outcome, text=text[-6000:], frames=frames, seconds=seconds, **told
        )
        gc.collect()
        gc.freeze()
    report(done=True)
    os._exit(0)  # threads that a test left behind do not keep the worker


if __name__ == "__main__":
    __name__ = "refcompiler.worker"  # frames of this file are the interpreter's, not the user's
    root = os.path.dirname(os.path.abspath(__file__))
    sys.path[0] = os.path.normpath(os.path.join(root, "..", "..", ".."))
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], [int(i) for i in sys.argv[4:]])
