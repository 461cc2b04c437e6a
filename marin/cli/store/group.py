"""`marin store`: artifacts in and out, checked and collected."""

from __future__ import annotations

import click

from marin.cli.lazy import Lazy, LazyGroup

MEMBERS = {
    "gc": Lazy(
        "marin.cli.store.retention", "Set aside what no event of the ledger names; a later collection deletes it."
    ),
    "get": Lazy(
        "marin.cli.store.artifacts",
        "Write an artifact to DEST, all of it or nothing; a file without DEST goes to stdout.",
    ),
    "ls": Lazy("marin.cli.store.artifacts", "List the artifacts of the store, or the files of one tree."),
    "pin": Lazy("marin.cli.store.retention", "Keep an artifact although no event names it; `unpin` ends that."),
    "pins": Lazy("marin.cli.store.retention", "List what is pinned, and why."),
    "pull": Lazy(
        "marin.cli.store.transfer",
        "Fetch artifacts from REMOTE: gs://, s3://, https:// or a folder. Every byte is hashed on arrival.",
    ),
    "push": Lazy(
        "marin.cli.store.transfer",
        "Send artifacts to REMOTE: gs://, s3:// or a folder. What it has already is not sent.",
    ),
    "put": Lazy(
        "marin.cli.store.artifacts", "Keep a file, a folder, or what comes on stdin (-), and print its digest."
    ),
    "scrub": Lazy(
        "marin.cli.store.checks",
        "Hash the whole store again, a little at a time; exit status 1 with a line per finding.",
    ),
    "unpin": Lazy("marin.cli.store.retention", "Take a pin away: the artifact stays only if an event names it."),
    "verify": Lazy(
        "marin.cli.store.checks",
        "Hash artifacts again, all of the store when none is named; exit status 1 with a line per finding.",
    ),
}


@click.command(cls=LazyGroup, members=MEMBERS)
def store() -> None:
    """Work on the artifact store: put, get, push, pull, verify, collect.

    An artifact is a file or a folder, named by the digest of its bytes. Whatever is read is hashed first.
    """
