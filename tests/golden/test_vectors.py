"""The vectors, as this implementation answers them: texts, notes, tensors, and programs by the reference without a compiler."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from ledger import (
    Event,
    LogProof,
    Manifest,
    Store,
    VerifierKey,
    canonical_digest,
    parse_canonical,
    tensor_digest,
    verify_proof,
)
from ledger.errors import LedgerError
from ledger.format.bundle import unpack_entries
from ledger.format.checkpoint import open_checkpoint
from ledger.format.tlog import leaf_hash
from ledger.store.layout import blob_name
from ledger.store.packs.packfile import check_packfile
from marin.plugins.exact import reference
from tests.golden.vectors_made import FOLDER, LISTS, all_programs, index
from tests.ledger.memory import MemoryStorage


def read(name: str) -> Any:
    return parse_canonical((FOLDER / name).read_bytes())


def array(told: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(told["bytes"]), told["dtype"]).reshape(told["shape"])


@pytest.mark.parametrize("name", LISTS)
def test_what_is_made_is_what_is_kept(name: str) -> None:
    assert read(name) == LISTS[name]()


def test_every_operation_of_the_page_has_a_vector() -> None:
    def names(program: dict[str, Any]) -> set[str]:
        found = {name for name, *_ in program["operations"]}
        return found.union(*(names(body) for *_, bodies in program["operations"] for body in bodies))

    programs = [read(path.name)["program"] for path in FOLDER.glob("exact-*.json")]
    assert set().union(*map(names, programs)) == reference.OPERATIONS


def test_entries_are_events_where_they_should_be() -> None:
    for one in read("entries.json"):
        try:
            Event.decode(base64.b64decode(one["bytes"]))
            found = True
        except LedgerError:
            found = False
        assert found == one["event"], one["name"]


def test_blobs_have_their_digests() -> None:
    for one in read("blobs.json"):
        data = b"".join(base64.b64decode(piece["bytes"]) * piece["times"] for piece in one["pieces"])
        storage = MemoryStorage()
        storage.create(blob_name(one["digest"]), data)
        try:
            found = Store(storage).read(one["digest"]) == data
        except LedgerError:
            found = False
        assert found == one["blob"], one["name"]


def test_blobs_that_are_made_of_others_are_read_or_refused() -> None:
    for one in read("packed.json"):
        storage = MemoryStorage()
        for name, data in one["files"].items():
            storage.create(name, base64.b64decode(data))
        try:
            found = base64.b64encode(Store(storage).read(one["digest"])).decode()
        except LedgerError:
            found = None
        assert found == one["reads"], one["name"]


def test_states_have_their_digests() -> None:
    for one in read("states.json"):
        tensors = sorted(one["tensors"], key=lambda tensor: tensor["path"].encode())
        assert canonical_digest({"kind": "state", "tensors": tensors, "version": 1}) == one["digest"]


def test_the_index_names_every_file_of_this_version() -> None:
    assert read("index.json") == index()


def test_tiles_have_the_hashes_of_their_entries() -> None:
    for one in read("tiles.json"):
        try:
            entries = unpack_entries(base64.b64decode(one["bundle"]))
            hashes = b"".join(map(leaf_hash, entries))
            found = len(entries) == one["count"] and hashes == base64.b64decode(one["tile"])
        except LedgerError:
            found = False
        assert found == one["tiles"], one["name"]


@pytest.mark.long(seconds=4)
def test_programs_give_what_is_kept() -> None:
    """By the reference, which no compiler touches."""
    for name, value in all_programs():
        assert read(name) == value


def test_notes_are_believed_where_they_should_be() -> None:
    for one in read("notes.json"):
        try:
            open_checkpoint(one["note"].encode(), [VerifierKey.parse(one["key"])], own_name=True)
            found = True
        except LedgerError:
            found = False
        assert found == one["signed"], one["name"]


def test_tensors_have_their_digests() -> None:
    for one in read("tensors.json"):
        assert tensor_digest(array(one)) == one["digest"]


def test_proofs_show_what_they_should() -> None:
    for one in read("proofs.json"):
        try:
            verify_proof(LogProof.parse(one["proof"].encode()), [VerifierKey.parse(one["key"])])
            found = True
        except LedgerError:
            found = False
        assert found == one["shown"], one["name"]


def test_lists_of_files_are_read_where_they_are_one() -> None:
    for one in read("manifests.json"):
        try:
            Manifest.parse(base64.b64decode(one["bytes"]))
            found = True
        except LedgerError:
            found = False
        assert found == one["tree"], one["name"]


def test_packfiles_hold_what_they_say() -> None:
    for one in read("packfiles.json"):
        storage, name = MemoryStorage(), f"store/packfiles/{one['stored_as']}"
        storage.create(name, base64.b64decode(one["bytes"]))
        try:
            places = dict(check_packfile(storage, name))
        except LedgerError:
            assert not one["packfile"], one["name"]
            continue
        assert one["packfile"], one["name"]
        for digest, blob in one["holds"].items():
            place = places[digest]
            assert storage.read_range(place.packfile, place.start, place.size) == base64.b64decode(blob)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("exact-*.json")), ids=lambda path: path.stem)
def test_programs_are_what_they_are_called(path: Any) -> None:
    told = json.loads(path.read_bytes())
    assert canonical_digest(told["program"]).startswith("sha256:")
    for digest, value in told["constants"].items():
        assert tensor_digest(array(value)) == digest
    forms = [told["program"]["forms"][number] for number in told["program"]["outputs"]]
    assert [[one["dtype"], one["shape"]] for one in told["outputs"]] == forms
