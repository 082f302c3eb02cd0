"""Reinforcement learning."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

from tests.slow.batteries.idioms.common import Compiled, adapted, descend, idiom, mlp


@idiom
def policy_gradient(compiled: Compiled) -> list[Any]:
    policy, critic = mlp(8, 16, 3), mlp(8, 16, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], 1e-2)

    def act(s):
        d = Categorical(logits=policy(s))
        a = d.sample()
        return a, d.log_prob(a)

    def ppo(s, a, old, adv, ret):
        d = Categorical(logits=policy(s))
        r = (d.log_prob(a) - old).exp()
        pg = -torch.min(r * adv, r.clamp(0.8, 1.2) * adv).mean()
        return pg + 0.5 * F.smooth_l1_loss(critic(s).squeeze(-1), ret) - 0.01 * d.entropy().mean()

    run_act, run_ppo = compiled(act), compiled(ppo)
    out = []
    for _ in range(3):
        seen = torch.randn(7, 8)
        with torch.no_grad():
            action, old = run_act(seen)
        returned = torch.randn(7)
        advantage = returned - returned.mean()
        loss = run_ppo(seen, action, old, advantage, returned)
        descend(optimizer, loss)
        out += [action, loss.detach()]
    return out + adapted(policy, critic)


@idiom
def dqn(compiled: Compiled) -> list[Any]:
    online = mlp(8, 16, 3, 0.0)
    target = copy.deepcopy(online)
    optimizer = torch.optim.RMSprop(online.parameters(), 1e-2)
    buffer = torch.zeros(16, 8)
    out = []

    def td(s, a, r, n, done):
        with torch.no_grad():
            y = r + 0.9 * target(n).max(1).values * ~done
        return F.huber_loss(online(s).gather(1, a[:, None]).squeeze(1), y)

    run = compiled(td)
    for k in range(3):
        buffer[k * 4 : (k + 1) * 4] = torch.randn(4, 8)
        loss = run(
            buffer[:8],
            torch.randint(0, 3, (8,)),
            torch.randn(8),
            torch.randn(8, 8),
            torch.rand(8) > 0.5,
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 0.1)
        optimizer.step()
        out.append(loss.detach())
        if k == 1:
            target.load_state_dict(online.state_dict())
    return out + adapted(online, target)


@idiom
def replay_ring(compiled: Compiled) -> list[Any]:
    buffer = {"x": torch.zeros(8, 3), "r": torch.zeros(8), "i": 0}

    def push(x, r):
        i = buffer["i"] % 8
        buffer["x"][i] = x
        buffer["r"][i] = r
        buffer["i"] += 1
        return buffer["r"].sum()

    run = compiled(push)
    return [run(torch.randn(3), float(k)) for k in range(10)] + [
        buffer["x"],
        buffer["r"],
        buffer["i"],
    ]
