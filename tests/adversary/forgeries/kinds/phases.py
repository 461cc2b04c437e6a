"""Class 4: phases without their link, planted states, chains that come back to themselves."""

from __future__ import annotations

import copy
from typing import Any

from marin.history.runs import stream_of
from marin.record import events as kinds
from marin.verify.derivation.record import step_of
from marin.verify.segments.sampling import Scope
from tests.adversary.forgeries.registry import Forge, kind
from tests.adversary.forgeries.stranger import Asked
from tests.adversary.forgeries.workshop import OTHER, Entry, Shop


def _ends(events: list[Entry]) -> tuple[Entry, Entry]:
    return events[0], events[-1]


def _middle(shop: Shop) -> int:
    """A train step with which no segment begins or ends."""
    return int(shop.all(kinds.TRAIN_SEGMENT)[1].body["start"]) + 1


def _link(shop: Shop) -> dict[str, Any]:
    found: dict[str, Any] = shop.one(kinds.RUN_STARTED).body["continues"]
    return found


def _unlinked(shop: Shop) -> None:
    del shop.one(kinds.RUN_STARTED).body["continues"]
    shop.follow()


kind(4, "a phase without its link", of="phase", says="continues")(_unlinked)
kind(
    4,
    "a phase without its link, by two workers",
    of="phase",
    verdict="training",
    outcomes=("FAIL",),
    says="link is broken",
    asked=Asked(workers=2),
)(_unlinked)
kind(
    4,
    "a phase without its link, a sample of one",
    of="phase",
    verdict="training",
    outcomes=("FAIL",),
    says="link is broken",
    asked=Asked(scope=Scope(sample=1)),
)(_unlinked)


@kind(4, "a link, and a recipe that is no phase")
def linked(shop: Shop) -> None:
    saved = shop.all(kinds.CHECKPOINT_SAVED)[0].body
    shop.one(kinds.RUN_STARTED).body["continues"] = {
        "run": shop.base.phase or "nobody00",
        "step": saved["step"],
        "state": saved["state"],
        "checkpoint": saved["artifact"],
    }


def _relinked(**fields: Any) -> Forge:
    def forge(shop: Shop) -> None:
        _link(shop).update(fields)

    return forge


kind(4, "a phase that continues a run that is not there", of="phase", says="")(_relinked(run="nobody00"))
kind(4, "a phase from another state than its recipe says", of="phase", says="its recipe")(_relinked(state=OTHER))
kind(4, "a phase from another train step than its recipe says", of="phase", says="its recipe")(_relinked(step=4))
kind(4, "a phase from a stored checkpoint that is not there", of="phase", says="checkpoint")(
    _relinked(checkpoint=OTHER)
)
kind(
    4,
    "a phase from a checkpoint that is not there, by two workers",
    of="phase",
    says="checkpoint",
    asked=Asked(workers=2),
)(_relinked(checkpoint=OTHER))


def _left(shop: Shop, *dropped: str) -> None:
    """As if the run before the phase had been left in its training, without a word of the steps ``dropped``."""
    run = shop.base.run
    shop.remove(*[e for e in shop.events if e.stream == stream_of(shop.base.second)])
    shop.remove(*shop.all(kinds.STEP_COMPLETED, "train", run=run), *shop.all(kinds.RUN_COMPLETED, run=run))
    mine = [e for e in shop.events if e.stream == stream_of(run)]
    shop.remove(*[e for e in mine if step_of((0, e)) in dropped])  # type: ignore[arg-type]  # it has type and body


@kind(0, "an honest phase of a run that was left in its training", of="phase", honest=True)
def honest_left(shop: Shop) -> None:
    _left(shop, "evaluate", "export")


@kind(
    4,
    "a run that was left in its training, whose evaluation and export are of another model",
    of="phase",
    says="rests on the end of step train",
)
def left_and_evaluated(shop: Shop) -> None:
    run = shop.base.run
    _left(shop)
    for step in ("evaluate", "export"):
        shop.one(kinds.STEP_STARTED, step, run=run).body["inputs"]["train"] = OTHER
    shop.follow()
    for report in (kinds.EVAL_COMPLETED, kinds.MODEL_EXPORTED):
        shop.one(report, run=run).body["model"] = OTHER


@kind(4, "a phase that continues itself", of="phase")
def itself(shop: Shop) -> None:
    _link(shop)["run"] = shop.run


@kind(4, "two phases that continue one another", of="phase")
def one_another(shop: Shop) -> None:
    before = shop.one(kinds.RUN_STARTED, run=shop.base.run).body
    before["continues"] = copy.deepcopy(_link(shop)) | {"run": shop.run}
    before["recipe"]["phase"] = copy.deepcopy(shop.one(kinds.RUN_STARTED).body["recipe"]["phase"])
    shop.follow()


@kind(4, "a phase that continues the run beside the right one", of="phase", says="is not the continuation of")
def beside(shop: Shop) -> None:
    """The second run took its training over, so that it recorded no state of its own at a step of this name."""
    saved = copy.deepcopy(shop.all(kinds.CHECKPOINT_SAVED, run=shop.base.run)[0])
    _link(shop).update(run=shop.base.run, step=12, state=saved.body["state"])
    phase = shop.one(kinds.RUN_STARTED).body["recipe"]["phase"]
    phase["state"] = saved.body["state"]
    shop.one(kinds.STEP_STARTED, "train").body["config"]["phase"]["state"] = saved.body["state"]
    shop.follow()


@kind(4, "a planted state at the right step", of="phase", verdict="ledger", says="state")
def planted(shop: Shop) -> None:
    """A second checkpoint after the last train step of the run before, of an earlier state: the phase begins there."""
    first, last = shop.all(kinds.CHECKPOINT_SAVED, run=shop.base.run)[:2]
    shop.again(
        last,
        state=first.body["state"],
        artifact=first.body["artifact"],
        manifest=first.body["manifest"],
        size=first.body["size"],
    )
    state = first.body["state"]
    _link(shop).update(state=state, checkpoint=first.body["artifact"])
    shop.one(kinds.RUN_STARTED).body["recipe"]["phase"]["state"] = state
    shop.one(kinds.STEP_STARTED, "train").body["config"]["phase"]["state"] = state
    shop.follow()


@kind(4, "a state far behind the run's end, to go on from", says="train step 1000")
def beyond(shop: Shop) -> None:
    first, last = _ends(shop.all(kinds.CHECKPOINT_SAVED))
    shop.again(last, **{key: first.body[key] for key in ("state", "artifact", "manifest", "size")}, step=1000)


@kind(4, "a state in the middle of a segment", claimed="a state before train step")
def amid(shop: Shop) -> None:
    first, last = _ends(shop.all(kinds.CHECKPOINT_SAVED))
    shop.again(
        last,
        before=True,
        **{key: first.body[key] for key in ("state", "artifact", "manifest", "size")},
        step=_middle(shop),
    )


@kind(4, "an attempt that began from a planted state", claimed="a state before train step")
def attempt(shop: Shop) -> None:
    started, saved = shop.one(kinds.TRAIN_STARTED), shop.all(kinds.CHECKPOINT_SAVED)[0].body
    shop.again(started, first_step=_middle(shop), state=saved["state"], manifest=saved["manifest"])


@kind(4, "data that was consumed before, forgotten", of="phase", says="phase.consumed")
def forgotten(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["recipe"]["phase"]["consumed"] = {}
    shop.one(kinds.STEP_STARTED, "train").body["config"]["phase"]["consumed"] = {}
    shop.follow()


@kind(4, "sequences that were consumed before, forgotten", of="phase", says="phase.first_sequence")
def sequences(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["recipe"]["phase"]["first_sequence"] = 0
    shop.one(kinds.STEP_STARTED, "train").body["config"]["phase"]["first_sequence"] = 0
    shop.follow()


@kind(4, "another tokenizer in the phase", of="phase", says="tokenizer")
def tokenizer(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["recipe"]["phase"]["tokenizer"] = OTHER
    shop.follow()


@kind(4, "a forged loss in the run before", of="phase", verdict="training", outcomes=("FAIL",), says="phase before")
def before(shop: Shop) -> None:
    losses = shop.all(kinds.TRAIN_SEGMENT, run=shop.base.run)[0].body["losses"]
    losses[0] = (float.fromhex(losses[0]) / 2).hex()


@kind(4, "a gap in the run before", of="phase", verdict="training", outcomes=("FAIL",), says="phase before")
def gap(shop: Shop) -> None:
    shop.remove(shop.all(kinds.TRAIN_SEGMENT, run=shop.base.run)[0])


@kind(4, "a checkpoint of the run before that holds another state", of="phase", verdict="artifacts", outcomes=("FAIL",))
def other_state(shop: Shop) -> None:
    first, second = shop.all(kinds.CHECKPOINT_SAVED, run=shop.base.run)[:2]
    second.body |= {"artifact": first.body["artifact"], "size": first.body["size"]}


@kind(4, "a first segment from nowhere", verdict="training", outcomes=("FAIL",), says="initial state")
def nowhere(shop: Shop) -> None:
    saved = shop.all(kinds.CHECKPOINT_SAVED)[0].body
    shop.all(kinds.TRAIN_SEGMENT)[0].body["start_state"] = saved["state"]
    shop.one(kinds.TRAIN_STARTED).body |= {"state": saved["state"], "manifest": saved["manifest"]}


@kind(
    4,
    "a first segment from nowhere, by two workers",
    verdict="training",
    outcomes=("FAIL",),
    says="initial state",
    asked=Asked(workers=2),
)
def nowhere_by_workers(shop: Shop) -> None:
    nowhere(shop)


@kind(4, "the run's first segments left out", verdict="training", outcomes=("FAIL",), says="do not follow")
def headless(shop: Shop) -> None:
    shop.remove(shop.all(kinds.TRAIN_SEGMENT)[0])


@kind(4, "the run's last segment left out", verdict="training", outcomes=("FAIL",), says="missing from the record")
def tailless(shop: Shop) -> None:
    shop.remove(shop.all(kinds.TRAIN_SEGMENT)[-1])


@kind(4, "a segment of no train steps", verdict="training", outcomes=("FAIL",), says="one record per train step")
def empty(shop: Shop) -> None:
    last = shop.all(kinds.TRAIN_SEGMENT)[-1]
    state = last.body["end_state"]
    shop.again(
        last,
        start=last.body["end"],
        end=last.body["end"],
        losses=[],
        batches=[],
        fingerprints=[],
        start_state=state,
        end_state=state,
    )


@kind(
    4,
    "invented losses after the state that a phase took over",
    of="phase",
    verdict="training",
    claimed="what it did from train step",
)
def after(shop: Shop) -> None:
    """The run before goes on where the phase left it, and no replay of the chain looks at that."""
    last = shop.all(kinds.TRAIN_SEGMENT, run=shop.base.run)[-1].body
    last["losses"] = [(0.001).hex() for _ in last["losses"]]
    for entry in shop.all(kinds.METRICS_RECORDED, run=shop.base.run):
        entry.body["series"] = [s for s in entry.body["series"] if s["key"] != "train/grad_norm"]
    shop.one(kinds.STEP_COMPLETED, "train", run=shop.base.run).body["metrics"]["loss_last"] = (0.001).hex()
    shop.follow()
