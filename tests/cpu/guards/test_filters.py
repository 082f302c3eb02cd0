"""``guard_filter_fn``: entries with torch's fields, and ready-made filters that compose."""

import pytest
import torch

import refcompiler

FACTOR = 2


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3, bias=False)
        self.offset = 1

    def forward(self, x):
        return self.inner(x) * FACTOR + self.offset


def compiled_with(keep, module):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    made = refcompiler.compile(module, backend=backend, options={"guard_filter_fn": keep})
    return made, graphs


def all_but(entries):
    return [True for _ in entries]


X = torch.ones(2, 3)


def test_entries_have_torchs_fields():
    seen = []

    def keep(entries):
        seen.extend(entries)
        return [True] * len(entries)

    module = Scale()
    made, graphs = compiled_with(keep, module)
    with torch.no_grad():
        made(X)
        made(X)
    assert len(graphs) == 1
    by_name = {(e.name, e.guard_type): e for e in seen}
    tensors = [e for e in seen if e.guard_type == "TENSOR_MATCH"]
    assert any(e.value is X for e in tensors)
    assert any(e.value is module.inner.weight for e in tensors)
    (offset,) = [e for e in seen if e.name.endswith(".offset") and e.has_value and e.value == 1]
    assert offset.guard_type == "EQUALS_MATCH" and not offset.is_global
    assert any(e.is_global and e.value == 2 for e in seen)
    assert any(e.guard_type == "GLOBAL_STATE" and e.name == "" for e in seen)
    assert all(e.derived_guard_types and e.orig_guard.guard for e in seen) and by_name


#: filter -> what it makes a compiled module not notice
CASES = {
    "skip_all_guards_unsafe": {"size", "global", "attribute", "inner"},
    "skip_guard_on_globals_unsafe": {"global"},
    "skip_guard_on_all_nn_modules_unsafe": {"attribute", "inner"},
    "skip_guard_on_inbuilt_nn_modules_unsafe": {"inner"},
    "keep_tensor_guards_unsafe": {"global", "attribute", "inner"},
    "keep_portable_guards_unsafe": {"global", "attribute"},
}


def change(what, module, monkeypatch):
    if what == "global":
        monkeypatch.setattr(f"{__name__}.FACTOR", 5)
    if what == "attribute":
        module.offset = 7
    if what == "inner":
        module.inner.weight = torch.nn.Parameter(torch.ones(3, 3).double().float().t()[:, :])
        module.inner.weight = torch.nn.Parameter(torch.ones(3, 3), requires_grad=False)
    return torch.ones(4, 3) if what == "size" else X


@pytest.mark.parametrize("owner", [refcompiler, torch.compiler], ids=["ours", "torchs"])
@pytest.mark.parametrize("name", CASES)
def test_ready_made_filters(name, owner, monkeypatch):
    for what in ("size", "global", "attribute", "inner"):
        with monkeypatch.context() as patch, torch.no_grad():
            module = Scale()
            made, graphs = compiled_with(getattr(owner, name), module)
            made(X)
            assert len(graphs) == 1
            x = change(what, module, patch)
            if what == "inner" and name == "keep_portable_guards_unsafe":
                continue  # a parameter is a tensor, and torch's filter keeps it
            made(x)
            assert len(graphs) == (1 if what in CASES[name] else 2), what


def test_filters_compose(monkeypatch):
    def both(entries):
        first = refcompiler.skip_guard_on_globals_unsafe(entries)
        second = refcompiler.skip_guard_on_all_nn_modules_unsafe(entries)
        return [a and b for a, b in zip(first, second, strict=True)]

    with torch.no_grad():
        module = Scale()
        made, graphs = compiled_with(both, module)
        made(X)
        change("global", module, monkeypatch)
        change("attribute", module, monkeypatch)
        made(X)
        assert len(graphs) == 1
        made(torch.ones(5, 3))
        assert len(graphs) == 2


def test_a_filter_that_answers_otherwise_is_an_error():
    for keep, text in (
        (lambda entries: [True], "returns a list of as many bools, not 1"),
        (lambda entries: None, "not NoneType"),
        (lambda entries: [1] * len(entries), "as many bools"),
    ):
        made, _ = compiled_with(keep, Scale())
        with pytest.raises(TypeError, match=text), torch.no_grad():
            made(X)
    with pytest.raises(TypeError, match="guard_filter_fn takes a function, not 3"):
        refcompiler.compile(Scale(), options={"guard_filter_fn": 3})
