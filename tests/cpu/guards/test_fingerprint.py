"""Fingerprints of tensors: whatever torch changes, the bytes tell it, or the guards are asked."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import refcompiler
from refcompiler.guards import fingerprint, tags
from refcompiler.guards.fingerprint import CHANGES, Unchanged, unchanged, works
from refcompiler.guards.layout import Layout, Unknown, find
from refcompiler.guards.tags import unchanged_dicts
from refcompiler.guards.tensors import TensorMeta

MAKERS: dict[str, Callable[[], torch.Tensor]] = {
    "parameter": lambda: nn.Parameter(torch.ones(2, 3)),
    "frozen parameter": lambda: nn.Parameter(torch.ones(2, 3), requires_grad=False),
    "buffer": lambda: torch.ones(2, 3),
    "buffer with gradients": lambda: torch.ones(2, 3, requires_grad=True),
    "half": lambda: nn.Parameter(torch.ones(4, dtype=torch.bfloat16)),
    "number": lambda: torch.tensor(3),
    "complex": lambda: torch.ones(2, 2, dtype=torch.complex64),
    "five dimensions": lambda: nn.Parameter(torch.ones(1, 2, 1, 2, 1)),
    "strides": lambda: torch.ones(6, 4)[::2, 1:].t(),
    "nothing in it": lambda: torch.ones(0, 3),
}


def data(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    return lambda t: setattr(t, "data", change(t.data))


def storage(t: torch.Tensor) -> None:
    t.data.set_(torch.ones(20, dtype=t.dtype).untyped_storage(), 2, (3, 2), (4, 1))


def set_self(t: torch.Tensor) -> None:
    with torch.no_grad():
        t.set_(torch.ones(20, dtype=t.dtype).untyped_storage(), 1, (2, 2), (2, 1))


def quiet(name: str, *args: Any) -> Callable[[Any], Any]:
    """A method that writes in place, where gradients are not recorded."""

    def apply(t: torch.Tensor) -> None:
        with torch.no_grad():
            getattr(t, name)(*args)

    return apply


def backward(t: torch.Tensor) -> None:
    (t * 2).sum().backward()


#: What torch offers to do to a tensor; much of it changes nothing that is guarded.
MUTATIONS: dict[str, Callable[[Any], Any]] = {
    **CHANGES,
    "requires_grad_": lambda t: t.requires_grad_(),
    "requires_grad_(False)": lambda t: t.requires_grad_(False),
    "detach_": lambda t: t.detach_(),
    "resize_": quiet("resize_", 3, 4),
    "resize_ in memory format": lambda t: t.data.resize_(1, 2, 3, 4).to(
        memory_format=torch.channels_last
    ),
    "t_": quiet("t_"),
    "unsqueeze_": quiet("unsqueeze_", 0),
    "squeeze_": quiet("squeeze_"),
    "swapaxes_": quiet("swapaxes_", 0, -1),
    "as_strided_": quiet("as_strided_", (2, 1), (1, 1)),
    "set_": set_self,
    "set_ of data": storage,
    "zero_": quiet("zero_"),
    "data, the same": data(torch.Tensor.clone),
    "data, half": data(torch.Tensor.half),
    "data, six dimensions": data(lambda t: t.reshape(1, 1, 1, 1, 1, -1)),
    "data, channels last": data(
        lambda t: t.new_ones(1, 2, 3, 4).to(memory_format=torch.channels_last)
    ),
    "data, expanded": data(lambda t: t[..., None].expand(*t.shape, 2)),
    "data, conjugate": data(lambda t: t.conj()),
    "data, negative": data(torch._neg_view),
    "data, int": data(torch.Tensor.int),
    "swap with a buffer": lambda t: torch.utils.swap_tensors(t, torch.ones(1)),
    "swap with one like it": lambda t: torch.utils.swap_tensors(t, t.detach().clone()),
    "swap with a tensor on meta": lambda t: torch.utils.swap_tensors(
        t, torch.ones(2, 3, device="meta")
    ),
    "class, back": lambda t: setattr(t, "__class__", torch.Tensor),
    "attribute": lambda t: setattr(t, "mine", 3),
    "backward": backward,
    "grad": lambda t: setattr(t, "grad", torch.zeros_like(t)),
    "no grad": lambda t: setattr(t, "grad", None),
    "hook": lambda t: t.register_hook(lambda g: g),
    "share_memory_": lambda t: t.share_memory_(),
    "storage resized": lambda t: t.untyped_storage().resize_(4096),
    "names": lambda t: t.rename_(*[f"n{i}" for i in range(t.dim())]),
    "in place with gradients": lambda t: t.mul_(torch.ones(1, requires_grad=True)),
    "retain_grad": lambda t: t.retain_grad(),
    "garbage": lambda t: gc.collect(0),
}

#: How often there was a change of what is guarded, and how often none.
COUNTED = {"changed": 0, "same": 0, "told": 0}


def metas(tensors: tuple[torch.Tensor, ...]) -> list[TensorMeta]:
    return [TensorMeta.of(t) for t in tensors]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(sorted(MAKERS)), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(sorted(MUTATIONS)), st.booleans()),
        min_size=1,
        max_size=12,
    ),
)
@pytest.mark.filterwarnings("ignore")
def check_mutations(kinds: list[str], steps: list[tuple[int, str, bool]]) -> None:
    """``True`` in a step: what the tensors are by then is remembered."""
    tensors = tuple([MAKERS[kind]() for kind in kinds])
    known = unchanged()
    assert known is not None
    remembered: list[TensorMeta] | None = None
    for place, name, again in steps:
        looked = known.look(tensors) if again or remembered is None else None
        if looked is not None:
            known.keep(tensors, looked)
            remembered = metas(tensors)
            assert known(tensors)
        try:
            MUTATIONS[name](tensors[place % len(tensors)])
        except Exception:  # refused, of this kind of tensor
            pass
        same = known(tensors)
        differs = remembered is None or metas(tensors) != remembered
        assert not (same and differs), (kinds, name, remembered, metas(tensors))
        COUNTED["changed" if differs else "same"] += 1
        COUNTED["told"] += same


def test_no_change_of_what_is_guarded_is_missed() -> None:
    COUNTED.update(changed=0, same=0, told=0)
    check_mutations()
    assert COUNTED["changed"] > 200 and COUNTED["same"] > 100
    assert COUNTED["told"] > 0.5 * COUNTED["same"]


@pytest.mark.filterwarnings("ignore")
def test_every_mutation_of_every_kind() -> None:
    changed = 0
    for kind, make in MAKERS.items():
        for name, change in MUTATIONS.items():
            tensors = make(), make()
            known = unchanged()
            assert known is not None
            known.keep(tensors, known.look(tensors))
            before = metas(tensors)
            assert known(tensors), kind
            try:
                change(tensors[1])
            except Exception:
                pass
            if metas(tensors) != before:
                changed += 1
                assert not known(tensors), (kind, name)
    assert changed > 150


def test_training_does_not_change_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    tensors = (*model.parameters(), *model.buffers())
    known = unchanged()
    assert known is not None
    known.keep(tensors, known.look(tensors))
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(5, 3)).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        assert known(tensors)
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
    model.eval()
    assert known(tensors)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda layout: layout._replace(kind=layout.kind + 8),
        lambda layout: layout._replace(pointer=layout.kind),
        lambda layout: layout._replace(first=layout.rank),
        lambda layout: layout._replace(storage=layout.first),
        lambda layout: layout._replace(end=layout.end - 8),
        lambda layout: layout._replace(requires=layout.requires + 1),
        lambda layout: layout._replace(function=()),
    ],
)
def test_places_that_do_not_tell_every_change_are_refused(
    wrong: Callable[[Layout], Layout], monkeypatch: pytest.MonkeyPatch
) -> None:
    works(find())
    layout = wrong(find())
    if layout.pointer == layout.kind or layout.first == layout.rank:
        monkeypatch.setattr(fingerprint, "seen", _of_objects_alone)
    with pytest.raises(Unknown):
        works(layout)


def _of_objects_alone(layout: Layout, tensors: tuple, storages: bool) -> tuple[Any, list[bytes]]:
    views = [[fingerprint.view(id(t) + layout.kind, 8) for t in tensors]]
    return views, [b"".join(views[0])]


def test_what_cannot_be_told_is_not_remembered() -> None:
    class Sub(torch.Tensor):
        pass

    w = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        of_inference = torch.ones(2)
    others = {
        "subclass": torch.ones(2).as_subclass(Sub),
        "six dimensions": torch.ones(1, 1, 1, 1, 1, 1),
        "computed": w * 2,
        "inference": of_inference,
        "sparse": torch.eye(2).to_sparse(),
        "conjugate": torch.ones(2, dtype=torch.complex64).conj(),
        "no tensor": None,
    }
    for name, tensor in others.items():
        known = unchanged()
        assert known is not None
        tensors: Any = (w, tensor)
        assert known.look(tensors) is None, name
        assert not known(tensors), name


def test_what_changes_all_the_time_is_remembered_seldom() -> None:
    known = unchanged()
    assert known is not None
    parameter = nn.Parameter(torch.ones(2))
    looks = 0
    for i in range(100):
        parameter.requires_grad_(i % 2 == 0)
        parameter.data = torch.ones(i + 1)
        looked = known.look((parameter,))
        looks += looked is not None
        known.keep((parameter,), looked)
    assert looks == 7
    for tensors in [(torch.ones(i),) for i in range(20)]:
        known.keep(tensors, known.look(tensors))
    assert len(known._known) <= fingerprint._KNOWN


class Net(nn.Module):
    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def memories(model: Any) -> list[Unchanged]:
    """Those of the plans that were made for a compiled module."""
    entries = model._refcompiler_entry.__globals__["__entries"]
    found = [v for e in entries for v in e.__globals__.values() if isinstance(v, Unchanged)]
    return list({id(v): v for v in found}.values())


def test_a_compiled_module_asks_its_parameters_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    look = Unchanged.look
    monkeypatch.setattr(Unchanged, "look", lambda *args: asked.append(1) or look(*args))
    model = refcompiler.compile(Net(10), backend="eager")
    for _ in range(5):
        model(torch.ones(2, 3)).sum().backward()
    # The parameters, and the modules: dicts have no numbers to compare on Python 3.13.
    assert len(asked) == len(memories(model)) == (2 if sys.version_info < (3, 13) else 1)
    model.layers[2].weight.requires_grad_(False)
    out = model(torch.ones(2, 3))
    assert out.requires_grad and refcompiler.counters()["captures"] == 2
    model.double()
    assert model(torch.ones(2, 3).double()).dtype == torch.float64
    assert refcompiler.counters()["captures"] == 3


LISTED: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "nothing": lambda ts: None,
    "values": lambda ts: ts[3].detach().add_(1),
    "a gradient that lies elsewhere": lambda ts: setattr(ts[2], "grad", torch.full((2, 3), 7.0)),
    "a gradient of other strides": lambda ts: setattr(ts[2], "grad", torch.ones(3, 2).t()),
    "no gradient": lambda ts: setattr(ts[4], "grad", None),
    "other memory": lambda ts: setattr(ts[5], "data", ts[5].data.clone()),
    "shared memory": lambda ts: setattr(ts[5], "data", ts[6].data.view(2, 3)),
    "one twice": lambda ts: ts.__setitem__(7, ts[8]),
    "another one, without a gradient": lambda ts: ts.__setitem__(7, nn.Parameter(torch.ones(2, 3))),
    "another dtype": lambda ts: setattr(ts[9], "data", ts[9].data.double()),
}


def test_tensors_in_lists_are_compared_together() -> None:
    """An optimizer's parameters are in lists, and their gradients are others in each step."""

    def made() -> list[torch.Tensor]:
        found = [nn.Parameter(torch.full((2, 3), float(n))) for n in range(20)]
        found += [nn.Parameter(torch.ones(2 + n)) for n in range(8)]  # no two are alike
        for parameter in found:
            parameter.grad = torch.ones_like(parameter)
        return found

    def step() -> Any:
        for parameter in tensors:
            if parameter.grad is not None:
                parameter.sub_(parameter.grad)
        return tensors[0] * 1

    seen = 0
    for name, change in LISTED.items():
        tensors = made()
        change(tensors)
        with torch.no_grad():
            step()
            step()
        wanted = [*tensors]
        tensors = made()
        refcompiler.reset()
        compiled = refcompiler.compile(step, backend="eager")
        captures = []
        with torch.no_grad():
            undo = [t.detach().clone() for t in tensors]
            for _ in range(3):
                compiled()
                captures.append(refcompiler.counters()["captures"])
            for tensor, old in zip(tensors, undo, strict=True):
                tensor.copy_(old)
            change(tensors)
            compiled()
            compiled()
        for ours, eagers in zip(tensors, wanted, strict=True):
            torch.testing.assert_close(ours, eagers, msg=name)
            seen += 1
        assert captures == [1, 1, 1], name
        same = name in ("nothing", "values", "a gradient that lies elsewhere", "other memory")
        anew = refcompiler.counters()["captures"] > 1
        assert anew is not same, name
    assert seen == 280


def test_nothing_dead_is_read_and_nothing_kept() -> None:
    """Models come and go at the addresses of others."""
    x = torch.ones(2, 3)
    for i in range(12):
        net = Net()
        if i % 3 == 1:
            net.requires_grad_(False)
        if i % 3 == 2:
            net.layers[1].weight.data = net.layers[1].weight.data.t()
        model = refcompiler.compile(net, backend="eager")
        for _ in range(2):
            torch.testing.assert_close(model(x), net(x))
            assert model(x).requires_grad is (i % 3 != 1)
        del model, net
        if i % 5 == 0:
            gc.collect()
    assert refcompiler.counters()["captures"] == 3


def test_without_a_known_layout_each_tensor_is_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unknown() -> Layout:
        raise Unknown("on purpose")

    monkeypatch.setattr(fingerprint, "find", unknown)
    monkeypatch.setattr(tags, "find_tag", unknown)
    fingerprint._layout.cache_clear()
    tags._tag.cache_clear()
    try:
        with caplog.at_level(logging.INFO, "refcompiler.perf_hints"):
            model = refcompiler.compile(Net(10), backend="eager")
            for _ in range(3):
                model(torch.ones(2, 3))
        assert len([r for r in caplog.records if "on purpose" in r.message]) == 2
        assert memories(model) == []
        model.layers[0].bias.requires_grad_(False)
        model(torch.ones(2, 3))
        assert refcompiler.counters()["captures"] == 2
    finally:
        fingerprint._layout.cache_clear()
        tags._tag.cache_clear()


# ---- dicts --------------------------------------------------------------------------------------

KEYS = ["a", "b", "c", 1, (2,)]
VALUES = [None, 1, "x", [], object(), 1.5]

#: What changes a dict; the same value at the same key is no change.
STEPS: dict[str, Callable[[dict, Any, Any], Any]] = {
    "set": lambda d, k, v: d.__setitem__(k, v),
    "delete": lambda d, k, v: d.__delitem__(k),
    "pop": lambda d, k, v: d.pop(k, None),
    "popitem": lambda d, k, v: d.popitem(),
    "clear": lambda d, k, v: d.clear(),
    "update": lambda d, k, v: d.update({k: v, "z": v}),
    "setdefault": lambda d, k, v: d.setdefault(k, v),
    "union": lambda d, k, v: d.__ior__({k: v}),
    "to the end": lambda d, k, v: d.__setitem__(k, d.pop(k)),
    "read": lambda d, k, v: (d.get(k), list(d.items()), d.copy()),
    "many": lambda d, k, v: d.update(dict.fromkeys(range(40), v)),
    "fewer": lambda d, k, v: [d.pop(i, None) for i in range(39)],
}


class Holder:
    pass


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(sorted(STEPS)),
            st.sampled_from(KEYS),
            st.integers(0, len(VALUES) - 1),
            st.booleans(),
        ),
        max_size=15,
    ),
)
def check_dicts(of_object: bool, steps: list[tuple[str, Any, int, bool]]) -> None:
    holder = Holder()
    space: dict = holder.__dict__ if of_object else {}
    dicts = (space, {"other": 1})
    known = unchanged_dicts()
    assert known is not None
    remembered: list | None = None
    for name, key, value, again in steps:
        if again or remembered is None:
            looked = known.look(dicts)
            if looked is not None:
                known.keep(dicts, looked)
                remembered = [(k, id(v)) for k, v in space.items()]
        try:
            if of_object and name == "set" and isinstance(key, str):
                setattr(holder, key, VALUES[value])
            else:
                STEPS[name](space, key, VALUES[value])
        except KeyError:
            pass
        differs = remembered is None or remembered != [(k, id(v)) for k, v in space.items()]
        assert not (differs and known(dicts)), (name, key, space)
        COUNTED["changed" if differs else "same"] += 1
        COUNTED["told"] += known(dicts)


NUMBERED = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="from 3.13 on CPython does not number dicts"
)


@NUMBERED
def test_no_change_of_a_dict_is_missed() -> None:
    COUNTED.update(changed=0, same=0, told=0)
    check_dicts()
    assert COUNTED["changed"] > 200 and COUNTED["same"] > 200 and COUNTED["told"] > 200


@NUMBERED
def test_a_place_that_is_no_number_of_the_state_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tags.find_tag() > 0
    monkeypatch.setitem(tags.CHANGES, "none", lambda space, holder: space.get("a"))
    with pytest.raises(Unknown, match="no one number"):
        tags.find_tag()


class Shadowing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
        self.scale, self.name = 2.0, "s"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) * self.scale
        return x if self.name == "s" else -x


#: What happens to a module that was entered twice.
AFTER: dict[str, Callable[[Any], Any]] = {
    "constant": lambda net: setattr(net, "scale", 3.0),
    "constant of another class": lambda net: setattr(net, "scale", 2),
    "text": lambda net: net.__dict__.update(name="t"),
    "shadowed method": lambda net: setattr(net.layers[1], "forward", lambda x: x),
    "shadowed parameter": lambda net: net.layers[1].__dict__.update(bias=torch.ones(3)),
    "hook": lambda net: net.layers[2].register_forward_hook(lambda m, a, out: out + 1),
    "one layer more": lambda net: net.layers.append(nn.Linear(3, 3)),
    "another layer": lambda net: net.layers.__setitem__(0, nn.Identity()),
    "layers in another order": lambda net: net.layers._modules.update(
        {"0": net.layers[3], "3": net.layers[0]}
    ),
    "another parameter": lambda net: setattr(net.layers[3], "bias", nn.Parameter(torch.ones(3))),
    "no bias": lambda net: setattr(net.layers[3], "bias", None),
    "other __dict__": lambda net: setattr(net, "__dict__", {**net.__dict__, "scale": 5.0}),
}


@pytest.mark.parametrize("name", AFTER)
def test_what_changes_after_it_was_remembered(name: str) -> None:
    net, x = Shadowing(), torch.ones(2, 3)
    run = refcompiler.compile(net, backend="eager")
    for _ in range(3):
        run(x)
    assert all(memory._known for memory in memories(run)) and memories(run)
    assert refcompiler.counters()["captures"] == 1
    AFTER[name](net)
    torch.testing.assert_close(run(x), net(x))
