"""``marin://`` through MLflow's own client: list, download, verify, refuse."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from marin.history.projection.identity import Ids
from marin.plugins.mlflow.projection.follow import MlflowProjection
from marin.plugins.mlflow.projection.shelf import Shelves
from marin.plugins.mlflow.projection.sink import artifact_uri
from marin.plugins.mlflow.stores.repository import MarinArtifactRepository
from marin.record.root import open_root

from .dump import client
from .roots import make_artifacts, make_root, record
from .story import ORIGIN, Log, digest, whole_run

REPOSITORY = Path(__file__).parents[3]
RUN = Ids(ORIGIN).run("abcd2345")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    kept = {name: os.environ.get(name) for name in ("MARIN_ROOT", "MARIN_KEY")}
    root = make_root(folder)
    log = Log()
    whole_run(log, "abcd2345", steps=30, artifacts=make_artifacts(root, folder / "made"))
    record(root, log)
    projection = MlflowProjection(root.views() / "mlflow", root.reader())
    projection.catch_up()
    projection.close()
    for name, value in kept.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    return folder


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_ROOT", str(folder / "root"))
    monkeypatch.setenv("MARIN_KEY", str(folder / "key.pem"))


def run_artifacts() -> MarinArtifactRepository:
    return MarinArtifactRepository(f"marin://mlflow/1/{RUN}/artifacts")


def listed(repository: MarinArtifactRepository, path: str | None = None) -> dict[str, bool]:
    return {info.path: info.is_dir for info in repository.list_artifacts(path)}


def test_a_run_shows_its_pages_and_the_folders_of_its_steps():
    assert listed(run_artifacts()) == {
        "loss.png": False,
        "report.html": False,
        "record.json": False,
        "lineage.html": False,
        "data_order.html": False,
        **dict.fromkeys(("corpus", "tokenizer", "tokens", "train", "evaluate", "export"), True),
    }
    assert listed(run_artifacts(), "train") == {"train/checkpoint": True, "train/state.json": False}
    assert listed(run_artifacts(), "train/checkpoint") == {"train/checkpoint/d": True}
    assert listed(run_artifacts(), "corpus/train.jsonl") == {}
    assert listed(MarinArtifactRepository(f"marin://mlflow/1/{RUN}/artifacts/train/checkpoint")) == {"d": True}


def test_mlflow_lists_the_artifact_address_that_the_repository_answers(folder: Path):
    info = client(open_root(str(folder / "root")).views() / "mlflow").get_run(RUN).info
    assert info.artifact_uri == f"marin://mlflow/1/{RUN}/artifacts"


def test_files_and_folders_are_downloaded_as_they_were_stored(folder: Path, tmp_path: Path):
    got = Path(run_artifacts().download_artifacts("train", str(tmp_path)))
    want = folder / "made" / "train"
    assert {path.relative_to(got): path.read_bytes() for path in got.rglob("*") if path.is_file()} == {
        path.relative_to(want): path.read_bytes() for path in want.rglob("*") if path.is_file()
    }


def test_a_stored_artifact_has_an_address_of_its_own(folder: Path, tmp_path: Path):
    manifest = Shelves(open_root(str(folder / "root")).views() / "mlflow").read(RUN).mounts["export"]
    repository = MarinArtifactRepository(artifact_uri(manifest))
    assert listed(repository) == {"config.json": False}
    got = Path(repository.download_artifacts("config.json", str(tmp_path)))
    assert got.read_text() == '{"model_type": "llama"}'


def test_a_flipped_byte_in_the_store_is_not_handed_out(folder: Path, tmp_path: Path):
    blobs = [
        path
        for path in (folder / "root" / "store" / "blobs").rglob("*")
        if path.is_file() and path.read_bytes() == b"0" * 5000
    ]
    (blob,) = blobs
    blob.chmod(0o644)
    blob.write_bytes(b"0" * 4999 + b"1")
    try:
        with pytest.raises(MlflowException, match=r"expected .*found") as caught:
            run_artifacts().download_artifacts("train/checkpoint/d/0", str(tmp_path))
    finally:
        blob.write_bytes(b"0" * 5000)
    assert "differ" in str(caught.value)


@pytest.mark.parametrize("path", ["../../../../etc/passwd", "corpus/../../key.pem", "/etc/passwd", "corpus/\x00"])
def test_a_path_that_leaves_the_artifact_is_refused(path: str, tmp_path: Path):
    with pytest.raises(MlflowException):
        run_artifacts()._download_file(path, str(tmp_path / "out"))
    with pytest.raises(MlflowException):
        run_artifacts().list_artifacts(path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "uri",
    [
        "marin://mlflow/1/../../artifacts",
        "marin://elsewhere/x",
        f"marin://artifact/{'0' * 64}",
        "marin://artifact/zz",
        "marin://mlflow/1/models/m-..%2f..%2fx/artifacts",
    ],
)
def test_addresses_that_name_nothing_say_so(uri: str, tmp_path: Path):
    with pytest.raises(MlflowException):
        MarinArtifactRepository(uri)._download_file("config.json", str(tmp_path / "out"))


def test_what_a_run_has_not_is_named_with_what_it_has(tmp_path: Path):
    with pytest.raises(MlflowException, match=r"no such artifact: nothing\.txt: expected .*report\.html"):
        run_artifacts()._download_file("nothing.txt", str(tmp_path / "out"))


def test_what_is_logged_goes_into_the_store_and_the_ledger(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MARIN_KEY", str(folder / "key.pem"))
    stranger = MarinArtifactRepository(f"marin://mlflow/0/{'ef' * 16}/artifacts")
    assert listed(stranger) == {}
    (tmp_path / "made" / "deep").mkdir(parents=True)
    (tmp_path / "made" / "deep" / "table.csv").write_text("a,b\n")
    (tmp_path / "made" / "note.txt").write_text("one")
    stranger.log_artifacts(str(tmp_path / "made"))
    (tmp_path / "made" / "note.txt").write_text("two")
    stranger.log_artifact(str(tmp_path / "made" / "note.txt"))
    stranger.log_artifact(str(tmp_path / "made" / "note.txt"), "copies/of it")
    assert listed(stranger) == {"deep": True, "note.txt": False, "copies": True}
    assert listed(stranger, "deep") == {"deep/table.csv": False}
    assert Path(stranger.download_artifacts("note.txt", str(tmp_path))).read_text() == "two"
    assert (Path(stranger.download_artifacts("", str(tmp_path))) / "copies" / "of it" / "note.txt").read_text() == "two"
    event = open_root().reader().event(open_root().reader().checkpoint().size - 1)
    assert (event.type, event.stream, event.body["values"]["path"]) == (
        "tracking.logged/v1",
        f"tracking/{'ef' * 16}",
        "copies/of it/note.txt",
    )


def test_what_is_stored_does_not_change_or_go(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(MlflowException, match="do not change"):
        MarinArtifactRepository(artifact_uri(digest("x"))).log_artifact(str(tmp_path / "file"))
    with pytest.raises(MlflowException, match="not deleted"):
        run_artifacts().delete_artifacts()
    with pytest.raises(MlflowException, match="invalid path"):
        run_artifacts().log_artifact(str(tmp_path / "file"), "../..")


def test_a_range_is_read_and_verified():
    assert run_artifacts().read_range("train/checkpoint/d/0", 4990, 100) == b"0" * 10


def test_bytes_that_are_not_here_are_listed_and_named_when_opened(folder: Path, tmp_path: Path):
    with (
        contextlib.closing(
            sqlite3.connect(open_root(str(folder / "root")).views() / "mlflow" / "mlflow.db")
        ) as connection,
        connection,
    ):
        mounts = json.dumps({"gone": digest("gone")})
        connection.execute("INSERT INTO marin_shelf VALUES (?, '', 0, ?, '[]')", ("ab" * 16, mounts))
    lost = MarinArtifactRepository(f"marin://mlflow/1/{'ab' * 16}/artifacts")
    assert listed(lost) == {"gone": True}
    with pytest.raises(MlflowException, match="sha256:"):
        lost.list_artifacts("gone")


def test_the_entry_point_names_the_class():
    points = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"]
    module, name = points["mlflow.artifact_repository"]["marin"].split(":")
    assert getattr(import_module(module), name) is MarinArtifactRepository


@pytest.mark.long
def test_mlflows_client_finds_us_by_the_entry_point(folder: Path, tmp_path: Path):
    """In a fresh process, with an entry point as an installation leaves it and nothing of ours imported."""
    info = tmp_path / "marin_test-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: marin-test\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[mlflow.artifact_repository]\nmarin = marin.plugins.mlflow.stores.repository:MarinArtifactRepository\n"
    )
    script = (
        "import mlflow; print(open(mlflow.artifacts.download_artifacts("
        f"'marin://mlflow/1/{RUN}/artifacts/export/config.json', dst_path={str(tmp_path)!r})).read())"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:mlflow", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.strip() == '{"model_type": "llama"}', done.stderr[-2000:]
