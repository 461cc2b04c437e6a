"""Prompts as a task of an evaluation, and which recorded evaluations are those that a recipe asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from marin.errors import DataError, DataMissing, UsageError
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.recorded.records import RULES, Settings, config_digest, digests_of, with_present_rules
from marin.plugins.evaluation.recorded.task import LONGEST_LINE, EvaluationTask
from marin.recipe.evaluation import TextSamples
from marin.record.events import TEXT_SAMPLES, CheckpointSaved

VERSION = TEXT_SAMPLES
NAME, SPLIT, KIND = "samples", "prompts", "continued"


class Continued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of a task: at most so many tokens after each prompt, at this temperature."""

    samples: str
    max_tokens: int
    temperature: float


def task_of(asked: TextSamples) -> EvaluationTask:
    """What a recipe asks for, as it is recorded."""
    lines = [json.dumps({"prompt": prompt}, ensure_ascii=False).encode() + b"\n" for prompt in asked.prompts]
    config = {"samples": KIND, "max_tokens": asked.max_tokens, "temperature": asked.temperature}
    return EvaluationTask(NAME, config, {SPLIT: b"".join(lines)})


def settings_of(asked: TextSamples) -> Settings:
    """The settings under which a recipe asks for it."""
    return Settings(seed=asked.seed, rules=RULES)


def without_samples(
    asked: TextSamples, due: Sequence[CheckpointSaved], bodies: Iterable[EvaluationRecorded]
) -> list[CheckpointSaved]:
    """Those of the ``due`` states of which no sample that a recipe asks for is recorded."""
    task, settings = task_of(asked), settings_of(asked)
    wanted = {NAME: (config_digest(task), digests_of(task))}
    had = {
        (body.step, body.state)
        for body in bodies
        if body.harness == VERSION
        and with_present_rules(body.settings) == settings
        and {name: (told.config, told.data) for name, told in body.tasks.items()} == wanted
    }
    return [saved for saved in due if (saved.step, saved.state) not in had]


def read(path: Path, names: Sequence[str] = ()) -> list[EvaluationTask]:
    """The lines of a file as prompts, each continued as a recipe continues one where it says no more.

    Raises:
        UsageError: a task is named beside the file.
        DataMissing: the file is not there.
        DataError: it is not text, has no line that is not empty, or more or longer ones than a recipe may have.
    """
    if names:
        raise UsageError("a file is one task", where="--samples", expected="no --tasks", found=", ".join(names))
    try:
        lines = [line.removesuffix("\r") for line in path.read_bytes().decode("utf-8-sig").split("\n")]
    except OSError as error:
        raise DataMissing(
            "prompts cannot be read",
            where=str(path),
            found=error.strerror or str(error),
            cure="check its path and mode",
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            "not a text", where=str(path), expected="UTF-8", found=f"another byte at {error.start}"
        ) from error
    try:
        asked = msgspec.convert({"prompts": [line for line in lines if line]}, TextSamples)
    except msgspec.ValidationError as error:
        raise DataError(
            "no prompts", where=str(path), expected="1 to 64 lines of text", found=str(error), cure="name another file"
        ) from error
    return [task_of(asked)]


def checked(task: EvaluationTask, where: str) -> EvaluationTask:
    """``task``, which is prompts and how they are continued.

    Raises:
        DataError: it is not.
    """
    try:
        if task.name != NAME or set(task.data) != {SPLIT} or len(task.data[SPLIT]) > LONGEST_LINE:
            raise ValueError(f"the name {task.name}, the data {', '.join(task.data)}")
        config = msgspec.convert(dict(task.config), Continued)
        if config.samples != KIND:
            raise ValueError(f"a way to continue: {config.samples[:40]}")
        prompts = [row.get("prompt") if set(row) == {"prompt"} else None for row in task.rows(SPLIT)]
        asked = {"prompts": prompts, "max_tokens": config.max_tokens, "temperature": config.temperature}
        if task_of(msgspec.convert(asked, TextSamples)).data != task.data:
            raise ValueError("lines that are written otherwise")
    except (msgspec.ValidationError, ValueError) as error:
        raise DataError("not prompts to continue", where=where, expected=VERSION, found=str(error)[:200]) from error
    return task
