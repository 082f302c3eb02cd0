"""Functions of functions, hooks, parametrisations and classes of tensors, composed as people do."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import weakref
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import (
    functional_call,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.slow.batteries.idioms.common import Compiled, adapted, descend, idiom, mlp, state


@idiom
def laplacians_and_divergences(compiled: Compiled) -> list[Any]:
    net = mlp(3, 8, 1, drop=0.0)

    def u(x):
        return net(x).squeeze(-1)

    def laplacian(x):
        return vmap(lambda p: hessian(u)(p).diagonal().sum())(x)

    def by_forward(x):
        def along(p, v):
            return jvp(lambda q: jvp(u, (q,), (v,))[1], (p,), (v,))[1]

        return vmap(lambda p: vmap(along, (None, 0))(p, torch.eye(3)).sum())(x)

    def residual(x):
        x = x.requires_grad_()
        first = torch.autograd.grad(u(x).sum(), x, create_graph=True)[0]
        return sum(
            torch.autograd.grad(first[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(3)
        )

    out: list[Any] = []
    for function in (laplacian, by_forward, residual):
        run = compiled(function)
        for n in (2, 3):
            out.append(run(torch.randn(n, 3)).detach())
    return out


@idiom
def ensembles_that_train(compiled: Compiled) -> list[Any]:
    models = [mlp(4, 6, 2, drop=0.0) for _ in range(3)]
    params, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def one(params, buffers, x, y):
        return F.cross_entropy(functional_call(base, (params, buffers), (x,)), y)

    @compiled
    def step(params, buffers, x, y, lr=0.1):
        grads, losses = vmap(torch.func.grad_and_value(one), (0, 0, None, 0))(params, buffers, x, y)
        return {k: p - lr * grads[k] for k, p in params.items()}, losses

    params = {k: p.detach() for k, p in params.items()}
    out: list[Any] = []
    for n in (5, 5, 7):
        params, losses = step(params, buffers, torch.randn(n, 4), torch.randint(2, (3, n)))
        out.append(losses)
    return [*out, *params.values(), list(params)]


@idiom
def gauss_newton_and_kfac(compiled: Compiled) -> list[Any]:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    params = dict(net.named_parameters())

    @compiled
    def ggn_product(params, x, v):
        def f(p):
            return functional_call(net, p, (x,))

        out, tangent = jvp(f, (params,), (v,))
        law = out.softmax(-1)
        bent = law * tangent - law * (law * tangent).sum(-1, keepdim=True)
        return vjp(f, params)[1](bent)[0]

    factors: dict[str, list[torch.Tensor]] = {}

    def keep(name, module, args, output):
        factors[name] = [args[0].detach().T @ args[0].detach() / len(args[0])]
        output.register_hook(lambda g: factors[name].append(g.T @ g))

    out: list[Any] = []
    for n in (4, 6):
        v = {k: torch.randn_like(p) for k, p in params.items()}
        found = ggn_product({k: p.detach() for k, p in params.items()}, torch.randn(n, 3), v)
        out += list(found.values())
    handles = [
        m.register_forward_hook(functools.partial(keep, n))
        for n, m in net.named_modules()
        if isinstance(m, nn.Linear)
    ]
    run = compiled(net)
    for n in (4, 6):
        run(torch.randn(n, 3)).square().sum().backward()
        out += [t for name in sorted(factors) for t in factors[name]]
    for handle in handles:
        handle.remove()
    factors.clear()
    run(torch.randn(2, 3)).sum().backward()
    return [*out, len(factors), *(p.grad for p in net.parameters())]


@idiom
def jacobians_in_all_modes(compiled: Compiled) -> list[Any]:
    def f(x, y):
        return {"a": (x @ y).sin(), "b": (x.sum() * y).cumsum(0)}

    out: list[Any] = []
    for make in (jacrev, jacfwd):
        for arguments in (0, (0, 1)):
            run = compiled(make(f, argnums=arguments))
            for n in (2, 3):
                found = run(torch.randn(n, n), torch.randn(n))
                out += torch.utils._pytree.tree_leaves(found)

    def with_extra(x):
        def inner(x):
            y = x.exp()
            return y.sum(), (y, {"n": x.cos()})

        g, (value, (y, extra)) = torch.func.grad_and_value(inner, has_aux=True)(x)
        return g, value, y, extra["n"]

    run = compiled(with_extra)
    out += [*run(torch.randn(3)), *run(torch.randn(4))]
    nested = compiled(lambda x: vmap(jacrev(jacfwd(lambda v: (v**3).prod())))(x))
    out += [nested(torch.randn(2, 3)), nested(torch.randn(4, 3))]
    chunked = compiled(lambda x: vmap(lambda v: v.sin() @ v, chunk_size=2)(x))
    out += [chunked(torch.randn(5, 2)), chunked(torch.randn(3, 2))]
    mixed = compiled(lambda x, y: vmap(vmap(torch.dot, (None, 0)), (0, None), out_dims=1)(x, y))
    return [
        *out,
        mixed(torch.randn(2, 3), torch.randn(4, 3)),
        mixed(torch.ones(1, 3), torch.ones(2, 3)),
    ]


@idiom
def spectral_and_orthogonal(compiled: Compiled) -> list[Any]:
    critic = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(4, 8)),
        nn.LeakyReLU(0.2),
        parametrizations.weight_norm(nn.Linear(8, 8)),
        nn.ReLU(),
        parametrizations.orthogonal(nn.Linear(8, 8, bias=False)),
        nn.Linear(8, 1),
    )
    run = compiled(critic)
    optimizer = torch.optim.SGD(critic.parameters(), 0.05)
    out: list[Any] = []

    @compiled
    def penalty(real, fake):
        mix = torch.rand(len(real), 1)
        x = (mix * real + (1 - mix) * fake).requires_grad_()
        (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        return (g.norm(dim=1) - 1).square().mean()

    for n in (3, 3, 5):
        real, fake = torch.randn(n, 4), torch.randn(n, 4) + 1
        loss = run(fake).mean() - run(real).mean() + 10 * penalty(real, fake)
        out.append(descend(optimizer, loss))
    critic.eval()
    out.append(run(torch.ones(2, 4)).detach())
    with parametrize.cached():
        out.append(run(torch.ones(2, 4)).detach())
    parametrize.remove_parametrizations(critic[0], "weight")
    parametrize.remove_parametrizations(critic[4], "weight", leave_parametrized=True)
    out.append(run(torch.ones(2, 4)).detach())
    return out + state(critic)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, x):
        return x.triu()


class LowRank(nn.Module):
    def __init__(self, shape, rank, alpha):
        super().__init__()
        self.a = nn.Parameter(torch.randn(rank, shape[1]) / 10)
        self.b = nn.Parameter(torch.zeros(shape[0], rank))
        self.scale, self.enabled = alpha / rank, True

    def forward(self, w):
        return w + self.scale * self.b @ self.a if self.enabled else w


@idiom
def adapters_put_on_and_merged(compiled: Compiled) -> list[Any]:
    base = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 6), nn.Linear(6, 2))
    base.requires_grad_(False)
    run = compiled(base)
    out: list[Any] = [run(torch.ones(1, 4))]
    for layer in (base[0], base[2]):
        parametrize.register_parametrization(layer, "weight", LowRank(layer.weight.shape, 2, 4))
    parametrize.register_parametrization(base[3], "bias", nn.Softplus(), unsafe=True)
    wanted = [p for p in base.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(wanted, 0.1)
    for n in (2, 3):
        out.append(descend(optimizer, run(torch.randn(n, 4)).square().mean()))
    base[0].parametrizations.weight[0].enabled = False
    out.append(run(torch.ones(1, 4)).detach())
    base[0].parametrizations.weight[0].enabled = True
    out.append(run(torch.ones(1, 4)).detach())
    for layer in (base[0], base[2]):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    out.append(run(torch.ones(1, 4)).detach())
    square = nn.Linear(3, 3)
    parametrize.register_parametrization(square, "weight", Symmetric())
    run = compiled(square)
    out.append(run(torch.ones(1, 3)).detach())
    square.weight = torch.arange(9.0).view(3, 3)
    out += [run(torch.ones(1, 3)).detach(), square.weight.detach()]
    return out + state(base, square)


@idiom
def hooks_of_every_kind(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    log: list[Any] = []
    run = compiled(model)
    x = torch.randn(2, 3, requires_grad=True)

    def call():
        y = run(x)
        y.sum().backward()
        log.append((y.detach(), x.grad))
        x.grad = None
        model.zero_grad()

    call()
    handles = [
        model.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        model[0].register_forward_pre_hook(lambda m, a, k: (a, k), with_kwargs=True),
        model[0].register_forward_hook(lambda m, a, y: y + 1),
        model[2].register_forward_hook(lambda m, a, k, y: y * 2, with_kwargs=True, prepend=True),
        model[2].register_forward_hook(lambda m, a, y: log.append(tuple(y.shape))),
        model[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,)),
        model[0].register_full_backward_pre_hook(lambda m, go: (go[0] + 1,)),
        model[0].weight.register_hook(lambda g: g.clamp(-1, 1)),
        model[2].bias.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone())),
        x.register_hook(lambda g: log.append(g.sum())),
    ]
    call()
    call()
    while handles:
        handles.pop(len(handles) // 2).remove()
        call()
    every = nn.modules.module.register_module_forward_hook(
        lambda m, a, y: log.append(type(m).__name__)
    )
    try:
        call()
    finally:
        every.remove()
    call()
    flat = torch.utils._pytree.tree_leaves(log)
    return [*flat, len(log)]


@idiom
def checkpoints_in_variants(compiled: Compiled) -> list[Any]:
    blocks = nn.ModuleList(mlp(4, 6, 4, drop=0.3) for _ in range(3))

    def forward(x, mode, skip=None):
        for i, block in enumerate(blocks):
            if i == skip:
                continue
            if mode == "plain":
                x = x + block(x)
            elif mode == "each":
                x = x + checkpoint(block, x, use_reentrant=False)
            elif mode == "keywords":
                x = checkpoint(
                    lambda a, *, scale, block=block: a + scale * block(a),
                    x,
                    scale=0.5,
                    use_reentrant=False,
                )
            elif mode == "nested":
                inner = functools.partial(checkpoint, block, use_reentrant=False)
                x = x + checkpoint(lambda a, inner=inner: inner(a).sin(), x, use_reentrant=False)
            elif mode == "unseeded":
                x = x + checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        if mode == "sequential":
            x = checkpoint_sequential(list(blocks), 2, x, use_reentrant=False)
        return x

    run = compiled(forward)
    out: list[Any] = []
    for mode, skip in (
        ("plain", None),
        ("each", None),
        ("each", 1),
        ("keywords", None),
        ("nested", 0),
        ("sequential", None),
    ):
        x = torch.randn(3, 4, requires_grad=True)
        y = run(x, mode, skip)
        y.square().sum().backward()
        out += [y.detach(), x.grad, *(p.grad.clone() for p in blocks[2].parameters())]
        blocks.zero_grad()
    with torch.no_grad():
        out.append(run(torch.ones(2, 4), "each"))
    return out


@idiom
def subclasses_with_functions(compiled: Compiled) -> list[Any]:
    class Named(torch.Tensor):
        """Remembers names of dimensions."""

        @staticmethod
        def of(t, *names):
            made = t.as_subclass(Named)
            made.names_ = names
            return made

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            found = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(found, Named) and not hasattr(found, "names_"):
                source = next((a for a in args if isinstance(a, Named)), None)
                found.names_ = getattr(source, "names_", ())
            return found

        def along(self, name):
            return self.sum(self.names_.index(name))

    class Quantity:
        def __init__(self, value, unit):
            self.value, self.unit = value, unit

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            units = [a.unit for a in args if isinstance(a, cls)]
            plain = [a.value if isinstance(a, cls) else a for a in args]
            if func in (torch.add, torch.sub) and len(set(units)) > 1:
                return NotImplemented
            return cls(func(*plain, **(kwargs or {})), "*".join(units))

    @compiled
    def f(t, name):
        return (t * 2 + 1).along(name), t.names_

    @compiled
    def g(a, b):
        found = torch.mul(a, b)
        return found.value, found.unit

    @compiled
    def wrong(a, b):
        try:
            return torch.add(a, b).value
        except TypeError as error:
            return "no implementation" in str(error)

    out: list[Any] = []
    for names in (("x", "y"), ("y", "x")):
        t = Named.of(torch.randn(2, 3), *names)
        found, kept = f(t, "x")
        out += [found.as_subclass(torch.Tensor), type(found).__name__, kept]
    for unit in ("m", "s"):
        a, b = Quantity(torch.ones(2), unit), Quantity(torch.full((2,), 3.0), "m")
        out += [*g(a, b), wrong(a, b)]
    return out


@idiom
def copies_and_pickles(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    run = compiled(model)
    out: list[Any] = [run(torch.randn(3, 3)).detach()]
    twin = copy.deepcopy(model)
    with torch.no_grad():
        model[0].weight.mul_(0.5)
    x = torch.randn(3, 3)
    out += [run(x).detach(), compiled(twin)(x).detach(), copy.deepcopy(twin)(x).detach()]
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    twin.load_state_dict(torch.load(buffer, weights_only=True))
    out.append(compiled(twin)(x).detach())
    again = pickle.loads(pickle.dumps(model))
    out += [compiled(again)(x).detach(), list(again.state_dict())]
    swap = {k: v + 1 for k, v in model.state_dict().items()}
    model.load_state_dict(swap, assign=True)
    out.append(run(x).detach())
    seen = weakref.ref(again)
    del again
    return [*out, seen() is None or True, *adapted(twin)]


@idiom
def optimizers_with_closures(compiled: Compiled) -> list[Any]:
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, params, lr=0.1, every=2, alpha=0.5):
            super().__init__(params, {"lr": lr, "every": every, "alpha": alpha})

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    known = self.state[p]
                    if not known:
                        known["step"], known["slow"] = 0, p.clone()
                    known["step"] += 1
                    p.add_(p.grad, alpha=-group["lr"])
                    if known["step"] % group["every"] == 0:
                        known["slow"].lerp_(p, group["alpha"])
                        p.copy_(known["slow"])
            return loss

    out: list[Any] = []
    for make in (
        lambda ps: torch.optim.LBFGS(ps, lr=0.5, max_iter=3, line_search_fn="strong_wolfe"),
        lambda ps: Lookahead(ps),
        lambda ps: torch.optim.Rprop(ps, 0.01),
    ):
        torch.manual_seed(2)
        model = mlp(3, 4, 1, drop=0.0)
        optimizer = make(list(model.parameters()))
        run = compiled(model)
        x, y = torch.randn(8, 3), torch.randn(8, 1)

        def closure(run=run, optimizer=optimizer, x=x, y=y):
            optimizer.zero_grad()
            loss = F.mse_loss(run(x), y)
            loss.backward()
            return loss

        for _ in range(3):
            out.append(optimizer.step(closure).detach())
        out += adapted(model)
    model = mlp(3, 4, 1, drop=0.0)
    optimizer = Lookahead(model.parameters())

    @compiled
    def whole(x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure)

    for n in (4, 4, 2):
        out.append(whole(torch.randn(n, 3)).detach())
    return out + state(model) + [s["step"] for s in optimizer.state.values()]
