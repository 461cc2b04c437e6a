"""Log-likelihoods that no neighbour changes: how many bits differ over batch sizes, orders and devices, and what it costs.

    python -m bench.models.evaluate [--requests 300] [--size 1M]
    python -m bench.models.evaluate --digest --requests 24

The requests are sequences of 6 to 128 random tokens, the model is the default one with its initial weights. `ours` scores
them one to a program (marin/evaluation/scoring.py), with so many on their way (`batch`), on so many virtual devices;
`same` is the share whose every token has the bits of the first row, `cpu ms` the processor time of all threads for each (on
a busy machine the number to look at). `levanter` is Levanter's own loss over whole batches, padded to the context, under the
same flags (as an evaluation usually is): its `same` is against its own first row. `generated` are sampled continuations of
24 tokens, drawn in another order and beside others than in the first. With ``--digest`` nothing is timed: the last line is the
digest of every token's log-likelihood and of four continuations, which other machines are held against (`taskset -c 0`, or
`tests/determinism/processors.py NAME -m bench.models.evaluate --digest`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from bench.training.train_step import SIZES
from ledger import canonical_digest
from marin.process.arithmetic import settings
from marin.recipe.schema import Arithmetic, Execution, Recipe

VOCABULARY = 2048
DEVICES = (1, 2, 4, 8)
ROW = "{what:>9} {batch:>6} {order:>9} {devices:>7} {same:>8} {busy:>8} {rate:>12}"


def measure(size: str, count: int, *, digest: bool) -> None:
    """All rows, in a process that has eight devices; or one digest."""
    import jax.random as jrandom
    from haliax import Axis

    from marin.evaluation.evaluate import scorer as batched
    from marin.evaluation.scoring import Prompt, Row, Scorer, request_name
    from marin.process.cache import compilation_cache
    from marin.training.model import model_config
    from marin.training.runtime.compilation import use_compilation_cache

    use_compilation_cache(compilation_cache())
    recipe = Recipe(model=SIZES[size])
    model = model_config(recipe.model).build(Axis("vocab", VOCABULARY), key=jrandom.PRNGKey(0))
    draw = np.random.default_rng(1)
    rows = [
        Row(tuple(int(t) for t in draw.integers(1, VOCABULARY, n)), int(n) - 1) for n in draw.integers(6, 129, count)
    ]
    prompts = [Prompt(one.tokens[:9], 24, lambda new: False, 0.8, request_name(one.tokens[:9])) for one in rows[:24]]
    if digest:
        sums = [[value.hex() for value in one.logprobs] for one in Scorer(model, recipe).score(rows)]
        said = [list(new) for new in Scorer(model, recipe).generate(prompts[:4], 7)]
        say(canonical_digest({"scored": sums, "generated": said}))
        return
    shuffled = [int(place) for place in draw.permutation(count)]
    say(
        ROW.format(
            what="", batch="batch", order="order", devices="devices", same="same", busy="cpu ms", rate="sequences/s"
        )
    )

    first: list[tuple[float, ...]] = []
    for batch, order, devices in [(n, False, 1) for n in (1, 2, 7, 16, 64)] + [(16, True, n) for n in DEVICES]:
        ours = Scorer(model, recipe, devices=devices, ahead=batch)
        ours.score(rows)  # compiled
        asked = shuffled if order else list(range(count))
        seconds, busy, scored = timed(partial(ours.score, [rows[place] for place in asked]))
        found = dict(zip(asked, (one.logprobs for one in scored), strict=True))
        first = first or [found[place] for place in range(count)]
        same = sum(found[place] == first[place] for place in range(count))
        row("ours", batch, order, devices, same / count, busy / count, count / seconds)

    theirs = batched(model, recipe)
    theirs_first: list[float] = []
    for batch in (1, 2, 7, 16, 64):
        ids, weights = (
            np.zeros((-(-count // batch) * batch, recipe.model.seq_len), kind) for kind in (np.int32, np.float32)
        )
        for line, one in enumerate(rows):
            ids[line, : len(one.tokens)], weights[line, : one.scored] = one.tokens, 1.0

        def all_of_them(ids: np.ndarray = ids, weights: np.ndarray = weights, batch: int = batch) -> list[float]:
            starts = range(0, len(ids), batch)
            return [float(value) for s in starts for value in theirs(ids[s : s + batch], weights[s : s + batch])][
                :count
            ]

        all_of_them()
        seconds, busy, values = timed(all_of_them)
        theirs_first = theirs_first or values
        same = sum(a == b for a, b in zip(values, theirs_first, strict=True))
        row("levanter", batch, False, 1, same / count, busy / count, count / seconds)

    alone = [Scorer(model, recipe).generate([prompt], 7)[0] for prompt in prompts]
    for devices in DEVICES:
        ours = Scorer(model, recipe, devices=devices)
        ours.generate(prompts[:1], 7)
        seconds, busy, news = timed(partial(ours.generate, prompts[::-1], 7))
        same = sum(a == b for a, b in zip(alone, news[::-1], strict=True))
        row(
            "generated",
            len(prompts),
            True,
            devices,
            same / len(alone),
            busy / sum(map(len, news)),
            sum(map(len, news)) / seconds,
            "tokens/s",
        )


def timed[Item](work: Callable[[], Sequence[Item]]) -> tuple[float, float, list[Item]]:
    """Seconds, processor seconds of all threads, and what came of it."""
    began, busy = time.perf_counter(), time.process_time()
    found = list(work())
    return time.perf_counter() - began, time.process_time() - busy, found


def row(
    what: str, batch: int, order: bool, devices: int, same: float, busy: float, rate: float, unit: str = ""
) -> None:
    shown = f"{rate:.0f} {unit}".strip()
    say(
        ROW.format(
            what=what,
            batch=batch,
            order="shuffled" if order else "given",
            devices=devices,
            same=f"{same:.1%}",
            busy=f"{1000 * busy:.2f}",
            rate=shown,
        )
    )


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--size", choices=sorted(SIZES), default="1M")
    asked.add_argument("--requests", type=int, default=300)
    asked.add_argument("--digest", action="store_true", help="time nothing; print the digest of what is computed")
    asked.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.inside:
        measure(given.size, given.requests, digest=given.digest)
        return
    contract = settings(Arithmetic(), Execution(devices=max(DEVICES)))
    command = [
        sys.executable,
        "-m",
        "bench.models.evaluate",
        "--inside",
        "--size",
        given.size,
        "--requests",
        str(given.requests),
        *(["--digest"] if given.digest else []),
    ]
    sys.exit(subprocess.run(command, env={**os.environ, **contract}).returncode)


if __name__ == "__main__":
    main()
