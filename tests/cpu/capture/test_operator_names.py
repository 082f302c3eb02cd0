"""ATen's operators called by themselves are what the methods with their names are.

Programs that other tracers wrote (``make_fx``, ``torch.export``) and libraries of kernels call
``torch.ops.aten.resize_.default``, of which the same has to be decided as of ``Tensor.resize_``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.naming import operation_name, target_name, writes

aten = torch.ops.aten
#: What is called, and whether the compiled program breaks its graph.
PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {}


def program(breaks: bool = False) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        PROGRAMS[function.__name__] = function, breaks
        return function

    return add


@program(breaks=True)
def truth(x: Any, y: Any) -> Any:
    return x + 1 if aten.equal.default(x, y) else x - 1


@program(breaks=True)
def item(x: Any, y: Any) -> Any:
    return x * aten.item.default(y[0])


@program()
def sizes(x: Any, y: Any) -> Any:
    return x.new_zeros(aten.size.int(x, 0) + 1), x + aten.sym_numel.default(x)


@program()
def offset(x: Any, y: Any) -> Any:
    return x + aten.sym_storage_offset.default(x)


@program(breaks=True)
def resized(x: Any, y: Any) -> Any:
    z = x.clone()
    aten.resize_.default(z, [2])
    return z * 2


@program(breaks=True)
def given_a_flag(x: Any, y: Any) -> Any:
    z = x.detach().clone()
    aten.requires_grad_.default(z)
    return z * 2, z


@program()
def other_memory(x: Any, y: Any) -> Any:
    z = x.clone()
    aten.set_.source_Tensor(z, y)
    return z * 2


@program(breaks=True)
def other_data(x: Any, y: Any) -> Any:
    aten.set_data.default(x, y)
    return x * 2


@program()
def placed(x: Any, y: Any) -> Any:
    return aten.as_strided.default(self=x, size=[1], stride=[1], storage_offset=3) * 2


@program()
def written_where_placed(x: Any, y: Any) -> Any:
    aten.mul_.Scalar(aten.as_strided.default(x, [1], [1], 3), 3)
    return x * 2


@program()
def written_while_read(x: Any, y: Any) -> Any:
    z = x.view(2, 2)
    aten.addmm_.default(z, z, z)
    return x * 2


@program()
def masked(x: Any, y: Any) -> Any:
    aten.masked_scatter_.default(x, x > 3, x)
    return x * 2


@program()
def normalized(x: Any, y: Any) -> Any:
    mean, variance = x.new_zeros(1), x.new_ones(1)
    given = x.view(4, 1), None, None, mean, variance
    return aten.native_batch_norm.default(*given, True, 0.1, 1e-5)[0].view(4) + mean + variance


@program()
def added(x: Any, y: Any) -> Any:
    aten.add_.Tensor(x, 1)
    return x * y


def _ran(run: Any, inference: bool) -> list[Any]:
    """What three calls show: the second of another place in memory, the third of one tensor."""
    found: list[Any] = []
    base = torch.arange(14.0) + 0.5
    for n in range(3):
        x, y = base[3 + n % 2 : 7 + n % 2], torch.arange(4.0) + n
        if n == 2:
            x = y = x * 1
        with torch.inference_mode(inference):
            result = run(x, y)
        tensors = result if isinstance(result, tuple) else (result,)
        found += [t.detach().clone() for t in (*tensors, x, y, base)]
        found += [(t.shape, t.stride(), t.requires_grad, t._is_view()) for t in tensors]
        found += [x.data_ptr() == y.data_ptr(), inference or x._version]
    return found


@pytest.mark.parametrize("inference", [False, True], ids=["usual", "inference"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_operators_are_what_methods_are(name: str, inference: bool) -> None:
    function, breaks = PROGRAMS[name]
    compiled = refcompiler.compile(function, backend="aot_eager")
    expected, found = _ran(function, inference), _ran(compiled, inference)
    assert len(expected) == len(found) > 15
    for one, other in zip(expected, found, strict=True):
        same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
        assert same, (one, other)
    told = refcompiler.explain(function)(torch.arange(4.0), torch.ones(4))
    assert bool(told.break_reasons) == breaks and told.graph_count > 0


def test_names() -> None:
    assert operation_name(aten.add.Tensor) == operation_name(aten.add) == "add"
    assert operation_name(torch.add) == operation_name(torch.Tensor.add) == "add"
    assert operation_name(aten.sym_size.int) == "size"
    assert operation_name(torch.ops.prims.mul.default) == "prims::mul"
    assert target_name("add") == "add"


def test_what_writes() -> None:
    functions = [aten.add_.Tensor, aten.add.out, aten.add_, torch.Tensor.add_, torch.relu_]
    assert all(writes(each, operation_name(each)) for each in functions)
    others = [aten.add.Tensor, aten.add, torch.Tensor.__add__, torch.ops.prims.mul]
    assert not any(writes(each, operation_name(each)) for each in others)
    with torch.library._scoped_library("naming", "FRAGMENT") as library:
        library.define("fill(Tensor(a!) x) -> ()")
        assert writes(torch.ops.naming.fill, "naming::fill")
        assert writes(torch.ops.naming.fill.default, "naming::fill")
