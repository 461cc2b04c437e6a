"""Files over HTTP whose bytes are known before: from mirrors, one after another, resumed where an answer broke off.

A file goes to a place of its own beside its target and is renamed when its digest is right, so what stands under its name is
what was declared. Of one host no more than :data:`PER_HOST` files are fetched at a time, and a host that says when it wants to
be asked again (``Retry-After``, RFC 9110, 10.2.3) is asked then.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ledger import LedgerError
from marin.data.reach import check_address, redirected
from marin.errors import DataError, DataMissing
from marin.process.progress import bar

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

ATTEMPTS = 4
"""At each mirror."""
PER_HOST, AT_A_TIME = 2, 8
LONGEST_PAUSE = 120.0
LEAST_RATE, PATIENCE = 1024, 60.0
"""Bytes a second that an answer has to bring once it has lasted so many seconds."""
_TIMEOUT = 30.0
_BLOCK = 1 << 16
_AGENT = "marin (fetches files that are pinned by their digest)"

Pause = Callable[[float], None]
Gate = Callable[[str], AbstractContextManager[object]]
"""Entered with a host's name while it is asked."""


@dataclass(frozen=True)
class Pinned:
    """A file: its addresses, the first first; its size; ``sha256:`` or ``git-sha1:`` (of a Git blob) of its bytes. ``headers`` go
    to the host of the first address alone."""

    urls: tuple[str, ...]
    size: int
    digest: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def hasher(self) -> Any:
        """An empty hash of the kind that the digest is of."""
        if self.digest.startswith("git-sha1:"):
            return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        return hashlib.sha256()


def open_gate(host: str) -> AbstractContextManager[object]:
    """For who fetches one file (:data:`Gate`)."""
    return nullcontext()


def fetch(
    file: Pinned,
    target: Path,
    *,
    pause: Pause | None = None,
    keep: bool = False,
    gate: Gate = open_gate,
    cure: str = "",
) -> None:
    """Bring the file to ``target``. ``keep``: what was fetched of it stays after a failure, and the next call goes on.

    Raises:
        DataMissing: no mirror has it; each of them is named with what it said.
        DataError: the only one has other bytes.
    """
    part = target.with_name(f".tmp-{target.name}")
    faults: list[str] = []
    try:
        for url in file.urls:
            try:
                fault = _from(url, file, part, pause or time.sleep, gate)
            except DataError as error:
                if len(file.urls) == 1:
                    raise
                fault = "may not be asked" if isinstance(error, DataMissing) else "other bytes"
            if fault is None:
                part.replace(target)
                return
            faults.append(fault if len(file.urls) == 1 else f"{url}: {fault}")
    finally:
        if not keep:
            part.unlink(missing_ok=True)
    raise DataMissing(
        "data cannot be fetched",
        where=file.urls[0],
        expected=f"{file.size} bytes",
        found="; ".join(faults)[:600],
        cure=cure or "check the network, or name another mirror",
    )


def fetch_all(files: Sequence[tuple[Pinned, Path]]) -> dict[int, LedgerError]:
    """Fetch several at a time; what went wrong, by their numbers. What is there already is not asked for.

    Raises:
        DataMissing: all addresses of a file are such as may not be asked (:mod:`marin.data.reach`).
    """
    hosts: defaultdict[str, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(PER_HOST))
    mutex = threading.Lock()

    def gate(host: str) -> AbstractContextManager[object]:
        with mutex:
            return hosts[host]

    def one(number: int) -> LedgerError | None:
        file, target = files[number]
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            fetch(file, target, keep=True, gate=gate)
        except LedgerError as error:
            return error
        return None

    waiting = [number for number, (_, target) in enumerate(files) if not target.exists()]
    for number in waiting:
        check_any(files[number][0])
    failed: dict[int, LedgerError] = {}
    here = [copy_context() for _ in waiting]  # what may be reached holds in the threads too
    with ThreadPoolExecutor(AT_A_TIME) as threads, bar("fetch sources", len(waiting)) as report:
        for done, (number, error) in enumerate(
            zip(waiting, threads.map(lambda context, number: context.run(one, number), here, waiting), strict=True),
            start=1,
        ):
            if error is not None:
                failed[number] = error
            report(done, "")
    return failed


def check_any(file: Pinned) -> None:
    """Refuse a file none of whose addresses may be asked.

    Raises:
        DataMissing: of the first of them.
    """
    for url in file.urls[1:]:
        with suppress(DataMissing):
            check_address(url)
            return
    check_address(file.urls[0])


def _from(url: str, file: Pinned, part: Path, pause: Pause, gate: Gate) -> str | None:
    """Try one mirror; what went wrong the last time, None where the part is whole."""
    import httpx

    fault, wait = "", 0.0
    for attempt in range(ATTEMPTS):
        if attempt:
            pause(max(wait, 2.0**attempt))
        try:
            with gate(urlsplit(url).hostname or ""):
                _receive(url, file, part)
            return None
        except httpx.HTTPStatusError as error:
            status, wait = error.response.status_code, _asked_to_wait(error.response)
            fault = f"HTTP status {status}"
            if status < 500 and status not in (408, 416, 425, 429):
                return fault
        except httpx.HTTPError as error:
            fault = f"{type(error).__name__}: {error}".rstrip(": ")
        log.warning("%s: %s (attempt %d of %d)", url, fault, attempt + 1, ATTEMPTS)
    return fault


def _asked_to_wait(response: httpx.Response) -> float:
    said = response.headers.get("retry-after", "")
    return min(float(said), LONGEST_PAUSE) if said.isascii() and said.isdigit() else 0.0


def _receive(url: str, file: Pinned, part: Path) -> None:
    """One attempt, which goes on behind what is there. It ends as soon as more is sent than was declared."""
    import httpx

    check_address(url)
    hasher, size = file.hasher(), 0
    if part.exists():
        with part.open("rb") as before:
            while block := before.read(1 << 20):
                hasher.update(block)
                size += len(block)
    headers = {"Accept-Encoding": "identity", "User-Agent": _AGENT} | ({"Range": f"bytes={size}-"} if size else {})
    with httpx.Client(timeout=_TIMEOUT) as client, _behind_redirects(client, url, headers, file) as response:
        if response.status_code == 416:
            part.unlink(missing_ok=True)
        response.raise_for_status()
        if size and not response.headers.get("content-range", "").startswith(f"bytes {size}-"):
            hasher, size = file.hasher(), 0
        begun, before_it = time.monotonic(), size
        with (
            part.open("ab" if size else "wb") as out,
            bar(f"fetch {part.name.removeprefix('.tmp-')}", file.size) as report,
        ):
            # The declared bytes are those of the file, also where a server says that it has packed them for the way.
            packed = "content-encoding" in response.headers
            for block in response.iter_raw(_BLOCK) if packed else response.iter_bytes(_BLOCK):
                size += len(block)
                if size > file.size:
                    raise _mismatch(url, file, part, f"more than {file.size} bytes")
                hasher.update(block)
                out.write(block)
                report(size, "")
                lasted = time.monotonic() - begun
                if lasted > PATIENCE and size - before_it < LEAST_RATE * lasted:
                    raise httpx.ReadTimeout(f"{size - before_it} bytes in {lasted:.0f} s")
            out.flush()
            os.fsync(out.fileno())
    if size < file.size and response.status_code == 206:
        raise httpx.RemoteProtocolError(f"the answer ended after {size} of {file.size} bytes")
    kind = file.digest.partition(":")[0]
    if f"{kind}:{hasher.hexdigest()}" != file.digest:
        raise _mismatch(url, file, part, f"{kind}:{hasher.hexdigest()} ({size} bytes)")


@contextmanager
def _behind_redirects(
    client: httpx.Client, url: str, headers: Mapping[str, str], file: Pinned
) -> Iterator[httpx.Response]:
    """The answer behind all redirects, each of which was looked at before it was followed."""
    own = urlsplit(file.urls[0]).netloc
    with ExitStack() as stack:
        for hops in count():
            more = file.headers if urlsplit(url).netloc == own else {}
            response = stack.enter_context(client.stream("GET", url, headers={**headers, **more}))
            if not response.has_redirect_location:
                yield response
                return
            url = redirected(url, response.headers["location"], hops)


def _mismatch(url: str, file: Pinned, part: Path, found: str) -> DataError:
    part.unlink(missing_ok=True)
    return DataError(
        "checksum mismatch",
        where=url,
        expected=f"{file.digest} ({file.size} bytes)",
        found=found,
        cure="the file at this address has changed: pin the new one, or use a mirror of the old",
    )
