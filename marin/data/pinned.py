"""Data that others publish, by a pinned file of this repository: where each file lies, its size, its sha256.

``conf/sources/NAME.yaml`` has ``into`` (a folder) and ``files``; :func:`fetch` brings them there, from the folder ``MARIN_DATA``
if it has them (``mirror``), otherwise over HTTPS (:mod:`marin.data.remote`). A file that is there already is hashed and kept.
What is an archive is taken apart (``unpack``: the folder in it that is wanted): ZIP alone, of plain files, whose names stay
below ``into``.
"""

from __future__ import annotations

import logging
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from marin.data.local import SourceFile
from marin.data.remote import check, download, mirrored
from marin.errors import DataError, UsageError
from marin.recipe.form.yaml import read_yaml
from marin.recipe.schema import UrlDataset
from marin.recipe.section import Name, Positive, Sha256

log = logging.getLogger(__name__)

MOST_FILES, MOST_BYTES = 10_000, 20 << 30
"""Of an archive."""
Below = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^/\\][^\\]*$")]
"""A path below a folder."""


class PinnedFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file. ``unpack``: the folder of the archive that is wanted, None for a file as it is."""

    name: Name
    url: Annotated[str, Meta(pattern=r"^https://")]
    sha256: Sha256
    size: Positive
    mirror: Below
    unpack: Below | None = None


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All files of one source, and the folder that they belong into."""

    into: Below
    files: Annotated[tuple[PinnedFile, ...], Meta(min_length=1, max_length=10_000)]


def read_source(file: Path) -> Source:
    """The source that a file of ``conf/sources`` pins.

    Raises:
        UsageError: it is not there, or no such file.
    """
    known = ", ".join(sorted(path.stem for path in file.parent.glob("*.yaml"))) or "none"
    if not file.is_file():
        raise UsageError("no such source", where=str(file), expected=known, found=file.stem, cure="add its file")
    try:
        return msgspec.convert(read_yaml(file.read_bytes()), Source)
    except (OSError, ValueError) as error:
        raise UsageError(
            "a source that cannot be read",
            where=str(file),
            expected="into and files: name, url, sha256, size, mirror",
            found=" ".join(str(error).split())[:200],
        ) from None


def fetch(source: Source, base: Path) -> list[Path]:
    """Bring every file of ``source`` below ``base``; what is there now, in order.

    Raises:
        DataError: a file has other bytes than those pinned, wherever it comes from; or an archive is not what it should be.
        DataMissing: it cannot be had.
    """
    folder = base / source.into
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    for one in source.files:
        target = folder / one.name
        dataset = UrlDataset(name=one.name, url=one.url, sha256=one.sha256, mirror=one.mirror, size=one.size)
        if one.unpack is None:
            if not (target.is_file() and SourceFile(target, one.name).digest() == f"sha256:{one.sha256}"):
                _bring(dataset, target)
            found.append(target)
            continue
        if (folder / one.unpack).is_dir():
            log.info("%s is there already", folder / one.unpack)
        else:
            with TemporaryDirectory(prefix=".fetch-", dir=folder) as place:
                archive = mirrored(one.mirror)
                if archive is None:
                    download(dataset, archive := Path(place) / one.name)
                else:
                    check(archive, dataset)
                _unpack(archive, one.unpack, Path(place) / "unpacked")
                (Path(place) / "unpacked" / one.unpack).rename(folder / one.unpack)
        found.append(folder / one.unpack)
    return found


def _bring(dataset: UrlDataset, target: Path) -> None:
    mirror = mirrored(dataset.mirror)
    if mirror is None:
        download(dataset, target)
        return
    check(mirror, dataset)
    partial = target.with_name(f".tmp-{target.name}")
    shutil.copyfile(mirror, partial)
    partial.replace(target)


def _unpack(archive: Path, wanted: str, dest: Path) -> None:
    """The plain files of ``archive`` below the folder ``wanted``."""
    size = 0

    def refuse(found: str) -> DataError:
        return DataError(
            "an archive that is not taken apart",
            where=str(archive),
            expected=f"plain files below {wanted}/, at most {MOST_FILES} and {MOST_BYTES} bytes",
            found=found[:200],
        )

    try:
        with zipfile.ZipFile(archive) as opened:
            members = [one for one in opened.infolist() if one.filename.startswith(f"{wanted}/") and not one.is_dir()]
            if not members or len(members) > MOST_FILES:
                raise refuse(f"{len(members)} files")
            for one in members:
                path = PurePosixPath(one.filename)
                kind = stat.S_IFMT(one.external_attr >> 16)
                if path.is_absolute() or ".." in path.parts or kind not in (0, stat.S_IFREG):
                    raise refuse(one.filename)
                size += one.file_size
                if size > MOST_BYTES:
                    raise refuse(f"{size} bytes")
                target = dest / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(one) as stored, target.open("wb") as file:
                    shutil.copyfileobj(stored, file)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise refuse(str(error)) from None
