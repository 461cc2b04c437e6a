"""The append service and its clients: group commit, tokens, errors that arrive whole, spools that are sent until
acknowledged."""

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from ledger import (
    Conflict,
    Draft,
    Log,
    LogReader,
    Malformed,
    OutOfSequence,
    PosixStorage,
    Refused,
    Unavailable,
    Unverified,
    check,
)
from ledger.service.client import LogClient, Spool
from ledger.service.lobby import Lobby, PromptReader, Room
from ledger.service.server import GroupCommit, LogService
from ledger.service.wire import (
    MAX_FRAME,
    FrameSocket,
    decode_drafts,
    decode_receipts,
    decode_text,
    encode_drafts,
    encode_error,
    encode_member,
    encode_receipts,
)


@pytest.fixture
def storage(tmp_path, signer):
    made = PosixStorage(tmp_path / "root")
    Log.create(made, signer)
    return made


@pytest.fixture
def endpoint(tmp_path):
    return tmp_path / "run" / "service.json"


@pytest.fixture
def service(storage, signer, endpoint):
    with Log.open(storage, signer) as log, LogService(log, endpoint) as served:
        yield served


def drafts(*numbers: int, stream="s/1"):
    return [Draft("t/v1", stream, {"n": n}, id=f"{stream}-{n}") for n in numbers]


def in_threads(*acts: object):
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def assert_left(stranger: socket.socket):
    """The other side ends the connection; it may reset it, since not all that was sent is read."""
    with suppress(ConnectionResetError):
        while stranger.recv(4096):
            pass


@contextmanager
def greeted(endpoint: Path) -> Iterator[tuple[socket.socket, FrameSocket]]:
    """A connection that the service knows: the socket, and its frames. A client may send on it what `LogClient` never would."""
    content = json.loads(endpoint.read_text())
    with socket.create_connection(("127.0.0.1", content["port"]), timeout=600) as connection:
        frames = FrameSocket(connection)
        frames.send(encode_member("token", content["token"]))
        assert decode_text(received(frames), "origin") == "log.example/test"
        yield connection, frames
        frames.close()


def received(frames: FrameSocket) -> bytes:
    """The answer that comes next."""
    frame = frames.receive()
    assert frame is not None, "the service ended the connection"
    return frame


def test_group_commit_takes_what_is_waiting_and_keeps_requests_apart(storage, signer):
    with Log.open(storage, signer) as log:
        committer = GroupCommit(log, max_seconds=0.01)
        good = [committer.submit(drafts(n)) for n in range(50)]
        bad = committer.submit([*drafts(90), Draft("t/v1", "s/1", {"n": 0}, id="s/1-1")])
        after = committer.submit(drafts(50))
        committer.close()
        assert [f.result()[0].index for f in [*good, after]] == list(range(51))
        with pytest.raises(Conflict):
            bad.result()
        # Fewer checkpoints than requests: some were committed together.
        assert len({f.result()[0].tree_size for f in good}) < 50
    assert check(storage, [signer.verifier]) == []


def test_outcomes_of_one_commit(storage, signer):
    with Log.open(storage, signer) as log:
        outcomes = log.append_each(
            [
                drafts(0, 1),
                [*drafts(2), *drafts(0, stream="s/2"), Draft("t/v1", "s/1", {}, expect_seq=7)],
                drafts(1, 2),
                [],
                [Draft("no type", "s/1", {})],
                drafts(0, stream="s/2"),
            ]
        )
        assert [[r.index for r in o] if isinstance(o, list) else type(o) for o in outcomes] == [
            [0, 1],
            OutOfSequence,
            [1, 2],
            [],
            Refused,
            [3],
        ]
        assert log.checkpoint.size == 4
    assert [e.seq for _, e in LogReader(storage, [signer.verifier]).events()] == [0, 1, 2, 0]


def test_many_clients_append_at_once(service, endpoint, storage, signer):
    receipts = {}

    def client(number):
        with LogClient(endpoint) as connection:
            for start in range(0, 40, 4):
                batch = drafts(*range(start, start + 4), stream=f"s/{number}")
                receipts.update({(number, start + at): r for at, r in enumerate(connection.append(batch))})

    in_threads(*(lambda number=number: client(number) for number in range(8)))
    assert sorted(r.index for r in receipts.values()) == list(range(320))
    assert all(r.seq == n for (_, n), r in receipts.items())
    reader = LogReader(storage, [signer.verifier])
    assert reader.checkpoint().size == 320
    for r in receipts.values():
        assert reader.leaf_hash(r.index).hex() == r.leaf_hash


def test_requests_may_run_ahead(service, endpoint):
    with LogClient(endpoint) as connection:
        outcomes = connection.append_each([drafts(n) for n in range(200)])
    assert [o[0].index for o in outcomes] == list(range(200))


def test_errors_arrive_as_they_are(service, endpoint):
    with LogClient(endpoint) as connection:
        connection.append(drafts(0))
        with pytest.raises(Conflict, match="the id is taken") as caught:
            connection.append([Draft("t/v1", "s/1", {"n": 9}, id="s/1-0")])
        assert caught.value.cure
        with pytest.raises(Refused):
            connection.append([Draft("t/v1", "s/1", {"n": float("nan")})])
        assert connection.append(drafts(1))[0].index == 1
        assert connection.origin == "log.example/test"


def test_what_was_cut_short_answers_no_other_request(service, endpoint, monkeypatch):
    """As Ctrl-C between drafts and their receipt: the next ones would have it."""

    def interrupted() -> bytes:
        raise KeyboardInterrupt

    with LogClient(endpoint) as connection:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(connection, "_receive", interrupted)
            connection.append(drafts(1))
        with pytest.raises(Unavailable):
            connection.append(drafts(2))
    with LogClient(endpoint) as connection:
        assert [receipt.index for receipt in connection.append(drafts(1, 2))] == [0, 1]


def test_the_token_is_asked_for(service, endpoint):
    content = json.loads(endpoint.read_text())
    assert endpoint.stat().st_mode & 0o777 == 0o600
    endpoint.write_text(json.dumps(content | {"token": "guess"}))
    with pytest.raises(Unverified, match="token"):
        LogClient(endpoint)
    endpoint.chmod(0o644)
    with pytest.raises(Refused, match="0644"):
        LogClient(endpoint)


def test_without_a_service_there_is_a_clear_message(tmp_path, endpoint):
    with pytest.raises(Unavailable, match="start one with `ledger serve`"):
        LogClient(endpoint)
    stale = tmp_path / "stale.json"
    stale.write_text(json.dumps({"port": 9, "token": "x", "pid": 1}))
    stale.chmod(0o600)
    with pytest.raises(Unavailable, match="gone"):
        LogClient(stale)
    stale.write_text("{")
    with pytest.raises(Malformed):
        LogClient(stale)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{}", b'\x00\x00\x00\x09{"a":1', b"GET / HTTP/1.1\r\n\r\n"],
)
def test_strangers_are_left_alone_and_the_service_goes_on(service, endpoint, data):
    with socket.create_connection(("127.0.0.1", service.port)) as stranger:
        stranger.sendall(data)
        with suppress(OSError):  # it may have been left already
            stranger.shutdown(socket.SHUT_WR)
        assert_left(stranger)
    with LogClient(endpoint) as connection:
        assert connection.append(drafts(0))[0].index == 0


@pytest.mark.parametrize(
    "frame", [b"", b"[]", b"{}", b'{"drafts":3}', b'{"drafts":[3]}', b'{"drafts":[[1,2]]}', b"\xff"]
)
def test_requests_that_are_none_are_answered_by_an_error(service, endpoint, frame):
    with greeted(endpoint) as (_, frames):
        frames.send(frame)
        answer = received(frames)
        with pytest.raises(Malformed):
            decode_receipts(answer)
        frames.send(encode_drafts(drafts(0)))
        assert decode_receipts(received(frames))[0].index == 0


def test_the_wire_keeps_drafts_and_errors():
    made = [
        Draft("t/v1", "s", {"x": [1, "ü", None]}, id="i", expect_seq=3, actor="a", time="2026-01-01T00:00:00.000000Z")
    ]
    assert decode_drafts(encode_drafts(made)) == made
    assert decode_receipts(encode_receipts([])) == []
    error = Conflict("what", where="where", expected="e", found="f", cure="c")
    with pytest.raises(Conflict) as caught:
        decode_receipts(encode_error(error))
    assert str(caught.value) == str(error)


def test_closing_answers_what_was_handed_in(storage, signer, endpoint):
    with Log.open(storage, signer) as log:
        service = LogService(log, endpoint)
        with greeted(endpoint) as (_, frames):
            frames.send(*(encode_drafts(drafts(n)) for n in range(100)))
            answered = [decode_receipts(received(frames))]
            service.close()
            with suppress(ConnectionError):  # or reset, where the service left requests unread
                while frame := frames.receive():
                    answered.append(decode_receipts(frame))
        assert [receipt.index for receipts in answered for receipt in receipts] == list(range(len(answered)))
        assert log.checkpoint.size >= len(answered)
        assert not endpoint.exists()


def test_a_spool_is_sent_when_the_service_comes(storage, signer, endpoint, tmp_path):
    spool = Spool(tmp_path / "spool", lambda: LogClient(endpoint))
    for n in range(5):
        spool.put(drafts(n))
    with pytest.raises(Unavailable):
        spool.drain(seconds=0)
    assert len(spool) == 5
    spool = Spool(tmp_path / "spool", lambda: LogClient(endpoint))  # as after a restart
    spool.put(drafts(5))
    with Log.open(storage, signer) as log, LogService(log, endpoint):
        assert [r.index for r in spool.drain()] == list(range(6))
        assert len(spool) == 0
        spool.put(drafts(3))  # sent before, and so there already
        assert [r.index for r in spool.drain()] == [3]
        spool.close()
    assert [event.body["n"] for _, event in LogReader(storage, [signer.verifier]).events()] == list(range(6))


def test_a_refused_batch_does_not_stop_the_others(service, endpoint, tmp_path):
    spool = Spool(tmp_path / "spool", lambda: LogClient(endpoint))
    spool.put(drafts(0))
    spool.put([Draft("t/v1", "s/1", {"n": 1}, id="s/1-0")])
    spool.put(drafts(1))
    with pytest.raises(Conflict):
        spool.drain()
    assert len(spool) == 0
    assert (tmp_path / "spool" / "refused" / f"{1:020d}").exists()
    with LogClient(endpoint) as connection:
        assert [r.index for r in connection.append(drafts(0, 1))] == [0, 1]
    spool.close()


def connected(service: LogService, count: int, stack: ExitStack) -> list[socket.socket]:
    return [stack.enter_context(socket.create_connection(("127.0.0.1", service.port))) for _ in range(count)]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_what_strangers_send_takes_no_memory(service, endpoint):
    """Fifteen connections without the token claim frames of 64 MiB and send as much of them as is taken."""
    piece = bytes(1 << 20)
    with ExitStack() as stack:
        strangers = connected(service, 15, stack)
        before = resident_bytes()
        for stranger in strangers:
            with suppress(OSError):
                stranger.sendall(MAX_FRAME.to_bytes(4))
                for _ in range(64):
                    stranger.sendall(piece)
            assert_left(stranger)
        assert resident_bytes() - before < 16 << 20
    with LogClient(endpoint) as connection:
        assert connection.append(drafts(0))[0].index == 0


def test_a_silent_crowd_loses_its_seats_and_clients_are_served(storage, signer, endpoint):
    with Log.open(storage, signer) as log, LogService(log, endpoint, strangers=4) as service, ExitStack() as stack:
        strangers = connected(service, 40, stack)
        with LogClient(endpoint) as connection:
            assert connection.append(drafts(0))[0].index == 0
            for stranger in strangers[:36]:
                assert_left(stranger)
            clients = sum(thread.name == "client" for thread in threading.enumerate())
            assert clients < 20


def test_a_greeting_has_a_deadline(storage, signer, endpoint):
    with (
        Log.open(storage, signer) as log,
        LogService(log, endpoint, greeting_seconds=0.2) as service,
        ExitStack() as stack,
    ):
        silent, halfway = connected(service, 2, stack)
        halfway.sendall(b"\0\0\0\x09{")
        assert_left(silent)
        assert_left(halfway)


def test_a_client_has_no_deadline_and_each_of_its_frames_has_one(storage, signer, endpoint):
    """The greeting has all the time that a busy machine takes."""
    with (
        Log.open(storage, signer) as log,
        LogService(log, endpoint, greeting_seconds=60, patience_seconds=1.0),
        greeted(endpoint) as (connection, frames),
    ):
        assert not select.select([connection], [], [], 1.2)[0], "it was not hung up on for saying nothing for longer"
        frames.send(encode_drafts(drafts(0)))
        assert decode_receipts(received(frames))[0].index == 0
        frames.send(b"{")
        answer = received(frames)
        with pytest.raises(Malformed):
            decode_receipts(answer)
        connection.sendall(b"\0\0\0\x09{")
        assert frames.receive() is None, "a frame has a deadline"


def test_the_deadline_of_a_greeting_ends_with_it():
    near, far = socket.socketpair()
    with near, closing(FrameSocket(far)) as frames:
        near.sendall(b"\0\0\0\x02{}")
        assert frames.greeting(60) == b"{}" and far.gettimeout() is not None
        frames.be_patient(1.0)
        assert far.gettimeout() is None


def test_dribbling_buys_no_time():
    """Every read gets what is left of one deadline, whatever came before it."""
    now = [0.0]
    left, right = socket.socketpair()
    with left, right:
        reader = PromptReader(left, seconds=5, limit=100, clock=lambda: now[0])
        for second in range(5):
            now[0] = second
            right.sendall(b"x")
            assert reader.read(1) == b"x"
            assert left.gettimeout() == 5 - second
        right.sendall(b"x")
        now[0] = 5
        with pytest.raises(TimeoutError):
            reader.read(1)


def test_a_prompt_reader_ends_at_its_limit():
    left, right = socket.socketpair()
    with left, right:
        right.sendall(b"abcdef")
        reader = PromptReader(left, seconds=60, limit=4)
        assert reader.exactly(3) == b"abc"
        assert reader.exactly(3) == b"d"
        assert left.recv(9) == b"ef"


def test_the_seat_of_the_largest_crowd_goes_first():
    pairs = [socket.socketpair() for _ in range(5)]
    lobby = Lobby(seats=4, inside=1)
    try:
        for (connection, _), address in zip(pairs, ["a", "b", "b", "c"], strict=False):
            assert lobby.enter(connection, address)
        newcomer = threading.Thread(target=lobby.enter, args=(pairs[4][0], "d"))
        newcomer.start()
        assert pairs[1][1].recv(1) == b""  # the first of b
        lobby.leave(pairs[1][0])
        newcomer.join()
        assert len(lobby) == 4
        assert lobby.admit(pairs[0][0])
        assert not lobby.admit(pairs[3][0])  # it is full inside
        lobby.leave(pairs[0][0])
        assert lobby.admit(pairs[3][0])
        lobby.close()
        assert pairs[3][1].recv(1) == b""
        assert not lobby.enter(pairs[1][0], "b")
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def test_no_more_clients_than_the_service_takes(storage, signer, endpoint):
    with Log.open(storage, signer) as log, LogService(log, endpoint, clients=1), LogClient(endpoint) as first:
        with pytest.raises(Unavailable, match="as many clients"):
            LogClient(endpoint)
        assert first.append(drafts(0))[0].index == 0


def test_requests_wait_for_room():
    room = Room(10)

    def entering(size: int) -> threading.Thread:
        thread = threading.Thread(target=room.take, args=(size,), daemon=True)
        thread.start()
        return thread

    def assert_waits(thread: threading.Thread):
        thread.join(timeout=0.2)
        assert thread.is_alive()

    def assert_enters(thread: threading.Thread):
        thread.join(timeout=600)
        assert not thread.is_alive()

    assert_enters(entering(25))  # larger than all of it: alone
    second = entering(8)
    assert_waits(second)
    room.free(25)
    assert_enters(second)
    third = entering(3)  # with the second it were 11
    assert_waits(third)
    assert_enters(entering(2))
    room.free(8)
    assert_enters(third)


def test_a_client_that_takes_no_answers_is_left(storage, signer, endpoint):
    with Log.open(storage, signer) as log, LogService(log, endpoint, patience_seconds=0.2) as service:
        rude, content = socket.create_connection(("127.0.0.1", service.port)), json.loads(endpoint.read_text())
        with rude, LogClient(endpoint) as polite:
            frames = FrameSocket(rude)
            frames.send(encode_member("token", content["token"]))
            long = b"{" + b'"' * 100
            with suppress(OSError):
                while True:
                    frames.send(*[long] * 1000)
            frames.close()
            assert polite.append(drafts(0))[0].index == 0


def test_a_token_that_is_no_text_is_refused(service):
    with socket.create_connection(("127.0.0.1", service.port)) as stranger:
        frames = FrameSocket(stranger)
        frames.send(b'{"token":"\\ud800"}')
        with pytest.raises(Unverified):
            decode_receipts(frames.receive())
        frames.close()


def test_frames_are_bounded():
    left, right = socket.socketpair()
    with left, right:
        right.sendall(b"\x7f\xff\xff\xff")
        with pytest.raises(Malformed):
            FrameSocket(left).receive()
