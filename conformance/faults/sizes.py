"""Smaller sizes of a case's tensors: one length at a time, wherever it occurs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

from conformance.case import Case, Drawn, Input, Literal, Storage, Tensor


def with_smaller_sizes(case: Case, fails: Callable[[Case], bool]) -> Case:
    """``case`` with lengths as small as ``fails`` lets them be."""
    progress = True
    while progress:
        progress = False
        for candidate in smaller(case):
            if fails(candidate):
                case, progress = candidate, True
                break
    return case


def smaller(case: Case) -> Iterator[Case]:
    """Each length in the place of which a smaller one stands, the smallest first.

    Of what is spelt out, the first or the last part stays. Equal lengths change together, as they
    mostly are equal for a reason; one that a program names itself is its own error, and no smaller
    form of this one.
    """
    lengths = {n for t in case.tensors() for n in t.shape if n > 1}
    for length in sorted(lengths, reverse=True):
        for less in dict.fromkeys((1, 2, length // 2, length - 1)):
            if less < length:
                for last in (False, True):
                    made = _with(case, length, less, last)
                    if made is not None:
                        yield made


def _with(case: Case, length: int, less: int, last: bool) -> Case | None:
    storages = {storage.name: storage for storage in case.storages()}
    inputs: list[Input] = []
    changed: dict[str, Storage] = {}
    for item in case.inputs:
        if isinstance(item, Tensor) and length in item.shape:
            storage = storages[item.storage]
            if item.strides is not None or storage.size != prod(item.shape):
                return None  # a view: its gaps would have to shrink with it
            changed[storage.name] = _cut(storage, item.shape, length, less, last)
            shape = tuple(less if n == length else n for n in item.shape)
            item = replace(item, shape=shape)
        inputs.append(item)
    if not changed:
        return None
    return case.with_inputs([changed.get(item.name, item) for item in inputs])


def _cut(storage: Storage, shape: Sequence[int], length: int, less: int, last: bool) -> Storage:
    size = prod(less if n == length else n for n in shape)
    match storage.contents:
        case Drawn():
            return replace(storage, size=size)
        case Literal(values):
            first = length - less if last else 0
            kept = [range(first, first + less) if n == length else range(n) for n in shape]
            strides = [prod(shape[dim + 1 :]) for dim in range(len(shape))]
            places = (
                sum(i * s for i, s in zip(index, strides)) for index in itertools.product(*kept)
            )
            contents = Literal(tuple([values[place] for place in places]))
            return replace(storage, size=size, contents=contents)
    raise AssertionError(storage.contents)
