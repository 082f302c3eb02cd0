"""One row per reason for which capture ends a graph."""

from __future__ import annotations

from dataclasses import dataclass

from specs.table import Table


@dataclass(frozen=True)
class BreakReason:
    """``explanation`` says what happened, ``hint`` what the user can do about it."""

    name: str
    explanation: str
    hint: str


BREAKS: Table[BreakReason] = Table(
    "graph-break reasons",
    [
        BreakReason(
            "data-dependent-branch",
            "Python asked for the truth of a tensor, which is known only when the graph runs.",
            "Use torch.where or torch.cond, or move the decision out of the compiled function.",
        ),
        BreakReason(
            "data-dependent-value",
            "The contents of a tensor became a Python value (item, tolist, int, float, numpy).",
            "Keep the value in a tensor, or compute it outside the compiled function.",
        ),
        BreakReason(
            "data-dependent-shape",
            "The shape of an operator's result depends on the contents of its inputs.",
            "Use an operator of fixed output shape (torch.where with three arguments, a mask).",
        ),
        BreakReason(
            "c-function",
            "A function written in C was called that is not known to be free of side effects.",
            "Call it outside the compiled function.",
        ),
        BreakReason(
            "io",
            "The function prints, reads or writes.",
            "Move input and output out of the compiled function.",
        ),
        BreakReason(
            "fake-op-raised",
            "The operator raised on fake tensors, so it runs natively to raise (or not) as eager.",
            "Check shapes and dtypes: the operator probably fails in eager mode too.",
        ),
        BreakReason(
            "operation-raised",
            "An operation raised while the graph ran. What the program had done before it is done, "
            "and the call goes on natively from there.",
            "The error is the program's own: its message says what is wrong.",
        ),
        BreakReason(
            "exception-escapes",
            "An exception leaves the function.",
            "Exceptions that the function itself catches are captured; those it raises are not.",
        ),
        BreakReason(
            "operation-not-modelled",
            "The tensor operation has an effect that a graph cannot hold (storage, hooks, data).",
            "Do it before or after the compiled function.",
        ),
        BreakReason(
            "tensor-kind",
            "Tensor subclasses, sparse, nested and quantized tensors are not captured yet.",
            "Pass plain strided tensors into the compiled function.",
        ),
        BreakReason(
            "external-iterator",
            "An iterator that was made outside the graph is advanced.",
            "Iterate over a list or tuple, or make the iterator inside the function.",
        ),
        BreakReason(
            "live-generator",
            "A generator is still alive at a graph break, so it has to be a native one.",
            "Consume the generator before the break, or use a list.",
        ),
        BreakReason(
            "external-object",
            "An object from outside has state that guards do not reach, or a change of it "
            "cannot be replayed.",
            "Do it outside the compiled function.",
        ),
        BreakReason(
            "disabled-function",
            "The callee is marked as not to be compiled.",
            "Remove the disable marker, or call it outside the compiled function.",
        ),
        BreakReason(
            "user-graph-break",
            "The program asked for a graph break.",
            "Remove the call of graph_break().",
        ),
        BreakReason(
            "compiler-call",
            "The program asks the compiler something, or tells it, while it is compiled.",
            "Call it outside the compiled function.",
        ),
        BreakReason(
            "higher-order",
            "A transformation of functions (autograd.Function, vmap, checkpoint, cond ...) was "
            "called in a way that one operation of a graph cannot stand for, so it runs natively.",
            "The context says what is in the way: arguments that are no tensors or constants, a "
            "function with side effects where it may run twice or not at all, a changed argument.",
        ),
        BreakReason(
            "ambient-state",
            "A global switch of torch (default dtype, seeds, threads) is set, or a mode that was "
            "entered in one graph is left in another.",
            "Set it outside the compiled function.",
        ),
        BreakReason(
            "coroutine",
            "A coroutine that nothing awaits, one that was made outside, or an asynchronous "
            "generator that is alive where a graph ends, runs natively.",
            "Await it in the function that makes it, and break outside the loop over it.",
        ),
        BreakReason(
            "not-rebuilt",
            "A value that is alive here cannot be rebuilt after the graph.",
            "Avoid keeping objects with hidden C state alive across the break.",
        ),
    ],
)
