"""A recorded evaluation beside transformers: the same tokens scored by torch on the CPU, from the exported folder.

    python -m bench.models.beside_transformers PYTHON MODEL TREE [--batch 16]

PYTHON is an interpreter of an environment of its own with torch and transformers, which are no dependency here; MODEL what
`marin export --hf` wrote; TREE a stored evaluation (`evaluations/N/tree` of a bundle, or `marin store get SAMPLES TREE`).
Compared are every scored token's log-likelihood, each request's sum, which choice is the likeliest of each document (its
outcome `acc`), and whether each greedily generated token is the one that transformers finds likeliest. Then both score the
same rows, each after it has scored them once: seconds of the wall and of the processor (all threads) are those of the
scoring alone, and ours are asked before the torch of the other one starts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin.evaluation.folder import folder_recipe
from marin.plugins.evaluation.recorded.records import Sample, read_samples
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution

PROGRAM = """
import json, sys, time
import torch
from transformers import AutoModelForCausalLM
asked = json.load(sys.stdin)
model = AutoModelForCausalLM.from_pretrained(asked["model"], dtype=torch.float32).eval()
rows, answers = asked["rows"], [None] * len(asked["rows"])
order = sorted(range(len(rows)), key=lambda place: -len(rows[place][0]))
def score():
    for start in range(0, len(order), asked["batch"]):
        places = order[start : start + asked["batch"]]
        longest = max(len(rows[place][0]) for place in places) - 1
        ids = torch.zeros((len(places), longest), dtype=torch.long)
        for line, place in enumerate(places):
            tokens = rows[place][0]
            ids[line, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        logprobs = torch.log_softmax(model(ids).logits, dim=-1)
        for line, place in enumerate(places):
            tokens, scored = rows[place]
            end = len(tokens) - 1
            part, targets = logprobs[line, end - scored : end], torch.tensor(tokens[len(tokens) - scored :])
            values = part.gather(1, targets[:, None])[:, 0]
            answers[place] = [values.tolist(), (part.argmax(dim=-1) == targets).tolist()]
with torch.inference_mode():
    score()
    wall, busy = time.perf_counter(), time.process_time()
    score()
json.dump({"answers": answers, "wall": time.perf_counter() - wall, "busy": time.process_time() - busy}, sys.stdout)
"""


@dataclass(frozen=True)
class Compared:
    """Relative differences are of natural logarithms; ``documents`` are those of tasks with choices."""

    tokens: int
    requests: int
    worst_token: float
    worst_sum: float
    documents: int
    same_outcome: int
    generated: int
    same_generated: int
    wall: float
    busy: float
    our_wall: float
    our_busy: float


def compare(python: str, model: Path, tree: Path, batch: int) -> Compared:
    """All requests of the tree at once; the program that scores them gets their tokens alone."""
    samples = list(_samples(tree))
    requests = [request for sample in samples for request in sample.requests]
    rows = [(row.tokens, len(row.logprobs)) for request in requests for row in request.rows]
    our_wall, our_busy = _ours(model, rows)
    asked = json.dumps({"model": str(model), "rows": rows, "batch": batch})
    waiting = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}  # on a busy machine torch's threads spin for ever otherwise
    done = subprocess.run(
        [python, "-c", PROGRAM], input=asked, stdout=subprocess.PIPE, text=True, check=True, env=waiting
    )
    said = json.loads(done.stdout)
    answers = iter(said["answers"])
    theirs = {id(request): [next(answers) for _ in request.rows] for request in requests}
    tokens, sums, same, documents, generated, equal = [], [], 0, 0, 0, 0
    for request in requests:
        ours = [float.fromhex(value) for row in request.rows for value in row.logprobs]
        other = [value for values, _ in theirs[id(request)] for value in values]
        tokens += [_relative(a, b) for a, b in zip(ours, other, strict=True)]
        sums.append(_relative(request.total(), sum(other)))
        if request.kind == "generate_until":
            found = [likeliest for _, places in theirs[id(request)] for likeliest in places]
            generated, equal = generated + len(found), equal + sum(found)
    for sample in samples:
        if len(sample.requests) > 1 and sample.requests[0].kind == "loglikelihood":
            documents += 1
            totals = [
                sum(value for values, _ in theirs[id(request)] for value in values) for request in sample.requests
            ]
            same += _best(totals) == _best([request.total() for request in sample.requests])
    return Compared(
        len(tokens),
        len(requests),
        max(tokens),
        max(sums),
        documents,
        same,
        generated,
        equal,
        said["wall"],
        said["busy"],
        our_wall,
        our_busy,
    )


def _ours(model: Path, rows: Sequence[tuple[Sequence[int], int]]) -> tuple[float, float]:
    """Seconds of the wall and of the processor in which our scorer scores the rows, the second time."""
    recipe = folder_recipe(model)
    apply(recipe.arithmetic, Execution())
    from marin.evaluation.folder_subject import open_folder
    from marin.evaluation.scoring import Row, Scorer  # jax, after the contract is in force

    scorer = Scorer(open_folder(model, recipe).model, recipe)
    asked = [Row(tuple(tokens), len(tokens) - scored) for tokens, scored in rows]
    scorer.score(asked)
    wall, busy = time.perf_counter(), time.process_time()
    scorer.score(asked)
    return time.perf_counter() - wall, time.process_time() - busy


def _samples(tree: Path) -> Iterator[Sample]:
    for path in sorted((tree / "samples").glob("*.jsonl")):
        yield from read_samples(tree, path.stem)


def _relative(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), 1e-9) if a or b else 0.0


def _best(totals: Sequence[float]) -> int:
    return max(range(len(totals)), key=totals.__getitem__)


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("python")
    asked.add_argument("model", type=Path)
    asked.add_argument("tree", type=Path)
    asked.add_argument("--batch", type=int, default=16)
    given = asked.parse_args()
    found: Any = compare(given.python, given.model, given.tree, given.batch)
    for name, value in vars(found).items():
        sys.stdout.write(f"{name:16} {value:.3g}\n" if isinstance(value, float) else f"{name:16} {value}\n")
    if found.worst_sum > 1e-4 or found.same_outcome != found.documents:
        sys.exit("further apart than 1e-4, or another outcome")


if __name__ == "__main__":
    main()
