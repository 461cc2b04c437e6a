"""TLS between two keys that know each other: no names, no authorities, no passwords.

Each side shows the certificate of its own key (:mod:`ledger.authors.certificate`) and accepts exactly those certificates that
it was given. A session is not resumed, so that a key that was revoked has to show itself again. TLS 1.3 alone.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ledger.authors.certificate import make_certificate
from ledger.errors import Unverified
from ledger.format.note import Signer


class Connection(ssl.SSLSocket):
    """A connection that another thread may end."""

    def shutdown(self, how: int) -> None:
        """End the connection below TLS: a thread that reads or writes on it is woken, and nothing more is deciphered."""
        socket.socket.shutdown(self, how)


def server_context(signer: Signer, certificates: Iterable[bytes]) -> ssl.SSLContext:
    """For a server that shows this key, and takes clients that show one of these certificates."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, signer, certificates)
    context.num_tickets = 0
    return context


def client_context(signer: Signer, certificate: bytes) -> ssl.SSLContext:
    """For a client that shows this key, and takes the server that shows this certificate."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, signer, [certificate])


def peer_certificate(connection: ssl.SSLSocket) -> bytes:
    """What the other side showed.

    Raises:
        Unverified: nothing.
    """
    found = connection.getpeercert(binary_form=True)
    if not found:
        raise Unverified("the other side showed no certificate")
    return found


def _context(protocol: int, signer: Signer, certificates: Iterable[bytes]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.sslsocket_class = Connection
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is known to the byte; where it is shown says nothing
    context.verify_mode = ssl.CERT_REQUIRED
    for certificate in certificates:
        context.load_verify_locations(cadata=certificate)
    _show(context, signer)
    return context


def _show(context: ssl.SSLContext, signer: Signer) -> None:
    """OpenSSL reads keys from files alone; this one is in memory, and no other process sees it."""
    certificate = ssl.DER_cert_to_PEM_cert(make_certificate(signer)).encode()
    private = signer.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor = os.memfd_create("ledger-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, certificate + private)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
