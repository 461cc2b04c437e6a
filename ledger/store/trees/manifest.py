"""Manifest: the canonical list of a tree's files, whose sha256 is the digest of the tree.

The bytes are RFC 8785 canonical JSON, entries sorted by the UTF-8 bytes of their paths:

    {"entries":[{"digest":"sha256:…","executable":false,"path":"a.txt","size":3},…],"kind":"tree","version":1}

A file above 8 MiB has one key more, ``parts``: the hex Merkle root over its 8 MiB parts (``ledger.store.parts``), so
that a range of it can be verified under the digest of the tree without reading the rest. It is required there
and refused elsewhere: one tree has one manifest. Folders exist through their files; an empty folder is not
part of a tree. Modes other than the executable bit, owners, times and links are not either.

Reading is strict: the bytes are decoded, checked (``ledger.store.trees.paths``), encoded again, and must come out the
same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import InitVar, dataclass
from functools import cached_property, partial
from itertools import pairwise, repeat
from operator import itemgetter
from typing import ClassVar, Final, NamedTuple

import orjson

from ledger.errors import Malformed, NotFound
from ledger.format.digest import check_digest, check_digests, digest_bytes
from ledger.store.parts import PART_SIZE
from ledger.store.trees.paths import PLAIN_PATH, check_tree

_KEYS: Final = frozenset({"digest", "executable", "path", "size"})
_PLAIN_FILE: Final = re.compile(
    r'\{"digest":"sha256:([0-9a-f]{64})","executable":false,"path":"(' + PLAIN_PATH + r')","size":[0-9]{1,6}\}'
)
_NONE: Final = ()
"""In the place of parts that are not there; null would be another encoding."""
_MAX_SIZE: Final = 2**53 - 1


class _Fields(NamedTuple):
    path: str
    size: int
    digest: str
    executable: bool
    parts: str | None


class ManifestEntry(_Fields):
    """One file of a tree: where it lies, how long it is, what its bytes are. A tuple, for 100,000 of them.

    Raises:
        Malformed: not a digest, size or root.
    """

    __slots__ = ()

    def __new__(
        cls, path: str, size: int, digest: str, executable: bool = False, parts: str | None = None
    ) -> ManifestEntry:
        check_digest(digest)
        if not 0 <= size <= _MAX_SIZE:
            raise Malformed(what="size in a manifest", where=path, expected="0 to 2^53-1", found=str(size))
        if (parts is not None) != (size > PART_SIZE):
            expected = "the root of its parts" if size > PART_SIZE else f"no parts at or below {PART_SIZE} bytes"
            raise Malformed(what="parts in a manifest", where=path, expected=expected, found=repr(parts))
        if parts is not None:
            check_digest(f"sha256:{parts}")
        return tuple.__new__(cls, (path, size, digest, executable, parts))

    of: ClassVar[Callable[[tuple[str, int, str, bool, str | None]], ManifestEntry]]
    """An entry of these fields in this order, for who has just made or checked them: they are not looked at."""


ManifestEntry.of = partial(tuple.__new__, ManifestEntry)


@dataclass(frozen=True)
class Manifest:
    """The files of one tree, in canonical order. ``of`` sorts and checks; ``parse`` reads the stored bytes.

    ``checked`` is for who made the list by ``ledger.store.trees.scan.scan`` and has had its paths checked before.
    """

    entries: tuple[ManifestEntry, ...]
    checked: InitVar[bool] = False

    def __post_init__(self, checked: bool) -> None:
        if checked:
            return
        check_tree(entry.path for entry in self.entries)
        # Text in UTF-8, which the paths are known to be, is ordered by bytes as it is by characters.
        if any(left.path >= right.path for left, right in pairwise(self.entries)):
            raise Malformed(
                what="manifest", expected="entries sorted by the UTF-8 bytes of their paths", found="another order"
            )

    @classmethod
    def of(cls, entries: Iterable[ManifestEntry]) -> Manifest:
        """A manifest of these files in any order."""
        return cls(tuple(sorted(entries, key=lambda entry: entry.path.encode("utf-8", "surrogatepass"))))

    @classmethod
    def parse(cls, data: bytes, *, where: str = "") -> Manifest:
        """The manifest that these canonical bytes hold; Malformed or Refused says which rule they break."""
        try:
            document = orjson.loads(data)
            if type(document) is not dict or document.get("kind") != "tree" or document.get("version") != 1:
                raise ValueError("no object of kind tree, version 1")
            manifest = cls(_entries(document["entries"]))
            canonical = _encoded(document["entries"]) == data  # which have exactly the keys and types of entries
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Malformed(
                what="manifest",
                where=where,
                expected="canonical JSON of a tree",
                found=str(error) or type(error).__name__,
            ) from error
        if not canonical:
            raise Malformed(
                what="manifest", where=where, expected="canonical JSON (RFC 8785)", found="another encoding"
            )
        return manifest

    def encode(self) -> bytes:
        """The canonical bytes.

        ``orjson`` gives RFC 8785 here, many times faster than a general encoder: the keys are ASCII, the numbers safe
        integers, and its string escapes are those of the RFC. A test compares the two.
        """
        return _encoded([_fields(entry) for entry in self.entries])

    @cached_property
    def digest(self) -> str:
        """The digest of the tree."""
        return digest_bytes(self.encode())

    @property
    def size(self) -> int:
        """How many bytes the files have together."""
        return sum(entry.size for entry in self.entries)

    def __iter__(self) -> Iterator[ManifestEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def entry(self, path: str) -> ManifestEntry:
        """The entry of one file; ``NotFound`` where the tree has none at this path."""
        found = self._by_path.get(path)
        if found is None:
            raise NotFound(
                what="file in a tree", where=path, expected="a path of its manifest", cure="list the tree first"
            )
        return found

    @cached_property
    def _by_path(self) -> dict[str, ManifestEntry]:
        return {entry.path: entry for entry in self.entries}


def plain_files(data: bytes) -> list[tuple[str, str]]:
    """Digest (in hexadecimal) and path of most small files of a manifest, by one look at text that nobody has parsed
    yet.

    For who begins with them meanwhile. The paths break no rule; whether this is a manifest, and has these files,
    ``Manifest.parse`` says.
    """
    return _PLAIN_FILE.findall(data.decode("utf-8", "replace"))


def _encoded(entries: list[dict[str, object]]) -> bytes:
    document = {"entries": entries, "kind": "tree", "version": 1}
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER)


def _fields(entry: ManifestEntry) -> dict[str, object]:
    path, size, digest, executable, parts = entry
    fields: dict[str, object] = {"digest": digest, "executable": executable, "path": path, "size": size}
    if parts is not None:
        fields["parts"] = parts
    return fields


def _entries(items: object) -> tuple[ManifestEntry, ...]:
    """The entries that these objects stand for, looked at by columns: one by one they would cost twice as much."""
    if type(items) is not list or any(type(item) is not dict for item in items):
        raise ValueError("no list of objects")
    if not items:
        return ()
    large = any("parts" in item for item in items)
    rows = [(*_values(item), item.get("parts", _NONE)) for item in items] if large else list(map(_values, items))
    columns = list(zip(*rows, strict=True))
    types = [set(map(type, column)) for column in columns]
    if types[:4] != [{str}, {int}, {str}, {bool}] or not set().union(*types[4:]) <= {str, type(_NONE)}:
        raise ValueError("an entry with a value of the wrong type")
    if any(len(item) != len(_KEYS) + ("parts" in item) for item in items):
        raise ValueError(f"an entry that has not exactly the keys {', '.join(sorted(_KEYS))} and perhaps parts")
    if large or max(columns[1]) > PART_SIZE or min(columns[1]) < 0:
        return tuple(
            ManifestEntry(path, size, digest, executable, item.get("parts"))
            for (path, size, digest, executable, *_), item in zip(rows, items, strict=True)
        )
    check_digests(columns[2])
    return tuple(map(ManifestEntry.of, zip(*columns, repeat(None), strict=False)))


_values = itemgetter("path", "size", "digest", "executable")
