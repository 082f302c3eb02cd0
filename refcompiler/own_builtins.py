"""The builtins as they are now, for code that runs while a user's program may replace them.

A module that binds this to ``__builtins__`` before it defines anything looks its builtins up here.
"""

from __future__ import annotations

import builtins
from typing import Any

BUILTINS: Any = dict(vars(builtins))
