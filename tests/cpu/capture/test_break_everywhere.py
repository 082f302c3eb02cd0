"""A break forced at each instruction of a function leaves eager's answer as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import refcompiler.runtime.site as site
from refcompiler.capture.machine import Symbolic
from refcompiler.runtime.config import config
from refcompiler.runtime.entry import Entry
from tests.cpu.capture import (
    battery,
    test_breaks,
    test_containers,
    test_language,
    test_modules,
    test_objects,
    test_tensors,
)
from tests.cpu.capture.oracle import Case, compare, compiling, run

FORCED = ("user-graph-break", "forced")
#: Instructions of one function at which a break is tried; more are sampled evenly.
LIMIT = 10

CHOSEN = {
    test_language: """
        closure_made_inside nonlocal_tensor global_made_and_deleted default_arguments
        varargs_and_varkeywords stars_at_the_call unpacking loops recursion comprehensions
        generator_consumed generator_send_throw_close iteration_tools matching decorators partials
        cell_deleted keyword_dict_mutated_inside late_binding
    """,
    test_objects: """
        methods_and_properties objects_made_inside attributes_written getattr_hooks descriptors
        slots super_forms custom_new builtin_subclasses dataclasses_made_inside namedtuples enums
        metaclasses instance_dict_and_attributes object_graph_shared
    """,
    test_tensors: """
        augmented_assignments view_of_an_argument_written tensor_written_into_a_container
        setting_items no_grad_block random_numbers gradients several_results
    """,
    test_containers: """
        list_methods dict_methods dict_argument_changed ordered_and_default_dicts deques
        nested_containers_changed self_referring_containers set_argument_changed user_containers
    """,
    test_breaks: """
        context_managers_without_a_break exceptions_caught_inside break_with_everything_alive
        break_in_a_loop break_while_handling exception_out_of_the_function
    """,
    test_modules: """
        plain_module sequential_lists_and_dicts buffers_changed forward_hooks counter_written
    """,
}


def chosen() -> Iterator[Case]:
    for module, names in CHOSEN.items():
        by_name = {str(case): case for case in module.cases}
        for name in names.split():
            yield by_name[name]


class Forcing:
    """Makes entries (or every site) stop at given root instructions."""

    def __init__(self, stops: set[int], everywhere: bool):
        self.stops = {step: FORCED for step in stops}
        self.everywhere = everywhere
        self.steps = 0
        self.forced = 0

    def capture(self, original: Callable) -> Callable:
        forcing = self

        def capture(self: Any, start: Callable) -> Any:
            class Forced(Symbolic):
                def __init__(self, stops: dict, *rest: Any) -> None:
                    if forcing.everywhere or entry:
                        merged = {**forcing.stops, **stops}
                    else:
                        merged = stops
                    super().__init__(merged, *rest)

                def capture(self, frame: Any) -> Any:
                    found = super().capture(frame)
                    if entry:
                        forcing.steps = max(forcing.steps, self.steps)
                    if found.reason is not None and found.reason.context == "forced":
                        forcing.forced += 1
                    return found

            entry = isinstance(self, Entry)
            site.Symbolic = Forced
            try:
                return original(self, start)
            finally:
                site.Symbolic = Symbolic

        return capture


def forced_run(
    case: Case, monkeypatch: pytest.MonkeyPatch, stops: set[int], everywhere: bool = False
) -> tuple[Any, Forcing]:
    forcing = Forcing(stops, everywhere)
    with monkeypatch.context() as patch:
        patch.setattr(config, "recompile_limit", 1000)  # a warning is not what eager prints
        patch.setattr(site.Site, "capture", forcing.capture(site.Site.capture))
        return run(case, compiling("eager")), forcing


def break_at(case: Case, monkeypatch: pytest.MonkeyPatch, limit: int, first: int = 0) -> int:
    """Force a break at ``limit`` instructions, evenly spread; the number of comparisons."""
    native = run(case, None)
    _, forcing = forced_run(case, monkeypatch, set())
    steps = range(1, forcing.steps + 1)
    stride = max(1, -(-len(steps) // limit))
    count = forced = 0
    for step in steps[first % stride :: stride]:
        found, forcing = forced_run(case, monkeypatch, {step})
        try:
            count += compare(native, found)
        except AssertionError as error:
            raise AssertionError(f"break forced at instruction {step}\n{error}") from None
        forced += forcing.forced
    assert forced
    return count


@pytest.mark.parametrize("case", list(chosen()), ids=str)
def test_break_at_each_instruction(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert break_at(case, monkeypatch, LIMIT) > LIMIT


@pytest.mark.parametrize("i", range(len(battery.cases)), ids=[str(c) for c in battery.cases])
def test_battery(i: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few instructions of each; all of them in ``tests/slow``."""
    assert break_at(battery.cases[i], monkeypatch, 3, first=i) > 20


@pytest.mark.parametrize("case", list(chosen()), ids=str)
def test_break_after_every_few_instructions(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    native = run(case, None)
    for every in (2, 5):
        found, forcing = forced_run(case, monkeypatch, {every}, everywhere=True)
        assert compare(native, found) > 0
        assert forcing.forced > 0
