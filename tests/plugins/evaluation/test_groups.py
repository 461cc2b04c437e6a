"""Groups in groups: the numbers that lm-evaluation-harness itself gives for the same task files, and their verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

pytest.importorskip("lm_eval", reason="the extra `evaluation` (make evaluation)")

import datasets
from lm_eval import evaluator
from lm_eval.tasks import TaskManager

from marin.errors import UsageError
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.harness.model import Harness
from marin.plugins.evaluation.harness.recording import evaluated
from marin.plugins.evaluation.harness.tasks import read_named
from marin.plugins.evaluation.recorded.evaluated import numbers
from marin.plugins.evaluation.recorded.records import GroupMetric, Settings, TaskGroup
from tests.plugins.evaluation.conftest import PAIRS, TASKS
from tests.plugins.evaluation.test_verdict import Claimed, Court, court

pytestmark = pytest.mark.evaluation

__all__ = ["court"]

BY_SIZE = {"aggregate_metric_list": [{"metric": "acc", "aggregation": "mean", "weight_by_size": True}]}
EACH = {"aggregate_metric_list": {"metric": "acc", "weight_by_size": False, "filter_list": "none"}}
SUB = {"group": "sub", "task": ["two", "three"], **EACH}
NESTED: dict[str, list[dict[str, Any]]] = {
    "a tag": [{"group": "top", "task": ["few", "five"], **BY_SIZE}],
    "a group": [SUB, {"group": "top", "task": ["five", "sub"], **BY_SIZE}],
    "each task alike": [SUB, {"group": "top", "task": ["five", "sub"], **EACH}],
    "a group without numbers": [
        {**SUB, "aggregate_metric_list": None},
        {"group": "top", "task": ["sub", "five"], **BY_SIZE},
    ],
    "numbers below alone": [SUB, {"group": "top", "task": ["sub", "five"]}],
    "a task that is there twice": [SUB, {"group": "top", "task": ["two", "sub", "five"], **BY_SIZE}],
    "groups inline": [
        {
            "group": "top",
            "task": [{"group": "in", "task": ["two", {"group": "deep", "task": ["five"], **EACH}], **BY_SIZE}, "three"],
            **BY_SIZE,
        }
    ],
    "other keys of a task": [
        {"group": "top", "task": [{"task": "two", "doc_to_target": 1, "task_alias": "x"}, "five"], **BY_SIZE}
    ],
    "keys of a group": [
        SUB,
        {"group": "top", "doc_to_target": 1, "task": ["sub", {"task": "five", "doc_to_target": 0}], **BY_SIZE},
    ],
    "keys beside a group": [SUB, {"group": "top", "task": [{"group": "sub", "doc_to_target": 1}, "five"], **BY_SIZE}],
}


@pytest.fixture
def place(folder: Path) -> Path:
    """Three tasks of two, three and five documents, the two small ones with a tag."""
    more = [{"good": "it was", "bad": "it were"}, {"good": "no one eats", "bad": "no one eat"}]
    for name, count in (("two", 2), ("three", 3), ("five", 5)):
        config = {**TASKS["pairs"], "task": name, "dataset_path": "json", "tag": "few" if count < 5 else "many"}
        config["dataset_kwargs"] = {"data_files": {"test": f"{name}.jsonl"}}
        rows = [*more, *PAIRS][:count]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config), "utf-8")
    return folder


def write(place: Path, *groups: dict[str, Any]) -> None:
    for group in groups:
        said = {key: value for key, value in group.items() if value is not None}
        (place / f"{group['group']}.yaml").write_text(yaml.safe_dump(said), "utf-8")


@pytest.mark.parametrize("groups", NESTED.values(), ids=NESTED)
def test_the_numbers_of_groups_are_those_of_the_harness_itself(
    place: Path,
    tmp_path: Path,
    subject: Subject,
    scorer: Scorer,
    groups: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(place, *groups)
    settings = Settings(groups=read_named(["top"], place).groups)
    ours = evaluated(subject, scorer, read_named(["top"], place).tasks, settings)
    monkeypatch.chdir(place)  # the harness looks for data where it is called
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    loaded = TaskManager(include_path=place, include_defaults=False).load(["top"])
    for task in loaded["tasks"].values():
        task.set_config(key="num_fewshot", value=0)
    theirs = evaluator.evaluate(
        Harness(subject, scorer, 1234), loaded, bootstrap_iters=settings.bootstrap, log_samples=True
    )
    assert {group.name: group.tasks for group in settings.groups} == theirs["group_subtasks"]
    told = {name: found for name, found in numbers(theirs["results"]).items() if found}
    assert told == numbers(ours.results)
    assert {"five"} < set(told) and any(group["group"] in told or "top::in" in told for group in groups)
    asked = {name: [sample["arguments"] for sample in samples] for name, samples in theirs["samples"].items()}
    assert {name: len(samples) for name, samples in ours.samples.items()} == {
        name: len(one) for name, one in asked.items()
    }


def test_a_number_of_a_part_of_a_group_is_not_given(place: Path, subject: Subject, scorer: Scorer) -> None:
    write(place, {"group": "top", "task": ["two", "text"], **BY_SIZE})
    asked = read_named(["top"], place).tasks, Settings(groups=read_named(["top"], place).groups)
    with pytest.raises(UsageError, match=r"group top, acc: .*found none of text"):
        evaluated(subject, scorer, *asked)
    other = Settings(groups=[TaskGroup("top", ["two"], [GroupMetric("acc", filters=["strict"])])])
    with pytest.raises(UsageError, match="found none of two"):
        evaluated(subject, scorer, asked[0], other)


def claimed(place: Path, subject: Subject, scorer: Scorer, settings: Settings) -> Claimed:
    tasks = tuple(read_named(["top"], place).tasks)
    found = evaluated(subject, scorer, tasks, settings)
    return Claimed(tasks, settings, {name: list(one) for name, one in found.samples.items()}, numbers(found.results))


def test_a_member_less_in_the_event_than_is_stored_is_found(
    place: Path, subject: Subject, scorer: Scorer, court: Court
) -> None:
    write(place, SUB, {"group": "top", "task": ["sub", "five"], **BY_SIZE})
    settings = Settings(groups=read_named(["top"], place).groups)
    sub, top = settings.groups
    honest = claimed(place, subject, scorer, settings)
    verdict, _ = court.judge(court.recorded(honest))
    assert verdict.outcome == "PASS" and "group sub of two, three; group top of sub, five" in verdict.lines[0], verdict
    for groups, said in (
        ([sub, TaskGroup("top", ["five"], top.metrics)], "group top: expected sub, five, found five"),
        ([TaskGroup("sub", ["two"], sub.metrics), top], "group sub: expected two, three, found two"),
        ([sub, TaskGroup("top", top.tasks, [GroupMetric("acc", weight_by_size=False)])], "group top: other means"),
        ([sub], "expected the group top, found none"),
    ):
        less = Settings(groups=groups)
        agreeing = claimed(place, subject, scorer, less).results  # nothing but the stored groups speaks against them
        forged = Claimed(honest.tasks, settings, honest.samples, agreeing)
        verdict, _ = court.judge(court.recorded(forged, settings=msgspec.to_builtins(less)))
        assert (verdict.outcome, verdict.executed) == ("FAIL", False) and said in verdict.lines[0], verdict
    for groups, said in (
        ([top, sub], "group top: its member 'sub' is neither"),
        ([TaskGroup("sub", ["top"], []), top], "group sub: its member 'top' is neither"),
        ([sub, TaskGroup("two", ["sub"], top.metrics)], "the name of a group"),
        ([sub, TaskGroup("top", ["sub", "sub"], top.metrics)], "each once"),
        ([sub, TaskGroup("top\x1b", ["sub"], top.metrics)], "the name of a group"),
    ):
        for told, stored in ((Settings(groups=groups), settings), (settings, Settings(groups=groups))):
            forged = Claimed(honest.tasks, stored, honest.samples, honest.results)
            verdict, _ = court.judge(court.recorded(forged, settings=msgspec.to_builtins(told)))
            assert (verdict.outcome, verdict.executed) == ("FAIL", False) and said in verdict.lines[0], verdict


def test_groups_that_were_recorded_before_they_were_stored_are_judged_by_the_event(
    place: Path, subject: Subject, scorer: Scorer, court: Court
) -> None:
    write(place, {"group": "top", "task": ["few", "five"], **BY_SIZE})
    settings = Settings(groups=read_named(["top"], place).groups)
    honest = claimed(place, subject, scorer, settings)
    older = Claimed(honest.tasks, Settings(), honest.samples, honest.results)
    verdict, _ = court.judge(court.recorded(older, settings=msgspec.to_builtins(settings)))
    assert verdict.outcome == "PASS", verdict


def test_groups_doubled_without_end_cost_a_judge_nothing(
    place: Path, subject: Subject, scorer: Scorer, court: Court
) -> None:
    write(place, {"group": "top", "task": ["few", "five"], **BY_SIZE})
    honest = claimed(place, subject, scorer, Settings(groups=read_named(["top"], place).groups))
    groups, before = [], ["two", "three"]
    for number in range(60):
        groups += [TaskGroup(f"{side}{number}", before, []) for side in "ab"]
        before = [f"a{number}", f"b{number}"]
    verdict, _ = court.judge(
        court.recorded(Claimed(honest.tasks, Settings(groups=groups), honest.samples, honest.results))
    )
    assert (verdict.outcome, verdict.executed) == ("FAIL", False) and "more than 100000" in verdict.lines[0]
