"""Unlearning from a collection: by licence and by id, several at once, and what stood behind a document stays removed."""

# Taken by their commands: marin.plugins.sharing, marin.plugins.unlearning.

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sessions import new_cache
from warm import Warm

from marin.history.runs import load
from marin.record.root import open_root
from tests.e2e.conftest import Project
from tests.e2e.training.unlearned import READ, RECIPE, trained_of

pytestmark = pytest.mark.determinism
TEXT = "the farmer sees a dog near old barns while rain falls on green hills and nobody hears distant bells ring"
WORDS = TEXT.split()


def raw(folder: Path) -> None:
    """Sixty documents of two licences; twenty of them have two exact copies and a near one elsewhere in the file."""
    rng = random.Random(4)
    texts = [" ".join(rng.choices(WORDS, k=14)) for _ in range(60)]
    rows = [
        {"id": f"d{number}", "text": text, "licence": "unknown" if number % 4 == 3 else "CC0-1.0"}
        for number, text in enumerate(texts)
    ]
    for number in range(20, 40):
        for name, more in (("one", ""), ("two", ""), ("near", " indeed")):
            rows.append({"id": f"{name}{number}", "text": texts[number] + more, "licence": "CC0-1.0"})
    folder.mkdir()
    (folder / "part.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory, warm: Callable[[], Warm]) -> tuple[Project, str, str]:
    """A project, its run of four steps, and the document of the collection that three others were removed for."""
    base = tmp_path_factory.mktemp("collected")
    project = Project(base / "project", base / "home", warm)
    project.folder.mkdir()
    new_cache(project.home / "cache")
    raw(project.folder / "raw")
    assert project.marin("init", "--origin", "test.example/collection").returncode == 0
    built = project.marin("data", "build", "--source", "raw/*.jsonl", "--json")
    assert built.returncode == 0, built.stderr
    artifact = json.loads(built.stdout)["artifact"]
    run = trained_of(project, recipe=RECIPE | {"dataset": {"kind": "documents", "artifact": artifact}})
    store = open_root(str(project.root)).store()
    from marin.plugins.collections.queries.documents import Collection

    collection = Collection(store, artifact)
    ids = [row["id"] for row in collection.documents(("id",))]
    behind = collection.behind(ids)
    assert {len(removed) for removed in behind.values()} == {3}
    used = json.loads(project.forked(READ, run).stdout)["used"]
    return project, run, next(name for name in sorted(behind) if min(used.get(name, []), default=0) >= 2)


def planned(project: Project, run: str, *asked: str) -> Any:
    done = project.marin("unlearn", run, "--dry-run", "--json", *asked)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_by_licence_and_what_stood_behind(collected: tuple[Project, str, str]) -> None:
    project, run, kept = collected
    told = planned(project, run, "--where", "licence=unknown")
    by_hand = [json.loads(project.marin("data", "show", one["id"], "--json").stdout) for one in told["documents"][:3]]
    assert 5 <= len(told["documents"]) <= 15, "some are held out, or were removed as copies"
    assert all('"licence": "unknown"' in json.dumps(one) for one in by_hand)
    told = planned(project, run, "--document", kept)
    assert [len(one["behind"]) for one in told["documents"]] == [3]
    done = project.marin("unlearn", run, "--dry-run", "--document", kept)
    assert "3 copies that the collection had removed stay removed" in done.stdout


def test_several_at_once_are_those_of_a_training_without_them(
    collected: tuple[Project, str, str], tmp_path: Path
) -> None:
    """With every copy of the first still out: the corpus is the same, and the bits are those of a run from the start."""
    project, run, kept = collected
    told = planned(project, run, "--where", "licence=unknown")["documents"]
    documents = sorted({kept, *[one["id"] for one in told if (one["first_use"] or 0) >= 2][:2]})
    forked = trained_of(project, documents=documents, **{"from": run})
    elsewhere = project.copy(tmp_path)
    recipe = RECIPE | {"dataset": {"kind": "documents", "artifact": artifact_of(project, run)}, "exclude": documents}
    oracle = trained_of(elsewhere, recipe=recipe | {"seed": 3})
    mine, theirs = (
        load(open_root(str(one.root)).history(), name) for one, name in ((project, forked), (elsewhere, oracle))
    )
    assert mine.recipe.exclude == theirs.recipe.exclude == tuple(documents)
    assert mine.output("train").digest == theirs.output("train").digest
    assert mine.output("corpus").digest == load(open_root(str(project.root)).history(), run).output("corpus").digest
    done = project.marin("-q", "verify", forked, "--only", "ledger,data", "--no-record", "--json")
    verdicts = json.loads(done.stdout)["verdicts"]
    assert (verdicts["ledger"], verdicts["data"]) == ("PASS", "PASS"), done.stdout


def artifact_of(project: Project, run: str) -> str:
    dataset: Any = load(open_root(str(project.root)).history(), run).recipe.dataset
    return str(dataset.artifact)


def test_a_document_says_which_train_steps_read_it(collected: tuple[Project, str, str]) -> None:
    project, run, kept = collected
    told = json.loads(project.marin("data", "show", kept, "--steps", "--json").stdout)["runs"]
    used = json.loads(project.forked(READ, run).stdout)["used"]
    assert {"run": run, "steps": used[kept]} in told
    (other,) = [
        one for one in json.loads(project.marin("data", "show", kept, "--json").stdout)["runs"] if one["run"] == run
    ]
    assert other["steps"] is None, "they are looked for when they are asked for"
    removed = next(iter(json.loads(project.marin("data", "report", run, "--json").stdout)["examples"].values()))[0]
    assert json.loads(project.marin("data", "show", removed["id"], "--json").stdout)["runs"] == []


def test_the_report_of_a_run_counts_the_tokens_of_its_sources(
    collected: tuple[Project, str, str], tmp_path: Path
) -> None:
    project, run, _ = collected
    told = json.loads(project.marin("data", "report", run, "--json").stdout)
    found = load(open_root(str(project.root)).history(), run)
    counts = {name: found.metrics[f"tokens.{name}"] for name in ("train_tokens", "validation_tokens")}
    assert [source["tokens"] for source in told["sources"]] == [sum(counts.values())]
    done = project.marin("site", str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "runs" / run / "collection.html").read_text("utf-8")
    assert told["artifact"] in page and str(int(sum(counts.values()))) in page
    assert "collection.html" in (tmp_path / "site" / "runs" / run / "lineage.html").read_text("utf-8")
