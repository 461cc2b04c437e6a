"""The pages that a run shows, by name: drawn from the ledger and the store when somebody asks for one."""

from __future__ import annotations

from marin.errors import MissingEvidence
from marin.history.projection.reading import run_record
from marin.history.projection.record import RunRecord
from marin.record.root import Root
from marin.reporting.run import run_page


def draw(root: Root, run: str, name: str) -> bytes:
    """The page ``name`` (see :func:`marin.history.projection.fold.pages_of`) of the ledger's run with this id."""
    record, origin = run_record(root, run), root.verifier.name
    match name:
        case "loss.png":
            return _curve(record)
        case "report.html":
            return run_page(record, origin, _curve(record) if record.losses else None)
        case "lineage.html":
            # Here: samples take the store and a tokenizer, which no other page needs.
            from marin.reporting.lineage import lineage_page, read_samples

            return lineage_page(record, origin, read_samples(record, root.store()))
        case "data_order.html":
            from marin.reporting.order import order_page

            return order_page(record, origin)
        case "verification.html":
            from marin.reporting.verdicts import verification_page  # here: the replay's own classes

            return verification_page(root, run)
    raise MissingEvidence(
        "the run has no such page", where=f"run {run}: {name}", expected="a page that its shelf lists"
    )


def _curve(record: RunRecord) -> bytes:
    from marin.reporting.curve import loss_curve  # here: matplotlib takes half a second

    validation = record.evaluation.get("loss", record.evaluation.get("validation_loss"))
    return loss_curve(
        record.losses,
        title=f"{record.pipeline} {record.run}",
        validation=validation,
        seams=[part.end for part in record.segments],
    )
