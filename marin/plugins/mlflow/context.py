"""Ties a plain ``mlflow.start_run()`` of a user's own script to the run of Marin in which it happens.

A step is executed with ``MARIN_RUN`` and ``MARIN_STEP`` in its environment. MLflow asks this provider (entry point
``mlflow.run_context_provider``) for tags of every run that begins; in MLflow's UI over the ledger it is then a child of
the step.
"""

from __future__ import annotations

import os
import urllib.parse

from mlflow.tracking.context.abstract_context import RunContextProvider

from ledger import LedgerError
from marin.history.projection.identity import mlflow_id
from marin.process.running import RUN_VARIABLE, STEP_VARIABLE
from marin.record.root import open_root

OVER_THE_LEDGER = ("marin", "http", "https")
"""Schemes of tracking addresses behind which the parent run can be known."""


class MarinRunContext(RunContextProvider):  # type: ignore[misc]  # MLflow publishes no types
    """MLflow's port for tags of the context."""

    def in_context(self) -> bool:
        """Whether this process executes a run of Marin."""
        return bool(os.environ.get(RUN_VARIABLE))

    def tags(self) -> dict[str, str]:
        """Run and step, and as parent the MLflow run that shows them."""
        run, step = os.environ[RUN_VARIABLE], os.environ.get(STEP_VARIABLE, "")
        tags = {"marin.run": run, "marin.step": step} if step else {"marin.run": run}
        try:
            origin = open_root().verifier.name
        except LedgerError:
            return tags
        tags["marin.root"] = origin
        import mlflow  # here: MLflow loads this file while it is being imported

        if urllib.parse.urlsplit(mlflow.get_tracking_uri()).scheme in OVER_THE_LEDGER:
            tags["mlflow.parentRunId"] = mlflow_id(origin, "run", run, step) if step else mlflow_id(origin, "run", run)
        return tags
