"""Runtimes of other projects, which take programs that ``torch.export`` made.

Each is a compiler of functional ATen graphs under :func:`refcompiler.aot.aot_autograd`, so that
mutations, aliases and gradients are eager's; the graphs of gradients run as they are. A graph that
a runtime does not take runs as it is, and ``callable.fallback`` says why.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.backends.registry import register_backend

#: From an exported program and its inputs: what computes the list of outputs from a list of inputs.
Runtime = Callable[[Any, Sequence[torch.Tensor]], Callable[[list[torch.Tensor]], Sequence[Any]]]


def _onnxrt(program: Any, inputs: Sequence[torch.Tensor]) -> Callable:
    import onnxruntime

    with contextlib.redirect_stdout(None):
        model = torch.onnx.export(program, tuple(inputs), dynamo=True, verbose=False)
    assert model is not None
    session = onnxruntime.InferenceSession(
        model.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    # What the program does not read is no input of the model.
    known = [value.name for value in model.model.graph.inputs]
    places = [known.index(name) for name in names]

    def run(given: list[torch.Tensor]) -> list[Any]:
        feed = {name: given[i].numpy() for name, i in zip(names, places, strict=True)}
        return session.run(None, feed)

    return run


def _openvino(program: Any, inputs: Sequence[torch.Tensor]) -> Callable:
    import openvino

    model = openvino.convert_model(program)
    # Its default on some processors is bfloat16.
    compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    places = [compiled.input(i).any_name for i in range(len(compiled.inputs))]
    if len(places) != len(inputs):
        raise ValueError(f"the model takes {len(places)} of {len(inputs)} inputs")

    def run(given: list[torch.Tensor]) -> list[Any]:
        found = compiled([tensor.numpy() for tensor in given])
        return [found[i].copy() for i in range(len(compiled.outputs))]

    return run


def _tvm(program: Any, inputs: Sequence[torch.Tensor]) -> Callable:
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    module = from_exported_program(program, keep_params_as_input=False)
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

    def run(given: list[torch.Tensor]) -> list[Any]:
        found = machine["main"](*[tvm.runtime.tensor(tensor.numpy()) for tensor in given])
        return [value.numpy() for value in found]

    return run


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Exporters warn of their own affairs."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _real(fake: torch.Tensor) -> torch.Tensor:
    return torch.zeros(tuple(fake.shape), dtype=fake.dtype)


def _compiled(
    runtime: Runtime, graph: torch.fx.GraphModule, fakes: Sequence[Any], reasons: list[str]
) -> Callable[..., Any]:
    """``graph`` by ``runtime``, or as it is."""
    try:
        if any(fake.device.type != "cpu" for fake in fakes):
            raise ValueError("it is on another device than the CPU")
        (output,) = graph.graph.find_nodes(op="output")
        promised: list[Any] = [
            node.meta["val"] if isinstance(node, torch.fx.Node) else None for node in output.args[0]
        ]
        if not all(isinstance(value, torch.Tensor) for value in promised):
            raise ValueError("it gives what is no tensor")
        with _disable_current_modes(), torch.no_grad(), _quietly():
            inputs = [_real(fake) for fake in fakes]
            program = torch.export.export(graph, tuple(inputs), strict=False)
            compute = runtime(program, inputs)
            shapes = [torch.as_tensor(value).shape for value in compute(inputs)]
        if shapes != [value.shape for value in promised]:
            raise ValueError(f"its results have the shapes {shapes}")
    except Exception as error:  # whatever the runtime has to say
        text = " ".join(str(error).split())
        reasons.append(f"{type(error).__name__}: {text}"[:400])
        return graph.forward
    layouts = [(value.shape, value.stride(), value.dtype) for value in promised]

    def run(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = compute([tensor.detach().contiguous() for tensor in given])
        results = []
        for value, (shape, stride, dtype) in zip(found, layouts, strict=True):
            result = torch.empty_strided(shape, stride, dtype=dtype)
            results.append(result.copy_(torch.as_tensor(value).reshape(shape)))
        return tuple(results)

    return run


def _as_it_is(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return graph.forward


def _backend(name: str, runtime: Runtime, doc: str) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        from refcompiler.aot import aot_autograd
        from refcompiler.aot.decompositions import core

        reasons: list[str] = []

        def compiler(inner: torch.fx.GraphModule, fakes: Sequence[Any]) -> Callable[..., Any]:
            return _compiled(runtime, inner, fakes, reasons)

        compiler.takes_symbols = False  # type: ignore[attr-defined]
        call: Any = aot_autograd(
            fw_compiler=compiler, bw_compiler=_as_it_is, decompositions=core()
        )(graph, inputs)
        if reasons and getattr(call, "fallback", None) is None:
            call.fallback = reasons[0]
        return call

    backend.__name__ = backend.__qualname__ = name
    backend.__doc__ = doc
    backend.takes_symbols = True  # type: ignore[attr-defined]
    register_backend(backend, name)


_backend("onnxrt", _onnxrt, "ONNX Runtime on the CPU, over ``torch.onnx.export``.")
_backend("openvino", _openvino, "OpenVINO on the CPU, in full precision.")
_backend("tvm", _tvm, "Apache TVM's relax, compiled for LLVM.")
