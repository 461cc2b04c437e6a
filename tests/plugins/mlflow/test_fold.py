"""The fold alone: events in, intents out, no MLflow."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import validate_param_and_metric_name

from marin.history.projection.text import LOSS, TOKENS, flatten, key_of, single_keys, text, tokens_of_step
from marin.kinds.families.experiment import (
    EXPERIMENT_REGISTERED,
    EXPERIMENT_REPORTED,
    ExperimentRegistered,
    ExperimentReported,
)
from marin.kinds.families.graph import GRAPH_COMPLETED, GRAPH_STARTED, GraphCompleted, GraphStarted
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.folding.intents import (
    AliasGone,
    AliasSet,
    DataUsed,
    ExperimentTags,
    Intent,
    ModelLogged,
    ModelRegistered,
    OpenExperiment,
    OpenRun,
    Params,
    Points,
    Shelve,
    Status,
    Tags,
)
from marin.record import events as types
from marin.record.verdicts import NAMES, overall
from marin.reporting.runs.report import run_record

from .story import (
    ORIGIN,
    STEPS,
    Log,
    begin_step,
    complete_step,
    digest,
    loss,
    output,
    replay,
    segment,
    start,
    whole_run,
)


def folded(log: Log) -> tuple[Fold, list[Intent]]:
    fold = Fold(ORIGIN, own=log)
    return fold, list(fold.apply_all(log.events()))


def tags_of(intents: list[Intent], run: str) -> dict[str, str]:
    return {
        key: value
        for item in intents
        if isinstance(item, Tags) and item.run == run
        for key, value in item.values.items()
    }


def points_of(intents: list[Intent], run: str, key: str) -> list[tuple[int, float]]:
    return [
        point
        for item in intents
        if isinstance(item, Points) and (item.run, item.key) == (run, key)
        for point in item.points
    ]


def status_of(intents: list[Intent], run: str) -> str:
    return [item.status for item in intents if isinstance(item, Status) and item.run == run][-1]


def test_a_run_becomes_a_run_with_a_nested_run_per_step():
    log = Log()
    whole_run(log, "abcd2345")
    fold, intents = folded(log)
    opened = {item.run: item for item in intents if isinstance(item, OpenRun)}
    parent = fold.ids.run("abcd2345")
    assert opened[parent].parent is None
    assert [item.name for item in opened.values() if item.parent == parent] == list(STEPS)
    assert all(status_of(intents, run) == "FINISHED" for run in opened)


def test_the_curve_has_every_train_step_once_with_the_exact_loss():
    log = Log()
    whole_run(log, "abcd2345", steps=100)
    fold, intents = folded(log)
    parent = fold.ids.run("abcd2345")
    assert points_of(intents, parent, LOSS) == [(step, loss(step)) for step in range(100)]
    assert points_of(intents, parent, TOKENS)[-1] == (99, 100 * 16 * 128)
    assert points_of(intents, parent, "evaluate.loss") == [(100, 2.25)]


def test_a_segment_that_is_recorded_again_adds_nothing_and_a_different_one_is_told():
    log = Log()
    start(log, "abcd2345")
    begin_step(log, "abcd2345", "train")
    segment(log, "abcd2345", 0, 30)
    segment(log, "abcd2345", 0, 60)
    fold, intents = folded(log)
    parent = fold.ids.run("abcd2345")
    assert points_of(intents, parent, LOSS) == [(step, loss(step)) for step in range(60)]
    assert "marin.disagreement" not in tags_of(intents, parent)
    forged = {**log.entries[2].body, "losses": [(9.0).hex()] * 30}
    again = fold.apply(len(log.entries), replace(log.entries[2], body=forged))
    assert "train step 0 " in tags_of(again, parent)["marin.disagreement"]


def test_two_names_stay_two():
    """MLflow takes the letters of every script, and these names as they are."""
    taken = ["准确率", "召回率", "val/é", "val/ü", "a b", "a:b", "x-1.5_y"]
    assert all(map(validate_param_and_metric_name, taken))
    assert [key_of(name) for name in taken] == taken
    assert (key_of("acc@1"), key_of("acc#1")) == ("acc_x40_1", "acc_x23_1")
    assert single_keys(["x.y", "x/y", "a/b"]) == {"x.y": "x.y", "x/y": "x_x2f_y", "a/b": "a.b"}


def test_params_are_the_flattened_recipe_with_floats_that_people_can_read():
    log = Log()
    start(log, "abcd2345")
    _, intents = folded(log)
    params = next(item for item in intents if isinstance(item, Params)).values
    assert params == {
        "seed": "0",
        "dataset.kind": "grammar",
        "dataset.name": "grammar",
        "model.architecture": "llama",
        "model.num_layers": "4",
        "model.hidden_dim": "128",
        "model.seq_len": "128",
        "model.layers": "[1, 2]",
        "trainer.batch_size": "16",
        "optimizer.learning_rate": "0.003",
    }


def test_tags_say_what_where_and_whether_verified():
    log = Log()
    whole_run(log, "abcd2345")
    fold, intents = folded(log)
    tags = tags_of(intents, fold.ids.run("abcd2345"))
    assert tags["marin.run"] == "abcd2345"
    assert tags["marin.recipe"] == digest("recipe")[7:19]
    assert tags["marin.verified"] == "never"
    replay(log, "abcd2345")
    fold, intents = folded(log)
    tags = tags_of(intents, fold.ids.run("abcd2345"))
    assert tags["marin.verified"] == f"PASS {log.entries[-1].time[:10]}"
    assert (tags["marin.verdict.training"], tags["marin.verified.by"]) == ("PASS", "bob")


def test_what_decides_and_identifies_is_in_the_record_and_not_in_tags():
    """A page of tags is read by somebody: none is a whole digest, and the record has every one of them."""
    log = Log()
    whole_run(log, "abcd2345")
    replay(log, "abcd2345")
    fold, intents = folded(log)
    of_run = tags_of(intents, fold.ids.run("abcd2345"))
    assert {name for name in of_run if name.startswith("marin.") and not name.startswith("marin.verdict.")} == {
        "marin.run",
        "marin.recipe",
        "marin.model",
        "marin.data",
        "marin.verified",
        "marin.verified.by",
    }
    record = run_record(fold.runs["abcd2345"].run, ORIGIN).decode()
    for step in STEPS:
        tags = tags_of(intents, fold.ids.run("abcd2345", step))
        assert tags.keys() - {"marin.devices"} == {
            "marin.run",
            "marin.step",
            "marin.state",
            "marin.attempt",
            "marin.output",
        }
        assert tags["marin.output"] == output("abcd2345", step).digest[7:19]
    assert not [
        value for item in intents if isinstance(item, Tags) for value in item.values.values() if "sha256:" in value
    ]
    told = [
        msgspec.to_builtins(event.body)
        for event in log.entries
        if event.type in (types.RUN_STARTED, types.STEP_STARTED, types.STEP_COMPLETED, types.TRAIN_STARTED)
    ]
    wanted = {"identity", "config_digest", "code", "inputs", "output", "recipe_digest", "plan", "program", "state"}
    facts = [value for body in told for name, value in body.items() if name in wanted]
    assert set(re.findall(r"sha256:[0-9a-f]{64}", json.dumps(facts))) <= set(re.findall(r"sha256:[0-9a-f]{64}", record))
    (attempt,) = json.loads(record)["training"]
    assert (attempt["first_step"], attempt["devices"], attempt["program"]["jaxlib"]) == (0, 1, "0.11.2")
    shelves = {shelf.identity: shelf.pages for shelf in fold.shelves("abcd2345")}
    assert all("record.json" in shelves[fold.ids.run("abcd2345", step)] for step in STEPS)


def test_a_later_look_at_less_takes_neither_tag_nor_alias():
    log = Log()
    whole_run(log, "abcd2345")
    replay(log, "abcd2345")
    _, before = folded(log)
    replay(log, "abcd2345", {"ledger": "PASS", "artifacts": "PASS", "training": "NOT_RUN"})
    fold, intents = folded(log)
    tags = tags_of(intents, fold.ids.run("abcd2345"))
    assert tags["marin.verified"].startswith("PASS ") and tags["marin.verdict.training"] == "PASS"
    assert [i for i in intents if isinstance(i, AliasGone)] == []
    assert any(isinstance(i, AliasSet) and i.alias == "verified" for i in before)


@pytest.mark.parametrize(
    ("verdicts", "word"),
    [
        (dict.fromkeys(NAMES, "PASS"), "PASS"),
        (dict.fromkeys(NAMES, "PASS") | {"training": "PARTIAL"}, "PARTIAL"),
        ({"ledger": "PASS", "training": "PASS"}, "PARTIAL"),
        ({"ledger": "PASS", "training": "FAIL"}, "FAIL"),
        ({"ledger": "UNAVAILABLE", "training": "FAIL"}, "FAIL"),
        ({"ledger": "PASS", "training": "NOT_RUN"}, "PARTIAL"),
        ({"ledger": "UNSUPPORTED", "training": "UNSUPPORTED"}, "UNSUPPORTED"),
        ({}, "NOT_RUN"),
    ],
)
def test_five_verdicts_as_one_word(verdicts: dict[str, str], word: str):
    assert overall(verdicts) == word


@pytest.mark.parametrize(
    ("verdicts", "aliased"),
    [(None, True), ({"ledger": "PASS", "training": "FAIL"}, False), ({"ledger": "PASS", "training": "NOT_RUN"}, False)],
)
def test_only_a_full_pass_moves_the_alias_of_the_verified_model(verdicts: dict[str, str] | None, aliased: bool):
    log = Log()
    whole_run(log, "abcd2345")
    whole_run(log, "efgh6723")
    replay(log, "abcd2345", verdicts)
    fold, intents = folded(log)
    made = {item.run: item.model for item in intents if isinstance(item, ModelLogged)}
    registered = [item.model for item in intents if isinstance(item, ModelRegistered)]
    assert registered == [made[fold.ids.run("abcd2345")], made[fold.ids.run("efgh6723")]]
    aliases = [item.model for item in intents if isinstance(item, AliasSet)]
    assert aliases == ([made[fold.ids.run("abcd2345")]] if aliased else [])


def test_data_sets_carry_their_whole_digest():
    log = Log()
    whole_run(log, "abcd2345")
    fold, intents = folded(log)
    used = {
        (item.name, item.context): item.digest
        for item in intents
        if isinstance(item, DataUsed) and item.run == fold.ids.run("abcd2345")
    }
    assert used == {
        ("grammar/corpus", "corpus"): output("abcd2345", "corpus").digest,
        ("grammar/tokens", "tokens"): output("abcd2345", "tokens").digest,
    }
    read = {
        item.name for item in intents if isinstance(item, DataUsed) and item.run == fold.ids.run("abcd2345", "train")
    }
    assert read == {"grammar/tokens"}


def test_a_failed_step_fails_the_run_until_it_is_tried_again():
    log = Log()
    start(log, "abcd2345")
    begin_step(log, "abcd2345", "corpus")
    log.append(
        types.STEP_FAILED, types.StepFailed(run="abcd2345", step="corpus", identity=digest("i"), error="disk full")
    )
    fold, intents = folded(log)
    parent, child = fold.ids.run("abcd2345"), fold.ids.run("abcd2345", "corpus")
    assert (status_of(intents, parent), status_of(intents, child)) == ("FAILED", "FAILED")
    assert tags_of(intents, child)["marin.error"] == "disk full"
    begin_step(log, "abcd2345", "corpus", attempt=2)
    fold, intents = folded(log)
    assert (status_of(intents, parent), status_of(intents, child)) == ("RUNNING", "RUNNING")
    assert tags_of(intents, child)["marin.attempt"] == "2"
    complete_step(log, "abcd2345", "corpus")
    fold, intents = folded(log)
    assert status_of(intents, child) == "FINISHED"
    assert fold.runs["abcd2345"].run.status == "open"


def test_a_result_that_was_taken_over_brings_its_curve_and_model_along():
    log = Log()
    whole_run(log, "abcd2345", steps=60)
    start(log, "efgh6723")
    completions = {event.body["step"]: index for index, event in log.events() if event.type == types.STEP_COMPLETED}
    for step in ("train", "evaluate", "export"):
        log.append(
            types.STEP_CACHED,
            types.StepCached(
                run="efgh6723",
                step=step,
                identity=digest(f"identity {step}"),
                inputs={},
                output=output("abcd2345", step),
                completed_at=completions[step],
            ),
        )
    replay(log, "efgh6723")
    fold, intents = folded(log)
    run = fold.ids.run("efgh6723")
    assert points_of(intents, run, LOSS) == [(step, loss(step)) for step in range(60)]
    assert points_of(intents, run, "evaluate.perplexity") == [(60, 9.5)]
    assert tags_of(intents, fold.ids.run("efgh6723", "train"))["marin.state"] == "cached"
    record = json.loads(run_record(fold.runs["efgh6723"].run, ORIGIN))
    assert record["steps"]["train"]["completed_at"] == completions["train"]
    assert [item.model for item in intents if isinstance(item, AliasSet)] == [
        fold.ids.model(fold.runs["abcd2345"].exports[0])
    ]


def test_a_log_that_never_says_exported_or_evaluated_shows_model_and_measurements_all_the_same():
    whole, sparse = Log(), Log()
    whole_run(whole, "abcd2345", steps=30)
    sparse.entries = [
        event for event in whole.entries if event.type not in (types.MODEL_EXPORTED, types.EVAL_COMPLETED)
    ]
    replay(sparse, "abcd2345")
    fold, intents = folded(sparse)
    (made,) = [item for item in intents if isinstance(item, ModelLogged) and item.kind != "checkpoint"]
    assert made.tags["marin.model"] == output("abcd2345", "train").digest
    assert [item.model for item in intents if isinstance(item, AliasSet)] == [made.model]
    assert points_of(intents, fold.ids.run("abcd2345"), "evaluate.perplexity") == [(30, 9.5)]
    assert fold.runs["abcd2345"].run.measured == {"loss": 2.25, "perplexity": 9.5}
    (twice,) = [item for item in folded(whole)[1] if isinstance(item, ModelLogged) and item.kind != "checkpoint"]
    assert twice.model == made.model


def test_only_curves_have_a_slash_in_their_name():
    log = Log()
    start(log, "abcd2345")
    log.append(
        types.EVAL_COMPLETED, types.EvalCompleted(run="abcd2345", model=digest("m"), metrics={"pairs/a$b": (0.5).hex()})
    )
    fold, intents = folded(log)
    assert points_of(intents, fold.ids.run("abcd2345"), "evaluate.pairs.a_x24_b") == [(0, 0.5)]


def test_what_is_not_ours_or_does_not_fit_changes_nothing():
    log = Log()
    start(log, "abcd2345")
    fold, before = folded(log)
    first = log.entries[0]
    strangers = [
        replace(first, type="experiment.unheard/v1"),
        replace(first, type=types.TRAIN_SEGMENT, body={"run": 7}),
        replace(first, type=types.STEP_STARTED, body={}),
        replace(first, body=["no"]),  # type: ignore[arg-type]
        replace(first, type=types.EVAL_COMPLETED, body={"run": "nobody", "model": digest("m"), "metrics": {}}),
    ]
    assert [fold.apply(9, event) for event in strangers] == [[]] * len(strangers)
    assert fold.skipped == 4
    assert folded(log)[1] == before


@given(st.lists(st.sampled_from(range(27)), max_size=60))
def test_events_in_any_order_and_repeated_fold_without_error_and_the_same_way_twice(order: list[int]):
    log = Log()
    whole_run(log, "abcd2345", steps=60)
    replay(log, "abcd2345")
    chosen = [log.entries[0], *(log.entries[index % len(log.entries)] for index in order)]
    fold = Fold(ORIGIN)
    intents = list(fold.apply_all(enumerate(chosen)))
    assert intents == list(Fold(ORIGIN).apply_all(enumerate(chosen)))
    steps = [step for step, _ in points_of(intents, fold.ids.run("abcd2345"), LOSS)]
    assert len(steps) == len(set(steps))


KEYS_AND_VALUES = st.dictionaries(
    st.text(min_size=1),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@given(KEYS_AND_VALUES)
def test_keys_are_freed_of_what_mlflow_refuses(value: dict[str, Any]):
    for key, item in flatten(value).items():
        assert validate_param_and_metric_name(key), "MLflow's own rule"
        assert isinstance(item, str)


def test_hex_floats_are_read_as_decimals_and_other_text_is_left():
    values = ((0.1).hex(), "0x1", "abc", None, True, [1], 7)
    assert [text(value) for value in values] == ["0.1", "0x1", "abc", "null", "true", "[1]", "7"]


def register(log: Log, experiment: str, *, hypothesis: str) -> None:
    log.append(
        EXPERIMENT_REGISTERED,
        ExperimentRegistered(
            experiment=experiment,
            registration=digest("reg"),
            file=f"{experiment}.py",
            file_digest=digest("file"),
            question="Q?",
            hypothesis=hypothesis,
            primary={},
            secondary=[],
            arms={},
            baseline="",
            seeds=[],
            test="welch",
            alternative="less",
            alpha=0.05,
            stopping_rule="",
            cost_cap={},
        ),
        stream=f"experiment/{experiment}",
    )


def test_a_graph_is_a_run_whose_nodes_are_nested_and_an_experiment_has_its_hypothesis_and_report():
    log = Log()
    register(log, "exp9", hypothesis="larger is `better`")
    log.append(
        GRAPH_STARTED,
        GraphStarted(
            graph="gggg2345",
            name="exp9",
            file="exp9.py",
            declaration=digest("d"),
            steps=2,
            ends=["report"],
            options={"runner": "local"},
            code={},
            environment={},
        ),
        stream="graph/gggg2345",
    )
    for address in ("counts/a", "counts/b"):
        log.append(
            types.STEP_COMPLETED,
            types.StepCompleted(
                run="gggg2345",
                step="counts",
                identity=digest(address),
                inputs={},
                output=output("gggg2345", address),
                metrics={},
                seconds=0.5,
                address=address,
            ),
            stream="graph/gggg2345",
        )
    log.append(
        GRAPH_COMPLETED,
        GraphCompleted(
            graph="gggg2345",
            outcome="failed",
            counts={"executed": 2, "failed": 1},
            results=digest("results"),
            outputs={},
            failed=["report"],
        ),
        stream="graph/gggg2345",
    )
    log.append(
        EXPERIMENT_REPORTED,
        ExperimentReported(
            experiment="exp9",
            registration=digest("reg"),
            verdict="confirmatory",
            supported=True,
            deviations=[],
            artifact=digest("report"),
            runs=[],
        ),
        stream="experiment/exp9",
    )
    start(log, "abcd2345")
    log.entries[-1] = replace(log.entries[-1], body={**log.entries[-1].body, "experiment": digest("reg")})
    fold, intents = folded(log)
    assert fold.skipped == 0
    assert {item.name for item in intents if isinstance(item, OpenExperiment)} == {"exp9"}
    notes = [
        item.values["mlflow.note.content"]
        for item in intents
        if isinstance(item, ExperimentTags) and "mlflow.note.content" in item.values
    ]
    assert "larger is _better_" in notes[0]
    opened = {item.name: item.parent for item in intents if isinstance(item, OpenRun)}
    parent = fold.ids.run("gggg2345")
    assert opened == {
        "executions of the graph": None,
        "graph · gggg2345": fold.ids.executions("exp9"),
        "counts/a": parent,
        "counts/b": parent,
        "report": None,
        "llama-4x128-seed0 · abcd2345": None,
    }
    assert fold.runs["gggg2345"].run.status == "failed"
    assert [item.status for item in intents if isinstance(item, Status) and item.run == parent][-1] == "FAILED"
    assert {"report": digest("report")} in [item.mounts for item in intents if isinstance(item, Shelve)]
    assert fold.runs["abcd2345"].experiment == "exp9"


def sweep(log: Log, graph: str, recipes: list[str]) -> None:
    log.append(
        GRAPH_STARTED,
        GraphStarted(
            graph=graph,
            name="default",
            file="",
            declaration=digest("d"),
            steps=2,
            ends=[],
            options={"runner": "local", "recipes": recipes, "varied": ["model.num_layers", "seed"]},
            code={},
            environment={},
        ),
        stream=f"graph/{graph}",
    )


def names_in(intents: list[Intent]) -> dict[str, str]:
    """What each run is called in the end."""
    named = {item.run: item.name for item in intents if isinstance(item, OpenRun)}
    changed = [item for item in intents if isinstance(item, Tags) and "mlflow.runName" in item.values]
    return named | {item.run: item.values["mlflow.runName"] for item in changed}


def test_a_sweep_names_its_runs_and_stands_apart():
    log = Log()
    start(log, "abcd2345")
    recipe = log.entries[-1].body["recipe_digest"]
    sweep(log, "gggg2345", [recipe])
    start(log, "bcde2345")
    fold, intents = folded(log)
    names = names_in(intents)
    assert names[fold.ids.run("abcd2345")] == "num_layers=4 seed=0 · abcd2345", "also one that was there before"
    assert names[fold.ids.run("bcde2345")] == "num_layers=4 seed=0 · bcde2345"
    assert fold.runs["gggg2345"].experiment == "executions of sweeps" != fold.runs["abcd2345"].experiment
    told = [item.values for item in intents if isinstance(item, ExperimentTags) and "marin.varied" in item.values]
    assert told == [{"marin.varied": '["model.num_layers", "seed"]'}]
    (params,) = [item.values for item in intents if isinstance(item, Params) and "runner" in item.values]
    assert "recipes" not in params


def test_a_sweep_of_somebody_else_that_lists_anything_names_nothing():
    log = Log()
    start(log, "abcd2345")
    sweep(log, "gggg2345", [])
    log.entries[-1] = replace(
        log.entries[-1], body={**log.entries[-1].body, "options": {"recipes": {"a": 1}, "varied": [[], 3]}}
    )
    fold, intents = folded(log)
    assert fold.skipped == 0 and names_in(intents)[fold.ids.run("abcd2345")] == "llama-4x128-seed0 · abcd2345"


def test_measurements_stand_once_on_the_run():
    log = Log()
    start(log, "abcd2345")
    for _ in range(2):
        log.append(
            types.METRICS_RECORDED,
            types.MetricsRecorded(
                run="abcd2345",
                step="train",
                series=[types.Series(key="system/tokens_per_second", steps=[29], values=[(5.5).hex()])],
            ),
        )
    fold, intents = folded(log)
    assert points_of(intents, fold.ids.run("abcd2345"), "system/tokens_per_second") == [(29, 5.5)]


def test_an_evaluation_told_after_its_result_changes_no_number_of_it():
    """As anyone who has the key may append one (docs/tutorial.md): lists, reports and MLflow show the step's own result."""
    log = Log()
    whole_run(log, "abcd2345")
    before = folded(log)
    log.append(
        types.EVAL_COMPLETED, types.EvalCompleted(run="abcd2345", model=digest("export"), metrics={"loss": (1.0).hex()})
    )
    fold, intents = folded(log)
    run = fold.ids.run("abcd2345")
    assert points_of(intents, run, "evaluate.loss") == points_of(before[1], run, "evaluate.loss") == [(120, 2.25)]


def verified_by(fold: Fold, log: Log, **changes: Any) -> tuple[str, bool]:
    """The tag ``marin.verified`` and whether an alias moved, after a replay whose event was changed so."""
    if not log.entries:
        whole_run(log, "abcd2345")
    replay(log, "abcd2345")
    last = log.entries[-1]
    log.entries[-1] = replace(last, body={**last.body, **changes})
    intents = list(fold.apply_all(log.events()))
    return tags_of(intents, fold.ids.run("abcd2345"))["marin.verified"], any(isinstance(i, AliasSet) for i in intents)


def test_what_was_verified_before_the_run_went_on_is_partial():
    log = Log()
    whole_run(log, "abcd2345")
    replay(log, "abcd2345")
    replay(log, "abcd2345")
    fold = Fold(ORIGIN, own=log)
    run = fold.ids.run("abcd2345")
    assert tags_of(list(fold.apply_all(log.events())), run)["marin.verified"].startswith("PASS ")
    export = next(event for event in log.entries if event.type == types.MODEL_EXPORTED)
    intents = fold.apply(len(log.entries), export)
    after = tags_of(intents, run)
    assert (after["marin.verified"][:8], after["marin.verdict.model"]) == ("PARTIAL ", "PARTIAL")
    assert AliasGone("pipeline", "verified") in intents


def aliases_of(log: Log) -> list[str | None]:
    """Where the alias of verified models goes, None where it is taken away."""
    fold, intents = folded(log)
    names = {fold.ids.model(record.exports[0]): run for run, record in fold.runs.items() if record.exports}
    return [
        names[item.model] if isinstance(item, AliasSet) else None
        for item in intents
        if isinstance(item, AliasSet | AliasGone)
    ]


def test_the_alias_goes_back_to_the_last_model_that_is_still_verified():
    log = Log()
    failed = {**dict.fromkeys(("ledger", "artifacts", "data", "model"), "PASS"), "training": "FAIL"}
    for run in ("abcd2345", "efgh6723"):
        whole_run(log, run)
        replay(log, run)
    assert aliases_of(log) == ["abcd2345", "efgh6723"]
    replay(log, "efgh6723", failed)
    assert aliases_of(log) == ["abcd2345", "efgh6723", "abcd2345"]
    replay(log, "abcd2345", failed)
    assert aliases_of(log)[3:] == [None]
    replay(log, "efgh6723")
    assert aliases_of(log)[4:] == ["efgh6723"]


def test_what_somebody_elses_log_says_of_itself_is_no_verdict():
    assert verified_by(Fold(ORIGIN), Log()) == ("never", False)


@pytest.mark.parametrize(
    "changes",
    [
        {"origin": "other.example/log"},
        {"root": "00" * 32},
        {"size": 7},
        {"size": 10**6},
        {"size": True},
        {"size": None},
        {"root": None},
    ],
    ids=str,
)
def test_a_verdict_on_a_run_of_another_log_with_the_same_id_is_none_on_this_one(changes: dict[str, Any]):
    """Origin and run ids are the words of a log's maker. Only a log checkpoint that this one had counts."""
    log = Log()
    whole_run(log, "abcd2345")
    size = len(log.entries)
    other = {"origin": ORIGIN, "size": size, "root": log.root(size).hex()} | changes
    assert verified_by(Fold(ORIGIN, own=log), log, log_checkpoint=other) == ("never", False)


@pytest.mark.parametrize("mode", ["sampled", "range", "none", None])
def test_a_pass_of_a_part_verifies_no_model(mode: str | None):
    log = Log()
    word, aliased = verified_by(Fold(ORIGIN, own=log), log, training={"mode": mode})
    assert (word.split()[0], aliased) == ("PARTIAL", False)


def test_a_hypothesis_draws_no_verdict_into_the_note() -> None:
    """MLflow shows notes as Markdown."""
    hostile = "x\n\n# Verified: PASS\n\n| verdict | |\n| --- | --- |\n| ledger | PASS |"
    log = Log()
    register(log, "exp9", hypothesis=hostile)
    (note,) = [item.values["mlflow.note.content"] for item in folded(log)[1] if isinstance(item, ExperimentTags)]
    assert note.splitlines()[0].endswith("| ledger | PASS |")
    assert all("PASS" not in line for line in note.splitlines()[1:])


def test_a_note_and_a_source_say_what_is_true_of_every_run_and_read_as_text() -> None:
    """The list of experiments shows a note as it is, without Markdown; a run of `marin train` knows of no dvc.yaml."""
    log = Log()
    start(log, "abcd2345")
    intents = folded(log)[1]
    notes = {item.tags["mlflow.note.content"] for item in intents if isinstance(item, OpenExperiment)}
    assert notes == {f"Runs of pipeline, from the ledger {ORIGIN}."}
    tagged = [item.values for item in intents if isinstance(item, Tags) and "marin.recipe" in item.values]
    assert [values["mlflow.source.name"] for values in tagged] == ["pipeline"]


def test_nothing_that_mlflow_shows_is_called_default() -> None:
    log = Log()
    start(log, "abcd2345", pipeline=types.DEFAULT_PIPELINE)
    assert types.DEFAULT_PIPELINE == "default", "what was recorded keeps its name"
    shown = [value for item in folded(log)[1] for value in vars(item).values()]
    said = [text for value in shown for text in (value.values() if isinstance(value, dict) else [value])]
    assert "pipeline" in said and not [text for text in said if "default" in str(text).lower()]


def test_numbers_in_lists_of_a_recipe_are_numbers_to_people() -> None:
    recipe = {"betas": [(0.9).hex(), (0.95).hex()], "groups": [{"lr": (0.5).hex(), "name": "head"}], "lr": (0.1).hex()}
    assert flatten(recipe) == {"betas": "[0.9, 0.95]", "groups": '[{"lr": 0.5, "name": "head"}]', "lr": "0.1"}


def test_a_step_reads_so_many_tokens_of_text_where_text_is_what_it_reads() -> None:
    recipe: dict[str, Any] = {"trainer": {"batch_size": 8}, "model": {"seq_len": 16}}
    assert tokens_of_step(recipe) == 128 and tokens_of_step({}) is None
    for other in ({"objective": {"name": "grpo"}}, {"lora": {"dpo_beta": (0.1).hex()}}, {"loop": {"name": ""}}):
        assert tokens_of_step(recipe | other) is None
    assert tokens_of_step(recipe | {"lora": {"rank": 8}, "objective": None}) == 128
