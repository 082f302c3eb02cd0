"""How a program's tensors come about: texts with ``{x}`` for the name, ``{p}`` for an input made
before; ``n`` is a size and ``g`` whether gradients are required."""

LEAVES = """
{x} = torch.randn(2, n, requires_grad=g)
{x} = torch.randn(2, n, requires_grad=g)
{x} = torch.randn(2, n, requires_grad=g)
{x} = torch.randn(n, requires_grad=g)
{x} = torch.randn(n, n, requires_grad=g)
{x} = torch.randn((), requires_grad=g)
{x} = torch.randn(0, n, requires_grad=g)
{x} = torch.randn(1, n, requires_grad=g)
{x} = torch.randn(2, n, 2, requires_grad=g)
{x} = torch.randn(2, n)
{x} = torch.nn.Parameter(torch.randn(2, n), requires_grad=g)
{x} = torch.randn(2, n, dtype=torch.float64, requires_grad=g)
{x} = torch.randn(2, n, dtype=torch.bfloat16, requires_grad=g)
{x} = torch.randn(2, n, dtype=torch.complex64, requires_grad=g)
{x} = torch.arange(2 * n).view(2, n)
{x} = torch.arange(2 * n).view(2, n) % 2 == 0
{x} = torch.randn(2, 2 * n)[:, ::2].requires_grad_(g)
{x} = torch.randn(n, 2).t().requires_grad_(g)
{x} = torch.randn(4, n)[2:].requires_grad_(g)
"""

OF_LEAVES = r"""
{x}0 = torch.randn(2, n, requires_grad=g)\n{x} = {x}0 * 2
{x}0 = torch.randn(2, n, requires_grad=g)\n{x} = {x}0.clone()
{x}0 = torch.randn(n, 2, requires_grad=g)\n{x} = {x}0.t()
{x}0 = torch.randn(3, n, requires_grad=g)\n{x} = {x}0[1:]
{x}0 = torch.randn(n, requires_grad=g)\n{x} = {x}0.expand(2, n)
{x}0 = torch.randn(n + 1, requires_grad=g)\n{x} = {x}0.as_strided((2, n), (1, 1))
{x}0 = torch.randn(2, n, dtype=torch.complex64, requires_grad=g)\n{x} = {x}0.conj()
{x}0 = torch.randn(2, n, dtype=torch.complex64, requires_grad=g)\n{x} = {x}0.conj().imag
{x}0 = torch.randn(2, n, dtype=torch.complex64, requires_grad=g)\n{x} = {x}0.real
{x}0 = torch.randn(2, n, requires_grad=g)\n{x} = torch._neg_view({x}0)
{x}0 = torch.randn(2, n, requires_grad=g)\n{x} = {x}0.detach()
{x}0 = torch.randn(2, n, requires_grad=g)\n{x} = {x}0.detach().requires_grad_(g)
{x}0 = torch.randn(2, n, requires_grad=g)\nwith torch.no_grad():\n    {x} = {x}0[:1]
{x}0 = torch.randn(3, n, requires_grad=g).clone()\n{x} = {x}0[1:]
{x}0 = torch.randn(3, n, requires_grad=g).clone()\n{x} = {x}0.mul_(2)[:2]
{x}0, {x} = torch.randn(2, n, requires_grad=g).sin().chunk(2)
{x}0, {x} = torch.randn(2, 2 * n, requires_grad=g).sin().split(n, -1)
{x}0 = torch.randn(2 * n)\n{x} = {x}0.view(2, n)
{x}0 = torch.randn(n)\n{x} = {x}0.expand(2, n)
"""

OF_OTHERS = """
{x} = {p}
{x} = {p}[0]
{x} = {p}[:1]
{x} = {p}.view(-1)
{x} = {p}.view_as({p})
{x} = {p}.detach()
{x} = {p}.t()
{x} = {p}.clone()
{x} = {p} * 3
{x} = {p}.unsqueeze(0)
{x} = {p}.expand(2, *{p}.shape)
{x} = {p}.as_strided((2, 2), (1, 1))
{x} = {p}.as_strided((n,), (1,), 1)
{x} = {p}.conj()
{x} = {p}.data.requires_grad_(g)
{x} = {p}0
{x} = {p}0[0]
{x} = {p}0.view_as({p}0)
{x} = {p}0.detach()
"""

#: What may be done to an input before a later call.
CHANGED = r"""
{x} = {x}.detach()
{x} = {x}.detach().requires_grad_(g)
{x} = {x}.detach().clone().requires_grad_()
{x}.requires_grad_(not {x}.requires_grad)
{x} = {x}.mT.clone(memory_format=torch.contiguous_format).mT
{x} = {x}.view_as({x})
{x} = {x}[:]
{x} = {x} * 1
{x} = {x}.detach().double().requires_grad_(g)
{x} = torch.cat([{x}, {x}])
{x} = {x}[:1]
{x} = {p}
{x} = {p}.view_as({p})
{x} = {p}.detach()
{x} = ends(r)[0]
{x} = ends(r)[0].detach()
{x} = ends(r)[-1].view_as(ends(r)[-1])
{x}.register_hook(see.hook("{x}"))
with torch.no_grad():\n    {x}.add_(1)
"""
