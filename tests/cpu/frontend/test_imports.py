"""The package can be imported whatever of torch was imported before."""

import subprocess
import sys

import pytest

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
def test_whatever_comes_first(first):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == "4.0\n", done.stderr
