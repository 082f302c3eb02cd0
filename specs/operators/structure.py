"""Operator rows: views, copies, factories, contractions, gathers, pooling."""

from __future__ import annotations

from typing import Any

from specs.operators.pointwise import ALL, FLOATS, SELF, tolerance
from specs.operators.reductions import SUMMED, add
from specs.operators.row import Arg

_DIM = Arg("dim", "dim", optional=True, default=0)
_ATEN = "torch.ops.aten"


def _view(name: str, call: str, args: tuple[Arg, ...], shape: str, **more: Any) -> None:
    first = more.pop("first", SELF)
    lowering = more.pop("lowering", f"view:{name.split('.')[0]}")
    add(name, call, more.pop("kind", "view"), (first, *args), lowering, "first", shape, ALL, **more)


_SIZE = Arg("size", "shape")
_view("view.default", f"{_ATEN}.view", (_SIZE,), "view", doc="Strides have to allow it.")
_view("reshape.default", "torch.reshape", (_SIZE,), "view", doc="A copy where no view will do.")
_view("_unsafe_view.default", f"{_ATEN}._unsafe_view", (_SIZE,), "view", lowering="view:view")
_view("permute.default", "torch.permute", (Arg("dims", "permutation"),), "permute")
_view(
    "transpose.int",
    "torch.transpose",
    (Arg("dim0", "dim"), Arg("dim1", "dim")),
    "transpose",
)
_view("t.default", "torch.t", (), "transpose_matrix", first=Arg("self", promotes=True, max_rank=2))
_view("expand.default", f"{_ATEN}.expand", (_SIZE,), "expand")
_RANKED = Arg("self", promotes=True, min_rank=1)
_view(
    "slice.Tensor",
    f"{_ATEN}.slice",
    (
        _DIM,
        Arg("start", "int", "length", optional=True),
        Arg("end", "int", "length", optional=True),
        Arg("step", "int", values=(1, 3), optional=True, default=1),
    ),
    "slice_",
    first=_RANKED,
)
_view(
    "select.int",
    "torch.select",
    (Arg("dim", "dim"), Arg("index", "int", "position")),
    "select",
    first=Arg("self", promotes=True, min_rank=1, nonempty=True),
)
_view("squeeze.default", "torch.squeeze", (), "squeeze")
_view("squeeze.dim", "torch.squeeze", (Arg("dim", "dim"),), "squeeze")
_view("squeeze.dims", "torch.squeeze", (Arg("dim", "dims"),), "squeeze")
_view("unsqueeze.default", "torch.unsqueeze", (Arg("dim", "new_dim"),), "unsqueeze")
_view(
    "unfold.default",
    f"{_ATEN}.unfold",
    (
        Arg("dimension", "dim"),
        Arg("size", "int", "count"),
        Arg("step", "int", values=(1, 3)),
    ),
    "unfold",
    first=Arg("self", promotes=True, min_rank=1, nonempty=True),
)
_view(
    "diagonal.default",
    "torch.diagonal",
    (
        Arg("offset", "int", values=(-2, 2), optional=True, default=0),
        Arg("dim1", "choice", values=(0,), optional=True, default=0),
        Arg("dim2", "choice", values=(1, -1), optional=True, default=1),
    ),
    "diagonal",
    first=Arg("self", promotes=True, min_rank=2),
)
_view("alias.default", f"{_ATEN}.alias", (), "like_first")
_view("detach.default", "torch.detach", (), "like_first", lowering="view:alias")
_view(
    "split.Tensor",
    "torch.split",
    (Arg("split_size", "int", values=(1, 4)), _DIM),
    "split",
    first=_RANKED,
)
_view(
    "split_with_sizes.default",
    "torch.split_with_sizes",
    (Arg("split_sizes", "ints", "partition"), _DIM),
    "split_sizes",
    first=_RANKED,
)
_view("unbind.int", "torch.unbind", (_DIM,), "unbind", first=_RANKED)

_LIST = Arg("tensors", "tensors", "cat", promotes=True, min_rank=1)
add("cat.default", "torch.cat", "copy", (_LIST, _DIM), "copy:cat", "promote", "cat", ALL)
add(
    "stack.default",
    "torch.stack",
    "copy",
    (Arg("tensors", "tensors", "same", promotes=True), Arg("dim", "new_dim", optional=True,
                                                           default=0)),
    "copy:stack",
    "promote",
    "stack",
    ALL,
)  # fmt: skip
_view(
    "flip.default",
    "torch.flip",
    (Arg("dims", "dims"),),
    "like_first",
    kind="copy",
    lowering="copy:flip",
)
_view(
    "roll.default",
    "torch.roll",
    (Arg("shifts", "ints", "per_dim", values=(-3, 3)), Arg("dims", "dims")),
    "like_first",
    kind="copy",
    lowering="copy:roll",
)
_view(
    "constant_pad_nd.default",
    "torch.constant_pad_nd",
    (
        Arg("pad", "ints", "padding", values=(0, 3)),
        Arg("value", "scalar", optional=True, default=0),
    ),
    "pad",
    first=_RANKED,
    kind="copy",
    lowering="copy:pad",
)
_view(
    "repeat.default",
    f"{_ATEN}.repeat",
    (Arg("repeats", "ints", "repeats", values=(1, 3)),),
    "repeat",
    kind="copy",
    lowering="copy:repeat",
)
for _name in ("tril", "triu"):
    _view(
        f"{_name}.default",
        f"torch.{_name}",
        (Arg("diagonal", "int", values=(-2, 2), optional=True, default=0),),
        "like_first",
        first=Arg("self", promotes=True, min_rank=2),
        kind="copy",
        lowering=f"copy:{_name}",
    )

# -- factories ------------------------------------------------------------------------------------

_DTYPE = Arg("dtype", "dtype", keyword=True, optional=True)
for _name, _value in (("zeros", "0"), ("ones", "1"), ("full", "fill_value")):
    _fill = (Arg("fill_value", "scalar"),) if _name == "full" else ()
    add(
        f"{_name}.default",
        f"torch.{_name}",
        "factory",
        (Arg("size", "sizes"), *_fill, _DTYPE),
        f"factory:{_value}",
        "filled",
        "given",
        ALL,
    )
    add(
        f"{_name}_like.default",
        f"torch.{_name}_like",
        "factory",
        (SELF, *_fill, _DTYPE),
        f"factory:{_value}",
        "filled_like",
        "like_first",
        ALL,
    )
for _name, _value in (("zeros", "0"), ("ones", "1"), ("full", "fill_value")):
    _fill = (Arg("fill_value", "scalar"),) if _name == "full" else ()
    add(
        f"new_{_name}.default",
        f"torch.Tensor.new_{_name}",
        "factory",
        (SELF, Arg("size", "sizes"), *_fill, _DTYPE),
        f"factory:{_value}",
        "filled_like",
        "given",
        ALL,
    )
_EMPTY = {"lowering": "memory without a value: the wrapper allocates it"}
add(
    "empty.memory_format",
    "torch.empty",
    "factory",
    (Arg("size", "sizes"), _DTYPE),
    None,
    "filled",
    "given",
    ALL,
    reasons=_EMPTY,
)
add(
    "empty_like.default",
    "torch.empty_like",
    "factory",
    (SELF, _DTYPE),
    None,
    "filled_like",
    "like_first",
    ALL,
    reasons=_EMPTY,
)
add(
    "scalar_tensor.default",
    "torch.scalar_tensor",
    "factory",
    (Arg("s", "scalar"), _DTYPE),
    "factory:s",
    "filled",
    "scalar_result",
    ALL,
    doc="Without `dtype` the default float, whatever the number.",
)
_STEP = Arg("step", "scalar", values=(1, 3), optional=True, default=1)
add(
    "arange.default",
    "torch.arange",
    "factory",
    (Arg("end", "scalar", values=(0, 12)), _DTYPE),
    "factory:arange",
    "counted",
    "counted",
    ALL - {"bool"},
)
add(
    "arange.start",
    "torch.arange",
    "factory",
    (Arg("start", "scalar", values=(-4, 0)), Arg("end", "scalar", values=(0, 12)), _DTYPE),
    "factory:arange",
    "counted",
    "counted",
    ALL - {"bool"},
)
add(
    "arange.start_step",
    "torch.arange",
    "factory",
    (Arg("start", "scalar", values=(-4, 0)), Arg("end", "scalar", values=(0, 12)), _STEP, _DTYPE),
    "factory:arange",
    "counted",
    "counted",
    ALL - {"bool"},
    doc="start + i * step, computed in int64 for integers and in float64 rounded for floats.",
)
add(
    "eye.default",
    "torch.eye",
    "factory",
    (Arg("n", "int", values=(0, 6)), _DTYPE),
    "factory:eye",
    "filled",
    "square",
    ALL,
)

# -- contractions ---------------------------------------------------------------------------------

_LIBRARY = {"lowering": "the vendor's library, through ATen, unless a tuned kernel wins"}
_WIDE = ALL - {"bool"}


def _contraction(
    name: str, call: str, args: tuple[Arg, ...], shape: str, accepts: Any = _WIDE
) -> None:
    add(
        name,
        call,
        "contraction",
        args,
        None,
        "same",
        shape,
        accepts,
        tolerance=SUMMED,
        reasons=_LIBRARY,
    )


def _tensor(name: str, relation: str = "free", low: int = 0, high: int = 4, **more: Any) -> Arg:
    return Arg(name, relation=relation, promotes=True, min_rank=low, max_rank=high, **more)


_SCALE = tuple(
    Arg(name, "scalar", values=(-2, 2), keyword=True, optional=True, default=1)
    for name in ("beta", "alpha")
)
_contraction(
    "mm.default",
    "torch.mm",
    (_tensor("self", low=2, high=2), _tensor("mat2", "matmul", 2, 2)),
    "mm",
)
_contraction(
    "bmm.default",
    "torch.bmm",
    (_tensor("self", low=3, high=3), _tensor("mat2", "matmul", 3, 3)),
    "bmm",
)
_contraction(
    "mv.default",
    "torch.mv",
    (_tensor("self", low=2, high=2), _tensor("vec", "matmul", 1, 1)),
    "mv",
)
_contraction(
    "dot.default",
    "torch.dot",
    (_tensor("self", low=1, high=1), _tensor("tensor", "same", 1, 1)),
    "dot",
)
_contraction(
    "addmm.default",
    "torch.addmm",
    (
        _tensor("self", "addmm", 0, 2),
        _tensor("mat1", low=2, high=2),
        _tensor("mat2", "matmul", 2, 2),
        *_SCALE,
    ),
    "addmm",
)
_contraction(
    "baddbmm.default",
    "torch.baddbmm",
    (
        _tensor("self", "addmm", 0, 3),
        _tensor("batch1", low=3, high=3),
        _tensor("batch2", "matmul", 3, 3),
        *_SCALE,
    ),
    "baddbmm",
)
_contraction(
    "matmul.default",
    "torch.matmul",
    (_tensor("self", low=1), _tensor("other", "matmul", 1)),
    "matmul",
)
_contraction(
    "linear.default",
    "torch.nn.functional.linear",
    (
        _tensor("input", low=1),
        _tensor("weight", "last", 2, 2),
        _tensor("bias", "features", 1, 1, optional=True),
    ),
    "linear",
    FLOATS,
)
_contraction(
    "convolution.default",
    "torch.convolution",
    (
        _tensor("input", low=3, high=5, nonempty=True),
        # A border's zeros times what is not finite: eager's libraries leave them out or not, as the
        # image lies in memory.
        _tensor("weight", "kernel", 3, 5, values=(-3e4, 3e4), nan=False),
        _tensor("bias", "channels", 1, 1, optional=True),
        Arg("stride", "ints", "spatial", values=(1, 2)),
        Arg("padding", "ints", "spatial", values=(0, 2)),
        Arg("dilation", "ints", "spatial", values=(1, 2)),
        Arg("transposed", "bool", values=(False, True)),
        Arg("output_padding", "ints", "spatial", values=(0, 0)),
        Arg("groups", "int", "divisor", values=(1, 2)),
    ),
    "convolution",
    FLOATS,
)
_contraction(
    "scaled_dot_product_attention.default",
    "torch.nn.functional.scaled_dot_product_attention",
    (
        _tensor("query", low=4, high=4, nonempty=True),
        _tensor("key", "attention", 4, 4),
        _tensor("value", "attention", 4, 4),
        Arg("attn_mask", "mask", "attention", optional=True),
        Arg("dropout_p", "float", values=(0.0, 0.0), optional=True, default=0.0),
        Arg("is_causal", "bool", optional=True, default=False),
    ),
    "attention",
    FLOATS,
)

# -- gathers and scatters -------------------------------------------------------------------------

_INDEX = Arg("index", "index", "gather")
_ROWS = Arg("index", "index", max_rank=1)
_FILLED = Arg("self", promotes=True, min_rank=1, nonempty=True)
_DIM_FIRST = Arg("dim", "dim")
add(
    "embedding.default",
    "torch.embedding",
    "gather",
    (_tensor("weight", low=2, high=2, nonempty=True), Arg("indices", "index", max_rank=3)),
    "gather:embedding",
    "first",
    "embedding",
    FLOATS,
)
add(
    "index_select.default",
    "torch.index_select",
    "gather",
    (_FILLED, _DIM_FIRST, _ROWS),
    "gather:index_select",
    "first",
    "index_select",
    ALL,
)
add(
    "gather.default",
    "torch.gather",
    "gather",
    (_FILLED, _DIM_FIRST, _INDEX),
    "gather:gather",
    "first",
    "gather",
    ALL,
)
add(
    "index.Tensor",
    f"{_ATEN}.index",
    "gather",
    (_FILLED, Arg("indices", "indices", max_rank=2)),
    "gather:index",
    "first",
    "index",
    ALL,
    doc="Negative positions count from the end; one out of range raises.",
)
add(
    "scatter.src",
    "torch.scatter",
    "scatter",
    (_FILLED, _DIM_FIRST, Arg("index", "index", "unique"), Arg("src", relation="selected",
                                                              promotes=True)),
    "scatter:set",
    "same",
    "like_first",
    ALL,
)  # fmt: skip
add(
    "scatter.value",
    "torch.scatter",
    "scatter",
    (_FILLED, _DIM_FIRST, _INDEX, Arg("value", "scalar")),
    "scatter:set",
    "first",
    "like_first",
    ALL,
)
add(
    "scatter_add.default",
    "torch.scatter_add",
    "scatter",
    (_FILLED, _DIM_FIRST, _INDEX, Arg("src", relation="selected", promotes=True)),
    "scatter:add",
    "same",
    "like_first",
    ALL - {"bool"},
    tolerance=SUMMED,
)
add(
    "index_add.default",
    "torch.index_add",
    "scatter",
    (_FILLED, _DIM_FIRST, Arg("index", "index", min_rank=1, max_rank=1),
     Arg("source", relation="rows", promotes=True)),
    "scatter:index_add",
    "same",
    "like_first",
    ALL - {"bool"},
    tolerance=SUMMED,
)  # fmt: skip

# -- pooling --------------------------------------------------------------------------------------

_WINDOW = (
    Arg("kernel_size", "ints", "spatial", values=(1, 3)),
    Arg("stride", "ints", "spatial", values=(1, 2), optional=True, default=()),
    Arg("padding", "ints", "spatial", values=(0, 0), optional=True, default=0),
)
_CEIL = Arg("ceil_mode", "bool", optional=True, default=False)
_PLANE = Arg("self", promotes=True, min_rank=4, max_rank=4, nonempty=True, min_length=3)
add(
    "max_pool2d_with_indices.default",
    f"{_ATEN}.max_pool2d_with_indices",
    "pooling",
    (_PLANE, *_WINDOW, Arg("dilation", "ints", "spatial", values=(1, 1), optional=True, default=1),
     _CEIL),
    "window:max_pool2d",
    "value_and_index",
    "pool_pair",
    FLOATS,
)  # fmt: skip
add(
    "avg_pool2d.default",
    f"{_ATEN}.avg_pool2d",
    "pooling",
    (_PLANE, *_WINDOW, _CEIL, Arg("count_include_pad", "bool", optional=True, default=True)),
    "window:avg_pool2d",
    "same_floating",
    "pool",
    FLOATS,
    tolerance=SUMMED,
)
add(
    "_adaptive_avg_pool2d.default",
    f"{_ATEN}._adaptive_avg_pool2d",
    "pooling",
    (_PLANE, Arg("output_size", "ints", "spatial", values=(1, 4))),
    "window:adaptive_avg_pool2d",
    "same_floating",
    "adaptive_pool",
    FLOATS,
    tolerance=SUMMED,
)
add(
    "upsample_nearest2d.default",
    f"{_ATEN}.upsample_nearest2d",
    "pooling",
    (_PLANE, Arg("output_size", "ints", "spatial", values=(1, 8))),
    "resize:nearest2d",
    "same_floating",
    "upsample",
    FLOATS,
    tolerance=tolerance(0, 0, 0),
)
