"""A verification as an object: what was found, in words, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from marin.errors import UsageError
from marin.history.run import Run
from marin.library.page import Page
from marin.recipe.schema import Execution
from marin.record.root import Root
from marin.record.trust.evidence import sources
from marin.record.trust.pins import Pins, default_pins
from marin.record.verdicts import SHOWN, overall
from marin.reporting.verification.page import page, preview_of
from marin.reporting.verification.segments import Reproducer, reproducers
from marin.verify.verdict import Report
from marin.verify.verification import Options, Verification


@dataclass(frozen=True)
class Checked:
    """What a verification found."""

    report: Report
    run: Run
    known: tuple[Reproducer, ...] = ()
    """Who executed segments of the run, where that is recorded."""

    @property
    def outcome(self) -> str:
        """All verdicts in one word (:func:`marin.record.verdicts.overall`)."""
        return overall(self.verdicts, self.run.answerable)

    @property
    def verdicts(self) -> dict[str, str]:
        """Each verdict by its name."""
        return {name: verdict.outcome for name, verdict in self.report.verdicts.items()}

    def as_json(self) -> dict[str, Any]:
        """As `marin verify --json`."""
        return self.report.as_json()

    def page(self) -> Page:
        """As `marin verify --html`."""
        return Page(f"Verification of run {self.run.run}", page(self.report, self.run, self.known).encode())

    def _repr_png_(self) -> bytes:
        return preview_of(self.report, self.run)

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {word}" for name, word in self.verdicts.items())
        return f"<{self.outcome}: run {self.run.run}: {told}>"

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


def verify_own(root: Root, run: str, *, workers: int, only: Collection[str], record: bool) -> Checked:
    """Verify a run of this user's own root in this process.

    Raises:
        UsageError: the log is not signed by this user's key, or ``only`` names no verdict.
        LedgerError: the log cannot be read.
    """
    if not root.is_own():
        raise UsageError(
            "this log is signed by somebody else's key",
            where=root.location,
            expected="a log of your own: what others wrote is read in a confined process",
            found=root.verifier.name,
            cure=f"run: marin --root {root.location} verify {run}",
        )
    if unknown := set(only) - set(SHOWN):
        raise UsageError(
            "no such verdict",
            where="only",
            expected=", ".join(SHOWN),
            found=", ".join(sorted(unknown)),
            cure="`pages` are of a publication: marin verify ADDRESS" if "pages" in unknown else "name some of them",
        )
    options = Options(
        execution=Execution(),
        pins=Pins(default_pins()),
        remember=record,
        sources=sources(),
        workers=workers,
        own=root if record else None,
    )
    verification = Verification(root, run, options)
    report = verification.report(only)
    if record:
        report = verification.record(report, root)
    judged = verification.judged_run(report, root if record else None)
    return Checked(report, judged, tuple(reproducers(root, judged)))
