"""Sources that are not files of this machine: lists of pinned files, objects of buckets, files of the Hub.

What a source needs is fetched into the cache folder, where it lies under a name that its digest or its version gives, so that
the next build, and a verification, find it there. Its bytes are hashed again whenever they are used.

    pinned:LIST.jsonl               a line a file: {"url" or "urls", "size", "sha256"}, perhaps "name" and "licence"
    gs://BUCKET/GLOB  s3://BUCKET/GLOB
    hf:datasets/OWNER/NAME@COMMIT/GLOB
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ledger import LedgerError, NotFound, Storage, open_storage
from marin.data.local import json_objects
from marin.data.network import hub
from marin.data.network.fetching import AT_A_TIME, Pinned, fetch_all
from marin.data.reach import check_address
from marin.errors import DataError, DataMissing
from marin.process.progress import bar

PINNED, BUCKETS = "pinned:", ("gs://", "s3://")
BLOCK = 1 << 20
CARD = "README.md"
"""Where the Hub has what a repository says of itself."""


@dataclass(frozen=True)
class Remote:
    """A file elsewhere: its name in the collection, the address that it comes from, and what is declared of it. ``path``: where
    it lies once it is fetched."""

    name: str
    place: str
    path: Path
    licence: str = ""
    pinned: Pinned | None = None
    storage: Storage | None = None
    key: str = ""


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a list of pinned files."""

    size: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    url: str = ""
    urls: tuple[str, ...] = ()
    name: str = ""
    licence: str = ""


def is_remote(pattern: str) -> bool:
    """Whether a source is an address and no glob of files."""
    return pattern.startswith((PINNED, hub.PREFIX, *BUCKETS))


def remotes(pattern: str, cache: Path) -> Iterator[Remote]:
    """The files that an address leads to, in the order of their names.

    Raises:
        DataError: the list is not a list, or nothing matches.
        DataMissing: the address may not be asked, or does not answer.
        UsageError: it is not an address.
    """
    if pattern.startswith(PINNED):
        found = list(_of_list(pattern.removeprefix(PINNED), cache))
    elif pattern.startswith(hub.PREFIX):
        found = list(_of_hub(pattern, cache))
    else:
        found = list(_of_bucket(pattern, cache))
    if not found:
        raise DataMissing(
            "nothing matches", where=pattern, expected="at least one file", found="none", cure="correct the address"
        )
    yield from sorted(found, key=lambda remote: remote.name)


def bring(wanted: list[Remote]) -> dict[str, str]:
    """Fetch what is not in the cache; of those that could not be had, by their names, why: in few words and without what
    changes from one try to the next."""
    listed = [(remote.pinned, remote.path) for remote in wanted if remote.pinned is not None]
    names = [remote.name for remote in wanted if remote.pinned is not None]
    failed = {names[number]: error for number, error in fetch_all(listed).items()}
    objects = [remote for remote in wanted if remote.storage is not None and not remote.path.exists()]
    with ThreadPoolExecutor(AT_A_TIME) as threads, bar("fetch sources", len(objects)) as report:
        for done, (remote, error) in enumerate(zip(objects, threads.map(_copied, objects), strict=True), start=1):
            if error is not None:
                failed[remote.name] = error
            report(done, remote.name)
    return {name: _reason(error) for name, error in failed.items()}


def _reason(error: LedgerError) -> str:
    said = str(error)
    if status := re.search(r"HTTP status (\d{3})", said):
        return f"status {status[1]}"
    if "checksum mismatch" in said or "other bytes" in said:
        return "other bytes"
    return "not there" if isinstance(error, NotFound) else "no answer"


def _of_list(path: str, cache: Path) -> Iterator[Remote]:
    base = Path(path)
    try:
        with base.open("rb") as file:
            for number, value in json_objects(file, path):
                try:
                    line = msgspec.convert(value, Line)
                except msgspec.ValidationError as error:
                    raise _no_line(f"{path}:{number}", str(error)) from None
                urls = ((line.url,) if line.url else ()) + line.urls
                if not urls or not all(url.startswith(("https://", "http://")) for url in urls):
                    raise _no_line(f"{path}:{number}", f"addresses {', '.join(urls) or 'none'}"[:200])
                name = line.name or urls[0].partition("?")[0].rpartition("/")[2]
                pinned = Pinned(urls, line.size, f"sha256:{line.sha256}")
                yield Remote(name, urls[0], cache / line.sha256 / _base(name), line.licence, pinned)
    except OSError as error:
        raise DataMissing(
            "a list of sources cannot be read", where=path, found=error.strerror or str(error), cure="name another file"
        ) from error


def _no_line(where: str, found: str) -> DataError:
    return DataError(
        "not a pinned source",
        where=where,
        expected="url or urls (https), size, sha256; perhaps name and licence",
        found=found,
        cure="correct the line",
    )


def _of_hub(pattern: str, cache: Path) -> Iterator[Remote]:
    repository, wanted = hub.parse(pattern)
    matches = re.compile(_expression(wanted or "**"))
    files = hub.files(repository)

    def lies(path: str) -> Path:
        return cache / hashlib.sha256(f"{repository.address}/{path}".encode()).hexdigest() / _base(path)

    licence = _card_licence(files.get(CARD), lies(CARD))
    for path, pinned in sorted(files.items()):
        if matches.fullmatch(path):
            yield Remote(path, f"{repository.address}/{path}", lies(path), licence, pinned)


def _card_licence(card: Pinned | None, path: Path) -> str:
    """The licence that a data set's card states in its front matter; empty where it states none, or none can be had."""
    if card is None or card.size > BLOCK or fetch_all([(card, path)]):
        return ""
    import yaml

    before, _, behind = path.read_text("utf-8", "replace").partition("---\n")
    try:
        said = None if before.strip() else yaml.safe_load(behind.partition("\n---")[0])
    except (yaml.YAMLError, RecursionError, ValueError):
        return ""
    said = said.get("license") if isinstance(said, dict) else None
    named = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    return ", ".join(map(str, named))[:200]


def _of_bucket(pattern: str, cache: Path) -> Iterator[Remote]:
    scheme, _, rest = pattern.partition("://")
    bucket, _, wanted = rest.partition("/")
    check_address(f"{scheme}://{bucket}")
    storage = open_storage(f"{scheme}://{bucket}", readonly=True)
    matches = re.compile(_expression(wanted))
    fixed = re.split(r"[*?\[]", wanted, maxsplit=1)[0]
    base = fixed.rpartition("/")[0]
    for detail in storage.details(fixed):
        if matches.fullmatch(detail.name):
            version = f"{scheme}://{bucket}/{detail.name} {detail.size} {detail.modified}"
            folder = cache / hashlib.sha256(version.encode()).hexdigest()
            name = detail.name.removeprefix(f"{base}/") if base else detail.name
            place = f"{scheme}://{bucket}/{detail.name}"
            yield Remote(name, place, folder / _base(name), storage=storage, key=detail.name)


def _copied(remote: Remote) -> LedgerError | None:
    assert remote.storage is not None
    part = remote.path.with_name(f".tmp-{os.getpid()}-{remote.path.name}")
    try:
        remote.path.parent.mkdir(parents=True, exist_ok=True)
        with remote.storage.open(remote.key) as source, part.open("wb") as target:
            for block in iter(partial(source.read, BLOCK), b""):
                target.write(block)
        part.replace(remote.path)
    except LedgerError as error:
        return error
    finally:
        part.unlink(missing_ok=True)
    return None


def _base(name: str) -> str:
    return name.rpartition("/")[2][-200:] or "file"


def _expression(glob: str) -> str:
    """A glob as a regular expression: ``*`` stays inside of a folder, ``**/`` reaches into any, ``[ab]`` and ``[!a-c]`` are one
    character."""
    meant: Mapping[str, str] = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    found = ""
    for part in re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]!/][^\]/]*\])", glob):
        if len(part) > 2 and part.startswith("["):
            inner = part[1:-1].removeprefix("!").replace("\\", "\\\\").replace("^", "\\^").replace("[", "\\[")
            found += f"(?!/)[{'^' if part[1] == '!' else ''}{inner}]"
        else:
            found += meant.get(part) or re.escape(part)
    return found
