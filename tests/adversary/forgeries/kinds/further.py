"""Class 13: what a run says twice, in other places, in other forms; found by looking for what no check reads."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from marin.record import events as kinds
from tests.adversary.forgeries.registry import Forge, kind
from tests.adversary.forgeries.workshop import OTHER, Entry, Shop

LOW = (0.001).hex()


def _low(segment: Entry) -> dict[str, Any]:
    return {"losses": [LOW for _ in segment.body["losses"]]}


# What a later record takes the place of


@kind(13, "a segment recorded before with invented losses", says="train step")
def segment_before(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[1]
    shop.again(segment, before=True, **_low(segment))


@kind(13, "a segment recorded before with invented losses and no batches", says="of each")
def segment_before_without_batches(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[1]
    shop.again(segment, before=True, **_low(segment), batches=[])


@kind(13, "a segment recorded before in another cut, that ends in another state", claimed="not one of those that stand")
def segment_before_in_another_cut(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[0]
    cut = {name: segment.body[name][:1] for name in ("losses", "batches", "fingerprints")}
    shop.again(segment, before=True, **cut, end=segment.body["start"] + 1, end_state=OTHER)


@kind(13, "a segment recorded after the training's end", says="train step")
def segment_after(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[-1]
    other = shop.again(segment, **_low(segment))
    shop.remove(other)
    shop.events.append(other)


@kind(13, "segments of a run that took its training over", of="second", says="train step")
def segment_beside(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT, run=shop.base.run)[-1]
    shop.add(kinds.TRAIN_SEGMENT, copy.deepcopy(segment.body) | {"run": shop.run} | _low(segment))


@kind(13, "a step's end recorded before, with other metrics", says="metrics")
def completed_before(shop: Shop) -> None:
    done = shop.one(kinds.STEP_COMPLETED, "evaluate")
    other = shop.again(done, before=True)
    other.body["metrics"] |= {"perplexity": (1.01).hex()}


@kind(13, "a step's end recorded before, with another artifact", says="artifact")
def artifact_before(shop: Shop) -> None:
    done = shop.one(kinds.STEP_COMPLETED, "export")
    other = shop.again(done, before=True)
    other.body["output"] |= {"artifact": OTHER}


@kind(13, "a step's end of other inputs recorded before", claimed="took the place", harmless=True)
def superseded(shop: Shop) -> None:
    """As a run records it whose inputs were changed: what stands is true, what stood before may say anything."""
    begun, done = shop.one(kinds.STEP_STARTED, "evaluate"), shop.one(kinds.STEP_COMPLETED, "evaluate")
    from marin.execution.plan import identity_of

    inputs = begun.body["inputs"] | {"train": OTHER}
    lock = begun.body.get("lock") or shop.one(kinds.RUN_STARTED).body["environment"]["lock"]
    identity = identity_of("evaluate", begun.body["config"], inputs, begun.body["code"], lock)
    shop.again(begun, before=True, inputs=inputs, identity=identity)
    shop.again(
        begun,
        before=True,
        **copy.deepcopy(done.body) | {"inputs": inputs, "identity": identity, "metrics": {"mmlu": (0.91).hex()}},
    ).type = kinds.STEP_COMPLETED


@kind(13, "a training of other inputs recorded before", claimed="took the place")
def superseded_training(shop: Shop) -> None:
    from marin.execution.plan import identity_of

    begun = shop.one(kinds.STEP_STARTED, "train")
    inputs = begun.body["inputs"] | {"tokens": OTHER}
    lock = begun.body.get("lock") or shop.one(kinds.RUN_STARTED).body["environment"]["lock"]
    identity = identity_of("train", begun.body["config"], inputs, begun.body["code"], lock)
    shop.again(begun, before=True, inputs=inputs, identity=identity)
    segment = shop.all(kinds.TRAIN_SEGMENT)[0]
    other = shop.again(begun, before=True)
    other.type, other.body = kinds.TRAIN_SEGMENT, copy.deepcopy(segment.body) | _low(segment)


@kind(13, "a checkpoint recorded before with another artifact", claimed="which nobody judges")
def checkpoint_before(shop: Shop) -> None:
    first, second = shop.all(kinds.CHECKPOINT_SAVED)[:2]
    shop.again(second, before=True, artifact=first.body["artifact"], size=first.body["size"])


@kind(13, "a checkpoint recorded after the training's end", claimed="which nobody judges")
def checkpoint_after(shop: Shop) -> None:
    first, second = shop.all(kinds.CHECKPOINT_SAVED)[:2]
    other = shop.again(second, artifact=first.body["artifact"], size=first.body["size"])
    shop.remove(other)
    shop.events.append(other)


@kind(13, "an evaluation recorded twice", says="metrics")
def evaluated_twice(shop: Shop) -> None:
    shop.again(shop.one(kinds.EVAL_COMPLETED), before=True, metrics={"perplexity": (1.01).hex()})


@kind(13, "a run's end recorded twice", says="metrics")
def ended_twice(shop: Shop) -> None:
    shop.again(shop.one(kinds.RUN_COMPLETED), before=True, metrics={"evaluate.perplexity": (1.01).hex()})


@kind(13, "a run's end that lacks steps that it planned", says="")
def ended_early(shop: Shop) -> None:
    from tests.adversary.forgeries.kinds.deciding import _leave

    steps = dict(shop.one(kinds.RUN_STARTED).body["code"]["steps"])
    _leave(shop, "export")
    shop.one(kinds.RUN_STARTED).body["code"]["steps"] = steps
    shop.follow()


@kind(13, "gradient norms recorded twice, first invented", says="train/grad_norm")
def norms_before(shop: Shop) -> None:
    norms = shop.all(kinds.METRICS_RECORDED)[0]
    other = shop.again(norms, before=True)
    other.body["series"] = [s | {"values": [LOW for _ in s["values"]]} for s in other.body["series"][:1]]


@kind(13, "a gradient norm twice in one series", says="train/grad_norm")
def norm_twice(shop: Shop) -> None:
    series = shop.all(kinds.METRICS_RECORDED)[0].body["series"][0]
    series["steps"].insert(0, series["steps"][0])
    series["values"].insert(0, LOW)


@kind(13, "gradient norms in a run that took its training over", of="second", says="train/grad_norm")
def norms_beside(shop: Shop) -> None:
    norms = shop.all(kinds.METRICS_RECORDED, run=shop.base.run)[0]
    body = copy.deepcopy(norms.body) | {"run": shop.run}
    body["series"] = [s | {"values": [LOW for _ in s["values"]]} for s in body["series"][:1]]
    shop.add(kinds.METRICS_RECORDED, body)


@kind(13, "a gradient norm with more digits than a float32", says="a float32")
def norm_digits(shop: Shop) -> None:
    values = shop.all(kinds.METRICS_RECORDED)[0].body["series"][0]["values"]
    values[0] = (float.fromhex(values[0]) * (1 + 2**-40)).hex()


# What stands elsewhere


def _aside(shop: Shop, entry: Entry, stream: str, **changes: Any) -> Entry:
    other = shop.again(entry, **changes)
    other.stream = stream
    return other


@kind(13, "a training's result from a stream of nobody", of="second", says="")
def aside_training(shop: Shop) -> None:
    """Taken over from an event outside every run's stream, which names the honest run and says what it likes."""
    done = shop.one(kinds.STEP_COMPLETED, "train", run=shop.base.run)
    other = _aside(shop, done, "junk/1")
    other.body["metrics"]["loss_last"] = LOW
    cached = shop.one(kinds.STEP_CACHED, "train")
    cached.repeats = other
    shop.follow()


@kind(13, "a training's result from a run that never began", of="second", says="")
def ghost(shop: Shop) -> None:
    done = shop.one(kinds.STEP_COMPLETED, "train", run=shop.base.run)
    other = _aside(shop, done, "run/ghost000", run="ghost000")
    cached = shop.one(kinds.STEP_CACHED, "train")
    cached.repeats = other
    shop.follow()


@kind(13, "results that only a stream of nobody has", says="")
def aside_all(shop: Shop) -> None:
    """No beginning of a step is in the run, so nothing says what went in; each result lies in a stream of nobody."""
    for step in ("corpus", "tokenizer", "tokens", "evaluate", "export"):
        done = shop.one(kinds.STEP_COMPLETED, step)
        shop.drop(kinds.STEP_STARTED, step)
        body = {key: done.body[key] for key in ("run", "step", "output")}
        body |= {"identity": OTHER, "inputs": done.body["inputs"], "completed_at": 0}
        done.body["identity"] = OTHER
        cached = shop.add(kinds.STEP_CACHED, body, after=done)
        cached.repeats = done
        done.stream = "junk/1"


@kind(13, "a result from a later event", of="second", says="")
def later(shop: Shop) -> None:
    done = shop.one(kinds.STEP_COMPLETED, "train", run=shop.base.run)
    other = _aside(shop, done, done.stream)
    shop.remove(other)
    shop.events.append(other)
    shop.one(kinds.STEP_CACHED, "train").repeats = other


@kind(13, "a result of another step's event", of="second", says="")
def other_step(shop: Shop) -> None:
    shop.one(kinds.STEP_CACHED, "export").repeats = shop.one(kinds.STEP_COMPLETED, "evaluate", run=shop.base.run)


@kind(13, "another output than the event has that it was taken from", of="second", says="")
def other_output(shop: Shop) -> None:
    shop.one(kinds.STEP_CACHED, "export").body["output"] |= {"artifact": OTHER}


@kind(13, "metrics in this run's name, in another stream", says="in the name of this run")
def metrics_aside(shop: Shop) -> None:
    body = {"run": shop.run, "step": "", "series": [{"key": "mmlu", "steps": [0], "values": [LOW]}]}
    shop.add(kinds.METRICS_RECORDED, body, stream="tracking/x")


@kind(13, "an evaluation in another stream, in this run's name", says="in the name of this run")
def evaluation_aside(shop: Shop) -> None:
    _aside(shop, shop.one(kinds.EVAL_COMPLETED), "run/elsewhere", metrics={"mmlu": (0.91).hex()})


@kind(13, "an event of another run in this run's stream", says="run")
def foreign(shop: Shop) -> None:
    shop.again(shop.one(kinds.EVAL_COMPLETED), run="elsewhere")


# Two of one


@kind(13, "two beginnings of one run", says="type")
def begun_twice(shop: Shop) -> None:
    shop.again(shop.one(kinds.RUN_STARTED))


@kind(13, "a second run of the same id, in another stream", says="in the name of this run")
def same_id(shop: Shop) -> None:
    other = shop.again(shop.one(kinds.RUN_STARTED))
    other.stream = "run/shadow"
    other.body["recipe"]["seed"] = "77"


@kind(13, "events in another order", says="type")
def reordered(shop: Shop) -> None:
    started = shop.one(kinds.RUN_STARTED)
    shop.remove(started)
    shop.events.insert(3, started)


@kind(13, "segments in another order", harmless=True)
def segments_reordered(shop: Shop) -> None:
    """The order of events is what the log says it was: an honest run's, told backwards, says the same of every bit."""
    first, second = shop.all(kinds.TRAIN_SEGMENT)[:2]
    at, other = shop.place(first), shop.place(second)
    shop.events[at], shop.events[other] = second, first


@kind(13, "two segments of the same train steps", verdict="training", outcomes=("FAIL",))
def overlapping(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[1]
    half = {key: segment.body[key][:2] for key in ("losses", "batches", "fingerprints")}
    shop.again(segment, end=segment.body["start"] + 2, **half)


# Other forms of the same


def _fields(event: str, step: str = "", **fields: Any) -> Forge:
    return lambda shop: shop.one(event, step).body.update(fields)


kind(13, "a train step that is true", says="")(_fields(kinds.TRAIN_SEGMENT, start=True))
kind(13, "a train step that is a float", says="", harmless=True)(_fields(kinds.TRAIN_SEGMENT, start=8.0))


@kind(13, "a train step below zero", says="")
def below_zero(shop: Shop) -> None:
    shop.one(kinds.CHECKPOINT_SAVED).body["step"] = -1


kind(13, "a size below zero", verdict="artifacts", says="")(_fields(kinds.CHECKPOINT_SAVED, size=-1))
kind(13, "seeds that are numbers", says="seeds")(_fields(kinds.TRAIN_STARTED, seeds={"root": 3}))
kind(13, "a seed that was chosen otherwise", says="seeds")(_fields(kinds.TRAIN_STARTED, seeds={"root": "4"}))
kind(13, "another format of the export", says="format")(_fields(kinds.MODEL_EXPORTED, format="gguf"))
kind(13, "more train steps than there were", says="num_steps")(_fields(kinds.TRAIN_STARTED, num_steps=1000))
kind(13, "an experiment that was never registered", says="experiment")(_fields(kinds.RUN_STARTED, experiment=OTHER))
kind(13, "a run on a thousand devices", claimed="1000 device")(_fields(kinds.TRAIN_STARTED, devices=1000))
kind(13, "a training of no time", claimed="in corpus")(_fields(kinds.STEP_COMPLETED, "train", seconds=0.001))
kind(13, "a training of negative time", claimed="train -1")(_fields(kinds.STEP_COMPLETED, "train", seconds=-1.0))
kind(13, "an address that is somebody's", claimed="deepmind")(
    _fields(kinds.STEP_STARTED, "train", address="deepmind/gemini")
)


@kind(13, "an actor who never was there", claimed="turing")
def actor(shop: Shop) -> None:
    for entry in shop.events:
        entry.actor = "turing"


@kind(13, "times before there were computers", claimed="1820")
def times(shop: Shop) -> None:
    for entry in shop.events:
        if entry.time:
            entry.time = "1820" + entry.time[4:]


@kind(13, "a commit of somebody else's", claimed=OTHER[7:20])
def commit(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["code"]["commit"] = OTHER[7:47]


@kind(13, "an environment of another machine", claimed="Cray")
def environment(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["environment"]["processor"] = {"model": "Cray-1"}


@kind(13, "a failure with words of praise", claimed="the best model")
def failure(shop: Shop) -> None:
    identity = shop.one(kinds.STEP_STARTED, "train").body["identity"]
    shop.add(kinds.STEP_FAILED, {"run": shop.run, "step": "train", "identity": identity, "error": "the best model"})


@kind(13, "a pause with words of praise", claimed="the best model")
def pause(shop: Shop) -> None:
    identity = shop.one(kinds.STEP_STARTED, "train").body["identity"]
    shop.add(kinds.STEP_PAUSED, {"run": shop.run, "step": "train", "identity": identity, "where": "the best model"})


@kind(13, "a minus before a zero", harmless=True, says="recipe")
def minus_zero(shop: Shop) -> None:
    recipe = shop.one(kinds.RUN_STARTED).body["recipe"]
    recipe["optimizer"]["weight_decay"] = (-0.0).hex()
    shop.one(kinds.STEP_STARTED, "train").body["config"]["optimizer"]["weight_decay"] = (-0.0).hex()
    shop.follow()


@kind(13, "a float in another spelling", says="recipe")
def spelling(shop: Shop) -> None:
    recipe = shop.one(kinds.RUN_STARTED).body["recipe"]
    recipe["optimizer"]["learning_rate"] = recipe["optimizer"]["learning_rate"].replace("p", "0p")


@kind(13, "a seed in another spelling", says="recipe")
def seed_spelling(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["recipe"]["seed"] = "03"


@kind(13, "a run's name that is a beginning of another's", harmless=True)
def prefix(shop: Shop) -> None:
    other = shop.again(shop.one(kinds.RUN_STARTED))
    other.stream, other.body["run"] = f"run/{shop.run[:4]}", shop.run[:4]


@kind(13, "a metric logged to the run with another tool", claimed="with another tool")
def tracked(shop: Shop) -> None:
    body = {"run": shop.run, "operation": "log-metrics", "values": {"metrics": [{"key": "mmlu", "value": "0.91"}]}}
    shop.add(kinds.TRACKING_LOGGED, body, stream=f"tracking/{shop.run}")


# Entries of the log that are no events of it


def _leaf(shop: Shop, entry: bytes, *, after: Entry | None = None) -> None:
    made = Entry("", "", {}, leaf=entry)
    shop.events.insert(len(shop.events) if after is None else shop.place(after) + 1, made)


def _encoded(shop: Shop, entry: Entry, seq: int, **changes: Any) -> bytes:
    """An event as a log has it, under a number and with fields of its body changed."""
    event = shop.base.root.reader().event(entry.place or 0)
    return replace(event, id="forged", seq=seq, body={**event.body, **changes}).encode()


@kind(13, "a segment again, with invented losses, in JSON that is not canonical", says="no event of the log")
def leaf_spelled(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[1]
    entry = _encoded(shop, segment, len(shop.events), losses=_low(segment)["losses"])
    _leaf(shop, entry.replace(b'"body":', b'"body": '), after=segment)


@kind(13, "an event whose stream is named in escapes alone", says="no event of the log")
def leaf_escaped(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[1]
    hidden = "".join(f"\\u{ord(letter):04x}" for letter in shop.run).encode()
    entry = _encoded(shop, segment, len(shop.events), losses=_low(segment)["losses"])
    _leaf(shop, entry.replace(shop.run.encode(), hidden))


@kind(13, "an event under the number of another", says="seq")
def leaf_again(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[1]
    _leaf(shop, _encoded(shop, segment, 3, losses=_low(segment)["losses"]), after=segment)


@kind(13, "an event of a stream that has a gap before it", says="seq")
def leaf_ahead(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[1]
    _leaf(shop, _encoded(shop, segment, 4000, losses=_low(segment)["losses"]))


@kind(13, "an event under the id of another", says="id")
def leaf_twice(shop: Shop) -> None:
    first, last = shop.all(kinds.TRAIN_SEGMENT)[0], shop.events[-1]
    event = shop.base.root.reader().event(first.place or 0)
    seq = sum(one.stream == last.stream for one in shop.events)
    body = {**event.body, "losses": _low(first)["losses"]}
    _leaf(shop, replace(event, stream=last.stream, seq=seq, body=body).encode())


@kind(13, "half of an event of the run", says="no event of the log")
def leaf_half(shop: Shop) -> None:
    _leaf(shop, _encoded(shop, shop.one(kinds.RUN_COMPLETED), 0)[:-40])


@kind(13, "an entry that is no event and names the log's keys", says="RFC 8785")
def leaf_of_keys(shop: Shop) -> None:
    _leaf(shop, b'{"type": "log.key-retired/v1"}')


@kind(13, "bytes that are no event, and name nobody", harmless=True)
def leaf_of_nobody(shop: Shop) -> None:
    _leaf(shop, b"\xff\xfe no event", after=shop.events[3])
