"""Verified reads, proofs, the projection and roots read over http: what comes out, and that changed bytes do not."""

import functools
import http.server
import json
import sqlite3
import threading

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import (
    Draft,
    LedgerError,
    Log,
    LogProof,
    LogReader,
    Malformed,
    NotFound,
    PosixStorage,
    Projection,
    Refused,
    Signer,
    StorageFailed,
    Tampered,
    Unavailable,
    Unverified,
    check,
    make_proof,
    open_storage,
    verify_proof,
)
from ledger.format.tlog import leaf_hash, root_of, verify_inclusion
from ledger.witness.consistency import verify_consistency
from tests.ledger.memory import MemoryStorage

SIZE = 600


def drafts(start, end):
    return [
        Draft("t.even/v1" if n % 2 == 0 else "t.odd/v1", f"s/{n % 3}", {"n": n}, id=f"{n:04d}")
        for n in range(start, end)
    ]


@pytest.fixture(scope="module")
def files(signer):
    """A log of 600 events, 590 of them published."""
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append(drafts(0, 590))
    log = Log.open(storage, signer, publish_seconds=3600)
    log.append(drafts(590, 595))
    log.append(drafts(595, SIZE))
    return dict(storage.files)


@pytest.fixture
def storage(files):
    return MemoryStorage(files, readonly=True)


@pytest.fixture
def reader(storage, signer):
    return LogReader(storage, [signer.verifier], origin=signer.name)


def test_all_entries_are_there_in_order(reader):
    assert (reader.checkpoint().size, reader.published().size) == (SIZE, 590)
    assert [event.body["n"] for _, event in reader.events()] == list(range(SIZE))
    leaves = [leaf_hash(entry) for _, entry in reader.entries()]
    assert root_of(leaves) == reader.checkpoint().root


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (0, 1), (255, 257), (589, 591), (595, 600), (512, None), (600, 600)]
)
def test_ranges(reader, start, end):
    expected = list(range(start, SIZE if end is None else end))
    assert [index for index, _ in reader.entries(start, end)] == expected
    assert [event.body["n"] for _, event in reader.events(start, end)] == expected


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, 601), (601, None)])
def test_ranges_outside_are_refused(reader, start, end):
    with pytest.raises(Refused):
        list(reader.entries(start, end))
    with pytest.raises(Refused):
        reader.entry(SIZE)


def test_proofs_hold_for_published_and_pending_entries(reader):
    root = reader.checkpoint().root
    for index in (0, 255, 256, 511, 512, 589, 590, 599):
        verify_inclusion(index, SIZE, reader.leaf_hash(index), reader.inclusion_proof(index), root)
    for index, size in ((0, 1), (255, 256), (300, 590), (590, 591)):
        verify_inclusion(index, size, reader.leaf_hash(index), reader.inclusion_proof(index, size), reader.root(size))
    for old in (0, 1, 255, 256, 257, 590, 595, 600):
        verify_consistency(old, SIZE, reader.root(old), root, reader.consistency_proof(old))
    for size in (-1, 601):
        with pytest.raises(Refused):
            reader.inclusion_proof(0, size)


def test_a_proof_stands_alone(reader, signer):
    for index in (0, 300, 599):
        text = str(make_proof(reader, index)).encode()
        proven = verify_proof(LogProof.parse(text), [signer.verifier])
        assert (proven.index, proven.entry) == (index, reader.entry(index))
        assert proven.checkpoint == reader.checkpoint()
    bare = LogProof(5, tuple(reader.inclusion_proof(5)), reader.note().decode())
    assert LogProof.parse(str(bare).encode()) == bare
    with pytest.raises(Refused, match="entry"):
        verify_proof(bare, [signer.verifier])
    assert verify_proof(bare, [signer.verifier], entry=reader.entry(5)).index == 5
    with pytest.raises(Unverified):
        verify_proof(bare, [signer.verifier], entry=reader.entry(6))
    with pytest.raises(Unverified):
        verify_proof(bare, [signer.verifier], entry=reader.entry(5), origin="log.example/other")
    with pytest.raises(Unverified):
        verify_proof(bare, [], entry=reader.entry(5))


def test_every_flipped_bit_of_a_proof_is_noticed(reader, signer):
    text = str(make_proof(reader, 300)).encode()
    for at in range(len(text)):
        for bit in (0, 3, 7):
            changed = bytearray(text)
            changed[at] ^= 1 << bit
            with pytest.raises(LedgerError):
                verify_proof(LogProof.parse(bytes(changed)), [signer.verifier])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"c2sp.org/tlog-proof@v2\nindex 0\n\n",
        b"c2sp.org/tlog-proof@v1\nindex 00\n\nnote",
        b"c2sp.org/tlog-proof@v1\nindex -1\n\nnote",
        b"c2sp.org/tlog-proof@v1\nextra !\nindex 1\n\nnote",
        b"c2sp.org/tlog-proof@v1\nindex 1\nAAAA\n\nnote",
        b"c2sp.org/tlog-proof@v1\n\nnote",
        b"c2sp.org/tlog-proof@v1\nindex 1\n" + b"A" * 43 + b"=\n" * 65 + b"\nnote",
        b"\xff",
        b"x" * 3_000_000,
    ],
)
def test_what_is_no_proof_is_malformed(data):
    with pytest.raises(Malformed):
        LogProof.parse(data)


@given(st.binary(max_size=200).map(lambda tail: b"c2sp.org/tlog-proof@v1\nindex 1\n" + tail) | st.binary(max_size=200))
def test_any_bytes_are_a_proof_or_malformed(data):
    try:
        proof = LogProof.parse(data)
    except Malformed:
        return
    assert str(proof).encode() == data


def test_a_changed_file_is_never_read(files, signer):
    """One bit in the middle of every file: anyone who reads everything is stopped, and told where."""
    for name in files:
        if name.startswith("projections") or name == "log/journal":
            continue
        data = bytearray(files[name])
        data[len(data) // 2] ^= 4
        reader = LogReader(MemoryStorage(files | {name: bytes(data)}), [signer.verifier])
        with pytest.raises((Tampered, Malformed, Unverified)) as caught:
            _ = [reader.entry(index) for index in (0, 300, 520)]
            list(reader.events())
            for index in (0, 300, 520):
                reader.inclusion_proof(index)
        assert name in str(caught.value) or name == "log/checkpoint"


def test_a_changed_journal_shows_no_wrong_event(files, signer):
    """What only the journal holds can be cut off, as by a torn write, but nothing else is ever shown in its place."""
    journal = files["log/journal"]
    for at in range(0, 9000, 389):
        data = bytearray(journal)
        data[at] ^= 1
        reader = LogReader(MemoryStorage(files | {"log/journal": bytes(data)}), [signer.verifier])
        size = reader.checkpoint().size
        assert size in (590, 595, SIZE)
        assert [event.body["n"] for _, event in reader.events()] == list(range(size))


def test_a_missing_file_is_named(files, signer):
    for name in files:
        if not name.startswith("log/tile/"):
            continue
        reader = LogReader(MemoryStorage({n: data for n, data in files.items() if n != name}), [signer.verifier])
        with pytest.raises(NotFound, match=name):
            list(reader.entries())


def test_swapped_bundles_are_noticed(files, signer):
    one, two = "log/tile/entries/000", "log/tile/entries/001"
    reader = LogReader(MemoryStorage(files | {one: files[two], two: files[one]}), [signer.verifier])
    with pytest.raises(Tampered, match="entry 0"):
        list(reader.entries())


def test_no_trusted_key_no_reading(storage):
    with pytest.raises(Unverified, match="no trusted key"):
        LogReader(storage, []).checkpoint()


def test_entries_that_are_no_events_are_read_as_bytes(signer):
    from ledger import LogCheckpoint
    from ledger.format.bundle import pack_entries

    entries = [b"foreign", b"", b"\xff"]
    leaves = [leaf_hash(entry) for entry in entries]
    storage = MemoryStorage(
        {
            "checkpoint": LogCheckpoint(signer.name, 3, root_of(leaves)).sign([signer]).encode(),
            "tile/0/000.p/3": b"".join(leaves),
            "tile/entries/000.p/3": pack_entries(entries),
        }
    )
    reader = LogReader(storage, [signer.verifier], log="")
    assert [entry for _, entry in reader.entries()] == entries
    with pytest.raises(Malformed, match="entry 0"):
        list(reader.events())
    assert check(storage, [signer.verifier], log="", entries_are_events=False) == []
    assert [finding.where for finding in check(storage, [signer.verifier], log="")] == ["entry 0", "entry 1", "entry 2"]


# The projection


def rows(path):
    with sqlite3.connect(path) as db:
        return db.execute("SELECT * FROM events ORDER BY idx").fetchall()


def test_the_projection_is_a_fold_of_the_log(reader, tmp_path):
    with Projection(tmp_path / "p" / "events.sqlite", reader) as projection:
        assert projection.size == 0
        assert projection.catch_up() == SIZE
        assert projection.catch_up() == projection.size == SIZE
        expected = list(reader.events())
        assert list(projection.events()) == expected
        for stream, type_ in (("s/1", None), (None, "t.odd/v1"), ("s/2", "t.even/v1"), ("s/9", None)):
            wanted = [(i, e) for i, e in expected if stream in (None, e.stream) and type_ in (None, e.type)]
            assert list(projection.events(stream=stream, type=type_)) == wanted
            assert projection.latest(stream=stream, type=type_) == (wanted[-1] if wanted else None)
        assert [i for i, _ in projection.events(prefix="s/", start=597)] == [597, 598, 599]
        assert projection.event(5) == reader.event(5)
        assert projection.event(SIZE) is None
        assert projection.find("059", limit=3) == ["0590", "0591", "0592"]
        assert projection.find("nothing") == []
        assert projection.streams() == ["s/0", "s/1", "s/2"]


def test_deleting_and_rebuilding_gives_the_same_rows(signer, tmp_path):
    storage = PosixStorage(tmp_path / "root")
    Log.create(storage, signer)
    path = tmp_path / "events.sqlite"
    for start, end in ((0, 3), (3, 300), (300, 301)):
        with Log.open(storage, signer) as log:
            log.append(drafts(start, end))
        with Projection(path, LogReader(storage, [signer.verifier])) as projection:
            assert projection.catch_up() == end
    before = rows(path)
    path.unlink()
    with Projection(path, LogReader(storage, [signer.verifier])) as projection:
        projection.catch_up()
    assert rows(path) == before


@pytest.mark.parametrize(
    ("numbers", "found"), [([0, 1, 1], "entry 2"), ([0, 2], "entry 1"), ([1], "entry 0"), ([0, 1, 0], "entry 2")]
)
@pytest.mark.parametrize("at_once", [True, False])
def test_an_event_whose_number_is_not_the_next_of_its_stream_is_none(
    signer, tmp_path, monkeypatch, numbers, found, at_once
):
    """The operator could show one of two events with the same number, or hide one, from a reader who has not the whole log."""
    storage, entry, given = PosixStorage(tmp_path / "root"), Draft.entry, iter(numbers)
    monkeypatch.setattr(Draft, "entry", lambda draft, seq, time, actor: entry(draft, next(given), time, actor))
    Log.create(storage, signer)
    written = [Draft("t.odd/v1", "s/1", {"n": place}) for place, _ in enumerate(numbers)]
    for part in [written] if at_once else [[draft] for draft in written]:
        with Log.open(storage, signer) as log:
            log.append(part)
    reader = LogReader(storage, [signer.verifier])
    with Projection(tmp_path / "events.sqlite", reader) as projection:
        projection.catch_up()
        (stray,) = projection.strays("s/1")
        assert f"entry {stray.index}" == found
        assert stray.field == "seq"
        assert stray.index not in [index for index, _ in projection.events()]
        assert projection.strays("s/2") == []


@pytest.mark.parametrize(
    ("entry", "field", "found"),
    [
        (b"\xff\x00 no JSON of run/a", "", "not JSON"),
        (b'{"id":"x", "of":"run/\\u0061"}', "", "not canonical"),
        (b'{"of":"run/a"}', "", "not an event"),
        ("id of t-0", "id", "t-0"),
    ],
    ids=["no JSON", "not canonical", "no event", "an id again"],
)
def test_an_entry_that_is_no_event_is_left_out_and_named(signer, tmp_path, monkeypatch, entry, field, found):
    storage = PosixStorage(tmp_path / "root")
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append([Draft("t.odd/v1", "run/b", {}, id="t-0")])
    written, made = Draft.entry, iter((entry, None))

    def other(draft, seq, time, actor):
        if (wanted := next(made)) is None:
            return written(draft, seq, time, actor)
        if isinstance(wanted, bytes):
            return wanted
        return written(Draft(draft.type, "run/a", {}, id="t-0"), 0, time, actor)

    monkeypatch.setattr(Draft, "entry", other)
    with Log.open(storage, signer) as log:
        log.append([Draft("t.odd/v1", "run/c", {}), Draft("t.odd/v1", "run/b", {})])
    reader = LogReader(storage, [signer.verifier])
    with Projection(None, reader) as projection:
        assert projection.catch_up() == 3
        (stray,) = projection.strays("run/a")
        assert (stray.index, stray.field) == (1, field)
        assert found in stray.found
        assert [index for index, _ in projection.events()] == [0, 2]
    if not field:
        with pytest.raises(Malformed):
            list(reader.events())
        assert [index for index, _ in reader.events(lenient=True)] == [0, 2]


def test_an_entry_that_is_no_event_and_speaks_of_keys_is_not_left_out(signer, tmp_path, monkeypatch):
    storage = PosixStorage(tmp_path / "root")
    Log.create(storage, signer)
    monkeypatch.setattr(Draft, "entry", lambda *_: b'{"type": "log.\\u006bey-retired/v1"}')
    with Log.open(storage, signer) as log:
        log.append([Draft("t.odd/v1", "s/1", {})])
    with (
        Projection(None, LogReader(storage, [signer.verifier])) as projection,
        pytest.raises(Malformed, match="speaks of the log's keys"),
    ):
        projection.catch_up()


@pytest.mark.parametrize("damage", ["garbage", "ahead", "foreign", "old version"])
def test_a_projection_that_does_not_fit_is_rebuilt(reader, tmp_path, damage):
    path = tmp_path / "events.sqlite"
    with Projection(path, reader) as projection:
        projection.catch_up()
    before = rows(path)
    if damage == "garbage":
        path.write_bytes(b"no database at all" * 100)
    else:
        with sqlite3.connect(path) as db:
            db.execute("DELETE FROM events WHERE idx > 10")
            change = {"ahead": "UPDATE cursor SET size = 9999", "foreign": "UPDATE cursor SET root = x'00', size = 10"}
            db.execute(change.get(damage, "PRAGMA user_version = 99"))
    with Projection(path, reader) as projection:
        assert projection.catch_up() == SIZE
    assert rows(path) == before


@pytest.mark.parametrize("opened", [True, False], ids=["open", "to be opened"])
def test_a_projection_that_a_stopped_process_holds_is_made_for_this_one_alone(
    reader, tmp_path, monkeypatch, caplog, opened
):
    """A process that is stopped within a transaction holds the file until it goes on."""
    monkeypatch.setattr("ledger.log.projection._WAIT_SECONDS", 0.05)
    path = tmp_path / "events.sqlite"
    with Projection(path, reader) as whole:
        whole.catch_up()
        wanted = list(whole.events())
    projection = Projection(path, reader) if opened else None
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with projection or Projection(path, reader) as alone:
        assert alone.catch_up() == SIZE
        assert list(alone.events()) == wanted
    assert "is held by another process" in caplog.text
    other.execute("ROLLBACK")
    with Projection(path, reader) as again:
        assert again.size == SIZE, "the file is as it was"


def test_projections_catch_up_at_once(reader, storage, signer, tmp_path):
    path = tmp_path / "events.sqlite"
    sizes = []

    def follow():
        with Projection(path, LogReader(storage, [signer.verifier])) as projection:
            sizes.append(projection.catch_up())

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [SIZE] * 4
    assert [row[0] for row in rows(path)] == list(range(SIZE))


def test_what_another_folded_in_the_meantime_is_no_other_log(signer, tmp_path, monkeypatch, caplog):
    """Between a look at the log and the first row somebody appends, and follows: anyone who looked before must not throw the
    file away, which others have open."""
    storage = MemoryStorage()
    Log.create(storage, signer)
    path = tmp_path / "events.sqlite"

    def follower():
        return Projection(path, LogReader(storage, [signer.verifier], origin=signer.name))

    with Log.open(storage, signer) as log, follower() as late, follower() as other:
        log.append(drafts(0, 3))
        late.catch_up()
        fold = late._catch_up

        def after_others():
            log.append(drafts(3, 5))
            assert other.catch_up() == 5
            monkeypatch.undo()
            return fold()

        monkeypatch.setattr(late, "_catch_up", after_others)
        assert late.catch_up() == 5
        assert [index for index, _ in other.events()] == [index for index, _ in late.events()] == [0, 1, 2, 3, 4]
        log.append(drafts(5, 6))
        assert other.catch_up() == late.catch_up() == 6, "both have the same file"
    assert caplog.text == ""


def test_large_numbers_keep_their_text(signer):
    storage = MemoryStorage()
    Log.create(storage, signer)
    body = {"seed": str(2**64 - 1), "f": "0x1.8p+1", "deep": [{"x": None, "y": 1.5}]}
    with Log.open(storage, signer) as log:
        log.append([Draft("t/v1", "s", body)])
    with Projection(None, LogReader(storage, [signer.verifier])) as projection:
        projection.catch_up()
        assert dict(projection.event(0).body) == json.loads(json.dumps(body))


# A published root


class Quiet(http.server.SimpleHTTPRequestHandler):
    failures = 0

    def do_GET(self):
        if Quiet.failures > 0:
            Quiet.failures -= 1
            self.send_error(503)
        else:
            super().do_GET()

    def log_message(self, *args: object):
        pass


@pytest.fixture
def published(files, tmp_path):
    disk = PosixStorage(tmp_path / "site")
    for name, data in files.items():
        disk.create(name, data)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path / "site"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    Quiet.failures = 0
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_published_root_is_read_and_audited(published, signer):
    storage = open_storage(published)
    reader = LogReader(storage, [signer.verifier])
    assert [event.body["n"] for _, event in reader.events()] == list(range(SIZE))
    assert check(storage, [signer.verifier]) == []
    assert storage.read_range("log/tile/0/000", 32, 32) == reader.leaf_hash(1)
    assert storage.read_range("log/tile/0/000", 8192, 10) in (b"",)
    assert storage.size("log/tile/0/000") == 8192
    assert storage.exists("log/checkpoint")
    assert not storage.exists("log/missing")
    with pytest.raises(NotFound):
        storage.read("log/missing")


def test_a_published_root_cannot_be_written_or_listed(published, signer, tmp_path):
    storage = open_storage(published)
    assert not storage.writable
    for act in (
        lambda: storage.create("a", b""),
        lambda: storage.ensure("a", b""),
        lambda: storage.ensure_many([("a", b"")]),
        lambda: storage.replace("a", b""),
        lambda: storage.write_at("a", 0, b""),
        lambda: storage.adopt("a", tmp_path),
        lambda: storage.remove("a"),
        lambda: Log.open(storage, signer),
    ):
        with pytest.raises(Refused):
            act()
    with pytest.raises(Unavailable):
        list(storage.list())


def test_a_server_that_stops_answering_is_no_finding_about_its_log(published, signer):
    storage = open_storage(published)
    storage.read("log/checkpoint")
    Quiet.failures = 1000
    with pytest.raises(Unavailable, match="could not read a published file") as raised:
        check(storage, [signer.verifier])
    assert raised.value.exit_code == 3


def test_a_busy_server_is_asked_again_and_a_dead_one_named(published, signer):
    Quiet.failures = 2
    assert open_storage(published).read("log/checkpoint")
    Quiet.failures = 3
    with pytest.raises(StorageFailed, match="503"):
        open_storage(published).read("log/checkpoint")
    with pytest.raises(StorageFailed):
        open_storage("http://127.0.0.1:9").read("log/checkpoint")


@pytest.mark.parametrize("address", ["http://example.com/log", "ftp://example.com", "gopher://x"])
def test_only_safe_addresses_open(address):
    with pytest.raises(Refused):
        open_storage(address)


def test_places_of_events_without_their_bodies(signer):
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append([Draft(f"t{n % 2}/v1", f"s/{n % 3}", {"run": f"r{n % 5}"}, id=f"e{n}") for n in range(60)])
    with Projection(None, LogReader(storage, [signer.verifier])) as projection:
        projection.catch_up()
        assert projection.places() == list(range(60))
        assert projection.places(stream="s/1", type="t1/v1") == [n for n in range(60) if n % 3 == 1 and n % 2]
        assert projection.places(run="r4", last=3) == [49, 54, 59]
        assert projection.places(stream="none") == []


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=6), max_size=6),
    st.sets(st.integers(0, 6)),
)
@settings(max_examples=40)
def test_a_projection_that_followed_and_one_made_at_once_have_the_same_rows(batches, follows):
    signer = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    storage = MemoryStorage()
    Log.create(storage, signer)
    followed = Projection(None, LogReader(storage, [signer.verifier]))
    model = []
    for number, batch in enumerate(batches):
        with Log.open(storage, signer) as log:
            log.append([Draft("t/v1", stream, {"n": n, "x": [n / 7, "é"]}, id=f"{stream}{n}") for stream, n in batch])
        model += [item for item in dict.fromkeys(batch) if item not in model]
        if number in follows:
            assert followed.catch_up() == len(model)
    followed.catch_up()
    with Projection(None, LogReader(storage, [signer.verifier])) as fresh:
        fresh.catch_up()
        rows = list(fresh.events())
    assert list(followed.events()) == rows == list(LogReader(storage, [signer.verifier]).events())
    assert [(event.stream, event.body["n"]) for _, event in rows] == model
    followed.close()
