"""A sample of the batteries: python -m tests.slow.batteries runs all of them."""

from __future__ import annotations

import pytest

from tests.slow.batteries.__main__ import Worker
from tests.slow.batteries.libraries import PROGRAMS, NotInstalledError, libraries, library_programs
from tests.slow.batteries.measure import Outcome
from tests.slow.batteries.worker import BATTERIES

EVERY = {"operators": 40, "modules": 20, "families": 8}


@pytest.mark.parametrize("battery", EVERY)
def test_as_much_in_one_graph(battery: str) -> None:
    names = BATTERIES[battery][0]()[:: EVERY[battery]]
    worker = Worker(battery, ["refcompiler", "torch"], limit=120.0)
    whole = kept = 0
    for name in names:
        pair: dict[str, Outcome] = {}
        for answer in worker.run(name):
            assert "lost" not in answer, answer
            if "outcome" not in answer:
                continue
            outcome = pair[answer["compiler"]] = Outcome(**answer["outcome"])
            if answer["compiler"] == "refcompiler":
                assert not outcome.error and not outcome.difference, (answer, name)
            elif outcome.whole:
                whole += 1
                kept += pair["refcompiler"].whole
    worker.close()
    assert whole >= len(names) // 2
    assert kept >= 0.97 * whole


def test_a_library_that_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.slow.batteries.libraries.PROGRAMS", {"no_such_library": PROGRAMS})
    assert libraries() == ["no_such_library:"]
    with pytest.raises(NotInstalledError, match="no_such_library is not installed.*left out"):
        next(library_programs("no_such_library:"))
