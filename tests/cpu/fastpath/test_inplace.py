"""New values of inputs are written by the kernels that compute them, where nobody reads the old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler
from fastpath import foreach, progress
from fastpath.cpu import launcher, machine
from fastpath.cpu.printer import print_kernel
from fastpath.schedule import streams
from fastpath.schedule.alike import of_any_length
from fastpath.wrapper import Wrapper
from refcompiler.aot import aot_autograd


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    return fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))


def swap(x: torch.Tensor, y: torch.Tensor) -> Any:
    old_x, old_y = x * 2, y * 3
    x.copy_(old_y)
    y.copy_(old_x)
    return x + y


def rotated(x: torch.Tensor, y: torch.Tensor) -> Any:
    new_x, new_y = x + y, x - y * 2
    x.copy_(new_x)
    y.copy_(new_y)
    return x * 2


def momentum(x: torch.Tensor, y: torch.Tensor) -> Any:
    y.mul_(0.9).add_(x)
    x.sub_(y * 0.1)
    return x.sum()


def shifted(x: torch.Tensor, y: torch.Tensor) -> Any:
    x[1:].add_(y[:-1])
    return (x * y).amax(-1)


def turned(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.copy_(x.flip(0) + y)
    return (y,)


def read_by_others(x: torch.Tensor, y: torch.Tensor) -> Any:
    before = x @ y.t()
    x.add_(1)
    return before, x.softmax(-1)


def centred(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.sub_(x.mean(-1, keepdim=True))
    y.copy_(y - y.amax(0))
    return x.exp()


def beside_products(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(1)
    return y @ y + y.t() @ y  # which are added up in place, in a copy of the graph


@pytest.mark.parametrize(
    "function, in_place", [(swap, 1), (rotated, 2), (momentum, 2), (shifted, 1), (turned, 0)]
    + [(centred, 2), (read_by_others, 0), (beside_products, 1)],
)  # fmt: skip
@pytest.mark.parametrize("dtype, across", [(torch.float32, False), (torch.bfloat16, True)])
def test_inputs_have_their_new_values(
    function: Callable[..., Any], in_place: int, dtype: torch.dtype, across: bool
) -> None:
    def given(seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        made = [torch.randn(34, 34, generator=generator).to(dtype) for _ in range(2)]
        return [made[0].t() if across else made[0], made[1]]

    call = compiled(function, *given(0))
    counted = [line for line in call.launches.splitlines() if "counted((" in line]
    assert sum(line.count("in") for line in counted) == in_place, call.launches
    for seed in (1, 2):
        ours, theirs = given(seed), given(seed)
        versions = [t._version for t in ours]
        expected = torch.utils._pytree.tree_leaves(function(*theirs))
        found = torch.utils._pytree.tree_leaves(call(*ours))
        pairs = [*zip(ours, theirs, strict=True), *zip(found, expected, strict=True)]
        for mine, eager in pairs:
            torch.testing.assert_close(mine, eager, rtol=2e-2, atol=2e-2)
            assert mine.stride() == eager.stride()
        seen = [t._version > before for t, before in zip(ours, versions, strict=True)]
        assert seen == [t._version > before for t, before in zip(theirs, versions, strict=True)]


def test_a_call_that_raises_has_written_nothing() -> None:
    def function(x: torch.Tensor, table: torch.Tensor, places: torch.Tensor) -> Any:
        found = table[places]
        x.mul_(2)
        return found * 2

    x, table = torch.ones(8), torch.randn(5, 3)
    call = compiled(function, x, table, torch.tensor([1]))
    call(x, table, torch.tensor([4]))
    assert x.tolist() == [2.0] * 8
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        call(x, table, torch.tensor([5]))
    assert x.tolist() == [2.0] * 8


def test_other_compilers_may_return_new_values() -> None:
    given: list[dict[int, int]] = []

    def compiler(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        given.append(graph.meta["new values"])
        return graph.forward

    graph = torch.fx.symbolic_trace(momentum)
    x, y = torch.randn(3), torch.randn(3)
    expected = [x.clone(), y.clone()]
    result = momentum(*expected)
    call = aot_autograd(fw_compiler=compiler)(graph, [x, y])
    torch.testing.assert_close(call(x, y), result)
    torch.testing.assert_close([x, y], expected)
    assert given == [{1: 0, 2: 1}]


def test_rows_that_are_asked_for_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves of rows, larger than the cache."""
    monkeypatch.setattr(streams, "last_level_cache", lambda: 1000)

    def function(x: torch.Tensor) -> Any:
        x.mul_(2).add_(1)
        return x.relu()

    for width in (95, 96, 130):
        mine, eager = (torch.arange(64.0 * 256).view(64, 256) for _ in range(2))
        call = compiled(function, mine[:, :width])
        assert call.report.fallback is None and "ask_" in "".join(call.kernel_sources)
        for _ in range(2):
            torch.testing.assert_close(call(mine[:, :width]), function(eager[:, :width]))
            assert torch.equal(mine, eager)


#: Of a training step: whether the backward's kernel writes where it has read.
TAKEN: list[tuple[tuple[int, ...], bool]] = [((256, 96), True), ((255, 33), True), ((8, 8), False)]


@pytest.mark.parametrize(("shape", "taken"), TAKEN)
def test_what_is_read_for_the_last_time_is_written_over(
    shape: tuple[int, ...], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient is made where the product was that it is made of."""
    sources: list[str] = []
    compile_text = Wrapper._compile

    def compile_seen(self: Wrapper) -> Any:
        call = compile_text(self)
        sources.append(call.source)
        return call

    monkeypatch.setattr(Wrapper, "_compile", compile_seen)

    def function(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ w.t()).view(1, *shape) @ v

    leaves = [torch.randn(shape[0], 16), torch.randn(shape[1], 16), torch.randn(shape[1], 24)]
    found = []
    for compiler in (None, "ours"):
        call = function if compiler is None else refcompiler.compile(function)
        given = [t.clone().requires_grad_() for t in leaves]
        for scale in (1, 2):
            (call(*given) * scale).square().sum().backward()
        found.append([t.grad for t in given])
    for mine, eager in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-2)
    assert len(sources) == 2
    assert any("as_strided(b" in text for text in sources) == taken, sources


def test_lengths_share_a_kernel() -> None:
    lengths = (2, 5, 4096, 4097, 130_000)
    given = [torch.randn(n) for n in lengths]
    known = len(machine._compiled)

    def function(*tensors: torch.Tensor) -> Any:
        return [torch.tanh(t * 1.2345) for t in tensors]

    graph = torch.fx.Graph()
    holders = [graph.placeholder(f"x{n}") for n in range(len(given))]
    scaled = [graph.call_function(torch.mul, (holder, 1.2345)) for holder in holders]
    graph.output(tuple([graph.call_function(torch.tanh, (node,)) for node in scaled]))
    call = fastpath.compile_graph(torch.fx.GraphModule({}, graph), given)
    assert len(machine._compiled) == known + 1
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            for mine, eager in zip(call(*given), function(*given), strict=True):
                torch.testing.assert_close(mine, eager)
        finally:
            torch.set_num_threads(before)
    records = [launcher.record_of(v) for v in _kernels(call)]
    assert len({r[0] for r in records}) == 1 and sorted(r[5] for r in records) == [*lengths]


def _kernels(call: Any) -> list[Any]:
    found = []
    stack, seen = [call], set()
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if launcher.is_bound(each):
            found.append(each)
        scope = getattr(each, "__globals__", {})
        if scope.get("__name__", "").startswith(("fastpath.", "refcompiler.", "tests.")):
            scope = {}
        stack += [v for v in scope.values() if callable(v)]
        stack += [c.cell_contents for c in getattr(each, "__closure__", None) or ()]
    return found


def test_what_lists_of_tensors_are_taken_apart_into() -> None:
    compared = 0
    for overload, rule in foreach.rules().items():
        args: list[Any] = []
        for argument in overload._schema.arguments:
            tensors = [torch.rand(2, 3) * 0.5 + 0.2, torch.rand(4) * 0.5 + 0.2]
            values = {"List[Tensor]": tensors, "List[number]": [2.0, 0.5], "number": 2.0}
            if not argument.kwarg_only and not argument.has_default_value():
                args.append(values.get(str(argument.type), tensors[1][0]))
        for mine, eager in zip(rule(*args), overload(*args), strict=True):
            assert torch.equal(mine, eager), overload
            compared += 1
    assert compared >= 140


def test_an_optimizer_over_lists_leaves_nothing_to_aten() -> None:
    def steps(compile: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(n, 3)) for n in (4, 5, 6)]
        optimizer = torch.optim.AdamW(parameters, lr=0.1, foreach=True)
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        step = torch.compile(optimizer.step, backend="fastpath") if compile else optimizer.step
        for _ in range(2):
            step()
        return [p.detach() for p in parameters]

    torch.testing.assert_close(steps(True), steps(False))
    report = fastpath.last_report()
    assert report is not None and not report.aten_calls and report.fallback is None


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    for terminal, told in ((False, False), (True, True)):
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
        with progress.told("compiling kernels", 3) as one_more:
            for _ in range(3):
                one_more()
        assert ("compiling kernels" in capsys.readouterr().err) is told


def test_loops_of_more_than_a_length_keep_theirs() -> None:
    from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

    given = torch.randn(8, 16)
    functions: list[Any] = [lambda x: x.sum(-1), lambda x: x.flip(1), lambda x: x + x[0]]
    for function in functions:
        for kernel in kernels_of(program_of(function, [given]))[0]:
            assert of_any_length(kernel) is None
            assert print_kernel(kernel).source


def test_one_kernel_for_lengths_of_which_some_are_whole_blocks() -> None:
    """The text of a kernel of whole blocks does not say of how many."""
    lengths = [8192, 9216, 10240, 16384, 32768, 4096, 100]

    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        return [torch.nn.functional.gelu(x) for x in given]

    compiled: Any = refcompiler.compile(run, backend="fastpath", dynamic=False)
    for _ in range(2):
        given = [torch.randn(n) for n in lengths]
        torch.testing.assert_close(compiled(*given), run(*given), rtol=1e-5, atol=1e-5)
    assert fastpath.last_report().kernels == len(lengths)


def test_small_kernels_that_are_launched_together_write_nothing_before_one_that_may_raise() -> None:
    """Of kernels that do not wait for each other, none that writes goes before it."""

    def function(x: torch.Tensor, y: torch.Tensor, t: torch.Tensor, p: torch.Tensor) -> Any:
        m = x * 1 + 2
        others = torch.arange(3.0)[p * 0], y + y, x * 3
        t.add_(y[0].sum())
        return m, m.index_select(0, p), others

    x, y, t = torch.randn(2, 3), torch.ones(2, 3), torch.ones(())
    call = compiled(function, x, y, t, torch.tensor([1]))
    for _ in range(2):
        with pytest.raises(IndexError):
            call(x, y, t, torch.tensor([2]))
        assert t == 1
    call(x, y, t, torch.tensor([1]))
    assert t == 4
