"""What a run has unlearned, as an in-toto statement with a predicate of our own, in a DSSE envelope signed by the log's key.

The subjects are the last state and, where there is one, the exported model. The predicate says which documents are
excluded, who asked for it and when (each request and fork with its C2SP tlog-proof, which carries the signed checkpoint and
what witnesses signed of it), which verdicts this log has on the run, and what the certificate does not prove. It is a copy
for other tools and for people: the evidence is the log, and the proof is `marin verify`.
"""

from __future__ import annotations

import json
from typing import Any

from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement

from ledger import LogReader, Signer, make_proof
from marin.data.exclusion import not_excluded_from
from marin.errors import UsageError
from marin.export.in_toto import envelope
from marin.history.run import Fact, Run
from marin.history.runs import History
from marin.record.events import ReplayCompleted
from marin.record.verdicts import NAMES
from marin.verify.derivation.record import read_record

PREDICATE = "urn:marin:unlearning:v1"
NOT_PROVEN = (
    "that no copy of the model from before the request is kept or used",
    "that no near copy of a document, or its text in another document, was read: their ids would be others",
    "that the raw data, the corpus or an older run was deleted: they are not what the subject was trained on",
    "that the reason is true, and that whoever asked had a right to ask",
)


def certificate(history: History, reader: LogReader, run: Run, signer: Signer) -> str:
    """The signed statement about ``run``, as one line of JSON.

    Raises:
        UsageError: its recipe excludes nothing.
    """
    return json.dumps(envelope(statement(history, reader, run), signer).to_dict(), sort_keys=True) + "\n"


def statement(history: History, reader: LogReader, run: Run) -> Statement:
    """What :func:`certificate` signs.

    Raises:
        UsageError: the run has unlearned nothing, or a part of it was made before or elsewhere, perhaps with the documents.
    """
    exclude = run.recipe.exclude
    if exclude is None:
        raise UsageError(
            "a run that has unlearned nothing",
            where=f"run {run.run}",
            expected="a recipe that excludes documents",
            found="none",
            cure="name what `marin unlearn` made",
        )
    if rest := not_excluded_from(run.recipe):
        raise UsageError(
            "no certificate for a part of a training",
            where=f"run {run.run}",
            expected="all of it made without the documents",
            found=f"that nothing is said of {' and '.join(rest)}",
            cure="unlearn them from the run that read them first, by `marin unlearn`, and go on from what that makes",
        )
    checkpoint = reader.checkpoint()
    predicate = {
        "run": run.run,
        "recipe": run.started.body.recipe_digest,
        "excludedDocuments": list(exclude),
        "requests": _requests(history, reader, run.run),
        "equality": {
            "statement": "training this recipe from its own initial state, without the documents from the first train step "
            "on, gives the subjects in every bit",
            "provenBy": f"marin verify {run.run}: data, training and model, executed by whoever asks",
            "verdictsInThisLog": [_verdicts(fact) for fact in run.verdicts],
        },
        "log": {"origin": checkpoint.origin, "size": str(checkpoint.size), "root": checkpoint.root.hex()},
        "notProven": list(NOT_PROVEN),
    }
    return Statement(_subjects(run), PREDICATE, predicate)


def _subjects(run: Run) -> list[Any]:
    found = []
    for name in ("train", "export"):
        if (step := run.steps.get(name)) is not None:
            kind, _, value = step.output.digest.partition(":")
            found.append(ResourceDescriptor(name=name, digest={kind: value}).pb)
    return found


def _requests(history: History, reader: LogReader, run: str) -> list[dict[str, Any]]:
    """Each fork on the way to ``run``, the first one first."""
    found: list[dict[str, Any]] = []
    known: set[str] = set()
    while run not in known:
        known.add(run)
        for index, fork in read_record(history, run).forks.items():
            body, asked = fork.fact.body, fork.request
            found.append(
                {
                    "fromRun": body.from_run,
                    "documents": list(asked.body.documents) if asked is not None else [],
                    "reason": asked.body.reason if asked is not None else "",
                    "requested": {"event": str(body.request), "time": asked.time if asked is not None else ""},
                    "firstUse": {"trainStep": str(asked.body.first_use) if asked is not None else ""},
                    "fork": {"event": str(index), "trainStep": str(body.step), "state": body.state},
                    "sameTokenizer": body.same_tokenizer,
                    "proofs": [str(make_proof(reader, place)) for place in (body.request, index)],
                }
            )
            run = body.from_run
            break
    return found[::-1]


def _verdicts(fact: Fact[ReplayCompleted]) -> dict[str, Any]:
    return {
        "event": str(fact.index),
        "time": fact.time,
        "verdicts": {name: fact.body.verdicts[name] for name in NAMES if name in fact.body.verdicts},
        "root": str(fact.body.log_checkpoint.get("root")),
    }
