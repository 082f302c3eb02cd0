"""Every Triton text compiles for a GPU (which needs none), and means what its row says."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests import forked
from tests.cpu.specs import triton_source

pytest.importorskip("triton")


@pytest.mark.parametrize("dtype", triton_source.computing_dtypes())
def test_every_triton_text_compiles_for_sm90(dtype: str, tmp_path: Path) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    chosen = triton_source.texts(dtype)
    path = tmp_path / f"texts_{dtype}.py"
    path.write_text(triton_source.HEADER + triton_source.kernel("texts", chosen))
    spec = importlib.util.spec_from_file_location(f"texts_{dtype}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = ASTSource(module.texts, triton_source.signature(dtype, chosen), {})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert compiled.asm["cubin"]
    assert compiled.asm["ptx"].count("st.global") >= len(chosen)
    assert len(chosen) >= 15


def test_triton_texts_mean_what_their_rows_say(tmp_path: Path) -> None:
    script = Path(__file__).with_name("interpret_triton.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = forked.fresh(script, environment, tmp_path, str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 5000
