"""`marin store`: artifacts in and out, checked and collected."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import click

from ledger import Draft, Finding, Store, collect_garbage, list_pins, pin, scrub_store, unpin
from marin.cli.naming import whole_digest
from marin.cli.options import flag, option, takes
from marin.cli.output import print_bytes, print_json, say
from marin.cli.store.transfer import pull, push, remote_store
from marin.cli.tables import describe_finding, print_table, report_findings
from marin.errors import UsageError
from marin.execution.abandoned import sweep_abandoned
from marin.execution.leases.lease import Leases
from marin.history.referrers import referrers_of, retained_digests
from marin.process.text import several
from marin.recipe.units import human_size
from marin.record.audit import absent_files
from marin.record.events import STORE_SCRUBBED, StoreScrubbed, write
from marin.record.root import open_root

CHUNK = 1 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SPREAD = re.compile(r"store/[a-z]+/sha256/([0-9a-f]{2})/([0-9a-f]{62})")
HOUR, DAY = 3600.0, 86_400.0


@click.group()
def store() -> None:
    """Work on the artifact store: put, get, push, pull, verify, collect.

    An artifact is a file or a folder, named by the digest of its bytes. Whatever is read is hashed first.
    """


@store.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--link", is_flag=True, help="Share the files by hard links where possible; they become read-only.")
@click.option(
    "--chunked",
    is_flag=True,
    help="Keep large files in pieces cut by their content, which other versions of them share.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def put(path: Path, link: bool, chunked: bool, as_json: bool) -> None:
    """Keep a file, a folder, or what comes on stdin (-), and print its digest.

    \b
    Examples:
      marin store put corpus/
      marin store put notes.txt --json
      marin store put --chunked corpus.jsonl
      tar c corpus | marin store put -
    """
    artifacts = open_root().store()
    if str(path) == "-":
        artifact = artifacts.put_bytes(sys.stdin.buffer.read())
    elif path.is_dir():
        artifact = artifacts.put_tree(path, link=link, chunked=chunked)
    elif path.is_file():
        artifact = artifacts.put_file(path, link=link, chunked=chunked)
    else:
        raise UsageError(
            "nothing to put",
            where=str(path),
            expected="a file or a folder",
            found="neither",
            cure="name one that is there",
        )
    if as_json:
        print_json({"digest": artifact.digest, "kind": artifact.kind, "size": artifact.size})
    else:
        say(artifact.digest)


@store.command()
@click.argument("digest")
@click.argument("dest", type=click.Path(path_type=Path), required=False)
@click.option("--replace", is_flag=True, help="Replace what stands at DEST.")
def get(digest: str, dest: Path | None, replace: bool) -> None:
    """Write an artifact to DEST, all of it or nothing; a file without DEST goes to stdout.

    \b
    Examples:
      marin store get sha256:DIGEST corpus/
      marin store get sha256:DIGEST | head
    """
    root = open_root()
    artifacts, digest = root.store(), whole_digest(root, digest)
    if dest is not None:
        artifacts.checkout(digest, dest, how="copy", replace=replace)
    elif artifacts.kind(digest) == "tree":
        raise UsageError(
            "a folder does not fit on stdout",
            where=digest,
            expected="DEST",
            found="none",
            cure=f"name a folder: marin store get {digest} FOLDER",
        )
    else:
        with artifacts.open(digest) as stream:
            print_bytes(iter(lambda: stream.read(CHUNK), b""))


@store.command("ls")
@click.argument("digest", required=False)
@click.option("--remote", metavar="REMOTE", help="List another store: gs://, s3:// or a folder; of https:// one tree.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_(digest: str | None, remote: str | None, as_json: bool) -> None:
    """List the artifacts of the store, or the files of one tree.

    \b
    Examples:
      marin store ls
      marin store ls sha256:DIGEST --json
      marin store ls --remote gs://bucket/marin
    """
    artifacts = open_root().store() if remote is None else remote_store(remote, readonly=True)
    if digest is not None:
        digest = whole_digest(open_root(), digest)
        entries = artifacts.manifest(digest).entries
        if as_json:
            for entry in entries:
                print_json({"path": entry.path, "size": entry.size, "digest": entry.digest})
        else:
            rows = [(entry.path, human_size(entry.size), entry.digest) for entry in entries]
            print_table(("path", "size", "digest"), rows, empty="an empty tree")
        return
    held = (artifacts.artifact(digest) for digest, _ in artifacts.digests())
    if as_json:
        for artifact in held:
            print_json({"digest": artifact.digest, "kind": artifact.kind, "size": artifact.size})
    else:
        rows = [(artifact.digest, artifact.kind, human_size(artifact.size)) for artifact in held]
        print_table(("digest", "kind", "size"), rows, empty="the store is empty")


store.add_command(push)
store.add_command(pull)


@store.command()
@click.argument("digests", metavar="[DIGEST]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of the store, as without any DIGEST.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a finding.")
def verify(digests: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Hash artifacts again, all of the store when none is named; exit status 1 with a line per finding.

    A finding names the file and, above 8 MiB, the part of it, and then the runs that need it.

    \b
    Examples:
      marin store verify --all
      marin store verify sha256:DIGEST
    """
    if everything and digests:
        raise UsageError(
            "all of the store, or some of it",
            where="marin store verify",
            expected="--all or DIGEST",
            found="both",
            cure="leave one out",
        )
    root = open_root()
    artifacts = root.store()
    digests = tuple(whole_digest(root, digest) for digest in digests)
    findings: list[Finding] = []
    for finding in _findings(artifacts, digests) if digests else chain(artifacts.verify_all(), absent_files(artifacts)):
        findings.append(finding)
        if not as_json:
            say(str(finding))
    referrers = referrers_of(root, (digest for finding in findings for digest in _digests_in(finding)))
    for finding in findings if as_json else ():
        needed = [referrer for digest in _digests_in(finding) for referrer in referrers[digest]]
        print_json(describe_finding(finding) | {"needed_by": [asdict(referrer) for referrer in needed]})
    for digest, needed in referrers.items() if not as_json else ():
        for referrer in needed:
            say(f"{digest} is needed by {referrer}")
    if findings:
        click.get_current_context().exit(1)


def _digests_in(finding: Finding) -> list[str]:
    """The digests that a finding is about: those of its place, or of the name in the store that it gives."""
    spread = [f"sha256:{two}{rest}" for two, rest in _SPREAD.findall(finding.where)]
    return list(dict.fromkeys([*_DIGEST.findall(finding.where), *spread]))


def _findings(artifacts: Store, digests: Iterable[str]) -> Iterator[Finding]:
    for digest in digests:
        yield from artifacts.verify(digest)


@store.command("pin")
@click.argument("digest")
@click.option("--why", default="", metavar="TEXT", help="The reason, for anyone who finds the pin.")
def pin_(digest: str, why: str) -> None:
    """Keep an artifact although no event names it; `unpin` ends that.

    \b
    Examples:
      marin store pin sha256:DIGEST --why "baseline of the paper"
    """
    root = open_root()
    artifacts, digest = root.store(), whole_digest(root, digest)
    artifacts.artifact(digest)
    pin(artifacts.storage, digest, why)


@store.command("unpin")
@click.argument("digest")
def unpin_(digest: str) -> None:
    """Take a pin away: the artifact stays only if an event names it.

    \b
    Examples:
      marin store unpin sha256:DIGEST
    """
    root = open_root()
    unpin(root.store().storage, whole_digest(root, digest))


@store.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def pins(as_json: bool) -> None:
    """List what is pinned, and why.

    \b
    Examples:
      marin store pins
    """
    found = list(list_pins(open_root().store().storage))
    if as_json:
        for one in found:
            print_json({"digest": one.digest, "why": one.why})
    else:
        print_table(("digest", "why"), [(one.digest, one.why) for one in found], empty="nothing is pinned")


@store.command()
@click.option(
    "--min-age",
    type=click.FloatRange(min=0),
    default=7.0,
    show_default=True,
    metavar="DAYS",
    help="Leave alone what was put, or put again, within so many days.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def gc(min_age: float, dry_run: bool, as_json: bool) -> None:
    """Set aside what no event of the ledger names; a later collection deletes it.

    What is set aside comes back when it is named, asked for or put again. Pinned artifacts stay. Of a run
    that was trained with --keep-checkpoints, the other training checkpoints are set aside too. Abandoned work folders of
    steps are removed as well.

    \b
    Examples:
      marin store gc --dry-run
      marin store gc --min-age 30
    """
    root = open_root()
    reader = root.reader()
    roots = retained_digests(event for _, event in reader.events(lenient=True))
    collected = collect_garbage(root.store(), roots, min_age=min_age * DAY, dry_run=dry_run)
    leases = Leases()
    leases.catch_up(root)
    idle = max(min_age * DAY, HOUR)
    local = "://" not in root.location
    abandoned = sweep_abandoned(root.local, idle, leased=leases.living(), dry_run=dry_run) if local else []
    if as_json:
        print_json(
            {
                "abandoned": [{"folder": str(one.folder), "size": one.size} for one in abandoned],
                "dry_run": collected.dry_run,
                "kept": collected.kept,
                "swept": [{"act": s.act, "name": s.name, "size": s.size, "why": s.why} for s in collected.swept],
            }
        )
        return
    for swept in collected.swept:
        say(str(swept))
    for one in abandoned:
        say(f"remove {one.folder} ({one.size} bytes): a stage stopped there {one.idle / HOUR:.0f} hours ago")
    would = "would be " if dry_run else ""
    say(
        f"{would}set aside: {human_size(collected.bytes_of('set aside'))}, "
        f"{would}deleted: {human_size(collected.bytes_of('delete'))}, kept: {collected.kept} artifacts"
    )


@dataclass(frozen=True)
class ScrubOptions:
    """What `marin store scrub` takes."""

    most: float | None = option("GB", "Stop after so much; the next scrub goes on there.", type=click.FloatRange(min=0))
    rate: float | None = option("MB", "Read at most so much a second.", type=click.FloatRange(min=0.001))
    restart: bool = flag("Begin at the beginning.")
    remote: str | None = option("REMOTE", "Take what is damaged from there: gs://, s3://, https:// or a folder.")
    event: bool = option(None, "Record the result in the ledger.  [default: event]", "--event/--no-event", default=True)
    as_json: bool = flag("Print one JSON object.", "--json")


@store.command()
@takes(ScrubOptions)
def scrub(options: ScrubOptions) -> None:
    """Hash the whole store again, a little at a time; exit status 1 with a line per finding.

    With --remote what is damaged is replaced, and the exit status is 0 if all of it was.

    \b
    Examples:
      marin store scrub
      marin store scrub --most 10 --rate 50      a nightly job
      marin store scrub --remote gs://bucket/marin
    """
    root = open_root()
    if options.event:
        root.check_writable()  # a missing key is said before the hours of work
    done = scrub_store(
        root.store(),
        bytes_per_second=options.rate * 1e6 if options.rate else None,
        most_bytes=int(options.most * 1e9) if options.most is not None else None,
        restart=options.restart,
        remote=remote_store(options.remote, readonly=True) if options.remote else None,
    )
    if options.event:
        body = StoreScrubbed(
            checked=done.checked,
            size=done.size,
            findings=[str(found) for found in done.findings[:100]],
            repaired=list(done.repaired),
            finished=done.finished,
        )
        root.append([Draft(STORE_SCRUBBED, "store", write(body))])
    if options.as_json:
        print_json(
            {
                "checked": done.checked,
                "size": done.size,
                "finished": done.finished,
                "repaired": list(done.repaired),
                "findings": [describe_finding(finding) for finding in done.findings],
            }
        )
    else:
        report_findings(done.findings, as_json=False)
        where = "to the end" if done.finished else "and the next scrub goes on"
        mended = f", {len(done.repaired)} repaired" if done.repaired else ""
        say(f"{several(done.checked, 'files')}, {human_size(done.size)}, {where}{mended}")
    if len(done.findings) > len(done.repaired):
        click.get_current_context().exit(1)
