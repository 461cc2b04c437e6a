"""The libraries and validators that read what a dossier says: each takes the documents as they are, and refuses broken ones."""

import base64
import json
import shutil
from importlib.metadata import version as installed

import judges
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from huggingface_hub import ModelCard
from programs import ask
from recorded import RUN, full_card, record_run

from marin.history.runs import load
from marin.plugins.sharing.dossier.write import write_dossier
from marin.record.creation import create_root

PRIVATE = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


@pytest.fixture(scope="module")
def dossiers(tmp_path_factory):
    """Two of them: of a run with a full card, signed with its model; and of the same run before anything was stated."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("dossiers")
        patch.setenv("MARIN_KEY", str(folder / "key"))
        root = create_root(str(folder / ".marin"), origin="test.example/log")
        record_run(root, folder, trained={})
        run = load(root.history(), RUN)
        write_dossier(root, run, folder / "bare")
        (folder / "card.yaml").write_text(json.dumps(full_card()))
        (folder / "model.key").write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*PRIVATE))
        write_dossier(root, run, folder / "full", card=folder / "card.yaml", key=folder / "model.key")
        yield folder


def judge_a_document(judged, dossiers, file, verify, breaks, tmp_path):
    """`verify(file)` must take the document of both dossiers, and none in which one thing is broken."""
    for kind in ("bare", "full"):
        status, said = verify(dossiers / kind / file)
        assert status == 0, said
    judged.accepts(f"{file}, with and without a card")
    for what, alter in breaks.items():
        document = json.loads((dossiers / "full" / file).read_text())
        alter(document)
        (tmp_path / "altered.json").write_text(json.dumps(document))
        status, said = verify(tmp_path / "altered.json")
        assert status != 0, (what, said)
    judged.refuses(", ".join(breaks))


def test_huggingface_hub(dossiers, judge):
    judged = judge("huggingface_hub", installed("huggingface_hub"))
    for kind in ("bare", "full"):
        card = ModelCard.load(dossiers / kind / "README.md")
        assert card.data.library_name == "transformers"
        assert [(one.metric_type, one.metric_value) for one in card.data.eval_results] == [("loss", 5.25)]
    assert card.data.license == "apache-2.0"
    assert card.data.language == ["en"]
    judged.accepts("the model card's metadata, with one result of evaluation")
    text = (dossiers / "full" / "README.md").read_text()
    for old, new in (("model-index:\n- name:", "model-index:\n- nome:"), ("  results:", "  result:")):
        assert old in text
        with pytest.raises((ValueError, KeyError)):
            ModelCard(text.replace(old, new), ignore_metadata_errors=False)
    judged.refuses("a result of no model, and a model without results")


def test_mlcroissant(dossiers, judge, tmp_path):
    room = judges.room("croissant")
    script = (
        "import sys; sys.path.append(sys.argv[2]); import mlcroissant as mlc;"
        "d = mlc.Dataset(sys.argv[1]); assert d.metadata.distribution and d.metadata.record_sets, 'empty'"
    )

    def verify(file):
        return ask(room / "bin/python", "-c", script, file, room / "jsonpath-rw")

    def other_source(document):
        document["recordSet"][0]["field"][0]["source"]["fileObject"]["@id"] = "another.jsonl"

    judged = judge("mlcroissant", judges.version("croissant", "mlcroissant"))
    breaks = {
        "a file of no form": lambda document: document["distribution"][0].pop("encodingFormat"),
        "a field of no file": other_source,
        "a file without a digest": lambda document: document["distribution"][0].pop("sha256"),
    }
    judge_a_document(judged, dossiers, "croissant/grammar.json", verify, breaks, tmp_path)


def test_cyclonedx(dossiers, judge, tmp_path):
    script = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
assert wrong is None, repr(wrong)[:500]
"""

    def verify(file):
        return ask(judges.room("cyclonedx") / "bin/python", "-c", script, file)

    judged = judge("cyclonedx-python-lib", judges.version("cyclonedx", "cyclonedx-python-lib"))
    breaks = {
        "another format": lambda bill: bill.update(bomFormat="SPDX"),
        "a component of no type": lambda bill: bill["metadata"]["component"].pop("type"),
        "a task without an identifier": lambda bill: bill["formulation"][0]["workflows"][0]["tasks"][0].pop("uid"),
        "a field that nobody knows": lambda bill: bill.update(more=1),
    }
    judge_a_document(judged, dossiers, "cyclonedx.json", verify, breaks, tmp_path)


SPDX_BREAKS = {
    "a data set of no type": lambda document: of("dataset_DatasetPackage")(document).pop("dataset_datasetType"),
    "an unknown purpose": lambda document: of("ai_AIPackage")(document).update(software_primaryPurpose="fun"),
    "not a time": lambda document: of("CreationInfo")(document).update(created="today"),
}


def of(kind):
    return lambda document: next(item for item in document["@graph"] if item["type"] == kind)


def test_spdx(dossiers, judge, tmp_path):
    """The bindings that SPDX generates from its SHACL shapes: types, cardinalities, patterns and words of lists."""
    script = """
import io, sys
from spdx_python_model import v3_0_1 as spdx
found = spdx.SHACLObjectSet()
with open(sys.argv[1]) as file:
    spdx.JSONLDDeserializer().read(file, found)
assert not found.missing_ids, found.missing_ids
assert list(found.foreach_type(spdx.ai_AIPackage)) and list(found.foreach_type(spdx.dataset_DatasetPackage))
spdx.JSONLDSerializer().write(found, io.BytesIO())
"""

    def verify(file):
        return ask(judges.room("spdx") / "bin/python", "-c", script, file)

    judged = judge("spdx-python-model", judges.version("spdx", "spdx-python-model"))
    breaks = SPDX_BREAKS | {
        "a relation to nothing that is there": lambda document: of("Relationship")(document).update(
            to=["urn:x:nothing"]
        )
    }
    judge_a_document(judged, dossiers, "spdx.json", verify, breaks, tmp_path)


def test_spdx3_validate(dossiers, judge, tmp_path):
    """JSON schema and SHACL shapes of SPDX 3.0.1, as its own publication has them; the validator, which asks for them at
    spdx.org, is given these files instead."""
    script = """
import email.message, io, sys, urllib.request, urllib.response
from pathlib import Path
FILES = {
    "https://spdx.org/rdf/3.0.1/spdx-context.jsonld": ("spdx-context.jsonld", "application/ld+json"),
    "https://spdx.org/rdf/3.0.1/spdx-model.ttl": ("spdx-model.ttl", "text/turtle"),
    "https://spdx.org/schema/3.0.1/spdx-json-schema.json": ("schema.json", "application/json"),
}
class Given(urllib.request.BaseHandler):
    handler_order = 1
    def https_open(self, request):
        name, kind = FILES[request.full_url]
        headers = email.message.Message()
        headers["Content-Type"] = kind
        data = Path(sys.argv[2], name).read_bytes()
        answer = urllib.response.addinfourl(io.BytesIO(data), headers, request.full_url, 200)
        answer.msg = "OK"
        return answer
urllib.request.install_opener(urllib.request.build_opener(Given()))
import spdx3_validate
found = list(spdx3_validate.validate(sys.argv[1]).errors)
assert not found, "; ".join(map(str, found))
"""
    published = judges.room("spdx-terms") / "spdx-spec" / "3.0.1/rdf"

    def verify(file):
        return ask(judges.room("spdx3-validate") / "bin/python", "-c", script, file, published)

    judged = judge("spdx3-validate, pyshacl", judges.version("spdx3-validate", "spdx3-validate"))
    breaks = SPDX_BREAKS | {
        "a hash without a value": lambda document: of("software_File")(document)["verifiedUsing"][0].pop("hashValue"),
        "a relation that begins nowhere": lambda document: of("Relationship")(document).pop("from"),
        "a relation of no kind": lambda document: of("Relationship")(document).update(relationshipType="likes"),
    }
    judge_a_document(judged, dossiers, "spdx.json", verify, breaks, tmp_path)


CONTEXTS = {
    "https://w3id.org/ro/crate/1.1/context": ("crate-context", "ro-crate/docs/_specification/1.1/context.jsonld"),
    "https://w3id.org/ro/terms/workflow-run/context": ("crate-context", "ro-terms/workflow-run/context.json"),
}


def test_roc_validator(dossiers, judge, tmp_path):
    """The profile for provenance and all that it builds on, with the contexts put into the validator's own cache."""
    fill = """
import io, sys
from pathlib import Path
from requests import Request, Response
from requests_cache import CachedSession
from urllib3 import HTTPResponse
session = CachedSession(cache_name=sys.argv[1], backend="sqlite", expire_after=-1, allowable_methods=("GET",))
kind = {"Content-Type": "application/ld+json"}
for pair in sys.argv[2:]:
    url, _, file = pair.partition("=")
    answer = Response()
    answer.status_code, answer._content, answer.url = 200, Path(file).read_bytes(), url
    answer.headers.update(kind)
    accepted = {"Accept": "application/ld+json, application/json, */*;q=0.1"}
    answer.request = Request("GET", url, headers=accepted).prepare()
    answer.raw = HTTPResponse(body=io.BytesIO(answer._content), status=200, headers=kind, preload_content=False)
    session.cache.save_response(answer)
"""
    room = judges.room("roc-validator")
    pairs = [f"{url}={judges.room(where) / path}" for url, (where, path) in CONTEXTS.items()]
    status, said = ask(room / "bin/python", "-c", fill, tmp_path / "cache", *pairs)
    assert status == 0, said

    def verify(folder):
        options = ["--offline", "--cache-path", tmp_path / "cache", "-p", "provenance-run-crate", "--no-paging"]
        return ask(room / "bin/python", room / "bin/rocrate-validator", "-y", "validate", *options, folder)

    judged = judge("roc-validator", judges.version("roc-validator", "roc-validator"))
    for kind in ("bare", "full"):
        status, said = verify(dossiers / kind)
        assert status == 0, said
    judged.accepts("a dossier as Provenance Run Crate 0.5, all required checks of five profiles")
    broken = {
        "a crate without its root": lambda graph: graph.remove(entity(graph, "./")),
        "an action without an instrument": lambda graph: entity(graph, "#action-train").pop("instrument"),
        "a workflow without a language": lambda graph: entity(graph, "fields.json").pop("programmingLanguage"),
        "a file that is not there": lambda graph: (
            entity(graph, "./")["hasPart"].append({"@id": "nothing.txt"})
            or graph.append({"@id": "nothing.txt", "@type": "File"})
        ),
    }
    for what, alter in broken.items():
        shutil.copytree(dossiers / "full", tmp_path / "copy")
        crate = json.loads((tmp_path / "copy/ro-crate-metadata.json").read_text())
        alter(crate["@graph"])
        (tmp_path / "copy/ro-crate-metadata.json").write_text(json.dumps(crate))
        status, said = verify(tmp_path / "copy")
        assert status != 0, (what, said)
        shutil.rmtree(tmp_path / "copy")
    judged.refuses(", ".join(broken))


def entity(graph, name):
    return next(item for item in graph if item["@id"] == name)


def test_in_toto_verify(dossiers, judge, tmp_path):
    """Layout and links of the steps, by in-toto's own verifier; the attestations beside them by securesystemslib."""
    judged = judge("in-toto-verify", judges.version("python", "in-toto"))
    program = [judges.room("python") / "bin" / name for name in ("python", "in-toto-verify")]

    def verify(folder, key=None):
        key = key or dossiers / "full/in-toto/log.pem"
        return ask(*program, "--layout", folder / "root.layout", "--verification-keys", key, "--link-dir", folder)

    status, said = verify(dossiers / "full/in-toto")
    assert status == 0, said
    judged.accepts("the layout of a run, with a link for each of its six steps")
    assert verify(dossiers / "full/in-toto", dossiers / "full/model.pem")[0] != 0
    files = sorted((dossiers / "full/in-toto").glob("*.l*"))
    for path in (path for path in files if path.name != "log.pem"):
        for change in (swapped, unsigned, None):
            shutil.copytree(dossiers / "full/in-toto", tmp_path / "copy")
            if change is None:
                (tmp_path / "copy" / path.name).unlink()
            else:
                (tmp_path / "copy" / path.name).write_text(json.dumps(change(json.loads(path.read_text()))))
            status, said = verify(tmp_path / "copy")
            assert status != 0, (path.name, change, said)
            shutil.rmtree(tmp_path / "copy")
    judged.refuses("another key; a link or the layout with another digest, without its signature, or missing")


def swapped(envelope):
    payload = base64.b64decode(envelope["payload"])
    changed = payload.replace(b'"sha256": "', b'"sha256": "f', 1).replace(b"DISALLOW", b"ALLOW", 1)
    assert changed != payload
    return envelope | {"payload": base64.b64encode(changed).decode()}


def unsigned(envelope):
    return envelope | {"signatures": []}


def test_securesystemslib(dossiers, judge):
    script = """
import json, sys
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
key = load_pem_public_key(open(sys.argv[1], "rb").read())
for line in sys.stdin:
    envelope = Envelope.from_dict(json.loads(line))
    (keyid,) = envelope.signatures
    envelope.verify([SSlibKey.from_crypto(key, keyid=keyid)], 1)
"""
    judged = judge("securesystemslib", judges.version("python", "securesystemslib"))
    python, key = judges.room("python") / "bin/python", dossiers / "full/in-toto/log.pem"
    for name in ("attestations.intoto.jsonl", "dossier.intoto.jsonl"):
        lines = (dossiers / "full" / name).read_bytes()
        status, said = ask(python, "-c", script, key, stdin=lines)
        assert status == 0, said
        assert ask(python, "-c", script, dossiers / "full/model.pem", stdin=lines)[0] != 0
        for line in lines.splitlines():
            altered = json.dumps(swapped(json.loads(line))).encode()
            assert ask(python, "-c", script, key, stdin=lines.replace(line, altered))[0] != 0
    judged.accepts("every attestation of a dossier, and the statement over its files")
    judged.refuses("each of them with another digest, or under another key")


def test_sigstore_reads_the_models_signature(dossiers, judge):
    """cosign takes the OpenSSF signature as what it is: a Sigstore bundle with a DSSE envelope."""
    cosign = judges.room("cosign") / "usr/bin/cosign"
    judged = judge("cosign", judges.version("cosign"))
    offline = {"HOME": str(dossiers), "TUF_ROOT": str(dossiers / "tuf")}
    options = ["--insecure-ignore-tlog", "--check-claims=false", "--type", "https://model_signing/signature/v1.0"]

    def verify(signature, key):
        command = [cosign, "verify-blob-attestation", *options, "--key", key, "--bundle", signature]
        return ask(*command, dossiers / "full/README.md", env=offline)

    status, said = verify(dossiers / "full/model.sig", dossiers / "full/model.pem")
    assert status == 0, said
    judged.accepts("the signature that binds weights, card, documents and run")
    assert verify(dossiers / "full/model.sig", dossiers / "full/in-toto/log.pem")[0] != 0
    bundle = json.loads((dossiers / "full/model.sig").read_text())
    bundle["dsseEnvelope"] = swapped_names(bundle["dsseEnvelope"])
    (dossiers / "altered.sig").write_text(json.dumps(bundle))
    assert verify(dossiers / "altered.sig", dossiers / "full/model.pem")[0] != 0
    judged.refuses("the same under another key, or with a file of another name")


def swapped_names(envelope):
    payload = base64.b64decode(envelope["payload"])
    assert b"README.md" in payload
    return envelope | {"payload": base64.b64encode(payload.replace(b"README.md", b"README.me", 1)).decode()}


def test_model_signing(dossiers, judge, tmp_path):
    judged = judge("model-signing", judges.version("python", "model-signing"))
    python = judges.room("python") / "bin/python"

    def verify(folder):
        options = ["--signature", folder / "model.sig", "--public_key", dossiers / "full" / "model.pem"]
        ignored = ["--ignore-paths", folder / "model.sig", "--ignore-paths", folder / "dossier.intoto.jsonl"]
        return ask(python, "-m", "model_signing", "verify", "key", folder, *options, *ignored)

    status, said = verify(dossiers / "full")
    assert status == 0, said
    judged.accepts("a dossier with its model")
    for name in ("model/model.safetensors", "README.md", "fields.json", "evidence/0.tlog-proof"):
        shutil.copytree(dossiers / "full", tmp_path / "copy")
        (tmp_path / "copy" / name).write_bytes((tmp_path / "copy" / name).read_bytes() + b" ")
        assert verify(tmp_path / "copy")[0] != 0, name
        shutil.rmtree(tmp_path / "copy")
    judged.refuses("a dossier with a byte more in weights, card, fields or run")
