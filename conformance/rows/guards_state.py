"""Global state under which a program runs, and sizes in relation to one another."""

from __future__ import annotations

from dataclasses import dataclass, field

from conformance.case import Call, Case, Change, Compiles, Program, Step
from conformance.rows.row import TOLERANCE, inputs


@dataclass(frozen=True)
class State:
    """``use``: the body of ``def program(x)``. ``changes``: name -> what is done before the call,
    or a ``with`` that is around it. ``undo`` comes after it, for all. ``harmless``: the same, for
    what cannot matter. A call under the change runs twice, with plain calls before and after.
    """

    name: str
    use: str
    changes: dict[str, str]
    harmless: dict[str, str] = field(default_factory=dict)
    undo: str = ""
    setup: str = ""

    def cases(self) -> tuple[Case, ...]:
        made = [self._case(name, text, Compiles.ANY) for name, text in self.changes.items()]
        made += [self._case(name, text, Compiles.NO) for name, text in self.harmless.items()]
        return tuple(made)

    def _case(self, change: str, text: str, compiles: Compiles) -> Case:
        inside = text.startswith("with ") and not text.endswith(": pass")
        undo = self.undo.splitlines() or ["pass"]
        before = [] if inside else text.splitlines()
        lines = [
            *self.setup.splitlines(), "", "",
            "def program(x):", *[f"    {line}" for line in self.use.splitlines()], "", "",
            "def under(f, x):",
            *[f"    {line}" for line in before],
            "    try:",
            *([f"        {text}:",
            "            return f(x)"] if inside else ["        return f(x)"]),
            "    finally:", *[f"        {line}" for line in undo],
        ]  # fmt: skip
        plain, changed = "f(x)", "under(f, x)"
        history: tuple[Step, ...] = (
            Call(plain, Compiles.YES),
            Call(plain, Compiles.NO),
            Call(changed, compiles),
            Call(changed, Compiles.NO),
            Call(plain, Compiles.NO),
        )
        source = "import torch\n" + "\n".join(lines) + "\n"
        return Case(
            "guards", self.name, "ambient", Program(source), inputs((plain,)), history, TOLERANCE,
            label=change.replace(" ", "-"),
        )  # fmt: skip


_MATH = (
    "w = torch.ones(4, 4, requires_grad=True)\nreturn (x @ w).sum() * torch.ones(2), torch.zeros(1)"
)

STATES = (
    State(
        "gradient mode", _MATH,
        {
            "no grad": "with torch.no_grad()",
            "set": "with torch.set_grad_enabled(False)",
            "inference": "with torch.inference_mode()",
            "set before": "torch.set_grad_enabled(False)",
        },
        {
            "enabled": "with torch.enable_grad()",
            "no inference": "with torch.inference_mode(False)",
            "left again": "with torch.no_grad(): pass",
        },
        undo="torch.set_grad_enabled(True)",
    ),
    State(
        "autocast", _MATH,
        {
            "bfloat16": "with torch.autocast('cpu')",
            "float16": "with torch.autocast('cpu', dtype=torch.float16)",
            "without a cache": "with torch.autocast('cpu', cache_enabled=False)",
            "two": "with torch.autocast('cpu'), torch.autocast('cpu', dtype=torch.float16)",
        },
        {"off": "with torch.autocast('cpu', enabled=False)"},
    ),
    State(
        "default dtype",
        "return torch.ones(2) * x.sum().item(), x + torch.arange(4) / 3, torch.tensor(1.5)",
        {
            "double": "torch.set_default_dtype(torch.float64)",
            "bfloat16": "torch.set_default_dtype(torch.bfloat16)",
        },
        {"the same": "torch.set_default_dtype(torch.float32)"},
        undo="torch.set_default_dtype(torch.float32)",
    ),
    State(
        "default device", "return x + 1, torch.ones(2) + torch.zeros(2)",
        {
            "with": "with torch.device('meta')",
            "set": "torch.set_default_device('meta')",
            "nested": "with torch.device('meta'), torch.device('cpu')",
        },
        undo="torch.set_default_device(None)",
    ),
    State(
        "deterministic algorithms",
        "return x * (3 if torch.are_deterministic_algorithms_enabled() else 2) + "
        "torch.is_deterministic_algorithms_warn_only_enabled()",
        {
            "on": "torch.use_deterministic_algorithms(True)",
            "warn": "torch.use_deterministic_algorithms(True, warn_only=True)",
            "level": "torch.set_deterministic_debug_mode('error')",
        },
        {"off": "torch.use_deterministic_algorithms(False)"},
        undo="torch.use_deterministic_algorithms(False)",
    ),
    State(
        "empty memory", "return torch.empty(3) * 0 + x.sum(), x.new_empty(2)",
        {"filled": "torch.use_deterministic_algorithms(True)"},
        undo="torch.use_deterministic_algorithms(False)",
    ),
    State(
        "precision flags",
        "flags = [torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32,\n"
        "         torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark,\n"
        "         torch.backends.cudnn.deterministic, torch.backends.mkldnn.enabled,\n"
        "         torch.backends.cuda.flash_sdp_enabled(), torch.get_num_threads()]\n"
        "return x @ x * len(flags[0]) + sum(flags[1:]), flags",
        {
            "precision": "torch.set_float32_matmul_precision('high')",
            "tf32": "torch.backends.cuda.matmul.allow_tf32 = True",
            "tf32 of convolutions": "torch.backends.cudnn.allow_tf32 = False",
            "benchmark": "torch.backends.cudnn.benchmark = True",
            "deterministic": "torch.backends.cudnn.deterministic = True",
            "flash": "torch.backends.cuda.enable_flash_sdp(False)",
            "threads": "torch.set_num_threads(2)",
        },
        undo="torch.set_float32_matmul_precision('highest')\n"
        "torch.backends.cuda.matmul.allow_tf32 = False\ntorch.backends.cudnn.allow_tf32 = True\n"
        "torch.backends.cudnn.benchmark = False\ntorch.backends.cudnn.deterministic = False\n"
        "torch.backends.cuda.enable_flash_sdp(True)\ntorch.set_num_threads(1)",
        setup="torch.set_num_threads(1)",
    ),
    State(
        "modes", "return x + 1, torch.ones(2) * 2",
        {
            "of functions": "with Function()",
            "of operators": "with Dispatch()",
            "both": "with Function(), Dispatch()",
            "subclasses disabled": "with torch._C.DisableTorchFunctionSubclass()",
            "functions disabled": "with torch._C.DisableTorchFunction()",
        },
        {"left again": "with Function(): pass"},
        setup="""
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * 3 if getattr(func, "__name__", "") == "add" else found


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found.neg() if func is torch.ops.aten.mul.Tensor else found
""",
    ),
    State(
        "function transformations", "return x * x.sum()",
        {
            "vmap": "f = torch.vmap(f)\nx = torch.stack([x, x * 2])",
            "grad": "g = f\nf = torch.func.grad(lambda x: g(x).sum())",
            "vmap of grad": "g = f\nf = torch.vmap(torch.func.grad(lambda x: g(x).sum()))\n"
            "x = torch.stack([x, x * 2])",
            "jvp": "g, t = f, x * 2\nf = lambda x: torch.func.jvp(g, (x,), (t,))",
            "functionalize": "f = torch.func.functionalize(f)",
            "forward gradients": "from torch.autograd import forward_ad\ng, t = f, x * 2\n"
            "def f(x):\n    with forward_ad.dual_level():\n"
            "        return forward_ad.unpack_dual(g(forward_ad.make_dual(x, t)))[:2]",
        },
    ),
    State(
        "hooks of saved tensors",
        "w = torch.ones(4, requires_grad=True)\ny = w * x * w\nreturn y",
        {
            "packed": "with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t)",
            "on the cpu": "with torch.autograd.graph.save_on_cpu()",
        },
    ),
    State(
        "random numbers", "return x + torch.rand(4)",
        {}, {"seed": "torch.manual_seed(5)", "drawn": "torch.rand(3)"},
    ),
    State(
        "warnings", "warnings.warn('careful')\nreturn x * 2",
        {"error": "warnings.simplefilter('error')", "ignored": "warnings.simplefilter('ignore')"},
        undo="warnings.filters[:] = FILTERS\nwarnings._filters_mutated()",
        setup="import warnings\nwarnings.simplefilter('ignore')\nFILTERS = warnings.filters[:]",
    ),
    State(
        "settings of Python", "return x * (2 if sys.getrecursionlimit() > 5000 else 3)",
        {"recursion": "sys.setrecursionlimit(6000)"},
        undo="sys.setrecursionlimit(LIMIT)", setup="import sys\nLIMIT = sys.getrecursionlimit()",
    ),
    State(
        "anomaly mode", "return x * (3 if torch.is_anomaly_enabled() else 2)",
        {"on": "with torch.autograd.set_detect_anomaly(True)"},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Relation:
    """``use``: the body of ``def program(a, b, n)``, of two matrices and an int.

    ``calls``: their sizes, ``((rows, columns), (rows, columns), n)``, one call after the other.
    """

    name: str
    use: str
    calls: tuple[tuple[tuple[int, int], tuple[int, int], int], ...]

    def case(self) -> Case:
        lines = [f"    {line}" for line in self.use.splitlines()]
        source = "\n".join(["import torch", "", "", "def program(a, b, n):", *lines, ""])
        made = "torch.arange({0}.0).reshape({1}, {2})"
        history: list[Step] = []
        for (i, j), (k, m), n in self.calls:
            a, b = made.format(i * j, i, j), made.format(k * m, k, m)
            history += [Change(f"a, b, n = {a}, {b}, {n}"), Call("f(a, b, n)")]
            history.append(Call("f(a, b, n)", Compiles.NO))
        return Case(
            "guards", "relations of sizes", self.name, Program(source), (), tuple(history),
            TOLERANCE, label="case",
        )  # fmt: skip


_SIZES = (
    ((3, 4), (3, 4), 2), ((5, 4), (5, 4), 2), ((6, 4), (7, 4), 2), ((8, 4), (8, 6), 3),
    ((1, 4), (5, 4), 7), ((0, 4), (0, 4), 0), ((9, 2), (2, 9), 1), ((4, 4), (4, 4), 4),
)  # fmt: skip

RELATIONS = tuple(
    Relation(name, use, _SIZES)
    for name, use in {
        "equal": "return a * 2 if a.shape[0] == b.shape[0] else b * 3",
        "equal shapes": "return a * 2 if a.shape == b.shape else b * 3",
        "square": "return a * 2 if a.shape[0] == a.shape[1] else a * 3",
        "less": "return a * 2 if a.shape[0] < b.shape[1] else a * 3",
        "divisible": "return a * 2 if a.shape[0] % 2 == 0 else a * 3",
        "number": "return a * 2 if a.shape[0] == n else a * n",
        "multiple": "return a * 2 if a.numel() > 4 * n else a * 3",
        "one": "return a * 2 if a.shape[0] == 1 else a + b[:1]",
        "none": "return a.sum() if a.shape[0] == 0 else a * 2",
        "truth": "return a * 2 if n else a * 3",
        "broadcast": "try:\n    return a + b\nexcept RuntimeError:\n    return a * 3",
        "strides": "return a * 2 if a.stride(0) == b.shape[1] else a * 3",
        "contiguous": "return a.t() * 2 if a.t().is_contiguous() else a * 3",
        "formatted": "return a * 2, f'{a.shape[0]} {n}'",
        "range": "for i in range(min(n, 3)):\n    a = a * 2 + i\nreturn a",
        "key": "return a * {3: 5, 5: 7}.get(a.shape[0], 2)",
        "slice": "return a[: b.shape[0] // 2] * 2",
        "float": "return a * (b.shape[0] / 2), float(n)",
        "list": "return a + len([0] * b.shape[0])",
        "both": "return a * 2 if a.shape[0] > 3 and b.shape[0] < 8 or n == 7 else a * 3",
    }.items()
)
