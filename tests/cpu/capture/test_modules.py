"""``nn.Module``: hooks, buffers, containers, modes, parametrizations, state written in forward.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import collections

import pytest
import torch
from torch import nn

import refcompiler
from refcompiler.capture.models import modules
from tests.cpu.capture.oracle import Call, Case, Cases, check

cases = Cases()
t = torch.randn


class Net(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        self.fc = nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)
        self.scale = 2.0
        self.register_buffer("count", torch.zeros(()))
        self.calls = 0
        self.seen = []

    def forward(self, x, k=1.0):
        return self.norm(torch.relu(self.fc(x))) * self.scale * k


@cases(graphs=2, recompiles=1)
def plain_module():
    m = Net()
    return m, [(t(3, 4),), (t(3, 4),), Call(t(3, 4), k=1.0)], [m]


@cases()
def forward_replaced_by_the_program_itself():
    m = nn.Sequential(Net(), Net(), Net())

    def program(x):
        first = m(x)
        m[1].forward = lambda x, k=1.0: x * 3.0
        second = m(x)
        del m[1].forward
        return first, second, m(x)

    return program, [(t(3, 4),)] * 2, [m]


@cases()
def hooks_looked_at_by_the_program_itself():
    m = nn.Sequential(Net(), Net(), Net())

    def program(x):
        known = m[1]._forward_hooks
        x = m(x) + len(known)
        known[1] = lambda module, args, result: result + 2.0
        x = m(x)
        known.clear()
        return m(x)

    return program, [(t(3, 4),)] * 2, [m]


@cases()
def module_in_a_function():
    m = Net()
    return lambda x: m(x) + m(x, k=3.0), [(t(3, 4),)] * 2, [m]


@cases()
def module_made_in_a_function():
    """Its parameters, four of them, are made by each call, and filled in its graph."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.second(self.first(x))

    def f(x):
        y = x + 1
        module = Pair()
        return module(y) * 2

    return f, [(t(3, 4),)] * 2


@cases()
def module_argument():
    return lambda m, x: m(x), [(m := Net(), t(3, 4)), (m, t(3, 4))]


@cases()
def module_called_with_keywords():
    class K(nn.Module):
        def forward(self, x, *rest, scale=1, **more):
            return x * scale + sum(rest) + more["shift"]

    return K(), [Call(t(3), t(3), scale=3, shift=t(3))] * 2


@cases()
def sequential_lists_and_dicts():
    class K(nn.Module):
        def __init__(self):
            super().__init__()
            self.seq = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
            self.items = nn.ModuleList([nn.Linear(4, 4), nn.Tanh()])
            self.table = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Identity()})
            self.ps = nn.ParameterList([t(4), t(4)])
            self.pd = nn.ParameterDict({"w": t(4)})

        def forward(self, x):
            x = self.seq(x) + self.seq[0](x)
            for i, layer in enumerate(self.items):
                x = layer(x) + i + len(self.items)
            for name, layer in self.table.items():
                x = layer(x) if name == "a" else x * 2
            for p in self.ps:
                x = x + p
            if "b" in self.table:
                x = self.table["b"](x)
            return x * self.pd["w"] + self.items[-1](x), [type(m).__name__ for m in self.seq[1:]]

    m = K()
    return m, [(t(3, 4),), (t(3, 4),)], [m]


@cases(graphs=2, recompiles=1)
def train_and_eval():
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    return m, [(t(3, 4),), m.eval, (t(3, 4),), m.train, (t(3, 4),)], [m]


@cases()
def buffers_changed():
    class K(Net):
        def forward(self, x):
            self.count += 1
            self.count.mul_(2)
            return x * self.count

    m = K()
    return m, [(t(3),)] * 3, [m]


@cases()
def buffer_replaced():
    class K(Net):
        def forward(self, x):
            self.count = self.count + x.sum()
            return x * self.count

    m = K()
    return m, [(t(3),)] * 3, [m]


@cases(graphs=3, recompiles=2)
def counter_written():
    class K(Net):
        def forward(self, x):
            self.calls += 1
            self.seen.append(self.calls)
            self.last = x * self.calls
            return self.last

    m = K()
    return m, [(t(3),)] * 3, [m]


@cases()
def unused_counter_written():
    class K(Net):
        def forward(self, x):
            self.seen.append(x + 1)
            return x * 2

    m = K()
    return m, [(t(3),)] * 3, [m]


@cases(graphs=2, recompiles=1)
def cached_tensor():
    class K(Net):
        cache = None

        def forward(self, x):
            if self.cache is None:
                self.cache = torch.arange(4.0) * 2
            return x * self.cache

    m = K()
    return m, [(t(3, 4),)] * 3, [m]


@cases(graphs=2, recompiles=1)
def cache_in_a_dict():
    class K(Net):
        def __init__(self):
            super().__init__()
            self.table = {}

        def forward(self, x):
            key = (x.shape[-1], x.dtype)
            if key not in self.table:
                self.table[key] = torch.ones(x.shape[-1]) * 3
            return x * self.table[key]

    m = K()
    return m, [(t(3, 4),)] * 3, [m]


@cases(graphs=2, recompiles=1)
def forward_hooks():
    m = Net()
    log = []

    def before(module, args):
        log.append(("before", type(module).__name__))
        del log[:-4]
        return (args[0] + 1,)

    def after(module, args, out):
        log.append(("after", tuple(out.shape)))
        return out * 3

    def before_kw(module, args, kwargs):
        return args, {"k": 5.0}

    m.fc.register_forward_pre_hook(before)
    m.fc.register_forward_hook(after)
    m.register_forward_pre_hook(before_kw, with_kwargs=True)
    return m, [(t(3, 4),)] * 2, [log]


@cases(graphs=2, recompiles=1)
def hook_added_between_calls():
    m = Net()

    def add():
        m.fc.register_forward_hook(lambda module, args, out: out * 3)

    return m, [(t(3, 4),), add, (t(3, 4),), (t(3, 4),)]


@cases(graphs=0, breaks=1)
def backward_hooks():
    m = nn.Linear(4, 4)
    log = []
    m.register_full_backward_hook(lambda module, gi, go: log.append(len(gi)))
    return m, [(t(3, 4, requires_grad=True),)] * 2, [log]


@cases()
def weight_tying():
    class K(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.out = nn.Linear(4, 5, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, i):
            return self.out(self.embed(i)), self.out.weight is self.embed.weight

    m = K()
    return m, [(torch.tensor([1, 2]),)] * 2, [m]


@cases()
def parametrizations():
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).transpose(-1, -2)

    m = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(m, "weight", Symmetric())
    return m, [(t(3, 4),)] * 2


@cases()
def weight_norm():
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), [(t(3, 4),)] * 2


@cases()
def lazy_module():
    m = nn.LazyLinear(4)
    return m, [(t(3, 4),), (t(3, 4),)], [m]


@cases()
def lazy_modules_in_a_row():
    m = nn.Sequential(nn.LazyConv1d(4, 2), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    return m, [(t(3, 4, 5),), (t(3, 4, 5),)], [m]


@cases(graphs=3, breaks=1, recompiles=1)
def lazy_module_after_random_numbers():
    """What it draws comes after what was drawn before it."""
    m = nn.Sequential(nn.Dropout(0.5), nn.LazyLinear(2))
    return m, [(t(3, 4),), (t(3, 4),)], [m]


@cases(graphs=0, breaks=2)
def lazy_module_of_a_wrong_shape():
    m = nn.LazyConv2d(4, 2)
    return lambda x: m(x), [(t(3),)] * 2


@cases(graphs=1)
def two_instances_of_one_class():
    a, b = Net(), Net()
    return lambda x: a(x) + b(x), [(t(3, 4),)] * 2


@cases()
def instances_passed_in_turn():
    a, b = Net(), Net()
    return lambda m, x: m(x), [(a, t(3, 4)), (b, t(3, 4)), (a, t(3, 4)), (b, t(3, 4))]


@cases()
def parameter_updated_between_calls():
    m = Net()

    def step():
        with torch.no_grad():
            m.fc.weight.add_(1)

    return m, [(t(3, 4),), step, (t(3, 4),)], [m]


@cases(graphs=2, recompiles=1)
def parameter_replaced_between_calls():
    m = Net()

    def change():
        m.fc.weight = nn.Parameter(t(4, 4).double().float(), requires_grad=False)

    return m, [(t(3, 4),), change, (t(3, 4),), (t(3, 4),)], [m]


@cases(graphs=2, recompiles=1)
def submodule_replaced_between_calls():
    m = Net()

    def change():
        m.norm = nn.Identity()

    return m, [(t(3, 4),), change, (t(3, 4),)], [m]


@cases(graphs=2, recompiles=1)
def module_attribute_changed():
    m = Net()

    def change():
        m.scale = 3.0

    return m, [(t(3, 4),), change, (t(3, 4),)], [m]


@cases(graphs=2, recompiles=1)
def dtype_of_a_module_changed():
    m = Net()
    return m, [(t(3, 4),), m.double, (t(3, 4).double(),), (t(3, 4).double(),)], [m]


@cases()
def parameters_walked():
    m = Net()

    def f(x):
        names = [name for name, _ in m.named_parameters()]
        total = sum(p.sum() for p in m.parameters())
        kinds = [type(c).__name__ for c in m.children()]
        return x * total, names, kinds, len(list(m.modules())), [n for n, _ in m.named_buffers()]

    return f, [(t(3),)] * 2


@cases()
def state_dict_read():
    m = Net()
    return lambda x: (x + 1, sorted(m.state_dict())), [(t(3),)] * 2


@cases()
def getattr_by_name():
    m = Net()
    return lambda x: getattr(m, "fc")(x) * getattr(m, "none", 2) + m.get_submodule("fc")(x), [
        (t(3, 4),)
    ] * 2


@cases()
def missing_attribute_of_a_module():
    m = Net()

    def f(x):
        try:
            m.missing
        except AttributeError as error:
            return m(x), str(error), hasattr(m, "fc"), hasattr(m, "nothing")

    return f, [(t(3, 4),)] * 2


@cases()
def super_forward():
    class K(Net):
        def forward(self, x):
            return super().forward(x, k=2.0) + 1

    return K(), [(t(3, 4),)] * 2


@cases()
def module_with_dict_output():
    class Out(collections.OrderedDict):
        def __post(self):
            return 1

        def __getattr__(self, name):
            return self[name]

    class K(Net):
        def forward(self, x):
            out = Out(hidden=self.fc(x))
            out["again"] = out.hidden * 2
            return out

    return K(), [(t(3, 4),)] * 2


@cases()
def recurrent_and_attention():
    lstm = nn.LSTM(4, 5, batch_first=True)
    attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def f(x):
        out, (h, c) = lstm(x)
        a, w = attention(x, x, x)
        return out, h, c, a, w

    return f, [(t(2, 3, 4),)] * 2


@cases()
def convolution_and_batch_norm():
    m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    return m, [(t(2, 1, 8, 8),)] * 2, [m]


@cases(breaks=1, graphs=2)
def break_inside_forward():
    class K(Net):
        def forward(self, x):
            x = self.fc(x)
            print("in forward", self.calls)
            self.last = x
            return self.norm(x)

    m = K()
    return m, [(t(3, 4),)] * 2, [m]


@cases(graphs=2, breaks=1)
def break_inside_a_child():
    class Child(nn.Module):
        def forward(self, x):
            y = x * 2
            print("child")
            return y + 1

    m = nn.Sequential(nn.Linear(4, 4), Child(), nn.Linear(4, 4))
    return m, [(t(3, 4),)] * 2


@cases()
def compiled_child():
    m = Net()
    child = refcompiler.compile(m, backend="eager")
    return lambda x: child(x) + 1, [(t(3, 4),)] * 2


@cases()
def method_of_a_module_compiled():
    m = Net()
    return m.forward, [(t(3, 4),)] * 2


@cases(graphs=2, recompiles=1)
def requires_grad_of_parameters():
    m = Net()

    def freeze():
        m.requires_grad_(False)

    return m, [(t(3, 4),), freeze, (t(3, 4),)], [m]


@cases()
def checkpoint():
    m = Net()

    def f(x):
        return torch.utils.checkpoint.checkpoint(m, x + 1, use_reentrant=False) * 2

    return f, [(t(3, 4, requires_grad=True),)] * 2


@cases()
def functional_call():
    m = nn.Linear(4, 4)

    def f(x, w):
        return torch.func.functional_call(m, {"weight": w, "bias": x[0]}, (x,))

    return f, [(t(3, 4), t(4, 4))] * 2


@cases(graphs=1)
def training_step():
    m = Net()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        return m(x).pow(2).sum()

    def update():
        opt.step()
        opt.zero_grad()

    return step, [(t(3, 4),), update, (t(3, 4),), update, (t(3, 4),)], [m]


@pytest.mark.parametrize("case", cases, ids=str)
def test_modules(case: Case) -> None:
    assert check(case) > 0


def printing(x, *rest, by=2.0, **more):
    for module in BLOCKS:
        x = module(x)
    return BLOCKS[1](x, k=by)


class Speaks(Net):
    def forward(self, *args, **kwargs):
        made = super().forward(*args, **kwargs)
        print(tuple(made.shape), sorted(kwargs))
        return made + self.fc(args[0])


BLOCKS = [Net(), Net(), Speaks(), nn.Sequential(Net(), nn.ReLU(), Net()), Speaks()]


def test_a_call_without_hooks_says_and_does_what_an_interpreted_one_does(monkeypatch, capsys):
    entered = []

    def counting(m, frame, function, args, kwargs):
        entered.append(whole(m, frame, function, args, kwargs))
        return entered[-1]

    def told():
        refcompiler.reset()
        torch.manual_seed(1)
        found = refcompiler.explain(printing)(torch.randn(3, 4), by=3.0)
        assert len(found.break_reasons) == 2
        lines = [line.split(", captured in ")[0] for line in str(found).splitlines()]
        return sorted(lines), capsys.readouterr().out

    whole = modules.enter_module
    monkeypatch.setattr("refcompiler.capture.calls.enter_module", counting)
    at_once = told()
    assert sum(entered) > 10
    monkeypatch.setattr("refcompiler.capture.calls.enter_module", lambda *args: False)
    assert told() == at_once
    assert len(at_once[0]) > 20
