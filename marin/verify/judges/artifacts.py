"""The verdict ``artifacts``: every byte that the run names, hashed again, and bound to what it is recorded as.

Bytes of an artifact can be whole and still not be what an event calls them. So each output's content is digested from
its bytes (:mod:`marin.record.outputs`), each checkpoint's tensors are, each list of tensors is that of its state, and
each train step's fingerprint follows from what else is recorded of the step.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ledger import LedgerError, Malformed, NotFound, StateManifest, StoredFolder
from marin.history.run import Fact, Run
from marin.process.progress import bar
from marin.provenance.plugins import load_plugin
from marin.record import outputs
from marin.record.events import GRAD_NORM, CheckpointSaved, Output
from marin.verify.case import Case
from marin.verify.derivation.fingerprints import underivable_steps
from marin.verify.derivation.series import recorded_series
from marin.verify.judges.loop import judge_lists
from marin.verify.verdict import Verdict


@dataclass
class _Findings:
    """What is wrong, and what is not here, in the order in which it was looked at."""

    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def look(self, what: str, findings: Iterator[str]) -> None:
        """Take up what ``findings`` say of ``what``; bytes that turn out not to be here are missing, and not wrong."""
        try:
            for finding in findings:
                self.wrong.append(f"{what}: {finding}")
        except NotFound as error:
            self.missing.append(f"{what}: {error}")
        except LedgerError as error:
            self.wrong.append(f"{what}: {error}")


def judge_artifacts(case: Case) -> Verdict:
    """FAIL where bytes are damaged, or are not what is recorded; UNAVAILABLE where they are missing. Bytes that are kept
    back excuse nothing that the others contradict."""
    found, absent = _Findings(), set[str]()
    named = named_artifacts(case.run)
    read_by_content = {view.output.artifact for view in case.run.steps.values() if outputs.by_content(view.output)}
    read_by_content |= {fact.body.artifact for fact in retained_checkpoints(case.run)}
    with bar("artifacts", len(named)) as progress:
        for done, (digest, what) in enumerate(named.items()):
            try:
                kind = case.store.kind(digest)
                if digest not in read_by_content:  # those are hashed on their way out of the store
                    for finding in case.store.verify(digest):
                        (found.missing if finding.missing else found.wrong).append(f"{what}: {finding}")
                        if kind == "blob":
                            absent.add(digest)
            except NotFound:
                found.missing.append(f"{what}: {digest} is not in the store")
                absent.add(digest)
            progress(done + 1, what)
    if not found.wrong:
        _look_at_contents(case, found, absent)
    if found.wrong:
        return Verdict("FAIL", (*found.wrong, *found.missing))
    if found.missing:
        return Verdict("UNAVAILABLE", tuple(found.missing))
    lines = [f"{len(named)} artifacts hashed again, and the content of every output and checkpoint digested"]
    if gone := len(case.run.checkpoints) - len(retained_checkpoints(case.run)):
        lines.append(f"{gone} training checkpoints were not asked for: the run lets them go (--keep-checkpoints)")
    return Verdict("PASS", tuple(lines))


def retained_checkpoints(run: Run) -> list[Fact[CheckpointSaved]]:
    """The run's training checkpoints without those that its policy lets go."""
    gone = run.let_go
    return [fact for fact in run.checkpoints if fact.body.artifact not in gone]


def named_artifacts(run: Run) -> dict[str, str]:
    """Digest -> what it is, for everything that the run's events name in the store and the run keeps."""
    named: dict[str, str] = {}
    rollouts = False
    if (recipe := run.readable_recipe) is not None:
        rollouts = recipe.objective is not None
        named |= recipe.objective.stored if recipe.objective is not None else {}
        if (initial := recipe.initial) is not None:
            named |= {initial.model: "the model that it begins with", initial.tokenizer: "the tokenizer of that model"}
        if (taken := recipe.tokenizer.artifact) is not None:
            named[taken] = "the tokenizer that was taken over"
    if cited := run.started.body.experiment:
        named[cited] = "the registration that it cites"
    for name, step in run.steps.items():
        named.setdefault(step.output.artifact, f"output of {name}")
        for table, digest in step.tables.items():
            named.setdefault(digest, f"table {table} of {name}")
    for saved in retained_checkpoints(run):
        named.setdefault(saved.body.artifact, f"training checkpoint of step {saved.body.step}")
    for saved in run.checkpoints:
        named.setdefault(saved.body.manifest, f"list of tensors of step {saved.body.step}")
    for segment in run.segments:
        if rollouts:
            for offset, digest in enumerate(segment.body.batches):
                named.setdefault(digest, f"completions of train step {segment.body.start + offset}")
        named.setdefault(segment.body.trace, f"trace of train steps {segment.body.start} to {segment.body.end - 1}")
    for told in run.loop:
        if told.body.manifest:
            named.setdefault(told.body.manifest, f"list of tensors after train step {told.body.end - 1}")
    for started in run.training:
        named.setdefault(started.body.manifest, f"list of tensors of step {started.body.first_step}")
    return named


def _look_at_contents(case: Case, found: _Findings, absent: Collection[str]) -> None:
    """Stored things that are whole, and are not what the events call them. ``absent``: what is known not to be here."""
    folder = case.workshop / "bound"
    folder.mkdir(parents=True)
    looks: list[tuple[str, str, Iterator[str]]] = [
        (f"output of {name}", step.output.artifact, _output(case, step.output, folder / name))
        for name, step in case.run.steps.items()
    ]
    for fact in retained_checkpoints(case.run):
        saved = fact.body
        state = _state(case, saved, folder / f"state-{saved.step}")
        looks.append((f"training checkpoint of step {saved.step}", saved.artifact, state))
    with bar("contents", len(looks)) as progress:
        for done, (what, artifact, findings) in enumerate(looks):
            if artifact not in absent:
                found.look(what, findings)
            progress(done + 1, what)
    found.wrong += [*_mislabelled(case, absent), *_misregistered(case, absent)]
    if case.run.is_loop:
        found.look("state", iter(judge_lists(case)))


def _output(case: Case, output: Output, folder: Path) -> Iterator[str]:
    try:
        if outputs.is_file(case.store, output):
            yield from map(str, outputs.file_mismatches(output, case.store.artifact(outputs.bytes_of(output)).size))
            return
        mismatched = [str(item) for item in outputs.mismatches(output, case.store.manifest(output.artifact))]
        yield from mismatched
        if not mismatched and outputs.by_content(output):
            lies = _lies(case, output.artifact, folder)
            yield from map(str, outputs.content_mismatches(output, lies))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _state(case: Case, saved: CheckpointSaved, folder: Path) -> Iterator[str]:
    try:
        size = case.store.manifest(saved.artifact).size
        if size != saved.size:
            yield f"recorded {saved.size} bytes, found {size}"
        lies = _lies(case, saved.artifact, folder)
        yield from map(str, outputs.checkpoint_mismatches(saved.state, case.store.read(saved.manifest), lies))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lies(case: Case, artifact: str, folder: Path) -> Path | StoredFolder:
    """Where a stored tree can be looked at, all of it hashed: in memory if it is a small state, else in ``folder``."""
    found = outputs.in_memory(case.store, artifact)
    if found is None:
        case.store.checkout(artifact, folder)
    return found or folder


def _mislabelled(case: Case, absent: Collection[str]) -> list[str]:
    run, gone = case.run, case.run.let_go
    lists = [(fact.body.state, fact.body.manifest, f"step {fact.body.first_step}") for fact in run.training]
    lists += [  # of those that are kept it is compared with the tensors themselves
        (fact.body.state, fact.body.manifest, f"step {fact.body.step}")
        for fact in run.checkpoints
        if fact.body.artifact in gone
    ]
    wrong = [
        f"training: list of tensors of {where}: expected that of state {state}, found {found}"
        for state, manifest, where in lists
        if manifest not in absent and (found := _listed(case, manifest)) != state
    ]
    tables = run.steps["train"].tables if "train" in run.steps else {}
    loss = tables.get("loss", "")
    wrong += [f"table {name} of train: training makes no such table" for name in tables if name != "loss"]
    if loss and loss not in absent and case.until is None and case.store.read(loss) != loss_table(run):
        wrong.append("table loss of train: not the losses that the segments record")
    norms = recorded_series(case.record).get(GRAD_NORM, {})
    for fact in run.segments:
        if fact.body.trace not in absent:
            wrong += [str(item) for item in underivable_steps(fact.body, norms, case.store.read(fact.body.trace))]
    return wrong


def _misregistered(case: Case, absent: Collection[str]) -> Iterator[str]:
    """Where the registration that the run cites is another than its event says."""
    started = case.run.started
    cited = [fact for fact in case.record.registrations if fact.index < started.index]
    if started.body.experiment in absent or not cited:
        return
    arms = load_plugin("marin.registrations", "arms", "a registered experiment")
    document = case.store.read(started.body.experiment)
    for fact in cited:
        yield from (
            f"registration of event {fact.index}: {wrong}" for wrong in arms.contradictions_with(fact.body, document)
        )


def _listed(case: Case, manifest: str) -> str:
    """The digest of the state whose tensors a stored blob lists, or what is wrong with it."""
    try:
        return StateManifest.parse(case.store.read(manifest)).digest
    except Malformed as error:
        return str(error)


def loss_table(run: Run) -> bytes:
    """The table that the train step writes of these segments."""
    losses = [float.fromhex(loss) for fact in run.segments for loss in fact.body.losses]
    first = run.segments[0].body.start if run.segments else 0
    return ("step,loss\n" + "".join(f"{first + i},{loss!r}\n" for i, loss in enumerate(losses))).encode()
