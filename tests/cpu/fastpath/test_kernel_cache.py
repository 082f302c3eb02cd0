"""Kernels on disk: what a later process finds there, and what it makes of damage."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import refcompiler
from fastpath.cpu import machine, objects
from fastpath.cpu.printer import Printed
from refcompiler.cache import store
from refcompiler.cache.store import Store
from refcompiler.runtime.config import config
from tests import forked

SCRIPT = """
import sys
import torch, refcompiler
from tests.cpu.fastpath.test_kernel_cache import check
from fastpath.cpu import objects

assert refcompiler.load_cache_artifacts(open(sys.argv[1], "rb").read()) is not None
check()
print(objects.made, "numba" in sys.modules)
"""


def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x * y + 1, (x - y).sum(0)


def check() -> None:
    x, y = torch.randn(8, 64), torch.randn(8, 64)
    found = refcompiler.compile(program)(x, y)
    torch.testing.assert_close(found, program(x, y))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty cache, of a process that has loaded no kernel."""
    monkeypatch.setenv("REFCOMPILER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "_compiled", {})
    found = store.current()
    assert found is not None
    return found


def made_by(run: Callable[[], None]) -> int:
    before = objects.made
    run()
    return objects.made - before


def anew(run: Callable[[], None]) -> int:
    """How many kernels are compiled by a process that has loaded none."""
    refcompiler.reset()
    machine._compiled.clear()
    return made_by(run)


def test_a_later_process_compiles_nothing(kept: Store, tmp_path: Path) -> None:
    made = anew(check)
    assert made == len(kept.entries()) >= 1
    saved = refcompiler.save_cache_artifacts()
    assert saved is not None
    assert sorted(saved[1].artifacts["kernel"]) == sorted(e.key for e in kept.entries())
    artifacts = tmp_path / "artifacts"
    artifacts.write_bytes(saved[0])
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "REFCOMPILER_CACHE_DIR": str(tmp_path / "other")}
    found = forked.fresh(script, environment, tmp_path, str(artifacts))
    assert found.stdout.split() == ["0", "False"], found.stderr


def test_what_is_left_out_of_compilations_changes_no_code(
    kept: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes of numba's, and questions of types that it was asked before."""
    from fastpath.cpu import codegen

    def math(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chosen = torch.where(x > 0, x.exp(), x[i] // 2)
        return chosen.softmax(1), torch.lgamma(x.abs()).cumsum(1), x.amax(0), i // 3

    texts: list[Printed] = []
    real = machine._compile
    monkeypatch.setattr(machine, "_compile", lambda p, s: texts.append(p) or real(p, s))
    with config.patch(compile_processes=1):
        anew(lambda: refcompiler.compile(math)(torch.rand(8, 33), torch.arange(8)))
    assert len(texts) > 1
    module = property(lambda library: lambda: str(library._final_module).encode())
    monkeypatch.setattr(codegen.KernelLibrary, "object_file", module)

    def made() -> list[bytes]:  # numba numbers the functions that it was given
        return [re.sub(rb"kernelB\d+v\d+", b"", real(printed, "kernel")) for printed in texts]

    short = made()
    asked = codegen._target().typing_context._given
    known = len(asked)
    assert known > 20 and short == made() and len(asked) == known
    monkeypatch.setattr(codegen, "_NEEDLESS", frozenset())
    monkeypatch.setattr(codegen, "KernelTyping", lambda own: own)
    monkeypatch.setattr(codegen, "KernelLowering", codegen.NativeLowering)
    monkeypatch.setattr(codegen, "_target", functools.cache(codegen._Target))
    assert short == made() and all(b"define" in code for code in short)


def test_a_damaged_kernel_is_compiled_anew(kept: Store) -> None:
    made = anew(check)
    assert anew(check) == 0
    damaged = kept.entries()[0].path
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="damaged entries"):
        assert anew(check) == 1
    assert anew(check) == 0 and len(kept.entries()) == made
    with refcompiler.config.patch(force_disable_caches=True):
        assert anew(check) == made


def test_what_is_compiled_depends_on_the_release_and_the_machine(
    kept: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = anew(check)
    for name in ("release", "source_of"):
        with monkeypatch.context() as other:
            other.setattr(objects.identity, name, lambda *packages: "another")
            objects._machine.cache_clear()
            assert anew(check) == made
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "")
    objects._machine.cache_clear()
    assert objects._machine().endswith("NUMBA_CPU_FEATURES=")
    monkeypatch.undo()
    objects._machine.cache_clear()


def test_undefined_symbols_are_those_of_other_files() -> None:
    import llvmlite.binding as llvm

    objects._engine()
    module = llvm.parse_assembly(
        "declare double @tan(double)\n"
        "declare void @no_such_function()\n"
        "define internal double @own(double %x) noinline { %y = call double @tan(double %x)\n"
        " ret double %y }\n"
        "define double @outer(double %x) { call void @no_such_function()\n"
        " %y = call double @own(double %x)\n ret double %y }\n"
    )
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    code = machine.emit_object(module)
    assert sorted(objects.undefined(code)) == ["no_such_function", "tan"]
    with pytest.raises(Exception, match="a kernel calls no_such_function"):
        objects._load(code, "outer")


def test_threads_that_want_one_kernel_get_one(kept: Store) -> None:
    found: list[int] = []

    def code(symbol: str) -> bytes:
        import llvmlite.binding as llvm

        text = f"define i64 @{symbol}() {{ ret i64 7 }}"
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        return machine.emit_object(llvm.parse_assembly(text))

    def ask() -> None:
        found.append(objects.address_of(("seven",), code))

    objects._engine()
    threads = [threading.Thread(target=ask) for _ in range(6)]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert made_by(run) == 1
    assert len(found) == 6 and len(set(found)) == 1
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(found[0])() == 7
