"""Signed notes and log checkpoints: the specifications' own examples, and everything that must not open."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from ledger import LedgerError, LogCheckpoint, Malformed, Refused, Signer, Unverified, VerifierKey
from ledger.format.checkpoint import open_checkpoint
from ledger.format.note import NoteSignature, open_note, parse_note, sign_note
from ledger.format.tlog import EMPTY_ROOT

# The example of C2SP signed-note.
VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
NOTE = (
    "This is an example message.\n\n"
    "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
).encode()
# The example of C2SP tlog-checkpoint, whose key is not published.
CHECKPOINT = (
    "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
    "— example.com/behind-the-sofa "
    "Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
).encode()

ONE = Signer("log.example/one", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
TWO = Signer("log.example/two", Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))


def test_the_example_of_the_specification_opens():
    key = VerifierKey.parse(VKEY)
    note, signers = open_note(NOTE, [key])
    assert note.text == "This is an example message.\n"
    assert signers == (key,)
    assert str(key) == VKEY
    assert str(note).encode() == NOTE


def test_every_flipped_bit_of_the_example_is_noticed():
    key = VerifierKey.parse(VKEY)
    for at in range(len(NOTE)):
        for bit in range(8):
            changed = bytearray(NOTE)
            changed[at] ^= 1 << bit
            with pytest.raises((Malformed, Unverified)):
                open_note(bytes(changed), [key])


def test_the_example_checkpoint_is_read():
    note = parse_note(CHECKPOINT)
    checkpoint = LogCheckpoint.parse(note.text)
    assert (checkpoint.origin, checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert str(checkpoint) == note.text
    with pytest.raises(Unverified):
        open_checkpoint(CHECKPOINT, [VerifierKey.parse(VKEY)])


def test_unknown_signatures_are_ignored_and_bad_ones_of_known_keys_are_not():
    text = "some text\n\nwith an empty line\n"
    both = sign_note(text, [ONE, TWO]).encode()
    assert open_note(both, [ONE.verifier])[1] == (ONE.verifier,)
    assert set(open_note(both, [TWO.verifier, ONE.verifier])[1]) == {ONE.verifier, TWO.verifier}
    note = parse_note(both)
    forged = NoteSignature(TWO.name, TWO.verifier.key_id, note.signatures[0].signature)
    wrong = f"{text}\n{note.signatures[0]}{forged}".encode()
    assert open_note(wrong, [ONE.verifier])[1] == (ONE.verifier,)
    with pytest.raises(Unverified, match=r"log\.example/two"):
        open_note(wrong, [ONE.verifier, TWO.verifier])
    with pytest.raises(Unverified, match="no trusted key"):
        open_note(both, [])


def test_same_name_or_same_id_alone_is_another_key():
    other = Signer(ONE.name, TWO.key)
    signed = sign_note("text\n", [other]).encode()
    with pytest.raises(Unverified, match="no trusted key"):
        open_note(signed, [ONE.verifier])


def test_at_least_sixteen_signatures_are_read():
    signers = [Signer(f"w{i}.example", Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32)) for i in range(1, 17)]
    signed = sign_note("text\n", signers).encode()
    assert len(open_note(signed, [signer.verifier for signer in signers])[1]) == 16


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"text\n",
        b"text\n\n",
        b"text\n\nno mark\n",
        NOTE[:-1],
        NOTE.replace(b"\n\n", b"\n\x00\n"),
        NOTE.replace(b"This", b"Th\tis"),
        NOTE.replace(b"example.com/foo U", b"example.com/foo  U"),
        NOTE.replace(b"example.com/foo", b"example.com+foo"),
        NOTE.replace(b"aQM=", b"aQN="),
        NOTE.replace(b"aQM=\n", b"aQM=\n\n"),
        b"\xff\n\n" + NOTE,
        NOTE * 40000,
    ],
)
def test_what_is_no_note_is_malformed(data):
    with pytest.raises(Malformed):
        parse_note(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        "name+530d903a",
        VKEY[:-1],
        VKEY.replace("530d903a", "530d903b"),
        VKEY.replace("530d903a", "530D903A"),
        VKEY.replace("foo", "fo o"),
        VKEY.replace("+Ae", "+Ag"),
        "+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "name+00000000+",
        "name+00000000+AA==",
    ],
)
def test_what_is_no_verifier_key_is_malformed(text):
    with pytest.raises(Malformed):
        VerifierKey.parse(text)


@pytest.mark.parametrize("text", ["no newline", "tab\t\n", "null\x00\n"])
def test_text_that_cannot_be_a_note_is_refused(text):
    with pytest.raises(Refused):
        sign_note(text, [ONE])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "origin\n1\n",
        "origin\n1\nAAAA\n",
        f"origin\n01\n{base64.b64encode(EMPTY_ROOT).decode()}\n",
        f"origin\n-1\n{base64.b64encode(EMPTY_ROOT).decode()}\n",
        f"origin\n9223372036854775808\n{base64.b64encode(EMPTY_ROOT).decode()}\n",
        f"origin\n1\n{base64.b64encode(EMPTY_ROOT).decode()}\n\n",
        f"\n1\n{base64.b64encode(EMPTY_ROOT).decode()}\n",
        f"origin\n1\n{base64.b64encode(EMPTY_ROOT).decode()}",
        f"origin\n\u0661\n{base64.b64encode(EMPTY_ROOT).decode()}\n",
    ],
)
def test_what_is_no_checkpoint_is_malformed(text):
    with pytest.raises(Malformed):
        LogCheckpoint.parse(text)


def test_checkpoints_of_another_log_are_not_taken():
    signed = LogCheckpoint("log.example/one", 0, EMPTY_ROOT).sign([ONE]).encode()
    assert open_checkpoint(signed, [ONE.verifier], origin="log.example/one")[0].size == 0
    with pytest.raises(Unverified):
        open_checkpoint(signed, [ONE.verifier], origin="log.example/other")


def test_extension_lines_are_kept():
    checkpoint = LogCheckpoint("log.example/one", 3, EMPTY_ROOT, ("one", "two"))
    assert LogCheckpoint.parse(str(checkpoint)) == checkpoint


@given(st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32))
def test_checkpoints_come_back(size, root):
    checkpoint = LogCheckpoint("log.example/one", size, root)
    found, _ = open_checkpoint(checkpoint.sign([ONE]).encode(), [ONE.verifier])
    assert found == checkpoint


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_give_a_value_or_our_own_error(data):
    for parse in (
        parse_note,
        lambda d: LogCheckpoint.parse(d.decode("utf-8", "replace")),
        lambda d: VerifierKey.parse(d.decode("utf-8", "replace")),
        lambda d: open_note(b"text\n\n\xe2\x80\x94 " + d, [ONE.verifier]),
    ):
        try:
            parse(data)
        except LedgerError as error:
            assert "\n" not in str(error)
