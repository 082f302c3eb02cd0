"""The generated Python function that allocates, launches kernels, and calls ATen.

Everything that can be decided while compiling is a literal of the text. Buffers are freed after
their last use, and a dead one of the same size and layout is used again.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fastpath.agreement import ASKED, FirstCall, first_lines, promise_of
from fastpath.bindings import function_of, method_of
from fastpath.device import Device, Together
from fastpath.graphs.launches import Launches
from fastpath.handles import beginning, is_fixed, one_step, turned, unchanged
from fastpath.held import Held
from fastpath.ir.expr import Bounds
from fastpath.ir.oddrows import BY_CLASSES
from fastpath.ir.program import (
    Call,
    Computed,
    Input,
    Node,
    Program,
    Result,
    Scalar,
    Scatter,
    Tensor,
    named,
    tensors_in,
)
from fastpath.ir.size import Size
from fastpath.ir.types import DTYPE
from fastpath.lives import size_of
from fastpath.memory import Memory, alike, stored_of
from fastpath.numbered import Numbers
from fastpath.profiles import announced, kernel_name, profiled, title, together_title
from fastpath.rejecting import Rejecting, RejectingCall, reject
from fastpath.report import Report
from fastpath.schedule.cluster import Cluster, Fusion
from fastpath.schedule.inplace import candidates, in_place, written_last
from fastpath.schedule.kernel import Kernel
from fastpath.schedule.loops import Builder
from fastpath.schedule.streams import STREAM_ALIGNMENT
from fastpath.schedule.together import FEW, together
from fastpath.workspace import TEXT, Workspace, bind, linear
from refcompiler.remade import WRITTEN

if TYPE_CHECKING:
    from fastpath.cpu.products import Known
    from fastpath.gpu.vendor import Direct

_NUMBERS = itertools.count()
APART = 256  # bytes by which results begin apart from each other in one piece of memory


def _nothing() -> None:
    """Stands for the call until it is written."""


def realigned(t: torch.Tensor) -> torch.Tensor:
    """Fresh memory for a fresh tensor, for allocators that align less than torch's own."""
    more = t.new_empty(t.numel() + STREAM_ALIGNMENT // t.itemsize)
    offset = -more.data_ptr() % STREAM_ALIGNMENT // t.itemsize
    return torch.as_strided(more, t.size(), t.stride(), offset)


def allocated(t: torch.Tensor) -> tuple[torch.Tensor, int]:
    """What has no address, with memory: torch's tensors of zeros have none, as those of no elements
    have none to have."""
    if t._is_zerotensor():
        t = torch.zeros_like(t)
    return t, t.data_ptr()


def span(node: Node) -> Any:
    """How many elements of memory there are from its first to its last."""
    return 1 + sum((n - 1) * step for n, step in zip(node.shape, node.strides, strict=True))


def _is(value: Any, nodes: Collection[Node]) -> bool:
    return isinstance(value, Tensor) and value.node in nodes


def _sees_parts(call: Call) -> bool:
    """Whether it is given what lies in memory as something else, which only ATen reads there."""
    return any(t.seen is not None for t in tensors_in((call.arguments, call.keywords)))


class Wrapper:
    """Writes ``call(*inputs)`` and ``call.source``, for kernels that run on ``device``.

    ``boxed``: it is ``call(inputs)`` and empties the list. ``otherwise(values, *inputs)`` is what
    answers calls that do not meet the conditions in ``program.sizes``, given what their unknowns
    are, in order. ``first`` answers the first call if an operator of ATen does not give in it what
    its stand-in promised, and all later ones.
    """

    def __init__(
        self,
        program: Program,
        constants: Sequence[torch.Tensor],
        report: Report,
        device: Device,
        boxed: bool = False,
        otherwise: Callable[..., Any] | None = None,
        first: FirstCall | None = None,
        held: Held | None = None,
    ):
        self.first, self.held = first, held or Held()
        self.program, self.report, self.device = program, report, device
        self.names: dict[str, Any] = {"torch": torch, "empty": torch.empty_strided}
        self.names["as_strided"] = torch.as_strided
        self.strided: set[str] = set()  # variables that autograd takes for views
        self.lines: list[str] = []
        self.kernels: list[str] = []  # sources
        self.scheduled: list[Kernel] = []
        self.titles: dict[str, str] = {}  # of kernels, for profiles
        self._variable: dict[Node, str] = {}
        self._plain: dict[Node, str] = {}
        self._views: dict[int, tuple[Tensor, str]] = {}
        self.over: Mapping[Computed, Input] = {}  # new values that inputs may be given at once
        self.overwritten: dict[Node, None] = {}  # those that they are given
        self.successors: set[Node] = (
            set()
        )  # those that lie where a kernel has read what they are of
        self._returning = False  # whether what is returned is being made
        self._addresses: dict[str, str] = {}
        self._pieces: dict[Node, str] = {}  # what lies in one piece of memory, by its variable
        self._count = 0
        self._waiting: list[tuple[str, list[str], str]] = []  # kernels that are launched together
        self.numbers = Numbers(program.sizes, self.names, self._literal)
        self.parameters = program.parameters
        self.taken = frozenset(program.parameters)
        self.boxed, self.otherwise = boxed, otherwise
        self.recordable = Launches(_nothing, self.parameters, boxed, constants=list(constants))
        given = self.given = len(program.inputs) - len(constants)
        for node in program.inputs:
            self._variable[node] = node.name
            if node.place >= given:
                self.names[node.name] = constants[node.place - given]

    def write(self) -> Callable[..., Any]:
        t = self.device.target
        fusion = Fusion(self.program, t.ends, t.across, t.recomputed, t.run, t.whole)
        if t.in_place:
            wanted = candidates(self.program)
            self.over = written_last(fusion, wanted, self.device.is_cpu)
            for node, given in self.over.items():
                node.strides = given.strides
        together = self._together(fusion)
        order = fusion.result
        self.products: Mapping[Call, Known | Direct] = {}
        if self.program.products:
            calls = [c.call for c in order if c.call is not None]
            self.products = self.device.products([c for c in calls if not _sees_parts(c)])
        self.read = {node.name for cluster in order for node in cluster.needs}
        constants = len(self.program.inputs) - self.given
        memory = self.memory = Memory(
            self.program,
            fusion,
            self.products,
            constants,
            self.device.is_cpu,
            self.boxed,
            self.held,
            together,
        )
        stored, last, self.laid = memory.stored, memory.last, memory.laid
        self.kept = Workspace(memory.plan)
        self.relied = self._relied(order)
        if self.boxed:  # nobody guards what a forward keeps, which ATen may have made
            for taken in self.program.inputs[: self.given]:
                self._ask(taken, "the forward")
        ends = {run[-1] for run in together}
        joined = {place for run in together for place in run}
        for place, cluster in enumerate(order):
            if cluster.call is not None:
                self._call(cluster.call)
            else:
                self._launch(place, cluster, fusion, stored, place in joined)
            if place in ends:
                self._launch_together()
            self._release(last.get(place, ()))
        self._finish()
        self.names |= self.device.loaded(self.names)
        return self._compile()

    # -- memory ----------------------------------------------------------------------------------

    def _relied(self, order: Sequence[Cluster]) -> set[Node]:
        """Nodes that have to lie as they were promised to: of the others only ATen knows."""
        calls = [c.call for c in order if c.call is not None]
        given = tensors_in([(c.arguments, c.keywords) for c in calls])
        viewed = {t.node for t in (*given, *tensors_in(self.program.outputs)) if t.replay}
        kernels = (c for c in order if c.call is None or c.call in self.products)
        return viewed.union(*(c.needs for c in kernels))

    def _release(self, nodes: Sequence[Node]) -> None:
        dead: list[str] = []
        for node in nodes:
            name = self._variable.get(node)
            if name is None or node in self.kept:
                continue
            whole = self._pieces.pop(node, None)
            if whole is not None:
                dead += [] if whole in self._pieces.values() else [whole]
                continue
            if node not in self.memory.inherited:
                dead.append(name)
            for key, (view, variable) in list(self._views.items()):
                if view.node is node:
                    dead.append(variable)
                    del self._views[key]
        if dead:
            self.lines.append(f"del {', '.join(sorted(dead))}")

    def _allocate(self, node: Node) -> str:
        if node in self.overwritten or node in self.successors:
            return self._variable[node]
        if node in self.kept:
            return self._place(node)
        dead = self.memory.heirs.get(node, self.memory.sums.get(node))
        if dead is not None:
            name = self._variable[node] = self._variable[dead]
            return name
        own: Node | Tensor = self.laid.get(node, node)
        name = f"b{self._count}"
        self._count += 1
        shape, strides = self.numbers.texts(own.shape), self.numbers.texts(own.strides)
        kind = f"dtype={self._dtype(node.dtype)}, device={self._device()}"
        text = f"empty({shape}, {strides}, {kind})"
        if node.begin is not None:
            root, further = node.begin
            begin = self.numbers.text(further)
            if root is not None:
                begin = self.numbers.variable(f"{root.name}.storage_offset() + {begin}")
            whole = f"({begin} + {self.numbers.text(span(node))},)"
            text = f"as_strided(empty({whole}, (1,), {kind}), {shape}, {strides}, {begin})"
            self.strided.add(name)
        self.lines.append(f"{name} = {text}")
        self._variable[node] = name
        return name

    def _allocate_together(self, nodes: Sequence[Node]) -> None:
        """One piece of memory for what one kernel makes and only others read, of which the call
        knows the addresses alone. It is freed when none of them is needed any more."""
        fit = [n for n in nodes if n in self.memory.unseen and n not in self._variable]
        if len(fit) < 2:
            return
        whole, *names = (f"b{self._count + n}" for n in range(len(fit) + 1))
        self._count += len(names) + 1
        ends = [*itertools.accumulate(-(-size_of(n) // APART) * APART for n in fit)]
        kind = f"dtype={self._dtype('uint8')}, device={self._device()}"
        self.lines.append(f"{whole} = empty(({ends[-1]},), (1,), {kind})")
        self.lines.append(f"{whole}_p = {whole}.data_ptr()")
        for node, name, begin in zip(fit, names, [0, *ends]):
            self._variable[node], self._addresses[name] = name, f"{name}_p"
            self.lines.append(f"{name}_p = {whole}_p + {begin}")
            self._pieces[node] = whole

    def _place(self, node: Node) -> str:
        """The name of a node that is kept, which is made with the workspace."""
        name = self._variable[node] = f"b{self._count}"
        self._count += 1
        self._dtype(node.dtype)
        return name

    def _dtype(self, name: str) -> str:
        self.names[name] = DTYPE[name]
        return name

    def _device(self) -> str:
        """The name of the device, which may be another one than a program's default."""
        name = "cpu" if self.device.is_cpu else "device"
        self.names[name] = self.device.device
        return name

    def _address(self, node: Node) -> str:
        name = self._memory(node)
        known = self._addresses.get(name)
        if known is None:
            known = self._addresses[name] = f"{name}_p"
            if node in self.kept:
                self.kept.address(node, name)
            else:
                self.lines.append(f"{known} = {name}.data_ptr()")
                if isinstance(node, Input) and name in self.taken:
                    self.names["allocated"] = allocated
                    self.lines.append(f"if not {known}: {name}, {known} = allocated({name})")
        return known

    # -- steps -----------------------------------------------------------------------------------

    def _together(self, fusion: Fusion) -> list[range]:
        """The places of kernels that one launch runs, on a device where one can."""
        return together(fusion, self.over, stored_of(fusion)) if self.device.is_cpu else []

    def _launch_together(self) -> None:
        """One launch of the kernels that wait for it."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) < FEW:
            self.lines += [f"{name}({', '.join(given)})  # {made}" for name, given, made in waiting]
            return
        names = [name for name, _, _ in waiting]
        given = ", ".join(text for _, texts, _ in waiting for text in texts)
        name = f"{names[0]}_to_{names[-1][1:]}"
        self.names[name] = Together(names)
        self.titles[name] = together_title([self.titles.pop(n) for n in names])
        self.lines.append(f"{name}({given})  # {len(names)} kernels")

    def _take_over(self, kernel: Kernel, own: Sequence[Node], leaving: Sequence[Node]) -> None:
        """Give what the kernel makes the memory of what it is the last to read, where it may."""
        for node in own:
            if node in self.overwritten or node in self.laid or self.memory.settled(node):
                continue
            for dead in leaving:
                if alike(node, dead) and in_place(kernel, node.name, dead.name):
                    self._variable[node] = self._given_to(node, dead)
                    self.successors.add(node)
                    leaving = [other for other in leaving if other is not dead]
                    break

    def _given_to(self, node: Node, dead: Node) -> str:
        """The variable of a node that lies where ``dead`` did."""
        name = f"b{self._count}"
        self._count += 1
        shape, strides = self.numbers.texts(node.shape), self.numbers.texts(node.strides)
        self.lines.append(f"{name} = as_strided({self._variable[dead]}, {shape}, {strides})")
        self.strided.add(name)
        return name

    def _launch(
        self,
        place: int,
        cluster: Cluster,
        fusion: Fusion,
        stored: set[Node],
        joined: bool = False,
    ) -> None:
        """``place``: of the step; ``joined``: it may wait for others, to be launched with them."""
        own = [n for n in cluster.members if n in stored]
        if any(n.numel == 0 for n in cluster.members):
            for node in own:
                self._allocate(node)
            return
        number = len(self.kernels)
        roots = fusion.roots.roots
        name, target = f"kernel_{number}", self.device.target
        if not self.device.is_cpu:
            name = kernel_name(n.name for n in cluster.members)
        sizes = self.program.sizes
        kernel = Builder(cluster, name, roots, stored, self.read, target, sizes).build()
        for node in own:
            if isinstance(node, Scatter):
                in_place(kernel, node.name, node.base.name)
            if node in self.over and in_place(kernel, node.name, self.over[node].name):
                self._variable[node] = self._variable[self.over[node]]
                self.overwritten[node] = None
        if self.device.is_cpu and not joined:
            self._take_over(kernel, own, self.memory.leaving(place))
        run, source = self.device.compile_kernel(kernel, sizes)
        self.kernels.append(source)
        self.scheduled.append(kernel)
        self.report.kernels += 1
        self._allocate_together(own)
        for node in own:
            if node not in self._pieces:
                self._allocate(node)
        by_name = {n.name: n for n in (*cluster.needs, *own) if n in self._variable}
        pointers = [self._address(by_name[b.name]) for b in kernel.buffers]
        pointers += [self._memory(by_name[name]) for name in kernel.arguments]
        for node in own:
            if node.name in kernel.streamed and node not in self.kept:
                self._align(self._memory(node))
        self.names[f"k{number}"] = run
        made = ", ".join(n.name for n in cluster.members)
        self.titles[f"k{number}"] = title(number, (n.name for n in cluster.members))
        checked: list[Bounds] = kernel.bounds() if self.device.is_cpu else []
        if checked:
            self._watch()
            pointers.append("outside_p")
        if kernel.sized:
            pointers += [self.numbers.text(n) for n in kernel.sizes]
            if self.device.is_cpu:
                units = self.numbers.variable(kernel.units_text(self.numbers.text))
                pointers = [self.numbers.text(kernel.work), units, *pointers]
            else:
                pointers.insert(0, self.numbers.variable(run.programs(self.numbers.text)))
        self.recordable.launched.append((f"k{number}", pointers))
        if joined and not (checked or kernel.sized or kernel.streamed):
            self._waiting.append((f"k{number}", pointers, made))
            return
        self.lines.append(f"k{number}({', '.join(pointers)})  # {made}")
        if checked:
            self.names[f"k{number}_kernel"] = Rejecting(kernel, self.device)
            extents = self.numbers.texts([b.extent for b in checked])
            if kernel.sized:
                pointers[0] = "0"  # work, for which no thread is woken
            again = f"reject(k{number}_kernel, {extents}, outside, {', '.join(pointers)})"
            self.lines.append(f"if outside[0]: {again}")

    def _watch(self) -> None:
        """Memory of this call alone, for what a kernel says of a position that there is not."""
        if "outside" not in self._addresses:
            self._addresses["outside"] = "outside_p"
            self.names["reject"] = reject
            self.kept.watch()

    def _memory(self, node: Node) -> str:
        """The variable whose memory is the node's values."""
        name = self._variable[node]
        if not (isinstance(node, Result) and node.bits):
            return name
        if node not in self._plain:
            self._plain[node] = f"{name}_plain"
            self.lines.append(f"{name}_plain = {name}.clone(memory_format=contiguous)")
            self.names["contiguous"] = torch.contiguous_format
        return self._plain[node]

    def _align(self, name: str) -> None:
        """Whole vectors go past the caches only to aligned addresses, as all of torch's are."""
        self.names["realigned"] = realigned
        move = f"{name} = realigned({name}); {name}_p = {name}.data_ptr()"
        self.lines.append(f"if {name}_p % {STREAM_ALIGNMENT}: {move}")

    def _multiply(self, call: Call, product: Known) -> None:
        """Launch the kernel that answers a call: of a matrix product, a sum of rows, attention."""
        number = len(self.kernels)
        run, source = product.compiled()
        self.kernels.append(source)
        self.report.kernels += 1
        self.report.products += product.products
        addresses = ["0" if t is None else self._place_of(t) for t in product.operands]
        for result in call.outputs:
            if result.name in self.read or result in self.memory.returned:
                self._allocate(result)
                addresses.append(self._address(result))
            else:
                addresses.append("0")
        if product.limit is not None:
            self._watch()
            addresses.append("outside_p")
        texts = product.arguments(addresses, call.outputs, self.numbers.text)
        self.names.update(product.named())
        name = f"k{number}"
        self.names[name], self.titles[name] = run, title(number, [call.name])
        made = ", ".join(result.name for result in call.outputs)
        self.lines.append(f"{name}({', '.join(texts)})  # {made} = {call.name}")
        if product.limit is not None:
            self.names[f"{name}_kernel"] = RejectingCall(product.finder(), [product.limit])
            given = (
                f"{self.numbers.texts([product.limit.extent])}, outside, 0, {', '.join(texts[1:])}"
            )
            self.lines.append(f"if outside[0]: reject({name}_kernel, {given})")

    def _ask_library(self, call: Call, product: Direct) -> None:
        """Have the vendor's library multiply, without ATen."""
        operands = [t for t in product.operands if t is not None]
        self.recordable.opaque |= {t.node.name for t in operands if isinstance(t.node, Input)}
        self.report.direct += 1
        addresses = ["0" if t is None else self._place_of(t) for t in product.operands]
        (result,) = call.outputs
        self._allocate(result)
        addresses.append(self._address(result))
        run = self._constant(product.launch)
        self.lines.append(f"{run}({', '.join(addresses)})  # {result.name} = {call.name}")

    def _place_of(self, t: Tensor) -> str:
        """The text of the address at which a view of a real tensor begins."""
        offset = beginning(t)
        if offset is None:
            return f"{self._real(t)}.data_ptr()"
        size = DTYPE[t.dtype].itemsize
        place = self._address(t.node)
        return f"{place} + {size} * {self.numbers.text(offset)}" if offset else place

    def _call(self, call: Call) -> None:
        product: Any = self.products.get(call)
        if product is not None and self.device.is_cpu:
            return self._multiply(call, product)
        counts = self.report.draws if call.kernel else self.report.aten_calls
        counts[call.name] = counts.get(call.name, 0) + 1
        if not call.kernel:
            self.report.reasons[call.name] = call.reason
        if product is not None:
            return self._ask_library(call, product)
        taken = {t.node for t in tensors_in((call.arguments, call.keywords))}
        first = len(self.lines)
        self._assign(call, self._called(call))
        if call.kernel:
            self._reserved(call, taken, self.lines[first:])
            return
        self.recordable.opaque |= {n.name for n in taken if isinstance(n, Input)}
        if torch.Tag.nondeterministic_seeded in getattr(call.target, "tags", ()):
            self.recordable.draws = True

    def _reserved(self, call: Call, taken: set[Node], lines: Sequence[str]) -> None:
        """A replay reserves of the generator's stream what the call does."""
        recordable = self.recordable
        recordable.reserve[call.name] = len(call.outputs)
        recordable.host += lines
        if not all(isinstance(node, Input) for node in taken):
            recordable.unfit = f"{call.name} asks where a result lies"

    def _called(self, call: Call) -> str:
        target, arguments, keywords = call.target, call.arguments, call.keywords
        if self.device.is_cpu:
            target, arguments = linear(target, arguments, keywords)
        elif target in BY_CLASSES:
            return self._by_classes(target, *arguments)
        text = self._operator(target, arguments, keywords)
        for into in call.outputs[:1]:
            if into in self.kept:
                self.kept.tensor(into, self._place(into))
                return f"{text[:-1]}, out={self._variable[into]})"
            if into in self.memory.sums:
                return f"{text[:-1]}, out={self._allocate(into)})"
        return text

    def _by_classes(self, way: Any, left: Tensor, right: Tensor) -> str:
        """A call of what is made for operands that lie so, with the program's kernels."""
        name = f"{way.__name__}_{len(self.names)}"
        self.names[name], source = self.device.by_classes(way, left, right)
        self.kernels.append(source)
        self.report.kernels += 1
        return f"{name}({self._literal(left)}, {self._literal(right)})"

    def _assign(self, call: Call, text: str) -> None:
        if not call.outputs or call.outputs[0] in self._variable:
            self.lines.append(text)
            return
        name = f"b{self._count}"
        self._count += 1
        self.lines.append(f"{name} = {text}")
        if call.single:
            self._variable[call.outputs[0]] = name
            self._ask_result(call, call.outputs[0])
            return
        for place, result in zip(call.places, call.outputs):
            made = self._variable[result] = "_".join([name, *map(str, place)])
            self.lines.append(f"{made} = {name}{''.join(f'[{n}]' for n in place)}")
            self._ask_result(call, result)
        self.lines.append(f"del {name}")

    def _ask_result(self, call: Call, result: Result) -> None:
        if not (result.number or result.bits):
            self._ask(result, call.name)

    def _ask(self, node: Node, maker: str) -> None:
        """Whether what ``maker`` gives is what it was promised to be."""
        if self.first is None or node not in self.relied:
            return
        name = self._constant(promise_of(node, maker))
        why = f"why := broken({self._variable[node]}, {name})"
        self.lines.append(f"{ASKED}if {why}: return instead(why, given, drawn)")

    def _operator(self, target: Any, arguments: Any, keywords: Any) -> str:
        name = named(target).replace(".", "_").replace("::", "_")
        texts = [self._literal(a) for a in arguments]
        method = method_of(target)
        if method is not None and not keywords:
            return f"{texts[0]}.{method}({', '.join(texts[1:])})"
        self.names[name] = function_of(target)
        texts += [f"{k}={self._literal(v)}" for k, v in keywords.items()]
        return f"{name}({', '.join(texts)})"

    def _literal(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return self._real(value)
        if isinstance(value, Size):
            return self.numbers.text(value)
        if isinstance(value, Scalar):
            if value.target is None:
                return value.arguments[0]
            self.recordable.unfit = "a number in it depends on data"
            texts = [self._literal(a) for a in value.arguments]
            return f"{self._constant(value.target)}({', '.join(texts)})"
        if isinstance(value, (tuple, list)):
            items = ", ".join(self._literal(v) for v in value)
            return f"[{items}]"
        if isinstance(value, float) and value in (float("inf"), float("-inf")) or value != value:
            return f"float('{value}')"
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self.names)}"
        for known, other in self.names.items():
            if other is value and known.startswith("constant_"):
                return known
        self.names[name] = value
        return name

    def _real(self, t: Tensor) -> str:
        """The variable that holds a real tensor; views are made by ATen's own view operators."""
        if not self._returning:
            t = unchanged(t)
        kept = t.node in self.kept
        if kept:
            self.kept.tensor(t.node, self._variable[t.node])
        if t.replay is None or t.node in self.laid:
            return self._variable[t.node]
        known = self._views.get(id(t))
        if known is not None:
            return known[1]
        replay = t.replay
        if not self._returning and one_step(t):
            node = self._variable[t.node]
            geometry = [node, self._literal(t.shape), self._literal(t.strides)]
            if t.offset:  # in the memory, where what is kept and some results begin somewhere
                inside = kept or t.node.begin or (isinstance(t.node, Result) and t.node.inside)
                begin = f"{node}.storage_offset() + " if inside else ""
                geometry.append(f"{begin}{self._literal(t.offset)}")
            text = f"{node}.t()" if turned(t) else f"as_strided({', '.join(geometry)})"
        else:
            text = self._operator(replay.target, replay.arguments, replay.keywords)
            if replay.place is not None:
                text = f"{text}[{replay.place}]"
        name = f"v{self._count}"
        self._count += 1
        if kept and is_fixed(t):
            self.kept.line(name, text)
        else:
            self.lines.append(f"{name} = {text}")
        self._views[id(t)] = (t, name)
        return name

    # -- outputs ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        """What is returned is of the graph's own nodes: what lies together there does so here."""
        self._returning = True
        self._views.clear()
        outputs = self.program.outputs
        texts = [
            "None" if _is(value, self.overwritten) else self._literal(value) for value in outputs
        ]
        # In the program's eyes they are views of nothing.
        texts = [f"{text}.detach()" if text in self.strided else text for text in texts]
        if self.overwritten:
            self.names["counted"] = torch.autograd.graph.increment_version
            written = dict.fromkeys(self._variable[node] for node in self.overwritten)
            given = "".join(f"{name}, " for name in written)
            self.lines.append(f"counted(({given}))")
        self.lines.append(f"return ({''.join(f'{text}, ' for text in texts)})")

    # -- text ------------------------------------------------------------------------------------

    def _compile(self) -> Callable[..., Any]:
        lines, parameters = self.lines, ", ".join(self.parameters)
        if self.kept.wanted:
            lines = [*self.kept.taken(), *lines[:-1], "give(arena)", lines[-1]]
            self.names.update(TEXT)
        checked = self.numbers.checked("inputs" if self.boxed else parameters)
        if checked:
            self.names["otherwise"] = self.otherwise
        lines = [*self.numbers.lines, *checked, *lines]
        if self.boxed:
            taken = [f"{parameters}, = inputs"] if parameters else []
            begin = len(self.numbers.lines) + len(checked)
            lines = [*taken, *lines[:begin], "inputs.clear()", *lines[begin:]]
            parameters = "inputs"
        if self.titles and self.device.is_cpu:
            lines = [f"if profiled(): return named({parameters})", *lines]

        def text_of(lines: Sequence[str]) -> str:
            body = "".join(f"    {line}\n" for line in lines)
            kept = f"\n\n{self.kept.text()}" if self.kept.wanted else ""
            return f"def call({parameters}):\n{body}{kept}"

        text = text_of([line for line in lines if not line.startswith(ASKED)])
        file = f"<fastpath {next(_NUMBERS)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        scope = dict(self.names)
        exec(compile(text, file, "exec"), scope)
        made, first = scope.pop("call"), ""
        if self.first is not None and any(line.startswith(ASKED) for line in lines):
            later = made.__code__
            scope |= self.first.names()
            first = text_of(first_lines(lines, parameters, self.boxed))
            exec(compile(first, file, "exec"), scope)
            made = scope.pop("call")
            self.first.begins(made, later)
        if self.titles and self.device.is_cpu:
            scope.update(profiled=profiled, named=announced(made, self.titles))
        weakref.finalize(made, linecache.cache.pop, file, None)
        bind(made, self.kept.number)
        addresses = {a: name for name, a in self._addresses.items() if name in self.parameters}
        self.recordable.call, self.recordable.addresses = made, addresses
        call: Any = self.device.entered(made)
        call.recordable = self.recordable
        call.source, call._boxed_call = text, self.boxed
        call.kernel_sources = self.kernels
        call.first_source, call.titles = first, self.titles
        call.__dict__[WRITTEN] = "fastpath"
        return call
