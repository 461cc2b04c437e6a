"""Shipped rewards and prompts: what each gives for a text, and that every shipped answer can be had."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path

import pytest

from marin.errors import DataError
from marin.plugins.rl.prompts import Question, encode_questions, questions, read_file, read_stored
from marin.plugins.rl.rewards import REWARDS, exact_match, numeric_answer, regular_expression


@pytest.mark.parametrize(
    ("completion", "answer", "match", "number"),
    [
        ("19", "19", 1.0, 1.0),
        (" 19\n", "19", 1.0, 1.0),
        ("it is 1,219.0.", "1219", 0.0, 1.0),
        ("19, or 20", "19", 0.0, 0.0),
        ("20, no: -19", "-19", 0.0, 1.0),
        ("", "19", 0.0, 0.0),
        ("nineteen", "19", 0.0, 0.0),
        ("1" * 5000, "1", 0.0, 0.0),
    ],
)
def test_a_number_is_compared_as_a_number_and_a_text_as_a_text(
    completion: str, answer: str, match: float, number: float
) -> None:
    assert (exact_match(completion, answer), numeric_answer(completion, answer)) == (match, number)


def test_every_shipped_question_has_rewards_that_are_numbers() -> None:
    for name in ("doubled", "sums", "digits"):
        found = questions(name)
        assert len({one.prompt for one in found}) == len(found) > 1
        for question in found:
            assert all(math.isfinite(reward(question.answer, question.answer)) for reward in REWARDS.values())
    assert regular_expression("a letter", questions("doubled")[0].answer) == 1.0
    assert regular_expression("a word", questions("doubled")[0].answer) == 0.0
    for name in ("sums", "digits"):
        assert {numeric_answer(f"{one.prompt}{one.answer}", one.answer) for one in questions(name)} == {1.0}


def written_file(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_prompts_of_a_file_are_its_lines_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chat = [{"role": "user", "content": "two and two?"}]
    path = written_file(
        tmp_path,
        {"prompt": "12+7=", "answer": 19, "level": "easy"},
        "",
        {"answer": "four", "prompt": chat},
        {"prompt": "2/4=", "answer": 0.5},
    )
    found = read_file(path, "exact_match")
    assert found == (Question("12+7=", "19"), Question(chat, "four"), Question("2/4=", "0.5"))
    assert "left out, no reward reads them: level" in caplog.text
    assert read_stored(encode_questions(found), "exact_match", where="stored") == found


@pytest.mark.parametrize(
    ("line", "reward", "said"),
    [
        ("{", "exact_match", "JSON"),
        ("[1]", "exact_match", "an object"),
        ('{"prompt": "", "answer": "1"}', "exact_match", "'prompt', a text"),
        ('{"question": "1+1=", "answer": "2"}', "exact_match", "'prompt', a text"),
        ('{"prompt": "1+1="}', "exact_match", "'answer', a text or a number"),
        ('{"prompt": "1+1=", "answer": true}', "exact_match", "'answer', a text or a number"),
        ('{"prompt": "1+1=", "answer": "two"}', "numeric_answer", "an answer without a number"),
        ('{"prompt": "1+1=", "answer": "(2"}', "regular_expression", "no regular expression"),
        ('{"prompt": "1+1=", "answer": "(?=2)"}', "regular_expression", "no regular expression"),
        ('{"prompt": [{"content": "a"}], "answer": "b"}', "exact_match", "a role"),
        ('{"prompt": "\\ud800", "answer": "b"}', "exact_match", "JSON"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str, reward: str, said: str) -> None:
    path = written_file(tmp_path, {"prompt": "1+0=", "answer": 1}, line)
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        read_file(path, reward)
    assert caught.value.where == f"{path}, line 2" or caught.value.where.startswith(f"{path}, line 2, message")


def test_what_no_reward_reads_stops_nothing_and_numbers_have_no_exponent(tmp_path: Path) -> None:
    """``str(1e22)`` is "1e+22", whose last number is 22; a byte order mark is Notepad's."""
    path = tmp_path / "prompts.jsonl"
    beside = b'{"prompt": "a", "answer": 1e22, "id": 9007199254740993, "score": NaN}'
    path.write_bytes(b"\xef\xbb\xbf" + beside + b'\n{"prompt": "b", "answer": 0.00001}\n')
    found = read_file(path, "numeric_answer")
    assert [one.answer for one in found] == ["10000000000000000000000", "0.00001"]
    assert [REWARDS["numeric_answer"]("it is 0.00001", one.answer) for one in found] == [0.0, 1.0]
    path.write_bytes(b'{"prompt": "a", "answer": NaN}')
    with pytest.raises(DataError, match="answer"):
        read_file(path, "exact_match")


def test_a_file_that_is_cut_or_empty_or_not_there_is_refused(tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(b'{"prompt": "1+1=", "answer": "2"}\n' * 50)[:-9])
    for path in (cut, written_file(tmp_path), tmp_path / "absent.jsonl"):
        with pytest.raises(DataError, match="a file of prompts that cannot be used"):
            read_file(path, "exact_match")
