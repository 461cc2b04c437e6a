"""A set of documents of which it is known what each is: copies, near copies by edits, templates, boilerplate, quotations,
embedded and rephrased questions. What tests hold decisions against is computed here by brute force, by no code of the product."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

RATES = (0.005, 0.01, 0.015, 0.02, 0.05, 0.2)


@dataclass
class Labelled:
    """``texts`` in the order of the file, with what each was made as; ``records`` of the evaluation."""

    texts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    records: list[dict[str, str]] = field(default_factory=list)

    def write(self, folder: Path, *, files: int = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(files):
            lines = [json.dumps({"text": text}) + "\n" for text in self.texts[number::files]]
            (folder / f"part-{number}.jsonl").write_text("".join(lines))
        (folder.parent / "test.jsonl").write_text("".join(json.dumps(record) + "\n" for record in self.records))


def labelled(seed: int, size: int = 60) -> Labelled:
    """About ``7 * size`` documents."""
    draw = random.Random(seed)
    lexicon = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(4000)]

    def words(low: int, high: int) -> list[str]:
        return draw.choices(lexicon, k=draw.randint(low, high))

    made = Labelled()

    def add(listed: list[str], label: str) -> None:
        made.texts.append(" ".join(listed).capitalize() + ".")
        made.labels.append(label)

    originals = [words(40, 250) for _ in range(size * 2)]
    for original in originals:
        add(original, "original")
    for original in originals[: size // 2]:
        add(original, "copy")
    for number, original in enumerate(originals[size // 2 :]):
        rate = RATES[number % len(RATES)]
        edited = [draw.choice(lexicon) if draw.random() < rate else word for word in original]
        add(edited, f"edited {rate}")
        if number % 3 == 0:  # equal to one that may itself be a near copy
            add(edited, "copy")
    footer = words(25, 25)  # what pages of one site end with, more of a page than of others
    for _ in range(size):
        add(words(12, 60) + footer, "boilerplate")
    form = words(30, 30)
    for _ in range(size):
        add(form + words(60, 120), "template")
    for original in originals[:size]:
        add(words(60, 120) + original[5:25] + words(60, 120), "quotation")
    for _ in range(size):
        question, answer = words(14, 30), words(1, 4)
        made.records.append({"question": " ".join(question).capitalize() + "?", "answer": " ".join(answer)})
        add(words(20, 90) + question + words(20, 90), "question")
        add(words(20, 90) + draw.sample(question, len(question)) + words(20, 90), "paraphrase")
    for number in range(size):
        question, answer = words(4, 7), words(1, 2)
        made.records.append({"question": " ".join(question).capitalize() + "?", "answer": " ".join(answer)})
        if number % 2:
            add(words(20, 90) + question + ["the"] + answer + words(20, 90), "short question and answer")
        else:
            add(words(20, 90) + question + words(40, 90), "short question")
    order = list(range(len(made.texts)))
    draw.shuffle(order)
    made.texts, made.labels = [made.texts[i] for i in order], [made.labels[i] for i in order]
    return made


CONTAMINATED = ("question", "short question and answer")


def shingles(text: str, length: int = 5) -> set[str]:
    listed = text.lower().replace(".", "").replace("?", "").split()
    return {" ".join(listed[i : i + length]) for i in range(max(1, len(listed) - length + 1))}


def similarity(first: str, second: str) -> Fraction:
    mine, theirs = shingles(first), shingles(second)
    return Fraction(len(mine & theirs), len(mine | theirs))
