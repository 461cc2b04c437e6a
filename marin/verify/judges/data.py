"""The verdict ``data``: corpus, tokenizer and tokens executed again, from the raw bytes.

With one worker each step is executed on the output made here of the step before it. Several workers execute them at the
same time: each from the recorded outputs of the stages before it, tokens by shard. As with segments, recorded digests
chain the pieces: the corpus is made anew from the raw bytes, the tokenizer from the recorded corpus, and each shard of
documents is encoded with the recorded tokenizer; inputs are proven to be what is recorded when they leave the store. If
every piece gives what is recorded, all of it follows from the raw bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import msgspec

from ledger import LedgerError, Manifest, Store, describe_tree, digest_bytes, open_storage
from marin.data.documents import TRAIN, VALIDATION, documents_of, stretches
from marin.data.exclusion import excluded
from marin.data.reach import EVERYTHING, Reach
from marin.errors import UsageError
from marin.execution.step import StepResult
from marin.history.run import StepView
from marin.pipeline.corpus import DESCRIPTION
from marin.pipeline.stages import PIPELINE
from marin.process.arithmetic import apply
from marin.process.progress import Report, bar
from marin.provenance.plugins import load_plugin
from marin.recipe.schema import Artifact, Execution, FilesDataset, Recipe, artifacts, as_recorded, from_plain
from marin.record.events import DATA_STEPS, Json, StepStarted
from marin.runners.workers import warm_workers
from marin.verify.case import JUDGES, Case
from marin.verify.derivation.record import RunRecord, facts
from marin.verify.rehearsal import Rehearsal
from marin.verify.verdict import Outcome, Verdict, outcome_of
from marin.work.placed import Worker
from marin.work.recorded import StoredResult

SPLITS = {"train": TRAIN, "validation": VALIDATION}
LEAST_SHARD = 1 << 16
"""Bytes of text below which a shard is not worth handing over."""


class DataSetup(msgspec.Struct, frozen=True):
    """What a worker needs. ``inputs``: folders with the recorded outputs, ``outputs`` takes what is made; all on this
    machine. ``recorded``: the artifact of each step."""

    root: str
    run: str
    recipe: Json
    inputs: dict[str, str]
    outputs: str
    recorded: dict[str, str] = {}
    reach: Reach = EVERYTHING


class DataJob(msgspec.Struct, frozen=True):
    """A whole step, or (``split`` given) the documents of one split that begin at bytes ``[first, end)`` of its
    file."""

    step: str
    split: str = ""
    first: int = 0
    end: int = 0


class DataAnswer(msgspec.Struct, frozen=True):
    """How one job ended: what a step made, or the file that holds a shard's token ids and the number of tokens of each of
    its documents, and of words where they count. ``sources``: the raw bytes of the corpus."""

    outcome: Outcome
    line: str = ""
    made: StoredResult | None = None
    sources: dict[str, str] = {}
    ids: str = ""
    lengths: list[int] = []
    words: int | None = None


def judge_data(case: Case, pinned: Sequence[str], planned: Set[str], experiment: Path | None = None) -> Verdict:
    """Judge the data steps, and what they take from the store (:mod:`marin.verify.judges.experiment`, with the file
    ``experiment``). What an experiment ``pinned`` is taken as it is, and never proven by this. ``planned``: steps that the
    run says it has; one that it planned and did not make is missing evidence."""
    try:
        derived = _judge_steps(case, pinned, judged_steps({*case.run.steps, *planned}))
    except UsageError as error:  # a pipeline refuses the recipe: that says something of who recorded it
        derived = Verdict(outcome_of(error), (str(error),))
    if derived.outcome == "UNSUPPORTED" and (wrong := excluded_elsewhere(case)):
        return Verdict("FAIL", (wrong,), executed=True)
    if derived.outcome in ("FAIL", "UNSUPPORTED"):
        return derived
    taken = list(artifacts(case.run.recipe).values())
    adopted = adopted_lines([item for item in taken if item.maker is None])
    made: Verdict | None = None
    if any(item.maker is not None for item in taken):
        made = load_plugin(JUDGES, "experiment", "what a step of an experiment made")(case, experiment)
    outcome = derived.outcome if made is None or derived.outcome != "PASS" else made.outcome
    lines = (*derived.lines, *adopted, *(made.lines if made is not None else ()))
    return Verdict(outcome, lines, derived.executed or (made is not None and made.executed))


def excluded_elsewhere(case: Case) -> str:
    """What is wrong where the recipe excludes a document that is not in the run's training data: no step could have been
    executed so. "" where they all are."""
    try:
        excluded(case.inputs(("corpus",))["corpus"], case.run.recipe)
    except UsageError as error:
        return f"exclusion: {error}"
    return ""


def adopted_lines(taken: Sequence[Artifact]) -> tuple[str, ...]:
    """What is said of artifacts that nobody here is said to have made: their bytes are the raw data."""
    return tuple(f"{item.address}: {item.digest}, adopted; where it comes from is claimed" for item in taken)


def judged_steps(told: Set[str]) -> Sequence[str]:
    """Of the data steps those that a run with these steps has to have made: all, but for a run that made a corpus, or a
    corpus and a tokenizer, for others and nothing else."""
    if not told or told - set(DATA_STEPS):
        return DATA_STEPS
    return DATA_STEPS[: max(map(DATA_STEPS.index, told)) + 1]


def _judge_steps(case: Case, pinned: Sequence[str], names: Sequence[str]) -> Verdict:
    if case.workers > 1 and not pinned and names == DATA_STEPS:
        with bar("data", len(names)) as progress:
            return _by_workers(case, progress)
    with bar("data", len(names)) as progress:
        rehearsal = case.rehearsal()
        given = case.inputs(pinned)
        for done, name in enumerate(name for name in names if name not in pinned):
            step = PIPELINE.step(name)
            case.run.output(name)  # what was never recorded is missing evidence
            if name == "tokens":
                apply(case.run.recipe.arithmetic, case.execution)
            inputs = {key: given.get(key) or case.made[key] for key in step.inputs}
            folder, result = rehearsal.execute(step, inputs)
            wrong = compare_output(case, name, folder, result)
            if name == "corpus":
                wrong += other_sources(case.record, sources_of(folder))
            if wrong:
                return Verdict("FAIL", tuple(wrong), executed=True)
            case.made[name] = folder
            progress(done + 1, name)
    lines = tuple(
        f"{name}: {case.run.output(name).digest}{' pinned, not derived here' if name in pinned else ''}"
        for name in names
    )
    return Verdict("UNAVAILABLE" if pinned else "PASS", lines)


def compare_output(case: Case, name: str, folder: Path, result: StepResult) -> list[str]:
    """What is wrong with a step that was executed again."""
    view = case.run.steps[name]
    recorded = _recorded_tree(case.store, view.output.artifact)
    found = describe_tree(folder, recorded)
    wrong = compare_step(view, _as_stored(found, result))
    if wrong and result.digest is None and found.digest != view.output.artifact and recorded is not None:
        # Where the recorded list is gone, that they differ is known, and where is not.
        files = _differing_files(recorded, found)
        wrong += [f"{name}: files that differ: {', '.join(files[:5])}"] if files else []
    return wrong


def _as_stored(tree: Manifest, result: StepResult) -> StoredResult:
    """As a run has it that puts the files into its store."""
    tables = {key: digest_bytes(text.encode()) for key, text in result.tables.items()}
    return StoredResult(result.output(tree.digest, tree.size), dict(result.metrics), tables)


def sources_of(corpus: Path) -> dict[str, str]:
    """The digests of the raw bytes that a corpus was made from, as it says itself."""
    found = json.loads((corpus / DESCRIPTION).read_bytes())["sources"]
    assert isinstance(found, dict)
    return found


def other_sources(record: RunRecord, found: Mapping[str, str]) -> list[str]:
    """What the record says of the raw bytes, against those that the corpus was made from here."""
    view = record.run.steps["corpus"]
    wrong = []
    for stretch in record.stretches:
        for begun in facts(stretch, StepStarted):
            if begun.body.identity == view.identity and begun.body.config.get("sources") != found:
                recorded = begun.body.config.get("sources")
                wrong.append(f"corpus: recorded sources {recorded} (event {begun.index}), found {found}")
    return wrong


def _recorded_tree(store: Store, artifact: str) -> Manifest | None:
    try:
        return store.manifest(artifact)
    except LedgerError:
        return None


def _differing_files(recorded: Manifest, found: Manifest) -> list[str]:
    mine, theirs = ({entry.path: entry.digest for entry in manifest} for manifest in (recorded, found))
    return sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))


def compare_step(view: StepView, made: StoredResult | StepView) -> list[str]:
    """What is wrong with a step that was executed again: content, size, metrics, tables."""
    wrong = []
    for what, expected, found in (
        ("size", view.output.size, made.output.size),
        ("kind", view.output.kind, made.output.kind),
        ("metrics", dict(view.metrics), dict(made.metrics)),
        ("tables", dict(view.tables), dict(made.tables)),
    ):
        if expected != found:
            wrong.append(f"{view.step}: recorded {what} {expected}, found {found}")
    if view.output.digest != made.output.digest:
        wrong.insert(0, f"{view.step}: expected {view.output.digest}, found {made.output.digest}")
    return wrong


def shards(path: Path, split: str, count: int) -> list[DataJob]:
    """At most ``count`` stretches of whole lines that cover the file, of about equal size."""
    size = max(LEAST_SHARD, -(-path.stat().st_size // count))
    return [DataJob("tokens", split, first, end) for first, end in stretches(path, size)]


def _by_workers(case: Case, report: Report) -> Verdict:
    """Corpus, tokenizer and the shards of tokens at the same time."""
    run = case.run
    inputs = case.inputs(("corpus", "tokenizer"))
    made = case.workshop / "shards"
    made.mkdir()
    recorded = {name: step.output.artifact for name, step in run.steps.items()}
    folders = {name: str(folder) for name, folder in inputs.items()}
    setup = DataSetup(case.root.absolute, run.run, run.started.body.recipe, folders, str(made), recorded, case.reach)
    jobs = [DataJob("corpus"), DataJob("tokenizer"), *_token_jobs(run.recipe, inputs["corpus"], case.workers)]
    answers: list[DataAnswer] = []
    with WORKER.run(warm_workers(case.workers, runner=case.execution.runner).run, setup, jobs) as results:
        for result in results:
            answers.append(result)
            report(len(answers), f"{jobs[len(answers) - 1].step} {jobs[len(answers) - 1].split}")
    return _judge(case.record, jobs, answers)


def _token_jobs(recipe: Recipe, corpus: Path, workers: int) -> list[DataJob]:
    dataset = recipe.dataset
    chat = isinstance(dataset, FilesDataset) and bool(dataset.chat)  # has loss masks beside its tokens
    if (
        artifacts(recipe) or chat or recipe.exclude or not all((corpus / file).is_file() for file in SPLITS.values())
    ):  # or a mixture: a cache per part; or blank documents
        return [DataJob("tokens")]
    return [job for split, file in SPLITS.items() for job in shards(corpus / file, split, workers)]


def _judge(record: RunRecord, jobs: Sequence[DataJob], answers: Sequence[DataAnswer]) -> Verdict:
    run = record.run
    bad = next((answer for answer in answers if answer.outcome != "PASS"), None)
    if bad is not None:
        return Verdict(bad.outcome, (bad.line,), executed=True)
    for job, answer in zip(jobs, answers, strict=True):
        wrong = compare_step(run.steps[job.step], answer.made) if answer.made else []
        if job.step == "corpus":
            wrong += other_sources(record, answer.sources)
        if wrong:
            return Verdict("FAIL", tuple(wrong), executed=True)
    parts = [(job, answer) for job, answer in zip(jobs, answers, strict=True) if job.split]
    lines = [f"{name}: {run.output(name).digest}" for name in DATA_STEPS]
    if not parts:
        return Verdict("PASS", tuple(lines))
    from marin.training.tokens.shards import join_shards  # numpy and Levanter's tokens, in this process only now

    made = join_shards(
        {split: [(Path(a.ids), a.lengths) for j, a in parts if j.split == split] for split in SPLITS},
        {} if as_recorded(run.recipe) else {"train": sum(a.words or 0 for _, a in parts)},
    )
    if wrong := compare_step(run.steps["tokens"], made):
        return Verdict("FAIL", tuple(wrong), executed=True)
    return Verdict("PASS", (*lines, f"tokens encoded again in {len(parts)} shards"))


class DataWorker:
    """Executes whole steps in a rehearsal, and encodes shards of documents."""

    def __init__(self, setup: DataSetup) -> None:
        self._setup = setup
        self._recipe = from_plain(setup.recipe, where="recipe of the run")
        apply(self._recipe.arithmetic, Execution())
        self._store = Store(open_storage(setup.root, readonly=True))

    def __call__(self, job: DataJob) -> DataAnswer:
        """How one job ended."""
        try:
            return self._encode(job) if job.split else self._step(job.step)
        except LedgerError as error:
            return DataAnswer(outcome_of(error), line=f"{job.step}: {error}")

    def _step(self, name: str) -> DataAnswer:
        folder = Path(self._setup.outputs) / name
        step = PIPELINE.step(name)
        rehearsal = Rehearsal(folder, self._setup.run, self._recipe, self._store, Execution(), self._setup.reach)
        out, result = rehearsal.execute(step, {key: Path(self._setup.inputs[key]) for key in step.inputs})
        tree = describe_tree(out, _recorded_tree(self._store, self._setup.recorded.get(name, "")))
        sources = sources_of(out) if name == "corpus" else {}
        return DataAnswer("PASS", made=_as_stored(tree, result), sources=sources)

    def _encode(self, job: DataJob) -> DataAnswer:
        from marin.data.tokenizer import load_tokenizer
        from marin.training.tokens.building import ends
        from marin.training.tokens.shards import encode_shard

        inputs = {name: Path(folder) for name, folder in self._setup.inputs.items()}
        target = Path(self._setup.outputs) / f"{job.split}-{job.first}.ids"
        path = inputs["corpus"] / SPLITS[job.split]
        with path.open("rb") as file:
            file.seek(job.first)
            lines = file.read(job.end - job.first).splitlines()
        documents = list(documents_of(lines, f"{path.name}, from byte {job.first}"))
        tokenizer = load_tokenizer(inputs["tokenizer"], as_recorded=as_recorded(self._recipe))
        lengths = encode_shard(tokenizer, documents, ends(self._recipe), target)
        words = None
        if job.split == "train" and not as_recorded(self._recipe):
            words = sum(len(document.text.split()) for document in documents)
        return DataAnswer("PASS", ids=str(target), lengths=lengths, words=words)


WORKER = Worker(f"{__name__}:WORKER", DataSetup, DataJob, DataAnswer, DataWorker)
