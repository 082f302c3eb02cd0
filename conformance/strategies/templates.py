"""Statements about classes, generators, functions, containers, handlers and views.

``{m}``, ``{v}``, ``{s}`` stand for a matrix, a vector and a scalar, ``{k}`` for a number, ``{c}``
for a condition; ``m0`` and ``s0`` are the program's own. A bar ends a part of a compound statement,
to which statements are added.
"""

CLASSES = (
    """class Box:
    made = 0
    def __init__(self, t):
        self.t = t
        type(self).made += 1
    def __add__(self, other):
        return Box(self.t + other)
    @property
    def double(self):
        return self.t * 2
kept.append((Box({m}) + {k}).double)
kept.append(Box.made)""",
    """class Sub(State):
    def apply(self, t):
        self.seen = t
        return super().apply(t) - {k}
sub = Sub({k}, {s})
m0 = sub.apply({m})
kept.append(sub.seen)""",
    """class Table(dict):
    def __missing__(self, key):
        self[key] = {v}
        return self[key]
table = Table(a={k})
kept.append((table['a'], table['b'] * 2, len(table)))""",
    """class Rows:
    __slots__ = ('t', 'at')
    def __init__(self, t):
        self.t, self.at = t, -1
    def __iter__(self):
        return self
    def __next__(self):
        self.at += 1
        if self.at == len(self.t):
            raise StopIteration
        return self.t[self.at]
kept.append([row + {k} for row in Rows({m})])""",
    """pair = Pair({m}, {k})
pair.b += 1
kept.append((pair.a * pair.b, pair._replaced(b=n).b))""",
    """STATE.__dict__['extra'] = {k}
kept.append(getattr(STATE, 'extra', None))
del STATE.extra
kept.append(hasattr(STATE, 'extra'))""",
    "State.level = State.level % 3 + 1\nm0 = {m} * State.level",
    "kept.append((type(STATE).__name__, isinstance(STATE, State), STATE == STATE))",
)

GENERATORS = (
    """def gen(t):
    got = yield t
    while got:
        got = yield t * got
g = gen({m})
kept.append(next(g))
kept.append(g.send({k} or 1))""",
    """def outer(t):
    done = yield from items(t)
    yield done
kept.extend(outer({m}))""",
    """def closing(t):
    try:
        yield t
        yield t * 2
    finally:
        LOG.append('closed')
g = closing({m})
kept.append(next(g))
g.close()""",
    """def thrown(t):
    while True:
        try:
            yield t
        except ValueError as error:
            t = t + len(str(error))
g = thrown({m})
next(g)
kept.append(g.throw(ValueError('abc')))""",
    "kept.append([t * i for i, t in enumerate({m}) if i != {k}])",
    "kept.append({{i: t for i, t in zip(range(2), {m})}})",
    "g = (t + {k} for t in {m})\nkept.append(next(g))\nLOG.append(len(list(g)))",
    "it = iter(ITEMS or [{v}])\nkept.append(next(it, None))\nkept.append(list(it))",
    "kept.append(list(map(lambda t, i: t * i, {m}, itertools.count({k}))))",
    "kept.append([a for a in itertools.chain([{k}], LOG[:2]) if a])",
)

FUNCTIONS = (
    """def local(*args, scale=1, **more):
    return sum(a.sum() for a in args) * scale + len(more)
kept.append(local({m}, *[{v}, {s}], scale={k}, **{{'z': n}}))""",
    """total = 0
def count():
    nonlocal total
    total += {k}
    return total
kept.append((count(), count(), total))""",
    "adders = [lambda t, i=i: t + i * {k} for i in range(3)]\nm0 = adders[1](adders[2]({m}))",
    """def fact(i, t):
    return t if i <= 0 else fact(i - 1, t * 2)
m0 = fact({k} % 3, {m})""",
    "part = functools.partial(helper, k={k})\nm0 = part({m})",
    """def keep(f):
    @functools.wraps(f)
    def inner(t):
        LOG.append(f.__name__)
        return f(t)
    return inner
@keep
def named(t):
    return t - {k}
m0 = named({m})""",
    "scale_up()\nm0 = {m} * SCALE",
    "first, *others = [{m} * i for i in (2, 3, 4)]\nkept.append((first, others))",
    "kept.append((lambda *a, **b: (a, sorted(b)))({k}, *LOG[:1], key={k}))",
    "late = [lambda: {m} * i for i in range(2)]\nkept.append([f() for f in late])",
    "if (double := {k} * 2) > 2: kept.append(double)",
)

CONTAINERS = (
    "TABLE.setdefault('list', []).append({v})\nkept.append(len(TABLE['list']))",
    "found = {{'a': {m}, **TABLE}}\nfound.pop('k', None)\nkept.append(found)",
    "ITEMS[:1] = [{v}, {s}]",
    "seen = {{{k}, n, 2}}\nseen.discard(2)\nkept.append(sorted(seen))",
    "ITEMS.reverse()\nkept.append(ITEMS.pop() if ITEMS else None)",
    "box = [{m}]\nbox *= 2\nbox[0] = box[0] + 1\nbox += ({v},)\nkept.append(box)",
    "TABLE['k'], before = {k}, TABLE.get('k')\nkept.append(before)",
    "queue = collections.deque([{v}, {k}], maxlen=2)\nqueue.append({s})\nkept.append(list(queue))",
    "counts = collections.defaultdict(list)\ncounts[{k}].append({m})\nkept.append(dict(counts))",
    "LOG.insert(0, {k})\nLOG.extend(['x', n])\ndel LOG[1:3]",
    "rows = [{m}, {m} * 2]\nfor i, row in enumerate(rows): rows[i] = row + {k}\nkept.append(rows)",
    "own = {{'a': [{m}]}}\nown['a'].append(own)\nkept.append(own['a'][1]['a'][0] + {k})",
    "SEEN.add({k})\nkept.append(({k} in SEEN, len(SEEN)))",
)

HANDLERS = (
    "try:\n    row = {m}[{k} + 1]\n    LOG.append('row')|except IndexError as error:\n"
    "    kept.append(str(error))|else:\n    LOG.append('else')",
    "try:\n    LOG.append('looked up')\n    kept.append(torch.arange(3.0)[torch.tensor([{k}])])|"
    "except IndexError as error:\n    kept.append(type(error).__name__)|finally:\n    STATE.n += 1",
    "try:\n    {fail}|except* (ValueError, KeyError) as group:\n"
    "    kept.append(len(group.exceptions))",
    "while n > 0:\n    n -= 2\n    if n == 1: break|else:\n    LOG.append('ran out')",
    "for i in range(3):\n    if i == {k}: continue\n    if {c}: break|else:\n    kept.append(i)",
    "with noted({k}), contextlib.suppress(ValueError):\n    {fail}",
)

RAISING = (
    "STATE.n += 1\nLOG.append({m})\nkept.append(torch.arange(3.0)[torch.tensor([{k}])])",
    "TABLE['k'] = {k}\nkept.append(m0.index_select(0, torch.tensor([{k}])))",
)

MATCHES = (
    """match (n, {k}):
    case (2, found):
        kept.append(found)
    case (a, b) if a > b:
        kept.append((a, b))
    case _:
        pass""",
    """match {{'n': n, 't': {m}}}:
    case {{'n': int(i), **rest}} if i:
        kept.append((i, sorted(rest)))
    case _:
        LOG.append('none')""",
    """match [{k}, {v}, n]:
    case [1 | 2, *rest]:
        kept.append(rest)
    case [first, _, last]:
        kept.append((first, last))""",
)

VIEWS = (
    "view = {m}.t()\nview[0, 0] = {k}\nkept.append(view)",
    "row = {m}[-1]\nrow.mul_(2)\nkept.append(row)",
    "flat = m0.reshape(-1)\nflat[::2] += 1\nkept.append(flat)",
    "{m}.unsqueeze(0).add_({k})",
    "kept.append({m}.expand(2, *{m}.shape)[0])",
    "first, *_ = {m}.unbind(0)\nfirst.zero_()",
    "a, b = m0.split([1, m0.shape[0] - 1])\na += 1\nkept.append(b)",
    "{m}.diagonal().fill_({k})",
    "torch.add({m}, {k}, out=m0)",
    "same = {m}\nsame += {k}\nkept.append(same is {m})",
    "ITEMS.append({m}[0])\nITEMS[-1].add_(1)",
)

PRINTS = (
    "print('p', {k}, {m}.shape, sep='-')",
    "print(n, end='')\nLOG.append(n)\nprint(len(LOG))",
)
