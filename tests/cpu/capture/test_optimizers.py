"""Training steps: optimizers, gradient clipping and scaling, over several calls and bit by bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch import optim as O

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


def _training(make, **expected):
    """A whole step. It breaks at ``backward``, and twice where torch's optimizers ask for it."""

    def case():
        m = nn.Linear(3, 2)
        optimizer = make(m.parameters())

        def f(x):
            loss = m(x).square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return f, [(t(4, 3),) for _ in range(4)], [m, optimizer.state]

    return case, {"graphs": 3, "breaks": 3, **expected}


_MADE = {
    "sgd": _training(lambda p: O.SGD(p, 0.1)),
    "momentum": _training(lambda p: O.SGD(p, 0.1, momentum=0.9), graphs=4, breaks=4, recompiles=1),
    "momentum_foreach": _training(
        lambda p: O.SGD(p, 0.1, momentum=0.9, foreach=True), graphs=4, breaks=4, recompiles=1
    ),
    "adam": _training(lambda p: O.Adam(p, 0.1)),
    "adam_foreach": _training(lambda p: O.Adam(p, 0.1, foreach=True)),
    "adam_amsgrad": _training(lambda p: O.Adam(p, 0.1, amsgrad=True, weight_decay=0.1)),
    "adam_rate_in_a_tensor": _training(lambda p: O.Adam(p, torch.tensor(0.1), foreach=False)),
    "adamw": _training(lambda p: O.AdamW(p, 0.1)),
    "adamw_foreach": _training(lambda p: O.AdamW(p, 0.1, foreach=True)),
    "rmsprop": _training(lambda p: O.RMSprop(p, 0.1)),
    "adagrad": _training(lambda p: O.Adagrad(p, 0.1)),
    "adadelta": _training(lambda p: O.Adadelta(p, 0.1)),
    "adamax": _training(lambda p: O.Adamax(p, 0.1)),
}
_MADE |= {
    "nadam": _training(lambda p: O.NAdam(p, 0.1)),
    "nadam_foreach": _training(lambda p: O.NAdam(p, 0.1, foreach=True)),
    "nadam_rate_in_a_tensor": _training(lambda p: O.NAdam(p, torch.tensor(0.1))),
    "two_groups": _training(lambda p: O.Adam([{"params": [q]} for q in p], 0.1)),
    "sgd_rate_in_a_tensor": _training(lambda p: O.SGD(p, torch.tensor(0.1))),
    "adadelta_rate_in_a_tensor": _training(
        lambda p: O.Adadelta(p, torch.tensor(0.1), foreach=True)
    ),
    "sgd_foreach_rate_in_a_tensor": _training(lambda p: O.SGD(p, torch.tensor(0.1), foreach=True)),
    "asgd": _training(lambda p: O.ASGD(p, 0.1)),
    "radam": _training(lambda p: O.RAdam(p, 0.1)),
    "radam_foreach": _training(lambda p: O.RAdam(p, 0.1, foreach=True)),
}


def _scalars(make):
    """Parameters without dimensions, and those of few bits, take the counts' numbers too."""

    def case():
        ps = [torch.randn(s, dtype=d) for s in ((), (7,)) for d in (torch.float32, torch.bfloat16)]
        optimizer = make([p.requires_grad_() for p in ps])

        def gradients():
            for p in ps:
                p.grad = torch.randn_like(p)

        def f():
            optimizer.step()

        return f, [gradients, (), gradients, (), gradients, ()], [ps, optimizer.state]

    return case, {"graphs": 1, "breaks": 2}


_MADE |= {
    f"scalars_{cls.__name__.lower()}_{foreach}": _scalars(
        lambda p, cls=cls, foreach=foreach: cls(p, 0.1, foreach=foreach)
    )
    for cls, foreach in [(O.Adamax, True), (O.NAdam, True), (O.NAdam, False), (O.AdamW, True)]
}


def _branching(make, dtype):
    """Rules that branch on their counts, over both outcomes."""

    def case():
        ps = [torch.randn(s, dtype=dtype).requires_grad_() for s in ((3, 4), (5,))]
        optimizer = make(ps)

        def gradients():
            for p in ps:
                p.grad = torch.randn_like(p)

        def f():
            optimizer.step()

        return f, [call for _ in range(7) for call in (gradients, ())], [ps, optimizer.state]

    return case, {"graphs": 1, "breaks": 2}


_RULES = {
    "asgd": lambda p, f: O.ASGD(p, 0.1, t0=3, alpha=0.6, weight_decay=0.1, foreach=f),
    "asgd_upwards": lambda p, f: O.ASGD(p, torch.tensor(0.1), t0=0, maximize=True, foreach=f),
    "radam": lambda p, f: O.RAdam(p, 0.1, betas=(0.8, 0.9), weight_decay=0.1, foreach=f),
    "radam_decoupled": lambda p, f: O.RAdam(
        p, 0.1, betas=(0.8, 0.9), weight_decay=0.1, decoupled_weight_decay=True, foreach=f
    ),
}
_MADE |= {
    f"{name}_{kind}_{dtype}".replace("torch.", ""): _branching(
        lambda p, make=make, kind=kind: make(p, kind == "foreach"), dtype
    )
    for turn, (name, make) in enumerate(_RULES.items())
    for kind, dtype in zip(
        ("foreach", "single"), (torch.float32, torch.complex64)[:: 1 - 2 * (turn % 2)], strict=True
    )
}
_MADE |= {
    f"asgd_{kind}_in_double_precision": _branching(
        lambda p, kind=kind: _RULES["asgd"](p, kind == "foreach"), torch.float64
    )
    for kind in ("foreach", "single")
}
# What it adds is rounded once or twice, by the place of the element.
_case, _ = _branching(lambda p: O.ASGD(p, 0.1), torch.bfloat16)
_MADE["asgd_in_half_precision"] = _case, {"graphs": 0, "breaks": 3}
for _name, (_case, _expected) in _MADE.items():
    _case.__name__ = _name
    cases(**_expected)(_case)


@cases(graphs=3, breaks=3)
def a_parameter_of_no_dimension():
    m = nn.Linear(3, 2)
    m.scale = nn.Parameter(torch.tensor(2.0))
    optimizer = O.SGD(m.parameters(), 0.1)

    def f(x):
        (m(x) * m.scale).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return x * 2

    return f, [(t(4, 3),) for _ in range(3)], [m]


@cases()
def zero_grad_only():
    m = nn.Linear(3, 2)
    optimizer = O.SGD(m.parameters(), 0.1)

    def f(x):
        optimizer.zero_grad()
        return m(x)

    return f, [(t(4, 3),), (t(4, 3),)], [m]


@cases(graphs=2, breaks=4, recompiles=1)
def rate_scheduled():
    """One graph for the first rate, one for any other; the scheduler itself is a break."""
    p = torch.ones(3, requires_grad=True)
    optimizer = O.SGD([p], 0.1)
    scheduler = O.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def gradients():
        p.grad = torch.randn(3)

    def f():
        optimizer.step()
        scheduler.step()

    return f, [gradients, (), gradients, (), gradients, ()], [p, optimizer.param_groups]


@cases(graphs=2, breaks=3)
def closure_asked_for_the_loss():
    p = torch.ones(3, requires_grad=True)
    optimizer = O.SGD([p], 0.1)

    def f(x):
        def closure():
            optimizer.zero_grad()
            loss = ((p - x) ** 2).sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    return f, [(t(3),) for _ in range(3)], [p]


@cases(graphs=2, breaks=1)
def gradients_of_a_module_dropped():
    m = nn.Linear(3, 2)

    def f(x):
        m.zero_grad()
        m(x).sum().backward()
        return m.weight.grad.clone()

    return f, [(t(2, 3),) for _ in range(3)], [m]


@cases(graphs=2, breaks=1)
def norm_clipped():
    m = nn.Linear(3, 2)

    def f(x):
        m(x).square().sum().backward()
        return nn.utils.clip_grad_norm_(m.parameters(), 1.0)

    return f, [(t(4, 3),), (t(4, 3),)], [m]


@cases()
def values_clipped():
    m = nn.Linear(3, 2)
    for p in m.parameters():
        p.grad = torch.randn_like(p)

    def f(x):
        nn.utils.clip_grad_value_(m.parameters(), 0.1)
        return x + 1

    return f, [(t(3),), (t(3),)], [m]


@cases(graphs=3, breaks=6)
def gradients_scaled():
    m = nn.Linear(3, 2)
    optimizer = O.SGD(m.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = m(x).square().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return f, [(t(4, 3),) for _ in range(3)], [m, scaler.__dict__]


@cases(graphs=4, breaks=7, recompiles=1)
def gradients_scaled_and_clipped():
    m = nn.Linear(3, 2)
    optimizer = O.SGD(m.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def f(x):
        optimizer.zero_grad()
        scaler.scale([m(x).square().sum()])[0].backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return m(x).detach()

    calls = [(t(4, 3),), (t(4, 3),), (torch.full((4, 3), torch.inf),), (t(4, 3),)]
    return f, calls, [m, scaler.__dict__]


@cases()
def scaling_that_is_off():
    m = nn.Linear(3, 2)
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def f(x):
        loss = scaler.scale(m(x).square().sum())
        scaler.unscale_(None)
        scaler.update()
        return loss

    return f, [(t(4, 3),) for _ in range(2)], [m]


@cases(graphs=2, breaks=1)
def step_by_hand():
    m = nn.Linear(3, 2)

    def f(x):
        loss = m(x).square().sum()
        loss.backward()
        with torch.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad
                p.grad.zero_()
        return loss.detach()

    return f, [(t(4, 3),) for _ in range(3)], [m]


@cases(graphs=1, breaks=1)
def several_evaluations_in_a_step():
    m = nn.Linear(3, 2)
    optimizer = O.LBFGS(m.parameters(), max_iter=3)

    def f(x):
        def closure():
            optimizer.zero_grad()
            loss = m(x).square().sum()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return f, [(t(4, 3),), (t(4, 3),)], [m]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0


def test_two_optimizers_share_a_step():
    """What one plan reads from an optimizer's state is the state of the one that it is given."""
    import refcompiler

    def step(m, optimizer, x):
        m(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def parameters(step):
        torch.manual_seed(0)
        models = [nn.Linear(3, 2) for _ in range(2)]
        optimizers = [O.Adam(m.parameters(), 0.1) for m in models]
        for i in range(8):
            step(models[i % 2], optimizers[i % 2], torch.ones(4, 3) * i)
        assert all(len(o.state) == 2 for o in optimizers)
        return [p for m in models for p in m.parameters()]

    want = parameters(step)
    refcompiler.reset()
    found = parameters(refcompiler.compile(step, backend="eager"))
    assert all(torch.equal(a, b) for a, b in zip(want, found, strict=True))
    assert len(want) == 4


@pytest.mark.parametrize("name", ["NAdam", "RAdam", "ASGD"])
def test_counts_beside_symbols_for_rates_are_numbers(name: str):
    """Where all floats are symbols, what is made of a count and of one is a Python float too."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = getattr(torch.optim, name)(model.parameters(), 1e-2)
        step = optimizer.step
        if compiled:
            refcompiler.reset()
            step = refcompiler.compile(step, backend="eager", dynamic=True)
        for _ in range(5):
            model(torch.randn(3, 4)).square().mean().backward()
            step()
            optimizer.zero_grad()
        found.append([p.detach() for p in model.parameters()])
    assert all(map(torch.equal, *found))
    assert refcompiler.counters()["graphs"] == 1
