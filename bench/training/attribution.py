"""Estimates of influence against exact leave-one-out retraining: nano, 500 documents, each trained without.

    python -m bench.training.attribution --root DIR [--documents 500] [--seconds 1000] [--out DATASET] [--so-far]

The run is made once below DIR, and every result recorded there, so that the command goes on where it was broken off;
``--seconds`` ends it after a while. When all documents are measured (or with ``--so-far`` those that are: the first that a train
step reads) the estimates are computed and held against them:

* gradient dot product: of a document's loss and a test document's, at the last state;
* TracIn (Pruthi et al. 2020, TracInCP): the same at every recorded state, weighted by the learning rate there, summed;
* TracIn at uses: only at the recorded states before the train steps that read the document.

A document's loss is the sum over what an exclusion takes away: its tokens as targets, and what follows from them. Both are
compared by Spearman's rank correlation (scipy), for the mean held-out loss and for each held-out document.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from bench.training.unlearn import PLAN, read_documents
from marin.execution.executor import run_stage
from marin.history.run import Run
from marin.history.runs import load, run_ids
from marin.plugins.unlearning.attribution import measuring
from marin.plugins.unlearning.attribution.dataset import change, write_dataset
from marin.plugins.unlearning.attribution.groups import Group, plan
from marin.plugins.unlearning.kinds import AttributionMeasured
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution, from_mapping
from marin.record import outputs
from marin.record.creation import create_root
from marin.record.root import Root, open_root

RECIPE = {
    "seed": 21,
    "dataset": {"kind": "grammar", "train_bytes": 750_000, "validation_bytes": 20_000, "minimal_pairs": 0},
    "tokenizer": {"vocab_size": 265},
    "model": {
        "hidden_dim": 32,
        "intermediate_dim": 88,
        "num_layers": 2,
        "num_heads": 2,
        "num_kv_heads": 2,
        "seq_len": 32,
    },
    "optimizer": {"learning_rate": 3e-3, "warmup_steps": 24},
    "trainer": {"num_steps": 240, "batch_size": 8, "steps_per_segment": 6},
}
"""conf/model/nano.yaml, trained for 240 steps, with a vocabulary that no single document decides."""
AT_ONCE = 32
"""Documents whose gradients are computed by one call."""


def the_run(place: Path) -> tuple[Root, Run]:
    """The run below ``place``, made if it is not there."""
    os.environ["MARIN_KEY"] = str(place / "key")
    location = str(place / ".marin")
    root = open_root(location) if (place / ".marin").exists() else create_root(location, origin="bench.example/nano")
    recipe = from_mapping(RECIPE, where="bench.training.attribution")
    apply(recipe.arithmetic, Execution())
    for step in PLAN.steps:
        run_stage(step.name, plan=PLAN, recipe=recipe, root=root, project=None, execution=Execution())
    return root, load(root.history(), run_ids(root.history())[-1])


def measured(root: Root, run: Run, groups: Sequence[Group], seconds: float) -> list[measuring.Row]:
    """The rows that are there when all are measured or the time is up."""
    asked = measuring.MeasurementRequest(measuring.read_sets(run, root.store(), ()))
    began, rows = time.monotonic(), []
    for row in measuring.measure(root, run, groups, asked):
        assert not row.failure, row.failure
        rows.append(row)
        if time.monotonic() - began > seconds:
            break
    return rows


class Gradients:
    """Gradients of documents' losses at a state, float32[documents, parameters]."""

    def __init__(self, run: Run, model: Any) -> None:
        import equinox as eqx
        import jax
        import jax.numpy as jnp
        from jax.flatten_util import ravel_pytree

        from marin.evaluation.scoring import Scorer

        scorer = Scorer(model, run.recipe)

        def loss(arrays: Any, rows: Any) -> Any:
            ids, targets, mask = rows
            return -jnp.sum(scorer.scored_rows(arrays, ids[None], targets[None])[0][0] * mask)

        def of_document(arrays: Any, document: Any) -> Any:
            """document: int32, int32, float32 [rows, length]."""

            def add(total: Any, rows: Any) -> Any:
                return jax.tree.map(jnp.add, total, jax.grad(loss)(arrays, rows)), None

            zero = jax.tree.map(jnp.zeros_like, arrays)
            return ravel_pytree(jax.lax.scan(add, zero, document)[0])[0]

        self._many: Callable[..., Any] = jax.jit(
            lambda arrays, documents: jax.lax.map(lambda one: of_document(arrays, one), documents)
        )
        self._arrays_of: Callable[[Any], Any] = lambda model: eqx.partition(model, eqx.is_inexact_array)[0]

    def at(self, model: Any, documents: Sequence[list[tuple[np.ndarray, np.ndarray, np.ndarray]]]) -> np.ndarray:
        """``documents``: of each, rows of tokens, targets and weights of one length."""
        arrays = self._arrays_of(model)
        rows = max(map(len, documents))
        found = []
        for some in batched(documents, AT_ONCE):
            filled = [[*one, *[tuple(np.zeros_like(part) for part in one[0])] * (rows - len(one))] for one in some]
            filled += [filled[0]] * (AT_ONCE - len(filled))
            stacked = tuple(np.stack([[row[part] for row in one] for one in filled]) for part in range(3))
            found.append(np.asarray(self._many(arrays, stacked))[: len(some)])
        return np.concatenate(found)


Rows = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def train_rows(run: Run, tokens: Path, groups: Sequence[Group]) -> list[Rows]:
    """What leaving out each group takes away: of each sequence that is read and holds some of it, the weights."""
    from marin.training.blank import blank_rows
    from marin.training.data import DataOrder, streams, token_dataset
    from marin.training.tokens.cache import read_tokens

    recipe = run.recipe
    ((name, path),) = streams(recipe, tokens / "train").items()
    width, (stream, _) = recipe.model.seq_len, read_tokens(path)
    lengths = {name: token_dataset(path, width)[1]}
    order = DataOrder(recipe, lengths)
    read = set(order(range(recipe.trainer.num_steps * recipe.trainer.batch_size)).tolist())
    found = []
    for group in groups:
        rows: Rows = []
        for sequence, mask in blank_rows(group.spans, order.starts, lengths, width).items():
            if sequence in read:
                ids = stream[sequence * width : (sequence + 1) * width]
                rows.append((ids[:-1], ids[1:], (mask[:-1] | mask[1:]).astype(np.float32)))
        found.append(rows)
    return found


def test_rows(run: Run, root: Root, data: bytes, tokenizer: Path) -> list[Rows]:
    """The held-out documents, in the windows in which they are scored."""
    from tokenizers import Tokenizer

    from marin.plugins.evaluation.heldout.measuring import encode_texts, texts_of, windows

    reader = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    reader.encode_special_tokens = True
    width, found = run.recipe.model.seq_len, []
    for document in encode_texts(reader, texts_of(data, "validation")):
        rows: Rows = []
        for row in windows(document, width):
            count = len(row.tokens) - 1
            ids, targets, mask = (np.zeros(width, dtype) for dtype in (np.int32, np.int32, np.float32))
            ids[:count], targets[:count], mask[count - row.scored : count] = row.tokens[:-1], row.tokens[1:], 1.0
            rows.append((ids, targets, mask))
        found.append(rows)
    return found


def estimates(root: Root, run: Run, groups: Sequence[Group]) -> dict[str, np.ndarray]:
    """By name, float64[groups, held-out documents]: above 0, the document is said to help."""
    from marin.evaluation.subject import open_subject
    from marin.plugins.explain.states import learning_rates

    store = root.store()
    states = sorted({fact.body.step for fact in run.checkpoints})
    rates = learning_rates(run.recipe, 0, run.recipe.last_step + 1)
    with TemporaryDirectory(prefix="marin-attribution-") as base:
        folders = {name: Path(base) / name for name in ("tokens", "tokenizer")}
        for name, folder in folders.items():
            outputs.checkout(store, run.output(name), folder, kind=outputs.KINDS[name])
        train = train_rows(run, folders["tokens"], groups)
        test = test_rows(run, root, measuring.read_sets(run, store, ())["validation"], folders["tokenizer"])
    found = {name: np.zeros((len(groups), len(test))) for name in ("TracIn", "TracIn at uses", "gradient dot product")}
    gradients: Gradients | None = None
    for place, step in enumerate(states):
        model = open_subject(run, store, step).model
        gradients = gradients or Gradients(run, model)
        products = gradients.at(model, train).astype(np.float64) @ gradients.at(model, test).astype(np.float64).T
        found["TracIn"] += rates[step] * products
        after = states[place + 1] if place + 1 < len(states) else run.recipe.last_step
        uses = np.asarray([sum(step <= use < after for use in group.steps) for group in groups], dtype=np.float64)
        found["TracIn at uses"] += rates[step] * uses[:, None] * products
        if step == states[-1]:
            found["gradient dot product"] = products
        sys.stderr.write(f"state before train step {step}\n")
    return found


def compared(exact: np.ndarray, estimate: np.ndarray) -> tuple[float, float, float]:
    """Spearman's correlation with the change of the whole held-out loss, its p, and the mean over held-out documents."""
    whole = spearmanr(exact.sum(axis=1), estimate.sum(axis=1))
    each = [spearmanr(exact[:, place], estimate[:, place]).statistic for place in range(exact.shape[1])]
    return float(whole.statistic), float(whole.pvalue), float(np.mean(each))


def body_of(row: measuring.Row) -> AttributionMeasured:
    """What was measured of a group."""
    assert row.body is not None
    return row.body


def main() -> int:
    """Measure as long as there is time; then compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, metavar="DIR")
    parser.add_argument("--documents", type=int, default=500, metavar="N")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S")
    parser.add_argument("--out", type=Path, metavar="DATASET")
    parser.add_argument("--so-far", action="store_true", help="compare what is measured by then")
    given = parser.parse_args()
    given.root.mkdir(parents=True, exist_ok=True)
    root, run = the_run(given.root)
    known = sorted(read_documents(root, run))
    chosen = sorted(random.Random(21).sample(known, min(given.documents, len(known))))  # noqa: S311
    planned = plan(run, root.store(), [(name,) for name in chosen])
    rows = measured(root, run, planned, given.seconds)
    sys.stdout.write(f"{len(rows) - 1} of {len(planned) - 1} documents, of {len(known)} that a train step reads\n")
    if len(rows) < len(planned) and not given.so_far:
        return 3
    by_group = {row.group.documents: row for row in rows}
    groups = [group for group in planned if group.documents and group.documents in by_group]
    ordered, base, store = [by_group[group.documents] for group in groups], body_of(by_group[()]), root.store()
    if given.out is not None:
        write_dataset(given.out, run, store, measuring.read_sets(run, store, ()), base, ordered)
    found = [body_of(row) for row in ordered]
    sums = [np.frombuffer(store.read(body.sets["validation"].sums), "<f8") for body in (base, *found)]
    exact = np.stack(sums[1:]) - sums[0]
    changes = np.asarray([change(base, body)["validation"] for body in found])
    executed = sum(run.recipe.last_step - body.step for body in found)
    sys.stdout.write(
        f"same tokenizer {sum(body.same_tokenizer is True for body in found)} of {len(found)}; {executed} train steps "
        f"executed of {run.recipe.last_step * len(found)}; change of the held-out loss: median {np.median(changes):+.2e}, "
        f"{changes.min():+.2e} to {changes.max():+.2e}, {(changes > 0).mean():.0%} above 0\n"
    )
    for name, estimate in estimates(root, run, groups).items():
        whole, chance, each = compared(exact, estimate)
        sys.stdout.write(
            f"{name:<24} rank correlation {whole:+.3f} (p {chance:.1e}), of each held-out document {each:+.3f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
