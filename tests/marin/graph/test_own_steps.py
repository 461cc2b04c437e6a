"""Steps of one's own feed the pipeline: a filtered corpus, an adopted one, tokens that a function packed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from experiments.defaults import default_continue, default_corpus, default_tokenize, default_train
from marin.errors import UsageError
from marin.graph import Context, Resources, Step, adopt
from marin.graph.execution.loop import execute_graph
from marin.graph.graph import Graph
from marin.graph.variants import variants_of
from marin.history import runs
from marin.pipeline.tokenizer import TOKENIZER
from marin.recipe.schema import ArtifactDataset, GrammarDataset, Model, Recipe, Trainer
from marin.record.root import Root

DATASET = GrammarDataset(train_bytes=20_000, validation_bytes=2_000, minimal_pairs=3)
MODEL = Model(hidden_dim=32, intermediate_dim=88, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=32)
TRAINER = Trainer(num_steps=4, batch_size=8, steps_per_segment=2)
HERE = Resources(in_process=True)


def keep_long(context: Context) -> None:
    """The documents of at least so many characters."""
    for name in ("train.jsonl", "validation.jsonl"):
        lines = (context.inputs["corpus"].path / name).read_text().splitlines()
        kept = [line for line in lines if len(json.loads(line)["text"]) >= context.config["characters"]]
        (context.out / name).write_text("\n".join(kept) + "\n")


def keep_tokens(context: Context) -> None:
    """The same tokens, as a step of one's own would pack them."""
    shutil.copytree(context.inputs["tokens"].path, context.out, dirs_exist_ok=True)


def filtered(characters: int = 1300) -> Step:
    corpus = default_corpus("small", DATASET)
    return Step("corpus/long", keep_long, {"characters": characters}, {"corpus": corpus}, HERE)


def only_the_tokenizer(corpus: Step) -> Step:
    """Without tokens, which take Levanter."""
    tokens = default_tokenize("x", corpus, vocab_size=300)
    tokenizer = tokens.inputs["tokenizer"]
    assert isinstance(tokenizer, Step)
    assert tokenizer.fn is TOKENIZER
    return tokenizer


def test_a_corpus_of_ones_own_is_read_by_the_pipeline(root: Root) -> None:
    outcome = execute_graph(Graph.of("exp", [only_the_tokenizer(filtered())]), root)
    assert outcome.failures == {}
    made, taken = outcome.results["corpus/long"], outcome.results["corpus/long/documents"]
    (view,) = [view for view in runs.load_all(root.history()) if "tokenizer" in view.steps]
    assert isinstance(view.recipe.dataset, ArtifactDataset)
    assert view.recipe.dataset.artifact.digest == made.output.artifact
    assert (view.recipe.dataset.artifact.address, view.recipe.dataset.artifact.maker) == ("corpus/long", "keep_long")
    assert view.completed is not None
    small = outcome.results["corpus/small"]
    assert 0 < taken.metrics["train_documents"] < small.metrics["train_documents"]
    again = execute_graph(Graph.of("exp", [only_the_tokenizer(filtered())]), root)
    assert set(again.results.counts) == {"cached"}, "nothing is made twice"


def test_another_filter_is_another_run(root: Root) -> None:
    first = execute_graph(Graph.of("exp", [only_the_tokenizer(filtered(1100))]), root)
    second = execute_graph(Graph.of("exp", [only_the_tokenizer(filtered(1300))]), root)
    assert second.failures == {}
    assert first.results["tokenizer/x"].origin != second.results["tokenizer/x"].origin
    assert first.results["corpus/long/documents"].output != second.results["corpus/long/documents"].output


@pytest.mark.long
def test_an_adopted_corpus_is_read_by_the_pipeline(root: Root) -> None:
    made = execute_graph(Graph.of("exp", [default_corpus("small", DATASET)]), root).results["corpus/small"]
    theirs = adopt("corpus/theirs", made.output.artifact, kind="corpus", vouched_by="a colleague")
    outcome = execute_graph(Graph.of("exp", [only_the_tokenizer(theirs)]), root)
    assert outcome.failures == {}
    assert outcome.results["corpus/theirs"].action == "adopted"
    view = runs.load(root.history(), outcome.results["tokenizer/x"].origin)
    assert isinstance(view.recipe.dataset, ArtifactDataset)
    assert view.recipe.dataset.artifact.maker is None
    assert outcome.results["corpus/theirs/documents"].metrics == made.metrics


def test_what_is_no_corpus_is_said(root: Root, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.txt").write_text("text")
    digest = root.store().put_tree(tmp_path / "folder").digest
    theirs = adopt("corpus/theirs", digest, kind="corpus", vouched_by="a colleague")
    outcome = execute_graph(Graph.of("exp", [only_the_tokenizer(theirs)]), root)
    assert "an artifact is no corpus" in outcome.failures["corpus/theirs/documents"].error


def test_tokens_of_ones_own_feed_a_training() -> None:
    plain = default_tokenize("small", default_corpus("small", DATASET), vocab_size=300)
    own = Step("tokens/own", keep_tokens, {}, {"tokens": plain, "tokenizer": plain.inputs["tokenizer"]})
    train = default_train("own", own, model=MODEL, seed=1, trainer=TRAINER)
    arm = variants_of(Graph.of("exp", [train]))["train/own"]
    assert dict(arm.artifacts) == {"tokens": "tokens/own"}
    assert [step.name for step in arm.plan.steps] == ["corpus", "tokenizer", "tokens", "train"]
    bare = Step("tokens/own", keep_tokens, {}, {"tokens": plain})
    with pytest.raises(UsageError, match="tokens without the tokenizer"):
        default_train("own", bare, model=MODEL, seed=1, trainer=TRAINER)
    tokenizer = plain.inputs["tokenizer"]
    assert isinstance(tokenizer, Step)
    assert default_train("own", bare, model=MODEL, seed=1, trainer=TRAINER, tokenizer=tokenizer).config == train.config


def test_a_recipe_names_the_artifact_or_waits_for_it() -> None:
    corpus = default_tokenize("x", filtered(), vocab_size=300).inputs["corpus"]
    assert isinstance(corpus, Step)
    with pytest.raises(UsageError, match="other inputs"):
        Step(corpus.name, corpus.fn, corpus.config)
    dataset = corpus.config.dataset
    known = replace(dataset, artifact=replace(dataset.artifact, digest="sha256:" + "0" * 64))
    assert Step(corpus.name, corpus.fn, Recipe(dataset=known)).inputs == {}


def test_a_phase_goes_on_with_what_ones_own_steps_made_or_without_it() -> None:
    plain = default_tokenize("long", filtered(), vocab_size=300)
    own = Step("tokens/own", keep_tokens, {}, {"tokens": plain, "tokenizer": plain.inputs["tokenizer"]})
    first = default_train("first", own, model=MODEL, seed=1, trainer=TRAINER)
    longer = variants_of(Graph.of("exp", [default_continue("longer", first)]))["train/longer"]
    assert dict(longer.artifacts) == {"corpus": "corpus/long", "tokens": "tokens/own"}
    assert longer.previous == "train/first"
    other = default_continue("other", first, dataset=replace(DATASET, seed=5))
    assert dict(variants_of(Graph.of("exp", [other]))["train/other"].artifacts) == {}
