"""Modes that do without torch's compiler, against those of torch that ask it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, PythonKeyTracer
from torch.utils._pytree import tree_leaves

from refcompiler.aot.functional import FunctionalMode
from refcompiler.aot.tracing import Recording
from refcompiler.dispatching import dispatch_of
from refcompiler.fakes.mode import EagerFakeMode
from refcompiler.fakes.quiet import QuietFakeMode
from refcompiler.shapes.env import ShapeEnv


def _known(mode: Any, *left_out: str) -> dict[str, Any]:
    """A mode's attributes; of objects that it has for itself the class."""
    plain = (bool, int, str, type(None), torch._C._TorchDispatchModeKey)
    return {
        name: value if isinstance(value, plain) else type(value)
        for name, value in vars(mode).items()
        if name not in left_out
    }


@pytest.mark.parametrize("symbols", [False, True])
def test_a_fake_mode_has_what_torchs_has(symbols: bool) -> None:
    """A newer torch's mode may have more, which its methods then ask for."""
    options = {"shape_env": ShapeEnv()} if symbols else {"allow_non_fake_inputs": True}
    wanted = _known(FakeTensorMode(**options))
    assert _known(QuietFakeMode(**options)) == wanted and len(wanted) > 20
    assert wanted.keys() <= vars(EagerFakeMode(**options)).keys()


def test_a_tracing_mode_has_what_torchs_has() -> None:
    tracer, table = PythonKeyTracer(), {torch.ops.aten.relu.default: torch.relu}
    given = {"decomposition_table": table}
    takes = inspect.signature(ProxyTorchDispatchMode).parameters  # torch 2.11 has no table there
    theirs = ProxyTorchDispatchMode(tracer, "real", **{k: given[k] for k in given.keys() & takes})
    ours = _known(Recording(tracer, table), "_nodes")
    wanted = _known(theirs)
    assert {name: ours[name] for name in wanted} == wanted and len(wanted) > 10
    assert ours.keys() - wanted.keys() <= {"decomposition_table", "_decomposition_table_stack"}


def test_no_dispatch_goes_through_torchs_switch() -> None:
    switched = torch._disable_dynamo(lambda: None).__code__
    assert FakeTensorMode.__torch_dispatch__.__code__ is switched
    for mode in (EagerFakeMode, FunctionalMode, Recording):
        assert mode.__torch_dispatch__.__code__ is not switched
        assert dispatch_of(mode) is mode.__torch_dispatch__
    assert dispatch_of(FakeTensorMode).__code__ is not switched


class _Torchs(QuietFakeMode):
    _dispatch_impl = FakeTensorMode._dispatch_impl


@torch.library.custom_op("refcompiler_tests::quiet_rows", mutates_args=())
def _rows(x: torch.Tensor) -> torch.Tensor:
    return x[:2].clone()


@_rows.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(2, x.shape[1])


@torch.library.custom_op("refcompiler_tests::quiet_nothing", mutates_args={"x"})
def _nothing(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("refcompiler_tests::quiet_unknown", mutates_args=())
def _unknown(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


_aten = torch.ops.aten
#: By what answers: a decomposition, a composition, a stand-in in C++ or Python, a rule that is
#: registered, the kernel itself, a constant, a refusal.
_PROGRAMS: dict[str, Callable] = {
    "elementwise": lambda x: (x.exp(), x + 1, x.sigmoid_(), torch.where(x > 0, x, 2)),
    "composed": lambda x: (x.softmax(0), _aten.std.default(x), _aten.linalg_norm.default(x)),
    "taken apart": lambda x: _aten.native_batch_norm.default(
        x[None], x[:, 0], x[:, 1], None, None, True, 0.1, 1e-5
    ),
    "reduced": lambda x: (x.sum(), x.var(0), x.argmax(1), x.logsumexp(0)),
    "views": lambda x: (x.t(), x[1:], x.unfold(0, 2, 1), x.expand(2, 4, 6)),
    "written to": lambda x: (x.mul_(2), x.t().add_(1), x[0].zero_(), x.resize_(2, 2)),
    "prims": lambda x: torch.ops.prims.add.default(x, x),
    "made": lambda x: (torch.arange(3), torch.rand(2), x.new_zeros(2), torch.randn_like(x)),
    "constants": lambda x: (torch.tensor(2.0) * 3, torch.tensor(2.0) + x, torch.add(1, 2)),
    "a constant that is written to": lambda x: torch.tensor(1.0).add_(x.sum()),
    "lists": lambda x: torch._foreach_add([x, x * 2], 1.0),
    "fast fourier": lambda x: torch.fft.rfft(x),
    "a kernel alone": lambda x: _aten._cdist_forward.default(x, x, 2.0, None),
    "elsewhere": lambda x: (x.to("meta"), x.to("cuda") + 1),
    "a real tensor": lambda x: x + torch.nn.Parameter(torch.ones(6)),
    "custom": lambda x: _rows(x),
    "custom, without results": lambda x: _nothing(x),
    "custom, that nothing is known of": lambda x: _unknown(x),
    "sizes that differ": lambda x: x + x.t(),
    "of the data": lambda x: x.nonzero(),
    "a number of the data": lambda x: x.sum().item(),
}


def _seen(mode: Any, program: Callable, x: Any) -> Any:
    mode.cache_enabled = False
    with mode:
        fake = mode.from_tensor(x) if mode.shape_env is None else x
        try:
            found = tree_leaves((program(fake), fake))
        except Exception as error:
            return type(error), str(error)
    return [
        (
            str((t.shape, t.stride(), t.storage_offset())), t.dtype, t.device, t._version,
            t._is_view(), isinstance(t, FakeTensor) and t.constant,
        )
        if isinstance(t, torch.Tensor)
        else t
        if isinstance(t, int | float | bool)
        else type(t)
        for t in found
    ]  # fmt: skip


@pytest.mark.parametrize("name", _PROGRAMS)
def test_stand_ins_are_asked_as_torch_asks_them(name: str) -> None:
    program, x = _PROGRAMS[name], torch.randn(4, 6)
    found = _seen(QuietFakeMode(allow_non_fake_inputs=True), program, x)
    assert found == _seen(_Torchs(allow_non_fake_inputs=True), program, x)
    symbolic = []
    for kind in (QuietFakeMode, _Torchs):
        env = ShapeEnv()
        with kind(shape_env=env, allow_non_fake_inputs=True) as mode:
            x = torch.empty(env.size(4), env.size(6))
        symbolic.append(_seen(mode, program, x))
    assert symbolic[0] == symbolic[1]
