"""Steps that look at more than one document: paragraphs that stood before, and a quality classifier that is trained here."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from marin.errors import DataError
from marin.plugins.collections.build import BuildRequest, build
from marin.plugins.collections.comparing import linear
from marin.plugins.collections.making import rows as rows_module
from marin.plugins.collections.queries.documents import Collection, find
from marin.plugins.collections.replay import replay
from marin.plugins.collections.settings import settings_of
from tests.plugins.collections.making import by, root_of, rows, shuffled
from tests.plugins.collections.test_build import fresh, small_pieces  # noqa: F401 - a fixture


def write(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def sentences(draw: random.Random, count: int, words: list[str]) -> list[str]:
    return [" ".join(draw.choices(words, k=12)) + "." for _ in range(count)]


WORDS = [f"word{number}" for number in range(500)]


@pytest.fixture
def pages(project: Path) -> dict[str, list[str]]:
    """Documents of some lines of their own and some that many have, by source."""
    draw = random.Random(5)
    often = sentences(draw, 20, WORDS)
    found = {}
    for source in ("a", "b", "c"):
        texts = []
        for _ in range(40):
            lines = sentences(draw, draw.randint(0, 4), WORDS) + draw.sample(often, draw.randint(0, 4)) + ["Home", ""]
            draw.shuffle(lines)
            texts.append("\n".join(lines))
        found[source] = [text for text in texts if text.strip()]
        write(project / "raw" / f"{source}.jsonl", found[source])
    return found


SETTINGS = settings_of({"paragraphs": {"least_characters": 20}, "near": {"threshold": 0.8}}, where="test")


def test_a_paragraph_stays_in_the_document_with_the_least_id(project: Path, pages: dict[str, list[str]]) -> None:
    root = root_of(project)
    made = build(root, BuildRequest((f"{project}/raw/*.jsonl",), SETTINGS))
    collection = Collection(root.store(), made.artifact)
    where = {item["name"]: item["source"].removesuffix(".jsonl") for item in collection.description()["shards"]}
    texts = {}
    for path in collection.files("listing"):
        source = where[path.removeprefix("listing/").removesuffix(".parquet")]
        for row in collection.table(path).to_pylist():
            texts[row["id"]] = pages[source][row["position"] - 1]
    copies, holders = ({row[name] for row in rows(collection, "duplicates")} for name in ("id", "kept"))
    seen: dict[str, str] = {}
    expected: dict[str, str] = {}
    kept_by = defaultdict(set)
    for name in sorted(texts.keys() - copies):
        left = []
        for line in texts[name].split("\n"):
            if len(line.strip()) < 20 or (seen.setdefault(line.strip(), name) == name and line not in left):
                left.append(line)
            else:
                kept_by[name].add(seen[line.strip()])
        expected[name] = "\n".join(left).strip("\n")
    removed = {name for name, left in expected.items() if not left.strip()} - holders
    expected |= {name: texts[name] for name, left in expected.items() if not left.strip()}
    said: dict[str, dict[str, object]] = {}
    for row in rows(collection, "decisions"):
        if row["step"] == "paragraphs":
            said[row["id"]] = {"action": row["action"], **json.loads(row["evidence"])}
    assert said.keys() == kept_by.keys() and all(said[name]["kept"] in kept_by[name] for name in said)
    assert {name for name, one in said.items() if one["action"] == "remove"} == removed
    assert made.removed.get("rule:paragraphs", 0) == len(removed)
    kept = {row["id"]: row["text"] for row in rows(collection, "documents")}
    assert kept and all(expected[name] == text.strip("\n") for name, text in kept.items())
    assert made.read == made.kept + sum(made.removed.values())
    assert copies & texts.keys() and holders & said.keys()
    (told,) = find(collection, next(iter(said)))
    assert any(decision["reason"] == "rule:paragraphs" for decision in told.decisions)


def copied_pages(draw: random.Random) -> list[str]:
    """Pages of which many have paragraphs in common, some are edited copies, and some hold nothing but what others hold."""
    often = sentences(draw, 12, WORDS)
    pages = [sentences(draw, draw.randint(0, 9), WORDS) + draw.sample(often, draw.randint(1, 4)) for _ in range(24)]
    for page in pages:
        draw.shuffle(page)
    for page in draw.sample(pages, 16):
        edited = list(page)
        edited[draw.randrange(len(page))] += " more"
        if draw.random() < 0.5:
            edited.append(draw.choice(often))
        pages += [edited, page] if draw.random() < 0.3 else [edited]
    pages += [[line] for line in often] * 2
    return ["\n".join(page) for page in pages]


@pytest.mark.table
@pytest.mark.parametrize("seed", range(4))
def test_no_paragraph_is_lost_and_all_evidence_names_what_is_kept(project: Path, seed: int) -> None:
    texts = copied_pages(random.Random(seed))
    write(project / "raw" / "a.jsonl", texts)
    settings = settings_of({"paragraphs": {"least_characters": 20}, "near": {"threshold": 0.6}}, where="test")
    root = root_of(project)
    made = build(root, BuildRequest((f"{project}/raw/*.jsonl",), settings))
    collection = Collection(root.store(), made.artifact)
    kept = {row["id"]: row["text"].split("\n") for row in rows(collection, "documents")}
    there = {line for lines in kept.values() for line in lines}
    copies = {row["id"] for row in rows(collection, "duplicates")}
    listed = {row["id"]: texts[row["position"] - 1] for row in rows(collection, "listing")}
    lost = [
        line for name, text in listed.items() if name not in copies for line in text.split("\n") if line not in there
    ]
    assert not lost
    assert made.removed["near_duplicate"] > 5
    for name in listed:
        (told,) = find(collection, name)
        named = [decision["evidence"]["kept"] for decision in told.decisions if "kept" in decision["evidence"]]
        assert kept.keys() >= set(named) and (name in kept or named)


def test_no_paragraph_may_stand_twice(project: Path) -> None:
    write(project / "raw" / "a.jsonl", ["a paragraph that stands here alone, and long enough to be one"])
    assert build(root_of(project), BuildRequest((f"{project}/raw/*.jsonl",), SETTINGS)).kept == 1


@pytest.mark.usefixtures("small_pieces")
def test_paragraphs_are_the_same_in_any_order_and_made_again(
    project: Path, pages: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = root_of(project)
    wanted = build(root, BuildRequest((f"{project}/raw/*.jsonl",), SETTINGS))
    by(shuffled(1), monkeypatch)
    monkeypatch.setattr(rows_module, "PIECE", 40)
    other = build(root_of(fresh(project, "other")), BuildRequest((f"{project}/raw/*.jsonl",), SETTINGS))
    assert other.artifact == wanted.artifact
    folder = project / "again"
    folder.mkdir()
    assert replay(root.store_to_read(), root.history(), wanted.artifact, folder).wrong == ()


@pytest.fixture
def shown(project: Path) -> None:
    """Texts of two kinds: the good ones use other words more often."""
    draw = random.Random(9)

    def text(good: bool) -> str:
        weights = [3 if good and number % 7 == 0 else 1 for number in range(len(WORDS))]
        return " ".join(draw.choices(WORDS, weights, k=80))

    write(project / "good.jsonl", [text(True) for _ in range(400)])
    write(project / "bad.jsonl", [text(False) for _ in range(400)])
    write(project / "raw" / "a.jsonl", [text(True) for _ in range(100)])
    write(project / "raw" / "b.jsonl", [text(False) for _ in range(100)])


def quality(project: Path, **more: object) -> BuildRequest:
    step = {"kind": "quality", "good": [f"{project}/good.jsonl"], "bad": [f"{project}/bad.jsonl"], "bits": 12} | more
    return BuildRequest((f"{project}/raw/*.jsonl",), settings_of({"near": None, "steps": [step]}, where="test"))


def test_a_classifier_is_trained_as_a_shard_and_made_again(project: Path, shown: None) -> None:
    root = root_of(project)
    made = build(root, quality(project))
    collection = Collection(root.store(), made.artifact)
    (told,) = collection.description()["examples"]
    assert told["counts"]["good"] == told["counts"]["bad"] == 400
    assert told["counts"]["held_out_right"] / told["counts"]["held_out"] > 0.85
    kept = [row["source"] for row in rows(collection, "documents")]
    assert kept.count("a.jsonl") > 85 and kept.count("b.jsonl") < 15
    assert made.removed == {"quality": 200 - made.kept}
    for row in rows(collection, "decisions"):
        evidence = json.loads(row["evidence"])
        assert row["reason"] == "quality" and evidence["sum"] < evidence["threshold"] * evidence["features"]
    other = build(root, quality(project, threshold=0.9))
    assert other.kept < made.kept
    folder = project / "again"
    folder.mkdir()
    assert replay(root.store_to_read(), root.history(), made.artifact, folder).wrong == ()
    write(project / "good.jsonl", ["other texts", "that are shown"] * 20)
    found = replay(root.store_to_read(), root.history(), made.artifact, project / "elsewhere")
    assert any("steps.0.good good.jsonl" in line for line in found.wrong)
    with pytest.raises(DataError, match="too few examples"):
        build(root, quality(project))


def test_without_bad_examples_it_is_shown_what_was_read(project: Path, shown: None) -> None:
    root = root_of(project)
    made = build(root, quality(project, bad=[]))
    kept = [row["source"] for row in rows(Collection(root.store(), made.artifact), "documents")]
    assert kept.count("a.jsonl") > 2 * kept.count("b.jsonl")


def test_the_linear_model_learns_as_well_as_a_library_s() -> None:
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import LogisticRegression

    draw = random.Random(3)

    def texts(good: bool, count: int) -> list[str]:
        weights = [1.6 if good and number % 5 == 0 else 1 for number in range(len(WORDS))]
        return [" ".join(draw.choices(WORDS, weights, k=60)) for _ in range(count)]

    shown, asked = texts(True, 300) + texts(False, 300), texts(True, 200) + texts(False, 200)
    labels, truth = np.arange(600) < 300, np.arange(400) < 200
    found = linear.features(shown, 1, 14)
    model = linear.train(found, labels, [text.encode() for text in shown], bits=14, epochs=5)
    sums, _ = model.sums(linear.features(asked, 1, 14))
    hashing = HashingVectorizer(ngram_range=(1, 1), n_features=1 << 14)
    theirs = LogisticRegression(C=10, max_iter=200).fit(hashing.transform(shown), labels)
    assert ((sums >= 0) == truth).mean() > theirs.score(hashing.transform(asked), truth) - 0.03


def test_tables_are_rounded_right() -> None:
    from fractions import Fraction

    table = linear.logistic()
    for place in (0, 1, 5000, 16384, 20000, 32768):
        x = place / 1024 - 16
        assert abs(int(table[place]) - 65536 / (1 + np.exp(-x))) <= 0.5 + 1e-6
    assert linear.logit(Fraction(1, 2)) == 0
    assert linear.logit(Fraction(9, 10)) == -linear.logit(Fraction(1, 10)) == round(np.log(9) * 65536)
    assert linear.place_of(0) == 16384 and linear.place_of(1 << 30) == 32768 and linear.place_of(-(1 << 30)) == 0
