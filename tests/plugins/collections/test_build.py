"""Collections: each decision against brute force, one digest whatever happens, and questions about documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

from marin.errors import DataError, UsageError
from marin.kinds.families.collection import COLLECTION_SOURCE
from marin.plugins.collections.build import BuildRequest, BuildResult, build
from marin.plugins.collections.making import make as making_module
from marin.plugins.collections.making import rows as rows_module
from marin.plugins.collections.making.execute import in_process
from marin.plugins.collections.page import page
from marin.plugins.collections.queries import documents as documents_module
from marin.plugins.collections.queries.account import account
from marin.plugins.collections.queries.documents import Collection, find
from marin.plugins.collections.queries.leading import led_nowhere
from marin.plugins.collections.settings import settings_of
from marin.plugins.collections.sources import finding
from marin.plugins.collections.tasks.task import Task
from marin.work.placed import Start, decode
from tests.plugins.collections.labelled import CONTAMINATED, Labelled, labelled, shingles, similarity
from tests.plugins.collections.making import Killed, by, dying, root_of, rows, shuffled

THRESHOLD = Fraction(4, 5)


@pytest.fixture(scope="module")
def known() -> Labelled:
    return labelled(7, size=40)


def build_request(project: Path, **more: object) -> BuildRequest:
    return BuildRequest((f"{project}/raw/*.jsonl",), evaluations=(f"{project}/test.jsonl",), **more)  # type: ignore[arg-type]


@pytest.fixture
def built(project: Path, known: Labelled) -> tuple[BuildResult, Collection]:
    known.write(project / "raw", files=3)
    made = build(root_of(project), build_request(project))
    return made, Collection(root_of(project).store(), made.artifact)


def test_every_decision_stands_before_brute_force(built: tuple[BuildResult, Collection], known: Labelled) -> None:
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
    chained = 0
    for row in (*exact, *near):
        (told,) = find(collection, row["id"])
        evidence = told.decisions[-1]["evidence"]
        assert evidence["kept"] in kept and evidence.get("copy_of", row["kept"]) == row["kept"]
        assert evidence["similarity"] == float(similarity(texts[row["id"]], texts[evidence["kept"]]))
        chained += evidence["kept"] != row["kept"]
    assert chained > 3, "copies of what was removed as similar to a third one"
    for found in (one for examples in account(collection).examples.values() for one in examples):
        assert found.evidence.get("kept") in {None, *kept}
    assert all(name in kept for name, label in labels.items() if label in ("boilerplate", "template", "quotation"))
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
    from marin.record.creation import create_root

    create_root(str(project / name / ".marin"), origin=f"marin.test/{name}")
    return project / name


@pytest.mark.long(seconds=10)
def test_one_digest_in_any_order_and_after_any_kill(
    project: Path, known: Labelled, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.write(project / "raw", files=3)
    wanted = build(root_of(project), build_request(project))
    for seed in range(3):
        by(shuffled(seed), monkeypatch)
        monkeypatch.setattr(rows_module, "PIECE", 10 << (3 * seed))  # what is looked at together decides nothing
        monkeypatch.setattr(rows_module, "WAITING", 1 << (5 * seed))
        assert build(root_of(fresh(project, f"shuffled{seed}")), build_request(project)).artifact == wanted.artifact
    again = fresh(project, "killed")
    deaths = 0
    for after in (0, 1, 3, 2, 5, 4, 100):
        by(dying(after), monkeypatch)
        try:
            made = build(root_of(again), build_request(project))
        except Killed:
            deaths += 1
            continue
        assert made.artifact == wanted.artifact and deaths >= 4
        break
    else:
        raise AssertionError("what was done before a kill was not taken up")
    by(dying(0), monkeypatch)  # nothing is left to be executed
    assert build(root_of(again), build_request(project)).again


def test_names_of_files_in_any_order_are_the_same_sources(project: Path, known: Labelled) -> None:
    known.write(project / "raw", files=3)
    globs = tuple(f"{project}/raw/part-{number}.jsonl" for number in range(3))
    first = build(root_of(project), BuildRequest(globs))
    other = build(root_of(fresh(project, "other")), BuildRequest(globs[::-1]))
    assert first.artifact == other.artifact and first.identity == other.identity


def test_a_document_is_asked_by_id_and_by_text(built: tuple[BuildResult, Collection], known: Labelled) -> None:
    _, collection = built
    near = next(row for row in rows(collection, "duplicates") if "shared" in row)
    (told,) = find(collection, near["id"])
    assert not told.kept and told.text in known.texts
    *before, decision = told.decisions
    assert [(one["step"], one["action"]) for one in before] == [("contamination", "keep"), ("exact", "keep")]
    assert (decision["step"], decision["action"], decision["reason"]) == ("near", "remove", "near_duplicate")
    assert decision["evidence"]["kept"] == near["kept"]
    assert decision["evidence"]["similarity"] == near["shared"] / near["united"]
    (holder,) = find(collection, near["kept"])
    assert holder.kept and holder.text is not None
    assert "keep" in {one["action"] for one in holder.decisions}
    copied = next(text for text, label in zip(known.texts, known.labels, strict=True) if label == "copy")
    assert {one.kept for one in find(collection, "", text=copied)} == {True, False}


@pytest.mark.long
def test_every_step_says_what_it_left_alone(project: Path, known: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "".join(f"The cat{n} of the house{n} and the dog that we have seen were well in{n}. " for n in range(12))
    texts = [
        *(f"{long} {number}. It ended so. We left {number}." for number in (1, 22)),
        "the short one of it.",
        f"{long} {{",
    ]
    (project / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (project / "test.jsonl").write_text(json.dumps(known.records[0]) + "\n")
    steps = ["language", "gopher_quality", "c4", "fineweb", "pii"]
    settings = {"steps": [{"kind": kind} for kind in steps], "paragraphs": {}, "sampling": {}}
    own = BuildRequest((f"{project}/a.jsonl",), settings_of(settings, where="test"), (f"{project}/test.jsonl",))
    root = root_of(project)
    collection = Collection(root.store(), build(root, own).artifact)

    def told(text: str) -> dict[str, dict[str, object]]:
        (one,) = find(collection, "", text=text)
        return {str(decision["step"]): dict(decision) for decision in one.decisions}

    first, second = (told(text) for text in texts[:2])
    after = ["contamination", "exact", "near"]
    assert [*first] in ([*steps, *after, "sampling", "paragraphs"], [*steps, *after])
    whole, gone = (first, second) if len(first) > len(second) else (second, first)
    assert {one["action"] for one in whole.values()} == {"keep"} and gone["near"]["action"] == "remove"
    assert all(
        gone[step] | {"evidence": 0} == whole[step] | {"evidence": 0} for step in (*steps, "contamination", "exact")
    )
    text = texts[0] if whole is first else texts[1]
    counted = whole["gopher_quality"]["evidence"]
    assert counted["gopher_too_few_words"] == {"value": len(text.split()), "threshold": 50}  # type: ignore[index]
    assert counted["gopher_hashes"] == {"part": 0, "whole": len(text.split()), "threshold": "1/10"}  # type: ignore[index]
    assert whole["language"]["evidence"] == {"language": "en", "keep": "en"}
    assert whole["contamination"]["evidence"] == {"evaluations": "test.jsonl", "hits": 0, "words": 13, "shortest": 8}
    assert whole["near"]["evidence"]["threshold"] == 0.8  # type: ignore[index]
    assert whole["c4"]["evidence"]["c4_sentences"] == {"value": text.count(". ") + 1, "threshold": 3}  # type: ignore[index]
    assert [(*row,) for row in ((one["step"], one["action"]) for one in told(texts[2]).values())] == [
        ("language", "keep"),
        ("gopher_quality", "remove"),
    ]
    assert [one["action"] for one in told(texts[3]).values()] == ["keep", "keep", "remove"]
    monkeypatch.setattr(documents_module, "text_before", lambda *where: None)  # not in the store any more
    assert told(text)["c4"]["evidence"] == {} and [*told(text)] == [*whole]


def test_texts_without_words_and_short_texts_are_never_near(project: Path) -> None:
    (project / "a.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in ("!!!", "???", "a b", "a c"))
    )
    made = build(root_of(project), BuildRequest((f"{project}/a.jsonl",)))
    assert made.kept == 4


def test_many_copies_of_one_text_cost_one_comparison_each(project: Path) -> None:
    text = " ".join(f"word{number}" for number in range(40))
    lines = [json.dumps({"text": f"{text} {number % 3}"}) + "\n" for number in range(3000)]
    (project / "a.jsonl").write_text("".join(lines))
    made = build(root_of(project), BuildRequest((f"{project}/a.jsonl",)))
    assert made.removed == {"exact_duplicate": 2997, "near_duplicate": 2} and made.kept == 1


def test_a_rule_that_is_set_otherwise_reads_no_source_again(
    project: Path, known: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.write(project / "raw", files=3)
    first = build(root_of(project), build_request(project))
    done: list[str] = []

    def execute(start: Start, setup: bytes, tasks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        done.extend(decode(task, Task).kind for task in tasks)
        yield from in_process(start, setup, tasks)

    by(execute, monkeypatch)
    strict = settings_of({"near": {"threshold": 0.9}}, where="test")
    other = build(root_of(project), build_request(project, settings=strict))
    assert other.removed["near_duplicate"] < first.removed["near_duplicate"]
    assert set(done) == {"near", "write"}  # judged texts and their keys are the same
    done.clear()
    language = settings_of({"steps": [{"kind": "gopher_quality"}]}, where="test")
    assert build(root_of(project), build_request(project, settings=language)).artifact != first.artifact
    assert "judge" in done and "read" not in done


def test_samples_are_drawn_by_content_and_a_smaller_one_is_part_of_a_larger(project: Path, known: Labelled) -> None:
    known.write(project / "raw", files=3)
    root = root_of(project)

    def ids(sampling: dict[str, object]) -> tuple[BuildResult, set[str], dict[str, int]]:
        settings = settings_of({"near": None, "sampling": sampling}, where="test")
        made = build(root, build_request(project, settings=settings))
        sizes: dict[str, int] = {}
        for row in (kept := rows(Collection(root.store(), made.artifact), "documents")):
            sizes[row["source"]] = sizes.get(row["source"], 0) + len(row["text"].encode())
        return made, {row["id"] for row in kept}, sizes

    whole, all_ids, _ = ids({})
    tenth, some, _ = ids({"fraction": 0.1})
    fifth, more, _ = ids({"fraction": 0.2})
    assert some < more < all_ids
    assert whole.kept - tenth.kept == tenth.removed["rule:sampling"] and 0.05 < tenth.kept / whole.kept < 0.16
    gone = next(iter(all_ids - more))
    (told,) = find(Collection(root.store(), fifth.artifact), gone)
    decision = told.decisions[-1]
    assert (decision["action"], decision["reason"]) == ("remove", "rule:sampling")
    assert int(decision["evidence"]["place"]) >= int(decision["evidence"]["threshold"])
    _, _, sizes = ids({"shares": {"part-0*": 3.0, "*": 1.0}})
    first, others = sizes["part-0.jsonl"], sizes["part-1.jsonl"] + sizes["part-2.jsonl"]
    assert 2.8 < first / others < 3.2
    with pytest.raises(UsageError, match="a share that no source has"):
        ids({"shares": {"absent": 1.0, "*": 1.0}})
    with pytest.raises(UsageError, match="a source that no share names"):
        ids({"shares": {"part-0*": 1.0}})


@pytest.mark.long
def test_evidence_of_a_duplicate_says_that_what_was_kept_was_sampled_away(project: Path, known: Labelled) -> None:
    known.write(project / "raw", files=3)
    settings = settings_of(
        {"near": {}, "sampling": {"shares": {"part-0*": 1.0, "*": 4.0}, "fraction": 0.5}}, where="test"
    )
    root = root_of(project)
    made = build(root, build_request(project, settings=settings))
    collection = Collection(root.store(), made.artifact)
    kept = {row["id"]: row["text"] for row in rows(collection, "documents")}
    texts = dict(zip(*_by_id(collection, known), strict=True))
    assert not list(led_nowhere(collection))
    led: Counter[str] = Counter()
    for row in rows(collection, "duplicates"):
        (told,) = find(collection, row["id"])
        evidence = told.decisions[-1]["evidence"]
        named = "kept" if "kept" in evidence else "sampled_away"
        led[named] += 1
        other = evidence[named]
        assert (other in kept) == (named == "kept")
        assert evidence["similarity"] == float(similarity(texts[row["id"]], texts[other]))
        if named == "sampled_away":
            (gone,) = find(collection, other)
            assert gone.decisions[-1]["reason"] == "rule:sampling"
            assert gone.decisions[-1]["evidence"]["place"] == evidence["place"] and int(evidence["place"]) >= int(
                evidence["bound"]
            )
    assert min(led["kept"], led["sampled_away"]) > 5, led
    told_of = account(collection)
    assert all(
        found.evidence.get("kept", found.id) in {found.id, *kept} for one in told_of.examples.values() for found in one
    )


def test_the_report_shows_the_lines_that_a_step_changed(project: Path) -> None:
    body = "\n".join(f"Line number {number} of this page says that much about it." for number in range(4))
    said = "A paragraph of its own length that stands in two of these pages, word for word, to be cut once."
    texts = {
        "javascript": f"{body.replace('Line', 'Row')}\nPlease switch on JavaScript to see the whole of this page.\nOne more",
        "told": f"{body.replace('Line', 'Column')}\nNo JavaScript, no page: write to somebody@example.org about it, please.",
        "masked": f"{body.replace('Line', 'Verse')}\nWrite to somebody@example.org about what you read here today.",
        "damaged": f"{body.replace('Line', 'Part')}\nIt was sch\u00c3\u00b6n at this place, as they have always said.",
        "first": f"{body.replace('Line', 'Place')}\n{said}",
        "second": f"{body.replace('Line', 'Side')}\n{said}",
        "removed": "Lorem ipsum, writes somebody@example.org to all of us, and that is all that there is to say of it.",
    }
    lines = (json.dumps({"text": text}) for text in texts.values())
    (project / "a.jsonl").write_text("\n".join(lines))
    kinds = [{"kind": kind} for kind in ("c4", "encoding", "pii")]
    settings = settings_of({"steps": kinds, "near": None, "paragraphs": {}}, where="here")
    root = root_of(project)
    collection = Collection(
        root.store(), build(root, BuildRequest((f"{project}/a.jsonl",), settings=settings)).artifact
    )
    changes = account(collection).changes
    shown = {reason: [(one.taken, one.put) for one in some] for reason, some in changes.items()}
    assert shown == {
        "rule:c4_lines": [
            (("Please switch on JavaScript to see the whole of this page.", "One more"), ()),
            (("No JavaScript, no page: write to |||EMAIL_ADDRESS||| about it, please.",), ()),
        ],
        "rule:encoding": [
            (
                ("It was sch\u00c3\u00b6n at this place, as they have always said.",),
                ("It was sch\u00f6n at this place, as they have always said.",),
            )
        ],
        "rule:paragraphs": [((said,), ())],
        "rule:pii": [((), ("Write to |||EMAIL_ADDRESS||| about what you read here today.",))],
    }
    assert "somebody@example.org" not in page(account(collection)).decode()
    html = page(account(collection)).decode()
    assert f"<del>{said}</del>" in html and "<ins>Write to |||EMAIL_ADDRESS|||" in html


def test_a_source_is_an_event_with_what_its_documents_say(project: Path) -> None:
    lines: list[dict[str, object]] = [
        {
            "text": f"text number {number} of many",
            "license": "CC-BY-4.0",
            "robots": "noai, nofollow",
            "added": f"2026-0{number}",
        }
        for number in range(1, 4)
    ]
    lines.append({"text": "without any", "tags": ["x"]})
    (project / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = build(root_of(project), BuildRequest((f"{project}/a.jsonl",)))
    (event,) = [event for _, event in root_of(project).history().events(type=COLLECTION_SOURCE)]
    assert event.body == {
        "collection": made.identity,
        "name": "a.jsonl",
        "digest": made.sources[0].digest,
        "size": made.sources[0].size,
        "place": "",
        "licence": "",
        "documents": 4,
        "licences": {"CC-BY-4.0": 3, "not stated": 1},
        "signals": {"robots: noai": 3, "robots: nofollow": 3},
        "times": {"added": ["2026-01", "2026-03"]},
        "left_out": {"tags": 1},
    }


def test_nothing_to_read_is_said(project: Path) -> None:
    (project / "a.jsonl").write_text('{"other": 1}\n')
    with pytest.raises(DataError, match="no text 1 times"):
        build(root_of(project), BuildRequest((f"{project}/a.jsonl",)))
