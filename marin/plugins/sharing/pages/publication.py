"""The pages of a publication, as functions of the log and of what is signed beside them: who judges them draws them again.

runs/RUN/index.html, ...         where a stranger arrives, and the pages of the run
outputs/DIGEST.html              the data browser at a data set or a model of the runs that are published
index.html                       these runs
check.html, check.mjs            a judge that needs nothing but a browser, or node
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from marin.history.run import Run
from marin.history.runs import load, run_ids
from marin.plugins.sharing.dossier.documents.page import INDEX
from marin.plugins.sharing.dossier.evidence import run_events
from marin.plugins.sharing.dossier.facts import subject
from marin.plugins.sharing.judge.files import PAGE, PROGRAM, judge_files
from marin.plugins.sharing.pages.front import front
from marin.plugins.sharing.pages.site import pages_of_outputs, pages_of_run, path_of_output
from marin.plugins.sharing.pages.statement import Published
from marin.preregistration.called import names_in
from marin.record.root import Root
from marin.reporting.lineage.browser import recorded_runs
from marin.reporting.lineage.samples import Inspector
from marin.reporting.template import render, style
from marin.verify.alone.proven import Proven

OF_ALL = (INDEX, PAGE, PROGRAM)
"""The pages that are of all runs."""


def front_of(run: str) -> str:
    """Where a stranger arrives at a run."""
    return f"runs/{run}/{INDEX}"


def outputs_of(run: Run) -> dict[str, str]:
    """The digests of what its steps made, in their order, and the step of each."""
    return {step.output.digest: step.step for step in run.steps.values()}


def pages_of_publication(
    root: Root, published: Mapping[str, Published], runs: Mapping[str, Run], inspector: Inspector
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Each page, and what draws it: those of ``runs``, and of all of ``published`` what they share."""
    for run in runs.values():
        drawn = list(pages_of_run(root, run, inspector))
        yield from drawn
        yield front_of(run.run), partial(_front, root, run, published[run.run], [path for path, _ in drawn])
    everything = recorded_runs(root.history())
    known = {run.run: run for run in everything}
    digests = dict.fromkeys(digest for name in published if name in known for digest in outputs_of(known[name]))
    yield from pages_of_outputs(root, everything, digests, lambda run: run.run in published)
    for name, content in judge_files(style()).items():
        yield name, partial(bytes, content)
    yield INDEX, partial(_listing, root, published)


def _front(root: Root, run: Run, published: Published, drawn: list[str]) -> bytes:
    proven = Proven(run_events(root.history(), run.run), root.reader().checkpoint())
    return front(
        root,
        run,
        subject(proven, run.run),
        published,
        pages=[path.rpartition("/")[2] for path in drawn],
        outputs=[(step, path_of_output(digest)) for digest, step in outputs_of(run).items()],
    )


def _listing(root: Root, published: Mapping[str, Published]) -> bytes:
    """The page that lists what is published."""
    history = root.history()
    runs = [load(history, name) for name in run_ids(history) if name in published]
    names = names_in(history, (run.started.body for run in runs))
    rows = [(run, names[run.run]) for run in runs]
    return render("publication.html.j2", rows=rows[::-1], origin=root.verifier.name, key=str(root.verifier))
