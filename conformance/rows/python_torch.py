"""What training does inside a function: custom gradients, hooks, optimizers, random streams."""

from conformance.rows.row import Row

ROWS = (
    Row("changed in place", "custom gradients", '''
        class Increment(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                a.add_(1)
                ctx.mark_dirty(a)
                return a
            @staticmethod
            def backward(ctx, gradient):
                return gradient * 5
        def program(w):
            y = w * 2
            return Increment.apply(y) * 3, y
        ''', ("f(w)", "f(w2)"), backward=True),
    Row("runs counted", "checkpoint", '''
        from torch.utils.checkpoint import checkpoint
        RUNS = []
        def inner(a):
            RUNS.append(len(RUNS))
            return a * a
        def program(w):
            return checkpoint(inner, w, use_reentrant=False), len(RUNS)
        ''', ("f(w)", "f(w2)", "f(w)"), backward=True),
    Row("registered inside", "module hooks", '''
        LINE = torch.nn.Identity()
        def program(x):
            handle = LINE.register_forward_hook(lambda module, args, out: out * 2)
            during = LINE(x)
            handle.remove()
            return during, LINE(x), len(LINE._forward_hooks)
        ''', ("f(x)", "f(x2)")),
    Row("parameters without dimensions", "optimizers", '''
        PS = [torch.nn.Parameter(torch.tensor(2.0)), torch.nn.Parameter(torch.ones(4))]
        STEP = torch.optim.Adamax(PS, 0.5, foreach=True)
        def program(x):
            for p in PS:
                p.grad = x.sum() + torch.zeros_like(p)
            STEP.step()
            return [p.detach().clone() for p in PS]
        ''', ("f(x)", "f(x2)", "STEP.param_groups[0]['lr'] = 0.25", "f(x)")),
    Row("a rule that branches", "optimizers", '''
        P = torch.nn.Parameter(torch.ones(4))
        STEP = torch.optim.RAdam([P], 0.5)
        def program(x):
            P.grad = x * 2
            STEP.step()
            STEP.zero_grad()
            return P.detach().clone(), P.grad is None
        ''', ("f(x)", "f(x2)", "f(x)", "f(x)", "f(x)", "f(x)", "f(x)")),
    Row("a schedule", "optimizers", '''
        P = torch.nn.Parameter(torch.ones(4))
        STEP = torch.optim.SGD([P], 0.5)
        RATE = torch.optim.lr_scheduler.StepLR(STEP, 2, 0.5)
        def program(x):
            P.grad = x * 1
            STEP.step()
            RATE.step()
            return P.detach().clone(), RATE.get_last_lr()
        ''', ("f(x)", "f(x2)", "f(x)", "f(x2)", "f(x)")),
    Row("gradients dropped", "optimizers", '''
        LINE = torch.nn.Linear(4, 1, bias=False)
        with torch.no_grad():
            LINE.weight.fill_(0.5)
        def program(x):
            LINE.zero_grad()
            (LINE(x) * 2).sum().backward()
            return LINE.weight.grad.clone()
        ''', ("f(x)", "f(x2)", "f(x)")),
    Row("state put back", "random numbers", '''
        def program(x):
            state = torch.get_rng_state()
            first = torch.randint(0, 9, (4,))
            torch.set_rng_state(state)
            return x * first, torch.randint(0, 9, (4,))
        ''', ("f(x)", "f(x2)", "torch.manual_seed(5)", "f(x)")),
    Row("forked", "random numbers", '''
        def program(x):
            with torch.random.fork_rng():
                torch.manual_seed(5)
                inside = torch.randint(0, 9, (4,))
            return x * inside, torch.randint(0, 9, (4,))
        ''', ("f(x)", "f(x2)")),
    Row("a generator given", "random numbers", '''
        STREAM = torch.Generator().manual_seed(3)
        def program(x, stream):
            return x * torch.randint(0, 9, (4,), generator=stream), torch.randperm(4)
        ''', ("f(x, STREAM)", "f(x2, STREAM)", "STREAM.manual_seed(3)", "f(x, STREAM)")),
    Row("buffers by their class", "modules", '''
        HOLDER = torch.nn.Module()
        def program(x):
            HOLDER.kept = torch.nn.Buffer(x * 2)
            return x + HOLDER.kept, isinstance(HOLDER.kept, torch.nn.Buffer), list(HOLDER._buffers)
        ''', ("f(x)", "f(x2)")),
)  # fmt: skip
