"""What is said of an import that failed: an extra that is not installed, or a defect."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import marin
from marin.errors import NotInstalled
from marin.plugins.mlflow.plugins import registry_store, tracking_store
from marin.provenance import extras
from marin.provenance.plugins import DISTRIBUTION

BASE = {"google", "markupsafe", "ruamel", "yaml"}
"""Modules that come with what is always installed, by other names than its distributions have."""


def failing(name: str, error: ImportError) -> ImportError:
    """``error``, raised while the module ``name`` was imported."""
    module = ModuleType(name)
    module.__dict__["error"] = error
    try:
        exec("raise error", module.__dict__)
    except ImportError as raised:
        return raised
    raise AssertionError("it raises")


def test_a_distribution_that_stands_in_for_one_of_an_extra_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failing("mlflow.server.fastapi_app", ModuleNotFoundError("No module named 'flask'", name="flask"))
    assert extras.not_installed(error) is None, "mlflow is installed here: then it is a defect"

    def only_skinny(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", only_skinny)
    told = extras.not_installed(error)
    assert (
        told is not None
        and "the extra mlflow" in str(told)
        and "another distribution with the module mlflow" in str(told)
    )
    other = failing("mlflow.store", ImportError("cannot import name 'x' from 'mlflow.store'"))
    assert extras.not_installed(other) is not None


def test_mlflows_client_is_told_too_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With mlflow-skinny alone ``mlflow.set_tracking_uri("marin://")`` ended in sqlalchemy's ModuleNotFoundError."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    for store in (tracking_store, registry_store):
        with pytest.raises(NotInstalled, match="sqlalchemy: expected the extra mlflow"):
            store("marin://")


def test_an_import_that_fails_in_our_own_files_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", nothing)
    assert extras.not_installed(failing("marin.history", ImportError("cannot import name 'x'"))) is None
    assert extras.not_installed(failing("marin.history", ModuleNotFoundError("No module named 'y'", name="y"))) is None


def test_every_package_that_our_files_import_is_always_there_or_belongs_to_an_extra() -> None:
    """So that none of them is called a defect where it is not installed; MLPerf's logger has a line of its own."""
    lines = [line for line in requires(DISTRIBUTION) or [] if "extra ==" not in line]
    always = {re.split(r"[^a-z0-9-]", line.lower().replace("_", "-"))[0].replace("-", "_") for line in lines} | BASE
    trees = [ast.parse(path.read_text("utf-8")) for path in Path(marin.__file__).parent.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    foreign = {name.partition(".")[0] for name in named} - sys.stdlib_module_names - {"marin", "ledger"} - always
    assert len(foreign) > 20
    assert [name for name in sorted(foreign) if extras.extra_of(name) is None] == ["mlperf_logging"]
    assert extras.extra_of("sqlalchemy") == "mlflow", "where mlflow-skinny stands in for mlflow"


@pytest.mark.parametrize(
    ("told", "advised"),
    [
        (
            '{"url": "https://a.example/w.whl", "archive_info": {"hash": "sha256=ab"}}',
            "pip install 'marin-repro[train,mlflow] @ https://a.example/w.whl#sha256=ab'",
        ),
        ('{"url": "file:///home/me/marin", "dir_info": {"editable": true}}', "in the project's folder: pip install '."),
        ('{"url": "https://a.example/w.whl"}', "in the project's folder: pip install '."),
        ("[", "in the project's folder: pip install '."),
        (None, "in the project's folder: pip install '."),
    ],
)
def test_who_installed_a_published_wheel_has_no_folder(
    told: str | None, advised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``direct_url.json`` as pip and uv write it (PEP 610)."""
    monkeypatch.setattr(extras, "distribution", lambda _: SimpleNamespace(read_text=lambda _: told))
    assert extras.advice(["train", "mlflow"]).startswith(advised)
