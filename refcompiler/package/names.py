"""Functions, classes and modules by their names, and functions by the digest of their code.

A name is a module and the steps from it. It is looked up among the modules that the process has
loaded; of the libraries that packages lean on alone, one that is missing is imported. The code of a
function has to be what it was: a package is made for it.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from refcompiler.errors import PackageError
from refcompiler.guards.permanence import is_of_library
from refcompiler.package import hidden  # noqa: F401  # a place where things are
from refcompiler.package.rows import Packer, Refused, Unpacker, described, held, register

#: What may be imported for the sake of a package.
_IMPORTED = frozenset({"torch", "numpy", "refcompiler", "fastpath", "specs"})
#: Where functions in C are found, which often do not know their names.
_PLACES = (
    *("builtins", "types", "operator", "math", "itertools", "functools", "collections", "random"),
    *("torch", "torch.nn.functional", "torch._C", "torch._C._nn", "torch._C._autograd"),
    *("torch._C._functorch", "torch._C._fft", "torch._C._linalg", "torch._C._special"),
    *("torch._C._sparse", "torch._C._profiler", "torch.linalg", "torch.fft", "torch.special"),
    *("torch.autograd.grad_mode", "torch.autograd.forward_ad", "torch._VF"),
    *("refcompiler.aot.function", "refcompiler.aot.gates", "refcompiler.aot.inputs"),
    "refcompiler.guards.kinds",
    "refcompiler.package.hidden",
)
#: What a function may lie under: what decorators and descriptors have put around it.
_UNDER = ("__func__", "fget", "fset", "__wrapped__")
_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType)
#: What ``functools.lru_cache`` makes, which takes its function's name.
CACHE_TYPE: Any = type(functools.lru_cache(len))
_NAMED = (FunctionType, BuiltinFunctionType, type, *_DESCRIPTORS, CACHE_TYPE)
_LOCAL = ".<locals>."
_LINED = "+"  # what the digests begin with that lines are a part of


# ---- code ----------------------------------------------------------------------------------------


def digest_of(code: CodeType, lined: bool = False) -> str:
    """What ``code`` does, wherever it stands: without its file and, unless ``lined``, its lines."""
    parts = repr(_parts(code, lined))
    return _LINED * lined + hashlib.sha256(parts.encode()).hexdigest()


def has_digest(code: Any, digest: str) -> bool:
    """Whether ``code`` is what the digest is of."""
    return isinstance(code, CodeType) and digest_of(code, digest[:1] == _LINED) == digest


def _parts(value: Any, lined: bool) -> Any:
    if isinstance(value, CodeType):
        names = value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars
        counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount
        inner = [_parts(item, lined) for item in value.co_consts]
        table = getattr(value, "co_exceptiontable", b"")
        lines = list(value.co_lines()) if lined else ()
        return value.co_code, names, counts, value.co_flags, inner, table, lines
    if isinstance(value, frozenset):
        return "frozenset", sorted(repr(_parts(item, lined)) for item in value)
    if isinstance(value, tuple):
        return tuple([_parts(item, lined) for item in value])
    return type(value).__name__, repr(value)


# ---- finding -------------------------------------------------------------------------------------


@functools.cache
def _known_places() -> dict[int, tuple[str, list[str]]]:
    """By id, where things are that have no name of their own."""
    found: dict[int, tuple[str, list[str]]] = {}
    for module in _PLACES:
        place = importlib.import_module(module) if module in sys.modules else None
        for name, value in vars(place).items() if place is not None else ():
            if callable(value) and not isinstance(value, (FunctionType, ModuleType)):
                found.setdefault(id(value), (module, [name]))
    return found


def place_of(value: Any) -> tuple[str, list[str]] | None:
    """The module and the steps that lead to ``value``, if there are any."""
    for module, steps in _candidates(value):
        try:
            if _followed(_loaded(module), steps) is value:
                return module, steps
        except LookupError:
            continue
    return None


def _candidates(value: Any) -> Iterator[tuple[str, list[str]]]:
    if isinstance(value, ModuleType):
        yield value.__name__, []
        return
    known = _known_places().get(id(value))
    if known is not None:
        yield known
    if _is_wrapped(value):  # each is in the namespace of the class that its function is of
        value = next(filter(None, (held(value, name) for name in _UNDER)), None)
    owner = held(value, "__objclass__") or held(value, "__self__")
    if isinstance(owner, type):
        yield owner.__module__, [*owner.__qualname__.split("."), value.__name__]
    module, name = held(value, "__module__"), held(value, "__qualname__")
    if not isinstance(module, str) or not isinstance(name, str) or _LOCAL in name:
        return
    steps = name.split(".")
    yield module, steps
    under = list(steps)
    for _ in range(4):  # what decorators have put around it
        for attribute in _UNDER:
            try:
                _followed(_loaded(module), [*under, f".{attribute}"])
            except LookupError:
                continue
            yield module, [*under, f".{attribute}"]
        under.append(".__wrapped__")


def _loaded(module: str) -> Any:
    found = sys.modules.get(module)
    if found is None:
        if module.partition(".")[0] not in _IMPORTED:
            raise LookupError(module)
        try:
            found = importlib.import_module(module)
        except ImportError as error:
            raise LookupError(module) from error
    return found


def _followed(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if step[:1] == ".":
            if step[1:] not in _UNDER:
                raise LookupError(step)
            value = getattr(value, step[1:], None)
            if value is None:
                raise LookupError(step)
        else:
            value = getattr(value, "__dict__", {})[step]
    return value


# ---- rows ----------------------------------------------------------------------------------------


def _pack_named(p: Packer, value: Any) -> list[Any]:
    found = place_of(value)
    if found is None:
        raise Refused(f"{described(value)}, which no module has under its name{_line(value)}")
    return [*found, type(value).__name__, _digest_for(value, p.complete)]


def _line(value: Any) -> str:
    """Where a function of the user's is."""
    if not isinstance(value, FunctionType) or is_of_library(value.__module__):
        return ""
    return f" ({value.__code__.co_filename}:{value.__code__.co_firstlineno})"


def _digest_for(value: Any, lined: bool) -> str:
    """Of functions, a library's too, since programs put others in the places of those."""
    function = _function_in(value)
    return "" if function is None else digest_of(function.__code__, lined)


def code_in(value: Any) -> CodeType | None:
    """The code that a value is, or that a function, or what is put around one, has."""
    function = _function_in(value)
    code = value if function is None else function.__code__
    return code if isinstance(code, CodeType) else None


def _function_in(value: Any) -> FunctionType | None:
    if _is_wrapped(value) or type(value) is CACHE_TYPE:
        value = next(filter(None, (held(value, name) for name in _UNDER)), None)
    return value if isinstance(value, FunctionType) else None


def found_in(u: Unpacker, module: str, steps: Sequence[str], digest: str) -> Any:
    """What a name says, which has the code that it had."""
    title = ".".join([module, *[step.lstrip(".") for step in steps]])
    space = u.spaces.get(module)
    try:
        if space is not None and steps:
            value = _followed(space[steps[0]], steps[1:])
        else:
            value = _followed(_loaded(module), steps)
    except LookupError:
        what = f"import {module} first" if module not in sys.modules else "it is not there"
        if space is not None:
            what = "f_globals has none"
        raise PackageError(f"{u.title} needs {title}: {what}") from None
    if digest:
        function = _function_in(value)
        if function is None or not has_digest(function.__code__, digest):
            raise PackageError(f"{u.title} was made for another {title}: its code has changed")
    return value


def _unpack_named(u: Unpacker, module: str, steps: list[str], kind: str, digest: str) -> Any:
    value = found_in(u, module, steps, digest)
    if type(value).__name__ != kind:
        title = ".".join([module, *steps])
        raise PackageError(f"{u.title} needs {title} as a {kind}; here it is {described(value)}")
    return value


def _pack_globals(p: Packer, value: dict[str, Any]) -> list[Any]:
    return [_module_of(value)]


def _unpack_globals(u: Unpacker, module: str) -> Any:
    space = u.spaces.get(module)
    if space is not None:
        return space
    try:
        return _loaded(module).__dict__
    except LookupError:
        raise PackageError(f"{u.title} needs the module {module}: import it first") from None


def is_globals(value: Any) -> bool:
    """Whether a dict is the namespace of a loaded module."""
    return type(value) is dict and _module_of(value) is not None


def _module_of(space: dict[str, Any]) -> str | None:
    """The name of the loaded module whose namespace it is: of some, not the one that they say."""
    for name in (space.get("__name__"), getattr(space.get("__spec__"), "name", None)):
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is not None and module.__dict__ is space:
            return name
    return None


def _pack_code(p: Packer, code: CodeType) -> list[Any]:
    digest = digest_of(code, p.complete)
    modules = [m for m in list(sys.modules.values()) if isinstance(m, ModuleType)]
    for module in modules:
        if getattr(module, "__file__", None) in (code.co_filename, None):
            with_code = _outer_code(module.__dict__, code.co_qualname)
            if with_code is not None and _inner(with_code, code.co_qualname, digest) is code:
                return [module.__name__, code.co_qualname, digest]
    raise Refused(f"the code of {code.co_qualname}, which no module's function has")


def _outer_code(space: dict[str, Any], qualname: str) -> CodeType | None:
    name, *steps = qualname.partition(_LOCAL)[0].split(".")
    try:
        found = _followed(space[name], steps)
    except LookupError:
        return None
    for _ in range(10):
        code = held(found, "__code__")
        inner = [held(found, attribute) for attribute in _UNDER]
        below = next((item for item in inner if item is not None), None)
        if isinstance(code, CodeType) and (below is None or code.co_qualname == qualname):
            return code
        if below is None:
            return None
        found = below
    return None


def _inner(code: CodeType, qualname: str, digest: str) -> CodeType | None:
    if code.co_qualname == qualname and has_digest(code, digest):
        return code
    for item in code.co_consts:
        if isinstance(item, CodeType):
            found = _inner(item, qualname, digest)
            if found is not None:
                return found
    return None


def _unpack_code(u: Unpacker, module: str, qualname: str, digest: str) -> Any:
    space = _unpack_globals(u, module)
    outer = _outer_code(space, qualname)
    if outer is None:
        raise PackageError(f"{u.title} needs {module}.{qualname}: it is not there")
    found = _inner(outer, qualname, digest)
    if found is None:
        raise PackageError(
            f"{u.title} was made for another {module}.{qualname}: its code has changed"
        )
    return found


def _pack_member(p: Packer, value: enum.Enum) -> list[Any]:
    return [p.pack(type(value)), value.name]


def _is_wrapped(value: Any) -> bool:
    return isinstance(value, (staticmethod, classmethod, property))


register("named", _pack_named, _unpack_named, *_NAMED)
register(
    "named", _pack_named, _unpack_named, when=lambda v: isinstance(v, ModuleType) or _is_wrapped(v)
)
register("globals", _pack_globals, _unpack_globals, when=is_globals)
register("code", _pack_code, _unpack_code, CodeType)
register(
    "member",
    _pack_member,
    lambda u, cls, name: u.value(cls)[name],
    when=lambda value: isinstance(value, enum.Enum),
)
