"""Tasks of lm-evaluation-harness on a state, from the tasks to what is recorded of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.harness.evaluator import evaluate, harness_version, own_files
from marin.plugins.evaluation.harness.model import Harness
from marin.plugins.evaluation.recorded.evaluated import Asker, Evaluated
from marin.plugins.evaluation.recorded.records import Key, Request, Settings
from marin.plugins.evaluation.recorded.task import EvaluationTask

ASKER = Asker(harness_version(), ("marin/plugins/evaluation/harness/recording.py",))


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
    scorer = scorer if settings.rules > 4 else scorer.one_by_one()
    lm = Harness(subject, scorer, settings.seed, progress, recorded, again, settings.rules)
    results, samples, said = evaluate(tasks, settings, lm)

    def write(body: EvaluationRecorded) -> dict[str, bytes]:
        config = {
            "model": "marin",
            "model_args": {"run": body.run, "state": body.state, "step": body.step, "tokenizer": body.tokenizer},
            "limit": settings.limit,
            "num_fewshot": settings.num_fewshot,
            "bootstrap_iters": settings.bootstrap,
            "fewshot_seed": settings.seed,
            "apply_chat_template": settings.chat,
        }
        config |= {"fewshot_as_multiturn": True} if settings.multiturn else {}
        system = settings.system_instruction
        config |= {} if system is None else {"system_instruction": system}
        return own_files(said, config)

    return Evaluated(ASKER, tuple(tasks), settings, results, samples, write)
