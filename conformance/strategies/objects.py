"""Statements about objects: special methods, modules, arguments that are containers, results that
share memory.

The placeholders are those of :mod:`conformance.strategies.templates`.
"""

SPECIAL = (
    """class Vector:
    def __init__(self, t):
        self.t = t
    def __mul__(self, other):
        return Vector(self.t * (other.t if isinstance(other, Vector) else other))
    __rmul__ = __mul__
    def __iadd__(self, other):
        self.t = self.t + other
        return self
    def __getitem__(self, at):
        return self.t[at]
    def __len__(self):
        return self.t.shape[0]
    def __bool__(self):
        return n > 1
a = Vector({m})
a += {k}
kept.append((({k} * a).t, (a * a)[0], len(a), 'yes' if a else 'no'))""",
    """@functools.total_ordering
class Ranked:
    def __init__(self, rank, t):
        self.rank, self.t = rank, t
    def __eq__(self, other):
        return self.rank == other.rank
    def __lt__(self, other):
        return self.rank < other.rank
    def __hash__(self):
        return hash(self.rank)
ranked = [Ranked({k}, {m}), Ranked(n, {m} * 2), Ranked(1, m0)]
kept.append([r.t for r in sorted(ranked)])
kept.append(max(ranked).rank)""",
    """class Fallback:
    def __init__(self):
        self.known = {k}
    def __getattr__(self, name):
        if name.startswith('t'):
            return {m}
        raise AttributeError(name)
    def __setattr__(self, name, value):
        LOG.append(name)
        object.__setattr__(self, name, value)
    def __call__(self, t, *, by=2):
        return t * by + self.known
own = Fallback()
kept.append((own.tensor + own.known, getattr(own, 'missing', None), own({v}, by=n)))""",
    """class Checked:
    def __set_name__(self, owner, name):
        self.name = '_' + name
    def __get__(self, instance, owner):
        return self if instance is None else getattr(instance, self.name) * 2
    def __set__(self, instance, value):
        setattr(instance, self.name, value + {k})
class Holder:
    field = Checked()
    @classmethod
    def of(cls, t):
        made = cls()
        made.field = t
        return made
    @staticmethod
    def twice(t):
        return t * 2
held = Holder.of({m})
kept.append((held.field, held.__dict__['_field'], Holder.twice({v})))""",
    """class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        LOG.append(cls.__name__)
        return made
class Made(metaclass=Meta):
    def __init__(self, t):
        self.t = t
kept.append(Made({m}).t)""",
    """class Base:
    def scale(self, t):
        return t * {k}
class Left(Base):
    def scale(self, t):
        return super().scale(t) + 1
class Right(Base):
    def scale(self, t):
        return super().scale(t) - 2
class Both(Left, Right):
    pass
kept.append((Both().scale({m}), [c.__name__ for c in Both.__mro__]))""",
    """point = collections.namedtuple('Point', 'a b')({m}, {k})
kept.append((point._replace(b=n), point.a + 1, point[1], point == point))""",
    """class Size(int):
    def __add__(self, other):
        return Size(int(self) + other * 2)
kept.append(({m} * (Size({k}) + 1), type(Size(1) + 1).__name__))""",
    """class Text(str):
    extra = {k}
kept.append((Text('a') + 'b', Text('a').upper(), Text.extra, f'{{Text("z")!r:>5}}'))""",
    """class Cached:
    @functools.cached_property
    def value(self):
        LOG.append('made')
        return {m} * {k}
cached = Cached()
kept.append((cached.value, cached.value is cached.value))""",
    "STATE.scaled = STATE.scaled + {k}\nkept.append(STATE.scaled)",
    "kept.append([item for item in (STATE, None, {k}) if not hasattr(item, 'apply')])",
)

MODULES = (
    "m0 = NET(m0)",
    "m0 = NET(m0)\nNET.calls += 1",
    "NET.count.add_(1)\nkept.append(NET.count)",
    "NET.train(not NET.training)\nkept.append(NET.training)",
    "NET.factor = {k}\nm0 = NET(m0)",
    "kept.append([name for name, _ in NET.named_parameters()])",
    "kept.append(sum(p.sum() for p in NET.parameters()))",
    "kept.append([type(child).__name__ for child in NET.children()])",
    "for layer in NET.layers:\n    m0 = layer(m0)",
    "kept.append(NET.layers[{k} % 2](m0).sum())",
    "with torch.no_grad():\n    NET.weight.mul_(2)\nkept.append(NET.weight.sum())",
    "kept.append(NET.state_dict()['weight'] * 1)",
    "NET.register_buffer('late', {v}.sum())\nkept.append(NET.late)",
    "handle = NET.register_forward_hook(lambda mod, args, out: out + {k})\nm0 = NET(m0)\n"
    "handle.remove()",
    "kept.append(torch.func.functional_call(NET, {{'weight': torch.full((), 3.0)}}, (m0,)))",
    "NET.last = {m}\nkept.append(NET.last is {m})",
    "print('net', NET.calls)\nm0 = NET(m0)",
    "kept.append(torch.nn.functional.dropout(m0, 0.0, NET.training))",
)

ARGUMENTS = (
    "if isinstance(other, list): other.append({v})\n"
    "elif isinstance(other, dict): other['new'] = {k}",
    "kept.append(len(other) if hasattr(other, '__len__') else other)",
    "if type(other) is dict:\n"
    "    for key in sorted(other, key=str): kept.append((key, other[key]))",
    "kept.append(f'{{type(other).__name__}} {{n!r}}')",
    "if isinstance(other, (int, float)): m0 = m0 * other",
    "if isinstance(other, str): kept.append(other.upper() + 'x' * {k})",
    "kept.append(other is ITEMS or other is TABLE or other is STATE)",
    "def taking(t, items=[], *, by=2, **rest):\n    items.append({k})\n"
    "    return t * by + len(items) + len(rest)\n"
    "kept.append((taking({m}), taking({m}, by=n, z=1)))",
    "kept.append(isinstance(n, bool) or n is None or n == 2)",
    "x, y = y, x\nm0 = x - y",
    "if other is not None: kept.append([other, other])",
    "m0 = m0 * (n if isinstance(n, (int, float)) else 1)",
    "if type(other) is list and other: other[0] = {m}\nelif type(other) is dict: other.clear()",
    "del other\nother = {k}",
)

SHARED = (
    "kept.append(({m}, {m}, {m}[:1], {m}.t()))",
    "twice = [{v}]\nkept.append((twice, twice, {{'a': twice}}))",
    "kept.append({m}.detach())\nkept[-1].add_({k})",
    "part = {m}[:, :1]\nwhole = {m}\npart += {k}\nkept.append((part, whole))",
    "ITEMS.append(m0)\nkept.append(ITEMS)",
    "STATE.last = m0\nm0.add_({k})\nkept.append(STATE.last is m0)",
    "m0 = x\nm0 += {k}",
    "m0 = x.view(-1).view(x.shape)",
    "kept.append(x.as_strided((2,), (1,)))",
    "x.data = x.data + {k}",
    "y.copy_(x)\nkept.append(y is y)",
    "late = lambda: m0.sum()\nm0 = m0 + {k}\nkept.append(late())",
    "kept.append(x[0])\nx.zero_()",
    "box = ({m}, [{v}, {m}])\nbox[1][0] = box[0]\nkept.append(box)",
    "same = m0\nm0 = m0.mul_(2)\nkept.append(same is m0)",
    "torch.add({m}, {k}, out=m0.t() if m0.shape[0] == m0.shape[1] else m0)",
)
