"""Phases: a run that goes on from the last recorded state of another run, with something changed.

What a phase is, is in its recipe (:class:`marin.recipe.schema.Phase`): the digest of the state that it begins with, the
number of its first train step, and how much of each part of its data was consumed before. All of it follows from the
recipe before and the train step at which that one was left (:func:`successor`), so a verifier can find it again. Which
run the state came from, and the stored checkpoint, are in ``run.started.continues``: a chain of runs, walked by
:func:`chain`.

What goes on: parameters, the optimizer's moments and counters, the numbers of train steps and of consumed sequences,
the random key, the tokenizer; and for each part of the data that is the same as before (its definition, the tokenizer,
the sequence length, the seed and the kind of order) the place in its order, so that nothing is seen again before its
epoch is over.
What may change: everything else of the recipe, and the machine.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ledger import BUDGETS, Store, exceeded
from marin.data.mixture import Interleave
from marin.errors import MarinError, MissingEvidence, UsageError
from marin.history import runs
from marin.history.run import Fact, Run
from marin.history.runs import History
from marin.recipe.schema import Phase, Recipe, check, parts
from marin.record.events import CheckpointSaved
from marin.record.root import Root


def next_phase(root: Root, run: str, changed: Recipe) -> Recipe:
    """``changed`` as the recipe of the phase that continues ``run`` (an id, a unique beginning, or latest) from its
    last recorded state, whose bytes are still stored. Execute it as any other, with ``Execution(continues=<id of
    run>)``.

    Raises:
        MissingEvidence: the run has no such state, or no tokenizer.
        UsageError: there is no such run, or ``changed`` changes what a phase has to keep.
    """
    history = root.history()
    view = runs.load(history, runs.resolve(history, run))
    last = last_checkpoint(view, root.store())
    recipe = successor(view.recipe, changed, at=last.step)
    assert recipe.phase is not None
    phase = msgspec.structs.replace(recipe.phase, state=last.state, tokenizer=view.output("tokenizer").digest)
    return msgspec.structs.replace(recipe, phase=phase)


def successor(previous: Recipe, changed: Recipe, *, at: int | None = None) -> Recipe:
    """``changed`` as a phase after ``previous``, which is left before train step ``at`` (None: after its last).

    Of ``changed.phase`` only ``schedule`` counts. State and tokenizer are left open: they are inputs of the train step,
    or :func:`next_phase` names them.

    Raises:
        UsageError: ``changed`` changes what a phase has to keep, or ``at`` is not a train step of ``previous``.
    """
    end = previous.last_step if at is None else at
    if not previous.first_step < end <= previous.last_step:
        raise UsageError(
            "a phase begins after a train step of the one before",
            where="phase",
            expected=f"from {previous.first_step + 1} to {previous.last_step}",
            found=str(end),
            cure="continue from a recorded state of that run",
        )
    changed = _reading(previous, changed)
    _check_inherited(previous, changed)
    done = (end - previous.first_step) * previous.trainer.batch_size
    before = previous.phase.first_sequence if previous.phase is not None else 0
    phase = Phase(
        first_step=end,
        first_sequence=before + done,
        consumed=_consumed(previous, changed, done),
        schedule=changed.phase.schedule if changed.phase is not None else "restart",
    )
    recipe = msgspec.structs.replace(changed, phase=phase)
    check(recipe, where="phase")
    return recipe


def _reading(previous: Recipe, changed: Recipe) -> Recipe:
    """``changed`` with what a tokenizer from elsewhere says, where it says nothing itself: how it is read, and what begins and
    ends a text."""
    ends = (changed.tokens.begin_of_text, changed.tokens.end_of_text)
    if previous.tokenizer.reading is None or changed.tokenizer.reading is not None:
        return changed
    tokenizer = msgspec.structs.replace(changed.tokenizer, reading=previous.tokenizer.reading)
    before = {"begin_of_text": previous.tokens.begin_of_text, "end_of_text": previous.tokens.end_of_text}
    tokens = msgspec.structs.replace(changed.tokens, **before) if ends == (None, None) else changed.tokens
    return msgspec.structs.replace(changed, tokenizer=tokenizer, tokens=tokens)


def sequences_by_part(recipe: Recipe, count: int) -> dict[str, int]:
    """How many of the first ``count`` sequences of a recipe's phase are of each part; none where completions are learned."""
    if recipe.objective is not None:
        return {}
    if recipe.mixture is None:
        return {recipe.dataset.name: count}
    return Interleave(recipe.mixture.weights, recipe.mixture.block_size).consumed(count)


def _consumed(previous: Recipe, changed: Recipe, count: int) -> dict[str, int]:
    """How much of each part of ``changed`` was consumed before it; parts of which nothing was, are left out."""
    same_cut = (previous.seed, previous.order, previous.model.seq_len, previous.tokens) == (
        changed.seed,
        changed.order,
        changed.model.seq_len,
        changed.tokens,
    )
    if not same_cut or (previous.mixture is None) != (changed.mixture is None):
        return {}
    before = previous.phase.consumed if previous.phase is not None else {}
    here = sequences_by_part(previous, count)
    earlier, later = parts(previous.dataset), parts(changed.dataset)
    total = {name: before.get(name, 0) + here.get(name, 0) for name in earlier if later.get(name) == earlier[name]}
    return {name: number for name, number in sorted(total.items()) if number}


def _check_inherited(previous: Recipe, changed: Recipe) -> None:
    """Refuse changes that the state does not survive."""
    kept: list[tuple[str, object, object]] = [
        (f"model.{name}", getattr(previous.model, name), getattr(changed.model, name))
        for name in previous.model.__struct_fields__
        if name not in ("seq_len", "gradient_checkpointing", "initializer_range")
    ]
    if previous.model.architecture == "gpt2":
        kept.append(("model.seq_len", previous.model.seq_len, changed.model.seq_len))
    kept.append(("optimizer.name", previous.optimizer.name, changed.optimizer.name))
    factored = previous.optimizer.min_dim_size_to_factor, changed.optimizer.min_dim_size_to_factor
    kept.append(("optimizer.min_dim_size_to_factor", *factored))
    kept.append(("tokenizer", previous.tokenizer, changed.tokenizer))
    kept.append(("lora", previous.lora, changed.lora))
    for name, before, after in kept:
        if before != after:
            raise UsageError(
                "a phase keeps this",
                where=name,
                expected=_setting(before),
                found=_setting(after),
                cure="leave it as it is, or begin a new run",
            )


def _setting(value: object) -> str:
    return str(msgspec.to_builtins(value))


def last_checkpoint(view: Run, store: Store) -> CheckpointSaved:
    """The furthest training checkpoint of a run that the store still has.

    Raises:
        MissingEvidence: the run has no stored state to continue from.
    """
    ends = {fact.body.end: fact.body.end_state for fact in view.segments}
    for fact in reversed(view.checkpoints):
        if ends.get(fact.body.step) == fact.body.state and store.has(fact.body.artifact):
            return fact.body
    raise MissingEvidence(
        "the run has no stored state to continue from",
        where=f"run {view.run}",
        expected="a training checkpoint",
        found=f"{len(view.checkpoints)} recorded, none stored",
        cure="name a run that was trained in this root, or fetch its checkpoints",
    )


def chain(history: History, view: Run) -> list[Run]:
    """``view`` and the runs that it continues, the first one first.

    Raises:
        MarinError: the chain comes back to itself.
        MissingEvidence: a run of it is not in this ledger.
    """
    found, known = [view], {view.run}
    while (link := found[-1].started.body.continues) is not None:
        if len(found) >= BUDGETS.phases:
            raise exceeded("a chain of phases is too long", f"run {view.run}", BUDGETS.phases, "more")
        if link.run in known:
            raise MarinError(
                "a chain of phases comes back to itself",
                where=f"run {found[-1].run}",
                found=link.run,
                cure="run `marin ledger fsck`; do not trust this root",
            )
        found.append(runs.load(history, link.run))
        known.add(link.run)
    return found[::-1]


def broken_link(before: Run, after: Run) -> str | None:
    """What is wrong with ``after`` as the continuation of ``before``, from the records alone; None when it holds."""
    link, recipe = after.started.body.continues, after.recipe
    if link is None or recipe.phase is None:
        return "the later run is no phase"
    phase = recipe.phase
    saved: Mapping[str, Fact[CheckpointSaved]] = {fact.body.state: fact for fact in before.checkpoints}
    if link.state != phase.state or link.step != phase.first_step:
        return (
            f"it names {link.state} before train step {link.step}, its recipe {phase.state} before {phase.first_step}"
        )
    if link.state not in saved or saved[link.state].body.step != link.step:
        return f"run {before.run} recorded no state {link.state} before train step {link.step}"
    if link.checkpoint != (stored := saved[link.state].body.artifact):
        return f"it names the stored checkpoint {link.checkpoint}, run {before.run} has {stored}"
    implied = successor(before.recipe, recipe, at=link.step).phase
    assert implied is not None
    for name in ("first_step", "first_sequence", "consumed"):
        if getattr(implied, name) != getattr(phase, name):
            return f"phase.{name} is {getattr(phase, name)}, run {before.run} leads to {getattr(implied, name)}"
    tokenizer = before.output("tokenizer").digest
    if phase.tokenizer != tokenizer:
        return f"phase.tokenizer is {phase.tokenizer}, run {before.run} has {tokenizer}"
    if not after.segments or (after.segments[0].body.start, after.segments[0].body.start_state) != (
        link.step,
        link.state,
    ):
        return f"its first segment does not begin with {link.state} before train step {link.step}"
    return None
