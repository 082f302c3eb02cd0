"""Tensors, constants and containers that a program reads, and how they may change."""

from __future__ import annotations

from conformance.rows.guarded import Guarded

_MATRIX = "torch.arange(6.0).reshape(2, 3)"
_ARITHMETIC = "return x + 1, v * 2"
_SUBCLASS = """
    class Sub(torch.Tensor):
        pass
    """

TENSORS = (
    Guarded(
        "tensor", _MATRIX, _ARITHMETIC,
        {
            "double": "v = v.double()",
            "int": "v = v.int()",
            "bool": "v = v > 2",
            "bfloat16": "v = v.bfloat16()",
            "complex": "v = v * 1j",
            "meta": "v = v.to('meta')",
            "sparse": "v = v.to_sparse()",
            "sparse rows": "v = v.to_sparse_csr()",
            "vector": "v = v.reshape(6)",
            "one more dimension": "v = v[None]",
            "scalar": "v = v[1, 1]",
            "size": "v = torch.arange(8.0).reshape(2, 4)",
            "size 1": "v = v[:1]",
            "size 0": "v = v[:0]",
            "transposed": "v = v.t().contiguous().t()",
            "every second": "v = torch.arange(12.0).reshape(2, 6)[:, ::2]",
            "expanded": "v = v[:1].expand(2, 3)",
            "offset": "v = torch.arange(7.0)[1:].reshape(2, 3)",
            "requires grad": "v = v.clone().requires_grad_()",
            "requires grad in place": "v.requires_grad_()",
            "not a leaf": "v = v.clone().requires_grad_() * 1",
            "parameter": "v = torch.nn.Parameter(v)",
            "frozen parameter": "v = torch.nn.Parameter(v, requires_grad=False)",
            "subclass": "v = v.as_subclass(Sub)",
            "negative bit": "v = torch._neg_view(v)",
            "zero tensor": "v = torch._efficientzerotensor((2, 3))",
            "inference tensor": "with torch.inference_mode():\n    v = v + 1",
            "dtype of its data": "v.data = v.double()",
            "size of its data": "v.data = torch.ones(5)",
            "resized": "v.resize_(1, 3)",
            "transposed in place": "v.t_()",
            "unsqueezed in place": "v.unsqueeze_(0)",
            "strided in place": "v.as_strided_((2, 2), (1, 2))",
            "set": "v.set_(torch.arange(4.0))",
            "number": "v = 3.0",
            "None": "v = None",
        },
        {
            "contents": "v.add_(1)",
            "another one": "v = torch.ones(2, 3)",
            "its data": "v.data = torch.ones(2, 3)",
            "a gradient": "v.grad = torch.ones(2, 3)",
            "an attribute": "v.note = 5",
        },
        setup=_SUBCLASS,
    ),
    Guarded(
        "complex tensor", "torch.arange(6.0) * (1 + 2j)", _ARITHMETIC,
        {"conjugate": "v = v.conj()", "imaginary": "v = v.conj().imag", "double": "v = v * 1.0",
         "wide": "v = v.to(torch.complex128)"},
        {"resolved": "v = v.conj().resolve_conj()"},
    ),
    Guarded(
        "metadata of a tensor", _MATRIX,
        "return x + 1, (v.storage_offset(), v.is_leaf, v.stride(), v._is_view(),\n"
        "               v.is_contiguous(),\n"
        "               v.is_inference(), v.numel(), v.element_size())",
        {
            "offset": "v = torch.arange(7.0)[1:].reshape(2, 3)",
            "a leaf": "v = v.clone()",
            "not a leaf": "v = v.clone().requires_grad_() * 1",
            "strides": "v = v.t().contiguous().t()",
            "double": "v = v.double()",
            "inference tensor": "with torch.inference_mode():\n    v = v + 1",
        },
        {"contents": "v.add_(1)"},
    ),
    Guarded(
        "gradient of a tensor", "torch.ones(4, requires_grad=True)",
        "return x + 1 if v.grad is None else x * v.grad",
        {"set": "v.grad = torch.full((4,), 3.0)"},
        {"none again": "v.grad = None"},
    ),
    Guarded(
        "attribute of a tensor", "torch.ones(4)", "return x * v * getattr(v, 'note', 2)",
        {"set": "v.note = 5", "on its class": "torch.Tensor.note = 7"},
        undo="if hasattr(torch.Tensor, 'note'):\n    del torch.Tensor.note",
    ),
    Guarded(
        "hook of a tensor", "torch.ones(4, requires_grad=True)", "return x * v",
        {"hook": "v.register_hook(lambda grad: grad * 3)",
         "hook after accumulation":
             "v.register_post_accumulate_grad_hook(lambda t: t.grad.mul_(2))"},
        backward=True,
    ),
    Guarded(
        "two tensors", "[torch.ones(4), torch.ones(4)]",
        "v[0].add_(x)\nreturn v[1] * 2, v[0] is v[1]",
        {
            "one twice": "v = [v[0], v[0]]",
            "views of one": "v = [v[0], v[0].view(4)]",
            "overlapping": "v[0], v[1] = torch.ones(5)[:4], torch.ones(5)[1:]\n"
            "v[0].set_(v[1].untyped_storage(), 0, (4,))",
            "apart in one storage": "v[:] = torch.ones(8).chunk(2)",
            "one less": "v.pop()",
        },
        {"others": "v[:] = [torch.zeros(4), torch.zeros(4)]"},
    ),
    Guarded(
        "two tensors that are read", "[torch.ones(4), torch.ones(4)]",
        "return x * v[0] + v[1]",
        {"views of one": "v[1] = v[0].view(4)", "exchanged": "v.reverse()"},
        {"one twice": "v[1] = v[0]"},
    ),
)  # fmt: skip

_TOLD = "return x + 1, type(v).__name__, repr(v)"
_CLASSES = """
    import enum, collections
    class Text(str):
        pass
    class Number(int):
        pass
    class Real(float):
        pass
    Pair = collections.namedtuple("Pair", "a b")
    class Colour(enum.Enum):
        RED = 1
        GREEN = 2
    class Flag(enum.IntFlag):
        A = 1
        B = 2
    """

CONSTANTS = (
    Guarded(
        "int", "2", "return x * v, type(v).__name__",
        {"another": "v = 3", "float": "v = 2.0", "bool": "v = True", "zero": "v = 0",
         "one": "v = 1", "negative": "v = -2", "large": "v = 2**70", "text": "v = '2'",
         "None": "v = None", "subclass": "v = Number(2)", "enum": "v = Flag.B",
         "tensor": "v = torch.tensor(2.0)", "deleted": "del v"},
        {"an equal one": "v = int('2')"},
        setup=_CLASSES, deletable=True,
    ),
    Guarded(
        "float", "0.0", _TOLD,
        {"negative zero": "v = -0.0", "int": "v = 0", "nan": "v = float('nan')",
         "inf": "v = float('inf')", "tiny": "v = 5e-324", "bool": "v = False",
         "complex": "v = 0j", "subclass": "v = Real(0.0)"},
        {"an equal one": "v = float('0')"}, setup=_CLASSES,
    ),
    Guarded(
        "nan", "float('nan')", _TOLD,
        {"number": "v = 1.0", "inf": "v = float('-inf')", "complex": "v = complex(0, v)"},
        {"another nan": "v = -float('nan')"},
    ),
    Guarded(
        "number that is not an int", "2.5", "return x * v",
        {"another": "v = 3.5", "int": "v = 2", "nan": "v = float('nan')"},
        {"an equal one": "v = float('2.5')"},
    ),
    Guarded(
        "bool", "True", "return (x * 2 if v else x), repr(v)",
        {"False": "v = False", "int": "v = 1", "float": "v = 1.0", "text": "v = 'True'",
         "None": "v = None"},
        {"the same": "v = bool(1)"},
    ),
    Guarded(
        "complex", "complex(0.0, 1.0)", _TOLD,
        {"negative zero": "v = complex(-0.0, 1.0)", "nan": "v = complex(float('nan'), 1.0)",
         "float": "v = 1.0"},
    ),
    Guarded(
        "text", "'ab'", "return (x * 2 if v == 'ab' else x), type(v).__name__, len(v)",
        {"another": "v = 'cd'", "subclass": "v = Text('ab')", "bytes": "v = b'ab'",
         "longer": "v = 'abc'", "None": "v = None"},
        {"an equal one": "v = ''.join(['a', 'b'])"}, setup=_CLASSES,
    ),
    Guarded(
        "None", "None", "return x + 1 if v is None else x * 2",
        {"zero": "v = 0", "False": "v = False", "empty": "v = ()", "tensor": "v = torch.ones(2)"},
        {"the same": "v = dict().get(0)"},
    ),
    Guarded(
        "constant of torch", "torch.float32",
        "return x.to(v) if isinstance(v, torch.dtype) else x, repr(v)",
        {"another": "v = torch.float64", "layout": "v = torch.strided", "type": "v = float",
         "device": "v = torch.device('cpu')", "format": "v = torch.contiguous_format",
         "size": "v = torch.Size([1])"},
        {"the same": "v = torch.float"},
    ),
    Guarded(
        "device", "torch.device('cpu')", "return x.to(v), repr(v)",
        {"another": "v = torch.device('meta')", "with an index": "v = torch.device('cpu:0')",
         "text": "v = 'cpu'"},
        {"an equal one": "v = torch.device('cpu')"},
    ),
    Guarded(
        "member of an enum", "Colour.RED", "return x * v.value if v is Colour.RED else x, repr(v)",
        {"another": "v = Colour.GREEN", "flag": "v = Flag.A", "both": "v = Flag.A | Flag.B"},
        {"the same": "v = Colour(1)"}, setup=_CLASSES,
    ),
    Guarded(
        "range", "range(0, 4, 2)", "return x + sum(v), repr(v)",
        {"an equal one": "v = range(0, 3, 2)", "another": "v = range(3)", "list": "v = [0, 2]"},
        {"a copy": "v = range(0, 4, 2)"},
    ),
    Guarded(
        "slice", "slice(0, 2)", "return x[v], repr(v)",
        {"another": "v = slice(0, 3)", "step": "v = slice(0, 2, 1)", "bool": "v = slice(False, 2)"},
        {"a copy": "v = slice(0, 2)"},
    ),
    Guarded(
        "tuple", "(1, 2.0)", _TOLD,
        {"item": "v = (1, 3.0)", "int": "v = (1, 2)", "bool": "v = (True, 2.0)",
         "length": "v = (1, 2.0, 3)", "empty": "v = ()", "list": "v = [1, 2.0]",
         "named": "v = Pair(1, 2.0)", "negative zero": "v = (1, -0.0)", "nested": "v = (1, (2.0,))",
         "size": "v = torch.Size([1, 2])"},
        {"an equal one": "v = tuple([1, 2.0])"}, setup=_CLASSES,
    ),
    Guarded(
        "what is handed on", "2", "x.add_(1)\nreturn v",
        {},
        {"number": "v = 3", "text": "v = 'a'", "list": "v = [1]", "None": "v = None",
         "object": "v = object", "tensor": "v = torch.ones(5)"},
    ),
    Guarded(
        "what is not looked at", "2", "kept = v\nignore(kept, n=v)\nreturn x * 2",
        {},
        {"number": "v = 3", "text": "v = 'a'", "list": "v = [1]", "None": "v = None",
         "object": "v = object", "tensor": "v = torch.ones(5)"},
        setup="def ignore(a, *, n):\n    pass",
    ),
)  # fmt: skip

_ADDED = """
    total = 0
    for item in v:
        total = total * 10 + item
    return x * total, len(v), type(v).__name__
    """
_KINDS = """
    import collections, dataclasses, types
    class Listed(list):
        pass
    class Keyed(dict):
        def __missing__(self, key):
            return 9
    """

CONTAINERS = (
    Guarded(
        "list", "[1, 2]", _ADDED,
        {"item": "v[1] = 5", "float": "v[1] = 2.5", "appended": "v.append(3)",
         "removed": "v.pop()", "order": "v.reverse()", "cleared": "v.clear()",
         "tuple": "v = (1, 2)",
         "subclass": "v = Listed(v)", "another": "v = [3, 4]", "bool": "v[0] = True",
         "extended": "v.extend([7])", "slice": "v[:] = [8]", "set": "v = {1, 2}"},
        {"a copy": "v = [1, 2]", "there and back": "v.append(3)\nv.pop()"}, setup=_KINDS,
    ),
    Guarded(
        "item of a list", "[2, 3]", "return x * v[0]",
        {"item": "v[0] = 5", "inserted": "v.insert(0, 7)", "cleared": "v.clear()",
         "dict": "v = {0: 9}"},
        {"another item": "v[1] = 5", "a copy": "v = list(v)"},
    ),
    Guarded(
        "length of a list", "[2, 3]", "return x * len(v)",
        {"appended": "v.append(3)", "tuple": "v = (1, 2, 3)"},
        {"items": "v[:] = ['a', None]"},
    ),
    Guarded(
        "truth of a list", "[2, 3]", "return x * 2 if v else x",
        {"cleared": "v.clear()"},
        {"items": "v[:] = ['a', None, 7]"},
    ),
    Guarded(
        "membership in a list", "['a', 'b']", "return x * 2 if 'a' in v else x",
        {"removed": "v.remove('a')", "set": "v = {'b'}"}, {"a copy": "v = list(v)"},
    ),
    Guarded(
        "list of tensors", "[torch.ones(4), torch.ones(4)]", "return x + sum(v)",
        {"another shape": "v[0] = torch.ones(1)", "appended": "v.append(torch.ones(4))"},
        {"contents": "v[0] = torch.zeros(4)"},
    ),
    Guarded(
        "key of a dict", "{'k': 2, 'q': 3}", "return x * v['k']",
        {"value": "v['k'] = 5", "removed": "v.pop('k')", "cleared": "v.clear()",
         "subclass": "v = Keyed(v, k=7)", "missing from a subclass": "v = Keyed(q=3)",
         "another": "v = {'k': 4}", "default": "v = collections.defaultdict(int, k=3)"},
        {"another key": "v['q'] = 5", "a new key": "v['n'] = 5", "order": "v['k'] = v.pop('k')",
         "a copy": "v = dict(v)"}, setup=_KINDS,
    ),
    Guarded(
        "key that a dict lacks", "{'q': 3}", "return x * v.get('k', 2)",
        {"added": "v['k'] = 5", "subclass": "v = Keyed(k=4)"},
        {"another key": "v['n'] = 5", "another value": "v['q'] = 5"}, setup=_KINDS,
    ),
    Guarded(
        "items of a dict", "{'a': 1, 'b': 2}",
        "return x + sum(i * n for i, n in enumerate(v.values())), list(v), len(v)",
        {"value": "v['a'] = 5", "order": "v['a'] = v.pop('a')", "added": "v['c'] = 3",
         "removed": "del v['a']", "another key": "v['c'] = v.pop('b')",
         "ordered": "v = collections.OrderedDict(v, a=3)", "updated": "v.update(b=7)"},
        {"a copy": "v = dict(v)"}, setup=_KINDS,
    ),
    Guarded(
        "kinds of keys", "{1: 2, 'a': 3}", "return x * v[1], [type(k).__name__ for k in v]",
        {"bool": "v = {True: 2, 'a': 3}", "float": "v = {1.0: 2, 'a': 3}",
         "value": "v[True] = 5", "text": "v = {1: 2, Text('a'): 3}"},
        {"a copy": "v = dict(v)"}, setup=_CLASSES,
    ),
    Guarded(
        "dict of tensors by objects", "{torch.float32: torch.ones(4), None: torch.ones(4)}",
        "return x * v[torch.float32] + v[None]",
        {"shape": "v[None] = torch.ones(1)", "removed": "del v[None]"},
        {"contents": "v[None] = torch.zeros(4)", "a new key": "v[0] = 3"},
    ),
    Guarded(
        "set", "{1, 2}", "return x * sum(v), 3 in v, len(v)",
        {"added": "v.add(3)", "removed": "v.discard(1)", "frozen": "v = frozenset({3})",
         "another": "v = {5, 6}"},
        {"an equal one": "v = {2, 1}"},
    ),
    Guarded(
        "deque", "collections.deque([1, 2], 3)", "return x * v[0], len(v), v.maxlen",
        {"appended": "v.append(3)", "left": "v.appendleft(7)", "rotated": "v.rotate()",
         "bound": "v = collections.deque([1, 2], 5)"},
        setup=_KINDS,
    ),
    Guarded(
        "ordered dict", "collections.OrderedDict(a=1, b=2)",
        "return x + sum(i * n for i, n in enumerate(v.values())), list(v)",
        {"order": "v.move_to_end('a')", "value": "v['a'] = 5", "added": "v['c'] = 3"},
        {"a copy": "v = collections.OrderedDict(v)"}, setup=_KINDS,
    ),
    Guarded(
        "default of a dict", "collections.defaultdict(int, a=1)",
        "return x + v['a'], v.default_factory is int",
        {"factory": "v.default_factory = list", "value": "v['a'] = 5"}, setup=_KINDS,
    ),
    Guarded(
        "named tuple", "Pair(1, 2)", "return x * v.a + v[1], v._fields",
        {"field": "v = v._replace(a=5)", "plain": "v = (3, 2)"},
        {"an equal one": "v = Pair(1, 2)"}, setup=_CLASSES,
    ),
    Guarded(
        "read-only view of a dict", "types.MappingProxyType(D)", "return x * v['k']",
        {"value": "D['k'] = 5", "another": "v = types.MappingProxyType({'k': 6})",
         "another key": "D['q'] = 3"},
        setup="import types\nD = {'k': 2}",
    ),
    Guarded(
        "nested containers", "{'a': [(1, {'b': [2, {3}]})]}",
        "return x * v['a'][0][1]['b'][0], v['a'][0][0], len(v['a'])",
        {"deep value": "v['a'][0][1]['b'][0] = 5", "middle": "v['a'][0] = (4, v['a'][0][1])",
         "length": "v['a'].append(1)"},
        {"deep neighbour": "v['a'][0][1]['b'][1] = None"},
    ),
    Guarded(
        "iterator", "iter([3, 4, 5])", "return x * next(v, 1)",
        {"advanced": "next(v, None)", "another": "v = iter([7])", "of a tuple": "v = iter((8,))"},
        steady=False,
    ),
    Guarded(
        "generator", "count()", "return x * next(v)",
        {"advanced": "next(v)", "another": "v = count()", "closed": "v.close()"},
        setup="def count():\n    for i in range(1, 20):\n        yield i", steady=False,
    ),
)  # fmt: skip

ROWS = (*TENSORS, *CONSTANTS, *CONTAINERS)
