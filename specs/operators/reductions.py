"""Operator rows: reductions, scans, softmax, normalisation, sorting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specs.operators.pointwise import ALL, FLOATS, NUMBERS, SELF, tolerance
from specs.operators.row import OPERATORS, Arg, Operator

_DIM = Arg("dim", "dim")
_DIMS = Arg("dim", "dims")
_KEEP = Arg("keepdim", "bool", optional=True, default=False)
_DTYPE = Arg("dtype", "dtype", keyword=True, optional=True, values=("float32", "float64"))
# Terms are added in another order than eager's, so the bound is loose in the terms' sum.
SUMMED = tolerance(32, 32, 2)


def add(
    name: str,
    call: str,
    kind: str,
    args: tuple[Arg, ...],
    lowering: str | None,
    rule: str,
    shape: str,
    accepts: frozenset[str],
    **more: Any,
) -> Operator:
    """Add a row."""
    return OPERATORS.add(
        Operator(
            name=f"aten.{name}",
            call=call,
            kind=kind,
            args=args,
            dtypes=accepts,
            dtype_rule=rule,
            shape_rule=shape,
            lowering=lowering,
            **more,
        )
    )


def _reduction(
    name: str,
    call: str,
    args: tuple[Arg, ...],
    lowering: str | None,
    rule: str,
    accepts: frozenset[str],
    **more: Any,
) -> None:
    shape = more.pop("shape", "reduce_dims")
    add(name, call, "reduction", (SELF, *args), lowering, rule, shape, accepts, **more)


_FILLED = Arg("self", promotes=True, nonempty=True)
_NONEMPTY = "needs at least one element per result"

for _name, _rule in (("sum", "accumulate"), ("mean", "average")):
    _accepts = ALL if _name == "sum" else FLOATS
    _reduction(
        f"{_name}.default",
        f"torch.{_name}",
        (_DTYPE,),
        f"reduce:{_name}",
        _rule,
        _accepts,
        shape="scalar_result",
        tolerance=SUMMED,
    )
    _reduction(
        f"{_name}.{'dim_IntList' if _name == 'sum' else 'dim'}",
        f"torch.{_name}",
        (_DIMS, _KEEP, _DTYPE),
        f"reduce:{_name}",
        _rule,
        _accepts,
        tolerance=SUMMED,
    )
_reduction(
    "prod.default",
    "torch.prod",
    (_DTYPE,),
    "reduce:prod",
    "accumulate",
    ALL,
    shape="scalar_result",
    tolerance=SUMMED,
)
_reduction(
    "prod.dim_int",
    "torch.prod",
    (_DIM, _KEEP, _DTYPE),
    "reduce:prod",
    "accumulate",
    ALL,
    tolerance=SUMMED,
)
for _name in ("amax", "amin"):
    add(
        f"{_name}.default",
        f"torch.{_name}",
        "reduction",
        (_FILLED, _DIMS, _KEEP),
        f"reduce:{_name}",
        "first",
        "reduce_dims",
        ALL,
        doc=f"nan if there is one; {_NONEMPTY}.",
    )
for _name in ("max", "min"):
    add(
        f"{_name}.default",
        f"torch.{_name}",
        "reduction",
        (_FILLED,),
        f"reduce:a{_name}",
        "first",
        "scalar_result",
        ALL,
        doc=f"nan if there is one; {_NONEMPTY}.",
    )
    add(
        f"{_name}.dim",
        f"torch.{_name}",
        "reduction",
        (_FILLED, _DIM, _KEEP),
        f"reduce:a{_name}+arg{_name}",
        "value_and_index",
        "reduce_dim_pair",
        ALL,
        doc=f"The first position of the extremum, or of the first nan; {_NONEMPTY}.",
    )
    add(
        f"arg{_name}.default",
        f"torch.arg{_name}",
        "reduction",
        (_FILLED, Arg("dim", "dim", optional=True), _KEEP),
        f"reduce:arg{_name}",
        "index_out",
        "reduce_dims",
        NUMBERS,
        doc=f"The first position, of the flattened tensor if `dim` is left out; {_NONEMPTY}.",
    )
for _name in ("any", "all"):
    _reduction(
        f"{_name}.default",
        f"torch.{_name}",
        (),
        f"reduce:{_name}",
        "truth",
        ALL,
        shape="scalar_result",
    )
    _reduction(f"{_name}.dim", f"torch.{_name}", (_DIM, _KEEP), f"reduce:{_name}", "truth", ALL)
    _reduction(
        f"{_name}.dims",
        f"torch.{_name}",
        (Arg("dim", "dims", optional=True), _KEEP),
        f"reduce:{_name}",
        "truth",
        ALL,
        shape="reduce_listed",
        doc="An empty list of dimensions reduces nothing, `None` all.",
    )
_CORRECTION = Arg("correction", "int", values=(0, 1), keyword=True, optional=True, default=1)
_KEEP_NAMED = Arg("keepdim", "bool", keyword=True, optional=True, default=False)
for _name in ("var", "std"):
    _reduction(
        f"{_name}.correction",
        f"torch.{_name}",
        (Arg("dim", "dims", optional=True), _CORRECTION, _KEEP_NAMED),
        f"reduce:{_name}",
        "average",
        FLOATS,
        tolerance=SUMMED,
        doc="nan where no degree of freedom is left.",
    )
for _name in ("var", "std"):
    _reduction(
        f"{_name}_mean.correction",
        f"torch.{_name}_mean",
        (Arg("dim", "dims", optional=True), _CORRECTION, _KEEP_NAMED),
        f"reduce:{_name}+mean",
        "pair",
        FLOATS,
        shape="reduce_dim_pair",
        tolerance=SUMMED,
    )
_reduction(
    "linalg_vector_norm.default",
    "torch.linalg.vector_norm",
    (
        Arg("ord", "choice", values=(2, 1, float("inf"), float("-inf"), 0, 3), optional=True,
            default=2),
        Arg("dim", "dims", optional=True),
        _KEEP,
        _DTYPE,
    ),
    "reduce:norm",
    "average",
    FLOATS,
    tolerance=SUMMED,
)  # fmt: skip
_reduction(
    "logsumexp.default",
    "torch.logsumexp",
    (_DIMS, _KEEP),
    "compose:logsumexp",
    "exponentials",
    ALL - {"bool"},
    tolerance=SUMMED,
)
_reduction(
    "count_nonzero.dim_IntList",
    "torch.count_nonzero",
    (_DIMS,),
    "reduce:count_nonzero",
    "index_out",
    ALL,
)

# -- scans ----------------------------------------------------------------------------------------

for _name in ("cumsum", "cumprod"):
    add(
        f"{_name}.default",
        f"torch.{_name}",
        "scan",
        (SELF, _DIM, _DTYPE),
        f"scan:{'add' if _name == 'cumsum' else 'mul'}",
        "accumulate",
        "like_first",
        ALL,
        tolerance=SUMMED,
    )
for _name in ("cummax", "cummin"):
    add(
        f"{_name}.default",
        f"torch.{_name}",
        "scan",
        (SELF, _DIM),
        f"scan:{_name[3:]}+arg{_name[3:]}",
        "value_and_index",
        "sorted_pair",
        ALL,
    )

# -- softmax and normalisation --------------------------------------------------------------------

for _name in ("softmax", "log_softmax"):
    add(
        f"_{_name}.default",
        f"torch.ops.aten._{_name}",
        "normalisation",
        (SELF, _DIM, Arg("half_to_float", "bool", values=(False,))),
        f"compose:{_name}",
        "softmax_out",
        "like_first",
        FLOATS,
        tolerance=SUMMED,
    )
    add(
        f"{_name}.int",
        f"torch.{_name}",
        "normalisation",
        (SELF, _DIM, Arg("dtype", "dtype", optional=True, values=("float32", "float64"))),
        f"compose:{_name}",
        "average",
        "like_first",
        FLOATS,
        tolerance=SUMMED,
    )
for _name in ("softmax", "log_softmax"):
    add(
        f"_{_name}_backward_data.default",
        f"torch.ops.aten._{_name}_backward_data",
        "normalisation",
        (
            Arg("grad_output", promotes=True, min_rank=1),
            Arg("output", relation="same", promotes=True),
            _DIM,
            Arg("input_dtype", "dtype", values=("same",)),
        ),
        f"compose:{_name}_backward",
        "same_floating",
        "like_first",
        FLOATS,
        tolerance=SUMMED,
    )
_INPUT = Arg("input", promotes=True, min_rank=1, nonempty=True)
_WEIGHT = Arg("weight", relation="normalized", promotes=True, optional=True)
_BIAS = Arg("bias", relation="normalized", promotes=True, optional=True)
_EPS = Arg("eps", "float", values=(1e-6, 1e-2), optional=True, default=1e-5)
_SHAPE = Arg("normalized_shape", "shape")
add(
    "native_layer_norm.default",
    "torch.native_layer_norm",
    "normalisation",
    (_INPUT, _SHAPE, _WEIGHT, _BIAS, Arg("eps", "float", values=(1e-6, 1e-2))),
    "compose:layer_norm",
    "normalised",
    "layer_norm",
    FLOATS,
    tolerance=SUMMED,
)
add(
    "layer_norm.default",
    "torch.nn.functional.layer_norm",
    "normalisation",
    (_INPUT, _SHAPE, _WEIGHT, _BIAS, _EPS),
    "compose:layer_norm",
    "same_floating",
    "like_input",
    FLOATS,
    tolerance=SUMMED,
)
add(
    "rms_norm.default",
    "torch.nn.functional.rms_norm",
    "normalisation",
    (
        _INPUT,
        _SHAPE,
        _WEIGHT,
        Arg("eps", "float", values=(1e-6, 1e-2), optional=True),
    ),
    "compose:rms_norm",
    "same_floating",
    "like_input",
    FLOATS,
    tolerance=SUMMED,
    doc="`eps` left out is the dtype's epsilon.",
)
_IMAGE = Arg("input", promotes=True, min_rank=2, max_rank=5, nonempty=True)
_CHANNEL_WEIGHT = Arg("weight", relation="channels", promotes=True, optional=True)
_CHANNEL_BIAS = Arg("bias", relation="channels", promotes=True, optional=True)
add(
    "group_norm.default",
    "torch.nn.functional.group_norm",
    "normalisation",
    (
        Arg("input", promotes=True, min_rank=3, max_rank=5, nonempty=True),
        Arg("num_groups", "int", "divisor", values=(1,)),
        _CHANNEL_WEIGHT,
        _CHANNEL_BIAS,
        _EPS,
    ),
    "compose:group_norm",
    "same_floating",
    "like_input",
    FLOATS,
    tolerance=SUMMED,
    doc="`num_groups` divides the channels (dimension 1).",
)
add(
    "native_group_norm.default",
    "torch.native_group_norm",
    "normalisation",
    (
        Arg("input", promotes=True, min_rank=3, max_rank=5, nonempty=True, contiguous=True),
        replace(_CHANNEL_WEIGHT, contiguous=True),
        replace(_CHANNEL_BIAS, contiguous=True),
        Arg("N", "int", "length_of_0"),
        Arg("C", "int", "length_of_1"),
        Arg("HxW", "int", "length_of_rest"),
        Arg("group", "int", "divisor", values=(1,)),
        Arg("eps", "float", values=(1e-6, 1e-2)),
    ),
    "compose:group_norm",
    "normalised",
    "group_norm",
    FLOATS,
    tolerance=SUMMED,
    doc="`group_norm` makes its tensors contiguous first; this one relies on it.",
)
add(
    "batch_norm.default",
    "torch.nn.functional.batch_norm",
    "normalisation",
    (
        _IMAGE,
        Arg("running_mean", relation="channels", promotes=True),
        Arg("running_var", relation="channels", promotes=True, values=(0.1, 4.0)),
        _CHANNEL_WEIGHT,
        _CHANNEL_BIAS,
        Arg("training", "bool", values=(False,), optional=True, default=False),
    ),
    "compose:batch_norm",
    "same_floating",
    "like_input",
    FLOATS,
    tolerance=SUMMED,
    doc="Inference; in training the running statistics are mutated, which AOT functionalises.",
)
add(
    "_native_batch_norm_legit.no_stats",
    "torch.ops.aten._native_batch_norm_legit",
    "normalisation",
    (
        _IMAGE,
        Arg("weight", relation="channels", promotes=True, optional=True),
        Arg("bias", relation="channels", promotes=True, optional=True),
        Arg("training", "bool", values=(True,)),
        Arg("momentum", "float", values=(0.1, 0.1)),
        Arg("eps", "float", values=(1e-6, 1e-2)),
    ),
    "compose:batch_norm_training",
    "normalised",
    "batch_norm",
    FLOATS,
    tolerance=SUMMED,
)
add(
    "_native_batch_norm_legit_no_training.default",
    "torch.ops.aten._native_batch_norm_legit_no_training",
    "normalisation",
    (
        _IMAGE,
        Arg("weight", relation="channels", promotes=True, optional=True),
        Arg("bias", relation="channels", promotes=True, optional=True),
        Arg("running_mean", relation="channels", promotes=True),
        Arg("running_var", relation="channels", promotes=True, values=(0.1, 4.0)),
        Arg("momentum", "float", values=(0.1, 0.1)),
        Arg("eps", "float", values=(1e-6, 1e-2)),
    ),
    "compose:batch_norm",
    "normalised",
    "batch_norm_inference",
    FLOATS,
    tolerance=SUMMED,
)

# -- sorting --------------------------------------------------------------------------------------

_NO_SORT = {"lowering": "sorting networks are no loop nest; ATen sorts"}
add(
    "sort.default",
    "torch.sort",
    "sort",
    (SELF, Arg("dim", "dim", optional=True, default=-1), Arg("descending", "bool", optional=True,
                                                             default=False)),
    None,
    "value_and_index",
    "sorted_pair",
    ALL,
    reasons=_NO_SORT,
    doc="Not stable: positions of equal elements are free.",
)  # fmt: skip
add(
    "argsort.default",
    "torch.argsort",
    "sort",
    (
        SELF,
        Arg("dim", "dim", optional=True, default=-1),
        Arg("descending", "bool", optional=True, default=False),
    ),
    None,
    "index_out",
    "like_first",
    ALL,
    reasons=_NO_SORT,
    doc="Not stable: positions of equal elements are free.",
)
add(
    "topk.default",
    "torch.topk",
    "sort",
    (
        SELF,
        Arg("k", "int", "count"),
        Arg("dim", "dim", optional=True, default=-1),
        Arg("largest", "bool", optional=True, default=True),
        Arg("sorted", "bool", optional=True, default=True, values=(True,)),
    ),
    None,
    "value_and_index",
    "topk",
    NUMBERS,
    reasons=_NO_SORT,
    doc="Positions among equal elements are free.",
)
