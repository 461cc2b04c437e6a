"""`marin diff` on a terminal: the cause whole, what follows from it by its beginning, numbers as people write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from marin.cli.looking.diff import outcomes, print_comparison, print_outcomes
from marin.history.run import Run
from marin.verify.segments.difference import Comparison, Difference
from tests.marin.verify.test_difference import view

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


def measured(recipe: dict[str, Any] | None = None, **numbers: float) -> Run:
    """A run whose held-out text has 1,200 bytes in 300 tokens, two sequences of 128 and a rest, scored at 2 nats a token."""
    run = view()
    told = {
        "corpus": {"validation_bytes": 1200.0},
        "tokens": {"validation_tokens": 300.0},
        "evaluate": {"loss": 2.0, "perplexity": 7.389, "tokens": 254.0} | numbers,
    }
    made = run.steps["tokens"]
    body = msgspec.structs.replace(run.started.body, recipe={"model": {"seq_len": 128}} | (recipe or {}))
    return replace(
        run,
        started=replace(run.started, body=body),
        steps={name: replace(made, step=name, metrics=metrics) for name, metrics in told.items()},
    )


def test_what_came_out_stands_first_with_bits_per_byte(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcomes([measured(), measured(loss=3.0)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines[1:4]] == ["evaluate.loss", "evaluate.perplexity", "bits_per_byte"]
    # 2 nats are 2.88539 bits, of a token; a byte is a quarter of one.
    assert lines[3][1:] == ["0.721348", "1.08202", "+0.3607"]


@pytest.mark.parametrize(
    ("recipe", "numbers"),
    [
        ({}, {"tokens": 127.0}),
        ({}, {"tokens": 90.0}),
        ({"tokens": {"artifact": DIGESTS[0]}}, {}),
        ({"model": None}, {}),
    ],
    ids=["a part of the text was scored", "tokens of one's own are not learned", "another text", "no length"],
)
def test_bits_that_do_not_follow_from_the_record_are_not_told(
    recipe: dict[str, Any], numbers: dict[str, float]
) -> None:
    run = measured(recipe, **numbers)
    assert run.bits_per_byte is None and "bits_per_byte" not in outcomes([run, run])


def test_a_reason_stands_beside_numbers_that_both_have(capsys: pytest.CaptureFixture[str]) -> None:
    """And the last loss of a loop of one's own is a train loss, as everywhere."""
    run = measured()
    loop = replace(run, steps={"loop": replace(next(iter(run.steps.values())), metrics={"loss_last": 0.5})})
    told = outcomes([run, loop])
    assert told["train.loss_last"][1] == 0.5 and told["evaluate.loss"][1] is None
    print_outcomes([run, loop])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("evaluate.loss")]
    assert "other" not in row


def test_recorded_bits_are_taken_as_they_are() -> None:
    assert outcomes([measured(bits_per_byte=0.9), measured(tokens=127.0)])["bits_per_byte"] == [0.9, None]
