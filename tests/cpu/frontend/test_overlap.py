"""Writes to memory that overlaps what they read, or itself: refused where eager refuses, and done
in eager's order where eager does them."""

import itertools
import random
from collections import Counter

import pytest
import torch

import fastpath
import refcompiler
from refcompiler.fakes import overlap
from refcompiler.fakes.mode import EagerFakeMode


def row_added(x):
    x += x[0]


def rows_moved(x):
    x[1:3] = x[2:4]


def rows_copied(x):
    x[1:3].copy_(x[2:4])


def out_overlaps(x):
    torch.add(x[1:3], 1, out=x[2:4])


def out_is_transposed(x):
    torch.sin(x, out=x.t())


def out_is_an_operand(x):
    torch.cat([x, x], out=x)


def expanded(x):
    x.expand(4, 4, 4).add_(1)


def drawn_into_expanded(x):
    x[0].expand(4, 4).normal_()


def in_a_list(x):
    torch._foreach_add_([x[1:3]], [x[2:4]])


def indexed(x):
    x[0].index_copy_(0, torch.tensor([0, 1]), x[0, 1:3])


REFUSED = (
    row_added, rows_moved, rows_copied, out_overlaps, out_is_transposed, out_is_an_operand,
    expanded, drawn_into_expanded, in_a_list, indexed,
)  # fmt: skip


def added_to_itself(x):
    x.add_(x)


def out_is_the_operand(x):
    torch.sin(x, out=x)


def apart(x):
    x[0:2].mul_(x[2:4])


def interleaved(x):
    x[:, ::2].copy_(x[:, 1::2])


def windows(x):
    x.as_strided((3, 3), (1, 1)).mul_(2)


def filled(x):
    x[0].expand(4, 4).fill_(3)


DONE = (added_to_itself, out_is_the_operand, apart, interleaved, windows, filled)


def ran(function, x):
    """What it raised, or nothing, and the memory and the generator after it."""
    torch.manual_seed(7)
    try:
        function(x)
    except RuntimeError as error:
        message = str(error)
    else:
        message = ""
    return message.partition("\n")[0], x, torch.get_rng_state()


def memory():
    return torch.arange(16.0).reshape(4, 4).div(3)


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_fakes_refuse_what_eager_refuses(function):
    expected = ran(function, memory())[0]
    assert expected.startswith("unsupported operation")
    with EagerFakeMode() as mode:
        found, _, state = ran(function, mode.from_tensor(memory()))
    assert found == expected
    torch.manual_seed(7)
    assert torch.equal(state, torch.get_rng_state())  # asking draws no number


@pytest.mark.parametrize("function", DONE, ids=lambda f: f.__name__)
def test_fakes_do_what_eager_does(function):
    with EagerFakeMode() as mode:
        assert ran(function, mode.from_tensor(memory()))[0] == ""


@pytest.mark.parametrize("backend", ["eager", "fastpath"])
@pytest.mark.parametrize("function", (*REFUSED, *DONE), ids=lambda f: f.__name__)
def test_compiled_as_in_eager(function, backend):
    def program(x):
        y = x.cos()
        function(x)
        return y

    compiled = refcompiler.compile(program, backend=backend)
    for scale in (1, 2):
        expected, wanted, state = ran(program, memory() * scale)
        found, x, after = ran(compiled, memory() * scale)
        assert found == expected
        if function is not out_is_an_operand:  # eager warns, resizes, and then refuses
            torch.testing.assert_close(x, wanted, rtol=1e-6, atol=0)
        assert torch.equal(after, state)


CASTS = [
    (lambda i, f: i.mul_(f), True), (lambda i, f: i.mul_(2.5), True),
    (lambda i, f: f.mul_(1j), True),
    (lambda i, f: i.addcmul_(f, f), True), (lambda i, f: i.addcdiv_(f, f), True),
    (lambda i, f: f.add_(1j), True), (lambda i, f: f.sub_(f * 1j), True),
    (lambda i, f: i.ldexp_(f), True), (lambda i, f: i.logit_(), True),
    (lambda i, f: torch._foreach_mul_([f, i], [f, f]), True),
    (lambda i, f: torch._foreach_add_([f, f], 1j), True),
    (lambda i, f: torch._foreach_mul_([f, i], [2.5, 2]), False),
    (lambda i, f: f.logit_(), False), (lambda i, f: f.ldexp_(i), False),
    (lambda i, f: f.mul_(i), False), (lambda i, f: i.mul_(2), False),
    (lambda i, f: f.addcmul_(i, i), False),
]  # fmt: skip


@pytest.mark.parametrize(("write", "refused"), CASTS)
def test_fakes_refuse_results_of_a_greater_kind(write, refused):
    for mode in (torch.no_grad(), EagerFakeMode()):
        with mode:
            tensors = torch.ones(3, dtype=torch.int64), torch.ones(3)
            if not refused:
                write(*tensors)
                continue
            with pytest.raises(RuntimeError, match="can't be cast"):
                write(*tensors)


def test_layouts_meet_where_their_places_do() -> None:
    """Against all places listed, for layouts of up to three dimensions, expanded ones too."""
    draw = random.Random(3)

    def layout() -> tuple[tuple[int, ...], tuple[int, ...], int]:
        rank = draw.randrange(4)
        shape = tuple(draw.randrange(1, 5) for _ in range(rank))
        return shape, tuple(draw.choice((0, 1, 2, 4, 12, 15)) for _ in shape), draw.randrange(30)

    def places(shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> set[int]:
        every = itertools.product(*map(range, shape))
        return {offset + sum(i * k for i, k in zip(index, stride)) for index in every}

    seen = Counter[bool]()
    for _ in range(2000):
        first, second = layout(), layout()
        meet = bool(places(*first) & places(*second))
        assert overlap._meet(first, second) == meet, (first, second)
        seen[meet] += 1
    assert min(seen[True], seen[False]) > 200


def test_pieces_of_rows_are_apart() -> None:
    """What a GRU writes to and reads is three pieces of each row of one tensor."""
    gru = torch.nn.GRU(4, 5)
    compiled = refcompiler.compile(gru, backend="aot_eager")
    x = torch.randn(3, 2, 4)
    before = refcompiler.counters()["uncompiled"]
    torch.testing.assert_close(compiled(x), gru(x))
    assert refcompiler.counters()["uncompiled"] == before


def test_a_part_of_what_is_expanded_is_written() -> None:
    """A sum of differences, as functionalization has it, would round, and leave what is no number
    behind."""

    def first(x: torch.Tensor) -> torch.Tensor:
        wide = x.expand(2)
        wide[0] = 0.1
        return wide * 1

    def pieces(x: torch.Tensor) -> torch.Tensor:
        a, b = x.expand(2).chunk(2)
        b.zero_()
        return a + x

    def read(x: torch.Tensor) -> torch.Tensor:
        wide = x.expand(2)
        x.mul_(2)
        return wide[0] + wide

    compared = 0
    for function, fallback in ((first, True), (pieces, True), (read, False)):
        refcompiler.reset()
        compiled = refcompiler.compile(function, backend="fastpath")
        for given in (1e8, float("nan"), 5.0):
            x = torch.tensor([given])
            y = x.clone()
            found, expected = compiled(x), function(y)
            torch.testing.assert_close([found, x], [expected, y], rtol=0, atol=0, equal_nan=True)
            compared += 1
        report = fastpath.last_report()
        assert report is not None and bool(report.fallback) == fallback, report
    assert compared == 9
