"""A program compiled in one process, and run in another that compiles nothing.

python examples/package.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import refcompiler


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.nn.functional.gelu(self.first(x)))


def save(path: str) -> None:
    program = refcompiler.compile(Net()).aot_compile(((torch.randn(8, 16),), {}))
    program.save_compiled_function(path)


def load(path: str) -> None:
    with open(path, "rb") as file:
        program = refcompiler.load_compiled_function(file)
    net, x = Net(), torch.randn(8, 16)
    found = program(net, x)
    torch.testing.assert_close(found, net(x))
    found.sum().backward()  # its backward is in the package, too
    print("captured:", refcompiler.counters()["captures"], "numba:", "numba" in sys.modules)
    try:
        program(net, x[:2])
    except refcompiler.errors.RecompileError as error:
        print(error)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        load(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "net.pkg")
            save(path)
            subprocess.run([sys.executable, __file__, path], check=True)
