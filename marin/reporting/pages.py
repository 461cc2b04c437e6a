"""The pages that a run shows, by name: drawn from the ledger and the store when somebody asks for one."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ledger import LedgerError, Store, parse_time
from marin.errors import MissingEvidence
from marin.history.catalog import twin_of
from marin.history.run import Run, plan_of
from marin.history.runs import followed, load_named
from marin.history.table.machine import rewards
from marin.history.table.underway import Underway, underway
from marin.preregistration.called import name_in
from marin.provenance.plugins import load_plugin
from marin.recipe.objective import objective_plugins
from marin.record.root import Root
from marin.reporting.runs.report import Beside, read_sample, run_page, run_record

if TYPE_CHECKING:
    from marin.reporting.lineage.samples import Inspector

logger = logging.getLogger(__name__)


def draw(root: Root, run: str, name: str, preview: str = "", inspector: Inspector | None = None) -> bytes:
    """The page ``name`` (see :func:`marin.history.projection.pages.pages_of`) of the ledger's run with this id. ``preview``: the
    address of ``verification.png``, for ``verification.html``. ``inspector``: for the lineage pages of several runs.

    Raises:
        MissingEvidence: the run has no such page.
    """
    loaded, origin = load_named(root.history(), run), root.verifier.name
    if inspector is not None and "tokens" in loaded.steps:
        inspector.begin()  # a run's page of lineage comes after others
    match name:
        case "loss.png":
            return _curve(loaded)
        case "report.html":
            return run_page(loaded, origin, _beside(root, loaded))
        case "record.json":
            return run_record(loaded, origin)
        case "lineage.html":
            # Here: samples take the store and a tokenizer, which no other page needs.
            from marin.reporting.lineage.page import lineage_page, read_samples

            samples = read_samples(loaded, root.store(), inspector=inspector)
            return lineage_page(loaded, origin, samples, name_in(root.history(), loaded))
        case "samples.json":
            rows = load_plugin("marin.pages", "samples", f"the page {name}")(root, run)
            return json.dumps({"columns": ["before train step", "prompt", "text"], "data": rows}).encode()
        case "collection.html":
            drawn: bytes = load_plugin("marin.pages", "collection", f"the page {name}")(root, loaded)
            return drawn
        case "data_order.html":
            from marin.reporting.runs.order import order_page

            return order_page(loaded, origin)
        case "verification.html" | "verification.png":
            from marin.reporting.verification import recorded  # here: the replay's own classes

            if name.endswith("png"):
                return recorded.verification_picture(root, run)
            return recorded.verification_page(root, run, preview)
    raise MissingEvidence(
        "the run has no such page",
        where=f"run {run}: {name}",
        expected="a page that its shelf lists",
        found="another name",
        cure=f"marin show {run} says what there is",
    )


def _beside(root: Root, run: Run) -> Beside:
    from marin.verify.agreement import contradiction  # here: the pipeline's steps

    history = root.history()
    wrong = contradiction(history, run.run)
    age = followed(history, run, history.written.is_mine)
    far = underway(history, run, parse_time(run.started.time))  # by the log alone: a page has no clock
    found = replace(
        read_sample(run, root.store()),
        twin=twin_of(root, run),
        wrong=wrong,
        followed=age,
        name=name_in(history, run),
        underway=_cards_of(far) if far is not None else (),
    )
    drawn = () if wrong or not run.segments else _drawn(root.store(), run)
    return replace(found, rewards=rewards(history, run.run), drawn=drawn) if drawn else found


def _cards_of(far: Underway) -> list[tuple[str, str]]:
    """How far an open run has come; its train loss is a card of every run."""
    told = [
        ("state", f"open: {far.step or 'between two steps'}"),
        ("last sign", f"{far.sign:%Y-%m-%d %H:%M:%S} UTC"),
        *far.fields,
    ]
    return [row for row in told if row[0] != "train loss"]


def _drawn(store: Store, run: Run) -> Sequence[tuple[str, Sequence[tuple[str, str, str]]]]:
    """Some completions of the first update and of the last; nothing where none are learned, or where they are not here."""
    try:
        recipe = run.recipe
        if recipe.objective is None:
            return ()
        plugin = load_plugin(*objective_plugins(recipe)[0], "objective")
        ends = run.segments[0].body.batches[0], run.segments[-1].body.batches[-1]
        said = [plugin.completion_texts(recipe, store, store.read(digest)) for digest in ends]
    except LedgerError as error:
        logger.info("completions are not shown: %s", error)
        return ()
    return list(zip(("Completions of the first update", "Completions of the last update"), said, strict=True))


def _curve(run: Run) -> bytes:
    from marin.reporting.runs.curve import loss_curve  # here: matplotlib takes half a second

    validation = run.measured.get("loss", run.measured.get("validation_loss"))
    return loss_curve(
        run.losses,
        title=f"{plan_of(run.started.body.pipeline)} {run.run}",
        validation=validation,
        seams=[fact.body.end for fact in run.segments],
    )
