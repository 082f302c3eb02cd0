"""Drawing on the CPU: from torch's own generators, whose state is read, advanced and put back.

The state of a CPU generator is a tensor of 5056 bytes. As 32-bit words it holds, from word 2, how
many of the generation's words are left plus one, from word 4 the place of the next one, and from
word 6 the words themselves, each followed by an empty one. Behind them are numbers that eager's
normal distribution keeps when it draws fewer than 16 elements, and which are left alone here.

Whether all this is so on a machine is tried once per process and distribution: numbers and state
have to be those of eager. Eager draws otherwise on some processors (by a vendor's library).
"""

from __future__ import annotations

import contextlib
import functools
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fastpath.ir.types import DTYPE
from fastpath.random.kernels import Distribution, address_of
from refcompiler.aot.draws import WATCHERS
from refcompiler.logs import log_of

_HINTS = log_of("perf_hints")
_STATE_BYTES = 5056
_SIZES = (16, 17, 700, 4099)  # of a trial: part of a generation, several, groups that are not full
DISTRIBUTION = "distribution"  # the attribute of functions that draw
_lock = threading.Lock()  # between reading a state and putting it back

Draw = Callable[..., torch.Tensor]


@functools.cache
def drawing(d: Distribution) -> Draw:
    """``draw(shape, strides, p, q)``: a fresh tensor, dense in memory, of the default generator's
    next numbers, which fill it in the order of memory; with ``generator`` or ``state``, of those
    of another generator, or from a kept state (which stays as it is, as do all generators)."""
    fill, alone, dtype = _filling(d), _alone(d), DTYPE[d.dtype]
    empty = torch.empty_strided

    def draw(
        shape: Sequence[int],
        strides: Sequence[int],
        p: Any = 0,
        q: Any = 0,
        state: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        out = empty(shape, strides, dtype=dtype, device="cpu")
        if out.numel() < d.elements:  # of a size that only the call knows
            return alone(out, p, q, state, generator)
        _advance(lambda now: fill(now, out, p, q), draw.__name__, out, state, generator)
        return out

    draw.__name__ = f"draw_{d.name}_{d.dtype}"
    draw.__dict__[DISTRIBUTION] = d
    return draw


def _advance(
    fill: Callable[[torch.Tensor], bool],
    name: str,
    out: torch.Tensor,
    state: torch.Tensor | None,
    generator: torch.Generator | None,
) -> bool:
    """Let ``fill`` draw from a generator's state, or from a kept one; whoever watches is told.

    What ``fill`` answers: where that is false, the generator stays as it was.
    """
    owner = torch.default_generator if generator is None else generator
    with _lock:
        now = owner.get_state() if state is None else state.clone()
        before = now.clone() if WATCHERS else None
        if not fill(now):
            return False
        if state is None:
            owner.set_state(now)
    if before is not None:
        _tell(name, out, generator, before, now, state)
    return True


def _alone(d: Distribution) -> Draw:
    """Eager's own draw of a few elements, which has an algorithm of its own."""
    eager = _EAGER[d.name][0]

    def draw(
        out: torch.Tensor, p: Any, q: Any, state: torch.Tensor | None, generator: Any
    ) -> torch.Tensor:
        if state is not None:
            generator = torch.Generator()
            generator.set_state(state)
        return eager(out, p, q, generator)

    return draw


def _filling(d: Distribution) -> Callable[[torch.Tensor, torch.Tensor, Any, Any], bool]:
    """``fill(state, out, p, q)``, which advances the state, and never refuses."""
    from fastpath.cpu.launcher import bind

    run = bind(address_of(d), 1, 1, 6)

    def fill(state: torch.Tensor, out: torch.Tensor, p: Any, q: Any) -> bool:
        start, count, address = state.data_ptr(), out.numel(), out.data_ptr()
        if not d.integers:
            p, q = struct.unpack("<qq", struct.pack("<dd", p, q))
        rest = count % d.elements
        run(start, address, count - rest, 0, p, q)
        if rest:
            # Eager draws the last group anew, over what the one before made; of a float32 or
            # float64 tensor, it has drawn words for the elements that are left over before.
            skipped = 0 if d.dtype in ("float16", "bfloat16") else rest * d.words // d.elements
            last = address + (count - d.elements) * out.itemsize
            run(start, last, d.elements, skipped, p, q)
        return True

    return fill


@functools.cache
def drawing_each(d: Distribution) -> Draw:
    """``draw(probabilities)``: a fresh tensor with the layout of ``probabilities``, whose memory is
    dense: for each, whether the default generator's next number is below it.

    A probability that is none is eager's to refuse.
    """
    from fastpath.cpu.launcher import bind

    run = bind(address_of(d), 1, 1, 6)

    def draw(
        probabilities: torch.Tensor,
        state: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        out = torch.empty_like(probabilities, dtype=torch.bool)
        wrong = torch.zeros(1, dtype=torch.int64, device="cpu")
        places = (probabilities.data_ptr(), wrong.data_ptr())

        def fill(now: torch.Tensor) -> bool:
            run(now.data_ptr(), out.data_ptr(), out.numel(), 0, *places)
            return not wrong.item()

        if not _advance(fill, draw.__name__, out, state, generator):
            return torch.bernoulli(probabilities, generator=generator).to(torch.bool)
        return out

    draw.__name__ = f"draw_{d.name}_{d.dtype}"
    draw.__dict__[DISTRIBUTION] = d
    return draw


def _tell(
    name: str, out: torch.Tensor, generator: Any, before: Any, after: Any, state: Any
) -> None:
    owner = "cpu" if generator is None else "cpu, its own"
    for watch in list(WATCHERS):
        watch(name, out, owner, before, after, kept=state is not None)


# What eager does with a tensor, two parameters and a generator; and parameters to try it with.
_EAGER: dict[str, tuple[Callable[..., torch.Tensor], Any, Any]] = {
    "uniform": (lambda t, p, q, g: t.uniform_(p, q, generator=g), 0.25, 1.75),
    "below": (lambda t, p, q, g: t.bernoulli_(p, generator=g), 0.375, 0.0),
    "normal": (lambda t, p, q, g: t.normal_(p, q, generator=g), 0.5, 1.5),
    "exponential": (lambda t, p, q, g: t.exponential_(p, generator=g), 1.5, 0.0),
    "integers": (lambda t, p, q, g: t.random_(q, q + p, generator=g), 97, 3),
    "integers64": (lambda t, p, q, g: t.random_(q, q + p, generator=g), (1 << 40) + 1, 3),
    "permutation": (lambda t, p, q, g: torch.randperm(len(t), generator=g, out=t), 0, 0),
}


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    watchers, WATCHERS[:] = list(WATCHERS), []
    try:
        yield
    finally:
        WATCHERS[:] = watchers


@functools.cache
def matches(d: Distribution) -> bool:
    """Whether kernels draw what eager draws on this machine, and leave the generator as it does."""
    generator = torch.Generator()
    generator.manual_seed(20)
    with torch.no_grad(), _unwatched():
        found = generator.get_state().numel() == _STATE_BYTES and all(
            _same(d, generator, n) for n in _SIZES
        )
    if not found:
        _HINTS.info("%s of %s is left to ATen: eager draws otherwise here", d.name, d.dtype)
    return found


def _same(d: Distribution, generator: torch.Generator, count: int) -> bool:
    before = generator.get_state()
    if d.given:
        chances = torch.linspace(0, 1, count, dtype=DTYPE[d.given], device="cpu")
        expected = torch.bernoulli(chances, generator=generator).to(torch.bool)
        draw = functools.partial(drawing_each(d), chances)
    else:
        eager, p, q = _EAGER[d.name]
        expected = eager(torch.empty(count, dtype=DTYPE[d.dtype], device="cpu"), p, q, generator)
        draw = functools.partial(drawing(d), (count,), (1,), p, q)
    after = generator.get_state()
    generator.set_state(before)
    drawn = draw(generator=generator)
    return torch.equal(drawn, expected) and torch.equal(generator.get_state(), after)
