"""What recording costs of a training that learns from rewards, in processor time (all threads), beside all that an update is.

    python -m bench.training.rewards [--updates 10] [--tokens 4] [--completions 64] [--model 1m]

An update draws completions by the state before it, rewards them and takes one train step. Recorded are its completions (canonical
JSON, hashed, put into a store on this disk), and at the end of a segment of ten updates the state's digest and the events (a log
on this disk, fsync and all). After each update all of this is done once more, its record read besides, with a clock of the
processor: what is said is too much rather than too little. States are saved as in any training, and are not counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, Log, PosixStorage, Signer, Store
from marin.process.arithmetic import apply
from marin.recipe.composition import compose
from marin.recipe.schema import Execution, Recipe

SEGMENT = 10
SIGNER = Signer("bench.example/log", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


def measured(recipe: Recipe, folder: Path) -> tuple[float, float, int]:
    """Seconds of the processor for an update, and for what is recorded of it, and the bytes of its completions. The first update
    is left out, in which programs are compiled."""
    from marin.plugins.rl.record import read_record
    from marin.process.cache import compilation_cache
    from marin.record.events import TRAIN_SEGMENT, write
    from marin.training.checkpoints.digesting import describe
    from marin.training.loop import SegmentRecord, Steps
    from marin.training.run import segment_event
    from marin.training.runtime.compilation import use_compilation_cache
    from marin.verify.jax.replay import prepared
    from tests.adversary.forgeries.rewards import put_tokenizer

    use_compilation_cache(compilation_cache())
    storage = PosixStorage(folder / "root")
    store, updates = Store(storage), recipe.trainer.num_steps
    Log.create(storage, SIGNER)
    training = prepared(recipe, folder / "tokens", put_tokenizer(folder / "tokenizer"), Execution())
    made, whole, recorded, size = Steps(0, 0), 0.0, 0.0, 0
    with closing(training), Log.open(storage, SIGNER) as log:
        state, before = training.start()
        for update in range(updates):
            begun = time.process_time()
            state, steps = training.steps(state, update, update + 1)
            done = time.process_time()
            for data in steps.records.values():
                record = read_record(data)
                assert record is not None
                store.put_bytes(record.encode())
                size = len(data)
            made.losses += steps.losses
            made.batches += steps.batches
            made.fingerprints += steps.fingerprints
            made.trace += steps.trace
            if (update + 1) % SEGMENT == 0:
                after = describe(state, training.step.layout)
                trace = store.put_bytes(made.trace).digest
                event = segment_event("run", SegmentRecord(made, before, after), trace)
                log.append([Draft(TRAIN_SEGMENT, "run/bench", write(event))])
                before, made = after, Steps(update + 1, update + 1)
            if update:
                whole += done - begun
                recorded += time.process_time() - done
    return whole / (updates - 1), recorded / (updates - 1), size


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--completions", type=int, default=64)
    parser.add_argument("--model", default="1m")
    asked = parser.parse_args()
    recipe = compose(
        [
            *("+objective=grpo", f"model={asked.model}", f"model.seq_len={12 + asked.tokens}", "seed=1"),
            *("objective.prompts=digits", "objective.reward=exact_match", "objective.num_generations=8"),
            *(f"objective.max_completion_length={asked.tokens}", f"trainer.batch_size={asked.completions}"),
            *(f"trainer.num_steps={asked.updates + 1}", f"trainer.steps_per_segment={SEGMENT}"),
            "tokenizer.vocab_size=260",
        ]
    ).recipe
    apply(recipe.arithmetic, Execution())
    with tempfile.TemporaryDirectory(prefix="marin-bench-") as folder:
        update, recorded, size = measured(recipe, Path(folder))
    sys.stdout.write(
        f"{1000 * update:.0f} ms of processor time an update, {1000 * recorded:.1f} ms of recording "
        f"({100 * recorded / update:.2f}%), {size} bytes a record\n"
    )


if __name__ == "__main__":
    main()
