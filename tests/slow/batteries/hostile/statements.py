"""What a program is made of: texts with ``{a}``, ``{b}``, ``{c}`` for tensors, ``{v}``, ``{w}``
for new names, ``{j}`` for a place to put in another statement. What fits is found by running it.
"""

VIEWS = """
{v} = {a}.view(-1)
{v} = {a}.t()
{v} = {a}.transpose(0, -1)
{v} = {a}[1:]
{v} = {a}[0]
{v} = {a}[..., 0]
{v} = {a}[::2]
{v} = {a}[:, 1:]
{v} = {a}[None]
{v} = {a}[:]
{v} = {a}.unsqueeze(-1)
{v} = {a}.expand(2, *{a}.shape)
{v} = {a}.squeeze()
{v} = {a}.diagonal()
{v} = {a}.unfold(0, 2, 1)
{v} = {a}.narrow(-1, 0, 1)
{v} = {a}.select(0, -1)
{v} = {a}.view_as({b})
{v} = {a}.expand_as({b})
{v} = {a}.reshape(-1)
{v} = {a}.flatten()
{v} = {a}.mT
{v} = {a}.as_strided((2, 2), (1, 2))
{v} = {a}.as_strided((2,), (1,), 1)
{v} = torch.as_strided({a}, (2, 2), (1, 1))
{v} = {a}.real
{v} = {a}.imag
{v} = {a}.conj()
{v} = {a}.mH
{v} = torch._neg_view({a})
{v} = torch.view_as_real({a})
{v} = torch.view_as_complex({a})
{v} = {a}.view(torch.int32)
{v} = {a}.view(torch.float32)
{v} = {a}.detach()
{v} = {a}.data
{v} = {a}.contiguous()
{v} = {a}.to({b}.dtype)
{v} = {a}.to(torch.float32)
{v} = {a}.resolve_conj()
{v} = {a}.movedim(0, -1)
{v}, {w} = {a}.chunk(2)
{v}, {w} = {a}.unbind()
{v}, {w} = {a}.split(1)
{v}, {w} = {a}.tensor_split(2, -1)
{v}, {w} = torch.broadcast_tensors({a}, {b})
{v} = torch.atleast_2d({a})
{v} = {a}.swapaxes(0, 1).view({a}.shape[1], -1)
{v} = {a}.unflatten(-1, (1, -1))
{v} = torch.ops.aten.alias({a})
{v} = {a}.requires_grad_()
{v} = [{a}, {b}][1]
{v} = list({a})[0]
"""

FRESH = """
{v} = {a}.clone()
{v} = {a} + 0
{v} = {a} * {b}
{v} = {a} + {b}
{v} = {a} - 2 * {b}
{v} = {a} / ({b} + 3)
{v} = {a}.double()
{v} = {a}.half()
{v} = {a}.to(torch.complex64)
{v} = {a}.int()
{v} = {a} > {b}
{v} = {a}.sin()
{v} = {a}.exp()
{v} = {a}.sigmoid()
{v} = {a}.pow(2)
{v} = {a}.abs()
{v} = {a}.sqrt()
{v} = {a}.sum()
{v} = {a}.sum(0)
{v} = {a}.mean(-1, keepdim=True)
{v} = {a}.prod()
{v} = {a}.cumsum(0)
{v} = {a}.softmax(-1)
{v} = {a}.norm()
{v} = {a}.amax(0)
{v}, {w} = {a}.max(0)
{v}, {w} = {a}.sort(-1)
{v}, {w} = torch.var_mean({a}, -1)
{v} = {a} @ {b}
{v} = F.linear({a}, {b})
{v} = torch.cat([{a}, {b}])
{v} = torch.stack([{a}, {b}], -1)
{v} = torch.where({a} > 0, {a}, {b})
{v} = torch.maximum({a}, {b})
{v} = torch.complex({a}, {b})
{v} = torch.angle({a})
{v} = F.gelu({a})
{v} = F.layer_norm({a}, {a}.shape[-1:])
{v} = {a}.new_zeros({b}.shape)
{v} = torch.empty_like({a}).copy_({b})
{v} = torch.zeros_like({a})
{v} = torch.ones(3, requires_grad=True) * {a}
{v} = {a}[{a} > 0]
{v} = {a}[[0, -1]]
{v} = {a}.gather(0, torch.zeros_like({a}, dtype=torch.int64))
{v} = {a}.index_select(0, torch.tensor([0, 0, 1]))
{v} = {a}.select_scatter({b}, 0, 0)
{v} = {a}.flip(0)
{v} = {a}.repeat(2, 1)
{v} = torch.outer({a}, {b})
{v} = torch.einsum("i...,i...->...", {a}, {b})
{v} = {a}.clone(memory_format=torch.contiguous_format)
{v} = {a}.masked_fill({a} > 0.5, 0.25)
{v} = {a}.clamp(-0.5, 0.5)
{v} = torch.tensor([1.0, 2.0, 3.0])
{v} = {a}.nansum() + {b}
"""

RANDOM = """
{v} = F.dropout({a}, 0.5)
{v} = torch.rand_like({a})
{v} = torch.randn(3) * {a}
{v} = torch.bernoulli({a}.detach().sigmoid())
{v} = {a} + torch.randint(0, 5, (3,))
{a}.normal_()
{a}.uniform_()
{a}.bernoulli_(0.5)
F.dropout({a}, 0.5, True, True)
torch.manual_seed(3)
{v} = torch.randperm({a}.shape[0])
"""

IN_PLACE = """
{a}.mul_(2)
{a}.add_({b})
{a} += {b}
{a} *= {b}
{a} /= 2
{a}.sub_({b}, alpha=2)
{a}.sin_()
{a}.exp_()
{a}.neg_()
{a}.zero_()
{a}.fill_(3)
{a}.fill_({b}.sum())
{a}.copy_({b})
{a}.copy_({a})
{a}.clamp_(0)
{a}.pow_(2)
{a}.sqrt_()
{a}.relu_()
F.relu({a}, inplace=True)
{a}.lerp_({b}, 0.25)
{a}.addcmul_({b}, {b}, value=0.5)
{a}.addmm_({b}, {c})
{a}.cumsum_(0)
{a}.masked_fill_({a} > 0, 1.5)
{a}.masked_scatter_({a} > 0, {b}.clone())
{a}.t_()
{a}.transpose_(0, -1)
{a}.squeeze_()
{a}.unsqueeze_(0)
{a}.swapdims_(0, 1)
{a}.detach_()
{a}.requires_grad_()
{a}.requires_grad_(False)
{a}.data.mul_(2)
{a}.data[0] = 0.5
{a}.data.copy_({b})
{a}.detach().add_(1)
{a}.data = {b}
{a}.data = {b}.clone()
{a}.set_({b})
{a}.set_({b}.detach())
{a}.resize_(2)
{a}.resize_(1, 2)
{a}.resize_({a}.shape)
{a}.fill_diagonal_(1)
{a}.as_strided_((2,), (1,))
{a}.conj_physical_()
{a}.real.mul_(2)
{a}.imag.add_(1)
{a}.conj().add_(1j)
{a}.view(-1).mul_(2)
{a}[0].mul_(2)
{a}.diagonal().add_(1)
{a}.transpose(0, 1)[0].exp_()
{v} = {a}.mul_({b})
{v} = {a}.view(-1).add_(1)
{v} = {a}.unsqueeze_(0).mul_(2)
{a}.grad = None
{a}.grad = {b}.detach().clone()
{a}.logical_not_()
{a}.index_fill_(0, torch.tensor([0]), 2)
"""

INDEXED = """
{a}[0] = {b}[0]
{a}[0] = {b}
{a}[1:] = {b}[:-1]
{a}[{a} > 0] = 0.5
{a}[{b} > 0] *= 2
{a}[..., 0] = 3
{a}[..., 1:] += 1
{a}[:] = {b}
{a}[::2] = {b}[::2]
{a}[[1, 0]] = {b}
{a}[[0, 0]] += 1
{a}[:, 0] *= {b}
{a}[torch.tensor([1, 0])] = {a}
{a}[0, 1] = {b}.sum()
{a}[...] = 1
{a}[-1] -= {a}[0]
{a}.index_add_(0, torch.tensor([0, 0]), {b})
{a}.index_copy_(0, torch.tensor([1, 0]), {b})
{a}.index_put_((torch.tensor([0, 1]),), {b}, accumulate=True)
{a}.scatter_(0, torch.zeros(1, 3, dtype=torch.int64), 0.75)
{a}.scatter_add_(0, torch.zeros_like({a}, dtype=torch.int64), {b})
{a}.put_(torch.tensor([0, 1]), {b})
{a}[{b} > 0] = {a}[{b} > 0] * 2
{v} = {a}.index_put((torch.tensor([0]),), {b})
{v} = {a}.index_add(0, torch.tensor([0, 1]), {b})
"""

FOREACH = """
torch._foreach_add_([{a}, {b}], 1)
torch._foreach_mul_([{a}, {b}], 2.0)
torch._foreach_mul_([{a}, {b}], [{b}, {a}])
torch._foreach_add_([{a}, {b}], [{c}, {c}], alpha=0.5)
torch._foreach_copy_([{a}], [{b}])
torch._foreach_zero_([{a}, {b}])
torch._foreach_addcmul_([{a}], [{b}], [{c}], value=0.5)
torch._foreach_lerp_([{a}], [{b}], 0.25)
torch._foreach_exp_([{a}, {b}])
torch._foreach_neg_([{a}, {a}])
torch._foreach_sqrt_([{a}])
{v}, {w} = torch._foreach_add([{a}, {b}], [{b}, {a}])
{v}, {w} = torch._foreach_mul([{a}, {b}], [2.0, 3.0])
{v}, {w} = torch._foreach_norm([{a}, {b}])
{v}, {w} = torch._foreach_exp([{a}, {a}])
{v} = torch._foreach_sub([{a}, {b}], 1)
"""

OUT = """
torch.mul({a}, {b}, out={c})
torch.sin({a}, out={b})
torch.add({a}, {b}, out={a})
torch.cat([{a}, {b}], out={c})
torch.sum({a}, 0, out={b})
{v} = torch.add({a}, {b}, out=torch.empty(0))
{v} = torch.mul({a}, {b}, out=torch.empty_like({a}))
{v} = torch.exp({a}, out={b}[0])
torch.mm({a}, {b}, out={c})
"""

FUNCTIONS = """
{v} = Double.apply({a})
{v} = Product.apply({a}, {b})
{v}, {w} = Pair.apply({a}, {b})
{v} = InPlace.apply({a})
{v} = Same.apply({a})
{v}, {w} = Partly.apply({a})
{v} = Once.apply({a})
{v} = Window.apply({a})
{v} = checkpoint(lambda t: (t * t).sin(), {a}, use_reentrant=False)
{v} = checkpoint(lambda t, s: t * s + F.dropout(t, 0.5), {a}, {b}, use_reentrant=False)
{v} = checkpoint(lambda t: t.exp().mul_(2), {a}, use_reentrant=True)
{a}.register_hook(lambda g: g * 2)
{a}.register_hook(told)
{a}.retain_grad()
({v},) = torch.autograd.grad({a}.pow(2).sum(), {b}, create_graph=True, allow_unused=True)
({v},) = torch.autograd.grad(({a} * {b}).sum(), {b})
{a}.sum().backward()
{v} = layer({a})
{v} = layer.count + {a}
layer.count.add_(1)
layer.weight.data.mul_(0.5)
{v} = F.batch_norm({a}, layer.mean, layer.spread, training=layer.training)
"""

FLAGS = """
{v} = {a}._version
{v} = {a}.requires_grad
{v} = {a}.is_leaf, {a}._is_view()
{v} = {a}.shape[0]
{v} = {a} is {b}
{v} = {a}.stride(), {a}.storage_offset()
{v} = {a}.grad is None
{v} = {a}.is_conj() or {a}.is_neg()
{v} = torch.is_grad_enabled()
{v} = {a}.data_ptr() == {b}.data_ptr()
{v} = {a}.grad_fn is None
{v} = {a}._base is {b}
"""

AROUND = r"""
with torch.no_grad():\n    {j}
with torch.inference_mode():\n    {j}
with torch.enable_grad():\n    {j}
with torch.set_grad_enabled({a}.dim() > 1):\n    {j}
with torch.autocast("cpu", torch.bfloat16):\n    {j}
if {a}.requires_grad:\n    {j}
if {a}.dim() == 2:\n    {j}
if layer.training:\n    {j}
for _ in range(2):\n    {j}
try:\n    {j}\nexcept RuntimeError:\n    pass
torch.set_grad_enabled(False)\n{j}\ntorch.set_grad_enabled(True)
"""


def texts(group: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in group.strip().splitlines()]


#: Kinds of statements: how often each is drawn, and its texts.
KINDS: dict[str, tuple[int, list[str]]] = {
    "views": (6, texts(VIEWS)),
    "fresh": (5, texts(FRESH)),
    "random": (1, texts(RANDOM)),
    "in place": (8, texts(IN_PLACE)),
    "indexed": (4, texts(INDEXED)),
    "foreach": (2, texts(FOREACH)),
    "out": (1, texts(OUT)),
    "functions": (3, texts(FUNCTIONS)),
    "flags": (1, texts(FLAGS)),
}

#: What every program may use besides torch.
PRELUDE = """\
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return (grad * y).sum_to_size(x.shape), None


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x.sin(), y + 1

    @staticmethod
    def backward(ctx, first, second):
        return None if first is None else first * 3, second


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class Partly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result, places = x.sort(-1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        return result, places

    @staticmethod
    def backward(ctx, grad, _):
        (places,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter(-1, places, grad)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * result


class Window(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, grad):
        return grad.view(-1, 3)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 9).view(3, 3))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("spread", torch.ones(3))

    def forward(self, x):
        if self.training:
            self.count += 1
        return F.linear(x, self.weight) / (1 + self.count)
"""
