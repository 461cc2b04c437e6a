"""The page at which a stranger arrives: what a published run claims, what that rests on, and how to check it.

All of it follows from the verified log, so that it can be drawn again; what only the page says (the key) is called a
claim there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import marin
from marin.history.names import data_of, model_of
from marin.history.run import Run, representative
from marin.plugins.sharing.dossier.facts import Subject
from marin.plugins.sharing.pages.statement import Published
from marin.preregistration.called import name_in, people
from marin.provenance.plugins import DISTRIBUTION
from marin.recipe.units import duration, human_size
from marin.record.root import Root
from marin.record.verdicts import NAMES, in_order, overall
from marin.reporting.runs.report import cards_of, curve_of
from marin.reporting.template import copying, render
from marin.verify.amount import amount
from marin.verify.segments.sampling import Scope, select

RESTS_ON: Mapping[str, str] = {
    "ledger": "the log is signed by its key, only grew, and its events agree",
    "artifacts": "every file has the digest that the log names",
    "data": "corpus, tokenizer and tokens were made again from the raw text",
    "training": "every train step was executed again, with the same bits",
    "model": "the model was exported and evaluated again, with the same bytes and numbers",
    "evaluation": "what was evaluated later was asked again",
}
"""What a PASS of each verdict means, in a line."""
SEALS = {"PASS": ("good", "Reproduced, bit for bit"), "FAIL": ("bad", "Not what it claims to be")}
HERE = Path(__file__).parents[1] / "templates" / "here.js"


@dataclass(frozen=True)
class Seal:
    """What the publisher's own verification found, and when; ``rests`` are its verdicts with what each means."""

    kind: str
    words: str
    about: str
    rests: Sequence[tuple[str, str, str]]


def front(
    root: Root,
    run: Run,
    known: Subject,
    published: Published,
    *,
    pages: Sequence[str],
    outputs: Sequence[tuple[str, str]],
) -> bytes:
    """The page of a published run. Where its address is not known, a script puts in what the browser has."""
    here = f"{published.address}/runs/{run.run}/" if published.address else "ADDRESS"
    return render(
        "published.html.j2",
        scripts=[copying()] if published.address else [copying(), HERE.read_text(encoding="utf-8")],
        run=run,
        name=name_in(root.history(), run),
        seal=seal_of(run),
        claim=claim_of(run, known),
        people=people(root, run),
        cards=list(cards_of(run)),
        curve=curve_of(run),
        data=list(_data(known)),
        costs=list(_costs(run)),
        command=f"marin verify {here} --vkey '{root.verifier}'",
        install=list(_install(run)),
        wheel=_wheel(published),
        dossier=published.dossier,
        key=str(root.verifier),
        pages=pages,
        outputs=outputs,
    )


def seal_of(run: Run) -> Seal:
    """The seal of a run, by the verdicts that its own log counts."""
    if not run.verdicts:
        return Seal("mid", "Not verified by its publisher", "Nobody recorded a verification in this log.", ())
    word, newest = overall(run.verdict, run.answerable), representative(run.verdicts, run.answerable)
    kind, words = SEALS.get(word, ("mid", "Reproduced in part" if word == "PARTIAL" else "Not established"))
    about = f"Said by {newest.actor}, event {newest.index} of the log, {newest.time[:10]}: its publisher's word."
    return Seal(kind, words, about, [(name, found, RESTS_ON.get(name, "")) for name, found in in_order(run.verdict)])


def claim_of(run: Run, known: Subject) -> str:
    """What is claimed, in a sentence."""
    recipe = run.started.body.recipe
    parts = [f"{model_of(recipe) or 'A model'}, {known['model.parameters'].value:,} parameters"]
    parts.append(f"trained on {data_of(recipe) or 'its data'} for {known['training.steps'].value:,} train steps")
    parts.append(f"{known['training.tokens'].value:,} tokens")
    if "loss" in run.measured:
        parts.append(f"with a loss of {run.measured['loss']:.4f} on held-out text")
    return ", ".join(parts) + "."


def _data(known: Subject) -> Iterator[tuple[str, str]]:
    """What it was trained on, and under which licences."""
    names = {
        "data.name": "data set",
        "data.kinds": "kind",
        "data.corpus.train_documents": "documents",
        "data.corpus.train_bytes": "bytes",
        "data.corpus": "corpus",
        "data.licence": "licence of the data",
        "model.licence": "licence of the model",
    }
    for name, title in names.items():
        if name in known.values:
            said = known[name]
            number = f"{said.value:,}" if isinstance(said.value, int) else str(said)
            yield title, "not said by its publisher" if said.source == "open" else number


def _costs(run: Run) -> Iterator[tuple[str, str]]:
    """How much a verification reads, and how long it takes."""
    ranges = [(fact.body.start, fact.body.end) for fact in run.segments]
    whole = select(ranges, Scope(), b"", run.run)
    yield "a verification reads", f"about {human_size(amount(run, NAMES, whole))}"
    for fact in reversed(run.verdicts):
        seconds = fact.body.training.get("seconds")
        if isinstance(seconds, int | float) and seconds > 0:
            yield "to execute the training again took its publisher", duration(float(seconds))
            break
    executed = sum(step.seconds for step in run.steps.values() if not step.cached)
    if executed:
        yield "to make it took, without what was reused", duration(executed)


def _wheel(published: Published) -> str:
    """What installs the software that published it, and takes no other; "" where that does not lie beside it."""
    if not published.wheel:
        return ""
    place = f"{published.address or 'ROOT'}/{published.wheel}#sha256={published.wheel_digest}"
    return f"pip install '{DISTRIBUTION}[train] @ {place}'"


def _install(run: Run) -> Iterator[str]:
    """What installs the code that made the run, in a clone of Marin."""
    commit = run.started.body.code.get("commit")
    if isinstance(commit, str) and commit and not run.started.body.code.get("dirty"):
        yield f"git checkout {commit}"
    else:
        yield f"# Marin {marin.__version__}, in a clone of its repository"
    yield "make environment && source .venv/bin/activate"
