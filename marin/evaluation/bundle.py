"""A bundle: evaluations of one model, with everything that a stranger needs beside the model itself.

    attestation.intoto.jsonl          digests of all other files, signed by the log's key (in-toto statement, DSSE)
    vkey                              that key; a stranger has it from elsewhere, or knows that he does not
    proofs/STEP.tlog-proof            the run's beginning, and what its steps train, tokenizer and export made
    evaluations/N/event.tlog-proof    event N of the log, evaluation.recorded
    evaluations/N/tree/               its stored tree: tasks, data, samples, results
    evaluations/N/harness/            the harness's own results.json and samples_NAME.jsonl

A proof (C2SP tlog-proof) carries its event, the hashes that lead to the log's root, and the signed checkpoint. Here are the names
of the files and what is signed; :mod:`marin.export.evaluation` writes a bundle, :mod:`marin.verify.bundle` judges one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger import Malformed, VerifierKey

ATTESTATION = "attestation.intoto.jsonl"
VKEY = "vkey"
STEPS = ("started", "train", "tokenizer", "export")
EVALUATIONS = "evaluations"
EVENT, TREE, HARNESS = "event.tlog-proof", "tree", "harness"
PREDICATE = "urn:marin:evaluation:v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
_MOST = 64 << 20


def proof_of(step: str) -> str:
    """The file with the proof of a step's event."""
    return f"proofs/{step}.tlog-proof"


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file of a bundle but its attestation, by path.

    Raises:
        Malformed: something in it is no plain file.
    """
    found = {}
    for place, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            path = Path(place) / name
            shown = path.relative_to(folder).as_posix()
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise Malformed(
                    "a bundle holds plain files", where=shown, expected="a file", found="a link or a device"
                )
            if path.is_file() and shown != ATTESTATION:
                with path.open("rb") as file:
                    found[shown] = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    return found


def attested(content: bytes, keys: Sequence[VerifierKey]) -> tuple[dict[str, str], str]:
    """What an attestation says: digests of files by path; and which of ``keys`` signed it.

    Raises:
        Malformed: it is none, or none of the keys signed it.
    """
    try:
        envelope: Any = json.loads(content) if len(content) <= _MOST else None
        payload = base64.b64decode(envelope["payload"], validate=True)
        kind = envelope["payloadType"].encode()
        signatures = [
            (str(one["keyid"]), base64.b64decode(one["sig"], validate=True)) for one in envelope["signatures"]
        ]
        statement = json.loads(payload)
        files = {str(one["name"]): f"sha256:{one['digest']['sha256']}" for one in statement["subject"]}
        types = (statement["_type"], statement["predicateType"], envelope["payloadType"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Malformed("not an attestation", where=ATTESTATION, expected="one DSSE envelope of a statement") from None
    if types != (STATEMENT, PREDICATE, PAYLOAD_TYPE):
        raise Malformed(
            "an attestation of something else", where=ATTESTATION, expected=PREDICATE, found=repr(types)[:200]
        )
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    for name, signature in signatures:
        for key in keys:
            if str(key) == name and _signed(key, signed, signature):
                return files, str(key)
    named = ", ".join(name for name, _ in signatures)[:200]
    raise Malformed(
        "the attestation is not signed by the log's key",
        where=ATTESTATION,
        expected=", ".join(map(str, keys)),
        found=named,
    )


def _signed(key: VerifierKey, text: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature, text)
    except (InvalidSignature, ValueError):  # ValueError: a key of another kind
        return False
    return True


def predicate(run: str, model: str, evaluations: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What is said of the files: the model folder's digest, and the numbers by event."""
    return {"run": run, "model": model, "evaluations": {str(index): dict(said) for index, said in evaluations.items()}}
