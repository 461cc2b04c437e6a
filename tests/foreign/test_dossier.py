"""The libraries and validators that read what a dossier says: each takes the documents as they are, and refuses broken ones."""

import json
import shutil
from importlib.metadata import version as installed

import judges
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from huggingface_hub import ModelCard
from programs import ask
from recorded import RUN, record_run

from marin.dossier.stated import STATED
from marin.dossier.write import write_dossier
from marin.history.runs import load
from marin.record.root import create_root

PRIVATE = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


@pytest.fixture(scope="module")
def dossiers(tmp_path_factory):
    """Two of them: of a run with a full card, signed with its model; and of the same run before anything was stated."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("dossiers")
        patch.setenv("MARIN_KEY", str(folder / "key"))
        root = create_root(str(folder / ".marin"), origin="test.example/log")
        record_run(root, folder)
        run = load(root.history(), RUN)
        write_dossier(root, run, folder / "bare")
        values = dict.fromkeys(STATED, "as the provider says") | {
            "model.licence": "Apache-2.0", "data.language": ["en"], "model.base": "none",
        }  # fmt: skip
        (folder / "card.yaml").write_text(json.dumps(values))
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


def test_spdx(dossiers, judge, tmp_path):
    """The bindings that SPDX generates from its SHACL shapes: types, cardinalities, patterns and words of lists. spdx3-validate
    asks for the shapes themselves at spdx.org each time."""
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

    def of(kind):
        return lambda document: next(item for item in document["@graph"] if item["type"] == kind)

    judged = judge("spdx-python-model", judges.version("spdx", "spdx-python-model"))
    breaks = {
        "a data set of no type": lambda document: of("dataset_DatasetPackage")(document).pop("dataset_datasetType"),
        "a purpose that is none": lambda document: of("ai_AIPackage")(document).update(software_primaryPurpose="fun"),
        "a relation to nothing that is there": lambda document: of("Relationship")(document).update(
            to=["urn:x:nothing"]
        ),
        "a time that is none": lambda document: of("CreationInfo")(document).update(created="today"),
    }
    judge_a_document(judged, dossiers, "spdx.json", verify, breaks, tmp_path)


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
