"""The console command ``refcompiler``."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from conformance import runner
from conformance.faults.command import locate
from conformance.pool import CannotRun
from conformance.report import Result, as_text
from conformance.report import write as writing
from conformance.suites import SUITES, default_names
from refcompiler.cache.command import cache
from refcompiler.stepper.command import step
from specs.version import VERSION

CONFORMS, DOES_NOT, COULD_NOT_RUN = 0, 1, 2
_WITHOUT_TORCH = ("step", "cache")
LINE_SECONDS = 30.0  # between lines of progress, where there is no terminal for a bar


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="refcompiler")
@click.pass_context
def main(context: click.Context) -> None:
    """What torch.compile means, and whether a compiler does it."""
    command = context.invoked_subcommand
    if command not in _WITHOUT_TORCH and not _has_torch():
        click.echo(f"refcompiler {command} needs the package torch: pip install torch", err=True)
        sys.exit(COULD_NOT_RUN)


def _has_torch() -> bool:
    try:
        return importlib.util.find_spec("torch") is not None
    except ValueError:  # something else is there under its name
        return False


@main.command()
@click.option("--backend", required=True, help="A registered backend's name, or module:callable.")
@click.option(
    "--frontend",
    type=click.Choice(["refcompiler", "torch"]),
    default="refcompiler",
    show_default=True,
    help="What captures: this project's front end, or torch.compile itself.",
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME",
    help=f"A suite to run; may be repeated: {', '.join(SUITES.names())}. "
    f"Default: {', '.join(default_names())}.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Only what matches: a subject, or suite/subject/variant, with * ? [...]; may be repeated.",
)
@click.option("--device", default="cpu", show_default=True, help="Where inputs and models live.")
@click.option(
    "--max-examples",
    type=int,
    default=runner.DEFAULT_MAX_EXAMPLES,
    show_default=True,
    help="Cases per operator and dtype.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Draws the same cases again.")
@click.option("--jobs", type=int, help="Worker processes. Default: 2, or 1 on a single core.")
@click.option(
    "--timeout",
    type=float,
    default=runner.DEFAULT_TIMEOUT,
    show_default=True,
    help="Seconds that one case may take before it counts as a hang.",
)
@click.option(
    "--xfails",
    type=click.Path(path_type=Path),
    help="File of expected failures: TOML, or lines of 'id pattern  # reason'.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="Folder for report.json, junit.xml, index.html and repro scripts.",
)
def conform(report: Path | None, **options: Any) -> None:
    """Test a torch.compile backend.

    Every case is run eagerly and compiled; everything that a user can see is compared, and what
    differs is judged against float64. A crash or a hang costs only its own case.

    Exit status: 0 conforms, 1 does not, 2 could not run, or was interrupted: what was judged by
    then is shown and written all the same.
    """
    console = Console()
    try:
        if report is not None and (line := writing.missing_extra()):
            raise CannotRun(line)
        found = _run(console, report=report, **options)
    except CannotRun as error:
        click.echo(f"refcompiler conform: {' '.join(str(error).split())}", err=True)
        sys.exit(COULD_NOT_RUN)
    except KeyboardInterrupt:
        click.echo("refcompiler conform: interrupted", err=True)
        sys.exit(COULD_NOT_RUN)
    console.print(as_text.tables(found))
    if report is not None:
        writing.write(found, report)
        console.print(f"report: {report / 'index.html'}", highlight=False, soft_wrap=True)
    if found.stopped:
        click.echo(f"refcompiler conform: {found.stopped}", err=True)
        sys.exit(COULD_NOT_RUN)
    if found.not_run and not found.comparisons:  # which says nothing about the compiler
        click.echo(f"refcompiler conform: nothing was compared: {found.not_run[0]}", err=True)
        sys.exit(COULD_NOT_RUN)
    outcome = "conforms" if found.conforms else "does not conform"
    console.print(
        f"{found.compiler} ({found.frontend} front end) {outcome}: {len(found.results)} cases, "
        f"{found.comparisons} comparisons, {found.seconds:.0f} s",
        highlight=False,
        soft_wrap=True,
    )
    sys.exit(CONFORMS if found.conforms else DOES_NOT)


@main.command("random", context_settings={"ignore_unknown_options": True})
@click.option("--backend", help="For all calls of compile: a registered name, or module:callable.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def random_(script: Path, arguments: tuple[str, ...], backend: str | None) -> None:
    """Compare the random numbers that a script draws eagerly and compiled.

    SCRIPT runs twice from the same states of all generators, once with its calls of torch.compile
    and refcompiler.compile taken out. Every draw is listed, and the first that differs is named.

    Exit status: 0 the same draws, 1 they differ, 2 the script raised, compiles nothing, or cannot
    be compiled.
    """
    from conformance.compilers import Unusable
    from conformance.random.run import compare_script

    try:
        found = compare_script(script, arguments, backend)
    except Unusable as error:
        click.echo(f"refcompiler random: {error}", err=True)
        sys.exit(COULD_NOT_RUN)
    except Exception as error:
        line = " ".join(str(error).split())
        click.echo(f"refcompiler random: {script}: {type(error).__name__}: {line}", err=True)
        sys.exit(COULD_NOT_RUN)
    click.echo(str(found))
    sys.exit(DOES_NOT if found.divergence else CONFORMS)


main.add_command(step)
main.add_command(cache)
main.add_command(locate)


def _run(console: Console, **options: Any) -> runner.Report:
    """Run with a bar that counts families and failures; in a file, with a line now and then."""
    if not console.is_terminal:
        return runner.run(progress=lines(), **options)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("starting", total=None, state="")
        failures = 0

        def judged(result: Result) -> None:
            nonlocal failures
            failures += result.fails
            bar.update(task, state=f"{failures} failures" if failures else "")

        def started(families: int, ready: object) -> None:
            bar.update(task, description="judging", total=families)

        def shrinking(count: int) -> None:
            bar.update(task, description="shrinking", total=count, completed=0)

        progress = runner.Progress(
            started=started,
            judged=judged,
            finished_family=lambda family: bar.advance(task),
            shrinking=shrinking,
            shown=lambda result: bar.advance(task),
        )
        return runner.run(progress=progress, **options)


def lines(every: float = LINE_SECONDS) -> runner.Progress:
    """Progress as lines on standard error, one in ``every`` seconds, for a log."""
    start = last = time.monotonic()
    total = done = cases = failures = 0
    doing = "judging"

    def show() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= every:
            last = now
            text = f"{doing}: {done} of {total}, {cases} cases, {failures} failures"
            click.echo(f"{text}, {now - start:.0f} s", err=True)

    def started(families: int, ready: object) -> None:
        nonlocal total
        total = families

    def judged(result: Result) -> None:
        nonlocal cases, failures
        cases += 1
        failures += result.fails
        show()

    def step_done(_: object) -> None:
        nonlocal done
        done += 1
        show()

    def shrinking(count: int) -> None:
        nonlocal total, done, doing
        total, done, doing = count, 0, "showing failures"

    return runner.Progress(started, judged, step_done, shrinking, step_done)


if __name__ == "__main__":
    main()
