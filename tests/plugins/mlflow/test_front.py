"""What MLflow's application is imported without, and that what asks for it gets it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from marin.plugins.mlflow.server import front, serve
serve.prepare("/nowhere")
app = front.application()
assert not set(front.NOT_IMPORTED) & set(sys.modules), "imported"
served = sys.modules["mlflow.server.fastapi_app"]
assert not [*served.assistant_router.routes, *served.gateway_router.routes, *served.job_api_router.routes]
assert served.artifact_router.routes and app is served.app

from mlflow.server.handlers import Model
inputs = '[{"type": "long", "name": "x", "required": true}]'
model = Model.from_dict({"artifact_path": "m", "flavors": {}, "run_id": "r", "signature": {"inputs": inputs, "outputs": None}})
assert model.signature.to_dict()["inputs"] == inputs
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import Schema
assert isinstance(model.signature, ModelSignature) and isinstance(model.signature.inputs, Schema)
import mlflow
assert not hasattr(mlflow.types, "nothing") and not hasattr(mlflow.models, "nothing")
import mlflow.gateway.providers.utils, mlflow.server.gateway_api
assert mlflow.server.gateway_api.gateway_router.routes
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
hdfs = get_artifact_repository("hdfs://host:8020/folder")
assert sys.modules[type(hdfs).__module__].HadoopFileSystem.__module__.startswith("pyarrow")
"""


@pytest.mark.long(seconds=8)
def test_who_asks_for_what_the_server_does_not_import_gets_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
