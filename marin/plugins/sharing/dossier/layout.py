"""What lies where in a dossier, and what is signed of it.

README.md, index.html, *.json     the documents; fields.json has every field of them, with its events and proofs
evidence/N.tlog-proof             event N of the log, with its proof of inclusion (C2SP)
manifests/STEP.json               files of an output, whose sha256 is the output's digest
attestations.intoto.jsonl         every step and verification, as in-toto statements
in-toto/                          the steps as an in-toto layout with a link each, and the log's key in PEM
model/, model.pem, model.sig      the model, and an OpenSSF signature of all of the above, if a key for it was given
dossier.intoto.jsonl              digests of all other files, signed by the log's key (in-toto statement, DSSE)
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from ledger import Malformed, Manifest, Tampered
from marin.history.runs import load
from marin.plugins.sharing.dossier.facts import Subject, subject
from marin.verify.alone.proven import Proven

ATTESTATION = "dossier.intoto.jsonl"
ATTESTATIONS = "attestations.intoto.jsonl"
CHAIN = "in-toto"
PREDICATE = "urn:marin:dossier:v1"
MANIFESTS = {"corpus": "manifests/corpus.json", "export": "manifests/export.json"}
MODEL, PUBLIC_KEY, SIGNATURE = "model", "model.pem", "model.sig"
UNSIGNED = (SIGNATURE, ATTESTATION)
"""What the model's signature leaves out: itself, and what is written after it."""


@cache
def writer() -> str:
    """Digest of the code that the documents follow from: another version may write them otherwise."""
    own = Path(__file__).resolve().parents[1]
    here = own.parents[1]
    files = [
        *(own / "dossier").rglob("*.py"),
        *(here / "recipe").glob("*.py"),
        *(path for path in (here / "reporting/templates").rglob("*") if path.is_file()),
        *(path for path in (own / "templates").rglob("*") if path.is_file()),
    ]
    files += [own / name for name in ("in_toto.py", "in_toto_layout.py")]
    files += [here / name for name in ("export/envelope.py", "process/text.py", "reporting/template.py")]
    lines = [f"{file.relative_to(here)} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in sorted(files)]
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def subject_of(proven: Proven, run: str, manifests: dict[str, bytes]) -> Subject:
    """What can be said of a run's model, with the files of its outputs as ``manifests`` (by step) list them.

    Raises:
        Malformed: a manifest of a step that the run has no output of.
        Tampered: a manifest is not the one that the run recorded.
    """
    view = load(proven, run)
    files: dict[str, tuple[tuple[str, str, int], ...]] = {}
    for step, data in manifests.items():
        if step not in view.steps:
            raise Malformed("a manifest of no output", where=MANIFESTS[step], expected=f"a run with {step}", found=run)
        expected, found = view.steps[step].output.artifact, "sha256:" + hashlib.sha256(data).hexdigest()
        if found != expected:
            raise Tampered("a manifest is not the recorded one", where=MANIFESTS[step], expected=expected, found=found)
        entries = Manifest.parse(data, where=MANIFESTS[step])
        files[step] = tuple((entry.path, entry.digest, entry.size) for entry in entries if entry.parts is None)
    return subject(proven, run, files)
