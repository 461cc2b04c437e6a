"""What MLPerf's log says of a run, line by line, from its events: pure values, written by its own ``mllogger``.

A run of the benchmark is a chain of Marin's runs: a training goes on in phases, with a measurement after each. A phase is a
block; its measurement is evaluated beside the training, so an ``eval_accuracy`` may be later than the next block's start.
The order of lines is that of samples, and each has the time of the event that it comes from.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Literal

import marin
from marin.errors import DataError, MarinError, MissingEvidence, UsageError
from marin.execution.phases import chain
from marin.history.run import Run
from marin.history.runs import History
from marin.plugins.mlperf.benchmark import Benchmark, Submission, check_closed
from marin.plugins.mlperf.hyperparameters import Value, values_of
from marin.plugins.mlperf.seeding import Seeding
from marin.process.files import write_whole
from marin.recipe.arithmetic import Arithmetic
from marin.record.events import TrainStarted
from marin.verify.agreement import consistent_run

Kind = Literal["event", "start", "end"]
FORMATS = {"float32": "fp32", "bfloat16": "bfloat16"}
"""Of the recipe's compute_dtype, as MLPerf calls them: a product is of such numbers, for no recipe leaves float32 to the device
(``matmul_precision=default`` goes with bfloat16 alone). Sums between devices are in float32 in either."""
WHOLE = ((8, "int8"), (4, "int4"))
"""Bits at least, and what MLPerf calls them: its names for the whole numbers that profile ``exact`` multiplies. It has none
between 8 and 15 bits, so the format below is said."""
PER_PHASE = frozenset({"max_steps"})
"""Hyperparameters that a phase changes by going on."""

LOCK = "docker/requirements-mlperf.lock"


@dataclass(frozen=True)
class Line:
    """One line; ``time`` in milliseconds since 1970, UTC."""

    kind: Kind
    key: str
    value: object
    time: int
    metadata: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Phase:
    """One block: samples ``[first, last)`` counted through all phases, times in milliseconds; ``loss`` is None where
    nothing was measured at its end."""

    run: Run
    first: int
    last: int
    started: int
    ended: int
    loss: float | None
    eval_started: int
    eval_ended: int


def phases(runs: Sequence[Run]) -> list[Phase]:
    """The blocks of a chain of runs.

    Raises:
        MissingEvidence: a run was not trained to its end.
    """
    found = []
    for place, run in enumerate(runs):
        recipe, after = run.recipe, runs[place + 1] if place + 1 < len(runs) else None
        end = recipe.last_step if after is None else after.recipe.first_step
        if not run.training or not run.segments or run.segments[-1].body.end < end:
            raise MissingEvidence(
                "the run was not trained to its end",
                where=f"run {run.run}",
                expected=f"train steps up to {end}",
                found=f"up to {run.segments[-1].body.end}" if run.segments else "none",
                cure="finish it, and export it then",
            )
        first = recipe.phase.first_sequence if recipe.phase is not None else 0
        segment = next(fact for fact in run.segments if fact.body.end >= end)
        measured = run.evaluation if end == recipe.last_step else None
        ended = milliseconds(segment.time)
        state = run.states.get("evaluate")
        stopped = milliseconds(measured.time) if measured is not None else ended
        begun = min(milliseconds(state.started), stopped) if state is not None and measured is not None else stopped
        found.append(
            Phase(
                run=run,
                first=first,
                last=first + (end - recipe.first_step) * recipe.trainer.batch_size,
                started=milliseconds(run.training[0].time),
                ended=ended,
                loss=float.fromhex(measured.body.metrics["loss"])
                if measured and "loss" in measured.body.metrics
                else None,
                eval_started=begun,
                eval_ended=stopped,
            )
        )
    return found


def check_agreed(history: History, last: Run) -> None:
    """Raise ``Tampered`` where the events of a phase contradict one another: no result follows from them."""
    for run in chain(history, last):
        consistent_run(history, run.run)


def until(blocks: Sequence[Phase], target: float) -> list[Phase]:
    """These blocks up to the first that measured ``target`` or less: what was trained afterwards is not of the run."""
    reached = (
        number for number, block in enumerate(blocks, start=1) if block.loss is not None and block.loss <= target
    )
    return list(blocks[: next(reached, len(blocks))])


def lines(
    history: History, last: Run, benchmark: Benchmark, submission: Submission, seeds: Seeding, *, origin: str
) -> list[Line]:
    """The log of ``last`` and the phases before it, up to the first measurement at the target; ``success`` if there is
    one.

    Raises:
        UsageError: closed division, and a hyperparameter or the seed's source is not allowed in it; or a phase has
            other hyperparameters than the one before.
        MissingEvidence: the run has no training or no measurement at its end.
    """
    blocks = until(phases(chain(history, last)), benchmark.target)
    runs = [block.run for block in blocks]
    if submission.division == "closed":
        _closed(runs, benchmark, seeds)
    _same(runs, benchmark)
    if blocks[-1].loss is None:
        raise MissingEvidence(
            "nothing was measured at the end of the run",
            where=f"run {last.run}",
            expected="an evaluation",
            found="none",
            cure="execute the step evaluate: `dvc repro`, or `marin train` again",
        )
    sizes = _sizes(runs[0])
    state = runs[0].states.get("train")
    begun = min(milliseconds(state.started), blocks[0].started) if state is not None else blocks[0].started
    reached = blocks[-1].loss <= benchmark.target
    found = [
        Line("event", "cache_clear", False, begun, {"reason": "not done: nothing is read from disk that is timed"})
    ]
    found.append(Line("start", "init_start", None, begun))
    for name, value in _header(runs, benchmark, submission, origin, sizes).items():
        found.append(Line("event", name, value, begun))
    found.append(
        Line(
            "event",
            "seed",
            seeds.seed,
            begun,
            {"source": seeds.source, "generator": seeds.generator, "derived": list(seeds.derived)}
            | ({"event": seeds.drawn_at} if seeds.drawn_at is not None else {}),
        )
    )
    found += [Line("end", "init_stop", None, blocks[0].started), Line("start", "run_start", None, blocks[0].started)]
    for block in blocks:
        found += _block(block, sizes["train_samples"])
    ended = max(max(block.ended, block.eval_ended) for block in blocks)
    count: dict[str, object] = {"samples_count": blocks[-1].last}
    found.append(Line("event", "trained_samples", blocks[-1].last, ended, count))
    status = "success" if reached else "aborted"
    found.append(Line("end", "run_stop", None, ended, {"status": status, **count}))
    return found


def _block(block: Phase, train_samples: int) -> list[Line]:
    def at(samples: int) -> dict[str, object]:
        return {"samples_count": samples, "epoch_num": samples / train_samples}

    recipe = block.run.recipe
    found = [Line("start", "block_start", None, block.started, at(block.first) | {"run": block.run.run})]
    for fact in block.run.segments:
        samples = block.first + (fact.body.end - recipe.first_step) * recipe.trainer.batch_size
        if samples <= block.last and fact.body.losses:
            loss = float.fromhex(fact.body.losses[-1])
            found.append(Line("event", "tracked_stats", {"train_loss": loss}, milliseconds(fact.time), at(samples)))
    found.append(Line("end", "block_stop", None, block.ended, at(block.last)))
    if block.loss is not None:
        found += [
            Line("start", "eval_start", None, block.eval_started, at(block.last)),
            Line("event", "eval_accuracy", block.loss, block.eval_ended, at(block.last)),
            Line("end", "eval_stop", None, block.eval_ended, at(block.last)),
        ]
    return found


def _header(
    runs: Sequence[Run], benchmark: Benchmark, submission: Submission, origin: str, sizes: dict[str, int]
) -> dict[str, Value]:
    """Who, what and with which settings."""
    recipe, training = runs[-1].recipe, runs[-1].training[-1].body
    number, shared = number_format(recipe.arithmetic), sharing(training)
    poc = {"submission_poc_name": submission.poc_name, "submission_poc_email": submission.poc_email}
    values = values_of(benchmark.table, recipe)
    return {
        "submission_benchmark": benchmark.name,
        "submission_division": submission.division,
        "submission_org": submission.org or origin,
        "submission_platform": submission.platform or _platform(runs[-1]),
        "submission_status": submission.status,
        **{key: value for key, value in poc.items() if value},
        **{name.replace("_adamw_", f"_{recipe.optimizer.name}_"): value for name, value in values.items()},
        "gradient_accumulation_steps": recipe.trainer.batch_size
        // max(1, training.devices // shared * recipe.arithmetic.microbatch_size),
        **sizes,
        "lowest_numerical_precision_in_linear": number,
        "lowest_numerical_precision_in_attn": number,
        "lowest_numerical_precision_in_comm": "fp32",
        "tensor_parallelism": shared,
        "pipeline_parallelism": 1,
        "context_parallelism": 1,
        "expert_parallelism": sharing(training, "expert_parallel"),
        "config_filename": runs[-1].started.body.recipe_digest,
    }


def sharing(started: TrainStarted, what: str = "tensor_parallel") -> int:
    """How many devices shared the matrices of a layer; ``expert_parallel``: its experts.

    Raises:
        DataError: the event says what no training is.
    """
    said = started.device.get(what, 1)
    if type(said) is not int or said < 1 or started.devices % said:
        raise DataError(
            "no number of devices that share matrices",
            where=f"train.started: device.{what}",
            expected=f"a divisor of {started.devices} devices",
            found=str(said)[:80],
            cure="the event is not one of Marin's: ask its signer",
        )
    return said


def number_format(arithmetic: Arithmetic) -> str:
    """What factors of products are, in MLPerf's words.

    Raises:
        UsageError: it has none for so few bits.
    """
    if arithmetic.profile != "exact":
        return FORMATS[arithmetic.compute_dtype]
    bits = arithmetic.factor_bits or max(least for least, _ in WHOLE)
    name = next((name for least, name in WHOLE if bits >= least), None)
    if name is None:
        raise UsageError(
            "MLPerf has no name for numbers of so few bits",
            where="lowest_numerical_precision_in_linear: arithmetic.factor_bits",
            expected=f"{min(least for least, _ in WHOLE)} at least",
            found=str(bits),
            cure="train with more bits",
        )
    return name


def _sizes(run: Run) -> dict[str, int]:
    """How many sequences there are to train on, and how many are measured."""
    counted = run.steps["tokens"].metrics if "tokens" in run.steps else {}
    length = run.recipe.model.seq_len
    if not all(length <= counted.get(name, 0) < math.inf for name in ("train_tokens", "validation_tokens")):
        raise MissingEvidence(
            "the run does not say how much data it has",
            where=f"run {run.run}: step tokens",
            expected=f"train_tokens and validation_tokens, a sequence of {length} at least",
            found=", ".join(f"{name}={value:g}" for name, value in counted.items()) or "no such step",
            cure="export a run whose tokens the pipeline made",
        )
    held_out = int(counted["validation_tokens"]) // length
    return {
        "train_samples": int(counted["train_tokens"]) // length,
        "eval_samples": min(held_out, run.recipe.evaluation.max_sequences),
    }


def _platform(run: Run) -> str:
    """What it was trained on, as the record says it."""
    training, processor = run.training[-1].body, run.started.body.environment.get("processor")
    model = processor.get("model") if isinstance(processor, dict) else None
    kind = str(training.device.get("kind", "device"))
    return f"{training.devices} x {model if kind == 'cpu' and model else kind}"


def _closed(runs: Sequence[Run], benchmark: Benchmark, seeds: Seeding) -> None:
    for run in runs:
        check_closed(benchmark, run.recipe, where=f"run {run.run}, closed division")
    if seeds.source != "system":
        raise UsageError(
            "the closed division draws its seeds",
            where=f"run {runs[0].run}: seed",
            expected="one from the clock or the system, recorded",
            found=f"{seeds.seed}, given in the recipe",
            cure="train with seed=null, or submit to the open division",
        )


def _same(runs: Sequence[Run], benchmark: Benchmark) -> None:
    """Phases of one run of the benchmark have the same hyperparameters, and one schedule."""
    first = values_of(benchmark.table, runs[0].recipe)
    for run in runs[1:]:
        values = values_of(benchmark.table, run.recipe)
        again = run.recipe.phase is not None and run.recipe.phase.schedule == "restart"
        changed = [
            (name, str(first[name]), str(values[name]))
            for name in first
            if name not in PER_PHASE and first[name] != values[name]
        ]
        if again and run.recipe.optimizer.warmup_steps:
            changed.append(("opt_learning_rate_warmup_steps", "one warm-up", "another in a later phase"))
        if changed:
            name, expected, found = changed[0]
            raise UsageError(
                "a phase changes a hyperparameter",
                where=f"run {run.run}: {name}",
                expected=expected,
                found=found,
                cure="continue with the same values, and with phase.schedule=continue",
            )


def milliseconds(time: str) -> int:
    """An event's time (RFC 3339, UTC) in milliseconds since 1970."""
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def write_log(lines: Sequence[Line], path: Path) -> bytes:
    """Write ``lines`` to ``path``, whole or not at all; returns what it holds.

    Raises:
        MissingEvidence: mlperf-logging is not installed.
    """
    said, mllog = _LineHandler(), _mllog()
    logger = logging.Logger("marin.mlperf", logging.INFO)
    logger.addHandler(said)
    root = re.escape(str(Path(marin.__file__).parents[1]))  # mllogger takes it for a pattern
    writer = mllog.mllog.MLLogger(logger=logger, root_dir=root)
    for line in lines:
        write = {"event": writer.event, "start": writer.start, "end": writer.end}[line.kind]
        write(key=line.key, value=line.value, metadata=line.metadata, time_ms=line.time)
    data = "".join(f"{line}\n" for line in said.lines).encode()
    write_whole(path, data)
    return data


class _LineHandler(logging.Handler):
    """What mllogger says. It answers a line that it cannot write with an error in the log instead of an exception."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno != logging.INFO:
            raise MarinError("mllogger could not write a line", where="--mlperf", found=record.getMessage()[:200])
        self.lines.append(record.getMessage())


def _mllog() -> ModuleType:
    try:
        from mlperf_logging import mllog
    except ImportError:
        raise MissingEvidence(
            "MLPerf's logger is not installed",
            where="--mlperf",
            expected="mlperf-logging",
            found="no such package",
            cure=f"pip install --no-deps --require-hashes -r {LOCK}",
        ) from None
    assert isinstance(mllog, ModuleType)
    return mllog
