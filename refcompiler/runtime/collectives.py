"""Guard collectives: a process runs compiled code only where every other process does.

Programs that run alike in several processes (SPMD) may meet inputs that differ, so that one process
compiles again where the others go on; if something waits for all of them meanwhile, it waits
forever. With guard collectives the processes ask one another at each entry into code for which
there is a plan, and if the guards fail in one of them, all compile.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed

from refcompiler.capture.models.registry import model
from refcompiler.errors import GraphBreakError
from refcompiler.interpreter.failures import Failure
from refcompiler.runtime.stance import CURRENT


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Let the processes of ``torch.distributed`` enter compiled code together, or no longer.

    At each entry into code that has been compiled before, one collective (a bool, through gloo
    where there is one) says whether the guards hold in all processes; where they do not, all of
    them compile. All processes have to make the same calls, and to set this alike. Without a
    process group nothing is asked.

    Returns what was set before. Errors: ``TypeError`` for what is no bool; inside a compiled
    function it is an error of the call that compiles. Source:
    ``torch.compiler.set_enable_guard_collectives``.
    """
    if not isinstance(enabled, bool):
        raise TypeError(f"set_enable_guard_collectives takes True or False, not {enabled!r}")
    before = CURRENT.together
    CURRENT.enter_together(enabled)
    return before


@model(set_enable_guard_collectives, torch.compiler.set_enable_guard_collectives)
def _set_inside(machine: Any, frame: Any, args: Any, kwargs: Any) -> Any:
    text = "set_enable_guard_collectives is called inside a compiled function; call it outside"
    raise Failure(GraphBreakError(text), frame.code.co_qualname)


REFUSED: Any = object()  # the answer of a plan whose guards hold here, but not everywhere


class _Group:
    """The processes that are asked: a group of our own, as long as the whole one is the same."""

    def __init__(self) -> None:
        self.world: Any = None
        self.own: Any = None

    def now(self) -> Any:
        world = distributed.group.WORLD
        if world is not self.world:
            kind = "gloo" if distributed.is_gloo_available() else None
            self.own = distributed.new_group(backend=kind)
            self.world = world
        return self.own


_GROUP = _Group()


def everywhere(holds: bool) -> bool:
    """Whether ``holds`` is True in every process; all of them have to ask."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return holds
    group = _GROUP.now()
    found: list[Any] = [None] * distributed.get_world_size(group)
    with torch.inference_mode(False), torch.no_grad():
        distributed.all_gather_object(found, holds, group=group)
    return all(found)


def agree() -> Any:
    """None where every process may run its plan, else the answer in its place."""
    return None if everywhere(True) else REFUSED
