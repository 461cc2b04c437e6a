"""The fixed-shard train step against Levanter's plain one: paired in one process, alternating, ratios of medians.

    python -m bench.train_step [--sizes 1M,25M] [--devices 1,2] [--pairs 9]

Both take the same model, optimizer, batch and XLA flags. The plain step is what everybody writes: one jitted program
of loss, gradient and update, parameters replicated, batch sharded over the devices. `recording` is what a step pays for
its record: fingerprint, batch digest, digest of the outcome, and its share of the state digest at segment ends.
Each (size, devices) runs in a process of its own, for jax reads the number of devices once.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marin.arithmetic import apply
from marin.recipe import Arithmetic, Execution, Model, Recipe, Trainer

SIZES = {
    "1M": Model(),
    "25M": Model(hidden_dim=512, intermediate_dim=1376, num_layers=6, num_heads=8, num_kv_heads=8),
}
VOCABULARY = 2048
BATCH = 32  # sequences of 128: 4,096 tokens a step
ROW = "{size:>5} {parameters:>11} {devices:>7} {plain:>9} {fixed:>9} {ratio:>6} {recording:>9} {memory:>9}"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """Medians in seconds; ``ratio`` is the median of the pairs' ratios."""

    parameters: int
    plain: float
    fixed: float
    ratio: float
    recording: float
    peak_mib: int


def recipe_of(size: str) -> Recipe:
    """The recipe of one size, at 4,096 tokens a step in eight logical shards."""
    return Recipe(model=SIZES[size], trainer=Trainer(batch_size=BATCH), arithmetic=Arithmetic(microbatch_size=BATCH // 8))


def timed(call: Callable[[], Any]) -> float:
    """Seconds until what ``call`` returns is computed."""
    import jax

    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def plain_step(recipe: Recipe, state: Any, mesh: Any) -> Callable[[Any, Any], Callable[[], Any]]:
    """Levanter's model and optimizer in one jitted, donating program, data parallel over ``mesh``."""
    import equinox as eqx
    import haliax as hax
    import jax
    import optax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P
    from levanter.layers.attention import AttentionMask
    from levanter.models.lm_model import LmExample
    from levanter.optim.config import AdamConfig

    config = recipe.optimizer
    chain = AdamConfig(learning_rate=config.learning_rate, weight_decay=config.weight_decay, beta1=config.beta1,
                       beta2=config.beta2, epsilon=config.epsilon, warmup=config.warmup_steps,
                       max_grad_norm=config.max_grad_norm).build(recipe.trainer.num_steps)
    arrays, static = eqx.partition(state.model, eqx.is_inexact_array)
    everywhere = NamedSharding(mesh, P())
    held = jax.device_put((arrays, chain.init(arrays)), everywhere)

    def loss_of(arrays: Any, tokens: Any, weights: Any) -> Any:
        axes = (hax.Axis("batch", tokens.shape[0]), hax.Axis("position", tokens.shape[1]))
        example = LmExample(hax.named(tokens, axes), hax.named(weights, axes), AttentionMask.causal())
        return eqx.combine(arrays, static).compute_next_token_loss(example).array

    def step(held: Any, tokens: Any, weights: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(held[0], tokens, weights)
        updates, moments = chain.update(grads, held[1], held[0])
        return (optax.apply_updates(held[0], updates), moments), loss

    program = jax.jit(step, donate_argnums=0, out_shardings=everywhere)

    def bound(tokens: Any, weights: Any) -> Callable[[], Any]:
        def call() -> Any:
            nonlocal held
            held, loss = program(held, tokens, weights)
            return held, loss

        return call

    return bound


def measure(size: str, devices: int, pairs: int) -> Measured:
    """In this process: apply the contract, compile both, alternate them."""
    recipe = recipe_of(size)
    apply(recipe.arithmetic, Execution(devices=devices))
    import jax
    import numpy as np

    from marin.training import fingerprint
    from marin.training.data import batch_digest
    from marin.training.loop import step_fingerprint
    from marin.training.state import initial_state, manifest_of
    from marin.training.step import TrainStep, mesh_of

    first = initial_state(recipe, VOCABULARY)
    mesh = mesh_of(devices)
    train = TrainStep(recipe, mesh, first)
    state = train.place(first)
    generator = np.random.default_rng(0)
    tokens = train.batch(generator.integers(0, VOCABULARY, (BATCH, recipe.model.seq_len), dtype=np.int32))
    weights = train.batch(np.ones(tokens.shape, np.float32))
    plain = plain_step(recipe, first, mesh)(tokens, weights)
    outcome = None

    def fixed() -> Any:
        nonlocal state, outcome
        state, outcome = train.run(state, tokens, weights)
        return state.params, state.moments

    timed(fixed), timed(plain), timed(fixed), timed(plain)
    times = [(timed(fixed), timed(plain)) for _ in range(pairs)]
    alone = jax.jit(fingerprint.program)
    leaves = [jax.numpy.asarray(x) for piece in (*state.params, *state.moments) for x in piece]
    jax.block_until_ready(alone(leaves))
    whole = train.collect(state)

    def record() -> Any:
        assert outcome is not None
        batch_digest(np.arange(BATCH), tokens)
        step_fingerprint(outcome)
        return alone(leaves)

    recording = statistics.median(timed(record) for _ in range(7))
    digest = statistics.median(timed(lambda: manifest_of(whole).digest and ()) for _ in range(3))
    fixed_time = statistics.median(pair[0] for pair in times)
    return Measured(
        parameters=sum(x.size for x in jax.tree.leaves(train.layout.named)),
        plain=statistics.median(pair[1] for pair in times), fixed=fixed_time,
        ratio=statistics.median(pair[0] / pair[1] for pair in times),
        recording=(recording + digest / recipe.trainer.steps_per_segment) / fixed_time,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main(arguments: list[str] | None = None) -> int:
    """Print one row per size and device count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1M,25M")
    parser.add_argument("--devices", default="1,2")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        size, devices = options.child.split(":")
        sys.stdout.write(json.dumps(vars(measure(size, int(devices), options.pairs))) + "\n")
        return 0
    sys.stdout.write(ROW.format(size="size", parameters="parameters", devices="devices", plain="plain ms", fixed="fixed ms",
                                ratio="ratio", recording="recording", memory="peak MiB") + "\n")
    for size in options.sizes.split(","):
        for devices in options.devices.split(","):
            command = [sys.executable, "-m", "bench.train_step", "--child", f"{size}:{devices}", "--pairs", str(options.pairs)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            row = Measured(**json.loads(done.stdout.splitlines()[-1]))
            sys.stdout.write(ROW.format(
                size=size, parameters=row.parameters, devices=devices, plain=f"{row.plain * 1e3:.0f}",
                fixed=f"{row.fixed * 1e3:.0f}", ratio=f"{row.ratio:.2f}", recording=f"{row.recording:.2%}",
                memory=row.peak_mib) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
