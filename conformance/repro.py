"""Writes a failing case as a script that stands alone and shows the failure.

The script imports torch and the compiler, nothing else; it loads itself twice as a module, once
eagerly and once compiled, prints what was expected and what was found, and exits with status 1
while the failure is there.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conformance import ambient
from conformance.case import Call, Case
from conformance.render import inputs_source
from conformance.verdict import Finding, Kind

# How an aspect of ``where`` is read in the script, and what more has to be known to read it.
_READ: Mapping[str, str] = {
    "dtype": "{where}.dtype",
    "shape": "tuple({where}.shape)",
    "strides": "{where}.stride()",
    "device": "{where}.device",
    "layout": "{where}.layout",
    "requires_grad": "{where}.requires_grad",
    "is_leaf": "{where}.is_leaf",
    "conjugate bit": "{where}.is_conj()",
    "negative bit": "{where}.is_neg()",
    "tensor type": "type({where}).__name__",
    "storage offset": "{where}.storage_offset()",
    "identity": "{where} is {other}",
    "aliasing": "{where}.untyped_storage()._cdata == {other}.untyped_storage()._cdata",
    "object": "{where}",
    "exception": "type(error).__name__ if error else 'no exception'",
    "exception message": "str(error)",
    "printed": "printed",
    "recompiles": "bool(graphs)",
    "compiled": "bool(not calls or runs_of_graph or fallback)",
}
_RNG = {
    "torch": "int(torch.get_rng_state().double().sum())",
    "random": "hash(__import__('random').getstate())",
    "numpy.random": "hash(str(__import__('numpy').random.get_state()))",
}

# Ends the heading of every script, and tells it from a file that somebody else wrote.
SIGNATURE = "Exit status 1: the failure is there; 0: it is gone."

_LOADER = '''
def load(name):
    """This file as a fresh module: its eager side ("expected") or its compiled one ("found")."""
    spec = importlib.util.spec_from_file_location(name, __file__)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with contextlib.redirect_stdout(io.StringIO()) as text:
        spec.loader.exec_module(module)
    module.printed = text.getvalue()
    return module
'''

_COUNTER = '''
graphs = calls = runs_of_graph = 0
fallback = None


def counted(gm, inputs, **options):
    """The backend, with its graphs, its calls, and runs of the graph itself counted."""
    global graphs, runs_of_graph, fallback
    graphs += 1
    if hasattr(gm, "real_recompile"):
        gm.real_recompile()
    forward = type(gm).forward

    def watched(module, *args, **kwargs):
        global runs_of_graph
        runs_of_graph += 1
        return forward(module, *args, **kwargs)

    type(gm).forward = watched
    compiled = backend(gm, inputs, **options)
    fallback = fallback or getattr(getattr(compiled, "report", None), "fallback", None)
    runs_of_graph = 0  # tracing it is no run

    def call(*args):
        global calls
        calls += 1
        return compiled(*args)

    return call
'''

_GRADIENTS = '''
def backward(out):
    """Send fixed non-uniform cotangents back through the differentiable outputs."""
    leaves = torch.utils._pytree.tree_leaves(out)
    roots = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    roots = [t for t in roots if t.is_floating_point()]
    ramps = [torch.arange(t.numel(), dtype=torch.float64, device=t.device) for t in roots]
    pairs = zip(ramps, roots)
    torch.autograd.backward(roots, [(r + 1).cos().to(t.dtype).reshape(t.shape) for r, t in pairs])
'''


@dataclass(frozen=True)
class Origin:
    """Where a failure comes from, for the script's heading."""

    backend: str
    frontend: str
    command: str
    versions: Mapping[str, str]
    timeout: float


def file_name(case_id: str) -> str:
    """A file name for a case's id."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", case_id) + ".py"


def script(case: Case, finding: Finding, origin: Origin, raises: bool = False) -> str:
    """The text of the script that shows ``finding``.

    ``raises``: whether a step of the case raises in eager, behind which the case goes on.
    """
    counts = finding.aspect in ("recompiles", "compiled")
    parts = [
        _heading(case, finding, origin),
        "import contextlib\nimport importlib.util\nimport io\nimport random\nimport subprocess\n"
        "import sys\nfrom math import inf, nan\n\nimport torch\n",
        _compiler(origin, counts),
        case.program.source.strip() + "\n",
        _GRADIENTS.strip() + "\n" if _goes_backward(case) else "",
        _body(case, finding, origin, counts, raises),
        _LOADER.strip() + "\n",
        "if __name__ == '__main__':\n" + textwrap.indent(_verdict(case, finding, origin), "    "),
    ]
    return "\n\n".join(part for part in parts if part)


def _heading(case: Case, finding: Finding, origin: Origin) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in origin.versions.items())
    text = f"{finding.kind}: {finding}".replace("\\", "\\\\").replace('"""', "'''")
    wrapped = "\n".join(textwrap.wrap(text, 98))
    return (
        f'"""{wrapped}\n\n{case.id}\nFound with {versions} by\n    {origin.command}\n'
        f'{SIGNATURE}\n"""\n'
    )


def _compiler(origin: Origin, counts: bool) -> str:
    lines = []
    if origin.frontend == "refcompiler":
        lines.append("import refcompiler\n")
    if ":" in origin.backend:
        module, _, attribute = origin.backend.partition(":")
        root = attribute.split(".")[0]
        lines += [
            "import os",
            "sys.path.insert(0, os.getcwd())  # the backend's module may be beside the caller",
            f"from {module} import {root}",
            f"backend = {attribute}",
        ]
    elif counts and origin.frontend == "torch":
        lines += [
            "import torch._dynamo",
            f"backend = torch._dynamo.lookup_backend({origin.backend!r})",
        ]
    elif counts:
        lines.append(f"backend = refcompiler.lookup_backend({origin.backend!r})")
    else:
        lines.append(f"backend = {origin.backend!r}")
    text = "\n".join(lines) + "\n"
    return text + "\n" + _COUNTER if counts else text


def _goes_backward(case: Case) -> bool:
    return any(isinstance(step, Call) and step.backward for step in case.history)


def _body(case: Case, finding: Finding, origin: Origin, counts: bool, raises: bool) -> str:
    """What both sides do: module-level statements, so that a state change reaches globals too."""
    lines = [
        "torch.manual_seed(0)",
        "random.seed(0)",
        f"model = {case.program.entry}",
    ]
    if case.device != "cpu":
        lines.append(f"model = model.to({case.device!r}) if hasattr(model, 'to') else model")
    package = origin.frontend if origin.frontend == "refcompiler" else "torch"
    compiled = f"{package}.compile(model, backend={'counted' if counts else 'backend'})"
    lines.append(f"f = {compiled} if __name__ == 'found' else model")
    lines.append(inputs_source(case.inputs, case.device))
    lines += ["outs = []", "error = None"]
    if raises:
        lines.append("earlier = {}  # what steps raised before the last one")
    guarded = finding.aspect in ("exception", "exception message")
    last = len(case.history) - 1 if finding.kind is Kind.CRASH and not guarded else finding.step
    for number, step in enumerate(case.history[: last + 1]):
        if counts and number == last and finding.aspect == "recompiles":
            lines.append("graphs = 0")
        text = _step(step)
        if number == finding.step and (guarded or raises):
            text = _guarded(text, "error")
        elif raises:
            text = _guarded(text, f"earlier[{number}]")
        lines.append(text)
    body = "\n".join(lines)
    return "if __name__ != '__main__':\n" + textwrap.indent(body, "    ") + "\n"


def _step(step: object) -> str:
    source = step.source  # type: ignore[attr-defined]
    if isinstance(step, Call):
        text = f"outs.append({source})"
        text += "\nbackward(outs[-1])" if step.backward else ""
        modes = {"no_grad": "torch.no_grad()", "inference_mode": "torch.inference_mode()"}
        if step.mode in modes:
            text = f"with {modes[step.mode]}:\n" + textwrap.indent(text, "    ")
    else:
        text = source
    return text


def _guarded(text: str, into: str) -> str:
    indented = textwrap.indent(text, "    ")
    return f"try:\n{indented}\nexcept Exception as raised:\n    {into} = raised"


# -- what is compared ----------------------------------------------------------------------------


def _verdict(case: Case, finding: Finding, origin: Origin) -> str:
    for wanted, write in _VERDICTS:
        if wanted(finding):
            return write(finding, origin)
    return _facts(finding, origin)


def _ended(finding: Finding, origin: Origin) -> str:
    """The compiled side runs in a child process, which dies or never ends."""
    return (
        "if sys.argv[1:] == ['found']:\n"
        "    load('found')\n"
        "    sys.exit(0)\n"
        "load('expected')\n"
        "print('expected: a living process that ends')\n"
        "try:\n"
        f"    status = subprocess.run([sys.executable, __file__, 'found'], "
        f"timeout={origin.timeout:g}).returncode\n"
        "except subprocess.TimeoutExpired:\n"
        "    status = 'no end in time'\n"
        "print('found:   ', f'status {status}' if status else 'a living process that ends')\n"
        "sys.exit(1 if status else 0)\n"
    )


def _raised(finding: Finding, origin: Origin) -> str:
    return (
        "load('expected')\n"
        "print('expected: an answer')\n"
        "raised = load('found').error\n"
        "print('found:   ', f'{type(raised).__name__}: {raised}' if raised else 'an answer')\n"
        "sys.exit(1 if raised else 0)\n"
    )


def _unsteady(finding: Finding, origin: Origin) -> str:
    side = "expected" if finding.evidence.get("side") == "eager" else "found"
    return (
        f"runs = [load({side!r}).{finding.where} for _ in range(5)]\n"
        "same = all(torch.equal(torch.nan_to_num(run), torch.nan_to_num(runs[0]))"
        " for run in runs)\n"
        "print('expected: five runs alike')\n"
        "print('found:   ', 'five runs alike' if same else runs)\n"
        "sys.exit(0 if same else 1)\n"
    )


def _values(finding: Finding, origin: Origin) -> str:
    """The one element whose error is explained least."""
    evidence = finding.evidence
    index, complex_part = tuple(evidence["index"]), ""
    if evidence.get("complex"):
        index, complex_part = index[:-1], ".real" if index[-1] == 0 else ".imag"
    read = f".{finding.where}.detach()[{index!r}].item(){complex_part}"
    lines = [
        f"expected = load('expected'){read}",
        f"found = load('found'){read}",
        f"print('expected:', expected, ' at index {index} of {finding.where}')",
        "print('found:   ', found)",
    ]
    if evidence.get("allowed") is not None and not evidence.get("signed_zero"):
        reference, allowed = evidence["reference"], evidence["allowed"]
        lines += [
            f"print('in float64:', {reference!r}, ' with an error of at most', {allowed!r})",
            f"fine = abs(found - {reference!r}) <= {allowed!r} or repr(found) == repr(expected)",
        ]
    else:
        lines.append("fine = repr(found) == repr(expected)")
    lines.append("sys.exit(0 if fine else 1)\n")
    return "\n".join(lines)


def _structure(finding: Finding, origin: Origin) -> str:
    return (
        "def read(side):\n"
        "    module = load(side)\n"
        "    try:\n"
        f"        return repr(module.{finding.where})\n"
        "    except (AttributeError, IndexError, KeyError, TypeError):\n"
        "        return f'nothing: {module.error!r}' if module.error else 'nothing'\n\n"
        "expected, found = read('expected'), read('found')\n"
        f"print('expected:', expected, ' at {_quoted(finding.where)}')\n"
        "print('found:   ', found)\n"
        "sys.exit(0 if expected.startswith('nothing') == found.startswith('nothing') else 1)\n"
    )


def _facts(finding: Finding, origin: Origin) -> str:
    if finding.aspect == "rng state":
        read = _RNG.get(finding.where, _RNG["torch"])
    elif finding.aspect == "ambient state":
        read = ambient.STATE[finding.where]
    else:
        read = _READ[finding.aspect].format(
            where=finding.where, other=finding.evidence.get("other", finding.where)
        )
    if finding.aspect == "recompiles":
        expected = repr(finding.expected == "a compile")
    elif finding.aspect == "compiled":
        expected = "False"
    else:
        expected = "read(load('expected'))"
    return (
        "def read(side):\n"
        "    try:\n"
        f"        return eval({read!r}, vars(side))\n"
        "    except Exception as raised:\n"
        "        return f'nothing: {side.error or raised!r}'\n\n"
        f"expected = {expected}\n"
        "found = read(load('found'))\n"
        f"print('expected {finding.aspect}:', expected, ' at {_quoted(finding.where)}')\n"
        f"print('found {finding.aspect}:   ', found)\n"
        "sys.exit(0 if str(expected) == str(found) else 1)\n"
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


_VERDICTS: tuple[tuple[Callable[[Finding], bool], Callable[[Finding, Origin], str]], ...] = (
    (lambda f: f.aspect in ("process", "hang"), _ended),
    (lambda f: f.kind in (Kind.CRASH, Kind.REFUSED), _raised),
    (lambda f: f.kind is Kind.NONDETERMINISM, _unsteady),
    (lambda f: f.aspect == "values", _values),
    (lambda f: f.aspect == "structure", _structure),
)
