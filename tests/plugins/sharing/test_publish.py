"""`marin publish` to buckets: said before what goes over, cut off in the middle, gone on with, shown by a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import obstore
import pytest
from buckets import Bucket
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from http_faults import Fault
from obstore.store import from_url
from recorded import RUN, record_run

from ledger import LogReader, Storage, open_storage
from marin.history.runs import load
from marin.plugins.sharing.dossier.judge import judge_dossier
from marin.record.root import open_root

Marin = Any
PEM = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


@pytest.fixture
def signing(tmp_path: Path) -> Path:
    (tmp_path / "key.pem").write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*PEM))
    return tmp_path / "key.pem"


def fetched(storage: Storage, folder: str, to: Path) -> Path:
    for name in storage.list(f"{folder}/"):
        place = to / name.removeprefix(f"{folder}/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(storage.read(name))
    return to


@pytest.mark.long
def test_a_bucket_is_published_to_and_goes_on_where_it_was_cut_off(
    marin: Marin, root: Path, bucket: Bucket, tmp_path: Path, signing: Path
) -> None:
    """With the weights in the dossier, so that a publication has more files than one request."""
    (tmp_path / "files").mkdir()
    record_run(open_root(), tmp_path / "files", trained={})
    address = f"{bucket.url}/site"
    planned = marin("publish", RUN, "--to", address, "--dry-run", "--json").json
    assert (planned["sent"], planned["there"]) == (5, 0)
    assert not bucket.service.asked("PUT")
    bucket.service.faults.add(Fault.STATUS, method="PUT", path="dossiers/", status=403, skip=3)
    broken = marin("publish", RUN, "--to", address, "--signing-key", signing)
    assert broken.status not in (0, 70) and "Traceback" not in broken.err, broken.err
    assert "5 files of the store" in broken.err
    storage = open_storage(address, readonly=True)
    assert not storage.exists(f"runs/{RUN}/index.html") and not storage.exists("log/checkpoint")
    bucket.service.faults.clear()
    done = marin("publish", RUN, "--to", address, "--signing-key", signing, "--json").json
    assert (done["sent"], done["there"]) == (0, 5), "what had arrived is not sent again"
    here = open_root()
    assert LogReader(storage, [here.verifier]).checkpoint() == here.reader().checkpoint()
    verdicts = judge_dossier(
        fetched(storage, f"dossiers/{dossier_of(storage)}", tmp_path / "dossier"), [here.verifier]
    ).verdicts
    assert [verdicts[name].outcome for name in ("files", "events", "fields", "model")] == ["PASS"] * 4
    kinds = [kind_of(bucket, f"site/{name}") for name in ("index.html", f"dossiers/{dossier_of(storage)}/fields.json")]
    assert kinds == ["text/html; charset=utf-8", "application/json"]
    loss = load(here.history(), RUN).measured["loss"]
    assert f"<td>{loss:.4f}</td>" in storage.read("index.html").decode(), "the front has the numbers"


def test_a_missing_key_is_said_before_anything_is_sent(
    marin: Marin, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    record_run(open_root(), tmp_path / "files", trained={})
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "gone.key"))
    for dry in ([], ["--dry-run"]):
        said = marin("publish", RUN, "--to", tmp_path / "site", *dry)
        assert said.status == 3 and "there is no signing key" in said.err and "files of the store" not in said.err
    assert not (tmp_path / "site").exists()


def test_an_address_that_no_stranger_could_verify_is_refused_before_anything_is_sent(
    marin: Marin, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    record_run(open_root(), tmp_path / "files", trained={})
    said = marin("publish", RUN, "--to", tmp_path / "site", "--address", "http://lab.example/site")
    assert (
        said.status == 2
        and "expected https://, or http:// of localhost" in said.err
        and not (tmp_path / "site").exists()
    )


def dossier_of(storage: Storage) -> str:
    page = storage.read(f"runs/{RUN}/index.html").decode()
    return page.partition("dossiers/")[2][:64]


def kind_of(bucket: Bucket, name: str) -> str:
    """What a browser is told of an object."""
    return str(obstore.get(from_url(bucket.url), name).attributes["Content-Type"])
