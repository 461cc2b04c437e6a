"""The files that a step executes, computed: those that its file imports, those that these import, and so on.

An import counts wherever it stands, in a function too; one below ``if TYPE_CHECKING`` does not, for nobody executes it. The
ledger carries values in and out and decides no bits; what of marin decides none stands in :data:`NEUTRAL` with the reason. An
``__init__`` that only describes does not count.

Imports are found in the lines of a file and not in its syntax tree: every command that plans a step asks this of two hundred
files. A test holds the two ways to each other for every file of the project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from marin.errors import MissingEvidence
from marin.provenance.code import code_folder

NEUTRAL = {
    "marin/__init__.py": "a version, and names that are imported when they are used",
    "marin/errors.py": "messages",
    "marin/execution/step.py": "how a step is called",
    "marin/process/cache.py": "where compiled programs are kept",
    "marin/process/interruption.py": "when training stops, not what it computes",
    "marin/process/progress.py": "bars",
    "marin/process/waiting.py": "says what takes long",
    "marin/provenance/plugins.py": "how plugins are found: the code of one that a recipe names is the step's",
    "marin/record/events.py": "how results are recorded",
    "marin/record/meter.py": "measurements beside the evidence",
    "marin/training/runtime/shape_checks.py": "which thread checks shapes",
    "marin/plugins/scale/hlo.py": "what is said of compiled programs",
    "marin/work/placed.py": "how tasks come to workers, and answers back",
}
"""Files that steps import and that decide no bits of any, with the reason. Nothing is looked for behind them."""

ELSEWHERE = ("marin/runners/",)
"""How a step is started on other machines: what it executes there is the same list."""

_TYPES_ONLY = re.compile(rb"^if (?:typing\.)?TYPE_CHECKING:\n(?:(?:[ \t][^\n]*)?\n)+", re.MULTILINE)
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(marin(?:\.\w+)*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)|import[ \t]+([^\n]*\bmarin\b[^\n]*))",
    re.MULTILINE,
)
_DESCRIPTION = re.compile(rb'\s*(?:"""(?:[^"\\]|"(?!""))*"""\s*)?')
_COMMENT = re.compile(rb"#[^\n]*")


def code_of(starts: Iterable[str]) -> tuple[str, ...]:
    """What is executed by executing these files, sorted.

    Args:
        starts: paths below the folder of the project's packages, with slashes.

    Raises:
        MissingEvidence: one of them is not there.
    """
    return _code_of(code_folder(), tuple(starts))


@cache
def _code_of(folder: Path, starts: tuple[str, ...]) -> tuple[str, ...]:
    found, waiting = set[str](), list(starts)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(folder, path)
    return tuple(sorted(found))


@cache
def _imported(folder: Path, path: str) -> tuple[str, ...]:
    try:
        data = (folder / path).read_bytes()
    except OSError as error:
        raise MissingEvidence("code of a step is not there", where=path, found=error.strerror or "") from None
    names = dict.fromkeys(imported_names(data))
    files = dict.fromkeys(file for name in names if (file := _file_of(folder, name)) is not None)
    return tuple(file for file in files if file not in NEUTRAL and not file.startswith(ELSEWHERE))


def imported_names(data: bytes) -> Iterator[str]:
    """Modules of marin that a file with these bytes imports, and names out of modules, which may be modules too."""
    for match in _IMPORT.finditer(_TYPES_ONLY.sub(b"", data)):
        base, names, modules = match.groups()
        for name in _COMMENT.sub(b"", names or modules).strip(b"()").split(b","):
            words = name.split()
            if words and base is not None:
                yield f"{base.decode()}.{words[0].decode()}"
            elif words and words[0].partition(b".")[0] == b"marin":
                yield words[0].decode()
        if base is not None:
            yield base.decode()


@cache
def _file_of(folder: Path, module: str) -> str | None:
    path = module.replace(".", "/")
    if (folder / f"{path}.py").is_file():
        return f"{path}.py"
    package = folder / path / "__init__.py"
    return f"{path}/__init__.py" if package.is_file() and not _DESCRIPTION.fullmatch(package.read_bytes()) else None
