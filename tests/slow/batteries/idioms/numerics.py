"""Solvers, derivatives of higher order, and arithmetic."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from tests.slow.batteries.idioms.common import (
    Compiled,
    adapted,
    descend,
    fit,
    idiom,
    mlp,
    values_and_gradients,
)


@idiom
def per_sample_gradients(compiled: Compiled) -> list[Any]:
    model = mlp(drop=0.0)
    weights = {k: v.detach() for k, v in model.named_parameters()}

    def loss(p, x, y):
        return F.mse_loss(functional_call(model, p, x[None])[0], y)

    run = compiled(vmap(grad(loss), in_dims=(None, 0, 0)))
    return [
        *run(weights, torch.randn(5, 8), torch.randn(5, 4)).values(),
        *run(weights, torch.randn(7, 8), torch.randn(7, 4)).values(),
    ]


@idiom
def hessian_and_jacobian(compiled: Compiled) -> list[Any]:
    w = torch.randn(3, 3)

    def f(x):
        return (w @ x).tanh().square().sum()

    def g(x):
        return (w @ x).sin()

    x = torch.randn(3)
    return [
        compiled(hessian(f))(x),
        compiled(jacrev(g))(x),
        compiled(jacfwd(g))(x),
        *compiled(lambda x: jvp(g, (x,), (x * 2,)))(x),
        compiled(lambda x: vjp(g, x)[1](x)[0])(x),
    ]


@idiom
def neural_ode(compiled: Compiled) -> list[Any]:
    field = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))

    def rk4(x, h, n):
        for _ in range(n):
            k1 = field(x)
            k2 = field(x + h / 2 * k1)
            k3 = field(x + h / 2 * k2)
            k4 = field(x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x

    run = compiled(rk4)
    optimizer = torch.optim.Adam(field.parameters(), 1e-2)
    out = []
    for h in (0.1, 0.05, 0.2):
        loss = run(torch.randn(3, 4), h, 3).square().mean()
        out.append(descend(optimizer, loss))
    return out + adapted(field)


@idiom
def siren_and_physics(compiled: Compiled) -> list[Any]:
    layers = nn.ModuleList([nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 1)])

    def u(x):
        for layer in layers[:-1]:
            x = torch.sin(3 * layer(x))
        return layers[-1](x)

    def residual(x):
        x = x.requires_grad_()
        y = u(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (gg,) = torch.autograd.grad(g[:, 0].sum(), x, create_graph=True)
        return (g[:, 1] - gg[:, 0]).square().mean()

    run = compiled(residual)
    optimizer = torch.optim.Adam(layers.parameters(), 1e-3)
    out = []
    for _ in range(3):
        loss = run(torch.rand(7, 2))
        out.append(descend(optimizer, loss))
    return out + adapted(layers)


@idiom
def gaussian_process(compiled: Compiled) -> list[Any]:
    class GP(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Parameter(torch.tensor(0.0))
            self.n = nn.Parameter(torch.tensor(-2.0))

        def forward(self, x, y):
            k = torch.exp(-torch.cdist(x, x).pow(2) / self.l.exp()) + self.n.exp() * torch.eye(
                len(x)
            )
            L = torch.linalg.cholesky(k)
            a = torch.cholesky_solve(y[:, None], L)
            return 0.5 * (y @ a[:, 0]) + L.diagonal().log().sum()

    return fit(GP(), lambda: (torch.rand(9, 2) * 3, torch.randn(9)), compiled)


@idiom
def sinkhorn(compiled: Compiled) -> list[Any]:
    def f(c, n):
        u = torch.zeros(c.shape[0])
        v = torch.zeros(c.shape[1])
        for _ in range(n):
            u = -torch.logsumexp(v - c / 0.1, 1) - math.log(c.shape[0])
            v = -torch.logsumexp(u[:, None] - c / 0.1, 0) - math.log(c.shape[1])
        return ((u[:, None] + v - c / 0.1).exp() * c).sum()

    return values_and_gradients(
        compiled, f, lambda: (torch.rand(6, 5), 8), lambda: (torch.rand(7, 5), 8)
    )


@idiom
def n_body(compiled: Compiled) -> list[Any]:
    def f(x, v, m, dt):
        d = x[None] - x[:, None]
        r = (d.square().sum(-1) + 0.01).rsqrt()
        a = (d * (m[None] * r**3)[..., None]).sum(1)
        v = v + a * dt
        return x + v * dt, v

    run = compiled(f)
    x, v, masses = torch.randn(6, 3), torch.zeros(6, 3), torch.rand(6)
    for _ in range(4):
        x, v = run(x, v, masses, 0.01)
    return [x, v]


@idiom
def conjugate_gradient(compiled: Compiled) -> list[Any]:
    def f(A, b):
        x = torch.zeros_like(b)
        r = b - A @ x
        p = r
        rs = r @ r
        n = 0
        while rs.item() > 1e-8 and n < 20:
            Ap = A @ p
            al = rs / (p @ Ap)
            x = x + al * p
            r = r - al * Ap
            new = r @ r
            p = r + new / rs * p
            rs = new
            n += 1
        return x, n

    a = torch.randn(6, 6)
    return list(compiled(f)(a @ a.T + torch.eye(6) * 3, torch.randn(6)))[:1]


@idiom
def power_iteration_inplace(compiled: Compiled) -> list[Any]:
    def f(A, v, n):
        for _ in range(n):
            v.copy_(A @ v)
            v.div_(v.norm())
        return v @ A @ v

    v = torch.randn(5)
    a = torch.randn(5, 5)
    run = compiled(f)
    return [run(a + a.T, v, 3), v, run(a + a.T, v, 3), v]


@idiom
def newton_with_hessian(compiled: Compiled) -> list[Any]:
    def f(x):
        return (x**4).sum() + (x[:-1] * x[1:]).sum() + (x - 1).square().sum()

    def step(x):
        return x - torch.linalg.solve(torch.func.hessian(f)(x), torch.func.grad(f)(x))

    run = compiled(step)
    x = torch.ones(4)
    for _ in range(3):
        x = run(x)
    return [x]


@idiom
def integer_arithmetic(compiled: Compiled) -> list[Any]:
    def f(a, b):
        return (
            a // b,
            a % b,
            torch.bitwise_xor(a, b),
            a << 2,
            a >> 1,
            -a // b,
            torch.div(a, b, rounding_mode="trunc"),
            torch.remainder(-a, b),
            torch.fmod(-a, b),
            a.float() / b,
            torch.gcd(a, b),
            a * 100000 * 100000,
            a.to(torch.int8) * 3,
            (a > b).sum(),
            torch.bincount(a.abs() % 7, minlength=7),
            a.cumsum(0),
            torch.histc(a.float(), 5),
        )

    return values_and_gradients(
        compiled, f, lambda: (torch.randint(-50, 50, (20,)), torch.randint(1, 9, (20,))), grad=False
    )
