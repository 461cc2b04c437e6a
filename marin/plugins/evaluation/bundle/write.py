"""`marin export --eval-bundle`: the recorded evaluations of a run's exported model, for a stranger who has that model alone.

:mod:`marin.plugins.evaluation.bundle.layout` says what lies where. The harness's own files are made here from the recorded
answers; nothing is answered anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from ledger import KEY_TYPES, digest_bytes, make_proof
from marin.errors import MissingEvidence, UsageError
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject, open_subject
from marin.history.run import Fact, Run
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.bundle import layout as bundle
from marin.plugins.evaluation.judge import asker_of, read_tree
from marin.plugins.evaluation.recorded import records
from marin.record.attestation import attestation, digests
from marin.record.root import Root
from marin.verify.derivation.record import read_record


@dataclass(frozen=True)
class Written:
    """``digest``: of the attestation. ``taken``: events that the bundle has; ``left``: those of other states than the
    exported one, whose model nobody has as a folder."""

    digest: str
    taken: tuple[int, ...]
    left: tuple[int, ...]


def write_bundle(root: Root, view: Run, dest: Path) -> Written:
    """Fill ``dest``, an empty folder or none. The arithmetic contract of the run is in force when this is called.

    Raises:
        UsageError: there is something in ``dest``.
        MissingEvidence: the run has no exported model, or no evaluation of it.
        Tampered: what is stored is not what is recorded.
    """
    if dest.exists() and any(dest.iterdir()):
        raise UsageError("a bundle is written into an empty folder", where=str(dest), expected="nothing", found="files")
    history, store, reader = root.history(), root.store_to_read(), root.reader()
    exported, trained = view.output("export"), view.output("train").digest
    recorded = read_record(history, view.run).evaluations
    taken = [fact for fact in recorded if fact.body.state == trained]
    if not taken:
        raise MissingEvidence(
            "no evaluation of the exported model is recorded",
            where=f"run {view.run}",
            expected=f"an evaluation of state {trained}",
            found=f"{len(recorded)} of other states",
            cure=f"record one: marin eval {view.run} --tasks ...",
        )
    events = {"started": view.started.index, **{step: view.steps[step].index for step in bundle.STEPS[1:]}}
    (dest / "proofs").mkdir(parents=True)
    for step, index in events.items():
        (dest / bundle.proof_of(step)).write_text(str(make_proof(reader, index)), "utf-8")
    for index in sorted(index for kind in KEY_TYPES for index, _ in history.events(type=kind)):
        (dest / bundle.KEYS / str(index)).mkdir(parents=True)
        (dest / bundle.KEYS / str(index) / bundle.EVENT).write_text(str(make_proof(reader, index)), "utf-8")
    (dest / bundle.VKEY).write_text(f"{root.verifier}\n", "utf-8")
    subject = open_subject(view, store)
    scorer = Scorer(subject.model, subject.recipe)
    for fact in taken:
        place = dest / bundle.EVALUATIONS / str(fact.index)
        place.mkdir(parents=True)
        (place / bundle.EVENT).write_text(str(make_proof(reader, fact.index)), "utf-8")
        store.checkout(fact.body.samples, place / bundle.TREE, how="copy")
        _harness_files(fact, place, subject, scorer)
    numbers = {fact.index: msgspec.to_builtins(fact.body.results) for fact in taken}
    said = bundle.predicate(view.run, exported.digest, numbers)
    content = attestation(digests(dest, bundle.ATTESTATION), bundle.PREDICATE, said, root.signer())
    (dest / bundle.ATTESTATION).write_bytes(content)
    left = tuple(fact.index for fact in recorded if fact.body.state != trained)
    return Written(digest_bytes(content), tuple(fact.index for fact in taken), left)


def _harness_files(fact: Fact[EvaluationRecorded], place: Path, subject: Subject, scorer: Scorer) -> None:
    stored = read_tree(fact.body, place / bundle.TREE)
    if isinstance(stored, str):
        raise MissingEvidence("an evaluation cannot be bundled", where=f"event {fact.index}", found=stored)
    answers = records.requests_of(stored.samples)
    evaluated = asker_of(fact.body, f"event {fact.index}").load()
    again = evaluated(subject, scorer, stored.tasks, stored.settings, recorded=answers, again=())
    (place / bundle.HARNESS).mkdir()
    for name, content in again.files(fact.body).items():
        (place / bundle.HARNESS / name).write_bytes(content)
