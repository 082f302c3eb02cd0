"""A program and what happens around it, drawn from a seed, as text."""

from __future__ import annotations

import inspect
import random
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tests.slow.batteries.hostile import inputs, see
from tests.slow.batteries.hostile.statements import AROUND, KINDS, PRELUDE, texts

_LEAVES, _OF_LEAVES = texts(inputs.LEAVES), texts(inputs.OF_LEAVES)
_OF_OTHERS, _CHANGED = texts(inputs.OF_OTHERS), texts(inputs.CHANGED)
_AROUND = texts(AROUND)
#: of tries to find a statement that eager can run
_TRIES = 60


@dataclass(frozen=True)
class Case:
    """``body``: statements of ``program``; ``returned``: what it returns; ``around``: statements of
    ``scenario``, which makes inputs, calls and asks for gradients."""

    seed: int
    arguments: tuple[str, ...]
    body: tuple[str, ...]
    returned: str
    around: tuple[str, ...]

    @property
    def text(self) -> str:
        """The two functions, behind what they use."""
        body = _indented([*self.body, f"return {self.returned}"])
        around = _indented([f"torch.manual_seed({self.seed})", *self.around])
        return (
            f"{PRELUDE}\n\ndef program({', '.join(self.arguments)}):\n{body}\n\n\n"
            f"def scenario(program, see):\n{around}\n"
        )

    def script(self, backend: str) -> str:
        """What shows the difference by itself."""
        return (
            f"{inspect.getsource(see)}\n\n{self.text}\n\nimport refcompiler\n\nfound = []\n"
            f'for function in program, refcompiler.compile(program, backend="{backend}"):\n'
            "    found.append(See())\n    try:\n        scenario(function, found[-1])\n"
            "    except Exception as error:\n"
            '        found[-1].steps.append((f"{type(error).__name__}: {error}", {}))\n'
            "for (step, eager), (other, ours) in zip(found[0].steps, found[1].steps):\n"
            "    if step != other:\n        print(step, other)\n"
            "    for key in [*eager, *(ours.keys() - eager.keys())]:\n"
            "        if eager.get(key) != ours.get(key):\n"
            '            print(step, key, "eager:", eager.get(key), "compiled:", ours.get(key))\n'
        )

    def without(self, part: str, number: int) -> Case:
        """One statement less of ``body`` or ``around``."""
        left = list(getattr(self, part))
        del left[number]
        return replace(self, **{part: tuple(left)})


def _indented(statements: list[str]) -> str:
    return "\n".join("    " + line for text in statements for line in text.split("\n"))


@dataclass
class _Writer:
    """The text so far, and the tensors that eager has for its names."""

    seed: int
    draw: random.Random
    names: dict[str, Any] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)  # names of tensors in the program
    values: list[str] = field(default_factory=list)  # names of others
    given: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)  # statements that made the inputs

    def tried(self, text: str) -> bool:
        """Whether eager can run it; what it bound is there then."""
        names = dict(self.names)
        before = torch.is_grad_enabled()
        try:
            exec(text, names)
        except Exception:
            return False
        finally:
            torch.set_grad_enabled(before)
        self.names = names
        return True

    def inputs(self) -> None:
        self.tried("n, g = 3, True")
        for name in "xyz"[: self.draw.choice([1, 2, 2, 2, 3, 3])]:
            for _ in range(_TRIES):
                group = self.draw.choice([_LEAVES, _LEAVES, _OF_LEAVES, _OF_LEAVES, _OF_OTHERS])
                if group is _OF_OTHERS and not self.given:
                    continue
                other = self.draw.choice(self.given) if self.given else ""
                text = self.draw.choice(group).format(x=name, p=other)
                if self.tried(text):
                    self.made.append(text)
                    self.given.append(name)
                    break
        self.known += self.given

    def statement(self, kind: str = "") -> str:
        weights = [weight for weight, _ in KINDS.values()]
        kind = kind or self.draw.choices([*KINDS], weights)[0]
        pools = [self.known, self.known[-2:], self.given]
        names = [self.draw.choice(self.draw.choice(pools)) for _ in "abc"]
        number = len(self.body)
        new = {"v": f"v{number}", "w": f"w{number}"}
        return self.draw.choice(KINDS[kind][1]).format(**dict(zip("abc", names)), **new)

    def step(self) -> None:
        """One more statement of the program."""
        raising = self.draw.random() < 0.03
        for attempt in range(_TRIES):
            text = self.statement()
            if self.draw.random() < 0.14:
                around = self.draw.choice(_AROUND)
                inner = text.replace("\n", "\n    ") if "    {j}" in around else text
                text = around.format(j=inner, a=self.draw.choice(self.known))
            if not self.tried(text) and not (raising and attempt > 3):
                continue
            number = len(self.body)
            self.body.append(text)
            for name in (f"v{number}", f"w{number}"):
                value = self.names.get(name)
                if isinstance(value, torch.Tensor):
                    self.known.append(name)
                elif name in self.names:
                    self.values.append(name)
            return

    def returned(self) -> str:
        """A structure of some of what there is, the last ones rather than others."""
        pool = [*self.known, *self.known[-2:]]
        if leading := [name for name in self.known if self.names[name].requires_grad]:
            pool += [*leading[-3:], *leading[-2:]]
        chosen = [self.draw.choice(pool) for _ in range(self.draw.choice([1, 1, 2, 2, 3, 4]))]
        chosen += self.values
        if self.draw.random() < 0.15:
            chosen.append(self.draw.choice(["None", "3", "2.5", "'s'", f"{chosen[0]}.view_as(x)"]))
        if self.draw.random() < 0.1:
            chosen.append(f"{chosen[0]}.sum()")
        form = self.draw.choice(["one", "tuple", "tuple", "tuple", "list", "dict", "nested"])
        if form == "one" and len(chosen) == 1:
            return chosen[0]
        inside = ", ".join(chosen)
        if form == "list":
            return f"[{inside}]"
        if form == "dict":
            return "{" + ", ".join(f'"{n}": {text}' for n, text in enumerate(chosen)) + "}"
        if form == "nested":
            return f'{chosen[0]}, [{{"a": {chosen[-1]}}}, ({inside},)]'
        return f"({inside},)"


def write(seed: int) -> Case:
    """The case of a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        try:
            return _write(seed)
        finally:
            torch.set_rng_state(state)


def _write(seed: int) -> Case:
    writer = _Writer(seed, random.Random(seed))
    exec(PRELUDE, writer.names)
    writer.tried("layer, told = Layer(), lambda grad: None")
    writer.inputs()
    for _ in range(writer.draw.choice([2, 2, 3, 3, 4, 4, 5, 6])):
        writer.step()
    returned = writer.returned()
    text = "\n".join([*writer.body, returned])
    others = [name for name in ("layer", "told") if name in text]
    around = _Around(writer, others).write()
    return Case(seed, (*writer.given, *others), tuple(writer.body), returned, tuple(around))


class _Around:
    """What happens around the program: calls, changes, gradients."""

    def __init__(self, writer: _Writer, others: list[str]):
        self.draw, self.given, self.others = writer.draw, writer.given, others
        self.made = writer.made
        self.lines: list[str] = []
        self.number = 0
        roots = [f"{name}0" for name in self.given if f"{name}0" in writer.names]
        layer = ["weight=layer.weight", "count=layer.count", "mean=layer.mean"]
        own = layer if "layer" in others else []
        self.roots = roots
        self.know = ", ".join([*[f"{name}={name}" for name in [*roots, *self.given]], *own])

    def write(self) -> list[str]:
        self.lines.append("n, g = 3, True")
        if "layer" in self.others:
            self.lines.append("layer = Layer()")
        if "told" in self.others:
            self.lines.append('told = see.hook("inside")')
        self.fresh()
        self.call()
        for _ in range(self.draw.choice([2, 2, 3])):
            self.change()
            self.call()
        return self.lines

    def fresh(self) -> None:
        self.lines += [*self.made, f"see.know({self.know})"]

    def change(self) -> None:
        """What is otherwise in the next call."""
        kind = self.draw.choice(["again", "fresh", "sizes", "gradients", *["input"] * 4, "module"])
        if kind == "sizes":
            self.lines.append(f"n = {self.draw.choice([2, 4, 5])}")
        elif kind == "gradients":
            self.lines.append("g = not g")
        elif kind == "module" and "layer" in self.others:
            self.lines.append("layer.train(not layer.training)")
        if kind in ("fresh", "sizes", "gradients", "module"):
            self.fresh()
        elif kind == "input":
            if self.draw.random() < 0.7:
                self.lines += self.made
            for _ in range(self.draw.choice([1, 1, 2])):
                name, other = self.draw.choice(self.given), self.draw.choice(self.given)
                text = self.draw.choice(_CHANGED).format(x=name, p=other)
                self.lines.append(text)
            self.lines.append(f"see.know({self.know})")

    def call(self) -> None:
        self.number += 1
        arguments = list(self.given)
        if self.number > 1 and len(arguments) > 1 and self.draw.random() < 0.15:
            arguments[self.draw.randrange(len(arguments))] = self.draw.choice(arguments)
        called = "program"
        if self.draw.random() < 0.08:
            mode = self.draw.choice(["no_grad", "inference_mode", "enable_grad"])
            called = f"torch.{mode}()(program)"
        arguments += self.others
        self.say(f"call {self.number}", f"{called}({', '.join(arguments)})", "r = ")
        for n in range(self.draw.choice([1, 1, 2, 2, 3])):
            getattr(self, "_" + self.draw.choice(_AFTER))(n)

    def say(self, step: str, text: str, before: str = "") -> None:
        self.lines.append(f'{before}see.run("{step}", lambda: {text})')

    def wanted(self) -> str:
        return f"[{', '.join(self.chosen())}]"

    def asked(self) -> str:
        return ", ".join([f"{name.rpartition('.')[2]}={name}" for name in self.chosen()])

    def chosen(self) -> list[str]:
        pool = [*self.given, *self.roots]
        if "layer" in self.others:
            pool.append("layer.weight")
        return self.draw.sample(pool, self.draw.randint(1, len(pool)))

    def which(self) -> str:
        return self.draw.choice(["None", "[0]", "[0]", "[1]", "[2]", "[1, 0]"])

    def options(self) -> str:
        seed = self.draw.randrange(5)
        return f"seed={seed}" + self.draw.choice(["", ", retain_graph=True"])

    def _backward(self, n: int) -> None:
        self.say(f"backward {self.number}.{n}", f"backward(r, {self.which()}, {self.options()})")

    def _each(self, n: int) -> None:
        for k in range(3):
            text = f"backward(r, [{k}], seed={k}, retain_graph=True)"
            self.say(f"backward {self.number}.{n}.{k}", text)

    def _toward(self, n: int) -> None:
        wanted = f"[t for t in {self.wanted()} if t.requires_grad]"
        text = f"backward(r, {self.which()}, {self.options()}, inputs={wanted})"
        self.say(f"backward toward {self.number}.{n}", text)

    def _grad(self, n: int) -> None:
        text = f"gradients(r, {self.which()}, {self.options()}, {self.asked()})"
        self.say(f"grad {self.number}.{n}", text)

    def _twice(self, n: int) -> None:
        text = f"gradients(r, {self.which()}, create_graph=True, {self.asked()})"
        self.say(f"grad with graph {self.number}.{n}", text, "s = ")
        text = self.draw.choice(
            ["backward(penalty(s))", f"gradients(penalty(s), None, {self.asked()})", "backward(s)"]
        )
        self.say(f"second {self.number}.{n}", text)

    def _penalty(self, n: int) -> None:
        text = f"gradients(r, [0], create_graph=True, {self.asked()})"
        self.say(f"grad with graph {self.number}.{n}", text, "s = ")
        self.say(f"second {self.number}.{n}", "backward([penalty(s), r])")

    def _hooked(self, n: int) -> None:
        change = self.draw.choice(["", ", 2.0"])
        target = self.draw.choice([*self.given, *self.roots, "ends(r)[0]", "ends(r)[-1]"])
        text = f'{target}.register_hook(see.hook("{target}"{change})) and None'
        self.say(f"hook {self.number}.{n}", text)
        self._backward(n)

    def _retained(self, n: int) -> None:
        target = self.draw.choice([*self.given, "ends(r)[0]", "ends(r)[-1]"])
        self.say(f"retain {self.number}.{n}", f"{target}.retain_grad()")
        self._backward(n)

    def _written(self, n: int) -> None:
        """Between forward and backward."""
        target = self.draw.choice([*self.given, *self.roots, "ends(r)[0]", "ends(r)[0].data"])
        write = self.draw.choice(["mul_(2)", "add_(1)", "zero_()", "sin_()", "detach_()"])
        text = f"{target}.{write} and None"
        if self.draw.random() < 0.4:
            text = f"torch.no_grad()(lambda: {text})()"
        self.say(f"write {self.number}.{n}", text.replace(" and None", ""))
        self._backward(n)

    def _used(self, n: int) -> None:
        text = self.draw.choice(
            [
                "[t * t for t in ends(r)]",
                "[t.view(-1) for t in ends(r)]",
                "[t.sum() for t in ends(r)]",
                "[t.clone().mul_(2) + t for t in ends(r)]",
                "[t.detach() for t in ends(r)]",
                f"[t * {self.given[0]}.sum() for t in ends(r)]",
            ]
        )
        self.say(f"use {self.number}.{n}", text, "r = ")
        self._backward(n)

    def _descend(self, n: int) -> None:
        """What an optimizer does."""
        self._backward(n)
        chosen = ", ".join([*self.roots, *self.given])
        self.say(f"step {self.number}.{n}", f"descend([{chosen}])")

    def _nothing(self, n: int) -> None:
        pass


_AFTER = ["backward", "backward", "backward", "each", "each", "toward", "toward", "grad", "grad"]
_AFTER += ["twice", "penalty", "hooked", "retained", "written", "written", "used", "used"]
_AFTER += ["descend", "nothing"]
