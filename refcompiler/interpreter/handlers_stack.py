"""Opcodes that move values: stack, locals, cells, globals, attributes, items, containers."""

from __future__ import annotations

from types import CellType, CodeType, FunctionType
from typing import Any

from refcompiler.interpreter.callers import with_builtins_of
from refcompiler.interpreter.frame import CALLED, NULL, UNSET, Frame
from refcompiler.interpreter.machine import Machine
from refcompiler.interpreter.registry import op
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


@op("RESUME", "COPY_FREE_VARS")
def nothing(m: Machine, f: Frame, arg: Any) -> None:
    """Free variables are already in their slots, and there is no adaptive interpreter."""


@op("POP_TOP")
def pop_top(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.pop()


@op("PUSH_NULL")
def push_null(m: Machine, f: Frame, above: int) -> None:
    s = f.stack
    s.insert(len(s) - above, NULL)


@op("SWAP")
def swap(m: Machine, f: Frame, arg: int) -> None:
    s = f.stack
    s[-1], s[-arg] = s[-arg], s[-1]


@op("COPY")
def copy(m: Machine, f: Frame, arg: int) -> None:
    f.stack.append(f.stack[-arg])


@op("LOAD_CONST")
def load_const(m: Machine, f: Frame, value: Any) -> None:
    f.stack.append(value)


# ---- locals and cells -----------------------------------------------------------------------


def _unbound(f: Frame, slot: int) -> Exception:
    name = f.program.names[slot]
    if name in f.code.co_freevars:
        return NameError(
            f"cannot access free variable '{name}' where it is not associated with a value in "
            "enclosing scope",
            name=name,
        )
    return UnboundLocalError(
        f"cannot access local variable '{name}' where it is not associated with a value"
    )


@op("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(m: Machine, f: Frame, slot: int) -> None:
    value = f.fast[slot]
    if value is UNSET:
        raise _unbound(f, slot)
    f.stack.append(value)


@op("LOAD_CLOSURE")
def load_closure(m: Machine, f: Frame, slot: int) -> None:
    f.stack.append(f.fast[slot])


@op("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(m: Machine, f: Frame, slot: int) -> None:
    """What a comprehension's variable hides, be it nothing: STORE_FAST brings it back."""
    f.stack.append(f.fast[slot])
    f.fast[slot] = UNSET


@op("STORE_FAST")
def store_fast(m: Machine, f: Frame, slot: int) -> None:
    f.fast[slot] = f.stack.pop()


@op("DELETE_FAST")
def delete_fast(m: Machine, f: Frame, slot: int) -> None:
    if f.fast[slot] is UNSET:
        raise _unbound(f, slot)
    f.fast[slot] = UNSET


@op("MAKE_CELL")
def make_cell(m: Machine, f: Frame, slot: int) -> None:
    value = f.fast[slot]
    f.fast[slot] = CellType() if value is UNSET else CellType(m.own(value))


@op("LOAD_DEREF")
def load_deref(m: Machine, f: Frame, slot: int) -> None:
    value = m.load_cell(f.fast[slot])
    if value is UNSET:
        raise _unbound(f, slot)
    f.stack.append(value)


@op("LOAD_CLASSDEREF")
def load_classderef(m: Machine, f: Frame, slot: int) -> None:
    try:
        found = f.mapping[f.program.names[slot]]
    except KeyError:
        found = UNSET
    if found is UNSET:
        load_deref(m, f, slot)
    else:
        f.stack.append(found)


@op("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(m: Machine, f: Frame, slot: int) -> None:
    found = _in_namespace(m, f.stack[-1], f.program.names[slot])
    if found is UNSET:
        found = m.load_cell(f.fast[slot])
        if found is UNSET:
            raise _unbound(f, slot)
    f.stack[-1] = found


def _in_namespace(m: Machine, namespace: Any, name: str) -> Any:
    try:
        return m.getitem(namespace, name)
    except KeyError:
        return UNSET


@op("STORE_DEREF")
def store_deref(m: Machine, f: Frame, slot: int) -> None:
    m.store_cell(f.fast[slot], m.own(f.stack[-1]))
    f.stack.pop()


@op("DELETE_DEREF")
def delete_deref(m: Machine, f: Frame, slot: int) -> None:
    if m.load_cell(f.fast[slot]) is UNSET:
        raise _unbound(f, slot)
    m.store_cell(f.fast[slot], UNSET)


# ---- globals and class-body names ------------------------------------------------------------


@op("LOAD_GLOBAL")
def load_global(m: Machine, f: Frame, value: tuple[str, bool]) -> None:
    name, push_null = value
    found = m.load_global(f, name)
    if push_null:
        f.stack.append(NULL)
    f.stack.append(found)


@op("STORE_GLOBAL")
def store_global(m: Machine, f: Frame, name: str) -> None:
    m.store_global(f, name, f.stack[-1])
    f.stack.pop()


@op("DELETE_GLOBAL")
def delete_global(m: Machine, f: Frame, name: str) -> None:
    m.delete_global(f, name)


@op("LOAD_NAME")
def load_name(m: Machine, f: Frame, name: str) -> None:
    if f.mapping is not None:
        try:
            f.stack.append(f.mapping[name])
            return
        except KeyError:
            pass
    f.stack.append(m.load_global(f, name))


@op("LOAD_LOCALS")
def load_locals(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(f.globals if f.mapping is None else f.mapping)


@op("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict_or_globals(m: Machine, f: Frame, name: str) -> None:
    found = _in_namespace(m, f.stack[-1], name)
    f.stack[-1] = m.load_global(f, name) if found is UNSET else found


@op("STORE_NAME")
def store_name(m: Machine, f: Frame, name: str) -> None:
    (f.globals if f.mapping is None else f.mapping)[name] = m.own(f.stack[-1])
    f.stack.pop()


@op("DELETE_NAME")
def delete_name(m: Machine, f: Frame, name: str) -> None:
    try:
        del (f.globals if f.mapping is None else f.mapping)[name]
        return
    except KeyError:
        pass
    raise NameError(f"name '{name}' is not defined", name=name)


@op("SETUP_ANNOTATIONS")
def setup_annotations(m: Machine, f: Frame, arg: Any) -> None:
    namespace = f.globals if f.mapping is None else f.mapping
    try:
        namespace["__annotations__"]  # asked as CPython asks a mapping of any kind
    except KeyError:
        namespace["__annotations__"] = {}


# ---- attributes and items --------------------------------------------------------------------


@op("LOAD_ATTR")
def load_attr(m: Machine, f: Frame, name: str) -> None:
    s = f.stack
    s[-1] = m.getattr(s[-1], name)


@op("LOAD_METHOD")
def load_method(m: Machine, f: Frame, name: str) -> None:
    s = f.stack
    found = m.getattr(s[-1], name)
    s[-1] = NULL
    s.append(found)


@op("LOAD_SUPER_ATTR")
def load_super_attr(m: Machine, f: Frame, count: int) -> None:
    """The call of ``super``, or of what has its name; loading the attribute comes after it."""
    s = f.stack
    found = m.call(f, s[-3], s[-2:] if count else [], {})
    del s[-3:]
    if found is not CALLED:
        s.append(found)


@op("STORE_ATTR")
def store_attr(m: Machine, f: Frame, name: str) -> None:
    s = f.stack
    m.setattr(s[-1], name, s[-2])
    del s[-2:]


@op("DELETE_ATTR")
def delete_attr(m: Machine, f: Frame, name: str) -> None:
    m.delattr(f.stack[-1], name)
    f.stack.pop()


@op("BINARY_SUBSCR")
def binary_subscr(m: Machine, f: Frame, arg: Any) -> None:
    s = f.stack
    found = m.getitem(s[-2], s[-1])
    s.pop()
    s[-1] = found


@op("STORE_SUBSCR")
def store_subscr(m: Machine, f: Frame, arg: Any) -> None:
    s = f.stack
    m.setitem(s[-2], s[-1], s[-3])
    del s[-3:]


@op("DELETE_SUBSCR")
def delete_subscr(m: Machine, f: Frame, arg: Any) -> None:
    s = f.stack
    m.delitem(s[-2], s[-1])
    del s[-2:]


# ---- building --------------------------------------------------------------------------------


def _take(f: Frame, count: int) -> list[Any]:
    return f.stack[len(f.stack) - count :]


def _replace(f: Frame, count: int, value: Any) -> None:
    del f.stack[len(f.stack) - count :]
    f.stack.append(value)


@op("BUILD_TUPLE")
def build_tuple(m: Machine, f: Frame, count: int) -> None:
    _replace(f, count, tuple([m.own(v) for v in _take(f, count)]))


@op("BUILD_LIST")
def build_list(m: Machine, f: Frame, count: int) -> None:
    _replace(f, count, [m.own(v) for v in _take(f, count)])


@op("BUILD_SET")
def build_set(m: Machine, f: Frame, count: int) -> None:
    _replace(f, count, {m.key(v) for v in _take(f, count)})


@op("BUILD_MAP")
def build_map(m: Machine, f: Frame, count: int) -> None:
    items = _take(f, 2 * count)
    pairs = zip(items[::2], items[1::2], strict=True)
    _replace(f, 2 * count, {m.key(k): m.own(v) for k, v in pairs})


@op("BUILD_CONST_KEY_MAP")
def build_const_key_map(m: Machine, f: Frame, count: int) -> None:
    *values, keys = _take(f, count + 1)
    _replace(f, count + 1, dict(zip(m.own(keys), [m.own(v) for v in values], strict=True)))


@op("BUILD_STRING")
def build_string(m: Machine, f: Frame, count: int) -> None:
    _replace(f, count, "".join(m.own(v) for v in _take(f, count)))


@op("BUILD_SLICE")
def build_slice(m: Machine, f: Frame, count: int) -> None:
    _replace(f, count, slice(*[m.own(v) for v in _take(f, count)]))


@op("LIST_TO_TUPLE")
def list_to_tuple(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = tuple(m.own(f.stack[-1]))


@op("LIST_APPEND")
def list_append(m: Machine, f: Frame, depth: int) -> None:
    m.append(f.stack[-depth - 1], f.stack[-1])
    f.stack.pop()


@op("SET_ADD")
def set_add(m: Machine, f: Frame, depth: int) -> None:
    m.own(f.stack[-depth - 1]).add(m.key(f.stack[-1]))
    f.stack.pop()


@op("MAP_ADD")
def map_add(m: Machine, f: Frame, depth: int) -> None:
    s = f.stack
    m.own(s[-depth - 2])[m.key(s[-2])] = m.own(s[-1])
    del s[-2:]


@op("LIST_EXTEND")
def list_extend(m: Machine, f: Frame, depth: int) -> None:
    s = f.stack
    value = s[-1]
    try:
        m.own(s[-depth - 1]).extend(m.items_of(value))
        s.pop()
        return
    except TypeError:
        if is_iterable(m, value):
            raise
    raise TypeError(f"Value after * must be an iterable, not {m.type_of(value).__name__}")


def is_iterable(m: Machine, value: Any) -> bool:
    """Whether the type of ``value`` offers iteration at all, be it by ``__getitem__``."""
    return m.has_special(value, "__iter__") or m.has_special(value, "__getitem__")


@op("SET_UPDATE")
def set_update(m: Machine, f: Frame, depth: int) -> None:
    m.own(f.stack[-depth - 1]).update(m.items_of(f.stack[-1]))
    f.stack.pop()


@op("DICT_UPDATE")
def dict_update(m: Machine, f: Frame, depth: int) -> None:
    value = m.mapping(f.stack[-1])
    target = m.own(f.stack[-depth - 1])
    if type(value) is not dict:
        try:
            keys = value.keys
        except AttributeError:
            keys = None
        if keys is None:
            raise TypeError(f"'{type(value).__name__}' object is not a mapping")
    target.update(value)
    f.stack.pop()


def callee_name(function: Any) -> str:
    """How CPython's complaints about a call's arguments name the callee."""
    name = getattr(function, "__qualname__", None)
    if name is None:
        return str(function)
    module = getattr(function, "__module__", None)
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


@op("DICT_MERGE")
def dict_merge(m: Machine, f: Frame, depth: int) -> None:
    """Keyword arguments of a call: a key given twice is an error that names the callee."""
    s = f.stack
    value = m.mapping(s[-1])
    target = m.own(s[-depth - 1])
    if type(value) is dict and not target:
        target.update(value)
        s.pop()
        return
    try:
        keys = value.keys
    except AttributeError:
        keys = None
    if keys is None:
        kind = type(value).__name__
        raise TypeError(
            f"{callee_name(m.own(s[-depth - 3]))} argument after ** must be a mapping, not {kind}"
        )
    for key in keys():
        if key in target:
            name = callee_name(m.own(s[-depth - 3]))
            raise TypeError(f"{name} got multiple values for keyword argument '{key}'")
        target[key] = value[key]
    s.pop()


@op("LOAD_ASSERTION_ERROR")
def load_assertion_error(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(AssertionError)


@op("LOAD_BUILD_CLASS")
def load_build_class(m: Machine, f: Frame, arg: Any) -> None:
    found = f.builtins.get("__build_class__")
    if found is None:
        raise NameError("__build_class__ not found")
    f.stack.append(found)


@op("MAKE_FUNCTION")
def make_function(m: Machine, f: Frame, flags: int) -> None:
    s = f.stack
    code: CodeType = m.own(s[-1])
    index = -2
    closure = annotations = kwdefaults = defaults = None
    if flags & 8:
        closure, index = m.own(s[index]), index - 1
    if flags & 4:
        annotations, index = m.own(s[index]), index - 1
    if flags & 2:
        kwdefaults, index = m.own(s[index]), index - 1
    if flags & 1:
        defaults, index = m.own(s[index]), index - 1
    make = FunctionType if "__builtins__" in f.globals else with_builtins_of(f, FunctionType)
    function = make(code, f.globals, code.co_name, defaults, closure)
    function.__kwdefaults__ = kwdefaults
    if annotations is not None:
        function.__annotations__ = (
            dict(zip(annotations[::2], annotations[1::2], strict=True))
            if isinstance(annotations, tuple)
            else annotations
        )
    if "__name__" in f.globals:
        function.__module__ = f.globals["__name__"]
    del s[index + 1 :]
    s.append(function)
