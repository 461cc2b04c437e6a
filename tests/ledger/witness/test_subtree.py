"""Cosigned subtrees: what a witness signs of a checkpoint that it signed whole, and what a witness shows of a log."""

import base64
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey, MLDSA44PublicKey

from ledger import (
    Conflict,
    Draft,
    Log,
    LogReader,
    NotFound,
    Refused,
    Tampered,
    Unverified,
    Witness,
    WitnessServer,
    add_signatures,
    ask_subtree,
    ask_witness,
    check_subtree,
    origin_hash,
    read_cosigned,
    subtree_proof,
    subtree_root,
)
from ledger.format.cosignature import Subtree, pack_cosignature
from ledger.format.cosigner import Cosigner
from ledger.format.note import NoteSignature, parse_note
from ledger.witness.subtree import SubtreeRequest
from tests.ledger.memory import MemoryStorage

ONE = Cosigner("witness.example/one", Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32))
TWO = Cosigner("witness.example/two", MLDSA44PrivateKey.from_seed_bytes(bytes([2]) * 32))
KEYS = [ONE.verifier, TWO.verifier]


@pytest.fixture
def reader(signer):
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append([Draft("t/v1", "s", {"n": n}) for n in range(14)])
    return LogReader(storage, [signer.verifier])


@pytest.fixture
def witness(signer):
    return Witness(MemoryStorage(), [ONE, TWO], {signer.name: [signer.verifier]})


def cosigned(server, reader):
    return add_signatures(reader.note(), ask_witness(server.address, reader.note(), reader.consistency_proof, KEYS))


def subtree_of(reader, start, end):
    origin = reader.checkpoint().origin
    return Subtree(origin, start, end, subtree_root(start, end, reader.hash)), subtree_proof(
        start, end, 14, reader.hash
    )


@pytest.mark.parametrize(("start", "end"), [(8, 13), (0, 14), (0, 5), (13, 14), (12, 14)])
def test_a_subtree_is_cosigned_as_the_specification_says(witness, reader, start, end):
    with WitnessServer(witness) as server:
        note = cosigned(server, reader)
        subtree, proof = subtree_of(reader, start, end)
        (line,) = ask_subtree(server.address, note, subtree, proof, KEYS)
    assert (line.name, line.key_id) == (TWO.name, TWO.verifier.key_id)
    # The message put together from the text of tlog-cosignature, and verified without our reader of it.
    origin = subtree.origin.encode()
    message = b"subtree/v1\n\0" + bytes([len(TWO.name)]) + TWO.name.encode() + struct.pack(">Q", 0)
    message += bytes([len(origin)]) + origin + struct.pack(">QQ", start, end) + subtree.root
    assert line.signature[:8] == bytes(8)
    MLDSA44PublicKey.from_public_bytes(TWO.verifier.public).verify(line.signature[8:], message)
    assert check_subtree(subtree, [line], KEYS) == [line]
    for other in (
        Subtree(subtree.origin, start, end, bytes(32)),
        Subtree("log.example/other", start, end, subtree.root),
        Subtree(subtree.origin, start, end + 1, subtree.root),
    ):
        with pytest.raises(Unverified):
            check_subtree(other, [line], KEYS)
    with pytest.raises(Unverified):
        check_subtree(subtree, [line], [ONE.verifier])


def test_wrong_requests_have_the_statuses_of_the_protocol(witness, reader, signer):
    with WitnessServer(witness) as server:
        note = cosigned(server, reader)
    subtree, proof = subtree_of(reader, 8, 13)

    def status(start=8, end=13, root=subtree.root, proof=proof, note=note):
        return witness.sign_subtree(SubtreeRequest(start, end, root, tuple(proof), note).encode()).status

    assert status() == 200
    assert status(start=9) == status(end=15) == status(start=8, end=8) == 400
    assert status(note=b"nothing") == 400
    assert status(root=bytes(32)) == status(proof=proof[1:]) == status(proof=[*proof, bytes(32)]) == 422
    assert status(note=reader.note()) == 403  # signed by the log alone
    only_first = [line for line in parse_note(note).signatures if line.name != TWO.name]
    assert status(note=add_signatures(reader.note(), only_first)) == 403  # by a key that signs no subtrees
    forged = NoteSignature(TWO.name, TWO.verifier.key_id, pack_cosignature(1, bytes(2420)))
    assert status(note=add_signatures(reader.note(), [forged])) == 403
    body = SubtreeRequest(8, 13, subtree.root, tuple(proof), note).encode()
    for broken in (
        b"",
        body.replace(b"subtree 8 13", b"subtree 08 13"),
        body.replace(b"subtree 8 13", b"subtree 8"),
        body.replace(b"\n\n", b"\n", 1),
        body.replace(base64.b64encode(subtree.root), b"AAAA"),
        b"\xff" + body,
        body.replace(b"\n\n", b"\n" + 64 * (base64.b64encode(bytes(32)) + b"\n") + b"\n", 1),
    ):
        assert witness.sign_subtree(broken).status == 400
    stranger = Witness(MemoryStorage(), [ONE, TWO], {"log.example/other": [signer.verifier]})
    assert stranger.sign_subtree(body).status == 404
    assert Witness(MemoryStorage(), [ONE], {signer.name: [signer.verifier]}).sign_subtree(body).status == 404


def test_a_witness_that_does_not_sign_subtrees_says_so(reader, signer):
    with WitnessServer(Witness(MemoryStorage(), [ONE], {signer.name: [signer.verifier]})) as server:
        note = add_signatures(reader.note(), [TWO.line(str(reader.checkpoint()))])
        with pytest.raises(Conflict, match="404"):
            ask_subtree(server.address, note, *subtree_of(reader, 8, 13), KEYS)
        with pytest.raises(Refused, match="cosigned first"):
            ask_subtree(server.address, reader.note(), *subtree_of(reader, 8, 13), KEYS)
        with pytest.raises(Refused, match="address"):
            ask_subtree("file:///etc/passwd", note, *subtree_of(reader, 8, 13), KEYS)


def test_no_time_no_newest_tree(reader, signer):
    """A signature of the subtree that is the whole tree is none of ``add-checkpoint``: it does not say what is newest."""
    subtree, _ = subtree_of(reader, 0, 14)
    line = TWO.subtree_line(subtree)
    assert TWO.verifier.verify(str(reader.checkpoint()), line.signature)

    class Late(Witness):
        def add_checkpoint(self, body):
            answer = super().add_checkpoint(body)
            return type(answer)(answer.status, str(line).encode())

    with (
        WitnessServer(Late(MemoryStorage(), [TWO], {signer.name: [signer.verifier]})) as server,
        pytest.raises(Unverified),
    ):
        ask_witness(server.address, reader.note(), reader.consistency_proof, [TWO.verifier])


def test_only_a_whole_tree_has_a_time(reader):
    subtree, _ = subtree_of(reader, 8, 13)
    line = TWO.subtree_line(subtree)
    assert not TWO.verifier.verify_subtree(subtree, pack_cosignature(1, line.signature[8:]))
    with pytest.raises(Refused):
        ONE.subtree_line(subtree)
    with pytest.raises(Refused):
        TWO.subtree_line(Subtree("o" * 256, 8, 13, subtree.root))


def test_what_a_witness_shows_of_a_log(witness, reader, signer):
    log = [signer.verifier]
    stranger = NoteSignature("witness.example/stranger", 7, bytes(72))
    with WitnessServer(witness) as server:
        with pytest.raises(NotFound):
            read_cosigned(server.address, signer.name, log, KEYS)
        ask_witness(server.address, add_signatures(reader.note(), [stranger]), reader.consistency_proof, KEYS)
        checkpoint, note = read_cosigned(server.address, signer.name, log, KEYS)
        assert checkpoint == reader.checkpoint()
        # What nobody verified is not kept.
        assert [line.name for line in note.signatures] == [signer.name, ONE.name, TWO.name]
        reader.check_continues(checkpoint)
        with pytest.raises(Unverified):
            read_cosigned(server.address, signer.name, log, [Cosigner(ONE.name, TWO.key).verifier])
        with pytest.raises(Unverified):
            read_cosigned(server.address, signer.name, [Cosigner(signer.name, ONE.key).verifier], KEYS)
    short = MemoryStorage()
    Log.create(short, signer)
    with pytest.raises(Tampered, match="rolled back"):
        LogReader(short, log).check_continues(checkpoint)


def test_the_hash_of_an_origin():
    # By sha256sum of GNU coreutils.
    assert (
        origin_hash("example.com/behind-the-sofa") == "5fd2dc0beb4ce54da5050cf6d5c75248b023abad441c3cecde3976fbe9da4fe4"
    )
