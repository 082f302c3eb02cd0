"""Arrays of numpy in a frame: given, made, written to, shared with tensors, and given back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


def grad(*s):
    return torch.randn(*s, requires_grad=True)


def A(*shape):
    return np.random.randn(*shape)


@cases()
def constants_that_numpy_rounds_in_its_way():
    def f(x):
        w = np.linspace(0, 1, 4, dtype=np.float32)
        w[0] = 3
        made = np.arange(0, 1, 0.3), np.logspace(0, 2, 5), np.geomspace(1.0, 7.0, 4), np.hanning(5)
        return x * torch.from_numpy(w), np.linspace(-1, 1, 7), *made, np.vander([1.0, 2.5, 3.1])

    return f, [(t(3, 4),), (t(3, 4),)]


@cases(graphs=3, recompiles=2)
def an_array_of_a_length_that_changes():
    def f(x, n):
        return x[:, :n] * torch.as_tensor(np.linspace(0, 1, n)), np.full((n,), 0.5)

    return f, [(t(3, 6), n) for n in (3, 4, 5)]


@cases()
def to_numpy_sum():
    return lambda x: (x * 2).numpy().sum(), [(t(3),), (t(3),)]


@cases()
def numpy_sin():
    return lambda x: np.sin((x * 2).numpy()), [(t(3),), (t(3),)]


@cases(graphs=0, breaks=1)
def numpy_sin_of_tensor():
    return lambda x: np.sin(x), [(t(3),), (t(3),)]


@cases()
def array_argument():
    return lambda a: a * 2 + 1, [(A(3),), (A(3),)]


@cases()
def array_argument_method():
    return lambda a: (
        a.sum(),
        a.mean(axis=0),
        a.T,
        a.reshape(-1),
        a.shape,
        a.dtype,
        a.ndim,
        a.size,
    ), [(A(3, 4),), (A(3, 4),)]


@cases()
def array_and_tensor():
    return lambda a, x: torch.from_numpy(a) + x, [(A(3), t(3)), (A(3), t(3))]


@cases()
def array_and_tensor_back():
    def f(a, x):
        y = torch.from_numpy(a) + x
        z = y.numpy() * 2
        return z, y

    return f, [(A(3), t(3)), (A(3), t(3))]


@cases()
def array_made():
    def f(x):
        a = np.arange(3) * 2.0
        return x + torch.from_numpy(a), a

    return f, [(t(3),), (t(3),)]


@cases()
def array_functions():
    def f(a, b):
        return (
            np.dot(a, b),
            np.concatenate([a, b]),
            np.where(a > 0, a, b),
            np.maximum(a, b),
            np.exp(a),
            np.stack([a, b], axis=1),
            np.linalg.norm(a),
        )

    return f, [(A(3), A(3)), (A(3), A(3))]


@cases()
def array_written():
    def f(a):
        a[0] = 5
        a += 1
        return a * 2

    return f, [(A(3),), (A(3),)]


@cases()
def array_written_through_tensor():
    def f(a):
        x = torch.from_numpy(a)
        x.add_(1)
        return a, x

    return f, [(A(3),), (A(3),)]


@cases()
def tensor_written_through_array():
    def f(x):
        a = x.numpy()
        a[0] = 7
        return x + 1

    return f, [(t(3),), (t(3),)]


@cases()
def returned_as_is():
    return lambda a: (a, a + 1), [(A(3),), (A(3),)]


@cases()
def array_int():
    return lambda a: (a // 2, a % 2, a / 2, a**2, -a, a == 2, ~a, a << 1), [
        (np.arange(4),),
        (np.arange(4) + 1,),
    ]


@cases()
def array_scalar():
    return lambda a: a * np.float32(2) + np.pi, [(A(3),), (A(3),)]


@cases()
def array_float32():
    return lambda a: (a * 2.0, a + np.float64(1), a.astype(np.float64), a.astype("int32")), [
        (A(3).astype(np.float32),),
        (A(3).astype(np.float32),),
    ]


@cases(graphs=2, breaks=1)
def array_index():
    return lambda a: (a[0], a[0, 1], a[:, 1], a[a > 0], a[[0, 1]], a[..., None], a[1:, ::2]), [
        (A(3, 4),),
        (A(3, 4),),
    ]


@cases(graphs=4, recompiles=3)
def array_dtype_change():
    return lambda a: a * 2, [(A(3),), (A(3).astype(np.float32),), (np.arange(3),), (A(4),)]


@cases(graphs=2, breaks=1, recompiles=1)
def numpy_random():
    return lambda x: x + np.random.rand(), [(t(3),), (t(3),)]


@cases(breaks=1)
def numpy_random_array():
    return lambda x: x + torch.from_numpy(np.random.rand(3)), [(t(3),), (t(3),)]


@cases()
def array_closure():
    a = A(3)
    return lambda x: x * torch.from_numpy(a), [(t(3),), (t(3),)]


@cases()
def array_closure_mul():
    a = A(3)

    def f(x):
        return x * torch.as_tensor(a), torch.tensor(a)

    return f, [(t(3),), (t(3),)]


@cases(graphs=3, breaks=1)
def array_branch():
    def f(a):
        if a.sum() > 0:
            return a * 2
        return a * 3

    return f, [(np.ones(3),), (np.ones(3) * 2,), (-np.ones(3),)]


@cases(graphs=2, recompiles=1)
def array_shape_branch():
    def f(a):
        if a.shape[0] > 3:
            return a * 2
        return a * 3

    return f, [(np.ones(3),), (np.ones(5),)]


@cases(graphs=2, recompiles=1)
def array_isinstance():
    def f(a):
        if isinstance(a, np.ndarray):
            return a * 2
        return a * 3

    return f, [(np.ones(3),), (torch.ones(3),)]


@cases()
def array_iterate():
    return lambda a: [r * 2 for r in a], [(A(2, 3),), (A(2, 3),)]


@cases()
def array_string():
    return lambda a, x: (a, x + 1), [(np.array(["a", "b"]), t(3)), (np.array(["a", "b"]), t(3))]


@cases(breaks=1)
def array_object():
    return lambda a, x: (a[0], x + 1), [(np.array([None, 1]), t(3)), (np.array([None, 1]), t(3))]


@cases(graphs=0, breaks=1)
def array_negative_stride():
    return lambda a: a * 2, [(A(4)[::-1],), (A(4)[::-1],)]


@cases(graphs=0, breaks=1)
def an_axis_is_compared_with_nothing():
    class Axis:
        asked = 0

        def __eq__(self, other):
            self.asked += 1
            return False

        def __index__(self):
            return 0

    return lambda a, i: (np.sum(a, i), i.asked), [(A(4), Axis()), (A(4), Axis())]


@cases()
def quotients_of_whole_numbers():
    def f(a, x):
        steps = 2 * (np.arange(4) // 2) / 4
        made = 3 / a, a / a.astype(np.int8), np.divide(a, [2, 4, 8]), np.true_divide([1, 2], 3)
        return x / torch.from_numpy(1 / np.power(10, steps)), *made, a / 2.0, a / np.float32(2)

    return f, [(np.arange(1, 4), t(3, 4)), (np.arange(2, 5), t(3, 4))]


@cases()
def array_readonly():
    def mk():
        a = A(3)
        a.flags.writeable = False
        return a

    return lambda a: a * 2, [(mk(),), (mk(),)]


@cases()
def kmeans():
    def f(X, means):
        return np.argmin(np.linalg.norm(X - means[:, None], axis=2), axis=0)

    return f, [(A(6, 2), A(2, 2)), (A(6, 2), A(2, 2))]


@cases(graphs=0, breaks=1)
def array_tolist():
    return lambda a: a.tolist(), [(A(3),), (A(3),)]


@cases(breaks=2)
def array_item():
    return lambda a: (a.item(0), float(a[0]), len(a)), [(A(3),), (A(3),)]


@cases()
def array_of_list():
    return lambda x: torch.tensor(np.array([1.0, 2.0, 3.0])) + x, [(t(3),), (t(3),)]


@cases()
def asarray_from_tensor():
    return lambda x: np.asarray(x) + 1, [(t(3),), (t(3),)]


@cases()
def numpy_requires_grad():
    return lambda x: x.detach().numpy() * 2, [(grad(3),), (grad(3),)]


@cases(graphs=0)
def numpy_requires_grad_error():
    def f(x):
        try:
            return x.numpy()
        except RuntimeError as e:
            return str(e)

    return f, [(grad(3),), (grad(3),)]


@cases()
def numpy_force():
    return lambda x: x.numpy(force=True) * 2, [(grad(3),), (grad(3),)]


@cases()
def out_kw():
    def f(a, o):
        np.add(a, 1, out=o)
        return o * 2

    return f, [(A(3), np.zeros(3)), (A(3), np.zeros(3))]


@cases()
def matmul_op():
    return lambda a, b: a @ b, [(A(2, 3), A(3, 2)), (A(2, 3), A(3, 2))]


@cases()
def einsum():
    return lambda a, b: np.einsum("ij,jk->ik", a, b), [(A(2, 3), A(3, 2)), (A(2, 3), A(3, 2))]


@cases()
def nested_helper():
    def relu(a):
        return np.maximum(a, 0)

    def f(a):
        return {"r": relu(a), "l": [relu(-a)]}

    return f, [(A(3),), (A(3),)]


@cases(recompiles=1)
def dtype_compare():
    def f(a):
        return a * 2 if a.dtype == np.float64 else a

    return f, [(A(3),), (A(3).astype(np.float32),)]


@cases()
def zeros_like():
    return lambda a: (
        np.zeros_like(a),
        np.ones((2, 3)),
        np.full(3, 2.5),
        np.eye(2),
        np.linspace(0, 1, 3),
        np.zeros(3, dtype=np.int32) + a,
    ), [(A(3),), (A(3),)]


@cases()
def sort_etc():
    return lambda a: (
        np.sort(a),
        np.argsort(a),
        np.cumsum(a),
        np.clip(a, -1, 1),
        a.max(),
        a.argmax(),
        np.abs(a),
        np.round(a),
        np.any(a > 0),
        np.all(a > 0),
    ), [(A(5),), (A(5),)]


@cases()
def views_alias():
    def f(a):
        b = a[1:]
        b += 1
        return a, b, a.T, a.ravel()

    return f, [(A(4),), (A(4),)]


@cases()
def np_scalar_result():
    def f(a):
        return a.sum(), a[0], np.mean(a)

    return f, [(A(4),), (A(4),)]


@cases(graphs=2, breaks=1)
def print_array():
    def f(a):
        print(a * 2)
        return a + 1

    return f, [(A(4),), (A(4),)]


@cases(graphs=2, recompiles=1)
def one_array_twice():
    def f(a, b):
        a += 1
        return a * b, a is b

    a = A(3)
    return f, [(A(3), A(3)), (a, a), (A(3), A(3))]


@cases(graphs=2, recompiles=1)
def overlapping_arrays():
    def f(a, b):
        a += 1
        return a * b

    a = A(4)
    return f, [(A(3), A(3)), (a[1:], a[:3]), (A(3), A(3))], [a]


@cases(graphs=3, breaks=1, recompiles=1)
def array_and_tensor_of_one_memory():
    def f(a, x):
        a += 1
        x.mul_(2)
        return x * 2

    a = A(4)
    return f, [(A(4), t(4).double()), (a, torch.from_numpy(a))], [a]


@cases()
def array_in_a_container():
    def f(d, n):
        d["b"] = d["a"] * 2
        n.append(d["b"])
        n[0][1] = 3
        return d["b"] is n[-1]

    return f, [({"a": A(3)}, [A(3)]), ({"a": A(3)}, [A(3)])]


@cases()
def tensor_under_two_names():
    def f(x):
        a = x.numpy()
        y = torch.from_numpy(a)
        y.add_(1)
        a *= 2
        return a, y * 1, x, y is x

    return f


@cases()
def scalars_and_arrays_of_no_dimension():
    def f(a):
        s, z = a.sum(), np.asarray(a.max())
        s += 1
        z2 = z.reshape(())
        return (
            s,
            z,
            z2,
            s * 2,
            z * 2,
            a[0:1].squeeze(),
            type(s).__name__,
            isinstance(s, np.floating),
        )

    return f, [(A(3),), (A(3),)]


@cases(graphs=2, breaks=1, recompiles=1)
def read_only_written():
    def mk():
        a = A(3)
        a.flags.writeable = False
        return a

    def f(a):
        try:
            a[0] = 1
        except ValueError as error:
            return str(error), a * 2

    return f, [(mk(),), (mk(),), (A(3),)]


@cases()
def array_with_a_tensor():
    return lambda a, x: (a * 2, np.asarray(x) + a), [(A(3), t(3)), (A(3), t(3))]


@cases()
def numpy_of_numbers():
    def f(x):
        n = int(np.prod((2, 3))) + np.int64(2)
        return x * np.sqrt(2.0) + float(np.float32(1.5)) + n, np.dtype("float32"), np.float64(3)

    return f


@cases()
def wrapped():
    @torch.compiler.wrap_numpy
    def f(x, y):
        return {"z": np.maximum(x, 0) * y}, [x + 1]

    return f, [(t(3), t(3)), (t(3), t(3))]


@cases()
def wrapped_inside():
    import refcompiler

    @refcompiler.wrap_numpy
    def g(x, n):
        return np.maximum(x, 0) * n, x.T

    return lambda x: g(x * 2, 3)[0] + x


@cases()
def an_array_and_a_part_of_it():
    def f(a, b):
        return a @ b.T, a.sum(), b.reshape(-1)

    a, b = A(3, 3), A(3, 3)
    return f, [(a, a[1:]), (b, b[1:])]


@cases()
def tensors_and_the_scalars_of_arrays():
    def f(x, a, b):
        s, n = a[1], b.max()
        less = s - x.detach()
        return x + s, x - s, x * s, x / s, s * x, less, s / x, x / n, n / x.double(), x.sum(0) * n

    singles = A(3).astype(np.float32)
    return f, [(grad(3, 4), singles, A(2)), (grad(3, 4), singles + 1, A(2))]


@cases(graphs=0, breaks=1)
def a_bool_of_numpys_and_integers():
    def f(x):
        return x * np.True_

    return f, [(torch.arange(3),)] * 2


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
