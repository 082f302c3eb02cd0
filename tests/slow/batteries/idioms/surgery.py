"""Modules that change between calls: hooks, flags, parameters, buffers, containers, copies."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import types
from collections import OrderedDict
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize, prune

from tests.slow.batteries.idioms.common import Compiled, descend, idiom, mlp, state


@idiom
def hooks_come_and_go(compiled: Compiled) -> list[Any]:
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    seen: dict[str, torch.Tensor] = {}
    run = compiled(net)

    def save(name):
        def hook(module, args, output):
            seen[name] = output.detach().clone()

        return hook

    def double(module, args, kwargs):
        return (args[0] * 2,), kwargs

    out: list[Any] = []

    def call():
        y = run(torch.ones(3, 4))
        y.sum().backward()
        out.extend([y.detach(), len(seen), *seen.values()])
        seen.clear()

    call()
    first = net[0].register_forward_hook(save("first"))
    call()
    second = net[2].register_forward_pre_hook(double, with_kwargs=True)
    call()
    outer = net.register_forward_hook(lambda m, a, o: o + 1, prepend=True)
    call()
    first.remove()
    call()
    grads: list[torch.Tensor] = []
    p = net[0].weight.register_hook(lambda g: grads.append(g.clone()) or g * 0.5)
    call()
    second.remove()
    p.remove()
    call()

    def grown(parameter):
        parameter.grad.mul_(2)

    late = net[0].weight.register_post_accumulate_grad_hook(grown)
    call()
    late.remove()
    outer.remove()
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda m, a, o: o * 1.5 if isinstance(m, nn.Tanh) else None
    )
    call()
    handle.remove()
    call()
    return [*out, *grads, *(p.grad for p in net.parameters())]


@idiom
def parameters_and_buffers_replaced(compiled: Compiled) -> list[Any]:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 3))
            self.register_parameter("bias", None)
            self.register_buffer("scale", torch.ones(3), persistent=False)

        def forward(self, x):
            y = x @ self.w * self.scale
            if self.bias is not None:
                y = y + self.bias
            if hasattr(self, "late"):
                y = y + self.late
            for name, b in self.named_buffers():
                if name.startswith("extra"):
                    y = y * b
            return y

    net = Net()
    run = compiled(net)
    x = torch.randn(2, 3)
    out: list[Any] = []

    def call():
        y = run(x)
        net.zero_grad()
        y.sum().backward()
        out.extend([y.detach(), *(p.grad for p in net.parameters())])

    call()
    net.w = nn.Parameter(torch.randn(3, 3))
    call()
    net.bias = nn.Parameter(torch.randn(3))
    call()
    net.scale = torch.full((3,), 2.0)
    call()
    net.register_buffer("late", torch.randn(3))
    call()
    net.register_buffer("extra_1", torch.tensor(3.0))
    call()
    del net.late
    net.scale.mul_(2)
    call()
    net.w.data = torch.randn(3, 5)[:, ::2]
    call()
    net.bias = None
    net.w.requires_grad_(False)
    net.extra_2 = nn.Buffer(torch.randn(3), persistent=False)
    net.w2 = nn.Parameter(torch.zeros(1))
    net.forward = types.MethodType(lambda self, x: Net.forward(self, x) + self.w2, net)
    call()
    del net.forward
    net.w = nn.Parameter(net.w.detach().double())
    x = x.double()
    call()
    return [*out, list(net.state_dict())]


@idiom
def modules_swapped_and_merged(compiled: Compiled) -> list[Any]:
    class Lora(nn.Module):
        def __init__(self, base, r=2):
            super().__init__()
            self.base, self.merged = base, False
            base.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(r, base.in_features) / 4)
            self.b = nn.Parameter(torch.randn(base.out_features, r) / 4)
            self.m = nn.Parameter(base.weight.norm(dim=1, keepdim=True))

        def weight(self):
            w = self.base.weight + self.b @ self.a
            return self.m * w / w.norm(dim=1, keepdim=True)

        def forward(self, x):
            if self.merged:
                return self.base(x)
            return F.linear(x, self.weight(), self.base.bias)

        @torch.no_grad()
        def merge(self):
            self.base.weight.copy_(self.weight())
            self.merged = True

    net = nn.Sequential(
        OrderedDict(q=nn.Linear(4, 4), act=nn.ReLU(), out=nn.Sequential(nn.Linear(4, 2)))
    )
    run = compiled(net)
    x = torch.randn(3, 4)
    out: list[Any] = [run(x).detach()]
    for name, module in list(net.named_modules()):
        if isinstance(module, nn.Linear):
            parent, _, leaf = name.rpartition(".")
            setattr(net.get_submodule(parent), leaf, Lora(module))
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1)
    for _ in range(3):
        out.append(descend(optimizer, run(x).square().mean()))
    out.append(run(x).detach())
    for module in net.modules():
        if isinstance(module, Lora):
            module.merge()
    out.append(run(x))
    net.q = net.q.base
    net.out[0] = net.out[0].base
    out += [run(x), len(trained), sorted(net.state_dict())]
    net.out.append(nn.Tanh())
    net.out.insert(1, nn.LayerNorm(2))
    out.append(run(x).detach())
    del net.out[-1]
    out.append(run(x).detach())
    return out + state(net)


@idiom
def containers_subclassed(compiled: Compiled) -> list[Any]:
    class Residual(nn.Sequential):
        def forward(self, x):
            for module in self:
                x = x + module(x)
            return x

        def __getitem__(self, at):
            return super().__getitem__(at) if isinstance(at, (int, slice)) else getattr(self, at)

    class Heads(nn.ModuleDict):
        def forward(self, x, which=None):
            names = which or self.keys()
            return {k: self[k](x) for k in names if k in self}

        def __missing__(self, key):
            raise KeyError(key)

    class Stages(nn.ModuleList):
        def __init__(self, *args, drop=0):
            super().__init__(*args)
            self.drop = drop

        def __iter__(self):
            yield from list(super().__iter__())[self.drop :]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = Residual(OrderedDict(a=nn.Linear(4, 4), b=nn.Tanh(), c=nn.Linear(4, 4)))
            self.stages = Stages([nn.Linear(4, 4) for _ in range(3)], drop=1)
            self.heads = Heads({"cls": nn.Linear(4, 2), "reg": nn.Linear(4, 1)})
            self.gains = nn.ParameterList([torch.ones(4), torch.full((4,), 2.0)])
            self.table = nn.ParameterDict({"x": torch.ones(1), "y": nn.Parameter(torch.ones(4))})

        def forward(self, x, which=None):
            x = self.body(x) + self.body["a"](x) + self.body[1:](x)
            for stage, gain in zip(self.stages, self.gains):
                x = torch.relu(stage(x)) * gain
            for key, value in self.table.items():
                x = x + value * len(key)
            return self.heads(x, which), len(self.gains), "x" in self.table

    net = Net()
    run = compiled(net)
    out: list[Any] = []
    for which in (None, ["cls"], ["reg", "none"], None):
        found, *rest = run(torch.randn(3, 4), which)
        sum(v.sum() for v in found.values()).backward()
        out += [sorted(found), *(v.detach() for v in found.values()), *rest]
    net.gains.append(torch.zeros(4))
    net.table["zz"] = torch.randn(4)
    net.heads.update({"aux": nn.Linear(4, 3)})
    net.heads.pop("cls")
    net.stages.drop = 0
    net.stages.extend([nn.Identity()])
    found, *rest = run(torch.randn(3, 4))
    sum(v.sum() for v in found.values()).backward()
    out += [sorted(found), *(v.detach() for v in found.values()), *rest]
    return out + [p.grad for p in net.parameters()]


@idiom
def state_dict_hooks_and_extras(compiled: Compiled) -> list[Any]:
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.steps = 0
            self.register_buffer("seen", torch.zeros((), dtype=torch.long))
            self.register_load_state_dict_pre_hook(self.rename)
            self.register_state_dict_post_hook(lambda m, d, p, meta: d.update({p + "tag": 7}))

        @staticmethod
        def rename(module, state_dict, prefix, *args):
            state_dict.pop(prefix + "tag", None)
            if prefix + "old.weight" in state_dict:
                state_dict[prefix + "linear.weight"] = state_dict.pop(prefix + "old.weight")

        def get_extra_state(self):
            return {"steps": self.steps}

        def set_extra_state(self, extra):
            self.steps = extra["steps"]

        def forward(self, x):
            self.steps += 1
            if self.training:
                self.seen += x.shape[0]
            return self.linear(x) / self.steps

    model = nn.Sequential(Counted(), nn.Dropout(0.2), Counted())
    run = compiled(model)
    out: list[Any] = [run(torch.ones(2, 3)).detach() for _ in range(2)]
    buffer = io.BytesIO()
    torch.save(run.state_dict() if hasattr(run, "state_dict") else {}, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=False)
    out += [len(saved), model[0].steps]
    fresh = nn.Sequential(Counted(), nn.Dropout(0.2), Counted())
    plain = model.state_dict()
    plain["0.old.weight"] = plain.pop("0.linear.weight") * 2
    out.append(str(fresh.load_state_dict(plain)))
    again = compiled(fresh)
    out += [again(torch.ones(2, 3)).detach(), fresh[0].steps]
    model.eval()
    out += [run(torch.ones(4, 3)).detach(), again(torch.ones(4, 3)).detach()]
    twin = pickle.loads(pickle.dumps(copy.deepcopy(model.state_dict())))
    out.append(str(model.load_state_dict(twin, assign=True)))
    out.append(run(torch.ones(2, 3)).detach())
    return out + state(model, fresh)


@idiom
def parametrized_and_cached(compiled: Compiled) -> list[Any]:
    class Skew(nn.Module):
        def forward(self, x):
            return x.triu(1) - x.triu(1).mT

        def right_inverse(self, a):
            return a.triu(1)

    class Cayley(nn.Module):
        def forward(self, a):
            i = torch.eye(a.shape[-1])
            return torch.linalg.solve(i + a, i - a)

    class Rnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.inp = nn.Linear(4, 4, bias=False), nn.Linear(2, 4)

        def forward(self, x):
            h = x.new_zeros(x.shape[0], 4)
            for t in range(x.shape[1]):
                h = torch.tanh(self.w(h) + self.inp(x[:, t]))
            return h

    model = Rnn()
    parametrize.register_parametrization(model.w, "weight", Skew())
    parametrize.register_parametrization(model.w, "weight", Cayley())
    nn.utils.parametrizations.weight_norm(model.inp, dim=1)
    run = compiled(model)

    def cached(x):
        with parametrize.cached():
            return model(x) + model(x.flip(1))

    run_cached = compiled(cached)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for n in (3, 3, 2):
        out.append(descend(optimizer, run(torch.randn(n, 3, 2)).square().mean()))
        out.append(descend(optimizer, run_cached(torch.randn(n, 2, 2)).square().mean()))
    with torch.no_grad():
        model.w.parametrizations.weight.original.zero_()
    out.append(run(torch.ones(1, 2, 2)).detach())
    parametrize.remove_parametrizations(model.w, "weight", leave_parametrized=True)
    out.append(run(torch.ones(1, 2, 2)).detach())
    parametrize.remove_parametrizations(model.inp, "weight")
    nn.utils.parametrizations.orthogonal(model.w, orthogonal_map="householder")
    out.append(run(torch.ones(1, 2, 2)).detach())
    return out + state(model)


@idiom
def utilities_of_nn(compiled: Compiled) -> list[Any]:
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    head = nn.Linear(16, 3)

    def flat(v):
        nn.utils.vector_to_parameters(v, head.parameters())
        return nn.utils.parameters_to_vector(head.parameters()).norm()

    def step(x):
        loss = F.cross_entropy(head(net(x)), torch.arange(x.shape[0]) % 3)
        grads = torch.autograd.grad(loss, list(head.parameters()))
        norm = nn.utils.get_total_norm(grads)
        return loss.detach(), norm, [g * (0.1 / (norm + 1e-6)).clamp(max=1.0) for g in grads]

    run, run_flat = compiled(step), compiled(flat)
    out: list[Any] = []
    for n in (2, 3, 2):
        loss, norm, grads = run(torch.randn(n, 2, 4, 4))
        out += [loss, norm, *grads]
    with torch.no_grad():
        out.append(run_flat(torch.arange(51.0)))
        out.append(run_flat(torch.arange(51.0) * 2))
    net.eval()
    fused = nn.Sequential(nn.utils.fuse_conv_bn_eval(net[0], net[1]), *net[2:])
    x = torch.randn(2, 2, 4, 4)
    out += [compiled(fused)(x).detach(), compiled(net)(x).detach()]
    prune.l1_unstructured(head, "weight", 0.3)
    prune.ln_structured(head, "weight", 0.25, n=2, dim=1)
    y = compiled(head)(torch.ones(2, 16))
    y.sum().backward()
    out += [y.detach(), head.weight_orig.grad, prune.is_pruned(head)]
    prune.remove(head, "weight")
    out.append(compiled(head)(torch.ones(2, 16)).detach())

    def clipped(x):
        y = head(x).square().sum()
        y.backward()
        norm = nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        nn.utils.clip_grad_value_(head.parameters(), 0.1)
        return norm

    run_clipped = compiled(clipped)
    for _ in range(2):
        head.zero_grad()
        out += [run_clipped(torch.randn(2, 16)), head.bias.grad]
    return out + state(net, head)


@idiom
def built_on_meta(compiled: Compiled) -> list[Any]:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    sizes = [tuple(p.shape) for p in model.parameters()]
    run = compiled(model)
    shape = tuple(run(torch.empty(3, 4, device="meta")).shape)
    model.to_empty(device="cpu")
    for m in model:
        if hasattr(m, "reset_parameters"):
            m.reset_parameters()
    out: list[Any] = [sizes, shape, run(torch.randn(3, 4)).detach()]
    linear = nn.utils.skip_init(nn.Linear, 4, 2)
    nn.init.trunc_normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    model[0], model[1], model[3] = linear, nn.Identity(), nn.Linear(2, 2)
    out.append(run(torch.randn(3, 4)).detach())

    def initialised(module):
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, 0.5)

    model.apply(initialised)
    out.append(run(torch.randn(3, 4)).detach())
    functional = compiled(lambda p, x: torch.func.functional_call(model, p, (x,)))
    params = {k: v.detach() * 2 for k, v in model.named_parameters()}
    out.append(functional(params, torch.ones(1, 4)).detach())
    return out + state(model)


@idiom
def calls_wrapped_and_forwards_replaced(compiled: Compiled) -> list[Any]:
    class Timed(nn.Linear):
        log: list[str] = []

        def __call__(self, x, *args):
            self.log.append(f"call {x.shape[0]}")
            return super().__call__(x, *args) + 1

    class Frozen(nn.Module):
        def __init__(self, inner):
            super().__init__()
            object.__setattr__(self, "hidden", inner)

        def train(self, mode=True):
            return super().train(False)

        def forward(self, x):
            with torch.no_grad():
                return self.hidden(x)

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.hidden, name)

    inner = Timed(3, 3)
    net = nn.Sequential(inner, Frozen(nn.Linear(3, 3)), nn.Dropout(0.5))
    run = compiled(net)
    out: list[Any] = []

    def call():
        y = run(torch.ones(2, 3))
        out.extend([y.detach(), y.requires_grad, net[1].weight.shape[0], len(Timed.log)])

    call()
    original = inner.forward
    inner.forward = lambda x: original(x) * 2
    call()
    inner.forward = functools.partial(F.linear, weight=inner.weight.detach() * 0 + 1)
    call()
    del inner.forward
    call()
    net.eval()
    call()
    net.train()
    out.append([m.training for m in net])
    call()
    Timed.forward = lambda self, x: nn.Linear.forward(self, x) - 1
    call()
    net[1].hidden = nn.Tanh()
    net[1].__dict__["hidden"] = nn.Linear(3, 3, bias=False)
    call()
    nn.Module.to(net, torch.double)
    y = compiled(inner)(torch.ones(2, 3, dtype=torch.double))
    return [*out, y.detach(), Timed.log]


@idiom
def norms_that_switch(compiled: Compiled) -> list[Any]:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None), nn.ReLU())
    bn = net[1]
    run = compiled(net)
    out: list[Any] = []

    def call(n=4):
        y = run(torch.randn(n, 3))
        y.sum().backward()
        out.extend([y.detach(), *(b.clone() for b in net.buffers())])

    call()
    call()
    bn.momentum = 0.3
    call(5)
    bn.eval()
    call()
    bn.track_running_stats = False
    bn.train()
    call()
    bn.track_running_stats = True
    bn.eps = 1.0
    call()
    bn.reset_running_stats()
    call()
    bn.weight.requires_grad_(False)
    bn.register_parameter("bias", None)
    call()
    bn.running_mean = bn.running_var = None
    bn.eval()
    call()
    net[1] = nn.InstanceNorm1d(4, affine=True, track_running_stats=True)
    y = run(torch.randn(4, 3))
    return [*out, y.detach(), *(p.grad for p in net.parameters())]


@idiom
def copies_of_compiled_modules(compiled: Compiled) -> list[Any]:
    model = mlp(3, 4, 2, drop=0.0)
    run = compiled(model)
    out: list[Any] = [run(torch.ones(2, 3)).detach()]
    twin = copy.deepcopy(run)
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(0.5)
    out += [twin(torch.ones(2, 3)).detach(), run(torch.ones(2, 3)).detach()]
    ema = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    averaged = compiled(ema)
    for _ in range(3):
        out.append(descend(optimizer, run(torch.randn(4, 3)).square().mean()))
        ema.update_parameters(model)
        out.append(averaged(torch.ones(2, 3)).detach())
    wrapped = nn.Sequential(run, nn.Tanh())
    again = compiled(wrapped)
    out.append(again(torch.ones(2, 3)).detach())
    out.append(sum(p.numel() for p in wrapped.parameters()))
    bound = compiled(model.forward)
    out.append(bound(torch.ones(2, 3)).detach())
    twice = compiled(compiled(model))
    out.append(twice(torch.ones(2, 3)).detach())
    return out + state(ema)
