"""Operators, containers, loops, unpacking, comprehensions and strings, against CPython."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## operators
class N:
    def __init__(self, v): self.v = v
    def __repr__(self): return f'N({self.v})'
    def __add__(self, o): return N(self.v + getattr(o, 'v', o))
    def __radd__(self, o): return N(('r', o, self.v))
    def __iadd__(self, o): self.v += 100; return self
    def __matmul__(self, o): return 'matmul'
    def __neg__(self): return N(-self.v)
    def __invert__(self): return 'invert'
    def __lt__(self, o): return 'lt'
    def __eq__(self, o): return 'eq'
    def __contains__(self, o): return o
    def __getitem__(self, k): return k
    def __bool__(self): return self.v > 0
    def __len__(self): return 7
    def __index__(self): return 2
    def __hash__(self): return 1
def main():
    n, m = N(1), N(-2)
    k = n
    k += 5
    return (n + 1, 1 + n, n + m, n @ m, -n, ~n, n < m, n > m, n == m, n != m, 0 in n, 5 in n,
            n[1:2, ...],
            not n, not m, n or 'x', m or 'y', n and 'z', [1, 2, 3][m], k is n, len(n))
## every_binary_operator
def main():
    a, b = 13, 5
    s = {1, 2}
    out = [a + b, a & b, a // b, a << b, a * b, a % b, a | b, a ** b, a >> b, a - b, a / b, a ^ b,
           s | {3}, s - {1}, +a, -a, ~a, not a]
    for value in (13, 13.5):
        x = value; x += 2; out.append(x)
        x = value; x -= 2; out.append(x)
        x = value; x *= 2; out.append(x)
        x = value; x /= 2; out.append(x)
        x = value; x //= 2; out.append(x)
        x = value; x %= 2; out.append(x)
        x = value; x **= 2; out.append(x)
    x = 13; x &= 5; x |= 8; x ^= 3; x <<= 2; x >>= 1
    out.append(x)
    xs = ys = [1]
    xs += [2]; xs *= 2
    return out, xs, ys is xs
## operator_errors
def main():
    log = []
    for f in (lambda: 1 + 'a', lambda: 'a' + 1, lambda: [] - 1, lambda: -'a', lambda: 1 < 'a',
              lambda: 1 // 0, lambda: 1 % 0, lambda: 1 << -1, lambda: 0 ** -1, lambda: 2 in 3,
              lambda: [1][5], lambda: {}['k'], lambda: 'abc'['x'], lambda: (3)[0], lambda: 1 @ 2,
              lambda: len(3), lambda: {[]: 1}, lambda: {[], 1}, lambda: f'{1:q}', lambda: int('z')):
        try:
            f()
        except Exception as e:
            log.append(e)
    return log
## comparisons
def main():
    def say(x):
        print('say', x)
        return x
    return (1 < 2 < 3, 1 < 3 < 2, say(1) < say(2) < say(0) < say(9), 1 == 1.0 != 2, 1 is 1,
            None is not 1,
            [1] == [1], 'a' in 'abc' in ['abc'], 3 not in {1, 2}, not 1 < 2,
            float('nan') == float('nan'))
## short_circuits
def main():
    def say(x):
        print('say', x)
        return x
    return (say(0) or say(1) or say(2), say(1) and say(0) and say(2), say(0) if say(1) else say(2),
            not (say(0) or say('')), (say(1) or say(2)) and say(3))
## jumps_on_none
def main():
    log = []
    for x in (None, 0, 1):
        if x is None: log.append('none')
        if x is not None: log.append('some')
        log.append(5 if x is None else 6)
        while x is not None:
            x = None
        while x is None:
            x = 1
        while not x: x = 2
    return log
## loops
def main():
    log = []
    for i in range(10):
        if i == 2: continue
        if i == 5: break
        log.append(i)
    else:
        log.append('no')
    for i in (): pass
    else: log.append('else')
    n = 0
    while True:
        n += 1
        if n > 3: break
    while n: n -= 1
    else: log.append('while else')
    for a, (b, *c) in [(1, (2, 3, 4)), (5, (6,))]: log.append((a, b, c))
    for log_[0] in 'ab': pass
    return log
log_ = [0]
## iteration_protocols
class Old:
    def __getitem__(self, i):
        if i == 3: raise IndexError
        return i * i
class It:
    def __init__(self): self.n = 0
    def __iter__(self): return self
    def __next__(self):
        self.n += 1
        if self.n > 3: raise StopIteration
        return self.n
class NoIter:
    __iter__ = None
class BadIter:
    def __iter__(self): return 3
def main():
    log = [[x for x in Old()], list(It()), [*Old()], dict.fromkeys(It())]
    a, b, c = Old()
    for kind in (NoIter, BadIter, int):
        for f in (lambda: [x for x in kind()], lambda: list(kind()), lambda: [*kind()],
                lambda: print(*kind()), unpack):
            try:
                f(kind()) if f is unpack else f()
            except TypeError as e:
                log.append(str(e))
    return log, a, b, c
def unpack(x):
    a, b = x
## iterator_that_raises
class It:
    def __iter__(self): return self
    def __next__(self): raise KeyError('it')
def main():
    for x in It(): pass
## iter_is_called_once
class It:
    def __iter__(self):
        print('iter')
        return iter([1, 2])
    def __len__(self):
        print('len')
        return 2
def f(*a): return a
def main():
    a, b = It()
    c, *d = It()
    return a, b, c, d, [*It()], {*It()}, f(*It()), (*It(), 3), [x for x in It()]
## unpacking
def main():
    a, b = 1, 2
    a, b = b, a
    (c, d), e = [3, 4], 5
    f, *g = 'xyz'
    *h, i = range(4)
    j, *k, l = (1, 2)
    [m] = {7}
    o = p = [0]
    x, y[0] = y = [1], [2]
    return locals()
y = [0]
## unpacking_errors
def main():
    log = []
    def t(f):
        try:
            f()
        except Exception as e:
            log.append(e)
    def few(): a, b, c = 1, 2
    def many(): a, b = 1, 2, 3
    def star(): a, *b, c = [1]
    def non(): a, b = 3
    def nonstar(): a, *b = None
    def key(): a, b = {}
    for f in (few, many, star, non, nonstar, key): t(f)
    return log
## displays
def main():
    d = {'a': 1, **{'b': 2, 'a': 3}, 'c': 4}
    return ([1, *range(2), *'ab'], (*[], 1), {*[1, 2], 3}, d, {1: 2, 3: 4}, {'x': 1, 'y': 2},
            {}, [], (), {1},
            {**{}}, [[i, j] for i in range(2) for j in range(2)], (1, 2, 3), frozenset({1, 2}))
## display_errors
def main():
    log = []
    for f in (lambda: {**3}, lambda: {**[1]}, lambda: [*3], lambda: {*3}, lambda: {**{1: 2},
            **None}):
        try:
            f()
        except Exception as e:
            log.append(e)
    return log
## comprehensions
def main():
    n = 10
    xs = [x * n for x in range(4) if x % 2 if x > 0]
    d = {k: v for k, v in zip('abc', range(3))}
    s = {x % 3 for x in range(10)}
    nested = [[y for y in range(x)] for x in range(4)]
    flat = [y for x in nested for y in x]
    walrus = [last := x for x in range(5)]
    if (m := len(xs)) > 1: pass
    cond = [y := f(x) for x in range(3) if (z := x + 1)]
    return xs, d, s, nested, flat, last, m, y, z, cond
def f(x): return x ** 2
## comprehension_errors
def main():
    return [1 / x for x in (1, 0)]
## f_strings
class F:
    def __format__(self, spec): return 'F:' + spec
    def __repr__(self): return 'repr'
    def __str__(self): return 'str'
def main():
    x, w, name = 3.14159, 10, 'é'
    return (f'{x:.2f}|{x:>{w}.{2}}|{name!r}|{name!s}|{name!a}|{F()}|{F()!r:>8}|{F():a{w}b}|'
            f'{x=}|{w + 1 = :>5}|{{}}|'
            f"{'nested ' + f'{w}'}" + f'' + f'{1}' + '%s %d' % ('a', 3) + '{}-{x}'.format(1, x=2))
## strings_and_numbers
def main():
    s = 'hello world'
    return (s[1], s[-3:], s[::-1], s[2:8:2], s.split(), s * 2, 'lo' in s, b'ab'[0], 'a' < 'b',
            s.upper().title(),
            10 ** 30, -7 // 2, -7 % 3, 7 / 2, 1e3, 2j * 2j, 0x10, round(2.5), divmod(-7, 2),
            int('12', 3),
            True + True, abs(-3), 0.1 + 0.2, 5 .bit_length(), (1, 2) < (1, 3), [1, 2] + [3])
## slices
def main():
    xs = list(range(10))
    log = [xs[:], xs[2:5], xs[::-2], xs[5:2:-1], xs[-3:]]
    xs[2:4] = 'ab'
    xs[::3] = [0] * len(xs[::3])
    del xs[1:3]
    del xs[-1]
    xs[0] += 5
    i = 1
    xs[i], i = 9, 2
    return log, xs, i, slice(1, 2), slice(1, 2, 3)
## mutated_arguments
def main():
    def f(xs, d):
        xs.append(1)
        xs += [2]
        d['k'] = xs
        xs = []
    a, b = [], {}
    f(a, b)
    return a, b
## ellipsis_and_constants
def main():
    return ..., __debug__, NotImplemented, (1, (2, (3,))), -0.0, 1_000, 'a' 'b', rb'\\x'
## try_in_loop_with_unpack
def main():
    out = []
    for item in [(1, 2), 3, (4,), (5, 6)]:
        try:
            a, b = item
        except (TypeError, ValueError) as e:
            out.append(type(e).__name__)
            continue
        out.append(a + b)
    return out
## augmented_attributes_and_items
class O: n = 0
def main():
    o = O()
    o.n += 1
    o.n -= 3
    d = {'a': [1]}
    d['a'] += [2]
    d['b'] = d.get('b', 0) + 1
    t = ([],)
    try:
        t[0].append(1)
        t[0] += [2]
    except TypeError as e:
        return o.n, O.n, d, t, str(e)
## conversions_that_fail
class B:
    def __bool__(self): return 3
class L:
    def __len__(self): return -1
class R:
    def __repr__(self): return 3
class F:
    def __format__(self, s): return 3
def main():
    log = []
    for f in (lambda: not B(), lambda: 1 if L() else 2, lambda: f'{R()!r}', lambda: f'{F()}',
            lambda: [1][1.5]):
        try:
            f()
        except Exception as e:
            log.append(e)
    return log
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_expressions(name: str) -> None:
    check(PROGRAMS[name])


def test_many_constants_and_names() -> None:
    """More than 255 of each, and jumps over more than 255 instructions: EXTENDED_ARG."""
    lines = ["def main():", "    total = 0", "    for k in range(2):", "        if k > 5:"]
    lines += [f"            v{i} = total * {i + 1000}" for i in range(300)]
    lines += ["        else:"]
    lines += [f"            v{i} = total + {i + 0.5}; total += v{i} > {i}" for i in range(300)]
    lines += ["        try:"]
    lines += [f"            total += g.a{i}" for i in range(300)]
    lines += ["        except KeyError:", "            pass"]
    lines += ["    def inner():", f"        return {' + '.join(f'v{i}' for i in range(300))}"]
    lines += [f"    big = [{', '.join(f'v{i}' for i in range(300))}]"]
    lines += ["    return total, inner(), big, {" + ", ".join(f"'k{i}': v{i}" for i in range(300))]
    lines[-1] += "}"
    head = ["class G:", *(f"    a{i} = {i}" for i in range(300)), "g = G()"]
    machine = check("\n".join(head + lines))
    assert machine.instructions > 3000


@pytest.mark.parametrize("count", [200, 300, 70000])
def test_long_displays(count: int) -> None:
    check(
        f"def main():\n    return sum([{', '.join(f'x{i % 7}' for i in range(count))}])\n"
        + "x0 = x1 = x2 = x3 = x4 = x5 = x6 = 1\n"
    )
