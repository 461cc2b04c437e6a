"""The vectors (tests/golden/vectors), as the judge in JavaScript answers them, without a line of Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.sharing.judge.node import WITH_OR_WITHOUT, evaluated, needs_node

pytestmark = needs_node

FOLDER = Path(__file__).parents[3] / "golden/vectors"
DECODED = 'const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));'

TEXTS = f"""async () => {{ {DECODED} return JSON.parse(given).map((one) => {{
  try {{ judge.parseCanonical(bytes(one.bytes), ""); return one.canonical; }} catch {{ return !one.canonical; }}
}}); }}"""
NOTES = """async () => Promise.all(JSON.parse(given).map(async (one) => {
  try { await judge.openCheckpoint(new TextEncoder().encode(one.note), [judge.parseKey(one.key)], one.name); return one.signed; }
  catch { return !one.signed; }
}))"""
TENSORS = f"""async () => {{ {DECODED} return Promise.all(JSON.parse(given).map(
  async (one) => (await judge.tensorDigest(one.dtype, one.shape, bytes(one.bytes))) === one.digest
)); }}"""
PROOFS = """async () => Promise.all(JSON.parse(given).map(async (one) => {
  try {
    const proof = judge.parseProof(new TextEncoder().encode(one.proof), one.name);
    const checkpoint = await judge.openCheckpoint(proof.note, [judge.parseKey(one.key)], one.name);
    const root = judge.provenRoot(proof.index, checkpoint.size, judge.leafHash(proof.entry), proof.hashes);
    return one.shown === (root !== null && Buffer.from(root).equals(Buffer.from(checkpoint.root)));
  } catch { return !one.shown; }
}))"""
MANIFESTS = f"""async () => {{ {DECODED} return JSON.parse(given).map((one) => {{
  try {{ judge.checkedManifest(judge.parseCanonical(bytes(one.bytes), one.name), one.name); }} catch {{ return !one.tree; }}
  return one.tree;
}}); }}"""
PACKFILES = f"""async () => {{ {DECODED} return JSON.parse(given).map((one) => {{
  const found = new Map();
  try {{ judge.readPackIndex(bytes(one.bytes), one.stored_as, found); }} catch {{ return !one.packfile; }}
  const blob = (place) => Buffer.from(place.bytes.subarray(place.at, place.at + place.size)).toString("base64");
  return one.packfile && Object.entries(one.holds).every(([digest, held]) => blob(found.get(digest)) === held);
}}); }}"""
TILES = f"""async () => {{ {DECODED} return JSON.parse(given).map((one) => {{
  try {{
    const hashes = judge.unpackBundle({{ path: one.name, bytes: bytes(one.bundle), count: one.count }}).map(judge.leafHash);
    return one.tiles === Buffer.concat(hashes).equals(bytes(one.tile));
  }} catch {{ return !one.tiles; }}
}}); }}"""
ENTRIES = f"""async () => {{ {DECODED} return JSON.parse(given).map((one) => {{
  try {{ judge.parseEvent(bytes(one.bytes), 0); return one.event; }} catch {{ return !one.event; }}
}}); }}"""
BLOBS = f"""async () => {{ {DECODED} return Promise.all(JSON.parse(given).map(async (one) => {{
  const pieces = one.pieces.map((piece) => Buffer.alloc(bytes(piece.bytes).length * piece.times, bytes(piece.bytes)));
  return one.blob === (await judge.isBlob(new Uint8Array(Buffer.concat(pieces)), one.digest));
}})); }}"""
PACKED = f"""async () => {{ {DECODED} return Promise.all(JSON.parse(given).map(async (one) => {{
  const source = {{ read: async (path) => path in one.files ? bytes(one.files[path]) : null, list: async () => [] }};
  try {{ return Buffer.from(await new judge.Store(source).blob(one.digest)).toString("base64") === one.reads; }}
  catch {{ return one.reads === null; }}
}})); }}"""
STATES = """async () => JSON.parse(given).map(({ digest, tensors }) => {
  const order = (one, other) => Buffer.compare(Buffer.from(one.path), Buffer.from(other.path));
  return digest === judge.stateDigest(tensors.sort(order));
})"""
PROGRAM = f"""async () => {{ {DECODED}
  const kinds = {{ float32: Float32Array, int32: Int32Array, uint32: Uint32Array, bool: Uint8Array }};
  const array = (one) => judge.ruled(new kinds[one.dtype](bytes(one.bytes).buffer));
  const told = JSON.parse(given);
  const constants = new Map(Object.entries(told.constants).map(([digest, one]) => [digest, array(one)]));
  const found = await judge.execute(told.program, told.inputs.map(array), constants);
  const held = (one) => Buffer.from(one.buffer, one.byteOffset, one.byteLength);
  return found.map((one, n) => held(one).equals(bytes(told.outputs[n].bytes)));
}}"""


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("json", TEXTS),
        ("notes", NOTES),
        ("tensors", TENSORS),
        ("proofs", PROOFS),
        ("manifests", MANIFESTS),
        ("packfiles", PACKFILES),
        ("tiles", TILES),
        ("entries", ENTRIES),
        ("blobs", BLOBS),
        ("packed", PACKED),
        ("states", STATES),
    ],
)
def test_every_answer_is_the_recorded_one(name: str, script: str) -> None:
    answers = evaluated(script, given=(FOLDER / f"{name}.json").read_text("utf-8"))
    assert len(answers) > 3 and all(answers), answers


@WITH_OR_WITHOUT
@pytest.mark.parametrize("path", sorted(FOLDER.glob("exact-*.json")), ids=lambda path: path.stem)
def test_every_bit_of_a_program_comes_out(path: Path, options: tuple[str, ...]) -> None:
    answers = evaluated(PROGRAM, given=path.read_text("utf-8"), options=options)
    assert answers and all(answers), answers
