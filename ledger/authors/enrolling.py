"""Authors are enrolled in a log, and revoked."""

from __future__ import annotations

import base64

from ledger.authors.enrolment import (
    APPEND,
    AUTHORS_STREAM,
    ENROL,
    Enrolment,
    Revocation,
    check_author_name,
    enrolled_id,
    enrolment_text,
    revocation_text,
    revoked_id,
)
from ledger.format.event import AUTHOR_ENROLLED, AUTHOR_REVOKED, Draft
from ledger.format.note import Signer, VerifierKey


def enrol_author(
    origin: str, signer: Signer, vkey: VerifierKey, certificate: bytes, *, may_enrol: bool = False
) -> Draft:
    """The event by which ``signer`` enrols an author in the log ``origin``.

    Raises:
        Refused: the name cannot be an author's.
    """
    check_author_name(vkey.name)
    may = (APPEND, ENROL) if may_enrol else (APPEND,)
    text = enrolment_text(origin, Enrolment(vkey, signer.verifier, may, certificate))
    body = {
        "by": str(signer.verifier),
        "certificate": base64.b64encode(certificate).decode(),
        "may": list(may),
        "signature": base64.b64encode(signer.sign(text)).decode(),
        "vkey": str(vkey),
    }
    return Draft(AUTHOR_ENROLLED, AUTHORS_STREAM, body, id=enrolled_id(vkey.name))


def revoke_author(origin: str, signer: Signer, vkey: VerifierKey) -> Draft:
    """The event by which ``signer`` ends what this author may write in the log ``origin``."""
    text = revocation_text(origin, Revocation(vkey, signer.verifier))
    body = {"by": str(signer.verifier), "signature": base64.b64encode(signer.sign(text)).decode(), "vkey": str(vkey)}
    return Draft(AUTHOR_REVOKED, AUTHORS_STREAM, body, id=revoked_id(vkey.name))
