"""Tasks as values: what lm-evaluation-harness reads from a task file, and the bytes of its data.

A task file of the harness may name Python code, a data set of a hub or a metric that is fetched. Here a task is data:
templates, names of things the harness has (its own functions among them, :mod:`marin.plugins.evaluation.harness.functions`),
and lines of JSON that lie beside it. So it can be recorded, and evaluated again by a user who believes nothing of it:
:func:`checked` passes nothing of its own that would be executed, and nothing that is fetched or unbounded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from marin.data.network.hub import PREFIX
from marin.errors import DataMissing, UsageError
from marin.plugins.evaluation.harness import functions
from marin.plugins.evaluation.harness.fetched import lines_of
from marin.plugins.evaluation.harness.members import Index, Members
from marin.plugins.evaluation.recorded.records import TaskGroup, wrong_groups
from marin.plugins.evaluation.recorded.task import NAME, EvaluationTask

SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")
TEXTS = ("description", "target_delimiter", "fewshot_delimiter", "gen_prefix", "task_alias", *SPLITS)
TEMPLATES = ("doc_to_text", "doc_to_target", "doc_to_choice")
CODE = ("process_docs", "process_results", *TEMPLATES)
"""What may be a function of the harness."""
EXAMPLES = ("process_docs", "samples", *TEMPLATES)
"""The same of ``fewshot_config``."""
STRUCTURE = ("tag", "group", "task_list", "include", "dataset_path", "dataset_name", "dataset_kwargs")
WITHOUT_EFFECT = ("should_decontaminate", "doc_to_decontamination_query")
"""Keys for the harness's search for a task's documents in a training set, which is never asked for here: no prompt and no
number depends on them."""
OUTPUTS = ("loglikelihood", "loglikelihood_rolling", "generate_until", "multiple_choice")
METRICS: Mapping[str, str] = {
    **dict.fromkeys(("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match"), "mean"),
    "perplexity": "perplexity",
    **dict.fromkeys(("word_perplexity", "byte_perplexity"), "weighted_perplexity"),
    "bits_per_byte": "bits_per_byte",
    **{name: name for name in ("f1", "bleu", "chrf", "ter")},
    "mcc": "matthews_corrcoef",
}
"""Of the harness's own those whose values no library rounds by the processor (Python's floats; sums and quotients of counts),
each with the aggregation that it has in the harness: an accuracy by another one would have the name of an accuracy, and be
none."""
FILTERS = (
    "take_first",
    "take_first_k",
    "majority_vote",
    "regex",
    "regex_pos",
    "multi_choice_regex",
    "remove_whitespace",
    "lowercase",
    "uppercase",
    "map",
)
MOST_REPEATS = 64


@dataclass(frozen=True)
class NamedTasks:
    """What names stand for. ``groups``: those among the names and all in them, each after its members. ``tags``: those among the
    names, each with its tasks."""

    tasks: list[EvaluationTask]
    groups: list[TaskGroup]
    tags: dict[str, list[str]]


def read_named(names: Sequence[str], folder: Path) -> NamedTasks:
    """The tasks of these names (of a task, a tag or a group), from the task files below ``folder``.

    Raises:
        UsageError: there is nothing of a name, a task that is not data, or a group that can not be evaluated as it is written.
        DataMissing: a file of a task's data is not there.
        DataError: its data is not JSON.
    """
    members = Members(Index(folder, *task_files(folder)))
    for name in names:
        members.add(name)
    groups, index = list(members.groups.values()), members.index
    if wrong := wrong_groups(groups, members.tasks):
        raise UsageError("no groups of tasks", where=f"--task-path {folder}", expected="names and members", found=wrong)
    tags = [name for name in dict.fromkeys(names) if name not in index.tasks and name not in index.groups]
    return NamedTasks(
        [_task(name, config, path, folder) for name, (path, config) in members.tasks.items()],
        groups,
        {tag: sorted(set(index.tags[tag])) for tag in tags},
    )


def task_files(folder: Path) -> tuple[dict[Path, dict[str, Any]], dict[str, UsageError]]:
    """The task files below ``folder`` that can be read, with what they include, and by file name those that can not.

    Raises:
        UsageError: it is not a folder.
    """
    if not folder.is_dir():
        raise UsageError("no such folder", where="--task-path", expected="a folder with task files", found=str(folder))
    read: dict[Path, dict[str, Any]] = {}
    broken: dict[str, UsageError] = {}
    for path in sorted(folder.rglob("*.yaml"), key=Path.as_posix):
        if ".ipynb_checkpoints" in path.parts:  # copies
            continue
        try:
            read[path] = _merged(path, folder)
        except UsageError as error:
            broken[path.stem] = error
    return read, broken


def _merged(path: Path, folder: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A file with what it includes; its own keys win."""
    try:
        if path in seen or not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError("a file that includes itself, or one outside of the folder")
        with path.open("rb") as file:
            found = yaml.load(file, Loader=functions.Marks)  # noqa: S506  a SafeLoader
        if not isinstance(found, dict):
            raise ValueError("no mapping")
    except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        raise UsageError(
            "not a task file of lm-evaluation-harness",
            where=str(path),
            expected="YAML with a mapping",
            found=" ".join(str(error).split())[:200],
        ) from None
    merged: dict[str, Any] = {}
    includes = found.pop("include", [])
    for name in includes if isinstance(includes, list) else [includes]:
        merged |= _merged(path.parent / str(name), folder, (*seen, path))
    merged.pop("task_list", None)
    return merged | found


def _task(name: str, config: Mapping[str, Any], path: Path, folder: Path) -> EvaluationTask:
    if config.get("dataset_path") not in ("json", None) or config.get("dataset_name") is not None:
        raise UsageError(
            "a task that wants the network",
            where=str(path),
            expected="dataset_path: json and dataset_kwargs: {data_files: ...}, files of JSON lines",
            found=f"dataset_path: {config.get('dataset_path')}",
            cure="name its data there: a file beside the task file, or hf:datasets/OWNER/NAME@COMMIT/PATH; what is evaluated "
            "has a digest here",
        )
    kwargs = config.get("dataset_kwargs")
    named = kwargs.get("data_files") if isinstance(kwargs, dict) else None
    if isinstance(kwargs, dict) and (others := sorted(map(str, kwargs.keys() - {"data_files", "trust_remote_code"}))):
        raise _refused(str(path), "dataset_kwargs", "data_files alone", ", ".join(others))
    splits = named if isinstance(named, dict) else {"train": named}
    plain = task_settings(config)
    used = [str(split) for split in splits if split in used_splits(plain)]
    data = {split: b"".join(_lines(splits[split], path, folder)) for split in used}
    return checked(EvaluationTask(name, plain, data), str(path))


def task_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a task file asks for, without where its data lies and what it is called with others.

    Raises:
        UsageError: it names code that is not the installed harness's, or does more than compute.
    """
    return {
        key: functions.resolved(value)
        for key, value in config.items()
        if key not in (*STRUCTURE, *WITHOUT_EFFECT) and value is not None
    }


def _lines(named: Any, path: Path, folder: Path) -> Iterator[bytes]:
    for item in named if isinstance(named, list) else [named]:
        if str(item).startswith(PREFIX):
            yield from lines_of(str(item), str(path))
            continue
        places = [base / str(item) for base in (path.parent, folder)]
        place = next((place for place in places if place.is_file()), None)
        if place is None:
            raise DataMissing(
                "the data of a task is not there",
                where=str(path),
                expected="a file of JSON lines beside it, or below --task-path",
                found=str(item),
                cure="correct dataset_kwargs.data_files",
            )
        content = place.read_bytes()
        yield content if content.endswith(b"\n") or not content else content + b"\n"


# -- what a task may say


def checked(task: EvaluationTask, where: str) -> EvaluationTask:
    """``task``, which asks for nothing but templates, the harness's own metrics and filters, and its data.

    Raises:
        UsageError: it asks for something else.
    """
    if not NAME.fullmatch(task.name):
        raise _refused(where, "task", "letters, digits, _ . -", task.name)
    used = used_splits(task.config)
    if missing := used - set(task.data):
        raise _refused(where, "data_files", ", ".join(sorted(used)), f"no file for {', '.join(sorted(missing))}")
    if not used & {task.config.get("test_split"), task.config.get("validation_split")}:
        raise _refused(where, "test_split", "test_split or validation_split: what is evaluated", "none of them")
    if any(not NAME.fullmatch(split) for split in task.data):
        raise _refused(where, "data_files", "splits by letters, digits, _ . -", ", ".join(task.data))
    for key, value in task.config.items():
        if value is None:
            continue
        check = _CHECKS.get(key)
        if check is None:
            raise _refused(
                where, key, "a key that is data: templates, metrics and filters of the harness", repr(value)[:80]
            )
        if not check(value):
            raise _refused(where, key, _EXPECTED.get(key, "plain values; no Python code"), repr(value)[:80])
    for key, value in functions_of(task.config):
        functions.check(value, f"{where}, {key}")
    own = functions.is_function(task.config.get("process_results"))
    for one in task.config.get("metric_list") or ():
        if not own and one["metric"] not in METRICS:
            raise _refused(where, "metric_list", _EXPECTED["metric_list"], repr(one)[:80])
    return task


def functions_of(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Where a configuration names functions of the harness."""
    fewshot = config.get("fewshot_config")
    metrics = config.get("metric_list")
    named = [(key, config.get(key)) for key in CODE]
    named += [(f"fewshot_config.{key}", fewshot.get(key)) for key in EXAMPLES] if isinstance(fewshot, dict) else []
    named += [("metric_list", one.get("aggregation")) for one in metrics] if isinstance(metrics, list) else []
    return ((key, value) for key, value in named if functions.is_function(value))


def with_functions(task: EvaluationTask) -> dict[str, Any]:
    """The configuration of a task that is :func:`checked`, its functions in place of their names."""
    made = copy.deepcopy(dict(task.config))
    where = f"the task {task.name}"
    made |= {key: functions.function_in(made[key], where) for key in CODE if key in made}
    if isinstance(fewshot := made.get("fewshot_config"), dict):
        fewshot |= {key: functions.function_in(fewshot[key], where) for key in EXAMPLES if key in fewshot}
    for one in made.get("metric_list") or ():
        one |= {key: functions.function_in(one[key], where) for key in ("aggregation",) if key in one}
    return made


def used_splits(config: Mapping[str, Any]) -> set[str]:
    """The splits that a task reads."""
    fewshot = config.get("fewshot_config")
    named = [config.get(key) for key in SPLITS] + ([fewshot.get("split")] if isinstance(fewshot, dict) else [])
    return {split for split in named if isinstance(split, str)}


def _refused(where: str, key: str, expected: str, found: str) -> UsageError:
    return UsageError(
        "a task that is not only data",
        where=f"{where}, {key}",
        expected=expected,
        found=found,
        cure="write it with templates and the metrics of the harness; docs/evaluation.md lists what a task may have",
    )


def _plain(value: Any, depth: int = 0) -> bool:
    if depth > functions.DEEPEST:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item, depth + 1) for key, item in value.items())
    if isinstance(value, list):
        return all(_plain(item, depth + 1) for item in value)
    return value is None or isinstance(value, str | bool | int | float)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _template(value: Any) -> bool:
    return (isinstance(value, str | list | dict) and _plain(value)) or type(value) is int


def _metrics(value: Any) -> bool:
    """Each of the harness's own by its own aggregation, one that a function of the harness finds by the mean; or either by a
    function of the harness."""
    return isinstance(value, list) and all(
        isinstance(item, dict)
        and isinstance(item.get("metric"), str)
        and NAME.fullmatch(item["metric"]) is not None
        and _aggregated(item["metric"], item.get("aggregation"))
        and not item.get("hf_evaluate")
        and _plain(item)
        for item in value
    )


def _aggregated(metric: str, by: Any) -> bool:
    return functions.is_function(by) or by == METRICS.get(metric, "mean") or (by is None and metric in METRICS)


def _filters(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict)
        and isinstance(item.get("name"), str)
        and isinstance(item.get("filter"), list)
        and all(isinstance(part, dict) and part.get("function") in FILTERS for part in item["filter"])
        and _plain(item)
        for item in value
    )


def _fewshot(value: Any) -> bool:
    known = {
        "process_docs",
        "sampler",
        "split",
        "fewshot_indices",
        "samples",
        "gen_prefix",
        "fewshot_delimiter",
        "target_delimiter",
        *TEMPLATES,
    }
    return (
        isinstance(value, dict)
        and set(value) <= known
        and _plain(value)
        and value.get("sampler", "default") in ("default", "first_n")
    )


def _number_up_to(most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and 0 <= value <= most


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "task": _is_text,
    **dict.fromkeys(TEXTS, _is_text),
    **dict.fromkeys(TEMPLATES, _template),
    "process_docs": functions.is_function,
    "process_results": functions.is_function,
    "output_type": lambda value: value in OUTPUTS,
    "num_fewshot": _number_up_to(1000),
    "repeats": lambda value: type(value) is int and 1 <= value <= MOST_REPEATS,
    "metric_list": _metrics,
    "filter_list": _filters,
    "fewshot_config": _fewshot,
    "generation_kwargs": lambda value: isinstance(value, dict) and _plain(value),
    "metadata": lambda value: isinstance(value, dict) and _plain(value),
    "should_decontaminate": lambda value: value is False,
    "unsafe_code": lambda value: value is False,
}
_EXPECTED = {
    "output_type": ", ".join(OUTPUTS),
    "metric_list": f"metrics {', '.join(METRICS)}, each by the aggregation that it has in the harness",
    "filter_list": f"filters {', '.join(FILTERS)}",
    "repeats": f"1 to {MOST_REPEATS}",
}
