"""MLflow's client on ``marin://`` beside the same client on MLflow's own sqlite store: call by call the same answer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from ledger import LedgerError
from marin.plugins.mlflow.projection import database
from marin.plugins.mlflow.stores import recorder
from marin.record.creation import create_root

from ..conftest import Compare
from . import mlflow_integrations, mlflow_logging, mlflow_models, mlflow_text
from .mlflow_calls import CASES, REFUSED, Case

assert all((mlflow_integrations, mlflow_logging, mlflow_models, mlflow_text)), "each adds its cases"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Case], Any]]:
    """Executes a case on one of the two stores, ``reference`` or ``marin``."""
    folder = tmp_path_factory.mktemp("mlflow")
    (folder / "reference").mkdir()
    database.make_tables(folder / "reference")
    addresses = {"reference": database.database_uri(folder / "reference"), "marin": f"marin://{folder}/root"}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("MLFLOW_TRACKING_URI", "MARIN_RUN", "MARIN_STEP"):
            patch.delenv(name, raising=False)
        patch.setenv("MARIN_ROOT", str(folder / "root"))
        patch.setenv("MARIN_KEY", str(folder / "key.pem"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        patch.chdir(folder)  # MLflow puts the artifacts of a sqlite store there
        root = create_root(str(folder / "root"), origin="example.org/fidelity")
        logging.getLogger("mlflow").setLevel(logging.CRITICAL)

        def execute(which: str, call: Case) -> Any:
            mlflow.set_tracking_uri(addresses[which])
            mlflow.set_registry_uri(addresses[which])
            return call(MlflowClient(addresses[which], addresses[which]))

        yield execute
        mlflow.set_tracking_uri("")
        mlflow.set_registry_uri("")
        recorder.projection_of(root).close()


@pytest.mark.table
@pytest.mark.parametrize("name", CASES)
def test_calls_of_mlflows_client(compare: Compare, stores: Callable[[str, Case], Any], name: str) -> None:
    for package in mlflow_integrations.NEEDS.get(name, ()):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed here: it is not in requirements.lock")
    right = stores("reference", CASES[name])
    compare("MLflow", name, lambda: stores("marin", CASES[name]), right)


@pytest.mark.table
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_event_is_refused_and_writes_none(
    compare: Compare, stores: Callable[[str, Case], Any], name: str
) -> None:
    call, why = REFUSED[name]

    def ours() -> Any:
        try:
            return stores("marin", call)
        except MlflowException as error:
            assert any(word in str(error) for word in ("refused", "not recorded", "of the ledger")), error
            raise LedgerError(str(error)) from error

    compare("MLflow", name, ours, None, refusal=why)
