"""What was evaluated of the states of a run: in a stream of its own, beside its execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from marin.history.runs import History, evaluation_stream, facts, stream_of
from marin.kinds.families.measured import EvaluationMeasured, EvaluationRecorded
from marin.kinds.known import type_of
from marin.record import events as kinds
from marin.record.events import CheckpointSaved, StepCached, TrainWithdrawn


def recorded_evaluations(history: History, run: str) -> Iterator[EvaluationMeasured | EvaluationRecorded]:
    """What was evaluated of the states of ``run``, in the order in which it was recorded; without states that its training
    withdrew: no verdict is on them."""
    gone = withdrawn_states(history, run)
    bodies: Mapping[str, type[EvaluationMeasured | EvaluationRecorded]] = {
        type_of(body): body for body in (EvaluationMeasured, EvaluationRecorded)
    }
    for index, event in history.events(stream=evaluation_stream(run)):
        if event.type in bodies and event.body.get("state") not in gone:
            yield kinds.read(bodies[event.type], event.body, where=f"event {index}")


def withdrawn_states(history: History, run: str) -> set[str]:
    """States that the training of ``run``, or the one that it took over, recorded and withdrew, and that do not stand."""
    taken = [
        history.event(fact.body.completed_at)
        for fact in facts(history, StepCached, stream=stream_of(run))
        if fact.body.step == "train"
    ]
    gone, standing = set[str](), set[str]()
    for stream in dict.fromkeys((stream_of(run), *(event.stream for event in taken if event is not None))):
        cuts = list(facts(history, TrainWithdrawn, stream=stream))
        for saved in facts(history, CheckpointSaved, stream=stream) if cuts else ():
            cut = any(saved.index < back.index and saved.body.step > back.body.step for back in cuts)
            (gone if cut else standing).add(saved.body.state)
    return gone - standing
