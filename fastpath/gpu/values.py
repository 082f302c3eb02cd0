"""Scalar expressions as values of Triton's blocks: addresses, masks, loads, and what is known.

Every value is a block: of the points ``x`` that the program keeps, ``[XB]`` or, beside reduced
points ``r`` or a transposed tile's rows ``y``, ``[XB, RB]`` or ``[YB, XB]``; what depends on one of
them only has size 1 along the other.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

from fastpath.gpu.groups import one_for_all
from fastpath.gpu.ranges import COMPARISONS, Ranges
from fastpath.gpu.reach import is_wide
from fastpath.gpu.rows import VECTOR, flatten
from fastpath.gpu.strided import part_of
from fastpath.gpu.tiling import Tiling, keeps_lanes
from fastpath.gpu.words import DRAWN, WORDS, shared
from fastpath.ir.expr import Expr, const
from fastpath.ir.index import Axis, Index
from fastpath.ir.size import divides, known
from fastpath.ir.types import saturates
from fastpath.schedule.kernel import Kernel, Store, Transposed, itemsize
from fastpath.schedule.logistic import LOG_ONE_AND_EXP, beside_one
from fastpath.schedule.slabs import popular
from fastpath.schedule.text import Lines, index_text
from specs.dtypes import REDUCED, is_float
from specs.scalars import SCALARS, TRITON_TYPE, cast_text

GATES = {"erf", "tanh"}  # functions that :mod:`fastpath.gpu.maths` computes with one added
PAIR = ("sin", "cos")  # which it computes together
ALIKE = 16  # neighbours of which it is worth while to know that they have one position
_NOTHING: frozenset[str] = frozenset()

MOST_ODD = 1 << 22  # of a divisor whose quotient is corrected by a product
ONE = const(1, "float32")


class Values(Lines):
    def __init__(self, kernel: Kernel, plan: Tiling):
        super().__init__(kernel.sizes)
        self.kernel, self.plan = kernel, plan
        self.place = {b.name: n for n, b in enumerate(kernel.buffers)}
        self.dtype = {b.name: b.dtype for b in kernel.buffers}
        self.written = {b.name for b in kernel.buffers if b.written}
        self.wide = is_wide(kernel, plan)
        self.ranges = Ranges()
        self.masked = True  # whether the points of x may be outside
        self.whole = False  # whether all of a block of r is known to be inside
        self.axes: dict[Axis, str] = {}
        self.named: dict[str, dict[Axis, str]] = {}  # axes at some of the points, by their name
        self.first = {"x": "0", "r": "0"}  # of the block's points
        self.masks = {"x": "x_in", "y": "y_in", "r": "r_in"}  # which of them are there
        # Several axes in a row are one number already: what steps through all of them uses it.
        self.flattened = [
            (axes, Axis(math.prod(a.extent for a in axes)))
            for axes in (plan.x, plan.r)
            if len(axes) > 1
        ]
        self.kinds: dict[Axis, str] = dict.fromkeys(plan.x, "x")
        self.kinds |= dict.fromkeys(plan.r, "r")
        if plan.y is not None:
            self.kinds[plan.y] = "y"
        self.known: dict[Expr, str] = {}
        self.words: dict[Expr, str] = {}  # random ones, of 32 bits
        self.apart: dict[Expr, list[str]] = {}  # those of the four pieces of a stripe
        self.part = 0  # which of these is printed
        self.aligned = True  # whether buffers begin with vectors
        self.grouped = False  # whether the points of x are groups of neighbours: see turns.py
        self.assumed: dict[Expr, bool] = {}  # what is decided for all points, where it is printed
        self.stored: dict[tuple[str, Index], str] = {}
        # Elements of a row that passes over it up to this one read, and of those that this one
        # does, the ones that passes before it read too, and those behind it.
        self.earlier: set[tuple[str, Index]] = set()
        self.again: set[tuple[str, Index]] = set()
        self.later: set[tuple[str, Index]] = set()
        loads = [e for stage in kernel.stages for e in stage.loads()]
        self.popular = any(popular(e.args[1]) for e in loads)
        self.sums: dict[str, str] = {}  # a finished reduction's name
        self._varying: dict[Expr, frozenset[str]] = {}
        self._along: dict[Expr, frozenset[Axis]] = {}
        self._uses: dict[Expr, int] = {}
        self._slopes: dict[Expr, Expr] = {}  # the sum of 1 and a tanh that each is made of
        self.constants: dict[str, str] = {}  # text -> name
        self.arguments: dict[str, str] = {}  # a number's name in the program -> in the kernel

    # -- text ------------------------------------------------------------------------------------

    def program(self) -> str:
        """The program's number."""
        return f"tl.program_id(0){'.to(tl.int64)' if self.wide else ''}"

    def lanes(self, count: int) -> str:
        """The numbers below ``count``, a block of them. Where places need 64 bits these have them,
        too: of sums and products with literals, which are of their kind, no part is of 32."""
        return f"tl.arange(0, {count}){'.to(tl.int64)' if self.wide else ''}"

    def index(self, index: Index) -> str:
        for axes, flat in self.flattened:
            index = flatten(index, axes, flat)
        return index_text(index, self.axes.__getitem__, self.index, self._position, self.number)

    def _position(self, e: Expr) -> str:
        """A position that is data. Triton cannot see that neighbours have the same one, where they
        have, and would read from there element by element."""
        alike = self._alike(e)
        text = self.text(e) if self.wide else self._in_32_bits(e)
        if not alike:
            return text
        told = Expr("alike", (e,), e.dtype)
        if told not in self.known:
            name = self.fresh()
            self.line(f"{name} = tl.max_constancy({text}, {alike})")
            self.known[told] = name
        return self.known[told]

    def _in_32_bits(self, e: Expr) -> str:
        """An integer of 64 bits, which has no more: a GPU computes with 64 in several steps."""
        if e.op == "const":
            return self.constant(e.args[0], "int32")
        name = Expr("in_32_bits", (e,), "int32")
        if name not in self.known:
            self.known[name] = self._named(e, self._new_in_32_bits(e))
        return self.known[name]

    def _new_in_32_bits(self, e: Expr) -> str:
        if e in self.known or not self.ranges.small(e) or e.op == "bounded":
            return f"({self.text(e)}).to(tl.int32)"
        if e.op == "index":
            if not e.args[0].terms:
                return self.constant(e.args[0].const, "int32")
            return f"({self.index(e.args[0])}).to(tl.int32)"
        if e.op == "cast":
            return f"({self.text(e.args[0])}).to(tl.int32)"
        if e.op == "where":
            texts = [self.text(e.args[0]), *map(self._in_32_bits, e.args[1:])]
        else:
            texts = [*map(self._in_32_bits, e.args)]
        return SCALARS[e.op].text("triton", "int32", *texts)

    def _all_small(self, values: Iterable[Expr]) -> bool:
        """Whether what these are computed of fits into 32 bits, and no loop keeps it in more."""
        return not self.wide and all(self.ranges.small(e) for e in values)

    def _alike(self, e: Expr) -> list[int]:
        """How many neighbours have the same value along each of a block's dimensions, or nothing
        if that is not known to be more than one."""
        plan, varying = self.plan, self.varying(e)
        if plan.y is not None or plan.stripe or plan.start is not None or not varying:
            return []
        if self.grouped:
            return []
        if self.kernel.product is not None:  # whose operands have the reduced points either way
            return []
        axes = plan.r if plan.r else plan.x
        if len(axes) < 2 or not known(axes[-1].extent) or "r" not in varying and plan.r:
            return []
        count = math.gcd(axes[-1].extent, ALIKE)
        if count == 1 or axes[-1] in self._moving(e):
            return []
        return [1, count] if plan.r else [count]

    def _moving(self, e: Expr) -> frozenset[Axis]:
        """The axes that a value changes with."""
        found = self._along.get(e)
        if found is None:
            places = [a for a in e.args if isinstance(a, Index)]
            if e.op in ("tile", "reduced", "running"):
                found = frozenset(self.kinds)
            else:
                steps = [p.axes() for p in places]
                found = frozenset().union(*steps, *map(self._moving, e.operands()))
            self._along[e] = found
        return found

    def constant(self, value: bool | int | float, dtype: str) -> str:
        kind = f"tl.{TRITON_TYPE[dtype]}"
        text = f"tl.full([], {literal(value)}, {kind})"
        if isinstance(value, float) and value == 0 and math.copysign(1.0, value) < 0:
            # A full block of anything that is zero is one of +0.
            bits = 64 if dtype == "float64" else 32
            text = f"tl.full([], {-(1 << bits - 1)}, tl.int{bits}).to({kind}, bitcast=True)"
        return self.constants.setdefault(text, f"c{len(self.constants)}")

    def _argument(self, name: str) -> str:
        return self.arguments.setdefault(name, f"s{len(self.arguments)}")

    def _decode(self, axes: tuple[Axis, ...], flat: str) -> None:
        """The values of several axes that were flattened into ``flat``."""
        if len(axes) == 1:
            self.axes[axes[0]] = flat
            return
        for run, whole in self.flattened:
            if run is axes:
                self.axes[whole] = flat
        rest = flat
        for place, axis in reversed(list(enumerate(axes))):
            name = self.axes[axis] = f"{flat}{place}"
            extent = self.number(axis.extent)
            self.line(f"{name} = {rest}" if place == 0 else f"{name} = {rest} % {extent}")
            if place:
                rest = f"({rest} // {extent})"

    # -- values ----------------------------------------------------------------------------------

    def _pointer(self, buffer: str, index: Index) -> str:
        return f"p{self.place[buffer]} + {self.index(index)}"

    def _place(self, buffer: str, index: Index, store: bool) -> tuple[str, str]:
        """The addresses of the points and, behind a comma, which of them are there, if not all."""
        return self._pointer(buffer, index), self._mask(self._kinds(index))

    def _kinds(self, index: Index) -> frozenset[str]:
        found = frozenset(self.kinds[a] for a in index.steady().axes() if a in self.kinds)
        return found.union(*(self.varying(value) for value in index.lookups()))

    def _mask(self, kinds: Iterable[str]) -> str:
        plan, parts = self.plan, []
        if self.masked and "x" in kinds:
            parts.append(self.masks["x"])
        if "y" in kinds and plan.y is not None and not divides(plan.y_block, plan.y.extent):
            parts.append(self.masks["y"])
        if "r" in kinds and self._some_outside():
            parts.append(self.masks["r"])
        return f", {' & '.join(parts)}" if parts else ""

    def varying(self, e: Expr) -> frozenset[str]:
        """Of ``x``, ``y`` and ``r``, what the value changes with."""
        found = self._varying.get(e)
        if found is None:
            if e.op in ("load", "word"):
                found = self._kinds(e.args[1])
            elif e.op == "guarded":
                found = self._kinds(e.args[1]) | self.varying(e.args[2])
            elif e.op == "index":
                found = self._kinds(e.args[0])
            elif e.op == "reduced":
                found = frozenset("x")
            elif e.op == "running":
                found = frozenset("xr")
            elif e.op == "tile":
                found = self._kinds(self._turned(e).index)
            else:
                found = _NOTHING.union(*(self.varying(a) for a in e.operands()))
            self._varying[e] = found
        return found

    def _turned(self, e: Expr) -> Transposed:
        return next(t for t in self.kernel.transposed if t.name == e.args[0])

    def text(self, e: Expr) -> str:
        known = self.known.get(e)
        if known is not None:
            return known
        if e.op == "const":
            return self.constant(e.args[0], e.dtype)
        if e.op == "argument":
            return f"{self._argument(e.args[0])}.to(tl.int64)"
        if e.op in ("reduced", "running"):
            return self.sums[e.args[0]]
        text = self.known[e] = self._named(e, self._new(e))
        return text

    def _named(self, e: Expr, text: str) -> str:
        """The text that gives ``e``, or the name of that where it is long or asked for again."""
        if text.isidentifier() or (self._uses.get(e, 0) <= 1 and len(text) <= 80):
            return text
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def _new(self, e: Expr) -> str:
        if e.op == "load":
            return self._load(e.args[0], e.args[1])
        if e.op == "guarded":
            return self._load_guarded(e)
        if e.op == "bounded":
            return self._bounded(e)
        if e.op == "tile":
            turned = self._turned(e)
            return self._load(turned.buffer, turned.index)
        if e.op == "index":
            text = self.index(e.args[0])
            if not self._kinds(e.args[0]) and not e.args[0].terms and known(e.args[0].const):
                return self.constant(e.args[0].const, "int64")
            return f"({text}).to(tl.int64)"
        if e.op in DRAWN:
            words = self._words(e)
            if words is not None and e.op == "philox":
                self.words[e] = words
                return f"{words}.to(tl.int64)"
            return words or f"m.{e.op}({', '.join(self.text(a) for a in e.args)})"
        if e.op == "where" and e.args[0] in self.assumed:
            taken = e.args[1 if self.assumed[e.args[0]] else 2]
            text = self.text(taken)
            if taken in self.words:
                self.words[e] = self.words[taken]
            return text
        if e.op == "truediv" and (factor := _exact_factor(e.args[1])) is not None:
            return f"({self.text(e.args[0])} * {self.constant(factor, e.dtype)})"
        if e.op == "truediv" and (factor := _near_factor(e)) is not None:
            divisor = self.constant(e.args[1].args[0], e.dtype)
            factor_text = self.constant(factor, e.dtype)
            return f"m.over_odd({self.text(e.args[0])}, {divisor}, {factor_text})"
        if e.op == "truediv" and self._shares_divisor(e):
            both = ", ".join(self._divisor(e.args[1]))
            return f"m.over_shared({self.text(e.args[0])}, {both})"
        if e.op == "where" and _is_read_as_nothing(e):
            return self.text(e.args[1])
        gate = self._gate(e) or self._slope(e) or self._one_of_two(e)
        if gate is not None:
            return gate
        logistic = beside_one(e, lambda power: self._uses.get(power, 0) <= 1)
        if logistic is not None and logistic[0] == LOG_ONE_AND_EXP:
            return f"m.{LOG_ONE_AND_EXP}({self.text(logistic[1])})"
        if e.op in COMPARISONS and self._all_small(e.args):
            texts = [self._in_32_bits(a) for a in e.args]
            return SCALARS[e.op].text("triton", "int32", *texts)
        if e.op == "cast" and e.dtype == "float32" and self._all_small(e.args):
            return f"{self._in_32_bits(e.args[0])}.to(tl.float32)"
        texts = [self.text(a) for a in e.args]
        if e.op == "cast":
            if e.args[0].dtype in REDUCED and e.dtype == "float32":
                return texts[0]  # it is one already
            if e.args[0] in self.words and e.dtype == "float32":
                return f"{self.words[e.args[0]]}.to(tl.float32)"  # from the 32 bits that it has
            text = cast_text("triton", e.args[0].dtype, e.dtype, texts[0])
            if e.dtype == "float8_e4m3fn":
                most = "0x7E" if saturates() else "0x7F"
                whole = self.plan.start is None and not self._mask(("x", "y", "r"))
                return f"{text.removesuffix(')')}, {most}, {whole})"
            return text
        # A selection's first operand is a bool; the computing dtype is that of the last.
        return SCALARS[e.op].text("triton", e.args[-1].dtype, *texts)

    def _shares_divisor(self, quotient: Expr) -> bool:
        """Whether all neighbours that a thread has are divided by one number."""
        if quotient.dtype != "float32" or self.plan.y is not None:
            return False
        dividend, divisor = (self.varying(a) for a in quotient.args)
        return self._side() in dividend - divisor

    def _side(self) -> str:
        """The points of which neighbours lie side by side."""
        return "x" if not self.plan.r or keeps_lanes(self.kernel) else "r"

    def _divisor(self, divisor: Expr) -> tuple[str, str]:
        """A divisor that is shared, and its inverse."""
        inverse = Expr("inverse", (divisor,), "float32")
        if inverse not in self.known:
            if not self.text(divisor).isidentifier():
                name = self.fresh()
                self.line(f"{name} = {self.known[divisor]}")
                self.known[divisor] = name
            name = self.known[inverse] = self.fresh()
            self.line(f"{name} = m.inverse_of({self.text(divisor)})")
        return self.text(divisor), self.known[inverse]

    def _gate(self, e: Expr) -> str | None:
        """One and a function that reaches from -1 to 1, computed together."""
        if e.op != "add" or e.dtype != "float32":
            return None
        for one, other in (e.args, e.args[::-1]):
            alone = self._uses.get(other, 0) == 1 or e in self._slopes.values()
            alone = alone and other not in self.known
            if one.op == "const" and one.args[0] == 1 and other.op in GATES and alone:
                return f"m.{other.op}_and_one({self.text(other.args[0])})"
        return None

    def _slope(self, e: Expr) -> str | None:
        """1 - tanh(x)**2 as the product of 1 + tanh(x) and of what that lacks to 2."""
        gate = self._slopes.get(e)
        if gate is None:
            return None
        text = self.text(gate)
        return f"({text} * (2.0 - {text}))"

    def _find_slopes(self) -> None:
        """Where nothing but 1 + tanh(x) and 1 - tanh(x)**2 has a tanh, as in a gelu's gradient."""
        for e in [e for e in self._uses if e.op == "tanh" and e.dtype == "float32"]:
            square = Expr("mul", (e, e), "float32")
            slope = Expr("sub", (ONE, square), "float32")
            sums = [Expr("add", both, "float32") for both in ((ONE, e), (e, ONE))]
            gates = [gate for gate in sums if gate in self._uses]
            alone = self._uses[e] == 3 and self._uses.get(square) == 1
            if alone and len(gates) == 1 and slope in self._uses:
                self._slopes[slope] = gates[0]
                self._uses[gates[0]] += 1

    def _one_of_two(self, e: Expr) -> str | None:
        """A sine or a cosine beside the other one, both of which are known then."""
        if e.op not in PAIR or e.dtype != "float32":
            return None
        both = [Expr(op, e.args, e.dtype) for op in PAIR]
        if not all(one in self._uses for one in both):
            return None
        names = [self.fresh() for _ in PAIR]
        self.line(f"{', '.join(names)} = m.sine_and_cosine({self.text(e.args[0])})")
        self.known |= dict(zip(both, names))
        return self.known[e]

    def _load(self, buffer: str, index: Index) -> str:
        held = self.stored.get((buffer, index))
        if held is not None:
            return held
        along = self._in_groups(index)
        if along is None:
            return self._load_part(buffer, index) or self._load_from(buffer, index)
        before = self.axes, self.masks
        self._first_ones(along)
        text = self._load_from(buffer, index)
        self.axes, self.masks = before
        return f"m.spread({text}, {self._vector_points()}, {int(along == 'r')})"

    def _load_part(self, buffer: str, index: Index) -> str | None:
        """An element of a word that neighbours read side by side, if they do (strided.py)."""
        plan, dtype = self.plan, self.dtype[buffer]
        axes = plan.x if self._side() == "x" else plan.r
        if not self.aligned or self.grouped or not axes or dtype in ("bool", "float64", "int64"):
            return None
        if plan.y is not None or plan.start is not None or plan.sized or buffer in self.written:
            return None
        part = part_of(index, axes[-1], itemsize(dtype))
        if part is None:
            return None
        name = Expr("word", (buffer, part.word), f"int{part.bits}")
        if name not in self.known:
            self.known[name] = self.fresh()
            kind = f"tl.pointer_type(tl.uint{part.bits})"
            place = f"p{self.place[buffer]}.to({kind}) + ({self.index(part.word)})"
            mask = self._mask(self._kinds(index))
            self.line(f"{self.known[name]} = tl.load({place}{mask}{self._kept(buffer, index)})")
        of = f"{self.known[name]}, {self.index(part.place)}, p{self.place[buffer]}"
        text = f"m.part({of})"
        return f"{text}.to(tl.float32)" if dtype in REDUCED else text

    def _load_from(self, buffer: str, index: Index) -> str:
        pointer, mask = self._place(buffer, index, store=False)
        text = f"tl.load({pointer}{mask}{self._kept(buffer, index)})"
        return f"{text}.to(tl.float32)" if self.dtype[buffer] in REDUCED else text

    def _vector_points(self) -> int:
        """Neighbours that a thread has of a buffer with the smallest elements."""
        return VECTOR // min(itemsize(dtype) for dtype in self.dtype.values())

    def _in_groups(self, index: Index) -> str | None:
        """Whether all neighbours that a thread has read one element: along ``x``, or ``r``.

        Triton would have it read once for each of them.
        """
        plan, kernel = self.plan, self.kernel
        if plan.y is not None or plan.stripe or plan.start is not None or index.lookups():
            return None
        if kernel.product is not None or self.grouped:
            return None
        along = self._side()
        axes, block = (plan.x, plan.x_block) if along == "x" else (plan.r, plan.r_block)
        if not self._kinds(index) >= ({"x", "r"} if plan.r and along == "x" else {along}):
            return None  # a column of the block, which is small
        group = self._vector_points()
        return along if 1 < group <= block and one_for_all(index, axes, group) else None

    def _first_ones(self, along: str) -> None:
        """Let axes be named as they are at the first point of each of these groups."""
        plan, group = self.plan, self._vector_points()
        told = Expr("first_ones", (along,), "int64")
        axes, block = (plan.x, plan.x_block) if along == "x" else (plan.r, plan.r_block)
        name = self.known.get(told)
        if name is None:
            name = self.known[told] = f"{self.fresh()}_"
            shape = "" if not plan.r else "[:, None]" if along == "x" else "[None, :]"
            lanes = f"{self.lanes(block // group)} * {group}"
            self.line(f"{name} = ({self.first[along]} + {lanes}){shape}")
            if self.masked if along == "x" else self._some_outside():
                points = plan.x_points if along == "x" else plan.r_points
                self.line(f"{name}in = {name} < {self.number(points)}")
            self.axes = dict(self.axes)
            self._decode(axes, name)
            self.named[name] = self.axes
        self.axes = {**self.axes, **{a: self.named[name][a] for a in self._all_of(axes)}}
        self.masks = {**self.masks, along: f"{name}in"}

    def _all_of(self, axes: tuple[Axis, ...]) -> list[Axis]:
        """These, and what they are together."""
        return [*axes, *(flat for run, flat in self.flattened if run is axes)]

    def _kept(self, buffer: str, index: Index | None) -> str:
        """What a cache is told of an element: it is read again, or was, and will not be.

        Only where a program goes through its row more than once, or programs read some elements
        more often than once: what they store then, of which ``index`` is None, would take the place
        of these.
        """
        if (buffer, index) in self.later or (index is not None and popular(index)):
            return ', eviction_policy="evict_last"'
        if index is None and self.popular:
            return ', eviction_policy="evict_first"'
        last = bool(self.again) if index is None else (buffer, index) in self.again
        return ', eviction_policy="evict_first"' if last else ""

    def _load_guarded(self, e: Expr) -> str:
        buffer, index, guard = e.args
        condition, plain = self.text(guard), self.known.get(self._plain(e))
        if plain is not None:  # to wait for the condition would take as long as a load
            dtype = "float32" if e.dtype in REDUCED else e.dtype
            nothing = self.constant(0.0 if is_float(dtype) else dtype != "bool" and 0, dtype)
            return f"tl.where({condition}, {plain}, {nothing})"
        pointer = self._pointer(buffer, index)
        if not self.varying(guard) <= self._kinds(index):  # an address for each condition
            pointer += f" + ({condition}).to(tl.int32) * 0"
        mask = self._mask(self.varying(e)).removeprefix(", ")
        both = f"{condition} & {mask}" if mask else condition
        dtype = self.dtype[buffer]
        text = f"tl.load({pointer}, {both}, other=0)"
        return f"{text}.to(tl.float32)" if dtype in REDUCED else text

    def _bounded(self, e: Expr) -> str:
        """A position that is data, and an assertion about the points that exist."""
        value, bounds, *guard = e.args
        name, inside = self.fresh(), self.fresh()
        text = self.text(value)
        extent = self.number(bounds.extent)
        if bounds.wraps:
            text = f"tl.where({text} < 0, {text} + {extent}, {text})"
        self.line(f"{name} = {text}")
        self.line(f"{inside} = ({name} >= 0) & ({name} < {extent})")
        asked = [self.text(g) for g in guard]
        asked += [part for part in (self._mask(self.varying(e)).removeprefix(", "),) if part]
        unasked = "".join(f" | (({part}) == 0)" for part in asked)
        message = bounds.message.replace("{value}", "(a value)")
        size = str(bounds.extent) if known(bounds.extent) else "(a size)"
        message = message.replace("{extent}", size)
        self.line(f"tl.device_assert({inside}{unasked}, {message!r})")
        return f"tl.where({inside}, {name}, 0)"

    def _hoist(self, values: Iterable[Expr]) -> None:
        """Compute before a loop what does not change in it."""
        seen: set[Expr] = set()
        stack = list(values)
        while stack:
            e = stack.pop()
            if e in seen or e.op == "const":
                continue
            seen.add(e)
            if "r" in self.varying(e):
                stack.extend(e.operands())
                if e.op == "truediv" and self._shares_divisor(e) and not _by_factor(e):
                    self._divisor(e.args[1])
            elif not self.text(e).isidentifier():
                name = self.fresh()
                self.line(f"{name} = {self.known[e]}")
                self.known[e] = name

    @staticmethod
    def _plain(e: Expr) -> Expr:
        """The element that is read on a condition, read without one."""
        return Expr("load", e.args[:2], e.dtype)

    def _values(self) -> list[Expr]:
        """What is computed."""
        return [s.value for stage in self.kernel.stages for s in stage.statements]

    def _count_uses(self) -> None:
        seen: set[Expr] = set()
        statements = [s for stage in self.kernel.stages for s in stage.statements]
        stack = self._values()
        stack += [e for s in statements if isinstance(s, Store) for e in s.index.lookups()]
        for e in stack:
            self._uses[e] = self._uses.get(e, 0) + 1
        while stack:
            e = stack.pop()
            if e not in seen:
                seen.add(e)
                for a in e.operands():
                    self._uses[a] = self._uses.get(a, 0) + 1
                    stack.append(a)
                if e.op == "guarded":
                    plain = self._plain(e)
                    self._uses[plain] = self._uses.get(plain, 0) + 1
        self._find_slopes()

    def _words(self, e: Expr) -> str | None:
        """The words of a draw, of 32 bits, computed four at a time where that can be done."""
        plan = self.plan
        if plan.r or plan.y is not None or plan.x_block < WORDS:
            return None
        if e in self.apart:
            return self.apart[e][self.part]
        draw = shared(e, plan.x, plan.stripe)
        if draw is None:
            return None
        names: tuple[str, ...]
        block = plan.piece
        if plan.stripe:
            block //= WORDS
            names = "stripe", f"(first + {self.lanes(block)} * {WORDS})"
        else:
            names = (f"(program * {block} + {self.lanes(block)})",)
        self.axes |= dict(zip(draw.axes, names))
        self.kinds |= dict.fromkeys(draw.axes, "x")
        first = self.index(draw.index)
        if not draw.index.terms:  # one number for all of them
            first = f"tl.full([{block}], {first}, tl.int32)"
        given = ", ".join((self.text(draw.seed), self.text(draw.counter), first))
        if plan.stripe:
            four = self.apart[e] = [self.fresh() for _ in range(WORDS)]
            step = draw.index.coefficient(draw.axes[1])
            self.line(f"{', '.join(four)} = m.{e.op}_apart({given}, {step})")
            return four[self.part]
        name = self.fresh()
        self.line(f"{name} = m.{e.op}_side_by_side({given})")
        return name

    def _some_outside(self) -> bool:
        """Whether reduced points of a block may lie outside."""
        return not (self.whole or divides(self.plan.r_block, self.plan.r_points))


def _exact_factor(divisor: Expr) -> float | None:
    """By what to multiply in place of dividing by a power of two: the same numbers, for less."""
    if divisor.op != "const" or not is_float(divisor.dtype):
        return None
    part, power = math.frexp(divisor.args[0])
    return 1 / divisor.args[0] if abs(part) == 0.5 and abs(power) < 100 else None


def _by_factor(quotient: Expr) -> bool:
    """Whether it is a product with a constant."""
    return _exact_factor(quotient.args[1]) is not None or _near_factor(quotient) is not None


def _near_factor(quotient: Expr) -> float | None:
    """The number next to the inverse of an odd whole divisor of float32."""
    divisor = quotient.args[1]
    if quotient.dtype != "float32" or divisor.op != "const":
        return None
    number = divisor.args[0]
    if not 1 < number < MOST_ODD or number % 2 != 1:
        return None
    return float(struct.unpack("f", struct.pack("f", 1 / number))[0])


def _is_read_as_nothing(selection: Expr) -> bool:
    """Whether 0 is selected where an element is not read, as which it is 0 already."""
    condition, read, other = selection.args
    if read.op == "cast" and is_float(read.dtype):
        read = read.args[0]
    if read.op != "guarded" or read.args[2] != condition or other.op != "const":
        return False
    return other.args[0] == 0 and math.copysign(1, other.args[0]) == 1


def literal(value: bool | int | float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
