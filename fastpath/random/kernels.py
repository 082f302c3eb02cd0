"""Kernels that draw: the Mersenne Twister a generation at a time, and a distribution of its words.

A generator hands out 32-bit words one after the other; a generation of 624 of them can be made,
tempered and used with vectors. So a kernel gathers words in a row on its stack, turns whole groups
of them into elements, and keeps what is left of a group for the next round.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from specs.scalars import NUMBA_SUFFIX

WORDS = 624  # of a generation
_SUFFIX = {"float16": "f16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Distribution:
    """What a kernel makes of words; results are laid out as ``dtype``.

    ``words`` make ``elements``: one element, ``text``, or as many pairs as there are, of ``text``
    and ``second``, whose members lie half a group apart. The texts are over the words ``a`` and
    ``b`` (where ``pairs64``, float64 numbers of two words each) and the parameters ``p`` and ``q``,
    which are float64, or int64 where ``integers``. They are of kind ``kind``.

    ``given``: the dtype of a tensor whose elements the texts call ``c``. Then p is its address, and
    q that of an int64 that becomes 1 if one of them is no probability.
    """

    name: str
    dtype: str
    words: int
    elements: int
    kind: str
    text: str
    second: str = ""
    pairs64: bool = False
    integers: bool = False
    given: str = ""

    @property
    def in_groups(self) -> bool:
        return bool(self.second)


def uniform(dtype: str) -> Distribution:
    """Uniform in [p, q)."""
    if dtype == "float64":
        return Distribution("uniform", dtype, 2, 1, dtype, "uniform64(a, b, p, q)")
    suffix = f"_{_SUFFIX[dtype]}" if dtype in _SUFFIX else ""
    return Distribution("uniform", dtype, 1, 1, "float32", f"uniform32{suffix}(a, p, q)")


def below(dtype: str) -> Distribution:
    """Whether a uniform number of 53 bits is below p."""
    return Distribution("below", dtype, 2, 1, "bool", "below(a, b, p)")


def below_each(given: str) -> Distribution:
    """Whether a uniform number is below each element of a tensor of dtype ``given``."""
    if given == "float64":
        text, words = "less_f64(unit64(a, b), c)", 2
    else:
        text, words = "less_f32(unit32(a), c)", 1
    return Distribution("below_each", "bool", words, 1, "bool", text, integers=True, given=given)


def normal(dtype: str) -> Distribution:
    """Mean p, standard deviation q, in groups of 16."""
    if dtype == "float64":
        texts = ("normal64_cosine(a, b, p, q)", "normal64_sine(a, b, p, q)")
        return Distribution("normal", dtype, 32, 16, dtype, *texts, pairs64=True)
    texts = ("normal_cosine(a, b, p, q)", "normal_sine(a, b, p, q)")
    return Distribution("normal", dtype, 16, 16, "float32", *texts)


def exponential(dtype: str) -> Distribution:
    """Of rate p."""
    return Distribution("exponential", dtype, 2, 1, "float64", "exponential(a, b, p)")


def integers(dtype: str, count: int) -> Distribution:
    """q + a word % p; from 2 ** 28 values on, of two words."""
    if count >= 1 << 28:
        text = "within64(a, b, p, q)"
        return Distribution("integers64", dtype, 2, 1, "int64", text, integers=True)
    return Distribution("integers", dtype, 1, 1, "int64", "within32(a, p, q)", integers=True)


PERMUTATION = Distribution("permutation", "int64", 1, 1, "int64", "", integers=True)

_BEGIN = """
def kernel(addresses, begin, end):
    given, out, count = address(addresses, 0), address(addresses, 1), address(addresses, 2)
    skip = address(addresses, 3)
    p, q = {parameters}
    s, w = state_row(), word_row()
    for i in range(624):
        store_s(s, i, load_given(given, 2 * i + 6))
    place = 625 - i64_of_word(load_given(given, 2))
"""
_ROUND = """
        if place == 624:
            for i in range(227):
                store_s(s, i, twisted(load_s(s, i), load_s(s, i + 1), load_s(s, i + 397)))
            for i in range(227, 623):
                store_s(s, i, twisted(load_s(s, i), load_s(s, i + 1), load_s(s, i - 227)))
            store_s(s, 623, twisted(load_s(s, 623), load_s(s, 0), load_s(s, 396)))
            place = 0
        taken = min(624 - place, wanted)
        for i in range(taken):
            store_w(w, have + i, tempered(load_s(s, place + i)))
        place += taken
        wanted -= taken
        have += taken
"""
_END = """
    for i in range(624):
        store_given(given, 2 * i + 6, load_s(s, i))
    store_given(given, 2, word_of_i64(625 - place))
    store_given(given, 4, word_of_i64(place))
"""

_ELEMENTS = """
    wanted = skip + count * {words} // {elements}
    have, done = 0, 0
    while wanted > 0:{round}
        first = min(skip, have)
        skip -= first
        groups = (have - first) // {words}
        {body}
        done += groups * {elements}
        used = first + groups * {words}
        have -= used
        for i in range(have):
            store_w(w, i, load_w(w, used + i))
"""
_ONE_BY_ONE = """for i in range(groups):
            a, b = load_w(w, first + i * {words}), load_w(w, first + i * {words} + {words} - 1)
            store_out(out, done + i, {text})"""
_EACH = """for i in range(groups):
            a, b = load_w(w, first + i * {words}), load_w(w, first + i * {words} + {words} - 1)
            c = load_c(p, done + i)
            wrong = wrong | not_within_{kind}(c)
            store_out(out, done + i, {text})"""
_IN_GROUPS = """for group in range(groups):
            for i in range({half}):
                a = {a}
                b = {b}
                store_out(out, done + group * {elements} + i, {text})
                store_out(out, done + group * {elements} + i + {half}, {second})"""

# Fisher and Yates: each place is exchanged with one behind it, or itself.
_PERMUTED = """
    for i in range(count):
        store_out(out, i, i)
    wanted = count - 1
    done = 0
    while wanted > 0:
        have = 0{round}
        for i in range(have):
            other = done + i64_of_word(remainder(load_w(w, i), word_of_i64(count - done)))
            value = load_out(out, other)
            store_out(out, other, load_out(out, done))
            store_out(out, done, value)
            done += 1
"""


def source(d: Distribution) -> str:
    """The text of ``kernel(addresses of state, out; count, words to skip, two parameters)``."""
    given = [f"address(addresses, {n})" for n in (4, 5)]
    if not d.integers:
        given = [f"double({text})" for text in given]
    if d is PERMUTATION:
        middle = _PERMUTED.format(round=_ROUND.rstrip())
    else:
        middle = _ELEMENTS.format(
            words=d.words, elements=d.elements, round=_ROUND.rstrip(), body=_body(d)
        )
    first, last = "", ""
    if d.given:
        first, last = "    wrong = false\n", "    store_flag(q, 0, int64(wrong))\n"
    begin = _BEGIN.format(parameters=", ".join(given)) + first
    return begin + middle.strip("\n") + _END + last


def _body(d: Distribution) -> str:
    text, second = (_converted(text, d.kind, d.dtype) for text in (d.text, d.second))
    if d.given:
        return _EACH.format(words=d.words, text=text, kind=NUMBA_SUFFIX[d.given])
    if not d.in_groups:
        return _ONE_BY_ONE.format(words=d.words, text=text)
    half, each = d.elements // 2, 2 if d.pairs64 else 1
    words = []
    for start in (0, d.words // 2):
        place = f"first + group * {d.words} + {each} * i + {start}"
        word = f"load_w(w, {place})"
        words.append(f"unit64({word}, load_w(w, {place} + 1))" if d.pairs64 else word)
    a, b = words
    return _IN_GROUPS.format(half=half, elements=d.elements, a=a, b=b, text=text, second=second)


def _converted(text: str, kind: str, dtype: str) -> str:
    """``text`` as memory of ``dtype`` takes it; reduced floats are rounded first."""
    if kind == dtype or not text:
        return text
    target = _SUFFIX.get(dtype, NUMBA_SUFFIX[dtype])
    if text.partition("(")[0].endswith(f"_{target}"):  # rounded already
        return text
    return f"m.cast_{NUMBA_SUFFIX[kind]}_{target}({text})"


@functools.cache
def address_of(d: Distribution) -> int:
    """The address of the kernel's C function."""
    from fastpath.cpu import objects

    return objects.address_of((source(d), repr(d)), functools.partial(_compile, d))


def _compile(d: Distribution, symbol: str) -> bytes:
    import numba

    from fastpath.cpu import access, maths
    from fastpath.cpu.codegen import compile_callback
    from fastpath.cpu.machine import signature
    from fastpath.random.words import FUNCTIONS

    scope: dict[str, Any] = dict(FUNCTIONS)
    scope["m"], scope["address"] = maths, access.address
    for n, (name, dtype) in enumerate(
        {"given": "uint32", "out": d.dtype, "s": "uint32", "w": "uint32"}.items()
    ):
        scope[f"load_{name}"], scope[f"store_{name}"] = (
            access.load(dtype, n),
            access.store(dtype, n),
        )
    scope["load_c"], scope["store_flag"] = (
        access.load(d.given or "bool", 4),
        access.store("int64", 5),
    )
    scope["false"], scope["int64"] = False, numba.int64
    scope["state_row"] = access.scratch(WORDS, "uint32")
    scope["word_row"] = access.scratch(WORDS + d.words, "uint32")
    exec(compile(source(d), f"<fastpath {d.name}>", "exec"), scope)
    return compile_callback(scope["kernel"], signature(), symbol)
