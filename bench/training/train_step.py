"""The fixed-shard train step against Levanter's own: two processes that take turns, ratios of medians of pairs.

    python -m bench.training.train_step [--sizes 1M,25M,moe-1M,moe-25M] [--devices 1,2] [--peers stock,sharded]
                                [--pages product|both|neither] [--own exact|muon] [--pairs 9] [--seconds S] [--keep FILE]

`stock` is Levanter as it comes: its Trainer, its model and optimizer, no XLA flag of ours, parameters replicated over
the devices (on one device the only way there is). `sharded` is the same with its default FSDP mapping, the embedding
axis of parameters and moments over the devices. `exact` is no Levanter but our own step under that profile; with
`--own exact` it is that step which is set beside the peers; `muon` is the same with another optimizer. `moe-1M` and `moe-25M`
are `model=moe-1m` and `moe-25m`, beside Levanter's own Mixtral, and have `exact` alone. Ours always has its state sharded.
Model sizes, batch, optimizer and precision are the same. A pair is one step of each, one after the other, in processes that
both stay, and in turn the one or the other first: so what else the machine does falls on both. `noise` is half the distance
of the quartiles of the pairs' ratios; `processor` is the ratio of the processor time of both processes, the median of pairs,
which says more where others keep the machine busy. What it took to the first step, on the clock and of a processor, goes
to the messages.

A machine is seldom idle for long, so it can be measured in slices: `--seconds` ends the pairs of a row, and `--keep`
adds them to a file of JSON lines; a row is then about all pairs of its kind in that file that the same code gave.

`--pages` says who gets huge pages (`marin/process/interpreter.py`): `product` is ours, as `marin` begins, and the
other as it comes; with `both` or `neither` only the step differs. `page faults` are those of a step, the median.

`peak` is the most memory of a process while it steps, after compilation. `recording` is what a step of ours pays for
its record: fingerprints (updates that take them beside updates that do not, the median of pairs), batch digest, digest
of the outcome, and its share of the state digest and of appending the segment's events at segment ends (a log on this
disk, fsync and all).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from marin.process import interpreter
from marin.process.arithmetic import apply
from marin.provenance.code import files_digest
from marin.recipe.form.optimizer import completed
from marin.recipe.schema import Arithmetic, Execution, Model, Optimizer, Recipe, Trainer

SIZES = {"1M": Model(), "25M": Model(hidden_dim=512, intermediate_dim=1376, num_layers=7, num_heads=8, num_kv_heads=8)}
EXPERTS: dict[str, Any] = {
    "architecture": "mixtral",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "router_aux_loss_coef": 0.01,
    "router_z_loss_coef": 0.001,
}
SIZES |= {
    "moe-1M": Model(intermediate_dim=176, **EXPERTS),
    "moe-25M": Model(hidden_dim=512, intermediate_dim=688, num_layers=6, num_heads=8, num_kv_heads=8, **EXPERTS),
}
VOCABULARY = 2048
BATCH = 32  # sequences of 128: 4,096 tokens a step
EXACT = 8  # sequences of a microbatch under profile exact (conf/profile/exact.yaml)
WARM = 2
UPDATES = 15
ROW = (
    "{size:>4} {parameters:>10} {devices:>7} {peer:>11} {pages:>7} {pairs:>5} {theirs:>8} {ours:>8} {ratio:>6} {noise:>6} "
    "{processor:>9} "
    "{peak:>12} {faults:>15} {recording:>9}"
)
Pages = Literal["product", "both", "neither"]


def recipe_of(size: str) -> Recipe:
    """The recipe of one size, at 4,096 tokens a step in eight logical shards."""
    return Recipe(
        model=SIZES[size], trainer=Trainer(batch_size=BATCH), arithmetic=Arithmetic(microbatch_size=BATCH // 8)
    )


# -- in a process of its own ------------------------------------------------------------------------------------------


def serve(what: str, size: str, devices: int) -> None:
    """Compile, say what was made, and step whenever a line comes."""
    began = time.perf_counter()
    match what:
        case "ours":
            step, record, parameters = ours(size, devices)
        case "exact" | "muon":
            step, record, parameters = exact(size, devices, "muon" if what == "muon" else "adamw")
        case _:
            os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
            os.environ["JAX_PLATFORMS"] = "cpu"
            step, parameters = levanters(recipe_of(size), VOCABULARY, sharded=what == "sharded")
            record = zero
    sys.stderr.write(
        f"{what}: {time.perf_counter() - began:.1f} s to the first step, {time.process_time():.1f} s of a processor: imports, "
        "state, compilation\n"
    )
    for _ in range(WARM):  # the first of these may fall beside the other's compilation
        step()
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory counts from here
    say({"parameters": parameters})
    for line in sys.stdin:
        match line.strip():
            case "step":
                began, worked = time.perf_counter(), time.process_time()
                faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                step()
                took = {"seconds": time.perf_counter() - began, "processor": time.process_time() - worked}
                say({**took, "faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults})
            case "record":
                say({"seconds": record()})
            case "peak":
                status = Path("/proc/self/status").read_text()
                say({"mib": int(status.partition("VmHWM:")[2].split()[0]) // 1024})


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


Served = tuple[Callable[[], None], Callable[[], float], int]


def ours(size: str, devices: int) -> Served:
    """The product's step under its contract."""
    recipe = recipe_of(size)
    apply(recipe.arithmetic, Execution(devices=devices))
    import jax
    import numpy as np

    from marin.training.checkpoints.digesting import describe
    from marin.training.data import batch_digest
    from marin.training.initial import initial_state
    from marin.training.loop import fingerprint_of
    from marin.training.state import state_like
    from marin.training.step import update as programs
    from marin.training.step.contract import StepOutcome, mesh_of
    from marin.training.step.shards import TrainStep

    first = initial_state(recipe, VOCABULARY)
    train = TrainStep(recipe, mesh_of(devices), first)
    state = train.place(first)
    tokens_here, weights_here = numbers(recipe)
    tokens, weights = train.batch(tokens_here), train.batch(weights_here)
    outcome: StepOutcome | None = None

    def step() -> None:
        nonlocal state, outcome
        state, outcome = train.run(state, tokens, weights)
        jax.block_until_ready((state.params, state.moments))

    parameters = sum(x.size for x in jax.tree.leaves(train.layout.named))

    def fingerprints() -> float:
        """Seconds that fingerprints take of a step: its updates, and the sum over slices, beside updates that take
        none."""
        nonlocal state
        print_of, programs.slice_print = (programs.slice_print, lambda *_: jax.numpy.zeros(2, jax.numpy.uint32))
        silent = TrainStep(recipe, mesh_of(devices), state_like(recipe, VOCABULARY))
        programs.slice_print = print_of
        grads, loss, weight = train.programs.exchange(train.sums(train.programs.gather(state.params), tokens, weights))
        square = train.programs.total(tuple(train.programs.square(piece) for piece in grads))
        times: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(UPDATES + 1):
            for printing in ((True, False), (False, True))[turn % 2]:
                program, before = train if printing else silent, state
                began = time.perf_counter()
                made = [
                    program.programs.update(
                        before.params[j], before.moments[j], grads[j], train.slice_numbers[j], square, loss, weight
                    )[0]
                    for j in range(train.local_shards)
                ]
                jax.block_until_ready(
                    (made, train.programs.prints(tuple(piece[2] for piece in made)) if printing else ())
                )
                times[printing].append(time.perf_counter() - began)
                state = replace(
                    before, params=tuple(piece[0] for piece in made), moments=tuple(piece[1] for piece in made)
                )
        return statistics.median(one - other for one, other in zip(times[True][1:], times[False][1:], strict=True))

    def record() -> float:
        def each() -> None:
            batch_digest(np.arange(BATCH), tokens)
            assert outcome is not None
            fingerprint_of(outcome)

        rare = median(lambda: describe(state, train.layout).digest, 5) + appended(recipe.trainer.steps_per_segment)
        parts = fingerprints(), median(each, 7), rare / recipe.trainer.steps_per_segment
        sys.stderr.write(
            f"recording, ms: fingerprints {parts[0] * 1e3:.2f}, digests of the step {parts[1] * 1e3:.2f}, "
            f"state digest and events {parts[2] * 1e3:.2f}\n"
        )
        return sum(parts)

    del first
    return step, record, parameters


def exact(size: str, devices: int, rule: Literal["adamw", "muon"]) -> Served:
    """The product's step under profile exact: the same model and batch, in microbatches as the profile is shipped."""
    contract = Arithmetic(
        profile="exact", logical_shards=1, microbatch_size=EXACT, reduction="integer", isa="any", xla_flags=()
    )
    recipe = msgspec.structs.replace(recipe_of(size), arithmetic=contract, optimizer=completed(Optimizer(name=rule)))
    apply(contract, Execution(devices=devices))
    import jax

    from marin.plugins.exact.step import ExactStep
    from marin.training.initial import initial_state
    from marin.training.step.contract import mesh_of

    first = initial_state(recipe, VOCABULARY)
    train = ExactStep(recipe, mesh_of(devices), first)
    state = train.place(first)
    tokens, weights = (train.batch(values) for values in numbers(recipe))

    def step() -> None:
        nonlocal state
        state, _ = train.run(state, tokens, weights)
        jax.block_until_ready((state.params, state.moments))

    return step, zero, sum(x.size for x in jax.tree.leaves(train.layout.named))


def appended(steps: int) -> float:
    """Seconds to append the two events that end a segment, each durable before the next."""
    from ledger import Draft, digest_bytes
    from marin.record.creation import create_root
    from marin.record.events import CHECKPOINT_SAVED, TRAIN_SEGMENT, CheckpointSaved, TrainSegment, write

    digest = digest_bytes(b"")
    segment = TrainSegment(
        run="r",
        start=0,
        end=steps,
        losses=[(1 / 3).hex()] * steps,
        batches=[digest] * steps,
        fingerprints=[digest] * steps,
        start_state=digest,
        end_state=digest,
        trace=digest,
    )
    saved = CheckpointSaved(run="r", step=steps, state=digest, artifact=digest, manifest=digest, size=1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        root = create_root(str(Path(folder) / "root"))

        def append() -> None:
            root.append([Draft(CHECKPOINT_SAVED, "run/r", write(saved))])
            root.append([Draft(TRAIN_SEGMENT, "run/r", write(segment))])

        return median(append, 5)


def zero() -> float:
    """What recording costs who records nothing."""
    return 0.0


def levanters(recipe: Recipe, vocab_size: int, *, sharded: bool) -> tuple[Callable[[], None], int]:
    """Levanter's Trainer as it comes, on the devices that jax has here: a step, and how many parameters it trains."""
    import haliax as hax
    import jax
    import jmp
    from levanter.checkpoint import CheckpointerConfig
    from levanter.distributed import DistributedConfig
    from levanter.layers.attention import AttentionMask
    from levanter.models.llama import LlamaConfig
    from levanter.models.lm_model import LmExample
    from levanter.models.mixtral import MixtralConfig
    from levanter.optim.config import AdamConfig
    from levanter.tracker import defer_tracker_for_jit
    from levanter.tracker.tracker import NoopConfig
    from levanter.trainer import Trainer as LevanterTrainer
    from levanter.trainer import TrainerConfig
    from levanter.utils.mesh import MeshConfig

    model, chosen = recipe.model, recipe.optimizer
    experts = {
        "n_routed_experts": model.num_experts,
        "num_experts_per_tok": model.num_experts_per_tok,
        "lbl_coef": model.router_aux_loss_coef,
        "rzl_coef": model.router_z_loss_coef,
    }
    config = (partial(MixtralConfig, **experts) if model.sparse else LlamaConfig)(
        max_seq_len=model.seq_len,
        hidden_dim=model.hidden_dim,
        intermediate_dim=model.intermediate_dim,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        tie_word_embeddings=model.tie_word_embeddings,
        gradient_checkpointing=model.gradient_checkpointing,
    )
    optimizer = AdamConfig(
        learning_rate=chosen.learning_rate,
        weight_decay=chosen.weight_decay,
        beta1=chosen.beta1,
        beta2=chosen.beta2,
        epsilon=chosen.epsilon,
        warmup=chosen.warmup_steps,
        max_grad_norm=chosen.max_grad_norm,
    ).build(recipe.trainer.num_steps)

    def loss_of(model: Any, example: LmExample, key: Any = None) -> Any:
        with defer_tracker_for_jit():  # else a Mixtral tells its loads by a callback, which jax does not differentiate
            return model.compute_next_token_loss(example, key=key)

    folder = tempfile.mkdtemp(prefix="bench-")
    trainer = LevanterTrainer(
        TrainerConfig(
            id="bench",
            require_accelerator=False,
            distributed=DistributedConfig(initialize_jax_distributed=False),
            tracker=NoopConfig(),
            mp=jmp.get_policy(f"params=float32,compute={recipe.arithmetic.compute_dtype},output=float32"),
            train_batch_size=recipe.trainer.batch_size,
            num_train_steps=recipe.trainer.num_steps,
            log_jaxprs=False,
            log_xla_hlo=False,
            load_checkpoint=False,
            checkpointer=CheckpointerConfig(base_path=folder),
            log_dir=Path(folder),
            mesh=MeshConfig() if sharded else MeshConfig(param_mapping={}),
        ),
        optimizer,
        loss_of,
        add_default_hooks=False,
    )
    trainer.__enter__()
    Vocab = hax.Axis("vocab", vocab_size)
    state = trainer.initial_state(
        jax.random.PRNGKey(0), model_init=lambda: config.build(Vocab, key=jax.random.PRNGKey(1))
    )
    parameters = sum(x.size for x in jax.tree.leaves(state.trainable_model))
    tokens, weights = numbers(recipe, vocab_size)
    axes = (hax.Axis("batch", recipe.trainer.batch_size), hax.Axis("position", model.seq_len))
    example = hax.shard(
        LmExample(hax.named(tokens, axes), hax.named(weights, axes), AttentionMask.causal()),
        trainer.compute_axis_mapping,
    )

    def step() -> None:
        nonlocal state
        state = trainer.train_step(state, example).state
        jax.block_until_ready(jax.tree.leaves(state.trainable_model))

    return step, parameters


def numbers(recipe: Recipe, vocab_size: int = VOCABULARY) -> tuple[Any, Any]:
    """Tokens int32[batch, seq_len] and weights of one."""
    import numpy as np

    shape = recipe.trainer.batch_size, recipe.model.seq_len
    tokens = np.random.default_rng(0).integers(0, vocab_size, shape, dtype=np.int32)
    return tokens, np.ones(tokens.shape, np.float32)


def median(call: Callable[[], object], times: int) -> float:
    """Median seconds of ``call``."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


# -- the one that asks ------------------------------------------------------------------------------------------------


class Peer:
    """One of the processes."""

    def __init__(self, what: str, size: str, devices: int, pages_of: Pages) -> None:
        large = pages_of == "both" or (pages_of == "product" and what in ("ours", "exact", "muon"))
        pages = interpreter.tunables_for(["train"], os.environ) if large else None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.training.train_step", "--serve", f"{what}:{size}:{devices}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ({interpreter.VARIABLE: pages} if pages else {}),
        )
        self.parameters = 0

    def ready(self) -> None:
        """Wait until it has compiled."""
        self.parameters = int(self._heard()["parameters"])

    def ask(self, question: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return self._heard()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError(f"the process ended with status {self._process.wait()}")


@contextmanager
def both(own: str, peer: str, size: str, devices: int, pages: Pages) -> Iterator[tuple[Peer, Peer]]:
    """Ours and the other, compiled."""
    mine = Peer(own, size, devices, pages)
    theirs = Peer(peer, size, devices, pages)
    mine.ready()
    theirs.ready()
    try:
        yield mine, theirs
    finally:
        mine.end()
        theirs.end()


def compare(own: str, peer: str, size: str, devices: int, pages: Pages, pairs: int, seconds: float) -> dict[str, Any]:
    """Pairs of one row (seconds of ours and of the other, on the clock and of a processor), page faults of a step, peaks
    of memory in MiB, what recording takes, parameters."""
    with both(own, peer, size, devices, pages) as (mine, theirs):
        began, times, worked = time.monotonic(), list[tuple[float, float]](), list[tuple[float, float]]()
        faults = list[tuple[int, int]]()
        while len(times) < pairs and (time.monotonic() - began < seconds or not times):
            took = {side: side.ask("step") for side in ((mine, theirs), (theirs, mine))[len(times) % 2]}
            times.append((took[mine]["seconds"], took[theirs]["seconds"]))
            worked.append((took[mine]["processor"], took[theirs]["processor"]))
            faults.append((took[mine]["faults"], took[theirs]["faults"]))
        peaks = [mine.ask("peak")["mib"], theirs.ask("peak")["mib"]]
        return {
            "row": f"{size} {devices} {peer if own == 'ours' else f'{own}/{peer}'} {pages}",
            "pairs": times,
            "worked": worked,
            "faults": faults,
            "peaks": peaks,
            "recording": mine.ask("record")["seconds"],
            "parameters": mine.parameters,
        }


def kept(file: Path | None, found: dict[str, Any]) -> list[dict[str, Any]]:
    """``found``, and what the file has of the same row and the same code; ``found`` is added to it."""
    if file is None:
        return [found]
    found = {
        "code": files_digest(
            Path(__file__).resolve().parents[2],
            ("marin/plugins/exact", "marin/training", "bench/training/train_step.py"),
        ),
        **found,
    }
    with file.open("a+", encoding="utf-8") as lines:
        lines.seek(0)
        known = [json.loads(line) for line in lines]
        lines.write(json.dumps(found) + "\n")
    return [item for item in (*known, found) if (item["row"], item["code"]) == (found["row"], found["code"])]


def row_of(slices: list[dict[str, Any]]) -> str:
    """One row of the table, of all its slices."""
    size, devices, peer, pages = slices[0]["row"].split()
    times = [pair for item in slices for pair in item["pairs"]]
    ratios = [ours / other for ours, other in times]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (0.0, 0.0, 0.0)
    worked = statistics.median(ours / other for item in slices for ours, other in item["worked"])
    ours_median = statistics.median(ours for ours, _ in times)
    recording = statistics.median(item["recording"] for item in slices)
    peaks = [max(item["peaks"][i] for item in slices) for i in (0, 1)]
    faults = [statistics.median(pair[i] for item in slices for pair in item["faults"]) for i in (0, 1)]
    return ROW.format(
        size=size,
        parameters=slices[0]["parameters"],
        devices=devices,
        peer=peer,
        pages=pages,
        pairs=len(times),
        faults=f"{faults[0]:.0f}/{faults[1]:.0f}",
        theirs=f"{statistics.median(other for _, other in times) * 1e3:.0f}",
        ours=f"{ours_median * 1e3:.0f}",
        ratio=f"{statistics.median(ratios):.3f}",
        noise=f"{(high - low) / 2:.3f}",
        processor=f"{worked:.3f}",
        peak=f"{peaks[0]}/{peaks[1]}",
        recording=f"{recording / ours_median:.2%}",
    )


def main(arguments: list[str] | None = None) -> int:
    """Print one row per size, device count and peer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1M,25M")
    parser.add_argument("--devices", default="1,2")
    parser.add_argument("--own", choices=["ours", "exact", "muon"], default="ours", help="which of our steps")
    parser.add_argument("--peers", default="stock,sharded")
    parser.add_argument(
        "--pages", choices=["product", "both", "neither"], default="product", help="who gets huge pages"
    )
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3600, help="of stepping, for each row")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="add the pairs to this file, and print the rows of all in it"
    )
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = set(options.peers.split(",")) - {"stock", "sharded", "exact"}
    if unknown:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are stock, sharded and exact")
    if options.serve:
        what, size, devices = options.serve.split(":")
        serve(what, size, int(devices))
        return 0
    sys.stdout.write(
        ROW.format(
            size="size",
            parameters="parameters",
            devices="devices",
            peer="peer",
            pages="pages",
            pairs="pairs",
            theirs="peer ms",
            ours="ours ms",
            ratio="ratio",
            noise="noise",
            processor="processor",
            peak="peak MiB o/p",
            faults="page faults o/p",
            recording="recording",
        )
        + "\n"
    )
    for size in options.sizes.split(","):
        for devices in map(int, options.devices.split(",")):
            for peer in options.peers.split(","):
                if peer == "sharded" and devices == 1:
                    continue
                found = compare(options.own, peer, size, devices, options.pages, options.pairs, options.seconds)
                sys.stdout.write(row_of(kept(options.keep, found)) + "\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
