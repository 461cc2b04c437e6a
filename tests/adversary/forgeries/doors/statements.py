"""What an operator says in signed statements beside the log: the files of a dossier and of a certificate, changed and signed
again by the log's own key."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from ledger import Signer, canonical_digest, create_key
from marin.execution.plan import step_config
from marin.export.envelope import public_key
from marin.pipeline.stages import PIPELINE
from marin.plugins.sharing.dossier.evidence import proof_path
from marin.plugins.sharing.dossier.layout import ATTESTATION, ATTESTATIONS, MANIFESTS, PREDICATE
from marin.plugins.unlearning.certificate import certificate, judge_certificate
from marin.recipe.schema import from_plain
from marin.record import events as kinds
from marin.record.attestation import PAYLOAD_TYPE, attestation, attested, digests
from marin.record.root import open_root
from marin.verify.alone.judgement import Judgement
from tests.adversary.forgeries.doors.events import CONTRADICTIONS, UNKNOWN, signed, stranger, wrote_dossier
from tests.adversary.forgeries.doors.register import Answer, Stall, door, kind
from tests.adversary.forgeries.workshop import OTHER, Shop, as_operator

# -- a dossier


def _signed_again(stall: Stall, folder: Path, **more: object) -> None:
    with as_operator(stall.base):
        signer = stall.base.root.signer()
    said = dict(attested((folder / ATTESTATION).read_bytes(), [signer.verifier], PREDICATE).said)
    (folder / ATTESTATION).write_bytes(attestation(digests(folder, ATTESTATION), PREDICATE, said | more, signer))


def _folder(change: Callable[[Path], object], *, again: bool = True, **more: object) -> Callable[[Stall], None]:
    def forge(stall: Stall) -> None:
        folder = stall.held["dossier"] = wrote_dossier(stall)
        change(folder)
        if again:
            _signed_again(stall, folder, **more)

    return forge


def _text(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text, (name, old)
        (folder / name).write_text(text.replace(old, new))

    return change


def _first_number(folder: Path) -> None:
    fields = json.loads((folder / "fields.json").read_text())
    next(item for item in fields if str(item["name"]).startswith("evaluation."))["value"] = 0.25
    (folder / "fields.json").write_text(json.dumps(fields, indent=1, ensure_ascii=False) + "\n")


def _attestations(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        lines = (folder / ATTESTATIONS).read_text().splitlines()
        (folder / ATTESTATIONS).write_text("".join(f"{line}\n" for line in change(lines)))

    return forge


def _without_event(folder: Path) -> None:
    (folder / proof_path(3)).unlink()


def _renamed_event(folder: Path) -> None:
    (folder / proof_path(3)).write_bytes((folder / proof_path(2)).read_bytes())


def _other_manifest(folder: Path) -> None:
    path = folder / MANIFESTS["export"]
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))


for _name, _says, _forge in (
    ("a number in its fields", "a field does not follow", _folder(_first_number)),
    ("a number in its page", "a field does not follow", _folder(_text("README.md", "| evaluation.", "| evaluated."))),
    ("a page that nobody signed", "README.md", _folder(_text("README.md", "evaluation.", "evaluation. "), again=False)),
    ("a step less that is attested", "the attestations do not follow", _folder(_attestations(lambda lines: lines[1:]))),
    (
        "steps attested in another order",
        "the attestations do not follow",
        _folder(_attestations(lambda lines: lines[::-1])),
    ),
    ("an event less", "an event was left out", _folder(_without_event)),
    ("an event in another's place", "a proof of another event", _folder(_renamed_event)),
    ("another list of the model's files", "a manifest is not the recorded one", _folder(_other_manifest)),
    ("a word more in its statement", "a dossier that says more", _folder(lambda folder: None, lawful=True)),
    ("another run in its statement", "", _folder(lambda folder: None, run="abcd2345")),
    ("a file more", "belongs to no dossier", _folder(lambda folder: (folder / "review.pdf").write_bytes(b"fine"))),
    (
        "a signature of no model",
        "belongs to no dossier",
        _folder(lambda folder: (folder / "model.sig").write_bytes(b"{}")),
    ),
    ("a file that nobody signed", "review.pdf", _folder(lambda f: (f / "review.pdf").write_bytes(b"ok"), again=False)),
):
    kind("dossier", _name, _says)(_forge)


@kind("dossier", "signed by a key of the same name", "")
def _by_a_namesake(stall: Stall) -> None:
    folder = stall.held["dossier"] = wrote_dossier(stall)
    signer: Signer = create_key(stall.folder / "namesake.key", stall.base.root.verifier.name)
    with as_operator(stall.base):
        said = dict(attested((folder / ATTESTATION).read_bytes(), [stall.base.root.verifier], PREDICATE).said)
    (folder / ATTESTATION).write_bytes(attestation(digests(folder, ATTESTATION), PREDICATE, said, signer))


# -- a certificate


def unlearning(shop: Shop) -> None:
    """The run as if a document had been excluded from it from the start: everything agrees, and nothing was executed."""
    recipe = shop.one(kinds.RUN_STARTED).body["recipe"]
    recipe["exclude"] = ["a-document"]
    chosen = from_plain(recipe, where="a forgery")
    for begun in shop.all(kinds.STEP_STARTED):
        definition = PIPELINE.step(begun.body["step"])
        sources = {"sources": begun.body["config"]["sources"]} if definition.name == "corpus" else {}
        begun.body["config"] = step_config(definition, chosen) | sources
        begun.body["config_digest"] = canonical_digest(begun.body["config"])
    shop.follow()
    for entry in shop.events:  # what follows is shared; anyone who changes one changes no other
        entry.body = copy.deepcopy(entry.body)


def certificate_of(stall: Stall) -> Path:
    file, shop = stall.folder / "unlearned.intoto.jsonl", signed(stall)
    with as_operator(shop.base):
        root = open_root(str(shop.path))
        file.write_text(certificate(root.history(), root.reader(), shop.run, root.signer()))
    return file


@door("certificate")
def _ask(stall: Stall) -> Answer:
    file = stall.held.get("certificate") or certificate_of(stall)
    with stranger(stall):
        found: Judgement = judge_certificate(file, [stall.base.root.verifier])
    lines = [line for verdict in found.verdicts.values() if verdict.outcome != "PASS" for line in verdict.lines]
    return Answer(found.outcome == "PASS", "\n".join(lines))


def _statement(change: Callable[[dict[str, Any]], object]) -> Callable[[Stall], None]:
    def forge(stall: Stall) -> None:
        unlearning(stall.shop)
        file = stall.held["certificate"] = certificate_of(stall)
        said = json.loads(base64.b64decode(json.loads(file.read_text())["payload"]))
        change(said)
        with as_operator(stall.base):
            signer = stall.base.root.signer()
        again = Envelope(json.dumps(said).encode(), PAYLOAD_TYPE, {})
        again.sign(CryptoSigner(signer.key, public_key(signer.verifier)))
        file.write_text(json.dumps(again.to_dict()) + "\n")

    return forge


def _unsigned(stall: Stall) -> None:
    unlearning(stall.shop)
    file = stall.held["certificate"] = certificate_of(stall)
    told = json.loads(file.read_text())
    said = json.loads(base64.b64decode(told["payload"]))
    said["predicate"]["excludedDocuments"] = ["another"]
    told["payload"] = base64.b64encode(json.dumps(said).encode()).decode()
    file.write_text(json.dumps(told) + "\n")


def _predicates() -> Iterator[tuple[str, str, Callable[[dict[str, Any]], object]]]:
    yield "a document more", "excludedDocuments", lambda said: said["predicate"]["excludedDocuments"].append("b")
    yield "a request of nobody", "requests", lambda said: said["predicate"]["requests"].append({"fromRun": "abcd2345"})
    yield "another recipe", "recipe", lambda said: said["predicate"].update(recipe=OTHER)
    yield "another model", "subject", lambda said: said["subject"][-1]["digest"].update(sha256="0" * 64)
    yield (
        "a subject more",
        "subject",
        lambda said: said["subject"].append({"name": "x", "digest": {"sha256": "0" * 64}}),
    )
    yield "a verdict of nobody", "equality", lambda said: said["predicate"]["equality"].update(verdictsInThisLog=[{}])
    yield "less that is not proven", "notProven", lambda said: said["predicate"]["notProven"].pop()
    yield "a promise more", "lawful", lambda said: said["predicate"].update(lawful=True)
    yield "another log", "log", lambda said: said["predicate"]["log"].update(size="7")
    yield "no proofs", "a certificate without proofs", lambda said: said["predicate"].update(evidence=[])
    yield "an event less", "", lambda said: said["predicate"]["evidence"].pop("2")
    yield "another run", "", lambda said: said["predicate"].update(run="abcd2345")


kind("certificate", "the honest run", "", honest=True)(lambda stall: unlearning(stall.shop))
kind("certificate", "a document that nobody signed", "not signed by")(_unsigned)
for _name, _says, _change in _predicates():
    kind("certificate", _name, _says)(_statement(_change))


def _event(forge: Callable[[Shop], object]) -> Callable[[Stall], None]:
    def forged(stall: Stall) -> None:
        unlearning(stall.shop)
        forge(stall.shop)

    return forged


for _name, (_forge_event, _word) in (CONTRADICTIONS | UNKNOWN).items():
    kind("certificate", _name, "")(_event(_forge_event))
