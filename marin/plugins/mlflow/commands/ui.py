"""`marin ui`: MLflow's own UI over the ledger, kept up to date while it runs."""

from __future__ import annotations

from contextlib import ExitStack

import click

from marin.cli.output import say
from marin.plugins.mlflow.server import serve as server
from marin.plugins.mlflow.server.front import application
from marin.process.listening import bind
from marin.process.waiting import waiting
from marin.record.root import open_root


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=server.PORT,
    show_default=True,
    help="Where to listen; the next free port if it is taken, any free one with 0.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen; only this machine can reach the default."
)
def ui(port: int, host: str) -> None:
    """Open MLflow's own UI over the ledger, at the newest runs.

    What it shows is a projection: it can be deleted at any time and is folded from the ledger again. It follows the log
    while it runs, so a training can be watched. The address is printed when it answers; Ctrl-C ends it.

    The printed address holds a token, new at each start, without which nothing is read or written. MLflow's client
    sends it where MLFLOW_TRACKING_TOKEN is set.

    \b
    Examples:
      marin ui
      marin ui --port 8080 --root /data/marin
    """
    root = open_root()
    listener = bind(host, port)
    starting = ExitStack()
    starting.enter_context(waiting("starting MLflow's server"))

    def announce(address: str) -> None:
        starting.close()
        say(address)
        drawing.start()  # after the address: what draws takes seconds to import

    try:
        server.prepare(root.location)
        served = application()
        # Here, because MLflow reads its settings when it is imported.
        from marin.plugins.mlflow.projection.follow import Follower
        from marin.plugins.mlflow.server.prerendering import Prerendering
        from marin.plugins.mlflow.stores.recorder import projection_of

        projection = projection_of(root)
        projection.catch_up(limit=0)
        follower = Follower(projection)
        projection.followed = True
        follower.start()
        drawing = Prerendering(root)
        try:
            server.serve(listener, served, projection.database, announce=announce)
        finally:
            drawing.stop()
            follower.stop()
            projection.close()
    finally:
        starting.close()
        listener.close()
