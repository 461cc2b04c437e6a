"""Libraries and tools of others read our logs: checkpoints, tiles, bundles, proofs, cosignatures."""

import random
import shutil
from base64 import b64decode

import judges
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from programs import ask

from ledger import Cosigner, Draft, Log, LogReader, PolicyWitness, PosixStorage, Signer, WitnessPolicy, make_proof
from ledger.format.note import parse_note
from ledger.format.tlog import leaf_hash

SIGNER = Signer("log.example/read", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
STRANGER = Signer(SIGNER.name, Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
WITNESSES = [
    Cosigner(f"witness.example/{seed}", Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)) for seed in (1, 2)
]
QUANTUM = Cosigner("witness.example/3", MLDSA44PrivateKey.from_seed_bytes(bytes(32)))
SIZES = (1, 2, 255, 256, 257, 700)
LIBRARIES = {"x/mod": "golang-golang-x-mod-dev", "torchwood": "golang-filippo-torchwood-dev"}


def version(package):
    return judges.version("go-sources", package)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Folders with a log each, by size."""
    made = {}
    for size in SIZES:
        root = tmp_path_factory.mktemp(f"log{size}")
        storage = PosixStorage(root)
        Log.create(storage, SIGNER)
        with Log.open(storage, SIGNER) as log:
            log.append([Draft("t/v1", f"s/{n % 7}", {"n": n, "text": 'é\u2028"' * (n % 5)}) for n in range(size)])
        made[size] = root / "log"
    return made


def altered_files(folder, tmp_path, seed=0):
    """Copies of a log, each with one bit of one file flipped or one file gone: (what, folder)."""
    names = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name[0] != "."
    )
    chosen = random.Random(seed)
    for number, name in enumerate(names):
        for how in ("flip", "cut"):
            copy = tmp_path / f"{number}-{how}"
            shutil.copytree(folder, copy)
            data = bytearray((copy / name).read_bytes())
            if how == "cut":
                del data[-1:]
            else:
                data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
            (copy / name).write_bytes(data)
            yield f"{name} {how}", copy


def judge_reading(judged, logs, tmp_path, read):
    """`read(folder, vkey)` must take every log of ours and none that was altered."""
    for folder in logs.values():
        status, said = read(folder, SIGNER.verifier)
        assert status == 0, said
    judged.accepts(f"logs of {', '.join(map(str, SIZES))} entries: checkpoint, every tile, every entry")
    total = 0
    for what, folder in altered_files(logs[257], tmp_path):
        status, said = read(folder, SIGNER.verifier)
        assert status != 0, (what, said)
        total += 1
    judged.refuses(f"{total} copies of a log of 257 entries with one bit flipped or one byte cut off, in every file")
    assert read(logs[257], STRANGER.verifier)[0] != 0
    judged.refuses("our log under another key")


def test_x_mod(logs, tmp_path, judge):
    program = judges.go_program("xmod")
    judged = judge("golang.org/x/mod/sumdb", version(LIBRARIES["x/mod"]))
    judge_reading(judged, logs, tmp_path, lambda folder, vkey: ask(program, folder, vkey))


def test_tessera_fsck(logs, tmp_path, judge):
    program = judges.go_program("fsck")
    judged = judge("Tessera's fsck", version("golang-github-transparency-dev-tessera-dev"))
    judge_reading(judged, logs, tmp_path, lambda folder, vkey: ask(program, folder, vkey))


def test_torchwood_reads(logs, tmp_path, judge):
    program = judges.go_program("torchwood")
    judged = judge("filippo.io/torchwood", version(LIBRARIES["torchwood"]))
    judge_reading(judged, logs, tmp_path, lambda folder, vkey: ask(program, "entries", folder, vkey))
    for folder in logs.values():
        reader = LogReader(PosixStorage(folder.parent, readonly=True), [SIGNER.verifier])
        _, said = ask(program, "entries", folder, SIGNER.verifier)
        assert said.encode() == b"".join(entry + b"\n" for _, entry in reader.entries())
    reader = LogReader(PosixStorage(logs[700].parent, readonly=True), [SIGNER.verifier])
    refused = 0
    for index in (0, 1, 255, 256, 511, 699):
        proof, file = make_proof(reader, index), tmp_path / "proof"
        leaf = leaf_hash(reader.entry(index)).hex()
        file.write_text(str(proof))
        assert ask(program, "proof", file, SIGNER.verifier, leaf) == (0, reader.entry(index).decode())
        assert ask(program, "proof", file, STRANGER.verifier, leaf)[0] != 0
        other = leaf_hash(reader.entry((index + 1) % 700)).hex()
        assert ask(program, "proof", file, SIGNER.verifier, other)[0] != 0
        for old, new in ((f"index {index}\n", f"index {index + 1}\n"), ("\n700\n", "\n699\n")):
            file.write_text(str(proof).replace(old, new))
            assert ask(program, "proof", file, SIGNER.verifier, leaf)[0] != 0, (index, old)
        refused += 4
    judged.accepts("tlog-proofs of six entries")
    judged.refuses(f"{refused} proofs of another leaf, index, size or key")


def test_torchwood_policies(logs, tmp_path, judge):
    """A policy as our program writes it, and a checkpoint with as many cosignatures as it asks for, or too few."""
    judged = judge("filippo.io/torchwood", version(LIBRARIES["torchwood"]))
    program = judges.go_program("torchwood")
    note = (logs[257] / "checkpoint").read_text()
    text = parse_note(note.encode()).text
    policy = WitnessPolicy.parse(f"log {SIGNER.verifier}\nquorum none\n".encode())
    for number, witness in enumerate(WITNESSES):
        added = PolicyWitness(f"w{number}", witness.verifier, f"https://witness.example/{number}")
        policy = policy.with_witness(added, needed=number + 1)
    (tmp_path / "policy").write_text(str(policy))

    def judged_fine(lines):
        (tmp_path / "note").write_text(note + "".join(map(str, lines)))
        status, said = ask(program, "policy", tmp_path / "note", tmp_path / "policy")
        return status == 0, said

    lines = [witness.line(text) for witness in WITNESSES]
    assert judged_fine(lines) == (True, "3\n")
    judged.accepts("a checkpoint with two cosignatures, under our policy of two witnesses")
    for fewer in ([], lines[:1], lines[1:]):
        assert not judged_fine(fewer)[0]
    for number in (0, 1):
        other = [witness.line(text.replace("257", "258")) for witness in WITNESSES]
        other[1 - number] = lines[1 - number]
        assert not judged_fine(other)[0]
    judged.refuses("one witness or none where the policy wants two, and either's signature of another tree")


def test_formats_and_merkle(logs, tmp_path, judge):
    program = judges.go_program("formats")
    judged = judge("transparency-dev formats", version("golang-github-transparency-dev-formats-dev"))
    note = (logs[257] / "checkpoint").read_text()
    lines = [str(witness.line(parse_note(note.encode()).text)) for witness in WITNESSES]
    file = tmp_path / "note"
    file.write_text(note + "".join(lines))
    keys = [SIGNER.verifier, *(witness.verifier for witness in WITNESSES)]
    assert ask(program, "checkpoint", file, SIGNER.name, *keys) == (0, "3\n")
    judged.accepts("a log checkpoint with two cosignatures")
    assert ask(program, "checkpoint", file, "log.example/other", *keys)[0] != 0
    assert ask(program, "checkpoint", file, SIGNER.name, STRANGER.verifier)[0] != 0
    file.write_text(file.read_text().replace("\n257\n", "\n256\n"))
    assert ask(program, "checkpoint", file, SIGNER.name, *keys)[0] != 0
    judged.refuses("another origin, another key, another size")

    judged = judge("transparency-dev merkle", version("golang-github-transparency-dev-merkle-dev"))
    reader = LogReader(PosixStorage(logs[700].parent, readonly=True), [SIGNER.verifier])
    root = reader.checkpoint().root
    wrong = bytes(32).hex()
    for index in (0, 1, 254, 255, 256, 511, 699):
        proof = [value.hex() for value in reader.inclusion_proof(index)]
        leaf = reader.leaf_hash(index).hex()
        assert ask(program, "inclusion", index, 700, leaf, root.hex(), *proof)[0] == 0
        assert ask(program, "inclusion", index, 700, leaf, wrong, *proof)[0] != 0
        assert ask(program, "inclusion", index ^ 1, 700, leaf, root.hex(), *proof)[0] != 0
        assert ask(program, "inclusion", index, 700, leaf, root.hex(), wrong, *proof[1:])[0] != 0
    judged.accepts("inclusion of seven entries of 700")
    judged.refuses("inclusion with another root, index or hash")
    for old in (1, 2, 255, 256, 257, 512, 699):
        proof = [value.hex() for value in reader.consistency_proof(old)]
        before = reader.root(old).hex()
        assert ask(program, "consistency", old, 700, before, root.hex(), *proof)[0] == 0
        assert ask(program, "consistency", old, 700, wrong, root.hex(), *proof)[0] != 0
        assert ask(program, "consistency", old, 700, before, root.hex(), wrong, *proof[1:])[0] != 0
    judged.accepts("consistency of seven sizes with 700")
    judged.refuses("consistency with another root or hash")


def test_go_mldsa(logs, judge):
    """torchwood knows no ML-DSA yet; the message is put together here from the text of C2SP tlog-cosignature."""
    program = judges.go_program("mldsa")
    judged = judge("Go's crypto/mldsa", judges.version("go"))
    text = parse_note((logs[257] / "checkpoint").read_bytes()).text
    origin, size, root = text.splitlines()
    signature = QUANTUM.sign(text)
    names = [bytes([len(name)]) + name.encode() for name in (QUANTUM.name, origin)]
    times = signature[:8]
    message = b"subtree/v1\n\x00" + names[0] + times + names[1] + bytes(8) + int(size).to_bytes(8) + b64decode(root)
    public, raw = QUANTUM.verifier.public, signature[8:]
    assert ask(program, public.hex(), raw.hex(), stdin=message) == (0, "")
    judged.accepts("an ML-DSA-44 cosignature of ours")
    assert ask(program, public.hex(), raw.hex(), stdin=message[:-1] + b"\0")[0] != 0
    assert ask(program, public.hex(), (raw[:-1] + bytes([raw[-1] ^ 1])).hex(), stdin=message)[0] != 0
    other = MLDSA44PrivateKey.from_seed_bytes(bytes(31) + b"\1").public_key().public_bytes_raw()
    assert ask(program, other.hex(), raw.hex(), stdin=message)[0] != 0
    judged.refuses("the same of another root, with another bit, under another key")


def test_spicy(logs, tmp_path, judge):
    """torchwood's command for files with a proof beside them. Its form is older: a tlog-proof without its first lines."""
    spicy = judges.room("torchwood") / "usr/bin/spicy-torchwood"
    judged = judge("spicy", f"torchwood {judges.version('torchwood')}")
    reader = LogReader(PosixStorage(logs[700].parent, readonly=True), [SIGNER.verifier])
    file = tmp_path / "entry.json"
    for index in (0, 256, 699):
        proof = str(make_proof(reader, index))
        file.write_bytes(reader.entry(index))
        file.with_name("entry.json.spicy").write_text(proof[proof.index("index ") :])
        assert ask(spicy, "-verify", SIGNER.verifier, file)[0] == 0
        assert ask(spicy, "-verify", STRANGER.verifier, file)[0] != 0
        file.write_bytes(reader.entry(index) + b" ")
        assert ask(spicy, "-verify", SIGNER.verifier, file)[0] != 0
    judged.accepts("our proofs of three entries as signatures of files")
    judged.refuses("an entry with a byte more, and another key")
