"""A certificate of unlearning says what its log says, in every field: who changes one, or leaves an event out, is found."""

# Taken by their commands: marin.plugins.unlearning.

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from recorded import record, record_run, sha
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from ledger import Draft, Log, PosixStorage, Unavailable, VerifierKey, canonical_digest, create_key
from marin.data.exclusion import not_excluded_from
from marin.errors import MissingEvidence, UsageError
from marin.export.envelope import public_key
from marin.history.runs import load
from marin.plugins.unlearning import certificate as unlearning
from marin.plugins.unlearning.certificate import certificate, judge_certificate
from marin.plugins.unlearning.kinds import (
    UNLEARNING_FORKED,
    UNLEARNING_REQUESTED,
    UnlearningForked,
    UnlearningRequested,
    fork_pairs,
    forks_of,
    unlearning_stream,
)
from marin.recipe.schema import Recipe, digest, from_mapping, plain
from marin.record import events
from marin.record.attestation import PAYLOAD_TYPE
from marin.record.creation import create_root
from marin.record.root import Root, open_root
from marin.record.trust.homes import VKEY
from marin.verify.alone.judgement import Judgement
from marin.verify.derivation.record import read_record
from tests.marin.conftest import own_folders

ONE = "sha256:" + "1" * 64
WITHOUT = msgspec.structs.replace(Recipe(), exclude=("a-document",))
ADOPTED = msgspec.structs.replace(WITHOUT, tokenizer=msgspec.structs.replace(WITHOUT.tokenizer, artifact=ONE))
PHASE = msgspec.structs.replace(WITHOUT, phase=cast(Any, SimpleNamespace()))
BASE, ONCE, TWICE = "aaaa2222", "bbbb3333", "cccc4444"


@pytest.mark.parametrize(("recipe", "told"), [(ADOPTED, "made elsewhere"), (PHASE, "phases before")])
def test_what_was_made_before_or_elsewhere_has_none(recipe: Recipe, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told in " ".join(not_excluded_from(recipe))
    monkeypatch.setattr(
        unlearning,
        "load",
        lambda history, run: SimpleNamespace(run=run, recipe=recipe, is_loop=False, completed=True, steps=("train",)),
    )
    with pytest.raises(UsageError, match=told):
        unlearning.statement(cast(Any, None), cast(Any, None), "abcd2345")


def test_a_training_that_was_made_without_them_from_the_start_says_nothing_of_the_kind() -> None:
    assert not_excluded_from(WITHOUT) == ()


def recipe_without(documents: Sequence[str]) -> Recipe:
    more = {"exclude": list(documents)} if documents else {}
    return from_mapping({"seed": 3, "trainer": {"num_steps": 6}} | more, where="test")


def segments(root: Root, run: str) -> None:
    """Six train steps, with recorded states before steps 0, 3 and 6, the last of them its output."""
    for start, (before, after) in ((0, ("5", "c")), (3, ("c", "3"))):
        told = events.TrainSegment(
            run=run,
            start=start,
            end=start + 3,
            losses=[(1.0).hex()] * 3,
            batches=["b"] * 3,
            fingerprints=["f"] * 3,
            start_state=sha(before),
            end_state=sha(after),
            trace=sha("d"),
        )
        record(root, events.TRAIN_SEGMENT, told, f"run/{run}")


def trained(
    root: Root, project: Path, run: str, exclude: Sequence[str], before: Callable[[], object] = lambda: None
) -> None:
    """A whole run that excludes these documents; ``before``: what it records first of its training."""

    def training() -> None:
        before()
        segments(root, run)

    tokens = 6 * Recipe().trainer.batch_size * Recipe().model.seq_len
    metrics = {"loss_first": 1.0, "loss_last": 1.0, "tokens": float(tokens)}
    more = {"exclude": list(exclude)} if exclude else {}
    record_run(root, project, run, more=more, before_train=training, trained=metrics)


def asked(root: Root, base: str, documents: Sequence[str], exclude: Sequence[str], stream: str = "") -> int:
    """A request that ``documents`` of ``base`` be unlearned, so that ``exclude`` is; its index."""
    request = UnlearningRequested(
        from_run=base,
        recipe=digest(recipe_without(exclude)),
        documents=list(documents),
        reason="a test",
        first_use=4,
        step=3,
        state=sha("c"),
    )
    return record(root, UNLEARNING_REQUESTED, request, stream or unlearning_stream(base))


def fork(root: Root, base: str, run: str, request: int, said: str = "", step: int = 3) -> None:
    told = UnlearningForked(
        run=said or run, from_run=base, request=request, step=step, state=sha("c"), same_tokenizer=True
    )
    record(root, UNLEARNING_FORKED, told, f"run/{run}")


def forked(root: Root, project: Path, base: str, run: str, documents: Sequence[str], exclude: Sequence[str]) -> None:
    """What `marin unlearn` records."""
    request = asked(root, base, documents, exclude)
    trained(root, project, run, exclude, lambda: fork(root, base, run, request))


@pytest.fixture(scope="module")
def unlearned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, with its keys, in which documents y and x were unlearned one after the other; z was never read. Nobody may
    change it."""
    folder = tmp_path_factory.mktemp("unlearned")
    with pytest.MonkeyPatch.context() as patch:
        own_folders(folder, patch)
        project = folder / "project"
        project.mkdir()
        patch.chdir(project)
        root = create_root(origin="marin.test/tiny")
        trained(root, project, BASE, ["z"])
        forked(root, project, BASE, ONCE, ["y"], ["y", "z"])
        forked(root, project, ONCE, TWICE, ["x"], ["x", "y", "z"])
    return folder


@pytest.fixture
def root(unlearned: Path, own_keys: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A copy of that project, to be changed, in place of the empty one."""
    for mine, theirs in ((project, unlearned / "project"), (own_keys, unlearned / "config")):
        shutil.rmtree(mine)
        shutil.copytree(theirs, mine)
    monkeypatch.chdir(project)
    return open_root()


@pytest.fixture
def file(root: Root, tmp_path: Path) -> Path:
    path = tmp_path / "unlearned.intoto.jsonl"
    path.write_text(certificate(root.history(), root.reader(), TWICE, root.signer()))
    return path


def judge(root: Root, file: Path) -> Judgement:
    return judge_certificate(file, [root.verifier])


def signed_again(root: Root, file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """By the operator, whose key signs anything."""
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
    "not a proof": lambda said: said["predicate"]["evidence"].update({"0": "c2sp.org/tlog-proof@v1"}),
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
    assert len(names) > 30 and passed == [last[f"run/{run}"] for run in (BASE, ONCE)]


def refusal(root: Root, run: str = ONCE) -> str:
    with pytest.raises(UsageError) as refused:
        certificate(root.history(), root.reader(), run, root.signer())
    return str(refused.value)


def test_requests_that_are_not_what_the_recipe_excludes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, BASE, [])
    forked(root, project, BASE, ONCE, ["x", "y", "v"], ["x", "y"])
    forked(root, project, BASE, TWICE, ["x"], ["x", "y"])
    assert "expected request.documents ['x', 'y']" in refusal(root) + refusal(root, TWICE)


def test_a_recipe_on_the_way_that_read_what_was_asked_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, BASE, ["z"])
    forked(root, project, BASE, ONCE, ["y"], [])
    forked(root, project, ONCE, TWICE, ["x"], ["x", "y", "z"])
    assert "request.documents" in refusal(root, TWICE)


def test_a_request_that_nobody_made_before(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, BASE, [])

    def later(run: str, stream: str) -> str:
        after = root.history().events  # the index that the request will have: after the fork
        count = len(list(after())) + 1 + 2 * len(events.STEPS[: events.STEPS.index("train")]) + 2
        trained(
            root, project, run, ["x"], lambda: (fork(root, BASE, run, count), asked(root, BASE, ["x"], ["x"], stream))
        )
        return refusal(root, run)

    assert "a request before the fork" in later(ONCE, "")
    assert "which is not one" in later(TWICE, "anything/at-all")


@pytest.mark.parametrize("what", ["another run's", "another step", "two that differ", "none before", "itself"])
def test_forks_that_do_not_agree(project: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, BASE, [])
    base = {"none before": "zzzz7777", "itself": ONCE}.get(what, BASE)
    request = asked(root, base, ["x"], ["x"])

    def before() -> None:
        fork(
            root, base, ONCE, request, "qqqq7777" if what == "another run's" else "", 6 if what == "another step" else 3
        )
        if what == "two that differ":
            fork(root, base, ONCE, request, step=6)

    trained(root, project, ONCE, ["x"], before)
    if what == "none before":
        with pytest.raises(MissingEvidence):
            certificate(root.history(), root.reader(), ONCE, root.signer())
        return
    told = {
        "another run's": f"a fork of run {ONCE}",
        "another step": "expected step 3",
        "two that differ": "expected step 3",
    }
    assert told.get(what, "says two things") in refusal(root)


def test_an_unlearning_that_was_interrupted_and_asked_again_with_another_reason(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, BASE, [])
    first, second = asked(root, BASE, ["x"], ["x"]), asked(root, BASE, ["x"], ["x"])
    trained(root, project, ONCE, ["x"], lambda: (fork(root, BASE, ONCE, first), fork(root, BASE, ONCE, second)))
    file = project / "certificate"
    file.write_text(certificate(root.history(), root.reader(), ONCE, root.signer()))
    assert judge(root, file).exit_code() == 0
    assert records_agree(root, ONCE)


def test_a_fork_for_no_document_agrees_with_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All else of it agrees: the request and the fork are for nothing, and nothing was read first at any step."""
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, BASE, [])
    trained(root, project, ONCE, [], lambda: fork(root, BASE, ONCE, asked(root, BASE, [], [])))
    assert not records_agree(root, ONCE)


def records_agree(root: Root, run: str) -> bool:
    """Whether `marin verify` finds no contradiction between forks and what they refer to."""
    record = read_record(root.history(), run)
    return all(
        expected == told
        for index, one in forks_of(record).items()
        for _, expected, told in fork_pairs(record.run, record.run.recipe, index, one)
    )


def taken_over(root: Root, run: str, base: str, more: dict[str, Any]) -> None:
    """A whole run of another recipe, up to its training, that took every step from ``base``."""
    recipe = from_mapping({"seed": 3, "trainer": {"num_steps": 6}} | more, where="test")
    steps = {
        name: step for name, step in load(root.history(), base).steps.items() if name not in ("evaluate", "export")
    }
    codes = {step: sha("9") for step in steps}
    plan = canonical_digest({"code": codes, "lock": sha("d"), "plan": "default", "recipe": digest(recipe)})
    begun = events.RunStarted(
        run=run,
        pipeline="default",
        plan=plan,
        recipe_digest=digest(recipe),
        recipe=plain(recipe),
        code={"commit": "c", "steps": codes},
        environment={"lock": sha("d")},
    )
    record(root, events.RUN_STARTED, begun, f"run/{run}")
    for name, step in steps.items():
        cached = events.StepCached(
            run=run,
            step=name,
            identity=step.identity,
            inputs=dict(step.inputs),
            output=step.output,
            completed_at=step.completed_at,
        )
        record(root, events.STEP_CACHED, cached, f"run/{run}")
    outputs = {name: step.output for name, step in steps.items()}
    metrics = {f"{name}.{key}": value.hex() for name, step in steps.items() for key, value in step.metrics.items()}
    record(root, events.RUN_COMPLETED, events.RunCompleted(run=run, outputs=outputs, metrics=metrics), f"run/{run}")


def test_a_training_that_was_taken_over_from_an_unlearned_run(root: Root, tmp_path: Path) -> None:
    """By a recipe that differs where training does not look: the fork is judged by the run that recorded it."""
    file = tmp_path / "certificate"
    taken_over(root, "dddd5555", TWICE, {"exclude": ["x", "y", "z"], "evaluation": {"max_sequences": 8}})
    assert records_agree(root, "dddd5555")
    file.write_text(certificate(root.history(), root.reader(), "dddd5555", root.signer()))
    assert judge(root, file).exit_code() == 0
    taken_over(root, "eeee5555", TWICE, {"exclude": ["w", "x", "y", "z"]})
    assert not records_agree(root, "eeee5555")
    assert "exclude" in refusal(root, "eeee5555")


def signed_anyway(root: Root, run: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> Judgement:
    """What is found of a certificate that the operator's own program wrote, which asks nothing."""
    with monkeypatch.context() as his:
        his.setattr(unlearning, "contradictions", lambda record, plan: [])
        his.setattr(unlearning, "_own_pairs", lambda run: iter(()))
        file.write_text(certificate(root.history(), root.reader(), run, root.signer()))
    return judge(root, file)


def test_a_training_that_was_taken_over_from_a_run_that_read_the_document(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And which no fork leads from: its steps were recorded under a recipe that does not exclude it."""
    taken_over(root, "dddd5555", BASE, {"exclude": ["x", "z"]})
    assert "exclude=['x', 'z']" in refusal(root, "dddd5555")
    found = signed_anyway(root, "dddd5555", tmp_path / "certificate", monkeypatch)
    assert found.outcome == "FAIL" and "exclude=['x', 'z']" in str(found.as_json())


def test_a_state_that_no_train_step_led_to(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The subject is another state than the one that the record of the training ends in."""
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, BASE, [])
    monkeypatch.setattr(f"{__name__}.segments", lambda root, run: None)
    forked(root, project, BASE, ONCE, ["x"], ["x"])
    assert "train steps are missing from the record" in refusal(root)
    found = signed_anyway(root, ONCE, tmp_path / "certificate", monkeypatch)
    assert found.outcome == "FAIL" and "train steps are missing" in str(found.as_json())


def test_a_log_at_hand_that_has_grown(root: Root, file: Path) -> None:
    """Also by a later run that takes steps over from one that was there before."""
    taken_over(root, "dddd5555", BASE, {"exclude": ["z"]})
    found = judge(root, file)
    assert found.exit_code() == 0, found.as_json()


@pytest.mark.parametrize(
    "what", ["the export of another state", "outputs that are not the run's", "another recipe's digest"]
)
def test_what_does_not_belong_together(project: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, BASE, [])
    forked(root, project, BASE, ONCE, ["x"], ["x"])
    output = events.Output(kind="model", digest=sha("7"), size=7, artifact=sha("7"))
    if what == "another recipe's digest":
        view = load(root.history(), ONCE)
        view = replace(
            view, started=replace(view.started, body=msgspec.structs.replace(view.started.body, recipe_digest=sha("f")))
        )
        monkeypatch.setattr(unlearning, "load", lambda history, run: view if run == ONCE else load(history, run))
        assert "recipe" in refusal(root)
        return
    inputs = {
        "train": sha("9")
        if what == "the export of another state"
        else load(root.history(), ONCE).output("train").digest
    }
    done = events.StepCompleted(
        run=ONCE, step="export", identity=sha("e"), inputs=inputs, output=output, metrics={}, seconds=1.0
    )
    record(root, events.STEP_COMPLETED, done, f"run/{ONCE}")
    assert {"the export of another state": "input of export"}.get(what, "outputs") in refusal(root)


def test_a_circle_of_forks(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    root = open_root()
    request = asked(root, ONCE, ["y"], ["x", "y"])
    trained(root, project, BASE, ["x", "y"], lambda: fork(root, ONCE, BASE, request))
    forked(root, project, BASE, ONCE, ["x"], ["x", "y"])
    assert "says two things" in refusal(root)


def test_a_training_that_another_run_is_said_to_have_recorded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, BASE, [])
    forked(root, project, BASE, ONCE, ["x"], ["x"])
    output = events.Output(kind="state", digest=sha("7"), size=7, artifact=sha("7"))
    done = events.StepCompleted(
        run="zzzz9999", step="train", identity=sha("e"), inputs={}, output=output, metrics={}, seconds=1.0
    )
    record(root, events.STEP_COMPLETED, done, f"run/{ONCE}")
    assert "a training in the stream of the run that recorded it" in refusal(root)


def test_two_beginnings(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained under the first one, which excludes nothing."""
    monkeypatch.chdir(project)
    root = open_root()
    trained(root, project, ONCE, [])
    recipe = recipe_without(["x"])
    again = events.RunStarted(
        run=ONCE,
        pipeline="default",
        plan=sha("a"),
        recipe_digest=digest(recipe),
        recipe=plain(recipe),
        code={"commit": "c"},
        environment={},
    )
    record(root, events.RUN_STARTED, again, f"run/{ONCE}")
    refusal(root)


@pytest.mark.parametrize("pipeline", ["default", events.LOOP])
def test_what_is_not_whole_or_is_ones_own_loop_has_none(
    project: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str
) -> None:
    monkeypatch.chdir(project)
    root, recipe = open_root(), recipe_without(["x"])
    begun = events.RunStarted(
        run=ONCE,
        pipeline=pipeline,
        plan=sha("a"),
        recipe_digest=digest(recipe),
        recipe=plain(recipe),
        code={"commit": "c"},
        environment={},
    )
    record(root, events.RUN_STARTED, begun, f"run/{ONCE}")
    said = refusal(root)
    assert "a run that has no training to certify" in said or "a loop of its user's own recorded this run" in said


def test_half_of_a_hybrid_key(tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who knows both halves asks for both signatures, as of the log itself."""
    monkeypatch.chdir(tmp_path)
    root = create_root(str(tmp_path / "hybrid"), origin="marin.test/hybrid", hybrid=True)
    trained(root, tmp_path, ONCE, ["x"])
    file, keys = tmp_path / "certificate", root.own_keys()
    file.write_text(certificate(root.history(), root.reader(), ONCE, root.signer()))
    assert len(keys) == 2 and judge_certificate(file, keys).exit_code() == 0
    whole = file.read_text()
    for kept in (0, 1):

        def stripped(said: dict[str, Any], kept: int = kept) -> None:
            for name, text in said["predicate"]["evidence"].items():
                head, between, signatures = text.rpartition("\n\n")
                said["predicate"]["evidence"][name] = head + between + signatures.splitlines()[kept] + "\n"

        signed_again(root, file, stripped)
        found = judge_certificate(file, keys)
        assert found.outcome == "FAIL" and "hybrid key" in found.verdicts["events"].lines[0] + "hybrid key" * (
            kept == 1
        )
        file.write_text(whole)


def test_a_shorter_fork_at_hand(root: Root, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same key signed another log, which has less: it is compared event by event; one that cannot be opened is said."""
    Log.create(PosixStorage(tmp_path / "fork"), root.signer())
    with Log.open(PosixStorage(tmp_path / "fork"), root.signer()) as log:
        log.append([Draft("a/v1", "s", {"n": number}) for number in range(5)])
    PosixStorage(tmp_path / "fork").create(VKEY, f"{root.verifier}\n".encode())
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "fork"))
    found = judge(root, file).verdicts["events"]
    assert found.outcome == "FAIL" and "another history" in found.lines[0]
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable):
        judge(root, file)


FORMS: dict[str, Callable[[str], str]] = {
    "a subject twice": lambda text: text.replace(
        '"subject": [', '"subject": [{"name": "export", "digest": {"sha256": "00"}}, ', 1
    ),
    "a digest of another kind": lambda text: text.replace('"sha256": "', '"gitCommit": "f00", "sha256": "', 1),
    "where it lies": lambda text: text.replace(
        '"name": "export"', '"uri": "https://evil.example", "name": "export"', 1
    ),
    "a word beside": lambda text: text.replace('"_type"', '"lawful": true, "_type"', 1),
    "a key twice": lambda text: text.replace(
        '"excludedDocuments": [', '"excludedDocuments": ["never"], "excludedDocuments": [', 1
    ),
    "one for true": lambda text: text.replace('"sameTokenizer": true', '"sameTokenizer": 1', 1),
}


@pytest.mark.parametrize("what", FORMS)
def test_what_other_readers_would_take_from_it(root: Root, file: Path, what: str) -> None:
    text = json.dumps(json.loads(base64.b64decode(json.loads(file.read_text())["payload"])))
    changed = FORMS[what](text)
    assert changed != text
    again = Envelope(changed.encode(), PAYLOAD_TYPE, {})
    again.sign(CryptoSigner(root.signer().key, public_key(root.verifier)))
    file.write_text(json.dumps(again.to_dict()) + "\n")
    assert judge(root, file).outcome == "FAIL", judge(root, file).as_json()
