"""Packages: saved in one process, loaded in another, which captures and compiles nothing."""

from __future__ import annotations

import copy
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import refcompiler
from refcompiler.errors import (
    GraphBreakError,
    PackageError,
    RecompileError,
    UnsupportedError,
)
from refcompiler.package import format as format_
from refcompiler.package.rows import HERE
from tests import forked
from tests.cpu.frontend.packaged import SCALE, Block, Pair, scaled
from tests.cpu.frontend.packaged import helper as HELPER

BACKENDS = ("eager", "aot_eager", "fastpath")
CALLS: list[int] = []
SETTINGS = {"factor": 2}

SCRIPT = """
import sys
import torch, refcompiler
from fastpath.cpu import objects
from tests.cpu.frontend.packaged import Block, scaled

def loaded(path):
    with open(path, "rb") as file:
        return refcompiler.load_compiled_function(file)

torch.manual_seed(7)
x = torch.randn(6, 8, requires_grad=True)
one, many = loaded(sys.argv[1]), loaded(sys.argv[2])
compared = 0
for size in (6, 3):
    found, expected = many(x[:size], n=3), scaled(x[:size], n=3)
    torch.testing.assert_close(found, expected)
    compared += 1
torch.manual_seed(3)
module = Block()
other = Block()
other.load_state_dict(module.state_dict())
torch.testing.assert_close(one(module, x), other(x))
for run, of in ((one, module), (Block.__call__, other)):
    run(of, x).square().mean().backward()
for (name, p), q in zip(module.named_parameters(), other.parameters()):
    torch.testing.assert_close(p.grad, q.grad)
    compared += 1
for a, b in zip(module.buffers(), other.buffers()):
    torch.testing.assert_close(a, b)
    compared += 1
try:
    many(x.double(), n=3)
except refcompiler.errors.RecompileError as error:
    print(error)
counted = refcompiler.counters()
print(counted["captures"], counted["graphs"], objects.made, "numba" in sys.modules, compared)
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    refcompiler.reset()
    yield
    refcompiler.reset()


def packed(model: Callable, *args: Any, backend: str = "eager", **more: Any) -> bytes:
    compiled = refcompiler.compile(model, backend=backend, dynamic=more.pop("dynamic", None))
    return compiled.aot_compile((args, {})).serialize(more.pop("external", None))


def opened(data: bytes, **given: Any) -> Any:
    return refcompiler.load_compiled_function(io.BytesIO(data), **given)


def test_another_process_captures_and_compiles_nothing(tmp_path: Path) -> None:
    module, x = Block(), torch.randn(6, 8, requires_grad=True)
    one = refcompiler.compile(module).aot_compile(((x,), {}))
    one.save_compiled_function(tmp_path / "one")
    many = refcompiler.compile(scaled, dynamic=True).aot_compile(((x,), {"n": 3}))
    many.save_compiled_function(str(tmp_path / "many"))
    assert sorted(os.listdir(tmp_path)) == ["many", "one"]
    environment = {**os.environ, "REFCOMPILER_CACHE_DIR": str(tmp_path / "empty")}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = forked.fresh(script, environment, tmp_path, "one", "many")
    assert done.returncode == 0, done.stderr
    guard, counted = done.stdout.splitlines()
    assert "scaled was compiled ahead of time, and not for this call" in guard
    assert "tensor x" in guard and "torch.float64" in guard
    assert counted == f"0 0 0 False {2 + len([*module.parameters()]) + len([*module.buffers()])}"


# ---- what a loaded program does is what eager does -----------------------------------------------


def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    return y, y[1:], y.view(-1), x.t()


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    y[0] = 3.0
    return x.sum(1)


def doubles(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.mul_(2)
    return x + 1


def keeps(x: torch.Tensor) -> dict[str, Any]:
    CALLS.append(x.shape[0])
    return {"y": x * SETTINGS["factor"] * SCALE, "n": [None, 1.5, x.dtype], "p": Pair(x, x + 1)}


def draws(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5, True) + torch.randn(64, 32)


def parts(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = torch.tanh(x @ w)
    return h.sum(), (h * h).mean()


def looks_up(w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return F.embedding(i, w) * 2


def casts(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ w + 1


def products(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = (x @ w).relu()
    return h, (h @ w).sum()


@pytest.mark.parametrize("under", [False, True])
def test_backwards_under_autocast(under: bool) -> None:
    """Of a program that was compiled under it; of another, where eager's would cast, an error."""
    torch.manual_seed(0)
    w = torch.randn(8, 8, requires_grad=True)

    def autocast(on: bool) -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=on)

    compiled = refcompiler.compile(products, fullgraph=True, backend="aot_eager")
    with autocast(under):
        program = compiled.aot_compile(((torch.randn(4, 8), w), {}))
    loaded = refcompiler.load_compiled_function(io.BytesIO(program.serialize()))
    for inside, end in itertools.product((False, True), (slice(0, 2), slice(1, 2))):
        x, found = torch.randn(4, 8), []
        for run in (loaded, products):
            with autocast(under):
                loss = sum(t.square().sum() for t in run(x, w)[end])
            with autocast(inside):
                if run is loaded and inside and not under:
                    with pytest.raises(UnsupportedError, match="no backward under autocast"):
                        torch.autograd.grad(loss, w)
                    continue
                found += torch.autograd.grad(loss, w)
        assert len(found) == 1 + (under or not inside) and torch.equal(found[0], found[-1])


def gathers(t: Any, places: Any) -> Any:
    return t.gather(1, places) * 2


def floats(size: int, *more: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(size, *more).requires_grad_()


def plain(*sizes: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*sizes)


PROGRAMS: dict[str, tuple[Callable, list[Callable[[], Any]]]] = {
    "views": (views, [floats(4, 4)]),
    "writes": (writes, [plain(3, 4), plain(3, 4)]),
    "keeps": (keeps, [plain(3)]),
    "draws": (draws, [floats(64, 32)]),
    "parts": (parts, [floats(3, 4), floats(4, 4)]),
    "looks_up": (looks_up, [floats(9, 4), lambda: torch.randint(9, (5,))]),
    "casts": (casts, [floats(3, 4), floats(4, 4)]),
}


def seen(run: Callable, given: list[Any]) -> list[Any]:
    """All that shows of a call and its backward."""
    torch.manual_seed(5)
    CALLS.clear()
    results = torch.utils._pytree.tree_leaves(run(*given))
    tensors = [t for t in results if isinstance(t, torch.Tensor)]
    found = [t for t in tensors if t.requires_grad]
    leaves = [t for t in given if t.requires_grad]
    if found:
        torch.stack([t.float().sum() for t in found]).sum().backward()
    every = [*tensors, *given]
    shared = [
        [a.untyped_storage()._cdata == b.untyped_storage()._cdata for a in every] for b in every
    ]
    known = [(t.dtype, t.stride(), t.requires_grad, t._is_view()) for t in every]
    rest = [r for r in results if not isinstance(r, torch.Tensor)]
    values = [t.detach().clone() for t in every] + [t.grad for t in leaves]
    return [values, shared, known, rest, list(CALLS), torch.get_rng_state()]


@pytest.mark.parametrize(
    "name, backend",
    [
        *[(name, backend) for name in PROGRAMS for backend in ("eager", "fastpath")],
        *[(name, "aot_eager") for name in ("views", "writes", "parts")],
    ],
)
def test_a_loaded_program_is_eager(name: str, backend: str) -> None:
    program, makes = PROGRAMS[name]
    loaded = opened(packed(program, *[make() for make in makes], backend=backend))
    before, compared = refcompiler.counters()["captures"], 0
    for seed in (1, 2):
        torch.manual_seed(seed)
        given = [make() for make in makes]
        twins = [t.detach().clone().requires_grad_(t.requires_grad) for t in given]
        expected, found = seen(program, given), seen(loaded, twins)
        for a, b in zip(found[0], expected[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-4)
            compared += 1
        assert found[1:5] == expected[1:5] and found[5].equal(expected[5])
    counted = refcompiler.counters()
    assert counted["captures"] == before and not counted["uncompiled"] and compared >= 4


@pytest.mark.parametrize("backend", ("aot_eager", "fastpath"))
def test_each_set_of_gradients_has_its_backward(backend: str) -> None:
    x, w = torch.randn(3, 4), torch.randn(4, 4)
    loaded = opened(packed(parts, x.requires_grad_(), w.requires_grad_(), backend=backend))
    compared = 0
    for chosen in (0, 1):
        found = torch.autograd.grad(loaded(x, w)[chosen], (x, w))
        for a, b in zip(found, torch.autograd.grad(parts(x, w)[chosen], (x, w)), strict=True):
            torch.testing.assert_close(a, b)
            compared += 1
    assert compared == 4


def test_a_write_to_what_eager_saves_is_its_error() -> None:
    """Also to what the package's backward does not read."""
    x, places = torch.randn(3, 4, requires_grad=True), torch.tensor([[0], [1], [2]])
    loaded = opened(packed(gathers, x, places, backend="aot_eager"))
    told = []
    for run in (gathers, loaded):
        given = x.detach().clone().requires_grad_()
        result = run(given, places)
        with torch.no_grad():
            given.add_(1)
        with pytest.raises(RuntimeError) as error:
            result.sum().backward()
        told.append(str(error.value))
    assert told[0] == told[1] and "modified by an inplace operation" in told[0]


def test_inputs_that_overlap_run_the_packages_graph() -> None:
    first = torch.randn(16)
    loaded = opened(packed(doubles, first[:8], first[8:], backend="aot_eager"))
    memory, other = torch.arange(16.0), torch.arange(16.0)
    found = loaded(memory[:8], memory[4:12])
    expected = doubles(other[:8], other[4:12])
    assert found.equal(expected) and memory.equal(other)
    with pytest.raises(RecompileError, match="in storages"):
        loaded(memory[:8], torch.ones(8))


def test_positions_beyond_the_end_are_eagers_error() -> None:
    w, i = torch.randn(9, 4), torch.tensor([1, 9])
    loaded = opened(packed(looks_up, w, torch.tensor([0, 1]), backend="fastpath"))
    with pytest.raises(IndexError) as expected:
        looks_up(w, i)
    with pytest.raises(IndexError, match=str(expected.value)):
        loaded(w, i)
    assert loaded(w, i - 1).equal(looks_up(w, i - 1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_size_in_one_package(backend: str) -> None:
    loaded = opened(packed(scaled, torch.randn(5, 8), backend=backend, dynamic=True))
    compared = 0
    for size in (2, 5, 11):
        x = torch.randn(size, 8)
        torch.testing.assert_close(loaded(x), scaled(x))
        compared += 1
    assert compared == 3 and {"SIZED", "RELATION"} & {guard.kind for guard in loaded.guards}
    with pytest.raises(RecompileError, match="x: expected Tensor of"):
        loaded(torch.randn(8))


def test_what_was_compiled_can_be_asked_and_saved_again() -> None:
    compiled = refcompiler.compile(scaled, backend="fastpath").aot_compile(
        ((torch.ones(2, 8),), {})
    )
    assert refcompiler.counters()["captures"] == 1
    x = torch.randn(2, 8)
    torch.testing.assert_close(compiled(x), scaled(x))
    first = opened(compiled.serialize())
    again = opened(first.serialize())
    torch.testing.assert_close(again(x), scaled(x))
    assert again.guard_check(x) and not again.guard_check(x, n=4)
    assert "n: expected" in (again.explain(x, n=4) or "") and again.explain(x) is None
    assert [n.name for n in again.graph.graph.nodes] == [n.name for n in compiled.graph.graph.nodes]
    assert again.source.count("\n") and [g.kind for g in again.guards] == [
        g.kind for g in compiled.guards
    ]
    again.disable_guard_check()
    torch.testing.assert_close(again(x, n=4), scaled(x))
    with pytest.raises(UnsupportedError, match="save_compiled_function"):
        copy.copy(again)
    assert refcompiler.counters()["captures"] == 1


def test_a_method_and_a_callable_object_are_given_their_object() -> None:
    block, x = Block().eval(), torch.randn(2, 8)
    forward = opened(packed(block.forward, x))
    torch.testing.assert_close(forward(block, x), block(x))
    other = Block().eval()
    torch.testing.assert_close(forward(other, x), other(x))
    with pytest.raises(RecompileError, match="training"):
        forward(Block(), x)


def test_an_export_is_saved_like_that() -> None:
    found = refcompiler.export(scaled, (torch.ones(2, 8),))
    stream = io.BytesIO()
    stream.write(found.serialize())
    x = torch.randn(2, 8)
    torch.testing.assert_close(opened(stream.getvalue())(x), found(x))


# ---- what is refused -----------------------------------------------------------------------------


def closed(k: float) -> Callable:
    return lambda x: x * k


def prints(x: torch.Tensor) -> torch.Tensor:
    print("here")
    return x + 1


@pytest.mark.parametrize(
    "model, error, text",
    [
        (prints, GraphBreakError, r"print(.|\n)*test_packages\.py:\d+ in prints"),
        (lambda x: x * SETTINGS["factor"], None, ""),
        (
            closed(2.0),
            UnsupportedError,
            "no module has under its name.*external_data.*test_packages",
        ),
    ],
)
def test_what_cannot_be_packaged_is_told_when_it_is_saved(
    model: Any, error: Any, text: str
) -> None:
    if error is None:  # nothing is read from the function itself
        data = packed(model, torch.ones(2))
        assert opened(data)(torch.ones(2)).equal(torch.full((2,), 2.0))
        return
    with pytest.raises(error, match=text):
        packed(model, torch.ones(2))


def test_code_of_another_backend_is_named() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        return lambda *given: graph(*given)

    compiled = refcompiler.compile(scaled, backend=backend)
    made = compiled.aot_compile(((torch.ones(2, 8),), {}))
    text = "scaled cannot be packaged: what the backend made has .*lambda.*packaged.py:"
    with pytest.raises(UnsupportedError, match=text):
        made.serialize()
    torch.testing.assert_close(made(torch.ones(2, 8)), scaled(torch.ones(2, 8)))


def test_objects_that_are_given_again() -> None:
    function = closed(2.0)
    data = packed(function, torch.ones(2), external={"f": function})
    with pytest.raises(PackageError, match=r"needs external_data\['f'\]"):
        opened(data)
    with pytest.raises(PackageError, match="its code has changed"):
        opened(data, external_data={"f": lambda x: x + 1})
    loaded = opened(data, external_data={"f": closed(2.0)})
    assert loaded(torch.ones(2)).equal(torch.full((2,), 2.0))
    with pytest.raises(RecompileError, match=r"expected 2\.0"):
        opened(data, external_data={"f": closed(3.0)})(torch.ones(2))


@pytest.mark.parametrize("given", [None, (torch.ones(2),), ((torch.ones(2),), [])])
def test_example_inputs_are_a_pair(given: Any) -> None:
    with pytest.raises(TypeError, match="a pair of a tuple of arguments and a dict"):
        refcompiler.compile(scaled).aot_compile(given)


def with_a_parameter(x):
    made = torch.nn.Parameter(torch.ones(8))
    return made, made * x


def test_parameters_are_made_by_each_call_of_a_package() -> None:
    loaded = opened(packed(with_a_parameter, torch.ones(2, 8)))
    (first, _), (second, y) = loaded(torch.ones(2, 8)), loaded(torch.ones(2, 8) * 3)
    y.sum().backward()
    assert type(first) is torch.nn.Parameter and first is not second and first.grad is None
    assert first.tolist() == [1.0] * 8 and second.grad.tolist() == [6.0] * 8


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package() -> bytes:
    return packed(scaled, torch.ones(2, 8))


def test_a_damaged_file_is_one_error(package: bytes) -> None:
    tried = 0
    for at in range(0, len(package), 97):
        changed = bytearray(package)
        changed[at] ^= 0x10
        with pytest.raises(PackageError, match="damaged|no package|cut off|format"):
            opened(bytes(changed))
        tried += 1
    for size in (0, 10, 30, 70, len(package) - 1):
        with pytest.raises(PackageError, match="cut off|no package"):
            opened(package[:size])
        tried += 1
    assert tried > 20
    with pytest.raises(PackageError, match=f"format 9; this release reads {format_.FORMAT}"):
        opened(package.replace(b"package %d\n" % format_.FORMAT, b"package 9\n", 1))
    with pytest.raises(TypeError, match="open for reading bytes"):
        refcompiler.load_compiled_function("path")


@pytest.mark.parametrize("label", ["torch", "Python", "refcompiler", "the machine"])
def test_other_versions_are_named(
    package: bytes, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HERE, label, lambda: "another")
    with pytest.raises(PackageError, match=f"made with {label} .*, and this is another"):
        opened(package)


def test_other_processors_and_sources_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastpath import packaging

    data = packed(scaled, torch.ones(2, 8), backend="fastpath")
    monkeypatch.setattr(packaging, "_features", lambda: ["sse2"])
    with pytest.raises(PackageError, match="kernels for processors with .*; this one has not"):
        opened(data)
    monkeypatch.undo()
    monkeypatch.setitem(HERE, "the source of fastpath", lambda: "another")
    with pytest.raises(PackageError, match="another version of the source of fastpath"):
        opened(data)


def test_changed_code_is_named(package: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cpu.frontend import packaged

    def helper(x: torch.Tensor) -> torch.Tensor:
        return x * 5

    monkeypatch.setattr(packaged, "helper", helper)
    with pytest.raises(PackageError, match="another tests.cpu.frontend.packaged.helper: its code"):
        opened(package)
    monkeypatch.delattr(packaged, "helper")
    with pytest.raises(PackageError, match="needs tests.cpu.frontend.packaged.helper"):
        opened(package)
    space = {**vars(packaged), "helper": HELPER}
    x = torch.randn(2, 8)
    found = opened(package, f_globals=space)
    monkeypatch.undo()
    torch.testing.assert_close(found(x), scaled(x))
    space["SCALE"] = 2.0
    with pytest.raises(RecompileError, match=r"SCALE: expected 1\.5, found 2\.0"):
        found(x)


def test_changed_methods_programs_and_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 8)
    block, root = packed(Block().eval(), x), packed(scaled, x)

    def another(*args: Any) -> Any:
        return args[-1] * 3

    changes: list[tuple[bytes, Any, str, Any]] = [
        (block, Block, "forward", another),
        (block, F, "gelu", another),
        (block, nn.Linear, "forward", another),
        (root, sys.modules[scaled.__module__], "scaled", another),
        (root, torch, "softmax", another),
    ]
    for data, owner, name, value in changes:
        opened(data)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            with pytest.raises(PackageError, match=rf"{name}.*(has changed|here it is .*another)"):
                opened(data)


def test_rows_of_other_kinds_and_texts_are_refused(package: bytes) -> None:
    head, blobs = format_.decoded(package, "it")
    held = [bytes(blob) for blob in blobs]

    def changed(change: Callable[[dict[str, Any]], Any]) -> bytes:
        other = copy.deepcopy(head)
        change(other)
        return format_.encoded(other, held)

    def body(text: str) -> Callable[[dict[str, Any]], Any]:
        return lambda head: head["plan"][7].insert(0, text)

    for change, text in (
        (lambda head: head["rows"].__setitem__(0, ["pickle", "x"]), "does not know"),
        (lambda head: head.pop("rows"), "malformed"),
        (body("import os"), "has a Import"),
        (body("x = open('a')"), "names open"),
        (body("x.__subclasses__()"), "asks for __subclasses__"),
        (body("getattr(x, '__subclasses__')"), "asks for __subclasses__"),
    ):
        with pytest.raises(PackageError, match=text):
            opened(changed(change))
    assert opened(changed(lambda head: None))(torch.ones(2, 8)).shape == (2, 8)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    place = tmp_path / "package"
    format_.write(place, b"old")
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        format_.write(place, b"new")
    assert place.read_bytes() == b"old" and os.listdir(tmp_path) == ["package"]
    with pytest.raises(FileNotFoundError) as refused:
        format_.write(tmp_path / "none" / "package", b"new")
    assert refused.value.filename == str(tmp_path / "none" / "package")
