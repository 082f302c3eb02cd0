"""The suite ``models``: real models, each with histories that compiled code has to survive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.case import (
    Call,
    Case,
    Change,
    Compiles,
    Drawn,
    Program,
    Step,
    Storage,
    Tensor,
    Tolerance,
)
from conformance.suites.suite import Family

PROGRAMS = Path(__file__).parent.parent / "programs"
YES, NO, ANY = Compiles.YES, Compiles.NO, Compiles.ANY

# Whole models mix everything with everything; single roundings are not theirs to keep.
TOLERANCE = Tolerance(2.0, conditioned=True, mixing=True)


@dataclass(frozen=True)
class Model:
    """A program of :data:`PROGRAMS`, the shape of its input ``x``, and more shapes to call it with.

    ``tokens``: the input holds integers below that number. ``attribute``: a statement that changes
    an attribute on which the result depends. ``trains``: it computes differently in training mode,
    without random numbers.
    """

    name: str
    shape: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    tokens: int = 0
    attribute: str = ""
    trains: bool = False
    backward: bool = False
    needs: tuple[str, ...] = ()


MODELS = (
    Model(
        "transformer_encoder",
        (2, 7, 32),
        shapes=((2, 9, 32), (2, 11, 32)),
        attribute="model.layers[0].norm1.eps = 0.5",
    ),
    Model("resnet18", (2, 3, 64, 64), attribute="model.stem[1].eps = 0.5"),
    Model(
        "gpt2",
        (2, 9),
        shapes=((2, 12), (2, 17)),
        tokens=97,
        attribute="model.transformer.ln_f.eps = 0.5",
        needs=("transformers",),
    ),
    Model(
        "bert",
        (2, 9),
        shapes=((2, 12), (2, 17)),
        tokens=97,
        attribute="model.embeddings.LayerNorm.eps = 0.5",
        needs=("transformers",),
    ),
    Model(
        "mlp",
        (5, 16),
        shapes=((7, 16), (3, 16)),
        attribute="model.scale = -1.5",
        backward=True,
    ),
    Model("cnn", (2, 3, 8, 8), shapes=((3, 3, 8, 8),), attribute="model.bn.eps = 0.5", trains=True),
    Model("rnn", (3, 4, 12), shapes=((5, 4, 12),)),
)


def families(device: str) -> Iterator[Family]:
    """One family per model and history."""
    for model in MODELS:
        for variant, history in histories(model):
            yield _family(model.name, variant, _program(model), _inputs(model), history, device)
    for variant, history in MLP_HISTORIES:
        yield _family("mlp", variant, _program(MODELS[4]), _inputs(MODELS[4]), history, device)
    counter = Model("counter", (3, 4))
    for variant, history in COUNTER_HISTORIES:
        yield _family("counter", variant, _program(counter), _inputs(counter), history, device)


def histories(model: Model) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """What is done to every model, as far as it applies."""
    yield "second call", (_call(YES), _call(NO), _call(NO, "x2"))
    recast = "model.to(torch.float64)"
    recast += "" if model.tokens else "\nx = x.to(torch.float64)"
    yield "new dtype", (_call(YES), Change(recast), _call(YES), _call(NO))
    if model.attribute:
        yield "attribute", (_call(YES), Change(model.attribute), _call(ANY), _call(NO))
    if model.shapes:
        more = [_call(ANY, f"y{n}") for n in range(len(model.shapes))]
        yield "new shape", (_call(YES), *more, _call(ANY))
    if model.trains:
        train = (Change("model.train()"), _call(ANY), _call(NO), Change("model.eval()"))
        yield "train and eval", (_call(YES), *train, _call(ANY))
    if model.backward:
        step = "f(x)"
        yield (
            "gradients",
            (
                Call(step, YES, backward=True),
                Call(step, NO, backward=True),
            ),
        )


MLP_HISTORIES: tuple[tuple[str, tuple[Step, ...]], ...] = (
    (
        "weights in place",
        (
            Call("f(x)", YES, "no_grad"),
            Change("model.first.weight.data.mul_(0.5)\nmodel.shift.add_(1)"),
            Call("f(x)", NO, "no_grad"),
        ),
    ),
    (
        "weight replaced",
        (
            Call("f(x)", YES, "no_grad"),
            Change("model.second.weight = torch.nn.Parameter(model.second.weight.detach() * 2)"),
            Call("f(x)", ANY, "no_grad"),
            Change("model.shift = model.shift + 1"),
            Call("f(x)", ANY, "no_grad"),
        ),
    ),
    (
        "branch on attribute",
        (
            Call("f(x)", YES, "no_grad"),
            Change("model.mode = 'relu'"),
            Call("f(x)", YES, "no_grad"),
            Change("model.mode = 'gelu'"),
            Call("f(x)", NO, "no_grad"),
        ),
    ),
    (
        "gradient mode",
        (Call("f(x)", YES, "no_grad"), Call("f(x)", ANY), Call("f(x)", NO, "no_grad")),
    ),
    ("submodule replaced", (
        Call("f(x)", YES, "no_grad"),
        Change("model.norm = torch.nn.Identity()"),
        Call("f(x)", ANY, "no_grad"),
    )),
)  # fmt: skip

COUNTER_HISTORIES: tuple[tuple[str, tuple[Step, ...]], ...] = (
    ("state", (Call("f(x)"), Call("f(x)"), Call("f(x2)"))),
    ("global", (Call("f(x)"), Change("FACTOR = -1.0"), Call("f(x)"))),
    (
        "buffer replaced",
        (Call("f(x)"), Change("model.total = torch.ones(4)"), Call("f(x)")),
    ),
)


def _call(compiles: Compiles, name: str = "x") -> Call:
    return Call(f"f({name})", compiles, mode="no_grad")


def _program(model: Model) -> Program:
    source = (PROGRAMS / f"{model.name}.py").read_text(encoding="utf-8")
    return Program(source, "make()", model.needs)


def _inputs(model: Model) -> tuple[Storage | Tensor, ...]:
    named = {"x": model.shape, "x2": model.shape}
    named |= {f"y{number}": shape for number, shape in enumerate(model.shapes)}
    inputs: list[Storage | Tensor] = []
    for seed, (name, shape) in enumerate(named.items()):
        size = 1
        for length in shape:
            size *= length
        if model.tokens:
            storage = Storage(f"_{name}", "int64", size, Drawn("integers", seed, high=model.tokens))
        else:
            storage = Storage(f"_{name}", "float32", size, Drawn("normal", seed))
        inputs += (storage, Tensor(name, storage.name, shape))
    return tuple(inputs)


def _family(
    subject: str,
    variant: str,
    program: Program,
    inputs: tuple[Storage | Tensor, ...],
    history: tuple[Step, ...],
    device: str,
) -> Family:
    case = Case(
        "models", subject, variant, program, inputs, history, TOLERANCE, device, label="case"
    )
    return Family("models", subject, variant, cases=(case,))
