"""`marin export --babylm`: what a submission to the BabyLM challenge needs of a run, in the layout of its pipeline.

    model/main, model/chck_1M ...     Hugging Face folders: the last state, and the checkpoints after so many words
    model/main/README.md              the model's card, where one is asked for, and the chat template beside it
    results/model/REVISION/zero_shot/causal/TASK/DATA/predictions.json
    results/model/main/zero_shot/causal/AoA_word/surprisal.json
    results/model/all_full_preds_and_fast_scores_causal.json    all of it, as the pipeline collates it
    checkpoints.json                  which recorded state each revision is: train step, words, digest, numbers, their events;
                                      the run, and the digest of the revision's folder

A checkpoint is the first recorded state by which so many million words were seen: with ``trainer.states_at_words`` that of the
very train step. The last one, which needs all of ten epochs, is the run's end where those are done: part of the text is held
out, so that what is trained on has fewer words than the track. Words are those of the train split between white space; a train
step has seen as many as its share of the split's tokens holds. Every answer is one that is recorded of the state: what nobody
evaluated before is evaluated now, and recorded. What the pipeline fine-tunes (GLUE) is not part of it: that is trained by the
pipeline itself, from ``model/main``.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from ledger import Draft, Store, describe_tree
from marin.data.documents import read_texts, train_files
from marin.errors import MissingEvidence, UsageError
from marin.evaluation.code import deciding_digest
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject, open_subject
from marin.execution.phases import chain
from marin.export.card import CARD
from marin.history.run import Run
from marin.history.runs import evaluation_stream
from marin.kinds.families.measured import EVALUATION_RECORDED, EvaluationRecorded
from marin.plugins.evaluation.babylm.predictions import collate, place_of, predictions, shares
from marin.plugins.evaluation.babylm.scoring import ASKER, evaluated
from marin.plugins.evaluation.babylm.tasks import FAST, FULL, read
from marin.plugins.evaluation.recorded.evaluated import numbers
from marin.plugins.evaluation.recorded.records import Sample, Settings, digests_of, read_samples, write_tree
from marin.plugins.evaluation.recorded.task import EvaluationTask
from marin.process.progress import bar
from marin.provenance.code import code_folder, lock_digest
from marin.recipe.schema import Recipe
from marin.record import events, outputs
from marin.record.events import write
from marin.record.root import Root
from marin.training.export import TOKENIZER_FILES, write_model
from marin.training.model import vocabulary_size

log = logging.getLogger(__name__)

MILLION = 10**6
TRACKS: Mapping[str, tuple[int, ...]] = {
    "strict-small": (*range(1, 10), *range(10, 101, 10)),
    "strict": (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100)),
}
"""The checkpoints that a track asks for, in millions of words."""
EPOCHS = 10
"""How often the text may be read, on any track."""
WORDS: Mapping[str, int] = {"strict-small": 10 * MILLION, "strict": 100 * MILLION}
"""How many words a track's text has at most."""
NEARLY = Fraction(95, 100)
"""The part of a track's words, at least, whose ten epochs stand for its last checkpoint."""
MODEL, MAIN, BACKEND = "model", "main", "causal"
NO_WORDS = Fraction(0)


def words_of(run: Run, store: Store, folder: Path) -> int:
    """Words of the train split, between white space."""
    outputs.checkout(store, run.output("corpus"), folder, kind=outputs.KINDS["corpus"])
    return sum(len(text.split()) for path in train_files(folder).values() for text in read_texts(path))


def tokens_of(run: Run) -> int:
    """Tokens of the train split, one at least."""
    found = (
        int(value)
        for name, value in run.steps["tokens"].metrics.items()
        if name.startswith("train") and name.endswith("_tokens")
    )
    return max(1, sum(found))


def check_track(phases: Sequence[Run], words: int, track: str) -> None:
    """Raises UsageError where a run (the last of these phases) is not of ``track``: its text has more words, something else
    than this text entered, by what was made elsewhere or in an earlier phase, or parts of it were read more often than others."""
    last = phases[-1]

    def refuse(rule: str, run: str, expected: str, found: str) -> UsageError:
        return UsageError(
            f"the run is not of the track: {rule}",
            where=f"run {run}, {track}",
            expected=expected,
            found=found,
            cure="train on the track's text alone; `marin export --hf` writes the model of any run",
        )

    if words > WORDS[track]:
        raise refuse("too many words", last.run, f"{WORDS[track]:,} at most", f"{words:,}")
    text = last.output("corpus").digest
    for run in phases:
        recipe = run.recipe
        if recipe.mixture is not None:
            raise refuse(
                "a mixture reads some parts of a text more often than others",
                run.run,
                "one data set",
                f"parts {', '.join(sorted(recipe.mixture.weights))}",
            )
        elsewhere = {
            "initial": recipe.initial,
            "tokenizer": recipe.tokenizer.artifact,
            "tokens": recipe.tokens.artifact,
        }
        if found := [name for name, made in elsewhere.items() if made is not None]:
            raise refuse("made elsewhere", run.run, "model, tokenizer and tokens of the track's text", ", ".join(found))
        if run.output("corpus").digest != text:
            raise refuse("an earlier phase read other text", run.run, text, run.output("corpus").digest)


def words_before(phases: Sequence[Run], words: int) -> Fraction:
    """Words that the phases before the last of these saw of a text of ``words``: each had a cut of its own."""
    return sum(
        (
            _read(run.recipe, after.recipe.first_step) * Fraction(words, tokens_of(run))
            for run, after in pairwise(phases)
        ),
        Fraction(0),
    )


def _read(recipe: Recipe, step: int) -> int:
    """Tokens that a phase read before train step ``step``."""
    return (step - recipe.first_step) * recipe.trainer.batch_size * recipe.model.seq_len


def check_epochs(run: Run, words: int, each: Fraction, before: Fraction = NO_WORDS) -> None:
    """Raises UsageError where the run has seen its text (``words``, ``each`` for a token) more often than a track allows.
    ``before``: words that phases before it saw."""
    if (seen := int(before + _read(run.recipe, run.recipe.last_step) * each)) <= EPOCHS * words:
        return
    raise UsageError(
        "the run is not of the track: too many epochs",
        where=f"run {run.run}",
        expected=f"{EPOCHS} epochs at most: {EPOCHS * words:,} words",
        found=f"{seen:,} words",
        cure=f"train with trainer.most_epochs={EPOCHS}; `marin export --hf` writes any run's model",
    )


def checkpoints(
    run: Run, each: Fraction, track: str, words: int = 0, before: Fraction = NO_WORDS
) -> dict[str, tuple[int, int]]:
    """Revisions by name: the train step before which the state is, and the words that it had seen. Those that the run never
    reached, or that a phase ``before`` it had passed, are not there; ``words``, those of its text, say whether its end stands
    for the last."""

    def seen_before(step: int) -> int:
        return int(before + _read(run.recipe, step) * each)

    recorded = sorted(fact.body.step for fact in run.checkpoints)
    found = {}
    for millions in TRACKS[track]:
        for step in recorded:
            if seen_before(step) >= millions * MILLION > before:
                found[f"chck_{millions}M"] = (step, seen_before(step))
                break
    end, whole = run.recipe.last_step, EPOCHS * words
    if end in recorded and seen_before(end + 1) > whole >= NEARLY * TRACKS[track][-1] * MILLION:
        found.setdefault(f"chck_{TRACKS[track][-1]}M", (end, seen_before(end)))
    return found


def write_submission(
    run: Run,
    root: Root,
    data: Path | None,
    dest: Path,
    track: str,
    devices: int = 1,
    *,
    again: bool = False,
    card: Callable[[Path], object] | None = None,
) -> dict[str, Path]:
    """Fill ``dest``; the revisions that are there now, with their folders. The arithmetic contract is in force.

    Args:
        data: the pipeline's ``evaluation_data`` with ``full_eval`` and ``fast_eval``; None: models without predictions.
        again: a ``dest`` that is there is left as it is, if it has this run's revisions as they were written.
        card: writes the model's card into the folder of ``main``.

    Raises:
        UsageError: ``dest`` exists, or is not what was written; the run is not of the track, by its text or its epochs.
            DataMissing: there is no data.
            MissingEvidence: a checkpoint is not stored.
    """
    written = again and dest.exists()
    if dest.exists() and not again:
        raise UsageError(
            "the folder is there already",
            where="--babylm",
            expected="a new one",
            found=str(dest),
            cure="name another folder, or remove it",
        )
    if track not in TRACKS:
        raise UsageError("no such track", where="--track", expected=" or ".join(TRACKS), found=track, cure="name one")
    asked = None if data is None else _DataSets.read(data)
    store = root.store_to_read()
    with TemporaryDirectory(prefix="marin-babylm-") as base:
        words = words_of(run, store, Path(base) / "corpus")
    phases = chain(root.history(), run)
    check_track(phases, words, track)
    each, before = Fraction(words, tokens_of(run)), words_before(phases, words)
    check_epochs(run, words, each, before)
    reached = checkpoints(run, each, track, words, before)
    wanted: dict[str, int | None] = {MAIN: None, **{name: step for name, (step, _) in reached.items()}}
    folders = {name: dest / MODEL / name for name in wanted}
    if written:
        _check_written(run, dest, folders, wanted, predicted=data is not None)
        if card is not None and not (folders[MAIN] / CARD).is_file():
            raise _no_such_submission(folders[MAIN] / CARD, "a card, as --card writes it", "none")
        return folders
    dest.mkdir(parents=True)
    tokenizer = dest / "tokenizer"
    outputs.checkout(store, run.output("tokenizer"), tokenizer, kind=outputs.KINDS["tokenizer"], how="copy")
    if lacking := [name for name in (f"chck_{millions}M" for millions in TRACKS[track]) if name not in reached]:
        log.warning("the run never had so many words: %s", ", ".join(lacking))
    answers = _Answers(run, root)
    submission = _Submission(dest, track)
    with bar("babylm", len(wanted)) as progress:
        for done, (name, step) in enumerate(wanted.items(), start=1):
            _present(run, store, step)
            subject = open_subject(run, store, step)
            _write_folder(folders[name], tokenizer, subject)
            if card is not None and name == MAIN:
                card(folders[name])
            told: dict[str, Any] = {"run": run.run, "step": subject.step, "state": subject.state}
            told["folder"] = describe_tree(folders[name]).digest
            told |= {"words": reached[name][1]} if name in reached else {}
            if asked is not None:
                told |= submission.add(name, [answers.of(subject, task, devices) for task in asked.of(name)])
            submission.told[name] = told
            progress(done, name)
    shutil.rmtree(tokenizer)
    submission.finish()
    return folders


def _check_written(
    run: Run, dest: Path, folders: Mapping[str, Path], wanted: Mapping[str, int | None], *, predicted: bool
) -> None:
    """Raises UsageError where ``dest`` is not a whole submission of ``run`` with these revisions, as it was written."""
    refuse = _no_such_submission
    file = dest / "checkpoints.json"
    try:
        told = msgspec.json.decode(file.read_bytes(), type=dict[str, _Written])
    except (OSError, msgspec.DecodeError) as error:
        raise refuse(file, "what a whole submission ends with", str(error)[:200]) from None
    if told.keys() != wanted.keys():
        raise refuse(file, f"revisions {', '.join(wanted)}", ", ".join(told)[:300])
    for name, one in told.items():
        step = wanted[name]
        if one.run != run.run or step not in (None, one.step):
            expected = f"{name} of run {run.run}" + ("" if step is None else f", train step {step}")
            raise refuse(file, expected, f"run {one.run[:100]}, train step {one.step}")
        found = describe_tree(folders[name]).digest if folders[name].is_dir() else "none"
        if found != one.folder:
            raise refuse(folders[name], one.folder[:100], found)
    if predicted and told[MAIN].numbers is None:
        raise refuse(dest / "results", "predictions on --babylm-data", "none")


def _no_such_submission(where: Path, expected: str, found: str) -> UsageError:
    return UsageError(
        "the folder is there already, and is not this submission",
        where=str(where),
        expected=expected,
        found=found,
        cure="remove it, or name a new one",
    )


class _Written(msgspec.Struct, frozen=True):
    """What is read of a revision in ``checkpoints.json``."""

    run: str
    step: int
    folder: str
    numbers: dict[str, Any] | None = None


def _present(run: Run, store: Store, step: int | None) -> None:
    saved = {fact.body.step: fact.body for fact in run.checkpoints}
    if step is not None and not store.has(saved[step].artifact):
        raise MissingEvidence(
            "a checkpoint is not in the store",
            where=f"train step {step}",
            expected=saved[step].artifact,
            found="none",
            cure="bring it from a store that has it: marin store pull",
        )


def _write_folder(folder: Path, tokenizer: Path, subject: Subject) -> None:
    folder.mkdir(parents=True)
    for file in TOKENIZER_FILES:
        if (tokenizer / file).exists():
            shutil.copyfile(tokenizer / file, folder / file)
    write_model(folder, subject.model, subject.recipe, vocabulary_size(tokenizer, subject.recipe.model))


@dataclass(frozen=True)
class _DataSets:
    """The data sets that are there: of the last state, of every checkpoint, and words whose age of acquisition is asked."""

    full: list[EvaluationTask]
    fast: list[EvaluationTask]
    words: list[EvaluationTask]

    @classmethod
    def read(cls, data: Path) -> _DataSets:
        full, fast = read(data / "full_eval"), read(data / "fast_eval")
        sides = (("full_eval", FULL, full), ("fast_eval", FAST, fast))
        for folder, names, tasks in sides:
            if lacking := sorted({*names} - {task.name for task in tasks}):
                log.warning("%s has nothing of %s: left out", folder, ", ".join(lacking))
        words = [task for task in full if task.name == "aoa"]
        return cls([task for task in full if task.name in FULL], [task for task in fast if task.name in FAST], words)

    def of(self, revision: str) -> list[EvaluationTask]:
        return self.full if revision == MAIN else [*self.fast, *self.words]


@dataclass(frozen=True)
class _Recorded:
    task: EvaluationTask
    samples: list[Sample]
    results: Mapping[str, float]
    event: int


class _Answers:
    """What is recorded of a run's states, and what is not yet."""

    def __init__(self, run: Run, root: Root) -> None:
        self.run, self.root = run, root
        self.scorer: Scorer | None = None
        self.code, self.lock = deciding_digest(ASKER.starts, run.recipe), lock_digest(code_folder())

    def of(self, subject: Subject, task: EvaluationTask, devices: int) -> _Recorded:
        """The answers of a state to one data set: recorded ones of this very code, or new ones, which are recorded."""
        known = self._known(subject, task)
        if known is not None:
            index, body = known
            with TemporaryDirectory(prefix="marin-babylm-") as base:
                self.root.store_to_read().checkout(body.samples, Path(base) / "tree")
                samples = list(read_samples(Path(base) / "tree", task.name))
            results = {name: float.fromhex(value) for name, value in body.results[task.name].items()}
            return _Recorded(task, samples, results, index)
        self.root.check_writable()  # a copy of a root is said before the work
        held = self.scorer
        self.scorer = held.holding(subject.model) if held else Scorer(subject.model, subject.recipe, devices=devices)
        found = evaluated(subject, self.scorer, [task], Settings())
        with TemporaryDirectory(prefix="marin-babylm-") as base:
            write_tree(Path(base), [task], found.samples, numbers(found.results))
            body = found.body(subject, self.root.store().put_tree(Path(base)).digest)
        (receipt,) = self.root.append([Draft(EVALUATION_RECORDED, evaluation_stream(self.run.run), write(body))])
        return _Recorded(task, list(found.samples[task.name]), found.results[task.name], receipt.index)

    def _known(self, subject: Subject, task: EvaluationTask) -> tuple[int, EvaluationRecorded] | None:
        for index, event in self.root.history().events(stream=evaluation_stream(self.run.run)):
            if event.type != EVALUATION_RECORDED:
                continue
            body = events.read(EvaluationRecorded, event.body, where=f"event {index}")
            same = (body.harness, body.state, body.code, body.lock) == (
                ASKER.version,
                subject.state,
                self.code,
                self.lock,
            )
            told = body.tasks.get(task.name)
            if same and told is not None and body.settings.get("limit") is None and told.data == digests_of(task):
                return index, body
        return None


class _Submission:
    """The files of the pipeline, revision after revision."""

    def __init__(self, dest: Path, track: str) -> None:
        self.dest, self.track = dest, track
        self.told: dict[str, dict[str, Any]] = {}
        self.full: dict[str, Any] = {}
        self.fast: list[dict[str, dict[str, float]]] = []
        self.surprisals: list[dict[str, Any]] = []

    def add(self, revision: str, answers: Sequence[_Recorded]) -> dict[str, Any]:
        """Predictions of one revision; what ``checkpoints.json`` says of them."""
        place = self.dest / "results" / MODEL / revision / "zero_shot" / BACKEND
        fast: dict[str, dict[str, float]] = {}
        for answer in answers:
            told = predictions(answer.task.name, answer.samples)
            if answer.task.name == "aoa":
                millions = int(revision.removeprefix("chck_").removesuffix("M"))
                at = {"step": revision, "word_count": millions * MILLION}
                self.surprisals += [{**at, **one} for one in told]
                continue
            _write_json(place / place_of(answer.task.name), told)
            if revision == MAIN:
                self.full[answer.task.name] = told
            else:
                fast[answer.task.name] = shares(answer.task.name, answer.samples, answer.results)
        if revision != MAIN:
            self.fast.append(fast)
        return {
            "numbers": {answer.task.name: dict(answer.results) for answer in answers},
            "events": {answer.task.name: answer.event for answer in answers},
        }

    def finish(self) -> None:
        words = None
        if self.surprisals:
            about = {
                "model_name": MODEL,
                "use_bos_only": False,
                "total_steps": len(TRACKS[self.track]),
                "completed_steps": len({one["step"] for one in self.surprisals}),
            }
            words = {"metadata": about, "results": self.surprisals}
            _write_json(
                self.dest / "results" / MODEL / MAIN / "zero_shot" / BACKEND / "AoA_word" / "surprisal.json", words
            )
        if self.full or self.fast:
            name = f"all_full_preds_and_fast_scores_{BACKEND}.json"
            _write_json(self.dest / "results" / MODEL / name, collate(self.full, words, self.fast))
        _write_json(self.dest / "checkpoints.json", self.told)


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, sort_keys=False) + "\n", encoding="utf-8")
