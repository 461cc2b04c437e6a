"""A root is made: its signing key, the verifier key in it, and an empty log."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

from ledger import Log, Refused, Signer, VerifierKey, create_key, load_signer, open_storage
from marin.record.root import CHECKPOINT, DEFAULT_ROOT, ROOT_VARIABLE, Root, absolute, no_vkey, open_root
from marin.record.trust.homes import VKEY, log_at
from marin.record.trust.keyfiles import KEY_VARIABLE, key_path
from marin.record.trust.pins import Pins, default_pins

log = logging.getLogger(__name__)


def vkey_lines(signer: Signer) -> bytes:
    """The file ``vkey`` of a root: the verifier key, and below it the other half of a hybrid one."""
    return "".join(f"{key}\n" for key in signer.verifiers).encode()


def create_root(location: str | None = None, *, origin: str | None = None, hybrid: bool = False) -> Root:
    """Make a root with an empty log, and its signing key unless ``MARIN_KEY`` names one that exists.

    An interrupted call leaves a key, or a key and a verifier key; the next call goes on with them. A complete root
    is opened and left as it is. A ``hybrid`` key signs with ML-DSA-44 as well.

    Raises:
        Refused: the key, or the root that is there, has another origin, the key signs a log elsewhere, or a file is in the
            root's place.
    """
    where = location or os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT
    if "://" not in where and Path(where).exists() and not Path(where).is_dir():  # before a key is made for it
        raise Refused(
            "something that is no folder is in the root's place",
            where=where,
            expected="a folder, or nothing",
            found="a file",
            cure="move it, or name another root: MARIN_ROOT or --root",
        )
    storage = open_storage(where)
    if not storage.exists(VKEY):
        if storage.exists(CHECKPOINT):  # a new key here would disown every event that is there
            raise no_vkey(where)
        named = os.environ.get(KEY_VARIABLE)
        if named and Path(named).exists():
            signer = load_signer(Path(named))
            if origin is not None and signer.verifier.name != origin:
                raise Refused(
                    "the key signs for another origin",
                    where=named,
                    expected=origin,
                    found=signer.verifier.name,
                    cure="leave --origin out, or make a new key",
                )
            if (home := settle_copy(signer.verifier, absolute(where))) is not None:
                raise Refused(
                    "the key signs another log",
                    where=named,
                    expected="a key that signs no log yet",
                    found=f"that of {home}",
                    cure=f"name a file in {KEY_VARIABLE} that is not there, for a new key, or that root with {ROOT_VARIABLE}",
                )
        else:
            name = origin or f"marin.local/{secrets.token_hex(4)}"
            signer = create_key(key_path(name), name, hybrid=hybrid)
        storage.ensure(VKEY, vkey_lines(signer))
    root = open_root(where)
    if origin is not None and origin != root.verifier.name:
        raise Refused(
            "the root has another origin",
            where=where,
            expected=origin,
            found=root.verifier.name,
            cure="leave --origin out, or name another root",
        )
    if not storage.exists(CHECKPOINT):
        if "://" not in where:  # a root in a user's work tree is not part of it
            storage.ensure(".gitignore", b"*\n")
        Log.create(storage, root.signer())
        Pins(default_pins()).settle(root.verifier.name, root.absolute)
        log.info("made the root %s with the log %s", where, root.verifier.name)
    return root


def settle_copy(key: VerifierKey, place: str) -> str | None:
    """The log of ``key``, brought to ``place``, lives there from now on; unless it still lives where it did, which is returned:
    then this is a copy, and two places that both went on would be two histories under one key.

    Raises:
        Unavailable: the place where it lived cannot be asked.
    """
    pins = Pins(default_pins())
    home = pins.home(key.name)
    if home is not None and home != place and log_at(home, key) is not None:
        return home
    pins.settle(key.name, place, moved=True)
    return None
