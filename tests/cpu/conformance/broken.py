"""Backends that are wrong in one way each, and one that is right."""

import ctypes
import os
import random
import time

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode


class Node(torch.fx.Interpreter):
    """Runs a graph node by node: compiled code in the eyes of whoever only sees a callable."""

    def __call__(self, *args):
        return self.run(*args)


def right(gm, inputs):
    return Node(gm)


def _changed(change):
    """A backend whose first floating or bool output is passed through ``change``."""

    def backend(gm, inputs):
        inner = Node(gm)

        def call(*args):
            outputs = list(inner(*args))
            outputs[0] = change(outputs[0], args)
            return tuple(outputs)

        return call

    return backend


wrong_value = _changed(lambda out, args: out + 1)
wrong_dtype = _changed(lambda out, args: out.to(torch.float64))
wrong_shape = _changed(lambda out, args: out[None])
wrong_stride = _changed(lambda out, args: out.t().contiguous().t())
requires_grad = _changed(lambda out, args: out.detach().clone().requires_grad_())
aliases_input = _changed(lambda out, args: args[0].copy_(out).view(args[0].shape))
returns_input = _changed(lambda out, args: args[0].copy_(out))
loses_alias = _changed(lambda out, args: out.clone())
makes_nan = _changed(lambda out, args: out * float("nan"))
flips_zero = _changed(lambda out, args: torch.where(out == 0, -out, out))
reassociates = _changed(lambda out, args: out * (1 + 2 * torch.finfo(out.dtype).eps))
half_precision = _changed(lambda out, args: out.bfloat16().to(out.dtype))
unsteady = _changed(lambda out, args: out + random.SystemRandom().uniform(1, 2))
draws_random = _changed(lambda out, args: out + 0 * torch.rand(()))
leaves_a_state = _changed(lambda out, args: torch.set_float32_matmul_precision("high") or out)
prints = _changed(lambda out, args: print("surplus") or out)


def drops_what_is_unused(gm, inputs):
    for node in reversed(gm.graph.nodes):
        if node.op == "call_function" and not node.users:
            gm.graph.erase_node(node)
    gm.recompile()
    return Node(gm)


def mutates_input(gm, inputs):
    inner = Node(gm)

    def call(*args):
        outputs = inner(*args)
        args[0].mul_(2)
        return outputs

    return call


def reuses_output(gm, inputs):
    """Every call answers in the same memory, as a static buffer would."""
    inner, kept = Node(gm), []

    def call(*args):
        outputs = inner(*args)
        if not kept:
            kept.extend(outputs)
        for old, new in zip(kept, outputs, strict=True):
            old.copy_(new)
        return tuple(kept)

    return call


def too_few(gm, inputs):
    return lambda *args: ()


def too_many(gm, inputs):
    inner = Node(gm)
    return lambda *args: (*inner(*args), torch.zeros(1))


def raises(gm, inputs):
    raise RuntimeError("boom")


def refuses(gm, inputs):
    raise NotImplementedError("no such operator")


def not_callable(gm, inputs):
    return 3


def raises_late(gm, inputs):
    def call(*args):
        raise RuntimeError("late")

    return call


def silently_eager(gm, inputs):
    return lambda *args: gm(*args)


def falls_back(gm, inputs):
    class Report:
        kernels = 0
        aten_calls = {}
        fallback = "no idea how"

    call = Node(gm)
    call.report = Report()
    return call


def hangs(gm, inputs):
    def call(*args):
        while True:
            time.sleep(0.1)

    return call


def exits(gm, inputs):
    os._exit(3)


def segfaults(gm, inputs):
    return lambda *args: ctypes.string_at(0)


def exits_for_threes(gm, inputs):
    """Kills the process when a 3.0 comes in, and only then."""
    inner = Node(gm)

    def call(*args):
        if any((a == 3).any() for a in args):
            os._exit(7)
        return inner(*args)

    return call


def hangs_for_threes(gm, inputs):
    inner = Node(gm)

    def call(*args):
        while any((a == 3).any() for a in args):
            time.sleep(0.1)
        return inner(*args)

    return call


class BrokenFrontend:
    """A front end whose ``wrap(model)`` is what a user calls; each one has one fault."""

    name = "made"
    refusals = ()

    def compile(self, model, backend):
        return self.wrap(model)

    def reset(self):
        pass

    def breaks(self):
        return 0


class DropsMutation(BrokenFrontend):
    """The program writes to copies of its arguments."""

    def wrap(self, model):
        return lambda *args: model(*(a.clone() if torch.is_tensor(a) else a for a in args))


class CopiesResults(BrokenFrontend):
    """A copy where a view or the argument itself is due."""

    def wrap(self, model):
        def copied(*args):
            return torch.utils._pytree.tree_map(
                lambda v: v.clone() if torch.is_tensor(v) else v, model(*args)
            )

        return copied


class BakesGlobals(BrokenFrontend):
    """The second call answers as the first: nothing is guarded."""

    def wrap(self, model):
        kept = []

        def call(*args):
            if not kept:
                kept.append(model(*args))
            return kept[0]

        return call


class BakesNumbers(BrokenFrontend):
    """A program for some sizes keeps the first number that it was called with."""

    def wrap(self, model):
        kept = {}

        def call(x, y, k):
            return model(x, y, kept.setdefault(tuple(x.shape) + tuple(y.shape), k))

        return call


class RunsTwice(BrokenFrontend):
    """Side effects happen at capture and again at run time."""

    def wrap(self, model):
        def twice(*args):
            model(*args)
            return model(*args)

        return twice


def differs_when_watched(gm, inputs):
    """As torch's own gradients of some foreach operators do, under a mode."""

    def call(*args):
        factor = 1 if _get_current_dispatch_mode() is None else 3
        return tuple([t * factor for t in gm.forward(*args)])

    return call


COMPILED = []  # by the backend that follows


def wrong_at_first(gm, inputs):
    """In the first process's first compilation, and never again."""
    wrong = not COMPILED
    COMPILED.append(gm)
    return lambda *args: tuple([t + wrong for t in gm.forward(*args)])
