"""Strides of results: where eager puts the elements of a tensor that it allocates.

A user sees them, and later views and layouts depend on them. Source: the behaviour of torch's
``TensorIterator`` and the documentation of ``Tensor.view`` and ``torch.memory_format``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specs import dtypes
from specs.dtypes import TensorType

Shape = Sequence[int]
Strides = tuple[int, ...]
# An operand: its sizes and its strides.
Laid = tuple[Sequence[int], Sequence[int]]
#: How many dimensions a tensor has that may have its channels last.
IMAGES = (4, 5)


def contiguous(shape: Sequence[int]) -> Strides:
    """Row-major."""
    return in_order(shape, range(len(shape)))


def in_order(shape: Sequence[int], outermost_first: Sequence[int]) -> Strides:
    """Dense, the last of the named dimensions varying fastest."""
    strides, step = [0] * len(shape), 1
    for d in reversed(outermost_first):
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def channels_last(shape: Sequence[int]) -> Strides:
    """Dense with dimension 1 varying fastest (4 or 5 dimensions)."""
    return in_order(shape, (0, *range(2, len(shape)), 1))


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether eager suggests ``channels_last`` for the likes of a tensor.

    Strides grow from the channels outwards; a tensor that is contiguous too (one channel, or one
    pixel) counts as contiguous.
    """
    if len(shape) not in IMAGES or strides[1] == 0:
        return False
    least = 0
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[d] == 0 or strides[d] < least:
            return False
        if d == 0 and least == strides[1]:
            return False
        least = strides[d] * (shape[d] if shape[d] > 1 else 1)
    return True


def elementwise(shape: Shape, operands: Sequence[Laid]) -> Strides:
    """Strides of the result, of ``shape``, of an operator on elements of broadcast operands.

    ``operands`` are the tensors in the order of the arguments. Operands that all lie alike, dense,
    give their layout; otherwise dimensions are sorted by their strides in the first operand that
    tells them apart, and the result is dense in that order.
    """
    if operands and all(tuple(size) == tuple(shape) for size, _ in operands):
        if all(_is_contiguous(*laid) for laid in operands):
            return contiguous(shape)
        if all(_lies_channels_last(*laid) for laid in operands):
            return channels_last(shape)
        first = tuple(operands[0][1])
        if is_dense(*operands[0]) and all(tuple(other) == first for _, other in operands):
            return first
    aligned = [_broadcast_strides(shape, *laid) for laid in operands]
    order = list(reversed(range(len(shape))))  # innermost first
    for place in range(1, len(shape)):
        moving = place
        for other in reversed(range(place)):
            comparison = _compare(shape, aligned, order[other], order[moving])
            if comparison > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif comparison < 0:
                break
    if order == list(reversed(range(len(shape)))):
        return contiguous(shape)
    steps, step = [0] * len(shape), 1
    for d in order:
        steps[d] = step
        step *= shape[d]  # also where that is 0, unlike the steps of what is made contiguous
    return tuple(steps)


def like(size: Sequence[int], strides: Sequence[int]) -> Strides:
    """Strides of a tensor that is made like one of ``size`` and ``strides``: a dense one's are
    kept, those of sizes of 1 too."""
    return tuple(strides) if is_dense(size, strides) else elementwise(size, [(size, strides)])


def batch_norm(size: Sequence[int], strides: Sequence[int]) -> Strides:
    """Strides of a batch norm's result on a CPU: of an image that lies one pixel or one channel
    after the other, whatever the steps of its sizes of 1, in that order (if in both, pixels of one
    channel after the other); else as eager suggests of it."""
    if _is_contiguous(size, strides):
        return contiguous(size)
    if _image_lies_channels_last(size, strides):
        return channels_last(size)
    return as_suggested(size, strides)


def batch_norm_backward(size: Sequence[int], strides: Sequence[int], grad: Strides) -> Strides:
    """Strides of the gradient for a batch norm's operand, on a CPU, of a ``grad`` of its result.

    A kernel that takes both as they lie makes the gradient like the result; the one for operands of
    two layouts as eager suggests of the operand, also of one pixel or one channel.
    """
    whole = all(
        _is_contiguous(size, each) or _image_lies_channels_last(size, each)
        for each in (strides, grad)
    )
    if whole and is_channels_last(size, strides) == is_channels_last(size, grad):
        return batch_norm(size, strides)
    return as_suggested(size, strides)


def as_suggested(size: Sequence[int], strides: Sequence[int]) -> Strides:
    """Dense, with the channels last where eager suggests it of a tensor that lies so."""
    return channels_last(size) if is_channels_last(size, strides) else contiguous(size)


def rolled(
    size: Sequence[int], strides: Sequence[int], shifts: Sequence[int], dims: Sequence[int]
) -> Strides:
    """Of ``roll`` on a CPU, which joins two parts along each dimension, as these suggest: of
    nothing, which suggests no channels, and all the rest where it moves by whole sizes."""
    for shift, d in zip(shifts, dims):
        last = is_channels_last(size, strides) and shift % size[d]
        strides = channels_last(size) if last else contiguous(size)
    return tuple(strides) if dims else contiguous(size)


def transformed(
    shape: Shape, strides: Sequence[int], dims: Sequence[int], last_stays: bool
) -> Strides:
    """Of a Fourier transform on a CPU: the dimensions that it transforms inside the others, each
    group in the order of the operand, whose ``strides`` these are; with the last one innermost."""
    rank = len(shape)
    inner = [d % rank for d in dims]
    end = len(inner) - last_stays
    outer = [d for d in range(rank) if d not in inner]
    groups = outer, inner[:end]
    order = [d for group in groups for d in sorted(group, key=lambda d: -strides[d])]
    return in_order(shape, [*order, *inner[end:]])


def scaled_by_powers(shape: Shape, x: Any, by: Any) -> Strides:
    """Of ``ldexp`` on a CPU, whose kernel takes floats and whole numbers and fills a tensor that is
    made like ``x``. Else it multiplies: by powers of a number, which lie in order, or of a tensor
    without dimensions, where ``x`` is of another dtype than numbers have; cast first if need be.
    """
    size, (kind, power) = tuple(x.shape), (str(t.dtype).removeprefix("torch.") for t in (x, by))
    if dtypes.is_float(kind) and not (dtypes.is_float(power) or dtypes.is_complex(power)):
        alone = size == tuple(shape)
        own = like(size, x.stride())
        return own if alone else elementwise(shape, [(size, x.stride()), (by.shape, by.stride())])
    exponents = TensorType(power, tuple(by.shape))
    if dtypes.is_float(kind) and kind != "float32" or dtypes.is_complex(kind):
        powers = dtypes.result_type([TensorType(kind), exponents])
        steps = like(by.shape, by.stride()) if powers != power else by.stride()
        steps = elementwise(by.shape, [(by.shape, steps), ((), ())])
    else:
        powers, steps = dtypes.result_type([2.0, exponents]), contiguous(by.shape)
    common = dtypes.result_type([TensorType(kind, size), TensorType(powers, exponents.shape)])
    own = like(size, x.stride()) if common != kind else x.stride()
    return elementwise(shape, [(size, own), (by.shape, steps)])


# Operators of losses and activations whose results eager's CPU kernels lay out so: contiguous
# whatever the operands are, or as an operator on the elements of the named operands, in that order.
CONTIGUOUS = frozenset(
    {
        "aten.glu_backward.default",
        "aten.huber_loss_backward.default",
        "aten.im2col.default",
        "aten.log_sigmoid_forward.default",
        "aten.mse_loss_backward.default",
        "aten.native_layer_norm_backward.default",
        "aten.nll_loss2d_backward.default",
        "aten.nll_loss2d_forward.default",
        "aten.smooth_l1_loss_backward.default",
    }
)
#: Those that eager makes contiguous if they are of complex numbers.
CONTIGUOUS_OF_COMPLEX = frozenset({"aten.angle.default"})
# ``:copied`` is an operand of which something elementwise is made first.
BY_OPERANDS = {
    "aten._prelu_kernel_backward.default": ("self", "weight", "grad_output"),
    "aten.addcdiv.default": ("self", "tensor1", "tensor2"),
    "aten.addcmul.default": ("self", "tensor1", "tensor2"),
    "aten.complex.default": ("real", "imag"),
    "aten.elu_backward.default": ("grad_output", "self_or_result"),
    "aten.gelu_backward.default": ("grad_output", "self"),
    "aten.hardshrink_backward.default": ("grad_out", "self"),
    "aten.hardsigmoid_backward.default": ("grad_output", "self"),
    "aten.hardswish_backward.default": ("grad_output", "self"),
    "aten.igamma.default": ("self", "other"),
    "aten.igammac.default": ("self", "other"),
    "aten.logit_backward.default": ("grad_output", "self"),
    "aten.mish_backward.default": ("grad_output", "self"),
    "aten.mse_loss.default": ("self", "target"),
    "aten.native_dropout_backward.default": ("grad_output", "mask:copied"),
    "aten.polar.default": ("abs", "angle"),
    "aten.smooth_l1_loss.default": ("self", "target"),
    "aten.softplus_backward.default": ("grad_output", "self"),
    "aten.softshrink_backward.default": ("grad_output", "self"),
    "aten.special_xlog1py.default": ("self", "other"),
}
# Elementwise operators whose results eager's code makes empty, like their operand, and then fills;
# some of them only for integers, where they need not look. Sizes of 1 have the operand's strides.
MADE_LIKE = frozenset(
    {
        "aten.fill.Scalar",
        "aten.hardtanh.default",
        "aten.nan_to_num.default",
        "aten.relu6.default",
    }
)
MADE_LIKE_INTS = frozenset({"aten.isfinite.default", "aten.isinf.default"})
# What eager lays as it suggests of the named image, also of one that has another size: gradients of
# padded images, padded images (of which 2.11's stand-ins are contiguous), and padded volumes, of
# which one alone is an image too; and images whose channels change places.
LIKE_IMAGES = {
    f"aten.{kind}_pad{way}.default": "self"
    for kind in ("reflection", "replication")
    for way in ("2d", "2d_backward", "3d_backward", "3d")
}
LIKE_IMAGES["aten.max_unpool2d.default"] = "self"
LIKE_IMAGES["aten.channel_shuffle.default"] = "self"
LIKE_IMAGES["aten.native_group_norm.default"] = "input"
LIKE_IMAGES |= {
    f"aten.{kind}.default": "self"
    for kind in (
        *("upsample_bicubic2d", "upsample_bilinear2d", "upsample_nearest2d"),
        *("upsample_nearest3d", "upsample_trilinear3d"),
        *("_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    )
}
#: Fourier transforms, which 2.11's stand-ins lay otherwise where not the last dimension alone is
#: transformed, as eager's do where it has MKL.
TRANSFORMS = frozenset({"aten._fft_c2c.default", "aten._fft_r2c.default"})
# Losses of each element, and moves of them, for which eager makes a tensor like the named operand.
ONE_LIKE = {
    "aten.binary_cross_entropy_backward.default": "self",
    "aten.flip.default": "self",
    "aten.huber_loss.default": "self",
    "aten.index_put.default": "self",
    "aten.log_sigmoid_backward.default": "grad_output",
    "aten.soft_margin_loss_backward.default": "target",
}
# Reductions that may be asked to reduce nothing, which then is a copy.
OF_NO_DIMENSION = frozenset({"aten.all.dims", "aten.any.dims"})

_LDEXP = "aten.ldexp.Tensor"
_RRELU = "aten.rrelu_with_noise_backward.default"  # a product with the noise, or as leaky_relu's

# Those that :func:`of_result` knows.
OF_THE_CPU = CONTIGUOUS | BY_OPERANDS.keys() | ONE_LIKE.keys() | OF_NO_DIMENSION
OF_THE_CPU |= LIKE_IMAGES.keys() | {"aten.roll.default", _LDEXP, _RRELU}


def of_result(name: str, shape: Shape, args: Mapping[str, Any]) -> Strides | None:
    """Strides of a result of ``shape`` on a CPU, of an operator in the tables above; else None.

    Tensors in ``args``, which has the schema's names, have ``shape`` and ``stride()``.
    """
    if name in CONTIGUOUS or (name in OF_NO_DIMENSION and args.get("dim") in ([], ())):
        return contiguous(shape)
    if name in LIKE_IMAGES:
        image = args[LIKE_IMAGES[name]]
        last = is_channels_last(image.shape, image.stride())
        return channels_last(shape) if last else contiguous(shape)
    if name == "aten.roll.default":
        if 0 in shape or not all(type(n) is int for n in args["shifts"]):
            return None
        return rolled(shape, args["self"].stride(), args["shifts"], args.get("dims", ()))
    if name in TRANSFORMS:
        if not args["dim"]:
            return None
        one = name == "aten._fft_r2c.default"  # that dimension is halved, and the innermost
        return transformed(shape, args["self"].stride(), args["dim"], one)
    if name in ONE_LIKE:
        model = args[ONE_LIKE[name]]
        return like(shape, model.stride()) if tuple(model.shape) == tuple(shape) else None
    if name == _LDEXP:
        try:
            return scaled_by_powers(shape, args["self"], args["other"])
        except TypeError:  # of dtypes that are not the specification's
            return None
    names = BY_OPERANDS.get(name, ())
    if name == _RRELU:
        drawn = args["training"] and args["upper"] - args["lower"] > 1e-6
        names = ("noise", "grad_output") if drawn else ("self", "grad_output")
    operands = [_operand(args, each) for each in names]
    whole = all(len(size) <= len(shape) for size, _ in operands)  # not reduced, as a loss is
    return elementwise(shape, operands) if operands and whole else None


def _operand(args: Mapping[str, Any], name: str) -> Laid:
    """As :data:`BY_OPERANDS` names it."""
    name, _, made = name.partition(":")
    size, steps = args[name].shape, args[name].stride()
    return size, elementwise(size, [(size, steps), ((), ())]) if made else steps


def _compare(shape: Shape, aligned: Sequence[Strides], a: int, b: int) -> int:
    """Positive if dimension ``a`` belongs outside ``b``, negative if inside, 0 if undecided."""
    for strides in aligned:
        if strides[a] == 0 or strides[b] == 0:  # broadcast: the next operand decides
            continue
        if strides[a] != strides[b]:
            return -1 if strides[a] < strides[b] else 1
        if shape[a] > shape[b]:
            return 1
    return 0


def _broadcast_strides(shape: Shape, size: Sequence[int], strides: Sequence[int]) -> Strides:
    skip = len(shape) - len(size)
    kept = (
        0 if n == 1 and wanted != 1 else step
        for n, step, wanted in zip(size, strides, shape[skip:], strict=True)
    )
    return (0,) * skip + tuple(kept)


def _is_contiguous(size: Sequence[int], strides: Sequence[int]) -> bool:
    return 0 in size or _steps_through(size, strides, range(len(size)))


def _lies_channels_last(size: Sequence[int], strides: Sequence[int]) -> bool:
    return len(size) == 4 and _image_lies_channels_last(size, strides)


def _image_lies_channels_last(size: Sequence[int], strides: Sequence[int]) -> bool:
    """With or without a depth."""
    channels_innermost = (0, *range(2, len(size)), 1)
    return len(size) in IMAGES and _steps_through(size, strides, channels_innermost)


def _steps_through(
    size: Sequence[int], strides: Sequence[int], outermost_first: Sequence[int]
) -> bool:
    """Whether the elements lie one after the other in that order; sizes of 1 do not matter."""
    step = 1
    for d in reversed(outermost_first):
        if size[d] != 1:
            if strides[d] != step:
                return False
            step *= size[d]
    return True


def is_dense(size: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their memory, each in a place of its own, in whatever order."""
    order = sorted((d for d in range(len(size)) if size[d] != 1), key=lambda d: -strides[d])
    return 0 in size or _steps_through(size, strides, order)


def viewable(size: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a tensor of that size and strides can be seen as ``shape`` without a copy."""
    return 0 in size or viewed(size, strides, shape) is not None


def viewed(size: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> Strides | None:
    """The strides of a tensor, which is not empty, when seen as ``shape``; None if it cannot be.

    Groups of dimensions that lie in memory like one have to split up into the new dimensions.
    """
    left = list(shape)
    found: list[int] = []  # innermost first
    together, step = 1, strides[-1] if size else 1  # of a group: its elements, its last stride
    for d in reversed(range(len(size))):
        together *= size[d]
        if d and (size[d - 1] == 1 or strides[d - 1] == together * step):
            continue
        while left and (together > 1 or left[-1] == 1):
            n = left.pop()
            if together % n:
                return None
            together //= n
            found.append(step)
            step *= n
        if together > 1:
            return None
        step = strides[d - 1] if d else step
    if any(n != 1 for n in left):
        return None
    return tuple([*found, *[step] * len(left)][::-1])
