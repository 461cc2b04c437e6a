"""What this plugin adds: the commands ``ui`` and ``sync``."""

from __future__ import annotations

from marin.cli.lazy import Lazy

COMMANDS = {
    "sync": Lazy("marin.plugins.mlflow.commands.sync", "Bring MLflow's projection up to date with the ledger."),
    "ui": Lazy("marin.plugins.mlflow.commands.ui", "Open MLflow's own UI over the ledger, at the newest runs."),
}
