"""Plain Python programs for timing an interpreter of Python: each does one kind of work.

All take about as long as one another natively (some hundred microseconds), so that a run of all
of them is an even mix, and return something that shows that the work was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def calls() -> int:
    def both(a: int, b: int = 2, *, c: int = 3) -> int:
        return a + b + c

    def one(a: int) -> int:
        return both(a)

    total = 0
    for i in range(1500):
        total += one(i) + both(i, 3) + both(i, c=4) + both(b=i, a=1)
    return total


def recursion() -> int:
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib(18)


def star_arguments() -> int:
    def inner(*args: int, **kwargs: int) -> int:
        return len(args) + len(kwargs)

    def outer(*args: int, **kwargs: int) -> int:
        return inner(*args, **kwargs)

    total = 0
    for i in range(1000):
        total += outer(i, 1, 2) + outer(i, key=i)
    return total


class Point:
    """What ``methods`` and its like work on."""

    def __init__(self, x: int, y: int = 0):
        self.x = x
        self.y = y

    @property
    def norm(self) -> int:
        return self.x * self.x + self.y * self.y

    def moved(self, dx: int, dy: int = 0) -> Point:
        return Point(self.x + dx, self.y + dy)

    def add(self, amount: int, scale: int = 1) -> int:
        self.y += amount * scale
        return self.y

    def __add__(self, other: Point) -> Point:
        return Point(self.x + other.x, self.y + other.y)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.x == other.x and self.y == other.y


class Named(Point):
    def __init__(self, x: int, name: str):
        super().__init__(x)
        self.name = name


def methods() -> int:
    point = Point(3)
    for i in range(1500):
        point.add(i)
        point.add(i, 3)
        point.add(i, scale=2)
    return point.y


def attributes() -> int:
    point = Point(3)
    total = 0
    for _ in range(7000):
        total += point.x
        point.y = total
        point.x = point.y % 7
    return total


def instances() -> int:
    total = 0
    for i in range(400):
        named = Named(i, "n")
        moved = named.moved(1, 2) + Point(1)
        total += moved.norm + (moved == named)
    return total


def arithmetic() -> int:
    total = 0
    for i in range(6000):
        total = (total * 3 + i) % 1009
        if total > 500:
            total -= 2
    return total


def loops() -> int:
    total = i = 0
    while i < 4000:
        i += 1
        for _ in (1, 2):
            if i & 1:
                continue
            total += 1
    return total


def comprehensions() -> int:
    rows = [[i * j for j in range(10)] for i in range(200)]
    large = {(i, j) for i, row in enumerate(rows) for j, v in enumerate(row) if v > 900}
    sums = {i: sum(v for v in row if v % 2) for i, row in enumerate(rows)}
    return len(large) + sum(sums.values())


def generators() -> int:
    def count(n: int) -> Iterator[int]:
        for i in range(n):  # noqa: UP028 - the yield is what is measured
            yield i

    def twice(n: int) -> Iterator[int]:
        yield from count(n)
        yield from count(n)

    return sum(count(8000)) + sum(1 for _ in twice(1500))


def exceptions() -> int:
    def check(i: int) -> int:
        if i % 3 == 0:
            raise ValueError(i)
        return i

    total = 0
    for i in range(2000):
        try:
            total += check(i)
        except KeyError:
            total = 0
        except ValueError as error:
            total += len(error.args)
        finally:
            total += 1
    return total


class Resource:
    def __init__(self, log: list[int]):
        self.log = log

    def __enter__(self) -> Resource:
        self.log.append(1)
        return self

    def __exit__(self, *error: object) -> None:
        self.log.append(-1)


def context_managers() -> int:
    log: list[int] = []
    for _ in range(1500):
        with Resource(log) as resource:
            resource.log.append(0)
    return len(log)


def strings() -> int:
    words = []
    for i in range(800):
        word = f"{i:04d}-{i % 7!r}"
        if word.startswith("00") or "5" in word:
            words.append(word.upper().replace("-", "_"))
        else:
            words.append(word[1:3] + word[-1])
    return len(",".join(words).split(","))


def containers() -> int:
    table: dict[int, list[int]] = {}
    for i in range(2000):
        key = i % 50
        if key not in table:
            table[key] = []
        table[key].append(i)
        first, *rest = table[key][-3:]
        pair = (first, len(rest))
        table[key][0] = pair[1]
    return sum(len(values) for values in table.values())


def closures() -> int:
    def counter(start: int) -> tuple[Callable[[int], int], Callable[[], int]]:
        value = start

        def add(amount: int) -> int:
            nonlocal value
            value += amount
            return value

        return add, lambda: value

    total = 0
    for i in range(250):
        add, read = counter(i)
        for j in range(20):
            add(j)
        total += read()
    return total


def matching() -> int:
    def area(shape: Any) -> int:
        match shape:
            case {"kind": "square", "side": side}:
                return side * side
            case (width, height):
                return width * height
            case Point(x=0):
                return 0
            case int() | float():
                return 1
            case _:
                return -1

    shapes = [{"kind": "square", "side": 3}, (2, 3), Point(0), 5, "text"]
    return sum(area(shape) for _ in range(400) for shape in shapes)


def queens() -> int:
    def place(row: int, columns: int, left: int, right: int) -> int:
        if row == size:
            return 1
        found = 0
        free = ~(columns | left | right) & full
        while free:
            bit = free & -free
            free ^= bit
            found += place(row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1)
        return found

    size = 6
    full = (1 << size) - 1
    return sum(place(0, 0, 0, 0) for _ in range(12))


def encoder() -> int:
    """JSON text of nested data."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}

    def text(value: str) -> str:
        return '"' + "".join([escapes.get(c, c) for c in value]) + '"'

    def encode(value: Any) -> Iterator[str]:
        if value is None or isinstance(value, bool):
            yield {None: "null", True: "true", False: "false"}[value]
        elif isinstance(value, (int, float)):
            yield repr(value)
        elif isinstance(value, str):
            yield text(value)
        elif isinstance(value, dict):
            start = "{"
            for key, item in value.items():
                yield start
                yield text(key)
                yield ":"
                yield from encode(item)
                start = ","
            yield "}"
        else:
            start = "["
            for item in value:
                yield start
                yield from encode(item)
                start = ","
            yield "]"

    data = {"names": ["a\n", "b", 'c"'], "size": {"x": 1, "y": 2.5}, "more": [True, None] * 3}
    return sum(len("".join(encode(data))) for _ in range(40))


class Task:
    """One of the tasks of ``scheduler``, linked into a queue."""

    def __init__(self, priority: int, work: int, follower: Task | None):
        self.priority = priority
        self.work = work
        self.follower = follower
        self.done: list[int] = []

    def run(self, clock: int) -> bool:
        self.work -= self.cost(clock)
        self.done.append(clock)
        return self.work > 0

    def cost(self, clock: int) -> int:
        return 1


class Slow(Task):
    def cost(self, clock: int) -> int:
        return 2 if clock % self.priority == 0 else 1


def scheduler() -> int:
    """A queue of tasks that take turns (in the manner of the benchmark Richards)."""
    queue: Task | None = None
    for i in range(1, 40):
        queue = (Slow if i % 3 else Task)(i, 20 + i, queue)
    clock = 0
    ended: list[Task] = []
    while queue is not None:
        task, previous = queue, None
        while task is not None:
            clock += 1
            if task.run(clock):
                previous = task
            else:
                ended.append(task)
                if previous is None:
                    queue = task.follower
                else:
                    previous.follower = task.follower
            task = task.follower
    return clock + sum(len(task.done) for task in ended)


WORKLOADS: tuple[Callable[[], int], ...] = (
    calls,
    recursion,
    star_arguments,
    methods,
    attributes,
    instances,
    arithmetic,
    loops,
    comprehensions,
    generators,
    exceptions,
    context_managers,
    strings,
    containers,
    closures,
    matching,
    queens,
    encoder,
    scheduler,
)


def mix() -> int:
    """All of them, one after the other."""
    return sum(workload() for workload in WORKLOADS)
