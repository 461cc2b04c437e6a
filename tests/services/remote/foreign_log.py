"""A small tlog-tiles writer for tests, made from the text of the C2SP specifications alone: nothing of `ledger` is
used.

It stands for somebody else's software: SHA-256 and Ed25519 from their libraries, the tree as recursion, paths by hand.
"""

import base64
import hashlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
NAME = "foreign.example/log"


def vkey():
    public = b"\x01" + KEY.public_key().public_bytes_raw()
    return f"{NAME}+{key_id().hex()}+{base64.b64encode(public).decode()}"


def key_id():
    return hashlib.sha256(NAME.encode() + b"\n\x01" + KEY.public_key().public_bytes_raw()).digest()[:4]


def tree(leaves):
    """The Merkle tree hash of RFC 6962, by its definition."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + tree(leaves[:split]) + tree(leaves[split:])).digest()


def number(index):
    groups = []
    while True:
        groups.insert(0, f"{index % 1000:03d}")
        index //= 1000
        if not index:
            return "/".join([f"x{group}" for group in groups[:-1]] + groups[-1:])


def put(folder, level, index, width, data):
    path = folder / "tile" / level / (number(index) + (f".p/{width}" if width < 256 else ""))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_log(folder: Path, entries):
    hashes = [hashlib.sha256(b"\x00" + entry).digest() for entry in entries]
    for start in range(0, len(entries), 256):
        part = entries[start : start + 256]
        put(folder, "entries", start // 256, len(part), b"".join(len(e).to_bytes(2, "big") + e for e in part))
    level, row = 0, hashes
    while row:
        for start in range(0, len(row), 256):
            part = row[start : start + 256]
            put(folder, str(level), start // 256, len(part), b"".join(part))
        row = [tree(row[at : at + 256]) for at in range(0, len(row) - len(row) % 256, 256)]
        level += 1
    text = f"{NAME}\n{len(entries)}\n{base64.b64encode(tree(hashes)).decode()}\n"
    signature = base64.b64encode(key_id() + KEY.sign(text.encode())).decode()
    (folder / "checkpoint").write_text(f"{text}\n— {NAME} {signature}\n")
