"""Global switches of torch set inside a frame, and blocks that look at state alone."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


@cases()
def kernels_of_attention():
    def f(q):
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(q, q, q)
            flash = torch.backends.cuda.flash_sdp_enabled()
        return y * 2, flash, torch.backends.cuda.flash_sdp_enabled()

    return f, [(t(1, 2, 3, 4),)] * 2


@cases(graphs=3, breaks=1, recompiles=1)
def kernels_of_attention_around_a_break():
    def f(q):
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
            n = q.sum().item()
            y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
            order = torch._C._get_sdp_priority_order()
        return y + n, order, torch._C._get_sdp_priority_order()

    return f, [(t(1, 2, 3, 4),)] * 2


@cases(graphs=2, recompiles=1)
def kernels_of_attention_set_outside():
    def f(q):
        flash = torch.backends.cuda.flash_sdp_enabled()
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, q, q), flash

    off = lambda: torch.backends.cuda.enable_flash_sdp(False)  # noqa: E731
    on = lambda: torch.backends.cuda.enable_flash_sdp(True)  # noqa: E731
    return f, [(q := t(1, 2, 3, 4),), off, (q,), on, (q,)]


@cases(graphs=3, breaks=1, recompiles=1)
def gradients_switched_by_a_number():
    """It is a symbol from the second compilation on, and decided where the mode is set."""

    def f(x):
        with torch.set_grad_enabled(x.sum().item() > 100):
            y = x * 3
        return y, torch.is_grad_enabled()

    return f, [(t(3, requires_grad=True),) for _ in range(3)]


@cases()
def default_dtype_in_a_block():
    def f(x):
        torch.set_default_dtype(torch.float64)
        try:
            y = torch.ones(3)
        finally:
            torch.set_default_dtype(torch.float32)
        return x + y, torch.ones(1), torch.get_default_dtype()

    return f, [(t(3),)] * 2


@cases(graphs=3, breaks=1, recompiles=1)
def default_dtype_around_a_break():
    def f(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(3) + x.sum().item()
        torch.set_default_dtype(torch.float32)
        return x + y, torch.ones(1)

    return f, [(t(3),)] * 2


@cases(graphs=3, recompiles=2)
def default_dtype_left_set():
    def f(x, dtype):
        torch.set_default_dtype(dtype)
        return x + torch.ones(3)

    half, single = torch.float64, torch.float32
    return f, [(t(3), dtype) for dtype in (half, half, single, half, single)]


@cases(breaks=1)
def an_error_of_the_graph_restores_switches():
    def f(x, i):
        torch.set_default_dtype(torch.float64)
        try:
            return x[i] + torch.ones(2)
        finally:
            torch.set_default_dtype(torch.float32)

    return f, [(t(3), torch.tensor([0, 1])), (t(3), torch.tensor([0, 7]))] * 2


@cases()
def deterministic_algorithms():
    def f(x):
        torch.use_deterministic_algorithms(True, warn_only=True)
        y = x.cumsum(0), torch.is_deterministic_algorithms_warn_only_enabled()
        torch.use_deterministic_algorithms(False)
        return y, torch.are_deterministic_algorithms_enabled()

    return f, [(t(3),)] * 2


@cases(graphs=4, breaks=3, recompiles=1)
def a_break_in_a_block_of_a_device():
    def f(x):
        with torch.device("meta"):
            y = torch.ones(3)
            n = x.sum().item()
            z = torch.ones(2)
        return x + n, y.device, z.device, torch.ones(1).device

    return f, [(t(3),)] * 2


@cases(graphs=2, recompiles=1)
def default_device_read():
    def f(x):
        with torch.device("meta"):
            inside = torch.get_default_device()
        return x.to(torch.get_default_device()) + 1, inside

    on = lambda: torch.set_default_device("cpu")  # noqa: E731
    off = lambda: torch.set_default_device(None)  # noqa: E731
    return f, [(x := t(3),), on, (x,), off, (x,)]


@cases()
def profiler_ranges():
    def f(x):
        with torch.profiler.record_function("a range") as block:
            y = x.sin()
        return y * 2, block.name

    return f, [(t(3),)] * 2


def test_a_running_profiler_sees_its_ranges():
    import refcompiler

    def f(x):
        with torch.profiler.record_function("mine"):
            return x.sin() * 2

    compiled = refcompiler.compile(f, backend="eager")
    compiled(t(3))
    with torch.profiler.profile() as profile:
        compiled(t(3))
    assert [event.key for event in profile.key_averages() if event.key == "mine"] == ["mine"]


@cases()
def checks():
    def f(x):
        torch._check(x.shape[0] == 3, lambda: "three")
        torch._assert(x.shape[0] == 3, "three")
        return x + (2 if torch.is_storage(x) else 1)

    return f, [(t(3),)] * 2


@cases()
def anomalies_looked_for():
    def f(x):
        with torch.autograd.set_detect_anomaly(True):
            y = x.sin()
        return y * 2, torch.is_anomaly_enabled()

    return f, [(t(3).requires_grad_(),), (t(3).requires_grad_(),)]


@cases(graphs=1, breaks=2)
def flags_of_a_library():
    def f(x):
        with torch.backends.mkldnn.flags(enabled=False):
            return x.sin()

    return f, [(t(3),), (t(3),)]


@cases()
def hooks_on_saved_tensors_refused():
    def f(x):
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            y = x.sin()
        return y * 2

    return f, [(t(3).requires_grad_(),), (t(3).requires_grad_(),)]


@cases(graphs=2, breaks=1)
def hooks_on_saved_tensors():
    seen = []

    def pack(tensor):
        seen.append(tuple(tensor.shape))
        return tensor.half()

    def f(x):
        y = x * 2
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.float()):
            z = y.sin()
        with torch.no_grad():
            return z, z.cos()

    return f, [(t(3).requires_grad_(),), (t(3).requires_grad_(),)], [seen]


@cases(graphs=2, breaks=1)
def breaks_where_tensors_are_packed():
    packed = []

    class Packed(torch.autograd.graph.saved_tensors_hooks):
        def __init__(self):
            super().__init__(lambda x: packed.append(x.shape) or (x * 2), lambda x: x / 2)

    def inner(x):
        with Packed():
            y = x * x
            print("inside")
            with Packed():
                y = y * x
            return y.exp()

    def f(x):
        return inner(x + 1).sin()

    return f, [(t(3).requires_grad_(),), (t(3).requires_grad_(),)], [packed]


@cases(graphs=2, breaks=1)
def a_break_in_a_function_in_inference_mode():
    @torch.inference_mode()
    def f(x):
        y = x * 2
        print("inside", torch.is_grad_enabled())
        return y, y + 1

    return f, [(t(3).requires_grad_(),), (t(3).requires_grad_(),)]


@cases(graphs=3, breaks=2)
def breaks_in_inference_mode():
    @torch.inference_mode()
    def inner(x):
        y = x * 2
        print("inside", torch.is_grad_enabled())
        return y + 1

    def f(x):
        with torch.no_grad():
            try:
                with torch.inference_mode():
                    y = x.sin()
                    print("raises")
                    raise KeyError
            except KeyError:
                z = x * 3
        return y, z, inner(x), x + 1, torch.is_grad_enabled()

    return f, [(t(3).requires_grad_(),), (t(3).requires_grad_(),)]


@cases(graphs=4, breaks=3)
def breaks_in_inference_modes_inside_others():
    def f(x):
        with torch.inference_mode():
            y = x + 1
            print("1")
            with torch.inference_mode(False):
                z = x * 2
                print("2", torch.is_grad_enabled())
                z = z + 1
            y = y * 2
            print("3")
        return y, z, x * 4

    return f, [(t(3).requires_grad_(),), (t(3).requires_grad_(),)]


@cases(graphs=2, breaks=1)
def a_graph_that_leaves_inference_modes():
    def f(x):
        with torch.no_grad():
            with torch.inference_mode():
                with torch.enable_grad():
                    with torch.inference_mode(False):
                        y = x.sin()
                        print("inside", torch.is_grad_enabled())
                        y = y * 2
                    z = y + 1
                    modes = [torch.is_grad_enabled()]
                u = z * 2
                modes.append(torch.is_grad_enabled())
            v = x * 2
        return x * 3, y, z, u, v, modes

    return f, [(t(3).requires_grad_(),), ((t(3) + 1).requires_grad_(),)]


@cases(graphs=3, breaks=2)
def a_graph_that_leaves_one_inference_mode_and_ends_in_another():
    def f(x):
        with torch.inference_mode():
            y = x.sin()
            print("first")
            y = y * 2
        z = x * 2
        with torch.inference_mode():
            y = y + z
            print("second")
            y = y + 1
        return z * z, y, torch.is_grad_enabled()

    return f, [(t(3).requires_grad_(),), (t(3).requires_grad_(),)]


@cases(backends=("eager", "reference", "aot_eager", "fastpath"))
def writes_to_what_inference_mode_has_made():
    with torch.inference_mode():
        z, whole = t(3), t(4)
        parts = whole[:3], whole[1:]

    def f(x):
        with torch.inference_mode():
            z.add_(1)
            parts[0].mul_(2)
            parts[1].sub_(z)
            z.transpose_(0, 0)
        return x * 2, parts[0] + 1

    return f, [(t(3),), (t(3),)], [z, whole, parts]


@cases(graphs=3, breaks=2, backends=("eager", "reference", "aot_eager"))
def a_write_before_inference_mode_is_left():
    def f(x):
        with torch.inference_mode():
            y = x.sin()
            print("inside")
            y += 1
        return y, x * 2, y.is_inference()

    return f, [(t(3),), (t(3) + 1,)]


@cases(graphs=2, breaks=1)
def an_error_after_inference_mode_was_left():
    def f(x, i):
        try:
            with torch.inference_mode():
                y = x.sin()
                print("inside")
                y = y * 2
            x = x + 1
            return y, x[i]
        except IndexError as error:
            return str(error), torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    return f, [(t(3).requires_grad_(), torch.tensor([n])) for n in (1, 7, 2)]


@cases(graphs=1, breaks=1)
def default_device_that_stays():
    def f(x):
        torch.set_default_device("meta")
        return x + 1, torch.ones(3).device

    def leave():
        torch.set_default_device(None)

    return f, [(t(3),), leave, (t(3),), leave]


@cases()
def default_device_for_a_while():
    def f(x):
        torch.set_default_device("meta")
        made = torch.ones(3).device
        torch.set_default_device(None)
        return x + 1, made, torch.ones(3).device

    return f, [(t(3),)] * 2


@cases()
def default_device_over_another():
    def f(x):
        torch.set_default_device("cpu")  # which it is
        y = torch.ones(3)
        torch.set_default_device("meta")
        made = torch.ones(3).device
        torch.set_default_device("cpu")
        return x + y, made, torch.get_default_device()

    on = lambda: torch.set_default_device("cpu")  # noqa: E731
    off = lambda: torch.set_default_device(None)  # noqa: E731
    return f, [on, (t(3),), (t(3),), off]


def load_rules():
    """The first level of a process does that, and says so."""
    forward_ad.enter_dual_level()
    forward_ad.make_dual(t(3), t(3))
    forward_ad.exit_dual_level()


@cases(graphs=2, recompiles=1)
def dual_tensors():
    load_rules()

    def f(x, tangent):
        with forward_ad.dual_level():
            y = (forward_ad.make_dual(x, tangent) ** 3).sum()
            found = forward_ad.unpack_dual(y)
        after, nothing = forward_ad.unpack_dual(x)
        return found.primal + found.tangent, found, after, nothing

    return f, [(t(3).requires_grad_(), t(3)), (t(3), t(3).requires_grad_())]


@cases()
def a_level_left_by_an_exception():
    load_rules()

    def f(x):
        try:
            with forward_ad.dual_level():
                y = forward_ad.make_dual(x, x + 1).sin()
                raise KeyError
        except KeyError:
            return y * 2, forward_ad._current_level

    return f, [(t(3),)] * 2


@cases(graphs=2, breaks=1)
def a_break_in_a_level():
    load_rules()

    def f(x):
        y = x + 1
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(y, x)
            print("inside")
            found = forward_ad.unpack_dual(dual * dual)
        return found.primal + found.tangent

    return f, [(t(3),)] * 2


@cases(graphs=0, breaks=1)
def operations_counted():
    def f(x):
        with FlopCounterMode(display=False) as counter:
            y = x @ x
        return y, counter.get_total_flops()

    return f, [(t(3, 3),)] * 2


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return 3 * x * tangent


@cases(breaks=1, graphs=1)
def a_rule_of_its_own_in_a_transformation():
    def f(x):
        return torch.func.jvp(Tripled.apply, (x,), (x + 1,))

    return f, [(t(3),)] * 2


@cases(backends=("eager", "reference", "aot_eager", "fastpath"))
def a_default_dtype_inside_the_graph():
    """Factories and quotients of integers ask for it, and not where the graph runs."""

    def f(x, n):
        torch.set_default_dtype(torch.float64)
        made = torch.ones(3) * 2, torch.full((2,), 1.5) + torch.linspace(0, 1, 2), torch.rand(2)
        parts = n / 2, n.sin(), n * 1.5, torch.arange(3) / n, x * torch.zeros(())
        torch.set_default_dtype(torch.float32)
        return made, parts, n / 4, torch.ones(2) * x.sum(), torch.arange(2.0) + 1

    return f, [(t(3), torch.arange(1, 4)) for _ in range(2)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0


def test_a_tensor_made_on_a_default_device_lies_there():
    def f(x):
        torch.set_default_device("meta")
        made = torch.ones(3)
        torch.set_default_device(None)
        return x + 1, made

    x = t(3)
    found, made = refcompiler.compile(f, backend="eager")(x)
    assert torch.equal(found, x + 1) and made.device.type == "meta"


def test_a_function_with_its_own_rule_is_asked_for_it():
    """In a level that is entered after the capture."""
    compiled = refcompiler.compile(lambda x: Tripled.apply(x) + 1, backend="eager")
    x, tangent = t(3), t(3)
    assert torch.equal(compiled(x), x * x + 1)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, tangent)))
    assert torch.equal(found.tangent, 3 * x * tangent)
