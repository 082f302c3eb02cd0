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
    Row("sees each operation", "function modes", '''
        class Names(torch.overrides.TorchFunctionMode):
            def __init__(self):
                super().__init__()
                self.seen = []
            def __torch_function__(self, func, types, args=(), kwargs=None):
                self.seen.append(func.__name__)
                return func(*args, **(kwargs or {}))
        def program(x):
            y = x * 2
            with Names() as mode:
                z = torch.relu(y) + y.shape[0]
                z = z.clone().mul_(2)
            return z - 1, mode.seen
        ''', ("f(x)", "f(x2)", "f(long)")),
    Row("replaces an operation", "function modes", '''
        FACTOR = 2
        class Scale(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                found = func(*args, **(kwargs or {}))
                return found * FACTOR if func is torch.relu else found
        def program(x):
            with Scale(), Scale():
                y = torch.relu(x)
            return y, torch.relu(x)
        ''', ("f(x)", "f(x2)", "FACTOR = 3", "f(x)")),
    Row("raises", "function modes", '''
        class Refuse(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func is torch.sin:
                    raise ValueError("no sine")
                return func(*args, **(kwargs or {}))
        def program(x, name):
            try:
                with Refuse():
                    return getattr(torch, name)(x)
            except ValueError as error:
                return x + 1, str(error)
        ''', ("f(x, 'relu')", "f(x, 'sin')", "f(x2, 'relu')")),
    Row("entered by the caller", "function modes", '''
        class Count(torch.overrides.TorchFunctionMode):
            calls = 0
            def __torch_function__(self, func, types, args=(), kwargs=None):
                Count.calls += 1
                return func(*args, **(kwargs or {}))
        MODE = Count()
        def program(x):
            return torch.relu(x) * 2 + 1
        ''', ("f(x)", "MODE.__enter__()", "f(x2)", "MODE.__exit__(None, None, None)", "f(x)")),
    Row("counts below autograd", "dispatch modes", '''
        from torch.utils._python_dispatch import TorchDispatchMode
        class Count(TorchDispatchMode):
            def __init__(self):
                super().__init__()
                self.calls = 0
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                self.calls += 1
                return func(*args, **(kwargs or {}))
        def program(x):
            y = x * 2
            with Count() as mode:
                y = torch.relu(y) + 1
            return y * 3, mode.calls
        ''', ("f(x)", "f(x2)")),
    Row("operators of its own", "subclasses", '''
        from torch.utils._pytree import tree_map_only
        class Pair(torch.Tensor):
            @staticmethod
            def __new__(cls, a, b):
                return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)
            def __init__(self, a, b):
                self.a, self.b = a, b
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                first = func(*tree_map_only(Pair, lambda p: p.a, args), **(kwargs or {}))
                second = func(*tree_map_only(Pair, lambda p: p.b, args), **(kwargs or {}))
                return Pair(first, second)
        def program(x, y):
            pair = Pair(x * 2, y)
            pair = pair + 1
            pair = pair * x.sum()
            return pair.a - pair.b, type(pair).__name__
        ''', ("f(x, x2)", "f(x2, x)")),
    Row("a sparse matrix", "kinds of tensors", '''
        LINKS = torch.tensor([[0.0, 1, 0, 2], [1, 0, 0, 0], [0, 0, 3, 0], [2, 0, 0, 1]]).to_sparse()
        def spread(h, links):
            return torch.relu(torch.sparse.mm(links, h) + h)
        def program(x):
            h = spread(x[:, None] * 2, LINKS)
            links = LINKS * 2
            links = links.coalesce()
            return spread(h + 1, links), links.values()
        ''', ("f(x)", "f(x2)", "LINKS = LINKS * 2", "f(x)")),
    Row("contents of a parameter", "gradients of state", '''
        P = torch.nn.Parameter(torch.ones(4))
        def program(x):
            before = (P * x).sum()
            P.data = P.data + x
            P.data.mul_(2)
            after = (P * x).sum()
            (before + after).backward()
            found, P.grad = P.grad, None
            return found, P.is_leaf
        ''', ("f(x)", "f(x2)", "P.data.zero_()", "f(x)")),
    Row("memory of another", "storages", '''
        def program(x, y):
            z = x + 1
            same = z.set_(y)
            z.add_(1)
            return z * 2, same is z, y + 1
        ''', ("f(x, x2)", "f(x, long)")),
    Row("asked for their values", "constants", '''
        def program(x, n):
            places = torch.arange(n)
            if (places == torch.tensor([0, 1, 2])).all() if n == 3 else False:
                return x * places[2].item()
            places[0] = 5
            return x * places[0].item() + int(torch.tensor([n, 1]).max())
        ''', ("f(x, 3)", "f(x, 4)", "f(x2, 3)")),
    Row("of elements and numbers", "made tensors", '''
        def program(x, i):
            return (
                torch.tensor([x[0], i[0]]),
                torch.tensor([[x[1], 2], [i[1], 0.5]]),
                torch.tensor([i[0], True]),
                torch.tensor((x[0], 1), dtype=torch.float64),
            )
        ''', ("f(x, i)", "f(x2, i)", "f(long, i)")),
    Row("results with names", "made tensors", '''
        def program(found, x):
            values, places = found
            return found.values + x, found[1] + 1, values is found.values, len(found)
        ''', ("f(torch.max(m, 0), m[0])", "f(torch.min(m2, 0), m[1])")),
    Row("written in TorchScript", "functions", '''
        @torch.jit.script
        def larger(x):
            if bool(x.sum() > 0):
                return x * 2
            return x
        def program(x):
            return larger(x + 1) * 3
        ''', ("f(x)", "f(-x)", "f(x2)")),
    Row("of gradients", "module hooks", '''
        LINE, SEEN = torch.nn.Linear(4, 2), []
        torch.nn.init.ones_(LINE.weight)
        LINE.register_full_backward_hook(lambda module, given, got: SEEN.append(got[0].clone()))
        LINE.register_full_backward_pre_hook(lambda module, got: (got[0] * 2,))
        def program(w):
            return LINE(w * 2).sum() + w.sum(), len(SEEN)
        ''', ("f(w)", "f(w2)", "f(w)"), backward=True),
    Row("averaged", "modules", '''
        LINE = torch.nn.Linear(4, 1, bias=False)
        torch.nn.init.ones_(LINE.weight)
        MEAN = torch.optim.swa_utils.AveragedModel(LINE)
        def program(x):
            y = LINE(x)
            with torch.no_grad():
                LINE.weight.mul_(2)
            MEAN.update_parameters(LINE)
            return y, MEAN(x), MEAN.n_averaged.clone()
        ''', ("f(x)", "f(x2)", "f(x)")),
    Row("at the place in a tensor", "items", '''
        def program(m, i):
            part = m[i] * 2
            m[:, i] = m[:, 0] + 1
            return part, m[..., i] + 1, m.narrow(0, i, 1) * 3
        ''', ("f(m, torch.tensor(1))", "f(m2, torch.tensor(0))", "f(m, torch.tensor(-1))")),
    Row("a view at the place in a tensor", "items", '''
        def program(m, i):
            y = m * 2
            part = y[i]
            y.add_(1)
            return part * 2, y[i]
        ''', ("f(m, torch.tensor(1))", "f(m2, torch.tensor(0))")),
    Row("a view at the place in a tensor, written to", "items", '''
        def program(m, i):
            y = m * 2
            part = y.narrow(1, i, 1)
            part.mul_(3)
            m[i].add_(5)
            m[:, i] *= 2
            return y, part, m[:, i].view(-1)
        ''', ("f(m, torch.tensor(1))", "f(m2, torch.tensor(0))", "f(m, torch.tensor(-1))")),
    Row("left by a break", "inference mode", '''
        @torch.inference_mode()
        def inner(x):
            y = x * 2
            print("inside", torch.is_grad_enabled())
            return y + 1
        def program(x):
            with torch.no_grad():
                y = inner(x)
            with torch.inference_mode():
                z = x.sin()
                print("again")
            return y, z, x * 3, torch.is_grad_enabled(), y.is_inference()
        ''', ("f(x)", "f(x2)")),
    Row("in a level", "forward differentiation", '''
        from torch.autograd import forward_ad
        def program(x):
            with forward_ad.dual_level():
                y = forward_ad.make_dual(x, x * 2) * x
                found = forward_ad.unpack_dual(y)
            return found.primal, found.tangent + 1
        ''', ("f(x)", "f(x2)")),
    Row("of a backward", "custom gradients", '''
        class Tripled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                return a * 2
            @staticmethod
            def backward(ctx, gradient):
                return gradient * 3
        class Passed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                return a + 1
            @staticmethod
            def backward(ctx, gradient):
                return Tripled.apply(gradient)
        def program(w):
            return Passed.apply(w * 2).sum()
        ''', ("f(w)", "f(w2)"), backward=True),
    Row("a default device for a while", "global state", '''
        def program(x):
            torch.set_default_device("meta")
            made = torch.ones(3)
            torch.set_default_device(None)
            return x + 1, str(made.device), str(torch.ones(3).device)
        ''', ("f(x)", "f(x2)")),
    Row("traced", "graphs of torch's own", '''
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.tensor([0.5, -2.0, 1.0, 4.0]))
                self.register_buffer("seen", torch.zeros(4))
            def forward(self, x):
                self.seen.add_(x)
                return (x * self.scale).relu() + self.seen
        model = torch.fx.symbolic_trace(Net())
        def program(x):
            return model(x) * 2, model.seen.clone()
        ''', ("f(x)", "f(x2)", "model.seen.zero_()", "f(w)"), backward=True),
    Row("exported", "graphs of torch's own", '''
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.tensor([0.5, -2.0, 1.0, 4.0]))
            def forward(self, x, more):
                return {"y": (x * self.scale).relu(), "z": more["bias"] + x}
        model = torch.export.export(Net(), (torch.ones(4), {"bias": torch.ones(4)})).module()
        def program(x, bias):
            found = model(x, {"bias": bias})
            return found["y"] + found["z"], found
        ''', ("f(x, x2)", "f(x2, x)", "f(w, x)", "f(long, x)"), backward=True),
    Row("edited between calls", "graphs of torch's own", '''
        model = torch.fx.symbolic_trace(torch.nn.ReLU())
        def edit():
            for node in model.graph.nodes:
                if node.op == "call_module":
                    node.op, node.target = "call_function", torch.neg
            model.recompile()
        def program(x):
            return model(x) + 1
        ''', ("f(x)", "f(x2)", "edit()", "f(x)")),
    Row("classes of Python as dtypes", "arguments", '''
        def program(x):
            made = torch.zeros(4, dtype=int) + torch.ones(4, dtype=bool)
            made = made + x.to(int) + torch.arange(4, dtype=float, device=x.device)
            full = torch.full((2,), 1, dtype=int) + x[:2].type(torch.LongTensor)
            return made, x.sum(dtype=float), x.new_ones(2, dtype=complex), full
        ''', ("f(x)", "f(x2)", "f(w)")),
)  # fmt: skip
