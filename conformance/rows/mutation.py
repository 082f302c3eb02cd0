"""Mutation, aliasing, identity and metadata."""

from conformance.case import Compiles
from conformance.rows.row import Row

NO = Compiles.NO
SAME = ("f(x)", "f(x)")

ROWS = (
    Row("added to", "inputs", '''
        def program(x):
            x.add_(1)
            return x * 2
        ''', SAME, again=NO),
    Row("and returned", "inputs", '''
        def program(x):
            return x.mul_(2)
        ''', SAME, again=NO),
    Row("returned untouched", "inputs", '''
        def program(x):
            return x, x + 1, x
        ''', SAME, again=NO),
    Row("nothing returned", "inputs", '''
        def program(x):
            x += 1
            x *= 2
        ''', SAME, again=NO),
    Row("used before and after", "inputs", '''
        def program(x):
            before = x + 0
            x.neg_()
            return before, x + 0, before - x
        ''', SAME, again=NO),
    Row("copied into", "inputs", '''
        def program(x, y):
            x.copy_(y * 2)
            y.zero_()
            return x + y
        ''', ("f(x, x2)", "f(x, x2)"), again=NO),
    Row("written by index", "inputs", '''
        def program(x, i):
            x[0] = 7
            x[1:3] = x[2:4].clone()
            x[i[:2]] += 1
            x[x > 6] = 0
            return x.sum()
        ''', ("f(x, i)", "f(x2, i)")),
    Row("overlapping write refused", "inputs", '''
        def program(x):
            x[1:3] = x[2:4]
            return x * 2
        ''', SAME),
    Row("shifted over itself", "inputs", '''
        def program(x):
            x[1:] = x[:-1].clone()
            x[:2].add_(x[2:])
            return x * 1
        ''', ("f(x)", "f(x2)")),
    Row("out arguments", "inputs", '''
        def program(x, y):
            got = torch.add(x, 1, out=y)
            torch.mul(y, 2, out=x)
            return got
        ''', ("f(x, x2)", "f(x, x2)")),
    Row("under no_grad", "inputs", '''
        def program(w):
            with torch.no_grad():
                w.add_(1)
            return w * 2
        ''', ("f(w)", "f(w)"), backward=True),
    Row("scatter and index_add", "inputs", '''
        def program(x, y, i):
            x.scatter_(0, i, y)
            x.index_add_(0, i, y)
            x.masked_fill_(y > 2, 5)
            return x
        ''', ("f(x, x2, i)", "f(x, x2, i)")),
    Row("foreach", "inputs", '''
        def program(items):
            torch._foreach_add_(items, 1)
            torch._foreach_mul_(items, 2)
            return sum(items)
        ''', ("f([x, x2])", "f([x2, x])")),
    Row("to a value of another dtype", "inputs", '''
        def program(x, i):
            i.add_(x.to(torch.int64))
            x.add_(i)
            return i.to(torch.float32) + x
        ''', ("f(x, i)", "f(x2, i)")),
    Row("swapped", "inputs", '''
        def program(x, y):
            old = x.clone()
            x.copy_(y)
            y.copy_(old)
            return y, x
        ''', ("f(x, x2)", "f(x, x2)"), again=NO),
    Row("of an input", "views", '''
        def program(m):
            return m[0], m.t(), m.view(-1), m[:, 1:]
        ''', ("f(m)", "f(m)"), again=NO),
    Row("written through", "views", '''
        def program(m):
            row = m[0]
            row.add_(1)
            m.t()[1].mul_(2)
            return row, m + 1
        ''', ("f(m)", "f(m2)"), again=NO),
    Row("base written after", "views", '''
        def program(m):
            row = m[1]
            before = row * 1
            m.mul_(3)
            return row, before
        ''', ("f(m)", "f(m2)"), again=NO),
    Row("of an intermediate", "views", '''
        def program(m):
            y = m * 2
            a, b = y[0], y.t()
            a.add_(1)
            return y, a, b
        ''', ("f(m)", "f(m2)"), again=NO),
    Row("of views", "views", '''
        def program(m):
            v = m.view(-1)[1:5].view(2, 2)
            v.t_()
            v[0].zero_()
            return v, v.t()
        ''', ("f(m)", "f(m2)")),
    Row("chunks and unbind", "views", '''
        def program(m):
            a, b = m.chunk(2)
            a.add_(b)
            first, second = m.unbind(0)
            second.sub_(first)
            return a, second, torch.split(m, 1, 1)
        ''', ("f(m)", "f(m2)")),
    Row("expanded", "views", '''
        def program(x):
            wide = x.expand(3, 4)
            x.add_(1)
            return wide, wide.sum(0)
        ''', ("f(x)", "f(x2)"), again=NO),
    Row("as_strided", "views", '''
        def program(x):
            overlapping = torch.as_strided(x, (3, 2), (1, 1))
            x.mul_(2)
            return overlapping, overlapping + 1
        ''', ("f(x)", "f(x2)")),
    Row("reshape copies or not", "views", '''
        def program(m):
            a = m.reshape(-1)
            b = m.t().reshape(-1)
            m.add_(1)
            return a, b, m.contiguous(), m.t().contiguous()
        ''', ("f(m)", "f(m2)")),
    Row("detached", "views", '''
        def program(w):
            d = w.detach()
            e = (w * 2).detach()
            e.add_(1)
            return d, e, w * 3
        ''', ("f(w)", "f(w2)"), backward=True),
    Row("view_as_real", "views", '''
        def program(m):
            z = torch.complex(m, m + 1)
            r = torch.view_as_real(z)
            r.add_(1)
            return z, r
        ''', ("f(m)", "f(m2)")),
    Row("diagonal and select", "views", '''
        def program(big):
            d = big.diagonal()
            d.fill_(9)
            big.select(1, 3).zero_()
            return d, big.narrow(1, 0, 2)
        ''', ("f(big)", "f(big)")),
    Row("dtype view", "views", '''
        def program(x):
            bits = x.view(torch.int32)
            bits.bitwise_and_(0x7FFFFFFF)
            return bits, x * 1
        ''', ("f(x)", "f(x2)")),
    Row("the same twice", "aliased inputs", '''
        def program(x, y):
            x.add_(1)
            return x * y, x is y
        ''', ("f(x, x2)", "f(x, x)", "f(x2, x)")),
    Row("one the view of the other", "aliased inputs", '''
        def program(a, b):
            a.mul_(2)
            return a + b, b
        ''', ("f(head, tail)", "f(head, whole[:4])", "f(whole[4:8], tail)")),
    Row("overlapping", "aliased inputs", '''
        def program(a, b):
            a.add_(10)
            b.mul_(2)
            return a - b
        ''', ("f(head, overlap)", "f(overlap, head)", "f(head, tail)")),
    Row("overlapping copy", "aliased inputs", '''
        def program(a, b):
            a.copy_(b.clone())
            return a * 2, b * 3
        ''', ("f(head, tail)", "f(head, overlap)")),
    Row("interleaved", "aliased inputs", '''
        def program(whole, strided):
            strided.zero_()
            whole.add_(1)
            return strided * 2, whole.sum()
        ''', ("f(whole, strided)", "f(whole, strided)")),
    Row("column-major", "aliased inputs", '''
        def program(c, whole):
            c[0].add_(5)
            return c.t() * 2, whole + 0, c
        ''', ("f(columns, whole)", "f(columns, whole)")),
    Row("a global and an argument", "aliased inputs", '''
        KEPT = torch.ones(4)
        def program(x):
            KEPT.add_(1)
            return x * 2 + KEPT
        ''', ("f(x)", "f(KEPT)", "f(x)")),
    Row("in a list and by itself", "aliased inputs", '''
        def program(x, items):
            items[0].add_(1)
            return x * 2, items[0] is x
        ''', ("f(x, [x2])", "f(x, [x])", "f(x, [x[:4]])")),
    Row("identity over calls", "identity", '''
        KEPT = []
        def program(x):
            y = x * 2
            KEPT.append(y)
            return y, KEPT[0] is y
        ''', ("f(x)", "f(x)", "f(x2)")),
    Row("one result in many places", "identity", '''
        def program(x):
            y = x + 1
            return [y, {"k": y}, (y, y.view(2, 2)), y.view_as(y)]
        ''', SAME, again=NO),
    Row("no-op conversions", "identity", '''
        def program(x):
            return x.to(torch.float32), x.contiguous(), x.float(), x.to("cpu"), x.detach()
        ''', SAME, again=NO),
    Row("in-place results are their tensor", "identity", '''
        def program(x):
            y = x.add_(1)
            z = y.relu_()
            return y is x, z is x, z
        ''', SAME, again=NO),
    Row("fresh constants", "identity", '''
        def program(x):
            zero = torch.zeros(4)
            zero[0] = 1
            return zero, x + zero
        ''', ("f(x)", "outs[0][0].fill_(9)", "f(x)")),
    Row("a result changed by the caller", "identity", '''
        def program(x):
            y = x * 2
            return y, y[1:]
        ''', ("f(x)", "outs[0][0].zero_()", "f(x)", "outs[1][1].add_(5)", "f(x)")),
    Row("kept in a global", "identity", '''
        KEPT = None
        def program(x):
            global KEPT
            old = KEPT
            KEPT = x
            return x + 1, old is x
        ''', ("f(x)", "f(x)", "f(x2)")),
    Row("counted", "buffers and parameters", '''
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(4))
                self.register_buffer("steps", torch.tensor(0))
            def forward(self, x):
                self.total.add_(x)
                self.steps += 1
                return self.total * 2
        ''', ("f(x)", "f(x2)"), "Net()", again=NO),
    Row("buffer replaced inside", "buffers and parameters", '''
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(4))
            def forward(self, x):
                self.mean = self.mean * 0.5 + x
                return x - self.mean
        ''', ("f(x)", "f(x2)", "f(x)"), "Net()"),
    Row("buffer returned", "buffers and parameters", '''
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("kept", torch.ones(4))
            def forward(self, x):
                self.kept.mul_(x)
                return self.kept, self.kept[1:], self.kept
        ''', ("f(x)", "f(x2)"), "Net()", again=NO),
    Row("running statistics", "buffers and parameters", '''
        def make():
            return torch.nn.BatchNorm1d(3, momentum=0.5)
        ''', ("f(m)", "f(m2)", "model.eval()", "f(m)"), "make()"),
    Row("parameter stepped", "buffers and parameters", '''
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.p = torch.nn.Parameter(torch.ones(4))
            def forward(self, x):
                with torch.no_grad():
                    self.p.sub_(x)
                    self.p.data.mul_(2)
                return (self.p * x).detach()
        ''', ("f(x)", "f(x2)"), "Net()"),
    Row("shared parameter", "buffers and parameters", '''
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Parameter(torch.ones(4))
                self.b = self.a
            def forward(self, x):
                with torch.no_grad():
                    self.a.add_(x)
                return (self.b * 2).detach(), self.a is self.b
        ''', ("f(x)", "model.b = torch.nn.Parameter(torch.zeros(4))", "f(x)"), "Net()"),
    Row("gradient read and cleared", "buffers and parameters", '''
        def program(w):
            y = w * 2 if w.grad is None else w * w.grad
            return y
        ''', ("f(w)", "f(w)", "w.grad = None", "f(w)"), backward=True),
    Row("list elements", "containers", '''
        def program(items):
            for item in items:
                item.add_(1)
            items[0], items[1] = items[1], items[0]
            return items[0] * 2
        ''', ("ITEMS = [x, x2]", "f(ITEMS)", "f(ITEMS)")),
    Row("dict values", "containers", '''
        def program(table):
            table["a"].mul_(2)
            table["b"] = table["a"][1:]
            table["b"].zero_()
            return table["a"] + 1
        ''', ("TABLE = {'a': x}", "f(TABLE)", "f(TABLE)")),
    Row("tuple of views", "containers", '''
        def program(pair):
            a, b = pair
            a += b
            return pair, (b, a)
        ''', ("f((head, tail))", "f((head, overlap * 1))")),
    Row("attributes", "containers", '''
        class Box:
            def __init__(self, t):
                self.t = t
        BOX = Box(torch.ones(4))
        def program(x):
            BOX.t.add_(x)
            BOX.view = BOX.t[:2]
            BOX.t = BOX.t * 2
            return BOX.view + 1
        ''', ("f(x)", "f(x2)")),
    Row("transposed in place", "metadata", '''
        def program(m):
            m.t_()
            return m * 2
        ''', ("f(m)", "f(m)")),
    Row("squeezed and unsqueezed", "metadata", '''
        def program(x):
            x.unsqueeze_(0)
            y = x * 2
            y.squeeze_(0)
            return y, x.shape
        ''', ("f(x)", "f(x2)")),
    Row("resized", "metadata", '''
        def program(x):
            y = x * 2
            y.resize_(2, 2)
            return y
        ''', ("f(x)", "f(x2)")),
    Row("data replaced", "metadata", '''
        def program(x, y):
            x.data = y * 2
            return x + 1
        ''', ("f(x, x2)", "f(x, x2)")),
    Row("set_", "metadata", '''
        def program(x, y):
            x.set_(y)
            x.add_(1)
            return x * 2
        ''', ("f(x, x2)", "f(x, x2)")),
    Row("requires_grad_", "metadata", '''
        def program(x):
            y = x * 2
            y.requires_grad_()
            return y * 3, y.is_leaf
        ''', ("f(x)", "f(x2)")),
    Row("detach_", "metadata", '''
        def program(w):
            y = w * 2
            y.detach_()
            return y + 1, y.requires_grad, w * 3
        ''', ("f(w)", "f(w2)"), backward=True),
    Row("strides and memory format", "metadata", '''
        def program(m):
            y = m.t() * 2
            z = torch.empty_like(m.t()).copy_(m.t())
            w = (m[None, :, None] + 1).to(memory_format=torch.channels_last)
            return y, z, w, y.stride(), w.is_contiguous(memory_format=torch.channels_last)
        ''', ("f(m)", "f(m2)")),
    Row("version counter", "metadata", '''
        def program(x):
            before = x._version
            x.add_(1)
            return x * 2, x._version - before
        ''', SAME),
    Row("attribute on a tensor", "metadata", '''
        def program(x):
            y = x * 2
            y.mark = "made"
            x.seen = getattr(x, "seen", 0) + 1
            return y, y.mark, x.seen
        ''', SAME),
    Row("around a break", "breaks", '''
        def program(x):
            y = x[1:]
            y.add_(1)
            print("between")
            x.mul_(2)
            return y, x + 0
        ''', ("f(x)", "f(x2)")),
    Row("in a branch", "breaks", '''
        def program(x):
            x.add_(1)
            if x.sum() > 5:
                x.zero_()
            else:
                x.neg_()
            return x * 2
        ''', ("f(x)", "f(x2)", "f(x)")),
    Row("then raised", "breaks", '''
        def program(x, fail):
            x.add_(1)
            y = x[:2]
            if fail:
                raise ValueError("late")
            y.mul_(2)
            return y
        ''', ("f(x, False)", "f(x, True)", "f(x, False)")),
    Row("between calls of a helper", "breaks", '''
        def helper(t):
            t.add_(1)
            print(t.shape[0])
            t.mul_(2)
            return t.view(-1)
        def program(m):
            a = helper(m)
            b = helper(m[0])
            return a, b
        ''', ("f(m)", "f(m2)")),
)  # fmt: skip
