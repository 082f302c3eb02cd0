"""Calling compiled loops from Python: one vectorcall-style C function for every kernel.

A kernel is a C function ``void kernel(int64_t *addresses, int64_t begin, int64_t end)`` over a
range of *units* of work. :func:`bind` makes a Python callable of it that takes the addresses as
integers and splits the units over torch's own thread pool: the OpenMP runtime that torch has
loaded is asked for its current number of threads at each call and is never reconfigured.

The C function is a few lines of LLVM IR, because it has to exist without a C compiler and to cost
about a tenth of a microsecond.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any

WORK_PER_THREAD = 60_000  # element operations that are worth waking a thread

#: What texts of :func:`method` begin with.
HEAD = """
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyErr_Occurred()
declare void @Py_IncRef(ptr)
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
@arity = private constant [34 x i8] c"kernel: wrong number of addresses\\00"
{declarations}
"""


def taken(slot: str) -> str:
    """The part of a function ``launch`` that refuses another number of arguments than it expects
    (block ``refuse``), and, from block ``take`` to ``ready``, stores their integers: ``slot`` are
    the lines that make ``%slot``, where argument ``%i`` is stored."""
    return f"""\
refuse:
  %error = inttoptr i64 {{type_error}} to ptr
  call void @PyErr_SetString(ptr %error, ptr @arity)
  ret ptr null
take:
  %some = icmp sgt i64 %given, 0
  br i1 %some, label %loop, label %ready
loop:
  %i = phi i64 [ 0, %take ], [ %i.next, %loop ]
  %arg.at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.at
  %value = call i64 @PyLong_AsLongLong(ptr %arg)
{slot}  store i64 %value, ptr %slot
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %given
  br i1 %more, label %loop, label %check
check:
  %raised = call ptr @PyErr_Occurred()
  %ok = icmp eq ptr %raised, null
  br i1 %ok, label %ready, label %fail
fail:
  ret ptr null
"""


def shared(run: str) -> str:
    """The part behind it: ``run`` is what a thread does that is alone, or ``{parallel}`` what up
    to ``%most`` threads do, without the interpreter's lock; then None is returned."""
    return f"""\
  %small = icmp sle i64 %most, 1
  br i1 %small, label %serial, label %wide
wide:
  %available.32 = {{available}}
  %available = sext i32 %available.32 to i64
  %fewer = icmp slt i64 %most, %available
  %threads = select i1 %fewer, i64 %most, i64 %available
  %single = icmp sle i64 %threads, 1
  %state = call ptr @PyEval_SaveThread()
  br i1 %single, label %alone, label %parallel
alone:
  {run}
  br label %joined
parallel:
  %threads.32 = trunc i64 %threads to i32
  {{parallel}}
  br label %joined
joined:
  call void @PyEval_RestoreThread(ptr %state)
  br label %done
serial:
  {run}
  br label %done
done:
  %none = inttoptr i64 {{none}} to ptr
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}}}}
"""


_IR = (
    HEAD
    + """
; a record holds: kernel, units, most threads, number of arguments, how many of those come before
; the addresses: none, or the work and the units of the call (which it then does not hold), and how
; many numbers the kernel is given behind the arguments, then these

define internal void @region(ptr %shared) {{
  %kernel.at = getelementptr i64, ptr %shared, i64 0
  %kernel = load ptr, ptr %kernel.at
  %units.at = getelementptr i64, ptr %shared, i64 1
  %units = load i64, ptr %units.at
  %addresses = getelementptr i64, ptr %shared, i64 2
  %thread.32 = {thread}
  %threads.32 = {threads}
  %thread = sext i32 %thread.32 to i64
  %threads = sext i32 %threads.32 to i64
  %next = add i64 %thread, 1
  %a = mul i64 %units, %thread
  %b = mul i64 %units, %next
  %begin = sdiv i64 %a, %threads
  %end = sdiv i64 %b, %threads
  call void %kernel(ptr %addresses, i64 %begin, i64 %end)
  ret void
}}

define ptr @launch(ptr %self, ptr %args, i64 %given) {{
entry:
  %self.value = call i64 @PyLong_AsLongLong(ptr %self)
  %record = inttoptr i64 %self.value to ptr
  %kernel = load ptr, ptr %record
  %units.at = getelementptr i64, ptr %record, i64 1
  %units.known = load i64, ptr %units.at
  %most.at = getelementptr i64, ptr %record, i64 2
  %most.known = load i64, ptr %most.at
  %expected.at = getelementptr i64, ptr %record, i64 3
  %expected = load i64, ptr %expected.at
  %skip.at = getelementptr i64, ptr %record, i64 4
  %skip = load i64, ptr %skip.at
  %fits = icmp eq i64 %expected, %given
  br i1 %fits, label %unpack, label %refuse
unpack:
  %behind.at = getelementptr i64, ptr %record, i64 5
  %behind = load i64, ptr %behind.at
  %all = add i64 %given, %behind
  %words = add i64 %all, 2
  %shared = alloca i64, i64 %words
  %slots = getelementptr i64, ptr %shared, i64 2
  %second = getelementptr i64, ptr %shared, i64 1
  store i64 0, ptr %shared
  store i64 %units.known, ptr %second
  %numbers = icmp sgt i64 %behind, 0
  br i1 %numbers, label %append, label %take
append:
  %j = phi i64 [ 0, %unpack ], [ %j.next, %append ]
  %from = add i64 %j, 6
  %from.at = getelementptr i64, ptr %record, i64 %from
  %number = load i64, ptr %from.at
  %to = add i64 %given, %j
  %to.at = getelementptr i64, ptr %slots, i64 %to
  store i64 %number, ptr %to.at
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %behind
  br i1 %j.more, label %append, label %take
"""
    + taken("""\
  %slot = getelementptr i64, ptr %slots, i64 %i
""")
    + """ready:
  %base = getelementptr i64, ptr %shared, i64 %skip
  %addresses = getelementptr i64, ptr %base, i64 2
  %units.slot = getelementptr i64, ptr %base, i64 1
  %units = load i64, ptr %units.slot
  %work = load i64, ptr %base
  %worth = sdiv i64 %work, {work}
  %less = icmp slt i64 %worth, %units
  %most.now = select i1 %less, i64 %worth, i64 %units
  store ptr %kernel, ptr %base
  %chosen = icmp sgt i64 %skip, 0
  %most = select i1 %chosen, i64 %most.now, i64 %most.known
"""
    + shared("call void %kernel(ptr %addresses, i64 0, i64 %units)")
    + """"""
)

_OPENMP = {
    "declarations": (
        "declare i32 @omp_get_thread_num()\n"
        "declare i32 @omp_get_num_threads()\n"
        "declare i32 @omp_get_max_threads()\n"
        "declare void @GOMP_parallel(ptr, ptr, i32, i32)"
    ),
    "thread": "call i32 @omp_get_thread_num()",
    "threads": "call i32 @omp_get_num_threads()",
    "available": "call i32 @omp_get_max_threads()",
    "parallel": ("call void @GOMP_parallel(ptr @region, ptr %base, i32 %threads.32, i32 0)"),
}
_SERIAL = {
    "declarations": "",
    "thread": "add i32 0, 0",
    "threads": "add i32 1, 0",
    "available": "add i32 1, 0",
    "parallel": "call void @region(ptr %base)",
}
_SYMBOLS = ("omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads", "GOMP_parallel")


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_METH_FASTCALL = 0x80
_alive: list[Any] = []  # what the process needs as long as any kernel may be called
#: By the address that a callable has as ``__self__``: the text of its function, and its record.
_records: dict[int, tuple[str, Any]] = {}


def _torch_openmp() -> dict[str, int] | None:
    """Addresses in the OpenMP runtime that torch links to; None without a GNU-compatible one."""
    import pathlib

    import torch

    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        path = pathlib.Path(torch.__file__).parent / "lib" / name
        if not path.exists():
            continue
        library = ctypes.CDLL(str(path))  # symbol look-up covers what the library links to
        try:
            found = {s: ctypes.cast(getattr(library, s), ctypes.c_void_p).value for s in _SYMBOLS}
        except AttributeError:
            return None
        return {s: address for s, address in found.items() if address is not None}
    return None


@functools.cache
def method(text: str) -> _MethodDef:
    """The C function ``launch`` of the module ``text`` in LLVM IR, in which names in braces stand
    for what differs between machines."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    symbols = _torch_openmp()
    for name, address in (symbols or {}).items():
        llvm.add_symbol(name, address)
    # External data symbols are out of the code model's reach, so two objects go in by address.
    text = text.format(
        **(_OPENMP if symbols else _SERIAL),
        work=WORK_PER_THREAD,
        none=id(None),
        type_error=id(TypeError),
    )
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    made = _MethodDef(
        b"kernel", engine.get_function_address("launch"), _METH_FASTCALL, b"Run the kernel."
    )
    _alive.extend((engine, made))
    return made


def parallel_runtime() -> bool:
    """Whether kernels can use torch's threads here (else they run serially, correctly)."""
    return _torch_openmp() is not None


def bind(
    kernel: int, units: int, threads: int, addresses: int, *numbers: int
) -> Callable[..., None]:
    """A callable of ``addresses`` integers that runs ``kernel`` (an address) over all units; behind
    them the kernel is given ``numbers``.

    ``threads`` is the most threads that the amount of work is worth; the call uses fewer when
    torch has fewer. Raises ``TypeError`` for a wrong number of addresses.
    """
    return _bound(kernel, units, threads, addresses, 0, *numbers)


def bind_sized(kernel: int, numbers: int) -> Callable[..., None]:
    """The same for units that each call chooses: of ``work, units`` (of element operations and of
    work), and ``numbers`` addresses and sizes."""
    return _bound(kernel, 0, 0, numbers + 2, 2)


def record_of(run: Callable[..., None]) -> tuple[int, ...]:
    """What :func:`bind` or :func:`bind_sized` has made a callable of, for :func:`bound`."""
    kernel, units, threads, addresses, skip, _, *numbers = words_of(run)
    return kernel, units, threads, addresses, skip, *numbers


def is_bound(value: Any) -> bool:
    """Whether ``value`` is a callable of :func:`bind` or :func:`bind_sized`."""
    return is_callable_of(_IR, value)


def is_callable_of(text: str, value: Any) -> bool:
    """Whether ``value`` is a callable of :func:`callable_of`, of this text."""
    if type(value) is not BuiltinFunctionType or type(value.__self__) is not int:
        return False
    return value.__self__ in _records and _records[value.__self__][0] is text


def bound(*values: int) -> Callable[..., None]:
    """A callable for the kernel at an address, units, threads, number of addresses, how many
    numbers come before these, and numbers that the kernel is given behind them."""
    return _bound(*values)


def _bound(*values: int) -> Callable[..., None]:
    fixed, numbers = values[:5], values[5:]
    return callable_of(_IR, (*fixed, len(numbers), *numbers))


def callable_of(text: str, record: Sequence[int]) -> Callable[..., None]:
    """A callable of the C function in ``text`` (see :func:`method`), which is given ``record``."""
    kept = (ctypes.c_int64 * len(record))(*record)
    _records[ctypes.addressof(kept)] = text, kept
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(method(text)), ctypes.addressof(kept), None)


class Code(int):
    """The address of a C function that a kernel is given to call."""


def words_of(run: Callable[..., None]) -> tuple[int, ...]:
    """The record of a callable of :func:`callable_of`."""
    _, kept = _records[run.__self__]  # type: ignore[attr-defined]
    return tuple(kept)
