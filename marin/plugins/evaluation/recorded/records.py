"""An evaluation as it is stored: one tree with the tasks, their data, and what was asked and answered.

``tasks/NAME.json`` is a task's configuration, ``groups.json`` the groups with their members (none in trees without groups, and
in those of an older release), ``data/NAME/SPLIT.jsonl`` its data as it was given, ``samples/NAME.jsonl`` one
line for each document: its requests with their tokens and log-likelihoods (hex floats), and what the harness made of
them. ``results.json`` are the harness's results. What is read back is data, checked like a task file.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ledger import canonical_bytes, canonical_digest, digest_bytes
from marin.errors import DataError
from marin.kinds.families.measured import EvaluatedTask, EvaluationRecorded
from marin.plugins.evaluation.recorded.task import NAME, EvaluationTask

GROUPS = "groups.json"
GROUP = re.compile(rf"{NAME.pattern}(::{NAME.pattern})*")
"""The name of a group; of one that is written within another, after that one's."""
MOST_MEMBERS = 100_000
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What bytes that are no such JSON make of its decoder: ValueError where a key is not UTF-8."""


Key = tuple[str, int, int, int]
"""A request: task, document, request of the document, repeat."""


class ScoredRow(Struct, frozen=True):
    """A sequence and the log-likelihoods of its last tokens, hex floats of float32. ``greedy``: each is the likeliest."""

    tokens: list[int]
    logprobs: list[str]
    greedy: bool


class Request(Struct, frozen=True):
    """What the harness asked, and what was answered: its ``number`` among those of the document, and which ``repeat`` of it.
    ``truncated``: tokens of its beginning that were cut. ``prompt``,
    ``text``: of a generation, its tokens and what was said; its only row has the new tokens last."""

    kind: str
    arguments: list[Any]
    number: int = 0
    repeat: int = 0
    truncated: int = 0
    rows: list[ScoredRow] = []
    prompt: list[int] = []
    text: str = ""

    def total(self) -> float:
        """The log-likelihood of everything that was scored, rounded once."""
        return math.fsum(float.fromhex(value) for row in self.rows for value in row.logprobs)

    def greedy(self) -> bool:
        """Whether greedy decoding gives the scored tokens."""
        return all(row.greedy for row in self.rows)


class Outcome(Struct, frozen=True):
    """What the harness made of the answers under one of the task's filters: its metrics, floats as hex."""

    filter: str
    filtered: Any
    metrics: dict[str, Any]


class Sample(Struct, frozen=True):
    """A document of a task: its number, the harness's hash of it, its gold answer, requests in order, outcomes."""

    doc: int
    doc_hash: str
    target: Any
    requests: list[Request]
    outcomes: list[Outcome]


class GroupMetric(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that a group takes the mean of, by the size of its tasks or not; under some filters, or all (None)."""

    metric: str
    weight_by_size: bool = True
    filters: list[str] | None = None


class TaskGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """A group: its members, which are ``tasks`` or groups that stand before it, and the means that it has of all tasks in it."""

    name: str
    tasks: list[str]
    metrics: list[GroupMetric]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """What decides requests beside the tasks: few-shot examples (None: the task's own number), the first ``limit``
    documents alone, the seed of few-shot draws and of sampled tokens, resamples of a bootstrapped error, groups, whether
    prompts are messages under the chat template of a run, whether each example is then a turn (``multiturn``), and what stands
    before everything else (``system_instruction``: the system's message of a chat).

    ``rules``: how documents are read, texts become tokens and tokens a text. 1: as evaluations were recorded before there was a
    word of it, with nothing put around a text; 2: as the harness's own model of transformers does it; 3: documents too are
    those that the harness reads; 4: a model of no conversations has the chat template of its tokenizer; 5: under ``exact`` a text
    is continued by a causal pass (:func:`current_settings`)."""

    num_fewshot: int | None = None
    limit: int | None = None
    seed: int = 1234
    bootstrap: int = 1000
    groups: list[TaskGroup] = []
    chat: bool = False
    multiturn: bool = False
    system_instruction: str | None = None
    rules: Literal[1, 2, 3, 4, 5] = 1


RULES: Literal[5] = 5
"""Of what is evaluated now."""

RESAMPLES = 100_000
"""Of a bootstrapped error: the harness's own default."""


def current_settings(**settings: Any) -> Settings:
    """The settings of what is evaluated now, as the harness has them; a recorded evaluation is verified by its own."""
    return Settings(**{"bootstrap": RESAMPLES, "rules": RULES, **settings})


def recorded_settings(values: object) -> Settings | None:
    """The settings of a recorded evaluation; None where what is recorded is not one."""
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError:
        return None


def with_present_rules(values: object) -> Settings | None:
    """As :func:`recorded_settings`, and as if it were evaluated now: what was asked, whichever release did."""
    settings = recorded_settings(values)
    return settings and msgspec.structs.replace(settings, rules=RULES)


def wrong_groups(groups: Sequence[TaskGroup], tasks: Collection[str]) -> str | None:
    """What is not a group among ``groups`` of ``tasks``; None where all are. A member stands before its group, so none is in
    itself; the tasks of a group are counted as often as they are in it."""
    counts = dict.fromkeys(tasks, 1)
    for group in groups:
        if not GROUP.fullmatch(group.name) or group.name in counts:
            return f"the name of a group: expected letters, digits, _ . -, of no other task or group; found {group.name[:80]!r}"
        if unknown := [name for name in group.tasks if name not in counts]:
            return f"group {group.name}: its member {unknown[0][:80]!r} is neither a task nor a group before it"
        if not group.tasks or len(set(group.tasks)) != len(group.tasks):
            return f"group {group.name}: expected members, each once"
        counts[group.name] = sum(counts[name] for name in group.tasks)
        if counts[group.name] > MOST_MEMBERS:
            return f"group {group.name}: more than {MOST_MEMBERS} tasks"
    return None


def requests_of(samples: Mapping[str, Sequence[Sample]]) -> dict[Key, Request]:
    """Every request of stored samples by its key."""
    return {
        (task, sample.doc, request.number, request.repeat): request
        for task, documents in samples.items()
        for sample in documents
        for request in sample.requests
    }


def prompts_digest(samples: Sequence[Sample]) -> str:
    """One digest of everything that was asked of a task, in order."""
    asked = hashlib.sha256()
    for sample in samples:
        for request in sample.requests:
            asked.update(
                hashlib.sha256(canonical_bytes({"kind": request.kind, "arguments": _hexed(request.arguments)})).digest()
            )
    return f"sha256:{asked.hexdigest()}"


def _hexed(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, list):
        return [_hexed(item) for item in value]
    return {key: _hexed(item) for key, item in value.items()} if isinstance(value, dict) else value


def task_event(task: EvaluationTask, samples: Sequence[Sample]) -> EvaluatedTask:
    """What the event says of a task."""
    return EvaluatedTask(
        config=config_digest(task), data=digests_of(task), prompts=prompts_digest(samples), documents=len(samples)
    )


def digests_of(task: EvaluationTask) -> dict[str, str]:
    """The digest of each split of a task's data."""
    return {split: digest_bytes(content) for split, content in sorted(task.data.items())}


def identity_of(body: EvaluationRecorded) -> str:
    """The digest of everything that decides the numbers."""
    named = ("state", "tokenizer", "harness", "code", "lock", "settings", "tasks")
    return canonical_digest({name: msgspec.to_builtins(getattr(body, name)) for name in named})


def config_digest(task: EvaluationTask) -> str:
    """The digest of a task's configuration."""
    return canonical_digest(_hexed(dict(task.config)))


def write_tree(
    folder: Path,
    tasks: Sequence[EvaluationTask],
    samples: Mapping[str, Sequence[Sample]],
    results: Mapping[str, Mapping[str, str]],
    groups: Sequence[TaskGroup] = (),
) -> None:
    """Fill an empty ``folder``; the same evaluation gives the same bytes."""
    for name, content in files_of(tasks, samples, results, groups):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def files_of(
    tasks: Sequence[EvaluationTask],
    samples: Mapping[str, Sequence[Sample]],
    results: Mapping[str, Mapping[str, str]],
    groups: Sequence[TaskGroup] = (),
) -> Iterator[tuple[str, bytes]]:
    """Every file of the stored tree, by its path below the tree's folder."""
    for task in tasks:
        yield f"tasks/{task.name}.json", _json(dict(task.config))
        yield from ((f"data/{task.name}/{split}.jsonl", content) for split, content in task.data.items())
        lines = [msgspec.json.encode(sample) + b"\n" for sample in samples[task.name]]
        yield f"samples/{task.name}.jsonl", b"".join(lines)
    if groups:
        yield GROUPS, _json(msgspec.to_builtins(groups))
    yield "results.json", _json(results)


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def read_task(folder: Path, name: str, splits: Sequence[str]) -> EvaluationTask:
    """A stored task, of which nothing is believed yet: who asks it checks it first.

    Raises:
        DataError: a file is not there or no JSON.
    """
    config = _decoded(folder / "tasks" / f"{name}.json", dict[str, Any])
    data = {split: _bytes(folder / "data" / name / f"{split}.jsonl") for split in splits}
    return EvaluationTask(name, config, data)


def read_groups(folder: Path) -> list[TaskGroup] | None:
    """The stored groups; None where none are stored.

    Raises:
        DataError: the file is not a list of groups.
    """
    return _decoded(folder / GROUPS, list[TaskGroup]) if (folder / GROUPS).is_file() else None


def read_samples(folder: Path, name: str) -> Iterator[Sample]:
    """The stored samples of a task.

    Raises:
        DataError: a line is not a sample.
    """
    yield from decoded_samples(_bytes(folder / "samples" / f"{name}.jsonl"), f"samples/{name}.jsonl")


def decoded_samples(data: bytes, where: str) -> Iterator[Sample]:
    """The samples of such a file. Raises as :func:`read_samples`."""
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            yield msgspec.json.decode(line, type=Sample)
        except UNREADABLE as error:
            raise _unreadable(f"{where}, line {number}", str(error)) from None


def _decoded(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(_bytes(path), type=kind)
    except UNREADABLE as error:
        raise _unreadable(path.name, str(error)) from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path.name, error.strerror or "nothing") from None


def _unreadable(where: str, found: str) -> DataError:
    return DataError(
        "a stored evaluation can not be read", where=where, expected="what `marin eval` writes", found=found[:200]
    )
