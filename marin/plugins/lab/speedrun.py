"""Speedruns: who reaches the best score at what cost, where every score was replayed before it was admitted.

A track is a registered experiment that says what a run on it may cost (:class:`marin.preregistration.registration.Track`).
Data, evaluation, whatever was made elsewhere (a model to begin with, tokens, a tokenizer), and what the metric depends on, are
its baseline's; everything else is free. Which bytes files by glob are, the keeper's own run of the baseline says. A run enters
with all five verdicts PASS, by the keeper of the track on the keeper's machine, or by enough of the reproducers that the keeper
names; what the run's own log says of verdicts counts for nothing. Score, recipe and cost are read from the log as it
was verified.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import msgspec

from ledger import LogReader, Store, VerifierKey
from marin.errors import DataError, MissingEvidence, UsageError
from marin.history.run import Fact, Run
from marin.history.runs import History, facts, load, resolve, started_runs, stream_of
from marin.kinds.families.experiment import ExperimentRegistered
from marin.plugins.lab.kinds import Replayed, SpeedrunEntered
from marin.preregistration.arms import arm_of, registrations, runs_with_recipes
from marin.preregistration.registration import INDEX, Track, document_of, find
from marin.recipe import schema
from marin.recipe.cost import parameters, work_of
from marin.record import events
from marin.record.events import ReplayCompleted
from marin.record.root import Root
from marin.record.trust.authorship import of_this_log
from marin.record.trust.evidence import witnessed
from marin.record.trust.policy import own_policy
from marin.record.trust.trusted import default_trust
from marin.record.verdicts import NAMES, counting, effective, of_the_log, overall, standing

logger = logging.getLogger(__name__)

FIXED = ("dataset", "evaluation", "exclude", "initial", "lora", "objective", "tokenizer.artifact", "tokens.artifact")
"""Of a recipe, what it is trained and measured on, and whatever of it no limit of a track counts."""
PER_TOKEN = ("evaluate.loss", "evaluate.perplexity", "train.loss_first", "train.loss_last")
"""Metrics that are comparable only over the same tokens in the same sequences."""
FIXED_PER_TOKEN = ("tokenizer", "tokens", "model.seq_len")
COSTS = ("flops", "parameters", "hours")
"""What a track may limit; an entry says each of them."""


@dataclass(frozen=True)
class Rules:
    """A track as it was registered last."""

    fact: Fact[ExperimentRegistered]
    limits: Track
    baseline: schema.Recipe

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.fact.body.experiment

    @property
    def metric(self) -> str:
        """As ``step.name``."""
        return self.fact.body.primary["name"]

    @property
    def costs(self) -> tuple[str, ...]:
        """What the track limits: cost is that, on it."""
        return tuple(name for name in COSTS if getattr(self.limits, name) is not None) or COSTS[:1]

    @property
    def lower_is_better(self) -> bool:
        """Which way is better."""
        return self.fact.body.primary["direction"] == "lower"


@dataclass(frozen=True)
class Witnessed:
    """A verdict that counts, and the hours that it took to replay the training: wall time of the replay times its workers;
    None where not all of it was replayed in that one verification."""

    replayed: Replayed
    hours: float | None


@dataclass(frozen=True)
class Withdrawn:
    """An entry that no longer has a place: the keeper's own event ``failed`` says FAIL of its run."""

    fact: Fact[SpeedrunEntered]
    failed: int


@dataclass(frozen=True)
class Reproducer:
    """Somebody whom the keeper of a track names: the root with their verdicts, under their key."""

    root: Root
    keys: tuple[VerifierKey, ...]


def tracks(history: History, store: Store) -> Iterator[Rules]:
    """Every registered track, as it was registered last; none that would take the place of the page of all tracks, or that
    cannot be read (of somebody else's log, or another version of Marin)."""
    newest = {fact.body.experiment: fact for fact in registrations(history) if fact.body.experiment != INDEX}
    for fact in newest.values():
        try:
            rules = _rules(fact, store)
        except (DataError, UsageError) as error:
            logger.warning("a track is left out: %s", error)
            continue
        if rules is not None:
            yield rules


def track(history: History, store: Store, name: str) -> Rules:
    """The track ``name``, or a beginning that only it has.

    Raises:
        UsageError: no such experiment is registered, or it is not a track.
    """
    known = find(history, name)
    fact = list(registrations(history, known))[-1]
    rules = _rules(fact, store)
    if rules is None:
        raise UsageError(
            "the experiment is no track",
            where=known,
            expected="Registration(..., track=Track(flops=...)) in its file, registered",
            found="no track",
            cure="add it and register the file again",
        )
    return rules


def _rules(fact: Fact[ExperimentRegistered], store: Store) -> Rules | None:
    """The track of a registration, None where it is not one.

    Raises:
        DataError: its document is not what it is to be. UsageError: its baseline's recipe is of another version of Marin.
    """
    stated = document_of(fact, store)
    where = f"registration {fact.body.registration}"
    if stated.track is None:
        return None
    if fact.body.baseline not in stated.arms:
        raise DataError(
            "a track without its baseline", where=where, expected=fact.body.baseline, found=", ".join(stated.arms)
        )
    return Rules(fact, stated.track, schema.from_plain(stated.arms[fact.body.baseline], where=where))


def submit(
    own: Root,
    rules: Rules,
    of: Root,
    run: str,
    *,
    trusted: Sequence[VerifierKey] = (),
    reproducers: Sequence[Reproducer] = (),
    quorum: int = 0,
) -> tuple[SpeedrunEntered, int | None]:
    """Admit ``run`` of the root ``of`` to a track, in the log of ``own``.

    Args:
        trusted: keys under which ``of`` is read, where it is not one's own.
        reproducers: whose verdicts count beside the keeper's own; ``quorum`` of them are needed, 0: the keeper's own is.

    Returns:
        The entry, and the index of its event; None where this very entry is there already.

    Raises:
        UsageError: the run breaks a rule of the track.
        MissingEvidence: nobody who counts has replayed all of it, or the newest answer of one's own verification is FAIL.
    """
    reader = of.reader(trusted)
    history = of.history_as_read(reader, trusted)
    view = load(history, resolve(history, run))
    recipe, score = _admissible(rules, view)
    _check_files(own.history(), rules, view)
    _check_seen(of, view, reader, trusted)
    if (failed := _newest_fail([(index, words) for index, _, words in _answers(own, (), view, reader)])) is not None:
        raise _unproven(view, of, "your own verification among them", f"FAIL, event {failed} of your log")
    if quorum:
        found = [one for each in reproducers if (one := _replayed(each.root, each.keys, view, reader))]
        if len({item.replayed.key for item in found}) < quorum:
            raise _unproven(view, of, f"{quorum} of {len(reproducers)} reproducers", f"{len(found)} of them")
    else:
        mine = _replayed(own, (), view, reader)
        if mine is None:
            raise _unproven(view, of, "your own verification", "none in your log")
        found = [mine]
    hours = _hours(rules, view, found, quorum or 1)
    replayed = [item.replayed for item in found]
    checkpoint = reader.checkpoint()
    size = min(item.size for item in replayed)
    entry = SpeedrunEntered(
        track=rules.name,
        registration=rules.fact.body.registration,
        run=view.run,
        origin=checkpoint.origin,
        keys=[str(key) for key in of.keys(trusted).verifiers],
        size=size,
        root=reader.root(size).hex(),
        recipe=schema.plain(recipe),
        metric=rules.metric,
        score=score.hex(),
        flops=work_of("train", recipe).flops,
        parameters=parameters(recipe.model, recipe.vocabulary),
        replayed=replayed,
        hours=hours,
    )
    for fact in entries(own.history(), rules.name):
        if (fact.body.origin, fact.body.run, fact.body.registration) == (entry.origin, entry.run, entry.registration):
            return fact.body, None
    (receipt,) = own.append([events.draft(entry, f"speedrun/{rules.name}")])
    return entry, receipt.index


def _check_seen(of: Root, view: Run, reader: LogReader, trusted: Sequence[VerifierKey]) -> None:
    """No matter who replayed it: the keeper's own witnesses must have seen the run's end, where the keeper has some for this log.

    Raises:
        Unverified: they cosigned nothing of it. Tampered: they cosigned another history.
        MissingEvidence: they cosigned it before the run's last event.
    """
    for seen in witnessed(of.storage, reader, of.keys(trusted).verifiers, own_policy(default_trust())):
        if seen.size <= view.told:
            raise MissingEvidence(
                "your witnesses have not seen the end of the run",
                where=f"run {view.run} in {of.location}",
                expected=f"a checkpoint that they cosigned, with event {view.told}",
                found=str(seen),
                cure="ask its operator for `marin ledger witness ask`",
            )


def entries(history: History, name: str) -> list[Fact[SpeedrunEntered]]:
    """What was admitted to the track ``name``, the oldest first, at the cost that follows from each recipe. One without a
    number for a score, or with another than its run has, is not an entry, no matter who signed it."""
    found = []
    for fact in facts(history, SpeedrunEntered):
        if fact.body.track != name:
            continue
        try:
            found.append(replace(fact, body=_derived(history, fact)))
        except (DataError, UsageError) as error:
            logger.warning("an entry is left out: %s", error)
    return found


def _derived(history: History, fact: Fact[SpeedrunEntered]) -> SpeedrunEntered:
    """An entry with what follows from its recipe in place of what is said of that.

    Raises:
        DataError: its score or its hours are not numbers, nobody replayed it, or its run, where this log has that, has another
            score.
        UsageError: its recipe is of another version of Marin.
    """
    entry, where = fact.body, f"event {fact.index}"
    recipe, score = schema.from_plain(entry.recipe, where=where), float.fromhex(entry.score)
    if not math.isfinite(score) or not (entry.hours is None or 0 < entry.hours < math.inf) or not entry.replayed:
        raise DataError("no entry", where=where, expected="a score, replayed by somebody", found=f"score {score}")
    for here in started_runs(history, recipe=schema.digest(recipe)):  # others' runs are in their own logs
        if here.body.run == entry.run:
            measured = load(history, entry.run).metrics.get(entry.metric)
            if measured != score:
                raise DataError("not its run's score", where=where, expected=str(measured), found=str(score))
    return msgspec.structs.replace(
        entry, flops=work_of("train", recipe).flops, parameters=parameters(recipe.model, recipe.vocabulary)
    )


def board(history: History, rules: Rules) -> tuple[list[Fact[SpeedrunEntered]], list[Withdrawn]]:
    """The entries to the track as it is registered now that have a place, the best first; and those that had one."""
    places, withdrawn = [], []
    for fact in ranked(rules, entries(history, rules.name)):
        if fact.body.metric != rules.metric or _broken(
            rules, schema.from_plain(fact.body.recipe, where=f"event {fact.index}")
        ):
            logger.warning("an entry is left out: event %d breaks a rule of track %s", fact.index, rules.name)
            continue
        failed = _failed_since(history, fact.body)
        if failed is None:
            places.append(fact)
        else:
            withdrawn.append(Withdrawn(fact, failed))
    return places, withdrawn


def _failed_since(history: History, entry: SpeedrunEntered) -> int | None:
    """The event of the keeper's log that says FAIL of the entry's run, if that is the newest answer."""
    answers = []
    for fact in facts(history, ReplayCompleted, stream=stream_of(entry.run)):
        index, body = fact.index, fact.body
        told = body.log_checkpoint
        other = told.get("size") == entry.size and told.get("root") != entry.root
        if body.run == entry.run and told.get("origin") == entry.origin and not other:
            answers.append((index, of_the_log(effective(body.verdicts, body.training), told)))
    return _newest_fail(answers)


def _newest_fail(answers: Sequence[tuple[int, Mapping[str, str]]]) -> int | None:
    """The last event that says FAIL, where these verifications of one run, oldest first, say so together."""
    if overall(standing(words for _, words in answers)) != "FAIL":
        return None
    return [index for index, words in answers if "FAIL" in words.values()][-1]


def ranked(rules: Rules, found: Sequence[Fact[SpeedrunEntered]]) -> list[Fact[SpeedrunEntered]]:
    """The entries to the track as it is registered now, the best score first, the cheaper and then the older before the
    other."""
    sign = 1.0 if rules.lower_is_better else -1.0

    def order(fact: Fact[SpeedrunEntered]) -> tuple[float, ...]:
        return sign * float.fromhex(fact.body.score), *(cost(fact.body, name) for name in rules.costs), fact.index

    here = [fact for fact in found if fact.body.registration == rules.fact.body.registration]
    return sorted(here, key=order)


def cost(entry: SpeedrunEntered, name: str) -> float:
    """What the entry cost, by one of :data:`COSTS`; infinite where it does not say."""
    value: float | None = getattr(entry, name)
    return math.inf if value is None else float(value)


def _admissible(rules: Rules, view: Run) -> tuple[schema.Recipe, float]:
    """Recipe and score of a run that keeps the rules."""
    recipe = view.recipe
    where = f"run {view.run} on track {rules.name}"

    def refuse(rule: str, expected: str, found: str, cure: str) -> UsageError:
        return UsageError(
            f"the run breaks a rule of the track: {rule}", where=where, expected=expected, found=found, cure=cure
        )

    if view.completed is None:
        raise refuse("it is whole", "a completed run", view.status, "let it end")
    for rule, expected, found, cure in _broken(rules, recipe):
        raise refuse(rule, expected, found, cure)
    score = view.metrics.get(rules.metric)
    if score is None or not math.isfinite(score):
        raise refuse(f"it has {rules.metric}", "a finite number", str(score), "evaluate it")
    return recipe, score


def _broken(rules: Rules, recipe: schema.Recipe) -> list[tuple[str, str, str, str]]:
    """The rules of a track that a recipe breaks: the rule, what it wants, what there is, what to do."""
    broken = []
    if recipe.phase is not None:
        found = f"a phase from train step {recipe.first_step}"
        broken.append(("it begins at the beginning", "no phase before it", found, "train it in one go"))
    for name in (*FIXED, *(FIXED_PER_TOKEN if rules.metric in PER_TOKEN else ())):
        expected, other = attrgetter(name)(rules.baseline), attrgetter(name)(recipe)
        if other != expected:
            told = _section_text(expected), _section_text(other)
            broken.append((f"{name} is the baseline's", *told, f"train with the baseline's {name}"))
    flops, count = work_of("train", recipe).flops, parameters(recipe.model, recipe.vocabulary)
    for name, limit, value in (("flops", rules.limits.flops, flops), ("parameters", rules.limits.parameters, count)):
        if limit is not None and value > limit:
            broken.append((f"{name} at most", f"{limit:.6g}", f"{value:.6g}", "train less, or a smaller model"))
    return broken


def _check_files(own: History, rules: Rules, view: Run) -> None:
    """Files by name can be any files: those of the track are what the keeper's own run of the baseline made of them.

    Raises:
        UsageError: the run made another corpus. MissingEvidence: the keeper has not run the baseline.
    """
    if all(_is_pinned(one) for one in schema.parts(rules.baseline.dataset).values()):
        return
    where = f"run {view.run} on track {rules.name}"
    known = set()
    for started, recipe in runs_with_recipes(own):
        if arm_of(rules.fact.body, recipe, started.body.pipeline) == rules.fact.body.baseline:
            steps = load(own, started.body.run).steps
            known |= {steps["corpus"].output.digest} if "corpus" in steps else set()
    if not known:
        raise MissingEvidence(
            "the track's data are files, and nothing here says which",
            where=where,
            expected="a corpus that a run of the baseline made, in your log",
            found="none",
            cure="train the baseline in your root",
        )
    found = view.output("corpus").digest
    if found not in known:
        raise UsageError(
            "the run breaks a rule of the track: its text is the baseline's",
            where=where,
            expected=" or ".join(sorted(known)),
            found=found,
            cure="train on the same files",
        )


def _is_pinned(dataset: schema.SingleDataset) -> bool:
    """Whether the recipe itself says which bytes it reads."""
    if isinstance(dataset, schema.UrlDataset):
        return dataset.minimal_pairs is None
    return isinstance(dataset, schema.GrammarDataset | schema.ArtifactDataset | schema.DocumentsDataset)


def _hours(rules: Rules, view: Run, found: Sequence[Witnessed], enough: int) -> float | None:
    """In how many hours ``enough`` of those who count replayed the training; None where so many did not say.

    Raises:
        UsageError: the track has a limit, and that is above it or not known.
    """
    by_key: dict[str, float] = {}
    for item in found:
        if item.hours is not None:
            by_key[item.replayed.key] = min(item.hours, by_key.get(item.replayed.key, math.inf))
    told = sorted(by_key.values())
    hours = told[enough - 1] if len(told) >= enough else None
    limit = rules.limits.hours
    if limit is not None and (hours is None or hours > limit):
        raise UsageError(
            "the run breaks a rule of the track: hours at most",
            where=f"run {view.run} on track {rules.name}",
            expected=f"{limit:g} to replay its training",
            found="a verification that took over segments from an earlier one" if hours is None else f"{hours:.3g}",
            cure="verify all of it at once (marin verify --fresh), on the machine that the track is for",
        )
    return hours


def _section_text(section: Any) -> str:
    return msgspec.json.encode(section).decode()[:160]


def _replayed(by: Root, keys: Sequence[VerifierKey], view: Run, log: LogReader) -> Witnessed | None:
    """The newest verdict in the log of ``by`` that passes this very run in all five, under its giver's key, with no
    FAIL after it; of those the newest that says in which time, if one does."""
    found = None
    for index, body, words in _answers(by, keys, view, log):
        if "FAIL" in words.values():
            found = None
        elif all(words.get(name) == "PASS" for name in NAMES):
            key = str(by.keys(keys).verifiers[0])
            hours = _hours_of(body.training)
            if found is None or hours is not None or found.hours is None:
                found = Witnessed(Replayed(key=key, event=index, size=int(body.log_checkpoint["size"])), hours)
    return found


def _answers(
    by: Root, keys: Sequence[VerifierKey], view: Run, log: LogReader
) -> Iterator[tuple[int, ReplayCompleted, Mapping[str, str]]]:
    """The verdicts in the log of ``by`` on this very run, oldest first, as they count."""
    if not by.keys(keys).mine:
        return  # a log that only names itself
    history = by.history_as_read(by.reader(keys), keys)
    for fact in facts(history, ReplayCompleted, stream=stream_of(view.run)):
        index, body = fact.index, fact.body
        if body.run == view.run and history.written.is_keepers(index) and of_this_log(body.log_checkpoint, log):
            yield index, body, counting(body, view.told)


def _hours_of(training: Mapping[str, Any]) -> float | None:
    """Of a replay that took nothing over from an earlier one: wall time, times workers."""
    seconds, workers = training.get("seconds"), training.get("workers")
    whole = training.get("segments_replayed") == training.get("segments_total")
    if not isinstance(seconds, int | float) or not isinstance(workers, int) or not whole or seconds <= 0:
        return None
    return seconds * max(1, workers) / 3600


def _unproven(view: Run, of: Root, expected: str, found: str) -> MissingEvidence:
    return MissingEvidence(
        "the run was not replayed whole by anyone who counts here",
        where=f"run {view.run} of {of.location}",
        expected=f"five PASS over all of it, by {expected}",
        found=found,
        cure=f"marin --root {of.location} verify {view.run}, then submit it again",
    )
