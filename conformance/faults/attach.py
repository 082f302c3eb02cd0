"""One file to attach to a report: a script that says in its head what was found out."""

from __future__ import annotations

from pathlib import Path

from conformance.faults.result import Located


def write(found: Located, path: Path) -> None:
    """The script that shows the failure, or else one that prints what is known of it."""
    path.write_text(attachment(found), encoding="utf-8")


def attachment(found: Located) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in found.versions.items())
    said = f"{found}\n{versions}"
    head = said.replace("\\", "\\\\").replace('"""', "'''")
    if found.script:
        return f"# {'Confirmed: this script was run alone, and failed.'}\n" + _with_head(
            found.script, head
        )
    status = int(found.differs)
    return f'"""{head}\n"""\n\nimport sys\n\nprint(__doc__)\nsys.exit({status})\n'


def _with_head(script: str, head: str) -> str:
    """The report before the script's own heading, in one docstring."""
    assert script.startswith('"""')
    return f'"""{head}\n\n{script[3:]}'
