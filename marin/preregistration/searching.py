"""A search as an experiment: every trial is an arm of it, registered before it is trained.

So whoever quotes the best of many quotes an experiment that has the many: each trial's run cites the registration, `marin
experiment report` lists all of them, and its verdict is never better than exploratory, for no file states a hypothesis. A trial
that was tried before is the same arm.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger import Draft, digest_bytes
from marin.preregistration.registration import Metric, Registration, arm_digest, registered, registrations
from marin.recipe.schema import Recipe
from marin.recipe.search import Plan, a_seed
from marin.record import events
from marin.record.root import Root


def register_trials(root: Root, plan: Plan, metric: str, recipes: Sequence[Recipe]) -> str:
    """Register the search with these trials as its arms, in order; the digest of the registration. The same again is not
    appended twice.

    Raises:
        UsageError: the trials have several seeds.
    """
    seeds = sorted({recipe.seed or 0 for recipe in recipes})
    if len(seeds) > 1:
        raise a_seed(f"seeds {', '.join(map(str, seeds[:3]))}")
    arms: dict[str, Recipe] = {}
    known: set[str] = set()
    for number, recipe in enumerate(recipes):
        if (digest := arm_digest(recipe)) not in known:
            known.add(digest)
            arms[f"trial-{number:03}"] = recipe
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
    if not any(fact.body.registration == digest for fact in registrations(root.history(), plan.name)):
        root.store().put_bytes(registration.document())
        body = registered(registration, file="", file_digest=digest)
        root.append([Draft(events.EXPERIMENT_REGISTERED, f"experiment/{plan.name}", events.write(body))])
    return digest
