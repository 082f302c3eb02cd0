"""The campaign that compiles the methods of CPython's own tests: what it makes of a method."""

from __future__ import annotations

import unittest
from typing import Any

import torch

from tests.slow.cpython import worker


class Methods(unittest.TestCase):
    ran: list[bool] = []

    def test_passes(self) -> None:
        found = [x * x for x in range(3)]
        self.ran.append(torch.compiler.is_compiling())
        self.assertEqual(found, [0, 1, 4])

    def test_differs(self) -> None:
        self.assertFalse(torch.compiler.is_compiling())

    @unittest.skip("never")
    def test_is_skipped(self) -> None:
        pass


class Called:
    def __call__(self) -> None:
        pass


def test_a_method_is_compiled_and_counted() -> None:
    Methods.ran.clear()
    test = Methods("test_passes")
    assert worker.compiled(test)[:2] == ("passed", "") and worker.counts()["captures"]
    assert Methods.ran == [True] and "test_passes" not in vars(test)
    assert worker.natively(test)[0] == "passed" and Methods.ran == [True, False]
    assert worker.natively(Methods("test_differs"))[0] == "passed"
    outcome, text, captures = worker.compiled(Methods("test_differs"))
    assert outcome == "failed" and "True is not false" in text and captures
    assert worker.compiled(Methods("test_is_skipped"))[0] == "skipped"


def test_guards_that_fail_at_once_are_failures(monkeypatch: Any) -> None:
    from refcompiler.runtime import counters

    told = ["test: guards of what was compiled fail at once: name"]
    monkeypatch.setattr(counters, "reasons", lambda name: told)
    outcome, text, _ = worker.compiled(Methods("test_passes"))
    assert outcome == "failed" and text.startswith("GuardWarning: test: guards")


def test_what_is_no_function_is_not_compiled() -> None:
    test: Any = Methods("test_passes")
    assert worker.own_code(test) is Methods.test_passes.__code__
    test.test_passes = Called()
    assert worker.own_code(test) is None
