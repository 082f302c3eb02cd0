"""A case is data: its text runs, its identity depends on its content alone."""

import pickle

import pytest

from conformance.case import Drawn, Literal, Storage, Tensor, Value, show
from conformance.render import inputs_source
from tests.tiny.conformance.samples import case


def test_the_digest_depends_on_content_only():
    assert case().digest == case(label="other").digest == pickle.loads(pickle.dumps(case())).digest
    assert case().digest != case(values=(1.0, 2.0, 3.0, 5.0)).digest
    # 0.0 == -0.0 in Python, and they are different inputs
    assert case(values=(0.0,)).digest != case(values=(-0.0,)).digest


def test_the_id_names_suite_subject_variant_and_label():
    assert case("here").id == "made/sin/float32/here"
    assert case().id == f"made/sin/float32/{case().digest}"


def test_a_storage_has_as_many_values_as_it_says():
    with pytest.raises(ValueError, match="2 values for 3"):
        Storage("s", "float32", 3, Literal((1.0, 2.0)))


@pytest.mark.parametrize(
    "value",
    [(), (1,), [1, 2.5], {"a": (True, None)}, 1e-320, -0.0, 2 + 3j, "x", (1, (2, [3]))],
    ids=str,
)
def test_show_is_read_back_as_it_was(value):
    assert repr(eval(show(value))) == repr(value)


def test_show_of_infinity_needs_the_prelude():
    from math import inf, nan

    names = {"inf": inf, "nan": nan}
    assert repr(eval(show([inf, -inf, nan, complex(inf, 0)]), names)) == repr(
        [inf, -inf, nan, complex(inf, 0)]
    )


def test_inputs_are_statements_in_order():
    text = inputs_source(
        (
            Storage("s", "float32", 4, Literal((0.0, 1.0, 2.0, 3.0))),
            Tensor("x", "s", (2, 2), (1, 2), 0, requires_grad=True),
            Tensor("y", "s", (2,), (2,), 1, view_dtype="int32", neg=True, conj=True),
            Storage("t", "int64", 3, Drawn("integers", 5, low=-1, high=9)),
            Value("n", "x.shape[0] + 1"),
        ),
        device="cuda",
        wrap="_moved",
    )
    assert text.splitlines() == [
        "s = _moved(torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float32).to('cuda'))",
        "x = s.as_strided((2, 2,), (1, 2,), 0).requires_grad_()",
        "y = torch._neg_view(s.as_strided((2,), (2,), 1).view(torch.int32).conj())",
        "t = _moved(torch.randint(-1, 9, (3,), generator=torch.Generator().manual_seed(5))"
        ".to(torch.int64).to('cuda'))",
        "n = x.shape[0] + 1",
    ]
