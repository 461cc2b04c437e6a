"""Mirrors of other authors follow our log and cosign it, ours follows theirs; published cases of proofs of subtrees.

No registry has a program that is a mirror (C2SP tlog-mirror is of July 2026), so these two tests run where
MARIN_FOREIGN_TESSERA names a folder with programs made from Tessera's source, and say that they skip where it does not. The
folder's name is the version.

    mirror         its mirror server (cmd/mtc/mirror/posix)
    mirror-push    FOLDER SUBMISSION MONITORING: its client (client/mirror) brings the log in FOLDER to a mirror, and prints what
                   that signed

    MARIN_FOREIGN_TESSERA=/tmp/fb252acd pytest -m foreign tests/foreign/logs/test_mirrors.py
"""

import base64
import gzip
import json
import os
import shutil
from pathlib import Path

import judges
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from programs import ask, free_port, serving

from ledger import (
    Conflict,
    Cosigner,
    Draft,
    LedgerError,
    Log,
    LogMirror,
    LogReader,
    PosixStorage,
    Signer,
    Unverified,
    VerifierKey,
    Witness,
    WitnessServer,
    check,
    follow_log,
    is_subtree,
    mirror_at,
    origin_hash,
    post_to,
    read_cosigned,
    verify_subtree,
)
from ledger.format.note import parse_note
from ledger.format.tlog import verify_inclusion
from ledger.witness.consistency import verify_consistency
from tests.ledger.memory import MemoryStorage

SEED = bytes(range(32))
TESSERA = os.environ.get("MARIN_FOREIGN_TESSERA", "")
needs_tessera = pytest.mark.skipif(not TESSERA, reason="MARIN_FOREIGN_TESSERA names no folder with programs of Tessera")


def grown(storage, signer, count, word="honest"):
    with Log.open(storage, signer, publish_seconds=0) as log:
        size = log.checkpoint.size
        log.append([Draft("t/v1", "s", {"n": n, "word": word}) for n in range(size, size + count)])
    return LogReader(storage, [signer.verifier])


@needs_tessera
def test_tesseras_mirror_follows_our_log(tmp_path, judge):
    judged = judge("Tessera's mirror", Path(TESSERA).name)
    theirs = Cosigner("mirror.example/theirs", MLDSA44PrivateKey.from_seed_bytes(SEED))
    secret = base64.b64encode(b"\x06" + SEED).decode()
    (tmp_path / "secret").write_text(f"PRIVATE+KEY+{theirs.name}+{theirs.verifier.key_id:08x}+{secret}")
    signer = Signer("log.example/judged", Ed25519PrivateKey.from_private_bytes(SEED))
    (tmp_path / "logs").write_text(f"logs/v0\n\nvkey {signer.verifier}\n")
    storage, forked, port = MemoryStorage(), MemoryStorage(), free_port()
    command = [Path(TESSERA) / "mirror", f"--listen_addr=127.0.0.1:{port}", f"--storage_dir={tmp_path / 'root'}"]
    command += [f"--mirror_cosigner_path={tmp_path / 'secret'}", f"--config_path={tmp_path / 'logs'}"]
    # Built without module files, a Go program matches addresses as Go did before 1.22; its server says methods in them.
    with serving(command, port, log=tmp_path / "log", env={"GODEBUG": "httpmuxgo121=0"}) as address:
        Log.create(storage, signer)
        for count in (1, 2, 297, 400):
            reader = grown(storage, signer, count)
            lines = follow_log(mirror_at(address), reader, [theirs.verifier])
        with Log.open(storage, signer) as log:
            log.add_cosignatures(lines)
        copy = PosixStorage(tmp_path / "root/public/mirrors" / origin_hash(signer.name), readonly=True)
        assert check(copy, [signer.verifier], log="") == []
        assert list(LogReader(copy, [signer.verifier], log="").entries()) == list(reader.entries())
        judged.accepts("our log at 1, 3, 300 and 700 entries, of which it has every entry and signs each checkpoint")
        Log.create(forked, signer)
        with pytest.raises(Conflict):
            follow_log(mirror_at(address), grown(forked, signer, 800, "another story"), [theirs.verifier])
        judged.refuses("a fork of 800 entries")
        reader = grown(storage, signer, 100)

        def altered(path, body, headers):
            if path == "/add-entries" and len(body) > 200:
                plain = bytearray(gzip.decompress(body))
                plain[len(plain) // 2] ^= 1  # of an entry: a ticket is not longer than a thousand bytes
                body = gzip.compress(bytes(plain))
            return mirror_at(address)(path, body, headers)

        with pytest.raises(LedgerError):
            follow_log(altered, reader, [theirs.verifier])
        judged.refuses("a package of entries with another bit in it")
        follow_log(mirror_at(address), reader, [theirs.verifier])


@needs_tessera
def test_our_mirror_follows_tesseras_log(tmp_path, judge):
    judged = judge("Tessera's mirror client", Path(TESSERA).name)
    witness = Cosigner("witness.example/ours", Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32))
    ours = Cosigner("mirror.example/ours", MLDSA44PrivateKey.from_seed_bytes(bytes([3]) * 32))
    secret, public = ask(judges.go_program("notekey"), "log.example/tessera")[1].split()
    key, folder, kept = VerifierKey.parse(public), tmp_path / "log", MemoryStorage()
    logs = {key.name: [key]}
    mirror, push = LogMirror(kept, [ours], logs), Path(TESSERA) / "mirror-push"
    with WitnessServer(Witness(MemoryStorage(), [witness], logs)) as witnessing, WitnessServer(mirror) as server:
        grow = [judges.go_program("tesseralog"), folder, secret]
        for first, count in ((0, 1), (1, 300), (301, 399)):
            status, said = ask(*grow, first, count, witness.verifier, witnessing.address)
            assert status == 0, said
            status, said = ask(push, folder, f"{server.address}/", f"{server.address}/{origin_hash(key.name)}/")
            assert status == 0, said
            text = "".join(line + "\n" for line in said.splitlines() if line.startswith("— "))
            checkpoint, _ = read_cosigned(server.address, key.name, [key], [ours.verifier])
            assert f"\n{checkpoint.size}\n".encode() in (folder / "checkpoint").read_bytes()
            (line,) = parse_note(b"-\n\n" + text.encode()).signatures
            assert ours.verifier.verify(str(checkpoint), line.signature)
    entries = [entry for _, entry in LogReader(kept, [key], log=origin_hash(key.name)).entries()]
    assert sorted(entries) == sorted(f"entry {n}".encode() for n in range(700))
    assert check(kept, [key], log=origin_hash(key.name), entries_are_events=False) == []
    judged.accepts("our mirror's cosignatures of its log at 1, 301 and 700 entries")

    bundle = folder / "tile/entries/001"
    bundle.write_bytes(bundle.read_bytes()[:-1] + b"?")
    with WitnessServer(LogMirror(MemoryStorage(), [ours], logs)) as server:
        status, said = ask(push, folder, f"{server.address}/", f"{server.address}/{origin_hash(key.name)}/")
        assert (status != 0) and "422" in said
    judged.refuses("(our mirror) its log with another byte in a bundle")


def test_our_mirror_reads_the_log_of_tessera(tmp_path, judge):
    """The log that Tessera as Debian has it writes, taken from its folder, and followed while it grows."""
    version = judges.version("go-sources", "golang-github-transparency-dev-tessera-dev")
    judged = judge("Tessera's log", version)
    witness = Cosigner("witness.example/ours", Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32))
    ours = Cosigner("mirror.example/ours", MLDSA44PrivateKey.from_seed_bytes(bytes([3]) * 32))
    secret, public = ask(judges.go_program("notekey"), "log.example/tessera")[1].split()
    key, folder, kept = VerifierKey.parse(public), tmp_path / "log", MemoryStorage()
    mirror = LogMirror(kept, [ours], {key.name: [key]})
    with WitnessServer(Witness(MemoryStorage(), [witness], {key.name: [key]})) as witnessing:
        for first, count in ((0, 1), (1, 300), (301, 399)):
            status, said = ask(
                judges.go_program("tesseralog"), folder, secret, first, count, witness.verifier, witnessing.address
            )
            assert status == 0, said
            reader = LogReader(PosixStorage(folder, readonly=True), [key], log="")
            assert follow_log(post_to(mirror), reader, [ours.verifier])
    copy = LogReader(kept, [key], log=origin_hash(key.name))
    assert list(copy.entries()) == list(reader.entries())
    judged.accepts("(our mirror) its log at 1, 301 and 700 entries, which ours follows and cosigns")
    for name in ("tile/entries/001", "tile/0/001"):
        changed = tmp_path / "changed"
        shutil.copytree(folder, changed)
        data = bytearray((changed / name).read_bytes())
        data[len(data) // 2] ^= 1
        (changed / name).write_bytes(data)
        fresh, reader = MemoryStorage(), LogReader(PosixStorage(changed, readonly=True), [key], log="")
        with pytest.raises(LedgerError):
            follow_log(post_to(LogMirror(fresh, [ours], {key.name: [key]})), reader, [ours.verifier])
        assert f"{origin_hash(key.name)}/checkpoint" not in fresh.files
        shutil.rmtree(changed)
    judged.refuses("(our mirror) the same with one bit flipped in a tile or a bundle")


def _decoded(value):
    return base64.b64decode(value) if value else b""


def _holds(kind, case):
    """Whether ours takes this case: an inclusion, a consistency, or one of them in a subtree."""
    proof = [_decoded(value) for value in case.get("proof") or []]
    try:
        if kind == "subtreeconsistency":
            roots = _decoded(case["root1"]), _decoded(case["root2"])
            verify_subtree(case["start"], case["end"], case["size"], *roots, proof)
        elif kind == "consistency":
            roots = _decoded(case["root1"]), _decoded(case["root2"])
            verify_consistency(case["size1"], case["size2"], *roots, proof)
        else:
            start, end = case.get("start", 0), case.get("end", case.get("treeSize"))
            if kind == "subtreeinclusion" and not (is_subtree(start, end) and start <= case["leafIdx"] < end):
                raise Unverified("not in the subtree")
            leaf, root = _decoded(case["leafHash"]), _decoded(case["root"])
            verify_inclusion(case["leafIdx"] - start, end - start, leaf, proof, root)
    except LedgerError:
        return False
    return True


def test_published_cases_of_subtrees(judge):
    version = judges.version("merkle-cases")[:12]
    judged = judge("transparency-dev merkle's cases", version)
    folder = judges.room("merkle-cases") / "merkle/testdata"
    counted = {}
    for file in sorted(folder.rglob("*.json")):
        kind, case = file.relative_to(folder).parts[0], json.loads(file.read_text())
        # Left out: roots that are no hashes of SHA-256, and the empty subtree, which draft-03 (the one that C2SP names) has not.
        empty = kind == "subtreeconsistency" and case["start"] == case["end"]
        odd = any(len(_decoded(case.get(name))) not in (0, 32) for name in ("root", "root1", "root2", "leafHash"))
        if case["wantErr"] or not (empty or odd):
            assert _holds(kind, case) != case["wantErr"], file
            counted[kind, case["wantErr"]] = counted.get((kind, case["wantErr"]), 0) + 1
    kinds = sorted({kind for kind, _ in counted})
    judged.accepts("; ".join(f"{counted[kind, False]} right ones of {kind}" for kind in kinds))
    judged.refuses("; ".join(f"{counted[kind, True]} wrong ones of {kind}" for kind in kinds))
