"""How people put programs together: records, dispatch, contexts, generators, logs, matching."""

from __future__ import annotations

import abc
import contextlib
import enum
import functools
import logging
import math
import operator
import random
import warnings
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import Compiled, adapted, descend, idiom, state

log = logging.getLogger(__name__)


@dataclass
class ModelConfig:
    dim: int = 8
    depth: int = 2
    act: str = "gelu"
    dropout: float = 0.0
    widths: list[int] = field(default_factory=lambda: [8, 16])

    @property
    def hidden(self) -> int:
        return self.dim * 2


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    hidden: tuple[torch.Tensor, ...] = ()

    def __post_init__(self):
        if self.loss is not None and self.loss.dim() != 0:
            raise ValueError("loss has to be a scalar")


@idiom
def dataclass_config_and_output(compiled: Compiled) -> list[Any]:
    class Net(nn.Module):
        def __init__(self, config: ModelConfig):
            super().__init__()
            self.config = config
            self.layers = nn.ModuleList(
                nn.Linear(config.dim, config.dim) for _ in range(config.depth)
            )
            self.head = nn.Linear(config.dim, 3)

        def forward(self, x, labels=None, output_hidden=False):
            act = getattr(F, self.config.act)
            kept = []
            for layer in self.layers:
                x = act(layer(x)) + x
                if output_hidden:
                    kept.append(x)
            out = Output(self.head(x), hidden=tuple(kept))
            if labels is not None:
                out = replace(out, loss=F.cross_entropy(out.logits, labels))
            return out

    model = Net(ModelConfig())
    run = compiled(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    found = []
    for step in range(3):
        out = run(torch.randn(4, 8), torch.randint(0, 3, (4,)), output_hidden=step == 1)
        found += [descend(optimizer, out.loss), len(out.hidden), out.logits.detach()]
    model.config.act = "relu"
    found.append(run(torch.randn(4, 8)).logits.detach())
    try:
        Output(torch.zeros(1), torch.zeros(2))
    except ValueError as error:
        found.append(str(error))
    return found + sorted(map(str, asdict(model.config).items())) + adapted(model)


class Batch(NamedTuple):
    ids: torch.Tensor
    mask: torch.Tensor
    lengths: list[int]

    def to_float(self) -> Batch:
        return self._replace(mask=self.mask.float())


class Settings(TypedDict, total=False):
    scale: float
    mode: str
    bins: list[int]


@idiom
def named_tuples_and_typed_dicts(compiled: Compiled) -> list[Any]:
    table = nn.Embedding(12, 6)
    Pooled = namedtuple("Pooled", ["mean", "top"], defaults=[None])

    def pool(batch: Batch, settings: Settings):
        batch = batch.to_float()
        e = table(batch.ids) * settings.get("scale", 1.0)
        weights = batch.mask / batch.mask.sum(1, keepdim=True).clamp(min=1)
        mean = (e * weights[..., None]).sum(1)
        if settings.get("mode") == "top":
            return Pooled(mean, e.amax(1))
        last = e[torch.arange(len(batch.lengths)), [n - 1 for n in batch.lengths]]
        return Pooled(mean + last)

    run = compiled(pool)
    out = []
    settings: Settings = {"scale": 2.0}
    for lengths in ([3, 5], [1, 4], [2, 2, 5]):
        ids = torch.randint(0, 12, (len(lengths), 5))
        mask = torch.arange(5)[None] < torch.tensor(lengths)[:, None]
        got = run(Batch(ids, mask, lengths), settings)
        got.mean.sum().backward()
        out += [type(got).__name__, got.mean.detach(), got.top is None]
    settings["mode"] = "top"
    got = run(Batch(ids, mask, lengths), settings)
    return out + [got.mean.detach(), got.top.detach(), table.weight.grad]


class ModelOutput(OrderedDict):
    """Keys as attributes, None left out, indexed as a tuple: as libraries have it."""

    def __init__(self, **values):
        super().__init__({k: v for k, v in values.items() if v is not None})

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key):
        if isinstance(key, str):
            return super().__getitem__(key)
        return self.to_tuple()[key]

    def to_tuple(self):
        return tuple(super(ModelOutput, self).__getitem__(k) for k in self.keys())


@idiom
def model_output_dict(compiled: Compiled) -> list[Any]:
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 5)

        def forward(self, x, return_dict=True, with_pooler=True):
            h = torch.tanh(self.a(x))
            pooled = self.b(h).mean(1) if with_pooler else None
            if not return_dict:
                return tuple(v for v in (h, pooled) if v is not None)
            return ModelOutput(last_hidden_state=h, pooler_output=pooled)

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = Encoder()
            self.out = nn.Linear(5, 2)

        def forward(self, x, **kwargs):
            found = self.encoder(x, **kwargs)
            return ModelOutput(logits=self.out(found[0][:, 0]), encoded=found)

    model = Classifier()
    run = compiled(model)
    out = []
    for kwargs in ({}, {"with_pooler": False}, {"return_dict": False}, {}):
        found = run(torch.randn(3, 4, 5), **kwargs)
        found.logits.sum().backward()
        out += [list(found), type(found.encoded).__name__, len(found.encoded), found[0].detach()]
    return out + [p.grad for p in model.parameters()]


class Reduction(enum.Enum):
    MEAN = "mean"
    SUM = "sum"
    NONE = "none"

    @classmethod
    def parse(cls, text: str) -> Reduction:
        return cls[text.upper()]


class Level(enum.IntFlag):
    NORM = 1
    CLIP = 2


PLAIN = Level(0)


@idiom
def enums_and_match(compiled: Compiled) -> list[Any]:
    def loss(p, t, reduction: str | Reduction = "mean", level=PLAIN):
        if isinstance(reduction, str):
            reduction = Reduction.parse(reduction)
        if Level.NORM in level:
            p = F.normalize(p, dim=-1)
        if level & Level.CLIP:
            p = p.clamp(-0.5, 0.5)
        error = (p - t) ** 2
        match reduction:
            case Reduction.MEAN:
                return error.mean()
            case Reduction.SUM:
                return error.sum()
            case Reduction.NONE:
                return error

    def apply(command, x):
        match command:
            case {"op": "scale", "by": float(by)}:
                return x * by
            case {"op": "pad", "width": (left, right), **rest}:
                return F.pad(x, (left, right), value=rest.get("value", 0.0))
            case ["chain", *commands] if commands:
                for one in commands:
                    x = apply(one, x)
                return x
            case str() as name:
                return getattr(torch, name)(x)
            case _:
                raise ValueError(f"unknown command {command!r}")

    run, run_apply = compiled(loss), compiled(apply)
    out = []
    p, t = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    for reduction in ("mean", Reduction.SUM, "none", Reduction.MEAN):
        for level in (PLAIN, Level.NORM | Level.CLIP):
            found = run(p, t, reduction, level)
            found.sum().backward()
            out.append(found.detach())
    chain = ["chain", {"op": "scale", "by": 2.0}, "tanh", {"op": "pad", "width": (1, 2)}]
    out.append(run_apply(chain, t))
    chain[1] = {"op": "pad", "width": (0, 1), "value": 3.0}
    out.append(run_apply(chain, t))
    for wrong in (3, ["chain"], {"op": "scale", "by": 1}):
        try:
            run_apply(wrong, t)
        except ValueError as error:
            out.append(str(error))
    return out + [p.grad]


@idiom
def registry_and_dispatch(compiled: Compiled) -> list[Any]:
    layers: dict[str, type[nn.Module]] = {}

    def register(name):
        def add(cls):
            layers[name] = cls
            return cls

        return add

    class Base(nn.Module, abc.ABC):
        scale: ClassVar[float] = 1.0

        @abc.abstractmethod
        def mix(self, x): ...

        def forward(self, x):
            return x + self.scale * self.mix(x)

    @register("linear")
    class Linear(Base):
        def __init__(self, d):
            super().__init__()
            self.w = nn.Linear(d, d)

        def mix(self, x):
            return self.w(x)

    @register("gate")
    class Gate(Linear):
        scale = 0.5

        def mix(self, x):
            return torch.sigmoid(super().mix(x)) * x

    @functools.singledispatch
    def collate(value):
        raise TypeError(f"cannot collate {type(value).__name__}")

    @collate.register
    def _(value: torch.Tensor):
        return value.float()

    @collate.register(list)
    @collate.register(tuple)
    def _(value):
        return torch.stack([collate(v) for v in value])

    @collate.register
    def _(value: dict):
        return torch.cat([collate(v) for _, v in sorted(value.items())])

    @functools.cache
    def positions(n, d):
        return torch.arange(n * d, dtype=torch.float32).reshape(n, d) / (n * d)

    net = nn.Sequential(*(layers[n](4) for n in ("linear", "gate", "linear")))

    def whole(batch):
        x = collate(batch)
        return net(x + positions(*x.shape))

    run = compiled(whole)
    out = []
    a, b = torch.randn(2, 4), torch.randn(3, 4)
    for batch in ({"b": a, "a": b}, [a[0], b[0]], (a[1], b[1], b[2]), {"b": a, "a": b}):
        found = run(batch)
        found.sum().backward()
        out.append(found.detach())
    Gate.scale = 2.0
    out.append(run([a[0], b[0]]).detach())
    try:
        run({1.5})
    except TypeError as error:
        out.append(str(error))
    return out + [p.grad for p in net.parameters()] + [positions.cache_info().currsize]


@idiom
def context_managers_and_generators(compiled: Compiled) -> list[Any]:
    events: list[str] = []

    @contextlib.contextmanager
    def swapped(module, name, value):
        old = getattr(module, name)
        setattr(module, name, value)
        events.append(f"enter {name}")
        try:
            yield old
        finally:
            setattr(module, name, old)
            events.append(f"leave {name}")

    def windows(x, size, step):
        for start in range(0, x.shape[0] - size + 1, step):
            yield start, x[start : start + size]

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = 1.0
            self.w = nn.Linear(3, 3)

        def forward(self, x, gain=None):
            with contextlib.ExitStack() as stack:
                if gain is not None:
                    stack.enter_context(swapped(self, "gain", gain))
                    if gain < 0:
                        raise ValueError("negative gain")
                total = sum(
                    self.gain * self.w(piece).mean() / (1 + start)
                    for start, piece in windows(x, 3, 2)
                )
            return total

    model = Scaled()
    run = compiled(model)
    out = []
    for n, gain in ((7, None), (7, 2.0), (9, 0.5), (7, None)):
        found = run(torch.randn(n, 3), gain)
        found.backward()
        out.append(found.detach())
    for _ in range(2):
        try:
            run(torch.randn(7, 3), -1.0)
        except ValueError as error:
            out += [str(error), model.gain]
    return out + events + [p.grad for p in model.parameters()]


@idiom
def logging_and_warnings(compiled: Compiled) -> list[Any]:
    class Handler(logging.Handler):
        def __init__(self):
            super().__init__()
            self.lines: list[str] = []

        def emit(self, record):
            self.lines.append(record.getMessage())

    handler = Handler()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False

    def step(x, w, it):
        y = x @ w
        log.debug("not shown %d", it)
        if it % 2 == 0:
            log.info("step %d: shape %s", it, tuple(y.shape))
        if y.shape[0] > 4:
            warnings.warn(f"large batch of {y.shape[0]}", stacklevel=2)
        return y.relu().sum()

    run = compiled(step)
    w = torch.randn(3, 2, requires_grad=True)
    out = []
    told = []
    for it in range(4):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = run(torch.randn(3 + it, 3), w, it)
        told += [str(c.message) for c in caught if "large" in str(c.message)]
        found.backward()
        out.append(found.detach())
    log.removeHandler(handler)
    return out + told + handler.lines + [w.grad]


@idiom
def meters_and_counters(compiled: Compiled) -> list[Any]:
    class Meter:
        def __init__(self):
            self.sums: defaultdict[str, float] = defaultdict(float)
            self.count = 0
            self.recent: deque[int] = deque(maxlen=2)

        def update(self, n=1, **values):
            for k, v in values.items():
                self.sums[k] += v * n
            self.count += n
            self.recent.append(n)

        def __repr__(self):
            return ", ".join(f"{k}={v / self.count:.4f}" for k, v in sorted(self.sums.items()))

    meter = Meter()
    names: Counter[str] = Counter()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def step(x, y):
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        meter.update(len(x), seen=1.0, classes=logits.shape[-1])
        names.update(type(m).__name__ for m in model)
        return loss

    run = compiled(step)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = []
    for n in (4, 4, 6, 5):
        out.append(descend(optimizer, run(torch.randn(n, 4), torch.randint(0, 2, (n,)))))
    return out + [repr(meter), list(meter.recent), sorted(names.items())] + state(model)


@idiom
def properties_and_getattr(compiled: Compiled) -> list[Any]:
    class Lazy:
        def __init__(self, function):
            self.function = function

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner):
            if instance is None:
                return self
            value = self.function(instance)
            instance.__dict__[self.name] = value
            return value

    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self._temperature = 1.0

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

        @property
        def temperature(self):
            return self._temperature

        @temperature.setter
        def temperature(self, value):
            if value <= 0:
                raise ValueError("temperature must be positive")
            self._temperature = value

        @Lazy
        def half(self):
            return self.weight.shape[0] // 2

        @functools.cached_property
        def device_type(self):
            return next(self.parameters()).device.type

        @staticmethod
        def squash(x):
            return torch.tanh(x)

        @classmethod
        def label(cls):
            return cls.__name__

        def forward(self, x):
            y = F.linear(x, self.weight, self.bias) / self.temperature
            self.temperature = self.temperature * 1.5
            assert self.device_type == "cpu" and self.label() == "Wrapper"
            return self.squash(y[:, : self.half])

    model = Wrapper(nn.Linear(4, 6))
    run = compiled(model)
    out = []
    for _ in range(4):
        found = run(torch.randn(3, 4))
        found.sum().backward()
        out += [found.detach(), model.temperature]
    model.temperature = 0.1
    out.append(run(torch.randn(3, 4)).detach())
    return (
        out
        + [sorted(k for k in vars(model) if k in ("half", "device_type"))]
        + [p.grad for p in model.parameters()]
    )


@idiom
def try_except_control_flow(compiled: Compiled) -> list[Any]:
    class BadShapeError(RuntimeError):
        def __init__(self, shape):
            super().__init__(f"bad shape {tuple(shape)}")
            self.shape = shape

    def project(x, table, key):
        try:
            w = table[key]
        except KeyError as error:
            w = torch.ones(x.shape[-1], 2) * len(str(error))
        else:
            x = x + 1
        finally:
            table["uses"] = table.get("uses", 0) + 1
        if x.shape[-1] != w.shape[0]:
            raise BadShapeError(x.shape)
        try:
            return x @ w, None
        except RuntimeError:
            return x, "failed"

    def safe(x, table, key):
        with contextlib.suppress(BadShapeError):
            return project(x, table, key)[0]
        return x.sum()

    run, run_safe = compiled(project), compiled(safe)
    table: dict[str, Any] = {"a": torch.randn(3, 2)}
    out = []
    for key in ("a", "b", "a"):
        out.append(run(torch.ones(4, 3), table, key)[0])
    for function in (run, run_safe, run):
        try:
            out.append(function(torch.ones(4, 5), table, "a"))
        except BadShapeError as error:
            out += [str(error), error.shape == (4, 5), error.__cause__ is None]
    try:
        run(torch.ones(4, 3), {"a": torch.ones(3, 2, dtype=torch.int64)}, "a")
    except RuntimeError as error:
        out.append(str(error).split("\n")[0])
    return out + [table["uses"]]


@idiom
def callable_protocols(compiled: Compiled) -> list[Any]:
    class Transform(Protocol):
        def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    class Compose:
        def __init__(self, *parts: Transform):
            self.parts = list(parts)

        def __call__(self, x):
            return functools.reduce(lambda v, f: f(v), self.parts, x)

        def __add__(self, other):
            return Compose(*self.parts, *other.parts)

        def __len__(self):
            return len(self.parts)

        def __iter__(self):
            return iter(self.parts)

        def __getitem__(self, index):
            found = self.parts[index]
            return Compose(*found) if isinstance(index, slice) else found

        def __contains__(self, part):
            return part in self.parts

        def __bool__(self):
            return bool(self.parts)

    class Scale:
        __slots__ = ("by",)

        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * self.by

    scale = Scale(2.0)
    shift = functools.partial(torch.add, alpha=2, other=torch.tensor(0.5))
    first = Compose(scale, shift, torch.tanh)
    both = first + Compose(operator.neg, operator.methodcaller("clamp", min=-0.2))

    def run_all(x, upto):
        part = both[:upto] if upto < len(both) else both
        y = part(x) if part else x
        if scale in part:
            y = y + len([p for p in part if callable(p)])
        return y

    run = compiled(run_all)
    x = torch.randn(4)
    out = [run(x, n) for n in (5, 3, 0, 5)]
    scale.by = 3.0
    out.append(run(x, 5))
    both.parts.append(torch.exp)
    return [*out, run(x, 6)]


@idiom(captured="NumPy sums a deviation otherwise than torch")
def numpy_in_between(compiled: Compiled) -> list[Any]:
    def schedule(steps):
        betas = np.linspace(1e-4, 0.02, steps, dtype=np.float32)
        alphas = np.cumprod(1.0 - betas)
        return torch.from_numpy(np.sqrt(alphas))

    def mix(x, steps, rng_state):
        a = schedule(steps)
        rng = np.random.RandomState(rng_state)
        order = torch.as_tensor(rng.permutation(x.shape[0]))
        scale = float(np.mean(x.shape)) / np.float64(math.pi)
        return x[order] * a.mean() + scale

    def statistics(x):
        array = x.detach().numpy()
        q = np.percentile(array, [25, 75])
        return torch.tensor(q.astype(np.float32)), float(array.std()), int(array.argmax())

    run, run_statistics = compiled(mix), compiled(statistics)
    out = []
    for n, steps, s in ((4, 10, 0), (4, 10, 1), (6, 12, 1)):
        x = torch.randn(n, 3)
        out.append(run(x, steps, s))
        out += run_statistics(x)
    return out


@idiom
def random_choices(compiled: Compiled) -> list[Any]:
    rng = random.Random(3)
    nets = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def step(x):
        path = [rng.randrange(3) for _ in range(2)]
        for i in path:
            x = torch.relu(nets[i](x)) if random.random() < 0.5 else nets[i](x)
        if random.choice([True, False]):
            x = x[torch.randperm(x.shape[0])]
        lam = random.betavariate(0.4, 0.4)
        return lam * x + (1 - lam) * x.flip(0), path

    run = compiled(step)
    out = []
    for _ in range(6):
        y, path = run(torch.randn(4, 4))
        y.sum().backward()
        out += [y.detach(), path]
    return out + [p.grad for p in nets.parameters()]
