"""What torch does not say of device graphs: the nodes of a capture, and a node's new arguments.

Source of the calls: NVIDIA's CUDA driver API, "Graph Management" and "Stream Management".
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from refcompiler.errors import UnsupportedError


class KernelParameters(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


@functools.cache
def library() -> Any:
    """The driver's library. Raises :class:`UnsupportedError` where it is missing or too old."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
        for name in ("cuGraphLaunch", "cuGraphExecKernelNodeSetParams_v2"):
            getattr(found, name).argtypes = None
        found.cuGraphKernelNodeGetParams_v2, found.cuFuncGetParamInfo  # noqa: B018
    except (OSError, AttributeError) as error:
        raise UnsupportedError(
            f"device graphs need a CUDA driver of version 12.4 or later: {error}"
        ) from error
    found.cuGraphLaunch.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    found.cuGraphExecKernelNodeSetParams_v2.argtypes = (
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    )
    return found


def checked(code: int, what: str) -> None:
    """Raise ``RuntimeError`` if the driver answered with an error."""
    if code:
        name = ctypes.c_char_p()
        library().cuGetErrorName(code, ctypes.byref(name))
        said = name.value.decode() if name.value else str(code)
        raise RuntimeError(f"device graph: {what} failed with {said}")


def last_node(stream: int) -> int:
    """The node that the capture on ``stream`` recorded last."""
    cuda = library()
    status, number = ctypes.c_int(), ctypes.c_uint64()
    graph, nodes, edges = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    count = ctypes.c_size_t()
    out = ctypes.byref
    handle, found = ctypes.c_void_p(stream), (out(status), out(number), out(graph), out(nodes))
    if hasattr(cuda, "cuStreamGetCaptureInfo_v3"):
        code = cuda.cuStreamGetCaptureInfo_v3(handle, *found, out(edges), out(count))
    else:
        code = cuda.cuStreamGetCaptureInfo_v2(handle, *found, out(count))
    checked(code, "asking for the node of a launch")
    if count.value != 1 or not nodes.value:
        raise RuntimeError(f"device graph: a launch has {count.value} last nodes, not one")
    return int(ctypes.cast(nodes.value, ctypes.POINTER(ctypes.c_void_p))[0])


class KernelNode:
    """A kernel's launch in a graph, whose arguments of eight bytes can be set.

    ``cells`` are its first ``count`` arguments, as ``ctypes.c_uint64`` each; ``update(executable)``
    makes later launches of the graph use what they hold.
    """

    def __init__(self, node: int, count: int):
        cuda = library()
        self.node = ctypes.c_void_p(node)
        given = self.parameters = KernelParameters()
        checked(
            cuda.cuGraphKernelNodeGetParams_v2(self.node, ctypes.byref(given)), "reading a launch"
        )
        sizes = _sizes(given.func)
        if len(sizes) < count or any(size != 8 for size in sizes[:count]):
            raise RuntimeError(f"device graph: a kernel has arguments of {sizes} bytes")
        # The driver's own copies go with its graph.
        copies: list[Any] = []
        for place, size in enumerate(sizes):
            kind: Any = ctypes.c_uint64 if size == 8 else ctypes.c_ubyte * size
            copies.append(kind.from_buffer_copy(ctypes.string_at(given.arguments[place], size)))
        self._copies: Sequence[Any] = copies
        self.cells = copies[:count]
        self._table = (ctypes.c_void_p * len(copies))(*map(ctypes.addressof, copies))
        given.arguments = ctypes.cast(self._table, ctypes.POINTER(ctypes.c_void_p))
        self.reference = ctypes.byref(given)


def _sizes(function: int) -> list[int]:
    """How many bytes each argument of a kernel has."""
    cuda, found = library(), []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    place = ctypes.c_size_t(0)
    while not cuda.cuFuncGetParamInfo(
        ctypes.c_void_p(function), place, ctypes.byref(offset), ctypes.byref(size)
    ):
        found.append(size.value)
        place.value += 1
    return found
