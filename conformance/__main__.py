"""``python -m conformance``, and the console command: the same, or one line that says why not."""

from __future__ import annotations

import sys

#: Packages of the project, whose absence no installation of a dependency mends.
_OWN = ("conformance", "fastpath", "refcompiler", "specs")


def main() -> None:
    """The command; it exits 2 where a package that it needs is not installed."""
    try:
        from conformance import cli
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in _OWN:
            raise
        sys.stderr.write(
            f"refcompiler needs the package {missing}: pip install {missing}, "
            "or pip install refcompiler for all that it needs\n"
        )
        sys.exit(2)
    cli.main(prog_name="refcompiler")


if __name__ == "__main__":
    main()
