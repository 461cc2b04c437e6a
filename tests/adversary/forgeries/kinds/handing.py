"""Class 8: keys that were handed over, halves of keys, several names of one key. Class 7: witnesses of one's own. Class 15: a
root that is not the same for anyone who looks again.

Here the operator signs alone, as a thief of the key would; the honest ones beside each forgery say that nothing but
the forgery is refused.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import (
    Draft,
    Log,
    LogCheckpoint,
    LogReader,
    PolicyWitness,
    PosixStorage,
    Signer,
    Storage,
    WitnessPolicy,
    add_signatures,
    copy_artifacts,
    create_key,
    mirror_log,
    open_storage,
    retire_key,
    rotate_key,
)
from ledger.format.cosigner import Cosigner
from marin.record import events as kinds
from marin.record.creation import vkey_lines
from marin.record.root import Root, open_root
from marin.record.trust.homes import VKEY
from marin.record.trust.policy import POLICY, WITNESSED
from marin.verify.derivation.record import read_record
from marin.verify.judges.artifacts import named_artifacts
from tests.adversary.forgeries.registry import kind
from tests.adversary.forgeries.stranger import look
from tests.adversary.forgeries.workshop import OTHER, Shop, as_operator

CHECKPOINT = "log/checkpoint"


def _operator(shop: Shop) -> Signer:
    with as_operator(shop.base):
        return shop.base.root.signer()


def _handed_over(shop: Shop, *, retired: bool) -> tuple[Signer, Signer]:
    """The log goes on under another key; the stranger knows the first one."""
    shop.sign()
    old = _operator(shop)
    new = create_key(shop.folder / "next.key", old.name)
    rotate_key(shop.root.storage, old, new)
    if retired:
        retire_key(shop.root.storage, new, old.verifiers)
    shop.replace_file(VKEY, vkey_lines(new))
    shop.root = open_root(str(shop.path))
    return old, new


def _resigned(shop: Shop, signer: Signer, *, origin: str = "") -> None:
    """The log's newest checkpoint under this key alone, and under another origin if one is given."""
    newest = LogCheckpoint.parse((shop.path / CHECKPOINT).read_text("utf-8").partition("\n\n")[0] + "\n")
    changed = LogCheckpoint(origin or newest.origin, newest.size, newest.root)
    shop.replace_file(CHECKPOINT, changed.sign([signer]).encode())


def _anew(shop: Shop, signer: Signer) -> None:
    """The events in a log that this key signs, which the root names."""
    shutil.rmtree(shop.path / "log")
    Log.create(shop.root.storage, signer)
    shop.replace_file(VKEY, vkey_lines(signer))
    shop.root = open_root(str(shop.path))
    _grown(shop, signer, [Draft(e.type, e.stream, e.body, id=e.id, actor=e.actor, time=e.time) for e in shop.events])
    shop.signed = True


def _grown(shop: Shop, signer: Signer, drafts: list[Draft]) -> None:
    with Log.open(shop.root.storage, signer) as log:
        log.append(drafts)


def _later(shop: Shop) -> list[Draft]:
    """What a thief adds: the honest run again, under another name."""
    event = shop.one(kinds.RUN_STARTED)
    return [Draft(event.type, "run/thief000", event.body | {"run": "thief000"})]


# Keys that were handed over


@kind(0, "an honest log under its second key, by anyone who knows the first", honest=True)
def rotated(shop: Shop) -> None:
    _handed_over(shop, retired=False)


@kind(0, "an honest log whose first key was retired, by anyone who knows it", honest=True)
def retired_honestly(shop: Shop) -> None:
    _handed_over(shop, retired=True)


@kind(8, "a retired key's signature, its links left out", says="")
def retired(shop: Shop) -> None:
    old, _ = _handed_over(shop, retired=True)
    _resigned(shop, old)
    shutil.rmtree(shop.path / "keys")


@kind(8, "a retired key's signature, its links kept", says="retired")
def retired_linked(shop: Shop) -> None:
    old, _ = _handed_over(shop, retired=True)
    _resigned(shop, old)


@kind(8, "a retired key's signature after the new key was seen", says="")
def retired_seen(shop: Shop) -> None:
    old, _new = _handed_over(shop, retired=True)
    look(shop)
    _resigned(shop, old)
    shutil.rmtree(shop.path / "keys")
    shop.replace_file(VKEY, vkey_lines(old))


@kind(8, "a retired key's own history, after the new key was seen", says="")
def retired_fork(shop: Shop) -> None:
    old, _ = _handed_over(shop, retired=True)
    look(shop)
    shutil.rmtree(shop.path / "keys")
    _anew(shop, old)
    _grown(shop, old, _later(shop) * 3)


@kind(8, "a second key that the log never named", says="")
def unnamed(shop: Shop) -> None:
    shop.sign()
    _resigned(shop, create_key(shop.folder / "next.key", _operator(shop).name))


@kind(8, "links of the keys of another log", says="")
def foreign_links(shop: Shop) -> None:
    """The thief's own log hands over from a key of the same name to the thief's: its links beside the honest one's."""
    _, new = _handed_over(shop, retired=False)
    links = shutil.copytree(shop.path / "keys", shop.folder / "links")
    shutil.rmtree(shop.path / "keys")
    shop.replace_file(VKEY, vkey_lines(_operator(shop)))
    shop.root = open_root(str(shop.path))
    shop.sign()
    shutil.copytree(links, shop.path / "keys")
    _resigned(shop, new)


# Halves of a hybrid key


def _hybrid(shop: Shop) -> Signer:
    signer = create_key(shop.folder / "hybrid.key", _operator(shop).name, hybrid=True)
    _anew(shop, signer)
    shop.told = signer.verifiers
    return signer


@kind(0, "an honest log under a hybrid key", honest=True)
def hybrid(shop: Shop) -> None:
    _hybrid(shop)


@kind(0, "an honest log under a hybrid key, by anyone who knows one half", honest=True)
def hybrid_half_known(shop: Shop) -> None:
    shop.told = _hybrid(shop).verifiers[:1]


@kind(8, "a hybrid log with its ML-DSA line stripped", says="hybrid")
def stripped(shop: Shop) -> None:
    signer = _hybrid(shop)
    _resigned(shop, Signer(signer.name, signer.key))


@kind(8, "a hybrid log with its Ed25519 line stripped", says="")
def stripped_classical(shop: Shop) -> None:
    signer = _hybrid(shop)
    body, _, lines = (shop.path / CHECKPOINT).read_text("utf-8").partition("\n\n")
    kept = max(lines.splitlines(), key=len)
    assert len(kept) > len(str(signer.verifier))  # the longer signature is the lattice's
    shop.replace_file(CHECKPOINT, f"{body}\n\n{kept}\n".encode())


@kind(8, "a hybrid log that was seen whole, then with one half", says="hybrid")
def stripped_later(shop: Shop) -> None:
    signer = _hybrid(shop)
    look(shop)
    shop.told = signer.verifiers[:1]  # what was seen whole stays whole, whatever is asked with later
    half = Signer(signer.name, signer.key)
    _grown(shop, half, _later(shop))
    shop.replace_file(VKEY, vkey_lines(half))


@kind(8, "a hybrid log whose ML-DSA signature is of something else", says="")
def mixed(shop: Shop) -> None:
    signer = _hybrid(shop)
    before = (shop.path / CHECKPOINT).read_text("utf-8").partition("\n\n")[2]
    stale = max(before.splitlines(), key=len)
    half = Signer(signer.name, signer.key)
    _grown(shop, half, _later(shop))
    note = (shop.path / CHECKPOINT).read_text("utf-8")
    body, _, lines = note.partition("\n\n")
    own = min((line for line in lines.splitlines() if line), key=len)
    shop.replace_file(CHECKPOINT, f"{body}\n\n{own}\n{stale}\n".encode())


# Several names of one key


@kind(8, "an origin that is not the key's name", says="")
def origin(shop: Shop) -> None:
    shop.sign()
    _resigned(shop, _operator(shop), origin="example.org/honest")


@kind(8, "a second origin of a key that was seen", says="the key signs another log")
def second_origin(shop: Shop) -> None:
    shop.sign()
    look(shop)
    other = Signer("example.org/second", _operator(shop).key)
    _anew(shop, other)
    shop.told = other.verifiers


@kind(8, "another key of an origin that was seen", says="another key signs this log")
def second_key(shop: Shop) -> None:
    shop.sign()
    look(shop)
    other = create_key(shop.folder / "other.key", _operator(shop).name)
    _anew(shop, other)
    shop.told = other.verifiers


# Witnesses that the accused brings


def _witnesses(shop: Shop) -> None:
    """Three with names that one knows, and keys of the operator's; each has truly signed."""
    note = (shop.path / CHECKPOINT).read_bytes()
    text = note.decode().partition("\n\n")[0] + "\n"
    policy = WitnessPolicy(logs=(_operator(shop).verifier,))
    for name in ("google.com/witness", "sigsum.org/witness", "eff.org/witness"):
        cosigner = Cosigner(name, Ed25519PrivateKey.generate())
        policy = policy.with_witness(PolicyWitness(name.partition(".")[0], cosigner.verifier), None)
        note = add_signatures(note, [cosigner.line(text)])
    shop.replace_file(WITNESSED, note)
    shop.replace_file(CHECKPOINT, note)
    shop.replace_file(POLICY, str(policy).encode())


@kind(
    7,
    "three witnesses of the operator's own, which did sign",
    claimed="witnesses of the root's own choice",
    harmless=True,
    unsaid="in a log that was only appended to",
)
def witnesses(shop: Shop) -> None:
    shop.sign()
    _witnesses(shop)


@kind(7, "witnesses of the operator's own, for a rewritten history", says="another history")
def witnessed_fork(shop: Shop) -> None:
    shop.sign()
    look(shop)
    for entry in shop.events:
        entry.actor = "somebody"
    shop.sign()
    _witnesses(shop)


# What a publisher makes of it


@kind(0, "an honest run, mirrored and pushed elsewhere", by="publisher", honest=True)
def published(shop: Shop) -> None:
    """The log by `mirror_log`, and what the run names of the store by `copy_artifacts`: nothing else of the root."""
    source, target = shop.root, shop.folder / "elsewhere"
    storage = open_storage(str(target))
    mirror_log(source.storage, storage, [source.verifier])
    storage.replace(VKEY, source.storage.read(VKEY))
    from ledger import Store

    record = read_record(source.history(), shop.run)
    copy_artifacts(source.store(), Store(storage), list(named_artifacts(record.run)))
    shutil.rmtree(shop.path)
    shutil.move(target, shop.path)


@kind(0, "an honest reader of the log alone, of what was mirrored", by="publisher", honest=True)
def published_twice(shop: Shop) -> None:
    """Published a second time over the first, as a publisher does who goes on."""
    published(shop)
    reader = LogReader(shop.root.storage, [shop.base.root.verifier])
    assert reader.checkpoint().size == len(shop.events)
    mirror_log(shop.base.root.storage, shop.root.storage, [shop.base.root.verifier])


# A root that changes


class Turning:
    """Storage that shows the log of ``first`` until its checkpoint was read ``times``, and then that of ``second``."""

    def __init__(self, first: Storage, second: Storage, times: int) -> None:
        self._first, self._second, self._left = first, second, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._second if self._left < 0 else self._first, name)

    def read(self, name: str) -> bytes:
        """The bytes of the log that is shown now."""
        self._left -= name == "log/checkpoint"
        data: bytes = (self._second if self._left < 0 else self._first).read(name)
        return data


def _turn(shop: Shop, times: int) -> None:
    """What is published is the forged log, and the honest one for anyone who opens it again."""
    honest = shop.folder / "honest"
    shutil.copytree(shop.path, honest, copy_function=os.link)

    def shown(root: Root) -> Root:
        turning: Any = Turning(PosixStorage(Path(root.location)), PosixStorage(honest), times)
        return replace(root, storage=turning)

    shop.shown = shown


@kind(15, "another log for anyone who looks twice", says="another history")
def twice(shop: Shop) -> None:
    """The verdict is to be about the invented perplexity, and the execution about the honest run."""
    _turn(shop, 1)
    shop.rerecord(kinds.STEP_COMPLETED, "evaluate").body["metrics"]["perplexity"] = (1.5).hex()
    shop.follow()


@kind(15, "another log for anyone who audits it", says="another log than the one that was read")
def audited(shop: Shop) -> None:
    """The records that are judged are not those that are audited."""
    _turn(shop, 2)
    shop.one(kinds.RUN_STARTED).body["environment"]["system"] = {"name": "another"}
    shop.follow()


@kind(
    15,
    "a trace that nobody has, so that nothing is compared with it",
    verdict="training",
    outcomes=("FAIL",),
    says="the recorded trace",
)
def kept_back(shop: Shop) -> None:
    """Without gradient norms nothing else binds it."""
    shop.all(kinds.TRAIN_SEGMENT)[1].body["trace"] = OTHER
    shop.drop(kinds.METRICS_RECORDED)
