"""What this machine answered once is found again under all that decides it, and under nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from marin.provenance.processor import processor
from marin.work import answers
from marin.work.answers import Answer

FILE = "marin/work/answers.py"
DIGEST = "sha256:" + "5" * 64


def test_an_answer_is_that_of_one_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_CACHE", str(tmp_path))
    answers.answer(FILE).keep(DIGEST)
    assert answers.answer(FILE).digest == DIGEST
    here = processor()
    for other in (
        replace(here, features=()),
        replace(here, model="?"),
        replace(here, numbers=("GenuineIntel", "6", "94")),
    ):
        monkeypatch.setattr(answers, "processor", lambda other=other: other)
        assert answers.answer(FILE).digest == ""


@pytest.mark.parametrize("text", ["", "sha256:", DIGEST + "\n", DIGEST.upper(), "\N{SUPERSCRIPT TWO}"])
def test_what_is_no_digest_is_no_answer(tmp_path: Path, text: str) -> None:
    file = tmp_path / "answer"
    file.write_text(text, encoding="utf-8")
    assert Answer(file).digest == ""


def test_a_cache_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    lost = Answer(tmp_path / "away" / "answer")
    lost.keep(DIGEST)
    assert lost.digest == ""
