"""Attestations as requests to a Rekor v2: what is written, and what somebody with the folder and the log's key finds wrong."""

import base64
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ledger import Draft, LedgerError, Refused, Tampered, Unverified, VerifierKey, load_attestation_key
from marin.history.run import Run
from marin.history.runs import load, resolve, stream_of
from marin.plugins.sharing.in_toto import payloads
from marin.plugins.sharing.rekor import check, entry, judge, write_requests
from marin.record import events
from marin.record.creation import create_root
from marin.record.keys import revoke, vouch
from marin.record.root import Root, open_root
from marin.record.trust.keyfiles import attestation_key_path
from tests.marin.conftest import own_folders

RUN = "2khr7ocq"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Root, Run, Path]:
    """A small run, and the folder of its attestations."""
    folder = tmp_path_factory.mktemp("rekor")
    with pytest.MonkeyPatch.context() as patch:
        own_folders(folder, patch)
        patch.setenv("MARIN_KEY", str(folder / "key"))
        root = create_root(str(folder / ".marin"), origin="test.example/log")
        (folder / "model").write_bytes(b"weights")
        stored = root.store().put_file(folder / "model")
        output = events.Output(kind="model", digest=stored.digest, size=7, artifact=stored.digest)
        started = events.RunStarted(
            run=RUN,
            pipeline="default",
            plan="sha256:" + "a" * 64,
            recipe_digest="sha256:" + "b" * 64,
            recipe={"dataset": {"name": "grammar"}},
            code={"commit": "c0ffee"},
            environment={"cores": 2},
        )
        completed = [
            events.StepCompleted(
                run=RUN, step=step, identity="sha256:" + digit * 64, inputs={}, output=output, metrics={}, seconds=1.0
            )
            for step, digit in (("corpus", "1"), ("export", "2"))
        ]
        root.append([Draft(events.RUN_STARTED, stream_of(RUN), events.write(started))])
        for step in completed:
            root.append([Draft(events.STEP_COMPLETED, stream_of(RUN), events.write(step))])
        run = load(root.history(), resolve(root.history(), "latest"))
        key, proof = vouch(root)
        assert write_requests(run, root.verifier, load_attestation_key(key), proof, folder / "out") == 2
    return root, run, folder / "out"


def test_the_folder_stands_alone(written: tuple[Root, Run, Path]) -> None:
    root, run, folder = written
    vouched, found = check(folder, [root.verifier])
    assert found == payloads(run, root.verifier)
    assert (folder / "key.pem").read_bytes() == vouched.pem


def test_requests_are_over_the_envelope_as_the_specifications_say(written: tuple[Root, Run, Path]) -> None:
    """Put together from the texts of DSSE and of Rekor's protocol, and not by what wrote them."""
    _, _, folder = written
    key = serialization.load_pem_public_key((folder / "key.pem").read_bytes())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    for number in (0, 1):
        envelope = json.loads((folder / f"{number}.intoto.json").read_bytes())
        asked = json.loads((folder / f"{number}.rekor.json").read_bytes())["hashedRekordRequestV002"]
        body, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"]
        signed = f"DSSEv1 {len(kind)} {kind} {len(body)} ".encode() + body
        assert base64.b64decode(asked["digest"]) == hashlib.sha256(signed).digest()
        assert asked["signature"]["content"] == envelope["signatures"][0]["sig"]
        assert asked["signature"]["verifier"]["keyDetails"] == "PKIX_ECDSA_P256_SHA_256"
        der = base64.b64decode(asked["signature"]["verifier"]["publicKey"]["rawBytes"])
        assert serialization.load_der_public_key(der) == key
        key.verify(base64.b64decode(asked["signature"]["content"]), signed, ec.ECDSA(hashes.SHA256()))


def test_an_entry_has_one_form() -> None:
    assert entry(b"{}", b"sig", b"key") == (
        b'{"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":{"algorithm":"SHA2_256","digest":"'
        + base64.b64encode(hashlib.sha256(b"DSSEv1 28 application/vnd.in-toto+json 2 {}").digest())
        + b'"},"signature":{"content":"c2ln","verifier":{"keyDetails":"PKIX_ECDSA_P256_SHA_256",'
        b'"publicKey":{"rawBytes":"a2V5"}}}}}}'
    )


def test_every_changed_byte_is_found(written: tuple[Root, Run, Path], tmp_path: Path) -> None:
    """Of every tenth byte: of an envelope, a request, and the proof of the key."""
    root, _, folder = written
    for name in ("0.intoto.json", "1.rekor.json", "key.tlog-proof"):
        whole = (folder / name).read_bytes()
        for file in folder.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        for at in range(0, len(whole) - 1, 10):
            changed = bytearray(whole)
            changed[at] ^= 1
            (tmp_path / name).write_bytes(changed)
            with pytest.raises(LedgerError):
                check(tmp_path, [root.verifier])
    other = VerifierKey(root.verifier.name, root.verifier.algorithm, bytes(32))
    with pytest.raises(Unverified):
        check(folder, [other])


def test_no_other_key_is_written(written: tuple[Root, Run, Path], tmp_path: Path) -> None:
    root, run, _ = written
    stranger = ec.generate_private_key(ec.SECP256R1())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_KEY", str(root.storage.local_path("x").parent.parent / "key"))  # type: ignore[union-attr]
        key, proof = vouch(root)
    with pytest.raises(Tampered):
        write_requests(run, root.verifier, stranger, proof, tmp_path)
    (tmp_path / "7.intoto.json").write_text("of another run")
    with pytest.raises(Refused):
        write_requests(run, root.verifier, load_attestation_key(key), proof, tmp_path)


def test_a_revoked_key_counts_no_more_where_the_log_is_at_hand(
    written: tuple[Root, Run, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(written[0].location, tmp_path / "root")
    monkeypatch.setenv("MARIN_KEY", str(written[2].parent / "key"))
    monkeypatch.setenv("MARIN_PINS", str(tmp_path / "pins"))
    folder, root = written[2], open_root(str(tmp_path / "root"))
    monkeypatch.setenv("MARIN_ROOT", root.location)
    vouched, found, known = judge(folder, [root.verifier])
    assert len(found) == 2 and "the log at hand" in known[0]
    place = attestation_key_path(root.verifier.name)
    old = place.read_bytes()
    index = revoke(root, vouched.index)
    with pytest.raises(Unverified, match=f"the log revoked the key.*event {index}"):
        judge(folder, [root.verifier])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARIN_ROOT")
    *_, known = judge(folder, [root.verifier])
    assert "is unknown" in known[-1], "a folder alone cannot show it"
    key, proof = vouch(root)
    assert key == place and place.read_bytes() != old
    assert write_requests(written[1], root.verifier, load_attestation_key(key), proof, tmp_path / "again") == 2
    monkeypatch.setenv("MARIN_ROOT", root.location)
    assert len(judge(tmp_path / "again", [root.verifier])[1]) == 2
    place.write_bytes(old)
