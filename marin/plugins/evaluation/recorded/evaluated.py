"""What came of an evaluation, from its tasks to the body of its event: the same for who records it and who verifies it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from marin.evaluation.code import deciding_digest
from marin.evaluation.subject import Subject
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.recorded.records import Request, Sample, Settings, identity_of, task_event
from marin.plugins.evaluation.recorded.task import EvaluationTask
from marin.provenance.code import code_folder, lock_digest


@dataclass(frozen=True)
class Asker:
    """Who makes requests of tasks, and numbers of answers. ``starts``: the file in which that begins; what it imports decides
    what is found."""

    version: str
    starts: tuple[str, ...]


@dataclass(frozen=True)
class Evaluated:
    """``results`` in the shape of lm-evaluation-harness; ``samples`` by task; ``write``: the asker's own files, by name."""

    asker: Asker
    tasks: tuple[EvaluationTask, ...]
    settings: Settings
    results: Mapping[str, Mapping[str, Any]]
    samples: Mapping[str, Sequence[Sample]]
    write: Callable[[EvaluationRecorded], dict[str, bytes]]

    @property
    def requests(self) -> list[Request]:
        """Everything that was asked, in order."""
        return [request for documents in self.samples.values() for sample in documents for request in sample.requests]

    def body(self, subject: Subject, artifact: str) -> EvaluationRecorded:
        """The event's body; ``artifact``: the stored tree."""
        body = EvaluationRecorded(
            run=subject.run,
            step=subject.step,
            state=subject.state,
            tokenizer=subject.tokenizer_digest,
            identity=artifact,
            harness=self.asker.version,
            code=deciding_digest(self.asker.starts, subject.recipe),
            lock=lock_digest(code_folder()),
            settings=msgspec.to_builtins(self.settings),
            tasks={task.name: task_event(task, self.samples[task.name]) for task in self.tasks},
            results=numbers(self.results),
            samples=artifact,
            requests=len(self.requests),
            truncated=sum(request.truncated > 0 for request in self.requests),
        )
        return msgspec.structs.replace(body, identity=identity_of(body))

    def files(self, body: EvaluationRecorded) -> dict[str, bytes]:
        """The asker's own files of this evaluation, by name; they follow from the tasks, the settings and the state."""
        return self.write(body)


def numbers(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Results as hex floats, without what is not a number."""
    return {
        task: {
            name: float(value).hex()
            for name, value in found.items()
            if isinstance(value, int | float | np.number)
            and not isinstance(value, bool)
            and not math.isnan(float(value))
        }
        for task, found in results.items()
    }
