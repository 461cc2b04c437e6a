"""Python that a task may name: functions of the installed lm-evaluation-harness that do nothing but compute.

A task file may say ``process_docs: !function utils.process_docs``. Code that was brought with a task is never taken. Where
that file is, byte for byte, one of the harness's own task files, the task is recorded with its path there, the function's name
and a digest of all code that the function reaches (:mod:`marin.plugins.evaluation.harness.computing`); anyone who judges it
calls the function of the harness in their own environment, and only where it has this digest.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from marin.plugins.evaluation.harness import computing

DEEPEST = 8
"""Nesting of the values of a task."""


def is_function(value: Any) -> bool:
    """Whether a value of a configuration names a function: ``function`` (its file below the harness's tasks, a colon, its name)
    and the ``digest`` of all code that it reaches."""
    return (
        isinstance(value, dict)
        and set(value) == {"function", "digest"}
        and all(isinstance(part, str) for part in value.values())
    )


@dataclass(frozen=True)
class Mark:
    """``!function`` as it is written, and in which task file."""

    written: str
    file: Path


class Marks(yaml.SafeLoader):
    """YAML's plain values; a ``!function`` becomes a :class:`Mark`. Not libyaml's, which is brought down by deep nesting."""


Marks.add_constructor("!function", lambda loader, node: Mark(str(node.value), Path(node.start_mark.name)))


def resolved(value: Any, depth: int = 0) -> Any:
    """``value`` of a task file with the functions that its marks name, as :func:`is_function` knows them; what lies deeper than
    :data:`DEEPEST` (an alias of YAML may have no end) as it is.

    Raises:
        UsageError: one is not the installed harness's, or does more than compute.
    """
    if isinstance(value, Mark):
        return _function_named(value)
    if depth > DEEPEST:
        return value
    if isinstance(value, dict):
        return {key: resolved(item, depth + 1) for key, item in value.items()}
    return [resolved(item, depth + 1) for item in value] if isinstance(value, list) else value


def function_in(value: Any, where: str) -> Any:
    """The function that ``value`` of a recorded configuration names; ``value`` where it names none.

    Raises:
        UsageError: it is not in the installed harness, is another one there, or does more than compute.
    """
    return _function(value["function"], value["digest"], where) if is_function(value) else value


def check(value: Mapping[str, str], where: str) -> None:
    """That a function which is recorded is the installed harness's, and only computes.

    Raises:
        UsageError: it is not.
    """
    _installed(value["function"], value["digest"], where)


def _function_named(mark: Mark) -> dict[str, str]:
    module, _, name = mark.written.rpartition(".")
    where = f"{mark.file}, !function {mark.written}"
    path = _path_of(module, mark.file, where)
    return {"function": f"{path}:{name}", "digest": computing.known_function(path, name, where).digest}


def _path_of(module: str, file: Path, where: str) -> str:
    """The file of the installed harness that ``module`` is, seen from a task file."""
    beside = file.parent / f"{module.replace('.', '/')}.py"
    if beside.is_file():
        content = beside.read_bytes()
        own = [
            path
            for path in computing.files_by_name().get(beside.name, ())
            if (computing.installed_folder() / path).read_bytes() == content
        ]
        if own:
            return min(own, key=lambda path: (_distance(path, file), path))
    elif module.startswith(f"{computing.PACKAGE}."):
        path = f"{module.removeprefix(f'{computing.PACKAGE}.').replace('.', '/')}.py"
        if path in computing.files_by_name().get(PurePosixPath(path).name, ()):
            return path
    raise computing.refused_code(
        where, "a file of the installed harness, unchanged, or a module of lm_eval.tasks", f"{module}.py"
    )


def _distance(path: str, file: Path) -> int:
    """Of two equal files the one whose folders are called as those of the task file."""
    shared = 0
    for mine, theirs in zip(reversed(PurePosixPath(path).parts[:-1]), reversed(file.parts[:-1]), strict=False):
        if mine != theirs:
            break
        shared += 1
    return -shared


def _function(said: str, digest: str, where: str) -> Callable[..., Any]:
    found = _installed(said, digest, where)
    if not found.draws:
        return found.call

    @functools.wraps(getattr(found.call, "func", found.call))
    def drawn(*args: Any, **kwargs: Any) -> Any:
        import numpy as np

        random.seed(0)
        np.random.seed(1234)
        return found.call(*args, **kwargs)

    return drawn


def _installed(said: str, digest: str, where: str) -> computing.HarnessFunction:
    path, _, name = said.partition(":")
    if not name.isidentifier() or path not in computing.files_by_name().get(PurePosixPath(path).name, ()):
        raise computing.refused_code(where, "a function of the installed harness's tasks", said[:200])
    found = computing.known_function(path, name, where)
    if found.digest != digest:
        raise computing.refused_code(where, f"{said} with digest {digest}", f"{found.digest} in the installed harness")
    return found
