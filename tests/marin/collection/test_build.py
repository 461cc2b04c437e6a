"""Collections: each decision against brute force, one digest whatever happens, and questions about documents."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

from marin.collection.asking.documents import Collection, find
from marin.collection.build import Asked, Built, build
from marin.collection.making import make as making_module
from marin.collection.sources import finding
from marin.errors import DataError
from tests.marin.collection.labelled import CONTAMINATED, Labelled, labelled, shingles, similarity
from tests.marin.collection.making import Killed, by, dying, root_of, rows, shuffled

THRESHOLD = Fraction(4, 5)


@pytest.fixture(scope="module")
def known() -> Labelled:
    return labelled(7, size=40)


def asked(project: Path, **more: object) -> Asked:
    return Asked((f"{project}/raw/*.jsonl",), evaluations=(f"{project}/test.jsonl",), **more)  # type: ignore[arg-type]


@pytest.fixture
def built(project: Path, known: Labelled) -> tuple[Built, Collection]:
    known.write(project / "raw", files=3)
    made = build(root_of(project), asked(project))
    return made, Collection(root_of(project).store(), made.artifact)


def test_every_decision_stands_before_brute_force(built: tuple[Built, Collection], known: Labelled) -> None:
    made, collection = built
    listed = {row["id"]: row for row in rows(collection, "listing")}
    kept = {row["id"]: row["text"] for row in rows(collection, "documents")}
    texts = dict(zip(*_by_id(collection, known), strict=True))
    assert made.read == len(known.texts) == len(listed)
    assert made.kept == len(kept) and made.read == made.kept + sum(made.removed.values())
    assert all(texts[name] == text for name, text in kept.items())

    labels = dict(zip(texts, _labels(collection, known), strict=True))
    flagged = {name for name, row in listed.items() if row["reason"] == "contaminated"}
    meant = {name for name, label in labels.items() if label in CONTAMINATED}
    assert len(flagged & meant) / len(flagged) >= 0.99 and len(flagged & meant) / len(meant) >= 0.97
    for row in rows(collection, "decisions"):
        evidence = json.loads(row["evidence"])
        record = known.records[evidence["record"] - 1][evidence["field"]]
        mine = texts[row["id"]][evidence["document_start"] : evidence["document_end"]]
        theirs = record[evidence["evaluation_start"] : evidence["evaluation_end"]]
        assert mine.lower().split() == theirs.lower().split() and len(mine.split()) == evidence["words"]

    exact = [row for row in rows(collection, "duplicates") if "digest" in row]
    near = [row for row in rows(collection, "duplicates") if "shared" in row]
    clean = [text for name, text in texts.items() if name not in flagged]
    assert made.removed["exact_duplicate"] == len(exact) == len(clean) - len(set(clean)) >= known.labels.count("copy")
    for row in exact:
        assert texts[row["id"]] == texts[row["kept"]] and row["id"] != row["kept"]
    assert made.removed["near_duplicate"] == len(near) > 10
    for row in near:
        assert row["kept"] in kept and row["id"] not in kept
        assert similarity(texts[row["id"]], texts[row["kept"]]) == Fraction(row["shared"], row["united"]) >= THRESHOLD
    sets = {name: shingles(text) for name, text in kept.items()}
    missed = {b for a, b in combinations(sets, 2) if 5 * len(sets[a] & sets[b]) >= 4 * len(sets[a] | sets[b])}
    assert len(near) / (len(near) + len(missed)) >= 0.97


def _by_id(collection: Collection, known: Labelled) -> tuple[list[str], list[str]]:
    names, texts = [], []
    for number, path in enumerate(collection.files("listing")):
        part = known.texts[number::3]
        for row in collection.table(path).to_pylist():
            names.append(row["id"])
            texts.append(part[row["position"] - 1])
    return names, texts


def _labels(collection: Collection, known: Labelled) -> list[str]:
    found = []
    for number, path in enumerate(collection.files("listing")):
        part = known.labels[number::3]
        found += [part[row["position"] - 1] for row in collection.table(path).to_pylist()]
    return found


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tasks of few documents."""
    monkeypatch.setattr(finding, "SLICE", 20_000)
    monkeypatch.setattr(making_module, "NEAR_DOCUMENTS", 10)
    monkeypatch.setattr(making_module, "WRITE_BYTES", 60_000)


def fresh(project: Path, name: str) -> Path:
    from marin.record.root import create_root

    create_root(str(project / name / ".marin"), origin=f"marin.test/{name}")
    return project / name


def test_one_digest_in_any_order_and_after_any_kill(
    project: Path, known: Labelled, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.write(project / "raw", files=3)
    wanted = build(root_of(project), asked(project))
    for seed in range(3):
        by(shuffled(seed), monkeypatch)
        assert build(root_of(fresh(project, f"shuffled{seed}")), asked(project)).artifact == wanted.artifact
    again = fresh(project, "killed")
    deaths = 0
    for after in (0, 1, 3, 2, 5, 4, 100):
        by(dying(after), monkeypatch)
        try:
            made = build(root_of(again), asked(project))
        except Killed:
            deaths += 1
            continue
        assert made.artifact == wanted.artifact and deaths >= 4
        break
    else:
        raise AssertionError("what was done before a kill was not taken up")
    by(dying(0), monkeypatch)  # nothing is left to be executed
    assert build(root_of(again), asked(project)).again


def test_names_of_files_in_any_order_are_the_same_sources(project: Path, known: Labelled) -> None:
    known.write(project / "raw", files=3)
    globs = tuple(f"{project}/raw/part-{number}.jsonl" for number in range(3))
    first = build(root_of(project), Asked(globs))
    other = build(root_of(fresh(project, "other")), Asked(globs[::-1]))
    assert first.artifact == other.artifact and first.identity == other.identity


def test_a_document_is_asked_by_id_and_by_text(built: tuple[Built, Collection], known: Labelled) -> None:
    _, collection = built
    near = next(row for row in rows(collection, "duplicates") if "shared" in row)
    (told,) = find(collection, near["id"])
    assert not told.kept and told.text is None
    (decision,) = told.decisions
    assert (decision["step"], decision["action"], decision["reason"]) == ("near", "remove", "near_duplicate")
    assert decision["evidence"]["kept"] == near["kept"]
    assert decision["evidence"]["similarity"] == near["shared"] / near["united"]
    (holder,) = find(collection, near["kept"])
    assert holder.kept and holder.text is not None
    assert "keep" in {one["action"] for one in holder.decisions}
    copied = next(text for text, label in zip(known.texts, known.labels, strict=True) if label == "copy")
    assert {one.kept for one in find(collection, "", text=copied)} == {True, False}


def test_texts_without_words_and_short_texts_are_never_near(project: Path) -> None:
    (project / "a.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in ("!!!", "???", "a b", "a c"))
    )
    made = build(root_of(project), Asked((f"{project}/a.jsonl",)))
    assert made.kept == 4


def test_many_copies_of_one_text_cost_one_comparison_each(project: Path) -> None:
    text = " ".join(f"word{number}" for number in range(40))
    lines = [json.dumps({"text": f"{text} {number % 3}"}) + "\n" for number in range(3000)]
    (project / "a.jsonl").write_text("".join(lines))
    made = build(root_of(project), Asked((f"{project}/a.jsonl",)))
    assert made.removed == {"exact_duplicate": 2997, "near_duplicate": 2} and made.kept == 1


def test_nothing_to_read_is_said(project: Path) -> None:
    (project / "a.jsonl").write_text('{"other": 1}\n')
    with pytest.raises(DataError, match="no text 1 times"):
        build(root_of(project), Asked((f"{project}/a.jsonl",)))
