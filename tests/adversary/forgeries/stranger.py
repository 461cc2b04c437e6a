"""The stranger who verifies: an own key, own pins and cache, and the operator's verifier key.

The verdict is asked first that ought to notice, so that most forgeries cost no replay; one that it lets through is
given to all five. What counts as noticed: a verdict other than PASS, or the sentence among those that the report calls
claimed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from ledger import LedgerError, Malformed, Tampered, Unverified
from marin.cli.verifying.verify import print_report
from marin.data.reach import Reach
from marin.recipe.schema import Execution
from marin.record.root import open_root
from marin.record.trust.evidence import NOBODY
from marin.record.trust.pins import Pins
from marin.record.verdicts import NAMES
from marin.verify.segments.sampling import WHOLE, Scope
from marin.verify.verdict import Report
from marin.verify.verification import Options, Verification, unreadable
from tests.adversary.forgeries.workshop import Shop, variable


@dataclass(frozen=True)
class Seen:
    """What the stranger was told: outcome and lines of each verdict that was asked for, and the sentences that the
    report calls claimed. ``printed``: what the terminal got. ``error``: what stopped the verification before any verdict."""

    outcomes: Mapping[str, str]
    lines: Mapping[str, Sequence[str]]
    claimed: Sequence[str]
    claims: Sequence[str] = ()
    error: str = ""
    printed: str = ""

    @property
    def passes(self) -> bool:
        """Every verdict that was asked for is PASS."""
        return not self.error and all(outcome == "PASS" for outcome in self.outcomes.values())

    @property
    def said(self) -> str:
        """Everything that a verdict other than PASS says."""
        told = [
            line for name, outcome in self.outcomes.items() if outcome not in ("PASS",) for line in self.lines[name]
        ]
        return "\n".join([*told, self.error])


@dataclass(frozen=True)
class Asked:
    """How the stranger verifies: segments by workers, some of them; after a visit ``before`` anything was forged; with the
    shell ``inside`` the published folder."""

    workers: int = 1
    scope: Scope = WHOLE
    since: str | None = None
    before: bool = False
    inside: bool = False


def look(shop: Shop) -> None:
    """A visit before anything is forged: the stranger remembers what was at this place."""
    _answer(shop, ("ledger",), Asked())


def visit(shop: Shop, first: str, asked: Asked, *, alone: bool = False) -> Seen:
    """Verify the run of a published root, the verdict ``first`` before the others (``alone``: and no other)."""
    here = Path.cwd()
    if asked.inside:
        os.chdir(shop.path.parent)
    try:
        return _visited(shop, first, asked, alone)
    finally:
        os.chdir(here)


def _visited(shop: Shop, first: str, asked: Asked, alone: bool) -> Seen:
    seen = _answer(shop, (first,), asked)
    return _answer(shop, NAMES, asked) if seen.outcomes.get(first) == "PASS" and not alone else seen


def _answer(shop: Shop, only: Collection[str], asked: Asked) -> Seen:
    mine = shop.folder / "stranger"
    mine.mkdir(exist_ok=True)
    keys = list(shop.told) or [shop.base.root.verifier]
    pins = mine / "pins"
    options = Options(
        execution=Execution(devices=1),
        trusted=keys,
        pins=Pins(pins),
        workers=asked.workers,
        scope=asked.scope,
        since=asked.since,
        reach=Reach(folders=(), hosts=()),
        sources=NOBODY,
    )
    with variable("MARIN_KEY", str(mine / "key")), variable("MARIN_PINS", str(pins)):
        try:
            root = shop.shown(open_root(str(shop.path)))
            try:
                report = Verification(root, shop.run, options).report(only)
            except (Malformed, Tampered, Unverified) as error:
                report = unreadable(root, shop.run, keys, error, only)
        except LedgerError as error:
            return Seen({}, {}, (), error=str(error))
    return _seen(report)


def _seen(report: Report) -> Seen:
    wanted = {name: verdict for name, verdict in report.verdicts.items() if name in report.wanted}
    return Seen(
        {name: verdict.outcome for name, verdict in wanted.items()},
        {name: verdict.lines for name, verdict in wanted.items()},
        [claim.text for claim in report.claims if claim.status == "claimed"],
        [claim.text for claim in report.claims],
        printed=_printed(report),
    )


def _printed(report: Report) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        print_report(report)
    return out.getvalue()
