// check.mjs: a judge of published runs that needs a browser, or node, and nothing else.
//
//     node check.mjs FOLDER --vkey KEY [--vkey KEY] [--witness KEY] [--run RUN] [--execute one|all|none|STEP] [--json]
//
// A second implementation of what Marin's own verifier looks at. It shares no code with that one: it was written from ledger/SPEC.md
// (the log, the store, tensors), docs/record.md (the events of a run) and docs/exact.md (the arithmetic of a train step), section by section.
// It reads files of one folder and asks nobody else. Nothing that it reads is believed: the key
// comes from the reader, and every other file has to follow from what that key signed, or from a digest in it.
//
//   1. bytes: hexadecimal, base64, SHA-256, Merkle roots          5. store: blobs, trees, packs
//   2. JSON: the one form of RFC 8785                             6. contents: tensors, states, tokens, safetensors
//   3. keys and signed notes                                      7. the record of a run
//   4. log: tiles, entries, events, proofs                        8. programs; 9. the judge; 10. node; 11. the page

// ---------------------------------------------------------------------------------------------------------------- 1. bytes

const MIB = 1048576;
const PART = 8 * MIB;
const MOST_UNSAID = 64 * MIB; // of what a record makes, where nothing else says how large it is
const MOST_BYTES = 768 * MIB; // of one file: the page promises to stay within one GiB
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** What contradicts the record, the bytes or a signature: FAIL. */
class Wrong extends Error {
  constructor(what, { where = "", expected = "", found = "" } = {}) {
    super(sentence(what, where, expected, found));
  }
}

/** How many entries that are no events are named. */
const MOST_STRAYS = 4;

/** An event in a place that is not its own. */
class Misplaced extends Wrong {}

/** What is needed and is not here, or is in a form that this file does not read: UNAVAILABLE. */
class Missing extends Error {
  constructor(what, { where = "", expected = "", found = "" } = {}) {
    super(sentence(what, where, expected, found));
  }
}

/** What was asked is no question: exit status 2. */
class Usage extends Error {}

function sentence(what, where, expected, found) {
  const parts = [expected && `expected ${expected}`, found && `found ${found}`].filter(Boolean).join(", ");
  return [where ? `${what} (${where})` : what, parts].filter(Boolean).join(": ");
}

function hex(bytes) {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

function unhex(text) {
  return Uint8Array.from({ length: text.length / 2 }, (_, at) => parseInt(text.slice(2 * at, 2 * at + 2), 16));
}

function same(one, two) {
  if (one.length !== two.length) return false;
  for (let at = 0; at < one.length; at++) if (one[at] !== two[at]) return false;
  return true;
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Bytes of base64 (RFC 4648, section 4) in its one canonical form; null for anything else. */
function unbase64(text) {
  try {
    const raw = atob(text);
    return btoa(raw) === text ? Uint8Array.from(raw, (letter) => letter.charCodeAt(0)) : null;
  } catch {
    return null;
  }
}

function bigEndian(bytes, at, count) {
  let value = 0;
  for (let i = 0; i < count; i++) value = value * 256 + bytes[at + i];
  return value;
}

function littleEndian(bytes, at, count) {
  let value = 0;
  for (let i = count - 1; i >= 0; i--) value = value * 256 + bytes[at + i];
  return value;
}

// FIPS 180-4, the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
const ROUND = Uint32Array.from(
  (
    "428a2f98 71374491 b5c0fbcf e9b5dba5 3956c25b 59f111f1 923f82a4 ab1c5ed5 d807aa98 12835b01 243185be 550c7dc3 72be5d74 " +
    "80deb1fe 9bdc06a7 c19bf174 e49b69c1 efbe4786 0fc19dc6 240ca1cc 2de92c6f 4a7484aa 5cb0a9dc 76f988da 983e5152 a831c66d " +
    "b00327c8 bf597fc7 c6e00bf3 d5a79147 06ca6351 14292967 27b70a85 2e1b2138 4d2c6dfc 53380d13 650a7354 766a0abb 81c2c92e " +
    "92722c85 a2bfe8a1 a81a664b c24b8b70 c76c51a3 d192e819 d6990624 f40e3585 106aa070 19a4c116 1e376c08 2748774c 34b0bcb5 " +
    "391c0cb3 4ed8aa4a 5b9cca4f 682e6ff3 748f82ee 78a5636f 84c87814 8cc70208 90befffa a4506ceb bef9a3f7 c67178f2"
  )
    .split(" ")
    .map((word) => parseInt(word, 16)),
);

/** SHA-256, piece by piece, for what is small and for what does not come in one piece. */
class Sha256 {
  constructor() {
    this.state = Uint32Array.of(
      0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    );
    this.words = new Uint32Array(64);
    this.block = new Uint8Array(64);
    this.filled = 0;
    this.length = 0;
  }

  update(bytes) {
    this.length += bytes.length;
    let at = 0;
    if (this.filled) {
      at = Math.min(64 - this.filled, bytes.length);
      this.block.set(bytes.subarray(0, at), this.filled);
      this.filled += at;
      if (this.filled < 64) return this;
      this.compress(this.block, 0);
      this.filled = 0;
    }
    for (; at + 64 <= bytes.length; at += 64) this.compress(bytes, at);
    this.block.set(bytes.subarray(at), 0);
    this.filled = bytes.length - at;
    return this;
  }

  digest() {
    const length = this.length;
    const tail = new Uint8Array((this.filled < 56 ? 64 : 128) - this.filled);
    tail[0] = 0x80;
    const view = new DataView(tail.buffer);
    view.setUint32(tail.length - 8, Math.floor(length / 0x20000000));
    view.setUint32(tail.length - 4, (length << 3) >>> 0);
    this.update(tail);
    const out = new Uint8Array(32);
    this.state.forEach((word, at) => new DataView(out.buffer).setUint32(4 * at, word));
    return out;
  }

  compress(bytes, from) {
    const w = this.words;
    for (let i = 0, at = from; i < 16; i++, at += 4) {
      w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
    }
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = this.state;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const one = (h + s1 + ((e & f) ^ (~e & g)) + ROUND[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    const s = this.state;
    s[0] += a;
    s[1] += b;
    s[2] += c;
    s[3] += d;
    s[4] += e;
    s[5] += f;
    s[6] += g;
    s[7] += h;
  }
}

function sha256(...parts) {
  const hash = new Sha256();
  for (const part of parts) hash.update(part);
  return hash.digest();
}

/** The same of many bytes, by the browser's own SHA-256. */
async function sha256Large(bytes) {
  if (bytes.length < 16384 || !globalThis.crypto?.subtle) return sha256(bytes);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);

function leafHash(bytes) {
  return sha256(LEAF, bytes);
}

async function leafHashLarge(bytes) {
  return sha256Large(joined([LEAF, bytes]));
}

/** The root of RFC 6962, section 2.1, over leaves [start, end). */
function merkleRoot(hashes, start = 0, end = hashes.length) {
  if (start === end) return sha256();
  if (end - start === 1) return hashes[start];
  let half = 1;
  while (half * 2 < end - start) half *= 2;
  return sha256(NODE, merkleRoot(hashes, start, start + half), merkleRoot(hashes, start + half, end));
}

const DIGEST = /^sha256:[0-9a-f]{64}$/;

function digestText(hash) {
  return `sha256:${hex(hash)}`;
}

// ----------------------------------------------------------------------------------------------------------------- 2. JSON

/** The value of bytes that are exactly the RFC 8785 encoding of it. */
function parseCanonical(bytes, where) {
  let value;
  let again;
  try {
    value = JSON.parse(decoder.decode(bytes));
    again = encoder.encode(canonical(value));
  } catch (error) {
    throw new Wrong("not canonical JSON", { where, found: visible(String(error.message ?? error).slice(0, 120)) });
  }
  if (!same(again, bytes)) {
    let at = 0;
    while (at < bytes.length && bytes[at] === again[at]) at++;
    throw new Wrong("JSON that is not in its canonical form (RFC 8785)", { where: `${where}, byte ${at}` });
  }
  return value;
}

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    // Array.prototype.sort compares UTF-16 code units, which is the order that RFC 8785 asks for.
    const members = Object.keys(value).sort().map((key) => `${text(key)}:${canonical(value[key])}`);
    return `{${members.join(",")}}`;
  }
  if (typeof value === "string") return text(value);
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error("a number that JSON has not");
  return JSON.stringify(value);
}

function text(value) {
  if (/\p{Surrogate}/u.test(value)) throw new Error("half of a surrogate pair");
  return JSON.stringify(value);
}

function canonicalDigest(value) {
  return digestText(sha256(encoder.encode(canonical(value))));
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** A member that the object itself has: nothing that JavaScript gives every object. */
function member(value, name) {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

function equalValues(one, two) {
  return one !== undefined && two !== undefined && canonical(one) === canonical(two);
}

// --------------------------------------------------------------------------------------------------- 3. keys and signed notes

const ED25519 = 1;
const COSIGNATURE = 4;
const MLDSA = 6;
const PUBLIC_BYTES = new Map([[ED25519, 32], [COSIGNATURE, 32], [MLDSA, 1312]]);

/** A verifier key as its operator gave it: name+<8 hexadecimal digits>+<base64 of algorithm and public key>. */
function parseKey(given) {
  const match = /^([^+\s]+)\+([0-9a-f]{8})\+(\S+)$/u.exec(given.trim());
  const raw = match && unbase64(match[3]);
  if (!raw || raw.length < 2) throw new Usage(`not a verifier key: ${given.slice(0, 60)} (expected name+8 digits+base64)`);
  const [name, id] = [match[1], match[2]];
  if (PUBLIC_BYTES.get(raw[0]) !== raw.length - 1) throw new Usage(`a verifier key of an unknown kind: ${name}+${id}`);
  const derived = hex(sha256(encoder.encode(`${name}\n`), raw).subarray(0, 4));
  if (derived !== id) throw new Usage(`a verifier key whose digits are not its own: expected ${derived}, found ${id}; copy it whole`);
  return { name, id, algorithm: raw[0], public: raw.subarray(1), until: Infinity, text: given.trim() };
}

function keyName(key) {
  return `${key.name}+${key.id}`;
}

/** A signed note: text, an empty line, signature lines. Nothing is believed yet. */
function parseNote(bytes, where) {
  let whole;
  try {
    whole = decoder.decode(bytes);
  } catch {
    throw new Wrong("not a signed note", { where, found: "bytes that are no UTF-8" });
  }
  const cut = whole.lastIndexOf("\n\n");
  // eslint-disable-next-line no-control-regex
  if (bytes.length > 1000000 || cut < 0 || !whole.endsWith("\n") || /[\x00-\x09\x0b-\x1f]/.test(whole)) {
    throw new Wrong("not a signed note", { where, expected: "text, an empty line and signature lines" });
  }
  const lines = whole.slice(cut + 2, -1).split("\n").map((line) => {
    const match = /^\u2014 ([^+\s]+) (\S+)$/u.exec(line);
    const raw = match && unbase64(match[2]);
    if (!raw || raw.length < 5) throw new Wrong("not a signature line", { where, found: visible(line.slice(0, 60)) });
    return { name: match[1], id: hex(raw.subarray(0, 4)), signature: raw.subarray(4) };
  });
  if (lines.length > 100) throw new Wrong("not a signed note", { where, found: `${lines.length} signatures` });
  return { text: whole.slice(0, cut + 1), lines };
}

async function ed25519(publicBytes, message, signature, where) {
  if (!globalThis.crypto?.subtle) {
    throw new Missing("this browser gives its cryptography to pages of https, localhost and files alone", { where });
  }
  let key;
  try {
    key = await crypto.subtle.importKey("raw", publicBytes, { name: "Ed25519" }, false, ["verify"]);
  } catch (error) {
    throw new Missing("this browser does not know Ed25519, or not this key", { where, found: String(error.name) });
  }
  return crypto.subtle.verify({ name: "Ed25519" }, key, signature, encoder.encode(message));
}

/** The keys among `keys` that signed a note, and what was not looked at; a wrong signature of any of them refuses the note. */
async function signersOf(note, keys, where) {
  const signed = [];
  const unread = [];
  for (const line of note.lines) {
    const key = keys.find((known) => known.name === line.name && known.id === line.id);
    if (!key || signed.some((one) => one.key === key) || unread.includes(key)) continue;
    if (key.algorithm === MLDSA) {
      unread.push(key);
      continue;
    }
    let [message, signature, time] = [note.text, line.signature, 0];
    if (key.algorithm === COSIGNATURE) {
      time = signature.length === 72 ? bigEndian(signature, 0, 8) : 0;
      message = `cosignature/v1\ntime ${time}\n${note.text}`;
      signature = signature.subarray(8);
    }
    if (signature.length !== 64 || !(await ed25519(key.public, message, signature, where))) {
      throw new Wrong("a signature does not hold", { where: `${where}, ${keyName(key)}` });
    }
    signed.push({ key, time });
  }
  return { signed, unread };
}

/** Origin, size and root of a log checkpoint's text. */
function parseCheckpoint(note, where) {
  const lines = note.text.split("\n");
  const root = lines.length >= 4 && unbase64(lines[2]);
  const size = /^(0|[1-9][0-9]{0,15})$/.test(lines[1] ?? "") ? Number(lines[1]) : -1;
  if (!root || root.length !== 32 || size < 0 || lines.pop() !== "" || lines.includes("")) {
    throw new Wrong("not a log checkpoint", { where, expected: "origin, size and root on three lines" });
  }
  return { origin: lines[0], size, root };
}

/** The checkpoint of a note that a key of the log signed, which counts for its size. */
async function openCheckpoint(bytes, keys, where) {
  const note = parseNote(bytes, where);
  const { signed, unread } = await signersOf(note, keys, where);
  const checkpoint = parseCheckpoint(note, where);
  const own = signed.filter(({ key }) => key.name === checkpoint.origin && key.algorithm === ED25519);
  if (!own.length) {
    const found = note.lines.slice(0, 3).map((line) => `${line.name}+${line.id}`).join(", ");
    const expected = keys.map(keyName).join(", ");
    if (unread.length) throw new Missing("of the keys that you gave, only ML-DSA signed, which is not looked at here", { where });
    throw new Wrong("no key that you gave signed this log", { where, expected, found: `signatures of ${found}` });
  }
  if (own.every(({ key }) => checkpoint.size > key.until)) {
    throw new Wrong("only keys that the log retired signed it", { where, found: keyName(own[0].key) });
  }
  return { ...checkpoint, note, signers: own.map(({ key }) => key), unread };
}

// ------------------------------------------------------------------------------------------------------------------ 4. log

const MOST_ENTRY = 65535;

function grouped(number) {
  const digits = String(number).padStart(Math.ceil(String(number).length / 3) * 3, "0");
  return digits.match(/.../g).map((part, at, all) => (at < all.length - 1 ? `x${part}` : part)).join("/");
}

/** A tile or bundle of the first `width` of 256; where the partial one is gone, the beginning of the complete one. */
async function readTile(source, kind, number, width, most) {
  const whole = `log/tile/${kind}/${grouped(number)}`;
  const path = width < 256 ? `${whole}.p/${width}` : whole;
  const found = await source.read(path, most);
  if (found) return { path, bytes: found, count: width };
  const complete = width < 256 ? await source.read(whole, most) : null;
  if (complete) return { path: whole, bytes: complete, count: 256 };
  throw new Missing("a file of the log is not here", { where: path });
}

function unpackBundle({ path, bytes, count }) {
  const entries = [];
  let at = 0;
  while (at < bytes.length) {
    const end = at + 2 + (at + 2 <= bytes.length ? bigEndian(bytes, at, 2) : Infinity);
    if (end > bytes.length) throw new Wrong("a bundle of entries is cut short", { where: `${path}, entry ${entries.length}` });
    entries.push(bytes.subarray(at + 2, end));
    at = end;
  }
  if (entries.length !== count) {
    throw new Wrong("a bundle has another number of entries", { where: path, expected: `${count}`, found: `${entries.length}` });
  }
  return entries;
}

/** All entries below a checkpoint, and every tile, derived again up to the signed root. */
async function readEntries(source, checkpoint, step) {
  const entries = [];
  const leaves = [];
  for (let number = 0; number * 256 < checkpoint.size; number++) {
    const width = Math.min(256, checkpoint.size - number * 256);
    const bundle = await readTile(source, "entries", number, width, 256 * (MOST_ENTRY + 2));
    const own = unpackBundle(bundle).slice(0, width);
    const hashes = own.map(leafHash);
    await compareTile(source, 0, number, hashes, (at) => `${bundle.path}, entry ${number * 256 + at}`);
    entries.push(...own);
    leaves.push(...hashes);
    await step(entries.length, checkpoint.size);
  }
  let hashes = leaves;
  for (let level = 1; hashes.length >= 256; level++) {
    const above = [];
    for (let at = 0; at + 256 <= hashes.length; at += 256) above.push(merkleRoot(hashes, at, at + 256));
    hashes = above;
    for (let number = 0; number * 256 < hashes.length; number++) {
      await compareTile(source, level, number, hashes.slice(number * 256, number * 256 + 256));
    }
  }
  const root = merkleRoot(leaves);
  if (!same(root, checkpoint.root)) {
    throw new Wrong("the entries do not give the signed root", {
      where: "log/checkpoint", expected: hex(checkpoint.root), found: hex(root),
    });
  }
  return { entries, leaves };
}

async function compareTile(source, level, number, hashes, entryAt) {
  const tile = await readTile(source, level, number, hashes.length, 8192);
  if (tile.bytes.length !== 32 * tile.count) {
    throw new Wrong("a tile has another length", { where: tile.path, expected: `${32 * tile.count} bytes`, found: `${tile.bytes.length}` });
  }
  const wrong = hashes.findIndex((hash, at) => !same(hash, tile.bytes.subarray(32 * at, 32 * at + 32)));
  if (wrong >= 0 && entryAt) throw new Wrong("an entry does not hash to its leaf", { where: `${entryAt(wrong)}, ${tile.path}` });
  if (wrong >= 0) throw new Wrong("a tile does not follow from the tiles below it", { where: `${tile.path}, hash ${wrong}` });
}

const MEMBERS = ["actor", "body", "id", "seq", "stream", "time", "type"];
const SYNTAX = {
  // eslint-disable-next-line no-control-regex
  actor: /^[^\x00-\x1f\x7f]{1,200}$/u,
  id: /^[A-Za-z0-9][A-Za-z0-9_.:/@=+-]{0,199}$/,
  stream: /^(?=.{1,200}$)[A-Za-z0-9][A-Za-z0-9_.@=-]*(\/[A-Za-z0-9][A-Za-z0-9_.@=-]*)*$/,
  time: /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$/,
  type: /^(?=.{1,120}$)[a-z][a-z0-9_.-]*\/v[0-9]+$/,
};

function parseEvent(bytes, index) {
  const where = `entry ${index}`;
  if (bytes.length > MOST_ENTRY) throw new Wrong("an entry is too long", { where });
  const event = parseCanonical(bytes, where);
  if (!isObject(event) || Object.keys(event).sort().join() !== MEMBERS.join()) {
    const found = isObject(event) ? Object.keys(event).sort().join(", ") : typeof event;
    throw new Wrong("an entry is no event", { where, expected: `the members ${MEMBERS.join(", ")}`, found: visible(found.slice(0, 120)) });
  }
  for (const [name, form] of Object.entries(SYNTAX)) {
    if (typeof event[name] !== "string" || !form.test(event[name])) {
      throw new Wrong("an entry is no event", { where: `${where}, ${name}`, found: visible(String(event[name]).slice(0, 60)) });
    }
  }
  if (!Number.isSafeInteger(event.seq) || event.seq < 0 || !isObject(event.body)) {
    throw new Wrong("an entry is no event", { where: `${where}, ${isObject(event.body) ? "seq" : "body"}` });
  }
  return { ...event, index };
}

/**
 * Every entry as an event: ids occur once, streams have no gaps. One that is no event of the log is a stray: it keeps its place,
 * says nothing, and what it names is judged with it. None may speak of the log's own keys.
 */
function readEvents(entries) {
  const ids = new Map();
  const streams = new Map();
  return entries.map((bytes, index) => {
    try {
      const event = parseEvent(bytes, index);
      const next = streams.get(event.stream) ?? 0;
      if (event.seq !== next) {
        throw new Misplaced("a stream has a gap or a repetition", {
          where: `entry ${index}, stream ${event.stream}`, expected: `number ${next}`, found: `${event.seq}`,
        });
      }
      if (ids.has(event.id)) throw new Misplaced("an id occurs twice", { where: `entries ${ids.get(event.id)} and ${index}`, found: event.id });
      ids.set(event.id, index);
      streams.set(event.stream, next + 1);
      return event;
    } catch (error) {
      const words = plainText(bytes);
      if (!(error instanceof Wrong) || words.includes("log.key-")) throw error;
      const stray = { words, said: error.message, misplaced: error instanceof Misplaced };
      return { actor: "", body: {}, id: "", seq: -1, stream: "", time: "", type: "", index, stray };
    }
  });
}

/** What bytes say, without the escapes in which JSON may write a name. */
function plainText(bytes) {
  const words = new TextDecoder().decode(bytes);
  return words.replace(/\\u([0-9a-fA-F]{4})/g, (_, code) => String.fromCharCode(parseInt(code, 16))).replaceAll("\0", "");
}

/** A C2SP tlog-proof that carries its entry. */
function parseProof(bytes, where) {
  const refuse = () => new Wrong("not a proof", { where });
  let whole;
  try {
    whole = decoder.decode(bytes);
  } catch {
    throw refuse();
  }
  const cut = whole.indexOf("\n\n");
  const [magic, extra, index, ...path] = whole.slice(0, cut).split("\n");
  const entry = extra?.startsWith("extra ") && unbase64(extra.slice(6));
  const place = /^index (0|[1-9][0-9]{0,15})$/.exec(index ?? "");
  const hashes = path.map(unbase64);
  if (cut < 0 || magic !== "c2sp.org/tlog-proof@v1" || !entry || !place || hashes.some((hash) => hash?.length !== 32)) throw refuse();
  return { entry, index: Number(place[1]), hashes, note: encoder.encode(whole.slice(cut + 2)) };
}

/** The root that an inclusion proof leads to (RFC 6962, section 2.1.1); null where its length cannot be right, or no entry has the index. */
function provenRoot(index, size, leaf, hashes) {
  if (index >= size) return null;
  let [node, last, found] = [index, size - 1, leaf];
  for (const hash of hashes) {
    if (last === 0) return null;
    if (node % 2 === 1 || node === last) {
      found = sha256(NODE, hash, found);
      while (node % 2 === 0 && node > 0) [node, last] = [Math.floor(node / 2), Math.floor(last / 2)];
    } else {
      found = sha256(NODE, found, hash);
    }
    [node, last] = [Math.floor(node / 2), Math.floor(last / 2)];
  }
  return last === 0 ? found : null;
}

const ROTATED = "log.key-rotated/v1";
const RETIRED = "log.key-retired/v1";

/** The keys to believe: those that the reader gave, and those that they handed over to; with the links that say so. */
async function followKeys(source, given) {
  const keys = given.map((key) => ({ ...key }));
  const links = [];
  for (let number = 0; number < 1000; number++) {
    const path = `keys/${number}`;
    const bytes = await source.read(path, 200000);
    if (!bytes) break;
    const proof = parseProof(bytes, path);
    links.push({ path, proof });
    const note = parseNote(proof.note, path);
    const { signed } = await signersOf(note, keys, path);
    const checkpoint = parseCheckpoint(note, path);
    const counts = signed.some(({ key }) => key.name === checkpoint.origin && key.algorithm === ED25519 && checkpoint.size <= key.until);
    if (!counts) continue; // of a time before the keys that are believed here
    const root = provenRoot(proof.index, checkpoint.size, leafHash(proof.entry), proof.hashes);
    if (!root || !same(root, checkpoint.root)) {
      throw new Wrong("a proof does not lead to its checkpoint", { where: path });
    }
    const event = parseEvent(proof.entry, proof.index);
    for (const key of keysNamed(event, path)) {
      const known = keys.find((one) => one.name === key.name && one.id === key.id);
      if (event.type === ROTATED && !known && key.name === checkpoint.origin) keys.push(key);
      if (event.type === RETIRED && known) known.until = proof.index;
    }
  }
  return { keys, links };
}

function keysNamed(event, where) {
  const named = event.body.vkeys;
  if (!Array.isArray(named) || !named.length || !named.every((one) => typeof one === "string")) {
    throw new Wrong("an event about keys names none", { where });
  }
  try {
    return named.map(parseKey);
  } catch (error) {
    throw new Wrong("an event about keys names what is not a key", { where, found: visible(error.message.slice(0, 80)) });
  }
}

/** Every event about keys has its link, and every link is of such an event. */
function checkLinks(links, log) {
  const due = new Set(log.events.filter(({ type }) => type === ROTATED || type === RETIRED).map(({ index }) => index));
  for (const { path, proof } of links) {
    const here = log.entries[proof.index];
    if (!due.delete(proof.index) || !same(here, proof.entry)) {
      throw new Wrong("a link of keys is not of an event of this log", { where: path, found: `entry ${proof.index}` });
    }
  }
  for (const index of due) throw new Wrong("an event about keys has no link", { where: `entry ${index}`, expected: "a file below keys/" });
}

// ---------------------------------------------------------------------------------------------------------------- 5. store

const HEADER = encoder.encode("marin.blob/v1\n");

function beginsWithHeader(bytes) {
  return bytes.length >= HEADER.length && same(bytes.subarray(0, HEADER.length), HEADER);
}

/** The Merkle root of a blob's part hashes. */
async function partsRoot(bytes) {
  return merkleRoot(await partHashes(bytes));
}

async function partHashes(bytes) {
  const hashes = [];
  for (let at = 0; at < bytes.length; at += PART) hashes.push(await leafHashLarge(bytes.subarray(at, at + PART)));
  return hashes;
}

/** Whether bytes are the blob of this digest; above 8 MiB their plain sha256, an older name, is good too. */
async function isBlob(bytes, digest) {
  if (bytes.length <= PART) {
    const input = beginsWithHeader(bytes) ? joined([HEADER, encoder.encode("bytes\n"), bytes]) : bytes;
    return digestText(await sha256Large(input)) === digest;
  }
  const description = `marin.blob/v1\nparts ${PART}\nsize ${bytes.length}\nroot ${hex(await partsRoot(bytes))}\n`;
  if (digestText(sha256(encoder.encode(description))) === digest) return true;
  return !beginsWithHeader(bytes) && digestText(await sha256Large(bytes)) === digest;
}

// eslint-disable-next-line no-control-regex
const UNFIT = /[<>:"|?*\\\x00-\x1f\x7f]|[. ]$/u;
const DEVICES = /^(con|prn|aux|nul|com[0-9\u00b9\u00b2\u00b3]|lpt[0-9\u00b9\u00b2\u00b3]|conin\$|conout\$|clock\$)(\.|$)/i;

function unfitPath(path) {
  if (typeof path !== "string" || !path || path.startsWith("/") || encoder.encode(path).length > 1024) return true;
  return path.split("/").some(
    (name) => !name || name === "." || name === ".." || encoder.encode(name).length > 255 || UNFIT.test(name) ||
      DEVICES.test(name) || name.toLowerCase() === ".git",
  );
}

/** Case and normal form set aside. JavaScript has no case folding; upper and then lower case comes nearest. */
function folded(path) {
  return path.normalize("NFC").toUpperCase().toLowerCase().normalize("NFC");
}

/** What a folder keeps below store/, read by digest, every byte hashed on its way. */
class Store {
  constructor(source) {
    this.source = source;
    this.hashed = 0; // blobs that were hashed and right
    this.bytes = 0;
    this.trees = new Map();
    this.good = new Set();
    this.packs = null;
  }

  place(kind, digest) {
    return `store/${kind}/sha256/${digest.slice(7, 9)}/${digest.slice(9)}`;
  }

  /** The files of a tree; null where the store has no tree of that digest. */
  async tree(digest) {
    if (this.trees.has(digest)) return this.trees.get(digest);
    const path = this.place("trees", digest);
    const bytes = await this.source.read(path, 64 * MIB);
    if (!bytes) return null;
    if (digestText(sha256(bytes)) !== digest) throw new Wrong("a list of files is not the one of its digest", { where: path });
    const files = checkedManifest(parseCanonical(bytes, path), path);
    this.trees.set(digest, files);
    return files;
  }

  /** The bytes of a blob. `size`: as a manifest says it. `depth`: how many blobs, one resting on the other, it may be made of. */
  async blob(digest, size = -1, depth = 8) {
    const path = this.place("blobs", digest);
    const bytes = (await this.source.read(path, MOST_BYTES)) ?? (await this.packed(digest, size, depth)) ?? (await this.fromPack(digest));
    if (!bytes) throw new Missing("bytes are not here", { where: path });
    if (size >= 0 && bytes.length !== size) {
      throw new Wrong("a blob has another size", { where: path, expected: `${size} bytes`, found: `${bytes.length}` });
    }
    if (!(await isBlob(bytes, digest))) {
      const found = bytes.length <= PART ? digestText(await sha256Large(bytes)) : `${bytes.length} other bytes`;
      throw new Wrong("bytes are not those of their digest", { where: path, found });
    }
    if (bytes.length > PART) await this.checkParts(digest, bytes);
    if (!this.good.has(digest)) {
      this.good.add(digest);
      this.hashed += 1;
      this.bytes += bytes.length;
    }
    return bytes;
  }

  /** A record of part hashes is no evidence; one that says something else is damaged. */
  async checkParts(digest, bytes) {
    const path = this.place("parts", digest);
    const record = await this.source.read(path, 16 * MIB);
    if (!record) return;
    const leaves = await partHashes(bytes);
    const root = hex(merkleRoot(leaves));
    const expected = { digest, kind: "parts", leaves: leaves.map(hex), part_size: PART, root, size: bytes.length, version: 1 };
    if (!equalValues(parseCanonical(record, path), expected)) throw new Wrong("part hashes are not those of their blob", { where: path });
  }

  /** A file of a tree; what its manifest says of its parts holds too. */
  async file(entry) {
    const bytes = await this.blob(entry.digest, entry.size);
    if (entry.parts !== undefined && hex(await partsRoot(bytes)) !== entry.parts) {
      throw new Wrong("a file's parts have another root", { where: entry.path, expected: entry.parts });
    }
    return bytes;
  }

  /** Only hash a file, once. */
  async check(entry) {
    if (this.good.has(entry.digest) && entry.parts === undefined) return;
    await this.file(entry);
  }

  /** A blob that is made of others. */
  async packed(digest, size, depth) {
    const path = this.place("packed", digest);
    const bytes = await this.source.read(path, 64 * MIB);
    if (!bytes) return null;
    const record = parseCanonical(bytes, path);
    const refuse = (found) => new Wrong("not a record of a packed blob", { where: path, found });
    if (record.kind !== "packed" || record.version !== 1 || record.digest !== digest || !Number.isSafeInteger(record.size)) throw refuse("other members");
    if (size >= 0 && record.size !== size) throw refuse(`${record.size} bytes, not ${size}`);
    if (record.size > (size >= 0 ? MOST_BYTES : MOST_UNSAID)) throw new Missing("a blob is larger than this page reads", { where: path });
    if (record.how === "chunks" && Array.isArray(record.chunks)) {
      const whole = new Uint8Array(record.size);
      let at = 0;
      for (const chunk of record.chunks) {
        const part = Array.isArray(chunk) && DIGEST.test(chunk[0]) ? await this.kept(chunk[0]) : null;
        if (part?.length !== chunk[1] || at + part.length > record.size) throw refuse("other chunks");
        whole.set(part, at);
        at += part.length;
      }
      if (at !== record.size) throw refuse("other chunks");
      return whole;
    }
    if (record.how !== "planes" || !DIGEST.test(record.planes) || !(record.width >= 1 && record.width <= 16)) throw refuse("another way");
    if (!(record.depth >= 0 && record.depth <= depth) || (record.base === null) !== (record.depth === 0)) throw refuse("another depth");
    const base = record.base === null ? null : await this.blob(record.base, record.size, record.depth - 1);
    return unplaned(zstd(await this.kept(record.planes), record.size), record.width, base);
  }

  /** A blob that is kept as it is, whole or in a packfile. */
  async kept(digest) {
    const path = this.place("blobs", digest);
    const bytes = (await this.source.read(path, MOST_BYTES)) ?? (await this.fromPack(digest));
    if (!bytes) throw new Missing("bytes are not here", { where: path });
    if (!(await isBlob(bytes, digest))) throw new Wrong("bytes are not those of their digest", { where: path });
    return bytes;
  }

  async fromPack(digest) {
    this.packs ??= await this.readPacks();
    const place = this.packs.get(digest);
    return place ? place.bytes.subarray(place.at, place.at + place.size) : null;
  }

  async readPacks() {
    const listed = await this.source.read("store/packfiles.txt", 16 * MIB);
    const names = new Set(await this.source.list("store/packfiles"));
    if (listed) for (const line of decoder.decode(listed).split("\n")) if (line) names.add(line);
    const found = new Map();
    for (const name of names) {
      if (!/^[0-9a-f]{64}$/.test(name)) continue;
      const bytes = await this.source.read(`store/packfiles/${name}`, MOST_BYTES);
      if (bytes) readPackIndex(bytes, name, found);
    }
    return found;
  }
}

function readPackIndex(bytes, name, found) {
  const where = `store/packfiles/${name}`;
  const magic = encoder.encode("marin.packfile/1");
  const count = bytes.length >= 40 ? bigEndian(bytes, bytes.length - 24, 8) : 0;
  const index = bytes.length - 24 - 44 * count;
  if (index < 16 || !same(bytes.subarray(0, 16), magic) || !same(bytes.subarray(-16), magic)) throw new Wrong("not a packfile", { where });
  if (hex(sha256(bytes.subarray(index))) !== name) throw new Wrong("a packfile's index is not that of its name", { where });
  for (let at = index; at < bytes.length - 24; at += 44) {
    const sorted = at === index || hex(bytes.subarray(at - 44, at - 12)) < hex(bytes.subarray(at, at + 32));
    if (!sorted) throw new Wrong("a packfile's index is not in the order of digests", { where });
    const [offset, size] = [bigEndian(bytes, at + 32, 8), bigEndian(bytes, at + 40, 4)];
    if (offset < 16 || offset + size > index) throw new Wrong("a packfile names bytes that it has not", { where });
    const digest = digestText(bytes.subarray(at, at + 32));
    if (!found.has(digest)) found.set(digest, { bytes, at: offset, size });
  }
}

function checkedManifest(value, where) {
  const refuse = (found) => new Wrong("not a list of files", { where, found: visible(String(found).slice(0, 100)) });
  if (!isObject(value) || Object.keys(value).sort().join() !== "entries,kind,version" || value.kind !== "tree" || value.version !== 1) throw refuse("other members");
  if (!Array.isArray(value.entries)) throw refuse("no entries");
  const seen = new Map();
  const folders = new Set();
  let before = null;
  for (const entry of value.entries) {
    const large = isObject(entry) && entry.size > PART;
    const members = large ? "digest,executable,parts,path,size" : "digest,executable,path,size";
    if (!isObject(entry) || Object.keys(entry).sort().join() !== members) throw refuse("an entry with other members");
    const { digest, executable, path, parts, size } = entry;
    if (unfitPath(path)) throw refuse(`the path ${path}`);
    if (!DIGEST.test(digest) || typeof executable !== "boolean" || !Number.isSafeInteger(size) || size < 0) throw refuse(`what it says of ${path}`);
    if (large && !/^[0-9a-f]{64}$/.test(parts)) throw refuse(`the parts of ${path}`);
    const order = hex(encoder.encode(path));
    if (before !== null && order <= before) throw refuse(`${path} out of order`);
    before = order;
    const plain = folded(path);
    if (seen.has(plain)) throw refuse(`two files ${path}`);
    seen.set(plain, path);
    const names = path.split("/");
    for (let n = 1; n < names.length; n++) folders.add(folded(names.slice(0, n).join("/")));
  }
  for (const [plain, path] of seen) if (folders.has(plain)) throw refuse(`a file and a folder ${path}`);
  return value.entries;
}

/** Byte planes put back in the order of numbers, against a base. */
function unplaned(planes, width, base) {
  const out = new Uint8Array(planes.length);
  for (let from = 0; from < planes.length; from += PART) {
    const size = Math.min(PART, planes.length - from);
    const count = Math.floor(size / width);
    for (let byte = 0; byte < width; byte++) {
      for (let n = 0; n < count; n++) out[from + n * width + byte] = planes[from + byte * count + n];
    }
    for (let at = count * width; at < size; at++) out[from + at] = planes[from + at];
  }
  if (base) for (let at = 0; at < out.length; at++) out[at] ^= base[at];
  return out;
}

// --- zstd (RFC 8878), as far as a reader needs it: frames without dictionaries; checksums are not looked at, digests decide.

/** Bits read from the end of a piece to its beginning. */
class Backwards {
  constructor(bytes, from, to) {
    if (to <= from || bytes[to - 1] === 0) throw new Wrong("a compressed stream without its end");
    this.bytes = bytes;
    this.from = from;
    this.left = 8 * (to - from) - (Math.clz32(bytes[to - 1]) - 23);
  }

  /** The next `count` bits; zeros come after the last one. */
  read(count) {
    let value = 0;
    for (let need = count; need > 0; ) {
      if (this.left <= 0) {
        value *= 2 ** need;
        this.left -= need;
        break;
      }
      const inByte = ((this.left - 1) & 7) + 1;
      const take = Math.min(need, inByte);
      const byte = this.bytes[this.from + ((this.left - 1) >> 3)];
      value = value * 2 ** take + ((byte >> (inByte - take)) & ((1 << take) - 1));
      this.left -= take;
      need -= take;
    }
    return value;
  }
}

function fseTable(counts, log) {
  const size = 1 << log;
  const table = { log, symbol: new Uint8Array(size), bits: new Uint8Array(size), base: new Uint16Array(size) };
  const next = counts.map((count) => (count < 0 ? 1 : count));
  let high = size;
  counts.forEach((count, symbol) => {
    if (count < 0) table.symbol[--high] = symbol;
  });
  const step = (size >> 1) + (size >> 3) + 3;
  let at = 0;
  counts.forEach((count, symbol) => {
    for (let n = 0; n < count; n++) {
      table.symbol[at] = symbol;
      do at = (at + step) & (size - 1);
      while (at >= high);
    }
  });
  for (let state = 0; state < size; state++) {
    const value = next[table.symbol[state]]++;
    table.bits[state] = log - (31 - Math.clz32(value));
    table.base[state] = (value << table.bits[state]) - size;
  }
  return table;
}

/** A described FSE table, and the place after its description. */
function readFse(bytes, at, end, mostLog, mostSymbols) {
  let bit = 8 * at;
  const read = (count) => {
    let value = 0;
    for (let n = 0; n < count; n++, bit++) {
      if (bit >> 3 >= end) throw new Wrong("a compressed block is cut short");
      value |= ((bytes[bit >> 3] >> (bit & 7)) & 1) << n;
    }
    return value;
  };
  const log = read(4) + 5;
  if (log > mostLog) throw new Wrong("a compressed block with a table that is too large");
  const counts = [];
  let remaining = 1 << log;
  while (remaining > 0 && counts.length < mostSymbols) {
    const width = 32 - Math.clz32(remaining + 1);
    let value = read(width);
    const low = (1 << (width - 1)) - 1;
    const threshold = (1 << width) - 1 - (remaining + 1);
    if ((value & low) < threshold) {
      bit--;
      value &= low;
    } else if (value > low) {
      value -= threshold;
    }
    const count = value - 1;
    remaining -= Math.abs(count);
    counts.push(count);
    if (count === 0) {
      let zeros;
      do {
        zeros = read(2);
        for (let n = 0; n < zeros; n++) counts.push(0);
      } while (zeros === 3);
    }
  }
  if (remaining !== 0 || counts.length > mostSymbols) throw new Wrong("a compressed block with a table that does not add up");
  return { table: fseTable(counts, log), at: (bit + 7) >> 3 };
}

function huffmanTable(weights) {
  const sum = weights.reduce((total, weight) => total + (weight ? 1 << (weight - 1) : 0), 0);
  if (!sum || weights.some((weight) => weight > 11)) throw new Wrong("a compressed block with weights out of range");
  const most = 32 - Math.clz32(sum);
  const left = (1 << most) - sum;
  if (most > 11 || left & (left - 1)) throw new Wrong("a compressed block with weights that do not add up");
  const lengths = [...weights, 32 - Math.clz32(left)].map((weight) => (weight ? most + 1 - weight : 0));
  const table = { most, symbol: new Uint8Array(1 << most), bits: new Uint8Array(1 << most) };
  let at = 0;
  for (let length = most; length >= 1; length--) {
    lengths.forEach((own, symbol) => {
      if (own !== length) return;
      const count = 1 << (most - length);
      table.symbol.fill(symbol, at, at + count);
      table.bits.fill(length, at, at + count);
      at += count;
    });
  }
  return table;
}

function readHuffman(bytes, at, end) {
  const head = bytes[at++];
  const weights = [];
  if (head >= 128) {
    for (let n = 0; n < head - 127; n++) weights.push(n & 1 ? bytes[at + (n >> 1)] & 15 : bytes[at + (n >> 1)] >> 4);
    return { table: huffmanTable(weights), at: at + ((head - 126) >> 1) };
  }
  if (at + head > end) throw new Wrong("a compressed block is cut short");
  const { table, at: from } = readFse(bytes, at, at + head, 6, 256);
  const bits = new Backwards(bytes, from, at + head);
  const states = [bits.read(table.log), bits.read(table.log)];
  for (let n = 0; weights.length < 256; n ^= 1) {
    const state = states[n];
    weights.push(table.symbol[state]);
    states[n] = table.base[state] + bits.read(table.bits[state]);
    if (bits.left < 0) {
      weights.push(table.symbol[states[n ^ 1]]);
      break;
    }
  }
  return { table: huffmanTable(weights), at: at + head };
}

function readHuffmanStream(bytes, from, to, table, out, at, size) {
  const bits = new Backwards(bytes, from, to);
  const mask = (1 << table.most) - 1;
  let state = bits.read(table.most);
  for (let n = 0; n < size; n++) {
    out[at + n] = table.symbol[state];
    const count = table.bits[state];
    state = ((state << count) | bits.read(count)) & mask;
  }
  if (bits.left !== -table.most) throw new Wrong("a compressed stream of another length");
}

const LITERAL_COUNTS = [4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1];
const MATCH_COUNTS = [1, 4, 3, 2, 2, 2, 2, 2, 2, ...Array(37).fill(1), -1, -1, -1, -1, -1, -1, -1];
const OFFSET_COUNTS = [1, 1, 1, 1, 1, 1, 2, 2, 2, ...Array(15).fill(1), -1, -1, -1, -1, -1];
const LITERAL_BITS = [...Array(16).fill(0), 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
const MATCH_BITS = [...Array(32).fill(0), 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

function baselines(bits, first) {
  let value = first;
  return bits.map((count) => {
    const own = value;
    value += 2 ** count;
    return own;
  });
}

const LITERAL_BASE = [...baselines(LITERAL_BITS.slice(0, 25), 0), ...LITERAL_BITS.slice(25).map((_, n) => 64 * 2 ** n)];
const MATCH_BASE = [...baselines(MATCH_BITS.slice(0, 43), 3), ...MATCH_BITS.slice(43).map((_, n) => 128 * 2 ** n + 3)];
const CODES = [
  { counts: LITERAL_COUNTS, log: 6, most: 9 },
  { counts: OFFSET_COUNTS, log: 5, most: 8 },
  { counts: MATCH_COUNTS, log: 6, most: 9 },
];

/** All frames of a piece, one after the other. `size`: how many bytes come of them. */
function zstd(bytes, size) {
  const out = new Uint8Array(size);
  const state = { bytes, out, at: 0, size: 0 };
  while (state.at < bytes.length) readFrame(state);
  if (state.size !== size) throw new Wrong("compressed bytes of another length", { expected: `${size}`, found: `${state.size}` });
  return out;
}

function readFrame(state) {
  const { bytes } = state;
  if (bytes.length - state.at < 6 || littleEndian(bytes, state.at, 4) !== 0xfd2fb528) throw new Wrong("not a zstd frame");
  const head = bytes[state.at + 4];
  const single = (head >> 5) & 1;
  if (head & 8 || head & 3) throw new Wrong("a zstd frame with a dictionary, or of a later version");
  state.at += 5 + (single ? 0 : 1) + [single, 2, 4, 8][head >> 6];
  const frame = { from: state.size, offsets: [1, 4, 8], huffman: null, tables: [null, null, null] };
  for (let last = false; !last; ) {
    if (state.at + 3 > bytes.length) throw new Wrong("a zstd frame is cut short");
    const block = littleEndian(bytes, state.at, 3);
    const [type, length] = [(block >> 1) & 3, block >> 3];
    last = (block & 1) === 1;
    state.at += 3;
    const stored = type === 1 ? 1 : length;
    if (type === 3 || state.at + stored > bytes.length) throw new Wrong("a zstd frame is cut short");
    if (type === 2) readBlock(state, frame, state.at + length);
    else room(state, length).out.set(type ? new Uint8Array(length).fill(bytes[state.at]) : bytes.subarray(state.at, state.at + length), state.size);
    if (type !== 2) state.size += length;
    state.at += stored;
  }
  if (head & 4) state.at += 4;
}

function room(state, count) {
  if (state.size + count > state.out.length) throw new Wrong("compressed bytes become more than they say");
  return state;
}

function readLiterals(bytes, at, end, frame) {
  const type = bytes[at] & 3;
  const form = (bytes[at] >> 2) & 3;
  if (type < 2) {
    const width = form === 1 ? 2 : form === 3 ? 3 : 1;
    const size = Math.floor(littleEndian(bytes, at, width) / (width === 1 ? 8 : 16));
    if (size > 131072) throw new Wrong("a compressed block that is too large");
    const from = at + width;
    return type ? { literals: new Uint8Array(size).fill(bytes[from]), at: from + 1 } : { literals: bytes.subarray(from, from + size), at: from + size };
  }
  const [width, count] = [[3, 10], [3, 10], [4, 14], [5, 18]][form];
  const head = Math.floor(littleEndian(bytes, at, width) / 16);
  const size = head % 2 ** count;
  const stored = Math.floor(head / 2 ** count);
  let from = at + width;
  const to = from + stored;
  if (to > end || size > 131072) throw new Wrong("a compressed block is cut short");
  if (type === 2) ({ table: frame.huffman, at: from } = readHuffman(bytes, from, to));
  if (!frame.huffman) throw new Wrong("a compressed block without its table");
  const literals = new Uint8Array(size);
  if (form === 0) {
    readHuffmanStream(bytes, from, to, frame.huffman, literals, 0, size);
  } else {
    const each = (size + 3) >> 2;
    let start = from + 6;
    for (let n = 0; n < 4; n++) {
      const stop = n < 3 ? start + littleEndian(bytes, from + 2 * n, 2) : to;
      if (stop > to) throw new Wrong("a compressed block is cut short");
      readHuffmanStream(bytes, start, stop, frame.huffman, literals, n * each, n < 3 ? each : size - 3 * each);
      start = stop;
    }
  }
  return { literals, at: to };
}

function readBlock(state, frame, end) {
  const { bytes, out } = state;
  let { literals, at } = readLiterals(bytes, state.at, end, frame);
  let count = bytes[at++];
  if (count === 255) {
    count = littleEndian(bytes, at, 2) + 0x7f00;
    at += 2;
  } else if (count >= 128) {
    count = ((count - 128) << 8) + bytes[at++];
  }
  let taken = 0;
  if (count > 0) {
    const modes = bytes[at++];
    const tables = CODES.map((code, n) => {
      const mode = (modes >> (6 - 2 * n)) & 3;
      if (mode === 0) return (frame.tables[n] = fseTable(code.counts, code.log));
      if (mode === 1) return (frame.tables[n] = { log: 0, symbol: [bytes[at++]], bits: [0], base: [0] });
      if (mode === 2) {
        const read = readFse(bytes, at, end, code.most, 64);
        at = read.at;
        return (frame.tables[n] = read.table);
      }
      if (!frame.tables[n]) throw new Wrong("a compressed block without its table");
      return frame.tables[n];
    });
    const [literalTable, offsetTable, matchTable] = tables;
    const bits = new Backwards(bytes, at, end);
    let [literal, offset, match] = tables.map((table) => bits.read(table.log));
    for (let n = 0; n < count; n++) {
      const [literalCode, offsetCode, matchCode] = [literalTable.symbol[literal], offsetTable.symbol[offset], matchTable.symbol[match]];
      if (literalCode > 35 || matchCode > 52 || offsetCode > 31) throw new Wrong("a compressed block with unknown codes");
      const distance = 2 ** offsetCode + bits.read(offsetCode);
      const length = MATCH_BASE[matchCode] + bits.read(MATCH_BITS[matchCode]);
      const before = LITERAL_BASE[literalCode] + bits.read(LITERAL_BITS[literalCode]);
      if (n < count - 1) {
        literal = literalTable.base[literal] + bits.read(literalTable.bits[literal]);
        match = matchTable.base[match] + bits.read(matchTable.bits[match]);
        offset = offsetTable.base[offset] + bits.read(offsetTable.bits[offset]);
      }
      const back = offsetOf(frame.offsets, distance, before);
      room(state, before + length);
      if (taken + before > literals.length) throw new Wrong("a compressed block asks for more than it has");
      out.set(literals.subarray(taken, taken + before), state.size);
      taken += before;
      state.size += before;
      if (back < 1 || back > state.size - frame.from) throw new Wrong("a compressed block looks behind its beginning");
      for (let m = 0; m < length; m++, state.size++) out[state.size] = out[state.size - back];
    }
    if (bits.left !== 0) throw new Wrong("a compressed stream of another length");
  }
  const rest = literals.subarray(taken);
  room(state, rest.length).out.set(rest, state.size);
  state.size += rest.length;
}

function offsetOf(known, value, literals) {
  if (value > 3) {
    known.splice(0, 3, value - 3, known[0], known[1]);
    return known[0];
  }
  const place = value - 1 + (literals === 0 ? 1 : 0);
  const found = place < 3 ? known[place] : known[0] - 1;
  if (place > 0) known.splice(0, 3, found, known[0], place === 1 ? known[2] : known[1]);
  return found;
}

// ------------------------------------------------------------------------------------------------------------- 6. contents

const TILE = MIB;
const ITEM_BYTES = new Map([
  ["bool", 1], ["int8", 1], ["uint8", 1], ["int16", 2], ["uint16", 2], ["int32", 4], ["uint32", 4], ["int64", 8], ["uint64", 8],
  ["float16", 2], ["bfloat16", 2], ["float32", 4], ["float64", 8], ["complex64", 8], ["complex128", 16],
  ["float8_e3m4", 1], ["float8_e4m3", 1], ["float8_e4m3b11fnuz", 1], ["float8_e4m3fn", 1], ["float8_e4m3fnuz", 1],
  ["float8_e5m2", 1], ["float8_e5m2fnuz", 1], ["float8_e8m0fnu", 1],
]);

/** The digest of a tensor from its bytes: elements in C order, little-endian. */
async function tensorDigest(dtype, shape, bytes) {
  const tiles = [];
  for (let at = 0; at < bytes.length; at += TILE) tiles.push(await leafHashLarge(bytes.subarray(at, at + TILE)));
  return canonicalDigest({ dtype, root: hex(merkleRoot(tiles)), shape });
}

function stateDigest(tensors) {
  const pairs = tensors.map(({ digest, path }) => ({ digest, path }));
  return canonicalDigest({ kind: "state", tensors: pairs, version: 1 });
}

function elements(shape) {
  return shape.reduce((product, length) => product * length, 1);
}

function byPath(one, two) {
  const [a, b] = [hex(encoder.encode(one.path)), hex(encoder.encode(two.path))];
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The list of a state's tensors (state.json). */
function parseState(bytes, where) {
  const value = parseCanonical(bytes, where);
  const refuse = (found) => new Wrong("not a list of a state's tensors", { where, found: visible(String(found).slice(0, 100)) });
  if (!isObject(value) || Object.keys(value).sort().join() !== "kind,tensors,version" || value.kind !== "state" || value.version !== 1) throw refuse("other members");
  if (!Array.isArray(value.tensors)) throw refuse("no tensors");
  value.tensors.forEach((one, at, all) => {
    if (!isObject(one) || Object.keys(one).sort().join() !== "digest,dtype,nbytes,path,shape" || typeof one.path !== "string") throw refuse("an entry with other members");
    const lengths = Array.isArray(one.shape) && one.shape.every((length) => Number.isSafeInteger(length) && length >= 0);
    if (!DIGEST.test(one.digest) || !lengths || !ITEM_BYTES.has(one.dtype)) throw refuse(one.path);
    if (one.nbytes !== elements(one.shape) * ITEM_BYTES.get(one.dtype) || !Number.isSafeInteger(one.nbytes)) throw refuse(`${one.path} of ${one.nbytes} bytes`);
    if (at && byPath(all[at - 1], one) >= 0) throw refuse(`${one.path} out of order`);
  });
  return value.tensors;
}

/** The files of a tree below a folder, by name. */
function below(files, folder) {
  return new Map(files.filter(({ path }) => path.startsWith(folder)).map((entry) => [entry.path.slice(folder.length), entry]));
}

const OCDBT = /^(manifest\.ocdbt|manifest\.json|metadata\.json|d\/[0-9a-f]{32}|ocdbt\.process_[0-9]+\/(manifest\.ocdbt|d\/[0-9a-f]{32}))$/;

/** The state that lies in some files of a tree, every tensor put together and digested, with the bytes of those that are asked for. */
async function readState(store, files, where, keep = () => false) {
  const form = files.get("slices.json");
  const list = files.get("state.json");
  if (!form && [...files.keys()].some((name) => OCDBT.test(name))) {
    throw new Missing("a state in the form of an earlier version (OCDBT), which this page does not read", { where });
  }
  if (!list) throw new Wrong("a state without the list of its tensors", { where });
  const bytes = await store.file(list);
  const tensors = parseState(bytes, `${where}, state.json`);
  const most = tensors.reduce((sum, one) => sum + one.nbytes, 0);
  if (most > MOST_BYTES) throw new Missing("a state is larger than this page reads", { where, found: `${most} bytes` });
  const read = form ? await slicedReader(store, files, tensors, where) : await plainReader(store, files, tensors, where);
  const found = [];
  const kept = new Map();
  for (const [at, one] of tensors.entries()) {
    const content = await read(one, at);
    const digest = await tensorDigest(one.dtype, one.shape, content);
    if (digest !== one.digest) {
      throw new Wrong("a tensor is not the one of the list", { where: `${where}, ${one.path}`, expected: one.digest, found: digest });
    }
    found.push({ path: one.path, digest });
    if (keep(one.path)) kept.set(one.path, { ...one, content });
  }
  return { digest: stateDigest(found), list: bytes, nbytes: most, kept, count: tensors.length };
}

function onlyThese(files, names, where) {
  for (const name of files.keys()) if (!names.has(name)) throw new Wrong("a file that a state has not", { where: `${where}, ${visible(name)}` });
}

/** A state as a tree: a file for each tensor. */
async function plainReader(store, files, tensors, where) {
  const name = (at) => `tensors/${String(at).padStart(5, "0")}`;
  onlyThese(files, new Set(["state.json", ...tensors.map((_, at) => name(at))]), where);
  return async (one, at) => {
    const entry = files.get(name(at));
    if (!entry) throw new Wrong("a tensor has no file", { where: `${where}, ${one.path}` });
    if (entry.size !== one.nbytes) throw new Wrong("a tensor's file has another size", { where: `${where}, ${one.path}` });
    return store.file(entry);
  };
}

/** A state in slices: slice s has run s of every lead row of every tensor, one tensor after the other. */
async function slicedReader(store, files, tensors, where) {
  const place = `${where}, slices.json`;
  const form = parseCanonical(await store.file(files.get("slices.json")), place);
  const { leads, slices } = form;
  const whole = isObject(form) && Object.keys(form).sort().join() === "kind,leads,slices,version";
  if (!whole || form.kind !== "state in slices" || form.version !== 1 || !isObject(leads) || !(Number.isInteger(slices) && slices >= 1 && slices <= 4096)) {
    throw new Wrong("not the form of a state in slices: it can not be read", { where: place });
  }
  const cut = new Map();
  for (const one of tensors) {
    const lead = member(leads, one.path) ?? 1;
    const size = elements(one.shape);
    if (!Number.isSafeInteger(lead) || lead < 1 || size % lead) throw new Wrong("a lead that does not divide its tensor", { where: `${place}, ${one.path}` });
    cut.set(one.path, { lead, row: size / lead, width: Math.ceil(size / lead / slices), item: ITEM_BYTES.get(one.dtype) });
  }
  for (const path of Object.keys(leads)) if (!cut.has(path) || leads[path] < 2) throw new Wrong("a lead of no tensor", { where: `${place}, ${visible(path)}` });
  const name = (at) => `slices/${String(at).padStart(5, "0")}`;
  onlyThese(files, new Set(["state.json", "slices.json", ...Array.from({ length: slices }, (_, at) => name(at))]), where);
  const parts = [];
  for (let at = 0; at < slices; at++) {
    const entry = files.get(name(at));
    if (!entry) throw new Wrong("a slice has no file", { where: `${where}, ${name(at)}` });
    const runs = tensors.map(({ path }) => {
      const { lead, row, width, item } = cut.get(path);
      const first = Math.min(row, at * width);
      return { lead, bytes: (Math.min(row, first + width) - first) * item };
    });
    const size = runs.reduce((sum, { lead, bytes }) => sum + lead * bytes, 0);
    if (size !== entry.size) throw new Wrong("a slice has another size", { where: `${where}, ${name(at)}`, expected: `${size} bytes`, found: `${entry.size}` });
    parts.push({ bytes: await store.file(entry), runs, at: 0 });
  }
  return async (one, number) => {
    const content = new Uint8Array(one.nbytes);
    const { lead, row, width, item } = cut.get(one.path);
    parts.forEach((part, slice) => {
      const length = part.runs[number].bytes;
      const first = Math.min(row, slice * width) * item;
      for (let n = 0; n < lead; n++, part.at += length) {
        content.set(part.bytes.subarray(part.at, part.at + length), n * row * item + first);
      }
    });
    return content;
  };
}

const TOKEN_TYPES = { "input_ids/data": ["int32", 4], "loss_mask/data": ["uint8", 1], offsets: ["int64", 8] };
const INDEX_CODECS = [{ configuration: { endian: "little" }, name: "bytes" }, { name: "crc32c" }];
const ABSENT = 2 ** 64;

/** The first `count` elements of a stored array of a token cache, as bytes; the names of its files go to `used`. */
async function readArray(store, files, name, [dtype, item], count, where, used) {
  const refuse = (found) => new Wrong("not an array of a token cache", { where: `${where}/${name}`, found });
  const head = files.get(`${name}/zarr.json`);
  if (!head) throw refuse("no zarr.json");
  used.add(`${name}/zarr.json`);
  let told;
  try {
    told = JSON.parse(decoder.decode(await store.file(head)));
  } catch (error) {
    if (error instanceof Missing || error instanceof Wrong) throw error;
    throw refuse("a zarr.json that is no JSON");
  }
  const file = member(member(member(told, "chunk_grid"), "configuration"), "chunk_shape")?.[0];
  const [codec, second] = Array.isArray(told.codecs) ? told.codecs : [];
  const inner = member(codec, "configuration");
  const chunk = member(inner, "chunk_shape")?.[0];
  const names = Array.isArray(inner?.codecs) ? inner.codecs.map((one) => one?.name).join() : "";
  if (told.data_type !== dtype) throw refuse(`elements of ${visible(String(told.data_type).slice(0, 40))}, not ${dtype}`);
  const known = codec?.name === "sharding_indexed" && second === undefined && names === "bytes,blosc" && told.fill_value === 0;
  if (!known || told.shape?.length !== 1 || !equalValues(inner.index_codecs, INDEX_CODECS) || (inner.index_location ?? "end") !== "end") throw refuse("another form");
  if (![file, chunk].every((size) => Number.isSafeInteger(size) && size > 0) || file % chunk || 16 * (file / chunk) > MIB || chunk * item > 16 * MIB) throw refuse("chunks of another size");
  const stored = [...files].reduce((sum, [path, { size }]) => sum + (path.startsWith(`${name}/c/`) ? size : 0), 0);
  if (count * item > 16384 * (1024 + stored)) throw refuse(`${count} elements in ${stored} bytes`);
  if (count * item > MOST_BYTES) throw new Missing("an array is larger than this page reads", { where: `${where}/${name}` });
  const out = new Uint8Array(count * item);
  for (let number = 0; number * file < count; number++) {
    const entry = files.get(`${name}/c/${number}`);
    if (!entry) continue; // all of it is the fill value, zero
    used.add(`${name}/c/${number}`);
    const bytes = await store.file(entry);
    const index = bytes.length - 4 - 16 * (file / chunk);
    if (index < 0) throw refuse(`a file of ${bytes.length} bytes`);
    if (crc32c(bytes.subarray(index, -4)) !== littleEndian(bytes, bytes.length - 4, 4)) throw refuse(`an index of another checksum in ${name}/c/${number}`);
    for (let n = 0; n < file / chunk; n++) {
      const at = number * file + n * chunk;
      const [begin, size] = [littleEndian(bytes, index + 16 * n, 8), littleEndian(bytes, index + 16 * n + 8, 8)];
      if (at >= count || begin >= ABSENT - 4096) continue;
      if (begin + size > index) throw refuse(`a chunk of ${size} bytes at ${begin}`);
      const content = blosc(bytes.subarray(begin, begin + size), chunk * item, `${where}/${name}/c/${number}`);
      out.set(content.subarray(0, (Math.min(count, at + chunk) - at) * item), at * item);
    }
  }
  return out;
}

const CASTAGNOLI = Uint32Array.from({ length: 256 }, (_, n) => {
  let value = n;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  return value;
});

/** The checksum of RFC 3720, appendix B.4. */
function crc32c(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = (value >>> 8) ^ CASTAGNOLI[(value ^ byte) & 255];
  return ~value >>> 0;
}

/** A chunk of c-blosc 1 with zstd, or stored as it is, with bytes or bits shuffled or not. */
function blosc(bytes, size, where) {
  if (bytes.length < 16 || littleEndian(bytes, 4, 4) !== size) throw new Wrong("a chunk that does not become what it has to", { where });
  const [flags, item, block] = [bytes[2], bytes[3], littleEndian(bytes, 8, 4)];
  if (flags & 2) {
    if (bytes.length < 16 + size) throw new Wrong("a chunk is cut short", { where });
    return bytes.subarray(16, 16 + size);
  }
  if (flags >> 5 !== 4 || !(flags & 16) || !block) throw new Missing("a chunk that is not compressed by zstd", { where });
  const out = new Uint8Array(size);
  for (let n = 0; n * block < size; n++) {
    const from = littleEndian(bytes, 16 + 4 * n, 4);
    const own = Math.min(block, size - n * block);
    const stored = littleEndian(bytes, from, 4);
    if (!(from + 4 + stored <= bytes.length)) throw new Wrong("a chunk is cut short", { where });
    const packed = bytes.subarray(from + 4, from + 4 + stored);
    const plain = stored === own ? packed : zstd(packed, own);
    const target = out.subarray(n * block, n * block + own);
    if (flags & 4 && item && Math.floor(own / item) % 8 === 0) {
      unshuffledBits(plain, item, target);
      continue;
    }
    if (!(flags & 1) || item < 2) {
      target.set(plain);
      continue;
    }
    const count = Math.floor(own / item);
    for (let byte = 0; byte < item; byte++) for (let m = 0; m < count; m++) target[m * item + byte] = plain[byte * count + m];
    target.set(plain.subarray(count * item), count * item);
  }
  return out;
}

/** Bits put back in their places: those of one place in their elements lie together, eight elements in a byte. */
function unshuffledBits(plain, item, target) {
  const count = Math.floor(target.length / item);
  for (let place = 0; place < 8 * item; place++) {
    const from = (place * count) / 8;
    for (let n = 0; n < count; n++) target[n * item + (place >> 3)] |= ((plain[from + (n >> 3)] >> (n & 7)) & 1) << (place & 7);
  }
  target.set(plain.subarray(count * item), count * item);
}

/** The content of the output of step tokens: its digest and bytes, and the tokens that training reads, part by part. */
async function readTokens(store, files) {
  const all = below(files, "");
  const single = [...all.keys()].some((name) => name.startsWith("train/input_ids/"));
  const parts = new Set([...all.keys()].filter((name) => name.startsWith("train/")).map((name) => `train/${name.split("/")[1]}`));
  const tensors = [];
  const streams = [];
  const used = new Set();
  let size = 0;
  for (const split of [...(single ? ["train"] : [...parts].sort()), "validation"]) {
    const own = below(files, `${split}/`);
    const looked = new Set(["shard_ledger.json"]);
    const cache = await readCache(store, own, split, tensors, looked);
    size += cache.size;
    if (split !== "validation") streams.push(cache);
    for (const name of looked) used.add(`${split}/${name}`);
  }
  for (const name of all.keys()) if (!used.has(name)) throw new Wrong("a file that token caches have not", { where: visible(name) });
  tensors.sort(byPath);
  return { digest: stateDigest(tensors), size, streams };
}

async function readCache(store, own, split, tensors, used) {
  const refuse = (found) => new Wrong("a token cache that is not whole", { where: split, found });
  const ledger = own.get("shard_ledger.json");
  if (!ledger) throw refuse("no shard_ledger.json");
  let told;
  try {
    told = JSON.parse(decoder.decode(await store.file(ledger)));
  } catch (error) {
    if (error instanceof Missing || error instanceof Wrong) throw error;
    throw refuse("a shard_ledger.json that is no JSON");
  }
  const rows = member(told, "total_num_rows");
  if (member(told, "is_finished") !== true || !Number.isSafeInteger(rows) || rows < 0) throw refuse("one that was not finished");
  const raw = await readArray(store, own, "input_ids/offsets", TOKEN_TYPES.offsets, rows + 1, split, used);
  if (littleEndian(raw, 0, 8) !== rows) throw refuse(`${littleEndian(raw, 0, 8)} documents beside ${rows}`);
  const offsets = raw.slice();
  offsets.fill(0, 0, 8); // the first place has the number of rows; the first document begins at 0
  for (let n = 1; n <= rows; n++) {
    if (littleEndian(offsets, 8 * n, 8) < littleEndian(offsets, 8 * n - 8, 8)) throw refuse("offsets that do not grow");
  }
  const count = littleEndian(offsets, 8 * rows, 8);
  const tokens = await readArray(store, own, "input_ids/data", TOKEN_TYPES["input_ids/data"], count, split, used);
  tensors.push({ path: `${split}/tokens`, digest: await tensorDigest("int32", [count], tokens) });
  tensors.push({ path: `${split}/offsets`, digest: await tensorDigest("int64", [rows + 1], offsets) });
  let size = 4 * count + 8 * (rows + 1);
  let mask = null;
  if ([...own.keys()].some((name) => name.startsWith("loss_mask/"))) {
    const ends = await readArray(store, own, "loss_mask/offsets", TOKEN_TYPES.offsets, rows + 1, split, used);
    if (!same(ends, raw)) throw refuse("a loss mask of other documents");
    mask = await readArray(store, own, "loss_mask/data", TOKEN_TYPES["loss_mask/data"], count, split, used);
  } else if (own.has("loss_mask.u8")) {
    used.add("loss_mask.u8");
    mask = await store.file(own.get("loss_mask.u8"));
  }
  if (mask) {
    if (mask.length !== count || mask.some((one) => one > 1)) throw refuse("a loss mask of another length, or of other numbers");
    tensors.push({ path: `${split}/loss_mask`, digest: await tensorDigest("uint8", [count], mask) });
    size += count;
  }
  if (own.has("words.txt")) {
    used.add("words.txt");
    const words = decoder.decode(await store.file(own.get("words.txt")));
    if (!/^(0|[1-9][0-9]{0,17})\n$/.test(words)) throw refuse("not a number of words");
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigInt64(0, BigInt(words.trim()), true);
    tensors.push({ path: `${split}/words`, digest: await tensorDigest("int64", [1], bytes) });
    size += 8;
  }
  return { size, tokens: arrayOf("int32", tokens), mask };
}

const SAFE_TYPES = new Map([
  ["F32", "float32"], ["F16", "float16"], ["BF16", "bfloat16"], ["F64", "float64"], ["I64", "int64"], ["I32", "int32"],
  ["I16", "int16"], ["I8", "int8"], ["U8", "uint8"], ["BOOL", "bool"],
]);

/** The tensors of a safetensors file: every byte belongs to one. */
function readSafetensors(bytes, where) {
  const refuse = (found) => new Wrong("not a safetensors file", { where, found });
  const length = bytes.length >= 8 ? littleEndian(bytes, 0, 8) : Infinity;
  if (8 + length > bytes.length) throw refuse("a head that is longer than the file");
  let head;
  try {
    head = JSON.parse(decoder.decode(bytes.subarray(8, 8 + length)));
  } catch {
    throw refuse("a head that is no JSON");
  }
  const data = bytes.subarray(8 + length);
  const tensors = Object.entries(head).filter(([name]) => name !== "__metadata__").map(([name, one]) => {
    const [begin, end] = Array.isArray(one?.data_offsets) ? one.data_offsets : [];
    const dtype = SAFE_TYPES.get(one?.dtype);
    const shape = Array.isArray(one?.shape) && one.shape.every((size) => Number.isSafeInteger(size) && size >= 0) ? one.shape : null;
    if (!dtype || !shape || end - begin !== elements(shape) * ITEM_BYTES.get(dtype)) throw refuse(`tensor ${visible(name.slice(0, 80))}`);
    return { name, dtype, shape, begin, end, content: data.subarray(begin, end) };
  });
  tensors.sort((one, two) => one.begin - two.begin);
  let at = 0;
  for (const { begin, end } of tensors) {
    if (begin !== at) throw refuse(`bytes ${at} to ${begin} that no tensor has`);
    at = end;
  }
  if (at !== data.length) throw refuse("bytes that no tensor has");
  return tensors;
}

/**
 * Whether the exported tensors are, byte for byte, those of the last state: a Hugging Face name ends as a path of the state
 * does, and tensor `layers.N` is the N-th row of a stack. What has another name, dtype or size there is not compared.
 */
function compareExport(exported, parameters) {
  const compared = [];
  for (const one of exported) {
    const layer = /(?:^|\.)(?:layers|h)\.([0-9]+)\.(.+)$/.exec(one.name);
    const ending = (layer ? layer[2] : one.name.replace(/^(model|transformer)\./, "").replace(/^embed_tokens\./, "token_embeddings.")).replaceAll(".", "/");
    const own = [...parameters.values()].filter(({ path }) => path.endsWith(`/${ending}`) && path.includes("/stacked/") === Boolean(layer));
    if (own.length !== 1 || own[0].dtype !== one.dtype) continue;
    const rows = layer ? own[0].shape[0] : 1;
    const size = own[0].content.length / rows;
    if (size !== one.content.length || (layer && Number(layer[1]) >= rows)) continue;
    const row = layer ? Number(layer[1]) : 0;
    if (!same(own[0].content.subarray(row * size, row * size + size), one.content)) {
      throw new Wrong("an exported tensor is not that of the last state", { where: `model.safetensors, ${visible(one.name)}`, expected: own[0].path });
    }
    compared.push(one.name);
  }
  return compared;
}

// ----------------------------------------------------------------------------------------------------- 7. the record of a run

const HEXFLOAT = /^(-?)0x([01])\.([0-9a-f]{1,13})p([+-][0-9]{1,4})$/;

/** The number of a hexadecimal float; NaN for `nan`. */
function hexFloat(text) {
  if (text === "inf" || text === "-inf") return text === "inf" ? Infinity : -Infinity;
  const match = HEXFLOAT.exec(text);
  if (!match) return NaN;
  const size = parseInt(match[2] + match[3], 16) * 2 ** (Number(match[4]) - 4 * match[3].length);
  return match[1] ? -size : size;
}

const FORMS = {
  text: (value) => typeof value === "string",
  int: (value) => Number.isSafeInteger(value),
  number: (value) => typeof value === "number",
  bool: (value) => typeof value === "boolean",
  object: isObject,
  "object or null": (value) => value === null || isObject(value),
  "int or null": (value) => value === null || Number.isSafeInteger(value),
  digest: (value) => typeof value === "string" && DIGEST.test(value),
  "digest or null": (value) => value === null || FORMS.digest(value),
  "digest or empty": (value) => value === "" || FORMS.digest(value),
  hex: (value) => typeof value === "string" && (HEXFLOAT.test(value) || /^-?(inf|nan)$/.test(value)),
};

const OUTPUT = { kind: "text", digest: "digest", size: "int", artifact: "digest" };

/** Bodies of the events that may tell of a run (docs/record.md); a name with a question mark may be absent. */
const BODIES = {
  "run.started/v1": {
    run: "text", pipeline: "text", plan: "digest", recipe_digest: "digest", recipe: "object", code: "object", environment: "object",
    "continues?": "object or null", "experiment?": "text", "pinned?": { each: "digest" },
  },
  "step.started/v1": {
    run: "text", step: "text", identity: "digest", config_digest: "digest", config: "object", inputs: { each: "digest" }, code: "digest",
    attempt: "int", "address?": "text", "lock?": "text",
  },
  "step.completed/v1": {
    run: "text", step: "text", identity: "digest", inputs: { each: "digest" }, output: OUTPUT, metrics: { each: "hex" }, seconds: "number",
    "tables?": { each: "digest" }, "address?": "text",
  },
  "step.cached/v1": { run: "text", step: "text", identity: "digest", inputs: { each: "digest" }, output: OUTPUT, completed_at: "int" },
  "step.failed/v1": { run: "text", step: "text", identity: "digest", error: "text", "address?": "text", "lasting?": "bool" },
  "step.paused/v1": { run: "text", step: "text", identity: "digest", where: "text" },
  "step.preempted/v1": {
    run: "text", step: "text", attempt: "int", launch: "int", reason: "text", processes: "int", devices: "int", at: "int", again: "bool",
  },
  "train.started/v1": {
    run: "text", first_step: "int", num_steps: "int", state: "digest", manifest: "digest", program: "object", seeds: "object", devices: "int",
    attempt: "int", "processes?": "int", "device?": "object", "retention?": "object or null",
  },
  "train.segment/v1": {
    run: "text", start: "int", end: "int", losses: { all: "hex" }, batches: { all: "text" }, fingerprints: { all: "text" },
    start_state: "digest", end_state: "digest", trace: "digest",
  },
  "train.withdrawn/v1": { run: "text", step: "int", request: "int" },
  "checkpoint.saved/v1": { run: "text", step: "int", state: "digest", artifact: "digest", manifest: "digest", size: "int" },
  "eval.completed/v1": { run: "text", model: "digest", metrics: { each: "hex" } },
  "model.exported/v1": { run: "text", format: "text", model: "digest", output: OUTPUT },
  "run.completed/v1": { run: "text", outputs: { each: OUTPUT }, metrics: { each: "hex" } },
  "metrics.recorded/v1": { run: "text", step: "text", series: { all: { key: "text", steps: { all: "int" }, values: { all: "hex" } } } },
  "replay.completed/v1": {
    run: "text", verdicts: { each: "text" }, training: "object", first_divergence: "object or null", log_checkpoint: "object",
    details: "object", environment: "object",
  },
  "loop.segment/v1": {
    run: "text", start: "int", end: "int", losses: { all: "hex" }, batches: { all: "digest or empty" }, "state?": "digest or empty",
    "manifest?": "digest or empty",
  },
};
const OF_STEP = {
  "train.started/v1": "train", "train.segment/v1": "train", "checkpoint.saved/v1": "train", "train.withdrawn/v1": "train",
  "eval.completed/v1": "evaluate", "model.exported/v1": "export",
};
const STEPS = ["corpus", "tokenizer", "tokens", "train", "evaluate", "export"];
const INPUTS = {
  corpus: [], tokenizer: ["corpus"], tokens: ["corpus", "tokenizer"], train: ["tokenizer", "tokens"],
  evaluate: ["corpus", "tokenizer", "tokens", "train"], export: ["tokenizer", "train"],
};
const CONFIGURED = {
  corpus: ["dataset", "sources"], tokenizer: ["tokenizer"], tokens: ["tokens"], train: ["arithmetic", "model", "optimizer", "seed", "trainer"],
  evaluate: ["arithmetic", "evaluation", "model", "seed"], export: ["arithmetic", "export", "model"],
};
const SECTIONS = [
  "seed", "order", "dataset", "tokenizer", "tokens", "model", "optimizer", "trainer", "arithmetic", "evaluation", "export", "mixture", "phase",
  "initial", "lora", "objective", "exclude",
];
const COUNTS = [["trainer", "num_steps"], ["trainer", "batch_size"], ["model", "seq_len"]];
const KINDS = { corpus: "corpus", tokenizer: "tokenizer", tokens: "tokens", train: "state", evaluate: "evaluation", export: "model" };
const BY_CONTENT = ["state", "tokens"];
const VERDICTS = ["replay.completed/v1", "replay.segment/v1", "stop.requested/v1"];
const BESIDE = ["tracking.logged/v1", "run.labelled/v1", "speedrun.entered/v1"];
const GRAD_NORM = "train/grad_norm";
const MEASURED_OF = [
  [["router/entropy", "router/largest_share", "router/idle_experts"], (recipe) => Boolean(member(member(recipe, "model"), "num_experts")), "experts"],
  [["rl/reward", "rl/reward_std", "rl/completion_length", "rl/entropy"], (recipe) => Boolean(member(recipe, "objective")), "completions"],
];
const OF_TRAINING = [GRAD_NORM, ...MEASURED_OF.flatMap(([names]) => names)];
const ROUNDED = { "router/entropy": 2 ** -40 };

/** What does not fit of a value; "" where all of it does. Members that a form has not are `more`. */
function fit(value, form, path, more = []) {
  if (typeof form === "string") return FORMS[form](value) ? "" : path || "the body";
  if (form.each || form.all) {
    if (form.each ? !isObject(value) : !Array.isArray(value)) return path;
    for (const [name, one] of Object.entries(value)) {
      const wrong = fit(one, form.each ?? form.all, `${path}.${visible(name)}`, more);
      if (wrong) return wrong;
    }
    return "";
  }
  if (!isObject(value)) return path || "the body";
  const names = new Set();
  for (const [given, inner] of Object.entries(form)) {
    const name = given.replace("?", "");
    names.add(name);
    if (!Object.hasOwn(value, name)) {
      if (given === name) return `${path}.${name}, which is absent`;
      continue;
    }
    const wrong = fit(value[name], inner, path ? `${path}.${name}` : name, more);
    if (wrong) return wrong;
  }
  for (const name of Object.keys(value)) if (!names.has(name)) more.push(path ? `${path}.${name}` : name);
  return "";
}

function stepOf(event) {
  if (Object.hasOwn(OF_STEP, event.type)) return OF_STEP[event.type];
  return typeof event.body.step === "string" ? event.body.step : "";
}

/** A run as its events tell it. Collects what contradicts (`wrong`), what nothing here derives (`open`) and what is claimed. */
class Record {
  constructor(log, run) {
    this.log = log;
    this.run = run;
    this.wrong = [];
    this.open = [];
    this.aside = [];
    this.steps = new Map();
    this.own = this.stretch(run, "", Infinity);
    const started = this.own.events[0];
    if (started?.type !== "run.started/v1") throw new Missing("the run has no beginning", { where: `stream run/${run}` });
    this.started = started;
    this.recipe = started.body.recipe;
    this.fold();
    this.stretches = [this.own];
    for (const [name, view] of this.steps) {
      if (view.origin !== run) this.stretches.push(this.stretch(view.origin, name, view.completedAt));
    }
    for (const stretch of this.stretches) stretch.gone = this.superseded(stretch);
    this.readTraining();
    this.evaluations = log.events.filter(({ stream, type }) => stream === `evaluation/${run}` && type.startsWith("evaluation."));
  }

  contradiction(event, field, expected, found) {
    const step = stepOf(event);
    this.wrong.push(
      `event ${event.index}, ${field}${step ? ` of step ${visible(step)}` : ""}: expected ${shown(expected)}, found ${shown(found)}`,
    );
  }

  /** Compare two values that have to be the same. */
  agree(event, field, expected, found) {
    if (expected === undefined) return;
    if (found === undefined || !equalValues(expected, found)) {
      const [one, two] = difference(expected, found);
      this.contradiction(event, field, one, two);
    }
  }

  /** The readable events of a stream: of the run itself, or those of one step that another run recorded. */
  stretch(run, step, last) {
    const all = this.log.events.filter(
      (event) => event.stream === `run/${run}` && event.index <= last && (!step || stepOf(event) === step || event.type === "run.started/v1"),
    );
    const events = [];
    for (const event of all) {
      const about = `event ${event.index}`;
      const form = Object.hasOwn(BODIES, event.type) ? BODIES[event.type] : null;
      const more = [];
      const unfit = form ? fit(event.body, form, "", more) : "";
      if (!form) this.open.push(`${about}: an event of type ${event.type}, which nothing here derives`);
      else if (unfit) this.open.push(`${about}: an event of type ${event.type} that does not fit it (${unfit})`);
      else events.push(event);
      for (const name of more) this.open.push(`${about}: a field ${visible(name)} in an event of type ${event.type}, which nothing here derives`);
    }
    return { run, step, events, started: events.find(({ type }) => type === "run.started/v1") };
  }

  fold() {
    this.completed = null;
    for (const event of this.own.events) {
      const { body } = event;
      if (event.type === "step.completed/v1") {
        this.steps.set(body.step, { ...body, index: event.index, completedAt: event.index, origin: this.run, cached: false, tables: body.tables ?? {} });
      } else if (event.type === "step.cached/v1") {
        const made = this.log.events[body.completed_at];
        const whole = made?.type === "step.completed/v1" && !fit(made.body, BODIES[made.type], "") && made.index < event.index;
        if (!whole || made.stream !== `run/${made.body.run}` || made.body.step !== body.step) {
          this.contradiction(event, "completed_at", `an earlier step.completed/v1 of ${body.step}`, `event ${body.completed_at}`);
          continue;
        }
        for (const name of ["identity", "inputs", "output"]) this.agree(event, name, made.body[name], body[name]);
        this.steps.set(body.step, {
          ...made.body, index: event.index, completedAt: made.index, origin: made.body.run, cached: true, tables: made.body.tables ?? {},
        });
      } else if (event.type === "run.completed/v1") {
        this.completed = event;
      }
    }
  }

  /** Events of a step under another identity than the one whose output stands, and what a training took back. */
  superseded(stretch) {
    const gone = new Set();
    const begun = new Map();
    for (const event of stretch.events) {
      const step = stepOf(event);
      if (["step.started/v1", "step.completed/v1", "step.cached/v1"].includes(event.type)) begun.set(step, event.body.identity);
      else if (!Object.hasOwn(OF_STEP, event.type) && event.type !== "metrics.recorded/v1") continue;
      const view = this.steps.get(step);
      if (view && (begun.get(step) ?? view.identity) !== view.identity) gone.add(event.index);
    }
    for (const cut of stretch.events.filter(({ type }) => type === "train.withdrawn/v1")) {
      for (const event of stretch.events) if (event.index < cut.index && tellsAfter(event, cut.body.step)) gone.add(event.index);
    }
    return gone;
  }

  readTraining() {
    const origin = this.steps.get("train")?.origin ?? this.run;
    const last = this.steps.get("train")?.completedAt ?? Infinity;
    const stretch = this.stretches.find((one) => one.run === origin && (one.run === this.run || one.step === "train")) ?? this.own;
    const facts = (type) => stretch.events.filter((event) => event.type === type && event.index <= last);
    const withdrawn = facts("train.withdrawn/v1");
    const stands = (event) => !withdrawn.some((cut) => event.index < cut.index && tellsAfter(event, cut.body.step));
    this.training = facts("train.started/v1").filter(stands);
    const found = new Map();
    for (const event of facts("train.segment/v1").filter(stands)) {
      for (const [start, known] of found) {
        if (known.body.start < event.body.end && event.body.start < known.body.end) found.delete(start);
      }
      found.set(event.body.start, event);
    }
    this.segments = [...found.values()].sort((one, two) => one.body.start - two.body.start);
    const saved = new Map(facts("checkpoint.saved/v1").filter(stands).map((event) => [event.body.step, event]));
    this.checkpoints = [...saved.values()].sort((one, two) => one.body.step - two.body.step);
    this.loop = this.own.events.filter(({ type }) => type === "loop.segment/v1");
    this.states = new Map();
    for (const { body } of this.segments) this.states.set(body.end, body.end_state);
    for (const { body } of this.segments) this.states.set(body.start, body.start_state);
    const phase = member(this.recipe, "phase");
    this.first = isObject(phase) && Number.isSafeInteger(phase.first_step) ? phase.first_step : 0;
    const count = member(member(this.recipe, "trainer"), "num_steps");
    this.last = Number.isSafeInteger(count) ? this.first + count : undefined;
  }

  get isLoop() {
    return this.started.body.pipeline === "loop";
  }

  /** Artifacts of training checkpoints that the run said it would let go. */
  letGo() {
    const policy = this.training.at(-1)?.body.retention;
    if (!policy || !Number.isSafeInteger(policy.last) || !Array.isArray(policy.every)) return new Set();
    const first = Math.min(...this.training.map(({ body }) => body.first_step));
    const steps = this.checkpoints.map(({ body }) => body.step);
    const newest = new Set(steps.slice(-policy.last));
    const stays = ({ body }) => newest.has(body.step) || policy.every.some((every) => (body.step - first) % every === 0);
    const kept = new Set(this.checkpoints.filter(stays).map(({ body }) => body.artifact));
    return new Set(this.checkpoints.map(({ body }) => body.artifact).filter((artifact) => !kept.has(artifact)));
  }

  norms() {
    const found = new Map();
    for (const { gone, events } of this.stretches) {
      for (const { index, type, body } of events) {
        if (type !== "metrics.recorded/v1" || gone.has(index)) continue;
        for (const { key, steps, values } of body.series) {
          if (key === GRAD_NORM && steps.length === values.length) steps.forEach((step, at) => found.set(step, hexFloat(values[at])));
        }
      }
    }
    return found;
  }

  metrics() {
    const all = {};
    for (const [step, view] of this.steps) for (const [name, value] of Object.entries(view.metrics)) all[`${step}.${name}`] = value;
    return all;
  }

  // -- what has to agree

  check() {
    this.own.events.forEach((event, at) => {
      if ((event.type === "run.started/v1") !== (at === 0)) this.contradiction(event, "type", "one beginning of a run, first in its stream", event.type);
    });
    for (const stretch of this.stretches) {
      if (!stretch.started) {
        this.wrong.push(`step ${visible(stretch.step)} was taken over from run ${visible(stretch.run)}, which has no beginning`);
        continue;
      }
      const begun = new Map();
      for (const event of stretch.events) {
        if (event.type !== "replay.completed/v1") this.agree(event, "run", stretch.run, event.body.run);
        this.look(event, stretch, begun);
      }
    }
    if (this.isLoop) this.checkLoop();
    else this.checkTraining();
    this.checkTwice();
    this.checkOutside();
    this.checkStrays();
  }

  /** Entries that are no events of the log, and name the run or one that it took a step from. */
  checkStrays() {
    const runs = this.stretches.map(({ run }) => run);
    for (const { index, stray } of this.log.events) {
      if (!stray || !runs.some((run) => stray.words.includes(run))) continue;
      if (stray.misplaced) this.wrong.push(`event ${index}: ${stray.said}`);
      else this.open.push(`event ${index}: an entry that is no event of the log, which nothing here derives: ${stray.said}`);
    }
  }

  look(event, stretch, begun) {
    const { body } = event;
    const stands = !stretch.gone.has(event.index);
    switch (event.type) {
      case "run.started/v1":
        if (stretch === this.own && !this.isLoop) this.checkStarted(event);
        break;
      case "step.started/v1":
        begun.set(body.identity, event);
        this.checkStepStarted(event, stretch);
        break;
      case "step.completed/v1":
        this.checkStepCompleted(event, begun);
        break;
      case "step.cached/v1":
        this.agree(event, "inputs", this.inputsOf(event), body.inputs);
        break;
      case "train.started/v1":
        if (stands) this.checkTrainStarted(event);
        break;
      case "checkpoint.saved/v1":
        if (stands) this.checkState(event, "step", body.step);
        break;
      case "train.withdrawn/v1":
        this.checkWithdrawn(event, stretch);
        break;
      case "metrics.recorded/v1":
        if (stands) this.checkSeries(event);
        break;
      case "eval.completed/v1":
        if (!stands) break;
        this.agree(event, "model", this.steps.get("train")?.output.digest, body.model);
        this.agree(event, "metrics", this.steps.get("evaluate")?.metrics, body.metrics);
        break;
      case "model.exported/v1":
        if (!stands) break;
        this.agree(event, "model", this.steps.get("train")?.output.digest, body.model);
        this.agree(event, "output", this.steps.get("export")?.output, body.output);
        this.agree(event, "format", member(member(this.recipe, "export"), "format"), body.format);
        break;
      case "run.completed/v1": {
        const outputs = Object.fromEntries([...this.steps].map(([name, view]) => [name, view.output]));
        this.agree(event, "outputs", outputs, body.outputs);
        const planned = Object.keys(member(this.started.body.code, "steps") ?? {});
        for (const name of planned) if (!this.steps.has(name)) this.contradiction(event, "outputs", `an output of ${name}`, "none");
        this.agree(event, "metrics", this.metrics(), body.metrics);
        break;
      }
    }
    const step = stepOf(event);
    if (step && !this.isLoop && !STEPS.includes(step)) {
      this.open.push(`event ${event.index}: a step ${visible(step)} (${event.type}), which nothing here derives`);
    }
    const reported = Object.hasOwn(OF_STEP, event.type) ? OF_STEP[event.type] : "";
    if (reported && this.completed && !this.steps.has(reported)) {
      this.open.push(`event ${event.index}: an event of type ${event.type} of step ${reported}, which has no end`);
    }
  }

  checkStarted(event) {
    const { body } = event;
    const recipe = { ...body.recipe };
    delete recipe.recipe_version;
    const digest = canonicalDigest({ recipe_version: body.recipe.recipe_version ?? 1, type: "recipe", value: recipe });
    this.agree(event, "recipe_digest", digest, body.recipe_digest);
    for (const name of Object.keys(recipe)) if (!SECTIONS.includes(name)) this.contradiction(event, `recipe.${visible(name)}`, "a section that recipes have", "another");
    for (const [section, name] of COUNTS) {
      const count = member(member(recipe, section), name);
      if (!Number.isSafeInteger(count) || count < 1) this.contradiction(event, `recipe.${section}.${name}`, "a whole number from 1 on", count);
    }
    const steps = member(body.code, "steps");
    if (!isObject(steps)) return this.contradiction(event, "code.steps", "the code of each step of the plan", "none");
    const decided = { code: steps, lock: member(body.environment, "lock") ?? null, plan: body.pipeline, recipe: body.recipe_digest };
    const pinned = Object.keys(body.pinned ?? {}).length ? { pinned: body.pinned } : {};
    this.agree(event, "plan", canonicalDigest({ ...decided, ...pinned }), body.plan);
    const phase = member(body.recipe, "phase") ?? null;
    const link = body.continues ?? null;
    if ((phase === null) !== (link === null)) {
      this.contradiction(event, "continues", phase ? "the run that it continues, for its recipe is a phase's" : "none: it is no phase", link ? "one" : "none");
    } else if (link) {
      this.agree(event, "continues.step", phase.first_step, link.step);
      this.agree(event, "continues.state", phase.state ?? undefined, link.state);
      this.checkContinued(event, link);
    }
    const cited = body.experiment ?? "";
    const before = this.log.events.filter((one) => one.type === "experiment.registered/v1" && one.index < event.index && one.body.registration === cited);
    const known = before.map((one) => registers(one.body, body));
    if (cited && !known.some(Boolean)) this.contradiction(event, "experiment", "a registration before it that has its recipe and seed", cited);
    else if (cited && !known.includes("recipe") && !phase) {
      this.open.push(`event ${event.index}: a registration of which only the seed is compared here, for data that a step of it made stand in the recipe`);
    }
    return undefined;
  }

  /** Events of the registration that the run cites, from before it. */
  registrations() {
    const { body, index } = this.started;
    const cited = body.experiment ?? "";
    return this.log.events.filter((one) => one.type === "experiment.registered/v1" && one.index < index && cited && one.body.registration === cited);
  }

  /** What a phase begins with was saved before it, by the run that it names. */
  checkContinued(event, link) {
    const saved = this.log.events.some(
      ({ type, index, body }) => type === "checkpoint.saved/v1" && index < event.index && body.step === link.step && body.state === link.state && body.artifact === link.checkpoint,
    );
    const known = this.log.events.some(({ type, stream, index }) => type === "run.started/v1" && stream === `run/${link.run}` && index < event.index);
    if (!saved || !known) this.contradiction(event, "continues", `run ${link.run} and a checkpoint.saved/v1 of that state before it`, "none");
  }

  pinned(step) {
    const view = this.steps.get(step);
    return ["corpus", "tokenizer", "tokens"].includes(step) && Boolean(view?.cached && (Object.hasOwn(this.started.body.pinned ?? {}, step) || this.started.body.pipeline.includes(".pinned-")));
  }

  /** The inputs of a step that stands, with the digests of the outputs that they name. */
  inputsOf({ body }) {
    const view = this.steps.get(body.step);
    if (view && view.identity !== body.identity) return undefined;
    return Object.fromEntries(Object.entries(body.inputs).map(([name, found]) => [name, this.steps.get(name)?.output.digest ?? found]));
  }

  checkStepStarted(event, stretch) {
    const { body } = event;
    const started = stretch.started.body;
    const lock = body.lock || member(started.environment, "lock") || "";
    this.agree(event, "config_digest", canonicalDigest(body.config), body.config_digest);
    const identity = canonicalDigest({ code: body.code, config: body.config, inputs: body.inputs, lock, step: body.step });
    this.agree(event, "identity", identity, body.identity);
    if (body.lock) this.agree(event, "lock", member(started.environment, "lock"), body.lock);
    this.agree(event, "code", member(member(started.code, "steps"), body.step), body.code);
    this.agree(event, "inputs", this.inputsOf(event), body.inputs);
    const view = this.steps.get(body.step);
    const counts = STEPS.includes(body.step) && (!view || view.identity === body.identity) && !this.pinned(body.step) && !this.isLoop;
    if (!counts) return;
    this.agree(event, "inputs", INPUTS[body.step], Object.keys(body.inputs).sort());
    for (const name of CONFIGURED[body.step]) {
      if (!Object.hasOwn(body.config, name)) this.contradiction(event, `config.${name}`, "that of the recipe", "none");
    }
    for (const [name, value] of Object.entries(body.config)) {
      const own = member(this.recipe, name);
      if (own === undefined || (body.step === "corpus" && name === "tokenizer")) continue;
      if (name === "seed") this.agree(event, "config.seed", String(own), value);
      else if (body.step === "evaluate" && name === "evaluation" && isObject(value)) {
        for (const [one, inner] of Object.entries(value)) this.agree(event, `config.evaluation.${visible(one)}`, member(own, one) ?? null, inner);
      } else this.agree(event, `config.${visible(name)}`, own, value);
    }
  }

  checkStepCompleted(event, begun) {
    const { body } = event;
    this.agree(event, "inputs", this.inputsOf(event), body.inputs);
    for (const [name, value] of Object.entries(body.metrics)) {
      if (Number.isNaN(hexFloat(value))) this.contradiction(event, `metrics.${visible(name)}`, "a number, which agrees with itself", value);
    }
    if (this.isLoop) return;
    const start = begun.get(body.identity);
    if (!start) return this.contradiction(event, "identity", "that of a step that began", body.identity);
    this.agree(event, "step", start.body.step, body.step);
    this.agree(event, "inputs", start.body.inputs, body.inputs);
    if (Object.hasOwn(KINDS, body.step)) this.agree(event, "output.kind", KINDS[body.step], body.output.kind);
    if (!BY_CONTENT.includes(body.output.kind)) this.agree(event, "output.artifact", body.output.digest, body.output.artifact);
    if (body.step === "train" && this.steps.get("train")?.identity === body.identity) this.checkTrainMetrics(event);
    return undefined;
  }

  checkTrainMetrics(event) {
    const losses = this.segments.flatMap(({ body }) => body.losses.map(hexFloat));
    const trainer = member(this.recipe, "trainer");
    if (losses.length !== member(trainer, "num_steps")) return; // the chain of segments says so
    const tokens = trainer.num_steps * trainer.batch_size * member(member(this.recipe, "model"), "seq_len");
    const expected = { loss_first: losses[0], loss_last: losses.at(-1), tokens };
    const found = Object.fromEntries(Object.entries(event.body.metrics).map(([name, value]) => [name, hexFloat(value)]));
    for (const name of new Set([...Object.keys(expected), ...Object.keys(found)])) {
      if (!Object.is(expected[name], found[name])) this.contradiction(event, `metrics.${visible(name)}`, `${expected[name]}`, `${found[name]}`);
    }
  }

  checkTrainStarted(event) {
    const { body } = event;
    const arithmetic = member(this.recipe, "arithmetic");
    this.agree(event, "num_steps", this.last, body.num_steps);
    this.checkState(event, "first_step", body.first_step);
    for (const name of ["xla_flags", "threads", "profile"]) this.agree(event, `program.${name}`, member(arithmetic, name), member(body.program, name));
    this.agree(event, "seeds.root", String(member(this.recipe, "seed")), member(body.seeds, "root"));
    this.agree(event, "seeds.generator", member(arithmetic, "generator"), member(body.seeds, "generator"));
  }

  /** A state that an event names is the one that the segments have before that train step. */
  checkState(event, field, step) {
    if (step < this.first || step > (this.last ?? Infinity)) {
      this.contradiction(event, field, `a train step from ${this.first} to ${this.last}`, `train step ${step}`);
    } else if (this.states.has(step)) {
      this.agree(event, "state", this.states.get(step), event.body.state);
    } else if (this.segments.length && step <= this.segments.at(-1).body.end) {
      this.aside.push(`event ${event.index}: ${event.type} of a state before train step ${step}, with which no segment begins or ends`);
    }
  }

  checkWithdrawn(event, stretch) {
    const request = this.log.events[event.body.request];
    const asked = request?.type === "stop.requested/v1" && request.index < event.index && request.body.run === stretch.run;
    if (!asked) return this.contradiction(event, "request", `a stop.requested/v1 of run ${stretch.run} before it`, `event ${event.body.request}`);
    const about = stretch.events.some(
      (one) => one.type === "train.segment/v1" && one.index < request.index && one.body.start >= event.body.step &&
        canonicalDigest(one.body) === request.body.segment,
    );
    if (!about) this.contradiction(event, "request", `one about a segment from train step ${event.body.step} on, recorded before it`, `event ${request.index}`);
    this.agree(event, "step", request.body.step, event.body.step);
    return undefined;
  }

  checkSeries(event) {
    for (const { key, steps, values } of event.body.series) {
      const inside = steps.every((step) => step >= this.first && step < (this.last ?? Infinity));
      if (steps.length !== values.length || (!this.isLoop && !inside)) {
        this.contradiction(event, `series ${visible(key)}`, "a value for each of the run's train steps that it names", "another number");
      }
      if (this.isLoop) continue;
      const lacking = MEASURED_OF.find(([names, has]) => names.includes(key) && !has(this.recipe));
      if (lacking) this.contradiction(event, `series ${key}`, `no such measurement, for the recipe has no ${lacking[2]}`, "one");
      const ofTraining = OF_TRAINING.includes(key) && event.body.step === "train";
      if (!ofTraining && !key.startsWith("system/")) {
        this.open.push(`event ${event.index}: a measurement ${visible(key)}, which nothing here derives`);
      }
    }
  }

  /** The chain: each segment begins where, and in the state in which, the one before it ended; the last ends in the output. */
  checkTraining() {
    const view = this.steps.get("train");
    let at = this.first;
    let state = member(member(this.recipe, "phase"), "state") ?? undefined;
    for (const event of this.segments) {
      const { body } = event;
      const length = body.end - body.start;
      const counts = [body.losses.length, body.batches.length, body.fingerprints.length];
      if (length < 1 || counts.some((count) => count !== length)) {
        this.contradiction(event, "losses, batches, fingerprints", `${length} of each`, counts.join(", "));
      }
      if (body.start !== at) this.contradiction(event, "start", `train step ${at}`, `train step ${body.start}`);
      if (state !== undefined && body.start_state !== state) this.contradiction(event, "start_state", state, body.start_state);
      [at, state] = [body.end, body.end_state];
    }
    if (!view) return;
    const end = this.log.events[view.completedAt];
    if (at !== this.last) this.contradiction(end, "train steps", `${this.first} to ${this.last} in segments`, `up to ${at}`);
    if (state !== undefined) this.agree(end, "output.digest", state, view.output.digest);
  }

  checkLoop() {
    let at = this.loop[0]?.body.start;
    for (const event of this.loop) {
      const { body } = event;
      const length = body.end - body.start;
      if (length < 1 || body.losses.length !== length || body.batches.length !== length) this.contradiction(event, "losses, batches", `${length} of each`, "others");
      if (body.start !== at) this.contradiction(event, "start", `train step ${at}`, `train step ${body.start}`);
      at = body.end;
    }
  }

  /** What was recorded twice is the same both times. */
  checkTwice() {
    const rows = new Map();
    const traces = new Map();
    for (const { body } of this.segments) {
      body.losses.forEach((loss, n) => rows.set(body.start + n, [loss, body.batches[n], body.fingerprints[n]].join()));
      traces.set(`${body.start} ${body.end}`, body.trace);
    }
    const measured = new Map();
    const ends = new Map();
    for (const { events, gone } of this.stretches) {
      for (const event of events) {
        const { body } = event;
        if (event.type === "step.completed/v1") {
          const key = `${body.step} ${body.identity}`;
          const before = ends.get(key) ?? body;
          ends.set(key, before);
          for (const name of ["digest", "size"]) this.agree(event, `output.${name}`, before.output[name], body.output[name]);
          this.agree(event, "metrics", before.metrics, body.metrics);
          this.agree(event, "tables", before.tables ?? {}, body.tables ?? {});
          const view = this.steps.get(body.step);
          if (view && event.index !== view.completedAt && body.output.artifact !== view.output.artifact) {
            this.aside.push(`event ${event.index}: the output of step ${visible(body.step)} as ${body.output.artifact}, which another took the place of`);
          }
        }
        if (gone.has(event.index)) {
          if (event.type !== "step.started/v1") this.aside.push(`event ${event.index}: ${event.type}, which another took the place of`);
          continue;
        }
        if (event.type === "train.segment/v1") this.checkSegmentTwice(event, rows, traces);
        if (event.type === "metrics.recorded/v1") this.checkMeasuredTwice(event, measured);
      }
    }
  }

  checkSegmentTwice(event, rows, traces) {
    const { body } = event;
    for (let n = 0; n < body.losses.length; n++) {
      const known = rows.get(body.start + n);
      const row = [body.losses[n], body.batches[n], body.fingerprints[n]].join();
      if (known === undefined ? this.steps.has("train") : known !== row) {
        this.contradiction(event, `train step ${body.start + n}`, known === undefined ? "no such train step" : "another record of it", "losses, tokens or state that differ");
        break;
      }
    }
    for (const [name, step] of [["start_state", body.start], ["end_state", body.end]]) this.agree(event, name, this.states.get(step), body[name]);
    this.agree(event, "trace", traces.get(`${body.start} ${body.end}`), body.trace);
  }

  checkMeasuredTwice(event, measured) {
    for (const { key, steps, values } of event.body.series) {
      if (!OF_TRAINING.includes(key)) continue;
      steps.forEach((step, n) => {
        const [value, first] = [hexFloat(values[n]), measured.get(`${key} ${step}`) ?? values[n]];
        const apart = Math.abs(value - hexFloat(first)) <= (ROUNDED[key] ?? 0) ? 0 : 1;
        if (key === GRAD_NORM && !Object.is(Math.fround(value), value)) this.contradiction(event, `series ${key}`, `a float32 at train step ${step}`, values[n]);
        else if (first !== values[n] && apart) this.contradiction(event, `series ${key}`, `${first} at train step ${step}`, values[n]);
        measured.set(`${key} ${step}`, first);
      });
    }
  }

  /** Events that speak in the run's name in streams that are not its own. */
  checkOutside() {
    for (const event of this.log.events) {
      const evaluation = event.stream === `evaluation/${this.run}`;
      if ((event.body.run !== this.run && !evaluation) || event.stream === `run/${this.run}` || VERDICTS.includes(event.type)) continue;
      if (BESIDE.includes(event.type)) this.aside.push(`event ${event.index}: ${event.type} by ${visible(event.actor)}`);
      else if (!evaluation || !event.type.startsWith("evaluation.") || event.body.run !== this.run) {
        this.open.push(`event ${event.index}: an event of type ${event.type} in the stream ${event.stream}, in the name of this run, which nothing here derives`);
      }
    }
  }
}

/** What a registration has of a run: its recipe as an arm, with its seed; of a phase, and where a step of the experiment made data, only the seed is looked at; or nothing. */
function registers({ seeds, arms }, { recipe, pipeline }) {
  if (!Array.isArray(seeds) || !seeds.includes(String(recipe.seed)) || !isObject(arms)) return "";
  if (member(recipe, "phase") || madeData(recipe)) return "seed";
  const arm = armDigest(recipe);
  const keys = pipeline.split(".").slice(1).map((label) => canonicalDigest([arm, label]));
  return [...keys, arm].some((key) => Object.values(arms).includes(key)) ? "recipe" : "";
}

/** Whether a step of an experiment made data of a recipe. */
function madeData(recipe) {
  return ["dataset", "tokens"].some((name) => member(member(member(recipe, name), "artifact"), "maker"));
}

/** What runs of one arm have in common: the digest of their recipe without its seed. */
function armDigest(recipe) {
  const value = { ...recipe, seed: null };
  delete value.recipe_version;
  return canonicalDigest({ recipe_version: recipe.recipe_version ?? 1, type: "recipe", value });
}

function tellsAfter({ type, body }, step) {
  if (type === "train.segment/v1") return body.end > step;
  if (type === "checkpoint.saved/v1") return body.step > step;
  return type === "train.started/v1" && body.first_step > step;
}

function shown(value) {
  const words = typeof value === "string" ? value : value === undefined ? "nothing" : canonical(value);
  return visible(words.length > 120 ? `${words.slice(0, 117)}...` : words);
}

/** The first place in which two values differ. */
function difference(expected, found) {
  if (isObject(expected) && isObject(found)) {
    for (const key of [...new Set([...Object.keys(expected), ...Object.keys(found)])].sort()) {
      const [one, two] = [member(expected, key), member(found, key)];
      if (one === undefined || two === undefined || !equalValues(one, two)) return [`${key}=${shown(one)}`, `${key}=${shown(two)}`];
    }
  }
  return [expected, found];
}

/** Text of others, with everything that is not seen in escapes, so that no name draws a verdict. */
function visible(words) {
  return words.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (letter) => `\\u${letter.codePointAt(0).toString(16).padStart(4, "0")}`);
}

/** A number as Python writes it where it has to be read back: the table of losses is made of such. */
function pythonNumber(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf";
  const [digits, exponent] = value.toExponential().split("e");
  const power = Number(exponent);
  if (power < -4 || power >= 16) return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  const plain = value.toString().includes("e") ? value.toFixed(Math.max(0, digits.replace(/[-.]/g, "").length - 1 - power)) : value.toString();
  return `${Object.is(value, -0) ? "-0" : plain}${plain.includes(".") ? "" : ".0"}`;
}

/** A number as people write it. */
function number(value) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toFixed(0);
  return String(Number(value.toPrecision(6)));
}

function several(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** What a run amounts to, sentence by sentence, and what each would rest on; the words are those of `marin verify`. */
function claimsOf(record) {
  const { run, started, steps } = record;
  const claims = [];
  const say = (by, text, event) => claims.push({ by, claim: visible(text), event });
  const count = record.stretches.reduce((sum, { events }) => sum + events.length, 0);
  say("signature", `${count} events say what run ${run} is, and agree with one another`);
  if (!record.isLoop) say("signature", `its recipe is ${started.body.recipe_digest}`, started.index);
  for (const [name, view] of steps) {
    const where = view.origin === run ? "" : `, taken over from run ${view.origin}`;
    say("signature", `step ${name} has the identity ${view.identity}, which its configuration, its inputs and the code and lock that it names give${where}`, view.index);
  }
  if (record.completed) say("signature", "it is complete: every step of its plan has its output", record.completed.index);
  for (const [name, { output, index }] of steps) say("hash", `the stored bytes of ${name} are ${output.digest} (${output.kind}, ${output.size} bytes)`, index);
  const gone = record.letGo();
  const kept = record.checkpoints.filter(({ body }) => !gone.has(body.artifact));
  if (kept.length) say("hash", `${kept.length} training checkpoints hold the recorded states`, kept[0].index);
  const metrics = (view) => {
    const told = Object.entries(view.metrics).map(([name, value]) => `${name}=${number(hexFloat(value))}`).join(", ");
    return told ? ` (${told})` : "";
  };
  const sources = { corpus: "the raw data", tokenizer: "that corpus", tokens: "that corpus and tokenizer" };
  for (const [name, source] of Object.entries(sources)) {
    const view = steps.get(name);
    if (view) say("execution", `${name} ${view.output.digest}${metrics(view)} follows from ${source}`, view.index);
  }
  for (const { body, index } of record.segments) {
    const losses = body.losses.length ? `${hexFloat(body.losses[0]).toFixed(4)} to ${hexFloat(body.losses.at(-1)).toFixed(4)}` : "none";
    say("execution", `train steps ${body.start} to ${body.end - 1} have these tokens, losses (${losses}) and states, and end in ${body.end_state}`, index);
  }
  for (const [name, what] of [["evaluate", "measured on the last state"], ["export", "the last state in a public format"]]) {
    const view = steps.get(name);
    if (view) say("execution", `${name} ${view.output.digest}${metrics(view)} is ${what}`, view.index);
  }
  for (const event of record.evaluations) say("execution", `${event.type} of the state before train step ${event.body.step}`, event.index);
  for (const what of record.open) say("claimed", what);
  const { code, environment } = started.body;
  say("claimed", `made by commit ${member(code, "commit") || "unknown"}${member(code, "dirty") ? ", with changes" : ""}`, started.index);
  say("claimed", `on ${member(member(environment, "processor"), "model") || "an unknown processor"}, ${member(member(environment, "system"), "name") || "an unknown system"}`, started.index);
  const times = record.own.events.filter(({ type }) => type !== "replay.completed/v1").map(({ time }) => time).sort();
  say("claimed", `from ${times[0]} to ${times.at(-1)}, by ${[...new Set(record.own.events.map(({ actor }) => actor))].join(", ")}`);
  const judged = record.own.events.filter(({ type }) => type === "replay.completed/v1");
  if (judged.length) say("claimed", `verified ${judged.length === 1 ? "once" : `${judged.length} times`}, says this log`, judged.at(-1).index);
  for (const what of record.aside) say("claimed", `${what}, and which nobody judges`);
  return claims;
}

// ------------------------------------------------------------------------------------------------------------- 8. programs

// Exact arithmetic (docs/exact.md): a program is a list of operations, and each has one result. A sum, difference, product, quotient or root
// of two float32 in double precision, rounded once by Math.fround, is the one rounding that is asked for.

const LEAST = 2 ** -125;
const NAN_BITS = 0x7fc00000;
const ARRAYS = { float32: Float32Array, int32: Int32Array, uint32: Uint32Array, bool: Uint8Array };
const { fround } = Math;
const word = new DataView(new ArrayBuffer(4));

/** The float32 nearest to a number, and the rule: below 2^-125 there is only one zero. */
function fl(value) {
  const rounded = fround(value);
  return rounded < LEAST && rounded > -LEAST ? 0 : rounded;
}

/** The nearest whole number, ties to even. */
function rint(value) {
  return value < 4503599627370496 && value > -4503599627370496 ? value + 6755399441055744 - 6755399441055744 : value;
}

function bitsOf(value) {
  if (value !== value) return NAN_BITS;
  word.setFloat32(0, value);
  return word.getInt32(0);
}

function floatOf(bits) {
  word.setInt32(0, bits);
  return word.getFloat32(0);
}

function twoTo(n) {
  return floatOf((n + 127) << 23);
}

const add = (a, b) => fl(a + b);
const sub = (a, b) => fl(a - b);
const mul = (a, b) => fl(a * b);
const reciprocal = (a) => fl(1 / a);
const root = (a) => fround(Math.sqrt(a));

/** Horner's rule with coefficients as float32. */
function polynomial(...coefficients) {
  const known = coefficients.map(fround);
  return (x) => {
    let value = known[0];
    for (let n = 1; n < known.length; n++) value = add(mul(value, x), known[n]);
    return value;
  };
}

const LOG2E = fround(1.4426950408889634);
const LN2_HIGH = fround(0.693359375);
const LN2_LOW = fround(-2.1219444e-4);
const EXP_P = [0.00019900444, 0.0013934545, 0.0083332974, 0.041666456, 0.16666667, 0.5];
const expP = polynomial(...EXP_P);
const logP = polynomial(0.07149754, -0.11571201, 0.116615117, -0.124110505, 0.14249936, -0.1666848, 0.20000708, -0.2499999, 0.3333333);
const tanhP = polynomial(0.0022958347, -0.008346973, 0.021769958, -0.053959407, 0.13333304, -0.33333334);
const sineP = polynomial(2.7237736e-6, -0.00019839991, 0.008333332, -0.16666667);
const cosineP = polynomial(2.4537409e-5, -0.0013888252, 0.041666664);
const erfP = polynomial(-9.67359e-6, 0.00011268254, -0.00084843964, 0.0052210535, -0.026865438, 0.11283783, -0.37612638, 1.1283792);
const erfQ = polynomial(0.017141648, 0.05142973, -0.3544716, 0.4496223, -0.03505697, 0.32156438, 0.26591065, 0.2840762, -0.000105416067);
const inverseP = polynomial(-8.739831e-9, 2.3285844e-8, 4.6542874e-7, -3.4633563e-6, -4.9597434e-6, 0.00021834692, -0.0012527484, -0.0041773897, 0.2466403, 1.5014094);
const inverseQ = polynomial(-0.00012693107, 4.477832e-5, 0.0012554284, -0.0036147824, 0.0057794126, -0.007639483, 0.009433081, 1.0016752, 2.832977);
const HALF_PI = [1.5703125, 0.0004837512969970703, 7.549533620476723e-8, 2.5632829192545614e-12].map(fround);
const [SQRT_HALF, LOG1P_LOW, LOG1P_HIGH, TWO_BY_PI] = [0.70710678, -0.29289322, 0.41421354, 0.6366197723675814].map(fround);

function exp(x) {
  let c = x > -87.5 ? x : -87.5;
  c = c < 89 ? c : 89;
  const k = fl(rint(mul(c, LOG2E)));
  const r = sub(sub(c, mul(k, LN2_HIGH)), mul(k, LN2_LOW));
  const y = add(add(mul(mul(r, r), expP(r)), r), 1);
  const h = k >> 1;
  return x === x ? mul(mul(y, twoTo(h)), twoTo(k - h)) : x;
}

function near(f, e) {
  const s = mul(f, f);
  const y = add(mul(mul(logP(f), f), s), mul(e, LN2_LOW));
  return add(add(sub(y, mul(s, 0.5)), f), mul(e, LN2_HIGH));
}

function log(x) {
  const n = bitsOf(x);
  const m = floatOf((n & 0x7fffff) | 0x3f000000);
  const small = m < SQRT_HALF;
  const e = ((n >> 23) & 255) - 126 - (small ? 1 : 0);
  const y = near(sub(small ? add(m, m) : m, 1), e);
  if (x > 0) return x === Infinity ? x : y;
  return x === 0 ? -Infinity : NaN;
}

const div = (a, b) => mul(a, reciprocal(b));
const log1p = (x) => (x > LOG1P_LOW && x < LOG1P_HIGH ? near(x, 0) : log(add(1, x)));
const logistic = (x) => reciprocal(add(1, exp(sub(0, x))));

function tanh(x) {
  const a = Math.abs(x);
  if (a < 0.625) {
    const s = mul(x, x);
    return add(mul(mul(tanhP(s), s), x), x);
  }
  const e = exp(mul(-2, a));
  const g = div(sub(1, e), add(1, e));
  return x < 0 ? sub(0, g) : g;
}

function turned(x, quarter) {
  const k = fl(rint(mul(x, TWO_BY_PI)));
  let r = x;
  for (const part of HALF_PI) r = sub(r, mul(k, part));
  const q = ((Math.abs(k) < 16777216 ? k : 0) + quarter) & 3;
  const s = mul(r, r);
  const y = q & 1 ? add(sub(mul(mul(cosineP(s), s), s), mul(s, 0.5)), 1) : add(mul(mul(sineP(s), s), r), r);
  return q >= 2 ? sub(0, y) : y;
}

function erf(x) {
  const a = Math.abs(x);
  const s = mul(x, x);
  if (a < 1) return mul(x, erfP(s));
  const t = reciprocal(add(1, mul(a, 0.5)));
  const g = a < 4 ? sub(1, mul(exp(sub(0, s)), erfQ(t))) : 1;
  return x === x ? (x < 0 ? sub(0, g) : g) : x;
}

function inverseErf(x) {
  const w = sub(0, log(mul(sub(1, x), add(1, x))));
  if (Math.abs(x) === 1) return x < 0 ? -Infinity : Infinity;
  return mul(x, w < 5 ? inverseP(sub(w, 2.5)) : inverseQ(sub(root(w), 3)));
}

function nextAfter(x, y) {
  if (x !== x || y !== y) return NaN;
  if (x === y) return add(y, 0);
  if (x === 0) return y > 0 ? LEAST : -LEAST;
  return add(floatOf(bitsOf(x) + ((x > 0) === (y > x) ? 1 : -1)), 0);
}

const FLOATS = {
  add, sub, mul, div, log, log1p, logistic, tanh, erf, exp,
  sqrt: root, rsqrt: (x) => reciprocal(root(x)), erf_inv: inverseErf, sin: (x) => turned(x, 0), cos: (x) => turned(x, 1),
  pow: (a, b) => (b === 0 ? 1 : exp(mul(b, log(a)))), nextafter: nextAfter,
  round: (x) => fl(rint(x)), floor: (x) => fl(Math.floor(x)), ceil: (x) => fl(Math.ceil(x)),
  neg: (x) => fl(-x), abs: Math.abs, sign: (x) => fl(Math.sign(x)), max: Math.max, min: Math.min,
};
const same32 = (signed) => (value) => (signed ? value | 0 : value >>> 0);
const WHOLES = {
  add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => Math.imul(a, b), neg: (a) => -a, abs: Math.abs, sign: Math.sign, max: Math.max, min: Math.min,
  rem: (a, b) => (b === 0 ? a : a % b),
  and: (a, b) => a & b, or: (a, b) => a | b, xor: (a, b) => a ^ b, not: (a) => ~a,
  shift_left: (a, n) => (n >>> 0 > 31 ? 0 : a << n),
  shift_right_logical: (a, n) => (n >>> 0 > 31 ? 0 : a >>> n),
  shift_right_arithmetic: (a, n) => (a | 0) >> Math.min(n >>> 0, 31),
};
const COMPARED = {
  eq: (a, b) => a === b, ne: (a, b) => a !== b, lt: (a, b) => a < b, le: (a, b) => a <= b, gt: (a, b) => a > b, ge: (a, b) => a >= b, is_finite: Number.isFinite,
};

// WebAssembly, where there is any: the same numbers, four or eight at a time. KERNELS is in its text form, of which `assembled` makes
// bytes. Everything that it computes is computed without it too, by the functions beside it, and both have to give the same bits.

const FEW = 32; // numbers for which no kernel is called
const BLOCK = 16384; // bytes that are computed at a time: operands at 0 and BLOCK, the result at 2 * BLOCK
const SCALARS = {
  loop: 0x03, br_if: 0x0d, select: 0x1b, "local.get": 0x20, "local.set": 0x21, "local.tee": 0x22, "f32.store": 0x38, "i32.const": 0x41, "f32.const": 0x43,
  "f64.const": 0x44, "i32.lt_u": 0x49, "i32.add": 0x6a, "f64.add": 0xa0, "f32.demote_f64": 0xb6,
};
const VECTORS = {
  "v128.load": 0x00, "v128.store": 0x0b, "v128.const": 0x0c, "i8x16.shuffle": 0x0d, "i32x4.splat": 0x11, "f32x4.splat": 0x13, "f64x2.splat": 0x14,
  "i32x4.extract_lane": 0x1b, "f64x2.extract_lane": 0x21, "f32x4.eq": 0x41, "f32x4.lt": 0x43, "v128.and": 0x4e, "v128.andnot": 0x4f, "v128.bitselect": 0x52,
  "f64x2.promote_low_f32x4": 0x5f, "f32x4.nearest": 0x6a, "i16x8.narrow_i32x4_s": 0x85, "f64x2.nearest": 0x94, "i32x4.shl": 0xab, "i32x4.shr_s": 0xac,
  "i32x4.add": 0xae, "i32x4.sub": 0xb1, "i32x4.max_u": 0xb9, "i32x4.dot_i16x8_s": 0xba, "f32x4.abs": 0xe0, "f32x4.neg": 0xe1, "f32x4.sqrt": 0xe3,
  "f32x4.add": 0xe4, "f32x4.sub": 0xe5, "f32x4.mul": 0xe6, "f32x4.div": 0xe7, "f64x2.add": 0xf0, "f64x2.mul": 0xf2, "i32x4.trunc_sat_f32x4_s": 0xf8,
  "f64x2.convert_low_i32x4_s": 0xfe, "f64x2.convert_low_i32x4_u": 0xff,
};
const TYPES = { i32: 0x7f, f32: 0x7d, f64: 0x7c, v128: 0x7b };

const unsigned = (value) => (value < 128 ? [value] : [(value & 127) | 128, ...unsigned(value >>> 7)]);
const signed = (value) => (value >= -64 && value < 64 ? [value & 127] : [(value & 127) | 128, ...signed(value >> 7)]);
const counted = (items) => [...unsigned(items.length), ...items.flat()];

/** A module of functions with one memory, all exported by their names: in one pass over the words of the text. */
function assembled(text) {
  const words = text.match(/[()]|[^\s()]+/g);
  let at = 0;
  const section = (number, items) => [number, ...counted(counted(items))];
  const functions = [];
  while (at < words.length) {
    const [name, names, types, code] = [words[at + 2], [], { param: [], result: [], local: [] }, []];
    for (at += 3; words[at + 1] in types; at += 2) {
      const kind = words[at + 1];
      if (kind !== "result") names.push(words[++at + 1]);
      types[kind].push(TYPES[words[(at += 2)]]);
    }
    /** An instruction after its operands; `labels`: of the loops around it, the inner first. */
    const instruction = (labels) => {
      const own = words[++at];
      const said = [];
      while (words[++at] !== "(" && words[at] !== ")") said.push(words[at]);
      const loop = own === "loop";
      const around = loop ? [said[0], ...labels] : labels;
      if (loop) code.push(SCALARS.loop, 0x40);
      for (; words[at] === "("; at++) instruction(around);
      if (loop) code.push(0x0b);
      else if (own in SCALARS) code.push(SCALARS[own], ...immediate(own, said, names, labels));
      else code.push(0xfd, ...unsigned(VECTORS[own]), ...immediate(own, said, names, labels));
    };
    for (; words[at] === "("; at++) instruction([]);
    at += 1;
    functions.push({
      name: counted([...encoder.encode(name.slice(1))]),
      type: [0x60, ...counted(types.param), ...counted(types.result)],
      code: counted([...counted(types.local.map((type) => [1, type])), ...code, 0x0b]),
    });
  }
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, functions.map(({ type }) => type)),
    ...section(3, functions.map((_, n) => unsigned(n))),
    ...section(5, [[0, 1]]),
    ...section(7, [[...counted([...encoder.encode("memory")]), 2, 0], ...functions.map(({ name }, n) => [...name, 0, ...unsigned(n)])]),
    ...section(10, functions.map(({ code }) => code)),
  ]);
}

/** What follows the code of an instruction. */
function immediate(name, said, names, labels) {
  const number = (kind) => [...new Uint8Array(kind.of(Number(said[0])).buffer)];
  switch (name) {
    case "br_if": return unsigned(labels.indexOf(said[0]));
    case "local.get": case "local.set": case "local.tee": return unsigned(names.indexOf(said[0]));
    case "i32.const": return signed(Number(said[0]));
    case "f32.const": return number(Float32Array);
    case "f64.const": return number(Float64Array);
    case "v128.const": return said.slice(1).flatMap((one) => [...new Uint8Array(Int32Array.of(Number(one)).buffer)]);
    case "v128.load": case "v128.store": case "f32.store": return [0, ...unsigned(Number(said[0]?.replace("offset=", "") ?? 0))];
    default: return said.map(Number); // lanes
  }
}

const get = (name) => `(local.get $${name})`;
const set = (name, text) => `(local.set $${name} ${text})`;
const locals = (type, names) => names.replace(/\w+/g, (name) => `(local $${name} ${type})`);
const params = (type, names) => names.replace(/\w+/g, (name) => `(param $${name} ${type})`);
const from = (name, offset = 0) => `(v128.load offset=${offset} ${get(name)})`;
const onward = (loop, name, step, end) => `(br_if $${loop} (i32.lt_u (local.tee $${name} (i32.add ${get(name)} ${step})) ${get(end)}))`;
const bytes = (count) => `(i32.const ${count})`;
const upper = (text) => `(i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 (local.tee $v ${text}) ${get("v")})`;
const whole4 = (value) => `(i32x4.splat (i32.const ${value}))`;
const float4 = (value) => `(f32x4.splat (f32.const ${value}))`;

/** Four float32 at a time, each with the rule for small numbers. */
const fl4 = (text) => `(v128.andnot (local.tee $r ${text}) (f32x4.lt (f32x4.abs ${get("r")}) ${get("least")}))`;
const [add4, sub4, mul4, div4] = ["add", "sub", "mul", "div"].map((name) => (a, b) => fl4(`(f32x4.${name} ${a} ${b})`));
const polynomial4 = (x, [first, ...more]) => more.reduce((value, c) => add4(mul4(value, x), float4(c)), float4(first));
const two4 = (n) => `(i32x4.shl (i32x4.add ${n} ${whole4(127)}) (i32.const 23))`;
const reciprocal4 = (text) => div4(float4(1), text);
const nearest8 = [0, 16].map((offset) => `(i32x4.trunc_sat_f32x4_s (f32x4.nearest (f32x4.mul ${from("at", offset)} ${get("s")})))`).join(" ");

/** What sets $y to exp of $x, in the order of `exp`. */
const EXP4 = [
  set("c", `(v128.bitselect ${get("x")} ${float4(-87.5)} (f32x4.lt ${float4(-87.5)} ${get("x")}))`),
  set("c", `(v128.bitselect ${get("c")} ${float4(89)} (f32x4.lt ${get("c")} ${float4(89)}))`),
  set("k", fl4(`(f32x4.nearest ${mul4(get("c"), float4(LOG2E))})`)),
  set("c", sub4(sub4(get("c"), mul4(get("k"), float4(LN2_HIGH))), mul4(get("k"), float4(LN2_LOW)))),
  set("y", add4(add4(mul4(mul4(get("c"), get("c")), polynomial4(get("c"), EXP_P)), get("c")), float4(1))),
  set("k", `(i32x4.trunc_sat_f32x4_s ${get("k")})`),
  set("c", `(i32x4.shr_s ${get("k")} (i32.const 1))`),
  set("y", mul4(mul4(get("y"), two4(get("c"))), two4(`(i32x4.sub ${get("k")} ${get("c")})`))),
  set("y", `(v128.bitselect ${get("y")} ${get("x")} (f32x4.eq ${get("x")} ${get("x")}))`),
].join("\n");

/** An operation on a block. */
const block4 = (name, text, before = "") => `(func $${name} ${params("i32", "end")} ${locals("i32", "at")} ${locals("v128", "least r x c k y")}
  ${set("least", float4(LEAST))}
  (loop $next ${set("x", from("at"))} ${before} (v128.store offset=${2 * BLOCK} ${get("at")} ${text}) ${onward("next", "at", bytes(16), "end")}))`;
const [X4, Y4] = [get("x"), from("at", BLOCK)];

// A product of two factors of 15 bits and another fit into 31 bits: s. Sums of many s are kept twice, as the sum of s >> 16 (h), and of s
// modulo 2^32 (l): h 2^16 and l - h 2^16, which 65,536 of them leave below 2^32, are the sum.
const PAIRS = ["00", "01", "10", "11"];
const exactSum = (n) => {
  const part = (text, kind) => `(f64x2.add (f64x2.convert_low_i32x4_${kind} ${text}) (f64x2.convert_low_i32x4_${kind} ${upper(text)}))`;
  const high = `(f64x2.mul ${part(get(`h${n}`), "s")} (f64x2.splat (f64.const 65536)))`;
  return `${set(`l${n}`, `(i32x4.sub ${get(`l${n}`)} (i32x4.shl ${get(`h${n}`)} (i32.const 16)))`)}
    ${set(`t${n}`, `(f64x2.add ${get(`t${n}`)} (f64x2.add ${high} ${part(get(`l${n}`), "u")}))`)}`;
};
const stored = (n) => `(f32.store offset=${4 * Number(n[1])} ${get(`out${n[0]}`)}
    (f32.demote_f64 (f64.add (f64x2.extract_lane 0 ${get(`t${n}`)}) (f64x2.extract_lane 1 ${get(`t${n}`)}))))`;
const ZERO = "(v128.const i32x4 0 0 0 0)";

const KERNELS = `
${["add", "sub", "mul"].map((name) => block4(name, fl4(`(f32x4.${name} ${X4} ${Y4})`))).join("\n")}
${block4("div", mul4(X4, reciprocal4(Y4)))}
${block4("sqrt", `(f32x4.sqrt ${X4})`)}
${block4("neg", fl4(`(f32x4.neg ${X4})`))}
${block4("exp", get("y"), EXP4)}
${block4("logistic", reciprocal4(add4(float4(1), get("y"))), set("x", sub4(float4(0), X4)) + EXP4)}

(func $largest ${params("i32", "at end")} (result i32) ${locals("v128", "v most")}
  (loop $next
    ${set("most", `(i32x4.max_u ${get("most")} (v128.and ${from("at")} ${whole4(0x7fffffff)}))`)}
    ${onward("next", "at", bytes(16), "end")})
  ${set("most", `(i32x4.max_u ${get("most")} ${upper(get("most"))})`)}
  ${set("most", `(i32x4.max_u ${get("most")} (i8x16.shuffle 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 ${get("most")} ${get("most")}))`)}
  (i32x4.extract_lane 0 ${get("most")}))

(func $sum ${params("i32", "at end")} ${params("f64", "scale")} (result f64) ${locals("v128", "v s t")}
  ${set("s", `(f64x2.splat ${get("scale")})`)}
  (loop $next
    ${[from("at"), upper(from("at"))].map((text) => set("t", `(f64x2.add ${get("t")} (f64x2.nearest (f64x2.mul (f64x2.promote_low_f32x4 ${text}) ${get("s")})))`)).join("\n")}
    ${onward("next", "at", bytes(16), "end")})
  (f64.add (f64x2.extract_lane 0 ${get("t")}) (f64x2.extract_lane 1 ${get("t")})))

(func $factors ${params("i32", "at end to")} ${params("f32", "scale")} ${locals("v128", "s")}
  ${set("s", `(f32x4.splat ${get("scale")})`)}
  (loop $next
    (v128.store ${get("to")} (i16x8.narrow_i32x4_s ${nearest8}))
    ${set("to", `(i32.add ${get("to")} ${bytes(32)})`)}
    ${onward("next", "at", bytes(32), "end")}))

(func $products ${params("i32", "a b size until out0 out1")}
  ${locals("i32", "x part end")} ${locals("v128", "v")} ${locals("v128", PAIRS.map((n) => `h${n} l${n} t${n}`).join(" "))} ${locals("v128", "x0 x1 y0 y1")}
  (loop $rows
    ${PAIRS.map((n) => set(`t${n}`, ZERO)).join(" ")}
    ${set("x", get("a"))}
    ${set("part", `(i32.add ${get("b")} ${get("size")})`)}
    (loop $parts
      ${PAIRS.map((n) => set(`h${n}`, ZERO) + set(`l${n}`, ZERO)).join(" ")}
      ${set("end", `(i32.add ${get("b")} ${bytes(32 * 65536)})`)}
      ${set("end", `(select ${get("end")} ${get("part")} (i32.lt_u ${get("end")} ${get("part")}))`)}
      (loop $next
        ${set("x0", from("x"))} ${set("x1", from("x", 16))} ${set("y0", from("b"))} ${set("y1", from("b", 16))}
        ${PAIRS.map((n) => `${set("v", `(i32x4.dot_i16x8_s ${get(`x${n[0]}`)} ${get(`y${n[1]}`)})`)}
        ${set(`l${n}`, `(i32x4.add ${get(`l${n}`)} ${get("v")})`)} ${set(`h${n}`, `(i32x4.add ${get(`h${n}`)} (i32x4.shr_s ${get("v")} (i32.const 16)))`)}`).join("\n")}
        ${set("x", `(i32.add ${get("x")} ${bytes(32)})`)}
        ${onward("next", "b", bytes(32), "end")})
      ${PAIRS.map(exactSum).join("\n")}
      (br_if $parts (i32.lt_u ${get("b")} ${get("part")})))
    ${PAIRS.map(stored).join("\n")}
    ${set("out0", `(i32.add ${get("out0")} ${bytes(8)})`)}
    ${set("out1", `(i32.add ${get("out1")} ${bytes(8)})`)}
    (br_if $rows (i32.lt_u ${get("b")} ${get("until")}))))

(func $scaled ${params("i32", "at end backs")} ${params("f32", "own")} ${locals("v128", "s r least")}
  ${set("least", float4(LEAST))}
  ${set("s", `(f32x4.splat ${get("own")})`)}
  (loop $next
    (v128.store ${get("at")} ${mul4(mul4(from("at"), get("s")), from("backs"))})
    ${set("backs", `(i32.add ${get("backs")} ${bytes(16)})`)}
    ${onward("next", "at", bytes(16), "end")}))`;

let kernels = null; // until they are loaded, and where there are none
let loading = null;

/** The functions of KERNELS, with their memory. A browser without WebAssembly's vectors, or a page whose policy forbids it, has none. */
function loadKernels() {
  loading ??= typeof WebAssembly === "undefined" ? Promise.resolve() : WebAssembly.instantiate(assembled(KERNELS)).then(
    ({ instance }) => (kernels = instance.exports),
    () => {},
  );
  return loading;
}

function stridesOf(shape) {
  const strides = new Array(shape.length);
  for (let axis = shape.length - 1, step = 1; axis >= 0; step *= shape[axis--]) strides[axis] = step;
  return strides;
}

/** Call `visit(offset)` for each row (all but the last axis) of a strided view, in C order. */
function eachRow(shape, strides, offset, visit) {
  const outer = shape.length - 1;
  const place = new Array(outer).fill(0);
  let at = offset;
  for (;;) {
    visit(at);
    let axis = outer - 1;
    for (; axis >= 0; axis--) {
      at += strides[axis];
      if (++place[axis] < shape[axis]) break;
      at -= strides[axis] * shape[axis];
      place[axis] = 0;
    }
    if (axis < 0) return;
  }
}

/** The same view with as few axes as it can have. */
function merged(shape, strides) {
  const axes = [];
  for (const [axis, length] of shape.entries()) {
    const [before, step] = [axes.at(-1), strides[axis]];
    if (length === 1) continue;
    if (before?.step === step * length) axes.splice(-1, 1, { length: before.length * length, step });
    else axes.push({ length, step });
  }
  if (!axes.length) axes.push({ length: 1, step: 1 });
  return [axes.map(({ length }) => length), axes.map(({ step }) => step)];
}

/** Columns as rows, a few at a time: what a processor has near it is few lines of memory. */
function columns(data, from, step, out, to, rows, length) {
  for (let first = 0; first < rows; first += 8) {
    const last = Math.min(first + 8, rows);
    for (let n = 0; n < length; n++) for (let row = first; row < last; row++) out[to + row * length + n] = data[from + n * step + row];
  }
}

/** Numbers of four bytes as one kind of array: a compiler makes better code for few kinds. */
function words(data) {
  return data.BYTES_PER_ELEMENT === 4 ? new Int32Array(data.buffer, data.byteOffset, data.length) : data;
}

/** A strided view of some data, written out. */
function copied(source, wide, steps, offset = 0, made = new source.constructor(elements(wide))) {
  if (made.length) copyInto(words(made), words(source), wide, steps, offset);
  return made;
}

function copyInto(out, data, wide, steps, offset) {
  const [shape, strides] = merged(wide, steps);
  const [length, step] = [shape.at(-1), strides.at(-1)];
  let to = 0;
  const rows = shape.at(-2);
  if (strides.at(-2) === 1) {
    eachRow(shape.slice(0, -1), strides.slice(0, -1), offset, (from) => {
      columns(data, from, step, out, to, rows, length);
      to += rows * length;
    });
    return;
  }
  eachRow(shape, strides, offset, (from) => {
    if (step === 1) out.set(data.subarray(from, from + length), to);
    else if (step === 0) out.fill(data[from], to, to + length);
    else for (let n = 0; n < length; n++) out[to + n] = data[from + n * step];
    to += length;
  });
}

/** Written into a strided view. */
function placed(made, shape, into, strides, offset) {
  const [source, out] = [words(made), words(into)];
  if (!source.length) return;
  if (!shape.length) {
    out[offset] = source[0];
    return;
  }
  const [length, step] = [shape.at(-1), strides.at(-1)];
  let from = 0;
  eachRow(shape, strides, offset, (to) => {
    for (let n = 0; n < length; n++) out[to + n * step] = source[from + n];
    from += length;
  });
}

function transposed({ data, shape }, order) {
  const strides = stridesOf(shape);
  const view = order.map((axis) => shape[axis]);
  if (order.every((axis, at) => axis === at)) return { data, shape: view };
  return { data: copied(data, view, order.map((axis) => strides[axis])), shape: view };
}

/** Where a place is in data with these strides. */
function offsetAt(strides, place) {
  let total = 0;
  for (let axis = 0; axis < strides.length; axis++) total += strides[axis] * place[axis];
  return total;
}

function clamped(at, last) {
  return Math.min(Math.max(at, 0), last);
}

/** The least e with a magnitude below 2^e, at least `least`. */
function exponentOf(largest, least) {
  return largest === 0 ? least : Math.max(((bitsOf(largest) >> 23) & 255) - 126, least);
}

/** A part of an array where the kernels take their operands, with zeros behind it; how many bytes it has with them. */
function staged(data, from, to) {
  const own = new Float32Array(kernels.memory.buffer);
  own.set(data.subarray(from, to));
  const whole = (to - from + 7) & ~7;
  return 4 * own.fill(0, to - from, whole).subarray(0, whole).length;
}

/** What a part of an array comes to, a block after the other. */
function byBlocks(from, count, visit) {
  for (let at = from; at < from + count; at += BLOCK / 4) visit(at, Math.min(at + BLOCK / 4, from + count));
}

function magnitude(bits) {
  return bits < 0x7f800000 ? floatOf(bits) : NaN;
}

function largestOf(data, from, count) {
  let most = 0;
  if (kernels && count >= FEW && data instanceof Float32Array) {
    byBlocks(from, count, (at, end) => (most = Math.max(most, kernels.largest(0, staged(data, at, end)))));
    return magnitude(most);
  }
  for (let n = from; n < from + count; n++) {
    const size = Math.abs(data[n]);
    if (!(size < Infinity)) return NaN;
    if (size > most) most = size;
  }
  return most;
}

/** Sums of rows of float32, by whole numbers: no order. */
function sums(data, rows, length, out) {
  const bits = Math.min(30, 52 - (length > 1 ? 32 - Math.clz32(length - 1) : 0));
  for (let row = 0; row < rows; row++) {
    const most = largestOf(data, row * length, length);
    const scale = 2 ** (bits - exponentOf(most, -90));
    let total = 0;
    if (kernels && length >= FEW) byBlocks(row * length, length, (at, end) => (total += kernels.sum(0, staged(data, at, end), scale)));
    else for (let n = row * length; n < (row + 1) * length; n++) total += rint(data[n] * scale);
    out[row] = most === most ? mul(fl(total), 1 / scale) : NaN;
  }
}

/** What makes whole numbers up to 2^bits of the numbers of a row. */
function scaleOf(most, bits) {
  const e = exponentOf(most, -45);
  return twoTo(bits - (bits === 15 && most * twoTo(15 - e) > 32639 ? e + 1 : e));
}

/** Rows of float32 as whole numbers up to 2^bits, and what each is multiplied with afterwards. */
function factorsOf(data, rows, length, bits) {
  const whole = new Float64Array(rows * length);
  const back = new Float32Array(rows);
  for (let row = 0; row < rows; row++) {
    const most = largestOf(data, row * length, length);
    if (most !== most) {
      back[row] = NaN;
      continue;
    }
    const scale = scaleOf(most, bits);
    for (let n = row * length; n < (row + 1) * length; n++) whole[n] = rint(data[n] * scale);
    back[row] = 1 / scale;
  }
  return { whole, back };
}

/** Products of rows, each a sum of whole numbers below 2^53: blocks of four rows by two, which a processor keeps in its registers. */
function multiplied(a, b, m, n, k, from, out, to) {
  const x = a.whole;
  const y = b.whole;
  for (let i = 0; i < m; i += 4) {
    const i1 = Math.min(i + 1, m - 1);
    const i2 = Math.min(i + 2, m - 1);
    const i3 = Math.min(i + 3, m - 1);
    const p0 = (from.a + i) * k;
    const p1 = (from.a + i1) * k;
    const p2 = (from.a + i2) * k;
    const p3 = (from.a + i3) * k;
    for (let j = 0; j < n; j += 2) {
      const j1 = Math.min(j + 1, n - 1);
      const q0 = (from.b + j) * k;
      const q1 = (from.b + j1) * k;
      let s00 = 0;
      let s01 = 0;
      let s10 = 0;
      let s11 = 0;
      let s20 = 0;
      let s21 = 0;
      let s30 = 0;
      let s31 = 0;
      for (let l = 0; l < k; l++) {
        const u = y[q0 + l];
        const v = y[q1 + l];
        const x0 = x[p0 + l];
        const x1 = x[p1 + l];
        const x2 = x[p2 + l];
        const x3 = x[p3 + l];
        s00 += x0 * u;
        s01 += x0 * v;
        s10 += x1 * u;
        s11 += x1 * v;
        s20 += x2 * u;
        s21 += x2 * v;
        s30 += x3 * u;
        s31 += x3 * v;
      }
      const back0 = b.back[from.b + j];
      const back1 = b.back[from.b + j1];
      scaledPair(out, to + i * n, j, j1, s00, s01, a.back[from.a + i], back0, back1);
      scaledPair(out, to + i1 * n, j, j1, s10, s11, a.back[from.a + i1], back0, back1);
      scaledPair(out, to + i2 * n, j, j1, s20, s21, a.back[from.a + i2], back0, back1);
      scaledPair(out, to + i3 * n, j, j1, s30, s31, a.back[from.a + i3], back0, back1);
    }
  }
}

function scaledPair(out, row, j, j1, s, t, own, back0, back1) {
  out[row + j] = mul(mul(fl(s), own), back0);
  out[row + j1] = mul(mul(fl(t), own), back1);
}

/** The same by kernels, which take rows in pairs, sixteen bytes of the one after sixteen of the other. False where there is no room. */
function quickProducts(a, b, bits, out) {
  const { memory, largest, factors, products, scaled } = kernels;
  const width = (a.length + 7) & ~7;
  const row = 4 * width; // of float32, or of a pair of factors
  const line = 16 * Math.ceil(b.rows / 4);
  const rowsA = Math.max(3 * BLOCK, row * a.rows, row * b.rows);
  const rowsB = rowsA + row * Math.ceil(a.rows / 2);
  const backs = rowsB + row * Math.ceil(b.rows / 2);
  const [first, second, end] = [1, 2, 3].map((n) => backs + n * line);
  try {
    memory.grow(Math.max(0, Math.ceil((end - memory.buffer.byteLength) / 65536)));
  } catch {
    return false;
  }
  const own = new Float32Array(memory.buffer);
  const converted = (side, lead, to) => {
    const found = new Float32Array(side.rows);
    const at = lead * side.rows * side.length;
    if (side.length === width) own.set(side.data.subarray(at, at + side.rows * width));
    else {
      own.fill(0, 0, side.rows * width);
      for (let n = 0; n < side.rows; n++) own.set(side.data.subarray(at + n * side.length, at + (n + 1) * side.length), n * width);
    }
    for (let n = 0; n < side.rows; n++) {
      const most = magnitude(largest(row * n, row * (n + 1)));
      const scale = scaleOf(most, bits);
      if (most === most) factors(row * n, row * (n + 1), to + row * (n >> 1) + 16 * (n & 1), scale);
      found[n] = most === most ? 1 / scale : NaN;
    }
    return found;
  };
  for (let lead = 0; lead < a.lead; lead++) {
    const backsA = converted(a, lead, rowsA);
    own.set(converted(b, lead, rowsB), backs / 4);
    for (let n = 0; n < a.rows; n++) {
      const from = n % 2 ? second : first;
      if (from === first) products(rowsA + (row * n) / 2, rowsB, row, backs, first, second);
      scaled(from, from + line, backs, backsA[n]);
      out.set(own.subarray(from / 4, from / 4 + b.rows), (lead * a.rows + n) * b.rows);
    }
  }
  return true;
}

function contracted(settings, values, out) {
  if (settings.rounding) throw new Missing("products that are rounded by random bits, which this page does not execute");
  const sides = values.map(({ data, shape }, side) => {
    const [summed, batch] = [settings.summed[side], settings.batch[side]];
    const free = shape.map((_, axis) => axis).filter((axis) => !summed.includes(axis) && !batch.includes(axis));
    const size = (axes) => elements(axes.map((axis) => shape[axis]));
    const arranged = transposed({ data, shape }, [...batch, ...free, ...summed]).data;
    return { data: arranged, lead: size(batch), rows: size(free), length: size(summed) };
  });
  const bits = settings.bits ?? 15;
  if (!Number.isInteger(bits) || bits < 2 || bits > 15) {
    throw new Missing("factors of a product that this page does not execute", { expected: "2 to 15 bits", found: visible(String(bits)) });
  }
  if (kernels && out.length && sides[0].length && quickProducts(...sides, bits, out)) return;
  const [a, b] = sides.map((side) => ({ ...side, ...factorsOf(side.data, side.lead * side.rows, side.length, bits) }));
  for (let n = 0; n < a.lead; n++) {
    multiplied(a, b, a.rows, b.rows, a.length, { a: n * a.rows, b: n * b.rows }, out, n * a.rows * b.rows);
  }
}

/** The windows of a gather or scatter: where each begins in the operand, and in the result. */
function eachWindow(shape, index, sizes, settings, resultShape, visit) {
  const places = index.shape.slice(0, -1);
  const width = index.shape.at(-1);
  const [strides, results] = [stridesOf(shape), stridesOf(resultShape)];
  const own = results.filter((_, axis) => !settings.window.includes(axis));
  const count = elements(places);
  const start = new Array(shape.length);
  const place = new Array(places.length).fill(0);
  for (let n = 0; n < count; n++) {
    start.fill(0);
    settings.indexed.forEach((axis, at) => (start[axis] = index.data[n * width + at]));
    settings.batch.forEach((axis, at) => (start[axis] = place[settings.index_batch[at]]));
    const inside = start.every((at, axis) => at >= 0 && at <= shape[axis] - sizes[axis]);
    if (settings.mode === "clip") start.forEach((at, axis) => (start[axis] = clamped(at, shape[axis] - sizes[axis])));
    if (inside || settings.mode === "clip") visit(offsetAt(strides, start), offsetAt(own, place));
    for (let axis = places.length - 1; axis >= 0; axis--) {
      if (++place[axis] < places[axis]) break;
      place[axis] = 0;
    }
  }
}

function windowAxes(shape, settings) {
  const gone = [...settings.dropped, ...settings.batch];
  return shape.map((_, axis) => axis).filter((axis) => !gone.includes(axis));
}

function gathered(settings, [operand, index], form, out) {
  out.fill(0);
  if (settings.mode === "fill") {
    word.setUint32(0, settings.fill);
    out.fill(form.dtype === "float32" ? word.getFloat32(0) : form.dtype === "int32" ? word.getInt32(0) : settings.fill);
  }
  const axes = windowAxes(operand.shape, settings);
  const [strides, results] = [stridesOf(operand.shape), stridesOf(form.shape)];
  const shape = axes.map((axis) => settings.sizes[axis]);
  const view = axes.map((axis) => strides[axis]);
  const target = settings.window.map((axis) => results[axis]);
  eachWindow(operand.shape, index, settings.sizes, settings, form.shape, (from, to) => {
    placed(copied(operand.data, shape, view, from), shape, out, target, to);
  });
  return out;
}

function scattered(settings, [operand, index, updates], add) {
  const axes = windowAxes(operand.shape, settings);
  const sizes = operand.shape.map(() => 1);
  axes.forEach((axis, at) => (sizes[axis] = updates.shape[settings.window[at]]));
  const [strides, own] = [stridesOf(operand.shape), stridesOf(updates.shape)];
  const shape = axes.map((axis) => sizes[axis]);
  const view = axes.map((axis) => strides[axis]);
  const taken = settings.window.map((axis) => own[axis]);
  const floats = add && operand.data instanceof Float32Array;
  const out = floats ? new Float64Array(operand.data.length) : operand.data.slice();
  let [most, scale] = [0, 1];
  if (floats) {
    const count = Math.max(1, elements(index.shape.slice(0, -1)));
    most = largestOf(updates.data, 0, updates.data.length);
    scale = 2 ** (Math.min(30, 52 - (count > 1 ? 32 - Math.clz32(count - 1) : 0)) - exponentOf(most, -90));
  }
  eachWindow(operand.shape, index, sizes, settings, updates.shape, (to, from) => {
    const window = copied(updates.data, shape, taken, from);
    if (!add) {
      placed(window, shape, out, view, to);
      return;
    }
    const there = copied(out, shape, view, to);
    for (let n = 0; n < window.length; n++) there[n] += floats ? rint(window[n] * scale) : window[n];
    placed(there, shape, out, view, to);
  });
  if (!floats) return out;
  const sum = operand.data.slice();
  if (most !== most) return sum.fill(NaN);
  eachWindow(operand.shape, index, sizes, settings, updates.shape, (to) => {
    const added = copied(out, shape, view, to);
    placed(copied(sum, shape, view, to).map((value, n) => (added[n] === 0 ? value : fl(value + mul(fl(added[n]), 1 / scale)))), shape, sum, view, to);
    placed(added.fill(0), shape, out, view, to); // another window may lie in the same place
  });
  return sum;
}

const ROTATIONS = [[13, 15, 26, 6], [17, 29, 16, 24]];

/** A block of threefry2x32 with 20 rounds. */
function threefry(first, second, high, low) {
  const keys = [first, second, first ^ second ^ 0x1bd11bda];
  let [x, y] = [(high + first) | 0, (low + second) | 0];
  for (let group = 0; group < 5; group++) {
    for (const turn of ROTATIONS[group % 2]) {
      x = (x + y) | 0;
      y = ((y << turn) | (y >>> (32 - turn))) ^ x;
    }
    x = (x + keys[(group + 1) % 3]) | 0;
    y = (y + keys[(group + 2) % 3] + group + 1) | 0;
  }
  return [x >>> 0, y >>> 0];
}

function drawn(keys, count, visit) {
  for (let key = 0; key < keys.length / 2; key++) {
    for (let n = 0; n < count; n++) visit(key * count + n, threefry(keys[2 * key], keys[2 * key + 1], 0, n));
  }
}

function reduced({ data, shape }, axes, out, rule) {
  const kept = shape.map((_, axis) => axis).filter((axis) => !axes.includes(axis));
  const length = elements(axes.map((axis) => shape[axis]));
  const rows = transposed({ data, shape }, [...kept, ...axes]).data;
  for (let row = 0; row < out.length; row++) {
    let value = rows[row * length];
    for (let n = 1; n < length; n++) value = rule(value, rows[row * length + n]);
    out[row] = value;
  }
  return out;
}

/** What an operation gives, from its values; those with programs of their own are in `execute`. */
const OPERATIONS = {
  select: ({ out }, [condition, no, yes]) => {
    const [chosen, to, one, two] = [condition.data, words(out), words(yes.data), words(no.data)];
    if (chosen.length === 1) to.set(chosen[0] ? one : two);
    else for (let n = 0; n < to.length; n++) to[n] = chosen[n] ? one[n] : two[n];
  },
  convert: ({ out, form }, [{ data, form: from }]) => {
    const [least, most] = form.dtype === "int32" ? [-2147483648, 2147483647] : [0, 4294967295];
    for (let n = 0; n < out.length; n++) {
      const value = data[n];
      if (form.dtype === "bool") out[n] = value !== 0 ? 1 : 0;
      else if (form.dtype === "float32") out[n] = fl(value);
      else if (from.dtype === "float32") out[n] = value === value ? Math.trunc(Math.min(Math.max(value, least), most)) : 0;
      else out[n] = value;
    }
  },
  bitcast: ({ out, form }, [{ data, form: from }]) => {
    for (let n = 0; n < out.length; n++) {
      const bits = from.dtype === "float32" ? bitsOf(data[n]) : data[n];
      out[n] = form.dtype === "float32" ? fl(floatOf(bits)) : bits;
    }
  },
  broadcast: ({ out, form, settings }, [{ data, shape }]) => {
    const own = stridesOf(shape);
    const strides = form.shape.map(() => 0);
    settings.axes.forEach((axis, at) => (strides[axis] = shape[at] === 1 ? 0 : own[at]));
    copied(data, form.shape, strides, 0, out);
  },
  reshape: ({ out }, [{ data }]) => out.set(data),
  transpose: ({ out, settings }, [value]) => out.set(transposed(value, settings.axes).data),
  concatenate: ({ out, form, settings }, values) => {
    const strides = stridesOf(form.shape);
    let at = 0;
    for (const { data, shape } of values) {
      placed(data, shape, out, strides, at * strides[settings.axis]);
      at += shape[settings.axis];
    }
  },
  slice: ({ out, form, settings }, [{ data, shape }]) => {
    const own = stridesOf(shape);
    copied(data, form.shape, own.map((step, axis) => step * settings.step[axis]), offsetAt(own, settings.start), out);
  },
  dynamic_slice: ({ out, form }, [{ data, shape }, ...starts]) => {
    const own = stridesOf(shape);
    const begin = starts.map((start, axis) => clamped(start.data[0], shape[axis] - form.shape[axis]));
    copied(data, form.shape, own, offsetAt(own, begin), out);
  },
  dynamic_update_slice: ({ out }, [{ data, shape }, update, ...starts]) => {
    const own = stridesOf(shape);
    const begin = starts.map((start, axis) => clamped(start.data[0], shape[axis] - update.shape[axis]));
    out.set(data);
    placed(update.data, update.shape, out, own, offsetAt(own, begin));
  },
  pad: ({ out, form, settings }, [{ data, shape }, filling]) => {
    out.fill(filling.data[0]);
    const strides = stridesOf(form.shape);
    const own = stridesOf(shape);
    const cut = settings.padding.map(([low, high, inner], axis) => {
      const first = Math.max(0, Math.ceil(-low / (inner + 1)));
      const last = Math.floor((form.shape[axis] - 1 - low) / (inner + 1));
      return { first, count: Math.max(0, Math.min(shape[axis] - 1, last) - first + 1), low, step: inner + 1 };
    });
    const view = cut.map(({ count }) => count);
    const source = copied(data, view, own, offsetAt(own, cut.map(({ first }) => first)));
    const begin = cut.map(({ first, low, step }) => low + first * step);
    placed(source, view, out, strides.map((step, axis) => step * cut[axis].step), offsetAt(strides, begin));
  },
  iota: ({ out, form, settings }) => {
    const step = elements(form.shape.slice(settings.axis + 1));
    for (let n = 0; n < out.length; n++) out[n] = Math.floor(n / step) % form.shape[settings.axis];
  },
  rev: ({ out, form, settings }, [{ data, shape }]) => {
    const own = stridesOf(shape);
    const begin = shape.map((length, axis) => (settings.axes.includes(axis) ? length - 1 : 0));
    copied(data, form.shape, own.map((step, axis) => (settings.axes.includes(axis) ? -step : step)), offsetAt(own, begin), out);
  },
  cumsum: ({ out, settings, whole }, [{ data, shape }]) => {
    const step = elements(shape.slice(settings.axis + 1));
    const length = shape[settings.axis];
    for (let n = 0; n < out.length; n++) {
      const own = Math.floor(n / step) % length;
      const at = settings.reverse ? n + (length - 1 - 2 * own) * step : n;
      out[at] = own === 0 ? data[at] : whole(data[at] + out[at + (settings.reverse ? step : -step)]);
    }
  },
  argmax: ({ out, settings }, [{ data, shape }]) => {
    const rest = shape.map((_, axis) => axis).filter((axis) => axis !== settings.axis);
    const length = shape[settings.axis];
    const rows = transposed({ data, shape }, [...rest, settings.axis]).data;
    for (let row = 0; row < out.length; row++) {
      let best = 0;
      for (let n = 1; n < length; n++) {
        const [one, most] = [rows[row * length + n], rows[row * length + best]];
        if (one > most || (one !== one && most === most)) best = n;
      }
      out[row] = best;
    }
  },
  sum: ({ out, settings, whole }, [value]) => {
    if (!(value.data instanceof Float32Array)) return void reduced(value, settings.axes, out, (a, b) => whole(a + b));
    const kept = value.shape.map((_, axis) => axis).filter((axis) => !settings.axes.includes(axis));
    const length = elements(settings.axes.map((axis) => value.shape[axis]));
    sums(transposed(value, [...kept, ...settings.axes]).data, out.length, length, out);
    return undefined;
  },
  maximum: ({ out, settings }, [value]) => reduced(value, settings.axes, out, Math.max),
  minimum: ({ out, settings }, [value]) => reduced(value, settings.axes, out, Math.min),
  all: ({ out, settings }, [value]) => reduced(value, settings.axes, out, (a, b) => a & b),
  any: ({ out, settings }, [value]) => reduced(value, settings.axes, out, (a, b) => a | b),
  dot: ({ out, settings }, values) => contracted(settings, values, out),
  gather: ({ out, form, settings }, values) => gathered(settings, values, form, out),
  scatter: ({ out, settings }, values) => out.set(scattered(settings, values, false)),
  scatter_add: ({ out, settings }, values) => out.set(scattered(settings, values, true)),
  seed: ({ out }, [{ data }]) => data.forEach((value, n) => out.set([0, value], 2 * n)),
  fold: ({ out }, [keys, numbers]) => {
    for (let n = 0; n < out.length / 2; n++) {
      const number = numbers.data[numbers.data.length === 1 ? 0 : n] >>> 0;
      const key = keys.data.length === 2 ? 0 : n;
      out.set(threefry(keys.data[2 * key], keys.data[2 * key + 1], 0, number), 2 * n);
    }
  },
  draw_keys: ({ out, settings }, [{ data }]) => drawn(data, elements(settings.shape), (n, words) => out.set(words, 2 * n)),
  draw: ({ out, settings }, [{ data }]) => drawn(data, elements(settings.shape), (n, [a, b]) => (out[n] = a ^ b)),
};

const BLOCKWISE = new Set(["add", "sub", "mul", "div", "sqrt", "neg", "exp", "logistic"]);

/** Elementwise, by the kernel of the same name. */
function blockwise(name, out, x, y) {
  byBlocks(0, out.length, (at, end) => {
    const own = new Float32Array(kernels.memory.buffer);
    own.set(x.subarray(at, end));
    if (y) own.set(y.subarray(at, end), BLOCK / 4);
    kernels[name](4 * (end - at));
    out.set(own.subarray(BLOCK / 2, BLOCK / 2 + end - at), at);
  });
}

/** One element after another. */
function elementwise(name, out, values, form) {
  const [a, b] = values;
  const long = out.length >= FEW && values.every(({ data }) => data.length === out.length);
  if (kernels && long && out instanceof Float32Array && BLOCKWISE.has(name)) {
    blockwise(name, out, a.data, b?.data);
    return;
  }
  const compared = member(COMPARED, name);
  const floats = a.form.dtype === "float32";
  const rule = compared ?? member(floats ? FLOATS : WHOLES, name);
  if (!rule) throw new Missing(`an operation that this page does not have: ${visible(String(name))}`);
  const count = out.length;
  const finish = form.dtype === "bool" ? (value) => (value ? 1 : 0) & 1 : floats ? null : same32(form.dtype === "int32");
  if (form.dtype === "bool" && !compared) {
    for (let n = 0; n < count; n++) out[n] = (b ? rule(a.data[n], b.data[n]) : name === "not" ? 1 - a.data[n] : rule(a.data[n])) & 1;
  } else if (b && finish) for (let n = 0; n < count; n++) out[n] = finish(rule(a.data[n], b.data[n]));
  else if (b) for (let n = 0; n < count; n++) out[n] = rule(a.data[n], b.data[n]);
  else if (finish) for (let n = 0; n < count; n++) out[n] = finish(rule(a.data[n]));
  else for (let n = 0; n < count; n++) out[n] = rule(a.data[n]);
}

/** Arrays of values that nothing uses any more: to take one of them is faster than a new one. */
class Spare {
  byLength = new Map();

  /** Room for a tensor, with anything in it; a program is the operator's, and may ask for any. */
  take({ dtype, shape }) {
    const count = elements(shape);
    if (!(count * 4 <= MOST_BYTES)) throw new Missing("a program makes a larger tensor than this page holds", { found: visible(shape.join(" x ").slice(0, 60)) });
    const left = dtype === "float32" && this.byLength.get(count);
    return left?.length ? left.pop() : new ARRAYS[dtype](count);
  }

  give(data) {
    if (!(data instanceof Float32Array) || data.length < 4096) return;
    if (!this.byLength.has(data.length)) this.byLength.set(data.length, []);
    this.byLength.get(data.length).push(data);
  }
}

/** The values that a program gives, with one bit pattern for all that is no number. `constants`: arrays by digest. `pause`: awaited now and then. */
async function execute(program, inputs, constants, pause = async () => {}) {
  await loadKernels();
  const found = await executed(program, inputs, { constants, pause, spare: new Spare() });
  return found.map(settled);
}

function settled(data) {
  if (data instanceof Float32Array) for (let n = 0; n < data.length; n++) if (data[n] !== data[n]) data[n] = NaN;
  return data;
}

async function executed(program, inputs, around) {
  const { constants, pause, spare } = around;
  const known = new Map();
  const forms = program.forms.map(([dtype, shape]) => ({ dtype, shape }));
  const give = (number, data, own = false) => {
    const form = forms[number];
    known.set(number, { data, shape: form.shape, form, own });
  };
  program.inputs.forEach((number, at) => give(number, inputs[at]));
  for (const [number, digest] of program.constants) give(number, constants.get(digest));
  const last = new Map();
  program.operations.forEach((operation, at) => operation[1].forEach((number) => last.set(number, at)));
  program.outputs.forEach((number) => last.set(number, Infinity));
  for (const [at, [name, used, made, settings, bodies]] of program.operations.entries()) {
    const values = used.map((number) => known.get(number));
    if (bodies.length) {
      for (const value of values) value.own = false; // what a program takes it may give back
      const outputs = await looped(name, settings, bodies, values, around);
      made.forEach((number, n) => give(number, outputs[n]));
    } else {
      const form = forms[made[0]];
      const out = spare.take(form);
      const rule = Object.hasOwn(OPERATIONS, name) ? OPERATIONS[name] : null;
      if (rule) rule({ out, form, settings, whole: same32(form.dtype === "int32") }, values);
      else elementwise(name, out, values, form);
      give(made[0], out, true);
      await pause();
    }
    for (const number of used) {
      if (last.get(number) !== at) continue;
      if (known.get(number)?.own) spare.give(known.get(number).data);
      known.delete(number);
    }
  }
  return program.outputs.map((number) => known.get(number).data);
}

async function looped(name, settings, bodies, values, around) {
  if (name === "cond") {
    const chosen = clamped(values[0].data[0], bodies.length - 1);
    return executed(bodies[chosen], values.slice(1).map(({ data }) => data), around);
  }
  if (name === "while") {
    const { asked, done } = settings;
    const given = values.map(({ data }) => data);
    let carry = given.slice(asked + done);
    while ((await executed(bodies[0], [...given.slice(0, asked), ...carry], around))[0][0]) {
      carry = await executed(bodies[1], [...given.slice(asked, asked + done), ...carry], around);
    }
    return carry;
  }
  if (name !== "scan") throw new Missing(`an operation that this page does not have: ${visible(String(name))}`);
  const { constants: kept, carried, length, reverse } = settings;
  const fixed = values.slice(0, kept).map(({ data }) => data);
  const rows = values.slice(kept + carried);
  let carry = values.slice(kept, kept + carried).map(({ data }) => data);
  const made = bodies[0].outputs.slice(carried).map((number) => {
    const [dtype, shape] = bodies[0].forms[number];
    return around.spare.take({ dtype, shape: [length, ...shape] });
  });
  for (let turn = 0; turn < length; turn++) {
    const n = reverse ? length - 1 - turn : turn;
    const own = rows.map(({ data }) => data.subarray((n * data.length) / length, ((n + 1) * data.length) / length));
    const found = await executed(bodies[0], [...fixed, ...carry, ...own], around);
    carry = found.slice(0, carried);
    found.slice(carried).forEach((value, at) => made[at].set(value, n * value.length));
  }
  return [...carry, ...made];
}

/** What `marin publish` wrote of the programs of a run under profile exact, each under the digest that the run recorded. */
async function readPrograms(source, record) {
  const recorded = member(member(record.training.at(-1)?.body, "program"), "functions");
  for (const { body } of record.training) {
    const own = member(member(body, "program"), "functions");
    const other = ["gradient", "update"].find((name) => member(own, name) !== member(recorded, name));
    if (other) throw new Missing(`its attempts at training name more than one program as ${other}, and none is executed here`);
  }
  const path = `programs/${record.run}.json`;
  const bytes = await source.read(path, 64 * MIB);
  if (!bytes) throw new Missing("the programs of its train step are not published", { where: path });
  const hints = parseCanonical(bytes, path);
  const texts = (value) => Array.isArray(value) && value.every((one) => typeof one === "string");
  if (!texts(member(hints, "parameters")) || !texts(member(hints, "moments")) || !isObject(member(hints, "sequences"))) {
    throw new Wrong("not a list of what its programs take", { where: path });
  }
  const paths = ["step", "cursor", "key", ...hints.parameters, ...hints.moments];
  if (new Set(paths).size !== paths.length) throw new Wrong("a list of what its programs take that names a tensor twice", { where: path });
  const constants = new Map();
  const programs = { initial: null };
  for (const name of ["gradient", "update"]) {
    const digest = member(recorded, name);
    if (!FORMS.digest(digest)) throw new Missing(`the run does not say which program its ${name} is`);
    programs[name] = await readProgram(source, digest, constants);
  }
  const first = member(recorded, "initial");
  const drawn = !member(record.recipe, "phase") && !member(record.recipe, "initial") && FORMS.digest(first);
  if (drawn && (await source.read(programPath(first), 64 * MIB))) programs.initial = await readProgram(source, first, constants);
  return { ...programs, hints, constants };
}

function programPath(digest) {
  return `programs/${digest.slice(7)}.json`;
}

async function readProgram(source, digest, constants) {
  const path = programPath(digest);
  const bytes = await source.read(path, 64 * MIB);
  if (!bytes) throw new Missing("a program is not published", { where: path });
  if (digestText(await sha256Large(bytes)) !== digest) throw new Wrong("a program is not the recorded one", { where: path });
  const program = parseCanonical(bytes, path);
  await readConstants(source, program, constants, path);
  return program;
}

async function readConstants(source, program, constants, where) {
  for (const [number, digest] of program.constants) {
    const [dtype, shape] = program.forms[number];
    const path = `programs/constants/${digest.slice(7)}`;
    const bytes = constants.has(digest) ? null : await source.read(path, 64 * MIB);
    if (!constants.has(digest) && !bytes) throw new Missing("a constant of a program is not published", { where: path });
    if (bytes && (await tensorDigest(dtype, shape, bytes)) !== digest) throw new Wrong("a constant is not the one of its program", { where: `${where}, ${path}` });
    if (bytes) constants.set(digest, ruled(arrayOf(dtype, bytes)));
  }
  for (const [, , , , bodies] of program.operations) for (const body of bodies) await readConstants(source, body, constants, where);
}

function arrayOf(dtype, bytes) {
  const own = bytes.slice();
  return new ARRAYS[dtype](own.buffer, 0, own.length / ARRAYS[dtype].BYTES_PER_ELEMENT);
}

/** Numbers as a program takes them: denormal ones are zero, and there is one zero. */
function ruled(data) {
  return data instanceof Float32Array ? data.map(fl) : data;
}

/** The two sums over a tensor's words that a train step records of it. */
function fingerprint(bytes, dtype) {
  const narrow = ITEM_BYTES.get(dtype) === 2;
  const own = bytes.byteOffset % 4 ? bytes.slice() : bytes;
  const words = new (narrow ? Uint16Array : Uint32Array)(own.buffer, own.byteOffset, own.length / (narrow ? 2 : 4));
  let [first, second] = [0, 0];
  for (let n = 0; n < words.length; n++) {
    let value = Math.imul(words[n] ^ Math.imul(n, 0x9e3779b1), 0x85ebca77);
    value = Math.imul(value ^ (value >>> 15), 0xc2b2ae3d);
    value ^= value >>> 13;
    const again = Math.imul(value, 0x27d4eb2f);
    first = (first + value) | 0;
    second = (second + (again ^ (again >>> 16))) | 0;
  }
  return [first >>> 0, second >>> 0];
}

function bytesOf(data) {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/** The tokens of a train step, by the numbers of their sequences; the recorded digest says whether they are the right ones. */
function batchOf(record, hints, streams, step, digest) {
  const [width, count] = [record.recipe.model.seq_len, record.recipe.trainer.batch_size];
  const numbers = member(hints.sequences, String(step));
  if (!Array.isArray(numbers) || numbers.length !== count || !numbers.every((one) => Number.isSafeInteger(one) && one >= 0)) {
    throw new Missing(`the sequences of train step ${step} are not published`);
  }
  if (!(count * width * 4 <= MOST_BYTES)) throw new Missing(`train step ${step}: a batch that is larger than this page holds`);
  const tokens = new Int32Array(count * width);
  const weights = new Float32Array(count * width).fill(1);
  const held = (stream) => Math.floor(stream.tokens.length / width);
  numbers.forEach((number, line) => {
    let at = number;
    const stream = streams.find((one) => at < held(one) || ((at -= held(one)), false));
    if (!stream) throw new Wrong(`train step ${step}: a sequence that the tokens have not`, { found: `${number}` });
    tokens.set(stream.tokens.subarray(at * width, at * width + width), line * width);
    if (stream.mask) weights.set(stream.mask.subarray(at * width + 1, at * width + width), line * width); // of the token after it
    weights[line * width + width - 1] = 0; // what comes after the last token is not asked
  });
  const found = digestText(sha256(bytesOf(BigInt64Array.from(numbers, BigInt)), bytesOf(tokens)));
  if (found !== digest) throw new Wrong(`train step ${step}: its tokens are not those of these sequences`, { expected: digest, found });
  return { tokens, weights };
}

/** One train step from a state, by the two programs: the state after it, and what is recorded of it. */
async function trainStep(programs, state, { tokens, weights }, count, pause) {
  const { gradient, update, hints, constants } = programs;
  const taken = (program, data) => {
    const count = program.inputs.length;
    if (count !== data.length) throw new Wrong("a program takes other values than its state has", { expected: `${data.length}`, found: `${count}` });
    return shaped(program, data);
  };
  const shaped = (program, data) => program.inputs.map((number, at) => {
    const [dtype, shape] = program.forms[number];
    if (!(data[at] instanceof ARRAYS[dtype]) || data[at].length !== elements(shape)) throw new Wrong("a program takes other values than its state has", { found: `value ${at}` });
    return ruled(data[at]);
  });
  const params = hints.parameters.map((path) => state.get(path));
  const moments = hints.moments.map((path) => state.get(path));
  const missing = [...hints.parameters, ...hints.moments].find((path) => !state.has(path));
  if (missing !== undefined || state.size !== params.length + moments.length + 3) throw new Wrong("a program takes other tensors than the state has", { found: visible(missing ?? "") });
  const sums = await execute(gradient, taken(gradient, [...params, tokens, weights]), constants, pause);
  const after = await execute(update, taken(update, [...params, ...moments, ...sums.slice(0, params.length + 3)]), constants, pause);
  const [loss, norm] = after.splice(-2).map((data) => data[0]);
  const done = Number.isFinite(loss) && Number.isFinite(norm) ? 1 : 0;
  const next = new Map([
    ["step", state.get("step").map((value) => value + done)],
    ["cursor", state.get("cursor").map((value) => value + done * count)],
    ["key", state.get("key")],
  ]);
  [...hints.parameters, ...hints.moments].forEach((path, at) => next.set(path, after[at]));
  return { next, loss, norm };
}

// ------------------------------------------------------------------------------------------------------------ 9. the judge

const MOST_FINDINGS = 40;
const PAGES = "pages.intoto.jsonl";
const IN_TOTO = "application/vnd.in-toto+json";
const STATEMENT = "https://in-toto.io/Statement/v1";
const PAGES_V1 = "urn:marin:pages:v1";
const EXIT = { PASS: 0, FAIL: 1, UNAVAILABLE: 3, NOT_RUN: 3, PARTIAL: 4 };
const WORST = ["FAIL", "UNAVAILABLE", "NOT_RUN", "PARTIAL", "PASS"];
const FILES = {
  corpus: /^((train|validation|minimal_pairs|train\/[^/]+)\.jsonl|dataset\.json)$/,
  tokenizer: /^(tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|chat_template\.jinja)$/,
  evaluation: /^(metrics\.json|pairs\.csv|sample\.txt)$/,
  model: new RegExp(
    "^(tokenizer\\.json|tokenizer_config\\.json|special_tokens_map\\.json|chat_template\\.jinja|model\\.safetensors|config\\.json|" +
      "generation_config\\.json|adapters/adapter_(config\\.json|model\\.safetensors))$",
  ),
};
const UNJUDGED =
  "what was not executed here is claimed: that corpus, tokens, losses, states, metrics and model follow from each other; `marin verify` executes all of it";
const UNDRAWN = "whether the log says what its pages show was not looked at: `marin verify` of the address draws each of them again";
const UNKNOWN = "claimed: that the programs are those of the recipe, that its seed leads to these sequences, that the tokens are those of the text";

class Findings {
  constructor() {
    this.wrong = [];
    this.missing = [];
  }

  /** Do one thing; what it finds is kept, and the next thing is looked at all the same. */
  async look(what, work) {
    try {
      await work();
    } catch (error) {
      if (error instanceof Wrong) this.wrong.push(what ? `${what}: ${error.message}` : error.message);
      else if (error instanceof Missing) this.missing.push(what ? `${what}: ${error.message}` : error.message);
      else if (!/^(Type|Range|Syntax)Error$/.test(error.name)) throw error;
      else this.missing.push(`${what || "the folder"}: in a form that is not read here (${visible(String(error.message).slice(0, 120))})`);
    }
  }

  verdict(lines) {
    if (this.wrong.length) return { outcome: "FAIL", lines: [...this.wrong, ...this.missing].slice(0, MOST_FINDINGS) };
    if (this.missing.length) return { outcome: "UNAVAILABLE", lines: this.missing.slice(0, MOST_FINDINGS) };
    return { outcome: "PASS", lines };
  }
}

/**
 * Judge one run of a published folder.
 *
 * source: `read(path, most)` gives bytes or null, `list(folder)` names where that can be known.
 * keys, witnesses: verifier keys, as texts, from the reader. run: its id; without one the newest that has a page here.
 * execute: which train steps are executed again, where that can be done here: "one", "all", "none", or the number of one.
 * progress(part, done, all): awaited between pieces of work; a caller that wants to stop throws there.
 */
export async function judge(source, { keys, witnesses = [], run = "", execute = "one", progress = async () => {} }) {
  const given = keys.map(parseKey);
  if (!given.length) throw new Usage("give the log's verifier key: nothing in the folder can say whom to believe");
  if (given.every(({ algorithm }) => algorithm === COSIGNATURE)) throw new Usage("this is the key of a witness; give the log's own");
  const cosigners = witnesses.map(parseKey);
  if (cosigners.some(({ algorithm }) => algorithm === ED25519)) throw new Usage("a witness cosigns: its key is of the kind 0x04 or 0x06");
  const report = { judge: "marin check", run, origin: "", size: 0, root: "", verdicts: {}, claims: [] };
  report.verdicts = Object.fromEntries(["signature", "record", "hash"].map((name) => [name, { outcome: "NOT_RUN", lines: ["what it rests on does not hold"] }]));
  report.execution = { outcome: "not judged", lines: [UNJUDGED] };
  report.pages = { outcome: "not judged", lines: [UNDRAWN] };
  const found = new Findings();
  let log = null;
  if (execute !== "none") loadKernels(); // while files are read
  await found.look("", async () => {
    log = await readLog(source, given, progress);
  });
  report.verdicts.signature = found.verdict([]);
  if (log) {
    Object.assign(report, { origin: log.origin, size: log.size, root: hex(log.root), runs: runsOf(log) });
    report.run = await chosenRun(source, log, run);
    report.verdicts.signature = await judgeSignature(source, log, given, cosigners, report.run);
    await judgeRun(source, log, report, execute, progress);
    report.pages = await judgePages(source, log, progress);
  }
  const outcomes = Object.values(report.verdicts).map(({ outcome }) => outcome);
  if ([report.execution.outcome, report.pages.outcome].includes("FAIL")) outcomes.push("FAIL");
  report.outcome = WORST.find((word) => outcomes.includes(word));
  report.exit = EXIT[report.outcome];
  return report;
}

/** The pages beside a log: each is the one whose digest the log's key signed, or not. What they show is not drawn again here. */
async function judgePages(source, log, progress) {
  const found = new Findings();
  let signed = null;
  let held = 0;
  await found.look("", async () => {
    const bytes = await source.read(PAGES, 64 * MIB);
    if (!bytes) throw new Missing("nobody signed pages here", { where: PAGES });
    signed = await signedPages(bytes, log);
  });
  for (const [path, digest] of signed?.pages ?? []) {
    await found.look(visible(path), async () => {
      const content = unfitPath(path) ? null : await source.read(path, MOST_BYTES);
      if (!content) throw new Missing("its publisher signed this page, and it is not here");
      const here = hex(await sha256Large(content));
      if (here !== digest && member(member(signed.before, path), "sha256") === here) throw new Missing("an earlier page, which its publisher is replacing");
      if (here !== digest) throw new Wrong("not the page that its publisher signed", { expected: `sha256:${digest}`, found: `sha256:${here}` });
      held++;
    });
    await progress("pages", held, signed.pages.length);
  }
  const lines = [...found.wrong, ...found.missing].slice(0, MOST_FINDINGS);
  if (held) lines.unshift(`${several(held, "page")} beside the log, each the one that its key signed`);
  return { outcome: found.wrong.length ? "FAIL" : "not judged", lines: [...lines, UNDRAWN] };
}

/** Paths and digests of an in-toto statement about pages, in a DSSE envelope that a key of the log signed. */
async function signedPages(bytes, log) {
  const parsed = (data) => {
    try {
      const words = decoder.decode(data);
      return [words, JSON.parse(words)];
    } catch {
      throw new Missing("not a signed list of pages", { where: PAGES, expected: "JSON in UTF-8" });
    }
  };
  const [, envelope] = parsed(bytes);
  const payload = unbase64(String(member(envelope, "payload"))) ?? new Uint8Array();
  const [said, statement] = parsed(payload);
  const message = `DSSEv1 ${IN_TOTO.length} ${IN_TOTO} ${payload.length} ${said}`;
  const signatures = member(envelope, "signatures");
  let signer = null;
  for (const key of log.keys.filter(({ name, algorithm, until }) => name === log.origin && algorithm === ED25519 && until === Infinity)) {
    for (const one of (Array.isArray(signatures) ? signatures : []).filter((one) => member(one, "keyid") === key.text).slice(0, 8)) {
      const signature = unbase64(String(member(one, "sig")));
      if (signature?.length === 64 && (await ed25519(key.public, message, signature, PAGES))) signer = key;
    }
  }
  if (!signer || member(envelope, "payloadType") !== IN_TOTO) throw new Missing("no key of this log, as you gave it, signed the list of pages", { where: PAGES });
  const [subject, predicate] = [member(statement, "subject"), member(statement, "predicate")];
  const pages = (Array.isArray(subject) ? subject : []).map((one) => [member(one, "name"), member(member(one, "digest"), "sha256")]);
  const about = member(statement, "_type") === STATEMENT && member(statement, "predicateType") === PAGES_V1 && member(predicate, "log") === log.origin;
  if (!about || !pages.every((one) => one.every((part) => typeof part === "string"))) {
    throw new Missing("not a list of this log's pages", { where: PAGES });
  }
  return { pages, before: member(predicate, "before") };
}

async function readLog(source, given, progress) {
  const bytes = await source.read("log/checkpoint", 1000000);
  if (!bytes) throw new Missing("there is no log here", { where: "log/checkpoint" });
  const { keys, links } = await followKeys(source, given);
  const checkpoint = await openCheckpoint(bytes, keys, "log/checkpoint");
  const read = await readEntries(source, checkpoint, (done, all) => progress("log", done, all));
  const log = { ...checkpoint, ...read, keys };
  log.events = readEvents(log.entries);
  checkLinks(links, log);
  return log;
}

function runsOf(log) {
  const started = log.events.filter(({ type, body, stream }) => type === "run.started/v1" && stream === `run/${body.run}`);
  return [...new Set(started.map(({ body }) => body.run))];
}

async function chosenRun(source, log, run) {
  const runs = runsOf(log).reverse();
  if (run) {
    if (!runs.includes(run)) throw new Usage(`the log has no run ${run}; it has ${runs.slice(0, 8).join(", ") || "none"}`);
    return run;
  }
  if (!runs.length) return "";
  for (const one of runs.slice(0, 32)) if (await source.read(`runs/${one}/index.html`, 16 * MIB)) return one;
  return runs[0];
}

async function judgeSignature(source, log, given, cosigners, run) {
  const lines = [`log ${visible(log.origin)}: ${several(log.size, "event")} re-derived under root ${hex(log.root)}, signed by ${log.signers.map(keyName).join(", ")}`];
  const strays = log.events.filter(({ stray }) => stray);
  for (const { index, stray } of strays.slice(0, MOST_STRAYS)) lines.push(`beside the events, and left out: entry ${index}: ${visible(stray.said)}`);
  if (strays.length > MOST_STRAYS) lines.push(`${strays.length - MOST_STRAYS} more like these`);
  const found = new Findings();
  for (const key of given.filter(({ algorithm }) => algorithm === MLDSA)) {
    const there = log.note.lines.some((line) => line.name === key.name && line.id === key.id);
    if (!there) found.wrong.push(`one of the two signatures of a hybrid key is missing: ${keyName(key)}`);
    else lines.push(`the signature of ${keyName(key)} (ML-DSA-44) was not looked at: browsers do not know it yet`);
  }
  const journal = await source.read("log/journal", MOST_BYTES);
  if (journal && same(journal.subarray(0, 8), encoder.encode("MLJOURN1"))) lines.push("the log has a journal: what it holds and is not published yet was not looked at");
  let least = Infinity;
  for (const key of cosigners) {
    await found.look(`witness ${keyName(key)}`, async () => {
      const seen = await cosigned(source, log, key);
      if (seen.unread) lines.push(`the cosignature of ${keyName(key)} (ML-DSA-44) was not looked at`);
      else lines.push(`${keyName(key)} saw the first ${several(seen.size, "event")}, it says at ${new Date(seen.time * 1000).toISOString()}`);
      least = Math.min(least, seen.unread ? 0 : seen.size);
    });
  }
  const verdict = found.verdict(lines);
  const last = log.events.findLast(({ stream, type }) => stream === `run/${run}` && !VERDICTS.includes(type))?.index ?? -1;
  if (verdict.outcome === "PASS" && least <= last) {
    return { outcome: "PARTIAL", lines: [`your witnesses are not known to have seen the end of this run, event ${last}`, ...lines] };
  }
  return verdict;
}

/** The largest tree that a witness cosigned, in the checkpoint or in the file `witnessed`. */
async function cosigned(source, log, key) {
  let best = null;
  for (const path of ["log/checkpoint", "witnessed"]) {
    const bytes = await source.read(path, 1000000);
    if (!bytes) continue;
    const note = parseNote(bytes, path);
    const { signed, unread } = await signersOf(note, [key], path);
    if (!signed.length && !unread.length) continue;
    const checkpoint = parseCheckpoint(note, path);
    if (checkpoint.origin !== log.origin) throw new Wrong("a cosignature of another log", { where: path, found: visible(checkpoint.origin) });
    if (checkpoint.size > log.size) throw new Wrong("a witness saw a longer log than this one", { where: path, found: `${checkpoint.size} events` });
    if (!same(merkleRoot(log.leaves, 0, checkpoint.size), checkpoint.root)) throw new Wrong("a witness saw another history of this log", { where: path });
    if (!best || checkpoint.size > best.size) best = { size: checkpoint.size, time: signed[0]?.time ?? 0, unread: !signed.length };
  }
  if (!best) throw new Missing("it has cosigned nothing that is here", { where: "log/checkpoint, witnessed" });
  return best;
}

async function judgeRun(source, log, report, execute, progress) {
  let record = null;
  const opened = new Findings();
  await opened.look("", async () => {
    if (!report.run) throw new Missing("the log has no run");
    record = new Record(log, report.run);
    record.check();
  });
  if (!record?.started) {
    report.verdicts.record = opened.verdict([]);
    return;
  }
  report.verdicts.record = recordVerdict(record);
  const store = new Store(source);
  const found = new Findings();
  const lines = await judgeHashes(store, record, found, progress);
  report.verdicts.hash = found.verdict(lines);
  let whole = [];
  if (execute !== "none") {
    const tried = new Findings();
    await tried.look("", async () => {
      const done = await judgeExecution(store, record, execute, progress);
      whole = done.whole;
      report.execution = { outcome: done.outcome, lines: [...done.lines, UNKNOWN, UNJUDGED] };
    });
    if (tried.wrong.length) report.execution = { outcome: "FAIL", lines: tried.wrong };
    else if (tried.missing.length) report.execution.lines = [...tried.missing, UNJUDGED];
  }
  const settled = { signature: report.verdicts.record, hash: report.verdicts.hash };
  report.claims = claimsOf(record).map((claim) => {
    const outcome = settled[claim.by]?.outcome;
    const signed = report.verdicts.signature.outcome;
    const word = { PASS: "established", FAIL: "contradicted" }[outcome] ?? "open";
    const done = claim.by === "execution" && signed !== "FAIL" && whole.includes(claim.event) ? "established" : "open";
    const status = claim.by === "claimed" ? "claimed" : claim.by === "execution" || signed === "FAIL" ? done : word;
    return { ...claim, status };
  });
}

function recordVerdict(record) {
  if (record.wrong.length) return { outcome: "FAIL", lines: record.wrong.map((line) => `the records contradict each other: ${line}`).slice(0, MOST_FINDINGS) };
  if (record.open.length) return { outcome: "UNAVAILABLE", lines: record.open.map((line) => `only claimed: ${line}`).slice(0, MOST_FINDINGS) };
  const count = record.stretches.reduce((sum, { events }) => sum + events.length, 0);
  const absent = record.isLoop ? [] : STEPS.filter((step) => !record.steps.has(step));
  const lines = [`${several(count, "event")} of the run agree with one another${absent.length ? `; it has no ${absent.join(", ")}` : ""}`];
  const link = record.started.body.continues;
  if (link) return { outcome: "PARTIAL", lines: [`it continues run ${visible(link.run)} from train step ${link.step}: judge that run too, by its name`, ...lines] };
  if (!record.completed) return { outcome: "PARTIAL", lines: ["the run has not come to its end", ...lines] };
  if (record.isLoop) lines.push("a loop of its user's own recorded it: nothing of it can be executed again");
  return { outcome: "PASS", lines };
}

/** Everything that a run names in the store: digest, and what it is. */
function namedBy(record, gone) {
  const named = new Map();
  const name = (digest, what) => {
    if (typeof digest === "string" && DIGEST.test(digest) && !named.has(digest)) named.set(digest, what);
  };
  const initial = member(record.recipe, "initial");
  name(member(initial, "model"), "the model that it begins with");
  name(member(initial, "tokenizer"), "the tokenizer of that model");
  name(member(member(record.recipe, "tokenizer"), "artifact"), "the tokenizer that was taken over");
  if (member(record.started.body, "experiment")) name(record.started.body.experiment, "the registration that it cites");
  const objective = member(record.recipe, "objective");
  name(member(objective, "questions"), "the prompts that completions are drawn of");
  name(member(member(objective, "reward"), "digest"), "the code of the reward");
  name(member(member(objective, "judge"), "artifact"), "the state that judges completions");
  for (const [step, view] of record.steps) {
    name(view.output.artifact, `output of ${step}`);
    for (const [table, digest] of Object.entries(view.tables)) name(digest, `table ${table} of ${step}`);
  }
  for (const { body } of record.checkpoints) {
    if (!gone.has(body.artifact)) name(body.artifact, `training checkpoint of step ${body.step}`);
    name(body.manifest, `list of tensors of step ${body.step}`);
  }
  const learned = Boolean(member(record.recipe, "objective")); // the batches of such a run are stored completions
  for (const { body } of record.segments) {
    if (learned) body.batches.forEach((digest, n) => name(digest, `completions of train step ${body.start + n}`));
  }
  for (const { body } of record.segments) name(body.trace, `trace of train steps ${body.start} to ${body.end - 1}`);
  for (const { body } of record.loop) name(body.manifest, `list of tensors after train step ${body.end - 1}`);
  for (const { body } of record.training) name(body.manifest, `list of tensors of step ${body.first_step}`);
  for (const { index, body } of record.evaluations) {
    name(body.samples, `samples of event ${index}`);
    for (const one of Object.values(isObject(body.sets) ? body.sets : {})) {
      name(member(one, "data"), `data of event ${index}`);
      name(member(one, "scores"), `scores of event ${index}`);
    }
  }
  return named;
}

/** That an event repeats the stored registration which it digests; arms that this program cannot name again are compared by their names. */
async function checkRegistration(store, body) {
  const stated = JSON.parse(decoder.decode(await store.blob(body.registration)));
  const repeated = ["question", "hypothesis", "primary", "secondary", "baseline", "seeds", "test", "alternative", "alpha", "stopping_rule", "cost_cap"];
  for (const [field, name] of [["experiment", "name"], ...repeated.map((one) => [one, one])]) {
    const [told, stood] = [member(body, field) ?? null, member(stated, name) ?? null];
    if (!equalValues(told, stood)) throw new Wrong("the event says otherwise than the stored registration", { where: field, expected: shown(stood), found: shown(told) });
  }
  const [arms, apart] = [member(stated, "arms"), member(stated, "apart")].map((one) => (isObject(one) ? one : {}));
  const [stood, told] = [arms, body.arms].map((one) => Object.keys(one).sort());
  if (!equalValues(stood, told)) throw new Wrong("the event says otherwise than the stored registration", { where: "arms", expected: shown(stood), found: shown(told) });
  for (const [name, recipe] of Object.entries(arms)) {
    if (!isObject(recipe) || member(recipe, "phase") || madeData(recipe)) continue;
    const label = member(apart, name);
    const arm = label ? canonicalDigest([armDigest(recipe), String(label)]) : armDigest(recipe);
    if (arm !== body.arms[name]) throw new Wrong("the event says otherwise than the stored registration", { where: `arm ${visible(name)}`, expected: arm, found: shown(body.arms[name]) });
  }
}

async function judgeHashes(store, record, found, progress) {
  const gone = record.letGo();
  const named = namedBy(record, gone);
  const all = named.size + record.steps.size + record.checkpoints.length;
  const content = new Set(record.checkpoints.map(({ body }) => body.artifact)); // their files are hashed where they are digested
  for (const { output } of record.steps.values()) if (BY_CONTENT.includes(output.kind)) content.add(output.artifact);
  let done = 0;
  for (const [digest, what] of named) {
    await found.look(what, async () => {
      const files = await store.tree(digest);
      if (!files) await store.blob(digest);
      else if (!content.has(digest)) for (const entry of files) await found.look(`${what}, ${visible(entry.path)}`, () => store.check(entry));
    });
    await progress("hash", ++done, all);
  }
  for (const event of record.registrations()) await found.look(`registration of event ${event.index}`, () => checkRegistration(store, event.body));
  const looked = { exported: null, parameters: null };
  const ends = new Map(); // of stored states: the fingerprints of their tensors, by train step
  for (const [step, view] of record.steps) {
    await found.look(`output of ${step}`, () => checkOutput(store, view, looked));
    await progress("hash", ++done, all);
  }
  for (const event of record.checkpoints) {
    if (!gone.has(event.body.artifact)) {
      await found.look(`training checkpoint of step ${event.body.step}`, () => checkCheckpoint(store, event.body, ends));
    }
    await progress("hash", ++done, all);
  }
  for (const { body } of [...record.training, ...record.checkpoints.filter((one) => gone.has(one.body.artifact))]) {
    await found.look(`list of tensors of step ${body.first_step ?? body.step}`, () => checkList(store, body.manifest, body.state));
  }
  for (const { body } of record.loop) {
    if (body.manifest) await found.look(`list of tensors after train step ${body.end - 1}`, () => checkList(store, body.manifest, body.state));
  }
  await checkTables(store, record, found);
  const norms = record.norms();
  let prints = 0;
  for (const { body } of record.segments) {
    await found.look(`train steps ${body.start} to ${body.end - 1}`, async () => {
      const trace = await store.blob(body.trace);
      prints += checkFingerprints(body, norms, trace);
      if (ends.has(body.end)) checkLastRow(body, ends.get(body.end), trace);
    });
  }
  const lines = [
    `${several(named.size, "artifact")} hashed again (${several(store.hashed, "file")}, ${(store.bytes / 1e6).toFixed(1)} MB), and the content of every output and checkpoint digested`,
  ];
  if (prints) lines.push(`the fingerprints of ${several(prints, "train step")} follow from loss, gradient norm and trace`);
  if (looked.exported && looked.parameters && !member(record.recipe, "lora")) {
    await found.look("output of export", async () => {
      const compared = compareExport(looked.exported, looked.parameters);
      lines.push(`${compared.length} of ${several(looked.exported.length, "exported tensor")} are, byte for byte, those of the last state`);
    });
  }
  if (gone.size) lines.push(`${several(gone.size, "training checkpoint")} were not asked for: the run lets them go`);
  return lines;
}

async function checkOutput(store, { output, step }, looked) {
  const files = await store.tree(output.artifact);
  if (!files) {
    if (Object.hasOwn(FILES, output.kind) || BY_CONTENT.includes(output.kind)) {
      throw new Missing("the list of its files is not here", { where: store.place("trees", output.artifact) });
    }
    const bytes = await store.blob(output.artifact);
    if (bytes.length !== output.size || output.digest !== output.artifact) throw new Wrong("it is not the file that is recorded", { expected: output.digest });
    return;
  }
  const allowed = Object.hasOwn(FILES, output.kind) ? FILES[output.kind] : null;
  for (const { path, executable } of files) {
    const known = Object.hasOwn(FILES, output.kind) || BY_CONTENT.includes(output.kind);
    if (executable && known) throw new Wrong("an executable file", { where: visible(path), expected: `the files of a ${output.kind}` });
    if (allowed && !allowed.test(path)) throw new Wrong("a file that it can not have", { where: visible(path), expected: `the files of a ${output.kind}` });
  }
  if (output.kind === "tokens") {
    const { digest, size } = await readTokens(store, files);
    compareOutput(output, digest, size);
  } else if (output.kind === "state") {
    const list = files.find(({ path }) => path === "state.json");
    const stray = files.find(({ path }) => path !== "state.json" && !path.startsWith("checkpoint/"));
    if (!list || stray) throw new Wrong("files that a state has not", { where: visible(stray?.path ?? "state.json") });
    const found = await readState(store, below(files, "checkpoint/"), "checkpoint", (path) => path.startsWith("model/"));
    if (!same(await store.file(list), found.list)) throw new Wrong("its list of tensors is another than that by its bytes", { where: "state.json" });
    compareOutput(output, found.digest, found.nbytes);
    if (step === "train") looked.parameters = found.kept;
  } else {
    if (output.artifact !== output.digest) throw new Wrong("it is not its own digest", { expected: output.digest, found: output.artifact });
    compareOutput(output, output.artifact, files.reduce((sum, { size }) => sum + size, 0));
    const weights = files.find(({ path }) => path === "model.safetensors");
    if (weights && output.kind === "model") looked.exported = readSafetensors(await store.file(weights), "model.safetensors");
  }
}

function compareOutput(output, digest, size) {
  if (digest !== output.digest) throw new Wrong("digest: it has other content", { expected: output.digest, found: digest });
  if (size !== output.size) throw new Wrong("size", { expected: `${output.size} bytes`, found: `${size} bytes` });
}

async function checkCheckpoint(store, body, ends) {
  const files = await store.tree(body.artifact);
  if (!files) throw new Missing("the list of its files is not here", { where: store.place("trees", body.artifact) });
  const size = files.reduce((sum, entry) => sum + entry.size, 0);
  if (size !== body.size) throw new Wrong("size", { expected: `${body.size} bytes`, found: `${size} bytes` });
  const listed = await store.blob(body.manifest);
  const digest = stateDigest(parseState(listed, "manifest"));
  if (digest !== body.state) throw new Wrong("manifest: the list of tensors is that of another state", { expected: body.state, found: digest });
  const found = await readState(store, below(files, ""), `step ${body.step}`, () => true);
  if (found.digest !== body.state) throw new Wrong("its tensors are another state", { expected: body.state, found: found.digest });
  if (!same(found.list, listed)) throw new Wrong("its own state.json is another than the recorded list", { where: "state.json" });
  const tensors = [...found.kept.values()];
  if (tensors.every(({ dtype }) => [2, 4].includes(ITEM_BYTES.get(dtype)))) {
    ends.set(body.step, tensors.map(({ content, dtype }) => fingerprint(content, dtype).join()).sort());
  }
}

async function checkList(store, manifest, state) {
  const digest = stateDigest(parseState(await store.blob(manifest), "manifest"));
  if (digest !== state) throw new Wrong("it is that of another state", { expected: state, found: digest });
}

async function checkTables(store, record, found) {
  const tables = record.steps.get("train")?.tables ?? {};
  for (const [name, digest] of Object.entries(tables)) {
    await found.look(`table ${visible(name)} of train`, async () => {
      if (record.isLoop) return;
      if (name !== "loss") throw new Wrong("training makes no such table");
      const losses = record.segments.flatMap(({ body }) => body.losses.map(hexFloat));
      const first = record.segments[0]?.body.start ?? 0;
      const text = `step,loss\n${losses.map((loss, n) => `${first + n},${pythonNumber(loss)}\n`).join("")}`;
      if (!same(await store.blob(digest), encoder.encode(text))) throw new Wrong("not the losses that the segments record");
    });
  }
}

/** The fingerprint of each train step is the digest of its loss, its gradient norm and the tensors' fingerprints after it. */
function checkFingerprints(segment, norms, trace) {
  const length = segment.end - segment.start;
  if (length < 1 || trace.length % (8 * length)) throw new Wrong("a trace of another length", { found: `${trace.length} bytes` });
  const width = trace.length / length;
  let derived = 0;
  segment.losses.forEach((loss, n) => {
    const norm = norms.get(segment.start + n);
    if (norm === undefined) return;
    const head = new DataView(new ArrayBuffer(8));
    head.setFloat32(0, hexFloat(loss), true);
    head.setFloat32(4, norm, true);
    const found = digestText(sha256(new Uint8Array(head.buffer), trace.subarray(n * width, (n + 1) * width)));
    if (found !== segment.fingerprints[n]) {
      throw new Wrong(`train step ${segment.start + n}: its fingerprint does not follow from loss, gradient norm and trace`, {
        expected: found, found: visible(String(segment.fingerprints[n])),
      });
    }
    derived += 1;
  });
  return derived;
}

/** The last row of a trace is of the state that is stored after the segment; the record does not say in which order. */
function checkLastRow(segment, expected, trace) {
  const row = trace.subarray((trace.length / (segment.end - segment.start)) * (segment.end - segment.start - 1));
  const found = [];
  for (let at = 0; at < row.length; at += 8) found.push(`${littleEndian(row, at, 4)},${littleEndian(row, at + 4, 4)}`);
  if (found.sort().join(" ") !== expected.join(" ")) {
    throw new Wrong("the trace ends in another state than the one that is stored", { where: `before train step ${segment.end}` });
  }
}

/** Train steps executed again: one that is drawn here, one that is named with those before it, or all that can be. */
async function judgeExecution(store, record, asked, progress) {
  const { recipe } = record;
  if (member(member(recipe, "arithmetic"), "profile") !== "exact") {
    throw new Missing("the run was not trained under profile exact, whose train steps alone are executed here");
  }
  for (const name of ["lora", "exclude", "objective"]) if (member(recipe, name)) throw new Missing(`a recipe with ${name}, which is not executed here`);
  const programs = await readPrograms(store.source, record);
  const files = await store.tree(record.steps.get("tokens")?.output.artifact ?? `sha256:${"0".repeat(64)}`);
  if (!files) throw new Missing("the tokens are not here");
  const { streams } = await readTokens(store, files);
  const norms = record.norms();
  const order = ["step", "cursor", "key", ...programs.hints.parameters, ...programs.hints.moments];
  const work = chosenSteps(record, asked, programs.initial !== null);
  if (!work.length) throw new Missing("no segment begins with a state that is known here, so that it could be executed");
  const found = new Findings();
  const [lines, whole] = [[], []];
  const all = work.reduce((sum, { segment, last }) => sum + last - segment.body.start, 0);
  let done = 0;
  let ended = null; // the state in which the segment before ended here
  for (const { segment, saved, last } of work) {
    const { body, index } = segment;
    const begun = ended?.step === body.start ? ended : null;
    ended = null;
    await found.look(`train steps ${body.start} to ${last - 1}`, async () => {
      const pause = () => progress("execution", done, all);
      if (!saved && !begun && body.start !== record.first) throw new Missing("the state before them is not known here: those before it were not executed");
      const { state, forms, from } = saved ? await storedState(store, saved, body) : begun ?? (await initialState(programs, order, pause));
      if (from === "the initial program") await compareState(state, forms, body.start_state, "they begin with another state than the initial program gives");
      const trace = await store.blob(body.trace);
      let now = state;
      for (let step = body.start; step < last; step++) {
        const batch = batchOf(record, programs.hints, streams, step, body.batches[step - body.start]);
        const made = await trainStep(programs, now, batch, recipe.trainer.batch_size, pause);
        compareStep(body, step, made, norms, trace, order);
        now = made.next;
        done += 1;
      }
      const several_ = last - body.start > 1 ? `s ${body.start} to ${last - 1}` : ` ${body.start}`;
      lines.push(`train step${several_} executed again from ${from}: loss, gradient norm and the fingerprints of all ${now.size} tensors are the recorded ones`);
      if (last < body.end) return;
      await compareState(now, forms, body.end_state, "they end in another state");
      whole.push(index);
      ended = { step: body.end, state: now, forms, from: "the state in which those before it ended here" };
    });
  }
  const left = record.segments.length - whole.length;
  if (asked === "all") lines.push(left ? `${several(left, "segment")} of ${record.segments.length} could not be executed here` : `all ${several(done, "train step")} of the run were executed here`);
  const verdict = found.verdict(lines);
  return { ...verdict, outcome: verdict.outcome === "PASS" ? "PARTIAL" : verdict.outcome, whole };
}

/** A state as the store has it, with the forms of its tensors. */
async function storedState(store, saved, body) {
  const files = await store.tree(saved.artifact);
  if (!files) throw new Missing("the list of its files is not here", { where: store.place("trees", saved.artifact) });
  const read = await readState(store, below(files, ""), `step ${body.start}`, () => true);
  if (read.digest !== body.start_state) throw new Wrong("they begin with another state", { expected: body.start_state, found: read.digest });
  const state = new Map([...read.kept].map(([path, { dtype, content }]) => [path, arrayOf(dtype, content)]));
  return { state, forms: read.kept, from: "the stored state" };
}

/** The state before the first train step, which its program makes of nothing. `order`: the paths of its tensors. */
async function initialState({ initial, constants }, order, pause) {
  if (!initial) throw new Missing("the state that it begins with is not known here");
  if (initial.inputs.length || initial.outputs.length !== order.length) {
    throw new Wrong("the initial program gives other tensors than the state has", { expected: `${order.length}`, found: `${initial.outputs.length}` });
  }
  const made = await execute(initial, [], constants, pause);
  const forms = new Map(order.map((path, n) => {
    const [dtype, shape] = initial.forms[initial.outputs[n]];
    return [path, { dtype, shape }];
  }));
  return { state: new Map(order.map((path, n) => [path, made[n]])), forms, from: "the initial program" };
}

async function compareState(state, forms, expected, what) {
  const tensors = [];
  for (const [path, data] of state) {
    const { dtype, shape } = forms.get(path);
    tensors.push({ path, digest: await tensorDigest(dtype, shape, bytesOf(data)) });
  }
  const digest = stateDigest(tensors.sort(byPath));
  if (digest !== expected) throw new Wrong(what, { expected, found: digest });
}

/** Which segments are executed, from which stored states, and up to which train step; each of them follows a state that is known. */
function chosenSteps(record, asked, begun) {
  const gone = record.letGo();
  const begins = new Map(record.checkpoints.filter(({ body }) => !gone.has(body.artifact)).map(({ body }) => [body.step, body]));
  const known = ({ body }) => begins.has(body.start) || (begun && body.start === record.first);
  const work = (segment, last = segment.body.end) => ({ segment, saved: begins.get(segment.body.start), last });
  if (asked === "one") {
    const some = record.segments.filter(known);
    return some.length ? [some[drawnBelow(some.length)]].map((segment) => work(segment, segment.body.start + 1)) : [];
  }
  const first = record.segments.findIndex(known);
  if (first < 0) return [];
  if (asked === "all") return record.segments.slice(first).map((segment) => work(segment));
  const step = Number(asked);
  const at = record.segments.findIndex(({ body }) => step >= body.start && step < body.end);
  const from = record.segments.findLastIndex((segment, n) => n <= at && known(segment));
  return from < 0 ? [] : record.segments.slice(from, at + 1).map((segment, n) => work(segment, n + from === at ? step + 1 : undefined));
}

/** A number below another, by the reader's own dice. */
function drawnBelow(count) {
  return globalThis.crypto.getRandomValues(new Uint32Array(1))[0] % count;
}

function compareStep(segment, step, { next, loss, norm }, norms, trace, order) {
  const at = step - segment.start;
  const refuse = (what, expected, told) => new Wrong(`train step ${step}, executed again, has another ${what}`, { expected, found: told });
  const recorded = hexFloat(segment.losses[at]);
  if (!Object.is(loss, recorded)) throw refuse("loss", `${recorded}`, `${loss}`);
  if (norms.has(step) && !Object.is(norm, norms.get(step))) throw refuse("gradient norm", `${norms.get(step)}`, `${norm}`);
  const width = trace.length / (segment.end - segment.start);
  if (width !== 8 * order.length) throw new Wrong("the trace has another number of tensors", { expected: `${order.length}`, found: `${width / 8}` });
  order.forEach((path, n) => {
    const [one, two] = fingerprint(bytesOf(next.get(path)), "float32");
    const place = at * width + 8 * n;
    if (one !== littleEndian(trace, place, 4) || two !== littleEndian(trace, place + 4, 4)) {
      throw refuse(`tensor ${visible(path)}`, "the recorded fingerprint", `${one}, ${two}`);
    }
  });
  const head = new DataView(new ArrayBuffer(8));
  head.setFloat32(0, loss, true);
  head.setFloat32(4, norm, true);
  const derived = digestText(sha256(new Uint8Array(head.buffer), trace.subarray(at * width, (at + 1) * width)));
  if (derived !== segment.fingerprints[at]) throw refuse("fingerprint", segment.fingerprints[at], derived);
}

// ----------------------------------------------------------------------------------------------------------------- 10. node

/** Files below an address: a plain file server, and nothing else is asked. */
export class AddressSource {
  constructor(address) {
    this.base = new URL(address.endsWith("/") ? address : `${address}/`);
  }

  async read(path, most) {
    const where = new URL(path, this.base);
    let answer;
    try {
      answer = await fetch(where, { redirect: "error", credentials: "omit", cache: "no-store" });
    } catch (error) {
      throw new Missing("the server does not answer", { where: where.href, found: String(error.cause?.code ?? error.message) });
    }
    if ([403, 404, 410].includes(answer.status)) return null;
    if (!answer.ok) throw new Missing("the server does not give a file", { where: where.href, found: `${answer.status}` });
    const parts = [];
    let size = 0;
    for (const reader = answer.body.getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) return joined(parts);
      size += value.length;
      if (size > most) {
        await reader.cancel();
        throw new Missing("a file is larger than it can be, or than this page reads", { where: where.href, expected: `at most ${most} bytes` });
      }
      parts.push(value);
    }
  }

  async list() {
    return [];
  }
}

class FolderSource {
  constructor(fs, folder) {
    this.fs = fs;
    this.folder = folder;
  }

  async read(path, most) {
    const file = `${this.folder}/${path}`;
    const told = await this.fs.lstat(file).catch(() => null);
    if (!told || told.isDirectory()) return null;
    if (!told.isFile()) throw new Wrong("no regular file", { where: path });
    if (told.size > most) throw new Missing("a file is larger than it can be, or than this program reads", { where: path, found: `${told.size} bytes` });
    return new Uint8Array(await this.fs.readFile(file));
  }

  async list(folder) {
    return this.fs.readdir(`${this.folder}/${folder}`).catch(() => []);
  }
}

const USAGE = "usage: node check.mjs FOLDER --vkey KEY [--vkey KEY] [--witness KEY] [--run RUN] [--execute one|all|none|STEP] [--json]";

function parseArguments(words) {
  const asked = { folder: "", keys: [], witnesses: [], run: "", execute: "one", json: false };
  for (let at = 0; at < words.length; at++) {
    const [name, inline] = words[at].startsWith("--") && words[at].includes("=") ? words[at].split(/=(.*)/s) : [words[at]];
    const value = () => {
      const found = inline ?? words[++at];
      if (found === undefined) throw new Usage(`${name} needs a value\n${USAGE}`);
      return found;
    };
    if (name === "--vkey") asked.keys.push(value());
    else if (name === "--witness") asked.witnesses.push(value());
    else if (name === "--run") asked.run = value();
    else if (name === "--execute") asked.execute = value();
    else if (name === "--json") asked.json = true;
    else if (name.startsWith("-") || asked.folder) throw new Usage(`unknown argument ${words[at]}\n${USAGE}`);
    else asked.folder = name;
  }
  if (!asked.folder) throw new Usage(USAGE);
  if (!/^(one|all|none|[0-9]{1,15})$/.test(asked.execute)) throw new Usage(`--execute: expected one, all, none or a number, found ${asked.execute}`);
  return asked;
}

function printed(report) {
  const lines = [`run ${visible(report.run)} of log ${visible(report.origin)}`];
  for (const [name, { outcome, lines: told }] of Object.entries(report.verdicts)) {
    lines.push(`${name.padEnd(10)} ${outcome}`, ...told.map((line) => `           ${line}`));
  }
  for (const name of ["execution", "pages"]) lines.push(`${name.padEnd(10)} ${report[name].outcome}`, ...report[name].lines.map((line) => `           ${line}`));
  for (const [status, by, title] of HEADINGS) {
    const own = report.claims.filter((claim) => claim.status === status && claim.by === by);
    if (own.length) lines.push("", `${title}:`, ...own.map(({ claim }) => `  ${claim}`));
  }
  return `${lines.join("\n")}\n`;
}

const HEADINGS = [
  ["contradicted", "signature", "not established: the record contradicts some of these"],
  ["contradicted", "hash", "not established: the bytes contradict some of these"],
  ["established", "signature", "established by signature"],
  ["established", "hash", "established by hash"],
  ["established", "execution", "established by execution, from the state that it begins with"],
  ["open", "signature", "not established: signatures were not checked, or not all"],
  ["open", "hash", "not established: bytes were not hashed"],
  ["open", "execution", "not established: nothing was executed for it"],
  ["claimed", "claimed", "claimed by this log, and established by nobody here"],
];

async function main(words) {
  try {
    const asked = parseArguments(words);
    const fs = await import("node:fs/promises");
    const remote = /^https?:\/\//.test(asked.folder);
    if (!remote && !(await fs.stat(asked.folder).catch(() => null))?.isDirectory()) throw new Usage(`there is no folder ${asked.folder}`);
    const report = await judge(remote ? new AddressSource(asked.folder) : new FolderSource(fs, asked.folder), asked);
    process.stdout.write(asked.json ? `${JSON.stringify(report, null, 1)}\n` : printed(report));
    return report.exit;
  } catch (error) {
    if (!(error instanceof Usage)) throw error;
    process.stderr.write(`error: ${visible(error.message.replaceAll("\n", " | "))}\n`);
    return 2;
  }
}

if (typeof process !== "undefined" && process.versions?.node && process.argv[1]) {
  const { realpathSync } = await import("node:fs");
  const { pathToFileURL } = await import("node:url");
  if (import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) {
    process.removeAllListeners("warning"); // node 20 calls Ed25519 experimental
    process.exitCode = await main(process.argv.slice(2));
  }
}

// -------------------------------------------------------------------------------------------------------------- 11. the page

/** A folder that the reader chose: its files are read here and go nowhere. */
class ChosenSource {
  constructor(files) {
    this.files = new Map(files);
  }

  async read(path, most) {
    const file = this.files.get(path);
    if (!file) return null;
    if (file.size > most) throw new Missing("a file is larger than it can be, or than this page reads", { where: path, found: `${file.size} bytes` });
    return new Uint8Array(await file.arrayBuffer());
  }

  async list(folder) {
    return [...this.files.keys()].filter((path) => path.startsWith(`${folder}/`)).map((path) => path.slice(folder.length + 1));
  }
}

const MEANS = {
  signature: {
    title: "Is it what they signed?",
    PASS: "Yes. The holder of the key that you gave signed this very list of events: none was changed or slipped in, and none left out of its middle. Whether it is the newest list, only a witness can say.",
    FAIL: "No. Something in the list of events is not what the holder of the key that you gave signed.",
    other: "That could not be established.",
  },
  record: {
    title: "Does it agree with itself?",
    PASS: "Yes. What was recorded of the run in one place is what was recorded of it in all others.",
    FAIL: "No. What was recorded of the run in one place contradicts what was recorded of it in another.",
    other: "Nothing contradicts itself, and not all of it could be compared.",
  },
  hash: {
    title: "Are the files the recorded ones?",
    PASS: "Yes. Every file of the run, from the text to the model, is bit for bit the one that was recorded.",
    FAIL: "No. A file is not the one that was recorded, or not what the record calls it.",
    other: "Not all files are here, or could be read.",
  },
};
const SEALS = {
  PASS: ["good", "It holds, as far as this page can look"],
  FAIL: ["bad", "It does not hold"],
  PARTIAL: ["mid", "Nothing is wrong in what was looked at, and not all of it was"],
};

function element(name, words = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = words;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function listOf(lines) {
  const list = element("ul");
  list.append(...lines.map((line) => element("li", line)));
  return list;
}

function drawReport(report, place) {
  const [mood, title] = SEALS[report.outcome] ?? ["mid", "It could not be established"];
  const seal = element("div", "", { class: `seal ${mood}` });
  const words = element("div");
  const heading = element("h2", title, { tabindex: "-1", id: "found" });
  words.append(heading, element("p", `Run ${visible(report.run)} of the log ${visible(report.origin) || "that is here"}.`));
  const some = report.execution.outcome === "not judged" ? "none was executed here" : "some were executed here";
  words.append(element("p", `Not judged: whether all of its steps, made again, give the same numbers; ${some}.`));
  seal.append(words);
  place.replaceChildren(seal);
  for (const [name, { outcome, lines }] of Object.entries(report.verdicts)) {
    const { title: asked, other, ...answers } = MEANS[name];
    const head = element("h3", `${asked} `);
    const notRun = outcome === "NOT_RUN" ? "This was not looked at: what it rests on does not hold." : other;
    head.append(element("span", `${name}: ${outcome}`, { class: { PASS: "good", FAIL: "bad" }[outcome] ?? "mid" }));
    place.append(head, element("p", answers[outcome] ?? notRun), listOf(lines));
  }
  const work = element("h3", "Would the same work give the same numbers? ");
  const did = report.execution.outcome;
  work.append(element("span", `execution: ${did}`, { class: did === "FAIL" ? "bad" : "mid" }));
  const meant = { PARTIAL: "What was executed here gave every recorded bit.", FAIL: "No. A train step, executed here, gave something else than was recorded." };
  place.append(work, element("p", meant[did] ?? "Nothing was executed here."), listOf(report.execution.lines));
  const shown = element("h3", "Do the pages beside it say what the log says? ");
  shown.append(element("span", `pages: ${report.pages.outcome}`, { class: report.pages.outcome === "FAIL" ? "bad" : "mid" }));
  const altered = report.pages.outcome === "FAIL" ? "No. A page is not the one that the log's key signed." : "That was not looked at here.";
  place.append(shown, element("p", altered), listOf(report.pages.lines));
  for (const [status, by, name] of HEADINGS) {
    const own = report.claims.filter((claim) => claim.status === status && claim.by === by);
    if (!own.length) continue;
    const more = element("details");
    more.append(element("summary", `${name} (${own.length})`), listOf(own.map(({ claim }) => claim)));
    place.append(more);
  }
  heading.focus();
}

function drawError(error, place) {
  const said = error instanceof Usage ? error.message : `This page met something that it has no word for: ${error.message}`;
  const heading = element("h2", "It was not checked", { tabindex: "-1" });
  place.replaceChildren(heading, element("p", visible(said)));
  heading.focus();
}

class Stopped extends Error {}

const WORKER = "judge"; // the name of a worker that answers one question

/** What the page asks: of which files, and what. */
function answered({ files, address, asked }, progress) {
  return judge(files.length ? new ChosenSource(files) : new AddressSource(address), { ...asked, progress });
}

/** The answer of a worker with this very program: the page stays awake, and to stop it is to end it. Null where a browser has none. */
function fromWorker(program, question, progress, stop) {
  return new Promise((resolve, reject) => {
    const address = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
    let worker;
    try {
      worker = new Worker(address, { type: "module", name: WORKER });
    } catch {
      // a browser may refuse one at once, by a policy or for a page from a disk
      URL.revokeObjectURL(address);
      resolve(null);
      return;
    }
    const end = (settle, value) => {
      worker.terminate();
      URL.revokeObjectURL(address);
      settle(value);
    };
    let begun = false;
    worker.onerror = (event) => (begun ? end(reject, new Error(event.message ?? "the worker ended")) : end(resolve, null));
    worker.onmessage = ({ data: { part, found, error } }) => {
      begun = true;
      if (part) progress(...part).catch(() => {});
      else if (error) end(reject, error.asked ? new Usage(error.said) : new Error(error.said));
      else if (found) end(resolve, found);
    };
    stop.addEventListener("click", () => end(reject, new Stopped()), { once: true });
    worker.postMessage(question);
  });
}

if (typeof WorkerGlobalScope !== "undefined" && globalThis.name === WORKER) {
  postMessage({});
  let told = 0;
  const progress = async (...part) => {
    if (performance.now() - told < 30) return;
    told = performance.now();
    postMessage({ part });
  };
  onmessage = async ({ data }) => {
    try {
      postMessage({ found: await answered(data, progress) });
    } catch (error) {
      postMessage({ error: { said: error.message, asked: error instanceof Usage } });
    }
  };
}

function page() {
  const at = (id) => document.getElementById(id);
  const [form, report, bar, status, stop, start] = ["check", "report", "bar", "status", "stop", "start"].map(at);
  const served = location.protocol === "http:" || location.protocol === "https:";
  const program = [...document.scripts].find(({ type }) => type === "module").textContent;
  at("program").textContent = digestText(sha256(encoder.encode(program)));
  at("run").value = /^#[a-z0-9]{1,64}$/.test(location.hash) ? location.hash.slice(1) : "";
  if (!served) at("place").textContent = "This page was opened from a disk: choose the folder that you want to check.";
  at("folder").required = !served;
  let wanted = true;
  let rested = 0;
  stop.addEventListener("click", () => {
    wanted = false;
  });
  const progress = async (part, done, all) => {
    const [from, share] = { log: [0, 0.1], hash: [0.1, 0.5], execution: [0.6, 0.39], pages: [0.99, 0.01] }[part];
    bar.value = from + share * (done / all);
    if (performance.now() - rested > 30) {
      await new Promise((resolve) => setTimeout(resolve)); // the page stays awake, and the button to stop works
      rested = performance.now();
    }
    if (!wanted) throw new Stopped();
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    wanted = true;
    [start.disabled, stop.disabled, bar.hidden] = [true, false, false];
    status.textContent = "Checking.";
    const split = (id) => at(id).value.split("\n").map((line) => line.trim()).filter(Boolean);
    const files = [...at("folder").files].map((file) => [file.webkitRelativePath.replace(/^[^/]*\//, ""), file]);
    try {
      const asked = { keys: split("key"), witnesses: split("witnesses"), run: at("run").value.trim(), execute: at("step").value.trim() || at("execute").value };
      const question = { files, address: new URL(".", location.href).href, asked };
      const found = (await fromWorker(program, question, progress, stop)) ?? (await answered(question, progress));
      drawReport(found, report);
      report.dataset.found = JSON.stringify(found);
      status.textContent = "Done.";
    } catch (error) {
      if (error instanceof Stopped) status.textContent = "Stopped. Nothing is known of what was not looked at.";
      else {
        status.textContent = "";
        drawError(error, report);
      }
    } finally {
      [start.disabled, stop.disabled, bar.hidden] = [false, true, true];
    }
  });
}

if (typeof document !== "undefined" && document.getElementById("check")) page();

/** The parts, for tests by vectors. */
export { Store, batchOf, canonical, checkedManifest, execute, isBlob, leafHash, merkleRoot, openCheckpoint, parseCanonical, parseEvent, parseKey, parseProof, provenRoot, pythonNumber };
export { readPackIndex, readTokens, ruled, sha256, stateDigest, tensorDigest, unpackBundle, zstd };
