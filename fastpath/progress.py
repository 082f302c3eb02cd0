"""How far a long compilation is, for whoever sits at a terminal: nothing is told elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

PATIENCE = 2.0  # seconds without a word


@contextlib.contextmanager
def told(what: str, count: int) -> Iterator[Callable[[], None]]:
    """Gives what is called when one of ``count`` is done. The line is gone afterwards."""
    if count < 2 or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    begun, done = time.monotonic(), 0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=count)

    def one_more() -> None:
        nonlocal done
        done += 1
        if not bar.live.is_started and time.monotonic() - begun > PATIENCE:
            bar.start()
        bar.update(task, completed=done)

    try:
        yield one_more
    finally:
        bar.stop()
