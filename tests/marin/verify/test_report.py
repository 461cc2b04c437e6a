"""What `marin verify` tells: every claim of the run under how it is established, as text, as JSON and as a page."""

from __future__ import annotations

import math
import re
from html import unescape
from itertools import product
from typing import get_args

import pytest

from marin.cli.verifying.verify import print_report
from marin.history.run import Run
from marin.history.runs import load, resolve
from marin.kinds.claim import Basis, Claim
from marin.pipeline.stages import PIPELINE
from marin.record.root import Root
from marin.record.verdicts import NAMES
from marin.reporting.plot import loss_plot
from marin.reporting.verification.page import page
from marin.verify.derivation.claims import HEADINGS, derive, group_claims, settle_claims
from marin.verify.derivation.record import read_record
from marin.verify.verdict import Outcome, Report, TrainingSummary, Verdict

BASES: tuple[Basis, ...] = get_args(Basis)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def every_kind() -> list[Claim]:
    """A sentence for each way of being established and each verdict on it, and two neighbouring segments."""
    found = []
    for basis, outcome in product(BASES, OUTCOMES):
        claim = Claim(f"a sentence by {basis} under {outcome}", basis, "" if basis == "claimed" else "data")
        found += settle_claims([claim], {"data": outcome})
    segments = [Claim(f"train steps {n} to {n + 3}", "execution", "training", steps=(n, n + 4)) for n in (0, 4)]
    return [*found, *settle_claims(segments, {"training": "PASS"})]


A, B = "ab" * 32, "cd" * 32


def test_digests_of_what_passes_are_told_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = {
        "ledger": Verdict("PASS", (f"log o: 9 events re-derived under root {A}", "9 events agree")),
        "data": Verdict("PASS", (f"corpus: sha256:{A}", f"tokens: sha256:{B}", f"art: sha256:{B}, adopted")),
        "model": Verdict("FAIL", (f"export: expected sha256:{A}, found sha256:{B}",)),
    }
    report = Report("run1", verdicts, TrainingSummary("none", 0, 0, 1, 0.0), None, "o", 1, "00", ())
    print_report(report, details=False)
    rows = [re.split(r"  +", line, maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert rows[1:6] == [
        ["ledger", "PASS", "log o: 9 events re-derived under root abababababab"],
        ["", "9 events agree"],
        ["artifacts", "NOT_RUN"],
        ["data", "PASS", "corpus, tokens: each has its recorded digest"],
        ["", "art: sha256:cdcdcdcdcdcd, adopted"],
    ]
    assert [f"export: expected sha256:{A}, found sha256:{B}"] == rows[7][2:]
    print_report(report)
    whole = capsys.readouterr().out
    assert all(line in whole for verdict in verdicts.values() for line in verdict.lines)


@pytest.fixture
def told(root: Root) -> tuple[Report, Run]:
    """A report on a real run, whose claims are the run's own and those of :func:`every_kind`."""
    run = load(root.history(), resolve(root.history(), "latest"))
    verdicts = {name: Verdict("NOT_RUN") for name in NAMES}
    own = settle_claims(derive(read_record(root.history(), run.run), PIPELINE), {"ledger": "PASS", "artifacts": "PASS"})
    assert {claim.basis for claim in own} >= {"signature", "hash", "claimed"}
    training = TrainingSummary("none", 0, 0, 1, 0.0)
    claims = (*own, *every_kind())
    return Report(run.run, verdicts, training, None, "o", 1, "00", (), claims=claims), run


def under(text: str) -> dict[str, str]:
    """What stands between each heading and the next."""
    places = sorted((text.index(heading), heading) for heading in HEADINGS.values())
    ends = [place for place, _ in places[1:]] + [len(text)]
    return {heading: text[place:end] for (place, heading), end in zip(places, ends, strict=True)}


def test_whatever_becomes_of_a_claim_has_a_heading() -> None:
    assert {(claim.status, claim.basis) for claim in every_kind()} == set(HEADINGS)


def test_every_claim_is_told_in_text_json_and_on_the_page(
    told: tuple[Report, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    report, run = told
    print_report(report)
    shown = report.as_json()
    assert [(item["claim"], item["by"], item["status"]) for item in shown["claims"]] == [
        (claim.text, claim.basis, claim.status) for claim in report.claims
    ]
    assert shown["claimed"] == [claim.text for claim in report.claims if claim.basis == "claimed"]
    as_read = re.sub(r'<code class="digest"[^>]*>|</code>|</?span>', "", page(report, run))
    for text in (capsys.readouterr().out, unescape(as_read)):
        parts = under(text)
        for claim in report.claims:
            if claim.steps is None:
                assert claim.text in parts[HEADINGS[claim.status, claim.basis]], claim
        assert "train steps 0 to 7, in 2 segments" in parts[HEADINGS["established", "execution"]]


def test_what_nobody_asked_for_is_a_line_by_kind_and_details_on_request(
    told: tuple[Report, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    """`marin verify RUN --only ledger` ended in forty lines of what it had not been asked to establish."""
    report, _ = told
    print_report(report, details=False)
    lines = capsys.readouterr().out.splitlines()
    for basis in ("signature", "hash", "execution"):
        open_ones = [claim for claim in report.claims if (claim.status, claim.basis) == ("open", basis)]
        (line,) = [line for line in lines if line.startswith(HEADINGS["open", basis])]
        assert sum(map(int, re.findall(r" (\d+)(?=,|$)", line))) == len(open_ones) > 0
        assert not [claim for claim in open_ones if f"  {claim.text}" in lines]
    told = [claim for claim in report.claims if claim.steps is None and claim.status not in ("open", "contradicted")]
    assert not [claim.text for claim in told if f"  {claim.text}" in lines], "they are counted"
    wrong = [claim.text for claim in report.claims if claim.status == "contradicted" and claim.steps is None]
    assert wrong and not [text for text in wrong if f"  {text}" not in lines], "each of them is wanted"


def test_no_claim_is_lost_where_they_are_grouped() -> None:
    claims = [claim for claim in every_kind() if claim.steps is None]
    assert sorted(line for _, lines in group_claims(claims) for line in lines) == sorted(claim.text for claim in claims)


def test_a_log_that_cannot_be_read_has_a_page_too() -> None:
    verdicts = {
        name: Verdict("FAIL" if name == "ledger" else "NOT_RUN", ("the log was rolled back",)) for name in NAMES
    }
    report = Report("r", verdicts, TrainingSummary("none", 0, 0, 1, 0.0), None, "o", 0, "", (), wanted=("ledger",))
    text = page(report, None)
    assert "FAIL" in text and "the log was rolled back" in text and "PASS" not in text


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        ({}, "Reproduced, bit for bit"),
        ({"training": "PARTIAL"}, "Reproduced in part"),
        ({"data": "NOT_RUN", "training": "PARTIAL"}, "Not established here"),
        ({"model": "UNSUPPORTED"}, "Not established here"),
        ({"model": "FAIL", "data": "UNAVAILABLE"}, "Not what it claims to be"),
    ],
)
def test_the_page_begins_with_what_the_worst_verdict_amounts_to(outcomes: dict[str, Outcome], says: str) -> None:
    verdicts = {name: Verdict(outcomes.get(name, "PASS")) for name in NAMES}
    report = Report("r", verdicts, TrainingSummary("none", 0, 0, 1, 0.0), None, "o", 0, "", ())
    assert unescape(page(report, None)).partition("<h1>")[2].partition("</h1>")[0] == says


def test_the_plot_puts_every_loss_where_its_axes_say() -> None:
    losses = {step: 8.0 - step for step in range(7)} | {7: float("nan"), 8: 0.0, 9: 4.0}
    plot = loss_plot(losses, "l", found={0: 8.0, 1: 7.0}, parted=8, validation=2.0)
    assert plot is not None
    assert [kind for kind, _ in plot.lines] == ["recorded", "recorded", "found"], "a gap where a loss is no number"
    heights = dict(plot.down)  # place -> number
    points = {
        round(float(x), 1): float(y)
        for kind, line in plot.lines
        if kind == "recorded"
        for x, y in (point.split(",") for point in line.split())
    }
    places = [plot.left + step * (plot.right - plot.left) / 9 for step in losses if step != 7]
    assert sorted(points) == [pytest.approx(place, abs=0.1) for place in places]
    numbers = {float(number): float(place) for place, number in heights.items()}
    assert numbers[8.0] == points[round(places[0], 1)] and numbers[0.0] == points[round(places[7], 1)]
    assert numbers[4.0] == pytest.approx((numbers[0.0] + numbers[8.0]) / 2, abs=0.1)
    assert float(plot.parted or 0) == pytest.approx(places[7], abs=0.1)
    assert plot.validation is not None and float(plot.validation[0]) == pytest.approx(numbers[2.0], abs=0.1)
    assert loss_plot({1: 2.0}, "one") is None and loss_plot({1: math.nan, 2: math.inf}, "none") is None
