"""A certificate of unlearning says what its log says, in every field: who changes one, or leaves an event out, is found."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from recorded import record, record_run, sha
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from ledger import VerifierKey, create_key
from marin.data.exclusion import not_excluded_from
from marin.errors import UsageError
from marin.export import unlearning
from marin.export.in_toto import public_key
from marin.export.unlearning import certificate, judge_certificate
from marin.history.runs import unlearning_stream
from marin.recipe.schema import Recipe
from marin.record import events
from marin.record.attestation import PAYLOAD_TYPE
from marin.record.root import Root, open_root
from marin.verify.alone.judgement import Judgement

ONE = "sha256:" + "1" * 64
WITHOUT = msgspec.structs.replace(Recipe(), exclude=("a-document",))
ADOPTED = msgspec.structs.replace(WITHOUT, tokenizer=msgspec.structs.replace(WITHOUT.tokenizer, artifact=ONE))
PHASE = msgspec.structs.replace(WITHOUT, phase=cast(Any, SimpleNamespace()))
BASE, ONCE, TWICE = "aaaa2222", "bbbb3333", "cccc4444"


@pytest.mark.parametrize(("recipe", "told"), [(ADOPTED, "made elsewhere"), (PHASE, "phases before")])
def test_what_was_made_before_or_elsewhere_has_none(recipe: Recipe, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told in " ".join(not_excluded_from(recipe))
    monkeypatch.setattr(unlearning, "load", lambda history, run: SimpleNamespace(run=run, recipe=recipe))
    with pytest.raises(UsageError, match=told):
        unlearning.statement(cast(Any, None), cast(Any, None), "abcd2345")


def test_a_training_that_was_made_without_them_from_the_start_says_nothing_of_the_kind() -> None:
    assert not_excluded_from(WITHOUT) == ()


def forked(root: Root, base: str, run: str, documents: tuple[str, ...]) -> None:
    """What `marin unlearn` records of a fork: a request, and what came of it."""
    request = events.UnlearningRequested(
        from_run=base, recipe=sha("b"), documents=list(documents), reason="a test", first_use=4, step=3, state=sha("c")
    )
    asked = record(root, events.UNLEARNING_REQUESTED, request, unlearning_stream(base))
    fork = events.UnlearningForked(run=run, from_run=base, request=asked, step=3, state=sha("c"), same_tokenizer=True)
    record(root, events.UNLEARNING_FORKED, fork, f"run/{run}")


@pytest.fixture
def root(project: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """Documents y and x, unlearned one after the other; z was never read."""
    monkeypatch.chdir(project)
    root = open_root()
    record_run(root, project, BASE, more={"exclude": ["z"]})
    record_run(root, project, ONCE, more={"exclude": ["y", "z"]})
    forked(root, BASE, ONCE, ("y",))
    record_run(root, project, TWICE, more={"exclude": ["x", "y", "z"]})
    forked(root, ONCE, TWICE, ("x",))
    return root


@pytest.fixture
def file(root: Root, tmp_path: Path) -> Path:
    path = tmp_path / "unlearned.intoto.jsonl"
    path.write_text(certificate(root.history(), root.reader(), TWICE, root.signer()))
    return path


def judge(root: Root, file: Path) -> Judgement:
    return judge_certificate(file, [root.verifier])


def signed_again(root: Root, file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """By the operator, whose key signs whatever he likes."""
    said = json.loads(base64.b64decode(json.loads(file.read_text())["payload"]))
    change(said)
    again = Envelope(json.dumps(said).encode(), PAYLOAD_TYPE, {})
    again.sign(CryptoSigner(root.signer().key, public_key(root.verifier)))
    file.write_text(json.dumps(again.to_dict()) + "\n")


def test_it_is_what_the_log_says(root: Root, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = judge(root, file)
    assert found.exit_code() == 0, found.as_json()
    assert "3 excluded documents, 2 requests and 2 subjects" in found.verdicts["fields"].lines[0]
    assert f"marin verify {TWICE}" in found.verdicts["fields"].lines[1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARIN_ROOT", raising=False)
    alone = judge(root, file)
    assert alone.exit_code() == 0 and "the log is not at hand" in str(alone.as_json())


def test_another_key(root: Root, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = create_key(tmp_path / "other", root.verifier.name).verifier
    assert judge_certificate(file, [VerifierKey.parse(str(other))]).verdicts["signature"].outcome == "FAIL"
    assert judge_certificate(file, []).exit_code() == 0, "one's own key counts for one's own log"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="verifier key"):
        judge_certificate(file, [])
    with pytest.raises(UsageError, match="not a certificate"):
        judge_certificate(tmp_path / "none", [root.verifier])


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a document less": lambda said: said["predicate"]["excludedDocuments"].pop(),
    "another reason": lambda said: said["predicate"]["requests"][0].update(reason="another"),
    "another first use": lambda said: said["predicate"]["requests"][1]["firstUse"].update(trainStep="1"),
    "a request less": lambda said: said["predicate"]["requests"].pop(),
    "a verdict": lambda said: said["predicate"]["equality"]["verdictsInThisLog"][0]["verdicts"].update(data="PASS"),
    "another recipe": lambda said: said["predicate"].update(recipe=sha("f")),
    "another run": lambda said: said["predicate"].update(run=ONCE),
    "no such run": lambda said: said["predicate"].update(run="dddd5555"),
    "less is not proven": lambda said: said["predicate"]["notProven"].pop(),
    "a word more": lambda said: said["predicate"].update(lawful=True),
    "another model": lambda said: said["subject"][1]["digest"].update(sha256="0" * 64),
    "a subject more": lambda said: said["subject"].append({"name": "more", "digest": {"sha256": "0" * 64}}),
    "no proofs": lambda said: said["predicate"].update(evidence=[]),
    "a proof of another event": lambda said: said["predicate"]["evidence"].update(
        {"0": said["predicate"]["evidence"]["1"]}
    ),
    "a proof that is none": lambda said: said["predicate"]["evidence"].update({"0": "c2sp.org/tlog-proof@v1"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_operator_changes_a_field_and_signs_again(root: Root, file: Path, what: str) -> None:
    signed_again(root, file, CHANGES[what])
    found = judge(root, file)
    assert found.outcome == ("UNAVAILABLE" if what == "no such run" else "FAIL"), found.as_json()


def test_no_event_can_be_left_out(root: Root, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the last one of a stream, of which nothing follows: only the log tells whether there is more."""
    last = {event.stream: str(index) for index, event in root.history().events()}
    monkeypatch.chdir(tmp_path)  # the log is not at hand
    monkeypatch.delenv("MARIN_ROOT", raising=False)
    whole = file.read_text()
    names = list(json.loads(base64.b64decode(json.loads(whole)["payload"]))["predicate"]["evidence"])
    passed = []
    for name in names:
        signed_again(root, file, lambda said, name=name: said["predicate"]["evidence"].pop(name))  # type: ignore[misc]
        passed += [name] * (judge(root, file).outcome == "PASS")
        file.write_text(whole)
    assert len(names) > 30 and passed == [last[f"run/{BASE}"]]


@pytest.mark.parametrize(
    ("documents", "told"),
    [(("y", "v"), "requests for 3 of them"), ((), "requests for 1 of them")],
    ids=["more", "fewer"],
)
def test_requests_that_are_not_what_the_recipe_excludes(
    project: Path, monkeypatch: pytest.MonkeyPatch, documents: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(project)
    root = open_root()
    record_run(root, project, BASE)
    record_run(root, project, ONCE, more={"exclude": ["x", "y"]})
    forked(root, BASE, ONCE, ("x", *documents) if documents else ("x",))
    with pytest.raises(UsageError, match=told):
        certificate(root.history(), root.reader(), ONCE, root.signer())


def test_forks_that_disagree(root: Root) -> None:
    forked(root, BASE, TWICE, ("x", "y"))
    with pytest.raises(UsageError, match=r"expected one fork.*found 2 that differ"):
        certificate(root.history(), root.reader(), TWICE, root.signer())
