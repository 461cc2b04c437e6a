"""The verdicts of a verification as one self-contained HTML page: no network, no scripts, everything escaped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ledger import LedgerError
from marin.history.names import name_of
from marin.history.run import Run
from marin.process.text import short
from marin.recipe.units import duration
from marin.record.events import LOOP
from marin.record.root import Root
from marin.record.verdicts import EVALUATION, NAMES, SHOWN
from marin.reporting.plot import WIDTH, LossPlot, loss_plot
from marin.reporting.template import copying, render
from marin.reporting.verification import segments as parts
from marin.reporting.verify_command import verify_command
from marin.verify.derivation.claims import group_claims
from marin.verify.verdict import Outcome, Report, worst

SAYS: Mapping[Outcome, tuple[str, str, str]] = {
    "PASS": (
        "good",
        "Reproduced, bit for bit",
        "Every step was made again from the recorded data, recipe and code: each loss, each state and each byte of the "
        "model is the same.",
    ),
    "PARTIAL": (
        "mid",
        "Reproduced in part",
        "What was made again is the same, bit for bit. Not everything was: see below what, and what not.",
    ),
    "FAIL": ("bad", "Not what it claims to be", "Something that was recorded is not what was found: see below where."),
}
"""What a verification amounts to: its colour, what a stranger reads first, and what that means."""
OTHERWISE = (
    "mid",
    "Not established here",
    "Nothing was found to be wrong, and not everything could be looked at here.",
)
EXECUTED = (
    "good",
    "Executed again, bit for bit",
    "A command executed the loop twice: each batch, each loss, each state and each byte that it saved is what was "
    "recorded, both times. The program is its user's own, which no ledger knows.",
)
"""In the place of PASS, where a loop of its user's own was executed by a command."""
UNEXECUTED = (
    "mid",
    "Not established here",
    "Nothing was executed: the loop is its user's own, which no ledger knows, so only what it recorded was looked at.",
)
"""The same where nothing executed it, and nothing was found to be wrong."""


def page(
    report: Report, run: Run | None, reproducers: Sequence[parts.Reproducer] = (), preview: str = "", name: str = ""
) -> str:
    """The page of one report, for people; ``Report.as_json`` is the same for machines. ``run`` None: its log cannot be
    read, and the page says why. ``reproducers``: who executed segments of the run, where that is recorded.
    ``preview``: the address of its :func:`preview_of`, absolute or beside the page; ``name``: what lists call the run."""
    return render(
        "verification/verification.html.j2",
        scripts=[copying()],
        report=report,
        run=run,
        width=WIDTH,
        says=says_of(report, run),
        again=verify_command(run, report.training.command) if run else f"marin verify {report.run}",
        preview=_preview(report, run, preview, name),
        given=_circumstances(report, run) if run else None,
        earlier=_earlier(report, run, reproducers) if run else None,
        found=parts.replayed_losses(report, run) if run else {},
        cards=list(_cards(report, run)) if run else [],
        verdicts=[(name, report.verdict(name)) for name in SHOWN],
        claims=group_claims(report.claims) if report.claims else [],
        elements=_elements(report),
        chain=_chain(report, run) if run else None,
        steps=list(run.steps.items()) if run else [],
        curves=_curves(report, run) if run else None,
        timeline=parts.timeline(report, run, reproducers) if run else None,
        segments=parts.rows_of(report, run) if run else [],
    ).decode()


def says_of(report: Report, run: Run | None) -> tuple[str, str, str]:
    """What the report amounts to, as :data:`SAYS` has it; a loop of its user's own has words of its own."""
    decisive = worst([report.verdicts[name].outcome for name in _deciding(report, run)])
    if run is not None and run.is_loop:
        if decisive == "PASS":
            return EXECUTED
        if decisive != "FAIL" and report.verdict("training").outcome == "NOT_RUN":
            return UNEXECUTED
    return SAYS.get(decisive, OTHERWISE)


def preview_of(report: Report, run: Run | None, name: str = "") -> bytes:
    """The picture that a link to the page shows."""
    from marin.reporting.verification.picture import picture  # here: matplotlib takes half a second

    kind, says, _ = says_of(report, run)
    verdicts = [(name, report.verdict(name).outcome) for name in NAMES]
    lines = [", ".join(f"{name} {value}" for name, value in list(_cards(report, run))[:3])] if run else []
    if run and (given := _circumstances(report, run)):
        where = f", on {given['on']}" if given["on"] else ""
        lines.insert(0, f"by {given['by']} on {given['time'][:10]}{where}")
    return picture(kind, says, name or _name(report, run), lines, verdicts, run.losses if run else {})


def _name(report: Report, run: Run | None) -> str:
    return name_of(run.run, run.started.body.recipe) if run else report.run


def _preview(report: Report, run: Run | None, image: str, name: str) -> dict[str, str]:
    _, says, means = says_of(report, run)
    return {"title": f"{says}: {name or _name(report, run)}", "description": means, "image": image}


def _deciding(report: Report, run: Run | None) -> tuple[str, ...]:
    """The verdicts that the seal is about: those that the run can have, whatever else is wrong, and a recorded evaluation
    that is."""
    names: tuple[str, ...] = NAMES
    if run is not None and run.is_loop:
        names = tuple(name for name in NAMES if name in run.answerable or report.verdict(name).outcome == "FAIL")
    return (*names, EVALUATION) if report.verdict(EVALUATION).outcome == "FAIL" else names


def _circumstances(report: Report, run: Run) -> dict[str, str] | None:
    """By whom, when and on what, where the verification is an event of the log."""
    fact = next((fact for fact in run.verdicts if fact.index == report.event), None)
    if fact is None:
        return None
    return {"by": fact.actor, "time": fact.time, "on": parts.machine_of(fact.body)}


def _earlier(report: Report, run: Run, known: Sequence[parts.Reproducer]) -> parts.Reproducer | None:
    """The same reproducer, where segments were not executed because they were recorded as executed before."""
    given = _circumstances(report, run) if report.training.segments_taken else None
    return next((one for one in known if given is not None and one.name == given["by"]), None)


def _cards(report: Report, run: Run) -> Iterator[tuple[str, str]]:
    """Name and value of what somebody would ask next."""
    training = report.training
    if training.segments_total and not training.command:
        again = training.segments_replayed + training.segments_taken
        earlier = f", {training.segments_taken} of them earlier" if training.segments_taken else ""
        yield "segments made again", f"{again} of {training.segments_total}{earlier}"
    if losses := parts.replayed_losses(report, run):
        yield "losses with the same bits", f"{_equal(losses, run)} of {len(losses)}"
    if "perplexity" in run.measured:
        yield "perplexity", f"{run.measured['perplexity']:.4g}"
    if training.seconds:
        yield "took", duration(training.seconds)
    yield "events in the log", f"{report.size:,}"


def _equal(found: Mapping[int, float], run: Run) -> int:
    recorded = run.losses
    return sum(recorded.get(step) == loss for step, loss in found.items())


def _elements(report: Report) -> list[tuple[object, ...]]:
    """Each tensor that was compared element by element."""
    if report.divergence is None:
        return []
    return [
        (
            d.path,
            f"{d.dtype}{list(d.shape)}",
            f"{d.differing} of {math.prod(d.shape)}",
            "not a number" if d.largest_ulp < 0 else d.largest_ulp,
            ", ".join(map(str, d.layers)),
        )
        for d in report.divergence.details
    ]


BATCHES = "batches"
"""The box of what a loop of its user's own saw: each batch is in the record by its digest."""
JUDGED_BY = {
    "corpus": "data",
    "tokenizer": "data",
    "tokens": "data",
    "train": "training",
    BATCHES: "training",
    LOOP: "training",
    "evaluate": "model",
    "export": "model",
}


def _chain(report: Report, run: Run) -> dict[str, object] | None:
    """Each step as a box under the verdict that judges it, joined in the order in which they were made."""
    names = list(run.steps)
    if run.is_loop:
        saw = [BATCHES] if any(any(fact.body.batches) for fact in run.loop) else []
        names = [*saw, *sorted(names, key=lambda name: name != LOOP)]
    if not names:
        return None
    otherwise = "model" if run.is_loop else "artifacts"
    width = min(150, WIDTH // len(names))
    boxes = [
        {
            "x": i * width,
            "name": name,
            "outcome": (outcome := report.verdicts[JUDGED_BY.get(name, otherwise)].outcome),
            "kind": {"PASS": "good", "FAIL": "bad"}.get(outcome, "mid"),
            "digest": short(run.steps[name].output.digest) if name in run.steps else "",
        }
        for i, name in enumerate(names)
    ]
    way = "what it saw to what it saved" if run.is_loop else "raw data to model"
    label = f"{way}: " + ", ".join(f"{box['name']} {box['outcome']}" for box in boxes)
    return {"width": width, "boxes": boxes, "label": label, "heading": f"From {way}"}


def _curves(report: Report, run: Run) -> LossPlot | None:
    """The recorded losses, wide and pale, and over them what was found here; a gap where nothing was replayed."""
    recorded = run.losses
    if not recorded:
        return None
    losses, again = parts.replayed_losses(report, run), ""
    if (
        losses or not report.training.segments_replayed
    ):  # an event of a part tells how many segments, and not which losses
        again = f"; {len(losses)} replayed, {_equal(losses, run)} with the same bits"
    first, last = recorded[min(recorded)], recorded[max(recorded)]
    return loss_plot(
        recorded,
        f"recorded loss from {first:.3f} to {last:.3f} over {len(recorded)} train steps{again}",
        found=losses,
        seams=[fact.body.end for fact in run.segments],
        parted=report.divergence.step if report.divergence is not None else None,
    )


def write(html: Path, report: Report, run: Run | None, log: Root | None) -> None:
    """Write the page, and beside it the picture that a link to it shows; without the extra that draws there is none. ``log``:
    of those who executed segments of the run before."""
    image = html.with_suffix(".png")
    try:
        image.write_bytes(preview_of(report, run))
        preview = image.name
    except ModuleNotFoundError:
        preview = ""
    known: Sequence[parts.Reproducer] = ()
    if run is not None and log is not None:
        with suppress(LedgerError):
            known = parts.reproducers(log, run)
    html.write_text(page(report, run, known, preview), encoding="utf-8")
