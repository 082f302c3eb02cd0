"""What a process imports for its first compiled call."""

import os
import textwrap

import pytest

from tests import forked

CALL = """
import sys
import torch
import refcompiler

class Few(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.told = torch.nn.Linear(36, 4)

    def forward(self, images, classes):
        seen = self.norm(self.first(images)).relu_()
        return torch.nn.functional.cross_entropy(self.told(seen.flatten(1)), classes)

class Many(Few):
    def __init__(self):
        super().__init__()
        self.group, self.layer = torch.nn.GroupNorm(2, 4), torch.nn.LayerNorm(4)

    def forward(self, images, classes):
        gelu, dropout = torch.nn.functional.gelu, torch.nn.functional.dropout
        seen = gelu(self.group(self.norm(self.first(images)))).flatten(1)
        told = self.layer(self.told(seen).mul_(2).tanh_())
        scores = dropout(told.softmax(-1).log(), 0.1, self.training)
        return torch.nn.functional.cross_entropy(scores, classes)

model = {model}().train({training})
call = refcompiler.compile(model, backend="{backend}", fullgraph=True)
with torch.set_grad_enabled({training}):
    loss = call(torch.randn(2, 3, 5, 5), torch.tensor([1, 3]))
if {training}:
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
if "{backend}" == "fastpath":
    import fastpath
    assert fastpath.last_report().kernels
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
@pytest.mark.parametrize("backend, model", [("fastpath", "Few"), ("aot_eager", "Many")])
def test_torchs_compiler_stays_out(training, backend, model, tmp_path):
    """Its import is a third of a first call; nothing here asks it anything."""
    assert (
        _printed(CALL.format(training=training, backend=backend, model=model), tmp_path) == "[]\n"
    )


def test_modules_that_torch_imports_when_they_are_asked_for(tmp_path):
    """They are attributes of torch from then on, and no guard says that they are absent."""
    assert _printed(ASKED, tmp_path) == "[2.0, 2.0] [2.0, 2.0]\n[3.0, 3.0] [3.0, 3.0]\n"
