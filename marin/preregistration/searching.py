"""A search as an experiment: every trial is an arm of it, registered before it is trained.

So anyone who quotes the best of many quotes an experiment that has the many: each trial's run cites the registration, `marin
experiment report` lists all of them, and its verdict is never better than exploratory, for no file states a hypothesis. A trial
that was tried before is the same arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from ledger import digest_bytes
from marin.errors import UsageError
from marin.history.run import Fact
from marin.kinds.families.experiment import ExperimentRegistered
from marin.preregistration.arms import arm_digest, registrations
from marin.preregistration.registration import Metric, Registration, document_of, registered
from marin.recipe.schema import Recipe, from_plain
from marin.recipe.search import Plan, a_seed
from marin.record import events
from marin.record.root import Root


def register_trials(root: Root, plan: Plan, metric: str, recipes: Sequence[Recipe]) -> str:
    """Register the search with these trials as its arms, in order, after those that were registered under its name before (a
    trial that failed once may lead the sweeper elsewhere); the digest of the registration. The same again is not appended twice.

    Raises:
        UsageError: the trials have several seeds, or the name is that of another experiment.
        DataError: what was registered before cannot be read.
    """
    seeds = sorted({recipe.seed or 0 for recipe in recipes})
    if len(seeds) > 1:
        raise a_seed(f"seeds {', '.join(map(str, seeds[:3]))}")
    earlier = list(registrations(root.history(), plan.name))
    arms = _arms_before(root, plan, metric, seeds, earlier)
    known = {arm_digest(recipe) for recipe in arms.values()}
    for number, recipe in enumerate(recipes):
        if (digest := arm_digest(recipe)) not in known:
            known.add(digest)
            names = (f"trial-{free:03}" for free in count(number))
            arms[next(name for name in names if name not in arms)] = recipe
    first = next(iter(arms))
    words = " ".join(plan.space)
    registration = Registration(
        name=plan.name,
        question=f"Which of these values gives the {'lowest' if plan.direction == 'lower' else 'highest'} {metric}: {words}?",
        hypothesis="None: a search. Its best trial is the best of all of these, with one seed.",
        primary=Metric(name=metric, direction=plan.direction),
        arms=arms,
        baseline=first,
        seeds=tuple(seeds),
        test="welch",
        stopping_rule=f"{plan.trials} trials, {plan.at_once} at a time, chosen by {plan.sampler} from {words}"[:4000],
    )
    digest = digest_bytes(registration.document())
    if not any(fact.body.registration == digest for fact in earlier):
        root.store().put_bytes(registration.document())
        body = registered(registration, file="", file_digest=digest)
        root.append([events.draft(body, f"experiment/{plan.name}")])
    return digest


def _arms_before(
    root: Root, plan: Plan, metric: str, seeds: Sequence[int], earlier: Sequence[Fact[ExperimentRegistered]]
) -> dict[str, Recipe]:
    """The trials that are registered under the search's name."""
    if not earlier:
        return {}
    body, asked = earlier[-1].body, f"a search for the {plan.direction} {metric} with seed {', '.join(map(str, seeds))}"
    there = f"a search for the {body.primary['direction']} {body.primary['name']} with seed {', '.join(body.seeds)}"
    if any(fact.body.file for fact in earlier) or there != asked:
        raise UsageError(
            "the name is another experiment's",
            where="hydra.sweeper.study_name",
            expected=asked,
            found=f"{plan.name}: {there if not body.file else body.file}",
            cure="choose another name",
        )
    return {
        name: from_plain(recipe, where=f"registration {body.registration}: {name}")
        for name, recipe in document_of(earlier[-1], root.store()).arms.items()
    }
