"""Context variables and contexts: read through guards, set after the graph.

A capture has an overlay for each context that it meets: for the one in which it runs, for those
from outside that the program enters, and for those that the frame has made, by copying or new.
Source of the rules: the documentation of ``contextvars`` and PEP 567.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Context, ContextVar, Token, copy_context
from typing import Any

from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break, Restart
from refcompiler.guards.sources import NOT_SET, set_here
from refcompiler.interpreter.frame import UNSET


class Set:
    """The token of a ``set`` that the frame has made; ``value`` is what it set, in ``scope``."""

    __slots__ = ("var", "old_value", "value", "used", "scope")

    def __init__(self, var: ContextVar, old_value: Any, value: Any, scope: Scope):
        self.var = var
        self.old_value = old_value
        self.value = value
        self.used = False
        self.scope = scope

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return Token


class Scope:
    """One context. ``now`` is what the capture has set in it.

    What it has not set is ``below``: the source of a context from outside, None for the one in
    which the plan runs, UNSET for nothing. ``first`` is what one of the frame's own had been given
    when it was made, and ``log`` the sets and resets since, each with whether it is a reset.
    """

    __slots__ = ("below", "first", "now", "own", "entered", "log")

    def __init__(self, below: Any, now: Mapping[ContextVar, Any] = {}, own: bool = True):
        self.below = below
        self.first = dict(now)
        self.now = dict(now)
        self.own = own  # the frame has made it
        self.log: list[tuple[bool, Set | Token]] = []
        self.entered = False


class Contexts:
    """The context variables and contexts that one capture has met."""

    def __init__(self, machine: Any):
        self.machine = machine
        self.current = Scope(None, own=False)
        self.current.entered = True
        self.scopes: dict[int, tuple[Context, Scope]] = {}  # by the ids of contexts
        #: Sets and resets in contexts from outside: where, whether it is a reset, and of what.
        self.log: list[tuple[Scope, bool, Set | Token]] = []

    # ---- variables --------------------------------------------------------------------------

    def call(self, var: ContextVar, name: str, args: Sequence, kwargs: Mapping) -> Any:
        """A method of ``var``."""
        machine, scope = self.machine, self.current
        if kwargs or name not in ("get", "set", "reset") or len(args) > 1:
            raise Break("c-function", f"ContextVar.{name}")
        if name == "get":
            found = self.read(var, scope)
            if found is not Token.MISSING:
                return found
            if args:
                return args[0]
            default = Context().run(var.get)  # or the LookupError
            source = machine.sources.make("context_default", machine.source_of(var))
            return machine.lazy(source, default)
        if name == "set":
            made = Set(var, self.read(var, scope), machine.force(args[0]), scope)
            self.put(False, made, var, made.value)
            return made
        token = machine.force(args[0])
        if type(token) is Token:
            self.reset_to(token, var)
            return None
        if type(token) is not Set:
            raise TypeError(f"expected an instance of Token, got {token!r}")
        if token.used:
            raise RuntimeError(f"{token!r} has already been used once")
        if token.var is not var:
            raise ValueError(f"{token!r} was created by a different ContextVar")
        if token.scope is not scope:
            raise ValueError(f"{token!r} was created in a different Context")
        token.used = True
        self.put(True, token, var, token.old_value)
        return None

    def put(self, resets: bool, token: Set | Token, var: ContextVar, value: Any) -> None:
        self.current.now[var] = value
        if self.current.own:
            self.current.log.append((resets, token))
        else:
            self.log.append((self.current, resets, token))

    def reset_to(self, token: Token, var: ContextVar) -> None:
        """Undo a ``set`` that was made before the graph."""
        if (
            token.var is not var
            or repr(token).startswith("<Token used")
            or self.current.own
            or self.current.below is not None
        ):
            raise Break("c-function", "ContextVar.reset to a token that it refuses")
        machine = self.machine
        given = machine.source_of(token)
        machine.guard("SAME", machine.member(given, "var"), self.known(var))
        here = set_here(token)
        if machine.observe(machine.lazy(machine.sources.make("set_here", given), here)) is False:
            raise ValueError(f"{token!r} was created in a different Context")
        old = machine.member(given, "old_value")
        value = machine.lazy(old, token.old_value)
        if token.old_value is Token.MISSING:
            machine.guard("ID", old, Token.MISSING)
            value = token.old_value
        self.put(True, token, var, value)

    def known(self, var: ContextVar) -> Any:
        """The source of ``var``, which is no other one."""
        source = self.machine.source_of(var)
        if source is None:
            raise Break("c-function", "a ContextVar that the frame has made")
        self.machine.guard("ID", source, var)
        return source

    def read(self, var: ContextVar, scope: Scope) -> Any:
        """The value of ``var`` in ``scope``, or ``Token.MISSING``."""
        machine, source = self.machine, self.known(var)
        found = scope.now.get(var, UNSET)
        if found is not UNSET:
            return found
        if scope.below is UNSET:
            return Token.MISSING
        if scope.below is None:
            place = machine.sources.make("context", source)
            value = var.get(NOT_SET)
        else:
            place = machine.sources.make("in_context", scope.below, var, var.name)
            value = self.real(scope).get(var, NOT_SET)
        lazy = machine.lazy(place, value)
        if value is NOT_SET:
            machine.guard("ID", place, NOT_SET)
            return Token.MISSING
        nothing = machine.sources.make("const", None, NOT_SET)
        machine.guard("DISTINCT", place, nothing)  # also where the value only passes through
        return lazy

    def real(self, scope: Scope) -> Context:
        """The context from outside that lies below ``scope``."""
        return self.machine.lazies[scope.below].value

    # ---- contexts ---------------------------------------------------------------------------

    def make(self, scope: Scope) -> Context:
        """A context of the frame's own, which stands for ``scope`` while capturing."""
        made = Context()
        self.scopes[id(made)] = made, scope
        return made

    def scope_of(self, context: Context) -> Scope:
        known = self.scopes.get(id(context))
        if known is None:
            source = self.machine.source_of(context)
            known = self.scopes[id(context)] = context, Scope(source, own=False)
        return known[1]

    def is_own(self, context: Any) -> bool:
        known = self.scopes.get(id(context))
        return known is not None and known[1].own

    def context_of(self, scope: Scope) -> Context:
        """The context of the frame's own that stands for ``scope``."""
        return next(made for made, known in self.scopes.values() if known is scope)

    def method(self, context: Context, name: str, args: Sequence, kwargs: Mapping) -> Any:
        """A method of ``context``."""
        machine, scope = self.machine, self.scope_of(context)
        if name == "run" and args:
            return self.run(context, scope, args, kwargs)
        if name == "copy" and not args:
            return self.make(Scope(scope.below, scope.now))
        if name not in ("get", "__getitem__", "__contains__") or not args or kwargs:
            raise Break("c-function", f"Context.{name}")
        var = machine.force(args[0])
        if type(var) is not ContextVar:
            raise TypeError(f"a ContextVar key was expected, got {var!r}")
        found = self.read(var, scope)
        if name == "__contains__":
            return found is not Token.MISSING
        if found is not Token.MISSING:
            return found
        if name == "__getitem__":
            raise KeyError(var)
        return args[1] if len(args) > 1 else None

    def run(self, context: Context, scope: Scope, args: Sequence, kwargs: Mapping) -> Any:
        """A break inside is one before the call, which then enters the real context."""
        machine = self.machine
        if scope.entered:
            raise RuntimeError(f"cannot enter context: {context!r} is already entered")
        if not scope.own and self.real(scope) is not context:
            raise Break("c-function", "Context.run of a context that is another one now")
        outer, step = self.current, machine.steps
        self.current, scope.entered = scope, True
        try:
            return machine.force(machine.invoke(machine.frame, args[0], list(args[1:]), kwargs))
        except Break as signal:
            raise Restart(step, signal.row, signal.context) from signal
        finally:
            self.current, scope.entered = outer, False

    def changes(self) -> list[tuple[Scope, bool, Set | Token]]:
        """What to replay: nothing where each ``set`` was followed by its ``reset``."""
        undone = all(type(token) is Set and token.used for _, _, token in self.log)
        return [] if undone else self.log


@model(copy_context)
def _copy_context(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    current = m.contexts.current
    return m.contexts.make(Scope(current.below, current.now))


@model(Context)
def _context(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if args or kwargs:
        raise Break("c-function", "Context with arguments")  # CPython's complaint
    return m.contexts.make(Scope(UNSET))
