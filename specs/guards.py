"""One row per guard kind: what capture records, what is checked, and what violates it."""

from __future__ import annotations

from dataclasses import dataclass

from specs.table import Table


@dataclass(frozen=True)
class GuardKind:
    """``expected`` is what capture records beside the source, ``check`` what must hold at entry,
    ``explain`` the sentence for a failed guard (``{source}``, ``{expected}``, ``{found}``), and
    ``violate`` names a change of the input that the guard has to notice. ``hint``: what to do where
    it fails again and again.
    """

    name: str
    expected: str
    check: str
    explain: str
    violate: str
    hint: str = "keep what changes out of the compiled function, or raise the limit"


GUARDS: Table[GuardKind] = Table(
    "guard kinds",
    [
        GuardKind(
            "TYPE",
            "the class",
            "type(value) is the class",
            "type of {source}: expected {expected}, found {found}",
            "an object of another class",
            hint="pass objects of one class, or compile a function for each class",
        ),
        GuardKind(
            "ID",
            "the object",
            "value is the object",
            "{source}: expected the same object {expected}, found {found}",
            "an equal copy",
            hint="pass the same object each time: a class or function that is made anew for each "
            "call never fits",
        ),
        GuardKind(
            "EQUALS",
            "a constant",
            "same class and equal, all the way down and in order; NaN equals NaN, and 0.0 "
            "differs from -0.0",
            "{source}: expected {expected}, found {found}",
            "another value, or an equal value of another class",
            hint="pass a number that changes as a tensor or under dynamic=True, and keep what "
            "counts calls out of the compiled function",
        ),
        GuardKind(
            "NONE",
            "nothing",
            "value is None",
            "{source}: expected None, found {found}",
            "anything but None",
        ),
        GuardKind(
            "NOT_NONE",
            "nothing",
            "value is not None",
            "{source}: expected a value, found {found}",
            "None",
        ),
        GuardKind(
            "PRESENT",
            "nothing",
            "the value can be read, though nothing else was asked of it",
            "{source}: expected to be there",
            "an object without the attribute",
        ),
        GuardKind(
            "PLAIN",
            "the class it had, where that cannot change",
            "the value's class defines none of __get__, __set__, __delete__",
            "{source}: expected a value that is no descriptor, found {found}",
            "a class whose attribute has become a property",
        ),
        GuardKind(
            "EMPTY",
            "nothing",
            "the cell of the closure has no value",
            "{source}: expected no value, found {found}",
            "a variable that was assigned to since",
        ),
        GuardKind(
            "LENGTH",
            "the length",
            "len(value) equals the length",
            "length of {source}: expected {expected}, found {found}",
            "a container with one more item",
            hint="pass containers of one length, or a tensor",
        ),
        GuardKind(
            "TRUTH",
            "True or False",
            "bool(value) of a built-in container equals it",
            "truth of {source}: expected {expected}, found {found}",
            "an empty container instead of a full one",
        ),
        GuardKind(
            "KEYS",
            "the keys in order",
            "the keys in order, each of the same class and equal",
            "keys of {source}: expected {expected}, found {found}",
            "another key, or another order",
            hint="pass dicts with the same keys, or read single keys of them",
        ),
        GuardKind(
            "HAS",
            "a key",
            "key in value",
            "{source}: expected the key {expected}, found only {found}",
            "a dict without the key",
        ),
        GuardKind(
            "ABSENT",
            "a key",
            "key not in value",
            "{source}: expected no key {expected}, found it among {found}",
            "a dict with the key (an instance attribute that shadows the class's)",
        ),
        GuardKind(
            "LACKS",
            "a key",
            "not dict.__contains__(value, key), whatever the dict's subclass overrides",
            "{source}: expected no key {expected}, found it among {found}",
            "an instance of the dict's subclass with the key",
        ),
        GuardKind(
            "WITHOUT",
            "a class's namespace, and the names that were looked up in it in vain",
            "the namespace has none of the names",
            "class {source}: expected none of {expected}, found {found}",
            "a class attribute that is added in front of the one that was found",
        ),
        GuardKind(
            "CODE",
            "code of a function that is inlined, and its globals (None where ID fixes them)",
            "value.__code__ and value.__globals__ are the same objects; code that is in no file, "
            "since a program writes it anew, is equal",
            "code of {source}: expected {expected}, found {found}",
            "a function with another body",
            hint="define the function once: one with another body is another program",
        ),
        GuardKind(
            "CLASS",
            "how a class that a function makes is built: metaclass, module and name, bases, its "
            "slots, fields of named tuples and names with an underscore first, the class and the "
            "code of their values, or their place",
            "all equal; bases and code that lasts are the same objects",
            "{source}: expected {expected}, found {found}",
            "a class whose statement gives it another special method",
            hint="define the class once: one with another body is another program",
        ),
        GuardKind(
            "TENSOR",
            "class, dtype, shape, strides, device, requires_grad, conjugate and negative bits",
            "all equal",
            "tensor {source}: expected {expected}, found {found}",
            "a tensor of another dtype",
            hint="mark the dimension that changes with mark_dynamic, or compile with "
            "dynamic=True; keep dtype, device and requires_grad",
        ),
        GuardKind(
            "SIZED",
            "as TENSOR, with sizes and strides that are expressions over symbols, and the sources "
            "of the symbols",
            "all equal, for the values that the symbols have in this call",
            "tensor {source}: expected {expected}, found {found}",
            "a tensor whose sizes are in another relation",
            hint="let fewer properties of sizes decide, or pad to some sizes",
        ),
        GuardKind(
            "WRAPPER",
            "as TENSOR for a tensor made of others and for those, and what else it says of itself "
            "(``__tensor_flatten__``)",
            "all equal; what it says by ``__metadata_guard__``, if the class has one",
            "tensor {source}: expected {expected}, found {found}",
            "a tensor with another context",
            hint="keep what its class says of itself, such as a scale, in a tensor",
        ),
        GuardKind(
            "RELATION",
            "a condition over symbols that a program decided by, and the sources of the symbols",
            "it holds for the values that the symbols have in this call",
            "{source}: expected {expected}, found {found}",
            "sizes with which the program goes another way",
            hint="let fewer properties of sizes decide, or pad to some sizes",
        ),
        GuardKind(
            "METADATA",
            "the name and value of metadata that TENSOR leaves out, because the program reads it",
            "the tensor has it: storage offset, leaf, view, shared, pinned, inference tensor",
            "{source}: expected {expected}, found {found}",
            "a view with another offset",
        ),
        GuardKind(
            "STATE",
            "a function that reads a global setting or a cache, its arguments and its answer",
            "the function answers the same (it runs as often as in eager mode)",
            "global setting: expected {expected}, found {found}",
            "torch.set_num_threads with another number",
            hint="change the setting before the compiled function is called for the first time",
        ),
        GuardKind(
            "SAME",
            "another source",
            "both sources give one object",
            "{source}: expected the object of {expected}, found {found}",
            "two objects where there was one",
        ),
        GuardKind(
            "DISTINCT",
            "another source",
            "the sources give different objects",
            "{source}: expected another object than {expected}, found {found}",
            "one object passed twice",
        ),
        GuardKind(
            "UNIQUE",
            "tensors: inputs of a graph that changes one, or keys that the program used",
            "no two sources give one object",
            "{expected}: expected different objects, found {found}",
            "one tensor passed for two arguments",
        ),
        GuardKind(
            "STORAGE",
            "tensors one of which the graph changes, and which of them share a storage",
            "the same ones share a storage",
            "inputs of the graph: expected {expected}, found {found}",
            "overlapping views where there were tensors of their own",
        ),
        GuardKind(
            "SEPARATE",
            "arrays of numpy and tensors, one of which the graph changes",
            "no two of them lie over the same memory",
            "inputs of the graph: expected memory of their own for {expected}, found {found}",
            "two views of one array where there were two arrays",
        ),
        GuardKind(
            "SHAPE",
            "classes, nested",
            "the iterator and those under it are of these classes, and shared in this way",
            "{source}: expected iterators {expected}, found {found}",
            "an iterator of another class, or over one of another class",
        ),
        GuardKind(
            "SUSPENDED",
            "an instruction, and which variables have a value",
            "the generator is suspended there",
            "the generator {source}: expected at {expected}, found at {found}",
            "a generator that was advanced to another yield",
        ),
        GuardKind(
            "ENDS",
            "a number of items",
            "the iterator gives this many items more, and no others",
            "items left in {source}: expected {expected}, found {found}",
            "an iterator that was advanced less or more",
        ),
        GuardKind(
            "APART",
            "sources of iterators, and of containers that the frame changes",
            "no two of the iterators share one, and none goes over one of the containers",
            "{expected}: expected to have nothing in common, found {found}",
            "one iterator given twice, or an iterator over a container that is changed",
        ),
        GuardKind(
            "AMBIENT",
            "grad mode, inference mode, autocast, default dtype and device, deterministic mode, "
            "modes",
            "all equal, checked once per entry",
            "ambient state: expected {expected}, found {found}",
            "a call under torch.no_grad()",
            hint="call it in one state, or compile a function for each state",
        ),
    ],
)
