"""What this release runs on."""

from __future__ import annotations

from refcompiler.bytecode.pythons import unsupported
from refcompiler.errors import UnsupportedError

TORCH = ((2, 11), (2, 13))


def check() -> None:
    """Raise :class:`UnsupportedError` when Python or torch cannot serve the front end."""
    if why := unsupported():
        raise UnsupportedError(f'{why}; torch.compile(model, backend="fastpath") works there')
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError(
            f"refcompiler needs torch 2.11 to 2.13: pip install torch==2.13.0 ({error})"
        ) from error
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if not TORCH[0] <= version <= TORCH[1]:
        raise UnsupportedError(
            f"refcompiler supports torch 2.11 to 2.13, not {torch.__version__}: "
            "pip install torch==2.13.0"
        )
