"""Modules that a program calls, and how they may change."""

from __future__ import annotations

from conformance.rows.guarded import Guarded

_NET = """
    def three(first, *more):
        return more[-1] * 3

    class Scale(torch.nn.Module):
        offset = 0.5

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0, -1.0, 2.0, 0.5]))
            self.register_buffer("shift", torch.tensor([0.5, 1.0, -2.0, 3.0]))
            self.register_parameter("extra", None)
            self.factor = 2
            self.unused = 1

        @property
        def gain(self):
            return self.factor * 2

        def finish(self, y):
            return y + self.offset

        def forward(self, x):
            y = x * self.weight * self.gain + self.shift
            if self.extra is not None:
                y = y + self.extra
            return self.finish(y * 2 if self.training else y)

    class Other(Scale):
        offset = 4.0

    class Linear(torch.nn.Linear):
        def __init__(self, value=0.5):
            super().__init__(4, 4)
            with torch.no_grad():
                self.weight.fill_(value)
                self.bias.fill_(value)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = Scale()
            self.layers = torch.nn.ModuleList([Linear(0.25), torch.nn.ReLU()])
            self.table = torch.nn.ModuleDict({"a": Scale()})
            self.drop = torch.nn.Dropout(0.0)
            self.act = torch.neg
            self.options = {"on": True, "bias": 1.0}

        def forward(self, x):
            y = self.act(self.drop(self.scale(x)))
            for layer in self.layers:
                y = layer(y)
            for name, layer in self.table.items():
                y = y + len(name) * layer(y)
            return y + self.options["bias"] if self.options["on"] else y
    """

_STATE = {
    "eval": "v.eval()",
    "eval of a child": "v.scale.eval()",
    "child of its class": "v.scale = Scale()\nv.scale.factor = 5",
    "child of a subclass": "v.scale = Other()",
    "child of another class": "v.scale = torch.nn.Identity()",
    "child deleted": "del v.scale",
    "child shadowed": "v.__dict__['scale'] = torch.sin",
    "child becomes a function": "del v.scale\nv.scale = torch.sin",
    "child becomes None": "v.scale = None",
    "children replaced": "v._modules = dict(v._modules, scale=Other())",
    "parameter replaced": "v.scale.weight = torch.nn.Parameter(torch.ones(1))",
    "parameter removed": "v.layers[0].bias = None",
    "parameter shadowed": "v.scale.__dict__['weight'] = 5.0",
    "parameter deleted": "del v.scale.weight",
    "parameter becomes a tensor": "del v.scale.weight\nv.scale.weight = torch.ones(4) * 3",
    "parameter registered": "v.scale.extra = torch.nn.Parameter(torch.ones(4))",
    "parameters replaced": "v.scale._parameters = dict(v.scale._parameters, extra=torch.ones(4))",
    "dtype of its data": "v.scale.weight.data = torch.ones(4).double()",
    "size of its data": "v.scale.weight.data = torch.ones(1)",
    "strides of its data": "v.layers[0].weight.data = torch.arange(16.0).reshape(4, 4).t()",
    "requires no grad": "v.requires_grad_(False)",
    "one requires no grad": "v.scale.weight.requires_grad_(False)",
    "buffer of another shape": "v.scale.shift = torch.ones(1)",
    "buffer becomes a parameter":
        "del v.scale.shift\nv.scale.shift = torch.nn.Parameter(torch.ones(4))",
    "buffer becomes None": "v.scale.shift = None",
    "double": "v.double()",
    "bfloat16 of a child": "v.scale.bfloat16()",
    "meta": "v.to('meta')",
    "number": "v.scale.factor = 3",
    "float": "v.scale.factor = 2.0",
    "tensor": "v.scale.factor = torch.tensor(4.0)",
    "becomes a buffer": "del v.scale.factor\nv.scale.register_buffer('factor', torch.tensor(4.0))",
    "appended": "v.layers.append(Linear())",
    "inserted": "v.layers.insert(0, Linear())",
    "another layer": "v.layers[1] = torch.nn.Tanh()",
    "removed": "del v.layers[0]",
    "renamed": "v.table['long'] = v.table.pop('a')",
    "added": "v.table['b'] = Scale()",
    "option": "v.options['bias'] = 3.0",
    "options off": "v.options['on'] = False",
    "options replaced": "v.options = {'on': 1, 'bias': 6.0}",
    "function": "v.act = torch.sin",
    "probability": "v.drop.p = 1.0",
    "named attribute": "v.scale.__dict__['training'] = False",
}  # fmt: skip

_BEHAVIOUR = {
    "hook": "v.scale.register_forward_hook(three)",
    "hook before": "v.scale.register_forward_pre_hook(lambda m, args: (args[0] * 3,))",
    "hook with keywords": "v.scale.register_forward_hook(three, with_kwargs=True)",
    "hook before, with keywords":
        "v.scale.register_forward_pre_hook(lambda m, a, k: ((a[0] * 3,), k), with_kwargs=True)",
    "hook that is always called": "v.scale.register_forward_hook(three, always_call=True)",
    "hook of all modules": "_HANDLES.append(modules.register_module_forward_hook(three))",
    "hook before all modules": "_HANDLES.append(modules.register_module_forward_pre_hook("
        "lambda m, args: (args[0] * 2,)))",
    "hook of the outermost": "v.register_forward_hook(three)",
    "method of the instance": "v.scale.finish = lambda y: y * 11",
    "method shadowed": "v.scale.__dict__['finish'] = torch.sin",
    "method of the class": "Scale.finish = lambda self, y: y * 11",
    "code of a method": "Scale.finish.__code__ = (lambda self, y: y * 11).__code__",
    "forward of the instance": "v.scale.forward = lambda y: y * 11",
    "forward of the class": "Scale.forward = lambda self, y: y * 11",
    "call of the class": "Scale.__call__ = lambda self, y: y * 11",
    "call of the base": "torch.nn.Module.__call__ = lambda self, y: y * 11",
    "class attribute": "Scale.offset = 4.5",
    "class attribute shadowed": "v.scale.offset = 4.5",
    "property": "Scale.gain = property(lambda self: 21.0)",
    "property becomes a constant": "Scale.gain = 21.0",
    "attribute becomes a property": "Scale.factor = property(lambda self: 13)",
    "class": "v.scale.__class__ = Other",
    "bases": "Other.__bases__ = (torch.nn.Identity,)\nv.scale = Other()",
    "getattr": "Scale.__getattr__ = lambda self, name: "
        "torch.nn.Module.__getattr__(self, name) * (2 if name == 'weight' else 1)",
    "getattribute": "Scale.__getattribute__ = lambda self, name: "
        "17 if name == 'factor' else object.__getattribute__(self, name)",
    "function of torch": "torch.nn.functional.linear = lambda x, w, b: x * 23",
    "parametrization": "parametrize.register_parametrization(v.scale, 'weight', torch.nn.Tanh())",
    "weight norm": "torch.nn.utils.parametrizations.weight_norm(v.layers[0])",
    "spectral norm": "torch.nn.utils.spectral_norm(v.layers[0])",
}  # fmt: skip

_HARMLESS = {
    "contents": "with torch.no_grad():\n    v.scale.weight.fill_(0.25)",
    "contents of a buffer": "v.scale.shift.add_(1)",
    "data": "v.scale.weight.data = torch.ones(4)",
    "loaded": "v.load_state_dict({name: t + 1 for name, t in v.state_dict().items()})",
    "gradients": "for p in v.parameters():\n    p.grad = torch.ones_like(p)",
    "no gradients": "v.zero_grad()",
    "optimizer": "for p in v.parameters():\n    p.grad = torch.ones_like(p)\n"
        "torch.optim.SGD(v.parameters(), 0.5).step()",
    "new buffer": "v.scale.shift = torch.ones(4)",
    "new parameter": "v.scale.weight = torch.nn.Parameter(torch.ones(4))",
    "unused attribute": "v.scale.unused = 5",
    "new attribute": "v.scale.fresh = 5",
    "new class attribute": "Scale.fresh = 5",
    "hook of the state": "v.scale.register_load_state_dict_post_hook(three)",
    "train again": "v.train()",
    "hook and back": "v.scale.register_forward_hook(three).remove()",
    "eval and back": "v.eval()\nv.train()",
    "unused option": "v.options['unused'] = 1",
    "another class": "Other.offset = 3",
    "name": "Scale.__doc__ = 'text'",
}  # fmt: skip

_SETUP = (
    _NET
    + """
    import torch.nn.modules.module as modules
    import torch.nn.utils.parametrize as parametrize
    _HANDLES = []
    CALL, LINEAR = torch.nn.Module.__call__, torch.nn.functional.linear
    """
)
_UNDO = """
    for _handle in _HANDLES:
        _handle.remove()
    torch.nn.Module.__call__, torch.nn.functional.linear = CALL, LINEAR
    """

ROWS = (
    Guarded("state of a module", "Net()", "return v(x)", _STATE, _HARMLESS, setup=_SETUP),
    Guarded("behaviour of a module", "Net()", "return v(x)", _BEHAVIOUR, setup=_SETUP, undo=_UNDO),
    Guarded(
        "gradients of a module", "Net()", "return v(x)",
        {"backward hook": "v.scale.register_full_backward_hook(lambda m, i, o: (i[0] * 3,))",
         "backward hook before":
            "v.scale.register_full_backward_pre_hook(lambda m, o: (o[0] * 3,))",
         "hook of a parameter": "v.scale.weight.register_hook(lambda grad: grad * 3)",
         "requires no grad": "v.scale.weight.requires_grad_(False)",
         "eval": "v.eval()"},
        {"contents": "with torch.no_grad():\n    v.scale.weight.fill_(0.25)",
         "no gradients": "v.zero_grad()", "gradients of zeros": "v.zero_grad(set_to_none=False)"},
        setup=_SETUP, undo=_UNDO, backward=True,
    ),
    Guarded(
        "what a module has", "Net()",
        "return x * len(list(v.parameters())) + len(v.layers) + ('a' in v.table), v.training,"
        " [name for name, _ in v.named_modules()]",
        {"appended": "v.layers.append(Linear())",
         "parameter": "v.scale.extra = torch.nn.Parameter(x)",
         "eval": "v.eval()", "renamed": "v.table['long'] = v.table.pop('a')",
         "shared": "v.layers[0].bias = v.scale.weight", "removed": "del v.drop"},
        {"contents": "v.scale.shift.add_(1)"}, setup=_SETUP,
    ),
    Guarded(
        "lists of parameters", "Lists()", "return v(x)",
        {"appended": "v.p.append(torch.nn.Parameter(torch.ones(4)))",
         "shape": "v.p[0] = torch.nn.Parameter(torch.ones(1))",
         "key": "v.d['b'] = torch.nn.Parameter(torch.ones(4))", "removed": "v.d.pop('a')",
         "frozen": "v.p[0].requires_grad_(False)"},
        {"contents": "with torch.no_grad():\n    v.p[0].fill_(5)"},
        setup="""
            class Lists(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.p = torch.nn.ParameterList([torch.ones(4), torch.ones(4)])
                    self.d = torch.nn.ParameterDict({"a": torch.ones(4)})

                def forward(self, x):
                    for p in self.p:
                        x = x * 2 + p
                    for name, p in self.d.items():
                        x = x * 3 + p * len(name)
                    return x
            """,
    ),
    Guarded(
        "batch norm", "torch.nn.BatchNorm1d(2, affine=False)", "return v(x.reshape(2, 2))",
        {"eval": "v.eval()", "momentum": "v.momentum = 0.75", "epsilon": "v.eps = 0.5",
         "no statistics": "v.track_running_stats = False",
         "no buffers": "v.running_mean = v.running_var = None"},
        {"reset": "v.reset_running_stats()", "contents": "v.running_mean.add_(1)"},
    ),
    Guarded(
        "batch norm over all batches", "torch.nn.BatchNorm1d(2, affine=False)",
        "return v(x.reshape(2, 2))", {"average": "v.momentum = None"}, steady=False,
    ),
)  # fmt: skip
