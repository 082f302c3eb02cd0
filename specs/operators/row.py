"""The form of an operator row: one ATen overload, its types, lowering, inputs and tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specs import dtypes, shapes, strides
from specs.dtypes import Computation, TensorType
from specs.strides import Strides
from specs.table import Table

TENSOR_KINDS = ("tensor", "tensors", "operand", "index", "mask", "indices")


@dataclass(frozen=True)
class Arg:
    """One argument: how a valid value is drawn, and its part in promotion.

    ``name`` is the schema's. ``kind`` is one of

    - ``tensor``; ``tensors`` (a list of one to four); ``operand`` (a tensor or a Python number);
      ``mask`` (a bool tensor); ``index`` (an int64 tensor of positions into the first tensor along
      the argument ``dim``, else along dimension 0); ``indices`` (a list, one entry per leading
      dimension, of ``None`` or an int64 tensor of positions in it; the tensors broadcast);
    - ``scalar`` (a Python bool, int or float that the first tensor's dtype holds, a float only for
      floating tensors unless the argument ``promotes``), ``int``, ``float``, ``bool``;
    - ``dim`` (one dimension of the first tensor, negative ones too), ``new_dim`` (a place for a new
      one), ``dims`` (a list of distinct ones; empty means all), ``permutation`` (all of them);
    - ``ints``, ``shape`` (see ``relation``; without one a valid target of the operator: ``view``,
      ``expand``, ``normalized_shape``), ``sizes`` (any shape), ``dtype`` (a dtype's name),
      ``choice`` (one of ``values``).

    ``relation`` ties the argument to the others. For tensors: ``free``; ``broadcast`` (with the
    earlier tensors); ``same`` (the first tensor's shape); ``matmul`` (multiplies the tensor before
    it), ``addmm`` (broadcastable to the product of the two after it), ``kernel`` (a convolution's
    weight: of the input's rank, its channels times ``groups`` the input's, or first if
    transposed), ``channels`` (1-d, the first tensor's dimension 1; for a convolution's bias the
    output's), ``normalized`` (of shape ``normalized_shape``), ``last`` (2-d, the trailing dimension
    agrees), ``features`` (1-d, the weight's first dimension), ``cat`` (agree but for ``dim``),
    ``attention`` (query, key, value of one batch; a mask of (L, S)), ``gather`` (an index of the
    first tensor's rank, no longer than it but along ``dim``), ``unique`` (the same, distinct along
    ``dim``), ``selected`` (of the shape of ``index``), ``rows`` (the first tensor's shape with
    ``dim`` as long as ``index``). For numbers: ``length`` (a position in dimension ``dim`` or just
    beyond either end), ``position`` (a valid one), ``count`` (1 up to the length of the dimension,
    1 for a 0-dim tensor), ``divisor`` (divides dimension 1; at most what ``values`` says),
    ``length_of_0``, ``length_of_1``, ``length_of_rest`` (of the first tensor). For ``ints``:
    ``partition`` (adds up to the length of ``dim``), ``per_dim`` (as many as ``dims``), ``padding``
    (pairs, at most one per dimension), ``repeats`` (at least one per dimension), ``spatial`` (one
    per dimension after the second).

    ``values``: for a ``choice`` and for ``shape``-like arguments the values to draw from, for
    numbers (low, high) inclusive, for floating tensors the (low, high) outside which the operator
    has no value or no tolerance holds. Integer tensors are clipped to it too. Empty: everything.
    ``least``: the same for magnitudes: no floating element is smaller, but for zeros.

    ``promotes``: takes part in type promotion, so the lowering sees it as an expression; tensors
    that do not (a mask) are expressions in a dtype of their own, and other arguments are plain
    Python values in the lowering. ``default`` is the value when left out (``optional``).
    ``min_rank``, ``max_rank`` bound a tensor's rank. ``nonzero``: no element may be zero if the
    computing dtype is an integer (eager raises). Not ``reached``: ``call`` does not have it, only
    the overload does. ``nonempty``: no dimension of length 0; ``min_length``: none shorter.
    ``contiguous``: eager reads it as if it were, whatever its strides, or rejects it if it is not.
    Not ``nan``: eager has no one value for it, but one in vectors and one in what they leave over.
    """

    name: str
    kind: str = "tensor"
    relation: str = "free"
    values: tuple[Any, ...] = ()
    keyword: bool = False  # passed by name
    optional: bool = False  # may be left out
    default: Any = None
    promotes: bool = False
    nonzero: bool = False
    least: float = 0.0
    contiguous: bool = False
    nan: bool = True
    reached: bool = True
    nonempty: bool = False
    min_length: int = 0
    min_rank: int = 0
    max_rank: int = 4


@dataclass(frozen=True)
class Operator:
    """One ATen operator.

    ``name`` is the overload's name, ``aten.add.Tensor``; ``call`` the dotted path of a callable
    that reaches it, ``torch.add`` (arguments in the order of ``args``, those with ``keyword`` by
    name). ``kind``: ``pointwise``, ``reduction``, ``scan``, ``view``, ``copy`` (moves elements:
    ``cat``, ``flip``), ``cast``, ``factory``, ``contraction``, ``gather``, ``scatter``, ``sort``,
    ``normalisation``, ``pooling``.

    ``dtypes`` are the dtypes that its (first) tensor may have, ``dtype_rule`` and ``shape_rule``
    names in :data:`specs.dtypes.DTYPE_RULES` and :data:`specs.shapes.SHAPE_RULES`; :meth:`infer`
    applies both.

    ``lowering`` of a ``pointwise`` or ``cast`` operator is a Python expression, to be evaluated
    once per graph node with these names:

    - every name in :data:`specs.scalars.SCALARS`, as a function on expressions;
    - the arguments by the schema's name: promoting ones as expressions already in the computing
      dtype (cast first to the ``common`` dtype, Python numbers to ``scalars``: see
      :class:`specs.dtypes.Computation`), other tensors as expressions of their own dtype, all else
      as plain Python values (``None`` where left out);
    - ``const(v)``: a Python number in the computing dtype; ``rounded(v)``: the same, rounded to
      the ``common`` dtype first; ``cast(x, dtype)``: a conversion; ``dtype``: the computing
      dtype's name; ``common``, ``result``: the other two; ``largest``: the largest finite number
      of ``result``; ``plain[name]``: a promoting argument as it was passed; ``is_number(v)``,
      ``is_tensor(v)``: whether that is one (a size that calls choose is neither); ``math``: the
      module; ``nonzero(x)``: the same, but an element of an integer dtype that is zero raises
      eager's ``ZeroDivisionError`` on the CPU (CUDA's kernels give what they give).

    ``if``/``else`` in it decides on plain Python values only. Its value is cast to the ``result``
    dtype by whoever evaluates it. It holds where ``when``, an expression over the plain arguments,
    ``is_float(dtype)``, ``is_int(dtype)``, ``dtype``, ``result``, ``is_number(arg)``,
    ``is_whole(arg)`` (whether it is an integer), ``is_bool(arg)``, ``fits(arg)`` (see
    :func:`specs.dtypes.fits`) and ``same_power(arg)`` (see :func:`specs.dtypes.same_power`), is
    true (empty: always), and where every number that does not promote fits; otherwise ATen is
    called, which raises what eager raises. For the other kinds ``lowering`` names a rule of the
    loop IR (``reduce:sum``, ``view:permute``). ``None``: ATen is called, and
    ``reasons["lowering"]`` says why. ``cuda`` is the lowering where
    CUDA's kernels give other values than the CPU's (``None``: they do not), ``cuda_when`` where
    that holds beyond ``when``; ``not_on_cuda`` are dtypes that these reject.

    ``laid_by``: the tensors whose layouts decide that of the result (by
    :func:`specs.strides.elementwise`), in that order; ``None``: every tensor, in the order of the
    arguments. It is for ``pointwise`` operators, but for those that are not
    ``elementwise_strides``, which copy operands first or have a rule of their own.

    ``tolerance``: per dtype of the result, ULP of the result against the exact value (computed
    from the same rounded inputs). For reductions, scans, normalisations and contractions it is ULP
    of the sum of the terms' magnitudes, and where a pointwise operator ``cancels`` (its result can
    be much smaller than its terms, and eager may fuse a product into a sum) of the largest of them.
    No entry means equality, which for exact operations (views,
    comparisons, integers) is the whole truth.

    ``strict``, an expression like ``when``: where the lowering gives eager's bits, if each of its
    operations is exact or correctly rounded, and no product is added (empty: always). Elsewhere
    ``reasons["strict"]`` says why not; see :meth:`other_bits`.
    """

    name: str
    call: str
    kind: str
    args: tuple[Arg, ...]
    dtypes: frozenset[str]
    dtype_rule: str
    shape_rule: str
    lowering: str | None
    cuda: str | None = None
    cuda_when: str = ""
    not_on_cuda: frozenset[str] = frozenset()
    when: str = ""
    strict: str = ""
    tolerance: Mapping[str, float] = field(default_factory=dict)
    cancels: bool = False
    laid_by: tuple[str, ...] | None = None
    elementwise_strides: bool = True
    reasons: Mapping[str, str] = field(default_factory=dict)
    doc: str = ""

    def arg(self, name: str) -> Arg:
        """The argument of that name, or ``KeyError``."""
        for arg in self.args:
            if arg.name == name:
                return arg
        raise KeyError(f"{self.name} has no argument {name!r}")

    def complete(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """``args`` with the defaults of what was left out."""
        unknown = set(args) - {arg.name for arg in self.args}
        if unknown:
            raise TypeError(f"{self.name} has no argument {sorted(unknown)[0]!r}")
        return {arg.name: args.get(arg.name, arg.default) for arg in self.args}

    def computation(self, args: Mapping[str, Any]) -> Computation:
        """In which dtypes it computes; tensors in ``args`` are :class:`TensorType`, or have
        ``dtype`` (by name) and ``shape``. Raises ``TypeError`` where eager rejects the dtypes."""
        full = self.complete(args)
        operands: list[Any] = []
        for arg in self.args:
            value = full[arg.name]
            if arg.promotes and value is not None:
                operands.extend(value if isinstance(value, (list, tuple)) else [value])
        return dtypes.DTYPE_RULES[self.dtype_rule](operands, full)

    def infer(self, args: Mapping[str, Any]) -> tuple[TensorType, ...]:
        """The types of the outputs. Raises ``TypeError`` or ``ValueError`` for bad arguments."""
        full = self.complete(args)
        computation = self.computation(full)
        found = shapes.SHAPE_RULES[self.shape_rule](full)
        names = (computation.result, *computation.further)
        names += (computation.result,) * (len(found) - len(names))
        if not found:  # a list of pieces may be empty
            return ()
        return tuple(TensorType(d, s) for d, s in zip(names, found, strict=True))

    def strides(self, shape: Sequence[int], args: Mapping[str, Any]) -> Strides | None:
        """Strides of a result of ``shape``; ``None`` where no rule is written down.

        Tensors in ``args`` have ``shape`` and ``stride()``. A number in the place of ``other`` is
        an operand without dimensions, as which eager passes it on. Tensors with a ``dtype`` that
        is not the ``common`` one are copied first on a CPU, which makes them dense.
        """
        if self.kind != "pointwise" or not self.elementwise_strides:
            return None
        if self.name in strides.CONTIGUOUS_OF_COMPLEX and _is_complex(args.get("self")):
            return strides.contiguous(shape)
        like = self.made_like(args)
        if like is not None:
            return strides.like(like.shape, like.stride())
        names = [a.name for a in self.args] if self.laid_by is None else self.laid_by
        operands: list[Any] = []
        for name in names:
            value: Any = args.get(name)
            if hasattr(value, "stride"):
                operands.append((value.shape, self._as_cast(value, args)))
            elif name == "other" and value is not None:
                operands.append(((), ()))
        return strides.elementwise(shape, operands)

    def made_like(self, args: Mapping[str, Any]) -> Any:
        """The tensor that eager makes an empty one like, which it fills; ``None`` where the result
        is allocated as that of an elementwise operator."""
        given: Any = args.get("self")
        if self.name in strides.MADE_LIKE:
            return given
        if self.name in strides.MADE_LIKE_INTS and hasattr(given, "dtype"):
            return None if dtypes.is_float(_name_of(given.dtype)) else given
        return None

    def _as_cast(self, tensor: Any, args: Mapping[str, Any]) -> Sequence[int]:
        """The strides that ``tensor`` has as an operand. On other devices kernels cast."""
        steps: Sequence[int] = tensor.stride()
        if not hasattr(tensor, "dtype") or strides.is_dense(tensor.shape, steps):
            return steps
        if getattr(getattr(tensor, "device", None), "type", "cpu") != "cpu":
            return steps
        typed = {
            name: TensorType(_name_of(v.dtype), tuple(v.shape)) if hasattr(v, "stride") else v
            for name, v in args.items()
        }
        known = {arg.name for arg in self.args if arg.promotes}
        try:
            common = self.computation({n: v for n, v in typed.items() if n in known}).common
        except (TypeError, KeyError):  # no dtype of the row's, or complex
            return steps
        if _name_of(tensor.dtype) == common:
            return steps
        return strides.elementwise(tensor.shape, [(tensor.shape, steps)])

    def other_bits(self, args: Mapping[str, Any]) -> str:
        """Why the lowering need not give eager's bits for these arguments, though each of its
        operations is exact or correctly rounded; "" where it does."""
        if self.strict and not self._holds(self.strict, args):
            return self.reasons["strict"]
        return ""

    def lowering_on(self, device: str) -> str:
        """The text of ``lowering`` for a type of device; empty where there is none."""
        return (self.cuda if device == "cuda" else None) or self.lowering or ""

    def lowers(self, args: Mapping[str, Any], device: str = "cpu") -> bool:
        """Whether the lowering for a type of device holds for these arguments (see ``when``)."""
        if self.lowering is None:
            return False
        if device == "cuda" and self.cuda_when and not self._holds(self.cuda_when, args):
            return False
        full = self.complete(args)
        numbers = [a.name for a in self.args if a.kind in ("scalar", "float") and not a.promotes]
        if not self.when and not numbers:
            return True
        computation = self.computation(args)

        def fits(value: Any) -> bool:
            return dtypes.fits(value, computation.common)

        if not all(fits(full[name]) for name in numbers):
            return False
        return not self.when or self._holds(self.when, args)

    def _holds(self, condition: str, args: Mapping[str, Any]) -> bool:
        """What ``when`` or ``strict`` says of these arguments."""
        computation = self.computation(args)
        names = {
            **self.complete(args),
            "fits": lambda value: dtypes.fits(value, computation.common),
            "same_power": lambda value: dtypes.same_power(value, computation.common),
            "dtype": computation.compute,
            "result": computation.result,
            "is_float": dtypes.is_float,
            "is_int": dtypes.is_int,
            "is_whole": lambda value: isinstance(value, int),
            "is_bool": lambda value: isinstance(value, bool),
            "is_number": lambda value: isinstance(value, bool | int | float | complex),
        }
        return bool(eval(condition, {"__builtins__": {}}, names))


OPERATORS: Table[Operator] = Table("ATen operators")


def _is_complex(tensor: Any) -> bool:
    return dtypes.is_complex(_name_of(getattr(tensor, "dtype", "")))


def _name_of(dtype: Any) -> str:
    """The name of a dtype that is one of torch's or a name."""
    return str(dtype).rpartition(".")[2]
