"""Errors inside a graph's run: what the program did before is done, and its handlers see them."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import refcompiler
from refcompiler.backends.registry import register_backend
from tests.cpu.capture.oracle import Case, Cases, check, compiling, run

BAD = torch.tensor([0, 7])
GOOD = torch.tensor([0, 1])
TABLE = torch.arange(12.0).reshape(4, 3)
LOG: list[Any] = []
cases = Cases()

#: One call that works, one that fails, and again.
CALLS = [(torch.ones(2, 3), GOOD), (torch.ones(2, 3), BAD), (torch.ones(2, 3) * 2, GOOD)]


def calls() -> list[tuple]:
    return [tuple(t.clone() for t in call) for call in CALLS]


@cases()
def what_was_written_before() -> Any:
    class State:
        count = 0
        last: Any = None

    state, log, table = State(), [], {"k": 0}
    calls_made = 0

    def f(x, i):
        nonlocal calls_made
        log.append("before")
        state.count = len(log)
        state.last = x * 2
        table["k"] = state.last
        calls_made = 3
        y = TABLE[i]
        log.append("after")
        state.count = -1
        table["done"] = calls_made
        return y + x

    return f, calls(), [state, log, table]


@cases(graphs=2)
def the_users_handler() -> Any:
    def f(x, i):
        y = x + 1
        try:
            z = F.embedding(i, TABLE)
        except IndexError as error:
            return y, str(error)
        finally:
            y = y * 2
        return z + y

    return f, calls()


@cases()
def a_handler_outside_of_the_caller() -> Any:
    def low(x, i, log):
        log.append(x + 1)
        with managed(log):
            return TABLE[i] * x

    def f(x, i, log):
        log.append("f")
        return low(x, i, log) + 1

    return f, [(*call, []) for call in calls()]


@contextlib.contextmanager
def managed(log):
    log.append("in")
    try:
        yield
    finally:
        log.append("out")


@cases()
def tensors_written_before() -> Any:
    buffer = torch.zeros(2, 3)

    def f(x, i):
        buffer.add_(x)
        x.mul_(3)
        view = buffer[0]
        view.sub_(1)
        y = TABLE[i]
        buffer.zero_()
        return y, view

    return f, calls(), [buffer]


@cases(graphs=2)
def values_that_only_a_handler_reads_behind_a_write() -> Any:
    def f(x, i):
        unused, used = x * 1, x * 2
        y = used + 1
        x.add_(1)
        try:
            z = TABLE[i]
        except IndexError:
            return unused, used, x.sum()
        return z + y

    return f, calls()


@cases()
def values_that_the_program_forgets_again_behind_a_write() -> Any:
    log: list[Any] = []

    def f(x, i):
        log.append(x * 2)
        x.add_(1)
        y = F.embedding(i, TABLE)
        log.pop()
        return y

    return f, calls(), [log]


@cases()
def random_numbers_before() -> Any:
    log: list[Any] = []

    def f(x, i):
        y = F.dropout(x, 0.5)
        log.append(y)
        return TABLE[i] + torch.rand(2, 3) + y

    return f, calls(), [log]


@cases()
def modes_at_the_error() -> Any:
    log: list[Any] = []

    def f(x, i):
        with torch.no_grad(), torch.autocast("cpu"):
            log.append(torch.is_grad_enabled())
            y = TABLE[i]
        return y + x

    return f, calls(), [log]


@cases(graphs=2, breaks=1)
def after_a_break() -> Any:
    def f(x, i):
        LOG.append(x)
        print("break")
        LOG.append("again")
        y = TABLE[i]
        LOG.clear()
        return y * x

    return f, calls(), [LOG]


@cases(graphs=2)
def caught_in_a_loop() -> Any:
    def f(x, rows):
        found = []
        for n, i in enumerate(rows):
            try:
                found.append((n, TABLE[i] * x))
            except IndexError as error:
                found.append(type(error))
        return found

    x = torch.ones(2, 3)
    return f, [(x, [GOOD, GOOD]), (x, [GOOD, GOOD.flip(0)]), (x, [BAD, GOOD.flip(0)])]


@cases()
def in_a_branch_of_the_first_call() -> Any:
    seen: list[Any] = []

    def f(x, i):
        seen.append(x.shape)
        y = TABLE.index_select(0, i)
        seen.append("done")
        return y

    return f, calls()[1:], [seen]


@torch.library.custom_op("refcompiler_tests::checked", mutates_args=())
def _checked(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 100:
        raise ValueError("too large")
    return x + 1


@_checked.register_fake
def _(x):
    return torch.empty_like(x)


@cases()
def an_assertion_of_a_custom_operator() -> Any:
    log: list[Any] = []

    def f(x):
        log.append(x * 2)
        y = torch.ops.refcompiler_tests.checked(x)
        log.append(y)
        return y

    x = torch.ones(3)
    return f, [(x,), (x * 1000,), (x * 2,)], [log]


@cases()
def a_matrix_that_has_no_factor() -> Any:
    log: list[Any] = []

    def f(x):
        log.append("before")
        y = torch.linalg.cholesky(x)
        log.append("after")
        return y

    return f, [(torch.eye(3),), (-torch.eye(3),), (torch.eye(3) * 4,)], [log]


@cases()
def in_inference_mode() -> Any:
    log: list[Any] = []

    def f(x, i):
        with torch.inference_mode():
            log.append(x * 2)
            y = TABLE[i]
            log.append("after")
        return y

    return f, calls(), [log]


@cases()
def in_a_modules_forward() -> Any:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))
            self.table = torch.nn.Embedding(4, 3)
            self.calls = 0

        def forward(self, i):
            self.seen += 1
            self.calls += 1
            y = self.table(i)
            self.calls += 10
            return y * self.seen

    net = Net()
    net.calls = 0
    return net, [(GOOD,), (BAD,), (GOOD.flip(0),)], [net]


@pytest.mark.parametrize("case", cases, ids=str)
def test_errors(case: Case) -> None:
    case.expected.pop("recompiles")
    case.expected.pop("graphs")
    case.expected.pop("breaks")
    assert check(case) > 20


def test_a_backends_own_error_stays_what_it_is() -> None:
    """Where the graph itself does not fail, nothing is hidden."""
    ran = []

    @register_backend(name="failing_tests")
    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        def broken(*given: Any) -> Any:
            ran.append(given)
            raise ZeroDivisionError("a kernel's")

        return broken

    log = []

    def f(x):
        log.append(1)
        return x + 1

    compiled = refcompiler.compile(f, backend="failing_tests")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="a kernel's"):
            compiled(torch.ones(2))
    assert len(ran) == 2 and log == []


def test_a_backend_may_put_something_around_the_graphs_own_forward() -> None:
    @register_backend(name="watching_tests")
    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        kind: Any = type(graph)
        forward = kind.forward

        @functools.wraps(forward)
        def watched(module: Any, *given: Any) -> Any:
            return forward(module, *given)

        kind.forward = watched
        return graph.forward

    log = []

    def f(x, i):
        log.append("before")
        x.add_(1)
        return x[i]

    x = torch.zeros(4)
    with pytest.raises(IndexError):
        refcompiler.compile(f, backend="watching_tests")(x, BAD)
    assert x.tolist() == [1.0] * 4 and log == ["before"]


def test_a_backend_that_is_given_a_copy_of_the_graph_may_run_it() -> None:
    log = []

    def f(x, i, n):
        log.append("before")
        x.add_(n)
        return x[i] * n

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return graph.forward  # where a size is a symbol, of a copy with symbols of torch's

    x = torch.zeros(4)
    compiled = refcompiler.compile(f, backend=backend)
    compiled(x, GOOD, 1)
    compiled(x, GOOD, 3)
    with pytest.raises(IndexError):
        compiled(x, BAD, 5)
    assert x.tolist() == [9.0] * 4 and log == ["before"] * 3


def test_values_behind_a_write_are_there_in_a_copy_of_the_graph() -> None:
    """A backend that runs the graph as Python: with symbols of torch's it has a copy."""

    def f(x, i):
        before = x * 1
        x.add_(1)
        try:
            return x[i]
        except IndexError:
            return before

    for backend in ("eager", lambda graph, inputs: graph.forward):
        compiled = refcompiler.compile(f, backend=backend)
        for size in (4, 5, 6):
            compiled(torch.zeros(size), GOOD)
        assert compiled(torch.ones(7), BAD).tolist() == [1.0] * 7


def test_what_fails_only_when_it_is_compiled_runs_as_in_eager() -> None:
    refcompiler.reset()

    def f(x):
        y = x * 2
        mask = None
        if not torch.compiler.is_compiling():
            mask = y + 1
        return y + mask

    compiled = refcompiler.compile(f, backend="eager")
    for number in (1.0, 2.0):
        x = torch.full((3,), number)
        assert torch.equal(compiled(x), f(x))
    assert refcompiler.counters()["breaks"] == 1


def test_a_compiled_graph_that_has_written_is_not_run_again() -> None:
    @register_backend(name="writing_tests")
    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        def broken(*given: Any) -> Any:
            for value in given:
                if value.is_floating_point():
                    value.add_(1)
            raise IndexError("of a kernel")

        return broken

    def f(x, i):
        x.add_(1)
        return x[i]

    x = torch.zeros(4)
    with pytest.raises(IndexError, match="of a kernel"):
        refcompiler.compile(f, backend="writing_tests")(x, BAD)
    assert x.tolist() == [1.0] * 4


def test_the_traceback_is_the_users() -> None:
    case = next(c for c in cases if str(c) == "a_handler_outside_of_the_caller")
    found = run(case, compiling("reference")).seen[1]["error"][1]
    assert [name for name, _ in found["lines"]] == ["f", "low"] and found["context"][
        0
    ] == "NoneType"


class _Numbered:
    """Whose special methods are called in the middle of an instruction, and raise at last."""

    def __init__(self, n: Any):
        self.n = n

    def __index__(self) -> int:
        LOG.append("index")
        return self.n * 1

    def __str__(self) -> str:
        LOG.append("text")
        return "a" * self.n


def _cached(n: Any) -> Any:
    @functools.lru_cache
    def doubled(i: Any) -> Any:
        LOG.append(i)
        return i * 2

    return doubled(n)


@pytest.mark.parametrize(
    "part", [_cached, lambda n: [1, 2][_Numbered(n)], lambda n: f"{_Numbered(n)}"]
)
def test_what_an_instruction_does_before_it_raises_is_done_once(part: Any) -> None:
    """Python code that C calls raises what nothing catches."""

    def program(x: Any, n: Any) -> Any:
        return x + 1, part(n)

    seen = []
    for call in (refcompiler.compile(program, backend="eager"), program):
        LOG.clear()
        for n in (1, None):
            try:
                LOG.append(call(torch.ones(2), n)[1])
            except TypeError as error:
                LOG.append(str(error))
        seen.append([*LOG])
    assert seen[0] == seen[1] and len(seen[0]) == 4


def _refused_behind_a_draw(x):
    y = torch.rand(4)
    torch.nn.functional.dropout(x, 0.4, inplace=True)
    return x.sin() + y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_is_refused_has_drawn_once(backend):
    """The operator draws its mask, then raises; so it does as it runs natively behind the graph."""
    refcompiler.reset()
    call = refcompiler.compile(_refused_behind_a_draw, backend=backend)
    for make in (lambda t: t * 1, lambda t: t, lambda t: t * 1, lambda t: t):
        sides = []
        for function in (call, _refused_behind_a_draw):
            torch.manual_seed(5)
            x = make(torch.ones(4, requires_grad=True))
            try:
                seen = function(x).tolist()
            except RuntimeError as error:
                seen = str(error)
            sides.append([seen, x.tolist(), torch.get_rng_state().tolist()])
        assert sides[0] == sides[1]
