"""One run under judgement: what was brought, how it is executed here, and where what is made here lies."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ledger import NotFound, Store, Tampered, Unavailable
from marin.data.reach import EVERYTHING, Reach
from marin.data.tokenizer import FILE, MOST_BYTES
from marin.history.run import Run
from marin.history.runs import History
from marin.provenance.plugins import load_plugin
from marin.recipe.schema import Execution
from marin.record import outputs
from marin.record.events import Continues
from marin.record.root import Root
from marin.record.trust.trusted import Keys
from marin.verify.derivation.record import RunRecord
from marin.verify.rehearsal import Rehearsal

JUDGES = "marin.judges"
"""Where plugins have judges of what a recipe or a record names."""


@dataclass(frozen=True)
class Case:
    """A run, and everything that its judges need.

    ``run``: the fold of ``record``; of a run that a later phase continues, with the segments up to that (``until``).
    ``workshop``: an empty folder of this verification. ``reach``: what the recipe's data may lead to. ``made``: outputs
    that were made here, by step; later judges execute on these, and on the operator's only where nothing was made
    (proven to be what is recorded). ``execution`` is this process's; train steps are replayed by ``workers``, each of
    them ``processes`` that compute as one with its devices.
    """

    root: Root
    store: Store
    history: History
    keys: Keys
    record: RunRecord
    run: Run
    execution: Execution
    workers: int
    processes: int
    workshop: Path
    reach: Reach = EVERYTHING
    until: Continues | None = None
    made: dict[str, Path] = field(default_factory=dict)
    collections: list[str] = field(default_factory=list)
    """Collections of documents that steps of the verifier's own file begin with; judged beside those of the recipe."""

    def inputs(self, names: Sequence[str]) -> dict[str, Path]:
        """Folders with the outputs of these steps: made here, or taken from the store and proven.

        Raises:
            MissingEvidence: the run has no such output.
            Tampered: the stored bytes are not what is recorded.
        """
        return {name: self.made.get(name) or self._taken(name) for name in names}

    def open_tokenizers(self) -> None:
        """Refuse a tokenizer of the run that ends the process which opens it, before a judge does.

        Raises:
            DataError: it does, or is not a tokenizer.
        """
        check = load_plugin(JUDGES, "tokenizer", "a tokenizer that the run reads")
        for digest in sorted(self._tokenizers()):
            with suppress(NotFound, Unavailable, Tampered), self.store.open_file(digest, FILE) as stream:
                check(stream.read(MOST_BYTES + 1), where=f"tokenizer {digest}")

    def _tokenizers(self) -> set[str]:
        """The stored trees with the tokenizers that its steps read."""
        if (recipe := self.run.readable_recipe) is None:
            return set()
        found = {recipe.tokenizer.artifact}
        found |= {kept.tokenizer for kept in (recipe.initial, recipe.phase) if kept is not None}
        if "tokenizer" in self.run.steps:
            found.add(outputs.bytes_of(self.run.output("tokenizer")))
        return {digest for digest in found if digest is not None}

    def rehearsal(self) -> Rehearsal:
        """Where steps are executed again; a step is executed once."""
        return Rehearsal(
            self.workshop / "executed", self.run.run, self.run.recipe, self.store, self.execution, self.reach
        )

    def _taken(self, name: str) -> Path:
        folder = self.workshop / "taken" / name
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            outputs.checkout(self.store, self.run.output(name), folder, kind=outputs.KINDS[name])
        return folder
