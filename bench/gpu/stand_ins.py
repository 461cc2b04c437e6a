"""Packages that Levanter imports and a training does not use: what stands for them where they are not installed.

An archive of at most 60 MB has no room for polars, Vortex, DuckDB and the like (hundreds of MB unpacked), which Levanter
and its libraries import when they are loaded. `bench/gpu/pack.py` puts this file beside the packages that it carries, where
every Python finds it. It is asked last: a package that is there is itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

ABSENT = frozenset(
    ["aiobotocore", "botocore", "datasets", "duckdb", "PIL", "polars", "pyqwest", "s3fs", "vortex", "wandb"]
)
"""What may be missing; whatever else is missing is an error."""
OPTIONAL = frozenset(["pandas"])
"""What those who ask for it go on without: it does not travel, and nothing stands for it."""


class Nothing(type):
    """A class of which every attribute, call and index is another such class: enough to be imported, not to compute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(name, (), {"__module__": __name__})

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        if cls.__module__ == __name__:
            return Nothing("value", (), {"__module__": __name__})
        return super().__call__(*arguments, **named)

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class StandIn(types.ModuleType):
    """A module that is not there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(name, (), {"__module__": __name__})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for what is in :data:`ABSENT`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        known = name.partition(".")[0] in ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        made = StandIn(spec.name)
        made.__path__ = []
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to execute."""


def install() -> None:
    """Be asked after everybody else."""
    sys.meta_path.append(Finder())
