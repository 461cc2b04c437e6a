"""Stand-ins for what Levanter's models import and an answer never uses: W&B, and a cache with pyarrow and pandas behind it. For
commands that end with their answer: what was imported so keeps the stand-ins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

OF_MODELS = ("wandb", "finestore.cache")


class _Name(type):
    """A name of an absent library, which nothing can call once the importing is over."""

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
        found: _Name = getattr(_Name(self.__name__, (), {}), name)
        return found


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
