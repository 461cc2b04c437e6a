"""The append service for other machines: who is let in, what an author may do there, and that a lost connection loses nothing.
All on the loopback interface, by real TLS."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from ledger import (
    Author,
    Authors,
    Draft,
    LedgerError,
    Log,
    LogReader,
    Malformed,
    NotFound,
    PosixStorage,
    Refused,
    RemoteClient,
    RemoteService,
    RemoteStorage,
    Served,
    Signer,
    Spool,
    StorageFailed,
    Store,
    Tampered,
    Unavailable,
    Unverified,
    check,
    digest_bytes,
    enrol_author,
    make_certificate,
    revoke_author,
    sign_drafts,
)
from ledger.service import tls
from ledger.service.server import LogService
from ledger.service.wire import FrameSocket, encode_drafts, encode_storage_request
from ledger.storage.port import Detail
from ledger.store.layout import blob_name, tree_name

ORIGIN = "log.example/far"


def key(name: str, seed: int) -> Signer:
    return Signer(name, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


LOG, SERVICE, ADA, BOB, EVE = (
    key(ORIGIN, 1),
    key("marin.service", 5),
    key("ada@desk", 2),
    key("bob@gpu", 3),
    key("eve@cafe", 4),
)


@dataclass
class Lab:
    """A root that is served. ``open`` starts the service, again at the same port where it ran before."""

    folder: Path
    port: int = 0
    running: ExitStack = field(default_factory=ExitStack)
    clients: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.storage = PosixStorage(self.folder / "root")
        Log.create(self.storage, LOG)
        self.open()
        for author in (ADA, BOB):
            self.log.append([enrol_author(ORIGIN, LOG, author.verifier, make_certificate(author))])

    def open(self) -> None:
        self.running = ExitStack()
        self.log = self.running.enter_context(Log.open(self.storage, LOG))
        local = self.running.enter_context(LogService(self.log, self.folder / "run" / "service.json"))
        served = Served(ORIGIN, self.storage, SERVICE, self.people)
        self.service = self.running.enter_context(RemoteService(served, local.committer, "127.0.0.1", self.port))
        self.port = self.service.port

    def close(self) -> None:
        self.running.close()

    def people(self) -> list[Author]:
        reader = LogReader(self.storage, [LOG.verifier])
        events = list(reader.events())
        known = Authors(ORIGIN, reader.keys, lambda kind: [i for i, e in events if e.type == kind], reader.event)
        return [author for author in known if author.until is None]

    def client(self, author: Signer = BOB, service: Signer = SERVICE) -> RemoteClient:
        made = RemoteClient("127.0.0.1", self.port, author, make_certificate(service))
        self.clients.callback(made.close)
        return made

    def files(self, author: Signer = BOB) -> RemoteStorage:
        return RemoteStorage("ledger://lab", lambda: self.client(author), away_seconds=0.0)

    def texts(self) -> list[str]:
        events = LogReader(self.storage, [LOG.verifier]).events()
        return [event.body["text"] for _, event in events if event.type == "note.added/v1"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    with made.clients:
        yield made
        made.close()


def note(text: str, **more: str) -> Draft:
    return Draft("note.added/v1", "notes", {"text": text}, **more)


def written(author: Signer, text: str) -> list[Draft]:
    return sign_drafts(ORIGIN, author, [note(text, id=f"{author.name}-{text}")])


@contextmanager
def refused(client: RemoteClient, kind: type[LedgerError], says: str) -> Iterator[None]:
    """The request is refused with these words, and the connection serves the next one."""
    with pytest.raises(kind, match=says):
        yield
    assert client.ask("exists", "log/checkpoint") is True


def test_two_authors_work_on_one_log_and_store(lab) -> None:
    lab.client(ADA).append(written(ADA, "one"))
    client = lab.client(BOB)
    receipts = client.append(written(BOB, "two"))
    assert client.append(written(BOB, "two")) == receipts
    assert lab.texts() == ["one", "two"]

    far = lab.files()
    (lab.folder / "big").write_bytes(bytes(range(256)) * 33_000)  # above 8 MiB: a large blob, with part hashes
    for content in (b"small", b""):
        digest = Store(far).put_bytes(content).digest
        assert Store(lab.storage).read(digest) == content
    digest = Store(far).put_file(lab.folder / "big").digest
    assert Store(lab.files(ADA)).read(digest) == (lab.folder / "big").read_bytes()
    assert LogReader(far, [LOG.verifier]).checkpoint().size == lab.log.checkpoint.size
    lab.close()
    assert check(lab.storage, [LOG.verifier], deep=True) == []


def test_a_service_that_comes_back_has_lost_nothing_and_doubled_nothing(lab, tmp_path) -> None:
    waiting = Spool(tmp_path / "spool", lab.client)
    waiting.put(written(BOB, "one"))
    waiting.drain()
    lab.close()
    waiting.put(written(BOB, "two"))
    waiting.put(written(BOB, "three"))
    with pytest.raises(Unavailable, match="cannot be reached"):
        waiting.drain(seconds=0)
    assert len(waiting) == 2
    lab.open()
    waiting.drain()
    assert lab.texts() == ["one", "two", "three"]
    # Acknowledged or not: who hands the same in again gets the same place.
    assert lab.client().append(written(BOB, "two"))[0].seq == 1


def test_a_connection_that_ended_is_made_again_for_files(lab) -> None:
    far = lab.files()
    assert far.exists("log/checkpoint")
    lab.close()
    with pytest.raises(Unavailable):
        far.exists("log/checkpoint")
    lab.open()
    assert far.exists("log/checkpoint")


class AnotherLanguage(PosixStorage):
    """The storage of a service that answers with something else than what is asked."""

    answer: Any = None

    def size(self, name: str) -> int:
        return self.answer

    def list(self, prefix: str = "") -> Iterator[str]:
        return iter(self.answer)

    def details(self, prefix: str = "") -> Iterator[Detail]:
        return iter(self.answer)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "question", "kind", "says"),
    [
        ("much", lambda far: far.size("log/checkpoint"), Malformed, "another language"),
        ([3], lambda far: list(far.list("store/")), Malformed, "another language"),
        (["store/../../up"], lambda far: list(far.list("store/")), Refused, "not a storage name"),
        (["other/blob"], lambda far: list(far.list("store/")), Malformed, "not a name that was asked for"),
        ([Detail("store/a", "many", 0.0)], lambda far: list(far.details("store/")), Malformed, "another language"),  # type: ignore[arg-type]
        ([Detail("/log", 1, 0.0)], lambda far: list(far.details("store/")), Refused, "not a storage name"),
        (b"12345", lambda far: far.read_range("log/checkpoint", 0, 4), Malformed, "more than was asked for"),
    ],
)
def test_a_service_that_answers_otherwise_is_not_believed(lab, answer, question, kind, says) -> None:
    lab.close()
    lab.storage = AnotherLanguage(lab.folder / "root")
    lab.open()
    far = lab.files()
    lab.storage.answer = answer
    with pytest.raises(kind, match=says):
        question(far)
    lab.storage = PosixStorage(lab.folder / "root")


def test_files_wait_for_a_service_that_went_away_and_not_for_one_that_was_never_there(lab) -> None:
    tries: list[int] = []

    def connect() -> RemoteClient:
        tries.append(len(tries))
        if len(tries) == 3:
            lab.open()
        return lab.client(BOB)

    far = RemoteStorage("ledger://lab", connect)
    assert far.exists("log/checkpoint")
    lab.close()
    name = blob_name(digest_bytes(b"kept"))
    far.ensure(name, b"kept")
    assert (len(tries), lab.storage.read(name)) == (3, b"kept")
    lab.close()
    with pytest.raises(Unavailable, match="cannot be reached"):
        RemoteStorage("ledger://lab", connect).exists("log/checkpoint")
    assert len(tries) == 4
    lab.open()


def test_what_was_cut_short_answers_no_other_question(lab, monkeypatch) -> None:
    """As Ctrl-C between a request and its answer, or a file of one's own that cannot be read."""
    client = lab.client()
    there = iter([client])
    far = RemoteStorage("ledger://lab", lambda: next(there, None) or lab.client())
    assert far.exists("log/checkpoint")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(client, "_received", _interrupted)
        far.exists("store/nothing")
    assert far.exists("log/checkpoint"), "the answer about the other name"
    with pytest.raises(StorageFailed, match="a file cannot be read"):
        far.adopt(blob_name(digest_bytes(b"away")), lab.folder)
    assert far.exists("log/checkpoint") and not far.exists("store/nothing")


def _interrupted() -> bytes:
    raise KeyboardInterrupt


def test_nobody_else_is_let_in(lab, caplog) -> None:
    with caplog.at_level("INFO", logger="ledger"):
        for stranger in (EVE, key("bob@gpu", 4), key("marin.service", 5)):
            with pytest.raises(Unverified, match="has not enrolled this key, or revoked it"):
                lab.client(stranger)
        assert lab.client(BOB).origin == ORIGIN
        lab.close()  # anyone who is served has been told by then
    said = "a client was left: the log has not enrolled this key, or revoked it: 127.0.0.1"
    assert sum(said in line and "ledger key join" in line for line in caplog.messages) == 3, "who serves is told"


def test_an_author_lets_nobody_in(lab) -> None:
    """Bob signs a certificate for Eve, in Ada's name: his own may issue none."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ada@desk")])
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob@gpu")])
    moment = datetime(2000, 1, 1)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(EVE.key.public_key())
    made = made.serial_number(1).not_valid_before(moment).not_valid_after(datetime(9999, 1, 1))
    issued = made.sign(BOB.key, None).public_bytes(Encoding.DER)
    context = tls.client_context(EVE, make_certificate(SERVICE))
    (lab.folder / "issued.pem").write_text(
        ssl.DER_cert_to_PEM_cert(issued) + ssl.DER_cert_to_PEM_cert(make_certificate(BOB))
    )
    (lab.folder / "eve.pem").write_bytes(
        EVE.key.private_bytes(Encoding.PEM, tls.PrivateFormat.PKCS8, tls.NoEncryption())
    )
    context.load_cert_chain(lab.folder / "issued.pem", lab.folder / "eve.pem")
    plain = socket.create_connection(("127.0.0.1", lab.port), timeout=20)
    with pytest.raises(OSError), context.wrap_socket(plain) as connection:
        assert connection.recv(1) == b"", "the service talks to somebody whom nobody enrolled"
        raise OSError("the service ended the connection")


def test_a_service_with_another_key_is_not_believed(lab) -> None:
    """Who sits between the two and has a key of its own."""
    with pytest.raises(Unverified, match="the service at this address has another key"):
        lab.client(BOB, service=EVE)


def test_what_ends_a_connection_says_nothing_of_keys(lab) -> None:
    """As a tunnel does whose far end is away: it takes a connection, and ends it before the first word."""
    with socket.create_server(("127.0.0.1", 0)) as tunnel:

        def end() -> None:
            taken, _ = tunnel.accept()
            with taken:
                taken.recv(1 << 16)

        far = threading.Thread(target=end)
        far.start()
        with pytest.raises(Unavailable, match="cannot be reached"):
            RemoteClient("127.0.0.1", tunnel.getsockname()[1], BOB, make_certificate(SERVICE))
        far.join()


def test_without_tls_there_is_no_answer(lab) -> None:
    for said in (
        encode_drafts([note("x")]),
        encode_storage_request(["exists", "log/checkpoint"]),
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", lab.port), timeout=20) as plain:
            frames = FrameSocket(plain)
            frames.send(said)
            with suppress(OSError, LedgerError):
                assert frames.receive() is None
    assert lab.texts() == []


def test_an_author_appends_what_is_the_authors_own(lab) -> None:
    client = lab.client(BOB)
    with refused(client, Refused, "an event that its sender has not signed.*found none"):
        client.append([note("unsigned")])
    with refused(client, Refused, "an event that its sender has not signed.*found one of ada@desk"):
        client.append(written(ADA, "caught"))
    with refused(client, Refused, "an event that its sender has not signed"):
        client.append([*written(BOB, "mine"), note("and one more")])
    with refused(client, Refused, "this key enrols and revokes nobody"):
        client.append([enrol_author(ORIGIN, BOB, EVE.verifier, make_certificate(EVE))])
    with refused(client, Refused, "the log has not enrolled this key"):
        client.append([revoke_author(ORIGIN, key(ORIGIN, 9), ADA.verifier)])
    with refused(client, Refused, "not appended by hand"):
        client.append(sign_drafts(ORIGIN, BOB, [Draft("log.key-rotated/v1", "log/keys", {"vkeys": [], "by": []})]))
    assert lab.texts() == []


def test_a_revoked_author_is_out_at_the_next_request(lab) -> None:
    client, far = lab.client(BOB), lab.files(BOB)
    client.append(written(BOB, "before"))
    assert far.exists("log/checkpoint")
    lab.log.append([revoke_author(ORIGIN, LOG, BOB.verifier)])
    for ask in (lambda: client.append(written(BOB, "after")), lambda: far.read("log/checkpoint")):
        with pytest.raises(Unverified, match="has not enrolled this key, or revoked it"):
            ask()
    with pytest.raises(Unverified, match="has not enrolled this key, or revoked it"):
        lab.client(BOB)
    assert lab.texts() == ["before"]


def test_of_the_root_an_author_reads_log_and_store(lab) -> None:
    lab.storage.create("service.json", b'{"token": "secret"}')
    client = lab.client(BOB)
    for name in ("service.json", "projections/x", "log/.lock", "log/../service.json", "/etc/passwd", "store/../vkey"):
        with refused(client, Refused, "not"):
            client.ask_bytes("range", name, 0, 10)
        with refused(client, Refused, "not"):
            client.ask("exists", name)
    for prefix in ("", "s", "service", "projections/", "log/."):
        with refused(client, Refused, "not"):
            client.ask("list", prefix)
    with refused(client, NotFound, "."):
        client.ask("size", "store/blobs/sha256/00/none")


def test_to_the_store_an_author_adds_what_it_is_named_for(lab) -> None:
    good = digest_bytes(b"good")
    Store(lab.storage).put_bytes(b"good")
    far, client = lab.files(), lab.client()
    for name in (blob_name(digest_bytes(b"another")), tree_name(digest_bytes(b"another"))):
        with refused(client, Tampered, "not what their name says"):
            client.ask("ensure", name, 1, pieces=[b"bad"])
    for name in (
        "log/checkpoint",
        "vkey",
        "keys/0",
        "store/pins/x.json",
        "store/packfiles.txt",
        "store/blobs/x",
        "log/journal",
    ):
        with refused(client, LedgerError, "."):
            client.ask("ensure", name, 1, pieces=[b"bad"])
    for act in (
        lambda: far.replace(blob_name(good), b"bad"),
        lambda: far.remove(blob_name(good)),
        lambda: far.rename(blob_name(good), "store/x"),
        lambda: far.write_at("log/journal", 0, b"bad"),
        lambda: far.lock("log/.lock", "bob"),
    ):
        with pytest.raises(Refused, match="an author may not do this"):
            act()
    for asked in (
        ["remove", blob_name(good)],
        ["renew", "log/checkpoint", "x"],
        ["rename", "a", "b"],
        [],
        ["read"],
        [7],
    ):
        with refused(client, Refused, "an author may not do this"):
            client.ask(*asked)
    assert Store(lab.storage).read(good) == b"good"
    assert check(lab.storage, [LOG.verifier], deep=True) == []


@pytest.mark.parametrize("asked", [["ensure", "store/blobs/x", -1], ["create", "store/blobs/x", 1 << 40]])
def test_a_request_without_an_end_ends_the_connection(lab, asked) -> None:
    client = lab.client()
    with pytest.raises(Unavailable):
        client.ask(*asked)
    assert lab.client().ask("exists", "log/checkpoint") is True
