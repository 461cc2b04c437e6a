"""Data stages executed again by several workers: each from the recorded outputs of the stages before it, tokens by shard.

As with segments, recorded digests chain the pieces: the corpus is made anew from the raw bytes, the tokenizer from the
recorded corpus, and each shard of documents is encoded with the recorded tokenizer; inputs are hashed when they leave the
store. If every piece gives what is recorded, all of it follows from the raw bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ledger import LedgerError, Manifest, Store, describe_tree, digest_bytes, open_storage
from marin.arithmetic import apply
from marin.corpus.documents import TRAIN, VALIDATION, read_texts
from marin.events import Json, Output
from marin.pipeline import PIPELINE
from marin.progress import Report
from marin.recipe import Execution, FilesDataset, from_plain
from marin.replay.sandbox import Sandbox
from marin.replay.verdict import Outcome, outcome_of
from marin.runners import Work
from marin.runs import RunView, StepView

SPLITS = {"train": TRAIN, "validation": VALIDATION}
LEAST_SHARD = 1 << 16
"""Bytes of text below which a shard is not worth handing over."""


class DataSetup(msgspec.Struct, frozen=True):
    """What a worker needs. ``inputs`` holds the recorded outputs, ``outputs`` takes what is made; both on this machine.
    ``recorded``: the artifact of each step."""

    root: str
    run: str
    recipe: Json
    inputs: str
    outputs: str
    recorded: dict[str, str] = {}


class DataJob(msgspec.Struct, frozen=True):
    """A whole step, or (``split`` given) the documents of one split that begin at bytes ``[first, end)`` of its file."""

    step: str
    split: str = ""
    first: int = 0
    end: int = 0


class DataAnswer(msgspec.Struct, frozen=True):
    """How one job ended: digest, size and metrics of a step's output, or the file that holds a shard's token ids and the
    number of tokens of each of its documents."""

    outcome: Outcome
    line: str = ""
    output: Output | None = None
    metrics: dict[str, float] = {}
    tables: dict[str, str] = {}
    ids: str = ""
    lengths: list[int] = []


@dataclass(frozen=True)
class DataReplay:
    """How the data stages ended. ``lines`` are those of the verdict."""

    outcome: Outcome
    lines: tuple[str, ...]


def compare_step(view: StepView, output: Output, metrics: dict[str, float], tables: dict[str, str]) -> list[str]:
    """What is wrong with a step that was executed again: content, size, metrics, tables."""
    wrong = []
    for what, expected, found in (("size", view.output.size, output.size), ("kind", view.output.kind, output.kind),
                                  ("metrics", dict(view.metrics), metrics), ("tables", dict(view.tables), tables)):
        if expected != found:
            wrong.append(f"{view.step}: recorded {what} {expected}, found {found}")
    if view.output.digest != output.digest:
        wrong.insert(0, f"{view.step}: expected {view.output.digest}, found {output.digest}")
    return wrong


def shards(path: Path, split: str, count: int) -> list[DataJob]:
    """At most ``count`` stretches of whole lines that cover the file, of about equal size."""
    size = path.stat().st_size
    count = max(1, min(count, size // LEAST_SHARD))
    cuts = [0]
    with path.open("rb") as file:
        for number in range(1, count):
            file.seek(size * number // count)
            file.readline()
            cuts.append(max(cuts[-1], min(file.tell(), size)))
    return [DataJob("tokens", split, first, end) for first, end in zip(cuts, [*cuts[1:], size], strict=True) if end > first]


def replay_data(run: RunView, root: str, store: Store, workers: int, report: Report) -> DataReplay:
    """Execute corpus, tokenizer and the shards of tokens at the same time on ``workers`` workers."""
    from marin.replay.segments import runner

    place = root if "://" in root else str(Path(root).resolve())
    with TemporaryDirectory(prefix="marin-data-") as base:
        inputs, outputs = Path(base) / "inputs", Path(base) / "outputs"
        inputs.mkdir()
        outputs.mkdir()
        for name in ("corpus", "tokenizer"):
            store.checkout(run.output(name).artifact, inputs / name)
        setup = DataSetup(place, run.run, run.started.body.recipe, str(inputs), str(outputs),
                          {name: step.output.artifact for name, step in run.steps.items()})
        dataset = run.recipe.dataset
        chat = isinstance(dataset, FilesDataset) and bool(dataset.chat)  # has loss masks beside its tokens
        whole = chat or not all((inputs / "corpus" / file).is_file() for file in SPLITS.values())  # a mixture: a cache per part
        parts = [DataJob("tokens")] if whole else [
            job for split, file in SPLITS.items() for job in shards(inputs / "corpus" / file, split, workers)]
        jobs = [DataJob("corpus"), DataJob("tokenizer"), *parts]
        answers: list[DataAnswer] = []
        with runner(workers).run(start, msgspec.json.encode(setup), [msgspec.json.encode(job) for job in jobs]) as results:
            for result in results:
                answers.append(msgspec.json.decode(result, type=DataAnswer))
                report(len(answers), f"{jobs[len(answers) - 1].step} {jobs[len(answers) - 1].split}")
        return _judge(run, jobs, answers)


def _judge(run: RunView, jobs: Sequence[DataJob], answers: Sequence[DataAnswer]) -> DataReplay:
    bad = next((answer for answer in answers if answer.outcome != "PASS"), None)
    if bad is not None:
        return DataReplay(bad.outcome, (bad.line,))
    for job, answer in zip(jobs, answers, strict=True):
        wrong = compare_step(run.steps[job.step], answer.output, answer.metrics, answer.tables) if answer.output else []
        if wrong:
            return DataReplay("FAIL", tuple(wrong))
    parts = [(job, answer) for job, answer in zip(jobs, answers, strict=True) if job.split]
    lines = [f"{name}: {run.output(name).digest}" for name in ("corpus", "tokenizer", "tokens")]
    if not parts:
        return DataReplay("PASS", tuple(lines))
    from marin.training.token_shards import joined

    output, metrics = joined({split: [(Path(a.ids), a.lengths) for j, a in parts if j.split == split] for split in SPLITS})
    if wrong := compare_step(run.steps["tokens"], output, metrics, {}):
        return DataReplay("FAIL", tuple(wrong))
    return DataReplay("PASS", (*lines, f"tokens encoded again in {len(parts)} shards"))


def start(setup: bytes) -> Work:
    """In a worker, once: what executes data stages."""
    return DataWorker(msgspec.json.decode(setup, type=DataSetup))


class DataWorker:
    """Executes whole steps in a sandbox, and encodes shards of documents."""

    def __init__(self, setup: DataSetup) -> None:
        self._setup = setup
        self._recipe = from_plain(setup.recipe, where="recipe of the run")
        apply(self._recipe.arithmetic, Execution())
        self._store = Store(open_storage(setup.root, readonly=True))

    def __call__(self, task: bytes) -> bytes:
        """The :class:`DataAnswer` to one :class:`DataJob`."""
        job = msgspec.json.decode(task, type=DataJob)
        try:
            answer = self._encode(job) if job.split else self._step(job.step)
        except LedgerError as error:
            answer = DataAnswer(outcome_of(error), line=f"{job.step}: {error}")
        return msgspec.json.encode(answer)

    def _step(self, name: str) -> DataAnswer:
        folder = Path(self._setup.outputs) / name
        step = PIPELINE.step(name)
        sandbox = Sandbox(folder, self._setup.run, self._recipe, self._store, Execution())
        out, result = sandbox.execute(step, {key: Path(self._setup.inputs) / key for key in step.inputs})
        tree = describe_tree(out, self._recorded(name))
        output = Output(kind=result.kind, digest=result.digest or tree.digest, size=result.size or tree.size,
                        artifact=tree.digest)
        return DataAnswer("PASS", output=output, metrics=dict(result.metrics),
                          tables={key: digest_bytes(text.encode()) for key, text in result.tables.items()})

    def _recorded(self, name: str) -> Manifest | None:
        """The list of the recorded output's files, where it is here."""
        try:
            return self._store.manifest(self._setup.recorded[name])
        except (LedgerError, KeyError):
            return None

    def _encode(self, job: DataJob) -> DataAnswer:
        from marin.training.token_cache import load_tokenizer
        from marin.training.token_shards import encode_shard

        inputs = Path(self._setup.inputs)
        target = Path(self._setup.outputs) / f"{job.split}-{job.first}.ids"
        shard = target.with_suffix(".jsonl")
        with (inputs / "corpus" / SPLITS[job.split]).open("rb") as file:
            file.seek(job.first)
            shard.write_bytes(file.read(job.end - job.first))
        lengths = encode_shard(load_tokenizer(inputs / "tokenizer"), read_texts(shard), self._recipe.tokens.append_eos, target)
        return DataAnswer("PASS", ids=str(target), lengths=lengths)
