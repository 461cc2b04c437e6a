"""`marin store verify` and ``scrub``: artifacts hashed again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain

import click

from ledger import Draft, Finding, Store, scrub_store
from marin.cli.naming import whole_digest
from marin.cli.options import flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.store.remote import remote_store
from marin.cli.tables import describe_finding, report_findings
from marin.errors import UsageError
from marin.history.referrers import referrers_of
from marin.process.text import several
from marin.recipe.units import human_size
from marin.record.audit import absent_files
from marin.record.events import STORE_SCRUBBED, StoreScrubbed, write
from marin.record.root import open_root

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SPREAD = re.compile(r"store/[a-z]+/sha256/([0-9a-f]{2})/([0-9a-f]{62})")


@click.command()
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


@dataclass(frozen=True)
class ScrubOptions:
    """What `marin store scrub` takes."""

    most: float | None = option("GB", "Stop after so much; the next scrub goes on there.", type=click.FloatRange(min=0))
    rate: float | None = option("MB", "Read at most so much a second.", type=click.FloatRange(min=0.001))
    restart: bool = flag("Begin at the beginning.")
    remote: str | None = option("REMOTE", "Take what is damaged from there: gs://, s3://, https:// or a folder.")
    event: bool = option(None, "Record the result in the ledger.  [default: event]", "--event/--no-event", default=True)
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
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
