"""What a call of a compiled program keeps for its backward, as that reads it.

By then some of it may have been written to, which is an error where it is needed, as in eager, or
it may be freed, but for what other outputs need.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import torch

from refcompiler.aot.inputs import has_bits
from refcompiler.aot.layout import Layout
from refcompiler.aot.remaining import CHANGED

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)
_MADE = "which is output"
_BEGIN = 40  # by so much autograd's errors are known
_task = torch._C._current_graph_task_id
_DEFAULT = torch._C._autograd.CreationMeta.DEFAULT
#: Makes these the versions of tensors.
set_versions = torch._C._autograd._unsafe_set_version_counter
_UNPACKS = hasattr(torch._C._autograd.SavedTensor, "unpack")  # torch 2.11 has not


def lay_out(node: Any, arguments: list[Any]) -> None:
    """Saved tensors as the graph has them, which hooks may have given back otherwise."""
    first = len(node.numbers)
    for n, layout in enumerate(node.saved_layouts, first):
        t = arguments[n]  # None if it was written to
        if t is None or layout is None:
            continue
        if t.stride() != layout.stride or has_bits(t):
            arguments[n] = laid_out(t, layout)


def laid_out(t: torch.Tensor, layout: Layout) -> torch.Tensor:
    with torch.no_grad():
        for d, stride in enumerate(layout.stride):
            t = t if stride else t.narrow(d, 0, min(t.shape[d], 1))  # what is expanded
        made = torch.empty_strided(t.shape, layout.stride, dtype=t.dtype, device=t.device)
        return made.copy_(t).expand(layout.size)


def unwritten(node: Any, needed: Collection[int]) -> list[Any] | None:
    """The saved tensors, None for those that were written to; None if it cannot tell.

    One that is ``needed`` and was written to is an error. Torch 2.11 can only unpack all.
    """
    if not node.hooked_tensors:
        if node.kept is None:  # freed
            return None
        kept = [*node.kept]
        for n, version in enumerate(node.versions):
            if kept[n]._version != version:
                if n in needed:
                    refuse(kept[n], version)
                kept[n] = None
        return kept
    try:
        raw = node._raw_saved_tensors
    except RuntimeError:  # freed
        return None
    found = unpacked(raw, needed)
    return None if found is None else _with_currents(node, found)


def versions_to_keep(tensors: Sequence[torch.Tensor]) -> list[int] | None:
    """What :func:`unpacked` needs beside what autograd saves of these."""
    return None if _UNPACKS else [t._version for t in tensors]


def unpacked(
    raw: Sequence[Any], needed: Collection[int], versions: Sequence[int] | None = None
) -> list[Any] | None:
    """What autograd has saved; see :func:`unwritten`. ``versions``: of :func:`versions_to_keep`."""
    if not _UNPACKS:
        return None if versions is None else _unpacked_of(raw, needed, versions)
    found: list[Any] = []
    for n, one in enumerate(raw):
        try:
            found.append(one.unpack())
        except RuntimeError as error:
            if n in needed or not is_autograds(error):
                raise
            found.append(None)
    return found


def _unpacked_of(
    raw: Sequence[Any], needed: Collection[int], versions: Sequence[int]
) -> list[Any] | None:
    """As :meth:`SavedTensor.unpack`, of tensors without a way on."""
    found: list[Any] = []
    for n, (one, version) in enumerate(zip(raw, versions, strict=True)):
        t, hook = one.data, one.unpack_hook
        if hook is not None:
            t = hook(t)
            if not isinstance(t, torch.Tensor):
                return None  # autograd is to say it
        elif t._version != version:
            if n in needed:
                refuse(t, version)
            t = None
        found.append(t)
    return found


def is_autograds(error: RuntimeError) -> bool:
    """Whether autograd has raised it for what is freed, or was written to: no hook has."""
    begin = str(error)[:_BEGIN]
    return begin in (FREED[:_BEGIN], CHANGED[:_BEGIN])


def _with_currents(node: Any, found: list[Any]) -> list[Any]:
    for n, t in zip(node.program.unhooked, node.currents):
        found[n] = t
    return found


def kept_by(node: Any, saves: bool = True) -> list[Any]:
    """The saved tensors of a call; one that was written to is an error."""
    if node.hooked_tensors:
        return _with_currents(node, _of_hooks(node)) if saves else []
    if node.kept is None:
        raise RuntimeError(FREED)
    _refuse_written(node)
    return [*node.kept]


def _of_hooks(node: Any) -> list[Any]:
    """What hooks give back, once for all stages of a backward: a checkpoint's do so once."""
    task, staged = node.task or (-1, False)
    if not staged or task != _task():
        return [*node.saved_tensors]
    if node.unpacked[0] != task:
        node.unpacked = task, [*node.saved_tensors]
    return [*node.unpacked[1]]


def _refuse_written(node: Any) -> None:
    for t, version in zip(node.kept, node.versions):
        if t._version != version:
            refuse(t, version)


class _Holder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(kept)
        return leaf.detach()


def refuse(
    t: torch.Tensor,
    version: int,
    size: Sequence[int] | None = None,
    maker: str = "",
    place: int = 0,
) -> NoReturn:
    """The error of autograd for a saved tensor that had this version: it is asked to say it.

    ``size``: the tensor's, if ``t`` is one that counts with it; ``maker``: the function of autograd
    that it was the result ``place`` of, if ``t`` is not.
    """
    if size is not None and size != t.shape:
        own, t = t, t.detach()
        t.data = torch.empty(1, dtype=own.dtype, device=own.device).expand(size)
    if t._is_view() and torch._C._autograd._get_creation_meta(t) != _DEFAULT:
        t = t.detach()  # the forward made it, and that has another error
    now = t._version
    leaf = torch.zeros((), requires_grad=True)
    set_versions((t,), (version,))
    try:
        with torch.enable_grad():
            held = _Holder.apply(leaf, t)  # torch 2.11 frees what nobody holds the result of
    finally:
        set_versions((t,), (now,))
    try:
        _ = held.grad_fn.saved_tensors
    except RuntimeError as error:
        text = str(error)
        if maker and _MADE not in text:
            text = text.replace("]] is", f"]], {_MADE} {place} of {maker}, is", 1)
        raise RuntimeError(text) from None
    raise RuntimeError(CHANGED)
