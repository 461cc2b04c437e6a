"""Class 2: the run decides what is judged of it. Class 3: partial is told as whole."""

from __future__ import annotations

import copy
from typing import Any

from marin.record import events as kinds
from marin.verify.segments.sampling import Scope
from tests.adversary.forgeries.registry import Forge, kind
from tests.adversary.forgeries.stranger import Asked
from tests.adversary.forgeries.workshop import OTHER, Shop

MMLU = (0.91).hex()


@kind(0, "an honest run", honest=True)
def honest(shop: Shop) -> None:
    """Signed again as it is."""


@kind(0, "an honest root, copied", by="publisher", honest=True)
def copied(shop: Shop) -> None:
    """As it is."""


@kind(0, "an honest root after a visit", by="publisher", honest=True, asked=Asked(before=True))
def visited(shop: Shop) -> None:
    """As it was."""


@kind(0, "an honest run, by two workers", honest=True, asked=Asked(workers=2))
def honest_by_workers(shop: Shop) -> None:
    """The same."""


@kind(0, "an honest run that took results over", of="second", honest=True)
def honest_second(shop: Shop) -> None:
    """The same."""


@kind(0, "an honest phase", of="phase", honest=True)
def honest_phase(shop: Shop) -> None:
    """The same."""


@kind(0, "an honest phase, by two workers", of="phase", honest=True, asked=Asked(workers=2))
def honest_phase_by_workers(shop: Shop) -> None:
    """The same."""


# Steps left out, and steps that nothing has


def _leave(shop: Shop, *steps: str) -> None:
    """As if the plan had never had them."""
    for step in steps:
        shop.drop(kinds.STEP_STARTED, step)
        shop.drop(kinds.STEP_COMPLETED, step)
        shop.one(kinds.RUN_STARTED).body["code"]["steps"].pop(step, None)
    if "evaluate" in steps:
        shop.drop(kinds.EVAL_COMPLETED)
    if "export" in steps:
        shop.drop(kinds.MODEL_EXPORTED)


@kind(2, "evaluation and export left out", verdict="model", outcomes=("NOT_RUN",))
def no_model(shop: Shop) -> None:
    _leave(shop, "evaluate", "export")
    shop.follow()


@kind(2, "training left out", verdict="training", outcomes=("NOT_RUN", "UNAVAILABLE"))
def no_training(shop: Shop) -> None:
    _leave(shop, "train", "evaluate", "export")
    for name in (kinds.TRAIN_STARTED, kinds.TRAIN_SEGMENT, kinds.CHECKPOINT_SAVED, kinds.METRICS_RECORDED):
        shop.drop(name)
    for name in (kinds.EVAL_COMPLETED, kinds.MODEL_EXPORTED):
        shop.drop(name)
    shop.follow()


@kind(2, "the corpus left out", verdict="data", outcomes=("UNAVAILABLE", "FAIL"))
def no_corpus(shop: Shop) -> None:
    _leave(shop, "corpus")
    for step in ("tokenizer", "tokens", "evaluate"):
        shop.one(kinds.STEP_STARTED, step).body["inputs"].pop("corpus", None)
    shop.follow()


@kind(2, "evaluation alone left out, its number kept", says="evaluate")
def number_without_step(shop: Shop) -> None:
    shop.drop(kinds.STEP_STARTED, "evaluate")
    shop.drop(kinds.STEP_COMPLETED, "evaluate")
    shop.one(kinds.RUN_STARTED).body["code"]["steps"].pop("evaluate")
    shop.follow()
    shop.one(kinds.EVAL_COMPLETED).body["metrics"] = {"mmlu": MMLU}


@kind(2, "the export's step left out, its event kept", says="which has no end")
def export_without_step(shop: Shop) -> None:
    shop.drop(kinds.STEP_STARTED, "export")
    shop.drop(kinds.STEP_COMPLETED, "export")
    shop.one(kinds.RUN_STARTED).body["code"]["steps"].pop("export")
    shop.follow()
    shop.one(kinds.MODEL_EXPORTED).body["output"] = dict(shop.output("tokenizer"))


@kind(2, "a step align with mmlu 0.91", says="a step align")
def align(shop: Shop) -> None:
    started, done = shop.one(kinds.STEP_STARTED, "export"), shop.one(kinds.STEP_COMPLETED, "export")
    last = shop.one(kinds.STEP_COMPLETED, "export")
    begun = shop.add(kinds.STEP_STARTED, copy.deepcopy(started.body) | {"step": "align", "identity": OTHER}, after=last)
    shop.add(
        kinds.STEP_COMPLETED,
        copy.deepcopy(done.body) | {"step": "align", "identity": OTHER, "metrics": {"mmlu": MMLU}},
        after=begun,
    )
    steps = shop.one(kinds.RUN_STARTED).body["code"]["steps"]
    steps["align"] = steps["export"]
    shop.follow()


@kind(2, "a step in other letters of the same look", says="step")
def lookalike(shop: Shop) -> None:
    for entry in (*shop.all(kinds.STEP_STARTED, "evaluate"), *shop.all(kinds.STEP_COMPLETED, "evaluate")):
        shop.again(entry, step="\u0435valuate")
    shop.follow()


def _event(kind_of: str, **body: Any) -> Forge:
    def forge(shop: Shop) -> None:
        shop.add(kind_of, {"run": shop.run, **body})

    return forge


kind(2, "an event of an unknown type", says="benchmark.completed/v1")(_event("benchmark.completed/v1", mmlu=0.91))
kind(2, "an event of a later version", says="eval.completed/v2")(_event("eval.completed/v2", mmlu=MMLU))
kind(2, "a measurement mmlu", says="a measurement mmlu")(
    _event(kinds.METRICS_RECORDED, step="", series=[{"key": "mmlu", "steps": [0], "values": [MMLU]}])
)
kind(2, "a measurement train/loss", says="a measurement train/loss")(
    _event(kinds.METRICS_RECORDED, step="train", series=[{"key": "train/loss", "steps": [11], "values": [MMLU]}])
)
kind(2, "a benchmark among the machine's measurements", claimed="system/mmlu")(
    _event(kinds.METRICS_RECORDED, step="train", series=[{"key": "system/mmlu", "steps": [11], "values": [MMLU]}])
)


def _field(event: str, step: str = "", **fields: Any) -> Forge:
    return lambda shop: shop.one(event, step).body.update(fields)


kind(2, "a field more in the run's end", says="a field mmlu")(_field(kinds.RUN_COMPLETED, mmlu="0.91"))
kind(2, "a field more in a step's end", says="a field mmlu")(_field(kinds.STEP_COMPLETED, "evaluate", mmlu="0.91"))
kind(2, "a field more in a segment", says="a field mmlu")(_field(kinds.TRAIN_SEGMENT, mmlu="0.91"))


@kind(2, "a field more inside an output", says="mmlu")
def nested(shop: Shop) -> None:
    shop.output("export")["mmlu"] = "0.91"
    shop.follow()


@kind(2, "a field more inside a measurement", says="mmlu")
def nested_series(shop: Shop) -> None:
    shop.all(kinds.METRICS_RECORDED)[0].body["series"][0]["mmlu"] = "0.91"


@kind(2, "a metric more of the evaluation", verdict="model", says="metrics")
def metric_more(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "evaluate").body["metrics"]["mmlu"] = MMLU
    shop.follow()


@kind(2, "a better perplexity", verdict="model", says="metrics")
def perplexity(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "evaluate").body["metrics"]["perplexity"] = (1.01).hex()
    shop.follow()


@kind(2, "an accuracy of 1.01", verdict="model", says="metrics")
def impossible(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "evaluate").body["metrics"]["pairs_won"] = (1.01).hex()
    shop.follow()


@kind(2, "a metric that is no number", says="metrics")
def not_a_number(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "evaluate").body["metrics"]["perplexity"] = "nan"
    shop.follow()


@kind(2, "a metric beyond all floats")
def overflow(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "evaluate").body["metrics"]["perplexity"] = "0x1.0p+99999"
    shop.follow()


@kind(2, "a metric more of the export", verdict="model", says="metrics")
def metric_of_export(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "export").body["metrics"]["mmlu"] = MMLU
    shop.follow()


@kind(2, "a metric more of the corpus", verdict="data", says="metrics")
def metric_of_corpus(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "corpus").body["metrics"]["documents"] = MMLU
    shop.follow()


@kind(2, "a metric more of the training", says="metrics")
def metric_of_training(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "train").body["metrics"]["mmlu"] = MMLU
    shop.follow()


@kind(2, "a last loss that no segment has", says="metrics")
def last_loss(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "train").body["metrics"]["loss_last"] = (0.01).hex()
    shop.follow()


@kind(2, "evaluation of another model", says="model")
def other_model(shop: Shop) -> None:
    shop.one(kinds.EVAL_COMPLETED).body["model"] = OTHER


@kind(2, "an output more in the run's end", says="outputs")
def output_more(shop: Shop) -> None:
    ends = shop.one(kinds.RUN_COMPLETED).body
    ends["outputs"]["align"] = copy.deepcopy(ends["outputs"]["export"])


@kind(2, "a metric more in the run's end", says="metrics")
def metric_in_end(shop: Shop) -> None:
    shop.one(kinds.RUN_COMPLETED).body["metrics"]["evaluate.mmlu"] = MMLU


@kind(2, "no steps in the run's code, and another plan", says="plan")
def no_code_steps(shop: Shop) -> None:
    started = shop.one(kinds.RUN_STARTED).body
    del started["code"]["steps"]
    started["plan"] = OTHER


@kind(2, "another recipe in the beginning", verdict="ledger", says="recipe_digest")
def other_recipe(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["recipe"]["optimizer"]["learning_rate"] = (0.5).hex()


@kind(2, "another recipe, followed through", says="config")
def recipe_followed(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["recipe"]["optimizer"]["learning_rate"] = (0.5).hex()
    shop.follow()


@kind(2, "another recipe, in each step too", verdict="training", says="the state after the step differs")
def recipe_everywhere(shop: Shop) -> None:
    rate = (0.5).hex()
    shop.one(kinds.RUN_STARTED).body["recipe"]["optimizer"]["learning_rate"] = rate
    shop.one(kinds.STEP_STARTED, "train").body["config"]["optimizer"]["learning_rate"] = rate
    shop.follow()


@kind(2, "an evaluation on more text than there was", verdict="model", says="")
def more_sequences(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["recipe"]["evaluation"]["max_sequences"] = 9
    shop.one(kinds.STEP_STARTED, "evaluate").body["config"]["evaluation"]["max_sequences"] = 9
    shop.follow()


@kind(2, "a recipe that leaves its defaults out", says="recipe")
def recipe_of_defaults(shop: Shop) -> None:
    recipe = shop.one(kinds.RUN_STARTED).body["recipe"]
    del recipe["export"], recipe["tokens"]


@kind(2, "an evaluation that an experiment pinned", says="config")
def pinned_evaluation(shop: Shop) -> None:
    """The plan's name says that the step was pinned, so its configuration is not compared with the recipe."""
    done = shop.one(kinds.STEP_COMPLETED, "evaluate")
    shop.one(kinds.STEP_STARTED, "evaluate").body["config"]["evaluation"]["max_sequences"] = 1_000_000
    shop.follow()
    body = {key: done.body[key] for key in ("run", "step", "identity", "inputs", "output")}
    shop.add(kinds.STEP_CACHED, body | {"completed_at": 0}, after=done).repeats = done
    started = shop.one(kinds.RUN_STARTED).body
    started["pipeline"] = f"default.pinned-{done.body['output']['digest'][-8:]}"
    shop.follow()


@kind(2, "a corpus that an experiment pinned", verdict="data", outcomes=("UNAVAILABLE", "FAIL"))
def pinned_corpus(shop: Shop) -> None:
    done = shop.one(kinds.STEP_COMPLETED, "corpus")
    body = {key: done.body[key] for key in ("run", "step", "identity", "inputs", "output")}
    shop.add(kinds.STEP_CACHED, body | {"completed_at": 0}, after=done).repeats = done
    shop.one(kinds.RUN_STARTED).body["pipeline"] = f"default.pinned-{done.body['output']['digest'][-8:]}"
    shop.follow()


# Partial


def _broken_end(shop: Shop) -> None:
    """A loss of the last segment, which a part of the replay does not reach."""
    losses = shop.all(kinds.TRAIN_SEGMENT)[-1].body["losses"]
    losses[-1] = (float.fromhex(losses[-1]) / 2).hex()
    for entry in shop.all(kinds.METRICS_RECORDED):
        shop.remove(entry)
    shop.one(kinds.STEP_COMPLETED, "train").body["metrics"]["loss_last"] = losses[-1]
    text = "step,loss\n" + "".join(
        f"{step},{float.fromhex(loss)!r}\n"
        for step, loss in enumerate(loss for s in shop.all(kinds.TRAIN_SEGMENT) for loss in s.body["losses"])
    )
    shop.one(kinds.STEP_COMPLETED, "train").body["tables"]["loss"] = shop.store.put_bytes(text.encode()).digest
    shop.follow()


def _partial(name: str, outcome: str, asked: Asked) -> None:
    kind(3, name, verdict="training", outcomes=(outcome,), asked=asked)(_broken_end)


_partial("a forged end, the first segment asked for", "PARTIAL", Asked(scope=Scope(steps=(0, 1))))
_partial("a forged end, a sample of one", "PARTIAL", Asked(scope=Scope(sample=1)))
_partial("a forged end, segments since the end of the log", "NOT_RUN", Asked(since="999999"))
_partial("a forged end, all of it", "FAIL", Asked())
_partial("a forged end, by two workers", "FAIL", Asked(workers=2))
_partial("a forged end, since yesterday", "FAIL", Asked(since="2020-01-01T00:00:00Z"))


@kind(
    3,
    "the operator's verdict, then --since last",
    verdict="training",
    outcomes=("FAIL", "NOT_RUN", "PARTIAL"),
    asked=Asked(since="last"),
)
def since_last(shop: Shop) -> None:
    _broken_end(shop)
    verdicts = dict.fromkeys(("ledger", "artifacts", "data", "training", "model"), "PASS")
    body = {"run": shop.run, "verdicts": verdicts, "training": {"mode": "full"}, "first_divergence": None}
    shop.add(kinds.REPLAY_COMPLETED, body | {"log_checkpoint": {"size": 10**6}, "details": {}, "environment": {}})


@kind(3, "the operator's verdict event", claimed="verified once")
def own_verdict(shop: Shop) -> None:
    verdicts = dict.fromkeys(("ledger", "artifacts", "data", "training", "model"), "PASS")
    body = {"run": shop.run, "verdicts": verdicts, "training": {"mode": "full"}, "first_divergence": None}
    shop.add(kinds.REPLAY_COMPLETED, body | {"log_checkpoint": {"size": 1}, "details": {}, "environment": {}})


@kind(3, "the operator's proofs of segments", verdict="training", outcomes=("FAIL",))
def own_proofs(shop: Shop) -> None:
    _broken_end(shop)
    from ledger import canonical_digest
    from marin.history.runs import load, replay_stream
    from marin.verify.earlier import conditions

    run = load(shop.base.root.history(), shop.run)
    for segment in shop.all(kinds.TRAIN_SEGMENT):
        body = {key: segment.body[key] for key in ("run", "start", "end")}
        body |= {"segment": canonical_digest(segment.body), "conditions": conditions(run)}
        shop.add(kinds.REPLAY_SEGMENT, body, stream=replay_stream(shop.run))
