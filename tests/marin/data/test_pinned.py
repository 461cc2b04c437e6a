"""Data by a pinned file: from a mirror, over HTTPS, or there already; other bytes and hostile archives are refused."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from marin.data import pinned
from marin.data.pinned import PinnedFile, Source, fetch, read_source
from marin.errors import DataError, UsageError
from marin.recipe.composition import installed_conf

SOURCES = installed_conf() / "sources"


def pinned_file(path: Path, name: str, unpack: str | None = None) -> PinnedFile:
    data = path.read_bytes()
    return PinnedFile(
        name=name,
        url=f"https://data.example/{name}",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        mirror=f"some/{path.name}",
        unpack=unpack,
    )


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mirror" / "some"
    folder.mkdir(parents=True)
    monkeypatch.setenv("MARIN_DATA", str(folder.parent))
    return folder


def test_every_pinned_source_of_the_repository_is_read() -> None:
    sources = {file.stem: read_source(file) for file in sorted(SOURCES.glob("*.yaml"))}
    assert {"babylm", "blimp"} <= sources.keys()
    (corpus,) = sources["babylm"].files
    assert (corpus.size, corpus.unpack) == (253170132, "babylm_data")
    assert len(sources["blimp"].files) == 67 == len({one.sha256 for one in sources["blimp"].files})
    with pytest.raises(UsageError, match=r"no such source.*babylm"):
        read_source(SOURCES / "nothing.yaml")


def test_files_come_from_the_mirror_and_are_not_brought_twice(mirror: Path, tmp_path: Path) -> None:
    (mirror / "one.txt").write_text("one\n")
    source = Source(into="texts", files=(pinned_file(mirror / "one.txt", "one.train"),))
    (made,) = fetch(source, tmp_path)
    assert made == tmp_path / "texts" / "one.train" and made.read_text() == "one\n"
    (mirror / "one.txt").unlink()
    assert fetch(source, tmp_path) == [made], "there already: no network is asked"
    (mirror / "one.txt").write_text("two\n")
    made.write_text("changed\n")
    with pytest.raises(DataError, match="checksum mismatch"):
        fetch(source, tmp_path)


def test_without_a_mirror_it_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIN_DATA", raising=False)
    (tmp_path / "there").write_text("one\n")
    one, asked = pinned_file(tmp_path / "there", "one.train"), []

    def download(dataset: object, target: Path) -> None:
        asked.append(dataset)
        target.write_text("one\n")

    monkeypatch.setattr(pinned, "download", download)
    fetch(Source(into="texts", files=(one,)), tmp_path)
    assert [getattr(dataset, "url", "") for dataset in asked] == [one.url]


def archive(path: Path, members: dict[str, str], kind: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, text in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = kind << 16
            made.writestr(info, text)
    return path


def test_an_archive_is_taken_apart_and_only_the_wanted_folder_of_it(mirror: Path, tmp_path: Path) -> None:
    path = archive(mirror / "all.zip", {"corpus/a/x.train": "x\n", "corpus/y.dev": "y\n", "__MACOSX/corpus/z": "z"})
    source = Source(into=".", files=(pinned_file(path, "all.zip", "corpus"),))
    assert fetch(source, tmp_path) == [tmp_path / "corpus"]
    assert sorted(str(file.relative_to(tmp_path / "corpus")) for file in (tmp_path / "corpus").rglob("*.*")) == [
        "a/x.train",
        "y.dev",
    ]
    assert not (tmp_path / "__MACOSX").exists() and not list(tmp_path.glob(".fetch-*"))
    path.unlink()
    assert fetch(source, tmp_path) == [tmp_path / "corpus"]


@pytest.mark.parametrize(
    ("members", "kind"),
    [({"corpus/../../outside": "x"}, 0), ({"corpus/link": "/etc/passwd"}, 0o120000), ({"other/x": "x"}, 0)],
)
def test_a_hostile_archive_is_refused_whole(mirror: Path, tmp_path: Path, members: dict[str, str], kind: int) -> None:
    path = archive(mirror / "all.zip", members, kind)
    with pytest.raises(DataError, match="not taken apart"):
        fetch(Source(into=".", files=(pinned_file(path, "all.zip", "corpus"),)), tmp_path / "here")
    assert not (tmp_path / "here" / "corpus").exists() and not (tmp_path / "outside").exists()
    (mirror / "all.zip").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(DataError):
        fetch(Source(into=".", files=(pinned_file(mirror / "all.zip", "all.zip", "corpus"),)), tmp_path / "here")
