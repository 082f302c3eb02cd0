"""What follows a graph break: one instruction natively, then a continuation with its own plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from refcompiler.capture.iterators import adopt_running
from refcompiler.capture.machine import Symbolic
from refcompiler.capture.marking.marks import ACTIVE
from refcompiler.capture.values import External
from refcompiler.guards.kinds import Ambient
from refcompiler.interpreter.binding import SUSPENDS
from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.handling import under
from refcompiler.interpreter.machine import Machine
from refcompiler.interpreter.resumption import WAYS, generator_frames, host, take_over
from refcompiler.interpreter.signals import Signal
from refcompiler.plan.build import MISS, Plan
from refcompiler.plan.resume import GLOBALS, Layout, describe, extras_of
from refcompiler.runtime.aliens import is_captured_anyway, is_quiet, open_regions, runs_natively
from refcompiler.runtime.captures import STATE
from refcompiler.runtime.site import _LOCK, OVERTAKEN, Native, Site, run_new
from refcompiler.runtime.stance import CURRENT
from refcompiler.runtime.trace import NOTHING, Asked


class Pending:
    """A plan's answer that ends in a break: the frames to go on with."""

    __slots__ = ("layout", "values", "error")

    def __init__(self, layout: Layout, values: list, error: BaseException | None):
        self.layout = layout
        self.values = values
        self.error = error


class Stepper(Machine):
    """Runs the frames natively, one instruction or all of them."""

    def __init__(self) -> None:
        super().__init__(native_calls=True)

    def step(self) -> None:
        frame = self.frame
        assert frame is not None
        i = frame.ip
        frame.ip = i + 1
        handled = self.handled()
        try:
            if handled is None:
                frame.ops[i](self, frame, frame.values[i])
            else:
                under(handled, frame.ops[i], self, frame, frame.values[i])
            return
        except Signal:
            raise
        except BaseException as exc:
            error = exc
        try:
            self.unwind(error)
        finally:
            del error  # its traceback leads here: no cycle

    def finish(self, depth: int = 0) -> None:
        """Run on until the frame that lies ``depth`` deep has ended."""
        while self.frame is not None and self.frame.depth >= depth:
            self.step()


class Continuation(Site):
    """The site at which execution goes on after a break."""

    def __init__(self, layout: Layout, driver: Driver):
        parameters = [f"__v{i}" for i in range(layout.size)] + ["__exc"]
        super().__init__(f"{layout.title} (after a break)", parameters, driver.backend, False)
        self.layout = layout
        self.switched_as(driver)
        self.stepped = False  # capture gets nowhere here: the instruction runs natively

    def pending(self) -> Callable:
        return Pending

    def patience(self, limit: int) -> int:
        return max(limit // 2, 1)

    def identity(self) -> tuple[list[CodeType], list[int]]:
        frames = self.layout.frames
        return [frame.program.code for frame in frames], [frame.ip for frame in frames]

    def shape(self) -> Any:
        from refcompiler.package.names import is_globals

        spaces = [frame.globals for frame in self.layout.frames]
        if not all(space is None or is_globals(space) for space in spaces):
            return None
        named = [space and space["__name__"] for space in spaces]
        return named, [frame.shape for frame in self.layout.frames]

    def enter(self, values: Sequence[Any]) -> Any:
        """The answer of a plan that holds; MISS when the next instruction runs natively."""
        for _ in range(OVERTAKEN):
            if self.stepped or STATE.capturing:
                return MISS
            version = self.version
            found = self.entries[0](*values)
            if found is MISS:
                found = self.find(values)
            if found is not MISS:
                return found
            if CURRENT.setting.misses_run_eagerly or self.native is not None:
                return MISS
            if not Ambient.now().captures:
                return MISS
            with _LOCK:
                if self.version != version:
                    continue  # another thread was faster
                try:
                    plan = self.compile(values, lambda machine: self.start(machine, values))
                except Native:
                    return MISS
                if plan.stands_still:
                    self.store(plan)
                    self.reset()
                    self.stepped = True
                    return MISS
            found = run_new(plan, self, values)
            if found is not MISS:
                return found
        return MISS

    def start(self, machine: Symbolic, values: Sequence[Any]) -> Frame:
        lazies: list[Any] = []
        machine.homes |= {id(frame.globals) for frame in self.layout.frames if frame.globals}
        labels = [*self.layout.labels(), "the exception"]
        for name, label, value in zip(self.parameters, labels, values, strict=True):
            source = machine.sources.make("arg", None, name, label)
            lazy: Any = machine.lazy(source, value)
            if type(value) is CellType:
                machine.external[id(value)] = External(value, source)
                lazy = value
            elif label == GLOBALS:
                machine.sources.reached[id(value)] = source
                lazy = value
            elif name == "__exc":
                if value is not None:
                    machine.observe(lazy)
                    machine.exc = value
                else:
                    machine.guard("NONE", source)
                continue
            lazies.append(lazy)
        frame = self.layout.frames_of(lazies)
        for running in generator_frames(frame):
            adopt_running(machine, running)
            machine.outer_excs.append(running.extra[1])
        return frame


class Held(NamedTuple):
    """What of one frame goes on: ``slots``, ``places`` on the stack, and whether there is more.

    ``dropped`` are slots that nothing reads.
    """

    slots: tuple[int, ...]
    places: tuple[int, ...]
    more: bool
    dropped: tuple[int, ...]


class Way(NamedTuple):
    """From a break past its instruction: where it goes on, and with what of each frame."""

    continuation: Continuation
    held: tuple[Held, ...]

    def values(self, frames: list[Frame]) -> list[Any] | None:
        """Of ``frames``; None where these have to be looked at before it is known what goes on."""
        values: list[Any] = []
        begin = 0
        for held, frame in zip(self.held, frames, strict=True):
            begin = len(values)
            fast, stack = frame.fast, frame.stack
            for slot in held.dropped:
                if not is_quiet(fast[slot]):
                    return None
            values += [fast[slot] for slot in held.slots]
            values += [stack[place] for place in held.places]
            if held.more:
                values += extras_of(frame)
        return values if all(map(is_captured_anyway, values[begin:])) else None


class Driver:
    """Runs pending answers to their end; keeps the continuations of one backend."""

    def __init__(
        self,
        backend: Callable,
        callee: Callable[[FunctionType], Callable] | None = None,
        watch: Callable[[Plan], None] | None = None,
        dynamic: bool | None = None,
        traced: Asked = NOTHING,
        limit: int | None = None,
        keep_guards: Callable | None = None,
    ):
        self.limit = limit
        self.keep_guards = keep_guards
        self.dynamic = dynamic
        self.traced = traced
        self.backend = backend
        self.callee = callee  # how a function that a disabled one calls is entered
        self.watch = watch  # is told of each plan
        self.continuations: dict[tuple, Continuation] = {}
        #: By the layout of the break, how many frames there are after it, and of the innermost one
        #: the instruction and the height of the stack.
        self.ways: dict[tuple[Layout, int, int, int], Way] = {}

    def under(self, backend: Callable) -> Driver:
        """One for the same under another backend."""
        return Driver(
            backend,
            self.callee,
            self.watch,
            self.dynamic,
            self.traced,
            self.limit,
            self.keep_guards,
        )

    def __call__(self, layout: Layout, values: list, error: BaseException | None) -> Any:
        before, ACTIVE.callee = ACTIVE.callee, self.callee
        try:
            return self.drive(layout, values, error)
        finally:
            ACTIVE.callee = before

    def drive(self, layout: Layout, values: list, error: BaseException | None) -> Any:
        drive = Drive(self, Pending(layout, values, error))
        drive.run([])
        if drive.error is not None:
            try:
                raise drive.error
            finally:
                drive.error = None  # its traceback leads here: no cycle
        return drive.result

    def go_on(self, stepper: Stepper, frames: list[Frame], start: Layout | None) -> Any:
        """The continuation's answer; ``start`` is where one step has led from, if it was one."""
        layout, values = describe(frames)
        continuation = self.continuations.get(layout.key)
        if continuation is None:
            continuation = self.continuations[layout.key] = Continuation(layout, self)
        if start is not None and stepper.exc is None:
            self.learn(start, frames, continuation)
        return self.enter(continuation, [*values, stepper.exc])

    def learn(self, start: Layout, frames: list[Frame], continuation: Continuation) -> None:
        """One instruction leads from ``start`` here again, whatever its values are."""
        held = []
        for frame, known in zip(frames, continuation.layout.frames, strict=True):
            if frame.on_return in WAYS or known.kwnames or known.globals is None:
                return
            full = [i for i, value in enumerate(frame.fast) if value is not UNSET]
            dropped = tuple([slot for slot in full if slot not in known.slots])
            places = tuple([i for i, mark in enumerate(known.stack) if mark is None])
            held.append(Held(known.slots, places, known.extra > 0, dropped))
        self.ways[_way_of(start, frames)] = Way(continuation, tuple(held))

    def enter(self, continuation: Continuation, values: list[Any]) -> Any:
        setting = CURRENT.setting
        if setting.stance.enters:
            native = continuation.native is not None
            found = continuation.enter(values)
            if found is MISS and continuation.native is not None and (native or continuation.plans):
                return NATIVE  # past its limit the plans that hold run, and nothing is compiled
            if found is not MISS or not setting.misses_run_eagerly or continuation.stepped:
                return found
        return NATIVE

    def reset(self) -> None:
        self.continuations.clear()
        self.ways.clear()


def _way_of(start: Layout, frames: list[Frame]) -> tuple[Layout, int, int, int]:
    return start, len(frames), frames[-1].ip, len(frames[-1].stack)


NATIVE: Any = object()  # nothing more is compiled in the innermost frame


def release(frame: Frame | None) -> None:
    """Let go of what the frames hold as CPython does: the innermost and the first variables first.

    (That of a generator belongs to its generator.)
    """
    while frame is not None:
        if frame.view is None and not frame.code.co_flags & SUSPENDS:
            frame.fast.reverse()
            frame.fast.clear()
            frame.stack.clear()  # mostly what would have become a variable
        frame = frame.back


class Drive:
    """One run of pending answers to its end, with its ``result`` or its ``error``.

    A generator whose frame lies on the stack runs for whoever looks at it. So what goes on while it
    does is called by its driver: natively, below the generator's own frame.

    Where nothing more is compiled, the innermost frame runs natively to its end, and its caller
    goes on in compiled code: what one function has too many versions of concerns no other.
    """

    def __init__(self, driver: Driver, pending: Pending):
        self.driver = driver
        self.stepper: Stepper
        self.native: int | None = None  # how deep the frame lies that runs natively to its end
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.regions = open_regions()
        self.begin(pending)

    def begin(self, pending: Pending) -> None:
        self.stepper = stepper = Stepper()
        stepper.frame = pending.layout.frames_of(pending.values)
        pending.values.clear()  # from here on the frames alone hold them
        take_over(stepper)
        stepper.exc = pending.error
        self.native = None
        self.broke = True  # the next instruction runs natively
        self.start: Layout | None = pending.layout  # until more than one has run

    def run(self, running: list[Any]) -> None:
        """Go on as long as the generators ``running`` are the outermost ones on the stack."""
        while not self.done:
            standing = self.stands(running)
            if standing is None:
                return
            if not standing:
                continue
            try:
                self.advance(bool(running))
            except BaseException as error:
                self.error, self.done = error, True
                self.stepper.passing = None  # its traceback leads here: no cycle

    def stands(self, running: list[Any]) -> bool | None:
        """Whether ``running`` are all; False when another one ran; None when they run no longer.

        Nothing here may hold a generator while the program goes on.
        """
        frames = generator_frames(self.stepper.frame)
        if not frames and not running:
            return True
        wanted = [frame.extra[0] for frame in frames]
        if any(a is not b for a, b in zip_longest(running, wanted[: len(running)])):
            return None
        if len(wanted) == len(running):
            return True
        generator = wanted[len(running)]
        del frames, wanted
        host(generator, partial(self.run, [*running, generator]))
        return False

    def advance(self, stepwise: bool) -> None:
        stepper = self.stepper
        found = MISS
        if self.native is not None and (stepper.frame is None or stepper.frame.depth < self.native):
            self.native = None
        if stepper.frame is not None and not self.broke and self.native is None:
            if open_regions() == self.regions:  # no block that the program has entered since
                found = self.compiled(stepper.frame)
                if found is NATIVE:
                    self.native = stepper.frame.depth
        if type(found) is Pending:
            self.begin(found)
        elif found is not MISS and found is not NATIVE:
            self.result, self.done = found, True
            release(stepper.frame)
        else:
            if not self.broke:
                self.start = None
            self.broke = False
            if self.native is not None and not stepwise:
                stepper.finish(self.native)
            else:
                stepper.step()
            if stepper.frame is None:
                self.result, self.done = stepper.result, True

    def compiled(self, frame: Frame) -> Any:
        """What the continuation answers; MISS where the next instruction runs natively."""
        stepper, driver = self.stepper, self.driver
        frames = []
        outer: Frame | None = frame
        while outer is not None:
            frames.append(outer)
            outer = outer.back
        frames.reverse()
        if self.start is not None and stepper.exc is None:
            way = driver.ways.get(_way_of(self.start, frames))
            values = None if way is None else way.values(frames)
            if way is not None and values is not None:
                values.append(None)
                return driver.enter(way.continuation, values)
        return MISS if runs_natively(frame) else driver.go_on(stepper, frames, self.start)
