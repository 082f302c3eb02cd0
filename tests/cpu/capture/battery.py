"""Functions at each instruction of which a break is forced: those of this file, and the programs of
all tests of capture.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import importlib
import itertools
import math
import operator
import pkgutil
import random
import statistics
import struct
import threading
import typing

import torch

from tests.cpu import capture
from tests.cpu.capture.oracle import Cases
from tests.cpu.capture.test_alive import Logging, managed, numbers
from tests.cpu.capture.test_alive_state import Version

cases = Cases()


#: Programs whose results a break may change, and why.
EXCEPT = {
    "autocast_with_gradients": "a graph's end empties the cache of casts, which moves a rounding",
    "in_holders_that_swap": "what an object from before a break is given ends with the frame",
    "compiled_by_torchs_name": "behind a break in torch's wrapper its compiler sees our frames",
}


def battery() -> Cases:
    """Each program once, under its own name."""
    found = {str(case): case for case in cases}
    for module in pkgutil.iter_modules(capture.__path__):
        if module.name.startswith("test_"):
            programs = getattr(
                importlib.import_module(f"{capture.__name__}.{module.name}"), "cases", []
            )
            for case in programs:
                if str(case) not in EXCEPT:
                    found.setdefault(str(case), case)
    return Cases(found.values())


@cases()
def for_else_and_continue():
    def f(x):
        for i in range(5):
            if i == 1:
                continue
            if i == 4:
                break
            x = x + i
        else:
            x = x * 0
        return x

    return f


@cases()
def while_over_a_deque():
    def f(x):
        todo = collections.deque([1, 2, 3], maxlen=4)
        while todo:
            n = todo.popleft()
            if n == 2:
                todo.append(7)
            x = x * n
        return x, todo

    return f


@cases()
def reversed_and_sliced():
    def f(x):
        found = [a + b for a, b in zip(reversed([1, 2, 3]), itertools.count(2), strict=False)]
        return x * found[-1], found[::-1], list(reversed({"a": 1, "b": 2}))

    return f


@cases()
def comprehension_in_comprehension():
    def f(x):
        rows = [[x * i + j for j in range(2)] for i in range(3) if i]
        return {i: row for i, row in enumerate(rows)}, {len(row) for row in rows}

    return f


@cases()
def starred_targets():
    def f(x):
        first, *middle, last = (x * i for i in range(4))
        (a, b), c = (first, last), middle
        return a + b, c, [*middle, *range(2)], {**{"k": a}}

    return f


@cases()
def iter_with_a_sentinel():
    def f(x):
        left = [3, 2, 1, 0]
        for n in iter(lambda: left.pop(0), 0):
            x = x + n
        return x, left

    return f


@cases()
def grouped_and_accumulated():
    def f(x):
        groups = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 3, 3])]
        total = list(itertools.accumulate([1, 2, 3], operator.mul))
        return x * total[-1], groups, list(itertools.starmap(pow, [(2, 3)]))

    return f


@cases()
def generator_in_a_generator():
    def f(x):
        def twice(source):
            for value in source:
                yield value
                yield value * 2

        return [v + i for i, v in enumerate(twice(twice(numbers(x, 2))))]

    return f


@cases()
def generator_left_early():
    def f(x):
        log = []

        def g():
            try:
                for i in itertools.count():
                    yield x + i
            finally:
                log.append("closed")

        with contextlib.closing(g()) as it:
            for v in it:
                x = x + v
                if len(log) == 0 and x is not None:
                    break
        return x, log

    return f


@cases()
def generator_with_a_handled_exception():
    def f(x):
        def g():
            try:
                raise KeyError("k")
            except KeyError as error:
                yield x * 2
                yield str(error)
            yield 3

        found = []
        for v in g():
            try:
                raise ValueError("v")
            except ValueError as error:
                found.append((v, error.__context__ is None))
        return found

    return f


@cases()
def generator_ends_with_a_value():
    def f(x):
        def inner():
            got = yield 1
            return x * got

        def outer():
            value = yield from inner()
            yield value

        g = outer()
        return next(g), g.send(3), next(g, None)

    return f


@cases()
def stop_iteration_inside():
    def f(x):
        def g():
            yield next(iter([]))

        try:
            return list(g())
        except RuntimeError as error:
            return x + 1, str(error), type(error.__cause__).__name__

    return f


@cases()
def nested_handlers():
    def f(x):
        log = []
        for kind in (KeyError, ValueError, TypeError):
            try:
                try:
                    raise kind("k")
                except KeyError:
                    log.append("key")
                except ValueError as error:
                    log.append(str(error))
                    raise LookupError(x.shape[0]) from error
                else:
                    log.append("never")
                finally:
                    x = x + 1
            except (LookupError, TypeError) as error:
                log.append((type(error).__name__, error.args, error.__cause__))
        return x, log

    return f


@cases()
def return_in_finally():
    def f(x):
        def g(n):
            for i in range(3):
                try:
                    if i == n:
                        return x * i
                    x_i = x + i
                finally:
                    if n == 2 and i == 1:
                        return x_i - 5
            return x_i

        return g(0), g(2), g(5)

    return f


@cases()
def exception_group():
    def f(x):
        log = []
        try:
            raise ExceptionGroup("g", [KeyError("a"), ValueError("b"), TypeError("c")])
        except* KeyError as group:
            log.append([str(e) for e in group.exceptions])
        except* (ValueError, TypeError) as group:
            log.append(len(group.exceptions))
        return x + len(log), log

    return f


@cases()
def exception_of_a_method():
    class Custom(Exception):
        def __init__(self, text, n):
            super().__init__(text)
            self.n = n

        def __str__(self):
            return f"{self.args[0]}/{self.n}"

    def f(x):
        def low(n):
            if n == 0:
                raise Custom("deep", x.shape[1])
            return low(n - 1)

        try:
            low(2)
        except Custom as error:
            error.add_note("noted")
            return x * error.n, str(error), error.__notes__, error.__traceback__ is None

    return f


@cases()
def assertion_and_del():
    def f(x):
        y = x + 1
        try:
            assert y is x, "differs"
        except AssertionError as error:
            text = str(error)
        del y
        try:
            return y  # noqa: F821
        except UnboundLocalError:
            return x, text

    return f


@cases()
def contexts_in_order():
    def f(x):
        log = []
        try:
            with Logging(log) as first, managed(log) as v, torch.no_grad():
                x = x * v
                log.append(torch.is_grad_enabled())
                raise ValueError(first is not None)
        except ValueError as error:
            log.append(error.args)
        return x, log, torch.is_grad_enabled()

    return f


@cases()
def exit_that_raises():
    class Bad(Logging):
        def __exit__(self, *error):
            self.log.append(error[0].__name__)
            raise RuntimeError("from exit")

    def f(x):
        log = []
        try:
            with Bad(log):
                raise KeyError("k")
        except RuntimeError as error:
            return x * 2, log, repr(error.__context__)

    return f


@cases()
def decorated_context():
    def f(x):
        log = []

        @managed(log)
        def inner(t):
            log.append("body")
            return t * 2

        return inner(x) + inner(x), log

    return f


@cases()
def class_with_inheritance():
    def f(x):
        class Base:
            names = []

            def g(self, t):
                return t + 1

        class Left(Base):
            def g(self, t):
                return super().g(t) * 2

        class Right(Base):
            def g(self, t):
                return super().g(t) - 3

        class Both(Left, Right):
            def g(self, t):
                self.names.append("both")
                return super().g(t)

        return Both().g(x), Base.names, [c.__name__ for c in Both.__mro__]

    return f


@cases()
def class_with_operators():
    def f(x):
        class V:
            def __init__(self, v):
                self.v = v

            def __add__(self, other):
                return V(self.v + other.v)

            def __eq__(self, other):
                return self.v is other.v

            def __len__(self):
                return 3

            def __getitem__(self, i):
                if i > 2:
                    raise IndexError(i)
                return self.v * i

            def __call__(self, k):
                return self.v - k

        v = V(x) + V(x * 2)
        return v(1), list(v), len(v), v == v, bool(v)

    return f


@cases()
def function_with_everything():
    def f(x):
        def g(a, /, b=2, *rest, c, d=4, **more):
            return a * b + sum(rest) + c * d + len(more)

        h = functools.partial(g, x, c=1)
        return h(3, 4, 5, z=6), g(x, c=2, d=x), g.__kwdefaults__

    return f


@cases()
def sorted_objects():
    def f(x):
        items = [Version(n) for n in (3, 1, 2)]
        items.sort()
        return x * items[0].v, items, sorted(items, key=lambda i: -i.v), max(items)

    return f


@cases()
def walrus_and_chains():
    def f(x):
        if (n := x.shape[0]) < 4 <= x.shape[1] and not n == 1:
            x = x * n
        return x if n else None, [y := 1, y**2], 1 < n < 9

    return f


@cases()
def matched():
    def f(x):
        found = []
        for value in ((1, x), {"k": 2, "r": 3}, Version(4), [5, 6, 7], "text"):
            match value:
                case (int(n), t):
                    found.append(t * n)
                case {"k": k, **rest}:
                    found.append((k, rest))
                case Version(v=v):
                    found.append(v)
                case [first, *others]:
                    found.append((first, others))
                case _:
                    found.append("other")
        return found

    return f


@cases()
def class_attributes_written_and_deleted():
    def f(x):
        class Base:
            made = 0

            def __init__(self, t):
                self.t = t
                type(self).made += 1

        class Sub(Base):
            pass

        first = Base(x).made, Sub(x).made, Sub.made, Base.made
        Sub.extra = x * 2
        Base.made = 7
        second = Sub(x).extra, Sub.made
        del Sub.made, Sub.extra
        return first, second, Sub.made, hasattr(Sub, "extra"), Sub(x).t + Base.made

    return f


@cases()
def dict_changed_while_iterated():
    def f(x):
        table = {1: x, 2: x}
        found = []
        for make in (iter, dict.values, dict.items):
            it = iter(make(table))
            next(it)
            table[len(table) + 1] = x
            try:
                next(it)
            except RuntimeError as error:
                found.append(str(error))
        return x + 1, found, len(table)

    return f


@cases()
def sequence_that_is_not_multiplied():
    class Money:
        def __mul__(self, other):
            return NotImplemented

    def f(x):
        found = []
        for a, b in ((Money(), "k"), ([1], Money()), ((1,), "k")):
            try:
                a * b
            except TypeError as error:
                found.append(str(error))
        return x * 2, found

    return f


@cases()
def property_set_and_deleted():
    class Celsius:
        def __init__(self, degrees):
            self._degrees = degrees

        @property
        def fahrenheit(self):
            return self._degrees * 9 / 5 + 32

        @fahrenheit.setter
        def fahrenheit(self, value):
            self._degrees = (value - 32) * 5 / 9

        @fahrenheit.deleter
        def fahrenheit(self):
            self._degrees = 0

    outside = Celsius(10)

    def f(x):
        inside = Celsius(x)
        inside.fahrenheit = inside.fahrenheit + 9
        outside.fahrenheit += 9
        warm = inside.fahrenheit * outside.fahrenheit
        del outside.fahrenheit
        return warm, inside, outside.fahrenheit

    return f, [(torch.randn(3, 4),), (torch.randn(3, 4),)], [outside]


@cases()
def classes_that_are_told_of():
    def f(x):
        known = {}

        class Named:
            def __set_name__(self, owner, name):
                self.name = name

            def __get__(self, holder, owner=None):
                return self.name if holder is None else holder.__dict__.get(self.name, x)

        class Base:
            def __init_subclass__(cls, /, key=None, **rest):
                super().__init_subclass__(**rest)
                known[key] = cls.__name__

        class One(Base, key="one"):
            field = Named()

        class Two(One, key="two"):
            pass

        two = Two()
        first = two.field
        two.__dict__["field"] = first + 1
        return first, two.field * 2, known, Two.field

    return f


@cases()
def copied_and_pickled_by_hand():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

        def __copy__(self):
            return Pair(self.a, [self.b])

        def __deepcopy__(self, memo):
            return Pair(copy.deepcopy(self.a, memo), self.b)

    class Reduced:
        def __init__(self, n):
            self.n = n

        def __reduce__(self):
            return Reduced, (self.n + 1,)

    def f(x):
        pair = Pair([1, 2], x)
        shallow, deep = copy.copy(pair), copy.deepcopy(pair)
        n = copy.copy(Reduced(1)).n
        return shallow.b[0] + deep.b * n, deep.a is pair.a, shallow.a is pair.a

    return f


@cases()
def methods_made_of_others():
    class Scaled:
        def __init__(self, k):
            self.k = k

        def scale(self, x, by=1, *, plus=0):
            return x * self.k * by + plus

        double = functools.partialmethod(scale, by=2)
        shifted = functools.partialmethod(scale, plus=1)

    def f(x):
        s = Scaled(3)
        return s.double(x) + s.shifted(x, 4) + s.double(x, plus=2)

    return f


@cases()
def random_of_its_own():
    own = random.Random(5)

    def f(x):
        order = list(range(4))
        own.shuffle(order)
        chosen = random.sample(order, 2)
        return x * own.random() + order[0], chosen, random.choice("abc"), own.getstate()

    return f


@cases()
def under_a_lock():
    lock = threading.Lock()

    def f(x):
        with lock:
            y = x + 1
            held = lock.locked()
        return y, held, lock.locked()

    return f


@cases()
def packed_and_typed():
    class Options(typing.TypedDict, total=False):
        scale: float
        name: str

    def f(x):
        options = Options(scale=2.0)
        options["name"] = "n"
        raw = struct.pack("<hd", 3, 0.5)
        three, half = struct.unpack("<hd", raw)
        return x * options["scale"] * three + half, options, statistics.fmean([1, 2, 6]), raw.hex()

    return f


@cases()
def state_of_iterators_and_sums():
    def f(x):
        pairs = itertools.pairwise([1, 2, 4, 8])
        batched = zip(*[iter([x, x + 1, x + 2, x + 3])] * 2, strict=True)
        total = sum((b - a for a, b in pairs), start=x)
        left, right = next(batched), list(batched)
        return total + math.prod([2, 3]), left[0] * left[1], right, min([3, 1], key=lambda v: -v)

    return f
