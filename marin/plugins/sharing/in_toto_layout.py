"""The steps of a run as an in-toto layout and links, which in-toto's own verifier checks (in-toto.io, specification 1.0).

The layout says which step follows on which: every input of a step is the output of the step of its name, and nothing else goes
in or comes out. A link says what one step took and made. All are signed by the log's key, in DSSE envelopes (ITE-5):

    in-toto-verify --layout root.layout --verification-keys log.pem --link-dir .

Its key id is the one that securesystemslib gives the key, which names the files of links.
"""

from __future__ import annotations

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from ledger import Signer, Tampered, VerifierKey
from marin.history.run import Run, StepView
from marin.plugins.sharing.in_toto import digest_set
from marin.record.attestation import PAYLOAD_TYPE

LAYOUT, KEY = "root.layout", "log.pem"
EXPIRES = "9999-12-31T23:59:59Z"
"""A layout has to expire; what a run was does not."""


def chain(run: Run, signer: Signer) -> dict[str, bytes]:
    """The files of layout, links and key, by name."""
    key = _key(signer.verifier)
    found = {KEY: pem(signer.verifier)}
    for name, payload in payloads(run, signer.verifier).items():
        signed = Envelope(payload, PAYLOAD_TYPE, {})
        signed.sign(CryptoSigner(signer.key, key))
        found[name] = json.dumps(signed.to_dict(), sort_keys=True).encode() + b"\n"
    return found


def check_chain(files: dict[str, bytes], run: Run, verifier: VerifierKey, *, where: str) -> None:
    """Whether files are what :func:`chain` gives for this run under the key of ``verifier``.

    Raises:
        Tampered: one is missing, more, not signed by the key, or says something else than the run.
    """
    expected, key = payloads(run, verifier), _key(verifier)
    if set(files) != {*expected, KEY} or files.get(KEY) != pem(verifier):
        raise Tampered(
            "a layout of other steps or another key",
            where=where,
            expected=", ".join([*expected, KEY]),
            found=", ".join(files),
        )
    for name, payload in expected.items():
        try:
            found = Envelope.from_dict(json.loads(files[name]))
            found.verify([key], 1)
            same = found.payload == payload
        except (ValueError, KeyError, TypeError, RecursionError, VerificationError) as error:
            raise Tampered(
                "a link is not signed by the log's key",
                where=f"{where}/{name}",
                expected=str(verifier),
                found=" ".join(str(error).split())[:200],
            ) from None
        if not same:
            raise Tampered(
                "a link does not follow from the events",
                where=f"{where}/{name}",
                expected="what the run recorded",
                found="something else",
            )


def payloads(run: Run, verifier: VerifierKey) -> dict[str, bytes]:
    """What is signed, by file."""
    key = _key(verifier)
    found = {LAYOUT: _encoded(_layout(run, key))}
    for name, step in run.steps.items():
        found[f"{name}.{key.keyid[:8]}.link"] = _encoded(_link(name, step))
    return found


def pem(verifier: VerifierKey) -> bytes:
    """The public key of a log in PEM."""
    return Ed25519PublicKey.from_public_bytes(verifier.public).public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )


def _key(verifier: VerifierKey) -> SSlibKey:
    key: SSlibKey = SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(verifier.public))
    return key


def _layout(run: Run, key: SSlibKey) -> dict[str, Any]:
    steps = [
        {
            "_type": "step",
            "name": name,
            "pubkeys": [key.keyid],
            "threshold": 1,
            "expected_command": [],
            "expected_materials": [
                *(
                    ["MATCH", source, "WITH", "PRODUCTS", "FROM", source] if source in run.steps else ["ALLOW", source]
                    for source in sorted(step.inputs)
                ),
                ["DISALLOW", "*"],
            ],
            "expected_products": [["REQUIRE", name], ["ALLOW", name], ["DISALLOW", "*"]],
        }
        for name, step in run.steps.items()
    ]
    return {
        "_type": "layout",
        "readme": f"run {run.run}",
        "expires": EXPIRES,
        "keys": {key.keyid: {"keyid": key.keyid, **key.to_dict()}},
        "steps": steps,
        "inspect": [],
    }


def _link(name: str, step: StepView) -> dict[str, Any]:
    return {
        "_type": "link",
        "name": name,
        "command": [],
        "materials": {source: digest_set(digest) for source, digest in sorted(step.inputs.items())},
        "products": {name: digest_set(step.output.digest)},
        "byproducts": {},
        "environment": {},
    }


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()
