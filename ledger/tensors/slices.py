"""A state in slices: as many files as it is cut into, each written by anyone who holds that slice.

    state.json       the ``StateManifest``: path, dtype, shape and digest of every tensor
    slices.json      the ``SlicedForm``: how many slices, and how tensors are cut
    slices/00000     slice 0 of every tensor, one after the other in the order of state.json
    slices/00001     …

A tensor is seen as [lead, n] in C order and cut along n into S runs of ceil(n / S) elements, of which the last ones may
be shorter or empty: slice s has run s of each of the lead rows. ``lead`` is 1 unless the form says otherwise; a stack of
layers has as many as there are layers, so that a slice has its part of every one of them. Elements are little-endian.

So nobody needs more than one slice to write a file, and any range of elements can be read without the rest: anyone who
loads a state onto another number of devices, or cut otherwise, reads what it needs and no more. All of it follows from
the numbers, the form and nothing else, so equal states cut in the same way are equal files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ledger.errors import LedgerError, Malformed, NotFound, Refused, Tampered
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.store.blobs.hashing import threads
from ledger.store.parts import PART_SIZE
from ledger.store.store import Artifact, Store
from ledger.store.trees.files import StoredFolder
from ledger.store.trees.manifest import Manifest, ManifestEntry
from ledger.tensors import tensors
from ledger.tensors.statepack import STATE, put_planes

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORM: Final = "slices.json"
MOST_SLICES: Final = 4096
_AT_ONCE: Final = 8 * tensors.TILE_SIZE
"""So much of a tensor is read and hashed by one thread at a time."""

Read = Callable[[str, int, int], bytes]
"""Some bytes of a file of the tree: its path, the first byte, how many. Fewer only at its end."""


def slice_name(number: int) -> str:
    """The path of a slice's file."""
    return f"slices/{number:05d}"


@dataclass(frozen=True)
class SlicedForm:
    """How a state is cut: into how many slices, and which tensors have more than one lead row."""

    slices: int
    leads: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.slices <= MOST_SLICES or any(lead < 2 for lead in self.leads.values()):
            raise Malformed(
                "form of a state in slices",
                expected=f"1 to {MOST_SLICES} slices, and leads above 1",
                found=f"{self.slices} slices, leads {sorted(set(self.leads.values()))[:8]}",
            )

    def encode(self) -> bytes:
        """Canonical bytes."""
        return canonical_bytes(
            {"kind": "state in slices", "leads": dict(self.leads), "slices": self.slices, "version": 1}
        )

    @classmethod
    def parse(cls, data: bytes) -> SlicedForm:
        """What ``encode`` made. Malformed if it is something else."""
        try:
            document = parse_canonical(data)
            leads, slices = document["leads"], document["slices"]
            if document["version"] != 1 or type(slices) is not int or not isinstance(leads, dict):
                raise ValueError("another version or another type")
            if any(type(lead) is not int for lead in leads.values()):
                raise ValueError("a lead that is no whole number")
            form = cls(slices, leads)
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed("form of a state in slices", expected="one of version 1", found=str(error)) from error
        if form.encode() != data:
            raise Malformed("form of a state in slices", expected="the fields of version 1 only", found="others")
        return form

    def rows(self, path: str, shape: Sequence[int]) -> tuple[int, int]:
        """(lead, n): as what a tensor is cut. Malformed where its lead does not divide it."""
        lead, size = self.leads.get(path, 1), math.prod(shape)
        if size % lead:
            raise Malformed(
                "form of a state in slices", where=path, expected=f"a lead that divides {size}", found=str(lead)
            )
        return lead, size // lead

    def run(self, path: str, shape: Sequence[int], number: int) -> tuple[int, int]:
        """The elements, first and one past the last, that slice ``number`` has of each lead row of a tensor."""
        _, n = self.rows(path, shape)
        width = -(-n // self.slices)
        return min(n, number * width), min(n, (number + 1) * width)


@dataclass(frozen=True)
class Sliced:
    """A state in slices that lies somewhere: its manifest, its form, and how its files are read.

    Nothing in it is believed: a range comes with the length that was asked for or Malformed is raised, and what was read has
    to be digested by anyone who reads.
    """

    state: tensors.StateManifest
    form: SlicedForm
    read: Read

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether the state that lies in this folder is in slices."""
        return (folder / FORM).is_file()

    @staticmethod
    def is_stored(store: Store, tree: str) -> bool:
        """Whether the state that is this tree of a store is in slices.

        Raises:
            NotFound: the tree is not in the store.
        """
        return FORM in {entry.path for entry in store.manifest(tree)}

    @classmethod
    def of_folder(cls, folder: Path) -> Sliced:
        """Of a tree that was checked out to a folder.

        Raises:
            Malformed: it is not a state in slices.
            OSError: a file cannot be read.
        """

        def read(path: str, start: int, length: int) -> bytes:
            with open(f"{folder}/{path}", "rb", buffering=0) as stream:
                return os.pread(stream.fileno(), length, start)

        if not (Sliced.is_in(folder) and (folder / STATE).is_file()):
            raise _no_state()
        sizes = {f"slices/{path.name}": path.stat().st_size for path in (folder / "slices").glob("*")}
        return cls._checked((folder / STATE).read_bytes(), (folder / FORM).read_bytes(), sizes, read)

    @classmethod
    def of_store(cls, store: Store, tree: str) -> Sliced:
        """Of a tree in a store, every byte verified as it is read.

        Raises:
            Malformed: it is not a state in slices.
            NotFound: the tree, or a file of it, is not here.
        """
        return cls.of_stored(store.folder(tree))

    @classmethod
    def of_stored(cls, files: StoredFolder) -> Sliced:
        """Of a folder of a stored tree.

        Raises:
            Malformed, NotFound: as :meth:`of_store`.
        """
        sizes = files.sizes
        if sizes.pop(STATE, None) is None or sizes.pop(FORM, None) is None:
            raise _no_state()
        return cls._checked(files.read(STATE), files.read(FORM), sizes, files.read)

    @classmethod
    def _checked(cls, state: bytes, form: bytes, sizes: Mapping[str, int], read: Read) -> Sliced:
        made = cls(tensors.StateManifest.parse(state), SlicedForm.parse(form), read)
        if strange := sorted(made.form.leads.keys() - {tensor.path for tensor in made.state.tensors}):
            raise Malformed("state in slices", where="leads", expected="of its tensors", found=strange[0])
        expected = {slice_name(number): made.size_of(number) for number in range(made.form.slices)}
        if sizes != expected:
            wrong = sorted(name for name in sizes.keys() | expected.keys() if sizes.get(name) != expected.get(name))
            raise Malformed(
                "state in slices",
                where=wrong[0],
                expected=f"{expected.get(wrong[0], 'no such file')} bytes",
                found=f"{sizes.get(wrong[0], 'no such file')}",
            )
        return made

    def size_of(self, number: int) -> int:
        """Bytes of a slice's file."""
        return sum(self._length(tensor, number) for tensor in self.state.tensors)

    def part(self, path: str, start: int, stop: int) -> NDArray[Any]:
        """Elements ``start`` to ``stop`` of a tensor in C order, as a flat array.

        Raises:
            NotFound: there is no such tensor.
            Malformed: the range is not within it, or a file is shorter than it has to be.
        """
        import numpy as np

        tensor = self.state.tensor(path)
        self._check_range(tensor, start, stop)
        found = np.empty(stop - start, tensors.dtype_of(tensor.dtype))
        self.fill(path, start, found)
        return found

    def fill(self, path: str, start: int, into: NDArray[Any]) -> None:
        """Put elements of a tensor, from ``start`` on in C order, into all of a contiguous flat array of its dtype. What is
        read meanwhile is 8 MiB at a time, as a store verifies it: no second copy of the elements is ever held.

        Raises:
            NotFound: there is no such tensor.
            Malformed: the range is not within it, the array is of another dtype, or a file is shorter than it has to be.
        """
        import numpy as np

        tensor = self.state.tensor(path)
        if into.dtype != tensors.dtype_of(tensor.dtype):
            raise Malformed("array for a tensor", where=path, expected=tensor.dtype, found=str(into.dtype))
        at, stop = start, start + len(into)
        self._check_range(tensor, start, stop)
        _, n = self.form.rows(path, tensor.shape)
        width, size = -(-n // self.form.slices), tensors.item_size(tensor.dtype)
        found = into.view(np.uint8)
        while at < stop:
            row, column = divmod(at, n)
            number = column // width
            first, last = self.form.run(path, tensor.shape, number)
            count = min(stop - at, last - column)
            begin = self._offsets[number][path] + (row * (last - first) + column - first) * size
            count = min(count, max(1, (PART_SIZE - begin % PART_SIZE) // size))
            data = self.read(slice_name(number), begin, count * size)
            if len(data) != count * size:
                raise Malformed("slice of a state", where=slice_name(number), expected="all its bytes", found="fewer")
            found[(at - start) * size : (at - start + count) * size] = np.frombuffer(data, np.uint8)
            at += count

    def _check_range(self, tensor: tensors.TensorInfo, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= (size := math.prod(tensor.shape)):
            raise Malformed(
                "range of a tensor", where=tensor.path, expected=f"within {size} elements", found=f"{start}:{stop}"
            )

    def whole(self, path: str) -> NDArray[Any]:
        """A whole tensor."""
        tensor = self.state.tensor(path)
        return self.part(path, 0, math.prod(tensor.shape)).reshape(tensor.shape)

    def described(self) -> tensors.StateManifest:
        """The manifest of what the files hold in truth: every byte read and hashed."""
        leaves: dict[str, list[bytes]] = {tensor.path: [] for tensor in self.state.tensors}

        def hashes(stretches: Sequence[tuple[str, int, int]]) -> list[list[bytes]]:
            return [tensors.leaf_hashes(self.part(*stretch)) for stretch in stretches]

        tasks = self._stretches()
        with ThreadPoolExecutor(threads()) as pool:
            for stretches, found in zip(tasks, pool.map(hashes, tasks), strict=True):
                for (path, _, _), some in zip(stretches, found, strict=True):
                    leaves[path] += some
        return tensors.StateManifest.of(
            [
                replace(one, digest=tensors.root_digest(one.dtype, one.shape, leaves[one.path]))
                for one in self.state.tensors
            ]
        )

    def _stretches(self) -> list[list[tuple[str, int, int]]]:
        """All elements in order, as stretches of tensors (path, start, stop): of many small tensors some to a task, for a thread
        that is called for each of them would cost more than its hashes."""
        tasks: list[list[tuple[str, int, int]]] = [[]]
        room = _AT_ONCE
        for tensor in self.state.tensors:
            count, size = math.prod(tensor.shape), tensors.item_size(tensor.dtype)
            step = max(1, _AT_ONCE // size)
            for start in range(0, count, step):
                stop = min(count, start + step)
                if (stop - start) * size > room:
                    tasks.append([])
                    room = _AT_ONCE
                tasks[-1].append((tensor.path, start, stop))
                room -= (stop - start) * size
        return tasks

    def _length(self, tensor: tensors.TensorInfo, number: int) -> int:
        lead, _ = self.form.rows(tensor.path, tensor.shape)
        first, last = self.form.run(tensor.path, tensor.shape, number)
        return lead * (last - first) * tensors.item_size(tensor.dtype)

    @cached_property
    def _offsets(self) -> Sequence[Mapping[str, int]]:
        """For each slice, where each tensor begins in its file."""
        state = self.state.tensors

        def of_slice(number: int) -> Mapping[str, int]:
            begins = accumulate((self._length(tensor, number) for tensor in state), initial=0)
            return dict(zip((tensor.path for tensor in state), begins, strict=False))

        return [of_slice(number) for number in range(self.form.slices)]


def write_slices(
    folder: Path, arrays: Mapping[str, Any], slices: int = 1, leads: Mapping[str, int] | None = None
) -> None:
    """A whole state in slices as a folder, which must not exist."""
    form, state = SlicedForm(slices, leads or {}), tensors.describe_state(arrays)
    (folder / "slices").mkdir(parents=True)
    (folder / STATE).write_bytes(state.encode())
    (folder / FORM).write_bytes(form.encode())
    for number in range(slices):
        (folder / slice_name(number)).write_bytes(slice_bytes(state, form, arrays, number))


def put_slice(
    store: Store, number: int, data: memoryview | Path, *, pack: bool = False, base: str | None = None
) -> ManifestEntry:
    """Keep one slice, from memory or from a file that is the caller's to give away, and say how a manifest names it.
    ``pack`` and ``base`` as for ``put_slices``; from memory only."""
    name = slice_name(number)
    if isinstance(data, Path):
        hashed = store.blobs.put_file(data, link=True)
    elif pack:
        hashed = put_planes(store, data, 4, _of_tree(store, base, name))
    else:
        hashed = store.blobs.put_bytes(bytes(data))
    return ManifestEntry(name, hashed.size, hashed.digest, parts=hashed.parts.root if hashed.parts else None)


def publish_slices(
    store: Store, state: tensors.StateManifest, form: SlicedForm, slices: Sequence[ManifestEntry]
) -> Artifact:
    """The tree of a state whose slices are in the store.

    Raises:
        Refused: a slice is missing, doubled, or has not the length that follows from the state.
        NotFound: a slice was reported and is not in the store.
    """
    whole = Sliced(state, form, _unread)
    expected = {slice_name(number): whole.size_of(number) for number in range(form.slices)}
    found = {entry.path: entry.size for entry in slices}
    if found != expected or len(slices) != form.slices:
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise Refused(
            "a state in slices is not complete",
            where=", ".join(wrong[:4]) or "slices",
            expected=f"{form.slices} slices of the lengths that follow from the state",
            found=f"{len(slices)} slices",
            cure="save the state again: nothing was recorded of this one",
        )
    entries = [*slices]
    for name, data in ((STATE, state.encode()), (FORM, form.encode())):
        hashed = store.blobs.put_bytes(data)
        entries.append(
            ManifestEntry(name, hashed.size, hashed.digest, parts=hashed.parts.root if hashed.parts else None)
        )
    return store.put_manifest(Manifest.of(entries))


def load_slices(store: Store, tree: str) -> dict[str, NDArray[Any]]:
    """The arrays of a state in slices by path, every byte verified and every tensor's digest compared.

    Raises:
        Tampered: bytes are damaged, or the tensors are not those that ``state.json`` says.
        NotFound, Malformed: it is not here, or no state in slices.
    """
    there = Sliced.of_store(store, tree)
    arrays = {tensor.path: there.whole(tensor.path) for tensor in there.state.tensors}
    if differing := there.state.differing(tensors.describe_state(arrays)):
        raise Tampered(
            "a tensor is not the one that its state names",
            where=f"{tree}: {differing[0]}",
            expected=there.state.tensor(differing[0]).digest,
            found="another digest",
            cure="put the state again, or pull it from a remote",
        )
    return arrays


def slice_bytes(state: tensors.StateManifest, form: SlicedForm, arrays: Mapping[str, Any], number: int) -> bytes:
    """What a slice's file holds, of whole arrays: each tensor's run in each of its lead rows."""
    import numpy as np

    runs = []
    for tensor in state.tensors:
        first, last = form.run(tensor.path, tensor.shape, number)
        rows = np.asarray(arrays[tensor.path]).reshape(form.rows(tensor.path, tensor.shape))[:, first:last]
        runs.append(tensors.little_endian_bytes(np.ascontiguousarray(rows)))
    return b"".join(runs)


def _of_tree(store: Store, tree: str | None, path: str) -> str | None:
    """The digest of a file of a tree, if both are here."""
    if tree is None:
        return None
    try:
        return store.manifest(tree).entry(path).digest
    except LedgerError:
        return None


def _no_state() -> Malformed:
    return Malformed("state in slices", expected=f"{STATE} and {FORM}", found="another tree")


def _unread(path: str, start: int, length: int) -> bytes:
    raise NotFound("file of a state", where=path)
