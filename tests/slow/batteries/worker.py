"""The process that runs programs: an entry's name in on each line, a line for each program out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict

from tests.slow.batteries.entries import (
    Program,
    module_programs,
    modules,
    operator_programs,
    operators,
)
from tests.slow.batteries.families import GROWING, families, family_programs
from tests.slow.batteries.libraries import NotInstalledError, libraries, library_programs
from tests.slow.batteries.measure import eager, measure, quiet

LAYERS = (4, 12, 48)


def _growth(name: str) -> Iterator[tuple[str, Program]]:
    for layers in LAYERS:
        for _, program in family_programs(name, layers):
            yield f"{layers} layers", program


BATTERIES: dict[str, tuple[Callable[[], list[str]], Callable]] = {
    "operators": (operators, operator_programs),
    "modules": (modules, module_programs),
    "families": (families, family_programs),
    "growth": (lambda: GROWING, _growth),
    "libraries": (libraries, library_programs),
}


def main() -> None:
    battery, compilers = sys.argv[1], sys.argv[2].split(",")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the programs print is not for the reader of this
    quiet()
    for line in sys.stdin:
        name = line.strip()

        def answer(**found: object) -> None:
            print(json.dumps(found), file=out, flush=True)

        try:
            for program_name, program in BATTERIES[battery][1](name):
                try:
                    expected = eager(program)
                except Exception as error:
                    answer(program=program_name, eager=f"{type(error).__name__}: {error}"[:160])
                    continue
                for compiler in compilers:
                    outcome = measure(program, compiler, expected)
                    answer(program=program_name, compiler=compiler, outcome=asdict(outcome))
        except NotInstalledError as error:
            answer(program=name, missing=str(error))
        except Exception as error:
            answer(program=name, eager=f"{type(error).__name__}: {error}"[:160])
        answer(done=name)


if __name__ == "__main__":
    main()
