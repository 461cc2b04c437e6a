"""A run, published as static files that any web server serves: what its verification needs, its dossier, its report.

    log/, store/, vkey               a root like any other: the log, and what the run's events name of the store
    dossiers/DIGEST/                 the dossier, under the digest of its signed statement; never changed
    runs/RUN/index.html, ...         the way to the newest dossier of the run, and its pages (marin/plugins/sharing/pages)
    programs/                        of a run under profile exact: what a train step computes (judge/programs.py)
    wheels/DIGEST/                   the software that published it (wheel.py)
    pages.intoto.jsonl               the digest of every page, signed, and what it was drawn from

Artifacts go first, then the dossier, then the log with its signed checkpoint, and the page that leads to them last. Each of
these is whole or not there, so a reader sees the publication before or after, and what broke off goes on. What several runs
share lies there once.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import Malformed, NotFound, Storage, Store, mirror_log, named_digests
from marin.history.run import Run
from marin.history.runs import load
from marin.plugins.sharing.dossier.documents.page import INDEX
from marin.plugins.sharing.dossier.evidence import gather
from marin.plugins.sharing.dossier.layout import ATTESTATION
from marin.plugins.sharing.dossier.write import write_dossier
from marin.plugins.sharing.judge.programs import program_files
from marin.plugins.sharing.pages.earlier import EarlierRoot
from marin.plugins.sharing.pages.publication import front_of, pages_of_publication
from marin.plugins.sharing.pages.site import drawn_surely
from marin.plugins.sharing.pages.statement import Published, Statement, entry, read_statement
from marin.plugins.sharing.pages.wheel import wheel
from marin.record.attestation import PAGES, digests
from marin.record.root import Root
from marin.record.trust.homes import VKEY
from marin.reporting.lineage.samples import Inspector

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """Where the pages are, relative to the publication, and how large the log is there."""

    page: str
    dossier: str
    size: int


def needed_artifacts(root: Root, run: Run, source: Store) -> list[str]:
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
) -> Result:
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
    own = Published(dossier, address.rstrip("/"), *_put_wheel(target))
    _replace_pages(root, run.run, own, target, mirrored.new_size)
    return Result(front_of(run.run), dossier, mirrored.new_size)


def _put_wheel(target: Storage) -> tuple[str, str]:
    """Where the wheel of this very software lies, and its digest; both "" where there is none."""
    made = wheel()
    if made is None:
        logger.warning("no wheel is published beside the pages: the code has changes that are not committed")
        return "", ""
    name, data = made
    digest = hashlib.sha256(data).hexdigest()
    target.ensure(f"wheels/{digest[:12]}/{name}", data)
    return f"wheels/{digest[:12]}/{name}", digest


def _replace_pages(root: Root, run: str, own: Published, target: Storage, size: int) -> None:
    """The pages of ``run`` and those that it shares, drawn from the log as it was with this ``size``, and what is signed of them.
    A reader who comes meanwhile finds every page among those that are signed."""
    old = _signed_before(root, target)
    there = {name.split("/")[1] for name in target.list("runs/") if name.endswith(f"/{INDEX}")}
    runs = {name: Published() for name in sorted(there)} | dict(old.runs if old is not None else {}) | {run: own}
    authors = tuple(map(str, root.author_keys()))
    seen = EarlierRoot.of(root, root.reader(), size, root.author_keys())
    with Inspector() as inspector:
        found = pages_of_publication(seen, runs, {run: load(seen.history(), run)}, inspector)
        drawn = {path: drawn_surely(draw, inspector) for path, draw in found}
    for path in (path for path, (_, is_sure) in drawn.items() if not is_sure):
        logger.warning("%s is published without what train steps saw, which was not found in time: publish again", path)
    kept = {} if old is None else {p: e for p, e in old.pages.items() if not p.startswith(f"runs/{run}/")}
    pages = kept | {path: entry(content, size, is_sure=is_sure) for path, (content, is_sure) in drawn.items()}
    broken_off = {} if old is None else {path: last for path, last in old.before.items() if path not in drawn}
    new = Statement(root.verifier.name, pages, runs, authors, before=broken_off)
    target.replace(PAGES, new.replacing(old).signed(root.signer()))
    for path, (content, _) in drawn.items():
        target.replace(path, content)
    target.replace(PAGES, new.signed(root.signer()))


def _signed_before(root: Root, target: Storage) -> Statement | None:
    """What this log's key signed of the pages that are there; nothing of anybody else's is taken over."""
    with suppress(NotFound, Malformed):
        return read_statement(target.read(PAGES), [key for key in root.reader().keys if key.name == root.verifier.name])
    return None
