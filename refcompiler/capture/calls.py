"""Calls in the symbolic domain: Python callees are inlined, C callees are default-deny."""

from __future__ import annotations

import collections
import functools
import operator
import sys
import types
import weakref
from collections.abc import Mapping, Sequence
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import torch

from refcompiler.capture import replaced
from refcompiler.capture.arrays.calls import call_numpy
from refcompiler.capture.caches import call_cached
from refcompiler.capture.displays import DISPLAYED, construct, mapping, sequence
from refcompiler.capture.entering import enter_generator
from refcompiler.capture.instances import Instances
from refcompiler.capture.kinds import IDENTITY_TYPES
from refcompiler.capture.lookup import find, is_heap
from refcompiler.capture.marking.marked import (
    CONSTANT,
    DISABLED,
    FORBIDDEN,
    ORIGINALS,
    disabled_text,
    is_allowed,
    is_wrapper,
)
from refcompiler.capture.models.modules import MODULE_CALL, enter_module
from refcompiler.capture.models.registry import (
    LATE,
    MODELS,
    OPERATION_MODELS,
    TRANSFORMING,
    transforms,
)
from refcompiler.capture.native_calls import REFERENT
from refcompiler.capture.natively import interpreting, is_quiet, natively
from refcompiler.capture.policy import (
    ASKING_MODULES,
    HIGHER_ORDER_MODULES,
    INTERPRETED_FUNCTIONS,
    INTERPRETED_MODULES,
    LEAF_MODULES,
    SPEAKING_MODULES,
    bound_owner,
    is_hooked_leaf,
    is_operation,
    is_whole,
)
from refcompiler.capture.signals import Break
from refcompiler.capture.values import Lazy, LazyMethod, Resume, Rethrown, Run
from refcompiler.errors import GraphBreakError
from refcompiler.guards.kinds import Ambient
from refcompiler.guards.sources import Source
from refcompiler.interpreter import helpers
from refcompiler.interpreter.binding import (
    ASYNC_GENERATOR,
    SUSPENDS,
    VARARGS,
    VARKEYWORDS,
    bind,
    raise_binding_error,
)
from refcompiler.interpreter.failures import Failure
from refcompiler.interpreter.frame import CALLED, UNSET, Frame
from refcompiler.interpreter.registry import NATIVE_CODES, program_of

#: Classes whose instances are made from all items of an iterable.
_CONSUMING = frozenset(
    {list, tuple, set, frozenset, dict, collections.deque, collections.OrderedDict}
)
#: What chooses among the implementations of a function under ``functools.singledispatch``.
_DISPATCH = functools.singledispatch(len).dispatch.__code__
#: Containers from outside that some of their methods leave closed.
_CLOSED = frozenset({list, dict, collections.OrderedDict})
#: What asks for a break, in ``torch._dynamo``.
_ASKED_BREAKS = frozenset({"graph_break", "skip_frame", "step_unsupported"})
_SCRIPTED = "_torchdynamo_inline"  # and torch.jit.script's and trace's


def _gives(function: Any, wanted: Any, *args: Any) -> bool:
    return function(*args) is wanted


class Calls(Instances):
    """The call hooks of the symbolic domain."""

    def call(self, frame: Frame, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        if type(function) is Lazy:
            function = self.callee(function)
        kind = type(function)
        if kind is MethodType:
            args = (function.__self__, *args)
            function = self.force(function.__func__)
            kind = type(function)
        if kind is LazyMethod:
            return self.call_lazy_method(frame, function, args, kwargs)
        model = MODELS.get(id(function))
        if model is not None:
            return self.settle(frame, model(self, frame, args, kwargs))
        if kind is FunctionType:
            return self.call_function(frame, function, args, kwargs)
        if issubclass(type(function), type):
            if function in DISPLAYED:
                found = construct(self, function, args, kwargs)
                if found is not UNSET:
                    return found
            if function in _CONSUMING and args and self.runs_code(value := self.force(args[0])):
                if type(value) is types.GeneratorType or not issubclass(function, dict):
                    sizes = function is list or function is tuple
                    rest = function, tuple(args[1:]), kwargs
                    return self.call(frame, *self.run_helper(helpers.consume, sizes, value, *rest))
            return self.settle(frame, self.call_class(frame, function, args, kwargs))
        if kind is functools.partial:
            merged = {**function.keywords, **kwargs}
            return self.call(frame, function.func, (*function.args, *args), merged)
        if issubclass(kind, weakref.ref) and not args and not kwargs:
            if find(kind, "__call__")[1] is REFERENT:
                return self.referent(function)
        if kind in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
            return self.call_getter(frame, function, args, kwargs)
        if kind.__name__ == "_lru_cache_wrapper":
            return call_cached(self, frame, function, args, kwargs)
        if issubclass(kind, IDENTITY_TYPES):
            return self.settle(frame, self.call_native(frame, function, args, kwargs))
        if kind.__module__ != "torch._ops" and self.method_of(kind, "__call__") is not UNSET:
            source, method = self.find_guarded(kind, "__call__")
            self.from_class(source, method)
            return self.call(frame, method, (function, *args), kwargs)
        if is_operation(function):
            return self.call_operation(function, args, kwargs)
        if kind is torch.jit.ScriptFunction and function.__dict__.get("__name__") == kind.__name__:
            # one from a trace does what its function did then
            found = self.call(frame, self.getattr(function, _SCRIPTED), args, kwargs)
            if found is CALLED and self.frame is not None:  # its own language: all of it or nothing
                self.whole.append((self.frame, self.steps))
            return found
        if kind.__module__ == "numpy":
            return call_numpy(self, function, args, kwargs)
        if self.method_of(kind, "__call__") is not UNSET:
            source, method = self.find_guarded(kind, "__call__")
            self.from_class(source, method)
            return self.call(frame, method, (function, *args), kwargs)
        if is_heap(kind) and find(kind, "__call__")[1] is not UNSET and kind is not type:
            bound = find(kind, "__call__")[1]
            if hasattr(type(bound), "__get__") and type(bound) is not types.WrapperDescriptorType:
                return self.call(frame, bound.__get__(function, kind), args, kwargs)
        return self.call_native(frame, function, args, kwargs)

    def callee(self, lazy: Lazy) -> Any:
        """A function from outside, observed; a container's method may leave the container closed.

        Those stand before a break in their own arguments: ``losses.append(loss.item())``.
        """
        value, source = lazy.value, lazy.source
        if type(value) is BuiltinMethodType and type(owner := bound_owner(value)) in _CLOSED:
            self.guard("TYPE", source, BuiltinMethodType)
            self.guard("EQUALS", self.member(source, "__name__"), value.__name__)
            container = self.lazy(self.member(source, "__self__"), owner)
            found = self.attribute(container, value.__name__)
            if type(found) is LazyMethod:
                return found
        return self.observe(lazy)

    def settle(self, frame: Any, found: Any) -> Any:
        """What a model has left to do: as a frame of the stack, unless within an instruction."""
        if type(found) is Run:
            return self.call(frame, *found)
        if type(found) is not Resume:
            return found
        generator, sent, default, error = found
        if not self.nested:
            enter_generator(self, frame, found)
            return CALLED
        with interpreting():
            if error is not None:
                return generator.throw(error)
            if sent is not None:
                return generator.send(self.force(sent))
            if default is UNSET:
                return generator.send(None)  # a coroutine has no other way
            return next(generator, default)

    def invoke(self, frame: Any, function: Any, args: Sequence, kwargs: Mapping = {}) -> Any:
        """Call ``function`` to its end within this instruction."""
        self.nested += 1
        try:
            return self._invoke(frame, function, args, kwargs)
        finally:
            self.nested -= 1

    def _invoke(self, frame: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        outer = self.frame
        found = self.call(frame, function, args, kwargs)
        if found is not CALLED:
            return found
        new, self.frame = self.frame, outer
        assert new is not None
        root: Any = new
        while root.back is not outer:
            root = root.back
        root.back = None
        if root.on_return == "init":
            extra = root.extra
            root.on_return = "push"
            if self.run(new) is not None:
                raise TypeError("__init__() should return None")
            return extra
        return self.run(new)

    def call_getter(self, frame: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """``operator.attrgetter`` and its like, which tell their parts when pickled."""
        if len(args) != 1 or kwargs:
            return self.call_pure(function, args, kwargs)
        (value,) = args
        kind, parts = type(function), function.__reduce__()
        if kind is operator.methodcaller:
            if parts[0] is not kind:  # a partial, which holds the keywords
                name, rest, named = parts[0].args[0], parts[1], parts[0].keywords
            else:
                (name, *rest), named = parts[1], {}
            return self.call(frame, self.getattr(value, name), rest, named)
        found = []
        for part in parts[1]:
            item = value
            if kind is operator.itemgetter:
                item = self.getitem(item, part)
            else:
                for name in part.split("."):
                    item = self.getattr(item, name)
            found.append(item)
        return found[0] if len(found) == 1 else tuple(map(self.force, found))

    def has_looked_into(self, function: FunctionType) -> bool:
        """Whether something in the closure of ``function`` may be another than what is outside."""
        for cell in function.__closure__ or ():
            external = self.external.get(id(cell.cell_contents))
            if external is not None and external.shadow is not None:
                return True
        return False

    def call_dispatch(self, function: FunctionType, args: Sequence) -> Any:
        """``dispatch`` of a function under ``functools.singledispatch``, which has a cache."""
        (cls,) = [self.force(value) for value in args]
        found = natively(self, function, cls)
        self.guard("STATE", None, (functools.partial(_gives, function, found), (cls,), True))
        return self.lazy(self.sources.constant(found, "implementation"), found)

    # ---- Python functions -------------------------------------------------------------------

    def call_function(
        self, frame: Any, function: FunctionType, args: Sequence, kwargs: Mapping
    ) -> Any:
        code = function.__code__
        if id(code) in NATIVE_CODES:
            return function(*map(self.force, args), **{k: self.force(v) for k, v in kwargs.items()})
        if code is MODULE_CALL and enter_module(self, frame, function, args, kwargs):
            return CALLED
        module = function.__module__ or ""
        if (
            module in LEAF_MODULES
            and (function.__name__ in OPERATION_MODELS or self.fits_operation(args, kwargs))
            and not replaced.is_replaced(function)
            and not replaced.calls_replaced(function)
        ):
            return self.call_operation(function, args, kwargs)
        home = function.__globals__.get("__name__")
        if home in TRANSFORMING:
            if transforms(function):
                return TRANSFORMING[home](self, frame, function, args, kwargs)
        elif home == "torch._dynamo.mutation_guard" and "init" in code.co_freevars:
            inner = self.load_cell(function.__closure__[code.co_freevars.index("init")])  # type: ignore[index]
            return self.call(frame, inner, args, kwargs)  # torch.compile's tag on new modules
        elif (
            module.startswith("torch.")
            and module.startswith(HIGHER_ORDER_MODULES)
            and module not in INTERPRETED_MODULES
            and not f"{module}.{function.__qualname__}".startswith(INTERPRETED_FUNCTIONS)
        ):
            known = LATE.get(f"{module}.{function.__qualname__}")
            if known is not None:
                return known(self, frame, args, kwargs)
            asked = module.startswith("torch._dynamo") and function.__name__ in _ASKED_BREAKS
            row = "user-graph-break" if asked else "higher-order"
            raise Break(row, f"{module}.{function.__qualname__}")
        package = module.partition(".")[0]
        if package == "numpy":
            return call_numpy(self, function, args, kwargs)
        if package in SPEAKING_MODULES:
            raise Break("io", f"{module}.{function.__qualname__}")
        if module in ASKING_MODULES:
            raise Break("compiler-call", f"refcompiler.{function.__qualname__}")
        if code is _DISPATCH and self.source_of(function) is not None:
            if not self.has_looked_into(function):
                return self.call_dispatch(function, args)
        marks = function.__dict__
        if marks:
            if marks.get(FORBIDDEN):
                where = "is called inside a compiled function; call it outside"
                text = f"{function.__qualname__}, which sets a stance, {where}"
                raise Failure(GraphBreakError(text), frame.code.co_qualname)
            if marks.get(DISABLED):
                own = MODELS.get(id(marks.get("_torchdynamo_orig_callable")))
                if own is not None:
                    return own(self, frame, args, kwargs)
                raise Break("disabled-function", disabled_text(function))
            if marks.get(CONSTANT):
                return self.call_assumed(function, args, kwargs)
        if is_allowed(function):
            return self.call_opaque(function, args, kwargs)
        for name in ORIGINALS:  # a function compiled on its own is inlined
            if name in marks and is_wrapper(function, name):
                original = self.function_attribute(function, name)
                return self.call(frame, original, args, kwargs)
        flags = code.co_flags
        if flags & ASYNC_GENERATOR and any(sys.get_asyncgen_hooks()):
            raise Break("coroutine", f"{function.__qualname__}, of which an event loop is told")
        source = self.source_of(function)
        if source is not None and not is_quiet(function):
            self.guard("CODE", source, (code, None))
            self.reach_globals(function, source)
        program = program_of(code)
        fast = self.bind_function(function, source, args, kwargs)
        if function.__closure__ and source is not None:
            self.adopt_cells(function, source)
        new = self.enter(program, function, fast)
        if flags & SUSPENDS:
            return self.make_generator(new)
        self.push(frame, new)
        first = fast[0] if fast else None
        if is_whole(home, code) or is_hooked_leaf(
            code, first.value if type(first) is Lazy else first
        ):
            self.whole.append((new, self.steps))
        return CALLED

    def bind_function(
        self,
        function: FunctionType,
        source: Source | None,
        args: Sequence,
        kwargs: Mapping,
    ) -> list[Any]:
        code = function.__code__
        defaults, kwdefaults = function.__defaults__ or (), function.__kwdefaults__ or {}
        first = code.co_argcount - len(defaults)

        def default(i: int) -> Any:
            if i < first:
                return UNSET
            value = defaults[i - first]
            if source is None:
                return value
            return self.lazy(self.sources.make("default", source, i - code.co_argcount), value)

        def kwdefault(name: str) -> Any:
            if name not in kwdefaults:
                return UNSET
            if source is None:
                return kwdefaults[name]
            return self.lazy(self.sources.make("kwdefault", source, name), kwdefaults[name])

        fast = bind(code, args, kwargs, default, kwdefault)
        if fast is None:
            raise_binding_error(function, args, kwargs)
            raise TypeError(f"{function.__qualname__}() cannot be called with these arguments")
        taken = code.co_argcount + code.co_kwonlyargcount
        if code.co_flags & VARARGS:
            fast[taken] = sequence(self, tuple, fast[taken])
            taken += 1
        if code.co_flags & VARKEYWORDS:
            fast[taken] = mapping(self, fast[taken])
        return fast

    # ---- functions that the user said something about -----------------------------------------

    def raising(self, error: BaseException) -> BaseException:
        """What raising changes of an exception from outside is undone, and replayed."""
        source = self.source_of(error)
        if source is not None and id(error) not in self.rethrown:
            self.rethrown[id(error)] = Rethrown(error, source)
        return error

    def exc_match(self, error: BaseException, kinds: Any) -> bool:
        return super().exc_match(error, self.force(kinds))

    # filled by the machine
    nested: int  # how many calls run within the instruction
    ambient: Ambient
    started: set[int]  # ids of the frames that were alive at the start
    deferred: list[tuple[Any, tuple]]  # calls with these values, to be made after the graph
    answers: dict[tuple, Any]  # of functions under lru_cache, by what they were given
    module_kinds: dict[type, Any]  # see refcompiler.capture.models.modules
    enters_modules: bool
    whole: list[tuple[Frame, int]]  # calls of torch's own that break as one, and their steps
    open_inference: list[Any]
    left_inference: list[Source]  # those that were entered before the graph
    runs_outside: tuple[bool, bool] | None  # the modes around those, in which the graph runs
    open_levels: list[int]  # of forward differentiation: the steps at which they were entered
    function_modes: list[Any]  # TorchFunctionModes that the frame has entered
    switches: dict[Any, tuple]  # switches of torch that were set -> what they were before
    rethrown: dict[int, Rethrown]
