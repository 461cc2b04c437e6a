"""The step ``corpus`` on each kind of dataset, and the identity that local files give it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ledger import named_digests
from marin.errors import DataError
from marin.execution.plan import step_config
from marin.execution.step import StepResult
from marin.pipeline.corpus import CORPUS, source_digests
from marin.recipe.form.data_rules import with_data_rules
from marin.recipe.schema import FilesDataset, GrammarDataset, Recipe, UrlDataset, from_mapping

RunStep = Callable[..., tuple[Path, StepResult]]
GRAMMAR = GrammarDataset(seed=5, train_bytes=20_000, validation_bytes=2_000, minimal_pairs=34)
PROJECT = Path(__file__).resolve().parents[3]
FILES = {"corpus": {"train.jsonl", "validation.jsonl", "minimal_pairs.jsonl", "dataset.json"}}["corpus"]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_bytes().splitlines()]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MARIN_DATA", raising=False)
    folder = tmp_path / "project" / "data"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder.parent)
    for number in range(4):
        (folder / f"{number}.txt").write_text("\n\n".join(f"Paragraph {number} {part}." for part in range(20)))
    return folder


def test_grammar(run_step: RunStep) -> None:
    out, result = run_step(CORPUS, Recipe(dataset=GRAMMAR))
    assert set(content(out)) == FILES
    assert (result.kind, result.digest) == ("corpus", None)
    train, validation = texts(out / "train.jsonl"), texts(out / "validation.jsonl")
    assert sum(len(text.encode()) for text in train) == result.metrics["train_bytes"] >= 20_000
    assert len(validation) == result.metrics["validation_documents"]
    assert not set(train) & set(validation)
    assert len((out / "minimal_pairs.jsonl").read_text().splitlines()) == 34
    description = json.loads((out / "dataset.json").read_text())
    assert description["kind"] == "grammar"
    assert description["documents"] == {"train": len(train), "validation": len(validation)}


def test_the_same_recipe_gives_the_same_bytes(run_step: RunStep) -> None:
    recipe = Recipe(dataset=GRAMMAR)
    assert content(run_step(CORPUS, recipe)[0]) == content(run_step(CORPUS, recipe)[0])


def test_the_seed_of_the_dataset_decides(run_step: RunStep) -> None:
    other = GrammarDataset(seed=6, train_bytes=20_000, validation_bytes=2_000, minimal_pairs=34)
    assert content(run_step(CORPUS, Recipe(dataset=GRAMMAR))[0]) != content(run_step(CORPUS, Recipe(dataset=other))[0])


def test_url_from_a_mirror(run_step: RunStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = "\n\n".join(f"Speaker {number}:\nWords." for number in range(400)).encode()
    (tmp_path / "plays").mkdir()
    (tmp_path / "plays" / "a.txt").write_bytes(raw)
    monkeypatch.setenv("MARIN_DATA", str(tmp_path))
    digest = hashlib.sha256(raw).hexdigest()
    dataset = UrlDataset(
        name="plays",
        url="https://data.example/a",
        sha256=digest,
        mirror="plays/a.txt",
        size=len(raw),
        paragraphs_per_document=4,
    )
    out, result = run_step(CORPUS, Recipe(dataset=dataset))
    assert result.metrics["train_documents"] + result.metrics["validation_documents"] == 100
    assert json.loads((out / "dataset.json").read_text())["sources"] == {"https://data.example/a": f"sha256:{digest}"}
    assert (out / "minimal_pairs.jsonl").read_bytes() == b""
    assert {json.loads(line)["source"] for line in (out / "train.jsonl").read_bytes().splitlines()} == {"plays"}


def test_files(run_step: RunStep, data: Path) -> None:
    (data / "more.jsonl").write_text('{"text": "A line of its own."}\n')
    (data / "pairs.jsonl").write_text('{"sentence_good": "They are.", "sentence_bad": "They is."}\n')
    dataset = FilesDataset(
        globs=("data/*.txt", "data/more.jsonl"),
        paragraphs_per_document=5,
        validation_fraction=0.3,
        minimal_pairs="data/pairs.jsonl",
    )
    out, result = run_step(CORPUS, Recipe(dataset=dataset))
    all_texts = texts(out / "train.jsonl") + texts(out / "validation.jsonl")
    assert len(all_texts) == 4 * 4 + 1
    assert "A line of its own." in all_texts
    assert result.metrics["minimal_pairs"] == 1.0
    sources = json.loads((out / "dataset.json").read_text())["sources"]
    assert set(sources) == {f"{number}.txt" for number in range(4)} | {"more.jsonl", "minimal_pairs:pairs.jsonl"}
    assert sources["0.txt"] == "sha256:" + hashlib.sha256((data / "0.txt").read_bytes()).hexdigest()


def test_minimal_pairs_are_looked_for_in_the_mirror_first(
    run_step: RunStep, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "p.jsonl").write_text('{"sentence_good": "They are.", "sentence_bad": "They is."}\n')
    monkeypatch.setenv("MARIN_DATA", str(tmp_path / "mirror"))
    _, result = run_step(CORPUS, Recipe(dataset=FilesDataset(globs=("data/*.txt",), minimal_pairs="p.jsonl")))
    assert result.metrics["minimal_pairs"] == 1.0


def test_the_same_files_under_another_path_are_the_same_corpus(run_step: RunStep, data: Path) -> None:
    (data / "pairs.jsonl").write_text('{"sentence_good": "They are.", "sentence_bad": "They is."}\n')
    outputs = []
    for base in ("data", str(data), "../project/data"):
        dataset = FilesDataset(globs=(f"{base}/*.txt",), minimal_pairs=f"{base}/p*.jsonl")
        outputs.append(content(run_step(CORPUS, Recipe(dataset=dataset))[0]))
    assert outputs[0] == outputs[1] == outputs[2]
    assert not any(str(data).encode() in written for written in outputs[1].values())


def test_the_identity_of_local_files_is_their_content(data: Path) -> None:
    recipe = Recipe(dataset=FilesDataset(globs=("data/*.txt",)))
    before = step_config(CORPUS, recipe)
    assert step_config(CORPUS, recipe) == before
    (data / "2.txt").write_text((data / "2.txt").read_text() + "!")
    assert step_config(CORPUS, recipe) != before
    (data / "4.txt").write_text("new")
    assert set(source_digests(recipe)) == {f"{number}.txt" for number in range(5)}


def test_the_events_of_the_step_name_its_raw_bytes() -> None:
    """step.started holds the step's configuration, so collection keeps what was fetched (`named_digests`)."""
    url = UrlDataset(name="x", url="https://data.example/x", sha256="0" * 64, mirror="x", size=1)
    assert "sha256:" + "0" * 64 in set(named_digests(CORPUS.config(Recipe(dataset=url))))


def test_the_identity_of_grammar_and_url_is_in_the_recipe() -> None:
    assert source_digests(Recipe()) == {}
    url = UrlDataset(name="x", url="https://data.example/x", sha256="0" * 64, mirror="x", size=1)
    assert source_digests(Recipe(dataset=url)) == {"https://data.example/x": "sha256:" + "0" * 64}


@pytest.mark.parametrize("bad", [b"fine\n\xfe\n", b"", b"\n \n"])
def test_files_that_hold_no_text(run_step: RunStep, data: Path, bad: bytes) -> None:
    for path in data.iterdir():
        path.unlink()
    (data / "a.txt").write_bytes(bad)
    with pytest.raises(DataError) as caught:
        run_step(CORPUS, Recipe(dataset=FilesDataset(globs=("data/*.txt",))))
    assert "\n" not in str(caught.value)
    assert caught.value.what in ("text is not UTF-8", "corpus is empty")
    assert caught.value.cure


@pytest.mark.parametrize("name", ["grammar", "tinyshakespeare", "files"])
def test_definitions_are_sections_of_the_recipe(name: str) -> None:
    section = yaml.safe_load((PROJECT / "conf" / "dataset" / f"{name}.yaml").read_text())
    recipe = from_mapping({"dataset": section}, where=f"{name}.yaml")
    given = set(section) - {"kind"}
    assert given == set(type(recipe.dataset).__struct_fields__), "a definition says all values, also the default ones"


def test_the_default_definition_is_the_default_recipe() -> None:
    section = yaml.safe_load((PROJECT / "conf" / "dataset" / "grammar.yaml").read_text())
    assert from_mapping({"dataset": section}, where="grammar.yaml").dataset == Recipe().dataset


def test_importing_the_step_loads_nothing_heavy() -> None:
    code = (
        "import sys, marin.pipeline.corpus, marin.pipeline.tokenizer, marin.pipeline.tokens;"
        "sys.exit(' '.join({'numpy', 'httpx', 'tokenizers', 'jax', 'levanter', 'rich'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_part_holds_out_no_part_trains_on(
    run_step: RunStep, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Equal texts in two parts that hold out other shares: what recipes of before mean is said, new ones leave them out."""
    for name in ("one", "other"):
        lines = (json.dumps({"text": f"Text {number}."}) for number in range(200))
        (data / f"{name}.jsonl").write_text("\n".join(lines))
    shares = {"one": 0.01, "other": 0.3}
    parts = {
        name: {"kind": "files", "globs": [f"data/{name}.jsonl"], "validation_fraction": share}
        for name, share in shares.items()
    }
    asked = {"dataset": {"kind": "mixture", "parts": parts}, "mixture": {"weights": {"one": 1.0, "other": 1.0}}}
    for rules, leaks in ((dict, True), (with_data_rules, False)):
        out, result = run_step(CORPUS, from_mapping(rules(asked), where="here"))
        trained = [text for name in shares for text in texts(out / "train" / f"{name}.jsonl")]
        held_out = texts(out / "validation.jsonl")
        assert bool(set(trained) & set(held_out)) == leaks
        assert len(trained) == result.metrics["train_documents"]
        assert sum(len(text.encode()) for text in trained) == result.metrics["train_bytes"]
        assert len(set(trained) | set(held_out)) == 200, "no text is lost"
    own = from_mapping(with_data_rules(asked | {"dataset": asked["dataset"] | {"held_out": None}}), where="here")
    assert own.dataset.held_out is None, "who writes null has each part by itself, and is told of the documents"
    left_out = int(result.metrics["held_out_elsewhere"])
    assert json.loads((out / "dataset.json").read_text())["held_out_elsewhere"] == left_out > 0
    told = [record.getMessage() for record in caplog.records]
    assert [message.partition(" ")[0] for message in told] == [str(left_out)] * 2
    assert "dataset.held_out=all" in told[0] and "left out" in told[1]
    assert {path.name for path in (out / "train").iterdir()} == {"one.jsonl", "other.jsonl"}
