"""What a recipe says of measuring: after the training, and of the states that it records on its way."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from msgspec import Meta

from marin.errors import UsageError
from marin.recipe.section import Count, Name, Positive, Section


class CorpusSet(Section, frozen=True, tag="corpus", tag_field="kind", kw_only=True):
    """Held-out text of the run's own corpus: its validation split, or what of it is of one ``part`` of a mixture.
    ``documents``: the first so many of a set; None: all."""

    part: Name | None = None
    documents: Positive | None = None


class FilesSet(Section, frozen=True, tag="files", tag_field="kind", kw_only=True):
    """Held-out text of files by glob, in the kinds that ``FilesDataset`` reads; ``split`` is about .txt."""

    globs: Annotated[tuple[str, ...], Meta(min_length=1)]
    text_field: Annotated[str, Meta(min_length=1)] = "text"
    split: Literal["lines", "paragraphs", "file"] = "paragraphs"
    paragraphs_per_document: Positive = 8
    documents: Positive | None = None


class FolderSet(Section, frozen=True, tag="folder", tag_field="kind", kw_only=True):
    """A folder of held-out sets, as Paloma and BabyLM have them: each file and each folder directly below ``path`` is one,
    named after it."""

    path: Annotated[str, Meta(min_length=1)]
    text_field: Annotated[str, Meta(min_length=1)] = "text"
    split: Literal["lines", "paragraphs", "file"] = "paragraphs"
    paragraphs_per_document: Positive = 8
    documents: Positive | None = None


HeldOut = CorpusSet | FilesSet | FolderSet


class TasksDuring(Section, frozen=True):
    """Tasks of lm-evaluation-harness (files below ``path``), each on its first ``limit`` documents."""

    names: Annotated[tuple[str, ...], Meta(min_length=1)]
    path: Annotated[str, Meta(min_length=1)] = "tasks"
    limit: Positive | None = None
    num_fewshot: Count | None = None


class TextSamples(Section, frozen=True):
    """What a state says after each of ``prompts``: ``max_tokens`` at most, by ``seed``; at ``temperature`` 0 the likeliest."""

    prompts: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=10_000)], ...], Meta(min_length=1, max_length=64)
    ]
    max_tokens: Annotated[int, Meta(ge=1, le=65_536)] = 40
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 0.8
    seed: Annotated[int, Meta(ge=0, le=2**53 - 1)] = 0  # the event that holds it is JSON


class Evaluation(Section, frozen=True):
    """What is measured on the held-out split, and what of the states that the training records on its way.

    ``every`` so many train steps the recorded state is measured on ``sets`` (None: the validation split) and ``tasks``, and
    says something (``samples``). That reads states and decides no bit of one: it is in the identity of no step.
    """

    batch_size: Positive = 16
    max_sequences: Annotated[int, Meta(ge=1)] = 256
    minimal_pairs: Annotated[int, Meta(ge=0)] = 300
    every: Positive | None = None
    sets: Annotated[dict[Name, HeldOut], Meta(min_length=1, max_length=64)] | None = None
    tasks: TasksDuring | None = None
    samples: TextSamples | None = None


def check_evaluation(asked: Evaluation, segment: int, parts: Collection[str], where: str) -> None:
    """Raises UsageError where what is to be measured during training never could be, or never again.

    Args:
        segment: train steps between two recorded states. ``parts``: of the recipe's mixture.
    """
    every = asked.every
    if every is None:
        if (asked.sets, asked.tasks, asked.samples) != (None, None, None):
            raise UsageError(
                "sets, tasks or samples of no state",
                where=f"{where}: evaluation.every",
                expected="a number of train steps",
                found="null",
                cure="set evaluation.every, or leave evaluation.sets, tasks and samples out",
            )
        return
    if every % segment:
        raise UsageError(
            "no state is recorded where it should be measured",
            where=f"{where}: evaluation.every",
            expected=f"a multiple of trainer.steps_per_segment ({segment})",
            found=str(every),
            cure="change one of the two: only a recorded state can be measured again by anyone who verifies",
        )
    for name, one in (asked.sets or {}).items():
        if isinstance(one, CorpusSet) and one.part is not None and one.part not in parts:
            raise UsageError(
                "a part that the corpus does not have",
                where=f"{where}: evaluation.sets.{name}.part",
                expected=", ".join(sorted(parts)) or "null: the corpus is one data set",
                found=one.part,
                cure="name a part of dataset.parts",
            )
