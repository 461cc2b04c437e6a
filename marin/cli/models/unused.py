"""Libraries that a library imports and a command never uses: while it is imported, stand-ins are there in their place.

Levanter's models bring the client of W&B, and a cache of tuned kernels with pyarrow, pandas and clients of buckets behind it: a
fifth of what importing a model takes. Text from a model needs none of it. Only for a command that ends with its answer: what was
imported so keeps the stand-ins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

OF_MODELS = ("wandb", "finestore.cache")
"""What Levanter's models import and a model that answers does not use."""


class _Name(type):
    """A name of an absent library: it may stand in annotations, be a base, and be named further. What is called while the
    importing goes on is another such name; afterwards nothing can be."""

    def __getattr__(cls, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{cls.__name__}.{name}", (), {})

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if not any(isinstance(sys.modules.get(name), _StandIn) for name in OF_MODELS):
            raise RuntimeError(f"{cls.__name__} was not imported: this command does not use it")
        return cls


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{self.__name__}.{name}", (), {})


@contextmanager
def unused_imports() -> Iterator[None]:
    """While this lasts :data:`OF_MODELS` are stand-ins, where they are not imported yet."""
    made = {name: _StandIn(name) for name in OF_MODELS if name not in sys.modules}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]
