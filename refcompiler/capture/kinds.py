"""What kinds of values there are for a capture: constants, identities, containers, aliens."""

from __future__ import annotations

import collections
import enum
import operator
import re
import types
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from refcompiler.guards.constants import is_written
from refcompiler.guards.permanence import lasts

#: Values of these classes are constants of the graph, guarded by equality.
CONSTANT_TYPES = frozenset(
    {
        int,
        float,
        bool,
        complex,
        str,
        bytes,
        type(None),
        type(...),
        type(NotImplemented),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.Size,
        range,
    }
)
#: Objects that are what they are: guarded by identity.
IDENTITY_TYPES = (
    ModuleType,
    types.CodeType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
    operator.attrgetter,
    operator.itemgetter,
    operator.methodcaller,
    types.UnionType,
    types.GenericAlias,
    re.Pattern,
    property,
    staticmethod,
    classmethod,
)
#: Methods in C with the object that they are of: as most are, those that are told the class that
#: defines them (such as a pattern's), and those of slots.
BOUND_IN_C: tuple[type, ...] = (
    types.BuiltinFunctionType,
    type(re.compile("").match),
    types.MethodWrapperType,
)
SEQUENCES = (list, tuple, collections.deque)
MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
SETS = (set, frozenset)
CONTAINERS = (*SEQUENCES, *MAPPINGS, *SETS)
#: Containers of C, and views of them, in which items are compared.
COLLECTIONS = frozenset(
    {*CONTAINERS, collections.Counter, type({}.keys()), type({}.values()), type({}.items())}
)

_NATIVE_METACLASS: type = type(torch._C._SDPBackend)


def is_native_enum(kind: type) -> bool:
    """An enumeration of torch's in C++, whose members are numbers with a name."""
    return type(kind) is _NATIVE_METACLASS and "__members__" in kind.__dict__


def is_made(value: Any) -> bool:
    """Whether it is a function that another one has made, or may have."""
    return type(value) is FunctionType and (
        bool(value.__closure__)
        or "<locals>" in value.__qualname__
        or (is_written(value.__code__) and not lasts(value))
    )


#: Of a class's ``__flags__``: it may be inherited from, as the program's own may.
_BASETYPE = 1 << 10


def is_fixed(value: Any) -> bool:
    """Whether what is read of it says which object it is."""
    kind = type(value)
    return issubclass(kind, (type, enum.Enum, *IDENTITY_TYPES)) or (
        kind is FunctionType and not is_made(value)
    )


def is_struct_sequence(kind: type) -> bool:
    """A class of named tuples in C; there may be fields beside the items (``time.struct_time``)."""
    return (
        kind.__base__ is tuple
        and type(kind.__dict__.get("n_sequence_fields")) is int
        and not kind.__flags__ & _BASETYPE
    )


def is_structseq(kind: type) -> bool:
    """A class of named tuples in C, such as torch's results, without fields beside the items."""
    fields = getattr(kind, "n_fields", None)
    return type(fields) is int and fields == getattr(kind, "n_sequence_fields", None)


def is_outdated(value: torch.Tensor) -> bool:
    """Whether autograd has an error for whoever asks what made it: it is a view that was made
    without gradients, of what was written to since."""
    try:
        _ = value.is_leaf
    except RuntimeError:
        return True
    return False


def is_alien(value: torch.Tensor) -> bool:
    """A tensor that no graph holds: sparse, nested or quantized, or a plain view of a wrapper's."""
    with torch._C.DisableTorchFunction():
        if value.layout is not torch.strided or value.is_quantized or value.is_nested:
            return True
        if not value._is_view() or is_traceable_wrapper_subclass(value):
            return False
        return is_traceable_wrapper_subclass(value._base)


def is_numpy_scalar(kind: type) -> bool:
    """numpy's scalars and dtypes are constants like Python's numbers (known by name)."""
    return kind.__module__ in ("numpy", "numpy.dtypes") and any(
        base.__name__ in ("generic", "dtype") and base.__module__ == "numpy"
        for base in kind.__mro__
    )
