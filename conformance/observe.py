"""Everything a user can see after a call, as values: what two runs are compared on."""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import random
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch

from conformance.verdict import Compiled

# The module that a program's source becomes while it runs, and how its file's name begins.
MODULE = "conformance_program"
PROGRAM_FILE = "<program "
# Objects reached from a result are followed this far; a cycle is followed once.
MAX_LEAVES = 20_000


@dataclass(frozen=True)
class TensorSeen:
    """One tensor: what it says of itself, and a copy of its values."""

    type: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int | None, ...]  # None where no element is reached by it
    offset: int
    device: str
    layout: str
    requires_grad: bool
    is_leaf: bool
    conj: bool
    neg: bool
    values: torch.Tensor = field(compare=False, repr=False)
    storage: int = field(compare=False)
    identity: int = field(compare=False)


@dataclass(frozen=True)
class LeafSeen:
    """Anything else: its type and how it prints."""

    type: str
    text: str


@dataclass(frozen=True)
class Snapshot:
    """All that can be reached from a namespace, keyed by the Python expression that reaches it."""

    tensors: Mapping[str, TensorSeen]
    leaves: Mapping[str, LeafSeen]


@dataclass(frozen=True)
class ErrorSeen:
    """An exception: ``own`` says that the program itself raised it, not something it called.

    ``bases``: its type and every type that an ``except`` clause would catch it by.
    """

    type: str
    bases: tuple[str, ...]
    message: str
    own: bool
    traceback: str
    refusal: bool = False


@dataclass(frozen=True)
class StepSeen:
    """What a user can see after one step. ``ambient``: what it leaves for the next one."""

    snapshot: Snapshot
    printed: str
    error: ErrorSeen | None
    rng: Mapping[str, str]
    compiled: Compiled
    ambient: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    steps: tuple[StepSeen, ...]

    @property
    def compiled(self) -> Compiled:
        return sum((step.compiled for step in self.steps), Compiled())


def rng_state() -> dict[str, str]:
    """Fingerprints of every random generator's state, by its name in Python."""
    states = {"torch": torch.get_rng_state().numpy().tobytes(), "random": random.getstate()}
    if "numpy" in sys.modules:
        import numpy

        state = numpy.random.get_state(legacy=False)
        states["numpy.random"] = (state["state"]["key"].tobytes(), state["state"]["pos"])
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["torch.cuda"] = torch.cuda.get_rng_state().numpy().tobytes()
    return {name: hashlib.sha256(repr(s).encode()).hexdigest()[:12] for name, s in states.items()}


def tensor_seen(tensor: torch.Tensor) -> TensorSeen:
    """Facts and a detached copy. Strides of dimensions of size 0 or 1 carry no meaning."""
    dense = tensor.layout == torch.strided
    strides: tuple[int | None, ...] = ()
    if dense:
        used = tensor.numel() > 0
        pairs = zip(tensor.shape, tensor.stride(), strict=True)
        strides = tuple(stride if used and size > 1 else None for size, stride in pairs)
    with torch.no_grad():
        values = tensor.detach()
        values = values if dense else values.to_dense()
        # A functionalised, fake or lazy tensor that escaped has no values: to_plain raises then,
        # and the caller reports the escape.
        values = values.resolve_conj().resolve_neg().to("cpu", copy=True).contiguous()
        if type(values).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
            with torch._C.DisableTorchFunctionSubclass():  # each run has a class of its own
                values = values.as_subclass(torch.Tensor)
    return TensorSeen(
        type=type(tensor).__name__,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=strides,
        offset=tensor.storage_offset() if dense else 0,
        device=str(tensor.device),
        layout=str(tensor.layout).removeprefix("torch."),
        requires_grad=tensor.requires_grad,
        is_leaf=tensor.is_leaf,
        conj=tensor.is_conj(),
        neg=tensor.is_neg(),
        values=values,
        storage=tensor.untyped_storage()._cdata if dense else id(tensor),
        identity=id(tensor),
    )


class _Walk:
    """Follows everything reachable from some roots, once, in a fixed order."""

    def __init__(self) -> None:
        self.tensors: dict[str, TensorSeen] = {}
        self.leaves: dict[str, LeafSeen] = {}
        self.seen: dict[int, str] = {}
        self.kept: list[Any] = []  # keeps temporaries alive, so that an id stays one object's

    def visit(self, path: str, value: Any) -> None:
        if len(self.leaves) + len(self.tensors) >= MAX_LEAVES:
            return
        if isinstance(value, torch.Tensor):
            self.tensor(path, value)
        elif value is None or isinstance(value, _PLAIN):
            self.leaves[path] = LeafSeen(type(value).__name__, _text(value))
        elif isinstance(value, _BY_NAME):
            # Compiling may wrap or copy code; a user sees what it is called.
            name: Any = getattr(value, "__qualname__", None)
            if not isinstance(name, str):  # a module's own ``__getattr__`` answers anything
                name = getattr(value, "__name__", "")
            self.leaves[path] = LeafSeen("code", name)
            self.code(path, value)
        elif type(value) in _VALUES:
            # Nothing in the language says whether two equal ones are one object.
            self.kept.append(value)
            self.leaves[path] = LeafSeen(type(value).__qualname__, "")
            self.container(path, value)
        elif id(value) in self.seen:
            self.leaves[path] = LeafSeen("same object", self.seen[id(value)])
        else:
            self.seen[id(value)] = path
            self.kept.append(value)
            self.leaves[path] = LeafSeen(type(value).__qualname__, "")
            self.container(path, value)

    def code(self, path: str, value: Any) -> None:
        """Functions and classes of the program hold state; those of others are not followed."""
        if isinstance(value, types.FunctionType):
            if value.__code__.co_filename.startswith(PROGRAM_FILE):
                self.program_function(path, value)
        elif isinstance(value, type) and value.__module__ == MODULE:
            self.program_class(path, value)

    def tensor(self, path: str, value: torch.Tensor) -> None:
        self.kept.append(value)
        try:
            self.tensors[path] = tensor_seen(value)
        except Exception as error:
            self.leaves[path] = LeafSeen(type(value).__name__, f"unreadable: {error}")
            return
        if value.is_leaf and value.requires_grad:
            self.visit(f"{path}.grad", value.grad)

    def container(self, path: str, value: Any) -> None:
        if isinstance(value, torch.nn.Module):
            self.module(path, value)
        elif isinstance(value, Mapping):
            for place, (key, item) in enumerate(value.items()):
                parts = key if type(key) is tuple else (key,)
                if all(isinstance(part, _SPELT) for part in parts):
                    self.visit(f"{path}[{key!r}]", item)
                    continue
                # How an object prints may say its values, and is seldom an expression.
                self.visit(f"[*{path}][{place}]", key)
                self.visit(f"[*{path}.values()][{place}]", item)
        elif isinstance(value, set | frozenset):
            self.leaves[path] = LeafSeen(type(value).__qualname__, str(sorted(map(repr, value))))
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            for name in value._fields:
                self.visit(f"{path}.{name}", getattr(value, name))
        elif isinstance(value, list | tuple) or type(value).__qualname__ == "deque":
            for index, item in enumerate(value):
                self.visit(f"{path}[{index}]", item)
        if is_dataclass(value):
            for entry in fields(value):
                self.visit(f"{path}.{entry.name}", getattr(value, entry.name, None))
        elif isinstance(value, functools.partial):
            # A partial whose ``__dict__`` was looked at is no longer merged into another one.
            for name in ("args", "keywords"):
                self.visit(f"{path}.{name}", getattr(value, name))
        elif not isinstance(value, torch.nn.Module):
            self.attributes(path, value)

    def attributes(self, path: str, value: Any) -> None:
        """The instance's own, in its dictionary and in its slots."""
        for name, item in getattr(value, "__dict__", {}).items():
            self.visit(f"{path}.{name}", item)
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else tuple(slots):
                if isinstance(kind.__dict__.get(name), types.MemberDescriptorType):
                    with contextlib.suppress(AttributeError):  # a slot may be empty
                        self.visit(f"{path}.{name}", kind.__dict__[name].__get__(value))

    def program_function(self, path: str, value: types.FunctionType) -> None:
        """What a function of the program keeps between calls: cells, defaults, attributes."""
        if id(value) in self.seen:
            return
        self.seen[id(value)] = path
        for number, cell in enumerate(value.__closure__ or ()):
            with contextlib.suppress(ValueError):  # an empty cell
                self.visit(f"{path}.__closure__[{number}].cell_contents", cell.cell_contents)
        self.visit(f"{path}.__defaults__", value.__defaults__)
        self.visit(f"{path}.__kwdefaults__", value.__kwdefaults__)
        self.visit(f"{path}.__dict__", value.__dict__)

    def program_class(self, path: str, value: type) -> None:
        """The data among a class's attributes."""
        if id(value) in self.seen:
            return
        self.seen[id(value)] = path
        for name, item in value.__dict__.items():
            if not name.startswith("_") and not isinstance(item, _DESCRIBED):
                self.visit(f"{path}.{name}", item)

    def module(self, path: str, module: torch.nn.Module) -> None:
        for name, item in module.__dict__.items():
            if name not in _MODULE_INTERNALS:
                self.visit(f"{path}.{name}", item)
        for store in ("_parameters", "_buffers"):
            for name, item in getattr(module, store).items():
                self.visit(f"{path}.{name}", item)
        for name, item in module._modules.items():
            # Numbers are no attribute names in Python's grammar.
            self.visit(f"{path}.{name}" if name.isidentifier() else f"{path}[{name}]", item)


_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, enum.Enum)
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_VALUES = (tuple, torch.Size, frozenset)
_SPELT = (bool, int, float, complex, str, bytes, type(None))
# Attributes of a class that say how it works, and hold no state.
_DESCRIBED = (
    *_BY_NAME, property, staticmethod, classmethod, functools.cached_property,
    types.MemberDescriptorType, types.GetSetDescriptorType,
)  # fmt: skip
# Kept by torch in every module, or set by torch.compile; none is the user's state.
_MODULE_INTERNALS = {
    *torch.nn.Module().__dict__,
    "_compiled_call_impl",
    "_is_full_backward_hook",
    "_is_torch_compile",
} - {"training"}


def _text(value: Any) -> str:
    # Addresses differ from run to run.
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def snapshot(namespace: Mapping[str, Any]) -> Snapshot:
    """See everything reachable from the public names of ``namespace`` that hold data."""
    walk = _Walk()
    for name, value in namespace.items():
        if name.startswith("_"):
            continue
        if isinstance(value, _BY_NAME):
            walk.code(name, value)
        else:
            walk.visit(name, value)
    return Snapshot(walk.tensors, walk.leaves)


def error_seen(error: BaseException, own_file: str, refusals: tuple[type, ...]) -> ErrorSeen:
    """Facts of an exception. ``own_file``: what the program's code was compiled as."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    # What a function written in C raises has the program's frame as its last one too.
    raising = ("raise", "assert")
    own = bool(frames) and frames[-1].filename == own_file
    own = own and (frames[-1].line or "").startswith(raising)
    bases = tuple(_type_name(base) for base in type(error).__mro__)
    return ErrorSeen(
        type=bases[0],
        bases=bases,
        message=str(error),
        own=own,
        traceback="".join(traceback.format_exception(error))[-6000:],
        refusal=_is_refusal(error, refusals),
    )


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _is_refusal(error: BaseException, refusals: tuple[type, ...]) -> bool:
    """Whether the error, or what it wraps, says "not supported" in so many words."""
    inner: BaseException | None = error
    for _ in range(8):
        if inner is None:
            return False
        if isinstance(inner, (NotImplementedError, ImportError, *refusals)):
            return True
        inner = getattr(inner, "inner_exception", None) or inner.__cause__
    return False
