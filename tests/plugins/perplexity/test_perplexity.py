"""A text of one's own: its numbers are those of its tokens one by one, and what is changed in the record is found."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from marin.errors import DataError, DataMissing, UsageError
from marin.evaluation.scoring import Row, Scorer
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.judge import asker_of
from marin.plugins.evaluation.recorded.comparison import first_difference
from marin.plugins.evaluation.recorded.evaluated import Evaluated, numbers
from marin.plugins.evaluation.recorded.records import Settings, requests_of
from marin.plugins.perplexity.scoring import evaluated
from marin.plugins.perplexity.task import checked, read

TEXT = "A text with ä and more signs than fit the context. " * 6


@pytest.fixture
def found(tmp_path: Path, subject: Subject, scorer: Scorer) -> Evaluated:
    (tmp_path / "mine.txt").write_text(TEXT, encoding="utf-8")
    return evaluated(subject, scorer, read(tmp_path / "mine.txt"), Settings())


def test_the_numbers_are_those_of_its_tokens_one_by_one(found: Evaluated, subject: Subject, scorer: Scorer) -> None:
    tokens = [scorer.recipe.tokens.begin, *subject.tokenizer.encode(TEXT, add_special_tokens=False).ids]
    assert len(tokens) > 2 * scorer.seq_len, "there are several windows"
    length = scorer.seq_len
    each = []
    for place in range(1, len(tokens)):
        window = (place - 1) // length * length  # where the window begins that predicts it
        first = max(0, min(window, window if window == 0 else min(window + length, len(tokens) - 1) - length))
        each.append(Row(tuple(tokens[first : place + 1]), 1))
    values = np.asarray([one.logprobs[0] for one in scorer.score(each)], np.float64)
    mine = found.results["mine"]
    assert mine["loss,none"] == pytest.approx(-values.mean(), abs=1e-5)
    assert mine["perplexity,none"] == pytest.approx(math.exp(-values.mean()), rel=1e-5)
    assert mine["bits_per_byte,none"] == pytest.approx(-values.sum() / len(TEXT.encode()) / math.log(2), rel=1e-5)


def test_what_is_recorded_is_asked_again_and_a_change_is_located(
    found: Evaluated, subject: Subject, scorer: Scorer
) -> None:
    (sample,) = found.samples["mine"]
    asked, row = sample.requests[1], sample.requests[1].rows[0]
    other = msgspec.structs.replace(row, logprobs=["-0x1.0p+0", *row.logprobs[1:]])
    requests = [sample.requests[0], msgspec.structs.replace(asked, rows=[other]), *sample.requests[2:]]
    forged = {"mine": [msgspec.structs.replace(sample, requests=requests)]}
    again = {("mine", 0, 1, 0)}
    new = evaluated(subject, scorer, found.tasks, Settings(), recorded=requests_of(forged), again=again)
    difference = first_difference(forged, new.samples, numbers(found.results), numbers(new.results))
    assert difference is not None and "request 1" in difference
    body = found.body(subject, f"sha256:{'0' * 64}")
    assert body.harness == "text-perplexity 1" and asker_of(body, "here").load() is evaluated


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    with pytest.raises(DataMissing):
        read(file)
    for data in (b"", b"\xff"):
        file.write_bytes(data)
        with pytest.raises(DataError):
            read(file)
    file.write_text("one", encoding="utf-8-sig")
    assert [task.rows("text") for task in read(file)] == [[{"text": "one"}]], "a byte order mark is no text"
    with pytest.raises(UsageError):
        read(file, ["one"])
    (task,) = read(file)
    for line in ({"text": 1}, {"text": "a", "more": 1}, {"text": "\ud800"}):
        with pytest.raises(DataError):
            checked(replace(task, data={"text": json.dumps(line).encode()}), "here")
