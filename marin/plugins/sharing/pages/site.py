"""A root as one static folder, for any web server: an index of experiments, runs, data sets and models, and the pages of
each. What has not changed since it was written is not drawn again.

    index.html                          what there is, with links
    experiments/NAME.html               the report of a registered experiment
    sweeps/ID.html                      the runs of a sweep, compared
    runs/RUN/report.html, ...           the pages of a run (marin/reporting/pages.py)
    outputs/DIGEST.html                 the data browser at a data set or a model: what it is made of, what was made of it
    speedruns/index.html, ...           the tracks, where there are any; `marin speedrun site` writes these alone
    pages.intoto.jsonl                  the digest of each page, signed by the log's key where that is here
    check.html, check.mjs               a judge of published folders that needs nothing but a browser, or node
    site.json                           of each page what it was drawn from, and its digest (marin/reporting/folder.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from ledger import canonical_digest, digest_bytes
from marin.history.catalog import open_catalog
from marin.history.names import collections_of, data_of
from marin.history.projection.pages import pages_of
from marin.history.run import Run
from marin.history.runs import archived, run_ids
from marin.plugins.sharing.judge.files import judge_files
from marin.plugins.sharing.pages.signing import sign_site
from marin.preregistration.called import names_in
from marin.provenance.plugins import load_plugins
from marin.recipe.units import human_size
from marin.record.root import Root
from marin.reporting.folder import Page, PageCounts, software, write_pages
from marin.reporting.lineage.browser import artifact_page, recorded_runs
from marin.reporting.lineage.graph import graph_of
from marin.reporting.lineage.samples import Inspector, Samples, read_samples
from marin.reporting.pages import draw
from marin.reporting.template import copying, finding, render, style

DATA = ("corpus", "tokens")
MODELS = ("train", "export")
_TIMES = 3
type Drawing = tuple[str, Callable[[], bytes]]
"""Where a page lies, and what draws it."""


@dataclass(frozen=True)
class RunRow:
    """A run as the index lists it."""

    run: str
    name: str
    started: str
    data: str
    loss: str
    perplexity: str
    verified: str
    pages: tuple[str, ...]


@dataclass(frozen=True)
class OutputRow:
    """A data set or a model as the index lists it."""

    digest: str
    path: str
    step: str
    size: str
    runs: tuple[str, ...]


def write_site(
    root: Root, folder: Path, told: Callable[[str], None] = lambda _: None, *, address: str = ""
) -> PageCounts:
    """The whole root as pages below ``folder``; each is replaced whole. ``told`` hears the path of a page that is drawn.
    ``address``: where it will be served; link previews want the whole address of their picture.

    Raises:
        UsageError: ``folder`` has files and is not a site.
    """
    address, drawn, kept, unsure = address.rstrip("/"), 0, 0, set[str]()
    for _ in range(_TIMES):
        size = root.reader().checkpoint().size
        with Inspector() as inspector:
            watched = (
                replace(page, draw=partial(_watched, page, inspector, unsure))
                for page in pages(root, address, inspector)
            )
            written = write_pages(watched, folder, told, whole=True)
        drawn, kept = drawn + written.drawn, kept or written.kept
        if root.reader().checkpoint().size == size:
            break  # what is recorded meanwhile would stand on some pages alone
    sign_site(root, folder, address, unsure)
    return PageCounts(drawn, kept)


def drawn_surely(draw: Callable[[], bytes], inspector: Inspector) -> tuple[bytes, bool]:
    """A page, and whether everything that it asks had an answer."""
    inspector.silent = False
    content = draw()
    return content, not inspector.silent


def _watched(page: Page, inspector: Inspector, unsure: set[str]) -> bytes:
    content, is_sure = drawn_surely(page.draw, inspector)
    (unsure.discard if is_sure else unsure.add)(page.path)
    return content


def pages(root: Root, address: str, inspector: Inspector) -> Iterator[Page]:
    """Every page of the site, ``index.html`` last. ``address``: where it will be served, without a slash at the end."""
    history, drawer, size = root.history(), software(), root.reader().checkpoint().size
    runs = recorded_runs(history)
    named = set(run_ids(history)) - archived(history)
    own = [run for run in runs if run.run in named]  # the rest are executions of graphs
    with open_catalog(root) as catalog:
        twins = catalog.twins(catalog.runs())
    rows, called_so = [], names_in(history, (run.started.body for run in own))
    for run in own:
        names = pages_shown(run)
        called = called_so[run.run]
        rows.append(_row_of_run(run, called, names))
        labels = [run.labels.description, dict(run.labels.tags), twins.get(run.run, "")]
        until = size if run.status == "open" else run.last_index  # signs of an open run lie beside its stream
        source = canonical_digest([drawer, until, run.verified, labels, address, called])
        for path, drawn in pages_of_run(root, run, inspector, address):
            yield Page(path, source, drawn)
    parts = [make(root) for _, make in load_plugins("marin.site")]
    experiments = [row for part in parts for row in part.experiments]
    sweeps = [row for part in parts for row in part.sweeps]
    for part in parts:
        yield from part.pages
    latest = canonical_digest([drawer, *((run.run, run.last_index) for run in runs)])
    data, models = _outputs(own, DATA), _outputs(own, MODELS)
    for path, drawn in pages_of_outputs(root, runs, [row.digest for row in (*data, *models)]):
        yield Page(path, latest, drawn)
    for name, content in judge_files(style()).items():
        yield Page(name, digest_bytes(content), partial(bytes, content))
    source = canonical_digest(
        [latest, root.verifier.name, experiments, sweeps, [msgspec.to_builtins(row) for row in rows]]
    )
    yield Page(
        "index.html",
        source,
        partial(
            render,
            "site.html.j2",
            scripts=[copying(), finding()],
            origin=root.verifier.name,
            experiments=experiments,
            sweeps=sweeps[::-1],
            rows=rows[::-1],
            outputs=[("Data sets", data), ("Models", models)],
            tracks=any(part.tracks for part in parts),
        ),
    )


def pages_shown(run: Run) -> tuple[str, ...]:
    """The names of the pages that a run has."""
    collected = bool(collections_of(run.started.body.recipe))
    return pages_of(losses=bool(run.losses), steps=bool(run.states), replayed=bool(run.verdicts), collected=collected)


def pages_of_run(root: Root, run: Run, inspector: Inspector, address: str = "") -> Iterator[Drawing]:
    """The pages of a run, and the picture that links to them show."""
    image = f"{address}/runs/{run.run}/verification.png" if address else "verification.png"
    for name in (*pages_shown(run), *(["verification.png"] if run.verdicts else [])):
        yield f"runs/{run.run}/{name}", partial(draw, root, run.run, name, image, inspector)


def pages_of_outputs(
    root: Root, runs: Sequence[Run], digests: Iterable[str], sampled: Callable[[Run], bool] = lambda _: True
) -> Iterator[Drawing]:
    """The data browser at each of these outputs of ``runs``, which are all of the log. ``sampled``: whether data of a run are
    shown."""
    whole = graph_of(runs)
    seen: dict[str, Samples] = {}  # the same few runs stand on most pages

    def samples(run: Run) -> Samples:
        if run.run not in seen:
            seen[run.run] = read_samples(run, root.store(), steps=[]) if sampled(run) else Samples()
        return seen[run.run]

    def page(digest: str) -> bytes:
        drawn = artifact_page(root.verifier.name, runs, whole, digest, samples)
        assert drawn is not None, "a step of one of these runs made it"
        return drawn

    for digest in digests:
        yield path_of_output(digest), partial(page, digest)


def path_of_output(digest: str) -> str:
    """Where the data browser at an output lies."""
    return f"outputs/{digest.removeprefix('sha256:')}.html"


def _row_of_run(run: Run, name: str, names: tuple[str, ...]) -> RunRow:
    recipe, measured = run.started.body.recipe, run.measured
    return RunRow(
        run.run,
        name,
        run.started.time[:10],
        data_of(recipe),
        f"{measured['loss']:.4f}" if "loss" in measured else "",
        f"{measured['perplexity']:.4f}" if "perplexity" in measured else "",
        run.verified if run.status == "completed" else run.status,
        names,
    )


def _outputs(runs: Sequence[Run], steps: Sequence[str]) -> list[OutputRow]:
    """What these steps made, each content once, the newest first."""
    found: dict[str, OutputRow] = {}
    for run in runs:
        for step in steps:
            if step in run.steps:
                output = run.steps[step].output
                others = found[output.digest].runs if output.digest in found else ()
                path = path_of_output(output.digest)
                found[output.digest] = OutputRow(output.digest, path, step, human_size(output.size), (*others, run.run))
    return list(found.values())[::-1]
