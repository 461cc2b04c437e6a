"""Manifest: the canonical list of a tree's files, whose sha256 is the digest of the tree.

The bytes are RFC 8785 canonical JSON, entries sorted by the UTF-8 bytes of their paths:

    {"entries":[{"digest":"sha256:…","executable":false,"path":"a.txt","size":3},…],"kind":"tree","version":1}

A file above 8 MiB has one key more, `parts`: the hex Merkle root over its 8 MiB parts (`ledger.parts`), so
that a range of it can be verified under the digest of the tree without reading the rest. It is required there
and refused elsewhere: one tree has one manifest. Folders exist through their files; an empty folder is not
part of a tree. Modes other than the executable bit, owners, times and links are not either.

Reading is strict: the bytes are decoded, checked (`ledger.treepath`), encoded again, and must come out the
same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import InitVar, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from ledger.digest import check_digest, digest_bytes
from ledger.errors import Malformed, NotFound
from ledger.treepath import check_tree

PART_SIZE: Final = 8 * 1024 * 1024
"""Files above this have part hashes; the parts are this long but for the last."""

_KEYS: Final = frozenset({"digest", "executable", "path", "size"})
_MAX_SIZE: Final = 2**53 - 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file of a tree: where it lies, how long it is, what its bytes are."""

    path: str
    size: int
    digest: str
    executable: bool = False
    parts: str | None = None

    def __post_init__(self) -> None:
        check_digest(self.digest)
        if not 0 <= self.size <= _MAX_SIZE:
            raise Malformed(
                what="size in a manifest", where=self.path, expected="0 to 2^53-1", found=str(self.size)
            )
        if (self.parts is not None) != (self.size > PART_SIZE):
            expected = (
                "the root of its parts"
                if self.size > PART_SIZE
                else f"no parts at or below {PART_SIZE} bytes"
            )
            raise Malformed(
                what="parts in a manifest", where=self.path, expected=expected, found=repr(self.parts)
            )
        if self.parts is not None:
            check_digest(f"sha256:{self.parts}")


@dataclass(frozen=True)
class Manifest:
    """The files of one tree, in canonical order. `of` sorts and checks; `parse` reads the stored bytes.

    `checked` is for who made the list by `ledger.treescan.scan` and has had its paths checked before.
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
                what="manifest",
                expected="entries sorted by the UTF-8 bytes of their paths",
                found="another order",
            )

    @classmethod
    def of(cls, entries: Iterable[ManifestEntry]) -> Manifest:
        """A manifest of these files in any order."""
        return cls(tuple(sorted(entries, key=lambda entry: entry.path.encode("utf-8", "surrogatepass"))))

    @classmethod
    def parse(cls, data: bytes, *, where: str = "") -> Manifest:
        """The manifest that these canonical bytes hold; Malformed or Refused says which rule they break."""
        try:
            document = json.loads(data)
            if (
                not isinstance(document, dict)
                or document.get("kind") != "tree"
                or document.get("version") != 1
            ):
                raise ValueError("no object of kind tree, version 1")
            manifest = cls(tuple(_entry(item) for item in document["entries"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Malformed(
                what="manifest",
                where=where,
                expected="canonical JSON of a tree",
                found=str(error) or type(error).__name__,
            ) from error
        if manifest.encode() != data:
            raise Malformed(
                what="manifest", where=where, expected="canonical JSON (RFC 8785)", found="another encoding"
            )
        return manifest

    def encode(self) -> bytes:
        """The canonical bytes.

        `json.dumps` gives RFC 8785 here, many times faster than a general encoder: the keys are ASCII, the numbers
        safe integers, and its string escapes are those of the RFC. A test compares the two.
        """
        document = {"entries": [_fields(entry) for entry in self.entries], "kind": "tree", "version": 1}
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

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
        """The entry of one file."""
        found = self._by_path.get(path)
        if found is None:
            raise NotFound(
                what="file in a tree",
                where=path,
                expected="a path of its manifest",
                cure="list the tree first",
            )
        return found

    @cached_property
    def _by_path(self) -> dict[str, ManifestEntry]:
        return {entry.path: entry for entry in self.entries}


def _fields(entry: ManifestEntry) -> dict[str, object]:
    fields: dict[str, object] = {
        "digest": entry.digest,
        "executable": entry.executable,
        "path": entry.path,
        "size": entry.size,
    }
    if entry.parts is not None:
        fields["parts"] = entry.parts
    return fields


def _entry(item: object) -> ManifestEntry:
    if not isinstance(item, dict) or len(item) != len(_KEYS) + ("parts" in item) or not item.keys() >= _KEYS:
        raise ValueError(
            f"an entry that has not exactly the keys {', '.join(sorted(_KEYS))} and perhaps parts"
        )
    path, size, digest, executable = item["path"], item["size"], item["digest"], item["executable"]
    parts = item.get("parts")
    well_typed = (
        isinstance(path, str)
        and type(size) is int
        and isinstance(digest, str)
        and isinstance(executable, bool)
        and (parts is None or isinstance(parts, str))
    )
    if not well_typed:
        raise ValueError(f"an entry with a value of the wrong type: {item!r:.200}")
    return ManifestEntry(path, size, digest, executable, parts)
