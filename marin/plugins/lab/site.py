"""What experiments, sweeps and tracks add to the site of a root."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ledger import digest_bytes
from marin.history.table.sweeps import Sweep, sweeps
from marin.plugins.lab import report
from marin.plugins.lab.analysis import Findings, conclusion, examine
from marin.plugins.lab.comparing.compared import Compared
from marin.plugins.lab.comparing.page import page
from marin.plugins.lab.comparing.text import as_json, heading
from marin.plugins.lab.comparing.whole import compare_runs
from marin.plugins.lab.leaderboard import site_pages
from marin.plugins.lab.speedrun import tracks
from marin.preregistration.arms import registrations
from marin.record.root import Root
from marin.reporting.folder import Page, Part, software


def part(root: Root) -> Part:
    """The report of each registered experiment, each sweep compared, and the leaderboard where there is a track."""
    history, drawer = root.history(), software()
    found = [examine(root, name) for name in sorted({fact.body.experiment for fact in registrations(history)})]
    experiments = tuple(
        (one.registration.body.experiment, one.registration.body.question, conclusion(one)) for one in found
    )
    swept = [(one, compare_runs(root, sweep=one.id)) for one in sweeps(history) if len(one.runs) > 1]
    listed = tuple((f"sweeps/{one.id}.html", one.id, one.started[:10], heading(it)) for one, it in swept)
    leaderboard = list(site_pages(history, root.store())) if any(True for _ in tracks(history, root.store())) else []
    drawn = (*_reports(found, drawer), *_compared(swept, drawer), *leaderboard)
    return Part(drawn, experiments, bool(leaderboard), listed)


def _compared(swept: list[tuple[Sweep, Compared]], drawer: str) -> Iterator[Page]:
    for one, it in swept:
        source = digest_bytes(repr((drawer, as_json(it), sorted(it.losses.items()))).encode())
        yield Page(f"sweeps/{one.id}.html", source, partial(page, it, "../runs/{run}/report.html"))


def _reports(found: list[Findings], drawer: str) -> Iterator[Page]:
    for one in found:
        source = digest_bytes(repr((drawer, report.as_json(one))).encode())
        yield Page(f"experiments/{one.registration.body.experiment}.html", source, partial(_drawn, one))


def _drawn(findings: Findings) -> bytes:
    return report.html(findings, report.plot(findings))
