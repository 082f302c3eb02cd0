"""A program that was kept is not used once the module that it is from says something else.

Each change is made to the file of a module, which is imported again as another process would.
"""

from __future__ import annotations

import importlib
import itertools
import linecache
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import refcompiler
from refcompiler.runtime import shelf
from refcompiler.runtime.config import config

NAME = "a_module_that_changes"
SOURCE = """
import functools, os, torch
from torch import nn

K = 2
TABLE = {"a": 1, "b": 2}
LIST = [1, 2, 3]

class Base(nn.Module):
    scale = 3
    def pre(self, x): return x + 1
    @property
    def p(self): return 5
    @staticmethod
    def st(x): return x * 2
    @classmethod
    def cm(cls, x): return x * cls.scale

class Net(Base):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3, bias=False)
        nn.init.ones_(self.l.weight)
        self.k, self.act = 4, torch.relu
    def forward(self, x, n=2):
        x = self.pre(x) * self.p * self.scale + self.k * n
        x = self.cm(self.st(self.l(x)))
        for key, value in TABLE.items(): x = x + len(key) * value
        if os.environ.get("MODE_OF_A_TEST") == "x": x = x * 7
        return self.act(x + sum(LIST) + K + helper(x) + decorated(x) + part(x))

def helper(x, y=3, *, z=4): return x * y + z
def wrap(f):
    @functools.wraps(f)
    def g(x): return f(x) * W
    return g
W = 2
@wrap
def decorated(x): return x - 1
part = functools.partial(helper, y=9)
"""
CLASS, ACT = "class Net(Base):", "self.k, self.act = 4, torch.relu"
CHANGES: dict[str, list[tuple[str, str]]] = {
    "a global": [("K = 2", "K = 3")],
    "a value of a dict": [('"b": 2', '"b": 5')],
    "the order of a dict": [('{"a": 1, "b": 2}', '{"b": 2, "a": 1}')],
    "an item of a list": [("[1, 2, 3]", "[1, 2, 4]")],
    "an attribute of a class": [("scale = 3", "scale = 4")],
    "a method of a base": [("return x + 1", "return x + 2")],
    "a property": [("return 5", "return 6")],
    "a static method": [("return x * 2", "return x * 3")],
    "a class method": [("x * cls.scale", "x + cls.scale")],
    "an attribute": [("self.act = 4", "self.act = 5")],
    "a function in C": [("torch.relu", "torch.tanh")],
    "a default": [("y=3", "y=30")],
    "a default by name": [("z=4", "z=40")],
    "a wrapper": [("f(x) * W", "f(x) + W")],
    "what is wrapped": [("x - 1", "x - 10")],
    "what a wrapper reads": [("W = 2", "W = 5")],
    "a partial": [("y=9", "y=90")],
    "a default of the program": [("n=2", "n=3")],
    "an override": [(CLASS, f"{CLASS}\n    def pre(self, x): return x + 100")],
    "a class between": [(CLASS, "class Mid(Base):\n    scale = 9\nclass Net(Mid):")],
    "how attributes are read": [
        (
            CLASS,
            f"{CLASS}\n    def __getattribute__(self, name):\n        v = super()."
            '__getattribute__(name)\n        return v + 1 if name == "k" else v',
        )
    ],
    "a hook": [(ACT, f"{ACT}; self.l.register_forward_hook(lambda m, a, out: out * 11)")],
    "a dtype": [(ACT, f"{ACT}; self.double()")],
    "the class of a part": [
        ("nn.Linear(3", "Lin(3"),
        (
            CLASS,
            "class Lin(nn.Linear):\n    def forward(self, x): return super().forward(x) * 2\n"
            + CLASS,
        ),
    ],
    "no property": [("    @property\n    def p(self): return 5", "    p = 5")],
    "the environment": [],
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the module is; the cache has no programs for this environment."""
    monkeypatch.setenv("TORCH_ENVIRONMENT_OF_A_TEST", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with config.patch(cache_programs=True):
        yield tmp_path
    sys.modules.pop(NAME, None)


def run(place: Path, source: str) -> tuple[int, int]:
    """The module's program, compared with eager, and how many were found and captured."""
    (place / f"{NAME}.py").write_text(source, encoding="utf-8")
    sys.modules.pop(NAME, None)
    importlib.invalidate_caches()
    linecache.clearcache()
    refcompiler.reset()
    net = importlib.import_module(NAME).Net()
    x = torch.ones(2, 3, dtype=net.l.weight.dtype)
    with torch.no_grad():
        found = refcompiler.compile(net, backend="eager")(x)
        assert torch.equal(found, net(x))
    known = refcompiler.counters()
    return known["loaded"], known["captures"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_module_is_captured_anew(
    change: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(place, SOURCE) == (0, 1)
    changed = SOURCE
    for old, new in CHANGES[change]:
        assert old in changed
        changed = changed.replace(old, new, 1)
    if change == "the environment":
        monkeypatch.setenv("MODE_OF_A_TEST", "x")
    assert run(place, changed) == (0, 1)
    monkeypatch.delenv("MODE_OF_A_TEST", raising=False)
    assert run(place, SOURCE) == (1, 0)


def test_an_environment_is_what_its_packages_record(tmp_path: Path) -> None:
    def noted(*lines: str) -> str:
        (record / "RECORD").write_text("\n".join(lines))
        return shelf._packages(str(tmp_path), next(changes))

    changes = itertools.count()
    record = tmp_path / "some-1.0.dist-info"
    record.mkdir()
    first, script = "some/a.py,sha256=x,5", "../../bin/some,sha256=y,9"
    known = noted(first, script, "some/__pycache__/a.pyc,,", "some-1.0.dist-info/RECORD,,")
    # another place of the environment, another order, and no compiled files
    assert noted("../../bin/some,sha256=z,9", first, "some-1.0.dist-info/INSTALLER,h,4") == known
    assert noted("some/a.py,sha256=w,5", script) != known
    other = tmp_path / "other-2.0.dist-info"
    other.mkdir()
    assert noted(first, script) != known
    other.rmdir()
    assert noted(first, script) == known
    (tmp_path / "some").mkdir()
    assert noted(first, script) == known
    copied = tmp_path / "copied"  # which no installer knows of
    copied.mkdir()
    before = noted(first, script)
    os.utime(copied, ns=(5, 5))
    assert before != known and noted(first, script) not in (before, known)
