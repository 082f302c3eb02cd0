"""Launches of kernels go to Triton's function in C as its launcher would call it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from fastpath.gpu.compile import launch
from fastpath.gpu.launcher import loaded


class Launcher:
    """As that of Triton 3.6: arguments one behind the other."""

    global_scratch_size = profile_scratch_size = 0

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.through = 0

        def function(*passed: Any) -> None:
            self.calls.append(passed)

        self.launch = function

    def __call__(self, x: Any, y: Any, z: Any, stream: Any, function: Any, *rest: Any) -> None:
        self.through += 1
        self.launch(x, y, z, stream, function, False, True, self._scratch(x, y), None, *rest)

    def _scratch(self, x: Any, y: Any) -> Any:
        return x * y * self.global_scratch_size if self.global_scratch_size else None


class Later(Launcher):
    """As that of Triton 3.9: a kernel's own arguments are one, behind what they are."""

    kinds = ("p", "n")

    def __call__(
        self, x: Any, y: Any, z: Any, stream: Any, function: Any, of: Any, *rest: Any
    ) -> None:
        self.through += 1
        hooks, arguments = rest[:3], rest[3:]
        self.launch(x, y, z, stream, function, of, *hooks, self.kinds, arguments)


class Scratch(Launcher):
    """A kernel that works in memory of its own, as large as there are programs."""

    global_scratch_size = 64


class Looking(Launcher):
    """One that does something with what it is given."""

    def __call__(self, x: Any, *rest: Any) -> None:
        super().__call__(x + 0, *rest)


class Twice(Launcher):
    def __call__(self, *given: Any) -> None:
        super().__call__(*given)
        super().__call__(*given)


KINDS: list[tuple[type[Launcher], bool]] = [(Launcher, True), (Later, True), (Scratch, False)]
KINDS += [(Looking, False), (Twice, False)]


@pytest.mark.parametrize("programs", [12, None])
@pytest.mark.parametrize("kind, direct", KINDS)
def test_a_launch_passes_what_the_launcher_does(
    kind: type[Launcher], direct: bool, programs: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda n: 700 + n, raising=False)
    made: dict[bool, Any] = {}

    def make(aligned: bool) -> Any:
        made[aligned] = SimpleNamespace(run=kind(), function=5 + aligned, packed_metadata=("m", 1))
        return made[aligned]

    run = launch(make, 2, programs, 3, numbers=1, sizes=1)
    assert not made[True].run.calls
    given = [] if programs is not None else [9]
    run(*given, 32, 64, -1, 33)  # two addresses, a number and a size
    run(*given, 48, 7, 2, 1)  # one that is not aligned
    if programs is None:
        run(0, 32, 64, 1, 1)
    for aligned, rest in ((True, (32, 64, -1, 33)), (False, (48, 7, 2, 1))):
        other = kind()
        other(programs or 9, 1, 1, 703, 5 + aligned, ("m", 1), None, None, None, *rest)
        assert made[aligned].run.calls == other.calls
        assert made[aligned].run.through == (0 if direct and aligned else other.through)


def test_a_kernel_that_another_thread_loads_is_waited_for() -> None:
    class Loading:
        """As Triton's compiled kernel, which is slow to load."""

        packed_metadata = ()
        function = _run = None

        @property
        def run(self) -> Any:
            if self._run is None:
                self._run = Launcher()
                time.sleep(0.05)
                self.function = 5
            return self._run

    kernel = Loading()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: loaded(kernel)[:2], range(4)))
    assert [function for _, function in found] == [5] * 4
    assert len({id(run) for run, _ in found}) == 1
