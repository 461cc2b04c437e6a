"""One evaluation from its tasks to the body of its event: the same for who records it and who verifies it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from marin.evaluation.harness.evaluator import evaluate, harness_version, numbers, own_files
from marin.evaluation.harness.model import Harness
from marin.evaluation.harness.records import CODE, Key, Request, Sample, Settings, described, identity_of
from marin.evaluation.harness.tasks import EvaluationTask
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.provenance.code import code_folder, files_digest, lock_digest
from marin.record.events import EvaluationRecorded


@dataclass(frozen=True)
class Evaluated:
    """What came of an evaluation. ``results`` in the harness's own shape; ``samples`` by task."""

    tasks: tuple[EvaluationTask, ...]
    settings: Settings
    results: Mapping[str, Mapping[str, Any]]
    samples: Mapping[str, Sequence[Sample]]
    said: Mapping[str, Any] = field(default_factory=dict)
    """All that the harness gave back."""

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
            harness=harness_version(),
            code=files_digest(code_folder(), CODE),
            lock=lock_digest(code_folder()),
            settings=msgspec.to_builtins(self.settings),
            tasks={task.name: described(task, self.samples[task.name]) for task in self.tasks},
            results=numbers(self.results),
            samples=artifact,
            requests=len(self.requests),
            truncated=sum(request.truncated > 0 for request in self.requests),
        )
        return msgspec.structs.replace(body, identity=identity_of(body))

    def files(self, body: EvaluationRecorded) -> dict[str, bytes]:
        """The harness's own files of this evaluation, by name; they follow from the tasks, the settings and the state."""
        config = {
            "model": "marin",
            "model_args": {"run": body.run, "state": body.state, "step": body.step, "tokenizer": body.tokenizer},
            "limit": self.settings.limit,
            "num_fewshot": self.settings.num_fewshot,
            "bootstrap_iters": self.settings.bootstrap,
            "fewshot_seed": self.settings.seed,
            "apply_chat_template": self.settings.chat,
        }
        return own_files(self.said, config)


def evaluated(
    subject: Subject,
    scorer: Scorer,
    tasks: Sequence[EvaluationTask],
    settings: Settings,
    *,
    progress: Callable[[int], None] = lambda done: None,
    recorded: Mapping[Key, Request] | None = None,
    again: Collection[Key] | None = None,
) -> Evaluated:
    """Evaluate ``tasks``; ``recorded`` and ``again`` as :class:`Harness` takes them."""
    lm = Harness(subject, scorer, settings.seed, progress, recorded, again)
    results, samples, said = evaluate(tasks, settings, lm)
    return Evaluated(tuple(tasks), settings, results, samples, said)
