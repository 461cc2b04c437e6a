"""`marin diff` on a terminal: the cause whole, what follows from it by its beginning, numbers as people write them."""

from __future__ import annotations

import pytest

from marin.cli.looking.diff import print_comparison
from marin.verify.segments.difference import Comparison, Difference

DIGESTS = ("sha256:" + "a" * 64, "sha256:" + "b" * 64)


def found() -> Comparison:
    recipe = tuple(f"field{i:02}: 1 against 2" for i in range(15))
    code = tuple(
        f"step.{name}: {DIGESTS[0]} against {DIGESTS[1]}" for name in ("corpus", "evaluate", "export", "train")
    )
    return Comparison(
        "one", "other", (Difference("recipe", "different", recipe), Difference("code", "different", code)), ()
    )


def test_the_cause_is_shown_before_what_follows_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(found())
    shown = capsys.readouterr().out.splitlines()
    told = [line.split("  ")[-1].strip() for line in shown[1:]]
    assert told == [
        *(f"field{i:02}: 1 against 2" for i in range(12)),
        "and 3 more (--all)",
        "step.corpus: sha256:aaaaaaaaaaaa against sha256:bbbbbbbbbbbb",
        "step.evaluate: sha256:aaaaaaaaaaaa against sha256:bbbbbbbbbbbb",
        "and 2 more (--all)",
        "first difference: recipe: field00: 1 against 2, and 14 more",
    ]


def test_all_is_all(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(found(), whole=True)
    shown = capsys.readouterr().out
    assert all(line in shown for answer in found().answers for line in answer.lines)
    assert "--all" not in shown
