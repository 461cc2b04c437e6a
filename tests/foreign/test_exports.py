"""Verifiers of others judge what `marin export` and time stamps give out."""

import base64
import json
import shutil
from pathlib import Path

import judges
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from programs import ask
from time_authority import serving_authority

from ledger import Draft, Log, LogReader, Signer, create_key, stamp_checkpoint
from marin.history.runs import load, resolve, stream_of
from marin.plugins.sharing.in_toto import bundle
from marin.plugins.sharing.model_signing import sign_model
from marin.plugins.sharing.oci import write_oci
from marin.record import events
from marin.record.creation import create_root
from tests.ledger.memory import MemoryStorage

MODEL = {"config.json": b'{"a": 1}\n', "model.safetensors": bytes(range(256)) * 99, "tokenizer.json": b"{}\n"}
PROVENANCE = "https://slsa.dev/provenance/v1"
PEM = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


class Exported:
    """What one small run gives out, in a folder: attestations, a signed model, an OCI layout; and keys in PEM."""

    def __init__(self, folder: Path) -> None:
        root = create_root(str(folder / ".marin"), origin="test.example/log")
        for name, data in MODEL.items():
            (folder / "model").mkdir(exist_ok=True)
            (folder / "model" / name).write_bytes(data)
        tree = root.store().put_tree(folder / "model")
        output = events.Output(kind="model", digest=tree.digest, size=tree.size, artifact=tree.digest)
        started = events.RunStarted(
            run="2khr7ocq",
            pipeline="default",
            plan="sha256:" + "a" * 64,
            recipe_digest="sha256:" + "b" * 64,
            recipe={"dataset": {"name": "grammar"}},
            code={"commit": "c0ffee"},
            environment={"cores": 2},
        )
        completed = events.StepCompleted(
            run="2khr7ocq",
            step="export",
            identity="sha256:" + "1" * 64,
            inputs={},
            output=output,
            metrics={},
            seconds=1.0,
        )
        for kind, body in ((events.RUN_STARTED, started), (events.STEP_COMPLETED, completed)):
            root.append([Draft(kind, stream_of("2khr7ocq"), events.write(body))])
        run = load(root.history(), resolve(root.history(), "latest"))
        self.folder, self.root = folder, root
        self.envelope = json.loads(bundle(run, root.signer()).splitlines()[0])
        self.subject = folder / "manifest.json"  # the bytes whose sha256 the attestation names
        hexadecimal = tree.digest.removeprefix("sha256:")
        self.subject.write_bytes(
            (folder / ".marin/store/trees/sha256" / hexadecimal[:2] / hexadecimal[2:]).read_bytes()
        )
        self.public = self.write("log.pem", ed25519.Ed25519PublicKey.from_public_bytes(root.verifier.public))
        self.keyid = str(root.verifier)
        self.stranger = self.write("stranger.pem", ed25519.Ed25519PrivateKey.generate().public_key())
        key = ec.generate_private_key(ec.SECP256R1())
        private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / "model.key").write_bytes(key.private_bytes(*private))
        self.model_public = self.write("model.pem", key.public_key())
        self.model_stranger = self.write("other.pem", ec.generate_private_key(ec.SECP256R1()).public_key())
        self.signature = folder / "model.sig"
        sign_model(root.store(), output, folder / "model.key", self.signature)
        self.layout = folder / "oci"
        write_oci(root.store(), output, self.layout, reference="model")

    def write(self, name, key):
        (self.folder / name).write_bytes(key.public_bytes(*PEM))
        return self.folder / name

    def sigstore(self, envelope=None):
        """An envelope in the wrapping in which Sigstore's tools read it."""
        envelope = envelope or self.envelope
        wrapped = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": self.keyid}},
            "dsseEnvelope": {**envelope, "signatures": [{"sig": one["sig"]} for one in envelope["signatures"]]},
        }
        (self.folder / "bundle.json").write_text(json.dumps(wrapped))
        return self.folder / "bundle.json"

    def altered(self):
        """Envelopes with something changed: (what, envelope)."""
        payload = base64.b64decode(self.envelope["payload"])
        for what, old, new in (
            ("another input", b'"sha256": "', b'"sha256": "f'),
            ("another subject", b'"name": "export"', b'"name": "exporT"'),
        ):
            changed = payload.replace(old, new, 1)
            assert changed != payload
            yield what, self.envelope | {"payload": base64.b64encode(changed).decode()}
        signature = bytearray(base64.b64decode(self.envelope["signatures"][0]["sig"]))
        signature[-1] ^= 1
        sig = [{**self.envelope["signatures"][0], "sig": base64.b64encode(signature).decode()}]
        yield "another bit in the signature", self.envelope | {"signatures": sig}
        yield "another payload type", self.envelope | {"payloadType": "application/json"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("exported")
        patch.setenv("MARIN_KEY", str(folder / "key"))
        yield Exported(folder)


def judge_an_envelope(judged, exported, verify, *, subject=True):
    """`verify(bundle, public key, subject)` must take our attestation and none that was altered."""
    status, said = verify(exported.sigstore(), exported.public, exported.subject)
    assert status == 0, said
    judged.accepts(
        "an attestation of a step, signed by the log's key" + (", for the model's manifest" if subject else "")
    )
    assert verify(exported.sigstore(), exported.stranger, exported.subject)[0] != 0
    for what, envelope in exported.altered():
        status, said = verify(exported.sigstore(envelope), exported.public, exported.subject)
        assert status != 0, (what, said)
    judged.refuses("the same under another key; with another input, subject, signature or payload type")
    if subject:
        other = exported.folder / "other.json"
        other.write_bytes(exported.subject.read_bytes() + b" ")
        assert verify(exported.sigstore(), exported.public, other)[0] != 0
        judged.refuses("a manifest with a byte more")


def test_cosign(exported, judge):
    cosign = judges.room("cosign") / "usr/bin/cosign"
    judged = judge("cosign", judges.version("cosign"))
    offline = {"HOME": str(exported.folder), "TUF_ROOT": str(exported.folder / "tuf")}

    def verify(file, key, subject):
        options = ["--insecure-ignore-tlog", "--type", PROVENANCE, "--key", key, "--bundle", file]
        return ask(cosign, "verify-blob-attestation", *options, subject, env=offline)

    judge_an_envelope(judged, exported, verify)
    options = ["--insecure-ignore-tlog", "--check-claims=false", "--type", "https://model_signing/signature/v1.0"]
    for key, fine in ((exported.model_public, True), (exported.model_stranger, False)):
        command = [cosign, "verify-blob-attestation", *options, "--key", key, "--bundle", exported.signature]
        status, said = ask(*command, exported.subject, env=offline)
        assert (status == 0) == fine, said
    judged.accepts("a model signature")
    judged.refuses("a model signature under another key")


def test_sigstore_js(exported, judge):
    node = shutil.which("node")
    if node is None:
        pytest.skip("@sigstore/verify needs node")
    script = """
const {Verifier, toSignedEntity, toTrustMaterial} = require('@sigstore/verify');
const {bundleFromJSON} = require('@sigstore/bundle');
const {createPublicKey} = require('crypto');
const fs = require('fs');
const [file, key] = process.argv.slice(1);
const found = {publicKey: createPublicKey(fs.readFileSync(key)), validFor: () => true};
const root = {certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: []};
const verifier = new Verifier(toTrustMaterial(root, () => found), {tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0});
verifier.verify(toSignedEntity(bundleFromJSON(JSON.parse(fs.readFileSync(file)))));
"""
    judged = judge("@sigstore/verify", judges.version("sigstore-js"))
    modules = {"NODE_PATH": str(judges.room("sigstore-js") / "node_modules")}

    def verify(file, key, _):
        return ask(node, "-e", script, file, key, env=modules)

    judge_an_envelope(judged, exported, verify, subject=False)


def test_securesystemslib(exported, judge):
    script = """
import json, sys
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
envelope = json.load(open(sys.argv[1]))["dsseEnvelope"]
key = SSlibKey.from_crypto(load_pem_public_key(open(sys.argv[2], "rb").read()), keyid=sys.argv[3])
envelope["signatures"][0]["keyid"] = key.keyid
Envelope.from_dict(envelope).verify([key], 1)
"""
    python = judges.room("python") / "bin/python"
    judged = judge("securesystemslib", judges.version("python", "securesystemslib"))

    def verify(file, key, _):
        return ask(python, "-c", script, file, key, exported.keyid)

    judge_an_envelope(judged, exported, verify, subject=False)


def test_in_toto_attestation(exported, judge):
    """Its validator says whether a payload is a statement, no matter who signed it."""
    script = """
import sys
from google.protobuf.json_format import Parse
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as Message
Statement.copy_from_pb(Parse(sys.stdin.buffer.read(), Message())).validate()
"""
    python = judges.room("python") / "bin/python"
    judged = judge("in-toto-attestation", judges.version("python", "in-toto-attestation"))
    payload = base64.b64decode(exported.envelope["payload"])
    status, said = ask(python, "-c", script, stdin=payload)
    assert status == 0, said
    judged.accepts("the statement about a step")
    for old, new in (
        (b"in-toto.io/Statement/v1", b"in-toto.io/Statement/v9"),
        (b'"subject"', b'"subjects"'),
        (b'"predicateType"', b'"predicatetype"'),
    ):
        assert old in payload, old
        assert ask(python, "-c", script, stdin=payload.replace(old, new))[0] != 0, new
    judged.refuses("a statement of another version, and one without subject or predicate type")


def test_model_signing(exported, tmp_path, judge):
    judged = judge("model-signing", judges.version("python", "model-signing"))
    model = tmp_path / "model"
    shutil.copytree(exported.folder / "model", model)

    def verify(key):
        python = judges.room("python") / "bin/python"
        options = ["--signature", exported.signature, "--public_key", key]
        return ask(python, "-m", "model_signing", "verify", "key", model, *options)

    status, said = verify(exported.model_public)
    assert status == 0, said
    judged.accepts("a signed model of three files")
    assert verify(exported.model_stranger)[0] != 0
    for name, data in (
        ("config.json", b"{}\n"),
        ("model.safetensors", MODEL["model.safetensors"][:-1]),
        ("evil.py", b""),
    ):
        (model / name).write_bytes(data)
        assert verify(exported.model_public)[0] != 0, name
        if name in MODEL:
            (model / name).write_bytes(MODEL[name])
        else:
            (model / name).unlink()
    (model / "tokenizer.json").unlink()
    assert verify(exported.model_public)[0] != 0
    judged.refuses("another file, a shorter file, a file more, a file less, another key")


def test_oras(exported, tmp_path, judge):
    oras = judges.room("oras") / "usr/bin/oras"
    judged = judge("oras", judges.version("oras"))
    status, said = ask(oras, "pull", "--oci-layout", f"{exported.layout}:model", "-o", tmp_path / "pulled")
    assert status == 0, said
    assert {path.name: path.read_bytes() for path in (tmp_path / "pulled").iterdir()} == MODEL
    judged.accepts("the OCI layout of a model; the files it pulls are the model's")
    blobs = sorted((exported.layout / "blobs/sha256").iterdir())
    for blob in blobs:
        if blob.read_bytes() == b"{}":  # the empty configuration, which is not pulled
            continue
        copy = tmp_path / blob.name
        shutil.copytree(exported.layout, copy)
        data = bytearray(blob.read_bytes())
        data[len(data) // 2] ^= 1
        (copy / "blobs/sha256" / blob.name).write_bytes(data)
        status, said = ask(oras, "pull", "--oci-layout", f"{copy}:model", "-o", tmp_path / f"{blob.name}-pulled")
        assert status != 0, said
    judged.refuses(f"the same with one bit flipped in the manifest or in any of {len(MODEL)} layers")


def test_openssl_ts(tmp_path, judge):
    judged = judge("openssl ts", ask("openssl", "version")[1].split()[1])
    signer = create_key(tmp_path / "key", "test.example/stamped")
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append([Draft("t/v1", "s", {"n": n}) for n in range(5)])
        reader = LogReader(storage, [signer.verifier])
        with serving_authority(tmp_path) as authority:
            draft, _ = stamp_checkpoint(reader.checkpoint(), authority.url, authority.certificates)
    (tmp_path / "token").write_bytes(base64.b64decode(draft.body["token"]))
    checkpoint = draft.body["checkpoint"]
    assert isinstance(signer, Signer)
    assert checkpoint.startswith(signer.name)
    (tmp_path / "strange").mkdir()
    with serving_authority(tmp_path / "strange"):
        pass

    def verify(text, authority="ca.pem"):
        (tmp_path / "text").write_text(text)
        files = ["-data", tmp_path / "text", "-in", tmp_path / "token", "-CAfile", tmp_path / authority]
        return ask("openssl", "ts", "-verify", *files)

    status, said = verify(checkpoint)
    assert status == 0, said
    judged.accepts("the stamp of a log checkpoint, as the event holds it")
    assert verify(checkpoint.replace("\n5\n", "\n6\n"))[0] != 0
    assert verify(checkpoint + "\n")[0] != 0
    assert verify(checkpoint, "strange/ca.pem")[0] != 0
    judged.refuses("the same stamp for another size or with a byte more, and under another authority")
