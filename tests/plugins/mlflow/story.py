"""Synthetic logs for the tests of the projection: whole runs made of the product's own event bodies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ledger import Event
from marin.record import events as types
from marin.record.events import Body, Output

ORIGIN = "marin.local/0badcafe"
STEPS = ("corpus", "tokenizer", "tokens", "train", "evaluate", "export")
INPUTS = {
    "corpus": (),
    "tokenizer": ("corpus",),
    "tokens": ("corpus", "tokenizer"),
    "train": ("tokens", "tokenizer"),
    "evaluate": ("train", "tokens", "tokenizer", "corpus"),
    "export": ("train", "tokenizer"),
}


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class At:
    origin: str
    size: int


@dataclass
class Log:
    """A log in memory with the face of a verified reader."""

    entries: list[Event] = field(default_factory=list)
    origin: str = ORIGIN

    def append(self, kind: str, body: Body, *, actor: str = "ada", stream: str | None = None) -> int:
        plain = types.write(body)
        name = stream or f"run/{plain['run']}"
        seq = sum(event.stream == name for event in self.entries)
        time = datetime(2026, 11, 20, 23, 59, tzinfo=UTC) + timedelta(seconds=7 * len(self.entries))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.entries.append(Event(f"e{len(self.entries)}", kind, name, seq, stamp, actor, plain))
        return len(self.entries) - 1

    def refresh(self) -> At:
        return At(self.origin, len(self.entries))

    def checkpoint(self) -> At:
        return self.refresh()

    def root(self, size: int) -> bytes:
        return hashlib.sha256(b"".join(event.encode() for event in self.entries[:size])).digest()

    def entry(self, index: int) -> bytes:
        return self.entries[index].encode()

    def events(self, start: int = 0, end: int | None = None, *, lenient: bool = False) -> Iterator[tuple[int, Event]]:
        stop = len(self.entries) if end is None else end
        yield from ((index, self.entries[index]) for index in range(start, stop))


def loss(step: int) -> float:
    return 2.0 + 5.0 / (1.0 + step)


def output(run: str, step: str, artifacts: Mapping[str, str] | None = None) -> Output:
    made = (artifacts or {}).get(step, digest(f"artifact {step} {run}"))
    content = digest(f"content {step} {run}") if step in ("tokens", "train") else made
    return Output(kind="state" if step == "train" else step, digest=content, size=1000, artifact=made)


def start(log: Log, run: str, *, pipeline: str = "pipeline", recipe: types.Json | None = None) -> None:
    recipe = recipe or {
        "seed": "0",
        "dataset": {"kind": "grammar", "name": "grammar"},
        "model": {"architecture": "llama", "num_layers": 4, "hidden_dim": 128, "seq_len": 128, "layers": [1, 2]},
        "trainer": {"batch_size": 16},
        "optimizer": {"learning_rate": (0.003).hex()},
    }
    log.append(
        types.RUN_STARTED,
        types.RunStarted(
            run=run,
            pipeline=pipeline,
            plan=digest("plan"),
            recipe_digest=digest("recipe"),
            recipe=recipe,
            code={"digest": digest("code"), "commit": "c0ffee", "dirty": False},
            environment={"python": "3.12", "cpu": {"cores": 2}},
        ),
    )


def begin_step(log: Log, run: str, step: str, *, attempt: int = 1) -> None:
    inputs = {name: output(run, name).digest for name in INPUTS[step]}
    log.append(
        types.STEP_STARTED,
        types.StepStarted(
            run=run,
            step=step,
            identity=digest(f"identity {step}"),
            config_digest=digest(f"config {step}"),
            config={"size": 7, "rate": (0.5).hex()},
            inputs=inputs,
            code=digest("code"),
            attempt=attempt,
        ),
    )


def complete_step(log: Log, run: str, step: str, artifacts: Mapping[str, str] | None = None) -> int:
    inputs = {name: output(run, name, artifacts).digest for name in INPUTS[step]}
    metrics = {"evaluate": {"loss": (2.25).hex(), "perplexity": (9.5).hex()}, "train": {"loss": loss(119).hex()}}
    return log.append(
        types.STEP_COMPLETED,
        types.StepCompleted(
            run=run,
            step=step,
            identity=digest(f"identity {step}"),
            inputs=inputs,
            output=output(run, step, artifacts),
            metrics=metrics.get(step, {"documents": (10.0).hex()}),
            seconds=1.5,
        ),
    )


def segment(log: Log, run: str, first: int, last: int) -> None:
    log.append(
        types.TRAIN_SEGMENT,
        types.TrainSegment(
            run=run,
            start=first,
            end=last,
            losses=[loss(step).hex() for step in range(first, last)],
            batches=["b"] * (last - first),
            fingerprints=["f"] * (last - first),
            start_state=digest(f"state {first}"),
            end_state=digest(f"state {last}"),
            trace=digest("trace"),
        ),
    )
    log.append(
        types.CHECKPOINT_SAVED,
        types.CheckpointSaved(
            run=run,
            step=last,
            state=digest(f"state {last}"),
            artifact=digest("checkpoint"),
            manifest=digest("manifest"),
            size=9,
        ),
    )


def whole_run(
    log: Log,
    run: str,
    *,
    steps: int = 120,
    artifacts: Mapping[str, str] | None = None,
    steps_of_pipeline: Sequence[str] = STEPS,
) -> None:
    start(log, run)
    for step in steps_of_pipeline:
        begin_step(log, run, step)
        if step == "train":
            log.append(
                types.TRAIN_STARTED,
                types.TrainStarted(
                    run=run,
                    first_step=0,
                    num_steps=steps,
                    state=digest("state 0"),
                    manifest=digest("manifest 0"),
                    program={"flags": ["--x"], "jaxlib": "0.11.2"},
                    seeds={"seed": "0"},
                    devices=1,
                    attempt=1,
                ),
            )
            for first in range(0, steps, 30):
                segment(log, run, first, min(first + 30, steps))
        if step == "evaluate":
            log.append(
                types.EVAL_COMPLETED,
                types.EvalCompleted(
                    run=run, model=digest(f"state {steps}"), metrics={"loss": (2.25).hex(), "perplexity": (9.5).hex()}
                ),
            )
        if step == "export":
            log.append(
                types.MODEL_EXPORTED,
                types.ModelExported(
                    run=run,
                    format="huggingface",
                    model=digest(f"state {steps}"),
                    output=output(run, "export", artifacts),
                ),
            )
        complete_step(log, run, step, artifacts)
    log.append(
        types.RUN_COMPLETED,
        types.RunCompleted(
            run=run,
            outputs={step: output(run, step, artifacts) for step in STEPS},
            metrics={"evaluate.loss": (2.25).hex()},
        ),
    )


def replay(log: Log, run: str, verdicts: Mapping[str, str] | None = None, divergence: types.Json | None = None) -> None:
    words = dict(verdicts or dict.fromkeys(("ledger", "artifacts", "data", "training", "model"), "PASS"))
    log.append(
        types.REPLAY_COMPLETED,
        types.ReplayCompleted(
            run=run,
            verdicts=words,
            training={"mode": "full"},
            first_divergence=divergence,
            log_checkpoint={"origin": ORIGIN, "size": len(log.entries), "root": log.root(len(log.entries)).hex()},
            details={name: [f"{name} checked"] for name in words},
            environment={},
        ),
        actor="bob",
    )
