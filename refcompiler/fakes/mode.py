"""Fake tensors that lie in memory as eager's tensors do.

Torch's own fake tensors get some strides wrong (operators whose stand-in is a composition of
others) and let some views pass that eager rejects. Python code that looks at a tensor's strides
while it is captured, and a compiler that allocates results, need eager's answer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.utils import registered_hop_fake_fns
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import CONSTANT_NUMEL_LIMIT, FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch

from refcompiler.fakes.complex_views import is_of_pairs, of_pairs
from refcompiler.fakes.fused import FUSED, fake_fused
from refcompiler.fakes.grouped import GROUPED, fake_grouped
from refcompiler.fakes.inplace import gives_its_first
from refcompiler.fakes.overlap import count_writes, refuse_cast, refuse_overlap, writes
from refcompiler.fakes.quiet import QuietFakeMode
from refcompiler.fakes.results import ask, blank, keep, recall, remember
from refcompiler.fakes.rules import by_rule
from refcompiler.fakes.symbolic import by_symbolic_rule
from refcompiler.fakes.symbolic_sizes import same
from refcompiler.shapes.composites import python_composites
from specs import strides
from specs.operators import OPERATORS, Operator

_VIEW = torch.ops.aten.view.default
_PAD = torch.ops.aten.constant_pad_nd.default
_LIFT = torch.ops.aten.lift_fresh.default
_DEVICE = torch.ops.prim.device.default
# Their result is new memory: channels last if the input is, else contiguous.
_BATCH_NORMS = frozenset(
    {
        "aten.native_batch_norm.default",
        "aten._native_batch_norm_legit.default",
        "aten._native_batch_norm_legit.no_stats",
        "aten._native_batch_norm_legit_functional.default",
        "aten._native_batch_norm_legit_no_training.default",
        "aten._batch_norm_no_update.default",
        "aten._batch_norm_with_update.default",
        "aten._batch_norm_with_update_functional.default",
    }
)
# How the gradient of what a norm has normalised lies on a CPU.
_GROUP_NORM_BACKWARD = "aten.native_group_norm_backward.default"
_GRADIENTS_OF_NORMS: dict[str, Callable[..., strides.Strides]] = {
    "aten.native_batch_norm_backward.default": strides.batch_norm_backward,
    _GROUP_NORM_BACKWARD: lambda size, steps, grad: strides.as_suggested(size, steps),
}

# Products, and where their factors are, which torch's stand-ins let be of different dtypes, and of
# integers where a device's library has no kernel for them.
_PRODUCTS = {
    torch.ops.aten.mm.default: (0, 1),
    torch.ops.aten.bmm.default: (0, 1),
    torch.ops.aten.mv.default: (0, 1),
    torch.ops.aten.dot.default: (0, 1),
    torch.ops.aten.addmm.default: (1, 2),
    torch.ops.aten.baddbmm.default: (1, 2),
    torch.ops.aten.addmv.default: (1, 2),
}

# Contiguous whatever the operands are.
_CONTIGUOUS = frozenset(
    {
        "aten._log_softmax_backward_data.default",
        "aten._standard_gamma.default",
        "aten.isin.Tensor_Tensor",
        "aten.normal.Tensor_Tensor",
        "aten.normal.Tensor_float",
        "aten.normal.float_Tensor",
        "aten.poisson.default",
        "aten.pow.Scalar",
        "aten.rrelu_with_noise.default",
    }
)

# What :func:`specs.strides.of_result` lays; other libraries than MKL have transforms contiguous.
_OF_THE_CPU = strides.OF_THE_CPU
if torch.backends.mkl.is_available():
    _OF_THE_CPU |= strides.TRANSFORMS

# Made like the first operand, unless they are asked to lie otherwise.
_MADE_LIKE = frozenset(
    f"aten.{kind}_like.default" for kind in ("empty", "full", "ones", "rand", "randn", "zeros")
)

# What takes a place along a dimension, and where these are among its arguments: torch's stand-ins
# do not ask whether it is there.
_PLACED = {torch.ops.aten.select.int: (1, 2), torch.ops.aten.select_scatter.default: (2, 3)}

_PRESERVING = (None, torch.preserve_format)

# What makes a tensor of the numbers that a generator draws, and the same without one: only those
# take symbolic sizes.
_WITHOUT_GENERATOR = {
    torch.ops.aten.rand.generator: torch.ops.aten.rand.default,
    torch.ops.aten.randn.generator: torch.ops.aten.randn.default,
    torch.ops.aten.randint.generator: torch.ops.aten.randint.default,
    torch.ops.aten.randint.low_generator: torch.ops.aten.randint.low,
    torch.ops.aten.randperm.generator: torch.ops.aten.randperm.default,
}

# New memory of the first operand's size, where torch has no stand-in, or 2.11 has none.
_NEW = frozenset(
    {
        torch.ops.aten._sample_dirichlet.default,
        torch.ops.aten._dirichlet_grad.default,
        torch.ops.aten._standard_gamma.default,
    }
)

# A copy of the first operand with something put into it, which lies as that, unless elements of
# that share memory: torch's stand-ins up to 2.12 do not ask.
_COPYING = frozenset(
    {
        torch.ops.aten.slice_scatter.default,
        torch.ops.aten.select_scatter.default,
        torch.ops.aten.diagonal_scatter.default,
        torch.ops.aten.as_strided_scatter.default,
    }
)

# Laid as the first operand alone.
_LIKE_THE_FIRST = frozenset({"aten.binary_cross_entropy.default"})


class EagerFakeMode(QuietFakeMode):
    """A ``FakeTensorMode`` with eager's strides, views and refusals (sizes that are numbers)."""

    # An operator over graphs finds its rule by the very class of a mode, unless the mode asks.
    supports_higher_order_operators = True

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.symbolic_results: dict[tuple, Any] = {}  # of operators, in this capture
        self.blanks: dict[torch.device, dict[str, Any]] = {}  # attributes of a new fake
        self.converted: list[tuple[torch.Tensor, FakeTensor]] = []  # that torch does not know of
        self.storages: set[int] = set()  # of all that were converted
        self.random = False  # an operator has drawn random numbers

    def fake_of(self, tensor: torch.Tensor) -> Any:
        """As :meth:`from_tensor`, quickly where a tensor is a leaf that has its memory for itself.

        Torch functions are disabled by the caller.
        """
        storage = tensor.untyped_storage()
        alone = _stands_alone(tensor) and storage._cdata not in self.storages
        self.storages.add(storage._cdata)
        if alone:
            with torch._C._DisableTorchDispatch():
                meta = torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"
                )
                alone = meta.untyped_storage().nbytes() == storage.nbytes()
        if not alone:
            self._teach()
            if is_of_pairs(tensor):
                with torch._C.DisableTorchFunction():
                    base = self.from_tensor(tensor._base, static_shapes=True)
                with self, torch._C.DisableTorchFunction():
                    fake = of_pairs(tensor, base)
                self._teach_one(tensor, fake)
            return self.from_tensor(tensor, static_shapes=True)
        with torch._C._DisableTorchDispatch():
            fake = blank(self, meta, tensor.device, tensor.requires_grad)
        if type(tensor) is torch.nn.Parameter:
            fake._is_param = True
        self.converted.append((tensor, fake))
        return fake

    def _lifted(self, tensor: torch.Tensor) -> Any:
        """The fake of a tensor that the program makes of numbers; None where torch has to say.

        Of at most one element it is a constant, whose value torch knows.
        """
        if type(tensor) is not torch.Tensor or tensor.device.type != "cpu":
            return None
        if not tensor.is_contiguous() or not _stands_alone(tensor):
            return None
        constant = None
        with no_dispatch():
            if tensor.numel() <= CONSTANT_NUMEL_LIMIT:
                tensor = constant = tensor.clone()
            meta = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"
            )
        fake = blank(self, meta, tensor.device, tensor.requires_grad)
        if constant is not None:
            fake.constant = constant
            self.fake_tensor_converter.add_constant_storage_mapping(fake)
        self._teach_one(tensor, fake)
        return fake

    def learn(self, *tensors: torch.Tensor) -> None:
        """The tensors are parts of one that torch's converter takes apart."""
        self._teach()
        for tensor in tensors:
            self.storages.add(tensor.untyped_storage()._cdata)

    def _teach(self) -> None:
        """Torch's converter, which keeps views and shared memory, learns what it has not seen."""
        for tensor, fake in self.converted:
            self._teach_one(tensor, fake)
        self.converted.clear()

    def _teach_one(self, tensor: torch.Tensor, fake: FakeTensor) -> None:
        converter = self.fake_tensor_converter
        memory = converter.meta_converter
        converter.set_tensor_memo(tensor, fake)
        number = memory.describer.get_storage_id(tensor.untyped_storage())
        memory.storage_memo[number] = fake.untyped_storage()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE:
            return args[0].fake_device
        if isinstance(func, HigherOrderOperator):
            if func in registered_hop_fake_fns:  # the rule in the table would come back here
                return super().__torch_dispatch__(func, types, args, kwargs)
            return func.python_key_table[FakeTensorMode](self, *args, **(kwargs or {}))
        if _draws(func):
            self.random = True
            if kwargs and kwargs.get("generator") is not None:  # some stand-ins refuse one
                kwargs = {**kwargs, "generator": None}
                if func in _WITHOUT_GENERATOR:
                    func = _WITHOUT_GENERATOR[func]
                    del kwargs["generator"]
        asked = ask(self, func, args, kwargs)
        if asked is None:
            if func is _LIFT and not kwargs and (lifted := self._lifted(*args)) is not None:
                return lifted
            if self.shape_env is None:
                return self._dispatched(func, types, args, kwargs)
            with python_composites():
                return self._uncached(func, types, args, kwargs)
        known = recall(self, asked)
        if known is NotImplemented:
            ruled = by_rule(func, args, kwargs)
            if ruled is None and asked.results is self.symbolic_results:
                ruled = by_symbolic_rule(func, args, kwargs)
            if ruled is not None:
                remember(asked, ruled)
                known = recall(self, asked)
        if known is NotImplemented:
            ordered, self.ordered = self.ordered, False
            # torch's own memory of results need not learn what is remembered here
            if self.shape_env is None:
                known = self._uncached(func, types, args, kwargs)
            else:
                with python_composites():  # stand-ins of C++ ask symbols for numbers
                    known = self._uncached(func, types, args, kwargs)
            if not self.ordered:  # or it would not be seen the next time
                keep(self, asked, func, args, kwargs, known)
                self.ordered = ordered
        return known

    cache_enabled: bool
    ordered = False  # whether the order of elements mattered to a write since this was set

    def _uncached(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Without torch's memory of results, which knows no symbols but those of torch's own."""
        before, self.cache_enabled = self.cache_enabled, False
        try:
            return self._dispatched(func, types, args, kwargs)
        finally:
            self.cache_enabled = before

    def _dispatched(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is _VIEW:
            _check_view(*args)
        if func in _PLACED and len(args) > _PLACED[func][1]:
            _check_place(args[0], *[args[n] for n in _PLACED[func]])
        if func in _PRODUCTS:
            _check_factors(*[args[n] for n in _PRODUCTS[func]])
        if func in FUSED:
            with self:
                return fake_fused(func, args, kwargs or {})
        if func in _NEW and args[0].dtype.is_floating_point:
            with self:
                return torch.empty(args[0].shape, dtype=args[0].dtype, device=args[0].device)
        if _name(func) in strides.TRANSFORMS and not kwargs and _static(args[0]):
            made = self._transformed(_name(func), *args)
            if made is not None:
                return made
        if func is GROUPED:
            with self:
                grouped = fake_grouped(*args, **(kwargs or {}))
            if grouped is not None:
                return grouped
        if writes(func):
            self.ordered |= refuse_overlap(func, args, kwargs or {})
            refuse_cast(func, args)
            if gives_its_first(func, args, kwargs):
                return args[0]
        name, before = _name(func), args
        if name == _GROUP_NORM_BACKWARD:  # the stand-in sees both as others, however they lie
            with self:
                args = *[t.contiguous() for t in args[:2]], *args[2:]
        result = super().__torch_dispatch__(func, types, args, kwargs)
        count_writes(func, args)
        if func is _PAD and not all(map(_static, (args[0], result))):
            return self._laid_as_cut(result, *args[:2])
        if name in _BATCH_NORMS and isinstance(result, tuple):
            return (self._laid_as_batch(result[0], args[0]), *result[1:])
        if name in _GRADIENTS_OF_NORMS and result[0] is not None:
            rule = _GRADIENTS_OF_NORMS[name]
            return (self._laid_as_image(rule, result[0], *before[:2]), *result[1:])
        if name in _CONTIGUOUS and isinstance(result, torch.Tensor):
            return self._laid_contiguous(result)
        if func in _COPYING and _is_expanded(result):
            with self:
                return args[0].clone()
        if name in _LIKE_THE_FIRST and isinstance(result, torch.Tensor):
            return self._laid_like(result, args[0])
        if name in _MADE_LIKE and (kwargs or {}).get("memory_format") in _PRESERVING:
            return self._laid_as_made(result, args[0])
        row = _row(func)
        if name in _OF_THE_CPU:
            return self._laid_on_the_cpu(func, args, kwargs, result)
        if row is None or not isinstance(result, torch.Tensor):
            return result
        given = {a.name: v for a, v in zip(func._schema.arguments, args)}
        given.update(kwargs or {})
        tensors = [result, *(v for v in given.values() if isinstance(v, torch.Tensor))]
        if not all(map(_static, tensors)):
            like = row.made_like(given)
            if like is not None:
                return self._laid_as_made(result, like)
            return self._laid_in_order(result, given, row.strides)
        return self._laid(result, row.strides(tuple(result.shape), given))

    def _laid_contiguous(self, result: torch.Tensor) -> torch.Tensor:
        if _static(result):
            return self._laid(result, strides.contiguous(result.shape))
        with self:
            return torch.empty(result.shape, dtype=result.dtype, device=result.device)

    def _laid_like(self, result: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        if _static(first):
            size = tuple(first.shape)
            wanted = strides.elementwise(size, [(size, first.stride())])
            return self._laid(result, wanted) if tuple(result.shape) == size else result
        return self._laid_in_order(
            result,
            {"self": first},
            lambda shape, given: strides.elementwise(shape, [(shape, given["self"].stride())]),
        )

    def _laid_on_the_cpu(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple([self._laid_on_the_cpu(func, args, kwargs, t) for t in result])
        if result is None:  # a gradient that nobody asked for
            return None
        given = {a.name: v for a, v in zip(func._schema.arguments, args)}
        given.update(kwargs or {})
        tensors = [result, *(v for v in given.values() if isinstance(v, torch.Tensor))]
        elsewhere = any(t.device.type != "cpu" for t in tensors)
        if elsewhere and _name(func) not in strides.OF_NO_DIMENSION:  # which lie so on each device
            return result
        if not all(map(_static, tensors)):
            if _name(func) in strides.CONTIGUOUS:  # whatever sizes and steps are
                return self._laid_contiguous(result)
            rule = functools.partial(strides.of_result, _name(func))
            return self._laid_in_order(result, given, rule)
        return self._laid(result, strides.of_result(_name(func), tuple(result.shape), given))

    def _transformed(
        self, name: str, given: Any, dims: Sequence[int], normalization: int, way: bool
    ) -> Any:
        """A Fourier transform; None where torch's stand-in answers, that of 2.11 not for all."""
        halved = name == "aten._fft_r2c.default"
        kind = given.dtype.is_floating_point if halved else given.dtype.is_complex
        if name not in _OF_THE_CPU or given.device.type != "cpu" or not dims or not kind:
            return None
        shape = list(given.shape)
        if halved and way:
            shape[dims[-1]] = shape[dims[-1]] // 2 + 1
        steps = strides.transformed(shape, given.stride(), dims, halved)
        with self:
            return torch.empty_strided(shape, steps, dtype=given.dtype.to_complex())

    def _laid_as_cut(self, result: torch.Tensor, given: Any, pad: Sequence[Any]) -> torch.Tensor:
        """What is padded nowhere is a copy of a part, which lies as that."""
        if any(_hint(n) is None for n in pad) or any(n > 0 for n in pad):
            return result
        with self:
            part = torch.empty_strided(
                result.shape, given.stride(), dtype=result.dtype, device=result.device
            )
            return part.clone()

    def _laid_as_batch(self, result: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        """What a norm makes of the batch ``image``."""
        if image.layout is not torch.strided:
            return result
        own = strides.batch_norm if image.device.type == "cpu" else strides.as_suggested
        if _static(image):
            return self._laid(result, own(tuple(image.shape), image.stride()))
        if image.dim() not in strides.IMAGES:
            return self._laid_contiguous(result)
        given = {"image": image}
        return self._laid_in_order(result, given, lambda size, of: own(size, of["image"].stride()))

    def _laid_as_image(
        self, rule: Callable[..., strides.Strides], result: torch.Tensor, grad: Any, image: Any
    ) -> torch.Tensor:
        """The gradient of ``image``, which a norm has normalised."""
        if result.device.type != "cpu":
            return result

        def lies(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides:
            return rule(shape, given["image"].stride(), given["grad"].stride())

        given = {"image": image, "grad": grad}
        if _static(grad) and _static(image):
            return self._laid(result, lies(tuple(result.shape), given))
        if image.dim() not in strides.IMAGES:
            return self._laid_contiguous(result)
        return self._laid_in_order(result, given, lies)

    def _laid_as_made(self, result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """As what is made like ``like``, if that is dense, as it then is of all sizes."""
        own = Hinted.of(like)
        if own is None or not strides.is_dense(own.shape, own.steps):
            return result
        if result.layout is not torch.strided or _static(like) and like.stride() == result.stride():
            return result
        with self:
            return torch.empty_strided(
                result.shape, like.stride(), dtype=result.dtype, device=result.device
            )

    def _laid_in_order(
        self,
        result: torch.Tensor,
        given: Mapping[str, Any],
        rule: Callable[[Sequence[int], Mapping[str, Any]], strides.Strides | None],
    ) -> torch.Tensor:
        """As ``rule`` says of the sizes that symbols have now, where those of 2 and more, of
        operands without gaps, go in the same order whatever they are, beside what is 1 always.
        Where steps are symbols of their own, what it asks of them becomes a guard."""
        asked = {k: Hinted.of(v) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
        own = Hinted.of(result)
        operands = [v for v in asked.values() if isinstance(v, Hinted)]
        if own is None or any(
            n < (1 if type(m) is int else 2) for n, m in zip(own.shape, result.shape)
        ):
            return result
        if any(isinstance(given[k], torch.Tensor) and v is None for k, v in asked.items()):
            return result
        tensors = [v for v in given.values() if isinstance(v, torch.Tensor)]
        if any(map(_has_free_steps, tensors)):
            return self._laid_as_asked(result, own, rule(tuple(result.shape), given))
        if not all(v.without_gaps() for v in operands):
            return result
        wanted = rule(own.shape, asked)
        if wanted is None or wanted == own.steps:
            return result
        order = sorted(range(len(wanted)), key=lambda d: -wanted[d])
        if strides.in_order(own.shape, order) != wanted:
            return result
        steps: list[Any] = [1] * len(order)
        for outer, inner in zip(reversed(order[:-1]), reversed(order[1:])):
            steps[outer] = steps[inner] * result.shape[inner]
        with self:
            return torch.empty_strided(
                result.shape, steps, dtype=result.dtype, device=result.device
            )

    def _laid_as_asked(
        self, result: torch.Tensor, own: Hinted, wanted: strides.Strides | None
    ) -> torch.Tensor:
        if wanted is None or own.steps == tuple(map(_hint, wanted)):
            return result
        return self._laid(result, wanted)

    def _laid(self, result: torch.Tensor, wanted: strides.Strides | None) -> torch.Tensor:
        if wanted is None or result.stride() == wanted:
            return result
        with self:
            return torch.empty_strided(
                result.shape, wanted, dtype=result.dtype, device=result.device
            )


@dataclass(frozen=True)
class Hinted:
    """The sizes and steps that a tensor has now."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, t: torch.Tensor) -> Hinted | None:
        """None where a size depends on data."""
        if t.layout is not torch.strided:
            return None
        found = [_hint(n) for n in (*t.shape, *t.stride())]
        if any(n is None for n in found):
            return None
        return cls(tuple(found[: t.dim()]), tuple(found[t.dim() :]), t.dtype)

    def stride(self) -> tuple[int, ...]:
        return self.steps

    def without_gaps(self) -> bool:
        """Whether it is dense but for where it is expanded, which a step of 0 says of all sizes."""
        once = [1 if step == 0 else n for n, step in zip(self.shape, self.steps)]
        return strides.is_dense(once, self.steps)


def _hint(n: Any) -> Any:
    return n if type(n) is int else n.node.hint


def _has_free_steps(t: torch.Tensor) -> bool:
    """Whether its steps, where some are symbols, need not be products of its sizes."""
    steps = t.stride()
    if all(type(n) is int for n in steps):
        return False
    inner: Any = 1
    for d in sorted(range(len(steps)), key=lambda d: (_hint(steps[d]), _hint(t.shape[d]))):
        if type(steps[d]) is int and steps[d] == 0:
            continue
        if not same(steps[d], inner):
            return True
        inner = inner * t.shape[d]
    return False


def _stands_alone(tensor: torch.Tensor) -> bool:
    """Nothing is to be known about ``tensor`` but its own metadata."""
    return (
        tensor.is_leaf
        and not tensor._is_view()
        and tensor.grad is None
        and tensor.storage_offset() == 0
        and tensor.device.type in ("cpu", "cuda")
        and not (tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor())
        and not (tensor.is_inference() or torch.is_inference_mode_enabled())
        and (not tensor.requires_grad or tensor.grad_dtype == tensor.dtype)
    )


@functools.cache
def _name(func: Any) -> str:
    return str(func)


@functools.cache
def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


@functools.cache
def _row(func: Any) -> Operator | None:
    """The row of a function that allocates its one result by the rule of elementwise operators."""
    row = OPERATORS.get(_name(func))
    if row is None or row.strides((), {}) is None or len(func._schema.returns) != 1:
        return None
    return row


def _static(t: torch.Tensor) -> bool:
    if t.layout is not torch.strided:
        return False
    return all(type(n) is int for n in (*t.shape, *t.stride()))


def _is_expanded(t: torch.Tensor) -> bool:
    steps = zip(t.shape, t.stride(), strict=True)
    return any(type(step) is int and step == 0 and _hint(n) != 1 for n, step in steps)


def _check_place(t: torch.Tensor, dim: int, place: Any) -> None:
    """As eager's ``select`` does. A size or a place that only the run knows is asked for there."""
    if not -t.dim() <= dim < t.dim():
        return  # torch has the words for it
    size = t.shape[dim]
    if any(type(n) is torch.SymInt and not n.node.has_hint() for n in (size, place)):
        return
    if not (-size <= place and place < size):
        raise IndexError(
            f"select(): index {int(place)} out of range for tensor of size "
            f"{[int(n) for n in t.shape]} at dimension {dim % t.dim()}"
        )


def _check_factors(a: torch.Tensor, b: torch.Tensor) -> None:
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}"
        )
    integers = not (a.dtype.is_floating_point or a.dtype.is_complex)
    if integers and a.device.type == "cuda" and _static(a) and a.numel() and b.numel():
        raise NotImplementedError(f"a product on {a.device.type} is not implemented for {a.dtype}")


def _check_view(t: torch.Tensor, shape: Any) -> None:
    if not _static(t) or not all(type(n) is int for n in shape):
        return
    known = math.prod(n for n in shape if n != -1)
    full = [t.numel() // known if n == -1 and known else n for n in shape]
    if math.prod(full) != t.numel():
        return  # torch says so itself
    if not strides.viewable(t.shape, t.stride(), full):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
