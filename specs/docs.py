"""Writes the tables of the documentation from the rows: ``python -m specs.docs [FOLDER]``.

The folder is ``docs/specs`` of the checkout by default; ``--check`` writes nothing, and exits 1
with the names of the pages that are not current; ``--help`` prints this.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from specs import dtypes, opcodes
from specs.ahead import AHEAD
from specs.api import API
from specs.backends import BACKENDS
from specs.breaks import BREAKS
from specs.guards import GUARDS
from specs.logs import LOGS
from specs.operators import ON_COMPLEX, OPERATORS, Arg, Operator
from specs.options import MODES, OPTIONS, REFUSED
from specs.scalars import PAIRED, SCALARS, Scalar, measured
from specs.stances import STANCES

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "specs"
NOTE = "<!-- Written by `python -m specs.docs` from the rows in `specs/`. Change those. -->\n"
SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "b1"}
SHORT |= {"complex64": "c64", "complex128": "c128"}
SHORT |= {name: name.replace("uint", "u").replace("int", "i") for name in dtypes.INTS}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def names(accepted: Iterable[str]) -> str:
    """The dtypes in short, groups by their name."""
    left, found = set(accepted), []
    for title, group in (
        ("all", dtypes.ALL),
        ("floats", dtypes.FLOATS),
        ("ints", dtypes.INTS),
        ("f32 f64", ("float32", "float64")),
        ("complex", tuple(dtypes.PART_OF)),
    ):
        if left and set(group) <= left:
            found.append(title)
            left -= set(group)
    rest = (*dtypes.ALL, *dtypes.PART_OF)
    return " ".join([*found, *(SHORT[d] for d in rest if d in left)])


def bounds(ulp: dict[str, float]) -> str:
    """Bounds per dtype, one number where they agree."""
    values = {f"{v:g}" for v in ulp.values()}
    if len(values) <= 1:
        return values.pop() if values else "exact"
    return ", ".join(f"{SHORT[d]} {v:g}" for d, v in ulp.items())


def code(text: str | None) -> str:
    return f"`{text}`" if text else "none"


def _texts(row: Scalar, printer: str) -> str:
    """The distinct texts, with the dtypes that share each, or the reason for none."""
    by_text: dict[str | None, list[str]] = {}
    for dtype in dtypes.ALL:
        if dtype in row.dtypes:
            by_text.setdefault(row.template(printer, dtype), []).append(dtype)
    if set(by_text) == {None}:
        return row.reasons[printer]
    if len(by_text) == 1:
        return code(next(iter(by_text)))
    return "; ".join(f"{names(ds)}: {code(text)}" for text, ds in by_text.items())


def scalars() -> str:
    """The page of the scalar operations."""
    rows = [
        (
            f"`{row.name}`",
            str(row.arity),
            names(row.dtypes),
            row.result,
            bounds(dict(row.ulp)),
            _texts(row, "numba"),
            _texts(row, "triton"),
            row.doc,
        )
        for row in SCALARS
    ]
    return (
        f"{NOTE}\n# Scalar operations\n\nWhat one element can go through in a kernel. ULP bounds"
        " are of the CPU text against the exact meaning (`specs/scalars/exact.py`), held by the"
        " tests; `{T}` is the computing dtype as the printer writes it, `m` is"
        " `fastpath.cpu.maths`.\n\n"
        + table(("name", "n", "dtypes", "result", "ULP", "numba", "Triton", "notes"), rows)
        + _COMPLEX
        + table(("name", "real part, or the result", "imaginary part", "where", "notes"), _paired())
    )


_COMPLEX = """
## Complex numbers

A kernel computes them as pairs of reals: `a` and `b` are the parts of the first operand, `c` and
`d` those of the second, `const` makes numbers of the parts' dtype, `dtype`.

"""


def _paired() -> Iterator[tuple[str, ...]]:
    for row in PAIRED:
        given = "; ".join(f"{name} = {code(text)}" for name, text in row.given)
        yield f"`{row.name}`", code(row.real), code(row.imag), given, row.doc


def _arg(arg: Arg) -> str:
    text = arg.name if arg.kind == "tensor" else f"{arg.name}: {arg.kind}"
    return f"[{text}]" if arg.optional else text


def _operator(row: Operator) -> tuple[str, ...]:
    lowering = code(row.lowering) if row.lowering else f"ATen: {row.reasons['lowering']}"
    if row.cuda and row.cuda != row.lowering:
        lowering += f"; on CUDA {code(row.cuda)}"
        lowering += f" if {code(row.cuda_when)}" if row.cuda_when else ""
    if row.when:
        lowering += f" when `{row.when}`"
    if row.strict:
        lowering += f"; strict when `{row.strict}`: else {row.reasons['strict']}"
    return (
        f"`{row.name.removeprefix('aten.')}`",
        ", ".join(_arg(arg) for arg in row.args),
        names(row.dtypes),
        f"{row.dtype_rule}; {row.shape_rule}",
        bounds(dict(row.tolerance)),
        lowering,
        row.doc,
    )


def operators() -> str:
    """The page of the ATen operators, by kind."""
    parts = [
        f"{NOTE}\n# ATen operators\n\n{len(OPERATORS)} overloads. The rules are functions of"
        " `specs/dtypes.py` and `specs/shapes.py`; how a lowering is read says"
        " `specs/operators/row.py`.\n"
    ]
    kinds = list(dict.fromkeys(row.kind for row in OPERATORS))
    for kind in kinds:
        rows = [_operator(row) for row in OPERATORS if row.kind == kind]
        head = ("name", "arguments", "dtypes", "dtype; shape", "ULP", "lowering", "notes")
        parts.append(f"\n## {kind} ({len(rows)})\n\n{table(head, rows)}")
    rows = [_operator(row) for row in ON_COMPLEX]
    parts.append(f"\n## On complex numbers ({len(rows)})\n\n{table(head, rows)}")
    return "".join(parts)


def rules() -> str:
    """The page of the dtype and shape rules."""
    from specs import shapes

    def first_line(text: str | None) -> str:
        return (text or "").strip().split("\n")[0].replace("``", "`").replace(":func:", "")

    def listed(registry: dict[str, object]) -> str:
        return table(
            ("rule", "meaning"),
            ((f"`{name}`", first_line(rule.__doc__)) for name, rule in registry.items()),
        )

    return (
        f"{NOTE}\n# Rules\n\n## Dtypes\n\n{listed(dict(dtypes.DTYPE_RULES))}\n"
        f"## Shapes\n\n{listed(dict(shapes.SHAPE_RULES))}"
    )


_GUARDS = """
# Guards

A compiled function is used again only where its guards hold: each is a kind, a source (how the
value is reached from the arguments) and what was found there when the function was captured.
A guard is recorded when the program observes a value, not when it passes it on. A guard that
cannot be read, or that raises, does not hold. The explanation of a recompile fills in `{source}`,
`{expected}` and `{found}`, and adds the line of the program that asked.

Taken for granted, and not guarded: the methods of torch's own classes in C, and the code objects
of torch and the standard library, stay as they are; `nn.Module` keeps a name in one only of
`_parameters`, `_buffers` and `_modules`; a contiguous parameter or buffer has no negative bit (a
private function of torch would have to set it) and is not in mkldnn's layout; a function gets no
defaults for parameters that were required when it was compiled.

"""
_BREAKS = """
# Graph breaks

Where capture cannot go on, the graph ends before the instruction, which runs natively; what
follows is captured again. `fullgraph=True` makes an error of it, with the reason, the line of the
program and the hint below.

"""


def guards() -> str:
    """The page of the guard kinds."""
    head = ("kind", "expected", "holds when", "explanation", "violated by", "if it fails often")
    rows = (
        (f"`{r.name}`", r.expected, r.check, code(r.explain), r.violate, r.hint) for r in GUARDS
    )
    return NOTE + _GUARDS + table(head, rows)


def breaks() -> str:
    """The page of the graph-break reasons."""
    rows = ((f"`{r.name}`", r.explanation, r.hint) for r in BREAKS)
    return NOTE + _BREAKS + table(("reason", "what happened", "hint"), rows)


_STANCES = """
# Stances

What `refcompiler.set_stance` sets for everything that was compiled. *Enters*: code that was
compiled before may run; *first call*: how the first call of a function runs; *otherwise*: what a
call does for which no compiled code holds.

"""


def stances() -> str:
    """The page of the stances."""
    rows = ((f"`{r.name}`", "yes" if r.enters else "no", r.first, r.miss, r.doc) for r in STANCES)
    return NOTE + _STANCES + table(("stance", "enters", "first call", "otherwise", ""), rows)


_LOGS = """
# Logs

What a compilation tells on standard error: names joined by commas in `REFCOMPILER_LOGS`, or
`refcompiler.set_logs(guards=True)`. Each is a logger `refcompiler.<name>` of Python's `logging`.

"""


def logs() -> str:
    """The page of the logs."""
    return NOTE + _LOGS + table(("log", "what it tells"), ((f"`{r.name}`", r.doc) for r in LOGS))


_OPTIONS = """
# Options and modes

`refcompiler.compile(f, options={...})`; `refcompiler.list_options()` gives the rows. *Of*: who
reads it, the front end for every backend, or the default backend. An unknown name, a value that
there is not, and a mode that sets an option otherwise are errors of `compile` itself. Whoever asks
for what has no effect, on a device or yet, is told so once.

"""
_MODES = """
`refcompiler.compile(f, mode="...")` sets options; `refcompiler.list_mode_options()` gives them.

"""


_REFUSED = """
Options of torch's default compiler that are an error here, which says why:

"""


def options() -> str:
    """The page of the options and modes."""
    rows = []
    for r in OPTIONS:
        values = " or ".join(f"`{v!r}`" for v in r.values) or r.type
        no_effect = f"beside {r.device}" if r.device else r.lacks and f"yet: {r.lacks}"
        rows.append((f"`{r.name}`", r.owner, values, f"`{r.default!r}`", r.doc, no_effect))
    head = ("option", "of", "values", "default", "", "no effect")
    modes = [
        (f"`{r.name}`", ", ".join(f"`{n}={v!r}`" for n, v in r.options.items()) or "nothing", r.doc)
        for r in MODES
    ]
    modes_page = _MODES + table(("mode", "sets", ""), modes)
    refused = _REFUSED + table(
        ("option", "why not"), ((f"`{n}`", why) for n, why in REFUSED.items())
    )
    return NOTE + _OPTIONS + table(head, rows) + modes_page + refused


_API = """
# Public names

What `import refcompiler` has; `help(refcompiler.<name>)` tells arguments and errors. *As*: what
means the same in torch. What torch's has and this has not is an error that says what to do.

"""


def api() -> str:
    """The page of the public names."""
    rows = ((f"`{r.name}`", r.doc, code(r.torch) if r.torch else "", r.lacks) for r in API)
    return NOTE + _API + table(("name", "what", "as", "not here"), rows)


_BACKENDS = """
# Backends

`refcompiler.compile(f, backend="...")`. Other names are those that packages register in the
entry-point group `torch_dynamo_backends`, that torch's registry has, or that
`refcompiler.register_backend` was given. Where a package is missing, `compile` says which.

"""


def backends() -> str:
    """The page of the backends by name."""
    rows = []
    for r in BACKENDS:
        needs = f"`pip install {r.install}`" if r.install else ""
        rows.append((f"`{r.name}`", r.doc, r.devices, needs, r.untried or "tested"))
    return NOTE + _BACKENDS + table(("backend", "what", "device", "needs", "tests"), rows)


_OPCODES = """
# Opcodes

What the interpreter runs, by the sections of Python's documentation of `dis`, for each Python from
3.11 on. The stack is written before `--` after, its top at the right end; `|` separates
alternatives. A name whose meaning changed has a row for each. *Handled* is what says nothing else;
*decoded*: the decoder writes it as others, so that programs of every Python are written in one
vocabulary; *absent*: no code object shows it.

"""


def opcode_page() -> str:
    """The page of the opcodes."""
    return NOTE + _OPCODES + opcodes.markdown()


_ACCURACY = """
# How accurate the scalar operations are

The largest error of each row's text against its exact meaning, over special values and random
operands of the row's domain, in ULP: 0.5 is the best that rounding to nearest guarantees, 0 where
the meaning is itself rounded so. *Bound* is what the row promises of the numba text; CUDA's
libdevice allows its functions up to 4 (`pow` of float32 was measured beyond). Only floats are here:
what gives integers or bools has no error, which the tests hold. Reduced floats are float32 inside a
kernel, rounded when stored.

- *numba*: what kernels on the CPU run.
- *Triton, interpreted*: Triton's interpreter computes with NumPy on the CPU. That holds the *text*
  to its meaning, and says nothing of a device's arithmetic. It has no libdevice: where a text needs
  it, there is no figure.
- *Triton, compiled*: what kernels on the device named below run, libdevice's functions among it.
  Operands and results up to the smallest normal number are left out, which may be zero there.

"""


def accuracy() -> str:
    """The page of what was measured of the scalar rows."""
    found = measured.read()
    titles = {"numba": "numba", "triton interpreted": "Triton, interpreted"}
    titles["triton compiled"] = "Triton, compiled"
    made = "".join(_made(titles[place], found.get(place)) for place in measured.PLACES)
    head = ["name", "dtype", "bound", *titles.values()]
    rows = []
    for row in SCALARS:
        for dtype in ("float32", "float64"):
            cells = []
            for place in measured.PLACES:
                figure = found[place][1].get(row.name, {}).get(dtype) if place in found else None
                cells.append("" if figure is None else f"{figure.ulp:.3g}")
            if any(cells):
                bound = f"{row.ulp[dtype]:g}" if dtype in row.ulp else "exact"
                rows.append([code(row.name), SHORT[dtype], bound, *cells])
    closing = (
        "\n`python -m tests.cpu.specs.measure` measures again (`--device cuda` on a device) and "
        "names\nthe operands of each figure; `--write`, then `python -m specs.docs`, make this.\n"
    )
    return NOTE + _ACCURACY + made + "\n" + table(head, rows) + closing


def _made(title: str, found: tuple[dict[str, str], dict] | None) -> str:
    """What a column was measured with."""
    if found is None:
        return f"*{title}*: not measured.\n"
    made = dict(found[0])
    operands = made.pop("operands")
    return f"*{title}*: {', '.join(f'{k} {v}' for k, v in made.items())}; {operands} operands.  \n"


_AHEAD = """
# Ahead-of-time compilation

What a caller of a compiled graph observes is what eager shows. *Answer*: "compiled"; "uncompiled":
the graph runs as it is, and says why; "refused": an error, where eager has none.

"""


def ahead() -> str:
    """The page of the rules of ahead-of-time compilation."""
    rows = ((r.name, r.eager, r.kept, r.answer) for r in AHEAD)
    return NOTE + _AHEAD + table(("rule", "eager", "compiled", "answer"), rows)


def pages() -> dict[str, str]:
    """File name to text."""
    return {
        "scalars.md": scalars(),
        "accuracy.md": accuracy(),
        "operators.md": operators(),
        "rules.md": rules(),
        "guards.md": guards(),
        "breaks.md": breaks(),
        "opcodes.md": opcode_page(),
        "stances.md": stances(),
        "logs.md": logs(),
        "aot.md": ahead(),
        "options.md": options(),
        "backends.md": backends(),
        "api.md": api(),
    }


def main(arguments: Sequence[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    check = "--check" in arguments
    folders = [a for a in arguments if a != "--check"]
    if len(folders) > 1 or any(a.startswith("-") for a in folders):
        text = f"specs.docs takes one folder, --check and --help, not {' '.join(folders)}"
        print(text, file=sys.stderr)
        return 2
    folder = Path(folders[0]) if folders else FOLDER
    stale = []
    for name, text in pages().items():
        path = folder / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if check and stale:
        print(f"not current, run `python -m specs.docs`: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
