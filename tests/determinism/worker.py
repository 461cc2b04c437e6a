"""Trains tiny models in a process of its own and prints what their bits came to: one JSON line per case.

    worker.py --devices N [--bare] [--canary] [--processes P --process I --port PORT] CASE.json...

jax reads its flags once, so every device count, thread count or processor that a test compares is such a process. A
case is a JSON object with the fields of :class:`Case`. The line printed for it holds the digest of the whole state
before and after training, and loss, gradient norm and fingerprint of every step as exact hex.

``--bare`` leaves the contract out, for tests that show that it is needed. Under an emulator that has no way to run a
script, :func:`main` is called from ``python -c``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2] if "__file__" in globals() else Path.cwd()
sys.path.insert(0, str(PROJECT))

VOCABULARY = 64


@dataclass(frozen=True)
class Case:
    """What to train. ``devices``: how many of the process's devices. ``resume_at``: stop before these steps, save a
    training checkpoint, and go on from it; ``moves``: with so many devices after each stop. ``replicas``: of how many slices
    of a pod the devices are; ``tensor``: how many of them share matrices;
    ``apart``: over how many experts lie. ``tied``: Llama's embeddings are its head too,
    as GPT-2's always are. ``experts``: of each layer of a mixture, of which a token gets two. ``reference``: what is compiled is
    executed in NumPy and whole numbers."""

    name: str
    architecture: str = "llama"
    optimizer: str = "adamw"
    compute_dtype: str = "float32"
    profile: str = "portable-cpu"
    devices: int = 1
    shards: int = 8
    batch: int = 16
    microbatch: int = 2
    steps: int = 3
    hidden: int = 32
    layers: int = 2
    length: int = 32
    resume_at: tuple[int, ...] = ()
    moves: tuple[int, ...] = ()
    gather: str | None = None
    tied: bool = False
    loss_block: int | None = None
    loss_vocabulary: int | None = None
    replicas: int = 1
    tensor: int = 1
    apart: int = 1
    compiled: bool = False
    experts: int | None = None
    reference: bool = False


def recipe_of(case: Case) -> Any:
    """The recipe of a case; its schedule is as long as the case."""
    from marin.recipe.schema import Model, Recipe, Trainer

    inner = 4 * case.hidden if case.architecture == "gpt2" else 3 * case.hidden
    return Recipe(
        seed=7,
        model=Model(
            architecture=case.architecture,
            hidden_dim=case.hidden,
            intermediate_dim=inner,  # type: ignore[arg-type]
            num_layers=case.layers,
            num_heads=2,
            num_kv_heads=2,
            seq_len=case.length,
            tie_word_embeddings=case.tied,
            **_experts(case),
        ),
        optimizer=_optimizer(case),
        trainer=Trainer(num_steps=case.steps, batch_size=case.batch, steps_per_segment=2),
        arithmetic=_arithmetic(case),
    )  # type: ignore[arg-type]


def _experts(case: Case) -> dict[str, Any]:
    if case.experts is None:
        return {}
    z_loss = {"router_z_loss_coef": 1e-3} if case.architecture == "mixtral" else {}
    return {"num_experts": case.experts, "num_experts_per_tok": 2, "router_aux_loss_coef": 1e-2} | z_loss


def _optimizer(case: Case) -> Any:
    from marin.recipe.form.optimizer import completed
    from marin.recipe.schema import Optimizer

    decay = {"weight_decay": 0.0} if case.optimizer in ("muonh", "adamh") else {}
    scaled = {"use_kimi_scaling": True} if (case.optimizer, case.architecture) == ("muon", "gpt2") else {}
    return completed(Optimizer(name=case.optimizer, warmup_steps=2, learning_rate=1e-2, **decay, **scaled))  # type: ignore[arg-type]


def _arithmetic(case: Case) -> Any:
    from marin.recipe.schema import Arithmetic

    if case.profile == "exact":
        return Arithmetic(
            profile="exact",
            logical_shards=1,
            microbatch_size=case.batch,
            reduction="integer",
            isa="any",
            xla_flags=(),
            gather=case.gather,  # type: ignore[arg-type]
        )
    return Arithmetic(
        logical_shards=case.shards,
        microbatch_size=case.microbatch,  # type: ignore[arg-type]
        compute_dtype=case.compute_dtype,  # type: ignore[arg-type]
        gather=case.gather,  # type: ignore[arg-type]
        loss_block=case.loss_block,
        loss_vocabulary=case.loss_vocabulary,
    )


def batch_of(case: Case, step: int) -> tuple[Any, Any]:
    """Tokens and a ragged loss mask of one step: rows of very different weight, some with none at all."""
    import numpy as np

    generator = np.random.default_rng([11, step])
    tokens = generator.integers(0, VOCABULARY, (case.batch, case.length), dtype=np.int32)
    used = generator.integers(0, case.length, (case.batch, 1))
    used[0], used[1] = 0, case.length - 1
    return tokens, (np.arange(case.length) < used).astype(np.float32)


def train(case: Case, kept: Path | None = None) -> dict[str, Any] | None:
    """Train one case and describe it. With ``kept``, the state after two steps is saved in that folder, another step is
    done and lost, and there is nothing to describe; called again, it goes on from what was saved."""
    from marin.training.checkpoints.saving import save
    from marin.training.checkpoints.whole import load
    from marin.training.initial import initial_state
    from marin.training.loop import step_of
    from marin.training.state import manifest_of
    from marin.training.step.contract import mesh_of

    recipe = recipe_of(case)
    first = initial_state(recipe, VOCABULARY)
    if case.reference:
        return _described(case, first, *_by_reference(case, recipe, first))
    step = step_of(recipe, mesh_of(case.devices, case.replicas, case.tensor, case.apart), first)
    state = step.place(first)
    steps = []
    begin, saved = 0, kept / case.name if kept is not None else None
    if saved is not None and saved.exists():
        record = json.loads((saved / "record.json").read_text())
        whole, _ = load(saved / "checkpoint", recipe, VOCABULARY, record["state"], where=case.name)
        state, steps, begin = step.place(whole), record["steps"], len(record["steps"])
    moves = dict(zip(case.resume_at, case.moves, strict=False))
    for number in range(begin, case.steps):
        if saved is not None and number == 2 and begin == 0:
            saved.mkdir()
            whole = step.collect(state)
            save(whole, saved / "checkpoint")
            (saved / "record.json").write_text(json.dumps({"state": manifest_of(whole).digest, "steps": steps}))
        if saved is not None and number == 3 and begin == 0:
            return None
        if number in case.resume_at:
            with tempfile.TemporaryDirectory() as folder:
                whole = step.collect(state)
                save(whole, Path(folder) / "checkpoint")
                whole, _ = load(
                    Path(folder) / "checkpoint", recipe, VOCABULARY, manifest_of(whole).digest, where=case.name
                )
            step = step_of(recipe, mesh_of(moves.get(number, case.devices)), whole)
            state = step.place(whole)
        tokens, weights = batch_of(case, number)
        state, outcome = step.run(state, step.batch(tokens), step.batch(weights))
        steps.append(
            [outcome.loss.tobytes().hex(), outcome.grad_norm.tobytes().hex(), outcome.fingerprint.tobytes().hex()]
        )
    found = _described(case, first, step.collect(state), steps, float(outcome.loss))
    return found | {"program": dict(step.program()), "foreign": step.foreign_products()} if case.compiled else found


def _described(case: Case, first: Any, last: Any, steps: list[list[str]], loss: float) -> dict[str, Any]:
    from marin.training.state import manifest_of

    manifest = manifest_of(last)
    return {
        "name": case.name,
        "start": manifest_of(first).digest,
        "state": manifest.digest,
        "steps": steps,
        "loss": loss,
        "tensors": {tensor.path: tensor.digest for tensor in manifest.tensors},
    }


def _by_reference(case: Case, recipe: Any, first: Any) -> tuple[Any, list[list[str]], float]:
    """The last state, what is printed of the train steps, and the last loss, without a compiler (docs/exact.md)."""
    import equinox as eqx
    import jax
    import numpy as np
    from haliax.jax_utils import is_jax_array_like

    from marin.plugins.exact import reference
    from marin.plugins.exact.step import gradient_of, update_of
    from marin.training.optimizers.rule import optimizer
    from marin.training.state import arrays_of
    from marin.training.step import fingerprint
    from marin.training.step.slices import Layout

    layout = Layout(first, optimizer(recipe), 1)
    programs = gradient_of(recipe, layout).program, update_of(recipe, layout).program
    step, cursor, *rest = (np.asarray(x) for x in arrays_of(first).values())
    key, *own = rest
    count, steps, mean = len(layout.params), [], np.float32(0)
    for number in range(case.steps):
        *grads, square, loss, weight = reference.run(programs[0], [*own[:count], *batch_of(case, number)])[: count + 3]
        given = [*own, *grads]
        if recipe.optimizer.elementwise:
            given = [x.reshape(-1) if x.ndim else x for x in given]
        *after, mean, norm = reference.run(programs[1], [*given, square, loss, weight])
        own = [made.reshape(x.shape) for made, x in zip(after, own, strict=True)]
        step, cursor = step + np.int32(1), cursor + np.uint32(case.batch)
        prints = np.stack([fingerprint.of(x) for x in (step, cursor, key, *own)])
        steps.append([mean.tobytes().hex(), norm.tobytes().hex(), prints.tobytes().hex()])
    tensors, plain = eqx.partition(first, is_jax_array_like)
    last = jax.tree.unflatten(jax.tree.structure(tensors), [step, cursor, key, *own])
    return eqx.combine(last, plain), steps, float(mean)


def main(arguments: list[str]) -> None:
    """See the file's docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--canary", action="store_true", help="print the answer of the known-answer test first")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--kept", type=Path, help="folder for states: what has none there yet is killed on its way")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args(arguments)
    names = {field.name for field in fields(Case)}
    cases = []
    for text in options.cases:
        given = json.loads(text)
        assert given.keys() <= names, given
        cases.append(Case(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}))
    if not options.bare:
        from marin.process.arithmetic import apply
        from marin.recipe.schema import Arithmetic, Execution

        alone = bool(cases) and all(case.profile == "exact" for case in cases) and not options.canary
        apply(_arithmetic(cases[0]) if alone else Arithmetic(), Execution(devices=options.devices))
    import jax

    if options.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{options.port}", options.processes, options.process)
    if cache := os.environ.get("TEST_COMPILATION_CACHE"):
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    if options.canary:
        from marin.training.runtime import canary

        sys.stdout.write(json.dumps({"name": "canary", "answer": canary.answer()}) + "\n")
    for case in cases:
        result = train(case, options.kept)
        if result is not None:
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
    if options.kept is not None and result is None:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
