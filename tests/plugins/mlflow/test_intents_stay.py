"""What MLflow is told of a log stays what it was, byte for byte: a database that was folded by an older version goes on
under this one. The digests were taken before the fold was built on the one of :mod:`marin.history`; anyone who means to
change them raises ``marin.plugins.mlflow.projection.follow.VERSION`` too."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator

import pytest

from marin.kinds.families.experiment import (
    EXPERIMENT_REGISTERED,
    EXPERIMENT_REPORTED,
    ExperimentRegistered,
    ExperimentReported,
)
from marin.kinds.families.graph import GRAPH_COMPLETED, GRAPH_STARTED, GraphCompleted, GraphStarted
from marin.plugins.mlflow.folding.fold import Fold
from marin.record import events as types

from .story import ORIGIN, STEPS, Log, begin_step, complete_step, digest, output, replay, segment, start, whole_run

RUNS = ("abcd2345", "efgh6723", "klmn4567")
GRAPH = "gggg2345"


def told(log: Log, *, own: bool = True) -> Iterator[str]:
    """Every intent of a log, and every few events what stands on the shelves."""
    fold = Fold(ORIGIN, own=log if own else None)
    for index, event in log.events():
        yield from map(repr, fold.apply(index, event))
        if index % 5 == 0 or index == len(log.entries) - 1:
            for run in sorted(fold.touched):
                yield from map(repr, fold.shelves(run))
            fold.touched.clear()
    yield f"skipped {fold.skipped}"


def fingerprint(log: Log, *, own: bool = True) -> str:
    return hashlib.sha256("\n".join(told(log, own=own)).encode()).hexdigest()[:16]


def verdicts(draw: random.Random) -> dict[str, str]:
    names = ("ledger", "artifacts", "data", "training", "model")
    return {name: draw.choice(("PASS", "PASS", "PASS", "PASS", "FAIL", "NOT_RUN", "PARTIAL")) for name in names}


def verify(log: Log, run: str, draw: random.Random) -> None:
    replay(log, run, draw.choice((None, verdicts(draw))), draw.choice((None, {"step": 7, "tensors": ["a"]})))
    if draw.random() < 0.3:  # by somebody else, of a part, or of another log
        last = log.entries[-1].body
        last["training"] = {"mode": draw.choice(("sampled", "none"))}
        last["log_checkpoint"] = dict(last["log_checkpoint"]) | {"origin": draw.choice((ORIGIN, "elsewhere"))}


def measure(log: Log, run: str, draw: random.Random) -> None:
    at = draw.randrange(0, 60)
    series = types.Series(key=draw.choice(("train/speed", "load%")), steps=[at, at + 1], values=[(1.5).hex()] * 2)
    log.append(types.METRICS_RECORDED, types.MetricsRecorded(run=run, step="train", series=[series]))


def fail(log: Log, run: str, step: str) -> None:
    log.append(types.STEP_FAILED, types.StepFailed(run=run, step=step, identity=digest(step), error=f"{step}: full"))


def take(log: Log, run: str, draw: random.Random) -> None:
    made = [(i, event) for i, event in log.events() if event.type == types.STEP_COMPLETED and event.body["run"] != run]
    if not made:
        return
    index, event = draw.choice(made)
    body = event.body
    log.append(
        types.STEP_CACHED,
        types.StepCached(
            run=run,
            step=body["step"],
            identity=body["identity"],
            inputs=dict(body["inputs"]),
            output=output(body["run"], body["step"]) if body["run"] in RUNS else output("x", "y"),
            completed_at=index,
        ),
    )


def train(log: Log, run: str, draw: random.Random) -> None:
    log.append(
        types.TRAIN_STARTED,
        types.TrainStarted(
            run=run,
            first_step=draw.choice((0, 30)),
            num_steps=90,
            state=digest("state 0"),
            manifest=digest("manifest"),
            program={"flags": ["--x"]},
            seeds={"seed": "0"},
            devices=1,
            attempt=1,
        ),
    )


def segments(log: Log, run: str, draw: random.Random) -> None:
    first = draw.choice((0, 30, 60, 15))
    segment(log, run, first, first + draw.choice((15, 30)))
    if draw.random() < 0.1:
        log.entries[-2].body["losses"][0] = (9.0).hex()


def end(log: Log, run: str) -> None:
    outputs = {step: output(run, step) for step in STEPS}
    log.append(types.RUN_COMPLETED, types.RunCompleted(run=run, outputs=outputs, metrics={}))


def evaluate(log: Log, run: str, draw: random.Random) -> None:
    metrics = {"loss": draw.choice((2.25, 3.5)).hex(), "pairs/a": (0.5).hex()}
    log.append(types.EVAL_COMPLETED, types.EvalCompleted(run=run, model=digest("m"), metrics=metrics))


def export(log: Log, run: str, draw: random.Random) -> None:
    made = output(run, draw.choice(("export", "train")))
    log.append(types.MODEL_EXPORTED, types.ModelExported(run=run, format="hf", model=digest("m"), output=made))


def register(log: Log, draw: random.Random) -> None:
    log.append(
        EXPERIMENT_REGISTERED,
        ExperimentRegistered(
            experiment=draw.choice(("exp1", "exp2")),
            registration=digest("registration"),
            file="exp.py",
            file_digest=digest("file"),
            question="does it?",
            hypothesis="it `does`",
            primary={"name": "loss", "direction": "lower"},
            secondary=[],
            arms={},
            baseline="a",
            seeds=["0"],
            test="t",
            alternative="less",
            alpha=0.05,
            stopping_rule="",
            cost_cap={},
        ),
        stream="experiments",
    )


def report(log: Log, draw: random.Random) -> None:
    log.append(
        EXPERIMENT_REPORTED,
        ExperimentReported(
            experiment=draw.choice(("exp1", "exp2")),
            registration=digest("registration"),
            verdict="confirmatory",
            supported=True,
            deviations=[],
            artifact=digest("report"),
            runs=list(RUNS),
        ),
        stream="experiments",
    )


def begin_graph(log: Log) -> None:
    log.append(
        GRAPH_STARTED,
        GraphStarted(
            graph=GRAPH,
            name="scaling",
            file="experiments/scaling.py",
            declaration=digest("declaration"),
            steps=3,
            ends=["report"],
            options={"jobs": 2},
            code={"commit": "c0ffee"},
            environment={"python": "3.12"},
        ),
        stream=f"graph/{GRAPH}",
    )


def node(log: Log, draw: random.Random) -> None:
    """A node of the graph begins, fails or ends."""
    address, stream = draw.choice(("own/a", "own/b")), f"graph/{GRAPH}"
    common = {"run": GRAPH, "step": "function", "identity": digest(address), "address": address}
    match draw.randrange(3):
        case 0:
            begun = types.StepStarted(
                **common,
                config_digest=digest("c"),
                config={"n": 1},
                inputs={"a": digest("a")},
                code=digest("k"),
                attempt=1,
            )
            log.append(types.STEP_STARTED, begun, stream=stream)
        case 1:
            done = types.StepCompleted(
                **common,
                inputs={"a": digest("a")},
                output=output("g", address),
                metrics={"n": (1.0).hex()},
                seconds=2.0,
            )
            log.append(types.STEP_COMPLETED, done, stream=stream)
        case _:
            log.append(types.STEP_FAILED, types.StepFailed(**common, error="no"), stream=stream)


def end_graph(log: Log, draw: random.Random) -> None:
    log.append(
        GRAPH_COMPLETED,
        GraphCompleted(
            graph=GRAPH,
            outcome=draw.choice(("completed", "failed", "interrupted")),
            counts={"run": 2, "hit": 1},
            results=digest("results"),
            outputs={"report": output("g", "report")},
            failed=[],
        ),
        stream=f"graph/{GRAPH}",
    )


def interrupt(log: Log, run: str, draw: random.Random) -> None:
    """What the projection does not show, and what does not fit."""
    if draw.random() < 0.5:
        paused = types.StepPaused(run=run, step="train", identity=digest("i"), where="train step 30")
        log.append(types.STEP_PAUSED, paused)
    else:
        log.append(types.STEP_FAILED, types.StepFailed(run=run, step="train", identity=digest("i"), error="x"))
        del log.entries[-1].body["error"]


def at_random(seed: int) -> Log:
    """Runs in any order, with everything that can happen to one, also what never should."""
    draw, log = random.Random(seed), Log()
    register(log, draw)
    for run in RUNS[: draw.randrange(1, 4)]:
        if draw.random() < 0.4:
            whole_run(log, run, steps=60)
        else:
            start(log, run, pipeline=draw.choice(("pipeline", types.DEFAULT_PIPELINE)))
            log.entries[-1].body["experiment"] = draw.choice(("", digest("registration")))
    begin_graph(log)
    moves: list[Callable[[str], object]] = [
        lambda run: begin_step(log, run, draw.choice(STEPS), attempt=draw.randrange(1, 3)),
        lambda run: complete_step(log, run, draw.choice(STEPS)),
        lambda run: fail(log, run, draw.choice(STEPS)),
        lambda run: take(log, run, draw),
        lambda run: train(log, run, draw),
        lambda run: segments(log, run, draw),
        lambda run: segments(log, run, draw),
        lambda run: evaluate(log, run, draw),
        lambda run: export(log, run, draw),
        lambda run: verify(log, run, draw),
        lambda run: verify(log, run, draw),
        lambda run: measure(log, run, draw),
        lambda run: end(log, run) if draw.random() < 0.4 else None,
        lambda _: register(log, draw) if draw.random() < 0.2 else None,
        lambda _: report(log, draw) if draw.random() < 0.2 else None,
        lambda _: node(log, draw),
        lambda _: end_graph(log, draw) if draw.random() < 0.2 else None,
        lambda run: interrupt(log, run, draw),
    ]
    for _ in range(80):
        draw.choice(moves)(draw.choice(RUNS))
    return log


def in_order() -> Log:
    """As it should be: a run, one that takes over from it, verifications, and a run that goes on after one."""
    log = Log()
    whole_run(log, RUNS[0])
    replay(log, RUNS[0])
    start(log, RUNS[1])
    for step in STEPS[:5]:
        made = next(i for i, event in log.events() if event.type == types.STEP_COMPLETED and event.body["step"] == step)
        body = log.entries[made].body
        cached = types.StepCached(
            run=RUNS[1],
            step=step,
            identity=body["identity"],
            inputs=dict(body["inputs"]),
            output=output(RUNS[0], step),
            completed_at=made,
        )
        log.append(types.STEP_CACHED, cached)
    begin_step(log, RUNS[1], "export")
    replay(log, RUNS[1])
    complete_step(log, RUNS[1], "export")
    end(log, RUNS[1])
    replay(log, RUNS[1], divergence={"step": 3})
    return log


IN_ORDER = ("939799409a8a7300", "57b6990e64cc247f")
AT_RANDOM = ("582ceaf23563819b", "b38986ecb26a06e0", "2495670299da0e63")


def test_a_log_as_it_should_be_is_told_as_before() -> None:
    log = in_order()
    assert (fingerprint(log), fingerprint(log, own=False)) == IN_ORDER


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_logs_with_everything_in_any_order_are_told_as_before(first: int) -> None:
    found = " ".join(fingerprint(at_random(seed)) for seed in range(first, first + 20))
    assert hashlib.sha256(found.encode()).hexdigest()[:16] == AT_RANDOM[first // 20]
