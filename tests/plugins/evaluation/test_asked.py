"""Which recorded evaluations count as what a recipe asks for: by names and settings, and of the documents of the first; and
tasks are what they were when they were first asked, whatever became of their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger import Store
from marin.errors import DataError, UsageError
from marin.kinds.families.measured import EvaluatedTask, EvaluationRecorded
from marin.plugins.evaluation.heldout.asked import first_requested, is_requested, without_tasks
from marin.plugins.evaluation.heldout.companion import tasks_of
from marin.plugins.evaluation.recorded.records import Settings, TaskGroup, current_settings, task_event, write_tree
from marin.recipe.evaluation import TasksDuring
from marin.record.events import CheckpointSaved
from tests.ledger.memory import MemoryStorage

FEW = TaskGroup("few", ["b", "c"], [])
PART = TaskGroup("few::part", ["c"], [])
NESTED = TaskGroup("few", ["b", "few::part"], [])


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def recorded(*names: str, step: int = 3, data: int = 0, harness: str = "0.4.13", **settings: Any) -> EvaluationRecorded:
    task = EvaluatedTask(config=digest(1), data={"test": digest(data)}, prompts=digest(2), documents=2)
    return EvaluationRecorded(
        run="aaaa",
        step=step,
        state=digest(step),
        tokenizer=digest(4),
        identity=digest(5),
        harness=harness,
        code=digest(6),
        lock="",
        settings=msgspec.to_builtins(Settings(**settings)),
        tasks=dict.fromkeys(names, task),
        results={},
        samples=digest(7),
        requests=2,
        truncated=0,
    )


def saved(step: int) -> CheckpointSaved:
    return CheckpointSaved(run="aaaa", step=step, state=digest(step), artifact=digest(8), manifest=digest(9), size=1)


ASKED = TasksDuring(names=("a", "few"), limit=2)


@pytest.mark.parametrize("groups", [[FEW], [PART, NESTED]])
def test_names_and_settings_of_the_recipe_are_asked_for(groups: list[TaskGroup]) -> None:
    assert is_requested(ASKED, recorded("a", "b", "c", limit=2, groups=groups))


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (("a", "b", "c"), {"limit": 2}),
        (("a", "b", "c", "d"), {"limit": 2, "groups": [FEW]}),
        (("b", "c"), {"limit": 2, "groups": [FEW]}),
        (("a", "b", "c"), {"limit": 2, "groups": [FEW, TaskGroup("more", ["a", "b"], [])]}),
        (("a", "b", "c"), {"groups": [FEW]}),
        (("a", "b", "c"), {"limit": 1, "groups": [FEW]}),
        (("a", "b", "c"), {"limit": 2, "num_fewshot": 0, "groups": [FEW]}),
        (("a", "b", "c"), {"limit": 2, "seed": 5, "groups": [FEW]}),
        (("a", "b", "c"), {"limit": 2, "chat": True, "groups": [FEW]}),
        (("a", "b", "c"), {"limit": 2, "harness": "babylm-eval 2026", "groups": [FEW]}),
        ((), {"limit": 2}),
    ],
)
def test_others_are_not(names: tuple[str, ...], settings: Mapping[str, Any]) -> None:
    assert not is_requested(ASKED, recorded(*names, **settings))


def test_settings_that_are_none_are_not_asked_for() -> None:
    body = recorded("a", limit=2)
    assert is_requested(TasksDuring(names=("a",), limit=2), body)
    assert not is_requested(
        TasksDuring(names=("a",), limit=2), msgspec.structs.replace(body, settings={"limit": "two"})
    )


def test_a_state_has_its_tasks_where_they_are_of_the_documents_of_the_first() -> None:
    asked, due = TasksDuring(names=("a",)), [saved(3), saved(6), saved(9)]
    by_hand, first, edited = recorded("a", step=4, data=7), recorded("a"), recorded("a", step=6, data=7)
    same = recorded("a", step=9)
    assert first_requested(asked, due, [by_hand, recorded("z"), first, edited, same]) is first
    assert without_tasks(asked, due, [by_hand, first, edited, same]) == [saved(6)]
    assert without_tasks(asked, due, [by_hand, recorded("z", step=6)]) == due
    assert without_tasks(asked, due, []) == due


@pytest.mark.evaluation
def test_a_task_is_what_it_was_when_it_was_first_asked(folder: Path, tmp_path: Path) -> None:
    asked, store = TasksDuring(names=("text", "small"), path=str(folder), limit=2), Store(MemoryStorage())
    tasks, settings = tasks_of(asked, store, None)
    assert settings.groups == [TaskGroup("small", ["pairs", "said"], [])], "a tag is a group of the record"
    assert settings == current_settings(limit=2, groups=settings.groups)
    body = recorded(limit=2, groups=settings.groups, rules=settings.rules, bootstrap=settings.bootstrap)
    older = recorded(limit=2, groups=settings.groups)
    for rules in (2, 3, 4):
        of_rules = recorded(limit=2, groups=settings.groups, rules=rules, bootstrap=settings.bootstrap)
        assert is_requested(
            asked, msgspec.structs.replace(of_rules, tasks={task.name: task_event(task, []) for task in tasks})
        )
        few = msgspec.structs.replace(of_rules, settings=of_rules.settings | {"bootstrap": 1000})
        assert not is_requested(
            asked, msgspec.structs.replace(few, tasks={task.name: task_event(task, []) for task in tasks})
        )
    body = msgspec.structs.replace(body, tasks={task.name: task_event(task, []) for task in tasks})
    assert is_requested(asked, body) and is_requested(asked, msgspec.structs.replace(older, tasks=body.tasks))
    write_tree(tmp_path / "tree", tasks, {task.name: [] for task in tasks}, {}, settings.groups)
    stored = msgspec.structs.replace(body, samples=store.put_tree(tmp_path / "tree").digest)
    assert tasks_of(asked, store, body) == (tasks, settings), "no tree is stored, and the files are what they were"
    (folder / "questions.jsonl").write_text('{"question": "new", "answer": "one"}\n', encoding="utf-8")
    (folder / "pairs.yaml").unlink()
    found, again = tasks_of(asked, store, stored)
    assert again == settings and {task.name: task.data for task in found} == {task.name: task.data for task in tasks}
    with pytest.raises(DataError, match="pairs, said, text") as refused:
        tasks_of(asked, store, body)
    assert "before train step 3" in str(refused.value)


@pytest.mark.evaluation
def test_a_tag_that_can_be_no_name_is_refused(folder: Path) -> None:
    path = folder / "pairs.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("tag: small", "tag: a b"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"evaluation\.tasks\.names"):
        tasks_of(TasksDuring(names=("a b",), path=str(folder)), Store(MemoryStorage()), None)
