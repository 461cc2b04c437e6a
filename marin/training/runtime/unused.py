"""Stand-ins for what Levanter's models import and an answer never uses: W&B, Hugging Face's models, drivers of remote stores, a
cache with pyarrow and pandas behind it. For processes that end with their answer: what was imported so keeps the stand-ins."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_REMOTE = "aiobotocore", "aiohttp", "botocore", "git", "google.api_core", "google.cloud.storage", "requests", "s3fs"
_FRAMEWORKS = "aqt", "huggingface_hub", "optax.contrib", "tqdm_loggable", "transformers", "wandb"
OF_MODELS = *_REMOTE, *_FRAMEWORKS, "finestore.cache"
ABSENT = ("etils",)
"""What jax takes for paths of buckets where it is there."""


class _Name(type):
    """A name of an absent library, which nothing can call once the importing is over."""

    def __getattr__(cls, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{cls.__name__}.{name}", (), {})

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if not any(isinstance(finder, _StandIns) for finder in sys.meta_path):
            raise RuntimeError(f"{cls.__name__} was not imported: this process does not use it")
        return cls


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> _Name:
        found: _Name = getattr(_Name(self.__name__, (), {}), name)
        setattr(self, name, found)
        return found


class _StandIns(MetaPathFinder, Loader):
    """Finds ``names``, and all that is below one, as stand-ins."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """A package without a file."""
        if fullname in ABSENT:
            raise ModuleNotFoundError(fullname)
        mine = any(fullname == name or fullname.startswith(f"{name}.") for name in self._names)
        return ModuleSpec(fullname, self, is_package=True) if mine else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is in it."""


@contextmanager
def unused_imports() -> Iterator[None]:
    """While this lasts :data:`OF_MODELS` are stand-ins, where they are not imported yet."""
    stand_ins = _StandIns([name for name in OF_MODELS if name not in sys.modules])
    sys.meta_path.insert(0, stand_ins)
    gc.disable()
    read = metadata.distributions
    setattr(metadata, "distributions", lambda **_: iter(()))  # noqa: B010 - jax parses what each says, to find ROCm's plugin
    try:
        yield
    finally:
        setattr(metadata, "distributions", read)  # noqa: B010
        gc.freeze()  # the collector finds nothing in hundreds of thousands of classes and functions
        gc.enable()
        sys.meta_path.remove(stand_ins)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]
            package, _, last = name.rpartition(".")
            if package in sys.modules:
                vars(sys.modules[package]).pop(last, None)
