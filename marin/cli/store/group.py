"""`marin store`: artifacts in and out, checked and collected."""

from __future__ import annotations

import click

from marin.cli.lazy import Lazy, LazyGroup

MEMBERS = {
    "put": Lazy(
        "marin.cli.store.artifacts", "Keep a file, a folder, or what comes on stdin (-), and print its digest."
    ),
    "get": Lazy(
        "marin.cli.store.artifacts",
        "Write an artifact to DEST, all of it or nothing; a file without DEST goes to stdout.",
    ),
    "ls": Lazy("marin.cli.store.artifacts", "List the artifacts of the store, or the files of one tree."),
    "push": Lazy(
        "marin.cli.store.transfer",
        "Send artifacts to REMOTE: gs://, s3:// or a folder. What it has already is not sent.",
    ),
    "pull": Lazy(
        "marin.cli.store.transfer",
        "Fetch artifacts from REMOTE: gs://, s3://, https:// or a folder. Every byte is hashed on arrival.",
    ),
    "verify": Lazy(
        "marin.cli.store.checks",
        "Hash artifacts again, all of the store when none is named; exit status 1 with a line per finding.",
    ),
    "scrub": Lazy(
        "marin.cli.store.checks",
        "Hash the whole store again, a little at a time; exit status 1 with a line per finding.",
    ),
    "pin": Lazy("marin.cli.store.collection", "Keep an artifact although no event names it; `unpin` ends that."),
    "unpin": Lazy("marin.cli.store.collection", "Take a pin away: the artifact stays only if an event names it."),
    "pins": Lazy("marin.cli.store.collection", "List what is pinned, and why."),
    "gc": Lazy(
        "marin.cli.store.collection", "Set aside what no event of the ledger names; a later collection deletes it."
    ),
}


@click.command(cls=LazyGroup, members=MEMBERS)
def store() -> None:
    """Work on the artifact store: put, get, push, pull, verify, collect.

    An artifact is a file or a folder, named by the digest of its bytes. Whatever is read is hashed first.
    """
