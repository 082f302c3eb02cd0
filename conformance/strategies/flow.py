"""Statements about where execution goes: returns, loops, contexts, handlers, coroutines, dtypes.

The placeholders are those of :mod:`conformance.strategies.templates`.
"""

RETURNS = (
    "for i in range(3):\n    if i == {k}: return m0, kept, i",
    "for row in {m}:\n    kept.append(row)\n    if len(kept) > 2: return row, kept",
    "with noted({k}):\n    if {c}: return m0 + 1, kept, n",
    "try:\n    if {c}: return m0, kept, n\nfinally:\n    LOG.append(('left', n))",
    "while n > 0:\n    n -= 1\n    if {c}: return m0 * n, kept",
    "try:\n    {fail}\nexcept (ValueError, KeyError) as error:\n    return repr(error), kept, m0",
    "def early(t):\n    for i in range(2):\n        with noted(i):\n            if i == {k}:\n"
    "                return t * 3\n    return t\nm0 = early({m})",
    "def last(t):\n    try:\n        return t + {k}\n    finally:\n        t.add_(1)\n"
    "m0 = last(m0)",
    "def overridden(t):\n    for _ in range(2):\n        try:\n            return t\n"
    "        finally:\n            LOG.append('next')\n            continue\n    return t * 2\n"
    "kept.append(overridden({m}))",
    "if {s}.item() > {k}: return {v}, kept",
    "if {s} > {k}: return {v}, kept",
)

LOOPS = (
    "i = 0\nwhile True:\n    i += 1\n    if i > {k} or i > 3: break\n    if i == 2: continue\n"
    "    m0 = m0 + i",
    "for i in range(3):\n    try:\n        if i == {k}: continue\n        if {c}: break\n"
    "        LOG.append(i)\n    finally:\n        kept.append(('done', i))",
    "for a, (b, c) in zip(range(2), [({m}, {k}), ({v}, n)]):\n    kept.append((a, b * 2, c))",
    "for i, row in enumerate(reversed(list({m}))):\n    row.add_(i)\n    kept.append(row)",
    "for key in list(TABLE):\n    if key != 'k': del TABLE[key]\n    else: TABLE[key] += 1",
    "for key, value in {{**TABLE, 'm': {m}}}.items():\n    kept.append((key, value))",
    "total = 0\nfor i in range(4):\n    for j in range(i):\n        if j == {k}: break\n"
    "        total += j\n    else:\n        total += 10\nkept.append(total)",
    "for i in iter(lambda: LOG.append(n) or len(LOG), 5):\n    if i > 6: break",
    "for i in range(2):\n    kept.append([i + j for j in range(i + 1) if (last := j) != {k}])\n"
    "kept.append(last)",
    "it = iter(range(5))\nfor i in it:\n    kept.append((i, next(it, None)))\n"
    "    if i == {k}: break\n"
    "kept.append(list(it))",
    "stack = [{m}]\nwhile stack:\n    t = stack.pop()\n"
    "    if t.dim() > 1: stack.extend(t.unbind(0))\n"
    "    else: kept.append(t + {k})",
    "for i in range(3):\n    print('loop', i)\n    m0 = m0 + {s}.item()",
)

CONTEXTS = (
    "with torch.enable_grad():\n"
    "    kept.append((torch.is_grad_enabled(), ({m} * {k}).requires_grad))",
    "with torch.set_grad_enabled({c}):\n    kept.append(({m} * 2).requires_grad)",
    "with torch.no_grad():\n    {m}.mul_(2)\n    with torch.enable_grad():\n"
    "        kept.append({m} + 1)",
    "with torch.no_grad(), noted('both'):\n    kept.append({m} * {k})",
    "@torch.no_grad()\ndef quiet(t):\n    LOG.append(torch.is_grad_enabled())\n"
    "    return t * {k}\n"
    "kept.append(quiet({m}))",
    "with Guarded({k}) as got:\n    kept.append(got)\n    {fail}",
    "with Guarded({k}):\n    with noted('inner'):\n        {fail}\nkept.append('after')",
    "with contextlib.ExitStack() as stack:\n    stack.enter_context(noted(1))\n"
    "    stack.callback(LOG.append, {k})\n    kept.append({m} + 1)",
    "with contextlib.nullcontext({m}) as same:\n    kept.append(same is {m})",
    "with noted('break'):\n    print({s}.item())\n    m0 = m0 + 1",
    "with torch.no_grad():\n    print('inside', torch.is_grad_enabled())\n    kept.append({m} * 2)",
    "with torch.autocast('cpu', enabled=False):\n    kept.append({m} * {k})",
)

EXCEPTIONS = (
    "try:\n    try:\n        {fail}\n    except ValueError as error:\n"
    "        raise KeyError({k}) from error\nexcept KeyError as error:\n"
    "    kept.append((error.args, type(error.__cause__).__name__, str(error.__context__)))",
    "try:\n    {fail}\nexcept (ValueError, KeyError, AssertionError):\n    LOG.append('again')\n"
    "    try:\n        raise\n    except Exception as error:\n"
    "        kept.append(type(error).__name__)",
    "class Own(ValueError):\n    def __init__(self, t, k):\n        super().__init__(k)\n"
    "        self.t = t\ntry:\n    raise Own({m}, {k})\nexcept ValueError as error:\n"
    "    kept.append((error.t * 2, str(error)))",
    "def risky(t):\n    if {c}: raise ValueError(n)\n    return t\ntry:\n    m0 = risky({m})\n"
    "except ValueError:\n    m0 = m0 - 1\nelse:\n    LOG.append('fine')\nfinally:\n    n = n + 1",
    "try:\n    kept.append(TABLE[{k}])\nexcept LookupError as error:\n    kept.append(error.args)",
    "try:\n    {m} @ {v}[:1].expand(7)\nexcept RuntimeError as error:\n    kept.append('sizes')",
    "try:\n    kept.append({m}.missing)\nexcept AttributeError as error:\n"
    "    kept.append(error.name)",
    "try:\n    del kept[5]\nexcept IndexError as error:\n    kept.append(str(error))",
    "try:\n    undefined\nexcept NameError as error:\n    kept.append(error.name)",
    "def unbound(flag):\n    if flag: t = {m}\n    return t\ntry:\n    kept.append(unbound({c}))\n"
    "except UnboundLocalError:\n    kept.append('unbound')",
    "try:\n    kept.append(int('x' * {k}))\nexcept (ValueError, TypeError) as error:\n"
    "    kept.append(type(error).__name__)",
    "try:\n    print({s}.item())\n    {fail}\nexcept (ValueError, KeyError) as error:\n"
    "    kept.append((repr(error), m0 + 1))",
)

COROUTINES = (
    """async def doubled(t):
    return t * 2
async def chained(t):
    first = await doubled(t)
    LOG.append('awaited')
    return first + {k}
made = chained({m})
try:
    made.send(None)
except StopIteration as stop:
    kept.append(stop.value)""",
    """class Once:
    def __await__(self):
        got = yield {k}
        return got
async def waiting(t):
    return t * await Once()
made = waiting({m})
kept.append(made.send(None))
try:
    made.send(2)
except StopIteration as stop:
    kept.append(stop.value)""",
    """def numbers():
    for i in range(4):
        LOG.append(i)
        yield i
taken = [({m} * i) for i in itertools.islice(numbers(), 2)]
kept.append(taken)""",
    """def pairs(t):
    for i in range(2):
        got = yield t * i
        if got is not None:
            t = t + got
g = pairs({m})
kept.append(next(g))
print('between', {k})
kept.append(g.send(3))
kept.append(next(g, None))""",
    """def tree(depth, t):
    if depth:
        yield from tree(depth - 1, t * 2)
        yield t
kept.extend(tree({k} % 3, {m}))""",
)

DTYPES = (
    "kept.append({m}.to(torch.float64) * {k})",
    "kept.append({m}.long() + {k})",
    "kept.append(({m} > {k}).sum())",
    "kept.append({m}.bool() & ({m} > 0))",
    "m0 = m0.double() if {c} else m0.float()",
    "kept.append({m}.to({v}.dtype).dtype)",
    "kept.append(torch.full_like({v}, {k}, dtype=torch.int32) // 2)",
    "kept.append({m}.type_as({v}) + torch.ones(1, dtype=torch.float64))",
    "kept.append((torch.arange({m}.shape[0]) * {k}).dtype)",
    "kept.append({m}.half().float() if {m}.is_floating_point() else {m})",
    "m0 = {m} * torch.tensor({k})",
    "kept.append(torch.result_type({m}, {k}))",
    "kept.append({m}.new_tensor([{k}, 1.5]))",
    "kept.append(torch.tensor([[{k}, n], [1, 2]]).float() @ torch.ones(2, 2))",
)
