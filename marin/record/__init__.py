"""What is written down: types of events, the root, its keys, and who vouches for it.

The package can be called: ``marin.record("my run", ...)`` is ``marin.start_run("my run", ...)``, for who wraps a loop with
the callback that it gives (docs/loops.md).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Called(ModuleType):
    def __call__(self, name: str = "", **how: Any) -> Any:
        return sys.modules["marin"].start_run(name, **how)


sys.modules[__name__].__class__ = _Called
