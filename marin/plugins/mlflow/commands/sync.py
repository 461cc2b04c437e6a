"""`marin sync`: bring MLflow's projection up to date with the ledger."""

from __future__ import annotations

import click

from marin.cli.output import print_json, say
from marin.plugins.mlflow.server.serve import prepare
from marin.record.root import open_root


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def sync(as_json: bool) -> None:
    """Bring MLflow's projection up to date with the ledger.

    Only new events are folded. A projection that was deleted, damaged or made by another version is folded from the
    first event, and then answers every query as before. The ledger is only read.

    \b
    Examples:
      marin sync
      marin sync --json
    """
    root = open_root()
    prepare(root.location)
    # Here, because MLflow reads its settings when it is imported.
    from marin.plugins.mlflow.projection.follow import MlflowProjection

    projection = MlflowProjection(
        root.views() / "mlflow", root.reader(), own=root.is_own(), written=lambda: root.history().written
    )
    try:
        progress = projection.catch_up()
    finally:
        projection.close()
    if as_json:
        print_json(
            {
                "applied": progress.applied,
                "size": progress.size,
                "runs": progress.runs,
                "skipped": progress.skipped,
                "rebuilt": progress.rebuilt,
                "database": str(projection.database),
            }
        )
        return
    say(f"{progress.applied} new events of {progress.size}, {progress.runs} runs: {projection.database}")
