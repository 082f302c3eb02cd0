"""Which local variables a frame may still read: a backward data-flow over its instructions."""

from __future__ import annotations

from refcompiler.bytecode.decode import Program

_READS = frozenset(
    {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"}
    | {"LOAD_CLOSURE", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
)
_CELL_WRITES = frozenset({"STORE_DEREF", "DELETE_DEREF", "MAKE_CELL"})
_NO_FALL_THROUGH = frozenset(
    {"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD"}
    | {"JUMP_BACKWARD_NO_INTERRUPT"}
)
_SEES_ALL = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe"})


def live_at(program: Program, index: int) -> frozenset[int]:
    """Slots that may be read at or after instruction ``index``."""
    if program.live is None:
        program.live = live_slots(program)
    return program.live[index]


def live_slots(program: Program) -> list[frozenset[int]]:
    """For each instruction the slots that may be read at or after it.

    Cells are read by whoever shares them, so a cell's slot counts as read where it is written.
    A function that mentions ``locals`` and its like keeps everything alive.
    """
    count = len(program.instructions)
    if _SEES_ALL & set(program.code.co_names):
        return [frozenset(range(len(program.names)))] * (count + 1)
    always: set[int] = set()
    if "super" in program.code.co_names and "__class__" in program.names:
        always = {0, program.names.index("__class__")}  # what super() without arguments reads
    live: list[frozenset[int]] = [frozenset(always)] * (count + 1)
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            ins = program.instructions[i]
            after = set() if ins.name in _NO_FALL_THROUGH else set(live[i + 1])
            if "JUMP" in ins.name or ins.name in ("FOR_ITER", "SEND"):
                after |= live[ins.value]
            if ins.name == "STORE_FAST":
                after.discard(ins.arg)
            elif ins.name in _READS or ins.name in _CELL_WRITES:
                after.add(ins.arg)
            handler = program.handler_at(i)
            if handler is not None:
                after |= live[handler.target]
            now = frozenset(after | always)
            if now != live[i]:
                live[i] = now
                changed = True
    return live
