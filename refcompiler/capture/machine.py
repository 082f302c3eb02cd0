"""The symbolic machine: one capture, from its frames to a return or a break."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CoroutineType
from typing import Any
from weakref import WeakSet

import torch

from refcompiler.ambient import Autocast
from refcompiler.capture import assertions, displays, specials, subclasses, unread
from refcompiler.capture.addresses import STAND_INS
from refcompiler.capture.arithmetic import ending
from refcompiler.capture.arrays import tensors, wrapping
from refcompiler.capture.calls import Calls
from refcompiler.capture.door import Door, Recorder
from refcompiler.capture.dropping import Dropping, held_alone, is_unfinished
from refcompiler.capture.dynamic import Policy, Sizes
from refcompiler.capture.entering import catches, entering_ops
from refcompiler.capture.handing import check_handed
from refcompiler.capture.immutable import Decimals
from refcompiler.capture.lookup import described
from refcompiler.capture.models import (
    branchless,
    classes,
    copying,
    directives,
    iterating,
    legacy,
    library,
    optimizers,
    ordering,
    parallel,
    parameters,
    python,
    scaling,
    serial,
    speaking,
    storage,
    subscripts,
    symbols,
    warned,
    weak,
)
from refcompiler.capture.models.classes import detach
from refcompiler.capture.models.outlets import check_outlets
from refcompiler.capture.natively import interpreting
from refcompiler.capture.reentry import Learned, Reentry
from refcompiler.capture.regions import attention, blocks, branches, custom, loops, transforms
from refcompiler.capture.signals import Again, Break, Reason, Restart
from refcompiler.capture.state import forward, functions, handles, hooks, modes, switches
from refcompiler.capture.state.contexts import Contexts
from refcompiler.capture.state.switches import Setting, restore, settings
from refcompiler.capture.steady import check_steady, steady
from refcompiler.capture.values import Place, Unread
from refcompiler.guards.kinds import Ambient
from refcompiler.interpreter.continued import Continued
from refcompiler.interpreter.driven import DRIVEN
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.generators import make_generator
from refcompiler.interpreter.signals import Signal
from refcompiler.interpreter.tracebacks import user_part

#: The references to an object that an attribute alone holds, when they are counted.
_ALONE = 3  # that, a variable and the question
_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")

__all__ = [
    "Captured",
    "Symbolic",
    "assertions",
    "attention",
    "blocks",
    "branches",
    "branchless",
    "classes",
    "copying",
    "custom",
    "directives",
    "displays",
    "forward",
    "hooks",
    "iterating",
    "legacy",
    "library",
    "loops",
    "modes",
    "optimizers",
    "ordering",
    "parallel",
    "parameters",
    "python",
    "scaling",
    "serial",
    "speaking",
    "storage",
    "specials",
    "subscripts",
    "switches",
    "symbols",
    "tensors",
    "transforms",
    "warned",
    "weak",
    "wrapping",
    "unread",
]

#: What tells of a module's namespace whose it is, and where its source stands.
_OF_MODULES = ("__name__", "__file__", "__loader__", "__builtins__")


@dataclass
class Captured:
    """How a capture ended: with the root's value, or (``reason`` set) before an instruction.

    ``frames`` are the frames alive at the break, root first; ``ip`` of the last is the breaking
    instruction's. ``error`` is what the user's program raised there, if that was the reason.
    """

    machine: Symbolic
    value: Any = None
    frames: list[Frame] | None = None
    reason: Reason | None = None
    error: BaseException | None = None
    grad: bool = True
    autocast: Autocast | None = None  # where it is another than at the start
    settings: Sequence[Setting] = ()  # the switches that were set
    blocks: Sequence[Any] = ()  # of inference mode, that were entered and not left


def _no_saving_hooks() -> Any:
    """The user's hooks on saved tensors must not see fakes."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return contextlib.nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)


def _is_dropped(activation: Any) -> bool:
    """Whether the program has dropped a coroutine that it never awaited, which warns."""
    held = activation.unawaited
    if held is None or held.cr_frame is None:  # which somebody has closed
        return False
    return sys.getrefcount(held) == _ALONE


class Finalised(Continued):
    """What drives a generator that a capture made.

    The frame that drops the last reference to a generator lets it be closed; an exception that
    leaves it then, such as the one for a break, gets lost.
    """

    __slots__ = ()

    def resume(self) -> bool:
        if not isinstance(self.error, GeneratorExit):
            return super().resume()
        try:
            return super().resume()
        except Restart as signal:
            self.machine.lose(signal)
            self.discard()
            return False


class Symbolic(Calls):
    """The symbolic domain. ``stops`` are root instruction counts at which to break."""

    shows_values = False
    shows_failures = False

    def __init__(
        self,
        stops: dict[int, tuple[str, str]],
        policy: Policy | None = None,
        learned: Learned | None = None,
    ):
        super().__init__(Recorder())
        self.stops = dict(stops)
        self.learned = learned or Learned()
        self.reentry = Reentry(self, self.learned.called)
        self.lost: Restart | None = None
        self.dropping: Dropping | None = None
        self.texts: WeakSet[Unread] = WeakSet()
        self.decimals: Decimals | None = None
        self.sizes = Sizes(self, policy or Policy())
        self.steps = self.nested = 0
        self.acted = -1
        self.is_personal = False  # it was decided by what only this process knows
        self.ambient = Ambient.now()
        self.autocast = Autocast.now()
        self.class_lookups = {}
        self.lacking = {}
        self.fixed = set()
        self.written_classes = set()
        self.shown_classes = set()
        self.made = {}
        self.namespaces = {}
        self.members = {}
        self.callbacks = {}
        self.callback_of = {}
        self.recorder.place = self.where
        self.recorder.step = lambda: self.steps
        self.recorder.is_caught = self.is_caught
        self.recorder.metadata = self.read_metadata
        self.recorder.steady = functools.partial(steady, self)
        self.steady: dict[int, tuple[torch.Tensor, Any]] = {}  # inputs whose number is guarded
        self.recorder.is_heard = lambda: warned.is_watched(self)
        self.surprise: BaseException | None = None
        self.rethrown = {}
        self.open_inference = []
        self.left_inference = []
        self.runs_outside = None
        self.open_devices = []
        self.open_levels = []
        self.function_modes = []
        self.switches = {}
        self.views: dict[int, Any] = {}  # iterators from outside that were advanced
        self.activations: list[Any] = []
        self.coroutines: WeakSet[CoroutineType] = WeakSet()
        self.handed_over = []
        self.told = None
        self.contexts = Contexts(self)
        self.own_classes = dict.fromkeys(STAND_INS, 0)
        self.addresses = {}
        self.memos = set()
        self.hashes_told = {}
        self.continues = False
        self.standins = {}
        self.own_attributes = {}
        self.given_contents = {}
        subclasses.connect(self)
        self.open_ranges: set[int] = set()  # of the profiler, that the frame has entered
        self.after: list[tuple[Any, str]] = []  # methods to call after the graph, of what
        self.hooks: dict[int, hooks.Hook] = {}  # by the ids of their handles
        self.numbered: dict[int, handles.Registered] = {}  # the same, of modules
        self.outside = handles.Outside()
        self.released: list[tuple] = []  # what native code runs with, and at which step
        self.handles: list[tuple[Any, int]] = []  # from outside, that were removed; at which step
        self.given_out: set[int] = set()  # arrays whose own tensor the program has
        self.class_bodies: list[tuple[Frame, int]] = []  # and the step of the statement
        self.constructors = []
        self.whole = []
        self.module_kinds = {}
        self.enters_modules = False
        self.deferred = []
        self.answers = {}
        self.speech = warned.Speech()
        self.insides = {}
        self.makes_parameters = False
        self.recovers = False  # from a graph that has raised
        self.strict = False  # a break is an error here, says the program
        self.patched = []
        self.draws = []

    def handled(self) -> BaseException | None:
        for found in (self.exc, *reversed(self.outer_excs)):
            if found is not None:  # one of the user's may be false
                return found
        around = self.lazy(self.sources.make("handled", None), self.exc_around)
        return None if self.is_none(around) else self.force(around)

    def where(self) -> tuple[str, tuple[Place, ...]]:
        """The line that runs, as fx keeps it, and where each frame stands, outermost first."""
        frame = self.frame
        if frame is None:
            return "", ()
        frame = frame.visible
        text = f'File "{frame.code.co_filename}", line {frame.line}, in {frame.code.co_name}'
        places = []
        while frame is not None:
            if not frame.program.hidden:
                space = self.described_globals(frame.globals)
                places.append(Place(frame.program, frame.ip, space, frame.mapping))
            frame = frame.back
        return text, tuple(reversed(places))

    def is_caught(self) -> bool:
        """Whether code of the program's would run if the instruction at hand raised."""
        return any(
            f.program.handler_at(f.ip - 1) is not None
            for f in self._frames()
            if not f.globals.get("__name__", "").startswith("torch.")
        )

    def described_globals(self, space: dict[str, Any]) -> dict[str, Any]:
        """The globals of a frame in a traceback that may be asked for after they have died."""
        if id(space) not in self.sources.reached:
            return space
        return {name: space[name] for name in _OF_MODULES if name in space}

    def capture(self, frame: Frame) -> Captured:
        """Run ``frame`` (the innermost of the frames alive) as far as one graph reaches."""
        self.frame = frame
        frames = self._frames()
        self.started = {id(f) for f in frames}
        self.continues = frames[0].ip > 0
        # what a call begins with its caller holds
        held = held_alone(frames) if self.continues else []
        if held or self.learned.releases:
            self.dropping = Dropping(self, held, self.learned.releases)
        self.depth = 1
        with self._domain():
            try:
                self.root_loop()
            except Break as signal:
                frames = self._frames()
                natively = [*self.class_bodies, *self.whole]
                if signal.row == "tensor-kind" or self.makes_parameters:  # one for the whole module
                    natively += self.constructors
                for body, step in natively:
                    if body in frames:  # the class, or the module, is made natively
                        raise Restart(step, signal.row, signal.context) from signal
                if self.steps in (self.recorder.last_step, self.acted):  # a part of it was done
                    raise Restart(self.steps, signal.row, signal.context) from signal
                reason = self.reason(signal.row, signal.context)
                frames[-1].ip -= 1
                return self._ended(Captured(self, None, frames, reason, self.surprise))
            if self.lost is not None:
                raise self.lost
            return self._ended(Captured(self, self.result))

    def _ended(self, captured: Captured) -> Captured:
        """With the modes in which the program goes on."""
        if self.open_devices:
            why = "a graph ends inside a block of a device"
            raise Restart(self.open_devices[0][1], "ambient-state", why)
        if self.open_levels:
            why = "a graph ends inside a level of forward differentiation"
            raise Restart(self.open_levels[0], "ambient-state", why)
        functions.check_left(self)
        if self.function_modes:
            inner = captured.reason
            because = f", for {inner.row}: {inner.context}" if inner is not None else ""
            why = f"a graph ends inside a TorchFunctionMode{because}"
            raise Restart(self.function_modes[0].step, "ambient-state", why)
        self.learn_unfinished()
        for made in self.activations:
            if _is_dropped(made):
                name = made.unawaited.__qualname__
                raise Restart(made.step, "coroutine", f"{name}, which nothing awaits")
        if self.decimals is not None:
            self.decimals.tell(self)
        hooks.check_hooks(self)
        check_handed(self)
        check_steady(self)
        warned.check_logs(self)
        check_outlets(self)
        captured.grad = torch.is_grad_enabled()
        captured.blocks = modes.open_blocks(self)
        if self.recorder.switched:
            captured.autocast = Autocast.now()
        if self.switches:
            captured.settings = settings(self.switches)
        return captured

    @contextlib.contextmanager
    def _domain(self) -> Iterator[None]:
        grad = torch.is_grad_enabled()
        quiet, _FAKE_LOG.disabled = _FAKE_LOG.disabled, True  # what eager raises is no news
        always = torch.is_warn_always_enabled()
        torch.set_warn_always(True)  # or what is said once only is said to nobody
        collects = gc.isenabled()
        gc.disable()  # capture makes many objects, nearly all of which live until its end
        try:
            with _no_saving_hooks(), self.recorder.fake_mode, Door(self.recorder):
                try:
                    yield
                finally:  # before the door, which lies below them on the stack of modes
                    while self.open_inference:
                        self.open_inference.pop().guard.__exit__(None, None, None)
                    while self.open_devices:
                        self.open_devices.pop()[0].__exit__(None, None, None)
                    while self.function_modes:
                        self.function_modes.pop().__exit__(None, None, None)
        finally:
            while self.open_levels:
                self.open_levels.pop()
                forward.forward_ad.exit_dual_level()
            torch._C._set_grad_enabled(grad)
            if self.recorder.switched or self.ambient.autocast:
                self.autocast.set()
                torch.clear_autocast_cache()  # it holds fakes
            restore(self.switches)
            torch.set_warn_always(always)
            _FAKE_LOG.disabled = quiet
            if collects:
                gc.enable()

    def root_loop(self) -> None:
        stops, dropping = self.stops, self.dropping
        while True:
            try:
                f = self.frame
                while f is not None:
                    ops, values = f.program.entering or entering_ops(f.program), f.values
                    if dropping is not None:
                        ops = dropping.ops(f.program)
                    while f is self.frame:
                        self.steps += 1
                        i = f.ip
                        f.ip = i + 1
                        if self.steps in stops:
                            raise self.lost or Break(*stops[self.steps])
                        ops[i](self, f, values[i])
                    f = self.frame
                return
            except Signal:
                raise
            except BaseException as exc:
                error = exc
            try:
                self.escaping(error, f)
                self.unwind(error)
            finally:
                del error  # its traceback leads here: no cycle
            if dropping is not None:
                dropping.look()

    def escaping(self, error: BaseException, frame: Frame | None) -> None:
        """End the graph before what raised ``error``, in ``frame``, if nothing catches it."""
        ends = ending(error)
        if ends is not None and self.told is None:
            raise ends from error
        if any(catches(entered, error) for entered in self._frames()):
            return
        error.__traceback__ = user_part(error.__traceback__)  # ours lead to all that is captured
        self.surprise = error
        context = described(error)
        if self.told is not None:  # what eager does instead may raise nothing
            raise Restart(self.told, "exception-escapes", context) from error
        if frame is not self.frame:  # a return, whose instruction cannot run again
            raise Restart(self.steps, "exception-escapes", context) from error
        raise Break("exception-escapes", context) from error

    def learn_unfinished(self) -> None:
        """Capture again if the program has dropped a generator that capture keeps from its end."""
        if not self.learned.releases and is_unfinished(self):
            self.learned.releases = True
            raise Again

    def make_generator(self, frame: Frame) -> Any:
        activation = Finalised(self, frame)
        made = make_generator(activation)
        self.drive(made, activation)
        if type(made) is CoroutineType:
            activation.unawaited = made
        self.made.setdefault(type(made), self.steps)
        return made

    def drive(self, made: Any, activation: Continued) -> None:
        """``made``, a generator or coroutine, is another one when the capture is over."""
        self.activations.append(activation)
        if type(made) is CoroutineType:
            self.coroutines.add(made)

    def lose(self, signal: Restart) -> None:
        """A break where nobody can hear of it: the instruction goes on to its end first."""
        if self.lost is None:
            self.lost = signal
            self.stops[self.steps + 1] = signal.row, signal.context

    def close(self) -> None:
        """Capture is over: generators left in the middle must not run on when collected."""
        for activation in self.activations:
            activation.discard()
        for made in self.coroutines:
            if made.cr_frame is not None and not made.cr_suspended:
                made.close()  # its driver has not begun, which it would complain about
        for activation in self.activations:
            activation.begin()
        self.lost = None  # its traceback holds frames
        if self.decimals is not None:
            self.decimals.close()
        self.reentry.close()
        detach([cls for cls in self.own_classes if cls not in STAND_INS])
        mortal = set() if self.dropping is None else self.dropping.close()
        found: list[Any] = [*self.lazies.values(), *self.external.values()]
        for known in found:  # it ends as soon as the program drops it
            if type(known.value) in DRIVEN or id(known.value) in mortal:
                known.value = None
        for delegate in self.handed_over:
            delegate.iterator = None  # which the generator's end would close
        for rethrown in self.rethrown.values():
            rethrown.undo()
        # The graph keeps fakes and symbols, which must not keep what the call was given.
        self.recorder.fake_mode.converted.clear()
        self.sizes.close()
        # Its parts refer to it: what the program drops ends at once, not when garbage is collected.
        for part in (self.recorder, self):
            vars(part).clear()

    def unwind(self, error: BaseException) -> None:
        """No handler of the user's catches what only capture raises."""
        ends = ending(error)
        if ends is not None:
            if self.told is not None:  # what eager does instead may raise nothing
                raise Restart(self.told, ends.row, ends.context) from error
            raise ends from error
        super().unwind(error)

    def run(self, frame: Frame, error: BaseException | None = None) -> Any:
        """A nested run: entered through C or a special method, so a break restarts capture."""
        self.nested += 1
        self.acted = self.steps
        try:
            if sys.getprofile() is None:
                return super().run(frame, error)
            with interpreting():
                return super().run(frame, error)
        except Break as signal:
            raise Restart(self.steps, signal.row, signal.context) from signal
        finally:
            self.nested -= 1

    def _frames(self) -> list[Frame]:
        frames = []
        frame = self.frame
        while frame is not None:
            frames.append(frame)
            frame = frame.back
        return frames[::-1]

    def reason(self, row: str, context: str) -> Reason:
        frame = self.frame
        assert frame is not None
        frames = self._frames()
        stack = tuple(
            [
                (f.code.co_filename, f.line, f.code.co_qualname)
                for f in frames
                if not f.program.hidden
            ]
        )
        for candidate in frames[::-1]:  # the innermost frame that is the user's
            if not candidate.globals.get("__name__", "").startswith(("torch.", "refcompiler.")):
                frame = candidate
                break
        code = frame.code
        return Reason(row, context, code.co_filename, frame.line, code.co_qualname, stack)
