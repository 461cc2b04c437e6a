"""MLflow's application as `marin ui` serves it: the pages begin at the newest runs, and what is not here is not offered.

The server's routers for its assistant (which can run a shell), its gateway to models elsewhere and its jobs are not
mounted. Its page is MLflow's own with a script and a style sheet of ours before its scripts (``front.js``, ``front.css``):
they lead ``/`` to the run list of the newest experiment, choose the columns of a list that nobody has arranged, and hide
what would lead nowhere. Demo data and usage data of the page have no place in a ledger; they are not found.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import json
import sqlite3
import sys
import types
import urllib.parse
import warnings
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from marin.history.table.varied import NAMED
from marin.plugins.mlflow.folding.experiments import VARIED_TAG
from marin.plugins.mlflow.folding.lifecycle import COMMANDS
from marin.plugins.mlflow.server.gate import Application, Receive, Scope, Send

COLUMNS = {
    "metrics.`evaluate.loss`": 100,
    "metrics.`loop.loss_last`": 100,
    "tags.`marin.verified`": 150,
    "metrics.`evaluate.perplexity`": 142,
    "tags.`marin.model`": 100,
    "tags.`marin.data`": 88,
    "params.`seed`": 52,
}
"""What a run list shows beside name, time and duration, and how wide, in pixels."""
MOST_VARIED = 5
"""So many keys that set runs apart have a column of a list that nobody has arranged."""
NOT_IMPORTED = ("numpy", "pandas", "polars", "pyarrow", "pygments", "scipy")
"""What MLflow imports where it is installed, for the data sets and models of a client; mlflow-skinny does without. 120 MB."""
ABSENT = ("/assistant", "/demo", "/ui-telemetry", "/gateway", "/jobs")
"""What follows ``mlflow`` or ``ajax-api/3.0`` in the addresses that are not found, whichever router would answer."""
_HERE = Path(__file__).parent


def application() -> Application:
    """MLflow's own application without the routers that are not mounted. MLflow has its settings by now, and is imported here,
    as where :data:`NOT_IMPORTED` is not installed; what asks for one of these later gets it."""
    from fastapi import APIRouter

    router = APIRouter()
    # What is not mounted is not imported either: a model's server, an assistant with a shell.
    others: dict[str, dict[str, Any]] = {
        "mlflow.assistant.providers.base": {"assistant_sandbox_enabled": lambda: False},
        "mlflow.gateway.providers.utils": {"provider_call_duration_ms": ContextVar("duration", default=0.0)},
        "mlflow.server.assistant.api": {"assistant_router": router},
        "mlflow.server.gateway_api": {"gateway_router": router},
        "mlflow.server.job_api": {"job_api_router": router},
    }
    modules: dict[str, Any] = {name: None for name in NOT_IMPORTED if name not in sys.modules}  # imports are refused
    for name, values in others.items():
        modules[name] = types.ModuleType(name)
        vars(modules[name]).update(values)
    sys.modules.update(modules)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's own use of what Starlette deprecates
            from mlflow.server.fastapi_app import app
    finally:
        for name in modules:
            del sys.modules[name]
    import mlflow.models
    import mlflow.types
    from mlflow.store.artifact import hdfs_artifact_repo
    from mlflow.store.artifact.artifact_repository_registry import _artifact_repository_registry as repositories

    for package in (mlflow.models, mlflow.types):
        vars(package)["__getattr__"] = partial(_imported_again, package)

    def hdfs(*given: Any, **named: Any) -> Any:
        return importlib.reload(hdfs_artifact_repo).HdfsArtifactRepository(*given, **named)

    for scheme in ("hdfs", "viewfs"):  # this module has names of pyarrow's, if that is there when it is imported
        repositories.register(scheme, hdfs)
    repositories.register_entrypoints()  # once more: somebody's may need what was absent
    return cast("Application", app)


def _imported_again(package: types.ModuleType, name: str) -> Any:
    """A name of a package that was imported without: it is imported again, with what is installed."""
    if name.startswith("__") or vars(package).pop("__getattr__", None) is None:
        raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
    return getattr(importlib.reload(package), name)


class Front:
    """ASGI middleware before MLflow's application ``inner``; ``database`` is the projection's."""

    def __init__(self, inner: Application, database: Path) -> None:
        from mlflow.server import REL_STATIC_DIR, app

        self._inner = inner
        self._database = database
        page = Path(app.root_path, REL_STATIC_DIR, "index.html").read_text(encoding="utf-8")
        self._before, self._after = page.split("<head>", 1)
        self._script = (_HERE / "front.js").read_text(encoding="utf-8")
        self._style = (_HERE / "front.css").read_text(encoding="utf-8")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
        elif path == "/" and scope["method"] in ("GET", "HEAD"):
            await _answer(send, HTTPStatus.OK, "text/html; charset=utf-8", self._page())
        elif path == "/graphql" and scope["method"] != "POST":
            await _answer(send, HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"asked by POST alone\n", allow=b"POST")
        elif _is_absent(path):
            await _answer(send, HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"not part of marin ui\n")
        else:
            await self._inner(scope, receive, send)

    def _page(self) -> bytes:
        number = newest_experiment(self._database)
        home = f"#/experiments/{number}/runs" if number is not None else "#/experiments"
        told = {"home": home, "columns": json.dumps(COLUMNS), "varied": json.dumps(varied_columns(self._database))}
        given = " ".join(f'data-{name}="{html.escape(value)}"' for name, value in told.items())
        ours = f"<script {given}>{self._script}</script><style>{self._style}</style>"
        return f"{self._before}<head>{ours}{self._after}".encode()


def newest_experiment(database: Path) -> int | None:
    """MLflow's number of the experiment whose run began last; None where no run has begun."""
    uri = f"file:{urllib.parse.quote(str(database))}?mode=ro"
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection,
    ):
        row = connection.execute(
            "SELECT experiment_id FROM runs JOIN experiments USING (experiment_id) WHERE runs.lifecycle_stage = 'active' "
            "AND experiments.name != ? ORDER BY start_time DESC, run_uuid LIMIT 1",
            (COMMANDS,),
        ).fetchone()
        return int(row[0]) if row is not None else None
    return None


def varied_columns(database: Path) -> dict[str, dict[str, int]]:
    """By MLflow's number of an experiment the columns, and how wide, of the keys that set its runs apart."""
    uri = f"file:{urllib.parse.quote(str(database))}?mode=ro"
    found: dict[str, dict[str, int]] = {}
    with (
        contextlib.suppress(sqlite3.Error, ValueError),
        contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection,
    ):
        asked = "SELECT experiment_id, value FROM experiment_tags WHERE key = ?"
        for number, keys in connection.execute(asked, (VARIED_TAG,)):
            told = {
                f"params.`{key}`": max(110, 7 * len(key) + 20)
                for key in json.loads(keys)[:MOST_VARIED]
                if key not in NAMED
            }
            found[str(number)] = {name: width for name, width in told.items() if name not in COLUMNS}
    return found


def _is_absent(path: str) -> bool:
    parts = path.rstrip("/") + "/"
    return any(f"/mlflow{name}/" in parts or f"/ajax-api/3.0{name}/" in parts for name in ABSENT) or parts.startswith(
        "/gateway/"
    )


async def _answer(send: Send, status: HTTPStatus, kind: str, body: bytes, **more: bytes) -> None:
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *((name.encode(), value) for name, value in more.items()),
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
