"""What a process imports for its first compiled call."""

import os
import textwrap

import pytest

from tests import forked

CALL = """
import sys
import torch
import refcompiler

layers = torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
model = torch.nn.Sequential(*layers).train({training})
call = refcompiler.compile(model, fullgraph=True)
with torch.set_grad_enabled({training}):
    loss = call(torch.randn(3, 8)).sum()
if {training}:
    loss.backward()
    assert model[0].weight.grad is not None
assert "numba" in sys.modules
print([name for name in ("torch._dynamo", "torch._inductor", "triton") if name in sys.modules])
"""

ASKED = """
import sys
import warnings
import torch
import refcompiler

warnings.simplefilter("error")

def exported(x):
    return x if torch.onnx.is_in_onnx_export() else x * 2

def broken(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + hasattr(torch, "_export") + hasattr(torch, "_nonesuch")

assert not {"torch.onnx", "torch._dynamo"} & sys.modules.keys()
for function, breaks in ((exported, False), (broken, True)):
    call = refcompiler.compile(function, backend="eager", fullgraph=not breaks)
    print(call(torch.ones(2)).tolist(), call(torch.ones(2)).tolist())
"""


def _printed(program, folder):
    script = folder / "script.py"
    script.write_text(textwrap.dedent(program))
    environment = {**os.environ, "REFCOMPILER_CACHE_DIR": str(folder / "cache")}
    done = forked.fresh(script, environment, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("training", [False, True])
def test_torchs_compiler_stays_out(training, tmp_path):
    """Its import is a third of a first call; nothing here asks it anything."""
    assert _printed(CALL.format(training=training), tmp_path) == "[]\n"


def test_modules_that_torch_imports_when_they_are_asked_for(tmp_path):
    """They are attributes of torch from then on, and no guard says that they are absent."""
    assert _printed(ASKED, tmp_path) == "[2.0, 2.0] [2.0, 2.0]\n[3.0, 3.0] [3.0, 3.0]\n"
