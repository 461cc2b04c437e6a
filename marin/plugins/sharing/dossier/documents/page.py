"""The page of a dossier, for people: who, from what, how, how well, at what cost; what is proven, and what only claimed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from marin.plugins.sharing.dossier.documents import eu
from marin.plugins.sharing.dossier.documents.forms import answers, applies
from marin.plugins.sharing.dossier.evidence import proof_path
from marin.plugins.sharing.dossier.facts import Entry, Subject
from marin.recipe.units import duration
from marin.record.verdicts import overall
from marin.reporting.template import render

INDEX = "index.html"
QUESTIONS = (
    ("Who", ("provider.", "model.", "run.")),
    ("From what", ("data.",)),
    ("How", ("training.",)),
    ("How well", ("evaluation.", "verification.")),
    ("Use and its limits", ("inference.",)),
)
_COSTS = ("training.seconds", "run.seconds", "training.compute_flop", "training.energy_mwh")


def page(subject: Subject, files: Sequence[str]) -> bytes:
    """The page; ``files``: the other documents, which it links to."""
    verdict = overall(subject.run.verdict, subject.run.answerable) if subject.run.verdicts else ""
    questions = [(title, [told for name in names for told in subject.named(name)]) for title, names in QUESTIONS]
    questions.insert(4, ("At what cost", [subject[name] for name in _COSTS]))
    told = list(subject.values.values())
    return render(
        "dossier.html.j2",
        title=str(subject.title),
        kind={"PASS": "good", "FAIL": "bad"}.get(verdict, "mid"),
        verdict=verdict,
        run=subject.run.run,
        origin=subject.proven.checkpoint.origin,
        size=subject.proven.checkpoint.size,
        cards=list(_cards(subject, told)),
        questions=[(title, rows) for title, rows in questions if rows],
        proofs={index: proof_path(index) for index in subject.proven.entries},
        forms=[
            (
                name,
                form.title,
                form.source,
                [(item, answers(subject, item)) for item in form.fields if applies(subject, item)],
            )
            for name, form in eu.FORMS.items()
        ],
        files=files,
    )


def _cards(subject: Subject, told: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    yield "parameters", f"{subject['model.parameters'].value:,}"
    yield "tokens trained on", f"{subject['training.tokens'].value:,}"
    yield "time of all steps", duration(subject["run.seconds"].value)
    for source, name in (("recorded", "values from the ledger"), ("stated", "values stated"), ("open", "values open")):
        yield name, str(sum(one.source == source for one in told))
