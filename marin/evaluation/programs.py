"""Programs of a model as StableHLO, for the next process (:mod:`jax.export`). Jax keeps what XLA compiled, but Levanter's Python
is traced and lowered again for each length, which takes six times as long as to read it.

For answers that nobody records or judges: a record and a verdict are traced from what they name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import haliax
import jax
import levanter
from jax import export
from jax._src.lax import linalg
from levanter.models.lm_model import LmHeadModel

import marin
from ledger import StorageFailed, canonical_digest, digest_bytes
from marin.process.files import write_whole
from marin.recipe.schema import Recipe, digest

_SUM = len(digest_bytes(b""))


class ProgramCache:
    """Programs by what decides them: Python files (by size and time of change, as Python decides whether one was compiled), jax
    and its settings, the recipe, the structure of the model, and all shapes.

    Args:
        folder: where they lie; only the user can write there.
    """

    def __init__(self, folder: Path, model: LmHeadModel[Any], recipe: Recipe) -> None:
        settings = sorted((name, str(value)) for name, value in jax.config.values.items())
        files = sorted(facts for module in (eqx, haliax, levanter, marin) for facts in source_files(module))
        fixed = jax.tree.map(_printed_whole, eqx.partition(model, eqx.is_inexact_array)[1])
        structure = re.sub(r" at 0x\w+", "", str(jax.tree.flatten(fixed)))  # of functions
        machine = jax.__version__, jax.lib.__version__, jax.default_backend(), settings
        self._folder, self._decided = folder, canonical_digest([machine, files, digest(recipe), structure])

    def program(self, name: str, traced: Callable[..., Any]) -> Callable[..., Any]:
        """``traced``, which ``jax.jit`` made; not traced for shapes whose program is there."""
        known: dict[tuple[Any, ...], Callable[..., Any]] = {}

        def program(*arguments: Any) -> Any:
            leaves, tree = jax.tree.flatten(arguments)
            shapes = tuple((*x.shape, x.dtype.name) for x in leaves)
            if shapes not in known:
                file = self._folder / canonical_digest([name, shapes, self._decided]).removeprefix("sha256:")
                flat = jax.jit(lambda *leaves: traced(*jax.tree.unflatten(tree, leaves)))
                kept = _read_program(file) or _export(file, flat, leaves)
                known[shapes] = _compile(kept, leaves) if kept else flat
            return known[shapes](*leaves)

        return program


def _printed_whole(leaf: Any) -> Any:
    """What is printed whole, as a long array is not."""
    return f"{leaf.dtype} {leaf.tolist()}" if hasattr(leaf, "tolist") else leaf


def _export(file: Path, function: Callable[..., Any], examples: list[Any]) -> export.Exported | None:
    try:
        program = export.export(function)(*examples)
    except ValueError:  # it has an operation of which jax promises nothing to a later process
        return None
    content = bytes(program.serialize())
    with suppress(StorageFailed):
        write_whole(file, digest_bytes(content).encode() + content)
    return program


def _compile(program: export.Exported, examples: list[Any]) -> Callable[..., Any]:
    initialize = linalg.initialize_lapack
    # For any program jax imports scipy, which takes longer than all else.
    if b"lapack" not in program.mlir_module_serialized:
        linalg.initialize_lapack = lambda: None
    try:
        return jax.jit(program.call).lower(*examples).compile()
    finally:
        linalg.initialize_lapack = initialize


def _read_program(file: Path) -> export.Exported | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    whole = content[:_SUM] == digest_bytes(content[_SUM:]).encode()
    return export.deserialize(bytearray(content[_SUM:])) if whole else None


def source_files(module: ModuleType) -> Iterator[tuple[str, int, str]]:
    """Path, size in bytes, and nanoseconds of the last change of every Python file of a package."""
    for root in module.__path__:
        for folder, _, names in os.walk(root):
            for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
                yield path, (facts := os.stat(path)).st_size, str(facts.st_mtime_ns)
