"""MLflow's identifiers, derived from the ledger instead of drawn.

A projection that is deleted and folded again has to answer every query as before, and a link to a run's page has to
keep working. So ids are digests of what they name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from marin.record.events import CheckpointSaved, ModelExported


def mlflow_id(origin: str, *parts: str) -> str:
    """32 hexadecimal digits for a thing of the ledger ``origin``: a run, a step of a run, a model."""
    return hashlib.sha256("\n".join(("marin.mlflow/v1", origin, *parts)).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Ids:
    """The ids of one ledger's things."""

    origin: str

    def run(self, run: str, step: str = "") -> str:
        """Of a run, or of a step of it."""
        return mlflow_id(self.origin, "run", run, step) if step else mlflow_id(self.origin, "run", run)

    def report(self, experiment: str) -> str:
        """Of the run that shows the report of an experiment."""
        return mlflow_id(self.origin, "report", experiment)

    def executions(self, experiment: str) -> str:
        """Of the run below which the executions of an experiment's graph are nested."""
        return mlflow_id(self.origin, "executions", experiment)

    def model(self, body: ModelExported) -> str:
        """Of a model that a run exported, without its ``m-``."""
        return mlflow_id(self.origin, "model", body.run, body.output.digest)

    def checkpoint(self, run: str, body: CheckpointSaved) -> str:
        """Of a training checkpoint of a run, without its ``m-``."""
        return mlflow_id(self.origin, "checkpoint", run, body.state)
