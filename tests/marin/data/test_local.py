"""The user's own files: which are read, in which order, and what is said about bad ones."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from marin.data.documents import Document
from marin.data.local import SourceFile, matched, read_file, read_pairs
from marin.errors import DataError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def documents(path: Path, *, field: str = "text", digest: str | None = None) -> list[Document]:
    file = SourceFile(path, path.name)
    return list(
        read_file(
            file,
            "mine",
            text_field=field,
            split="lines",
            paragraphs_per_document=1,
            expected_digest=digest or file.digest(),
        )
    )


def failure(path: Path, **options: str) -> DataError:
    with pytest.raises(DataError) as caught:
        documents(path, **options)
    assert caught.value.cure
    return caught.value


def test_globs_in_order_files_by_name_each_once(folder: Path) -> None:
    for name in ("b/2.txt", "b/10.txt", "b/a.txt", "a/1.jsonl", "b/deep/x.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    assert [file.name for file in matched(["b/**/*.txt", "a/*.jsonl", "b/2.txt"])] == [
        "10.txt",
        "2.txt",
        "a.txt",
        "deep/x.txt",
        "1.jsonl",
    ]


def test_two_files_never_have_one_name(folder: Path) -> None:
    for name in ("a/1.txt", "b/1.txt", "c/1.txt"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("x")
    names = [file.name for file in matched(["a/*.txt", "b/*.txt", "a/1.txt", "c/*.txt"])]
    assert names == ["1.txt", "2:1.txt", "4:1.txt"]


def test_a_name_that_is_not_utf8_is_refused(folder: Path) -> None:
    try:
        Path(os.fsdecode(b"\xff.txt")).write_text("x")
    except OSError:
        pytest.skip("this file system has no such names")
    with pytest.raises(DataError, match="not UTF-8"):
        matched(["*.txt"])


def test_names_do_not_depend_on_where_the_folder_is(folder: Path) -> None:
    (folder / "data" / "en").mkdir(parents=True)
    (folder / "data" / "en" / "1.txt").write_text("x")
    for pattern in ("data/**/*.txt", f"{folder}/data/**/*.txt", "../*/data/**/*.txt"):
        names = [file.name for file in matched([pattern])]
        assert names[0].endswith("en/1.txt")
    assert matched(["data/**/*.txt"])[0].name == matched([f"{folder}/data/**/*.txt"])[0].name == "en/1.txt"


@pytest.mark.parametrize(
    ("pattern", "what"), [("nothing/*.txt", "no file matches"), ("data/*", "unknown kind of file")]
)
def test_globs_that_cannot_be_read_are_refused(folder: Path, pattern: str, what: str) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "picture.png").write_bytes(b"x")
    with pytest.raises(DataError, match=what):
        matched([pattern])


def test_json_lines_plain_and_compressed(folder: Path) -> None:
    lines = "".join(json.dumps({"text": text, "other": 1}) + "\n" for text in ("one", "zwei\u2028ü", " "))
    (folder / "a.jsonl").write_text(lines + "\n")
    (folder / "a.jsonl.gz").write_bytes(gzip.compress((lines + "\n").encode()))
    for name in ("a.jsonl", "a.jsonl.gz"):
        read = documents(folder / name)
        assert [document.text for document in read] == ["one", "zwei\u2028ü"]
        assert [document.metadata for document in read] == [{"file": name, "line": 1}, {"file": name, "line": 2}]


def test_a_byte_order_mark_is_no_json(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "x"}\n')
    assert documents(folder / "a.jsonl")[0].text == "x"


def test_another_field(folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"content": "x"}\n')
    assert documents(folder / "a.jsonl", field="content")[0].text == "x"
    error = failure(folder / "a.jsonl")
    assert "a.jsonl:1" in error.where
    assert error.found == "no such field"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"text": ', "line is not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"text": 5}', "document has no text"),
        (b'{"text": null}', "document has no text"),
        (b'{"text": "a\\ud800b"}', "text is not Unicode"),
        (b'{"text": "\xff"}', "text is not UTF-8"),
        (b"[" * 100_000, "line is not JSON"),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_bad_line_is_named(folder: Path, line: bytes, what: str, compressed: bool) -> None:
    data = b'{"text": "good"}\n' + line + b"\n"
    path = folder / ("a.jsonl.gz" if compressed else "a.jsonl")
    path.write_bytes(gzip.compress(data) if compressed else data)
    error = failure(path)
    assert what in error.what
    assert f"{path.name}:2" in error.where


def test_the_byte_of_a_bad_line_counts_from_the_start(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(b'{"text": "good"}\n{"text": "\xff"}\n')
    assert failure(folder / "a.jsonl").where.endswith("a.jsonl:2: byte 27")


@pytest.mark.parametrize("damage", ["cut", "flip", "other"])
def test_damaged_gzip(folder: Path, damage: str) -> None:
    data = gzip.compress(b'{"text": "good"}\n' * 1000)
    data = {"cut": data[:-20], "flip": data[:30] + b"\x00\x00" + data[32:], "other": b"not gzip"}[damage]
    (folder / "a.jsonl.gz").write_bytes(data)
    assert failure(folder / "a.jsonl.gz").what in (
        "compressed file is damaged",
        "text is not UTF-8",
        "line is not JSON",
    )


@pytest.mark.parametrize(
    "unpacked",
    [b'{"text": "' + b" " * (3 << 17) + b'good"}\n', b"\n" * (3 << 17), b'{"text": "good"}\n' * (1 << 15)],
    ids=["a long line", "empty lines", "short lines"],
)
def test_a_compressed_file_that_unpacks_to_too_much(
    folder: Path, unpacked: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marin.data.local.MOST_LINE", 1 << 17)
    monkeypatch.setattr("marin.data.local.MOST_RATIO", 256)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(unpacked))
    assert failure(folder / "a.jsonl.gz").what == "compressed file unpacks to too much"
    monkeypatch.setattr("marin.data.local.MOST_LINE", 1 << 20)
    list(documents(folder / "a.jsonl.gz"))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.jsonl.gz"])
def test_a_file_that_changed_since_it_was_digested(folder: Path, name: str) -> None:
    line = b'{"text": "good"}\n'
    (folder / name).write_bytes(gzip.compress(line) if name.endswith("gz") else line)
    digest = SourceFile(folder / name, name).digest()
    assert documents(folder / name, digest=digest)
    changed = b'{"text": "bad"}\n'
    (folder / name).write_bytes(gzip.compress(changed) if name.endswith("gz") else changed)
    error = failure(folder / name, digest=digest)
    assert error.what == "data file changed while it was read"
    assert error.expected == digest


def test_a_missing_file(folder: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        SourceFile(folder / "gone.txt", "gone.txt").digest()


def test_minimal_pairs_of_the_users_own(folder: Path) -> None:
    path = folder / "my_pairs.jsonl"
    path.write_text(
        '{"sentence_good": "A b.", "sentence_bad": "A c.", "UID": "u", "pairID": 7}\n'
        '{"sentence_good": "A b.", "sentence_bad": "B b."}\n'
    )
    assert list(read_pairs([SourceFile(path, path.name)])) == [
        {"sentence_good": "A b.", "sentence_bad": "A c.", "UID": "u", "pairID": "7"},
        {"sentence_good": "A b.", "sentence_bad": "B b.", "UID": "my_pairs", "pairID": "2"},
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [('{"sentence_good": "A."}', "no text"), ('{"sentence_good": "A.", "sentence_bad": "A."}', "equal sentences")],
)
def test_bad_minimal_pairs_are_refused(folder: Path, line: str, what: str) -> None:
    path = folder / "pairs.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=what):
        list(read_pairs([SourceFile(path, path.name)]))
