"""The product beside the tools that its users trust: for each input one row, *same*, *refused* or *different*.

    def test_template(compare, case):
        compare("chat", case.name, lambda: ours(case), reference(case))
        compare("chat", case.name, lambda: ours(case), reference(case), refusal="templates that read a clock")

``different`` fails. So does a refusal that the case does not name; the words of ``refusal`` stand in docs/fidelity.md, where a
user finds them, and a case that names a refusal and is not refused fails too: the page is wrong then.

`make fidelity` executes every row and prints the table; of cases that are marked ``table``, `make test` draws a tenth.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from ledger import LedgerError

PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"
Outcome = Literal["same", "refused", "different"]
Compare = Callable[..., None]
_PROPERTY = "fidelity"


@dataclass(frozen=True)
class Row:
    """What became of one input. ``kind``: which border it came over; ``detail``: the refusal, or what differs."""

    kind: str
    name: str
    outcome: Outcome
    detail: str = ""


def pytest_itemcollected(item: pytest.Item) -> None:  # of this folder alone, and so is a conftest's hook
    item.add_marker(pytest.mark.fidelity)


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Compare:
    """Execute ``ours`` and hold it to ``reference`` (a value, or a function of it to a bool). ``refusal``: the words of
    docs/fidelity.md that say why the product refuses this input."""

    def hold(
        kind: str, name: str, ours: Callable[[], object], reference: object, *, refusal: str | None = None
    ) -> None:
        row, cause = _row(kind, name, ours, reference)
        request.node.user_properties.append((_PROPERTY, [row.kind, row.name, row.outcome, row.detail]))
        if refusal is not None:
            page = " ".join(PAGE.read_text("utf-8").split())
            assert " ".join(refusal.split()) in page, f"docs/fidelity.md does not say {refusal!r}"
        expected = "same" if refusal is None else "refused"
        if row.outcome != expected:
            pytest.fail(
                f"{kind}: {name}: {row.outcome}, expected {expected}\n{row.detail}\n{cause or ''}", pytrace=False
            )

    return hold


def _row(kind: str, name: str, ours: Callable[[], object], reference: object) -> tuple[Row, BaseException | None]:
    try:
        found = ours()
    except LedgerError as error:  # the base of every refusal of the product
        return Row(kind, name, "refused", " ".join(str(error).split())[:200]), error
    same = reference(found) if callable(reference) else found == reference
    wanted = "" if callable(reference) else f", the reference has {_short(reference)}"
    return Row(kind, name, "same" if same else "different", "" if same else f"found {_short(found)}{wanted}"), None


def _short(value: object) -> str:
    text = re.sub(r"\s+", " ", ascii(value))
    return text if len(text) <= 300 else f"{text[:300]}… ({len(text)} characters)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report for found in terminalreporter.stats.values() for report in found if hasattr(report, "user_properties")
    ]
    rows = [
        Row(*values)
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, values in report.user_properties
        if name == _PROPERTY
    ]
    if not rows:
        return
    counts = Counter((row.kind, row.outcome) for row in rows)
    terminalreporter.section("fidelity: the product beside its references")
    terminalreporter.write_line(f"{'':24} {'same':>8} {'refused':>8} {'different':>10}")
    for kind in sorted({row.kind for row in rows}):
        same, refused, different = (counts[kind, outcome] for outcome in ("same", "refused", "different"))
        terminalreporter.write_line(f"{kind:24} {same:8} {refused:8} {different:10}")
    for row in rows:
        if row.outcome == "different":
            terminalreporter.write_line(f"different: {row.kind}: {row.name}: {row.detail}")
