"""Single rules beside eager: writes that reach further, views and branches with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import refcompiler
from refcompiler.histories import is_outdated
from refcompiler.runtime.counters import reasons
from tests.cpu.aot.programs import Make, compare


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _leaves(*grad: bool) -> Make:
    return lambda: [torch.randn(4).requires_grad_(each) for each in grad]


def _each_reads_the_one_before(x: Any, y: Any) -> Any:
    """Eager's kernel goes through the lists in order, and reads what it has written."""
    a, b = x * 1, y * 1
    torch._foreach_add_([a, b], [b, a])
    torch._foreach_sub_([a, b], [b, a], alpha=2)
    return a, b, a.view(2, 2)


def _a_base_becomes_tracked(part: Any, base: Any, y: Any) -> Any:
    part.add_(y[:2])
    return base * 2, part.sin()


@pytest.mark.parametrize(
    ("program", "leaves", "into"),
    [
        (_each_reads_the_one_before, _leaves(True, True), lambda x, y: (x, y)),
        (
            _a_base_becomes_tracked,
            _leaves(False, True),
            lambda x, y: ((base := x.clone())[:2], base, y * 1),
        ),
    ],
)
def test_writes(program: Callable[..., Any], leaves: Make, into: Callable[..., Any]) -> None:
    compiler, seen = compare(program, leaves, into=into)
    assert compiler.reasons == [None] and seen.count > 40


def _sum_or_sine(x: Any, y: Any) -> Any:
    """The gradient of the sum is the tangent itself."""
    return torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a.sin() * b, (x, y))


def test_a_branch_whose_gradient_is_the_tangent() -> None:
    compiler, seen = compare(_sum_or_sine, _leaves(True, True))
    assert compiler.reasons == [None] and seen.count > 20


def test_bounds_of_random_integers() -> None:
    def program(x: Any) -> Any:
        drawn = torch.empty(3, 4).t().random_(1, 7)
        return drawn, x * torch.empty(4).random_(-3, 9), torch.rand(2)

    compiler, seen = compare(program, _leaves(True))
    assert compiler.reasons == [None] and seen.count > 20


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("name", ["exponential_", "cauchy_", "log_normal_", "geometric_"])
def test_distributions_of_a_generator_of_the_programs_own(name: str, backend: str) -> None:
    parameters = (0.3,) if name == "geometric_" else ()

    def program(x: Any, generator: Any) -> Any:
        drawn = getattr(torch.empty(4, 6), name)(*parameters, generator=generator)
        return drawn + x, getattr(x.t(), name)(*parameters, generator=generator)

    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        sides = []
        for each in (call, program):
            generator, x = torch.Generator().manual_seed(1), torch.ones(4, 6)
            sides.append([*each(x, generator), x, generator.get_state(), torch.get_rng_state()])
        for mine, eager in zip(*sides, strict=True):
            assert torch.allclose(mine, eager, rtol=1e-5)
    assert refcompiler.counters()["uncompiled"] == 0


def test_an_unused_product_of_two_dtypes_is_an_error() -> None:
    def program(x: Any) -> Any:
        x @ x.double()
        return x * 2

    compiled = refcompiler.compile(program, backend="aot_eager")
    for call in (program, compiled):
        with pytest.raises(RuntimeError, match="same dtype"):
            call(torch.ones(2, 2))


def test_hooks_hear_nothing_of_outputs_that_do_not_reach_them() -> None:
    def program(p: Any, q: Any) -> Any:
        return p * 2, q * 3, p * q

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for chosen in (0, 1, 2):
        told: list[list[Any]] = []
        for function in (program, call):
            leaves = [torch.ones(3, requires_grad=True) for _ in range(2)]
            given = [leaf * 1 for leaf in leaves]
            told.append([])
            for n, t in enumerate(given):
                t.register_hook(lambda g, n=n, seen=told[-1]: seen.append((n, g.sum().item())))
            function(*given)[chosen].sum().backward()
            told[-1].append([leaf.grad is None for leaf in leaves])
        assert told[0] == told[1] and len(told[0]) == (3 if chosen == 2 else 2)


def _added_to(x: Any) -> Any:
    x.add_(1)
    return x * x


def _overwritten(x: Any) -> Any:
    x.copy_(x.detach() * 2)
    return x * 3


@pytest.mark.parametrize("program", [_added_to, _overwritten])
def test_hooks_of_what_is_written_to(program: Callable[..., Any]) -> None:
    made: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(refcompiler.lookup_backend("aot_eager")(graph, inputs))
        return made[-1]

    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    told: list[list[Any]] = []
    for function in (program, call):
        told.append([])
        for after in (False, True):
            leaf = torch.arange(3.0, requires_grad=True)
            x = leaf * 1
            x.register_hook(lambda g, seen=told[-1]: seen.append(g.tolist()))
            y = function(x)
            (x if after else y).sum().backward()
            told[-1].append(None if leaf.grad is None else leaf.grad.tolist())
    assert told[0] == told[1] and len(told[0]) == 4
    assert [each.uncompiled.calls for each in made] == [0]


def test_inputs_of_two_dtypes_that_overlap() -> None:
    def program(a: Any, b: Any) -> Any:
        a.add_(1)
        b[1:].mul_(2)
        return a + 1, b.sum()

    compiler, seen = compare(
        program, _leaves(False), into=lambda x: (x.view(torch.int32)[::2], x[1:3])
    )
    assert len(compiler.inference) == 2 and seen.count > 20  # those apart are another program
    compiler, seen = compare(program, _leaves(False), into=lambda x: (x.view(torch.uint8)[4:], x))
    assert len(compiler.inference) == 2 and seen.count > 20


def _added_under(x: torch.Tensor, wide: torch.Tensor) -> Any:
    x.add_(1)
    return wide * 1, wide.sum(0)


def _row_of_expanded(x: torch.Tensor, wide: torch.Tensor) -> Any:
    wide[0].mul_(2)
    return wide * 1, x * 1


def _both(x: torch.Tensor, wide: torch.Tensor) -> Any:
    x.add_(1)
    wide[1].mul_(3)
    return (x + wide,)


@pytest.mark.parametrize("program", [_added_under, _row_of_expanded, _both])
@pytest.mark.parametrize("window", [False, True])
def test_an_input_that_overlaps_itself_beside_what_is_written_to(
    program: Callable[..., Any], window: bool
) -> None:
    def made() -> list[torch.Tensor]:
        x = torch.arange(6.0)
        return [x[:4], x.unfold(0, 4, 1)[:, :4]] if window else [x, x.expand(3, 6)]

    compiled = refcompiler.compile(program, backend="aot_eager")
    for _ in range(2):
        eager, ours = made(), made()
        expected, found = program(*eager), compiled(*ours)
        for a, b in zip([*expected, *eager], [*found, *ours], strict=True):
            assert torch.equal(a, b)


def test_what_is_detached_has_no_base() -> None:
    def program(x: Any, w: Any) -> Any:
        y = w * 2
        return x.detach(), y, y.detach(), x.detach()[1:], x.data

    def make() -> list[torch.Tensor]:
        return [torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)]

    compiler, seen = compare(program, make)
    assert compiler.reasons == [None] and seen.count > 40
    x, w = make()
    call = refcompiler.compile(program, backend="aot_eager")
    found = [t._base is None for t in call(x, w)]
    assert found == [t._base is None for t in program(x, w)] == [True, True, True, False, True]
    call(x, w)[2].add_(1)
    assert x._version == 0


def test_overlapping_inputs_where_only_a_region_has_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))

    def program(a: Any, b: Any) -> Any:
        with torch.enable_grad():
            y = weight.square().mean() + a
        b.relu_()
        return y

    call = refcompiler.compile(program, backend="aot_eager")
    for apart in (True, False, False):
        found = []
        for each in (program, call):
            torch.manual_seed(apart)
            x = torch.randn(4, 4, requires_grad=True)
            a = x * 1
            b = (x * 2 if apart else a).t()
            with torch.no_grad():
                y = each(a, b)
            y.sum().backward()
            found.append((x.grad, a.detach(), y.detach()))
        for expected, got in zip(*found, strict=True):
            assert got is not None and torch.equal(expected, got)


def _through_a_conjugate(x: Any) -> Any:
    z = x * 2
    y = z.conj()
    y.add_(1)
    return z, y


def _one_through_its_negative(x: Any) -> Any:
    z = x.imag * 1
    y = torch.complex(z, z).conj().imag
    y.mul_(3)
    return y, z


@pytest.mark.parametrize("program", [_through_a_conjugate, _one_through_its_negative])
@pytest.mark.parametrize("grad", [False, True])
def test_bits_of_what_is_written_to_through_a_view(program: Callable[..., Any], grad: bool) -> None:
    compiler, seen = compare(
        program, lambda: [torch.randn(4, dtype=torch.complex64).requires_grad_(grad)]
    )
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for n in range(2):
        x = torch.randn(4 + n, dtype=torch.complex64)
        bits = [(t.is_conj(), t.is_neg()) for t in program(x)]
        assert [(t.is_conj(), t.is_neg()) for t in call(x)] == bits
    assert compiler.reasons == [None] and seen.count > 20


def test_polygamma_in_place() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        y.polygamma_(1)
        return x.polygamma_(2), y

    compiler, seen = compare(program, _leaves(True), into=lambda x: (x.abs() + 0.5,))
    assert compiler.reasons == [None] and seen.count > 20


class Wrapping(torch.Tensor):
    """Computes as ``inner``."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, *_: Any) -> Any:
        return Wrapping(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls(func(*[each.inner if type(each) is cls else each for each in args]))


def test_a_subclass_that_the_graph_makes_is_named() -> None:
    def program(x: Any) -> Any:
        return Wrapping(x) * 2

    for backend in ("aot_eager", "fastpath"):
        refcompiler.reset()
        call = refcompiler.compile(program, backend=backend)
        for n in range(2):
            x = torch.ones(3) + n
            assert torch.equal(call(x).inner, x * 2)
        (why,) = reasons("uncompiled")
        assert why.endswith("the graph makes a tensor subclass (Wrapping)")


_UNSAFE: dict[str, Callable[[Any], Any]] = {
    "a part is written to": lambda x: (x.unsafe_split(2)[0].add_(1), x * 2)[1],
    "all of it is": lambda x: (lambda parts: (x.add_(1), parts[0] * 2)[1])(x.unsafe_chunk(2)),
    "a part of a part": lambda x: (x[2:].unsafe_chunk(2)[0][1:].zero_(), x.exp())[1],
    "other parts": lambda x: (
        lambda one, other: (one[0].mul_(3), other[0] * 1)[1]
    )(x.unsafe_split_with_sizes([3, 5]), x.unsafe_split(4)),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("gradients", [False, True])
def test_parts_that_autograd_takes_for_none(backend: str, gradients: bool) -> None:
    """They lie in the memory of the whole, of an input and of what the graph makes."""

    def program(x: Any, made: bool) -> Any:
        return [run(x * 2 if made else x) for run in _UNSAFE.values()]

    for made in (True, False):
        call = refcompiler.compile(program, backend=backend)
        for n in range(2):
            sides = []
            for each in (call, program):
                x = torch.linspace(-1, 1 + n, 8, requires_grad=gradients)
                given = x * 1
                results = each(given, made)
                if gradients:
                    sum(t.square().sum() for t in results).backward()
                sides.append([*results, given.detach(), x.grad if gradients else x])
            for found, wanted in zip(*sides, strict=True):
                torch.testing.assert_close(found, wanted)


def test_results_with_one_memory_that_none_has_all_of() -> None:
    """The first was made anew, and the second found no memory behind it."""

    def program(x: Any) -> Any:
        a, b = torch.unsafe_chunk(x * 2, 2)
        a.mul_(3)
        return a, b

    count = 0
    for gradients in (False, True):
        refcompiler.reset()
        call = refcompiler.compile(program, backend="aot_eager")
        for n in range(2):
            sides = []
            for each in (call, program):
                x = torch.linspace(-1, 1 + n, 8).requires_grad_(gradients)
                results = each(x)
                if gradients:
                    sum(t.square().sum() for t in results).backward()
                places = [(t.storage_offset(), t.untyped_storage()._cdata) for t in results]
                assert [at for at, _ in places] == [0, 4] and places[0][1] == places[1][1]
                sides.append([*results, x.grad if gradients else x])
            for found, wanted in zip(*sides, strict=True):
                assert torch.equal(found, wanted)
                count += 1
        (why,) = reasons("uncompiled")
        assert why.endswith("results share memory that none of them has all of")
    assert count == 12


@pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack"), reason="this torch unpacks all or none"
)
def test_a_saved_result_beside_what_was_written_to_since() -> None:
    def program(x: Any, y: Any) -> Any:
        return x.exp(), y.sin()

    call = refcompiler.compile(program, backend="fastpath")  # which saves the very result
    for written in (0, 1):
        sides = []
        for each in (call, program):
            x, y = torch.arange(4.0).requires_grad_(), torch.arange(3.0).requires_grad_()
            results = each(x, y)
            with torch.no_grad():
                (y if written else results[0]).add_(1)
            for result in results:
                try:
                    result.sum().backward()
                except RuntimeError as error:
                    sides.append("modified by an inplace operation" in str(error))
            sides.append([None if t.grad is None else t.grad.shape for t in (x, y)])
        assert sides[: len(sides) // 2] == sides[len(sides) // 2 :]
        assert sides[0] is True and sides[1].count(None) == 1
    assert refcompiler.counters()["uncompiled"] == 0


def test_versions_count_each_write() -> None:
    """As eager's, which others compare; also of what a program writes to through views."""

    def program(x: Any, y: Any) -> Any:
        x.mul_(2).add_(1)
        x[1:].t().sub_(y)
        y.unsqueeze_(0).squeeze_(0)
        return x * 1, x.view(-1)

    count = 0
    for backend in ("aot_eager", "fastpath"):
        refcompiler.reset()
        call = refcompiler.compile(program, backend=backend)
        for tracked in (False, True):
            sides = []
            for each in (call, program):
                x, y = torch.ones(3, 2).requires_grad_(tracked) * 1, torch.arange(2.0)
                results = each(x, y.resize_(2, 1) if tracked else y.view(2, 1))
                sides.append([t._version for t in (x, y, *results)])
            assert sides[0] == sides[1] and sides[1][0] == 3
            count += 1
        assert refcompiler.counters()["uncompiled"] == 0
    assert count == 4


def _older_views(x: Any, y: Any) -> Any:
    z = x * 2
    with torch.no_grad():
        first, second = z[0], z[1]
    z.add_(1)
    with torch.no_grad():
        third = z[2]
    return third, first, (z * z).sum(), second, z.chunk(2, 1)


def _given_data(x: Any, y: Any) -> Any:
    x.add_(1)
    x.data = y
    x.mul_(2)
    z = x.detach() + 1
    x.data = z
    x.sub_(3).neg_()
    return x * 1, z


def _given_data_of_its_own(x: Any, y: Any) -> Any:
    x.data = x.data * 2
    with torch.no_grad():
        x.mul_(3)
    return x * 1


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize(
    ("program", "tracked"),
    [(_older_views, True), (_given_data, False), (_given_data_of_its_own, True)],
)
def test_versions_beside_views_and_data(
    program: Callable[..., Any], tracked: bool, backend: str
) -> None:
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        sides = []
        for each in (call, program):
            x, y = torch.rand(3, 2).requires_grad_(tracked), torch.rand(3, 2)
            x = x * 1 if program is _older_views else x
            torch.autograd.graph.increment_version([x, x, y])
            every = pytree.tree_leaves([x, y, each(x, y)])
            sides.append([(t._version, is_outdated(t) or t.is_leaf) for t in every])
            if tracked:  # nothing that was saved has been written to
                end = sum(t.sum() for t in every if t.requires_grad and not is_outdated(t))
                end.backward()
        assert sides[0] == sides[1] and len(sides[0]) > 2
    assert refcompiler.counters()["uncompiled"] == 0


def test_a_saved_view_of_a_result_that_is_written_to_since_is_eagers_error() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        return y, y[0].sin()

    for call in (program, refcompiler.compile(program, backend="aot_eager")):
        y, z = call(torch.ones(3, 3, requires_grad=True))
        with torch.no_grad():
            y[1].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def _swaps(u: Any, v: Any) -> Any:
    u.swapaxes_(0, 0)
    return u * v


def _turns(u: Any, v: Any) -> Any:
    u.t_()
    return (u * v).sin()


def _turns_late(u: Any, v: Any) -> Any:
    w = u * v
    u.t_()
    return w


def _halves(x: Any, _: Any) -> Any:
    base = x * 1
    return base[::2], base[1::2]


def _detached(x: Any, _: Any) -> Any:
    base = x[:2] * 1
    return base, base.detach()


@pytest.mark.parametrize("into", [lambda x, y: (y[:2], x[:2]), _halves, _detached])
@pytest.mark.parametrize("program", [_swaps, _turns, _turns_late])
def test_what_is_saved_behind_a_change_of_its_size_is_as_it_was(program: Any, into: Any) -> None:
    """That counts as a write: a backward raises for what was saved before it, and only for that."""
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    if program is _turns_late and into is _detached:
        return  # whether two inputs share a version is not known when the graph is compiled
    for seed in range(2):
        sides = []
        for each in (call, program):
            torch.manual_seed(seed)
            x, y = torch.randn(4, 2, requires_grad=True), torch.randn(4, 2)
            arguments = into(x, y)
            result = each(*arguments)
            try:
                gradient = torch.autograd.grad(result.sum(), x)[0]
            except RuntimeError as error:
                gradient = torch.full((), len(str(error)) > 80)
            sides.append(
                [[t._version for t in arguments], result, *arguments, gradient, str(gradient.shape)]
            )
        versions, *ours = sides[0]
        assert versions == sides[1][0]
        for mine, eager in zip(ours, sides[1][1:], strict=True):
            assert mine == eager if isinstance(eager, str) else torch.equal(mine, eager)


def _writes_first(u: Any, v: Any) -> Any:
    w = u * 3
    u.mul_(2)
    return v * u, w, u[1:]


def _writes_second(u: Any, v: Any) -> Any:
    v.add_(1)
    return v * 2, u + 1, v.view(2, 2)


def _writes_both(u: Any, v: Any) -> Any:
    v.add_(1)
    u.unsqueeze_(0).mul_(3)
    v.mul_(2)
    return u.sin(), v * 1


_HIDDEN: list[Callable[[Any], Any]] = [
    lambda b: (b, b.detach()),
    lambda b: (b.detach(), b),
    lambda b: (b.view(2, 2).view(4), b.data),
]


@pytest.mark.parametrize("program", [_writes_first, _writes_second, _writes_both])
@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_inputs_of_one_memory_that_autograd_does_not_know_of(program: Any, backend: str) -> None:
    """One is detached from the other: what is written to one shows in the other, as its values."""
    count = 0
    for relation in _HIDDEN:
        refcompiler.reset()
        call = refcompiler.compile(program, backend=backend, fullgraph=True)
        for seed in range(2):
            sides = []
            for each in (call, program):
                torch.manual_seed(seed)
                x = torch.randn(4, requires_grad=True)
                arguments = relation(x * 1)
                every = [*each(*arguments), *arguments]
                told = [(t._version, t.requires_grad, t.shape, t._is_view()) for t in every]
                found = [
                    torch.autograd.grad(t.sum(), x, retain_graph=True, allow_unused=True)[0]
                    for t in every
                    if t.requires_grad
                ]
                sides.append((told, [t.detach() for t in every], found))
            assert sides[0][0] == sides[1][0]
            for ours, eagers in zip(sides[0][1:], sides[1][1:], strict=True):
                for mine, eager in zip(ours, eagers, strict=True):
                    assert mine is None if eager is None else torch.allclose(mine, eager)
                    count += 1
        assert refcompiler.counters()["uncompiled"] == 0
    assert count >= 36


def test_hooks_on_overlapping_inputs_are_nothing_to_writes_without_gradients() -> None:
    call = refcompiler.compile(_writes_both, backend="aot_eager", fullgraph=True)
    for seed in range(2):
        sides = []
        for each in (call, _writes_both):
            torch.manual_seed(seed)
            base = torch.randn(6, requires_grad=True) * 1
            p, q = base[:4], base[2:]
            q.register_hook(torch.neg)
            with torch.no_grad():
                results = each(p, q)
            sides.append([*results, p, q, base])
        for mine, eager in zip(*sides, strict=True):
            assert torch.equal(mine, eager)
    assert refcompiler.counters()["uncompiled"] == 0


def _without_gradients(x: Any, y: Any) -> Any:
    with torch.no_grad():
        first, rest = x[0], x[1:].unbind(0)
    x.copy_(y)
    return first, *rest, x * 2


def _of_a_result(x: Any, y: Any) -> Any:
    made = x * y
    with torch.no_grad():
        first = made[0]
    made.mul_(y)
    return first, made


def _in_the_mode(x: Any, y: Any) -> Any:
    first = x[0]
    x.copy_(y)
    return first, x * 2


def _told(t: torch.Tensor, other: torch.Tensor) -> list[str]:
    """What a tensor says that autograd may refuse to tell of: the words of an error too."""
    found = [f"{t.tolist()} {t.stride()} {t._version > 0} {t._is_view()}"]
    for asked in (
        lambda: t.requires_grad,
        lambda: t.is_leaf,
        lambda: t.grad_fn is None,
        lambda: torch.autograd.grad((t * other).sum(), other)[0].tolist(),
        lambda: t.detach().tolist(),
        lambda: t.add_(1).requires_grad,
    ):
        try:
            found.append(repr(asked()))
        except RuntimeError as error:
            found.append(str(error)[:60])
    return found


@pytest.mark.parametrize(
    ("program", "mode", "grad", "refused", "backend"),
    [
        (_without_gradients, True, True, 3, "aot_eager"),
        (_without_gradients, True, False, 3, "aot_eager"),
        (_of_a_result, True, True, 1, "aot_eager"),
        (_in_the_mode, False, True, 1, "fastpath"),  # whose forward writes itself
        (_in_the_mode, False, False, 0, "aot_eager"),
    ],
)
def test_a_view_made_without_gradients_is_older_than_a_write(
    program: Callable[..., Any], mode: bool, grad: bool, refused: int, backend: str
) -> None:
    compiled = refcompiler.compile(program, backend=backend, fullgraph=True)
    compared = 0
    for rows in (3, 4):
        sides = []
        for call in (compiled, program):
            torch.manual_seed(rows)
            x, y = torch.randn(rows, 2).requires_grad_(grad), torch.randn(rows, 2).requires_grad_()
            other = torch.randn(2).requires_grad_()
            given = x.clone() if mode or grad else x
            with torch.set_grad_enabled(mode):
                results = call(given, y)
            sides.append([_told(t, other) for t in (*results, given)])
        assert sides[0] == sides[1]
        errors = sum("A view was created in no_grad" in " ".join(told) for told in sides[1])
        assert errors >= refused
        compared += len(sides[0])
    assert compared >= 6 and refcompiler.counters()["graphs"] == 2
    assert not reasons("uncompiled")


KEPT = {"view older than a write"}
