"""Detection, matching, graphs, points, transducers."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import (
    Compiled,
    descend,
    idiom,
    mlp,
    state,
    values_and_gradients,
)


@idiom
def yolo_decode_and_nms_by_class(compiled: Compiled) -> list[Any]:
    anchors = torch.tensor([[1.0, 1.5], [2.0, 1.0]])

    def decode(raw, stride):
        b, _, h, w = raw.shape
        p = raw.view(b, 2, -1, h, w).permute(0, 1, 3, 4, 2).contiguous()
        yv, xv = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((xv, yv), 2).view(1, 1, h, w, 2).float()
        y = p.sigmoid()
        xy = (y[..., :2] * 2 - 0.5 + grid) * stride
        wh = (y[..., 2:4] * 2) ** 2 * anchors.view(1, 2, 1, 1, 2) * stride
        return torch.cat((xy, wh, y[..., 4:]), -1).flatten(1, 3)

    def iou(a, b):
        top = torch.maximum(a[:, None, :2], b[None, :, :2])
        low = torch.minimum(a[:, None, 2:], b[None, :, 2:])
        inter = (low - top).clamp(min=0).prod(-1)
        area = lambda t: (t[:, 2:] - t[:, :2]).prod(-1)  # noqa: E731
        return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-9)

    def nms(boxes, scores, threshold):
        order, keep = scores.argsort(descending=True, stable=True), []
        while order.numel() > 0:
            i, order = order[0], order[1:]
            keep.append(i)
            order = order[iou(boxes[i][None], boxes[order])[0] <= threshold]
        return torch.stack(keep) if keep else order

    def detect(raw, conf=0.3, threshold=0.4, most=5):
        found = []
        for x in decode(raw, 4):
            x = x[x[:, 4] > conf]
            score, label = (x[:, 5:] * x[:, 4:5]).max(1)
            box = torch.cat([x[:, :2] - x[:, 2:4] / 2, x[:, :2] + x[:, 2:4] / 2], 1)
            if not x.shape[0]:
                found.append(torch.zeros(0, 6))
                continue
            keep = nms(box + label[:, None] * 100.0, score, threshold)[:most]
            found.append(torch.cat([box, score[:, None], label[:, None].float()], 1)[keep])
        return found

    run, run_decode = compiled(detect), compiled(decode)
    out: list[Any] = []
    for n, size in ((1, 3), (2, 2), (1, 3)):
        raw = torch.randn(n, 16, size, size)
        out += [run_decode(raw, 4), *run(raw)]
    return out + run(torch.full((1, 16, 2, 2), -9.0))


@idiom
def detr_matching_and_losses(compiled: Compiled) -> list[Any]:
    def hungarian(cost):
        n, m = cost.shape
        best, chosen = math.inf, None

        def search(j, used, total, picks):
            nonlocal best, chosen
            if total >= best:
                return
            if j == m:
                best, chosen = total, picks
                return
            for i in range(n):
                if i not in used:
                    search(j + 1, used | {i}, total + float(cost[i, j]), [*picks, i])

        search(0, frozenset(), 0.0, [])
        return torch.tensor(chosen), torch.arange(m)

    class Matcher(nn.Module):
        @torch.no_grad()
        def forward(self, logits, boxes, targets):
            b, q = logits.shape[:2]
            prob = logits.flatten(0, 1).softmax(-1)
            ids = torch.cat([t["labels"] for t in targets])
            cost = torch.cdist(boxes.flatten(0, 1), torch.cat([t["boxes"] for t in targets]), p=1)
            cost = (5 * cost - prob[:, ids]).view(b, q, -1).cpu()
            sizes = [len(t["boxes"]) for t in targets]
            return [hungarian(c[i]) for i, c in enumerate(cost.split(sizes, -1))]

    matcher = Matcher()
    weight = torch.tensor([1.0, 1.0, 1.0, 0.1])
    net = nn.Linear(6, 4 + 4)

    def losses(x, targets):
        out = net(x)
        logits, boxes = out[..., :4], out[..., 4:].sigmoid()
        indices = matcher(logits, boxes, targets)
        batch = torch.cat([torch.full_like(src, i) for i, (src, _) in enumerate(indices)])
        src = torch.cat([s for s, _ in indices])
        wanted = torch.cat([t["labels"][j] for t, (_, j) in zip(targets, indices)])
        classes = torch.full(logits.shape[:2], 3, dtype=torch.int64)
        classes[batch, src] = wanted
        ce = F.cross_entropy(logits.transpose(1, 2), classes, weight)
        goal = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, indices)], 0)
        l1 = F.l1_loss(boxes[batch, src], goal, reduction="none").sum() / max(len(goal), 1)
        with torch.no_grad():
            wrong = (logits.argmax(-1) != 3).sum(1).float() - goal.new_tensor(
                [len(t["boxes"]) for t in targets]
            )
        return {"ce": ce, "l1": l1, "cardinality": wrong.abs().mean()}

    run = compiled(losses)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    out: list[Any] = []
    for counts in ((2, 1), (1, 3), (2, 1)):
        targets = [{"labels": torch.randint(0, 3, (n,)), "boxes": torch.rand(n, 4)} for n in counts]
        found = run(torch.randn(2, 4, 6), targets)
        out.append(found["cardinality"])
        out.append(descend(optimizer, found["ce"] + 5 * found["l1"]))
    return out + state(net)


@idiom
def average_precision(compiled: Compiled) -> list[Any]:
    def ap(scores, hits, total):
        order = torch.argsort(scores, descending=True, stable=True)
        tp = torch.cumsum(hits[order].float(), 0)
        fp = torch.cumsum(1 - hits[order].float(), 0)
        recall, precision = tp / max(total, 1), tp / (tp + fp)
        envelope = precision.flip(0).cummax(0).values.flip(0)
        recall = F.pad(recall, (1, 0))
        steps = [
            envelope[recall[1:] >= t].max()
            if bool((recall[1:] >= t).any())
            else recall.new_zeros(())
            for t in torch.linspace(0, 1, 5).tolist()
        ]
        return ((recall[1:] - recall[:-1]) * envelope).sum(), torch.stack(steps).mean()

    def confusion(pred, target, k):
        m = torch.bincount(target * k + pred, minlength=k * k).view(k, k)
        iou = m.diag() / (m.sum(0) + m.sum(1) - m.diag()).clamp(min=1)
        return m, iou, iou[m.sum(1) > 0].mean(), m.diag().sum() / m.sum()

    def auc(scores, y):
        order = scores.argsort(stable=True)
        ranks = torch.empty_like(scores).scatter_(0, order, torch.arange(1.0, len(scores) + 1))
        pos = y.sum()
        return (ranks[y].sum() - pos * (pos + 1) / 2) / (pos * (~y).sum())

    def calibration(p, y, bins=4):
        at = torch.bucketize(p, torch.linspace(0, 1, bins + 1)[1:-1])
        count = torch.zeros(bins).index_add_(0, at, torch.ones_like(p))
        gap = torch.zeros(bins).index_add_(0, at, p - y.float())
        return (gap.abs() / len(p)).sum(), count, torch.histc(p, bins, 0, 1)

    runs = [compiled(f) for f in (ap, confusion, auc, calibration)]
    out: list[Any] = []
    for n in (8, 12, 8):
        scores, hits = torch.rand(n), torch.rand(n) > 0.4
        hits[0], hits[1] = True, False
        out += runs[0](scores, hits, int(hits.sum()))
        out += runs[1](torch.randint(0, 3, (n,)), torch.randint(0, 3, (n,)), 3)
        out += [runs[2](scores, hits), *runs[3](scores, hits)]
    return out


@idiom
def relational_and_pooled_graphs(compiled: Compiled) -> list[Any]:
    class Rgcn(nn.Module):
        def __init__(self, i, o, relations=3, bases=2):
            super().__init__()
            self.bases = nn.Parameter(torch.randn(bases, i, o) / 3)
            self.coef = nn.Parameter(torch.randn(relations, bases))
            self.root = nn.Linear(i, o)

        def forward(self, x, edges, kinds):
            w = torch.einsum("rb,bio->rio", self.coef, self.bases)
            out = self.root(x)
            for r in range(len(w)):
                src, dst = edges[:, kinds == r]
                h = torch.zeros_like(out).index_add(0, dst, x[src] @ w[r])
                count = torch.zeros(len(x)).scatter_add(0, dst, torch.ones(len(dst)))
                out = out + h / count.clamp(min=1)[:, None]
            return out

    class Gin(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.eps, self.net = nn.Parameter(torch.zeros(1)), mlp(d, 8, d, drop=0.0)

        def forward(self, x, edges):
            src, dst = edges
            index = dst[:, None].expand(-1, x.shape[1])
            best = torch.zeros_like(x).scatter_reduce(0, index, x[src], "amax", include_self=False)
            return self.net((1 + self.eps) * x + best)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.score = Rgcn(4, 4), Gin(4), nn.Linear(4, 1)

        def top(self, x, edges, batch, ratio=0.5):
            score = torch.tanh(self.score(x)).squeeze(-1)
            keep = []
            for g in range(int(batch.max()) + 1):
                at = (batch == g).nonzero().squeeze(1)
                k = math.ceil(ratio * len(at))
                keep.append(at[score[at].topk(k).indices])
            perm = torch.cat(keep)
            place = torch.full((len(x),), -1).scatter(0, perm, torch.arange(len(perm)))
            edges = place[edges]
            return x[perm] * score[perm, None], edges[:, (edges >= 0).all(0)], batch[perm]

        def forward(self, x, edges, kinds, batch):
            x = self.b(torch.relu(self.a(x, edges, kinds)), edges)
            x, edges, batch = self.top(x, edges, batch)
            n = int(batch.max()) + 1
            mean = torch.zeros(n, 4).index_reduce(0, batch, x, "mean", include_self=False)
            return torch.cat([mean, torch.segment_reduce(x, "sum", lengths=batch.bincount())], 1)

    model = Net()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    out: list[Any] = []
    for sizes in ((4, 3), (5, 2, 3), (4, 3)):
        n = sum(sizes)
        batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        edges = torch.randint(0, n, (2, 14))
        y = run(torch.randn(n, 4), edges, torch.randint(0, 3, (14,)), batch)
        out += [y.detach(), descend(optimizer, y.square().mean())]
    return out + state(model)


@idiom(rounded="a result and its gradient used together (docs/ahead-of-time.md)", bound=1e-6)
def forces_from_energies(compiled: Compiled) -> list[Any]:
    class Schnet(nn.Module):
        def __init__(self, d=6, gaussians=5):
            super().__init__()
            self.embed = nn.Embedding(4, d)
            self.register_buffer("centres", torch.linspace(0, 3, gaussians))
            self.filter = nn.Sequential(nn.Linear(gaussians, d), nn.Softplus(), nn.Linear(d, d))
            self.out = mlp(d, 8, 1, drop=0.0)

        def forward(self, z, r):
            n = len(z)
            i, j = torch.triu_indices(n, n, 1)
            distance = (r[i] - r[j]).norm(dim=-1)
            rbf = torch.exp(-2 * (distance[:, None] - self.centres) ** 2)
            cut = 0.5 * (torch.cos(distance * math.pi / 3) + 1) * (distance < 3)
            w = self.filter(rbf) * cut[:, None]
            x = self.embed(z)
            m = torch.zeros_like(x).index_add(0, i, x[j] * w).index_add(0, j, x[i] * w)
            return self.out(x + m).sum()

    model = Schnet()
    energy = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    out: list[Any] = []
    for n in (4, 4, 5):
        r = torch.randn(n, 3, requires_grad=True)
        e = energy(torch.randint(0, 4, (n,)), r)
        (force,) = torch.autograd.grad(-e, r, create_graph=True)
        loss = (e - 1.0) ** 2 + 10 * force.square().mean()
        out += [e.detach(), force.detach(), descend(optimizer, loss)]
    return out + state(model)


@idiom
def points_sampled_and_grouped(compiled: Compiled) -> list[Any]:
    def farthest(x, k):
        b, n, _ = x.shape
        chosen = torch.zeros(b, k, dtype=torch.long)
        distance = torch.full((b, n), 1e10)
        at = torch.zeros(b, dtype=torch.long)
        rows = torch.arange(b)
        for i in range(k):
            chosen[:, i] = at
            d = ((x - x[rows, at][:, None]) ** 2).sum(-1)
            distance = torch.minimum(distance, d)
            at = distance.max(-1).indices
        return chosen

    def ball(radius, most, x, centres):
        b, n, _ = x.shape
        index = torch.arange(n).view(1, 1, n).repeat(b, centres.shape[1], 1)
        index[torch.cdist(centres, x) > radius] = n
        index = index.sort(dim=-1)[0][:, :, :most]
        first = index[:, :, :1].expand_as(index)
        return torch.where(index == n, first, index)

    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))

    def abstraction(x):
        centres_at = farthest(x, 3)
        centres = x.gather(1, centres_at[..., None].expand(-1, -1, 3))
        group = ball(1.0, 4, x, centres)
        b = torch.arange(len(x))[:, None, None]
        return net(x[b, group] - centres[:, :, None]).amax(2), centres

    def chamfer(a, b):
        d = torch.cdist(a, b)
        return d.min(1).values.mean() + d.min(2)[0].mean() + torch.logsumexp(-d, -1).mean()

    run, run_chamfer = compiled(abstraction), compiled(chamfer)
    out: list[Any] = []
    for b, n in ((2, 8), (1, 10), (2, 8)):
        x = torch.randn(b, n, 3, requires_grad=True)
        y, centres = run(x)
        loss = y.square().mean() + run_chamfer(x, torch.randn(b, 5, 3))
        loss.backward()
        out += [y.detach(), centres.detach(), loss.detach(), x.grad]
    return out + [p.grad for p in net.parameters()]


@idiom
def transducers_and_trellises(compiled: Compiled) -> list[Any]:
    def rnnt(logp, targets, blank=0):
        t, u, _ = logp.shape
        alpha = [[None] * u for _ in range(t)]
        for i in range(t):
            for j in range(u):
                if i == j == 0:
                    alpha[i][j] = logp.new_zeros(())
                    continue
                terms = []
                if i > 0:
                    terms.append(alpha[i - 1][j] + logp[i - 1, j, blank])
                if j > 0:
                    terms.append(alpha[i][j - 1] + logp[i, j - 1, targets[j - 1]])
                alpha[i][j] = terms[0] if len(terms) == 1 else torch.logaddexp(*terms)
        return -(alpha[-1][-1] + logp[-1, -1, blank])

    def ctc(logp, labels):
        ext = torch.zeros(2 * len(labels) + 1, dtype=torch.long)
        ext[1::2] = labels
        skip = torch.zeros(len(ext), dtype=torch.bool)
        skip[2:] = (ext[2:] != 0) & (ext[2:] != ext[:-2])
        alpha = torch.full((len(ext),), -1e30)
        alpha[:2] = logp[0, ext[:2]]
        for row in logp[1:]:
            one = F.pad(alpha[:-1], (1, 0), value=-1e30)
            two = torch.where(skip, F.pad(alpha[:-2], (2, 0), value=-1e30), -1e30)
            alpha = torch.logsumexp(torch.stack([alpha, one, two]), 0) + row[ext]
        return -torch.logaddexp(alpha[-1], alpha[-2])

    def viterbi(emissions, transitions):
        score, back = emissions[0], []
        for e in emissions[1:]:
            best, at = (score[:, None] + transitions).max(0)
            score = best + e
            back.append(at)
        path = [score.argmax()]
        for at in reversed(back):
            path.append(at[path[-1]])
        return torch.stack(path[::-1]), score.max()

    def forward_backward(logb, loga):
        a, b = [logb[0]], [torch.zeros_like(logb[0])]
        for row in logb[1:]:
            a.append(torch.logsumexp(a[-1][:, None] + loga, 0) + row)
        for row in logb[1:].flip(0):
            b.insert(0, torch.logsumexp(loga + row + b[0], 1))
        return (torch.stack(a) + torch.stack(b)).softmax(-1)

    def edits(a, b):
        row = torch.arange(len(b) + 1)
        for i in range(len(a)):
            costs = torch.minimum(row[1:] + 1, row[:-1] + (a[i] != b).long())
            cells = [row[0] + 1]
            for c in costs:
                cells.append(torch.minimum(c, cells[-1] + 1))
            row = torch.stack(cells)
        return row[-1]

    out = values_and_gradients(
        compiled,
        lambda x, y: (
            rnnt(x.log_softmax(-1), [1, 2]) + ctc(y.log_softmax(-1), torch.tensor([1, 1, 2]))
        ),
        *[lambda t=t: (torch.randn(t, 3, 4), torch.randn(t + 3, 4)) for t in (3, 4, 3)],
    )
    run = [compiled(f) for f in (viterbi, forward_backward, edits)]
    for n in (4, 5, 4):
        out += run[0](torch.randn(n, 3), torch.randn(3, 3))
        out.append(run[1](torch.randn(n, 3).log_softmax(-1), torch.randn(3, 3).log_softmax(-1)))
        out.append(run[2](torch.randint(0, 3, (n,)), torch.randint(0, 3, (4,))))
    return out
