"""What CPython's own tests, compiled, showed about keys, copies, operators and namespaces.

Each program runs natively and compiled three times, with the graphs and breaks that it may cost.
"""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import functools
import gc
import pickle
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler

PROGRAMS: list[tuple[Callable[[torch.Tensor], Any], int, int]] = []
graph_break = torch._dynamo.graph_break


def program(graphs: int, breaks: int) -> Callable[[Callable], Callable]:
    """Registers a program; the numbers are those of the first call."""

    def register(function: Callable) -> Callable:
        PROGRAMS.append((function, graphs, breaks))
        return function

    return register


def seen(function: Callable[[torch.Tensor], Any]) -> str:
    Told.times = 0
    OUTSIDE.clear()
    OUTSIDE[Key(5)] = 5
    for queue in QUEUES:
        queue.clear()
        queue.extend([1, 2, 3])
    try:
        return repr(function(torch.ones(2)))
    except Exception as error:
        return repr((type(error), error.args))


# ---- keys whose __hash__ is Python ---------------------------------------------------------------


class Gone(Exception):
    pass


class Key:
    """Its hash may be another one later, or none."""

    def __init__(self, number: Any):
        self.number = number

    def __hash__(self) -> int:
        if self.number is None:
            raise Gone
        return hash(self.number)

    def __eq__(self, other: Any) -> bool:
        return type(other) is Key and self.number == other.number

    def __repr__(self) -> str:
        return f"Key({self.number})"


class Told(Key):
    """Counts how often it is asked."""

    times = 0

    def __hash__(self) -> int:
        Told.times += 1
        return hash(self.number)


class Mapping(dict):
    pass


OUTSIDE: dict[Any, Any] = {}
QUEUES = [collections.deque(), type("Queue", (collections.deque,), {})()]


@program(graphs=1, breaks=5)
def keys_that_have_no_hash_later(x):
    key, found = Key(42), []
    held = {key: x + 1}
    key.number = None
    try:
        held.pop(key)
    except Gone:
        found.append("gone")
    graph_break()
    found += [len(held), list(held.values())]
    try:
        held[key]
    except Gone:
        found.append("gone")
    key.number = 42
    return found, held[key]


@program(graphs=1, breaks=4)
def keys_that_change(x):
    key = Key(1)
    held, members = {key: 1}, {key}
    key.number = 2
    found = [key in held, Key(1) in held, Key(2) in held, key in members]
    graph_break()
    found += [key in held, Key(1) in held, Key(2) in held, key in members]
    key.number = 1
    return found, key in held, key in members, x + 1


@program(graphs=1, breaks=0)
def keys_that_are_given_back(x):
    key = Key(1)
    held, members, frozen = {key: x + 1}, {key}, frozenset([(key, "text")])
    counted = collections.defaultdict(list, {key: [2]})
    key.number = None
    return held, members, frozen, counted


@program(graphs=1, breaks=1)
def keys_in_what_lies_outside(x):
    key = Key(6)
    OUTSIDE[key] = x + 1
    key.number = None
    graph_break()
    key.number = 6
    return OUTSIDE[key], OUTSIDE[Key(5)], len(OUTSIDE)


@program(graphs=1, breaks=2)
def keys_of_a_class_of_dicts(x):
    key = Key(1)
    held = Mapping()
    held[key], held.key = 1, key
    key.number = None
    graph_break()
    key.number = 1
    return held[key], held.key is key, x + 1


@program(graphs=2, breaks=2)
def keys_that_are_parts_of_keys(x):
    held, key = {}, Key("a")
    held[key, 1], held[key, "b"] = x + 1, x + 2
    graph_break()
    found = held[Key("a"), 1] + held[(Key("a"), "b")]
    key.number = None
    graph_break()
    key.number = "a"
    return found, (key, 1) in held


@program(graphs=1, breaks=3)
def keys_that_count(x):
    held, members = {Told(1): x, Told("a"): x + 1}, {Told(3)}
    graph_break()
    return len(held), len(members), Told.times


@program(graphs=1, breaks=1)
def many_keys(x):
    held, members = {Key(i): i for i in range(40)}, {Key(i) for i in range(40)}
    graph_break()
    return [held[Key(i)] for i in range(40)], all(Key(i) in members for i in range(40)), x + 1


# ---- copies ------------------------------------------------------------------------------------


class Node:
    def __init__(self, value: Any):
        self.value, self.me, self.list = value, self, [value]

    def __deepcopy__(self, memo: dict) -> Node:
        if id(self) in memo:
            return memo[id(self)]
        memo[id(self)] = new = Node.__new__(Node)
        for name, value in self.__dict__.items():
            setattr(new, name, copy.deepcopy(value, memo))
        return new


@program(graphs=1, breaks=0)
def objects_that_note_their_copies(x):
    node = Node(x.shape)
    new = copy.deepcopy([node, node])
    return new[0] is new[1], new[0].me is new[0], new[0].list is node.list, x + 1


@program(graphs=1, breaks=5)
def a_memo_of_the_programs(x):
    memo: dict[int, Any] = {}
    given = [1, (2, 3), [3]]
    new = copy.deepcopy(given, memo)
    kept = memo[id(memo)]
    found = [len(memo), new, kept[0] is given[2], kept[-1] is given, memo[id(given)] is new]
    return found, copy.deepcopy([given], {id(given): given})[0] is given, x + 1


@program(graphs=0, breaks=1)
def tuples_that_are_equal(x):
    items = [1, 2]
    one, other = tuple(items), tuple(items)
    graph_break()
    return one is other, constant() is constant(), tuple(items) is tuple(items)


def constant() -> tuple:
    return (1, 2)


KNOWN = constant()


@program(graphs=1, breaks=1)
def tuples_of_the_code(x):
    one = constant()
    inside = one is KNOWN, one is constant()
    graph_break()
    return inside, one is KNOWN, one is constant(), x + 1


# ---- operators ---------------------------------------------------------------------------------


class Base(abc.ABC):
    def __lt__(self, other: Any) -> Any:
        return "less", type(self).__name__

    def __gt__(self, other: Any) -> Any:
        return "greater", type(self).__name__

    def __eq__(self, other: Any) -> Any:
        return "equal", type(self).__name__

    def __add__(self, other: Any) -> Any:
        return "add", type(self).__name__

    def __radd__(self, other: Any) -> Any:
        return "radd", type(self).__name__


class Derived(Base):
    pass


class Registered:
    def __gt__(self, other: Any) -> Any:
        return "greater", "Registered"

    def __eq__(self, other: Any) -> Any:
        return "equal", "Registered"


Base.register(Registered)


@program(graphs=1, breaks=0)
def comparisons_ask_the_derived_class_first(x):
    base, derived, registered = Base(), Derived(), Registered()
    found = [base < derived, base > derived, base == derived, derived < base, base + derived]
    found += [base != derived, derived != base]
    return found, base < registered, base == registered, x + 1


class Borrowing(int):
    __add__ = int.__sub__
    __eq__ = object.__eq__
    __hash__ = object.__hash__
    __bool__ = int.__invert__


class Same(str):
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


SAME, EQUAL, NUMBER = Same("a"), Same("a"), Borrowing(3)


@program(graphs=1, breaks=0)
def classes_that_compare_by_identity(x):
    return SAME == EQUAL, SAME != EQUAL, SAME == SAME, SAME in (EQUAL,), {SAME: 1}.get(EQUAL), x + 1


@program(graphs=1, breaks=2)
def classes_that_borrow_from_c(x):
    try:
        truth = bool(NUMBER)
    except TypeError as error:
        truth = str(error)
    return NUMBER + 1, 1 + NUMBER, truth, NUMBER != Borrowing(3), x + 1


# ---- exceptions --------------------------------------------------------------------------------


class Meta(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return True

    __subclasscheck__ = __instancecheck__


class Everything(Exception, metaclass=Meta):
    pass


class False_(Exception):
    def __bool__(self) -> bool:
        Told.times += 1
        return False


@program(graphs=1, breaks=1)
def a_metaclass_that_is_given_too_little(x):
    class Meta(type):
        pass

    try:
        Meta(5)
    except TypeError as error:
        return str(error), x + 1


@program(graphs=1, breaks=0)
def handlers_ask_no_metaclass(x):
    try:
        raise KeyError(1)
    except Everything:
        return "everything"
    except KeyError:
        return "key", x + 1


@program(graphs=1, breaks=0)
def exceptions_that_are_false(x):
    try:
        try:
            raise False_("a")
        except False_:
            y = x + 1
            raise
    except Exception as error:
        found = repr(error)
    try:
        try:
            raise False_("b")
        except False_:
            raise KeyError(1)
    except KeyError as error:
        return found, repr(error.__context__), Told.times, y


# ---- namespaces --------------------------------------------------------------------------------


class Hiding:
    def __init__(self, a: Any):
        self.a = a

    @property
    def __dict__(self) -> dict:  # type: ignore[override]
        Told.times += 1
        return {"shown": 1}


HIDING = Hiding(1)


@program(graphs=1, breaks=2)
def objects_that_show_another_namespace(x):
    own = Hiding(x + 1)
    own.b = HIDING.b = 2
    found = [own.__dict__, own.a, sorted(vars(own)), HIDING.__dict__, HIDING.b]
    graph_break()
    own.c = HIDING.c = 3
    return found, own.a, own.b, own.c, own.__dict__, HIDING.c, Told.times


@program(graphs=0, breaks=5)
def modules_without_attributes(x):
    module = types.ModuleType.__new__(types.ModuleType)
    found = [str(module), hasattr(module, "a"), dict(module.__dict__)]
    graph_break()
    module.a = x
    found += [dict(module.__dict__), hasattr(module, "a"), hasattr(module, "b"), "a" in dir(module)]
    graph_break()
    return found, module.__dict__, module.a


@program(graphs=1, breaks=3)
def modules_that_show_another_namespace(x):
    class Module(type(sys)):
        @property
        def __dict__(self):
            return "none"

    module = Module("module")
    module.b = 2
    graph_break()
    try:
        dir(module)
    except TypeError as error:
        return str(error), module.__dict__, module.b, x + 1


class Given:
    """A mapping by its methods, which know only some keys."""

    def __getitem__(self, key: Any) -> Any:
        if key == "a":
            return 1
        raise AttributeError(f"no {key!r}")

    def __len__(self) -> int:
        return 3


@dataclasses.dataclass
class Field:
    number: int = dataclasses.field(default=0, metadata=Given())  # type: ignore[arg-type]


@program(graphs=1, breaks=6)
def views_of_a_mapping_of_the_users(x):
    metadata = dataclasses.fields(Field)[0].metadata
    found = [len(metadata), metadata["a"]]
    try:
        metadata["b"]
    except AttributeError as error:
        found.append(str(error))
    graph_break()
    return found, metadata["a"], x + 1


# ---- functions and classes -----------------------------------------------------------------------


def outside(a: Any, b: int = 2) -> Any:
    return a + b + LIMIT


LIMIT = 1


class Plugin:
    def method(self) -> None:
        pass


PLUGIN = Plugin()


@program(graphs=1, breaks=1)
def globals_of_functions(x):
    def own():
        return LIMIT

    held = outside.__globals__
    outside.__globals__["WRITTEN"] = x + 1
    found = WRITTEN  # type: ignore[name-defined]  # noqa: F821
    graph_break()
    found = found is WRITTEN, own.__globals__ is held, held is globals()  # type: ignore[name-defined]  # noqa: F821
    builtins = outside.__builtins__  # type: ignore[attr-defined]
    return found, held.pop("WRITTEN"), "WRITTEN" in globals(), builtins["len"] is len


@program(graphs=1, breaks=1)
def functions_with_globals_of_their_own(x):
    space = {"a": 1, "y": x}
    own = types.FunctionType(COUNTING, space)
    again = types.FunctionType(outside.__code__, outside.__globals__, "again", (5,))
    found = [own(), again(x), again.__name__]
    space["y"] = x * 2
    return found, own(), space["a"], own.__globals__ is space


COUNTING = compile(
    "def count():\n    global a\n    a = a + y\n    return a\n", "<counting>", "exec"
).co_consts[0]


@program(graphs=0, breaks=5)
def namespaces_that_functions_are_given(x):
    def own():
        pass

    held = {"known": 7}
    own.__dict__ = held
    found = [held is own.__dict__, own.known]  # type: ignore[attr-defined]
    given = {"known": 8}
    outside.__dict__ = Plugin.method.__dict__ = given
    graph_break()
    held["later"] = x
    found += [held is own.__dict__, own.later, given is outside.__dict__]  # type: ignore[attr-defined]
    found += [PLUGIN.method.__dict__ is given, "known" in dir(PLUGIN.method), PLUGIN.method.known]
    outside.__dict__, Plugin.method.__dict__ = {}, {}
    return found


@program(graphs=1, breaks=6)
def classes_that_know_their_subclasses(x):
    class Child(Plugin):
        pass

    found = [c.__name__ for c in Plugin.__subclasses__()]
    graph_break()
    found += [c.__name__ for c in Plugin.__subclasses__()]
    other = [Plugin.__subclasses__() == [Child]]
    del Child
    gc.collect()
    return found, other, Plugin.__subclasses__(), x + 1


@program(graphs=0, breaks=5)
def proxies_of_what_the_frame_made(x):
    made = functools.partial(int, base=16)
    proxy = weakref.proxy(made)
    found = [made.func is proxy.func]
    graph_break()
    found.append(proxy.func is int)
    made = None
    try:
        return found, proxy.func
    except ReferenceError as error:
        return found, str(error)


@program(graphs=1, breaks=0)
def what_runs_already(x):
    async def coroutine():
        one.send(None)

    def generator():
        next(other)
        yield

    one, other, found = coroutine(), generator(), []
    for resume in (lambda: one.send(None), lambda: next(other)):
        try:
            resume()
        except ValueError as error:
            found.append(str(error))
    return found, x + 1


# ---- deques ------------------------------------------------------------------------------------


@program(graphs=2, breaks=5)
def deques_that_are_written_to_while_iterated(x):
    found = []
    for queue in QUEUES:
        items = iter(queue)
        found.append(next(items))
        queue[1] = 20
        graph_break()
        found.append(next(items))
        queue[2] = x + 1
        graph_break()
        found += list(items)
    return found, [list(queue) for queue in QUEUES]


@program(graphs=0, breaks=5)
def deques_and_their_iterators_that_are_pickled(x):
    queue = collections.deque(range(5))
    items = iter(queue)
    next(items)
    other, again = pickle.loads(pickle.dumps((items, queue)))
    for i in range(5):
        again[i] = i * 2
    found = [type(other) is type(items), list(other)]
    queue[3] = 77
    graph_break()
    queue[2] = 99
    return found, list(items)


class Far:
    """Its hash has all 64 bits, and is no remainder."""

    def __hash__(self) -> int:
        return -(2**63) + 5

    def __eq__(self, other: Any) -> bool:
        return type(other) is Far


@program(graphs=1, breaks=1)
def keys_with_hashes_of_64_bits(x):
    held = {"one": x + 1, Far(): 2}
    graph_break()
    return Far() in held, held.get(Far()), list(held.values())


# ---- what __getattr__ is asked for ---------------------------------------------------------------


class Raising:
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        raise AttributeError("raised")


class Meta(type):
    @property
    def computed(cls) -> Any:
        raise AttributeError("computed")

    def __getattr__(cls, name: str) -> str:
        return f"of the class: {name}"


class Asked(metaclass=Meta):
    plain = Raising()

    @property
    def found(self) -> Any:
        return self.nothing.more  # type: ignore[attr-defined]

    @property
    def lost(self) -> Any:
        raise KeyError("lost")

    def __getattr__(self, name: str) -> str:
        return f"asked: {name}"


class Layer(torch.nn.Module):
    @property
    def found(self) -> Any:
        raise AttributeError("found")


ASKED, LAYER = Asked(), Layer()


@program(graphs=1, breaks=0)
def what_a_property_or_a_descriptor_raises(x):
    found = [Asked.plain, Asked.computed, ASKED.plain, ASKED.found, Asked().found]
    for value, name in ((ASKED, "lost"), (LAYER, "found"), (Layer(), "found")):
        try:
            found.append(getattr(value, name))
        except (AttributeError, KeyError) as error:
            found.append(str(error))
    return found, hasattr(ASKED, "found"), hasattr(LAYER, "found"), x + 1


@pytest.mark.parametrize(
    ("function", "graphs", "breaks"), PROGRAMS, ids=[f[0].__name__ for f in PROGRAMS]
)
def test_as_native(function: Callable, graphs: int, breaks: int) -> None:
    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager")
    compared = 0
    for _ in range(3):
        assert seen(compiled) == seen(function)
        compared += 1
        counters = refcompiler.counters()
        if compared == 1:
            assert (counters["graphs"], counters["breaks"]) == (graphs, breaks)
        assert not counters["fallbacks"]
    assert compared == 3
