"""Logs on other machines that this user was invited to: where they are served, and by which keys.

    joined/<address>.json   {"address": …, "certificate": …, "vkey": …} in the user's configuration folder

An invitation is the same in one line. What it says is believed as far as its line was got from a user who is believed: the
certificate is that of the service, so nobody in between can take its place, and the verifier key that of the log. The address
of such a root is ``ledger://HOST:PORT``.
"""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import ledger
from marin.errors import UsageError
from marin.process.files import write_whole
from marin.record.trust.keyfiles import author_key_path

SCHEME = "ledger"
_INVITATION = "marin-invitation:"
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})\Z")
_MOST = 16_000


@dataclass(frozen=True)
class Joined:
    """A log, where it is served, and the certificate of the service."""

    address: str
    vkey: ledger.VerifierKey
    certificate: bytes

    @property
    def location(self) -> str:
        """The address of the root."""
        return f"{SCHEME}://{self.address}"

    def line(self) -> str:
        """The invitation."""
        return _INVITATION + base64.b64encode(json.dumps(self._fields(), sort_keys=True).encode()).decode()

    def keep(self) -> Path:
        """Write it where :func:`joined_log` finds it."""
        path = _path(self.address)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(self._fields(), sort_keys=True).encode() + b"\n")
        return path

    def connect(self) -> ledger.RemoteClient:
        """A connection to the service, by this user's key.

        Raises:
            ledger.Unavailable: there is no key, or the service cannot be reached.
            Unverified: the service does not take this key, or has another one than the invitation says.
            ledger.Refused: another log is served there.
        """
        host, port = split_address(self.address)
        client = ledger.RemoteClient(host, port, ledger.load_signer(author_key_path(self.vkey.name)), self.certificate)
        if client.origin != self.vkey.name:
            client.close()
            raise ledger.Refused(
                "the service serves another log",
                where=self.location,
                expected=self.vkey.name,
                found=client.origin[:80],
                cure="ask for another invitation",
            )
        return client

    def refuses(self) -> bool:
        """Whether the service does not take the key that this user has, or takes it no more; False where it cannot be asked."""
        try:
            self.connect().close()
        except ledger.Unverified:
            return True
        except ledger.LedgerError:
            return False
        return False

    def _fields(self) -> dict[str, str]:
        certificate = base64.b64encode(self.certificate).decode()
        return {"address": self.address, "certificate": certificate, "vkey": str(self.vkey)}


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``.

    Raises:
        UsageError: it is not such an address.
    """
    found = _ADDRESS.match(address)
    if found is None or int(found["port"]) > 65535:
        raise UsageError(
            "not an address",
            where=repr(address[:80]),
            expected="HOST:PORT, such as lab.example:7420 or 127.0.0.1:7420",
            found=f"{len(address)} characters",
            cure="write the host as other machines know it",
        )
    return found["host"].strip("[]"), int(found["port"])


def read_invitation(line: str) -> Joined:
    """What an invitation says.

    Raises:
        UsageError: it is not an invitation.
    """
    text = line.strip()
    try:
        if not text.startswith(_INVITATION) or len(text) > _MOST:
            raise ValueError("another beginning, or too long")
        return _joined(base64.b64decode(text.removeprefix(_INVITATION), validate=True))
    except (ValueError, ledger.LedgerError) as error:
        raise UsageError(
            "not an invitation",
            where=repr(text[:40]),
            expected=f"the line {_INVITATION}… that `marin ledger key invite` printed",
            found=str(error)[:120],
            cure="copy the whole line",
        ) from None


def joined_log(address: str) -> Joined:
    """The log that is served at this address, as its invitation said.

    Raises:
        ledger.Unavailable: this user has joined none there.
        ledger.Refused: what was kept of it cannot be read.
    """
    split_address(address)
    path = _path(address)
    try:
        return _joined(path.read_bytes()[:_MOST])
    except FileNotFoundError:
        raise ledger.Unavailable(
            "no log is joined at this address",
            where=f"{SCHEME}://{address}",
            expected=str(path),
            found="no file",
            cure="ask for an invitation, then `marin ledger key join LINE --as NAME`",
        ) from None
    except (OSError, ValueError, ledger.LedgerError) as error:
        raise ledger.Refused(
            "what was joined cannot be read",
            where=str(path),
            expected="what `marin ledger key join` wrote",
            found=str(error)[:120],
            cure="join again",
        ) from None


def open_joined(address: str, *, readonly: bool = False) -> ledger.Storage:
    """The files of a root at ``ledger://HOST:PORT``."""
    there = joined_log(address.partition("://")[2].rstrip("/"))
    return ledger.RemoteStorage(there.location, there.connect)


def connect(location: str) -> ledger.RemoteClient:
    """The service of the root at this address."""
    return joined_log(location.partition("://")[2].rstrip("/")).connect()


def _joined(data: bytes) -> Joined:
    fields = json.loads(data)
    names = ("address", "certificate", "vkey")
    if not isinstance(fields, dict) or set(fields) != set(names) or not all(isinstance(fields[n], str) for n in names):
        raise ValueError(f"expected {', '.join(names)}")
    split_address(fields["address"])
    certificate = base64.b64decode(fields["certificate"], validate=True)
    ledger.read_certificate(certificate)
    return Joined(fields["address"], ledger.VerifierKey.parse(fields["vkey"]), certificate)


def _path(address: str) -> Path:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "marin" / "joined" / f"{quote(address, safe='')}.json"
