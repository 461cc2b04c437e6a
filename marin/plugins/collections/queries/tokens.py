"""How many tokens of a run's training and held-out data come from each source of its collection."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import Store
from marin.data.documents import TRAIN, VALIDATION, read_documents
from marin.errors import MarinError
from marin.history.run import Run
from marin.recipe.schema import DocumentsDataset
from marin.record import outputs


def tokens_by_source(run: Run, store: Store) -> dict[str, int] | None:
    """Tokens of each source; None of a run that has no tokens, or other data beside the collection.

    Raises:
        LedgerError: the run's corpus or tokens are not here, or damaged.
    """
    if not isinstance(run.recipe.dataset, DocumentsDataset) or run.recipe.tokens.artifact is not None:
        return None
    try:
        made = {name: run.output(name) for name in ("corpus", "tokens")}
    except MarinError:
        return None
    from marin.tensors.token_caches import document_offsets  # TensorStore

    found = Counter[str]()
    with TemporaryDirectory(prefix="marin-tokens-") as base:
        folders = {name: Path(base) / name for name in made}
        for name, output in made.items():
            outputs.checkout(store, output, folders[name], kind=name)
        for file, split in ((TRAIN, "train"), (VALIDATION, "validation")):
            offsets = document_offsets(folders["tokens"] / split)
            for number, document in enumerate(read_documents(folders["corpus"] / file)):
                found[document.source] += int(offsets[number + 1] - offsets[number])
    return dict(found)
