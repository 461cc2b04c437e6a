"""What a run has unlearned, as an in-toto statement with a predicate of our own, in a DSSE envelope signed by the log's key.

The subjects are the last state and, where there is one, the exported model. The predicate says which documents are
excluded, who asked for it and when, which verdicts this log has on the run, and what the certificate does not prove. It
brings every event that this follows from with its C2SP tlog-proof (which carries the signed checkpoint and what witnesses
signed of it), so that ``marin verify --unlearning`` makes the statement again and compares. That the bits are those of a
training without the documents is not for an event to say: `marin verify RUN` proves it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement

from ledger import LogCheckpoint, LogReader, Malformed, Signer, Tampered, VerifierKey, WitnessPolicy, canonical_bytes
from marin.data.exclusion import not_excluded_from
from marin.errors import MissingEvidence, UsageError
from marin.export.envelope import envelope, plain
from marin.history.run import Fact, Run
from marin.history.runs import History, is_a, load, read_fact, stream_of
from marin.pipeline.stages import PIPELINE
from marin.plugins.unlearning.kinds import Fork, UnlearningForked, UnlearningRequested, fork_pairs, unlearning_stream
from marin.recipe.schema import digest
from marin.record.attestation import ReadAttestation, attested
from marin.record.events import ReplayCompleted, RunStarted
from marin.record.verdicts import NAMES
from marin.verify.alone.judgement import Judgement, check_known, check_signer, trusted_keys
from marin.verify.alone.proven import Noting, Proven, note_keys, proofs, proven
from marin.verify.derivation.record import read_record
from marin.verify.derivation.records import contradictions, unexplained
from marin.verify.segments.compare import chain
from marin.verify.verdict import Verdict, judge_safely

PREDICATE: Final = "urn:marin:unlearning:v2"
QUESTIONS: Final = ("signature", "events", "fields")
_MOST: Final = 64 << 20
_MOST_FORKS: Final = 100
NOT_PROVEN = (
    "that no copy of the model from before the request is kept or used",
    "that no near copy of a document, or its text in another document, was read: their ids would be others",
    "that the raw data, the corpus or an older run was deleted: they are not what the subject was trained on",
    "that the reason is true, and that anyone who asked had a right to ask",
)


def certificate(history: History, reader: LogReader, run: str, signer: Signer) -> str:
    """The signed statement about ``run``, as one line of JSON.

    Raises:
        UsageError: as :func:`statement`.
    """
    noting = Noting(history)
    note_keys(noting)
    statement(noting, reader.checkpoint(), run)
    evidence = {str(index): text for index, text in proofs(reader, noting.noted).items()}
    told = Proven(noting.noted, reader.checkpoint())  # what anyone who judges it will read
    signed = envelope(_whole(told, told.checkpoint, run, evidence), signer)
    return json.dumps(signed.to_dict(), sort_keys=True) + "\n"


def _whole(history: Proven, checkpoint: LogCheckpoint, run: str, evidence: Mapping[str, str]) -> Statement:
    predicate = statement(history, checkpoint, run) | {"evidence": dict(evidence)}
    for name in (run, *(asked["fromRun"] for asked in predicate["requests"])):
        record = read_record(history, name)
        for found in contradictions(record, PIPELINE):
            raise _disagreement(name, found.expected, f"{found.found} (event {found.index}, {found.field})")
        for unknown in unexplained(record, PIPELINE) if name == run else ():
            raise MissingEvidence(
                "a run that says more than is judged",
                where=f"run {run}, event {unknown.index}",
                expected="events that this version derives",
                found=unknown.what[:200],
                cure="it may be of a newer version of Marin",
            )
    return Statement(_subjects(load(history, run)), PREDICATE, predicate)


def statement(history: History, checkpoint: LogCheckpoint, run: str) -> dict[str, Any]:
    """What :func:`certificate` signs, but for the proofs.

    Raises:
        UsageError: the run has unlearned nothing, is not complete, or a part of it was made before or elsewhere, perhaps with
            the documents; or what is recorded of its forks does not agree, by the rules of
            :func:`marin.plugins.unlearning.kinds.fork_pairs`.
    """
    view = load(history, run)
    exclude = view.recipe.exclude
    if view.completed is None or "train" not in view.steps:
        raise UsageError(
            "a run that has no training to certify",
            where=f"run {run}",
            expected="a complete run of the pipeline",
            found=view.status,
            cure="finish it first: `marin show RUN` says what is left",
        )
    if exclude is None:
        raise UsageError(
            "a run that has unlearned nothing",
            where=f"run {run}",
            expected="a recipe that excludes documents",
            found="none",
            cure="name what `marin unlearn` made",
        )
    if rest := not_excluded_from(view.recipe):
        raise UsageError(
            "no certificate for a part of a training",
            where=f"run {run}",
            expected="all of it made without the documents",
            found=f"that nothing is said of {' and '.join(rest)}",
            cure="unlearn them from the run that read them first, by `marin unlearn`, and go on from what that makes",
        )
    return {
        "run": run,
        "recipe": view.started.body.recipe_digest,
        "excludedDocuments": list(exclude),
        "requests": _requests(history, view, exclude),
        "equality": {
            "statement": "training this recipe from its own initial state, without the documents from the first train step "
            "on, gives the subjects in every bit",
            "provenBy": f"marin verify {run}: data, training and model, executed by anyone who asks",
            "verdictsInThisLog": [_verdicts(fact) for fact in view.verdicts],
        },
        "log": {"origin": checkpoint.origin, "size": str(checkpoint.size), "root": checkpoint.root.hex()},
        "notProven": list(NOT_PROVEN),
    }


def _subjects(run: Run) -> list[Any]:
    found = []
    for name in ("train", "export"):
        if (step := run.steps.get(name)) is not None:
            kind, _, value = step.output.digest.partition(":")
            found.append(ResourceDescriptor(name=name, digest={kind: value}).pb)
    return found


def _requests(history: History, run: Run, exclude: Sequence[str]) -> list[dict[str, Any]]:
    """Each fork on the way to ``run``, the first one first; each agrees with the run before it and with what was asked, so
    that together they exclude what the recipe does, but for what the first run excluded from its start.

    Raises:
        UsageError: one does not, or there is no end of them.
    """
    found: list[dict[str, Any]] = []
    view, seen = run, {run.run}
    _note_record(history, view)
    while (fork := _fork(history, view)) is not None:
        before, body, request = fork.before, fork.fact.body, fork.request
        _check_pairs(view, (*_own_pairs(view), *fork_pairs(view, view.recipe, fork.fact.index, fork)))
        assert before is not None and request is not None  # or the first of these pairs said so
        if before.run in seen or len(seen) > _MOST_FORKS:
            raise _disagreement(run.run, f"a first run, within {_MOST_FORKS} forks", f"run {before.run} again")
        seen.add(before.run)
        found.append(
            {
                "fromRun": body.from_run,
                "documents": list(request.body.documents),
                "reason": request.body.reason,
                "requested": {"event": str(body.request), "time": request.time},
                "firstUse": {"trainStep": str(request.body.first_use)},
                "fork": {"event": str(fork.fact.index), "trainStep": str(body.step), "state": body.state},
                "sameTokenizer": body.same_tokenizer,
            }
        )
        view = before
        _note_record(history, view)
    _check_pairs(view, _own_pairs(view))
    return found[::-1]


def _note_record(history: History, run: Run) -> None:
    """Read all that a run and those that its results came from say, and what their forks and the run refer to: whether the
    record agrees with itself is found of that.

    Raises:
        UsageError: there is no end of its forks.
    """
    for origin in {run.run, *(step.origin for step in run.steps.values())}:
        events = list(history.events(stream=stream_of(origin)))
        forks = [read_fact(UnlearningForked, item).body for item in events if is_a(item, UnlearningForked)]
        if len(forks) > _MOST_FORKS:
            raise _disagreement(origin, f"at most {_MOST_FORKS} forks", str(len(forks)))
        for body in forks:
            history.event(body.request)
            with suppress(MissingEvidence):
                load(history, body.from_run)
    with suppress(MissingEvidence):  # anyone who makes the statement of it says so
        read_record(history, run.run)


def _check_pairs(run: Run, pairs: Iterable[tuple[str, Any, Any]]) -> None:
    for name, expected, told in pairs:
        if expected != told:
            raise _disagreement(run.run, f"{name} {expected}", str(told))


def _own_pairs(run: Run) -> Iterator[tuple[str, Any, Any]]:
    """What a run has to say of itself, and what it says: its recipe, that its results are of one training, and that this one
    was recorded from its first train step to the state that it gave."""
    recipe = run.recipe
    yield "recipe", digest(recipe), run.started.body.recipe_digest
    segments = [fact.body for fact in run.segments]
    broken = chain(segments, recipe.last_step, run.output("train").digest, first=recipe.first_step)
    if broken is not None:
        yield broken.explanation, broken.expected, broken.found
    if "export" in run.steps and "train" in run.steps:
        yield "input of export", run.steps["train"].output.digest, run.steps["export"].inputs.get("train")
    if run.completed is not None:
        yield "outputs", {name: step.output for name, step in run.steps.items()}, dict(run.completed.body.outputs)


def _fork(history: History, run: Run) -> Fork | None:
    """The fork that the training of ``run`` begins with, which another run may have recorded; None where there is none."""
    train = run.steps.get("train")
    if train is None:
        raise _disagreement(run.run, "a training", "none")
    made = history.event(train.completed_at)
    if made is None or made.stream != stream_of(train.origin):
        raise _disagreement(
            run.run, "a training in the stream of the run that recorded it", f"event {train.completed_at}"
        )
    events = list(history.events(stream=made.stream))
    if len([item for item in events if is_a(item, RunStarted)]) != 1:
        raise _disagreement(run.run, "one beginning", f"several of run {train.origin}")
    forks = [item for item in events if is_a(item, UnlearningForked) and item[0] < train.completed_at]
    if not forks:
        return None
    fact = read_fact(UnlearningForked, forks[-1])  # earlier ones are of attempts that were interrupted
    body = fact.body
    if body.run != train.origin:
        raise _disagreement(run.run, f"a fork of run {train.origin}", body.run)
    asked = history.event(body.request)
    if (
        asked is None
        or not is_a((body.request, asked), UnlearningRequested)
        or asked.stream != unlearning_stream(body.from_run)
    ):
        raise _disagreement(run.run, f"a request about run {body.from_run}", f"event {body.request}, which is not one")
    recipe = run.recipe if train.origin == run.run else load(history, train.origin).recipe
    return Fork(fact, load(history, body.from_run), read_fact(UnlearningRequested, (body.request, asked)), recipe)


def _disagreement(run: str, expected: str, found: str) -> UsageError:
    return UsageError(
        "a run that says two things of what it has unlearned",
        where=f"run {run}",
        expected=expected,
        found=found[:200],
        cure="see `marin log --stream run/RUN`; unlearn again",
    )


def _verdicts(fact: Fact[ReplayCompleted]) -> dict[str, Any]:
    return {
        "event": str(fact.index),
        "time": fact.time,
        "verdicts": {name: fact.body.verdicts[name] for name in NAMES if name in fact.body.verdicts},
        "root": str(fact.body.log_checkpoint.get("root")),
    }


def judge_certificate(file: Path, trusted: Sequence[VerifierKey], policy: WitnessPolicy | None = None) -> Judgement:
    """Whether a certificate is what its log says. ``trusted``: keys that the verifier named, or else the verifier's own and
    those of `marin trust`; ``policy``: the verifier's witnesses, of `marin trust` where it is None.

    Raises:
        UsageError: there is no such file, or no key to judge it by.
    """
    if not file.is_file() or file.stat().st_size > _MOST:
        raise UsageError(
            "not a certificate",
            where=str(file),
            expected=f"a file of at most {_MOST} bytes",
            found="none",
            cure="marin export RUN --unlearning FILE writes one",
        )
    keys = trusted_keys(trusted, "a certificate")
    verdicts: dict[str, Verdict] = dict.fromkeys(QUESTIONS, Verdict("NOT_RUN"))
    found: dict[str, Any] = {"run": ""}

    def signature() -> Verdict:
        found["said"] = said = attested(file.read_bytes(), keys, PREDICATE, where=file.name)
        found["run"] = str(said.said.get("run", ""))
        return Verdict("PASS", (f"signed by {said.key}",))

    def events() -> Verdict:
        said: ReadAttestation = found["said"]
        found["proven"] = shown = proven(_evidence(said, file.name), keys, where=file.name)
        check_signer(shown, said.key, where=file.name)
        about = shown.checkpoint
        known = check_known(
            shown, keys, lambda history: _needed(history, about, found["run"], file.name), policy=policy
        )
        inside = f"{len(shown.entries)} events are in the log {about.origin}, of size {about.size}"
        return known.graded(Verdict("PASS", (inside, *known.lines)))

    def fields() -> Verdict:
        return _fields(found["said"], found["proven"], found["run"], file.name)

    for name, question in zip(QUESTIONS, (signature, events, fields), strict=True):
        verdicts[name] = judge_safely(question)
        if verdicts[name].outcome not in ("PASS", "PARTIAL"):
            break
    return Judgement(found["run"], verdicts)


def _evidence(said: ReadAttestation, where: str) -> list[tuple[str, bytes]]:
    evidence = said.said.get("evidence")
    if not isinstance(evidence, dict) or not all(isinstance(text, str) for text in evidence.values()):
        raise Malformed(
            "a certificate without proofs", where=where, expected="evidence: a proof for each event", found="none"
        )
    return [(str(name), text.encode()) for name, text in evidence.items()]


def _needed(history: History, checkpoint: LogCheckpoint, run: str, where: str) -> list[int]:
    noting = Noting(history)
    note_keys(noting)
    try:
        statement(noting, checkpoint, run)
    except UsageError as error:
        raise _missing_value(where, error) from error
    return list(noting.noted)


def _fields(said: ReadAttestation, shown: Proven, run: str, where: str) -> Verdict:
    """The statement, made again from its events."""
    try:
        made = plain(_whole(shown, shown.checkpoint, run, dict(said.said["evidence"])))
    except UsageError as error:
        raise _missing_value(where, error) from error
    predicate = made["predicate"]
    subjects = {one["name"]: "sha256:" + one["digest"]["sha256"] for one in made["subject"]}
    pairs: list[tuple[str, Any, Any]] = [("subject", subjects, dict(said.files))]
    pairs += [(name, predicate.get(name), said.said.get(name)) for name in sorted({*predicate, *said.said})]
    for name, expected, told in pairs:
        if canonical_bytes([expected]) != canonical_bytes([told]):  # not ==, to which true is 1
            raise Tampered(
                "a field does not follow from the events",
                where=f"{where}, {name}",
                expected=str(expected)[:200],
                found=str(told)[:200],
            )
    documents, requests = len(predicate["excludedDocuments"]), len(predicate["requests"])
    return Verdict(
        "PASS",
        (
            f"{documents} excluded documents, {requests} requests and {len(subjects)} subjects follow from the "
            "proven events",
            f"the bits are not judged here: {predicate['equality']['provenBy']}",
        ),
    )


def _missing_value(where: str, error: UsageError) -> Tampered:
    return Tampered(
        "a certificate that its events do not give", where=where, expected="one that they give", found=str(error)
    )
