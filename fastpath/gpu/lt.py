"""cuBLASLt, which torch has loaded, called directly: what ATen's operators do not say to it.

A product may be given a matrix that its result is added to before it is rounded, and be computed by
another algorithm than the first that the library thinks of. Its arguments are addresses, so that a
call is one of a C function. Source of the calls and of their numbers: NVIDIA's cuBLAS library,
"Using the cuBLASLt API".
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refcompiler.logs import log_of

ALIGNMENT = 16  # bytes: of operands that vectors are loaded from
WORKSPACE = 32 << 20  # bytes, at most, of what an algorithm works in: as much as torch gives it
#: Bytes of what one counts in, and of how many of these calls have one each, before it comes again.
COUNTED, COUNTS = 256, 4096
MOST = 8  # algorithms that are asked for
MOST_BIASES = 1024  # addresses that a product keeps a description for
_HINTS = log_of("perf_hints")

_TYPE = {"float16": 2, "bfloat16": 14}  # CUDA_R_16F, CUDA_R_16BF
_SINGLE = 0  # CUDA_R_32F
_COMPUTE = 68  # CUBLAS_COMPUTE_32F
_TRANSPOSED = 1  # CUBLAS_OP_T
_REDUCTIONS = 2  # CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: parts of a sum are float32
_OF_DESCRIPTION = {"left": 3, "right": 4, "epilogue": 7, "bias": 8}  # CUBLASLT_MATMUL_DESC_*
_WORKSPACE, _SCHEMES, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # CUBLASLT_MATMUL_PREF_*
_NAMES = (
    "cublasLtCreate",
    "cublasLtGetVersion",
    "cublasLtMatmul",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatrixLayoutCreate",
)


@dataclass(frozen=True)
class Layout:
    """A matrix as the library sees it: ``rows`` of ``columns``, a column's elements side by side,
    and columns ``step`` elements apart. ``turned``: the operand is its transpose."""

    rows: int
    columns: int
    step: int
    turned: bool


@dataclass(frozen=True)
class Problem:
    """``[m, k] @ [k, n]`` of 16-bit numbers, added up in float32; ``bias`` adds a row to each row,
    ``residual`` a matrix of the result's shape, ``gelu`` is taken (by the hyperbolic tangent) of
    the sum, and the result is rounded. ``left``, ``right``: the strides of the operands.

    Result and residual are contiguous.
    """

    dtype: str
    m: int
    n: int
    k: int
    left: tuple[int, int]
    right: tuple[int, int]
    bias: bool = False
    residual: bool = False
    gelu: bool = False

    @property
    def epilogue(self) -> int:
        """``CUBLASLT_EPILOGUE_DEFAULT``, or the sum of ``BIAS`` and ``GELU``."""
        return 4 * self.bias + 32 * self.gelu or 1

    def layouts(self) -> tuple[Layout, Layout, Layout] | None:
        """Of the library's operands, and of its result; None where one lies otherwise.

        What lies by rows is to the library the transpose, lying by columns. So it is asked for the
        transposed result, which is the product of the transposed operands, the right one first.
        """
        first = _layout(self.n, self.k, self.right[::-1])
        second = _layout(self.k, self.m, self.left[::-1])
        if first is None or second is None:
            return None
        return first, second, Layout(self.n, self.m, self.n, False)


def _layout(rows: int, columns: int, strides: tuple[int, int]) -> Layout | None:
    """How the matrix that lies so is given."""
    if strides[0] == 1 and strides[1] >= rows:
        return Layout(rows, columns, strides[1], False)
    if strides[1] == 1 and strides[0] >= columns:
        return Layout(columns, rows, strides[0], True)
    return None


class _Heuristic(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class Algorithm:
    """``cublasLtMatmulAlgo_t`` for one problem, and how many bytes it works in."""

    words: tuple[int, ...]
    workspace: int


@functools.cache
def library() -> Any:
    """The one that torch has loaded; None, and a line in the log ``perf_hints``, without it."""
    version = torch.version.cuda
    if version is None:
        return None
    name = f"libcublasLt.so.{version.split('.')[0]}"
    try:
        found = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        for function in _NAMES:
            getattr(found, function).argtypes = None
    except (OSError, AttributeError) as error:
        _HINTS.info("products are called through ATen, without residuals: %s", error)
        return None
    pointers = [ctypes.c_void_p] * 14
    found.cublasLtMatmul.argtypes = [*pointers, ctypes.c_size_t, ctypes.c_void_p]
    found.cublasLtGetVersion.restype = ctypes.c_size_t
    return found


def version() -> int:
    found: int = library().cublasLtGetVersion()
    return found


def _checked(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"cuBLASLt: {what} failed with status {code}")


def _made(create: Any, *arguments: Any) -> int:
    found = ctypes.c_void_p()
    _checked(create(ctypes.byref(found), *arguments), create.__name__)
    assert found.value is not None
    return found.value


@functools.cache
def handle(device: int) -> int:
    """The library's, for a device, for the life of the process."""
    with torch.cuda.device(device):
        return _made(library().cublasLtCreate)


@functools.cache
def _layouts(problem: Problem) -> tuple[int, ...]:
    """The library's own, which stay: there are as many as there are shapes."""
    layouts = problem.layouts()
    assert layouts is not None
    kind, create = _TYPE[problem.dtype], library().cublasLtMatrixLayoutCreate
    return tuple(
        _made(
            create,
            kind,
            ctypes.c_uint64(layout.rows),
            ctypes.c_uint64(layout.columns),
            ctypes.c_int64(layout.step),
        )
        for layout in layouts
    )


class _Description:
    """``cublasLtMatmulDesc_t`` of a problem whose bias lies at an address."""

    def __init__(self, problem: Problem, bias: int):
        self.library = library()
        self.made = _made(self.library.cublasLtMatmulDescCreate, _COMPUTE, _SINGLE)
        layouts = problem.layouts()
        assert layouts is not None
        for name, layout in zip(("left", "right"), layouts):
            self._set(name, ctypes.c_int32(_TRANSPOSED if layout.turned else 0))
        self._set("epilogue", ctypes.c_int32(problem.epilogue))
        if problem.bias:
            self._set("bias", ctypes.c_void_p(bias))

    def _set(self, name: str, value: Any) -> None:
        code = self.library.cublasLtMatmulDescSetAttribute(
            ctypes.c_void_p(self.made),
            _OF_DESCRIPTION[name],
            ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
        )
        _checked(code, f"setting a product's {name}")

    def __del__(self) -> None:
        if hasattr(self, "made"):
            self.library.cublasLtMatmulDescDestroy(ctypes.c_void_p(self.made))


def algorithms(
    problem: Problem, device: int, alignment: int = ALIGNMENT, most: int = MOST
) -> list[Algorithm]:
    """Those that the library proposes, its first first, for addresses aligned so; none where there
    is no library, or none that it knows."""
    found = library()
    if found is None or problem.layouts() is None:
        return []
    preference = _made(found.cublasLtMatmulPreferenceCreate)
    wanted: list[tuple[int, Any]] = [
        (_WORKSPACE, ctypes.c_uint64(WORKSPACE)),
        (_SCHEMES, ctypes.c_uint32(_REDUCTIONS)),
        *((place, ctypes.c_uint32(alignment)) for place in _ALIGNMENTS),
    ]
    for place, value in wanted:
        code = found.cublasLtMatmulPreferenceSetAttribute(
            ctypes.c_void_p(preference),
            place,
            ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
        )
        _checked(code, "setting a preference")
    first, second, out = map(ctypes.c_void_p, _layouts(problem))
    description = _Description(problem, alignment)  # the address of a bias that is aligned so
    results, count = (_Heuristic * most)(), ctypes.c_int()
    try:
        code = found.cublasLtMatmulAlgoGetHeuristic(
            *(ctypes.c_void_p(handle(device)), ctypes.c_void_p(description.made)),
            *(first, second, out, out, ctypes.c_void_p(preference)),
            *(most, results, ctypes.byref(count)),
        )
    finally:
        found.cublasLtMatmulPreferenceDestroy(ctypes.c_void_p(preference))
    if code:  # it has none
        return []
    good = [r for r in results[: count.value] if r.state == 0]
    return [Algorithm(tuple(r.algorithm), int(r.workspace)) for r in good]


#: By device and stream: calls on one stream come one after the other.
_workspaces: dict[tuple[int, int], torch.Tensor] = {}


_turns = itertools.count()


def turn() -> int:
    """How many such calls there have been that count, by any thread; this is one of them."""
    return next(_turns)


def _workspace(device: int, stream: int) -> int:
    found = _workspaces.get((device, stream))
    if found is None:
        size = WORKSPACE + COUNTED * COUNTS
        found = torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")
        _workspaces[device, stream] = found
    return found.data_ptr()


def counted(device: int, stream: int) -> range:
    """The addresses in which calls on the stream count, each in :data:`COUNTED` bytes that are its
    own until there have been :data:`COUNTS` calls. Nothing else uses them."""
    if (device, stream) not in _workspaces:
        return range(0)
    begin = _workspace(device, stream) + WORKSPACE
    return range(begin, begin + COUNTED * COUNTS)


def launch(
    problem: Problem, algorithm: Algorithm, device: int, otherwise: Algorithm
) -> Callable[[int, int, int, int, int], None]:
    """``run(left, right, bias, residual, result)``, of addresses; 0 for what the problem lacks.

    It runs on the current stream of the device, which has to be the current one. ``otherwise``: the
    algorithm for addresses that are not multiples of :data:`ALIGNMENT`.
    """
    matmul, stream_of = library().cublasLtMatmul, torch._C._cuda_getCurrentRawStream
    a, b, d = _layouts(problem)
    own = handle(device)
    one, beta = ctypes.c_float(1.0), ctypes.c_float(float(problem.residual))
    alpha_at, beta_at = map(ctypes.addressof, (one, beta))
    descriptions: dict[int, _Description] = {}

    def described(bias: int) -> _Description:
        if len(descriptions) >= MOST_BIASES:
            descriptions.clear()
        found = descriptions[bias] = _Description(problem, bias)
        return found

    def by(algorithm: Algorithm, mask: int, unaligned: Any = None) -> Callable[..., None]:
        words = (ctypes.c_uint64 * 8)(*algorithm.words)
        at, size = ctypes.addressof(words), algorithm.workspace
        small = 0 < size <= COUNTED

        def run(left: int, right: int, bias: int, residual: int, result: int) -> None:
            if (left | right | bias | residual | result) & mask:
                unaligned(left, right, bias, residual, result)
                return
            description = descriptions.get(bias) or described(bias)
            stream = stream_of(device)
            works = _workspace(device, stream) if size else 0  # a null pointer
            if small:
                works += WORKSPACE + COUNTED * (turn() % COUNTS)
            code = matmul(
                own, description.made, alpha_at, right, a, left, b, beta_at,
                residual or result, d, result, d, at, works, size, stream,
            )  # fmt: skip
            if code:
                _checked(code, f"{problem}")

        run.kept = words, one, beta  # type: ignore[attr-defined]  # whose addresses it knows
        return run

    return by(algorithm, ALIGNMENT - 1, by(otherwise, 0))


def proposed(problem: Problem, device: int) -> tuple[Sequence[Algorithm], Algorithm] | None:
    """The algorithms for addresses that are aligned, and one for others; None without either."""
    aligned = algorithms(problem, device)
    others = algorithms(problem, device, torch.finfo(getattr(torch, problem.dtype)).bits // 8, 1)
    return (aligned, others[0]) if aligned and others else None
