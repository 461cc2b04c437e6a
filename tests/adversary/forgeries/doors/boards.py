"""A board of speedruns: entries that its keeper, or anyone with a copy of the log, signs without a run that is so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledger import Draft, LedgerError, Log
from marin.history.run import Fact
from marin.history.runs import load, stream_of
from marin.kinds.families.experiment import ExperimentRegistered
from marin.plugins.lab.kinds import SPEEDRUN_ENTERED, Replayed, SpeedrunEntered
from marin.plugins.lab.speedrun import Rules, board, submit
from marin.preregistration.registration import Track
from marin.recipe.cost import parameters, work_of
from marin.recipe.schema import plain
from marin.record import events as kinds
from marin.record.creation import create_root
from marin.record.root import Root, open_root
from tests.adversary.forgeries.doors.events import signed, stranger
from tests.adversary.forgeries.doors.register import Answer, Stall, door, kind
from tests.adversary.forgeries.doors.views import goes_on, verdict
from tests.adversary.forgeries.workshop import OTHER

METRIC, NAME = "evaluate.loss", "exp001"


def _rules(root: Root, run: str) -> Rules:
    """A track whose baseline is the run itself, and that allows what it cost."""
    recipe = load(root.history(), run).recipe
    registered = ExperimentRegistered(
        experiment=NAME,
        registration=OTHER,
        file="x.py",
        file_digest=OTHER,
        question="?",
        hypothesis="",
        primary={"name": METRIC, "direction": "lower"},
        secondary=[],
        arms={},
        baseline="base",
        seeds=[],
        test="welch",
        alternative="two-sided",
        alpha=0.05,
        stopping_rule="",
        cost_cap={},
    )
    limits = Track(flops=work_of("train", recipe).flops)
    return Rules(Fact(0, "", registered), limits, recipe)


def honest_entry(root: Root, run: str) -> SpeedrunEntered:
    """What the keeper would record of the run."""
    view, checkpoint = load(root.history(), run), root.reader().checkpoint()
    return SpeedrunEntered(
        track=NAME,
        registration=OTHER,
        run=run,
        origin=checkpoint.origin,
        keys=[str(root.verifier)],
        size=checkpoint.size,
        root=checkpoint.root.hex(),
        recipe=plain(view.recipe),
        metric=METRIC,
        score=view.metrics[METRIC].hex(),
        flops=work_of("train", view.recipe).flops,
        parameters=parameters(view.recipe.model, view.recipe.vocabulary),
        replayed=[Replayed(key=str(root.verifier), event=1, size=checkpoint.size)],
    )


@door("speedrun")
def _board(stall: Stall) -> Answer:
    """Whether the board has the entry as it was forged, and not as it is."""
    root = open_root(str(stall.shop.path))
    places, _ = board(root.history(), _rules(root, stall.shop.run))
    true, told = honest_entry(root, stall.shop.run), [fact.body for fact in places]
    shown = ("score", "flops", "parameters", "metric", "recipe")
    wrong = [name for one in told for name in shown if getattr(one, name) != getattr(true, name)]
    wrong += [f"hours {one.hours}" for one in told if one.hours is not None]
    if stall.held.get("honest"):
        return Answer(len(told) == 1 and not wrong, f"{len(told)} places")
    return Answer(bool(wrong), f"{len(told)} places, as their recipes and runs have them")


def _entered(change: Callable[[dict[str, Any]], object]) -> Callable[[Stall], None]:
    def forge(stall: Stall) -> None:
        shop = signed(stall)
        body = kinds.write(honest_entry(open_root(str(shop.path)), shop.run))
        change(body)
        goes_on(stall, (SPEEDRUN_ENTERED, f"speedrun/{NAME}", body))

    return forge


def _recipe(**sections: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        for name, values in sections.items():
            body["recipe"][name] = body["recipe"][name] | values

    return change


@kind("speedrun", "the honest run", "", honest=True)
def _honest(stall: Stall) -> None:
    stall.held["honest"] = True
    _entered(lambda body: None)(stall)


for _name, _change in {
    "a score that its run does not have": lambda body: body.update(score=(0.25).hex()),
    "a score that is no number": lambda body: body.update(score="nan"),
    "a score without end": lambda body: body.update(score="-inf"),
    "fewer FLOPs than its recipe takes": lambda body: body.update(flops=1.0),
    "fewer parameters than its recipe has": lambda body: body.update(parameters=1),
    "no hours": lambda body: body.update(hours=0.0),
    "hours below nothing": lambda body: body.update(hours=-1.0),
    "nobody who replayed it": lambda body: body.update(replayed=[], score=(0.25).hex()),
    "another metric": lambda body: body.update(metric="train.loss_last"),
    "another data set": _recipe(dataset={"train_bytes": 7}),
    "another evaluation": _recipe(evaluation={"max_sequences": 1}),
    "more training than the track allows": _recipe(trainer={"num_steps": 10_000}),
    "not a recipe": lambda body: body.update(recipe={"trained": "well"}),
    "a recipe of a later version": lambda body: body["recipe"].update(recipe_version=99),
}.items():
    kind("speedrun", _name, "")(_entered(_change))


@door("admission")
def _admission(stall: Stall) -> Answer:
    """Whether a keeper admits the run of somebody else's root by what stands in it."""
    shop, own = signed(stall), stall.held["own"]
    theirs = open_root(str(shop.path))
    keeper = own(stall)
    try:
        with stranger(stall):
            entry, _ = submit(keeper, _rules(theirs, shop.run), theirs, shop.run, trusted=[shop.base.root.verifier])
    except LedgerError as error:
        return Answer(False, str(error))
    return Answer(True, f"admitted with {float.fromhex(entry.score)}")


def _keeper(stall: Stall) -> Root:
    """A keeper's own root, empty."""
    with stranger(stall):
        return create_root(str(stall.folder / "keeper"), origin="keeper.invalid/log")


def keeper_who_verified(stall: Stall) -> Root:
    """A keeper's own root, with five PASS for the run."""
    own, shop = _keeper(stall), stall.shop
    body = verdict(open_root(str(shop.path)), shop.run)
    with stranger(stall), Log.open(own.storage, own.signer()) as log:
        log.append([Draft(kinds.REPLAY_COMPLETED, stream_of(shop.run), body)])
    return own


def _claims(words: dict[str, str] | None = None, **about: Any) -> Callable[[Stall], None]:
    def forge(stall: Stall) -> None:
        shop = signed(stall)
        stall.held["own"] = _keeper
        body = verdict(open_root(str(shop.path)), shop.run, words, **about)
        goes_on(stall, (kinds.REPLAY_COMPLETED, stream_of(shop.run), body))

    return forge


kind("admission", "PASS in the run's own log", "was not replayed whole")(_claims())
kind("admission", "PASS over a copy", "was not replayed whole")(_claims(copy="/elsewhere"))
kind("admission", "PASS of some verdicts", "was not replayed whole")(_claims({"ledger": "PASS"}))
