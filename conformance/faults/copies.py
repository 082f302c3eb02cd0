"""A graph's arguments copied as they are: layout, what they share, gradients, lazy bits."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.execute import Precision, Recaster


class Unmovable(Exception):
    """The arguments have no form in another precision."""


@dataclass
class Copied:
    """``args``: copies. ``leaves``: by number of the argument, the tensor that gets its gradient:
    itself, or what a copy of a result of other work was made from."""

    args: list[Any]
    leaves: dict[int, torch.Tensor] = field(default_factory=dict)


def copied(args: Sequence[Any], precision: Precision | None = None) -> Copied:
    """Copies of ``args``, which share memory among each other as these do.

    With a ``precision`` every floating one is moved there. Raises :class:`Unmovable` where one
    memory is read in two dtypes.
    """
    recast = Recaster(precision) if precision is not None else None
    storages: dict[int, torch.Tensor] = {}
    known: dict[int, torch.Tensor] = {}
    users: dict[int, int] = {}
    for arg in args:
        if is_plain(arg):
            key = arg.untyped_storage()._cdata
            users[key] = users.get(key, 0) + 1
    result = Copied([])
    for number, arg in enumerate(args):
        if not isinstance(arg, torch.Tensor):
            result.args.append(arg)
            continue
        if id(arg) not in known:
            alone = is_plain(arg) and users[arg.untyped_storage()._cdata] == 1
            known[id(arg)] = _tensor(arg, storages, recast, alone, number, result)
        result.args.append(known[id(arg)])
    return result


def is_plain(value: Any) -> bool:
    """A dense tensor of torch's own classes, whose memory can be copied."""
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided


def _tensor(
    arg: torch.Tensor,
    storages: dict[int, torch.Tensor],
    recast: Recaster | None,
    alone: bool,
    number: int,
    result: Copied,
) -> torch.Tensor:
    with torch.no_grad(), torch.inference_mode(arg.is_inference()):
        if is_plain(arg):
            made = _strided(arg, storages, recast)
        else:
            made = arg.detach().clone()
            made = made if recast is None else recast(made)
    if not arg.requires_grad or not (made.is_floating_point() or made.is_complex()):
        return made
    if isinstance(arg, torch.nn.Parameter):
        made = torch.nn.Parameter(made)
    else:
        made.requires_grad_()
    result.leaves[number] = made
    if arg.is_leaf or not alone:
        return made
    with torch.enable_grad():
        other = made.clone()  # eager lets nobody write to a leaf, and this one may be written to
    return other if other.stride() == made.stride() else made


def _strided(
    arg: torch.Tensor, storages: dict[int, torch.Tensor], recast: Recaster | None
) -> torch.Tensor:
    storage = arg.untyped_storage()
    base = storages.get(storage._cdata)
    if base is None:
        base = torch.empty(0, dtype=arg.dtype, device=arg.device)
        count = storage.nbytes() // arg.element_size()
        base.set_(storage.clone(), 0, (count,), (1,))
        base = base if recast is None else recast(base)
        storages[storage._cdata] = base
    wanted = arg.dtype if recast is None else recast(arg.new_empty(0)).dtype
    if base.dtype != wanted:
        if recast is not None:
            raise Unmovable
        base = base.view(wanted) if base.numel() else base.to(wanted)
    made = base.as_strided(arg.size(), arg.stride(), arg.storage_offset()).detach()
    if arg.is_conj():
        made = made.conj()
    if arg.is_neg():
        made = torch._neg_view(made)
    return made


@dataclass(frozen=True)
class Ambience:
    """What a graph's call depends on beside its arguments: generators, modes of gradients."""

    states: tuple[Any, ...]
    grad: bool
    inference: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """The same once more; afterwards all is as it was before."""
        before = _states()
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, enabled, dtype in self.autocast:
                if enabled or torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, dtype, enabled))
            _set_states(self.states)
            try:
                yield
            finally:
                _set_states(before)


def ambience() -> Ambience:
    devices = ("cpu", "cuda")
    casts = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return Ambience(_states(), grad, inference, tuple(casts))


def _states() -> tuple[Any, ...]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    numpy = sys.modules.get("numpy.random")
    return torch.get_rng_state(), random.getstate(), numpy and numpy.get_state(), cuda


def _set_states(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if states[2] is not None:
        sys.modules["numpy.random"].set_state(states[2])
    if states[3]:
        torch.cuda.set_rng_state_all(states[3])
