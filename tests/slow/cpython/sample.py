"""Tests that the harness's own tests run: what only the interpreter does wrong."""

from __future__ import annotations

import os
import sys
import time
import unittest

DOCTEST = """
>>> sum(range(4))
6
"""
__test__ = {"doctest": DOCTEST}


class Sample(unittest.TestCase):
    def setUp(self) -> None:
        self.interpreted = "refcompiler.interpreter.machine" in sys.modules

    def test_a_passes(self) -> None:
        self.assertEqual([x * x for x in range(3)], [0, 1, 4])

    def test_b_hangs(self) -> None:
        while self.interpreted:
            time.sleep(0.1)

    def test_c_dies(self) -> None:
        if self.interpreted:
            print("last words", flush=True)
            os._exit(3)

    def test_d_differs(self) -> None:
        with self.subTest("inner"):
            self.assertFalse(self.interpreted, "it is interpreted")

    def test_e_exits(self) -> None:
        if self.interpreted:
            raise SystemExit(0)

    def test_f_fails_natively(self) -> None:
        self.fail("everywhere")

    def test_g_forks(self) -> None:
        child = os.fork()
        if not child:
            return  # comes back into the worker
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 1)

    @unittest.skip("never")
    def test_h_is_skipped(self) -> None:
        pass

    def test_i_passes_after_all_that(self) -> None:
        self.assertRaises(KeyError, {}.__getitem__, 1)


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: object) -> object:
    import doctest

    tests.addTest(doctest.DocTestSuite(sys.modules[__name__]))
    return tests
