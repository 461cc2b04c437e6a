"""lm-evaluation-harness over a recorded state: requests, filters, metrics and errors are its own, log-likelihoods ours.

It runs in this process, with no network and nothing of the task executed: templates are rendered in jinja2's sandbox,
functions are the installed harness's own, and data comes from the task's own bytes. What it prints goes nowhere.
"""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import version
from typing import Any

import jax
import jinja2
import jinja2.sandbox
import numpy as np
from datasets import Dataset
from lm_eval import evaluator, utils
from lm_eval.api.group import Group
from lm_eval.api.task import ConfigurableTask

from ledger import LedgerError
from marin.errors import UsageError
from marin.plugins.evaluation.harness.documents import documents
from marin.plugins.evaluation.harness.model import Harness
from marin.plugins.evaluation.harness.tasks import functions_of, with_functions
from marin.plugins.evaluation.recorded.records import Key, Outcome, Request, Sample, Settings, TaskGroup
from marin.plugins.evaluation.recorded.task import EvaluationTask

logging.getLogger("lm_eval").setLevel(logging.ERROR)


def harness_version() -> str:
    """The installed one."""
    return version("lm-eval")


class _FileTask(ConfigurableTask):
    """A task whose data is here."""

    given: EvaluationTask
    dataset: dict[str, Dataset]

    def __init__(self, task: EvaluationTask, rules: int) -> None:
        self.given, self.rules = task, rules
        super().__init__(config={**with_functions(task), "task": task.name, "dataset_path": "json"})

    def dump_config(self) -> dict[str, Any]:
        """As the harness has it; functions by their names and digests."""
        dumped: dict[str, Any] = super().dump_config()
        given = self.given.config
        return {**dumped, **{key: given[key] for key in given if any(True for _ in functions_of({key: given[key]}))}}

    def download(self, dataset_kwargs: Any = None, **kwargs: Any) -> None:
        self.dataset = documents(self.given, self.rules)


def evaluate(
    tasks: Sequence[EvaluationTask], settings: Settings, lm: Harness
) -> tuple[dict[str, dict[str, Any]], dict[str, list[Sample]], Mapping[str, Any]]:
    """The harness's results by task, in its own shape; what was asked and found of every document; and all that the harness
    gave back.

    Raises:
        UsageError: the harness can make nothing of a task, its documents and the settings together.
    """
    _be_safe()
    quiet = io.StringIO()
    try:
        with redirect_stdout(quiet), redirect_stderr(quiet):
            return _evaluated(tasks, settings, lm)
    except (LedgerError, jax.errors.JaxRuntimeError):
        raise
    except Exception as error:  # a task can make the harness, and functions of it, raise anything
        raise UsageError(
            "lm-evaluation-harness can not evaluate these tasks",
            where=", ".join(task.name for task in tasks)[:200],
            expected="templates, splits and settings that fit the documents",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            cure="correct the task file, or --num-fewshot and --limit",
        ) from error


def _evaluated(
    tasks: Sequence[EvaluationTask], settings: Settings, lm: Harness
) -> tuple[dict[str, dict[str, Any]], dict[str, list[Sample]], Mapping[str, Any]]:
    built = {task.name: _built(task, settings) for task in tasks}
    groups = _groups(settings.groups, built)
    declared = {
        name: {f"{metric},{chain.name}" for metric in task.aggregation() for chain in task._filters}
        for name, task in built.items()
    }
    _of_whole_groups(settings.groups, groups, declared)
    found = evaluator.evaluate(
        lm,
        {"tasks": built, "groups": groups},
        limit=settings.limit,
        bootstrap_iters=settings.bootstrap,
        system_instruction=settings.system_instruction,
        apply_chat_template=settings.chat,
        fewshot_as_multiturn=settings.multiturn,
        log_samples=True,
    )
    _of_whole_groups(settings.groups, groups, {name: set(found["results"][name]) for name in built})
    shown = {**found["results"], **found.get("groups", {})}
    named = (*built, *(group.name for group in settings.groups if group.metrics))
    results = {name: dict(shown[name]) for name in named if name in shown}
    return results, {name: _samples(name, found["samples"][name], lm.asked) for name in built}, found


def _built(task: EvaluationTask, settings: Settings) -> ConfigurableTask:
    built = _FileTask(task, settings.rules)
    named = built.get_config("num_fewshot")
    if settings.num_fewshot is not None and named != 0:  # a task that says 0 stays so, as in the harness
        built.set_config(key="num_fewshot", value=settings.num_fewshot)
    elif named is None:
        built.set_config(key="num_fewshot", value=0)
    built.set_fewshot_seed(seed=settings.seed)
    return built


def _groups(groups: Sequence[TaskGroup], built: Mapping[str, ConfigurableTask]) -> dict[str, Group]:
    """The harness's groups, one in another as they are."""
    made: dict[str, Group] = {}
    for group in groups:
        metrics = [
            {
                "metric": one.metric,
                "aggregation": "mean",
                "weight_by_size": one.weight_by_size,
                "filter_list": one.filters,
            }
            for one in group.metrics
        ]
        new = Group.from_config({"group": group.name, "task": group.tasks, "aggregate_metric_list": metrics})
        for name in group.tasks:
            new.add(built[name] if name in built else made[name])
        made[group.name] = new
    return made


def _of_whole_groups(
    groups: Sequence[TaskGroup], made: Mapping[str, Group], numbers: Mapping[str, Collection[str]]
) -> None:
    """Whether every task of a group has the ``numbers`` (``metric,filter``, by task) that the group takes the mean of: the
    harness leaves out those that have not, and prints the mean of the others."""
    for group in groups:
        names = [task.task_name for task in made[group.name].get_all_tasks()]
        for one in group.metrics:
            parts = {key.partition(",")[::2] for name in names for key in numbers[name]}
            filters = (
                one.filters if one.filters is not None else [under for metric, under in parts if metric == one.metric]
            )
            without = [name for name in names if not {f"{one.metric},{under}" for under in filters} <= {*numbers[name]}]
            if without or not filters:
                raise UsageError(
                    "the number of a group would be of a part of its tasks",
                    where=f"group {group.name}, {one.metric}",
                    expected=f"{one.metric} of each of its tasks, under the same filters",
                    found=f"none of {', '.join((without or names)[:5])}",
                    cure="name filter_list, or a metric that all have, or take the others out of the group",
                )


def _be_safe() -> None:
    """Templates are rendered in jinja2's sandbox, and nothing is computed by other processes."""
    if not isinstance(utils.env, jinja2.sandbox.SandboxedEnvironment):
        sandbox = jinja2.sandbox.ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, keep_trailing_newline=True
        )
        sandbox.filters["regex_replace"] = utils.regex_replace
        utils.env = sandbox
    os.environ["DISABLE_MULTIPROC"] = "1"


def _samples(task: str, logged: Sequence[Mapping[str, Any]], asked: Mapping[Key, Request]) -> list[Sample]:
    outcomes: dict[int, list[Outcome]] = {}
    first: dict[int, Mapping[str, Any]] = {}
    for one in logged:
        first.setdefault(one["doc_id"], one)
        metrics = {name: plain(one[name]) for name in one["metrics"]}
        outcomes.setdefault(one["doc_id"], []).append(Outcome(one["filter"], plain(one["filtered_resps"]), metrics))
    requests: dict[int, list[Request]] = {}
    for key in sorted(key for key in asked if key[0] == task):
        requests.setdefault(key[1], []).append(asked[key])
    return [
        Sample(
            number, str(first[number]["doc_hash"]), plain(first[number]["target"]), requests[number], outcomes[number]
        )
        for number in sorted(first)
    ]


def own_files(found: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, bytes]:
    """What the harness writes of an evaluation, by name: ``results.json`` and ``samples_NAME.jsonl``, in its form (of
    ``EvaluationTracker``) without times and dates, so that the same evaluation gives the same bytes.

    Args:
        config: what its ``config`` says of the model and of how it was asked.
    """
    head = {name: value for name, value in found.items() if name != "samples"}
    text = json.dumps(
        {**head, "config": dict(config), "lm_eval_version": harness_version()},
        indent=2,
        sort_keys=True,
        default=utils.handle_non_serializable,
        ensure_ascii=False,
    )
    files = {"results.json": text.encode() + b"\n"}
    for task, samples in found["samples"].items():
        lines = []
        for sample in samples:
            arguments = {
                f"gen_args_{number}": {f"arg_{place}": part for place, part in enumerate(given)}
                for number, given in enumerate(sample["arguments"])
            }
            said = {
                "resps": utils.sanitize_list(sample["resps"]),
                "filtered_resps": utils.sanitize_list(sample["filtered_resps"]),
                "arguments": arguments,
                "target": str(sample["target"]),
            }
            lines.append(json.dumps({**sample, **said}, default=utils.handle_non_serializable, ensure_ascii=False))
        files[f"samples_{task}.jsonl"] = "".join(f"{line}\n" for line in lines).encode()
    return files


def plain(value: Any) -> Any:
    """A value of the harness as JSON; floats as hex."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value).hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, str) else repr(value)
