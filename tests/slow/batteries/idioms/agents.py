"""Agents, samplers and searches: actors and critics, trees, rollouts, decoders that look ahead."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise, takewhile
from typing import Any, NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical, Normal

from tests.slow.batteries.idioms.common import Compiled, adapted, descend, idiom, mlp


class Step(NamedTuple):
    state: torch.Tensor
    action: torch.Tensor
    reward: float
    done: bool


class Pole:
    """A pole on a cart, in Python numbers."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.x = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return torch.tensor(self.x)

    def step(self, action: int):
        x, v, angle, spin = self.x
        force = 10.0 if action else -10.0
        push = (force + 0.05 * spin**2 * math.sin(angle)) / 1.1
        turn = (9.8 * math.sin(angle) - math.cos(angle) * push) / 0.7
        self.x = [x + 0.02 * v, v + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * turn]
        self.steps += 1
        done = abs(self.x[2]) > 0.2 or self.steps >= 6
        return torch.tensor(self.x), 1.0, done


@idiom
def rollouts_that_act(compiled: Compiled) -> list[Any]:
    policy, pole = mlp(4, 8, 2, drop=0.0), Pole()
    out: list[Any] = []

    @compiled
    def act(observation):
        with torch.no_grad():
            law = Categorical(logits=policy(observation))
            action = law.sample()
            return action.item(), law.log_prob(action)

    @compiled
    def rollout(limit):
        observation, steps = pole.reset(), []
        while len(steps) < limit:
            action, _ = act(observation)
            after, reward, done = pole.step(action)
            steps.append(Step(observation, torch.tensor(action), reward, done))
            observation = after
            if done:
                break
        return steps

    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    for limit in (3, 8, 3):
        steps = rollout(limit)
        gains = list(accumulate(reversed([s.reward for s in steps]), lambda a, r: r + 0.9 * a))[
            ::-1
        ]
        law = Categorical(logits=policy(torch.stack([s.state for s in steps])))
        chosen = law.log_prob(torch.stack([s.action for s in steps]))
        out.append(descend(optimizer, -(chosen * torch.tensor(gains)).mean()))
        out += [len(steps), steps[-1].done, pole.steps, *gains]
    return out + adapted(policy)


@dataclass
class Node:
    prior: float
    children: dict[int, Node] = field(default_factory=dict)
    visits: int = 0
    total: float = 0.0

    @property
    def value(self) -> float:
        return self.total / self.visits if self.visits else 0.0


@idiom
def tree_search(compiled: Compiled) -> list[Any]:
    torch.manual_seed(3)
    dynamics = nn.Linear(6 + 3, 6)
    heads = nn.ModuleDict({"policy": nn.Linear(6, 3), "value": nn.Linear(6, 1)})

    @compiled
    def expand(hidden, action):
        hidden = torch.tanh(
            dynamics(torch.cat([hidden, F.one_hot(torch.tensor(action), 3).float()]))
        )
        return hidden, heads["policy"](hidden).softmax(-1).tolist(), heads["value"](hidden).item()

    def search(root, start, turns):
        hiddens = {(): start}
        for _ in range(turns):
            node, path = root, []
            while node.children:
                scale = math.sqrt(node.visits + 1)
                action, node = max(
                    node.children.items(),
                    key=lambda kv: kv[1].value + kv[1].prior * scale / (1 + kv[1].visits),
                )
                path.append(action)
            hidden, priors, value = expand(hiddens[tuple(path[:-1])], path[-1] if path else 0)
            hiddens[tuple(path)] = hidden
            node.children = {i: Node(round(p, 3)) for i, p in enumerate(priors)}
            walk = root
            for action in [None, *path]:
                walk = walk if action is None else walk.children[action]
                walk.visits += 1
                walk.total += round(value, 3)
        return root, hiddens

    out: list[Any] = []
    with torch.no_grad():
        for turns in (4, 6):
            root, hiddens = search(Node(1.0), torch.zeros(6), turns)
            out += [root.visits, {a: c.visits for a, c in root.children.items()}, len(hiddens)]
            out += list(hiddens.values())
        whole = compiled(search)
        root, hiddens = whole(Node(1.0), torch.zeros(6), 3)
        out += [root.visits, list(root.children), *hiddens.values()]
    return out


@idiom
def actor_critic_with_returns(compiled: Compiled) -> list[Any]:
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.GRUCell(5, 8)
            self.mean, self.critic = nn.Linear(8, 2), nn.Linear(8, 1)
            self.log_std = nn.Parameter(torch.zeros(2))
            self.register_buffer("count", torch.zeros((), dtype=torch.long))

        def forward(self, x, h=None):
            self.count += 1
            h = self.body(x, h)
            return Normal(self.mean(h), self.log_std.exp()), self.critic(h).squeeze(-1), h

    agent = Agent()
    run = compiled(agent)

    @compiled
    def vtrace(values, rewards, dones, ratios, gamma=0.9):
        clipped = ratios.clamp(max=1.0)
        after = torch.cat([values[1:], values[-1:]])
        deltas = clipped * (rewards + gamma * after * ~dones - values)
        last, found = torch.zeros_like(values[0]), []
        for t in reversed(range(len(values))):
            last = deltas[t] + gamma * clipped[t] * last * ~dones[t]
            found.insert(0, last)
        return torch.stack(found) + values

    optimizer = torch.optim.RMSprop(agent.parameters(), 1e-3)
    out: list[Any] = []
    for length in (3, 4, 3):
        h, laws, values, actions = None, [], [], []
        for _ in range(length):
            law, value, h = run(torch.randn(2, 5), h)
            actions.append(law.rsample())
            laws.append(law.log_prob(actions[-1].detach()).sum(-1))
            values.append(value)
        values, laws = torch.stack(values), torch.stack(laws)
        with torch.no_grad():
            aims = vtrace(
                values,
                torch.rand(length, 2),
                torch.rand(length, 2) < 0.3,
                torch.rand(length, 2) * 2,
            )
        loss = (aims - values).square().mean() - ((aims - values).detach() * laws).mean()
        out += [descend(optimizer, loss - 0.01 * law.entropy().mean()), aims, agent.count.item()]
    return out + adapted(agent)


@idiom
def bandits_and_tables(compiled: Compiled) -> list[Any]:
    table = torch.zeros(5, 3)
    counts: dict[tuple[int, int], int] = {}

    def q_step(s: int, a: int, r: float, after: int, lr: float = 0.5):
        target = r + 0.9 * table[after].max()
        table[s, a] += lr * (target - table[s, a])
        counts[s, a] = counts.get((s, a), 0) + 1
        return table[s].argmax()

    def ucb(means, tries, total):
        return int(torch.argmax(means + (2 * math.log(total) / tries.clamp(min=1)).sqrt()))

    def thompson(wins, losses):
        return torch.distributions.Beta(wins + 1, losses + 1).sample().argmax(-1)

    step, choose, sample = compiled(q_step), compiled(ucb), compiled(thompson)
    out: list[Any] = []
    wins, losses = torch.zeros(4), torch.zeros(4)
    for n in range(4):
        s = random.randrange(5)
        out += [step(s, n % 3, random.random(), (s + 1) % 5), table.clone(), dict(counts)]
        arm = choose(wins / (wins + losses).clamp(min=1), wins + losses, n + 2)
        (wins if n % 2 else losses)[arm] += 1
        out += [arm, wins.clone()]
    out += [sample(wins, losses), sample(wins.double(), losses.double())]
    return out


@idiom
def beams_with_caches(compiled: Compiled) -> list[Any]:
    class Decoder(nn.Module):
        def __init__(self, vocabulary=11, dim=8):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, dim)
            self.q, self.kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
            self.out = nn.Linear(dim, vocabulary, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, tokens, cache: list | None = None):
            x = self.embed(tokens)
            k, v = self.kv(x).chunk(2, -1)
            if cache is not None:
                if cache:
                    k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
                cache[:] = [k, v]
            mixed = F.scaled_dot_product_attention(
                self.q(x)[:, None], k[:, None], v[:, None], is_causal=cache is None
            )
            return self.out(mixed[:, 0])

    model = Decoder()
    run = compiled(model)

    @compiled
    def pick(scores, logits, width, penalty=0.0):
        laws = logits.log_softmax(-1) - penalty
        total = (scores[:, None] + laws).flatten()
        best, index = total.topk(width)
        return best, index // laws.shape[-1], index % laws.shape[-1]

    out: list[Any] = []
    with torch.inference_mode():
        for width, penalty in ((2, 0.0), (3, 0.1)):
            cache: list = []
            logits = run(torch.tensor([[1, 2]]), cache)[:, -1]
            scores, parents, tokens = pick(torch.zeros(1), logits, width, penalty)
            cache[:] = [t[parents] for t in cache]
            lines = [[t] for t in tokens.tolist()]
            for _ in range(3):
                logits = run(tokens[:, None], cache)[:, -1]
                scores, parents, tokens = pick(scores, logits, width, penalty)
                cache[:] = [t.index_select(0, parents) for t in cache]
                lines = [lines[p] + [t] for p, t in zip(parents.tolist(), tokens.tolist())]
            out += [scores.clone(), lines, *(t.clone() for t in cache)]
    out.append(run(torch.tensor([[1, 2, 3]])).detach())
    return out


@idiom
def drafts_accepted_or_not(compiled: Compiled) -> list[Any]:
    torch.manual_seed(1)
    draft, target = nn.Embedding(7, 7), nn.Embedding(7, 7)

    @compiled
    def verify(tokens, p, q, u):
        """How many of the tokens are kept, and the token after them."""
        at = torch.arange(len(tokens))
        keep = u < (p[at, tokens] / q[at, tokens]).clamp(max=1)
        n = int(keep.long().cumprod(0).sum())
        if n == len(tokens):
            return n, p[-1].argmax()
        rest = (p[n] - q[n]).clamp(min=0)
        return n, (rest / rest.sum()).argmax()

    line, out = [0], []
    for turn in range(4):
        tokens, last = [], line[-1]
        for _ in range(2 + turn % 2):
            last = int(draft.weight[last].argmax()) if turn else (last + 1) % 7
            tokens.append(last)
        seen = torch.tensor([line[-1], *tokens])
        p, q = target(seen).softmax(-1), draft(seen).softmax(-1)
        n, token = verify(torch.tensor(tokens), p, q, torch.rand(len(tokens)))
        line += [*tokens[:n], int(token)]
        out += [n, token]
    return [*out, line]


@idiom
def consistency_and_guidance(compiled: Compiled) -> list[Any]:
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2 + 16 + 4, 16), nn.SiLU(), nn.Linear(16, 2))
            self.labels = nn.Embedding(4, 4)
            self.register_buffer("bands", torch.exp(torch.linspace(0, 2, 8)), persistent=False)

        def time(self, sigma):
            angle = sigma.log()[:, None] * self.bands
            return torch.cat([angle.sin(), angle.cos()], -1)

        def forward(self, x, sigma, label=None):
            if label is None:
                label = torch.full((len(x),), 3)
            skip = 0.25 / (sigma**2 + 0.25)
            inner = self.net(torch.cat([x, self.time(sigma), self.labels(label)], -1))
            return skip[:, None] * x + (sigma * 0.5 / (sigma**2 + 0.25).sqrt())[:, None] * inner

    model = Denoiser()
    run = compiled(model)

    def sigmas(n, low=0.02, high=5.0, rho=7):
        steps = torch.linspace(0, 1, n)
        return (high ** (1 / rho) + steps * (low ** (1 / rho) - high ** (1 / rho))) ** rho

    @compiled
    @torch.no_grad()
    def sample(x, label, n, scale=1.0, churn=0.0):
        found = []
        for now, after in pairwise([*sigmas(n).tolist(), 0.0]):
            if churn and now > 0.1:
                grown = now * (1 + churn)
                x = x + torch.randn_like(x) * math.sqrt(grown**2 - now**2)
                now = grown
            level = x.new_full((len(x),), now)
            clean = model(x, level, label)
            if scale != 1.0:
                clean = model(x, level) + scale * (clean - model(x, level))
            x = x + (x - clean) / now * (after - now)
            found.append(x.norm().item())
        return x, found

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    out: list[Any] = []
    for _ in range(2):
        x, sigma = torch.randn(6, 2), torch.rand(6) + 0.1
        noisy = x + sigma[:, None] * torch.randn(6, 2)
        loss = (run(noisy, sigma, torch.randint(0, 3, (6,))) - x).square().mean()
        out.append(descend(optimizer, loss))
    model.eval()
    for n, scale, churn in ((3, 1.0, 0.0), (3, 2.0, 0.0), (4, 1.0, 0.3)):
        x, norms = sample(torch.randn(3, 2) * 5, torch.tensor([0, 1, 2]), n, scale, churn)
        out += [x, torch.tensor(norms)]
    return out


@idiom
def multistep_solver_with_history(compiled: Compiled) -> list[Any]:
    class Solver:
        """Adams-Bashforth, of as high an order as there is history."""

        weights = ((1.0,), (1.5, -0.5), (23 / 12, -16 / 12, 5 / 12))

        def __init__(self, field, order=3):
            self.field, self.past = field, deque(maxlen=order)

        def __len__(self):
            return len(self.past)

        def step(self, x, h):
            self.past.appendleft(self.field(x))
            for w, slope in zip(self.weights[len(self) - 1], self.past, strict=True):
                x = x + h * w * slope
            return x

        def run(self, x, h, until=1.0):
            times = takewhile(lambda t: t < until, (i * h for i in range(100)))
            return [x := self.step(x, h) for _ in times]

    net = mlp(3, 8, 3, drop=0.0)
    out: list[Any] = []
    for order in (1, 3):
        solver = Solver(net, order)
        step = compiled(solver.step)
        x = torch.randn(2, 3, requires_grad=True)
        y = x
        for _ in range(5):
            y = step(y, 0.1)
        out += [y.detach(), *torch.autograd.grad(y.sum(), [x, *net.parameters()]), len(solver)]
        run = compiled(solver.run)
        out += [t.detach() for t in run(torch.ones(1, 3), 0.25)]
        out += [t.detach() for t in islice(run(torch.ones(1, 3), 0.3, until=2), 3)]
    return out


@idiom
def world_in_a_vector(compiled: Compiled) -> list[Any]:
    """Many environments at once; the ones that end start anew."""

    class Worlds:
        def __init__(self, n):
            self.position, self.age = torch.zeros(n, 2), torch.zeros(n, dtype=torch.long)
            self.finished: list[int] = []

        @compiled
        def step(self, move):
            self.position += move.clamp(-1, 1)
            self.age += 1
            out = (self.position.abs().amax(-1) > 1.5) | (self.age >= 3)
            reward = torch.where(out, -1.0, self.position.sum(-1))
            if out.any():
                ended = out.nonzero().squeeze(-1)
                self.finished.extend(ended.tolist())
                self.position[ended] = 0.0
                self.age.masked_fill_(out, 0)
            return self.position.clone(), reward, out

    out: list[Any] = []
    for n in (4, 6):
        worlds = Worlds(n)
        for _ in range(4):
            out += worlds.step(torch.randn(n, 2))
        out += [worlds.finished, worlds.age]
    return out


@idiom
def prioritised_by_a_tree(compiled: Compiled) -> list[Any]:
    size = 8
    tree = torch.zeros(2 * size)

    @compiled
    def update(tree, index, value):
        index = index + size
        tree[index] = value
        while index > 1:
            index = index // 2
            tree[index] = tree[2 * index] + tree[2 * index + 1]
        return tree[1]

    @compiled
    def find(tree, mass):
        index = torch.ones_like(mass, dtype=torch.long)
        for _ in range(size.bit_length() - 1):
            left = tree[2 * index]
            right = mass >= left
            mass = torch.where(right, mass - left, mass)
            index = 2 * index + right
        return index - size

    out: list[Any] = []
    for n in range(5):
        out.append(update(tree, (n * 3) % size, float(n + 1)))
        out.append(find(tree, torch.rand(3 + n % 2) * tree[1]))
    return [*out, tree]
