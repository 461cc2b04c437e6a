"""YAML as DVC reads ``params.yaml``: version 1.2, by the same library, for every YAML file that a project's people write.

``010`` is ten, ``0o10`` eight, ``1e-3`` a number, ``12:30``, ``yes`` and ``off`` are texts, a key is there once. A file that says
``%YAML 1.1`` is read so, as DVC does.

Elsewhere another reader is the reference, and reads: Hydra's for the files of groups (:mod:`marin.recipe.composition` holds them
to this one), lm-evaluation-harness's for its task files, the Hub's for the cards of data sets.
"""

from __future__ import annotations

import warnings
from datetime import date
from typing import Any

MOST_BYTES = 1 << 16
"""Of a file. Fifty times what a recipe has; what is nested takes time that grows with its square."""
MOST_VALUES = 50_000
"""Of a file, those behind an alias counted each time: a few aliases of aliases are more values than a machine has bytes."""


class NotYaml(ValueError):
    """A text that is not YAML, or more than plain values. ``line`` and ``column`` count from 1; 0 where no place is known."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {problem}" if line else problem)
        self.problem, self.line, self.column = problem, line, column


def read_yaml(data: bytes | str, *, most_bytes: int = MOST_BYTES) -> Any:
    """The value of one YAML document: mappings, lists, texts, numbers, dates, true, false and null; None where there is none.

    Raises:
        NotYaml: it is too long, not UTF-8, not YAML, more than one document, has a key twice or a tag of another value.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    if len(data) > most_bytes:
        raise NotYaml(f"more than {most_bytes} bytes; reading YAML takes time that grows with its square")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotYaml(f"not UTF-8: byte {error.start}: {error.reason}") from None
    try:
        with warnings.catch_warnings(action="ignore"):  # of a number that YAML 1.1 would have read otherwise
            value = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context).split())[:200]
        raise NotYaml(problem, *(() if mark is None else (mark.line + 1, mark.column + 1))) from None
    except RecursionError:
        raise NotYaml("nested too deeply") from None
    except Exception as error:  # of a date that no calendar has, a number of too many digits, a version of YAML to come
        raise NotYaml(" ".join(str(error).split())[:200] or type(error).__name__) from None
    _check_plain(value)
    return value


def _check_plain(value: Any) -> None:
    waiting, seen = [value], 0
    while waiting:
        one, seen = waiting.pop(), seen + 1
        if seen > MOST_VALUES:
            raise NotYaml(f"more than {MOST_VALUES} values, those behind an alias counted each time")
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one
        elif not isinstance(one, str | int | float | date | None):
            raise NotYaml(f"a value of the type {type(one).__name__}, which no file here has")
