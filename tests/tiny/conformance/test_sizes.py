"""Cases with smaller tensors: the same failure, each length as small as it can be."""

from __future__ import annotations

from math import prod

from conformance.case import Call, Case, Drawn, Literal, Program, Storage, Tensor
from conformance.faults.sizes import smaller, with_smaller_sizes


def case(shapes, strides=None, drawn=False):
    inputs = []
    for name, shape in shapes.items():
        size = prod(shape)
        contents = Drawn("normal", 0) if drawn else Literal(tuple(range(size)))
        inputs += [
            Storage(f"s_{name}", "float32", size, contents),
            Tensor(name, f"s_{name}", shape, strides),
        ]
    return Case("s", "s", "v", Program(""), tuple(inputs), (Call("f(x)"),))


def shapes_of(case):
    return [t.shape for t in case.tensors()]


def test_a_length_is_cut_wherever_it_occurs():
    small = with_smaller_sizes(case({"x": (8, 3), "y": (3,)}), lambda c: shapes_of(c)[1] != (1,))
    assert shapes_of(small) == [(1, 2), (2,)]
    for storage, tensor in zip(small.storages(), small.tensors(), strict=True):
        assert storage.size == len(storage.contents.values) == prod(tensor.shape)


def test_the_part_that_fails_stays():
    def fails(c):
        return 7 in c.storages()[0].contents.values

    small = with_smaller_sizes(case({"x": (2, 4)}), fails)
    assert shapes_of(small) == [(1, 1)] and small.storages()[0].contents.values == (7,)


def test_drawn_contents_are_drawn_again():
    small = with_smaller_sizes(case({"x": (5, 5)}, drawn=True), lambda c: True)
    assert shapes_of(small) == [(1, 1)] and small.storages()[0].size == 1


def test_views_stay_as_they_are():
    assert list(smaller(case({"x": (4, 2)}, strides=(1, 4)))) == []
