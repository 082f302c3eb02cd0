"""The package can be imported whatever of torch was imported before."""

import os
import subprocess
import sys

import pytest

from tests import forked

PROGRAM = """
import {first}
import torch
import refcompiler

parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.AdamW([parameter])
(parameter * 2).sum().backward()
refcompiler.compile(optimizer.step, backend="eager")()
assert parameter.tolist() != [1.0, 1.0]
print(float(refcompiler.compile(lambda x: x * 2, backend="eager")(torch.ones(2)).sum()))
"""


@pytest.mark.parametrize(
    "first", ["refcompiler", "torch._dynamo", "torch._inductor.compile_fx", "fastpath", "numpy"]
)
def test_whatever_comes_first(first, tmp_path):
    program = PROGRAM.format(first=first)
    if first in ("refcompiler", "fastpath"):  # before torch
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True)
    else:
        script = tmp_path / "script.py"
        script.write_text(program)
        done = forked.fresh(script, os.environ, tmp_path)
    assert done.returncode == 0 and done.stdout == "4.0\n", done.stderr
