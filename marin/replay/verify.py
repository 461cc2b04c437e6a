"""The five verdicts on a run.

Each verdict is a function of what the ledger and the store hold and of what is executed here; none trusts another's
result more than it must. ``ledger`` and ``artifacts`` read and hash; ``data``, ``training`` and ``model`` execute the
installed code (never code that a ledger names) on the recorded recipe, which is data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import (
    Draft,
    Event,
    LedgerError,
    Malformed,
    Manifest,
    NotFound,
    StateManifest,
    Store,
    VerifierKey,
    check,
    describe_tree,
    digest_bytes,
    parse_time,
)
from marin import environment, phases
from marin.arithmetic import apply, check_devices
from marin.code import code_folder, lock_digest
from marin.errors import MarinError, UsageError
from marin.events import REPLAY_COMPLETED, Continues, Output, ReplayCompleted, TrainSegment, read, write
from marin.evidence import ANCHORED, gather
from marin.pipeline import PIPELINE
from marin.progress import bar
from marin.recipe import Execution, Recipe
from marin.replay import compare
from marin.replay.compare import Divergence
from marin.replay.data import compare_step
from marin.replay.explanation import Explanation, Setting
from marin.replay.ordering import by_execution
from marin.replay.phases import WALKED, joined
from marin.replay.pins import Pins
from marin.replay.proven import Proofs
from marin.replay.records import contradictions
from marin.replay.sampling import WHOLE, Scope, Selection, describe_bound, select
from marin.replay.sandbox import Sandbox
from marin.replay.screening import Screening
from marin.replay.segments import SegmentsReplay, replay_segments
from marin.replay.surroundings import surroundings
from marin.replay.verdict import NAMES, NOT_RUN, Report, TrainingSummary, Verdict, outcome_of
from marin.root import Root
from marin.runs import RunView, load, resolve, stream_of
from marin.steps import StepResult

logger = logging.getLogger(__name__)

DATA_STEPS = ("corpus", "tokenizer", "tokens")
MODEL_STEPS = ("evaluate", "export")
EXECUTES = {"data": DATA_STEPS, "training": ("train",), "model": MODEL_STEPS}
"""Verdict -> the steps whose code gives it."""


class Verification:
    """One verification of one run; :meth:`report` gives the verdicts asked for.

    Args:
        own: the root of this reproducer, whose log gets each segment that held, and from which those of a broken
            verification are taken (unless ``fresh``); None: nothing is kept and nothing taken.
        since: only segments recorded from here on: see :func:`since_index`.
        screen: look at the recorded states first, without replay (:mod:`marin.replay.screening`).

    Raises:
        UsageError: the run's logical shards do not divide over the devices of ``execution``.
    """

    def __init__(self, root: Root, name: str, *, execution: Execution, trusted: Sequence[VerifierKey] = (),
                 pins: Pins | None = None, workers: int = 1, scope: Scope = WHOLE, own: Root | None = None,
                 fresh: bool = False, since: str | None = None, screen: bool = False, until: Continues | None = None) -> None:
        self.root = root
        self.store: Store = root.store()
        self.reader = root.reader(trusted)
        self.trusted = list(trusted) or [root.verifier]
        self.pins = pins
        self.history = root.history(trusted)
        self.run: RunView = load(self.history, resolve(self.history, name))
        self.until = until
        if until is not None:
            self.run = replace(self.run, segments=tuple(f for f in self.run.segments if f.body.end <= until.step))
        if (recipe := _readable(self.run)) is not None:
            check_devices(recipe.arithmetic, execution)
        self.execution = execution
        self.workers = workers
        if since is not None:
            scope = replace(scope, since=since_index(self.run, since, own or root))
        self.own, self.fresh, self.screen, self.scope = own, fresh, screen, scope
        self.selection = self._select(scope)
        self.divergence: Divergence | None = None
        self.summary = TrainingSummary("none", len(self.run.segments), 0, 1, 0.0)
        self.losses: dict[int, float] = {}
        self.screening: Screening | None = None
        self.surroundings = surroundings(self.run)

    def report(self, only: Collection[str] = NAMES) -> Report:
        """Judge. Verdicts that were not asked for are NOT_RUN."""
        judges: Mapping[str, Callable[[], Verdict]] = {
            "ledger": self.ledger, "artifacts": self.artifacts, "data": self.data, "training": self.training, "model": self.model}
        if self.screen:
            self._screen()
        verdicts = {name: self._judged(name, judge) if name in only and self._planned(name) else NOT_RUN
                    for name, judge in judges.items()}
        if self.screening is not None and self.screening.violations and verdicts["training"].outcome == "NOT_RUN":
            verdicts["training"] = Verdict("FAIL", tuple(finding.describe() for finding in self.screening.violations))
        checkpoint = self.reader.checkpoint()
        report = Report(run=self.run.run, verdicts=verdicts, training=self.summary, divergence=self.divergence,
                        origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex(),
                        remarks=self.surroundings.remarks, losses=self.losses, screening=self.screening)
        return self._with_phases_before(report, only)

    def _with_phases_before(self, report: Report, only: Collection[str]) -> Report:
        """The report joined with those of the runs that this one continues; its own when it is no phase."""
        link = self.run.started.body.continues
        if link is None:
            return report
        before = Verification(self.root, link.run, execution=self.execution, trusted=self.trusted, workers=self.workers,
                              scope=self.scope, own=self.own, fresh=self.fresh, screen=self.screen, until=link)
        wanted = [name for name in only if name in WALKED]
        return joined(report, before.report(wanted), phases.broken_link(before.run, self.run), link.step)

    def _select(self, scope: Scope) -> Selection:
        """The segments to replay. In a chain of phases, train steps that are asked for may all be another run's."""
        ranges = [(fact.body.start, fact.body.end) for fact in self.run.segments]
        in_chain = self.until is not None or self.run.started.body.continues is not None
        if in_chain and scope.steps is not None and not any(a < scope.steps[1] and scope.steps[0] < b for a, b in ranges):
            return Selection((), 0, "range")
        return select(ranges, scope, self.reader.checkpoint().root, self.run.run,
                      [fact.index for fact in self.run.segments])

    def explain(self, report: Report, settings: Sequence[Setting], steps: tuple[int, int] | None) -> Report:
        """The report with an explanation of the first step that differs: between the recorded and the present setting,
        or between two given ones (then also when nothing failed: in the segment of ``steps``, or the first)."""
        from marin.replay.explain import explain

        found = self.divergence
        if not settings and (found is None or found.step is None or not self.run.training):
            return report
        devices = self.run.training[-1].body.devices if self.run.training else 1
        pair = list(settings) or [Setting(f"recorded (devices={devices})", devices),
                                  Setting(f"present (devices={self.execution.devices})", self.execution.devices)]
        step = found.step if found is not None else None
        causes = [*self.surroundings.remarks,
                  *(line for line in report.verdicts["training"].lines if line.startswith("different program"))]
        if found is not None and "tokens (data)" in found.explanation:
            causes.append(f"data: {found.describe()}")
        first = (steps or self.scope.steps or (self.run.segments[0].body.start, 0))
        try:
            explained = explain(self.run, self.store, step, pair, causes, first)
        except MarinError as error:
            explained = Explanation(step or 0, (pair[0].name, pair[1].name), "cause" if causes else "none",
                                    (*causes, f"not explained: {error}"))
        return replace(report, explanation=explained)

    def record(self, report: Report, own: Root | None = None) -> Report:
        """Append the verdicts to the log of ``own`` (this root's, unless given); the report with the event's index."""
        body = ReplayCompleted(
            run=report.run, verdicts={name: verdict.outcome for name, verdict in report.verdicts.items()},
            training=report.as_json()["training"], first_divergence=report.first_divergence(),
            log_checkpoint=report.as_json()["log_checkpoint"],
            details={name: [line[:2000] for line in verdict.lines[:20]] for name, verdict in report.verdicts.items()},
            environment=environment.describe(lock_digest(code_folder())))
        (receipt,) = (own or self.root).append([Draft(REPLAY_COMPLETED, stream_of(report.run), write(body))])
        return replace(report, event=receipt.index)

    def _judged(self, name: str, judge: Callable[[], Verdict]) -> Verdict:
        """The verdict of ``judge``. A difference that was found with other code or another lock than the run's proves
        nothing against it."""
        verdict = _judged(name, judge)
        reasons = self.surroundings.reasons(EXECUTES.get(name, ())) if verdict.outcome == "FAIL" else ()
        if not reasons:
            return verdict
        commands = self.surroundings.commands(self.root.location, self.run.run)
        return Verdict("UNAVAILABLE", (*reasons, "so the difference below proves nothing; what the run was made with is had by",
                                       *(commands or ("no command: the run names no commit",)),
                                       *(["the commit was executed with changes, which its diff in the store has"]
                                         if self.surroundings.dirty else []), *verdict.lines))

    # -- the verdicts ---------------------------------------------------------------------------------------------

    def ledger(self) -> Verdict:
        """Signatures, every tile and entry, sequences, consistency with what this user has seen before, and events that
        agree with one another."""
        checkpoint = self.reader.checkpoint()
        anchored: list[tuple[int, Event]] = []
        findings = check(self.root.storage, self.trusted, of_type={ANCHORED: anchored})
        if findings:
            return Verdict("FAIL", tuple(str(finding) for finding in findings))
        outside = gather(self.root.storage, self.reader, self.trusted, anchored)
        if outside.findings:
            return Verdict("FAIL", tuple(str(finding) for finding in outside.findings))
        lines = [f"log {checkpoint.origin}: {checkpoint.size} events re-derived under root {checkpoint.root.hex()}"]
        if self.pins is not None:
            lines.append(self.pins.check(checkpoint, self.reader))
        lines += [*map(str, outside.vouched), *outside.undecided]
        events = list(self.history.events(stream=stream_of(self.run.run)))
        if found := contradictions(self.run, events, PIPELINE):
            return Verdict("FAIL", tuple(f"the records contradict each other: {item}" for item in found))
        return Verdict("PASS", (*lines, f"{len(events)} events of the run agree with one another"))

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
        if not (wrong or missing):
            wrong += self._mislabelled()
        if wrong:
            return Verdict("FAIL", tuple(wrong + missing))
        if missing:
            return Verdict("UNAVAILABLE", tuple(missing))
        return Verdict("PASS", (f"{len(named)} artifacts hashed again",))

    def data(self) -> Verdict:
        """Raw bytes to tokens, executed again: each step on the outputs of the one before it, or, by several workers, all
        at the same time on the recorded outputs. What an experiment pinned is taken as it is, and never proven by this."""
        pinned = self._pinned()
        if self.workers > 1 and not pinned:
            from marin.replay.data import replay_data

            with bar("data", len(DATA_STEPS)) as progress:
                replayed = replay_data(self.run, self.root.location, self.store, self.workers, progress)
            return Verdict(replayed.outcome, replayed.lines)
        with self._sandbox() as sandbox, bar("data", len(DATA_STEPS)) as progress:
            made = self._checkout(pinned, sandbox.folder / "pinned")
            for done, name in enumerate(DATA_STEPS):
                if name in made:
                    continue
                step = PIPELINE.step(name)
                if name == "tokens":
                    apply(self.run.recipe.arithmetic, self.execution)
                folder, result = sandbox.execute(step, {key: made[key] for key in step.inputs})
                if wrong := self._compare_output(name, folder, result):
                    return Verdict("FAIL", tuple(wrong))
                made[name] = folder
                progress(done + 1, name)
        lines = tuple(f"{name}: {self.run.output(name).digest}{' pinned, not derived here' if name in pinned else ''}"
                      for name in DATA_STEPS)
        return Verdict("UNAVAILABLE" if pinned else "PASS", lines)

    def training(self) -> Verdict:
        """Train steps executed again. With one worker and no selection all, in order, from the recipe's own initial
        state; otherwise the chosen segments, each from its recorded start state."""
        recipe, segments = self.run.recipe, [fact.body for fact in self.run.segments]
        self.summary = TrainingSummary(self.selection.mode, len(segments), 0, self.workers, 0.0)
        self.divergence = self._chain(segments)
        if self.divergence is not None:
            return Verdict("FAIL", self.divergence.lines())
        apply(recipe.arithmetic, self.execution)
        proofs = Proofs.read(self.run, self.own, fresh=self.fresh)
        taken = {i: index for i in self.selection.positions if (index := proofs.of(segments[i])) is not None}
        if self.workers > 1 or self.selection.mode != "full" or taken:
            verdict = self._training_by_segments(proofs, taken)
            if self.workers > 1 or self.selection.mode != "full" or verdict.outcome != "UNAVAILABLE":
                return verdict
            logger.info("a stored state is not there: everything is executed from the beginning")
        from marin.training.replay import replay
        from marin.training.screening import mislabelled_meanwhile

        with (TemporaryDirectory(prefix="marin-verify-") as folder, bar("training", recipe.trainer.num_steps) as progress,
              mislabelled_meanwhile(self.run, self.store) as mislabelled):
            inputs = self._checkout(("tokens", "tokenizer"), Path(folder))
            link = self.run.started.body.continues
            previous = phases.checkout(self.store, link.checkpoint, Path(folder) / "previous") if link is not None else None
            result = replay(recipe, inputs["tokens"], inputs["tokenizer"], segments, self._initial(), self.store,
                            self.execution, progress, previous, saved={f.body.state: f.body for f in self.run.checkpoints},
                            done=proofs.keep)
            wrong = mislabelled() if result.divergence is None else []
        self.summary = TrainingSummary("full", len(segments), result.segments_replayed, 1, result.seconds)
        self.divergence = result.divergence
        self.losses = dict(result.losses)
        programs = self._programs(result.program)
        if result.divergence is not None:
            return Verdict("FAIL", (*result.divergence.lines(), *programs))
        steps = sum(segment.end - segment.start for segment in segments)
        if wrong:
            return Verdict("FAIL", (*wrong, *programs))
        return Verdict("PASS", (f"{steps} train steps in {len(segments)} segments executed again "
                                f"on {self.execution.devices} device(s), same bits", *programs))

    def _programs(self, found: Mapping[str, object]) -> list[str]:
        recorded = self.run.training[-1].body.program if self.run.training else {}
        return [f"different program: {line}" for line in compare.programs(recorded, found)]

    def _training_by_segments(self, proofs: Proofs, taken: Mapping[int, int]) -> Verdict:
        """The chosen segments, each on its own, suspicious ones first; the chain of all was checked before."""
        chosen = self.selection
        if not chosen.positions:
            return Verdict("PASS", ("none of the segments that were asked for is this run's",))
        suspicious = self.screening.suspicious if self.screening is not None else ()
        extra = [i for i in suspicious[: len(chosen.positions)] if i not in chosen.positions]
        order = [i for i in (*suspicious, *chosen.positions) if i in {*chosen.positions, *extra} and i not in taken]
        positions = list(dict.fromkeys(order))
        began = SegmentsReplay("PASS", 0, 0.0, None, ())
        if positions:
            with TemporaryDirectory(prefix="marin-verify-") as folder, bar("training", len(positions)) as progress:
                inputs = self._checkout(("tokens", "tokenizer"), Path(folder))
                began = replay_segments(self.run, self.root.location, positions, inputs["tokens"], inputs["tokenizer"],
                                        self.execution, self.workers, progress, done=proofs.keep)
        result = began
        self.divergence = result.divergence
        self.losses = dict(result.losses)
        self.summary = TrainingSummary(chosen.mode, len(self.run.segments), result.segments_replayed, self.workers,
                                       result.seconds, len(taken))
        if result.outcome != "PASS":
            return Verdict(result.outcome, result.lines)
        steps = sum(self.run.segments[i].body.end - self.run.segments[i].body.start for i in positions)
        lines = [f"{steps} train steps in {len(positions)} of {len(self.run.segments)} segments executed again by "
                 f"{self.workers} worker(s) on {self.execution.devices} device(s) each, same bits; all segments form one chain"]
        if taken:
            lines.append(f"{len(taken)} segments taken from this reproducer's own events {min(taken.values())} to "
                         f"{max(taken.values())}; --fresh executes them again")
        if extra:
            lines.append(f"{len(extra)} of them because screening found them suspicious")
        if chosen.mode == "sampled":
            lines.append(f"{len(chosen.positions)} segments drawn from {chosen.among} by the log's root "
                         f"{self.reader.checkpoint().root.hex()}: {describe_bound(len(chosen.positions))}")
        return Verdict("PASS", (*lines, *result.lines))

    def model(self) -> Verdict:
        """The last training checkpoint holds the final state, and evaluation and export follow from it."""
        expected = self.run.output("train")
        with self._sandbox() as sandbox, bar("model", len(MODEL_STEPS)) as progress:
            inputs = self._checkout(("corpus", "tokenizer", "tokens", "train"), sandbox.folder / "inputs")
            manifest = StateManifest.parse((inputs["train"] / "state.json").read_bytes())
            size = sum(tensor.nbytes for tensor in manifest.tensors)
            if (manifest.digest, size) != (expected.digest, expected.size):
                return Verdict("FAIL", (f"train: the checkpoint's state is {manifest.digest} of {size} bytes, recorded "
                                        f"{expected.digest} of {expected.size} bytes",))
            made = ["train", *(name for name in MODEL_STEPS if name in self._plan())]
            if made[1:]:
                self._check_machine()
            for done, name in enumerate(made[1:]):
                self.run.output(name)  # planned and never made is missing evidence
                step = PIPELINE.step(name)
                folder, result = sandbox.execute(step, {key: inputs[key] for key in step.inputs})
                if wrong := self._compare_output(name, folder, result):
                    return Verdict("FAIL", tuple(wrong))
                progress(done + 1, name)
        return Verdict("PASS", (f"state {expected.digest}", *(f"{name} {self.run.output(name).digest}" for name in made[1:])))

    def _check_machine(self) -> None:
        """Raises ``Unsupported`` where the contract can not be honoured, before anything is computed that would differ."""
        apply(self.run.recipe.arithmetic, self.execution)
        from marin.training import canary

        canary.check(self.run.recipe.arithmetic)

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

    def _plan(self) -> Collection[str]:
        """The steps of the run's plan: an arm of an experiment need not have all of the pipeline's."""
        steps = self.run.started.body.code.get("steps")
        return steps if isinstance(steps, Mapping) else [step.name for step in PIPELINE.steps]

    def _pinned(self) -> list[str]:
        """Data steps whose output the experiment pinned to an artifact. The name of its plan says so, with the digest's
        end (:mod:`marin.graph.arms`), and the run has them as results of other runs."""
        pins = {part.removeprefix("pinned-") for part in self.run.started.body.pipeline.split(".") if part.startswith("pinned-")}
        return [name for name in DATA_STEPS if (view := self.run.steps.get(name)) is not None and view.cached
                and {view.output.digest[-8:], view.output.artifact[-8:]} & pins]

    def _planned(self, verdict: str) -> bool:
        """Whether the plan has a step that ``verdict`` is about; a verdict on nothing is NOT_RUN."""
        needed = ("train",) if verdict == "model" else EXECUTES.get(verdict)
        return needed is None or any(step in self._plan() for step in needed)

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

    def _compare_output(self, name: str, folder: Path, result: StepResult) -> list[str]:
        """What is wrong with a step that was executed again."""
        view = self.run.steps[name]
        recorded = self._recorded(view.output.artifact)
        found = describe_tree(folder, recorded)
        output = Output(kind=result.kind, digest=result.digest or found.digest, size=result.size or found.size,
                        artifact=found.digest)
        tables = {key: digest_bytes(text.encode()) for key, text in result.tables.items()}
        wrong = compare_step(view, output, dict(result.metrics), tables)
        if wrong and result.digest is None and found.digest != view.output.artifact:
            # Where the recorded list is gone, that they differ is known, and where is not.
            files = _differing_files(recorded, found) if recorded is not None else []
            wrong += [f"{name}: files that differ: {', '.join(files[:5])}"] if files else []
        return wrong

    def _recorded(self, artifact: str) -> Manifest | None:
        try:
            return self.store.manifest(artifact)
        except LedgerError:
            return None

    def _chain(self, segments: Sequence[TrainSegment]) -> Divergence | None:
        """The first break in the records of the segments; between two stored states, with the tensors that differ."""
        recipe, until = self.run.recipe, self.until
        last, final = (until.step, until.state) if until is not None else (recipe.last_step, self.run.output("train").digest)
        broken = compare.chain(segments, last, final, first=recipe.first_step,
                               first_state=recipe.phase.state if recipe.phase is not None else None)
        if broken is None:
            return None
        states = [self._state(digest) for digest in (broken.expected, broken.found)]
        if states[0] is None or states[1] is None:
            return broken
        return replace(broken, tensors=by_execution(states[0].differing(states[1])))

    def _state(self, digest: str) -> StateManifest | None:
        """The recorded list of tensors of a state, if it is there and is what the digest says."""
        for fact in self.run.checkpoints:
            if fact.body.state == digest:
                with suppress(LedgerError):
                    manifest = StateManifest.parse(self.store.read(fact.body.manifest))
                    return manifest if manifest.digest == digest else None
        return None

    def _mislabelled(self) -> list[str]:
        """Stored things that are whole, and are not what the events call them."""
        lists = [(fact.body.state, fact.body.manifest, f"step {fact.body.step}") for fact in self.run.checkpoints]
        lists += [(fact.body.state, fact.body.manifest, f"step {fact.body.first_step}") for fact in self.run.training]
        wrong = [f"training: list of tensors of {where}: expected that of state {state}, found {found}"
                 for state, manifest, where in lists if (found := self._listed(manifest)) != state]
        wrong += [f"training checkpoint of step {fact.body.step}: recorded {fact.body.size} bytes, found {size}"
                  for fact in self.run.checkpoints if (size := self.store.manifest(fact.body.artifact).size) != fact.body.size]
        loss = self.run.steps["train"].tables.get("loss") if "train" in self.run.steps else None
        if loss is not None and self.store.read(loss) != loss_table(self.run):
            wrong.append("table loss of train: not the losses that the segments record")
        return wrong

    def _listed(self, manifest: str) -> str:
        """The digest of the state whose tensors a stored blob lists, or what is wrong with it."""
        try:
            return StateManifest.parse(self.store.read(manifest)).digest
        except Malformed as error:
            return str(error)

    def _screen(self) -> None:
        """Look at the recorded states; whatever stops it is no verdict."""
        apply(self.run.recipe.arithmetic, self.execution)  # before jax starts
        from marin.training.screening import screen_run

        self.screening = screen_run(self.run, self.store)


def _readable(run: RunView) -> Recipe | None:
    """The recorded recipe, if this version can read it; where it can not, the verdicts that need it say so."""
    with suppress(UsageError):
        return run.recipe
    return None


def loss_table(run: RunView) -> bytes:
    """The table that the train step writes of these segments."""
    losses = [float.fromhex(loss) for fact in run.segments for loss in fact.body.losses]
    first = run.segments[0].body.start if run.segments else 0
    return ("step,loss\n" + "".join(f"{first + i},{loss!r}\n" for i, loss in enumerate(losses))).encode()


def since_index(run: RunView, since: str, own: Root) -> int:
    """The index in the log from which segments count. ``since``: an index, a time (RFC 3339), or ``last``: the size of the
    log when this reproducer's newest full verification of training that passed saw it.

    Raises:
        UsageError: it is none of these.
    """
    if since.isdecimal():
        return int(since)
    if since == "last":
        done = [read(ReplayCompleted, event.body, where=f"event {index}") for index, event in own.history().events(
            stream=stream_of(run.run), type=REPLAY_COMPLETED)]
        seen = [int(body.log_checkpoint["size"]) for body in done
                if body.verdicts.get("training") == "PASS" and body.training.get("mode") == "full"]
        return max(seen, default=0)
    try:
        moment = parse_time(since)
    except (LedgerError, ValueError):
        raise UsageError("not a place in the log", where="--since", found=since, cure="see `marin log` for both",
                         expected="an index, a time like 2026-01-31T12:00:00Z, or last") from None
    return next((fact.index for fact in run.segments if parse_time(fact.time) >= moment), 1 << 62)


def unreadable(root: Root, name: str, trusted: Sequence[VerifierKey], error: LedgerError, only: Collection[str]) -> Report:
    """The report on a run that can not even be read: the ledger fails, with everything that is wrong in it."""
    findings = check(root.storage, list(trusted) or [root.verifier])
    lines = tuple(str(finding) for finding in findings) or (str(error),)
    try:
        checkpoint = root.reader(trusted).checkpoint()
        origin, size, digest = checkpoint.origin, checkpoint.size, checkpoint.root.hex()
    except LedgerError:
        origin, size, digest = root.verifier.name, 0, ""
    unread = Verdict("UNAVAILABLE", ("the run can not be read from this log",))
    verdicts = {key: Verdict("FAIL", lines) if key == "ledger" else unread if key in only else NOT_RUN for key in NAMES}
    return Report(run=name, verdicts=verdicts,
                  training=TrainingSummary("none", 0, 0, 1, 0.0), divergence=None, origin=origin, size=size, root=digest,
                  remarks=())


def _judged(name: str, judge: Callable[[], Verdict]) -> Verdict:
    """The verdict of ``judge``; an error of the ledger's tree becomes the verdict that it means."""
    logger.info("verifying %s", name)
    try:
        return judge()
    except LedgerError as error:
        return Verdict(outcome_of(error), (str(error),))


class _TemporarySandbox:
    """A :class:`Sandbox` in a temporary folder that goes away with the ``with`` block."""

    def __init__(self, run: RunView, store: Store, execution: Execution) -> None:
        self._run, self._store, self._execution = run, store, execution
        self._folder = TemporaryDirectory(prefix="marin-verify-")

    def __enter__(self) -> Sandbox:
        return Sandbox(Path(self._folder.name), self._run.run, self._run.recipe, self._store, self._execution)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _differing_files(recorded: Manifest, found: Manifest) -> list[str]:
    mine, theirs = ({entry.path: entry.digest for entry in manifest} for manifest in (recorded, found))
    return sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))
