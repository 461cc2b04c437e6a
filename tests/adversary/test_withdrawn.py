"""What an operator signs as evaluated of a state that was withdrawn: nobody judges it, so nobody repeats it."""

from __future__ import annotations

import copy

from marin.history.run import record_digest
from marin.history.runs import evaluation_stream, replay_stream, stream_of
from marin.history.table.evaluations import recorded_evaluations
from marin.kinds.families.measured import EVALUATION_RECORDED
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.folding.intents import Points
from marin.record import events as kinds
from marin.record.events import TrainSegment
from marin.record.root import open_root
from marin.verify.derivation.record import read_record
from tests.adversary.forgeries.doors.events import stranger
from tests.adversary.forgeries.doors.register import Stall
from tests.adversary.forgeries.workshop import OTHER, Entry
from tests.marin.verify.test_evaluation_record import body_of


def test_an_evaluation_of_a_state_that_was_withdrawn_is_repeated_nowhere(stall: Stall) -> None:
    shop = stall.shop
    started, saved, segment = (
        shop.all(kind)[0] for kind in (kinds.TRAIN_STARTED, kinds.CHECKPOINT_SAVED, kinds.TRAIN_SEGMENT)
    )
    first = started.body["first_step"]
    wrong = copy.deepcopy(segment.body) | {"end_state": OTHER}
    digest = record_digest(kinds.read(TrainSegment, wrong, where="forged"))
    request = {"run": shop.run, "found": "a wrong bit", "step": first, "segment": digest}
    at, stream = shop.place(started) + 1, stream_of(shop.run)
    forged = [
        (kinds.CHECKPOINT_SAVED, stream, copy.deepcopy(saved.body) | {"state": OTHER}),
        (kinds.TRAIN_SEGMENT, stream, wrong),
        (kinds.STOP_REQUESTED, replay_stream(shop.run), request),
        (kinds.TRAIN_WITHDRAWN, stream, {"run": shop.run, "step": first, "request": at + 2}),
    ]
    shop.events[at:at] = [Entry(*one, actor=started.actor, time=started.time) for one in forged]
    for state in (OTHER, saved.body["state"]):
        body = body_of(shop.run, state=state, step=saved.body["step"])
        shop.events.append(Entry(EVALUATION_RECORDED, evaluation_stream(shop.run), body))
    shop.sign()
    with stranger(stall):
        history = open_root(str(shop.path)).history()
        record = read_record(history, shop.run)
        assert [event.body["state"] for _, event in record.aside] == [OTHER]
        assert [body.state for body in recorded_evaluations(history, shop.run)] == [saved.body["state"]]
        reader = open_root(str(shop.path)).reader()
        fold = Fold(reader.checkpoint().origin, own=None)
        told = [one for one in fold.apply_all(reader.events()) if isinstance(one, Points)]
        points = [one for one in told if "pairs" in one.key and "acc" in one.key]
    assert len(points) == 1
