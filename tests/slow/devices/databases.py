"""torch's databases of operators and of modules on a device, against eager.

An operator's last sample (or more) in float32, with gradients and without, bfloat16, int64 and
bool; a module's first two inputs in training and in eval, with the gradients of its parameters.
Each is called twice. Backends that run eager's kernels have to give eager's bits and strides, in
gradients too; others have to be as near as :data:`compare.ROOM` says.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

import refcompiler
from tests.slow.batteries.training import EXACT
from tests.slow.devices.compare import difference, exact_products, run
from tests.slow.devices.pool import Found, Watched, lost

WAYS = (
    (torch.float32, False),
    (torch.float32, True),
    (torch.bfloat16, False),
    (torch.int64, False),
    (torch.bool, False),
)
#: What gives memory that nobody wrote, or the state of a generator of its own.
UNTOLD = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"}
UNTOLD |= {"new_empty_strided", "torch.ops.aten._flash_attention_forward"}
UNTOLD |= {"torch.ops.aten._efficient_attention_forward"}
#: Modules whose inputs torch makes for the CPU's dtype alone, or that have no sizes yet.
UNMADE = ("Lazy", "FractionalMaxPool")


def operators() -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [_title(op) for op in op_db if _title(op) not in UNTOLD]


def modules() -> list[str]:
    from torch.testing._internal.common_modules import module_db

    return [m.name for m in module_db if not any(word in m.name for word in UNMADE)]


def _title(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def check_operator(
    name: str, device: str, backend: str = "fastpath", samples: int = 1
) -> Sequence[Found]:
    from torch.testing._internal.common_methods_invocations import op_db

    exact_products()
    op = next(op for op in op_db if _title(op) == name)
    return list(_of_operator(op, name, device, backend, samples))


def _of_operator(op: Any, name: str, device: str, backend: str, samples: int) -> Iterator[Found]:
    dtypes = op.supported_dtypes(device)
    for dtype, gradients in WAYS:
        if dtype not in dtypes or gradients and not op.supports_autograd:
            continue
        way = f"{dtype} with gradients" if gradients else str(dtype)
        torch.manual_seed(0)
        try:
            drawn = op.sample_inputs(device, dtype, requires_grad=gradients)
            chosen = list(itertools.islice(drawn, max(4, samples)))[-samples:]
        except Exception:  # torch has none for this device
            continue
        for sample in chosen:
            function, given = op.op, ((sample.input, *sample.args), sample.kwargs)

            def call(*args: Any, function: Any = function, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

            yield _checked(name, way, call, given, gradients, backend)


def _checked(name: str, way: str, call: Any, given: Any, gradients: bool, backend: str) -> Found:
    try:
        eager = run(call, *given, gradients)
    except Exception:
        return Found(name, way, refused=True)
    refcompiler.reset()
    watched = Watched(backend)
    compiled = refcompiler.compile(call, backend=watched.backend)
    bad, elements = "", 0
    for _ in range(2):
        try:
            got = run(compiled, *given, gradients)
        except TimeoutError:
            raise
        except Exception as error:
            return lost(name, way, error)
        told, count = difference(got, eager, exact=backend in EXACT)
        bad, elements = bad or told, elements + count
    return watched.described(Found(name, way, bad, elements=elements))


def check_module(
    name: str, device: str, backend: str = "fastpath", samples: int = 2
) -> Sequence[Found]:
    from torch.testing._internal.common_modules import module_db

    exact_products()
    info = next(m for m in module_db if m.name == name)
    return [
        found
        for training in (True, False)
        for found in _of_module(info, device, training, backend, samples)
    ]


def _of_module(
    info: Any, device: str, training: bool, backend: str, samples: int
) -> Iterator[Found]:
    way = "training" if training else "eval"
    torch.manual_seed(0)
    made = {"device": device, "dtype": torch.float32, "requires_grad": training}
    try:
        drawn = info.module_inputs_func(info, **made, training=training)
        chosen = list(itertools.islice(drawn, samples))
    except Exception:  # torch has none for this device
        return
    for sample in chosen:
        torch.manual_seed(1)
        how = sample.constructor_input
        module = info.module_cls(*how.args, **how.kwargs).to(device).train(training)
        state = copy.deepcopy(module.state_dict())

        def call(*args: Any, module: Any = module, **kwargs: Any) -> Any:
            return module(*args, **kwargs)

        given = sample.forward_input.args, sample.forward_input.kwargs
        try:
            eager = _with_parameters(module, call, given, training)
        except Exception:
            yield Found(info.name, way, refused=True)
            continue
        refcompiler.reset()
        watched = Watched(backend)
        compiled = refcompiler.compile(call, backend=watched.backend)
        bad, elements = "", 0
        for _ in range(2):
            module.load_state_dict(state)
            try:
                got = _with_parameters(module, compiled, given, training)
            except TimeoutError:
                raise
            except Exception as error:
                bad = lost(info.name, way, error).bad
                break
            told, count = difference(got, eager, exact=backend in EXACT)
            bad, elements = bad or told, elements + count
        yield watched.described(Found(info.name, way, bad, elements=elements))


def _with_parameters(module: Any, call: Any, given: Any, training: bool) -> list[Any]:
    """The same as :func:`run`, of a module's parameters and buffers too."""
    module.zero_grad(set_to_none=True)
    found = run(call, *given, gradients=training)
    if training:
        torch.manual_seed(3)
        args, kwargs = found[2]
        result = call(*args, **kwargs)
        leaves = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        leaves = [t for t in leaves if t.requires_grad]
        if leaves:
            torch.autograd.backward(leaves, [torch.ones_like(t) for t in leaves])
        found[1] = [*found[1], *(p.grad for p in module.parameters())]
    gradients = [g if g is None else g.clone() for g in found[1]]
    state = [t.detach().clone() for t in module.buffers() if not t.is_sparse]
    return [found[0], gradients, state, *found[3:]]
