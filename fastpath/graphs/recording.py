"""Recording: a capture of a call's launches, and the text that launches it again.

The text asks nothing that the capture knows: it sets the addresses of inputs that move, copies
those whose addresses only ATen knows, launches, and makes tensors over the graph's own results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastpath.graphs.launches import Launches

ALIGNMENT = 16  # bytes: kernels were compiled for addresses that are multiples of it
_NUMBERS = itertools.count()
_use_count = torch._C._storage_Use_Count


class Recording:
    """One capture of ``launches.call``.

    ``places``: inputs that have to lie where they lay, which ``addresses`` has for each input; the
    others (``moving``, None in it) may come from anywhere. ``copied``: what the caller sees of so
    many bytes, or fewer, is copied out of the graph's memory.
    ``run(*inputs)`` replays, or calls ``plainly`` where an input is not aligned.
    """

    def __init__(
        self,
        launches: Launches,
        recorder: Any,
        inputs: Sequence[Any],
        moving: set[int],
        copied: int,
        plainly: Callable[..., Any],
    ):
        self.launches, self.recorder, self.copied = launches, recorder, copied
        names = [launches.parameters[n] for n in sorted(moving)]
        self.held: list[Any] = []  # storages of results
        self.seen: list[Any] = []  # those of them that the caller sees
        self.scope: dict[str, Any] = {"plainly": plainly, "recorder": recorder}
        given = list(inputs)
        opaque = [
            n
            for n in moving
            if launches.parameters[n] in launches.opaque or inputs[n].data_ptr() % ALIGNMENT
        ]
        for n in sorted(opaque):
            given[n] = self.scope[f"copy{n}"] = _like(inputs[n])
        self.moved = [name for name in names if launches.parameters.index(name) not in opaque]
        self.opaque = sorted(opaque)
        self.places = [
            n for n, t in enumerate(inputs) if isinstance(t, torch.Tensor) and n not in moving
        ]
        self.addresses = [t.data_ptr() if n in self.places else None for n, t in enumerate(inputs)]
        self._keep(inputs, given)

    def _keep(self, inputs: Sequence[Any], given: Sequence[Any]) -> None:
        launches, recorder = self.launches, self.recorder
        moved = {a for a, name in launches.addresses.items() if name in self.moved}
        drawn = {text for line in launches.host for text in [line.split(" = ")[0]]}
        nodes: dict[int, list[tuple[int, str]]] = {}
        for number, (_, texts) in enumerate(launches.launched):
            places = [(n, text) for n, text in enumerate(texts) if text in moved or text in drawn]
            if places:
                nodes[number] = places
        names: dict[str, Any] = {
            name: (lambda *_, count=count: (0,) * count) for name, count in launches.reserve.items()
        }
        found: dict[int, Any] = {}
        for number, (name, texts) in enumerate(launches.launched):
            if number in nodes:
                names[name] = recorder.noting(launches.names()[name], len(texts), number, found)
        call = launches.with_names(names)
        arguments = [list(given)] if launches.boxed else given
        results, self.executable = recorder.record(call, arguments)
        self._write(results, inputs, given, nodes, found, drawn)
        del results
        # Nobody has them but this: as many as hold each now do so while it is free.
        self._counts = [(s._cdata, _use_count(s._cdata)) for s in self.held]
        seen = {s._cdata for s in self.seen}
        self._seen = [(data, count) for data, count in self._counts if data in seen]

    def free(self) -> bool:
        """Whether nobody has a result of the last replay any more."""
        for data, count in self._counts:
            if _use_count(data) > count:
                return False
        return True

    def returned(self) -> bool:
        """The same of what the caller sees."""
        return all(_use_count(data) <= count for data, count in self._seen)

    def _write(
        self,
        results: Sequence[Any],
        inputs: Sequence[Any],
        given: Sequence[Any],
        nodes: dict[int, list[tuple[int, str]]],
        found: dict[int, Any],
        drawn: set[str],
    ) -> None:
        launches, scope = self.launches, self.scope
        taken = ", ".join(launches.parameters)
        lines = [f"{taken}, = inputs"] if launches.boxed and taken else []
        again = "plainly(inputs)" if launches.boxed else f"plainly({taken})"
        texts = {name: text for text, name in launches.addresses.items()}
        addresses = [texts.get(name, f"{name}_p") for name in self.moved]
        for name, text in zip(self.moved, addresses):
            lines.append(f"{text} = {name}.data_ptr()")
        if addresses:
            lines.append(f"if ({' | '.join(addresses)}) & {ALIGNMENT - 1}: return {again}")
        for name in launches.reserve:
            scope[name] = launches.names()[name]
        lines += launches.host
        lines.append("recorder.follow()")
        for number, places in nodes.items():
            node = found[number]
            scope[f"node{number}"] = node
            for place, _ in places:
                scope[f"n{number}_{place}"] = node.cells[place]
            sets = "; ".join(f"n{number}_{place}.value = {text}" for place, text in places)
            sets += f"; update(node{number})"
            differs = [
                f"n{number}_{place}.value != {text}" for place, text in places if text not in drawn
            ]
            compared = len(differs) == len(places)
            lines.append(f"if {' or '.join(differs)}: {sets}" if compared else sets)
        scope["update"] = self.recorder.updating(self.executable)
        for n in self.opaque:
            lines.append(f"copy{n}.copy_({launches.parameters[n]}.detach())")
        scope["launch"] = self.recorder.launching(self.executable, launches.draws)
        lines.append("launch()")
        made: list[str] = []
        for n, t in enumerate(results):
            known = next((k for k in range(n) if results[k] is t), None)
            if known is None or not isinstance(t, torch.Tensor):
                lines.append(f"y{n} = {self._result(n, results, inputs, given)}")
            made.append(f"y{n if known is None else known}")
        if launches.boxed:
            lines.append("inputs.clear()")
        lines.append(f"return ({''.join(f'{text}, ' for text in made)})")
        body = "".join(f"    {line}\n" for line in lines)
        head = "inputs" if launches.boxed else taken
        self.source = f"def replay({head}):\n{body}"
        exec(compile(self.source, f"<device graph {next(_NUMBERS)}>", "exec"), scope)
        self.run: Callable[..., Any] = scope["replay"]

    def _result(
        self, n: int, results: Sequence[Any], inputs: Sequence[Any], given: Sequence[Any]
    ) -> str:
        """The text that makes the ``n``-th result of a replay."""
        scope, t = self.scope, results[n]
        if not isinstance(t, torch.Tensor) or any(t is c for c in self.launches.constants):
            scope[f"r{n}"] = t
            return f"r{n}"
        storage = t.untyped_storage()
        for place, other in enumerate(given):
            if isinstance(other, torch.Tensor) and _same(other.untyped_storage(), storage):
                name = self.launches.parameters[place]
                if t is other:
                    return name
                offset = t.storage_offset() - other.storage_offset()
                scope[f"r{n}"] = tuple(t.shape), t.stride()
                begin = f"{name}.storage_offset() + {offset}"
                return f"{name}.as_strided(*r{n}, {begin})"
        place = next((k for k, s in enumerate(self.held) if _same(s, storage)), len(self.held))
        if place == len(self.held):
            self.held.append(storage)
        scope[f"s{place}"] = self.held[place]
        scope[f"r{n}"], scope["over"] = self.recorder.over(t)
        text = f"over(r{n}, s{place})"
        shared = sum(
            isinstance(other, torch.Tensor) and _same(other.untyped_storage(), storage)
            for other in results
        )
        seen = self.launches.outputs is None or n < self.launches.outputs
        # What the backward keeps as well stays one tensor, which autograd can watch.
        alone = seen and shared == 1 and storage.nbytes() <= self.copied and _dense(t)
        if seen and not alone:
            self.seen.append(self.held[place])
        return f"{text}.clone()" if alone else text


def _same(one: Any, other: Any) -> bool:
    return bool(one._cdata == other._cdata)


def _dense(t: torch.Tensor) -> bool:
    """Whether a clone lies in memory as the tensor does."""
    return torch.empty_like(t, device="meta").stride() == t.stride()


def _like(t: torch.Tensor) -> torch.Tensor:
    """Memory of its own for an input, which lies in it as the input does."""
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
