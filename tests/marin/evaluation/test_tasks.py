"""A task file is data, or it is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marin.errors import DataError, DataMissing, UsageError
from marin.evaluation.harness.tasks import read_tasks


def test_tasks_are_found_by_name_tag_and_group(folder: Path) -> None:
    (folder / "all.yaml").write_text("group: all\ntask: [text, pairs]\n", encoding="utf-8")
    assert [task.name for task in read_tasks(["small"], folder)] == ["pairs", "said"]
    assert [task.name for task in read_tasks(["text", "small", "pairs"], folder)] == ["text", "pairs", "said"]
    (text, pairs) = read_tasks(["all"], folder)
    assert (text.name, len(text.rows("test")), pairs.rows("test")[0]["good"]) == ("text", 4, "the dog runs")
    assert "dataset_kwargs" not in pairs.config and "tag" not in pairs.config


def test_a_file_that_is_included_is_read_and_its_keys_give_way(folder: Path) -> None:
    (folder / "_shared").write_text((folder / "pairs.yaml").read_text(), encoding="utf-8")
    (folder / "own.yaml").write_text("include: _shared\ntask: own\ndoc_to_target: 1\n", encoding="utf-8")
    (own,) = read_tasks(["own"], folder)
    assert (own.config["doc_to_target"], own.config["output_type"]) == (1, "multiple_choice")


def test_an_unknown_task_is_answered_with_the_nearest_names(folder: Path) -> None:
    with pytest.raises(UsageError, match="expected pairs"):
        read_tasks(["pair"], folder)
    with pytest.raises(UsageError, match="no such folder"):
        read_tasks(["pairs"], folder / "elsewhere")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dataset_path": "nyu-mll/blimp"}, "wants the network"),
        ({"dataset_name": "main"}, "wants the network"),
        ({"process_results": "code.py"}, "process_results"),
        ({"metric_list": [{"metric": "somebody/metric"}]}, "metrics acc"),
        ({"metric_list": [{"metric": "acc", "hf_evaluate": True}]}, "metrics acc"),
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
        read_tasks([str(changed.get("task", "odd"))], with_task(**changed))


def test_code_in_a_task_file_is_neither_loaded_nor_missed(folder: Path) -> None:
    (folder / "code.py").write_text("raise SystemExit('executed')\n", encoding="utf-8")
    text = (folder / "pairs.yaml").read_text().replace("task: pairs", "task: odd")
    (folder / "odd.yaml").write_text(f"{text}process_docs: !function code.run\n", encoding="utf-8")
    with pytest.raises(UsageError, match="process_docs"):
        read_tasks(["odd"], folder)


@pytest.mark.parametrize(
    "text", ["[", "- a\n", "include: odd.yaml\n", "include: ../../x\n", "\x00", "a: !!python/name:os.system x"]
)
def test_a_file_that_is_none_is_named(folder: Path, text: str) -> None:
    (folder / "odd.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"odd|outside of the folder"):
        read_tasks(["odd"], folder)
    assert [task.name for task in read_tasks(["pairs"], folder)] == ["pairs"], "the others are there"


@pytest.mark.parametrize("line", ["[1]", "{}", "a", "[" * 100_000, "\ud800"])
def test_a_document_that_is_none_is_named(folder: Path, line: str) -> None:
    (folder / "pairs.jsonl").write_bytes(
        b'{"good": "a", "bad": "b"}\n\n' + line.encode("utf-8", "surrogatepass") + b"\n"
    )
    (task,) = read_tasks(["pairs"], folder)
    with pytest.raises(DataError, match="pairs/test, line 3"):
        task.rows("test")


def test_data_that_is_not_there_is_missing(folder: Path) -> None:
    (folder / "pairs.jsonl").unlink()
    with pytest.raises(DataMissing, match=r"pairs.jsonl"):
        read_tasks(["pairs"], folder)
