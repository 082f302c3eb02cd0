"""What these tests have parsed is forgotten behind them: each later full collection, and each
question who holds an object, would go through two million nodes. None of them is garbage meanwhile:
collections were half of the time."""

import gc
from collections.abc import Iterator

import pytest

from tests.tiny.house import repository


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path.parent != item.path.parent:
        repository.parse.cache_clear()
