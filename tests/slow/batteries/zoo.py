"""Every model type of transformers, made small by rule, and trained a few steps beside eager.

Nobody has looked at these models while the compiler was written, and no table has them. Sizes of a
configuration, and of those within it, are set by their names; inputs are what the model says that
it takes. What stays large, takes something else, or is one of the families of the benchmarks is
left out, and counted. Each is trained in a process of its own, as in
:mod:`tests.slow.batteries.training`: to eager's bits under ``aot_eager``, within its noise under a
code generator.

    python -m tests.slow.batteries.zoo [NAME ...] [--library L ...] [--backend B] [--steps N]
        [--jobs N] [--seconds S] [--every N] [--device cuda] [-v]

``--library timm``, ``torchvision``, ``geometric``: models of these instead, where they are there.

On a CUDA device models are made so that float64 can judge them (:func:`judgeable`). A battery that
has to end begins no model after ``--within`` seconds.

Status 1: one differs, or ended its process.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks import family_models
from tests.slow.batteries import elsewhere, training
from tests.slow.devices.compare import exact_products

_KNOWN = {*family_models.TEXT, *family_models.BOTH, *family_models.IMAGES, *family_models.SOUND}
_MOST = 30_000_000  # parameters
_SMALL = family_models._SMALL | {
    "depth": 2, "encoder_attention_heads": 4, "ffn_hidden_size": 64, "hidden_dropout_prob": 0.1,
    "kv_lora_rank": 16, "max_source_positions": 32, "max_target_positions": 64, "mlp_dim": 64,
    "moe_intermediate_size": 32, "n_group": 1, "n_routed_experts": 4, "num_experts": 4,
    "num_experts_per_tok": 2, "num_local_experts": 4, "num_mel_bins": 16, "projection_dim": 32,
    "q_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "topk_group": 1,
    "v_head_dim": 8,
}  # fmt: skip


class LeftOut(Exception):
    """A model that this battery does not train, and why."""


def shrink(config: Any, depth: int = 0) -> Any:
    """``config`` with small sizes, in place, also in the configurations that it has."""
    from transformers import PretrainedConfig

    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig) and depth < 3:
            shrink(value, depth + 1)
        elif name == "layer_types" and isinstance(value, list):
            setattr(config, name, value[:2])
        elif name in _SMALL and isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                setattr(config, name, _SMALL[name])
            except (AttributeError, ValueError):  # what it computes of others
                continue
    return config


def judgeable(config: Any) -> None:
    """On a CUDA device: what float64 can judge, in this configuration and in those that it has.

    Attention drops nothing, since its kernels draw otherwise in float64, and experts are products
    one by one, since those that are grouped take no float64.
    """
    from transformers import PretrainedConfig

    config._experts_implementation = "eager"
    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            judgeable(value)
        elif isinstance(value, float) and "att" in name and "drop" in name:
            setattr(config, name, 0.0)


def inputs(model: torch.nn.Module, config: Any) -> Iterator[dict[str, torch.Tensor]]:
    """What the model may take, the likeliest first."""
    tokens = torch.randint(3, 90, (2, 9))
    size = getattr(config, "image_size", 32)
    size = size if isinstance(size, int) else 32
    pixels = torch.randn(2, getattr(config, "num_channels", 3) or 3, size, size)
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values":
        yield {"pixel_values": pixels}
        yield {"pixel_values": pixels, "input_ids": tokens}
    elif main == "input_values":
        yield {"input_values": torch.randn(2, 800)}
    elif main == "input_features":
        bins = getattr(config, "num_mel_bins", 16)
        yield {"input_features": torch.randn(2, bins, 64), "decoder_input_ids": tokens}
        yield {"input_features": torch.randn(2, 64, bins)}
    else:
        yield {"input_ids": tokens}
        yield {"input_ids": tokens, "decoder_input_ids": tokens}
        yield {"input_ids": tokens, "pixel_values": pixels}


def make(name: str, device: str = "cpu") -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A small model of that type and what it takes; :class:`LeftOut` where there is none."""
    import transformers

    if ":" in name:
        return _made_elsewhere(name, device)
    if name in _KNOWN:
        raise LeftOut("a family of the benchmarks")
    try:
        config = shrink(getattr(transformers, f"{name}Config")())
        if device != "cpu":
            judgeable(config)
        torch.manual_seed(0)
        model = getattr(transformers, f"{name}Model")(config).eval()
    except Exception as error:
        raise LeftOut(f"not made: {type(error).__name__}: {error}"[:150]) from error
    if (count := sum(p.numel() for p in model.parameters())) > _MOST:
        raise LeftOut(f"{count} parameters")
    reason = ""
    for given in inputs(model, config):
        try:
            with torch.no_grad():
                model(**given)
        except Exception as error:
            reason = reason or f"{type(error).__name__}: {error}"[:150]
        else:
            return model.to(device), {key: t.to(device) for key, t in given.items()}
    raise LeftOut(f"no such input: {reason}")


def _made_elsewhere(name: str, device: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    try:
        model, given = elsewhere.make(name)
    except Exception as error:
        raise LeftOut(f"not made: {type(error).__name__}: {error}"[:150]) from error
    if (count := sum(p.numel() for p in model.parameters())) > _MOST:
        raise LeftOut(f"{count} parameters")
    return model.to(device), {key: t.to(device) for key, t in given.items()}


def _train(name: str, backend: str, steps: int, device: str, told: Any) -> None:
    """Puts (name, kind, text) into ``told``."""
    warnings.simplefilter("ignore")
    exact_products()
    try:
        made = make(name, device)
    except LeftOut as error:
        told.put((name, "left out", f"{name}: {error}"))
        return
    try:
        found = training.compare(name, "SGD", backend, steps, made)
    except Exception:
        told.put((name, "differs", f"{name}: {traceback.format_exc()[-600:]}"))
        return
    kind = "refused by eager" if found.refused else "as in eager" if found.good else "differs"
    told.put((name, kind, str(found)))


def run(names: list[str], given: argparse.Namespace) -> collections.Counter[str]:
    """How many of ``names`` ended how; what differs is printed as it comes."""
    how = given.backend, given.steps, given.device
    end = time.monotonic() + given.within
    context = multiprocessing.get_context("fork")
    told, left = context.SimpleQueue(), names[::-1]
    running: dict[str, tuple[Any, float]] = {}
    counts: collections.Counter[str] = collections.Counter()

    def hear() -> None:
        while not told.empty():
            name, kind, text = told.get()
            counts[kind] += 1
            heard.add(name)
            if given.verbose or kind == "differs":
                print(f"{kind}: {text}", flush=True)

    heard: set[str] = set()
    while left or running:
        if left and time.monotonic() > end:
            counts["not begun"] += len(left)
            left = []
        while left and len(running) < given.jobs:
            name = left.pop()
            process = context.Process(target=_train, args=(name, *how, told))
            process.start()
            running[name] = process, time.monotonic()
        time.sleep(0.05)
        hear()
        for name, (process, since) in list(running.items()):
            alive = process.is_alive()
            if alive and time.monotonic() - since < given.seconds:
                continue
            process.kill()
            process.join()
            del running[name]
            hear()
            if name not in heard:
                kind = "slow" if alive else "ended its process"
                counts[kind] += 1
                print(f"{kind}: {name}", flush=True)
    return counts


def main() -> int:
    import transformers

    parser = argparse.ArgumentParser(prog="python -m tests.slow.batteries.zoo")
    parser.add_argument("names", nargs="*", help="model types (none: all)")
    parser.add_argument("--library", action="append", choices=("timm", "torchvision", "geometric"))
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=200, help="of one, at most")
    parser.add_argument("--every", type=int, default=1, help="each N-th alone")
    parser.add_argument("--within", type=float, default=1e9, help="seconds, to begin one")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each")
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    training.register_fastpath()
    known = [name.removesuffix("Config") for name in dir(transformers) if name.endswith("Config")]
    names = given.names or [name for name in known if hasattr(transformers, f"{name}Model")]
    if given.library:
        names = given.names or [n for library in given.library for n in elsewhere.names(library)]
    counts = run(sorted(names)[:: given.every], given)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    return 1 if counts["differs"] or counts["ended its process"] else 0


if __name__ == "__main__":
    sys.exit(main())
