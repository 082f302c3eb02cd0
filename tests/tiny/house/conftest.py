"""What these tests have parsed is forgotten behind them: each later full collection, and each
question who holds an object, would go through two million nodes."""

import pytest

from tests.tiny.house import repository


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path.parent != item.path.parent:
        repository.parse.cache_clear()
