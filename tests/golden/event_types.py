"""One proof of one event for every released type of event: kept for ever, so that old logs stay readable.

    python tests/golden/event_types.py      writes the files of types that have none; never touches one that is there

Each file is a C2SP tlog-proof that stands alone: the entry, its place, and a checkpoint signed with a fixed key.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis.strategies import from_regex
from msgspec import inspect

from ledger import Draft, Log, LogReader, Signer, enrol_author, make_certificate, make_proof, revoke_author, sign_drafts
from ledger.log.vouching.events import possession_text
from marin.kinds.known import own_kinds
from tests.ledger.memory import MemoryStorage

BODIES = {kind.type: kind.body for kind in own_kinds()}
FOLDER = Path(__file__).parent / "events"
SIGNER = Signer("log.example/events", Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
VKEY = SIGNER.verifier


def path_of(kind: str) -> Path:
    return FOLDER / f"{kind.replace('/', '.')}.tlog-proof"


def sample(kind: inspect.Type) -> Any:
    """Some value of a type: the smallest that says something."""
    match kind:
        case inspect.StructType(fields=fields):
            return {field.encode_name: sample(field.type) for field in fields}
        case inspect.StrType(pattern=pattern):
            shapes = (
                "sha256:" + "0" * 64,
                "0x1.8000000000000p+1",
                "0123456789abcdef",
                "2026-11-21T10:00:00.000000Z",
                "text",
            )
            found = [text for text in shapes if pattern is None or re.search(pattern, text)]
            return found[0] if found else from_regex(pattern or "", fullmatch=True).example()
        case inspect.DictType(key_type=key, value_type=value):
            return {sample(key): sample(value)}
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [sample(item)]
        case inspect.TupleType(item_types=items):
            return [sample(item) for item in items]
        case inspect.UnionType(types=types):
            return sample(next(item for item in types if not isinstance(item, inspect.NoneType)))
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.EnumType(cls=cls):
            return next(iter(cls)).value
        case inspect.BoolType():
            return True
        case inspect.IntType(ge=least):
            return max(7, least or 0)
        case inspect.FloatType():
            return 1.5
        case inspect.AnyType():
            return "anything"
    raise TypeError(f"no sample of {kind}")


_VOUCHED = ec.derive_private_key(7, ec.SECP256R1())
_VOUCHED_PUBLIC = _VOUCHED.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
_KEYS = {"vkeys": [str(VKEY)], "by": [str(VKEY)]}
OURS: dict[str, dict[str, Any]] = {
    "log.key-rotated/v1": _KEYS,
    "log.key-retired/v1": _KEYS,
    "log.key-vouched/v1": {
        "algorithm": "ecdsa-p256-sha256",
        "by": [str(VKEY)],
        "possession": base64.b64encode(
            _VOUCHED.sign(
                possession_text("log.example/events", _VOUCHED_PUBLIC),
                ec.ECDSA(hashes.SHA256(), deterministic_signing=True),
            )
        ).decode(),
        "public": base64.b64encode(_VOUCHED_PUBLIC).decode(),
        "use": "attestations",
    },
    "log.key-revoked/v1": {
        "algorithm": "ecdsa-p256-sha256",
        "by": [str(VKEY)],
        "public": base64.b64encode(_VOUCHED_PUBLIC).decode(),
        "use": "attestations",
    },
    "log.anchored/v1": {
        "authority": "https://tsa.example",
        "checkpoint": "log.example/events\n0\n\n",
        "kind": "rfc3161",
        "time": "2026-11-21T10:00:00.000000Z",
        "token": "AAAA",
    },
}
"""The types that the log itself gives a meaning to."""


_AUTHOR = Signer("golden@example", Ed25519PrivateKey.from_private_bytes(bytes(range(2, 34))))
_TIME = "2026-11-21T10:00:00.000000Z"
_ENROLLED = enrol_author(SIGNER.name, SIGNER, _AUTHOR.verifier, make_certificate(_AUTHOR))
_SIGNED = sign_drafts(SIGNER.name, _AUTHOR, [Draft("note.added/v1", "golden/1", {}, id="golden")])
AUTHORS: dict[str, list[Draft]] = {
    "log.author-enrolled/v1": [_ENROLLED],
    "log.author-revoked/v1": [_ENROLLED, revoke_author(SIGNER.name, SIGNER, _AUTHOR.verifier)],
    "log.authored/v1": [_ENROLLED, *_SIGNED],
}
"""The types that speak of authors, each at the end of the events that it needs before it."""


def kinds() -> Iterator[str]:
    """Every type that this product writes."""
    yield from BODIES
    yield from OURS
    yield from AUTHORS


def body_of(kind: str) -> dict[str, Any]:
    if kind in AUTHORS:
        return dict(AUTHORS[kind][-1].body)
    if kind in OURS:
        return OURS[kind]
    body = msgspec.to_builtins(msgspec.convert(sample(inspect.type_info(BODIES[kind])), BODIES[kind]))
    assert isinstance(body, dict)
    return body


def proof_of(kind: str, body: dict[str, Any]) -> bytes:
    storage = MemoryStorage()
    Log.create(storage, SIGNER)
    draft = Draft(kind, "golden/1", body, id="golden", actor="golden@example", time=_TIME)
    drafts = [replace(one, time=_TIME) for one in AUTHORS[kind]] if kind in AUTHORS else [draft]
    with Log.open(storage, SIGNER) as log:
        if kind.startswith("log.key-"):
            log.append_key_event(draft)
        else:
            log.append(drafts[:1])
            log.append(drafts[1:])
    return str(make_proof(LogReader(storage, [VKEY]), len(drafts) - 1)).encode()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for kind in kinds():
        if not path_of(kind).exists():
            path_of(kind).write_bytes(proof_of(kind, body_of(kind)))
            sys.stdout.write(f"{path_of(kind).name}\n")


if __name__ == "__main__":
    main()
