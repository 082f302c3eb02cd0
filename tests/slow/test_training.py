"""A sample of the training curves: python -m tests.slow.batteries.training runs all of them."""

from __future__ import annotations

from tests.slow.batteries.training import FAMILIES, OPTIMIZERS, run

# It breaks between its layers, which all read the encoder's result: eager adds up the gradients of
# all reads one by one, a compiled graph those of its own first.
ROUNDED = ("M2M100",)


def test_curves_are_eagers_bits() -> None:
    names = [name for name in FAMILIES[::3] if name not in ROUNDED]
    results = run(names, "aot_eager", steps=20)
    trained = [r for r in results if not r.against.startswith("eager refuses")]
    assert len({r.family for r in trained}) >= 25
    assert len(trained) >= 25 * len(OPTIMIZERS)
    assert not [r for r in trained if not r.good]
    graphs = sum(r.graphs for r in trained)
    assert sum(len(r.uncompiled) for r in trained) <= 0.05 * graphs
