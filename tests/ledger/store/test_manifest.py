"""Manifests and the paths they may hold: one encoding, and nothing that could leave the tree or merge two files."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import PART_SIZE, LedgerError, Malformed, Manifest, ManifestEntry, NotFound, Refused
from ledger.format.canonical import canonical_bytes
from ledger.store.trees.paths import check_path, check_tree

EMPTY = "sha256:" + hashlib.sha256(b"").hexdigest()


def entry(path: str, size: int = 0, **more: object) -> ManifestEntry:
    return ManifestEntry(path, size, EMPTY, **more)  # type: ignore[arg-type]


def test_the_bytes_of_a_small_tree_are_these() -> None:
    manifest = Manifest.of([entry("b/run.sh", 2, executable=True), entry("a.txt", 3)])
    line = '{"digest":"%s","executable":%s,"path":"%s","size":%d}'
    expected = (
        '{"entries":['
        + line % (EMPTY, "false", "a.txt", 3)
        + ","
        + line % (EMPTY, "true", "b/run.sh", 2)
        + '],"kind":"tree","version":1}'
    )
    assert manifest.encode() == expected.encode()
    assert manifest.digest == "sha256:" + hashlib.sha256(expected.encode()).hexdigest()
    assert (manifest.size, len(manifest), manifest.entry("a.txt").size) == (5, 2, 3)
    with pytest.raises(NotFound):
        manifest.entry("a")


_names = st.text(
    st.characters(codec="utf-8", exclude_characters='<>:"|?*\\/', exclude_categories=("Cc", "Cs")),
    min_size=1,
    max_size=12,
).filter(lambda name: name[-1] not in ". ")


@given(st.lists(st.lists(_names, min_size=1, max_size=3).map("/".join), max_size=6))
def test_encoding_is_canonical_and_read_back_the_same(paths: list[str]) -> None:
    try:
        manifest = Manifest.of(entry(path, index) for index, path in enumerate(paths))
    except Refused:
        return  # names that collide or are devices have tests of their own
    data = manifest.encode()
    assert data == canonical_bytes(json.loads(data))
    assert Manifest.parse(data) == manifest


def test_order_is_that_of_utf8_and_not_of_utf16() -> None:
    beyond, below = "\U0001f600", "\ufb01"  # in UTF-16 the first sorts before the second
    assert [e.path for e in Manifest.of([entry(beyond), entry(below)])] == [below, beyond]


GOOD = Manifest.of([entry("a", 1), entry("b", 2)]).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.replace(b'"kind"', b' "kind"'),
        lambda d: d.replace(b'"version":1', b'"version":1.0'),
        lambda d: d.replace(b'"version":1', b'"version":2'),
        lambda d: d.replace(b'"kind":"tree"', b'"kind":"state"'),
        lambda d: d.replace(b'"size":1', b'"size":-1'),
        lambda d: d.replace(b'"size":1', b'"size":true'),
        lambda d: d.replace(b'"size":1', b'"size":1,"size":1'),
        lambda d: d.replace(b'"size":1', b'"size":9007199254740993'),
        lambda d: d.replace(b'"executable":false', b'"executable":0', 1),
        lambda d: d.replace(b'"path":"a"', b'"path":"c"'),
        lambda d: d.replace(b'"path":"b"', b'"path":"a"'),
        lambda d: d.replace(b'"path":"a"', b'"mode":3,"path":"a"'),
        lambda d: d.replace(b'"path":"a"', b'"parts":null,"path":"a"'),
        lambda d: d.replace(b"sha256:", b"sha512:", 1),
        lambda d: d.replace(b'","executable"', b'\\n","executable"', 1),
        lambda d: d.replace(b'","executable"', b"\\nsha256:" + b"0" * 64 + b'","executable"', 1),
        lambda d: d.replace(b'"kind"', b'"extra":1,"kind"'),
        lambda d: d[:-1],
        lambda d: b"[]",
        lambda d: b"\xff",
        lambda d: b"[" * 100_000,
    ],
)
def test_any_other_encoding_is_malformed_or_refused(change: object) -> None:
    with pytest.raises((Malformed, Refused)) as caught:
        Manifest.parse(change(GOOD), where="here")  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_a_large_file_has_the_root_of_its_parts_and_no_other_has() -> None:
    root = "ab" * 32
    assert entry("big", PART_SIZE + 1, parts=root).parts == root
    for size, parts in ((PART_SIZE + 1, None), (PART_SIZE, root), (PART_SIZE + 1, "ab")):
        with pytest.raises(Malformed):
            entry("big", size, parts=parts)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../a",
        "a/../b",
        "a/..",
        ".",
        "./a",
        "a//b",
        "a/",
        "a\\b",
        "C:a",
        "a\0b",
        "a\nb",
        "a\x7f",
        "con",
        "CON",
        "Aux.txt",
        "nul.tar.gz",
        "com1",
        "lpt¹",
        "a/PRN ",
        "trailing.",
        "trailing ",
        "what?",
        "a*",
        "x|y",
        '"',
        "<",
        ".git/hooks/post-checkout",
        "sub/.GIT/config",
        "x" * 256,
        "é" * 128,
        "/".join(["deep"] * 300),
        "\ud800",
    ],
)
def test_paths_that_are_refused(path: str) -> None:
    with pytest.raises(Refused) as caught:
        check_path(path)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    with pytest.raises(LedgerError):
        Manifest.of([entry(path)])


@pytest.mark.parametrize(
    "path", ["a", "a/b/c", ".hidden", "..a", "a..b", "console", "com10", "ä/日本語", "x" * 255, "-rf", "~"]
)
def test_paths_that_are_fine(path: str) -> None:
    assert Manifest.parse(Manifest.of([entry(path)]).encode()).entries[0].path == path


@pytest.mark.parametrize(
    "paths",
    [
        ["a", "A"],
        ["readme", "README"],
        ["dir/a", "DIR/b"],
        ["a/x/1", "a/X/2"],
        ["é", "e\u0301"],
        ["ß", "SS"],
        ["a", "a/b"],
        ["a/b", "a"],
        ["a/b/c", "a/b"],
        ["a", "a"],
    ],
)
def test_two_paths_that_would_be_one_file(paths: list[str]) -> None:
    for order in (paths, paths[::-1]):
        with pytest.raises(Refused):
            check_tree(order)


def test_files_of_one_folder_do_not_collide_with_it() -> None:
    check_tree(["a/b/c", "a/b/d", "a/e", "ab", "a.b"])
    assert len(Manifest.of(entry(p) for p in ["a/b/c", "a/b/d", "a/e", "ab", "a.b"])) == 5
