"""Unlearning for real: a run, the same run with a document unlearned, and one that was trained without it from the start.

The oracle is the last of them, in a root of its own: it knows of no fork. Forgers then say that they unlearned.
"""

# Taken by their commands: marin.plugins.sharing.

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from sessions import new_cache

from ledger import Cosigner, LogProof, Witness, WitnessServer, verify_proof
from marin.errors import UsageError
from marin.export.envelope import public_key
from marin.history.runs import load, run_ids
from marin.plugins.collections.queries.uses import documents_of
from marin.plugins.unlearning import request
from marin.plugins.unlearning.kinds import UNLEARNING_FORKED, UNLEARNING_REQUESTED, unlearning_stream
from marin.recipe.schema import Execution
from marin.record import events as kinds
from marin.record.root import open_root
from marin.record.trust.evidence import NOBODY
from marin.verify.verification import Options, Verification
from tests.adversary.forgeries.workshop import OTHER, Shop
from tests.e2e.conftest import Project
from tests.e2e.training.unlearned import LATE, READ, RECIPE, Unlearned, trained_of
from tests.ledger.memory import MemoryStorage

pytestmark = pytest.mark.long(together="unlearning", seconds=50)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "unlearning.md"


@pytest.mark.determinism
def test_the_bits_are_those_of_a_training_without_it(unlearned: Unlearned, tmp_path: Path) -> None:
    elsewhere = Project(tmp_path / "elsewhere", tmp_path / "home", unlearned.project.warm)
    elsewhere.folder.mkdir()
    new_cache(elsewhere.home / "cache")
    run = trained_of(elsewhere, new=True, recipe=RECIPE | {"exclude": [unlearned.document]})
    oracle = load(open_root(str(elsewhere.root)).history(), run)
    forked, before = unlearned.view(unlearned.forked), unlearned.view(unlearned.run)
    for name, view in oracle.steps.items():
        assert forked.steps[name].output.digest == view.output.digest, name
    assert [_of(fact.body) for fact in forked.segments] == [_of(fact.body) for fact in oracle.segments]
    assert forked.output("tokenizer").digest == before.output("tokenizer").digest, "here nothing else depended on it"
    assert forked.output("train").digest != before.output("train").digest
    assert [fact.body.first_step for fact in forked.training] == [4], "two segments were taken over, one executed"


def _of(body: kinds.TrainSegment) -> tuple[Any, ...]:
    return body.start, body.end, body.losses, body.batches, body.fingerprints, body.start_state, body.end_state


def test_a_stranger_finds_it_proven(unlearned: Unlearned) -> None:
    done = unlearned.project.marin(
        "-q", "verify", unlearned.forked, "--only", "ledger,data,training", "--no-record", "--json"
    )
    report = json.loads(done.stdout)
    assert {name: report["verdicts"][name] for name in ("ledger", "data", "training")} == dict.fromkeys(
        ("ledger", "data", "training"), "PASS"
    )
    said = {claim["claim"]: claim["status"] for claim in report["claims"]}
    assert said[f"the first train step of run {unlearned.run} that read one of them is {LATE}"] == "established"
    blank = next(text for text in said if "documents are blank in its tokens" in text)
    assert unlearned.document in blank and said[blank] == "established"
    assert said["for this reason: a test"] == "claimed"
    assert said["no other copy of the model is left, and no near copy of their text was read"] == "claimed"


def ledger_of(shop: Shop, run: str) -> tuple[str, str]:
    """What the verdict on the ledger says of a forged root."""
    shop.sign()
    root = open_root(str(shop.path))
    options = Options(execution=Execution(), trusted=(root.verifier,), remember=False, sources=NOBODY)
    verdict = Verification(root, run, options).report(["ledger"]).verdicts["ledger"]
    return verdict.outcome, " ".join(verdict.lines)


def _late(shop: Shop) -> None:
    last = shop.all(kinds.TRAIN_SEGMENT)[-1].body["end_state"]
    shop.one(UNLEARNING_FORKED).body |= {"step": 6, "state": last}


def _unasked(shop: Shop) -> None:
    shop.remove(*[entry for entry in shop.events if entry.type == UNLEARNING_REQUESTED])


def _request(**changes: Any) -> Callable[[Shop], None]:
    def forge(shop: Shop) -> None:
        (entry,) = [entry for entry in shop.events if entry.type == UNLEARNING_REQUESTED]
        entry.body |= changes

    return forge


def _after(shop: Shop) -> None:
    (entry,) = [entry for entry in shop.events if entry.type == UNLEARNING_REQUESTED]
    shop.remove(entry)
    shop.events.append(entry)
    shop.rerecord(UNLEARNING_FORKED, request=len(shop.events) - 1)


def _wider(shop: Shop) -> None:
    began = shop.one(kinds.RUN_STARTED).body["recipe"]
    began["exclude"] = sorted([*began["exclude"], "e" * 64])
    for step in ("tokenizer", "tokens", "train"):
        shop.one(kinds.STEP_STARTED, step).body["config"]["exclude"] = began["exclude"]
    shop.follow()


def _other_recipe(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["recipe"]["optimizer"]["weight_decay"] = (0.0).hex()
    shop.one(kinds.STEP_STARTED, "train").body["config"]["optimizer"]["weight_decay"] = (0.0).hex()
    shop.follow()


def _taken(shop: Shop) -> None:
    first = shop.all(kinds.TRAIN_SEGMENT)[0].body
    first["losses"] = [(9.0).hex(), *first["losses"][1:]]


FORGED: dict[str, tuple[Callable[[Shop], None], str]] = {
    "a fork after the first use": (_late, "step of step train: expected"),
    "a request that nobody made": (_unasked, "request of step train: expected a request before the fork"),
    "a request after the work": (_after, "request of step train: expected a request before the fork"),
    "a request for another document": (_request(documents=["d" * 64]), "request.documents"),
    "a request of another run": (_request(from_run="nobody00"), "request.from_run"),
    "a request for another recipe": (_request(recipe=OTHER), "request.recipe"),
    "a request with another state": (_request(state=OTHER), "request.state"),
    "more excluded than asked for": (_wider, "request."),
    "more changed than the exclusion": (_other_recipe, "recipe"),
    "an unknown run before": (lambda shop: shop.rerecord(UNLEARNING_FORKED, from_run="nobody00") and None, "from_run"),
    "another tokenizer, says the fork": (
        lambda shop: shop.rerecord(UNLEARNING_FORKED, same_tokenizer=False) and None,
        "same_tokenizer",
    ),
    "other train steps than were taken over": (_taken, "as run"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_record_contradicts_itself(unlearned: Unlearned, tmp_path: Path, name: str) -> None:
    forge, says = FORGED[name]
    shop = Shop(unlearned.base(tmp_path), unlearned.forked, tmp_path)
    forge(shop)
    outcome, said = ledger_of(shop, unlearned.forked)
    assert outcome == "FAIL" and says in said, said


def test_an_honest_record_agrees(unlearned: Unlearned, tmp_path: Path) -> None:
    shop = Shop(unlearned.base(tmp_path), unlearned.forked, tmp_path)
    shop.follow()
    assert ledger_of(shop, unlearned.forked)[0] == "PASS"


def verified(unlearned: Unlearned, shop: Shop, only: str) -> dict[str, Any]:
    """The report on a forged root, by execution."""
    if not shop.signed:
        shop.sign()
    arguments = ("-q", "verify", unlearned.forked, "--root", str(shop.path), "--only", only, "--no-record", "--json")
    done = unlearned.project.marin(*arguments)
    assert done.returncode == 1, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_document_that_is_still_read_is_found(unlearned: Unlearned, tmp_path: Path) -> None:
    """The operator shows the tokens and the training of the run before as those of a run without the document."""
    shop = Shop(unlearned.base(tmp_path), unlearned.forked, tmp_path)
    for step in ("tokens", "train"):
        theirs = shop.one(kinds.STEP_COMPLETED, step, run=unlearned.run).body
        shop.rerecord(
            kinds.STEP_COMPLETED, step, output=theirs["output"], metrics=theirs["metrics"], tables=theirs["tables"]
        )
    for kind in (kinds.TRAIN_SEGMENT, kinds.CHECKPOINT_SAVED):
        for mine, theirs in zip(shop.all(kind), shop.all(kind, run=unlearned.run), strict=True):
            mine.body |= {key: value for key, value in theirs.body.items() if key != "run"}
    shop.follow()
    report = verified(unlearned, shop, "data,training")
    assert report["verdicts"]["data"] == "FAIL"
    assert "tokens: expected" in json.dumps(report)


def test_a_first_use_that_is_made_later_is_found(unlearned: Unlearned, tmp_path: Path) -> None:
    shop = Shop(unlearned.base(tmp_path), unlearned.forked, tmp_path)
    _request(first_use=LATE + 1)(shop)
    report = verified(unlearned, shop, "data")
    assert report["verdicts"]["data"] == "FAIL"
    assert f"expected train step {LATE} as the first that read one" in json.dumps(report)


def test_a_document_that_is_nowhere_is_found(unlearned: Unlearned, tmp_path: Path) -> None:
    """Nothing can be forgotten that was never in the data: no step was executed as the record says."""
    shop, nowhere = Shop(unlearned.base(tmp_path), unlearned.forked, tmp_path), ["e" * 64]
    recipe = shop.one(kinds.RUN_STARTED).body["recipe"]
    recipe["exclude"] = nowhere
    for step in ("tokenizer", "tokens", "train"):
        shop.one(kinds.STEP_STARTED, step).body["config"]["exclude"] = nowhere
    shop.follow()
    _request(documents=nowhere, recipe=shop.one(kinds.RUN_STARTED).body["recipe_digest"])(shop)
    report = verified(unlearned, shop, "ledger,data")
    assert (report["verdicts"]["ledger"], report["verdicts"]["data"]) == ("PASS", "FAIL")
    assert "a document that is not in the training data" in json.dumps(report)


@pytest.mark.determinism
def test_a_weight_that_is_not_zero_is_found(unlearned: Unlearned, tmp_path: Path) -> None:
    """The operator's own step learns what the blanks stand for as if they were text."""
    forger = unlearned.before.copy(tmp_path)
    run = trained_of(forger, documents=[unlearned.document], heavy=True, **{"from": unlearned.run})
    done = forger.marin("-q", "verify", run, "--only", "ledger,training", "--no-record", "--json")
    report = json.loads(done.stdout)
    assert (report["verdicts"]["ledger"], report["verdicts"]["training"]) == ("PASS", "FAIL")
    assert report["first_divergence"]["step"] == LATE


@pytest.mark.determinism
def test_a_request_after_a_request(unlearned: Unlearned, tmp_path: Path) -> None:
    """Both documents are gone, in the bits of a training without both."""
    project = unlearned.project.copy(tmp_path / "chain")
    used = json.loads(project.forked(READ, unlearned.forked).stdout)["used"]
    other = next(
        name for name, steps in sorted(used.items()) if min(steps, default=0) >= 2 and name != unlearned.document
    )
    run = trained_of(project, documents=[other], **{"from": unlearned.forked})
    both = sorted([unlearned.document, other])
    elsewhere = Project(tmp_path / "elsewhere", tmp_path / "home", project.warm)
    elsewhere.folder.mkdir()
    new_cache(elsewhere.home / "cache")
    oracle = trained_of(elsewhere, new=True, recipe=RECIPE | {"exclude": both})
    views = [load(open_root(str(one.root)).history(), name) for one, name in ((project, run), (elsewhere, oracle))]
    assert views[0].recipe.exclude == tuple(both)
    assert views[0].output("train").digest == views[1].output("train").digest
    assert project.marin("export", run, "--unlearning", "both.json").returncode == 0
    judged = project.marin("verify", "--unlearning", "both.json")
    assert judged.returncode == 0 and "2 excluded documents, 2 requests" in judged.stdout, judged.stdout


@pytest.mark.determinism
def test_the_page_does_what_it_says(trained: Project, tmp_path: Path) -> None:
    """Its commands in order, on the session's run, whose tokenizer is another one without a document."""
    project = trained.copy(tmp_path)
    before = run_ids(open_root(str(project.root)).history())[-1]
    used = json.loads(project.forked(READ, before).stdout)["used"]
    document = next(name for name, steps in sorted(used.items()) if 0 < len(steps) < 6)
    said = {}
    for line in re.findall(r"^    marin (.*)$", PAGE.read_text(encoding="utf-8"), re.M):
        typed, _, file = line.replace("ID", document).replace("RUN", before).partition(" > ")
        done = project.marin(*shlex.split(typed))
        assert done.returncode == 0, done.stderr
        said[line] = done.stdout
        if file:
            (project.folder / file).write_text(done.stdout)
    assert len(said) == 8
    history = open_root(str(project.root)).history()
    run = load(history, run_ids(history)[-1])
    ((_, event),) = history.events(type=UNLEARNING_FORKED)
    assert event.body["same_tokenizer"] is False and event.body["step"] == 0
    (told,) = [words for line, words in said.items() if "--reason" in line]
    assert re.search(r"^forked +before train step 0 of 6: the tokenizer is another one", told, re.M), told
    assert run.recipe.exclude == (document,) and run.completed is not None
    certified = json.loads(
        Envelope.from_dict(json.loads((project.folder / "unlearned.intoto.jsonl").read_text())).payload
    )
    assert {one["name"] for one in certified["subject"]} == {"train", "export"}
    assert certified["predicate"]["equality"]["verdictsInThisLog"][0]["verdicts"]["training"] == "PASS"


def test_a_certificate_says_what_is_proven_and_what_not(unlearned: Unlearned, tmp_path: Path) -> None:
    """Judged by in-toto's own libraries, and its proofs by the log's key alone."""
    file = tmp_path / "unlearned.intoto.jsonl"
    done = unlearned.project.marin("export", unlearned.forked, "--unlearning", str(file))
    assert done.returncode == 0, done.stderr
    signed = Envelope.from_dict(json.loads(file.read_text()))
    key = open_root(str(unlearned.project.root)).verifier
    signed.verify([public_key(key)], 1)
    told = json.loads(signed.payload)
    forked = unlearned.view(unlearned.forked)
    assert told["predicateType"] == "urn:marin:unlearning:v2"
    assert {one["name"]: one["digest"] for one in told["subject"]} == {
        "train": {"sha256": forked.output("train").digest.removeprefix("sha256:")}
    }
    predicate = told["predicate"]
    assert predicate["excludedDocuments"] == [unlearned.document]
    (asked,) = predicate["requests"]
    assert (asked["fromRun"], asked["documents"], asked["reason"]) == (unlearned.run, [unlearned.document], "a test")
    assert (asked["firstUse"], asked["fork"]["trainStep"]) == ({"trainStep": str(LATE)}, "4")
    texts = [predicate["evidence"][asked[name]["event"]] for name in ("requested", "fork")]
    proven = [json.loads(verify_proof(LogProof.parse(text.encode()), [key]).entry) for text in texts]
    assert [event["type"] for event in proven] == [UNLEARNING_REQUESTED, UNLEARNING_FORKED]
    judged = unlearned.project.marin("verify", "--unlearning", str(file))
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "1 excluded documents, 1 requests and 1 subjects follow" in judged.stdout
    assert any("near copy" in line for line in predicate["notProven"])
    changed = json.loads(file.read_text()) | {
        "payload": b64encode(signed.payload.replace(b"a test", b"a lie!")).decode()
    }
    with pytest.raises(VerificationError):
        Envelope.from_dict(changed).verify([public_key(key)], 1)
    refusal = unlearned.project.marin("export", unlearned.run, "--unlearning", str(file))
    assert refusal.returncode == 2 and "a run that has unlearned nothing" in refusal.stderr


def test_a_witness_cosigns_what_the_certificate_proves(unlearned: Unlearned, tmp_path: Path) -> None:
    """So anyone who trusts the witness knows that the request stood in this log, and not in another that the operator shows."""
    project = unlearned.project.copy(tmp_path / "witnessed")
    key = open_root(str(project.root)).verifier
    cosigner = Cosigner("witness.example/1", Ed25519PrivateKey.generate())
    watching = Witness(MemoryStorage(), [cosigner], {key.name: [key]})
    with WitnessServer(watching) as server:
        asked = project.marin("ledger", "witness", "add", server.address, "--vkey", str(cosigner.verifier))
        assert asked.returncode == 0, asked.stderr
    file = tmp_path / "unlearned.intoto.jsonl"
    assert project.marin("export", unlearned.forked, "--unlearning", str(file)).returncode == 0
    told = json.loads(Envelope.from_dict(json.loads(file.read_text())).payload)
    for text in told["predicate"]["evidence"].values():
        shown = verify_proof(LogProof.parse(text.encode()), [key, cosigner.verifier])
        assert set(shown.signers) == {key.name, cosigner.name}
        stranger = Cosigner("witness.example/1", Ed25519PrivateKey.generate()).verifier
        assert set(verify_proof(LogProof.parse(text.encode()), [key, stranger]).signers) == {key.name}


# -- what cannot be unlearned


def refused(unlearned: Unlearned, document: str, run: str = "") -> str:
    done = unlearned.project.marin("unlearn", run or unlearned.run, "--document", document, "--dry-run")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    return done.stderr


def test_documents_that_nothing_was_learned_from(unlearned: Unlearned) -> None:
    assert f"a document that is not in the training data: {'0' * 64}" in refused(unlearned, "0" * 64)
    assert "it is held out: nothing is trained on it" in refused(unlearned, unlearned.held_out)
    assert "a document that is excluded already" in refused(unlearned, unlearned.document, unlearned.forked)
    assert "a document that is not in the training data: a b" in refused(unlearned, "a b")


def test_documents_by_what_is_said_of_them(unlearned: Unlearned) -> None:
    asked = ("unlearn", unlearned.run, "--dry-run", "--json")
    number = next(number for number, (name, _, _) in enumerate(rows_of(unlearned)) if name == unlearned.document)
    done = unlearned.project.marin(*asked, "--source", "grammar", "--where", f"number={number}")
    (found,) = json.loads(done.stdout)["documents"]
    assert (found["id"], found["first_use"]) == (unlearned.document, LATE)
    for more, says in (
        (("--source", "elsewhere"), "no documents to unlearn: --source elsewhere"),
        (("--where", "number"), "a condition on metadata cannot be read"),
        ((), "nothing to unlearn"),
    ):
        done = unlearned.project.marin(*asked, *more)
        assert done.returncode == 2 and says in done.stderr, done.stderr


def rows_of(unlearned: Unlearned) -> list[tuple[str, str, str]]:
    return list(documents_of(open_root(str(unlearned.project.root)), unlearned.view(unlearned.run)))


def test_a_request_while_the_run_is_under_way(unlearned: Unlearned, tmp_path: Path) -> None:
    shop = Shop(unlearned.base(tmp_path), unlearned.run, tmp_path)
    shop.drop(kinds.RUN_COMPLETED)
    shop.sign()
    with pytest.raises(UsageError, match=r"expected a complete run from the beginning, found a run that is under way"):
        request.plan(open_root(str(shop.path)), unlearned.run, [unlearned.document])


def test_a_request_is_recorded_once_before_the_work(unlearned: Unlearned) -> None:
    history = open_root(str(unlearned.project.root)).history()
    ((index, event),) = history.events(stream=unlearning_stream(unlearned.run))
    assert event.body["documents"] == [unlearned.document]
    assert (event.body["first_use"], event.body["step"], event.body["reason"]) == (LATE, 4, "a test")
    assert index < unlearned.view(unlearned.forked).started.index


def test_the_documents_of_a_run_are_listed(unlearned: Unlearned) -> None:
    done = unlearned.project.marin("data", "list", unlearned.run, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"id": unlearned.document, "source": "grammar", "split": "train"} in rows
    assert {row["split"] for row in rows} == {"train", "validation"}
