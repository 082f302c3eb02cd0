"""``id`` of what the frame has made: a number that is known when the object is made again.

Until then an :class:`Address` stands for it, one for each object. As a key and in comparisons it
differs from all other numbers, like the ``id`` of an object that is alive; what asks for the number
itself ends the graph. Objects from outside keep their number, with a guard on which they are.
"""

from __future__ import annotations

from typing import Any

from refcompiler.capture.arrays.array import Array, ArrayMethod
from refcompiler.capture.signals import Break
from refcompiler.interpreter.registry import run_natively


class Address:
    """The ``id`` of ``of``, to which nothing but itself is equal."""

    __slots__ = ("of",)

    def __init__(self, of: Any):
        self.of = of

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def __bool__(self) -> bool:
        return True

    def _read(self, *args: Any) -> Any:
        raise Break("c-function", "the number that builtins.id gives")

    __int__ = __float__ = __complex__ = __index__ = __str__ = __repr__ = __format__ = _read
    __getattr__ = _read
    __lt__ = __le__ = __gt__ = __ge__ = _read
    __neg__ = __pos__ = __invert__ = __abs__ = __round__ = __trunc__ = __floor__ = __ceil__ = _read
    __reduce_ex__ = __copy__ = __deepcopy__ = _read


for _name in "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift".split():
    for _kind in ("", "r"):
        setattr(Address, f"__{_kind}{_name}__", Address._read)
for _member in vars(Address).values():
    run_natively(getattr(_member, "fget", _member))

#: Classes of capture's own objects that stand for the program's: their methods are no user's.
STAND_INS = (Array, ArrayMethod, Address)


def address_of(m: Any, value: Any) -> Address:
    """The one of ``value``, which lives as long as the capture."""
    known = m.addresses.get(id(value))
    if known is None:
        known = m.addresses[id(value)] = Address(value)
    return known
