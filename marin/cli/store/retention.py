"""`marin store gc`, and the pins that keep an artifact from it."""

from __future__ import annotations

import click

import ledger
from marin.cli.naming import whole_digest
from marin.cli.output import print_json, say
from marin.cli.tables import print_table
from marin.execution.abandoned import sweep_abandoned
from marin.execution.leases.lease import Leases
from marin.history.referrers import retained_digests
from marin.recipe.units import human_size
from marin.record.root import open_root

HOUR, DAY = 3600.0, 86_400.0


@click.command()
@click.argument("digest")
@click.option("--why", default="", metavar="TEXT", help="The reason, for anyone who finds the pin.")
def pin(digest: str, why: str) -> None:
    """Keep an artifact although no event names it; `unpin` ends that.

    \b
    Examples:
      marin store pin sha256:DIGEST --why "baseline of the paper"
    """
    root = open_root()
    artifacts, digest = root.store(), whole_digest(root, digest)
    artifacts.artifact(digest)
    ledger.pin(artifacts.storage, digest, why)


@click.command()
@click.argument("digest")
def unpin(digest: str) -> None:
    """Take a pin away: the artifact stays only if an event names it.

    \b
    Examples:
      marin store unpin sha256:DIGEST
    """
    root = open_root()
    ledger.unpin(root.store().storage, whole_digest(root, digest))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def pins(as_json: bool) -> None:
    """List what is pinned, and why.

    \b
    Examples:
      marin store pins
    """
    found = list(ledger.list_pins(open_root().store().storage))
    if as_json:
        for one in found:
            print_json({"digest": one.digest, "why": one.why})
    else:
        print_table(("digest", "why"), [(one.digest, one.why) for one in found], empty="nothing is pinned")


@click.command()
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
    collected = ledger.collect_garbage(root.store(), roots, min_age=min_age * DAY, dry_run=dry_run)
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
