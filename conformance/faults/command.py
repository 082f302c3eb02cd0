"""The command ``refcompiler locate``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from conformance.faults.result import Located
from conformance.pool import CannotRun

CONFORMS, DIFFERS, COULD_NOT_RUN = 0, 1, 2


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--backend", help="For all calls of compile: a registered name, or module:callable.")
@click.option(
    "--frontend",
    type=click.Choice(["refcompiler", "torch"]),
    help="For all calls of compile; else what each is a call of. Of a callable: refcompiler.",
)
@click.option(
    "--timeout",
    type=float,
    default=120.0,
    show_default=True,
    help="Seconds in which the program has to come to its next graph or call.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="One file to attach to a report: what was found out, and a script that shows it.",
)
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def locate(
    program: str,
    arguments: tuple[str, ...],
    backend: str | None,
    frontend: str | None,
    timeout: float,
    report: Path | None,
) -> None:
    """Where a compiled program parts from eager, and whether that is wrong.

    PROGRAM is a script, whose calls of torch.compile and refcompiler.compile are looked at, with
    its ARGUMENTS; or module:callable, with the arguments of one call each as Python expressions:
    "torch.ones(3), 2".

    Exit status: 0 nothing differs but by rounding, 1 it differs, 2 it could not be run.
    """
    from conformance.compilers import Unusable

    try:
        found = _located(program, arguments, backend, frontend, timeout, report is not None)
    except (CannotRun, Unusable) as error:
        click.echo(f"refcompiler locate: {' '.join(str(error).split())}", err=True)
        sys.exit(COULD_NOT_RUN)
    except KeyboardInterrupt:
        click.echo("refcompiler locate: interrupted", err=True)
        sys.exit(COULD_NOT_RUN)
    click.echo(str(found))
    if report is not None:
        from conformance.faults.attach import write

        write(found, report)
        click.echo(f"report: {report}")
    sys.exit(DIFFERS if found.differs else CONFORMS)


def _located(
    program: str,
    arguments: tuple[str, ...],
    backend: str | None,
    frontend: str | None,
    timeout: float,
    shows: bool,
) -> Located:
    from conformance.compilers import CompilerName, find
    from conformance.faults.experiment import Chosen
    from conformance.faults.library import locate_program
    from conformance.faults.programs import Named, Program, Script

    if backend is not None:
        find(CompilerName(backend, frontend or "refcompiler"))
    chosen = Chosen(backend, frontend)
    given: Program
    if Path(program).is_file():
        given = Script(Path(program), arguments)
        name = backend or ""
    elif ":" in program:
        compiler = CompilerName(backend or "fastpath", frontend or "refcompiler")
        given, name = Named(program, arguments, compiler), compiler.backend
    else:
        raise CannotRun(f"{program}: there is no such script, and it is no module:callable")

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[K{text}", nl=False, err=True)

    try:
        return locate_program(given, chosen, name, timeout, progress=progress, shows=shows)
    finally:
        progress("")
