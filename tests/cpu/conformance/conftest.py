"""What tests of the suite's own processes share."""

from __future__ import annotations

import sys

import pytest

from conformance.pool import Pool


@pytest.fixture(scope="session")
def one_zygote():
    """All runs share the process that has torch imported: its start is most of what a run costs.

    Workers are forked from it as ever, and run and die on their own.
    """
    started = {}
    enter, leave = Pool.__enter__, Pool.__exit__

    def entered(pool):
        key = (*pool.preload, *sys.path)
        known = started.get(key)
        if known is None or known.zygote.poll() is not None:
            started[key] = enter(pool)
        else:
            pool.control, pool.zygote = known.control, known.zygote
        return pool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "__enter__", entered)
        patch.setattr(Pool, "__exit__", lambda pool, *error: pool.folder.cleanup())
        yield
    for pool in started.values():
        leave(pool, None, None, None)
