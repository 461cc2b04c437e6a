"""A run, published as static files that any web server serves: what its verification needs, its dossier, its report.

    log/, store/, vkey               a root like any other: the log, and what the run's events name of the store
    dossiers/DIGEST/                 the dossier, under the digest of its signed statement; never changed
    runs/RUN/index.html, ...         the way to the newest dossier of the run, and its pages (marin/plugins/sharing/site.py)
    outputs/DIGEST.html              the data browser at a data set or a model of the run
    programs/                        of a run under profile exact: what a train step computes (judge/programs.py)
    check.html, check.mjs            a judge of all this that needs nothing but a browser, or node (marin/plugins/sharing/judge)
    index.html                       the runs that are published here

Artifacts go first, then the dossier, then the log with its signed checkpoint, and the page that leads to them last. Each of
these is whole or not there, so a reader sees the publication before or after, and what broke off goes on. What several runs
share lies there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import Storage, Store, mirror_log, named_digests
from marin.history.names import name_of
from marin.history.run import Run
from marin.history.runs import load, run_ids
from marin.plugins.sharing.dossier.evidence import gather
from marin.plugins.sharing.dossier.facts import subject
from marin.plugins.sharing.dossier.front import front
from marin.plugins.sharing.dossier.layout import ATTESTATION
from marin.plugins.sharing.dossier.write import write_dossier
from marin.plugins.sharing.judge.files import PAGE, PROGRAM
from marin.plugins.sharing.judge.programs import program_files
from marin.plugins.sharing.site import pages
from marin.record.attestation import digests
from marin.record.root import Root
from marin.record.trust.homes import VKEY
from marin.reporting.folder import Page
from marin.reporting.template import render


@dataclass(frozen=True)
class Published:
    """Where the pages are, relative to the publication, and how large the log is there."""

    page: str
    dossier: str
    size: int


def needed(root: Root, run: Run, source: Store) -> list[str]:
    """The artifacts that verification of ``run`` needs, as far as they are here. Uncommitted changes of code stay at home:
    no verification reads them."""
    proven, _ = gather(root.history(), root.reader(), run.run)
    diffs = {str(run.started.body.code.get("diff", ""))}
    for event in proven.entries.values():
        code = event.body.get("code")
        if isinstance(code, dict):
            diffs.add(str(code.get("diff", "")))
    named = [digest for event in proven.entries.values() for digest in named_digests(dict(event.body))]
    return list(source.present(digest for digest in dict.fromkeys(named) if digest not in diffs))


def publish_pages(
    root: Root, run: Run, target: Storage, *, card: Path | None = None, key: Path | None = None, address: str = ""
) -> Published:
    """What is published when the artifacts are there: dossier, log, and the page of the run, in this order. ``address``: where
    it will be served; pages have it in their commands.

    Raises:
        UsageError: the run has no model, or the card contradicts the ledger.
        Tampered: the log there is another one.
    """
    with TemporaryDirectory(prefix="marin-publish-") as base:
        folder = Path(base) / "dossier"
        name = write_dossier(root, run, folder, card=card, key=key).removeprefix("sha256:")
        files = {path: (folder / path).read_bytes() for path in digests(folder, "")}
    last = files.pop(ATTESTATION)
    dossier = f"dossiers/{name}"
    target.ensure_many([(f"{dossier}/{path}", data) for path, data in sorted(files.items())])
    target.ensure(f"{dossier}/{ATTESTATION}", last)
    if root.storage.writable and not root.endpoint.exists():  # a running service publishes by itself
        with root.log() as log:
            log.publish()
    target.ensure(VKEY, root.storage.read(VKEY))
    mirrored = mirror_log(root.storage, target, [root.verifier])
    for name, data in program_files(root, run):
        target.replace(name, data)
    names = []
    for drawn in _pages_of(root, run):
        target.replace(drawn.path, drawn.draw())
        names.append(drawn.path)
    page = f"runs/{run.run}/index.html"
    own = [name.rpartition("/")[2] for name in names if name.startswith("runs/")]
    outputs = [name for name in names if name.startswith("outputs/")]
    proven, _ = gather(root.history(), root.reader(), run.run)
    known = subject(proven, run.run)
    target.replace(
        page, front(root, run, known, dossier=dossier, pages=own, outputs=outputs, address=address.rstrip("/"))
    )
    target.replace("index.html", _listing(root, target))
    return Published(page, dossier, mirrored.new_size)


def _pages_of(root: Root, run: Run) -> Iterator[Page]:
    """The pages of the site that are about this run, or about a data set or a model of it, and the judge."""
    of_outputs = {f"outputs/{step.output.digest.removeprefix('sha256:')}.html" for step in run.steps.values()}
    for page in pages(root):
        if page.path in of_outputs or page.path in (PAGE, PROGRAM) or page.path.startswith(f"runs/{run.run}/"):
            yield page


def _listing(root: Root, target: Storage) -> bytes:
    """The page that lists what is published at ``target``."""
    there = {name.split("/")[1] for name in target.list("runs/") if name.endswith("/index.html")}
    history = root.history()
    runs = [load(history, name) for name in run_ids(history) if name in there]
    rows = [(run.run, name_of(run.run, run.started.body.recipe), run.started.time[:10], run.verified) for run in runs]
    return render("publication.html.j2", rows=rows[::-1], origin=root.verifier.name, key=str(root.verifier))
