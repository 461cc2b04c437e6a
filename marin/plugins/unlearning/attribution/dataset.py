"""What was measured, as a data set for others: against it an estimate of influence can be judged, without this software.

README.md            what it is
run.json             the run and its recipe, the texts that were scored, the losses with every document
groups.jsonl         a line a group: documents, first use, losses without them
sums.npy             float64[1 + groups, documents]: negative log-likelihood (nats) of every scored document; the first
                     row is the run as it is, the others are those of groups.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ledger import Store, digest_bytes
from marin.errors import UsageError
from marin.history.run import Run
from marin.plugins.unlearning.attribution.measuring import Row
from marin.plugins.unlearning.kinds import AttributionMeasured

GROUPS, SUMS, RUN, README = "groups.jsonl", "sums.npy", "run.json", "README.md"


def change(base: AttributionMeasured, body: AttributionMeasured) -> dict[str, float]:
    """By set, how much higher the loss is without the documents than with them (nats a token): above 0, they helped."""
    return {name: float.fromhex(one.loss) - float.fromhex(base.sets[name].loss) for name, one in body.sets.items()}


def group_row(base: AttributionMeasured, row: Row) -> dict[str, Any]:
    """One group, as `marin attribute --json` and ``groups.jsonl`` have it."""
    body = row.body
    assert body is not None, "a group that failed has no numbers"
    return {
        "documents": body.documents,
        "first_use": body.first_use,
        "train_steps": len(row.group.steps),
        "executed_from": body.step,
        "same_tokenizer": body.same_tokenizer,
        "end_state": body.end_state,
        "losses": {name: one.loss for name, one in body.sets.items()},
        "change": change(base, body),
        "event": row.index,
    }


def write_dataset(
    dest: Path, run: Run, store: Store, sets: Mapping[str, bytes], base: AttributionMeasured, rows: Sequence[Row]
) -> None:
    """Fill ``dest``, an empty folder or none.

    Raises:
        UsageError: there is something in ``dest``.
    """
    if dest.exists() and any(dest.iterdir()):
        raise UsageError(
            "a data set is written into an empty folder",
            where=str(dest),
            expected="nothing",
            found="files",
            cure="name another folder",
        )
    dest.mkdir(parents=True, exist_ok=True)
    whole = [row.body for row in rows if row.body is not None]
    matrix = np.stack([_sums(body, store) for body in (base, *whole)])
    np.save(dest / SUMS, matrix, allow_pickle=False)
    lines = [json.dumps(group_row(base, row), sort_keys=True) for row in rows if row.body is not None]
    (dest / GROUPS).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    scored = {name: [digest_bytes(line) for line in data.split(b"\n") if line] for name, data in sets.items()}
    told = {
        "run": run.run,
        "recipe": run.started.body.recipe,
        "recipe_digest": run.started.body.recipe_digest,
        "state": base.end_state,
        "sets": {
            name: {"data": base.sets[name].data, "loss": base.sets[name].loss, "documents": ids}
            for name, ids in scored.items()
        },
        "code": base.code,
        "lock": base.lock,
    }
    (dest / RUN).write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", "utf-8")
    (dest / README).write_text(_README.format(groups=len(whole), documents=matrix.shape[1], run=run.run), "utf-8")


def _sums(body: AttributionMeasured, store: Store) -> np.ndarray:
    return np.concatenate([np.frombuffer(store.read(one.sums), dtype="<f8") for one in body.sets.values()])


_README = """\
# Exact leave-one-out retraining: {groups} groups of documents, {documents} scored documents

Each group was left out of the training of run {run} and the training executed again from the last recorded state before
the group's first use, under an arithmetic contract: the same bits on every machine, so a difference is the documents'
effect and nothing else. Where `same_tokenizer` is true the state is, in every bit, that of a training without them.

- `run.json`: recipe, scored texts (sha256 of each JSON line), losses of the run as it is.
- `groups.jsonl`: a line a group: `documents`, `first_use` (train step; null: never read), `train_steps` (how many read
  them), `losses` (hex floats, nats a token), `change` (loss without them less loss with them: above 0, they helped).
- `sums.npy`: float64[1 + groups, documents], the negative log-likelihood of every scored document, set after set in the
  order of `run.json`; the first row is the run as it is.

Measured by `marin attribute`; `marin attribute {run} --documents groups.jsonl --again` executes all of it again.
"""
