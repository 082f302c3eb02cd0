"""Arrays of numpy in the symbolic domain.

An array is a fake tensor over its memory together with a stand-in: a real array of the same
dtype, shape and strides with other contents. Each operation is done twice, by numpy on the
stand-ins and by ``torch._numpy`` (numpy's interface as plain operations of torch) on the fakes.
What numpy gives says which class, dtype, layout and sharing of memory the program must see;
where torch's result is another, the graph ends before the operation.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.signals import Break
from refcompiler.interpreter.registry import run_natively

_MODULE = "numpy"
#: Python's classes that stand for dtypes.
_PYTHON_DTYPES = (float, int, bool, complex)
_UNREAD = frozenset({"dtype", "shape", "ndim", "size", "strides", "itemsize", "nbytes"})
_PARTS = frozenset({"T", "real", "imag"})
#: Methods of arrays whose results depend on the contents alone.
_METHODS = frozenset(
    """
    all any argmax argmin argsort astype choose clip conj conjugate copy cumprod cumsum diagonal
    dot fill flatten max mean min nonzero prod ptp ravel repeat reshape round searchsorted sort
    squeeze std sum swapaxes take trace transpose var
    """.split()
)


#: What divides, by the name of numpy's function or Python's.
_DIVISIONS = frozenset({"divide", "truediv"})
_READING = frozenset({"item", "tolist", "tobytes", "dump", "dumps", "tofile"})


class Array:
    """An array, or a scalar of numpy's that was computed from one (by the stand-in's class)."""

    __slots__ = ("_machine", "_tensor", "_standin")

    __array_ufunc__ = None  # so that scalars of numpy's leave operators to this class

    def __init__(self, machine: Any, tensor: torch.Tensor, standin: Any):
        object.__setattr__(self, "_machine", machine)
        object.__setattr__(self, "_tensor", tensor)
        object.__setattr__(self, "_standin", standin)
        machine.standins.setdefault(id(standin), self)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._standin)

    def __getattr__(self, name: str) -> Any:
        if name in _UNREAD:
            return getattr(self._standin, name)
        if name in _PARTS:
            part = operator.attrgetter(name)
            return operate(self._machine, part, part, (self,), {})
        if name in _METHODS or name in _READING:
            return ArrayMethod(self, name)
        if name == "base" and not is_scalar(self):
            return base_of(self)
        if not hasattr(self._standin, name):
            return getattr(self._standin, name)  # numpy's error
        raise Break("operation-not-modelled", f"attribute {name} of an array")

    def __setattr__(self, name: str, value: Any) -> None:
        raise Break("operation-not-modelled", f"assignment to attribute {name} of an array")

    def __len__(self) -> int:
        return len(self._standin)

    def __iter__(self) -> Iterator:
        return iter([self[i] for i in range(len(self._standin))])

    def __getitem__(self, key: Any) -> Any:
        return operate(self._machine, operator.getitem, operator.getitem, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        operate(self._machine, operator.setitem, operator.setitem, (self, key, value), {})

    def __bool__(self) -> bool:
        raise Break("data-dependent-branch", "the truth of an array")

    def _read(self, *args: Any) -> Any:
        raise Break("data-dependent-value", "an array becomes a Python value")

    __int__ = __float__ = __complex__ = __index__ = __contains__ = _read
    __str__ = __repr__ = __format__ = _read
    __hash__ = None  # type: ignore[assignment]


def _binary(function: Callable, reflected: bool) -> Callable:
    def method(self: Array, other: Any) -> Any:
        if type(other) is not Array and not _is_operand(other):
            raise Break("c-function", f"{function.__name__} of an array and {type(other).__name__}")
        given = (other, self) if reflected else (self, other)
        return operate(self._machine, function, function, given, {})

    return method


def _in_place(function: Callable, plain: Callable) -> Callable:
    def method(self: Array, other: Any) -> Any:
        if type(other) is not Array and not _is_operand(other):
            raise Break("c-function", f"{function.__name__} of an array and {type(other).__name__}")
        if not self._standin.flags.writeable:  # a scalar, which is not changed, or an error
            return operate(self._machine, plain, plain, (self, other), {})
        return operate(self._machine, function, function, (self, other), {})

    return method


def _unary(function: Callable) -> Callable:
    return lambda self: operate(self._machine, function, function, (self,), {})


def _is_operand(value: Any) -> bool:
    kind = type(value)
    if kind in (list, tuple):
        return all(map(_is_operand, value))
    return kind in (int, float, bool, complex, Array) or _is_scalar(value)


for _name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
    _plain = getattr(operator, _name + ("_" if _name in ("and", "or") else ""))
    setattr(Array, f"__{_name}__", _binary(_plain, False))
    setattr(Array, f"__r{_name}__", _binary(_plain, True))
    setattr(Array, f"__i{_name}__", _in_place(getattr(operator, f"i{_name}"), _plain))
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(Array, f"__{_name}__", _binary(getattr(operator, _name), False))
for _name in ("neg", "pos", "invert", "abs"):
    setattr(Array, f"__{_name}__", _unary(getattr(operator, _name)))


class ArrayMethod:
    """A method of an array."""

    __slots__ = ("array", "name")

    def __init__(self, array: Array, name: str):
        self.array = array
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.name
        own = vars(Array).get(name)
        if own is not None:  # a special method, by its name
            return own(self.array, *args, **kwargs)
        if name in _READING:
            raise Break("data-dependent-value", f"ndarray.{name}")

        def call(array: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(array, name)(*args, **kwargs)

        return operate(self.array._machine, call, call, (self.array, *args), kwargs)


def special_method(array: Array, name: str) -> ArrayMethod | None:
    """``array.__name__``, if there is such a method here."""
    is_special = name[:2] == "__" and type(vars(Array).get(name)) is FunctionType
    return ArrayMethod(array, name) if is_special else None


def _run_natively(*classes: type) -> None:
    """What these classes do is capture's own work."""
    for cls in classes:
        for member in vars(cls).values():
            run_natively(getattr(member, "fget", member))


_run_natively(Array, ArrayMethod)


# ---- values -----------------------------------------------------------------------------------


def _is_scalar(value: Any) -> bool:
    import numpy

    return isinstance(value, numpy.generic)


def is_supported(array: Any) -> bool:
    """Torch can share the memory of ``array``."""
    dtype = array.dtype
    if not dtype.isnative or not isinstance(getattr(torch, dtype.name, None), torch.dtype):
        return False
    if array.size == 0 and array.ndim == 0:
        return False
    return all(s >= 0 and s % dtype.itemsize == 0 for s in array.strides)


def stand_in(array: Any) -> Any:
    """An array with the metadata of ``array`` and contents of its own."""
    made = _filled(array.dtype, array.shape, array.strides)
    made.flags.writeable = array.flags.writeable
    return made


def _filled(dtype: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
    import numpy

    if 0 in shape:
        return numpy.ndarray(shape, dtype, numpy.zeros(0, dtype), 0, strides)
    last = sum([(n - 1) * step for n, step in zip(shape, strides, strict=True)])
    memory = (numpy.arange(last // dtype.itemsize + 1) * 7919 % 101 + 1).astype(dtype)
    # over something else than an array, so that a view of it says that it is one of this
    return numpy.ndarray(shape, dtype, bytearray(memory.tobytes()), 0, strides)


def owner_of(array: Array) -> Array | None:
    """The array of whose memory ``array`` is a view, if it is one that the program has made."""
    if id(array) in array._machine.external:
        return None
    return array._machine.standins.get(id(array._standin.base))


def base_of(array: Array) -> Any:
    """``array.base``."""
    machine = array._machine
    external = machine.external.get(id(array))
    if external is not None:
        return machine.lazy(machine.member(external.source, "base"), external.value.base)
    if array._standin.base is None:
        return None
    owner = owner_of(array)
    if owner is None:
        raise Break("operation-not-modelled", "attribute base of an array over a tensor's memory")
    external = machine.external.get(id(owner))
    if external is not None and type(external.value.base) is type(array._standin):
        return base_of(owner)
    return owner


def of_tensor(machine: Any, tensor: torch.Tensor) -> Array:
    """The array over the memory of ``tensor``, a fake that needs no gradient."""
    import numpy

    with machine.recorder.suspension():
        dtype = numpy.dtype(str(tensor.dtype).removeprefix("torch."))
        strides = [step * dtype.itemsize for step in tensor.stride()]
        return Array(machine, tensor, _filled(dtype, tuple(tensor.shape), strides))


# ---- operations -------------------------------------------------------------------------------


def operate(
    machine: Any, ours: Callable, theirs: Callable, args: Sequence[Any], kwargs: Any
) -> Any:
    """``ours(*args, **kwargs)`` of numpy, as ``theirs`` of ``torch._numpy`` records it."""
    import numpy

    name = getattr(ours, "__name__", "")
    if name in _DIVISIONS:
        theirs = _dividing(theirs)
    taken: list[Array] = []
    given = _both(tuple(args), taken)
    named = {key: _both(value, taken) for key, value in kwargs.items()}
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with machine.recorder.suspension(), torch._C.DisableTorchFunction():
                wanted = ours(*given[0], **{key: pair[0] for key, pair in named.items()})
        except Exception as error:
            raise Break("fake-op-raised", f"numpy {name}: {error}".split("\n")[0]) from error
        parts = given[1], {key: pair[1] for key, pair in named.items()}
        if not taken and isinstance(wanted, numpy.ndarray) and wanted.dtype.kind in "fc":
            constant = _constant(name, theirs, parts, wanted)
            if constant is not None:
                return Array(machine, constant, wanted)
        try:
            found = theirs(*parts[0], **parts[1])
        except Exception as error:
            why = f"{type(error).__name__}: {error}".split("\n")[0]
            raise Break("operation-not-modelled", f"numpy {name}: {why}") from error
    return _paired(machine, name, wanted, found, taken)


def _dividing(theirs: Callable) -> Callable:
    """``theirs`` for whole numbers as numpy divides them: in double precision, which torch's
    default dtype is not."""
    import torch._numpy as tnp

    def divide(x: Any, y: Any, *others: Any, **kwargs: Any) -> Any:
        if _is_whole(x) and _is_whole(y):
            x, y = tnp.asarray(x).astype(tnp.float64), tnp.asarray(y).astype(tnp.float64)
        return theirs(x, y, *others, **kwargs)

    return divide


def _is_whole(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_whole, value))
    tensor = getattr(value, "tensor", None)
    if tensor is None:
        return type(value) in (int, bool)
    return not (tensor.is_floating_point() or tensor.is_complex())


_MOST_CONSTANTS = 4096


def _constant(
    name: str, theirs: Callable, parts: tuple[tuple, dict], wanted: Any
) -> torch.Tensor | None:
    """What numpy makes of constants, where ``theirs`` rounds another way; None where it does not.

    (``numpy.linspace`` of single precision is computed in double precision, torch's is not.)
    """
    if name.startswith("empty") or not wanted.flags.c_contiguous:
        return None
    try:
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            real = theirs(*parts[0], **parts[1]).tensor.numpy()
        if real.tobytes() == wanted.tobytes():
            return None
    except Exception:  # fakes among its arguments, or something that it does not know
        return None
    if wanted.size > _MOST_CONSTANTS:
        raise Break("operation-not-modelled", f"numpy {name} of {wanted.size} rounded constants")
    return torch.tensor(wanted.tolist(), dtype=getattr(torch, wanted.dtype.name))


def _both(value: Any, taken: list[Array]) -> tuple[Any, Any]:
    """``value`` for numpy and for ``torch._numpy``; the arrays in it are appended to ``taken``."""
    import torch._numpy as tnp

    kind = type(value)
    if kind is Array:
        taken.append(value)
        return value._standin, tnp.ndarray(value._tensor)
    if kind in (list, tuple):
        pairs = [_both(item, taken) for item in value]
        return kind([a for a, _ in pairs]), kind([b for _, b in pairs])
    if kind is slice:
        parts = _both((value.start, value.stop, value.step), taken)
        return slice(*parts[0]), slice(*parts[1])
    if _is_scalar(value):
        dtype = getattr(torch, value.dtype.name, None)
        if not isinstance(dtype, torch.dtype):
            raise Break("operation-not-modelled", f"a numpy.{kind.__name__}")
        return value, tnp.ndarray(torch.tensor(value.item(), dtype=dtype))
    name = _dtype_name(value)
    if name is not None:
        dtype = getattr(tnp, name, None)
        if dtype is None:
            raise Break("operation-not-modelled", f"numpy's dtype {name}")
        return value, dtype
    if kind in CONSTANT_TYPES or any(value is dtype for dtype in _PYTHON_DTYPES):
        return value, value
    raise Break("c-function", f"a numpy function with a {kind.__name__}")


def _dtype_name(value: Any) -> str | None:
    """The name of a dtype that is given as numpy's object or class."""
    import numpy

    if isinstance(value, numpy.dtype):
        return value.name if value.isnative else "of another byte order"
    if isinstance(value, type) and issubclass(value, numpy.generic):
        return numpy.dtype(value).name
    return None


def _paired(machine: Any, name: str, wanted: Any, found: Any, taken: list[Array]) -> Any:
    """The value of the symbolic domain for what numpy and ``torch._numpy`` give."""
    import numpy
    import torch._numpy as tnp

    if isinstance(wanted, (numpy.ndarray, numpy.generic)):
        for array in taken:
            if wanted is array._standin and isinstance(wanted, numpy.ndarray):
                return array
        if type(wanted) is not numpy.ndarray and not isinstance(wanted, numpy.generic):
            raise Break("operation-not-modelled", f"numpy {name} gives a {type(wanted).__name__}")
        if not isinstance(found, tnp.ndarray):
            raise Break("operation-not-modelled", f"numpy {name}")
        return Array(machine, _agreeing(name, wanted, found.tensor, taken), wanted)
    if isinstance(wanted, (tuple, list)):
        if not isinstance(found, (tuple, list)) or len(found) != len(wanted):
            raise Break("operation-not-modelled", f"numpy {name}")
        pairs = zip(wanted, found, strict=True)
        items = [_paired(machine, name, a, b, taken) for a, b in pairs]
        kind: Any = type(wanted)
        if kind in (tuple, list):
            machine.recorder.keep.append(made := kind(items))
            return made
        return tuple.__new__(kind, items)
    if type(wanted) in CONSTANT_TYPES and type(found) is type(wanted) and found == wanted:
        return wanted
    raise Break("operation-not-modelled", f"numpy {name} gives a {type(wanted).__name__}")


def _agreeing(name: str, wanted: Any, found: torch.Tensor, taken: list[Array]) -> torch.Tensor:
    """``found`` as numpy would give it: in memory of its own or in an operand's, and its layout."""
    import numpy

    if str(found.dtype) != f"torch.{wanted.dtype.name}" or tuple(found.shape) != wanted.shape:
        was = f"{wanted.dtype}{list(wanted.shape)}"
        other = f"{found.dtype}{list(found.shape)}"
        raise Break("operation-not-modelled", f"numpy {name} gives {was}, torch {other}")
    if found.is_conj() or found.is_neg():
        found = found.resolve_conj().resolve_neg()
    scalar = isinstance(wanted, numpy.generic)
    shared = False
    for array in taken:
        ours = not scalar and numpy.may_share_memory(wanted, array._standin)
        theirs = _storage(found) == _storage(array._tensor)
        if ours and not theirs:
            raise Break("operation-not-modelled", f"numpy {name} gives a view, torch does not")
        if theirs and not ours:
            found = found.clone()
        shared |= ours
    if not _same_layout(wanted, found):
        if shared:
            raise Break("operation-not-modelled", f"numpy {name} gives another view than torch")
        size = wanted.itemsize
        steps = [step // size for step in wanted.strides]
        found = torch.empty_strided(found.shape, steps, dtype=found.dtype).copy_(found)
    return found


def _storage(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()._cdata


def _same_layout(wanted: Any, found: torch.Tensor) -> bool:
    if 0 in wanted.shape:
        return True
    size = wanted.itemsize
    return all(
        n == 1 or step == size * theirs
        for n, step, theirs in zip(wanted.shape, wanted.strides, found.stride(), strict=True)
    )


def is_scalar(array: Array) -> bool:
    """Whether it is one of numpy's scalars in eager."""
    return _is_scalar(array._standin)
