"""Steps of the pipeline in graphs: one identity with `marin stage`, one run for each recipe, phases that continue."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from experiments.defaults import (
    default_continue,
    default_corpus,
    default_eval,
    default_sft,
    default_tokenize,
    default_train,
)
from marin.errors import UsageError
from marin.execution import executor
from marin.execution.executor import run_stage
from marin.graph import Step, override_output
from marin.graph.addresses import at_address
from marin.graph.execution import loop
from marin.graph.execution.loop import Options, execute_graph
from marin.graph.files import load_experiment, load_graph
from marin.graph.graph import Graph
from marin.graph.variants import bound, variants_of
from marin.history import runs
from marin.history.catalog import open_catalog
from marin.kinds.families.graph import STEP_CHECKED
from marin.pipeline.corpus import CORPUS
from marin.pipeline.stages import PIPELINE
from marin.pipeline.tokenizer import TOKENIZER
from marin.pipeline.train import TRAIN
from marin.preregistration.registration import checked
from marin.recipe.arithmetic import EXACT
from marin.recipe.objective import Objective
from marin.recipe.schema import Arithmetic, Execution, FilesDataset, GrammarDataset, Model, Recipe, Tokenizer, Trainer
from marin.record.root import Root
from marin.verify.derivation.record import read_record
from marin.verify.derivation.records import contradictions, unexplained

PROJECT = Path(__file__).resolve().parents[3]
DATASET = GrammarDataset(train_bytes=20_000, validation_bytes=2_000, minimal_pairs=3)
MODEL = Model(hidden_dim=32, intermediate_dim=88, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=32)
TRAINER = Trainer(num_steps=4, batch_size=8, steps_per_segment=2)


def light() -> Graph:
    """Corpus and tokenizer: the steps that need no jax."""
    corpus = default_corpus("small", DATASET)
    recipe = replace(corpus.config, tokenizer=Tokenizer(vocab_size=300))
    return Graph.of("exp_light", [Step("tokenizer/small", TOKENIZER, recipe, {"corpus": corpus})])


def full(seed: int = 1) -> tuple[Step, Step]:
    tokens = default_tokenize("small", default_corpus("small", DATASET), vocab_size=300)
    return tokens, default_train(f"seed{seed}", tokens, model=MODEL, seed=seed, trainer=TRAINER)


def test_a_verdict_without_a_judge_is_refused_by_a_phase_and_by_the_step_that_trains() -> None:
    _, base = full()
    asked = Objective(verdict="so", num_generations=2, max_completion_length=4)
    with pytest.raises(
        UsageError, match=r"step train/judged: objective.verdict: expected null without objective.reward"
    ):
        default_continue("judged", base, objective=asked, arithmetic=EXACT)
    recipe = Recipe(objective=asked, arithmetic=EXACT, seed=1, order="swap-or-not")
    with pytest.raises(UsageError, match=r"recipe: objective.verdict: expected null without objective.reward"):
        TRAIN.run(SimpleNamespace(recipe=recipe, execution=Execution()))  # type: ignore[arg-type]


def test_what_a_stage_made_is_a_hit_for_a_graph_and_the_other_way_round(root: Root, tmp_path: Path) -> None:
    recipe = Recipe(dataset=DATASET, tokenizer=Tokenizer(vocab_size=300))
    project = tmp_path / "project"
    project.mkdir()
    by_stage = run_stage("corpus", plan=PIPELINE, recipe=recipe, root=root, project=project)
    outcome = execute_graph(light(), root)
    assert outcome.failures == {}
    assert [(name, item.action) for name, item in outcome.results.items()] == [
        ("corpus/small", "cached"),
        ("tokenizer/small", "executed"),
    ]
    assert outcome.results["corpus/small"].completed_at == by_stage.result.completed_at
    again = run_stage("tokenizer", plan=PIPELINE, recipe=recipe, root=root, project=project)
    assert again.action == "cached"
    assert again.result.completed_at == outcome.results["tokenizer/small"].completed_at
    assert list((project / "artifacts").glob("*.json")), "the stage left its files, the graph none"


def test_a_run_that_was_left_open_ends_with_a_graph_of_hits(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = variants_of(light())["tokenizer/small"]
    with monkeypatch.context() as older:
        older.setattr(executor, "rest", lambda *_, **__: ([], False))
        older.setattr(executor, "complete_open_runs", lambda *_, **__: [])
        for name in ("corpus", "tokenizer"):
            run_stage(name, plan=arm.plan, recipe=arm.recipe, root=root, project=None)
    assert [view.status for view in runs.load_all(root.history())] == ["open"]
    outcome = execute_graph(light(), root)
    assert {item.action for item in outcome.results.values()} == {"cached"}
    assert [view.status for view in runs.load_all(root.history())] == ["completed"]


def test_ctrl_c_between_two_steps_of_a_graph_interrupts_its_run(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real signal, where the executor has recorded the first step and is about to hand out the second."""
    real = loop.GraphExecution._submit

    def signalled(execution: loop.GraphExecution, work: loop.Work) -> None:
        if work.node.address == "tokenizer/small":
            os.kill(os.getpid(), signal.SIGINT)
            signal.sigtimedwait([], 5)  # a point where Python looks
        real(execution, work)

    with monkeypatch.context() as patch:
        patch.setattr(loop.GraphExecution, "_submit", signalled)
        with pytest.raises(KeyboardInterrupt, match="SIGINT"):
            execute_graph(light(), root)
    (view,) = runs.load_all(root.history())
    assert (view.status, [fact.body.step for fact in view.failures]) == ("interrupted", ["tokenizer"])
    with open_catalog(root) as catalog:
        assert [run.status for run in catalog.runs()] == ["interrupted"]
    assert execute_graph(light(), root).failures == {}
    (view,) = runs.load_all(root.history())
    assert view.status == "completed"
    record, plan = read_record(root.history(), view.run), variants_of(light())["tokenizer/small"].plan
    assert contradictions(record, plan) == [] == unexplained(record, plan)


def test_an_arm_is_an_ordinary_run_and_its_steps_are_found_by_their_addresses(root: Root) -> None:
    outcome = execute_graph(light(), root)
    row = at_address(root, "tokenizer/small")
    assert row is not None
    assert (row["identity"], row["run"]) == (
        outcome.results["tokenizer/small"].identity,
        outcome.results["tokenizer/small"].origin,
    )
    assert at_address(root, "tokenizer/other") is None
    (view,) = runs.load_all(root.history())
    assert view.started.body.pipeline == "exp_light"
    assert view.completed is not None
    assert set(view.steps) == {"corpus", "tokenizer"}
    assert outcome.results["tokenizer/small"].origin == view.run


def test_steps_that_are_shared_are_executed_in_the_first_arm() -> None:
    tokens, first = full(1)
    second = default_train("seed2", tokens, model=MODEL, seed=2, trainer=TRAINER)
    arms = variants_of(Graph.of("exp", [default_eval(first), default_eval(second)]))
    assert arms["corpus/small"] is arms["train/seed1"] is arms["evaluate/seed1"]
    assert arms["train/seed2"].recipe.seed == 2
    assert [step.name for step in arms["train/seed2"].plan.steps] == [
        "corpus",
        "tokenizer",
        "tokens",
        "train",
        "evaluate",
    ]


def test_two_executions_of_one_recipe_are_two_arms_if_that_is_said() -> None:
    tokens, first = full(1)
    twice = default_train("again", tokens, model=MODEL, seed=1, trainer=TRAINER, apart="again")
    arms = variants_of(Graph.of("exp", [first, twice]))
    assert arms["train/seed1"].recipe == arms["train/again"].recipe
    assert (arms["train/seed1"].plan.name, arms["train/again"].plan.name) == ("exp", "exp.again")


def test_a_step_that_feeds_another_recipe_is_refused() -> None:
    tokens, _ = full()
    other = replace(tokens.config, tokenizer=Tokenizer(vocab_size=400))
    inputs = {"tokens": tokens, "tokenizer": tokens.inputs["tokenizer"]}
    from marin.pipeline.train import TRAIN

    with pytest.raises(UsageError, match="different recipes"):
        variants_of(Graph.of("exp", [Step("train/x", TRAIN, replace(other, model=MODEL, trainer=TRAINER), inputs)]))


def test_a_graph_draws_no_seeds() -> None:
    with pytest.raises(UsageError, match="a step without a seed"):
        variants_of(Graph.of("exp", [Step("corpus/x", CORPUS, Recipe(seed=None))]))


def test_a_phase_is_complete_when_the_training_before_it_is_done() -> None:
    _, first = full()
    phase = default_continue("more", first, trainer=TRAINER)
    arms = variants_of(Graph.of("exp", [phase]))
    arm = arms["train/more"]
    assert (arm.previous, arm.kept) == ("train/seed1", "tokenizer/small")
    assert arms["train/seed1"].previous == ""
    state, tokenizer = "sha256:" + "1" * 64, "sha256:" + "2" * 64
    whole = bound(arm.recipe, state=state, tokenizer=tokenizer).phase
    assert whole is not None
    assert (whole.first_step, whole.state, whole.tokenizer) == (4, state, tokenizer)


def test_a_phase_after_rewards_learns_from_them_until_it_has_other_texts() -> None:
    tokens, _ = full()
    exact = Arithmetic(profile="exact", logical_shards=1, reduction="integer", isa="any", xla_flags=())
    first = default_train("exact", tokens, model=MODEL, seed=1, trainer=TRAINER, arithmetic=exact)
    objective = Objective(num_generations=4)
    rewarded = default_continue("rewarded", first, objective=objective)
    assert default_continue("more", rewarded).config.objective == objective
    texts = replace(rewarded.config.dataset, seed=5)
    assert default_continue("texts", rewarded, dataset=texts).config.objective is None


def test_fine_tuning_is_a_phase_on_conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / "a.jsonl").write_text('{"messages": [{"role": "assistant", "content": "Hello."}]}')
    _, first = full()
    tuned = default_sft("chat", first, globs=("chats/*.jsonl",), trainer=TRAINER)
    assert tuned.config.dataset == FilesDataset(
        name="chat", globs=("chats/*.jsonl",), chat=True, chat_reference="transformers"
    )
    assert tuned.config.phase.first_step == 4
    assert tuned.config.model == MODEL
    assert variants_of(Graph.of("exp", [default_eval(tuned)]))["evaluate/chat"].previous == "train/seed1"


def test_a_pinned_output_stands_for_a_step_of_the_pipeline(root: Root) -> None:
    made = execute_graph(Graph.of("exp", [default_corpus("small", DATASET)]), root).results["corpus/small"]
    other = default_corpus("other", replace(DATASET, seed=5))
    recipe = replace(other.config, tokenizer=Tokenizer(vocab_size=300))
    pinned = override_output(other, made.output.artifact)
    outcome = execute_graph(Graph.of("exp", [Step("tokenizer/x", TOKENIZER, recipe, {"corpus": pinned})]), root)
    assert outcome.failures == {}
    assert {name: item.action for name, item in outcome.results.items()} == {
        "corpus/other": "pinned",
        "tokenizer/x": "executed",
    }
    plain = execute_graph(light(), root).results["tokenizer/small"]
    assert (plain.action, plain.output) == ("cached", outcome.results["tokenizer/x"].output), (
        "equal inputs, equal identity"
    )
    stranger = root.store().put_bytes(b"no corpus").digest
    wrong = execute_graph(Graph.of("exp", [override_output(other, stranger)]), root)
    assert "pinned to something else" in wrong.failures["corpus/other"].error


@pytest.mark.long
def test_steps_of_the_pipeline_are_checked_by_a_run_of_their_own(root: Root) -> None:
    outcome = execute_graph(light(), root, options=Options(check=True))
    assert outcome.nondeterministic == []
    checked = [event.body for _, event in root.reader().events() if event.type == STEP_CHECKED]
    assert [(item["address"], item["deterministic"]) for item in checked] == [
        ("corpus/small", True),
        ("tokenizer/small", True),
    ]
    assert [view.started.body.pipeline for view in runs.load_all(root.history())] == [
        "exp_light",
        "exp_light.check",
        "exp_light.check",
    ]
    assert all(view.completed for view in runs.load_all(root.history()))


@pytest.mark.parametrize("file", sorted((PROJECT / "experiments").glob("exp*.py")), ids=lambda file: file.stem)
def test_the_experiments_of_this_repository_are_graphs(file: Path) -> None:
    graph = load_graph(file)
    assert graph.ends == tuple(address for address in graph.ends if address.startswith(("report/", "export/")))
    analyses = {address for address, node in graph.nodes.items() if node.step.definition is None}
    assert {address.split("/")[0] for address in analyses} <= {"corpus", "law", "report", "tokens", "words"}, (
        "what reads results and makes none, but for texts and tokens that an experiment makes"
    )
    assert set(variants_of(graph)) == set(graph.nodes) - analyses
    stated = checked(load_experiment(file).experiment, where=file.name)
    assert stated.name == file.stem
    text = file.read_text()
    assert all(word in text.split('"""')[1] for word in ("Question.", "Hypothesis.", "Definition of done."))
