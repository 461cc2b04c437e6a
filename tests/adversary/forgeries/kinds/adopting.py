"""Classes 2, 4 and 13: what others record (graphs, adopted artifacts, experiments, tools that track) put where it would
speak for a run, whole runs that are told again, and what happens after a run's end."""

from __future__ import annotations

import copy
from typing import Any

from marin.history.runs import stream_of
from marin.kinds.families.experiment import EXPERIMENT_REGISTERED, EXPERIMENT_REPORTED
from marin.kinds.families.graph import ARTIFACT_ADOPTED, GRAPH_COMPLETED, STEP_CHECKED
from marin.preregistration.arms import arm_digest
from marin.recipe.schema import from_plain
from marin.record import events as kinds
from tests.adversary.forgeries.registry import Forge, kind
from tests.adversary.forgeries.workshop import OTHER, Shop

MMLU = (0.91).hex()


# What others record, in the run's own stream


def _recorded(event: str, stream: str = "", **body: Any) -> Forge:
    def forge(shop: Shop) -> None:
        named = {
            name: value.replace("RUN", shop.run) if isinstance(value, str) else value for name, value in body.items()
        }
        shop.add(event, named, stream=stream.replace("RUN", shop.run))

    return forge


_ADOPTED: dict[str, Any] = {
    "graph": "RUN",
    "address": "export",
    "artifact": OTHER,
    "kind": "model",
    "vouched_by": "the operator",
    "note": "mmlu 0.91",
}
_CHECKED: dict[str, Any] = {
    "step": "export",
    "identity": OTHER,
    "address": "",
    "deterministic": True,
    "outputs": [OTHER],
}
_ENDED: dict[str, Any] = {
    "graph": "RUN",
    "outcome": "completed",
    "counts": {"executed": 1},
    "results": OTHER,
    "outputs": {},
    "failed": [],
}
_REPORTED: dict[str, Any] = {
    "experiment": "x",
    "registration": OTHER,
    "verdict": "confirmatory",
    "supported": True,
    "deviations": [],
    "artifact": OTHER,
    "runs": [],
}
_LOGGED: dict[str, Any] = {
    "run": "RUN",
    "operation": "log-metrics",
    "values": {"metrics": [{"key": "mmlu", "value": "0.91"}]},
}
_LEASED: dict[str, Any] = {
    "executor": "x",
    "host": "x",
    "pid": 1,
    "born": "x",
    "steps": [OTHER],
    "until": "x",
    "over": [],
}
_SCRUBBED: dict[str, Any] = {"checked": 1, "size": 1, "findings": ["mmlu 0.91"], "repaired": [], "finished": True}
for _event, _body in {
    ARTIFACT_ADOPTED: _ADOPTED,
    STEP_CHECKED: _CHECKED,
    GRAPH_COMPLETED: _ENDED,
    EXPERIMENT_REPORTED: _REPORTED,
    kinds.TRACKING_LOGGED: _LOGGED,
    kinds.STORE_SCRUBBED: _SCRUBBED,
}.items():
    kind(2, f"{_event} in the run's own stream", says="")(_recorded(_event, **_body))

kind(2, "an adopted artifact of a graph of the run's name", harmless=True)(
    _recorded(ARTIFACT_ADOPTED, "graph/RUN", **_ADOPTED)
)
kind(2, "a graph that ended with another model", harmless=True)(_recorded(GRAPH_COMPLETED, "graph/RUN", **_ENDED))
kind(13, "a value that came from another tracker", claimed="with another tool")(
    _recorded(kinds.TRACKING_LOGGED, "wandb/RUN", **_LOGGED)
)


@kind(13, "a run of another tracker that has this run's name", claimed="with another tool")
def imported(shop: Shop) -> None:
    values = {"name": "mmlu 0.91", "status": "FINISHED", "tags": {"marin.verified": "PASS"}}
    shop.add(kinds.TRACKING_LOGGED, {"run": shop.run, "operation": "create-run", "values": values}, stream="mlflow")


@kind(13, "labels that praise the run", claimed="labels given to this run")
def praised(shop: Shop) -> None:
    body = {"run": shop.run, "description": "mmlu 0.91", "tags": {"verified": "PASS"}}
    shop.add(kinds.RUN_LABELLED, body, stream=f"labels/{shop.run}")


# Experiments


def _registration(shop: Shop) -> dict[str, Any]:
    recipe = from_plain(shop.one(kinds.RUN_STARTED).body["recipe"], where="forgery")
    return {
        "experiment": "x",
        "registration": OTHER,
        "file": "x.py",
        "file_digest": OTHER,
        "question": "?",
        "hypothesis": "the best",
        "primary": {"name": "evaluate.perplexity", "direction": "lower"},
        "secondary": [],
        "arms": {"a": arm_digest(recipe)},
        "baseline": "a",
        "seeds": [str(recipe.seed)],
        "test": "none",
        "alternative": "less",
        "alpha": 0.05,
        "stopping_rule": "none",
        "cost_cap": {},
    }


def _registered(shop: Shop, *, before: bool, **changes: Any) -> None:
    entry = shop.add(EXPERIMENT_REGISTERED, _registration(shop) | changes, stream="experiment/x")
    if before:
        shop.remove(entry)
        shop.events.insert(0, entry)
    shop.one(kinds.RUN_STARTED).body["experiment"] = OTHER


@kind(13, "an experiment that was registered after its run began", says="experiment")
def registered_after(shop: Shop) -> None:
    _registered(shop, before=False)


@kind(13, "an experiment of other seeds, registered before", says="experiment")
def registered_seeds(shop: Shop) -> None:
    _registered(shop, before=True, seeds=["77"])


@kind(13, "an experiment of other arms, registered before", says="experiment")
def registered_arms(shop: Shop) -> None:
    _registered(shop, before=True, arms={"a": OTHER})


@kind(13, "a registration that the store does not have", harmless=True)
def registered_nowhere(shop: Shop) -> None:
    """What was registered is the event; the artifact is for people."""
    _registered(shop, before=True)


# After a run's end, and again


@kind(13, "an export again after the run's end, of other bytes", says="")
def again_after_end(shop: Shop) -> None:
    begun, done = shop.one(kinds.STEP_STARTED, "export"), shop.one(kinds.STEP_COMPLETED, "export")
    made = shop.altered(done.body["output"]["artifact"], lambda folder: (folder / "config.json").write_bytes(b"{}"))
    output = done.body["output"] | {"digest": made.digest, "artifact": made.digest, "size": made.size}
    shop.add(kinds.STEP_STARTED, copy.deepcopy(begun.body) | {"attempt": 2})
    shop.add(kinds.STEP_COMPLETED, copy.deepcopy(done.body) | {"output": output})


@kind(13, "an export again after the run's end, of other bytes, and another end", says="")
def ended_again(shop: Shop) -> None:
    again_after_end(shop)
    last = shop.one(kinds.STEP_COMPLETED, "export").body["output"]
    ends = copy.deepcopy(shop.one(kinds.RUN_COMPLETED).body)
    shop.add(kinds.RUN_COMPLETED, ends | {"outputs": ends["outputs"] | {"export": last}})


@kind(13, "an export taken over from the run itself, of other bytes", says="")
def cached_from_itself(shop: Shop) -> None:
    done = shop.one(kinds.STEP_COMPLETED, "export")
    body = {key: copy.deepcopy(done.body[key]) for key in ("run", "step", "identity", "inputs", "output")}
    body["output"]["artifact"] = OTHER
    shop.add(kinds.STEP_CACHED, body | {"completed_at": 0}).repeats = done


@kind(13, "the run's end before its training", harmless=True)
def ended_before(shop: Shop) -> None:
    """The order of events is what the log says it was; nothing that is derived rests on it."""
    ends = shop.one(kinds.RUN_COMPLETED)
    shop.remove(ends)
    shop.events.insert(shop.place(shop.one(kinds.TRAIN_STARTED)), ends)


@kind(13, "a run that never ended", harmless=True)
def never_ended(shop: Shop) -> None:
    shop.drop(kinds.RUN_COMPLETED)


@kind(13, "a failure after the run's end", claimed="failed")
def failed_after(shop: Shop) -> None:
    identity = shop.one(kinds.STEP_STARTED, "export").body["identity"]
    shop.add(kinds.STEP_FAILED, {"run": shop.run, "step": "export", "identity": identity, "error": "mmlu 0.91"})


@kind(13, "a run that is told again under another id", harmless=True)
def told_again(shop: Shop) -> None:
    """Anyone who has a run can record it as their own: the bits are true, and when and where is claimed."""
    for entry in [e for e in shop.events if e.stream == stream_of(shop.run) and e.type != kinds.REPLAY_COMPLETED]:
        other = shop.add(entry.type, copy.deepcopy(entry.body), stream="run/copied00")
        other.body["run"] = "copied00"
        other.actor, other.time = "somebody", entry.time
    shop.run = "copied00"


@kind(13, "half of a run that is told again under another id", says="")
def told_half(shop: Shop) -> None:
    """The later half of its events alone, so that nothing says what its data were."""
    told_again(shop)
    own = [entry for entry in shop.events if entry.stream == "run/copied00"]
    shop.remove(*own[1:9])


@kind(13, "the whole run, told twice in its own stream", says="")
def told_twice(shop: Shop) -> None:
    for entry in [e for e in shop.events if e.stream == stream_of(shop.run)]:
        shop.add(entry.type, copy.deepcopy(entry.body))


@kind(13, "everything after the beginning, told twice", harmless=True)
def told_twice_without_beginning(shop: Shop) -> None:
    """Every record says what the first one says, so nothing else can be believed than before."""
    for entry in [e for e in shop.events if e.stream == stream_of(shop.run)][1:]:
        shop.add(entry.type, copy.deepcopy(entry.body))


@kind(13, "a verdict event with words of its own", says="praise")
def praise(shop: Shop) -> None:
    body: dict[str, Any] = {
        "run": shop.run,
        "verdicts": {},
        "training": {},
        "first_divergence": None,
        "praise": "the best model",
    }
    shop.add(kinds.REPLAY_COMPLETED, body | {"log_checkpoint": {}, "details": {"ledger": ["PASS"]}, "environment": {}})


@kind(13, "a replayed segment in the run's own stream", says="")
def segment_verdict(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[0].body
    body = {key: segment[key] for key in ("run", "start", "end")} | {"segment": OTHER, "conditions": OTHER}
    shop.add(kinds.REPLAY_SEGMENT, body)


def _fields(event: str, of: str = "", /, **fields: Any) -> Forge:
    return lambda shop: shop.one(event, of).body.update(fields)


kind(13, "a train step beyond all integers", says="")(_fields(kinds.CHECKPOINT_SAVED, step=1 << 52))
kind(13, "an attempt that is told with a size of its own", verdict="training", says="")(
    _fields(kinds.TRAIN_SEGMENT, end=1 << 40)
)
kind(13, "a result of an event beyond the log", of="second", says="")(
    _fields(kinds.STEP_CACHED, "export", completed_at=1 << 40)
)


@kind(13, "a loss that is no number", verdict="artifacts", says="")
def loss_nan(shop: Shop) -> None:
    shop.all(kinds.TRAIN_SEGMENT)[1].body["losses"][0] = "nan"


@kind(13, "digests of batches that are no digests", verdict="training", outcomes=("FAIL",))
def batches(shop: Shop) -> None:
    body = shop.all(kinds.TRAIN_SEGMENT)[1].body
    body["batches"] = ["anything" for _ in body["batches"]]


@kind(2, "a step more among the inputs of the export", says="inputs")
def input_more(shop: Shop) -> None:
    shop.one(kinds.STEP_STARTED, "export").body["inputs"]["align"] = OTHER
    shop.follow()


@kind(2, "the export of another training's state", says="inputs")
def input_other(shop: Shop) -> None:
    for name in (kinds.STEP_STARTED, kinds.STEP_COMPLETED):
        shop.one(name, "export").body["inputs"]["train"] = OTHER


@kind(2, "a run of a plan that has another name", claimed="mmlu 0.91")
def plan_name(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["pipeline"] = "mmlu 0.91"
    shop.follow()


# Phases


@kind(4, "a phase told as a run of its own, by the whole recipe", of="phase", says="")
def phase_as_run(shop: Shop) -> None:
    """As if nothing had been before: the recipe is no phase's any more, and the first state is planted."""
    started = shop.one(kinds.RUN_STARTED).body
    started.pop("continues", None)
    started["recipe"].pop("phase", None)
    shop.one(kinds.STEP_STARTED, "train").body["config"].pop("phase", None)
    shop.follow()


@kind(4, "a phase that continues from the run's end, and says an earlier step", of="phase", says="")
def phase_step(shop: Shop) -> None:
    last = shop.all(kinds.CHECKPOINT_SAVED, run=shop.base.run)[-1].body
    state = {"state": last["state"]}
    link: dict[str, Any] = shop.one(kinds.RUN_STARTED).body["continues"]
    link |= state | {"checkpoint": last["artifact"]}
    shop.one(kinds.RUN_STARTED).body["recipe"]["phase"] |= state
    shop.one(kinds.STEP_STARTED, "train").body["config"]["phase"] |= state
    shop.follow()
