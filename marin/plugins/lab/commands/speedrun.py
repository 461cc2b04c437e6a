"""`marin speedrun`: tracks whose every score was replayed before it was admitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marin.cli.keys import parse_vkey
from marin.cli.options import argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_fields, print_table
from marin.errors import UsageError
from marin.record.root import open_root

if TYPE_CHECKING:
    from marin.history.run import Fact
    from marin.plugins.lab.kinds import SpeedrunEntered
    from marin.plugins.lab.speedrun import Reproducer


@click.group()
def speedrun() -> None:
    """Keep a leaderboard on which every score was replayed."""


@dataclass(frozen=True)
class SubmitOptions:
    """What `marin speedrun submit` takes."""

    run: str = argument("RUN")
    name: str = option("NAME", "A registered experiment that is a track.", "--track", required=True)
    location: str | None = option("ROOT", "The root that has RUN.  [default: your own]", "--of")
    vkey: Sequence[str] = option("KEY", "Read that root under this verifier key.", multiple=True)
    named: Sequence[str] = option(
        "ROOT=KEY", "Somebody whose verdicts count: their root and their verifier key.", "--reproducer", multiple=True
    )
    quorum: int | None = option("K", "So many reproducers must have passed it.", least=1)
    as_json: bool = flag("Print one JSON object.", "--json")


@speedrun.command()
@takes(SubmitOptions)
def submit(options: SubmitOptions) -> None:
    """Admit RUN to a track, once you, or enough reproducers whom you name, replayed all of it.

    All five verdicts on RUN have to be PASS, and evaluation beside them must not be FAIL.

    The track fixes data and evaluation, and what training may cost; score, recipe and cost are read from the log as it was
    verified, and the entry is an event of your log. Verdicts in the log of RUN itself count for nothing.

    \b
    Examples:
      marin speedrun submit latest --track exp012
      marin speedrun submit 3f9c --track exp012 --of theirs/ --vkey 'example.org/log+530d903a+AekyeRrm5...'
      marin speedrun submit 3f9c --track exp012 --of theirs/ --reproducer 'lab/=lab.org/log+1f...' --quorum 1
    """
    from marin.plugins.lab.speedrun import submit as admit
    from marin.plugins.lab.speedrun import track

    if bool(options.named) != (options.quorum is not None):
        raise UsageError(
            "a quorum is one of reproducers",
            where="--quorum",
            expected="--reproducer ROOT=KEY and --quorum K together",
            found=f"{len(options.named)} reproducers, quorum {options.quorum}",
            cure="give both, or neither: then your own verification counts",
        )
    own = open_root()
    of = own if options.location is None else open_root(options.location)
    rules = track(own.history(), own.store(), options.name)
    keys = [parse_vkey(key) for key in options.vkey]
    entry, index = admit(
        own,
        rules,
        of,
        options.run,
        trusted=keys,
        reproducers=[_reproducer(text) for text in options.named],
        quorum=options.quorum or 0,
    )
    if options.as_json:
        from marin.record.events import write

        print_json({"event": index, **write(entry)})
        return
    print_fields(
        [
            ("track", entry.track),
            ("run", f"{entry.run} of {entry.origin}"),
            (entry.metric, f"{float.fromhex(entry.score):.6g}"),
            (
                "cost",
                f"{entry.flops:.3g} FLOPs, {entry.parameters:,} parameters"
                + (f", {entry.hours:.3g} hours to replay its training" if entry.hours is not None else ""),
            ),
            ("replayed", ", ".join(item.key.split("+")[0] for item in entry.replayed)),
            ("event", "it was admitted before" if index is None else str(index)),
        ]
    )


def _reproducer(text: str) -> Reproducer:
    from marin.plugins.lab.speedrun import Reproducer

    location, separator, key = text.partition("=")
    if not separator or not location:
        raise UsageError(
            "a reproducer is a root and a key",
            where="--reproducer",
            expected="ROOT=KEY",
            found=repr(text[:120]),
            cure="as in --reproducer 'their/root=name+hash+base64'",
        )
    return Reproducer(open_root(location), (parse_vkey(key),))


@speedrun.command("list")
@click.argument("name", metavar="[TRACK]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_entries(name: str | None, as_json: bool) -> None:
    """List the tracks, or the entries of one, the best first.

    A run that your own verification says FAIL of since its entry has no place.

    \b
    Examples:
      marin speedrun list
      marin speedrun list exp012 --json
    """
    from marin.plugins.lab.speedrun import board, track, tracks

    root = open_root()
    history, store = root.history(), root.store()
    if name is None:
        rows: list[dict[str, Any]] = []
        for rules in tracks(history, store):
            best, _ = board(history, rules)
            rows.append(
                {
                    "track": rules.name,
                    "metric": rules.metric,
                    "flops": rules.limits.flops,
                    "parameters": rules.limits.parameters,
                    "hours": rules.limits.hours,
                    "entries": len(best),
                    "best": float.fromhex(best[0].body.score) if best else None,
                }
            )
        if as_json:
            print_json(rows)
            return
        print_table(
            ("track", "metric", "FLOPs", "parameters", "hours", "entries", "best"),
            [tuple("" if value is None else _cell(value) for value in row.values()) for row in rows],
            empty="no track: register an experiment with track=Track(...)",
        )
        return
    rules = track(history, store, name)
    found, withdrawn = board(history, rules)
    for one in withdrawn:
        entry = one.fact.body
        say(f"no longer there: run {entry.run} of {entry.origin}, which failed since: event {one.failed}", err=True)
    if as_json:
        print_json([_as_json(fact) for fact in found])
        return
    print_table(
        ("", "score", "FLOPs", "parameters", "hours", "run", "log"),
        [
            (
                str(place),
                f"{float.fromhex(fact.body.score):.6g}",
                f"{fact.body.flops:.3g}",
                f"{fact.body.parameters:,}",
                "" if fact.body.hours is None else f"{fact.body.hours:.3g}",
                fact.body.run,
                fact.body.origin,
            )
            for place, fact in enumerate(found, 1)
        ],
        empty=f"no run is admitted: marin speedrun submit RUN --track {rules.name}",
    )


@speedrun.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def site(folder: Path) -> None:
    """Write all tracks into a static folder: any web server serves it, and it is whole without scripts.

    A page for each track has the curve of the best score over cost, what each recipe changed against the one it beat, and
    the command that verifies it. They lie below DIR/speedruns, where the index of `marin site DIR` links them; what else
    that command wrote there stays. Pages are replaced one by one, each whole. Prints the path of the first.

    \b
    Examples:
      marin speedrun site public/
    """
    from marin.plugins.lab.leaderboard import PLACE, site_pages
    from marin.provenance.plugins import points
    from marin.reporting.folder import write_pages

    root = open_root()
    write_pages(site_pages(root.history(), root.store()), folder, whole=False)
    if (signed := points("marin.pages").get("signed")) is not None:
        signed.load()(root, folder)
    say(str(folder / PLACE / "index.html"))


def _as_json(fact: Fact[SpeedrunEntered]) -> dict[str, Any]:
    from marin.record.events import write

    return {"event": fact.index, "admitted": fact.time, **write(fact.body), "score": float.fromhex(fact.body.score)}


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
