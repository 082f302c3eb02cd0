"""Values as rows: a kind, and what a value of that kind is made of.

None, bools, whole numbers and texts are themselves in JSON; any other value is the number of its
row in a list, so that what is one object is one again. There is a kind for each class that can be
packed, and no other way in or out: what has none is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple, Protocol

import torch

from refcompiler.errors import PackageError

_ITSELF = (type(None), bool, int, str)


class Refused(Exception):
    """What cannot be packed, in words."""


class NotYet(Exception):
    """What is only made when somebody asks for it: ``tell`` says who wants to know of it then."""

    def __init__(self, what: str, tell: Callable[[Callable[[], None]], None]):
        super().__init__(what)
        self.tell = tell


class Home(Protocol):
    """A process that can capture and compile what is read, unlike that which loads a package."""

    def anew(self, why: str) -> None:
        """Something was asked for that is not there: the next call is captured and compiled."""

    def compile(self, graph: Any, inputs: list[Any]) -> Any:
        """What the program's backend makes of a graph."""

    def watch(self, tell: Callable[[Callable[[], None]], None]) -> None:
        """``tell`` who wants to know of what is made besides, so that it is kept too."""

    def captured(self, chosen: Mapping[Any, Any], values: Sequence[Any]) -> tuple[Any, Any]:
        """The graph of the call, captured once more with these symbols, and how it goes on from an
        error in it; two Nones where that is another graph."""

    def pending(self) -> Any:
        """What goes on from a break of the program."""

    @property
    def codes(self) -> Sequence[CodeType]:
        """Those that the program's entry depends on."""


class Kind(NamedTuple):
    """``pack(packer, value)``: the parts of its row; ``unpack(unpacker, *parts)``: the value."""

    name: str
    pack: Callable[[Packer, Any], list[Any]]
    unpack: Callable[..., Any]


KINDS: dict[str, Kind] = {}
_BY_CLASS: dict[type, Kind] = {}
_TESTS: list[tuple[Callable[[Any], bool], Kind]] = []
#: What a package may require of the process: label -> what this process has.
HERE: dict[str, Callable[[], str]] = {}


def register(
    name: str,
    pack: Callable[[Packer, Any], list[Any]],
    unpack: Callable[..., Any],
    *classes: type,
    when: Callable[[Any], bool] | None = None,
) -> None:
    """A kind for instances of exactly ``classes``, and for what ``when`` holds of."""
    if name in KINDS and KINDS[name].unpack is not unpack:
        raise ValueError(f"{name} is the name of another kind of rows")
    kind = KINDS[name] = Kind(name, pack, unpack)
    for cls in classes:
        _BY_CLASS[cls] = kind
    if when is not None:
        _TESTS.append((when, kind))


def record(cls: Any, *fields: str) -> None:
    """A kind for a named tuple, or for a dataclass with these ``fields``, all of them."""
    names = fields or cls._fields
    register(
        f"{cls.__module__}.{cls.__qualname__}",
        lambda p, value: [p.pack(getattr(value, name)) for name in names],
        lambda u, *parts: cls(*map(u.value, parts)),
        cls,
    )


def held(value: Any, name: str, default: Any = None) -> Any:
    """An attribute, past a ``__getattr__`` of the user's, which would run."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return default


def described(value: Any) -> str:
    """What ``value`` is, without asking an object of the user's for its text."""
    name = held(value, "__qualname__")
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"{name} ({kind})" if isinstance(name, str) else f"an object of class {kind}"


class Packer:
    """``rows`` and ``blobs`` of what was packed; ``required`` is what they need of the process.

    ``external``: names of objects that whoever loads the package gives it. ``complete``: for a
    process that can compile: what has not been compiled yet is :class:`NotYet`. ``codes``: of
    whoever looks for it, so that these need no names.
    """

    def __init__(
        self,
        external: Mapping[str, Any] | None = None,
        complete: bool = False,
        codes: Sequence[CodeType] = (),
    ):
        self.complete, self.codes = complete, codes
        self.rows: list[Any] = []
        self.blobs: list[bytes] = []
        self.required: dict[str, str] = {}
        self._external = {id(value): name for name, value in (external or {}).items()}
        self._known: dict[int, int] = {}
        self._kept: list[Any] = []  # whose ids are known

    def pack(self, value: Any) -> Any:
        """What stands for ``value`` in another row. Raises :class:`Refused`."""
        if type(value) in _ITSELF:
            return value
        at = self._known.get(id(value))
        if at is not None:
            if self.rows[at] is None:
                raise Refused(f"{described(value)}, which contains itself")
            return [at]
        name = self._external.get(id(value))
        if name is not None:
            return self._add(value, "external", lambda: [name, type(value).__qualname__])
        kind = self._kind(value)
        if kind is None:
            raise Refused(described(value))
        return self._add(value, kind.name, lambda: kind.pack(self, value))

    def _add(self, value: Any, name: str, parts: Callable[[], list[Any]]) -> list[int]:
        at = self._known[id(value)] = len(self.rows)
        self._kept.append(value)
        self.rows.append(None)
        try:
            self.rows[at] = [name, *parts()]
        except BaseException:
            del self._known[id(value)]
            raise
        return [at]

    def _kind(self, value: Any) -> Kind | None:
        for test, kind in _TESTS:
            if test(value):
                return kind
        return _BY_CLASS.get(type(value)) or next(
            (_BY_CLASS[base] for base in (type,) if isinstance(value, base)), None
        )

    def is_external(self, value: Any) -> bool:
        return id(value) in self._external

    def blob(self, data: bytes) -> int:
        self.blobs.append(data)
        return len(self.blobs) - 1

    def require(self, label: str) -> None:
        """This process and the one that loads the package have to agree on ``label``."""
        if label not in self.required:
            self.required[label] = HERE[label]()


class Unpacker:
    """The values of rows, each made when it is first asked for.

    ``title`` is how errors call the package. ``spaces``: what stands for the namespaces of modules.
    ``home``: whose program it is, if it is no package.
    """

    def __init__(
        self,
        rows: Sequence[Any],
        blobs: Sequence[memoryview],
        title: str,
        spaces: Mapping[str, dict[str, Any]] | None = None,
        external: Mapping[str, Any] | None = None,
        home: Home | None = None,
    ):
        self.home = home
        self.rows, self.blobs, self.title = rows, blobs, title
        self.spaces, self.external = spaces or {}, external or {}
        self._made: dict[int, Any] = {}
        self._begun: set[int] = set()

    def value(self, given: Any) -> Any:
        """The value that ``given`` stands for."""
        if type(given) in _ITSELF:
            return given
        (at,) = given
        if at not in self._made:
            if at in self._begun:
                raise PackageError(f"{self.title} is malformed: a value contains itself")
            self._begun.add(at)
            name, *parts = self.rows[at]
            kind = KINDS.get(name)
            if kind is None:
                raise PackageError(f"{self.title} has a {name!r}, which this release does not know")
            self._made[at] = kind.unpack(self, *parts)
            self._begun.discard(at)
        return self._made[at]

    def values(self, given: Sequence[Any]) -> list[Any]:
        return [self.value(item) for item in given]

    def later(self, given: Any) -> Callable[[], Any]:
        """The value when it is needed, which may be never."""
        return lambda: self.value(given)


# ---- plain values --------------------------------------------------------------------------------


def _float(value: float) -> list[Any]:
    if math.isnan(value):
        return ["nan" if math.copysign(1.0, value) > 0 else "-nan"]
    return [value.hex()]


def _of_float(text: str) -> float:
    return math.copysign(math.nan, -1.0) if text == "-nan" else float.fromhex(text)


def _pairs(p: Packer, value: Mapping[Any, Any]) -> list[Any]:
    return [[p.pack(key), p.pack(item)] for key, item in value.items()]


def _external(u: Unpacker, name: str, kind: str) -> Any:
    if name not in u.external:
        raise PackageError(f"{u.title} needs external_data[{name!r}], an object of class {kind}")
    found = u.external[name]
    if type(found).__qualname__ != kind:
        have = type(found).__qualname__
        raise PackageError(f"external_data[{name!r}] is of class {have}; {u.title} needs a {kind}")
    return found


def _sequence(cls: Any) -> None:
    register(
        cls.__name__.lower(),
        lambda p, value: [p.pack(item) for item in value],
        lambda u, *items: cls([u.value(item) for item in items]),
        cls,
    )


for _cls in (tuple, list, set, frozenset, torch.Size):
    _sequence(_cls)
register("external", lambda p, value: [], _external)
register("float", lambda p, value: _float(value), lambda u, text: _of_float(text), float)
register(
    "complex",
    lambda p, v: [p.pack(v.real), p.pack(v.imag)],
    lambda u, real, imag: complex(u.value(real), u.value(imag)),
    complex,
)
register("bytes", lambda p, v: [p.blob(v)], lambda u, at: bytes(u.blobs[at]), bytes)
register(
    "dict", _pairs, lambda u, *pairs: {u.value(key): u.value(item) for key, item in pairs}, dict
)
register(
    "slice",
    lambda p, v: [p.pack(v.start), p.pack(v.stop), p.pack(v.step)],
    lambda u, *parts: slice(*u.values(parts)),
    slice,
)
register("range", lambda p, v: [v.start, v.stop, v.step], lambda u, *parts: range(*parts), range)
register(
    "single",
    lambda p, v: [repr(v)],
    lambda u, name: {"Ellipsis": ..., "NotImplemented": NotImplemented}[name],
    type(...),
    type(NotImplemented),
)


# ---- torch ---------------------------------------------------------------------------------------


def _of_torch(cls: type) -> None:
    """Of constants that torch has as attributes."""

    def unpack(u: Unpacker, name: str) -> Any:
        found = getattr(torch, name)
        if not isinstance(found, cls):
            raise PackageError(f"{u.title} is malformed: torch.{name} is no {cls.__name__}")
        return found

    register(cls.__name__, lambda p, value: [str(value).removeprefix("torch.")], unpack, cls)


for _cls in (torch.dtype, torch.layout, torch.memory_format):
    _of_torch(_cls)
register("device", lambda p, v: [str(v)], lambda u, text: torch.device(text), torch.device)


def _pack_tensor(p: Packer, t: torch.Tensor) -> list[Any]:
    """Sizes, strides, and the bytes of the part of the memory that it reaches."""
    if t.layout is not torch.strided or t.is_conj() or t.is_neg() or t.is_quantized:
        raise Refused("a tensor that is sparse, quantised, conjugate or negative")
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.grad_fn is not None:
        raise Refused(f"a tensor of class {type(t).__qualname__} or with a gradient function")
    if torch._C._is_tensor_fake(t) if hasattr(torch._C, "_is_tensor_fake") else False:
        raise Refused("a fake tensor")
    with torch.no_grad():
        reach = 1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True))
        flat = t.detach().as_strided((reach if t.numel() else 0,), (1,), t.storage_offset())
        data = (
            flat.cpu().clone().view(torch.uint8) if t.numel() else torch.empty(0, dtype=torch.uint8)
        )
        data = bytes(data.numpy())
    kind = "parameter" if isinstance(t, torch.nn.Parameter) else "tensor"
    known = p.pack(t.dtype), list(t.shape), list(t.stride()), p.pack(t.device)
    return [kind, *known, t.requires_grad, p.blob(data)]


def _unpack_tensor(
    u: Unpacker,
    kind: str,
    dtype: Any,
    shape: list[int],
    stride: list[int],
    device: Any,
    grad: bool,
    blob: int,
) -> torch.Tensor:
    dtype, data = u.value(dtype), bytearray(u.blobs[blob])
    with torch.no_grad(), torch.inference_mode(False):
        flat = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0)
        flat = flat.view(dtype) if data else torch.empty(0, dtype=dtype)
        made = flat.clone().as_strided(shape, stride).to(u.value(device))
    if kind == "parameter":
        return torch.nn.Parameter(made, requires_grad=grad)
    return made.requires_grad_(grad)


register("tensor", _pack_tensor, _unpack_tensor, torch.Tensor, torch.nn.Parameter)


def _pack_operator(p: Packer, op: Any) -> list[Any]:
    return [str(op)]


def _unpack_operator(u: Unpacker, name: str) -> Any:
    found: Any = torch.ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise PackageError(
            f"{u.title} needs the operator {name}, which is not registered"
        ) from None
    if not isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        raise PackageError(f"{u.title} is malformed: {name} is no operator")
    return found


register(
    "operator", _pack_operator, _unpack_operator, torch._ops.OpOverload, torch._ops.OpOverloadPacket
)
