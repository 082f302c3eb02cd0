"""Checkpointed regions: traced once in the forward and once more in the backward.

Draws of the second time start from the generator's state that the first time kept. What a policy
(``torch.utils.checkpoint.create_selective_checkpoint_contexts``) wants saved is saved.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack,
)
from torch.utils.checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    _CachingTorchDispatchMode,
    checkpoint,
)

from refcompiler.aot import currents
from refcompiler.aot.draws import AGAIN, TURN, draws, takes_numbers
from refcompiler.aot.functional import plain
from refcompiler.aot.inputs import Runner, Unsupported
from refcompiler.aot.remaining import SELECTIVE
from refcompiler.dispatching import DispatchMode
from refcompiler.reentrant import called, demand, joined

_TELLS = "op_output" in inspect.signature(SelectiveCheckpointContext).parameters

_TURNS = itertools.count()
_SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


def checkpointed(runner: Runner, target: Any, graph: GraphModule, *tensors: torch.Tensor) -> Any:
    """The node that the front end makes of ``torch.utils.checkpoint.checkpoint``."""
    return _traced(runner, graph, tensors, dict(target.options), target.saved)


def tagged(runner: Runner, target: Any, graph: GraphModule, *tensors: Any, **options: Any) -> Any:
    """The node that torch's front end makes of it, which does not say what its arguments are."""
    context_fn = graph.meta.get("_checkpoint_context_fn")
    if context_fn is not None:
        options["context_fn"] = context_fn
    return _traced(runner, graph, tensors, options, None)


def _traced(
    runner: Runner,
    graph: GraphModule,
    tensors: Sequence[Any],
    options: dict[str, Any],
    saved: Sequence[int] | None,
) -> Any:
    context_fn = options.pop("context_fn", None)
    paired = options.pop("preserve_rng_state", True) and torch.is_grad_enabled()

    def contexts() -> tuple[Any, Any]:
        modes = context_fn() if context_fn is not None else ()
        policy = None
        if modes and isinstance(modes[0], _CachingTorchDispatchMode):
            policy = modes[0].policy_fn
        kept = _Kept(policy, paired)
        ours = _First(kept), _Again(kept)
        if policy is not None or not modes:
            return ours
        return _Both(modes[0], ours[0]), _Both(modes[1], ours[1])

    def region(*inputs: Any) -> Any:
        with currents.again(inputs, saved, tensors) as given:
            return Runner(graph, {}, runner.regions).run(*given)

    reentrant = options.get("use_reentrant", False)
    options.update(preserve_rng_state=False, use_reentrant=False)
    arguments = called(region, joined(tensors) if reentrant else tensors, saved or ())
    results = tuple(checkpoint(*arguments, context_fn=contexts, **options))
    if reentrant:
        demand(results)
    return results


@dataclass
class _Kept:
    """What the first run of a region keeps for the second.

    ``states``: of each draw that happens again, the node of the generator's state and the device.
    ``saved``: results by operator and its turn, and what these functional tensors hold. Eager has
    each of them for one backward: ``made`` are the nodes that mark what may run once, of the region
    that is computed again, where that has ``used`` one.
    """

    policy: Any  # of what is saved; None: nothing is
    paired: bool  # whether draws happen again as they were
    states: list[tuple[Node, torch.device]] = field(default_factory=list)
    saved: dict[tuple[Any, int], tuple[Any, list[torch.Tensor]]] = field(default_factory=dict)
    made: list[Node] = field(default_factory=list)
    used: bool = False

    def mark(self, nodes: Iterable[Node]) -> None:
        self.made += nodes
        if self.used:
            for node in self.made:
                node.meta[SELECTIVE] = True
            self.made.clear()


class _Turns(DispatchMode):
    """Counts the turns of each operator."""

    def __init__(self, kept: _Kept):
        super().__init__()
        self.kept = kept
        self.turns: dict[Any, itertools.count] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SAC_IGNORED_OPS:
            return self.ignore(func, args, kwargs)
        turn = next(self.turns.setdefault(func, itertools.count()))
        return self.operate((func, turn), func, args, kwargs)

    def ignore(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator that has no turn."""
        return func(*args, **kwargs)

    def operate(self, key: tuple[Any, int], func: Any, args: Any, kwargs: Any) -> Any:
        raise NotImplementedError


def pairing(device: torch.device) -> Callable[[Node], None]:
    """What is told of a node that draws on ``device`` in graphs of its own, which no mode sees.

    To be asked for before the node is made.
    """
    modes = [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, _Turns)]
    paired = [mode for mode in reversed(modes) if mode.kept.paired]
    for mode in paired:
        if isinstance(mode, _First):
            torch.ops.refcompiler.rng_state(device)
            mode.kept.states.append((next(_newest()), device))

    def pair(node: Node) -> None:
        for mode in modes:
            if isinstance(mode, _Again):
                node.meta.setdefault(TURN, mode.turn)
        for mode in paired:
            if isinstance(mode, _Again):
                mode.pair(node)

    return pair


class _First(_Turns):
    def operate(self, key: tuple[Any, int], func: Any, args: Any, kwargs: Any) -> Any:
        kept = self.kept
        state = None
        if kept.paired and _paired(func, args, kwargs):
            device = _device(args, kwargs)
            torch.ops.refcompiler.rng_state(device)
            state = next(_newest()), device
        last = next(_newest())
        found = func(*args, **kwargs)
        if kept.policy is not None:
            context = SelectiveCheckpointContext(is_recompute=False, **_output(found))
            policy = kept.policy(context, func, *args, **kwargs)
            if policy is True or policy in _SAVED:
                nodes = list(_newer(last))
                for node in nodes:
                    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
                kept.mark(nodes)
                detached = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, found)
                kept.saved[key] = detached, _held(detached)
                return found
        if state is not None:
            kept.states.append(state)
        return found


class _Again(_Turns):
    """Entered anew by each backward of a trace: one of second derivatives has several."""

    def __enter__(self) -> Any:
        self.turns = {}
        self.count = 0
        self.turn = next(_TURNS)
        return super().__enter__()

    def ignore(self, func: Any, args: Any, kwargs: Any) -> Any:
        last = next(_newest())
        found = func(*args, **kwargs)
        self._note(last)
        return found

    def operate(self, key: tuple[Any, int], func: Any, args: Any, kwargs: Any) -> Any:
        last = next(_newest())
        found = self._again(key, func, args, kwargs)
        made = self._note(last)
        if self.kept.policy is not None:
            self.kept.mark(made)
        return found

    def _note(self, last: Node) -> list[Node]:
        """Have the nodes behind ``last`` know in which run they are."""
        made = list(_newer(last))
        for node in made:
            node.meta.setdefault(TURN, self.turn)
        return made

    def _again(self, key: tuple[Any, int], func: Any, args: Any, kwargs: Any) -> Any:
        kept = self.kept
        if key in kept.saved:
            kept.used = True
            found, held = kept.saved[key]
            if any(a is not b for a, b in zip(_held(found), held, strict=True)):
                raise Unsupported("what a selective checkpoint saved is written to")
            return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, found)
        if not kept.paired or not _paired(func, args, kwargs):
            return func(*args, **kwargs)
        last = next(_newest())
        found = func(*args, **kwargs)
        made = [node for node in _newer(last) if draws(node.target)]
        if len(made) != 1 or self.count >= len(kept.states):
            raise Unsupported(f"a checkpointed region draws random numbers by {func}")
        self.pair(made[0])
        return found

    def pair(self, node: Node) -> None:
        """Have a node draw what the first run drew in its turn."""
        node.meta[AGAIN] = self.kept.states[self.count]
        self.count += 1


def _held(found: Any) -> list[torch.Tensor]:
    return [plain(t) for t in pytree.tree_leaves(found) if isinstance(t, FunctionalTensor)]


class _Both(DispatchMode):
    """A mode of the program's around one of ours."""

    def __init__(self, outer: Any, inner: Any):
        super().__init__()
        self.outer, self.inner = outer, inner

    def __enter__(self) -> Any:
        self.inner.__enter__()
        self.outer.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.outer.__exit__(*error)
        self.inner.__exit__(*error)


def _paired(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether it draws from a generator whose state eager keeps: a default one, no other."""
    generator = kwargs.get("generator")
    default = generator is None or generator is torch.default_generator
    return default and takes_numbers(func, args, kwargs)


def _device(args: Any, kwargs: Any) -> torch.device:
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value.device
    return torch.device("cpu")


def _output(found: Any) -> dict[str, Any]:
    """What a policy is told of an operator's result, which torch 2.11 tells it nothing of."""
    return {"op_output": found} if _TELLS else {}


def _newest() -> Iterator[Node]:
    """The nodes of the graph that is being traced, the newest first."""
    mode = get_proxy_mode()
    assert mode is not None
    return iter(reversed(mode.tracer.graph.nodes))


def _newer(last: Node) -> Iterator[Node]:
    """Those of them that came after ``last``."""
    return itertools.takewhile(lambda node: node is not last, _newest())
