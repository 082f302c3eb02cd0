"""Which results bypass the caches on their way to memory.

An ordinary store first fetches the line that it is about to overwrite. While everything that a
kernel touches stays in the last-level cache, that costs little, and the next kernel finds the
result there. Beyond it, the fetch is a third or more of the traffic to memory, for lines that push
each other out before anybody reads them.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Collection, Mapping
from pathlib import Path

from fastpath.schedule.kernel import Kernel, Store

# A kernel that reads twice as much as it writes, or more, streams as soon as it touches more than
# this part of the last-level cache, which other data and other cores share: what it reads displaces
# what it writes. The result of one that reads less is what the cache keeps, up to all of it.
SHARE = 1 / 3
STREAM_ALIGNMENT = 64  # bytes, of what is streamed
LEAST = 1 << 20  # bytes; a smaller result among large inputs stays where it can be found


@functools.cache
def last_level_cache() -> int:
    """Its bytes, or 0 where the system does not tell or streaming stores are not to be had."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return 0
    found = [(0, 0)]
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level = int((entry / "level").read_text())
            size = (entry / "size").read_text().strip()  # "32768K"
        except (OSError, ValueError):
            continue
        if size.endswith("K") and size[:-1].isdigit():
            found.append((level, int(size[:-1]) << 10))
    return max(found)[1]


def streamed(
    kernel: Kernel, sizes: Mapping[str, int], soon: Collection[str] = ()
) -> frozenset[str]:
    """The buffers that the kernel only writes, element by element along its innermost loop.

    ``sizes``: the bytes of each of its buffers. ``soon``: buffers that the same graph reads again.
    """
    cache = last_level_cache()
    written = sum(sizes[b.name] for b in kernel.buffers if b.written)
    touched = sum(sizes[b.name] for b in kernel.buffers)
    if not cache or touched <= (cache * SHARE if touched >= 3 * written else cache):
        return frozenset()
    found: set[str] = set()
    for stage in kernel.stages:
        axis = kernel.lane if kernel.lane is not None else (None, *stage.axes)[-1]
        for s in stage.statements:
            if isinstance(s, Store) and axis is not None and s.index.coefficient(axis) == 1:
                found.add(s.buffer)
    kept = {e.args[0] for stage in kernel.stages for e in (*stage.loads(), *stage.guarded())}
    if touched <= cache:
        kept.update(soon)
    return frozenset(name for name in found - kept if sizes[name] >= LEAST)
