"""A bundle: evaluations of one model, with everything that a stranger needs beside the model itself.

    attestation.intoto.jsonl          digests of all other files, signed by the log's key (in-toto statement, DSSE)
    vkey                              that key; a stranger has it from elsewhere, or knows that it is missing
    proofs/STEP.tlog-proof            the run's beginning, and what its steps train, tokenizer and export made
    keys/N/event.tlog-proof           event N of the log, in which it says something of its own keys
    evaluations/N/event.tlog-proof    event N of the log, evaluation.recorded
    evaluations/N/tree/               its stored tree: tasks, data, samples, results
    evaluations/N/harness/            the harness's own results.json and samples_NAME.jsonl

A proof (C2SP tlog-proof) carries its event, the hashes that lead to the log's root, and the signed checkpoint. Here are the names
of the files and what is signed; :mod:`marin.plugins.evaluation.bundle.write` writes a bundle,
:mod:`marin.plugins.evaluation.bundle.judge` judges one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ATTESTATION = "attestation.intoto.jsonl"
VKEY = "vkey"
STEPS = ("started", "train", "tokenizer", "export")
EVALUATIONS, KEYS = "evaluations", "keys"
EVENT, TREE, HARNESS = "event.tlog-proof", "tree", "harness"
PREDICATE = "urn:marin:evaluation:v1"


def proof_of(step: str) -> str:
    """The file with the proof of a step's event."""
    return f"proofs/{step}.tlog-proof"


def predicate(run: str, model: str, evaluations: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What is said of the files: the model folder's digest, and the numbers by event."""
    return {"run": run, "model": model, "evaluations": {str(index): dict(said) for index, said in evaluations.items()}}
