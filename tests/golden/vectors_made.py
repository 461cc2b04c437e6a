"""``python tests/golden/vectors_made.py``: the vectors below ``vectors/`` that are not there yet, made by this implementation.
What is there is never changed; ``vectors/README.md`` says what they are."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import LogCheckpoint, Signer, canonical_bytes, parse_canonical, tensor_digest
from ledger.errors import LedgerError
from marin.plugins.exact import known, reference

FOLDER = Path(__file__).with_name("vectors")


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def array(value: Any) -> dict[str, Any]:
    """A tensor: its bytes are its elements in C order, little-endian."""
    own = np.asarray(value, order="C")  # ascontiguousarray gives a number an axis
    return {
        "bytes": coded(own.astype(own.dtype.newbyteorder("<"), copy=False).tobytes()),
        "dtype": str(own.dtype),
        "shape": list(own.shape),
    }


def programs() -> Iterator[tuple[str, Any]]:
    """Every group of the known answers (marin/plugins/exact/known.py), as the reference computes it."""
    for name, case in known.cases().items():
        program = case.made().program
        outputs = reference.run(program, case.arguments)
        assert known.digest(outputs) == known.ANSWERS[name]
        given = zip(case.arguments, program.of(program.inputs), strict=True)
        yield (
            f"exact-{name.replace(' ', '-')}.json",
            {
                "constants": {tensor_digest(value): array(value) for value in program.values()},
                "inputs": [array(np.asarray(value, form.dtype)) for value, form in given],
                "outputs": [array(value) for value in outputs],
                "program": program.plain(),
            },
        )


TEXTS = [
    b"{}",
    b"[]",
    b'{"a":1}',
    b'{"b":1,"a":2}',
    b'{"a":1,"a":1}',
    b'{"a": 1}',
    b'{"a":1}\n',
    b"[1.0]",
    b"[1.5]",
    b"[-0]",
    b"[1e21]",
    b"[1e+21]",
    b"[100000000000000000000]",
    b"[9007199254740991]",
    b"[9007199254740993]",
    b"[1e400]",
    b"[NaN]",
    b"[5e-324]",
    b"[01]",
    b"[0.1]",
    b"[1E2]",
    b'["\\u0061"]',
    b'["\\n"]',
    b'["\\u000a"]',
    b'["\\u001f"]',
    b'["\\u001F"]',
    b'["\\/"]',
    b'["\\ud800"]',
    b'["\\ud83d\\ude00"]',
    '["\U0001f600"]'.encode(),
    '["\u00e9"]'.encode(),
    '["e\u0301"]'.encode(),
    '{"\u20ac":1,"\U0001f600":2,"\ufb33":3}'.encode(),
    '{"\u20ac":1,"\ufb33":3,"\U0001f600":2}'.encode(),
    b'["\xff"]',
    b"\xef\xbb\xbf[]",
    b'{"__proto__":1}',
    b"true",
    b"null",
    b"",
    b"[",
]


def json_texts() -> Any:
    """Bytes, and whether they are canonical JSON."""

    def is_canonical(data: bytes) -> bool:
        try:
            parse_canonical(data)
        except LedgerError:
            return False
        return True

    return [{"bytes": coded(data), "canonical": is_canonical(data)} for data in TEXTS]


def notes() -> Any:
    """Signed notes of checkpoints, under a key, and whether its holder signed them."""
    signer = Signer("log.example/spec", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    other = Signer("log.example/spec", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    checkpoint = LogCheckpoint("log.example/spec", 3, bytes(range(32)))
    good = checkpoint.sign([signer])
    told = {
        "signed": (good, True),
        "signed by two": (checkpoint.sign([other, signer]), True),
        "signed by another": (checkpoint.sign([other]), False),
        "another size": (good.replace("\n3\n", "\n4\n"), False),
        "no empty line": (good.replace("\n\n", "\n"), False),
        "a byte more at the end": (good + "\n", False),
        "base64 with stray bits": (good.replace("=\n\n", "F=\n\n"), False),
    }
    return [
        {"key": str(signer.verifier), "name": name, "note": note, "signed": signed}
        for name, (note, signed) in told.items()
    ]


def tensors() -> Any:
    """Tensors and their digests."""
    draw = np.random.default_rng(57)
    values = [
        np.array(7, np.int64),
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.zeros((0, 4), np.uint8),
        np.array([True, False, True]),
        draw.integers(0, 2**16, 5, dtype=np.uint16),
        np.array([-0.0, np.inf, 5e-324]),
    ]
    return [array(value) | {"digest": tensor_digest(value)} for value in values]


def made() -> Iterator[tuple[str, bytes]]:
    """All vectors, by name."""
    yield "json.json", canonical_bytes(json_texts())
    yield "notes.json", canonical_bytes(notes())
    yield "tensors.json", canonical_bytes(tensors())
    for name, value in programs():
        yield name, canonical_bytes(value)


if __name__ == "__main__":
    for name, data in made():
        path = FOLDER / name
        if not path.exists():
            path.write_bytes(data)
            sys.stdout.write(f"{path.name}: {len(data)} bytes\n")
