"""A task file is data, or it is refused by name."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub import Hub, hub_on_loopback

from marin.errors import DataError, DataMissing, UsageError
from marin.plugins.evaluation.harness.tasks import read_named
from marin.plugins.evaluation.recorded.records import GroupMetric, TaskGroup
from marin.plugins.evaluation.recorded.task import EvaluationTask


def test_tasks_are_found_by_name_tag_and_group(folder: Path) -> None:
    (folder / "all.yaml").write_text("group: all\ntask: [text, pairs]\n", encoding="utf-8")
    assert [task.name for task in read_named(["small"], folder).tasks] == ["pairs", "said"]
    assert [task.name for task in read_named(["text", "small", "pairs"], folder).tasks] == ["text", "pairs", "said"]
    (text, pairs) = read_named(["all"], folder).tasks
    assert (text.name, len(text.rows("test")), pairs.rows("test")[0]["good"]) == ("text", 4, "the dog runs")
    assert "dataset_kwargs" not in pairs.config and "tag" not in pairs.config


def grouped(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(f"group: {name}\n{text}\n", encoding="utf-8")
    return folder


def test_a_group_is_all_that_it_nests(folder: Path) -> None:
    inline = (
        "{group: inner, task: [said], aggregate_metric_list: {metric: acc, filter_list: none, weight_by_size: false}}"
    )
    place = grouped(folder, sub="task: [small]", top=f"task: [sub, {inline}, {{task: text, task_alias: t}}]")
    assert [task.name for task in read_named(["top"], place).tasks] == ["pairs", "said", "text"]
    assert read_named(["top"], place).tasks[2].config["task_alias"] == "t", "what is derived is what is recorded"
    assert read_named(["top", "pairs"], place).groups == [
        TaskGroup("sub", ["pairs", "said"], []),
        TaskGroup("top::inner", ["said"], [GroupMetric("acc", weight_by_size=False, filters=["none"])]),
        TaskGroup("top", ["sub", "top::inner", "text"], []),
    ]
    place = grouped(folder, top="task: [{group: sub, num_fewshot: 3}, text]\nrepeats: 2")
    configs = {task.name: task.config for task in read_named(["top"], place).tasks}
    assert [(configs[name].get("num_fewshot"), configs[name]["repeats"]) for name in ("pairs", "text")] == [
        (3, 2),
        (None, 2),
    ]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"top": "task: [pairs, pair]"}, "group top: expected pairs, said, found pair;"),
        ({"top": "task: [sub]", "sub": "task: [top, subs]"}, "found top > sub > top"),
        ({"top": "task: [pairs, top_]"}, "group top: expected top, found top_;"),
        ({"top": "task: [{task: pair, doc_to_text: x}]"}, "group top: expected pairs, said, found pair;"),
        (
            {"top": "task: [sub, pairs]", "sub": "task: [other]", "other": "task: [sub]"},
            "found top > sub > other > sub",
        ),
        ({"top": "task: [&g {group: x, task: [*g]}]"}, "found .*::x"),
        ({"top": "task: [sub, text]", "sub": ""}, "the members of the group sub, found None"),
        ({"top": "task: []"}, "the members of the group top"),
        ({"top": "task: [7]"}, "group top: expected a name"),
        ({"top": "task: [[pairs]]"}, "group top: expected a name"),
        ({"top": "task: [{group: small, num_fewshot: 2}]"}, "group top: expected a name"),
        ({"top": "task: [{task: small, num_fewshot: 2}]"}, "group top: expected a name"),
        ({"top": "task: [{task: sub}]", "sub": "task: [pairs]"}, "group top: expected a name"),
        ({"top": "task: [{group: sub, task: [text]}]", "sub": "task: [pairs]"}, "group top: expected a name"),
        ({"top": "task: [pairs, {task: pairs, doc_to_target: 1}]"}, "found two of pairs"),
        ({"top": "task: [{group: x, task: [pairs]}, {group: x, task: [text]}]"}, "found two of top::x"),
        ({"top": "task: [{task: pairs, process_results: x}]"}, "process_results"),
        ({"top": "task: [{group: sub, group_alias: x}]", "sub": "task: [pairs]"}, "group_alias"),
        ({"top": "task: [pairs]\naggregate_metric_list: [{metric: acc, aggregation: sum}]"}, "expected means"),
        ({"top": "task: [pairs]\naggregate_metric_list: [{metric: acc, weigh_by_size: true}]"}, "expected means"),
        ({"top": "task: [pairs]\naggregate_metric_list: [acc]"}, "expected means"),
        ({"top": "task: [small]", "broken": "task: [["}, "not a task file"),
    ],
)
def test_a_member_that_can_not_be_taken_is_named(folder: Path, files: dict[str, str], said: str) -> None:
    place = grouped(folder, **files)
    with pytest.raises(UsageError, match=said):
        read_named(["top"], place)


def test_groups_that_grow_without_end_are_refused(folder: Path) -> None:
    files = {f"g{n}": f"task: [g{n - 1}, {{group: x, task: [g{n - 1}]}}]" for n in range(1, 15)}
    place = grouped(
        folder, g0="task: [pairs]", **{name: text.replace("g0,", "text, g0,") for name, text in files.items()}
    )
    assert len(read_named(["g4"], place).groups) == 9
    with pytest.raises(UsageError, match="at most 16 in each other"):
        read_named(["g14"], place)


def test_keys_for_decontamination_change_nothing(folder: Path, with_task: Callable[..., Path]) -> None:
    (plain,) = read_named(["odd"], with_task()).tasks
    found = with_task(should_decontaminate=True, doc_to_decontamination_query="{{good}}")
    assert read_named(["odd"], found).tasks == [plain]


def test_a_file_that_is_included_is_read_and_its_keys_give_way(folder: Path) -> None:
    (folder / "_shared").write_text((folder / "pairs.yaml").read_text(), encoding="utf-8")
    (folder / "own.yaml").write_text("include: _shared\ntask: own\ndoc_to_target: 1\n", encoding="utf-8")
    (own,) = read_named(["own"], folder).tasks
    assert (own.config["doc_to_target"], own.config["output_type"]) == (1, "multiple_choice")


def test_settings_of_the_reader_are_not_left_out(with_task: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"dataset_kwargs: expected data_files alone, found field, split"):
        read_named(["odd"], with_task(dataset_kwargs={"data_files": "pairs.jsonl", "field": "data", "split": "a[:9]"}))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_on_loopback() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.address)
        yield found


def parquet(rows: list[dict[str, object]]) -> bytes:
    whole = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), whole)
    return whole.getvalue()


def test_data_of_the_hub_at_a_commit_is_the_data_beside_the_task(
    folder: Path, with_task: Callable[..., Path], hub: Hub
) -> None:
    """The same task by files of JSON lines and of Parquet there: the same bytes of data, so the same identity."""
    (beside,) = read_named(["pairs"], folder).tasks
    rows = beside.rows("test")
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    files = {
        "data/a.jsonl": content,
        "data/b-0.parquet": parquet(rows[:1]),
        "data/b-1.parquet": parquet(rows[1:]),
        "c.parquet": parquet([{"day": datetime.date(2026, 1, 1)}]),
        "f.parquet": parquet([{"day": "2026-01-01"}]),
        "d.csv": b"x",
        "e.parquet": b"none",
    }
    commit = hub.commit("lab/pairs", "main", files)

    def task(pattern: str, at: str = commit) -> EvaluationTask:
        found = {"data_files": {"test": f"hf:datasets/lab/pairs@{at}/{pattern}"}}
        return read_named(["odd"], with_task(dataset_kwargs=found)).tasks[0]

    assert task("data/a.jsonl").rows("test") == task("data/b-*.parquet").rows("test") == rows
    assert task("data/a.jsonl").data == {"test": content}
    for pattern, kind, told in (
        ("none-*", DataMissing, "files none-"),
        ("d.csv", DataError, "found .csv"),
        ("c.parquet", DataError, "cannot be read"),
        ("e.parquet", DataError, "cannot be read"),
        ("f.parquet", DataError, "texts that are dates"),
    ):
        with pytest.raises(kind, match=told):
            task(pattern)
    with pytest.raises(UsageError, match="pinned by its commit"):
        task("data/a.jsonl", "main")
    with pytest.raises(UsageError, match="the Hub refuses"):
        task("data/a.jsonl", "0" * 40)


def test_an_unknown_task_is_answered_with_the_nearest_names(folder: Path) -> None:
    with pytest.raises(UsageError, match="expected pairs"):
        read_named(["pair"], folder)
    with pytest.raises(UsageError, match="no such folder"):
        read_named(["pairs"], folder / "elsewhere")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dataset_path": "nyu-mll/blimp"}, "wants the network"),
        ({"dataset_name": "main"}, "wants the network"),
        ({"process_results": "code.py"}, "process_results"),
        ({"metric_list": [{"metric": "somebody/metric"}]}, "metrics acc"),
        ({"metric_list": [{"metric": "acc", "hf_evaluate": True}]}, "metrics acc"),
        ({"metric_list": [{"metric": "acc", "aggregation": "perplexity"}]}, "each by the aggregation"),
        ({"metric_list": [{"metric": "perplexity", "aggregation": "mean"}]}, "each by the aggregation"),
        ({"metric_list": [{"metric": ["acc"]}]}, "metrics acc"),
        ({"filter_list": [{"name": "x", "filter": [{"function": "custom"}]}]}, "filters take_first"),
        ({"unsafe_code": True}, "unsafe_code"),
        ({"repeats": 10**9}, "repeats"),
        ({"test_split": "train"}, "no file for train"),
        ({"test_split": None}, "what is evaluated"),
        ({"task": "../odd"}, "letters"),
        ({"output_type": "anything"}, "loglikelihood"),
        ({"fewshot_config": {"sampler": "mine"}}, "fewshot_config"),
    ],
)
def test_what_would_be_executed_fetched_or_unbounded_is_refused(
    with_task: Callable[..., Path], changed: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        read_named([str(changed.get("task", "odd"))], with_task(**changed))


def test_code_in_a_task_file_is_neither_loaded_nor_missed(folder: Path) -> None:
    (folder / "code.py").write_text("raise SystemExit('executed')\n", encoding="utf-8")
    text = (folder / "pairs.yaml").read_text().replace("task: pairs", "task: odd")
    (folder / "odd.yaml").write_text(f"{text}process_docs: !function code.run\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"!function code\.run"):
        read_named(["odd"], folder)


@pytest.mark.parametrize(
    "text", ["[", "- a\n", "include: odd.yaml\n", "include: ../../x\n", "\x00", "a: !!python/name:os.system x"]
)
def test_a_file_that_is_none_is_named(folder: Path, text: str) -> None:
    (folder / "odd.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"odd|outside of the folder"):
        read_named(["odd"], folder)
    assert [task.name for task in read_named(["pairs"], folder).tasks] == ["pairs"], "the others are there"


def test_a_value_without_an_end_is_refused(folder: Path) -> None:
    text = (folder / "pairs.yaml").read_text().replace("task: pairs", "task: odd")
    for value in ("&a {x: *a}", "&a [*a]", "[" * 40 + "]" * 40):
        (folder / "odd.yaml").write_text(f"{text}generation_kwargs: {value}\n", encoding="utf-8")
        with pytest.raises(UsageError, match="generation_kwargs"):
            read_named(["odd"], folder)


@pytest.mark.parametrize("line", ["[1]", "{}", "a", "[" * 100_000, "\ud800"])
def test_a_document_that_is_none_is_named(folder: Path, line: str) -> None:
    (folder / "pairs.jsonl").write_bytes(
        b'{"good": "a", "bad": "b"}\n\n' + line.encode("utf-8", "surrogatepass") + b"\n"
    )
    (task,) = read_named(["pairs"], folder).tasks
    with pytest.raises(DataError, match="pairs/test, line 3"):
        task.rows("test")


def test_data_that_is_not_there_is_missing(folder: Path) -> None:
    (folder / "pairs.jsonl").unlink()
    with pytest.raises(DataMissing, match=r"pairs.jsonl"):
        read_named(["pairs"], folder)
