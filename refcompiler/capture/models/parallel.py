"""``DistributedDataParallel``: its module's call is captured, in its own forward.

What it does before and after that, with a reducer in C++, runs natively.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from refcompiler.capture.calls import Calls
from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break
from refcompiler.capture.values import Run


def limits_of(ddp: Any) -> tuple[int, ...]:
    """Bytes at which each of its buckets is full, in the order of sending; the last repeats."""
    own = tuple(getattr(ddp, "bucket_bytes_cap_list", ()))  # torch 2.12 has it not
    if own:
        return own
    cap = ddp.bucket_bytes_cap
    first = torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
    return (first, cap) if ddp.bucket_bytes_cap_default else (cap,)


def limits_now() -> tuple[int, ...]:
    """Those of the module whose forward runs in DistributedDataParallel now; none elsewhere."""
    ddp = DistributedDataParallel._get_active_ddp_module()
    return () if ddp is None else limits_of(ddp)


@contextlib.contextmanager
def _inside(ddp: Any) -> Iterator[None]:
    """As the method of ``ddp`` has it, which is not to be captured as it is written."""
    before = DistributedDataParallel._active_ddp_module
    DistributedDataParallel._active_ddp_module = ddp
    try:
        yield
    finally:
        DistributedDataParallel._active_ddp_module = before


@model(DistributedDataParallel._pre_forward, DistributedDataParallel._post_forward)
def _around(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    raise Break(
        "higher-order",
        "DistributedDataParallel prepares its reducer natively before and after its module's call; "
        "one graph is what DistributedDataParallel(compile(module)) has",
    )


@model(DistributedDataParallel._inside_ddp_forward)
def _enter(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """The graph is to have a part for each bucket."""
    m.recorder.buckets = limits_of(m.force(args[0]))
    return Run(_inside, args)
