"""`marin export`: real tools take what it writes: `dvc pull`, `model_signing verify`; layouts agree with themselves."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger import Draft
from marin.history.runs import stream_of
from marin.record import events
from marin.record.root import open_root

Marin = Any
BIN = Path(sys.executable).parent
MODEL = {"config.json": b'{"a": 1}\n', "model.safetensors": bytes(range(256)) * 99, "tokenizer.json": b"{}\n"}


@pytest.fixture
def made(root: Path, run: str, tmp_path: Path) -> str:
    """A run whose export is a folder, beside the steps of `run`."""
    opened = open_root()
    for name, data in MODEL.items():
        (tmp_path / "made" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "made" / name).write_bytes(data)
    tree = opened.store().put_tree(tmp_path / "made")
    file = opened.store().put_bytes(b"model").digest
    value = events.Output(kind="value", digest=file, size=5, artifact=file)
    model = events.Output(kind="model", digest=tree.digest, size=tree.size, artifact=tree.digest)
    for step, output in {"train": value, "evaluate": value, "export": model}.items():
        body = events.StepCompleted(
            run=run, step=step, identity="sha256:" + "1" * 64, inputs={}, output=output, metrics={}, seconds=1.0
        )
        opened.append([Draft(events.STEP_COMPLETED, stream_of(run), events.write(body))])
    return run


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_hugging_face_folder(marin: Marin, made: str, tmp_path: Path) -> None:
    assert marin("export", made, "--hf", tmp_path / "hf").status == 0
    assert files(tmp_path / "hf") == MODEL
    assert marin("export", "--hf", tmp_path / "hf", "--json").json["export"] == "hf", "a second time changes nothing"
    (tmp_path / "hf" / "config.json").write_bytes(b"mine")
    assert marin("export", "--hf", tmp_path / "hf").status == 1
    assert (tmp_path / "hf" / "config.json").read_bytes() == b"mine"


@pytest.mark.long
def test_dvc_pull_takes_it(marin: Marin, made: str, tmp_path: Path) -> None:
    assert marin("export", "--dvc", tmp_path / "dvc").status == 0
    project = tmp_path / "project"
    project.mkdir()

    def dvc(*arguments: str) -> str:
        done = subprocess.run([BIN / "dvc", *arguments], cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    dvc("init", "--no-scm", "-q")
    dvc("remote", "add", "-d", "marin", str(tmp_path / "dvc" / "remote"))
    for name in ("export", "train"):
        (project / f"{name}.dvc").write_bytes((tmp_path / "dvc" / f"{name}.dvc").read_bytes())
    dvc("pull")
    assert files(project / "export") == MODEL
    assert (project / "train").read_bytes() == b"model"
    assert "up to date" in dvc("status")


def test_the_model_signing_tool_verifies(marin: Marin, made: str, tmp_path: Path) -> None:
    key, public, signature, model = (tmp_path / name for name in ("key.pem", "public.pem", "model.sig", "model"))
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True)
    subprocess.run(["openssl", "ec", "-in", key, "-pubout", "-out", public], check=True, capture_output=True)
    assert marin("export", "--hf", model, "--model-signing", signature, "--signing-key", key).status == 0

    def verify() -> int:
        arguments = ["verify", "key", model, "--signature", signature, "--public_key", public]
        return subprocess.run([BIN / "model_signing", *arguments], capture_output=True, check=False).returncode

    assert verify() == 0
    (model / "config.json").write_bytes(b'{"a": 2}\n')
    assert verify() != 0
    assert list(tmp_path.glob(".tmp-*")) == []


def test_keys_that_cannot_sign(marin: Marin, made: str, tmp_path: Path) -> None:
    missing = marin("export", "--model-signing", tmp_path / "s", "--signing-key", tmp_path / "none.pem")
    assert missing.status == 3
    assert "openssl" in missing.err
    (tmp_path / "bad.pem").write_text("no key")
    assert marin("export", "--model-signing", tmp_path / "s", "--signing-key", tmp_path / "bad.pem").status == 2
    assert marin("export", "--model-signing", tmp_path / "s").status == 2
    assert marin("export").status == 2
    assert not (tmp_path / "s").exists()


def test_oci_layout(marin: Marin, made: str, tmp_path: Path) -> None:
    layout = tmp_path / "oci"
    for _ in range(2):
        assert marin("export", "--oci", layout).status == 0
    assert json.loads((layout / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}

    def blob(descriptor: dict[str, Any]) -> bytes:
        data = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"]
        assert len(data) == descriptor["size"]
        return data

    (described,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    manifest = json.loads(blob(described))
    assert blob(manifest["config"]) == b"{}"
    layers = {layer["annotations"]["org.opencontainers.image.title"]: blob(layer) for layer in manifest["layers"]}
    assert layers == MODEL
    assert len(list((layout / "blobs" / "sha256").iterdir())) == len(MODEL) + 2
