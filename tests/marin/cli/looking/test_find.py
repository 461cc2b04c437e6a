"""`marin show` and `marin lineage` by a number, a digest and the name of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger import Draft
from marin.history.runs import stream_of
from marin.record import events
from marin.record.root import open_root

Marin = Any


@pytest.mark.parametrize(
    ("number", "exact"),
    [("eval/perplexity=54.6", True), ("evaluate.perplexity=54.598", True), ("perplexity=50", False)],
)
def test_the_run_behind_a_number(marin: Marin, run: str, number: str, exact: bool) -> None:
    (found,) = marin("show", "metric", number, "--json").json
    assert found["metric"] == "evaluate.perplexity" and found["exact"] is exact
    assert [item["run"] for item in found["runs"]] == [run] and found["runs"][0]["value"] == 54.598
    text = marin("show", "metric", number).out
    assert run in text and ("within" in text) and ("the nearest" in text) is not exact


def test_the_newest_of_a_metric_and_mistakes(marin: Marin, run: str) -> None:
    assert run in marin("show", "metric", "loss_last").out
    for arguments, message in (
        (("metric",), "metric NAME=NUMBER"),
        (("latest", "x=1"), "what is to be shown"),
        (("metric", "perplexti=3"), "did you mean"),
        (("metric", "perplexity=x"), "not a number"),
    ):
        ended = marin("show", *arguments)
        assert ended.status == 2 and message in ended.err


def test_a_step_of_a_run(marin: Marin, run: str) -> None:
    (found,) = marin("show", "latest/train", "--json").json
    assert found["step"] == "train" and found["run"] == run
    assert "identity" in marin("show", f"{run[:3]}/export").out
    ended = marin("show", "latest/tran")
    assert ended.status == 2 and "expected train, evaluate, export" in ended.err


def test_who_made_an_artifact(marin: Marin, run: str) -> None:
    artifact = marin("ls", "artifacts", "--json").json[0]["artifact"]
    made = marin("show", artifact, "--json").json["made_by"]
    assert {item["run"] for item in made} == {run}
    assert run in marin("show", artifact).out
    by_identity = marin("show", "sha256:" + "1" * 64, "--json").json
    assert [item["step"] for item in by_identity] == ["train", "evaluate", "export"]
    assert marin("show", "sha256:" + "9" * 64).status == 3


def digest(character: str) -> str:
    return "sha256:" + character * 64


def completed(run: str, step: str, character: str, inputs: dict[str, str]) -> Draft:
    return Draft(
        events.STEP_COMPLETED,
        stream_of(run),
        events.write(
            events.StepCompleted(
                run=run,
                step=step,
                identity=digest(character),
                inputs=inputs,
                metrics={},
                seconds=1.0,
                output=events.Output(kind=step, digest=digest(character), size=5, artifact=digest(character)),
            )
        ),
    )


def started(run: str, continues: events.Continues | None = None) -> Draft:
    return Draft(
        events.RUN_STARTED,
        stream_of(run),
        events.write(
            events.RunStarted(
                run=run,
                pipeline="default",
                plan=digest("a"),
                recipe_digest=digest("b"),
                recipe={},
                code={},
                environment={},
                continues=continues,
            )
        ),
    )


@pytest.fixture
def two_runs(root: Path) -> None:
    """One run, and a phase that continues it and took its corpus over."""
    link = events.Continues(run="one1", step=4, state=digest("3"), checkpoint=digest("3"))
    open_root().append(
        [
            started("one1"),
            completed("one1", "corpus", "1", {}),
            completed("one1", "tokens", "2", {"corpus": digest("1")}),
            completed("one1", "train", "3", {"tokens": digest("2")}),
            started("two2", link),
            completed("two2", "train", "4", {"tokens": digest("2"), "manual": digest("f")}),
            completed("two2", "evaluate", "5", {"train": digest("4"), "tokens": digest("2")}),
        ]
    )


def test_the_tree_follows_content_across_runs_and_phases(marin: Marin, two_runs: None) -> None:
    lines = marin("lineage", "two2").out.splitlines()
    assert lines[0].startswith("evaluate") and digest("5") in lines[0]
    assert any("state: train" in line and "run one1" in line for line in lines)
    assert any("corpus" in line and digest("1") in line and "run one1" in line for line in lines)
    assert any(f"manual: {digest('f')} (not made in this ledger)" in line for line in lines)
    assert sum("tokens (above)" in line for line in lines) == 2
    found = {item["step"] + item["run"]: item for item in marin("lineage", digest("5"), "--json").json}
    assert set(found) == {"evaluatetwo2", "traintwo2", "tokensone1", "trainone1", "corpusone1"}
    assert found["traintwo2"]["inputs"] == {"tokens": digest("2"), "manual": digest("f"), "state": digest("3")}


def test_what_a_run_took_is_said_to_be_of_the_run_that_made_it(marin: Marin, two_runs: None) -> None:
    output = events.Output(kind="corpus", digest=digest("1"), size=5, artifact=digest("1"))
    taken = events.StepCached(
        run="three3", step="corpus", identity=digest("1"), inputs={}, completed_at=1, output=output
    )
    open_root().append([started("three3"), Draft(events.STEP_CACHED, stream_of("three3"), events.write(taken))])
    (line,) = marin("lineage", "three3").out.splitlines()
    assert line.endswith("run one1, event 1")
    assert [item["run"] for item in marin("lineage", "three3", "--json").json] == ["one1"]


def test_lists_have_the_newest_and_say_so(marin: Marin, two_runs: None) -> None:
    listed = marin("ls", "artifacts", "-n", "2")
    assert len(listed.out.splitlines()) == 3 and digest("5") in listed.out and "the newest 2" in listed.err
    assert len(marin("ls", "artifacts", "-n", "0").out.splitlines()) == 6
    only = marin("ls", "-n", "1")
    assert "two2" in only.out and "one1" not in only.out and "the newest 1 of 2" in only.err
    assert len(marin("ls", "-n", "1", "--json").json) == 2


def test_the_lineage_of_what_is_not_there(marin: Marin, two_runs: None) -> None:
    assert marin("lineage", digest("e")).status == 2
    assert marin("lineage", "two2/corpus").status == 2
    assert marin("lineage", "three").status == 2
