"""The stance: what compiled callables do at a call, for all of them at once.

A call in the default stance pays nothing for it: in any other one the first entry of every site
never holds, so that calls come to the site's slow path, which asks here.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

from refcompiler.backends.registry import lookup_backend
from refcompiler.capture.models.registry import model
from refcompiler.errors import GraphBreakError, UnsupportedError
from refcompiler.interpreter.failures import Failure
from refcompiler.runtime.scoped import inside
from specs.stances import STANCES, Stance


class Setting(NamedTuple):
    """``backend``: compiles everything instead of the backends that were given, unless None.
    ``loose``: only the guards that tell a site's plans apart are checked.
    """

    stance: Stance
    loose: bool
    backend: Callable | None

    @property
    def plain(self) -> bool:
        return self.stance.name == "default" and not self.loose and self.backend is None

    @property
    def misses_run_eagerly(self) -> bool:
        """A call for which nothing was compiled; where guards are skipped, it is an error."""
        return self.stance.miss == "eager" and not self.loose

    @property
    def only_loose(self) -> bool:
        """It is the default but for the guards that are checked."""
        return self.stance.name == "default" and self.loose and self.backend is None


#: Held while a site's plans change, and while something is compiled.
LOCK = threading.RLock()
DEFAULT = Setting(STANCES["default"], False, None)


class _Current:
    """The setting, and the sites that follow it.

    ``own`` is what was said here, and ``torch`` what was said to torch; where both are another than
    the default, the first holds. ``together``: processes enter compiled code together, see
    :mod:`.collectives`.
    """

    def __init__(self) -> None:
        self.setting = self.own = self.torch = DEFAULT
        self.together = False
        self.sites: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, site: Any) -> None:
        with LOCK:
            self.sites.add(site)
            site.follow(self.setting)

    def set(self, setting: Setting) -> None:
        with LOCK:
            self.own = setting
            self._tell()

    def set_torch(self, setting: Setting) -> None:
        with LOCK:
            self.torch = setting
            self._tell()

    def enter_together(self, together: bool) -> None:
        with LOCK:
            self.together = together
            self._tell()

    def _tell(self) -> None:
        self.setting = self.torch if self.own.plain else self.own
        for site in list(self.sites):
            site.follow(self.setting)


CURRENT = _Current()


class set_stance:
    """Set what compiled callables do; the stance stays until another one is set.

    As ``torch.compiler.set_stance``, for what :func:`refcompiler.compile` compiled (torch's own
    holds for that too, where this one is the default): usable as a function, as a context manager
    and as a decorator, which set the stance before back. (A decorated generator or coroutine is in
    the stance while it runs, not while it is suspended.)

    ``stance``: one of ``"default"``, ``"force_eager"``, ``"eager_on_recompile"``,
    ``"fail_on_recompile"``, ``"eager_then_compile"`` and ``"aot_eager_then_compile"``.
    ``skip_guard_eval_unsafe``: check only those guards that tell the compiled versions of a
    function apart, and those of tensors that are no parameters. Unsafe: what else has changed is
    not noticed. Nothing is compiled: that is a :class:`RecompileError`, as in torch.
    ``force_backend``: a backend that compiles everything instead of those that were given; for the
    default stance only.

    Errors: ``ValueError`` for an unknown stance, ``RuntimeError`` (torch's) for a backend beside
    another one than the default, ``TypeError`` for other types, :class:`UnsupportedError` for an
    unknown backend; inside a compiled function it is an error of the call that compiles.
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: str | Callable | None = None,
    ):
        if callable(stance):
            raise TypeError("set_stance: as a decorator it takes a stance: @set_stance('default')")
        if stance not in STANCES:
            known = ", ".join(row.name for row in STANCES)
            raise ValueError(f"set_stance: no stance is named {stance!r}; there are {known}")
        if not isinstance(skip_guard_eval_unsafe, bool):
            raise TypeError(
                f"set_stance: skip_guard_eval_unsafe takes True or False, not "
                f"{skip_guard_eval_unsafe!r}"
            )
        backend = None
        if force_backend is not None:
            if stance != "default":
                raise RuntimeError(
                    f"set_stance: force_backend goes with the default stance, not with {stance!r}"
                )
            backend = lookup_backend(force_backend)
        if STANCES[stance].first == "aot_eager":
            try:
                lookup_backend("aot_eager")
            except UnsupportedError as error:
                raise UnsupportedError(f"set_stance: {stance!r} needs a backend: {error}") from None
        self.setting = Setting(STANCES[stance], skip_guard_eval_unsafe, backend)
        self.before = CURRENT.own
        CURRENT.set(self.setting)

    def __call__(self, function: Callable) -> Callable:
        CURRENT.set(self.before)
        return inside(functools.partial(_block, self.setting), function, "set_stance")

    def __enter__(self) -> None:
        _switch(self.setting)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        CURRENT.set(self.before)


@contextlib.contextmanager
def _block(setting: Setting) -> Iterator[None]:
    before = _switch(setting)
    try:
        yield
    finally:
        CURRENT.set(before)


def _switch(setting: Setting) -> Setting:
    """Set the stance of a block or of a function; the one before is the answer."""
    before = CURRENT.own
    CURRENT.set(setting)
    return before


@model(set_stance, _switch)
def _set_inside(machine: Any, frame: Any, args: Any, kwargs: Any) -> Any:
    text = "set_stance is called inside a compiled function; call it outside of it"
    raise Failure(GraphBreakError(text), frame.code.co_qualname)
