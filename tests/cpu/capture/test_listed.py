"""A program for each feature of torch that the front end lists and no other file here has one of:
own generators, what is said about functions, hooks of all modules, states, custom operators.
"""

from __future__ import annotations

import operator
import pickle

import pytest
import torch
import torch._decomp.decompositions_for_jvp  # warns when it is imported
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def t(*shape, grad=False):
    return torch.randn(*shape, requires_grad=grad)


def twice(*shape, grad=False):
    return [(t(*shape, grad=grad),) for _ in range(2)]


# ---- generators of the program's -------------------------------------------------------------


@cases(breaks=1)
def drawn_from_a_closure():
    g = torch.Generator()
    g.manual_seed(3)

    def f(x):
        noise = torch.rand(3, 4, generator=g) - torch.rand(3, 4)
        x = x + torch.randn(3, 4, generator=g) * noise
        return x.clone().bernoulli_(0.3, generator=g) + torch.rand(3, 4)

    def state(x):
        return f(x), g.get_state()

    return state, twice(3, 4)


@cases(graphs=2, recompiles=1)
def drawn_from_two():
    def f(x, g, h):
        a = torch.randint(5, (4,), generator=g)
        b = torch.rand(4, generator=h)
        return x * a + b, torch.randperm(4, generator=g), torch.rand(2, generator=h)

    g, h = torch.Generator(), torch.Generator()
    return f, [(t(4), g.manual_seed(1), h.manual_seed(2)), (t(4), g, h), (t(4), h, g)]


@cases()
def generators_of_objects():
    class Sampler:
        def __init__(self, seed):
            self.generator = torch.Generator().manual_seed(seed)

        def __call__(self, x):
            return x + torch.rand(x.shape, generator=self.generator)

    samplers = [Sampler(1), Sampler(2)]

    def f(x):
        for sampler in samplers:
            x = sampler(x)
        return x

    return f, twice(3)


@cases(graphs=2, breaks=3)
def sequences_drawn_again():
    def f(x, g):
        state = g.get_state()
        first = torch.rand(3, generator=g)
        g.set_state(state)
        return x + first - torch.rand(3, generator=g), g.initial_seed()

    g = torch.Generator()
    return f, [(t(3), g.manual_seed(5)), (t(3), g)]


@cases(graphs=2, breaks=2, recompiles=1)
def split_at_random():
    def f(x):
        g = torch.Generator().manual_seed(7)
        order = torch.randperm(6, generator=g)
        return [part * 2 for part in x[order].split(2)]

    return f, twice(6)


# ---- what is said about functions ------------------------------------------------------------


@cases()
def allowed_in_the_graph():
    @torch.compiler.allow_in_graph
    def opaque(x, y):
        return (x * y).sin()

    return lambda x: opaque(x, x + 1) * 2, twice(3)


class Opaque(torch.autograd.Function):
    """Nothing of it is looked into: its text of a tensor would end the graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.rows = x.size(0) if str(x) else 0
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.rows


@cases()
def a_function_of_autograd_allowed_in_the_graph():
    torch.compiler.allow_in_graph(Opaque)
    return lambda x: Opaque.apply(x).sin(), [(torch.randn(3, 2, requires_grad=True),)] * 2


@cases()
def constant_by_assumption():
    @torch.compiler.assume_constant_result
    def scale():
        return 0.5

    return lambda x: x * scale(), twice(3)


@cases()
def a_polyfill():
    if not hasattr(operator, "_tests_polyfill"):
        operator._tests_polyfill = True

        @refcompiler.substitute_in_graph(operator.indexOf)
        def index_of(a, b, /):
            for i, item in enumerate(a):
                if item is b or item == b:
                    return i
            raise ValueError("sequence.index(x): x not in sequence")

    return lambda x: x * operator.indexOf([3, 1, 2], 2), twice(3)


@cases()
def asked_whether_it_is_compiled():
    def f(x):
        both = torch.compiler.is_compiling() or torch.compiler.is_dynamo_compiling()
        y = x * 2 if both or torch._dynamo.is_compiling() else x + x
        return y, torch.compiler.is_exporting()

    return f, twice(3)


@cases(graphs=2, breaks=1)
def disabled_method():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.seen = 0

        @torch.compiler.disable
        def count(self, x):
            self.seen += 1
            return x + self.seen

        def forward(self, x):
            return self.count(self.lin(x)) * 2

    return Counting(), twice(2, 3)


@cases()
def compiled_by_torchs_name():
    def f(x):
        inner = torch.compile(lambda x: x.sin() + 1, backend="eager")
        return inner(x) * 2

    return f, twice(3)


@cases()
def region_of_a_layer():
    @torch.compiler.nested_compile_region
    def layer(x, w):
        return torch.relu(x @ w) + 1

    def f(x, w):
        for _ in range(3):
            x = layer(x, w)
        return x

    return f, [(t(2, 3, grad=True), t(3, 3, grad=True)) for _ in range(2)]


@cases(graphs=1)
def marked_sizes():
    def f(x):
        return x.sum(0) * x.shape[0], x.shape

    calls = [(t(n, 4),) for n in (3, 5, 7)]
    for (x,) in calls:
        torch._dynamo.mark_dynamic(x, 0)
    return f, calls


# ---- modules ---------------------------------------------------------------------------------


@cases()
def hooks_of_all_modules():
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    log = []

    def f(x):
        def before(module, inputs):
            log.append(("before", type(module).__name__))

        def after(module, inputs, output):
            log.append(("after", type(module).__name__))
            return output + 1

        one = nn.modules.module.register_module_forward_pre_hook(before)
        two = nn.modules.module.register_module_forward_hook(after)
        try:
            y = m(x)
        finally:
            one.remove()
            two.remove()
        return m(y)

    return f, twice(2, 3), [log]


@cases()
def hooks_of_states():
    m = nn.Linear(2, 2)

    def renamed(module, state, prefix, metadata):
        state[f"{prefix}extra"] = torch.ones(1)

    m.register_state_dict_post_hook(renamed)

    def f(x):
        state = m.state_dict(prefix="m.")
        return x @ state["m.weight"], list(state)

    return f, twice(2, 2)


@cases()
def state_loaded_in_the_frame():
    m, other = nn.Linear(2, 2), nn.Linear(2, 2)

    def f(x):
        y = m(x)
        keys = m.load_state_dict(other.state_dict())
        return y + m(x), list(keys.missing_keys)

    return f, twice(2, 2), [m]


@cases()
def lists_and_dicts_of_parameters():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.many = nn.ParameterList([torch.randn(3) for _ in range(3)])
            self.named = nn.ParameterDict({"a": torch.randn(3), "b": torch.randn(3)})
            self.register_buffer("seen", torch.zeros(1))
            self.register_buffer("kept", torch.ones(3), persistent=False)

        def forward(self, x):
            self.seen += 1
            for p in self.many:
                x = x * p
            for name, p in self.named.items():
                x = x + p if name == "a" else x - p
            return (
                x + self.kept,
                len(self.many),
                sorted(self.named),
                [n for n, _ in self.named_buffers()],
            )

    return Mixed(), twice(3)


@cases()
def norms_of_weights():
    m = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
        nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)),
    )
    return m, twice(2, 3)


@cases()
def pruned():
    from torch.nn.utils import prune

    m = nn.Linear(4, 4)
    prune.l1_unstructured(m, "weight", 0.5)
    return m, twice(2, 4)


@cases()
def averaged():
    from torch.optim.swa_utils import AveragedModel

    m = nn.Linear(3, 3)
    average = AveragedModel(m)

    def f(x):
        return average(x) + m(x)

    return f, twice(2, 3), [average]


@cases()
def embeddings_of_bags():
    m = nn.EmbeddingBag(5, 3, mode="mean")
    offsets = torch.tensor([0, 2])

    def f(i):
        return m(i, offsets)

    return f, [(torch.tensor([1, 2, 3, 4]),), (torch.tensor([0, 0, 3, 1]),)], [m]


@cases()
def ensemble():
    models = [nn.Linear(3, 2) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    base = models[0]

    def f(x):
        def one(p, b, x):
            return torch.func.functional_call(base, (p, b), (x,))

        return torch.vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)

    return f, twice(4, 3)


@cases(breaks=2)
def pickled_in_the_frame():
    m = nn.Linear(2, 2)

    def f(x):
        copy = pickle.loads(pickle.dumps(m))
        return copy(x)

    return f, twice(2, 2)


@cases()
def state_of_a_compiled_module():
    inner = nn.Linear(2, 2)
    compiled = refcompiler.compile(inner, backend="eager")

    def f(x):
        return compiled(x), list(compiled.state_dict()), [n for n, _ in compiled.named_parameters()]

    return f, twice(2, 2), [inner]


# ---- transformations -------------------------------------------------------------------------


@cases()
def hessians():
    def f(x):
        def loss(v):
            return (v.sin() * v).sum()

        return torch.func.hessian(loss)(x), torch.func.jvp(loss, (x,), (torch.ones_like(x),))

    return f, twice(3)


@cases()
def random_in_a_map():
    def f(x):
        different = torch.vmap(lambda v: v + torch.rand(2), randomness="different")(x)
        return different, torch.vmap(lambda v: v + torch.rand(2), randomness="same")(x)

    return f, twice(3, 2)


@cases()
def functionalized():
    def f(x):
        def inplace(v):
            w = v.clone()
            w[0].add_(1)
            return w * 2

        return torch.func.functionalize(inplace)(x)

    return f, twice(3, 2)


@cases(graphs=2, breaks=1)
def gradient_of_a_result_by_another():
    def middle_and_loss(x):
        y = x.sin()
        return y, (y * y).sum()

    inner = refcompiler.compile(middle_and_loss, backend="eager")

    @torch.compiler.disable
    def gradient(z, y):
        return torch.autograd.grad(z, y, retain_graph=True)[0]

    def f(x):
        y, z = inner(x)
        return gradient(z, y) * 2, z

    return f, twice(3, grad=True)


# ---- operators and dispatch ------------------------------------------------------------------


@torch.library.custom_op("refcompiler_tests_listed::scaled", mutates_args=())
def _scaled(x: torch.Tensor, k: float) -> torch.Tensor:
    return x * k


@_scaled.register_fake
def _(x, k):
    return torch.empty_like(x)


def _keep(ctx, inputs, output):
    ctx.k = inputs[1]


_scaled.register_autograd(lambda ctx, grad: (grad * ctx.k, None), setup_context=_keep)


@torch.library.custom_op("refcompiler_tests_listed::add_to", mutates_args=("x",))
def _add_to(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


@cases()
def operators_of_the_programs():
    def f(x, buffer):
        y = torch.ops.refcompiler_tests_listed.scaled(x, 3.0)
        torch.ops.refcompiler_tests_listed.add_to(buffer, y.detach())
        return y * buffer

    return f, [(t(3, grad=True), t(3)) for _ in range(2)]


@cases(breaks=1)
def dispatch_mode_in_the_frame():
    log = []

    class Logging(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return func(*args, **kwargs or {})

    def f(x):
        with Logging():
            y = x.sin() + 1
        return y * 2

    return f, twice(3), [log]


@cases(breaks=1)
def traced():
    m = torch.jit.trace(lambda x: x.sin() * 2 + x, torch.randn(3))
    return lambda x: m(x) + 1, twice(3)


# ---- memory ----------------------------------------------------------------------------------


@cases()
def layouts_asked_for():
    def f(x):
        y = x.to(memory_format=torch.channels_last)
        z = y.contiguous() + x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        return y * 2, z, y.is_contiguous(memory_format=torch.channels_last), x.flatten(1)

    return f, twice(2, 3, 2, 2)


@cases()
def strides_made():
    def f(x):
        windows = x.as_strided((3, 2), (1, 1))
        y = torch.empty_strided((2, 3), (1, 2)).copy_(x[:3])
        return windows * 2, y, x.unfold(0, 2, 1).sum(1), x.expand(2, 4)

    return f, twice(4)


@cases()
def checks_of_values():
    def f(x):
        n = int(x.shape[0])
        torch._check(n > 0, lambda: "empty")
        torch._assert(n < 9, "too many")
        return x * n

    return f, twice(3)


@cases()
def trained_for_a_while():
    m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))

    def f(x):
        m.train()
        y = m(x)
        m.eval()
        return y + m(x), m.training

    return f, twice(4, 3), [m]


@pytest.mark.parametrize("case", cases, ids=str)
def test_a_listed_feature(case: Case) -> None:
    check(case)
