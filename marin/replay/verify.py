"""The five verdicts on a run.

Each verdict is a function of what the ledger and the store hold and of what is executed here; none trusts another's
result more than it must. ``ledger`` and ``artifacts`` read and hash; ``data``, ``training`` and ``model`` execute the
installed code (never code that a ledger names) on the recorded recipe, which is data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import (
    Draft,
    LedgerError,
    Manifest,
    NotFound,
    StateManifest,
    Store,
    VerifierKey,
    check,
    describe_tree,
)
from marin import environment, phases
from marin.arithmetic import apply
from marin.code import code_folder, lock_digest, provenance
from marin.events import REPLAY_COMPLETED, Continues, Output, ReplayCompleted, write
from marin.pipeline import PIPELINE
from marin.progress import bar
from marin.recipe import Execution
from marin.replay import compare
from marin.replay.compare import Divergence
from marin.replay.phases import WALKED, joined
from marin.replay.pins import Pins
from marin.replay.sampling import WHOLE, Scope, Selection, describe_bound, select
from marin.replay.sandbox import Sandbox
from marin.replay.segments import replay_segments
from marin.replay.verdict import NAMES, NOT_RUN, Report, TrainingSummary, Verdict, outcome_of
from marin.root import Root
from marin.runs import RunView, load, resolve, stream_of

logger = logging.getLogger(__name__)

DATA_STEPS = ("corpus", "tokenizer", "tokens")
MODEL_STEPS = ("evaluate", "export")


class Verification:
    """One verification of one run; :meth:`report` gives the verdicts asked for."""

    def __init__(self, root: Root, name: str, *, execution: Execution, trusted: Sequence[VerifierKey] = (),
                 pins: Pins | None = None, workers: int = 1, scope: Scope = WHOLE, until: Continues | None = None) -> None:
        """``until``: judge the run only as far as the state with which a later phase took over."""
        self.root = root
        self.store: Store = root.store()
        self.reader = root.reader(trusted)
        self.trusted = list(trusted) or [root.verifier]
        self.pins = pins
        history = root.history()
        self.run: RunView = load(history, resolve(history, name))
        self.until = until
        if until is not None:
            self.run = replace(self.run, segments=tuple(f for f in self.run.segments if f.body.end <= until.step))
        self.scope = scope
        self.execution = execution
        self.workers = workers
        self.selection = self._select(scope)
        self.divergence: Divergence | None = None
        self.summary = TrainingSummary("none", len(self.run.segments), 0, 1, 0.0)
        self.remarks = tuple(self._remarks())

    def report(self, only: Collection[str] = NAMES) -> Report:
        """Judge. Verdicts that were not asked for are NOT_RUN."""
        judges: Mapping[str, Callable[[], Verdict]] = {
            "ledger": self.ledger, "artifacts": self.artifacts, "data": self.data, "training": self.training, "model": self.model}
        verdicts = {name: _judged(name, judge) if name in only else NOT_RUN for name, judge in judges.items()}
        checkpoint = self.reader.checkpoint()
        report = Report(run=self.run.run, verdicts=verdicts, training=self.summary, divergence=self.divergence,
                      origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex(), remarks=self.remarks)
        return self._with_phases_before(report, only)

    def _with_phases_before(self, report: Report, only: Collection[str]) -> Report:
        """The report joined with those of the runs that this one continues; its own when it is no phase."""
        link = self.run.started.body.continues
        if link is None:
            return report
        before = Verification(self.root, link.run, execution=self.execution, trusted=self.trusted, workers=self.workers,
                              scope=self.scope, until=link)
        wanted = [name for name in only if name in WALKED]
        return joined(report, before.report(wanted), phases.broken_link(before.run, self.run), link.step)

    def _select(self, scope: Scope) -> Selection:
        """The segments to replay. In a chain of phases, train steps that are asked for may all be another run's."""
        ranges = [(fact.body.start, fact.body.end) for fact in self.run.segments]
        in_chain = self.until is not None or self.run.started.body.continues is not None
        if in_chain and scope.steps is not None and not any(a < scope.steps[1] and scope.steps[0] < b for a, b in ranges):
            return Selection((), 0, "range")
        return select(ranges, scope, self.reader.checkpoint().root, self.run.run)

    def record(self, report: Report) -> Report:
        """Append the verdicts to the ledger, signed by this root's key; the report with the event's index."""
        body = ReplayCompleted(
            run=report.run, verdicts={name: verdict.outcome for name, verdict in report.verdicts.items()},
            training=report.as_json()["training"], first_divergence=report.first_divergence(),
            log_checkpoint=report.as_json()["log_checkpoint"],
            details={name: [line[:2000] for line in verdict.lines[:20]] for name, verdict in report.verdicts.items()},
            environment=environment.describe(lock_digest(code_folder())))
        (receipt,) = self.root.append([Draft(REPLAY_COMPLETED, stream_of(report.run), write(body))])
        return replace(report, event=receipt.index)

    # -- the verdicts ---------------------------------------------------------------------------------------------

    def ledger(self) -> Verdict:
        """Signatures, every tile and entry, sequences, and consistency with what this user has seen before."""
        checkpoint = self.reader.checkpoint()
        findings = check(self.root.storage, self.trusted)
        if findings:
            return Verdict("FAIL", tuple(str(finding) for finding in findings))
        lines = [f"log {checkpoint.origin}: {checkpoint.size} events re-derived under root {checkpoint.root.hex()}"]
        if self.pins is not None:
            lines.append(self.pins.check(checkpoint, self.reader))
        return Verdict("PASS", tuple(lines))

    def artifacts(self) -> Verdict:
        """Every byte that the run names, hashed again."""
        missing: list[str] = []
        wrong: list[str] = []
        named = self._named()
        with bar("artifacts", len(named)) as progress:
            for done, (digest, what) in enumerate(named.items()):
                try:
                    self.store.kind(digest)
                except NotFound:
                    missing.append(f"{what}: {digest} is not in the store")
                    continue
                wrong += [f"{what}: {finding}" for finding in self.store.verify(digest)]
                progress(done + 1, what)
        if wrong:
            return Verdict("FAIL", tuple(wrong + missing))
        if missing:
            return Verdict("UNAVAILABLE", tuple(missing))
        return Verdict("PASS", (f"{len(named)} artifacts hashed again",))

    def data(self) -> Verdict:
        """Raw bytes to tokens, executed again, each step on the outputs of the one before it."""
        with self._sandbox() as sandbox, bar("data", len(DATA_STEPS)) as progress:
            made: dict[str, Path] = {}
            for done, name in enumerate(DATA_STEPS):
                step, expected = PIPELINE.step(name), self.run.output(name)
                if name == "tokens":
                    apply(self.run.recipe.arithmetic, self.execution)
                folder, result = sandbox.execute(step, {key: made[key] for key in step.inputs})
                wrong = self._compare_output(name, expected, folder, result.digest)
                if wrong:
                    return Verdict("FAIL", (wrong,))
                made[name] = folder
                progress(done + 1, name)
        return Verdict("PASS", tuple(f"{name}: {self.run.output(name).digest}" for name in DATA_STEPS))

    def training(self) -> Verdict:
        """Train steps executed again. With one worker and no selection all, in order, from the recipe's own initial
        state; otherwise the chosen segments, each from its recorded start state."""
        recipe, segments = self.run.recipe, [fact.body for fact in self.run.segments]
        self.summary = TrainingSummary(self.selection.mode, len(segments), 0, self.workers, 0.0)
        phase, until = recipe.phase, self.until
        last, final = ((until.step, until.state) if until is not None
                       else (recipe.last_step, self.run.output("train").digest))
        self.divergence = compare.chain(segments, last, final,
                                        first=recipe.first_step, first_state=phase.state if phase is not None else None)
        if self.divergence is not None:
            return Verdict("FAIL", (self.divergence.describe(),))
        apply(recipe.arithmetic, self.execution)
        if self.workers > 1 or self.selection.mode != "full":
            return self._training_by_segments()
        from marin.training.replay import replay

        with TemporaryDirectory(prefix="marin-verify-") as folder, bar("training", recipe.trainer.num_steps) as progress:
            inputs = self._checkout(("tokens", "tokenizer"), Path(folder))
            link = self.run.started.body.continues
            previous = phases.checkout(self.store, link.checkpoint, Path(folder) / "previous") if link is not None else None
            result = replay(recipe, inputs["tokens"], inputs["tokenizer"], segments, self._initial(), self.store,
                            self.execution, progress, previous)
        self.summary = TrainingSummary("full", len(segments), result.segments_replayed, 1, result.seconds)
        self.divergence = result.divergence
        recorded = self.run.training[-1].body.program if self.run.training else {}
        programs = [f"different program: {line}" for line in compare.differences(recorded, result.program)]
        if result.divergence is not None:
            return Verdict("FAIL", (result.divergence.describe(), *programs))
        steps = sum(segment.end - segment.start for segment in segments)
        return Verdict("PASS", (f"{steps} train steps in {len(segments)} segments executed again "
                                f"on {self.execution.devices} device(s), same bits", *programs))

    def _training_by_segments(self) -> Verdict:
        """The chosen segments, each on its own; the chain of all was checked before."""
        chosen = self.selection
        if not chosen.positions:
            return Verdict("PASS", ("none of the train steps that were asked for is this run's",))
        with TemporaryDirectory(prefix="marin-verify-") as folder, bar("training", len(chosen.positions)) as progress:
            inputs = self._checkout(("tokens", "tokenizer"), Path(folder))
            result = replay_segments(self.run, self.root.location, chosen.positions, inputs["tokens"], inputs["tokenizer"],
                                     self.execution, self.workers, progress)
        self.divergence = result.divergence
        self.summary = TrainingSummary(chosen.mode, len(self.run.segments), result.segments_replayed, self.workers,
                                       result.seconds)
        if result.outcome != "PASS":
            return Verdict(result.outcome, result.lines)
        steps = sum(self.run.segments[i].body.end - self.run.segments[i].body.start for i in chosen.positions)
        lines = [f"{steps} train steps in {len(chosen.positions)} of {len(self.run.segments)} segments executed again by "
                 f"{self.workers} worker(s) on {self.execution.devices} device(s) each, same bits; all segments form one chain"]
        if chosen.mode == "sampled":
            lines.append(f"{len(chosen.positions)} segments drawn from {chosen.among} by the log's root "
                         f"{self.reader.checkpoint().root.hex()}: {describe_bound(len(chosen.positions))}")
        return Verdict("PASS", (*lines, *result.lines))

    def model(self) -> Verdict:
        """The last training checkpoint holds the final state, and evaluation and export follow from it."""
        expected = self.run.output("train")
        with self._sandbox() as sandbox, bar("model", len(MODEL_STEPS)) as progress:
            inputs = self._checkout(("corpus", "tokenizer", "tokens", "train"), sandbox.folder / "inputs")
            state = StateManifest.parse((inputs["train"] / "state.json").read_bytes()).digest
            if state != expected.digest:
                return Verdict("FAIL", (f"train: the checkpoint's state is {state}, recorded {expected.digest}",))
            for done, name in enumerate(MODEL_STEPS):
                step = PIPELINE.step(name)
                folder, result = sandbox.execute(step, {key: inputs[key] for key in step.inputs})
                wrong = self._compare_output(name, self.run.output(name), folder, result.digest)
                if wrong:
                    return Verdict("FAIL", (wrong,))
                if name in self.run.steps and dict(self.run.steps[name].metrics) != dict(result.metrics):
                    lines = compare.differences(dict(self.run.steps[name].metrics), dict(result.metrics), f"metric {name}")
                    return Verdict("FAIL", tuple(lines))
                progress(done + 1, name)
        return Verdict("PASS", (f"state {expected.digest}", f"export {self.run.output('export').digest}"))

    # -- what they need -------------------------------------------------------------------------------------------

    def _named(self) -> dict[str, str]:
        """Digest -> what it is, for everything that the run's events name in the store."""
        named: dict[str, str] = {}
        for name, step in self.run.steps.items():
            named.setdefault(step.output.artifact, f"output of {name}")
            for table, digest in step.tables.items():
                named.setdefault(digest, f"table {table} of {name}")
        for saved in self.run.checkpoints:
            named.setdefault(saved.body.artifact, f"training checkpoint of step {saved.body.step}")
            named.setdefault(saved.body.manifest, f"list of tensors of step {saved.body.step}")
        for segment in self.run.segments:
            named.setdefault(segment.body.trace, f"trace of train steps {segment.body.start} to {segment.body.end - 1}")
        for started in self.run.training:
            named.setdefault(started.body.manifest, f"list of tensors of step {started.body.first_step}")
        return named

    def _initial(self) -> StateManifest | None:
        for started in self.run.training:
            if started.body.first_step == 0:
                try:
                    return StateManifest.parse(self.store.read(started.body.manifest))
                except LedgerError:
                    return None
        return None

    def _sandbox(self) -> AbstractContextManager[Sandbox]:
        return _TemporarySandbox(self.run, self.store, self.execution)

    def _checkout(self, names: Sequence[str], folder: Path) -> dict[str, Path]:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            self.store.checkout(self.run.output(name).artifact, folder / name)
        return {name: folder / name for name in names}

    def _compare_output(self, step: str, expected: Output, folder: Path, digest: str | None) -> str | None:
        """What is wrong with a re-executed output, or None."""
        if digest is not None:
            return None if digest == expected.digest else f"{step}: expected {expected.digest}, found {digest}"
        found = describe_tree(folder)
        if found.digest == expected.artifact == expected.digest:
            return None
        try:
            files = _differing_files(self.store.manifest(expected.artifact), found)
        except LedgerError:  # the recorded list is gone: that they differ is known, where is not
            files = []
        return f"{step}: executed again it differs from {expected.digest}" + (f" in {', '.join(files[:5])}" if files else "")

    def _remarks(self) -> list[str]:
        """What differs between the recorded and the present code and environment: named before any bits."""
        body = self.run.started.body
        lines = []
        folder = code_folder()
        present = provenance(folder)
        if body.code.get("tree") != present.tree:
            lines.append(f"code: the run was made by commit {body.code.get('commit') or 'unknown'}"
                         f"{' with changes' if body.code.get('dirty') else ''}, this is {present.commit or 'not in Git'}"
                         f"{' with changes' if present.dirty else ''}")
        recorded, here = body.environment, environment.describe(lock_digest(folder))
        if recorded.get("lock") != here["lock"]:
            lines.append(f"environment: the run was made with lock {recorded.get('lock')}, this is {here['lock']}")
        lines += [f"environment: {line}" for line in compare.differences(recorded.get("versions"), here["versions"], "versions")]
        return lines


class _TemporarySandbox:
    """A :class:`Sandbox` in a temporary folder that goes away with the ``with`` block."""

    def __init__(self, run: RunView, store: Store, execution: Execution) -> None:
        self._run, self._store, self._execution = run, store, execution
        self._folder = TemporaryDirectory(prefix="marin-verify-")

    def __enter__(self) -> Sandbox:
        return Sandbox(Path(self._folder.name), self._run.run, self._run.recipe, self._store, self._execution)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _judged(name: str, judge: Callable[[], Verdict]) -> Verdict:
    """The verdict of ``judge``; an error of the ledger's tree becomes the verdict that it means."""
    logger.info("verifying %s", name)
    try:
        return judge()
    except LedgerError as error:
        return Verdict(outcome_of(error), (str(error),))


def _differing_files(recorded: Manifest, found: Manifest) -> list[str]:
    mine, theirs = ({entry.path: entry.digest for entry in manifest} for manifest in (recorded, found))
    return sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))
