"""`marin ledger mirror`: being a mirror of other logs (C2SP tlog-mirror)."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import click

import ledger
from marin.cli.keys import parse_vkey
from marin.cli.ledger.service import stop_signal
from marin.cli.ledger.witness import load_cosigners, log_server
from marin.cli.output import print_json, say
from marin.cli.tables import print_fields
from marin.errors import UsageError

_LOG = logging.getLogger(__name__)


@click.group()
def mirror() -> None:
    """Mirrors: whole copies of logs, kept for others and vouched for (C2SP tlog-mirror).

    A mirror cosigns a checkpoint once it has every entry of it on its disk. To have one follow this log, add it with
    `marin ledger witness add`.
    """


@mirror.command()
@log_server("take", "mirror", "Where the copies are kept, and its key.")
@click.option(
    "--follow",
    "followed",
    multiple=True,
    metavar="ORIGIN=ADDRESS",
    help="Fetch that log from a folder or address (where its checkpoint lies); repeatable. Others are brought by clients.",
)
@click.option(
    "--every",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the logs of --follow are looked at.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when ready: address, vkeys, logs.")
def serve(
    logs: tuple[str, ...],
    followed: tuple[str, ...],
    every: float,
    folder: Path,
    name: str,
    port: int,
    host: str,
    as_json: bool,
) -> None:
    """Be a mirror of other logs, until interrupted.

    A copy lies below the folder under the SHA-256 of the log's origin, as a log that any reader of C2SP tlog-tiles reads,
    and is served under the same name. The key is made on the first start, with mode 0600; no witness may share it.

    \b
    Examples:
      marin ledger mirror serve --log "$(cat /data/ledger/vkey)" --port 8080
      marin ledger mirror serve --log example.com/log+1a2b3c4d+AQ... --follow example.com/log=https://log.example
    """
    keys: dict[str, list[ledger.VerifierKey]] = {}
    for text in logs:
        key = parse_vkey(text)
        keys.setdefault(key.name, []).append(key)
    sources = dict(_source(text, keys) for text in followed)
    cosigners = load_cosigners(folder / "key", name)
    vkeys = [str(cosigner.verifier) for cosigner in cosigners]
    served = ledger.LogMirror(ledger.PosixStorage(folder), cosigners, keys)
    verifiers = [cosigner.verifier for cosigner in cosigners]

    followed_to: dict[str, int] = {}

    def follow() -> None:
        for origin, reader in sources.items():
            try:
                reader.refresh()
                size = reader.checkpoint().size
                if followed_to.get(origin) != size:
                    ledger.follow_log(ledger.post_to(served), reader, verifiers)
                    followed_to[origin] = size
                    say(f"{origin}: the copy has size {size}", err=True)
            except ledger.LedgerError as error:
                _LOG.warning("%s: %s", origin, error)

    with stop_signal() as stop, ledger.WitnessServer(served, host=host, port=port) as server:
        copies = {origin: f"{server.address}/{ledger.origin_hash(origin)}" for origin in keys}
        if as_json:
            print_json({"address": server.address, "vkeys": vkeys, "logs": copies})
        else:
            shown = [("address", server.address), *(("vkey", vkey) for vkey in vkeys)]
            print_fields([*shown, *(("log", f"{origin} at {address}") for origin, address in copies.items())])
        sys.stdout.flush()
        _follow_until(stop, follow, every if sources else 3600.0)


def _follow_until(stop: threading.Event, follow: Callable[[], None], every: float) -> None:
    follow()
    while not stop.wait(every):
        follow()


def _source(text: str, keys: dict[str, list[ledger.VerifierKey]]) -> tuple[str, ledger.LogReader]:
    origin, separator, address = text.rpartition("=")
    if not separator or origin not in keys:
        raise UsageError(
            "not a log to follow",
            where=text[:200],
            expected="ORIGIN=ADDRESS, the origin of a key of --log",
            found=origin or "no origin",
            cure="known here: " + ", ".join(keys),
        )
    return origin, ledger.LogReader(ledger.open_storage(address), keys[origin], log="", origin=origin)
