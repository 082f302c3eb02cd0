"""The fast path as a backend of `torch.compile`: torch finds it by name, with nothing imported."""

import torch


def main() -> None:
    model = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    compiled = torch.compile(model, backend="fastpath")
    with torch.no_grad():
        for length in (7, 7, 12):
            x = torch.randn(2, length, 32)
            torch.testing.assert_close(compiled(x), model(x))
    print("equal to eager under", torch.compile.__module__ + ".compile with fastpath")


if __name__ == "__main__":
    main()
