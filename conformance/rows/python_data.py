"""Programs whose errors only data decide, and programs that differentiate a derivative."""

from __future__ import annotations

from conformance.rows.row import Row

ROWS = (
    Row("one_hot", "values that eager refuses", '''
        import torch.nn.functional as F
        def program(x, i, classes):
            return F.one_hot(i, classes) * x[0], F.one_hot(i.flip(0), classes)
        ''', ("f(x, i, 4)", "f(x, i, 3)", "f(x, -i, 4)", "f(x2, i, 5)")),
    Row("positions", "values that eager refuses", '''
        def program(x, i):
            return (x * 2)[i].sin()
        ''', ("f(x, i)", "f(x, i + 1)", "f(x, i - 4)", "f(x, i - 5)")),
    Row("probabilities", "values that eager refuses", '''
        import torch.nn.functional as F
        def program(x, target):
            return F.binary_cross_entropy(x, target)
        ''', ("f(x.sigmoid(), x2.sigmoid())", "f(x, x2.sigmoid())", "f(w.sigmoid(), x2.sigmoid())"),
        backward=True),
    Row("integer division", "values that eager refuses", '''
        def program(i, by):
            return (i * 2) // by + i % by
        ''', ("f(i, i + 1)", "f(i, i)")),
    Row("caught behind the graph", "values that eager refuses", '''
        def program(x, i):
            y = x.exp()
            try:
                z = torch.gather(y, 0, i)
            except RuntimeError as error:
                return y, type(error).__name__
            return z
        ''', ("f(x, i)", "f(x, i + 1)", "f(x2, i)")),
    Row("gradient penalty", "second derivatives", '''
        net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        with torch.no_grad():
            for n, p in enumerate(net.parameters()):
                p.copy_((torch.arange(p.numel()).view(p.shape) - n) / 8)
        def program(x):
            x = x.reshape(-1, 4).detach().clone().requires_grad_()
            (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
            return ((g.norm(dim=1) - 1) ** 2).mean()
        ''', ("f(x)", "f(big)", "f(x2)"), backward=True),
    Row("of a compiled function", "second derivatives", '''
        def inner(x, w):
            return torch.sin(x * w) * w
        def program(x, w):
            y = inner(x, w)
            (g,) = torch.autograd.grad(y.sum(), w, create_graph=True)
            (h,) = torch.autograd.grad(g.sum(), w, create_graph=True)
            return y, g, h
        ''', ("f(x, w)", "f(x2, w2)"), backward=True),
    Row("equation of heat", "second derivatives", '''
        def u(x, t):
            return torch.exp(-t) * torch.sin(x) + torch.tanh(x * t)
        def program(x, t):
            def d(y, of):
                return torch.autograd.grad(y, of, torch.ones_like(y), create_graph=True)[0]
            found = u(x, t)
            residual = d(found, t) - d(d(found, x), x)
            return (residual ** 2).mean()
        ''', ("f(w, w2)", "f(w2, w)"), backward=True),
)  # fmt: skip
