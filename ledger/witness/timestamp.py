"""Time stamps of the log (RFC 3161): an authority signs that these bytes existed at this time.

What is stamped is the text of a log checkpoint (origin, size, root), and so every event below its size. The answer is
kept in an event, ``log.anchored/v1``, which the next checkpoint covers:

    {"authority": "https://…", "checkpoint": "<text>", "kind": "rfc3161", "time": "…Z", "token": "<base64 of the
    answer>"}

Anyone who checks it needs certificates of authorities that they trust; nothing else about the authority is believed.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ledger.errors import LedgerError, Malformed, Refused, Tampered, Unavailable, Unverified
from ledger.format.checkpoint import LogCheckpoint
from ledger.format.event import ANCHORED, Draft, Event, format_time
from ledger.format.note import decode_base64
from ledger.log.reader import LogReader
from ledger.witness.client import post
from ledger.witness.instant import instant_of

_STREAM = "log/anchors"
_KIND = "rfc3161"
_MAX_ANSWER = 40_000
"""Bytes of an answer: its base64 must fit into an event."""


@dataclass(frozen=True)
class Stamped:
    """What a time stamp shows: events below ``size`` existed before ``time`` (:mod:`ledger.witness.instant`), so says
    ``authority``."""

    index: int
    """The event that holds the stamp."""
    size: int
    root: bytes
    time: str
    authority: str
    """The subject of the certificate that signed."""


def stamp_checkpoint(
    checkpoint: LogCheckpoint, address: str, authorities: Sequence[x509.Certificate]
) -> tuple[Draft, str]:
    """Ask the authority at ``address`` for a stamp of this checkpoint: the event to append, and the time it states.

    Raises:
        Unavailable: the authority cannot be reached.
        Unverified: its answer does not hold under ``authorities``.
        Refused: ``address`` is not one of https or http.
    """
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder  # 40 ms, for this command alone

    if urlsplit(address).scheme not in ("https", "http"):
        raise Refused("not the address of a time stamp authority", where=address, expected="https://…")
    text = str(checkpoint)
    request = TimestampRequestBuilder().data(text.encode()).hash_algorithm(HashAlgorithm.SHA256).build()
    answer = _post(address, request.as_bytes())
    time, _ = verify_stamp(answer, text, authorities, nonce=request.nonce)
    body = {
        "authority": address,
        "checkpoint": text,
        "kind": _KIND,
        "time": time,
        "token": base64.b64encode(answer).decode(),
    }
    return Draft(ANCHORED, _STREAM, body), time


def verify_stamp(
    answer: bytes, text: str, authorities: Sequence[x509.Certificate], *, nonce: int | None = None
) -> tuple[str, str]:
    """Before when ``text`` existed, by a stamp over it, and who signed that; ``Malformed`` or ``Unverified`` if it is not one."""
    from rfc3161_client import VerificationError, VerifierBuilder, decode_timestamp_response

    try:
        response = decode_timestamp_response(answer)
        status = response.status
    except ValueError as error:
        raise Malformed("not an answer of a time stamp authority", found=str(error)[:200]) from error
    if status != 0:
        raise Unverified("the authority did not grant the time stamp", found=f"status {status}")
    if not authorities:
        raise _untrusted("no certificate of any authority is trusted here")
    builder = VerifierBuilder()
    for certificate in authorities:
        builder = builder.add_root_certificate(certificate)
    if nonce is not None:
        builder = builder.nonce(nonce)
    try:
        builder.build().verify_message(response, text.encode())
        second: datetime = response.tst_info.gen_time  # the library drops the fraction
        signer, token = _signer_of(response), response.time_stamp_token()
    except (VerificationError, ValueError, LookupError) as error:
        raise _untrusted(str(error)[:300]) from error
    instant = instant_of(token)
    if instant.second != second:
        raise Malformed("a time stamp of two times", expected=format_time(second), found=format_time(instant.second))
    return format_time(instant.bound), signer


def check_stamp(
    reader: LogReader, index: int, event: Event, authorities: Sequence[x509.Certificate]
) -> Stamped | LedgerError:
    """What the time stamp in this event shows, or the error that says why it shows nothing: ``Tampered`` where it is of
    another history, ``Malformed`` or ``Unverified`` where the stamp itself does not hold. Nothing is raised."""
    where = f"event {index}"
    try:
        text, token = _checkpoint_and_token(event.body, where)
        checkpoint = LogCheckpoint.parse(text)
        if checkpoint.origin != reader.checkpoint().origin or checkpoint.size > index:
            raise Tampered(
                "a time stamp is not of this log's past",
                where=where,
                expected=f"a size up to {index}",
                found=f"{checkpoint.origin}, size {checkpoint.size}",
            )
        root = reader.root(checkpoint.size)
        if root != checkpoint.root:
            raise Tampered(
                "a time stamp is of another history",
                where=where,
                expected=root.hex(),
                found=checkpoint.root.hex(),
                cure="keep both: two roots of one size are evidence",
            )
        time, authority = verify_stamp(token, text, authorities)
    except LedgerError as error:
        error.where = error.where or where
        return error
    return Stamped(index, checkpoint.size, checkpoint.root, time, authority)


def load_authorities(path: Path | None) -> list[x509.Certificate]:
    """The certificates in a PEM file, or those that this system trusts.

    Raises:
        Unavailable: the file cannot be read.
        Malformed: it is not a list of certificates.
    """
    if path is None:
        found = ssl.create_default_context().get_ca_certs(binary_form=True)
        with warnings.catch_warnings():  # some old roots have odd serial numbers, which is not for us to say
            warnings.simplefilter("ignore")
            return [x509.load_der_x509_certificate(data) for data in found]
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise Unavailable(
            "the authority's certificate cannot be read", where=str(path), found=str(error.strerror)
        ) from error
    except ValueError as error:
        raise Malformed("not certificates", where=str(path), expected="PEM", found=str(error)[:120]) from error


def _checkpoint_and_token(body: Mapping[str, Any], where: str) -> tuple[str, bytes]:
    text, token = body.get("checkpoint"), body.get("token")
    if body.get("kind") != _KIND or not isinstance(text, str) or not isinstance(token, str):
        raise Malformed(
            "not a time stamp", where=where, expected="kind rfc3161, checkpoint and token", found=str(body.get("kind"))
        )
    return text, decode_base64(token, "time stamp")


def _signer_of(response: Any) -> str:
    signers = list(response.signed_data.signer_infos)
    for data in response.signed_data.certificates:
        certificate = x509.load_der_x509_certificate(data)
        if any(certificate.serial_number == info.serial_number for info in signers):
            return certificate.subject.rfc4514_string()
    return "an authority that named no certificate"


def pem_bytes(certificates: Sequence[x509.Certificate]) -> bytes:
    """These certificates as one PEM file."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def _untrusted(found: str) -> Unverified:
    return Unverified(
        "a time stamp does not hold",
        expected="a signature of an authority that is trusted here",
        found=found,
        cure="give the authority's certificate with --ca FILE",
    )


def _post(address: str, body: bytes) -> bytes:
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    try:
        status, answer = post(address, body, headers, most=_MAX_ANSWER + 1)
    except (OSError, http.client.HTTPException) as error:
        raise _away(address, str(error)) from error
    if status // 100 != 2:
        raise _away(address, f"status {status}")
    if len(answer) > _MAX_ANSWER:
        raise Refused(
            "the answer is too large for an event",
            where=address,
            expected=f"at most {_MAX_ANSWER} bytes",
            cure="name another authority",
        )
    return answer


def _away(address: str, found: str) -> Unavailable:
    return Unavailable(
        "the time stamp authority cannot be reached",
        where=address,
        found=found,
        cure="try again, or name another authority",
    )
