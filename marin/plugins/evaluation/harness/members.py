"""Which tasks a name stands for: a task, all that have a tag, or a group with whatever its task file nests in it.

The rules are those of lm-evaluation-harness (``lm_eval/tasks/_index.py``, ``_factory.py``): of two files of one name the first
counts; a tag's tasks become members of the group that names it; a group in a group stays one; keys beside a member's name
are keys of its tasks. Where a member is nothing, or the harness makes something else of it than it says, it is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin.errors import UsageError
from marin.plugins.evaluation.recorded.records import MOST_MEMBERS, GroupMetric, TaskGroup

GROUP_KEYS = ("group", "group_alias", "task", "aggregate_metric_list", "metadata")
"""Of a group's own; every other key of it is one of all its tasks."""
METRIC_KEYS = {"metric", "aggregation", "weight_by_size", "filter_list"}
DEEPEST = 16


@dataclass
class Index:
    """Task files by what they define. ``broken``: those that can not be read, by file name."""

    folder: Path
    files: Mapping[Path, Mapping[str, Any]]
    broken: Mapping[str, UsageError]
    tasks: dict[str, Path] = field(default_factory=dict)
    groups: dict[str, Path] = field(default_factory=dict)
    tags: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path, config in self.files.items():
            task, group = config.get("task"), config.get("group")
            if isinstance(task, str) and task not in self.tasks:
                self.tasks[task] = path
                for tag in _tags(config):
                    self.tags.setdefault(str(tag), []).append(task)
            elif isinstance(group, str) and not isinstance(task, str):
                self.groups.setdefault(group, path)

    def unknown(self, name: str, where: str) -> UsageError:
        """The answer to an unknown name, with the nearest of those that are."""
        known = sorted({*self.tasks, *self.groups, *self.tags} - {name})
        near = difflib.get_close_matches(name, known, n=5, cutoff=0.4) or known[:8]
        return UsageError(
            "no such task",
            where=where,
            expected=", ".join(near) or "a folder with task files of lm-evaluation-harness",
            found=name,
            cure="tasks are read from files here: name one of these, or the folder that holds it",
        )


@dataclass
class Members:
    """What names stand for. ``tasks``: by name, the file that has each and its configuration with the keys that a group gives
    it. ``groups``: those among the names and all in them, each after its members."""

    index: Index
    tasks: dict[str, tuple[Path, Mapping[str, Any]]] = field(default_factory=dict)
    groups: dict[str, TaskGroup] = field(default_factory=dict)
    count: int = 0

    def add(self, name: str) -> None:
        """Take in what is asked for by ``name``.

        Raises:
            UsageError: there is nothing of the name, or a group among it has a member that can not be taken.
        """
        self._named(name, {}, (), f"--task-path {self.index.folder}")

    def _named(self, name: str, keys: Mapping[str, Any], within: tuple[str, ...], where: str) -> list[str]:
        """Names of the tasks or of the group that ``name`` is."""
        index = self.index
        if name in index.tasks:
            return [self._task(name, keys, where)]
        if name in index.groups:
            path = index.groups[name]
            return [self._group(name, index.files[path], keys, within, str(path))]
        if name in index.broken:
            raise index.broken[name]
        if name not in index.tags:
            raise index.unknown(name, where)
        if index.broken:  # one of them may have this tag
            raise next(iter(index.broken.values()))
        return [self._task(task, keys, where) for task in sorted(index.tags[name])]

    def _task(self, name: str, keys: Mapping[str, Any], where: str) -> str:
        path = self.index.tasks[name]
        config = {**self.index.files[path], **keys, "task": name}
        if self.tasks.setdefault(name, (path, config))[1] != config:
            raise _refused(
                where,
                "one configuration of a task in one evaluation",
                f"two of {name}",
                "evaluate them one after the other, or give one of them a task file of its own",
            )
        return name

    def _group(
        self, name: str, config: Mapping[str, Any], keys: Mapping[str, Any], within: tuple[str, ...], where: str
    ) -> str:
        listed = config.get("task")
        if name in within or len(within) >= DEEPEST:
            raise _refused(
                where,
                f"no group in itself, at most {DEEPEST} in each other",
                " > ".join((*within, name))[-200:],
                "take it out of its own members",
            )
        if not isinstance(listed, list) or not listed:
            raise _refused(where, f"task: the members of the group {name}", repr(listed)[:80], "list them")
        given = {**{key: value for key, value in config.items() if key not in GROUP_KEYS}, **keys}
        members = [one for member in listed for one in self._member(member, given, (*within, name), where)]
        group = TaskGroup(name, list(dict.fromkeys(members)), group_metrics(config, f"{where}, group {name}"))
        if self.groups.setdefault(name, group) != group:
            raise _refused(where, "one group of a name", f"two of {name}", "name one of them otherwise")
        return name

    def _member(self, member: Any, keys: Mapping[str, Any], within: tuple[str, ...], where: str) -> list[str]:
        self.count += 1
        if self.count > MOST_MEMBERS:
            raise _refused(where, f"at most {MOST_MEMBERS} members", "more", "nest fewer groups")
        index, at = self.index, f"{where}, group {within[-1]}"
        if isinstance(member, str):
            return self._named(member, keys, within, at)
        own = member if isinstance(member, dict) else {}
        group, task = own.get("group"), own.get("task")
        if isinstance(group, str) and group not in {*index.tasks, *index.groups, *index.tags}:
            return [self._group(f"{within[-1]}::{group}", own, keys, within, where)]
        if isinstance(group, str) and group in index.groups and "task" not in own:
            others = {key: value for key, value in own.items() if key != "group"}
            return self._named(group, {**keys, **others}, within, at)
        if isinstance(task, str) and "group" not in own:
            if task in index.tasks:
                return [self._task(task, {**keys, **own}, at)]
            if task not in index.groups and task not in index.tags:
                raise index.unknown(task, at)  # the whole of a task, written here, has no file and no data beside it
        raise _refused(
            at,
            "a name; {task: NAME OF A TASK, KEY: VALUE}; {group: NAME OF A GROUP, KEY: VALUE}; {group: NEW NAME, task: [...]}",
            repr(member)[:120],
            "name a group or a tag by itself: of keys beside it lm-evaluation-harness makes tasks of another name",
        )


def group_metrics(config: Mapping[str, Any], where: str) -> list[GroupMetric]:
    """What a group takes the mean of, as its task file says it.

    Raises:
        UsageError: it says something that the harness has no mean for.
    """
    said = config.get("aggregate_metric_list") or []
    listed = said if isinstance(said, list) else [said]
    if not all(isinstance(one, dict) and _mean(one) for one in listed):
        raise _refused(
            f"{where}, aggregate_metric_list",
            "means: {metric: NAME, aggregation: mean, weight_by_size: true or false, filter_list: NAME or [NAMES]}",
            repr(said)[:80],
            "write each so",
        )
    chosen = [one.get("filter_list") for one in listed]
    return [
        GroupMetric(one["metric"], one.get("weight_by_size", True), [names] if isinstance(names, str) else names)
        for one, names in zip(listed, chosen, strict=True)
    ]


def _mean(one: Mapping[str, Any]) -> bool:
    filters = one.get("filter_list")
    texts = filters if isinstance(filters, list) else [filters or ""]
    return (
        set(one) <= METRIC_KEYS
        and isinstance(one.get("metric"), str)
        and one.get("aggregation", "mean") == "mean"
        and isinstance(one.get("weight_by_size", True), bool)
        and all(isinstance(text, str) for text in texts)
    )


def _tags(config: Mapping[str, Any]) -> Sequence[Any]:
    tags = config.get("tag") or []
    return tags if isinstance(tags, list) else [tags]


def _refused(where: str, expected: str, found: str, cure: str) -> UsageError:
    return UsageError(
        "a group that can not be evaluated as it is written", where=where, expected=expected, found=found, cure=cure
    )
