"""MLflow makes its tables in 68 migrations; here once for the session, and then by a copy of the empty database."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin.plugins.mlflow.projection import database


@pytest.fixture(scope="session")
def empty_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    database.make_tables(folder)
    database.dispose(folder)
    return folder / "mlflow.db"


@pytest.fixture(autouse=True, scope="session")
def quick_tables(empty_tables: Path) -> Iterator[None]:
    made = database.make_tables

    def copied(folder: Path) -> None:
        path = folder / "mlflow.db"
        if not path.exists() or path.stat().st_size == 0:
            shutil.copyfile(empty_tables, path)
        else:
            made(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "make_tables", copied)
        yield
