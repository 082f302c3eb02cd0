"""A run of a graph on fakes as eager would run it, watching what reaches out of inputs' memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from refcompiler.aot.inputs import Runner, Unsupported, has_bits
from refcompiler.aot.layout import Layout
from refcompiler.aot.packing import Writes, takes_data
from refcompiler.aot.readers import Readers
from refcompiler.aot.regions.table import OBSERVED
from refcompiler.aot.restoring import leaves_gaps
from refcompiler.aot.views import has_gaps_or_overlaps
from refcompiler.fakes.overlap import Written, memory, overlaps_itself
from refcompiler.histories import is_outdated
from refcompiler.naming import target_name
from refcompiler.shapes.known import same


def edge(t: torch.Tensor) -> Any:
    """What a gradient of ``t`` comes to: a function and the number of its result."""
    if is_outdated(t) or t.grad_fn is None:
        return id(t)
    return t.grad_fn, t.output_nr


_PLAIN = (FakeTensor, torch.nn.Parameter)

#: Which take a place in memory.
_PLACED = frozenset({"as_strided", "as_strided_", "as_strided_scatter", "as_strided_copy"})

#: Whose kernels read other operands while they write, and do not look if these share memory.
_READS_WHILE_IT_WRITES = frozenset({"masked_scatter_", "addmm_", "baddbmm_"})


#: Whose results have the operand's memory, as long as that has no conjugate or negative bit.
_PARTS = frozenset({"unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"})


class Watching(Runner):
    """Runs a graph as eager would, and sees what reaches out of an input's memory."""

    def __init__(
        self, gm: torch.fx.GraphModule, replaced: dict[int, torch.Tensor], inputs: Sequence[Any]
    ):
        super().__init__(gm, replaced, OBSERVED)
        tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
        self.storages = {t.untyped_storage()._cdata for t in tensors}
        self.versions = {id(t): t._version for t in tensors}
        self.readers = Readers(tensors)
        self.hooked: set[Any] = set()  # where the graph's own hooks are
        self.below: dict[int, torch.Tensor] = {}  # views of what overlaps itself
        #: What begins behind where its memory begins, and how often it was written to.
        self.begun = [(t, t._version) for t in tensors if t.storage_offset() != 0]
        self.placed: set[int] = set()  # memory of which a place is said
        self.changed: set[int] = set()  # that of ``begun`` that was written to
        self.spread: set[int] = set()  # memory of such tensors of inference mode
        #: Memory of inputs that elements were written to, and of which an input has a part since.
        self.stored: set[int] = set()
        self.cut: set[int] = set()
        #: Where autograd may miss one.
        self.writes = Writes() if torch.is_grad_enabled() and takes_data(gm) else None

    def run_node(self, n: torch.fx.Node) -> Any:
        name = target_name(n.target)
        given = [self.env[node] for node in n.all_input_nodes]
        if self.writes is not None:
            self.writes.before(given)
        if name == "set_":
            self._check_set(n, given)
        elif name in _READS_WHILE_IT_WRITES:
            (first, *others), _ = self.fetch_args_kwargs_from_env(n)
            if memory(first) in [memory(t) for t in others if isinstance(t, torch.Tensor)]:
                raise Unsupported(f"{name} reads the memory that it writes to")
        elif name in _PARTS and any(has_bits(t) for t in given if isinstance(t, torch.Tensor)):
            raise Unsupported(f"{name} of a conjugate or negative gives copies")
        elif _writes_twice(name, self.fetch_args_kwargs_from_env(n)[0]):
            raise Unsupported(f"{name} writes twice to one tensor that autograd tracks")
        elif name == "gradient_hook":
            self.hooked.add(edge(given[0]))
        bases = [t._base for t in given if isinstance(t, torch.Tensor) and t._is_view()]
        overlapping = [t for t in (*given, *bases) if self._overlaps(t)]
        uncounted = [t for t in overlapping if t.is_inference()]
        shared = [(t, t._version) for t in overlapping if not t.is_inference()]
        counted = [(t, t._version) for t in (*given, *bases) if _counts_writes(t)]
        self.readers.before(given)
        self.spread |= {memory(t) for t in uncounted}
        if name in ("as_strided", "as_strided_"):
            result = self._reach(n)
        elif name in ("resize_", "resize_as_"):
            result = self._resize(n)
        elif uncounted:
            with Written() as written:
                result = super().run_node(n)
            if not written.memories.isdisjoint(map(memory, uncounted)):
                raise Unsupported("a tensor that is written to overlaps itself")
        else:
            result = super().run_node(n)
        self.readers.after(n, result, name if _moves_nothing(name) else None)
        if self.writes is not None:
            self.writes.after()
        if self.begun:
            self._look_at_places(n, name)
        if any(t._version != version for t, version in shared) and not _moves_nothing(name):
            raise Unsupported("a tensor that is written to overlaps itself")
        if not _moves_nothing(name):
            for t in [t for t, version in counted if t._version != version]:
                self.stored.add(memory(t))
                if by_size(t) and overlaps_itself(t):  # assumed of later calls too
                    raise Unsupported("a tensor that is written to overlaps itself")
        if not self.cut.isdisjoint(self.stored):
            raise Unsupported("as_strided_ gives an input a part of the memory that is written to")
        if shared:
            held = {memory(t) for t, _ in shared}  # no view is what ``detach`` gives, here
            for t in result if isinstance(result, (list, tuple)) else [result]:
                if isinstance(t, torch.Tensor) and (t._is_view() or memory(t) in held):
                    self.below[id(t)] = t
        if name == "unfold" and n.target is not F.unfold and self._has_no_way_back(n):
            self.below[id(result)] = result
        if isinstance(result, torch.Tensor) and not isinstance(result, _PLAIN):
            raise Unsupported(f"the graph makes a tensor subclass ({type(result).__name__})")
        return result

    def _overlaps(self, t: Any) -> bool:
        """Whether what is written to ``t`` is written to other elements of a view that it is of:
        what follows of that for the view's base is a sum of differences, which rounds."""
        if id(t) in self.below or shares_elements(t):
            return True
        return bool(self.spread) and isinstance(t, torch.Tensor) and memory(t) in self.spread

    def _look_at_places(self, n: torch.fx.Node, name: Any) -> None:
        """A new value is in memory of its own, of which a place that is said is another one."""
        if name in _PLACED:
            (t, *others), kwargs = self.fetch_args_kwargs_from_env(n)
            last = others[3:] if name == "as_strided_scatter" else others[2:]
            if kwargs.get("storage_offset", *last[:1] or [None]) is not None:
                self.placed.add(memory(t))
        changes = not _moves_nothing(name)
        self.changed |= {
            memory(t)
            for t, version in self.begun
            if t._version != version and (changes or t.requires_grad and torch.is_grad_enabled())
        }  # what autograd sees changed in size is in a copy of its memory, too
        self.begun = [(t, t._version) for t, _ in self.begun]
        if not self.placed.isdisjoint(self.changed):
            raise Unsupported("as_strided says a place in memory that is written to")

    def _has_no_way_back(self, n: torch.fx.Node) -> bool:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return leaves_gaps(*args, **kwargs)

    def _check_set(self, n: torch.fx.Node, given: Sequence[Any]) -> None:
        if len(given) != 2 or len(n.args) != 2 or n.kwargs:
            raise Unsupported("set_ gives a tensor other memory than another tensor has")
        if given[0]._version != self.versions.get(id(given[0]), given[0]._version):
            raise Unsupported("set_ gives other memory to an input that was written to before")

    def _resize(self, n: torch.fx.Node) -> Any:
        (t, *_), _ = self.fetch_args_kwargs_from_env(n)
        before = t.untyped_storage().nbytes()
        result = super().run_node(n)
        if not same((t.untyped_storage().nbytes(),), (before,)):
            raise Unsupported("resize_ gives a tensor more memory")
        return result

    def _reach(self, n: torch.fx.Node) -> Any:
        (given, *_), _ = self.fetch_args_kwargs_from_env(n)
        before, gaps, numel = Layout.of(given), has_gaps_or_overlaps(given), given.numel()
        t = super().run_node(n)
        after = Layout.of(t)
        inside = before.offset <= after.offset and after.end <= before.end and not gaps
        if t.untyped_storage()._cdata in self.storages and not inside:
            raise Unsupported("as_strided reaches memory that an input is not said to have")
        if t is given and memory(t) in self.storages and (t.numel() != numel or overlaps_itself(t)):
            self.cut.add(memory(t))
        return t


def _is_tracked(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad


def _writes_twice(name: str, args: Sequence[Any]) -> bool:
    """Whether an operator of lists has a tensor twice that it writes to, and autograd sees it: the
    function of its second write was made before the first."""
    if not (name.startswith("_foreach_") and name.endswith("_") and torch.is_grad_enabled()):
        return False
    tracked = any(map(_is_tracked, pytree.tree_leaves(tuple(args))))
    return tracked and len({id(t) for t in args[0]}) < len(args[0])


def _moves_nothing(name: Any) -> bool:
    """Whether the operator changes sizes and strides in place, and no element."""
    packet = getattr(torch.ops.aten, name, None) if isinstance(name, str) else None
    overloads = [getattr(packet, each) for each in packet.overloads()] if packet else []
    return bool(overloads) and all(torch.Tag.inplace_view in each.tags for each in overloads)


def shares_elements(t: Any) -> bool:
    """Whether two elements of ``t`` are one place of memory, as far as sizes are known."""
    if not isinstance(t, torch.Tensor) or t.layout is not torch.strided:
        return False
    if by_size(t):
        return any(isinstance(step, int) and step == 0 for step in t.stride())
    return overlaps_itself(t)


def by_size(t: torch.Tensor) -> bool:
    """Whether symbols say how ``t`` lies."""
    return t.layout is torch.strided and bool(t._has_symbolic_sizes_strides)


def _counts_writes(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and not t.is_inference()
