"""BabyLM's zero-shot tasks on a state, scored as the pipeline of the challenge scores a causal model
(github.com/babylm-org/babylm-eval, ``strict``), from its own data files.

A choice among sentences is that of the greatest log-likelihood of a completion: of the tokens that end inside it. Nothing is
put in front, so the first token of a sentence is never scored, as there. Equal ones go to the first. A word's surprisal in
reading times is that of its tokens one by one, each after the text so far, encoded anew. Log-likelihoods come from
:mod:`marin.evaluation.scoring`; there a sum is rounded once, here and in that pipeline only the last bits can differ.
"""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from marin.errors import DataError, DataMissing
from marin.evaluation.scoring import Row, Scorer
from marin.evaluation.subject import Subject

FULL: Mapping[str, str] = {
    "blimp_filtered": "blimp",
    "supplement_filtered": "blimp",
    "ewok_filtered": "ewok",
    "entity_tracking": "entity_tracking",
    "wug_adj_nominalization": "wug_adj",
    "wug_past_tense": "wug_past",
    "comps": "comps",
}
"""Folders of the evaluation of the last state, with the task that each is of."""
FAST: Mapping[str, str] = {
    "blimp_fast": "blimp",
    "supplement_fast": "blimp",
    "ewok_fast": "ewok",
    "entity_tracking_fast": "entity_tracking",
    "wug_adj_nominalization": "wug_adj",
    "wug_past_tense": "wug_past",
}
"""Those of the evaluation of every checkpoint."""
READING = "reading/reading_data.csv"
WORDS = ("aoa/cdi_childes.json", "cdi_childes/cdi_childes.json")
"""Where the words and contexts of the age of acquisition lie; both places are named there."""
COMPS = {"comps_base": "base", "comps_wugs": "wugs", "comps_wugs_dist-before": "wugs_dist_before"}


@dataclass(frozen=True)
class Item:
    """One choice: of the subtask ``uid``, among pairs of a sentence and how many of its last characters are scored.
    ``said``: what a prediction says of each. ``ratio``: of people who chose the first, where the task is about that."""

    uid: str
    options: tuple[tuple[str, int], ...]
    said: tuple[str, ...]
    ratio: float | None = None


@dataclass(frozen=True)
class Predictions:
    """Of one data set: the pipeline's own JSON, and the score in its own terms (percent, or Spearman's rho)."""

    task: str
    dataset: str
    subtasks: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
    score: float


def items(folder: Path, task: str) -> list[Item]:
    """What one data set asks, in the order of its files by name.

    Raises:
        DataMissing: it is not there. DataError: a line is not what the task has.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise DataMissing(
            "data of BabyLM's pipeline is not there",
            where=str(folder),
            expected="*.jsonl",
            found="none",
            cure="put the pipeline's evaluation_data there; its README says where it is published",
        )
    return [item for file in files for item in _items(file, task)]


def _items(file: Path, task: str) -> Iterator[Item]:
    for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            item = _item(row, task, file.stem)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                "not a document of this task",
                where=f"{file}:{number}",
                expected=f"the fields of {task}",
                found=f"{type(error).__name__}: {str(error)[:80]}",
            ) from None
        yield item


def _item(row: Mapping[str, Any], task: str, stem: str) -> Item:
    if task == "blimp":
        uid = row["UID"] if "field" in row else stem
        return _whole(uid, [row["sentence_good"], row["sentence_bad"]])
    if task == "ewok":
        texts = [" ".join([row["Context1"], row[name]]) for name in ("Target1", "Target2")]
        ends = [" " + row[name] for name in ("Target1", "Target2")]
        return Item(row["Domain"], tuple((text, len(end)) for text, end in zip(texts, ends, strict=True)), tuple(ends))
    if task == "entity_tracking":
        options = [str(option) for option in row["options"]]
        uid = f"{stem}_{int(row['numops'])}_ops"
        return Item(uid, tuple((row["input_prefix"] + end, len(end)) for end in options), tuple(options))
    if task == "comps":
        texts = [" ".join([row[f"prefix_{kind}"], row["property_phrase"]]) for kind in ("acceptable", "unacceptable")]
        uid = COMPS.get(stem, "wugs_dist_in_between")
        return Item(uid, tuple((text, len(row["property_phrase"])) for text in texts), tuple(texts))
    return _whole(task, row["sentences"].split("\t"), float(row["ratio"]))


def _whole(uid: str, texts: Sequence[str], ratio: float | None = None) -> Item:
    return Item(str(uid), tuple((text, len(text)) for text in texts), tuple(texts), ratio)


class BabyLM:
    """A state as the pipeline asks it."""

    def __init__(self, subject: Subject, scorer: Scorer) -> None:
        self.subject, self.scorer = subject, scorer
        self.tokenizer: Tokenizer = subject.tokenizer

    def row(self, text: str, last: int) -> Row | None:
        """The tokens of ``text`` of which those that end inside of its ``last`` characters are scored; None: none is."""
        encoding = self.tokenizer.encode(text)
        begin = len(text) - last
        first = next((place for place, (_, end) in enumerate(encoding.offsets) if end > begin), len(encoding.ids))
        kept = encoding.ids[-(self.scorer.seq_len + 1) :]
        scored = min(len(encoding.ids) - first, len(kept) - 1)
        return Row(tuple(kept), scored) if scored > 0 else None

    def totals(self, rows: Sequence[Row | None], done: Callable[[int], None] = lambda count: None) -> list[float]:
        """The log-likelihood of each row, 0 where nothing is scored."""
        found = iter(self.scorer.score([row for row in rows if row is not None], done))
        return [next(found).total if row is not None else 0.0 for row in rows]

    def predictions(self, folder: Path, task: str, done: Callable[[int], None] = lambda count: None) -> Predictions:
        """What the state chooses in one data set."""
        asked = items(folder, task)
        rows = [self.row(text, last) for item in asked for text, last in item.options]
        totals = iter(self.totals(rows, done))
        said: dict[str, list[dict[str, Any]]] = defaultdict(list)
        right: dict[str, list[bool]] = defaultdict(list)
        shares = []
        for item in asked:
            values = [next(totals) for _ in item.options]
            best = values.index(max(values))
            one: dict[str, Any] = {"id": f"{item.uid}_{len(said[item.uid])}", "pred": item.said[best]}
            if item.ratio is not None:
                one["prob"] = 1.0 / math.fsum(math.exp(min(700.0, value - values[0])) for value in values)
                shares.append((one["prob"], item.ratio))
            said[item.uid].append(one)
            right[item.uid].append(best == 0)
        subtasks = {uid: {"predictions": found} for uid, found in said.items()}
        score = spearman(shares) if shares else _accuracy(right, task)
        return Predictions(task, folder.name, subtasks, score)

    def reading(self, file: Path) -> dict[str, Any]:
        """Surprisals (nats) of the words that people read, and of the words before them, as the pipeline writes them."""
        try:
            with file.open(encoding="utf-8", newline="") as lines:
                table = list(csv.DictReader(lines))
            asked = [(row["item"] or "None", row["word"], row["prev_item"] or None, row["prev_word"]) for row in table]
        except (OSError, KeyError, ValueError, csv.Error) as error:
            raise DataMissing(
                "the reading times are not there",
                where=str(file),
                expected="a table with item, word, prev_item, prev_word",
                found=type(error).__name__,
                cure="put the pipeline's evaluation_data there",
            ) from None
        words = [(item, word) for item, word, _, _ in asked]
        words += [(before, word) for _, _, before, word in asked if before is not None]
        found = iter(self._surprisals(words))
        own = [next(found) for _ in asked]
        told = [
            {"id": number, "pred": value, "prev_pred": math.nan if row[2] is None else next(found)}
            for number, (value, row) in enumerate(zip(own, asked, strict=True))
        ]
        return {"reading": {"predictions": told}}

    def _surprisals(self, words: Sequence[tuple[str, str]]) -> list[float]:
        rows: list[Row] = []
        counts = []
        for text, word in words:
            targets = self.tokenizer.encode(word, add_special_tokens=False).ids
            counts.append(len(targets))
            said = text
            for place, target in enumerate(targets):
                # after the first, the pipeline takes the first token of the decoded one
                part = self.tokenizer.decode([target], skip_special_tokens=False)
                asked = target if place == 0 else (self.tokenizer.encode(part).ids or [target])[0]
                before = self.tokenizer.encode(said).ids[-self.scorer.seq_len :]
                rows.append(Row((*before, asked), 1))
                said += part
        scored = iter(self.scorer.score(rows))
        return [-math.fsum(next(scored).total for _ in range(count)) + 0.0 for count in counts]

    def surprisals(self, file: Path, step: str, words: int) -> list[dict[str, Any]]:
        """The surprisal (nats) of every word of the age of acquisition in each of its contexts."""
        try:
            table = json.loads(file.read_bytes())
            asked = [
                (word.strip(), number, one["context"])
                for word, contexts in table.items()
                if len(word) > 1
                for number, one in enumerate(contexts)
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataMissing(
                "the words of the age of acquisition are not there",
                where=str(file),
                expected="words, each with contexts",
                found=type(error).__name__,
                cure="put the pipeline's evaluation_data there",
            ) from None
        totals = self.totals([self.row(f"{context.strip()} {word}", len(word)) for word, _, context in asked])
        return [
            {
                "step": step,
                "word_count": words,
                "target_word": word,
                "context_id": number,
                "context": context,
                "surprisal": -total + 0.0,
            }
            for (word, number, context), total in zip(asked, totals, strict=True)
        ]


def _accuracy(right: Mapping[str, Sequence[bool]], task: str) -> float:
    """Percent: the mean over subtasks; of entity tracking first over the subtasks of each of its kinds."""
    shares = {uid: 100.0 * sum(found) / len(found) for uid, found in right.items()}
    groups = [shares]
    if task == "entity_tracking":
        kinds = ("regular", "ambiref", "move_contents")
        groups = [{uid: share for uid, share in shares.items() if uid.startswith(kind)} for kind in kinds]
    means = [math.fsum(group.values()) / len(group) for group in groups if group]
    return math.fsum(means) / len(means) if means else math.nan


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's rho: the correlation of ranks, equal values having the mean of theirs; nan where one side is constant."""
    one, other = (_ranks([pair[side] for pair in pairs]) for side in (0, 1))
    if len(set(one)) < 2 or len(set(other)) < 2:
        return math.nan
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    first: dict[float, int] = {}
    for place, value in enumerate(order):
        first.setdefault(value, place)
    count: dict[float, int] = defaultdict(int)
    for value in values:
        count[value] += 1
    return [first[value] + (count[value] + 1) / 2 for value in values]
