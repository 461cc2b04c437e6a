"""A collection feeds the pipeline: ``dataset=web`` becomes its digest, and the corpus has its documents in their splits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marin.data.documents import TRAIN, VALIDATION, read_documents
from marin.data.reach import Reach
from marin.errors import DataError, UsageError
from marin.graph.execution.loop import execute_graph
from marin.graph.files import load_graph
from marin.history.runs import load_all
from marin.pipeline.corpus import CORPUS, config
from marin.pipeline.gathering import with_documents
from marin.plugins.collections.judge import with_collections
from marin.plugins.collections.queries import documents
from marin.plugins.collections.queries.documents import Collection
from marin.recipe.schema import DocumentsDataset, Execution, MixtureDataset, Recipe, WebDataset, from_plain, plain
from marin.verify.judges.experiment import judge_artifacts_taken
from marin.verify.rehearsal import Rehearsal
from marin.verify.verdict import Verdict
from tests.plugins.collections.labelled import labelled
from tests.plugins.collections.making import root_of, rows


@pytest.fixture
def recipe(project: Path) -> Recipe:
    labelled(9, size=12).write(project / "raw", files=3)
    dataset = WebDataset(
        sources=(f"{project}/raw/*.jsonl",), collection="default", evaluations=(f"{project}/test.jsonl",)
    )
    return Recipe(dataset=dataset)


def artifact_of(recipe: Recipe) -> str:
    assert isinstance(recipe.dataset, DocumentsDataset) and recipe.dataset.artifact is not None
    return recipe.dataset.artifact


def rehearsed(project: Path, recipe: Recipe) -> Path:
    folder = project / "rehearsal"
    return Rehearsal(folder, "abc", recipe, root_of(project).store(), Execution()).execute(CORPUS, {})[0]


def test_the_corpus_has_the_documents_of_the_collection_in_their_splits(project: Path, recipe: Recipe) -> None:
    found = with_documents(root_of(project), recipe)
    assert with_documents(root_of(project), recipe) == found and from_plain(plain(found), where="test") == found
    out = rehearsed(project, found)
    documents = rows(Collection(root_of(project).store(), artifact_of(found)), "documents")
    for name, split in ((TRAIN, "train"), (VALIDATION, "validation")):
        wanted = [(row["id"], row["text"]) for row in documents if row["split"] == split]
        assert wanted and [(one.metadata["id"], one.text) for one in read_documents(out / name)] == wanted


def test_a_collection_that_is_none_is_refused(project: Path, recipe: Recipe) -> None:
    with pytest.raises(UsageError, match="not made yet"):
        config(recipe)
    artifact = root_of(project).store().put_tree(project / "raw").digest
    with pytest.raises(DataError, match="no collection of documents"):
        rehearsed(project, Recipe(dataset=DocumentsDataset(artifact=artifact)))


def test_the_verdict_on_data_makes_the_collection_again(project: Path, recipe: Recipe) -> None:
    root = root_of(project)
    found = with_documents(root, recipe)
    workshop = project / "workshop"
    workshop.mkdir()
    case: Any = SimpleNamespace(
        run=SimpleNamespace(recipe=found),
        store=root.store_to_read(),
        history=root.history(),
        workshop=workshop,
        workers=1,
        reach=Reach(),
        collections=[],
    )
    passed = with_collections(case, Verdict("PASS", ("corpus",)), None, b"root")
    assert passed.outcome == "PASS" and "made again from its sources" in passed.lines[1]
    sampled = with_collections(case, Verdict("PASS"), 1, b"root")
    assert sampled.outcome == "PARTIAL" and "taken as recorded" in " ".join(sampled.lines)
    assert with_collections(case, Verdict("PASS"), 100, b"root").outcome == "PASS", "a sample of all is all"
    case.reach = Reach(folders=(), hosts=())
    assert with_collections(case, Verdict("PASS"), None, b"root").outcome == "UNAVAILABLE"
    case.reach = Reach()
    path = project / "raw" / "part-0.jsonl"
    path.write_text(path.read_text().replace("e", "u", 1))
    failed = with_collections(case, Verdict("PASS"), None, b"root")
    assert failed.outcome == "FAIL" and "part-0.jsonl" in failed.lines[0]
    case.run, case.collections = SimpleNamespace(recipe=Recipe()), [artifact_of(found)]
    beside = with_collections(case, Verdict("PASS"), None, b"root")
    assert beside.outcome == "FAIL" and "part-0.jsonl" in beside.lines[0], (
        "one that a step of an experiment begins with"
    )
    unknown = SimpleNamespace(**vars(case) | {"collections": []})
    unknown.run = SimpleNamespace(recipe=Recipe(dataset=DocumentsDataset(artifact="sha256:" + "0" * 64)))
    assert with_collections(unknown, Verdict("PASS"), None, b"root").outcome == "UNAVAILABLE"  # type: ignore[arg-type]


def test_of_a_run_of_several_collections_each_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {name: DocumentsDataset(artifact=f"sha256:{sign * 64}") for name, sign in (("a", "1"), ("b", "2"))}
    for given, found in (
        (parts, ["sha256:" + "1" * 64, "sha256:" + "2" * 64]),
        ({"a": parts["b"]}, ["sha256:" + "2" * 64]),
    ):
        mixed = SimpleNamespace(recipe=SimpleNamespace(dataset=MixtureDataset(parts=dict(given))))
        monkeypatch.setattr(documents, "resolve", lambda history, name: name)
        monkeypatch.setattr(documents, "load", lambda history, name, mixed=mixed: mixed)
        assert [one.artifact for one in documents.of_run(root_of(project), "abc")] == found
        if len(found) > 1:
            with pytest.raises(UsageError, match=f"several collections.*{found[0]}, {found[1]}"):
                documents.find_collection(root_of(project), "abc")
        else:
            assert documents.find_collection(root_of(project), "abc").artifact == found[0]


FILE = """
from experiments.defaults import default_corpus, default_tokenize
from marin.graph import Resources, Step
from marin.recipe.schema import DocumentsDataset

def halved(context):
    for name in ("train.jsonl", "validation.jsonl"):
        lines = (context.inputs["corpus"].path / name).read_text().splitlines()
        (context.out / name).write_text("\\n".join(lines[: max(2, len(lines) // 2)]) + "\\n")

corpus = default_corpus("pages", DocumentsDataset(name="pages", artifact="{artifact}"))
half = Step("corpus/half", halved, {{}}, {{"corpus": corpus}}, Resources(in_process=True))
steps = [default_tokenize("half", half, vocab_size=300).inputs["tokenizer"]]
"""


@pytest.mark.long
def test_a_step_of_an_experiment_that_begins_with_a_collection_is_made_again(project: Path, recipe: Recipe) -> None:
    """The run's own recipe names what the step made, by digest; the verifier's file names the collection."""
    root = root_of(project)
    artifact = artifact_of(with_documents(root, recipe))
    file = project / "exp_half.py"
    file.write_text(FILE.format(artifact=artifact))
    assert execute_graph(load_graph(file), root, file=file).failures == {}
    (run,) = [view for view in load_all(root.history()) if "tokenizer" in view.steps]
    workshop = project / "made-again"
    workshop.mkdir()
    case: Any = SimpleNamespace(root=root, history=root.history(), run=run, workshop=workshop, collections=[])
    verdict = judge_artifacts_taken(case, file)
    assert verdict is not None and verdict.outcome == "PASS", verdict
    assert case.collections == [artifact], "and is judged then as those of a recipe are"
