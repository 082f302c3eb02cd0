"""All that a user can see of the tensors around a call, step by step.

It imports torch alone and knows of no compiler: a script of a failure holds its text.
"""

import re
import warnings

import torch
from torch.utils._pytree import tree_flatten_with_path


class See:
    """A scenario's tensors by name, and after each step of it all facts of all of them.

    ``steps``: of each step its name and ``{(thing, aspect): fact}``. Facts are comparable.
    """

    def __init__(self):
        self.steps = []
        self.named = {}
        self.fired = []
        self.kept = []

    def know(self, **tensors):
        """Have an eye on these from now on."""
        self.named.update(tensors)

    def run(self, step, thunk):
        """What ``thunk()`` gives; None where it raises, which is a fact of the step."""
        facts, self.fired = {}, []
        result = None
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                result = thunk()
                facts[step, "error"] = facts[step, "words"] = ""
            except Exception as error:
                facts[step, "error"] = type(error).__name__
                facts[step, "words"] = re.sub("0x[0-9a-f]+", "0x", str(error))
        facts[step, "warnings"] = tuple(sorted({f"{w.category.__name__}" for w in told}))
        self._result(step, result, facts)
        self._all(facts)
        facts[step, "hooks"] = tuple(self.fired)
        facts["generator", "random state"] = torch.get_rng_state().numpy().tobytes()
        facts["modes", "modes"] = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self.steps.append((step, facts))
        return result

    def hook(self, label, change=1.0):
        """A hook for a tensor, whose calls are facts of the step in which they come."""

        def told(grad):
            self.fired.append((label, *_contents(grad)))
            return None if change == 1.0 else grad * change

        return told

    def _result(self, step, result, facts):
        leaves, form = tree_flatten_with_path(result)
        form = str(form)
        for path, leaf in leaves:
            name = step + "".join(map(str, path))
            if isinstance(leaf, torch.Tensor):
                self.named[name] = leaf
            else:
                facts[name, "value"] = repr(leaf)
        facts[step, "structure"] = form

    def _all(self, facts):
        """Of every known tensor; tensors, bases and storages get numbers as they are met.

        Of what a gradient is a view, and how often kernels wrote to it while they made it, is of
        formulas and no fact.
        """
        objects, storages = {}, {}
        for name, t in self.named.items():
            if not isinstance(t, torch.Tensor):
                continue
            for aspect, fact in _of(t).items():
                if aspect != "version" or not name.startswith(("grad", "second")):
                    facts[name, aspect] = fact
            facts[name, "identity"] = objects.setdefault(id(t), len(objects))
            memory = t.untyped_storage()
            facts[name, "memory"] = storages.setdefault(memory._cdata, len(storages))
            facts[name, "memory size"] = memory.nbytes()
            grad = None
            if not _is_outdated(t) and (t.is_leaf or t.retains_grad):
                grad = t.grad
            facts[name, "has grad"] = grad is not None
            if grad is not None:
                for aspect, fact in _of(grad).items():
                    if aspect != "version":
                        facts[name, "grad " + aspect] = fact
                facts[name, "grad identity"] = objects.setdefault(id(grad), len(objects))
                self.kept.append(grad)
        for name, t in self.named.items():
            if isinstance(t, torch.Tensor) and not name.startswith(("grad", "second")):
                base = None if t._base is None else t._base
                facts[name, "is view"] = t._is_view()
                if base is not None:
                    self.kept.append(base)
                    facts[name, "base"] = objects.setdefault(id(base), len(objects))
                    facts[name, "base shape"] = tuple(base.shape), base.stride()


def _of(t):
    facts = {
        "values": _contents(t),
        "dtype": t.dtype,
        "shape": tuple(t.shape),
        "strides": t.stride(),
        "offset": t.storage_offset(),
        "requires grad": t.requires_grad,
        "outdated": _is_outdated(t),
        "is leaf": not _is_outdated(t) and t.is_leaf,
        "has function": not _is_outdated(t) and t.grad_fn is not None,
        "retains grad": t.retains_grad,
        "conjugate": t.is_conj(),
        "negative": t.is_neg(),
        "inference": t.is_inference(),
        "class": type(t).__name__,
        "hooks": len(t._backward_hooks or ()),
    }
    if not t.is_inference():
        facts["version"] = t._version
    return facts


def _is_outdated(t):
    """Whether it is a view, made without gradients, of what was written to since."""
    try:
        t.grad_fn  # noqa: B018
    except RuntimeError:
        return True
    return False


def _contents(t):
    """Shape, dtype and numbers; of each kind of NaN one."""
    if t is None:
        return (None,)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        if plain.is_floating_point():
            plain = torch.where(plain.isnan(), torch.nan, plain)
        return tuple(t.shape), str(t.dtype), tuple(plain.clone().view(torch.uint8).tolist())


def cotangent(t, seed=0):
    """One that differs from element to element, and from seed to seed."""
    made = torch.arange(t.numel(), dtype=torch.float64).mul(0.37 + 0.11 * seed).add(1 + seed).sin()
    made = made.reshape(t.shape).to(t.dtype if not t.is_complex() else torch.float64)
    return (
        torch.complex(made, made.flip(0) if made.dim() else made * 0.5).to(t.dtype)
        if (t.is_complex())
        else made
    )


def ends(result):
    """What a backward may begin at, each tensor once."""
    leaves = [leaf for _, leaf in tree_flatten_with_path(result)[0]]
    found = {id(t): t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad}
    return [*found.values()]


def backward(result, numbers=None, seed=0, **options):
    """From some of the ends of ``result`` (None: all at once), with cotangents."""
    tensors = ends(result)
    if numbers is not None:
        tensors = [tensors[n] for n in numbers if n < len(tensors)]
    if tensors:
        torch.autograd.backward(tensors, [cotangent(t, seed) for t in tensors], **options)


def gradients(result, numbers, seed=0, retain_graph=None, create_graph=False, **inputs):
    """``autograd.grad`` of some ends by ``inputs``, by their names; None where there are none."""
    tensors = ends(result)
    if numbers is not None:
        tensors = [tensors[n] for n in numbers if n < len(tensors)]
    inputs = {name: t for name, t in inputs.items() if t.requires_grad}
    if not tensors or not inputs:
        return None
    options = {"retain_graph": retain_graph, "create_graph": create_graph, "allow_unused": True}
    cotangents = [cotangent(t, seed) for t in tensors]
    found = torch.autograd.grad(tensors, [*inputs.values()], cotangents, **options)
    return dict(zip(inputs, found))


def penalty(grads):
    """A sum of squares of what there is."""
    there = [g for g in (grads or {}).values() if g is not None and g.requires_grad]
    return sum((g.abs() if g.is_complex() else g).square().double().sum() for g in there)


def descend(tensors):
    """A step of gradient descent for leaves, which have no gradients afterwards."""
    with torch.no_grad():
        for t in {id(t): t for t in tensors}.values():
            if t.is_leaf and t.grad is not None:
                t.sub_(t.grad, alpha=0.1)
                t.grad = None
