"""Documents of a run's training data, and the train steps that read each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ledger import Store
from marin.data.exclusion import listed, numbers
from marin.history.run import Run
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution
from marin.record import outputs
from marin.record.root import Root

if TYPE_CHECKING:
    from marin.training.inspection.uses import Uses


def readings(run: Run, store: Store, ids: tuple[str, ...], folder: Path) -> tuple[Sequence[tuple[str, str, int]], Uses]:
    """The documents of these ids (id, part, number), and which train steps read each; the corpus is in ``folder`` then."""
    apply(run.recipe.arithmetic, Execution())
    from marin.training.inspection.uses import as_documents, uses

    folders = {name: folder / name for name in ("corpus", "tokens")}
    outputs.checkout(store, run.output("corpus"), folders["corpus"], kind="corpus")
    wanted = as_documents(numbers(folders["corpus"], run.recipe.dataset, ids))
    outputs.checkout(store, run.output("tokens"), folders["tokens"], kind="tokens")
    return wanted, uses(run.recipe, folders["tokens"] / "train", [(part, number) for _, part, number in wanted])


def steps_reading(run: Run, store: Store, document: str) -> tuple[int, ...]:
    """The train steps of a run that read a document of its training data, in order.

    Raises:
        UsageError: it is not in the training data.
        MarinError: the run has no tokens.
    """
    with TemporaryDirectory(prefix="marin-read-") as base:
        _, found = readings(run, store, (document,), Path(base))
    return tuple(found.steps)


def documents_of(root: Root, run: Run) -> Iterator[tuple[str, str, str]]:
    """Id, source and split of every document of a run's corpus, in its order."""
    with TemporaryDirectory(prefix="marin-list-") as base:
        folder = Path(base) / "corpus"
        outputs.checkout(root.store(), run.output("corpus"), folder, kind="corpus")
        for name, split, _, document in listed(folder, run.recipe.dataset):
            yield name, document.source, split
