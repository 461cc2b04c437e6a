"""A run by its events alone, for tests that need no training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ledger import Draft
from marin.dossier.stated import NUMBERS, STATED, YES_OR_NO, Value
from marin.history.runs import stream_of
from marin.recipe.schema import digest, from_mapping, plain
from marin.record import events
from marin.record.root import Root

RUN = "2khr7ocq"
type Files = dict[str, dict[str, bytes]]
FILES: Files = {
    "corpus": {
        "train.jsonl": b'{"text": "a cat"}\n',
        "validation.jsonl": b'{"text": "a dog"}\n',
        "dataset.json": b"{}\n",
    },
    "export": {"config.json": b'{"a": 1}\n', "model.safetensors": bytes(range(256)), "tokenizer.json": b"{}\n"},
}
METRICS = {"corpus": {"train_documents": 46.0, "train_bytes": 60_000.0}, "tokens": {"train_tokens": 41_000.0}}


def full_card() -> dict[str, Value]:
    """A card that answers everything: yes, wherever that is a question."""
    return {
        name: True if name in YES_OR_NO else 1.5 if name in NUMBERS else "as the provider says" for name in STATED
    } | {"model.licence": "Apache-2.0", "data.licence": "Apache-2.0", "data.language": ["en"], "model.base": "none"}


def sha(letter: str) -> str:
    return "sha256:" + letter * 64


def record(root: Root, kind: str, body: events.Body, stream: str = stream_of(RUN)) -> int:
    (receipt,) = root.append([Draft(kind, stream, events.write(body))])
    return receipt.index


def record_run(
    root: Root,
    folder: Path,
    run: str = RUN,
    files: Files = FILES,
    more: Mapping[str, Any] | None = None,
    before_train: Callable[[], object] = lambda: None,
) -> None:
    """Record one whole run, verified once, with corpus and model in the store; their files lie below ``folder``. ``more``:
    values of its recipe. ``before_train``: records what comes before its training is complete."""
    recipe = from_mapping({"seed": 3, "trainer": {"num_steps": 6}} | dict(more or {}), where="test")
    code = {"commit": "c0ffee", "steps": {}}
    started = events.RunStarted(
        run=run, pipeline="default", plan=sha("a"), recipe_digest=digest(recipe), recipe=plain(recipe), code=code,
        environment={"processor": {"model": "A <processor> | of \"ours\""}, "lock": sha("d")},
    )  # fmt: skip
    record(root, events.RUN_STARTED, started, stream_of(run))
    outputs = {}
    for number, step in enumerate(events.STEPS):
        kind = {"corpus": "corpus", "export": "model", "train": "state"}.get(step, step)
        if step in files:
            for name, data in files[step].items():
                (folder / step / name).parent.mkdir(exist_ok=True)
                (folder / step / name).write_bytes(data)
            tree = root.store().put_tree(folder / step)
            output = events.Output(kind=kind, digest=tree.digest, size=tree.size, artifact=tree.digest)
        else:
            output = events.Output(kind=kind, digest=sha(str(number)), size=7, artifact=sha(str(number)))
        if step == "train":
            before_train()
        if step == "evaluate":
            told = events.EvalCompleted(run=run, model=outputs["train"].digest, metrics={"loss": (5.25).hex()})
            record(root, events.EVAL_COMPLETED, told, stream_of(run))
        inputs = {name: outputs[name].digest for name in outputs}
        outputs[step] = output
        metrics = {name: value.hex() for name, value in METRICS.get(step, {}).items()}
        done = events.StepCompleted(
            run=run, step=step, identity=sha("e"), inputs=inputs, output=output, metrics=metrics, seconds=1.5
        )
        record(root, events.STEP_COMPLETED, done, stream_of(run))
    record(root, events.RUN_COMPLETED, events.RunCompleted(run=run, outputs=outputs, metrics={}), stream_of(run))
    checkpoint = root.reader().checkpoint()
    verdict = events.ReplayCompleted(
        run=run, verdicts={"ledger": "PASS", "training": "PASS"}, training={"mode": "full"}, first_divergence=None,
        log_checkpoint={"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()},
        details={}, environment={},
    )  # fmt: skip
    record(root, events.REPLAY_COMPLETED, verdict, stream_of(run))
