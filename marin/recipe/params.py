"""Reading ``params.yaml``: the composed recipe that every stage of the pipeline is given.

YAML is data here: the safe loader only, duplicate keys are refused, and ``1e-3`` is a number (YAML 1.1 calls it a
string because it lacks a point, which has cost many people a run).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from marin.errors import UsageError
from marin.recipe.schema import Recipe, from_mapping


class _Loader(yaml.SafeLoader):
    """The safe loader, refusing duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d[\d_]*(?:\.\d[\d_]*)?[eE][-+]?\d+$"), list("-+0123456789")
)


MOST_BYTES = 1 << 16
"""Of a YAML file. Fifty times what a recipe has; what is nested takes time that grows with its square."""


def load_params(path: Path) -> Recipe:
    """The checked recipe in ``path``.

    Raises:
        UsageError: the file is missing, is not YAML, or a value in it is unknown, of the wrong type or out of range;
            the message holds the path of the value and what is allowed.
    """
    where = path.name
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = data.decode("utf-8")
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(
            "no parameters",
            where=str(path),
            expected="a params.yaml",
            found="no such file",
            cure="run this in the project's folder, or name the file with --params",
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            "parameters are not UTF-8",
            where=where,
            found=f"byte {error.start}: {error.reason}",
            cure="save the file as UTF-8",
        ) from None
    if len(data) > MOST_BYTES:
        raise UsageError(
            "parameters are too long",
            where=where,
            expected=f"at most {MOST_BYTES} bytes",
            found="more",
            cure="name large values by files; reading YAML takes time that grows with its square",
        )
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark is not None else where
        deep = "nested too deeply" if isinstance(error, RecursionError) else "a syntax error"
        problem = getattr(error, "problem", None) or deep
        raise UsageError(
            "parameters are not YAML",
            where=at,
            expected="a mapping of sections",
            found=problem,
            cure="correct that line, or compose the file again with `dvc exp run`",
        ) from None
    return from_mapping(value, where=where)
