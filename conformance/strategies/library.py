"""Statements about the standard library, and about the state of tensors: gradients, hooks, modes.

The placeholders are those of :mod:`conformance.strategies.templates`.
"""

LIBRARY = (
    """class Color(enum.Enum):
    RED = 1
    BLUE = 2
color = Color.RED if {c} else Color['BLUE']
kept.append((color.name, Color(2) is Color.BLUE, {m} * color.value, [c.name for c in Color]))""",
    """class Mark(enum.IntFlag):
    A = 1
    B = 2
mark = Mark.A | (Mark.B if {c} else Mark.A)
kept.append((bool(mark & Mark.B), {m} * mark, int(mark)))""",
    "kept.append(functools.reduce(operator.add, [{m}, {m} * 2], {k}))",
    """@functools.lru_cache(maxsize=2)
def size(i):
    LOG.append(('missed', i))
    return i * 2
kept.append((size(n), size(n), size({k}), size.cache_info().hits))""",
    """@functools.singledispatch
def kind(value):
    return 'other'
@kind.register(int)
def _(value):
    return value + 1
@kind.register(torch.Tensor)
def _(value):
    return value * {k}
kept.append((kind(2), kind({m}), kind('a'), kind(n)))""",
    "token = LEVEL.set({k})\nm0 = {m} * LEVEL.get()\nLEVEL.reset(token)\nkept.append(LEVEL.get())",
    "kept.append(contextvars.copy_context().run(lambda t: LEVEL.set(9) and t * LEVEL.get(), {m}))\n"
    "kept.append(LEVEL.get())",
    "LEVEL.set(LEVEL.get() % 3 + 1)\nm0 = {m} + LEVEL.get()",
    "twin = copy.copy(STATE)\ntwin.n = {k}\nkept.append((twin.apply({m}), STATE.n, twin.t is "
    "STATE.t))",
    "deep = copy.deepcopy({{'a': [1, ({k}, 'x')], 'b': LOG[:1]}})\ndeep['a'].append({v})\n"
    "kept.append(deep)",
    "kept.append([a * b for a, b in itertools.product([{k}, 2], [n, 1])])",
    "kept.append([(key, len(list(group))) for key, group in itertools.groupby([1, 1, {k}, 2])])",
    "kept.append(list(itertools.accumulate([{m}, {m}, {m} * {k}], lambda a, b: a + b)))",
    "kept.append(list(itertools.pairwise([{k}, n, 'a'])))",
    "kept.append(list(itertools.zip_longest([{v}], [{k}, 2], fillvalue=0)))",
    "kept.append(list(itertools.starmap(torch.add, [({m}, {k}), ({v}, 1)])))",
    "kept.append(list(itertools.takewhile(lambda i: i != {k}, range(4))))\n"
    "kept.append(list(itertools.compress('abc', [n, 0, {k}])))",
    "first, second = itertools.tee({v} * i for i in range(3))\nkept.append((next(first), "
    "list(second), list(first)))",
    "it = itertools.cycle([{v}, {k}])\nkept.append([next(it) for _ in range(3)])",
    "kept.append(operator.itemgetter('k', 'a')({{'k': {k}, 'a': {m}}}))\n"
    "kept.append(operator.attrgetter('n')(STATE))\nkept.append(operator.methodcaller('sum')({m}))",
    "kept.append('{{:>6}}|{{!r:<4}}|{{a}}'.format({k}, 'x', a={m}.dim()))\n"
    "kept.append('%s-%r' % ({k}, tuple({m}.shape)))",
    'kept.append(f"{{{k}!s:*^9}} {{{m}.dtype}} {{[1, n]}}")',
    "kept.append(', '.join(map(str, sorted(TABLE))).title().split(', '))",
    "kept.append([(p.name, p.default) for p in inspect.signature(helper).parameters.values()])\n"
    "bound = inspect.signature(helper).bind({m}, k={k})\nm0 = helper(*bound.args)",
    """with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    warnings.warn('odd', UserWarning)
    kept.append({m} * {k})
kept.append([str(w.message) for w in caught])""",
    "logging.getLogger('program').debug('at %s', {k})\nkept.append({m} + 1)",
    "kept.append(list(dict.fromkeys(['b', 'a', {k}, 'b'])))\n"
    "kept.append(frozenset([1, n]) | {{{k}}} == {{1, n, {k}}})",
    """order = collections.OrderedDict(a={m}, b={k}, c=n)
order.move_to_end('a')
order.popitem(last={c})
kept.append(order)""",
    "kept.append(collections.Counter(['a', 'b', 'a', {k}]).most_common(1))",
    "chain = collections.ChainMap({{'k': {m}}}, TABLE)\nchain['new'] = {k}\n"
    "kept.append((chain['k'], len(chain), chain.maps[0]['new']))",
    "heap = [3, n, 1]\nheapq.heapify(heap)\nheapq.heappush(heap, {k})\nkept.append(heapq.heappop("
    "heap))\nkept.append(bisect.bisect([1, 2, 3], {k}))",
    "kept.append((math.floor({k}), math.prod({m}.shape), math.isclose({k}, 2), divmod({k}, 2)))",
    "known = weakref.ref(STATE)\nkept.append((known() is STATE, known().n))",
    """@dataclasses.dataclass(order=True)
class Point:
    a: int
    b: list = dataclasses.field(default_factory=list, compare=False)
    def __post_init__(self):
        self.b.append({m})
points = [Point({k}), Point(2, [{v}])]
kept.append((sorted(points)[0].b, max(points).a, [f.name for f in dataclasses.fields(Point)]))""",
    """class Entry(typing.NamedTuple):
    t: object
    by: float = 2
    def scaled(self):
        return self.t * self.by
kept.append((Entry({m}).scaled(), Entry({v}, {k})._asdict(), Entry._fields))""",
    """class Plugin:
    known = []
    def __init_subclass__(cls, scale=1, **rest):
        super().__init_subclass__(**rest)
        cls.scale = scale
        Plugin.known.append(cls.__name__)
    def __class_getitem__(cls, item):
        return (cls.__name__, item)
class Doubling(Plugin, scale=2):
    def apply(self, t, by):
        return t * self.scale * by
    once = functools.partialmethod(apply, by={k})
kept.append((Doubling().once({m}), Plugin.known, Doubling[n]))""",
    "kept.append((sorted(vars(STATE)), callable(helper), getattr(STATE, 'n'), "
    "[i for i in dir(State) if i[0] != '_']))",
    "setattr(STATE, 'extra', {m})\nkept.append(vars(STATE).pop('extra'))",
    "kept.append((json.loads(json.dumps({{'n': {k}}})), re.sub('a+', 'b', 'caat'), "
    "re.match('(x)(y)?', 'xz').groups()))",
    "kept.append(pickle.loads(pickle.dumps(({k}, ['a', n]))))",
    """class Bag(collections.UserDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, [value])
bag = Bag(a={k})
bag['t'] = {m}
kept.append((bag['t'], sorted(bag), 'a' in bag))""",
    """class Pairs(collections.abc.Sequence):
    def __init__(self, *items):
        self.items = items
    def __len__(self):
        return len(self.items)
    def __getitem__(self, at):
        return self.items[at]
pairs = Pairs({m}, {k}, n)
kept.append((list(reversed(pairs)), len(pairs), pairs.index({m}), 9 in pairs[1:]))""",
    """class Chosen(abc.ABC):
    @property
    @abc.abstractmethod
    def by(self): ...
class Concrete(Chosen):
    by = {k}
try:
    Chosen()
except TypeError:
    kept.append({m} * Concrete().by)""",
)

TENSOR_STATE = (
    "leaf = {m}.detach().requires_grad_()\nkept.append(torch.autograd.grad((leaf * {k}).sum(), "
    "leaf))",
    "leaf = {m}.detach().clone().requires_grad_()\n(leaf * leaf).sum().backward()\n"
    "kept.append(leaf.grad)\nleaf.grad = None\nkept.append(leaf.grad)",
    "leaf = {v}.detach().requires_grad_()\nleaf.register_hook(lambda g: g * 2)\n"
    "(leaf * {k}).sum().backward()\nkept.append(leaf.grad)\nleaf.grad.zero_()",
    """class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, by):
        ctx.by = by
        return t * by
    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.by * 10, None
m0 = Scaled.apply({m}, {k})""",
    "m0 = torch.utils.checkpoint.checkpoint(helper, {m}, {k}, use_reentrant=False)",
    "torch.manual_seed(3)\nkept.append(torch.rand(2))",
    "with torch.random.fork_rng():\n    kept.append(torch.rand(2))\nkept.append(torch.rand(1))",
    "state = torch.get_rng_state()\nkept.append(torch.rand(2))\ntorch.set_rng_state(state)",
    """before = torch.get_default_dtype()
torch.set_default_dtype(torch.float64)
try:
    kept.append(torch.ones(2) * {k})
finally:
    torch.set_default_dtype(before)
kept.append(torch.ones(1))""",
    "kept.append({m}.detach().numpy().shape)\nkept.append(torch.from_numpy(numpy.arange(3)) * {k})",
    "kept.append(torch.as_tensor(numpy.ones(2) * {k}) + {m}.detach().numpy().sum())",
    "kept.append(torch.func.vmap(lambda row: row * {k})({m}))",
    "kept.append(torch.func.grad(lambda t: (t * t * {k}).sum())({v}))",
    "kept.append(torch.func.jvp(lambda t: t * {k}, ({v},), (torch.ones_like({v}),)))",
    "with torch.inference_mode():\n    made = {m}.detach() * {k}\n"
    "kept.append((made.is_inference(), made))",
    "with torch.autocast('cpu', torch.bfloat16):\n    kept.append(({m} @ {m}.t()).dtype)",
    "kept.append((x.grad, x.is_leaf, x.grad_fn is None, x.requires_grad, {m}.is_leaf))",
    "{m}.data.add_({k})",
    "own = {m}.detach().clone()\nown.data = torch.zeros(2)\nkept.append(own)",
    "own = {m}.detach().clone()\nown.unsqueeze_(0)\nown.transpose_(0, 1)\nkept.append(own)\n"
    "own.squeeze_(1).t_()",
    "own = {v}.detach().clone()\nown.resize_(1)\n"
    "kept.append((own, own.untyped_storage().nbytes()))",
    "kept.append(torch.mul({m}, 2, out=torch.empty(0, dtype={m}.dtype)))",
    "{m}.note = {k}\nkept.append(getattr({m}, 'note', None))",
    "kept.append(({m}[..., None], {m}[:, [0]], {m}[torch.tensor([0, -1])], {m}[{m} > 1]))",
    "kept.append({m}[: {k}, ::2])",
    "own = {m}.clone()\nown[torch.tensor([0]), 0] = {s}\nown[..., -1:] *= 2\nkept.append(own)",
    "kept.append({m}.detach().to_sparse().to_dense() * {k})",
    "kept.append(torch.view_as_real(torch.complex({v}, {v}) * {k}))",
    "kept.append((hash({m}) == hash({m}), id(x) == id(y), {{x: 1}}.get(y)))",
    "try:\n    bool({v})\nexcept RuntimeError as error:\n    kept.append(str(error))",
    "def asked(t):\n    return t * {k}\nm0 = torch._dynamo.disable(asked)({m})",
    "torch._dynamo.graph_break()\nm0 = {m} + 1",
    "m0 = copy.deepcopy(NET)(m0)",
    "NET.load_state_dict({{**NET.state_dict(), 'weight': torch.full((), 1.5)}})\nm0 = NET(m0)",
    "NET.requires_grad_({c})\nm0 = NET(m0)\nkept.append(m0.requires_grad)",
    "NET.layers[0] = torch.nn.Hardtanh()\nm0 = NET(m0)",
    "if len(NET.layers) < 4: NET.layers.append(torch.nn.Softsign())\nm0 = NET(m0)",
    "handle = NET.register_forward_pre_hook(lambda mod, args: (args[0] * {k},))\nm0 = NET(m0)\n"
    "handle.remove()",
    "handle = NET.register_full_backward_hook(lambda mod, given, made: LOG.append(len(given)))\n"
    "out = NET(m0.detach().requires_grad_()).sum()\nout.backward()\nhandle.remove()\n"
    "kept.append(NET.weight.grad)\nNET.zero_grad()",
    "kept.append(torch.nn.Sequential(torch.nn.Flatten(0), NET)({m}))",
)
