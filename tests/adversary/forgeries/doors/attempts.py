"""What an operator signs of attempts that another took the place of: no verdict looks at them, so nothing that is shown beside
one may come from them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from marin.execution.plan import identity_of
from marin.history.run import record_digest
from marin.history.runs import replay_stream, stream_of
from marin.record import events as kinds
from marin.record.events import TrainSegment
from tests.adversary.forgeries.doors.register import Stall, kind
from tests.adversary.forgeries.doors.views import FORGED, goes_on, verified
from tests.adversary.forgeries.workshop import OTHER, Entry, Shop


def other_attempt(shop: Shop, step: str) -> dict[str, Any]:
    """The beginning of an attempt at a step with other code."""
    body = shop.one(kinds.STEP_STARTED, step).body | {"code": OTHER, "attempt": 7}
    lock = body.get("lock") or shop.one(kinds.RUN_STARTED).body["environment"].get("lock", "")
    return body | {"identity": identity_of(step, body["config"], body["inputs"], body["code"], lock)}


def _losses(shop: Shop) -> list[tuple[str, dict[str, Any]]]:
    segment = copy.deepcopy(shop.all(kinds.TRAIN_SEGMENT)[0].body)
    return [(kinds.TRAIN_SEGMENT, segment | {"losses": [FORGED.hex() for _ in segment["losses"]]})]


def _norms(shop: Shop) -> list[tuple[str, dict[str, Any]]]:
    norm = FORGED.hex()
    series = [{"key": "train/grad_norm", "steps": [0, 1], "values": [norm, norm]}]
    return [(kinds.METRICS_RECORDED, {"run": shop.run, "step": "train", "series": series})]


def _evaluated(shop: Shop) -> list[tuple[str, dict[str, Any]]]:
    body = shop.one(kinds.EVAL_COMPLETED).body
    return [(kinds.EVAL_COMPLETED, body | {"metrics": body["metrics"] | {"loss": FORGED.hex()}})]


def _exported(shop: Shop) -> list[tuple[str, dict[str, Any]]]:
    body = shop.one(kinds.MODEL_EXPORTED).body
    return [(kinds.MODEL_EXPORTED, body | {"output": body["output"] | {"digest": OTHER, "artifact": OTHER}})]


Told = Callable[[Shop], list[tuple[str, dict[str, Any]]]]
TOLD: dict[str, tuple[str, Told]] = {
    "losses": ("train", _losses),
    "a gradient norm": ("train", _norms),
    "an evaluation": ("evaluate", _evaluated),
    "a model": ("export", _exported),
}
"""What an attempt tells: of which step, and which events."""


def _earlier(step: str, told: Told) -> Callable[[Stall], None]:
    """The attempt stands before the one that has the result."""

    def forge(stall: Stall) -> None:
        shop = stall.shop
        stall.held["own"] = True
        begun = shop.one(kinds.STEP_STARTED, step)
        for type_, body in [(kinds.STEP_STARTED, other_attempt(shop, step)), *told(shop)]:
            made = shop.again(begun, before=True)
            made.type, made.body = type_, copy.deepcopy(body)
        verified(stall)

    return forge


def _later(step: str, told: Told) -> Callable[[Stall], None]:
    """The attempt was begun after the result, and never ended."""

    def forge(stall: Stall) -> None:
        shop = stall.shop
        stall.held["own"] = True
        after = shop.one(kinds.STEP_COMPLETED, step)
        for type_, body in reversed([(kinds.STEP_STARTED, other_attempt(shop, step)), *told(shop)]):
            made = shop.again(after)
            made.type, made.body = type_, copy.deepcopy(body)
        verified(stall)

    return forge


for _what, (_step, _claim) in TOLD.items():
    for _door in ("mlflow", "own lists"):
        kind(_door, f"{_what} of an attempt before the one that has the result", "")(_earlier(_step, _claim))
        kind(_door, f"{_what} of an attempt after the result", "")(_later(_step, _claim))


def _withdrawn(stall: Stall) -> None:
    """Losses that a training withdrew, for a follower had refuted them."""
    shop = stall.shop
    stall.held["own"] = True
    started, segment = shop.all(kinds.TRAIN_STARTED)[0], shop.all(kinds.TRAIN_SEGMENT)[0]
    ((_, wrong),) = _losses(shop)
    wrong |= {"end_state": OTHER}
    digest = record_digest(kinds.read(TrainSegment, wrong, where="forged"))
    first, at = segment.body["start"], shop.place(started) + 1
    request = {"run": shop.run, "found": "a wrong bit", "step": first, "segment": digest}
    shop.events[at:at] = [
        Entry(type_, stream, body, actor=started.actor, time=started.time)
        for type_, stream, body in (
            (kinds.TRAIN_SEGMENT, stream_of(shop.run), wrong),
            (kinds.STOP_REQUESTED, replay_stream(shop.run), request),
            (kinds.TRAIN_WITHDRAWN, stream_of(shop.run), {"run": shop.run, "step": first, "request": at + 1}),
        )
    ]
    verified(stall)


def _taken_over(stall: Stall) -> None:
    """A second run takes a result over; in the run that made it, another took its place since. Both are shown with what is
    theirs, and the second passes."""
    shop = stall.shop
    stall.held |= {"own": True, "run": "twin2345"}
    made = shop.one(kinds.STEP_COMPLETED, "evaluate")
    place, told = shop.place(made), []
    other = other_attempt(shop, "evaluate")
    end = made.body | {"identity": other["identity"], "metrics": made.body["metrics"] | {"loss": FORGED.hex()}}
    mine = [entry for entry in shop.events if entry.stream == stream_of(shop.run)]
    for entry in mine:
        body = entry.body | ({"run": "twin2345"} if "run" in entry.body else {})
        if entry.body.get("step") == "evaluate" and entry is not made:
            continue
        if entry is made:
            keys = ("run", "step", "identity", "inputs", "output")
            told.append((kinds.STEP_CACHED, {key: body[key] for key in keys} | {"completed_at": place}))
        elif entry.type != kinds.EVAL_COMPLETED:
            told.append((entry.type, body))
    after = [(kinds.STEP_STARTED, other), (kinds.STEP_COMPLETED, end)]
    goes_on(stall, *((type_, stream_of(shop.run), body) for type_, body in after))
    goes_on(stall, *((type_, stream_of("twin2345"), body) for type_, body in told))
    verified(stall, run="twin2345")


for _door in ("mlflow", "own lists"):
    kind(_door, "losses that a training withdrew", "")(_withdrawn)
    kind(_door, "a result that was taken over before another took its place", "")(_taken_over)
