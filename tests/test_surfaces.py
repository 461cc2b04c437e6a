"""What listens on a port answers as its OpenAPI description says, whatever is asked: schemathesis asks real servers.

The descriptions lie beside the code: ledger/witness/openapi.json, ledger/mirror/openapi.json and
marin/plugins/mlflow/server/gate.openapi.json.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode, Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    status_code_conformance,
)

from ledger import (
    Draft,
    Log,
    LogMirror,
    LogReader,
    add_signatures,
    create_key,
    load_signer,
    subtree_proof,
    subtree_root,
)
from ledger.format.cosigner import Cosigner
from ledger.mirror.entries import EntriesHead, Package, encode_entries
from ledger.witness.server import WitnessServer
from ledger.witness.subtree import SubtreeRequest
from ledger.witness.witness import Witness, WitnessRequest
from marin.plugins.mlflow.server.gate import Gate
from tests.ledger.memory import MemoryStorage

PROJECT = Path(__file__).resolve().parent.parent
WITNESS = json.loads((PROJECT / "ledger/witness/openapi.json").read_text(encoding="utf-8"))
MIRROR = json.loads((PROJECT / "ledger/mirror/openapi.json").read_text(encoding="utf-8"))
GATE = (PROJECT / "marin/plugins/mlflow/server/gate.openapi.json").read_text(encoding="utf-8")
CHECKS = [status_code_conformance, content_type_conformance, response_headers_conformance]
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"}
TOKEN = "ab" * 32


def ask(
    described: dict[str, Any],
    address: str,
    judge: Callable[[Case, Response], None],
    *,
    examples: int = 50,
    drawn: int = 0,
    **sent: Any,
) -> Counter[str]:
    """Ask every operation what fits its description and what does not, and count the statuses that came.

    A status, content type or header that is not described fails, and so does what `judge` says of the answer. Each number
    of `drawn` draws other questions.
    """
    came: Counter[str] = Counter()
    schema = schemathesis.openapi.from_dict(described)
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in GenerationMode:

            @settings(
                max_examples=examples // 2,
                derandomize=True,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def one(case: Case) -> None:
                answer = case.call(base_url=address, allow_redirects=False, timeout=600, **sent)
                case.validate_response(answer, checks=CHECKS)
                judge(case, answer)
                came[f"{case.method} {answer.status_code}"] += 1

            # A body of any bytes, under no parameters, has no wrong form.
            with suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else nullcontext():
                (seed(drawn)(one) if drawn else one)()
    return came


# -- the witness --------------------------------------------------------------------------------------------------


SUBTREES = Cosigner("witness.example/one", MLDSA44PrivateKey.from_seed_bytes(bytes(32)), clock=lambda: 1)
"""The key that cosigns subtrees too."""


@pytest.fixture
def witnessed(tmp_path: Path) -> Iterator[tuple[str, LogReader]]:
    """A witness that listens and has cosigned three entries of a log that has five now."""
    create_key(tmp_path / "key", "example.org/log")
    signer = load_signer(tmp_path / "key")
    storage = MemoryStorage()
    Log.create(storage, signer)
    cosigner = Cosigner("witness.example/one", Ed25519PrivateKey.from_private_bytes(bytes(32)), clock=lambda: 1)
    witness = Witness(MemoryStorage(), [cosigner, SUBTREES], {signer.name: [signer.verifier]})
    with Log.open(storage, signer, publish_seconds=0) as log:
        log.append([Draft("t/v1", "s", {"n": n}) for n in range(3)])
        first = LogReader(storage, [signer.verifier]).note()
        assert witness.add_checkpoint(WitnessRequest(0, (), first).encode()).status == 200
        log.append([Draft("t/v1", "s", {"n": n}) for n in range(2)])
    with WitnessServer(witness) as server:
        yield server.address, LogReader(storage, [signer.verifier])


def bodies(reader: LogReader) -> st.SearchStrategy[bytes]:
    """Requests to cosign that are nearly right in every part, and some that are nothing."""
    note, proof = reader.note(), tuple(reader.consistency_proof(3))
    hashes = st.lists(st.one_of(st.sampled_from(proof), st.binary(min_size=32, max_size=32)), max_size=65).map(tuple)
    notes = st.one_of(
        st.just(note),
        st.binary(max_size=200),
        st.sampled_from([note.replace(b"example.org", b"example.com"), note.replace(b"\n5\n", b"\n6\n"), note[:-9]]),
    )
    sizes = st.sampled_from([0, 2, 3, 5, 6, 10**18])
    asked = st.builds(WitnessRequest, sizes, st.one_of(st.just(proof), hashes), notes)
    unproven = st.builds(WitnessRequest, st.sampled_from([3, 5]), hashes.map(lambda found: found[:5]), st.just(note))
    proven = st.sampled_from([3, 5]).map(lambda old: WitnessRequest(old, proof if old == 3 else (), note))
    checkpoints = st.one_of(asked, unproven, proven).map(WitnessRequest.encode)
    return st.one_of(checkpoints, parts(reader).map(SubtreeRequest.encode), st.binary(max_size=400))


def parts(reader: LogReader) -> st.SearchStrategy[SubtreeRequest]:
    """Requests for a subtree that are nearly right, and right ones."""
    note = reader.note()
    signed = add_signatures(note, [SUBTREES.line(str(reader.checkpoint()))])
    root, proof = subtree_root(2, 4, reader.hash), tuple(subtree_proof(2, 4, 5, reader.hash))
    right = SubtreeRequest(2, 4, root, proof, signed)
    places = st.sampled_from([(2, 4), (2, 4), (2, 4), (1, 3), (4, 5), (4, 9)])
    return st.one_of(
        st.just(right),
        st.builds(
            lambda place, root, proof, note: SubtreeRequest(*place, root, proof, note),
            places,
            st.sampled_from([root, bytes(32)]),
            st.sampled_from([proof, proof[1:]]),
            st.sampled_from([signed, note]),
        ),
    )


def test_the_witness_answers_as_described(witnessed: tuple[str, LogReader]) -> None:
    address, reader = witnessed
    schemathesis.openapi.media_type("text/plain", bodies(reader))

    def judge(case: Case, answer: Response) -> None:
        assert answer.status_code < 500, answer.text
        assert answer.headers["connection"] == ["close"] and answer.text.endswith("\n")
        if answer.status_code == 409:
            assert answer.text in ("3\n", "5\n")
        elif answer.status_code == 200 and case.method == "POST":
            assert answer.text.startswith("— witness.example/one ")

    # The log's key is another one each time, and with it what is drawn: a status may need more questions than one round has.
    wanted, came = {200, 400, 403, 404, 409, 422}, Counter[str]()
    for drawn in range(20):
        came += ask(WITNESS, address, judge, drawn=drawn)
        if {int(status.split()[1]) for status in came} >= wanted:
            break
    assert {int(status.split()[1]) for status in came} >= wanted, came


def test_every_other_method_of_the_witness_is_405_and_names_the_right_one(witnessed: tuple[str, LogReader]) -> None:
    address, reader = witnessed
    origin = hashlib.sha256(reader.checkpoint().origin.encode()).hexdigest()
    for path, operations in WITNESS["paths"].items():
        allowed = {name.upper() for name in operations}
        for method in METHODS - allowed:
            answer = requests.request(method, address + path.format(origin=origin), timeout=600)
            assert (answer.status_code, answer.headers["Allow"]) == (405, ", ".join(allowed)), (method, path)
    newest = requests.get(f"{address}/{origin}/checkpoint", timeout=600)
    assert newest.status_code == 200 and newest.text.startswith("example.org/log\n3\n")
    documented = WITNESS["paths"]["/add-checkpoint"]["post"]["responses"]
    for headers, data, status in (({"Content-Length": "9999999"}, None, 413), ({}, iter([b"old 0\n"]), 411)):
        prepared = requests.Request("POST", f"{address}/add-checkpoint", headers=headers, data=data).prepare()
        prepared.headers.update(headers)
        with requests.Session() as session:
            assert session.send(prepared, timeout=600).status_code == status and str(status) in documented


# -- the mirror ---------------------------------------------------------------------------------------------------


def uploads(reader: LogReader) -> st.SearchStrategy[bytes]:
    """Entries for a mirror that waits for five of them: right, cut short, of other leaves, and nothing."""
    entries = tuple(entry for _, entry in reader.entries())
    origin = reader.checkpoint().origin

    def body(start: int, end: int, most: int, origin: str, proof: tuple[bytes, ...]) -> bytes:
        sent = [Package(start, end, entries[start:end], proof)][:most] if start < end else []
        return encode_entries(EntriesHead(origin, start, end), sent)

    numbers = st.sampled_from([0, 3, 5, 5, 5, 6])
    known = st.sampled_from([origin, origin, origin, "example.org/other"])
    drawn = st.builds(body, numbers, numbers, st.integers(0, 1), known, st.sampled_from([(), (), (bytes(32),)]))
    right = st.just(body(0, 5, 1, origin, ()))
    cut = right.flatmap(lambda whole: st.integers(0, len(whole)).map(lambda at: whole[:at]))
    return st.one_of(drawn, drawn, right, cut, st.binary(max_size=80))


def test_the_mirror_answers_as_described(witnessed: tuple[str, LogReader]) -> None:
    _, reader = witnessed
    origin = reader.checkpoint().origin
    schemathesis.openapi.media_type("text/plain", bodies(reader))
    schemathesis.openapi.media_type("application/octet-stream", uploads(reader))
    mirror = LogMirror(MemoryStorage(), [SUBTREES], {origin: reader.signers()})
    assert mirror.add_checkpoint(WitnessRequest(0, (), reader.note()).encode()).status == 200

    def judge(case: Case, answer: Response) -> None:
        assert answer.status_code < 500, answer.text
        assert answer.headers["connection"] == ["close"]

    wanted, came = {200, 400, 404, 409, 422}, Counter[str]()
    with WitnessServer(mirror) as server:
        for drawn in range(10):
            came += ask(MIRROR, server.address, judge, drawn=drawn)
            if {int(status.split()[1]) for status in came} >= wanted:
                break
    assert {int(status.split()[1]) for status in came} >= wanted, came


# -- the gate of marin ui -----------------------------------------------------------------------------------------


class Behind:
    """What stands behind the gate: it answers everything, and counts what reached it."""

    def __init__(self) -> None:
        self.reached = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached += 1
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-behind", b"1")]})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def gate() -> Iterator[tuple[str, dict[str, Any], Behind]]:
    """The gate on a port, its description with that port, and what stands behind it."""
    behind = Behind()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        app = Gate(behind, token=TOKEN, host=host, port=port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}", json.loads(GATE.replace("5000", str(port))), behind
        finally:
            server.should_exit = True
            thread.join()


def refused(case: Case, answer: Response) -> None:
    assert answer.status_code in (401, 403, 421), f"{case.as_curl_command()}: {answer.status_code}"
    assert "x-behind" not in answer.headers and "set-cookie" not in answer.headers
    assert answer.headers["cache-control"] == ["no-store"]


@pytest.mark.long
def test_nobody_without_the_token_reaches_what_is_behind_the_gate(gate: tuple[str, dict[str, Any], Behind]) -> None:
    address, described, behind = gate
    came = ask(described, address, refused)
    came += ask(described, address, refused, examples=4, headers={"Host": "rebound.example:5000"})
    assert {status.split()[1] for status in came} == {"401", "403", "421"}, came
    assert behind.reached == 0


def test_under_the_right_name_the_token_alone_is_missing(gate: tuple[str, dict[str, Any], Behind]) -> None:
    address, described, behind = gate
    own = {"Host": address.removeprefix("http://"), "Origin": address, "Sec-Fetch-Site": "same-origin"}

    def judge(case: Case, answer: Response) -> None:
        refused(case, answer)
        assert answer.status_code == 401

    ask(described, address, judge, examples=10, headers=own)
    assert behind.reached == 0


def test_with_the_token_what_is_behind_answers_or_a_described_refusal(gate: tuple[str, dict[str, Any], Behind]) -> None:
    address, described, behind = gate

    def judge(case: Case, answer: Response) -> None:
        if "x-behind" not in answer.headers:
            assert answer.status_code in (403, 421), f"{case.as_curl_command()}: {answer.status_code}"

    came = ask(
        described, address, judge, examples=10, headers={"Authorization": f"Bearer {TOKEN}", "Host": address[7:]}
    )
    assert came["GET 403"] and behind.reached == sum(n for status, n in came.items() if status.endswith(" 200")) > 0

    def opened(case: Case, answer: Response) -> None:
        assert answer.status_code == (303 if case.method in ("GET", "HEAD") else 401)

    before = behind.reached
    own = {"Host": address[7:], "Origin": address, "Sec-Fetch-Site": "none"}
    ask(described, address, opened, examples=10, headers=own, params={"token": TOKEN})
    assert behind.reached == before
