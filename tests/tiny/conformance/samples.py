"""Cases, verdicts and reports made by hand."""

from conformance.case import Call, Case, Change, Compiles, Literal, Program, Storage, Tensor
from conformance.report.results import Report, Result
from conformance.verdict import Compiled, Finding, Kind, Verdict
from conformance.xfails import Expectation

SOURCE = "import torch\n\n\ndef program(x):\n    return torch.sin(x)\n"


def case(label="", values=(1.0, 2.0, 3.0, 4.0), **more):
    """A call of ``sin``, twice, with an unused input."""
    inputs = (
        Storage("_x", "float32", len(values), Literal(tuple(values))),
        Tensor("x", "_x", (len(values),)),
        Storage("_z", "float32", 1, Literal((0.5,))),
        Tensor("z", "_z", (1,)),
    )
    history = (Call("f(x)", Compiles.YES), Change("x.add_(1)"), Call("f(x)", Compiles.NO))
    settings = {"suite": "made", "subject": "sin", "variant": "float32"} | more
    return Case(program=Program(SOURCE), inputs=inputs, history=history, label=label, **settings)


def wrong(tolerated=False, kind=Kind.WRONG, aspect="values", **evidence):
    finding = Finding(kind, aspect, "outs[0]", 0, "1.0", "2.0", tolerated, evidence)
    return Verdict((finding,), 5, Compiled(graphs=1, calls=1))


def passing(aten=()):
    return Verdict((), 7, Compiled(graphs=1, calls=1, aten=aten))


def report(*results, stale=()):
    return Report(
        compiler="made:backend",
        frontend="torch",
        settings={"seed": "0"},
        versions={"torch": "2.13.0"},
        results=results,
        seconds=1.5,
        stale=stale,
        command="refcompiler conform --backend made:backend",
    )


def mixed_report():
    """One case of each kind of outcome."""
    known = Expectation("made/sin/*", "known <since> May")
    return report(
        Result(case("ok"), passing(), 0.1),
        Result(case("aten", subject="cos"), passing(("aten.cos",)), 0.1),
        Result(case("bad", variant="int8"), wrong(index=(0,), found=float("nan")), 0.1),
        Result(case("noise"), wrong(True, Kind.REASSOCIATION), 0.1),
        Result(case("known"), wrong(), 0.1, expected=known),
        Result(case("dead"), wrong(kind=Kind.CRASH, aspect="process", log="\x00\x1b[0m"), 0.1),
        stale=(Expectation("made/cos/*", "old"),),
    )
