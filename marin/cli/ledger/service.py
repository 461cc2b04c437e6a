"""`marin ledger serve` and `marin ledger publish`: the one writer for many processes, and the log for foreign tools."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import click

from ledger import AUTHORS_STREAM, Author, LedgerError, Log, LogService, RemoteService, Served, mirror_log, open_storage
from marin.cli.options import flag, option, takes
from marin.cli.output import print_json, say
from marin.errors import UsageError
from marin.process.text import several
from marin.record.keys import known_authors, service_key
from marin.record.root import Root, open_root
from marin.record.trust.joined import split_address
from marin.record.trust.policy import load_policy
from marin.record.trust.witnesses import WitnessAnswers, ask_all

_LOG = logging.getLogger(__name__)
PUBLISH_SECONDS = 1.0
ASK_WITNESSES = "ask-witnesses"
"""What `marin ledger witness ask` has a running service do."""


@dataclass(frozen=True)
class ServeOptions:
    """What `marin serve` takes."""

    port: int = option(
        "N",
        "Port on the loopback interface, for this machine.",
        type=click.IntRange(0, 65535),
        default=0,
        show_default="any that is free",
    )
    at: str | None = option(
        "HOST:PORT",
        "Listen there too, for machines that share no folder: TLS between the keys that `marin ledger key enrol` took.",
    )
    max_events: int = option("N", "Commit when so many events wait.", least=1, default=4000, show_default=True)
    max_wait: float = option(
        "SECONDS",
        "Wait so long for more events before a commit.",
        type=click.FloatRange(0, 10),
        default=0.0,
        show_default=True,
    )
    witness_every: float = option(
        "SECONDS",
        "How often the witnesses of this root, if it has any, are asked to cosign.",
        type=click.FloatRange(min=1),
        default=60.0,
        show_default=True,
    )
    as_json: bool = flag("Print one JSON object when ready: origin, port, endpoint, pid.", "--json")


@click.command()
@takes(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Append for other processes, until interrupted: one writer, many clients.

    Without --at it listens on the loopback interface alone. Port and token lie in the root, in a file that only this user can
    read; `marin ledger append`, stages and runs on this root find it and append through it by themselves. What waits is
    committed together, and each client is answered when its events are durable under a signed checkpoint.

    With --at, enrolled people and machines work on this root from elsewhere: they read log and store, add artifacts, and
    append what they signed. Nobody else is let in, and there are no passwords (docs/lab.md).

    \b
    Examples:
      marin ledger serve
      marin ledger serve --at lab.example:7420
      marin ledger serve --json --max-wait 0.005 &
    """
    root = open_root()
    asking = threading.Lock()

    def ask(log: Log) -> WitnessAnswers:
        with asking:
            return ask_all(root.storage, log, [root.verifier])

    with (
        stop_signal() as stop,
        root.log() as log,
        LogService(
            log,
            root.endpoint,
            port=options.port,
            max_events=options.max_events,
            max_seconds=options.max_wait,
            acts={ASK_WITNESSES: lambda: ask(log).as_json()},
        ) as service,
        nullcontext() if options.at is None else _served(root, log, service, options.at) as far,
    ):
        if options.as_json:
            ready = {"origin": root.verifier.name, "port": service.port, "endpoint": str(root.endpoint)}
            print_json({**ready, "at": None if far is None else far.port, "pid": os.getpid()})
        else:
            say(f"serving {root.verifier.name} on 127.0.0.1:{service.port}, endpoint {root.endpoint}")
            if far is not None:
                people = several(len(enrolled(root)), "enrolled authors")
                say(f"and to {people} at {options.at}: `marin ledger key invite {options.at}`")
        sys.stdout.flush()
        _tend(root, log, stop, ask, options.witness_every)


def _served(root: Root, log: Log, service: LogService, at: str) -> RemoteService:
    host, port = split_address(at)
    people = Enrolled(root, log)
    served = Served(root.verifier.name, root.storage, service_key(root), people)
    try:
        return RemoteService(served, service.committer, host, port)
    except OSError as error:
        raise UsageError(
            "this address cannot be listened at",
            where=at,
            expected="an address of this machine, and a port that is free",
            found=str(error.strerror or error),
            cure="name another: 0.0.0.0:PORT is every address of this machine",
        ) from None


class Enrolled:
    """The authors whose keys count by now. Asked at every request, so they are read again only where one came or went."""

    def __init__(self, root: Root, log: Log) -> None:
        self._root, self._log = root, log
        self._turn = threading.Lock()
        self._seen = -1
        self._authors: list[Author] = []

    def __call__(self) -> list[Author]:
        with self._turn:
            changes = self._log.length(AUTHORS_STREAM)
            if changes != self._seen:
                self._authors, self._seen = enrolled(self._root), changes
            return self._authors


def enrolled(root: Root) -> list[Author]:
    """The authors whom the log has not revoked."""
    return [author for author in known_authors(root) if author.until is None]


def _tend(
    root: Root, log: Log, stop: threading.Event, ask: Callable[[Log], WitnessAnswers], witness_every: float
) -> None:
    """Publish what is committed, and keep the witnesses up to date, until asked to stop."""
    turns, every = 0, max(1, round(witness_every / PUBLISH_SECONDS))
    seen = -1
    while not stop.wait(PUBLISH_SECONDS):
        try:
            log.publish()
            if turns % every == 0 and log.checkpoint.size != seen and load_policy(root.storage) is not None:
                seen = log.checkpoint.size
                asked = ask(log)
                for name, why in asked.failed:
                    _LOG.warning("witness %s: %s", name, why)
                if asked.cosigned:
                    _LOG.info("witnesses of size %d: %s", asked.size, ", ".join(asked.cosigned))
                if asked.failed:
                    seen = -1  # asked again next time, whether or not the log has grown by then
        except LedgerError as error:
            _LOG.warning("tried again later: %s", error)
        turns += 1


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Set when this process is asked to end by SIGINT or SIGTERM."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command()
@click.option("--to", "target", metavar="ADDRESS", help="Also bring the published log there: a folder, gs:// or s3://.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def publish(target: str | None, as_json: bool) -> None:
    """Make tiles of all that is committed, so that foreign tools see it too; and copy the log elsewhere.

    A log is published by itself when its writer closes it; this does it for one whose writer was killed. With --to, the
    tlog-tiles log also goes to another place, checkpoint last, after a check that it continues what is there. Then
    `marin ledger fsck --root ADDRESS --log-only --vkey KEY` audits it anywhere.

    \b
    Examples:
      marin ledger publish
      marin ledger publish --to gs://bucket/log
    """
    root = open_root()
    if root.storage.writable and not root.endpoint.exists():  # a running service publishes by itself
        with root.log() as log:
            log.publish()
    published = root.reader().published()
    done: dict[str, object] = {"origin": published.origin, "size": published.size, "root": published.root.hex()}
    if target is not None:
        copied = mirror_log(root.storage, open_storage(target), [root.verifier])
        done |= {"to": target, "files": copied.files, "from_size": copied.old_size, "size": copied.new_size}
    if as_json:
        print_json(done)
    else:
        there = f", {done['files']} files to {target}" if target is not None else ""
        say(f"published: {done['size']} entries of {published.origin}{there}")
