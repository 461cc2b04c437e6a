"""Who may enter whom: read from the syntax trees of all files, and from the modules that a process really loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("ledger", "marin", "experiments")
FILES = sorted(file for package in PACKAGES for file in (PROJECT / package).rglob("*.py"))

# package -> project packages that it may import
DIRECTIONS = {"ledger": {"ledger"}, "marin": {"marin", "ledger"}, "experiments": {"experiments", "marin"}}

# top-level module -> the only folders or files that may import it, at the top or inside a function
CONFINED = {
    "jax": ("marin/training/",),
    "jaxlib": ("marin/training/",),
    "haliax": ("marin/training/",),
    "levanter": ("marin/training/",),
    "equinox": ("marin/training/",),
    "optax": ("marin/training/",),
    "ray": ("marin/runners/",),
    "click": ("marin/cli/",),
    "mlflow": ("marin/tracking/",),
    "wandb": ("marin/tracking/",),
}

# msgspec and orjson: JSON at the speed of C, held equal to RFC 8785 by tests/ledger/test_canonical.py
LEDGER_MAY_IMPORT = {"cryptography", "filelock", "ml_dtypes", "msgspec", "numpy", "obstore", "orjson", "pyfastcdc",
                     "rfc3161_client", "rfc8785", "zstandard"}

HEAVY = {"datasets", "dvc", "equinox", "haliax", "hydra", "jax", "jaxlib", "levanter", "matplotlib", "mlflow", "numpy",
         "obstore", "pandas", "ray", "rich", "tensorstore", "tokenizers", "torch", "transformers", "wandb"}

FORBIDDEN_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
LONGEST = 600


@dataclass(frozen=True)
class Import:
    """One import of one module: where it stands and whether it runs when the file is loaded."""

    file: str
    line: int
    module: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def imports_of(source: str, file: str) -> Iterator[Import]:
    package = file.removesuffix("/__init__.py").removesuffix(".py").split("/")
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            if node.level:
                depth = node.level - (1 if file.endswith("/__init__.py") else 0)
                base = package[: len(package) - depth] if depth else package
                yield Import(file, node.lineno, ".".join([*base, *filter(None, [node.module])]), names)
            else:
                yield Import(file, node.lineno, node.module or "", names)


def all_imports() -> list[Import]:
    return [item for file in FILES
            for item in imports_of(file.read_text("utf-8"), file.relative_to(PROJECT).as_posix())]


def breaches_of_direction(imports: list[Import]) -> list[str]:
    found = []
    for item in imports:
        here, there = item.file.split("/")[0], item.module.split(".")[0]
        if there in DIRECTIONS and there not in DIRECTIONS[here]:
            found.append(str(item))
        if here == "marin" and there == "ledger" and item.module != "ledger":
            found.append(f"{item} instead of its door")
    return found


def breaches_of_confinement(imports: list[Import]) -> list[str]:
    return [str(item) for item in imports
            if (allowed := CONFINED.get(item.module.split(".")[0])) is not None and not item.file.startswith(allowed)]


def test_experiments_use_marin_and_marin_uses_the_ledger_through_its_door() -> None:
    assert breaches_of_direction(all_imports()) == []


def test_heavy_libraries_are_imported_in_one_place_each() -> None:
    assert breaches_of_confinement(all_imports()) == []


def test_the_ledger_needs_little() -> None:
    foreign = {f"{item}" for item in all_imports() if item.file.startswith("ledger/")
               and (top := item.module.split(".")[0]) not in sys.stdlib_module_names
               and top not in LEDGER_MAY_IMPORT | {"ledger"}}
    assert foreign == set()


def test_a_breach_would_be_found() -> None:
    source = "import jax.numpy\nfrom ledger.tlog import root\ndef f():\n    import marin.cli\nfrom ..steps import corpus\n"
    inside = list(imports_of(source, "marin/replay/compare.py"))
    assert [item.module for item in inside] == ["jax.numpy", "ledger.tlog", "marin.steps", "marin.cli"]
    assert breaches_of_confinement(inside) == ["marin/replay/compare.py:1 imports jax.numpy"]
    assert breaches_of_direction(inside) == ["marin/replay/compare.py:2 imports ledger.tlog instead of its door"]
    assert breaches_of_direction(list(imports_of("from marin import recipe", "ledger/log.py"))) == [
        "ledger/log.py:1 imports marin"
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PROJECT).as_posix())
def test_a_file_is_one_room(file: Path) -> None:
    source = file.read_text("utf-8")
    tree = ast.parse(source)
    assert source.count("\n") <= LONGEST, "split it: a file has at most 600 lines"
    assert ast.get_docstring(tree) or not source.strip(), "a file opens with what it is for"
    assert file.stem not in FORBIDDEN_NAMES, "name it after what it does"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = {alias.name.split(".")[0] for alias in node.names} if isinstance(node, ast.Import) else {
                (node.module or "").split(".")[0]}
            assert not named & FORBIDDEN_MODULES, f"line {node.lineno}: nothing is unpickled here"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}: data is never executed"


def loaded_after(statement: str) -> set[str]:
    """Names of the top-level modules in a fresh process that executed `statement`."""
    program = f"{statement}\nimport sys\nsys.stderr.write(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_door_of_the_ledger_is_light() -> None:
    loaded = loaded_after("import ledger")
    assert "ledger" in loaded
    assert loaded & (HEAVY | {"marin", "click"}) == set()


def test_the_help_of_the_command_line_is_light() -> None:
    loaded = loaded_after("from marin.cli.main import run\nassert run(['--help']) == 0")
    assert "click" in loaded
    assert loaded & (HEAVY | {"cryptography", "msgspec", "yaml"}) == set()
