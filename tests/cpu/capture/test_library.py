"""The standard library in captured programs: copies, warnings, log records, iterators of C.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import io
import itertools
import logging
import warnings
from fractions import Fraction

import pytest
import torch

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


# ---- copies -----------------------------------------------------------------------------------


class Plain:
    def __init__(self):
        self.x = 3
        self.items = [1, {"a": 2}]


class Own:
    def __init__(self, n):
        self.n = n

    def __copy__(self):
        made = Own(self.n)
        made.n += 10
        return made

    def __deepcopy__(self, memo):
        return Own(copy.deepcopy(self.n, memo) + 100)


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1
        self.b = [2]


class Reduced:
    def __init__(self, n):
        self.n = n

    def __reduce__(self):
        return Reduced, (self.n + 1,), {"extra": [self.n]}


class State:
    def __init__(self):
        self.a, self.b = 1, 2

    def __getstate__(self):
        return {"a": self.a}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.b = 5


@cases(recompiles=1, graphs=2)
def copies_of_objects():
    plain, slots = Plain(), Slots()

    def f(x):
        shallow, deep = copy.copy(plain), copy.deepcopy(plain)
        deep.items[1]["a"] = 5
        shallow.items.append(7)
        both = copy.deepcopy([plain, plain])
        return x * shallow.x, shallow, deep, copy.copy(slots), copy.deepcopy(slots), both

    return f, [(t(3),)] * 2, [plain, slots]


@cases()
def copies_by_a_protocol():
    own, reduced, state = Own(1), Reduced(1), State()

    def f(x):
        several = copy.deepcopy({"k": own, "l": [own]})
        found = copy.copy(own), several, copy.copy(reduced), copy.deepcopy(reduced)
        return x * several["k"].n, found, copy.copy(state), copy.deepcopy(state).b

    return f, [(t(3),)] * 2, [own, reduced, state]


@cases()
def copies_of_containers():
    Pair = collections.namedtuple("Pair", "a b")
    recent = collections.deque([1, [2]], maxlen=3)
    groups = collections.defaultdict(list, k=[1])
    same = (1, "a")

    def f(x):
        loop = [1]
        loop.append(loop)
        again = copy.deepcopy(loop)
        kept = copy.deepcopy(same) is same
        return (
            x + 1, copy.copy(recent), copy.deepcopy(recent), copy.deepcopy(groups), kept,
            copy.deepcopy(Pair(1, [2])), copy.copy(Pair(1, [2])), again[1] is again,
            copy.deepcopy((1, [2])), copy.deepcopy({3, 4}),
        )  # fmt: skip

    return f, [(t(3),)] * 2, [recent, groups]


@dataclasses.dataclass
class Point:
    a: int
    b: list


@cases(recompiles=1, graphs=2)
def copies_of_dataclasses():
    point = Point(1, [2])

    def change():
        point.a = 4

    def f(x):
        deep = copy.deepcopy(point)
        return x * deep.a, deep, deep == point

    return f, [(t(3),), change, (t(3),)], [point]


# ---- warnings ---------------------------------------------------------------------------------


@cases()
def warnings_in_order():
    def helper(y):
        warnings.warn(f"of {y.dim()} dimensions", stacklevel=2)
        return y * 2

    def f(x):
        y = helper(x + 1)
        warnings.warn("old", DeprecationWarning)
        warnings.warn(UserWarning("an instance", 3))
        return y

    return f, [(t(3),)] * 2


# ---- logging ----------------------------------------------------------------------------------


def _logger():
    logger, written = logging.getLogger("refcompiler.tests.library"), io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s %(lineno)d %(funcName)s"))
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    return logger, written


@cases(recompiles=1, graphs=2)
def log_records_in_order():
    logger, written = _logger()

    def change():
        logger.setLevel(logging.DEBUG)

    def f(x):
        y = x + 1
        logger.info("shape %s of %d", x.shape, x.dim())
        logger.debug("hidden at first")
        if logger.isEnabledFor(logging.DEBUG):
            y = y * 3
        logging.getLogger("refcompiler.tests.library").warning("loud")
        logger.log(25, "between")
        return y

    def seen():
        print(written.getvalue())

    return f, [(t(3),), seen, (t(3),), change, (t(3),), seen]


@cases(breaks=1, graphs=3, recompiles=1)
def log_records_for_a_handler_of_the_program_s():
    records = []

    class Kept(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    logger, _ = _logger()
    logger.handlers = [Kept()]

    def f(x):
        y = x + 1
        logger.info("once")
        logger.debug("never")
        return y * len(records)

    return f, [(t(3),), (t(3),)], [records]


@cases()
def log_records_that_a_cache_says_once():
    logger, written = _logger()

    @functools.lru_cache(None)
    def said(level, text):
        logger.log(level, text)

    @functools.lru_cache(None)
    def once(text):
        said(logging.WARNING, text + " inside")
        logger.warning(text)
        return len(text)

    def f(x):
        y = x * once("careful")
        logger.info("between")
        once("mind")
        return y + once("careful")

    def seen():
        print(written.getvalue(), once.cache_info(), said.cache_info())

    return f, [(t(3),), seen, (t(3),), seen, once.cache_clear, (t(3),), seen]


@cases(graphs=2, recompiles=1)
def log_records_of_other_arguments():
    """What only a record shows is not guarded, but for its class."""
    logger, written = _logger()

    def f(x, step, name, rate=0.1):
        logger.info("step %d of %s at %g", step, name, rate)
        y = x * 2
        logger.info(name)
        return y

    given = [(t(3), i, name, i / 10) for i, name in enumerate("abc")]
    return f, [*given, (t(3), 3, "d"), (t(3), True, "e"), lambda: print(written.getvalue())]


@cases(breaks=2)
def log_records_of_a_caller_through_a_cache():
    logger, written = _logger()
    once = functools.lru_cache(logger.warning)

    @functools.lru_cache(None)
    def scaled(n):
        logger.info("scale %d", n)
        return Fraction(n, 2)

    def f(x):
        once("in the frame")
        return x * float(scaled(3))

    def seen():
        print(written.getvalue(), once.cache_info(), scaled.cache_info())

    return f, [(t(3),), seen, (t(3),), seen]


# ---- iterators of C ---------------------------------------------------------------------------


@cases(breaks=1)
def a_break_inside_an_iterator_of_c():
    def f(x, given):
        y = x + 1
        chained = itertools.chain.from_iterable(given)
        return y, sorted(chained)

    def made():
        return itertools.starmap(itertools.repeat, [(1, 2), (3, 1)])

    return f, [(t(3), made()), (t(3), made())]


@pytest.mark.parametrize("case", cases, ids=str)
def test_library(case: Case) -> None:
    with warnings.catch_warnings():
        assert check(case) > 0


def test_a_warning_that_is_an_error_is_raised_where_it_is_given() -> None:
    def f(x: torch.Tensor) -> tuple:
        y = x * 2
        try:
            warnings.warn("now", FutureWarning)
        except FutureWarning as error:
            return y + 1, str(error)
        return y, ""

    compiled = refcompiler.compile(f, backend="eager")
    for action, expected in (("ignore", ""), ("error", "now"), ("always", "")):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(action)
            x = torch.ones(2)
            found, text = compiled(x)
            assert text == expected and found.tolist() == f(x)[0].tolist()
            assert len(seen) == 2 * (action == "always")
