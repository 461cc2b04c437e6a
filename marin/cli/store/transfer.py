"""`marin store push` and ``pull``: artifacts to and from a remote, which is another store anywhere."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from ledger import Copied, Cut, Malformed, Store, copy_artifacts, named_digests, parse_digest
from ledger import Progress as Done
from marin.cli.choice import OneOf
from marin.cli.options import argument, flag, option, takes
from marin.cli.output import agree, print_json, say
from marin.cli.store.progress import byte_bar
from marin.cli.store.remote import remote_store
from marin.cli.tables import report_findings
from marin.errors import UsageError
from marin.history.runs import resolve, stream_of
from marin.process.text import several
from marin.recipe.units import human_size
from marin.record.root import Root, open_root

WHAT = "[WHAT]..."
SHOWN_FILES = 8
Jobs = click.option(
    "--jobs", "-j", type=click.IntRange(1, 64), default=8, show_default=True, metavar="N", help="Transfers at a time."
)
Run = click.option(
    "--run", "runs", multiple=True, metavar="RUN", help="What the events of a run name (id, prefix or latest)."
)
Json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
DryRun = click.option("--dry-run", is_flag=True, help="Only say what would be sent.")


@dataclass(frozen=True)
class PushOptions:
    """What `marin store push` takes."""

    remote: str = argument()
    what: tuple[str, ...] = argument(WHAT, nargs=-1)
    check: bool = flag("Read back and hash in the remote everything that was asked for, also what was there.")
    cut: Cut = option(
        None,
        "Send in pieces: from 64 MiB on, into buckets; all above 1 MiB, by their content; none.",
        type=OneOf(["auto", "content", "whole"]),
        default="auto",
        show_default=True,
    )
    no_diff: bool = flag("Leave out what was changed and not committed when runs were made.")


@click.command()
@takes(PushOptions)
@Run
@Jobs
@DryRun
@Json
def push(options: PushOptions, runs: tuple[str, ...], jobs: int, dry_run: bool, as_json: bool) -> None:
    """Send artifacts to REMOTE: gs://, s3:// or a folder. What it has already is not sent.

    What is sent is hashed on arrival: by the service where it answers with a hash of its own, else it is read back.

    WHAT is a digest or a pointer file; without it (and without --run) everything that the ledger names goes. Safe to
    repeat: after a break it goes on with what is missing.

    \b
    Examples:
      marin store push gs://bucket/marin
      marin store push s3://bucket/marin artifacts/export.json
      marin store push /backup/marin --run latest --check
      marin store push gs://bucket/marin artifacts/corpus.json --cut content
      marin store push gs://bucket/marin --no-diff
    """
    root = open_root()
    source, target = root.store(), remote_store(options.remote, readonly=False)
    digests = _without_diffs(root, source, list(_wanted(root, options.what, runs, source)), leave_out=options.no_diff)
    _transfer(source, target, digests, jobs=jobs, verb="push", cut=options.cut, dry_run=dry_run, as_json=as_json)
    if not as_json:
        say(_left_out(source, digests, some=bool(options.what or runs)), err=True)
    if options.check and not dry_run:
        findings = (finding for digest in digests for finding in target.verify(digest))
        if report_findings(findings, as_json=as_json):
            click.get_current_context().exit(1)


@click.command()
@click.argument("remote")
@click.argument("what", metavar=WHAT, nargs=-1)
@Run
@Jobs
@DryRun
@Json
def pull(remote: str, what: tuple[str, ...], runs: tuple[str, ...], jobs: int, dry_run: bool, as_json: bool) -> None:
    """Fetch artifacts from REMOTE: gs://, s3://, https:// or a folder. Every byte is hashed on arrival.

    WHAT is a digest or a pointer file; without it (and without --run) everything that the ledger names and the remote
    has is fetched. A large file that broke off goes on where it was.

    \b
    Examples:
      marin store pull gs://bucket/marin
      marin store pull https://models.example/marin artifacts/export.json
    """
    root = open_root()
    source, target = remote_store(remote, readonly=True), root.store()
    digests = list(_wanted(root, what, runs, source, lacking=target))
    _transfer(source, target, digests, jobs=jobs, verb="pull", dry_run=dry_run, as_json=as_json)


def _left_out(source: Store, sent: Sequence[str], *, some: bool) -> str:
    """What a push does not send, in words."""
    others = {digest for digest, _ in source.digests()} - set(sent)
    parts = ["the log (`marin backup DEST` sends log and store, `marin publish RUN` a run that strangers can verify)"]
    if others and some:
        parts.append("what was not named")
    elif others:
        parts.append(f"{len(others)} artifacts that no event names, or that are parts of others")
    return f"not sent: {'; '.join(parts)}"


def _without_diffs(root: Root, source: Store, digests: list[str], *, leave_out: bool) -> list[str]:
    """What is sent: on the way, say which uncommitted changes of code are among it, and ask where somebody can answer."""
    wanted, diffs = set(digests), dict[str, str]()
    for _, event in root.reader().events(lenient=True):
        code = event.body.get("code")
        diff = code.get("diff") if isinstance(code, dict) else None
        if isinstance(diff, str) and diff in wanted:
            diffs.setdefault(diff, event.stream)
    if leave_out:
        return [digest for digest in digests if digest not in diffs]
    for digest, stream in diffs.items():
        files = changed_files(source.read(digest))
        shown = ", ".join(files[:SHOWN_FILES]) + (
            f" and {len(files) - SHOWN_FILES} more" if len(files) > SHOWN_FILES else ""
        )
        say(
            f"publishes the uncommitted changes of {stream}: {shown}; `marin store get {digest} FILE` shows them",
            err=True,
        )
    if diffs and sys.stdin.isatty() and not agree("Publish these changes? (--no-diff leaves them out)"):
        raise click.Abort
    return digests


def _wanted(
    root: Root, what: Iterable[str], runs: Iterable[str], source: Store, *, lacking: Store | None = None
) -> Iterator[str]:
    """Digests to copy. What is named by an argument must be there; of what events name, what the source has."""
    given = [_digest(word) for word in what]
    yield from given
    names = list(runs)
    if names:
        history = root.history()
        bodies = [event.body for name in names for _, event in history.events(stream=stream_of(resolve(history, name)))]
    elif not given:
        bodies = [event.body for _, event in root.reader().events(lenient=True)]
    else:
        return
    named = dict.fromkeys(digest for body in bodies for digest in named_digests(dict(body)))
    if lacking is not None:
        named = {digest: None for digest in named if not lacking.has(digest)}
    yield from source.present(named)


def _digest(word: str) -> str:
    """The digest that an argument is or, as a pointer file, holds."""
    path = Path(word)
    if not path.is_file():
        parse_digest(word)
        return word
    try:
        digest = json.loads(path.read_text("utf-8"))["digest"]
        parse_digest(digest)
    except (ValueError, KeyError, TypeError, UnicodeDecodeError, Malformed):
        raise UsageError(
            "not a pointer file",
            where=word,
            expected='JSON with a "digest"',
            found="something else",
            cure="name a digest or a file of artifacts/",
        ) from None
    return str(digest)


def copied_artifacts(
    source: Store, target: Store, digests: list[str], *, jobs: int, verb: str, dry_run: bool, cut: Cut = "auto"
) -> Copied:
    """Copy, with a bar; or only say what would be."""
    if dry_run:
        return copy_artifacts(source, target, digests, workers=jobs, cut=cut, dry_run=True)
    with byte_bar(verb) as report:

        def tell(done: Done) -> None:
            report(done.size, done.of_size, f"{done.blobs}/{done.of_blobs} files")

        return copy_artifacts(source, target, digests, workers=jobs, cut=cut, progress=tell)


def _transfer(
    source: Store,
    target: Store,
    digests: list[str],
    *,
    jobs: int,
    verb: str,
    dry_run: bool,
    as_json: bool,
    cut: Cut = "auto",
) -> None:
    copied = copied_artifacts(source, target, digests, jobs=jobs, verb=verb, dry_run=dry_run, cut=cut)
    if as_json:
        print_json(
            {
                "artifacts": len(digests),
                "sent": copied.blobs,
                "size": copied.size,
                "there": copied.there,
                "trees": copied.trees,
                "dry_run": dry_run,
            }
        )
        return
    would = "to send: " if dry_run else "sent "
    say(
        f"{would}{several(copied.blobs, 'files')}, {human_size(copied.size)}; {copied.there} were there; "
        f"{several(len(digests), 'artifacts')}, {copied.trees} of them trees"
    )


def changed_files(diff: bytes) -> list[str]:
    """The files that a difference, as Git writes it, changes, by their new names; in its order."""
    found = re.findall(rb"^diff --git .* (\"b/.*\"|b/.*)$", diff, re.MULTILINE)
    return [os.fsdecode(name).strip('"').removeprefix("b/") for name in found]
