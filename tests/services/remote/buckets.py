"""Buckets for tests: S3 by moto's server, GCS by the stub, a folder over http; fixtures that tests/conftest.py offers.

A `Bucket` is empty, of its own name, and reachable by `open_storage(bucket.url)` in this process and in those that it
starts: the environment has the endpoint and credentials until the test ends. `bucket.service.faults` spoils answers.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gcs_stub import GcsStub
from http_faults import Application, Service, serving
from werkzeug import Response
from werkzeug.middleware.shared_data import SharedDataMiddleware

_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Bucket:
    """One empty bucket: its address for clients, the service behind it, and (for GCS) the objects themselves."""

    url: str
    name: str
    service: Service
    stub: GcsStub | None = None


@pytest.fixture(scope="session")
def s3_service() -> Iterator[Service]:
    """Moto's S3."""
    from moto.server import DomainDispatcherApplication, create_backend_app

    application: Application = DomainDispatcherApplication(create_backend_app)
    with serving(application) as service:
        yield service


@pytest.fixture(scope="session")
def gcs_service() -> Iterator[tuple[Service, GcsStub]]:
    """The stub."""
    stub = GcsStub()
    with serving(stub) as service:
        yield service, stub


@pytest.fixture
def s3(s3_service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty S3 bucket."""
    import urllib.request

    name = f"marin-{next(_NUMBERS)}"
    for key, value in {
        "AWS_ENDPOINT_URL": s3_service.address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(key, value)
    for key in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(key, raising=False)
    request = urllib.request.Request(f"{s3_service.address}/{name}", method="PUT", headers={"Host": "s3.amazonaws.com"})
    urllib.request.urlopen(request).close()
    s3_service.requests.clear()
    yield Bucket(f"s3://{name}", name, s3_service)
    s3_service.faults.clear()


@pytest.fixture
def gcs(
    gcs_service: tuple[Service, GcsStub], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bucket]:
    """An empty GCS bucket, for obstore, gcsfs (STORAGE_EMULATOR_HOST) and TensorStore."""
    service, stub = gcs_service
    name = f"marin-{next(_NUMBERS)}"
    account = tmp_path_factory.mktemp("gcs") / "account.json"
    account.write_text(
        json.dumps(
            {
                "gcs_base_url": service.address,
                "disable_oauth": True,
                "client_email": "",
                "private_key": "",
                "private_key_id": "",
            }
        )
    )
    for key in [key for key in os.environ if key.startswith("GOOGLE_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(account))
    monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.address)
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", service.address)
    service.requests.clear()
    yield Bucket(f"gs://{name}", name, service, stub)
    service.faults.clear()
    stub.page = 1000


@pytest.fixture(params=["s3", "gcs"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """Each of both."""
    found: Bucket = request.getfixturevalue(request.param)
    return found


@dataclass(frozen=True)
class Mirror:
    """A folder that is published over http on the loopback interface."""

    url: str
    folder: Path
    service: Service


@pytest.fixture
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """An empty folder, and the address that it is read by (no ranges, no listing: the plainest server there is)."""
    folder = tmp_path_factory.mktemp("mirror")
    with serving(SharedDataMiddleware(Response(status=404), {"/": str(folder)}, cache=False)) as service:
        yield Mirror(service.address, folder, service)
