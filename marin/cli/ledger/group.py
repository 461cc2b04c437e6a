"""`marin ledger`: the log itself, for tools and for those who doubt it."""

from __future__ import annotations

import click

from marin.cli.lazy import Lazy, LazyGroup

MEMBERS = {
    "anchor": Lazy(
        "marin.cli.ledger.anchor",
        "Show later that the events so far existed by now: a time stamp of the log's root, or the root in Git.",
    ),
    "append": Lazy(
        "marin.cli.ledger.append",
        "Append an event, or a batch of them, and return when they are durable under a signed checkpoint.",
    ),
    "checkpoint": Lazy(
        "marin.cli.ledger.proof",
        "Print the newest log checkpoint, a signed note (C2SP tlog-checkpoint), after verifying it.",
    ),
    "fsck": Lazy(
        "marin.cli.ledger.fsck",
        "Derive every tile, entry and signature of the log again, and hash every artifact of the store.",
    ),
    "key": Lazy(
        "marin.cli.ledger.key",
        "The keys of this log and of the people and machines that write in it, and what was attested under them.",
    ),
    "mirror": Lazy(
        "marin.cli.ledger.mirror", "Mirrors: whole copies of logs, kept for others and vouched for (C2SP tlog-mirror)."
    ),
    "proof": Lazy(
        "marin.cli.ledger.proof",
        "Print the proof that entry INDEX is in the log (C2SP tlog-proof): a text that can be checked offline.",
    ),
    "publish": Lazy(
        "marin.cli.ledger.service",
        "Make tiles of all that is committed, so that foreign tools see it too; and copy the log elsewhere.",
    ),
    "serve": Lazy(
        "marin.cli.ledger.service", "Append for other processes, until interrupted: one writer, many clients."
    ),
    "verify-proof": Lazy(
        "marin.cli.ledger.proof", "Check a proof offline against verifier keys; - reads it from stdin. Needs no root."
    ),
    "witness": Lazy(
        "marin.cli.ledger.witness", "Witnesses: whom to ask, asking them, and being one (C2SP tlog-witness)."
    ),
}


@click.command(cls=LazyGroup, members=MEMBERS)
def ledger() -> None:
    """Work on the log itself: append, check, prove.

    The log is a C2SP tlog-tiles log with signed checkpoints; other implementations can audit it.
    """
