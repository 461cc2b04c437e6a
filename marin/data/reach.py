"""What the data of a recipe may lead to: files of this machine, and addresses on the network.

A recipe that a user trains is their own: its globs name their files, its URL is fetched. The same recipe in a user
else's log is an order from a stranger. So anyone who executes a step says what it may reach (:func:`reaching`): the
operator everything, a verifier of a foreign root nothing but what was allowed by name, and the store, whose bytes are
pinned by their digests.
"""

from __future__ import annotations

import glob
import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import msgspec

from marin.errors import DataError, DataMissing

MOST_REDIRECTS = 5


class Reach(msgspec.Struct, frozen=True):
    """``folders``: below which files may be named; ``hosts``: from which files may be fetched. None: anything. The
    folder ``MARIN_DATA`` is always allowed: anyone who executes has named it."""

    folders: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None


EVERYTHING = Reach()
_reach: ContextVar[Reach] = ContextVar("reach", default=EVERYTHING)


@contextmanager
def reaching(reach: Reach) -> Iterator[None]:
    """While entered, data of recipes leads to no more than this, in this thread."""
    token = _reach.set(reach)
    try:
        yield
    finally:
        _reach.reset(token)


def expand(pattern: str, *, what: str) -> list[str]:
    """The paths that a glob matches, in no order.

    Raises:
        DataMissing: it leads out of what may be reached; it was not looked up then.
    """
    folders = _reach.get().folders
    if folders is not None:
        allowed = [os.path.realpath(folder) for folder in (*folders, *_mirror())]
        if ".." in Path(pattern).parts or not any(_below(_fixed(pattern), folder) for folder in allowed):
            raise _closed(what, pattern, "read:FOLDER")
        # A link inside of an allowed folder may lead out of it.
        return [
            path
            for path in glob.glob(pattern, recursive=True)
            if any(_below(os.path.realpath(path), folder) for folder in allowed)
        ]
    return glob.glob(pattern, recursive=True)


def check_address(url: str, *, origin: str | None = None) -> None:
    """Refuse an address that may not be fetched; ``origin``: the address that led to it by a redirect.

    Raises:
        DataMissing: the host was not allowed; nothing was asked of it.
        DataError: a redirect from https to something else, or to an address of a private network.
    """
    parts, hosts = urlsplit(url), _reach.get().hosts
    first = urlsplit(origin or url)
    if hosts is not None and parts.hostname not in hosts:
        raise _closed("dataset.url", url, f"network:{parts.hostname}")
    if origin is None:
        return
    if parts.scheme != "https" and parts.scheme != first.scheme:
        raise DataError(
            "a redirect leaves https",
            where=origin,
            expected="https://",
            found=url,
            cure="name the final address yourself",
        )
    if parts.hostname != first.hostname and _is_private(parts.hostname or "") and not _is_private(first.hostname or ""):
        raise DataError(
            "a redirect leads into a private network",
            where=origin,
            expected="a public address",
            found=url,
            cure="name the final address yourself",
        )


def redirected(url: str, location: str, hops: int) -> str:
    """The address that a redirect names, checked.

    Raises:
        DataError: as ``check_address``, or one redirect too many.
    """
    if hops >= MOST_REDIRECTS:
        raise DataError("redirects without end", where=url, expected=f"at most {MOST_REDIRECTS}", found="more")
    there = urljoin(url, location)
    check_address(there, origin=url)
    return there


def _mirror() -> tuple[str, ...]:
    folder = os.environ.get("MARIN_DATA")
    return (folder,) if folder else ()


def _fixed(pattern: str) -> str:
    """The folder before the first wildcard, with its links followed."""
    parts: list[str] = []
    for part in Path(pattern).parts:
        if glob.has_magic(part):
            break
        parts.append(part)
    return os.path.realpath(Path(*parts))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_private(host: str) -> bool:
    """Whether a name leads to this machine or its own network. One that leads nowhere does not."""
    try:
        found = {str(item[4][0]).partition("%")[0] for item in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return any(not ipaddress.ip_address(address).is_global for address in found)


def _closed(what: str, found: str, name: str) -> DataMissing:
    return DataMissing(
        "the recipe names data outside of what this verification may reach",
        where=what,
        expected="bytes in the store, or below MARIN_DATA",
        found=found,
        cure=f"nothing was looked up; `--allow {name}` opens it",
    )
