"""What small programs of models, training and plain Python around them have shown.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import collections
import enum
import functools
from fractions import Fraction

import numpy
import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


# ---- the language and its library --------------------------------------------------------------


@cases(graphs=2, recompiles=1)
def arguments_of_a_partial_method():
    powers = [1, 2]

    class M(nn.Module):
        scaled = functools.partialmethod(lambda self, x, by: x * by, by=torch.tensor(2.0))
        summed = functools.partialmethod(lambda self, of, x: sum(x**power for power in of), powers)

        def forward(self, x):
            return self.scaled(x) + self.summed(x)

    return M(), [(t(3),), (t(3),), lambda: powers.append(3), (t(3),)]


@cases()
def texts_of_functions():
    seen = []

    def f(x):
        for function in (torch.relu, torch.Tensor.add, torch.Tensor.shape.__get__, len):
            seen.append(getattr(function, "__name__", str(function)))
        seen.append((str(torch.Tensor.add), f"{torch.Tensor.shape}", repr(nn.functional.linear)))
        seen.append((str(torch.ops.aten.add.Tensor), str(torch.ops.aten.add)))
        return x + 1, torch.ops.aten.add_.Tensor._schema.is_mutable

    return f, [(t(3),), (t(3),)], [seen]


@cases(graphs=8, breaks=4, recompiles=6)
def the_text_of_an_error_behind_a_break():
    def f(x, n):
        try:
            raise ValueError(n, "too many")
        except ValueError as error:
            above = x.sum().item() > 100
            return x + n, above, str(error), f"{error!r}", [repr(error)]

    return f, [(torch.ones(2), n) for n in (1, 2, 3, 1, 7)]


@cases(graphs=4, recompiles=3)
def the_text_of_an_error_that_is_given():
    def f(x, error):
        return x + 1, str(error), f"{[error]}", error.args[0]

    return f, [(torch.ones(2), ValueError(n, "a")) for n in (1, 2, 3, 1, 7)]


@cases(graphs=2, breaks=1, recompiles=1)
def an_error_about_a_number_that_changes():
    def f(x, n):
        try:
            return torch.ones(n + 1).shape
        except TypeError as error:
            return x + 1, str(error)

    return f, [(t(3), n) for n in (1.5, 2.5, 3.5)]


class Mode(enum.Enum):
    SUM = 1


class Pairs(dict):
    """Its own iterator is not asked where C code merges or reverses it."""

    def __iter__(self):
        return iter(["none of these"])


def _caught(function):
    """What C code refuses only because capture gave it something else must not be caught."""

    def f(x, given):
        try:
            return x + 1, function(given)
        except Exception as error:
            return x - 1, type(error).__name__, str(error)

    return f


def _merged(given):
    into, ordered = {"first": 0}, collections.OrderedDict()
    into.update(given)
    ordered.update(given)
    into |= given
    return into, ordered, dict(given), collections.Counter(given)


@cases(graphs=4, recompiles=3)
def mappings_in_python_are_merged():
    given = (
        collections.UserDict(a=1),
        collections.ChainMap({"a": 1}, {"b": 2}),
        Pairs(a=1),
        {"a": 1},
    )
    return _caught(_merged), [(t(3), each) for each in given]


@cases(graphs=4, recompiles=3)
def backwards():
    class Backwards:
        def __reversed__(self):
            return iter([3, 2, 1])

    class Only:
        def __iter__(self):
            return iter([1])

    given = Backwards(), Only(), Pairs(a=1), collections.ChainMap({"a": 1})
    return _caught(lambda each: list(reversed(each))), [(t(3), each) for each in given]


@cases(graphs=1, breaks=4, recompiles=1)
def numbers_of_arrays_in_containers():
    def numbers(given):
        return set(given) | frozenset(given), dict.fromkeys(given, 0)

    return _caught(numbers), [(t(3), numpy.arange(n)) for n in (3, 3, 4)]


@cases(graphs=2, breaks=1)
def special_methods_of_arrays_by_name():
    def asked(given):
        first = given.__getitem__(0)
        return first, given.__contains__(1), given.__add__(1)

    return _caught(asked), [(t(3), numpy.arange(3)), (t(3), numpy.arange(3) + 5)]


@cases(graphs=4, recompiles=3)
def what_a_fraction_is_to_code_in_c():
    def asked(given):
        return f"{[given]}", "{0}".format(given), round(given), divmod(given, 3), max(given, 2)

    return _caught(asked), [(t(3), Fraction(n, 2)) for n in (3, 4, 5, 3, 9)]


@cases()
def a_member_is_called():
    def asked(given):
        try:
            return given(2)
        except TypeError as error:
            return str(error)

    return _caught(asked), [(t(3), Mode.SUM), (t(3), Mode.SUM)]


@cases(breaks=2, recompiles=1)
def attributes_of_a_bound_method():
    class Scaling:
        def __init__(self, by):
            self.by = by

        def scale(self, x):
            return x * self.by

    def f(x, owner):
        method = owner.scale
        said = method.__class__.__name__, method.__eq__(owner.scale), method.__qualname__
        return method.__call__(x), said, method.__hash__() == hash(method)

    return f, [(t(3), Scaling(2)), (t(3), Scaling(2))]


@cases(graphs=2, breaks=4, recompiles=2)
def operands_that_numpy_does_not_know():
    class Other:
        def __gt__(self, array):
            return "greater"

        def __radd__(self, array):
            return "added"

        __array_ufunc__ = None

    def asked(given):
        return given < Other(), given + Other()

    return _caught(asked), [(t(3), numpy.arange(3)), (t(3), numpy.arange(4))]


@cases(graphs=2, recompiles=1)
def a_choice_by_the_length_of_an_object():
    class Queue:
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n - 1

    def f(x, queue):
        return x + 1, (queue and 3) == 3, (queue or 4) == 4, not queue

    return f, [(t(3), Queue(n)) for n in (1, 2, 3, 1, 4, 1)]


@cases(graphs=2, recompiles=1)
def a_choice_by_the_truth_of_an_object():
    class Setting:
        def __init__(self, n):
            self.n = n

        def __bool__(self):
            return bool(self.n - 1)

    def f(x, setting):
        return x + 1, (setting and 3) == 3, (setting or 4) == 4, not setting

    return f, [(t(3), Setting(n)) for n in (1, 2, 3, 1, 4, 1)]


@cases(graphs=2, recompiles=1)
def an_object_that_is_no_number_and_no_text():
    activation = nn.ReLU()

    def f(x, n):
        if activation == "relu" or activation == n or n != activation and activation in (n, None):
            return x
        return activation(x) * n, activation != "relu"

    return f, [(t(3), n) for n in (1, 2, 3, 1)], [activation]


@cases()
def texts_are_no_summands():
    def asked(given):
        try:
            return sum(given, "")
        except TypeError as error:
            return str(error)

    return _caught(asked), [(t(3), ["a"]), (t(3), ["a"])]


@cases()
def tensors_are_not_rounded():
    return _caught(round), [(t(3), t(3)), (t(3), t(3))]


@cases(graphs=2, breaks=1)
def the_namespace_of_a_tensor():
    def f(x):
        return sorted(vars(x * 2)), x + 1

    return f, [(t(3),), (t(3),)]


@cases(graphs=3, recompiles=2)
def what_is_in_nothing():
    def asked(given):
        try:
            return 1 in given
        except TypeError as error:
            return str(error)

    return _caught(asked), [(t(3), None), (t(3), collections.OrderedDict), (t(3), 3)]


# ---- modes -------------------------------------------------------------------------------------


@cases(backends=("eager", "aot_eager"), graphs=3, recompiles=2)
def autocast_where_a_size_says_so():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=x.shape[0] > 3):
            return x @ x.T

    return f, [(t(2, 2),), (t(3, 3),), (t(4, 4),), (t(5, 5),)]


# ---- modules -----------------------------------------------------------------------------------


@cases(backends=("eager", "aot_eager"), graphs=2, breaks=1)
def an_observer_of_channels_sizes_its_buffers():
    fake = quantization.FusedMovingAvgObsFakeQuantize(
        quantization.MovingAveragePerChannelMinMaxObserver,
        quant_min=-128,
        quant_max=127,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
    )
    return (lambda x: fake(x * 2) + 1), [(t(3, 4),), (t(3, 4),), (t(3, 4),)], [fake]


@cases()
def a_spectral_norm_under_checkpoint():
    m = parametrizations.spectral_norm(nn.Linear(4, 5))

    def f(x):
        return checkpoint(m, x, use_reentrant=False).sum()

    return f, [(t(2, 4),), (t(2, 4),)], [m]


@pytest.mark.parametrize("case", cases, ids=str)
def test_as_in_eager(case: Case):
    assert check(case) > 0
