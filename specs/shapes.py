"""Shape rules that operator rows name, over shapes as tuples of integers.

A rule gets the arguments by name, complete, with tensors as objects that have a ``shape``
(:class:`specs.dtypes.TensorType` or the like), and returns one shape per output. Bad arguments
raise ``ValueError`` (or ``IndexError`` for a dimension out of range), as eager does.
Source: the shape sections of the PyTorch reference pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shape = tuple[int, ...]
ShapeRule = Callable[[Mapping[str, Any]], tuple[Shape, ...]]
SHAPE_RULES: dict[str, ShapeRule] = {}


def shape_rule(function: ShapeRule) -> ShapeRule:
    """Register a rule under the function's name."""
    SHAPE_RULES[function.__name__] = function
    return function


def broadcast(*shapes: Sequence[int]) -> Shape:
    """The common shape: aligned at the end, lengths equal or 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, length in enumerate(shape, rank - len(shape)):
            if length != 1 and result[axis] not in (1, length):
                raise ValueError(f"shapes {[tuple(s) for s in shapes]} do not broadcast")
            if length != 1:
                result[axis] = length
    return tuple(result)


def wrap(dim: int, rank: int) -> int:
    """A dimension counted from 0; a 0-dim tensor counts as having one."""
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"dimension {dim} is out of range for {rank} dimensions")
    return dim % limit


def wrap_all(dims: Any, rank: int) -> list[int]:
    """Distinct dimensions from 0; ``None`` or an empty list means all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(rank))
    wrapped = [wrap(dim, rank) for dim in ([dims] if isinstance(dims, int) else dims)]
    if len(set(wrapped)) != len(wrapped):
        raise ValueError(f"dimensions {dims} are not distinct")
    return wrapped


def reduced(shape: Sequence[int], dims: Any, keepdim: bool) -> Shape:
    """The shape after reducing ``dims``."""
    gone = set(wrap_all(dims, len(shape)))
    if keepdim:
        return tuple(1 if axis in gone else n for axis, n in enumerate(shape))
    return tuple(n for axis, n in enumerate(shape) if axis not in gone)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape")


def _tensors(args: Mapping[str, Any]) -> list[Shape]:
    return [tuple(value.shape) for value in args.values() if _is_tensor(value)]


def _shape(args: Mapping[str, Any], name: str = "self") -> Shape:
    return tuple(args[name].shape)


@shape_rule
def broadcasting(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """All tensors broadcast."""
    return (broadcast(*_tensors(args)),)


@shape_rule
def like_first(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The first tensor's shape."""
    return (_tensors(args)[0],)


@shape_rule
def log_sigmoid(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The result and an empty buffer (the CPU's; accelerators use none)."""
    return _shape(args), _shape(args)


# -- reductions -----------------------------------------------------------------------------------


@shape_rule
def reduce_dims(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``dim``: one, several, or all dimensions; ``keepdim``."""
    return (reduced(_shape(args), args.get("dim"), bool(args.get("keepdim"))),)


@shape_rule
def reduce_listed(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """As :func:`reduce_dims`, but an empty list reduces nothing (``any.dims``)."""
    return (_shape(args),) if args.get("dim") == [] else reduce_dims(args)


@shape_rule
def reduce_dim_pair(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """As :func:`reduce_dims`, for values and their positions."""
    return reduce_dims(args) * 2


@shape_rule
def scalar_result(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Everything reduced to one number."""
    return ((),)


@shape_rule
def sorted_pair(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``sort``, ``cummax``: values and positions, both in the tensor's shape."""
    return _shape(args), _shape(args)


@shape_rule
def topk(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``k`` along ``dim``, for values and positions."""
    shape = list(_shape(args))
    if shape:
        dim = wrap(args["dim"], len(shape))
        if not 0 <= args["k"] <= shape[dim]:
            raise ValueError(f"k = {args['k']} is out of range for dimension {dim} of {shape}")
        shape[dim] = args["k"]
    elif not 0 <= args["k"] <= 1:
        raise ValueError(f"k = {args['k']} is out of range for one number")
    return (tuple(shape),) * 2


# -- views and copies -----------------------------------------------------------------------------


@shape_rule
def view(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``size`` with at most one -1, which takes what is left."""
    shape, size = _shape(args), tuple(args["size"])
    count = math.prod(shape)
    if size.count(-1) > 1:
        raise ValueError("only one dimension can be inferred")
    known = math.prod(length for length in size if length != -1)
    if -1 in size:
        if known == 0 or count % known:
            raise ValueError(f"shape {size} is invalid for {count} elements")
        size = tuple(count // known if length == -1 else length for length in size)
    elif known != count:
        raise ValueError(f"shape {size} is invalid for {count} elements")
    return (size,)


@shape_rule
def permute(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Dimensions in the order of ``dims``."""
    shape = _shape(args)
    if len(args["dims"]) != len(shape):
        raise ValueError(f"{len(args['dims'])} dimensions for a tensor of {len(shape)}")
    if not shape:
        return ((),)
    return (tuple(shape[axis] for axis in wrap_all(args["dims"], len(shape))),)


@shape_rule
def transpose(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``dim0`` and ``dim1`` swapped."""
    shape = list(_shape(args))
    a, b = wrap(args["dim0"], len(shape)), wrap(args["dim1"], len(shape))
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
    return (tuple(shape),)


@shape_rule
def transpose_matrix(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``t``: at most two dimensions, swapped."""
    shape = _shape(args)
    if len(shape) > 2:
        raise ValueError(f"t() expects at most two dimensions, not {len(shape)}")
    return (shape[::-1],)


@shape_rule
def expand(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``size``: lengths of 1 grow, -1 keeps, new dimensions come first."""
    shape, size = _shape(args), tuple(args["size"])
    new = len(size) - len(shape)
    if new < 0:
        raise ValueError(f"expand to {size} has fewer dimensions than {shape}")
    result = []
    for axis, length in enumerate(size):
        old = shape[axis - new] if axis >= new else None
        if length == -1:
            if old is None:
                raise ValueError("-1 is not allowed for a new dimension")
            length = old
        elif old not in (None, 1, length):
            raise ValueError(f"dimension of length {old} does not expand to {length}")
        result.append(length)
    return (tuple(result),)


@shape_rule
def slice_(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Python's slice ``start:end:step`` of dimension ``dim``."""
    shape = list(_shape(args))
    if not shape:
        raise IndexError("a 0-dim tensor cannot be sliced")
    dim = wrap(args["dim"], len(shape))
    if args["step"] <= 0:
        raise ValueError("slice step must be positive")
    shape[dim] = len(range(shape[dim])[args["start"] : args["end"] : args["step"]])
    return (tuple(shape),)


@shape_rule
def select(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """One ``index`` of ``dim``, which goes."""
    shape = list(_shape(args))
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor")
    dim = wrap(args["dim"], len(shape))
    if not -shape[dim] <= args["index"] < shape[dim]:
        raise IndexError(f"index {args['index']} is out of range for dimension {dim} of {shape}")
    del shape[dim]
    return (tuple(shape),)


@shape_rule
def squeeze(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Dimensions of length 1 go: those named in ``dim``, or all."""
    shape = _shape(args)
    dim = args.get("dim")
    named = range(len(shape)) if dim is None else ([dim] if isinstance(dim, int) else dim)
    gone = {wrap(axis, len(shape)) for axis in named}
    return (tuple(n for axis, n in enumerate(shape) if axis not in gone or n != 1),)


@shape_rule
def unsqueeze(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """A dimension of length 1 before ``dim`` (negative: of the result)."""
    shape = list(_shape(args))
    shape.insert(wrap(args["dim"], len(shape) + 1), 1)
    return (tuple(shape),)


@shape_rule
def unfold(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Windows of ``size`` every ``step`` along ``dimension``; the window is the last dimension."""
    shape = list(_shape(args))
    dim = wrap(args["dimension"], len(shape))
    length = shape[dim] if shape else 1
    if not 0 <= args["size"] <= length or args["step"] <= 0:
        raise ValueError(f"window {args['size']} by {args['step']} does not fit length {length}")
    if shape:
        shape[dim] = (length - args["size"]) // args["step"] + 1
    return ((*shape, args["size"]),)


@shape_rule
def diagonal(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The diagonal ``offset`` of ``dim1`` and ``dim2``, as the last dimension."""
    shape = _shape(args)
    a, b = wrap(args["dim1"], len(shape)), wrap(args["dim2"], len(shape))
    if a == b:
        raise ValueError("diagonal dimensions cannot be identical")
    offset = args["offset"]
    rows, columns = shape[a] + min(offset, 0), shape[b] - max(offset, 0)
    rest = tuple(n for axis, n in enumerate(shape) if axis not in (a, b))
    return ((*rest, max(0, min(rows, columns))),)


@shape_rule
def split(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Pieces of ``split_size`` along ``dim``; the last may be shorter."""
    shape = list(_shape(args))
    dim, size = wrap(args["dim"], len(shape)), args["split_size"]
    length = shape[dim]
    if size < 0 or (size == 0 and length):
        raise ValueError(f"split size {size} is invalid for length {length}")
    starts = range(0, length, size) if length else [0]
    return tuple((*shape[:dim], min(size, length - start), *shape[dim + 1 :]) for start in starts)


@shape_rule
def split_sizes(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Pieces of the given ``split_sizes`` along ``dim``."""
    shape = list(_shape(args))
    dim = wrap(args["dim"], len(shape))
    if sum(args["split_sizes"]) != shape[dim]:
        raise ValueError(f"split sizes {args['split_sizes']} do not add up to {shape[dim]}")
    return tuple((*shape[:dim], size, *shape[dim + 1 :]) for size in args["split_sizes"])


@shape_rule
def unbind(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """One piece per position of ``dim``, which goes."""
    shape = _shape(args)
    dim = wrap(args["dim"], len(shape))
    return ((*shape[:dim], *shape[dim + 1 :]),) * shape[dim]


@shape_rule
def cat(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Lengths of ``dim`` add up, the others agree; empty 1-d tensors do not count."""
    shapes = [tuple(tensor.shape) for tensor in args["tensors"]]
    counted = [shape for shape in shapes if shape != (0,)] or shapes[:1]
    first = counted[0]
    dim = wrap(args["dim"], len(first))
    for shape in counted:
        if len(shape) != len(first) or any(
            a != b for axis, (a, b) in enumerate(zip(shape, first, strict=True)) if axis != dim
        ):
            raise ValueError(f"shapes {shapes} do not concatenate along dimension {dim}")
    total = sum(shape[dim] for shape in counted)
    return ((*first[:dim], total, *first[dim + 1 :]),)


@shape_rule
def stack(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """A new dimension ``dim`` as long as the list; all shapes equal."""
    shapes = [tuple(tensor.shape) for tensor in args["tensors"]]
    if len(set(shapes)) != 1:
        raise ValueError(f"stack needs tensors of one shape, not {shapes}")
    shape = list(shapes[0])
    shape.insert(wrap(args["dim"], len(shape) + 1), len(shapes))
    return (tuple(shape),)


@shape_rule
def pad(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``pad``: before and after, last dimension first; negative numbers cut."""
    shape, amounts = list(_shape(args)), args["pad"]
    if len(amounts) % 2 or len(amounts) > 2 * len(shape):
        raise ValueError(f"padding {amounts} does not fit {len(shape)} dimensions")
    for i in range(len(amounts) // 2):
        before, after = amounts[2 * i : 2 * i + 2]
        # what is cut off in front goes first, then what is cut off behind
        if shape[-1 - i] + min(before, 0) < 0 or shape[-1 - i] + before + after < 0:
            raise ValueError(f"padding {amounts} makes a negative length")
        shape[-1 - i] += before + after
    return (tuple(shape),)


@shape_rule
def repeat(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Each dimension ``repeats`` times, new ones first."""
    shape, repeats = _shape(args), args["repeats"]
    if len(repeats) < len(shape):
        raise ValueError(f"repeats {repeats} are fewer than the dimensions of {shape}")
    if any(times < 0 for times in repeats):
        raise ValueError(f"repeats {repeats} are negative")
    padded = (1,) * (len(repeats) - len(shape)) + shape
    return (tuple(n * times for n, times in zip(padded, repeats, strict=True)),)


# -- factories ------------------------------------------------------------------------------------


@shape_rule
def given(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``size``."""
    return (tuple(args["size"]),)


@shape_rule
def counted(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``arange``: ceil((end - start) / step) numbers."""
    start, step = args.get("start") or 0, args.get("step", 1)
    if step == 0 or (args["end"] - start) * step < 0:
        raise ValueError(f"bounds {start}, {args['end']} are inconsistent with step {step}")
    return ((math.ceil((args["end"] - start) / step),),)


@shape_rule
def square(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``eye``: n by n."""
    return ((args["n"], args["n"]),)


# -- contractions ---------------------------------------------------------------------------------


@shape_rule
def mm(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """(n, k) by (k, m)."""
    a, b = _shape(args), _shape(args, "mat2")
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise ValueError(f"shapes {a} and {b} cannot be multiplied")
    return ((a[0], b[1]),)


@shape_rule
def bmm(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """(b, n, k) by (b, k, m)."""
    a, b = _shape(args), _shape(args, "mat2")
    if len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1]:
        raise ValueError(f"shapes {a} and {b} cannot be multiplied")
    return ((a[0], a[1], b[2]),)


@shape_rule
def mv(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """(n, k) by (k)."""
    a, b = _shape(args), _shape(args, "vec")
    if len(a) != 2 or len(b) != 1 or a[1] != b[0]:
        raise ValueError(f"shapes {a} and {b} cannot be multiplied")
    return ((a[0],),)


@shape_rule
def dot(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Two vectors of one length."""
    a, b = _shape(args), _shape(args, "tensor")
    if len(a) != 1 or a != b:
        raise ValueError(f"shapes {a} and {b} have no inner product")
    return ((),)


@shape_rule
def addmm(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``self`` broadcasts to the product of ``mat1`` and ``mat2``."""
    (product,) = mm({"self": args["mat1"], "mat2": args["mat2"]})
    if broadcast(_shape(args), product) != product:
        raise ValueError(f"shape {_shape(args)} does not broadcast to {product}")
    return (product,)


@shape_rule
def baddbmm(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``self`` broadcasts to the products of ``batch1`` and ``batch2``."""
    (product,) = bmm({"self": args["batch1"], "mat2": args["batch2"]})
    if broadcast(_shape(args), product) != product:
        raise ValueError(f"shape {_shape(args)} does not broadcast to {product}")
    return (product,)


@shape_rule
def matmul(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Batched product: leading dimensions broadcast, vectors lose their own."""
    a, b = _shape(args), _shape(args, "other")
    if not a or not b:
        raise ValueError("matmul needs at least one dimension each")
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        raise ValueError(f"shapes {a} and {b} cannot be multiplied")
    result = broadcast(left[:-2], right[:-2])
    return (result + left[-2:-1] * (len(a) > 1) + right[-1:] * (len(b) > 1),)


@shape_rule
def linear(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """(..., in) by (out, in)."""
    a, b = _shape(args, "input"), _shape(args, "weight")
    if not a or len(b) != 2 or a[-1] != b[1]:
        raise ValueError(f"shapes {a} and {b} cannot be multiplied")
    return ((*a[:-1], b[0]),)


def _per_axis(value: Any, count: int) -> list[int]:
    """One number for all spatial dimensions, or one for each."""
    if isinstance(value, int):
        return [value] * count
    return list(value) * count if len(value) == 1 else list(value)


@shape_rule
def convolution(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """(N, C, *in) with (O, C / groups, *kernel); transposed: (C, O / groups, *kernel)."""
    x, weight = _shape(args, "input"), _shape(args, "weight")
    axes = len(x) - 2
    if axes < 1 or len(weight) != len(x):
        raise ValueError(f"weight {weight} does not fit input {x}")
    groups, transposed = args["groups"], args["transposed"]
    stride, padding, dilation, extra = (
        _per_axis(args[name], axes) for name in ("stride", "padding", "dilation", "output_padding")
    )
    if min(*stride, *dilation, groups) <= 0 or min(*padding, *extra) < 0:
        raise ValueError(f"stride {stride}, padding {padding}, dilation {dilation}")
    channels = weight[0] if transposed else weight[1] * groups
    if channels != x[1] or (x[1] if transposed else weight[0]) % groups:
        raise ValueError(f"weight {weight} in {groups} groups does not fit input {x}")
    if transposed and any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise ValueError(f"output_padding {extra} is no less than stride and dilation")
    filters = weight[1] * groups if transposed else weight[0]
    if args.get("bias") is not None and _shape(args, "bias") != (filters,):
        raise ValueError(f"bias {_shape(args, 'bias')} is not one for each of {filters}")
    out = []
    for i in range(axes):
        reach = dilation[i] * (weight[2 + i] - 1)
        if transposed:
            out.append((x[2 + i] - 1) * stride[i] - 2 * padding[i] + reach + extra[i] + 1)
        else:
            out.append((x[2 + i] + 2 * padding[i] - reach - 1) // stride[i] + 1)
        if out[-1] < 0:  # an empty result is up to the dtype's kernel
            raise ValueError(f"kernel {weight[2:]} is larger than the padded input {x[2:]}")
    return ((x[0], filters, *out),)


@shape_rule
def attention(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """(..., L, E) with keys (..., S, E) and values (..., S, V)."""
    query, key, value = (_shape(args, name) for name in ("query", "key", "value"))
    if query[-1] != key[-1] or key[-2] != value[-2]:
        raise ValueError(f"shapes {query}, {key}, {value} do not fit together")
    lead = broadcast(query[:-2], key[:-2], value[:-2])
    return ((*lead, query[-2], value[-1]),)


# -- normalisation, pooling -----------------------------------------------------------------------


def _check_affine(args: Mapping[str, Any], shape: Shape) -> None:
    for name in ("weight", "bias"):
        if args.get(name) is not None and _shape(args, name) != shape:
            raise ValueError(f"{name} {_shape(args, name)} is not {shape}")


@shape_rule
def layer_norm(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The result, and mean and reciprocal deviation over the last dimensions, kept as 1."""
    shape, last = _shape(args, "input"), tuple(args["normalized_shape"])
    if not last or shape[len(shape) - len(last) :] != last:
        raise ValueError(f"normalized_shape {last} is not the end of {shape}")
    _check_affine(args, last)
    statistics = shape[: len(shape) - len(last)] + (1,) * len(last)
    return shape, statistics, statistics


@shape_rule
def like_input(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The shape of ``input``."""
    return (_shape(args, "input"),)


@shape_rule
def group_norm(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The result, and mean and reciprocal deviation per sample and group."""
    shape = _shape(args, "input")
    n, channels, rest, groups = (args[name] for name in ("N", "C", "HxW", "group"))
    if groups <= 0 or channels % groups or n * channels * rest != math.prod(shape):
        raise ValueError(f"{n} of {channels} channels in {groups} groups are not {shape}")
    _check_affine(args, (channels,))
    statistics = (n, groups)
    return shape, statistics, statistics


@shape_rule
def batch_norm(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The result, and saved mean and reciprocal deviation per channel (empty in inference)."""
    shape = _shape(args, "input")
    saved = (shape[1],) if args["training"] else (0,)
    return shape, saved, saved


@shape_rule
def batch_norm_inference(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The result and two empty statistics."""
    return _shape(args, "input"), (0,), (0,)


def _pooled(args: Mapping[str, Any]) -> Shape:
    shape = _shape(args)
    kernel = list(args["kernel_size"])
    axes = len(kernel)
    stride = list(args.get("stride") or kernel)
    padding = _per_axis(args.get("padding", 0), axes)
    dilation = _per_axis(args.get("dilation", 1), axes)
    if min(*kernel, *stride, *dilation) <= 0 or min(padding) < 0:
        raise ValueError(f"kernel {kernel}, stride {stride}, padding {padding}")
    out = []
    for i in range(axes):
        length = shape[len(shape) - axes + i]
        if padding[i] * 2 > kernel[i]:
            raise ValueError(f"padding {padding[i]} is more than half of kernel {kernel[i]}")
        room = length + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1
        steps = -(-room // stride[i]) if args.get("ceil_mode") else room // stride[i]
        # the last window has to begin inside the input or its left padding
        if args.get("ceil_mode") and steps * stride[i] >= length + padding[i]:
            steps -= 1
        if steps < 0:
            raise ValueError(f"kernel {kernel} is larger than the padded input {shape}")
        out.append(steps + 1)
    return (*shape[: len(shape) - axes], *out)


@shape_rule
def pool(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Windows of ``kernel_size`` every ``stride`` (default: the kernel's)."""
    return (_pooled(args),)


@shape_rule
def pool_pair(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The pooled values and their positions."""
    return (_pooled(args),) * 2


@shape_rule
def adaptive_pool(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The last dimensions become ``output_size``."""
    shape, size = _shape(args), tuple(args["output_size"])
    return ((*shape[: len(shape) - len(size)], *size),)


@shape_rule
def upsample(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The last two dimensions become ``output_size``."""
    return ((*_shape(args)[:2], *args["output_size"]),)


# -- gathers --------------------------------------------------------------------------------------


@shape_rule
def embedding(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The shape of ``indices``, and a row of ``weight`` each."""
    return ((*_shape(args, "indices"), _shape(args, "weight")[1]),)


@shape_rule
def gather(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The shape of ``index``, which is no longer than the first tensor but along ``dim``."""
    shape, index = _shape(args) or (1,), _shape(args, "index")
    dim, full = wrap(args["dim"], len(shape)), index or (1,)
    if 0 not in index:
        if len(full) != len(shape):
            raise ValueError(f"an index of {len(index)} dimensions for {len(_shape(args))}")
        if any(n > shape[d] for d, n in enumerate(full) if d != dim):
            raise ValueError(f"index of shape {index} is longer than {shape} beside {dim}")
    return (index,)


@shape_rule
def index_select(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """``dim`` becomes as long as ``index``."""
    shape, index = _shape(args), _shape(args, "index")
    if not shape:
        return ((),)
    dim = wrap(args["dim"], len(shape))
    return ((*shape[:dim], index[0] if index else 1, *shape[dim + 1 :]),)


@shape_rule
def index(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """NumPy's advanced indexing by integer tensors: the broadcast shape takes their place.

    It comes first when the indexed dimensions are not adjacent.
    """
    shape = _shape(args)
    places = [axis for axis, tensor in enumerate(args["indices"]) if tensor is not None]
    if not places:
        return (shape,)
    common = broadcast(*(tuple(args["indices"][axis].shape) for axis in places))
    rest = [n for axis, n in enumerate(shape) if axis not in places]
    adjacent = places == list(range(places[0], places[-1] + 1))
    at = places[0] if adjacent else 0
    return ((*rest[:at], *common, *rest[at:]),)
