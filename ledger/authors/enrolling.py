"""Authors are enrolled in a log, and revoked."""

from __future__ import annotations

import base64

from ledger.authors import enrolment
from ledger.format.event import AUTHOR_ENROLLED, AUTHOR_REVOKED, Draft
from ledger.format.note import Signer, VerifierKey


def enrol_author(
    origin: str, signer: Signer, vkey: VerifierKey, certificate: bytes, *, may_enrol: bool = False
) -> Draft:
    """The event by which ``signer`` enrols an author in the log ``origin``.

    Raises:
        Refused: the name cannot be an author's.
    """
    enrolment.check_author_name(vkey.name)
    may = (enrolment.APPEND, enrolment.ENROL) if may_enrol else (enrolment.APPEND,)
    text = enrolment.enrolment_text(origin, enrolment.Enrolment(vkey, signer.verifier, may, certificate))
    body = {
        "by": str(signer.verifier),
        "certificate": base64.b64encode(certificate).decode(),
        "may": list(may),
        "signature": base64.b64encode(signer.sign(text)).decode(),
        "vkey": str(vkey),
    }
    return Draft(AUTHOR_ENROLLED, enrolment.AUTHORS_STREAM, body, id=enrolment.enrolled_id(vkey.name))


def revoke_author(origin: str, signer: Signer, vkey: VerifierKey) -> Draft:
    """The event by which ``signer`` ends what this author may write in the log ``origin``."""
    text = enrolment.revocation_text(origin, enrolment.Revocation(vkey, signer.verifier))
    body = {"by": str(signer.verifier), "signature": base64.b64encode(signer.sign(text)).decode(), "vkey": str(vkey)}
    return Draft(AUTHOR_REVOKED, enrolment.AUTHORS_STREAM, body, id=enrolment.revoked_id(vkey.name))
