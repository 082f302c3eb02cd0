"""The entry of a plan as data, guards and what the body reads, and the one printer of it.

The printer reads each value once, where the first guard asks for it: into a variable, or in the
middle of the condition if nothing else needs it. Conditions that need no read between them share a
line. What most often tells two plans of a function apart comes first: the arguments. Then come the
settings of torch, what was read from namespaces (all of one together), and the parameters and
buffers of modules, many in one loop. What is unchanged since it was last asked is not asked again:
see :mod:`refcompiler.guards.fingerprint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from refcompiler.guards.ambient import Ambient, modes_text, settings_text
from refcompiler.guards.constants import PLAIN
from refcompiler.guards.fingerprint import FEW, Unchanged, unchanged
from refcompiler.guards.kinds import KINDS, Guard, asks_once
from refcompiler.guards.sources import Source
from refcompiler.guards.tags import unchanged_dicts
from refcompiler.guards.tensors import common, common_text, is_registered
from refcompiler.plan.seldom import Seldom, is_data

_WIDTH = 160  # of a line of conditions
_TOGETHER = 3  # as many registered tensors as are worth a loop
_MANY_TENSORS = 16  # as many others as are, in lists and dicts: these come behind the other guards
_MANY = 30  # guards of dicts take longer to ask than their dicts to compare
_EQUAL = ("EQUALS", "NONE")
_OF_DICTS = frozenset({"ABSENT", "LACKS", "HAS", "KEYS", "LENGTH"})
_MEMBERS = frozenset({"member", "item", "dict_item"})
_UNCHANGEABLE = (int, float, bool, complex, str, bytes, type(None))
_OF_MEMORY = frozenset({"UNIQUE", "STORAGE"})  # what guards of many tensors ask of all together
_NAMESPACES = frozenset({"dict", "hidden_dict", "const", "space"})


class Entry(NamedTuple):
    """``guards`` in the order in which capture asked; ``needed`` is what the body reads."""

    guards: Sequence[Guard]
    needed: Sequence[Source]

    def lines(self, name: Callable[[Source], str], constant: Callable[[Any], str]) -> list[str]:
        """The statements; ``name`` gives the variable of a source, ``constant`` a value's text."""
        return _Printer(self, name, constant).entry()


class Arrangement(NamedTuple):
    """The guards in the order in which they are checked: ``looped``, of registered tensors, and
    ``listed``, of other ones, are checked in loops, and ``together`` ask of the listed ones whether
    they are different, and which memory is theirs."""

    ambient: Ambient | None
    arguments: list[Guard]
    others: list[Guard]
    looped: list[list[Guard]]
    listed: list[list[Guard]]
    together: list[Guard]


def arranged(guards: Sequence[Guard], uses: dict[Source, int]) -> Arrangement:
    """``uses`` is how often each value is asked for."""
    ambient = None
    arguments: list[Guard] = []
    others: list[Guard] = []
    for guard in guards:
        if guard.kind == "AMBIENT":
            ambient = guard.expected
        else:
            (arguments if _asks_arguments(guard) else others).append(guard)
    looped, single = _tensors(others, is_registered, _TOGETHER)
    kept, rest = _tensors(single, lambda source: not _is_gradient(source), _TOGETHER)
    passing, rest = _tensors(rest, _is_gradient, _TOGETHER)
    listed = [*kept, *passing]
    if sum(map(len, listed)) < _MANY_TENSORS:
        listed, rest = [], single
    known = {guard.source for group in (*looped, *listed) for guard in group}
    together = [
        g for g in rest if listed and g.kind in _OF_MEMORY and known.issuperset(sources_of(g))
    ]
    taken = {id(guard) for guard in together}
    rest = [guard for guard in rest if id(guard) not in taken]
    return Arrangement(
        ambient, arguments, list(_by_namespace(rest, uses)), looped, listed, together
    )


def sources_of(guard: Guard) -> list[Source]:
    """What ``guard`` asks besides its own source."""
    found: list[Source] = []
    guard.wanted(found.append)
    return found


def _asks_arguments(guard: Guard) -> bool:
    """It is about arguments of the call alone."""
    sources: list[Source | None] = [guard.source]
    if _is_argument(guard.source):
        guard.wanted(sources.append)
    return all(map(_is_argument, sources))


def _is_argument(source: Source | None) -> bool:
    """An argument of the call, or an item of one."""
    while source is not None and source.kind == "item":
        source = source.parent
    return source is not None and source.kind == "arg"


def _tensors(
    guards: Sequence[Guard], which: Callable[[Source], bool], worth: int
) -> tuple[list[list[Guard]], list[Guard]]:
    """Those ``which`` tensors that are checked in loops, of as many as are ``worth`` one, and the
    other guards."""
    alike: dict[Any, list[Guard]] = {}
    for guard in guards:
        if guard.kind == "TENSOR" and guard.source is not None and which(guard.source):
            key = common(guard.expected)
            if key is not None:
                alike.setdefault((key, guard.expected.shape), []).append(guard)
    few: dict[Any, list[Guard]] = {}
    for key, same in alike.items():
        if len(same) < worth:
            few.setdefault(key[0], []).extend(same)
    groups = [*alike.values(), *few.values()]
    looped = [same for same in groups if len(same) >= worth]
    taken = {id(guard) for same in looped for guard in same}
    return looped, [guard for guard in guards if id(guard) not in taken]


def _by_namespace(guards: Sequence[Guard], uses: dict[Source, int]) -> Iterator[Guard]:
    """All guards on one namespace follow the first one."""
    groups: dict[Source, list[Guard]] = {}
    for guard in guards:
        namespace = _namespace(guard, uses)
        if namespace is not None:
            groups.setdefault(namespace, []).append(guard)
    for guard in guards:
        namespace = _namespace(guard, uses)
        if namespace is None:
            yield guard
        else:
            yield from groups.pop(namespace, ())


def _namespace(guard: Guard, uses: dict[Source, int]) -> Source | None:
    """The namespace that a guard asks, if nothing else has to be read for it."""
    source = guard.source
    if source is None:
        return None
    if guard.kind in ("ABSENT", "WITHOUT"):
        return source if source.kind in _NAMESPACES else None
    parent = source.parent
    if source.kind == "member" and parent is not None and parent.kind in _NAMESPACES:
        return parent if uses[source] == 1 else None
    return None


def folded(guards: Sequence[Guard]) -> list[Guard]:
    """``guards``, those of a tuple that ask each of its numbers and texts as one of the tuple.

    It is one line instead of two for each item, and none where the tuple lies in a dict that has
    not changed.
    """
    lengths: dict[Source, int] = {}
    items: dict[Source, dict[int, Any]] = {}
    for guard in guards:
        source = guard.source
        if source is None:
            continue
        if guard.kind == "LENGTH":
            lengths[source] = guard.expected
        elif source.kind == "item" and source.parent is not None and guard.kind in _EQUAL:
            expected = None if guard.kind == "NONE" else guard.expected
            if type(expected) in PLAIN:
                items.setdefault(source.parent, {})[source.key] = expected
    whole: dict[Source, tuple] = {}
    for guard in guards:
        source = guard.source
        if source is not None and guard.kind == "TYPE" and guard.expected is tuple:
            wanted = range(lengths.get(source, 0))
            known = items.get(source, {})
            if wanted and len(known) == len(wanted) and all(i in known for i in wanted):
                whole[source] = tuple([known[i] for i in wanted])
    found = []
    for guard in guards:
        source = guard.source
        if source in whole and guard.kind in ("TYPE", "LENGTH"):
            if guard.kind == "TYPE":
                found.append(guard._replace(kind="EQUALS", expected=whole[source]))
        elif not (
            source is not None
            and source.kind == "item"
            and source.parent in whole
            and guard.kind in _EQUAL
        ):
            found.append(guard)
    return found


def in_dicts(guards: Sequence[Guard]) -> dict[Source, list[Guard]]:
    """By dict those guards that hold as long as nothing in it is replaced, added or taken out.

    Dicts are the ``__dict__`` of objects, and those that a guard says are no subclasses.
    """
    exact = {guard.source for guard in guards if guard.kind == "TYPE" and guard.expected is dict}
    found: dict[Source, list[Guard]] = {}
    for guard in guards:
        source = guard.source
        if source is not None and guard.kind not in _OF_DICTS:
            source = source.parent if source.kind in _MEMBERS and _is_fixed(guard) else None
        if source is not None and (source.kind == "dict" or source in exact):
            found.setdefault(source, []).append(guard)
    return found


def _is_fixed(guard: Guard) -> bool:
    """Whether it asks a value only which object, or which unchangeable one, it is."""
    if guard.kind == "EQUALS":
        if type(guard.expected) is tuple:
            return all(type(item) in PLAIN for item in guard.expected)
        return type(guard.expected) in _UNCHANGEABLE
    return guard.kind in ("ID", "NONE", "NOT_NONE", "PRESENT")


def _not_implied(together: Sequence[Guard]) -> list[Guard]:
    """Without those that ask whether tensors are different, where no two of them share memory."""
    apart: set[Source] = set()
    for guard in together:
        if guard.kind == "STORAGE" and [*guard.expected[1]] == [*range(len(guard.expected[1]))]:
            apart.update(guard.expected[0])
    return [g for g in together if g.kind != "UNIQUE" or not apart.issuperset(g.expected)]


def _is_gradient(source: Source | None) -> bool:
    return source is not None and source.kind == "attr" and source.key == "grad"


class _Printer:
    """``uses`` is how often the text names what is at a source."""

    def __init__(
        self, entry: Entry, name: Callable[[Source], str], constant: Callable[[Any], str]
    ) -> None:
        self._guards = folded(entry.guards)
        self._needed = entry.needed
        self.name = name
        self.constant = constant
        self.lines: list[str] = []
        self.known: dict[Source, str] = {}
        self.uses: dict[Source, int] = {}
        self._pending: list[str] = []
        self._width = 0
        for guard in self._guards:
            if guard.source is not None:
                self._use(guard.source, 1 if asks_once(guard) else 2)
            guard.wanted(lambda source: self._use(source, 2))
        for source in entry.needed:
            self._use(source, 2)

    def _use(self, source: Source | None, often: int) -> str:
        while source is not None:
            before = self.uses.get(source, 0)
            self.uses[source] = before + often
            if before:  # its parents are counted
                break
            source, often = source.parent, 1
        return ""

    def entry(self) -> list[str]:
        """The statements."""
        ambient, arguments, others, looped, listed, together = arranged(self._guards, self.uses)
        if ambient is not None:
            self.condition(f"not ({modes_text(ambient, self.constant)})")
        for guard in arguments:
            self.check(guard)
        if ambient is not None:
            self.condition(f"not ({settings_text(ambient, self.constant)})")
        self.others(others)
        self.tensors("tensors", looped)
        self.listed(listed, together)
        for source in self._needed:
            self.read(source)
        self.flush()
        return self.lines

    def read(self, source: Source) -> str:
        """Text that gives the value at ``source``, which is read by now."""
        known = self.known.get(source)
        if known is not None:
            return known
        parent = self.read(source.parent) if source.parent is not None else ""
        text = source.expression(parent, self.constant)
        if source.kind not in ("arg", "const", "space"):
            if self.uses[source] == 1:
                return text
            self.flush()
            name = self.name(source)
            self.lines.append(f"{name} = {text}  # {source}"[:200].replace("\n", " "))
            text = name
        self.known[source] = text
        return text

    def check(self, guard: Guard) -> None:
        kind = KINDS[guard.kind]
        name = self.read(guard.source) if guard.source is not None else ""
        wanted = guard.wanted(self.read)
        if kind.fails is not None:
            self.condition(kind.fails(name, wanted, self.constant))
        else:
            text = kind.text(name, wanted, self.constant)
            if text != "True":
                self.condition(f"not ({text})")

    def condition(self, fails: str) -> None:
        """Leave the function if ``fails``."""
        if self._width + len(fails) > _WIDTH:
            self.flush()
        self._pending.append(fails)
        self._width += len(fails) + 4

    def others(self, guards: Sequence[Guard]) -> None:
        """Guards of dicts are asked only if these have changed since they were last."""
        groups = in_dicts(guards)
        covered = {id(guard) for group in groups.values() for guard in group}
        known = unchanged_dicts() if len(covered) >= _MANY else None
        if known is None:
            covered = set()
        for guard in guards:
            if id(guard) not in covered:
                self.check(guard)
        if known is not None:
            asked = [guard for guard in guards if id(guard) in covered]
            seldom = Seldom([guard for guard in asked if is_data(guard)], [*groups])
            rest = [guard for guard in asked if not is_data(guard)]
            names = [self.read(space) for space in groups]

            def ask() -> None:
                self.condition(f"not {self.constant(seldom)}(__dicts)")
                for guard in rest:
                    self.check(guard)

            self.unless(known, "dicts", names, ask)

    def listed(self, groups: Sequence[Sequence[Guard]], together: Sequence[Guard]) -> None:
        """Tensors in lists and dicts, as an optimizer's are, and what is asked of all of them.

        Gradients are others in each step, mostly: so the rest is compared without them, too.
        """
        if not groups:
            return
        parts: list[list[Sequence[Guard]]] = [[], []]
        for guards in groups:
            parts[_is_gradient(guards[0].source)].append(guards)

        def ask() -> None:
            for number, part in enumerate(parts):
                self.tensors(f"part{number}", part, passing=bool(number))
            for guard in _not_implied(together):
                self.check(guard)

        wanted = {s: None for g in together for s in sources_of(g)}
        wanted |= {g.source: None for guards in groups for g in guards if g.source is not None}
        known = unchanged(storages=True, passing=True)
        if known is None:
            ask()
        else:
            self.unless(known, "listed", [*map(self.read, wanted)], ask)

    def tensors(self, what: str, groups: Sequence[Sequence[Guard]], passing: bool = False) -> None:
        """Loops over tensors, which are asked only if they have changed since they were last."""
        names = [self.read(g.source) for guards in groups for g in guards if g.source is not None]
        known = unchanged(passing=passing) if len(names) >= FEW else None
        if known is not None:
            self.unless(known, what, names, lambda: [*map(self.loop, groups)])
            return
        self.flush()
        for guards in groups:
            self.loop(guards)

    def unless(
        self, known: Unchanged, what: str, names: Sequence[str], ask: Callable[[], Any]
    ) -> None:
        """What ``ask`` prints, if the objects are not as they were when it was last run."""
        self.flush()
        name, variable, looked = self.constant(known), f"__{what}", f"__looked_{what}"
        self.lines.append(f"{variable} = ({''.join([f'{text}, ' for text in names])})")
        self.lines.append(f"if not {name}({variable}):")
        before, read = self.lines, dict(self.known)
        self.lines = [f"{looked} = {name}.look({variable})"]
        ask()
        self.flush()
        self.lines.append(f"{name}.keep({variable}, {looked})")
        self.lines = [*before, *["    " + line for line in self.lines]]
        self.known = read  # what was read in between may not have been

    def loop(self, guards: Sequence[Guard]) -> None:
        """Tensors that differ in their sizes at most."""
        tensors = "".join([f"{self.read(guard.source)}, " for guard in guards if guard.source])
        shapes = [tuple(guard.expected.shape) for guard in guards]
        if len(set(shapes)) == 1:
            head, shape = f"for __t in ({tensors}):", str(shapes[0])
        else:
            head, shape = f"for __t, __shape in zip(({tensors}), {tuple(shapes)}):", "__shape"
        fails = common_text("__t", shape, guards[0].expected, self.constant)
        self.lines += [head, f"    if {fails}:", "        return __MISS"]

    def flush(self) -> None:
        """A line with the conditions so far."""
        if self._pending:
            self.lines.append(f"if {' or '.join(self._pending)}: return __MISS")
            self._pending.clear()
            self._width = 0
