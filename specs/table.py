"""An ordered table of named rows, the one container of every chapter of the specification."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Row(Protocol):
    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Row)


class Table(Generic[R]):
    """Rows in the order they were added, looked up by ``name``.

    A second row of one name, and a lookup of a name without a row, are errors that say so.
    """

    def __init__(self, title: str, rows: Iterable[R] = ()):
        self.title = title
        self._rows: dict[str, R] = {}
        for row in rows:
            self.add(row)

    def add(self, row: R) -> R:
        if row.name in self._rows:
            raise ValueError(f"{self.title}: two rows are named {row.name!r}")
        self._rows[row.name] = row
        return row

    def __getitem__(self, name: str) -> R:
        try:
            return self._rows[name]
        except KeyError:
            raise KeyError(f"{self.title}: no row is named {name!r}") from None

    def get(self, name: str) -> R | None:
        return self._rows.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def names(self) -> list[str]:
        return list(self._rows)

    def where(self, keep: Callable[[R], bool]) -> list[R]:
        return [row for row in self if keep(row)]
