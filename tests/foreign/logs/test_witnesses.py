"""Witnesses of other authors cosign our log as it grows, and refuse a fork, a rollback and a stranger's signature."""

import hashlib
import shutil
import subprocess
from contextlib import contextmanager

import judges
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from programs import SECONDS, ask, free_port, serving

from ledger import (
    Conflict,
    Cosigner,
    Draft,
    Log,
    LogReader,
    PosixStorage,
    Signer,
    Tampered,
    VerifierKey,
    Witness,
    WitnessServer,
    ask_witness,
    check,
    check_witnessed,
)
from tests.ledger.memory import MemoryStorage

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()


def grow(storage, signer, count, word="honest"):
    """Append `count` events, and the reader of what came of it."""
    with Log.open(storage, signer, publish_seconds=0) as log:
        size = log.checkpoint.size
        log.append([Draft("t/v1", "s", {"n": n, "word": word}) for n in range(size, size + count)])
    return LogReader(storage, [signer.verifier])


def judge_a_witness(judged, signer, address, key):
    """The same questions to any witness: it must cosign what grows, and nothing else."""
    storage = MemoryStorage()
    Log.create(storage, signer)
    for count in (1, 2, 300, 2_000):
        reader = grow(storage, signer, count)
        lines = ask_witness(address, reader.note(), reader.consistency_proof, [key])
        with Log.open(storage, signer) as log:
            log.add_cosignatures(lines)
        assert check_witnessed(storage.read("log/checkpoint"), [key], 1) == [key.name]
    judged.accepts("a log that grows from 0 to 1, 3, 303 and 2,303 entries, each time with our consistency proof")

    size = reader.checkpoint().size
    forked = MemoryStorage()
    Log.create(forked, signer)
    fork = grow(forked, signer, size, word="another story")
    with pytest.raises(Conflict):
        ask_witness(address, fork.note(), reader.consistency_proof, [key], old_size=size)
    judged.refuses("a fork of the same size")
    fork = grow(forked, signer, 5)
    with pytest.raises(Conflict):
        ask_witness(address, fork.note(), fork.consistency_proof, [key], old_size=size)
    judged.refuses("a fork that is longer, with a proof from its own past")
    short = MemoryStorage()
    Log.create(short, signer)
    with pytest.raises(Tampered, match="longer log"):
        young = grow(short, signer, 3)
        ask_witness(address, young.note(), young.consistency_proof, [key])
    judged.refuses("a log that was rolled back")
    stranger = Signer(signer.name, Ed25519PrivateKey.generate())
    planted = MemoryStorage()
    Log.create(planted, stranger)
    foreign = grow(planted, stranger, 1)
    with pytest.raises(Conflict):
        ask_witness(address, foreign.note(), foreign.consistency_proof, [key])
    judged.refuses("a checkpoint under our name that another key signed")
    reader = grow(storage, signer, 1)
    proof = reader.consistency_proof(size)
    with pytest.raises(Conflict):
        ask_witness(address, reader.note(), lambda _: [bytes(32), *proof[1:]], [key], old_size=size)
    judged.refuses("our consistency proof with one hash altered")
    assert ask_witness(address, reader.note(), reader.consistency_proof, [key])


@contextmanager
def ssh_agent(place, key):
    """litewitness signs through an ssh-agent: one with this key, listening at `place`."""
    with subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.PIPE) as agent:
        try:
            agent.stdout.readline()  # printed once it listens
            status, said = ask("ssh-add", "-q", key, env={"SSH_AUTH_SOCK": str(place)})
            assert status == 0, said
            yield
        finally:
            agent.terminate()


def test_litewitness(tmp_path, judge):
    programs = judges.room("torchwood") / "usr/bin"
    signer = Signer("log.example/judged", KEY)
    database, key, agent = tmp_path / "witness.db", tmp_path / "key", tmp_path / "agent"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True, timeout=SECONDS)
    for command in (["add-log"], ["add-key", "-key", str(signer.verifier)]):
        control = [programs / "witnessctl", command[0], "-db", database, "-origin", signer.name, *command[1:]]
        status, said = ask(*control)
        assert status == 0, said
    with ssh_agent(agent, key):
        fingerprint = ask("ssh-keygen", "-lf", f"{key}.pub")[1].split()[1]
        port, log = free_port(), tmp_path / "log"
        command = [programs / "litewitness", "-db", database, "-key", fingerprint, "-ssh-agent", agent]
        with serving([*command, "-name", "witness.example/lite", "-listen", f"127.0.0.1:{port}"], port, log=log) as at:
            (named,) = (word for word in log.read_text().split() if word.startswith("vkey="))
            verifier = VerifierKey.parse(named.removeprefix("vkey="))
            judge_a_witness(judge("litewitness", f"torchwood {judges.version('torchwood')}"), signer, at, verifier)


def test_sigsum_witness(tmp_path, judge):
    programs = judges.room("sigsum") / "usr/bin"
    # Sigsum's logs are named by the hash of their key; any other origin is not found there.
    signer = Signer(f"sigsum.org/v1/tree/{hashlib.sha256(PUBLIC).hexdigest()}", KEY)
    public, key = tmp_path / "log.pub", tmp_path / "key"
    openssh = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    public.write_bytes(KEY.public_key().public_bytes(*openssh) + b"\n")
    status, said = ask(programs / "sigsum-key", "generate", "-o", key)
    assert status == 0, said
    raw = serialization.load_ssh_public_key((tmp_path / "key.pub").read_bytes()).public_bytes_raw()
    verifier = VerifierKey(f"sigsum.org/v1/witness/{hashlib.sha256(raw).hexdigest()}", 0x04, raw)
    port = free_port()
    command = [programs / "sigsum-witness", "-k", key, f"--log-key={public}", f"--state-file={tmp_path / 'state'}"]
    with serving([*command, f"127.0.0.1:{port}"], port, log=tmp_path / "log") as address:
        judge_a_witness(judge("sigsum-witness", f"sigsum-go {judges.version('sigsum')}"), signer, address, verifier)


def test_tessera_asks_our_witness(tmp_path, judge):
    """A log of Tessera's publishes nothing that our witness has not cosigned; our reader reads what it published."""
    program = judges.go_program("tesseralog")
    version = judges.version("go-sources", "golang-github-transparency-dev-tessera-dev")
    secret, public = ask(judges.go_program("notekey"), "log.example/tessera")[1].split()
    cosigner = Cosigner("witness.example/ours", Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32))
    key = VerifierKey.parse(public)
    folder, judged = tmp_path / "log", judge("Tessera's log", version)
    with WitnessServer(Witness(MemoryStorage(), [cosigner], {key.name: [key]})) as server:

        def grow_theirs(place, first, count):
            return ask(program, place, secret, first, count, cosigner.verifier, server.address)

        for first, count in ((0, 1), (1, 300), (301, 5)):
            status, said = grow_theirs(folder, first, count)
            assert status == 0, said
            assert check_witnessed((folder / "checkpoint").read_bytes(), [cosigner.verifier], 1)
        judged.accepts("cosignatures of our witness, for a log that grows to 1, 301 and 306 entries")
        status, said = grow_theirs(tmp_path / "fork", 1000, 310)
        assert status != 0
        assert (
            not (tmp_path / "fork" / "checkpoint").exists()
            or b"\n310\n" not in (tmp_path / "fork" / "checkpoint").read_bytes()
        )
        judged.refuses("to publish a second log under its key, which our witness does not cosign")

    storage = PosixStorage(folder, readonly=True)
    assert check(storage, [key], log="", entries_are_events=False) == []
    entries = [entry for _, entry in LogReader(storage, [key], log="").entries()]
    assert sorted(entries) == sorted(f"entry {n}".encode() for n in range(306))
    judged.accepts("our audit: the log of 306 entries that it wrote is clean")
    for name in sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()):
        if name.startswith(".state") or ".p/" in name:
            continue
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        data = bytearray((copy / name).read_bytes())
        data[len(data) // 2] ^= 1
        (copy / name).write_bytes(data)
        assert check(PosixStorage(copy, readonly=True), [key], log="", entries_are_events=False) != [], name
        shutil.rmtree(copy)
    judged.refuses("(our audit) the same with one bit flipped in its checkpoint, a tile or a bundle")
