"""A folder that is attested: one signed statement names every other file of it by digest.

The statement is in-toto's (https://in-toto.io/Statement/v1) in a DSSE envelope, signed by a log's Ed25519 key; its subjects
are the files. Bundles of evaluations and dossiers are such folders. Nothing of one is believed before its statement is.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger import Malformed, Signer, Tampered, VerifierKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PAGES = "pages.intoto.jsonl"
"""The attestation of pages that are shown to others: it lies beside them."""
_MOST = 64 << 20


@dataclass(frozen=True)
class ReadAttestation:
    """What a statement says: digests of files by path, its predicate, and which key signed it."""

    files: Mapping[str, str]
    said: Mapping[str, Any]
    key: str


def digests(folder: Path, attestation: str) -> dict[str, str]:
    """sha256 of every file of a folder but its ``attestation``, by path.

    Raises:
        Malformed: something in it is not a plain file.
    """
    found = {}
    for place, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            path = Path(place) / name
            shown = path.relative_to(folder).as_posix()
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise Malformed(
                    "an attested folder holds plain files", where=shown, expected="a file", found="a link or a device"
                )
            if path.is_file() and shown != attestation:
                with path.open("rb") as file:
                    found[shown] = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    return found


def attested(content: bytes, keys: Sequence[VerifierKey], predicate: str, *, where: str = "") -> ReadAttestation:
    """What an attestation with this ``predicate`` says, signed by one of ``keys``. ``where``: its name.

    Raises:
        Malformed: it is not one, says more than this form has, or the same twice; or none of the keys signed it.
    """
    try:
        envelope: Any = json.loads(content) if len(content) <= _MOST else None
        payload = base64.b64decode(envelope["payload"], validate=True)
        envelope["payloadType"].encode()
        signatures = [
            (str(one["keyid"]), base64.b64decode(one["sig"], validate=True)) for one in envelope["signatures"]
        ]
        statement = json.loads(payload, object_pairs_hook=_once)
        files = _once((str(one["name"]), f"sha256:{one['digest']['sha256']}") for one in statement["subject"])
        said = dict(statement["predicate"])
        types = (statement["_type"], statement["predicateType"], envelope["payloadType"])
        plain = set(statement) == {"_type", "subject", "predicateType", "predicate"} and all(
            set(one) == {"name", "digest"} and set(one["digest"]) == {"sha256"} for one in statement["subject"]
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Malformed("not an attestation", where=where, expected="one DSSE envelope of a statement") from None
    if not plain:  # another reader would take from it what nobody here looks at
        raise Malformed(
            "an attestation that says more than is judged",
            where=where,
            expected="subjects with a name and a sha256, and a predicate",
            found="other fields",
        )
    if types != (STATEMENT, predicate, PAYLOAD_TYPE):
        raise Malformed("an attestation of something else", where=where, expected=predicate, found=repr(types)[:200])
    signed = pae(envelope["payloadType"], payload)
    for name, signature in signatures:
        for key in keys:
            if str(key) == name and _signed(key, signed, signature):
                return ReadAttestation(files, said, str(key))
    named = ", ".join(name for name, _ in signatures)[:200]
    raise Malformed(
        "the attestation is not signed by the log's key", where=where, expected=", ".join(map(str, keys)), found=named
    )


def pae(kind: str, payload: bytes) -> bytes:
    """What is signed of an envelope (DSSE's pre-authentication encoding)."""
    named = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(named), named, len(payload), payload)


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of these pairs; ``ValueError`` where one name stands twice: other readers may take the other one."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(name)
        found[name] = value
    return found


def _signed(key: VerifierKey, text: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature, text)
    except (InvalidSignature, ValueError):  # ValueError: a key of another kind
        return False
    return True


def attestation(files: Mapping[str, str], predicate: str, said: Mapping[str, Any], signer: Signer) -> bytes:
    """The statement about these files (sha256 by path), signed, that :func:`attested` reads."""
    statement = {
        "_type": STATEMENT,
        "predicateType": predicate,
        "predicate": said,
        "subject": [
            {"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}
            for name, digest in sorted(files.items())
        ],
    }
    payload = json.dumps(statement, sort_keys=True, ensure_ascii=False).encode()
    signature = signer.key.sign(pae(PAYLOAD_TYPE, payload))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": str(signer.verifier), "sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(envelope, sort_keys=True).encode() + b"\n"


def check_files(named: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise :class:`Tampered` for the first file that is not the one that was attested, is missing, or was added."""
    for path in sorted({*named, *found}):
        if named.get(path) != found.get(path):
            raise Tampered(
                "a file is not the one that was attested",
                where=path,
                expected=named.get(path, "no such file"),
                found=found.get(path, "no such file"),
            )
