"""What was measured of a model: by the pipeline's own evaluation, by a harness, by held-out sets; and how it leaves.

What is evaluated of a recorded state beside the pipeline stands in a stream of its own, ``evaluation/RUN``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from marin.kinds.body import Body, Digest, HexFloat, Json, Output
from marin.kinds.claim import Claim
from marin.kinds.kind import Around, Fact, Held, Kind, Pair, RunContext, hex_metrics

EVAL_COMPLETED = "eval.completed/v1"
EVALUATION_RECORDED = "evaluation.recorded/v1"
EVALUATION_MEASURED = "evaluation.measured/v1"
MODEL_EXPORTED = "model.exported/v1"
TEXT_SAMPLES = "text-samples 1"
"""The ``harness`` of an evaluation that is texts, which states continued."""


class EvalCompleted(Body, frozen=True):
    """What the evaluation measured; metrics are hex floats by name."""

    run: str
    model: Digest
    metrics: dict[str, HexFloat]


class EvaluatedTask(Struct, frozen=True, kw_only=True):
    """One task of an evaluation: digests of its configuration, of the data of each split and of everything that was asked;
    and over how many documents."""

    config: Digest
    data: dict[str, Digest]
    prompts: Digest
    documents: int


class EvaluationRecorded(Body, frozen=True):
    """Numbers that lm-evaluation-harness drew from the ``state`` of a run before train step ``step``.

    ``identity`` digests what decides them: state, tokenizer, tasks, settings, harness, code and lock. ``results`` are hex
    floats by task and metric; ``samples`` the stored tree with the tasks, their data, and every request with its tokens
    and log-likelihoods. ``requests``: how many; ``truncated``: those that lost their beginning to the context's length.
    """

    run: str
    step: int
    state: Digest
    tokenizer: Digest
    identity: Digest
    harness: str
    code: Digest
    lock: str
    settings: Json
    tasks: dict[str, EvaluatedTask]
    results: dict[str, dict[str, HexFloat]]
    samples: Digest
    requests: int
    truncated: int


class MeasuredSet(Struct, frozen=True, kw_only=True):
    """One held-out set: ``data`` is the stored JSON lines, ``scores`` the stored float32 of every token's log-likelihood
    (little-endian, document after document). ``numbers``: loss in nats a token, perplexity, bits per byte."""

    data: Digest
    scores: Digest
    documents: int
    bytes: int
    tokens: int
    numbers: dict[str, HexFloat]


class EvaluationMeasured(Body, frozen=True):
    """What held-out sets measured of the ``state`` that a run recorded before train step ``step``, while it trained.
    ``code`` and ``lock`` are what measured it."""

    run: str
    step: int
    state: Digest
    tokenizer: Digest
    code: Digest
    lock: str
    sets: dict[str, MeasuredSet]


class ModelExported(Body, frozen=True):
    """A model left in a public format. ``model`` is the state it was made from."""

    run: str
    format: str
    model: Digest
    output: Output


def _evaluated(fact: Fact[EvalCompleted], seen: RunContext) -> Iterator[Pair]:
    trained, view = seen.output("train"), seen.run.steps.get("evaluate")
    yield "model", trained and trained.digest, fact.body.model
    if view is not None:
        yield "metrics", dict(view.metrics), hex_metrics(fact.body.metrics)


def _exported(fact: Fact[ModelExported], seen: RunContext) -> Iterator[Pair]:
    trained = seen.output("train")
    yield "model", trained and trained.digest, fact.body.model
    yield "output", seen.output("export"), fact.body.output
    yield "format", seen.recipe.export.format, fact.body.format


def _by_task(body: EvaluationRecorded) -> Mapping[str, Mapping[str, str]]:
    """By task and metric; the harness names its filter behind a comma."""
    return {
        task: {key.partition(",")[0]: value for key, value in numbers.items() if "," in key}
        for task, numbers in body.results.items()
    }


def _by_set(body: EvaluationMeasured) -> Mapping[str, Mapping[str, str]]:
    return {name: one.numbers for name, one in body.sets.items()}


def _in_words(numbers: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={float.fromhex(value):.6g}" for name, value in sorted(numbers.items()))


def _recorded(fact: Fact[EvaluationRecorded], around: Around) -> Iterator[Claim]:
    body = fact.body
    for task, results in body.results.items():
        told = ", ".join(
            f"{name.partition(',')[0]}={float.fromhex(value):.6g}"
            for name, value in sorted(results.items())
            if "," in name
        )
        what = (
            f"{task} on the state before train step {body.step} ({told}) follows from that state, the task "
            f"{body.tasks[task].config if task in body.tasks else 'that is not named'} and its data, by "
            f"{_harness(body.harness)}{_settings(body, task)}"
        )
        yield Claim(what, "execution", "evaluation", fact.index)
    called = f"what it calls {', '.join(body.results)} is what others call so, with all of its data"
    yield Claim(called, "claimed", event=fact.index)
    yield _by_code(fact)


def _measured(fact: Fact[EvaluationMeasured], around: Around) -> Iterator[Claim]:
    for name, one in fact.body.sets.items():
        what = (
            f"{name} on the state before train step {fact.body.step} ({_in_words(one.numbers)}) follows from that state "
            f"and the text {one.data}"
        )
        yield Claim(what, "execution", "evaluation", fact.index)
    yield _by_code(fact)


def _by_code(fact: Fact[EvaluationRecorded] | Fact[EvaluationMeasured]) -> Claim:
    """Equal numbers are proof enough, whatever computed them: what did, is its word."""
    code = f"event {fact.index} was measured by code {fact.body.code} under lock {fact.body.lock or 'unknown'}"
    return Claim(code, "claimed", event=fact.index)


def _harness(name: str) -> str:
    """lm-evaluation-harness is recorded by its version alone, others by name and version."""
    return f"lm-evaluation-harness {name}" if name[:1].isdecimal() else name


def _settings(body: EvaluationRecorded, task: str) -> str:
    """Of how many documents, with how many examples, and whether as a chat: numbers of other settings are other numbers."""
    limit, examples = body.settings.get("limit"), body.settings.get("num_fewshot")
    told = []
    if isinstance(limit, int):
        count = f"{body.tasks[task].documents} documents" if task in body.tasks else f"{limit} documents of each task"
        told.append(f"asked of the first {count}")
    elif task in body.tasks:
        told.append(f"asked of {body.tasks[task].documents} documents")
    told += [f"with {examples} examples"] if isinstance(examples, int) else []
    told += ["as messages of a chat"] if body.settings.get("chat") is True else []
    told += ["each example a turn"] if body.settings.get("multiturn") is True and examples != 0 else []
    told += ["after a system instruction"] if body.settings.get("system_instruction") else []
    return "".join(f", {part}" for part in told)


KINDS: tuple[Kind, ...] = (
    Kind(
        EVAL_COMPLETED,
        EvalCompleted,
        underway=True,
        step="evaluate",
        rests_on="train",
        run=Held(agrees=_evaluated),
        kept=True,
    ),
    Kind(EVALUATION_RECORDED, EvaluationRecorded, judge="evaluation", claims=_recorded, numbers=_by_task),
    Kind(EVALUATION_MEASURED, EvaluationMeasured, underway=True, judge="evaluation", claims=_measured, numbers=_by_set),
    Kind(
        MODEL_EXPORTED,
        ModelExported,
        underway=True,
        step="export",
        rests_on="train",
        run=Held(agrees=_exported),
        kept=True,
    ),
)
