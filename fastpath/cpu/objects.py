"""Machine code of kernels: kept on disk as object files, and loaded from there.

A kernel's object file defines one function, named after the key of what it was made from. Whether
it was made now or by an earlier process, it is loaded in the same way, by LLVM's own linker for
code made at run time: a process that finds all its kernels on disk never imports numba.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

from refcompiler.cache import identity, store
from refcompiler.errors import InternalError

KIND = "kernel"
_ELF = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_SYMBOLS, _UNDEFINED = 2, 0  # a section of symbols; the section of a symbol that is elsewhere

made = 0  # kernels compiled by this process, or for it by another one
_loaded: dict[str, int] = {}  # by symbol, which one engine may have only once
_keys: dict[int, tuple[str, str]] = {}  # by address: the symbol, and the key in the store
_codes: dict[int, tuple[str, bytes]] = {}  # by address: the symbol, and code that no store has
_given: set[str] = set()  # symbols of packages
_loading = threading.Lock()


def address_of(parts: tuple[str, ...], make: Callable[[str], bytes]) -> int:
    """Where the function of the object file ``make(symbol)`` is, which ``parts`` determine.

    It is made only where no process on a machine like this one did so before.
    """
    key, symbol = _named(parts)

    def code() -> bytes:
        global made
        made += 1
        return make(symbol)

    if symbol in _given:
        return _loaded[symbol]
    kept = store.current()
    if kept is None:
        return _loaded_from(code(), symbol)
    address = _load(kept.made(KIND, key, code), symbol)
    _keys[address] = symbol, key
    return address


def _named(parts: tuple[str, ...]) -> tuple[str, str]:
    """The key in the store of what ``parts`` determine, and the symbol."""
    key = store.key_of(_machine(), *parts)
    return key, f"fastpath_{key[:40]}"


def is_kept(parts: tuple[str, ...]) -> bool:
    """Whether the store has the object file that ``parts`` determine."""
    kept = store.current()
    return kept is not None and kept.has(KIND, _named(parts)[0])


def made_once(parts: tuple[str, ...], make: Callable[[str], bytes]) -> None:
    """Have the object file in the store, without loading it."""
    kept = store.current()
    key, symbol = _named(parts)
    if kept is not None:
        kept.made(KIND, key, functools.partial(make, symbol))


def load(code: bytes, symbol: str) -> int:
    """Where the function ``symbol`` of a package's object file is: nobody need compile it now."""
    known = _loaded.get(symbol)
    if known is not None:
        return known
    address = _loaded_from(code, symbol)
    _given.add(symbol)
    return address


def _loaded_from(code: bytes, symbol: str) -> int:
    address = _load(code, symbol)
    _codes[address] = symbol, code
    return address


def object_at(address: int) -> tuple[str, bytes]:
    """The symbol and the object file of the function at an address that was given out here.

    Raises ``LookupError`` where the store has lost it.
    """
    if address in _codes:
        return _codes[address]
    symbol, key = _keys[address]
    kept = store.current()
    code = kept.get(KIND, key) if kept is not None else None
    if code is None:
        raise LookupError(f"the object file of {symbol}, which the cache has no longer")
    return symbol, code


def key_at(address: int) -> tuple[str, str] | None:
    """The symbol, and the key of its object file in the store, if it is there."""
    return _keys.get(address)


def kept(symbol: str, key: str) -> int:
    """Where the function ``symbol`` is whose object file the store has at ``key``.

    Raises ``LookupError`` where the store has it no longer.
    """
    known = _loaded.get(symbol)
    if known is None:
        store_now = store.current()
        code = store_now.get(KIND, key) if store_now is not None else None
        if code is None:
            raise LookupError(f"the object file of {symbol}, which the cache has no longer")
        known = _load(code, symbol)
    _keys[known] = symbol, key
    return known


@functools.cache
def _machine() -> str:
    """What the text of a kernel does not say of its machine code."""
    import llvmlite
    import llvmlite.binding as llvm

    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("NUMBA_"))
    return "\n".join(
        (
            identity.release(),
            identity.source_of("fastpath", "specs"),
            version("numba"),
            llvmlite.__version__,
            llvm.get_host_cpu_name(),
            llvm.get_host_cpu_features().flatten(),
            *settings,
        )
    )


@functools.cache
def _engine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _load(code: bytes, symbol: str) -> int:
    with _loading:
        found = _loaded.get(symbol)
        if found is None:
            found = _loaded[symbol] = _linked(code, symbol)
        return found


def _linked(code: bytes, symbol: str) -> int:
    import llvmlite.binding as llvm

    if not all(map(_found, undefined(code))):
        from numba.core.registry import cpu_target

        _ = cpu_target.target_context  # brings numba's own helpers, which few kernels call
        for name in undefined(code):
            if not _found(name):
                raise InternalError(f"a kernel calls {name}, which this process has not")
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    found: int = engine.get_function_address(symbol)
    if not found:
        raise InternalError(f"a kernel's object file has no {symbol}")
    return found


@functools.cache
def _process() -> Any:
    return ctypes.CDLL(None)


def _found(name: str) -> bool:
    """Whether LLVM's linker finds a symbol: it ends the process over one that it does not."""
    import llvmlite.binding as llvm

    return bool(llvm.address_of_symbol(name)) or hasattr(_process(), name)


def undefined(code: bytes) -> Iterator[str]:
    """The symbols that an object file uses and does not define (ELF-64 specification 1.5, 2)."""
    if not code.startswith(_ELF):
        return
    (sections,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)

    def section(number: int) -> tuple[int, int, int, int, int]:
        kind, _, _, at, length, link = struct.unpack_from(
            "<IQQQQI", code, sections + number * size + 4
        )
        (each,) = struct.unpack_from("<Q", code, sections + number * size + 0x38)
        return kind, at, length, link, each

    for number in range(count):
        kind, at, length, link, each = section(number)
        if kind != _SYMBOLS:
            continue
        names = section(link)[1]
        for place in range(at + each, at + length, each):  # the first one is empty
            name, _, _, home = struct.unpack_from("<IBBH", code, place)
            if home == _UNDEFINED and name:
                yield code[names + name : code.index(0, names + name)].decode()
