"""`refcompiler.compile` in place of `torch.compile`: a function, a module, and what is noticed."""

import torch

import refcompiler


@refcompiler.compile
def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * y + x)


def main() -> None:
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    torch.testing.assert_close(f(x, y), torch.relu(x * y + x))

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
    compiled = refcompiler.compile(model.eval(), fullgraph=True)
    with torch.no_grad():
        batch = torch.randn(4, 8)
        torch.testing.assert_close(compiled(batch), model(batch))
        # A compiled module is still the module: weights loaded later are the ones that are used.
        compiled.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})
        torch.testing.assert_close(compiled(batch), model(batch))
        # Another dtype is another graph; what was compiled before stays.
        model.double()
        torch.testing.assert_close(compiled(batch.double()), model(batch.double()))
    counted = ", ".join(f"{name} {count}" for name, count in refcompiler.counters().items())
    print("equal to eager;", counted)


if __name__ == "__main__":
    main()
