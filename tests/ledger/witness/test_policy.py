"""Trust policies (C2SP tlog-policy): the example of the specification, what is refused, and any bytes."""

import itertools

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from ledger import Cosigner, LedgerError, LogCheckpoint, Malformed, PolicyWitness, Refused, Unverified, WitnessPolicy
from ledger.format.note import Note, NoteSignature, parse_note

WITNESSES = {
    name: Cosigner(f"witness.example/{name}", Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))
    for number, name in enumerate(["X1", "X2", "X3", "Y1", "Y2", "Y3"], 1)
}


def lines(*extra: str):
    return "".join(
        f"{line}\n"
        for line in [
            "# two organizations",
            "",
            *(f"witness {name} {c.verifier}" for name, c in WITNESSES.items()),
            *extra,
        ]
    ).encode()


TWO_LEVELS = lines(
    "group X-witnesses 2 X1 X2 X3",
    "  group\tY-witnesses any Y1 Y2 Y3",
    "group X-and-Y all X-witnesses Y-witnesses",
    "quorum X-and-Y",
)


def cosigned(signer, names):
    note = parse_note(LogCheckpoint(signer.name, 0, b"r" * 32).sign([signer]).encode())
    return str(Note(note.text, (*note.signatures, *(WITNESSES[n].line(note.text) for n in names)))).encode()


def test_every_subset_of_the_specifications_example(signer):
    policy = WitnessPolicy.parse(TWO_LEVELS)
    assert WitnessPolicy.parse(str(policy).encode()) == policy
    for count in range(7):
        for names in itertools.combinations(WITNESSES, count):
            met = sum(n[0] == "X" for n in names) >= 2 and any(n[0] == "Y" for n in names)
            note = cosigned(signer, names)
            if met:
                checkpoint, found = policy.check(note, [signer.verifier])
                assert (checkpoint.size, found) == (0, list(names))
            else:
                with pytest.raises(Unverified, match="too few"):
                    policy.check(note, [signer.verifier])


def test_a_log_that_nobody_trusts_and_a_cosignature_that_does_not_hold(signer):
    policy = WitnessPolicy.parse(lines("quorum X1"))
    with pytest.raises(Unverified, match="no trusted key"):
        policy.check(cosigned(signer, ["X1"]))
    good = parse_note(cosigned(signer, ["X1"]))
    (line,) = good.signatures[1:]
    bad = NoteSignature(line.name, line.key_id, line.signature[:-1] + bytes([line.signature[-1] ^ 1]))
    with pytest.raises(Unverified, match="does not hold"):
        policy.check(str(Note(good.text, (good.signatures[0], bad))).encode(), [signer.verifier])
    assert WitnessPolicy.parse(b"quorum none\n").check(cosigned(signer, []), [signer.verifier])[1] == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"quorum none",
        b"quorum none\nquorum none\n",
        b"quorum X1\n",
        lines("group g 4 X1 X2 X3", "quorum g"),
        lines("group g 0 X1", "quorum g"),
        lines("group g 01 X1", "quorum g"),
        lines("group g any", "quorum g"),
        lines("group g any g", "quorum g"),
        lines("group g any X1 X1", "quorum g"),
        lines("group g any X1", "group h any X1", "quorum g"),
        lines("group h any g", "group g any X1", "quorum g"),
        lines("group X1 any X2", "quorum X1"),
        lines("group none any X1", "quorum none"),
        lines(f"witness again {WITNESSES['X1'].verifier}", "quorum none"),
        lines("witness w nonsense", "quorum none"),
        lines("what is this", "quorum none"),
        lines("quorum none") + b"\x00\n",
        lines("quorum none").replace(b"\n", b"\r\n"),
    ],
)
def test_what_is_no_policy_is_refused_with_its_line(data):
    with pytest.raises(Malformed) as caught:
        WitnessPolicy.parse(data)
    assert caught.value.where


def test_witnesses_are_added_one_by_one():
    policy = WitnessPolicy()
    for number, (name, cosigner) in enumerate(WITNESSES.items(), 1):
        policy = policy.with_witness(PolicyWitness(name, cosigner.verifier, "https://w"), None if number < 3 else 2)
        assert WitnessPolicy.parse(str(policy).encode()) == policy
    assert policy.describe() == "2 of X1, X2, X3, Y1, Y2, Y3"
    moved = policy.with_witness(PolicyWitness("X1", WITNESSES["X1"].verifier, "https://other"), 6)
    assert [w.url for w in moved.witnesses if w.name == "X1"] == ["https://other"]
    with pytest.raises(Refused, match="already"):
        policy.with_witness(PolicyWitness("alias", WITNESSES["X1"].verifier))
    with pytest.raises(Refused, match="quorum"):
        policy.with_witness(PolicyWitness("X1", WITNESSES["X1"].verifier), 7)
    with pytest.raises(Refused, match="groups of its own"):
        WitnessPolicy.parse(TWO_LEVELS).with_witness(PolicyWitness("X1", WITNESSES["X1"].verifier))


GROUPS = ["group a any X1 X2", "group b 2 X3 Y1 Y2", "group c all a b", "group d 1 c Y3"]
"""Each may stand where those before it do."""
QUORUMS = [f"quorum {name}" for name in ("a", "b", "c", "d", "X1", "none")]
BAD = [
    "group a 3 X1 X2",
    "group d 1 d X1",
    "group e 0 Y3",
    "group f any nobody",
    "quorum nobody",
    "quorum a b",
    "log x",
    "group",
]


@given(
    st.binary(max_size=300)
    | st.text(max_size=200).map(str.encode)
    | st.lists(st.sampled_from([*GROUPS, *QUORUMS, *BAD, ""]), max_size=6).map(lambda told: lines(*told))
    | st.builds(
        lambda groups, quorum: lines(*GROUPS[:groups], quorum), st.integers(0, len(GROUPS)), st.sampled_from(QUORUMS)
    )
)
def test_any_bytes_give_a_policy_or_the_librarys_error(data):
    try:
        WitnessPolicy.parse(data + b"\n")
    except LedgerError as error:
        str(error).encode()


def test_a_witness_has_the_key_of_a_cosigner(signer):
    """A plain Ed25519 key says nothing of when, or of what came before."""
    with pytest.raises(Malformed, match="cosigner"):
        WitnessPolicy.parse(f"witness X {signer.verifier}\nquorum X\n".encode())
    assert WitnessPolicy.parse(f"log {signer.verifier}\nquorum none\n".encode()).logs == (signer.verifier,)
