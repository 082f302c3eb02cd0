"""Parameters that the frame makes, also in constructors of modules, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import refcompiler

PROGRAMS: dict[str, tuple[Callable, int, int]] = {}
KEPT: dict[str, Any] = {}


def program(graphs: int = 1, breaks: int = 0) -> Callable:
    def register(f: Callable) -> Callable:
        PROGRAMS[f.__name__] = f, graphs, breaks
        return f

    return register


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3) * 2)
        self.register_buffer("b", torch.zeros(3))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.tied = self.w

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.w + self.b + self.frozen * self.tied


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
        torch._dynamo.graph_break()
        self.v = nn.Parameter(torch.ones(3) * 2)


@program()
def alone(x):
    return nn.Parameter(torch.zeros(3)), nn.Parameter(), x + 1


@program()
def what_it_is(x):
    p = nn.Parameter(data=torch.ones(3), requires_grad=True)
    others = [isinstance(v, nn.Parameter) for v in (p, p.detach(), p * 1, 3)]
    return type(p) is nn.Parameter, others, p.is_leaf, p.grad_fn is None, p.grad is None, p * x


@program()
def of_what_is_computed(x):
    p, q = nn.Parameter((x * 2).exp()), nn.Parameter(torch.arange(3), requires_grad=False)
    return (p * x * q).sum(), p, q


@program()
def over_the_memory_of_an_input(x):
    p = nn.Parameter(x)
    with torch.no_grad():
        p.add_(1)
    return p * 2, p


@program()
def over_memory_that_leaves_too(x):
    d = x.detach() * 1
    p = nn.Parameter(d)
    d.add_(1)
    q = nn.Parameter(p)
    with torch.no_grad():
        q.mul_(2)
    return p, d, q, p is q, (p * q * x).sum()


@program()
def over_a_part_of_a_memory(x):
    whole = torch.ones(6)
    return nn.Parameter(whole[3:]) * x, nn.Parameter(torch.ones(1).expand(3)), whole


@program()
def two_and_a_set_of_them(x):
    a, b = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    both = {a: 1, b: 2}
    return a is b, both[a], both[b], len({a, b, a}), (a + 2 * b) * x, [a, b]


@program()
def with_attributes_and_a_hook(x):
    p = nn.Parameter(torch.ones(3))
    p.tag = "mine"
    p.register_hook(lambda grad: grad * 3)
    return p, p.tag, (p * x).sum()


@program()
def with_contents_assigned(x):
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    p.data = x.detach() * 5
    q.data.add_(2)
    q.grad = torch.ones(3) * x.shape[0]
    return p * q, p, q, p.data + 1


@program()
def given_to_a_module_from_outside(x):
    m = KEPT["module"]
    m.extra = nn.Parameter(torch.ones(3))
    m.register_parameter("other", nn.Parameter(x.detach() * 2))
    m.weight = nn.Parameter(m.weight * 2)
    return m(x) * m.extra + m.other


@program()
def kept_outside(x):
    KEPT["p"] = nn.Parameter(torch.ones(3))
    return KEPT["p"] * x


@program()
def of_a_module(x):
    net = Net()
    names = [(name, p.requires_grad) for name, p in net.named_parameters()]
    return net(x), net, names, [*net.state_dict()]


@program()
def of_a_module_that_is_dropped(x):
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2))(x)


@program()
def of_layers_with_state(x):
    norm, rows = nn.BatchNorm1d(3), nn.Embedding(5, 3)
    return norm(x.expand(4, 3)), norm, rows(torch.tensor([1, 2])) + x, rows


@program()
def in_lists_and_dicts(x):
    few = nn.ParameterList([nn.Parameter(torch.full((3,), float(i))) for i in range(3)])
    named = nn.ParameterDict({"a": torch.ones(3)})
    return sum(p * x for p in few) * named["a"], few, named


@program()
def filled_with_random_numbers(x):
    p = nn.Parameter(torch.empty(3))
    nn.init.uniform_(p)
    return p, p * x + nn.Parameter(torch.randn(3))


@program()
def without_gradients(x):
    with torch.no_grad():
        return Net()(x), nn.Parameter(torch.ones(3))


@program(graphs=2, breaks=1)
def on_both_sides_of_a_break(x):
    p = nn.Parameter(torch.ones(3) * 2)
    y = p * x
    torch._dynamo.graph_break()
    return y * p * nn.Parameter(p * 3), p


@program(graphs=0, breaks=1)
def a_module_that_breaks_is_made_natively(x):
    net = Broken()
    return [p for p in net.parameters()], net


@program(graphs=3)
def the_graph_raises_behind_it(x):
    p = nn.Parameter(torch.ones(3))
    y = p * x
    try:
        return torch.linalg.inv((y * 0).reshape(1, 3).expand(3, 3))
    except RuntimeError:
        return y * 2, p


@program(graphs=1, breaks=1)
def its_address(x):
    p = nn.Parameter(torch.ones(3))
    return id(p) == id(p)


@program(graphs=2, breaks=1)
def integers_that_want_gradients(x):
    try:
        return nn.Parameter(torch.arange(3))
    except RuntimeError:
        return x + 1


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)


def plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return type(value).__name__ if isinstance(value, (torch.Tensor, nn.Module)) else value


def told(tensor: torch.Tensor) -> Any:
    meta = tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()
    flags = tensor.requires_grad, tensor.is_leaf, type(tensor), getattr(tensor, "tag", None)
    grad = tensor.grad.tolist() if tensor.is_leaf and tensor.grad is not None else None
    return meta, flags, tensor.untyped_storage().nbytes(), grad, tensor.detach().double().numpy()


def observed(call: Callable, value: float, wants: bool) -> list[Any]:
    """What a call gives, before and after going backward from all of it."""
    torch.manual_seed(0)
    KEPT.clear()
    KEPT["module"] = nn.Linear(3, 3)
    x = (torch.arange(3.0) + value).requires_grad_(wants)
    result = call(x)
    known = [*tensors(result), x, *tensors([*KEPT.values()])]
    shared = [
        [a.untyped_storage()._cdata == b.untyped_storage()._cdata for b in known] for a in known
    ]
    same = [[a is b for b in known] for a in known]
    found = [plain(result), shared, same, sorted(KEPT), torch.rand(1).item(), [*map(told, known)]]
    wanted = [tensor.sum() for tensor in known if tensor.requires_grad]
    if wanted:
        sum(wanted).backward()
    return [*found, [*map(told, known)]]


def agree(a: Any, b: Any) -> int:
    """How much was compared."""
    if isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        return sum(map(agree, a, b))
    if type(a).__module__ == "numpy":
        torch.testing.assert_close(torch.as_tensor(b), torch.as_tensor(a))
    else:
        assert a == b or a == pytest.approx(b)
    return 1


@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_parameters_made_in_the_frame(name: str, wants: bool) -> None:
    f, graphs, breaks = PROGRAMS[name]
    if name == "over_the_memory_of_an_input" and wants:
        wants = False  # which eager refuses to write to
    made = []

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Callable:
        made.append(module)
        return module.forward

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend=backend)
    compared = 0
    for value in (1.0, 2.0, 3.0):
        compared += agree(observed(f, value, wants), observed(compiled, value, wants))
    assert compared > 30
    assert (len(made), refcompiler.counters()["breaks"]) == (graphs, breaks)


@pytest.mark.parametrize("backend", ["reference", "fastpath"])
@pytest.mark.parametrize(
    "name", ["over_memory_that_leaves_too", "of_a_module", "filled_with_random_numbers"]
)
def test_through_a_backend_that_differentiates(name: str, backend: str) -> None:
    f, _, _ = PROGRAMS[name]
    refcompiler.reset()
    compiled = refcompiler.compile(f, backend=backend, fullgraph=True)
    compared = 0
    for value in (1.0, 2.0):
        compared += agree(observed(f, value, True), observed(compiled, value, True))
    assert compared > 30 and refcompiler.counters()["graphs"] == 1


def test_a_new_one_in_each_call_as_torch_compile_makes_them() -> None:
    def f(x):
        p = nn.Parameter(torch.ones(3))
        return p, p * x

    for compiler in (refcompiler.compile, torch.compile):
        compiled: Any = compiler(f, backend="eager", fullgraph=compiler is refcompiler.compile)
        (first, y), (second, z) = compiled(torch.ones(3)), compiled(torch.ones(3) * 2)
        y.sum().backward()
        assert first is not second and second.grad is None
        assert first.grad is not None and first.grad.tolist() == [1, 1, 1]
        z.sum().backward()
        assert second.grad.tolist() == [2, 2, 2]
