"""`marin export --babylm`: what a submission to the BabyLM challenge needs of a run, in the layout of its pipeline.

    model/main, model/chck_1M ...     Hugging Face folders: the last state, and the checkpoints after so many words
    results/model/REVISION/zero_shot/causal/TASK/DATA/predictions.json
    results/model/main/zero_shot/causal/AoA_word/surprisal.json
    checkpoints.json                  which recorded state each revision is: train step, words, digest

A checkpoint is the first recorded state by which so many million words were seen. Words are those of the train split between
white space; a train step has seen as many as its share of the split's tokens holds. What the pipeline fine-tunes (GLUE) is
none of it: that is trained by the pipeline itself, from ``model/main``.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from ledger import Store
from marin.data.documents import read_texts, train_files
from marin.errors import MissingEvidence, UsageError
from marin.evaluation.babylm import FAST, FULL, READING, WORDS, BabyLM
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject, open_subject
from marin.history.run import Run
from marin.process.progress import bar
from marin.record import outputs
from marin.training.export import TOKENIZER_FILES, write_model
from marin.training.model import END_OF_TEXT_ID, vocabulary_size

log = logging.getLogger(__name__)

MILLION = 10**6
TRACKS: Mapping[str, tuple[int, ...]] = {
    "strict-small": (*range(1, 10), *range(10, 101, 10)),
    "strict": (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100)),
}
"""The checkpoints that a track asks for, in millions of words."""
MODEL, BACKEND = "model", "causal"


def words_a_token(run: Run, store: Store, folder: Path) -> Fraction:
    """Words of the train split for each of its tokens."""
    outputs.checkout(store, run.output("corpus"), folder, kind=outputs.KINDS["corpus"])
    words = sum(len(text.split()) for path in train_files(folder).values() for text in read_texts(path))
    tokens = sum(int(value) for name, value in run.steps["tokens"].metrics.items()
                 if name.startswith("train") and name.endswith("_tokens"))  # fmt: skip
    return Fraction(words, max(1, tokens))


def checkpoints(run: Run, each: Fraction, track: str) -> dict[str, tuple[int, int]]:
    """Revisions by name: the train step before which the state is, and the words that it had seen. Those that the run never
    reached are not there."""
    recipe = run.recipe
    size = recipe.trainer.batch_size * recipe.model.seq_len
    recorded = sorted(fact.body.step for fact in run.checkpoints)
    found = {}
    for millions in TRACKS[track]:
        for step in recorded:
            seen = int(step * size * each)
            if seen >= millions * MILLION:
                found[f"chck_{millions}M"] = (step, seen)
                break
    return found


def write_submission(run: Run, store: Store, data: Path | None, dest: Path, track: str, devices: int = 1) -> list[str]:
    """Fill ``dest``, which must not exist; the revisions that are there now. The arithmetic contract is in force.

    Args:
        data: the pipeline's ``evaluation_data`` with ``full_eval`` and ``fast_eval``; None: models without predictions.

    Raises:
        UsageError: ``dest`` exists. DataMissing: a data set is not there. MissingEvidence: a checkpoint is not stored.
    """
    if dest.exists():
        raise UsageError("the folder is there already", where="--babylm", expected="a new one", found=str(dest))
    if track not in TRACKS:
        raise UsageError("no such track", where="--track", expected=" or ".join(TRACKS), found=track)
    dest.mkdir(parents=True)
    tokenizer = dest / "tokenizer"
    outputs.checkout(store, run.output("tokenizer"), tokenizer, kind=outputs.KINDS["tokenizer"], how="copy")
    each = words_a_token(run, store, dest / "corpus")
    shutil.rmtree(dest / "corpus")
    wanted: dict[str, int | None] = {"main": None}
    reached = checkpoints(run, each, track)
    wanted |= {name: step for name, (step, _) in reached.items()}
    if lacking := [name for name in (f"chck_{millions}M" for millions in TRACKS[track]) if name not in reached]:
        log.warning("the run never had so many words: %s", ", ".join(lacking))
    scorer: Scorer | None = None
    surprisals: list[dict[str, Any]] = []
    told: dict[str, dict[str, Any]] = {}
    with bar("babylm", len(wanted)) as progress:
        for done, (name, step) in enumerate(wanted.items(), start=1):
            saved = {fact.body.step: fact.body for fact in run.checkpoints}
            if step is not None and not store.has(saved[step].artifact):
                raise MissingEvidence(
                    "a checkpoint is not in the store",
                    where=f"train step {step}",
                    expected=saved[step].artifact,
                    found="none",
                )
            subject = open_subject(run, store, step)
            folder = dest / MODEL / name
            folder.mkdir(parents=True)
            for file in TOKENIZER_FILES:
                if (tokenizer / file).exists():
                    shutil.copyfile(tokenizer / file, folder / file)
            write_model(folder, subject.model, subject.recipe, vocabulary_size(tokenizer), END_OF_TEXT_ID)
            told[name] = {"step": subject.step, "state": subject.state}
            told[name] |= {"words": reached[name][1]} if name in reached else {}
            if data is not None:
                scorer = (
                    scorer.holding(subject.model) if scorer else Scorer(subject.model, subject.recipe, devices=devices)
                )
                told[name]["scores"] = _results(subject, scorer, data, dest, name)
                if name in reached and (words := _words(data)) is not None:
                    millions = int(name.removeprefix("chck_").removesuffix("M"))
                    surprisals += BabyLM(subject, scorer).surprisals(words, name, millions * MILLION)
            progress(done, name)
    shutil.rmtree(tokenizer)
    if surprisals:
        steps = len({one["step"] for one in surprisals})
        about = {
            "model_name": MODEL,
            "use_bos_only": False,
            "total_steps": len(TRACKS[track]),
            "completed_steps": steps,
        }
        place = dest / "results" / MODEL / "main" / "zero_shot" / BACKEND / "AoA_word"
        _write(place / "surprisal.json", {"metadata": about, "results": surprisals})
    _write(dest / "checkpoints.json", told)
    return list(wanted)


def _results(subject: Subject, scorer: Scorer, data: Path, dest: Path, name: str) -> dict[str, float]:
    """Predictions of one revision; its scores by data set."""
    asked, folders = BabyLM(subject, scorer), data / ("full_eval" if name == "main" else "fast_eval")
    place = dest / "results" / MODEL / name / "zero_shot" / BACKEND
    scores = {}
    for dataset, task in (FULL if name == "main" else FAST).items():
        found = asked.predictions(folders / dataset, task)
        _write(place / task / dataset / "predictions.json", found.subtasks)
        scores[dataset] = found.score
    _write(place / "reading" / "predictions.json", asked.reading(folders / READING))
    return scores


def _words(data: Path) -> Path | None:
    return next((path for path in (data / "full_eval" / name for name in WORDS) if path.is_file()), None)


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, sort_keys=False) + "\n", encoding="utf-8")
