"""What is said of an import that failed: an extra that is not installed, or a defect."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from types import ModuleType

import pytest

from marin.provenance import extras


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


def test_an_import_that_fails_in_our_own_files_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", nothing)
    assert extras.not_installed(failing("marin.history", ImportError("cannot import name 'x'"))) is None
    assert extras.not_installed(failing("marin.history", ModuleNotFoundError("No module named 'y'", name="y"))) is None
