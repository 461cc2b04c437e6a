"""A request to unlearn documents: what it means for a run, found before anything is done, and recorded before it.

The plan says which documents they are, which train steps read them, and from which recorded state the training goes on.
It is found from the run's recipe, its corpus and its tokens, and holds where the tokenizer without the documents is the same
one; where it is not, the training begins anew (:mod:`marin.plugins.unlearning.forks`).
"""

from __future__ import annotations

from collections.abc import Collection as AnyOf
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from ledger import Store
from marin.data.collected import collections_of
from marin.data.exclusion import listed
from marin.errors import UsageError
from marin.history.run import Run
from marin.history.runs import load, resolve
from marin.plugins.collections.queries.documents import Collection
from marin.plugins.collections.queries.uses import readings
from marin.plugins.unlearning import forks
from marin.plugins.unlearning.choosing import choose_documents
from marin.plugins.unlearning.forks import Place
from marin.plugins.unlearning.kinds import UnlearningRequested, unlearning_stream
from marin.recipe.schema import Recipe, digest, from_plain, plain
from marin.record import events
from marin.record.root import Root

if TYPE_CHECKING:
    from marin.training.inspection.uses import Uses


@dataclass(frozen=True)
class Document:
    """A document of the request. ``steps``: the train steps that read it, in order. ``copies``: other documents of the
    training data with the very same text, which stay. ``behind``: documents that a collection had removed as its copies,
    which stay removed: nothing takes the blank place."""

    id: str
    part: str
    tokens: int
    steps: tuple[int, ...]
    copies: tuple[str, ...]
    behind: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What a request means. ``recipe``: the run's own, that excludes the documents too. ``place``: where the training
    goes on."""

    run: Run
    documents: tuple[Document, ...]
    recipe: Recipe
    place: Place

    @property
    def first_use(self) -> int:
        """The first train step that read one of them."""
        return _first_use(self.documents)

    @property
    def executed(self) -> int:
        """How many train steps are executed again."""
        return self.recipe.last_step - self.place.step


def _first_use(documents: Sequence[Document]) -> int:
    return min(document.steps[0] for document in documents if document.steps)


def plan(
    root: Root, name: str, ids: Sequence[str], *, sources: Sequence[str] = (), where: Mapping[str, str] | None = None
) -> Plan:
    """Find out what it takes to unlearn the documents with these ids from a run, and those of ``sources`` with the
    metadata ``where`` (:func:`marin.plugins.unlearning.choosing.choose_documents`); of the latter not all need to have been read.

    Raises:
        UsageError: there is no such run; it is not complete, or one that this cannot be done with; no train step of it
            read a document, or every one did; or the document is excluded already, or not in its training data.
        DataError: nothing would be left of a batch.
    """
    history, store = root.history(), root.store()
    run = load(history, resolve(history, name))
    forks.check_forkable(run, "unlearned from")
    recipe = run.recipe
    before = recipe.exclude or ()
    if again := sorted(set(ids) & set(before)):
        raise UsageError(
            "a document that is excluded already",
            where=again[0],
            expected=f"a document that run {run.run} was trained on",
            found="run.started excludes it",
            cure="leave it out",
        )
    also = choose_documents(run, store, sources, where or {}) if sources or where else []
    documents = _documents_of(run, store, tuple(sorted({*ids, *also})), frozenset(ids))
    changed = msgspec.structs.replace(recipe, exclude=tuple(sorted({*before, *ids, *also})))
    changed = from_plain(plain(changed), where=f"run {run.run}")  # how many, and what an id may look like
    return Plan(run, documents, changed, forks.place(run, store, _first_use(documents)))


def _documents_of(run: Run, store: Store, ids: tuple[str, ...], named: frozenset[str]) -> tuple[Document, ...]:
    with TemporaryDirectory(prefix="marin-unlearn-") as base:
        wanted, found = readings(run, store, ids, Path(base))
        copies = _copies(Path(base) / "corpus", run.recipe, frozenset(ids))
    check_uses(run.run, run.recipe, [name for name, _, _ in wanted], found, named)
    behind = {
        name: removed
        for artifact in collections_of(run.recipe)
        for name, removed in Collection(store, artifact).behind(ids).items()
    }
    return tuple(
        Document(name, use.part, use.end - use.start, use.steps, copies.get(name, ()), behind.get(name, ()))
        for (name, _, _), use in zip(wanted, found.documents, strict=True)
    )


def check_uses(run: str, recipe: Recipe, ids: Sequence[str], found: Uses, named: AnyOf[str]) -> None:
    """Refuse documents (``ids``, one for each that was looked for) of which there is nothing to unlearn, or too much. Those
    that nobody ``named`` may be unread, as long as one was read.

    Raises:
        UsageError: no train step of the run read one, or every one did.
        DataError: nothing would be left of a batch.
    """
    count = recipe.trainer.num_steps
    for name, use in zip(ids, found.documents, strict=True):
        if not use.steps and (name in named or not found.steps):
            raise UsageError(
                "a document that no train step read",
                where=name,
                expected=f"one that a train step of run {run} read",
                found=f"{use.end - use.start} tokens in the training data, in none of {count} batches",
                cure="nothing was learned from it; train with exclude=[...] for a tokenizer that has not read it either",
            )
        if len(use.steps) == count:
            raise UsageError(
                "a document that every train step read",
                where=name,
                expected="a recorded state from before its first use",
                found=f"all of {count} batches hold some of it",
                cure=f"nothing of run {run} can be kept: train with exclude=[...] from the start",
            )
    if found.emptied is not None:
        from marin.training.blank import empty_batch

        raise empty_batch(found.emptied)


def _copies(corpus: Path, recipe: Recipe, ids: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """For each of these documents, the others of the training data with the very same text that are not excluded."""
    stay = ids | set(recipe.exclude or ())
    by_text: dict[str, list[str]] = {}
    for name, split, _, document in listed(corpus, recipe.dataset):
        if split == "train":
            by_text.setdefault(document.id.partition("-")[0], []).append(name)
    return {
        name: tuple(other for other in names if other not in stay)
        for names in by_text.values()
        for name in names
        if name in ids
    }


def request(root: Root, planned: Plan, reason: str) -> int:
    """Record the request, once however often it is made; the index of its event."""
    body = UnlearningRequested(
        from_run=planned.run.run,
        documents=[document.id for document in planned.documents],
        reason=reason,
        recipe=digest(planned.recipe),
        first_use=planned.first_use,
        step=planned.place.step,
        state=planned.place.state,
    )
    for fact in forks.requests(root.history(), planned.run.run):
        if fact.body == body:
            return fact.index
    stream = unlearning_stream(planned.run.run)
    (receipt,) = root.append([events.draft(body, stream)])
    return receipt.index
