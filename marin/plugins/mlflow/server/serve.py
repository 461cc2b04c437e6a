"""MLflow's own server over the projection of one root, in this process, with the projection kept up behind it.

One process and one thread: MLflow's default is ten processes and 2 GB, and processes can be left behind. The server's
application is MLflow's, as :mod:`marin.plugins.mlflow.server.front` shows it, behind the gate of
:mod:`marin.plugins.mlflow.server.gate`; its job execution and telemetry are off. The address, with the token that opens the
gate, is announced when the server has answered on it, not before. Ctrl-C and SIGTERM let open requests end, finish the
round of syncing, and return.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from marin.errors import MarinError
from marin.plugins.mlflow.server.front import Front
from marin.plugins.mlflow.server.gate import Application, Gate, new_token
from marin.process.listening import address_of, stopping

PORT = 5000
GRACE_SECONDS = 3
HEALTH_SECONDS = 120.0

_log = logging.getLogger(__name__)


def prepare(root: str) -> None:
    """Settings that MLflow reads when it is imported or asked: before its first import in this process."""
    os.environ["MARIN_ROOT"] = root
    os.environ.update(
        {
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",  # files come and go through the server
            "_MLFLOW_SERVER_ARTIFACT_DESTINATION": "marin://mlflow",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
            "DO_NOT_TRACK": "true",
        }
    )


def serve(listener: socket.socket, served: Application, database: Path, *, announce: Callable[[str], None]) -> None:
    """Serve the root of :func:`prepare`, whose projection is ``database``, by MLflow's application ``served`` until SIGINT or
    SIGTERM. Call on the main thread.

    Raises:
        MarinError: MLflow's server did not start.
    """
    # Here, because MLflow has to find the settings of prepare() when it is imported, and takes seconds.
    import mlflow.server.handlers as handlers
    import uvicorn
    from mlflow.server.constants import ARTIFACT_ROOT_ENV_VAR, BACKEND_STORE_URI_ENV_VAR, REGISTRY_STORE_URI_ENV_VAR
    from mlflow.store.artifact.artifact_repository_registry import _artifact_repository_registry as repositories

    from marin.plugins.mlflow.projection.database import ARTIFACT_ROOT, SCHEME
    from marin.plugins.mlflow.server.addresses import ServedRegistryStore, ServedTrackingStore
    from marin.plugins.mlflow.stores.repository import MarinArtifactRepository

    uri = f"{SCHEME}://"  # the root that prepare() put into the environment
    os.environ |= {
        BACKEND_STORE_URI_ENV_VAR: uri,
        REGISTRY_STORE_URI_ENV_VAR: uri,
        ARTIFACT_ROOT_ENV_VAR: ARTIFACT_ROOT,
    }
    if SCHEME not in repositories.get_registered_artifact_repositories():  # a source tree without its entry points
        repositories.register(SCHEME, MarinArtifactRepository)
    handlers._tracking_store_registry.register(SCHEME, ServedTrackingStore)
    handlers._model_registry_store_registry.register(SCHEME, ServedRegistryStore)
    handlers.initialize_backend_stores(uri, uri, ARTIFACT_ROOT)
    app = Front(served, database)

    token = new_token()
    host, port = listener.getsockname()[:2]
    config = uvicorn.Config(
        Gate(app, token=token, host=host, port=port),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="on",
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment,method-assign]  # ours below: no second raise at the end
    address = address_of(listener)
    threading.Thread(
        target=_announce, args=(address, token, server, announce), daemon=True, name="marin-ui-health"
    ).start()
    with stopping(server):
        server.run(sockets=[listener])
    if not server.started:
        raise MarinError(
            "MLflow's server did not start", where=address, cure="see its message above, or try `marin sync` first"
        )


def _announce(address: str, token: str, server: object, announce: Callable[[str], None]) -> None:
    """Ask /health until it answers, then say so: a printed address works."""
    asked = urllib.request.Request(f"{address}/health", headers={"authorization": f"Bearer {token}"})  # noqa: S310
    deadline = time.monotonic() + HEALTH_SECONDS
    while time.monotonic() < deadline and not getattr(server, "should_exit", False):
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 - our own address
                if answer.status == 200:
                    announce(f"{address}/?token={token}")
                    return
        except OSError:
            time.sleep(0.05)
    _log.warning("no answer from %s/health within %.0f s", address, HEALTH_SECONDS)
