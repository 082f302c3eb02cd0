"""What native code sees as its caller, and what C code takes from it."""

from __future__ import annotations

import gc
import importlib
import re
import sys
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refcompiler.interpreter.api import interpret
from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## warning_of_c_code
import warnings
class Odd:
    def __int__(self):
        return True
def main():
    found = []
    for action in ('always', 'default'):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(action)
            for _ in range(3):
                int(Odd())
                [int(Odd()),
                 int(Odd())]
        found.append([(w.filename, w.lineno, w.category, str(w.message)) for w in seen])
    return found, sorted(str(key) for key in __warningregistry__)
## who_called
import sys
def key(item):
    frame = sys._getframe(1)
    return frame.f_code.co_name, frame.f_lineno - item, frame.f_globals is globals()
def main():
    return [
        sorted([3, 1], key=key),
        list(map(key,
                 [1, 2])),
        [key(1) for _ in 'ab'],
    ]
## module_of_a_frame
import inspect, sys
def native(item):
    return hasattr(sys._getframe(1), '__module__')
def main():
    frame = inspect.currentframe()
    return hasattr(frame, '__module__'), inspect.getmodule(frame), list(map(native, 'a'))
## run_in_a_context
import asyncio, contextvars, sys
variable = contextvars.ContextVar('variable', default=0)
def inner(a, *, b=1):
    variable.set(variable.get() + a)
    names = []
    for depth in range(3):
        names.append(sys._getframe(depth).f_code.co_name)
    if b:
        raise ValueError(a, variable.get(), names)
    return variable.get(), names
def main():
    context = contextvars.copy_context()
    run = lambda *args, **kwargs: context.run(*args, **kwargs)
    found = [run(inner, 1, b=0), run(inner, *[2], b=0), context.get(variable)]
    found += [variable.get(), context.run(variable.get), context.run(int, '7', base=8)]
    loop = asyncio.new_event_loop()
    loop.call_soon(lambda: found.append((lambda: inner(5, b=0))()))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    try:
        context.run()
    except TypeError as error:
        found.append(str(error))
    try:
        run(inner, 3)
    except ValueError as error:
        found.append(error)
    return found
## warning_of_a_callback
import warnings
def old(item):
    warnings.warn('old', DeprecationWarning, stacklevel=2)
    return item
def main():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter('always')
        max([1, 2],
            key=old)
        list(map(old, 'a'))
    return [(w.filename, w.lineno) for w in seen]
## levels_of_a_warning
import importlib, warnings
def warn(level):
    warnings.warn('w', stacklevel=level)
def outer(level):
    warn(level)
def main():
    found = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter('always')
        for level in (-1, 0, 1, 2, 3):
            outer(level)
    calls = [((), {}), (('a', int), {}), (('a',), {'b': 1}), (('a',), {'stacklevel': 'x'})]
    for args, kwargs in calls:
        try:
            warnings.warn(*args, **kwargs)
        except TypeError as error:
            found.append(str(error))
    return [(w.filename, w.lineno) for w in seen], found
## classes_made_in_c
class Meta(type):
    pass
def main():
    makers = [type, Meta, type.__new__]
    made = [makers[0]('A', (), {}), makers[1]('B', (), {}), makers[2](Meta, 'C', (), {})]
    made += list(map(type, ['D'], [()], [{}]))
    return [(cls.__name__, cls.__module__) for cls in made], globals()['__name__']
## future_of_a_compilation
from __future__ import annotations
def main():
    space = {}
    exec(compile('def f(x: y): pass', 'f', 'exec'), space)
    return space['f'].__annotations__, type(eval(compile('1', 'f', 'eval', dont_inherit=True)))
## no_future_of_a_compilation
def main():
    space = {'y': 3}
    exec(compile('def f(x: y): pass', 'f', 'exec'), space)
    return space['f'].__annotations__
## errors_pass_it
def key(item):
    return 1 / item
def main():
    return sorted([0, 1], key=key)
## metaclass_hides_the_namespace
class Meta(type):
    @property
    def __dict__(cls):
        return None
    @property
    def __mro__(cls):
        return 1
class A(metaclass=Meta):
    def __init__(self, x):
        self.x = x
    def __enter__(self):
        return self.x
    def __exit__(self, *args):
        return False
def main():
    with A(2) as found:
        return found
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    check(PROGRAMS[name])


def _called_from(item: Any) -> tuple[str, int, str]:
    frame = sys._getframe(1)
    return frame.f_code.co_name, frame.f_lineno, frame.f_globals["__name__"]


def _calls_back(times: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(times):
        found.extend(map(_called_from, "a"))
        found.extend(map(_called_from, "c"))
    return found


def test_callers_in_a_module_that_stays() -> None:
    native = _calls_back(60)
    assert len({line for _, line, _ in native}) == 2
    assert interpret(_calls_back, 60) == native


def test_an_import_that_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of the import system are passed over: level 2 is the line that imports."""
    (tmp_path / "old_module.py").write_text("import warnings\nwarnings.warn('old', stacklevel=2)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def imports() -> list[Any]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            sys.modules.pop("old_module", None)
            import old_module  # type: ignore[import-not-found]  # noqa: F401
        return [(w.filename, w.lineno) for w in seen]

    assert interpret(imports) == imports() != []
    sys.modules.pop("old_module", None)


def test_a_module_imported_by_interpreted_code_that_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``importlib``'s own frames are interpreted then, and are passed over all the same."""
    (tmp_path / "old_module.py").write_text("import warnings\nwarnings.warn('old', stacklevel=2)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def imports() -> list[Any]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            sys.modules.pop("old_module", None)
            importlib.import_module("old_module")
        return [(w.filename, w.lineno) for w in seen]

    assert interpret(imports) == imports() != []
    sys.modules.pop("old_module", None)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="skip_file_prefixes came with 3.12")
def test_files_that_a_warning_passes_over() -> None:
    def warns(prefixes: tuple[str, ...]) -> list[Any]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            given: Any = {"skip_file_prefixes": prefixes}
            warnings.warn("w", **given)
        return [(w.filename, w.lineno) for w in seen]

    def both(prefixes: tuple[str, ...]) -> list[Any]:
        return warns(prefixes)

    for prefixes in ((), ("nowhere",)):
        assert interpret(both, prefixes) == both(prefixes) != []


def _drop_a_namespace(make: Callable[[dict], Any]) -> Any:
    class Held:
        pass

    held = Held()
    space: dict[str, Any] = {"held": held, "__name__": "gone"}
    exec("def f():\n    return len('abc'), repr(held)", space)
    assert len(make(space)) == 2
    reference = weakref.ref(held)
    del held, space
    gc.collect()
    return reference()


def test_a_namespace_is_not_kept() -> None:
    assert interpret(_drop_a_namespace, lambda space: space["f"]()) is None


def test_a_type_that_is_not_ready() -> None:
    """Nothing but an attribute's look-up makes this type of C code ready."""
    module = pytest.importorskip("_testbuffer")
    made: Any = interpret(lambda: module.ndarray([1, 2], shape=(2,)))
    assert made.tolist() == [1, 2]


def test_a_traceback_of_native_code_has_no_more_entries() -> None:
    def fails() -> None:
        re.sub("a", lambda match: 1 / 0, "a")  # type: ignore[arg-type, return-value]

    def entries(run: Callable) -> list[str]:
        with pytest.raises(ZeroDivisionError) as caught:
            run()
        found = []
        entry = caught.value.__traceback__
        while entry is not None:
            found.append(entry.tb_frame.f_code.co_name)
            entry = entry.tb_next
        return found[found.index("fails") :]

    assert entries(lambda: interpret(fails)) == entries(fails) == ["fails", "sub", "<lambda>"]


def asks_who_calls(call: Callable) -> tuple:
    local: Any = 3  # noqa: F841
    namespace: dict[str, Any] = {}
    call(exec, "made = 3", None, namespace)
    answers = call(eval, "local + 1"), sorted(call(locals)), call(dir), call(vars)["local"]
    return namespace, answers, call(globals) is globals(), call(type, "Made", (), {}).__module__


def test_builtins_given_to_interpret_find_who_called_it() -> None:
    names = ["call", "local", "namespace"]
    due = {"made": 3}, (4, names, names, 3), True, __name__
    assert asks_who_calls(interpret) == due
    assert interpret(asks_who_calls, interpret) == due  # by interpreted code


def test_what_it_executes_leaves_nothing_in_other_calls() -> None:
    space: dict[str, Any] = {"interpret": interpret}
    exec("interpret(exec, 'left_behind = 1')", space)
    assert space["left_behind"] == 1
    assert "left_behind" not in interpret(eval, "{**globals(), **locals()}")


def test_the_callers_variables_are_not_kept() -> None:
    class Held:
        pass

    held = Held()
    reference = weakref.ref(held)
    assert interpret(len, "ab") + interpret(lambda: 1) == 3
    del held
    assert reference() is None
