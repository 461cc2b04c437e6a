"""`marin verify FOLDER --bundle DIR`: recorded evaluations judged by who has the model and the bundle, and nothing else.

1. the attestation is signed by the log's key, and every file is the one that it names;
2. every event is in the log: its proof leads to one checkpoint that the log's own key signed, which agrees with what was
   seen of the log before and with the root of this command, if that is the log; a key that the log gave up counts no more;
3. the events agree with one another, and the model folder is what the run's export made;
4. each evaluation is judged as in a root (:mod:`marin.plugins.evaluation.judge`), answered by the folder's model;
5. the harness's own files follow from what was found.

Nothing of a bundle is executed or fetched: tasks are data, templates are rendered in a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import ledger
from marin.errors import UsageError
from marin.export.card import CARD, CHAT_TEMPLATE
from marin.history.runs import History, evaluation_stream, facts, stream_of
from marin.kinds.families.measured import EvaluationRecorded
from marin.kinds.known import kind_of, type_of
from marin.plugins.evaluation.bundle import layout as bundle
from marin.plugins.evaluation.judge import judge_tree
from marin.plugins.evaluation.recorded.records import identity_of
from marin.recipe.schema import Execution, Recipe, digest, from_plain
from marin.record.attestation import attested, check_files, digests
from marin.record.events import Body, Output, RunStarted, StepCached, StepCompleted, read
from marin.record.trust.trusted import default_trust
from marin.verify.alone.judgement import check_known, check_signer
from marin.verify.alone.proven import Proven as Shown
from marin.verify.alone.proven import proven
from marin.verify.derivation.fields import unknown_fields
from marin.verify.segments.sampling import seed
from marin.verify.verdict import EvaluationSummary, Report, TrainingSummary, Verdict, judge_safely, outcome_of, worst

if TYPE_CHECKING:
    from marin.evaluation.subject import Subject

WANTED = ("ledger", "evaluation")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_MOST = 4 << 20


@dataclass(frozen=True)
class Proven:
    """What the proofs of a bundle have shown. ``outputs``: by step. ``evaluations``: by the event's index."""

    run: str
    recipe: Recipe
    outputs: dict[str, Output]
    evaluations: dict[int, EvaluationRecorded]
    origin: str
    size: int
    root: bytes


def verify_bundle(
    folder: Path,
    model: Path,
    trusted: Sequence[ledger.VerifierKey],
    execution: Execution,
    sample: int | None,
    policy: ledger.WitnessPolicy | None = None,
) -> Report:
    """Both verdicts. ``trusted``: keys that the stranger named; where there are none, those of `marin trust`. ``policy``: the
    stranger's witnesses, of `marin trust` where it is None.

    Raises:
        UsageError: there is no such bundle, or no such model folder.
    """
    for name, place, inside in (("--bundle", folder, bundle.ATTESTATION), ("FOLDER", model, "config.json")):
        if not (place / inside).is_file():
            raise UsageError("not there", where=name, expected=f"a folder with {inside}", found=str(place))
    try:
        keys, mine = _keys(folder, trusted)
        proven, shown = _proven(folder, keys)
        known = check_known(shown, keys, lambda history: _needed(history, proven), policy=policy)
    except ledger.LedgerError as error:
        said = Verdict(outcome_of(error), (str(error),))
        return _report("", {"ledger": said, "evaluation": Verdict("NOT_RUN")}, "", 0, b"", EvaluationSummary(0, 0, 0))
    lines = (
        f"{len(digests(folder, bundle.ATTESTATION))} files are those that {keys[0]} attested",
        f"{len(proven.outputs) + len(proven.evaluations) + 1} events are in the log {proven.origin} of size {proven.size}",
        *known.lines,
    )
    nobody = f"no key of yours signed this: for {keys[0]} there is only the bundle's word; name the log's key by --vkey"
    events = known.graded(Verdict("PASS", lines)) if mine else Verdict("UNAVAILABLE", (nobody, *lines))
    answers: list[int] = []
    found = [
        judge_safely(partial(_judged, folder, model, proven, index, body, execution, sample, answers))
        for index, body in proven.evaluations.items()
    ]
    outcome = worst([verdict.outcome for verdict in found])
    told = tuple(line for verdict in found if verdict.outcome == outcome for line in verdict.lines)
    total = sum(body.requests for body in proven.evaluations.values())
    first = told[0] if outcome == "FAIL" and told else None
    verdicts = {"ledger": events, "evaluation": Verdict(outcome, told)}
    summary = EvaluationSummary(len(found), total, sum(answers), first)
    return _report(proven.run, verdicts, proven.origin, proven.size, proven.root, summary)


def _needed(history: History, shown: Proven) -> Collection[int]:
    """The events that a bundle of this run has to bring: no evaluation of its last state is left out."""
    state = shown.outputs["train"].digest
    return [
        fact.index
        for fact in facts(history, EvaluationRecorded)
        if fact.body.run == shown.run and fact.body.state == state
    ]


def _report(
    run: str, verdicts: dict[str, Verdict], origin: str, size: int, root: bytes, summary: EvaluationSummary
) -> Report:
    nothing = TrainingSummary("none", 0, 0, 1, 0.0)
    return Report(run, verdicts, nothing, None, origin, size, root.hex(), (), WANTED, evaluation=summary)


def _keys(folder: Path, trusted: Sequence[ledger.VerifierKey]) -> tuple[list[ledger.VerifierKey], bool]:
    """The keys under which the bundle is read, and whether the stranger has them from elsewhere."""
    if trusted:
        return list(trusted), True
    brought = ledger.VerifierKey.parse(_read(folder, bundle.VKEY).decode("utf-8", "replace"))
    known = [key for key in default_trust().all_keys() if key.name == brought.name]
    return (known, True) if known else ([brought], False)


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    if (
        path.is_symlink()
        or not path.is_file()
        or path.stat().st_size > _MOST * (16 if name == bundle.ATTESTATION else 1)
    ):
        raise ledger.Malformed(
            "a file of a bundle is missing, or none", where=name, expected="a plain file", found="none"
        )
    return path.read_bytes()


def _proven(folder: Path, keys: Sequence[ledger.VerifierKey]) -> tuple[Proven, Shown]:
    """Steps 1 to 3 but for the model folder."""
    said = attested(_read(folder, bundle.ATTESTATION), keys, bundle.PREDICATE, where=bundle.ATTESTATION)
    check_files(said.files, digests(folder, bundle.ATTESTATION))
    # Every entry is proven in one log, under the key that signed the list of files; until then nothing in it is read.
    steps = {name: _read(folder, bundle.proof_of(name)) for name in bundle.STEPS}
    indexes = {name: ledger.LogProof.parse(data).index for name, data in steps.items()}
    named = [(str(indexes[name]), data) for name, data in steps.items()]
    asked = _folders(folder / bundle.EVALUATIONS)
    named += [(name, _read(folder, f"{bundle.EVALUATIONS}/{name}/{bundle.EVENT}")) for name in asked]
    named += [(name, _read(folder, f"{bundle.KEYS}/{name}/{bundle.EVENT}")) for name in _folders(folder / bundle.KEYS)]
    shown = proven(named, keys, where="--bundle")
    check_signer(shown, said.key, where=bundle.ATTESTATION)
    _check_key(_read(folder, bundle.VKEY), said.key)
    # Proven is that the entries are in the log. What follows is whether they speak of one run, and of each other.
    events = {name: shown.entries[index] for name, index in indexes.items()}
    started = read(RunStarted, _of(events["started"], RunStarted), where="proofs/started")
    run, recipe = started.run, from_plain(started.recipe, where="proofs/started")
    if digest(recipe) != started.recipe_digest or events["started"].stream != stream_of(run):
        raise ledger.Tampered(
            "the run's beginning contradicts itself", where="proofs/started", expected=started.recipe_digest
        )
    outputs: dict[str, Output] = {}
    for step in bundle.STEPS[1:]:
        event = events[step]
        body = _of(event, StepCompleted, StepCached)
        kind: type[StepCompleted] | type[StepCached] = (
            StepCompleted if event.type == type_of(StepCompleted) else StepCached
        )
        done: StepCompleted | StepCached = read(kind, body, where=f"proofs/{step}")
        if (done.run, done.step, event.stream) != (run, step, stream_of(run)):
            raise ledger.Tampered(
                "an event of something else",
                where=f"proofs/{step}",
                expected=f"step {step} of run {run}",
                found=f"step {done.step} of run {done.run}",
            )
        outputs[step] = done.output
        if step == "export" and done.inputs.get("train") != outputs["train"].digest:
            raise ledger.Tampered(
                "the model was exported from another state",
                where="proofs/export",
                expected=outputs["train"].digest,
                found=str(done.inputs.get("train")),
            )
    # The same of each evaluation: of this run, in its own stream.
    evaluations: dict[int, EvaluationRecorded] = {}
    for name in asked:
        where, event = f"{bundle.EVALUATIONS}/{name}/{bundle.EVENT}", shown.entries[int(name)]
        evaluation = read(EvaluationRecorded, _of(event, EvaluationRecorded), where=where)
        if (event.stream, evaluation.run) != (evaluation_stream(run), run):
            raise ledger.Tampered(
                "an event of something else",
                where=where,
                expected=f"event {name} on run {run}",
                found=f"event {name} on run {evaluation.run}",
            )
        evaluations[int(name)] = evaluation
    _check_statement(said.said, run, outputs["export"].digest, evaluations)
    for name, event in events.items():
        _check_fields(event, f"proofs/{name}")
    for index in evaluations:
        _check_fields(shown.entries[index], f"{bundle.EVALUATIONS}/{index}")
    about = shown.checkpoint
    return Proven(run, recipe, outputs, evaluations, about.origin, about.size, about.root), shown


def _check_key(brought: bytes, signed: str) -> None:
    """Anyone who believes a bundle may take its key from it: it is the one that signed."""
    if brought != f"{signed}\n".encode():
        raise ledger.Tampered(
            "a bundle names another key than the one that signed it",
            where=bundle.VKEY,
            expected=signed,
            found=brought.decode("utf-8", "replace").strip()[:200],
        )


def _folders(place: Path) -> list[str]:
    """The names of the folders of events in ``place``, in the order of the log; those of other names are not events."""
    names = [path.name for path in place.iterdir()] if place.is_dir() and not place.is_symlink() else []
    if wrong := [name for name in names if not _NUMBER.fullmatch(name)]:
        raise ledger.Malformed(
            "not the number of an event", where=place.name, expected="a whole number", found=wrong[0][:80]
        )
    return sorted(names, key=int)


def _check_fields(event: ledger.Event, where: str) -> None:
    """Nothing judges a field that the type does not have: a bundle with one shows more than is established."""
    kind = kind_of(event.type)
    for name in unknown_fields(kind and kind.body, event.body):
        raise ledger.Unverified(
            "an event with a field that its type does not have",
            where=where,
            expected=f"the fields of {event.type}",
            found=name,
            cure="the bundle may be of a newer version of Marin",
        )


def _check_statement(
    said: Mapping[str, object], run: str, model: str, evaluations: Mapping[int, EvaluationRecorded]
) -> None:
    """What is said of the files is what the events say, and is said of something."""
    if not evaluations:
        raise ledger.Malformed(
            "a bundle of no evaluation", where=bundle.EVALUATIONS, expected="one or more", found="none"
        )
    made = bundle.predicate(run, model, {index: msgspec.to_builtins(one.results) for index, one in evaluations.items()})
    for name in sorted({*made, *said}):
        if ledger.canonical_bytes([made.get(name)]) != ledger.canonical_bytes([said.get(name)]):
            raise ledger.Tampered(
                "what is said of a bundle does not follow from its events",
                where=f"{bundle.ATTESTATION}, {name}",
                expected=str(made.get(name))[:200],
                found=str(said.get(name))[:200],
            )


def _of(event: ledger.Event, *bodies: type[Body]) -> dict[str, object]:
    types = [type_of(body) for body in bodies]
    if event.type not in types:
        raise ledger.Tampered("an event of another type", where=event.id, expected=" or ".join(types), found=event.type)
    return dict(event.body)


def _judged(
    folder: Path,
    model: Path,
    proven: Proven,
    index: int,
    body: EvaluationRecorded,
    execution: Execution,
    sample: int | None,
    answers: list[int],
) -> Verdict:
    """Steps 3 to 5 of one evaluation; how many requests were answered again goes to ``answers``."""
    where, place = f"event {index}", folder / bundle.EVALUATIONS / str(index)
    pairs = (
        ("state", proven.outputs["train"].digest, body.state),
        ("step", proven.recipe.last_step, body.step),
        ("tokenizer", proven.outputs["tokenizer"].digest, body.tokenizer),
        ("identity", identity_of(body), body.identity),
        ("model folder", proven.outputs["export"].digest, _exported(model, proven)),
        ("stored tree", body.samples, ledger.describe_tree(place / bundle.TREE).digest),
    )
    if wrong := [f"{where}: {name}: expected {a}, found {b}" for name, a, b in pairs if a != b]:
        return Verdict("FAIL", tuple(wrong))
    verdict, answered, found = judge_tree(
        body,
        where,
        place / bundle.TREE,
        _opened(model, proven.recipe),
        proven.recipe.arithmetic,
        execution,
        sample,
        seed(proven.root, body.identity),
    )
    answers.append(answered)
    if found is None or verdict.outcome not in ("PASS", "PARTIAL"):
        return verdict
    own = found.files(body)
    present = {path.name for path in (place / bundle.HARNESS).iterdir()}
    for name in sorted({*own, *present}):
        if name not in present or name not in own or (place / bundle.HARNESS / name).read_bytes() != own[name]:
            line = f"{where}: {bundle.HARNESS}/{name} is not what the harness writes of these answers"
            return Verdict("FAIL", (line,), executed=True)
    return verdict


def _exported(model: Path, proven: Proven) -> str:
    """The digest of the model folder, or the run's own where that is it without what ``marin export --card`` puts beside a
    model: a card, and the run's chat template. Another template would be another's prompts."""
    from marin.data.template import template_of

    whole, expected, added = ledger.describe_tree(model), proven.outputs["export"].digest, model / CHAT_TEMPLATE
    own = added.is_file() and added.read_bytes() == template_of(proven.recipe.dataset).text.encode()
    for beside in ((CARD,), (CARD, CHAT_TEMPLATE) if own else ()):
        if ledger.Manifest.of([entry for entry in whole if entry.path not in beside]).digest == expected:
            return expected
    return whole.digest


def _opened(model: Path, recipe: Recipe) -> Callable[[], Subject]:
    def opened() -> Subject:
        from marin.data.borrowed.chats import model_template
        from marin.data.template import template_of
        from marin.evaluation.folder_subject import open_folder

        opened = open_folder(model, recipe)
        earlier = template_of(recipe.dataset, opened.special)
        return replace(opened, template=model_template(recipe, model), earlier=earlier)

    return opened
