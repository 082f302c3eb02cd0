"""Calls in the symbolic domain: Python callees are inlined, C callees are default-deny."""

from __future__ import annotations

import functools
import operator
import types
import weakref
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.contexts import Contexts
from refcompiler.capture.lookup import find, is_heap
from refcompiler.capture.marked import (
    CONSTANT,
    DISABLED,
    WHY_DISABLED,
    is_allowed,
    substitute_of,
)
from refcompiler.capture.natively import interpreting, is_quiet, natively
from refcompiler.capture.observe import CONSTANT_TYPES, IDENTITY_TYPES, is_numpy_scalar
from refcompiler.capture.operators import Operators, Pulled
from refcompiler.capture.policy import (
    AMBIENT_READERS,
    CALLING,
    CHANGING,
    HIGHER_ORDER_MODULES,
    IMPURE_BUILTINS,
    INTERPRETED_MODULES,
    ITERATING,
    LEAF_MODULES,
    PURE_MODULES,
    READING,
    READING_MODULES,
    SPEAKING_MODULES,
    STATE_READERS,
    bound_owner,
    is_operation,
    operation_name,
)
from refcompiler.capture.printing import is_plain, printed
from refcompiler.capture.signals import Break
from refcompiler.capture.values import Lazy, LazyMethod, Rethrown
from refcompiler.guards.kinds import Ambient
from refcompiler.guards.sources import Source
from refcompiler.interpreter.binding import (
    ASYNCHRONOUS,
    GENERATOR,
    bind,
    raise_binding_error,
)
from refcompiler.interpreter.frame import CALLED, UNSET, Frame
from refcompiler.interpreter.registry import NATIVE_CODES, program_of

_TORCH_C = types.BuiltinFunctionType
_ORIGINAL = "__refcompiler_original__"
AUTOCAST_METHODS = {torch.autocast.__enter__.__code__, torch.autocast.__exit__.__code__}
_TYPE_CALL = type.__dict__["__call__"]


class Calls(Operators):
    """The call hooks of the symbolic domain."""

    def call(self, frame: Frame, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        if type(function) is Lazy:
            function = self.observe(function)
        kind = type(function)
        if kind is MethodType:
            args = (function.__self__, *args)
            function = self.force(function.__func__)
            kind = type(function)
        if kind is LazyMethod:
            return self.call_lazy_method(frame, function, args, kwargs)
        model = MODELS.get(id(function))
        if model is not None:
            return model(self, frame, args, kwargs)
        if kind is FunctionType:
            return self.call_function(frame, function, args, kwargs)
        if issubclass(type(function), type):
            return self.call_class(frame, function, args, kwargs)
        if kind is functools.partial:
            merged = {**function.keywords, **kwargs}
            return self.call(frame, function.func, (*function.args, *args), merged)
        if kind is weakref.ref and not args and not kwargs:
            source = self.source_of(function)
            if source is not None:
                return self.lazy(self.sources.make("referent", source), function())
        if kind in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
            return self.call_getter(frame, function, args, kwargs)
        if kind.__name__ == "_lru_cache_wrapper":
            return self.call_cached(frame, function, args, kwargs)
        if kind in (types.BuiltinFunctionType, types.MethodWrapperType) or isinstance(
            function, IDENTITY_TYPES
        ):
            return self.call_native(frame, function, args, kwargs)
        if is_operation(function):
            return self.call_operation(function, args, kwargs)
        if kind.__module__ == "numpy" and kind.__name__ == "ufunc":
            return self.call_ufunc(function, args, kwargs)
        if self.method_of(kind, "__call__") is not UNSET:
            source, method = self.find_guarded(kind, "__call__")
            self.from_class(source, method)
            return self.call(frame, method, (function, *args), kwargs)
        if is_heap(kind) and find(kind, "__call__")[1] is not UNSET and kind is not type:
            bound = find(kind, "__call__")[1]
            if hasattr(type(bound), "__get__") and type(bound) is not types.WrapperDescriptorType:
                return self.call(frame, bound.__get__(function, kind), args, kwargs)
        return self.call_native(frame, function, args, kwargs)

    def invoke(self, frame: Any, function: Any, args: Sequence, kwargs: Mapping = {}) -> Any:
        """Call ``function`` to its end within this instruction."""
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

    def call_cached(self, frame: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A function under ``functools.lru_cache``.

        With constant arguments its own cache is asked, and asked again by each call's guards; what
        a constant answer was computed from needs no guards.
        """
        source = self.source_of(function)
        forced = [self.force(a) for a in args]
        named = {k: self.force(v) for k, v in kwargs.items()}
        if source is not None and all(
            type(v) in CONSTANT_TYPES for v in (*forced, *named.values())
        ):
            self.guard("ID", source, function)
            found = function(*forced, **named)
            if type(found) in CONSTANT_TYPES:
                asked = functools.partial(function, **named) if named else function
                self.guard("STATE", None, (asked, tuple(forced), found))
                return found
        wrapped = function.__wrapped__
        if source is not None:
            wrapped = self.observe(self.lazy(self.member(source, "__wrapped__"), wrapped))
        return self.call(frame, wrapped, forced, named)

    # ---- Python functions -------------------------------------------------------------------

    def call_function(
        self, frame: Any, function: FunctionType, args: Sequence, kwargs: Mapping
    ) -> Any:
        code = function.__code__
        if id(code) in NATIVE_CODES:
            return function(*map(self.force, args), **{k: self.force(v) for k, v in kwargs.items()})
        module = function.__module__ or ""
        if module in LEAF_MODULES:
            return self.call_operation(function, args, kwargs)
        home = function.__globals__.get("__name__")
        if home in TRANSFORMING:
            if "func" in code.co_freevars and not code.co_qualname.startswith("_"):
                return TRANSFORMING[home](self, frame, function, args, kwargs)
        elif home == "torch._dynamo.mutation_guard" and "init" in code.co_freevars:
            inner = self.load_cell(function.__closure__[code.co_freevars.index("init")])  # type: ignore[index]
            return self.call(frame, inner, args, kwargs)  # torch.compile's tag on new modules
        elif (
            module.startswith("torch.")
            and module.startswith(HIGHER_ORDER_MODULES)
            and module not in INTERPRETED_MODULES
        ):
            asked = module.startswith("torch._dynamo") and function.__name__ == "graph_break"
            row = "user-graph-break" if asked else "higher-order"
            raise Break(row, f"{module}.{function.__qualname__}")
        if module.partition(".")[0] in SPEAKING_MODULES:
            raise Break("io", f"{module}.{function.__qualname__}")
        marks = function.__dict__
        if marks:
            if marks.get(DISABLED):
                raise Break("disabled-function", disabled_text(function))
            if marks.get(CONSTANT):
                return self.call_assumed(function, args, kwargs)
        if is_allowed(function):
            return self.call_opaque(function, args, kwargs)
        original = function.__dict__.get(_ORIGINAL)
        if original is not None:  # a function compiled on its own is inlined
            source = self.source_of(function)
            if source is not None:
                parent = self.namespace(function, source)
                self.lazy(parent, function.__dict__)
                original_source = self.item(parent, _ORIGINAL, "member", _ORIGINAL)
                original = self.observe(self.lazy(original_source, original))
            return self.call_function(frame, original, args, kwargs)
        flags = code.co_flags
        if flags & ASYNCHRONOUS:
            raise Break("coroutine", function.__qualname__)
        source = self.source_of(function)
        if source is not None and not is_quiet(function):
            self.guard("CODE", source, (code, None))
        program = program_of(code)
        fast = self.bind_function(function, source, args, kwargs)
        if function.__closure__ and source is not None:
            self.adopt_cells(function, source)
        new = self.enter(program, function, fast)
        if flags & GENERATOR:
            return self.make_generator(new)
        self.push(frame, new)
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

        if code.co_flags & 0x0C:  # what goes into *args and **kwargs enters a container
            taken = code.co_argcount
            if len(args) > taken:
                args = (*args[:taken], *map(self.force, args[taken:]))
            if kwargs:
                named = code.co_varnames[code.co_posonlyargcount : taken + code.co_kwonlyargcount]
                kwargs = {k: v if k in named else self.force(v) for k, v in kwargs.items()}
        fast = bind(code, args, kwargs, default, kwdefault)
        if fast is None:
            raise_binding_error(function, args, kwargs)
            raise TypeError(f"{function.__qualname__}() cannot be called with these arguments")
        return fast

    # ---- functions that the user said something about -----------------------------------------

    def constants(self, args: Sequence, kwargs: Mapping) -> tuple[list, dict] | None:
        """The arguments if all of them are constants."""
        forced = [self.force(a) for a in args]
        named = {k: self.force(v) for k, v in kwargs.items()}
        if all(type(v) in CONSTANT_TYPES for v in (*forced, *named.values())):
            return forced, named
        return None

    def call_opaque(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A function that is one operation of the graph (``allow_in_graph``)."""
        forced = tuple([self.pass_operand(a) for a in args])
        named = {k: self.pass_operand(v) for k, v in kwargs.items()}
        recorder = self.recorder
        with recorder.suspension():
            result = function(*forced, **named)
        recorder.check(operation_name(function), result)
        recorder.record(function, forced, named, result)
        recorder.mutates = True  # nobody knows what it does to its arguments
        return result

    def call_assumed(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A function whose value is taken to be the same at every call."""
        given = []
        for value in (*args, *kwargs.values()):
            value = self.force(value)
            if issubclass(type(value), torch.Tensor):
                why = f"{function.__qualname__} is assumed constant and is given a tensor"
                raise Break("operation-not-modelled", why)
            given.append(value)
        named = dict(zip(kwargs, given[len(args) :], strict=True))
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            value = function(*given[: len(args)], **named)
        if type(value) in CONSTANT_TYPES:
            return value
        return self.lazy(self.sources.constant(value, function.__name__), value)

    # ---- classes ----------------------------------------------------------------------------

    def call_class(self, frame: Any, cls: type, args: Sequence, kwargs: Mapping) -> Any:
        meta_call = find(type(cls), "__call__")[1]
        if type(meta_call) is FunctionType:
            if cls.__module__ == "enum" or hasattr(cls, "_member_map_"):
                return self.call_pure(cls, args, kwargs)
            return self.call(frame, meta_call, (cls, *args), kwargs)
        return self.make_instance(frame, cls, args, kwargs)

    def make_instance(self, frame: Any, cls: type, args: Sequence, kwargs: Mapping) -> Any:
        """``type.__call__``: ``__new__``, then ``__init__``."""
        if not is_heap(cls):
            return self.call_builtin_class(frame, cls, args, kwargs)
        if issubclass(cls, torch.Tensor) or issubclass(cls, torch.autograd.Function):
            raise Break("tensor-kind", f"construction of a {cls.__name__}")
        module = cls.__module__
        if module.startswith("torch.") and module.startswith(HIGHER_ORDER_MODULES):
            raise Break("higher-order", f"{module}.{cls.__qualname__}")
        if cls.__dict__.get(DISABLED):
            raise Break("disabled-function", disabled_text(cls))
        new_source, new = self.find_guarded(cls, "__new__")
        base = getattr(new, "__self__", object)  # whose constructor in C it is
        if type(new) is types.BuiltinFunctionType and base is not object:
            if is_heap(base) and base.__module__ not in PURE_MODULES:
                raise Break("c-function", f"construction of a {cls.__qualname__}")
        if type(new) is staticmethod:
            new = new.__func__
        if type(new) is FunctionType:
            if new_source is not None:
                self.guard("ID", new_source, find(cls, "__new__")[1])
                self.external.setdefault(id(new), _external_staticmethod(self, new, new_source))
            made = self.force(self.invoke(frame, new, (cls, *args), kwargs))
            if cls not in type(made).__mro__:
                return made
        elif new is object.__new__:
            made = object.__new__(cls)
        else:
            forced = [self.pass_native(a) for a in args]
            if find(cls, "__init__")[0] is object and new is not object.__new__:
                made = new(cls, *forced, **{k: self.pass_native(v) for k, v in kwargs.items()})
            elif issubclass(cls, (BaseException, tuple, str, int, float, frozenset)):
                made = new(cls, *forced, **{k: self.pass_native(v) for k, v in kwargs.items()})
            else:
                made = new(cls)
        self.recorder.keep.append(made)
        init_source, init = self.find_guarded(cls, "__init__")
        if type(init) is FunctionType:
            self.from_class(init_source, init)
            found = self.call(frame, init, (made, *args), kwargs)
            if found is CALLED:
                pushed = self.frame
                assert pushed is not None
                pushed.on_return, pushed.extra = "init", made
                if issubclass(cls, torch.nn.Module):
                    self.constructors.append((pushed, self.steps))
                return CALLED
            return made
        if init is object.__init__:
            if (args or kwargs) and new is object.__new__:
                raise TypeError(f"{cls.__name__}() takes no arguments")
            return made
        forced = [self.pass_native(a) for a in args]
        init(made, *forced, **{k: self.pass_native(v) for k, v in kwargs.items()})
        return made

    def call_builtin_class(self, frame: Any, cls: type, args: Sequence, kwargs: Mapping) -> Any:
        if cls in CONSTANT_TYPES or issubclass(cls, BaseException):
            if args and isinstance(self.force(args[0]), torch.Tensor):
                if not issubclass(cls, BaseException):
                    raise Break("data-dependent-value", f"{cls.__name__}() of a tensor")
        if cls is torch.Generator or cls.__module__.startswith("torch._C"):
            raise Break("ambient-state", f"construction of a {cls.__qualname__}")
        if cls is str and args:
            return self.convert(args[0], 1) if len(args) == 1 else self.call_pure(cls, args, kwargs)
        if cls is dict and args and self.method_of(type(self.force(args[0])), "keys") is not UNSET:
            args = (self.mapping(args[0]), *args[1:])
        if cls is bool and args:
            return self.truth(args[0])
        if cls is object:
            made = object()
            self.recorder.keep.append(made)
            return made
        if cls in (int, float, complex) and args:
            value = self.force(args[0])
            for name in ("__int__", "__index__") if cls is int else (f"__{cls.__name__}__",):
                if self.method_of(type(value), name) is not UNSET:
                    return self.force(self.call_special(value, name))
        if cls.__module__ in PURE_MODULES or cls.__module__ == "torch":
            return self.call_pure(cls, args, kwargs)
        raise Break("c-function", f"class {cls.__module__}.{cls.__qualname__}")

    # ---- C functions ------------------------------------------------------------------------

    def call_native(self, frame: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        if is_operation(function):
            return self.call_operation(function, args, kwargs)
        if is_allowed(function):
            return self.call_opaque(function, args, kwargs)
        name = getattr(function, "__name__", type(function).__name__)
        bound = bound_owner(function)
        if issubclass(type(function), types.MethodWrapperType):
            slot = find(function.__objclass__, name)[1]
            args = (function.__self__, *args)
            return self.call_descriptor(frame, slot, name, args, kwargs)
        if bound is not None:
            return self.call_bound(function, bound, name, args, kwargs)
        owner = getattr(function, "__self__", None)
        if issubclass(type(owner), type) and not issubclass(
            type(function), types.MethodWrapperType
        ):
            module = owner.__module__  # a class method in C, such as dict.fromkeys
        elif hasattr(function, "__objclass__"):
            return self.call_descriptor(frame, function, name, args, kwargs)
        else:
            module = getattr(function, "__module__", None) or ""
        if module in ("torch", "torch._C") and name in STATE_READERS:
            return self.read_state(function, args, kwargs)
        if module == "torch._C" and name == "_set_grad_enabled":
            return function(*map(self.force, args))
        if "autocast" in name and frame.code in AUTOCAST_METHODS:  # they are nodes as a whole
            return function(*map(self.force, args))
        if module.startswith("torch"):
            raise Break("ambient-state", f"{module}.{name}")
        if self.is_foreign(function):
            raise Break("c-function", f"a {type(function).__name__} from outside")
        if module in PURE_MODULES:
            if name in IMPURE_BUILTINS:
                raise Break(IMPURE_BUILTINS[name], f"{module}.{name}")
            return self.call_pure(function, args, kwargs)
        substitute = substitute_of(function)
        if substitute is not None:
            return self.call(frame, substitute, args, kwargs)
        raise Break("c-function", f"{module}.{name}".lstrip("."))

    def read_state(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A global setting of torch; what capture may change itself is in AMBIENT."""
        given = tuple([self.force(a) for a in args])
        name = function.__name__
        own = self.recorder.switched and "autocast" in name  # what capture has set itself
        if kwargs or own or name in AMBIENT_READERS:
            return function(*given, **{k: self.force(v) for k, v in kwargs.items()})
        found = function(*given)
        self.guard("STATE", None, (function, given, found))
        return found

    def call_bound(
        self, function: Any, owner: Any, name: str, args: Sequence, kwargs: Mapping
    ) -> Any:
        """A C method of an object."""
        if type(owner) is ContextVar:
            return self.contexts.call(owner, name, args, kwargs)
        if self.is_foreign(owner):
            if type(owner) in (types.MappingProxyType,):
                return self.call_pure(function, args, kwargs)
            if issubclass(type(owner), dict) and name in ("get", "__getitem__", "__contains__"):
                return self.read_foreign_dict(owner, name, args)
            raise Break("c-function", f"{type(owner).__name__}.{name} of an object from outside")
        if type(owner) is str and name == "format" and is_plain(owner):
            args = [printed(self, value) for value in args]
            kwargs = {key: printed(self, value) for key, value in kwargs.items()}
        if type(owner) is list and name == "sort" and not args:
            from refcompiler.capture.ordering import in_order

            owner[:] = in_order(self, self.frame, list(owner), kwargs)
            return None
        module = type(owner).__module__
        builtin_base = any(
            not is_heap(base) and base.__module__ in PURE_MODULES and name in base.__dict__
            for base in type(owner).__mro__
        )
        if module in PURE_MODULES or builtin_base or module.startswith("refcompiler."):
            return self.call_pure(function, args, kwargs)
        if type(owner) is torch.device and name in ("__enter__", "__exit__"):
            return self.call_device_block(owner, name, args)
        if type(owner) in CONSTANT_TYPES or issubclass(type(owner), torch.Tensor):
            return self.call_pure(function, args, kwargs)
        raise Break("c-function", f"{type(owner).__qualname__}.{name}")

    def call_device_block(self, device: torch.device, name: str, args: Sequence) -> Any:
        """``with torch.device(...)``: the stack of function modes is as before at a graph's end."""
        if name == "__enter__":
            self.open_devices.append((device, self.steps))
            return device.__enter__()
        if not self.open_devices:
            raise Break("ambient-state", "a block of a device that was entered before is left")
        self.open_devices.pop()
        return device.__exit__(*map(self.force, args))

    def call_descriptor(
        self, frame: Any, function: Any, name: str, args: Sequence, kwargs: Mapping
    ) -> Any:
        """An unbound slot or method of a built-in class, such as ``object.__setattr__``."""
        if args:
            receiver = self.force(args[0])
            if function is _TYPE_CALL:
                return self.make_instance(frame, receiver, args[1:], kwargs)
            if function.__objclass__ is object:
                if name == "__setattr__":
                    self.plain_setattr(receiver, self.force(args[1]), args[2])
                    return None
                if name == "__getattribute__":
                    return self.getattribute(receiver, self.force(args[1]))
                if name == "__delattr__":
                    self.plain_delattr(receiver, self.force(args[1]))
                    return None
            if self.is_foreign(receiver):
                if issubclass(type(receiver), dict) and name in (
                    "get",
                    "__getitem__",
                    "__contains__",
                ):
                    return self.read_foreign_dict(receiver, name, args[1:])
                raise Break("c-function", f"{function.__qualname__} of an object from outside")
            if issubclass(type(receiver), torch.Tensor):
                return self.call_operation(function, args, kwargs)
            args = (receiver, *args[1:])
        if function.__objclass__.__module__ in PURE_MODULES:
            return self.call_pure(function, args, kwargs)
        raise Break("c-function", function.__qualname__)

    def call_ufunc(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A numpy function of numbers alone is a constant."""
        forced = [self.force(a) for a in args]
        for value in forced:
            if type(value) not in CONSTANT_TYPES and not is_numpy_scalar(type(value)):
                raise Break("c-function", f"numpy.{function.__name__}")
        return function(*forced, **{k: self.force(v) for k, v in kwargs.items()})

    def read_foreign_dict(self, value: dict, name: str, args: Sequence) -> Any:
        """One key of an instance of a dict's subclass, as ``dict`` itself reads it."""
        key = self.force(args[0])
        if type(key) not in CONSTANT_TYPES and not issubclass(type(key), (type, FunctionType)):
            raise Break("external-object", f"an item of a {type(value).__name__}")
        source = self.external[id(value)].source
        present = dict.__contains__(value, key)
        self.guard("HAS" if present else "LACKS", source, key)
        if name == "__contains__":
            return present
        if present:
            item = dict.__getitem__(value, key)
            return self.lazy(self.sources.make("dict_item", source, key), item)
        if name == "get":
            return args[1] if len(args) > 1 else None
        raise KeyError(key)

    def getattribute(self, value: Any, name: str) -> Any:
        """``object.__getattribute__``: without ``__getattr__``."""
        return self.plain_attribute(value, name)

    def call_pure(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        name = getattr(function, "__name__", "")
        iterates, calls = name in ITERATING, name in CALLING
        forced = [self.pass_native(a, iterates, calls) for a in args]
        named = {k: self.pass_native(v, False, calls) for k, v in kwargs.items()}
        if function in READING or getattr(function, "__module__", "") in READING_MODULES:
            for value in forced:
                if self.is_foreign(value) and not is_heap(type(value)):
                    raise Break("external-object", f"{name} of a {type(value).__name__}")
        if name in CHANGING and any(self.is_foreign(value) for value in forced):
            raise Break("external-object", f"{name} changes an object from outside")
        found = natively(self, function, *forced, **named)
        self.recorder.keep.append(found)  # identity tables must not see its id again
        return found

    def pass_native(self, value: Any, iterates: bool = False, calls: bool = False) -> Any:
        """``value`` as C code may see it that ``iterates`` over it or ``calls`` it."""
        value = self.force(value)
        kind = type(value)
        if (
            calls
            and callable(value)
            and (
                kind is FunctionType
                or (kind is MethodType and type(value.__func__) is FunctionType)
                or kind is functools.partial
                or self.method_of(kind, "__call__") is not UNSET
                or (issubclass(type(value), type) and is_heap(value))
            )
        ):
            return self.callback(value)
        if hasattr(kind, "__next__") and self.is_foreign(value):
            if iterates and type(value) is not reversed:
                return Pulled(self, value)
            raise Break("external-iterator", f"a {kind.__name__} from outside")
        if iterates and not issubclass(kind, torch.Tensor):
            if self.is_interpreted(value):
                return Pulled(self, value)
            if self.method_of(kind, "__iter__") is not UNSET:
                return Pulled(self, self.iter(value))
            if is_heap(kind) and find(kind, "__iter__")[1] is UNSET:
                if self.method_of(kind, "__getitem__") is not UNSET:
                    return Pulled(self, self.iter(value))
            if self.is_foreign(value):
                row = "external-iterator" if hasattr(kind, "__next__") else "external-object"
                raise Break(row, f"iteration over a {kind.__name__} from outside")
        return value

    def callback(self, function: Any) -> Any:
        """A Python function that C code may call: it runs in the interpreter."""
        known = self.callbacks.get(id(function))
        if known is not None:
            return known[1]

        def call(*args: Any, **kwargs: Any) -> Any:
            with interpreting():
                return self.force(self.invoke(self.frame, function, args, kwargs))

        self.callbacks[id(function)] = (function, call)
        self.callback_of[id(call)] = function
        return call

    def call_operation(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A torch operation, which the door records when a tensor takes part."""
        forced = [self.pass_operand(a) for a in args]
        named = {k: self.pass_operand(v) for k, v in kwargs.items()}
        return function(*forced, **named)

    def pass_operand(self, value: Any) -> Any:
        value = self.force(value)
        if self.is_foreign(value):
            raise Break("external-object", f"a {type(value).__name__} is an operand")
        if type(value) is FunctionType:
            raise Break("higher-order", f"function {value.__qualname__} is an operand")
        return value

    def call_lazy_method(
        self, frame: Any, method: LazyMethod, args: Sequence, kwargs: Mapping
    ) -> Any:
        lazy = method.lazy
        if method.name == "append":
            if len(args) == 1 and not kwargs and self.is_unseen(lazy):
                self.append(lazy, args[0])
                return None
            return self.call_pure(self.observe(lazy).append, args, kwargs)
        key = self.force(args[0])
        if not self.is_unread(lazy) or type(key) not in CONSTANT_TYPES or kwargs:
            return self.call_pure(getattr(self.observe(lazy), method.name), args, kwargs)
        if method.name == "__contains__":
            return self.contains(key, lazy)
        if method.name == "get" and key not in lazy.value:
            self.guard("ABSENT", lazy.source, key)
            return args[1] if len(args) > 1 else None
        return self.getitem(lazy, key)

    def instantiate(self, frame: Frame, cls: type) -> Any:
        return self.force(self.invoke(frame, cls, []))

    def raising(self, error: BaseException) -> BaseException:
        """What raising changes of an exception from outside is undone, and replayed."""
        source = self.source_of(error)
        if source is not None and id(error) not in self.rethrown:
            self.rethrown[id(error)] = Rethrown(error, source)
        return error

    def exc_match(self, error: BaseException, kinds: Any) -> bool:
        return super().exc_match(error, self.force(kinds))

    # filled by the machine
    contexts: Contexts
    ambient: Ambient
    steps: int
    open_inference: list[Any]
    open_devices: list[tuple[torch.device, int]]  # blocks that were entered, and at which step
    switches: dict[Any, tuple]  # switches of torch that were set -> what they were before
    constructors: list[tuple[Frame, int]]  # of modules, and the steps that called them
    callbacks: dict[int, tuple[Any, Any]]
    callback_of: dict[int, Any]
    rethrown: dict[int, Rethrown]


def disabled_text(function: Any) -> str:
    """The name of a disabled function, and why it is."""
    why = function.__dict__.get(WHY_DISABLED)
    return function.__qualname__ if not why else f"{function.__qualname__} ({why})"


def _external_staticmethod(machine: Calls, function: Any, source: Source) -> Any:
    from refcompiler.capture.values import External

    return External(function, machine.member(source, "__func__"))


#: id of a callable -> its model in the symbolic domain; see :mod:`refcompiler.capture.models`.
MODELS: dict[int, Any] = {}

#: Modules whose closures over a function ``func`` transform it, and the model of such a closure;
#: their other functions are inlined.
TRANSFORMING: dict[str, Any] = {}
