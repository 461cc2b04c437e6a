"""What the verifier's own witnesses have not seen, at each door that says PASS: they are asked there as they are of a root."""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Cosigner, Log, LogCheckpoint
from ledger.format.note import Note, parse_note
from marin.history.runs import load
from marin.record.root import open_root
from marin.record.trust.policy import WITNESSED
from tests.adversary.forgeries.doors.boards import keeper_who_verified
from tests.adversary.forgeries.doors.bundles import Hand
from tests.adversary.forgeries.doors.events import signed, trust_of
from tests.adversary.forgeries.doors.register import Stall, kind
from tests.adversary.forgeries.doors.statements import unlearning
from tests.adversary.forgeries.workshop import Shop, as_operator

WITNESS = Cosigner("witness.example/w", Ed25519PrivateKey.from_private_bytes(b"w" * 32))
OTHER_WITNESS = Cosigner("witness.example/w", Ed25519PrivateKey.from_private_bytes(b"o" * 32))


def _trusted(stall: Stall) -> None:
    """The stranger asks this witness, of every log."""
    folder = trust_of(stall)
    folder.mkdir()
    (folder / "witness-policy").write_text(f"witness w {WITNESS.verifier}\nquorum w\n")


def _cosigned(shop: Shop, by: Cosigner = WITNESS, *, whole: bool = True) -> None:
    """The witness's word on the log as it is, or on what it was before the run's last event."""
    root = open_root(str(shop.path))
    with as_operator(shop.base):
        if whole:
            with Log.open(root.storage, root.signer()) as log:
                log.publish()
                log.add_cosignatures([by.line(str(log.checkpoint))])
            return
        reader = root.reader()
        size = load(root.history(), shop.run).told
        made = LogCheckpoint(reader.checkpoint().origin, size, reader.root(size)).sign([root.signer()])
    note = parse_note(made.encode())
    root.storage.replace(WITNESSED, str(Note(note.text, (*note.signatures, by.line(note.text)))).encode())


def _of_root(stall: Stall) -> Shop:
    return signed(stall)


def _of_certificate(stall: Stall) -> Shop:
    unlearning(stall.shop)
    return signed(stall)


def _of_board(stall: Stall) -> Shop:
    stall.held["own"] = keeper_who_verified
    return signed(stall)


def _of_bundle(stall: Stall) -> Shop:
    hand = stall.held["hand"] = Hand(stall)
    hand.shop.sign()
    return hand.shop


DOORS: dict[str, Callable[[Stall], Shop]] = {
    **dict.fromkeys(("root", "address", "library", "dossier"), _of_root),
    "certificate": _of_certificate,
    "admission": _of_board,
    "bundle": _of_bundle,
}
"""What is asked at each, and the log that it is from."""


def _forged(door: str, cosign: Callable[[Shop], object]) -> Callable[[Stall], None]:
    def forge(stall: Stall) -> None:
        shop = DOORS[door](stall)
        cosign(shop)
        if door == "bundle":  # its proofs are under the checkpoint as it is by now
            stall.held["hand"].prove()
            stall.held["hand"].attest()
        _trusted(stall)

    return forge


for _door in DOORS:
    _executes = _door == "bundle"
    kind(_door, "what your witnesses have not seen", "", executes=_executes)(_forged(_door, lambda shop: None))
    kind(_door, "what another of your witness's name has seen", "", executes=_executes)(
        _forged(_door, lambda shop: _cosigned(shop, OTHER_WITNESS))
    )
    kind(_door, "what your witnesses have seen", "", honest=True, executes=_executes)(_forged(_door, _cosigned))
for _door in ("root", "address", "library", "admission"):
    kind(_door, "what your witnesses saw before its last event", "have not seen the end")(
        _forged(_door, lambda shop: _cosigned(shop, whole=False))
    )
