"""MLflow's identifiers, derived from the ledger instead of drawn.

A projection that is deleted and folded again has to answer every query as before, and a link to a run's page has to
keep working. So ids are digests of what they name.
"""

from __future__ import annotations

import hashlib


def mlflow_id(origin: str, *parts: str) -> str:
    """32 hexadecimal digits for a thing of the ledger ``origin``: a run, a step of a run, a model."""
    return hashlib.sha256("\n".join(("marin.mlflow/v1", origin, *parts)).encode()).hexdigest()[:32]
