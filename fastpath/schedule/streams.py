"""Which results bypass the caches on their way to memory.

An ordinary store first fetches the line that it is about to overwrite. While everything that a
kernel touches stays in the last-level cache, that costs little, and the next kernel finds the
result there. Beyond it, the fetch is a third or more of the traffic to memory, for lines that push
each other out before anybody reads them.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from pathlib import Path

from fastpath.schedule.kernel import Kernel, Store

# What a kernel may touch before it streams, as a part of the last-level cache. The whole is more
# than one can have: the cache also holds the program's other data, and other cores share it.
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


def streamed(kernel: Kernel, sizes: Mapping[str, int]) -> frozenset[str]:
    """The buffers that the kernel only writes, element by element along its innermost loop.

    ``sizes``: the bytes of each of its buffers.
    """
    cache = last_level_cache()
    if not cache or sum(sizes[b.name] for b in kernel.buffers) <= cache * SHARE:
        return frozenset()
    found: set[str] = set()
    for stage in kernel.stages:
        axis = kernel.lane if kernel.lane is not None else (None, *stage.axes)[-1]
        for s in stage.statements:
            if isinstance(s, Store) and axis is not None and s.index.coefficient(axis) == 1:
                found.add(s.buffer)
    read = {e.args[0] for stage in kernel.stages for e in stage.loads()}
    return frozenset(name for name in found - read if sizes[name] >= LEAST)
