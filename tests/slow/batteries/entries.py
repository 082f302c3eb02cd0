"""What is captured: torch's operator and module databases, and small transformers models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

PER_OPERATOR = 2
#: Operators whose values are whatever the memory held, and those that no two runs agree on.
UNINITIALISED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
                           "new_empty_strided", "resize_", "resize_as_"})  # fmt: skip


@dataclass
class Program:
    """Something to compile, what to call it with, and how to judge it.

    ``args`` and ``kwargs`` are fresh for each call by a deep copy, and so is ``function`` for each
    compiler. ``grad``: gradients are on, and those of the parameters are compared too.
    ``values``: the values are compared, not the metadata alone.
    """

    function: Callable
    args: tuple
    kwargs: dict[str, Any]
    grad: bool = False
    values: bool = True

    def fresh(self) -> Program:
        return copy.deepcopy(self)


def operators() -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [f"{number}:{op.formatted_name}" for number, op in enumerate(op_db) if op.dtypes]


def operator_programs(name: str) -> Iterator[tuple[str, Program]]:
    """The first samples of one entry of ``op_db``, of float32 where it takes that."""
    from torch.testing._internal.common_methods_invocations import op_db

    op = op_db[int(name.split(":")[0])]
    dtype = torch.float32 if torch.float32 in op.dtypes else next(iter(op.dtypes))
    samples = op.sample_inputs("cpu", dtype, requires_grad=False)
    operation = op.op
    for number, sample in zip(range(PER_OPERATOR), samples, strict=False):

        def function(*args: Any, **kwargs: Any) -> Any:
            return operation(*args, **kwargs)

        program = Program(function, (sample.input, *sample.args), sample.kwargs)
        program.values = op.name not in UNINITIALISED
        yield f"#{number}", program


def modules() -> list[str]:
    from torch.testing._internal.common_modules import module_db

    return [f"{number}:{info.formatted_name}" for number, info in enumerate(module_db)]


def module_programs(name: str) -> Iterator[tuple[str, Program]]:
    """The first inputs of one entry of ``module_db``, in evaluation and in training."""
    from torch.testing._internal.common_modules import module_db

    info = module_db[int(name.split(":")[0])]
    for training in (False, True):
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=False, training=training
        )
        for number, given in zip(range(PER_OPERATOR), inputs, strict=False):
            made = given.constructor_input
            if given.forward_input is None:
                continue
            module = info.module_cls(*made.args, **made.kwargs).train(training)
            mode = "train" if training else "eval"
            forward = given.forward_input
            yield (
                f"#{number} {mode}",
                Program(module, tuple(forward.args), forward.kwargs, grad=training),
            )
