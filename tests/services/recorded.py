"""A run by its events alone, for tests that need no training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ledger import Draft, canonical_digest
from marin.execution.plan import identity_of, step_config
from marin.history.runs import stream_of
from marin.pipeline.stages import PIPELINE
from marin.plugins.sharing.dossier.stated import NUMBERS, STATED, YES_OR_NO, Value
from marin.recipe.schema import Recipe, digest, from_mapping, plain
from marin.record import events
from marin.record.outputs import KINDS
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
    trained: Mapping[str, float] | None = None,
) -> None:
    """Record one whole run, verified once, with corpus and model in the store; their files lie below ``folder``. ``more``:
    values of its recipe. ``before_train``: records what comes before its training is complete. ``trained``: the metrics of
    its training; with them its steps begin, and all that is said of it agrees."""
    recipe = from_mapping({"seed": 3, "trainer": {"num_steps": 6}} | dict(more or {}), where="test")
    agrees, codes = trained is not None, {step: sha("9") for step in events.STEPS}
    code = {"commit": "c0ffee", "steps": codes if agrees else {}}
    decided = {"code": codes, "lock": sha("d"), "plan": "default", "recipe": digest(recipe)}
    started = events.RunStarted(
        run=run,
        pipeline="default",
        plan=canonical_digest(decided) if agrees else sha("a"),
        recipe_digest=digest(recipe),
        recipe=plain(recipe),
        code=code,
        environment={"processor": {"model": 'A <processor> | of "ours"'}, "lock": sha("d")},
    )
    told = [Draft(events.RUN_STARTED, stream_of(run), events.write(started))]  # two batches: others record in between
    outputs: dict[str, events.Output] = {}
    told_metrics: dict[str, str] = {}
    for number, step in enumerate(events.STEPS):
        if step in files:
            for name, data in files[step].items():
                (folder / step / name).parent.mkdir(exist_ok=True)
                (folder / step / name).write_bytes(data)
            tree = root.store().put_tree(folder / step)
            output = events.Output(kind=KINDS[step], digest=tree.digest, size=tree.size, artifact=tree.digest)
        else:
            output = events.Output(kind=KINDS[step], digest=sha(str(number)), size=7, artifact=sha(str(number)))
        inputs = {name: outputs[name].digest for name in (PIPELINE.step(step).inputs if agrees else outputs)}
        identity = sha("e")
        if agrees:
            identity, begun = _begun(run, step, recipe, inputs)
            told.append(begun)
        if step == "train":
            root.append(told)
            told = []
            before_train()
        if step == "evaluate":
            evaluated = events.EvalCompleted(run=run, model=outputs["train"].digest, metrics={"loss": (5.25).hex()})
            told.append(Draft(events.EVAL_COMPLETED, stream_of(run), events.write(evaluated)))
        outputs[step] = output
        known = METRICS | ({"train": dict(trained), "evaluate": {"loss": 5.25}} if trained is not None else {})
        metrics = {name: value.hex() for name, value in known.get(step, {}).items()}
        told_metrics |= {f"{step}.{name}": value for name, value in metrics.items() if agrees}
        done = events.StepCompleted(
            run=run, step=step, identity=identity, inputs=inputs, output=output, metrics=metrics, seconds=1.5
        )
        told.append(Draft(events.STEP_COMPLETED, stream_of(run), events.write(done)))
    completed = events.RunCompleted(run=run, outputs=outputs, metrics=told_metrics)
    root.append([*told, Draft(events.RUN_COMPLETED, stream_of(run), events.write(completed))])
    checkpoint = root.reader().checkpoint()
    verdict = events.ReplayCompleted(
        run=run,
        verdicts={"ledger": "PASS", "training": "PASS"},
        training={"mode": "full"},
        first_divergence=None,
        log_checkpoint={"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()},
        details={},
        environment={},
    )
    record(root, events.REPLAY_COMPLETED, verdict, stream_of(run))


def _begun(run: str, step: str, recipe: Recipe, inputs: dict[str, str]) -> tuple[str, Draft]:
    """The identity of a step, and that it begins, as its run has it."""
    config = step_config(PIPELINE.step(step), recipe) | ({"sources": {}} if step == "corpus" else {})
    identity = identity_of(step, config, inputs, sha("9"), sha("d"))
    begun = events.StepStarted(
        run=run,
        step=step,
        identity=identity,
        inputs=inputs,
        config=config,
        config_digest=canonical_digest(config),
        code=sha("9"),
        attempt=1,
    )
    return identity, Draft(events.STEP_STARTED, stream_of(run), events.write(begun))
