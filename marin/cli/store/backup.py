"""`marin backup` and `marin restore`: the log, and what it names of the store, to another place and back."""

from __future__ import annotations

import click

from ledger import LogReader, NotFound, Refused, Storage, Store, VerifierKey, mirror_log, open_storage
from marin.cli.output import print_json, say
from marin.cli.store.remote import remote_store
from marin.cli.store.transfer import DryRun, Jobs, Json, copied_artifacts
from marin.errors import MissingEvidence
from marin.history.referrers import retained_digests
from marin.process.text import several
from marin.recipe.units import human_size
from marin.record.creation import settle_copy
from marin.record.root import absolute, open_root, root_location
from marin.record.trust.homes import VKEY, named_keys
from marin.record.trust.pins import Pins, default_pins, read_pin


@click.command()
@click.argument("dest")
@Jobs
@DryRun
@Json
def backup(dest: str, jobs: int, dry_run: bool, as_json: bool) -> None:
    """Copy the whole root to DEST, a folder, gs:// or s3://: its log, and every artifact that the log names.

    What DEST has already is not sent. Artifacts are hashed on arrival and go first, so that the log in a backup never names
    bytes that are on their way; the log goes tile by tile under its signed checkpoint, and has to continue the one that is
    there. The signing key stays where it is: keep a copy of its file in a place of its own.

    \b
    Examples:
      marin backup /mnt/disk/marin
      marin backup gs://bucket/backup --dry-run
    """
    root = open_root()
    if root.storage.writable and not root.endpoint.exists():  # a running service publishes by itself
        with root.log() as log:
            log.publish()
    source, target = root.store(), remote_store(dest, readonly=False)
    named = _named_blobs(root.reader())
    present = list(source.present(named))
    copied = copied_artifacts(source, target, present, jobs=jobs, verb="backup", dry_run=dry_run)
    size = root.reader().published().size
    if not dry_run:
        storage = open_storage(dest)
        storage.ensure(VKEY, root.storage.read(VKEY))
        mirror_log(root.storage, storage, [root.verifier])
    _tell(copied.blobs, copied.size, copied.there, size, len(named) - len(present), dest, dry_run, as_json)


@click.command()
@click.argument("source")
@click.option("--vkey", metavar="KEY", help="The verifier key of the log.  [default: the one in SOURCE]")
@click.option("--older", is_flag=True, help="Restore although this machine has seen more of the log: the rest is lost.")
@Jobs
@DryRun
@Json
def restore(source: str, vkey: str | None, older: bool, jobs: int, dry_run: bool, as_json: bool) -> None:
    """Bring a backup back: the log at SOURCE and its artifacts into the root here (--root, MARIN_ROOT or .marin).

    The root here is empty, or has an earlier state of the same log. Every entry is checked under the signed checkpoint, every
    artifact hashed on arrival. To append again, the log's signing key has to be on this machine.

    \b
    Examples:
      marin restore /mnt/disk/marin
      marin --root .marin restore gs://bucket/backup --vkey 'example.org/log+530d903a+AekyeRrm5...'
    """
    where = root_location()
    from_store, storage = remote_store(source, readonly=True), open_storage(source, readonly=True)
    key = _key(storage, source, vkey)
    reader = LogReader(storage, [key])
    published = reader.published()
    here = open_storage(where)
    _check_same_log(here, key, where)
    _check_newest(key, published.size, where, older)
    target, named = Store(here), _named_blobs(reader)
    present = list(from_store.present(digest for digest in named if not target.has(digest)))
    copied = copied_artifacts(from_store, target, present, jobs=jobs, verb="restore", dry_run=dry_run)
    if not dry_run:
        here.ensure(VKEY, storage.read(VKEY))
        mirror_log(storage, here, [key])
        if (home := settle_copy(key, absolute(where))) is not None:
            say(
                f"the log itself is still at {home}: {where} is a copy of it; append there, or remove that one first",
                err=True,
            )
    absent = sum(1 for digest in named if not target.has(digest)) if not dry_run else 0
    _tell(copied.blobs, copied.size, copied.there, published.size, absent, where, dry_run, as_json)


def _named_blobs(reader: LogReader) -> list[str]:
    """Every digest that an event names and its run keeps, in the order of the log."""
    return retained_digests(event for _, event in reader.events(lenient=True))


def _key(storage: Storage, source: str, given: str | None) -> VerifierKey:
    if given is not None:
        return VerifierKey.parse(given)
    try:
        return named_keys(storage)[0]
    except NotFound:
        raise MissingEvidence(
            "no backup of a root",
            where=source,
            expected=f"a log, a store and the file {VKEY}",
            found=f"no {VKEY}",
            cure="name what `marin backup` wrote, or give the log's key by --vkey",
        ) from None


def _check_same_log(here: Storage, key: VerifierKey, where: str) -> None:
    """Raises where the root here is another log's, which nothing may overwrite."""
    try:
        found = named_keys(here)[0]
    except NotFound:
        return
    if found != key:
        raise Refused(
            "the root here is another log",
            where=where,
            expected=f"no root, or one of {key}",
            found=str(found),
            cure="restore into a folder of its own: marin --root FOLDER restore SOURCE",
        )


def _check_newest(key: VerifierKey, size: int, where: str, older: bool) -> None:
    """Raises where this machine has seen more of the log than the backup has: what follows it would be another history."""
    path = Pins(default_pins()).path(key.name)
    seen = read_pin(path).checkpoint.size if path.exists() else 0
    if size < seen and not older:
        raise Refused(
            "the backup is older than what was seen of this log",
            where=where,
            expected=f"{seen} entries",
            found=f"{size}",
            cure="restore a newer backup; --older restores this one, to be read: what is appended to it will be called a "
            "rolled back log by everybody who has seen more",
        )


def _tell(blobs: int, size: int, there: int, entries: int, absent: int, where: str, dry: bool, as_json: bool) -> None:
    if as_json:
        told = {"to": where, "sent": blobs, "size": size, "there": there, "entries": entries, "absent": absent}
        print_json(told | {"dry_run": dry})
        return
    would = "to copy" if dry else "copied"
    say(
        f"{would} to {where}: {several(entries, 'events')}, {several(blobs, 'files')}, {human_size(size)}; {there} were there"
    )
    if absent:
        say(
            f"every file that the log names and that is here is there; {absent} other digests of the log are of states, batches "
            "and recipes, which are no files, or of bytes that this root never had (`marin ledger fsck` tells them apart)",
            err=True,
        )
