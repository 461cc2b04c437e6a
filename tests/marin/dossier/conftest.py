"""A run as its events have it, with a small model in the store; nothing is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from recorded import RUN, record, sha

from marin.recipe.schema import digest, from_mapping, plain
from marin.record import events
from marin.record.root import Root, open_root

FILES = {
    "corpus": {
        "train.jsonl": b'{"text": "a cat"}\n',
        "validation.jsonl": b'{"text": "a dog"}\n',
        "dataset.json": b"{}\n",
    },
    "export": {"config.json": b'{"a": 1}\n', "model.safetensors": bytes(range(256)), "tokenizer.json": b"{}\n"},
}
NUMBERS = {"corpus": {"train_documents": 46.0, "train_bytes": 60_000.0}, "tokens": {"train_tokens": 41_000.0}}


@pytest.fixture
def root(project: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A root with one whole run, verified once."""
    monkeypatch.chdir(project)
    root = open_root()
    recipe = from_mapping({"seed": 3, "trainer": {"num_steps": 6}}, where="test")
    code = {"commit": "c0ffee", "steps": {}}
    started = events.RunStarted(
        run=RUN, pipeline="default", plan=sha("a"), recipe_digest=digest(recipe), recipe=plain(recipe), code=code,
        environment={"processor": {"model": "A <processor> | of \"ours\""}, "lock": sha("d")},
    )  # fmt: skip
    record(root, events.RUN_STARTED, started)
    outputs = {}
    for number, step in enumerate(events.STEPS):
        kind = {"corpus": "corpus", "export": "model", "train": "state"}.get(step, step)
        if step in FILES:
            for name, data in FILES[step].items():
                (project / step / name).parent.mkdir(exist_ok=True)
                (project / step / name).write_bytes(data)
            tree = root.store().put_tree(project / step)
            output = events.Output(kind=kind, digest=tree.digest, size=tree.size, artifact=tree.digest)
        else:
            output = events.Output(kind=kind, digest=sha(str(number)), size=7, artifact=sha(str(number)))
        if step == "evaluate":
            told = events.EvalCompleted(run=RUN, model=outputs["train"].digest, metrics={"loss": (5.25).hex()})
            record(root, events.EVAL_COMPLETED, told)
        inputs = {name: outputs[name].digest for name in outputs}
        outputs[step] = output
        metrics = {name: value.hex() for name, value in NUMBERS.get(step, {}).items()}
        done = events.StepCompleted(
            run=RUN, step=step, identity=sha("e"), inputs=inputs, output=output, metrics=metrics, seconds=1.5
        )
        record(root, events.STEP_COMPLETED, done)
    record(root, events.RUN_COMPLETED, events.RunCompleted(run=RUN, outputs=outputs, metrics={}))
    checkpoint = root.reader().checkpoint()
    verdict = events.ReplayCompleted(
        run=RUN, verdicts={"ledger": "PASS", "training": "PASS"}, training={"mode": "full"}, first_divergence=None,
        log_checkpoint={"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()},
        details={}, environment={},
    )  # fmt: skip
    record(root, events.REPLAY_COMPLETED, verdict)
    return root


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A private key for the model's signature."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*form))
    return tmp_path / "key.pem"
