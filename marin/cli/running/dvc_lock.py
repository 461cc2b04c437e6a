"""Whether dvc.lock is of what lies here."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from marin.recipe.form.yaml import NotYaml, read_yaml

_LOCKED = re.compile(r"^    - path: (\S.*)\n      hash: md5\n      md5: ([0-9a-f]{32})$", re.MULTILINE)
"""A file of a stage in dvc.lock, as DVC writes it."""
_COMMAND = re.compile(r"^    cmd: (.*)$", re.MULTILINE)
_FROZEN = re.compile(r"^    frozen: true$", re.MULTILINE)
_LISTED = re.compile(r"^      - ([^:\s]+):?(?: .*)?$", re.MULTILINE)
"""A file of a stage in dvc.yaml."""
_PARAMS = re.compile(r"^    params: \[(.*)\]$", re.MULTILINE)
_WORD = re.compile(r"[\w.]+")


def frozen(project: Path, names: Sequence[str]) -> list[str]:
    """Those of these stages that `dvc freeze` holds as they are."""
    stages = _stages(project / "dvc.yaml")
    return [name for name in names if _FROZEN.search(stages.get(name, ""))]


def first_changed(project: Path, names: Sequence[str]) -> str:
    """The first thing for which DVC would call one of these stages: a file that is another one than dvc.lock has, a list of
    files, a command or a parameter that is; a stage that dvc.lock lacks. "" where there is none, and in a folder without
    dvc.yaml. What always runs (``always_changed``) is not one of them."""
    if not (project / "dvc.yaml").is_file():
        return ""
    stages, locks = _stages(project / "dvc.yaml"), _stages(project / "dvc.lock")
    params = _yaml(project / "params.yaml")
    for name in names:
        stage, lock = stages.get(name, ""), locks.get(name, "")
        files: list[tuple[str, str]] = _LOCKED.findall(lock)
        if not files or _COMMAND.findall(stage) != _COMMAND.findall(lock):
            return f"stage {name}"
        if {*_LISTED.findall(stage)} != {path for path, _ in files}:
            return f"the files of stage {name}"
        for path, md5 in files:
            file = project / path
            if not file.is_file() or hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest() != md5:
                return path
        locked = _locked_params(lock)
        wanted = _WORD.findall("".join(_PARAMS.findall(stage)))
        if locked != {parameter: _value(params, parameter) for parameter in wanted}:
            return f"the parameters of stage {name}"
    return ""


def _stages(path: Path) -> dict[str, str]:
    """The lines of each stage in a dvc.yaml, its variables filled in, or in a dvc.lock."""
    text = path.read_text("utf-8", errors="replace") if path.is_file() else ""
    for name, value in re.findall(r"^  (?:- |  )(\w+): (\S+)$", text.partition("\nstages:\n")[0], re.MULTILINE):
        text = text.replace(f"${{{name}}}", value)
    return dict(re.findall(r"(?m)^  (\w+):\n((?:(?:    [^\n]*)?\n)*)", text.partition("stages:\n")[2]))


def _locked_params(lock: str) -> object:
    """What a stage of dvc.lock has under ``params``, by the names that dvc.yaml gives."""
    block = re.search(r"(?m)^    params:\n      params\.yaml:\n((?:        [^\n]*\n)*)", lock)
    return _parsed(textwrap.dedent(block[1])) if block is not None else {}


def _yaml(path: Path) -> object:
    return _parsed(path.read_text("utf-8", errors="replace")) if path.is_file() else None


def _parsed(text: str) -> object:
    try:
        return read_yaml(text)
    except NotYaml:
        return None  # DVC says what is wrong


def _value(params: object, name: str) -> object:
    """The value of a parameter by its dotted name; ``absent`` where there is no such parameter."""
    for part in name.split("."):
        if not isinstance(params, dict) or part not in params:
            return "absent"
        params = params[part]
    return params
